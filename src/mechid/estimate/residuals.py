"""Sensor residuals along a course and their derivatives, PIECE samples at a time.

r = difference(predict(observation at fraction s of step k), measured) / std       0 where a sample is missing

Where noise is correlated between channels a matrix takes the place of 1/std (`whitening`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mechid.compile import jit
from mechid.dynamics.course import InputSlopes, Stretch
from mechid.dynamics.intervals import Intervals
from mechid.dynamics.linearization import Slopes, on_all_cores
from mechid.dynamics.model import Model, float_leaves
from mechid.dynamics.stepper import Stepper, moved_by, parameter_count
from mechid.dynamics.tree import Array
from mechid.estimate.samples import Form, Group
from mechid.estimate.whitening import Weight

PIECE = 128
"""samples a call of a compiled program"""


class Loss(NamedTuple):
    """What a sample costs: half its weighted squares, or a function that the user wrote."""

    running: Callable[..., Any] | None = None
    terminal: Callable[..., Any] | None = None
    names: tuple[str, ...] = ()
    """of the parameters that the functions see"""


def residuals(stepper: Stepper, model: Model, group: Group, weight: Weight, stretch: Stretch) -> np.ndarray:
    """(m, c) weighted residuals of the group's samples that lie in a stretch."""

    def one(piece: Any) -> Array:
        rows, count, _ = piece
        return _residuals(stepper, model, group.sensors, rows, count, group.form)

    found = on_all_cores(one, _pieces(group, weight, stretch))
    parts = [np.asarray(r)[:count] for (_, count, _), r in found]
    return np.concatenate([np.zeros((0, group.values.shape[1])), *parts])


def residual_slopes(
    stepper: Stepper,
    model: Model,
    tangent: Any,
    group: Group,
    weight: Weight,
    stretch: Stretch,
    moved: tuple[np.ndarray, ...],
    first: int,
) -> np.ndarray:
    """(m, c, n) derivatives of the weighted residuals of the samples in some steps of a stretch.

    moved: how the states at the steps' ends (one more than steps), multipliers and inputs move; first: the
    first step.
    """
    dx, dz, du = moved
    found = []
    for rows, count, k in _pieces(group, weight, stretch, first, first + len(dz)):
        i = k - first
        changes = (dx[i], dx[i + 1], dz[i], du[i])
        out = _residual_slopes(stepper, model, tangent, group.sensors, rows, changes, count, group.form)
        found.append(np.asarray(out)[:count])
    return np.concatenate([np.zeros((0, group.values.shape[1], dx.shape[-1])), *found])


def sample_rows(
    stepper: Stepper,
    model: Model,
    tangent: Any,
    group: Group,
    weight: Weight,
    stretch: Stretch,
    intervals: Intervals,
    border: int,
) -> np.ndarray:
    """(m, c, columns) weighted residuals of all samples as rows on w, X, θ and 1 of the interval they lie in."""
    nx, columns = stepper.nx(model), intervals.M.shape[-1]
    place = columns - 1 - border

    def one(piece: Any) -> np.ndarray:
        rows, count, k = piece
        late = None if stretch.moved is None else stretch.moved.of(k - stretch.first)
        out = _sample_slopes(stepper, model, tangent, group.sensors, rows, count, group.form, late)
        r, before, after, by_z, by_theta = (np.asarray(a)[:count] for a in out)
        here = _run(k[:count])
        part = after @ intervals.M[here]
        if by_z.any():
            part += by_z @ intervals.Z[here]
        part[..., place - nx : place] += before
        part[..., place:-1] += by_theta
        part[..., -1] += r
        return part

    found, first = np.empty((*group.values.shape, columns)), 0
    for (_, count, _), part in on_all_cores(one, _pieces(group, weight, stretch)):
        found[first : first + count] = part
        first += count
    return found


def _run(k: np.ndarray) -> Any:
    """Numbers that follow each other as a slice, which copies nothing."""
    return slice(k[0], k[-1] + 1) if len(k) and np.array_equal(k, np.arange(k[0], k[-1] + 1)) else k


class Pulled(NamedTuple):
    """Value and slopes of a loss along a stretch."""

    value: float
    by: Slopes
    begin: np.ndarray
    """by the state in which the stretch begins"""
    numbers: list[np.ndarray]
    """by the model's moving numbers"""
    parameters: np.ndarray
    """by the parameters' physical values directly"""


