"""`cart-pendulum`: an inverted pendulum on a cart (Verhaegen, Section 3.2), written down in symbols.

M, m, l and the four first conditions from positions with noise of 2 mm and 2 mrad under a known multisine force
(friction=viscous: a damping on each axis besides). Then every order of backward differentiation beside the implicit
midpoint and trapezoidal rules and the variational integrator, a swing-up through the upright, and the same log with
30 % of its samples missing. Simulation errors are made small in segments of a second first, then as one motion. The
note gives no numbers; data are made by an independent integrator (1e-10).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from mechid.data.log import Channel, Log
from mechid.dynamics.bdf import BDF
from mechid.dynamics.onestep import OneStep
from mechid.dynamics.sensors import joint_position
from mechid.dynamics.stepper import Stepper
from mechid.dynamics.variational import Variational
from mechid.errors import MechidError
from mechid.estimate.experiment import Experiment, Measured, Start
from mechid.estimate.fit import Fit
from mechid.estimate.simulation_error import simulation_error
from mechid.model.parameters import Parameters
from mechid.model.symbolic.mechanism import SymbolicMechanism
from mechid.report.fit import digits, notes
from mechid.report.fit_plot import plot_fit
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
    "friction": "none",
    "truth.M": 1.0,
    "truth.m": 0.3,
    "truth.l": 0.5,
    "truth.b": 0.5,
    "truth.c": 0.02,
    "order": 4,
    "estimator": "full-discretization",
    "force": "known",
    "time": 10.0,
    "dt": 0.01,
    "noise": 2e-3,
    "missing": 0.0,
    "compare": True,
    "seed": 0,
}
ABOUT = {
    "friction": "none, or viscous: a damping on the cart (b) and on the pendulum (c), both to be found",
    "truth.M": "mass of the cart that the data are made with, kg",
    "truth.m": "mass of the pendulum, kg",
    "truth.l": "its length, m",
    "truth.b": "damping of the cart (friction=viscous), N·s/m",
    "truth.c": "damping of the pendulum (friction=viscous), N·m·s/rad",
    "order": "of backward differentiation, 1 to 6",
    "estimator": "full-discretization, joint, simulation-error",
    "force": "known (a multisine), or none: the pendulum is let go and only m/M and l can be told",
    "time": "length of the logs, s",
    "dt": "step and sampling, s",
    "noise": "std of the measured positions, m and rad",
    "missing": "part of the samples that is left out, 0 to 0.9",
    "compare": "also every order and rule, the swing-up, and 30 % missing",
    "seed": "of the noise",
}
QUICK: Settings = {"time": 5.0, "compare": False}
STARTS = {"M": 1.5, "m": 0.5, "l": 0.4, "b": 0.2, "c": 0.05}
UNITS = {"M": "kg", "m": "kg", "l": "m", "b": "N·s/m", "c": "N·m·s/rad"}
G = 9.81
HANGING = np.pi
PUSH, PUMP = 6.0, 10.0
"""N: amplitudes of the multisine and of the swing-up's force"""


def cart_pendulum(friction: bool) -> SymbolicMechanism:
    """(12) from its Lagrangian; phi = 0 stands upright."""
    names = ["M", "m", "l", *(["b", "c"] if friction else [])]
    return SymbolicMechanism.from_lagrangian(
        "cart-pendulum",
        "(M + m)/2*s'^2 + m*l*cos(phi)*s'*phi' + m*l^2/2*phi'^2 - m*g*l*cos(phi)",
        coordinates={"s": "m", "phi": "rad"},
        parameters={n: (STARTS[n], UNITS[n]) for n in names},
        constants={"g": (G, "m/s²")},
        inputs={"u": "N"},
        forces={"s": "u"},
        dissipation="b/2*s'^2 + c/2*phi'^2" if friction else 0,
    )


STEPPERS: dict[str, tuple[Callable[[float], Stepper], str]] = {
    **{f"BDF{k}": (lambda dt, k=k: BDF(dt, k), "end") for k in range(1, 7)},
    "midpoint": (lambda dt: OneStep(dt), "midpoint"),
    "trapezoidal": (lambda dt: OneStep(dt, "trapezoidal"), "midpoint"),
    "variational": (lambda dt: Variational(dt, forces="balanced"), "midpoint"),
}
"""steppers, and where in a step each takes a force that is sampled"""


