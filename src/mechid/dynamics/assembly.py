"""`assemble`: coordinates near a guess that close every loop; `project_rates`: rates that keep them closed."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from mechid.compile import jit
from mechid.dynamics.model import Model
from mechid.dynamics.stepper import held
from mechid.errors import MechidError
from mechid.model import closures
from mechid.model.geometry import Array
from mechid.model.system import System

CLOSED = 1e-10
"""m or rad: what counts as closed"""

_constraint = jit(lambda model, q, u: model.constraint(q, u), once=True)
_rolling = jit(lambda model, q, v, t: model.rolling(q, v, t), once=True)


def assemble(
    mechanism: System,
    guess: dict[str, float] | ArrayLike | None = None,
    *,
    hold: Sequence[str] | str = (),
) -> Array:
    """Coordinates that close every loop and coupling, found from a guess by projection.

    Coordinates named in `hold` and driven ones keep their guess. A loop that cannot be closed is named, with how
    far it stays open.
    """
    hold = _names(hold)
    start = mechanism.coordinate_vector(guess, "The guess for coordinate")
    free = np.ones(len(start), dtype=bool)
    for name in [*hold, *(d.coordinate for d in mechanism.drives)]:
        mechanism.coordinate(name)
        free[mechanism.coordinate_names.index(name)] = False
    q = start
    # frames first by coinciding points, which has no turned-over solutions, then by their own rows
    for stage in (_by_points(mechanism), mechanism):
        if stage is not None:
            q = _project(stage, stage.lower(), q, free)
    _check_closed(mechanism, q, hold)
    return q


def project_rates(
    mechanism: System,
    q: ArrayLike,
    rates: dict[str, float] | ArrayLike | None,
    *,
    hold: Sequence[str] | str = (),
) -> Array:
    """Rates near the given ones that keep all loops closed at q, and wheels rolling; those in `hold` are kept."""
    hold = _names(hold)
    for name in hold:
        mechanism.coordinate(name)
    v = mechanism.coordinate_vector(rates, "The rate of coordinate")
    q = mechanism.coordinate_vector(q, "The coordinate")  # type: ignore[arg-type]
    model = mechanism.lower()
    slope = constraint_rows(mechanism, model, q)[1][: _undriven(mechanism)]
    opening, slope = _opening(model, slope, q, v, 0.0)
    free = np.array([c.name not in hold for c in mechanism.coordinates])
    change = np.zeros_like(v)
    change[free] = -np.linalg.pinv(slope[:, free]) @ opening
    v, left = v + change, np.abs(opening + slope @ change)
    if left.max(initial=0.0) > 1e-9 * max(1.0, np.abs(v).max(initial=0.0)):
        row = _rate_names(mechanism)[int(left.argmax())].split("[")[0]
        raise MechidError(
            f"No rates with {', '.join(hold)} held keep '{row}' closed: it opens at {left.max():.3g} m/s or rad/s."
        )
    return v


def _names(hold: Sequence[str] | str) -> Sequence[str]:
    if isinstance(hold, str):
        return [hold]
    if not isinstance(hold, list | tuple | set) or not all(isinstance(name, str) for name in hold):
        raise MechidError(f"What to hold must name coordinates, not {hold!r}.")
    return list(hold)


def check_start(
    mechanism: System, model: Model, closure: Array, slope: Array, q: Array, v: Array, t: float
) -> None:
    """Refuse a start that leaves a loop open or tears it apart: closures h, their slope Dh and the rates."""
    rates, _ = _opening(model, slope[: _undriven(mechanism)], q, v, t)
    for what, values, unit, allowed, remedy in (
        ("leave", closure, "m or rad", 1e-6, "assemble(…)"),
        ("open", rates, "m/s or rad/s", 1e-6 * max(1.0, np.abs(v).max(initial=0)), "project_rates(…)"),
    ):
        if len(values) and np.abs(values).max() > allowed:
            worst = int(np.abs(values).argmax())
            names = mechanism.constraint_names if what == "leave" else _rate_names(mechanism)
            row = names[worst].split("[")[0]
            raise MechidError(
                f"The initial {'coordinates' if what == 'leave' else 'rates'} {what} '{row}' "
                f"{'open by' if what == 'leave' else 'at'} {abs(values[worst]):.3g} {unit}: "
                f"find consistent ones with {remedy}."
            )


def _opening(model: Model, slope: Array, q: Array, v: Array, t: float) -> tuple[Array, Array]:
    """What must vanish of rates, and its slope by them: loops with this slope, then rolling."""
    if not model.nr:
        return slope @ v, slope
    rolling, along = map(np.asarray, _rolling(model, q, v, t))
    return np.concatenate([slope @ v, rolling]), np.concatenate([slope, along])


def _rate_names(mechanism: System) -> tuple[str, ...]:
    return (*mechanism.constraint_names[: _undriven(mechanism)], *mechanism.rolling_names)


def check_inertia(mechanism: System, model: Model, q: Array, v: Array, t: float) -> None:
    """Refuse a start where equations that were written down do not tell all accelerations.

    Bodies have inertia by themselves, or are looked at where a step fails; formulas can be mistaken.
    """
    if mechanism.bodies:
        return
    M, slope = map(np.asarray, _inertia(model, q, v, np.zeros(model.nu), t))
    rows = len(slope)
    K = np.block([[M, slope.T], [slope, np.zeros((rows, rows))]])
    what = "mass matrix" if not rows else "mass matrix with the constraints"
    remedy = "check them, the parameters' values and the start."
    if not np.all(np.isfinite(K)):
        raise MechidError(
            f"The {what} of '{mechanism.name}' is not finite at the start: the equations have no value there; "
            f"{remedy}"
        )
    size = np.sqrt(np.maximum(np.abs(K).max(axis=1), 1e-300))
    _, values, right = np.linalg.svd(K / np.outer(size, size))
    # each row is scaled to one: what is left of nothing but zeros is zero
    if values[-1] <= 1e-12 * values[0]:
        worst = int(np.abs(right[-1, : len(M)]).argmax())
        raise MechidError(
            f"The {what} of '{mechanism.name}' is singular at the start: the equations do not tell the "
            f"acceleration of '{mechanism.coordinate_names[worst]}' there; {remedy}"
        )


@partial(jit, once=True)
def _inertia(model: Model, q: Array, v: Array, u: Array, t: float) -> tuple[Any, Any]:
    return inertia(model, q, v, u, t), held(model, q, v, u, t)[1]  # type: ignore[arg-type]


def inertia(model: Model, q: Any, v: Any, u: Any, t: Any) -> Any:
    """What multiplies accelerations at a time: M(q, t), where formulas may hold time."""
    return jax.jacfwd(lambda a: model.force_balance(q, v, a, u, t))(jnp.zeros_like(v))


def _undriven(mechanism: System) -> int:
    return len(mechanism.constraint_names) - len(mechanism.drives)


def constraint_rows(mechanism: System, model: Model, q: Array) -> tuple[Array, Array]:
    """Closures and their slopes, driven rows satisfied."""
    u = with_driven(mechanism, np.zeros(len(mechanism.input_names)), q)
    h, slope = _constraint(model, q, u)
    return np.asarray(h), np.asarray(slope)


def with_driven(mechanism: System, u: Array, q: Array) -> Array:
    """Inputs whose drives stand where the coordinates are."""
    u = np.array(u, dtype=float)
    for d in mechanism.drives:
        u[mechanism.input_names.index(d.name)] = q[mechanism.coordinate_names.index(d.coordinate)]
    return u


def _by_points(mechanism: System) -> System | None:
    """The mechanism with its frame closures written as four coinciding points."""
    if not any(loop.kind in ("frame", "point-on-axis") for loop in mechanism.loops):
        return None
    loops = tuple(
        dataclasses.replace(loop, rows=closures.four_points(loop.first, loop.second))
        if loop.kind in ("frame", "point-on-axis")
        else loop
        for loop in mechanism.loops
    )
    return dataclasses.replace(mechanism, loops=loops)  # type: ignore[type-var]


def _project(mechanism: System, model: Model, q: Array, free: np.ndarray) -> Array:
    """Damped Gauss–Newton onto the constraint, moving as little as it can."""
    q, damping = q.copy(), 1e-3
    h, slope = constraint_rows(mechanism, model, q)
    for _ in range(200):
        size = np.abs(h).max(initial=0.0)
        if size < CLOSED * 1e-2:
            break
        J = slope[:, free]
        lhs = J @ J.T + damping * np.linalg.norm(h) * np.eye(len(h))
        trial = q.copy()
        trial[free] -= J.T @ np.linalg.lstsq(lhs, h, rcond=None)[0]
        new_h, new_slope = constraint_rows(mechanism, model, trial)
        if np.all(np.isfinite(new_h)) and np.linalg.norm(new_h) < np.linalg.norm(h):
            q, h, slope, damping = trial, new_h, new_slope, max(damping / 5, 1e-12)
        else:
            damping *= 10
            if damping > 1e12:
                break
    return q


def _check_closed(mechanism: System, q: Array, hold: Sequence[str]) -> None:
    h, _ = constraint_rows(mechanism, mechanism.lower(), q)
    if np.abs(h).max(initial=0.0) <= CLOSED:
        return
    gaps = {gap: size for gap, size in _gaps(mechanism, h).items() if size > CLOSED}
    name, unit = max(gaps, key=lambda gap: gaps[gap])
    held = f" with {', '.join(hold)} held" if hold else ""
    others = len({loop for loop, _ in gaps} - {name})
    more = f" ({others} more stay open)" if others else ""
    raise MechidError(
        f"Loop '{name}' cannot be closed{held}: it stays open by {gaps[name, unit]:.3g} {unit}{more}."
    )


def _gaps(mechanism: System, h: Array) -> dict[tuple[str, str], float]:
    """How far each loop is open in m and in rad: the length of its rows of that unit."""
    units = [r.unit for loop in mechanism.loops for r in loop.rows]
    joined = [c.coordinate for c in (*mechanism.couplings, *mechanism.drives)]
    units += [mechanism.coordinate(name).unit for name in joined]
    units = units or ["m or rad"] * len(h)  # constraints in symbols
    gaps: dict[tuple[str, str], float] = {}
    for name, unit, value in zip(mechanism.constraint_names, units, h, strict=True):
        key = (name.split("[")[0], unit)
        gaps[key] = float(np.hypot(gaps.get(key, 0.0), value))
    return gaps
