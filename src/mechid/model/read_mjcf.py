"""MJCF through MuJoCo's own reader and compiler: defaults, angles, frames, includes and inertias are its business.

What the motion does not need (meshes, textures, sensors, …) is taken out before compiling, so that a file can be
read without its assets. What would change the motion and has no counterpart here is refused. The compiled model
goes on to `read_compiled`.
"""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from mechid.errors import MechidError, unknown
from mechid.model.geometry import inertia_matrix
from mechid.model.inertia import symmetric
from mechid.model.mechanism import Mechanism
from mechid.model.read_compiled import Actuator, Inertial, Source, Written, build
from mechid.model.read_mujoco import mj, one_line, quiet
from mechid.model.read_names import listed
from mechid.model.xmltext import Element

COPIES = 10_000
"""the most bodies that <replicate> may make"""


def read_mjcf(root: Element, text: str, path: Path | None, motors: bool) -> Mechanism:
    """The mechanism of a <mujoco> text; `path` is where its includes and meshes are looked for."""
    _refuse_many_copies(root)
    _refuse_class_names(root)
    # from a file MuJoCo finds what is included, but it takes no other suffix
    as_file = path is not None and path.suffix == ".xml"

    def compiled() -> tuple[Any, Source, Any, list[str]]:
        with quiet() as told:
            spec = mj.MjSpec.from_file(str(path)) if as_file else mj.MjSpec.from_string(text)
            if any("NaN" in t for t in told):
                raise MechidError(f"{_nan_place(root)} is not a number (nan).")
            source = _strip(spec)
            return spec, source, *_compile(spec)

    try:
        # some broken files break MuJoCo's handling of warnings for good, in the thread that reads them
        with ThreadPoolExecutor(1) as thread:
            spec, source, model, more = thread.submit(compiled).result()
    except RecursionError:
        raise
    except RuntimeError:
        raise MechidError(f"MuJoCo fails on it{_blank_place(root)}.") from None
    except (ValueError, mj.FatalError) as error:
        lost = "include" in str(error) and not as_file
        hint = " (what a file includes is found if its own name ends in .xml)" if lost else ""
        raise MechidError(f"MuJoCo refuses it: {one_line(error)}{hint}.") from None
    name = spec.modelname
    if name == "MuJoCo Model":
        name = path.stem if path else "mechanism"
    return build(model, name, source._replace(notes=[*source.notes, *more]), motors)


# Compiling


def _compile(spec: Any) -> tuple[Any, list[str]]:
    """The compiled model, and a note where a mesh is missing that only bodies at rest have."""
    static = {b.name for b in spec.bodies if _is_static(b)}
    at_rest: list[str] = []
    while True:
        try:
            model = spec.compile()
            break
        except ValueError as error:
            said = one_line(error)
            lost = [m for m in spec.meshes if m.file and Path(m.file).name in said]
            users = [g for m in lost for g in spec.geoms if g.meshname in (m.name, Path(m.file).stem)]
            if not users:
                raise
            for geom in users:
                if geom.parent.name not in static or spec.compiler.settotalmass > 0.0:
                    raise MechidError(
                        f"body '{geom.parent.name}' has no <inertial>, and mesh '{geom.meshname}', from which its "
                        f"inertia is to be inferred, cannot be read ({said})."
                    ) from None
            at_rest += [g.parent.name for g in users]
            _delete(spec, [*users, *lost])
    if not at_rest:
        return model, []
    told = listed(dict.fromkeys(at_rest))
    return model, [f"Meshes that cannot be read give no mass to bodies that never move: {told}."]


def _is_static(body: Any) -> bool:
    while body is not None and body.name != "world":
        if list(body.joints):
            return False
        body = body.parent
    return True


def _nan_place(root: Element) -> str:
    for element in root.walk():
        for a in element.attributes.values():
            if a.name not in ("name", "class", "childclass") and "nan" in a.value.lower().split():
                return f"a value of {a.name}= of <{element.name}> (line {element.line})"
    return "a value"


def _blank_place(root: Element) -> str:
    """Where an attribute is empty, which is what MuJoCo's reader stumbles over."""
    for element in root.walk():
        for a in element.attributes.values():
            if a.name not in ("name", "class", "childclass") and not a.value.strip():
                place = f"{a.name}='{a.value}' of <{element.name}> (line {element.line})"
                return f", perhaps on {place}, which is empty"
    return ""


def _refuse_many_copies(element: Element, times: int = 1) -> None:
    for child in element.children:
        count = child.get("count") if child.name == "replicate" else None
        copies = times * int(count) if count and count.isdecimal() else times
        if copies > COPIES:
            raise MechidError(
                f"<replicate> in line {child.line} would make {copies} copies; {COPIES} at most."
            )
        _refuse_many_copies(child, copies)


def _refuse_class_names(root: Element) -> None:
    """MuJoCo takes the name of an unknown class as a format: a % there would end the whole program."""
    for element in root.walk():
        if "%" in (element.get("class") or ""):
            raise MechidError(
                f"class='{element.get('class')}' of <{element.name}> (line {element.line}) holds a %, which is not "
                "supported there."
            )


