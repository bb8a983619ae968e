"""The variational integrator with holonomic constraints (Caldwell, Eqs. 2–5, 15–16).

A quadrature with points α and weights w gives the discrete Lagrangian

    L_d(q0, q1) = h Σ w L(q_α, d),    q_α = (1 − α) q0 + α q1,    d = (q1 − q0)/h

midpoint: α = ½; trapezoidal: α = 0, 1 with w = ½. One step from (q0, p0) solves for q1 and the multipliers λ

    p0 + D1 L_d + F_d⁻ − Dh(q0)ᵀ λ = 0,    h(q1) = 0,    then p1 = D2 L_d + F_d⁺

and conserves what the motion conserves. The multipliers hold the factor h: they are impulses.
"""

from __future__ import annotations

import functools
import operator
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from mechid.compile import register
from mechid.dynamics import dry
from mechid.dynamics.joint_loads import carried
from mechid.dynamics.linear import Factors, factorise, solve, solve_once, solve_transposed
from mechid.dynamics.model import Hessians, Model
from mechid.dynamics.newton import Evaluated, Kept, Solved, newton, nothing_kept
from mechid.dynamics.stepper import (
    Blocks,
    LinearStep,
    RowKind,
    Stepper,
    StepResult,
    along,
    columns,
    extrapolate,
    refuse_one_sided,
    settled_outcome,
)
from mechid.dynamics.tree import Array, spread
from mechid.errors import MechidError

RULES = {"midpoint": ((0.5, 1.0),), "trapezoidal": ((0.0, 0.5), (1.0, 0.5))}
"""quadrature points and weights"""
FORCES = ("left", "balanced")


class State(NamedTuple):
    q: Array
    p: Array
    """discrete momentum, Eq. 4"""


class Memory(NamedTuple):
    """What a step leaves for the next one."""

    slope: Array
    """Dh at the new coordinates"""
    kept: Kept


