"""`joint` and `full_discretization`: states and parameters together, as soft and hard rows of one problem.

    joint                 min  ½ Σ κ ‖w_k‖² + ½ Σ ((predicted − measured)/std)²    w_k: impulses that the model
                          lacks; over θ, all states and multipliers; closed loops stay hard (Marklund, Section 3)
    full_discretization   the same with w_k = 0: all equations of all steps are constraints (Verhaegen, Section 2.2)

States begin at what the log itself says, so that neither needs a simulation that succeeds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np
from numpy.typing import ArrayLike

from mechid.dynamics.forms import FORMS
from mechid.dynamics.intervals import dynamic_rows
from mechid.dynamics.stepper import Stepper
from mechid.errors import MechidError, choices
from mechid.estimate.chain import ChainProblem, Motion, Place, coordinates, ranges, some
from mechid.estimate.experiment import Experiment
from mechid.estimate.finish import finish
from mechid.estimate.first_guess import Guess, first_guess
from mechid.estimate.fit import Fit
from mechid.estimate.lifted import EXACT, Hardening, LiftedSolution, hardened, solve_lifted
from mechid.estimate.misread import UNEXPLAINED
from mechid.estimate.prepare import check, prepared
from mechid.estimate.problem import ShootingProblem, each, refuse_too_few
from mechid.estimate.samples import Group
from mechid.estimate.simulation_error import estimated_noise, first_noise
from mechid.estimate.solvers.levenberg_marquardt import LevenbergMarquardt
from mechid.estimate.solvers.problem import Point, Progress
from mechid.estimate.state_errors import likeliest, most_likely
from mechid.estimate.uncertainty import assessed
from mechid.estimate.warming import warmed
from mechid.model.geometry import finite
from mechid.model.parameters import Parameters
from mechid.model.parts import DryFriction
from mechid.model.system import System
from mechid.threads import small_matrices

METHODS = ("sqp", "augmented-lagrangian", "ipopt")
ROUNDS = 8
"""at most, in which noise that is not given is estimated in turn with all else"""


@small_matrices()
def joint(
    mechanism: System,
    stepper: Stepper,
    experiments: Experiment | Sequence[Experiment],
    free: Parameters,
    solver: LevenbergMarquardt | None = None,
    *,
    state_error_weight: Any = None,
    state_errors: str = "impulses",
    marginal: bool = True,
    begin: ArrayLike | Fit | None = None,
    progress: Progress | None = None,
) -> Fit:
    """Parameters and all states that explain the logs best, where the model may be wrong by small impulses.

    state_error_weight: κ = 1/std² of the impulses (N·m·s or N·s) that act on each coordinate (or body) in a step: a
    number, one for each dynamic row, or a matrix. None: chosen by the likelihood of the data.
    state_errors: "impulses" (those that lead from velocity to velocity), "two-impulses" (and those that lead from
    coordinates to coordinates), or "states" (what a step misses of the next state; κ is then in its units).
    marginal: the parameters that make the data likeliest; False: the joint optimum of states and parameters as in
    the paper, which takes masses for too small where state errors are large. begin: unknowns to begin with
    (`Iteration.unknowns`) in the place of the parameters' starts; or a fit of the same experiments and parameters,
    with whose states too it begins.
    """
    began = time.perf_counter()
    if state_errors not in FORMS:
        raise MechidError(f"There are no state_errors '{state_errors}'; valid: {choices(FORMS)}.")
    if isinstance(stepper, Stepper):
        stepper = FORMS[state_errors](stepper)
    base, guesses, settings = _begun(mechanism, stepper, experiments, free, solver, "joint estimation", begin)
    count = len(dynamic_rows(base.shootings[0].stepper, free.bind(free.theta0)))
    base, notes = _with_noise(base)
    y, motions = _start(base, guesses, begin), tuple(g.motion for g in guesses)
    if state_error_weight is None:
        choice = most_likely(base, settings, y, motions, _scale(state_errors, base, motions, count), progress)
        solution, notes = choice.solution, [*notes, choice.told]
    else:
        problem = _as_sharp(ChainProblem(base, _root(state_error_weight, count)), begin)
        solve = likeliest if marginal else solve_lifted
        solution = solve(problem, settings, y, motions, progress)
    return _finished(solution, "joint estimation", settings, guesses, began, errors=True, notes=notes)


def _scale(state_errors: str, base: ShootingProblem, motions: tuple[Motion, ...], count: int) -> np.ndarray:
    """What state errors of different units are measured by before κ is chosen: states by their ranges."""
    if state_errors != "states":
        return np.eye(count)
    runs = [ranges(s.stepper, m.states) for s, m in zip(base.shootings, motions, strict=True)]
    return np.diag(1.0 / np.max(runs, axis=0))


def _with_noise(base: ShootingProblem) -> tuple[ShootingProblem, list[str]]:
    """Noise that is not given, from each channel's fastest changes: state errors would absorb its residuals."""
    noise, told = [], []
    for s, stds in zip(base.shootings, base.noise, strict=True):
        found = []
        for g, std in zip(s.groups, stds, strict=True):
            unknown = np.isnan(g.std)
            found.append(np.where(unknown, fast_noise(g), std))
            told += [f"{c} {x:.2g}" for c, x, u in zip(g.channels, found[-1], unknown, strict=True) if u]
        noise.append(tuple(found))
    notes = (
        [f"Noise estimated from the fastest changes of each channel (std): {', '.join(told)}."]
        if told
        else []
    )
    return replace(base, noise=tuple(noise), memory={}), notes


