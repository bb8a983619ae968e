"""Local search by quadratic models from values alone: f(x + p) ≈ f + g·p + ½ pᵀ G p.

The first model comes from line searches along the coordinates. Then, in turn, a step to the model's minimiser
inside a trusted box and a new model: of slopes only while the last one told the truth, of curvatures too where it
did not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from mechid.estimate.solvers.mcs import quadratic
from mechid.estimate.solvers.mcs.boxes import parabola
from mechid.estimate.solvers.mcs.initial import Asking, Region
from mechid.estimate.solvers.mcs.lines import Line, reach, search_line

EPS = float(np.finfo(float).eps)
STEPS = 50
"""models a local search takes at most"""
POINTS = 5
"""new samples of a line search along a coordinate"""
STEP_POINTS = 14
"""new samples of a line search towards a model's minimiser"""
TRUST = 0.25
"""of the region's width: how far the first model is trusted (of 1 + |x_i| where the region is open)"""
TRUE = (0.2, 1.8)
"""actual decreases over promised ones between which a model's curvatures are kept"""
TOLERANCE = 1e-8
"""of the value, or of what was gained if that is less: a smaller promise is taken, and ends the search"""
HOPE = 2.0
"""times what a model promises must bring the best value known, or the search is left"""
DIFFERENCE = 0.03
"""of the last step: over which slopes are taken"""


class Model(NamedTuple):
    """A quadratic around a point."""

    x: np.ndarray
    f: float
    g: np.ndarray
    G: np.ndarray

    def moved(self, p: np.ndarray, f: float) -> Model:
        """The same quadratic around x + p, where the function is f."""
        return Model(self.x + p, f, self.g + self.G @ p, self.G)

    def held(self, region: Region) -> np.ndarray:
        """Which variables lie at a bound and would leave the region on the way down."""
        low, high = self.x <= region.lower, self.x >= region.upper
        return (low & (self.g > 0.0)) | (high & (self.g < 0.0))


class Place(NamedTuple):
    """What a local search knows of its surroundings."""

    region: Region
    steps: np.ndarray
    """first steps along the coordinates, with signs"""
    order: Sequence[int]
    """of the coordinates"""
    recall: Callable[[np.ndarray, int], list[tuple[float, float]]]
    """steps and values known already on the line through a point along a coordinate"""
    best: Callable[[], float]
    """the lowest value that any search has found"""

    def smallest(self, x: np.ndarray) -> np.ndarray:
        """Steps over which differences still tell curvatures."""
        size = EPS ** (1 / 3) * np.maximum(np.abs(x), np.abs(self.steps))
        return np.minimum(size, 0.01 * (self.region.upper - self.region.lower))

    def scale(self, x: np.ndarray) -> np.ndarray:
        width = self.region.upper - self.region.lower
        return np.where(np.isfinite(width), width, 1.0 + np.abs(x))


def local_search(x: np.ndarray, f: float, place: Place) -> Asking[Model]:
    """The model around a local minimum near x, or around where the search was left as hopeless."""
    region, start = place.region, f
    model = yield from coordinate_model(x, f, place)
    trust = TRUST * place.scale(x)
    full, sure, probed = True, False, False
    for _ in range(STEPS):
        if sure and model.f - HOPE * _promise(model, region, np.inf)[1] > place.best():
            return model
        p, promised = _promise(model, region, trust)
        enough = max(TOLERANCE * min(start - model.f, abs(model.f)), 1e-14 * (start - model.f + abs(model.f)))
        done = promised <= enough
        ratio, old, moved = 0.0, model, np.zeros_like(x)
        if promised > 0.0 and np.any(model.x + p != model.x):
            slope = float(model.g @ p)
            line = yield from search_line(
                model.x, model.f, p, region, 1.0, 1 if done else STEP_POINTS, slope=slope
            )
            ratio = (model.f - line.value) / promised
            if line.step != 0.0:
                moved = np.clip(model.x + line.step * p, region.lower, region.upper) - model.x
                model = model.moved(moved, line.value)
        elif not full:
            done = False
        if done:
            inside = None if probed else (yield from _probe_bounds(model, place))
            if inside is None:
                return model
            model, probed = inside, True
            ratio = 0.0
        elif not ratio > 0.25:
            trust = 0.5 * trust
        elif ratio > 0.75:
            trust = 2.0 * trust
        full = not TRUE[0] < ratio < TRUE[1]
        sure = full or abs(ratio - 1.0) < 0.5
        if full:
            model = yield from triple_model(model, place)
        else:
            model = yield from slope_model(model, moved, old.f, place)
    return model


def _promise(model: Model, region: Region, trust: np.ndarray | float) -> tuple[np.ndarray, float]:
    """The step to the model's minimiser within `trust` and the region, and how much lower the model is there."""
    reachable = np.minimum(trust, 1e3 * (1.0 + np.abs(model.x)))
    low = np.maximum(region.lower - model.x, -reachable)
    high = np.minimum(region.upper - model.x, reachable)
    p = quadratic.minimise(model.g, model.G, low, high)
    return p, -quadratic.value(model.g, model.G, p)


