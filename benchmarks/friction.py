"""Dry friction that sticks: `uv run python benchmarks/friction.py [PART …]`.

furuta: 13 parameters with dry friction of the joints' load, swing-up of 20 s at h = 0.01 s (2000 steps) by SPOOK,
six iterations of the joint optimum, and how many until parameters settle. pendulum: a driven pendulum with sticking
phases, 1201 samples; J, m g l, viscous and Coulomb friction free. simulate: the Furuta pendulum, 1e5 steps.
sweep: 100 fits over κ and compliance against one. Run it alone on the machine.
"""

from __future__ import annotations

import sys
import time

PARTS = ("furuta", "pendulum", "simulate", "sweep")


def main() -> None:
    import mechid

    mechid.enable_float64()
    for part in [a for a in sys.argv[1:] if a in PARTS] or list(PARTS):
        globals()[f"_{part}"]()


def _best(make, count: int = 3):
    """Seconds of the best of some, and the last result."""
    times, made = [], None
    for _ in range(count):
        began = time.perf_counter()
        made = make()
        times.append(time.perf_counter() - began)
    return min(times), made


def _swing_up(seconds: float):
    """The scenario's log, mechanism with starts, parameters; SPOOK; κ of the paper."""
    from mechid.studies import furuta
    from mechid.studies.furuta_model import START, TRUTH, freed, names_of, per_noise, spook
    from mechid.studies.furuta_model import furuta as made
    from mechid.studies.furuta_scenarios import scenario_log

    settings = furuta.SETTINGS | {"dt": 0.01}
    log = scenario_log(settings, made(TRUTH, "dry"), "swing-up", seconds, TRUTH["K"])
    mechanism = made({**TRUTH, **START}, "dry")
    names = ("J_Axx", "J_Ayy", "J_Azz", "J_Byy", "J_Bzz", *names_of("dry"), "K", "tilt_x", "tilt_y", "tilt_z")
    return mechanism, spook(settings), log, freed(mechanism, names), per_noise(settings)


def _furuta() -> None:
    from mechid import LevenbergMarquardt, joint
    from mechid.studies.joint_fits import settled

    mechanism, stepper, log, free, weight = _swing_up(20.0)
    given = (mechanism, stepper, log, free)
    six = LevenbergMarquardt(max_iterations=6, cost_tolerance=0.0)

    def fit(solver=None):
        return joint(*given, solver, state_error_weight=weight, marginal=False)

    began = time.perf_counter()
    first = fit(six)
    cold = time.perf_counter() - began
    best, made = _best(lambda: fit(six))
    print(
        f"furuta with dry friction, {free.size} parameters, 2000 steps: {best:.2f} s, {made.iterations} iterations "
        f"(first {cold:.1f} s, of which compile {first.seconds['compile']:.1f} s)"
    )
    whole = fit()
    print(f"  to its end: {whole.seconds['run']:.2f} s. {whole.outcome} Settled after {settled(whole)}.")


