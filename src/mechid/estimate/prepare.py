"""What every estimator begins with: arguments that have been checked, and experiments on their grids of steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import numpy as np

from mechid.dynamics.assembly import check_inertia, with_driven
from mechid.dynamics.driver import KEEP
from mechid.dynamics.linearization import tangent_of
from mechid.dynamics.stepper import Observation, Stepper
from mechid.errors import MechidError
from mechid.estimate import samples
from mechid.estimate.conditions import check_shapes, check_slopes, exact
from mechid.estimate.experiment import Experiment
from mechid.estimate.shooting import Shooting
from mechid.estimate.start import first_state
from mechid.estimate.suspicion import refuse_stillness
from mechid.model.parameters import Parameters
from mechid.model.system import System

GRADIENTS = ("forward", "adjoint")


def prepared(stepper: Stepper, experiment: Experiment, free: Parameters, keep: int = KEEP) -> Shooting:
    """An experiment on its grid of steps, without its feedback."""
    mechanism = free.mechanism
    model = free.bind(free.theta0)
    stepper = stepper.on(mechanism)
    stepper.check(model, np.size(stepper.dt))
    grid = samples.grid(experiment, stepper)
    stepper.check(model, grid.steps)
    table = samples.inputs(experiment, mechanism, grid)
    first = first_state(mechanism, model, experiment.start, experiment.name)
    check_inertia(mechanism, model, first.q, first.v, float(grid.t[0]))
    groups = samples.groups(experiment, grid)
    refuse_stillness(experiment, float(grid.t[0]), float(grid.t[-1]))
    _check_sensors(mechanism, model, experiment)
    _check_cost(mechanism, model, experiment, free)
    shooting = Shooting(
        experiment, stepper, free, grid, groups, first, table, keep, late=samples.late(experiment, free)
    )
    shooting = replace(shooting, table=shooting.acting(free.theta0))
    _check_conditions(shooting, model)
    return shooting


def _check_conditions(s: Shooting, model: Any) -> None:
    """Refuse conditions on the first state that cannot be computed, differentiated or met."""
    conditions, first, who = tuple(s.experiment.start.conditions), s.first, s.experiment.name  # type: ignore[arg-type]
    if not conditions:
        return
    check_shapes(conditions, model, first.q, first.v, who)
    t, tangent = float(s.grid.t[0]), tangent_of(s.free, s.free.theta0)
    u = with_driven(s.free.mechanism, np.zeros(model.nu), first.q)
    x = s.stepper.initial(model, first.q, first.v, u, t)  # type: ignore[arg-type]
    start = first.slopes(s.stepper, model, tangent, x, first.q, first.v, t)
    check_slopes(conditions, model, tangent, first.q, first.v, start, who)


def check(
    mechanism: Any, stepper: Any, experiments: list[Any], free: Any, solver: Any, gradients: str | None
) -> None:
    if not isinstance(mechanism, System):
        raise MechidError(f"An estimation needs a Mechanism, not {mechanism!r}.")
    if not isinstance(stepper, Stepper):
        raise MechidError(
            f"An estimation needs a stepper (Variational, Spook, BDF or OneStep), not {stepper!r}."
        )
    if not isinstance(free, Parameters):
        raise MechidError(f"What is free must be Parameters(mechanism).free(…), not {free!r}.")
    if free.mechanism is not mechanism:
        raise MechidError(
            f"The free parameters are those of another mechanism ('{free.mechanism.name}'), not of "
            f"'{mechanism.name}'."
        )
    if not free.size:
        raise MechidError(
            "No parameter is free: name at least one, Parameters(mechanism).free('elbow.damping')."
        )
    if not experiments:
        raise MechidError("An estimation needs at least one experiment.")
    for e in experiments:
        if not isinstance(e, Experiment):
            raise MechidError(f"An estimation needs Experiments, not {e!r}.")
    names = [e.name for e in experiments]
    for name in names:
        if names.count(name) > 1:
            raise MechidError(f"Two experiments are called '{name}': give each a name of its own.")
    if gradients is not None and gradients not in GRADIENTS:
        raise MechidError(f"There are no gradients='{gradients}'; valid: {', '.join(GRADIENTS)}.")
    if isinstance(solver, type) or not callable(getattr(solver, "solve", None)):
        raise MechidError(f"A solver is LevenbergMarquardt(), SteepestDescent() or LBFGSB(), not {solver!r}.")
    if free.limits and not solver.least_squares:
        raise MechidError(
            f"{type(solver).__name__} knows bounds only, not limits between parameters: use LevenbergMarquardt."
        )
    held = [c for e in experiments for c in exact(e.start.conditions)]
    if held and not solver.least_squares:
        raise MechidError(
            f"{type(solver).__name__} cannot hold condition '{held[0].name}' exactly: give it a std, or use "
            "LevenbergMarquardt."
        )
    if solver.least_squares and any(e.cost is not None for e in experiments):
        raise MechidError(
            f"{type(solver).__name__} needs a sum of squares, not a cost of your own: use SteepestDescent or "
            "LBFGSB."
        )


def _observed(mechanism: System, model: Any) -> Observation:
    """The shapes of what sensors see."""
    nq, frames = model.nq, len(mechanism.frame_names)
    shapes = ((), (nq,), (nq,), (frames, 4, 4), (frames, 6), (nq,), (model.nc,), (model.nu,))
    return Observation(*(jax.ShapeDtypeStruct(shape, float) for shape in shapes))  # type: ignore[arg-type]


def _check_cost(mechanism: System, model: Any, experiment: Experiment, free: Parameters) -> None:
    """Refuse functions of a cost that do not give one number."""
    if experiment.cost is None:
        return
    seen = _observed(mechanism, model)
    measured = jax.ShapeDtypeStruct((sum(len(m.channels) for m in experiment.measured),), float)
    values = {name: jax.ShapeDtypeStruct((), float) for name in free.names}
    for what in ("running", "terminal"):
        function = getattr(experiment.cost, what)
        if function is None:
            continue
        try:
            shape = jax.eval_shape(
                lambda *a, f=function: jax.numpy.asarray(f(*a)), seen, measured, values
            ).shape
        except Exception as error:
            reason = str(error).strip().partition("\n")[0].rstrip(".")
            raise MechidError(f"The {what} cost of experiment '{experiment.name}' fails: {reason}.") from None
        if shape != ():
            raise MechidError(
                f"The {what} cost of experiment '{experiment.name}' must give one number, not shape {shape}."
            )


def _check_sensors(mechanism: System, model: Any, experiment: Experiment) -> None:
    """Refuse sensors that do not give one value for each of their channels."""

    seen = _observed(mechanism, model)
    for m in experiment.measured:
        try:
            shape = jax.eval_shape(lambda o, m=m: m.sensor.predict(o, model), seen).shape
        except MechidError:
            raise
        except Exception as error:
            reason = str(error).strip().partition("\n")[0].rstrip(".")
            raise MechidError(
                f"The sensor of '{m.channels[0]}' cannot be computed for this mechanism: {reason}."
            ) from None
        if shape != (len(m.channels),):
            raise MechidError(
                f"A sensor of experiment '{experiment.name}' gives {shape[0] if shape else 'no'} values, but "
                f"{len(m.channels)} channels are named ({', '.join(m.channels)})."
            )
