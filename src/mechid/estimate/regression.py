"""`regression`: parameters in which the equations of motion are linear, by least squares on measured motions.

    M(q) a + bias − F = B u      ⟺      φ θ = y        (da Silva, Eqs. 4.5 to 4.11)

No equation is solved in time and nothing has to be guessed: the numbers follow from one triangle of the rows. What
of them acts only in combination is told as base parameters with their excitation. Rows are weighted by the noise of
each coordinate's force, found with the parameters; robust losses take outliers out, single samples first. Bodies
freed by `free_inertia` come out physically consistent.
"""

from __future__ import annotations

import time as clock
from collections.abc import Sequence
from typing import Any

import numpy as np

from mechid.dynamics.stepper import Stepper
from mechid.dynamics.variational import Variational
from mechid.errors import MechidError, choices, unknown
from mechid.estimate.experiment import Experiment
from mechid.estimate.fit import Compared, Fit
from mechid.estimate.linear import LOSSES, LinearSolution, least_squares
from mechid.estimate.linear_form import MechanismForm, has_loops
from mechid.estimate.linear_numbers import TEN
from mechid.estimate.measured_motion import Motion, Signals, measured_motion, measured_positions
from mechid.estimate.outliers import Averaged, motor_forces, outliers, without
from mechid.estimate.prepare import check
from mechid.estimate.regression_fit import Explained, LeastSquares, compared, fitted
from mechid.estimate.solvers.levenberg_marquardt import LevenbergMarquardt
from mechid.estimate.stepper_rows import stepper_rows
from mechid.model.parameters import Parameters
from mechid.threads import small_matrices

WEIGHTS = ("equal", "estimated")
ROUNDS = 5
"""of finding outliers and fitting without them"""


@small_matrices()
def regression(
    mechanism: Any,
    experiment: Experiment | Sequence[Experiment],
    free: Parameters,
    *,
    stepper: Stepper | None = None,
    signals: Signals | None = None,
    loss: str = "squared",
    weights: str | Sequence[float] = "estimated",
) -> Fit:
    """The parameters under which measured motions fulfil the equations of motion best.

    Measured positions of all independent coordinates give rates and accelerations as `signals` say. loss:
    "squared", "huber" or "tukey". weights: of the coordinates' forces, "equal", "estimated" (by their residuals,
    found with the parameters) or a std for each, N·m or N. With a stepper rows are its own residual along the
    measured positions; with Variational no acceleration appears in them. Robust losses leave out single samples
    of the forces that lie off before rows are averaged, and tell how many, but not with a stepper.
    """
    begun = clock.perf_counter()
    experiments = [experiment] if isinstance(experiment, Experiment) else list(experiment)
    _check(mechanism, experiments, free, stepper or Variational(1.0), signals, loss, weights)
    signals = signals or Signals()
    form = _form(free, experiments)
    std = None if weights == "equal" else weights

    def solved(logs: list[Explained]) -> tuple[np.ndarray, np.ndarray, LinearSolution]:
        phi = np.concatenate([x.phi for x in logs])
        y = np.concatenate([x.y for x in logs])
        _refuse_nothing(form, y)
        start, order = form.numbers.start, preference(form)
        return phi, y, least_squares(phi, y, form.names, std=std, loss=loss, reference=start, order=order)

    if stepper is not None:
        logs = [stepper_rows(form, e, signals, stepper) for e in experiments]
    else:
        averaged = [_averaged(form, measured_motion(form, e, signals)) for e in experiments]
        logs = [a.rows for a in averaged]
    phi, y, solution = solved(logs)
    if loss != "squared" and stepper is None:
        before: list[np.ndarray] = []
        for _ in range(ROUNDS):
            off = [_off(form, a, solution) for a in averaged]
            if before and all(np.array_equal(x, z) for x, z in zip(off, before, strict=True)):
                break
            logs, before = [without(form, a, x) for a, x in zip(averaged, off, strict=True)], off
            phi, y, solution = solved(logs)
    how = LeastSquares(loss, weights if isinstance(weights, str) else tuple(float(w) for w in weights))
    return fitted(form, logs, phi, y, solution, how, begun, {"stepper": stepper})


def _form(free: Parameters, experiments: list[Experiment]) -> MechanismForm:
    """The equations; where loops are closed, on coordinates that every log shows."""
    m = free.mechanism
    if not has_loops(m):
        return MechanismForm(free)
    shown = [set(measured_positions(m, e)[0]) for e in experiments]
    measured = [c for c in m.coordinate_names if all(c in s for s in shown)]
    start: Any = experiments[0].start.q
    return MechanismForm(free, measured=measured, near=m.coordinate_vector(start, "The initial coordinate"))


