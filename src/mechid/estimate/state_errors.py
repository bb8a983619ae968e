"""How much the model may be wrong: the weight κ of state errors, from the likelihood of the data.

With impulses w_k ~ N(0, 1/κ) in every dynamic row the data's likelihood is, around the best states and parameters,

    log p(y | κ) = −J(κ) + ½ N log κ − Σ log |R_ww| − log |R_y| − Σ log std + …      N: number of all w

The determinants come out of the sweep. They are what keeps κ from growing as errors are explained away by other
numbers: a lighter robot has smaller impulses, but no likelier data.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg

from mechid.estimate.chain import ChainProblem, Linear, Motion, Place
from mechid.estimate.lifted import OPEN, LiftedSolution, farthest, solve_lifted
from mechid.estimate.problem import ShootingProblem, each
from mechid.estimate.solvers.problem import Iteration, Progress, plural
from mechid.estimate.sticking import rounded
from mechid.estimate.whitening import log_volume

DECADES = 2.0
"""of κ: the first steps of the search"""
FINEST = 0.25
"""of a decade: how closely κ is found"""
HARDEST = 1e-7
"""of what the first guess's errors are: smaller ones are not looked for"""
SOFTEST = 10.0
"""of the same: larger ones are not looked for"""
MATTERS = 1.0
"""of log likelihood"""
ROUNDS = 8
"""at most, until parameters settle at the likeliest"""
NOTHING = 0.05
"""standard deviations, all else known: where D(θ) would move no parameter by more it is left out"""
BENT = 0.3
"""standard deviations, all else known: where D(θ) moves a parameter by more its curvature is found too"""
SETTLED = 0.1
"""standard deviations"""


class Likely(NamedTuple):
    """A weight with its solution."""

    log_weight: float
    """log10 κ"""
    solution: LiftedSolution
    log_likelihood: float

    @property
    def interrupted(self) -> bool:
        return self.solution.outcome.startswith("Interrupted")


class Choice(NamedTuple):
    weight: float
    """κ"""
    solution: LiftedSolution
    tried: tuple[Likely, ...]
    told: str
    """a sentence"""


def log_likelihood(solution: LiftedSolution) -> float:
    """Of the data, for the weight and noise of a solution, but for a constant."""
    problem = solution.problem
    size, linear = problem.base.size, solution.linear
    triangle = linear.triangle[:, :size]
    if len(linear.held):
        # along what conditions on first states leave free
        triangle = np.linalg.qr(triangle @ scipy.linalg.null_space(linear.held[:, :size]), mode="r")
    told = np.abs(np.diag(triangle))
    total = -solution.place.cost - float(np.sum(np.log(np.maximum(told, 1e-300))))
    own = float(np.sum(np.log(np.abs(np.diag(problem.weight)))))
    for link, swept in zip(solution.place.links, solution.linear.swept, strict=True):
        total += len(link.errors) * own - swept.log_determinant
    for s, noise in zip(problem.base.shootings, problem.base.noise, strict=True):
        total -= sum(
            float(np.sum(g.present.sum(0) * np.log(std))) + log_volume(g)
            for g, std in zip(s.groups, noise, strict=True)
        )
    return total


