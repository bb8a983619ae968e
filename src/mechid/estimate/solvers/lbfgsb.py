"""L-BFGS-B (SciPy's): for many parameters, and for costs that are no sum of squares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mechid.estimate.solvers.problem import Point, Problem, Progress, Recorder, Solution, plural


@dataclass(frozen=True)
class LBFGSB:
    """Quasi-Newton steps from gradients alone, inside bounds."""

    max_iterations: int = 500
    cost_tolerance: float = 1e-10
    """stop when an iteration lowers the cost by less than this part of it"""
    gradient_tolerance: float = 1e-6
    """stop when no component of the scaled gradient is larger than this part of the cost"""

    gradients = "adjoint"
    least_squares = False

    def solve(self, problem: Problem, y: np.ndarray, progress: Progress | None = None) -> Solution:
        watch = Recorder(problem, progress)
        start = watch.evaluate(np.clip(y, problem.lower, problem.upper))
        slope = problem.gradient(start)
        watch.record(start, slope, 0.0)
        scale = np.maximum(np.abs(start.y), 1e-3 * max(np.abs(start.y).max(initial=0.0), 1e-3))
        unit = abs(start.cost) or 1.0
        known: dict[bytes, tuple[Point, np.ndarray]] = {start.y.tobytes(): (start, slope)}
        last = [start]

        def cost(x: np.ndarray) -> tuple[float, np.ndarray]:
            point, slope = at(x * scale)
            if np.isfinite(point.cost):
                return point.cost / unit, slope * scale / unit
            # a wall that leads back to where the simulation works
            back = x - last[0].y / scale
            return 1e3 * (1.0 + abs(last[0].cost) / unit), 1e3 * back / max(float(back @ back), 1e-300)

        def at(y: np.ndarray) -> tuple[Point, np.ndarray]:
            y = np.clip(y, problem.lower, problem.upper)
            if y.tobytes() not in known:
                point = watch.evaluate(y)
                slope = problem.gradient(point) if np.isfinite(point.cost) else np.zeros(len(y))
                known[y.tobytes()] = (point, slope)
            return known[y.tobytes()]

        def visit(x: np.ndarray) -> None:
            point, slope = at(x * scale)
            step = float(np.linalg.norm(point.y - last[0].y) / max(np.linalg.norm(point.y), 1e-300))
            last[0] = point
            known.clear()
            known[point.y.tobytes()] = (point, slope)
            watch.record(point, slope, step)

        options: dict[str, Any] = {
            "maxiter": self.max_iterations,
            "ftol": self.cost_tolerance,
            "gtol": self.gradient_tolerance,
        }
        bounds = list(zip(problem.lower / scale, problem.upper / scale, strict=True))
        from scipy.optimize import minimize  # a third of a second, which other solvers need not wait for

        try:
            found = minimize(
                cost,
                start.y / scale,
                jac=True,
                method="L-BFGS-B",
                bounds=bounds,
                callback=visit,
                options=options,
            )
        except KeyboardInterrupt:
            count = plural(len(watch.trace) - 1, "iteration")
            return Solution(last[0], False, f"Interrupted after {count}.", tuple(watch.trace))
        count = plural(len(watch.trace) - 1, "iteration")
        if found.status == 0:
            return Solution(last[0], True, f"Converged after {count}.", tuple(watch.trace))
        why = "allow more of them" if found.status == 1 else "the line search finds no lower cost"
        return Solution(last[0], False, f"Not converged after {count}: {why}.", tuple(watch.trace))
