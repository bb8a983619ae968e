"""Multiple shooting: an experiment cut into segments whose first states are unknowns too, with continuity.

For horizons on which single shooting is hopeless, because small changes of the start or the parameters grow beyond
all bounds. Segments are added one after the other: each new one begins where the fitted one before it ends, so
that no guess of unmeasured states is needed, and changes can grow over the length of one segment only.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import jax
import numpy as np

from mechid.compile import jit
from mechid.dynamics.feedback import Feedback
from mechid.dynamics.model import Model
from mechid.dynamics.stepper import Stepper
from mechid.dynamics.tree import Array
from mechid.errors import MechidError
from mechid.estimate.experiment import Start
from mechid.estimate.problem import ShootingProblem, with_end
from mechid.estimate.samples import Grid, Group
from mechid.estimate.shooting import Shooting
from mechid.estimate.solvers.problem import Progress, Solution
from mechid.estimate.start import FirstState, first_state

ON_THE_WAY = 12
"""iterations at most, before the next segment is added"""


def solve_in_segments(
    problem: ShootingProblem, solver: Any, segments: int, progress: Progress | None
) -> tuple[ShootingProblem, Solution]:
    """Fit growing parts of all experiments, a segment more each time, then the whole."""
    if not hasattr(solver, "loosened"):
        raise MechidError("Segments need LevenbergMarquardt: continuity is kept by its equality rows.")
    if isinstance(problem.shootings[0].stepper.dt, np.ndarray):
        raise MechidError("Segments need one constant step size dt.")
    cut = [_cut(s, segments) for s in problem.shootings]
    first = [parts[0] for parts in cut]
    y = np.concatenate([problem.free.theta0, *(s.first.unknowns for s in first)])
    chains: list[list[Shooting]] = [[s] for s in first]
    loose = solver.loosened(ON_THE_WAY)
    now = _chained(problem, chains)
    trace: tuple[Any, ...] = ()
    for count in range(1, segments + 1):
        last = count == segments
        solution = (solver if last else loose).solve(now, y, progress)
        trace += solution.trace if not trace else solution.trace[1:]
        if last or "Interrupted" in solution.outcome:
            numbered = tuple(replace(x, number=i) for i, x in enumerate(trace))
            return now, replace(solution, trace=numbered)
        now, y = _extended(now, solution, chains, [parts[count] for parts in cut])
        if not np.isfinite(now.evaluate(y).cost):
            raise MechidError(
                f"Segment {count + 1} of {segments} cannot be simulated from where the one before it ends: take "
                "more segments, or a smaller dt."
            )
    raise AssertionError


def _cut(s: Shooting, segments: int) -> list[Shooting]:
    """An experiment in parts of nearly equal length; what begins later is unknown."""
    steps = s.grid.steps
    if segments > steps:
        raise MechidError(
            f"{segments} segments are more than the {steps} steps of experiment '{s.experiment.name}'."
        )
    ends = np.round(np.linspace(0, steps, segments + 1)).astype(int)
    parts = []
    for i, (a, b) in enumerate(pairwise(ends)):
        table = Feedback(s.table.law, s.table.rows[a:b]) if isinstance(s.table, Feedback) else s.table[a:b]
        groups = tuple(_part(g, a, b) for g in s.groups)
        part = replace(s, grid=Grid(s.grid.t[a : b + 1]), groups=groups, table=table)
        parts.append(part if i == 0 else replace(part, first=_open(s)))
    return parts


def _part(group: Group, first: int, end: int) -> Group:
    inside = (group.interval >= first) & (group.interval < end)
    along = {k: getattr(group, k)[inside] for k in ("fraction", "values", "present", "emphasis")}
    return group._replace(interval=group.interval[inside] - first, **along)


def _open(s: Shooting) -> FirstState:
    """A first state of which nothing is known but that loops are closed."""
    mechanism = s.free.mechanism
    driven = {d.coordinate for d in mechanism.drives}
    open_to = {name: "known" if name in driven else "free" for name in mechanism.coordinate_names}
    start = Start(s.first.q, s.first.v, open_to, open_to)
    found = first_state(mechanism, s.free.bind(s.free.theta0), start, s.experiment.name)
    return found._replace(std=np.full_like(found.std, np.inf))


def _chained(problem: ShootingProblem, chains: list[list[Shooting]]) -> ShootingProblem:
    """All segments of all experiments, each but the last showing where it ends."""
    shootings: list[Shooting] = []
    follows: list[int | None] = []
    for chain in chains:
        for i, part in enumerate(chain):
            follows.append(len(shootings) - 1 if i else None)
            shootings.append(with_end(part, chain[i + 1]) if i + 1 < len(chain) else part)
    noise = []
    for s, chain in zip(problem.noise[: len(chains)], chains, strict=True):
        own = s[: len(chain[0].groups)]
        noise += [
            (*own, np.ones(chain[i + 1].size)) if i + 1 < len(chain) else own for i in range(len(chain))
        ]
    return replace(problem, shootings=tuple(shootings), noise=tuple(noise), follows=tuple(follows), memory={})


def _extended(
    now: ShootingProblem, solution: Solution, chains: list[list[Shooting]], added: list[Shooting]
) -> tuple[ShootingProblem, np.ndarray]:
    """One segment more for each experiment, begun where the last one ends."""
    parts = iter(zip(now.places, solution.point.runs, strict=True))
    unknowns = [solution.point.y[: now.free.size]]
    noise = []
    at = 0
    for chain, new in zip(chains, added, strict=True):
        noise.append(now.noise[at])
        at += len(chain)
        run: Any = None
        for _ in chain:
            place, run = next(parts)
            unknowns.append(solution.point.y[place])
        q, v = _end(run)
        first = new.first._replace(q=q, v=v)
        chain.append(replace(new, first=first))
        unknowns.append(first.unknowns)
    return _chained(replace(now, noise=tuple(noise)), chains), np.concatenate(unknowns)


def _end(run: Any) -> tuple[np.ndarray, np.ndarray]:
    """Coordinates and rates after the last step of a run."""
    plan, now = run.plan, run.chunks[-1].after
    last = jax.tree.map(lambda a: a[-1], now.history)
    q, v = _end_of(plan.stepper, plan.model, last, now.u, now.driven)
    return np.asarray(q), np.asarray(v)


@partial(jit, once=True)
def _end_of(stepper: Stepper, model: Model, x: Any, u: Array, driven: Array) -> tuple[Array, Array]:
    return stepper.positions(model, x), stepper.velocities(model, x, u, driven)
