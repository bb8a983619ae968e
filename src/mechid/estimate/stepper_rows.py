"""A stepper's own residual along measured positions as rows φ θ = y.

    Variational   D2 L_d(q_{k−1}, q_k) + D1 L_d(q_k, q_{k+1}) + F = 0     from positions alone, impulses
    BDF, OneStep  the dynamic rows of r, rates measured by differences of positions

divided by the step, so that rows are forces. What is linear in the balance of forces is linear in these. With
Variational the rows hold exactly for what it simulates, however long its steps are, and no acceleration appears.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mechid.compile import jit
from mechid.data.runs import cubic
from mechid.dynamics.bdf import BDF
from mechid.dynamics.model import float_leaves, with_float_leaves
from mechid.dynamics.onestep import OneStep
from mechid.dynamics.rates import State as RateState
from mechid.dynamics.spook import Spook
from mechid.dynamics.stepper import RowKind, Stepper
from mechid.dynamics.variational import State, Variational
from mechid.errors import MechidError
from mechid.estimate.experiment import Experiment
from mechid.estimate.linear_form import MechanismForm, acts_on
from mechid.estimate.measured_motion import Signals, measured_motion
from mechid.estimate.regression_fit import Explained
from mechid.estimate.samples import Grid, inputs
from mechid.model.parts import Motor


def check_stepper(form: MechanismForm, stepper: Stepper) -> None:
    """Refuse steppers whose rows hold more than what was measured and θ."""
    if isinstance(stepper, Spook):
        raise MechidError(
            "Spook's rows hold multipliers in maximal coordinates that no log shows, and regression is not "
            "possible without projecting them out: take Variational, BDF or OneStep, or no stepper."
        )
    if not isinstance(stepper, Variational | BDF | OneStep) or np.ndim(stepper.dt):
        raise MechidError(
            f"Regression takes a Variational, BDF or OneStep with one constant dt, not {stepper!r}."
        )
    model = form.free.lowering.model(np.array(form.free.lowering.values))
    if model.dry.index.shape[0]:
        raise MechidError(
            "Dry friction that sticks has impulses that no log shows: give the mechanism smooth friction, or the "
            "regression no stepper."
        )
    if model.driven.shape[0]:
        raise MechidError("A regression with a stepper knows no driven coordinates: give it no stepper.")
    stepper.check(model, 1)


def stepper_rows(
    form: MechanismForm, experiment: Experiment, signals: Signals, stepper: Stepper
) -> Explained:
    """The rows of one log."""
    check_stepper(form, stepper)
    motion = measured_motion(form, experiment, replace(signals, window=0.0))
    h, before = float(stepper.dt), _before(stepper)
    window = 0.4 / motion.signals.cutoff if signals.window is None else signals.window  # type: ignore[operator]
    together = max(1, round(window / h))
    found = []
    for run in motion.runs:
        x = motion.samples[run]
        steps = int((x[-1, 0] - x[0, 0]) / h + 1e-6)
        if steps < before + 1 + together:
            continue
        t = x[0, 0] + h * np.arange(steps + 1)
        at = np.array([cubic(x[:, 0], column, np.minimum(t, x[-1, 0]), h) for column in x.T]).T
        at[:, 0] = t
        found.append(_run(form, experiment, stepper, at, together, before))
    if not found:
        raise MechidError(
            f"Experiment '{experiment.name}' has no run that holds {before + 1 + together} steps of {h:g} s: give "
            "a shorter dt, window or trim."
        )
    note = (
        f"Experiment '{experiment.name}': rows are {type(stepper).__name__}'s own, in steps of {h:g} s, averaged "
        f"over {together * h:.3g} s."
    )
    time, phi, y, motors = (np.concatenate(parts) for parts in zip(*found, strict=True))
    chosen = replace(motion.signals, window=signals.window)
    return Explained(experiment.name, time, phi, y, motors, (*motion.notes, note), chosen)


def _before(stepper: Stepper) -> int:
    """States that a row looks back at."""
    return stepper.order if isinstance(stepper, BDF) else 1


def _run(
    form: MechanismForm, experiment: Experiment, stepper: Stepper, x: np.ndarray, together: int, before: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Time, φ, y and motors' forces of a run that stands on the grid of steps."""
    m, t = form.mechanism, x[:, 0]
    u = inputs(experiment, m, Grid(t))
    motion = form._motion(x)
    q, v = motion.q.T, motion.v.T
    start = form.numbers.start
    values = form.numbers.values(start)
    model = form.free.lowering.model(values)
    slopes = [jnp.asarray(s) for s in form.free.lowering.tangent(values, form.numbers.slopes)]
    steps = len(u)
    if isinstance(stepper, Variational):
        # pairs of steps that share a state
        past = np.stack([q[:-1], q[1:]], 1)
        r, by = (np.asarray(a) for a in regressor(stepper, model, slopes, (past,), u, t[:-1], before))
        n = q.shape[1]
        balance = -(r[1:, :n] - r[:-1, n:]) / float(stepper.dt)
        columns = -(by[1:, :n] - by[:-1, n:]) / float(stepper.dt)
        where, felt = slice(1, steps), (u[:-1] + u[1:]) / 2
    else:
        order = np.arange(before + 1)[None] + np.arange(steps + 1 - before)[:, None]
        last = order[:, -1] - 1
        given = (q[order], v[order])
        r, by = (np.asarray(a) for a in regressor(stepper, model, slopes, given, u[last], t[last], before))
        balance, columns = r / float(stepper.dt), by / float(stepper.dt)
        where, felt = slice(before, steps + 1), u[last]
    lever = motion.lever
    if lever.shape[2] > 1:
        # forces of closure act in the middle of an implicit step of one step, else where its newest row stands
        middle = (lever[..., 1:] + lever[..., :-1]) / 2 if isinstance(stepper, OneStep) else lever[..., 1:]
        lever = middle[..., where.start - 1 : where.stop - 1]
    there = motion._replace(lever=lever)
    columns = form._projected(there, np.moveaxis(columns, 0, -1))
    balance = form._projected(there, balance.T)
    y = np.einsum("mpn,p->mn", columns, start) - balance
    units = np.zeros((len(m.coordinates), sum(isinstance(e, Motor) for e in m.elements), len(felt)))
    for i, e in enumerate(e for e in m.elements if isinstance(e, Motor)):
        for c, ratio in acts_on(m, e.coordinate):
            units[c, i] = ratio * felt[:, m.input_names.index(e.name)]
    motors = form._projected(there, units)
    count = len(felt) // together

    def mean(a: np.ndarray) -> np.ndarray:
        cut = a[..., : count * together]
        return np.moveaxis(cut.reshape(*cut.shape[:-1], count, together).mean(-1), -1, 0)

    return mean(t[where]), mean(columns), mean(y), mean(motors)


