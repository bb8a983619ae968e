"""Time per step and to compile, for models A and B, beside the C program that the papers used.

    uv run python benchmarks/steps.py [A] [B]

Run it alone on the machine. Times are of the second of two calls; compile is the first call's excess.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

import mechid
from mechid import Mechanism, Parameters, Variational, sensitivities, simulate
from mechid.studies import mechanisms

OTHER = {"A": (0.94e-3, 2.7), "B": (3.7e-3, 13.0)}
"""the C program on two cores like ours: seconds a step, seconds for cost and gradient of 2000 steps"""


def twice(run: Callable[[], Any]) -> tuple[Any, float, float]:
    """The result, the time of a warm call, and what the first call took more."""
    began = time.perf_counter()
    run()
    cold = time.perf_counter() - began
    best = np.inf
    for _ in range(3):
        began = time.perf_counter()
        result = run()
        best = min(best, time.perf_counter() - began)
    return result, best, cold - best


def model(name: str) -> tuple[Mechanism, Any, np.ndarray, dict[str, str]]:
    """Mechanism, inputs, start and the two stiffnesses of a model."""
    if name == "A":
        loop = mechanisms.loop6(damping=0.1, axes="body")
        force = mechanisms.loop6_force((np.arange(2000) + 0.5) * 0.01)
        return loop, force, np.zeros(13), {"kappa_theta": "theta*.stiffness", "kappa_psi": "psi*.stiffness"}
    arm = mechanisms.baxter_loop_forced()
    start = np.concatenate([mechanisms.baxter_facts()["q0_arm"], np.zeros(24)])
    springs = {"kappa_theta": "th_*.stiffness", "kappa_psi": "ps_*.stiffness"}
    return arm, mechanisms.baxter_controller(0.01), start, springs


def main() -> None:
    mechid.enable_float64()
    table = Table(title="2000 steps of dt = 0.01 s")
    for column in ("model", "what", "time", "a step", "compile", "C program"):
        table.add_column(column, justify="left" if column in ("model", "what") else "right")
    for name in sys.argv[1:] or ["A", "B"]:
        mechanism, inputs, q, springs = model(name)
        stepper = Variational(0.01)
        run, warm, compiling = twice(
            lambda m=mechanism, q=q, u=inputs, s=stepper: simulate(m, s, 2000, q=q, inputs=u)
        )
        step, gradient = OTHER[name]
        row = [f"{warm:.3f} s", f"{warm / 2000 * 1e3:.3f} ms", f"{compiling:.1f} s"]
        table.add_row(name, "simulation", *row, f"{step * 1e3:.2f} ms a step")
        free = Parameters(mechanism)
        for parameter, pattern in springs.items():
            free = free.free(pattern, name=parameter)
        _, warm, compiling = twice(lambda r=run, f=free: sensitivities(r, f.bind, jnp.asarray(f.theta0)))
        row = [f"{warm:.3f} s", f"{warm / 2000 * 1e3:.3f} ms", f"{compiling:.1f} s"]
        table.add_row(name, "two sensitivities, besides", *row, f"{gradient:.1f} s with cost")
    Console().print(table)


if __name__ == "__main__":
    main()
