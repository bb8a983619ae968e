"""`simulate`: a mechanism moved by any stepper from given coordinates and rates.

The compiled program advances a fixed number of steps and is called again and again, so that it is compiled once
whatever the horizon, memory is handed to the host piece by piece, and a run can be interrupted between pieces.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from mechid.compile import jit
from mechid.dynamics.assembly import check_start, with_driven
from mechid.dynamics.diagnosis import diagnose
from mechid.dynamics.lowering import lower
from mechid.dynamics.model import Model
from mechid.dynamics.stepper import HISTORY, Outcome, Stepper
from mechid.dynamics.trajectory import PIECE, Controller, Trajectory, controlled
from mechid.dynamics.tree import Array
from mechid.errors import MechidError, SimulationError
from mechid.model.geometry import finite, numeric
from mechid.model.mechanism import Mechanism
from mechid.model.parts import Custom, Spring


def simulate(
    mechanism: Mechanism,
    stepper: Stepper,
    steps: int,
    *,
    q: dict[str, float] | ArrayLike | None = None,
    v: dict[str, float] | ArrayLike | None = None,
    inputs: ArrayLike | Controller | None = None,
    t0: float = 0.0,
    model: Model | None = None,
    every: int = 1,
    throw: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> Trajectory:
    """The motion over `steps` steps from coordinates q and rates v (by name or in order; 0 where absent).

    inputs: an array (steps, nu) held over each step, or one row held throughout, or a function
    u = f(t, q, v) in jax.numpy evaluated at the start of each step. A step that cannot be solved raises
    `SimulationError` with the steps before it, or with throw=False ends the trajectory and says so in `outcome`.
    every: keep only every such state, so that long runs fit in memory.
    """
    if not isinstance(every, int | np.integer) or every < 1:
        raise MechidError(f"The states to keep, every={every!r}, must be ≥ 1 and whole.")
    plan = planned(mechanism, stepper, steps, q=q, v=v, inputs=inputs, t0=t0, model=model)
    run = rollout(
        stepper,
        plan.model,
        plan.state,
        plan.table,
        plan.controller,
        t0,
        memory=plan.memory,
        driven=plan.driven,
        every=int(every),
        progress=progress,
    )
    return finished(plan, run, throw=throw)


class Plan(NamedTuple):
    """A simulation that has been checked and can begin."""

    mechanism: Mechanism
    stepper: Stepper
    model: Model
    q: np.ndarray
    v: np.ndarray
    table: np.ndarray
    """(steps, nu) inputs; zeros where a controller makes them"""
    controller: Controller | None
    t0: float
    state: Any
    """the first state"""
    memory: Any
    """what the stepper remembers of it"""

    @property
    def driven(self) -> np.ndarray:
        """initial rates of driven coordinates"""
        return self.v[np.asarray(self.model.driven)]


def planned(
    mechanism: Mechanism,
    stepper: Stepper,
    steps: int,
    *,
    q: dict[str, float] | ArrayLike | None = None,
    v: dict[str, float] | ArrayLike | None = None,
    inputs: ArrayLike | Controller | None = None,
    t0: float = 0.0,
    model: Model | None = None,
) -> Plan:
    """Check the arguments of `simulate` and find the first state."""
    if not isinstance(mechanism, Mechanism):
        raise MechidError(f"A simulation needs a Mechanism, not {mechanism!r}.")
    if not isinstance(stepper, Stepper):
        raise MechidError(f"A simulation needs a stepper (Variational, Spook or BDF), not {stepper!r}.")
    if isinstance(steps, bool) or not isinstance(steps, int | np.integer) or steps < 0:
        raise MechidError(f"The number of steps must be ≥ 0 and whole, not {steps!r}.")
    t0 = float(finite(t0, (), "The start time t0"))
    if model is None:
        model = lower(mechanism)
    elif getattr(model, "nq", None) != len(mechanism.coordinates):
        raise MechidError(f"The model given is not one of mechanism '{mechanism.name}'.")
    stepper.check(model, steps)
    start_q = mechanism.coordinate_vector(q, "The initial coordinate")
    start_v = mechanism.coordinate_vector(v, "The initial rate")
    table, controller = _inputs(mechanism, inputs, steps)
    first = with_driven(mechanism, table[0] if steps else np.zeros(model.nu), start_q)
    start, memory, closure, slope = _begin(stepper, model, start_q, start_v, first, t0)
    check_start(mechanism, np.asarray(closure), np.asarray(slope), start_v)
    if controller is not None:
        _check_controller(mechanism, controller)
    return Plan(mechanism, stepper, model, start_q, start_v, table, controller, float(t0), start, memory)


def finished(plan: Plan, run: Rollout, *, throw: bool) -> Trajectory:
    """The trajectory of a rollout, with its outcome as a sentence."""
    done, steps = run.steps_done, len(plan.table)
    outcome = f"All {steps} steps were solved."
    times = plan.t0 + _times(plan.stepper, steps)
    if done < steps:
        cause = diagnose(plan.stepper, plan.model, plan.mechanism, run, times[done])
        outcome = f"Step {done} at t = {times[done]:.6g} s could not be solved: {cause}"
    trajectory = Trajectory(
        plan.mechanism,
        plan.stepper,
        plan.model,
        times[: done + 1][:: run.every],
        run.states,
        run.z,
        run.u,
        run.iterations,
        run.residual,
        outcome,
        plan.q,
        plan.v,
        plan.controller,
        np.concatenate([plan.driven[None], run.driven]),
        run.every,
    )
    complaint = _wrapped(trajectory) if plan.stepper.wraps else ""
    if complaint:
        trajectory = dataclasses.replace(trajectory, outcome=complaint)
    if (complaint or done < steps) and throw:
        raise SimulationError(trajectory.outcome, trajectory)
    return trajectory


def _wrapped(trajectory: Trajectory) -> str:
    """A sentence where an element saw an angle wrapped by a full turn; else nothing."""
    m = trajectory.mechanism
    angles = {c.name for c in m.coordinates if c.revolute}
    owners = [(e.coordinate, e.name) for e in m.elements if isinstance(e, Spring)]
    owners += [(c, e.name) for e in m.elements if isinstance(e, Custom) for c in e.coordinates]
    owners += [(x, c.name) for c in m.couplings for x in (c.coordinate, c.other)]
    owners += [(d.coordinate, d.name) for d in m.drives]
    for coordinate, owner in owners:
        q = trajectory.q[:, m.coordinate_names.index(coordinate)]
        if coordinate in angles and np.abs(q).max() > np.pi:
            at = trajectory.t[int(np.argmax(np.abs(q) > np.pi))]
            return (
                f"Coordinate '{coordinate}' turns beyond ±π at t = {at:.4g} s, where "
                f"{type(trajectory.stepper).__name__} no longer sees full turns and '{owner}' depends on "
                "them: use Variational or BDF."
            )
    return ""


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
    controller: Controller | None = None,
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
    steps = len(inputs)
    now = _first(stepper, model, start, memory, driven, t0)
    pieces: list[_Step] = []
    failed, done = None, 0
    for first in range(0, steps, PIECE):
        piece = np.zeros((PIECE, inputs.shape[1]))
        count = min(PIECE, steps - first)
        piece[:count] = inputs[first : first + count]
        now, out, solved = _advance(stepper, model, now, piece, count, controller)
        out, solved = jax.tree.map(np.asarray, out), int(solved)
        chosen = slice(-(first + 1) % every, solved, every)
        pieces.append(jax.tree.map(lambda a, s=chosen: np.array(a[s]) if every > 1 else a[s], out))
        done = first + solved
        if solved < count:
            failed = jax.tree.map(lambda a, n=solved: a[n], out)
            break
        if progress is not None:
            progress(first + count, steps)
    return _joined(stepper, model, start, pieces, failed, done, every)


def rollouts_together(plans: Sequence[Plan]) -> list[Rollout]:
    """The rollouts of plans of one length, all advanced together: what an accelerator is good at."""
    stepper, controller, steps = plans[0].stepper, plans[0].controller, len(plans[0].table)
    models = [p.model for p in plans]
    shared = all(m is models[0] for m in models)
    model = models[0] if shared else jax.tree.map(lambda *a: jnp.stack(a), *models)
    starts = [_first(stepper, p.model, p.state, p.memory, p.driven, p.t0) for p in plans]
    now = jax.device_put(jax.tree.map(lambda *a: np.stack(a), *starts))
    tables = np.stack([p.table for p in plans])
    kept: list[list[_Step]] = [[] for _ in plans]
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
        _joined(stepper, p.model, p.state, pieces, bad, sum(len(x.iterations) for x in pieces), 1)
        for p, pieces, bad in zip(plans, kept, failed, strict=True)
    ]


def _first(stepper: Stepper, model: Model, start: Any, memory: Any, driven: Any, t0: float) -> _Now:
    if memory is None:
        memory = _remember(stepper, model, start, np.zeros(model.nu))
    now = _Now(
        jax.tree.map(lambda a: np.stack([np.asarray(a)] * max(stepper.window, HISTORY)), start),
        memory,
        np.zeros((HISTORY, stepper.nz(model))),
        np.asarray(0),
        np.asarray(float(t0)),
        np.zeros(model.driven.shape[0]) if driven is None else np.asarray(driven),
    )
    return jax.device_put(now)


def _joined(
    stepper: Stepper, model: Model, start: Any, pieces: list[_Step], failed: Any, done: int, every: int
) -> Rollout:
    if not pieces:
        lone = jax.tree.map(lambda a: np.asarray(a)[None], start)
        z, u, driven = (np.zeros((0, n)) for n in (stepper.nz(model), model.nu, model.driven.shape[0]))
        return Rollout(lone, z, u, driven, np.zeros(0, int), np.zeros(0), None, 0, every)
    joined = jax.tree.map(lambda *a: np.concatenate(a), *pieces)
    states = jax.tree.map(lambda a, b: np.concatenate([np.asarray(a)[None], b]), start, joined.state)
    steps = (joined.z, joined.u, joined.driven, joined.iterations, joined.residual)
    return Rollout(states, *steps, failed, done, every)


class _Now(NamedTuple):
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


class _Step(NamedTuple):
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
    now: _Now,
    inputs: Array,
    count: Array,
    controller: Controller | None,
) -> tuple[_Now, _Step, Array]:
    """Advance by `count` steps or to the first that fails; how many were solved."""

    def step(now: _Now, u: Array) -> tuple[_Now, _Step]:
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
        after = _Now(history, s.memory, zs, now.k + 1, now.t + h, moved[model.driven] / h)
        return after, _Step(s.state, s.z, u, after.driven, s.iterations, s.residual, s.outcome)

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
    stepper: Stepper, model: Model, now: _Now, inputs: Array, count: Array, controller: Any, shared: bool
) -> Any:
    def one(model: Model, now: _Now, inputs: Array) -> Any:
        return _advance_piece(stepper, model, now, inputs, count, controller)

    return jax.vmap(one, in_axes=(None if shared else 0, 0, 0))(model, now, inputs)


_advance = jit(_advance_piece, static_argnums=(5,))
_advance_together = jit(_advance_pieces, static_argnums=(5, 6))


@functools.partial(jit, once=True)
def _remember(stepper: Stepper, model: Model, x: Any, u: Array) -> Any:
    return stepper.remember(model, x, u)


@functools.partial(jit, once=True)
def _begin(
    stepper: Stepper, model: Model, q: Array, v: Array, u: Array, t: Array
) -> tuple[Any, Any, Array, Array]:
    """The first state, what the stepper remembers of it, and the constraint there with its slope."""
    x = stepper.initial(model, q, v, u, t)
    return x, stepper.remember(model, x, u), *model.constraint(q, u)


def _times(stepper: Stepper, steps: int) -> np.ndarray:
    dt = np.asarray(stepper.dt, dtype=float)
    if dt.ndim == 0:
        return np.arange(steps + 1) * float(dt)
    return np.concatenate([[0.0], np.cumsum(dt)])


def _inputs(
    mechanism: Mechanism, inputs: ArrayLike | Controller | None, steps: int
) -> tuple[np.ndarray, Controller | None]:
    nu = len(mechanism.input_names)
    if callable(inputs):
        return np.zeros((steps, nu)), inputs
    if inputs is None:
        return np.zeros((steps, nu)), None
    names = ", ".join(mechanism.input_names) or "none"
    table = numeric(inputs, f"The inputs ({names})")
    if table.shape == (nu,):
        table = np.broadcast_to(table, (steps, nu))
    return finite(table, (steps, nu), f"The inputs ({names})"), None


def _check_controller(mechanism: Mechanism, controller: Controller) -> None:
    """Refuse a controller that is no function of (t, q, v) in jax.numpy or gives the wrong number of inputs."""
    names = mechanism.input_names
    shape = _controller_shape(controller, len(mechanism.coordinates))
    if shape != (len(names),):
        told = ", ".join(names) or "none"
        raise MechidError(f"The controller gives shape {shape}, not one value for each input ({told}).")


@functools.lru_cache(maxsize=64)
def _controller_shape(controller: Controller, n: int) -> tuple[int, ...]:
    try:
        with contextlib.suppress(ValueError):  # a compiled function does not tell
            inspect.signature(controller).bind(0.0, 0.0, 0.0)
    except TypeError:
        raise MechidError("The controller must be a function of (t, q, v).") from None
    try:
        return jax.eval_shape(
            lambda t, q, v: jnp.asarray(controller(t, q, v), float), 0.0, jnp.zeros(n), jnp.zeros(n)
        ).shape
    except Exception as error:
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        raise MechidError(f"The controller is no jax.numpy function of (t, q, v): {reason}.") from None
