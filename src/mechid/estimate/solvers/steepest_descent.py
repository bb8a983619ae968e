"""Steepest descent with Armijo's rule, as in the papers (Section IV.E): slow, and kept to reproduce them.

y⁺ = P(y − βᵐ ∇J) with the smallest m = 0, 1, … for which J(y⁺) ≤ J(y) − α ∇J·(y − y⁺); P clips to the bounds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mechid.estimate.solvers.problem import Problem, Progress, Recorder, Solution, plural, projected


@dataclass(frozen=True)
class SteepestDescent:
    """Follow the negative gradient, with a line search."""

    armijo_alpha: float = 0.4
    armijo_beta: float = 0.4
    first_step: float = 1.0
    """the step βᵐ for m = 0"""
    gradient_tolerance: float = 1e-3
    """stop when the gradient's norm is smaller"""
    max_iterations: int = 1000

    gradients = "adjoint"
    least_squares = False

    def solve(self, problem: Problem, y: np.ndarray, progress: Progress | None = None) -> Solution:
        watch = Recorder(problem, progress)
        point = watch.evaluate(np.clip(y, problem.lower, problem.upper))
        slope = problem.gradient(point)
        watch.record(point, slope, 0.0)

        def end(converged: bool, outcome: str) -> Solution:
            return Solution(point, converged, outcome, tuple(watch.trace))

        while True:
            norm = float(np.linalg.norm(projected(problem, point.y, slope)))
            count = plural(len(watch.trace) - 1, "iteration")
            if norm < self.gradient_tolerance:
                return end(True, f"Converged after {count}: the gradient's norm is {norm:.3g}.")
            if len(watch.trace) > self.max_iterations:
                return end(False, f"Not converged after {count}: the gradient's norm is {norm:.3g}.")
            step = self.first_step
            try:
                while True:
                    trial = np.clip(point.y - step * slope, problem.lower, problem.upper)
                    if not np.any(trial - point.y):
                        return end(False, f"No step lowers the cost any more after {count}.")
                    new = watch.evaluate(trial)
                    if new.cost <= point.cost - self.armijo_alpha * slope @ (point.y - trial):
                        break
                    step *= self.armijo_beta
                slope = problem.gradient(new)
                length = float(np.linalg.norm(new.y - point.y) / max(np.linalg.norm(point.y), 1e-300))
                point = new
                watch.record(point, slope, length)
            except KeyboardInterrupt:
                return end(False, f"Interrupted after {count}.")
