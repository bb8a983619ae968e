"""How the study of the real Furuta pendulum tells what it found: tables beside the maker's values, and the JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mechid.estimate.fit import Fit
from mechid.judge.identifiability import NOT_IDENTIFIABLE
from mechid.judge.validation import Validation
from mechid.report.fit import NOT_TOLD
from mechid.studies.furuta_qube import ENCODER, NOMINAL, QUBE
from mechid.studies.joint_fits import cell, numbers, validated
from mechid.studies.study import Study

CHECK = {
    "pendulum about its hinge": "0.94",
    "arm with the pendulum on it": "1.25",
    "gain": "0.85–0.9",
    "cable": "2e-3 N·m/rad",
}
"""of a simple least-squares fit with differentiated angles (README of the reference data)"""

_ARM = "J_Axx and J_Ayy cannot be told by any log: the arm turns about one axis that does not move."
UNTOLD = {
    "J_Axx": _ARM,
    "J_Ayy": _ARM,
    "tilt_z": "tilt_z cannot be told by any log: turning a tilted stand about the arm's axis is tilting it in "
    "another direction.",
}
"""parameters that are held, as no motion shows them, and why"""


def tell_fit(study: Study, fit: Fit, friction: str) -> dict[str, Any]:
    """The parameters beside the maker's values; what the data do not tell."""
    study.say(
        f"{fit.outcome} {fit.seconds['run']:.1f} s after {fit.seconds['compile']:.1f} s to compile, {friction} "
        "friction"
        + (
            " (dry friction is a torque that sticks, not a part of the load)."
            if friction != "viscous"
            else "."
        )
    )
    rows = []
    for name, p in fit.parameters.items():
        made = NOMINAL[name]
        ratio = f"{p.value / made:.3f}" if made and cell(fit, p) != NOT_TOLD else "–"
        rows.append(
            [name, cell(fit, p), f"{made:.4g}" if made else "–", ratio, p.unit, ", ".join(fit.flags[name])]
        )
    told = numbers(fit)
    for name, entry in told["parameters"].items():
        entry["nominal"] = NOMINAL[name]
        del entry["truth"]
    for name in UNTOLD:
        rows.append([name, NOT_TOLD, "–", "–", "rad" if name == "tilt_z" else "kg·m²", "held"])
        told["parameters"][name] = {
            "value": None,
            "std": None,
            "start": NOMINAL[name],
            "unit": rows[-1][4],
            "identifiable": False,
            "flags": [NOT_IDENTIFIABLE, "held"],
            "nominal": NOMINAL[name],
        }
    study.table("Quanser QUBE", ["parameter", "found", "maker", "ratio", "unit", "beware"], rows)
    for sentence in fit.identifiability.sentences:
        study.say(f"  {sentence}")
    for sentence in dict.fromkeys(UNTOLD.values()):
        study.say(f"  {sentence}")
    told["ratios"] = ratios(fit)
    listed = [f"{k} {v:.3g} (least squares {CHECK[k]})" for k, v in told["ratios"].items()]
    study.say(f"Beside the maker's values: {', '.join(listed)}.")
    late = fit.parameters["delay"]
    study.say(
        f"The voltage acts {1e3 * late.value:.2f} ± {1e3 * late.std:.2f} ms late. b1 holds the motor's back-emf, "
        f"k_m²/R_m = {NOMINAL['b1']:.2g} N·m·s/rad of it by the maker's numbers."
    )
    return told


def ratios(fit: Fit) -> dict[str, float]:
    """Numbers that the check by least squares tells too: by the maker's values; the cable in N·m/rad."""
    about = QUBE.mass_pendulum * QUBE.com_pendulum**2
    carried = QUBE.mass_pendulum * QUBE.arm**2
    values = NOMINAL | fit.values
    return {
        "pendulum about its hinge": (values["J_Byy"] + about) / (NOMINAL["J_Byy"] + about),
        "arm with the pendulum on it": (values["J_Azz"] + carried) / (NOMINAL["J_Azz"] + carried),
        "gain": values["K"] / NOMINAL["K"],
        "cable": values["k_cable"],
    }


def tell_models(study: Study, models: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What the data ask for: likelihood, cross-validation and simulation of each model."""
    first = models[0]["log_likelihood"]
    rows = [
        [
            m["model"],
            str(m["parameters"]),
            f"{m['log_likelihood'] - first:+.1f}",
            f"{m['score']:.4f}",
            *(f"{1e3 * x:.1f}" for x in m["simulation"]),
            "" if m["converged"] else "not converged",
        ]
        for m in models
    ]
    columns = ["model", "parameters", "log likelihood", "CV score", "θ sim., mrad", "α sim., mrad", ""]
    study.table("What the data ask for", columns, rows)
    told = []
    for m in models[1:]:
        better, worse = (models[0], m) if m["model"].startswith("without ") else (m, models[0])
        gain = better["log_likelihood"] - worse["log_likelihood"]
        more = better["parameters"] - worse["parameters"]
        # Akaike's criterion
        verdict = "asked for" if gain > more else "not asked for"
        falls = 100 * (1 - better["score"] / worse["score"])
        what = m["model"].removeprefix("without ")
        told.append(f"{what} {verdict} ({gain:.1f} of log likelihood for {more}, CV {falls:.1f} %)")
    study.say(
        f"By the likelihood of the fitted logs: {'; '.join(told)}. CV: by how much the score of held-out logs "
        "falls. Likelihoods take state errors for white; real ones are not, and small gains mean little."
    )
    return [dict(m) for m in models]


def tell_validation(study: Study, unseen: Validation) -> dict[str, Any]:
    """Held-out logs, explained with the parameters that were found."""
    study.say(
        f"Cross-validation: {len({c.experiment for c in unseen.channels})} logs that were not fitted are explained "
        f"to {unseen.score:.3g} times their noise, state errors included."
    )
    return validated(unseen)


def tell_simulations(study: Study, told: Mapping[str, Any]) -> dict[str, Any]:
    """Simulated angles of held-out logs: what was found beside the maker's values."""
    rows = [
        [
            name,
            *(
                f"{1e3 * of[who][angle]:.1f}"
                for angle in ("theta", "alpha")
                for who in ("identified", "maker")
            ),
        ]
        for name, of in told.items()
    ]
    study.table(
        "Simulations of held-out logs, from their first angles and voltages: rms errors, mrad",
        ["log", "θ identified", "θ maker", "α identified", "α maker"],
        rows,
    )
    mean = {
        who: {
            angle: float(np.sqrt(np.mean([of[who][angle] ** 2 for of in told.values()])))
            for angle in ("theta", "alpha")
        }
        for who in ("identified", "maker")
    }
    study.say(
        f"Identified parameters simulate θ to {mean['identified']['theta']:.2g} and α to "
        f"{mean['identified']['alpha']:.2g} rad, the maker's to {mean['maker']['theta']:.2g} and "
        f"{mean['maker']['alpha']:.2g} rad (a step of the encoder: {ENCODER:.2g})."
    )
    return {"logs": dict(told), "rms": mean}
