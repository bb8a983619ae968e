"""Constraints and joint coordinates of free bodies, and how their rates change with the bodies' poses.

A row is n·d: a direction n fixed to one body (δ_b = 1) and a gap d between points of two bodies, of which

    d = Σ_b σ_b r_b + Λ_b + const      σ_b = ±1, Λ_b = ±(point − r_b): a lever that turns with body b

A slide of a joint is such a row. Its Cardan angles (about e₁ of the parent, e₂ between, e₃ of the child) change by
E^k·(ω_child − ω_parent) with the basis E dual to e. With poses moved by [dr ; φ], every body-fixed vector a changes
by φ × a, so that for velocities [v ; ω] that stay

    G [v ; ω]      = n·ḋ + (ω_δ × n)·d,    ḋ = Σ_b σ_b v_b + ω_b × Λ_b
    d(n·d)/dt      by dr_b: σ_b ω_δ × n,   by φ_b: Λ_b × ((ω_δ − ω_b) × n) + δ_b n × (ḋ − ω_δ × d)
    d(E^k·ω)       = φ_parent·(E^k × ω) − Σ_ij Γ^k_ij (E^i·φ) (E^j·ω),    ω, φ relative;   Γ^k_ij = E^k·(e_i × e_j)

with i < j. Vectors are kept component first, (3, …), so that the loops of the machine run along rows and bodies.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mechid.dynamics.model import TreeModel
from mechid.dynamics.tree import Array

# Constant tensors: products of quaternions and vectors as few large operations

SKEW = np.zeros((3, 3, 3))
for _i, _j, _k in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
    SKEW[_k, _i, _j], SKEW[_k, _j, _i] = -1.0, 1.0
"""[a]× = Σ_k a_k SKEW[k]"""
CROSS = SKEW.transpose(1, 0, 2)
"""(a × b)_i = Σ a_j b_k CROSS[i, j, k]"""

PRODUCT = np.zeros((4, 4, 4))
PRODUCT[0] = np.eye(4)
for _k in range(3):
    PRODUCT[1 + _k, 0, 1 + _k], PRODUCT[1 + _k, 1 + _k, 0] = 1.0, -1.0
    PRODUCT[1 + _k, 1:, 1:] = SKEW[_k].T
"""(a ∘ b)_l = Σ a_i b_j PRODUCT[i, j, l]"""

CONJUGATE = np.array([1.0, -1.0, -1.0, -1.0])

ROTATION = np.zeros((4, 4, 3, 3))
ROTATION[0, 0] = np.eye(3)
for _i in range(3):
    ROTATION[0, 1 + _i] = 2.0 * SKEW[_i]
    for _j in range(3):
        ROTATION[1 + _i, 1 + _j] = -float(_i == _j) * np.eye(3)
        ROTATION[1 + _i, 1 + _j, _i, _j] += 1.0
        ROTATION[1 + _i, 1 + _j, _j, _i] += 1.0
"""R = Σ e_i e_j ROTATION[i, j]"""


def cross(a: Array, b: Array) -> Array:
    """a × b, components first; as a sum, in which the compiler writes each factor once."""
    more = (1,) * (max(a.ndim, b.ndim) - 1)
    return jnp.sum(CROSS.reshape(3, 3, 3, *more) * a[:, None] * b, (1, 2))


def dot(a: Array, b: Array) -> Array:
    return jnp.sum(a * b, 0)


def skews(a: Array) -> Array:
    """[a]×, (3, 3, …) of components first."""
    return jnp.tensordot(SKEW, a, axes=(0, 0))


def rotations(e: Array) -> Array:
    """(b, 3, 3) of quaternions (b, 4)."""
    pairs = (e[:, :, None] * e[:, None]).reshape(-1, 16)
    return (pairs @ ROTATION.reshape(16, 9)).reshape(-1, 3, 3)


def products(a: Array, b: Array) -> Array:
    """a ∘ b of quaternions (b, 4)."""
    return (a[:, :, None] * b[:, None]).reshape(-1, 16) @ PRODUCT.reshape(16, 4)


# What a model alone says of the rows


class Layout(NamedTuple):
    """Geometric rows (c: contacts, joints, loops), then one row for each coordinate (n)."""

    fixed: Array
    """(c + n + 6 n, b + 1, 3) vectors by the body that they are fixed to, the world last: directions of the rows
    (zero for angles), the parent's and then the child's axes of each coordinate"""
    lever: Array
    """(c + n, b + 1, 3) signed points of the rows' gaps, from the centres of mass"""
    sigma: Array
    delta: Array
    """(c + n, b)"""
    child: Array
    parent: Array
    """(n, b)"""
    angle: Array
    """(3, n) sense of the coordinate at the Cardan angle that it is, 0 for slides"""


