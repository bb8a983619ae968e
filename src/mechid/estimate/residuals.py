"""Weighted residuals of a log's samples, as a pure function of a motion.

r = difference(predict(observation at fraction s of step k), measured) / std       0 where a sample is missing

Where noise is correlated between channels a matrix takes the place of 1/std (`whitening`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mechid.compile import jit, register
from mechid.dynamics.driver import capacity, padded
from mechid.dynamics.intervals import GivenMotion, InputSlopes, Intervals
from mechid.dynamics.model import Model
from mechid.dynamics.rollout import Motion, scan_blocks
from mechid.dynamics.stepper import Stepper, moved_by, parameter_count
from mechid.dynamics.tree import Array
from mechid.estimate.samples import Form, Group
from mechid.estimate.whitening import Weight, weighting
from mechid.threads import on_all_cores

PIECE = 128
"""samples whose rows are computed by one call"""


class Loss(NamedTuple):
    """What a sample costs: half its weighted squares, or a function that the user wrote."""

    running: Callable[..., Any] | None = None
    terminal: Callable[..., Any] | None = None
    names: tuple[str, ...] = ()
    """of the parameters that the functions see"""


class Samples(NamedTuple):
    """The samples of a group that lie in a chunk of a motion, padded to few lengths."""

    step: Any
    """(m,) the step in which each lies, counted from the chunk's first"""
    fraction: Any
    """(m,) where in it, 0 … 1"""
    values: Any
    """(m, c)"""
    weight: Any
    """(m, c) or (m, c, c)"""
    last: Any
    """(m,) 1 for the last sample of the log, else 0"""
    count: Any
    """how many are meant"""


@dataclass(frozen=True, eq=False)
class Comparison:
    """Compares a chunk of a motion with the samples in it (`mechid.dynamics.driver.Comparison`).

    Called, it gives the weighted residuals (m, c) of each group, a tuple; or, where the user wrote a cost, its sum.
    """

    sensors: tuple[tuple[Any, ...], ...]
    samples: tuple[Samples, ...]
    forms: tuple[Form, ...]
    loss: Loss

    def __call__(self, stepper: Stepper, model: Model, motion: Motion, values: Array) -> Any:
        groups = zip(self.sensors, self.samples, self.forms, strict=True)
        found = tuple(self._of_group(stepper, model, motion, values, *group) for group in groups)
        return found if self.loss.running is None else sum((jnp.sum(x) for x in found), jnp.zeros(()))

    def _of_group(
        self,
        stepper: Stepper,
        model: Model,
        motion: Motion,
        values: Array,
        sensors: Any,
        samples: Samples,
        form: Form,
    ) -> Array:
        step, fraction, measured, weight, last, count = samples
        k = jnp.asarray(step)
        x0, x1 = (jax.tree.map(lambda a, i=k + i: a[i], motion.states) for i in (0, 1))
        around = (x0, x1, motion.z[k], motion.u[k], motion.t[k], motion.k[k])

        def one(carry: tuple[()], now: tuple[Any, ...]) -> tuple[tuple[()], Array]:
            *parts, ends = now
            seen, r = predicted(stepper, model, sensors, tuple(parts), form)
            if self.loss.running is None:
                return carry, r
            here, named = parts[-2], dict(zip(self.loss.names, values, strict=True))
            total = jnp.asarray(self.loss.running(seen, here, named), float)
            if self.loss.terminal is not None:
                total += ends * jnp.asarray(self.loss.terminal(seen, here, named), float)
            return carry, total

        rows = jax.tree.map(jnp.asarray, (*around, fraction, measured, weight, last))
        return scan_blocks(one, (), rows, count)


register(Comparison, ["sensors", "samples"], ["forms", "loss"])


def comparison(
    groups: tuple[Group, ...], weights: list[Weight], loss: Loss, first: int, end: int, length: int
) -> Comparison:
    """The comparison for the steps from `first` to `end`, its samples padded to the capacity of `length` steps."""
    samples = []
    for group, weight in zip(groups, weights, strict=True):
        low, high = np.searchsorted(group.interval, [first, end])
        size = capacity(_most_in(group.interval, length))
        j = np.arange(low, high)
        last = (j == group.times - 1).astype(float)
        parts = (group.interval[j] - first, group.fraction[j], group.values[j], weight[j], last)
        step, fraction, values, scale, ends = (padded(a, size) for a in parts)
        samples.append(Samples(step, fraction, values, scale, ends, high - low))
    sensors, forms = tuple(g.sensors for g in groups), tuple(g.form for g in groups)
    return Comparison(sensors, tuple(samples), forms, loss)


