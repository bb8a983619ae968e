"""Newton's method for one step: few factorisations, a controlled step, an honest end.

The Jacobian is taken at the start, sharing the work of the residual there, and again when a step gained less
than a factor of twenty. A step that does not reduce the residual is halved (with a fresh Jacobian) or tried again
with a new one. The factors of the time step before are tried first, unless they were of no use the last time: most
time steps then need no Jacobian at all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from mechid.compile import accelerated
from mechid.dynamics.linear import Factors, factorise, solve
from mechid.dynamics.stepper import Outcome
from mechid.dynamics.tree import Array

SLOW = 0.05
"""a step that leaves more of the residual wants a new Jacobian"""


class Kept(NamedTuple):
    """Factors that the next time step may try."""

    factors: Factors
    usable: Array


class Evaluated(NamedTuple):
    """The equations at a point."""

    r: Array
    tolerance: Array
    """of each row"""
    extra: Any
    """what else is wanted at the solution"""
    jacobian: Callable[[], Array]
    """∂r/∂y here, computed when it is asked for"""


class Solved(NamedTuple):
    y: Array
    extra: Any
    outcome: Array
    iterations: Array
    residual: Array
    """largest residual as a multiple of its tolerance"""
    kept: Kept


class _Iterate(NamedTuple):
    y: Array
    """the point to evaluate next"""
    base: Array
    """the best point so far, its norm and extra"""
    norm: Array
    extra: Any
    direction: Array
    length: Array
    factors: Factors
    fresh: Array
    """the factors belong to the base"""
    wanted: Array
    """new factors are wanted at y, which is the base or the start"""
    passes: Array
    outcome: Array
    renewed: Array
    """the factors of the time step before were of no use"""


def nothing_kept(n: int, factorised: Callable[[Array], Factors] = factorise) -> Kept:
    """Before the first time step."""
    return Kept(_zeros_like(factorised, jnp.zeros((n, n))), jnp.array(False))


PASSES = 8
"""residuals at most that are evaluated with one Jacobian, where many lanes are solved together"""
ROUNDS = 2
"""Jacobians at most, there: the second only if a lane needs it"""


def newton_together(
    evaluate: Callable[[Array], Evaluated], y: Array, factorised: Callable[[Array], Factors]
) -> Solved:
    """The same for one of many lanes that advance together on an accelerator: of fixed form, without conditions.

    One Jacobian and its factors where the step is predicted, then residuals alone until the lane is solved. `vmap`
    makes of the loops ones that run until every lane is.
    """

    def unsolved(state: tuple[Array, ...]) -> Array:
        _, norm, passes, _ = state
        return (norm > 1.0) & jnp.isfinite(norm) & (passes < PASSES)

    def norm_of(now: Evaluated) -> Array:
        return jnp.max(jnp.abs(now.r) / now.tolerance)

    def round_(state: tuple[Any, ...]) -> tuple[Any, ...]:
        y, _, passes, rounds, _ = state
        now = evaluate(y)
        factors = factorised(now.jacobian())

        def correct(inner: tuple[Array, ...]) -> tuple[Array, ...]:
            y, _, i, r = inner
            y = y - solve(factors, r)
            now = evaluate(y)
            return y, norm_of(now), i + 1, now.r

        y, norm, i, _ = jax.lax.while_loop(unsolved, correct, (y, norm_of(now), jnp.asarray(0), now.r))
        return y, norm, passes + i, rounds + 1, factors

    def going(state: tuple[Any, ...]) -> Array:
        _, norm, _, rounds, _ = state
        return (rounds < ROUNDS) & ((norm > 1.0) | (rounds == 0)) & ~jnp.isnan(norm)

    none = nothing_kept(y.shape[0], factorised)
    start = (y, jnp.array(jnp.inf), jnp.asarray(0), jnp.asarray(0), none.factors)
    y, norm, passes, _, factors = jax.lax.while_loop(going, round_, start)
    failed = jnp.where(jnp.isfinite(norm), int(Outcome.TOO_MANY), int(Outcome.SINGULAR))
    outcome = jnp.where(norm <= 1.0, int(Outcome.SOLVED), failed)
    return Solved(y, evaluate(y).extra, outcome, passes, norm, none._replace(factors=factors))


def newton(
    evaluate: Callable[[Array], Evaluated],
    y: Array,
    *,
    kept: Kept | None = None,
    factorised: Callable[[Array], Factors] = factorise,
    max_iterations: int = 40,
) -> Solved:
    """Solve r(y) = 0."""
    if accelerated():
        return newton_together(evaluate, y, factorised)

    def unfinished(i: _Iterate) -> Array:
        return (i.outcome == Outcome.TOO_MANY) & (i.passes <= max_iterations)

    def iterate(i: _Iterate) -> _Iterate:
        now = evaluate(i.y)
        factors = jax.lax.cond(i.wanted, lambda: factorised(now.jacobian()), lambda: i.factors)
        correction = solve(factors, now.r)
        norm = jnp.max(jnp.abs(now.r) / now.tolerance)
        better = i.wanted | (norm < (1.0 - 1e-4 * i.length) * i.norm)
        slow = ~i.wanted & (norm > SLOW * i.norm)
        base, direction = _choose(better, (i.y, -correction), (i.base, i.direction))
        # nothing more to gain: the correction is below the rounding of y
        rounding = jnp.max(jnp.abs(correction)) < 1e-13 * (1.0 + jnp.max(jnp.abs(base)))
        stalled = ~better & i.fresh & (i.length < 1e-4)
        outcome = jnp.where(stalled, Outcome.STALLED, Outcome.TOO_MANY)
        outcome = jnp.where(i.wanted & rounding & (norm < 1e4), Outcome.SOLVED, outcome)
        outcome = jnp.where(i.wanted & ~jnp.isfinite(jnp.sum(correction)), Outcome.SINGULAR, outcome)
        outcome = jnp.where(norm <= 1.0, Outcome.SOLVED, outcome)
        # a slow step or a failed one with old factors: new ones at the base; else onward, or half as far
        renew = jnp.where(better, slow, ~i.fresh)
        length = jnp.where(better | renew, 1.0, 0.5 * i.length)
        return _Iterate(
            base + jnp.where(renew, 0.0, length) * direction,
            base,
            jnp.where(better, norm, i.norm),
            _choose(better, now.extra, i.extra),
            direction,
            length,
            factors,
            i.wanted | (i.fresh & ~better),
            renew,
            i.passes + 1,
            outcome,
            i.renewed | renew,
        )

    n = y.shape[0]
    kept = nothing_kept(n, factorised) if kept is None else kept
    start = _Iterate(
        y=y,
        base=y,
        norm=jnp.array(jnp.inf),
        extra=_zeros_like(lambda y: evaluate(y).extra, y),
        direction=jnp.zeros(n),
        length=jnp.array(1.0),
        factors=kept.factors,
        fresh=jnp.array(False),
        wanted=~kept.usable,
        passes=jnp.array(0),
        outcome=jnp.array(int(Outcome.TOO_MANY)),
        renewed=jnp.array(False),
    )
    end = jax.lax.while_loop(unfinished, iterate, start)
    new = Kept(end.factors, ~(kept.usable & end.renewed))
    return Solved(end.base, end.extra, end.outcome, end.passes - 1, end.norm, new)


def _zeros_like(function: Callable[[Array], Any], *like: Array) -> Any:
    return jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), jax.eval_shape(function, *like))


def _choose(condition: Array, one: Any, other: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), one, other)
