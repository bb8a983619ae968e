"""`states`: all states as unknowns: one engine for soft and hard dynamics, with every stepper.

engine    small mechanisms by every stepper: exact dynamics against simulation error with a free start, and joint
          estimation as the weight κ of state errors grows
chaos     motions on which shooting fails: a double pendulum over 10 s, an inverted cart-pendulum that a controller
          holds, the undamped loop of six links over 20 s; from the log's own first guess
stiff     a Furuta pendulum by SPOOK, its joints ever stiffer: parameters and iterations stay (Marklund's break
          down near 1e-6)
coverage  how often 95 % intervals of a cart-pendulum's parameters hold the truth
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import pi
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from mechid.data.log import Channel, Log
from mechid.dynamics.assembly import assemble
from mechid.dynamics.bdf import BDF
from mechid.dynamics.sensors import joint_position
from mechid.dynamics.simulate import simulate
from mechid.dynamics.spook import Spook
from mechid.dynamics.stepper import Stepper
from mechid.dynamics.variational import Variational
from mechid.errors import MechidError, unknown
from mechid.estimate.experiment import Experiment, Measured, Start
from mechid.estimate.fit import Fit
from mechid.estimate.simulation_error import simulation_error
from mechid.estimate.solvers.levenberg_marquardt import LevenbergMarquardt
from mechid.estimate.trajectory import full_discretization, joint
from mechid.model.mechanism import Mechanism
from mechid.model.parameters import Parameters
from mechid.report.fit import digits
from mechid.studies import mechanisms
from mechid.studies.study import Settings, Study

PARTS = ("engine", "chaos", "stiff", "coverage")
SETTINGS: Settings = {"part": "all", "repetitions": 200, "time": 2.0, "seed": 0}
ABOUT = {
    "part": f"all, or one of {', '.join(PARTS)}",
    "repetitions": "of the coverage, logs with noise of their own",
    "time": "length of the logs of the engine's part, s",
    "seed": "of the noise",
}
QUICK: Settings = {"part": "chaos", "time": 0.5, "repetitions": 20}

NOISE = 1e-3
TIGHT = LevenbergMarquardt(cost_tolerance=1e-13)


class Case(NamedTuple):
    """A mechanism, a log of it, what is free and what is true."""

    mechanism: Mechanism
    experiment: Experiment
    free: Parameters
    truth: dict[str, float]


def run(settings: Settings, study: Study) -> None:
    part = str(settings["part"])
    if part not in ("all", *PARTS):
        raise unknown("part", part, ("all", *PARTS))
    rng = np.random.default_rng(int(settings["seed"]))
    shown: dict[str, Callable[..., None]] = {
        "engine": _engine,
        "chaos": _chaos,
        "stiff": _stiff,
        "coverage": _coverage,
    }
    for name in PARTS if part == "all" else (part,):
        shown[name](settings, study, rng)


# Logs


def recorded(
    mechanism: Mechanism,
    free: Parameters,
    dt: float,
    steps: int,
    rng: Any,
    q: Any = None,
    inputs: Any = None,
    finer: int = 1,
) -> Case:
    """A motion by the variational stepper, every coordinate measured with noise, nothing known of its start.

    It is made at a finer step than dt, at which it is sampled, where that is asked for.
    """
    if finer > 1 and inputs is not None:
        inputs = np.repeat(inputs, finer, axis=0)
    stepper = Variational(dt / finer, forces="balanced") if finer > 1 else Variational(dt)
    motion = simulate(mechanism, stepper, finer * steps, q=q, inputs=inputs, every=finer)
    names = mechanism.coordinate_names
    units = ["rad" if c.revolute else "m" for c in mechanism.coordinates]
    channels = {n: Channel(motion.t, motion.q[:, i], units[i]) for i, n in enumerate(names)}
    given = np.asarray(motion.inputs)[:: finer if len(motion.inputs) > steps else 1]
    logged = {f"u.{n}": Channel(motion.t[:-1], given[:, i]) for i, n in enumerate(mechanism.input_names)}
    experiment = Experiment(
        Log(mechanism.name, channels | logged, ()),
        [Measured(joint_position(mechanism, *names), names, std=NOISE)],
        inputs={n: f"u.{n}" for n in mechanism.input_names},
        start=Start(motion.q[0], q_std="free", v_std="free"),
    )
    return noisy(Case(mechanism, experiment, free, true_values(free)), rng)


def noisy(case: Case, rng: Any) -> Case:
    """The same with noise on every coordinate; none where there is no rng."""
    if rng is None:
        return case
    log, names = case.experiment.log, case.mechanism.coordinate_names
    shape = (len(log.channels[names[0]].time), len(names))
    noise = dict(zip(names, NOISE * rng.normal(size=shape).T, strict=True))
    channels = {
        n: replace(c, values=c.values + noise[n]) if n in noise else c for n, c in log.channels.items()
    }
    return case._replace(experiment=replace(case.experiment, log=replace(log, channels=channels)))


def true_values(free: Parameters) -> dict[str, float]:
    """What the mechanism itself has where parameters start elsewhere."""
    return {
        p.name: Parameters(free.mechanism).free(p.moves[0].address.name).entries[0].start
        for p in free.entries
    }


def multisine(t: np.ndarray) -> np.ndarray:
    """A force that excites, N."""
    return 4 * np.sin(2.1 * t) + 3 * np.sin(5.3 * t + 1) + 2 * np.sin(11.7 * t + 2)


def cart_case(steps: int, rng: Any, dt: float = 0.01, finer: int = 1) -> Case:
    """A cart-pendulum with five free parameters under a known multisine force."""
    m = mechanisms.cart_pendulum(damping=0.02).damper("slide", damping=0.3)
    free = (
        Parameters(m)
        .free("cart.mass", start=1.5, bounds=(0, None))
        .free("pole.mass", start=0.45, bounds=(0, None))
        .free("pole.com.z", start=-0.35)
        .free("slide.damping", start=0.1, bounds=(0, None))
        .free("hinge.damping", start=0.1, bounds=(0, None))
    )
    push = multisine(dt * (np.arange(steps) + 0.5))[:, None]
    return recorded(m, free, dt, steps, rng, inputs=push, finer=finer)


def furuta_case(steps: int, rng: Any, dt: float = 0.005, swing: float = 2.0) -> Case:
    m = mechanisms.furuta()
    free = (
        Parameters(m)
        .free("arm.inertia.zz", name="J_Azz", start=4e-3, bounds=(0, None))
        .free("pendulum.inertia.xx", name="J_B", start=3e-3, bounds=(0, None))
        .free("turn.damping", name="b1", start=2e-3, bounds=(0, None))
        .free("swing.damping", name="b2", start=3e-4, bounds=(0, None))
    )
    return recorded(m, free, dt, steps, rng, q={"swing": swing})


def four_bar_case(steps: int, rng: Any, dt: float = 0.005) -> Case:
    m = mechanisms.four_bar(damping=0.05)
    free = (
        Parameters(m)
        .free("coupler.mass", start=1.2, bounds=(0, None))
        .free("rocker.com.x", start=0.15)
        .free("c.damping", start=0.1, bounds=(0, None))
    )
    q = assemble(m, mechanisms.FOUR_BAR_GUESS, hold=["a"])
    return recorded(m, free, dt, steps, rng, q=q)


def pendulum_case(steps: int, rng: Any, dt: float = 0.005) -> Case:
    m = mechanisms.pendulum(damping=0.02)
    free = Parameters(m).free("rod.com.z", start=-0.2).free("hinge.damping", start=0.1, bounds=(0, None))
    return recorded(m, free, dt, steps, rng, q={"hinge": 1.5})


def loop6_case(steps: int, rng: Any, dt: float = 0.005) -> Case:
    """Model A, undamped, all angles measured."""
    m = mechanisms.loop6()
    free = (
        Parameters(m)
        .free("theta*.stiffness", name="kappa_theta", start=10.0, bounds=(0.0, None))
        .free("psi*.stiffness", name="kappa_psi", start=25.0, bounds=(0.0, None))
    )
    case = recorded(m, free, dt, steps, rng, inputs=mechanisms.loop6_force(dt * (np.arange(steps) + 0.5)))
    # the flat start is a fold of the loop: it is known
    return case._replace(experiment=replace(case.experiment, start=Start()))


def double_pendulum_case(steps: int, rng: Any, dt: float = 0.005) -> Case:
    m = (
        Mechanism("double-pendulum")
        .body("upper", mass=1.0, com=(0, 0, -0.25), inertia=(0.021, 0.021, 1e-4))
        .revolute("shoulder", "world", "upper", axis="y")
        .body("lower", mass=0.7, com=(0, 0, -0.25), inertia=(0.015, 0.015, 1e-4))
        .revolute("elbow", "upper", "lower", axis="y", origin=(0, 0, -0.5))
    )
    free = Parameters(m).free("lower.mass", start=1.0, bounds=(0, None)).free("lower.com.z", start=-0.2)
    return recorded(m, free, dt, steps, rng, q={"shoulder": 2.0, "elbow": 1.0})


def inverted_case(steps: int, rng: Any, dt: float = 0.01) -> Case:
    """A pole held upright by a controller whose force is logged: without it the pole falls."""
    m = mechanisms.cart_pendulum(damping=0.02)

    def hold(t: Any, q: Any, v: Any) -> Any:
        tilt = q[1] - pi
        push = 1.5 * jnp.sin(2 * t) + jnp.sin(5.1 * t)
        return jnp.array([40 * tilt + 10 * v[1] + 2 * q[0] + 4 * v[0] + push])

    free = (
        Parameters(m)
        .free("cart.mass", start=1.5, bounds=(0, None))
        .free("pole.mass", start=0.5, bounds=(0, None))
        .free("hinge.damping", start=0.1, bounds=(0, None))
    )
    return recorded(m, free, dt, steps, rng, q={"hinge": pi + 0.05}, inputs=hold)


CASES: dict[str, Callable[..., Case]] = {
    "pendulum": pendulum_case,
    "cart-pendulum": cart_case,
    "furuta": furuta_case,
    "four-bar": four_bar_case,
    "loop6": loop6_case,
}
STEPPERS: dict[str, Callable[[float], Stepper]] = {
    "variational": Variational,
    "BDF2": lambda dt: BDF(dt, 2),
    "SPOOK": Spook,
}
STEPS = {"cart-pendulum": (0.01, np.inf), "loop6": (0.002, 0.4)}
"""s, with the longest log, where they are not the usual ones"""
COMPLIANCES = (1e-5, 1e-6, 1e-7, 1e-9, 1e-11)
WEIGHTS = (1e-4, 1e-6, 1e-8)
"""std of state errors of the joint estimations, as parts of the first guess's own"""


