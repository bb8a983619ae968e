"""The posterior of the parameters by NUTS: `uv run --group docs python examples/core/posterior.py`.

numpyro samples exp(−cost), with the cost's gradient through the integrator, and the standard deviations of a fit
are shown beside those of the samples.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import data
import mechid
from mechid import Parameters, Variational, residual_function, simulation_error


def main(steps: int = 400, samples: int = 500, warm_up: int = 300) -> dict[str, tuple[float, float]]:
    mechid.setup()
    from numpyro.infer import MCMC, NUTS

    pendulum = data.pendulum()
    experiment = data.experiment(pendulum, data.recorded(pendulum, steps))
    free = (
        Parameters(pendulum)
        .free("hinge.damping", start=0.06, transform="positive")
        .free("rod.mass", start=1.1, transform="positive")
    )
    residuals = residual_function(pendulum, Variational(data.DT), experiment, free)
    fit = simulation_error(pendulum, Variational(data.DT), experiment, free)
    std = np.array([p.std for p in fit.parameters.values()])
    # the sampler walks in units of the fit's standard deviations, of the logarithms here
    width = std / np.array([p.value for p in fit.parameters.values()])

    def potential(x):
        return residuals.cost(jnp.asarray(fit.theta) + jnp.asarray(width) * x)

    chain = MCMC(NUTS(potential_fn=potential), num_warmup=warm_up, num_samples=samples, progress_bar=False)
    chain.run(jax.random.PRNGKey(0), init_params=jnp.zeros(free.size))
    drawn = np.exp(fit.theta + width * np.asarray(chain.get_samples()))
    print("name             fit ± std                posterior ± std")
    found = {}
    for i, (name, p) in enumerate(fit.parameters.items()):
        mean, spread = float(drawn[:, i].mean()), float(drawn[:, i].std())
        found[name] = (p.std, spread)
        print(f"{name:15s}  {p.value:.5f} ± {p.std:.5f}    {mean:.5f} ± {spread:.5f}")
    return found


if __name__ == "__main__":
    main()
