"""What solvers share: the problem that they see, the trace that they leave, the solution that they give."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

NONE = np.zeros(0)
WHOLE = np.ones((2, 1))


class Point(NamedTuple):
    """A vector of unknowns with its cost."""

    y: np.ndarray
    cost: float
    """∞ where it cannot be simulated"""
    gaps: np.ndarray = NONE
    """equality rows"""
    runs: Any = None
    """what the problem computed there, for derivatives"""

    @property
    def violation(self) -> float:
        return float(np.abs(self.gaps).sum())


class Quadratic(NamedTuple):
    """The Gauss–Newton model at a point: cost + g·d + ½ dᵀ H d, with equality rows C d + c = 0."""

    H: np.ndarray
    g: np.ndarray
    C: np.ndarray
    c: np.ndarray


class Problem(Protocol):
    @property
    def lower(self) -> np.ndarray:
        """bounds of the unknowns, ±∞ where open"""
        ...

    @property
    def upper(self) -> np.ndarray: ...
    @property
    def least_squares(self) -> bool:
        """whether `quadratic` exists: not with a cost that the user wrote"""
        ...

    def evaluate(self, y: np.ndarray) -> Point: ...
    def gradient(self, point: Point) -> np.ndarray: ...
    def quadratic(self, point: Point) -> Quadratic: ...
    def limits(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """G and h of further linear inequalities G d ≤ h on a step d from y."""
        ...

    def shown(self, y: np.ndarray) -> tuple[float, ...]:
        """The parameters' physical values."""
        ...


@dataclass(frozen=True)
class Iteration:
    """One line of a trace."""

    number: int
    cost: float
    gradient_norm: float
    """of the projected gradient, in the solver's coordinates"""
    values: tuple[float, ...]
    """physical values of the parameters"""
    step: float
    """length of the step that led here, relative"""
    seconds: float
    """since the solver began"""
    evaluations: int
    """simulations of all experiments so far"""
    unknowns: tuple[float, ...] = ()
    """the solver's own coordinates, first states included"""


@dataclass(frozen=True)
class Solution:
    """Where a solver ended and how."""

    point: Point
    converged: bool
    outcome: str
    """a sentence"""
    trace: tuple[Iteration, ...]
    multipliers: np.ndarray | None = None

    @property
    def iterations(self) -> int:
        return len(self.trace) - 1


Progress = Callable[[Iteration], None]


@dataclass
class Recorder:
    """Collects the trace and tells it to whoever watches."""

    problem: Problem
    progress: Progress | None = None
    trace: list[Iteration] = field(default_factory=list)
    evaluations: int = 0
    began: float = field(default_factory=time.perf_counter)

    def evaluate(self, y: np.ndarray) -> Point:
        self.evaluations += 1
        return self.problem.evaluate(y)

    def record(self, point: Point, gradient: np.ndarray, step: float) -> None:
        line = Iteration(
            len(self.trace),
            point.cost,
            float(np.linalg.norm(projected(self.problem, point.y, gradient))),
            self.problem.shown(point.y),
            step,
            time.perf_counter() - self.began,
            self.evaluations,
            tuple(point.y.tolist()),
        )
        self.trace.append(line)
        if self.progress is not None:
            self.progress(line)


def projected(problem: Problem, y: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    """The gradient without what only pushes against bounds."""
    against = ((y <= problem.lower) & (gradient > 0)) | ((y >= problem.upper) & (gradient < 0))
    return np.where(against, 0.0, gradient)


def constrained_step(
    H: np.ndarray,
    g: np.ndarray,
    C: np.ndarray,
    c: np.ndarray,
    G: np.ndarray,
    h: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """min g·d + ½ dᵀHd with C d + c = 0 and G d ≤ h, by an active set; and the multipliers of C.

    H is positive definite. Rows of G enter where they are violated and leave where they would pull.
    """
    n, m = len(g), len(c)
    active: list[int] = []
    d, multipliers = np.zeros(n), np.zeros(0)
    for _ in range(10 * (len(h) + 1)):
        rows = np.concatenate([C, G[active]])
        right = np.concatenate([-g, -c, h[active]])
        k = len(rows)
        kkt = np.block([[H, rows.T], [rows, -1e-14 * np.eye(k)]])
        solved = np.linalg.solve(kkt, right)
        d, multipliers = solved[:n], solved[n:]
        pull = multipliers[m:]
        over = G @ d - h
        over[active] = -np.inf
        allowed = 1e-12 * (1.0 + np.abs(h))
        if len(over) and np.max(over - allowed) > 0.0:
            active.append(int(np.argmax(over)))
        elif len(pull) and pull.min() < -1e-12 * np.abs(g).max():
            del active[int(np.argmin(pull))]
        else:
            break
    return d, multipliers[:m]


def inequalities(problem: Problem, y: np.ndarray, part: np.ndarray = WHOLE) -> tuple[np.ndarray, np.ndarray]:
    """Bounds and limits as G d ≤ h around y; a step goes at most `part` of the way to a lower or upper bound."""
    n = len(y)
    up, low = np.isfinite(problem.upper), np.isfinite(problem.lower)
    G, h = problem.limits(y)
    one = np.eye(n)
    return (
        np.concatenate([one[up], -one[low], G]),
        np.concatenate([(part[1] * (problem.upper - y))[up], (part[0] * (y - problem.lower))[low], h]),
    )


def within(problem: Problem, y: np.ndarray) -> np.ndarray:
    """The unknowns inside bounds and limits; limits that bend need a few corrections."""
    y = np.clip(y, problem.lower, problem.upper)
    for _ in range(20):
        G, h = problem.limits(y)
        over = h < -1e-12 * (1.0 + np.abs(y).max(initial=0.0))
        if not over.any():
            break
        y = np.clip(y + np.linalg.pinv(G[over]) @ h[over], problem.lower, problem.upper)
    return y


def plural(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
