"""URDF: links and joints of a <robot>, checked and built into a mechanism.

A link is a body, a joint stays a joint, fixed ones too. The root link is fixed to the world unless it is called
"world" itself. A mimic joint is a coupling, <dynamics> a damper and dry friction.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from mechid.errors import MechidError, choices, unknown
from mechid.model.geometry import Array, inertia_matrix, roll_pitch_yaw
from mechid.model.mechanism import WORLD, Mechanism
from mechid.model.read_names import Names, listed
from mechid.model.xmltext import Element

KINDS = ("revolute", "continuous", "prismatic", "fixed", "floating")
GRAVITY = (0.0, 0.0, -9.81)
"""m/s²; a URDF does not say, z is up by convention"""


class Mimic(NamedTuple):
    other: str
    ratio: float
    offset: float


class UrdfJoint(NamedTuple):
    """A <joint> with its numbers."""

    name: str
    kind: str
    parent: str
    child: str
    origin: Array
    rotation: Array
    axis: Array
    limits: tuple[float, float]
    max_rate: float
    max_force: float
    damping: float
    friction: float
    mimic: Mimic | None

    @property
    def moves(self) -> bool:
        return self.kind in ("revolute", "continuous", "prismatic")


def read_urdf(root: Element, torques: bool) -> Mechanism:
    """The mechanism of a <robot>, with a torque on every joint that moves by itself if asked for."""
    _refuse_macros(root)
    links = _named(root, "link")
    if not links:
        raise MechidError("the robot has no <link>.")
    joints = {name: _joint(name, element) for name, element in _named(root, "joint").items()}
    _check_mimics(joints)
    base = _check_tree(links, joints)

    names = Names()
    body = {link: WORLD if link == base == WORLD else names.of_file("frame", link) for link in links}
    joint = {name: names.of_file("joint", name) for name in joints}
    m = Mechanism(root.get("name") or "robot", GRAVITY)
    for name, element in links.items():
        inertial = _inertial(name, element)
        if body[name] != WORLD:
            m = m.body(body[name], **inertial)
    if base != WORLD:
        m = m.fixed(names.new("joint", base), WORLD, body[base])
    for j in joints.values():
        m = _add_joint(m, j, joint[j.name], body)
    for j in (j for j in joints.values() if j.moves):
        if j.damping:
            m = m.damper(joint[j.name], damping=j.damping)
        if j.friction:
            m = m.friction(joint[j.name], coulomb=j.friction)
        if j.mimic:
            other, ratio, offset = j.mimic
            m = m.coupling(joint[j.name], joint[j.name], joint[other], ratio=ratio, offset=offset)
        elif torques:
            m = m.torque(joint[j.name])
    return dataclasses.replace(m, notes=(*_notes(root, links, joints, base), *names.notes()))


def _add_joint(m: Mechanism, j: UrdfJoint, name: str, body: dict[str, str]) -> Mechanism:
    at: dict[str, Any] = {"origin": j.origin, "rotation": j.rotation}
    ends = body[j.parent], body[j.child]
    if j.kind == "fixed":
        return m.fixed(name, *ends, **at)
    if j.kind == "floating":
        return m.floating(name, *ends, **at)
    able: dict[str, Any] = {
        "axis": j.axis,
        "limits": j.limits,
        "max_rate": j.max_rate,
        "max_force": j.max_force,
    }
    add = m.prismatic if j.kind == "prismatic" else m.revolute
    return add(name, *ends, **at, **able)


# Elements and their numbers


def _named(root: Element, tag: str) -> dict[str, Element]:
    """The elements of a tag by their names, which must be there and differ."""
    found: dict[str, Element] = {}
    for element in root.children:
        if element.name == tag:
            name = _text(element, "name", f"a <{tag}>")
            if name in found:
                lines = f"lines {found[name].line} and {element.line}"
                raise MechidError(f"there are two {tag}s named '{name}' ({lines}).")
            found[name] = element
    return found


def _joint(name: str, element: Element) -> UrdfJoint:
    who = f"joint '{name}'"
    kind = _text(element, "type", who)
    if kind not in KINDS:
        raise MechidError(
            f"{who} (line {element.line}) is of type '{kind}', which is not supported; valid: {choices(KINDS)}."
        )
    parent, child = (_end(element, tag, who) for tag in ("parent", "child"))
    origin, rotation = _pose(element, who)
    axis, limit = _only(element, "axis", who), _only(element, "limit", who)
    direction = np.array([1.0, 0.0, 0.0]) if axis is None else _numbers(axis, "xyz", 3, f"<axis> of {who}")
    if kind not in ("fixed", "floating") and np.abs(direction).max() < 1e-9:
        raise MechidError(f"the axis of {who} (line {element.line}) is zero.")
    dynamics, mimic = _only(element, "dynamics", who), _only(element, "mimic", who)
    damping, friction = (_not_negative(dynamics, a, who) for a in ("damping", "friction"))
    if kind == "floating" and (damping or friction):
        raise MechidError(f"damping and friction of a floating joint are not supported, and {who} has them.")
    lower, upper, rate, force = (_limit(limit, a, who) for a in ("lower", "upper", "velocity", "effort"))
    if lower > upper:
        raise MechidError(f"the limits of {who} (line {element.line}) run from {lower:g} down to {upper:g}.")
    return UrdfJoint(
        name,
        kind,
        parent,
        child,
        origin,
        rotation,
        direction,
        # an exporter that knows none writes zeros
        (-math.inf, math.inf) if kind == "continuous" or lower == upper == 0.0 else (lower, upper),
        rate or math.inf,
        force or math.inf,
        damping,
        friction,
        None if mimic is None else _mimic(mimic, who),
    )


def _end(joint: Element, tag: str, who: str) -> str:
    """The link that a joint names as its parent or child."""
    end = _only(joint, tag, who)
    if end is None:
        raise MechidError(f"{who} (line {joint.line}) has no <{tag}>.")
    return _text(end, "link", f"<{tag}> of {who}")


def _limit(limit: Element | None, attribute: str, who: str) -> float:
    """A number of <limit>, 0 where it is absent; it may be infinite."""
    if limit is None or limit.get(attribute) is None:
        return 0.0
    if (limit.get(attribute) or "").strip().lower().lstrip("+-") in ("inf", "infinity"):
        return float(limit.get(attribute) or 0)
    if attribute in ("velocity", "effort"):
        return _not_negative(limit, attribute, who)
    return float(_numbers(limit, attribute, 1, f"<limit> of {who}")[0])


def _mimic(element: Element, who: str) -> Mimic:
    ratio = _numbers(element, "multiplier", 1, f"<mimic> of {who}", default="1")
    offset = _numbers(element, "offset", 1, f"<mimic> of {who}", default="0")
    return Mimic(_text(element, "joint", f"<mimic> of {who}"), float(ratio[0]), float(offset[0]))


def _inertial(name: str, link: Element) -> dict[str, Any]:
    """Mass, centre of mass and inertia along the link's axes; nothing where the file says nothing."""
    who = f"link '{name}'"
    inertial = _only(link, "inertial", who)
    if inertial is None:
        return {}
    mass, inertia = _only(inertial, "mass", who), _only(inertial, "inertia", who)
    for tag, element in (("mass", mass), ("inertia", inertia)):
        if element is None:
            raise MechidError(f"the <inertial> of {who} (line {inertial.line}) has no <{tag}>.")
    assert mass is not None
    assert inertia is not None
    com, rotation = _pose(inertial, f"<inertial> of {who}")
    six = [
        _numbers(inertia, a, 1, f"<inertia> of {who}")[0] for a in ("ixx", "iyy", "izz", "ixy", "ixz", "iyz")
    ]
    own = inertia_matrix(six, f"the inertia of {who} (line {inertia.line})")
    turned = own if np.array_equal(rotation, np.eye(3)) else rotation @ own @ rotation.T
    kilograms = float(_numbers(mass, "value", 1, f"<mass> of {who}")[0])
    if kilograms < 0.0:
        raise MechidError(f"the mass of {who} (line {mass.line}) is {kilograms:g} kg; it must be ≥ 0.")
    return {"mass": kilograms, "com": com, "inertia": (turned + turned.T) / 2}


