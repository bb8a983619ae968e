"""What a regression ends with: the `Fit` of least squares, its standard deviations, consistent bodies, channels."""

from __future__ import annotations

import time as clock
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from mechid.errors import choices
from mechid.estimate.consistent import consistent
from mechid.estimate.fit import Compared, Estimate, Fit
from mechid.estimate.linear import HIDDEN, LinearSolution, factored
from mechid.estimate.linear_form import MechanismForm
from mechid.estimate.linear_numbers import LinearNumbers
from mechid.estimate.solvers.problem import Iteration
from mechid.estimate.uncertainty import neighbours, physical_slope, sandwich
from mechid.model.inertia import pseudo_from_linear

HOLD = 1e-6
"""weight, beside columns of length one, with which what the data do not tell stays"""


@dataclass(frozen=True)
class LeastSquares:
    """How a regression was solved, in the place of a solver."""

    loss: str
    weights: str | tuple[float, ...]

    def __str__(self) -> str:
        told = {"equal": "unweighted", "estimated": "weighted"}
        weighted = told.get(self.weights, "") if isinstance(self.weights, str) else "weighted as given"
        return f"least squares ({weighted}{'' if self.loss == 'squared' else ', ' + self.loss})"


class Explained(NamedTuple):
    """One log as rows of a form."""

    name: str
    time: np.ndarray
    phi: np.ndarray
    """(N, outputs, θ)"""
    y: np.ndarray
    """(N, outputs)"""
    motors: np.ndarray
    """(N, outputs, motors) force on each coordinate by a gain and a gear ratio of one"""
    notes: tuple[str, ...]
    signals: Any
    """how the log was filtered"""


class Weighted(NamedTuple):
    """Rows in units of their noise."""

    phi: np.ndarray
    """(N, outputs, θ)"""
    residual: np.ndarray
    """(N, outputs); 0 where missing"""
    triangle: np.ndarray


def fitted(
    form: MechanismForm,
    logs: list[Explained],
    phi: np.ndarray,
    y: np.ndarray,
    solution: LinearSolution,
    how: LeastSquares,
    begun: float,
    extra: dict[str, Any],
) -> Fit:
    """The fit of a solution."""
    numbers, free = form.numbers, form.free
    notes = [n for x in logs for n in x.notes]
    sigma, triangle = _noise(solution, y, how)
    near = consistent(numbers, triangle, solution.theta) if numbers.bodies else None
    if near is None:
        within, held = _bounded(numbers, triangle, solution.theta)
        notes += held
        chart = np.zeros(free.size)
        for value, e in zip(within, numbers.entries, strict=True):
            chart[e] = free.entries[e].theta(float(value))
        theta, slopes = _plain(numbers, chart)
    else:
        theta, chart, slopes = near.theta, near.chart, near.slopes
    root = np.ones_like(y) if solution.weights is None else np.sqrt(solution.weights)
    part = root / sigma
    rows = Weighted(phi * part[:, :, None], np.nan_to_num(phi @ theta - y) * part, triangle)
    if near is not None:
        off = np.nan_to_num(phi @ solution.theta - y) * part
        notes.append(_consistency(numbers, solution, off, rows.residual))
    covariance, enlarged, correlated = _covariance(solution, rows, slopes)
    notes += correlated
    solution = solution.with_covariance(enlarged)
    physical = physical_slope(free, chart)
    hidden = np.abs(physical) @ np.isinf(np.diag(covariance)).astype(float) > 0
    finite = np.where(np.isinf(covariance), 0.0, covariance)
    found = physical @ finite @ physical.T
    found[hidden] = found[:, hidden] = 0.0
    found[np.diag_indices(len(found))] = np.where(hidden, np.inf, np.diag(found))
    start = np.asarray(free.physical_numbers(free.theta0))
    parameters = _estimates(form, chart, found, start)
    cost = tuple(0.5 * float(np.nansum((part * (phi @ t - y)) ** 2)) for t in (numbers.start, theta))
    seconds = clock.perf_counter() - begun
    ends = (tuple(map(float, start)), tuple(p.value for p in parameters.values()))
    trace = tuple(Iteration(k, cost[k], 0.0, ends[k], 0.0, k * seconds, k + 1) for k in range(2))
    outcome = (
        f"Solved by least squares: {solution.rank} of {len(form.names)} numbers are told, alone or combined."
        if solution.converged
        else "The weights of rows did not settle."
    )
    channels = compared(form, logs, theta, sigma, isinstance(how.weights, str))
    return Fit(
        "regression", str(how), free, chart, parameters, {}, found, (cost[0], cost[1]), trace,
        channels, solution.converged, outcome, {"run": seconds},
        triangle @ slopes, tuple(dict.fromkeys(notes)),
        {"linear": solution, "form": form, "consistent": near, "signals": logs[0].signals, **extra},
    )  # fmt: skip


