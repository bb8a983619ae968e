"""Where an MJCF text holds a mechanism's numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from mechid.errors import MechidError
from mechid.model.geometry import Array, rotation_about, skew
from mechid.model.parts import Motor
from mechid.model.read_names import Names, fit
from mechid.model.write_numbers import (
    PASSIVE,
    SAME,
    SAME_TURNED,
    SIX,
    Difference,
    Job,
)
from mechid.model.xmltext import Element, NewElement, parse

ORIENTATION = ("quat", "axisangle", "euler", "xyaxes", "zaxis")
MAKERS = ("include", "replicate", "attach", "composite", "flexcomp")
"""elements that make others which do not stand in the text"""


class Mjcf:
    """Where an MJCF text holds a mechanism's numbers; what it inherits from defaults becomes an attribute."""

    what = "An MJCF file"
    behind = ()
    skipped = ("max_rate", "max_force")

    def __init__(self, job: Job) -> None:
        root, path, old = job.root, job.path, job.old
        self.root, self.pen, self.old, self.new = root, job.pen, old, job.new
        self.wanted, self.where = job.wanted, job.where
        self.included = dict(_included(root, path.parent)) if path else {}
        self.compiler: dict[str, str] = {}
        for tree in (*self.included.values(), root):
            for element in (e for e in tree.walk() if e.name == "compiler"):
                self.compiler |= {a.name: a.value for a in element.attributes.values()}
        self.bodies, self.joints, self.sites = _named_parts(root)
        self.carrier = {j.child: j for j in old.joints}
        self.equalities = _section(root, "equality")
        ends = {f for loop in old.loops for f in (loop.first, loop.second)}
        self.worked_out = frozenset(ends - set(self.sites))
        self.actuators: dict[str, Element] = {}
        for i, element in enumerate(_section(root, "actuator")):
            name = fit(element.get("name") or f"actuator{i + 1}")
            self.actuators |= {name: element, f"{name}.motor": element}

    def place(self, d: Difference) -> bool:
        """Put a number where it belongs; whether it has a place."""
        kinds: dict[str, Callable[[Difference], bool]] = {
            "world": self._gravity,
            "body": self._body,
            "joint": self._joint,
            "frame": self._frame,
            "coordinate": self._range,
            "coupling": self._coupling,
            "motor": self._motor,
            "element": self._turning_damper,
            **dict.fromkeys(PASSIVE, self._passive),
        }
        return d.kind in kinds and d.before is not None and kinds[d.kind](d)

    def _find(self, parts: dict[str, Element], kind: str, name: str) -> Element:
        """A part's element, or a sentence that says why there is none."""
        if name in parts:
            return parts[name]
        for file, tree in self.included.items():
            if tree.find(kind, name=name):
                raise MechidError(
                    f"The {kind} '{name}' stands in '{file}', which '{self.where}' includes: only numbers in "
                    f"'{self.where}' itself can be written."
                )
        makers = sorted({f"<{e.name}>" for e in self.root.walk() if e.name in MAKERS})
        from_these = f": it comes from {' or '.join(makers)}" if makers else ""
        raise MechidError(f"The {kind} '{name}' has no text of its own in '{self.where}'{from_these}.")

    def _gravity(self, d: Difference) -> bool:
        options = [e for e in self.root.children if e.name == "option"]
        stated = [e for e in options if "gravity" in e.attributes]
        self.pen.put(stated[-1] if stated else self.pen.child(self.root, "option"), "gravity", d.after)
        return True

    # Bodies, joints and sites

    def _body(self, d: Difference) -> bool:
        if self._between(d.name):
            return False
        element = self._find(self.bodies, "body", d.name)
        if self.compiler.get("inertiafromgeom") == "true":
            raise MechidError(
                f"<compiler inertiafromgeom=\"true\"> of '{self.where}' takes inertias from geoms alone: set it to "
                f"\"auto\" before the {d.quantity} of body '{d.name}' can be written."
            )
        wanted = {**self.wanted["body", d.name], d.quantity: d.after}
        inertial = self.pen.child(element, "inertial")
        new = isinstance(inertial, NewElement)
        if new or d.quantity == "com":
            self.pen.put(inertial, "pos", wanted["com"])
        if new or d.quantity == "mass":
            self.pen.put(inertial, "mass", [wanted["mass"]])
        if new or d.quantity == "inertia":
            self._inertia(inertial, wanted["inertia"])
        return True

    def _inertia(self, inertial: Element | NewElement, inertia: Array) -> None:
        """As moments about the axes that stand there if those are principal, along the body's axes otherwise."""
        six = [inertia[i, j] for i, j in SIX]
        if isinstance(inertial, NewElement) or "fullinertia" in inertial.attributes:
            return self.pen.put(inertial, "fullinertia", six)
        turn = self._orientation(inertial)
        own, size = turn.T @ inertia @ turn, np.abs(inertia).max()
        noise = 0.0 if np.array_equal(turn, np.eye(3)) else SAME * size
        if np.abs(own - np.diag(np.diag(own))).max() <= 10.0 * SAME * size:
            return self.pen.put(inertial, "diaginertia", np.diag(own), noise)
        return self.pen.put_for(inertial, "fullinertia", six, ("diaginertia", *ORIENTATION), noise)

    def _joint(self, d: Difference) -> bool:
        """A body's joints in a row: the first carries the body's place, the others points that they turn about."""
        before, after = ({j.name: j for j in m.joints} for m in (self.old, self.new))
        body = before[d.name].child
        while self._between(body):
            body = next(j.child for j in self.old.joints if j.parent == body)
        row = [self.carrier[body]]
        while self._between(row[0].parent):
            row.insert(0, self.carrier[row[0].parent])
        first = row[0].name
        if row[0].kind == "floating" or (d.quantity == "rotation" and d.name != first):
            return False
        element = self._find(self.bodies, "body", body)
        moved, points = np.zeros(3), []
        for joint in reversed(row):
            shift = after[joint.name].origin - joint.origin
            if joint.kind == "fixed" and len(row) > 1:
                moved = -shift
                continue
            if moved.any():
                own = self._find(self.joints, "joint", joint.name)
                plain = "pos" in own.attributes and own.parent is not None and own.parent.name == "body"
                if not plain or joint.kind == "prismatic":
                    return False
                points.append((own, _vector(own, "pos") + moved))
            if joint.name != first:
                moved = moved - shift
        for own, point in points:
            self.pen.put(own, "pos", point)
        place, turn = self._pose(element)
        turned = after[first].rotation @ before[first].rotation.T @ turn
        arm = turn.T @ (before[first].origin - place)
        arm = arm * (np.abs(arm) > SAME * np.abs([place, before[first].origin]).max()) + moved
        rotated = np.abs(after[first].rotation - before[first].rotation).max() > SAME_TURNED
        goal = after[first].origin
        noise = SAME * np.abs([goal, place]).max() if arm.any() else 0.0
        self._set_pose(element, goal - turned @ arm, turned if rotated else None, noise)
        return True

    def _between(self, body: str) -> bool:
        """Whether reading has put a body between the joints of another one."""
        return (
            body not in self.bodies and body in self.carrier and body.endswith(f"/{self.carrier[body].name}")
        )

    def _frame(self, d: Difference) -> bool:
        frame = next(f for f in self.new.frames if f.name == d.name)
        if d.name in self.sites:
            if "fromto" in self.sites[d.name].attributes:
                return False
            self._set_pose(
                self.sites[d.name], frame.origin, frame.rotation if d.quantity == "rotation" else None
            )
            return True
        for loop in self.old.loops:
            if d.name in (loop.first, loop.second):
                closures = ("connect", "weld")
                element = self._equality([l.name for l in self.old.loops], loop.name, closures)
                if loop.first != d.name or element.name != "connect" or d.quantity != "origin":
                    return False
                self.pen.put(element, "anchor", d.after)
                return True
        self._find(self.sites, "site", d.name)
        return False

    def _pose(self, element: Element) -> tuple[Array, Array]:
        """Position and rotation of a body or site in the body that it stands in, through the frames around it."""
        place, turn = _vector(element, "pos"), self._orientation(element)
        for around in element.ancestors():
            if around.name != "frame":
                break
            outer = self._orientation(around)
            place, turn = _vector(around, "pos") + outer @ place, outer @ turn
        return place, turn

    def _set_pose(self, element: Element, place: Array, turn: Array | None, noise: float = 0.0) -> None:
        frames = []
        for around in element.ancestors():
            if around.name != "frame":
                break
            frames.insert(0, around)
        for frame in frames:
            outer = self._orientation(frame)
            place = outer.T @ (place - _vector(frame, "pos"))
            noise = max(noise, SAME * np.abs([place, _vector(frame, "pos")]).max())
            turn = None if turn is None else outer.T @ turn
        if not np.array_equal(place, _vector(element, "pos")):
            self.pen.put(element, "pos", place, noise)
        if turn is not None:
            self.pen.put_for(element, "quat", _quaternion(turn), ORIENTATION, SAME)

    def _orientation(self, element: Element) -> Array:
        """The rotation that an element's attributes give, in any of MuJoCo's five ways."""
        kind = next((k for k in ORIENTATION if k in element.attributes), None)
        if kind is None:
            return np.eye(3)
        v = _vector(element, kind)
        unit = 1.0 if self.compiler.get("angle") == "radian" else math.pi / 180.0
        if kind == "quat":
            return _from_quaternion(v)
        if kind == "axisangle":
            return rotation_about(v[:3], v[3] * unit)
        if kind == "zaxis":
            z = v / np.linalg.norm(v)
            axis = np.cross([0.0, 0.0, 1.0], z)
            sine = float(np.linalg.norm(axis))
            return rotation_about(axis if sine > 1e-12 else "x", math.atan2(sine, z[2]))
        if kind == "xyaxes":
            x = v[:3] / np.linalg.norm(v[:3])
            y = v[3:] - x * (x @ v[3:])
            y = y / np.linalg.norm(y)
            return np.column_stack([x, y, np.cross(x, y)])
        turn = np.eye(3)
        for letter, angle in zip(self.compiler.get("eulerseq", "xyz"), v, strict=True):
            step = rotation_about(letter.lower(), angle * unit)
            turn = turn @ step if letter.islower() else step @ turn
        return turn

    # What acts in joints

    def _passive(self, d: Difference) -> bool:
        """Springs, dampers, friction and armature of a hinge or slide."""
        attributes = {"coulomb": "frictionloss", "armature": "armature", "rest": "springref"}
        if d.name in self.actuators and d.name not in self.joints:
            motor = self.wanted.get(("motor", d.name))
            if motor is None or d.quantity != "damping":
                return False
            damping = d.after / motor["gear_ratio"] ** 2
            self.pen.put(self.actuators[d.name], "damping", [damping], SAME * abs(damping))
            return True
        on = next((j for j in self.old.joints if d.name in [c.name for c in j.coordinates]), None)
        if on is None:
            self._find(self.actuators, "actuator", d.name)
            return False
        if on.kind == "floating":
            turning = self.wanted.get(("element", on.name), {})
            return d.quantity == "damping" and turning.get("damping") == d.after
        if on.kind == "spherical" or (d.kind == "friction" and d.quantity != "coulomb"):
            return False
        joint = self._find(self.joints, "joint", d.name)
        if d.quantity in attributes:
            after, noise = d.after, 0.0
            if d.quantity == "rest" and self._in_degrees(d.name):
                after, noise = math.degrees(d.after), SAME / 2 * abs(math.degrees(d.after))
            self.pen.put(joint, attributes[d.quantity], [after], noise)
            return True
        first, third = (
            ("stiffness", "cubic_stiffness") if d.kind == "spring" else ("damping", "cubic_damping")
        )
        numbers = self.wanted.get((d.kind, d.name), {first: 0.0, third: 0.0})
        cubic = d.quantity == third or numbers[third] != 0.0
        self.pen.put(joint, first, [numbers[first], 0.0, numbers[third]] if cubic else [numbers[first]])
        if d.kind == "spring" and "springref" in joint.attributes:
            self._passive(Difference("spring", d.name, "rest", 0.0, numbers.get("rest", 0.0)))
        return True

    def _turning_damper(self, d: Difference) -> bool:
        """The damping of a ball joint or a free one."""
        joint = self.joints.get(d.name)
        if joint is None or joint.name == "freejoint" or d.quantity != "damping":
            return False
        self.pen.put(joint, "damping", [d.after])
        return True

    def _in_degrees(self, coordinate: str) -> bool:
        return self.compiler.get("angle") != "radian" and self.old.coordinate(coordinate).revolute

    def _range(self, d: Difference) -> bool:
        c = self.new.coordinate(d.name)
        joint = self._find(self.joints, "joint", d.name)
        if not np.isfinite([c.lower, c.upper]).all() or joint.get("limited") == "false":
            return False
        ends, noise = np.array([c.lower, c.upper]), 0.0
        if self._in_degrees(d.name):
            ends = np.degrees(ends)
            noise = SAME / 2 * np.abs(ends).min()
        self.pen.put(joint, "range", ends, noise)
        return True

    def _coupling(self, d: Difference) -> bool:
        """y − y₀ = Σ aᵢ (x − x₀)ⁱ with the references of the two joints."""
        element = self._equality([c.name for c in self.old.couplings], d.name, ("joint",))
        c = self.new.couplings[[c.name for c in self.new.couplings].index(d.name)]
        y0, x0 = (self._reference(n) for n in (c.coordinate, c.other))
        polynomial = np.polynomial.Polynomial([c.offset - y0, c.ratio, c.c2, c.c3, c.c4])
        numbers = np.zeros(5)
        shifted = polynomial(np.polynomial.Polynomial([x0, 1.0])).coef if x0 else polynomial.coef
        numbers[: len(shifted)] = shifted
        given = len((element.get("polycoef") or "0 1").split())
        count = max([given, *(i + 1 for i in np.flatnonzero(numbers))])
        self.pen.put(element, "polycoef", numbers[:count], SAME * np.abs(numbers).max() if x0 or y0 else 0.0)
        return True

    def _equality(self, names: list[str], name: str, tags: tuple[str, ...]) -> Element:
        """The element of a loop or coupling: they are read in the order of the file."""
        texts = [e for e in self.equalities if e.name in tags]
        found = dict(zip(names, texts, strict=True)) if len(names) == len(texts) else {}
        return self._find(found, "equality", name)

    def _reference(self, coordinate: str) -> float:
        ref = float(self._find(self.joints, "joint", coordinate).get("ref") or 0.0)
        return math.radians(ref) if self._in_degrees(coordinate) else ref

    def _motor(self, d: Difference) -> bool:
        if d.name not in [e.name for e in self.old.elements if isinstance(e, Motor)]:
            return False
        actuator = self._find(self.actuators, "actuator", d.name)
        attribute = {"gear_ratio": "gear", "gain": "gainprm", "rotor_inertia": "armature"}[d.quantity]
        if attribute == "gainprm" and actuator.name != "general":
            return False
        self.pen.put(actuator, attribute, [d.after])
        damper = self.wanted.get(("damper", d.name))
        if attribute == "gear" and damper and d.after:
            damping = damper["damping"] / d.after**2
            self.pen.put(actuator, "damping", [damping], SAME * abs(damping))
        return True


