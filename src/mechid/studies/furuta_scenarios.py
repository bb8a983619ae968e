"""Release, pulse and swing-up of a Furuta pendulum on a tilted stand with dry friction (Marklund, Section 4.6).

The paper's own recordings are not public: the three are made here by SPOOK at a fine step, with known parameters.
Each is fitted alone at the coarse step, and judged by the other two; the swing-up by both steppers. Costs are the
paper's: squared residuals (rad²) and κ times squared impulses, by the number of steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import pi
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from mechid.data.log import Channel
from mechid.dynamics.simulate import simulate
from mechid.estimate.experiment import Experiment
from mechid.estimate.fit import Fit
from mechid.judge.validation import cross_validate
from mechid.model.mechanism import Mechanism
from mechid.model.parameters import Parameters
from mechid.studies.furuta_model import (
    PENDCON,
    START,
    fitted,
    freed,
    furuta,
    logged,
    names_of,
    positive,
    spook,
    stepper_of,
    true_values,
    weight_of,
)
from mechid.studies.furuta_sweep import (
    COMPLIANCES,
    WEIGHTS,
    chosen_sweeps,
    swept,
    told_stiffness,
    told_sweep,
)
from mechid.studies.furuta_tuned import simulated
from mechid.studies.joint_fits import cell, held, marked, numbers, paper_cost, settled, validated
from mechid.studies.shadows import STEPPERS, tell_steppers, words
from mechid.studies.study import Settings, Study

LONGEST = 10.0
"""s"""
COARSER = 5.0
"""the scenarios are made at so many times the step of the released pendulum"""
HELD_GAIN = 7.0
"""K (N·m/V) where nothing is put in: the paper's"""
SHADOWS = "swing-up"
"""the scenario whose parameters are compared with the true ones on other logs, and swept over"""
SHOWN = ("J_Azz", "J_Byy", "J_Bzz")
HIDDEN = ("J_Axx", "J_Ayy", "tilt_x", "tilt_y", "tilt_z")
"""what one log does not tell"""
SWEPT = {
    "compliance": ("compliance", "m/N", "Swing-up over the compliance (Fig. 4, right)", COMPLIANCES),
    "weight": ("κ", "", "Swing-up over the state error weight (Fig. 4, left)", WEIGHTS),
}

TABLE_4: dict[str, dict[str, str]] = {
    "release": {
        "J_Axx": "0(200.0)",
        "J_Ayy": "0(50.0)",
        "J_Azz": "0.00449(2)",
        "J_Byy": "0.003964(1)",
        "J_Bzz": "0.00242(6)",
        "b1": "0.0009(2)",
        "b2": "0.00010(2)",
        "mu1": "0.00058(1)",
        "mu2": "0.00022(3)",
        "cost": "3.22e-05",
        "cv": "2.46e-05",
    },
    "pulse": {
        "J_Axx": "0(2000.0)",
        "J_Ayy": "0(3000.0)",
        "J_Azz": "0.0042(2)",
        "J_Byy": "0.00384(2)",
        "J_Bzz": "0.00411(2)",
        "b1": "0.00140(6)",
        "b2": "0(0.0001)",
        "mu1": "0(2e-05)",
        "mu2": "0.00009(2)",
        "K": "7.29(5)",
        "cost": "2.28e-06",
        "cv": "2.36e-04",
    },
    "swing-up": {
        "J_Axx": "0(200.0)",
        "J_Ayy": "0(80.0)",
        "J_Azz": "0.00438(4)",
        "J_Byy": "0.003962(2)",
        "J_Bzz": "0.00374(9)",
        "b1": "0(0.0006)",
        "b2": "0.00006(5)",
        "mu1": "0.00072(6)",
        "mu2": "0.00019(8)",
        "K": "7.28(2)",
        "cost": "3.01e-05",
        "cv": "2.34e-05",
    },
}
"""The paper's, of its real pendulum"""


class Scenario(NamedTuple):
    angle: float
    """first θ2, rad"""
    torque: Any
    """of the motor, N·m, by (t, q, v); None where it is off"""


def pulse(t: Any, q: Any, v: Any) -> Any:
    """A push of one second."""
    return jnp.where((t > 0.5) & (t < 1.5), 0.1, 0.0)


def swing_up(t: Any, q: Any, v: Any) -> Any:
    """Energy is pumped in until it suffices for upright; a push in the beginning, a pull back to the middle."""
    weight = PENDCON.mass_pendulum * PENDCON.gravity * PENDCON.com_pendulum
    inertia = 4e-3 + PENDCON.mass_pendulum * PENDCON.com_pendulum**2
    energy = 0.5 * inertia * v[1] ** 2 + weight * (1 - jnp.cos(q[1]))
    pump = -1.0 * jnp.clip((2 * weight - energy) / weight, -1, 1) * jnp.tanh(2 * jnp.cos(q[1]) * v[1])
    return jnp.clip(pump + jnp.where(t < 0.15, 0.15, 0.0) - q[0] - 0.05 * v[0], -1.0, 1.0)


