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

import numpy as np

from mechid.dynamics.driver import KEEP
from mechid.dynamics.simulate import simulated
from mechid.dynamics.stepper import Stepper
from mechid.errors import MechidError
from mechid.estimate.experiment import Experiment
from mechid.estimate.finish import finish, suspected
from mechid.estimate.fit import Fit
from mechid.estimate.prepare import check, prepared
from mechid.estimate.problem import ShootingProblem, refuse_too_few
from mechid.estimate.segments import solve_in_segments
from mechid.estimate.shooting import Shooting
from mechid.estimate.solvers.levenberg_marquardt import LevenbergMarquardt
from mechid.estimate.solvers.problem import Point, Problem, Progress, Solution, plural
from mechid.estimate.tracking import with_gains, without_gains
from mechid.estimate.uncertainty import uncertainty
from mechid.estimate.warming import warm
from mechid.estimate.whitening import unmixed
from mechid.model.parameters import Parameters
from mechid.model.system import System
from mechid.threads import small_matrices


class Solver(Protocol):
    gradients: str
    """which gradient it asks for where none is forced"""
    least_squares: bool
    """whether it needs a sum of squares"""

    def solve(self, problem: Problem, y: np.ndarray, progress: Progress | None = None) -> Solution: ...


@small_matrices()
def simulation_error(
    mechanism: System,
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
    check(mechanism, stepper, given, free, solver, gradients)
    shootings = [prepared(stepper, e, free, keep) for e in given]
    if gradients is None:
        few = free.size + sum(s.size for s in shootings) <= 8
        gradients = "forward" if few and all(s.loss.running is None for s in shootings) else solver.gradients
    noise = tuple(first_noise(s) for s in shootings)
    adjoint = gradients == "adjoint" and not solver.least_squares
    shootings = [without_gains(s) if s.experiment.feedback is not None else s for s in shootings]
    warm(shootings[0], adjoint=adjoint)
    compiled = time.perf_counter() - began
    shootings = [with_gains(s) if s.experiment.feedback is not None else s for s in shootings]
    whole = ShootingProblem(free, tuple(shootings), noise, (None,) * len(shootings), gradients)
    refuse_too_few(whole)
    count = 1 if segments is None else int(segments)
    first = whole.evaluate(whole.start)
    if not np.isfinite(first.cost) and count < 2:
        told = " ".join(["The starting parameters cannot be simulated.", _why(first), *suspected(whole)])
        raise MechidError(told.strip())
    problem, solution = _solve(whole, solver, count, progress)
    finished = finish(
        problem,
        solution.point,
        uncertainty(problem, solution.point),
        estimator="simulation error",
        solver=solver,
        first_cost=_first_cost(whole, first, problem),
        solution=solution,
        whole=whole,
    )
    seconds = {"compile": compiled, "run": time.perf_counter() - began - compiled}
    return replace(finished, seconds=seconds)


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
            squares[key] = squares.get(key, 0.0) + np.sum((unmixed(group, r) * std) ** 2, 0)
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


def first_noise(s: Shooting) -> tuple[np.ndarray, ...]:
    """Where noise is not given: a part of the channel's range, until residuals tell."""
    stds = []
    for g in s.groups:
        count = np.maximum(g.present.sum(0), 1)
        mean = np.sum(g.present * g.values, 0) / count
        spread = np.sqrt(np.sum(g.present * (g.values - mean) ** 2, 0) / count)
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


def _why(point: Point) -> str:
    """What went wrong in the first run that failed."""
    for run in point.runs:
        if run.failure and run.plan is not None:
            return simulated(run.plan, throw=False).outcome
        if run.failure:
            return run.failure
    return ""
