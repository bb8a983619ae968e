"""Least squares φ θ = y for tall φ: ordinary, weighted, robust, with what the rows do not tell.

All is read off the triangle R that rows are compressed to: with columns scaled to length one, its singular values
are the excitation of each direction (da Silva, Eq. 4.9), those that vanish tell what acts only together, and a QR
with pivoting which numbers stand for the others.

Nothing here knows of mechanisms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import scipy.linalg

from mechid.errors import MechidError, unknown
from mechid.estimate.triangle import Triangle, compress

TOLD = 1e-8
"""singular values of φ with columns of length one, as parts of the largest, below which a direction is not told"""
HIDDEN = 1e-12
"""square of a number's share in what is not told, in units of 1/column's length, from which on it counts"""
HUBER, TUKEY = 1.345, 4.685
"""constants under which 95 % of the efficiency is left where noise is Gaussian"""
MAD = 1.482602218505602
"""from the median of absolute values to the std of Gaussian noise"""
LOSSES = ("squared", "huber", "tukey")


@dataclass(frozen=True, eq=False)
class Base:
    """What rows tell: θ_i + Σ_k factors[i, k] θ_k for each independent i, over the dependent k."""

    names: tuple[str, ...]
    """of all of θ"""
    independent: tuple[int, ...]
    dependent: tuple[int, ...]
    silent: tuple[int, ...]
    """columns that are zero: these act nowhere"""
    factors: np.ndarray
    """(independent, dependent)"""
    values: np.ndarray
    std: np.ndarray

    @property
    def expressions(self) -> tuple[str, ...]:
        """In the names given: "a + 0.5·c"."""
        return tuple(self._expression(row) for row in range(len(self.independent)))

    def std_of(self, covariance: np.ndarray) -> np.ndarray:
        """Standard deviations of the base parameters for a covariance of θ along what is told."""
        select = np.zeros((len(self.independent), len(self.names)))
        select[np.arange(len(self.independent)), list(self.independent)] = 1.0
        select[:, list(self.dependent)] = self.factors
        return np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", select, covariance, select), 0.0))

    def combine(self, theta: np.ndarray) -> np.ndarray:
        """The base parameters that a θ has."""
        theta = np.asarray(theta, float)
        return theta[list(self.independent)] + self.factors @ theta[list(self.dependent)]

    def _expression(self, row: int) -> str:
        text = self.names[self.independent[row]]
        for k, factor in zip(self.dependent, self.factors[row], strict=True):
            if abs(factor) > 1e-7:
                size = "" if abs(abs(factor) - 1.0) < 1e-6 else f"{abs(factor):.4g}·"
                text += f" {'+' if factor > 0 else '−'} {size}{self.names[k]}"
        return text


@dataclass(frozen=True, eq=False)
class LinearSolution:
    """θ of least squares, what is known of it, and what the rows do not tell."""

    names: tuple[str, ...]
    theta: np.ndarray
    """of all θ that fit equally well the one nearest to the reference, columns scaled to length one"""
    told: np.ndarray
    """covariance along what is told"""
    triangle: Triangle
    """the weighted rows"""
    rank: int
    excitation: np.ndarray
    """(n,) singular values of the triangle with columns of length one, falling; zeros where a column is zero"""
    directions: np.ndarray
    """(n, n) the direction of θ, in units of 1/column's length, that belongs to each, as columns"""
    null: np.ndarray
    """(n, n − rank) changes of θ that change no row"""
    base: Base
    scale: np.ndarray
    """std of each output's residuals, as estimated; by median absolute deviation for robust losses"""
    weights: np.ndarray | None
    """(samples, outputs) in [0, 1] that a robust loss gave to rows; 0 where nothing was measured"""
    iterations: int
    converged: bool

    @property
    def covariance(self) -> np.ndarray:
        """Of θ; ∞ on the diagonal of one that is not told by itself, and else 0 there."""
        hidden = np.sum(self.directions[:, self.rank :] ** 2, 1) > HIDDEN
        shown = np.where(hidden[:, None] | hidden[None], 0.0, self.told)
        shown[np.diag_indices(len(shown))] = np.where(hidden, np.inf, np.diag(self.told))
        return shown

    @property
    def std(self) -> np.ndarray:
        """Standard deviations; ∞ where θ is not told by itself."""
        return np.sqrt(np.diag(self.covariance))

    @property
    def condition(self) -> float:
        """Largest by smallest excitation of what is told."""
        return float(self.excitation[0] / self.excitation[self.rank - 1]) if self.rank else np.inf

    def with_covariance(self, covariance: np.ndarray) -> LinearSolution:
        """The same with a covariance of what is told that was found otherwise."""
        return replace(self, told=covariance, base=replace(self.base, std=self.base.std_of(covariance)))


