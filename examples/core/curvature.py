"""Hessian-vector products of the cost: `uv run python examples/core/curvature.py`.

The Hessian of the whole cost, residuals' own curvature included, is never formed: its product with a direction
costs a few gradients. Beside it the Gauss–Newton matrix JᵀJ, which leaves that curvature out.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import data
import mechid
from mechid import Parameters, Variational, residual_function


def main(steps: int = 1000) -> tuple[np.ndarray, np.ndarray]:
    mechid.setup()
    pendulum = data.pendulum()
    experiment = data.experiment(pendulum, data.recorded(pendulum, steps))
    free = Parameters(pendulum).free("hinge.damping", start=0.06).free("rod.mass", start=1.1)
    residuals = residual_function(pendulum, Variational(data.DT), experiment, free)

    @jax.jit
    def product(function, y, direction):
        return jax.jvp(jax.grad(function.cost), (y,), (direction,))[1]

    @jax.jit
    def gauss_newton(function, y, direction):
        _, change = jax.jvp(function, (y,), (direction,))
        return jax.vjp(function, y)[1](change)[0]

    y = jnp.asarray(residuals.start)
    columns = [[f(residuals, y, e) for e in jnp.eye(y.size)] for f in (product, gauss_newton)]
    H, G = (np.array(c) for c in columns)
    print("Hessian:", *H, sep="\n")
    print("Gauss–Newton:", *G, sep="\n")
    return H, G


if __name__ == "__main__":
    main()
