"""Solvers on small problems whose answers are known, without any simulation."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import scipy.optimize

from mechid.estimate.solvers.lbfgsb import LBFGSB
from mechid.estimate.solvers.levenberg_marquardt import LevenbergMarquardt
from mechid.estimate.solvers.problem import (
    Point,
    Quadratic,
    Recorder,
    constrained_step,
    inequalities,
    plural,
    projected,
)
from mechid.estimate.solvers.steepest_descent import SteepestDescent


@dataclass
class Analytic:
    """½ ‖r(y)‖² with what a problem can have besides."""

    residual: Any
    slope: Any
    size: int
    low: Any = -np.inf
    high: Any = np.inf
    rows: Any = None
    """G and h of G y ≤ h"""
    equal: Any = None
    """y ↦ (c, C)"""
    offset: float = 0.0
    """of the cost"""
    works: Any = lambda y: True
    interrupt: int = 0
    """the evaluation in which the user interrupts"""
    seen: list = field(default_factory=list)

    least_squares = True

    @property
    def lower(self):
        return np.broadcast_to(np.asarray(self.low, float), self.size)

    @property
    def upper(self):
        return np.broadcast_to(np.asarray(self.high, float), self.size)

    def evaluate(self, y):
        self.seen.append(np.array(y))
        if len(self.seen) == self.interrupt:
            raise KeyboardInterrupt
        if not self.works(y):
            return Point(y, np.inf)
        r = self.residual(y)
        gap = 0.0 if self.equal is None else float(np.abs(self.equal(y)[0]).sum())
        return Point(y, 0.5 * float(r @ r) + self.offset, gap)

    def gradient(self, point):
        return self.slope(point.y).T @ self.residual(point.y)

    def quadratic(self, point):
        J = self.slope(point.y)
        c, C = (np.zeros(0), np.zeros((0, self.size))) if self.equal is None else self.equal(point.y)
        return Quadratic(J.T @ J, self.gradient(point), C, c)

    def limits(self, y):
        if self.rows is None:
            return np.zeros((0, self.size)), np.zeros(0)
        G, h = self.rows
        return G, h - G @ y

    def shown(self, y):
        return tuple(2.0 * y)


def rosenbrock(**more):
    """Residuals 10 (y₂ − y₁²) and 1 − y₁: zero at (1, 1)."""
    return Analytic(
        lambda y: np.array([10 * (y[1] - y[0] ** 2), 1 - y[0]]),
        lambda y: np.array([[-20 * y[0], 10.0], [-1.0, 0.0]]),
        2,
        **more,
    )


def quadratic(center, weights=None, **more):
    """½ Σ weight (y − center)²."""
    center = np.asarray(center, float)
    w = np.sqrt(np.ones(len(center)) if weights is None else np.asarray(weights, float))
    return Analytic(lambda y: w * (y - center), lambda y: np.diag(w), len(center), **more)


START = np.array([-1.2, 1.0])
SOLVERS = {
    "levenberg-marquardt": LevenbergMarquardt(),
    "lbfgsb": LBFGSB(),
    "steepest descent": SteepestDescent(gradient_tolerance=3e-3, max_iterations=20000),
}
each_solver = pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS.keys())


@each_solver
def test_rosenbrock(solver):
    found = solver.solve(rosenbrock(), START)
    assert found.converged, found.outcome
    assert found.point.y == pytest.approx(np.ones(2), abs=2e-2)
    assert found.outcome.startswith(f"Converged after {found.iterations} iterations")
    cost = [x.cost for x in found.trace]
    assert cost[0] == pytest.approx(12.1)
    assert np.all(np.diff(cost) <= 0.0)


@each_solver
def test_a_bound_that_holds_the_solution(solver):
    """Rosenbrock with y₁ ≤ ½: the best is (½, ¼), where the cost is ½ (1 − ½)² = ⅛."""
    found = solver.solve(rosenbrock(high=[0.5, np.inf]), START)
    assert found.converged, found.outcome
    assert found.point.y == pytest.approx(np.array([0.5, 0.25]), abs=1e-3)
    assert found.point.cost == pytest.approx(0.125, abs=1e-6)
    assert found.trace[-1].gradient_norm < 1e-2


@each_solver
def test_a_corner_of_bounds_and_a_start_outside(solver):
    problem = quadratic([3.0, -4.0], weights=[1.0, 2.0], low=[-1.0, -1.0], high=[1.0, 1.0])
    found = solver.solve(problem, np.array([0.3, 9.0]))
    assert found.converged, found.outcome
    assert found.point.y == pytest.approx(np.array([1.0, -1.0]), abs=1e-14)
    assert all(np.all(np.abs(y) <= 1.0) for y in problem.seen)


@each_solver
def test_a_region_that_cannot_be_simulated(solver):
    """Beyond y₁ = 1.1 the cost is infinite; full steps from the start lead there."""
    problem = quadratic([1.0, 2.0], weights=[1.0, 9.0], works=lambda y: y[0] < 1.1)
    wild = rosenbrock(works=lambda y: y[0] < 1.0 + 1e-3 and y[1] > -0.5)
    for made, start, want in ((problem, [-3.0, 0.5], [1.0, 2.0]), (wild, START, [1.0, 1.0])):
        found = solver.solve(made, np.array(start))
        assert np.isfinite(found.point.cost)
        assert found.point.y == pytest.approx(np.array(want), abs=2e-2), found.outcome


@each_solver
def test_interrupted(solver):
    """What has been reached so far comes back, with a sentence."""
    problem = rosenbrock(interrupt=9)
    found = solver.solve(problem, START)
    assert not found.converged
    assert found.outcome == f"Interrupted after {plural(found.iterations, 'iteration')}."
    assert found.point.cost < 12.1
    assert found.point.cost == found.trace[-1].cost


@each_solver
def test_too_few_iterations(solver):
    found = type(solver)(max_iterations=2).solve(rosenbrock(), START)
    assert not found.converged
    assert found.iterations == 2
    assert found.outcome.startswith("Not converged after 2 iterations: ")


@each_solver
def test_who_watches_sees_every_iteration(solver):
    seen = []
    problem = rosenbrock()
    found = type(solver)(max_iterations=5).solve(problem, START, seen.append)
    assert tuple(seen) == found.trace
    assert [x.number for x in seen] == list(range(len(seen)))
    assert seen[0].values == tuple(2.0 * START)
    assert seen[0].gradient_norm == pytest.approx(np.hypot(-107.8, -44.0))
    assert seen[-1].evaluations <= len(problem.seen)
    assert all(a.seconds <= b.seconds for a, b in pairwise(seen))


@pytest.mark.parametrize("offset", [-20.0, -12.1, 1e3])
@pytest.mark.parametrize("solver", [LBFGSB(), SteepestDescent()])
def test_a_cost_below_zero(solver, offset):
    """A cost that a user wrote may be anything, at the start too."""
    found = solver.solve(quadratic([1.0, 2.0], weights=[4.0, 1.0], offset=offset), np.array([-1.0, 3.0]))
    assert found.point.cost == pytest.approx(offset, abs=1e-4)


def test_a_linear_limit_that_holds_the_solution():
    """Nearest to (2, 1) with y₁ + y₂ ≤ 1: (1, 0). And Rosenbrock with y₁ + y₂ ≤ 1 against SciPy."""
    rows = (np.array([[1.0, 1.0]]), np.array([1.0]))
    found = LevenbergMarquardt().solve(quadratic([2.0, 1.0], rows=rows), np.array([-1.0, 0.0]))
    assert found.converged
    assert found.point.y == pytest.approx(np.array([1.0, 0.0]), abs=1e-4)
    problem = rosenbrock(rows=rows)
    found = LevenbergMarquardt(cost_tolerance=1e-14).solve(problem, START)
    want = scipy.optimize.minimize(
        lambda y: problem.evaluate(y).cost,
        START,
        jac=lambda y: problem.gradient(Point(y, 0.0)),
        method="SLSQP",
        constraints={"type": "ineq", "fun": lambda y: 1.0 - y.sum()},
        options={"ftol": 1e-15},
    )
    assert found.point.y == pytest.approx(want.x, abs=1e-5)
    assert all(y.sum() <= 1.0 + 1e-9 for y in problem.seen if np.isfinite(y).all())


def test_equality_rows():
    """Nearest to the origin on the circle around (2, 0) of radius 1: (1, 0); the rows' multiplier is ½."""

    def circle(y):
        gap = y - np.array([2.0, 0.0])
        return np.array([gap @ gap - 1.0]), 2.0 * gap[None]

    found = LevenbergMarquardt().solve(quadratic([0.0, 0.0], equal=circle), np.array([2.5, 1.5]))
    assert found.converged, found.outcome
    assert found.point.y == pytest.approx(np.array([1.0, 0.0]), abs=1e-4)
    assert found.point.violation < 1e-8
    # y + multiplier · slope of the row = 0 at (1, 0), where that slope is (−2, 0)
    assert found.multipliers == pytest.approx(np.array([0.5]), abs=1e-4)