def pulled(
    stepper: Stepper,
    model: Model,
    tangent: Any,
    groups: tuple[Group, ...],
    weights: list[Weight],
    stretch: Stretch,
    loss: Loss,
    values: np.ndarray,
    *,
    last: bool,
) -> Pulled:
    """The loss of the samples in a stretch, and its slopes by all that they depend on."""
    nx, nz, nu, n = stepper.nx(model), stepper.nz(model), model.nu, stretch.steps
    by_states, by_z, by_u = np.zeros((n + 1, nx)), np.zeros((n, nz)), np.zeros((n, nu))
    marks = tuple(x is not None for x in tangent)
    total, direct, grown = 0.0, np.zeros(len(values)), None
    for group, weight in zip(groups, weights, strict=True):
        final = group.times - 1 if last else -1
        for rows, count, k in _pieces(group, weight, stretch):
            ends = (rows[-1] == final).astype(float)
            out = _pull(stepper, model, marks, group.sensors, rows, ends, values, count, group.form, loss)
            value, (x0, x1, z, u), more, by_values = jax.tree.map(np.asarray, out)
            i = (k - stretch.first)[:count]
            for target, slopes in ((i, x0), (i + 1, x1)):
                np.add.at(by_states, target, slopes[:count])
            np.add.at(by_z, i, z[:count])
            np.add.at(by_u, i, u[:count])
            total, direct = total + float(value), direct + by_values
            grown = more if grown is None else [a + b for a, b in zip(grown, more, strict=True)]
    if grown is None:
        grown = [np.zeros(x.shape) for x, m in zip(float_leaves(model), marks, strict=True) if m]
    return Pulled(total, Slopes(by_states[1:], by_z, by_u), by_states[0], grown, direct)


def _pieces(
    group: Group, weight: Weight, stretch: Stretch, first: int | None = None, end: int | None = None
) -> Iterator[tuple[tuple[Any, ...], int, np.ndarray]]:
    """Samples in some steps of a stretch, PIECE at a time: what surrounds each, what was measured, its step."""
    begin = stretch.first if first is None else first
    stop = stretch.first + stretch.steps if end is None else end
    low, high = np.searchsorted(group.interval, [begin, stop])
    for at in range(low, high, PIECE):
        j = np.minimum(np.arange(at, at + PIECE), high - 1)
        k = group.interval[j]
        i = k - stretch.first
        x0, x1 = (
            jax.tree.map(lambda a, i=i + s: a[i], stretch.states)
            for s in (stretch.before, stretch.before + 1)
        )
        now = (x0, x1, stretch.z[i], stretch.u[i], stretch.t[i], k, group.fraction[j])
        yield (*now, group.values[j], weight[j], j), int(min(PIECE, high - at)), k


def _predicted(
    stepper: Stepper, model: Model, sensors: Any, now: tuple[Any, ...], form: Form
) -> tuple[Any, Array]:
    """The observation at a sample, and its weighted residuals."""
    *around, measured, weight, _ = now
    x0, x1, z, u, t, k, s = around
    seen = (stepper.seen_at_end if form.at_ends else stepper.seen)(x0, x1, z, u, t, k, s, model)
    gaps = [
        sensor.difference(sensor.predict(seen, model), measured[a:b])
        for sensor, (a, b) in zip(sensors, pairwise(np.cumsum((0, *form.sizes))), strict=True)
    ]
    gap = jnp.concatenate(gaps)
    return seen, weight @ gap if weight.ndim == 2 else gap * weight


def _residuals_of(
    stepper: Stepper, model: Model, sensors: Any, rows: tuple[Any, ...], count: Array, form: Form
) -> Array:
    def one(i: Array, kept: Array) -> Array:
        now = jax.tree.map(lambda a: a[i], rows)
        return _put(kept, _predicted(stepper, model, sensors, now, form)[1], i)

    return jax.lax.fori_loop(0, count, one, jnp.zeros(rows[7].shape))


def _residual_slopes_of(
    stepper: Stepper,
    model: Model,
    tangent: Any,
    sensors: Any,
    rows: tuple[Any, ...],
    changes: tuple[Array, ...],
    count: Array,
    form: Form,
) -> Array:
    number = changes[0].shape[-1]

    def wide(slope: Array) -> Array:
        return jnp.zeros((*slope.shape[:-1], number)).at[..., : slope.shape[-1]].set(slope)

    slopes = [wide(x) for x in tangent if x is not None]

    def one(i: Array, kept: Array) -> Array:
        now = jax.tree.map(lambda a: a[i], rows)
        x0, x1, z, u = now[:4]
        still = jnp.zeros(stepper.nx(model))

        def moved(d0: Array, d1: Array, z: Array, u: Array, numbers: list[Array]) -> Array:
            around = (stepper.retract(x0, d0), stepper.retract(x1, d1), z, u, *now[4:])
            of_moving, _ = moved_by(
                lambda m: _predicted(stepper, m, sensors, around, form)[1], model, tangent
            )
            return of_moving(numbers)

        _, numbers = moved_by(lambda m: m, model, tangent)

        def column(change: Any) -> Array:
            return jax.jvp(moved, (still, still, z, u, numbers), change)[1]

        now_changes = jax.tree.map(lambda a: a[i], changes)
        return _put(kept, jax.vmap(column, in_axes=-1, out_axes=-1)((*now_changes, slopes)), i)

    return jax.lax.fori_loop(0, count, one, jnp.zeros((*rows[7].shape, number)))


