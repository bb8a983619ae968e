"""`pendulum`: friction of a hinge, from viscous to dry to Stribeck's (Marklund, Sections 4.2, 4.5, Tables 2, 3).

data=synthetic  five releases from almost upright as in the paper, whose recordings are not published: a rod with
                viscous, dry and sticking friction is integrated by 1e-4 s, apart from all steppers, and read by an
                encoder of 4096 steps at 1000 Hz. Every release is fitted by itself with each of three models, by
                joint estimation with SPOOK, and explains the others by cross-validation; the first is fitted by
                the variational integrator too
data=real       a motor-driven pendulum (DFKI): m·l and J from three logs, beside what was weighed

Cost and CV are the paper's: squared residuals and state errors over the number of steps. The paper prints neither κ
nor the step for its pendulum, and the compliance's exponent is illegible: those of its Furuta pendulum are taken.
Releases are made with dry friction that sticks and grows with the hinge's load, but for mu_delta, which here is the
excess torque over the weight (in 4.1 it grows too). The models are fitted with the setting `law`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mechid.data.log import Channel, Log
from mechid.dynamics.sensors import joint_position
from mechid.dynamics.spook import Spook
from mechid.dynamics.stepper import Stepper
from mechid.dynamics.variational import Variational
from mechid.errors import MechidError
from mechid.estimate.experiment import Experiment, Measured, Start
from mechid.estimate.fit import Fit
from mechid.estimate.solvers.levenberg_marquardt import LevenbergMarquardt
from mechid.estimate.trajectory import joint
from mechid.judge.identifiability import AT_BOUND
from mechid.judge.validation import cross_validate
from mechid.report.fit import digits
from mechid.studies import pendulum_driven
from mechid.studies.identification import chosen
from mechid.studies.joint_fits import numbers
from mechid.studies.pendulum_models import ENCODER, FINE, FRICTIONS, LAWS, SAMPLED, STARTS, released, swung
from mechid.studies.shadows import STEPPERS, tell_steppers, words
from mechid.studies.study import Settings, Study
from mechid.studies.unused import alike, refuse_unused

SETTINGS: Settings = {
    "data": "synthetic",
    "friction": "all",
    "law": "default",
    "releases": 5,
    "time": 20.0,
    "dt": 0.01,
    "stepper": "spook",
    "compliance": 1e-5,
    "state_error_weight": 0.0,
    "truth.J": 0.0039,
    "truth.b": 2e-4,
    "truth.mu": 0.0017,
    "truth.mu_delta": 8e-4,
    "truth.zeta": 0.25,
    "noise": 5e-4,
    "seed": 0,
    "delay": 0.0,
}
ABOUT = {
    "data": "synthetic (five releases) or real (the logs of a driven pendulum)",
    "friction": f"all, or one of {', '.join(FRICTIONS)}",
    "law": "of dry friction: smooth (by 0.05 rad/s), level (it sticks), load (the paper's); default: load "
    "for releases, level for the driven pendulum",
    "releases": "how many, 2 to 100 (synthetic)",
    "time": "length of a release, s (synthetic)",
    "dt": "step, s; a whole number of samples of 1 ms (synthetic)",
    "stepper": "of the fit (synthetic): spook, as in the paper, or variational, which is of second order",
    "compliance": "of the hinge, m/N and rad/(N·m) (synthetic)",
    "state_error_weight": "κ where residuals are in rad; 0: the paper's 100 (synthetic), the torques' noise (real)",
    "truth.J": "inertia about the centre of mass that releases are made with, kg·m²",
    "truth.b": "viscous friction, N·m·s/rad",
    "truth.mu": "r·μ of kinematic friction, m",
    "truth.mu_delta": "what static friction is above it, m",
    "truth.zeta": "ζ of (4.1), s²/rad²",
    "noise": "std of angles before the encoder's steps, rad (synthetic)",
    "seed": "of the releases' angles and of the noise",
    "delay": "by which torques act later than logged, s (real)",
}
QUICK: Settings = {"releases": 2, "time": 6.0}
MOST = 100
"""releases"""
KAPPA = 100.0
ITERATIONS = 20
"""at most, as in the paper"""
SAMPLING = FINE * SAMPLED
"""s"""
DAMPING = 0.02
"""s, of the hinge"""

PAPER: dict[str, Any] = {
    "table2": {
        "cost": [2.06e-06, 1.03e-06, 2.04e-06, 9.82e-07, 1.25e-06],
        "cv": [1.47e-06, 1.49e-06, 1.50e-06, 1.47e-06, 1.47e-06],
        "J": ["0.003916(2)", "0.003889(3)", "0.003912(3)", "0.003886(3)", "0.003888(4)"],
        "b": ["0(3e-05)", "0.00025(3)", "0.00026(4)", "0.00014(4)", "0.00020(4)"],
        "mu": ["0.00220(5)", "0.00173(5)", "0.00171(6)", "0.00189(6)", "0.00182(6)"],
    },
    "table3": {
        "viscous": {"cost": 1.92e-06, "cv": 1.92e-06},
        "dry": {"cost": 1.47e-06, "cv": 1.48e-06},
        "stribeck": {"cost": 1.18e-06, "cv": 1.20e-06},
    },
}


def run(settings: Settings, study: Study) -> None:
    chosen(settings, "data", ("synthetic", "real"))
    chosen(settings, "friction", ("all", *FRICTIONS))
    laws = tuple(LAWS) if settings["data"] == "synthetic" else ("smooth", "level")
    chosen(settings, "law", ("default", *laws))
    chosen(settings, "stepper", STEPPERS)
    for key in ("dt", "time", "compliance"):
        if not 0.0 < float(settings[key]) < np.inf:
            raise MechidError(f"Setting {key} must be positive and finite, not {settings[key]:g}.")
    for key in ("state_error_weight", "noise", "delay", *(k for k in settings if k.startswith("truth."))):
        if not 0.0 <= float(settings[key]) < np.inf:
            raise MechidError(f"Setting {key} must be ≥ 0 and finite, not {settings[key]:g}.")
    if int(settings["releases"]) < 2:
        raise MechidError(
            f"Setting releases must be ≥ 2, one to fit and one to explain, not {settings['releases']}."
        )
    if int(settings["releases"]) > MOST:
        raise MechidError(f"Setting releases must be ≤ {MOST}, not {settings['releases']}.")
    if int(settings["seed"]) < 0:
        raise MechidError(f"Setting seed must be ≥ 0, not {settings['seed']}.")
    _refuse_unused(settings)
    study.result["paper"] = PAPER
    if settings["law"] == "default":
        settings = settings | {"law": laws[-1]}
    if settings["data"] == "real":
        pendulum_driven.run(settings, study)
    else:
        _synthetic(settings, study)


def _refuse_unused(settings: Settings) -> None:
    """Refuse settings that the chosen data have no use for, and times between samples."""
    if settings["data"] == "real":
        made = ("releases", "time", "noise", "seed", *(k for k in SETTINGS if k.startswith("truth.")))
        unused = alike(made, "is what releases are made with: leave it out with data=real")
        unused |= alike(("compliance", "stepper"), "is of data=synthetic: leave it out with data=real")
    else:
        unused = {"delay": "is of data=real: leave it out with data=synthetic"}
        if settings["stepper"] == "variational":
            unused["compliance"] = "is one of SPOOK: use stepper=spook, or leave it out"
        samples = float(settings["dt"]) / SAMPLING
        if abs(samples - round(samples)) > 1e-6 * samples or round(samples) < 1:
            raise MechidError(
                f"Setting dt must be a whole number of samples of the releases, of {SAMPLING:g} s each, "
                f"not {settings['dt']:g}."
            )
        if float(settings["time"]) < 2.0 * float(settings["dt"]):
            raise MechidError(f"Setting time must be two steps at least, not {settings['time']:g}.")
    if settings["friction"] == "viscous":
        unused["law"] = "is of dry friction: leave it out with friction=viscous"
    refuse_unused(settings, SETTINGS, QUICK, unused)


@dataclass(frozen=True)
class Scored:
    """A model fitted to one release."""

    fit: Fit
    cost: float
    """rad², squared residuals and state errors over the number of steps"""
    cv: float
    """the same for the other releases, whose states alone are estimated"""


def _synthetic(settings: Settings, study: Study) -> None:
    logs, std = recorded(settings)
    truth = {k.removeprefix("truth."): float(v) for k, v in settings.items() if k.startswith("truth.")}
    steps = logs[0].channels["angle"].time.size - 1
    study.say(
        f"{len(logs)} releases of {settings['time']:g} s, {steps} steps of {settings['dt']:g} s; "
        f"angles are known to {std:.2g} rad. Fitted by {STEPPERS[settings['stepper']]}."
    )
    names = FRICTIONS if settings["friction"] == "all" else (str(settings["friction"]),)
    scored: dict[str, list[Scored]] = {}
    starts = [STARTS] * len(logs)
    for friction in names:
        scored[friction] = [_scored(settings, friction, logs, i, std, starts[i]) for i in range(len(logs))]
        # a richer model begins where the plainer one ended
        starts = [s | x.fit.values for s, x in zip(starts, scored[friction], strict=True)]
        _parameter_table(study, friction, scored[friction], truth)
        for i, x in enumerate(scored[friction]):
            if not x.fit.converged:
                study.say(f"Release {i}, {friction}: {x.fit.outcome}")
    _score_table(study, scored)
    _tell_bias(settings, study, scored, truth)
    if names[-1] == "stribeck":
        _tell_steppers(settings, study, logs[0], std, scored["stribeck"][0].fit, truth)
    study.result |= _combined(study.result["releases"][names[-1]])
    for friction, row in scored.items():
        row[0].fit.plot(study.figure_path(f"{friction}.png"))
    study.say(f"Measured and estimated angles are drawn in {study.out}.")


def recorded(settings: Settings) -> tuple[list[Log], float]:
    """Logs of releases, sampled at the steps of the estimation; and the std of their noise."""
    rng = np.random.default_rng(int(settings["seed"]))
    count, dt = int(settings["releases"]), float(settings["dt"])
    truth = {k.removeprefix("truth."): float(v) for k, v in settings.items() if k.startswith("truth.")}
    first = (np.pi - rng.uniform(0.05, 0.2, count)) * rng.choice([-1.0, 1.0], count)
    angles = swung(first, truth, float(settings["time"]))
    noise = float(settings["noise"])
    seen = ENCODER * np.round((angles + noise * rng.normal(size=angles.shape)) / ENCODER)
    every = round(dt / SAMPLING)
    t = SAMPLING * np.arange(len(angles))[::every]
    logs = [Log(f"release {i}", {"angle": Channel(t, seen[::every, i], "rad")}, ()) for i in range(count)]
    return logs, float(np.hypot(noise, ENCODER / 12**0.5))


def stepper_of(settings: Settings, name: str) -> Stepper:
    """SPOOK with the hinge's compliance, or the variational integrator of second order."""
    dt = float(settings["dt"])
    if name == "spook":
        return Spook(dt, compliance=float(settings["compliance"]), relaxation_time=DAMPING)
    return Variational(dt, forces="balanced")


