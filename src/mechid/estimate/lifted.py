"""Gauss–Newton on all states and parameters at once, with hard rows: Levenberg–Marquardt and its constrained form.

Each iteration linearises all intervals, eliminates the states (`block_arrow`) and is left with a small problem in
y = (θ, first states), which is damped and bounded as in `levenberg_marquardt`; the states follow. Where there are
hard rows this is sequential quadratic programming: a step satisfies their linearisation, and progress is judged by

    cost + ν Σ |hard rows|

with ν as large as needed for the step to promise a gain. A step that gains too little is damped more and shortened.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from mechid.errors import MechidError
from mechid.estimate.chain import ChainProblem, Linear, Motion, Place, ranges
from mechid.estimate.solvers.levenberg_marquardt import LevenbergMarquardt, damped_step
from mechid.estimate.solvers.problem import (
    Iteration,
    Progress,
    Quadratic,
    inequalities,
    plural,
    projected,
)
from mechid.estimate.standard import standard_of
from mechid.estimate.sticking import rounded, sharp, sharper

SMALL = 1e-8
"""of what moves a state through its range: state errors below it, on average, count as none"""
OPEN = 1e3
"""standard deviations (all else known): a step of an unknown is measured by these, where its value is small"""
STILL = 1e-7
"""a step this long, relative, counts as none"""
CLOSED = 1e-10
"""mean size of hard rows (m, rad, m/s, rad/s) that counts as none"""
SLOW = 0.2
"""of the step before: steps that shrink less than this while multipliers are found let state errors cost more"""
LIMIT = 1e-10
"""of what moves a state through its range: state errors below it drown in rounding"""
EXACT = 1e-12
"""of the same: state errors that cost this much are none"""
RELAXED = 3
"""steps in a row that may raise the cost a little"""
CALM, NEAR = 2, 0.05
"""steps in a row that move no parameter by more than so many standard deviations: where friction sticks, single
states may still wander between cases that the data do not tell apart"""
IDLE, FAINT = 12, 2e-3
"""steps in a row that move no parameter by more than so many standard deviations, where multipliers of exact
dynamics are found slowly, as along motions that run away"""
CORNER = 0.2
"""standard deviations: a step no longer than this that gains nothing is one between cases of sticking"""
LITTLE = 1e-4
"""of the cost: where a step promises less, friction is sharpened whatever the step gained"""
SHORTEST = 2.0**-20
"""part of a step"""


class LiftedSolution(NamedTuple):
    """Where all states and parameters ended, and how."""

    problem: ChainProblem
    place: Place
    linear: Linear
    converged: bool
    outcome: str
    """a sentence"""
    trace: tuple[Iteration, ...]
    began: float
    """when all was compiled and the iterations began"""

    @property
    def iterations(self) -> int:
        return len(self.trace) - 1


@dataclass
class _Watch:
    base: Any
    progress: Progress | None
    trace: list[Iteration]
    evaluations: int
    began: float

    def record(self, place: Place, gradient: np.ndarray, step: float) -> None:
        base = self.base
        line = Iteration(
            len(self.trace),
            place.cost,
            float(np.linalg.norm(projected(base, place.y, gradient))),
            base.shown(place.y),
            step,
            time.perf_counter() - self.began,
            self.evaluations,
            tuple(place.y.tolist()),
        )
        self.trace.append(line)
        if self.progress is not None:
            self.progress(line)


def solve_lifted(
    problem: ChainProblem,
    settings: LevenbergMarquardt,
    y: np.ndarray,
    motions: tuple[Motion, ...],
    progress: Progress | None = None,
    hardening: Hardening | None = None,
) -> LiftedSolution:
    """All states and parameters at their best, from a first guess of each."""
    base = problem.base
    watch = _Watch(base, progress, [], 1, time.perf_counter())
    y = np.clip(y, base.lower, base.upper)
    if hardening is not None and problem.standard is None:
        states = [m.states for m in motions]
        problem = replace(problem, standard=standard_of(problem.stepper, problem.bound(y), states))
    problem = rounded(problem, y, motions)
    place = problem.evaluate(y, motions)
    if not np.isfinite(place.cost):
        names = ", ".join(f"'{s.experiment.name}'" for s in base.shootings)
        raise MechidError(
            f"The first guess of the states of {names} cannot be computed at the starting parameters: start nearer."
        )
    linear = problem.linearise(place)
    if hardening is not None:
        problem = hardening.begin(problem, place, linear)
        place = problem.priced(place)
        linear = problem.reweighed(place, linear)
    model = _quadratic(linear)
    damping, part, penalty, relaxed, best = settings.initial_damping, 1.0, 0.0, 0, np.inf
    calm = idle = 0
    nt = base.free.size

    def end(converged: bool, why: str) -> LiftedSolution:
        found = problem.linearise(place) if linear is None else linear
        return LiftedSolution(problem, place, found, converged, why, tuple(watch.trace), watch.began)

    def done(why: str) -> str:
        return f"Converged after {plural(len(watch.trace) - 1, 'iteration')}: {why}."

    try:
        watch.record(place, model.g, 0.0)
    except KeyboardInterrupt:
        return end(False, "Interrupted after 0 iterations.")
    while len(watch.trace) <= settings.max_iterations:
        try:
            d, _ = damped_step(_held(model, place.y, nt), damping, inequalities(base, place.y), model.c)
        except np.linalg.LinAlgError:
            damping = 10.0 * damping + 1e-12
            if damping > 1e20:
                return end(False, "No step can be computed: the data leave some unknown wholly open.")
            continue
        step = problem.step(linear, d)
        gained = place.cost - 0.5 * float(np.sum((linear.triangle @ np.append(d, 1.0)) ** 2))
        violation = _open(problem, place)
        if violation > 0.0 and gained < 0.5 * penalty * violation:
            penalty = max(penalty, 2.0 * max(-gained, 0.0) / violation)
        promised = gained + penalty * violation
        length = _length(place.y, d, model.H)
        at_law = sharp(problem, place)
        closed = problem.openness(place) <= CLOSED and at_law
        closed = closed and (hardening is None or hardening.done(problem, place))
        if closed and part == 1.0 and damping <= 1e-2 and length <= STILL:
            return end(True, done("the parameters no longer move"))
        far = np.inf
        if problem.blur is not None or promised < 0.0 or hardening is not None:
            far = farthest(d, _held(model, place.y, nt).H, nt)
        idle = idle + 1 if closed and hardening is not None and part == 1.0 and far <= FAINT else 0
        if idle >= IDLE:
            return end(True, done(f"no step moves a parameter by more than {FAINT:g} standard deviations"))
        # a promise below zero is rounding: it counts where the step is short too
        little = promised <= settings.cost_tolerance * place.cost and (promised >= 0.0 or far <= NEAR)
        if closed and hardening is None and little:
            return end(True, done("no step promises to lower the cost further"))
        sticks = problem.blur is not None and hardening is None and at_law
        calm = calm + 1 if part == 1.0 and damping <= 1e-2 and far <= NEAR else 0
        if sticks and calm >= CALM:
            return end(True, done(f"the parameters moved by less than {NEAR:g} standard deviations"))
        try:
            new_y, new = problem.moved(place, step, part)
            trial = problem.evaluate(new_y, new)
            watch.evaluations += 1
            merit = trial.cost + penalty * _open(problem, trial)
            actual = place.cost + penalty * violation - merit
            ratio = actual / (promised * part) if promised > 0.0 else np.sign(actual)
            small = length <= 1e-4 and abs(actual) <= 1e-9 * max(place.cost, 1e-300)
            # near exact rows a good step may first seem a bad one: a few are let through (watchdog)
            trusted = (
                (hardening is not None or problem.blur is not None)
                and part == 1.0
                and relaxed < RELAXED
                and -actual <= 0.1 * place.cost
            )
            if np.isfinite(trial.cost) and (ratio > 1e-4 or (small and not closed) or trusted):
                relaxed = 0 if ratio > 1e-4 and merit < best - 0.01 * promised else relaxed + 1
                best = min(best, merit)
                free, before, left = part == 1.0 and damping <= 0.1, problem, place
                if hardening is not None:
                    problem = hardening.harder(
                        problem, trial, ratio, length, promised=promised / place.cost if free else 1.0
                    )
                    trial = problem.priced(trial)
                # a long log has room for one linearisation
                linear = None
                problem, place = sharper(
                    problem, trial, good=ratio >= 0.25 or promised <= LITTLE * place.cost
                )
                if problem is not before:
                    best = np.inf
                linear = problem.linearise(place)
                if not np.all(np.isfinite(linear.triangle)):
                    # equations of a step are singular here, at a mass of zero for instance: back, and less far
                    linear = None
                    problem, place = before, left
                    linear, part, damping = problem.linearise(place), 0.25 * part, 10.0 * damping
                    if part >= SHORTEST:
                        continue
                    count = plural(len(watch.trace) - 1, "iteration")
                    return end(False, f"The equations of motion become singular after {count}.")
                model = _quadratic(linear)
                damping *= max(1 / 30, 1 - (2 * float(np.clip(ratio, 0.5, 1.5)) - 1) ** 3)
                part = min(1.0, 4.0 * part)
                watch.record(place, model.g, length)
                continue
        except KeyboardInterrupt:
            return end(False, f"Interrupted after {plural(len(watch.trace) - 1, 'iteration')}.")
        if np.isfinite(trial.cost) and small:
            return end(True, done("the cost is at the limit of rounding"))
        if sticks and part == 1.0 and damping <= 1e-2 and far <= CORNER:
            return end(True, done("what is left to gain lies between sticking and sliding"))
        part *= 0.5
        if part < 0.2:
            damping = max(damping, 1e-12) * 10.0
        if part < SHORTEST:
            return end(
                False, f"No step lowers the cost any more after {plural(len(watch.trace) - 1, 'iteration')}."
            )
    return end(
        False, f"Not converged after {plural(settings.max_iterations, 'iteration')}: allow more of them."
    )


@dataclass(frozen=True)
class Hardening:
    """From soft dynamics to exact ones: state errors cost more with every good step, then multipliers are found.

    A state error of one unit moves some state through its whole range. W rises until errors of `finest` units cost
    as much as a sample that is off by one standard deviation; from then on s ← s + w, so that w goes to zero at any
    W (stabilised sequential quadratic programming); where it goes slowly, as along long logs, W rises further.
    """

    finest: float = 1e-8
    factor: float = 1e-2
    patient: bool = False
    """multipliers move only when a step promises little: the augmented Lagrangian as it is usually done"""
    first: float = 100.0
    """times the number of samples: what the first guess's state errors cost in the beginning"""

    def begin(self, problem: ChainProblem, place: Place, linear: Linear) -> ChainProblem:
        if problem.level:
            return problem
        reach = np.zeros(len(problem.weight))
        for chain, link in zip(linear.chains, place.links, strict=True):
            moved = np.abs(chain.M[:, :, : chain.sizes.errors])
            run = ranges(problem.stepper, link.motion.states)
            reach = np.maximum(reach, (moved / run[:, None]).max((0, 1)))
        shift = tuple(np.zeros_like(link.errors) for link in place.links)
        size = 0.5 * sum(float(np.sum((link.errors * reach) ** 2)) for link in place.links)
        samples = sum(r.size for link in place.links for r in link.residuals)
        level = float(np.clip(np.sqrt(size / (self.first * samples)), self.finest, 1e-2))
        return replace(problem, weight=np.diag(reach / level), shift=shift, level=level)

    def done(self, problem: ChainProblem, place: Place) -> bool:
        """Multipliers have been found, and what is left of the state errors moves nothing."""
        reach = problem.level * np.diag(problem.weight)
        left = max(float(np.mean(np.abs(link.errors) * reach)) for link in place.links)
        return problem.level <= self.finest and left <= SMALL

    def harder(
        self, problem: ChainProblem, new: Place, ratio: float, length: float, *, promised: float
    ) -> ChainProblem:
        """What follows a step of y of a relative length; promised: which part of the cost it was to gain.

        A damped or shortened step promised 1.
        """
        samples = sum(r.size for link in new.links for r in link.residuals)
        settled = promised <= (1e-3 if self.patient else 0.3)
        settled |= not self.patient and new.cost <= 10.0 * samples
        if problem.level > self.finest:
            if ratio < 0.25 or not settled:
                return problem
            level = max(problem.level * self.factor, self.finest)
            return replace(problem, weight=problem.weight * (problem.level / level), level=level)
        if not settled:
            return problem
        shift = tuple(s + link.errors for s, link in zip(problem.shift or (), new.links, strict=True))
        slow = promised < 1.0 and length > max(SLOW * problem.last, STILL) and problem.level > LIMIT
        problem = replace(problem, shift=shift, last=length)
        # multipliers WᵀW s are found the faster the larger W is
        return hardened(problem, 0.1 * problem.level) if slow else problem