def _check(
    mechanism: Any, experiments: list[Any], free: Any, stepper: Any, signals: Any, loss: Any, weights: Any
) -> None:
    check(
        mechanism,
        stepper,
        experiments,
        free,
        LevenbergMarquardt(),
        None,
    )
    if signals is not None and not isinstance(signals, Signals):
        raise MechidError(f"The signals of a regression must be Signals(…), not {signals!r}.")
    if loss not in LOSSES:
        raise unknown("loss", loss, LOSSES)
    if isinstance(weights, str):
        if weights not in WEIGHTS:
            raise unknown("choice of weights", weights, WEIGHTS)
    else:
        given = np.asarray(weights, float)
        if given.ndim != 1 or not np.all(given > 0.0):
            raise MechidError(
                f"The weights of a regression are {choices(WEIGHTS)} or stds > 0, not {weights!r}."
            )
    if free.limits:
        raise MechidError("Regression knows no limits between parameters: use simulation_error for these.")
    for p in free.entries:
        if p.prior is not None:
            raise MechidError(
                f"Parameter '{p.name}' has a prior, which regression does not weigh: leave it away, or use "
                "simulation_error."
            )
    for e in experiments:
        if e.cost is not None or e.feedback is not None:
            raise MechidError(
                f"Experiment '{e.name}' has a {'cost' if e.cost is not None else 'feedback'}, which belongs to "
                "simulation_error, not to a regression."
            )


def _refuse_nothing(form: MechanismForm, y: np.ndarray) -> None:
    if not np.any(y):
        raise MechidError(
            "Nothing fixes the scale: no force that acts on the mechanism is known, so that zero explains all. "
            "Give the channels of its inputs, or hold an inertia or a gain."
        )


def rows_of(
    form: MechanismForm, experiment: Experiment, signals: Signals, stepper: Stepper | None = None
) -> Explained:
    """The rows of one log."""
    if stepper is not None:
        return stepper_rows(form, experiment, signals, stepper)
    return _averaged(form, measured_motion(form, experiment, signals)).rows


def _averaged(form: MechanismForm, motion: Motion) -> Averaged:
    """A motion's rows, with all samples in them."""
    parts = [form.mean_rows(motion.samples[run], motion.together) for run in motion.runs]
    time = [motion.samples[run, 0].reshape(-1, motion.together).mean(1) for run in motion.runs]
    motors = [motor_forces(form, motion.samples[run], motion.together) for run in motion.runs]
    rows = Explained(
        motion.name,
        np.concatenate(time),
        np.concatenate([p for p, _ in parts]),
        np.concatenate([y for _, y in parts]),
        np.concatenate(motors),
        motion.notes,
        motion.signals,
    )
    return Averaged(motion, rows)


def _off(form: MechanismForm, averaged: Averaged, solution: LinearSolution) -> np.ndarray:
    """Samples that lie off; where each is a row the loss itself sees them."""
    motion = averaged.motion
    if motion.together == 1:
        return np.zeros((len(motion.samples), len(form.outputs)), bool)
    return outliers(form, motion, solution.theta)


def explained(fit: Fit, experiment: Experiment, *, signals: Signals | None = None) -> tuple[Compared, ...]:
    """Measured and predicted forces of a log that a regression has not seen, filtered as its first one was."""
    form = fit.extra.get("form")
    if not isinstance(form, MechanismForm):
        raise MechidError(f"Only the fit of a regression explains forces, not one by {fit.estimator}.")
    near = fit.extra["consistent"]
    theta = fit.extra["linear"].theta if near is None else near.theta
    log = rows_of(form, experiment, signals or fit.extra["signals"], fit.extra["stepper"])
    return compared(form, [log], theta, np.array([c.std for c in fit.channels[: len(form.outputs)]]), False)


def preference(form: MechanismForm) -> list[int]:
    """Which numbers stand for combinations: of a body inertia before first moment before mass, root first."""

    def rank(i: int) -> tuple[int, int]:
        name, _, number = form.names[i].rpartition(".")
        body, _, vector = name.rpartition(".")
        full = f"{vector}.{number}" if vector in ("first_moment", "origin_inertia") else number
        owner = body if vector in ("first_moment", "origin_inertia") else name
        bodies = [b.name for b in form.mechanism.bodies]
        if owner in bodies and full in TEN:
            return bodies.index(owner), -TEN.index(full)
        return len(bodies), i

    return sorted(range(len(form.names)), key=rank)
