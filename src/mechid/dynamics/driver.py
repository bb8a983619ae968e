"""The host's side of motions: a motion of any length in chunks, its derivatives chunk by chunk, on two threads.

A compiled program serves every motion of up to its number of steps: chunks are padded to few lengths. Between
chunks a motion can be interrupted, reports its progress, and stops early; where it is long, only the state before
each chunk is kept and the chunk is solved again when its derivatives are wanted, so that memory does not grow.

What is computed of a motion besides its states is a `Comparison`: a pytree that is called with stepper, model,
motion and the physical values of the free parameters, such as the residuals of a log's samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from mechid.compile import jit
from mechid.dynamics.model import Model
from mechid.dynamics.rollout import (
    Motion,
    Now,
    Past,
    differentiable_motion,
    first_past,
    past_after,
    past_of,
    solve_motion,
)
from mechid.dynamics.stepper import Outcome, Stepper, moved_by
from mechid.dynamics.tree import Array

if TYPE_CHECKING:
    from mechid.dynamics.simulate import Plan
    from mechid.dynamics.trajectory import Trajectory

SHORTEST, MANY, LONGEST = 16, 256, 4096
"""samples, and steps, of a chunk: calling a program costs what some hundred steps of a small mechanism do"""
KEEP = 2**15
"""steps whose motion is kept for derivatives"""
WORK = 2**15
"""steps times unknowns of a step that a chunk holds at most, so that two threads can share a large mechanism"""


class Comparison(Protocol):
    """What is wanted of a chunk of a motion, as a pytree of arrays."""

    def __call__(self, stepper: Stepper, model: Model, motion: Motion, values: Array) -> Any:
        """values: the physical values of the free parameters."""
        ...


class Directions(NamedTuple):
    """How all that a motion depends on changes with n unknowns y, at y = 0."""

    numbers: list[Any]
    """(…, n) of each float leaf of the model; None where no unknown changes it"""
    values: Any
    """(parameters, n) of the physical values that a comparison is given"""
    late: tuple[Any, Any] | None = None
    """derivatives of inputs by their delays (capacity, nu), and of the delays (nu, n); None where none is free"""


class Chunk(NamedTuple):
    """Consecutive steps of a motion."""

    first: int
    """number of the first step, counted from the beginning of the motion"""
    solved: int
    """number of steps that were solved"""
    past: Past
    """what its derivatives depend on besides model and inputs"""
    before: Any
    """the `Now` in which it begins, to solve it again"""
    rows: np.ndarray
    """(capacity, w) inputs or what a law sees, zeros beyond the steps that are meant"""
    count: int
    """number of steps that are meant"""
    motion: Motion | None
    """None where it is to be solved again"""
    compared: Any
    """what the comparison gave"""
    after: Any
    """the `Now` in which it ends; if a step failed, after that attempt"""


def capacity(count: int) -> int:
    """The padded length for a number of samples: few lengths, so that few programs are compiled."""
    size = SHORTEST
    while size < count:
        size *= 4
    return size


def chunk_length(stepper: Stepper, model: Model, steps: int) -> int:
    """Steps of a chunk, padding included: one of few lengths, so that one program serves many numbers of steps."""
    most = WORK // max(stepper.nx(model) + stepper.nz(model), 1)
    longest = min(LONGEST, 1 << (max(most, 1).bit_length() - 1))
    return min(capacity(max(steps, MANY)), max(MANY, longest))


def padded(a: np.ndarray, count: int) -> np.ndarray:
    """An array with zeros up to a length."""
    if len(a) == count:
        return a
    return np.concatenate([a, np.zeros((count - len(a), *a.shape[1:]), a.dtype)])


def solve_chunks(
    plan: Plan,
    *,
    comparisons: Sequence[Any] | None = None,
    values: np.ndarray | None = None,
    length: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    meanwhile: Callable[[], None] | None = None,
) -> Iterator[Chunk]:
    """Solve a planned motion chunk by chunk, to its end or to the first step that fails.

    Args:
        comparisons: one for each chunk of `length` steps, or None.
        values: the physical values that comparisons are given.
        progress: called with the steps done and all steps.
        meanwhile: work for this thread, called once while the first chunk is being solved.
    """
    steps, now = len(plan.table), plan.now
    length = chunk_length(plan.stepper, plan.model, steps) if length is None else length
    values = np.zeros(0) if values is None else values
    for i, first in enumerate(range(0, steps, length)):
        count = min(length, steps - first)
        rows = padded(plan.table[first : first + count], length)
        compare = None if comparisons is None else comparisons[i]
        before = now
        args = (plan.stepper, plan.model, now, rows, count, plan.law, compare, values)
        now, motion, out, past, solved = advance(*args)
        if first == 0 and meanwhile is not None:
            meanwhile()
        solved = int(solved)
        yield Chunk(first, solved, past, before, rows, count, motion, out, now)
        if progress is not None and solved == count:
            progress(first + count, steps)
        if solved < count:
            return


def compile_chunks(plan: Plan, comparison: Any = None, values: np.ndarray | None = None) -> None:
    """Compile what `solve_chunks` will call, without solving a step."""
    length = chunk_length(plan.stepper, plan.model, len(plan.table))
    rows = np.zeros((length, plan.table.shape[1]))
    values = np.zeros(0) if values is None else values
    advance(plan.stepper, plan.model, plan.now, rows, 0, plan.law, comparison, values)


def unsolved(plan: Plan) -> Chunk:
    """A chunk of a plan of which no step has been solved."""
    length = chunk_length(plan.stepper, plan.model, len(plan.table))
    nz, nu, driven = plan.stepper.nz(plan.model), plan.model.nu, plan.model.driven.shape[0]
    states = jax.tree.map(lambda a: np.stack([np.asarray(a)] * (length + 1)), plan.state)
    shapes = (length, nz), (length, nu), length, (length, driven)
    none, outcome = np.zeros(length, int), np.full(length, int(Outcome.NOT_REACHED))
    parts: Any = (states, *map(np.zeros, shapes), none, outcome, none, np.zeros(length))
    motion = Motion(*parts)
    rows = np.zeros((length, plan.table.shape[1]))
    past = jax.tree.map(np.asarray, first_past(plan.stepper, plan.state, plan.now.driven, plan.now.t))
    return Chunk(0, 0, past, None, rows, 0, motion, None, None)


def solve_again(plan: Plan, chunk: Chunk, compare: Any, values: np.ndarray) -> Chunk:
    """A chunk with its motion, which is solved again, by the same program, if it was not kept."""
    if chunk.motion is not None:
        return chunk
    args = (plan.stepper, plan.model, chunk.before, chunk.rows, chunk.count, plan.law, compare, values)
    return chunk._replace(motion=advance(*args)[1])


@jit
def advance(
    stepper: Stepper,
    model: Model,
    now: Now,
    rows: Array,
    count: Array,
    law: Any,
    compare: Comparison | None,
    values: Array,
) -> tuple[Now, Motion, Any, Past, Array]:
    """Solve a chunk: where the motion stands after it, the motion, the comparison, the past, the steps solved."""
    past = past_of(stepper, now)
    now, motion = solve_motion(stepper, model, now, rows, law, count)
    compared = None if compare is None else compare(stepper, model, motion, values)
    return now, motion, compared, past, motion.solved


# Derivatives


class Change(NamedTuple):
    """A change of a chunk's past in tangent coordinates, or slopes of a cost by it."""

    states: Any
    """(window, nx)"""
    driven: Any


