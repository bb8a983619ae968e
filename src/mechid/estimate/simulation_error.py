"""`simulation_error`: the parameters whose simulation comes closest to the logs (Caldwell, Section III).

    min over θ (and unknown first states) of   ½ Σ ((predicted − measured)/std)²    or a cost of Bolza form

Maximum likelihood for white Gaussian noise. Where a channel's noise is not given it is estimated from its
residuals, in turn with the parameters. Works with every stepper, every mechanism and every sensor.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import jax
import numpy as np

from mechid.dynamics.course import KEEP
from mechid.dynamics.stepper import Observation, Stepper
from mechid.errors import MechidError
from mechid.estimate import samples
from mechid.estimate.experiment import Experiment
from mechid.estimate.fit import Compared, Estimate, Fit
from mechid.estimate.problem import ShootingProblem
from mechid.estimate.segments import solve_in_segments
from mechid.estimate.shooting import Shooting
from mechid.estimate.solvers.levenberg_marquardt import LevenbergMarquardt
from mechid.estimate.solvers.problem import Point, Problem, Progress, Solution, plural
from mechid.estimate.start import first_state
from mechid.estimate.tracking import with_gains, without_gains
from mechid.estimate.uncertainty import Uncertainty, uncertainty
from mechid.estimate.warming import warm
from mechid.model.mechanism import Mechanism
from mechid.model.parameters import Parameters

GRADIENTS = ("forward", "adjoint")


class Solver(Protocol):
    gradients: str
    """which gradient it asks for where none is forced"""
    least_squares: bool
    """whether it needs a sum of squares"""

    def solve(self, problem: Problem, y: np.ndarray, progress: Progress | None = None) -> Solution: ...


def simulation_error(
    mechanism: Mechanism,
    stepper: Stepper,
    experiments: Experiment | Sequence[Experiment],
    free: Parameters,
    solver: Solver | None = None,
    *,
    segments: int | None = None,
    gradients: str | None = None,
    keep: int = KEEP,
    progress: Progress | None = None,
) -> Fit:
    """The free parameters that make simulations of the experiments agree with their logs.

    solver: `LevenbergMarquardt()` by default, `SteepestDescent(…)`, `LBFGSB(…)`. segments: cut each experiment into
    so many parts whose first states are unknowns too (multiple shooting), for horizons on which small changes grow
    too much. gradients: "forward" or "adjoint", for solvers that follow gradients; by default what is cheaper.
    keep: steps whose states are kept in memory; longer motions are made again, stretch by stretch.
    """
    began = time.perf_counter()
    solver = LevenbergMarquardt() if solver is None else solver
    given: list[Any] = list(experiments) if isinstance(experiments, list | tuple) else [experiments]
    for what, x in (("segments", 1 if segments is None else segments), ("keep", keep)):
        if isinstance(x, bool) or not isinstance(x, int | np.integer) or x < 1:
            raise MechidError(f"{what}={x!r} must be ≥ 1 and whole.")
    _check(mechanism, stepper, given, free, solver, gradients)
    shootings = [shooting(stepper, e, free, keep) for e in given]
    if gradients is None:
        few = free.size + sum(s.size for s in shootings) <= 8
        gradients = "forward" if few and all(s.loss.running is None for s in shootings) else solver.gradients
    noise = tuple(_first_noise(s) for s in shootings)
    adjoint = gradients == "adjoint" and not solver.least_squares
    shootings = [without_gains(s) if s.experiment.feedback is not None else s for s in shootings]
    warm(shootings[0], adjoint=adjoint)
    compiled = time.perf_counter() - began
    shootings = [with_gains(s) if s.experiment.feedback is not None else s for s in shootings]
    whole = ShootingProblem(free, tuple(shootings), noise, (None,) * len(shootings), gradients)
    count = 1 if segments is None else int(segments)
    first = whole.evaluate(whole.start)
    if not np.isfinite(first.cost) and count < 2:
        raise MechidError(f"The starting parameters cannot be simulated. {_why(first)}")
    problem, solution = _solve(whole, solver, count, progress)
    finished = _finished(problem, solution, solver, _first_cost(whole, first, problem))
    seconds = {"compile": compiled, "run": time.perf_counter() - began - compiled}
    return replace(finished, seconds=seconds)


def shooting(stepper: Stepper, experiment: Experiment, free: Parameters, keep: int = KEEP) -> Shooting:
    """An experiment on its grid of steps, without its feedback."""
    mechanism = free.mechanism
    model = free.bind(free.theta0)
    stepper.check(model, np.size(stepper.dt))
    grid = samples.grid(experiment, stepper)
    stepper.check(model, grid.steps)
    table = samples.inputs(experiment, mechanism, grid)
    first = first_state(mechanism, model, experiment.start, experiment.name)
    groups = samples.groups(experiment, grid)
    _check_sensors(mechanism, model, experiment)
    _check_cost(mechanism, model, experiment, free)
    return Shooting(experiment, stepper, free, grid, groups, first, table, keep)


def _solve(
    problem: ShootingProblem, solver: Any, segments: int, progress: Progress | None
) -> tuple[ShootingProblem, Solution]:
    """Solve; where noise is estimated, again with the noise that the residuals show, until it settles."""
    unknown = any(np.isnan(g.std).any() for s in problem.shootings for g in s.groups)
    settling = unknown and problem.least_squares
    if segments > 1:
        problem, solution = solve_in_segments(problem, solver, segments, progress)
        if not settling:
            return problem, solution
    else:
        if settling:
            noise = estimated_noise(problem, problem.evaluate(problem.start))
            problem = replace(problem, noise=noise, memory={})
        solution = solver.solve(problem, problem.start, progress)
    trace = solution.trace
    for _ in range(8 if settling else 0):
        settled = estimated_noise(problem, solution.point)
        pairs = zip(np.concatenate(sum(problem.noise, ())), np.concatenate(sum(settled, ())), strict=True)
        if not solution.converged or all(abs(a - b) <= 0.02 * a for a, b in pairs):
            break
        problem = replace(problem, noise=settled, memory={})
        solution = solver.solve(problem, solution.point.y, progress)
        trace += solution.trace[1:]
    numbered = tuple(replace(x, number=i) for i, x in enumerate(trace))
    count = plural(solution.iterations, "iteration")
    outcome = solution.outcome.replace(f"after {count}", f"after {plural(len(numbered) - 1, 'iteration')}")
    return problem, replace(solution, trace=numbered, outcome=outcome)


def estimated_noise(problem: ShootingProblem, point: Point) -> Any:
    """The std of each channel: as given, or the root mean square of its residuals, over all segments."""
    if not np.isfinite(point.cost):
        return problem.noise
    squares: dict[Any, Any] = {}
    counts: dict[Any, Any] = {}
    triples = list(zip(problem.shootings, point.runs, problem.noise, strict=True))
    for s, run, noise in triples:
        for i, (group, r, std) in enumerate(zip(s.groups, run.residuals, noise, strict=True)):
            key = (s.experiment.name, group.channels, i)
            squares[key] = squares.get(key, 0.0) + np.sum((r * std) ** 2, 0)
            counts[key] = counts.get(key, 0.0) + group.present.sum(0)
    result = []
    for s, _, _ in triples:
        stds = []
        for i, group in enumerate(s.groups):
            key = (s.experiment.name, group.channels, i)
            shown = np.sqrt(squares[key] / np.maximum(counts[key], 1))
            floor = 1e-12 * np.maximum(np.abs(group.values).max(0, initial=0.0), 1e-12)
            stds.append(np.where(np.isnan(group.std), np.maximum(shown, floor), group.std))
        result.append(tuple(stds))
    return tuple(result)


def _first_noise(s: Shooting) -> tuple[np.ndarray, ...]:
    """Where noise is not given: a part of the channel's range, until residuals tell."""
    stds = []
    for g in s.groups:
        seen = np.where(g.present > 0, g.values, np.nan)
        spread = np.nanstd(seen, axis=0) if g.times else np.ones(len(g.std))
        stds.append(np.where(np.isnan(g.std), np.where(spread > 0, spread, 1.0), g.std))
    return tuple(stds)


