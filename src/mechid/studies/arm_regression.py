"""`arm-regression`: a real Stäubli TX40, its base parameters and friction by regression, beside the published ones.

Nine seconds of an exciting motion, at 5 kHz of motor angles and torques. The angles are filtered without
phase and differentiated, both sides of the equations averaged over windows, and one weighted least squares gives
60-odd combinations of inertial numbers, rotors, viscous and dry friction and offsets. Two thirds of the log are
then fitted by themselves and tried on the last third. Ordinary, weighted and robust losses stand side by side, and
inertias that bodies can have beside those that are only linear. Needs the reference data.
"""

from __future__ import annotations

import time as clock
from pathlib import Path
from typing import Any

import numpy as np

from mechid.data.log import Log
from mechid.errors import MechidError
from mechid.estimate.fit import Compared, Fit
from mechid.estimate.measured_motion import Signals
from mechid.estimate.regression import explained, regression
from mechid.model.mechanism import Mechanism
from mechid.report.fit import digits, notes
from mechid.studies import tx40
from mechid.studies.identification import chosen
from mechid.studies.study import Settings, Study

SETTINGS: Settings = {
    "loss": "squared",
    "weights": "estimated",
    "cutoff": 0.0,
    "window": 0.0,
    "end": 7.5,
    "held_back": 0.33,
    "rate": 5000.0,
    "variants": True,
    "seed": 0,
}
ABOUT = {
    "loss": "squared, huber or tukey, of the fit that is told in full",
    "weights": "estimated (by each axis' residuals) or equal",
    "cutoff": "Hz, of the low-pass of the angles; 0: chosen from the log",
    "window": "s, over which rows are averaged; 0: 0.4 / cutoff",
    "end": "s, of the log: the arm stands still afterwards, where dry friction has any value",
    "held_back": "part of the log, its end, on which a fit of the rest is tried",
    "rate": "Hz, to which the log is averaged before anything else; 5000: as it is",
    "variants": "ordinary, weighted, robust and physically consistent fits side by side",
    "seed": "of nothing: the log is a real one and nothing else is random; every seed gives the same",
}
QUICK: Settings = {"rate": 1000.0, "variants": False}
VARIANTS = {
    "ordinary": {"weights": "equal"},
    "weighted": {},
    "Huber": {"loss": "huber"},
    "Tukey": {"loss": "tukey"},
}
FILTERS = (10.0, 20.0, 40.0, 80.0)
"""Hz"""


def run(settings: Settings, study: Study) -> None:
    how, signals = _choices(settings)
    log, arm = _log(settings), tx40.tx40()
    whole = tx40.experiment(arm, log, (None, None), "tx40")
    begun = clock.perf_counter()
    fit = regression(arm, whole, tx40.freed(arm), signals=signals, **how)
    seconds = clock.perf_counter() - begun
    study.say(f"TX40, {log['q1'].time.size} samples of 6 axes. {fit.outcome} ({seconds:.2f} s)")
    for note in notes(fit):
        study.say(f"  {note}")
    study.say("")
    study.result["parameters"] = _published(study, fit, "TX40_ep_5.csv", "Essential parameters")
    study.result["base_parameters"] = _published(
        study, fit, "TX40_bp_5.csv", "All base parameters", show=False
    )
    study.result["viscous"] = _viscous(study, study.result["parameters"])
    study.result["friction_of_motor_6"] = "counted with the joints' own, as the source does"
    study.result["rank"], study.result["condition"] = fit.extra["linear"].rank, fit.extra["linear"].condition
    study.result["excitation"] = fit.extra["linear"].excitation[: fit.extra["linear"].rank].tolist()
    study.result["axes"] = _axes(study, "All of the log", fit.channels)
    study.result["notes"] = notes(fit)
    held, seen = _held_back(study, arm, log, settings, signals, how)
    study.result["validation"] = held
    if settings["variants"]:
        study.result["variants"] = _variants(study, arm, log, settings, signals)
        study.result["filters"] = _filters(study, arm, whole, how)
        study.result["consistent"] = _consistent(study, log, signals, how)
    path = study.figure_path("torques.png")
    _plot(fit.channels, seen, path)
    study.say(f"Measured and predicted torques: {path}")


