"""The study `pendulum` on measured data: a motor-driven pendulum swung up by three controllers.

Logs of dfki-ric's torque_limited_simple_pendulum: angles in steps of 0.0029 rad, torques from the motor's current.
A log is used until the rod first stands upright: what follows is balancing, into which hands push. J (about the
hinge, with the rotor) and ml (first moment) are free numbers, in minimal coordinates.

What the noise is, without a look at the answer: angles are known to their sensor's step; torques are measured too,
with a noise that their own fastest changes show, the same for all logs of one motor. State errors are this noise,
which does not act on the rod: hence the joint optimum of states and parameters. (Were it to act on the rod the
likeliest parameters, marginal=True, would be the right ones: ml and J are then a few per cent larger.)

Gears lose a part of the torque that they carry. One log cannot tell this loss from other friction and from the size
of J and ml; the logs together can, as their controllers drive and brake differently. So the loss is found from all
logs together, and held where a log is fitted alone. It was put into the model after every log had given an ml about
15 % above the weighed one without it; what it gains is told, so that the data can be seen to ask for it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from mechid.data.filters import low_pass
from mechid.data.log import Channel, Log, read_log
from mechid.dynamics.sensors import joint_position
from mechid.dynamics.variational import Variational
from mechid.errors import MechidError
from mechid.estimate.experiment import Experiment, Measured, Start
from mechid.estimate.fit import Fit
from mechid.estimate.trajectory import joint
from mechid.judge.validation import Validation, cross_validate
from mechid.reference import reference_file
from mechid.report.fit import digits
from mechid.studies.joint_fits import numbers
from mechid.studies.pendulum_models import DRIVEN, DRIVEN_STARTS, FRICTIONS, driven
from mechid.studies.study import Settings, Study

FOLDER = ("data", "dfki_simple_pendulum")
TOGETHER = "together"
UPRIGHT = 3.0
"""rad"""
SLOW = 10.0
"""Hz, of the torques and rates whose signs and sizes gears feel"""
TURNING = 0.1
"""rad/s: over which the sense of a motion is told"""
WEIGHED = DRIVEN.mass * DRIVEN.arm
"""kg·m"""
MAIN = ("parameters", "iterations", "cost", "seconds", "outcome")
"""of the fit to all logs together"""
LEAST_SQUARES = {"J": 0.153, "ml": 0.33, "torque": 0.19}
"""of the ddp log, with accelerations by differences (README of the reference data)"""


def run(settings: Settings, study: Study) -> None:
    logs = [swing_up(path, float(settings["delay"])) for path in recordings()]
    for log in logs:
        t = log.channels["position"].time
        study.say(
            f"{log.name}: {t[-1]:.2f} s to upright, {t.size} samples every {1e3 * np.median(np.diff(t)):.3g} ms "
            f"(gaps differ by {1e3 * np.ptp(np.diff(t)):.2g} ms)."
        )
    noise = torque_noise(logs)
    study.say(
        f"Torques have noise of {noise:.2g} N·m·√s, as their fastest changes show (white, all logs alike)."
    )
    study.result["torque_noise"] = noise
    names = FRICTIONS if settings["friction"] == "all" else (str(settings["friction"]),)
    fits: dict[str, dict[str, Fit]] = {}
    start = DRIVEN_STARTS
    rows: list[list[str]] = []
    for friction in names:
        both = fitted(settings, friction, logs, start, noise)
        start = start | both.values
        alone = {
            log.name: fitted(settings, friction, [log], start, noise, loss=both.values["loss"])
            for log in logs
        }
        fits[friction] = {**alone, TOGETHER: both}
        _tell_fits(study, friction, fits[friction])
        _tell_loss(study, friction, both, fitted(settings, friction, logs, start, noise, loss=0.0))
        rows += _validated(study, friction, fits[friction], logs)
        for name in alone:
            alone[name].plot(study.figure_path(f"{name}-{friction}.png"))
    study.table(
        "Cross-validation: rms of residuals and state errors over the noise",
        ["friction", "fitted to", *(f"explains {log.name}" for log in logs)],
        rows,
        left=2,
    )
    _judge(study, fits)
    study.say(f"Measured and estimated angles are drawn in {study.out}.")


# Logs


def recordings() -> list[Path]:
    """All logs of the folder."""
    paths = sorted(reference_file(*FOLDER).glob("*.csv"))
    if not paths:
        raise MechidError(f"There are no logs (*.csv) in the reference folder '{'/'.join(FOLDER)}'.")
    return paths


def swing_up(path: Path, delay: float) -> Log:
    """A log until the rod stands upright, its torques later by a delay (s); and what gears keep of all torque."""
    log = read_log(path, time="time")
    angle, torque = log.channels["position"], log.channels["torque"]
    end = int(np.argmax(np.abs(angle.values) > UPRIGHT)) or angle.values.size
    t = angle.time[:end]
    slowly = [
        low_pass(w, t, x.values[:end], SLOW, 2)[0] for w, x in (("position", angle), ("torque", torque))
    ]
    rate = np.gradient(slowly[0], t)
    lost = -np.abs(slowly[1]) * np.tanh(rate / TURNING)
    return Log(
        path.stem,
        {
            "position": Channel(t, angle.values[:end], "rad"),
            "torque": Channel(torque.time[:end] + delay, torque.values[:end], "N·m"),
            "lost": Channel(torque.time[:end] + delay, lost, "N·m"),
        },
        (),
    )


def resolution(log: Log) -> float:
    """std of an angle that is known to a step of its sensor, rad."""
    steps = np.abs(np.diff(log.channels["position"].values))
    return float(np.min(steps[steps > 1e-9])) / 12**0.5


def torque_noise(logs: list[Log]) -> float:
    """N·m·√s: std of white torque noise times the root of its sampling, from third differences over all logs."""
    powers = []
    for log in logs:
        torque = log.channels["torque"]
        power = np.mean(np.diff(torque.values, 3) ** 2) / 20.0
        powers.append(power * float(np.median(np.diff(torque.time))))
    return float(np.sqrt(np.mean(powers)))


def experiment(log: Log, mechanism: Any) -> Experiment:
    return Experiment(
        log,
        [Measured(joint_position(mechanism, "hinge"), ("position",), std=resolution(log))],
        inputs={"hinge.torque": "torque", "gears": "lost"},
        hold="mean",
        start=Start({"hinge": log.channels["position"].values[0]}, q_std="free", v_std="free"),
    )


def fitted(
    settings: Settings,
    friction: str,
    logs: list[Log],
    start: dict[str, float],
    noise: float,
    loss: float | None = None,
) -> Fit:
    """A model fitted to logs; loss: of the gears, None where it is free."""
    free = driven(friction, str(settings["law"]), start, loss)
    dt, kappa = float(settings["dt"]), float(settings["state_error_weight"])
    return joint(
        free.mechanism,
        Variational(dt),
        [experiment(log, free.mechanism) for log in logs],
        free,
        state_error_weight=kappa / resolution(logs[0]) ** 2 if kappa else 1.0 / (noise**2 * dt),
        marginal=False,
    )


# What is shown


def _tell_fits(study: Study, friction: str, fits: dict[str, Fit]) -> None:
    told = {"J": f"{LEAST_SQUARES['J']:g}", "ml": f"{WEIGHED:.3f} weighed"}
    told["mu"] = f"{LEAST_SQUARES['torque'] / DRIVEN.weight:.3f}"
    rows = []
    for name, p in fits[TOGETHER].parameters.items():
        shown = [_cell(f, name) for f in fits.values()]
        rows.append([f"{name} ({p.unit})", *shown, told.get(name, "–")])
    ratios = [f"{f.values['J'] / f.values['ml']:.3f}" for f in fits.values()]
    rows.append(["J/ml (m)", *ratios, f"{LEAST_SQUARES['J'] / WEIGHED:.3f}"])
    study.table(f"{friction.capitalize()} friction", ["", *fits, "reference"], rows)
    for name, fit in fits.items():
        if not fit.converged:
            study.say(f"{name}: {fit.outcome}")
    told_alike = {log: numbers(f) | {"rms": [c.rms for c in f.channels]} for log, f in fits.items()}
    study.result.setdefault("logs", {})[friction] = told_alike
    # the richest model comes last
    study.result |= {k: told_alike[TOGETHER][k] for k in MAIN}


def _tell_loss(study: Study, friction: str, fit: Fit, plain: Fit) -> None:
    """What the gears' loss gains."""
    gained = plain.cost[1] - fit.cost[1]
    study.say(
        f"Without losses in the gears the logs together, {friction} friction, give ml {plain.values['ml']:.3f} and "
        f"J {plain.values['J']:.3f}; half the sum of squares is {gained:.0f} higher for one number less."
    )
    study.result.setdefault("without_loss", {})[friction] = {**plain.values, "cost_above": gained}