def _first_cost(whole: ShootingProblem, first: Point, last: ShootingProblem) -> float:
    """The cost at the start; where noise was estimated, in the weights of the end."""
    if not whole.least_squares or not np.isfinite(first.cost):
        return first.cost
    begun = [noise for noise, before in zip(last.noise, last.follows, strict=True) if before is None]
    change = 0.0
    for run, old, new in zip(first.runs, whole.noise, begun, strict=True):
        for r, a, b in zip(run.residuals, old, new, strict=False):
            change += 0.5 * float(np.sum((r * a / b) ** 2) - np.sum(r**2))
    return first.cost + change


# What comes out


def _finished(problem: ShootingProblem, solution: Solution, solver: Any, cost: float) -> Fit:
    free, y = problem.free, solution.point.y
    theta = y[: free.size]
    found = uncertainty(problem, solution.point)
    stds = np.sqrt(np.diag(found.covariance))
    lower, upper = free.bounds()
    start = np.asarray(free.physical_numbers(free.theta0))
    quantities = free.physical(theta)
    ten = {i for place in free._ten for i in place}
    parameters = {
        name: Estimate(
            name,
            quantity.value,
            float(stds[i]),
            quantity.unit,
            float(start[i]),
            -np.inf if i in ten else float(lower[i]),
            np.inf if i in ten else float(upper[i]),
        )
        for i, (name, quantity) in enumerate(quantities.items())
    }
    return Fit(
        "simulation error",
        type(solver).__name__,
        free,
        theta,
        parameters,
        _starts(problem, y, found),
        found.covariance,
        (cost, solution.point.cost),
        solution.trace,
        compared(problem, solution.point),
        solution.converged,
        solution.outcome,
        {},
        found.sensitivities,
        found.notes,
        {"uncertainty": found, "problem": problem},
    )


