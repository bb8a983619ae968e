"""How SPOOK's residual changes with states, impulses, inputs and numbers, in closed form but for elements.

The rows of a step are the bodies' balances, how poses follow from velocities, and all rows that close or rub. New
poses stand in the second alone, so that these are left out where a step is solved for its new velocities.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from mechid.dynamics import elements
from mechid.dynamics import spook_boxes as boxes
from mechid.dynamics import spook_linear as linear
from mechid.dynamics.loops import joint_rows
from mechid.dynamics.model import TreeModel
from mechid.dynamics.spook_rows import Rows, split
from mechid.dynamics.spook_scene import Scene, State, exp_of, frame_forces, inertias, moved_along, scene_of
from mechid.dynamics.stepper import columns
from mechid.dynamics.tree import Array


class Balance(NamedTuple):
    """The residual with what its derivatives use again."""

    r: Array
    weights: Array
    """what geometric rows and coordinates pull by Gᵀ"""
    rates: Array
    """(n, 2) of the coordinates, old and new"""
    turned: Array
    slope: Array
    """∂h/∂q of couplings and drives"""
    rows: Rows
    bound: Array
    """(d,) of friction's impulses"""
    box: boxes.Box
    closing: Array
    """rates of all rows that close, boxed or not"""


class Slopes(NamedTuple):
    """Of the bodies' balances and of the rows that close or rub, by old poses and velocities, by new velocities, by
    impulses and by inputs."""

    pose: Array
    rate: Array
    mass: Array
    """(6 b, 6 b) of the balances"""
    own: tuple[Array, Array]
    """what bodies alone add to the last two"""
    pulled: Array
    """(6 b, nz)"""
    pushed: Array
    """(6 b, nu)"""
    old: Array
    """(nz, 12 b) of all other rows"""
    new: Array
    """(nz, 6 b)"""
    held: Array
    """(nz, nz)"""
    driven: Array
    """(nz, nu)"""


def slopes(
    now: Balance,
    scene: Scene,
    G: Array,
    x0: State,
    x1: State,
    z: Array,
    u: Array,
    t: Array,
    h: Array,
    model: Any,
) -> Slopes:
    at, n, half = scene.at, model.nq, 6 * x0.r.shape[0]
    c = G.shape[0] - n
    rates, rows, slope = G[c:], now.rows, now.slope
    z, stuck = split(model, z)
    closing = jnp.concatenate([G[:c], slope @ rates])

    # of the forces along coordinates, by poses and by velocities
    pair = linear.pairs(at, x0.r, x0.v, x0.w)
    moved = linear.rate_slopes(at, rows.gamma[:c], jnp.stack([x0.v, x1.v]), jnp.stack([x0.w, x1.w]))
    shown, rates0, rates1 = moved[:c], moved[c : c + n], moved[c + n :]
    by_q, by_v = _joint_slopes(at.q, now.rates[:, 0], u, t, model)
    damped = elements.weighed(model, model.damping[:, 0], jnp.eye(n))
    armature = elements.weighed(model, model.armature, jnp.eye(n))
    by_v += damped
    bent = linear.bend_slopes(at, pair)
    joint_pose = armature @ (rates1 - rates0) + h * damped @ rates1 - h * (by_q @ rates + by_v @ rates0)
    joint_pose += h * armature @ bent[:, :half]
    joint_rate = -armature @ rates - h * (by_v @ rates) + h * armature @ bent[:, half:]
    coupled = jnp.concatenate([shown, slope @ rates1 - rows.gamma[c:, None] * (slope @ rates0)])
    if model.coupling.shape[0]:
        bends = jax.jacfwd(lambda q: joint_rows(model, q, u)[1])(at.q)
        along_rows = slice(c, c + bends.shape[0])
        joint_pose -= jnp.einsum("cnm,c->nm", bends, z[along_rows]) @ rates
        seen = now.rates[:, 1] - rows.gamma[along_rows, None] * now.rates[:, 0]
        bent_rows = jnp.einsum("cnm,cn->cm", bends, seen) @ rates
        coupled += jnp.pad(bent_rows, ((c, coupled.shape[0] - c - bends.shape[0]), (0, 0)))

    # the balances
    by_turn, by_spin = linear.spin_slopes(scene.inertia, x1.w - x0.w, x0.w, h)
    none, masses = jnp.zeros_like(scene.mass), scene.mass
    turning = jnp.stack([by_turn, by_spin - scene.inertia, scene.inertia])
    straight = jnp.stack([none, -masses, masses])[:, :, None, None] * jnp.eye(3)
    own = linear.diagonal(jnp.concatenate([straight, turning], 1))
    pose = linear.pull_slopes(at, now.weights) + rates.T @ joint_pose + own[0]
    rate = rates.T @ joint_rate + own[1]
    mass = rates.T @ (armature + h * damped) @ rates + own[2]
    pushed = -h * (rates.T @ elements.pulled(model, model.motor))
    if model.wrenches.frame.shape[0] or model.line_springs.values.shape[0]:
        by_d, framed = _frame_slopes(x0, u, model)
        pose, rate = pose - h * by_d[:, :half], rate - h * by_d[:, half:]
        pushed -= h * framed

    # all other rows
    shown = coupled + rows.stiff[:, None] * closing
    old, new, held = (
        jnp.concatenate([shown, -rows.gamma[:, None] * closing], 1),
        closing,
        jnp.diag(rows.sigma),
    )
    pulled = -closing.T
    drives = jax.nn.one_hot(model.drive_index[:, 1], u.shape[0])
    after = model.stops.index.shape[0]
    before = z.shape[0] - drives.shape[0] - after
    driven = -jnp.pad(drives, ((before, after), (0, 0))) * rows.stiff[:, None]
    if len(now.box.index):
        old, new, held, driven = boxes.held_slopes(now.box, now.closing, z, (old, new, held, driven), model)
    on = model.dry.index
    if on.shape[0]:
        by = boxes.sliding_slopes(
            model, z, stuck, (now.rates[:, 0], now.rates[:, 1]), now.bound, rates, (rates0, rates1), h
        )
        pulled = jnp.concatenate([pulled, -rates[on].T], 1)
        old, new = jnp.concatenate([old, by.old]), jnp.concatenate([new, by.new])
        held = jnp.block([[held, jnp.zeros((held.shape[0], on.shape[0]))], [by.loads, jnp.diag(by.own)]])
        driven = jnp.pad(driven, ((0, on.shape[0]), (0, 0)))
    return Slopes(pose, rate, mass, (own[1], own[2]), pulled, pushed, old, new, held, driven)