def run(settings: Settings, study: Study) -> None:
    friction = chosen(settings, "friction", ("none", "viscous")) == "viscous"
    chosen(settings, "force", ("known", "none"))
    chosen(settings, "estimator", ESTIMATORS)
    order = checked_order(settings)
    m = cart_pendulum(friction)
    form = m.general_form()
    study.say("The equations of motion in the general form (Table 3 of the note):\n")
    study.say(str(form) + "\n")
    study.result |= {"general_form": form.text(), "latex": form.latex(), "discretized": m.discretized(order)}
    fit = fitted(m, settings, made(settings, "multisine"), f"BDF{order}")
    study.result |= _tell(study, fit, settings, f"By BDF of order {order}, {settings['estimator']}")
    plot_fit(fit, study.figure_path("cart-pendulum.png"))
    study.say(f"The log beside what was found is drawn in {study.out}.\n")
    if settings["compare"]:
        _compare(m, settings, study)


def _compare(m: SymbolicMechanism, settings: Settings, study: Study) -> None:
    names = [p.name for p in m.parameters if not p.constant]
    log, rows = made(settings, "multisine"), []
    study.result["orders"] = {}
    for name in STEPPERS:
        fit = fitted(m, settings, log, name)
        study.result["orders"][name] = _as_data(fit, settings)
        pulls = [_pull(fit, n, settings) for n in names]
        values = [_shown(fit, n) for n in names]
        ends = [f"{fit.cost[1]:.5g}", str(fit.iterations), f"{fit.seconds['run']:.2f} s"]
        rows.append([name, *values, f"{max(pulls, key=abs):+.1f} std", *ends])
    samples = int(sum(np.isfinite(c.residual).sum() for c in fit.channels))
    study.table(
        "Every order and rule on the same log",
        ["", *names, "furthest off", "cost", "iterations", "run"],
        rows,
    )
    study.say(f"  Noise alone would cost about {samples / 2:.0f}.\n")
    order = f"BDF{int(settings['order'])}"
    swing = made(settings, "swing-up")
    angle = swing["phi"].values
    over = float(np.nanmin(np.abs(np.arctan2(np.sin(angle), np.cos(angle)))))
    fit = fitted(m, settings, swing, order)
    study.result["swing_up"] = _tell(study, fit, settings, "Swing-up") | {"nearest_upright": over}
    nearest = "through the upright" if over < 0.1 else f"no nearer to the upright than {over:.2f} rad"
    study.say(f"  The pendulum swings {nearest}.\n")
    fit = fitted(m, settings, made(settings | {"missing": 0.3}, "multisine"), order)
    study.result["missing"] = _tell(study, fit, settings, "30 % of the samples missing")


def fitted(m: SymbolicMechanism, settings: Settings, log: Log, stepper: str) -> Fit:
    """M, m, l (and dampings) and the first state of a log."""
    make, hold = STEPPERS[stepper]
    noise, how = float(settings["noise"]), settings["estimator"]
    first = {n: float(log[n].values[np.isfinite(log[n].values)][0]) for n in ("s", "phi")}
    starts = {p.name: p.value for p in m.parameters if not p.constant}

    def searched(estimator: Any, starts: dict[str, float], q: dict[str, float], v: dict[str, float]) -> Fit:
        free = Parameters(m)
        for name, start in starts.items():
            free = free.free(name, start=start, bounds=(0.0, None))
        experiment = Experiment(
            log,
            [Measured(joint_position(m, n), n, std=noise) for n in ("s", "phi")],
            inputs={"u": "u"},
            hold=hold,
            start=Start(q=q, v=v, q_std="free", v_std="free"),
        )
        return estimator(m, make(float(settings["dt"])), experiment, free)

    if how != "simulation-error":
        return searched(ESTIMATORS[how], starts, first, {})
    # simulated as one motion from far away, the pendulum is soon elsewhere, and other minima lie in between
    segments = max(2, round(float(settings["time"])))
    near = searched(partial(simulation_error, segments=segments), starts, first, {})
    found = {n: max(near.parameters[n].value, 0.01 * start) for n, start in starts.items()}
    q, v = ({n: near.starts[f"{log.name}: {x}({n})"].value for n in first} for x in "qv")
    fit = searched(simulation_error, found, q, v)
    seconds = {key: x + near.seconds[key] for key, x in fit.seconds.items()}
    return replace(fit, cost=(near.cost[0], fit.cost[1]), seconds=seconds)


