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


class AxisRows(NamedTuple):
    """Elements on coordinates or combinations."""

    index: Array
    """(f,) which"""
    values: Array
    """(f, …) their numbers, in the order of the part's `quantities`"""


class LoadRows(NamedTuple):
    """Friction in proportion to what is transmitted along another coordinate or combination."""

    index: Array
    load: Array
    values: Array


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

    combination: Array
    """(m, n) ratios. N = n + m: what elements act on are coordinates, then combinations, y = [q ; combination q]"""
    potential: Array
    """(N, 5) coefficients of each spring potential, a quartic"""
    armature: Array
    """(N,)"""
    damping: Array
    """(N, 2) viscous and cubic"""
    motor: Array
    """(N, nu) force on each by unit inputs"""
    friction: AxisRows
    gear_friction: AxisRows
    load_friction: LoadRows
    piecewise: AxisRows
    periodic: AxisRows
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


# Coordinates and combinations of them.


def axes(model: ElementArrays, q: Array) -> Array:
    """y, (N, …): coordinates, then combinations; of rates as well."""
    return jnp.concatenate([q, model.combination @ q]) if model.combination.shape[0] else q


def pulled(model: ElementArrays, force: Array) -> Array:
    """(n, …) on coordinates, of forces on coordinates and combinations (N, …)."""
    n = model.combination.shape[1]
    return force[:n] + model.combination.T @ force[n:] if model.combination.shape[0] else force


def folded(model: ElementArrays, matrix: Array) -> Array:
    """(n, n) on coordinates, of a matrix (N, N) on both."""
    return pulled(model, pulled(model, matrix).T).T if model.combination.shape[0] else matrix


def weighed(model: ElementArrays, weights: Array, rates: Array) -> Array:
    """(n, …) what inertias or dampings (N,) of coordinates and combinations make of rates (n, …)."""
    return pulled(model, (axes(model, rates).T * weights).T)


# Potentials: part of the Lagrangian.


def potential_energy(model: ElementArrays, at: Kinematics, q: Array) -> Array:
    c, y = model.potential, axes(model, q)
    energy = jnp.sum(c[:, 0] + y * (c[:, 1] + y * (c[:, 2] + y * (c[:, 3] + y * c[:, 4]))))
    for law, rows in _shaped_potentials(model):
        energy += jnp.sum(jax.vmap(law)(y[rows.index], rows.values))
    if model.line_springs.values.shape[0]:
        k, k3, rest, _ = model.line_springs.values.T
        length, _, _ = _lines(model, at)
        energy += jnp.sum(0.5 * k * (length - rest) ** 2 + 0.25 * k3 * (length - rest) ** 4)
    for function, row in _customs(model, potential=True):
        energy += function(y[row.index], row.values)
    return energy


def _pull(model: ElementArrays, y: Array) -> Array:
    """(N,) slopes of the potentials that depend on one coordinate or combination each."""
    c = model.potential
    slope = c[:, 1] + y * (2.0 * c[:, 2] + y * (3.0 * c[:, 3] + y * 4.0 * c[:, 4]))
    for law, rows in _shaped_potentials(model):
        slope += spread(jax.vmap(jax.grad(law))(y[rows.index], rows.values), rows.index, y.shape[0])
    return slope


def _stiffness(model: ElementArrays, y: Array) -> Array:
    """(N,) their second derivatives."""
    c = model.potential
    stiff = 2.0 * c[:, 2] + y * (6.0 * c[:, 3] + y * 12.0 * c[:, 4])
    for law, rows in _shaped_potentials(model):
        curved = jax.vmap(jax.grad(jax.grad(law)))(y[rows.index], rows.values)
        stiff += spread(curved, rows.index, y.shape[0])
    return stiff


def joint_potential_gradient(model: ElementArrays, q: Array) -> Array:
    """Of the elements on joint coordinates and their combinations alone."""
    y = axes(model, q)
    slope = _pull(model, y)
    for function, row in _customs(model, potential=True):
        slope += spread(jax.grad(function)(y[row.index], row.values), row.index, y.shape[0])
    return pulled(model, slope)


def potential_gradient(model: ElementArrays, at: Kinematics, q: Array) -> Array:
    slope = joint_potential_gradient(model, q)
    if model.line_springs.values.shape[0]:
        k, k3, rest, _ = model.line_springs.values.T
        length, stretch, _ = _lines(model, at)
        slope += (k * (length - rest) + k3 * (length - rest) ** 3) @ stretch
    return slope


def potential_hessian(model: ElementArrays, at: Kinematics, q: Array) -> Array:
    y = axes(model, q)
    own = jnp.diag(_stiffness(model, y))
    for function, row in _customs(model, potential=True):
        own += _spread_block(jax.hessian(function)(y[row.index], row.values), row.index, y.shape[0])
    total = folded(model, own)
    if model.line_springs.values.shape[0]:
        k, k3, rest, _ = model.line_springs.values.T
        length, stretch, direction = _lines(model, at)
        e = length - rest
        total += jnp.einsum("l,li,lj->ij", k + 3.0 * k3 * e * e, stretch, stretch)
        bend = _line_bend(model, at, length, stretch, direction)
        total += jnp.einsum("l,lij->ij", k * e + k3 * e**3, bend)
    return total


