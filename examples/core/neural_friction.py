"""A neural friction term trained through the integrator: `uv run python examples/core/neural_friction.py`.

The hinge of the log's pendulum has friction with a Stribeck curve. The model knows nothing of that law: a network
of one hidden layer stands for it, as an element of the mechanism whose weights are parameters like any other.
"""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import least_squares

import data
import mechid
from mechid import Mechanism, Parameters, Variational, residual_function


def network(v: jnp.ndarray, weights: jnp.ndarray) -> jnp.ndarray:
    """An odd function of the velocity: Σ out·tanh(in·v)."""
    slope, out = weights.reshape(2, -1)
    return -jnp.sum(out * jnp.tanh(slope * v))


def with_network(size: int, seed: int = 0) -> Mechanism:
    """The pendulum with the network in its hinge, weights at random."""
    rng = np.random.default_rng(seed)
    start = {f"slope{i}": float(x) for i, x in enumerate(np.geomspace(0.5, 30.0, size))}
    start |= {f"out{i}": float(x) for i, x in enumerate(0.02 * rng.normal(size=size))}
    return data.pendulum(damping=0.0).element(
        "net", "hinge", force=lambda q, v, t, p: network(v[0], p)[None], parameters=start
    )


def main(steps: int = 2000, size: int = 6, evaluations: int = 60) -> float:
    mechid.setup()
    truth = data.pendulum(damping=0.0).element("friction", "hinge", force=lambda q, v, t, p: data.stribeck(v))
    log = data.recorded(truth, steps)
    pendulum = with_network(size)
    free = Parameters(pendulum).free("net.*")
    # inner weights are large, outer ones small: each is measured by its start
    scale = np.abs(free.theta0) + 0.02
    x = np.zeros(free.size)

    def rows(function, x):
        """Residuals, and a weak prior that keeps the weights near their start."""
        return jnp.concatenate([function(jnp.asarray(free.theta0) + scale * x), 1e-2 * x])

    value, slopes = jax.jit(rows), jax.jit(jax.jacfwd(rows, argnums=1))
    # a short horizon first: over a long one, motions with other friction have little in common
    for part in (0.05, 0.2, 1.0):
        span = (0.0, float(log["angle"].time[int(part * steps)]))
        experiment = replace(data.experiment(pendulum, log), span=span)
        residuals = residual_function(pendulum, Variational(data.DT), experiment, free)
        found = least_squares(
            lambda x, f=residuals: np.asarray(value(f, x)), x, max_nfev=evaluations,
            jac=lambda x, f=residuals: np.asarray(slopes(f, x)),
        )  # fmt: skip
        x, count = found.x, len(found.fun) - free.size
        print(f"first {span[1]:4.1f} s: mean cost of a sample {found.cost / count:.4g} (0.5 is noise alone)")
    weights = jnp.asarray(free.theta0 + scale * x)
    print("v (rad/s)   true (N·m)   network (N·m)")
    worst = 0.0
    for v in (0.1, 0.3, 0.6, 1.0, 2.0, 4.0):
        true, mine = float(data.stribeck(jnp.asarray(v))), float(network(jnp.asarray(v), weights))
        worst = max(worst, abs(mine - true))
        print(f"{v:9.1f}   {true:10.4f}   {mine:13.4f}")
    return worst


if __name__ == "__main__":
    main()