def experiment(log: Log, mechanism: Any, std: float) -> Experiment:
    """A release whose first angle and rate are unknown but for what the log says."""
    return Experiment(
        log,
        [Measured(joint_position(mechanism, "hinge"), ("angle",), std=std)],
        start=Start({"hinge": log.channels["angle"].values[0]}, q_std="free", v_std="free"),
    )


def fitted(
    settings: Settings, friction: str, log: Log, std: float, start: dict[str, float], stepper: str
) -> Fit:
    """A model fitted to a release."""
    free = released(friction, str(settings["law"]), start)
    kappa = float(settings["state_error_weight"]) or KAPPA
    return joint(
        free.mechanism,
        stepper_of(settings, stepper),
        experiment(log, free.mechanism, std),
        free,
        LevenbergMarquardt(max_iterations=ITERATIONS),
        state_error_weight=kappa / std**2,
        marginal=False,
    )


def _scored(
    settings: Settings, friction: str, logs: list[Log], number: int, std: float, start: dict[str, float]
) -> Scored:
    fit = fitted(settings, friction, logs[number], std, start, str(settings["stepper"]))
    others = [experiment(log, fit.free.mechanism, std) for i, log in enumerate(logs) if i != number]
    steps = logs[0].channels["angle"].time.size - 1
    square = 2.0 * std**2 / steps
    return Scored(fit, square * fit.cost[1], square * cross_validate(fit, others).cost / len(others))


