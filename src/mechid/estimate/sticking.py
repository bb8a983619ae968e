"""Dry friction on the way to its law: rounded over the rates of the motion at first, sharper with every good step.

States that are unknowns may begin with any signs of their rates, and those of sticking coordinates are noise; a law
with corners would hold each interval to the case that it happens to begin with. Rounded, the law is a smooth row in
rate and impulse; corners come back as quickly as the rows close, like the barrier of an interior-point method.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np

from mechid.compile import jit
from mechid.dynamics.dry import felt
from mechid.dynamics.model import Model
from mechid.dynamics.stepper import RowKind, Stepper
from mechid.dynamics.tree import Array
from mechid.estimate.chain import ChainProblem, Motion, Place

FIRST = 0.3
"""of the rates of a coordinate (RMS): what friction is rounded over at first"""
FASTER = 0.1
"""what the rounding is reduced to by a good step"""
CLOSE, MOST = 1.0, 0.99
"""of the rounding: most rows are as near to the rounded law before it is sharpened; single intervals may still
change between sticking and sliding"""
FINEST = 0.03
"""of what friction changes a rate by in a step: rounding that no longer matters, as what sticks then creeps by less
than 1/500 of that"""
NONE = 1e-7
"""of the rates of a coordinate: friction that changes them by less in a step is none"""


def rounded(problem: ChainProblem, y: np.ndarray, motions: tuple[Motion, ...]) -> ChainProblem:
    """The problem with friction rounded over the rates of a first guess, unless it has begun already."""
    model = problem.bound(y)
    if problem.blur is not None or not _rows(problem.stepper, model):
        return problem
    squares, count = 0.0, 0
    for s, motion in zip(problem.base.shootings, motions, strict=True):
        q = np.asarray(_coordinates(problem.stepper, model, motion.states))
        if problem.stepper.wraps:
            turns = np.asarray(model.revolute)[np.asarray(model.dry.index)] > 0.0  # type: ignore[attr-defined]
            q = np.where(turns, np.unwrap(q, axis=0), q)
        v = np.diff(q, axis=0) / np.diff(s.grid.t)[:, None]
        squares, count = squares + np.sum(v**2, axis=0), count + len(v)
    pace = np.sqrt(squares / count)
    return replace(problem, blur=FIRST * pace, pace=pace)


def sharper(problem: ChainProblem, place: Place, *, good: bool) -> tuple[ChainProblem, Place]:
    """What follows a step, good: one that gained about what it promised, or had nothing to gain."""
    if problem.blur is None or not good or not _near(problem, place):
        return problem, place
    blur = np.minimum(np.maximum(FASTER * problem.blur, _finest(problem, place)), problem.blur)
    if np.array_equal(blur, problem.blur):
        return problem, place
    problem = replace(problem, blur=blur)
    return problem, problem.evaluate(place.y, tuple(link.motion for link in place.links))


def sharp(problem: ChainProblem, place: Place) -> bool:
    """Whether rounding no longer matters, and all rows are near the law."""
    if problem.blur is None:
        return True
    none = _changes(place) <= NONE * np.asarray(problem.pace)
    return bool(np.all((problem.blur <= 2.0 * _finest(problem, place)) | none)) and _near(problem, place)


def _near(problem: ChainProblem, place: Place) -> bool:
    blur = np.asarray(problem.blur)
    left = np.concatenate([np.abs(link.hard[:, -len(blur) :]) for link in place.links])
    return bool(np.all(np.quantile(left, MOST, axis=0) <= CLOSE * np.asarray(_inertia(place.model)) * blur))


def _finest(problem: ChainProblem, place: Place) -> np.ndarray:
    return np.maximum(FINEST * _changes(place), NONE * np.asarray(problem.pace))


def _changes(place: Place) -> np.ndarray:
    """What friction changes each rate by in a step, about."""
    inertia = np.asarray(_inertia(place.model))
    impulses = [np.abs(link.motion.z[:, -len(inertia) :]) for link in place.links]
    return np.quantile(np.concatenate(impulses), 0.9, axis=0) / inertia


def _rows(stepper: Stepper, model: Model) -> bool:
    return RowKind.FRICTION in stepper.rows(model)


@partial(jit, once=True)
def _coordinates(stepper: Stepper, model: Any, states: Any) -> Array:
    return jax.vmap(lambda x: stepper.positions(model, x)[model.dry.index])(states)


_inertia = jit(felt, once=True)