def laid_out(model: TreeModel, com: Array) -> Layout:
    own, b, n = model.maximal, com.shape[0], model.nq
    parent, axes = own.parent[own.owner], own.basis[own.owner]
    place = own.place[own.owner]
    seen = jnp.sum(place[:, None, :3, :3] * axes[:, :, None], -1)
    which = own.sign[:, None] * jax.nn.one_hot(own.component, 6)
    slide = jnp.sum(which[:, :3, None] * seen, 1)
    body_of = own.body_of
    to, start, direction = (model.row_to, model.row_start, model.row_direction)
    touch = model.contacts
    links = [
        *(body_of[touch.to.link], own.row_to.link, body_of[to.link], own.owner),
        *(body_of[touch.start.link], own.row_start.link, body_of[start.link], parent),
        *(body_of[touch.direction.link], own.row_direction.link, body_of[direction.link], parent),
        *(parent,) * 3,
        *(own.owner,) * 3,
    ]
    vectors = [
        *(touch.to.vector, own.row_to.vector, to.vector, jnp.zeros_like(slide)),
        *(touch.start.vector, own.row_start.vector, start.vector, place[:, :3, 3]),
        *(touch.direction.vector, own.row_direction.vector, direction.vector, slide),
        jnp.concatenate([seen, axes], 1).transpose(1, 0, 2).reshape(6 * n, 3),
    ]
    on = jax.nn.one_hot(jnp.concatenate(links), b + 1)
    spread = on[:, :, None] * jnp.concatenate(vectors)[:, None]
    rows = touch.to.link.shape[0] + own.row_to.link.shape[0] + to.link.shape[0] + n
    sigma, delta = on[:rows] - on[rows : 2 * rows], on[2 * rows : 3 * rows, :b]
    centres = jnp.pad(com, ((0, 1), (0, 0)))
    lever = spread[:rows] - spread[rows : 2 * rows] - sigma[:, :, None] * centres
    child, above = on[rows - n : rows, :b], on[2 * rows - n : 2 * rows, :b]
    return Layout(spread[2 * rows :], lever, sigma[:, :b], delta, child, above, which[:, 3:].T)


# The rows at a configuration


class Placed(NamedTuple):
    """The rows' vectors at a configuration, components first."""

    layout: Layout
    n: Array
    """(3, c + n)"""
    lever: Array
    """(3, c + n, b) Λ"""
    gap: Array
    """(3, c + n) d"""
    E: Array
    """(3, 3, n) [k, component]"""
    turn: Array
    """(3, n) E^k of the coordinate's own angle, with its sense; 0 for slides"""
    sine: Array
    secant: Array
    """(n,) of the second Cardan angle"""
    q: Array
    """(n,) coordinates"""


def placed(model: TreeModel, R: Array, r: Array, com: Array, near: Array) -> Placed:
    """R (b, 3, 3), r (b, 3); near (n,): angles have the full turns that bring them nearest to it"""
    own, lay = model.maximal, laid_out(model, com)
    b, n = r.shape[0], lay.child.shape[0]
    rows = lay.sigma.shape[0]
    fixed = jnp.einsum("bij,kbj->ik", R, lay.fixed[:, :b]) + lay.fixed[:, b].T
    direction, axes = fixed[:, :rows], fixed[:, rows:].reshape(3, 6, n)
    lever = jnp.sum(jnp.moveaxis(R, 1, 0)[:, None] * lay.lever[:, :b], -1)
    gap = jnp.sum(lever + lay.sigma * r.T[:, None], -1) + lay.lever[:, b].T
    first, third = axes[:, 0], axes[:, 5]
    second = cross(third, first)
    sine, squared = dot(first, third), dot(second, second)
    secant = jax.lax.rsqrt(squared)
    ends = secant * secant
    E = jnp.stack([ends * (first - sine * third), secant * second, ends * (third - sine * first)])
    turn = jnp.sum(E * lay.angle[:, None], 0)
    # sine and cosine of the one of three angles that a coordinate is
    is_angle = jnp.abs(lay.angle)
    above, below = is_angle[0] * third, is_angle[2] * first
    up = is_angle[1] * sine - dot(above, axes[:, 1]) - dot(below, axes[:, 4])
    over = is_angle[1] * squared * secant + dot(above, axes[:, 2]) + dot(below, axes[:, 3])
    # what slides has no angle, whose slopes must be numbers all the same
    over = jnp.where(own.component < 3, 1.0, over)
    slides = dot(direction[:, rows - n :], gap[:, rows - n :])
    angles = own.sign * jnp.arctan2(up, over)
    angles += 2.0 * jnp.pi * jax.lax.stop_gradient(jnp.round((near - angles) / (2.0 * jnp.pi)))
    q = slides + jnp.where(own.component < 3, 0.0, angles)
    return Placed(lay, direction, lever, gap, E, turn, sine, secant, q)


