"""Levenberg–Marquardt with bounds, linear limits and equality rows: the default.

Each step minimises the Gauss–Newton model plus damping μ ‖D d‖², D the column norms (Marquardt),
inside the bounds. Damping follows the ratio of gained to promised cost (Nielsen). With equality rows (multiple
shooting) the step also satisfies their linearisation, and progress is judged by cost + ν Σ |rows|.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mechid.estimate.solvers.problem import (
    Point,
    Problem,
    Progress,
    Quadratic,
    Recorder,
    Solution,
    constrained_step,
    inequalities,
    plural,
    within,
)

GROWTH = 10.0
"""of the damping at the first step that fails; more at each further one"""

DAMPED = 1e-9
"""damping that hardly shortens a step"""
STUCK = 1e-3
"""of the cost: where a step without damping promises more, it has not converged"""
ROUNDING = 1e-9
"""of the first cost: what is less than that is none"""

APPROACH = 0.9
"""of the way to a bound that one step may go (the next may touch it): at a bound, motions are often extreme"""


@dataclass(frozen=True)
class LevenbergMarquardt:
    """Gauss–Newton steps, damped where the model does not hold."""

    max_iterations: int = 100
    cost_tolerance: float = 1e-7
    """stop when a step promises less than this part of the cost"""
    step_tolerance: float = 1e-9
    """stop when a step is shorter than this part of the unknowns"""
    initial_damping: float = 1e-2

    gradients = "forward"
    least_squares = True

    def loosened(self, iterations: int) -> LevenbergMarquardt:
        """For a problem on the way to another one: a few iterations, to a rough answer."""
        return replace(
            self,
            max_iterations=min(iterations, self.max_iterations),
            cost_tolerance=1e-4,
            initial_damping=1e-6,
        )

    def solve(self, problem: Problem, y: np.ndarray, progress: Progress | None = None) -> Solution:
        watch = Recorder(problem, progress)
        point = watch.evaluate(np.clip(y, problem.lower, problem.upper))
        model = problem.quadratic(point)
        watch.record(point, _slope(model), 0.0)
        damping, growth = self.initial_damping, GROWTH
        multipliers = np.zeros(len(model.c))
        near = np.zeros((2, len(point.y)), bool)

        def end(converged: bool, outcome: str) -> Solution:
            return Solution(point, converged, outcome, tuple(watch.trace), multipliers)

        def ended(why: str) -> Solution:
            """Converged, unless it was the damping alone that left nothing to gain."""
            hidden = _promise(model, limits) if damping > DAMPED else 0.0
            if hidden <= max(STUCK * point.cost, ROUNDING * watch.trace[0].cost):
                return end(True, _done(why, watch))
            stuck = _done("No step lowers the cost any more", watch, converged=False)
            return end(
                False,
                f"{stuck[:-1]}, though slopes promise {hidden / point.cost:.0%} of it: it has corners here, as "
                "friction that sticks makes them. Start elsewhere, or estimate states too, which rounds them.",
            )

        while len(watch.trace) <= self.max_iterations:
            limits = inequalities(problem, point.y, np.where(near, 1.0, APPROACH))
            try:
                d, multipliers = damped_step(model, damping, limits, model.c)
            except np.linalg.LinAlgError:
                damping, growth = damping * growth + 1e-12, growth * 2
                continue
            penalty = 1.5 * np.abs(multipliers).max(initial=0.0)
            promised = -(model.g @ d + 0.5 * d @ model.H @ d) + penalty * point.violation
            length = _length(d, point.y)
            closed = point.violation <= 1e-9 * (1.0 + np.abs(point.y).sum())
            if closed and promised <= self.cost_tolerance * point.cost:
                return ended("no step promises to lower the cost further")
            if closed and length <= self.step_tolerance:
                return ended("the parameters no longer move")

            try:
                trial = watch.evaluate(within(problem, point.y + d))
                if len(model.c) and np.isfinite(trial.cost) and _gain(point, trial, penalty) < 0.5 * promised:
                    # a second look at the gaps that the curved motion has opened again
                    second, _ = damped_step(model, damping, limits, trial.gaps - model.C @ d)
                    other = watch.evaluate(within(problem, point.y + second))
                    trial = max(trial, other, key=lambda new, old=point, nu=penalty: _gain(old, new, nu))
                gained = _gain(point, trial, penalty)
                ratio = gained / promised if promised > 0.0 else -1.0
                if np.isfinite(trial.cost) and ratio > 1e-4:
                    new = problem.quadratic(trial)
                    near = _near(problem, point.y, trial.y)
                    point, model = trial, new
                    damping, growth = damping * max(1 / 30, 1 - (2 * ratio - 1) ** 3), GROWTH
                    watch.record(point, _slope(model), length)
                    continue
            except KeyboardInterrupt:
                return end(False, f"Interrupted after {plural(len(watch.trace) - 1, 'iteration')}.")
            # rounding alone separates the two: nothing is left to gain
            if np.isfinite(trial.cost) and abs(gained) <= 1e-12 * point.cost and closed and length <= 1e-4:
                return ended("the cost is at the limit of rounding")
            damping, growth = max(damping, 1e-12) * growth, growth * 3
            if damping > 1e20:
                return end(False, _done("No step lowers the cost any more", watch, converged=False))
        return end(
            False, f"Not converged after {plural(self.max_iterations, 'iteration')}: allow more of them."
        )


def _promise(model: Quadratic, limits: Any) -> float:
    """What the whole step, nearly undamped, would gain if the cost were as smooth as it looks from here."""
    try:
        d, _ = damped_step(model, DAMPED, limits, model.c)
    except np.linalg.LinAlgError:
        return 0.0
    return float(-(model.g @ d + 0.5 * d @ model.H @ d))


def damped_step(
    model: Quadratic, damping: float, limits: Any, c: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The damped step inside the limits that closes gaps c, and the multipliers of the gaps."""
    scale, (G, h) = _scale(model.H), limits
    damped = (model.H + damping * np.diag(scale**2)) / (scale[:, None] * scale[None, :])
    d, multipliers = constrained_step(damped, model.g / scale, model.C / scale, c, G / scale, h)
    return d / scale, multipliers


def _gain(old: Point, new: Point, penalty: float) -> float:
    """How much lower cost and gaps are."""
    return old.cost + penalty * old.violation - new.cost - penalty * new.violation


def _near(problem: Problem, old: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Lower and upper bounds that the step from old to new has gone most of the way to."""
    part = 1.01 * (1.0 - APPROACH)
    return np.stack(
        [
            new - problem.lower <= part * (old - problem.lower),
            problem.upper - new <= part * (problem.upper - old),
        ]
    )


def _length(d: np.ndarray, y: np.ndarray) -> float:
    """The longest relative change of an unknown."""
    return float(np.max(np.abs(d) / (np.abs(y) + 1e-8 * np.abs(y).max(initial=0.0) + 1e-300)))


def _slope(model: Quadratic) -> np.ndarray:
    """The gradient along what the equality rows leave free."""
    if not len(model.c):
        return model.g
    return model.g - model.C.T @ np.linalg.lstsq(model.C.T, model.g, rcond=None)[0]


def _scale(H: np.ndarray) -> np.ndarray:
    size = np.sqrt(np.maximum(np.diag(H), 0.0))
    return np.where(
        size > 1e-12 * size.max(initial=1e-300), size, max(float(size.max(initial=0.0)), 1.0) * 1e-6
    )


def _done(why: str, watch: Recorder, *, converged: bool = True) -> str:
    count = plural(len(watch.trace) - 1, "iteration")
    return f"Converged after {count}: {why}." if converged else f"{why} after {count}."
