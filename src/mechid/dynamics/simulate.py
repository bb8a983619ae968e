"""`simulate`: a mechanism moved by any stepper from given coordinates and rates.

What is asked for is checked and becomes a `Plan`; chunks of it are solved; a `Trajectory` tells how it went.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from mechid.compile import jit
from mechid.dynamics.assembly import check_inertia, check_start, with_driven
from mechid.dynamics.diagnosis import diagnose
from mechid.dynamics.driver import Chunk, failed_attempt, fails, solve_chunks
from mechid.dynamics.feedback import Feedback
from mechid.dynamics.model import Model
from mechid.dynamics.rollout import Now, begin
from mechid.dynamics.stepper import Stepper
from mechid.dynamics.trajectory import Controller, Law, Trajectory, as_law
from mechid.dynamics.tree import Array
from mechid.errors import MechidError, SimulationError
from mechid.model.geometry import finite, numeric
from mechid.model.system import System


def simulate(
    mechanism: System,
    stepper: Stepper,
    steps: int,
    *,
    q: dict[str, float] | ArrayLike | None = None,
    v: dict[str, float] | ArrayLike | None = None,
    inputs: ArrayLike | Controller | Feedback | None = None,
    t0: float = 0.0,
    model: Model | None = None,
    every: int = 1,
    throw: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> Trajectory:
    """The motion over `steps` steps from coordinates q and rates v (by name or in order; 0 where absent).

    inputs: an array (steps, nu) held over each step, or one row held throughout, or a function
    u = f(t, q, v) in jax.numpy evaluated at the start of each step, or a `feedback`. A step that cannot be
    solved raises `SimulationError` with the steps before it, or with throw=False ends the trajectory and says so
    in `outcome`.
    every: keep only every such state, so that long runs fit in memory.
    """
    if not isinstance(every, int | np.integer) or every < 1:
        raise MechidError(f"The states to keep, every={every!r}, must be ≥ 1 and whole.")
    plan = planned(mechanism, stepper, steps, q=q, v=v, inputs=inputs, t0=t0, model=model)
    return simulated(plan, every=int(every), throw=throw, progress=progress)


class Plan(NamedTuple):
    """A simulation that has been checked and can begin."""

    mechanism: System
    stepper: Stepper
    model: Model
    q: np.ndarray
    v: np.ndarray
    table: np.ndarray
    """(steps, nu) inputs; zeros where a controller makes them; for a law its rows"""
    controller: Controller | Law | None
    t0: float
    now: Now
    """where the motion begins"""
    state: Any
    """the first state"""

    @property
    def law(self) -> Any:
        """the controller as compiled programs take it"""
        return as_law(self.controller)

    @property
    def driven(self) -> np.ndarray:
        """initial rates of driven coordinates"""
        return self.v[np.asarray(self.model.driven)]


def planned(
    mechanism: System,
    stepper: Stepper,
    steps: int,
    *,
    q: dict[str, float] | ArrayLike | None = None,
    v: dict[str, float] | ArrayLike | None = None,
    inputs: ArrayLike | Controller | Feedback | None = None,
    t0: float = 0.0,
    model: Model | None = None,
) -> Plan:
    """Check the arguments of `simulate` and find the first state."""
    if not isinstance(mechanism, System):
        raise MechidError(f"A simulation needs a Mechanism, not {mechanism!r}.")
    if not isinstance(stepper, Stepper):
        raise MechidError(
            f"A simulation needs a stepper (Variational, Spook, BDF or OneStep), not {stepper!r}."
        )
    if isinstance(steps, bool) or not isinstance(steps, int | np.integer) or steps < 0:
        raise MechidError(f"The number of steps must be ≥ 0 and whole, not {steps!r}.")
    t0 = float(finite(t0, (), "The start time t0"))
    if model is None:
        model = mechanism.lower()
    elif getattr(model, "nq", None) != len(mechanism.coordinates):
        raise MechidError(f"The model given is not one of mechanism '{mechanism.name}'.")
    stepper = stepper.on(mechanism)
    stepper.check(model, steps)
    start_q = mechanism.coordinate_vector(q, "The initial coordinate")
    start_v = mechanism.coordinate_vector(v, "The initial rate")
    table, controller = _inputs(mechanism, inputs, steps)
    first = with_driven(mechanism, table[0, : model.nu] if steps else np.zeros(model.nu), start_q)
    now, state, closure, slope = _begin(stepper, model, start_q, start_v, first, t0)
    check_start(mechanism, model, np.asarray(closure), np.asarray(slope), start_q, start_v, t0)
    check_inertia(mechanism, model, start_q, start_v, t0)
    if controller is not None and not isinstance(controller, Law):
        _check_controller(mechanism, controller)
    return Plan(mechanism, stepper, model, start_q, start_v, table, controller, float(t0), now, state)


def simulated(
    plan: Plan, *, every: int = 1, throw: bool = True, progress: Callable[[int, int], None] | None = None
) -> Trajectory:
    """The trajectory of a plan, with its outcome as a sentence."""
    return trajectory_of(plan, solve_chunks(plan, progress=progress), every=every, throw=throw)


def trajectory_of(plan: Plan, chunks: Iterable[Chunk], *, every: int = 1, throw: bool = True) -> Trajectory:
    """The same from the chunks of a plan, as they are solved."""
    parts: list[Any] = []
    done, failure, chunk = 0, None, None
    for chunk in chunks:
        motion = chunk.motion
        kept = slice(-(chunk.first + 1) % every, chunk.solved, every)
        states = jax.tree.map(lambda a: a[1:], motion.states)  # type: ignore[union-attr]
        rates = np.concatenate([motion.driven[1:], chunk.after.driven[None]])  # type: ignore[union-attr]
        if chunk.solved == chunk.count:
            rates[chunk.count - 1] = chunk.after.driven
        out = (states, motion.z, motion.u, rates, motion.iterations, motion.residual)  # type: ignore[union-attr]
        # copies where few are kept, so that the others are given back
        parts.append(jax.tree.map(lambda a, s=kept: np.array(np.asarray(a)[s], copy=every > 1), out))
        done = chunk.first + chunk.solved
        if fails(chunk):
            failure = failed_attempt(chunk)
    steps, model = len(plan.table), plan.model
    begun = jax.tree.map(lambda a: np.asarray(a)[None], plan.state)
    if not parts:
        none = (np.zeros((0, n)) for n in (plan.stepper.nz(model), model.nu, model.driven.shape[0]))
        parts = [(jax.tree.map(lambda a: a[:0], begun), *none, np.zeros(0, int), np.zeros(0))]
    states, z, u, driven, iterations, residual = jax.tree.map(lambda *a: np.concatenate(a), *parts)
    states = jax.tree.map(lambda a, b: np.concatenate([a, b]), begun, states)
    times = plan.t0 + _times(plan.stepper, steps)
    outcome = f"All {steps} steps were solved."
    if failure is not None and chunk is not None:
        last = jax.tree.map(lambda a: np.asarray(a)[-2], chunk.after.history)
        cause = diagnose(plan.stepper, model, plan.mechanism, failure, last, done, times[done])
        outcome = f"Step {done} at t = {times[done]:.6g} s could not be solved: {cause}"
    trajectory = Trajectory(
        plan.mechanism,
        plan.stepper,
        model,
        times[: done + 1][::every],
        states,
        z,
        u,
        iterations,
        residual,
        outcome,
        plan.q,
        plan.v,
        plan.controller,
        plan.table[:done][every - 1 :: every],
        np.concatenate([plan.driven[None], driven]),
        every,
    )
    if failure is not None and throw:
        raise SimulationError(trajectory.outcome, trajectory)
    return trajectory


@functools.partial(jit, once=True)
def _begin(
    stepper: Stepper, model: Model, q: Array, v: Array, u: Array, t: Array
) -> tuple[Now, Any, Array, Array]:
    """Where a motion begins, its first state, and the constraint there with its derivative."""
    x = stepper.initial(model, q, v, u, t)
    return begin(stepper, model, x, u, t, v[model.driven]), x, *model.constraint(q, u)


def _times(stepper: Stepper, steps: int) -> np.ndarray:
    dt = np.asarray(stepper.dt, dtype=float)
    if dt.ndim == 0:
        return np.arange(steps + 1) * float(dt)
    return np.concatenate([[0.0], np.cumsum(dt)])


def _inputs(
    mechanism: System, inputs: ArrayLike | Controller | Feedback | None, steps: int
) -> tuple[np.ndarray, Controller | Law | None]:
    nu = len(mechanism.input_names)
    if isinstance(inputs, Feedback):
        if len(inputs.rows) != steps or inputs.law.inputs != nu:
            raise MechidError(f"The feedback was made for {len(inputs.rows)} steps, not for {steps}.")
        return inputs.rows, inputs.law
    if callable(inputs):
        return np.zeros((steps, nu)), inputs
    if inputs is None:
        return np.zeros((steps, nu)), None
    names = ", ".join(mechanism.input_names) or "none"
    table = numeric(inputs, f"The inputs ({names})")
    if table.shape == (nu,):
        table = np.broadcast_to(table, (steps, nu))
    return finite(table, (steps, nu), f"The inputs ({names})"), None


def _check_controller(mechanism: System, controller: Controller) -> None:
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