class LinearVariational(NamedTuple):
    """A linear step whose unknowns are q1 and λ: the momentum row and the closure, then p1."""

    factors: Factors
    left: Array
    """∂(p0 + D1 L_d + F_d⁻ − Dhᵀλ)/∂q0"""
    F_u: Array
    right0: Array
    right1: Array
    """∂p1/∂q0 and ∂p1/∂q1"""
    right_u: Array

    def forward(self, dx: Array, du: Array, dF: Array, dG: Array) -> tuple[Array, Array]:
        n = self.left.shape[0]
        dq0, dp0 = dx[:n], dx[n:]
        known = self.F_u @ du + dF
        momentum = known[:n] + self.left @ dq0 + dp0
        dy = -solve(self.factors, jnp.concatenate([momentum, known[n:]]))
        dq1 = dy[:n]
        dp1 = self.right0 @ dq0 + self.right1 @ dq1 + self.right_u @ du
        return jnp.concatenate([dq1 + dG[:n], dp1 + dG[n:]]), dy[n:]

    def backward(self, by_state: Array, by_z: Array) -> tuple[Array, Array, Array]:
        n = self.left.shape[0]
        by_q1, by_p1 = by_state[:n], by_state[n:]
        by_F = -solve_transposed(self.factors, jnp.concatenate([by_q1 + by_p1 @ self.right1, by_z]))
        by_q0 = by_F[:n] @ self.left + by_p1 @ self.right0
        return jnp.concatenate([by_q0, by_F[:n]]), by_F @ self.F_u + by_p1 @ self.right_u, by_F


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
    products = True

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise MechidError(f"There is no rule '{self.rule}'; valid: {', '.join(RULES)}.")
        if self.forces not in FORCES:
            raise MechidError(f"There is no forces='{self.forces}'; valid: {', '.join(FORCES)}.")

    def nx(self, model: Model) -> int:
        return 2 * model.nq

    def nz(self, model: Model) -> int:
        return model.nc + model.dry.index.shape[0]

    def rows(self, model: Model) -> tuple[RowKind, ...]:
        stuck = (RowKind.FRICTION,) * model.dry.index.shape[0]
        return (RowKind.DYNAMIC,) * (2 * model.nq) + (RowKind.HARD,) * model.nc + stuck

    def check(self, model: Model, steps: int) -> None:
        super().check(model, steps)
        refuse_one_sided(self, model)
        if model.nr:
            raise MechidError("Variational knows no constraints on rates alone: use BDF or OneStep.")
        if not getattr(model, "has_lagrangian", True):
            raise MechidError(
                "Variational needs a Lagrangian, and this mechanism is given by its equations of motion: use BDF "
                "or OneStep."
            )
        if not getattr(model, "momenta_are_inertial", True):
            raise MechidError(
                "Variational has rates from momenta M(q) q', and those of this mechanism hold time or terms that "
                "are there at rest: use BDF or OneStep."
            )

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
        kkt = _stacked([model.mass_matrix(x.q), slope.T], [slope, jnp.zeros((nc, nc))])
        rates = jnp.concatenate([jnp.zeros(nc - driven.shape[0]), driven])
        return solve_once(kkt, jnp.concatenate([x.p, rates]))[: model.nq]

    # The discrete Lagrangian

    def _shares(self) -> list[tuple[float, float, float]]:
        """α, w, and the share of a force's impulse at the left end, for each quadrature point."""
        left = 1.0 if self.forces == "left" and self.rule == "midpoint" else None
        return [(a, w, 1.0 - a if left is None else left) for a, w in RULES[self.rule]]

    def _points(self, q0: Array, q1: Array, t: Array, h: Array):
        d = (q1 - q0) / h
        for alpha, weight, left in self._shares():
            yield alpha, weight, left, (1 - alpha) * q0 + alpha * q1, d, t + alpha * h

    def _momenta(self, points: list[Any], h: Array) -> tuple[Array, Array]:
        """D1 L_d + F_d⁻ and D2 L_d + F_d⁺ from the terms at the quadrature points."""
        lefts, rights = [], []
        for alpha, weight, left, first, _ in points:
            lefts.append(weight * (h * ((1 - alpha) * first.q + left * first.force) - first.v))
            rights.append(weight * (h * (alpha * first.q + (1 - left) * first.force) + first.v))
        return _sum(lefts), _sum(rights)

    def _terms(
        self, q0: Array, q1: Array, u: Array, t: Array, h: Array, model: Model, *others: Array
    ) -> tuple[list[Any], list[Any]]:
        """α, weight, left share, the terms and what gives the Hessians, at each quadrature point.

        The kinematics at other configurations come along, at once with these.
        """
        points = list(self._points(q0, q1, t, h))
        at = model.places(*(q for _, _, _, q, _, _ in points), *others)
        made = [
            (alpha, weight, left, *model.terms_and_hessians(q, d, u, time, at[i]))
            for i, (alpha, weight, left, q, d, time) in enumerate(points)
        ]
        return made, at[len(points) :]

    def residual(self, xs: State, z: Array, u: Array, t: Array, k: Array, model: Model) -> Array:
        F, G = self._sides(xs, z, u, t, k, model)
        n = model.nq
        return jnp.concatenate([F[:n], xs.p[1] - G[n:], F[n:]])

    # Friction that sticks: an impulse at the middle of the step

    def _friction_shares(self) -> tuple[float, float]:
        """Of its impulse on the left and the right end."""
        return (1.0, 0.0) if self.forces == "left" and self.rule == "midpoint" else (0.5, 0.5)

    def _friction(self, xs: State, z: Array, u: Array, k: Array, model: Model) -> Array:
        """Its rows."""
        on, nc = model.dry.index, model.nc
        if not on.shape[0]:
            return jnp.zeros(0)
        x0, x1 = (State(xs.q[i], xs.p[i]) for i in (0, 1))
        h = self.step_size(k)
        bound = self._friction_bound(x0, x1, z[:nc], u, h, model)
        rate = (x1.q - x0.q)[on] / h
        return dry.row(z[nc:], rate, bound, model.dry.inertia, model.dry.blur)

    def _friction_bound(self, x0: State, x1: State, lam: Array, u: Array, h: Array, model: Model) -> Array:
        """Its largest impulses: of the rate, and of what joints carry in the middle of the step."""
        v = (x1.q - x0.q) / h
        bound = h * dry.level(model.dry.values, v[model.dry.index])
        if not model.dry.loaded.shape[0]:
            return bound
        v0, v1 = (self.velocities(model, x, u, v[model.driven]) for x in (x0, x1))
        return bound + h * carried(model, (x0.q + x1.q) / 2, v, (v1 - v0) / h, -lam / h, u)

    def _friction_slopes(
        self, xs: State, z: Array, u: Array, k: Array, model: Model
    ) -> tuple[Array, Array, Array]:
        """By both states, by all multipliers, by the inputs."""
        if model.dry.loaded.shape[0]:
            still = jnp.zeros((2, 2 * model.nq))

            def moved(d: Array, z: Array, u: Array, m: Model) -> Array:
                return self._friction(jax.vmap(self.retract)(xs, d), z, u, k, m)

            _, (by_x, by_z, by_u), _ = columns(moved, (still, z, u), model, None)
            return jnp.moveaxis(by_x, 1, 0), by_z, by_u
        by_q, own = self._level_slopes(xs.q[0], xs.q[1], z[model.nc :], self.step_size(k), model)
        wide = jnp.pad(by_q, ((0, 0), (0, model.nq)))
        by_z = jnp.pad(own, ((0, 0), (model.nc, 0)))
        return jnp.stack([-wide, wide]), by_z, jnp.zeros((len(own), len(u)))

    def _level_slopes(
        self, q0: Array, q1: Array, stuck: Array, h: Array, model: Model
    ) -> tuple[Array, Array]:
        """Without loads: by q1 (by q0 the opposite), and by the impulses."""
        on, n = model.dry.index, model.nq
        rate = (q1 - q0)[on] / h
        inertia, bound = model.dry.inertia, h * dry.level(model.dry.values, rate)
        own, by_rate, by_bound = dry.slopes(stuck, rate, bound, inertia, model.dry.blur)
        steep = jax.vmap(jax.grad(dry.level, argnums=1))(model.dry.values, rate)
        by_rate += by_bound * h * steep
        return (by_rate / h)[:, None] * jax.nn.one_hot(on, n), jnp.diag(own)

    def remember(self, model: Model, x: State, u: Array) -> Memory:
        return Memory(model.constraint(x.q, u)[1], nothing_kept(model.nq + model.nc))

    def step(
        self,
        xs: State,
        u: Array,
        t: Array,
        k: Array,
        model: Model,
        guess: tuple[State, Array],
        memory: Memory | None = None,
    ) -> StepResult:
        q0, p0 = xs.q[-1], xs.p[-1]
        n, nc, h = model.nq, model.nc, self.step_size(k)
        on, shares = jax.nn.one_hot(model.dry.index, n), self._friction_shares()
        slope0, kept = self.remember(model, State(q0, p0), u) if memory is None else memory

        def solved(stuck: Array, y: Array, kept: Kept) -> Solved:
            """With given impulses of friction."""

            def evaluate(y: Array) -> Evaluated:
                points, (at1,) = self._terms(q0, y[:n], u, t, h, model, y[:n])
                left, right = self._momenta(points, h)
                closure, slope1 = model.constraint(y[:n], u, at1)
                scale = jnp.maximum(jnp.max(jnp.abs(p0)), jnp.max(jnp.abs(left)))
                allowed = self.absolute_tolerance + self.relative_tolerance * scale
                tolerance = jnp.concatenate([jnp.full(n, allowed), jnp.full(nc, self.absolute_tolerance)])
                balance = p0 + left - y[n:] @ slope0
                if len(on):
                    balance, right = balance + shares[0] * stuck @ on, right + shares[1] * stuck @ on

                def jacobian() -> Array:
                    (_, by_q1), _ = self._slopes(points, h)
                    return _stacked([by_q1, -slope0.T], [slope1, jnp.zeros((nc, nc))])

                return Evaluated(jnp.concatenate([balance, closure]), tolerance, (right, slope1), jacobian)

            return newton(evaluate, y, kept=kept)

        start = jnp.concatenate([guess[0].q, guess[1][:nc]])
        if not len(on):
            end, stuck, outcome = solved(jnp.zeros(0), start, kept), jnp.zeros(0), None
        else:

            def step(stuck: Array) -> dry.Around:
                # as from the last state: rates at rest are told to the last digit
                end = solved(stuck, start, kept)
                pushed = jnp.concatenate([-shares[0] * on.T, jnp.zeros((nc, len(on)))])
                H = on @ solve(end.kept.factors, pushed)[:n] / h
                q1, lam, (p1, _) = end.y[:n], end.y[n:], end.extra
                bound = self._friction_bound(State(q0, p0), State(q1, p1), lam, u, h, model)
                return dry.Around(end, on @ (q1 - q0) / h, H, bound)

            end, stuck, left = dry.settled(step, model.dry.inertia, guess[1][nc:])
            outcome = settled_outcome(left, end.outcome)
        p1, slope1 = end.extra
        return StepResult(
            State(end.y[:n], p1),
            jnp.concatenate([end.y[n:], stuck]),
            end.outcome if outcome is None else outcome,
            end.iterations,
            end.residual,
            Memory(slope1, end.kept),
        )

    def predict(self, history: State, zs: Array, known: Array) -> tuple[State, Array]:
        """Coordinates and multipliers extrapolated by polynomials, as far as there is a past."""
        return State(extrapolate(history.q, known), history.p[-1]), extrapolate(zs, known - 1)

    # Exact linearisation

    def _slopes(self, points: list[Any], h: Array) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        """Derivatives of D1 L_d + F_d⁻ and D2 L_d + F_d⁺ by q0 and q1."""
        by_left: list[Any] = [0.0, 0.0]
        by_right: list[Any] = [0.0, 0.0]
        for alpha, weight, left, _, hessians in points:
            at: Hessians = hessians()
            for end in (0, 1):
                # q moves by (1 − α, α), d by (−1, 1)/h
                share, rate = (1 - alpha, -1.0 / h) if end == 0 else (alpha, 1.0 / h)
                slope_q = share * at.qq + rate * at.vq.T
                slope_v = share * at.vq + rate * at.vv
                slope_f = share * at.force_q + rate * at.force_v
                by_left[end] += weight * (h * ((1 - alpha) * slope_q + left * slope_f) - slope_v)
                by_right[end] += weight * (h * (alpha * slope_q + (1 - left) * slope_f) + slope_v)
        return (by_left[0], by_left[1]), (by_right[0], by_right[1])

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
        points, (at0, at1) = self._terms(q0, q1, u, t, h, model, q0, q1)
        left, right = self._slopes(points, h)
        left_u, right_u = self._input_slopes(points, h)
        _, slope0 = model.constraint(q0, u, at0)
        _, slope1 = model.constraint(q1, u, at1)
        bend = model.constraint_hessian(q0, z[:nc], at0)
        one, zero, none = jnp.eye(n), jnp.zeros((n, n)), jnp.zeros((nc, n))
        by_x0 = jnp.block([[left[0] - bend, one], [-right[0], zero], [none, none]])
        by_x1 = jnp.block([[left[1], zero], [-right[1], one], [slope1, none]])
        by_z = jnp.concatenate([-slope0.T, jnp.zeros((n + nc, nc))])
        by_u = jnp.concatenate([left_u, -right_u, model.constraint_input_slope()])
        if model.dry.index.shape[0]:
            on, (first, last) = jax.nn.one_hot(model.dry.index, n), self._friction_shares()
            (old, new), own, driven = self._friction_slopes(xs, z, u, k, model)
            by_x0, by_x1 = jnp.concatenate([by_x0, old]), jnp.concatenate([by_x1, new])
            side = jnp.concatenate([first * on.T, -last * on.T, jnp.zeros((nc, len(on)))])
            by_z = _stacked([by_z, side], [own])
            by_u = jnp.concatenate([by_u, driven])
        r = self.residual(xs, z, u, t, k, model)
        by_theta = along(lambda m: self.residual(xs, z, u, t, k, m), model, tangent, r)
        return Blocks(r, jnp.stack([by_x0, by_x1]), by_z, by_u, by_theta)

    def linear_step(self, xs: State, z: Array, u: Array, t: Array, k: Array, model: Model) -> LinearStep:
        """The unknowns are q1 and λ; p1 follows."""
        if model.dry.index.shape[0]:
            return super().linear_step(xs, z, u, t, k, model)
        (q0, q1), h, nc = xs.q, self.step_size(k), model.nc
        points, (at0, at1) = self._terms(q0, q1, u, t, h, model, q0, q1)
        left, right = self._slopes(points, h)
        left_u, right_u = self._input_slopes(points, h)
        _, slope0 = model.constraint(q0, u, at0)
        _, slope1 = model.constraint(q1, u, at1)
        bend = model.constraint_hessian(q0, z, at0)
        K = _stacked([left[1], -slope0.T], [slope1, jnp.zeros((nc, nc))])
        F_u = _stacked([left_u], [model.constraint_input_slope()])
        return LinearVariational(factorise(K), left[0] - bend, F_u, *right, right_u)

    def sides(self, xs: State, z: Array, u: Array, t: Array, k: Array, model: Model) -> tuple[Array, Array]:
        if model.dry.index.shape[0]:
            return super().sides(xs, z, u, t, k, model)
        return self._sides(xs, z, u, t, k, model)

    def _sides(self, xs: State, z: Array, u: Array, t: Array, k: Array, model: Model) -> tuple[Array, Array]:
        """The balance of momenta and the closure, friction's rows; then the new state."""
        (q0, q1), h = xs.q, self.step_size(k)
        points, (at0, at1) = self._terms(q0, q1, u, t, h, model, q0, q1)
        left, right = self._momenta(points, h)
        _, slope = model.constraint(q0, u, at0)
        closure, _ = model.constraint(q1, u, at1)
        lam, stuck = z[: model.nc], z[model.nc :]
        first, last = (share * spread(stuck, model.dry.index, model.nq) for share in self._friction_shares())
        held = self._friction(xs, z, u, k, model)
        F = jnp.concatenate([xs.p[0] + left - slope.T @ lam + first, closure, held])
        return F, jnp.concatenate([q1, right + last])

    def _input_slopes(self, points: list[Any], h: Array) -> tuple[Array, Array]:
        """Derivatives of D1 L_d + F_d⁻ and D2 L_d + F_d⁺ by the inputs."""
        slopes = [(share, w * h * at().force_u) for _, w, share, _, at in points]
        return _sum([share * s for share, s in slopes]), _sum([(1 - share) * s for share, s in slopes])


def _sum(arrays: list[Array]) -> Array:
    return functools.reduce(operator.add, arrays)


def _stacked(*rows: list[Array]) -> Array:
    """A matrix of blocks."""
    return jnp.concatenate([jnp.concatenate(row, 1) for row in rows])


register(Variational, ["dt", "absolute_tolerance", "relative_tolerance"], ["rule", "forces"])
