"""Whole identifications of the flexible loop: `uv run python benchmarks/identification.py [cold] [12] [6]`.

For 12 and for 6 links: cost and gradient (adjoint, forward), one whole fit by Levenberg–Marquardt with its gains,
and from a cold start: a new process without a compilation cache, the import included, the making of the data not.
Then how the adjoint gradient grows with the number of parameters. Run it alone on the machine.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
import tempfile
import time
from pathlib import Path

COLD = """
import pickle, sys, time
began = time.perf_counter()
import mechid
mechid.enable_float64()
from mechid.studies import baxter_loop
recording = pickle.load(open(sys.argv[1], "rb"))
fit = baxter_loop.identify(dict(baxter_loop.SETTINGS), recording, int(sys.argv[2]))
total = time.perf_counter() - began
print(f"{total:.2f} {fit.seconds['compile']:.2f} {fit.seconds['run']:.2f}")
"""


def main() -> None:
    import mechid

    mechid.enable_float64()
    from mechid.studies import baxter_loop

    chosen = [int(a) for a in sys.argv[1:] if a.isdigit()] or [12, 6]
    settings = dict(baxter_loop.SETTINGS)
    recording = baxter_loop.record(settings)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "recording.pkl"
        file.write_bytes(pickle.dumps(recording))
        for links in chosen:
            cold = [_cold(file, links) for _ in range(2)]
            total, compiled, run = min(cold)
            print(f"{links} links, cold start: {total:.2f} s (compile {compiled:.2f} s, run {run:.2f} s)")
    for links in chosen:
        fits = [baxter_loop.identify(settings, recording, links) for _ in range(4)]
        run = min(f.seconds["run"] for f in fits[1:])
        fit = fits[-1]
        print(
            f"{links} links, warm: {run:.2f} s, {fit.iterations} iterations, "
            f"{fit.trace[-1].evaluations} simulations, J {fit.cost[0]:.4g} → {fit.cost[1]:.4g}"
        )
        _gradients(fit.extra["problem"], links)
    _many_parameters(recording)
    _long()


def _cold(file: Path, links: int) -> tuple[float, ...]:
    done = subprocess.run(
        [sys.executable, "-c", COLD, str(file), str(links)], capture_output=True, text=True, check=True
    )
    return tuple(float(x) for x in done.stdout.split())


def _gradients(problem, links: int) -> None:
    """Cost and gradient from scratch: one simulation and its derivative."""
    from dataclasses import replace

    y = problem.start * 1.01
    for how in ("forward", "adjoint"):
        times = []
        for i in range(4):
            fresh = replace(problem, gradients=how, memory={})
            began = time.perf_counter()
            fresh.gradient(fresh.evaluate(y * (1 + 1e-6 * i)))
            times.append(time.perf_counter() - began)
        print(f"{links} links, cost + gradient ({how}): {min(times[1:]):.3f} s")


def _many_parameters(recording) -> None:
    """The adjoint gradient by 2 and by 100 parameters of the loop."""
    from mechid.dynamics.variational import Variational
    from mechid.estimate.prepare import prepared
    from mechid.estimate.problem import ShootingProblem
    from mechid.estimate.tracking import with_gains
    from mechid.model.parameters import Parameters
    from mechid.studies import baxter_loop

    mechanism, experiment, few = baxter_loop.problem(dict(baxter_loop.SETTINGS), recording, 12)
    many = Parameters(mechanism)
    for pattern in ("th_*.stiffness", "ps_*.stiffness", "th_*.damping", "ps_*.damping"):
        many = many.free(pattern)
    for body in (f"link_{side}{i}" for side in "lr" for i in range(1, 6)):
        many = many.free(f"{body}.mass").free(f"{body}.com.*")
    for address in ("link_?6.mass", "[sew]?.damping", "right_hand.mass", "top.mass", "right_wrist.mass"):
        many = many.free(address)
    medians = {}
    for free in (few, many):
        at = with_gains(prepared(Variational(baxter_loop.DT), experiment, free))
        noise = (tuple(g.std for g in at.groups),)
        times = []
        for i in range(5):
            problem = ShootingProblem(free, (at,), noise, (None,), "adjoint")
            began = time.perf_counter()
            problem.gradient(problem.evaluate(free.theta0 * (1 + 1e-9 * i)))
            times.append(time.perf_counter() - began)
        medians[free.size] = min(times[1:])
    (n, a), (m, b) = medians.items()
    print(
        f"adjoint gradient with its simulation: {n} parameters {a:.3f} s, {m} parameters {b:.3f} s ({b / a:.2f} ×)"
    )


def _long(steps: int = 1_000_000) -> None:
    """The adjoint gradient over a million steps of a pendulum, and how much memory it takes."""
    import resource

    import numpy as np

    from mechid import Experiment, Measured, Parameters, Start, Variational, joint_position
    from mechid.data.log import Channel, Log
    from mechid.estimate.prepare import prepared
    from mechid.estimate.problem import ShootingProblem
    from mechid.studies import mechanisms

    def grown() -> float:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    pendulum = mechanisms.pendulum(damping=1e-4)
    t = 0.01 * np.arange(steps + 1)
    log = Log("long", {"angle": Channel(t[::100], np.zeros(steps // 100 + 1), "rad")}, ())
    measured = [Measured(joint_position(pendulum, "hinge"), "angle", std=1e-3)]
    free = Parameters(pendulum).free("hinge.damping").free("rod.mass").free("rod.inertia.yy")
    experiment = Experiment(log, measured, start=Start(q={"hinge": 1.0}))
    problem = ShootingProblem(
        free, (prepared(Variational(0.01), experiment, free),), ((np.array([1e-3]),),), (None,), "adjoint"
    )
    before = grown()
    began = time.perf_counter()
    point = problem.evaluate(problem.start)
    simulated = time.perf_counter() - began
    problem.gradient(point)
    total = time.perf_counter() - began
    print(
        f"{steps} steps of a pendulum: cost {simulated:.1f} s, with adjoint gradient {total:.1f} s, "
        f"peak memory +{grown() - before:.0f} MiB"
    )


if __name__ == "__main__":
    main()
