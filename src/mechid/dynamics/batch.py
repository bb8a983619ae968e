"""`simulate_batch`: many simulations of one mechanism, from other starts, inputs or numbers; `Batch`: results.

On a CPU each core works through simulations of its own: small matrices leave nothing to share within one. On an
accelerator all of them advance together, step by step.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any, TypeVar

import jax
import numpy as np

from mechid.compile import jit
from mechid.dynamics.driver import Chunk, advance, chunk_length, padded
from mechid.dynamics.simulate import Plan, planned, simulate, trajectory_of
from mechid.dynamics.stepper import Stepper
from mechid.dynamics.trajectory import Trajectory
from mechid.errors import MechidError, choices, unknown
from mechid.model.system import System

ARGUMENTS = ("q", "v", "inputs", "t0", "model")
"""what a run may give: the arguments of `simulate`"""


T = TypeVar("T")


class Batch(Sequence[T]):
    """Results of one kind: a sequence whose items are made when they are asked for, and kept."""

    def __init__(self, count: int, make: Callable[[int], T]) -> None:
        self._count, self._make = count, make
        self._kept: dict[int, T] = {}

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return [self[j] for j in range(*i.indices(len(self)))]
        j = operator.index(i)
        j = j + len(self) if j < 0 else j
        if not 0 <= j < len(self):
            raise IndexError(f"The batch has {len(self)} results: there is no number {i}.")
        if j not in self._kept:
            self._kept[j] = self._make(j)
        return self._kept[j]


class SimulationBatch(Batch[Trajectory]):
    """Simulations of equal length: stacked numbers of all, and `batch[i]` for the `Trajectory` of one."""

    def __init__(self, trajectories: list[Trajectory], steps: int) -> None:
        super().__init__(len(trajectories), trajectories.__getitem__)
        self.solved = np.array([t.steps for t in trajectories], int)
        """(runs,) steps that were solved"""
        self.outcomes = tuple(t.outcome for t in trajectories)
        """a sentence each"""
        self._steps = steps

    @cached_property
    def q(self) -> np.ndarray:
        """(runs, N + 1, nq) joint coordinates, rad or m; NaN beyond the last solved step"""
        return self._padded([t.q for t in self])

    @cached_property
    def v(self) -> np.ndarray:
        """(runs, N + 1, nq) their rates; NaN beyond the last solved step"""
        return self._padded([t.v for t in self])

    def _padded(self, rows: list[np.ndarray]) -> np.ndarray:
        width = rows[0].shape[1] if rows else 0
        whole = np.full((len(rows), self._steps + 1, width), np.nan)
        for target, x in zip(whole, rows, strict=True):
            target[: len(x)] = x
        return whole


def simulate_batch(
    mechanism: System,
    stepper: Stepper,
    steps: int,
    runs: Sequence[dict[str, Any]],
    *,
    throw: bool = True,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> SimulationBatch:
    """Simulate each of many runs over the same number of steps.

    Args:
        runs: what each gives of q, v, inputs, t0 and model, as `simulate` takes them.
        throw: raise the `SimulationError` of the first run that fails; else its trajectory ends there.
        workers: simulations at a time on a CPU, by default one for each core.
        progress: called with the number of simulations done and their total.

    Returns:
        A `SimulationBatch`: `batch[i]` is the `Trajectory` of run i, `batch.q` has all coordinates.
    """
    for i, run in enumerate(runs):
        if not isinstance(run, dict):
            raise MechidError(f"Run {i} must be a dictionary of {choices(ARGUMENTS)}, not {run!r}.")
        for key in run:
            if key not in ARGUMENTS:
                raise unknown(f"argument (of run {i})", key, ARGUMENTS)
    if workers is not None and workers < 1:
        raise MechidError(f"The number of workers must be ≥ 1, not {workers}.")
    model = mechanism.lower()
    filled: list[dict[str, Any]] = [{"model": model} | run for run in runs]
    if jax.default_backend() != "cpu":
        plans = [planned(mechanism, stepper, steps, **run) for run in filled]
        return SimulationBatch(_together(plans, throw, progress), steps)

    def one(run: dict[str, Any]) -> Trajectory:
        return simulate(mechanism, stepper, steps, throw=throw, **run)

    done: list[Trajectory] = []
    with ThreadPoolExecutor(workers or os.cpu_count()) as pool:
        try:
            for trajectory in pool.map(one, filled):
                done.append(trajectory)
                if progress is not None:
                    progress(len(done), len(filled))
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return SimulationBatch(done, steps)


def _together(
    plans: list[Plan], throw: bool, progress: Callable[[int, int], None] | None
) -> list[Trajectory]:
    """Runs with one controller advance together."""
    groups: dict[int, list[int]] = {}
    for i, plan in enumerate(plans):
        groups.setdefault(id(plan.controller), []).append(i)
    done: dict[int, Trajectory] = {}
    for members in groups.values():
        chosen = [plans[i] for i in members]
        for i, plan, chunks in zip(members, chosen, chunks_together(chosen), strict=True):
            done[i] = trajectory_of(plan, chunks, throw=throw)
        if progress is not None:
            progress(len(done), len(plans))
    return [done[i] for i in range(len(plans))]


def chunks_together(plans: Sequence[Plan]) -> list[list[Chunk]]:
    """The chunks of plans of one length and with one controller, each to its end or to the first failed step."""
    stepper, steps, law = plans[0].stepper, len(plans[0].table), plans[0].law
    length = chunk_length(stepper, plans[0].model, steps)
    models, now = (_stacked([getattr(p, name) for p in plans]) for name in ("model", "now"))
    found: list[list[Chunk]] = [[] for _ in plans]
    going = np.ones(len(plans), bool)
    for first in range(0, steps, length):
        count = min(length, steps - first)
        rows = np.stack([padded(p.table[first : first + count], length) for p in plans])
        now, motion, past, solved = _advance_together(stepper, models, now, rows, count * going, law)
        motion, past, after = jax.tree.map(np.asarray, (motion, past, now))
        for i in np.flatnonzero(going):
            own = jax.tree.map(lambda a, i=i: a[i], (motion, past, after))
            found[i].append(Chunk(first, int(solved[i]), own[1], None, rows[i], count, own[0], None, own[2]))
        going = going & (np.asarray(solved) == count)
    return found


def _stacked(trees: list[Any]) -> Any:
    return jax.device_put(jax.tree.map(lambda *a: np.stack([np.asarray(x) for x in a]), *trees))


@jit
def _advance_together(stepper: Stepper, models: Any, now: Any, rows: Any, counts: Any, law: Any) -> Any:
    def one(model: Any, now: Any, rows: Any, count: Any) -> Any:
        now, motion, _, past, solved = advance.__wrapped__(
            stepper, model, now, rows, count, law, None, np.zeros(0)
        )
        return now, motion, past, solved

    return jax.vmap(one)(models, now, rows, counts)
