"""`Reduced`: what is left of y = φ(ω) θ for ω when θ follows by least squares (variable projection).

    f(ω) = min over θ of ½ ‖(y − φ(ω) θ)/σ‖²,   ∇f = −((∂φ/∂ω) θ)ᵀ r

(Golub & Pereyra 1973; steps in Kaufman's form). One orthogonal triangle of [φ  (∂φ/∂ω)θ  y] gives θ, the step, the
gradient and the covariance of θ and ω together.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.linalg import blas, lapack

from mechid.estimate.linear import solve
from mechid.estimate.linear_form import LinearForm
from mechid.estimate.triangle import Triangle

Array = np.ndarray
_qr = lapack.dgeqrf  # type: ignore[attr-defined]

_solve = blas.dtrsv  # type: ignore[attr-defined]

STEPS = 50
"""of a descent at most"""
IN_A_ROW, SHARE = 2, 0.05
"""samples that may lie off together and still count as outliers; part of all that may"""
SPIKE = 10.0
"""times what 99 % of a column stay below, from which on a single sample of it is a spike"""


@dataclass(frozen=True, eq=False)
class Reduced:
    """The problem that is left of ω when θ follows by least squares."""

    form: LinearForm
    samples: Array
    scale: Array
    """std of each output, by which rows are divided"""
    missing: Array
    """(N m,) rows that hold no measurement"""

    @staticmethod
    def of(form: LinearForm, samples: Array, noise: Array | None, at: Array) -> Reduced:
        """The problem of samples; where no noise is given outputs are weighed by their residuals at ω."""
        phi, y = form.rows(samples, at)
        missing = ~(np.isfinite(y) & np.isfinite(phi).all(axis=-1))
        if noise is not None:
            return Reduced(form, samples, noise, missing.ravel())
        size = np.sqrt(np.sum(np.where(missing, 0.0, y) ** 2, axis=0) / np.maximum((~missing).sum(axis=0), 1))
        scale = np.where(size > 0.0, size, 1.0)
        return Reduced(form, samples, scale, missing.ravel()).with_noise(at)

    @property
    def present(self) -> int:
        """Rows that hold a measurement."""
        return int(np.count_nonzero(~self.missing))

    def thinned(self, count: int) -> Reduced:
        """The same of no more than `count` samples, evenly taken."""
        if len(self.samples) <= count:
            return self
        picked = np.linspace(0, len(self.samples) - 1, count).astype(int)
        missing = self.missing.reshape(len(self.samples), -1)[picked].ravel()
        return replace(self, samples=self.samples[picked], missing=missing)

    def without_outliers(self, omega: Array, beyond: float) -> Reduced:
        """The same without single samples that lie `beyond` robust standard deviations off the best θ's outputs.

        One that is large enough hides others and bends θ: they are looked for again until they stay the same.
        """
        phi, y = self.form.rows(self.samples, omega)
        # least squares would meet a spike in φ exactly, and residuals would not show it
        present = np.isfinite(y) & np.isfinite(phi).all(axis=-1) & ~spiking(phi)
        kept = self
        for _ in range(10):
            left = np.where(present, y - np.nan_to_num(phi) @ kept.theta(omega), np.nan)
            missing = (~present | outlying(left, beyond)).ravel()
            if np.array_equal(missing, kept.missing):
                break
            kept = replace(self, missing=missing)
        return kept

    def with_noise(self, omega: Array) -> Reduced:
        """The same with the noise of its residuals."""
        return replace(self, scale=self.residual_std(omega))

    def rows(self, omega: Array) -> tuple[Array, Array]:
        """φ (N m, n) and y (N m,), divided by the noise; zeros where something is missing."""
        phi, y = self.form.rows(self.samples, omega)
        flat, right = (phi / self.scale[:, None]).reshape(-1, phi.shape[-1]), (y / self.scale).ravel()
        if self.missing.any():
            flat[self.missing], right[self.missing] = 0.0, 0.0
        return flat, right

    def square(self, omega: Array) -> float:
        """‖(y − φ θ)/σ‖² of the best θ; ∞ where rows are not finite."""
        found = _turned(*self.rows(omega))[-1, -1] ** 2
        return float(found) if np.isfinite(found) else np.inf

    def criterion(self, which: str) -> Any:
        """(5.3) or (5.4) as a function of ω."""
        if which == "norm":
            return lambda omega: float(np.sqrt(self.square(omega)))
        return lambda omega: 0.5 * self.square(omega)

    def linear(self, omega: Array) -> Triangle:
        """Of φ: what the residuals of a step in θ are."""
        return self._triangle(_turned(*self.rows(omega)))

    def triangle(self, omega: Array) -> Triangle:
        """Of [φ  (∂φ/∂ω)θ], with θ the best: what the residuals of a step in θ and ω are."""
        flat, right = self.rows(omega)
        turned = _turned(flat, right)
        k = len(omega)
        if not k:
            return self._triangle(turned)
        slopes = self._slopes(omega) / self.scale[:, None]
        moved = (slopes @ self._best(turned)).reshape(k, -1)
        moved[:, self.missing] = 0.0
        return self._triangle(_turned(np.column_stack([flat, moved.T]), right))

    def _triangle(self, turned: Array) -> Triangle:
        return Triangle(turned[:-1, :-1], turned[:-1, -1], float(turned[-1, -1] ** 2), self.present)

    def _best(self, turned: Array) -> Array:
        """θ of a triangle [R d], of the smallest change where it is not told."""
        R, d = turned[:-1, :-1], turned[:-1, -1]
        if np.all(np.abs(np.diag(R)) > 1e-7 * np.linalg.norm(R, axis=0)):
            return _solve(R, d)
        return solve(self._triangle(turned), self.form.names, std=1.0).theta

    def gradient(self, omega: Array) -> Array:
        """Of (5.3), exact: θ follows, but moves nothing at first order."""
        t = self.triangle(omega)
        n = len(self.form.names)
        return -t.R[n:, n:].T @ t.d[n:]

    def theta(self, omega: Array) -> Array:
        """The best θ."""
        return self._best(_turned(*self.rows(omega)))

    def sensitivity(self, omega: Array) -> Array:
        """∂θ/∂ω (n, k) of the best θ, as far as residuals do not matter beside what is measured."""
        n = len(self.form.names)
        R = self.triangle(omega).R
        # least squares: directions that the samples do not tell do not move
        return -np.linalg.lstsq(R[:n, :n], R[:n, n:], rcond=1e-12)[0]

    def residual_std(self, omega: Array) -> Array:
        """Of each output at the best θ."""
        phi, y = self.form.rows(self.samples, omega)
        missing = self.missing.reshape(y.shape)
        left = np.where(missing, 0.0, y - phi @ self.theta(omega))
        freedom = np.maximum((~missing).sum(axis=0) - phi.shape[-1] / phi.shape[1], 1.0)
        # what is left of an exact fit is rounding
        return np.maximum(np.sqrt(np.sum(left**2, axis=0) / freedom), 1e-12 * self.scale)

    def _slopes(self, omega: Array) -> Array:
        own = getattr(self.form, "slopes", None)
        if own is not None:
            return own(self.samples, omega)
        made = []
        for i, value in enumerate(omega):
            h = 6e-6 * max(abs(float(value)), 1e-3)
            step = np.zeros(len(omega))
            step[i] = h
            ahead, behind = (self.form.rows(self.samples, omega + s)[0] for s in (step, -step))
            made.append((ahead - behind) / (2.0 * h))
        return np.array(made)


def outlying(left: Array, beyond: float) -> Array:
    """Which of the residuals (N, outputs) are single ones that lie that many robust standard deviations off.

    Many in a row, or with neighbours that lie half as far off, are no outliers: there the form is wrong.
    """
    found = np.zeros(left.shape, bool)
    for j, column in enumerate(np.abs(left).T):
        there = np.flatnonzero(np.isfinite(column))
        if not len(there):
            continue
        size = column[there]
        spread = 1.4826 * float(np.median(size))
        # where most is met exactly, what is left is rounding
        far = np.flatnonzero(size > beyond * max(spread, 1e-12 * float(size.max())))
        if not 0 < len(far) <= SHARE * len(there):
            continue
        for run in np.split(far, np.flatnonzero(np.diff(far) > 1) + 1):
            around = size[max(run[0] - 1, 0) : run[-1] + 2]
            if len(run) <= IN_A_ROW and np.sum(around > 0.5 * size[run].max()) <= len(run):
                found[there[run], j] = True
    return found


def spiking(phi: Array) -> Array:
    """Rows (N, outputs) of φ in which a column is a single spike, far above nearly all of its values."""
    if not len(phi):
        return np.zeros(phi.shape[:-1], bool)
    size = np.abs(np.nan_to_num(phi))
    usual = np.quantile(size, 0.99, axis=0)
    far = (usual > 0.0) & (size > SPIKE * usual)
    # what moves smoothly has neighbours that are as large
    padded = np.pad(size, ((1, 1), (0, 0), (0, 0)))
    alone = ~(np.maximum(padded[:-2], padded[2:]) > 0.5 * size)
    return np.any(far & alone, axis=-1)


def _turned(flat: Array, right: Array) -> Array:
    """The triangle [R d; 0 ρ] of rows φ θ = y."""
    n = flat.shape[1]
    block = np.zeros((max(len(flat), n + 1), n + 1), order="F")
    block[: len(flat), :n], block[: len(flat), n] = flat, right
    return np.triu(_qr(block, lwork=64 * (n + 1), overwrite_a=1)[0][: n + 1])


def descended(
    reduced: Reduced, omega: Array, low: Array, high: Array, limit: int = STEPS
) -> tuple[Array, int, bool]:
    """ω after damped steps of Gauss and Newton inside bounds, how many, and whether they came to an end."""
    n = len(reduced.form.names)
    damping, square, steps = 1e-3, reduced.square(omega), 0
    while steps < limit:
        t = reduced.triangle(omega)
        R, d = t.R[n:, n:], t.d[n:]
        gradient = -R.T @ d
        free = ~(((omega <= low) & (gradient > 0.0)) | ((omega >= high) & (gradient < 0.0)))
        size = np.linalg.norm(R, axis=0)
        free &= size > 0.0
        if not free.any():
            return omega, steps, True
        while True:
            steps += 1
            block = np.vstack([R[:, free], np.sqrt(damping) * np.diag(size[free])])
            step = np.zeros_like(omega)
            step[free] = np.linalg.lstsq(block, np.append(d, np.zeros(int(free.sum()))), rcond=None)[0]
            tried = np.clip(omega + step, low, high)
            moved = tried - omega
            new = reduced.square(tried)
            if new < square:
                damping = max(0.1 * damping, 1e-12)
                break
            damping *= 10.0
            # steps that do not matter beside rounding or noise
            if np.linalg.norm(R @ moved) <= 1e-6 * np.sqrt(max(square, 1e-300)) or damping > 1e12:
                return omega, steps, True
            if steps >= limit:
                return omega, steps, False
        small = np.linalg.norm(R @ moved) <= 1e-7 * np.sqrt(max(square, 1e-300))
        omega, square = tried, new
        if small:
            return omega, steps, True
    return omega, steps, False
