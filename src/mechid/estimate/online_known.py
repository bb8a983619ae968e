"""`Known`: what a running tracker knows: θ as a triangle, ω with its covariance, the noise, the last samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mechid.estimate.beside import Answer
from mechid.estimate.linear import solve
from mechid.estimate.recursive import Recursive
from mechid.estimate.reduced import Reduced, spiking
from mechid.estimate.separable import checked_bounds, middle
from mechid.estimate.triangle import compress

if TYPE_CHECKING:
    from mechid.estimate.online import Tracker

Array = np.ndarray

IMPOSSIBLE, ODD = 6.25, 2.25
"""times the alarm: squared standard deviations of samples that cannot be, 25 by default, and that hardly can, 9"""
ROUNDING = 1e-6
"""part of what an output measures that counts as its noise at least"""
BEYOND = 6.0
"""robust standard deviations beyond which a search leaves single samples out"""
SURE = 4.0
"""standard deviations by which a number has to move to count as moved"""


class Known:
    """Numbers of a form, and the samples of a moving window."""

    def __init__(self, tracker: Tracker) -> None:
        self.tracker, self.form = tracker, tracker.form
        low, high = checked_bounds(tracker.form, tracker.bounds)
        self.bounds = {name: (float(low[i]), float(high[i])) for i, name in enumerate(tracker.form.nonlinear)}
        self.n, self.k = len(tracker.form.names), len(tracker.form.nonlinear)
        self._width = len(tracker.form.channels)
        self.count = 0
        self.omega = np.array([middle(*pair) for pair in self.bounds.values()])
        self.omega_covariance = np.zeros((self.k, self.k))
        """of ω, from the search that settled it"""
        self.sensitivity = np.zeros((self.n, self.k))
        """∂θ/∂ω: how the best θ follows ω, in the samples from which θ was taken over"""
        self.noise = None if tracker.noise is None else np.array(tracker.noise, float)
        self.ring = np.full((tracker.window, self._width), np.nan)
        self.estimate: Recursive | None = None
        self.calm = np.zeros((self.n + 1, self.n + 1))
        """the estimate's triangle when innovations were last as they should be"""
        self.reset = np.ones(self.n)
        """std of θ to which surprises forget"""
        self.settled = np.zeros(self.n + self.k), np.zeros(self.n + self.k)
        """what changes are told against: θ and ω as they were told last, and their std"""
        self.excitation = np.zeros(self.n)
        """singular values of φ at the start, columns of length one"""
        self.directions = np.zeros((self.n, self.n))
        self._row = getattr(tracker.form, "row", None)
        self._beyond = IMPOSSIBLE * tracker.forgetting.alarm

    @property
    def theta(self) -> Array:
        """The linear numbers; nan before the start is over."""
        return np.full(self.n, np.nan) if self.estimate is None else self.estimate.theta

    @property
    def spread(self) -> Array:
        """Standard deviations of θ and ω where the form holds: of θ with ω as it is, and what follows from ω's."""
        if self.estimate is None:
            return np.full(self.n + self.k, np.nan)
        G, of_omega = self.sensitivity, self.omega_covariance
        variance = np.diag(self.estimate.covariance) + np.einsum("ij,jk,ik->i", G, of_omega, G)
        return np.sqrt(np.append(variance, np.diag(of_omega)))

    @property
    def values(self) -> dict[str, float]:
        """All numbers by name."""
        omega = self.omega if self.estimate is not None else np.full(self.k, np.nan)
        return self._named(np.append(self.theta, omega))

    def _named(self, numbers: Array) -> dict[str, float]:
        return dict(zip((*self.form.names, *self.form.nonlinear), numbers.tolist(), strict=True))

    def recent(self, since: int) -> Array:
        """The samples from number `since` on, as far back as the window reaches."""
        held = min(self.count - since, len(self.ring), self.count)
        last = self.count % len(self.ring)
        if held <= last:
            return self.ring[last - held : last].copy()
        return np.concatenate([self.ring[last - held :], self.ring[:last]])

    def _rows(self, sample: Sequence[float]) -> tuple[Array, Array]:
        if self._row is not None:
            return self._row(sample, self.omega)
        phi, y = self.form.rows(np.array([sample], float), self.omega)
        return phi[0], y[0]

    def _full_rank(self, samples: Array) -> bool:
        """(4) of the paper: singular values of φ."""
        phi, y = self.form.rows(samples, self.omega)
        if np.count_nonzero(np.isfinite(y)) <= self.n:
            return False
        used = np.isfinite(phi).all(-1) & ~spiking(phi)
        found = solve(compress(np.nan_to_num(phi), np.where(used, y, np.nan)), self.form.names)
        self.excitation, self.directions = found.excitation, found.directions
        return bool(found.excitation[-1] >= self.tracker.rank_tolerance * found.excitation[0])

    def _swap(self, answer: Answer, since: int) -> None:
        """ω as found, and θ from the samples that ω explains."""
        self.omega = answer.omega.copy()
        noise = self._noise_of(answer)
        reduced = Reduced.of(self.form, self.recent(since), noise, self.omega)
        reduced = reduced.without_outliers(self.omega, BEYOND)
        t = reduced.linear(self.omega)
        self._know(answer.theta, t.R, t.d, noise)
        self.omega_covariance = answer.covariance[self.n :, self.n :].copy()
        self._follow_omega(reduced)

    def _follow_omega(self, reduced: Reduced) -> None:
        """How θ, as taken from these samples, follows ω."""
        if self.k:
            self.sensitivity = reduced.sensitivity(self.omega)

    def _noise_of(self, answer: Answer) -> Array:
        """As given, or of the start's residuals, but not so small that rounding would count as noise."""
        if self.noise is not None:
            return self.noise
        _, y = self.form.rows(self.recent(0), answer.omega)
        # a quantile, which single samples do not move
        return np.maximum(answer.noise, ROUNDING * np.nanquantile(np.abs(y), 0.9, axis=0))

    def _know(self, theta: Array, R: Array, d: Array, noise: Array | None = None) -> None:
        if self.estimate is None:
            assert noise is not None
            self.estimate = Recursive(theta, self.reset, noise, self.tracker.forgetting, reset=self.reset)
            self.estimate.beyond = self._beyond
        self.estimate.know(np.diag(1.0 / self.reset), theta / self.reset)
        self.estimate.absorb(R, d)
        self.estimate.surprise = 1.0
        self.calm = self.estimate.triangle.copy(order="F")

    def _remember(self, numbers: Array, std: Array, told: Mapping[str, Any]) -> None:
        """What changes are told against: the others stay, so that small steps add up until they are told."""
        before, before_std = (part.copy() for part in self.settled)
        for i, name in enumerate((*self.form.names, *self.form.nonlinear)):
            if name in told:
                before[i], before_std[i] = numbers[i], std[i]
        self.settled = before, before_std

    def _moved(
        self, before: Array, after: Array, std_before: Array, std_after: Array, names: Sequence[str]
    ) -> dict[str, tuple[float, float]]:
        """The numbers that differ for certain, and by more than δ_Θ."""
        std = np.hypot(std_before, std_after)
        change = np.abs(after - before)
        large = change > np.maximum(SURE * std, self.tracker.agreement * np.abs(before))
        return {name: (float(before[i]), float(after[i])) for i, name in enumerate(names) if large[i]}