def kinematic_slopes(x1: State, turned: Array, h: Array) -> tuple[Array, Array, Array]:
    """How new poses follow: by old poses, by new ones and by new velocities, (6 b, 6 b) each."""
    b, one = x1.r.shape[0], jnp.ones(x1.r.shape[0])
    inverse, forward = linear.turn_slopes(turned, h * x1.w)
    back = -jnp.swapaxes(inverse, 1, 2)
    turning = jnp.stack([back @ linear.rotations(exp_of(h * x1.w)), inverse, h * back @ forward])
    scales = jnp.stack([-one, one, -h * one])
    along_axes = scales[:, :, None, None] * jnp.eye(3)
    every = linear.diagonal(jnp.concatenate([along_axes, turning], 1)).reshape(3, 6 * b, 6 * b)
    return every[0], every[1], every[2]


def new_poses(x1: State, turned: Array, h: Array, velocities: Array, first: int) -> Array:
    """(6 b, columns) changes of new poses that kinematic rows leave, from those of new velocities.

    Columns: others `first`, then old poses; the last is what is there already. With ρ = turned, J(ρ) ρ = ρ and
    J(ρ) J⁻¹(−ρ) = exp(ρ):  dφ₁ = exp(ρ) (exp(h ω₁) dφ₀ + h J(h ω₁) dω₁) − ρ.
    """
    b = x1.r.shape[0]
    _, forward = linear.turn_slopes(turned, h * x1.w)
    round_, stepped = linear.rotations(exp_of(turned)), linear.rotations(exp_of(h * x1.w))
    spun = velocities.reshape(2, b, 3, -1)
    moved = jnp.stack([h * spun[0], h * (round_ @ forward) @ spun[1]]).reshape(6 * b, -1)
    along_axes = jnp.broadcast_to(jnp.eye(3), (b, 3, 3))
    old = linear.diagonal(jnp.concatenate([along_axes, round_ @ stepped]))
    return moved + jnp.pad(old, ((0, 0), (first, velocities.shape[1] - first - 6 * b)))


# By the numbers of bodies