def jacobian(at: Placed) -> Array:
    """G, (c + n, 6 b): by velocities of all bodies, then angular velocities."""
    lay, n = at.layout, at.turn.shape[1]
    linear = lay.sigma * at.n[:, :, None]
    turning = cross(at.lever - lay.delta * at.gap[:, :, None], at.n[:, :, None])
    angles = (lay.child - lay.parent) * at.turn[:, :, None]
    turning += jnp.pad(angles, ((0, 0), (lay.sigma.shape[0] - n, 0), (0, 0)))
    both = jnp.stack([linear, turning])
    return both.transpose(2, 0, 3, 1).reshape(lay.sigma.shape[0], -1)


def gammas(at: Placed, weights: Array) -> tuple[Array, Array, Array]:
    """Σ_k weights_k Γ^k_ij for ij = 12, 13, 23, each (n,); with the second angle b

    Γ¹: −tan b, 0, 1/cos b     Γ²: 0, −cos b, 0     Γ³: 1/cos b, 0, −tan b
    """
    tangent = at.sine * at.secant
    cosine = (1.0 - at.sine * at.sine) * at.secant
    return (
        at.secant * weights[2] - tangent * weights[0],
        -cosine * weights[1],
        at.secant * weights[0] - tangent * weights[2],
    )


def gamma_slopes(at: Placed, weights: Array) -> tuple[Array, Array, Array]:
    """Their derivatives by b."""
    steep, across = at.secant * at.secant, at.sine * at.secant * at.secant
    return (
        across * weights[2] - steep * weights[0],
        at.sine * weights[1],
        across * weights[0] - steep * weights[2],
    )


class Pair(NamedTuple):
    """What child and parent of each coordinate do, (3, n)."""

    lever: Array
    """origin of the child from its centre of mass"""
    across: Array
    """the same from the parent's centre of mass"""
    w_child: Array
    w_parent: Array
    passing: Array
    """velocity of the child's origin against the parent's centre of mass"""


def pairs(at: Placed, r: Array, v: Array, w: Array) -> Pair:
    child, parent = at.layout.child, at.layout.parent
    lever = jnp.sum(at.lever[:, -child.shape[0] :] * child, -1)
    both = jnp.concatenate([r, v]).reshape(2, -1, 3).transpose(0, 2, 1) @ (child - parent).T
    w_child, w_parent = w.T @ child.T, w.T @ parent.T
    return Pair(lever, lever + both[0], w_child, w_parent, both[1] + cross(w_child, lever))


def bend(at: Placed, pair: Pair) -> Array:
    """(n,) what of the coordinates' accelerations comes from velocity alone.

    slides: n·[ω_p × (ω_p × L − 2 U) + ω_c × (ω_c × ℓ)],    angles: (ω_p × E^k)·ω − Σ Γ^k_ij (E^i·ω) (E^j·ω)
    """
    n = at.n[:, -at.q.shape[0] :]
    across, w, relative = pair.across, pair.w_parent, pair.w_child - pair.w_parent
    inward = cross(w, cross(w, across) - 2.0 * pair.passing)
    inward += cross(pair.w_child, cross(pair.w_child, pair.lever))
    one, two, three = jnp.sum(at.E * relative, 1)
    g12, g13, g23 = gammas(at, at.layout.angle)
    curl = (g12 * two + g13 * three) * one + g23 * two * three
    return dot(n, inward) + dot(at.turn, cross(relative, w)) - curl


# How rows and forces change with the poses


def diagonal(blocks: Array) -> Array:
    """(…, 3 b, 3 b) of blocks (…, b, 3, 3)."""
    b = blocks.shape[-3]
    apart = jnp.eye(b)[:, None, :, None] * blocks[..., :, None, :]
    return apart.reshape(*blocks.shape[:-3], 3 * b, 3 * b)


