"""`Course`: a motion of any length, whose states are kept, or made again stretch by stretch where they are many.

Derivatives need every state of a motion, the adjoint from the last to the first. A motion of up to KEEP steps is
kept whole. Of a longer one only where the march stood after every KEEP steps is kept (a checkpoint), and each
stretch is marched again when it is needed: the same numbers at the cost of a second simulation, in memory that
does not grow with the horizon.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from mechid.dynamics.march import Piece, begin, march
from mechid.dynamics.model import Model
from mechid.dynamics.stepper import Stepper
from mechid.dynamics.trajectory import PIECE, Trajectory

if TYPE_CHECKING:
    from mechid.dynamics.simulate import Plan

KEEP = 128 * PIECE
"""steps whose states are kept"""


class InputSlopes(NamedTuple):
    """How the inputs of steps move with the parameters: each by its own delay."""

    by_delay: np.ndarray
    """(steps, nu) ∂u/∂(delay)"""
    delays: np.ndarray
    """(nu, nθ) ∂(delay)/∂θ"""

    def of(self, chosen: Any) -> InputSlopes:
        """Of some of the steps."""
        return InputSlopes(self.by_delay[chosen], self.delays)


class Stretch(NamedTuple):
    """Consecutive steps of a motion, with all that their derivatives need."""

    first: int
    """number of the first step"""
    before: int
    """states in front of the one in which the first step begins"""
    states: Any
    """before + steps + 1 of them"""
    z: np.ndarray
    u: np.ndarray
    t: np.ndarray
    """(steps,) where each step begins, s"""
    driven: np.ndarray
    """(steps, driven) rates of driven coordinates before each step"""
    rows: np.ndarray
    """(steps, w) what a controller saw"""
    moved: InputSlopes | None = None
    """how u moves with the parameters; None where it does not"""

    @property
    def steps(self) -> int:
        return len(self.t)


def whole(trajectory: Trajectory) -> Stretch:
    """All steps of a trajectory."""
    n = trajectory.steps
    return Stretch(
        0,
        0,
        trajectory.states,
        trajectory.multipliers,
        trajectory.inputs,
        trajectory.t[:n],
        trajectory.driven_rates[:n],
        trajectory.rows,
    )


class Course(NamedTuple):
    """A motion under a plan, as far as it could be solved."""

    plan: Plan
    t: np.ndarray
    """(N + 1,) s"""
    done: int
    """steps that were solved"""
    failed: Any
    """the step that could not be solved, or None"""
    kept: Stretch | None
    """all of it, where it is short"""
    checkpoints: tuple[Any, ...]
    """where the march stood before each stretch"""
    keep: int

    def stretches(self, *, backward: bool = False) -> Iterator[Stretch]:
        """All steps, stretch by stretch; made again where they were not kept."""
        if self.kept is not None:
            yield self.kept
            return
        order = range(len(self.checkpoints))
        for i in reversed(order) if backward else order:
            first = i * self.keep
            table = self.plan.table[first : min(first + self.keep, self.done)]
            now, p = self.checkpoints[i], self.plan
            pieces = list(march(p.stepper, p.model, now, table, p.controller))
            yield _stretch(p.stepper, p.model, now, pieces, first, table, self.t)


def course(
    plan: Plan,
    times: np.ndarray,
    *,
    keep: int = KEEP,
    visit: Callable[[Stretch], None] | None = None,
    early: Callable[[Stretch], None] | None = None,
) -> Course:
    """March through a plan; `visit` sees every stretch once, in order, while it is at hand.

    early: sees every piece of it as soon as it is solved.
    """
    p = plan
    now = begin(p.stepper, p.model, p.state, p.memory, p.driven, p.t0)
    checkpoints: list[Any] = []
    done, failed, stretch = 0, None, None
    for first in range(0, len(p.table), keep):
        table = p.table[first : first + keep]
        checkpoints.append(now)
        pieces, before = [], now
        for piece in march(p.stepper, p.model, now, table, p.controller):
            pieces.append(piece)
            if early is not None and piece.solved:
                at = piece.first
                early(_stretch(p.stepper, p.model, before, [piece], first + at, table[at:], times))
            before = piece.now
        stretch = _stretch(p.stepper, p.model, now, pieces, first, table, times)
        now, failed = pieces[-1].now, pieces[-1].failed
        done = first + stretch.steps
        if visit is not None:
            visit(stretch)
        if failed is not None:
            break
    kept = stretch if len(checkpoints) == 1 else None
    return Course(plan, times[: done + 1], done, failed, kept, tuple(checkpoints), keep)


def _stretch(
    stepper: Stepper,
    model: Model,
    now: Any,
    pieces: list[Piece],
    first: int,
    table: np.ndarray,
    t: np.ndarray,
) -> Stretch:
    outs = [jax.tree.map(lambda a, n=p.solved: a[:n], p.out) for p in pieces]
    out = jax.tree.map(lambda *a: np.concatenate(a), *outs)
    past = jax.tree.map(lambda a: np.asarray(a)[-stepper.window :], now.history)
    states = jax.tree.map(lambda a, b: np.concatenate([a, b]), past, out.state)
    steps = len(out.iterations)
    driven = np.concatenate([np.asarray(now.driven)[None], out.driven])[:steps]
    return Stretch(
        first, stepper.window - 1, states, out.z, out.u, t[first : first + steps], driven, table[:steps]
    )
