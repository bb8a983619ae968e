"""How cost grows with coordinates, steps, parameters and simulations.

    uv run python benchmarks/growth.py [coordinates] [steps] [parameters] [batch]

Run it alone on the machine. Chains are of hinged rods; the parameters are masses, dampings, lengths … of a chain;
the batch is of model B.
"""

from __future__ import annotations

import resource
import sys
import time
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import mechid
from mechid import Mechanism, Parameters, Variational, adjoint, sensitivities, simulate, simulate_batch
from mechid.studies import mechanisms


def chain(n: int) -> Mechanism:
    """n rods, each on a hinge at the end of the one before, axes in turn about x and y."""
    m, parent, origin = Mechanism(f"chain of {n}"), "world", (0.0, 0.0, 0.0)
    for i in range(n):
        m = m.body(f"rod{i}", mass=1.0, com=(0, 0, -0.05), inertia=(1e-3, 1e-3, 1e-5))
        m = m.revolute(f"hinge{i}", parent, f"rod{i}", axis="xy"[i % 2], origin=origin)
        m = m.damper(f"hinge{i}", damping=0.01).spring(f"hinge{i}", stiffness=0.1)
        parent, origin = f"rod{i}", (0.0, 0.0, -0.1)
    return m


def timed(run: Any, repeat: int = 1) -> tuple[Any, float]:
    """The result and the best time of some calls."""
    best = np.inf
    for _ in range(repeat):
        began = time.perf_counter()
        result = run()
        best = min(best, time.perf_counter() - began)
    return result, best


def table(title: str, *columns: str) -> Table:
    made = Table(title=title)
    for column in columns:
        made.add_column(column, justify="right")
    return made


def coordinates() -> Table:
    """Chains of 4 to 128 coordinates."""
    made = table("chains, 512 steps of dt = 0.002 s", "coordinates", "first run", "a step", "iterations")
    for n in (4, 8, 16, 32, 64, 128):
        m = chain(n)

        def run(m: Mechanism = m, n: int = n) -> Any:
            return simulate(m, Variational(0.002), 512, q=np.full(n, 0.1))

        (_, first), (done, warm) = timed(run), timed(run, 3)
        made.add_row(str(n), f"{first:.1f} s", f"{warm / 512 * 1e3:.4f} ms", f"{done.iterations.mean():.1f}")
    return made


def steps() -> Table:
    """1e3 to 1e6 steps: the whole trajectory, and every thousandth state."""
    made = table("chain of 4, dt = 0.002 s", "steps", "kept", "time", "a step", "peak memory so far")
    m, q = chain(4), np.full(4, 0.1)
    simulate(m, Variational(0.002), 10, q=q)
    for every in (1000, 1):
        for count in (10**3, 10**4, 10**5, 10**6):
            done, taken = timed(
                lambda n=count, k=every: simulate(m, Variational(0.002), n, q=q, every=min(k, n))
            )
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            cells = (f"{taken:.2f} s", f"{taken / count * 1e6:.2f} µs", f"{peak:.0f} MiB")
            made.add_row(f"{count:.0e}", f"{done.steps} states", *cells)
    return made


def parameters() -> Table:
    """1 to 200 parameters by the adjoint and by forward sensitivities."""
    made = table(
        "chain of 16, 2000 steps", "parameters", "simulation", "adjoint", "forward", "all, against 2"
    )
    m, q = chain(16), np.full(16, 0.1)
    run, _ = timed(lambda: simulate(m, Variational(0.002), 2000, q=q))
    _, alone = timed(lambda: simulate(m, Variational(0.002), 2000, q=q), 3)
    slopes = np.random.default_rng(0).normal(size=(2001, 32))
    patterns = ["mass", "com.x", "com.y", "com.z", "inertia.xx", "inertia.yy", "inertia.zz"]
    names = [f"rod{i}.{p}" for p in patterns for i in range(16)]
    names += [f"hinge{i}.{p}" for p in ("damping", "stiffness", "rest") for i in range(16)]
    names += [f"hinge{i}.origin.{x}" for x in "xyz" for i in range(16)]
    two = 0.0
    for count in (1, 2, 10, 50, 100, 200):
        # always of several kinds: what is moved decides the program
        pick = [names[i] for i in np.linspace(0, len(names) - 1, count).astype(int)]
        free = Parameters(m)
        for name in dict.fromkeys(pick):
            free = free.free(name)
        adjoint(run, free, free.theta0, slopes)
        gradient, back = timed(lambda f=free: adjoint(run, f, f.theta0, slopes), 3)
        two = back if count == 2 else two
        forward = "–"
        if count <= 10:
            sensitivities(run, free, free.theta0)
            found, ahead = timed(lambda f=free: sensitivities(run, f, f.theta0), 3)
            same = np.einsum("kx,kxp->p", slopes, found.states)
            assert np.allclose(same, gradient, rtol=1e-6, atol=1e-6 * np.abs(same).max())
            forward = f"{ahead:.3f} s"
        ratio = f"{(back + alone) / (two + alone):.2f}" if two else "–"
        made.add_row(str(free.size), f"{alone:.3f} s", f"{back:.3f} s", forward, ratio)
    return made


def batch() -> Table:
    """Model B, 1, 16 and 256 simulations of 2000 steps on all cores."""
    made = table("model B, 2000 steps", "simulations", "time", "a step and simulation")
    arm, controller = mechanisms.baxter_loop_forced(), mechanisms.baxter_controller(0.01)
    start = np.concatenate([mechanisms.baxter_facts()["q0_arm"], np.zeros(24)])
    free = Parameters(arm).free("th_*.stiffness", name="kappa")
    for count in (1, 16, 256):
        runs = [
            {"q": start, "inputs": controller, "model": free.bind(free.theta0 * (1 + 0.1 * x))}
            for x in np.linspace(-1, 1, count)
        ]
        simulate_batch(arm, Variational(0.01), 2000, runs[:2])
        _, taken = timed(
            lambda r=runs: simulate_batch(arm, Variational(0.01), 2000, r), 2 if count < 256 else 1
        )
        made.add_row(str(count), f"{taken:.2f} s", f"{taken / count / 2000 * 1e3:.4f} ms")
    return made


def main() -> None:
    mechid.enable_float64()
    studies = {f.__name__: f for f in (coordinates, steps, parameters, batch)}
    for name in sys.argv[1:] or studies:
        Console().print(studies[name]())


if __name__ == "__main__":
    main()
