"""A real Furuta pendulum, a Quanser QUBE, from logs of its angles and its motor's voltage (Marklund, Section 4.6).

The first logs of each kind of motion (chirps of either sign, swing-ups) are fitted together, others are held out:
they are cross-validated, and simulated from their first angles and voltages alone (Fig. 5). State errors are
impulses on the arm and on the pendulum, larger on the arm, where motor, brushes and cable act: white torques, whose
two sizes are chosen by the likelihood of the data, where `compare` is not none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mechid.data.log import Log
from mechid.dynamics.simulate import simulate
from mechid.dynamics.spook import Spook
from mechid.dynamics.stepper import Stepper
from mechid.errors import MechidError
from mechid.estimate import samples
from mechid.estimate.experiment import Experiment
from mechid.estimate.fit import Fit
from mechid.estimate.state_errors import log_likelihood
from mechid.estimate.trajectory import joint
from mechid.judge.validation import Validation, cross_validate
from mechid.model.mechanism import Mechanism
from mechid.studies import furuta_plot
from mechid.studies.furuta_model import names_of, stepper_of
from mechid.studies.furuta_qube import (
    ENCODER,
    NOISE,
    NOMINAL,
    QUBE,
    STARTS,
    experiment,
    freed,
    qube,
    recording,
    recordings,
)
from mechid.studies.furuta_real_tell import tell_fit, tell_models, tell_simulations, tell_validation
from mechid.studies.study import Settings, Study

ERRORS = (3e-6, 1e-6)
"""N·m·s on the arm and on the pendulum in 4 ms: where the search for the likeliest begins, and what is taken
without one; about the likeliest for the first log of each kind"""
PERIOD = 0.004
"""s, to which they belong"""
COARSE = 10**0.5
"""factor by which they are varied"""
SHOWING = ("J_Azz", "J_Byy", "J_Bzz", "K", "tilt_x", "tilt_y", "alpha_0", "k_cable", "theta_cable", "delay")
LEFT_OUT = {
    "delay": ("delay",),
    "cable": ("k_cable", "theta_cable"),
    "tilt": ("tilt_x", "tilt_y"),
    "zero of α": ("alpha_0",),
}
"""what a model may do without"""


@dataclass(frozen=True, eq=False)
class Setup:
    """What all fits of a run share."""

    stepper: Stepper
    fitted: Sequence[Log]
    held: Sequence[Log]
    weight: np.ndarray
    """κ of each dynamic row"""


def run(settings: Settings, study: Study) -> None:
    friction = str(settings["friction"])
    setup = _setup(settings, study)
    names = (*SHOWING, *names_of("viscous"))
    # the joint optimum of states and parameters, which is found sooner, is near enough to begin with
    near = fitted(setup, names, "viscous", NOMINAL, marginal=False)
    compared = settings["compare"] != "none"
    # what dry friction begins from need not be the likeliest where no other model is compared with it
    plain = near if friction != "viscous" and not compared else fitted(setup, names, "viscous", near.values)
    tried: list[dict[str, Any]] = []
    if compared:
        if not settings["state_error_weight"]:
            setup, plain = likeliest_errors(setup, study, plain)
        tried = _models(setup, plain)
    found = plain
    if friction != "viscous":
        found = fitted(setup, (*names, *names_of(friction)[2:]), friction, plain.values)
    told = tell_fit(study, found, friction)
    if tried:
        if friction != "viscous":
            tried.append(_judged(f"{friction} friction", setup, found))
        told["models"] = tell_models(study, tried)
    unseen = _validation(setup, found)
    told["validation"] = tell_validation(study, unseen)
    told["simulation"] = _simulations(study, setup, found)
    found.plot(study.figure_path("fitted.png"))
    study.say(f"Measured, estimated and simulated angles are drawn in {study.out}.")
    study.result["real"] = told


# What is fitted


def _setup(settings: Settings, study: Study) -> Setup:
    count, longest = int(settings["logs"]), float(settings["log_time"]) or np.inf
    kinds = recordings()
    few = [kind for kind, paths in kinds.items() if len(paths) <= count]
    if count < 1 or few:
        most = min(map(len, kinds.values())) - 1
        raise MechidError(
            f"Setting logs must be between 1 and {most}, so that others are held out, not {count}."
        )
    most = int(settings["held"]) or None
    fitted = [recording(p, longest) for paths in kinds.values() for p in paths[:count]]
    held = [recording(p, longest) for paths in kinds.values() for p in paths[count:][:most]]
    for what, logs in (("Fitted", fitted), ("Held out", held)):
        listed = ", ".join(f"{log.name} ({np.ptp(log['theta'].time):.1f} s)" for log in logs)
        study.say(f"{what}: {listed}.")
    study.say(
        "Swing-ups end where the pendulum first stands upright: what follows is balancing. The applied voltage is "
        "used, of which the amplifier's limit is part; angles are known to a step of "
        f"{ENCODER:.2g} rad, a std of {NOISE:.2g}; logged velocities, which lag, are not used."
    )
    stepper = stepper_of(settings)
    given = float(settings["state_error_weight"])
    if given:
        count = len(weights(stepper, *ERRORS))
        _warn(study, given, fitted, float(stepper.dt))
        return Setup(stepper, fitted, held, np.full(count, given / NOISE**2))
    return Setup(stepper, fitted, held, weights(stepper, *ERRORS))


def _warn(study: Study, kappa: float, logs: Sequence[Log], dt: float) -> None:
    """Say where state errors are so cheap that they take the motor's place."""
    allowed = NOISE / np.sqrt(kappa)
    motor = NOMINAL["K"] * dt * np.sqrt(np.mean([np.mean(log["u"].values ** 2) for log in logs]))
    if allowed > motor:
        study.say(
            f"Beware: κ = {kappa:g} lets state errors be {allowed:.1g} N·m·s a step, more than the motor's own "
            f"{motor:.1g}: the logs are followed rather than explained, and parameters mean nothing. For this "
            f"pendulum κ is about {(NOISE / ERRORS[0]) ** 2:.0e}, for residuals in rad."
        )


