"""Covariance of the parameters from the weighted sensitivities at the solution.

    C = (Jᵀ J)⁻¹   with first states (and segments) projected out

for residuals that are white and of the given std. Where they are larger than stated C is scaled up; where they are
correlated in time, a sandwich estimate with the residuals' own correlations (Newey and West) takes its place.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg

from mechid.compile import jit
from mechid.dynamics.tree import Array
from mechid.estimate.problem import ShootingProblem
from mechid.estimate.solvers.problem import Point
from mechid.model.parameters import Parameters

TOLD = 1e-8
"""singular values below this part of the largest, of sensitivities scaled to unit columns, count as zero"""


SILENT = 1e-6
"""standard deviations, all samples together: a parameter by whose whole value residuals change less is not told"""

SEGMENTED = 1e-7
"""part of a value below which no standard deviation is given where segments are joined by rounded numbers"""


class Uncertainty(NamedTuple):
    covariance: np.ndarray
    """of the parameters' physical values"""
    start_std: np.ndarray
    """std of every unknown of y, as the solver sees it"""
    sensitivities: np.ndarray
    """(n, n) triangle of the weighted sensitivities by θ, all else projected out"""
    misfit: float
    """root mean square of the weighted residuals: 1 where noise is as stated"""
    correlation: float
    """largest correlation of a channel's neighbouring residuals"""
    notes: tuple[str, ...]


def uncertainty(problem: ShootingProblem, point: Point) -> Uncertainty:
    """Covariance at a solution, and what has to be said of it."""
    free, n = problem.free, problem.size
    nt = free.size
    notes: list[str] = []
    if not problem.least_squares:
        nothing = np.full((nt, nt), np.inf)
        notes.append("A cost of your own has no standard deviations: they belong to weighted squares.")
        return Uncertainty(nothing, np.full(n, np.inf), np.zeros((0, nt)), np.nan, np.nan, tuple(notes))
    r, J, C = problem.rows(point)
    groups = [x for s, run in zip(problem.shootings, point.runs, strict=True) for x in _shown(s, run)]
    lengths = [(x.size, x.shape[1]) for x in groups]
    present = int(sum(np.count_nonzero(x) for x in groups))
    return assessed(problem, point.y, Rows(r, J, C, lengths, present))


def _shown(s: Any, run: Any) -> Any:
    return run.residuals[:-1] if s.continued else run.residuals


class Rows(NamedTuple):
    """Weighted residuals at a solution with their slopes by y, states (where they are unknowns) following."""

    r: np.ndarray
    J: np.ndarray
    C: np.ndarray
    """slopes of equality rows"""
    lengths: list[tuple[int, int]]
    """(rows, channels) of each group of samples, in order"""
    present: int
    """samples"""
    errors: int = 0
    """rows of state errors, which come next; priors come last"""


def assessed(problem: ShootingProblem, y: np.ndarray, rows: Rows) -> Uncertainty:
    """Covariance from residuals and slopes, and what has to be said of it."""
    free, n = problem.free, problem.size
    nt = free.size
    notes: list[str] = []
    slope = physical_slope(free, y[:nt])
    r, J, C, lengths, present, errors = rows
    J = _heard(J, y, nt)
    count = int(sum(length for length, _ in lengths))
    # motions that stay whole: y = Z z with C Z = 0
    Z = np.eye(n) if not len(C) else scipy.linalg.null_space(C)
    J = J @ Z if len(C) else J
    triangle = np.asarray(np.linalg.qr(J, mode="r"))
    inverse, lost = inverse_of(triangle)
    full = Z @ (inverse @ inverse.T) @ Z.T
    unknown = np.sum((Z @ lost) ** 2, 1) > 1e-6
    samples = r[:count]
    freedom = max(present - J.shape[1], 1)
    square = r[: count + errors] @ r[: count + errors]
    misfit = float(np.sqrt(square / freedom))
    factor = 1.0
    given = any(not np.isnan(g.std).all() for s in problem.shootings for g in s.groups)
    if given and misfit > 1.0 + 4.0 / np.sqrt(2.0 * freedom):
        factor = misfit
        notes.append(
            f"The residuals are {misfit:.3g} times the stated noise: the model does not explain all of the data; "
            "standard deviations are scaled up by that factor."
        )
    elif not given:
        factor = float(np.sqrt(present / freedom))
    usual = full * factor**2
    correlation = neighbours(samples, lengths)
    if misfit > 1e-6 and correlation > 0.2 + 4.0 / np.sqrt(max(present, 1)):
        robust = Z @ sandwich(J, r, lengths, inverse) @ Z.T
        larger = np.sqrt(np.maximum(np.diag(robust) / np.maximum(np.diag(usual), 1e-300), 1.0))
        usual = usual * np.outer(larger, larger)
        notes.append(
            f"Neighbouring residuals are correlated ({correlation:.2f}): they show the model's errors, not noise. "
            "Standard deviations take these correlations into account, but not what a better model would change."
        )
    floor = SEGMENTED * np.abs(y)
    segmented = any(f is not None for f in problem.follows)
    if segmented and np.any(np.diag(usual)[:nt] < floor[:nt] ** 2):
        usual = usual + np.diag(floor**2)
        notes.append(
            f"Small changes grow so much along this motion that rounding limits what can be told: standard "
            f"deviations are not given below {SEGMENTED:g} of a value."
        )
    covariance = slope @ usual[:nt, :nt] @ slope.T
    hidden = np.abs(slope) @ unknown[:nt].astype(float) > 0
    covariance[hidden] = covariance[:, hidden] = 0.0
    covariance[np.diag_indices(nt)] = np.where(hidden, np.inf, np.diag(covariance))
    stds = np.sqrt(np.where(unknown, np.inf, np.diag(usual)))
    return Uncertainty(covariance, stds, _projected(triangle, Z, nt), misfit, correlation, tuple(notes))