def _probe_bounds(model: Model, place: Place) -> Asking[Model | None]:
    """The model at a lower value a little inside a bound that holds a variable, or None."""
    h = place.smallest(model.x)
    for i in np.flatnonzero(model.held(place.region)):
        point = model.x.copy()
        point[i] += h[i] if model.x[i] <= place.region.lower[i] else -h[i]
        value = yield point
        if value < model.f:
            return model.moved(point - model.x, value)
    return None


# -- models ------------------------------------------------------------------------------------------------


def coordinate_model(x: np.ndarray, f: float, place: Place) -> Asking[Model]:
    """A model around the best of line searches along the coordinates, one after another; exact for quadratics."""
    n = len(x)
    model = Model(x, f, np.zeros(n), np.zeros((n, n)))
    aside = np.zeros(n)
    for i in place.order:
        unit = np.eye(n)[i]
        line = yield from search_line(
            model.x, model.f, unit, place.region, place.steps[i], POINTS, known=place.recall(model.x, i)
        )
        model = yield from _with_coordinate(model, i, line, aside, place.region)
    return model


def triple_model(model: Model, place: Place) -> Asking[Model]:
    """A new model from small triples of samples along each variable that no bound holds, and one sample a pair."""
    held = model.held(place.region)
    keep = held[:, None] | held[None, :]
    model = model._replace(g=np.where(held, model.g, 0.0), G=np.where(keep, model.G, 0.0))
    aside = np.zeros(len(held))
    for i in map(int, np.flatnonzero(~held)):
        h = place.smallest(model.x)[i]
        low, high = reach(model.x, np.eye(len(held))[i], place.region)
        line = Line(np.array([0.0]), np.array([model.f]))
        for step in (h if high >= h else -2.0 * h, -h if low <= -h else 2.0 * h):
            point = model.x.copy()
            point[i] += step
            value = yield point
            line = line.with_sample(step, value)
        model = yield from _with_coordinate(model, i, line, aside, place.region)
    return model


def slope_model(model: Model, moved: np.ndarray, before: float, place: Place) -> Asking[Model]:
    """The model with new slopes, a sample each, and the curvature along the last step that explains its gain."""
    x, f, G = model.x, model.f, model.G
    g, best = model.g.copy(), (model.x, model.f)
    steps = np.maximum(DIFFERENCE * np.abs(moved), place.smallest(x))
    for i in np.flatnonzero(~model.held(place.region)):
        h = -steps[i] if g[i] > 0.0 else steps[i]
        if not place.region.lower[i] <= x[i] + h <= place.region.upper[i]:
            h = -h
        point = x.copy()
        point[i] += h
        value = yield point
        g[i] = (value - f) / h - 0.5 * G[i, i] * h
        if value < best[1]:
            best = (point, value)
    d = moved / place.scale(x) ** 2
    missing = before - (f - g @ moved + 0.5 * moved @ G @ moved)
    G = G + 2.0 * missing * np.outer(d, d) / (d @ moved) ** 2
    return Model(x, f, g, G).moved(best[0] - x, best[1])


def _with_coordinate(model: Model, i: int, line: Line, aside: np.ndarray, region: Region) -> Asking[Model]:
    """The model with coordinate i in it: from three samples along it, and one in each plane with an earlier one.

    `aside` holds, for each coordinate in the model, the step to its better sample beside the best; 0 for others.
    That of i is written into it. With δ the step to the best sample, a that from there to the better one beside it
    and b that of coordinate k, f(x + δe_i + ae_i + be_k) gives G_ik, as g_k is known for δ = 0.
    """
    three = line.triple()
    others = three[three != line.best]
    shift = line.step
    x = model.x.copy()
    x[i] = min(max(x[i] + shift, region.lower[i]), region.upper[i])
    f, g, G = line.value, model.g.copy(), model.G.copy()
    if len(others) < 2:
        return Model(x, f, g, G)
    g[i], G[i, i] = parabola(line.steps[others] - shift, line.values[others] - f)
    beside = [k for k in others if line.steps[k] != 0.0]
    a = float(line.steps[min(beside, key=lambda k: line.values[k])]) - shift
    best = (x, f)
    for k in np.flatnonzero(aside):
        b = aside[k] if region.lower[k] <= x[k] + aside[k] <= region.upper[k] else -aside[k]
        point = x.copy()
        point[i] += a
        point[k] += b
        point = np.clip(point, region.lower, region.upper)
        value = yield point
        alone = f + g[i] * a + 0.5 * G[i, i] * a * a + g[k] * b + 0.5 * G[k, k] * b * b
        G[i, k] = G[k, i] = (value - alone) / (b * (a + shift))
        if value < best[1]:
            best = (point, value)
    g += np.where(np.arange(len(g)) == i, 0.0, G[:, i] * shift)
    aside[i] = a
    return Model(x, f, g, G).moved(best[0] - x, best[1])
