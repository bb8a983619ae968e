"""Free numbers of a mechanism in which its equations are linear: where they stand in its vector of values.

    values = still + slopes θ

A body of `free_inertia` stands here with its ten linear numbers. What is free and not linear is refused by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mechid.errors import MechidError, choices, unknown
from mechid.model.inertia import linear_from_physical
from mechid.model.mechanism import Mechanism
from mechid.model.parameters import Parameters

ALWAYS = {
    "body": None,
    "damper": None,
    "armature": None,
    "offset": None,
    "spring": ("stiffness", "cubic_stiffness"),
    "friction": ("coulomb", "stribeck"),
    "dry_friction": ("coulomb", "stribeck"),
    "gear_friction": ("coulomb", "slow_damping"),
    "periodic_friction": ("sine", "cosine"),
    "motor": ("gain", "rotor_inertia"),
    "line_spring": ("stiffness", "cubic_stiffness", "damping"),
    "element": None,
}
"""kinds of parts and their numbers in which forces are linear, everything else of the part held; None: in all"""
ALONE = {
    ("spring", "rest"): ("stiffness", "cubic_stiffness"),
    ("motor", "gear_ratio"): ("gain", "rotor_inertia"),
}
"""numbers in which forces are linear where these others are held; the last one must be zero"""
LAWS = {
    "friction": ("stribeck_velocity", "stribeck_exponent", "friction_width"),
    "dry_friction": ("stribeck_velocity", "stribeck_exponent"),
    "gear_friction": ("stribeck_velocity", "stribeck_exponent", "friction_width"),
}
"""numbers that shape a friction law: they may be held at values that somebody searches for"""
TEN = (
    "mass",
    *(f"first_moment.{c}" for c in "xyz"),
    *(f"origin_inertia.{c}" for c in ("xx", "yy", "zz", "xy", "xz", "yz")),
)


@dataclass(frozen=True, eq=False)
class LinearNumbers:
    """values = still + slopes θ."""

    free: Parameters
    names: tuple[str, ...]
    units: tuple[str, ...]
    start: np.ndarray
    still: np.ndarray
    slopes: np.ndarray
    """(values, n)"""
    entries: tuple[int, ...]
    """which parameter each θ is; −1 for a number of a body that has ten log-Cholesky numbers"""
    bodies: dict[str, slice]
    """the ten θ of each of these bodies"""
    nonlinear: tuple[str, ...]
    """parameters that are left to somebody else"""
    places: tuple[int, ...]
    """where these stand among the values"""

    def values(self, theta: np.ndarray) -> np.ndarray:
        return self.still + self.slopes @ theta


def linear_numbers(free: Parameters, nonlinear: Sequence[str] = ()) -> LinearNumbers:
    """The linear numbers among what is free, those of a friction law's shape left out that `nonlinear` names."""
    for name in nonlinear:
        if name not in free.names:
            raise unknown("parameter", name, free.names)
    plain = [i for i, p in enumerate(free.entries) if not p.body and p.name not in nonlinear]
    _refuse_nonlinear(free, plain, nonlinear)
    start = np.array([p.start for p in free.entries])
    here = _values(free, start)
    names, units, begun = [], [], []
    columns: list[np.ndarray] = []
    for i in plain:
        by = np.zeros(len(start))
        by[i] = _stride(start[i])
        columns.append((_values(free, start + by) - here) / by[i])
        names.append(free.entries[i].name)
        units.append(free.entries[i].unit)
        begun.append(float(start[i]))
    _refuse_bent(free, plain, start, here, columns)
    entries = list(plain)
    bodies: dict[str, slice] = {}
    offset = free.lowering.layout.blocks.get("rigid", (0, 0, 0))[0]
    order = [b.name for b in free.mechanism.bodies]
    for body in dict.fromkeys(p.body for p in free.entries if p.body):
        at = offset + 10 * order.index(body)
        bodies[body] = slice(len(columns), len(columns) + 10)
        for k, number in enumerate(TEN):
            columns.append(np.eye(len(here))[at + k])
            names.append(f"{body}.{number}")
            units.append("kg" if k == 0 else "kg·m" if k < 4 else "kg·m²")
            begun.append(float(free.lowering.values[at + k]))
            entries.append(-1)
        here[at : at + 10] = free.lowering.values[at : at + 10]
    slopes = np.array(columns).T.reshape(len(here), len(columns))
    still = here - slopes @ np.array(begun)
    # what moves by itself is exactly zero where θ is
    still[np.abs(still) < 1e-14 * np.abs(here)] = 0.0
    places = [free.entries[free.names.index(n)].moves[0].address.index for n in nonlinear]
    return LinearNumbers(
        free, tuple(names), tuple(units), np.array(begun), still, slopes, tuple(entries), bodies,
        tuple(nonlinear), tuple(places),
    )  # fmt: skip


