"""Exact linearisation along a trajectory: transitions A_k, B_k, forward sensitivities dx_k/dθ, and the adjoint.

Forward:   dx_{k+1} = A_k dx_k + B_k dθ (Caldwell, Eqs. 6–8) with dx_0/dθ where the initial state depends on θ
           (momenta, lengths in a loop). Cost grows with the number of parameters.
Adjoint:   for J = Σ ℓ_k(x_k), λ_k = A_kᵀ λ_{k+1} + ∂ℓ_k/∂x_k backward in time and
           dJ/dθ = Σ B_kᵀ λ_{k+1} + (dx_0/dθ)ᵀ λ_0 (Lemma 1). What the steps say of the model's numbers is summed up
           and turned into parameters once, at the end: cost hardly grows with their number.

A_k and B_k themselves are not formed: each step is used in the form in which it is solved (`LinearStep`).
Linearising the steps is nearly all of the work and needs no order, so each core takes pieces of the trajectory;
the recursion then runs over them. A controller u = f(t, q, v) closes the loop: du_k = (∂f/∂x_k) dx_k.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from mechid.compile import jit
from mechid.dynamics.model import Model
from mechid.dynamics.prepare import prepare_tangent
from mechid.dynamics.stepper import (
    LinearStep,
    Stepper,
    Transition,
    along,
    model_tangent,
    moved_by,
    moving,
    parameter_count,
)
from mechid.dynamics.trajectory import Controller, Trajectory, controlled
from mechid.dynamics.tree import Array
from mechid.errors import MechidError
from mechid.model.geometry import finite
from mechid.model.parameters import Parameters

PIECE = 128
"""steps that are linearised by one call"""

Bind = Callable[[Array], Model]
"""θ ↦ model: `Parameters`, or a function in jax.numpy"""


class Sensitivities(NamedTuple):
    """How the motion moves with the parameters, in tangent coordinates of the states."""

    states: np.ndarray
    """(N + 1, nx, nθ)"""
    multipliers: np.ndarray
    """(N, nz, nθ)"""


def transitions(trajectory: Trajectory, bind: Bind | None = None, theta: Array | None = None) -> Transition:
    """A_k, B_u, B_θ of every step, stacked (open loop: inputs held)."""
    _check(trajectory)
    tangent = None if bind is None or theta is None else _tangent(bind, theta)
    parts = []
    for (*rows, _), count in _pieces(trajectory):
        out = _transitions(trajectory.stepper, trajectory.model, tangent, tuple(rows))
        parts.append(jax.tree.map(lambda a, m=count: np.asarray(a)[:m], out))
    return jax.tree.map(lambda *a: np.concatenate(a), *parts)


def sensitivities(trajectory: Trajectory, bind: Bind, theta: ArrayLike) -> Sensitivities:
    """dx_k/dθ and dz_k/dθ along a trajectory that was simulated at bind(θ), through its controller if any.

    The initial coordinates and rates are held; the initial state may still depend on θ (p = M v).
    """
    _check(trajectory)
    stepper, model = trajectory.stepper, trajectory.model
    tangent = _tangent(bind, theta)
    first = _start(stepper, model, tangent, *_given(trajectory))
    carry = jnp.broadcast_to(first, (stepper.window, *first.shape))
    states, multipliers = [np.asarray(first)[None]], []
    for (rows, count), linear in _linearised(stepper, model, tangent, _pieces(trajectory)):
        carry, dx, dz = _forward(stepper, model, tangent, carry, rows, linear, count, trajectory.controller)
        states.append(np.asarray(dx)[:count])
        multipliers.append(np.asarray(dz)[:count])
    return Sensitivities(np.concatenate(states), np.concatenate(multipliers))


def adjoint(
    trajectory: Trajectory,
    bind: Bind,
    theta: ArrayLike,
    by_state: ArrayLike,
    by_multiplier: ArrayLike | None = None,
) -> np.ndarray:
    """dJ/dθ of a cost J(x_0, …, x_N, z_0, …) along a trajectory that was simulated at bind(θ).

    by_state: (N + 1, nx) slopes of J by the states' tangent coordinates; by_multiplier: (N, nz) by the
    multipliers. The initial coordinates and rates are held.
    """
    _check(trajectory)
    stepper, model, steps = trajectory.stepper, trajectory.model, trajectory.steps
    nx, nz = stepper.nx(model), stepper.nz(model)
    slopes = finite(by_state, (steps + 1, nx), "The slopes of the cost by the states")
    given_z = np.zeros((steps, nz)) if by_multiplier is None else by_multiplier
    slopes_z = finite(given_z, (steps, nz), "The slopes of the cost by the multipliers")
    tangent = _tangent(bind, theta)
    moved = tuple(x is not None for x in tangent)
    carry, found = jnp.zeros((stepper.window, nx)), []
    for (rows, count), linear in _linearised(stepper, model, None, _pieces(trajectory, backward=True)):
        arrived = (slopes[rows[4] + 1], slopes_z[rows[4]])
        carry, by_step = _backward(stepper, model, carry, rows, linear, arrived, count, trajectory.controller)
        found.append(by_step)

    def grown(piece: tuple[tuple[tuple[Any, ...], int], Any]) -> list[Array]:
        (rows, count), by_step = piece
        return _grown(stepper, model, moved, rows, by_step, count, trajectory.controller)

    total: Any = None
    solved = zip(_pieces(trajectory, backward=True), found, strict=True)
    for _, more in _on_all_cores(grown, solved):
        total = more if total is None else [a + b for a, b in zip(total, more, strict=True)]
    by_start = jnp.sum(carry, 0) + slopes[0]
    return np.asarray(_gradient(stepper, model, tangent, total, by_start, *_given(trajectory)))


def _linearised(stepper: Stepper, model: Model, tangent: Any, pieces: Iterable[Any]) -> Iterator[Any]:
    """Every piece with its steps linearised, and the parameters' columns where there is a tangent."""
    return _on_all_cores(lambda piece: _linearise(stepper, model, tangent, *piece), pieces)


