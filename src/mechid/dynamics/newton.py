"""Newton's method for one step: few factorisations, a controlled step, an honest end.

The Jacobian is factorised where it pays: at the start, and again when the last step gained less than a factor of
twenty. A step that does not reduce the residual is halved (with a fresh Jacobian) or tried again with a new one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.scipy.linalg

from mechid.dynamics.stepper import Outcome
from mechid.dynamics.tree import Array


class Solved(NamedTuple):
    y: Array
    extra: Any
    """what `residual` gave besides, at y"""
    outcome: Array
    iterations: Array
    residual: Array
    """largest residual as a multiple of its tolerance"""


class _Iterate(NamedTuple):
    y: Array
    r: Array
    extra: Any
    norm: Array
    factors: tuple[Array, Array]
    fresh: Array
    """the factors belong to this y"""
    wanted: Array
    """new factors are wanted before the next step"""
    length: Array
    iterations: Array
    outcome: Array


def newton(
    residual: Callable[[Array], tuple[Array, Array, Any]],
    jacobian: Callable[[Array], Array],
    y: Array,
    max_iterations: int = 40,
) -> Solved:
    """Solve r(y) = 0. `residual` gives r, the tolerance of each row, and what else is wanted at the solution."""

    def norm_of(r: Array, tolerance: Array) -> Array:
        return jnp.max(jnp.abs(r) / tolerance)

    def factorise(y: Array) -> tuple[Array, Array]:
        return jax.scipy.linalg.lu_factor(jacobian(y))

    def unfinished(i: _Iterate) -> Array:
        return (i.outcome == Outcome.TOO_MANY) & (i.iterations <= max_iterations) & ~(i.norm <= 1.0)

    def iterate(i: _Iterate) -> _Iterate:
        def solve() -> tuple[tuple[Array, Array], Array]:
            factors = jax.lax.cond(i.wanted, lambda: factorise(i.y), lambda: i.factors)
            return factors, -jax.scipy.linalg.lu_solve(factors, i.r, check_finite=False)

        # the first pass only evaluates the residual at the guess: it is compiled once, here
        started = i.iterations > 0
        factors, direction = jax.lax.cond(started, solve, lambda: (i.factors, jnp.zeros_like(i.y)))
        fresh = started & (i.fresh | i.wanted)
        y = i.y + i.length * direction
        r, tolerance, extra = residual(y)
        norm = norm_of(r, tolerance)
        better = norm < (1.0 - 1e-4 * i.length) * i.norm
        # nothing more to gain: the correction is below the rounding of y
        size = jnp.max(jnp.abs(direction)) / (1.0 + jnp.max(jnp.abs(i.y)))
        done = fresh & (size < 1e-13) & (i.norm < 1e4)
        singular = fresh & ~jnp.all(jnp.isfinite(direction))
        stalled = fresh & ~better & (i.length < 1e-4)
        outcome = jnp.where(stalled, Outcome.STALLED, Outcome.TOO_MANY)
        outcome = jnp.where(done, Outcome.SOLVED, jnp.where(singular, Outcome.SINGULAR, outcome))
        return _Iterate(
            jnp.where(better, y, i.y),
            jnp.where(better, r, i.r),
            jax.tree.map(lambda a, b: jnp.where(better, a, b), extra, i.extra),
            jnp.where(better, norm, i.norm),
            factors,
            fresh & ~better,
            ~started | jnp.where(better, norm > 0.05 * i.norm, ~fresh),
            jnp.where(better | ~fresh, 1.0, 0.5 * i.length),
            i.iterations + 1,
            outcome,
        )

    n = y.shape[0]
    extra = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), jax.eval_shape(residual, y)[2])
    start = _Iterate(
        y,
        jnp.zeros(n),
        extra,
        jnp.array(jnp.inf),
        (jnp.zeros((n, n)), jnp.zeros(n, dtype=jnp.int32)),
        jnp.array(False),
        jnp.array(True),
        jnp.array(1.0),
        jnp.array(0),
        jnp.array(int(Outcome.TOO_MANY)),
    )
    end = jax.lax.while_loop(unfinished, iterate, start)
    outcome = jnp.where(end.norm <= 1.0, int(Outcome.SOLVED), end.outcome)
    return Solved(end.y, end.extra, outcome, end.iterations - 1, end.norm)
