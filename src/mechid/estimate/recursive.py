"""`Recursive`: least squares y = φ θ, a sample at a time, with standard deviations at any time.

What is known is kept as a triangle [R d]: ‖R θ − d‖² + const is the sum of all weighted squares so far, so R θ = d
gives the estimate and σ²(RᵀR)⁻¹ its covariance. A row (φ, y), divided by its noise, is brought in by an orthogonal
transformation. Covariances are never updated themselves, so none can lose its sign.

Forgetting has two parts (1 − λ = s/N₀ in sum, as Fortescue's: s is the mean square of the last innovations over
what noise and the estimate's own uncertainty explain, N₀ the memory):

- what a sample takes away while all is quiet, only along its own φ (Kulhavý's): the variance h of φθ becomes h/λ,
  with 1 − λ = min(n/(m N₀), h), so that N₀ samples of all directions are remembered. It takes no more than it
  brings: where nothing is excited, nothing is forgotten;
- when s exceeds an alarm, measurements contradict the estimate: all directions are forgotten evenly, with
  1 − λ = s/N₀, towards an estimate that is only known to `reset` (std of each parameter).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import blas, lapack

from mechid.errors import MechidError
from mechid.estimate.triangle import Triangle

Array = np.ndarray
# LAPACK's dtrtrs is threaded at any size, which costs a hundred times what the small systems here take
_solve = blas.dtrsv  # type: ignore[attr-defined]
_dot = blas.ddot  # type: ignore[attr-defined]
_rank_one = blas.dger  # type: ignore[attr-defined]
_qr = lapack.dgeqrf  # type: ignore[attr-defined]
_inverse = lapack.dtrtri  # type: ignore[attr-defined]
_absorb = lapack.dtpqrt  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Forgetting:
    """How fast the past loses its weight."""

    memory: float = 2000.0
    """N₀, samples; ∞ forgets nothing"""
    alarm: float = 4.0
    """mean square of the innovations, 1 where the model holds, above which everything is forgotten evenly"""
    smoothing: float = 10.0
    """samples over which that mean is taken"""
    fastest: float = 0.1
    """largest share that one sample may make forgotten"""

    def __post_init__(self) -> None:
        for name, least in (("memory", 1.0), ("alarm", 1.0), ("smoothing", 1.0)):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not value >= least:
                raise MechidError(f"{name} of Forgetting must be a number ≥ {least:g}, not {value!r}.")
        if not isinstance(self.fastest, int | float) or not 0.0 <= self.fastest < 1.0:
            raise MechidError(
                f"fastest of Forgetting must be a number from 0 to below 1, not {self.fastest!r}."
            )


class Recursive:
    """A running estimate of n numbers. Its state is `triangle`, `surprise`, `misfit` and `beyond`."""

    def __init__(
        self,
        theta: Sequence[float] | Array,
        std: Sequence[float] | Array,
        noise: Sequence[float] | Array,
        forgetting: Forgetting | None = None,
        reset: Sequence[float] | Array | None = None,
    ) -> None:
        """`theta` ± `std`: what is known at first; `noise`: std of each output, in its unit.

        `reset`: how well each parameter is still known when everything is forgotten (default: `std`).
        """
        start, first = np.array(theta, float), np.array(std, float)
        self.noise = np.array(noise, float)
        self.n, self.m = len(start), len(self.noise)
        self.reset = first.copy() if reset is None else np.array(reset, float)
        for what, values in (("std", first), ("reset", self.reset)):
            if values.shape != start.shape or not np.all((values > 0.0) & np.isfinite(values)):
                raise MechidError(f"{what} must be {self.n} positive, finite numbers, not {values.tolist()}.")
        if not np.all((self.noise > 0.0) & np.isfinite(self.noise)):
            raise MechidError(f"The noise of outputs must be positive and finite, not {self.noise.tolist()}.")
        self.forgetting = forgetting or Forgetting()
        self.triangle = np.zeros((self.n + 1, self.n + 1), order="F")
        """[R d; 0 1]"""
        self.surprise = 1.0
        """mean square of the last innovations over what is expected of them"""
        self.misfit = 1.0
        """the same over the whole memory, of quiet times: what standard deviations are scaled up by"""
        self.beyond = np.inf
        """squared standard deviations of an innovation above which a row is passed over in quiet times"""
        self.passed: list[int] = []
        """rows of the last sample that were"""
        self.latest = 1.0
        """mean square of the last sample's other innovations over what is expected of them"""
        self.know(np.diag(1.0 / first), start / first)
        self._inverse = 1.0 / self.noise
        self._above = np.asfortranarray(np.triu(np.ones_like(self.triangle)))
        self._row = np.zeros(self.n + 1)
        self._work = int(_qr(self.triangle, lwork=-1)[2][0])

    # -- a sample ------------------------------------------------------------------------------------------

    def update(self, phi: Array, y: Array) -> float:
        """Takes in φ (m, n) and y (m,) and returns the surprise; rows with a NaN are missing and passed over.

        So are rows that cannot be, `beyond` what is expected: they are listed in `passed`.
        """
        rule, row, triangle = self.forgetting, self._row, self.triangle
        n, seen, square = self.n, 0, 0.0
        quiet = self.n / (self.m * rule.memory)
        limit = self.beyond * max(self.misfit, 1.0) if self.surprise <= rule.alarm else np.inf
        if self.passed:
            self.passed = []
        for j in range(self.m):
            row[:n] = phi[j]
            row[n] = y[j]
            row *= self._inverse[j]
            # [R d; 0 1]ᵀ a = (φ, y) gives a = R⁻ᵀ φᵀ, and beneath it the innovation y − φ θ
            a = _solve(triangle, row, trans=1)
            error = float(a[n])
            if not -1e150 < error < 1e150:
                continue
            a[n] = 0.0
            h = _dot(a, a)
            if error * error > limit * (1.0 + h):
                self.passed.append(j)
                continue
            loss = min(quiet, h, rule.fastest)
            if loss > 0.0:
                # R ← (1 − (1 − √λ) a aᵀ/h) R; aᵀ R = φ and aᵀ d = φ θ
                row[n] -= error
                _rank_one(((1.0 - loss) ** 0.5 - 1.0) / h, a, row, a=triangle, overwrite_a=1)
                row[n] += error
            triangle[n] = row
            _qr(triangle, lwork=self._work, overwrite_a=1)
            triangle *= self._above
            triangle[n, n] = 1.0
            square += error * error / (1.0 + h)
            seen += 1
        if seen:
            self.latest = square / seen
            self._notice(self.latest, rule)
        return self.surprise

    def _notice(self, square: float, rule: Forgetting) -> None:
        """Follows the innovations, and forgets evenly where they are larger than can be."""
        self.surprise += (square - self.surprise) / rule.smoothing
        if self.surprise <= rule.alarm:
            self.misfit += (min(square, rule.alarm) - self.misfit) / max(rule.memory, 100.0)
        else:
            self.forget(1.0 - min(self.surprise / rule.memory, rule.fastest))

    def forget(self, factor: float) -> None:
        """Takes all that is known `factor` times as seriously, but no less than to `reset`; θ stays."""
        if factor >= 1.0:
            return
        theta = self.theta
        self.triangle[: self.n] *= factor**0.5
        floor = (1.0 - factor) ** 0.5 / self.reset
        self.absorb(np.diag(floor), floor * theta)

    def absorb(self, phi: Array, y: Array) -> None:
        """Takes in rows that are divided by their noise already, as they are: nothing is forgotten."""
        rows = np.asfortranarray(np.column_stack([phi, y]))
        kept, _, _, info = _absorb(0, min(self.n + 1, 8), self.triangle, rows)
        assert info == 0
        self.triangle[:] = kept
        self.triangle[self.n, self.n] = 1.0

    def know(self, R: Array, d: Array) -> None:
        """Puts what is known as a triangle R θ = d, in units of the noise, in the place of what was."""
        n = self.n
        self.triangle[:] = 0.0
        self.triangle[: len(R), :n], self.triangle[: len(R), n], self.triangle[n, n] = R, d, 1.0

    # -- what is known -------------------------------------------------------------------------------------

    @property
    def theta(self) -> Array:
        """The estimate."""
        return solved(self.triangle)

    @property
    def covariance(self) -> Array:
        """Of the estimate; noise that is larger than given is taken into account."""
        inverse, info = _inverse(np.asfortranarray(self.triangle[: self.n, : self.n]))
        if info:
            return np.full((self.n, self.n), np.inf)
        return max(self.misfit, 1.0) * (inverse @ inverse.T)

    @property
    def std(self) -> Array:
        """Of each parameter, in its unit."""
        return np.sqrt(np.diag(self.covariance))


