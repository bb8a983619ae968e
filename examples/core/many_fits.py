"""A thousand fits in one call: `uv run python examples/core/many_fits.py`.

Each log has noise of its own. How far the estimates spread is compared with the standard deviations that each fit
states.
"""

from __future__ import annotations

import numpy as np

import data
import mechid
from mechid import Parameters, Variational, fit_batch, log_of


def main(fits: int = 1000, steps: int = 500) -> np.ndarray:
    mechid.setup()
    pendulum = data.pendulum()
    log = data.recorded(pendulum, steps)
    rng = np.random.default_rng(1)

    def noisy():
        angle = log["angle"].values + data.STD * rng.normal(size=steps + 1)
        return data.experiment(
            pendulum, log_of(log["angle"].time, {"angle": angle, "torque": log["torque"].values})
        )

    free = Parameters(pendulum).free("hinge.damping", start=0.06).free("rod.mass", start=1.1)
    batch = fit_batch(pendulum, Variational(data.DT), [noisy() for _ in range(fits)], free)
    print(f"{batch.converged.sum()} of {fits} converged")
    ratio = batch.values.std(axis=0) / batch.stds.mean(axis=0)
    for name, mean, x in zip(batch.names, batch.values.mean(axis=0), ratio, strict=True):
        print(f"{name:15s} {mean:.5f}, spread / stated std {x:.3f}")
    print(batch[0])
    return ratio


if __name__ == "__main__":
    main()
