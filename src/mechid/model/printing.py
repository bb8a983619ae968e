"""A mechanism as readable text: a tree with units."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from mechid.model.geometry import numbers
from mechid.model.parts import (
    Body,
    Combination,
    Coordinate,
    Custom,
    Joint,
    LineSpring,
    Wrench,
    element_numbers,
    quantity_unit,
)

if TYPE_CHECKING:
    from mechid.model.mechanism import Mechanism


def describe(mechanism: Mechanism) -> str:
    """The tree of bodies, then loops, elements that are not on a joint, inputs and notes."""
    total = sum(b.mass for b in mechanism.bodies)
    bodies = _count(len(mechanism.bodies), "body", "bodies")
    coordinates = _count(len(mechanism.coordinates), "coordinate", "coordinates")
    rows = _count(len(mechanism.constraint_names), "constraint row", "constraint rows")
    lines = [
        f"{mechanism.name}: {bodies}, {total:.4g} kg, {coordinates}, {rows}, "
        f"gravity {numbers(mechanism.gravity)} m/s²",
        "world",
    ]
    _children(mechanism, "world", "", lines)
    carried = {j.child for j in mechanism.joints}
    for root in [b for b in mechanism.bodies if b.name not in carried]:
        lines.append(f"{root.name} [{_mass(root)}], on no joint yet")
        _children(mechanism, root.name, "", lines)
    for loop in mechanism.loops:
        lines.append(f"loop {loop.name}: {loop.first} ≡ {loop.second} ({loop.kind}, {len(loop.rows)} rows)")
    for c in mechanism.couplings:
        powers = [c.offset, c.ratio, c.c2, c.c3, c.c4]
        marks = ["", f"·{c.other}", *(f"·{c.other}^{i}" for i in range(2, 5))]
        terms = [f"{x:g}{mark}" for x, mark in zip(powers, marks, strict=True) if x]
        lines.append(f"coupling {c.name}: {c.coordinate} = {' + '.join(terms) or '0'}")
    for c in mechanism.combinations:
        lines.append(f"combination {c.name}: {_sum(c)}")
        lines.extend(f"  · {_kind(e)} {e.name}: {_quantities(e, c)}" for e in _acting_on(mechanism, c))
    for d in mechanism.drives:
        lines.append(f"drive {d.name}: {d.coordinate} follows its input")
    for e in mechanism.elements:
        if isinstance(e, LineSpring):
            lines.append(f"line spring {e.name}: {e.first} to {e.second}, {_quantities(e, None)}")
        elif isinstance(e, Wrench):
            what = "force and moment" if e.moment else "force"
            lines.append(f"{what} {e.name}: at {e.frame}, in {e.axes} axes (input)")
        elif isinstance(e, Custom):
            values = ", ".join(f"{k} {v:.4g}" for k, v in e.parameters)
            lines.append(f"element {e.name}: on {', '.join(e.coordinates)} {values}".rstrip())
    if mechanism.input_names:
        lines.append(f"inputs: {', '.join(mechanism.input_names)}")
    late = [f"{name} {delay:.4g} s" for name, delay in mechanism.delays.items() if delay]
    if late:
        lines.append(f"delays: {', '.join(late)}")
    lines.extend(f"note: {note}" for note in mechanism.notes)
    return "\n".join(lines)


def _children(mechanism: Mechanism, parent: str, indent: str, lines: list[str]) -> None:
    joints = [j for j in mechanism.joints if j.parent == parent]
    frames = [f for f in mechanism.frames if f.body == parent]
    for i, item in enumerate([*frames, *joints]):
        last = i == len(frames) + len(joints) - 1
        branch, below = ("└─ ", "   ") if last else ("├─ ", "│  ")
        if isinstance(item, Joint):
            lines.append(f"{indent}{branch}{_joint(mechanism, item)}")
            elements = [f"{indent}{below}     · {text}" for text in _joint_elements(mechanism, item)]
            lines.extend(elements)
            _children(mechanism, item.child, indent + below, lines)
        else:
            lines.append(f"{indent}{branch}frame {item.name} at {numbers(item.origin)} m")


def _joint(mechanism: Mechanism, joint: Joint) -> str:
    body = next(b for b in mechanism.bodies if b.name == joint.child)
    axes = " ".join(_axis(c) for c in joint.coordinates if joint.kind != "floating")
    named = [c.name for c in joint.coordinates]
    names = f" as {_together(named, joint.name + '.')}" if named and named != [joint.name] else ""
    at = f" at {numbers(joint.origin)} m" if np.any(joint.origin) else ""
    how = f"{joint.kind} {joint.name} {axes}".rstrip()
    return f"{joint.child} [{_mass(body)}] by {how}{names}{at}{''.join(map(_range, joint.coordinates))}"


def _together(names: list[str], prefix: str) -> str:
    """Names in a row; what they all begin with stands once."""
    if not all(n.startswith(prefix) for n in names):
        return ", ".join(names)
    return f"{prefix}{{{', '.join(n.removeprefix(prefix) for n in names)}}}"


def _mass(body: Body) -> str:
    return "massless" if body.mass == 0.0 else f"{body.mass:.4g} kg"


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _axis(coordinate: Coordinate) -> str:
    verb = "about" if coordinate.revolute else "along"
    for letter, axis in zip("xyz", np.eye(3), strict=True):
        for sign in (1.0, -1.0):
            if np.array_equal(coordinate.axis, sign * axis):
                return f"{verb} {'-' if sign < 0 else ''}{letter}"
    return f"{verb} {numbers(coordinate.axis)}"


def _range(coordinate: Coordinate) -> str:
    """What the real joint can do, where something is said about it."""
    parts = []
    if np.isfinite([coordinate.lower, coordinate.upper]).any():
        parts.append(f"{coordinate.lower:.4g} to {coordinate.upper:.4g} {coordinate.unit}")
    if np.isfinite(coordinate.max_rate):
        parts.append(f"{coordinate.max_rate:.4g} {coordinate.unit}/s")
    if np.isfinite(coordinate.max_force):
        parts.append(f"{coordinate.max_force:.4g} {coordinate.force_unit}")
    return f", limits {', '.join(parts)}" if parts else ""


def _joint_elements(mechanism: Mechanism, joint: Joint) -> list[str]:
    by_name = {c.name: c for c in joint.coordinates}
    acting = [e for e in mechanism.elements if getattr(e, "coordinate", "") in by_name]
    return [f"{_kind(e)} {e.name}: {_quantities(e, by_name[e.coordinate])}" for e in acting]  # type: ignore[union-attr]


def _acting_on(mechanism: Mechanism, combination: Combination) -> list[Any]:
    return [e for e in mechanism.elements if getattr(e, "coordinate", "") == combination.name]


def _sum(c: Combination) -> str:
    """motor − 101·link"""
    text = ""
    for ratio, coordinate in zip(c.ratios, c.coordinates, strict=True):
        size = "" if abs(ratio) == 1.0 else f"{abs(ratio):g}·"
        sign = ("−" if ratio < 0 else "") if not text else (" − " if ratio < 0 else " + ")
        text += f"{sign}{size}{coordinate.name}"
    return text


def _kind(element: object) -> str:
    """dry friction"""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(element).__name__).lower()


def _quantities(element: object, coordinate: Coordinate | Combination | None) -> str:
    quantities: dict[str, str] = element.quantities  # type: ignore[attr-defined]
    parts = [
        f"{name.replace('_', ' ')} {value:.4g} {quantity_unit(unit, coordinate)}"
        for (name, unit), value in zip(quantities.items(), element_numbers(element), strict=True)
        if value != 0.0
    ]
    parts += [f"load {load}" for load in [getattr(element, "load", None)] if load]
    return ", ".join(parts).replace(" 1,", ",").removesuffix(" 1") or "zero"
