"""`Lag`: derivatives of a stream without phase, at the price of some samples' delay.

Over a short window a polynomial is fitted (Savitzky & Golay); its slope and curvature in the middle belong to the
sample in the middle, which therefore leaves half a window after it came. All other channels wait with it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mechid.errors import MechidError

UNEVEN = 1.5
"""a step between samples so many times the usual one is a gap: there is no derivative across it"""


class Derived(NamedTuple):
    """A channel that is found from a measured one."""

    channel: int
    """its place among the channels"""
    source: int
    order: int
    """1: rate, 2: acceleration"""


class Lag:
    """A window that samples pass through. Its state is `times`, `samples` and `filled`."""

    def __init__(self, width: int, derived: list[Derived], window: int, degree: int) -> None:
        from scipy.signal import savgol_coeffs

        if window % 2 == 0 or window <= degree or degree < 2:
            raise MechidError(
                f"A window of {window} samples with degree {degree} gives no derivatives: it takes an odd number "
                "of samples, more than the degree, and a degree of at least 2."
            )
        self.derived, self.half = derived, window // 2
        self.times, self.samples = np.full(window, np.nan), np.full((window, width), np.nan)
        self.filled = 0
        self._weights = [np.asarray(savgol_coeffs(window, degree, deriv=d.order, use="dot")) for d in derived]

    def pass_through(self, time: float, sample: np.ndarray) -> tuple[float, np.ndarray] | None:
        """The sample in the middle, with derivatives; None while the window is not full."""
        self.times[:-1], self.samples[:-1] = self.times[1:], self.samples[1:]
        self.times[-1], self.samples[-1] = time, sample
        self.filled = min(self.filled + 1, len(self.times))
        if self.filled < len(self.times):
            return None
        made = self.samples[self.half].copy()
        step = (self.times[-1] - self.times[0]) / (len(self.times) - 1)
        even = np.diff(self.times).max() <= UNEVEN * step
        for d, weights in zip(self.derived, self._weights, strict=True):
            made[d.channel] = weights @ self.samples[:, d.source] / step**d.order if even else np.nan
        return float(self.times[self.half]), made

    def state(self) -> dict[str, Any]:
        return {"lag_times": self.times, "lag_samples": self.samples, "lag_filled": np.array(self.filled)}

    def restore(self, given: Any) -> None:
        self.times, self.samples = np.array(given["lag_times"]), np.array(given["lag_samples"])
        self.filled = int(given["lag_filled"])
