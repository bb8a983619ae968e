"""Linear complementarity problems: contacts, limits and dry friction, by Lemke's algorithm.

    w = H z + q,   lower ≤ z ≤ upper,   w ≥ 0 where z = lower,   w ≤ 0 where z = upper,   w = 0 between

`lcp` has the bounds 0 and ∞, `boxed` any; `mlcp` has equations before the complementary rows (A.1).

An artificial force s makes a start: w = H z + q + d s, with every z at a bound and s large. It is then followed
down to zero. A variable that reaches a limit leaves the basis and its partner in the pair (z_i, w_i) enters; only
the pair whose place s holds is open. Where s reaches zero, the rest is a solution. Where nothing stops the entering
variable, the path ends on a ray: never where H is positive definite or a P-matrix or where all bounds are finite,
and where H is positive semidefinite only if there is no solution.

The path cannot come back to a basis: of rows that stop together one is chosen as if q were q + (ε, ε², …), by the
rows of the basis's inverse (the lexicographic rule). That inverse is all of the tableau that is kept. Row i belongs
to pair i, so a basis is a mask; masks tell and move rows, and a problem stays one kernel, alone or in a batch.

At the end the solution is taken from the linear equations of its basis, through the same inverse. Its derivatives
are thus those of (D.6), forward or backward, for one product: exact where no row is about to change sides.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mechid.dynamics.linear import Factors, eliminated, factorise, solve, solve_transposed
from mechid.dynamics.tree import Array

TINY = 1e-12
"""relative size of what counts as no pivot, and of a difference that counts as none"""
EXACT = 1e-9
"""relative error that a solution may have"""
EQUALISED = 3
"""passes that equalise the sizes of rows and columns"""
EXPONENT = 0x7FF0000000000000
"""the bits of a float64 that are its power of two"""


class Ended(enum.IntEnum):
    """How the solution of a complementarity problem ended."""

    SOLVED = 0
    RAY = 1
    """the path leads to infinity"""
    TOO_MANY = 2
    """pivots"""
    INEXACT = 3
    """spoiled by rounding, by a lower bound above the upper one, or by an input that is not a number"""


class Solved(NamedTuple):
    """A solution; z and w are not numbers unless it is one."""

    z: Array
    w: Array
    """H z + q, zero where z is in the basis"""
    outcome: Array
    """an `Ended`"""
    pivots: Array
    """none where the start is the solution"""


class _Basis(NamedTuple):
    """Which variable of each pair is unknown; the others are at their limits."""

    inverse: Array
    """of the columns −H_i where z_i is the unknown, 1_i where w_i is"""
    active: Array
    """(n,) z_i is the unknown"""
    high: Array
    """(n,) z_i, if not unknown, is at its upper bound"""


class _Path(NamedTuple):
    basis: _Basis
    """row and column `open` belong to s"""
    values: Array
    """(n,) of the unknowns"""
    open: Array
    """the pair of which none is unknown"""
    z_enters: Array
    """its z enters next, otherwise its w"""
    outcome: Array
    pivots: Array


def lcp(H: Array, q: Array, *, max_pivots: int | None = None) -> Solved:
    """z ≥ 0 with w = H z + q ≥ 0 and zᵀw = 0."""
    zero = jnp.zeros(q.shape[0])
    return _solved(H, q, zero, zero + jnp.inf, _Basis(jnp.diag(zero + 1.0), zero > 0, zero > 0), max_pivots)


def mlcp(S: Array, b: Array, free: int, *, max_pivots: int | None = None) -> Solved:
    """w = S z + b: the first `free` rows have w = 0 and any z, the others z ≥ 0, w ≥ 0 and zᵀw = 0 (A.1).

    The equations are eliminated, z_A = −S_AA⁻¹ (S_AB z_B + b_A), which leaves H = S_BB − S_BA S_AA⁻¹ S_AB for z_B.
    """
    if not free:
        return lcp(S, b, max_pivots=max_pivots)
    to_A, to_B = S[:free], S[free:]
    factors = factorise(jax.lax.stop_gradient(to_A[:, :free]))
    sides = jnp.concatenate([to_A[:, free:], b[:free, None]], 1)
    x = jax.lax.custom_linear_solve(
        lambda x: to_A[:, :free] @ x,
        sides,
        lambda _, rhs: solve(factors, rhs),
        lambda _, rhs: solve_transposed(factors, rhs),
    )
    if free == b.shape[0]:
        finite = jnp.all(jnp.isfinite(x))
        outcome = jnp.where(finite, Ended.SOLVED, Ended.INEXACT)
        return Solved(-x[:, -1], jnp.zeros_like(b), outcome, jnp.array(0))
    reduced = jnp.concatenate([to_B[:, free:], b[free:, None]], 1) - to_B[:, :free] @ x
    z, w, outcome, pivots = lcp(reduced[:, :-1], reduced[:, -1], max_pivots=max_pivots)
    z_A = -(x[:, :-1] @ z + x[:, -1])
    return Solved(jnp.concatenate([z_A, z]), jnp.concatenate([jnp.zeros(free), w]), outcome, pivots)


def boxed(H: Array, q: Array, lower: Array, upper: Array, *, max_pivots: int | None = None) -> Solved:
    """lower ≤ z ≤ upper with w = H z + q ≥ 0 where z = lower, ≤ 0 where z = upper, and zero between.

    Bounds may be infinite. Rows with two infinite bounds are equations; their block of H must have an inverse.
    """
    lower, upper = jnp.asarray(lower), jnp.asarray(upper)
    free, high = jnp.isinf(lower) & jnp.isinf(upper), jnp.isinf(lower) & ~jnp.isinf(upper)
    inverse = one = jnp.eye(q.shape[0])
    if one.size:
        columns = jax.lax.stop_gradient(jnp.where(free, -H, one))
        inverse = jax.lax.cond(jnp.any(free), lambda: eliminated(columns).matrix, lambda: one)
    return _solved(H, q, lower, upper, _Basis(inverse, free, high), max_pivots)


def _solved(H: Array, q: Array, lower: Array, upper: Array, start: _Basis, max_pivots: int | None) -> Solved:
    """The solution at the end of the path, from the equations of its basis: w − H z = q + H (z at bounds)."""
    n = q.shape[0]
    if not n:
        return Solved(q, q, jnp.array(int(Ended.SOLVED)), jnp.array(0))
    numbers = jax.lax.stop_gradient((H, q, lower, upper, start))
    basis, outcome, pivots, unit, load = _scaled_path(
        *numbers, 20 * n + 50 if max_pivots is None else max_pivots
    )
    active, factors = basis.active, Factors(basis.inverse, jnp.zeros(0, dtype=jnp.int32))
    at_bound = jnp.where(active, 0.0, jnp.where(basis.high, upper, lower))
    rhs = q + H @ at_bound

    def columns(y: Array) -> Array:
        return jnp.where(active, 0.0, y) - H @ jnp.where(active, y, 0.0)

    def improved(product: Callable[[Array], Array], rhs: Array) -> Array:
        y = solve(factors, rhs)
        return y + solve(factors, rhs - product(y))

    y = jax.lax.custom_linear_solve(columns, rhs, improved, lambda _, b: solve_transposed(factors, b))
    inside = jnp.clip(y, *_limits(basis, lower, upper))
    exact = (jnp.abs(rhs - columns(y)) <= EXACT * load) & (jnp.abs(inside - y) <= EXACT * unit)
    exact &= lower <= upper
    ends = jnp.where((outcome == Ended.SOLVED) & ~jnp.all(exact), Ended.INEXACT, outcome)
    solved = ends == Ended.SOLVED
    y = y + jax.lax.stop_gradient(inside - y)  # into the bounds, with the slopes of the equations
    z, w = jnp.where(active, y, at_bound), jnp.where(active, 0.0, y)
    return Solved(jnp.where(solved, z, jnp.nan), jnp.where(solved, w, jnp.nan), ends, pivots)


def _limits(basis: _Basis, lower: Array, upper: Array) -> tuple[Array, Array]:
    """Of the unknowns."""
    low = jnp.where(basis.active, lower, jnp.where(basis.high, -jnp.inf, 0.0))
    return low, jnp.where(basis.active, upper, jnp.where(basis.high, 0.0, jnp.inf))


def _scaled_path(
    H: Array, q: Array, lower: Array, upper: Array, start: _Basis, max_pivots: int
) -> tuple[_Basis, Array, Array, Array, Array]:
    """The basis at the end of the path, the outcome, the pivots, and how large its unknowns and its rows are.

    The path is followed in units in which the largest element of each row and column of H is about one, and of q
    too: powers of two, so that nothing is rounded and equal numbers stay equal.
    """
    size = jnp.abs(H)
    row, column = jnp.ones(q.shape[0]), jnp.ones(q.shape[0])
    for _ in range(EQUALISED):
        now = row[:, None] * size * column
        row, column = row * _near_inverse_root(jnp.max(now, 1)), column * _near_inverse_root(jnp.max(now, 0))
    unit = jnp.where(start.active, column, 1.0 / row)
    at_bound = jnp.where(start.active, 0.0, jnp.where(start.high, upper, lower))
    load = row * (q + H @ at_bound)
    force = _near_inverse_root(jnp.max(jnp.abs(load))) ** -2
    end = _path(
        row[:, None] * H * column,
        load / force,
        lower / (column * force),
        upper / (column * force),
        start._replace(inverse=start.inverse / (unit[:, None] * row)),
        max_pivots,
    )
    unit = jnp.where(end.basis.active, column, 1.0 / row)
    basis = end.basis._replace(inverse=unit[:, None] * end.basis.inverse * row)
    size = force * (1.0 + jnp.max(jnp.abs(end.values)))
    return basis, end.outcome, end.pivots, unit * size, size / row


def _near_inverse_root(x: Array) -> Array:
    """A power of two near 1/√x; 1 for zero."""
    bits = jax.lax.bitcast_convert_type(jnp.sqrt(jnp.where(x > 0, x, 1.0)), jnp.int64)
    return 1.0 / jax.lax.bitcast_convert_type(bits & EXPONENT, jnp.float64)


def _path(H: Array, load: Array, lower: Array, upper: Array, start: _Basis, max_pivots: int) -> _Path:
    """Lemke's path; load is q and what the start's bounds add to it."""
    number = np.arange(load.shape[0])

    def enter(path: _Path) -> _Path:
        basis, values = path.basis, path.values
        here = number == path.open
        direction = jnp.where(_at(here, basis.high), -1.0, 1.0)
        column = jnp.sum(basis.inverse * jnp.where(path.z_enters, -_at(here, H), 1.0 * here), 1)
        rate, speed = -direction * column, jnp.abs(column)

        # how far until each unknown is at a limit, where s is zero, and where z is at its other bound
        low, top = _limits(basis, lower, upper)
        low, top = jnp.where(here, 0.0, low), jnp.where(here, jnp.inf, top)
        room = jnp.maximum(jnp.where(rate < 0, values - low, top - values), 0.0)
        moves = speed > TINY * jnp.max(speed)
        far = jnp.where(moves, room / speed, jnp.inf)
        end, width = _at(here, far), jnp.where(path.z_enters, _at(here, upper - lower), jnp.inf)
        far = jnp.where(here, width, far)
        least = jnp.minimum(jnp.min(far), end)
        tolerance = TINY * (1.0 + jnp.abs(values))
        tied = jnp.where(here, width <= least + TINY, moves & (room - speed * least <= tolerance))
        solved = _at(here, room - speed * least <= tolerance) & (end < jnp.inf)
        there = jnp.where(solved, here, _first(tied, basis.inverse, jnp.where(here, jnp.inf, -rate)))
        across = _at(here, there) & ~solved

        # what leaves is at a limit; what enters takes the row of s, and s the row that is left
        step = jnp.where(solved, end, _at(there, far))
        inverse = jnp.where(across, basis.inverse, _exchanged(basis.inverse, column, here, there))
        moved = values + rate * step
        bound = jnp.where(_at(here, basis.high), _at(here, upper), _at(here, lower))
        entered = jnp.where(path.z_enters, bound, 0.0) + direction * step
        moved = jnp.where(here & ~across, entered, jnp.where(there, _at(here, moved), moved))
        z_leaves = across | _at(there, basis.active)
        high = jnp.where(across, direction > 0, rate > 0)
        return _Path(
            _Basis(
                inverse,
                jnp.where(here & ~across, path.z_enters, basis.active & ~there),
                jnp.where(there & z_leaves & ~solved, high, basis.high),
            ),
            moved,
            jnp.argmax(there),
            ~z_leaves,
            jnp.where(least < jnp.inf, jnp.where(solved, Ended.SOLVED, Ended.TOO_MANY), Ended.RAY),
            path.pivots + 1,
        )

    values = jnp.sum(start.inverse * load, 1)
    # s acts on every w, towards its side
    side = jnp.where(start.active, 0.0, jnp.where(start.high, -1.0, 1.0))
    missing = -side * values
    s = jnp.max(missing)
    tied = (missing >= s - TINY) & ~start.active
    here = _first(tied, start.inverse, side)
    fine, finite = s <= 0, jnp.isfinite(s + jnp.sum(H))
    inverse = _exchanged(start.inverse, -side, here, here)
    first = _Path(
        start._replace(inverse=jnp.where(fine, start.inverse, inverse)),
        jnp.where(fine, values, jnp.where(here, s, values + side * s)),
        jnp.argmax(here),
        jnp.array(True),
        jnp.where(fine, Ended.SOLVED, jnp.where(finite, Ended.TOO_MANY, Ended.INEXACT)),
        jnp.where(fine, 0, 1),
    )
    return jax.lax.while_loop(
        lambda path: (path.outcome == Ended.TOO_MANY) & (path.pivots < max_pivots), enter, first
    )


def _exchanged(inverse: Array, column: Array, here: Array, there: Array) -> Array:
    """The inverse when a column (in the old basis) replaces the unknown of row `there`.

    It becomes row `here`, of which the former unknown moves to `there`.
    """
    row = _at(there, inverse.T) / _at(there, column)
    kept = jnp.where(there[:, None], _at(here, inverse.T), inverse)
    share = jnp.where(there, _at(here, column), column)
    return jnp.where(here[:, None], row, kept - share[:, None] * row)


def _first(tied: Array, rows: Array, divisor: Array) -> Array:
    """The one of the tied rows that, divided, comes first in lexicographic order."""
    number = np.arange(divisor.shape[0])

    def undecided(state: tuple[Array, Array]) -> Array:
        left, k = state
        return (jnp.sum(left) > 1) & (k < divisor.shape[0])

    def narrow(state: tuple[Array, Array]) -> tuple[Array, Array]:
        left, k = state
        key = _at(number == k, rows) / divisor
        least = jnp.min(jnp.where(left, key, jnp.inf))
        return left & (key <= least + TINY * (1.0 + jnp.abs(least))), k + 1

    left, _ = jax.lax.while_loop(undecided, narrow, (tied, jnp.array(0)))
    return number == jnp.argmax(left)


def _at(mask: Array, values: Array) -> Array:
    """The element, or the column, that a mask tells."""
    return jnp.any(mask & values, -1) if values.dtype == bool else jnp.sum(jnp.where(mask, values, 0), -1)
