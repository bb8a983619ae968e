"""Exact linearisation along a trajectory: transitions A_k, B_k and forward sensitivities dx_k/dθ.

dx_{k+1} = A_k dx_k + B_k dθ (Caldwell, Eqs. 6–8) with dx_0/dθ where the initial state depends on θ (momenta,
lengths in a loop). A controller u = f(t, q, v) closes the loop: du_k = (∂f/∂x_k) dx_k.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mechid.compile import jit
from mechid.dynamics.model import Model
from mechid.dynamics.stepper import Stepper, Transition, along, model_tangent
from mechid.dynamics.trajectory import PIECE, Controller, Trajectory
from mechid.dynamics.tree import Array

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
    windows = _windows(trajectory)
    n = trajectory.steps
    parts = []
    for first in range(0, n, PIECE):
        pick = np.minimum(np.arange(first, first + PIECE), n - 1)
        out = _transitions(
            trajectory.stepper,
            trajectory.model,
            jax.tree.map(lambda a, i=pick: a[i], windows),
            trajectory.multipliers[pick],
            trajectory.inputs[pick],
            trajectory.t[pick],
            pick,
            tangent,
        )
        count = min(PIECE, n - first)
        parts.append(jax.tree.map(lambda a, m=count: np.asarray(a)[:m], out))
    return jax.tree.map(lambda *a: np.concatenate(a), *parts)


def sensitivities(trajectory: Trajectory, bind: Bind, theta: Array) -> Sensitivities:
    """dx_k/dθ and dz_k/dθ along a trajectory that was simulated at bind(θ), through its controller if any.

    The initial coordinates and rates are held; the initial state may still depend on θ (p = M v).
    """
    theta = jnp.asarray(theta)
    q0, v0 = trajectory.start, trajectory.start_rates
    tangent = _tangent(bind, theta)
    stepper, window = trajectory.stepper, trajectory.stepper.window
    anchor = jax.tree.map(lambda a: a[0], trajectory.states)
    first = _start(trajectory.model, tangent, stepper, anchor, q0, v0, trajectory.inputs[0], trajectory.t[0])
    carry = jnp.broadcast_to(first, (window, *first.shape))
    windows, steps = _windows(trajectory), trajectory.steps
    states, multipliers = [np.asarray(first)[None]], []
    for begin in range(0, steps, PIECE):
        pick = np.minimum(np.arange(begin, begin + PIECE), steps - 1)
        carry, (dx, dz) = _sensitivities(
            stepper,
            trajectory.model,
            jax.tree.map(lambda a, i=pick: a[i], windows),
            trajectory.multipliers[pick],
            trajectory.inputs[pick],
            trajectory.t[pick],
            pick,
            tangent,
            carry,
            trajectory.driven_rates[pick],
            trajectory.controller,
        )
        count = min(PIECE, steps - begin)
        states.append(np.asarray(dx)[:count])
        multipliers.append(np.asarray(dz)[:count])
    return Sensitivities(np.concatenate(states), np.concatenate(multipliers))


def _windows(trajectory: Trajectory) -> Any:
    """window + 1 states for each step, oldest first; what lies before the start repeats it."""
    window = trajectory.stepper.window
    at = np.arange(trajectory.steps)[:, None] + np.arange(1 - window, 2)[None]
    return jax.tree.map(lambda a: a[np.maximum(at, 0)], trajectory.states)


_tangent = jit(model_tangent, static_argnums=(0,))


@jit
def _start(
    model: Model, tangent: Any, stepper: Stepper, anchor: Any, q: Array, v: Array, u: Array, t: Array
) -> Array:
    """dx_0/dθ at fixed coordinates and rates."""

    def start(m: Model) -> Array:
        return stepper.local(anchor, stepper.initial(m, q, v, u, t))

    return along(start, model, tangent, jnp.zeros(stepper.nx(model)))


@jit
def _transitions(
    stepper: Stepper, model: Model, xs: Any, z: Array, u: Array, t: Array, k: Array, tangent: Any
) -> Transition:
    def one(xs: Any, z: Array, u: Array, t: Array, k: Array) -> Transition:
        return stepper.transition(xs, z, u, t, k, model, tangent)

    return jax.lax.map(lambda a: one(*a), (xs, z, u, t, k))


def _sensitivities_piece(
    stepper: Stepper,
    model: Model,
    xs: Any,
    z: Array,
    u: Array,
    t: Array,
    k: Array,
    tangent: Any,
    carry: Array,
    driven: Array,
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

    return jax.lax.scan(one, carry, (xs, z, u, t, k, driven))


_sensitivities = jit(_sensitivities_piece, static_argnums=(10,))
