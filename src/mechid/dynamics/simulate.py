"""`simulate`: a mechanism moved by any stepper from given coordinates and rates.

The compiled program advances a fixed number of steps and is called again and again, so that it is compiled once
whatever the horizon, memory is handed to the host piece by piece, and a run can be interrupted between pieces.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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
from mechid.dynamics.stepper import Observation, Outcome, Stepper
from mechid.dynamics.tree import Array
from mechid.errors import MechidError, SimulationError, unknown
from mechid.model.geometry import finite
from mechid.model.mechanism import Mechanism

PIECE = 256
"""steps a call of the compiled program"""

Controller = Callable[[Any, Any, Any], Any]
"""u = controller(t, q, v) in jax.numpy, from the state at the start of a step"""


@dataclass(frozen=True, eq=False)
class Trajectory:
    """A simulated motion. Arrays over time come first-axis; N steps have N + 1 states."""

    mechanism: Mechanism
    stepper: Stepper
    model: Model
    t: np.ndarray
    """(N + 1,) s"""
    states: Any
    """the stepper's own states, N + 1"""
    multipliers: np.ndarray
    """(N, nz) impulses of the constraints over each step"""
    inputs: np.ndarray
    """(N, nu)"""
    iterations: np.ndarray
    """(N,)"""
    residual: np.ndarray
    """(N,) largest residual of each step as a multiple of its tolerance"""
    outcome: str
    """a sentence"""
    start: np.ndarray
    """(nq,) the coordinates that were asked for"""

    @property
    def steps(self) -> int:
        return len(self.t) - 1

    @property
    def q(self) -> np.ndarray:
        """(N + 1, nq) joint coordinates, rad or m; full turns are counted"""
        return self._cached("q", lambda: self._unwrapped(self._look[0]))

    @property
    def v(self) -> np.ndarray:
        """(N + 1, nq) their rates"""
        return self._look[1]

    @property
    def energy(self) -> tuple[np.ndarray, np.ndarray]:
        """Kinetic and potential energy at each state, J."""
        return self._look[2], self._look[3]

    @property
    def violation(self) -> np.ndarray:
        """(N + 1,) largest loop violation, m or rad; driven coordinates against their inputs."""
        return self._look[4]

    def frame(self, name: str) -> np.ndarray:
        """(N + 1, 4, 4) world poses of a frame."""
        names = self.mechanism.frame_names
        if name not in names:
            raise unknown("frame", name, names)
        return self._poses[:, names.index(name)]

    def _unwrapped(self, q: np.ndarray) -> np.ndarray:
        """Angles without jumps, beginning at the given start."""
        if not self.stepper.wraps:
            return q
        turns = np.array([c.revolute for c in self.mechanism.coordinates])
        smooth = q.copy()
        smooth[:, turns] = np.unwrap(q[:, turns], axis=0)
        smooth[:, turns] += 2 * np.pi * np.round((self.start - smooth[0]) / (2 * np.pi))[turns]
        return smooth

    @property
    def _look(self) -> tuple[np.ndarray, ...]:
        return self._cached("look", lambda: _look(self.stepper, self.model, *self._padded))

    @property
    def _poses(self) -> np.ndarray:
        return self._cached("poses", lambda: _poses(self.stepper, self.model, *self._padded))

    @property
    def _padded(self) -> tuple[Any, np.ndarray, np.ndarray]:
        """States with the input that acted until each of them, and rates of driven coordinates."""
        inputs = self.inputs if self.steps else np.zeros((1, self.model.nu))
        path = inputs[:, [self.mechanism.input_names.index(d.name) for d in self.mechanism.drives]]
        first = self.start[np.asarray(self.model.driven)][None]
        path = np.concatenate([first, path])[: self.steps + 1]
        rates = np.gradient(path, self.t, axis=0) if self.steps and path.size else 0 * path
        return self.states, np.concatenate([inputs[:1], inputs])[: self.steps + 1], rates

    def _cached(self, key: str, make: Callable[[], Any]) -> Any:
        store = self.__dict__.setdefault("_store", {})
        if key not in store:
            store[key] = make()
        return store[key]


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
    if steps < 0:
        raise MechidError(f"The number of steps must be ≥ 0, not {steps}.")
    if model is None:
        model = lower(mechanism)
    stepper.check(model, steps)
    start_q = mechanism.coordinate_vector(q, "The initial coordinate")
    start_v = mechanism.coordinate_vector(v, "The initial rate")
    check_start(mechanism, model, start_q, start_v)  # type: ignore[arg-type]
    table, controller = _inputs(mechanism, inputs, steps)
    start = _initial(stepper, model, start_q, start_v, table[0] if steps else np.zeros(model.nu), t0)
    run = rollout(stepper, model, start, table, controller, t0, progress=progress)
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
    )
    if done < steps and throw:
        raise SimulationError(outcome, trajectory)
    return trajectory


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
    progress: Callable[[int, int], None] | None = None,
) -> Rollout:
    """Advance a state through all inputs, in pieces of the compiled program."""
    steps = len(inputs)
    carry = _Carry(
        jax.tree.map(lambda a: jnp.stack([a] * max(stepper.window, 3)), start),
        jnp.zeros((3, stepper.nz(model))),
        jnp.asarray(0),
        jnp.asarray(float(t0)),
        jnp.asarray(True),
    )
    pieces: list[Any] = []
    failed = None
    for first in range(0, steps, PIECE):
        piece = np.zeros((PIECE, inputs.shape[1]))
        piece[: min(PIECE, steps - first)] = inputs[first : first + PIECE]
        carry, out = _advance(stepper, model, carry, piece, steps, controller)
        out = jax.tree.map(np.asarray, out)
        good = np.flatnonzero((out.outcome != Outcome.SOLVED) | ~out.taken)
        count = int(good[0]) if len(good) else PIECE
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
                rates = stepper.velocities(model, newest, u, jnp.zeros(model.driven.shape[0]))
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
        return _Carry(history, zs, c.k + good, time, alive), out

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
    table = np.asarray(inputs, dtype=float)
    if table.shape == (nu,):
        table = np.broadcast_to(table, (steps, nu))
    names = ", ".join(mechanism.input_names) or "none"
    return finite(table, (steps, nu), f"The inputs ({names})"), None


