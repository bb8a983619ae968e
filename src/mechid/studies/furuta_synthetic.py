"""Made data of a released Furuta pendulum (Marklund, Section 4.7, Appendix G.3): parameters and method parameters.

Data are made by SPOOK at 1e-4 s and fitted by SPOOK at a coarser step: what is found are the coarse stepper's own
(shadow) parameters, which come to the true ones as the step goes to 0.
"""

from __future__ import annotations

from math import pi
from typing import Any

import numpy as np

from mechid.errors import MechidError
from mechid.estimate.experiment import Experiment
from mechid.estimate.fit import Fit
from mechid.estimate.trajectory import joint
from mechid.judge.validation import cross_validate
from mechid.model.mechanism import Mechanism
from mechid.studies import furuta_plot
from mechid.studies.furuta_model import (
    TRUTH,
    freed,
    furuta,
    logged,
    moved,
    names_of,
    per_noise,
    positive,
    spook,
    true_values,
    weight_of,
)
from mechid.studies.furuta_tell import held, numbers, tell, validated
from mechid.studies.study import Settings, Study

RELEASES = {"release": pi - 0.03, "release held out": pi - 0.4}
"""first θ2, rad, at rest; the second is not fitted"""
STEPS = (0.002, 0.005, 0.01, 0.02, 0.04)
"""s"""
COMPLIANCES = (1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3)
"""m/N and rad/(N·m)"""
WEIGHTS = (1e-2, 1e-1, 1.0, 1e1, 1e2, 1e3, 1e4)
SWEEPS = ("all", "none", "dt", "compliance", "weight")


def run(settings: Settings, study: Study) -> None:
    friction = str(settings["friction"])
    dt = positive(settings, "dt")
    truth = level(true_values(settings))
    mechanism = furuta(truth, friction)
    study.say(
        f"A released Furuta pendulum, {settings['time']:g} s, made at {settings['truth_dt']:g} s by SPOOK with "
        f"joints of compliance {settings['truth_compliance']:g} m/N, angles with noise of {settings['noise']:g} "
        f"rad; fitted at {dt:g} s."
    )
    motions = {name: _motion(settings, mechanism, angle) for name, angle in RELEASES.items()}
    free = freed(mechanism, ("J_Azz", "J_Byy", *names_of(friction)))
    experiments = _experiments(settings, mechanism, motions, dt)
    fit = joint(
        mechanism,
        spook(settings),
        experiments["release"],
        free,
        state_error_weight=per_noise(settings),
    )
    told = tell(study, fit, truth, title=f"Found at h = {dt:g} s, κ = {weight_of(settings):g}")
    study.say(_shadow_words(settings, fit, truth))
    unseen = cross_validate(fit, experiments["release held out"])
    true_score = cross_validate(held(fit, mechanism), experiments["release held out"])
    told["validation"] = validated(unseen) | {"score_of_true_parameters": true_score.score}
    study.say(
        f"Another release, which was not fitted, is explained to {unseen.score:.3g} times its noise by these "
        f"parameters, and to {true_score.score:.3g} times by the true ones at the same step: "
        + ("the shadow parameters" if unseen.score < true_score.score else "the true parameters")
        + " serve this stepper better."
    )
    fit.plot(study.figure_path("release.png"))
    study.result["synthetic"] = told
    for sweep in _sweeps(settings):
        told[f"sweep_{sweep}"] = SWEPT[sweep](settings, study, mechanism, motions, free)


def level(values: dict[str, float]) -> dict[str, float]:
    """The same on a level stand, as the paper's data are made."""
    return values | {k: 0.0 for k in TRUTH if k.startswith("tilt")}


def _motion(settings: Settings, mechanism: Mechanism, angle: float) -> Any:
    stepper = spook(settings, positive(settings, "truth_dt"), positive(settings, "truth_compliance"))
    return moved(mechanism, stepper, positive(settings, "time"), 1e-3, {"swing": angle})


def _experiments(
    settings: Settings, mechanism: Mechanism, motions: dict[str, Any], dt: float
) -> dict[str, Experiment]:
    """Each motion seen at every step, with noise of its own."""
    made = {}
    for i, (name, motion) in enumerate(motions.items()):
        every = round(dt / float(motion.t[1] - motion.t[0]))
        if every < 1:
            raise MechidError(f"Setting dt must be at least 0.001 s, the data's sampling, not {dt:g}.")
        rng = np.random.default_rng([int(settings["seed"]), i])
        noise = positive(settings, "noise")
        angles = motion.q[::every] + noise * rng.normal(size=motion.q.shape)[::every]
        made[name] = logged(name, mechanism, motion.t[::every], angles, noise)
    return made


