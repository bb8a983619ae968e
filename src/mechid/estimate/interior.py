"""Full discretisation by an interior-point method: IPOPT on the program of `transcription`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mechid.errors import MechidError
from mechid.estimate.chain import ChainProblem, Motion
from mechid.estimate.lifted import Hardening, LiftedSolution
from mechid.estimate.solvers.ipopt import interior_point
from mechid.estimate.solvers.levenberg_marquardt import LevenbergMarquardt
from mechid.estimate.solvers.problem import Point, Progress, Recorder, plural
from mechid.estimate.transcription import Transcription, transcribed

OPEN = 10.0
"""standard deviations (all else known) beside an unknown's value: its scale"""


def solve_interior(
    problem: ChainProblem,
    settings: LevenbergMarquardt,
    y: np.ndarray,
    motions: tuple[Motion, ...],
    progress: Progress | None = None,
) -> LiftedSolution:
    """All states and parameters at their best under exact dynamics; of the settings, `max_iterations` counts."""
    program, problem = _begun(problem, np.clip(y, problem.base.lower, problem.base.upper), motions)
    watch = Recorder(program.problem.base, progress)
    reached = program.start

    def seen(v: np.ndarray, multipliers: np.ndarray) -> None:
        nonlocal reached
        # on its way back to the equations IPOPT may pass where the samples cannot be computed
        now = v if np.isfinite(program.place(v).cost) else reached
        place, length = program.place(now), float(np.max(np.abs(now - reached)[: len(y)], initial=0.0))
        reached, watch.evaluations = now, program.memory["evaluations"]
        watch.record(Point(place.y, place.cost), program.reduced_slope(now, multipliers), length)

    try:
        ended = interior_point(program, settings.max_iterations, seen)
    except KeyboardInterrupt:
        ended = None
    if not watch.trace:
        watch.progress = None
        seen(program.start, np.zeros(len(program.row_scale)))
    count = plural(len(watch.trace) - 1, "iteration")
    if ended is None:
        return _solution(problem, program, reached, watch, False, f"Interrupted after {count}.")
    if ended.converged:
        v = program.on_bounds(ended.v, ended.bound_multipliers)
        return _solution(problem, program, v, watch, True, f"Converged after {count}: {ended.why}.")
    v = ended.v if np.isfinite(program.place(ended.v).cost) else reached
    return _solution(problem, program, v, watch, False, f"Not converged after {count}: {ended.why}.")


def _begun(
    problem: ChainProblem, y: np.ndarray, motions: tuple[Motion, ...]
) -> tuple[Transcription, ChainProblem]:
    """The program around a first guess, and the chain whose state errors cost so much that there are none."""
    place = problem.evaluate(y, motions)
    if not np.isfinite(place.cost):
        names = ", ".join(f"'{s.experiment.name}'" for s in problem.base.shootings)
        raise MechidError(
            f"The first guess of the states of {names} cannot be computed at the starting parameters: start nearer."
        )
    hardening = Hardening()
    hard = hardening.begin(problem, place, problem.linearise(place))
    ratio = hard.level / hardening.finest
    hard = replace(hard, weight=hard.weight * ratio, level=hardening.finest)
    triangle = hard.linearise(place).triangle
    told = np.sqrt(np.sum(triangle[:, :-1] ** 2, 0))
    scale = np.abs(y) + OPEN / np.maximum(told, OPEN / np.maximum(np.abs(y), 1.0))
    free = replace(problem, weight=np.zeros_like(problem.weight), shift=None)
    return transcribed(free, free.priced(place), scale), hard


def _solution(
    problem: ChainProblem, program: Transcription, v: np.ndarray, watch: Recorder, converged: bool, why: str
) -> LiftedSolution:
    """What was reached, linearised for its uncertainty."""
    place = program.place(v)
    values, unknowns = problem.base.shown(place.y), tuple(place.y.tolist())
    trace = (*watch.trace[:-1], replace(watch.trace[-1], cost=place.cost, values=values, unknowns=unknowns))
    place = problem.priced(place)
    return LiftedSolution(problem, place, problem.linearise(place), converged, why, trace, watch.began)
