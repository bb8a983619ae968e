"""Intervals of a motion that need not solve its equations: their residuals, and what these leave of the next state.

States and multipliers are unknowns here, so that every interval can be looked at by itself. The linearised residual

    r + J_X dX + J_1 dx₁ + J_z dz + J_θ dθ = S w,        w: the new residuals of the dynamic rows

(where inputs move with the parameters, being late by delays that are free, J_θ has J_u ∂u/∂θ in it)

is solved for the newest state and the multipliers, with the matrix that a step is solved with:

    dx₁ = M [w ; dX ; dθ ; 1],    dz = Z [w ; dX ; dθ ; 1]
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mechid.compile import jit
from mechid.dynamics.linear import factorise, solve
from mechid.dynamics.model import Model
from mechid.dynamics.rollout import Motion
from mechid.dynamics.stepper import Blocks, Outcome, RowKind, Stepper, moved_by, parameter_count
from mechid.dynamics.tree import Array
from mechid.threads import on_all_cores

PIECE = 128
"""intervals that are linearised by one call"""
MOVED = 512
"""states a call of a compiled program"""
FEW = 28
"""unknowns of an interval"""
NEAR = 0.02
"""of a step: what is no longer linear in it is told from differences over this part"""


class InputSlopes(NamedTuple):
    """How the inputs of steps change with the parameters: each by its own delay."""

    by_delay: np.ndarray
    """(steps, nu) ∂u/∂(delay)"""
    delays: np.ndarray
    """(nu, nθ) ∂(delay)/∂θ"""

    def of(self, chosen: Any) -> InputSlopes:
        """Those of some of the steps."""
        return InputSlopes(self.by_delay[chosen], self.delays)


class GivenMotion(NamedTuple):
    """States and multipliers over N steps that need not solve their equations."""

    states: Any
    """N + 1"""
    z: np.ndarray
    u: np.ndarray
    t: np.ndarray
    """(N,) when each step begins, s"""
    moved: InputSlopes | None = None
    """how u changes with the parameters; None where it does not"""

    @property
    def steps(self) -> int:
        return len(self.t)

    def padded(self, length: int) -> Motion:
        """The same as a motion of so many steps, the last of its states repeated."""
        n = self.steps
        i = np.minimum(np.arange(length), n - 1)
        states = jax.tree.map(lambda a: a[np.minimum(np.arange(length + 1), n)], self.states)
        outcome = np.where(np.arange(length) < n, int(Outcome.SOLVED), int(Outcome.NOT_REACHED))
        none = np.zeros(length)
        along = (a[i] for a in (self.z, self.u, self.t))
        parts: Any = (states, *along, np.zeros((length, 0)), i, outcome, none, none)
        return Motion(*parts)

    def pieces(self, window: int) -> Iterator[tuple[tuple[Any, ...], int]]:
        """States around each step, multipliers, inputs, times and numbers, PIECE steps at a time.

        The last piece is filled up by repeating its last step; the count says how many are meant.
        """
        n = self.steps
        for first in range(0, n, PIECE):
            k = np.minimum(np.arange(first, first + PIECE), n - 1)
            # window + 1 states for each step, oldest first; what lies before the start repeats it
            around = np.maximum(k[:, None] + np.arange(1 - window, 2)[None], 0)
            xs = jax.tree.map(lambda a, at=around: a[at], self.states)
            yield (xs, *(a[k] for a in (self.z, self.u, self.t)), k), min(PIECE, n - first)


class Intervals(NamedTuple):
    """N intervals, columns w, X, θ, 1."""

    M: np.ndarray
    """(N, nx, columns)"""
    Z: np.ndarray
    """(N, nz, columns)"""


def dynamic_rows(stepper: Stepper, model: Model) -> np.ndarray:
    """Which rows of the residual may be softened."""
    return np.flatnonzero([kind is RowKind.DYNAMIC for kind in stepper.rows(model)])


def interval_residuals(stepper: Stepper, model: Model, given: GivenMotion) -> np.ndarray:
    """(N, rows) residuals of all intervals."""
    found = on_all_cores(lambda p: _residuals(stepper, model, p[0]), given.pieces(stepper.window))
    return np.concatenate([np.asarray(r)[:count] for (_, count), r in found])


def linear_intervals(stepper: Stepper, model: Model, tangent: Any, given: GivenMotion) -> Intervals:
    """What the linearised residuals leave of each next state."""

    def one(piece: Any) -> Any:
        # few unknowns are quicker in the same program, more are so in LAPACK
        rows = _with_late(piece, given)
        if stepper.unknowns(model) <= FEW:
            return _linear(stepper, model, tangent, rows)
        A, known = _systems(stepper, model, tangent, rows)
        solved = _solved(np.asarray(A), np.asarray(known))
        if type(stepper).completed is Stepper.completed:
            return solved[:, : stepper.nx(model)], solved[:, stepper.nx(model) :]
        return _completed(stepper, model, rows[:5], solved)

    found = on_all_cores(one, given.pieces(stepper.window))
    columns = (
        len(dynamic_rows(stepper, model)) + stepper.window * stepper.nx(model) + parameter_count(tangent)
    )
    M, Z = (np.empty((given.steps, n, columns + 1)) for n in (stepper.nx(model), stepper.nz(model)))
    first = 0
    for (_, count), out in found:
        for whole, part in zip((M, Z), out, strict=True):
            whole[first : first + count] = np.asarray(part)[:count]
        first += count
    return Intervals(M, Z)


def interval_blocks(stepper: Stepper, model: Model, tangent: Any, given: GivenMotion) -> Blocks:
    """(N, …) residuals of all intervals and their partial derivatives, nothing solved for."""
    found = on_all_cores(
        lambda p: _blocks(stepper, model, tangent, _with_late(p, given)), given.pieces(stepper.window)
    )
    parts = [[np.asarray(a)[:count] for a in out] for (_, count), out in found]
    return Blocks(*(np.concatenate(column) for column in zip(*parts, strict=True)))  # type: ignore[arg-type]


def moved(
    stepper: Stepper,
    model: Model,
    new: Model,
    slopes: list[Any],
    states: Any,
    change: np.ndarray,
    u: np.ndarray,
    t: np.ndarray,
) -> Any:
    """States moved along tangent vectors while the model's numbers move along `slopes` to those of a new one.

    A state may be a product of its coordinates, its rates and the model's numbers (p = M v). What such products add
    beyond the linear step is added too, so that rates change by what was meant.
    """
    parts = []
    for first in range(0, len(t), MOVED):
        count = min(MOVED, len(t) - first)
        i = np.minimum(np.arange(first, first + MOVED), len(t) - 1)
        rows = jax.tree.map(lambda a, i=i: a[i], (states, change, u, t))
        parts.append(
            jax.tree.map(lambda a, n=count: np.asarray(a)[:n], _moved(stepper, model, new, slopes, rows))
        )
    return jax.tree.map(lambda *a: np.concatenate(a), *parts)


@jit
def _moved(stepper: Stepper, model: Model, new: Model, slopes: list[Any], rows: Any) -> Any:
    at_numbers, numbers = moved_by(lambda m: m, model, slopes)
    _, final = moved_by(lambda m: m, new, slopes)
    along = [s for s in slopes if s is not None]
    parts = jnp.array([-NEAR, NEAR, 0.0, 1.0])

    def slope(values: Array) -> Array:
        return (values[1] - values[0]) / (2.0 * NEAR)

    def one(now: Any) -> Any:
        x, d, u, t = now
        driven = jnp.zeros(model.driven.shape[0])

        def seen(part: Array) -> tuple[Array, Array]:
            m = at_numbers([n + part * s for n, s in zip(numbers, along, strict=True)])
            y = stepper.retract(x, part * d)
            return stepper.positions(m, y), stepper.velocities(m, y, u, driven)

        qs, vs = jax.vmap(seen)(parts[:3])
        q, v, dq, dv = qs[2], vs[2], slope(qs), slope(vs)

        def state(part: Array, numbers: list[Array]) -> Any:
            return stepper.initial(at_numbers(numbers), q + part * dq, v + part * dv, u, t)

        line = [n + jnp.multiply.outer(parts[:3], s) for n, s in zip(numbers, along, strict=True)]
        path = [jnp.concatenate([p, f[None]]) for p, f in zip(line, final, strict=True)]
        states = jax.vmap(state)(parts, path)
        first = jax.tree.map(lambda a: a[2], states)
        gaps = jax.vmap(lambda y: stepper.local(first, y))(states)
        bend = gaps[3] - slope(gaps)
        return stepper.retract(x, d + jnp.where(jnp.isfinite(bend), bend, 0.0))

    if not stepper.products or not along:
        return jax.vmap(lambda now: stepper.retract(now[0], now[1]))(rows)
    return jax.vmap(one)(rows)


@jit
def _residuals(stepper: Stepper, model: Model, rows: tuple[Any, ...]) -> Array:
    def one(now: tuple[Any, ...]) -> Array:
        xs, z, u, t, k = now
        return stepper.residual(xs, z, u, t, k, model)

    return jax.vmap(one)(rows)


@jit
def _blocks(stepper: Stepper, model: Model, tangent: Any, rows: tuple[Any, ...]) -> Blocks:
    def one(now: tuple[Any, ...]) -> Blocks:
        return _linearized(stepper, model, tangent, now)

    return jax.vmap(one)(rows)


def _assembled(stepper: Stepper, model: Model, tangent: Any, rows: tuple[Any, ...]) -> tuple[Array, Array]:
    """Matrices of steps and their right sides w, X, θ, 1; those by θ through inputs included."""

    def one(now: tuple[Any, ...]) -> tuple[Array, Array]:
        xs, z, u, t, k, du = now
        A, known = stepper.system(xs, z, u, t, k, model, tangent)
        if du is None:
            return A, known

        def late(column: Array) -> Array:
            return jax.jvp(lambda u: stepper.residual(xs, z, u, t, k, model), (u,), (column,))[1]

        by = jax.vmap(late, in_axes=-1, out_axes=-1)(du)[stepper.system_rows(model)]
        return A, known.at[:, -1 - by.shape[-1] : -1].add(-by)

    return jax.vmap(one)(rows)


@jit
def _linear(stepper: Stepper, model: Model, tangent: Any, rows: tuple[Any, ...]) -> tuple[Array, Array]:
    A, known = _assembled(stepper, model, tangent, rows)
    # one by one: batched factors of the library wait for each other's threads
    solved = jax.lax.map(lambda now: solve(factorise(now[0]), now[1]), (A, known))
    xs, k = rows[0], rows[4]
    return jax.vmap(lambda xs, k, y: stepper.completed(xs, k, model, y))(xs, k, solved)


@jit
def _systems(stepper: Stepper, model: Model, tangent: Any, rows: tuple[Any, ...]) -> tuple[Array, Array]:
    return _assembled(stepper, model, tangent, rows)


@jit
def _completed(stepper: Stepper, model: Model, rows: tuple[Any, ...], solved: Array) -> tuple[Array, Array]:
    return jax.vmap(lambda xs, k, y: stepper.completed(xs, k, model, y))(rows[0], rows[4], solved)


def _with_late(piece: Any, given: GivenMotion) -> tuple[Any, ...]:
    """A piece of intervals, with how their inputs move with the parameters, where they do."""
    rows = piece[0]
    if given.moved is None:
        return (*rows, None)
    own = given.moved.of(rows[4])
    return (*rows, own.by_delay[..., None] * own.delays)


def _linearized(stepper: Stepper, model: Model, tangent: Any, now: tuple[Any, ...]) -> Blocks:
    """A residual's derivatives, those by θ through inputs included."""
    xs, z, u, t, k, du = now
    by = stepper.linearize(xs, z, u, t, k, model, tangent)
    return by if du is None else by._replace(theta=by.theta + by.u @ du)


def _solved(A: np.ndarray, known: np.ndarray) -> np.ndarray:
    """A⁻¹ known for many of each, by LAPACK; not numbers where A is singular."""
    try:
        return np.linalg.solve(A, known)
    except np.linalg.LinAlgError:
        pass
    found = np.full(known.shape, np.nan)
    for i, (matrix, right) in enumerate(zip(A, known, strict=True)):
        with contextlib.suppress(np.linalg.LinAlgError):
            found[i] = np.linalg.solve(matrix, right)
    return found
