"""Why a step could not be solved, in a sentence."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from mechid.dynamics.model import Model
from mechid.dynamics.stepper import Outcome, Stepper
from mechid.model.mechanism import Mechanism


def diagnose(
    stepper: Stepper, model: Model, mechanism: Mechanism, run: Any, t: float
) -> str:
    """The likely cause of the failed step after the last state of a rollout."""
    failed, k = run.failed, run.steps_done
    last = _last(run.states)
    q0 = np.asarray(stepper.positions(model, last))
    q1 = np.asarray(stepper.positions(model, failed.state))
    u = jnp.asarray(failed.u)
    dt = float(stepper.step_size(jnp.asarray(k)))
    residual = f"its residual is {float(failed.residual):.3g} times the tolerance"
    if not np.all(np.isfinite(np.asarray(failed.u))):
        return "an input is not finite."
    loose = _rank_deficient(model, mechanism, q0, u)
    if failed.outcome == Outcome.SINGULAR or loose:
        return f"the matrix of the step is singular{loose}; {residual}."
    closure = np.abs(np.asarray(model.constraint(jnp.asarray(q1), u)[0]))
    if len(closure) and closure.max() > 1e-4:
        row = mechanism.constraint_names[int(closure.argmax())].split("[")[0]
        return (
            f"loop '{row}' stays open by {closure.max():.3g} (m or rad): it may be out of reach, "
            f"or dt = {dt:g} s is too large; {residual}."
        )
    fast = _fastest(model, mechanism, q0, u, t)
    if fast is not None and fast[0] * dt > 1.0:
        omega, name = fast
        return (
            f"dt = {dt:g} s is too large for the mode at {omega / 2 / np.pi:.3g} Hz, mostly of "
            f"'{name}' (ω·dt = {omega * dt:.3g}); try dt ≤ {0.5 / omega:.2g} s or some damping; {residual}."
        )
    return f"Newton's method found no solution near the last state; a smaller dt may help; {residual}."


def _last(states: Any) -> Any:
    import jax

    return jax.tree.map(lambda a: jnp.asarray(a[-1]), states)


def _kkt(model: Model, q: np.ndarray, u: Any) -> tuple[np.ndarray, np.ndarray]:
    mass = np.asarray(model.mass_matrix(jnp.asarray(q)))
    slope = np.asarray(model.constraint(jnp.asarray(q), u)[1])
    return mass, slope


def _rank_deficient(model: Model, mechanism: Mechanism, q: np.ndarray, u: Any) -> str:
    """Words for a singular KKT matrix: redundant constraint rows, or coordinates without inertia."""
    mass, slope = _kkt(model, q, u)
    if len(slope):
        singular = np.linalg.svd(slope, compute_uv=False)
        if len(slope) > slope.shape[1] or singular[-1] < 1e-9 * max(singular[0], 1e-12):
            return " (constraint rows depend on each other: a loop is closed twice or is at a dead point)"
    _, values, rows = np.linalg.svd(slope) if len(slope) else (None, np.zeros(0), np.eye(len(q)))
    free = rows[int(np.sum(values > 1e-9 * max(values.max(initial=0.0), 1e-12))) :]
    inertia = free @ mass @ free.T
    if len(inertia):
        spread, vectors = np.linalg.eigh(inertia)
        if spread[0] < 1e-13 * max(spread[-1], 1e-300):
            name = mechanism.coordinate_names[int(np.abs(free.T @ vectors[:, 0]).argmax())]
            return f" (coordinate '{name}' moves freely without inertia)"
    return ""


def _fastest(
    model: Model, mechanism: Mechanism, q: np.ndarray, u: Any, t: float
) -> tuple[float, str] | None:
    """The fastest mode (rad/s) of stiffness against inertia within the constraints, and its coordinate."""
    mass, slope = _kkt(model, q, u)
    at = model.hessians(jnp.asarray(q), jnp.zeros(len(q)), u, jnp.asarray(t))
    stiffness = -np.asarray(at.qq + at.force_q)
    _, values, rows = np.linalg.svd(slope) if len(slope) else (None, np.zeros(0), np.eye(len(q)))
    free = rows[int(np.sum(values > 1e-9 * max(values.max(initial=0.0), 1e-12))) :]
    inertia = free @ mass @ free.T
    try:
        modes, vectors = np.linalg.eig(np.linalg.solve(inertia, free @ stiffness @ free.T))
    except np.linalg.LinAlgError:
        return None
    best = int(np.argmax(modes.real))
    if not modes[best].real > 0.0:
        return None
    shape = np.abs(free.T @ vectors[:, best].real)
    return float(np.sqrt(modes[best].real)), mechanism.coordinate_names[int(shape.argmax())]