def _in_pieces(function: Callable[..., Any]) -> Callable[..., Any]:
    """Map a function over states and what goes with them, PIECE at a time so that it compiles once."""
    compiled = jit(
        lambda stepper, model, *along: jax.vmap(lambda *now: function(stepper, model, *now))(*along)
    )

    def mapped(stepper: Stepper, model: Model, *along: Any) -> Any:
        total, parts = len(along[-1]), []
        for first in range(0, total, PIECE):
            count = min(PIECE, total - first)
            pick = np.minimum(np.arange(first, first + PIECE), total - 1)
            out = compiled(stepper, model, *jax.tree.map(lambda a, i=pick: a[i], along))
            parts.append(jax.tree.map(lambda a, n=count: np.asarray(a)[:n], out))
        return jax.tree.map(lambda *a: np.concatenate(a), *parts)

    return mapped


@_in_pieces
def _look(stepper: Stepper, model: Model, x: Any, u: Array, driven: Array) -> tuple[Array, ...]:
    q, v = stepper.positions(model, x), stepper.velocities(model, x, u, driven)
    kinetic, potential = model.energy(q, v)
    closure, _ = model.constraint(q, u)
    return q, v, kinetic, potential, jnp.max(jnp.abs(closure), initial=0.0)


@_in_pieces
def _poses(stepper: Stepper, model: Model, x: Any, u: Array, driven: Array) -> Array:
    return model.frame_poses(stepper.positions(model, x))


__all__ = ["Observation", "Rollout", "Trajectory", "rollout", "simulate"]