def _included(root: Element, folder: Path) -> Iterator[tuple[str, Element]]:
    """The files that a text includes, and those that they include."""
    for element in root.walk():
        file = element.get("file")
        if element.name == "include" and file and (folder / file).is_file():
            tree = parse((folder / file).read_bytes(), file)
            yield file, tree
            yield from _included(tree, folder)


def _section(root: Element, name: str) -> list[Element]:
    """The elements of a section, which may stand in several pieces; those that are switched off left out."""
    pieces = [e for e in root.children if e.name == name]
    return [e for piece in pieces for e in piece.children if e.get("active") != "false"]


def _named_parts(root: Element) -> tuple[dict[str, Element], dict[str, Element], dict[str, Element]]:
    """Bodies, joints and sites of the text by the names that reading gives them."""
    makers = any(e.name in MAKERS for e in root.walk())
    worlds = [w for w in root.children if w.name == "worldbody"]
    made = {e for m in root.walk() if m.name == "replicate" for e in m.walk()}
    every = [e for w in worlds for e in w.walk() if e not in made]
    bodies = [e for e in every if e.name == "body"]
    taken = {kind: {e.get("name") for e in every if kind in e.name} for kind in ("body", "joint")}

    def fresh(kind: str, wanted: str) -> str:
        name, number = wanted, 2
        while name in taken[kind]:
            name, number = f"{wanted}_{number}", number + 1
        taken[kind].add(name)
        return name

    names = Names()
    by_body: dict[str, Element] = {}
    by_joint: dict[str, Element] = {}
    for i, body in enumerate(bodies):
        if makers and not body.get("name"):
            continue
        name = body.get("name") or fresh("body", f"body{i + 1}")
        by_body[names.of_file("frame", name)] = body
        own = list(_joints(body))
        for k, joint in enumerate(own):
            wanted = name if len(own) == 1 else f"{name}.{k + 1}"
            by_joint[names.of_file("joint", joint.get("name") or fresh("joint", wanted))] = joint
    sites = {
        names.of_file("frame", e.get("name") or ""): e for e in every if e.name == "site" and e.get("name")
    }
    return by_body, by_joint, sites


def _joints(element: Element) -> Iterator[Element]:
    for child in element.children:
        if child.name in ("joint", "freejoint"):
            yield child
        elif child.name == "frame":
            yield from _joints(child)


def _vector(element: Element, attribute: str) -> Array:
    return np.array([float(word) for word in (element.get(attribute) or "0 0 0").split()])


def _from_quaternion(q: Array) -> Array:
    w, v = q[0], q[1:]
    return np.eye(3) + 2.0 * (w * skew(v) + skew(v) @ skew(v)) / (q @ q)


def _quaternion(rotation: Array) -> Array:
    """(w, x, y, z) of a rotation matrix with w ≥ 0: the eigenvector of Bar-Itzhack's matrix, exact everywhere."""
    r, trace = rotation, np.trace(rotation)
    matrix = np.zeros((4, 4))
    matrix[0, 0], matrix[1:, 1:] = trace, r + r.T - trace * np.eye(3)
    matrix[0, 1:] = matrix[1:, 0] = r[2, 1] - r[1, 2], r[0, 2] - r[2, 0], r[1, 0] - r[0, 1]
    q = np.linalg.eigh(matrix)[1][:, -1]
    return -q if q[np.flatnonzero(np.abs(q) > 1e-12)[0]] < 0.0 else q