def _cell(fit: Fit, name: str) -> str:
    if name not in fit.parameters:
        return "held"
    p = fit.parameters[name]
    return " ± ".join(digits(p.value, p.std)) if np.isfinite(p.std) else "not told"


def _validated(study: Study, friction: str, fits: dict[str, Fit], logs: list[Log]) -> list[list[str]]:
    rows = []
    for name, fit in fits.items():
        scores: dict[str, Validation] = {
            log.name: cross_validate(fit, experiment(log, fit.mechanism)) for log in logs
        }
        study.result.setdefault("validation", {}).setdefault(friction, {})[name] = {
            k: {"score": v.score, "rms": v.channels[0].rms} for k, v in scores.items()
        }
        rows.append([friction, name, *(f"{v.score:.3g}" for v in scores.values())])
    return rows


def _judge(study: Study, fits: dict[str, dict[str, Fit]]) -> None:
    """What the richest model says beside what was weighed, and what falls short."""
    friction, found = list(fits.items())[-1]
    off = {n: 100 * (f.values["ml"] / WEIGHED - 1) for n, f in found.items()}
    listed = ", ".join(f"{n} {x:+.1f} %" for n, x in off.items())
    study.say(f"ml beside the weighed {WEIGHED:.3f} kg·m, {friction} friction: {listed}.")
    single = [f for n, f in found.items() if n != TOGETHER]
    J, ml = (np.array([f.values[k] for f in single]) for k in ("J", "ml"))
    for name, x in (("J", J), ("ml", ml), ("J/ml", J / ml)) if len(single) > 1 else ():
        spread = float(np.std(x, ddof=1) / len(x) ** 0.5)
        study.say(
            f"{name} of single logs lies within {100 * np.ptp(x) / np.mean(x):.1f} % of {np.mean(x):.3f}: "
            f"{np.mean(x):.3f} ± {spread:.3f} by their scatter."
        )
        study.result.setdefault("scatter", {})[name] = {"mean": float(np.mean(x)), "std": spread}
    if "mu" in found[TOGETHER].values:
        torque = [DRIVEN.weight * f.values["mu"] for f in found.values()]
        told = ", ".join(f"{x:.2f}" for x in torque)
        study.say(
            f"mu is a friction torque of {told} N·m (least squares on ddp: {LEAST_SQUARES['torque']:g})."
        )
    study.result["ml_off_percent"] = off
    for name, fit in found.items():
        held = [f"{k} ({', '.join(why)})" for k, why in fit.flags.items() if why]
        if held:
            study.say(f"{name} does not tell everything: {'; '.join(held)}.")
    study.say(
        "Standard deviations of single fits take the torques' errors for white noise; where the scatter between "
        "logs is larger it is the honest one. The size of J and ml is that of the logged torques: a wrong torque "
        "constant would scale both, J/ml it would not."
    )
    study.say(
        "Losses in the gears were put into the model after an ml about 15 % too large had been seen without them: "
        "that it agrees is no independent check; what they gain on the logs is."
    )
    study.say(
        "The fit that the source publishes is wrong by a factor 3, and is not compared with: reference values are "
        "what was weighed, and a least-squares fit of the ddp log."
    )