# Forces.


def joint_force(model: ElementArrays, q: Array, v: Array, u: Array, t: Array) -> Array:
    """Force of dampers, friction, motors and user-written elements on joint coordinates."""
    y, w = axes(model, q), axes(model, v)
    count = y.shape[0]
    b, b3 = model.damping.T
    total = -(b + b3 * w * w) * w + model.motor @ u
    for law, rows in _frictions(model):
        total += spread(law(w[rows.index], rows.values), rows.index, count)
    rows = model.load_friction
    if rows.index.shape[0]:
        carried = jnp.abs(transmitted(model, y, w)[rows.load])
        total += spread(carried * gear_friction_law(w[rows.index], rows.values), rows.index, count)
    for function, row in _customs(model, potential=False):
        felt = jnp.asarray(function(y[row.index], w[row.index], t, row.values), float)
        total += spread(felt, row.index, count)
    return pulled(model, total)


def transmitted(model: ElementArrays, y: Array, w: Array) -> Array:
    """(N,) force of springs and dampers along each coordinate and combination, positive against the way."""
    b, b3 = model.damping.T
    return _pull(model, y) + (b + b3 * w * w) * w


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
    y, w = axes(model, q), axes(model, v)
    count = y.shape[0]
    b, b3 = model.damping.T
    diagonal = -(b + 3.0 * b3 * w * w)
    for law, rows in _frictions(model):
        slope = jax.vmap(jax.grad(law))(w[rows.index], rows.values)
        diagonal += spread(slope, rows.index, count)
    by_y, by_w = jnp.zeros((count, count)), jnp.diag(diagonal)
    rows = model.load_friction
    if rows.index.shape[0]:
        load = transmitted(model, y, w)[rows.load]
        law = gear_friction_law(w[rows.index], rows.values)
        steep = jax.vmap(jax.grad(gear_friction_law))(w[rows.index], rows.values)
        on, by = (jax.nn.one_hot(index, count) for index in (rows.index, rows.load))
        through = (jnp.sign(load) * law)[:, None] * by
        by_y += on.T @ (through * _stiffness(model, y))
        by_w += on.T @ (through * (b + 3.0 * b3 * w * w)) + on.T @ ((jnp.abs(load) * steep)[:, None] * on)
    for function, row in _customs(model, potential=False):
        arguments = (y[row.index], w[row.index], t, row.values)
        block_q, block_v = jax.jacfwd(function, argnums=(0, 1))(*arguments)
        by_y += _spread_block(block_q, row.index, count)
        by_w += _spread_block(block_v, row.index, count)
    by_q, by_v, by_u = folded(model, by_y), folded(model, by_w), pulled(model, model.motor)
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
    return ForceDerivatives(by_q, by_v, by_u)


# Laws of one coordinate or combination.


def friction_law(v: Array, values: Array) -> Array:
    """−(C + S exp(−|v/v_S|^δ)) tanh(v/w)."""
    return -level(values, v) * jnp.tanh(v / values[..., 4])


def gear_friction_law(v: Array, values: Array) -> Array:
    """−C₁ tanh(v/w) − C₂ v exp(−|v/v_S|^δ); its slope at rest is −C₁/w − C₂ for every δ."""
    coulomb, slow, width, stribeck, exponent = jnp.moveaxis(values, -1, 0)
    ratio = jnp.abs(v) / stribeck
    moving = ratio > 0.0
    power = jnp.where(moving, jnp.where(moving, ratio, 1.0) ** exponent, 0.0)
    return -coulomb * jnp.tanh(v / width) - slow * v * jnp.exp(-power)


def piecewise_potential(y: Array, values: Array) -> Array:
    """½ K₁ y² up to |y| = T₁/K₁; beyond each corner what stiffness grows by adds ½ (K' − K) (|y| − corner)²."""
    k1, k2, k3, first, second, rest = values
    far = jnp.abs(y - rest)
    corner = first / k1
    past, beyond = jnp.maximum(far - corner, 0.0), jnp.maximum(far - corner - (second - first) / k2, 0.0)
    return 0.5 * (k1 * (y - rest) ** 2 + (k2 - k1) * past**2 + (k3 - k2) * beyond**2)


def periodic_potential(y: Array, values: Array) -> Array:
    """A₁ (1 − cos(n y))/n + A₂ sin(n y)/n."""
    sine, cosine, n = values
    return (sine * (1.0 - jnp.cos(n * y)) + cosine * jnp.sin(n * y)) / n


def _frictions(model: ElementArrays):
    laws = ((friction_law, model.friction), (gear_friction_law, model.gear_friction))
    return [(law, rows) for law, rows in laws if rows.index.shape[0]]


def _shaped_potentials(model: ElementArrays):
    laws = ((piecewise_potential, model.piecewise), (periodic_potential, model.periodic))
    return [(law, rows) for law, rows in laws if rows.index.shape[0]]


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
