"""Fits with all states as unknowns: `uv run python benchmarks/trajectory.py [PART …]`.

cart: a cart-pendulum, 5 parameters, 1001 samples, warm and from a cold start (a new process without a compilation
cache, the import included). furuta: 2 bodies, 13 parameters, 2000 steps, six iterations, by every stepper.
four-bar: a closed loop, 801 samples. growth: 1e3 … 1e6 samples. logs: 20 against one. Run it alone on the machine.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time

COLD = """
import time
began = time.perf_counter()
import mechid
mechid.enable_float64()
import numpy as np
from mechid.studies.states import cart_case
imported = time.perf_counter() - began
case = cart_case(1000, np.random.default_rng(0))
began = time.perf_counter()
fit = mechid.full_discretization(case.mechanism, mechid.Variational(0.01), case.experiment, case.free)
print(imported, time.perf_counter() - began)
"""
PARTS = ("cart", "furuta", "four-bar", "growth", "logs")


def main() -> None:
    import mechid

    mechid.enable_float64()
    chosen = [a for a in sys.argv[1:] if a in PARTS] or list(PARTS)
    for part in chosen:
        globals()[f"_{part.replace('-', '_')}"]()


def _times(make, count: int = 4) -> tuple[float, object]:
    """The best of several after the first, and the last fit."""
    times = []
    fit = None
    for _ in range(count):
        began = time.perf_counter()
        fit = make()
        times.append(time.perf_counter() - began)
    return min(times[1:]), fit


def _cart() -> None:
    import numpy as np

    from mechid import Variational, full_discretization, joint
    from mechid.studies.states import cart_case

    done = subprocess.run([sys.executable, "-c", COLD], capture_output=True, text=True, check=True)
    imported, total = map(float, done.stdout.split())
    print(f"cart-pendulum, cold: import {imported:.2f} s, fit {total:.2f} s")
    case = cart_case(1000, np.random.default_rng(0))
    given = (case.mechanism, Variational(0.01), case.experiment, case.free)
    for name, make in (
        ("full discretisation", lambda: full_discretization(*given)),
        ("joint, κ = 1e8", lambda: joint(*given, state_error_weight=1e8)),
        ("joint, κ chosen", lambda: joint(*given)),
    ):
        best, fit = _times(make)
        print(f"cart-pendulum, warm, {name}: {best:.3f} s, {fit.iterations} iterations")


def _furuta() -> None:
    import numpy as np

    from mechid import BDF, LevenbergMarquardt, Parameters, Spook, Variational, joint
    from mechid.studies.states import furuta_case

    case = furuta_case(2000, np.random.default_rng(0), dt=0.01)
    m = case.mechanism
    free = Parameters(m)
    for body in ("arm", "pendulum"):
        free = free.free(f"{body}.mass", bounds=(0, None))
        for axis in "xyz":
            free = free.free(f"{body}.inertia.{axis}{axis}", bounds=(0, None))
    free = free.free("arm.com.x").free("pendulum.com.z").free("pendulum.com.x")
    free = free.free("turn.damping", start=2e-3, bounds=(0, None)).free(
        "swing.damping", start=3e-4, bounds=(0, None)
    )
    six = LevenbergMarquardt(max_iterations=6, cost_tolerance=0.0)
    for stepper in (Variational(0.01), BDF(0.01, 2), Spook(0.01, compliance=1e-5)):

        def fit(marginal, stepper=stepper):
            return joint(m, stepper, case.experiment, free, six, state_error_weight=1e9, marginal=marginal)

        began = time.perf_counter()
        first = fit(False)
        cold = time.perf_counter() - began
        best, made = _times(lambda: fit(False))
        slower, likeliest = _times(lambda: fit(True), 3)
        print(
            f"furuta, {free.size} parameters, 2000 steps, {type(stepper).__name__}: {best:.2f} s, "
            f"{made.iterations} iterations (first {cold:.1f} s, compile {first.seconds['compile']:.1f} s); "
            f"with the likelihood's determinant {slower:.2f} s, {likeliest.iterations} iterations"
        )


def _four_bar() -> None:
    import numpy as np

    from mechid import Variational, full_discretization
    from mechid.studies.states import four_bar_case

    case = four_bar_case(800, np.random.default_rng(0))
    best, fit = _times(
        lambda: full_discretization(case.mechanism, Variational(0.005), case.experiment, case.free)
    )
    pulls = [(p.value - case.truth[k]) / p.std for k, p in fit.parameters.items()]
    print(
        f"four-bar, 801 samples, exact loop: {best:.2f} s, off by {', '.join(f'{x:+.1f}' for x in pulls)} std"
    )


def _growth() -> None:
    import numpy as np

    from mechid import Variational, full_discretization
    from mechid.studies.states import cart_case

    for count in (1_000, 10_000, 100_000, 1_000_000):
        case = cart_case(count, np.random.default_rng(0))
        given = (case.mechanism, Variational(0.01), case.experiment, case.free)
        began = time.perf_counter()
        fit = full_discretization(*given)
        total = time.perf_counter() - began
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(
            f"growth, {count} steps: {total:.2f} s, {fit.iterations} iterations, "
            f"{1e6 * fit.seconds['run'] / max(fit.iterations, 1) / count:.1f} µs a step and iteration, "
            f"peak {peak:.2f} GiB"
        )


def _logs() -> None:
    from dataclasses import replace

    import numpy as np

    from mechid import Variational, joint
    from mechid.studies.states import cart_case

    cases = [cart_case(1000, np.random.default_rng(i)) for i in range(20)]
    logs = [replace(c.experiment, name=f"log{i}") for i, c in enumerate(cases)]
    m, free = cases[0].mechanism, cases[0].free
    one, _ = _times(lambda: joint(m, Variational(0.01), logs[0], free, state_error_weight=1e8))
    all_, fit = _times(lambda: joint(m, Variational(0.01), logs, free, state_error_weight=1e8), 3)
    print(
        f"20 logs together: {all_:.2f} s, {all_ / one:.1f} × one ({one:.3f} s), {fit.iterations} iterations"
    )


if __name__ == "__main__":
    main()