def solve(
    triangle: Triangle,
    names: Sequence[str],
    *,
    std: float | None = None,
    reference: np.ndarray | None = None,
    order: Sequence[int] | None = None,
) -> LinearSolution:
    """θ of rows that were compressed.

    std: of the noise of each row, if it is known; else it is estimated from what is left. reference: what θ is
    taken to be where it is not told (zeros). order: which columns to prefer as independent, first ones first; by
    pivoting otherwise.
    """
    n = triangle.R.shape[1]
    names = _checked_names(names, n)
    found = factored(triangle.R)
    start = np.zeros(n) if reference is None else np.asarray(reference, float)
    theta = start + found.inverse @ (found.left.T @ (triangle.d - triangle.R @ start))
    freedom = max(triangle.count - found.rank, 1)
    scale = np.sqrt(triangle.square(theta) / freedom) if std is None else float(std)
    C = found.inverse @ found.inverse.T * scale**2
    base = _base(names, triangle.R, found.rank, theta, C, order)
    return LinearSolution(
        names, theta, C, triangle, found.rank, found.values,
        found.directions, found.null, base, np.array([scale]), None, 1, True,
    )  # fmt: skip


def least_squares(
    phi: np.ndarray,
    y: np.ndarray,
    names: Sequence[str],
    *,
    std: Sequence[float] | np.ndarray | str | None = None,
    loss: str = "squared",
    reference: np.ndarray | None = None,
    order: Sequence[int] | None = None,
    limit: int = 50,
) -> LinearSolution:
    """θ of rows φ (N, m, n), y (N, m) of N samples with m outputs each; NaN in y where nothing was measured.

    std: None weighs all outputs alike, "estimated" by the inverse of each output's noise, found together with θ;
    or m numbers. The covariance knows the noise that each output turns out to have. loss: "squared", "huber" or
    "tukey"; the latter two weigh each row by how far it lies off, in units of 1.48 times the median distance of its
    output, again and again until θ stays.
    """
    phi, y = np.asarray(phi, float), np.asarray(y, float)
    if phi.ndim == 2:
        phi, y = phi[:, None], y.reshape(-1, 1)
    if phi.shape[:2] != y.shape:
        raise MechidError(
            f"The rows of the linear equations do not fit: φ is {phi.shape}, y is {y.shape}; φ is (samples, "
            "outputs, parameters) and y (samples, outputs)."
        )
    if loss not in LOSSES:
        raise unknown("loss", loss, LOSSES)
    m = y.shape[1]
    given = _given(std, m)
    triangles = [compress(phi[:, j], y[:, j]) for j in range(m)]
    solution = _weighted(triangles, names, given, reference, order)
    # Tukey's loss has several minima: its search begins at Huber's
    for kind in LOSSES[1 : LOSSES.index(loss) + 1]:
        solution = _reweighted(phi, y, triangles, solution, kind, given, reference, order, limit)
    return solution


def _given(std: Sequence[float] | np.ndarray | str | None, m: int) -> np.ndarray:
    """Std of each output; NaN where it is to be estimated."""
    if std is None:
        return np.ones(m)
    if isinstance(std, str):
        if std != "estimated":
            raise unknown("choice of std", std, ("estimated",))
        return np.full(m, np.nan)
    given = np.broadcast_to(np.asarray(std, float), (m,)).copy()
    if np.any(given <= 0.0):
        raise MechidError(f"A std of {given.min():g} cannot weigh an output: give one above zero.")
    return given