def _pose(element: Element, who: str) -> tuple[Array, Array]:
    """Position and rotation of an element's <origin>; zero and identity where it is absent."""
    origin = _only(element, "origin", who)
    if origin is None:
        return np.zeros(3), np.eye(3)
    xyz = _numbers(origin, "xyz", 3, f"<origin> of {who}", default="0 0 0")
    rpy = _numbers(origin, "rpy", 3, f"<origin> of {who}", default="0 0 0")
    return xyz, roll_pitch_yaw(*(float(a) for a in rpy))


def _only(element: Element, tag: str, who: str) -> Element | None:
    found = [c for c in element.children if c.name == tag]
    if len(found) > 1:
        raise MechidError(f"{who} has two <{tag}> (lines {found[0].line} and {found[1].line}).")
    return found[0] if found else None


def _text(element: Element, attribute: str, who: str) -> str:
    value = element.get(attribute)
    if not value:
        raise MechidError(f"{who} (line {element.line}) has no {attribute}=….")
    return value


_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def _numbers(element: Element, attribute: str, count: int, who: str, default: str | None = None) -> Array:
    value = element.get(attribute)
    if value is None:
        value = default
    if value is None:
        raise MechidError(f"{who} (line {element.line}) has no {attribute}=….")
    words = value.split()
    want = "one number" if count == 1 else f"{count} numbers"
    if len(words) != count or not all(_NUMBER.fullmatch(w) and math.isfinite(float(w)) for w in words):
        raise MechidError(
            f"{attribute}='{value}' in {who} (line {element.line}) must be {want}, finite and in figures."
        )
    return np.array([float(w) for w in words])


