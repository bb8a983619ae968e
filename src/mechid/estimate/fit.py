"""`Fit`: the one result object of every estimator. It holds data; judge/ and report/ make sentences of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mechid.estimate.solvers.problem import Iteration
from mechid.model.parameters import Parameters

if TYPE_CHECKING:
    from mechid.judge.identifiability import Identifiability


@dataclass(frozen=True)
class Estimate:
    """One parameter as it was found."""

    name: str
    value: float
    std: float
    """standard deviation; ∞ where the data do not tell it"""
    unit: str
    start: float
    lower: float
    upper: float

    @property
    def interval(self) -> tuple[float, float]:
        """95 %"""
        return self.value - 1.96 * self.std, self.value + 1.96 * self.std


@dataclass(frozen=True, eq=False)
class Compared:
    """A channel as it was measured and as the fitted mechanism shows it."""

    experiment: str
    channel: str
    time: np.ndarray
    """s"""
    measured: np.ndarray
    """NaN where missing"""
    residual: np.ndarray
    """predicted − measured, SI; angles the short way round; NaN where missing"""
    std: float
    """of its noise, given or estimated"""
    estimated: bool
    """the noise was estimated from the residuals"""

    @property
    def predicted(self) -> np.ndarray:
        return self.measured + self.residual

    @property
    def rms(self) -> float:
        return float(np.sqrt(np.nanmean(self.residual**2))) if np.isfinite(self.residual).any() else np.nan


@dataclass(frozen=True, eq=False)
class Fit:
    """What an estimator found, how far it can be trusted, and how it came about."""

    estimator: str
    solver: str
    free: Parameters
    theta: np.ndarray
    parameters: dict[str, Estimate]
    """by name, in physical values"""
    starts: dict[str, Estimate]
    """what was unknown of the experiments' first states"""
    covariance: np.ndarray
    """of the parameters' physical values, first states projected out; ∞ where the data do not tell"""
    cost: tuple[float, float]
    """at the start and at the end"""
    trace: tuple[Iteration, ...]
    channels: tuple[Compared, ...]
    converged: bool
    outcome: str
    """a sentence"""
    seconds: dict[str, float]
    """compile and run"""
    sensitivities: np.ndarray
    """(k, n) weighted sensitivities by θ, first states projected out, compressed to a triangle"""
    notes: tuple[str, ...] = ()
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def iterations(self) -> int:
        return len(self.trace) - 1

    @property
    def mechanism(self) -> Any:
        """The mechanism with the numbers that were found."""
        return self.free.apply(self.theta)

    @property
    def values(self) -> dict[str, float]:
        return {name: p.value for name, p in self.parameters.items()}

    @property
    def correlation(self) -> np.ndarray:
        std = np.sqrt(np.diag(self.covariance))
        with np.errstate(invalid="ignore", divide="ignore"):
            return self.covariance / np.outer(std, std)

    @cached_property
    def identifiability(self) -> Identifiability:
        """Which directions of the parameters the data tell."""
        from mechid.judge.identifiability import identifiability

        return identifiability(self)

    @cached_property
    def flags(self) -> dict[str, tuple[str, ...]]:
        """For each parameter what to beware of: at bound, not identifiable, did not move."""
        from mechid.judge.identifiability import flags

        return flags(self)

    def summary(self) -> str:
        """The result as a table and sentences."""
        from mechid.report.fit import summary

        return summary(self)

    def plot(self, path: Path | str) -> None:
        """Measured and predicted channels, as a figure."""
        from mechid.report.fit_plot import plot_fit

        plot_fit(self, Path(path))

    def save(self, folder: Path | str) -> Path:
        """fit.json and parameters.csv in a folder of their own, which is returned."""
        from mechid.report.fit_files import save_fit

        return save_fit(self, Path(folder))

    def __repr__(self) -> str:
        return self.summary()
