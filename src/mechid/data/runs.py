"""Runs: stretches of a channel without gaps, and what can be done to the samples of one (NumPy arrays)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

GAP = 1.75
"""median steps from one sample to the next before something is missing between them"""

EVEN = 0.05
"""of the median step: by how much steps may differ from it and still count as equal"""


def typical_step(time: np.ndarray) -> float:
    """Median distance of time stamps, s; NaN for a single one."""
    return float(np.median(np.diff(time))) if len(time) > 1 else np.nan


def runs(time: np.ndarray, values: np.ndarray, longest_gap: float | None = None) -> list[np.ndarray]:
    """Indices of samples that follow each other without a gap, one array for each run.

    A gap is a distance of more than `longest_gap` (s) between two samples that are there; by default GAP steps.
    """
    there = np.flatnonzero(~np.isnan(values))
    if not len(there):
        return []
    longest = GAP * typical_step(time) if longest_gap is None else longest_gap
    # a single time stamp has no step, and no gap either
    breaks = np.flatnonzero(np.diff(time[there]) > longest * (1.0 + 1e-9)) + 1
    return np.split(there, breaks)


def is_even(time: np.ndarray) -> bool:
    """Whether time stamps are equidistant, but for EVEN of a step."""
    if len(time) < 3:
        return len(time) == 2
    steps = np.diff(time)
    step = float(np.median(steps))
    return bool(np.abs(steps - step).max() <= EVEN * step)


# From the samples (t, x) of a run to values at times that lie within it


def linear(t: np.ndarray, x: np.ndarray, times: np.ndarray, width: float) -> np.ndarray:
    return np.interp(times, t, x)


def hold(t: np.ndarray, x: np.ndarray, times: np.ndarray, width: float) -> np.ndarray:
    """The sample at or before each time."""
    # a time that is a sample's but for rounding is that sample's
    slack = 1e-9 * max(typical_step(t), 0.0) if len(t) > 1 else 0.0
    return x[np.maximum(np.searchsorted(t, times + slack, side="right") - 1, 0)]


def cubic(t: np.ndarray, x: np.ndarray, times: np.ndarray, width: float) -> np.ndarray:
    """The cubic spline through the samples."""
    from scipy.interpolate import CubicSpline

    return CubicSpline(t, x)(times) if len(t) > 1 else np.interp(times, t, x)


def mean(t: np.ndarray, x: np.ndarray, times: np.ndarray, width: float) -> np.ndarray:
    """Mean of the straight lines between samples over `width` around each time, or as much as the run leaves.

    With F the integral of these lines and 2h the width: (F(t + h) − F(t − h)) / 2h. No phase; straight lines stay.
    """
    if len(t) < 2:
        return np.interp(times, t, x)
    half = np.minimum(width / 2.0, np.minimum(times - t[0], t[-1] - times))
    spread = half > 1e-9 * width
    h = np.where(spread, half, 1.0)
    middle = np.interp(times, t, x)
    # from the first sample on, which keeps sums small
    y = x - x[0]
    sums = np.concatenate([[0.0], np.cumsum(np.diff(t) * (y[1:] + y[:-1]) / 2.0)])

    def integral(at: np.ndarray) -> np.ndarray:
        i = np.clip(np.searchsorted(t, at, side="right") - 1, 0, len(t) - 2)
        part = at - t[i]
        return sums[i] + part * (y[i] + np.interp(at, t, y)) / 2.0

    averaged = x[0] + (integral(times + h * spread) - integral(times - h * spread)) / (2.0 * h)
    return np.where(spread, averaged, middle)


Method = Callable[[np.ndarray, np.ndarray, np.ndarray, float], np.ndarray]
METHODS: dict[str, Method] = {"linear": linear, "cubic": cubic, "hold": hold, "mean": mean}
"""ways to read values off a run at other times"""


def read_off(
    time: np.ndarray, values: np.ndarray, times: np.ndarray, method: Method, longest_gap: float | None
) -> np.ndarray:
    """Values at other times, NaN inside gaps and outside what was measured."""
    width = typical_step(times) if len(times) > 1 else 0.0
    slack = 1e-9 * max(abs(float(time[0])), abs(float(time[-1])), width)
    out = np.full(len(times), np.nan)
    for run in runs(time, values, longest_gap):
        t, x = time[run], values[run]
        first = np.searchsorted(times, t[0] - slack, side="left")
        last = np.searchsorted(times, t[-1] + slack, side="right")
        within = np.clip(times[first:last], t[0], t[-1])
        if len(within):
            out[first:last] = method(t, x, within, width)
    return out
