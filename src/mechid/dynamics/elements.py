"""Forces and potentials of elements with their exact derivatives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from mechid.dynamics.contacts import Contacts, Stops
from mechid.dynamics.dry import DryRows, level
from mechid.dynamics.loops import Attached, LoopArrays, point_jacobian, points
from mechid.dynamics.tree import Array, Kinematics, cross, force_cross, spread


class FrictionRows(NamedTuple):
    index: Array
    """(f,) coordinate"""
    values: Array
    """(f, 5) Coulomb, Stribeck excess, Stribeck velocity, exponent, width"""


class LineSprings(NamedTuple):
    start: Attached
    end: Attached
    values: Array
    """(l, 4) stiffness, cubic stiffness, rest length, damping"""


class Wrenches(NamedTuple):
    frame: Array
    """(w,) index of the frame"""
    channel: Array
    """(w, 6) inputs of force and moment; nu where there is none"""
    body_axes: Array
    """(w,) 1 in the frame's own axes, 0 in the world's"""


class CustomRow(NamedTuple):
    index: Array
    """coordinates"""
    values: Array
    """the element's parameters"""


@dataclass(frozen=True, eq=False)
class ElementArrays(LoopArrays):
    """What elements need of a model."""

    potential: Array
    """(n, 5) coefficients of each coordinate's spring potential, a quartic"""
    armature: Array
    damping: Array
    """(n, 2) viscous and cubic"""
    motor: Array
    """(n, nu) force on each coordinate by unit inputs"""
    friction: FrictionRows
    dry: DryRows
    contacts: Contacts
    stops: Stops
    line_springs: LineSprings
    wrenches: Wrenches
    frame_link: Array
    """(f,) coordinate that carries each frame: world, bodies, named frames; n is the world"""
    frame_pose: Array
    """(f, 4, 4) in that coordinate's frame"""
    customs: tuple[CustomRow, ...]
    functions: tuple[tuple[Any, bool], ...]
    """user-written elements: function, whether it is a potential (static)"""


class ForceDerivatives(NamedTuple):
    q: Array
    v: Array
    u: Array


# Potentials: part of the Lagrangian.


def potential_energy(model: ElementArrays, at: Kinematics, q: Array) -> Array:
    c = model.potential
    energy = jnp.sum(c[:, 0] + q * (c[:, 1] + q * (c[:, 2] + q * (c[:, 3] + q * c[:, 4]))))
    if model.line_springs.values.shape[0]:
        k, k3, rest, _ = model.line_springs.values.T
        length, _, _ = _lines(model, at)
        energy += jnp.sum(0.5 * k * (length - rest) ** 2 + 0.25 * k3 * (length - rest) ** 4)
    for function, row in _customs(model, potential=True):
        energy += function(q[row.index], row.values)
    return energy


def joint_potential_gradient(model: ElementArrays, q: Array) -> Array:
    """Of the elements on joint coordinates alone."""
    c = model.potential
    slope = c[:, 1] + q * (2.0 * c[:, 2] + q * (3.0 * c[:, 3] + q * 4.0 * c[:, 4]))
    for function, row in _customs(model, potential=True):
        slope += spread(jax.grad(function)(q[row.index], row.values), row.index, q.shape[0])
    return slope


def potential_gradient(model: ElementArrays, at: Kinematics, q: Array) -> Array:
    slope = joint_potential_gradient(model, q)
    if model.line_springs.values.shape[0]:
        k, k3, rest, _ = model.line_springs.values.T
        length, stretch, _ = _lines(model, at)
        slope += (k * (length - rest) + k3 * (length - rest) ** 3) @ stretch
    return slope