def likeliest(
    problem: ChainProblem,
    settings: Any,
    y: np.ndarray,
    motions: tuple[Motion, ...],
    progress: Progress | None = None,
) -> LiftedSolution:
    """Parameters at the maximum of the data's likelihood, states at their best.

    The joint optimum of states and parameters is not it: impulses shrink with the mass that they act on, so that
    it prefers light robots. What is missing is D(θ) = Σ log |R_ww|, which is added by its slope and curvature,
    found by differences, until the parameters settle.
    """
    nt = problem.base.free.size
    if not nt:
        return solve_lifted(problem, settings, y, motions, progress)
    began = time.perf_counter()
    problem = rounded(problem, y, motions)
    place = problem.evaluate(y, motions)
    linear = problem.linearise(place)
    trace: tuple[Any, ...] = ()
    solution: Any = None
    began = time.perf_counter()
    for _ in range(ROUNDS):
        told = np.linalg.norm(linear.triangle[:, :nt], axis=0)
        known = 1.0 / np.maximum(told, 1e-300)
        size = np.abs(place.y[:nt])
        by = np.clip(0.3 * known, 1e-4 * size, np.where(size > 0.0, 0.1 * size, 0.01))
        belief = _determinant(*_smooth(problem, place, linear), by)
        begun = (place.y, tuple(link.motion for link in place.links))
        tell = _continued(progress, len(trace))
        solution = solve_lifted(replace(problem, belief=belief), settings, *begun, tell)
        trace += solution.trace[1:] if trace else solution.trace
        moved = solution.place.y - place.y
        # these rows have done their part: likelihood and covariance know of them by other means
        problem = replace(problem, blur=solution.problem.blur)
        place = problem.priced(solution.place)
        linear = problem.linearise(place)
        told = linear.triangle[:, : len(moved)].T @ linear.triangle[:, : len(moved)]
        if belief is None or not solution.converged or farthest(moved, told, nt) <= SETTLED:
            break
    numbered = tuple(replace(x, number=i) for i, x in enumerate(trace))
    whole = solution.outcome.replace(
        f"after {plural(solution.iterations, 'iteration')}", f"after {plural(len(trace) - 1, 'iteration')}"
    )
    return solution._replace(
        problem=problem, place=place, linear=linear, trace=numbered, outcome=whole, began=began
    )


def _continued(progress: Progress | None, lines: int) -> Progress | None:
    """Progress that goes on after so many lines; the first one of what follows repeats the last of these."""
    if progress is None or not lines:
        return progress

    def tell(iteration: Iteration) -> None:
        if iteration.number:
            progress(replace(iteration, number=iteration.number + lines - 1))

    return tell


def _smooth(problem: ChainProblem, place: Place, linear: Linear) -> tuple[ChainProblem, Place, Linear]:
    """The same where dry friction is rounded: between sticking and sliding D(θ) would jump."""
    if problem.blur is None:
        return problem, place, linear
    problem = rounded(replace(problem, blur=None), place.y, tuple(link.motion for link in place.links))
    place = problem.evaluate(place.y, tuple(link.motion for link in place.links))
    return problem, place, problem.linearise(place)


def _determinant(
    problem: ChainProblem, place: Place, linear: Linear, by: np.ndarray
) -> tuple[np.ndarray, np.ndarray] | None:
    """D(θ) near a place as rows root · (θ − mean), by differences over given distances; None where it is flat."""
    size = problem.base.size
    lower, upper = problem.base.lower, problem.base.upper
    here = sum(s.log_determinant for s in linear.swept)
    still = problem.step(linear, np.zeros(size))

    def at(i: int, way: float) -> float:
        d = np.zeros(size)
        d[i] = way
        step = problem.step(linear, d)
        x = tuple(a - b for a, b in zip(step.x, still.x, strict=True))
        z = tuple(a - b for a, b in zip(step.z, still.z, strict=True))
        trial = problem.evaluate(*problem.moved(place, step._replace(x=x, z=z)))
        return sum(s.log_determinant for s in problem.linearise(trial).swept)

    # beside a bound both differences are taken inside
    middle = np.clip(place.y[: len(by)], lower[: len(by)] + by, upper[: len(by)] - by) - place.y[: len(by)]
    high = np.array(each(lambda i: at(i, float(middle[i] + by[i])), range(len(by))))
    told = np.linalg.norm(linear.triangle[:, : len(by)], axis=0)
    # at an upper bound there is no way up; those beside bounds are found from both sides below
    reach = middle + by
    slope = (high - here) / np.where(reach == 0.0, by, reach)
    if np.all(np.abs(slope) <= NOTHING * told):
        return None
    # where D moves a parameter far, its curvature counts
    far = np.flatnonzero((np.abs(slope) > BENT * told) | (middle != 0.0))
    low = np.array(each(lambda i: at(i, float(middle[i] - by[i])), far))
    bend = np.zeros(len(by))
    bend[far] = np.where(middle[far] == 0.0, (high[far] + low - 2 * here) / by[far] ** 2, 0.0)
    slope[far] = (high[far] - low) / (2 * by[far])
    # what the data do not tell stays about where it is
    size = np.abs(place.y[: len(by)])
    bend = np.maximum(bend, np.maximum(1e-4 * told**2, 1.0 / (OPEN * np.where(size > 0.0, size, 1.0)) ** 2))
    return place.y[: len(by)] - slope / bend, np.sqrt(bend)


