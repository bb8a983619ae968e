"""Models A and B: a step, a simulation, sensitivities, the adjoint and compiling, beside the papers' C program.

    uv run python benchmarks/steps.py [A] [B]

Run it alone on the machine. Times are the best of five calls; compile is what the first call took more.
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
from mechid import Mechanism, Parameters, Variational, adjoint, sensitivities, simulate
from mechid.reference import reference_file
from mechid.studies import mechanisms

STEPS = 2000
C_PROGRAM = {"A": (0.94e-3, 2.7), "B": (3.7e-3, 13.0)}
"""on two cores like ours: seconds a step, seconds for a cost and its gradient over 2000 steps"""


def measured(run: Callable[[], Any]) -> tuple[Any, float, float]:
    """The result, the time of a warm call, and what the first call took more."""
    began = time.perf_counter()
    result = run()
    first = time.perf_counter() - began
    best = np.inf
    for _ in range(5):
        began = time.perf_counter()
        result = run()
        best = min(best, time.perf_counter() - began)
    return result, best, first - best


def model(name: str) -> tuple[Mechanism, Any, np.ndarray, dict[str, str]]:
    """Mechanism, inputs, start and the two stiffnesses of a model."""
    if name == "A":
        loop = mechanisms.loop6(damping=0.1, axes="body")
        force = mechanisms.loop6_force((np.arange(STEPS) + 0.5) * 0.01)
        return loop, force, np.zeros(13), {"kappa_theta": "theta*.stiffness", "kappa_psi": "psi*.stiffness"}
    arm = mechanisms.baxter_loop_forced()
    start = np.concatenate([mechanisms.baxter_facts()["q0_arm"], np.zeros(24)])
    springs = {"kappa_theta": "th_*.stiffness", "kappa_psi": "ps_*.stiffness"}
    return arm, mechanisms.baxter_controller(0.01), start, springs


def main() -> None:
    mechid.enable_float64()
    table = Table(title=f"{STEPS} steps of dt = 0.01 s")
    for column in ("model", "what", "time", "a step", "compile", "C program", "ratio"):
        table.add_column(column, justify="left" if column in ("model", "what") else "right")
    for name in sys.argv[1:] or ["A", "B"]:
        mechanism, inputs, q, springs = model(name)
        c_step, c_gradient = C_PROGRAM[name]

        def row(what: str, seconds: float, compiling: float, other: float, name: str = name) -> None:
            cells = [f"{seconds:.3f} s", f"{seconds / STEPS * 1e3:.4f} ms", f"{compiling:.1f} s"]
            table.add_row(name, what, *cells, f"{other:.1f} s", f"{other / seconds:.0f}")

        run, plain, compiling = measured(
            lambda m=mechanism, q=q, u=inputs: simulate(m, Variational(0.01), STEPS, q=q, inputs=u)
        )
        row("simulation", plain, compiling, c_step * STEPS)
        free = Parameters(mechanism)
        for parameter, pattern in springs.items():
            free = free.free(pattern, name=parameter)
        theta = free.theta0
        _, besides, compiling = measured(lambda r=run, f=free, t=theta: sensitivities(r, f, t))
        row("with two sensitivities", plain + besides, compiling, c_gradient)
        slopes = np.random.default_rng(0).normal(size=(STEPS + 1, 2 * len(q)))
        _, besides, compiling = measured(lambda r=run, f=free, t=theta, s=slopes: adjoint(r, f, t, s))
        row("with the adjoint, 2 parameters", plain + besides, compiling, c_gradient)
        file = "A_forced_damped.npz" if name == "A" else "B_forced.npz"
        wanted = np.load(reference_file("reference", "variational", file))["q"]
        table.caption = f"{table.caption or ''}{name}: largest difference from the other engine's q " + (
            f"{np.abs(run.q - wanted).max():.1e}; {run.iterations.mean():.2f} Newton iterations a step. "
        )
    Console().print(table)


if __name__ == "__main__":
    main()
