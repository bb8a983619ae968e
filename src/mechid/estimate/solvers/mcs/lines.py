"""Line search by values: few samples, parabolas, and care at the ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mechid.estimate.solvers.mcs.boxes import parabola
from mechid.estimate.solvers.mcs.initial import Asking, Region

NEAR = 0.05
"""of the gap between the best sample's neighbours: a prediction that close to it is not tried"""
GROWTH = 2.0
"""how much farther a step past the best end goes than the last one did"""
FARTHEST = 10.0
"""the same where a parabola says how far"""
UNEVEN = 6.0
"""one neighbour so many times farther than the other: the wide side is halved, a parabola says little there"""
CLOSE = 0.3
"""of the first step: where slope and value predict the lowest point that near, one sample is enough"""


@dataclass(frozen=True)
class Line:
    """Samples f(x + a p) by increasing a."""

    steps: np.ndarray
    values: np.ndarray

    @property
    def best(self) -> int:
        return int(np.argmin(self.values))

    @property
    def step(self) -> float:
        return float(self.steps[self.best])

    @property
    def value(self) -> float:
        return float(self.values[self.best])

    def with_sample(self, step: float, value: float) -> Line:
        k = int(np.searchsorted(self.steps, step))
        return Line(np.insert(self.steps, k, step), np.insert(self.values, k, value))

    def triple(self) -> np.ndarray:
        """Indices of the best sample and of its neighbours; at an end, of the two next ones. Fewer if there are."""
        first = max(min(max(self.best - 1, 0), len(self.steps) - 3), 0)
        return np.arange(first, min(first + 3, len(self.steps)))


def search_line(
    x: np.ndarray,
    f: float,
    p: np.ndarray,
    region: Region,
    first: float,
    new: int,
    *,
    known: Sequence[tuple[float, float]] = (),
    slope: float | None = None,
) -> Asking[Line]:
    """Samples along x + a p, around the lowest value found with at most `new` more than the one at 0.

    `first` is the first step tried, `known` are steps and values known already; the line ends at the region's
    bounds. A `slope` at 0, where one is expected, replaces the third sample.
    """
    low, high = reach(x, p, region)
    line = Line(np.array([0.0]), np.array([f]))
    for step, value in known:
        if np.abs(line.steps - step).min() > 1e-9 * abs(first):
            line = line.with_sample(step, value)
    for _ in range(new):
        if slope is not None and len(line.steps) == 2:
            step = _by_slope(line, slope, low, high)
        else:
            step = next_step(line, low, high, first)
        if step is None:
            break
        value = yield np.clip(x + step * p, region.lower, region.upper)
        line = line.with_sample(step, value)
    return line


def reach(x: np.ndarray, p: np.ndarray, region: Region) -> tuple[float, float]:
    """The steps at which x + a p leaves the region, back and forth."""
    moving = p != 0.0
    if not moving.any():
        return 0.0, 0.0
    ends = np.stack([(region.lower - x)[moving] / p[moving], (region.upper - x)[moving] / p[moving]])
    return min(float(ends.min(axis=0).max()), 0.0), max(float(ends.max(axis=0).min()), 0.0)


def next_step(line: Line, low: float, high: float, first: float) -> float | None:
    """The step to try next between low and high, or None where the lowest value is known well enough."""
    a, b = line.steps, line.best
    if len(a) == 1:
        room = high if first > 0.0 else -low
        other = -low if first > 0.0 else high
        return _bounded(line, first if room >= min(abs(first), other) else -first, low, high)
    if 0 < b < len(a) - 1:
        step = _between(line)
        return _other_valley(line) if step is None else step
    # the best sample is the first or the last one
    outward, end, inner = (1.0, high, a[b - 1]) if b else (-1.0, low, a[1])
    gap = abs(a[b] - inner)
    if a[b] == end:
        return _at_end(line, inner)
    if len(a) == 2:
        return _bounded(line, a[b] + outward * gap * (GROWTH if a[b] != 0.0 else 1.0), low, high)
    slope, curvature = _around(line)
    ahead = min(-slope / curvature * outward, FARTHEST * gap) if curvature > 0.0 else GROWTH * gap
    if ahead < NEAR * gap:
        return None
    return _bounded(line, a[b] + outward * ahead, low, high)


def _by_slope(line: Line, slope: float, low: float, high: float) -> float | None:
    """The lowest point of the parabola through two samples with a slope at 0, unless the second is close to it."""
    k = 1 if line.steps[0] == 0.0 else 0
    a, rise = float(line.steps[k]), float(line.values[k] - line.values[1 - k])
    half = rise - slope * a
    step = -0.5 * slope * a * a / half if half > 0.0 else GROWTH * a
    step = min(max(step, 0.1 * a), GROWTH * a)
    if rise < 0.0 and abs(step - a) <= CLOSE * a:
        return None
    return _bounded(line, step, low, high)


def _between(line: Line) -> float | None:
    """The lowest point of the parabola through the best sample and its neighbours, if that is not close to it."""
    a, b = line.steps, line.best
    left, right = float(a[b] - a[b - 1]), float(a[b + 1] - a[b])
    if max(left, right) > UNEVEN * min(left, right):
        return float(a[b] + 0.5 * right if right > left else a[b] - 0.5 * left)
    slope, curvature = _around(line)
    if not curvature > 0.0 or abs(slope / curvature) <= NEAR * (left + right):
        return None
    return float(a[b] - slope / curvature)


def _other_valley(line: Line) -> float | None:
    """The step to where the parabola around another low sample falls below the best value."""
    a, f = line.steps, line.values
    lowest, step = line.value, None
    for k in range(1, len(a) - 1):
        if k == line.best or f[k] > min(f[k - 1], f[k + 1]):
            continue
        slope, curvature = parabola(a[[k - 1, k + 1]] - a[k], f[[k - 1, k + 1]] - f[k])
        if curvature > 0.0 and slope != 0.0 and f[k] - 0.5 * slope**2 / curvature < lowest:
            lowest, step = f[k] - 0.5 * slope**2 / curvature, float(a[k] - slope / curvature)
    return None if step is None or np.any(a == step) else step


def _at_end(line: Line, inner: float) -> float | None:
    """A step in from a bound that has the lowest value, unless a parabola falls all the way to it."""
    a, b = line.steps, line.best
    inward = float(inner - a[b])
    if len(a) > 2 and _around(line)[0] * inward >= 0.0:
        return None
    return float(a[b] + inward / 3.0)


def _around(line: Line) -> tuple[float, float]:
    """Slope and curvature at the best sample, by the parabola through it and its neighbours."""
    k = line.triple()
    others = k[k != line.best]
    return parabola(line.steps[others] - line.step, line.values[others] - line.value)


def _bounded(line: Line, step: float, low: float, high: float) -> float | None:
    """The step inside its range, if it is a new one."""
    step = min(max(step, low), high)
    return None if np.any(line.steps == step) else float(step)
