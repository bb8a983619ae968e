"""`matrix`: the same log through every estimator and every stepper. It is the test that this is one program.

Two mechanisms of bodies, a Furuta pendulum and a four-bar with its closed loop, and three written down in symbols:
a cart-pendulum by its Lagrangian and by bare equations, and a pendulum as a point held on a circle. Their logs are
made by a finer simulation of second order, sampled at 100 Hz with noise of 1 mrad, and fitted with a step of 5 ms.
A stepper of first order loses energy at that step, which shows in the damping that it finds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from mechid.data.log import Channel, Log
from mechid.dynamics.assembly import assemble
from mechid.dynamics.bdf import BDF
from mechid.dynamics.onestep import OneStep
from mechid.dynamics.sensors import joint_position
from mechid.dynamics.simulate import simulate
from mechid.dynamics.spook import Spook
from mechid.dynamics.stepper import Stepper
from mechid.dynamics.variational import Variational
from mechid.errors import MechidError
from mechid.estimate.experiment import Experiment, Measured, Start
from mechid.estimate.fit import Fit
from mechid.estimate.regression import regression
from mechid.estimate.simulation_error import simulation_error
from mechid.estimate.trajectory import full_discretization, joint
from mechid.model.mechanism import Mechanism
from mechid.model.parameters import Parameters
from mechid.model.symbolic.mechanism import SymbolicMechanism
from mechid.report.fit import digits
from mechid.studies import mechanisms
from mechid.studies.identification import chosen
from mechid.studies.study import Settings, Study

SETTINGS: Settings = {"case": "all", "time": 4.0, "dt": 0.005, "noise": 1e-3, "seed": 0}
ABOUT = {
    "case": "one of the mechanisms by its name, or all",
    "time": "length of the logs, s",
    "dt": "step of the fits, s",
    "noise": "std of the measured angles, rad",
    "seed": "of the noise",
}
QUICK: Settings = {"time": 1.0}


class Case(NamedTuple):
    """A mechanism with what is to be found of it."""

    mechanism: Any
    q: Any
    free: Callable[[Mechanism], Parameters]
    measured: tuple[str, ...]
    q_std: Any = 0.0
    """of the first coordinates: what must give way where a length in a loop is free"""


def _furuta() -> Case:
    def free(m: Mechanism) -> Parameters:
        return (
            Parameters(m)
            .free("arm.inertia.zz", name="J_Azz", start=4e-3, bounds=(0, None))
            .free("pendulum.inertia.xx", name="J_B", start=3e-3, bounds=(0, None))
            .free("turn.damping", name="b1", start=2e-3, bounds=(0, None))
            .free("swing.damping", name="b2", start=3e-4, bounds=(0, None))
        )

    return Case(mechanisms.furuta(), {"swing": 2.0}, free, ("turn", "swing"))


def _four_bar() -> Case:
    m = mechanisms.four_bar(damping=0.05)

    def free(m: Mechanism) -> Parameters:
        return (
            Parameters(m)
            .free("coupler.mass", start=1.2, bounds=(0, None))
            .free("rocker.com.x", start=0.15)
            .free("c.damping", start=0.1, bounds=(0, None))
        )

    return Case(m, assemble(m, mechanisms.FOUR_BAR_GUESS, hold=["a"]), free, ("a", "c"))


def _cart(equations: bool) -> Case:
    common: dict[str, Any] = {
        "coordinates": {"s": "m", "phi": "rad"},
        "parameters": {"M": (1.0, "kg"), "l": (0.5, "m"), "c": (0.02, "N·m·s/rad")},
        "constants": {"m": (0.3, "kg"), "g": (9.81, "m/s²")},
    }
    L = "(M + m)/2*s'^2 + m*l*cos(phi)*s'*phi' + m*l^2/2*phi'^2 - m*g*l*cos(phi)"
    rows = [
        "(M + m)*s'' + m*l*cos(phi)*phi'' = m*l*sin(phi)*phi'^2",
        "m*l*cos(phi)*s'' + m*l^2*phi'' = m*g*l*sin(phi) - c*phi'",
    ]
    if equations:
        made = SymbolicMechanism.from_equations("cart-pendulum by equations", rows, **common)
    else:
        made = SymbolicMechanism.from_lagrangian("cart-pendulum", L, dissipation="c/2*phi'^2", **common)

    def free(m: Any) -> Parameters:
        return (
            Parameters(m)
            .free("M", start=1.3, bounds=(0.1, None))
            .free("l", start=0.6, bounds=(0.1, None))
            .free("c", start=0.05, bounds=(0, None))
        )

    return Case(made, {"phi": 1.5}, free, ("s", "phi"))


def _circle() -> Case:
    made = SymbolicMechanism.from_lagrangian(
        "point on a circle",
        "m/2*(x'^2 + y'^2) - m*g*y",
        coordinates={"x": "m", "y": "m"},
        parameters={"r": (0.8, "m"), "d": (0.1, "N·s/m")},
        constants={"m": (1.0, "kg"), "g": (9.81, "m/s²")},
        dissipation="d/2*(x'^2 + y'^2)",
        constraints={"circle": "x^2 + y^2 - r^2"},
    )

    def free(m: Any) -> Parameters:
        return Parameters(m).free("r", start=0.9, bounds=(0.1, None)).free("d", start=0.2, bounds=(0, None))

    return Case(made, {"x": 0.8}, free, ("x", "y"), {"x": "free"})


CASES: dict[str, Callable[[], Case]] = {
    "furuta": _furuta,
    "four-bar": _four_bar,
    "cart-pendulum in symbols": lambda: _cart(equations=False),
    "cart-pendulum by equations": lambda: _cart(equations=True),
    "point on a circle in symbols": _circle,
}

STEPPERS: dict[str, Callable[[float], Stepper]] = {
    "variational": lambda dt: Variational(dt, forces="balanced"),
    "trapezoidal": lambda dt: Variational(dt, rule="trapezoidal"),
    "BDF2": lambda dt: BDF(dt, 2),
    "midpoint": lambda dt: OneStep(dt),
    "SPOOK": lambda dt: Spook(dt),
}

ESTIMATORS: dict[str, Callable[[Mechanism, Stepper, Experiment, Parameters], Fit]] = {
    "simulation error": simulation_error,
    "in 2 segments": lambda m, s, e, f: simulation_error(m, s, e, f, segments=2),
    "full discretisation": full_discretization,
    "joint": joint,
    "regression": lambda m, s, e, f: regression(m, e, f, stepper=s),
}
"""regression finds numbers in which the equations are linear, from angles differentiated with their noise"""


def run(settings: Settings, study: Study) -> None:
    study.result["cells"] = []
    wanted = chosen(settings, "case", ["all", *CASES])
    for name, case in CASES.items():
        if wanted not in ("all", name):
            continue
        at = case()
        experiment, truth = recorded(at, settings, name)
        rows = [
            _row(name, at, e, s, experiment, truth, settings, study) for s in STEPPERS for e in ESTIMATORS
        ]
        study.table(
            f"{name}: parameters ± std; truth {', '.join(f'{k} {x:g}' for k, x in truth.items())}",
            ["stepper", "estimator", *truth, "cost", "iterations", "run"],
            rows,
            left=2,
        )
    study.say(
        "* off by more than three standard deviations: the step is too long for this stepper's order or, in "
        "regressions, noise in accelerations."
    )
    empty = [c for c in study.result["cells"] if "why" in c]
    for cell in empty:
        study.say(f"{cell['mechanism']}, {cell['stepper']}, {cell['estimator']}: {cell['why']}")
    study.say(f"{len(study.result['cells']) - len(empty)} cells filled, {len(empty)} empty.")


def recorded(at: Case, settings: Settings, name: str) -> tuple[Experiment, dict[str, float]]:
    """A log of the mechanism's motion, made five times finer than it is fitted, and the truth."""
    dt = float(settings["dt"]) / 5
    every = round(0.01 / dt)
    steps = every * round(float(settings["time"]) / 0.01)
    fine = OneStep(dt) if at.mechanism.name.endswith("equations") else Variational(dt, forces="balanced")
    motion = simulate(at.mechanism, fine, steps, q=at.q)
    index = [at.mechanism.coordinate_names.index(n) for n in at.measured]
    rng = np.random.default_rng(int(settings["seed"]))
    seen = motion.q[::every, index]
    seen = seen + float(settings["noise"]) * rng.normal(size=seen.shape)
    units = [at.mechanism.coordinate(n).unit for n in at.measured]
    channels = {n: Channel(motion.t[::every], seen[:, i], units[i]) for i, n in enumerate(at.measured)}
    measured = Measured(joint_position(at.mechanism, *at.measured), at.measured, std=float(settings["noise"]))
    experiment = Experiment(Log(name, channels, ()), [measured], start=Start(q=motion.q[0], q_std=at.q_std))
    free = at.free(at.mechanism)
    truth = {}
    for p in free.entries:
        address = p.moves[0].address
        # addresses are read off the mechanism itself
        truth[p.name] = Parameters(at.mechanism).free(address.name).entries[0].start
    return experiment, truth


