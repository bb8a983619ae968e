"""`show`: a mechanism as tables: its tree, coordinates, loops, inputs, and what can be identified in principle."""

from __future__ import annotations

from typing import Any

import numpy as np
from rich.console import Console

from mechid.judge.closure import Closure, closure
from mechid.judge.structure import ALONE, NEVER, TEN, TOGETHER, Structure, structure
from mechid.model.geometry import numbers
from mechid.model.mechanism import WORLD, Mechanism
from mechid.model.parts import (
    Armature,
    Coordinate,
    Damper,
    DryFriction,
    Friction,
    Joint,
    LineSpring,
    Motor,
    Spring,
    element_numbers,
)
from mechid.report.screen import counted, listed, say, short, table

LISTED = 16
"""combinations that are still printed; all are in the JSON"""
MARKS = {ALONE: "●", TOGETHER: "○", NEVER: "·"}


def show(mechanism: Mechanism, console: Console) -> dict[str, Any]:
    """Print everything; the same for a program."""
    state = closure(mechanism)
    _heading(mechanism, state, console)
    _tree(mechanism, console)
    _coordinates(mechanism, console)
    _other_elements(mechanism, console)
    _loops(mechanism, state, console)
    _inputs(mechanism, console)
    found = None
    if state.q is not None:
        found = structure(mechanism)
        _identifiable(mechanism, found, console)
    else:
        say(console, "What can be identified is not judged: the loops cannot be closed.\n")
    if mechanism.notes:
        console.print("Notes", style="bold")
        for note in mechanism.notes:
            listed(console, " ·", [note])
    return _as_data(mechanism, state, found)


def _heading(mechanism: Mechanism, state: Closure, console: Console) -> None:
    console.print(mechanism.name, style="bold")
    mass = sum(b.mass for b in mechanism.bodies)
    rows = len(mechanism.constraint_names)
    say(
        console,
        f"{counted(len(mechanism.bodies), 'body', 'bodies')}, {mass:.4g} kg, "
        f"{counted(len(mechanism.coordinates), 'coordinate')}, "
        f"{counted(rows, 'constraint row')}, gravity {numbers(mechanism.gravity)} m/s²",
    )
    if state.freedom is not None:
        twice = (
            f" ({counted(state.redundant, 'row repeats', 'rows repeat')} others)" if state.redundant else ""
        )
        say(
            console,
            f"{counted(state.freedom, 'independent degree', 'independent degrees')} of freedom{twice}",
        )
    console.print()


def _tree(mechanism: Mechanism, console: Console) -> None:
    """Bodies indented under what carries them, with the joint in between."""
    rows: list[list[str]] = []

    def below(parent: str, indent: str) -> None:
        joints = [j for j in mechanism.joints if j.parent == parent]
        for i, joint in enumerate(joints):
            last = i == len(joints) - 1
            body = next(b for b in mechanism.bodies if b.name == joint.child)
            mass = f"{body.mass:.4g}" if body.mass else "massless"
            name = "" if joint.name == joint.child else joint.name
            rows.append(
                [f"{indent}{'└ ' if last else '├ '}{body.name}", joint.kind, name, _axes(joint), mass]
            )
            below(joint.child, indent + ("  " if last else "│ "))

    below(WORLD, "")
    table(console, "Bodies", ["world", "joint", "joint's name", "axis", "mass kg"], rows, left=4)
    own = [f.name for f in mechanism.frames]
    if own:
        listed(console, "Frames besides the bodies':", own)
        console.print()


def _axes(joint: Joint) -> str:
    return "" if joint.kind == "floating" else " ".join(_axis(c) for c in joint.coordinates)


def _axis(coordinate: Coordinate) -> str:
    """The axis in the joint's frame: a letter where it is one."""
    for letter, axis in zip("xyz", np.eye(3), strict=True):
        for sign, mark in ((1.0, ""), (-1.0, "−")):
            if np.allclose(coordinate.axis, sign * axis, atol=1e-9):
                return mark + letter
    return numbers(coordinate.axis, 3)


def _coordinates(mechanism: Mechanism, console: Console) -> None:
    rows = []
    for c in mechanism.coordinates:
        damping, armature, stiffness = (_summed(mechanism, k, c.name) for k in (Damper, Armature, Spring))
        motors = [e for e in mechanism.elements if isinstance(e, Motor) and e.coordinate == c.name]
        limits = "" if not np.isfinite([c.lower, c.upper]).any() else f"{c.lower:.4g} … {c.upper:.4g}"
        rows.append(
            [
                c.name,
                c.unit,
                limits,
                short(c.max_rate),
                short(c.max_force),
                *(short(x) for x in (damping, _friction(mechanism, c.name), armature, stiffness)),
                " ".join(_gear(m) for m in motors),
            ]
        )
    columns = ["coordinate", "unit", "limits", "rate ≤", "force ≤"]
    columns += ["damping", "friction", "armature", "stiffness", "motor"]
    table(console, "Coordinates (SI units; limits do not act)", columns, rows, left=2)


