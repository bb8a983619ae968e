"""Batches of model B on whatever JAX finds: many simulations advanced together, step by step.

    python benchmarks/accelerator.py [1 64 1024 …]

Prints the time a step and simulation for each size of batch, and how far the first simulation is from the same one
on the host's CPU.
"""

from __future__ import annotations

import sys
import time

import jax
import numpy as np

import mechid
from mechid import Parameters, Variational
from mechid.dynamics.march import rollout, rollouts_together
from mechid.dynamics.simulate import planned
from mechid.studies import mechanisms

STEPS = 256


def main() -> None:
    mechid.enable_float64()
    arm, controller = mechanisms.baxter_loop_forced(), mechanisms.baxter_controller(0.01)
    start = np.concatenate([mechanisms.baxter_facts()["q0_arm"], np.zeros(24)])
    free = Parameters(arm).free("th_*.stiffness", name="kappa")
    print(f"{jax.devices()[0].device_kind}, jax {jax.__version__}, model B, {STEPS} steps")

    def plan(scale: float):
        model = free.bind(free.theta0 * scale)
        return planned(arm, Variational(0.01), STEPS, q=start, inputs=controller, model=model)

    with jax.default_device(jax.devices("cpu")[0]):
        p = plan(0.9)
        alone = rollout(p.stepper, p.model, p.state, p.table, p.controller, memory=p.memory)
    for size in [int(x) for x in sys.argv[1:]] or [1, 64, 1024]:
        plans = [plan(0.9), *(plan(x) for x in np.linspace(0.91, 1.1, min(size, 64) - 1))]
        plans = (plans * (size // len(plans) + 1))[:size]
        times = []
        for _ in range(2):
            began = time.perf_counter()
            together = rollouts_together(plans)
            times.append(time.perf_counter() - began)
        apart = np.abs(together[0].states.q - alone.states.q).max()
        print(
            f"batch {size:5d}: first {times[0]:.1f} s, then {times[1] / size / STEPS * 1e6:.2f} µs a step and "
            f"simulation; q within {apart:.1e} of the CPU's"
        )


if __name__ == "__main__":
    main()