def _chunk_of_unknowns(
    stepper: Stepper,
    model: Model,
    directions: Directions,
    past: Past,
    rows: Array,
    law: Any,
    motion: Motion,
    compare: Comparison,
    values: Array,
) -> Callable[[Array, Change], tuple[Any, Change]]:
    """A chunk's comparison, and the change of the past that it leaves, as functions of the unknowns and of a change
    of the past in which it begins; to be differentiated where both are 0."""
    end = jax.lax.stop_gradient(past_after(stepper, model, past, motion))
    bound, numbers = moved_by(lambda m: m, model, directions.numbers)
    slopes = [s for s in directions.numbers if s is not None]

    def function(y: Array, change: Change) -> tuple[Any, Change]:
        new = bound([x + slope @ y for x, slope in zip(numbers, slopes, strict=True)]) if slopes else model
        begun = past
        if jax.tree.leaves(change):
            begun = Past(
                jax.vmap(stepper.retract)(past.states, change.states), past.driven + change.driven, past.t
            )
        inputs = rows
        if directions.late is not None:
            by_delay, delays = directions.late
            late = by_delay * (delays @ y)
            inputs = jnp.concatenate([rows[:, : model.nu] + late, rows[:, model.nu :]], 1)
        moved = differentiable_motion(stepper, new, begun, inputs, law, motion)
        out = compare(stepper, new, moved, values + directions.values @ y)
        after = past_after(stepper, new, begun, moved)
        left = Change(jax.vmap(stepper.local)(end.states, after.states), after.driven - end.driven)
        return out, left

    return function