def _noise(solution: LinearSolution, y: np.ndarray, how: LeastSquares) -> tuple[np.ndarray, np.ndarray]:
    """Std by which rows were weighed, and the triangle of rows in units of it."""
    if how.weights == "estimated":
        return np.asarray(solution.scale), solution.triangle.R
    if how.weights == "equal":
        counts = np.isfinite(y).sum(0)
        common = float(np.sqrt(np.sum(counts * solution.scale**2) / counts.sum()))
        return np.full(y.shape[1], common), solution.triangle.R / common
    return np.array([float(w) for w in how.weights]), solution.triangle.R


def _bounded(numbers: LinearNumbers, triangle: np.ndarray, theta: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """θ within the bounds of its parameters, the nearest in the metric of the data, and what they held."""
    entries = [numbers.free.entries[e] for e in numbers.entries]
    lower, upper = np.array([p.bounds for p in entries], float).T
    outside = (theta < lower) | (theta > upper)
    if not outside.any():
        return theta, []
    size = np.linalg.norm(triangle, axis=0)
    scale = np.where(size > 0.0, size, 1.0)
    # what is not told stays where it is
    rows = np.concatenate([triangle / scale, HOLD * np.eye(len(theta))])
    right = rows @ (theta * scale)
    from scipy.optimize import lsq_linear  # a third of a second, which unbounded parameters need not wait for

    found = lsq_linear(rows, right, (lower * scale, upper * scale), method="bvls").x / scale
    texts = [
        f"{p.name} at {x:.4g} {p.unit}".rstrip() for p, x, o in zip(entries, theta, outside, strict=True) if o
    ]
    note = (
        f"Least squares alone would put {choices(texts)}, beyond bounds. What the bounds take, the others "
        "share as the data let them."
    )
    return np.clip(found, lower, upper), [note]


def _plain(numbers: LinearNumbers, chart: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """θ of parameters as a solver sees them, and its slopes."""
    found, by = numbers.free.numbers_with_slopes(chart)
    entries = list(numbers.entries)
    slopes = np.zeros((len(entries), len(chart)))
    slopes[np.arange(len(entries)), entries] = by[entries]
    return found[entries], slopes


def _covariance(
    solution: LinearSolution, rows: Weighted, slopes: np.ndarray
) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Of the parameters as a solver sees them (∞ where they are not told) and of θ along what is told.

    Both grow where neighbouring residuals are correlated.
    """
    inverse, in_chart = factored(rows.triangle).inverse, factored(rows.triangle @ slopes)
    by_chart = in_chart.inverse
    theta = solution.told
    # how much more than unit noise: robust losses, outputs that were not weighed by their noise
    share = np.diag(theta) / np.maximum(np.sum(inverse**2, 1), 1e-300)
    chart = by_chart @ by_chart.T * float(np.median(share[np.diag(theta) > 0])) if len(share) else by_chart
    r = rows.residual
    correlation = neighbours(r.ravel(), [(r.size, r.shape[1])])
    notes = []
    if correlation > 0.2 + 4.0 / np.sqrt(max(len(r), 1)) and np.any(np.abs(r) > 1e-6):
        J = rows.phi.reshape(r.size, -1)
        wide = sandwich(J, r.ravel(), [(r.size, r.shape[1])], inverse)
        theta = _enlarged(theta, wide)
        chart = _enlarged(chart, sandwich(J @ slopes, r.ravel(), [(r.size, r.shape[1])], by_chart))
        notes.append(
            f"Neighbouring residuals are correlated ({correlation:.2f}): they show the model's errors and what "
            "filters left, not noise. Standard deviations take these correlations into account, but not what a "
            "better model would change."
        )
    hidden = np.sum(in_chart.directions[:, in_chart.rank :] ** 2, 1) > HIDDEN
    chart[hidden] = chart[:, hidden] = 0.0
    chart[np.diag_indices(len(chart))] = np.where(hidden, np.inf, np.diag(chart))
    return chart, theta, notes


def _enlarged(usual: np.ndarray, wide: np.ndarray) -> np.ndarray:
    larger = np.sqrt(np.maximum(np.diag(wide) / np.maximum(np.diag(usual), 1e-300), 1.0))
    return usual * np.outer(larger, larger)


def _estimates(
    form: MechanismForm, chart: np.ndarray, covariance: np.ndarray, start: np.ndarray
) -> dict[str, Estimate]:
    free = form.free
    lower, upper = free.bounds()
    ten = {i for place in free._ten for i in place}
    stds = np.sqrt(np.diag(covariance))
    return {
        name: Estimate(
            name, q.value, float(stds[i]), q.unit, float(start[i]),
            -np.inf if i in ten else float(lower[i]), np.inf if i in ten else float(upper[i]),
        )
        for i, (name, q) in enumerate(free.physical(chart).items())
    }  # fmt: skip


def _consistency(
    numbers: LinearNumbers, solution: LinearSolution, before: np.ndarray, after: np.ndarray
) -> str:
    """What consistency takes, in a sentence."""
    impossible = [
        body
        for body, ten in numbers.bodies.items()
        if np.linalg.eigvalsh(np.asarray(pseudo_from_linear(solution.theta[ten]))).min() < 0.0  # type: ignore[arg-type]
    ]
    rms = [float(np.sqrt(np.mean(x**2))) for x in (before, after)]
    rise = f"the weighted residuals' rms from {rms[0]:.4g} to {rms[1]:.4g}"
    if not impossible:
        return f"The linear estimate is physically consistent as it is; consistent bodies take {rise}."
    return (
        f"The linear estimate of {', '.join(impossible)} belongs to no body with mass everywhere positive; the "
        f"nearest consistent numbers, in the metric of the data, take {rise}."
    )


def compared(
    form: MechanismForm, logs: list[Explained], theta: np.ndarray, sigma: np.ndarray, estimated: bool
) -> tuple[Compared, ...]:
    """Measured and predicted force on each coordinate."""
    gains = motor_gains(form, theta)
    result = []
    for log in logs:
        residual, measured = log.phi @ theta - log.y, log.motors @ gains
        for j, name in enumerate(form.outputs):
            seen = np.where(np.isfinite(residual[:, j]), measured[:, j], np.nan)
            result.append(
                Compared(
                    log.name, f"force on {name}", log.time, seen, residual[:, j], float(sigma[j]), estimated
                )
            )
    return tuple(result)


def motor_gains(form: MechanismForm, theta: np.ndarray) -> Any:
    """Gain times gear ratio of each motor."""
    blocks = form.free.lowering.layout.blocks
    if "motor" not in blocks:
        return np.zeros(0)
    at, rows, width = blocks["motor"]
    table = form.numbers.values(theta)[at : at + rows * width].reshape(rows, width)
    return table[:, 0] * table[:, 1]