def _summed(mechanism: Mechanism, kind: type, coordinate: str) -> float:
    """The first number of all elements of a kind on a coordinate: damping, friction, armature, stiffness."""
    own: list[Any] = [e for e in mechanism.elements if type(e) is kind]
    return sum(next(iter(element_numbers(e))) for e in own if e.coordinate == coordinate)


def _friction(mechanism: Mechanism, coordinate: str) -> float:
    """The Coulomb level, smooth or not."""
    return sum(_summed(mechanism, kind, coordinate) for kind in (Friction, DryFriction))


def _gear(motor: Motor) -> str:
    """A motor as its gear ratio, with gain and rotor where they say something."""
    parts = [f"gear {motor.gear_ratio:.4g}" if motor.gear_ratio != 1.0 else "direct"]
    parts += [f"gain {motor.gain:.4g}"] if motor.gain != 1.0 else []
    parts += [f"rotor {motor.rotor_inertia:.3g}"] if motor.rotor_inertia else []
    return ", ".join(parts)


def _other_elements(mechanism: Mechanism, console: Console) -> None:
    rows = []
    for e in mechanism.elements:
        kind = type(e).__name__
        if isinstance(e, LineSpring):
            told = f"{e.first} – {e.second}: stiffness {e.stiffness:.4g} N/m, damping {e.damping:.4g} N·s/m"
            rows.append([e.name, "line spring", told])
        elif isinstance(e, DryFriction):
            level = f"Coulomb {e.coulomb:.4g}, Stribeck excess {e.stribeck:.4g}"
            rows.append(
                [
                    e.name,
                    "dry friction",
                    f"on {e.coordinate}: {level}, load coefficient {e.load_coefficient:.4g}",
                ]
            )
        elif kind == "Wrench":
            rows.append([e.name, "force", f"at {e.frame}, {e.axes} axes"])  # type: ignore[union-attr]
        elif kind == "Custom":
            told = ", ".join(f"{k} {v:.4g}" for k, v in e.parameters)  # type: ignore[union-attr]
            rows.append([e.name, "element", f"on {', '.join(e.coordinates)} {told}"])  # type: ignore[union-attr]
    if rows:
        table(console, "Other elements", ["name", "kind", "what"], rows, left=3)


def _loops(mechanism: Mechanism, state: Closure, console: Console) -> None:
    if not state.gaps:
        return
    rows = [[g.name, g.kind, g.what, str(g.rows), g.at_zero] for g in state.gaps]
    table(console, "Loops and couplings", ["name", "kind", "closes", "rows", "open at zero"], rows, left=3)
    if state.q is None:
        say(console, f"From zero coordinates and near there they cannot be closed: {state.refusal}\n")
        return
    if any(g.at_zero != "closed" for g in state.gaps):
        moved = [
            f"{n} {x:.4g}" for n, x in zip(mechanism.coordinate_names, state.q, strict=True) if abs(x) > 1e-9
        ]
        listed(console, "Closed at:", moved)
    else:
        say(console, "All are closed at zero coordinates.")
    listed(console, "Independent, for instance:", list(state.independent))
    console.print()


def _inputs(mechanism: Mechanism, console: Console) -> None:
    listed(console, "Inputs:", list(mechanism.input_names) or ["none"])
    loose = _unmoved(mechanism)
    if loose:
        listed(console, "Coordinates without a motor:", loose)
    console.print()


def _unmoved(mechanism: Mechanism) -> list[str]:
    pushed = {e.coordinate for e in mechanism.elements if isinstance(e, Motor)}
    pushed |= {d.coordinate for d in mechanism.drives}
    return [name for name in mechanism.coordinate_names if name not in pushed]