def _choices(settings: Settings) -> tuple[dict[str, Any], Signals]:
    how = {
        "loss": chosen(settings, "loss", ("squared", "huber", "tukey")),
        "weights": chosen(settings, "weights", ("estimated", "equal")),
    }
    for name in ("cutoff", "window"):
        if not 0.0 <= float(settings[name]) < np.inf:
            raise MechidError(f"Setting {name} must be ≥ 0, not {settings[name]:g}.")
    if not isinstance(settings["seed"], int) or settings["seed"] < 0:
        raise MechidError(f"Setting seed must be a whole number ≥ 0, not {settings['seed']}.")
    if not 0.0 < float(settings["held_back"]) < 0.9:
        raise MechidError(f"Setting held_back must lie between 0 and 0.9, not {settings['held_back']:g}.")
    if not 100.0 <= float(settings["rate"]) <= tx40.RATE:
        raise MechidError(
            f"Setting rate must lie between 100 and {tx40.RATE:g} Hz, not {settings['rate']:g}."
        )
    if not float(settings["cutoff"]) < 0.5 * float(settings["rate"]):
        raise MechidError(
            f"Setting cutoff must be below half the rate, {0.5 * settings['rate']:g} Hz, not "
            f"{settings['cutoff']:g}."
        )
    return how, Signals(cutoff=float(settings["cutoff"]) or None, window=float(settings["window"]) or None)


def _log(settings: Settings) -> Log:
    log = tx40.read_tx40()
    if not 2.0 <= float(settings["end"]) <= log.end:
        raise MechidError(f"Setting end must lie between 2 and {log.end:.4g} s, not {settings['end']:g}.")
    log = log.between(None, float(settings["end"]))
    rate = float(settings["rate"])
    return log if rate == tx40.RATE else log.resampled(rate=rate, method="mean")


def _published(study: Study, fit: Fit, file: str, title: str, *, show: bool = True) -> dict[str, Any]:
    """The source's combinations as this fit has them."""
    linear, theta = fit.extra["linear"], fit.extra["linear"].theta
    place = {name: i for i, name in enumerate(linear.names)}
    size = np.linalg.norm(linear.triangle.R, axis=0)
    scale = np.where(size > 0.0, 1.0 / np.where(size > 0.0, size, 1.0), 0.0)
    found, rows = {}, []
    for p in tx40.published(file):
        c = np.zeros(len(theta))
        for name, factor in p.factors.items():
            c[place[name]] += factor
        # a combination of what is told, but for the digits of its factors
        row = c * scale
        told = bool(np.linalg.norm(row @ linear.directions[:, linear.rank :]) < 1e-3 * np.linalg.norm(row))
        value, std = float(c @ theta), float(np.sqrt(c @ linear.told @ c))
        found[p.expression] = {
            "value": value if told else None,
            "std": std if told else None,
            "published": p.value,
            "published_std": p.std,
        }
        apart = (value - p.value) / np.hypot(std, p.std)
        cells = [" ± ".join(digits(value, std)), f"{apart:+.1f}"] if told else ["not told by itself", ""]
        rows.append([_short(p.expression), cells[0], " ± ".join(digits(p.value, p.std)), cells[1]])
    if show:
        study.table(f"{title} (SI)", ["", "found", "published", "apart (std)"], rows)
    return found


def _short(expression: str) -> str:
    first, *rest = expression.replace(" - ", " + ").split(" + ")
    return first if not rest else f"{first} and {len(rest)} more"


def _viscous(study: Study, found: dict[str, Any]) -> dict[str, Any]:
    """Viscous friction of axes 1 to 4 beside the published."""
    off = {f"fv{i}": found[f"fv{i}"]["value"] / found[f"fv{i}"]["published"] - 1.0 for i in range(1, 5)}
    worst = max(off.values(), key=abs)
    study.say(
        "Viscous friction of axes 1 to 4 differs from the published by "
        f"{', '.join(f'{100 * x:+.2f} %' for x in off.values())}.\n"
    )
    return {"off": off, "worst": worst, "within": bool(abs(worst) <= 0.03)}


def _axes(study: Study, title: str, channels: tuple[Compared, ...]) -> dict[str, Any]:
    """Residuals of each axis, absolute and as parts of what was measured."""
    told, rows = {}, []
    for c in channels:
        good = np.isfinite(c.residual)
        relative = float(np.linalg.norm(c.residual[good]) / np.linalg.norm(c.measured[good]))
        axis = c.channel.removeprefix("force on ")
        told[axis] = {"rms": c.rms, "relative": relative, "rows": int(good.sum())}
        rows.append([axis, str(int(good.sum())), f"{c.rms:.3g}", f"{100 * relative:.2f} %"])
    study.table(f"{title}: residuals", ["axis", "rows", "rms, N·m", "of the torque"], rows)
    return told


def _total(channels: tuple[Compared, ...]) -> float:
    """‖residual‖ / ‖torque‖ over all axes."""
    residual = np.concatenate([c.residual for c in channels])
    measured = np.concatenate([c.measured for c in channels])
    return float(np.sqrt(np.nansum(residual**2) / np.nansum(measured**2)))


def _parts(settings: Settings, log: Log) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    cut = log.end - float(settings["held_back"]) * (log.end - log.start)
    return (None, cut), (cut, None)