def test_an_unknown_without_influence_stays():
    problem = Analytic(
        lambda y: np.array([y[0] - 3.0, 2 * (y[0] - 3.0)]), lambda y: np.array([[1.0, 0.0], [2.0, 0.0]]), 2
    )
    found = LevenbergMarquardt().solve(problem, np.array([1.0, 7.0]))
    assert found.converged
    assert found.point.y == pytest.approx(np.array([3.0, 7.0]), abs=1e-4)


def test_nothing_to_gain_at_the_start():
    found = LevenbergMarquardt().solve(quadratic([1.0, 2.0]), np.array([1.0, 2.0]))
    assert found.converged
    assert found.iterations == 0


# Steepest descent, step by step


def test_armijo_by_hand():
    """J = ½ (y₁² + 4 y₂²) from (1, 1) with α = 0.4, β = 0.5; ∇J = (1, 4), J = 2.5, ‖∇J‖² = 17.

    step 1:   (0, −3),      J = 18        > 2.5 − 6.8
    step ½:   (½, −1),      J = 2.125     > 2.5 − 3.4
    step ¼:   (¾, 0),       J = 0.28125   ≤ 2.5 − 1.7       taken
    then ∇J = (¾, 0), ‖∇J‖² = 9/16, and step 1 leads to (0, 0), J = 0 ≤ 0.28125 − 0.225.
    """
    problem = quadratic([0.0, 0.0], weights=[1.0, 4.0])
    found = SteepestDescent(armijo_alpha=0.4, armijo_beta=0.5).solve(problem, np.ones(2))
    want = [[1, 1], [0, -3], [0.5, -1], [0.75, 0], [0, 0]]
    assert np.array(problem.seen) == pytest.approx(np.array(want), abs=1e-15)
    assert [x.cost for x in found.trace] == pytest.approx([2.5, 0.28125, 0.0])
    assert [x.evaluations for x in found.trace] == [1, 4, 5]
    assert found.outcome == "Converged after 2 iterations: the gradient's norm is 0."


