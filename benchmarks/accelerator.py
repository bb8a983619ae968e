"""Batches of model B on whatever JAX finds: many simulations advanced together, step by step.

    python benchmarks/accelerator.py [1 64 1024 …]

Parameters and inputs of all simulations go to the device at once; models, first states and motions are made there,
and the last coordinates come back. Prints the time a step and simulation for each size of batch, and how far the
first simulation is from the same one on the host's CPU.
"""

from __future__ import annotations

import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

import mechid
from mechid import Parameters, Variational, simulate
from mechid.core import as_law, rollout
from mechid.studies import mechanisms

STEPS = 256


def main() -> None:
    mechid.setup()
    arm, controller = mechanisms.baxter_loop_forced(), mechanisms.baxter_controller(0.01)
    start = np.concatenate([mechanisms.baxter_facts()["q0_arm"], np.zeros(24)])
    free, stepper = Parameters(arm).free("th_*.stiffness", name="kappa"), Variational(0.01)
    print(f"{jax.devices()[0].device_kind}, jax {jax.__version__}, model B, {STEPS} steps")
    inputs = np.zeros((STEPS, len(arm.input_names)))

    def last(theta):
        model = free.bind(theta)
        q = jnp.asarray(start)
        x0 = stepper.initial(model, q, jnp.zeros_like(q), inputs[0], 0.0)
        motion = rollout(stepper, model, x0, inputs, law=as_law(controller))
        return stepper.positions(model, jax.tree.map(lambda a: a[-1], motion.states)), motion.solved

    together = jax.jit(jax.vmap(last))
    with jax.default_device(jax.devices("cpu")[0]):
        alone = simulate(arm, stepper, STEPS, q=start, inputs=controller, model=free.bind(free.theta0 * 0.9))
    for size in [int(x) for x in sys.argv[1:]] or [1, 64, 1024]:
        thetas = free.theta0 * np.linspace(0.9, 1.1, size)[:, None]
        times = []
        for _ in range(2):
            began = time.perf_counter()
            q, solved = map(np.asarray, together(thetas))
            times.append(time.perf_counter() - began)
        print(
            f"batch {size:5d}: first {times[0]:.1f} s, then {times[1] / size / STEPS * 1e6:.2f} µs a step and "
            f"simulation; {np.sum(solved == STEPS)} solved; q within {np.abs(q[0] - alone.q[-1]).max():.1e} of the "
            "CPU's"
        )


if __name__ == "__main__":
    main()