# What the motion needs of a specification


def _strip(spec: Any) -> Source:
    """Take out what the motion does not need; what is to be known of it later, with notes."""
    _refuse(spec)
    _name_all(spec)
    notes = _left_out(spec)
    actuators, others = _actuators(spec)
    if others:
        notes.append(f"Actuators that are not on a hinge or slide are left out: {listed(others)}.")
    idle = [e for e in spec.equalities if not e.active]
    if idle:
        notes.append(f"Equalities that are not active are left out: {listed(map(_equality, idle))}.")
    _delete(spec, idle)
    for kind in _IDLE:
        _delete(spec, getattr(spec, kind))
    _strip_geometry(spec)
    spec.compiler.fusestatic, spec.compiler.discardvisual, spec.compiler.alignfree = 0, 0, 0
    for joint in spec.joints:
        joint.align = 0
    # room for data of the user's own, which a compiled model would take
    spec.nuserdata, spec.njmax, spec.nconmax = 0, -1, -1
    for kind in ("body", "jnt", "geom", "site", "cam", "tendon", "actuator", "sensor"):
        setattr(spec, f"nuser_{kind}", -1)
    with contextlib.suppress(TypeError):  # versions before 3.4 have no sign here
        spec.memory = -1
    written = {b.name: _written(b, spec.compiler) for b in spec.bodies if b.explicitinertial}
    return Source(written, actuators, notes)


_IDLE = (
    "actuators", "tendons", "sensors", "keys", "pairs", "excludes", "tuples", "numerics", "texts", "skins",
    "lights", "cameras",
)  # fmt: skip
"""what does nothing to the motion, or is read before"""


def _refuse(spec: Any) -> None:
    """What acts on the motion and has no counterpart."""
    if spec.plugins:
        raise MechidError(f"plugins are not supported: {listed(p.plugin_name for p in spec.plugins)}.")
    if spec.flexes:
        raise MechidError(f"deformable bodies are not supported: flex {listed(f.name for f in spec.flexes)}.")
    for what in ("density", "viscosity"):
        value = getattr(spec.option, what)
        if value != 0.0:
            raise MechidError(
                f"a surrounding fluid is not supported: <option {what}='{value:g}'>; take it out to do without."
            )
    for body in spec.bodies:
        who = _who("body", body)
        if body.mocap:
            raise MechidError(f"{who} is a mocap body, moved from outside, which is not supported.")
        if body.gravcomp != 0.0:
            raise MechidError(f"{who} has gravcomp='{body.gravcomp:g}', which is not supported.")
        if body.plugin.active:
            raise MechidError(f"{who} has a plugin, which is not supported.")
    for j in spec.joints:
        if j.limited != mj.mjtLimited.mjLIMITED_FALSE and j.range[0] > j.range[1]:
            raise MechidError(
                f"the range of {_who('joint', j)} runs from {j.range[0]:g} down to {j.range[1]:g}."
            )
    for tendon in spec.tendons:
        for what in ("stiffness", "damping", "frictionloss", "armature"):
            if np.any(getattr(tendon, what, 0.0)):
                raise MechidError(f"{_who('tendon', tendon)} has {what}, which is not supported.")
    fit = (mj.mjtEq.mjEQ_CONNECT, mj.mjtEq.mjEQ_WELD, mj.mjtEq.mjEQ_JOINT)
    for e in spec.equalities:
        if e.active and e.type not in fit:
            kind = mj.mjtEq(e.type).name.removeprefix("mjEQ_").lower()
            raise MechidError(
                f"equality '{_equality(e)}'{_line(e)} is of type {kind}, which is not supported; "
                "valid: connect, weld, joint."
            )


def _who(kind: str, element: Any) -> str:
    return f"{kind} '{element.name}'{_line(element)}"


def _line(element: Any) -> str:
    """Where an element stands, as far as MuJoCo knows."""
    return f" ({element.info})" if element.info else ""


def _equality(e: Any) -> str:
    return e.name or "/".join(filter(None, (e.name1, e.name2)))


def _name_all(spec: Any) -> None:
    """Give bodies and joints without a name one that stays the same from reading to reading."""
    bodies, joints = {b.name for b in spec.bodies}, {j.name for j in spec.joints}
    for i, body in enumerate(spec.bodies):
        if i and not body.name:
            body.name = _fresh(f"body{i}", bodies)
        own = list(body.joints)
        for k, joint in enumerate(own):
            if not joint.name:
                joint.name = _fresh(body.name if len(own) == 1 else f"{body.name}.{k + 1}", joints)


def _fresh(wanted: str, taken: set[str]) -> str:
    name, number = wanted, 2
    while name in taken:
        name, number = f"{wanted}_{number}", number + 1
    taken.add(name)
    return name


def _left_out(spec: Any) -> list[str]:
    counts = {
        "the contacts of # geom": len(spec.geoms),
        "# sensor": len(spec.sensors),
        "# key frame": len(spec.keys),
    }
    told = [k.replace("#", str(n)) + "s" * (n > 1) for k, n in counts.items() if n]
    tendons = [f"tendon {t.name}" for t in spec.tendons]
    return [f"Left out: {', '.join([*told, *tendons])}."] if told or tendons else []


