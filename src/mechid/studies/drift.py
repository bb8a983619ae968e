"""`drift`: why a variational integrator. Energy and loop closure over time beside explicit integrators.

The four-bar swings freely. The variational integrator is compared with explicit Euler and RK4 on the continuous
equations with the constraint at the level of accelerations (Caldwell, Eq. 1):

    M a + bias = F − Dhᵀ λ,      Dh a = −(D²h)(v, v).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mechid.compile import jit
from mechid.dynamics.assembly import assemble
from mechid.dynamics.model import Model
from mechid.dynamics.simulate import simulate
from mechid.dynamics.tree import Array
from mechid.dynamics.variational import Variational
from mechid.studies import mechanisms
from mechid.studies.study import Settings, Study

SETTINGS: Settings = {"dt": 0.005, "steps": 100_000}
QUICK: Settings = {"steps": 4_000}


def acceleration(model: Model, q: Array, v: Array, u: Array, t: Array) -> Array:
    """a of the continuous equations, constraint at acceleration level."""
    _, slope = model.constraint(q, u)
    bend = jax.jvp(lambda x: model.constraint(x, u)[1] @ v, (q,), (v,))[1]
    nc = slope.shape[0]
    kkt = jnp.block([[model.mass_matrix(q), slope.T], [slope, jnp.zeros((nc, nc))]])
    load = -model.force_balance(q, v, jnp.zeros_like(q), u, t)
    return jnp.linalg.solve(kkt, jnp.concatenate([load, -bend]))[: q.shape[0]]


def _euler(f: Callable[..., Array], x: Array, h: Array) -> Array:
    return x + h * f(x)


def _rk4(f: Callable[..., Array], x: Array, h: Array) -> Array:
    def stage(slope: Array, weights: Array) -> tuple[Array, Array]:
        new = f(x + h * weights[0] * slope)
        return new, weights[1] * new

    table = jnp.array([[0.0, 1.0], [0.5, 2.0], [0.5, 2.0], [1.0, 1.0]])
    return x + h / 6 * jnp.sum(jax.lax.scan(stage, jnp.zeros_like(x), table)[1], 0)


METHODS = {"explicit Euler": _euler, "RK4": _rk4}


def _explicit(model: Model, method: Any, start: Array, u: Array, h: Array, steps: int) -> Any:
    """Energy and largest loop violation after each step."""
    n = model.nq

    def slope(x: Array) -> Array:
        return jnp.concatenate([x[n:], acceleration(model, x[:n], x[n:], u, jnp.zeros(()))])

    def one(x: Array, _: None) -> tuple[Array, tuple[Array, Array]]:
        new = method(slope, x, h)
        kinetic, potential = model.energy(new[:n], new[n:])
        return new, (kinetic + potential, jnp.max(jnp.abs(model.constraint(new[:n], u)[0])))

    return jax.lax.scan(one, start, None, length=steps)[1]


explicit = jit(_explicit, static_argnums=(1, 5))


def run(settings: Settings, study: Study) -> None:
    h, steps = float(settings["dt"]), int(settings["steps"])
    bar = mechanisms.four_bar()
    q = assemble(bar, mechanisms.FOUR_BAR_GUESS, hold=["a"])
    moved = simulate(bar, Variational(h), steps, q=q)
    kinetic, potential = moved.energy
    curves = {"variational": (kinetic + potential, moved.violation)}
    for name, method in METHODS.items():
        start = np.concatenate([q, np.zeros(3)])
        energy, opening = explicit(moved.model, method, start, np.zeros(1), h, steps)
        curves[name] = (
            np.concatenate([curves["variational"][0][:1], np.asarray(energy)]),
            np.concatenate([curves["variational"][1][:1], np.asarray(opening)]),
        )
    rows, study.result["methods"] = [], {}
    scale = float(np.ptp(potential))
    for name, (energy, opening) in curves.items():
        change = np.abs(energy - energy[0]) / scale
        alive = int(np.sum(np.cumprod(np.isfinite(change) & (change < 10.0)))) - 1
        gap = opening[: alive + 1].max()
        end = change[max(0, alive - steps // 10) : alive + 1]
        study.result["methods"][name] = {
            "steps_until_useless": alive,
            "energy_error_end": float(end.max()),
            "violation_max": float(gap),
        }
        lasted = "all" if alive == steps else f"until step {alive}"
        rows.append([name, lasted, f"{end.max():.1e}", f"{gap:.1e} m"])
    study.table(
        f"Four-bar swinging freely, dt = {h:g} s, {steps} steps",
        ["method", "usable", "energy error at the end (of the swing's)", "loop open by at most"],
        rows,
    )
    path = study.figure_path("drift.png")
    _draw(curves, h, scale, path)
    study.result["figure"] = str(path)
    study.say(f"The figure is in {path}.")


def _draw(curves: dict[str, Any], h: float, scale: float, path: Any) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (above, below) = plt.subplots(2, 1, sharex=True, figsize=(8, 6), layout="constrained")
    for name, (energy, opening) in curves.items():
        every = max(1, len(energy) // 4000)
        t = h * np.arange(len(energy))[::every]
        change = np.abs(energy - energy[0])[::every] / scale
        gap = np.maximum(opening, 1e-17)[::every]
        with np.errstate(invalid="ignore"):
            shown = change < 10.0
        above.semilogy(t[shown], np.maximum(change, 1e-12)[shown], lw=0.8, label=name)
        below.semilogy(t[shown], gap[shown], lw=0.8, label=name)
    above.set_ylabel("energy error / energy of the swing")
    below.set_ylabel("loop open by (m)")
    below.set_xlabel("time (s)")
    above.legend(loc="lower right")
    above.set_title(f"Four-bar, free swing, dt = {h:g} s")
    figure.savefig(path, dpi=130)
    plt.close(figure)