def _starts(problem: ShootingProblem, y: np.ndarray, found: Uncertainty) -> dict[str, Estimate]:
    starts: dict[str, Estimate] = {}
    for s, place, follows in zip(problem.shootings, problem.places, problem.follows, strict=True):
        if follows is not None:
            continue
        given = s.first.unknowns
        for i, (name, unit) in enumerate(zip(s.first.names, s.first.units, strict=True)):
            full = f"{s.experiment.name}: {name}"
            at = place.start + i
            starts[full] = Estimate(
                full, float(y[at]), float(found.start_std[at]), unit, float(given[i]), -np.inf, np.inf
            )
    return starts


def compared(problem: ShootingProblem, point: Point) -> tuple[Compared, ...]:
    """Every channel with its residuals, segments joined."""
    result: dict[tuple[str, str], Compared] = {}
    for s, run, noise in zip(problem.shootings, point.runs, problem.noise, strict=True):
        groups = s.groups[:-1] if s.continued else s.groups
        for group, r, std in zip(groups, run.residuals, noise, strict=False):
            t = s.grid.t[group.interval]
            t = t + group.fraction * (s.grid.t[group.interval + 1] - t)
            seen = group.present > 0
            measured = np.where(seen, group.values, np.nan)
            gap = np.where(seen, r * std / np.sqrt(group.emphasis)[:, None], np.nan)
            for j, name in enumerate(group.channels):
                key = (s.experiment.name, name)
                now = Compared(
                    *key, t, measured[:, j], gap[:, j], float(std[j]), bool(np.isnan(group.std[j]))
                )
                result[key] = _joined(result[key], now) if key in result else now
    return tuple(result.values())


def _joined(a: Compared, b: Compared) -> Compared:
    def both(name: str) -> np.ndarray:
        return np.concatenate([getattr(a, name), getattr(b, name)])

    return replace(a, time=both("time"), measured=both("measured"), residual=both("residual"))


# What may be wrong


def _check(
    mechanism: Any, stepper: Any, experiments: list[Any], free: Any, solver: Any, gradients: str | None
) -> None:
    if not isinstance(mechanism, Mechanism):
        raise MechidError(f"An estimation needs a Mechanism, not {mechanism!r}.")
    if not isinstance(stepper, Stepper):
        raise MechidError(f"An estimation needs a stepper (Variational, Spook or BDF), not {stepper!r}.")
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
    if solver.least_squares and any(e.cost is not None for e in experiments):
        raise MechidError(
            f"{type(solver).__name__} needs a sum of squares, not a cost of your own: use SteepestDescent or "
            "LBFGSB."
        )


def _observed(mechanism: Mechanism, model: Any) -> Observation:
    """The shapes of what sensors see."""
    nq, frames = model.nq, len(mechanism.frame_names)
    shapes = ((), (nq,), (nq,), (frames, 4, 4), (frames, 6), (nq,), (model.nc,), (model.nu,))
    return Observation(*(jax.ShapeDtypeStruct(shape, float) for shape in shapes))  # type: ignore[arg-type]


def _check_cost(mechanism: Mechanism, model: Any, experiment: Experiment, free: Parameters) -> None:
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


def _check_sensors(mechanism: Mechanism, model: Any, experiment: Experiment) -> None:
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


def _why(point: Point) -> str:
    """What went wrong in the first run that failed."""
    from mechid.dynamics.march import rollout
    from mechid.dynamics.simulate import finished

    for run in point.runs:
        if run.failure and run.course is not None:
            p = run.course.plan
            again = rollout(
                p.stepper, p.model, p.state, p.table, p.controller, p.t0, memory=p.memory, driven=p.driven
            )
            return finished(p, again, throw=False).outcome
        if run.failure:
            return run.failure
    return ""