def _stride(x: float) -> float:
    return float(2.0 ** np.round(np.log2(max(abs(x), 1e-3))))


def _values(free: Parameters, numbers: np.ndarray) -> np.ndarray:
    """The vector of values for plain parameters, on the host."""
    vector = free._base(free._physical)
    for i, move in free._moves:
        vector[move.address.index] = float(move(numbers[i]))
    rows = free.lowering.layout.block(vector, "rigid") if "rigid" in free.lowering.layout.blocks else vector
    for b in free._physical:
        rows[b] = linear_from_physical(rows[b])  # type: ignore[arg-type]
    return vector


def _refuse_nonlinear(free: Parameters, plain: Sequence[int], nonlinear: Sequence[str]) -> None:
    """What stands in the equations in another way than as a factor."""
    m = free.mechanism
    for name in nonlinear:
        for move in free.entries[free.names.index(name)].moves:
            a = move.address
            if a.name.rpartition(".")[2] not in LAWS.get(a.kind, ()) or callable(move.map) or move.map != 1.0:
                raise MechidError(
                    f"Parameter '{name}' is no number of a friction law's shape: only "
                    f"{choices(sorted({q for qs in LAWS.values() for q in qs}))} may be searched for from outside."
                )
    bad: list[str] = []
    if not isinstance(m, Mechanism):
        linear = set(getattr(m, "linear_parameters", tuple)())
        moved = [(free.names[i], mv.address.name) for i in plain for mv in free.entries[i].moves]
        bad = [name for name, address in moved if address not in linear]
    else:
        moved = {mv.address.index: free.names[i] for i in plain for mv in free.entries[i].moves}
        by_name = {(a.kind, a.name): a for a in free.lowering.layout.addresses}
        for i in plain:
            for move in free.entries[i].moves:
                a = move.address
                part, _, quantity = a.name.rpartition(".")
                if a.kind in ALWAYS and (ALWAYS[a.kind] is None or quantity in (ALWAYS[a.kind] or ())):
                    continue
                others = ALONE.get((a.kind, quantity))
                if others is not None:
                    held = [by_name[a.kind, f"{part}.{o}"].index for o in others]
                    if not any(x in moved for x in held) and free.lowering.values[held[-1]] == 0.0:
                        continue
                bad.append(free.names[i])
    if bad:
        raise _refusal(list(dict.fromkeys(bad)))


def _refuse_bent(
    free: Parameters, plain: list[int], start: np.ndarray, here: np.ndarray, columns: list[np.ndarray]
) -> None:
    """Charts and functions in which values are no straight lines: a free centre of mass, a length squared."""
    rng = np.random.default_rng(0)
    strides = np.zeros(len(start))
    strides[plain] = [_stride(start[i]) for i in plain]
    by = rng.uniform(0.5, 1.0, len(start)) * strides
    bad = []
    for i, column in zip(plain, columns, strict=True):
        one = np.where(np.arange(len(start)) == i, 2.0 * strides, 0.0)
        if not _same(_values(free, start + one), here + column * one[i]):
            bad.append(free.names[i])
    told = here + sum((c * by[i] for i, c in zip(plain, columns, strict=True)), np.zeros(len(here)))
    off = _values(free, start + by)
    if not bad and not _same(off, told):
        crooked = np.flatnonzero(~np.isclose(off, told, rtol=1e-9, atol=1e-12))
        bad = [free.names[i] for i, c in zip(plain, columns, strict=True) if np.any(c[crooked])]
    if bad:
        raise _refusal(bad)


def _same(a: Any, b: Any) -> bool:
    return bool(np.allclose(a, b, rtol=1e-9, atol=1e-12))


def _refusal(names: list[str]) -> MechidError:
    text = choices([f"'{n}'" for n in names], 6)
    com = any(".com" in n or ".inertia." in n for n in names)
    hint = " Free a body's first_moment and origin_inertia in the place of com and inertia." if com else ""
    return MechidError(
        f"Regression finds numbers in which the equations of motion are linear; in {text} they are not.{hint} Hold "
        "what is not linear at a value, or use simulation_error or joint."
    )
