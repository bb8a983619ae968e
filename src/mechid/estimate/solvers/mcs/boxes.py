"""Boxes of multilevel coordinate search and how they are split (Huyer & Neumaier 1999, sections 2 and 3).

Nothing here evaluates the function: a split first says at which values of one coordinate (`Plan`), and gives the
parts once the values of the function there are known.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

GOLDEN = (np.sqrt(5.0) - 1.0) / 2.0
"""the larger share of an interval cut between two samples; it goes to the lower one"""


@dataclass(frozen=True, eq=False)
class Box:
    """A part of the search region, with one sample on its border."""

    x: np.ndarray
    """base point"""
    f: float
    """the function's value there"""
    y: np.ndarray
    """opposite point: the box reaches from x_i to y_i along each coordinate that was split"""
    level: int
    """small: large and little explored"""
    splits: np.ndarray
    """how often each coordinate was split on the way here; along one never split the box is as wide as the whole"""
    near: np.ndarray
    """(n, 2) positions of the two samples along each coordinate that came last, besides x_i"""
    rise: np.ndarray
    """(n, 2) how much higher the function is there than at x_i, as far as coordinates add up"""
    ranked: bool = False
    """whether no gain was expected: it is then only split by rank"""


class Plan(NamedTuple):
    """A split along one coordinate at new values of it."""

    coordinate: int
    positions: np.ndarray
    """where the function is wanted"""
    from_list: bool
    """whether the starting list's values are taken, all of them"""


class Interval(NamedTuple):
    """A part of a line that was cut between samples."""

    sample: int
    """which sample it belongs to"""
    other: float
    """its end away from the sample"""
    rise: int
    """how much higher its level is"""


# -- where to split ----------------------------------------------------------------------------------------


def due(box: Box) -> bool:
    """Whether a box has been raised so far that it must be split, along the coordinate split least."""
    return box.level > 2 * len(box.x) * (int(box.splits.min()) + 1)


def plan_by_rank(box: Box, rank: np.ndarray, lists: list[np.ndarray]) -> Plan:
    """The split along the coordinate that was split least, among these the most variable one."""
    i = min(range(len(rank)), key=lambda j: (box.splits[j], rank[j]))
    if box.splits[i] == 0:
        return _list_plan(box, i, lists)
    x, end = box.x[i], _pulled_in(box.x[i], box.y[i], zero=0.0, far=100.0)
    return Plan(i, np.array([x + 2.0 * (end - x) / 3.0]), False)


def plan_by_gain(box: Box, gains: np.ndarray, lists: list[np.ndarray], below: float) -> Plan | None:
    """The split that promises the lowest value, if that is lower than `below`.

    `gains` holds what the starting list brought along each coordinate, for those never split.
    """
    best, plan = np.inf, None
    for i in range(len(box.x)):
        if box.splits[i] == 0:
            gain, position = gains[i], None
        else:
            x, end = box.x[i], _pulled_in(box.x[i], box.y[i], zero=1e-3, far=1000.0)
            step, gain = _lowest(box.near[i] - x, box.rise[i], (end - x) / 10.0, end - x)
            position = end if step == end - x else x + step
        if gain < best:
            best = gain
            plan = (i, position)
    if plan is None or not box.f + best < below:
        return None
    i, position = plan
    return _list_plan(box, i, lists) if position is None else Plan(i, np.array([position]), False)


def too_narrow(box: Box, plan: Plan) -> bool:
    """Whether rounding leaves no room for a cut between a box's base and the samples of a split."""
    x = box.x[plan.coordinate]
    size = np.maximum(np.abs(plan.positions), abs(x))
    return bool(np.any(np.abs(plan.positions - x) <= 16.0 * np.finfo(float).eps * size))


def _list_plan(box: Box, i: int, lists: list[np.ndarray]) -> Plan:
    return Plan(i, lists[i][lists[i] != box.x[i]], True)


def _pulled_in(x: float, y: float, zero: float, far: float) -> float:
    """The far end of a box, or a nearer value where it is out of proportion (or infinite)."""
    if abs(x) <= zero:
        return float(np.sign(y)) if abs(y) > 1000.0 else y
    return 10.0 * float(np.sign(y)) * abs(x) if abs(y) > far * abs(x) else y