def weights(stepper: Stepper, arm: float, pendulum: float) -> np.ndarray:
    """κ of each dynamic row for impulses (N·m·s in 4 ms) on the arm and on the pendulum, white torques in time."""
    arm, pendulum = (x * np.sqrt(float(stepper.dt) / PERIOD) for x in (arm, pendulum))
    if isinstance(stepper, Spook):
        # forces on both bodies, then torques
        stds = np.repeat([arm / QUBE.arm, pendulum / QUBE.com_pendulum, arm, pendulum], 3)
    else:
        stds = np.array([arm, pendulum, arm, pendulum])
    return 1.0 / stds**2


def fitted(
    setup: Setup,
    names: Sequence[str],
    friction: str,
    start: Mapping[str, float],
    *,
    marginal: bool = True,
) -> Fit:
    """The likeliest parameters of the fitted logs; others are the maker's."""
    # friction, springs and the delay begin where they can be felt
    begin = {name: start.get(name, 0.0) or STARTS[name] for name in names}
    free = freed(qube(friction), names, begin)
    logs = [experiment(log) for log in setup.fitted]
    return joint(
        free.mechanism, setup.stepper, logs, free, state_error_weight=setup.weight, marginal=marginal
    )


# How large state errors are, and what the model must have


def likelihood(fit: Fit) -> float:
    """log of the data's likelihood at the parameters that were found, states integrated out; but for a constant."""
    solution, nt = fit.extra["solution"], fit.free.size
    size = solution.problem.base.size
    T = solution.linear.triangle[:, :size]
    told = np.maximum(np.abs(np.diag(T)), 1e-300)
    first = (T.T @ T)[nt:, nt:]
    return log_likelihood(solution) + float(np.sum(np.log(told))) - 0.5 * float(np.linalg.slogdet(first)[1])