class Bodies(NamedTuple):
    """How masses, centres of mass and inertias move with parameters, which come last."""

    mass: Array
    com: Array
    inertia: Array


def bodies_along(model: TreeModel, slope: Array) -> Bodies:
    """slope: ∂(pseudo-inertias)/∂θ."""

    def one(direction: Array) -> Any:
        return jax.jvp(lambda p: inertias(replace(model, pseudo=p)), (model.pseudo,), (direction,))[1]

    return Bodies(*jax.vmap(one, in_axes=-1, out_axes=-1)(slope))


def by_bodies(
    by: Slopes,
    now: Balance,
    scene: Scene,
    G: Array,
    x0: State,
    x1: State,
    z: Array,
    u: Array,
    h: Array,
    model: Any,
    along: Bodies,
) -> tuple[Array, Array]:
    """Slopes of the balances and of the other rows along parameters that move the bodies' numbers.

    A centre of mass that moves by c in its body, δ = R c, moves everything else that is fixed to the body by −δ,
    its velocity by −ω × δ, its acceleration by −ω × (ω × δ); and the moment of a force F about it by −δ × F.
    """
    b, c = x0.r.shape[0], G.shape[0] - model.nq
    straight = slice(0, 3 * b)
    hats0, hats1 = (_diagonal_hats(w) for w in (x0.w, x1.w))
    R, rates = linear.diagonal(scene.R), G[c:, straight]

    def moved(pose: Array, rate: Array, mass: Array) -> Array:
        return -(pose[:, straight] + rate[:, straight] @ hats0 + mass[:, straight] @ hats1)

    balance = moved(by.pose, by.rate - by.own[0], by.mass - by.own[1])
    balance -= h * G[c:].T @ elements.weighed(model, model.armature, rates) @ (hats0 @ hats0)
    force = (now.weights @ G)[straight].reshape(b, 3) - h * frame_forces(model, x0, scene, u)[0]
    balance += jnp.pad(_diagonal_hats(force), ((3 * b, 0), (0, 0)))
    half = 6 * b
    others = moved(by.old[:, :half], by.old[:, half:], by.new)
    com = R @ along.com.reshape(3 * b, -1)
    balance, others = balance @ com, others @ com

    pushed = (x1.v - x0.v - h * model.gravity)[:, :, None] * along.mass[:, None]
    # in the bodies' own axes
    gained, spin = (jnp.einsum("bji,bj->bi", scene.R, w) for w in (x1.w - x0.w, x0.w))
    grown = jnp.einsum("bijp,sbj->sbip", along.inertia, jnp.stack([gained, spin]))
    twisted = jnp.einsum("bij,bjp->bip", jnp.tensordot(spin, linear.SKEW, axes=(1, 0)), grown[1])
    turned = scene.R @ (grown[0] + h * twisted)
    balance += jnp.concatenate([pushed, turned]).reshape(half, -1)
    return balance, others


def _diagonal_hats(w: Array) -> Array:
    """(3 b, 3 b) of [w]×."""
    return linear.diagonal(jnp.tensordot(w, linear.SKEW, axes=(1, 0)))


# Elements


def _joint_slopes(q: Array, v: Array, u: Array, t: Array, model: TreeModel) -> tuple[Array, Array]:
    """Of the elements' forces on joint coordinates by q and by its rates."""

    def felt(q: Array, v: Array) -> Array:
        return elements.joint_force(model, q, v, u, t) - elements.joint_potential_gradient(model, q)

    if model.functions or model.combination.shape[0] or model.load_friction.index.shape[0]:
        by_q, by_v = jax.jacfwd(felt, argnums=(0, 1))(q, v)
        return by_q, by_v
    # each feels its own coordinate only
    one, none = jnp.ones_like(q), jnp.zeros_like(q)
    by_q, by_v = (jax.jvp(felt, (q, v), d)[1] for d in ((one, none), (none, one)))
    return jnp.diag(by_q), jnp.diag(by_v)


def _frame_slopes(x: State, u: Array, model: TreeModel) -> tuple[Array, Array]:
    """Of wrenches and line springs, by the state and by the inputs."""

    def felt(d: Array, u: Array, m: TreeModel) -> Array:
        now = moved_along(x, d)
        return frame_forces(m, now, scene_of(m, now), u).reshape(-1)

    _, (by_d, by_u), _ = columns(felt, (jnp.zeros(12 * x.r.shape[0]), u), model, None)
    return by_d, by_u
