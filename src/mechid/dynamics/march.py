"""A rollout: a state advanced through many steps by a compiled program of PIECE steps, called again and again.

The program is compiled once whatever the horizon, memory is handed to the host piece by piece, and a run can be
interrupted between pieces, or continued from any `Now`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mechid.compile import jit
from mechid.dynamics.model import Model
from mechid.dynamics.stepper import HISTORY, Outcome, Stepper
from mechid.dynamics.trajectory import PIECE, Controller, Law, controlled
from mechid.dynamics.tree import Array

if TYPE_CHECKING:
    from mechid.dynamics.simulate import Plan


class Rollout(NamedTuple):
    """The raw result: states (N + 1), multipliers and inputs (N) of the steps that were solved."""

    states: Any
    z: np.ndarray
    u: np.ndarray
    driven: np.ndarray
    """rates of driven coordinates over the steps"""
    iterations: np.ndarray
    residual: np.ndarray
    failed: Any
    """the attempt that failed: state, multipliers, input, outcome; None when all went well"""
    steps_done: int
    every: int
    """only every such step was kept"""


def rollout(
    stepper: Stepper,
    model: Model,
    start: Any,
    inputs: np.ndarray,
    controller: Controller | Law | None = None,
    t0: float = 0.0,
    *,
    memory: Any = None,
    driven: np.ndarray | None = None,
    every: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> Rollout:
    """Advance a state through all inputs, in pieces of the compiled program.

    memory: what the stepper remembers of the start, if it is at hand. driven: initial rates of driven
    coordinates, for a controller that asks for them.
    """
    now = begin(stepper, model, start, memory, driven, t0)
    pieces: list[Step] = []
    failed, done = None, 0
    for piece in march(stepper, model, now, inputs, controller):
        chosen = slice(-(piece.first + 1) % every, piece.solved, every)
        pieces.append(jax.tree.map(lambda a, s=chosen: np.array(a[s]) if every > 1 else a[s], piece.out))
        done, failed = piece.first + piece.solved, piece.failed
        if progress is not None and failed is None:
            progress(done, len(inputs))
    return joined(stepper, model, start, pieces, failed, done, every)


class Piece(NamedTuple):
    """Up to PIECE steps of a march."""

    first: int
    """number of its first step, counted from where the march began"""
    solved: int
    """steps of it that were solved"""
    out: Any
    """what is kept of PIECE steps, the first `solved` of which are meant"""
    now: Any
    """where the march stands after it"""
    failed: Any
    """the step that failed, or None"""


def march(
    stepper: Stepper, model: Model, now: Any, inputs: np.ndarray, controller: Controller | Law | None
) -> Iterator[Piece]:
    """Advance from `now` through all inputs, or to the first step that fails, piece by piece."""
    steps = len(inputs)
    for first in range(0, steps, PIECE):
        rows = np.zeros((PIECE, inputs.shape[1]))
        count = min(PIECE, steps - first)
        rows[:count] = inputs[first : first + count]
        now, out, solved = _advance(stepper, model, now, rows, count, controller)
        out, solved = jax.tree.map(np.asarray, out), int(solved)
        failed = jax.tree.map(lambda a, n=solved: a[n], out) if solved < count else None
        yield Piece(first, solved, out, now, failed)
        if failed is not None:
            return


def rollouts_together(plans: Sequence[Plan]) -> list[Rollout]:
    """The rollouts of plans of one length, all advanced together: what an accelerator is good at."""
    stepper, controller, steps = plans[0].stepper, plans[0].controller, len(plans[0].table)
    models = [p.model for p in plans]
    shared = all(m is models[0] for m in models)
    model = models[0] if shared else jax.tree.map(lambda *a: jnp.stack(a), *models)
    starts = [begin(stepper, p.model, p.state, p.memory, p.driven, p.t0) for p in plans]
    now = jax.device_put(jax.tree.map(lambda *a: np.stack(a), *starts))
    tables = np.stack([p.table for p in plans])
    kept: list[list[Step]] = [[] for _ in plans]
    failed: list[Any] = [None for _ in plans]
    for first in range(0, steps, PIECE):
        count = min(PIECE, steps - first)
        piece = np.zeros((len(plans), PIECE, tables.shape[2]))
        piece[:, :count] = tables[:, first : first + count]
        now, out, solved = _advance_together(stepper, model, now, piece, count, controller, shared)
        out, solved = jax.tree.map(np.asarray, out), np.asarray(solved)
        for i in range(len(plans)):
            if failed[i] is None:
                kept[i].append(jax.tree.map(lambda a, i=i, n=solved[i]: a[i, :n], out))
                if solved[i] < count:
                    failed[i] = jax.tree.map(lambda a, i=i, n=solved[i]: a[i, n], out)
    return [
        joined(stepper, p.model, p.state, pieces, bad, sum(len(x.iterations) for x in pieces), 1)
        for p, pieces, bad in zip(plans, kept, failed, strict=True)
    ]


def begin(
    stepper: Stepper, model: Model, start: Any, memory: Any = None, driven: Any = None, t0: float = 0.0
) -> Now:
    """Where a rollout stands before its first step."""
    if memory is None:
        memory = _remember(stepper, model, start, np.zeros(model.nu))
    now = Now(
        jax.tree.map(lambda a: np.stack([np.asarray(a)] * max(stepper.window, HISTORY)), start),
        memory,
        np.zeros((HISTORY, stepper.nz(model))),
        np.asarray(0),
        np.asarray(float(t0)),
        np.zeros(model.driven.shape[0]) if driven is None else np.asarray(driven),
    )
    return jax.device_put(now)


def joined(
    stepper: Stepper, model: Model, start: Any, pieces: list[Step], failed: Any, done: int, every: int
) -> Rollout:
    if not pieces:
        lone = jax.tree.map(lambda a: np.asarray(a)[None], start)
        z, u, driven = (np.zeros((0, n)) for n in (stepper.nz(model), model.nu, model.driven.shape[0]))
        return Rollout(lone, z, u, driven, np.zeros(0, int), np.zeros(0), None, 0, every)
    joined = jax.tree.map(lambda *a: np.concatenate(a), *pieces)
    states = jax.tree.map(lambda a, b: np.concatenate([np.asarray(a)[None], b]), start, joined.state)
    steps = (joined.z, joined.u, joined.driven, joined.iterations, joined.residual)
    return Rollout(states, *steps, failed, done, every)


class Now(NamedTuple):
    """Where a rollout stands."""

    history: Any
    """the last max(window, HISTORY) states, oldest first"""
    memory: Any
    """what the stepper remembers of the newest"""
    zs: Any
    """the last HISTORY multipliers"""
    k: Any
    t: Any
    driven: Any
    """rates of driven coordinates over the last step"""


class Step(NamedTuple):
    """What is kept of a step."""

    state: Any
    z: Array
    u: Array
    driven: Array
    iterations: Array
    residual: Array
    outcome: Array


def _advance_piece(
    stepper: Stepper,
    model: Model,
    now: Now,
    inputs: Array,
    count: Array,
    controller: Controller | Law | None,
) -> tuple[Now, Step, Array]:
    """Advance by `count` steps or to the first that fails; how many were solved."""

    def step(now: Now, u: Array) -> tuple[Now, Step]:
        newest = jax.tree.map(lambda a: a[-1], now.history)
        before = stepper.positions(model, newest)
        if controller is not None:
            u = controlled(controller, stepper, model, newest, now.t, u, now.driven)
        xs = jax.tree.map(lambda a: a[a.shape[0] - stepper.window :], now.history)
        last = jax.tree.map(lambda a: a[-HISTORY:], now.history)
        guess = stepper.predict(last, now.zs, now.k + 1)
        s = stepper.step(xs, u, now.t, now.k, model, guess, now.memory)
        history = jax.tree.map(lambda old, new: jnp.concatenate([old[1:], new[None]]), now.history, s.state)
        h = stepper.step_size(now.k)
        moved = stepper.positions(model, s.state) - before
        zs = jnp.concatenate([now.zs[1:], s.z[None]])
        after = Now(history, s.memory, zs, now.k + 1, now.t + h, moved[model.driven] / h)
        return after, Step(s.state, s.z, u, after.driven, s.iterations, s.residual, s.outcome)

    def going(state: tuple[Any, ...]) -> Array:
        _, _, i, fine = state
        return fine & (i < count)

    def one(state: tuple[Any, ...]) -> tuple[Any, ...]:
        now, kept, i, _ = state
        now, new = step(now, inputs[i])
        kept = jax.tree.map(lambda a, b: jax.lax.dynamic_update_index_in_dim(a, b, i, 0), kept, new)
        fine = new.outcome == int(Outcome.SOLVED)
        return now, kept, i + fine, fine

    shapes = jax.eval_shape(step, now, inputs[0])[1]
    empty = jax.tree.map(lambda s: jnp.zeros((inputs.shape[0], *s.shape), s.dtype), shapes)
    now, kept, solved, _ = jax.lax.while_loop(going, one, (now, empty, jnp.asarray(0), jnp.asarray(True)))
    return now, kept, solved


def _advance_pieces(
    stepper: Stepper, model: Model, now: Now, inputs: Array, count: Array, controller: Any, shared: bool
) -> Any:
    def one(model: Model, now: Now, inputs: Array) -> Any:
        return _advance_piece(stepper, model, now, inputs, count, controller)

    return jax.vmap(one, in_axes=(None if shared else 0, 0, 0))(model, now, inputs)


_advance = jit(_advance_piece, static_argnums=(5,))
_advance_together = jit(_advance_pieces, static_argnums=(5, 6))


@functools.partial(jit, once=True)
def _remember(stepper: Stepper, model: Model, x: Any, u: Array) -> Any:
    return stepper.remember(model, x, u)
