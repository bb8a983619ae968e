"""The search itself: sweeps through boxes by level, then local searches from what has reached the last level.

Every part asks for values by yielding points, so that whoever drives the search evaluates the function, stops where
it likes and continues later.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from mechid.estimate.solvers.mcs.boxes import Box, due, parts, plan_by_gain, plan_by_rank, raised, too_narrow
from mechid.estimate.solvers.mcs.initial import Asking, Region, Start, begin
from mechid.estimate.solvers.mcs.local import Model, Place, local_search

T = TypeVar("T")

EXPLAINED = 0.2
"""of a rise: a minimum's own model that predicts it that well shows that a point lies in the minimum's valley"""


@dataclass
class Samples:
    """All points that were evaluated: none is asked for twice."""

    size: int
    points: np.ndarray = field(init=False)
    values: dict[bytes, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.points = np.empty((64, self.size))

    def answered(self, asking: Asking[T]) -> Asking[T]:
        """The same questions without those whose answers are known."""
        answer = None
        while True:
            try:
                # adding 0 turns −0 into 0
                x = (next(asking) if answer is None else asking.send(answer)) + 0.0
            except StopIteration as end:
                return end.value
            key = x.tobytes()
            if key not in self.values:
                value = yield x
                if len(self.values) == len(self.points):
                    self.points = np.concatenate([self.points, np.empty_like(self.points)])
                self.points[len(self.values)] = x
                self.values[key] = value
            answer = self.values[key]

    def on_line(self, x: np.ndarray, i: int) -> list[tuple[float, float]]:
        """Steps from x along coordinate i to samples that differ from it in nothing else, and their values."""
        points = self.points[: len(self.values)]
        others = np.arange(self.size) != i
        on = np.flatnonzero((points[:, others] == x[others]).all(axis=1) & (points[:, i] != x[i]))
        return [(float(points[k, i] - x[i]), self.values[points[k].tobytes()]) for k in on]


@dataclass
class Search:
    """A multilevel coordinate search and where it stands."""

    region: Region
    lists: list[np.ndarray]
    """values of the starting list, increasing, for each coordinate"""
    first: np.ndarray
    """indices of the starting point in them"""
    levels: int
    patience: int
    """sweeps without improvement after which it ends, once an evaluation has succeeded"""
    local: bool = True

    blocked: bool = False
    """whether all evaluations have failed so far, which who answers says"""
    best: float = np.inf
    sweeps: int = 0
    basket: list[Model] = field(default_factory=list)
    """local minima, each with the model of its valley"""
    active: list[list[tuple[float, int, Box]]] = field(default_factory=list)
    """boxes by level, each level a heap"""
    candidates: list[Box] = field(default_factory=list)
    """boxes that have reached the last level in this sweep"""
    made: int = 0
    """boxes so far"""

    def run(self) -> Asking[str]:
        """Asks for values until it ends by itself, and says why."""
        self.samples = Samples(len(self.lists))
        self.active = [[] for _ in range(self.levels)]
        return (yield from self.samples.answered(self._watched(self._run())))

    def _watched(self, asking: Asking[T]) -> Asking[T]:
        """Passes questions on and keeps the best value."""
        value = None
        while True:
            try:
                x = next(asking) if value is None else asking.send(value)
            except StopIteration as end:
                return end.value
            value = yield x
            self.best = min(self.best, value)

    def _run(self) -> Asking[str]:
        start = yield from begin(self.region, self.lists, self.first)
        for box in start.boxes:
            self._put(box)
        followed: set[bytes] = set()
        idle = 0
        while any(self.active) or self.candidates:
            before = self.best
            yield from self._sweep(start)
            self.sweeps += 1
            candidates, self.candidates = sorted(self.candidates, key=lambda b: b.f), []
            for box in candidates:
                if box.x.tobytes() not in followed:
                    followed.add(box.x.tobytes())
                    yield from self._follow(box, start)
            idle = 0 if self.blocked or self.best < before else idle + 1
            if idle >= self.patience:
                return f"{idle} sweeps brought no improvement"
        return "no box is left to split"

    # -- boxes ---------------------------------------------------------------------------------------------

    def _put(self, box: Box) -> None:
        """Files a box under its level; among equal values the one made first comes first."""
        if box.level >= self.levels:
            self.candidates.append(box)
        else:
            self.made += 1
            heapq.heappush(self.active[box.level], (box.f, self.made, box))

    def _sweep(self, start: Start) -> Asking[None]:
        """Splits the best box of each level, from the lowest up, or raises it a level."""
        for level in range(1, self.levels):
            if not self.active[level]:
                continue
            box = heapq.heappop(self.active[level])[2]
            if due(box):
                plan = plan_by_rank(box, start.rank, self.lists)
            else:
                plan = None if box.ranked else plan_by_gain(box, start.gains, self.lists, self.best)
            if plan is None or too_narrow(box, plan):
                self._put(raised(box))
                continue
            values = np.empty(len(plan.positions))
            for k, position in enumerate(plan.positions):
                x = box.x.copy()
                x[plan.coordinate] = position
                values[k] = yield x
            for part in parts(box, plan, values, self.region):
                self._put(part)

    # -- local searches and the basket ---------------------------------------------------------------------

    def _follow(self, box: Box, start: Start) -> Asking[None]:
        """A local search from a candidate, unless it lies in the valley of a known minimum."""
        x, f = box.x, box.f
        if not self.local:
            n = len(x)
            self.basket.append(Model(x, f, np.zeros(n), np.zeros((n, n))))
            return
        outside = yield from self._outside(x, f)
        if outside is None:
            return
        place = Place(
            self.region,
            _towards_nearest(box, self.lists),
            [int(i) for i in np.argsort(start.rank)],
            self.samples.on_line,
            lambda: self.best,
        )
        found = yield from local_search(*outside, place)
        yield from self._collect(found)

    def _nearest(self, x: np.ndarray) -> list[int]:
        """Indices of the basket's minima by distance from x, in widths of the region."""
        width = self.region.upper - self.region.lower
        width = np.where(np.isfinite(width), width, 1.0 + np.abs(x))
        return sorted(
            range(len(self.basket)), key=lambda k: float(np.linalg.norm((self.basket[k].x - x) / width))
        )

    def _outside(self, x: np.ndarray, f: float) -> Asking[tuple[np.ndarray, float] | None]:
        """The point, or a better one on the way to a known minimum; None where it is in a known valley."""
        for k in self._nearest(x):
            w = self.basket[k]
            if w.f > f:
                continue
            d = x - w.x
            if abs(w.g @ d + 0.5 * d @ w.G @ d - (f - w.f)) <= EXPLAINED * (f - w.f):
                return None
            a, b = x + (w.x - x) / 3.0, x + 2.0 * (w.x - x) / 3.0
            fa = yield a
            if fa > f:
                continue
            fb = yield b
            if fb > max(fa, w.f):
                x, f = (a, fa) if fa < f else (x, f)
            elif min(fa, fb) < w.f:
                x, f = (a, fa) if fa < fb else (b, fb)
            else:
                return None
        return x, f

    def _collect(self, found: Model) -> Asking[None]:
        """Puts the end of a local search into the basket, or in the place of a higher one in the same valley."""
        for k in self._nearest(found.x):
            w = self.basket[k]
            if np.array_equal(w.x, found.x):
                return
            a, b = found.x + (w.x - found.x) / 3.0, found.x + 2.0 * (w.x - found.x) / 3.0
            fa = yield a
            if fa > max(found.f, w.f):
                continue
            fb = yield b
            if fb > max(fa, w.f):
                continue
            between = [w.moved(a - w.x, fa), w.moved(b - w.x, fb)]
            self.basket[k] = min([w, found, *between], key=lambda m: m.f)
            return
        self.basket.append(found)


def _towards_nearest(box: Box, lists: list[np.ndarray]) -> np.ndarray:
    """Along each coordinate the step from a box's base to the nearest sample in its ancestry, often known already.

    Along one that was never split, to the nearest value of the starting list.
    """
    made = []
    for x, near, splits, values in zip(box.x, box.near, box.splits, lists, strict=True):
        steps = (near if splits else values[values != x]) - x
        made.append(steps[np.abs(steps).argmin()])
    return np.array(made)