def hardened(problem: ChainProblem, level: float) -> ChainProblem:
    """The same multipliers at another level of state errors."""
    part = level / problem.level
    shift = tuple(part**2 * s for s in problem.shift or ())
    return replace(problem, weight=problem.weight / part, shift=shift, level=level)


def _open(problem: ChainProblem, place: Place) -> float:
    """Σ |hard rows|, where they are more than rounding."""
    return place.violation if problem.openness(place) > CLOSED else 0.0


def _quadratic(linear: Linear) -> Quadratic:
    T = linear.triangle
    n = T.shape[1] - 1
    held = linear.held
    return Quadratic(T[:, :n].T @ T[:, :n], T[:, :n].T @ T[:, n], held[:, :n], held[:, n])


def _held(model: Quadratic, y: np.ndarray, parameters: int) -> Quadratic:
    """With what keeps a parameter that the data do not tell from running away: a std of OPEN times its value."""
    size = np.where(y == 0.0, 1.0, np.abs(y))
    holds = np.where(np.arange(len(y)) < parameters, 1.0 / (OPEN * size) ** 2, 0.0)
    return model._replace(H=model.H + np.diag(holds))


def farthest(d: np.ndarray, H: np.ndarray, parameters: int) -> float:
    """The longest change of a parameter, in its standard deviations: H is what is known of all unknowns."""
    size = np.sqrt(np.maximum(np.diag(H), 1e-300))
    variances = np.diag(np.linalg.pinv(H / np.outer(size, size), hermitian=True)) / size**2
    moved = np.abs(d) / np.sqrt(np.maximum(variances, 1e-300))
    return float(np.max(moved[:parameters], initial=0.0))


def _length(y: np.ndarray, d: np.ndarray, H: np.ndarray) -> float:
    """The longest change of an unknown, relative to its value or to many times what the data leave open of it."""
    told = np.sqrt(np.maximum(np.diag(H), 0.0))
    return float(np.max(np.abs(d) / (np.abs(y) + OPEN / np.maximum(told, 1e-300)), initial=0.0))