SCENARIOS = {
    "release": Scenario(pi - 0.03, None),
    "pulse": Scenario(0.0, pulse),
    "swing-up": Scenario(0.0, swing_up),
}


def run(settings: Settings, study: Study) -> None:
    friction = str(settings["friction"])
    truth = true_values(settings)
    time = min(positive(settings, "time"), LONGEST)
    study.say(
        f"Three scenarios of {time:g} s with {friction} friction on a stand tilted by {truth['tilt_x']:g} and "
        f"{truth['tilt_y']:g} rad, in the place of the paper's recordings; fitted at {settings['dt']:g} s by "
        f"{STEPPERS[settings['stepper']]} with κ = {weight_of(settings):g}."
    )
    real = furuta(truth, friction)
    logs = {name: scenario_log(settings, real, name, time, truth["K"]) for name in SCENARIOS}
    free = {name: _free(study, logs[name], truth, friction) for name in SCENARIOS}
    fits = {}
    for name, (mechanism, parameters) in free.items():
        fit = fits[name] = fitted(settings, mechanism, logs[name], parameters)
        study.say(
            f"{name}: {fit.outcome} They had settled after {settled(fit)}. {fit.seconds['run']:.1f} s after "
            f"{fit.seconds['compile']:.1f} s to compile."
        )
    scores, cross = {}, {}
    for name, fit in fits.items():
        others = [logs[k] for k in SCENARIOS if k != name]
        found = cross_validate(fit, others)
        cross[name] = validated(found)
        scores[name] = _per_step(settings, found.cost, others)
    _table(settings, study, fits, scores, truth)
    for name, fit in fits.items():
        for sentence in filter(None, (*fit.identifiability.sentences, marked(fit))):
            study.say(f"  {name}: {sentence}")
    study.say(words(settings["stepper"], positive(settings, "dt"), fits, truth))
    steppers = _steppers(settings, study, free[SHADOWS], logs[SHADOWS], fits[SHADOWS], truth)
    told = {
        name: numbers(fit, truth)
        | {
            "paper": TABLE_4[name],
            "paper_cost": paper_cost(fit, weight_of(settings)),
            "validation": cross[name] | {"paper_cost": scores[name]},
        }
        for name, fit in fits.items()
    }
    for each in told.values():
        known = (each["if_known"] or {"told": {}})["told"]
        for name, p in each["parameters"].items():
            p["std_if_known"] = known[name]["std"] if name in known else None
    shadow = _shadow(settings, study, free[SHADOWS], logs, real)
    shown = simulated(settings, study, free, logs, fits)
    for name, fit in fits.items():
        fit.plot(study.figure_path(f"{name}.png"))
    study.say(f"Measured, estimated and simulated angles are drawn in {study.out}.")
    study.result["scenarios"] = {
        "fits": told,
        "steppers": steppers,
        "shadow": shadow,
        "simulation": shown,
        **told[SHADOWS],
    }
    for sweep in chosen_sweeps(settings):
        if sweep in SWEPT:
            found = _swept(settings, study, sweep, *free[SHADOWS], logs[SHADOWS], truth)
            study.result["scenarios"][f"sweep_{sweep}"] = found


def scenario_log(settings: Settings, mechanism: Mechanism, name: str, time: float, gain: float) -> Experiment:
    """A scenario as it would be recorded: angles with noise at every step of the fit, and the input."""
    given = SCENARIOS[name]
    dt = positive(settings, "dt")
    every = max(1, round(dt / (COARSER * positive(settings, "truth_dt"))))
    stepper = spook(settings, dt / every, positive(settings, "truth_compliance"))
    law = given.torque

    def volts(t: Any, q: Any, v: Any) -> Any:
        return jnp.array([law(t, q, v) / gain])

    motion = simulate(
        mechanism,
        stepper,
        every * max(2, round(time / dt)),
        q={"swing": given.angle},
        inputs=None if law is None else volts,
    )
    rng = np.random.default_rng([int(settings["seed"]), list(SCENARIOS).index(name)])
    noise = positive(settings, "noise")
    q = motion.q[::every]
    angles = q + noise * rng.normal(size=q.shape)
    drive = Channel(motion.t[:-1], np.asarray(motion.inputs)[:, 0], "V")
    return logged(name, mechanism, motion.t[::every], angles, noise, drive)


def _free(
    study: Study, log: Experiment, truth: Mapping[str, float], friction: str
) -> tuple[Mechanism, Parameters]:
    """All parameters from Table 1's starts; K only where something is put in."""
    excited = bool(np.ptp(log.log["u"].values) > 0.0)
    tilts = ("tilt_x", "tilt_y", "tilt_z")
    names = (
        "J_Axx",
        "J_Ayy",
        "J_Azz",
        "J_Byy",
        "J_Bzz",
        *names_of(friction),
        *(("K",) if excited else ()),
        *tilts,
    )
    if not excited:
        study.say(f"{log.name}: nothing is put in, so K is held at {HELD_GAIN:g} N·m/V, as in the paper.")
    mechanism = furuta({**truth, **START, "K": START["K"] if excited else HELD_GAIN}, friction)
    return mechanism, freed(mechanism, names)