@jit
def _tangents(
    stepper: Stepper,
    model: Model,
    directions: Directions,
    past: Past,
    carry: Change,
    rows: Array,
    law: Any,
    motion: Motion,
    compare: Comparison,
    values: Array,
) -> tuple[Any, Change]:
    """Derivatives of the comparison and of the past that the chunk leaves, unknowns last; carry: of its past."""
    function = _chunk_of_unknowns(stepper, model, directions, past, rows, law, motion, compare, values)
    n = carry.states.shape[-1]
    still = Change(*(jnp.zeros(a.shape[:-1]) for a in carry))

    def column(e: Array, change: Change) -> tuple[Any, Change]:
        return jax.jvp(function, (jnp.zeros(n), still), (e, change))[1]

    return jax.vmap(column, in_axes=-1, out_axes=-1)(jnp.eye(n), carry)


@jit
def _cotangents(
    stepper: Stepper,
    model: Model,
    directions: Directions,
    past: Past,
    carry: Change,
    rows: Array,
    law: Any,
    motion: Motion,
    compare: Comparison,
    values: Array,
) -> tuple[Array, Change]:
    """The gradient of the comparison's cost by the unknowns, and by the past; carry: by the past that is left."""
    function = _chunk_of_unknowns(stepper, model, directions, past, rows, law, motion, compare, values)
    still = jax.tree.map(jnp.zeros_like, carry)

    def cost(y: Array, change: Change) -> Array:
        out, left = function(y, change)
        later = jnp.vdot(carry.states, left.states) + jnp.vdot(carry.driven, left.driven)
        return cost_of(out) + later

    return jax.grad(cost, (0, 1))(jnp.zeros(directions.values.shape[1]), still)


def cost_of(compared: Any) -> Array:
    """Half the sum of squares of residuals; a cost that is one number as it is."""
    if not isinstance(compared, tuple):
        return compared
    return sum((0.5 * jnp.vdot(r, r) for r in compared), jnp.zeros(()))


def tangents(
    system: Steps,
    chunk: Chunk,
    directions: Directions,
    compare: Comparison,
    values: np.ndarray,
    carry: Change,
) -> tuple[Any, Change]:
    """Derivatives of what a chunk's comparison gives, unknowns last, and those of the past that it leaves."""
    return _tangents(*_arguments(system, chunk, directions, compare, values, carry))


def cotangents(
    system: Steps,
    chunk: Chunk,
    directions: Directions,
    compare: Comparison,
    values: np.ndarray,
    carry: Change,
) -> tuple[Array, Change]:
    """The gradient of a chunk's cost by the unknowns and by the past before it; carry: by the past after it."""
    return _cotangents(*_arguments(system, chunk, directions, compare, values, carry))