# Parts


def _engine(settings: Settings, study: Study, rng: Any) -> None:
    """Soft and hard, every stepper; exact dynamics against simulation error."""
    rows = []
    for name, make in CASES.items():
        dt, longest = STEPS.get(name, (0.005, np.inf))
        case = make(round(min(float(settings["time"]), longest) / dt), rng, dt)
        for stepper, kind in STEPPERS.items():
            rows.append(_engine_row(name, stepper, case, kind(dt), study))
    study.table(
        "Exact dynamics against simulation error (free start), and joint estimation as κ grows",
        ["mechanism", "stepper", "iterations", "run", "apart", "joint, apart in std", "outcome"],
        rows,
        left=2,
    )
    study.say(
        "apart: largest difference of a parameter between full discretisation and simulation error, relative to "
        "its value, or to its standard deviation where that is larger."
    )


def _engine_row(name: str, kind: str, case: Case, stepper: Stepper, study: Study) -> list[str]:
    cell: dict[str, Any] = {"mechanism": name, "stepper": kind}
    study.result.setdefault("engine", []).append(cell)
    study.say(f"{name} by {kind} …")
    given = (case.mechanism, stepper, case.experiment, case.free)
    try:
        hard = full_discretization(*given)
        shot = simulation_error(*given, TIGHT)
        soft = [joint(*given, state_error_weight=_weight(hard, part), marginal=False) for part in WEIGHTS]
    except MechidError as error:
        cell["why"] = str(error)
        return [name, kind, *["–"] * 4, str(error)]
    found = hard.parameters
    apart = {k: abs(p.value - shot.values[k]) / max(abs(p.value), p.std, 1e-12) for k, p in found.items()}
    pulls = [max(abs(f.values[k] - p.value) / p.std for k, p in found.items()) for f in soft]
    cell |= {
        "parameters": {k: {"value": p.value, "std": p.std, "truth": case.truth[k]} for k, p in found.items()},
        "apart": max(apart.values()),
        "joint": pulls,
        "iterations": hard.iterations,
        "seconds": hard.seconds,
    }
    return [
        name,
        kind,
        str(hard.iterations),
        f"{hard.seconds['run']:.2f} s",
        f"{max(apart.values()):.1e}",
        ", ".join(f"{x:.2g}" for x in pulls),
        hard.outcome.split(":")[0],
    ]


