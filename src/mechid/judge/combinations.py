"""Which combinations of parameters can be told where single ones cannot: c/m and k/m, or a sum.

A direction d of relative changes leaves the monomial Π θ_i^e_i as it is where e·d = 0. Exponents are looked for
among small fractions; where there are none, a sum Σ c_i θ_i is tried in the same way with absolute changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm

import numpy as np
import scipy.linalg

LARGEST = 6
"""denominators and numerators of exponents"""
NEAR = 0.02
"""by which a ratio may differ from a whole number; from a fraction by less, as these are denser"""
ELSEWHERE = 3
"""other values of the parameters at which an expression is tried"""
Expressions = Callable[[np.ndarray], Sequence[tuple[str, float, np.ndarray]]]
"""expressions with their values and slopes, in the order of preference, for values of the parameters"""


@dataclass(frozen=True)
class Combination:
    """An expression of parameters that the data tell."""

    expression: str
    value: float
    std: float
    names: tuple[str, ...]


@dataclass(frozen=True)
class Form:
    """Π θ^factors, or Σ factors·θ."""

    names: tuple[str, ...]
    factors: tuple[int, ...]
    product: bool

    @property
    def expression(self) -> str:
        return _product(self.names, self.factors) if self.product else _sum(self.names, self.factors)

    def value(self, numbers: np.ndarray) -> float:
        e = np.array(self.factors, float)
        return float(np.prod(numbers**e) if self.product else e @ numbers)

    def slope(self, numbers: np.ndarray) -> np.ndarray:
        """By the parameters."""
        e = np.array(self.factors, float)
        return self.value(numbers) * e / numbers if self.product else e


def forms(names: Sequence[str], numbers: np.ndarray, null: np.ndarray) -> tuple[Form, ...] | None:
    """As many independent expressions as directions are left, from those that the data do not tell.

    null: (n, k) absolute changes of the parameters that change nothing. None where no simple expressions are found.
    """
    scale = np.abs(null).max(axis=0)
    null = null[:, scale > 0.0] / scale[scale > 0.0]
    if not null.shape[1] or null.shape[1] >= len(names):
        return None if null.shape[1] < len(names) else ()
    for product in (True, False):
        if product and np.any(numbers == 0.0):
            continue
        directions = null / numbers[:, None] if product else null
        directions = directions / np.abs(directions).max(axis=0)
        exponents = _left_alone(directions)
        if exponents is not None:
            return tuple(Form(tuple(names), row, product) for row in exponents)
    return None


def _left_alone(directions: np.ndarray) -> list[tuple[int, ...]] | None:
    """Rows of small whole numbers, perpendicular to all directions, each with a parameter of its own."""
    n, k = directions.shape
    # of equals the first is what the others are divided by
    order = scipy.linalg.qr(directions.T * np.linspace(1.0, 0.9, n), mode="r", pivoting=True)[-1]  # type: ignore[index]
    pivots = np.sort(np.asarray(order)[:k])
    others = [i for i in range(n) if i not in pivots]
    rows = []
    for i in others:
        share = -np.linalg.solve(directions[pivots].T, directions[i])
        parts = [Fraction(float(x)).limit_denominator(LARGEST) for x in share]
        near = [NEAR / f.denominator**2 for f in parts]
        if any(abs(float(f) - x) > y or abs(f) > LARGEST for f, x, y in zip(parts, share, near, strict=True)):
            return None
        whole = lcm(*(f.denominator for f in parts))
        row = np.zeros(n, int)
        row[i] = whole
        row[pivots] = [int(f * whole) for f in parts]
        rows.append(tuple(int(x) for x in row))
    return rows


def _product(names: Sequence[str], factors: Sequence[int]) -> str:
    def part(sign: int) -> list[str]:
        powers = [(n, sign * f) for n, f in zip(names, factors, strict=True) if sign * f > 0]
        return [n if p == 1 else f"{n}^{p}" for n, p in powers]

    above, below = part(1), part(-1)
    top = "*".join(above) or "1"
    if not below:
        return top
    return f"{top}/{below[0]}" if len(below) == 1 else f"{top}/({'*'.join(below)})"


def _sum(names: Sequence[str], factors: Sequence[int]) -> str:
    text = ""
    for n, f in zip(names, factors, strict=True):
        if f:
            size = n if abs(f) == 1 else f"{abs(f)}*{n}"
            text += (f" {'+' if f > 0 else '-'} " if text else "-" * (f < 0)) + size
    return text


def combinations(
    names: Sequence[str],
    numbers: np.ndarray,
    null: np.ndarray,
    covariance: np.ndarray,
    candidates: Expressions = lambda _: (),
) -> tuple[Combination, ...] | None:
    """What can be told: each parameter that no null direction moves, and expressions of the others.

    covariance: of the parameters along what is told, (n, n). candidates: what the equations depend on, for where
    products and sums do not do, or do at these values of the parameters only. None where nothing does.
    """
    moved = np.any(np.abs(null) > 1e-3 * _sizes(numbers)[:, None] * _largest(null, numbers), axis=1)
    inner = [int(i) for i in np.flatnonzero(moved)]
    simple = forms([names[i] for i in inner], numbers[inner], null[inner])
    if simple is not None and _by_chance(simple, candidates, numbers, null, moved):
        simple = None
    if simple is not None:
        found = []
        for f in simple:
            slope = np.zeros(len(names))
            slope[inner] = f.slope(numbers[inner])
            found.append((f.expression, f.value(numbers[inner]), slope))
    else:
        found = _chosen(candidates(numbers), numbers, null, moved)
        if found is None:
            return None
    alone = [(names[i], float(numbers[i]), np.eye(len(names))[i]) for i in map(int, np.flatnonzero(~moved))]
    return tuple(
        Combination(
            text,
            value,
            float(np.sqrt(max(slope @ covariance @ slope, 0.0))),
            tuple(n for n, x in zip(names, slope, strict=True) if x),
        )
        for text, value, slope in (*alone, *found)
    )


@dataclass(frozen=True)
class Known:
    """What could be told if some parameters were known."""

    given: tuple[Combination, ...]
    """at their values, without a std"""
    told: tuple[Combination, ...]
    """parameters that hide behind these, at their values, with the std that they would have"""


def were_known(
    names: Sequence[str], numbers: np.ndarray, sizes: np.ndarray, null: np.ndarray, covariance: np.ndarray
) -> Known | None:
    """The fewest parameters that would have to be known, those that null directions move most, and the others then.

    A parameter at known values of the given ones is a sum that null directions leave alone. It hides behind one
    that moves it by more than its std when it changes by 100 %, its size. None where nothing hides.
    """
    directions = null / sizes[:, None]
    k = directions.shape[1]
    pivots = np.asarray(scipy.linalg.qr(directions.T, mode="r", pivoting=True)[-1])[:k]
    shares = np.linalg.solve(directions[pivots].T, directions.T).T
    told: list[Combination] = []
    given: set[int] = set()
    for i in (i for i in range(len(names)) if i not in pivots):
        slope = np.zeros(len(names))
        slope[i], slope[pivots] = 1.0, -shares[i] * sizes[i] / sizes[pivots]
        std = float(np.sqrt(max(slope @ covariance @ slope, 0.0)))
        moving = np.abs(shares[i]) * sizes[i] > max(std, 1e-12 * sizes[i])
        if moving.any():
            told.append(Combination(names[i], float(numbers[i]), std, (names[i],)))
            given |= set(pivots[moving].tolist())
    if not told:
        return None
    held = (Combination(names[i], float(numbers[i]), np.inf, (names[i],)) for i in sorted(given))
    return Known(tuple(held), tuple(told))


def _by_chance(
    simple: tuple[Form, ...],
    candidates: Expressions,
    numbers: np.ndarray,
    null: np.ndarray,
    moved: np.ndarray,
) -> bool:
    """Whether forms do not follow from what the equations depend on, at other values of the parameters.

    One direction does not tell a b from a + b where a = b.
    """
    told = _chosen(candidates(numbers), numbers, null, moved)
    if not told:
        return False
    texts, rng = [text for text, _, _ in told], np.random.default_rng(0)
    for _ in range(ELSEWHERE):
        other = numbers * rng.uniform(0.5, 1.5, len(numbers))
        there = {text: slope for text, _, slope in candidates(other)}
        rows = np.array([there[text][moved] for text in texts]) * other[moved]
        for form in simple:
            slope = form.slope(other[moved]) * other[moved]
            left = slope - rows.T @ np.linalg.lstsq(rows.T, slope, rcond=None)[0]
            if np.linalg.norm(left) > 1e-6 * np.linalg.norm(slope):
                return True
    return False


def _chosen(
    candidates: Sequence[tuple[str, float, np.ndarray]],
    numbers: np.ndarray,
    null: np.ndarray,
    moved: np.ndarray,
) -> list[tuple[str, float, np.ndarray]] | None:
    """As many candidates as directions are left that the null ones leave alone, the first that are independent."""
    sizes = _sizes(numbers)
    away = scipy.linalg.orth(null / sizes[:, None])
    wanted, chosen, rows = int(moved.sum()) - away.shape[1], [], np.zeros((0, len(numbers)))
    for text, value, slope in candidates:
        relative = slope * sizes
        size = np.linalg.norm(relative)
        if len(chosen) == wanted or not size or np.any(slope[~moved]):
            continue
        if np.linalg.norm(away.T @ relative) > NEAR * size:
            continue
        more = np.concatenate([rows, relative[None] / size])
        if np.linalg.matrix_rank(more, tol=1e-6) > len(rows):
            rows = more
            chosen.append((text, value, slope))
    return chosen if len(chosen) == wanted else None


def _sizes(numbers: np.ndarray) -> np.ndarray:
    return np.where(numbers == 0.0, 1.0, np.abs(numbers))


def _largest(null: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """(1, k) largest relative change of each direction."""
    return np.max(np.abs(null) / _sizes(numbers)[:, None], axis=0, keepdims=True)
