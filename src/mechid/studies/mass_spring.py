"""`mass-spring`: a mass on a damped spring (Verhaegen, Section 3.1), written down in symbols.

m s'' = m g + u − c s' − k s. Driven by its weight alone it tells c/m and k/m, never m, c and k: the tool says so
and gives these with standard deviations. With a known force u besides, all three are found. The first state is
unknown in both. The note gives no numbers; data are made by an independent integrator (1e-10), with noise.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mechid.data.log import Channel, Log
from mechid.dynamics.bdf import BDF
from mechid.dynamics.sensors import joint_position
from mechid.errors import MechidError
from mechid.estimate.experiment import Experiment, Measured, Start
from mechid.estimate.fit import Fit
from mechid.judge.symbols import structure_of_symbols
from mechid.model.parameters import Parameters
from mechid.model.symbolic.mechanism import SymbolicMechanism
from mechid.report.fit import digits, notes
from mechid.studies.identification import chosen
from mechid.studies.study import Settings, Study
from mechid.studies.symbolic_data import (
    ESTIMATORS,
    beyond,
    checked_order,
    exact_motion,
    multisine,
    noise_of,
    with_gaps,
)

SETTINGS: Settings = {
    "force": "none",
    "truth.m": 1.5,
    "truth.c": 0.9,
    "truth.k": 30.0,
    "order": 4,
    "estimator": "full-discretization",
    "time": 10.0,
    "dt": 0.01,
    "noise": 2e-3,
    "missing": 0.0,
    "seed": 0,
}
ABOUT = {
    "force": "none (the weight alone) or known (a known force besides)",
    "truth.m": "mass that the data are made with, kg",
    "truth.c": "damping, N·s/m",
    "truth.k": "stiffness, N/m",
    "order": "of backward differentiation, 1 to 6",
    "estimator": "full-discretization, joint, simulation-error",
    "time": "length of the log, s",
    "dt": "step and sampling, s",
    "noise": "std of the measured position, m",
    "missing": "part of the samples that is left out, 0 to 0.9",
    "seed": "of the noise",
}
QUICK: Settings = {"time": 5.0}
STARTS = {"m": 1.0, "c": 0.5, "k": 20.0}
UNITS = {"m": "kg", "c": "N·s/m", "k": "N/m"}
G = 9.81


def mass_spring() -> SymbolicMechanism:
    """(9), with the weight and another force."""
    return SymbolicMechanism.from_equations(
        "mass-spring",
        "m*s'' = m*g + u - c*s' - k*s",
        coordinates={"s": "m"},
        parameters={n: (x, UNITS[n]) for n, x in STARTS.items()},
        constants={"g": (G, "m/s²")},
        inputs={"u": "N"},
    )


def run(settings: Settings, study: Study) -> None:
    force = chosen(settings, "force", ("none", "known"))
    checked_order(settings)
    m = mass_spring()
    study.say("The equation of motion in the general form (Table 2 of the note):\n")
    study.say(str(m.general_form()) + "\n")
    study.say("Its discrete constraint (7), by backward Euler:\n")
    study.say(m.discretized(1) + "\n")
    study.result |= {"general_form": m.general_form().text(), "latex": m.general_form().latex()}
    for what in ("none", "known"):
        before = structure_of_symbols(m, inputs=what == "known")
        study.say(f"Before any data, {'with a known force' if what == 'known' else 'by the weight alone'}: ")
        study.say(f"  {before.sentence}")
    study.say("")
    study.result["cases"] = {}
    for case in ("none", "known"):
        fit = _fitted(m, settings, case)
        study.result["cases"][case] = _tell(study, fit, settings, case)
    study.result |= study.result["cases"][force]


def _fitted(m: SymbolicMechanism, settings: Settings, case: str) -> Fit:
    log = made(settings, case == "known")
    free = Parameters(m)
    for name, start in STARTS.items():
        free = free.free(name, start=start, bounds=(0.0, None))
    noise = float(settings["noise"])
    first = float(log["s"].values[np.isfinite(log["s"].values)][0])
    experiment = Experiment(
        log,
        [Measured(joint_position(m, "s"), "s", std=noise)],
        inputs={"u": "u"},
        hold="end",
        start=Start(q=[first], q_std="free", v_std="free"),
    )
    stepper = BDF(float(settings["dt"]), int(settings["order"]))
    return ESTIMATORS[chosen(settings, "estimator", ESTIMATORS)](m, stepper, experiment, free)


def made(settings: Settings, forced: bool) -> Log:
    """Positions of the true mass, let go above where it would hang, and the force on it."""
    rng, noise = noise_of(settings)
    truth = {n: float(settings[f"truth.{n}"]) for n in STARTS}
    for name, x in truth.items():
        if not x > 0.0 or not np.isfinite(x):
            raise MechidError(f"Setting truth.{name} must be > 0, not {x:g}.")

    def force(t: Any) -> Any:
        return forced * multisine(t, 8.0)

    def motion(t: float, x: np.ndarray) -> list[float]:
        push = truth["m"] * G + force(t) - truth["c"] * x[1] - truth["k"] * x[0]
        return [x[1], push / truth["m"]]

    t, x = exact_motion(motion, [0.1, 0.4], settings)
    seen = x[:, 0] + noise * rng.normal(size=len(t))
    channels = {
        "s": Channel(t, with_gaps(seen, settings, rng), "m"),
        "u": Channel(t, np.broadcast_to(force(t), t.shape).copy(), "N"),
    }
    return Log("mass-spring", channels, ())


def _tell(study: Study, fit: Fit, settings: Settings, case: str) -> dict[str, Any]:
    truth = {n: float(settings[f"truth.{n}"]) for n in STARTS}
    judged = fit.identifiability
    lost = tuple(n for n in STARTS if "not identifiable" in fit.flags[n])
    told = {c.expression: (c.value, c.std) for c in judged.combinations}
    alone = {n: (p.value, p.std) for n, p in fit.parameters.items() if n not in lost}
    found = {**told, **alone} if lost else alone
    parameters: dict[str, Any] = {n: {"value": None, "std": None, "truth": truth[n]} for n in lost}
    rows, pulls = [], {}
    for text, (value, std) in found.items():
        true = _value(text, truth)
        parameters[text] = {"value": value, "std": std, "truth": true}
        pulls[text] = (value - true) / std
        rows.append([text, " ± ".join(digits(value, std)), f"{true:.6g}", f"{pulls[text]:+.2f} std"])
    for n in parameters:
        p = fit.parameters.get(n)
        parameters[n] |= {} if p is None else {"start": p.start, "unit": p.unit}
    rows += [[n, "not told by the data", f"{truth[n]:g}", ""] for n in lost]
    title = "With a known force" if case == "known" else "Driven by the weight alone"
    study.table(title, ["", "found", "truth", "off by"], rows)
    sentences = [*notes(fit), *beyond(pulls, settings)]
    for sentence in sentences:
        study.say(f"  {sentence}")
    study.say(f"  {fit.outcome}\n")
    return {
        "force": case,
        "parameters": parameters,
        "identifiable": list(found),
        "not_identifiable": list(lost),
        "starts": {n: {"value": p.value, "std": p.std} for n, p in fit.starts.items()},
        "cost": {"start": fit.cost[0], "end": fit.cost[1]},
        "iterations": fit.iterations,
        "seconds": fit.seconds,
        "outcome": fit.outcome,
        "notes": sentences,
    }


def _value(expression: str, truth: dict[str, float]) -> float:
    """An expression of parameters at the truth."""
    s = mass_spring().symbols
    return float(s.expression(expression, "an expression").subs({s.all[n]: x for n, x in truth.items()}))
