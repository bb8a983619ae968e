"""Implicit one-step rules, midpoint and trapezoidal, for every mechanism with states (q, v).

With q and v along the straight line between the ends of a step, d = (v1 − v0)/h, and quadrature points α with
weights w (midpoint: ½; trapezoidal: 0 and 1), one step satisfies

    q1 − q0 = h Σ w v_α + Dh(q1)ᵀ μ,    Σ w (h (M d + bias − F) + Cᵀ λ)(q_α, v_α) = 0
    h(q1) = 0,    Dh(q1) v1 = 0,    c(q1, v1) = 0

C holds the slopes of all constraints, taken where forces are: at one end they would leave the rule of first order.
Loops are closed in coordinates and in rates (the second multiplier μ,
after Gear, Gupta and Leimkuhler, is zero up to the rule's error): held by coordinates alone, rates would swing
about their constraint from step to step. Second order, and without numerical damping.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mechid.compile import register
from mechid.dynamics.linear import decomposed
from mechid.dynamics.model import Model
from mechid.dynamics.newton import Evaluated, newton
from mechid.dynamics.rates import RateStepper, State
from mechid.dynamics.stepper import RowKind, StepResult, extrapolate, held, refuse_one_sided
from mechid.dynamics.tree import Array
from mechid.errors import MechidError, choices

RULES = {"midpoint": ((0.5, 1.0),), "trapezoidal": ((0.0, 0.5), (1.0, 0.5))}
"""points of the interval and their weights"""


@dataclass(frozen=True, eq=False)
class OneStep(RateStepper):
    """The implicit midpoint or trapezoidal rule."""

    dt: Any
    """s"""
    rule: str = "midpoint"
    absolute_tolerance: float = 1e-11
    """of impulses (N·m·s, N·s), coordinates (m, rad) and rates (m/s, rad/s)"""
    relative_tolerance: float = 1e-13

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise MechidError(f"There is no rule '{self.rule}'; valid: {choices(RULES)}.")

    def nz(self, model: Model) -> int:
        return 2 * model.nc + model.nr

    def rows(self, model: Model) -> tuple[RowKind, ...]:
        n = model.nq
        return (RowKind.KINEMATIC,) * n + (RowKind.DYNAMIC,) * n + (RowKind.HARD,) * self.nz(model)

    def check(self, model: Model, steps: int) -> None:
        super().check(model, steps)
        refuse_one_sided(self, model)
        if model.dry.index.shape[0]:
            raise MechidError("OneStep knows no dry friction: BDF, Variational and Spook do.")
        if model.driven.shape[0]:
            raise MechidError("OneStep knows no driven coordinates: BDF, Variational and Spook do.")

    def residual(self, xs: State, z: Array, u: Array, t: Array, k: Array, model: Model) -> Array:
        return self._equations(xs.q[0], xs.v[0], xs.q[1], xs.v[1], z, u, t, self.step_size(k), model)

    def _equations(
        self,
        q0: Array,
        v0: Array,
        q1: Array,
        v1: Array,
        z: Array,
        u: Array,
        t: Array,
        h: Array,
        model: Model,
    ) -> Array:
        alpha, weight = np.array(RULES[self.rule]).T
        d = (v1 - v0) / h

        def balance(part: Array) -> Array:
            q, v, now = q0 + part * (q1 - q0), v0 + part * (v1 - v0), t + part * h
            impulse = h * model.force_balance(q, v, d, u, now)
            return impulse + held(model, q, v, u, now)[1].T @ z[: model.nc + model.nr]

        impulse = weight @ jax.vmap(balance)(jnp.asarray(alpha))
        moved = q1 - q0 - h * (v0 + v1) / 2
        if not self.nz(model):
            return jnp.concatenate([moved, impulse])
        closure, slope = held(model, q1, v1, u, t + h)
        closing = slope[: model.nc]
        moved -= closing.T @ z[model.nc + model.nr :]
        return jnp.concatenate([moved, impulse, closure, closing @ v1])

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
        q0, v0 = xs.q[-1], xs.v[-1]

        def evaluate(y: Array) -> Evaluated:
            r = equations(y)
            # a difference of coordinates divided by h is only known to their rounding
            scale = jnp.max(jnp.abs(y[: 2 * n])) / jnp.minimum(h, 1.0)
            allowed = self.absolute_tolerance + self.relative_tolerance * scale
            return Evaluated(r, jnp.full(r.shape, allowed), None, lambda: slope_of(y))

        def equations(y: Array) -> Array:
            return self._equations(q0, v0, y[:n], y[n : 2 * n], y[2 * n :], u, t, h, model)

        slope_of = jax.jacfwd(equations)
        end = newton(evaluate, jnp.concatenate([guess[0].q, guess[0].v, guess[1]]), factorised=decomposed)
        new = State(end.y[:n], end.y[n : 2 * n])
        return StepResult(new, end.y[2 * n :], end.outcome, end.iterations, end.residual)

    def predict(self, history: State, zs: Array, known: Array) -> tuple[State, Array]:
        return State(extrapolate(history.q, known), extrapolate(history.v, known)), extrapolate(zs, known - 1)


register(OneStep, ["dt", "absolute_tolerance", "relative_tolerance"], ["rule"])