def rate_slopes(at: Placed, gamma: Array, v: Array, w: Array) -> Array:
    """∂(G y)/∂[dr ; φ], (c + 2 n, 6 b), at velocities y that stay; v and w (2, b, 3) old and new ones.

    Geometric rows with y₁ − γ y₀ (γ of each), coordinates with y₀, coordinates with y₁.
    """
    lay, n = at.layout, at.q.shape[0]
    c = lay.sigma.shape[0] - n
    share = jnp.concatenate([jnp.stack([-gamma, jnp.ones(c)]), np.eye(2).repeat(n, 1)], 1)

    def twice(a: Array, axis: int) -> Array:
        return jnp.concatenate([a, jax.lax.slice_in_dim(a, c, c + n, axis=axis)], axis)

    direction, gap, lever = twice(at.n, 1), twice(at.gap, 1), twice(at.lever, 1)
    sigma, delta = twice(lay.sigma, 0), twice(lay.delta, 0)
    v_rows, w_rows = jnp.einsum("sr,qsbi->qirb", share, jnp.stack([v, w]))
    w_own = jnp.sum(delta * w_rows, -1)
    flow = jnp.sum(sigma * v_rows + cross(w_rows, lever), -1) - cross(w_own, gap)
    linear = sigma * cross(w_own, direction)[:, :, None]
    turning = cross(lever, cross(w_own[:, :, None] - w_rows, direction[:, :, None]))
    turning += delta * cross(direction, flow)[:, :, None]
    relative = jnp.einsum("sbi,nb->isn", w, lay.child - lay.parent)
    _, two, three = jnp.sum(at.E[:, :, None] * relative, 1)
    g12, g13, g23 = gammas(at, lay.angle)
    curl = (g12 * two + g13 * three) * at.E[0][:, None] + g23 * three * at.E[1][:, None]
    curl = curl[..., None]
    angles = lay.parent * (cross(at.turn[:, None], relative)[..., None] + curl) - lay.child * curl
    turning += jnp.pad(angles.reshape(3, 2 * n, -1), ((0, 0), (c, 0), (0, 0)))
    return jnp.stack([linear, turning]).transpose(2, 0, 3, 1).reshape(c + 2 * n, -1)


def pull_slopes(at: Placed, weights: Array) -> Array:
    """∂(Gᵀ weights)/∂[dr ; φ], (6 b, 6 b).

    With N = ∂n/∂x and X = ∂d/∂x: Σ w (Nᵀ X + Xᵀ N), and [n]× [Λ]× + δ [d]× [n]× on the turns of each body.
    """
    lay, n = at.layout, at.q.shape[0]
    rows, b = lay.sigma.shape
    left = (weights[:, None] * lay.delta).T[:, None, None] * skews(at.n)
    shifted = jnp.eye(3)[:, None, None] * lay.sigma[None, :, :, None]
    turned = -skews(at.lever).transpose(0, 2, 3, 1)
    X = jnp.stack([shifted, turned], 2).reshape(3 * rows, 6 * b)
    mixed = left.reshape(3 * b, 3 * rows) @ X
    held = weights * at.n
    lever, gap = at.lever.transpose(2, 0, 1)[:, :, None], lay.delta.T[:, None, None] * at.gap
    outer = jnp.sum(lever * held + held[:, None] * gap, -1)
    own = outer - jnp.trace(outer, axis1=1, axis2=2)[:, None, None] * jnp.eye(3)
    by_r, by_turn = mixed[:, : 3 * b], mixed[:, 3 * b :]
    by_turn = by_turn + by_turn.T + diagonal(own) + _angle_pull_slopes(at, weights[rows - n :])
    return jnp.block([[jnp.zeros((3 * b, 3 * b)), by_r.T], [by_r, by_turn]])


def _angle_pull_slopes(at: Placed, weights: Array) -> Array:
    """Of the moments that act along Cardan angles: d E^k = φ_p × E^k − Σ Γ^k_ij (E^i·φ) E^j."""
    lay = at.layout
    b = lay.child.shape[1]
    apart = lay.child - lay.parent
    g12, g13, g23 = gammas(at, lay.angle)
    E1, E2, E3 = at.E
    curl = (g12 * E2 + g13 * E3)[:, None] * E1 + g23 * E3[:, None] * E2
    change = -weights[:, None] * (skews(at.turn)[..., None] * lay.parent + curl[..., None] * apart)
    return jnp.einsum("nb,xync->bxcy", apart, change).reshape(3 * b, 3 * b)