def _weight(fit: Fit, part: float) -> float:
    """κ for state errors of a part of the momenta that the fit's motion runs through."""
    states = fit.extra["solution"].place.links[0].motion.states
    size = max(float(np.abs(np.asarray(a)).max()) for a in states[-1:])
    return 1.0 / (part * max(size, 1e-3)) ** 2


def _chaos(settings: Settings, study: Study, rng: Any) -> None:
    """Where shooting fails."""
    cases = {
        "double pendulum, 10 s": (double_pendulum_case(2000, rng), Variational(0.005)),
        "inverted cart-pendulum, 10 s": (inverted_case(1000, rng), Variational(0.01)),
    }
    if float(settings["time"]) >= 1.0:
        cases["undamped loop of six links, 20 s"] = (loop6_case(10000, rng, 0.002), Variational(0.002))
    rows = []
    for name, (case, stepper) in cases.items():
        given = (case.mechanism, stepper, case.experiment, case.free)
        fits: dict[str, Callable[[], Fit]] = {
            "joint": lambda g=given: joint(*g, state_error_weight=1e10),
            "full discretisation": lambda g=given: full_discretization(*g),
            "simulation error": lambda g=given: simulation_error(*g),
        }
        for estimator, make in fits.items():
            rows.append(_chaos_row(name, estimator, case, make, study))
    study.table(
        "Motions on which small changes grow",
        ["motion", "estimator", "found (truth)", "cost", "run"],
        rows,
        left=2,
    )


