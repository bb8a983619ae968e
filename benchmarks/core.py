"""Cost, Jacobian and gradient of shooting problems, in two versions: `uv run python benchmarks/core.py OTHER_SRC`.

Each case is timed in processes of its own, this version and the other in turn; the best median of each is shown,
wall and processor time, and their ratios. `--only NAME` takes cases whose name holds NAME, `--cold` adds a first
fit in a new process without a cache of compiled programs. Run it alone on the machine.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
ROUNDS = 3
"""processes of each version and case"""
STEPPERS = {
    "variational": "Variational(DT)",
    "trapezoidal": "Variational(DT, rule='trapezoidal')",
    "BDF": "BDF(DT, 2)",
    "one-step": "OneStep(DT)",
    "SPOOK": "Spook(DT)",
}
DT = 0.01


def cart(stepper: str):
    import numpy as np

    from mechid import BDF, OneStep, Parameters, Spook, Start, Variational, simulate
    from mechid.studies import mechanisms

    m = mechanisms.damped(mechanisms.cart_pendulum(damping=0.1), {"slide": 0.2})
    known = {"Variational": Variational, "BDF": BDF, "OneStep": OneStep, "Spook": Spook, "DT": DT}
    t = DT * np.arange(1001)
    u = (3 * np.sin(np.pi * t[:-1]) + 2 * np.sin(2.6 * np.pi * t[:-1]))[:, None]
    start = {m.coordinate_names[1]: 0.3}
    run = simulate(m, Variational(DT), 1000, q=start, inputs=u)
    free = Parameters(m)
    for address in ("cart.mass", "pole.mass", "pole.com.z", "hinge.damping", "slide.damping"):
        free = free.free(address)
    return m, eval(STEPPERS[stepper], known), run, u, Start(q=start), free


def arm(_: str):
    import jax.numpy as jnp
    import numpy as np

    from mechid import Parameters, Start, Variational, simulate
    from mechid.studies import mechanisms

    m = mechanisms.baxter_arm()
    m = mechanisms.damped(m, dict.fromkeys(m.coordinate_names, 0.5))
    q0 = np.array(mechanisms.baxter_facts()["q0_arm"])
    f, P = np.array([0.11, 0.17, 0.23, 0.31, 0.37, 0.41, 0.47]), np.array([40.0, 40, 20, 20, 4, 4, 1])

    def law(t, q, v):
        return P * (q0 + 0.4 * jnp.sin(2 * jnp.pi * f * t) - q)

    run = simulate(m, Variational(DT), 1000, q=q0, inputs=law)
    free = Parameters(m).free("*.damping")
    for body in ("lower_shoulder", "lower_elbow", "lower_forearm"):
        for number in ("mass", "com.x", "com.y", "com.z"):
            free = free.free(f"right_{body}.{number}")
    return m, Variational(DT), run, run.inputs, Start(q=q0), free.free("right_upper_elbow.mass")


def problem(case: str):
    """A shooting problem at a point off its solution."""
    import numpy as np

    from mechid import Experiment, Measured, joint_position
    from mechid.data.log import Channel, Log
    from mechid.estimate.prepare import prepared
    from mechid.estimate.problem import ShootingProblem
    from mechid.estimate.tracking import with_gains

    kind, _, stepper = case.partition(" ")
    if kind == "loop":
        from mechid import Variational
        from mechid.studies import baxter_loop

        s = dict(baxter_loop.SETTINGS)
        _, experiment, free = baxter_loop.problem(s, baxter_loop.record(s), 12)
        at = with_gains(prepared(Variational(baxter_loop.DT, absolute_tolerance=1e-9), experiment, free))
    else:
        from mechid.estimate.experiment import LQR, Tracked

        m, step, run, u, start, free = (cart if kind == "cart" else arm)(stepper)
        rng, names = np.random.default_rng(0), m.coordinate_names
        channels = {
            f"q.{x}": Channel(run.t, run.q[:, i] + 1e-3 * rng.normal(size=len(run.t)))
            for i, x in enumerate(names)
        }
        channels |= {f"u.{x}": Channel(run.t[:-1], u[:, j]) for j, x in enumerate(m.input_names)}
        feedback = Tracked({x: f"q.{x}" for x in names}, LQR(1.0, 1e-3)) if kind == "arm" else None
        experiment = Experiment(
            Log(kind, channels),
            [Measured(joint_position(m, *names), tuple(f"q.{x}" for x in names), std=1e-3)],
            inputs={x: f"u.{x}" for x in m.input_names},
            start=start,
            span=(0.0, float(run.t[-1])),
            feedback=feedback,
        )
        at = prepared(step, experiment, free)
        at = with_gains(at) if feedback is not None else at
    noise = (tuple(g.std for g in at.groups),)
    return np.asarray(free.theta0) * 1.01, lambda how: ShootingProblem(free, (at,), noise, (None,), how)


def work(case: str, rounds: int) -> None:
    """Time one case in this process and print what was found as JSON."""
    import numpy as np

    import mechid

    mechid.enable_float64()
    y, make = problem(case)

    def cost() -> None:
        make("adjoint").evaluate(y)

    def jacobian() -> None:
        p = make("forward")
        p.rows(p.evaluate(y))

    def gradient() -> None:
        p = make("adjoint")
        p.gradient(p.evaluate(y))

    found = {}
    for name, call in (("cost", cost), ("Jacobian", jacobian), ("gradient", gradient)):
        began, used = time.perf_counter(), time.process_time()
        call()
        first = time.perf_counter() - began, time.process_time() - used
        times = []
        for _ in range(rounds):
            began, used = time.perf_counter(), time.process_time()
            call()
            times.append((time.perf_counter() - began, time.process_time() - used))
        found[name] = [*np.median(times, 0).tolist(), *first]
    print(json.dumps(found))


def long(steps: int = 1_000_000) -> None:
    """A million steps of a pendulum with the adjoint gradient, and the memory that it takes."""
    import numpy as np

    import mechid

    mechid.enable_float64()
    from mechid import Experiment, Measured, Parameters, Start, Variational, joint_position
    from mechid.data.log import Channel, Log
    from mechid.estimate.prepare import prepared
    from mechid.estimate.problem import ShootingProblem
    from mechid.studies import mechanisms

    pendulum = mechanisms.pendulum(damping=1e-4)
    free = Parameters(pendulum).free("hinge.damping").free("rod.mass").free("rod.inertia.yy")

    def made(n: int):
        t = 0.01 * np.arange(n + 1)
        log = Log("long", {"angle": Channel(t[::100], np.zeros(n // 100 + 1), "rad")}, ())
        measured = [Measured(joint_position(pendulum, "hinge"), "angle", std=1e-3)]
        e = Experiment(log, measured, start=Start(q={"hinge": 1.0}))
        at = prepared(Variational(0.01), e, free)
        return ShootingProblem(free, (at,), ((np.array([1e-3]),),), (None,), "adjoint")

    short = made(50_000)
    short.gradient(short.evaluate(short.start))
    whole = made(steps)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began, used = time.perf_counter(), time.process_time()
    point = whole.evaluate(whole.start)
    simulated = time.perf_counter() - began, time.process_time() - used
    whole.gradient(point)
    total = time.perf_counter() - began, time.process_time() - used
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(json.dumps({"cost": [*simulated, 0, 0], "gradient": [*total, 0, 0], "MiB": [grown, 0, 0, 0]}))


def cold(case: str) -> None:
    """A first fit in this process."""
    began, used = time.perf_counter(), time.process_time()
    import mechid

    mechid.enable_float64()
    from mechid.estimate.solvers.levenberg_marquardt import LevenbergMarquardt

    y, make = problem(case)
    prepared_at = time.perf_counter(), time.process_time()
    LevenbergMarquardt().solve(make("forward"), y)
    ended = time.perf_counter(), time.process_time()
    print(json.dumps({"fit": [ended[0] - prepared_at[0], ended[1] - prepared_at[1], 0, 0],
                      "all": [ended[0] - began, ended[1] - used, 0, 0]}))  # fmt: skip


def main() -> None:
    if sys.argv[1] in ("--work", "--long", "--one-cold"):
        {"--work": lambda: work(sys.argv[2], int(sys.argv[3])), "--long": long,
         "--one-cold": lambda: cold(sys.argv[2])}[sys.argv[1]]()  # fmt: skip
        return
    other = Path(sys.argv[1]).resolve()
    only = sys.argv[sys.argv.index("--only") + 1] if "--only" in sys.argv else ""
    cases = [f"cart {s}" for s in STEPPERS] + ["arm", "loop", "million"]
    print("case | what | before: wall, processor (ms) | now | ratio wall | ratio processor")
    for case in [c for c in cases if only in c]:
        arguments = ["--long"] if case == "million" else ["--work", case, "9" if case == "loop" else "15"]
        _compare(case, other, arguments)
        if "--cold" in sys.argv and case in ("cart variational", "arm", "loop"):
            _compare(f"{case}, cold", other, ["--one-cold", case])


def _compare(case: str, other: Path, arguments: list[str]) -> None:
    found: list[list[dict]] = [[], []]
    for _ in range(1 if case == "million" else ROUNDS):
        for i, source in enumerate((other, ROOT / "src")):
            found[i].append(_run(source, arguments))
    for what in found[0][0]:
        (a, b), (c, d) = ([min(f[what][k] for f in runs) for k in (0, 1)] for runs in found)
        ratios = f"{c / a:.2f} | {d / b:.2f}" if a and b else ""
        print(
            f"{case} | {what} | {1e3 * a:.2f}, {1e3 * b:.2f} | {1e3 * c:.2f}, {1e3 * d:.2f} | {ratios}",
            flush=True,
        )


def _run(source: Path, arguments: list[str]) -> dict:
    reference = os.environ.get("MECHID_REFERENCE", str(ROOT.parent / "shared"))
    environment = os.environ | {"PYTHONPATH": str(source), "MECHID_REFERENCE": reference}
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, __file__, *arguments],
            env=environment,
            capture_output=True,
            text=True,
            cwd=folder,
        )
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    main()