def _not_negative(element: Element | None, attribute: str, who: str) -> float:
    if element is None or element.get(attribute) is None:
        return 0.0
    value = float(_numbers(element, attribute, 1, f"<{element.name}> of {who}")[0])
    if value < 0.0:
        raise MechidError(f"the {attribute} of {who} (line {element.line}) is {value:g}; it must be ≥ 0.")
    return value


# Checks


def _refuse_macros(root: Element) -> None:
    for element in root.walk():
        if element.name.startswith("xacro:"):
            raise MechidError(
                f"it holds macros (<{element.name}> in line {element.line}): expand them first, "
                "xacro FILE > robot.urdf."
            )


def _check_mimics(joints: dict[str, UrdfJoint]) -> None:
    moving = [j.name for j in joints.values() if j.moves]
    for j in joints.values():
        if j.mimic is None:
            continue
        if not j.moves:
            raise MechidError(f"joint '{j.name}' is {j.kind} and cannot mimic another.")
        if j.mimic.other == j.name:
            raise MechidError(f"joint '{j.name}' mimics itself.")
        if j.mimic.other not in moving:
            raise unknown(f"moving joint (for joint '{j.name}' to mimic)", j.mimic.other, moving)
    for j in joints.values():
        ring = [j.name]
        while (mimic := joints[ring[-1]].mimic) and mimic.other not in ring:
            ring.append(mimic.other)
        if mimic and mimic.other == j.name:
            raise MechidError(f"the joints {listed(ring)} mimic each other in a ring: one of them must lead.")


def _check_tree(links: dict[str, Element], joints: dict[str, UrdfJoint]) -> str:
    """The root link, if the joints make one tree of all links."""
    above: dict[str, UrdfJoint] = {}
    for j in joints.values():
        for end, link in (("parent", j.parent), ("child", j.child)):
            if link not in links:
                raise unknown(f"link (the {end} of joint '{j.name}')", link, links)
        if j.child in above:
            raise MechidError(
                f"link '{j.child}' has two parents, by joints '{above[j.child].name}' and '{j.name}': "
                "a URDF is a tree."
            )
        above[j.child] = j
    roots = [link for link in links if link not in above]
    if len(roots) > 1:
        raise MechidError(f"it has {len(roots)} root links, {listed(roots)}: a URDF has one.")
    held = set(roots)
    for link in links:
        path = []
        while link not in held:
            if link in path:
                ring = path[path.index(link) :]
                raise MechidError(f"the links {listed(ring)} hang on each other in a ring: a URDF is a tree.")
            path.append(link)
            link = above[link].parent
        held.update(path)
    return roots[0]


