"""Symbolic mechanisms, from a cold start: `uv run python benchmarks/symbolic.py [PART …]`.

cart: the cart-pendulum with five free parameters, 1001 samples: a new process that imports, derives, compiles and
fits, and a second fit in it. bicycle: the Whipple bicycle by SymPy's Kane's method, derived, compiled and fitted
(four parameters). links: derivation and compiling of a pendulum of more and more links on a cart. Run it alone.
"""

from __future__ import annotations

import subprocess
import sys
import time

PARTS = ("cart", "bicycle", "links")
COLD = 3


def main() -> None:
    chosen = [a for a in sys.argv[1:] if a in PARTS] or list(PARTS)
    if "--inside" in sys.argv:
        globals()[f"_{chosen[0]}"]()
        return
    for part in chosen:
        # each in processes of its own, so that nothing is compiled or imported yet
        for _ in range(COLD if part == "cart" else 1):
            began = time.perf_counter()
            subprocess.run([sys.executable, __file__, part, "--inside"], check=True)
            print(f"  process {time.perf_counter() - began:.2f} s in all", flush=True)


def _cart() -> None:
    began = time.perf_counter()
    import mechid

    mechid.enable_float64()
    from mechid.studies import cart_pendulum as study

    imported = time.perf_counter()
    settings = study.SETTINGS | {"friction": "viscous"}
    log = study.made(settings, "multisine")
    recorded = time.perf_counter()
    mechanism = study.cart_pendulum(True)
    derived = time.perf_counter()
    fit = study.fitted(mechanism, settings, log, "midpoint")
    done = time.perf_counter()
    again = []
    for _ in range(5):
        start = time.perf_counter()
        fit = study.fitted(mechanism, settings, log, "midpoint")
        again.append(time.perf_counter() - start)
    found = ", ".join(f"{n} {p.value:.5g}" for n, p in fit.parameters.items())
    print(
        f"cart-pendulum: import {imported - began:.2f} s, derivation {derived - recorded:.2f} s, first fit "
        f"{done - derived:.2f} s ({fit.iterations} iterations): cold "
        f"{done - began - (recorded - imported):.2f} s without making the log; second fit {min(again):.3f} s; "
        f"{found}"
    )


def _bicycle() -> None:
    began = time.perf_counter()
    import numpy as np

    import mechid

    mechid.enable_float64()
    from mechid import (
        Experiment,
        Measured,
        OneStep,
        Parameters,
        Start,
        full_discretization,
        joint_position,
        log_of,
        simulate,
    )
    from mechid.studies.whipple import PARAMETERS, whipple

    imported = time.perf_counter()
    m = whipple()
    derived = time.perf_counter()
    h, steps, finer = 0.01, 400, 4
    t = h * np.arange(steps + 1)

    def torque(t):
        return 0.4 * np.sin(2 * np.pi * 0.5 * t) + 0.6 * np.sin(2 * np.pi * 1.1 * t)

    rolling = {"rear": -5.0 / 0.3, "front": -5.0 / 0.35}
    fine = torque(h / finer * (np.arange(steps * finer) + 0.5))[:, None]
    run = simulate(m, OneStep(h / finer), steps * finer, v=rolling, inputs=fine)
    names = ("yaw", "lean", "steer", "rear")
    index = [m.coordinate_names.index(n) for n in names]
    seen = run.q[::finer][:, index] + 1e-3 * np.random.default_rng(0).normal(size=(steps + 1, 4))
    channels = {n: seen[:, i] for i, n in enumerate(names)} | {"T": torque(t)}
    log = log_of(t, channels, units={**dict.fromkeys(names, "rad"), "T": "N·m"})
    experiment = Experiment(
        log,
        [Measured(joint_position(m, *names), names, std=1e-3)],
        inputs={"T": "T"},
        hold="midpoint",
        start=Start(v=rolling, q_std="free", v_std="free"),
    )
    free = Parameters(m)
    for name, factor in (("m_B", 0.9), ("I_Bxx", 1.3), ("c", 0.8), ("I_Fyy", 0.8)):
        free = free.free(name, start=factor * PARAMETERS[name][0], bounds=(0, None))
    made = time.perf_counter()
    fit = full_discretization(m, OneStep(h), experiment, free)
    first = time.perf_counter() - made
    start = time.perf_counter()
    fit = full_discretization(m, OneStep(h), experiment, free)
    again = time.perf_counter() - start
    pulls = {n: (p.value - PARAMETERS[n][0]) / p.std for n, p in fit.parameters.items()}
    print(
        f"Whipple bicycle: import {imported - began:.1f} s, derivation {derived - imported:.1f} s, simulation of "
        f"the log with compiling {made - derived:.1f} s, first fit {first:.1f} s ({fit.iterations} iterations, of "
        f"which run {fit.seconds['run']:.2f} s), second {again:.2f} s; derivation + first fit "
        f"{derived - imported + first:.1f} s; " + ", ".join(f"{n} {x:+.1f} std" for n, x in pulls.items())
    )


def _links() -> None:
    import mechid

    mechid.enable_float64()
    from sympy.physics.mechanics.models import n_link_pendulum_on_cart

    from mechid import OneStep, SymbolicMechanism, simulate

    for n in (1, 2, 4, 6):
        began = time.perf_counter()
        method = n_link_pendulum_on_cart(n, cart_force=True, joint_torques=False)
        kane = time.perf_counter()
        symbols = sorted(
            {s.name for s in method.mass_matrix.free_symbols | method.forcing.free_symbols} - {"t"}
        )
        m = SymbolicMechanism.from_method(
            method,
            name=f"{n} links",
            parameters={s: 9.81 if s == "g" else 0.5 for s in symbols},
            inputs={"F": "N"},
            units={"q0": "m"},
        )
        derived = time.perf_counter()
        simulate(m, OneStep(0.01), 100, q=[0.0, *[0.3] * n])
        compiled = time.perf_counter()
        print(
            f"{n} links: Kane {kane - began:.2f} s, ours {derived - kane:.2f} s, compile and simulate "
            f"{compiled - derived:.2f} s"
        )


if __name__ == "__main__":
    main()