def _held_back(
    study: Study, arm: Mechanism, log: Log, settings: Settings, signals: Signals, how: dict[str, Any]
) -> tuple[dict[str, Any], tuple[Compared, ...]]:
    first, last = _parts(settings, log)
    fit = regression(arm, tx40.experiment(arm, log, first, "fitted"), tx40.freed(arm), signals=signals, **how)
    seen = explained(fit, tx40.experiment(arm, log, last, "held back"))
    told = _axes(study, f"Fitted to the first {first[1]:.2f} s, tried on the rest", seen)
    study.say(f"All axes together: {100 * _total(seen):.2f} % of the torque.\n")
    return {
        "until": first[1],
        "axes": told,
        "relative": _total(seen),
        "relative_fitted": _total(fit.channels),
    }, seen


def _variants(study: Study, arm: Mechanism, log: Log, settings: Settings, signals: Signals) -> dict[str, Any]:
    """Losses and weights, each tried on the part that it did not see."""
    first, last = _parts(settings, log)
    found, rows = {}, []
    for name, how in VARIANTS.items():
        fit = regression(
            arm, tx40.experiment(arm, log, first, "fitted"), tx40.freed(arm), signals=signals, **how
        )
        seen = explained(fit, tx40.experiment(arm, log, last, "held back"))
        viscous = [fit.parameters[f"{j}.damping"] for j in tx40.JOINTS[:4]]
        found[name] = {
            "viscous": [p.value for p in viscous],
            "std": [p.std for p in viscous],
            "relative": _total(seen),
        }
        rows.append(
            [name, *(" ± ".join(digits(p.value, p.std)) for p in viscous), f"{100 * _total(seen):.2f} %"]
        )
    columns = ["", *(f"fv{i}" for i in range(1, 5)), "held back: error"]
    study.table("Losses and weights, fitted to the first part", columns, rows)
    return found


def _filters(study: Study, arm: Mechanism, whole: Any, how: dict[str, Any]) -> dict[str, Any]:
    """What the cutoff of the low-pass changes."""
    found, rows = {}, []
    for cutoff in FILTERS:
        fit = regression(arm, whole, tx40.freed(arm), signals=Signals(cutoff=cutoff), **how)
        values = [
            fit.parameters[n]
            for n in ("joint_1.damping", "joint_2.damping", "joint_3.armature", "joint_4.armature")
        ]
        found[f"{cutoff:g}"] = {p.name: p.value for p in values}
        rows.append(
            [
                f"{cutoff:g}",
                *(" ± ".join(digits(p.value, p.std)) for p in values),
                f"{100 * _total(fit.channels):.2f} %",
            ]
        )
    study.table(
        "Cutoff of the angles' low-pass, all of the log", ["Hz", "fv1", "fv2", "Ia3", "Ia4", "residual"], rows
    )
    return found


def _consistent(study: Study, log: Log, signals: Signals, how: dict[str, Any]) -> dict[str, Any]:
    """Links that bodies can be."""
    arm = tx40.tx40(thick=True)
    whole = tx40.experiment(arm, log, (None, None), "tx40")
    fit = regression(arm, whole, tx40.freed(arm, consistent=True), signals=signals, **how)
    bodies = {b.name: b for b in fit.mechanism.bodies}
    rows = [
        [
            b.name,
            f"{b.mass:.3g}",
            ", ".join(f"{x:.3g}" for x in b.com),
            ", ".join(f"{x:.2g}" for x in np.linalg.eigvalsh(b.inertia)),
        ]
        for b in (bodies[name] for name in tx40.LINKS)
    ]
    study.table(
        "Physically consistent links (what the data do not tell stays near the file's)",
        ["", "mass, kg", "centre of mass, m", "principal moments, kg·m²"],
        rows,
    )
    about = next(n for n in fit.notes if "consistent" in n)
    study.say(f"  {about}\n  All axes together: {100 * _total(fit.channels):.2f} % of the torque.\n")
    return {
        "relative": _total(fit.channels),
        "note": about,
        "masses": {n: bodies[n].mass for n in tx40.LINKS},
        "least_moment": min(float(np.linalg.eigvalsh(bodies[n].inertia)[0]) for n in tx40.LINKS),
    }


def _plot(fitted: tuple[Compared, ...], held: tuple[Compared, ...], path: Path) -> None:
    """Torque of each axis, measured and predicted, and what is left."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.0, 12.0), layout="constrained")
    axes = figure.subplots(6, 1, sharex=True)
    for ax, c, h in zip(axes, fitted, held, strict=True):
        ax.plot(c.time, c.measured, color="0.6", lw=1.4, label="measured")
        ax.plot(c.time, c.predicted, color="C0", lw=0.8, label="fitted to all")
        ax.plot(h.time, h.predicted, color="C3", lw=0.8, label="predicted, held back")
        ax.plot(c.time, c.residual, color="C2", lw=0.6, label="residual")
        ax.set_ylabel(f"{c.channel.removeprefix('force on ')}\n(N·m)")
        ax.margins(x=0.01)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    axes[-1].set_xlabel("time (s)")
    figure.savefig(path, dpi=120)