def _identifiable(mechanism: Mechanism, found: Structure, console: Console) -> None:
    heads = ["m", "mx", "my", "mz", "Ixx", "Iyy", "Izz", "Ixy", "Ixz", "Iyz"]
    bodies = list(dict.fromkeys(name.removesuffix(f".{TEN[0]}") for name in found.inertial[::10]))
    rows, never = [], []
    for body in bodies:
        acts = [found.action[f"{body}.{number}"] for number in TEN]
        if set(acts) == {NEVER}:
            never.append(body)
        else:
            rows.append([body, *(MARKS[a] for a in acts)])
    title = "What can be identified in principle (m, m·com and inertia about the body's origin)"
    table(console, title, ["body", *heads], rows)
    legend = {ALONE: "by itself", TOGETHER: "only in combination with others", NEVER: "never acts"}
    say(console, "  ".join(f"{MARKS[a]} {text}" for a, text in legend.items()))
    acting = [n for n in found.inertial if found.action[n] != NEVER]
    say(
        console,
        f"{len(acting)} of {len(found.inertial)} inertial parameters act, in {found.inertial_rank} independent "
        "combinations.",
    )
    others = [n for n in found.action if n not in set(found.inertial)]
    if others:
        sum_up = [n for n in found.action if found.action[n] != NEVER]
        say(
            console,
            f"With {_kinds(others)} unknown as well: {len(sum_up)} act, in {found.rank} combinations.",
        )
        mixed = [n for n in others if found.action[n] == TOGETHER]
        if mixed:
            listed(console, "Of these only in combination:", mixed)
    if never:
        listed(console, "Bodies that never act:", never)
    light = [b.name for b in mechanism.bodies if b.name not in bodies]
    if light:
        listed(console, "Massless, left out:", light)
    mixtures = [c for c in found.combinations if c.others]
    if mixtures and len(mixtures) <= LISTED and sum(len(c.others) for c in mixtures) <= 4 * LISTED:
        say(console, "Combinations that act as one number:")
        for c in mixtures:
            listed(console, " ·", [str(c)])
    elif mixtures:
        say(console, f"{counted(len(mixtures), 'combination')} of several numbers: --json lists them.")
    console.print()


def _kinds(names: list[str]) -> str:
    count: dict[str, int] = {}
    for name in names:
        kind = name.rpartition(".")[2].replace("_", " ")
        count[kind] = count.get(kind, 0) + 1
    return ", ".join(f"{n} {kind}" for kind, n in count.items())


# For a program


def _as_data(mechanism: Mechanism, state: Closure, found: Structure | None) -> dict[str, Any]:
    joint_of = {c.name: j for j in mechanism.joints for c in j.coordinates}
    return {
        "name": mechanism.name,
        "gravity": [float(x) for x in mechanism.gravity],
        "mass": sum(b.mass for b in mechanism.bodies),
        "degrees_of_freedom": state.freedom,
        "redundant_rows": state.redundant,
        "bodies": [
            {"name": b.name, "mass": b.mass, "com": b.com.tolist(), "inertia": b.inertia.tolist()}
            for b in mechanism.bodies
        ],
        "joints": [
            {
                "name": j.name,
                "kind": j.kind,
                "parent": j.parent,
                "child": j.child,
                "origin": j.origin.tolist(),
                "rotation": j.rotation.tolist(),
                "axes": [list(c.axis) for c in j.coordinates],
            }
            for j in mechanism.joints
        ],
        "coordinates": [
            {
                "name": c.name,
                "joint": joint_of[c.name].name,
                "unit": c.unit,
                "lower": _finite(c.lower),
                "upper": _finite(c.upper),
                "max_rate": _finite(c.max_rate),
                "max_force": _finite(c.max_force),
                "damping": _summed(mechanism, Damper, c.name),
                "friction": _friction(mechanism, c.name),
                "armature": _summed(mechanism, Armature, c.name),
                "stiffness": _summed(mechanism, Spring, c.name),
            }
            for c in mechanism.coordinates
        ],
        "motors": [
            {"name": e.name, "coordinate": e.coordinate, "gain": e.gain, "gear_ratio": e.gear_ratio}
            | {"rotor_inertia": e.rotor_inertia}
            for e in mechanism.elements
            if isinstance(e, Motor)
        ],
        "constraints": [
            {"name": g.name, "kind": g.kind, "closes": g.what, "rows": g.rows, "open_at_zero": g.at_zero_size}
            for g in state.gaps
        ],
        "closed_at": None
        if state.q is None
        else dict(zip(mechanism.coordinate_names, map(float, state.q), strict=True)),
        "refusal": state.refusal,
        "independent": list(state.independent),
        "inputs": list(mechanism.input_names),
        "without_motor": _unmoved(mechanism),
        "frames": list(mechanism.frame_names),
        "identifiable": None if found is None else _identifiable_data(found),
        "notes": list(mechanism.notes),
    }


def _identifiable_data(found: Structure) -> dict[str, Any]:
    return {
        "inertial_parameters": len(found.inertial),
        "inertial_combinations": found.inertial_rank,
        "parameters": len(found.action),
        "combinations": [{"leading": c.leading, "others": c.others} for c in found.combinations],
        "action": found.action,
        "smallest_kept": found.margin[0],
        "largest_dropped": found.margin[1],
    }


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