def _sample_slopes_of(
    stepper: Stepper,
    model: Model,
    tangent: Any,
    sensors: Any,
    rows: tuple[Any, ...],
    count: Array,
    form: Form,
    late: InputSlopes | None,
) -> tuple[Array, ...]:
    """Residuals of samples and their slopes by states, multipliers and θ, backwards: they are few."""
    still, nt = jnp.zeros(stepper.nx(model)), parameter_count(tangent)
    _, numbers = moved_by(lambda m: m, model, tangent)
    slopes = [x for x in tangent if x is not None]

    def one(i: Array, kept: tuple[Array, ...]) -> tuple[Array, ...]:
        now = jax.tree.map(lambda a: a[i], rows)

        def at(d0: Array, d1: Array, z: Array, numbers: list[Array], u: Array = now[3]) -> Array:
            around = (stepper.retract(now[0], d0), stepper.retract(now[1], d1), z, u, *now[4:])
            of_moving, _ = moved_by(
                lambda m: _predicted(stepper, m, sensors, around, form)[1], model, tangent
            )
            return of_moving(numbers)

        r, back = jax.vjp(at, still, still, now[2], numbers, *([] if late is None else [now[3]]))
        by0, by1, by_z, by_numbers, *by_u = jax.vmap(back)(jnp.eye(r.shape[0]))
        along = [jnp.tensordot(g, s, g.ndim - 1) for g, s in zip(by_numbers, slopes, strict=True)]
        by_theta = sum(along, jnp.zeros((r.shape[0], nt)))
        if late is not None:
            by_theta += by_u[0] @ (late.by_delay[i][:, None] * late.delays)
        return tuple(_put(a, b, i) for a, b in zip(kept, (r, by0, by1, by_z, by_theta), strict=True))

    sizes = (still.shape[0], still.shape[0], rows[2].shape[-1], nt)
    shape = rows[7].shape
    start = (jnp.zeros(shape), *(jnp.zeros((*shape, n)) for n in sizes))
    return jax.lax.fori_loop(0, count, one, start)


def _pull_of(
    stepper: Stepper,
    model: Model,
    marks: tuple[bool, ...],
    sensors: Any,
    rows: tuple[Any, ...],
    ends: Array,
    values: Array,
    count: Array,
    form: Form,
    loss: Loss,
) -> Any:
    moving = [True if m else None for m in marks]
    still = jnp.zeros(stepper.nx(model))
    _, numbers = moved_by(lambda m: m, model, moving)

    def cost(
        i: Array, d0: Array, d1: Array, z: Array, u: Array, numbers: list[Array], values: Array
    ) -> Array:
        now = jax.tree.map(lambda a: a[i], rows)
        around = (stepper.retract(now[0], d0), stepper.retract(now[1], d1), z, u, *now[4:])

        def of_model(m: Model) -> Array:
            seen, r = _predicted(stepper, m, sensors, around, form)
            if loss.running is None:
                return 0.5 * r @ r
            named = dict(zip(loss.names, values, strict=True))
            total = jnp.asarray(loss.running(seen, now[7], named), float)
            if loss.terminal is not None:
                total += ends[i] * jnp.asarray(loss.terminal(seen, now[7], named), float)
            return total

        return moved_by(of_model, model, moving)[0](numbers)

    def one(i: Array, state: Any) -> Any:
        total, kept, grown, direct = state
        z, u = rows[2][i], rows[3][i]
        value, slopes = jax.value_and_grad(cost, argnums=(1, 2, 3, 4, 5, 6))(
            i, still, still, z, u, numbers, values
        )
        *around, by_numbers, by_values = slopes
        kept = tuple(_put(a, b, i) for a, b in zip(kept, around, strict=True))
        grown = [a + b for a, b in zip(grown, by_numbers, strict=True)]
        return total + value, kept, grown, direct + by_values

    m, nx = rows[7].shape[0], still.shape[0]
    kept = tuple(jnp.zeros((m, size)) for size in (nx, nx, rows[2].shape[1], rows[3].shape[1]))
    start = (jnp.zeros(()), kept, [jnp.zeros(x.shape) for x in numbers], jnp.zeros(values.shape))
    return jax.lax.fori_loop(0, count, one, start)


def _put(kept: Array, new: Array, i: Array) -> Array:
    return jax.lax.dynamic_update_index_in_dim(kept, new, i, 0)


_residuals = jit(_residuals_of, static_argnums=(5,))
_residual_slopes = jit(_residual_slopes_of, static_argnums=(7,))
_sample_slopes = jit(_sample_slopes_of, static_argnums=(6,))
_pull = jit(_pull_of, static_argnums=(2, 8, 9))
