"""`simulate_batch`: many simulations of one mechanism, from other starts, inputs or numbers.

On a CPU each core works through simulations of its own: small matrices leave nothing to share within one. On an
accelerator all of them advance together, step by step.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

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


def simulate_batch(
    mechanism: System,
    stepper: Stepper,
    steps: int,
    runs: Sequence[dict[str, Any]],
    *,
    throw: bool = True,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Trajectory]:
    """One trajectory for each run; a run gives q, v, inputs, t0 or model as `simulate` takes them.

    workers: simulations at a time on a CPU, by default one for each core. progress is called with the number of
    simulations done and their total. With throw the first simulation that fails raises its `SimulationError`.
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
        return _together([planned(mechanism, stepper, steps, **run) for run in filled], throw, progress)

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
    return done


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