def _pendulum() -> None:
    import numpy as np

    from mechid import (
        Experiment,
        Measured,
        Parameters,
        Start,
        Variational,
        joint,
        joint_position,
        log_of,
        simulate,
    )
    from mechid.studies import mechanisms

    h, finer, steps = 0.01, 10, 1200
    m = mechanisms.pendulum(damping=0.02).dry_friction("hinge", coulomb=0.3)
    names = ("rod.com.z", "rod.inertia.yy", "hinge.damping", "hinge.coulomb")
    truth = {name: Parameters(m).free(name).entries[0].start for name in names}
    free = (
        Parameters(m)
        .free("rod.com.z", start=1.2 * truth["rod.com.z"], bounds=(None, 0))
        .free("rod.inertia.yy", start=1.5 * truth["rod.inertia.yy"], bounds=(0, None))
        .free("hinge.damping", start=0.05, bounds=(0, None))
        .free("hinge.coulomb", start=0.1, bounds=(0, None))
    )
    t = h * np.arange(steps + 1)
    # pushes that begin and end, so that it sticks in between
    torque = 1.2 * np.sin(2 * np.pi * 0.7 * t) * (np.sin(2 * np.pi * t / 6) > 0.5)
    fine = Variational(h / finer, forces="balanced")
    run = simulate(m, fine, steps * finer, q=[1.2], inputs=np.repeat(torque[:-1], finer)[:, None])
    rate = np.abs(np.diff(run.q[::finer, 0])) / h
    stepper = Variational(h, forces="balanced")
    # impulses of 3e-4 and 1e-4 N·m·s: what friction does in the step in which the rod turns back is 3e-3
    for weight in (1e7, 1e8):
        rows = []
        for seed in range(11):
            seen = run.q[::finer, 0] + 1e-3 * np.random.default_rng(seed).normal(size=steps + 1)
            log = log_of(t, {"angle": seen, "torque": torque}, units={"angle": "rad", "torque": "N·m"})
            experiment = Experiment(
                log,
                [Measured(joint_position(m, "hinge"), "angle", std=1e-3)],
                inputs={m.input_names[0]: "torque"},
                start=Start(q=[1.2], q_std="free", v_std="free"),
            )
            began = time.perf_counter()
            fit = joint(m, stepper, experiment, free, state_error_weight=weight, marginal=False)
            total = time.perf_counter() - began
            held = [p.interval[0] <= truth[k] <= p.interval[1] for k, p in fit.parameters.items()]
            if seed:
                rows.append((total, fit.iterations, fit.converged, sum(held)))
        seconds, iterations, converged, inside = zip(*rows, strict=True)
        print(
            f"pendulum, sticking in {100 * np.mean(rate < 1e-3):.0f} % of {steps + 1} samples, κ = {weight:.0e}: "
            f"{min(seconds):.2f} to {max(seconds):.2f} s, {min(iterations)} to {max(iterations)} iterations, "
            f"{sum(converged)} of {len(rows)} converged, 95 % intervals hold the truth in {sum(inside)} of "
            f"{len(names) * len(rows)} cases"
        )


def _simulate() -> None:
    from mechid import Spook, Variational, simulate
    from mechid.studies.furuta_model import TRUTH, furuta

    loaded = furuta(TRUTH, "dry")
    plain = furuta({**TRUTH, "mu1": 5e-3, "mu2": 1e-3}, "dry", level=True)
    for name, m, stepper in (
        ("SPOOK, friction of the joints' load", loaded, Spook(1e-3, compliance=1e-5, relaxation_time=0.02)),
        ("variational, Coulomb friction", plain, Variational(1e-3, forces="balanced")),
    ):
        simulate(m, stepper, 100_000, q={"swing": 3.0})
        best, run = _best(lambda m=m, s=stepper: simulate(m, s, 100_000, q={"swing": 3.0}))
        print(f"furuta, {name}: {best:.2f} s for {len(run.t) - 1} steps")


def _sweep() -> None:
    import dataclasses

    import numpy as np

    from mechid import Fit, joint, sweep

    mechanism, stepper, log, free, weight = _swing_up(5.0)

    def fit(point, begin=None):
        kappa, soft = point
        now = dataclasses.replace(stepper, compliance=soft)
        return joint(mechanism, now, log, free, state_error_weight=kappa, marginal=False, begin=begin)

    soft = np.geomspace(1e-8, 1e-4, 10)
    # to and fro, so that neighbours are near
    rows = [soft[:: 1 - 2 * (i % 2)] for i in range(10)]
    points = [(weight * k, s) for k, row in zip(np.geomspace(0.1, 10, 10), rows, strict=True) for s in row]
    fit(points[0])
    one, _ = _best(lambda: fit(points[50]))
    whole, fits = _best(lambda: sweep(fit, points), 1)
    done = sum(isinstance(f, Fit) and f.converged for f in fits)
    print(
        f"{len(points)} fits over κ and compliance: {whole:.1f} s, {whole / one:.0f} × one ({one:.2f} s), "
        f"{done} converged"
    )


if __name__ == "__main__":
    main()