@partial(jit, once=True, static_argnums=(6,))
def regressor(
    stepper: Any, model: Any, slopes: list[Any], past: tuple[Any, ...], u: Any, t: Any, before: int
) -> tuple[Any, Any]:
    """Dynamic rows of a stepper's residual (N, rows), and their slopes by θ (N, rows, n).

    past: positions (N, states, n), and rates for steppers that have them; slopes: of the model's float leaves.
    """
    leaves = float_leaves(model)
    dynamic = np.array([kind is RowKind.DYNAMIC for kind in stepper.rows(model)])

    def one(past: tuple[Any, ...], u: Any, t: Any) -> tuple[Any, Any]:
        q = past[0]
        xs = State(q, jnp.zeros_like(q)) if len(past) == 1 else RateState(*past)

        def rows(floats: list[Any]) -> Any:
            at = with_float_leaves(model, floats)
            r = stepper.residual(xs, jnp.zeros(stepper.nz(model)), u, t, jnp.asarray(before), at)
            return r[np.flatnonzero(dynamic)]

        def along(tangent: list[Any]) -> Any:
            return jax.jvp(rows, (leaves,), (tangent,))[1]

        return rows(leaves), jax.vmap(along, in_axes=-1, out_axes=-1)(slopes)

    return jax.vmap(one)(past, u, t)
