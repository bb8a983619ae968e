"""`simulate`: a mechanism moved by any stepper from given coordinates and rates.

The compiled program advances a fixed number of steps and is called again and again, so that it is compiled once
whatever the horizon, memory is handed to the host piece by piece, and a run can be interrupted between pieces.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from mechid.compile import jit
from mechid.dynamics.assembly import check_start
from mechid.dynamics.diagnosis import diagnose
from mechid.dynamics.lowering import lower
from mechid.dynamics.model import Model
from mechid.dynamics.stepper import Outcome, Stepper
from mechid.dynamics.trajectory import PIECE, Controller, Trajectory
from mechid.dynamics.tree import Array
from mechid.errors import MechidError, SimulationError
from mechid.model.geometry import finite
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
    throw: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> Trajectory:
    """The motion over `steps` steps from coordinates q and rates v (by name or in order; 0 where absent).

    inputs: an array (steps, nu) held over each step, or one row held throughout, or a function
    u = f(t, q, v) in jax.numpy evaluated at the start of each step. A step that cannot be solved raises
    `SimulationError` with the steps before it, or with throw=False ends the trajectory and says so in `outcome`.
    """
    if not isinstance(steps, int | np.integer) or steps < 0:
        raise MechidError(f"The number of steps must be ≥ 0 and whole, not {steps!r}.")
    if model is None:
        model = lower(mechanism)
    stepper.check(model, steps)
    start_q = mechanism.coordinate_vector(q, "The initial coordinate")
    start_v = mechanism.coordinate_vector(v, "The initial rate")
    check_start(mechanism, model, start_q, start_v)  # type: ignore[arg-type]
    table, controller = _inputs(mechanism, inputs, steps)
    start = _initial(stepper, model, start_q, start_v, table[0] if steps else np.zeros(model.nu), t0)
    if controller is not None:
        _check_controller(mechanism, controller)
    driven = start_v[np.asarray(model.driven)]
    run = rollout(stepper, model, start, table, controller, t0, driven=driven, progress=progress)
    done = run.steps_done
    outcome = f"All {steps} steps were solved."
    times = t0 + _times(stepper, steps)
    if done < steps:
        cause = diagnose(stepper, model, mechanism, run, times[done])
        outcome = f"Step {done} at t = {times[done]:.6g} s could not be solved: {cause}"
    trajectory = Trajectory(
        mechanism,
        stepper,
        model,
        times[: done + 1],
        run.states,
        run.z,
        run.u,
        run.iterations,
        run.residual,
        outcome,
        start_q,
        start_v,
        controller,
    )
    complaint = _wrapped(trajectory) if stepper.wraps else ""
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
    iterations: np.ndarray
    residual: np.ndarray
    failed: Any
    """the attempt that failed: state, multipliers, input, outcome; None when all went well"""

    @property
    def steps_done(self) -> int:
        return len(self.iterations)


def rollout(
    stepper: Stepper,
    model: Model,
    start: Any,
    inputs: np.ndarray,
    controller: Controller | None = None,
    t0: float = 0.0,
    *,
    driven: np.ndarray | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Rollout:
    """Advance a state through all inputs, in pieces of the compiled program.

    driven: initial rates of driven coordinates, for a controller that asks for them.
    """
    steps = len(inputs)
    carry = _Carry(
        jax.tree.map(lambda a: jnp.stack([a] * max(stepper.window, 3)), start),
        jnp.zeros((3, stepper.nz(model))),
        jnp.asarray(0),
        jnp.asarray(float(t0)),
        jnp.asarray(True),
        jnp.zeros(model.driven.shape[0]) if driven is None else jnp.asarray(driven),
    )
    pieces: list[Any] = []
    failed = None
    for first in range(0, steps, PIECE):
        piece = np.zeros((PIECE, inputs.shape[1]))
        piece[: min(PIECE, steps - first)] = inputs[first : first + PIECE]
        carry, out = _advance(stepper, model, carry, piece, steps, controller)
        out = jax.tree.map(np.asarray, out)
        ends = np.flatnonzero((out.outcome != Outcome.SOLVED) | ~out.taken)
        count = int(ends[0]) if len(ends) else PIECE
        pieces.append(jax.tree.map(lambda a, n=count: a[:n], out))
        if first + count < min(first + PIECE, steps):
            failed = jax.tree.map(lambda a, n=count: a[n], out)
            break
        if progress is not None:
            progress(min(first + PIECE, steps), steps)
    nz, nu = stepper.nz(model), inputs.shape[1]
    if not pieces:
        lone = jax.tree.map(lambda a: np.asarray(a)[None], start)
        return Rollout(lone, np.zeros((0, nz)), np.zeros((0, nu)), np.zeros(0, int), np.zeros(0), None)
    joined = jax.tree.map(lambda *a: np.concatenate(a), *pieces)
    states = jax.tree.map(lambda a, b: np.concatenate([np.asarray(a)[None], b]), start, joined.state)
    return Rollout(states, joined.z, joined.u, joined.iterations, joined.residual, failed)


class _Carry(NamedTuple):
    history: Any
    """the last max(window, 3) states, oldest first"""
    zs: Array
    k: Array
    t: Array
    alive: Array
    driven: Array
    """rates of driven coordinates over the last step"""


class _Out(NamedTuple):
    state: Any
    z: Array
    u: Array
    iterations: Array
    residual: Array
    outcome: Array
    taken: Array


def _advance_piece(
    stepper: Stepper,
    model: Model,
    carry: _Carry,
    inputs: Array,
    steps: Array,
    controller: Controller | None,
) -> tuple[_Carry, _Out]:
    def one(c: _Carry, u: Array) -> tuple[_Carry, _Out]:
        newest = jax.tree.map(lambda a: a[-1], c.history)
        active = c.alive & (c.k < steps)

        def take() -> _Out:
            w = u
            if controller is not None:
                q = stepper.positions(model, newest)
                rates = stepper.velocities(model, newest, u, c.driven)
                w = jnp.asarray(controller(c.t, q, rates), float)
            xs = jax.tree.map(lambda a: a[a.shape[0] - stepper.window :], c.history)
            last = jax.tree.map(lambda a: a[-3:], c.history)
            guess = stepper.predict(last, c.zs, c.k + 1)
            s = stepper.step(xs, w, c.t, c.k, model, guess)
            return _Out(s.state, s.z, w, s.iterations, s.residual, s.outcome, jnp.asarray(True))

        def skip() -> _Out:
            zero = jnp.zeros_like(c.zs[-1])
            shape = jax.eval_shape(take)
            number = jnp.zeros((), shape.iterations.dtype)
            solved = jnp.zeros((), shape.outcome.dtype)
            return _Out(newest, zero, u, number, jnp.zeros(()), solved, jnp.asarray(False))

        out = jax.lax.cond(active, take, skip)
        good = active & (out.outcome == int(Outcome.SOLVED))
        history = jax.tree.map(
            lambda old, new: jnp.where(good, jnp.concatenate([old[1:], new[None]]), old),
            c.history,
            out.state,
        )
        zs = jnp.where(good, jnp.concatenate([c.zs[1:], out.z[None]]), c.zs)
        time = jnp.where(good, c.t + stepper.step_size(c.k), c.t)
        alive = c.alive & (good | ~active)
        moved = stepper.positions(model, out.state) - stepper.positions(model, newest)
        driven = jnp.where(good, moved[model.driven] / stepper.step_size(c.k), c.driven)
        return _Carry(history, zs, c.k + good, time, alive, driven), out

    return jax.lax.scan(one, carry, inputs)


_advance = jit(_advance_piece, static_argnums=(5,))


@jit
def _initial(stepper: Stepper, model: Model, q: Array, v: Array, u: Array, t: Array) -> Any:
    return stepper.initial(model, q, v, u, t)


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
    table = np.asarray(inputs)
    if table.shape == (nu,):
        table = np.broadcast_to(table, (steps, nu))
    return finite(table, (steps, nu), f"The inputs ({names})"), None


def _check_controller(mechanism: Mechanism, controller: Controller) -> None:
    """Refuse a controller that is no function of (t, q, v) in jax.numpy or gives the wrong number of inputs."""
    n, nu = len(mechanism.coordinates), len(mechanism.input_names)
    try:
        out = jax.eval_shape(
            lambda t, q, v: jnp.asarray(controller(t, q, v), float), 0.0, jnp.zeros(n), jnp.zeros(n)
        )
    except Exception as error:
        first = str(error).strip().splitlines()[0]
        raise MechidError(f"The controller is no jax.numpy function of (t, q, v): {first}") from None
    if out.shape != (nu,):
        names = ", ".join(mechanism.input_names) or "none"
        raise MechidError(f"The controller gives shape {out.shape}, not one value for each input ({names}).")