def test_armijo_with_a_bound_by_hand():
    """The decrease that is asked for is along the clipped step: J = ½ (y − 3)², y ≤ 1, from 0.

    ∇J = −3: step 1 leads to 3, clipped to 1, J = 2 ≤ 4.5 − 0.4 · 3 · 1. There ∇J = −2 only pushes outwards.
    """
    problem = quadratic([3.0], high=1.0)
    found = SteepestDescent().solve(problem, np.zeros(1))
    assert np.concatenate(problem.seen).tolist() == [0.0, 1.0]
    assert found.outcome == "Converged after 1 iteration: the gradient's norm is 0."


def test_a_first_step_of_its_own():
    problem = quadratic([0.0])
    SteepestDescent(first_step=0.25, max_iterations=1).solve(problem, np.ones(1))
    assert np.concatenate(problem.seen).tolist() == [1.0, 0.75]


def test_a_gradient_that_points_the_wrong_way():
    """No step helps: said, not searched for ever."""
    problem = quadratic([0.0])
    problem.gradient = lambda point: -point.y
    found = SteepestDescent().solve(problem, np.ones(1))
    assert not found.converged
    assert found.outcome == "No step lowers the cost any more after 0 iterations."
    assert found.point.y.tolist() == [1.0]


# Steps inside constraints