# What is shown


def _parameter_table(study: Study, friction: str, row: list[Scored], truth: dict[str, float]) -> None:
    """Table 2, with the paper's row beneath each of ours where it prints one."""
    paper = PAPER["table2"] if friction == "dry" else {}
    count = len(row)
    rows = []
    for name, scores in (("cost", [x.cost for x in row]), ("cv", [x.cv for x in row])):
        rows.append([name, *(f"{x:.3g}" for x in scores), f"{np.mean(scores):.3g}", "–"])
        if paper:
            told = paper[name]
            rows.append(["  paper", *_filled([f"{x:.3g}" for x in told], count), f"{np.mean(told):.3g}", ""])
    for name, p in row[0].fit.parameters.items():
        rows.append([f"{name} ({p.unit})", *(_with_std(x.fit, name) for x in row), "", f"{truth[name]:g}"])
        if name in paper:
            rows.append(["  paper", *_filled(paper[name], count), "", ""])
    title = f"{friction.capitalize()} friction, release by release" + (" (Table 2)" if paper else "")
    study.table(title, ["", *map(str, range(count)), "combined", "truth"], rows)
    study.result.setdefault("releases", {})[friction] = [
        _numbers(x.fit, truth) | {"cost_rad2": x.cost, "cv_rad2": x.cv} for x in row
    ]


