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

from typing import Any, NamedTuple

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

CARDAN = np.zeros((3, 3, 3, 3))
"""Γ^k_ij = Σ_s CARDAN[s, k, i, j] (tan b, cos b, 1/cos b)_s for the second angle b"""
CARDAN[0, 0, 0, 1] = CARDAN[0, 2, 1, 2] = -1.0
CARDAN[1, 1, 0, 2] = -1.0
CARDAN[2, 0, 1, 2] = CARDAN[2, 2, 0, 1] = 1.0


def cross(a: Array, b: Array) -> Array:
    """a × b, components first."""
    (ax, ay, az), (bx, by, bz) = a, b
    return jnp.stack([ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx])


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
    """Geometric rows (c), then one row for each coordinate (n)."""

    fixed: Array
    """(c + n + 6 n, b + 1, 3) vectors by the body that they are fixed to, the world last: directions of the rows
    (zero for angles), the parent's and then the child's axes of each coordinate"""
    lever: Array
    """(c + n, b, 3) signed points of the rows' gaps, from the centres of mass"""
    beyond: Array
    """(c + n, 3) those of the world"""
    sigma: Array
    delta: Array
    """(c + n, b)"""
    child: Array
    parent: Array
    """(n, b)"""
    angle: Array
    """(n, 3) sense of the coordinate at the Cardan angle that it is, 0 for slides"""


def laid_out(model: TreeModel, com: Array) -> Layout:
    own, b = model.maximal, com.shape[0]
    parent = own.parent[own.owner]
    axes = jnp.swapaxes(own.place[:, :3, :3] @ jnp.swapaxes(own.basis, 1, 2), 1, 2)[own.owner]
    which = own.sign[:, None] * jax.nn.one_hot(own.component, 6)
    slide = jnp.sum(which[:, :3, None] * axes, 1)

    def on(joints: Any, loops: Any, coordinates: Any) -> Array:
        return jnp.concatenate([joints.link, model.maximal.body_of[loops.link], coordinates])

    links = [
        on(own.row_direction, model.row_direction, parent),
        on(own.row_to, model.row_to, own.owner),
        on(own.row_start, model.row_start, parent),
    ]
    origin = jnp.zeros_like(slide)
    vectors = [
        jnp.concatenate([own.row_direction.vector, model.row_direction.vector, slide]),
        jnp.concatenate([own.row_to.vector, model.row_to.vector, origin]),
        jnp.concatenate([own.row_start.vector, model.row_start.vector, own.place[own.owner, :3, 3]]),
    ]
    direction, to, start = (jax.nn.one_hot(link, b + 1) for link in links)
    centres = jnp.concatenate([com, jnp.zeros((1, 3))])
    signed = to[:, :, None] * (vectors[1][:, None] - centres)
    signed -= start[:, :, None] * (vectors[2][:, None] - centres)
    on_child, on_parent = to[-slide.shape[0] :], direction[-slide.shape[0] :]
    fixed = jnp.concatenate(
        [
            direction[:, :, None] * vectors[0][:, None],
            *(on_parent[:, :, None] * axes[:, None, i] for i in range(3)),
            *(on_child[:, :, None] * own.basis[own.owner][:, None, i] for i in range(3)),
        ]
    )
    return Layout(
        fixed,
        signed[:, :b],
        signed[:, b],
        (to - start)[:, :b],
        direction[:, :b],
        on_child[:, :b],
        on_parent[:, :b],
        which[:, 3:],
    )


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
    cosine: Array
    """(n,) of the second Cardan angle"""
    q: Array
    """(n,) coordinates; angles within ±π"""


def placed(model: TreeModel, R: Array, r: Array, com: Array) -> Placed:
    """R (b, 3, 3), r (b, 3)"""
    own, lay = model.maximal, laid_out(model, com)
    b, n = r.shape[0], lay.child.shape[0]
    rows = lay.sigma.shape[0]
    fixed = jnp.einsum("bij,kbj->ik", R, lay.fixed[:, :b]) + lay.fixed[:, b].T
    direction, axes = fixed[:, :rows], fixed[:, rows:].reshape(3, 6, n)
    lever = jnp.sum(jnp.moveaxis(R, 1, 0)[:, None] * lay.lever, -1)
    gap = jnp.sum(lever + lay.sigma * r.T[:, None], -1) + lay.beyond.T
    first, third = axes[:, 0], axes[:, 5]
    second = cross(third, first)
    sine, squared = dot(first, third), dot(second, second)
    cosine = jnp.sqrt(squared)
    E = jnp.stack(
        [(first - sine * third) / squared, second / cosine, (third - sine * first) / squared],
    )
    turn = jnp.sum(E * lay.angle.T[:, None], 0)
    # sines and cosines of the three angles, of which a coordinate has one
    along = jnp.sum(axes[:, 1:3] * third[:, None], 0), jnp.sum(axes[:, 3:5] * first[:, None], 0)
    up = jnp.stack([-along[0][0], sine, -along[1][1]])
    over = jnp.stack([along[0][1], cosine, along[1][0]])
    is_angle = jnp.abs(lay.angle.T)
    angles = jnp.arctan2(jnp.sum(is_angle * up, 0), jnp.sum(is_angle * over, 0))
    slides = dot(direction, gap)[rows - n :]
    q = jnp.where(own.component < 3, slides, own.sign * angles)
    return Placed(lay, direction, lever, gap, E, turn, sine, cosine, q)


