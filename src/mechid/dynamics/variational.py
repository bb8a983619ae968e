"""The variational integrator with holonomic constraints (Caldwell, Eqs. 2–5, 15–16).

A quadrature with points α and weights w gives the discrete Lagrangian

    L_d(q0, q1) = h Σ w L(q_α, d),    q_α = (1 − α) q0 + α q1,    d = (q1 − q0)/h

midpoint: α = ½; trapezoidal: α = 0, 1 with w = ½. One step from (q0, p0) solves for q1 and the multipliers λ

    p0 + D1 L_d + F_d⁻ − Dh(q0)ᵀ λ = 0,    h(q1) = 0,    then p1 = D2 L_d + F_d⁺

and conserves what the motion conserves. The multipliers hold the factor h: they are impulses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from mechid.dynamics.model import Hessians, Model, Terms
from mechid.dynamics.newton import newton
from mechid.dynamics.stepper import Blocks, RowKind, Stepper, StepResult, along, extrapolate
from mechid.dynamics.tree import Array
from mechid.errors import MechidError

RULES = {"midpoint": ((0.5, 1.0),), "trapezoidal": ((0.0, 0.5), (1.0, 0.5))}
"""quadrature points and weights"""
FORCES = ("left", "balanced")


class State(NamedTuple):
    q: Array
    p: Array
    """discrete momentum, Eq. 4"""


@dataclass(frozen=True, eq=False)
class Variational(Stepper):
    """Variational integrator.

    rule: "midpoint" or "trapezoidal". forces: "left" puts the whole impulse of a midpoint force on the first
    end of the step, as the papers do (first order in dt where forces act); "balanced" shares it (second order).
    The trapezoidal rule is always balanced.
    """

    dt: Any
    """s; an array gives every step its own size"""
    rule: str = "midpoint"
    forces: str = "left"
    absolute_tolerance: float = 1e-11
    """of impulses (N·m·s, N·s) and of loop closure (m, rad)"""
    relative_tolerance: float = 1e-13
    """of the largest momentum of the step"""

    window = 1

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise MechidError(f"There is no rule '{self.rule}'; valid: {', '.join(RULES)}.")
        if self.forces not in FORCES:
            raise MechidError(f"There is no forces='{self.forces}'; valid: {', '.join(FORCES)}.")

    def nx(self, model: Model) -> int:
        return 2 * model.nq

    def nz(self, model: Model) -> int:
        return model.nc

    def rows(self, model: Model) -> tuple[RowKind, ...]:
        return (RowKind.DYNAMIC,) * (2 * model.nq) + (RowKind.HARD,) * model.nc

    def initial(self, model: Model, q: Array, v: Array, u: Array, t: Array) -> State:
        return State(q, model.terms(q, v, u, t).v)

    def retract(self, x: State, d: Array) -> State:
        n = x.q.shape[0]
        return State(x.q + d[:n], x.p + d[n:])

    def local(self, x: State, y: State) -> Array:
        return jnp.concatenate([y.q - x.q, y.p - x.p])

    def positions(self, model: Model, x: State) -> Array:
        return x.q

    def velocities(self, model: Model, x: State, u: Array, driven: Array) -> Array:
        """v with p = M v + Dhᵀ μ and closed loops kept closed: defined also where M alone is singular."""
        _, slope = model.constraint(x.q, u)
        nc = slope.shape[0]
        kkt = jnp.block([[model.mass_matrix(x.q), slope.T], [slope, jnp.zeros((nc, nc))]])
        rates = jnp.concatenate([jnp.zeros(nc - driven.shape[0]), driven])
        return jnp.linalg.solve(kkt, jnp.concatenate([x.p, rates]))[: model.nq]

    # The discrete Lagrangian

    def _shares(self) -> list[tuple[float, float, float]]:
        """α, w, and the share of a force's impulse at the left end, for each quadrature point."""
        left = 1.0 if self.forces == "left" and self.rule == "midpoint" else None
        return [(a, w, 1.0 - a if left is None else left) for a, w in RULES[self.rule]]

    def _points(self, q0: Array, q1: Array, t: Array, h: Array):
        d = (q1 - q0) / h
        for alpha, weight, left in self._shares():
            yield alpha, weight, left, (1 - alpha) * q0 + alpha * q1, d, t + alpha * h

    def _momenta(
        self, q0: Array, q1: Array, u: Array, t: Array, h: Array, model: Model
    ) -> tuple[Array, Array]:
        """D1 L_d + F_d⁻ and D2 L_d + F_d⁺."""
        left_end = right_end = jnp.zeros_like(q0)
        for alpha, weight, left, q, d, time in self._points(q0, q1, t, h):
            first: Terms = model.terms(q, d, u, time)
            left_end += weight * (h * ((1 - alpha) * first.q + left * first.force) - first.v)
            right_end += weight * (h * (alpha * first.q + (1 - left) * first.force) + first.v)
        return left_end, right_end

    def residual(self, xs: State, z: Array, u: Array, t: Array, k: Array, model: Model) -> Array:
        (q0, q1), (p0, p1) = xs.q, xs.p
        left, right = self._momenta(q0, q1, u, t, self.step_size(k), model)
        _, slope = model.constraint(q0, u)
        closure, _ = model.constraint(q1, u)
        return jnp.concatenate([p0 + left - slope.T @ z, p1 - right, closure])

    def step(
        self, xs: State, u: Array, t: Array, k: Array, model: Model, guess: tuple[State, Array]
    ) -> StepResult:
        q0, p0 = xs.q[-1], xs.p[-1]
        n, h = model.nq, self.step_size(k)
        _, slope0 = model.constraint(q0, u)

        def residual(y: Array) -> tuple[Array, Array, Array]:
            q1, lam = y[:n], y[n:]
            left, right = self._momenta(q0, q1, u, t, h, model)
            closure, _ = model.constraint(q1, u)
            scale = jnp.maximum(jnp.max(jnp.abs(p0)), jnp.max(jnp.abs(left)))
            allowed = self.absolute_tolerance + self.relative_tolerance * scale
            tolerance = jnp.concatenate([jnp.full(n, allowed), jnp.full(model.nc, self.absolute_tolerance)])
            return jnp.concatenate([p0 + left - slope0.T @ lam, closure]), tolerance, right

        def jacobian(y: Array) -> Array:
            block, _, _, _ = self._derivatives(q0, y[:n], u, t, h, model)
            _, slope1 = model.constraint(y[:n], u)
            return jnp.block([[block[1], -slope0.T], [slope1, jnp.zeros((model.nc, model.nc))]])

        solved = newton(residual, jacobian, jnp.concatenate([guess[0].q, guess[1]]))
        return StepResult(
            State(solved.y[:n], solved.extra),
            solved.y[n:],
            solved.outcome,
            solved.iterations,
            solved.residual,
        )

    def predict(self, history: State, zs: Array, known: Array) -> tuple[State, Array]:
        """Quadratic extrapolation of the coordinates, as far as there is a past."""
        return State(extrapolate(history.q, known), history.p[-1]), zs[-1]

    # Exact linearisation

    def _derivatives(
        self, q0: Array, q1: Array, u: Array, t: Array, h: Array, model: Model
    ) -> tuple[tuple[Array, Array], tuple[Array, Array], Array, Array]:
        """Derivatives of D1 L_d + F_d⁻ and D2 L_d + F_d⁺ by q0, q1 (pairs) and u."""
        n = q0.shape[0]
        zero = jnp.zeros((n, n))
        left0 = left1 = right0 = right1 = zero
        left_u = right_u = jnp.zeros((n, model.nu))
        for alpha, weight, left, q, d, time in self._points(q0, q1, t, h):
            at: Hessians = model.hessians(q, d, u, time)
            for end in (0, 1):
                # q moves by (1 − α, α), d by (−1, 1)/h
                share, rate = (1 - alpha, -1.0 / h) if end == 0 else (alpha, 1.0 / h)
                slope_q = share * at.qq + rate * at.vq.T
                slope_v = share * at.vq + rate * at.vv
                slope_f = share * at.force_q + rate * at.force_v
                by_left = weight * (h * ((1 - alpha) * slope_q + left * slope_f) - slope_v)
                by_right = weight * (h * (alpha * slope_q + (1 - left) * slope_f) + slope_v)
                if end == 0:
                    left0, right0 = left0 + by_left, right0 + by_right
                else:
                    left1, right1 = left1 + by_left, right1 + by_right
            left_u += weight * h * left * at.force_u
            right_u += weight * h * (1 - left) * at.force_u
        return (left0, left1), (right0, right1), left_u, right_u

    def linearize(
        self,
        xs: State,
        z: Array,
        u: Array,
        t: Array,
        k: Array,
        model: Model,
        tangent: Any = None,
    ) -> Blocks:
        """The closed form; the parameters' columns by forward differentiation of the residual."""
        (q0, q1), h, n, nc = xs.q, self.step_size(k), model.nq, model.nc
        left, right, left_u, right_u = self._derivatives(q0, q1, u, t, h, model)
        _, slope0 = model.constraint(q0, u)
        _, slope1 = model.constraint(q1, u)
        bend = model.constraint_hessian(q0, z)
        one, zero, none = jnp.eye(n), jnp.zeros((n, n)), jnp.zeros((nc, n))
        by_x0 = jnp.block([[left[0] - bend, one], [-right[0], zero], [none, none]])
        by_x1 = jnp.block([[left[1], zero], [-right[1], one], [slope1, none]])
        by_z = jnp.concatenate([-slope0.T, jnp.zeros((n + nc, nc))])
        closure_u = jax.jacfwd(lambda w: model.constraint(q1, w)[0])(u)
        by_u = jnp.concatenate([left_u, -right_u, closure_u])
        r = self.residual(xs, z, u, t, k, model)
        by_theta = along(lambda m: self.residual(xs, z, u, t, k, m), model, tangent, r)
        return Blocks(r, jnp.stack([by_x0, by_x1]), by_z, by_u, by_theta)


jax.tree_util.register_dataclass(
    Variational,
    data_fields=["dt", "absolute_tolerance", "relative_tolerance"],
    meta_fields=["rule", "forces"],
)