def _numbers(fit: Fit, truth: dict[str, float]) -> dict[str, Any]:
    """A fit for a program; what ends at a bound is not identified."""
    told = numbers(fit, truth)
    for p in told["parameters"].values():
        p["identifiable"] &= AT_BOUND not in p["flags"]
    return told


def _combined(releases: list[dict[str, Any]]) -> dict[str, Any]:
    """A model's numbers from all releases: means weighed by variances, with a std of these or of their scatter."""
    parameters = {}
    for name, first in releases[0]["parameters"].items():
        told = [r["parameters"][name] for r in releases]
        flags = dict.fromkeys(flag for p in told for flag in p["flags"])
        first = first | {"identifiable": all(p["identifiable"] for p in told), "flags": list(flags)}
        pairs = np.array([(p["value"], p["std"]) for p in told if p["std"]]).reshape(-1, 2)
        if not len(pairs):
            parameters[name] = first | {"value": None}
            continue
        values, weights = pairs[:, 0], 1.0 / pairs[:, 1] ** 2
        mean = float(values @ weights / weights.sum())
        scatter = float((values - mean) ** 2 @ weights) / max(len(values) - 1, 1)
        std = float((max(1.0, scatter) / weights.sum()) ** 0.5)
        parameters[name] = first | {"value": mean, "std": std}
    return {
        "parameters": parameters,
        "iterations": max(r["iterations"] for r in releases),
        "cost": {k: sum(r["cost"][k] for r in releases) for k in ("start", "end")},
        "seconds": {k: sum(r["seconds"][k] for r in releases) for k in ("compile", "run")},
        "outcome": next((r["outcome"] for r in releases if not r["converged"]), releases[0]["outcome"]),
    }


