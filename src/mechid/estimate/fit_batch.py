"""`fit_batch`: many fits of one mechanism to other logs, noise or starts, each by one compiled program.

The whole search is a pure function of fixed shape: Levenberg–Marquardt with bounds on the residual function, as
`simulation_error` does it. So other data compile nothing, threads on a CPU work side by side without waiting for
Python, and an accelerator maps it over all fits at once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from mechid.compile import jit
from mechid.dynamics.batch import Batch
from mechid.dynamics.stepper import Stepper
from mechid.dynamics.tree import Array
from mechid.errors import MechidError
from mechid.estimate.conditions import exact
from mechid.estimate.experiment import Experiment
from mechid.estimate.finish import finish
from mechid.estimate.fit import Fit
from mechid.estimate.problem import ShootingProblem
from mechid.estimate.residual_function import ResidualFunction, checked_shootings, of_shootings
from mechid.estimate.shooting import Shooting
from mechid.estimate.solvers.levenberg_marquardt import GROWTH, LevenbergMarquardt
from mechid.estimate.solvers.problem import Iteration, Solution, plural
from mechid.estimate.uncertainty import Rows, assessed, uncertainty
from mechid.model.geometry import finite
from mechid.model.parameters import Parameters
from mechid.model.system import System
from mechid.threads import small_matrices

CONVERGED, UNFINISHED, STUCK, NOT_SIMULATED = range(4)
"""how a search ends"""
WORDS = (
    "Converged after {}.",
    "Not converged after {}: allow more of them.",
    "No step lowers the cost any more after {}.",
    "The start cannot be simulated.",
)


class Search(NamedTuple):
    """A search, or where it has ended."""

    y: Array
    cost: Array
    residuals: Array
    jacobian: Array
    """at the best point so far"""
    step: Array
    promised: Array
    """the step that is tried next, and what it promises to lower the cost by"""
    damping: Array
    growth: Array
    iterations: Array
    evaluations: Array
    status: Array
    """UNFINISHED while it goes on"""


def levenberg_marquardt(
    function: ResidualFunction, y: Array, lower: Array, upper: Array, solver: LevenbergMarquardt
) -> Search:
    """The search from y within bounds, as a pure function of fixed shape.

    Args:
        function: residuals whose sum of squares is minimised.
        y: (n,) where the search begins.
        lower, upper: (n,) bounds.
        solver: tolerances; its fields may not be traced.
    """

    def evaluated(y: Array) -> tuple[Array, Array, Array]:
        def residuals(y: Array) -> tuple[Array, Array]:
            found = function.evaluate(y)
            return found.residuals, found.cost

        def column(e: Array) -> Any:
            return jax.jvp(residuals, (y,), (e,))

        (r, cost), (J, _) = jax.vmap(column, out_axes=((None, None), (-1, -1)))(jnp.eye(y.shape[0]))
        return cost, r, J

    def going(s: Search) -> Array:
        return (s.status == UNFINISHED) & (s.iterations < solver.max_iterations)

    def length(y: Array, d: Array) -> Array:
        """The longest relative change of an unknown."""
        return jnp.max(jnp.abs(d) / (jnp.abs(y) + 1e-8 * jnp.max(jnp.abs(y)) + 1e-300))

    def iterate(s: Search) -> Search:
        trial, first = s.y + s.step, s.evaluations == 0
        cost, r, J = evaluated(trial)
        gained = jnp.where(jnp.isfinite(cost), s.cost - cost, -jnp.inf)
        ratio = gained / jnp.maximum(s.promised, 1e-300)
        better = first | ((s.promised > 0.0) & (ratio > 1e-4))
        # rounding alone separates the two: nothing is left to gain
        level = ~better & (jnp.abs(gained) <= 1e-12 * s.cost) & (length(s.y, s.step) <= 1e-4)
        eased = s.damping * jnp.maximum(1.0 / 30.0, 1.0 - (2.0 * ratio - 1.0) ** 3)
        damped = jnp.where(better, eased, jnp.maximum(s.damping, 1e-12) * s.growth)
        damping = jnp.where(first, s.damping, damped)
        growth = jnp.where(better, GROWTH, s.growth * 3.0)
        new = s._replace(y=trial, cost=cost, residuals=r, jacobian=J)
        best = jax.tree.map(lambda a, b: jnp.where(better, a, b), new, s)
        step, promised = following(best, damping)
        done = (promised <= solver.cost_tolerance * best.cost) | (
            length(best.y, step) <= solver.step_tolerance
        )
        status = jnp.where(done | level, CONVERGED, jnp.where(damping > 1e20, STUCK, UNFINISHED))
        status = jnp.where(first & ~jnp.isfinite(cost), NOT_SIMULATED, status)
        return best._replace(
            step=step,
            promised=promised,
            damping=damping,
            growth=growth,
            iterations=s.iterations + (better & ~first),
            evaluations=s.evaluations + 1,
            status=status,
        )

    def following(s: Search, damping: Array) -> tuple[Array, Array]:
        """The next step from the best point, and its promise."""
        H, g = s.jacobian.T @ s.jacobian, s.jacobian.T @ s.residuals
        size = jnp.sqrt(jnp.maximum(jnp.diagonal(H), 0.0))
        largest = jnp.max(size)
        scale = jnp.where(size > 1e-12 * largest, size, jnp.maximum(largest, 1.0) * 1e-6)
        d = _bounded_step(H, g, scale, damping, lower - s.y, upper - s.y)
        return d, -(g @ d + 0.5 * d @ H @ d)

    y = jnp.clip(jnp.asarray(y, float), lower, upper)
    cost, r, J = jax.tree.map(lambda a: jnp.zeros(a.shape), jax.eval_shape(evaluated, y))
    zero = jnp.asarray(0, int)
    start = Search(
        y,
        cost,
        r,
        J,
        jnp.zeros_like(y),
        cost,
        jnp.asarray(solver.initial_damping),
        jnp.asarray(GROWTH),
        zero,
        zero,
        jnp.asarray(UNFINISHED, int),
    )
    return jax.lax.while_loop(going, iterate, start)


def _bounded_step(H: Array, g: Array, scale: Array, damping: Array, lower: Array, upper: Array) -> Array:
    """The damped Gauss–Newton step within bounds: what would leave them is held at them, at most n times."""
    n = g.shape[0]
    damped = (H + damping * jnp.diag(scale**2)) / (scale[:, None] * scale)

    def solve(held: Array, at: Array) -> Array:
        """The step with some unknowns held."""
        known = jnp.where(held, at * scale, 0.0)
        A = jnp.where(held[:, None] | held, jnp.eye(n), damped)
        b = jnp.where(held, known, -(g / scale) - damped @ known)
        return jnp.linalg.solve(A, b) / scale

    def fix(_: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        held, d = state
        out = (d < lower) | (d > upper)
        at = jnp.clip(d, lower, upper)
        return held | out, solve(held | out, at)

    none = jnp.zeros(n, bool)
    _, d = jax.lax.fori_loop(0, n, fix, (none, solve(none, jnp.zeros(n))))
    return jnp.clip(d, lower, upper)


_search = jit(levenberg_marquardt, static_argnums=(4,))


class FitBatch(Batch[Fit]):
    """Fits: stacked numbers of all, and `batch[i]` for the `Fit` of one, which is simulated once more for it."""

    def __init__(
        self,
        make: Callable[[int], Fit],
        names: tuple[str, ...],
        values: np.ndarray,
        stds: np.ndarray,
        converged: np.ndarray,
        outcomes: tuple[str, ...],
    ) -> None:
        super().__init__(len(values), make)
        self.names = names
        """of the parameters"""
        self.values = values
        """(fits, parameters) physical values; NaN where the start could not be simulated"""
        self.stds = stds
        """(fits, parameters) standard deviations; ∞ where the data determine nothing"""
        self.converged = converged
        """(fits,) whether each search has converged"""
        self.outcomes = outcomes
        """a sentence each"""


@small_matrices()
def fit_batch(
    mechanism: System,
    stepper: Stepper,
    experiments: Sequence[Experiment | Sequence[Experiment]],
    free: Parameters,
    *,
    starts: ArrayLike | None = None,
    solver: LevenbergMarquardt | None = None,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> FitBatch:
    """Fit the free parameters to each experiment (or each group of experiments) by itself.

    Args:
        experiments: one for each fit. They must be of one form: the same sensors, channels and inputs, the same
            number of steps and samples, and a std for every channel.
        starts: (fits, parameters) physical values where each search begins; by default those of `free`.
        solver: tolerances of Levenberg–Marquardt.
        workers: fits at a time on a CPU, by default one for each core.
        progress: called with the number of fits done and their total.

    Returns:
        A `FitBatch`. A fit that cannot be simulated harms no other: its values are NaN, its outcome says why.
    """
    solver = LevenbergMarquardt() if solver is None else solver
    if not isinstance(solver, LevenbergMarquardt):
        raise MechidError(f"fit_batch searches by LevenbergMarquardt, not by {solver!r}.")
    if workers is not None and workers < 1:
        raise MechidError(f"The number of workers must be ≥ 1, not {workers}.")
    given: list[list[Any]] = [list(e) if isinstance(e, list | tuple) else [e] for e in experiments]
    if not given:
        raise MechidError("A batch of fits needs at least one experiment.")
    _check(given, free)
    made = checked_shootings(mechanism, stepper, given[0], free)
    first, begun = of_shootings(free, made), _starts(starts, len(given), free)
    lower, upper = (
        np.concatenate([bound, np.full(first.size - free.size, sign * np.inf)])
        for bound, sign in zip(free.bounds_theta, (-1.0, 1.0), strict=True)
    )

    def one(i: int) -> tuple[tuple[Shooting, ...], Search, Any]:
        shootings = checked_shootings(mechanism, stepper, given[i], free) if i else made
        function = of_shootings(free, shootings)
        _check_form(first, function, i)
        function = replace(function, known=first.known)
        search = jax.tree.map(np.asarray, _search(function, begun(i, shootings), lower, upper, solver))
        problem = _problem(free, shootings)
        if search.status == NOT_SIMULATED:
            return shootings, search, np.full(free.size, np.inf)
        found = assessed(problem, search.y, _rows(problem, search))
        return shootings, search, np.sqrt(np.diag(found.covariance))

    done: list[Any] = []
    with ThreadPoolExecutor(workers or os.cpu_count()) as pool:
        try:
            for found in pool.map(one, range(len(given))):
                done.append(found)
                if progress is not None:
                    progress(len(done), len(given))
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return _gathered(free, solver, done)


def _check(given: list[list[Any]], free: Parameters) -> None:
    if isinstance(free, Parameters) and free.limits:
        raise MechidError("fit_batch knows bounds only, not limits between parameters: use simulation_error.")
    for e in (e for group in given for e in group if isinstance(e, Experiment)):
        if e.cost is not None:
            raise MechidError(
                "fit_batch needs sums of squares, not a cost of your own: use simulation_error."
            )
        if held := exact(tuple(e.start.conditions)):  # type: ignore[arg-type]
            raise MechidError(
                f"fit_batch cannot hold condition '{held[0].name}' exactly: give it a std, or use simulation_error."
            )


def _check_form(first: ResidualFunction, other: ResidualFunction, i: int) -> None:
    """Refuse an experiment that would need a program of its own."""
    one, two = (
        (
            [form._replace(name="", conditions=()) for form in f.known.forms],
            jax.tree.structure(f.data),
            [np.shape(x) for x in jax.tree.leaves(f.data)],
        )
        for f in (first, other)
    )
    if one != two:
        raise MechidError(
            f"Experiment {i} of the batch is of another form than the first: it needs the same channels, sensors "
            "and inputs, and as many steps and samples."
        )


def _starts(starts: Any, count: int, free: Parameters) -> Callable[..., np.ndarray]:
    """Where the search of fit i begins."""
    thetas = np.broadcast_to(free.theta0, (count, free.size))
    if starts is not None:
        values = finite(starts, (count, free.size), "The starts of the batch")
        thetas = np.array([[p.theta(x) for p, x in zip(free.entries, row, strict=True)] for row in values])
    return lambda i, shootings: np.concatenate([thetas[i], *(s.first.unknowns for s in shootings)])


def _problem(free: Parameters, shootings: tuple[Shooting, ...]) -> ShootingProblem:
    noise = tuple(tuple(g.std for g in s.groups) for s in shootings)
    return ShootingProblem(free, shootings, noise, (None,) * len(shootings))


def _rows(problem: ShootingProblem, search: Search) -> Rows:
    groups = [g for s in problem.shootings for g in s.groups]
    lengths = [(g.values.size, g.values.shape[1]) for g in groups]
    present = int(sum(g.present.sum() for g in groups))
    none = np.zeros((0, problem.size))
    return Rows(np.asarray(search.residuals), np.asarray(search.jacobian), none, lengths, present)


def _gathered(free: Parameters, solver: LevenbergMarquardt, done: list[Any]) -> FitBatch:
    names = tuple(free.physical(free.theta0))

    def fit(i: int) -> Fit:
        shootings, search, _ = done[i]
        problem = _problem(free, shootings)
        point = problem.evaluate(search.y)
        begun = problem.evaluate(np.concatenate([free.theta0, *(s.first.unknowns for s in shootings)]))
        point = problem.evaluate(search.y)
        if not np.isfinite(point.cost):
            raise MechidError(f"Fit {i} of the batch has no result: {WORDS[NOT_SIMULATED]}")
        first, last = problem.shown(begun.y), problem.shown(point.y)
        count, simulations = int(search.iterations), int(search.evaluations)
        trace = (
            Iteration(0, begun.cost, np.nan, first, 0.0, 0.0, 1, tuple(begun.y)),
            Iteration(count, point.cost, np.nan, last, 0.0, 0.0, simulations, tuple(point.y)),
        )
        solution = Solution(point, search.status == CONVERGED, _outcome(search), trace, np.zeros(0))
        found = uncertainty(problem, point)
        return finish(
            problem, point, found, estimator="simulation error", solver=solver, first_cost=begun.cost,
            solution=solution,
        )  # fmt: skip

    values = np.full((len(done), len(names)), np.nan)
    for i, (_, search, _) in enumerate(done):
        if search.status != NOT_SIMULATED:
            values[i] = np.asarray(free.physical_numbers(search.y[: free.size]))
    return FitBatch(
        fit,
        names,
        values,
        np.stack([std for *_, std in done]),
        np.array([search.status == CONVERGED for _, search, _ in done]),
        tuple(_outcome(search) for _, search, _ in done),
    )


def _outcome(search: Search) -> str:
    return WORDS[int(search.status)].format(plural(int(search.iterations), "iteration"))