def potential_hessian(model: ElementArrays, at: Kinematics, q: Array) -> Array:
    c = model.potential
    total = jnp.diag(2.0 * c[:, 2] + q * (6.0 * c[:, 3] + q * 12.0 * c[:, 4]))
    if model.line_springs.values.shape[0]:
        k, k3, rest, _ = model.line_springs.values.T
        length, stretch, direction = _lines(model, at)
        e = length - rest
        total += jnp.einsum("l,li,lj->ij", k + 3.0 * k3 * e * e, stretch, stretch)
        bend = _line_bend(model, at, length, stretch, direction)
        total += jnp.einsum("l,lij->ij", k * e + k3 * e**3, bend)
    for function, row in _customs(model, potential=True):
        block = jax.hessian(function)(q[row.index], row.values)
        total += _spread_block(block, row.index, q.shape[0])
    return total


# Forces.


def joint_force(model: ElementArrays, q: Array, v: Array, u: Array, t: Array) -> Array:
    """Force of dampers, friction, motors and user-written elements on joint coordinates."""
    b, b3 = model.damping.T
    total = -(b + b3 * v * v) * v + model.motor @ u
    if model.friction.index.shape[0]:
        index = model.friction.index
        total += spread(friction_law(v[index], model.friction.values), index, q.shape[0])
    for function, row in _customs(model, potential=False):
        felt = jnp.asarray(function(q[row.index], v[row.index], t, row.values), float)
        total += spread(felt, row.index, q.shape[0])
    return total


def force(model: ElementArrays, at: Kinematics, q: Array, v: Array, u: Array, t: Array) -> Array:
    """Generalized force of everything that has no potential."""
    total = joint_force(model, q, v, u, t)
    if model.line_springs.values.shape[0]:
        _, stretch, _ = _lines(model, at)
        total -= (model.line_springs.values[:, 3] * (stretch @ v)) @ stretch
    if model.wrenches.frame.shape[0]:
        carried, wrench, _ = _wrenches(model, at, u)
        total += jnp.einsum("wn,nk,wk->n", carried, at.twist_axes, wrench)
    return total


def force_derivatives(
    model: ElementArrays, at: Kinematics, q: Array, v: Array, u: Array, t: Array
) -> ForceDerivatives:
    """∂F/∂q, ∂F/∂v, ∂F/∂u."""
    n = q.shape[0]
    b, b3 = model.damping.T
    by_q, by_u = jnp.zeros((n, n)), model.motor
    diagonal = -(b + 3.0 * b3 * v * v)
    if model.friction.index.shape[0]:
        index = model.friction.index
        slope = jax.vmap(jax.grad(friction_law))(v[index], model.friction.values)
        diagonal += spread(slope, index, n)
    by_v = jnp.diag(diagonal)
    if model.line_springs.values.shape[0]:
        c = model.line_springs.values[:, 3]
        length, stretch, direction = _lines(model, at)
        bend = _line_bend(model, at, length, stretch, direction)
        rate = stretch @ v
        by_v -= jnp.einsum("l,li,lj->ij", c, stretch, stretch)
        by_q -= jnp.einsum("l,li,ljk,k->ij", c, stretch, bend, v)
        by_q -= jnp.einsum("l,lij->ij", c * rate, bend)
    if model.wrenches.frame.shape[0]:
        wrench_q, wrench_u = _wrench_derivatives(model, at, u)
        by_q, by_u = by_q + wrench_q, by_u + wrench_u
    for function, row in _customs(model, potential=False):
        arguments = (q[row.index], v[row.index], t, row.values)
        block_q, block_v = jax.jacfwd(function, argnums=(0, 1))(*arguments)
        by_q += _spread_block(block_q, row.index, n)
        by_v += _spread_block(block_v, row.index, n)
    return ForceDerivatives(by_q, by_v, by_u)


def friction_law(v: Array, values: Array) -> Array:
    """−(C + S exp(−|v/v_S|^δ)) tanh(v/w)."""
    return -level(values, v) * jnp.tanh(v / values[..., 4])


def _spread_block(block: Array, index: Array, n: int) -> Array:
    """(n, n) with a block added at rows and columns."""
    place = jax.nn.one_hot(index, n)
    return place.T @ block @ place


