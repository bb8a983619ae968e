"""Trees in generalized coordinates: the Lagrangian's first and second derivatives in closed form.

Every coordinate i is one revolute or prismatic motion. In world axes, with j ≤ i meaning "j is i or an
ancestor of i":

    S_i   motion axis, [z ; p × z] or [0 ; z]            V_i = Σ_{j ≤ i} S_j v_j      (velocity)
    I_b   6×6 inertia about the world's origin           Ic_i = Σ_{b ≥ i} I_b         (subtree's)
    h_b = I_b V_b                                        H_i = Σ_{b ≥ i} h_b          (subtree's momentum)
    U_i = S_i × V_i                                      a_g = [0 ; g]

    ∂L/∂v_i = S_i·H_i          ∂L/∂q_i = −U_i·H_i + S_i·(Ic_i a_g)

The topology enters as the 0/1 matrix `ancestry[i, j] = 1 iff j ≤ i` and as index arrays: sums over ancestors
and subtrees are matrix products, forward kinematics is pointer jumping. No loop over joints is unrolled, so the
compile time does not grow with the number of joints and one program serves every tree of a size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from mechid.compile import accelerated

Array = jax.Array


@dataclass(frozen=True, eq=False)
class TreeArrays:
    """What the tree's formulas need of a model."""

    jumps: Array
    """(rounds, n + 1) ancestors 1, 2, 4, … coordinates up; n is the world"""
    ancestry: Array
    """(n + 1, n) 1 where coordinate j carries coordinate i; the last row, the world, is 0"""
    motion: Array
    """(4, n, 4, 4) the transform to the parent is motion[0] + sin q·[1] + (1 − cos q)·[2] + q·[3]"""
    axis: Array
    """(n, 3) in the coordinate's own frame"""
    revolute: Array
    """(n,) 1 revolute, 0 prismatic"""
    pseudo: Array
    """(n, 4, 4) pseudo-inertia of what the coordinate carries, in its frame"""
    gravity: Array


class Kinematics(NamedTuple):
    """Poses and motion axes at one configuration."""

    pose: Array
    """(n + 1, 4, 4) world from coordinate frame; the last is the world"""
    omega: Array
    """(n, 3) upper half of S: the axis of a revolute coordinate, else 0"""
    s: Array
    """(n, 3) lower half of S"""

    @property
    def twist_axes(self) -> Array:
        """(n, 6) S"""
        return jnp.concatenate([self.omega, self.s], -1)


class LagrangianTerms(NamedTuple):
    q: Array
    """∂L/∂q"""
    v: Array
    """∂L/∂v, the momentum"""


class LagrangianHessian(NamedTuple):
    qq: Array
    vq: Array
    """vq[i, j] = ∂²L/∂v_i∂q_j"""
    vv: Array
    """the mass matrix"""


def compose(poses: Array, jumps: Array) -> Array:
    """Products of transforms along the path to the root by pointer jumping, ⌈log₂ depth⌉ rounds."""
    for jump in jumps:
        poses = small_product(take(poses, jump), poses)
    return poses


def small_product(a: Array, b: Array) -> Array:
    """a @ b for many small matrices: on accelerators a sum, which fuses; a kernel of its own costs far more."""
    if not accelerated():
        return a @ b
    return jnp.sum(a[..., :, :, None] * b[..., None, :, :], -2)


def take(array: Array, index: Array) -> Array:
    """array[index] for indices known to be valid: no code for negative or too large ones."""
    return jnp.asarray(array).at[index].get(mode="promise_in_bounds", wrap_negative_indices=False)


def spread(values: Array, index: Array, n: int) -> Array:
    """(n,) with values added at indices: a product, since a scatter would break a loop into many kernels."""
    return values @ jax.nn.one_hot(index, n)


def kinematics(tree: TreeArrays, q: Array) -> Kinematics:
    """Forward kinematics of every coordinate's frame."""
    return several_kinematics(tree, q)[0]


def several_kinematics(tree: TreeArrays, *configurations: Array) -> list[Kinematics]:
    """Forward kinematics at several configurations at once, as of several trees side by side."""
    m, n = len(configurations), tree.axis.shape[0]
    a, b, c, d = tree.motion
    wide = jnp.stack(configurations)[:, :, None, None]
    local = a + jnp.sin(wide) * b + (1.0 - jnp.cos(wide)) * c + wide * d
    world = jnp.broadcast_to(jnp.eye(4), (m, 1, 4, 4))
    poses = jnp.concatenate([local, world], 1).reshape(m * (n + 1), 4, 4)
    beside = (n + 1) * jnp.arange(m)[:, None]
    jumps = (jnp.asarray(tree.jumps)[:, None] + beside[None]).reshape(-1, m * (n + 1))
    pose = compose(poses, jumps).reshape(m, n + 1, 4, 4)
    z = jnp.sum(pose[:, :-1, :3, :3] * tree.axis[None, :, None], -1)
    turn = tree.revolute[None, :, None]
    omega = z * turn
    s = cross(pose[:, :-1, :3, 3], omega) + z * (1.0 - turn)
    return [Kinematics(pose[i], omega[i], s[i]) for i in range(m)]


class Motion(NamedTuple):
    """Velocity-dependent quantities shared by the derivatives."""

    at: Kinematics
    pseudo: Array
    """(n, 4, 4) each link's pseudo-inertia in world axes"""
    twist: Array
    """(n, 6) V"""
    U: Array
    momentum: Array
    """(n, 6) H, the subtree's momentum"""
    moment: Array
    """(n, 4) the subtree's first moment and mass"""


