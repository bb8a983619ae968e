"""The gradient of a loss of one's own, through the integrator: `uv run python examples/core/own_loss.py`.

The loss is the mean of log cosh of the residuals, which grows only linearly with outliers. Nothing in it is special
to mechid: any function of the residuals, or of the motion itself, can be differentiated.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

import data
import mechid
from mechid import Parameters, Variational, residual_function


def main(steps: int = 1000) -> dict[str, float]:
    mechid.setup()
    log = data.recorded(data.pendulum(), steps)
    spoilt = np.array(log["angle"].values)
    spoilt[:: max(steps // 20, 1)] += 0.3  # outliers of 0.3 rad
    pendulum = data.pendulum()
    experiment = data.experiment(pendulum, mechid.log_of(log["angle"].time, {
        "angle": spoilt, "torque": log["torque"].values}))  # fmt: skip
    free = (
        Parameters(pendulum)
        .free("hinge.damping", start=0.08, transform="positive")
        .free("rod.mass", start=1.2, transform="positive")
    )
    residuals = residual_function(pendulum, Variational(data.DT), experiment, free)

    @jax.jit
    def loss(function, y):
        r = function(y)
        return jnp.mean(jnp.logaddexp(r, -r) - jnp.log(2.0))

    value_and_slope = jax.jit(jax.value_and_grad(loss, argnums=1))
    found = minimize(lambda y: value_and_slope(residuals, y), residuals.start, jac=True, method="L-BFGS-B")
    values = dict(zip(free.names, np.asarray(free.numbers(found.x)).tolist(), strict=True))
    for name, value in values.items():
        print(f"{name:15s} {value:.5f}")
    return values


if __name__ == "__main__":
    main()
