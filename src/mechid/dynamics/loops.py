"""Holonomic constraints h(q, u) = 0 with their derivatives: loop rows, couplings of coordinates, driven ones.

Every geometric row is n·(x_b − x_a) with a direction n and points x fixed to links. For a point of link e and
j ≤ i ≤ e:  ∂x/∂q_i = ω_i × x + s_i,  ∂²x/∂q_i∂q_j = ω_j × ∂x/∂q_i; a direction turns with ω alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from mechid.dynamics.tree import Array, Kinematics, TreeArrays, cross, spread, take


class Attached(NamedTuple):
    """Vectors fixed to links."""

    link: Array
    """(r,) coordinate that carries it; n is the world"""
    vector: Array
    """(r, 3) in that coordinate's frame, m (or 1 for a direction)"""


@dataclass(frozen=True, eq=False)
class LoopArrays(TreeArrays):
    """What constraints need of a model."""

    row_direction: Attached
    row_to: Attached
    row_start: Attached
    coupling_index: Array
    """(c, 2) coordinate and the other one"""
    coupling: Array
    """(c, 5) polynomial coefficients"""
    drive_index: Array
    """(d, 2) coordinate and its input"""


def points(at: Kinematics, where: Attached) -> Array:
    """World positions of attached points."""
    pose = take(at.pose, where.link)
    return jnp.einsum("rij,rj->ri", pose[:, :3, :3], where.vector) + pose[:, :3, 3]


def point_jacobian(tree: TreeArrays, at: Kinematics, link: Array, x: Array) -> Array:
    """(r, n, 3) ∂x/∂q for points x (r, 3) of links."""
    moved = cross(at.omega[None], x[:, None]) + at.s[None]
    return moved * take(tree.ancestry, link)[:, :, None]


class Rows(NamedTuple):
    """The geometric rows at a configuration: directions, gaps x_b − x_a, and how both move with q."""

    direction: Array
    gap: Array
    """(r, 3)"""
    turned: Array
    moved: Array
    """(r, n, 3)"""


def geometric_rows(model: LoopArrays, at: Kinematics) -> Rows:
    """All three vectors of every row at once: compile time counts."""
    parts = (model.row_direction, model.row_to, model.row_start)
    link = jnp.concatenate([p.link for p in parts])
    pose = take(at.pose, link)
    # a direction turns only, a point moves too
    r = model.row_direction.link.shape[0]
    point = jnp.concatenate([jnp.zeros((r, 1)), jnp.ones((2 * r, 1))])
    vector = jnp.concatenate([p.vector for p in parts])
    x = jnp.sum(pose[:, :3, :3] * vector[:, None], -1) + point * pose[:, :3, 3]
    slope = cross(at.omega[None], x[:, None]) + point[:, None] * at.s[None]
    direction, to, start = x.reshape(3, r, 3)
    turned, moved_to, moved_start = (slope * take(model.ancestry, link)[:, :, None]).reshape(3, r, -1, 3)
    return Rows(direction, to - start, turned, moved_to - moved_start)


def constraint(model: LoopArrays, at: Kinematics, q: Array, u: Array) -> tuple[Array, Array]:
    """h and Dh: geometric rows, then couplings, then drives."""
    joint_h, joint_slope = joint_rows(model, q, u)
    if not model.row_direction.link.shape[0]:
        return joint_h, joint_slope
    rows = geometric_rows(model, at)
    h = jnp.sum(rows.direction * rows.gap, -1)
    slope = jnp.sum(rows.turned * rows.gap[:, None] + rows.moved * rows.direction[:, None], -1)
    return jnp.concatenate([h, joint_h]), jnp.concatenate([slope, joint_slope])


def input_slope(model: LoopArrays, nu: int) -> Array:
    """∂h/∂u: only drives see inputs."""
    others = model.row_direction.link.shape[0] + model.coupling_index.shape[0]
    return jnp.concatenate([jnp.zeros((others, nu)), -jax.nn.one_hot(model.drive_index[:, 1], nu)])


def joint_rows(model: LoopArrays, q: Array, u: Array) -> tuple[Array, Array]:
    """The rows on joint coordinates, with their slopes: couplings, then drives."""
    n = q.shape[0]
    one, other = model.coupling_index.T
    polynomial, slope, _ = _polynomial(model.coupling, q[other])
    driven, channel = model.drive_index.T
    h = [q[one] - polynomial, q[driven] - u[channel] if channel.shape[0] else jnp.zeros(0)]
    slopes = [
        jax.nn.one_hot(one, n) - slope[:, None] * jax.nn.one_hot(other, n),
        jax.nn.one_hot(driven, n),
    ]
    return jnp.concatenate(h), jnp.concatenate(slopes)


def constraint_hessian(model: LoopArrays, at: Kinematics, q: Array, weights: Array) -> Array:
    """Σ_r weights_r ∂²h_r/∂q², (n, n)."""
    n = q.shape[0]
    rows = model.row_direction.link.shape[0]
    total = jnp.zeros((n, n))
    if rows:
        w = weights[:rows]
        now = geometric_rows(model, at)
        weighted = jnp.swapaxes(w[:, None, None] * now.turned, 0, 1).reshape(n, -1)
        mixed = weighted @ jnp.swapaxes(now.moved, 1, 2).reshape(-1, n)
        total += mixed + mixed.T
        # ω_j × a·b = ω_j·(a × b): the second derivative of each vector, for j ≤ i, dotted with its partner
        arms = (w[:, None] * now.gap)[:, None], (w[:, None] * now.direction)[:, None]
        levers = jnp.sum(cross(now.turned, arms[0]) + cross(now.moved, arms[1]), 0)
        lower = [levers[:, k, None] * at.omega[None, :, k] for k in range(3)]
        total += _symmetric_below(model, lower[0] + lower[1] + lower[2])
    if model.coupling.shape[0]:
        other = model.coupling_index[:, 1]
        w = weights[rows : rows + other.shape[0]]
        _, _, bend = _polynomial(model.coupling, q[other])
        total -= jnp.diag(spread(w * bend, other, n))
    return total


def _symmetric_below(tree: TreeArrays, matrix: Array) -> Array:
    """From entries (i, j) for j ≤ i the symmetric matrix that they stand for."""
    lower = tree.ancestry[:-1] * matrix
    return lower + lower.T - jnp.diag(jnp.diag(lower))


def _polynomial(c: Array, x: Array) -> tuple[Array, Array, Array]:
    """A quartic, its slope and its bend."""
    value = c[:, 0] + x * (c[:, 1] + x * (c[:, 2] + x * (c[:, 3] + x * c[:, 4])))
    slope = c[:, 1] + x * (2.0 * c[:, 2] + x * (3.0 * c[:, 3] + x * 4.0 * c[:, 4]))
    bend = 2.0 * c[:, 2] + x * (6.0 * c[:, 3] + x * 12.0 * c[:, 4])
    return value, slope, bend
