"""Holonomic constraints h(q, u) = 0 with their derivatives: loop rows, couplings of coordinates, driven ones.

Every geometric row is n·(x_b − x_a) with a direction n and points x fixed to links. For a point of link e and
j ≤ i ≤ e:  ∂x/∂q_i = ω_i × x + s_i,  ∂²x/∂q_i∂q_j = ω_j × ∂x/∂q_i; a direction turns with ω alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from mechid.dynamics.tree import Array, Kinematics, TreeArrays, cross, take


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


def directions(at: Kinematics, where: Attached) -> Array:
    return jnp.einsum("rij,rj->ri", take(at.pose, where.link)[:, :3, :3], where.vector)


def point_jacobian(tree: TreeArrays, at: Kinematics, link: Array, x: Array) -> Array:
    """(r, n, 3) ∂x/∂q for points x (r, 3) of links."""
    moved = cross(at.omega[None], x[:, None]) + at.s[None]
    return moved * take(tree.ancestry, link)[:, :, None]


def direction_jacobian(tree: TreeArrays, at: Kinematics, link: Array, b: Array) -> Array:
    return cross(at.omega[None], b[:, None]) * take(tree.ancestry, link)[:, :, None]


def constraint(model: LoopArrays, at: Kinematics, q: Array, u: Array) -> tuple[Array, Array]:
    """h and Dh: geometric rows, then couplings, then drives."""
    joint_h, joint_slope = joint_rows(model, q, u)
    if not model.row_direction.link.shape[0]:
        return joint_h, joint_slope
    direction = directions(at, model.row_direction)
    end, start = points(at, model.row_to), points(at, model.row_start)
    turned = direction_jacobian(model, at, model.row_direction.link, direction)
    moved = point_jacobian(model, at, model.row_to.link, end)
    moved -= point_jacobian(model, at, model.row_start.link, start)
    h = jnp.sum(direction * (end - start), -1)
    slope = jnp.einsum("rnk,rk->rn", turned, end - start)
    slope += jnp.einsum("rnk,rk->rn", moved, direction)
    return jnp.concatenate([h, joint_h]), jnp.concatenate([slope, joint_slope])


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
        direction = directions(at, model.row_direction)
        end, start = points(at, model.row_to), points(at, model.row_start)
        turned = direction_jacobian(model, at, model.row_direction.link, direction)
        to = point_jacobian(model, at, model.row_to.link, end)
        fro = point_jacobian(model, at, model.row_start.link, start)
        mixed = jnp.einsum("r,rik,rjk->ij", w, turned, to - fro)
        total += mixed + mixed.T
        # ω_j × a·b = ω_j·(a × b): the second derivative of each vector, for j ≤ i, dotted with its partner
        arm = (end - start)[:, None]
        levers = cross(turned, arm) + cross(to - fro, direction[:, None])
        lower = jnp.einsum("r,rik,jk->ij", w, levers, at.omega)
        total += _symmetric_below(model, lower)
    if model.coupling.shape[0]:
        other = model.coupling_index[:, 1]
        w = weights[rows : rows + other.shape[0]]
        _, _, bend = _polynomial(model.coupling, q[other])
        total -= jnp.diag(jnp.zeros(n).at[other].add(w * bend))
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