def made(settings: Settings, what: str) -> Log:
    """Positions of the true cart and pendulum, and the force: a multisine, or one that swings the pendulum up."""
    rng, noise = noise_of(settings)
    names = ("M", "m", "l", *(("b", "c") if settings["friction"] == "viscous" else ()))
    truth = {n: float(settings[f"truth.{n}"]) for n in names}
    for name, x in truth.items():
        if not x > 0.0 or not np.isfinite(x):
            raise MechidError(f"Setting truth.{name} must be > 0, not {x:g}.")
    M, m, l = (truth[n] for n in "Mml")
    b, c = truth.get("b", 0.0), truth.get("c", 0.0)
    # what a pendulum on a free cart swings with
    own = np.sqrt(G / l * (M + m) / M)

    def force(t: Any) -> Any:
        if settings["force"] == "none":
            return 0.0 * t
        if what == "multisine":
            return multisine(t, PUSH)
        return PUMP * (M + m) / 1.3 * np.sin(0.9 * own * t) * np.exp(-((t / 5.0) ** 4))

    def motion(t: float, x: np.ndarray) -> list[float]:
        _, phi, ds, dphi = x
        sin, cos = np.sin(phi), np.cos(phi)
        first = force(t) - b * ds + m * l * sin * dphi**2
        second = m * G * l * sin - c * dphi
        det = (M + m) * m * l**2 - (m * l * cos) ** 2
        return [
            ds,
            dphi,
            (m * l**2 * first - m * l * cos * second) / det,
            ((M + m) * second - m * l * cos * first) / det,
        ]

    angle = HANGING - 1.5 if settings["force"] == "none" else HANGING
    t, x = exact_motion(motion, [0.0, angle, 0.1, 0.2], settings)
    seen = x[:, :2] + noise * rng.normal(size=(len(t), 2))
    channels = {
        "s": Channel(t, with_gaps(seen[:, 0], settings, rng), "m"),
        "phi": Channel(t, with_gaps(seen[:, 1], settings, rng), "rad"),
        "u": Channel(t, np.asarray(force(t)), "N"),
    }
    return Log(f"cart-pendulum, {what}", channels, ())


def _truth(name: str, settings: Settings) -> float:
    """A parameter's, or that of an expression of parameters."""
    s = cart_pendulum(settings["friction"] == "viscous").symbols
    values = {s.all[n]: float(settings[f"truth.{n}"]) for n in STARTS if n in s.parameters}
    return float(s.expression(name, "an expression").subs(values))


def _pull(fit: Fit, name: str, settings: Settings) -> float:
    p = fit.parameters[name]
    return float((p.value - _truth(name, settings)) / p.std) if np.isfinite(p.std) else 0.0


def _shown(fit: Fit, name: str) -> str:
    p = fit.parameters[name]
    for flag, words in (("not identifiable", "not told"), ("at bound", "at its bound")):
        if flag in fit.flags[name]:
            return words
    return digits(p.value, p.std)[0]


def _as_data(fit: Fit, settings: Settings) -> dict[str, Any]:
    lost = [n for n in fit.parameters if "not identifiable" in fit.flags[n]]
    told: dict[str, Any] = {}
    for n, p in fit.parameters.items():
        known = {"value": None, "std": None} if n in lost else {"value": p.value, "std": p.std}
        told[n] = known | {"truth": _truth(n, settings), "start": STARTS[n], "unit": p.unit}
    for x in fit.identifiability.combinations if lost else ():
        if x.expression not in told:
            true = _truth(x.expression, settings)
            told[x.expression] = {"value": x.value, "std": x.std, "truth": true}
    return {
        "parameters": told,
        "identifiable": [n for n, p in told.items() if p["value"] is not None],
        "not_identifiable": lost,
        "starts": {n: {"value": p.value, "std": p.std} for n, p in fit.starts.items()},
        "cost": {"start": fit.cost[0], "end": fit.cost[1]},
        "iterations": fit.iterations,
        "seconds": fit.seconds,
        "outcome": fit.outcome,
        "notes": notes(fit),
    }


def _tell(study: Study, fit: Fit, settings: Settings, title: str) -> dict[str, Any]:
    data = _as_data(fit, settings)
    rows, pulls = [], {}
    for name, p in data["parameters"].items():
        if p["value"] is None:
            rows.append([name, "not told by the data", f"{p['truth']:g}", ""])
            continue
        pulls[name] = (p["value"] - p["truth"]) / p["std"]
        shown = " ± ".join(digits(p["value"], p["std"]))
        rows.append([name, shown, f"{p['truth']:.6g}", f"{pulls[name]:+.2f} std"])
    data["notes"] += beyond(pulls, settings)
    study.table(title, ["", "found", "truth", "off by"], rows)
    for sentence in data["notes"]:
        study.say(f"  {sentence}")
    study.say(f"  {fit.outcome}\n")
    return data