def _customs(model: ElementArrays, *, potential: bool):
    for (function, is_potential), row in zip(model.functions, model.customs, strict=True):
        if is_potential == potential:
            yield function, row


def _lines(model: ElementArrays, at: Kinematics) -> tuple[Array, Array, Array]:
    """Lengths, their gradients (l, n) and unit directions of the line springs."""
    rows = model.line_springs
    end, start = points(at, rows.end), points(at, rows.start)
    gap = end - start
    length = jnp.sqrt(jnp.sum(gap * gap, -1) + 1e-30)
    direction = gap / length[:, None]
    moved = point_jacobian(model, at, rows.end.link, end)
    moved -= point_jacobian(model, at, rows.start.link, start)
    return length, jnp.einsum("lnk,lk->ln", moved, direction), direction


def _line_bend(
    model: ElementArrays, at: Kinematics, length: Array, stretch: Array, direction: Array
) -> Array:
    """(l, n, n) second derivatives of the lengths."""
    rows = model.line_springs
    moved = point_jacobian(model, at, rows.end.link, points(at, rows.end))
    moved -= point_jacobian(model, at, rows.start.link, points(at, rows.start))
    across = jnp.einsum("lik,ljk->lij", moved, moved) - stretch[:, :, None] * stretch[:, None]
    levers = cross(moved, direction[:, None])
    lower = jnp.einsum("lik,jk->lij", levers, at.omega) * model.ancestry[:-1]
    diagonal = jnp.einsum("lii,ij->lij", lower, jnp.eye(lower.shape[-1]))
    turned = lower + jnp.swapaxes(lower, 1, 2) - diagonal
    return across / length[:, None, None] + turned


def _wrenches(model: ElementArrays, at: Kinematics, u: Array) -> tuple[Array, Array, Array]:
    """What carries each wrench (w, n), the wrench about the world's origin (w, 6), ∂wrench/∂u (w, 6, nu)."""
    rows = model.wrenches
    pose = at.pose[model.frame_link[rows.frame]] @ model.frame_pose[rows.frame]
    own = rows.body_axes[:, None, None]
    axes = own * pose[:, :3, :3] + (1.0 - own) * jnp.eye(3)
    x = pose[:, :3, 3]
    arm = jnp.swapaxes(cross(x[:, None], jnp.swapaxes(axes, 1, 2)), 1, 2)
    top = jnp.concatenate([arm, axes], -1)
    bottom = jnp.concatenate([axes, jnp.zeros_like(axes)], -1)
    select = jax.nn.one_hot(rows.channel, u.shape[0])
    by_u = jnp.concatenate([top, bottom], 1) @ select
    return model.ancestry[model.frame_link[rows.frame]], by_u @ u, by_u


def _wrench_derivatives(model: ElementArrays, at: Kinematics, u: Array) -> tuple[Array, Array]:
    rows = model.wrenches
    carried, wrench, by_u = _wrenches(model, at, u)
    S = at.twist_axes
    turning = force_cross(S[None], wrench[:, None])
    pose = at.pose[model.frame_link[rows.frame]] @ model.frame_pose[rows.frame]
    moved = point_jacobian(model, at, model.frame_link[rows.frame], pose[:, :3, 3])
    shifted = cross(moved, wrench[:, None, 3:])
    shifted = jnp.concatenate([shifted, jnp.zeros_like(shifted)], -1)
    own = rows.body_axes[:, None, None]
    change = own * turning + (1.0 - own) * shifted
    both = carried[:, :, None] * carried[:, None]
    spin = model.ancestry[:-1][None] * jnp.einsum("ik,wjk->wij", S, turning)
    by_q = jnp.sum(both * (jnp.einsum("ik,wjk->wij", S, change) - spin), 0)
    return by_q, jnp.einsum("wn,nk,wku->nu", carried, S, by_u)
