"""Made data of a released Furuta pendulum (Marklund, Section 4.7, Appendix G.3): parameters and method parameters.

Data are made by SPOOK at 1e-4 s and fitted at a coarser step. What SPOOK finds there are its own (shadow)
parameters, which come to the true ones as the step goes to 0; the variational integrator finds the true ones.
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
from mechid.studies.furuta_model import (
    TRUTH,
    fitted,
    freed,
    furuta,
    logged,
    moved,
    names_of,
    positive,
    spook,
    stepper_of,
    true_values,
    weight_of,
)
from mechid.studies.furuta_sweep import (
    COMPLIANCES,
    STEPS,
    WEIGHTS,
    chosen_sweeps,
    swept,
    told_stiffness,
    told_sweep,
)
from mechid.studies.joint_fits import held, tell, validated
from mechid.studies.shadows import EXPLAINED, STEPPERS, words
from mechid.studies.study import Settings, Study

SAMPLED = 1e-3
"""s, of the data"""
RELEASES = {"release": pi - 0.03, "release held out": pi - 0.4}
"""first θ2, rad, at rest; the second is not fitted"""


def run(settings: Settings, study: Study) -> None:
    friction = str(settings["friction"])
    dt = positive(settings, "dt")
    _refuse_times_between_samples(settings)
    truth = level(true_values(settings))
    mechanism = furuta(truth, friction)
    study.say(
        f"A released Furuta pendulum, {settings['time']:g} s, made at {settings['truth_dt']:g} s by SPOOK with "
        f"joints of compliance {settings['truth_compliance']:g} m/N, angles with noise of {settings['noise']:g} "
        f"rad; fitted at {dt:g} s by {STEPPERS[settings['stepper']]}."
    )
    motions = {name: _motion(settings, mechanism, angle) for name, angle in RELEASES.items()}
    free = freed(mechanism, ("J_Azz", "J_Byy", *names_of(friction)))
    experiments = _experiments(settings, mechanism, motions, dt)
    fit = fitted(settings, mechanism, experiments["release"], free)
    told = tell(study, fit, truth, title=f"Found at h = {dt:g} s, κ = {weight_of(settings):g}")
    study.say(words(settings["stepper"], dt, {"": fit}, truth))
    unseen = cross_validate(fit, experiments["release held out"])
    true_score = cross_validate(held(fit, mechanism), experiments["release held out"])
    told["validation"] = validated(unseen) | {"score_of_true_parameters": true_score.score}
    study.say(
        f"Another release, which was not fitted, is explained to {unseen.score:.3g} times its noise by these "
        f"parameters, and to {true_score.score:.3g} times by the true ones at the same step: "
        + _better(unseen.score, true_score.score)
    )
    fit.plot(study.figure_path("release.png"))
    study.result["synthetic"] = told
    for sweep in chosen_sweeps(settings):
        told[f"sweep_{sweep}"] = SWEPT[sweep](settings, study, mechanism, motions, free)


def _refuse_times_between_samples(settings: Settings) -> None:
    """The fit's steps must be whole samples, samples whole steps of the data."""
    dt, fine = positive(settings, "dt"), positive(settings, "truth_dt")
    if not _whole(dt / SAMPLED):
        raise MechidError(
            f"Setting dt must be a whole number of samples of the data, of {SAMPLED:g} s each, not {dt:g}."
        )
    if not _whole(SAMPLED / fine):
        raise MechidError(
            f"Setting truth_dt must be the data's sampling, {SAMPLED:g} s, or that divided by a whole number, "
            f"not {fine:g}."
        )


def _whole(ratio: float) -> bool:
    return round(ratio) >= 1 and abs(ratio - round(ratio)) < 1e-6 * ratio


def level(values: dict[str, float]) -> dict[str, float]:
    """The same on a level stand, as the paper's data are made."""
    return values | {k: 0.0 for k in TRUTH if k.startswith("tilt")}


def _motion(settings: Settings, mechanism: Mechanism, angle: float) -> Any:
    stepper = spook(settings, positive(settings, "truth_dt"), positive(settings, "truth_compliance"))
    return moved(mechanism, stepper, positive(settings, "time"), SAMPLED, {"swing": angle})


