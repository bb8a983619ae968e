"""Why a step could not be solved, in a sentence."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mechid.compile import jit
from mechid.dynamics.model import Model
from mechid.dynamics.stepper import Outcome, Stepper, held
from mechid.dynamics.tree import Array
from mechid.model.system import System


class _Facts(NamedTuple):
    """Mass, stiffness and constraint slope before the failed step; loop gaps at its last attempt."""

    mass: Array
    stiffness: Array
    slope: Array
    gap: Array


@partial(jit, once=True)
def _facts(stepper: Stepper, model: Model, last: Any, failed: Any, u: Array, t: Array) -> _Facts:
    q = stepper.positions(model, last)
    still = jnp.zeros_like(q)
    stiffness = jax.jacfwd(lambda q: model.force_balance(q, still, still, u, t))(q)
    gap = model.constraint(stepper.positions(model, failed), u)[0]
    return _Facts(model.mass_matrix(q), stiffness, held(model, q, still, u, t)[1], jnp.abs(gap))


def diagnose(
    stepper: Stepper, model: Model, mechanism: System, failed: Any, last: Any, step: int, t: float
) -> str:
    """The likely cause of a step that failed, from the last state that was solved."""
    if not np.all(np.isfinite(failed.u)):
        return "an input is not finite."
    facts = _Facts(*map(np.asarray, _facts(stepper, model, last, failed.state, failed.u, t)))  # type: ignore[arg-type]
    if failed.outcome == Outcome.UNSETTLED:
        return (
            "no way was found in which what rubs, touches or stops it sticks and slides together; a smaller dt may "
            "help, or less friction where bodies jam."
        )
    dt = float(stepper.step_size(jnp.asarray(step)))
    residual = f"its residual is {float(failed.residual):.3g} times the tolerance"
    loose = _singular(mechanism, facts)
    if failed.outcome == Outcome.SINGULAR or loose:
        return f"the matrix of the step is singular{loose}; {residual}."
    omega, name = _fastest(mechanism, facts)
    too_fast = omega * dt > 1.0
    words = []
    if facts.gap.size and facts.gap.max() > 1e-4:
        row = mechanism.constraint_names[int(facts.gap.argmax())].split("[")[0]
        reach = "" if too_fast else f": it may be out of reach, or dt = {dt:g} s is too large"
        words.append(f"loop '{row}' stays open by {facts.gap.max():.3g} (m or rad){reach}")
    if too_fast:
        words.append(
            f"dt = {dt:g} s is too large for the mode at {omega / 2 / np.pi:.3g} Hz, mostly of '{name}' "
            f"(ω·dt = {omega * dt:.3g}): try dt ≤ {0.5 / omega:.2g} s or some damping"
        )
    if words:
        return f"{'; '.join(words)}; {residual}."
    return f"Newton's method found no solution near the last state; a smaller dt may help; {residual}."


def _free_directions(facts: _Facts) -> np.ndarray:
    """Rows that span the motions which the constraints leave free."""
    if not facts.slope.size:
        return np.eye(len(facts.mass))
    _, values, rows = np.linalg.svd(facts.slope)
    return rows[int(np.sum(values > 1e-9 * max(values.max(), 1e-12))) :]


def _singular(mechanism: System, facts: _Facts) -> str:
    """Words for a singular KKT matrix: dependent constraint rows, or a coordinate without inertia."""
    free = _free_directions(facts)
    if len(facts.mass) - len(free) < len(facts.slope):
        return " (constraint rows depend on each other: a loop is closed twice or at a dead point)"
    if len(free):
        spread, vectors = np.linalg.eigh(free @ facts.mass @ free.T)
        if spread[0] < 1e-13 * max(spread[-1], 1e-300):
            name = mechanism.coordinate_names[int(np.abs(free.T @ vectors[:, 0]).argmax())]
            return f" (coordinate '{name}' moves freely without inertia)"
    return ""


def _fastest(mechanism: System, facts: _Facts) -> tuple[float, str]:
    """The fastest mode (rad/s) of stiffness against inertia within the constraints, and its coordinate."""
    free = _free_directions(facts)
    if not len(free):
        return 0.0, ""
    stiffness, mass = (free @ m @ free.T for m in (facts.stiffness, facts.mass))
    modes, vectors = np.linalg.eig(np.linalg.solve(mass, stiffness))
    best = int(np.argmax(np.real(modes)))
    shape = np.abs(free.T @ np.real(vectors[:, best]))
    name = mechanism.coordinate_names[int(shape.argmax())]
    return float(np.sqrt(max(0.0, float(np.real(modes[best]))))), name
