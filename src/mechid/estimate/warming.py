"""Compile all that a fit will call before it begins, on all cores, by running each program over a single step.

Compiling is most of what a user waits for; tracing holds Python's lock, but XLA compiles in parallel. What is
computed here is thrown away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np

from mechid.dynamics.intervals import (
    GivenMotion,
    InputSlopes,
    Intervals,
    dynamic_rows,
    interval_residuals,
    linear_intervals,
    moved,
)
from mechid.dynamics.linearization import tangent_at, transition_matrices
from mechid.dynamics.variational import Variational
from mechid.estimate.chain import coordinates, first_states, leading, ranges, some
from mechid.estimate.experiment import LQR
from mechid.estimate.problem import ShootingProblem
from mechid.estimate.residuals import compile_residuals, sample_rows
from mechid.estimate.shooting import Shooting
from mechid.estimate.solvers.block_arrow import Chain, Sizes, follow, sweep
from mechid.estimate.whitening import Weight, weighting


def warm(shooting: Shooting, *, adjoint: bool) -> None:
    """Compile the simulation of an experiment and its derivatives, forward or adjoint, at the same time."""
    jobs = shooting.programs(adjoint=adjoint)
    wanted = shooting.experiment.feedback
    if wanted is not None and isinstance(wanted.gain, LQR) and isinstance(shooting.stepper, Variational):
        model = shooting.free.bind(shooting.free.theta0)
        jobs.append(lambda: transition_matrices(shooting.stepper, model, _one_step(shooting, model)))
    with ThreadPoolExecutor(len(jobs)) as pool:
        for job in [pool.submit(job) for job in jobs]:
            job.result()


@contextmanager
def warmed(base: ShootingProblem) -> Iterator[None]:
    """Compile what chains of states need, beside whatever is done meanwhile."""
    shooting, free = base.shootings[0], base.free
    model = free.bind(free.theta0)
    late = bool(free.late_inputs)
    seen = _shape((shooting.stepper, model, shooting.groups)), free.size, base.size, late
    if seen in _WARM:
        yield
        return
    given = _one_step(shooting, model)
    tangent = tangent_at(free, free.theta0, model)
    stepper, first, nt = shooting.stepper, shooting.first, free.size
    sizes = Sizes(len(dynamic_rows(stepper, model)), stepper.nx(model), stepper.window, nt)
    rows = sum(
        len(g.std) * int(np.bincount(g.interval[leading(g) :], minlength=1).max())
        for g in shooting.groups
        if g.times
    )
    none = Intervals(*(np.zeros((1, n, sizes.columns)) for n in (sizes.state, stepper.nz(model))))

    def samples() -> None:
        compile_residuals(stepper, model, shooting.groups, given, shooting.grid.steps)
        for group, weight in _samples(shooting):
            sample_rows(stepper, model, tangent, group, weight, given, none, nt)

    def sweeps() -> None:
        chain = Chain(
            sizes,
            none.M,
            np.zeros((1, rows, sizes.columns)),
            np.eye(sizes.errors),
            np.zeros((1, sizes.errors)),
        )
        for columns in (1, base.size):
            follow(chain, sweep(chain), np.zeros((sizes.state, columns)), np.zeros((nt + 1, columns)))

    def starts() -> None:
        x = first_states(shooting, model, first.q, first.v)
        first.slopes(stepper, model, tangent, x, first.q, first.v, float(shooting.grid.t[0]))
        states = jax.tree.map(lambda a: np.zeros((shooting.grid.steps + 1, *a.shape)), x)
        ranges(stepper, states)
        two = 2 * len(some(shooting.grid.steps))
        coordinates(stepper, model, jax.tree.map(lambda a: a[:1].repeat(two, 0), states))

    def follows() -> None:
        slopes = [None if s is None else s[..., 0] for s in tangent]
        inputs = np.zeros((2, np.asarray(shooting.table).shape[1]))
        change = np.zeros((2, sizes.state))
        moved(stepper, model, model, slopes, given.states, change, inputs, shooting.grid.t[:2])

    jobs: list[Callable[[], Any]] = [
        lambda: linear_intervals(stepper, model, tangent, given),
        follows,
        lambda: interval_residuals(stepper, model, given),
        starts,
        samples,
        sweeps,
    ]
    with ThreadPoolExecutor(len(jobs)) as pool:
        waiting = [pool.submit(job) for job in jobs]
        yield
        for job in waiting:
            job.result()
    _WARM.add(seen)


_WARM: set[Any] = set()
"""shapes of chains that have been compiled"""
_SHAPES: dict[Any, Any] = {}
"""of a state, for steppers and models that have been seen"""


def _shape(tree: Any) -> Any:
    """What tells programs apart."""
    return jax.tree.structure(tree), tuple(np.shape(a) for a in jax.tree.leaves(tree))


def _one_step(shooting: Shooting, model: Any) -> GivenMotion:
    """A step that leads nowhere."""
    stepper, first, t = shooting.stepper, shooting.first, shooting.grid.t
    u = np.zeros(model.nu)
    key = _shape((stepper, model))
    if key not in _SHAPES:
        _SHAPES[key] = jax.eval_shape(lambda *a: stepper.initial(model, *a), first.q, first.v, u, t[0])
    states = jax.tree.map(lambda a: np.zeros((2, *a.shape)), _SHAPES[key])
    z = np.zeros((1, stepper.nz(model)))
    moved = None
    if shooting.free.late_inputs:
        moved = InputSlopes(np.zeros((1, model.nu)), np.zeros((model.nu, shooting.free.size)))
    return GivenMotion(states, z, u[None], t[:1], moved)


def _samples(shooting: Shooting) -> list[tuple[Any, Weight]]:
    """One sample of each group."""
    groups = [g.first_sample for g in shooting.groups if g.times]
    return [(g, weighting(g, np.ones(g.values.shape[1]))) for g in groups]