def jacobian(at: Placed) -> Array:
    """G, (c + n, 6 b): by velocities of all bodies, then angular velocities."""
    lay, n = at.layout, at.turn.shape[1]
    linear = lay.sigma * at.n[:, :, None]
    turning = cross(at.lever - lay.delta * at.gap[:, :, None], at.n[:, :, None])
    angles = (lay.child - lay.parent) * at.turn[:, :, None]
    turning += jnp.pad(angles, ((0, 0), (lay.sigma.shape[0] - n, 0), (0, 0)))
    both = jnp.stack([linear, turning])
    return both.transpose(2, 0, 3, 1).reshape(lay.sigma.shape[0], -1)


def gammas(at: Placed) -> tuple[Array, Array]:
    """Γ^k_ij (3, 3, 3, n) and ∂Γ/∂b."""
    one, tangent = 1.0 / at.cosine, at.sine / at.cosine
    values = jnp.stack([tangent, at.cosine, one])
    slopes = jnp.stack([one * one, -at.sine, tangent * one])
    both = jnp.tensordot(CARDAN, jnp.stack([values, slopes]), axes=(0, 1))
    return both[..., 0, :], both[..., 1, :]


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
    rates = jnp.sum(at.E * relative, 1)
    own = jnp.einsum("kijn,nk->ijn", gammas(at)[0], at.layout.angle)
    return dot(n, inward) + dot(at.turn, cross(relative, w)) - jnp.sum(own * rates[:, None] * rates, (0, 1))


# How rows and forces change with the poses


def diagonal(blocks: Array) -> Array:
    """(3 b, 3 b) of blocks (b, 3, 3)."""
    b = blocks.shape[0]
    return (jnp.eye(b)[:, None, :, None] * blocks[:, :, None]).reshape(3 * b, 3 * b)


def rate_slopes(at: Placed, gamma: Array, v: Array, w: Array) -> Array:
    """∂(G y)/∂[dr ; φ], (c + 2 n, 6 b), at velocities y that stay; v and w (2, b, 3) old and new ones.

    Geometric rows with y₁ − γ y₀, coordinates with y₀, coordinates with y₁.
    """
    lay, n = at.layout, at.q.shape[0]
    c = lay.sigma.shape[0] - n
    share = jnp.concatenate(
        [jnp.stack([-gamma, 1.0 + 0.0 * gamma])[:, None].repeat(c, 1), np.eye(2).repeat(n, 1)], 1
    )

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
    rates = jnp.sum(at.E[:, :, None] * relative, 1)
    own = jnp.einsum("kijn,nk->ijn", gammas(at)[0], lay.angle)
    shares = jnp.sum(own[:, :, None] * rates, 1)
    curl = jnp.sum(shares[:, None] * at.E[:, :, None], 0)[..., None]
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
    outer = jnp.einsum("irb,jr->bij", at.lever, held) + jnp.einsum("rb,ir,jr->bij", lay.delta, held, at.gap)
    own = outer - jnp.trace(outer, axis1=1, axis2=2)[:, None, None] * jnp.eye(3)
    by_r, by_turn = mixed[:, : 3 * b], mixed[:, 3 * b :]
    by_turn = by_turn + by_turn.T + diagonal(own) + _angle_pull_slopes(at, weights[rows - n :])
    return jnp.block([[jnp.zeros((3 * b, 3 * b)), by_r.T], [by_r, by_turn]])


def _angle_pull_slopes(at: Placed, weights: Array) -> Array:
    """Of the moments that act along Cardan angles: d E^k = φ_p × E^k − Σ Γ^k_ij (E^i·φ) E^j."""
    lay = at.layout
    b = lay.child.shape[1]
    apart = lay.child - lay.parent
    own = jnp.einsum("kijn,nk->ijn", gammas(at)[0], lay.angle)
    curl = jnp.einsum("ijn,jxn,iyn->xyn", own, at.E, at.E)[..., None] * apart
    change = -weights[:, None] * (skews(at.turn)[..., None] * lay.parent + curl)
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
    by_turn = cross(lever, cross(inner - 2.0 * m, child) - 0.0 + twice)
    slides_child = [-twice, by_turn, -2.0 * m, cross(lever, inner - 2.0 * m) + cross(swung, n)]
    slides_parent = [twice, cross(n, total), 2.0 * m, cross(inward, n) + cross(across, m)]
    # angles
    rates = jnp.sum(at.E * relative, 1)
    gamma, slope = gammas(at)
    own, own_slope = (jnp.einsum("kijn,nk->ijn", g, lay.angle) for g in (gamma, slope))
    weight = -jnp.sum((own + jnp.swapaxes(own, 0, 1)) * rates, 1)
    curl = jnp.sum(weight[:, None] * at.E, 0)
    spun = cross(relative, parent)
    shares = jnp.sum(own * jnp.sum(at.E * spun, 1), 1)
    shares += jnp.sum(weight[:, None, None] * gamma * rates, (0, 2))
    steeper = jnp.sum(own_slope * rates[:, None] * rates, (0, 1))
    turned = jnp.sum(shares[:, None] * at.E, 0) + steeper * at.E[1]
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
