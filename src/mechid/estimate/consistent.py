"""Inertias that a body can have, nearest to a linear estimate in the metric of the data.

A linear estimate may have negative masses, or moments that no distribution of mass has. The numbers of bodies that
must be consistent are written in the log-Cholesky chart, whose image is exactly the positive definite
pseudo-inertias, and

    ½ ‖R (θ(ξ) − θ̂)‖² + ½ ε² ‖ξ − ξ₀‖²

is minimised by Levenberg and Marquardt, with R the triangle of the weighted rows: what the data know of θ decides
how far each number moves. ε is so small that it decides only what the data do not tell: there numbers stay near the
start. Where the linear estimate is consistent already the minimum is that estimate.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from mechid.compile import jit
from mechid.estimate.linear_numbers import LinearNumbers
from mechid.model.inertia import linear_from_log_cholesky

PULL = 1e-5
"""weight of the start, as a part of what one standard deviation of the best told direction weighs"""
LIMIT = 500


class Consistent(NamedTuple):
    """θ with consistent bodies."""

    theta: np.ndarray
    chart: np.ndarray
    """the parameters as a solver sees them"""
    slopes: np.ndarray
    """∂θ/∂chart"""
    rise: float
    """how much ½‖R (θ − θ̂)‖² is above zero: the weighted cost that consistency takes"""
    converged: bool
    iterations: int


def consistent(numbers: LinearNumbers, triangle: np.ndarray, theta: np.ndarray) -> Consistent:
    """The nearest θ whose bodies of `free_inertia` are consistent. triangle: R of rows in units of their noise."""
    free = numbers.free
    places = {b: [i for i, p in enumerate(free.entries) if p.body == b] for b in numbers.bodies}
    x0 = free.theta0
    plain = [i for i, e in enumerate(numbers.entries) if e >= 0]

    def at(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        value = np.zeros(len(theta))
        slopes = np.zeros((len(theta), len(x)))
        found, by = free.numbers_with_slopes(x)
        for i in plain:
            entry = numbers.entries[i]
            value[i], slopes[i, entry] = found[entry], by[entry]
        tens, turns = (np.asarray(t) for t in _tens(x[list(places.values())]))
        for k, (body, ten) in enumerate(numbers.bodies.items()):
            value[ten], slopes[ten, places[body]] = tens[k], turns[k]
        return value, slopes

    x = x0.copy()
    for i in plain:
        x[numbers.entries[i]] = free.entries[numbers.entries[i]].theta(theta[i])
    inner = [i for b in places.values() for i in b]
    pull = np.zeros((len(inner), len(x)))
    pull[np.arange(len(inner)), inner] = PULL
    damping, iterations, converged = 1e-3, 0, False
    value, slopes = at(x)
    rest = np.concatenate([triangle @ (value - theta), pull @ (x - x0)])
    cost = 0.5 * rest @ rest
    while iterations < LIMIT and not converged:
        iterations += 1
        J = np.concatenate([triangle @ slopes, pull])
        size = np.maximum(np.linalg.norm(J, axis=0), 1e-300)
        improved = False
        while not improved and damping < 1e12:
            rows = np.concatenate([J / size, np.sqrt(damping) * np.eye(len(x))])
            right = np.concatenate([-rest, np.zeros(len(x))])
            step = np.linalg.lstsq(rows, right, rcond=None)[0] / size
            longest = np.abs(step[inner]).max(initial=0.0)
            tried = x + step * min(1.0, 2.0 / max(longest, 1e-300))
            there, by = at(tried)
            left = np.concatenate([triangle @ (there - theta), pull @ (tried - x0)])
            new = 0.5 * left @ left
            improved = bool(np.isfinite(new) and new <= cost)
            damping = damping / 5.0 if improved else damping * 4.0
            if improved:
                gain = cost - new
                x, value, slopes, rest, cost = tried, there, by, left, new
                converged = bool(gain <= 1e-12 * max(cost, 1.0))
        if not improved:
            converged = True
    off = triangle @ (value - theta)
    return Consistent(value, x, slopes, float(0.5 * off @ off), converged, iterations)


@partial(jit, once=True)
def _tens(chart: Any) -> tuple[Any, Any]:
    """Linear numbers of bodies (b, 10) and their slopes by the chart."""
    return linear_from_log_cholesky(chart), jax.vmap(jax.jacfwd(linear_from_log_cholesky))(chart)
