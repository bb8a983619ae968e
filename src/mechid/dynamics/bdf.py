"""Backward differentiation formulas of order 1–6 (Verhaegen, Table 1) for mechanisms with constraints.

D x(t) = (1/h) Σ_ℓ α_ℓ x(t − ℓh). With states (q, v) and a window of `order` past states, one step satisfies

    D q = v,    h (M D v + bias − F) + Dhᵀ λ = 0,    h(q) = 0        at the end of the step,

and constraints on rates, c(q, v) = 0 with forces along ∂c/∂v, likewise.

The first steps use as many past states as there are (order 1, 2, …), so a run from rest starts by itself; the
start limits the global order to 2 unless the first states are given exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mechid.compile import register
from mechid.dynamics import dry
from mechid.dynamics.joint_loads import carried
from mechid.dynamics.linear import decomposed, solve
from mechid.dynamics.model import Model
from mechid.dynamics.newton import Evaluated, Solved, newton
from mechid.dynamics.rates import RateStepper, State
from mechid.dynamics.stepper import (
    RowKind,
    StepResult,
    extrapolate,
    held,
    refuse_one_sided,
    settled_outcome,
)
from mechid.dynamics.tree import Array, spread
from mechid.errors import MechidError

ALPHA = (
    (1.0, -1.0),
    (3 / 2, -2.0, 1 / 2),
    (11 / 6, -3.0, 3 / 2, -1 / 3),
    (25 / 12, -4.0, 3.0, -4 / 3, 1 / 4),
    (137 / 60, -5.0, 5.0, -10 / 3, 5 / 4, -1 / 5),
    (147 / 60, -6.0, 15 / 2, -20 / 3, 15 / 4, -6 / 5, 1 / 6),
)
"""α_ℓ, newest first, for each order"""


@dataclass(frozen=True, eq=False)
class BDF(RateStepper):
    """Backward differentiation of a fixed order with a constant step."""

    dt: Any
    """s"""
    order: int = 2
    absolute_tolerance: float = 1e-11
    """of impulses (N·m·s, N·s) and of loop closure (m, rad)"""
    relative_tolerance: float = 1e-13

    def __post_init__(self) -> None:
        if (
            isinstance(self.order, bool)
            or not isinstance(self.order, int)
            or not 1 <= self.order <= len(ALPHA)
        ):
            raise MechidError(f"There is no BDF of order {self.order}; valid: 1, 2, 3, 4, 5, 6.")

    @property
    def window(self) -> int:  # type: ignore[override]
        return self.order

    def nz(self, model: Model) -> int:
        return model.nc + model.nr + model.dry.index.shape[0]

    def rows(self, model: Model) -> tuple[RowKind, ...]:
        n = model.nq
        stuck = (RowKind.FRICTION,) * model.dry.index.shape[0]
        closed = (RowKind.HARD,) * (model.nc + model.nr)
        return (RowKind.KINEMATIC,) * n + (RowKind.DYNAMIC,) * n + closed + stuck

    def check(self, model: Model, steps: int) -> None:
        super().check(model, steps)
        refuse_one_sided(self, model)
        if np.ndim(self.dt) != 0:
            raise MechidError("BDF needs one constant step size dt; Variational takes varying ones.")

    def coefficients(self, k: Array) -> Array:
        """α oldest first over window + 1 states: of order k + 1 while there are too few past ones."""
        table = np.zeros((self.order, self.order + 1))
        for i in range(self.order):
            table[i, self.order - 1 - i :] = ALPHA[i][::-1]
        return jnp.asarray(table)[jnp.minimum(k, self.order - 1)]

    def residual(self, xs: State, z: Array, u: Array, t: Array, k: Array, model: Model) -> Array:
        alpha, h = self.coefficients(k), self.step_size(k)
        q, v = xs.q[-1], xs.v[-1]
        closure, slope = held(model, q, v, u, t + h)
        nc = len(closure)
        impulse = h * model.force_balance(q, v, alpha @ xs.v / h, u, t + h) + slope.T @ z[:nc]
        on = model.dry.index
        bound = self._friction_bound(q, v, alpha @ xs.v / h, z, u, h, model)
        stuck = dry.row(z[nc:], v[on], bound, model.dry.inertia, model.dry.blur)
        impulse -= spread(z[nc:], on, model.nq)
        return jnp.concatenate([alpha @ xs.q - h * v, impulse, closure, stuck])

    def _friction_bound(
        self, q: Array, v: Array, a: Array, z: Array, u: Array, h: Array, model: Model
    ) -> Array:
        """Largest impulses of friction: of the rate, and of what joints carry at the end of the step."""
        bound = h * dry.level(model.dry.values, v[model.dry.index])
        if not model.dry.loaded.shape[0]:
            return bound
        return bound + h * carried(model, q, v, a, -z[: model.nc] / h, u)

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
        """Solved for q and λ, the rates being D q."""
        alpha, h, n = self.coefficients(k), self.step_size(k), model.nq
        past_q, past_v = alpha[:-1] @ xs.q, alpha[:-1] @ xs.v

        def rates(q: Array) -> tuple[Array, Array]:
            v = (past_q + alpha[-1] * q) / h
            return v, (past_v + alpha[-1] * v) / h

        on, nc = jax.nn.one_hot(model.dry.index, n), model.nc + model.nr

        def solved(stuck: Array) -> Solved:
            """With given impulses of friction."""

            def evaluate(y: Array) -> Evaluated:
                q, lam = y[:n], y[n:]
                v, a = rates(q)
                closure, slope = held(model, q, v, u, t + h)
                impulse = h * model.force_balance(q, v, a, u, t + h) + slope.T @ lam
                impulse -= stuck @ on if len(on) else 0.0
                # a difference of coordinates divided by h² is only known to their rounding
                scale = jnp.max(jnp.abs(q)) / h + jnp.max(jnp.abs(past_v))
                allowed = self.absolute_tolerance + self.relative_tolerance * scale
                # constraints on rates as well, by h
                kinds = [(n, allowed), (model.nc, self.absolute_tolerance), (model.nr, allowed)]
                tolerance = jnp.concatenate([jnp.full(*kind) for kind in kinds])
                return Evaluated(jnp.concatenate([impulse, closure]), tolerance, None, lambda: slope_of(y))

            slope_of = jax.jacfwd(lambda y: evaluate(y).r)
            start = jnp.concatenate([guess[0].q, guess[1][:nc]])
            return newton(evaluate, start, factorised=decomposed)

        def step(stuck: Array) -> dry.Around:
            end = solved(stuck)
            pushed = jnp.concatenate([on.T, jnp.zeros((nc, len(on)))])
            H = on @ solve(end.kept.factors, pushed)[:n] * alpha[-1] / h
            q, z, (v, a) = end.y[:n], end.y[n:], rates(end.y[:n])
            return dry.Around(end, on @ v, H, self._friction_bound(q, v, a, z, u, h, model))

        if not len(on):
            end, stuck = solved(jnp.zeros(0)), jnp.zeros(0)
            outcome = end.outcome
        else:
            end, stuck, left = dry.settled(step, model.dry.inertia, guess[1][nc:])
            outcome = settled_outcome(left, end.outcome)
        q, z = end.y[:n], jnp.concatenate([end.y[n:], stuck])
        return StepResult(State(q, rates(q)[0]), z, outcome, end.iterations, end.residual)

    def predict(self, history: State, zs: Array, known: Array) -> tuple[State, Array]:
        return State(extrapolate(history.q, known), history.v[-1]), extrapolate(zs, known - 1)


register(BDF, ["dt", "absolute_tolerance", "relative_tolerance"], ["order"])