def _steppers(
    settings: Settings,
    study: Study,
    free: tuple[Mechanism, Parameters],
    log: Experiment,
    found: Fit,
    truth: Mapping[str, float],
) -> dict[str, Any]:
    """The swing-up by both steppers at the same step."""
    fits = {}
    for name in STEPPERS:
        own = name == settings["stepper"]
        stepper = stepper_of(settings | {"stepper": name})
        fits[name] = found if own else fitted(settings, free[0], log, free[1], stepper=stepper)
    names = [n for n in found.parameters if n not in HIDDEN]
    title = f"The {SHADOWS} by both steppers at h = {settings['dt']:g} s, beside the truth"
    return tell_steppers(study, fits, truth, title=title, names=names)


def _swept(
    settings: Settings,
    study: Study,
    sweep: str,
    mechanism: Mechanism,
    free: Parameters,
    log: Experiment,
    truth: Mapping[str, float],
) -> Any:
    """Fig. 4: three inertias and errors of the swing-up over a method parameter."""
    key, unit, title, values = SWEPT[sweep]

    def fit(value: float) -> Fit:
        if sweep == "weight":
            return fitted(settings, mechanism, log, free, weight=value)
        return fitted(settings, mechanism, log, free, stepper=spook(settings, compliance=value))

    fits = swept(fit, values)
    cells = told_sweep(
        study, key, title, unit, fits, truth, names=SHOWN, figure=f"{SHADOWS}-sweep-{sweep}.png"
    )
    if sweep == "compliance":
        told_stiffness(study, cells)
    return cells


def _per_step(settings: Settings, cost: float, logs: list[Experiment]) -> float:
    """Half a sum of squares in standard deviations as the paper's mean over the steps, rad²."""
    steps = sum(len(e.log["theta1"].time) - 1 for e in logs)
    return 2.0 * cost * positive(settings, "noise") ** 2 / steps


def _table(
    settings: Settings,
    study: Study,
    fits: Mapping[str, Fit],
    scores: Mapping[str, float],
    truth: Mapping[str, float],
) -> None:
    """Table 4: ours beside the paper's."""
    names = list(dict.fromkeys(n for f in fits.values() for n in f.parameters))
    costs = {k: paper_cost(f, weight_of(settings)) for k, f in fits.items()}

    def row(name: str, true: str, ours: Mapping[str, str]) -> list[str]:
        both = [x for k in fits for x in (ours[k], TABLE_4[k].get(name.lower(), TABLE_4[k].get(name, "–")))]
        return [name, true, *both]

    rows = [row(w, "–", {k: f"{x:.2e}" for k, x in v.items()}) for w, v in (("cost", costs), ("CV", scores))]
    for name in names:
        ours = {k: cell(f, f.parameters[name]) if name in f.parameters else "held" for k, f in fits.items()}
        rows.append(row(name, f"{truth[name]:g}", ours))
    columns = ["", "truth", *[x for k in fits for x in (k, "paper")]]
    study.table("Table 4: made scenarios beside the paper's real ones", columns, rows)
    mean = [float(np.mean(list(x.values()))) for x in (costs, scores)]
    study.say(f"Combined: cost {mean[0]:.3g} (paper 2.15e-05), CV {mean[1]:.3g} (paper 9.47e-05).")
    study.say(
        "The paper's pendulum is a real one with model errors of its own, ours is made: costs need not agree. "
        "The paper prints no tilts."
    )


def _shadow(
    settings: Settings,
    study: Study,
    free: tuple[Mechanism, Parameters],
    logs: Mapping[str, Experiment],
    real: Mechanism,
) -> dict[str, Any]:
    """Whether parameters found at a step from two logs explain the third better at that step than the true ones."""
    rows, costs = [], {}
    for name, log in logs.items():
        fit = fitted(settings, free[0], [x for k, x in logs.items() if k != name], free[1])
        found, true = (
            _per_step(settings, cross_validate(f, log).cost, [log]) for f in (fit, held(fit, real))
        )
        costs[name] = {"found": found, "true": true, "ratio": true / found}
        rows.append([name, f"{found:.3g}", f"{true:.3g}", f"{true / found:.3g}"])
    study.table(
        f"Shadow parameters (Section 4.9): costs of each log at h = {settings['dt']:g} s",
        ["log", "found from the other two", "true", "true by found"],
        rows,
    )
    found, true = (float(np.mean([c[k] for c in costs.values()])) for k in ("found", "true"))
    study.say(
        f"Parameters found at this step explain logs that they were not fitted to {_compared(true / found)} the "
        f"true ones: mean squares of {found:.3g} and {true:.3g}."
    )
    return {"found": found, "true": true, "ratio": true / found, "logs": costs}


def _compared(ratio: float) -> str:
    if abs(ratio - 1.0) < 0.01:
        return "as well as"
    return f"{ratio:.3g} times better than" if ratio > 1.0 else f"{1.0 / ratio:.3g} times worse than"
