"""`RateStepper`: what steppers share whose states are coordinates and their rates."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from mechid.dynamics.model import Model
from mechid.dynamics.stepper import Stepper
from mechid.dynamics.tree import Array


class State(NamedTuple):
    q: Array
    v: Array


class RateStepper(Stepper):
    """States (q, v), which are vectors; their rates need no linear solution."""

    def nx(self, model: Model) -> int:
        return 2 * model.nq

    def initial(self, model: Model, q: Array, v: Array, u: Array, t: Array) -> State:
        return State(q, v)

    def retract(self, x: State, d: Array) -> State:
        n = x.q.shape[0]
        return State(x.q + d[:n], x.v + d[n:])

    def local(self, x: State, y: State) -> Array:
        return jnp.concatenate([y.q - x.q, y.v - x.v])

    def positions(self, model: Model, x: State) -> Array:
        return x.q

    def velocities(self, model: Model, x: State, u: Array, driven: Array) -> Array:
        return x.v

    def inertia(self, model: Model, x: State) -> Array:
        return model.mass_matrix(x.q)
