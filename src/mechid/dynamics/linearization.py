"""Derivatives along a simulated trajectory: transitions A_k and B_k, sensitivities dx_k/dθ, and the adjoint.

Forward:   dx_{k+1} = A_k dx_k + B_k dθ (Caldwell, Eqs. 6–8) with dx_0/dθ where the initial state depends on θ
           (momenta, lengths in a loop). The cost grows with the number of parameters.
Adjoint:   for J = Σ ℓ_k(x_k), λ_k = A_kᵀ λ_{k+1} + ∂ℓ_k/∂x_k backward in time and
           dJ/dθ = Σ B_kᵀ λ_{k+1} + (dx_0/dθ)ᵀ λ_0 (Lemma 1). The cost hardly grows with the number of parameters.

Both are derivatives of `differentiable_motion`, chunk by chunk (`mechid.dynamics.driver`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from mechid.compile import jit, register
from mechid.dynamics.driver import (
    Change,
    Directions,
    chunks_of,
    cotangents,
    first_change,
    padded,
    tangents,
)
from mechid.dynamics.intervals import GivenMotion
from mechid.dynamics.model import Model, float_leaves
from mechid.dynamics.rollout import Motion
from mechid.dynamics.stepper import Stepper, Transition, along, model_tangent, moving, parameter_count
from mechid.dynamics.trajectory import Trajectory
from mechid.dynamics.tree import Array
from mechid.errors import MechidError
from mechid.model.geometry import finite
from mechid.model.parameters import Parameters

Bind = Callable[[Array], Model]
"""θ ↦ model: `Parameters`, or a function in jax.numpy"""


class Sensitivities(NamedTuple):
    """Derivatives of a motion by the parameters, in tangent coordinates of the states."""

    states: np.ndarray
    """(N + 1, nx, nθ)"""
    multipliers: np.ndarray
    """(N, nz, nθ)"""


def transitions(trajectory: Trajectory, bind: Bind | None = None, theta: Array | None = None) -> Transition:
    """A_k, B_u, B_θ of every step, stacked (open loop: inputs held)."""
    _check(trajectory)
    tangent = None if bind is None or theta is None else tangent_of(bind, theta)
    return transition_matrices(trajectory.stepper, trajectory.model, given(trajectory), tangent)


def transition_matrices(
    stepper: Stepper, model: Model, motion: GivenMotion, tangent: Any = None
) -> Transition:
    """The same along a given motion."""
    parts = []
    for rows, count in motion.pieces(stepper.window):
        out = _transitions(stepper, model, tangent, rows)
        parts.append(jax.tree.map(lambda a, m=count: np.asarray(a)[:m], out))
    return jax.tree.map(lambda *a: np.concatenate(a), *parts)


def given(trajectory: Trajectory) -> GivenMotion:
    """The states, multipliers and inputs of a trajectory."""
    return GivenMotion(
        trajectory.states, trajectory.multipliers, trajectory.inputs, trajectory.t[: trajectory.steps]
    )


def sensitivities(trajectory: Trajectory, bind: Bind, theta: ArrayLike) -> Sensitivities:
    """dx_k/dθ and dz_k/dθ along a trajectory that was simulated at bind(θ), through its controller if any.

    The initial coordinates and rates are held; the initial state may still depend on θ (p = M v).
    """
    _check(trajectory)
    tangent = tangent_of(bind, theta)
    columns = np.asarray(_start(trajectory.stepper, trajectory.model, tangent, *_given(trajectory)))
    carry = first_change(trajectory.stepper, columns, trajectory.model.driven.shape[0])
    directions, values = _directions(tangent)
    states, multipliers = [columns[None]], []
    for chunk in chunks_of(trajectory):
        both = StatesAndMultipliers(chunk.motion)
        (dx, dz), carry = tangents(trajectory, chunk, directions, both, values, carry)
        states.append(np.asarray(dx)[: chunk.count])
        multipliers.append(np.asarray(dz)[: chunk.count])
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
    tangent = tangent_of(bind, theta)
    directions, values = _directions(tangent)
    carry = Change(np.zeros((stepper.window, nx)), np.zeros(model.driven.shape[0]))
    gradient = np.zeros(parameter_count(tangent))
    for chunk in reversed(chunks_of(trajectory)):
        here, length = slice(chunk.first, chunk.first + chunk.count), len(chunk.rows)
        by = [padded(a[here], length) for a in (slopes[1:], slopes_z)]
        cost = LinearCost(chunk.motion, *by)
        own, carry = cotangents(trajectory, chunk, directions, cost, values, carry)
        gradient += np.asarray(own)
    columns = np.asarray(_start(stepper, model, tangent, *_given(trajectory)))
    return gradient + (np.sum(np.asarray(carry.states), 0) + slopes[0]) @ columns


@dataclass(frozen=True, eq=False)
class StatesAndMultipliers:
    """A `Comparison` that gives the changes of states and multipliers themselves."""

    solved: Any
    """the motion as it was solved"""

    def __call__(self, stepper: Stepper, model: Model, motion: Motion, values: Array) -> tuple[Array, Array]:
        return jax.vmap(stepper.local)(*(_reached(m) for m in (self.solved, motion))), motion.z


@dataclass(frozen=True, eq=False)
class LinearCost:
    """A `Comparison` that gives a cost linear in the changes of states and multipliers."""

    solved: Any
    by_state: Any
    """(N, nx)"""
    by_multiplier: Any
    """(N, nz)"""

    def __call__(self, stepper: Stepper, model: Model, motion: Motion, values: Array) -> Array:
        dx = jax.vmap(stepper.local)(*(_reached(m) for m in (self.solved, motion)))
        return jnp.vdot(self.by_state, dx) + jnp.vdot(self.by_multiplier, motion.z)


register(StatesAndMultipliers, ["solved"])
register(LinearCost, ["solved", "by_state", "by_multiplier"])


def _reached(motion: Motion) -> Any:
    """The states that steps lead to."""
    return jax.tree.map(lambda a: a[1:], motion.states)


def _directions(tangent: Any) -> tuple[Directions, np.ndarray]:
    return Directions(tangent, jnp.zeros((0, parameter_count(tangent)))), np.zeros(0)


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


def tangent_of(bind: Bind, theta: ArrayLike) -> list[Any]:
    """∂(float leaves of the model)/∂θ, None where no parameter moves a leaf."""
    if isinstance(bind, Parameters):
        values, slopes = (np.asarray(part(theta)) for part in (bind.values, bind.tangent))
        return moving(bind.lowering.tangent(values, slopes))
    return moving(_model_tangent(bind, jnp.asarray(theta, dtype=float)))


def tangent_at(free: Parameters, theta: ArrayLike, model: Model) -> list[Any]:
    """The same for parameters of which there may be none."""
    return tangent_of(free, theta) if free.size else [None] * len(float_leaves(model))


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