def _notes(root: Element, links: dict[str, Element], joints: dict[str, UrdfJoint], base: str) -> list[str]:
    def has(link: Element, *tags: str) -> bool:
        return any(c.name in tags for c in link.children)

    notes = []
    if base != WORLD:
        notes.append(f"The root link {base} is fixed to the world.")
    elif has(links[base], "inertial"):
        notes.append("The link world is the world here, its inertia is left out.")
    if any(has(link, "visual", "collision") for link in links.values()):
        notes.append("Geometry is left out: nothing touches anything.")
    bare = [n for n, l in links.items() if has(l, "visual", "collision") and not has(l, "inertial")]
    if bare := [n for n in bare if n != WORLD]:
        notes.append(f"These links have a shape and no <inertial>, they are massless here: {listed(bare)}.")
    if any(np.isfinite([*j.limits, j.max_rate, j.max_force]).any() for j in joints.values() if j.moves):
        notes.append("Limits of joints are information: nothing acts at them.")
    if any(j.friction for j in joints.values()):
        notes.append("Dry friction is smooth here: its step at rest is rounded over friction_width.")
    known = ("link", "joint", "material")
    extra = Counter(c.name for c in root.children if c.name not in known)
    if extra:
        told = [f"<{tag}> ({count})" for tag, count in extra.items()]
        notes.append(f"Elements for other programs are left out: {listed(told)}.")
    odd: dict[str, list[int]] = {}
    for what, line in _unknown_parts([*links.values(), *(c for c in root.children if c.name == "joint")]):
        odd.setdefault(what, []).append(line)
    if odd:
        told = [f"{what} ({_lines(lines)})" for what, lines in odd.items()]
        notes.append(f"What a URDF does not know is left out: {listed(told)}.")
    return notes


_KNOWN: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "link": (
        ("name", "type"),
        ("inertial", "visual", "collision", "sensor", "contact", "self_collision_checking"),
    ),
    "joint": (
        ("name", "type"),
        (
            "origin",
            "parent",
            "child",
            "axis",
            "calibration",
            "dynamics",
            "limit",
            "mimic",
            "safety_controller",
        ),
    ),
    "inertial": ((), ("origin", "mass", "inertia")),
    "origin": (("xyz", "rpy"), ()),
    "parent": (("link",), ()),
    "child": (("link",), ()),
    "axis": (("xyz",), ()),
    "dynamics": (("damping", "friction"), ()),
    "limit": (("lower", "upper", "velocity", "effort"), ()),
    "mimic": (("joint", "multiplier", "offset"), ()),
    "mass": (("value",), ()),
    "inertia": (("ixx", "iyy", "izz", "ixy", "ixz", "iyz"), ()),
}
"""the attributes and the elements inside of those elements that are read here"""


def _unknown_parts(elements: Iterable[Element]) -> Iterator[tuple[str, int]]:
    """What stands in elements and is neither read nor known to be for others, misspelt most likely; its line."""
    for element in elements:
        if element.name not in _KNOWN:
            continue
        attributes, inside = _KNOWN[element.name]
        for name in element.attributes:
            if name not in attributes:
                yield f"{name}= of <{element.name}>", element.line
        for child in element.children:
            if child.name not in inside:
                yield f"<{child.name}> in <{element.name}>", child.line
        yield from _unknown_parts(c for c in element.children if c.name in inside)


def _lines(lines: list[int]) -> str:
    return f"line {lines[0]}" if len(lines) == 1 else f"line {lines[0]} and {len(lines) - 1} more"