def _delete(spec: Any, elements: Any) -> None:
    for element in list(elements):
        # the older way is the element's own
        if hasattr(spec, "delete"):
            spec.delete(element)
        else:
            element.delete()


def _written(body: Any, compiler: Any) -> Written:
    """The numbers of an <inertial> as they stand in the file."""
    full = np.array(body.fullinertia)
    inertia = np.diag(body.inertia) if np.isnan(full[0]) else np.asarray(symmetric(full))  # type: ignore[arg-type]
    plain = np.array_equal(body.iquat, (1.0, 0.0, 0.0, 0.0)) and not int(body.ialt.type)
    who = _who("body", body)
    if body.mass < 0.0 and not compiler.boundmass:
        raise MechidError(f"the mass of {who} is {body.mass:g} kg; it must be ≥ 0.")
    if not (compiler.balanceinertia or compiler.boundinertia):
        inertia_matrix(inertia, f"the inertia of {who}")
    return Written(Inertial(float(body.mass), np.array(body.ipos), inertia), bool(plain))


def _strip_geometry(spec: Any) -> None:
    """Take out every geom that gives no inertia, and what belongs to it."""
    for body in spec.bodies:
        c = getattr(body, "compiler", spec.compiler)
        always = int(c.inertiafromgeom) == int(mj.mjtInertiaFromGeom.mjINERTIAFROMGEOM_TRUE)
        never = int(c.inertiafromgeom) == int(mj.mjtInertiaFromGeom.mjINERTIAFROMGEOM_FALSE)
        geoms = list(body.geoms)
        needed = body.name != "world" and not never and (always or not body.explicitinertial)
        kept = [g for g in geoms if needed and _has_mass(g, c.inertiagrouprange)]
        _delete(spec, [g for g in geoms if g not in kept])
    for geom in spec.geoms:
        geom.material = ""
    for site in spec.sites:
        site.material = ""
    used = {g.meshname for g in spec.geoms}
    _delete(spec, [m for m in spec.meshes if m.name not in used and Path(m.file).stem not in used])
    for kind in ("materials", "textures", "hfields"):
        _delete(spec, getattr(spec, kind))


def _has_mass(geom: Any, groups: Any) -> bool:
    if not groups[0] <= geom.group <= groups[1]:
        return False
    return bool(geom.density if np.isnan(geom.mass) else geom.mass)


# Actuators


def _actuators(spec: Any) -> tuple[list[Actuator], list[str]]:
    """The actuators on joints of one coordinate, and the names of the others."""
    joints = {j.name: j for j in spec.joints}
    single = (mj.mjtJoint.mjJNT_HINGE, mj.mjtJoint.mjJNT_SLIDE)
    on_joint = (mj.mjtTrn.mjTRN_JOINT, mj.mjtTrn.mjTRN_JOINTINPARENT)
    found, others = [], []
    for i, a in enumerate(spec.actuators):
        name = a.name or f"actuator{i + 1}"
        who = _who("actuator", a)
        if a.trntype in on_joint and a.target not in joints:
            raise unknown(f"joint (for actuator '{name}')", a.target, joints)
        rotor, damping = float(getattr(a, "armature", 0.0)), np.ravel(getattr(a, "damping", 0.0))
        if a.trntype in on_joint and joints[a.target].type in single:
            if damping[1:].any():
                raise MechidError(f"the damping of {who} is not linear, which is not supported.")
            law = not _is_plain(a)
            strength = _strength(a, law, spec.compiler.autolimits)
            gain = 1.0 if law else float(a.gainprm[0])
            found.append(
                Actuator(name, a.target, float(a.gear[0]), gain, law, strength, rotor, float(damping[0]))
            )
        elif rotor or damping.any():
            raise MechidError(f"{who} has an armature or damping and is not on a hinge or slide.")
        else:
            others.append(name)
    return found, others


def _is_plain(a: Any) -> bool:
    """Whether its force is a gain times its input."""
    return (
        a.gaintype == mj.mjtGain.mjGAIN_FIXED
        and a.biastype == mj.mjtBias.mjBIAS_NONE
        and a.dyntype == mj.mjtDyn.mjDYN_NONE
        and not getattr(a, "delay", 0.0)
    )


def _strength(a: Any, law: bool, auto: bool) -> float:
    """The largest force that it can give, behind the gear; infinite where nothing limits it."""

    def limited(flag: Any, ends: Any) -> bool:
        return flag == mj.mjtLimited.mjLIMITED_TRUE or bool(
            flag == mj.mjtLimited.mjLIMITED_AUTO and auto and ends[0] < ends[1]
        )

    limits = [np.inf]
    if limited(a.forcelimited, a.forcerange):
        limits.append(np.abs(a.forcerange).max())
    if not law and limited(a.ctrllimited, a.ctrlrange):
        limits.append(abs(a.gainprm[0]) * np.abs(a.ctrlrange).max())
    return float(abs(a.gear[0]) * min(limits)) if a.gear[0] else np.inf