def likeliest_errors(setup: Setup, study: Study, begun: Fit) -> tuple[Setup, Fit]:
    """Sizes of state errors under which the data are likeliest: each is varied by a factor until none is better."""
    names = tuple(begun.values)
    best, at = begun, (0, 0)
    tried = {at: likelihood(begun)}
    improved = True
    while improved:
        improved = False
        for way in ((1, 0), (-1, 0), (0, 1), (0, -1)):
            new = (at[0] + way[0], at[1] + way[1])
            if new in tried or max(map(abs, new)) > 3:
                continue
            errors = [e * COARSE**n for e, n in zip(ERRORS, new, strict=True)]
            other = replace(setup, weight=weights(setup.stepper, *errors))
            found = fitted(other, names, "viscous", best.values)
            tried[new] = likelihood(found)
            if tried[new] > tried[at]:
                setup, best, at, improved = other, found, new, True
                break
    arm, pendulum = (e * COARSE**n for e, n in zip(ERRORS, at, strict=True))
    study.say(
        f"State errors by the likelihood of the data ({len(tried)} choices): {arm:.2g} N·m·s on the arm and "
        f"{pendulum:.2g} on the pendulum in {PERIOD:g} s; torques of {1e3 * arm / PERIOD:.2g} and "
        f"{1e3 * pendulum / PERIOD:.2g} mN·m that differ from step to step."
    )
    return setup, best


def _models(setup: Setup, plain: Fit) -> list[dict[str, Any]]:
    """With all that is modelled, and without each."""
    names = tuple(plain.values)
    rows = [_judged("viscous friction", setup, plain)]
    for what, without in LEFT_OUT.items():
        kept = [n for n in names if n not in without]
        found = fitted(setup, kept, "viscous", plain.values)
        rows.append(_judged(f"without {what}", setup, found))
    return rows


def _judged(what: str, setup: Setup, fit: Fit) -> dict[str, Any]:
    """A model by its likelihood, and by logs that were not fitted."""
    unseen = _validation(setup, fit)
    errors = [_errors(*_simulated(setup.stepper, fit.mechanism, experiment(log))) for log in setup.held]
    return {
        "model": what,
        "parameters": fit.free.size,
        "log_likelihood": likelihood(fit),
        "score": unseen.score,
        "simulation": np.sqrt(np.mean(np.square(errors), axis=0)).tolist(),
        "converged": fit.converged,
    }


# Logs that were not fitted


def _validation(setup: Setup, fit: Fit) -> Validation:
    return cross_validate(fit, [experiment(log) for log in setup.held])


def _simulated(stepper: Stepper, mechanism: Mechanism, e: Experiment) -> tuple[Any, np.ndarray, np.ndarray]:
    """Times, measured angles, and those of a simulation that knows the first angles and the voltage alone."""
    theta, alpha = e.log["theta"], e.log["alpha"]
    measured = np.stack([theta.values, alpha.values], -1)
    grid = samples.grid(e, stepper)
    # at rest, unless the first samples show more than a step of the encoder
    moved = (measured[4] - measured[0]) / (theta.time[4] - theta.time[0])
    v = np.where(np.abs(measured[4] - measured[0]) > 1.5 * ENCODER, moved, 0.0)
    motion = simulate(
        mechanism,
        stepper,
        grid.steps,
        q=measured[0],
        v=v,
        inputs=samples.inputs(e, mechanism, grid),
        throw=False,
    )
    t = grid.t[: len(motion.q)]
    seen = np.stack([np.interp(theta.time, t, motion.q[:, i], right=np.nan) for i in range(2)], -1)
    return theta.time, measured, seen


def _errors(t: np.ndarray, measured: np.ndarray, simulated: np.ndarray) -> np.ndarray:
    """Root mean square of each angle's error, rad."""
    return np.sqrt(np.nanmean((simulated - measured) ** 2, axis=0))


def _simulations(study: Study, setup: Setup, fit: Fit) -> dict[str, Any]:
    """Simulations of held-out logs with what was found and with the maker's values."""
    maker = qube("viscous")
    told: dict[str, Any] = {}
    for log in setup.held:
        t, measured, ours = _simulated(setup.stepper, fit.mechanism, experiment(log))
        _, _, theirs = _simulated(setup.stepper, maker, experiment(log))
        told[log.name] = {
            "identified": dict(zip(("theta", "alpha"), _errors(t, measured, ours).tolist(), strict=True)),
            "maker": dict(zip(("theta", "alpha"), _errors(t, measured, theirs).tolist(), strict=True)),
        }
        volts = log["u"]
        shown = volts.time <= t[-1]
        furuta_plot.simulated(
            log.name,
            t,
            measured,
            {"identified": ours, "maker's values": theirs},
            (volts.time[shown], volts.values[shown]),
            study.figure_path(f"simulated-{log.name}.png"),
        )
    return tell_simulations(study, told)