def _most_in(interval: np.ndarray, length: int) -> int:
    """The largest number of samples in a chunk of so many steps."""
    return int(np.bincount(interval // length, minlength=1).max()) if len(interval) else 0


def predicted(
    stepper: Stepper, model: Model, sensors: Any, now: tuple[Any, ...], form: Form
) -> tuple[Any, Array]:
    """The observation at a sample, and its weighted residuals."""
    *around, measured, weight = now
    x0, x1, z, u, t, k, s = around
    seen = (stepper.seen_at_end if form.at_ends else stepper.seen)(x0, x1, z, u, t, k, s, model)
    gaps = [
        sensor.difference(sensor.predict(seen, model), measured[a:b])
        for sensor, (a, b) in zip(sensors, pairwise(np.cumsum((0, *form.sizes))), strict=True)
    ]
    gap = jnp.concatenate(gaps)
    return seen, weight @ gap if weight.ndim == 2 else gap * weight


# Motions whose states are unknowns


def residuals(
    stepper: Stepper, model: Model, groups: tuple[Group, ...], weights: list[Weight], given: GivenMotion
) -> tuple[np.ndarray, ...]:
    """(m, c) weighted residuals of each group along a motion whose states are given."""
    n = given.steps
    compare = comparison(groups, weights, Loss(), 0, n, n)
    found = _compared(stepper, model, given.padded(capacity(n)), compare)
    return tuple(np.asarray(r)[: g.times] for r, g in zip(found, groups, strict=True))


def compile_residuals(
    stepper: Stepper, model: Model, groups: tuple[Group, ...], given: GivenMotion, steps: int
) -> None:
    """Compile what `residuals` calls for so many steps; given: a motion of any length."""
    weights = [weighting(g, np.ones(len(g.std))) for g in groups]
    compare = comparison(groups, weights, Loss(), 0, 0, steps)
    _compared(stepper, model, given.padded(capacity(steps)), compare)


@jit
def _compared(stepper: Stepper, model: Model, motion: Motion, compare: Comparison) -> Any:
    return compare(stepper, model, motion, jnp.zeros(0))


def sample_rows(
    stepper: Stepper,
    model: Model,
    tangent: Any,
    group: Group,
    weight: Weight,
    given: GivenMotion,
    intervals: Intervals,
    border: int,
) -> np.ndarray:
    """(m, c, columns) weighted residuals of all samples as rows on w, X, θ and 1 of the interval they lie in."""
    nx, columns = stepper.nx(model), intervals.M.shape[-1]
    place = columns - 1 - border

    def one(piece: Any) -> np.ndarray:
        rows, count, k = piece
        late = None if given.moved is None else given.moved.of(k)
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
    for (_, count, _), part in on_all_cores(one, _pieces(group, weight, given)):
        found[first : first + count] = part
        first += count
    return found


def _run(k: np.ndarray) -> Any:
    """Numbers that follow each other as a slice, which copies nothing."""
    return slice(k[0], k[-1] + 1) if len(k) and np.array_equal(k, np.arange(k[0], k[-1] + 1)) else k


def _pieces(group: Group, weight: Weight, given: GivenMotion) -> Any:
    """Samples of a motion, PIECE at a time: what surrounds each, what was measured, its step."""
    for at in range(0, group.times, PIECE):
        j = np.minimum(np.arange(at, at + PIECE), group.times - 1)
        k = group.interval[j]
        x0, x1 = (jax.tree.map(lambda a, i=k + s: a[i], given.states) for s in (0, 1))
        now = (x0, x1, given.z[k], given.u[k], given.t[k], k, group.fraction[j])
        yield (*now, group.values[j], weight[j]), int(min(PIECE, group.times - at)), k


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
            of_moving, _ = moved_by(lambda m: predicted(stepper, m, sensors, around, form)[1], model, tangent)
            return of_moving(numbers)

        r, back = jax.vjp(at, still, still, now[2], numbers, *([] if late is None else [now[3]]))
        by0, by1, by_z, by_numbers, *by_u = jax.vmap(back)(jnp.eye(r.shape[0]))
        along = [jnp.tensordot(g, s, g.ndim - 1) for g, s in zip(by_numbers, slopes, strict=True)]
        by_theta = sum(along, jnp.zeros((r.shape[0], nt)))
        if late is not None:
            by_theta += by_u[0] @ (late.by_delay[i][:, None] * late.delays)
        found = (r, by0, by1, by_z, by_theta)
        return tuple(
            jax.lax.dynamic_update_index_in_dim(a, b, i, 0) for a, b in zip(kept, found, strict=True)
        )

    sizes = (still.shape[0], still.shape[0], rows[2].shape[-1], nt)
    shape = rows[7].shape
    start = (jnp.zeros(shape), *(jnp.zeros((*shape, n)) for n in sizes))
    return jax.lax.fori_loop(0, count, one, start)


_sample_slopes = jit(_sample_slopes_of, static_argnums=(6,))
