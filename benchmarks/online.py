"""One update of a tracker with ten parameters and two outputs, over a stream's length; beside MCS of all numbers.

    uv run python benchmarks/online.py [updates]      # 1000000 by default; 10000000 takes some minutes
    uv run python benchmarks/online.py mcs            # the integrated algorithm against MCS alone

From truth: the largest error of a linear parameter in its standard deviations, which must not grow. Rounding: how
far the triangle's solution is from one refined in extended precision, in the same measure. Memory: what the process
holds.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from mechid.compile import enable_float64
from mechid.estimate.joint_form import JointForm
from mechid.estimate.online import Tracker
from mechid.studies.study import run_study

OMEGA = np.array([0.0616, 0.1312])
THETA = np.array([1e4, 2e7, 25.0, 590.0, 76.0, 40.0, 10.0, 5.0, 3.0, 2.0])
CYCLE, NOISE = 40_000, 0.1
"""samples that come again and again, with new noise each time a block of 1000 is made; N·m"""


def samples() -> np.ndarray:
    """A joint that moves at many speeds, the gear's twist up to 8 mrad."""
    t = 1e-3 * np.arange(CYCLE)
    turn = 2.0 * np.pi * t / 40.0
    q = 0.4 * np.sin(5 * turn) + 0.1 * np.sin(23 * turn)
    v = np.gradient(q, t)
    twist = 4e-3 * np.sin(31 * turn) + 4e-3 * np.sin(87 * turn)
    link = q - twist
    rate, acc = np.gradient(link, t), np.gradient(v, t)
    zero = np.zeros(CYCLE)
    table = np.column_stack([q, v, acc, zero, link, rate, zero])
    phi, y = JointForm(J_in=5.0).rows(table, OMEGA)
    torque = phi @ THETA
    table[:, 3], table[:, 6] = y[:, 0] - torque[:, 0], torque[:, 1]
    return table


def held() -> float:
    """MB of this process."""
    status = Path("/proc/self/statm")
    if status.exists():
        return int(status.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def stream(updates: int, console: Console) -> None:
    form = JointForm(J_in=5.0)
    bounds = {"omega_1": (0.005, 1.0), "omega_S": (0.01, 2.0)}
    tracking = Tracker(form, bounds, delay=0, beside=False, noise=(NOISE, NOISE)).start()
    clean, rng = samples(), np.random.default_rng(0)
    table = Table(
        "updates", "µs an update, mean", "median", "99 %", "memory (MB)", "rounding (std)", "from truth (std)"
    )
    told = 10 ** np.arange(4, 12)
    spent, count, before, laps = 0.0, 0, 0, []
    while count < updates:
        first = count % CYCLE
        block = clean[first : first + 1000].copy()
        block[:, [3, 6]] += NOISE * rng.normal(size=(1000, 2))
        rows = block.tolist()
        laps = laps[-200:]
        begun = time.perf_counter()
        for i, row in enumerate(rows):
            if i % 10 == 0:
                lap = time.perf_counter()
                tracking.update(1e-3 * (count + i), row)
                laps.append(time.perf_counter() - lap)
            else:
                tracking.update(1e-3 * (count + i), row)
        spent += time.perf_counter() - begun
        count += 1000
        if count in told or count == updates:
            table.add_row(*_row(tracking, count, 1e6 * spent / (count - before), laps))
            spent, before = 0.0, count
    console.print(table)
    console.print("mean: since the row above; median and 99 %: of the last updates")


def _row(tracking, count: int, mean: float, laps: list[float]) -> list[str]:
    known = tracking.estimate
    assert known is not None
    theta, std = known.theta, np.array([tracking.std[name] for name in tracking.form.names])
    R, d = known.triangle[:-1, :-1].astype(np.longdouble), known.triangle[:-1, -1].astype(np.longdouble)
    exact = theta.astype(np.longdouble)
    for _ in range(3):
        exact = exact + np.linalg.solve(R.astype(float), (d - R @ exact).astype(float))
    rounding = float(np.max(np.abs(exact - theta) / std))
    truth = float(np.max(np.abs(theta - THETA) / std))
    laps_us = 1e6 * np.array(laps)
    return [
        f"{count:.0e}",
        f"{mean:.1f}",
        f"{np.median(laps_us):.1f}",
        f"{np.percentile(laps_us, 99):.1f}",
        f"{held():.1f}",
        f"{rounding:.1e}",
        f"{truth:.2f}",
    ]


def main(words: list[str]) -> None:
    enable_float64()
    if words == ["mcs"]:
        run_study("joint-friction", quick=False, changes=[], as_json=False)
        return
    stream(int(float(words[0])) if words else 1_000_000, Console(width=110))


if __name__ == "__main__":
    main(sys.argv[1:])