def fast_noise(group: Group) -> np.ndarray:
    """std of each channel from third differences, in which smooth motion cancels."""
    seen = np.where(group.present > 0, group.values, np.nan)
    gaps = np.diff(seen, 3, axis=0)
    count = np.isfinite(gaps).sum(0)
    power = np.nansum(gaps**2, 0) / np.maximum(count, 1) / 20.0
    spread = np.nanmax(np.abs(seen), axis=0, initial=0.0)
    return np.maximum(np.sqrt(power), 1e-9 * np.where(spread > 0, spread, 1.0))


@small_matrices()
def full_discretization(
    mechanism: System,
    stepper: Stepper,
    experiments: Experiment | Sequence[Experiment],
    free: Parameters,
    solver: LevenbergMarquardt | None = None,
    *,
    method: str = "sqp",
    begin: ArrayLike | Fit | None = None,
    progress: Progress | None = None,
) -> Fit:
    """Parameters and all states that explain the logs best, the model's equations being exact.

    method: "sqp", stabilised sequential quadratic programming, in which multipliers move with every step; or
    "augmented-lagrangian", in which they move when the states have settled, at a weight that rises tenfold; or
    "ipopt", the interior-point method of that name on one sparse program, which needs the extra `mechid[ipopt]`
    and heeds of the solver's settings only `max_iterations`. All three end at the same answer.
    """
    began = time.perf_counter()
    if method not in METHODS:
        raise MechidError(f"There is no method '{method}' of full discretisation; valid: {choices(METHODS)}.")
    if method == "ipopt":
        from mechid.estimate.solvers.ipopt import casadi_module

        casadi_module()
        if isinstance(mechanism, System):
            _refuse_sticking(mechanism)
    base, guesses, settings = _begun(
        mechanism, stepper, experiments, free, solver, "full discretisation", begin
    )
    count = len(dynamic_rows(base.shootings[0].stepper, free.bind(free.theta0)))
    problem = ChainProblem(base, np.eye(count))
    solve = {
        "sqp": partial(solve_lifted, hardening=Hardening()),
        "augmented-lagrangian": partial(solve_lifted, hardening=Hardening(factor=0.1, patient=True)),
        "ipopt": _interior,
    }[method]
    motions = tuple(g.motion for g in guesses)
    # nobody else holds the solution: a long log has room for one
    fit = _finished(
        _settled(problem, settings, _start(base, guesses, begin), motions, progress, solve),
        "full discretisation",
        settings,
        guesses,
        began,
        errors=False,
    )
    return replace(fit, solver="IPOPT") if method == "ipopt" else fit


def _interior(*given: Any) -> LiftedSolution:
    """IPOPT's sparse programs need libraries that other methods need not wait for."""
    from mechid.estimate.interior import solve_interior

    return solve_interior(*given)


def _refuse_sticking(mechanism: System) -> None:
    sticking = [e.coordinate for e in mechanism.elements if isinstance(e, DryFriction)]
    if sticking:
        raise MechidError(
            f"Dry friction on '{sticking[0]}' has corners, which method 'ipopt' cannot take: use 'sqp', or "
            "friction(…, width=…), which is smooth."
        )


# From arguments to a problem