def most_likely(
    base: ShootingProblem,
    settings: Any,
    y: np.ndarray,
    motions: tuple[Motion, ...],
    scale: np.ndarray,
    progress: Progress | None = None,
) -> Choice:
    """The weight κ of errors scale · w under which the data are likeliest, each with its own best solution."""
    began = time.perf_counter()
    first = ChainProblem(base, scale).evaluate(y, motions)
    size = np.sqrt(np.mean(np.concatenate([(link.errors @ scale.T).ravel() for link in first.links]) ** 2))
    size = max(float(size), 1e-12)
    top, bottom = -2.0 * np.log10(HARDEST * size), -2.0 * np.log10(SOFTEST * size)
    tried: dict[float, Likely] = {}
    trace: list[Any] = []

    def at(log_weight: float) -> Likely:
        key = round(log_weight, 6)
        if key not in tried:
            near = min(tried.values(), key=lambda t: abs(t.log_weight - log_weight), default=None)
            problem = ChainProblem(base, np.sqrt(10.0**log_weight) * scale)
            begun = (y, motions)
            if near is not None:
                known = near.solution.problem
                problem = replace(problem, blur=known.blur, pace=known.pace)
                begun = (near.solution.place.y, tuple(link.motion for link in near.solution.place.links))
            solution = likeliest(problem, settings, *begun, _continued(progress, len(trace)))
            trace.extend(solution.trace if not trace else solution.trace[1:])
            tried[key] = Likely(log_weight, solution, log_likelihood(solution))
        return tried[key]

    best, step = at(-2.0 * np.log10(size)), DECADES
    while step >= FINEST and not best.interrupted:
        enough = best.log_likelihood + (1e-3 if step < DECADES else MATTERS)
        for way in (step, -step):
            other = at(float(np.clip(best.log_weight + way, bottom, top)))
            if other.interrupted:
                best = other
                break
            if other.log_likelihood > enough:
                best = other
                break
        else:
            step /= 2.0
    weight = 10.0**best.log_weight
    told_size = f"impulses of {1 / np.sqrt(weight):.2g} N·m·s or N·s"
    if np.any(scale != np.eye(len(scale))):
        told_size = f"errors of {1 / np.sqrt(weight):.2g} of each state's range"
    above = [t for t in tried.values() if t.log_weight > best.log_weight]
    falls = any(t.log_likelihood < best.log_likelihood - MATTERS for t in above)
    falls |= best.interrupted
    hardest = best if falls else at(top)
    if not falls and best.log_likelihood <= hardest.log_likelihood + MATTERS:
        best, weight = hardest, 10.0**top
        told = (
            f"State errors explain nothing that noise does not: their weight was taken as large as is told apart, "
            f"{weight:.3g}."
        )
    else:
        told = (
            f"The state error weight κ = {weight:.3g} was chosen by the likelihood of the data: {told_size} a step "
            "that the model lacks."
        )
    numbered = tuple(replace(x, number=i) for i, x in enumerate(trace))
    solution = best.solution._replace(trace=numbered, began=began)
    own = plural(best.solution.iterations, "iteration")
    whole = f"after {plural(len(numbered) - 1, 'iteration')} with {len(tried)} weights"
    solution = solution._replace(outcome=solution.outcome.replace(f"after {own}", whole))
    return Choice(weight, solution, tuple(tried.values()), told)