def motion(tree: TreeArrays, at: Kinematics, v: Array) -> Motion:
    pose = at.pose[:-1]
    pseudo = small_product(small_product(pose, tree.pseudo), jnp.swapaxes(pose, -1, -2))
    S = at.twist_axes
    below = tree.ancestry[:-1]
    # columns filled up to whole vectors of the machine: half the time to compile the products
    V = (below @ jnp.pad(S * v[:, None], ((0, 0), (0, 2))))[:, :6]
    carried = jnp.concatenate([momentum_of(pseudo, V), pseudo[:, :, 3], jnp.zeros_like(V)], -1)
    summed = below.T @ carried
    return Motion(at, pseudo, V, motion_cross(S, V), summed[:, :6], summed[:, 6:10])


def lagrangian_terms(tree: TreeArrays, now: Motion) -> LagrangianTerms:
    """∂L/∂q and ∂L/∂v of kinetic energy and gravity."""
    S = now.at.twist_axes
    weight = _weight(tree, now)
    return LagrangianTerms(jnp.sum(S * weight - now.U * now.momentum, -1), jnp.sum(S * now.momentum, -1))


def lagrangian_hessian(tree: TreeArrays, now: Motion) -> LagrangianHessian:
    """Second derivatives of kinetic energy and gravity: a few (n×6)(6×n) products masked by ancestry."""
    n = now.U.shape[0]
    below = tree.ancestry[:-1]
    S = now.at.twist_axes
    subtree = (below.T @ now.pseudo.reshape(n, 16)).reshape(n, 4, 4)
    P = momentum_of(subtree, S)
    Q = momentum_of(subtree, now.U) - force_cross(S, now.momentum)
    falling = jnp.concatenate([jnp.zeros_like(now.at.s), cross(now.at.omega, tree.gravity)], -1)
    # turned factor by factor: a product of two rows of vectors is slow where both run along their rows
    right = jnp.concatenate([S.T, now.U.T, falling.T], 1)
    products = jnp.concatenate([P, Q]) @ right
    PS, PU, Pg = products[:n, :n], products[:n, n : 2 * n], products[:n, 2 * n :]
    QS, QU = products[n:, :n], products[n:, n : 2 * n]
    strict = below - jnp.eye(n)
    return LagrangianHessian(
        qq=_mirror(below * (QU - Pg)),
        vq=-(strict * PU + below.T * QS.T),
        vv=_mirror(below * PS),
    )


def inverse_dynamics(tree: TreeArrays, q: Array, v: Array, a: Array) -> Array:
    """M a + bias − gravity: the force on each coordinate that accelerates it by a (Newton–Euler)."""
    now = motion(tree, kinematics(tree, q), v)
    S, V = now.at.twist_axes, now.twist
    below = tree.ancestry[:-1]
    A = below @ (S * a[:, None] + motion_cross(V, S) * v[:, None])
    inertial = momentum_of(now.pseudo, A) + force_cross(V, momentum_of(now.pseudo, V))
    return jnp.sum(S * (below.T @ inertial - _weight(tree, now)), -1)


def kinetic_energy(now: Motion) -> Array:
    return 0.5 * jnp.sum(now.twist * momentum_of(now.pseudo, now.twist))


def gravity_energy(tree: TreeArrays, now: Motion) -> Array:
    return -jnp.sum(now.pseudo[:, :3, 3] @ tree.gravity)


def _weight(tree: TreeArrays, now: Motion) -> Array:
    """Ic_i a_g: the subtree's weight as a wrench about the world's origin."""
    moment = cross(now.moment[:, :3], tree.gravity)
    return jnp.concatenate([moment, now.moment[:, 3:] * tree.gravity], -1)


def _mirror(lower: Array) -> Array:
    return lower + lower.T - jnp.diag(jnp.diag(lower))


# Spatial algebra. Twists are [ω ; v], wrenches and momenta [moment ; force], about the world's origin.


def cross(a: Array, b: Array) -> Array:
    """a × b"""
    (ax, ay, az), (bx, by, bz) = (jnp.moveaxis(x, -1, 0) for x in (a, b))
    return jnp.stack([ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx], -1)


def motion_cross(a: Array, b: Array) -> Array:
    """a × b of two twists."""
    w, v = a[..., :3], a[..., 3:]
    return jnp.concatenate([cross(w, b[..., :3]), cross(w, b[..., 3:]) + cross(v, b[..., :3])], -1)


def force_cross(a: Array, f: Array) -> Array:
    """a ×* f of a twist and a wrench."""
    w, v = a[..., :3], a[..., 3:]
    return jnp.concatenate([cross(w, f[..., :3]) + cross(v, f[..., 3:]), cross(w, f[..., 3:])], -1)


def momentum_of(pseudo: Array, twist: Array) -> Array:
    """Inertia times twist, from the pseudo-inertia [[Σ, μ], [μᵀ, m]]: I = tr(Σ) 1 − Σ, μ = m c."""
    w, v = twist[..., :3], twist[..., 3:]
    sigma, mu, m = pseudo[..., :3, :3], pseudo[..., :3, 3], pseudo[..., 3, 3]
    trace = sigma[..., 0, 0] + sigma[..., 1, 1] + sigma[..., 2, 2]
    turning = trace[..., None] * w - jnp.sum(sigma * w[..., None, :], -1) + cross(mu, v)
    return jnp.concatenate([turning, m[..., None] * v - cross(mu, w)], -1)