def _weighted(
    triangles: list[Triangle],
    names: Sequence[str],
    given: np.ndarray,
    reference: np.ndarray | None,
    order: Sequence[int] | None,
) -> LinearSolution:
    """θ with each output weighed by its std, which is found by turns with θ where it is not given."""
    own = np.isnan(given)
    sigma = np.where(own, 1.0, given)
    iterations, converged = 0, False
    while not converged and iterations < 50:
        iterations += 1
        solution = solve(_stacked(triangles, sigma), names, std=1.0, reference=reference, order=order)
        scale = _noise(triangles, sigma, solution)
        changed = np.where(own, scale, sigma)
        converged = bool(np.all(np.abs(changed - sigma) <= 1e-6 * sigma))
        sigma = changed
    even = np.ones(len(triangles))
    covariance = _covariance(triangles, sigma, scale, even, even)
    return replace(solution, scale=scale, iterations=iterations, converged=converged).with_covariance(
        covariance
    )


def _covariance(
    triangles: list[Triangle], sigma: np.ndarray, scale: np.ndarray, slope: np.ndarray, square: np.ndarray
) -> np.ndarray:
    """H⁻¹ S H⁻¹ of rows weighed by 1/σ², whose noise has the std `scale`.

    H = Σ slope/σ² φᵀφ and S = Σ square·scale²/σ⁴ φᵀφ over the outputs, with slope = E[ψ'] and square = E[ψ²]:
    Huber's covariance (1981), output by output.
    """
    inverse = factored(_stacked(triangles, sigma / np.sqrt(slope)).R).inverse
    spread = _stacked(triangles, sigma**2 / (scale * np.sqrt(square))).R
    half = inverse @ (spread @ inverse).T
    return half @ half.T


def _stacked(triangles: list[Triangle], sigma: np.ndarray) -> Triangle:
    total = Triangle.empty(triangles[0].R.shape[1])
    for triangle, s in zip(triangles, sigma, strict=True):
        total = total.plus(triangle.times(1.0 / s))
    return total


def _noise(triangles: list[Triangle], sigma: np.ndarray, solution: LinearSolution) -> np.ndarray:
    """Std of each output's residuals; the parameters that its rows determine are taken off its count."""
    inverse, found = factored(solution.triangle.R).inverse, []
    for triangle, s in zip(triangles, sigma, strict=True):
        used = np.sum((triangle.R @ inverse) ** 2) / s**2
        square = triangle.square(solution.theta) / max(triangle.count - used, 1.0)
        # what is left of an exact fit is rounding
        smallest = 1e-28 * (np.sum(triangle.d**2) + triangle.rest) / max(triangle.count, 1)
        found.append(np.sqrt(max(square, smallest, 1e-300)))
    return np.array(found)