def solved_by_scipy(H, g, C, c, G, h):
    constraints = []
    if len(c):
        constraints.append({"type": "eq", "fun": lambda d: C @ d + c, "jac": lambda d: C})
    if len(h):
        constraints.append({"type": "ineq", "fun": lambda d: h - G @ d, "jac": lambda d: -G})
    return scipy.optimize.minimize(
        lambda d: g @ d + 0.5 * d @ H @ d,
        np.zeros(len(g)),
        jac=lambda d: g + H @ d,
        method="SLSQP",
        constraints=constraints,
        options={"ftol": 1e-14, "maxiter": 500},
    )


@pytest.mark.parametrize("seed", range(100))
def test_constrained_steps_against_scipy(seed):
    """Random sizes, equality rows and limits; no step at all is within the limits, as it is for a solver."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 9))
    m, k = int(rng.integers(0, (n + 1) // 2)), int(rng.integers(0, 2 * n + 1))
    root = rng.normal(size=(n, n))
    H, g = root @ root.T + 0.1 * np.eye(n), 3.0 * rng.normal(size=n)
    C, G = rng.normal(size=(m, n)), rng.normal(size=(k, n))
    inside = 0.3 * rng.normal(size=n)
    c, h = -C @ inside, G @ inside + rng.uniform(0.0, 1.0, k)
    d, multipliers = constrained_step(H, g, C, c, G, h)
    want = solved_by_scipy(H, g, C, c, G, h)
    assert np.abs(C @ d + c).max(initial=0.0) < 1e-8
    assert np.max(G @ d - h, initial=0.0) < 1e-8
    assert g @ d + 0.5 * d @ H @ d == pytest.approx(want.fun, rel=1e-6, abs=1e-7)
    assert d == pytest.approx(want.x, abs=1e-4)
    assert len(multipliers) == m


def test_multipliers_of_a_step_by_hand():
    """min ½ ‖d‖² with d₁ = 2: d = (2, 0), and d + multiplier · (1, 0) = 0."""
    none = np.zeros((0, 2)), np.zeros(0)
    d, multipliers = constrained_step(np.eye(2), np.zeros(2), np.array([[1.0, 0.0]]), np.array([-2.0]), *none)
    assert d == pytest.approx(np.array([2.0, 0.0]))
    assert multipliers == pytest.approx(np.array([-2.0]))


def test_bounds_and_limits_as_rows():
    rows = (np.array([[1.0, 2.0]]), np.array([4.0]))
    problem = quadratic([0.0, 0.0], low=[-1.0, -np.inf], high=[np.inf, 5.0], rows=rows)
    G, h = inequalities(problem, np.array([0.5, 1.0]))
    assert G.tolist() == [[0, 1], [-1, 0], [1, 2]]
    assert h.tolist() == [4.0, 1.5, 1.5]


def test_a_gradient_that_only_pushes_against_bounds():
    problem = quadratic([0.0, 0.0, 0.0], low=0.0, high=1.0)
    y, slope = np.array([0.0, 1.0, 0.5]), np.array([2.0, 3.0, -4.0])
    assert projected(problem, y, slope).tolist() == [0.0, 3.0, -4.0]
    assert projected(problem, y, -slope).tolist() == [-2.0, 0.0, 4.0]


def test_the_recorder_counts():
    watch = Recorder(quadratic([0.0]))
    for _ in range(3):
        point = watch.evaluate(np.ones(1))
    watch.record(point, np.array([4.0]), 0.5)
    (line,) = watch.trace
    assert (line.number, line.cost, line.gradient_norm, line.step) == (0, 0.5, 4.0, 0.5)
    assert (line.values, line.evaluations) == ((2.0,), 3)


def test_damping_alone_is_no_convergence():
    """|y| + 1 − y/4 with its slope on one side: it goes down to 0, where the slope still promises."""
    kinked = Analytic(lambda y: np.array([abs(y[0]) + 1.0 - y[0] / 4]), lambda y: np.array([[0.75]]), 1)
    solution = LevenbergMarquardt().solve(kinked, np.array([1.0]))
    assert not solution.converged
    assert abs(solution.point.y[0]) < 1e-2
    assert "though slopes promise 100% of it: it has corners here" in solution.outcome
