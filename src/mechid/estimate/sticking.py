"""Dry friction, stops and contacts on the way to their laws: rounded over the rates of the motion at first.

Laws are sharpened with every good step.

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
from mechid.dynamics.contacts import felt
from mechid.dynamics.intervals import dynamic_rows
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
    if problem.blur is not None or not len(_boxed(problem.stepper, model)):
        return problem
    squares, count = 0.0, 0
    for s, motion in zip(problem.base.shootings, motions, strict=True):
        q = np.asarray(_coordinates(problem.stepper, model, motion.states))
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
    return problem, problem.rounded(place)


def sharp(problem: ChainProblem, place: Place) -> bool:
    """Whether rounding no longer matters, and all rows are near the law."""
    if problem.blur is None:
        return True
    none = _changes(problem.stepper, place) <= NONE * np.asarray(problem.pace)
    return bool(np.all((problem.blur <= 2.0 * _finest(problem, place)) | none)) and _near(problem, place)


def _near(problem: ChainProblem, place: Place) -> bool:
    rows = _boxed(problem.stepper, place.model) - len(dynamic_rows(problem.stepper, place.model))
    left = np.concatenate([np.abs(link.hard[:, rows]) for link in place.links])
    close = CLOSE * felt(place.model) * np.asarray(problem.blur)
    return bool(np.all(np.quantile(left, MOST, axis=0) <= close))


def _finest(problem: ChainProblem, place: Place) -> np.ndarray:
    return np.maximum(FINEST * _changes(problem.stepper, place), NONE * np.asarray(problem.pace))


def _changes(stepper: Stepper, place: Place) -> np.ndarray:
    """What the impulse of each row changes its rate by in a step, about."""
    # multipliers stand in the order of the last rows
    rows = _boxed(stepper, place.model) - (len(stepper.rows(place.model)) - stepper.nz(place.model))
    impulses = np.concatenate([np.abs(link.motion.z[:, rows]) for link in place.links])
    usual, most = np.quantile(impulses, 0.9, axis=0), impulses.max(0)
    # what seldom touches
    return np.where(usual > 0.01 * most, usual, 0.1 * most) / felt(place.model)


def _boxed(stepper: Stepper, model: Any) -> np.ndarray:
    """Rows of contacts, stops and dry friction."""
    return np.flatnonzero([kind is RowKind.FRICTION for kind in stepper.rows(model)])


@partial(jit, once=True)
def _coordinates(stepper: Stepper, model: Any, states: Any) -> Array:
    return jax.vmap(lambda x: stepper.boxed_positions(model, x))(states)