def bend_slopes(at: Placed, pair: Pair) -> Array:
    """∂bend/∂[dr ; φ ; dv ; dω], (n, 12 b)."""
    lay, count = at.layout, at.q.shape[0]
    n, lever, across = at.n[:, -count:], pair.lever, pair.across
    child, parent = pair.w_child, pair.w_parent
    relative = child - parent
    # slides
    m, inner = cross(n, parent), cross(n, child)
    inward = cross(parent, across) - 2.0 * pair.passing
    swung = cross(child, lever)
    total = cross(parent, inward) + cross(child, swung)
    twice = cross(m, parent)
    by_turn = cross(lever, cross(inner - 2.0 * m, child) + twice)
    slides_child = [twice, by_turn, -2.0 * m, cross(lever, inner - 2.0 * m) + cross(swung, n)]
    slides_parent = [-twice, cross(n, total), 2.0 * m, cross(inward, n) + cross(across, m)]
    # angles
    one, two, three = jnp.sum(at.E * relative, 1)
    g12, g13, g23 = gammas(at, lay.angle)
    weight = -jnp.stack([g12 * two + g13 * three, g12 * one + g23 * three, g13 * one + g23 * two])
    curl = jnp.sum(weight[:, None] * at.E, 0)
    spun = cross(relative, parent)
    _, spun2, spun3 = jnp.sum(at.E * spun, 1)
    h12, h13, h23 = gammas(at, weight)
    s12, s13, s23 = gamma_slopes(at, lay.angle)
    steeper = (s12 * two + s13 * three) * one + s23 * two * three
    turned = (g12 * spun2 + g13 * spun3 + h12 * two + h13 * three) * at.E[0]
    turned += (g23 * spun3 + h23 * three + steeper) * at.E[1]
    gained = cross(parent, at.turn) + curl
    none = jnp.zeros_like(n)
    angles_child = [none, -turned, none, gained]
    angles_parent = [
        none,
        cross(at.turn, spun) + cross(curl, relative) + turned,
        none,
        cross(at.turn, relative) - gained,
    ]
    on_child = jnp.stack(slides_child) + jnp.stack(angles_child)
    on_parent = jnp.stack(slides_parent) + jnp.stack(angles_parent)
    both = on_child[..., None] * lay.child + on_parent[..., None] * lay.parent
    return both.transpose(2, 0, 3, 1).reshape(count, -1)


# Bodies on their own


def spin_slopes(J: Array, gained: Array, w: Array, h: Array) -> tuple[Array, Array]:
    """Of J a + h ω × J ω, blocks (b, 3, 3) by φ and by ω at a = ω₁ − ω that stays; J turns by [φ]× J − J [φ]×."""
    vectors = jnp.stack([gained, w])
    hats = jnp.tensordot(vectors, SKEW, axes=(2, 0))
    momenta = jnp.einsum("bij,sbj->sbi", J, vectors)
    moved = J @ hats - jnp.tensordot(momenta, SKEW, axes=(2, 0))
    turning = hats[1]
    by_w = h * (turning @ J - jnp.tensordot(momenta[1], SKEW, axes=(1, 0)))
    return moved[0] + h * turning @ moved[1], by_w


def turn_slopes(rho: Array, step: Array) -> tuple[Array, Array]:
    """∂log(exp(φ) ∘ exp(ρ))/∂φ and the slope of exp: J⁻¹(ρ) and J(step), blocks (b, 3, 3).

    J(a) = 1 + (1 − cos a)/a² [a]× + (a − sin a)/a³ [a]×²,   J⁻¹(ρ) = 1 − ½ [ρ]× + (1 − ρ/2 cot ρ/2)/ρ² [ρ]×²
    """
    both = jnp.stack([rho, step])
    squared = jnp.sum(both * both, -1)
    small = squared < 1e-2
    angle = jnp.sqrt(jnp.where(small, 1.0, squared))
    s = squared
    cot = (1.0 - 0.5 * angle / jnp.tan(0.5 * angle)) / angle**2
    series = jnp.stack(
        [
            1 / 12 + s[0] * (1 / 720 + s[0] * (1 / 30240 + s[0] * (1 / 1209600 + s[0] / 47900160))),
            1 / 6 - s[1] * (1 / 120 - s[1] * (1 / 5040 - s[1] * (1 / 362880 - s[1] / 39916800))),
        ]
    )
    bent = jnp.where(small, series, jnp.stack([cot[0], ((angle - jnp.sin(angle)) / angle**3)[1]]))
    half = jnp.where(small[1], 0.5 - s[1] * (1 / 24 - s[1] * (1 / 720 - s[1] * (1 / 40320))), 0.0)
    half = jnp.where(small[1], half, (1.0 - jnp.cos(angle[1])) / angle[1] ** 2)
    straight = jnp.stack([jnp.full_like(half, -0.5), half])
    hats = jnp.tensordot(both, SKEW, axes=(2, 0))
    squares = both[..., :, None] * both[..., None, :] - squared[..., None, None] * jnp.eye(3)
    inverse, forward = jnp.eye(3) + straight[..., None, None] * hats + bent[..., None, None] * squares
    return inverse, forward
