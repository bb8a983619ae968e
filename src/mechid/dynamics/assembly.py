"""`assemble`: coordinates near a guess that close every loop; `project_rates`: rates that keep them closed."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from mechid.compile import jit
from mechid.dynamics.lowering import lower
from mechid.dynamics.model import TreeModel
from mechid.errors import MechidError
from mechid.model import closures
from mechid.model.geometry import Array
from mechid.model.mechanism import Mechanism

CLOSED = 1e-10
"""m or rad: what counts as closed"""

_constraint = jit(lambda model, q, u: model.constraint(q, u), once=True)


def assemble(
    mechanism: Mechanism,
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
            q = _project(stage, lower(stage), q, free)
    _check_closed(mechanism, q, hold)
    return q


def project_rates(
    mechanism: Mechanism,
    q: ArrayLike,
    rates: dict[str, float] | ArrayLike | None,
    *,
    hold: Sequence[str] | str = (),
) -> Array:
    """Rates near the given ones that keep all loops closed at q; those named in `hold` are kept."""
    hold = _names(hold)
    for name in hold:
        mechanism.coordinate(name)
    v = mechanism.coordinate_vector(rates, "The rate of coordinate")
    q = mechanism.coordinate_vector(q, "The coordinate")  # type: ignore[arg-type]
    slope = constraint_rows(mechanism, lower(mechanism), q)[1][: _undriven(mechanism)]
    free = np.array([c.name not in hold for c in mechanism.coordinates])
    v = v.copy()
    v[free] -= np.linalg.pinv(slope[:, free]) @ (slope @ v)
    left = np.abs(slope @ v)
    if left.max(initial=0.0) > 1e-9 * max(1.0, np.abs(v).max(initial=0.0)):
        row = mechanism.constraint_names[int(left.argmax())].split("[")[0]
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


def check_start(mechanism: Mechanism, closure: Array, slope: Array, v: Array) -> None:
    """Refuse a start that leaves a loop open or tears it apart: closures h, their slope Dh and the rates."""
    rates = slope[: _undriven(mechanism)] @ v
    for what, values, unit, allowed, remedy in (
        ("leave", closure, "m or rad", 1e-6, "assemble(…)"),
        ("open", rates, "m/s or rad/s", 1e-6 * max(1.0, np.abs(v).max(initial=0)), "project_rates(…)"),
    ):
        if len(values) and np.abs(values).max() > allowed:
            worst = int(np.abs(values).argmax())
            row = mechanism.constraint_names[worst].split("[")[0]
            raise MechidError(
                f"The initial {'coordinates' if what == 'leave' else 'rates'} {what} '{row}' "
                f"{'open by' if what == 'leave' else 'at'} {abs(values[worst]):.3g} {unit}: "
                f"find consistent ones with {remedy}."
            )


def _undriven(mechanism: Mechanism) -> int:
    return len(mechanism.constraint_names) - len(mechanism.drives)


def constraint_rows(mechanism: Mechanism, model: TreeModel, q: Array) -> tuple[Array, Array]:
    """Closures and their slopes, driven rows satisfied."""
    u = with_driven(mechanism, np.zeros(len(mechanism.input_names)), q)
    h, slope = _constraint(model, q, u)
    return np.asarray(h), np.asarray(slope)


def with_driven(mechanism: Mechanism, u: Array, q: Array) -> Array:
    """Inputs whose drives stand where the coordinates are."""
    u = np.array(u, dtype=float)
    for d in mechanism.drives:
        u[mechanism.input_names.index(d.name)] = q[mechanism.coordinate_names.index(d.coordinate)]
    return u


def _by_points(mechanism: Mechanism) -> Mechanism | None:
    """The mechanism with its frame closures written as four coinciding points."""
    if not any(loop.kind in ("frame", "point-on-axis") for loop in mechanism.loops):
        return None
    loops = tuple(
        dataclasses.replace(loop, rows=closures.four_points(loop.first, loop.second))
        if loop.kind in ("frame", "point-on-axis")
        else loop
        for loop in mechanism.loops
    )
    return dataclasses.replace(mechanism, loops=loops)


def _project(mechanism: Mechanism, model: TreeModel, q: Array, free: np.ndarray) -> Array:
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


def _check_closed(mechanism: Mechanism, q: Array, hold: Sequence[str]) -> None:
    h, _ = constraint_rows(mechanism, lower(mechanism), q)
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


def _gaps(mechanism: Mechanism, h: Array) -> dict[tuple[str, str], float]:
    """How far each loop is open in m and in rad: the length of its rows of that unit."""
    units = [r.unit for loop in mechanism.loops for r in loop.rows]
    joined = [c.coordinate for c in (*mechanism.couplings, *mechanism.drives)]
    units += [mechanism.coordinate(name).unit for name in joined]
    gaps: dict[tuple[str, str], float] = {}
    for name, unit, value in zip(mechanism.constraint_names, units, h, strict=True):
        key = (name.split("[")[0], unit)
        gaps[key] = float(np.hypot(gaps.get(key, 0.0), value))
    return gaps
