"""How compile time and time per step grow with the number of coordinates: chains of hinged rods.

uv run python benchmarks/growth.py [4 16 64 …]
"""

from __future__ import annotations

import sys
import time

import numpy as np
from rich.console import Console
from rich.table import Table

import mechid
from mechid import Mechanism, Variational, simulate

STEPS = 512


def chain(n: int) -> Mechanism:
    """n rods, each on a hinge at the end of the one before, axes in turn about x and y."""
    m, parent, origin = Mechanism(f"chain of {n}"), "world", (0.0, 0.0, 0.0)
    for i in range(n):
        m = m.body(f"rod{i}", mass=1.0, com=(0, 0, -0.05), inertia=(1e-3, 1e-3, 1e-5))
        m = m.revolute(f"hinge{i}", parent, f"rod{i}", axis="xy"[i % 2], origin=origin)
        m = m.damper(f"hinge{i}", damping=0.01)
        parent, origin = f"rod{i}", (0.0, 0.0, -0.1)
    return m


def main() -> None:
    mechid.enable_float64()
    table = Table(title=f"chains, {STEPS} steps of dt = 0.002 s")
    for column in ("coordinates", "first run", "a step", "Newton iterations"):
        table.add_column(column, justify="right")
    for n in [int(x) for x in sys.argv[1:]] or [4, 16, 64]:
        m, times = chain(n), []
        for _ in range(2):
            began = time.perf_counter()
            run = simulate(m, Variational(0.002), STEPS, q=np.full(n, 0.1))
            times.append(time.perf_counter() - began)
        table.add_row(
            str(n),
            f"{times[0]:.1f} s",
            f"{times[1] / STEPS * 1e3:.3f} ms",
            f"{run.iterations.mean():.1f}",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
