"""`simulate_batch`: many simulations of one mechanism, from other starts, inputs or numbers.

On a CPU each core works through simulations of its own: small matrices leave nothing to share within one. On an
accelerator all of them advance together, step by step.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from mechid.dynamics.simulate import simulate
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