def _on_all_cores(function: Callable[[Any], Any], pieces: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    """Each piece with the function of it, in turn. Every core works ahead by one piece, so memory is bounded."""
    cores = os.cpu_count() or 1
    waiting: deque[tuple[Any, Future[Any]]] = deque()
    with ThreadPoolExecutor(cores) as pool:
        for piece in pieces:
            waiting.append((piece, pool.submit(lambda p: jax.block_until_ready(function(p)), piece)))
            if len(waiting) > cores:
                done, result = waiting.popleft()
                yield done, result.result()
        for done, result in waiting:
            yield done, result.result()


def _check(trajectory: Trajectory) -> None:
    """Refuse a trajectory without derivatives."""
    if not isinstance(trajectory, Trajectory):
        raise MechidError(f"Derivatives are taken along a Trajectory, not {trajectory!r}.")
    if trajectory.every > 1:
        raise MechidError(
            f"The trajectory keeps only every {trajectory.every}th state; its derivatives need all of them: "
            "simulate with every=1."
        )
    if trajectory.steps == 0:
        raise MechidError("A trajectory without steps has no derivatives: simulate at least one step.")


def _given(trajectory: Trajectory) -> tuple[Any, ...]:
    """The first state and what it was made from."""
    anchor = jax.tree.map(lambda a: a[0], trajectory.states)
    return anchor, trajectory.start, trajectory.start_rates, trajectory.inputs[0], trajectory.t[0]


def _pieces(trajectory: Trajectory, *, backward: bool = False) -> Iterator[tuple[tuple[Any, ...], int]]:
    """States around each step, multipliers, inputs, times, numbers and driven rates, PIECE steps at a time.

    The last piece is filled up by repeating its last step; the count says how many are meant.
    """
    n = trajectory.steps
    window, rates = trajectory.stepper.window, trajectory.driven_rates
    starts = range(0, n, PIECE)
    for first in reversed(starts) if backward else starts:
        k = np.minimum(np.arange(first, first + PIECE), n - 1)
        # window + 1 states for each step, oldest first; what lies before the start repeats it
        around = np.maximum(k[:, None] + np.arange(1 - window, 2)[None], 0)
        xs = jax.tree.map(lambda a, i=around: a[i], trajectory.states)
        rows = (xs, trajectory.multipliers[k], trajectory.inputs[k], trajectory.t[k], k, rates[k])
        yield rows, min(PIECE, n - first)


def _tangent(bind: Bind, theta: ArrayLike) -> list[Any]:
    if isinstance(bind, Parameters):
        values, slopes = (np.asarray(part(theta)) for part in (bind.values, bind.tangent))
        return moving(prepare_tangent(bind.lowering.topology, values, slopes))
    return moving(_model_tangent(bind, jnp.asarray(theta, dtype=float)))


_model_tangent = jit(model_tangent, once=True, static_argnums=(0,))


@partial(jit, once=True)
def _start(
    stepper: Stepper, model: Model, tangent: Any, anchor: Any, q: Array, v: Array, u: Array, t: Array
) -> Array:
    """dx_0/dθ at fixed coordinates and rates."""
    return along(
        lambda m: stepper.local(anchor, stepper.initial(m, q, v, u, t)),
        model,
        tangent,
        jnp.zeros(stepper.nx(model)),
    )


@jit
def _transitions(stepper: Stepper, model: Model, tangent: Any, rows: tuple[Any, ...]) -> Transition:
    def one(now: tuple[Any, ...]) -> Transition:
        xs, z, u, t, k = now
        return stepper.transition(xs, z, u, t, k, model, tangent)

    return jax.lax.map(one, rows)


def _control(
    stepper: Stepper, law: Controller, xs: Any, u: Array, t: Array, path: Array
) -> Callable[..., Array]:
    """The controller's input for a model and a change of the newest past state."""
    newest = jax.tree.map(lambda a: a[-2], xs)

    def control(d: Array, model: Model) -> Array:
        return controlled(law, stepper, model, stepper.retract(newest, d), t, u, path)

    return control


class _Linear(NamedTuple):
    """A step linearised, and what the parameters add to its equations and to the new state."""

    by: LinearStep
    dF: Array
    dG: Array


@jit
def _linearise(stepper: Stepper, model: Model, tangent: Any, rows: tuple[Any, ...], count: Array) -> _Linear:
    def one(now: tuple[Any, ...]) -> _Linear:
        xs, z, u, t, k, _ = now

        def sides(m: Model) -> tuple[Array, Array]:
            return stepper.sides(xs, z, u, t, k, m)

        by = stepper.linear_step(xs, z, u, t, k, model)
        return _Linear(by, *along(sides, model, tangent, jax.eval_shape(sides, model)))

    return _collected(one, rows, count)


def _collected(function: Callable[[Any], Any], rows: Any, count: Array) -> Any:
    """The function of the first `count` rows, stacked; zeros beyond."""
    steps = jax.tree.leaves(rows)[0].shape[0]
    shapes = jax.eval_shape(function, jax.tree.map(lambda a: a[0], rows))
    empty = jax.tree.map(lambda s: jnp.zeros((steps, *s.shape), s.dtype), shapes)

    def one(i: Array, kept: Any) -> Any:
        return _put(kept, function(jax.tree.map(lambda a: a[i], rows)), i)

    return jax.lax.fori_loop(0, count, one, empty)


def _put(kept: Any, new: Any, i: Array) -> Any:
    return jax.tree.map(lambda a, b: jax.lax.dynamic_update_index_in_dim(a, b, i, 0), kept, new)


def _forward_piece(
    stepper: Stepper,
    model: Model,
    tangent: list[Any],
    carry: Array,
    rows: tuple[Any, ...],
    linear: _Linear,
    count: Array,
    controller: Controller | None,
) -> tuple[Array, Array, Array]:
    """Sensitivities of the window after `count` steps, and of every state and multiplier reached on the way."""
    nx, nz, number = stepper.nx(model), stepper.nz(model), parameter_count(tangent)

    def one(i: Array, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        past, kept_x, kept_z = state
        (xs, _, u, t, _, path), (by, dF, dG) = jax.tree.map(lambda a: a[i], (rows, linear))
        du = jnp.zeros((u.shape[0], number))
        if controller is not None:
            control, still = _control(stepper, controller, xs, u, t, path), jnp.zeros(nx)

            def input_change(d: Array) -> Array:
                return jax.jvp(lambda x: control(x, model), (still,), (d,))[1]

            du = jax.vmap(input_change, in_axes=-1, out_axes=-1)(past[-1])
            du += along(lambda m: control(still, m), model, tangent, u)
        dx, dz = by.forward(past.reshape(-1, number), du, dF, dG)
        past = jnp.concatenate([past[1:], dx[None]])
        return past, _put(kept_x, dx, i), _put(kept_z, dz, i)

    steps = rows[1].shape[0]
    start = (carry, jnp.zeros((steps, nx, number)), jnp.zeros((steps, nz, number)))
    return jax.lax.fori_loop(0, count, one, start)


class _BySlopes(NamedTuple):
    """The cost's slopes by a step's equations, new state and inputs."""

    F: Array
    G: Array
    u: Array


def _backward_piece(
    stepper: Stepper,
    model: Model,
    carry: Array,
    rows: tuple[Any, ...],
    linear: _Linear,
    arrived: tuple[Array, Array],
    count: Array,
    controller: Controller | None,
) -> tuple[Array, _BySlopes]:
    """The cost's slopes by the window before `count` steps, and by what each of them solved."""
    nx = stepper.nx(model)

    def one(i: Array, state: tuple[Array, _BySlopes]) -> tuple[Array, _BySlopes]:
        later, kept = state
        at = count - 1 - i
        (xs, _, u, t, _, path), by, (by_x, by_z) = jax.tree.map(lambda a: a[at], (rows, linear.by, arrived))
        # the newest state's slope is complete: every later step has added its share
        newest = later[-1] + by_x
        by_past, by_input, by_F = by.backward(newest, by_z)
        past = by_past.reshape(-1, nx)
        if controller is not None:
            control, still = _control(stepper, controller, xs, u, t, path), jnp.zeros(nx)
            fed_back = jax.vjp(lambda d: control(d, model), still)[1](by_input)[0]
            past = jnp.concatenate([past[:-1], past[-1:] + fed_back])
        shifted = jnp.concatenate([jnp.zeros((1, nx)), later[:-1]]) + past
        return shifted, _put(kept, _BySlopes(by_F, newest, by_input), at)

    shapes = (linear.dF.shape[:2], (PIECE, nx), rows[2].shape)
    kept = _BySlopes(*(jnp.zeros(shape) for shape in shapes))
    return jax.lax.fori_loop(0, count, one, (carry, kept))


def _grown_piece(
    stepper: Stepper,
    model: Model,
    moved: tuple[bool, ...],
    rows: tuple[Any, ...],
    by_step: _BySlopes,
    count: Array,
    controller: Controller | None,
) -> list[Array]:
    """The cost's slopes by the moved numbers of the model, summed over `count` steps."""
    marks = [True if m else None for m in moved]

    def one(i: Array, total: list[Array]) -> list[Array]:
        (xs, z, u, t, k, path), by = jax.tree.map(lambda a: a[i], (rows, by_step))

        def sides(m: Model) -> tuple[Array, Array, Array]:
            fed_back = jnp.zeros(u.shape)
            if controller is not None:
                control = _control(stepper, controller, xs, u, t, path)
                fed_back = control(jnp.zeros(stepper.nx(model)), m)
            return *stepper.sides(xs, z, u, t, k, m), fed_back

        of_moved, numbers = moved_by(sides, model, marks)
        (grown,) = jax.vjp(of_moved, numbers)[1](tuple(by))
        return [a + b for a, b in zip(total, grown, strict=True)]

    _, numbers = moved_by(lambda m: m, model, marks)
    return jax.lax.fori_loop(0, count, one, [jnp.zeros(x.shape) for x in numbers])


@partial(jit, once=True)
def _gradient(
    stepper: Stepper,
    model: Model,
    tangent: list[Any],
    bars: list[Array],
    by_start: Array,
    anchor: Any,
    q: Array,
    v: Array,
    u: Array,
    t: Array,
) -> Array:
    """From slopes by the model's numbers and by the first state to parameters."""
    of_moved, numbers = moved_by(
        lambda m: stepper.local(anchor, stepper.initial(m, q, v, u, t)), model, tangent
    )
    first = jax.vjp(of_moved, numbers)[1](by_start)[0]
    slopes = [x for x in tangent if x is not None]
    parts = [jnp.tensordot(a + b, x, a.ndim) for a, b, x in zip(bars, first, slopes, strict=True)]
    return sum(parts, jnp.zeros(parameter_count(tangent)))


_forward = jit(_forward_piece, static_argnums=(7,))
_backward = jit(_backward_piece, static_argnums=(7,))
_grown = jit(_grown_piece, static_argnums=(2, 6))