def _reweighted(
    phi: np.ndarray,
    y: np.ndarray,
    triangles: list[Triangle],
    solution: LinearSolution,
    loss: str,
    given: np.ndarray,
    reference: np.ndarray | None,
    order: Sequence[int] | None,
    limit: int,
) -> LinearSolution:
    """θ of a robust loss by least squares whose weights follow from the last residuals."""
    weigh, slope = _LOSSES[loss]
    smallest = max(1e-14 * float(np.sqrt(np.nanmean(y**2))), 1e-300)
    own, seen = np.isnan(given), np.isfinite(y)

    def off(theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Residuals in units of their scale, 0 where nothing was measured, and the scale."""
        r = phi @ theta - y
        scale = np.maximum(MAD * np.nanmedian(np.abs(r), axis=0), smallest)
        return np.nan_to_num(r) / scale, scale

    iterations, converged = 0, False
    e, scale = off(solution.theta)
    sigma, weights = scale, np.ones_like(y)
    while not converged and iterations < limit:
        iterations += 1
        sigma = np.where(own, scale, given)
        weights = np.where(seen, weigh(e), 0.0)
        before = solution.theta
        triangle = compress(phi, y, weights / sigma**2)
        solution = solve(triangle, solution.names, std=1.0, reference=reference, order=order)
        e, scale = off(solution.theta)
        moved = np.linalg.norm(triangle.R @ (solution.theta - before))
        converged = bool(moved <= 1e-3 * np.sqrt(np.mean((scale / sigma) ** 2)))
    counts = seen.sum(0)
    slopes = np.sum(slope(e) * seen, 0) / counts
    squares = np.sum((weigh(e) * e) ** 2 * seen, 0) / (counts - solution.rank * counts / counts.sum())
    covariance = _covariance(triangles, sigma, scale, slopes, squares)
    return replace(
        solution, scale=scale, weights=weights, iterations=iterations, converged=converged
    ).with_covariance(covariance)


_LOSSES: dict[str, tuple[Callable[[np.ndarray], np.ndarray], Callable[[np.ndarray], np.ndarray]]] = {
    "huber": (
        lambda e: HUBER / np.maximum(np.abs(e), HUBER),
        lambda e: (np.abs(e) <= HUBER).astype(float),
    ),
    "tukey": (
        lambda e: np.clip(1.0 - (e / TUKEY) ** 2, 0.0, None) ** 2,
        lambda e: np.where(np.abs(e) < TUKEY, (1.0 - (e / TUKEY) ** 2) * (1.0 - 5.0 * (e / TUKEY) ** 2), 0.0),
    ),
}
"""weight ψ(e)/e and slope ψ'(e) of a residual e in units of its scale"""


class Factored(NamedTuple):
    inverse: np.ndarray
    """(n, rank) A with A Aᵀ = (RᵀR)⁻¹ over what is told"""
    left: np.ndarray
    """(k, rank) so that A leftᵀ is the inverse of R"""
    values: np.ndarray
    directions: np.ndarray
    null: np.ndarray
    rank: int


def factored(R: np.ndarray) -> Factored:
    n = R.shape[1]
    size = np.linalg.norm(R, axis=0)
    scale = np.where(size > 0, size, 1.0)
    U, s, V = np.linalg.svd(R / scale, full_matrices=True)
    s = np.concatenate([s, np.zeros(n - len(s))])
    rank = int(np.sum(s > TOLD * s.max(initial=0.0)))
    V = V.T
    inverse = V[:, :rank] / s[:rank] / scale[:, None]
    null = V[:, rank:] / scale[:, None]
    null = null / np.maximum(np.linalg.norm(null, axis=0), 1e-300)
    return Factored(inverse, U[:, :rank], s, V, null, rank)


def _base(
    names: tuple[str, ...],
    R: np.ndarray,
    rank: int,
    theta: np.ndarray,
    covariance: np.ndarray,
    order: Sequence[int] | None,
) -> Base:
    size = np.linalg.norm(R, axis=0)
    acting = np.flatnonzero(size > 1e-10 * size.max(initial=0.0))
    unit = R[:, acting] / size[acting]
    place = {int(i): j for j, i in enumerate(acting)}
    picked = _picked(unit, rank, None if order is None else [place[i] for i in order if i in place])
    others = [j for j in range(len(acting)) if j not in set(picked)]
    independent, dependent = acting[picked], acting[others]
    factors = np.zeros((len(picked), len(others)))
    if picked and others:
        factors = np.linalg.lstsq(unit[:, picked], unit[:, others], rcond=None)[0]
        # columns were divided by their lengths
        factors = factors * size[dependent] / size[independent][:, None]
    silent = [i for i in range(len(names)) if i not in set(acting.tolist())]
    values = theta[independent] + factors @ theta[dependent]
    base = Base(names, _ints(independent), _ints(dependent), _ints(silent), factors, values, values)
    return replace(base, std=base.std_of(covariance))


def _picked(unit: np.ndarray, rank: int, order: Sequence[int] | None) -> list[int]:
    """As many independent columns as there are: by pivoting, or the first of an order that add something."""
    if order is None:
        pivots = scipy.linalg.qr(unit, mode="r", pivoting=True)[-1]
        return sorted(int(i) for i in pivots[:rank])  # type: ignore[index]
    kept: list[int] = []
    basis = np.zeros((len(unit), 0))
    for j in order:
        left = unit[:, j] - basis @ (basis.T @ unit[:, j])
        left -= basis @ (basis.T @ left)
        if len(kept) < rank and np.linalg.norm(left) > 1e-6:
            basis = np.column_stack([basis, left / np.linalg.norm(left)])
            kept.append(int(j))
    return sorted(kept)


def _checked_names(names: Sequence[str], n: int) -> tuple[str, ...]:
    if len(names) != n:
        raise MechidError(f"{len(names)} names were given for {n} columns of the linear equations.")
    return tuple(names)


def _ints(of: Sequence[int] | np.ndarray) -> tuple[int, ...]:
    return tuple(int(i) for i in of)