def _filled(told: list[str], count: int) -> list[str]:
    return [told[i] if i < len(told) else "–" for i in range(count)]


def _with_std(fit: Fit, name: str) -> str:
    p = fit.parameters[name]
    if AT_BOUND in fit.flags[name]:
        return f"{p.value:g}, at bound"
    if not np.isfinite(p.std):
        return "not told"
    text, spread = digits(p.value, p.std)
    return f"{text} ± {spread}"


def _score_table(study: Study, scored: dict[str, list[Scored]]) -> None:
    """Table 3, and whether each model explains more than the plainer one."""
    combined = {
        f: {"cost": float(np.mean([x.cost for x in row])), "cv": float(np.mean([x.cv for x in row]))}
        for f, row in scored.items()
    }
    study.table(
        "Combined errors, rad² (Table 3)",
        ["", "cost", "CV", "paper: cost", "CV"],
        [
            [
                f,
                f"{x['cost']:.3g}",
                f"{x['cv']:.3g}",
                *(f"{PAPER['table3'][f][k]:.3g}" for k in ("cost", "cv")),
            ]
            for f, x in combined.items()
        ],
    )
    study.result["table3"] = study.result["validation"] = combined
    for plain, rich in zip(combined, list(combined)[1:], strict=False):
        told = PAPER["table3"][rich]["cost"] / PAPER["table3"][plain]["cost"]
        ratios = {k: combined[rich][k] / combined[plain][k] for k in ("cost", "cv")}
        falls = "fall" if max(ratios.values()) < 0.995 else "do not both fall"
        study.say(
            f"From {plain} to {rich}, cost and CV {falls}: by factors {ratios['cost']:.2f} and {ratios['cv']:.2f} "
            f"(cost in the paper: {told:.2f})."
        )


def _tell_bias(
    settings: Settings, study: Study, scored: dict[str, list[Scored]], truth: dict[str, float]
) -> None:
    """How far the model that holds the truth ends from it, release by release."""
    friction = list(scored)[-1]
    if FRICTIONS.index(friction) < FRICTIONS.index(made_with(truth)):
        return
    if friction != "viscous" and settings["law"] != "load":
        return
    fits = {f"release {i}": x.fit for i, x in enumerate(scored[friction])}
    told = words(str(settings["stepper"]), float(settings["dt"]), fits, truth)
    bounds = {
        n: sum(AT_BOUND in f.flags[n] for f in fits.values())
        for n in truth
        if n in scored[friction][0].fit.flags
    }
    at = [f"{n} in {count} of {len(fits)} releases" for n, count in bounds.items() if count]
    if at:
        told += f" At a bound, which is no estimate: {', '.join(at)}."
    if told.strip():
        study.say(f"{friction.capitalize()} friction. {told.strip()}")


def made_with(truth: dict[str, float]) -> str:
    """The plainest model that holds a truth."""
    if truth["mu_delta"]:
        return "stribeck"
    return "dry" if truth["mu"] else "viscous"


def _tell_steppers(
    settings: Settings,
    study: Study,
    log: Log,
    std: float,
    found: Fit,
    truth: dict[str, float],
) -> None:
    """The first release with Stribeck friction by both steppers, from the same start."""
    start = {name: p.start for name, p in found.parameters.items()}
    fits = {
        name: found if name == settings["stepper"] else fitted(settings, "stribeck", log, std, start, name)
        for name in STEPPERS
    }
    title = (
        f"The first release by both steppers at h = {settings['dt']:g} s, Stribeck friction, beside the truth"
    )
    study.result["steppers"] = tell_steppers(study, fits, truth, title=title, names=list(found.parameters))