def _chaos_row(name: str, estimator: str, case: Case, make: Callable[[], Fit], study: Study) -> list[str]:
    cell: dict[str, Any] = {"motion": name, "estimator": estimator}
    study.result.setdefault("chaos", []).append(cell)
    try:
        fit = make()
    except MechidError as error:
        cell["why"] = str(error)
        return [name, estimator, f"fails: {error}", "–", "–"]
    cell |= {
        "parameters": {
            k: {"value": p.value, "std": p.std, "truth": case.truth[k]} for k, p in fit.parameters.items()
        },
        "cost": fit.cost[1],
        "iterations": fit.iterations,
        "converged": fit.converged,
        "seconds": fit.seconds,
    }
    found = ", ".join(
        f"{k} {digits(p.value, p.std)[0]} ± {digits(p.value, p.std)[1]} ({case.truth[k]:g})"
        for k, p in fit.parameters.items()
    )
    return [name, estimator, found, f"{fit.cost[1]:.4g}", f"{fit.iterations} it, {fit.seconds['run']:.2f} s"]


def _stiff(settings: Settings, study: Study, rng: Any) -> None:
    """A Furuta pendulum with joints of SPOOK, from soft to stiff, after a gentle and a wide swing."""
    steps = round(max(float(settings["time"]), 0.5) / 0.005)
    for swing in (0.7, 2.0):
        case = furuta_case(steps, rng, swing=swing)
        given = (case.experiment, case.free)
        fits = {
            soft: joint(
                case.mechanism, Spook(0.005, compliance=soft), *given, state_error_weight=1e8, marginal=False
            )
            for soft in COMPLIANCES
        }
        stiffest, rows = fits[COMPLIANCES[-1]], []
        for soft, fit in fits.items():
            pull = max(abs(fit.values[k] - p.value) / p.std for k, p in stiffest.parameters.items())
            study.result.setdefault("stiff", []).append(
                {
                    "swing": swing,
                    "compliance": soft,
                    "iterations": fit.iterations,
                    "pull": pull,
                    "values": fit.values,
                    "truth": case.truth,
                }
            )
            shown = [
                f"{digits(p.value, p.std)[0]} ± {digits(p.value, p.std)[1]}" for p in fit.parameters.values()
            ]
            rows.append([f"{soft:.0e}", str(fit.iterations), f"{pull:.3f}", *shown])
        study.table(
            f"Joints from soft to stiff, swing from {swing:g} rad (κ = 1e8)",
            ["compliance, m/N", "iterations", "apart in std", *case.truth],
            rows,
        )
    study.say(
        "apart: from the stiffest joints. After the wide swing joints of 1e-5 m/N give way so far under the "
        "pendulum's pull that the data tell it; that difference is one of mechanics, not of numbers."
    )


def _coverage(settings: Settings, study: Study, rng: Any) -> None:
    """How often intervals hold the truth, of motions made at a tenth of the step at which they are fitted."""
    count = int(settings["repetitions"])
    stepper = Variational(0.005, forces="balanced")
    clean = cart_case(300, None, finer=20)

    def fitted(case: Case) -> Fit:
        return full_discretization(case.mechanism, stepper, case.experiment, case.free)

    exact = fitted(clean).parameters
    bias = {k: (p.value - clean.truth[k]) / p.std for k, p in exact.items()}
    inside = dict.fromkeys(exact, 0)
    for _ in range(count):
        for k, p in fitted(noisy(clean, rng)).parameters.items():
            low, high = p.interval
            inside[k] += int(low <= clean.truth[k] <= high)
    study.result["coverage"] = {k: n / count for k, n in inside.items()}
    study.result["bias"] = bias
    rows = [
        [k, f"{100 * n / count:.1f} %", f"{n} of {count}", f"{bias[k]:+.2f} std"] for k, n in inside.items()
    ]
    study.table(
        "95 % intervals that hold the truth: cart-pendulum, 301 samples of each coordinate, 600 steps",
        ["parameter", "share", "logs", "discretisation bias"],
        rows,
    )
    study.say("The bias is that of a log without noise, in standard deviations of those with noise.")