def _heard(J: np.ndarray, y: np.ndarray, count: int) -> np.ndarray:
    """Slopes without those of parameters that may as well be anything: what is left of these is rounding."""
    size = np.where(y == 0.0, 1.0, np.abs(y))[:count]
    heard = np.ones(J.shape[1], bool)
    heard[:count] = np.linalg.norm(J[:, :count], axis=0) * size > SILENT
    return J * heard


def _projected(J: np.ndarray, Z: np.ndarray, count: int) -> np.ndarray:
    """A triangle with the norms of J's rows, or of its triangle's, along the first unknowns, all others free to
    follow."""
    n = Z.shape[1]
    # turn z so that the last directions move θ and all others do not
    _, _, V = np.linalg.svd(Z[:count])
    turned = V.T[:, np.r_[count:n, 0:count]]
    triangle = np.asarray(np.linalg.qr(J @ turned, mode="r"))
    last = np.zeros((count, count))
    rows = triangle[n - count : n, n - count :]
    last[: len(rows)] = rows
    by_theta = Z[:count] @ turned[:, n - count :]
    return last @ np.linalg.inv(by_theta)


def inverse_of(triangle: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A with A Aᵀ = (JᵀJ)⁻¹ over what J, or its triangle, tells, and the directions that it does not."""
    size = np.linalg.norm(triangle, axis=0)
    scale = np.where(size > 0, size, 1.0)
    _, s, V = np.linalg.svd(triangle / scale)
    s = np.concatenate([s, np.zeros(V.shape[0] - len(s))])
    told = s > TOLD * s.max(initial=0.0)
    lost = V[~told].T / scale[:, None]
    lost = lost / np.maximum(np.linalg.norm(lost, axis=0), 1e-300)
    return (V[told].T / s[told]) / scale[:, None], lost


def neighbours(r: np.ndarray, lengths: list[tuple[int, int]]) -> float:
    """Largest correlation between neighbouring residuals of a channel."""
    worst, at = 0.0, 0
    for length, width in lengths:
        rows = r[at : at + length].reshape(-1, width)
        at += length
        if len(rows) < 20:
            continue
        power = np.sum(rows**2, 0)
        with np.errstate(invalid="ignore", divide="ignore"):
            found = np.sum(rows[1:] * rows[:-1], 0) / power
        worst = max(worst, float(np.nanmax(found, initial=0.0)))
    return worst


def sandwich(J: np.ndarray, r: np.ndarray, lengths: list[tuple[int, int]], inverse: np.ndarray) -> np.ndarray:
    """H⁻¹ S H⁻¹ with S = Σ over lags of the scores' covariances, weights falling linearly."""
    n = J.shape[1]
    S, at = np.zeros((n, n)), 0
    for length, width in lengths:
        scores = np.einsum(
            "tci,tc->ti", J[at : at + length].reshape(-1, width, n), r[at : at + length].reshape(-1, width)
        )
        at += length
        lags = min(len(scores) - 1, int(np.ceil(4.0 * len(scores) ** (1 / 2))))
        S += bartlett(scores, lags)
    C = inverse @ inverse.T
    return C @ S @ C


def bartlett(scores: np.ndarray, lags: int) -> np.ndarray:
    """Γ_0 + Σ_l w_l (Γ_l + Γ_lᵀ) with weights that fall linearly: the mean square of sums over lags + 1 samples."""
    still = np.zeros((lags + 1, scores.shape[1]))
    sums = np.cumsum(np.concatenate([still, scores, still[1:]]), axis=0)
    moving = sums[lags + 1 :] - sums[: -lags - 1]
    return moving.T @ moving / (lags + 1)


def physical_slope(free: Parameters, theta: np.ndarray) -> np.ndarray:
    """∂(physical values)/∂θ."""
    if not any(p.body for p in free.entries):
        return np.diag(free.numbers_with_slopes(theta)[1])
    return np.asarray(_physical_slope(free, jnp.asarray(theta, float)))


@partial(jit, once=True, static_argnums=(0,))
def _physical_slope(free: Parameters, theta: Array) -> Array:
    return jax.jacfwd(free.physical_numbers)(theta)
