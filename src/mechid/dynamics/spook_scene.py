"""Free bodies of a mechanism at a state: poses, inertias, the forces that act on them."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from mechid.dynamics import spook_linear as linear
from mechid.dynamics.loops import Attached
from mechid.dynamics.model import TreeModel
from mechid.dynamics.rotations import quaternion_of_vector, vector_of_quaternion
from mechid.dynamics.tree import Array, cross, take


class State(NamedTuple):
    r: Array
    """(b, 3) centres of mass, m"""
    e: Array
    """(b, 4) unit quaternions, scalar first, world from body"""
    v: Array
    """(b, 3) m/s"""
    w: Array
    """(b, 3) rad/s, world axes"""
    near: Array
    """(n,) coordinates to which these are near: which full turns are meant"""


class Scene(NamedTuple):
    """Every body's pose and inertia at a state, and the rows there."""

    R: Array
    """(b, 3, 3)"""
    com: Array
    """(b, 3) in the bodies' frames"""
    mass: Array
    inertia: Array
    """(b, 3, 3) about the centre of mass, world axes"""
    at: linear.Placed


def scene_of(model: TreeModel, x: State) -> Scene:
    mass, com, inertia = inertias(model)
    R = linear.rotations(x.e)
    turned = R @ inertia @ jnp.swapaxes(R, 1, 2)
    return Scene(R, com, mass, turned, linear.placed(model, R, x.r, com, x.near))


def exp_of(turn: Array) -> Array:
    """Quaternions of rotation vectors (b, 3)."""
    return jax.vmap(quaternion_of_vector)(turn)


def turn_between(e0: Array, e1: Array) -> Array:
    """(b, 3) rotation vectors from e0 to e1."""
    return jax.vmap(vector_of_quaternion)(linear.products(e1, e0 * linear.CONJUGATE))


def moved_along(x: State, d: Array) -> State:
    """The state reached along a tangent vector (δr, δφ, δv, δω)."""
    dr, turn, dv, dw = d.reshape(4, -1, 3)
    return State(x.r + dr, linear.products(exp_of(turn), x.e), x.v + dv, x.w + dw, x.near)


def stacked(x: State) -> Array:
    """(6 b,) velocities of all bodies, then angular velocities."""
    return jnp.concatenate([x.v, x.w]).reshape(-1)


def inertias(model: TreeModel) -> tuple[Array, Array, Array]:
    """Mass, centre of mass and inertia about it of each body, in its frame; a massless one sits at its origin."""
    pseudo = model.pseudo[model.maximal.link]
    m, first = pseudo[:, 3, 3], pseudo[:, :3, 3]
    com = first / jnp.where(m > 0.0, m, 1.0)[:, None]
    sigma = pseudo[:, :3, :3] - first[:, :, None] * com[:, None]
    trace = jnp.trace(sigma, axis1=-2, axis2=-1)
    return m, com, trace[:, None, None] * jnp.eye(3) - sigma


def mass_matrix(scene: Scene) -> Array:
    masses = jnp.diag(jnp.repeat(scene.mass, 3))
    zero = jnp.zeros_like(masses)
    return jnp.block([[masses, zero], [zero, linear.diagonal(scene.inertia)]])


def impulses(scene: Scene, dv: Array, dw: Array) -> Array:
    """(2, b, 3) m dv and J dω."""
    return jnp.stack([scene.mass[:, None] * dv, jnp.sum(scene.inertia * dw[:, None], -1)])


def body_forces(model: TreeModel, x: State, scene: Scene, u: Array) -> Array:
    """(2, b, 3) forces and moments about the centres of mass: weight, gyroscopic moment, forces at frames."""
    turned = jnp.sum(scene.inertia * x.w[:, None], -1)
    return jnp.stack([scene.mass[:, None] * model.gravity, cross(turned, x.w)]) + frame_forces(
        model, x, scene, u
    )


def frame_forces(model: TreeModel, x: State, scene: Scene, u: Array) -> Array:
    """(2, b, 3) forces and moments about the centres of mass of wrenches and line springs."""
    count = scene.mass.shape[0]
    p = x.r - jnp.einsum("bij,bj->bi", scene.R, scene.com)
    R = jnp.concatenate([scene.R, jnp.eye(3)[None]])
    p, r, v, w = (jnp.concatenate([a, jnp.zeros((1, 3))]) for a in (p, x.r, x.v, x.w))
    total = jnp.zeros((2, count + 1, 3))
    body_of = model.maximal.body_of
    wrenches, lines = model.wrenches, model.line_springs
    if wrenches.frame.shape[0]:
        body = body_of[model.frame_link[wrenches.frame]]
        pose = model.frame_pose[wrenches.frame]
        where = jnp.einsum("wij,wj->wi", R[body], pose[:, :3, 3]) + p[body]
        own = wrenches.body_axes[:, None, None]
        axes = own * (R[body] @ pose[:, :3, :3]) + (1.0 - own) * jnp.eye(3)
        six = jax.nn.one_hot(wrenches.channel, u.shape[0]) @ u
        force = jnp.einsum("wij,wj->wi", axes, six[:, :3])
        moment = jnp.einsum("wij,wj->wi", axes, six[:, 3:]) + cross(where - r[body], force)
        total = total.at[0, body].add(force).at[1, body].add(moment)
    if lines.values.shape[0]:
        k, k3, rest, c = lines.values.T
        ends = [points(R, p, on_bodies(model, a)) for a in (lines.start, lines.end)]
        bodies = [body_of[a.link] for a in (lines.start, lines.end)]
        speed = [v[b] + cross(w[b], y - r[b]) for b, y in zip(bodies, ends, strict=True)]
        gap = ends[1] - ends[0]
        length = jnp.sqrt(jnp.sum(gap * gap, -1) + 1e-30)
        along = gap / length[:, None]
        stretch = length - rest
        pull = k * stretch + k3 * stretch**3 + c * jnp.sum(along * (speed[1] - speed[0]), -1)
        for b, y, sign in zip(bodies, ends, (1.0, -1.0), strict=True):
            force = sign * pull[:, None] * along
            total = total.at[0, b].add(force).at[1, b].add(cross(y - r[b], force))
    return total[:, :count]


def on_bodies(model: TreeModel, attached: Attached) -> Attached:
    return Attached(model.maximal.body_of[attached.link], attached.vector)


def points(R: Array, p: Array, where: Attached) -> Array:
    turned = jnp.einsum("rij,rj->ri", take(R, where.link), where.vector)
    return turned + take(p, where.link)
