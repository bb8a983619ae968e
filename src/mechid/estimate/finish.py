"""What every estimator ends with: the `Fit` of a solution."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from mechid.estimate.delay import signal
from mechid.estimate.fit import Compared, Estimate, Fit
from mechid.estimate.misread import misread
from mechid.estimate.problem import ShootingProblem
from mechid.estimate.solvers.problem import Point
from mechid.estimate.suspicion import before, outliers
from mechid.estimate.uncertainty import Uncertainty
from mechid.estimate.whitening import unmixed

NOTICED = 0.1
"""of a step: how much of an input must be missing to be told"""


def finish(
    problem: ShootingProblem,
    point: Point,
    found: Uncertainty,
    *,
    estimator: str,
    solver: Any,
    first_cost: float,
    solution: Any,
    whole: ShootingProblem | None = None,
    simulated: bool = True,
    extra: dict[str, Any] | None = None,
) -> Fit:
    """The fit of a solution: its point, trace, outcome; and what was found of its uncertainty.

    whole: the problem before it was cut into segments. simulated: no state was free to follow the log.
    """
    free, y = problem.free, point.y
    theta = y[: free.size]
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
    channels = compared(problem, point)
    suspicions = suspected(problem, channels) + before_the_log(problem, theta)
    if not solution.outcome.startswith("Interrupted"):
        begun = [y[p] for p, before in zip(problem.places, problem.follows, strict=True) if before is None]
        suspicions += misread(
            whole or problem, np.concatenate([theta, *begun]), channels, simulated=simulated
        )
    return Fit(
        estimator,
        type(solver).__name__,
        free,
        theta,
        parameters,
        _starts(problem, y, found),
        found.covariance,
        (first_cost, point.cost),
        solution.trace,
        channels,
        solution.converged,
        solution.outcome,
        {},
        found.sensitivities,
        (*found.notes, *suspicions),
        {"uncertainty": found, "problem": problem, **(extra or {})},
    )


def suspected(problem: ShootingProblem, channels: tuple[Compared, ...] = ()) -> tuple[str, ...]:
    """What looks broken about the logs; with their residuals, where these are there."""
    spans: dict[str, tuple[Any, float, float]] = {}
    for s in problem.shootings:
        e, first, last = spans.get(s.experiment.name, (s.experiment, np.inf, -np.inf))
        spans[e.name] = e, min(first, float(s.grid.t[0])), max(last, float(s.grid.t[-1]))
    told = tuple(note for e, first, last in spans.values() for note in before(e, first, last))
    return told + outliers(channels, told)


def before_the_log(problem: ShootingProblem, theta: np.ndarray) -> tuple[str, ...]:
    """Where a late input was moving already when its log began."""
    names = problem.free.mechanism.input_names
    if not problem.free.late_inputs and not problem.free.mechanism.delays:
        return ()
    delays = dict(zip(names, problem.free.delays(theta)[0].tolist(), strict=True))
    told = []
    for s, follows in zip(problem.shootings, problem.follows, strict=True):
        e = s.experiment
        for name, source in e.inputs.items() if follows is None else ():
            if not isinstance(source, str) or delays[name] <= 0.0:
                continue
            known = signal(e.log[source], e.hold)
            missing, first = known.time[0] - (s.grid.t[0] - delays[name]), float(known.values[0])
            if missing > NOTICED * (s.grid.t[1] - s.grid.t[0]) and first:
                told.append(
                    f"Input '{name}' of experiment '{e.name}' acts {delays[name]:.3g} s late, so that the log does "
                    f"not show what acted in its first {missing:.3g} s: its first value, {first:.3g}, was taken."
                )
    return tuple(told)


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
            gap = np.where(seen, unmixed(group, r) * std / np.sqrt(group.emphasis)[:, None], np.nan)
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