def _begun(
    mechanism: Any, stepper: Any, experiments: Any, free: Any, solver: Any, what: str, begin: Any
) -> tuple[ShootingProblem, list[Guess], LevenbergMarquardt]:
    settings = LevenbergMarquardt() if solver is None else solver
    given: list[Any] = list(experiments) if isinstance(experiments, list | tuple) else [experiments]
    check(mechanism, stepper, given, free, settings, None)
    if not isinstance(settings, LevenbergMarquardt):
        raise MechidError(f"The solver of a {what} is LevenbergMarquardt(…), not {type(settings).__name__}.")
    for e in given:
        if e.feedback is not None:
            raise MechidError(
                f"Experiment '{e.name}' tracks its measured motion by feedback, which a {what} does not need: "
                "its states are unknowns; leave the feedback out."
            )
    shootings = [prepared(stepper, e, free) for e in given]
    noise = tuple(first_noise(s) for s in shootings)
    base = ShootingProblem(free, tuple(shootings), noise, (None,) * len(shootings))
    refuse_too_few(base)
    return base, _known(base, begin) if isinstance(begin, Fit) else guessed(base), settings


def _known(base: ShootingProblem, fit: Fit) -> list[Guess]:
    """The states of a fit in the place of guesses."""
    solution = fit.extra.get("solution")
    model = base.free.bind(base.free.theta0)
    wanted = [(s.grid.steps, s.stepper.nz(model)) for s in base.shootings]
    links = solution.place.links if isinstance(solution, LiftedSolution) else ()
    size = len(solution.place.y) if isinstance(solution, LiftedSolution) else 0
    if [link.motion.z.shape for link in links] != wanted or size != base.size:
        raise MechidError(
            "begin must be a joint estimation or a full discretisation of the same experiments, by the same "
            "stepper and with the same free parameters."
        )
    return [Guess(link.motion, link.q[None], link.v[None], True) for link in links]


def _as_sharp(problem: ChainProblem, begin: Any) -> ChainProblem:
    """Friction rounded no more than at the end of the fit that it begins with."""
    if not isinstance(begin, Fit):
        return problem
    known = begin.extra["solution"].problem
    return replace(problem, blur=known.blur, pace=known.pace)


def guessed(base: ShootingProblem) -> list[Guess]:
    """First guesses of all states, while all that the iterations will call is being compiled."""
    model = base.free.bind(base.free.theta0)
    with warmed(base):
        return each(lambda s: first_guess(s, model), base.shootings)


def _start(base: ShootingProblem, guesses: list[Guess], begin: Any = None) -> np.ndarray:
    """θ as given, first states as the guess has them; or what is to be begun with."""
    if isinstance(begin, Fit):
        return np.array(begin.extra["solution"].place.y)
    if begin is not None:
        return finite(begin, (base.size,), "begin")
    y = base.start
    for s, g, place in zip(base.shootings, guesses, base.places, strict=True):
        y[place] = np.concatenate([g.q[0, s.first.free_q], g.v[0, s.first.free_v]])
    return y


def _root(weight: Any, count: int) -> np.ndarray:
    """W with WᵀW = κ."""
    shape = np.shape(weight)
    if shape not in ((), (count,), (count, count)):
        raise MechidError(
            f"state_error_weight must be a number, {count} numbers (one for each dynamic row), or a "
            f"({count}, {count}) matrix, not of shape {shape}."
        )
    k = finite(weight, shape, "state_error_weight")
    if len(shape) < 2:
        if np.any(k <= 0.0):
            raise MechidError(
                f"state_error_weight (κ) must be > 0, not {weight}: full_discretization is its limit."
            )
        return np.diag(np.sqrt(np.broadcast_to(k, (count,))))
    try:
        return np.linalg.cholesky((k + k.T) / 2).T
    except np.linalg.LinAlgError:
        raise MechidError("state_error_weight must be a positive definite matrix.") from None


# Solving, and noise that is not given


def _settled(
    problem: ChainProblem,
    settings: LevenbergMarquardt,
    y: np.ndarray,
    motions: tuple[Motion, ...],
    progress: Progress | None,
    solve: Callable[..., LiftedSolution],
) -> LiftedSolution:
    """Solve; where noise is estimated, again with the noise that the residuals show, until it settles."""
    unknown = any(np.isnan(g.std).any() for s in problem.base.shootings for g in s.groups)
    if unknown:
        first = problem.evaluate(y, motions)
        problem = _renoised(problem, first)
    solution = solve(problem, settings, y, motions, progress)
    trace = solution.trace
    for _ in range(ROUNDS if unknown else 0):
        again = _renoised(solution.problem, solution.place)
        pairs = zip(_flat(solution.problem.base.noise), _flat(again.base.noise), strict=True)
        if not solution.converged or all(abs(a - b) <= 0.02 * a for a, b in pairs):
            break
        motions = tuple(link.motion for link in solution.place.links)
        solution = solve(again, settings, solution.place.y, motions, progress)
        trace += solution.trace[1:]
    numbered = tuple(replace(x, number=i) for i, x in enumerate(trace))
    return solution._replace(trace=numbered)