def _experiments(
    settings: Settings, mechanism: Mechanism, motions: dict[str, Any], dt: float
) -> dict[str, Experiment]:
    """Each motion seen at every step, with noise of its own."""
    made = {}
    for i, (name, motion) in enumerate(motions.items()):
        every = round(dt / SAMPLED)
        rng = np.random.default_rng([int(settings["seed"]), i])
        noise = positive(settings, "noise")
        angles = motion.q[::every] + noise * rng.normal(size=motion.q.shape)[::every]
        made[name] = logged(name, mechanism, motion.t[::every], angles, noise)
    return made


def _better(found: float, true: float) -> str:
    """Which parameters explain an unseen log better, if any explain it."""
    if min(found, true) > EXPLAINED:
        return "neither explain it."
    return f"{'those that were found' if found < true else 'the true ones'} serve this stepper better."


# Sweeps (Figs. 6 and 7)


def _sweep_dt(settings: Settings, study: Study, mechanism: Mechanism, motions: Any, free: Any) -> Any:
    def fit(dt: float) -> Fit:
        seen = _experiments(settings, mechanism, motions, dt)["release"]
        return fitted(settings, mechanism, seen, free, stepper=stepper_of(settings, dt))

    return _told(settings, study, "h", "Over the step (Fig. 6, left)", "s", swept(fit, STEPS))


def _sweep_compliance(settings: Settings, study: Study, mechanism: Mechanism, motions: Any, free: Any) -> Any:
    seen = _experiments(settings, mechanism, motions, positive(settings, "dt"))["release"]
    fits = swept(
        lambda soft: fitted(settings, mechanism, seen, free, stepper=spook(settings, compliance=soft)),
        COMPLIANCES,
    )
    cells = _told(settings, study, "compliance", "Over the compliance (Fig. 6, right)", "m/N", fits)
    told_stiffness(study, cells)
    return cells


def _sweep_weight(settings: Settings, study: Study, mechanism: Mechanism, motions: Any, free: Any) -> Any:
    seen = _experiments(settings, mechanism, motions, positive(settings, "dt"))["release"]
    fits = swept(lambda weight: fitted(settings, mechanism, seen, free, weight=weight), WEIGHTS)
    cells = _told(settings, study, "κ", "Over the state error weight (Fig. 7)", "", fits)
    _tell_choice(settings, study, joint(mechanism, stepper_of(settings), seen, free), fits)
    return cells


def _tell_choice(settings: Settings, study: Study, fit: Fit, fits: dict[float, Fit | str]) -> None:
    """Where the likeliest weight lies among those that were swept over."""
    weight = float(fit.extra["chain"].weight[0, 0] ** 2) * positive(settings, "noise") ** 2
    near = {k: f for k, f in fits.items() if isinstance(f, Fit) and f.converged}
    pulls = {
        k: max(abs(fit.values[n] - p.value) / p.std for n, p in f.parameters.items()) for k, f in near.items()
    }
    told = ", ".join(f"{pull:.2g} at κ = {k:g}" for k, pull in pulls.items())
    study.say(
        f"Chosen by the likelihood of the data, κ = {weight:.3g} (the paper takes 100, on its plateau). Its "
        f"parameters differ from those of the sweep by, in their standard deviations there: {told}."
    )
    study.result["chosen_weight"] = {"weight": weight, "parameters": dict(fit.values), "apart": pulls}


def _told(settings: Settings, study: Study, key: str, title: str, unit: str, fits: Any) -> Any:
    names = next((list(f.parameters) for f in fits.values() if isinstance(f, Fit)), [])
    truth = level(true_values(settings))
    return told_sweep(study, key, title, unit, fits, truth, names=names, figure=f"sweep-{FIGURES[key]}.png")


FIGURES = {"h": "dt", "compliance": "compliance", "κ": "weight"}
SWEPT = {"dt": _sweep_dt, "compliance": _sweep_compliance, "weight": _sweep_weight}