def _lowest(steps: np.ndarray, rises: np.ndarray, first: float, last: float) -> tuple[float, float]:
    """Step between first and last, and value, of the lowest point of the parabola through 0 and two samples."""
    slope, curvature = parabola(steps, rises)
    tried = [first, last]
    if curvature > 0.0:
        inside = -slope / curvature
        if min(first, last) < inside < max(first, last):
            tried.append(inside)
    values = [slope * t + 0.5 * curvature * t * t for t in tried]
    k = int(np.argmin(values))
    return tried[k], values[k]


def parabola(steps: np.ndarray, rises: np.ndarray) -> tuple[float, float]:
    """Slope and curvature at 0 of the parabola that is 0 there and takes two values at two steps."""
    a, b = float(steps[0]), float(steps[1])
    p, q = float(rises[0]) / a, float(rises[1]) / b
    curvature = 2.0 * (p - q) / (a - b)
    return p - 0.5 * curvature * a, curvature


# -- the parts ---------------------------------------------------------------------------------------------


def parts(box: Box, plan: Plan, values: np.ndarray, region: tuple[np.ndarray, np.ndarray]) -> list[Box]:
    """What a box is split into, given the function's values at the positions of the plan."""
    i = plan.coordinate
    at = np.append(plan.positions, box.x[i])
    order = np.argsort(at, kind="stable")
    at, f = at[order], np.append(values, box.f)[order]
    if plan.from_list:
        intervals = cut_list(at, f, region[0][i], region[1][i])
    else:
        intervals = _cut_two(at, f, int(np.argmax(order == 1)), float(box.y[i]))
    splits = box.splits.copy()
    splits[i] += 1
    made = []
    for sample, other, rise in intervals:
        x, y = box.x.copy(), box.y.copy()
        x[i], y[i] = at[sample], other
        near, rises = box.near.copy(), box.rise.copy()
        near[i], rises[i] = _neighbours(box, i, at, f, sample, plan.from_list)
        made.append(Box(x, float(f[sample]), y, box.level + rise, splits, near, rises))
    return made


def raised(box: Box) -> Box:
    """The same box a level higher, where only its rank lets it be split."""
    return replace(box, level=box.level + 1, ranked=True)


def cut_list(at: np.ndarray, f: np.ndarray, low: float, high: float) -> list[Interval]:
    """The parts of [low, high] around increasing samples: cut by golden section between each two."""
    made = [Interval(0, float(low), 1)] if at[0] > low else []
    for k in range(len(at) - 1):
        lower_left = f[k] <= f[k + 1]
        share = GOLDEN if lower_left else 1.0 - GOLDEN
        cut = float(at[k] + share * (at[k + 1] - at[k]))
        made.append(Interval(k, cut, 1 if lower_left else 2))
        made.append(Interval(k + 1, cut, 2 if lower_left else 1))
    last = len(at) - 1
    return made + ([Interval(last, float(high), 1)] if at[last] < high else [])


def _cut_two(at: np.ndarray, f: np.ndarray, base: int, end: float) -> list[Interval]:
    """The parts of a box between its base and its end, cut at a new sample and between the two."""
    new = 1 - base
    lower = f[base] <= f[new]
    share = GOLDEN if lower else 1.0 - GOLDEN
    cut = float(at[base] + share * (at[new] - at[base]))
    made = [Interval(base, cut, 1 if lower else 2), Interval(new, cut, 2 if lower else 1)]
    if at[new] != end:
        smaller = (1.0 - GOLDEN) * abs(at[new] - at[base])
        made.append(Interval(new, end, 1 if abs(end - at[new]) > smaller else 2))
    return made


def _neighbours(
    box: Box, i: int, at: np.ndarray, f: np.ndarray, sample: int, from_list: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Where the two latest samples along coordinate i besides a part's base are, and how much higher."""
    if from_list:
        first = min(max(sample - 1, 0), len(at) - 3)
        others = [k for k in range(first, first + 3) if k != sample]
        return at[others], f[others] - f[sample]
    other = 1 - sample
    change = f[other] - f[sample]
    older = 0.0 if at[sample] == box.x[i] else change
    known = [(p, r + older) for p, r in zip(box.near[i], box.rise[i], strict=True) if p not in at]
    kept = known[0]
    return np.array([at[other], kept[0]]), np.array([change, kept[1]])


def extent(box: Box, region: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The box's lower and upper corner."""
    whole = box.splits == 0
    return (
        np.where(whole, region[0], np.minimum(box.x, box.y)),
        np.where(whole, region[1], np.maximum(box.x, box.y)),
    )
