"""Impulses of SPOOK within bounds: contacts and stops, which only push, and dry friction.

Everything that is held from both sides is eliminated (Schur complement), so that boxes alone remain for `dry` to
decide (Marklund, Eqs. 2.24 and 2.27).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mechid.dynamics import dry
from mechid.dynamics.contacts import grip
from mechid.dynamics.model import TreeModel
from mechid.dynamics.spook_rows import counts
from mechid.dynamics.tree import Array


class Box(NamedTuple):
    """Rows held from one side, and friction along planes."""

    index: np.ndarray
    """among all rows that close"""
    one_sided: np.ndarray
    bound: Array
    inertia: Array
    blur: Array


def box(model: TreeModel, z: Array) -> Box:
    count = counts(model)
    k, stops = count.contacts // 3, count.stops
    index = np.concatenate([np.arange(count.contacts), count.closing - stops + np.arange(stops)]).astype(int)
    one_sided = np.repeat([True, False, True], [k, 2 * k, stops])
    if not len(index):
        return Box(index, one_sided, *[jnp.zeros(0)] * 3)
    bound = jnp.concatenate([jnp.zeros(k), grip(model.contacts, z[:k]), jnp.zeros(stops)])
    blur = jnp.concatenate([model.contacts.blur, model.stops.blur])
    inertia = jnp.concatenate([model.contacts.inertia, model.stops.inertia])
    return Box(index, one_sided, bound, inertia, blur)


def loads(model: TreeModel) -> Array:
    """(d, closing rows) U: how each impulse of a joint adds to the bound of friction on its coordinates (F.4)."""
    own, count = model.maximal, counts(model)
    turning = own.row_to.link == own.row_start.link
    coefficient, radius = model.dry.values[:, 4:].T
    carried = own.owner[model.dry.index][:, None] == own.row_to.link[None]
    weights = carried * coefficient[:, None] * jnp.where(turning[None], 1.0, radius[:, None])
    others = count.closing - count.contacts - turning.shape[0]
    return jnp.pad(weights, ((0, 0), (count.contacts, others)))


# A step


class Boxed(NamedTuple):
    """Everything with a bounded impulse in a step: contacts, stops, dry friction."""

    rows: Array
    """(b, 6 bodies) Jacobian"""
    sigma: Array
    target: Array
    """rates that they are to move at, or more"""
    bound: Array
    one_sided: np.ndarray
    index: np.ndarray
    """of contacts and stops among the rows that close"""


def gathered(
    model: TreeModel,
    found: Box,
    closing: Array,
    rates: Array,
    sigma: Array,
    target: Array,
    old: Array,
    h: Array,
) -> Boxed:
    """The boxes of a step, from all rows that close, the coordinates' rates and old velocities."""
    on, i = model.dry.index, found.index
    return Boxed(
        jnp.concatenate([closing[i], rates[on]]),
        jnp.concatenate([sigma[i], dry.CREEP / model.dry.inertia]),
        jnp.concatenate([target[i], jnp.zeros(on.shape[0])]),
        jnp.concatenate([jnp.zeros(len(i)), h * dry.level(model.dry.values, rates[on] @ old)]),
        np.concatenate([found.one_sided, np.zeros(on.shape[0], bool)]),
        i,
    )


def solved(
    kkt: Array, right: Array, boxed: Boxed, model: TreeModel, guess: Array
) -> tuple[Array, Array, Array]:
    """Velocities, then all impulses, and what is left of the boxed rows."""
    count, half, b = counts(model), boxed.rows.shape[1], boxed.rows.shape[0]
    pushed = jnp.concatenate([boxed.rows, jnp.zeros((b, kkt.shape[0] - half))], 1)
    both = jnp.linalg.solve(kkt, jnp.concatenate([right[:, None], pushed.T], 1))
    free, moved = both[:, 0], both[:, 1:]
    # the loads: impulses of joints, then those across planes
    k, joints = count.contacts // 3, model.maximal.row_to.link.shape[0]
    across = jnp.eye(k, b)
    U = jnp.zeros((b, joints + k))
    U = U.at[b - count.dry :, :joints].set(loads(model)[:, count.contacts : count.contacts + joints])
    U = U.at[k : 3 * k, joints:].set(jnp.repeat(jnp.diag(model.contacts.friction), 2, axis=0))
    slide = dry.Slide(
        boxed.rows @ free[:half] - boxed.target,
        boxed.rows @ moved[:half],
        boxed.sigma,
        boxed.bound,
        jnp.concatenate([free[half : half + joints], jnp.zeros(k)]),
        jnp.concatenate([moved[half : half + joints], across]),
        U,
        boxed.one_sided,
    )
    places = np.concatenate([boxed.index, count.closing + np.arange(count.dry)]).astype(int)
    impulses, error = dry.solved(slide, guess[places])
    ended = free + moved @ impulses
    z = jnp.zeros(sum(count)).at[places].set(impulses)
    z = z.at[np.delete(np.arange(count.closing), boxed.index)].set(ended[half:])
    return ended, z, error


# Slopes


def held_slopes(
    found: Box, closed: Array, z: Array, slopes: tuple[Array, ...], model: TreeModel
) -> tuple[Array, ...]:
    """Slopes of all rows that close by old states, new velocities, impulses and inputs, with those of stops and
    contacts in the place of rows that are held from both sides.

    closed: rates of the rows, boxed or not.
    """
    i, k = found.index, model.contacts.friction.shape[0]
    given = (z[i], closed[i], found.bound, found.inertia, found.blur, found.one_sided)
    own, by_rate, by_bound = dry.boxed_slopes(*given)
    old, new, held, driven = (a.at[i].multiply(by_rate[:, None]) for a in slopes)
    across = np.repeat(np.arange(k), 2)
    gripped = by_bound[k : 3 * k] * model.contacts.friction[across] * jnp.sign(z[across])
    return old, new, held.at[i, i].add(own).at[k + np.arange(2 * k), across].add(gripped), driven


class Sliding(NamedTuple):
    """Slopes of the rows of dry friction."""

    old: Array
    """(d, 12 bodies) by the old state"""
    new: Array
    """(d, 6 bodies) by new velocities"""
    loads: Array
    """(d, closing rows) by the impulses of joints"""
    own: Array
    """(d,) by their own"""


def sliding_slopes(
    model: TreeModel,
    z: Array,
    stuck: Array,
    moved: tuple[Array, Array],
    bound: Array,
    rates: Array,
    turned: tuple[Array, Array],
    h: Array,
) -> Sliding:
    """moved: rates of all coordinates, old and new; rates, turned: their slopes by velocities, and those of the old
    and the new ones by the old poses."""
    on, half = model.dry.index, rates.shape[1]
    own, by_rate, by_bound = dry.slopes(stuck, moved[1][on], bound, model.dry.inertia, model.dry.blur)
    steep = jax.vmap(jax.grad(dry.level, argnums=1))(model.dry.values, moved[0][on])
    before = jnp.concatenate([turned[0][on], rates[on]], 1) * (by_bound * h * steep)[:, None]
    after = jnp.pad(turned[1][on], ((0, 0), (0, half))) * by_rate[:, None]
    return Sliding(
        before + after, rates[on] * by_rate[:, None], by_bound[:, None] * loads(model) * jnp.sign(z), own
    )
