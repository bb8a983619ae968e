"""`closure`: how far the loops of a mechanism are open, whether they can be closed, and what they leave free."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from mechid.dynamics.assembly import assemble, constraint_rows
from mechid.errors import MechidError
from mechid.model.geometry import Array
from mechid.model.system import System

RANK = 1e-9
"""singular values of Dh this much smaller than the largest are zero"""
ATTEMPTS = 6
"""guesses at random from which loops are tried to be closed"""


@dataclass(frozen=True)
class Gap:
    """A loop, coupling or drive: how far it is open."""

    name: str
    kind: str
    what: str
    rows: int
    at_zero: str
    """opening at zero coordinates, with units"""
    at_zero_size: float
    """m or rad, the largest"""


@dataclass(frozen=True)
class Closure:
    """How a mechanism's constraints stand, and what they leave free."""

    gaps: tuple[Gap, ...]
    refusal: str
    """why they cannot be closed; empty where they can"""
    q: Array | None
    """coordinates at which all are closed"""
    freedom: int | None
    """coordinates − rank of Dh there"""
    redundant: int
    """rows that repeat others there"""
    independent: tuple[str, ...]
    """coordinates that may be chosen freely there"""


def closure(mechanism: System) -> Closure:
    """How far the loops are open at zero coordinates, whether they can be closed, and what stays free then."""
    n, names = len(mechanism.coordinates), mechanism.coordinate_names
    rows = len(mechanism.constraint_names)
    if not rows:
        return Closure((), "", np.zeros(n), n, 0, names)
    model = mechanism.lower()
    gaps = tuple(_gaps(mechanism, constraint_rows(mechanism, model, np.zeros(n))[0]))
    try:
        q = assembled(mechanism)
    except MechidError as error:
        return Closure(gaps, str(error), None, None, 0, ())
    slope = constraint_rows(mechanism, model, q)[1]
    _, values, right = np.linalg.svd(slope)
    rank = int(np.sum(values > RANK * values.max(initial=0.0)))
    return Closure(gaps, "", q, n - rank, rows - rank, _independent(names, right[rank:]))


def _independent(names: tuple[str, ...], free: Array) -> tuple[str, ...]:
    """Coordinates whose rates fix all others: pivots of the free directions, the first ones where it can be."""
    left, chosen = free.copy(), []
    for _ in range(len(free)):
        sizes = np.linalg.norm(left, axis=0)
        j = int(np.argmax(sizes > 0.5 * sizes.max()))
        chosen.append(j)
        along = left[:, j] / sizes[j]
        left = left - np.outer(along, along @ left)
    return tuple(names[j] for j in sorted(chosen))


def _gaps(mechanism: System, h: Array) -> Iterator[Gap]:
    at = 0
    for loop in mechanism.loops:
        own = h[at : at + len(loop.rows)]
        at += len(own)
        sizes: dict[str, float] = {}
        for row, value in zip(loop.rows, own, strict=True):
            sizes[row.unit] = float(np.hypot(sizes.get(row.unit, 0.0), value))
        text = ", ".join(f"{x:.3g} {unit}" for unit, x in sizes.items() if x > 1e-9) or "closed"
        what = f"{loop.first} ≡ {loop.second}"
        yield Gap(loop.name, loop.kind, what, len(own), text, max(sizes.values(), default=0.0))
    for c in mechanism.couplings:
        size, unit = abs(float(h[at])), mechanism.coordinate(c.coordinate).unit
        text = f"{size:.3g} {unit}" if size > 1e-9 else "closed"
        yield Gap(c.name, "coupling", _equation(c), 1, text, size)
        at += 1
    for d in mechanism.drives:
        yield Gap(d.name, "drive", f"{d.coordinate} = input", 1, "closed", 0.0)


def _equation(c: Any) -> str:
    marks = ["", f"·{c.other}", *(f"·{c.other}^{i}" for i in range(2, 5))]
    terms = [f"{x:g}{m}" for x, m in zip([c.offset, c.ratio, c.c2, c.c3, c.c4], marks, strict=True) if x]
    return f"{c.coordinate} = {' + '.join(terms) or '0'}".replace("+ -", "− ").replace("= 1·", "= ")


def assembled(mechanism: System) -> Array:
    """Coordinates that close every loop: found from zero, from within the limits, or from near there at random.

    Zero is often a dead point, from which a loop does not close though it could.
    """
    random = np.random.default_rng(0)
    inside = np.array([np.clip(0.0, c.lower, c.upper) for c in mechanism.coordinates])
    near = random.uniform(-0.7, 0.7, (ATTEMPTS, len(inside)))
    refusal = None
    for guess in (np.zeros(len(inside)), inside, *(inside + near)):
        try:
            return assemble(mechanism, guess)
        except MechidError as error:
            refusal = refusal or error
    raise refusal or MechidError("There is nothing to assemble.")
