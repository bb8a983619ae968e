"""Seconds of a regression of the Stäubli TX40, and how they grow.

    OPENBLAS_NUM_THREADS=1 uv run python benchmarks/regression.py

45 000 samples of 6 axes, 87 numbers: reading, filters, the regressor at every sample, base parameters and least
squares from all 270 000 rows, and once more from rows averaged over windows as `regression` does. Nothing is
compiled but the user's friction law of motor 6: cold is the first call of a process, warm the best of three more.
FIGAROH takes 0.16 s for the regressor and 4.3 s for the base parameters of 5 000 samples. Needs the reference data.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import mechid
from mechid import Mechanism, Parameters
from mechid.estimate.linear import least_squares
from mechid.estimate.linear_form import MechanismForm
from mechid.estimate.measured_motion import Signals, measured_motion
from mechid.estimate.regression import preference, regression
from mechid.studies import tx40

GOAL = 1.5
"""s, of the regressor, base parameters and least squares"""


def timed(run: Callable[[], Any], repeats: int = 3) -> tuple[Any, float, float]:
    """The result, seconds of the first call, and the best of some more."""
    times = []
    for _ in range(repeats + 1):
        begun = time.perf_counter()
        result = run()
        times.append(time.perf_counter() - begun)
    return result, times[0], min(times[1:])


def tall(console: Console) -> float:
    """The parts at every sample."""
    log, cold_read, read = timed(tx40.read_tx40)
    arm = tx40.tx40()
    form = MechanismForm(tx40.freed(arm))
    experiment = tx40.experiment(arm, log, (None, None), "tx40")
    signals = Signals(cutoff=28.0, window=0.0)
    motion, cold_signals, filtered = timed(lambda: measured_motion(form, experiment, signals))
    (phi, y), cold_rows, rows = timed(lambda: form.rows(motion.samples))
    order = preference(form)
    solution, cold_solve, solved = timed(
        lambda: least_squares(phi, y, form.names, std="estimated", order=order)
    )
    fit, cold_whole, whole = timed(lambda: regression(arm, experiment, form.free))
    table = Table(
        title=f"{phi.shape[0]} samples × {phi.shape[1]} axes, {phi.shape[2]} numbers, rank {solution.rank}"
    )
    for column in ("", "cold, s", "warm, s"):
        table.add_column(column, justify="right" if column else "left")
    parts = [
        ("reading", cold_read, read),
        ("signals", cold_signals, filtered),
        ("regressor", cold_rows, rows),
        ("base parameters, least squares, weights", cold_solve, solved),
        ("regressor to least squares", cold_rows + cold_solve, rows + solved),
        (f"regression(…): {len(fit.channels[0].time)} rows an axis, all of it", cold_whole, whole),
    ]
    for name, cold, warm in parts:
        table.add_row(name, f"{cold:.3f}", f"{warm:.3f}")
    console.print(table)
    console.print(f"goal: regressor to least squares ≤ {GOAL} s warm")
    return rows + solved


def chain(joints: int) -> Parameters:
    """A serial arm with all inertial numbers, damping and friction free."""
    m = Mechanism("chain")
    for i in range(joints):
        m = m.body(f"b{i}", mass=1.0, com=(0.1, 0.02, 0.0), inertia=(0.02, 0.03, 0.04))
        m = m.revolute(
            f"j{i}", "world" if i == 0 else f"b{i - 1}", f"b{i}", axis="zyx"[i % 3], origin=(0.2, 0, 0.1)
        )
        m = m.damper(f"j{i}", damping=0.1).friction(f"j{i}", coulomb=0.1).torque(f"j{i}")
    free = Parameters(m)
    for i in range(joints):
        for number in ("mass", "first_moment", "origin_inertia"):
            free = free.free(f"b{i}.{number}")
        free = free.free(f"j{i}.damping").free(f"j{i}.coulomb")
    return free


def growth(console: Console) -> None:
    """Samples and joints."""
    table = Table(title="Growth (warm, s)")
    for column in ("joints", "samples", "numbers", "regressor", "least squares"):
        table.add_column(column, justify="right")
    for joints, samples in ((6, 5_000), (6, 20_000), (6, 80_000), (3, 20_000), (12, 20_000), (24, 5_000)):
        form = MechanismForm(chain(joints))
        x = np.random.default_rng(0).normal(size=(samples, len(form.channels)))
        (phi, y), _, rows = timed(lambda form=form, x=x: form.rows(x), 2)
        _, _, solved = timed(lambda phi=phi, y=y, form=form: least_squares(phi, y, form.names), 2)
        table.add_row(str(joints), str(samples), str(len(form.names)), f"{rows:.3f}", f"{solved:.3f}")
    console.print(table)


def main() -> None:
    mechid.enable_float64()
    console = Console()
    seconds = tall(console)
    growth(console)
    sys.exit(0 if seconds <= GOAL else 1)


if __name__ == "__main__":
    main()
