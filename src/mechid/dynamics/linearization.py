"""Exact linearisation along a trajectory: transitions A_k, B_k and forward sensitivities dx_k/dθ.

dx_{k+1} = A_k dx_k + B_k dθ (Caldwell, Eqs. 6–8) with dx_0/dθ where the initial state depends on θ (momenta,
lengths in a loop). A controller u = f(t, q, v) closes the loop: du_k = (∂f/∂x_k) dx_k.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mechid.compile import jit
from mechid.dynamics.model import Model
from mechid.dynamics.stepper import Stepper, Transition, along, model_tangent
from mechid.dynamics.trajectory import PIECE, Controller, Trajectory
from mechid.dynamics.tree import Array
from mechid.errors import MechidError

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
    tangent = None if bind is None else _tangent(bind, jnp.asarray(theta))
    parts = []
    for (*rows, _), count in _pieces(trajectory):
        out = _transitions(trajectory.stepper, trajectory.model, tangent, tuple(rows))
        parts.append(jax.tree.map(lambda a, m=count: np.asarray(a)[:m], out))
    return jax.tree.map(lambda *a: np.concatenate(a), *parts)


def sensitivities(trajectory: Trajectory, bind: Bind, theta: Array) -> Sensitivities:
    """dx_k/dθ and dz_k/dθ along a trajectory that was simulated at bind(θ), through its controller if any.

    The initial coordinates and rates are held; the initial state may still depend on θ (p = M v).
    """
    stepper, model = trajectory.stepper, trajectory.model
    tangent = _tangent(bind, jnp.asarray(theta))
    states, multipliers, carry = [], [], None
    for rows, count in _pieces(trajectory):
        if carry is None:
            anchor = jax.tree.map(lambda a: a[0], trajectory.states)
            given = (trajectory.start, trajectory.start_rates, trajectory.inputs[0], trajectory.t[0])
            first = _start(stepper, model, tangent, anchor, *given)
            carry = jnp.broadcast_to(first, (stepper.window, *first.shape))
            states.append(np.asarray(first)[None])
        carry, (dx, dz) = _sensitivities(stepper, model, tangent, carry, rows, trajectory.controller)
        states.append(np.asarray(dx)[:count])
        multipliers.append(np.asarray(dz)[:count])
    return Sensitivities(np.concatenate(states), np.concatenate(multipliers))


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


_tangent = jit(model_tangent, static_argnums=(0,))


@jit
def _start(
    stepper: Stepper, model: Model, tangent: Any, anchor: Any, q: Array, v: Array, u: Array, t: Array
) -> Array:
    """dx_0/dθ at fixed coordinates and rates."""

    def start(m: Model) -> Array:
        return stepper.local(anchor, stepper.initial(m, q, v, u, t))

    return along(start, model, tangent, jnp.zeros(stepper.nx(model)))


@jit
def _transitions(stepper: Stepper, model: Model, tangent: Any, rows: tuple[Any, ...]) -> Transition:
    def one(now: tuple[Any, ...]) -> Transition:
        xs, z, u, t, k = now
        return stepper.transition(xs, z, u, t, k, model, tangent)

    return jax.lax.map(one, rows)


def _sensitivities_piece(
    stepper: Stepper,
    model: Model,
    tangent: Any,
    carry: Array,
    rows: tuple[Any, ...],
    controller: Controller | None,
) -> tuple[Array, tuple[Array, Array]]:
    def one(past: Array, now: tuple[Any, ...]) -> tuple[Array, tuple[Array, Array]]:
        xs, z, u, t, k, path = now
        by = stepper.transition(xs, z, u, t, k, model, tangent)
        du = jnp.zeros((u.shape[0], past.shape[-1]))
        if controller is not None:
            newest, law = jax.tree.map(lambda a: a[-2], xs), controller

            def control(d: Array, model: Model) -> Array:
                x = stepper.retract(newest, d)
                q = stepper.positions(model, x)
                rates = stepper.velocities(model, x, u, path)
                return jnp.asarray(law(t, q, rates), float)

            still = jnp.zeros(stepper.nx(model))
            du = jax.jacfwd(control)(still, model) @ past[-1]
            du += along(lambda m: control(still, m), model, tangent, u)
        dx = jnp.einsum("wij,wjp->ip", by.A, past) + by.B_u @ du + by.B_theta
        dz = jnp.einsum("wij,wjp->ip", by.z_x, past) + by.z_u @ du + by.z_theta
        return jnp.concatenate([past[1:], dx[None]]), (dx, dz)

    return jax.lax.scan(one, carry, rows)


_sensitivities = jit(_sensitivities_piece, static_argnums=(5,))
