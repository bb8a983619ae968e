"""SPOOK for mechanisms that have coordinates but no bodies, such as those written down in symbols.

The same regularised step (Marklund, Eq. 2.8) with M(q, t) and forces of the generalized coordinates: constraints
h(q) = 0 of compliance ε and relaxation time τ, Υ = 1/(1 + 4τ/dt), Σ = 4ε Υ/dt²,

    M (v1 − v0) + dt (bias − F) + Dhᵀ λ = 0,    Dh v1 − Σ λ = −(4/dt) Υ h + Υ Dh v0,    q1 = q0 + dt v1,

everything but v1 taken at the start of the step, which is one linear system. Constraints on rates hold exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from mechid.compile import register
from mechid.dynamics.assembly import inertia
from mechid.dynamics.model import Model
from mechid.dynamics.rates import RateStepper, State
from mechid.dynamics.stepper import Outcome, RowKind, StepResult, refuse_one_sided
from mechid.dynamics.tree import Array


@dataclass(frozen=True, eq=False)
class CoordinateSpook(RateStepper):
    """What `Spook` becomes on a mechanism without bodies; first order in dt."""

    dt: Any
    """s"""
    compliance: Any
    """m/N, rad/(N·m), or the constraint's unit squared by J"""
    relaxation_time: Any
    """s; two steps where None"""

    def nz(self, model: Model) -> int:
        return model.nc + model.nr

    def rows(self, model: Model) -> tuple[RowKind, ...]:
        n = model.nq
        return (RowKind.DYNAMIC,) * n + (RowKind.KINEMATIC,) * n + (RowKind.HARD,) * self.nz(model)

    def check(self, model: Model, steps: int) -> None:
        super().check(model, steps)
        refuse_one_sided(self, model)

    def residual(self, xs: State, z: Array, u: Array, t: Array, k: Array, model: Model) -> Array:
        q0, v0, q1, v1 = xs.q[0], xs.v[0], xs.q[1], xs.v[1]
        h = self.step_size(k)
        A, right = self._system(q0, v0, u, t, h, model)
        return jnp.concatenate(
            [
                A[: model.nq] @ jnp.concatenate([v1, z]) - right[: model.nq],
                q1 - q0 - h * v1,
                A[model.nq :] @ jnp.concatenate([v1, z]) - right[model.nq :],
            ]
        )

    def _system(self, q: Array, v: Array, u: Array, t: Array, h: Array, model: Model) -> tuple[Array, Array]:
        """The linear system for new rates and impulses."""
        M = inertia(model, q, v, u, t)
        right = M @ v - h * model.force_balance(q, v, jnp.zeros_like(v), u, t)
        if not self.nz(model):
            return M, right
        gap, slope = model.constraint(q, u)
        tau = 2.0 * h if self.relaxation_time is None else self.relaxation_time
        share = 1.0 / (1.0 + 4.0 * tau / h)
        soft = jnp.full(model.nc, 4.0 / h**2 * self.compliance * share)
        wanted = -4.0 / h * share * gap + share * slope @ v
        if model.nr:
            still, along = model.rolling(q, jnp.zeros_like(v), t)
            slope = jnp.concatenate([slope, along])
            soft = jnp.concatenate([soft, jnp.zeros(model.nr)])
            wanted = jnp.concatenate([wanted, -still])
        A = jnp.block([[M, slope.T], [slope, -jnp.diag(soft)]])
        return A, jnp.concatenate([right, wanted])

    def step(
        self,
        xs: State,
        u: Array,
        t: Array,
        k: Array,
        model: Model,
        guess: tuple[State, Array],
        memory: Any = None,
    ) -> StepResult:
        h, n = self.step_size(k), model.nq
        q, v = xs.q[-1], xs.v[-1]
        A, right = self._system(q, v, u, t, h, model)
        new = jnp.linalg.solve(A, right)
        good = jnp.all(jnp.isfinite(new))
        outcome = jnp.where(good, int(Outcome.SOLVED), int(Outcome.SINGULAR))
        state = State(q + h * new[:n], new[:n])
        return StepResult(state, new[n:], outcome, jnp.array(1), jnp.where(good, 0.0, jnp.inf))


register(CoordinateSpook, ["dt", "compliance", "relaxation_time"])