def solved(triangle: Array) -> Array:
    """θ of a triangle [R d; 0 1]."""
    x = np.zeros(len(triangle))
    # [R d; 0 1] (−θ, 1) = (0, 1)
    x[-1] = 1.0
    return -_solve(triangle, x)[:-1]


class Accumulated:
    """All samples since a moment, nothing forgotten and nothing known before: what is left by their best fit."""

    def __init__(self, n: int, noise: Array) -> None:
        self.n, self.noise = n, np.array(noise, float)
        self.triangle = np.zeros((n + 1, n + 1), order="F")
        """[R d; 0 ρ], in units of the noise; ρ² is the sum of the squares that no θ explains"""
        self.rows = 0
        self._block = np.zeros((len(self.noise), n + 1), order="F")
        self._inverse = 1.0 / self.noise

    def update(self, phi: Array, y: Array) -> None:
        """Takes in φ (m, n) and y (m,); rows with a NaN are missing and passed over."""
        block, n = self._block, self.n
        block[:, :n] = phi
        block[:, n] = y
        block *= self._inverse[:, None]
        if not -1e300 < float(block.sum()) < 1e300:
            block = np.asfortranarray(block[np.isfinite(block).all(axis=1)])
            if not len(block):
                return
        self.triangle, _, _, info = _absorb(0, min(n + 1, 8), self.triangle, block, overwrite_a=1)
        assert info == 0
        self.rows += len(block)

    def replace(self, made: Triangle) -> None:
        """Puts rows in units of the noise, as a triangle, in the place of what was taken in."""
        n = self.n
        self.triangle[:] = 0.0
        self.triangle[: len(made.R), :n], self.triangle[: len(made.R), n] = made.R, made.d
        self.triangle[n, n], self.rows = made.rest**0.5, made.count

    @property
    def square(self) -> float:
        """Sum of squared residuals of the best θ, in units of the noise."""
        return float(self.triangle[self.n, self.n]) ** 2