def _flat(noise: Any) -> np.ndarray:
    return np.concatenate(sum(noise, ()))


def _renoised(problem: ChainProblem, place: Place) -> ChainProblem:
    """The same problem with noise as the residuals show it."""
    point = Point(place.y, place.cost, runs=place.links)
    noise = estimated_noise(problem.base, point)
    return replace(problem, base=replace(problem.base, noise=noise, memory={}), last=np.inf)


# From a solution to a fit


def _finished(
    solution: LiftedSolution,
    estimator: str,
    settings: Any,
    guesses: list[Guess],
    began: float,
    *,
    errors: bool,
    notes: Sequence[str] = (),
) -> Fit:
    problem, place = solution.problem, solution.place
    linear = solution.linear
    if problem.level:
        # dynamics that are as good as exact, which sums along a log leave of errors that hardly cost
        solution = solution._replace(linear=linear._replace(swept=()))
        linear = linear._replace(swept=())
        linear = hardened(problem, EXACT).reweighed(place, linear)
        solution = solution._replace(linear=linear)
    rows = problem.rows(place, linear, errors=errors)
    found = assessed(problem.base, place.y, rows)
    if not all(g.told for g in guesses):
        notes = (
            *notes,
            "The log does not tell every coordinate: the first guess of the states was simulated.",
        )
    found = found._replace(notes=(*found.notes, *notes))
    samples = 0.5 * float(rows.r @ rows.r)
    point = Point(place.y, samples, runs=place.links)
    fit = finish(
        problem.base,
        point,
        found,
        estimator=estimator,
        solver=settings,
        first_cost=solution.trace[0].cost,
        solution=solution,
        simulated=not errors or not _pushed(problem.base, place),
        extra={"chain": problem, "solution": solution},
    )
    total = time.perf_counter() - began
    compiled = solution.began - began
    return replace(fit, seconds={"compile": compiled, "run": total - compiled})


def _pushed(base: ShootingProblem, place: Place) -> bool:
    """Whether impulses that the model lacks make up much of the momenta: the log is followed, not explained."""
    for s, link in zip(base.shootings, place.links, strict=True):
        i, t = some(s.grid.steps), s.grid.t
        around = jax.tree.map(lambda a, i=i: a[np.concatenate([i, i + 1])], link.motion.states)
        q, inertia = (np.asarray(a) for a in coordinates(s.stepper, place.model, around))
        old, new = q[: len(i)], q[len(i) :]
        rows, left = divmod(link.errors.shape[1], q.shape[1])
        if left:
            continue
        momenta = np.std((new - old) / (t[i + 1] - t[i])[:, None] @ inertia, axis=0)
        if np.any(np.sqrt(np.sum(link.errors**2, 0)) > UNEXPLAINED * np.tile(momenta, rows)):
            return True
    return False


# Parameters that are known


def frozen(
    fit: Fit, stepper: Stepper, experiments: list[Experiment], weight: np.ndarray | None
) -> tuple[Place, ShootingProblem, float]:
    """The best states of other logs at a fit's parameters; and the weighted square of their state errors.

    weight: W of state errors; None where the dynamics are exact.
    """
    free = Parameters(fit.mechanism)
    shootings = [prepared(stepper, e, free) for e in experiments]
    base = ShootingProblem(
        free, tuple(shootings), tuple(map(first_noise, shootings)), (None,) * len(shootings)
    )
    guesses = guessed(base)
    base, _ = _with_noise(base)
    y, motions = _start(base, guesses), tuple(g.motion for g in guesses)
    settings = LevenbergMarquardt()
    if weight is not None:
        solution = solve_lifted(ChainProblem(base, weight), settings, y, motions)
        errors = sum(float(np.sum((link.errors @ weight.T) ** 2)) for link in solution.place.links)
        return solution.place, base, errors
    count = len(dynamic_rows(base.shootings[0].stepper, free.bind(free.theta0)))
    solution = solve_lifted(ChainProblem(base, np.eye(count)), settings, y, motions, None, Hardening())
    return solution.place, base, 0.0