class Steps(Protocol):
    """What takes a motion's steps, a plan or a trajectory."""

    @property
    def stepper(self) -> Stepper: ...
    @property
    def model(self) -> Any: ...
    @property
    def law(self) -> Any: ...


def _arguments(
    system: Steps, chunk: Chunk, directions: Directions, compare: Any, values: np.ndarray, carry: Change
) -> tuple[Any, ...]:
    what = (system.stepper, system.model, directions, chunk.past, carry, chunk.rows, system.law)
    return *what, chunk.motion, compare, values


def chunks_of(trajectory: Trajectory) -> list[Chunk]:
    """A simulated trajectory as solved chunks, with what their derivatives need."""
    x, n = trajectory, trajectory.steps
    length, window = chunk_length(x.stepper, x.model, n), x.stepper.window
    chunks = []
    for first in range(0, n, length):
        count = min(length, n - first)
        i = np.minimum(np.arange(first, first + length), n - 1)
        around = [np.maximum(np.arange(first + 1 - window, first + 1), 0)]
        around += [np.minimum(np.arange(first, first + length + 1), first + count)]
        past, states = (jax.tree.map(lambda a, at=at: np.asarray(a)[at], x.states) for at in around)
        reached = np.arange(length) < count
        outcome = np.where(reached, int(Outcome.SOLVED), int(Outcome.NOT_REACHED))
        along = (x.multipliers[i], x.inputs[i], x.t[i], x.driven_rates[i], i, outcome)
        parts: Any = (states, *along, np.zeros(length, int), np.zeros(length))
        begun = Past(past, x.driven_rates[first], x.t[first])  # type: ignore[arg-type]
        rows = padded(x.rows[first : first + count], length)
        chunks.append(Chunk(first, count, begun, None, rows, count, Motion(*parts), None, None))
    return chunks


def first_change(stepper: Stepper, columns: np.ndarray, driven: int) -> Change:
    """The derivatives of the first past from those of the first state (nx, n): its whole window is that state."""
    states = np.broadcast_to(columns, (stepper.window, *columns.shape))
    return Change(states, np.zeros((driven, columns.shape[-1])))


class TangentsBehind:
    """Differentiates chunks on a second thread while the first goes on solving.

    Args:
        first: gives the derivatives of the first past, `first_change`; called on that thread too.
    """

    def __init__(self, plan: Plan, first: Callable[[], Change]) -> None:
        self._plan = plan
        self._carry: Any = None
        self._pool = ThreadPoolExecutor(1)
        self._begun = self._pool.submit(lambda: setattr(self, "_carry", first()))
        self._found: list[Future[Any]] = []

    def see(
        self, chunk: Chunk, directions: Callable[[], Directions], compare: Any, values: np.ndarray
    ) -> None:
        """Begin with a chunk that has just been solved."""

        def work() -> Any:
            self._begun.result()  # raises what went wrong there
            out, self._carry = tangents(self._plan, chunk, directions(), compare, values, self._carry)
            return jax.block_until_ready(out)

        self._found.append(self._pool.submit(work))

    def close(self, *, cancel: bool) -> None:
        """Nothing more will come; with cancel nothing of it is wanted."""
        self._pool.shutdown(wait=False, cancel_futures=cancel)

    def results(self) -> list[Any]:
        """What was found of each chunk, in order."""
        return [f.result() for f in self._found]


def fails(chunk: Chunk) -> bool:
    return chunk.solved < chunk.count


class Attempt(NamedTuple):
    """A step that could not be solved."""

    state: Any
    u: np.ndarray
    outcome: int
    residual: float


def failed_attempt(chunk: Chunk) -> Attempt:
    """The attempt at the step in which a chunk has ended."""
    motion, i = chunk.motion, chunk.solved
    assert motion is not None
    state = jax.tree.map(lambda a: np.asarray(a[-1]), chunk.after.history)
    return Attempt(state, np.asarray(chunk.after.u), int(motion.outcome[i]), float(motion.residual[i]))