def _row(
    name: str,
    at: Case,
    estimator: str,
    stepper: str,
    experiment: Experiment,
    truth: dict[str, float],
    settings: Settings,
    study: Study,
) -> list[str]:
    cell: dict[str, Any] = {"mechanism": name, "stepper": stepper, "estimator": estimator}
    study.result["cells"].append(cell)
    try:
        made = STEPPERS[stepper](float(settings["dt"]))
        fit = ESTIMATORS[estimator](at.mechanism, made, experiment, at.free(at.mechanism))
    except MechidError as error:
        cell["why"] = str(error)
        return [stepper, estimator, *["–"] * (len(truth) + 3)]
    pulls = {k: (p.value - truth[k]) / p.std for k, p in fit.parameters.items()}
    cell |= {
        "parameters": {
            k: {"value": p.value, "std": p.std, "truth": truth[k]} for k, p in fit.parameters.items()
        },
        "pulls": pulls,
        "cost": fit.cost[1],
        "iterations": fit.iterations,
        "seconds": fit.seconds,
        "outcome": fit.outcome,
    }
    return [
        stepper,
        estimator,
        *(_shown(p.value, p.std, pulls[k]) for k, p in fit.parameters.items()),
        f"{fit.cost[1]:.4g}",
        str(fit.iterations),
        f"{fit.seconds['run']:.2f} s",
    ]


def _shown(value: float, std: float, pull: float) -> str:
    number, spread = digits(value, std)
    return f"{number} ± {spread}{'*' if abs(pull) > 3 else ''}"