def _shadow_words(settings: Settings, fit: Fit, truth: dict[str, float]) -> str:
    off = {k: abs(p.value - truth[k]) / p.std for k, p in fit.parameters.items() if 0.0 < p.std < np.inf}
    worst = max(off, key=off.__getitem__, default="")
    if not worst or off[worst] < 3.0:
        return "Every parameter is within three standard deviations of the truth."
    return (
        f"{worst} is {off[worst]:.0f} standard deviations from the truth: SPOOK is of first order, and its "
        f"parameters at h = {settings['dt']:g} s are not those of continuous motion (a smaller dt comes nearer)."
    )


# Sweeps (Figs. 6 and 7, and Fig. 4's for compliance and κ)


def _sweeps(settings: Settings) -> tuple[str, ...]:
    return {"all": ("dt", "compliance", "weight"), "none": ()}.get(settings["sweep"], (settings["sweep"],))


def _over(study: Study, key: str, title: str, unit: str, fits: dict[float, Fit | str], truth: Any) -> Any:
    """A sweep as a table, a figure and rows of the result."""
    names = next((list(f.parameters) for f in fits.values() if isinstance(f, Fit)), [])
    rows, cells = [], []
    for value, fit in fits.items():
        if isinstance(fit, str):
            rows.append([f"{value:g}", *["–"] * len(names), "–", "–", fit])
            cells.append({key: value, "why": fit})
            continue
        cell = numbers(fit)
        cells.append({key: value, **cell})
        rows.append(
            [
                f"{value:g}",
                *[f"{p.value:.4g}" for p in fit.parameters.values()],
                f"{1e3 * cell['observation_error']:.3g}",
                f"{cell['state_error']:.2e}",
                f"{fit.iterations}" if fit.converged else f"{fit.iterations}, not converged",
            ]
        )
    columns = [f"{key} ({unit})" if unit else key, *names, "angles, mrad", "impulses", "iterations"]
    study.table(title, columns, [["truth", *[f"{truth[n]:.4g}" for n in names], "", "", ""], *rows])
    furuta_plot.sweep(cells, key, unit, {n: truth[n] for n in names}, study.figure_path(f"sweep-{key}.png"))
    return cells


def _tried(*given: Any, **options: Any) -> Fit | str:
    try:
        return joint(*given, **options)
    except MechidError as error:
        return str(error)


def _sweep_dt(settings: Settings, study: Study, mechanism: Mechanism, motions: Any, free: Any) -> Any:
    fits: dict[float, Fit | str] = {}
    for dt in STEPS:
        seen = _experiments(settings, mechanism, motions, dt)["release"]
        fits[dt] = _tried(mechanism, spook(settings, dt), seen, free, state_error_weight=per_noise(settings))
    return _over(study, "h", "Over the step (Fig. 6, left)", "s", fits, level(true_values(settings)))


def _sweep_compliance(settings: Settings, study: Study, mechanism: Mechanism, motions: Any, free: Any) -> Any:
    seen = _experiments(settings, mechanism, motions, positive(settings, "dt"))["release"]
    fits = {
        soft: _tried(
            mechanism, spook(settings, compliance=soft), seen, free, state_error_weight=per_noise(settings)
        )
        for soft in COMPLIANCES
    }
    cells = _over(
        study, "compliance", "Over the compliance (Fig. 6, right)", "m/N", fits, level(true_values(settings))
    )
    failed = [c["compliance"] for c in cells if "why" in c or not c["converged"]]
    study.say(
        "The paper's method breaks down below 1e-6 m/N; "
        + (
            f"here it fails at {', '.join(f'{x:g}' for x in failed)}."
            if failed
            else "here every fit converges."
        )
    )
    return cells


def _sweep_weight(settings: Settings, study: Study, mechanism: Mechanism, motions: Any, free: Any) -> Any:
    seen = _experiments(settings, mechanism, motions, positive(settings, "dt"))["release"]
    fits = {
        weight: _tried(mechanism, spook(settings), seen, free, state_error_weight=per_noise(settings, weight))
        for weight in WEIGHTS
    }
    return _over(study, "κ", "Over the state error weight (Fig. 7)", "", fits, level(true_values(settings)))


SWEPT = {"dt": _sweep_dt, "compliance": _sweep_compliance, "weight": _sweep_weight}
