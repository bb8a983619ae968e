"""How multilevel coordinate search begins: the starting list, what it shows, and the boxes that it makes."""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple, TypeVar

import numpy as np

from mechid.estimate.solvers.mcs.boxes import Box, Plan, parabola, parts

T = TypeVar("T")
Asking = Generator[np.ndarray, float, T]
"""Yields points, is sent the function's values there, and returns a T."""


class Region(NamedTuple):
    """Where to search."""

    lower: np.ndarray
    upper: np.ndarray


class Start(NamedTuple):
    """What the starting list leaves."""

    boxes: list[Box]
    rank: np.ndarray
    """of each coordinate: 0 for the most variable one"""
    gains: np.ndarray
    """how much lower the list's best value was than its first, along each coordinate; never positive"""


def default_lists(region: Region) -> list[np.ndarray]:
    """Three values a coordinate: both bounds and their middle, or towards an open side 1 and 10 units of size.

    A unit is 1 or the size of the finite bound, whichever is larger: (u, u + e, u + 10 e) with e = max(1, |u|), its
    mirror image, or (−10, 0, 10) where both sides are open.
    """
    made = []
    for u, v in zip(region.lower, region.upper, strict=True):
        if np.isfinite(u) and np.isfinite(v):
            made.append(np.array([u, 0.5 * u + 0.5 * v, v]))
        elif np.isfinite(u):
            made.append(u + max(1.0, abs(u)) * np.array([0.0, 1.0, 10.0]))
        elif np.isfinite(v):
            made.append(v - max(1.0, abs(v)) * np.array([10.0, 1.0, 0.0]))
        else:
            made.append(np.array([-10.0, 0.0, 10.0]))
    return made


def begin(region: Region, lists: list[np.ndarray], first: np.ndarray) -> Asking[Start]:
    """Evaluates the list coordinate by coordinate, keeping the best, and splits the region along its values.

    `first` are the indices of the starting point in the lists.
    """
    n = len(lists)
    x = np.array([values[k] for values, k in zip(lists, first, strict=True)])
    f = yield x
    far = np.where(np.abs(region.lower - x) > np.abs(region.upper - x), region.lower, region.upper)
    box = Box(x, f, far, 1, np.zeros(n, int), np.zeros((n, 2)), np.zeros((n, 2)))
    boxes: list[Box] = []
    gains, ranges = np.zeros(n), np.zeros(n)
    for i in range(n):
        others = np.delete(np.arange(len(lists[i])), first[i])
        values = np.empty(len(lists[i]))
        values[first[i]] = box.f
        for k in others:
            point = box.x.copy()
            point[i] = lists[i][k]
            values[k] = yield point
        gains[i] = values.min() - box.f
        ranges[i], lowest = _interpolated(lists[i], values, region.lower[i], region.upper[i])
        made = parts(box, Plan(i, lists[i][others], True), values[others], region)
        best = lists[i][int(np.argmin(values))]
        based = [b for b in made if b.x[i] == best]
        box = min(based, key=lambda b, i=i, lowest=lowest, best=best: (lowest - best) * (b.y[i] - best) < 0.0)
        boxes += [b for b in made if b is not box]
    rank = np.empty(n, int)
    rank[np.argsort(-ranges, kind="stable")] = np.arange(n)
    return Start([*boxes, box], rank, gains)


def _interpolated(at: np.ndarray, f: np.ndarray, low: float, high: float) -> tuple[float, float]:
    """Range of the parabolas through each three neighbouring values, and where they are lowest."""
    highest, lowest, where = -np.inf, np.inf, float(at[int(np.argmin(f))])
    for k in range(len(at) - 2):
        left = at[k] if k or not np.isfinite(low) else low
        right = at[k + 2] if k + 3 < len(at) or not np.isfinite(high) else high
        slope, curvature = parabola(at[[k, k + 2]] - at[k + 1], f[[k, k + 2]] - f[k + 1])
        tried = [left - at[k + 1], right - at[k + 1]]
        if curvature != 0.0 and tried[0] < -slope / curvature < tried[1]:
            tried.append(-slope / curvature)
        for t in tried:
            value = f[k + 1] + slope * t + 0.5 * curvature * t * t
            highest = max(highest, value)
            if value < lowest:
                lowest, where = value, float(at[k + 1] + t)
    return highest - lowest, where
