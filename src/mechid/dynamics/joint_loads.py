"""What the joints of a mechanism carry, where a stepper has coordinates and no joints: for friction of their loads.

With the mechanism as free bodies, the rows of its joints J and those of its coordinates make a square matrix.
Newton's and Euler's equations of all bodies then say what each joint transmits,

    Jᵀ n + (coordinates)ᵀ τ = M v̇ + gyroscopic − weight − forces at frames − (loops)ᵀ λ

in the rows, and so in the components, in which SPOOK has these forces as unknowns.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from mechid.dynamics import spook_linear as linear
from mechid.dynamics.linear import solve_once
from mechid.dynamics.spook_boxes import loads
from mechid.dynamics.spook_rows import counts
from mechid.dynamics.spook_scene import Scene, State, body_forces, impulses, inertias
from mechid.dynamics.tree import Array, cross, kinematics


def carried(model: Any, q: Array, v: Array, a: Array, reaction: Array, u: Array) -> Array:
    """(d,) what the loads of joints add to the bounds of dry friction (N·m or N).

    a: accelerations of the coordinates; reaction: of loops, couplings and drives, N or N·m.
    """
    link, count = model.maximal.link, counts(model)
    mass, com, inertia = inertias(model)

    def rates(q: Array, v: Array) -> tuple[Array, Array]:
        at = kinematics(model, q)
        pose, twist = at.pose[link], (model.ancestry[:-1] @ (at.twist_axes * v[:, None]))[link]
        r = jnp.einsum("bij,bj->bi", pose[:, :3, :3], com) + pose[:, :3, 3]
        return twist[:, 3:] + cross(twist[:, :3], r), twist[:, :3]

    pose = kinematics(model, q).pose[link]
    R = pose[:, :3, :3]
    r = jnp.einsum("bij,bj->bi", R, com) + pose[:, :3, 3]
    (speed, turning), (dv, dw) = jax.jvp(rates, (q, v), (v, a))
    scene = Scene(R, com, mass, R @ inertia @ jnp.swapaxes(R, 1, 2), linear.placed(model, R, r, com, q))
    # the scene knows how the bodies are turned
    x = State(r, jnp.zeros((len(link), 4)), speed, turning, q)
    wanted = (impulses(scene, dv, dw) - body_forces(model, x, scene, u)).reshape(-1)
    G = linear.jacobian(scene.at)
    first, joints = count.contacts, model.maximal.row_to.link.shape[0]
    loops = G[first + joints : len(G) - model.nq]
    wanted -= reaction[: len(loops)] @ loops
    frame = jnp.concatenate([G[first : first + joints], G[len(G) - model.nq :]])
    transmitted = solve_once(frame.T, wanted)[:joints]
    return loads(model)[:, first : first + joints] @ jnp.abs(transmitted)
