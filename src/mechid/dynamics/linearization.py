"""Exact linearisation along a trajectory: transitions A_k, B_k, forward sensitivities dx_k/dθ, and the adjoint.

Forward:   dx_{k+1} = A_k dx_k + B_k dθ (Caldwell, Eqs. 6–8) with dx_0/dθ where the initial state depends on θ
           (momenta, lengths in a loop). Cost grows with the number of parameters.
Adjoint:   for J = Σ ℓ_k(x_k), λ_k = A_kᵀ λ_{k+1} + ∂ℓ_k/∂x_k backward in time and
           dJ/dθ = Σ B_kᵀ λ_{k+1} + (dx_0/dθ)ᵀ λ_0 (Lemma 1). What the steps say of the model's numbers is summed up
           and turned into parameters once, at the end: cost hardly grows with their number.

A_k and B_k themselves are not formed: each step is used in the form in which it is solved (`LinearStep`). A
controller u = f(t, q, v) closes the loop: du_k = (∂f/∂x_k) dx_k.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from mechid.compile import jit
from mechid.dynamics.model import Model
from mechid.dynamics.stepper import (
    Stepper,
    Transition,
    along,
    model_tangent,
    moved_by,
    moving,
    parameter_count,
)
from mechid.dynamics.trajectory import PIECE, Controller, Trajectory
from mechid.dynamics.tree import Array
from mechid.errors import MechidError
from mechid.model.geometry import finite

Bind = Callable[[Array], Model]
"""θ ↦ model"""


class Sensitivities(NamedTuple):
    """How the motion moves with the parameters, in tangent coordinates of the states."""

    states: np.ndarray
    """(N + 1, nx, nθ)"""
    multipliers: np.ndarray
    """(N, nz, nθ)"""


def transitions(trajectory: Trajectory, bind: Bind | None = None, theta: Array | None = None) -> Transition:
    """A_k, B_u, B_θ of every step, stacked (open loop: inputs held)."""
    tangent = None if bind is None else _tangent(bind, theta)
    parts = []
    for (*rows, _), count in _pieces(trajectory):
        out = _transitions(trajectory.stepper, trajectory.model, tangent, tuple(rows))
        parts.append(jax.tree.map(lambda a, m=count: np.asarray(a)[:m], out))
    return jax.tree.map(lambda *a: np.concatenate(a), *parts)


def sensitivities(trajectory: Trajectory, bind: Bind, theta: ArrayLike) -> Sensitivities:
    """dx_k/dθ and dz_k/dθ along a trajectory that was simulated at bind(θ), through its controller if any.

    The initial coordinates and rates are held; the initial state may still depend on θ (p = M v).
    """
    stepper, model = trajectory.stepper, trajectory.model
    tangent = _tangent(bind, theta)
    first = _start(stepper, model, tangent, *_given(trajectory))
    carry = jnp.broadcast_to(first, (stepper.window, *first.shape))
    states, multipliers = [np.asarray(first)[None]], []
    for rows, count in _pieces(trajectory):
        carry, dx, dz = _forward(stepper, model, tangent, carry, rows, count, trajectory.controller)
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
    stepper, model, steps = trajectory.stepper, trajectory.model, trajectory.steps
    nx, nz = stepper.nx(model), stepper.nz(model)
    slopes = finite(by_state, (steps + 1, nx), "The slopes of the cost by the states")
    given_z = np.zeros((steps, nz)) if by_multiplier is None else by_multiplier
    slopes_z = finite(given_z, (steps, nz), "The slopes of the cost by the multipliers")
    tangent = _tangent(bind, theta)
    moved = tuple(x is not None for x in tangent)
    carry, total = jnp.zeros((stepper.window, nx)), None
    for rows, count in reversed(list(_pieces(trajectory))):
        k = rows[4]
        arrived = (slopes[k + 1], slopes_z[k])
        carry, bars = _backward(stepper, model, moved, carry, rows, arrived, count, trajectory.controller)
        total = bars if total is None else [a + b for a, b in zip(total, bars, strict=True)]
    by_start = jnp.sum(carry, 0) + slopes[0]
    return np.asarray(_gradient(stepper, model, tangent, total, by_start, *_given(trajectory)))


def _given(trajectory: Trajectory) -> tuple[Any, ...]:
    """The first state and what it was made from."""
    anchor = jax.tree.map(lambda a: a[0], trajectory.states)
    return anchor, trajectory.start, trajectory.start_rates, trajectory.inputs[0], trajectory.t[0]


def _pieces(trajectory: Trajectory) -> Iterator[tuple[tuple[Any, ...], int]]:
    """States around each step, multipliers, inputs, times, numbers and driven rates, PIECE steps at a time.

    The last piece is filled up by repeating its last step; the count says how many are meant.
    """
    n = trajectory.steps
    if n == 0:
        raise MechidError("A trajectory without steps has no derivatives: simulate at least one step.")
    windows, rates = _windows(trajectory), trajectory.driven_rates
    for first in range(0, n, PIECE):
        k = np.minimum(np.arange(first, first + PIECE), n - 1)
        xs = jax.tree.map(lambda a, i=k: a[i], windows)
        rows = (xs, trajectory.multipliers[k], trajectory.inputs[k], trajectory.t[k], k, rates[k])
        yield rows, min(PIECE, n - first)


def _windows(trajectory: Trajectory) -> Any:
    """window + 1 states for each step, oldest first; what lies before the start repeats it."""
    window = trajectory.stepper.window
    at = np.arange(trajectory.steps)[:, None] + np.arange(1 - window, 2)[None]
    return jax.tree.map(lambda a: a[np.maximum(at, 0)], trajectory.states)


def _tangent(bind: Bind, theta: ArrayLike | None) -> list[Any]:
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
        x = stepper.retract(newest, d)
        rates = stepper.velocities(model, x, u, path)
        return jnp.asarray(law(t, stepper.positions(model, x), rates), float)

    return control


def _forward_piece(
    stepper: Stepper,
    model: Model,
    tangent: list[Any],
    carry: Array,
    rows: tuple[Any, ...],
    count: Array,
    controller: Controller | None,
) -> tuple[Array, Array, Array]:
    """Sensitivities of the window after `count` steps, and of every state and multiplier reached on the way."""
    nx, nz, number = stepper.nx(model), stepper.nz(model), parameter_count(tangent)

    def one(i: Array, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        past, kept_x, kept_z = state
        xs, z, u, t, k, path = jax.tree.map(lambda a: a[i], rows)
        by = stepper.linear_step(xs, z, u, t, k, model)
        sides = (jnp.zeros(by.F_u.shape[0]), jnp.zeros(nx))
        dF, dG = along(lambda m: stepper.sides(xs, z, u, t, k, m), model, tangent, sides)
        du = jnp.zeros((u.shape[0], number))
        if controller is not None:
            control, still = _control(stepper, controller, xs, u, t, path), jnp.zeros(nx)

            def input_change(d: Array) -> Array:
                return jax.jvp(lambda x: control(x, model), (still,), (d,))[1]

            du = jax.vmap(input_change, in_axes=-1, out_axes=-1)(past[-1])
            du += along(lambda m: control(still, m), model, tangent, u)
        dx, dy = by.forward(past.reshape(-1, number), du, dF, dG)
        past = jnp.concatenate([past[1:], dx[None]])
        put = jax.lax.dynamic_update_index_in_dim
        return past, put(kept_x, dx, i, 0), put(kept_z, dy[dy.shape[0] - nz :], i, 0)

    steps = rows[1].shape[0]
    start = (carry, jnp.zeros((steps, nx, number)), jnp.zeros((steps, nz, number)))
    return jax.lax.fori_loop(0, count, one, start)


def _backward_piece(
    stepper: Stepper,
    model: Model,
    moved: tuple[bool, ...],
    carry: Array,
    rows: tuple[Any, ...],
    arrived: tuple[Array, Array],
    count: Array,
    controller: Controller | None,
) -> tuple[Array, list[Array]]:
    """The cost's slopes by the window before `count` steps, and by the moved numbers of the model over them."""
    nx, nz = stepper.nx(model), stepper.nz(model)
    marks = [True if m else None for m in moved]

    def one(i: Array, state: tuple[Array, list[Array]]) -> tuple[Array, list[Array]]:
        later, bars = state
        at = count - 1 - i
        (xs, z, u, t, k, path), (by_x, by_z) = jax.tree.map(lambda a: a[at], (rows, arrived))
        by = stepper.linear_step(xs, z, u, t, k, model)
        # the newest state's slope is complete: every later step has added its share
        newest = later[-1] + by_x
        by_y = jnp.concatenate([jnp.zeros(by.F_u.shape[0] - nz), by_z])
        by_past, by_input, by_F = by.backward(newest, by_y)
        of_moved, numbers = moved_by(lambda m: stepper.sides(xs, z, u, t, k, m), model, marks)
        (grown,) = jax.vjp(of_moved, numbers)[1]((by_F, newest))
        past = by_past.reshape(-1, nx)
        if controller is not None:
            control, still = _control(stepper, controller, xs, u, t, path), jnp.zeros(nx)
            past = past.at[-1].add(jax.vjp(lambda d: control(d, model), still)[1](by_input)[0])
            of_moved, numbers = moved_by(lambda m: control(still, m), model, marks)
            more = jax.vjp(of_moved, numbers)[1](by_input)[0]
            grown = [a + b for a, b in zip(grown, more, strict=True)]
        shifted = jnp.concatenate([jnp.zeros((1, nx)), later[:-1]]) + past
        return shifted, [a + b for a, b in zip(bars, grown, strict=True)]

    _, numbers = moved_by(lambda m: m, model, marks)
    return jax.lax.fori_loop(0, count, one, (carry, [jnp.zeros_like(x) for x in numbers]))


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


_forward = jit(_forward_piece, static_argnums=(6,))
_backward = jit(_backward_piece, static_argnums=(2, 7))
