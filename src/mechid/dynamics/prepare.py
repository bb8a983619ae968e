"""From topology and a vector of values to the arrays of a `TreeModel`.

A differentiable function that runs once a simulation, not once a step: bodies behind fixed joints are fused into
what carries them, springs on one coordinate are summed into one polynomial, motors into one matrix.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from mechid.dynamics.elements import CustomRow, FrictionRows, LineSprings, Wrenches
from mechid.dynamics.loops import Attached
from mechid.dynamics.model import Maximal, TreeModel
from mechid.dynamics.rotations import rotation_of_vector, skew
from mechid.dynamics.tree import Array, compose
from mechid.model.inertia import pseudo_from_linear


class RowTopology(NamedTuple):
    frame: Any
    vector: Any


class MaximalTopology(NamedTuple):
    """Joints between bodies that each have six degrees of freedom."""

    link: Any
    """(b,) coordinate whose frame is the body's"""
    first: Any
    """(b,) first coordinate of its joint"""
    parent: Any
    """(b,) parent body; b is the world"""
    body_of: Any
    """(n + 1,) body carried by a coordinate"""
    basis: Any
    """(b, 3, 3) axes along which the joint's angles and slides are read"""
    owner: Any
    component: Any
    sign: Any
    """(n,) each coordinate: its body, 0–2 slide or 3–5 angle, sense"""
    row_body: Any
    row_point: Any
    row_world: Any
    row_direction: Any
    row_to: Any


@dataclass(frozen=True, eq=False)
class Topology:
    """Integer arrays of a mechanism. `blocks`, `functions`, `custom_sizes` and `nu` are static."""

    jumps: Any
    ancestry: Any
    axis: Any
    revolute: Any
    first_of_joint: Any
    """(n,) joint that a coordinate begins, −1 inside a compound joint"""
    fixed_jumps: Any
    body_joint: Any
    body_fixed: Any
    body_carrier: Any
    joint_parent: Any
    frame_body: Any
    frame_link: Any
    spring_index: Any
    damper_index: Any
    friction_index: Any
    motor_index: Any
    armature_index: Any
    motor_input: Any
    line_frames: Any
    wrenches: Wrenches
    custom_index: tuple[Any, ...]
    row_direction: RowTopology
    row_to: RowTopology
    row_start: RowTopology
    coupling_index: Any
    drive_index: Any
    maximal: MaximalTopology
    blocks: tuple[tuple[str, int, int, int], ...]
    functions: tuple[tuple[Any, bool], ...]
    custom_sizes: tuple[int, ...]
    nu: int


_META = ("blocks", "functions", "custom_sizes", "nu")
jax.tree_util.register_dataclass(
    Topology,
    data_fields=[f.name for f in dataclasses.fields(Topology) if f.name not in _META],
    meta_fields=list(_META),
)


def prepare(top: Topology, values: Array) -> TreeModel:
    """The model for a vector of values."""
    top = jax.tree.map(jnp.asarray, top)
    part = {
        name: values[offset : offset + rows * columns].reshape(rows, columns)
        for name, offset, rows, columns in top.blocks
    }
    n = top.axis.shape[0]
    joint = _poses(part["joint_origin"], part["joint_rotation"], part["joint_tilt"])
    body = _body_poses(top, joint)
    frame = _frame_poses(top, part, body)
    motion = _motion(top, joint, body)
    gear, gain = part["motor"][:, 1], part["motor"][:, 0]

    def attached(index: Array, vector: Any, *, point: bool) -> Attached:
        pose = frame[index]
        turned = jnp.einsum("rij,rj->ri", pose[:, :3, :3], vector)
        return Attached(top.frame_link[index], turned + point * pose[:, :3, 3])

    line_start, line_end = (
        attached(index, jnp.zeros((index.shape[0], 3)), point=True) for index in top.line_frames.T
    )
    return TreeModel(
        jumps=top.jumps,
        ancestry=top.ancestry,
        motion=motion,
        axis=top.axis,
        revolute=top.revolute,
        pseudo=_pseudo(top, part["rigid"], body),
        gravity=part["gravity"][0],
        potential=_spring_potential(top, part["spring"]),
        armature=_armature(top, part["motor"], part["armature"]),
        damping=jnp.zeros((n, 2)).at[top.damper_index].add(part["damper"]),
        motor=jnp.zeros((n, top.nu)).at[top.motor_index, top.motor_input].add(gain * gear),
        friction=FrictionRows(top.friction_index, part["friction"]),
        line_springs=LineSprings(line_start, line_end, part["line_spring"]),
        wrenches=top.wrenches,
        customs=_customs(top, part["custom"][:, 0]),
        row_direction=attached(*top.row_direction, point=False),
        row_to=attached(*top.row_to, point=True),
        row_start=attached(*top.row_start, point=True),
        coupling_index=top.coupling_index,
        coupling=part["coupling"],
        drive_index=top.drive_index,
        frame_link=top.frame_link,
        frame_pose=frame,
        maximal=_maximal(top.maximal, motion[0]),
        functions=top.functions,
    )


def _body_poses(top: Topology, joint: Array) -> Array:
    """Each body in the frame of the coordinate that carries it; the world comes last."""
    fixed = top.body_fixed[:, None, None]
    own = fixed * joint[top.body_joint] + (1.0 - fixed) * jnp.eye(4)
    return compose(jnp.concatenate([own, jnp.eye(4)[None]]), top.fixed_jumps)


def _frame_poses(top: Topology, part: dict[str, Array], body: Array) -> Array:
    named = _poses(part["frame_origin"], part["frame_rotation"], part["frame_tilt"])
    own = jnp.broadcast_to(jnp.eye(4), (top.frame_body.shape[0] - named.shape[0], 4, 4))
    return body[top.frame_body] @ jnp.concatenate([own, named])


def _motion(top: Topology, joint: Array, body: Array) -> Array:
    """Each coordinate's transform to its parent as constant + sin + (1 − cos) + linear parts."""
    begins = top.first_of_joint >= 0
    k = jnp.where(begins, top.first_of_joint, 0)
    place = body[top.joint_parent[k]] @ joint[k]
    place = jnp.where(begins[:, None, None], place, jnp.eye(4))
    n = top.axis.shape[0]
    K = jnp.zeros((n, 4, 4)).at[:, :3, :3].set(jax.vmap(skew)(top.axis))
    slide = jnp.zeros((n, 4, 4)).at[:, :3, 3].set(top.axis)
    turn = top.revolute[:, None, None]
    parts = jnp.stack([jnp.broadcast_to(jnp.eye(4), K.shape), turn * K, turn * K @ K, (1 - turn) * slide])
    return place @ parts


def _pseudo(top: Topology, rigid: Array, body: Array) -> Array:
    """Pseudo-inertias of all bodies that a coordinate carries, in its frame. What the world carries rests."""
    pose = body[:-1]
    moved = pose @ pseudo_from_linear(rigid) @ jnp.swapaxes(pose, -1, -2)
    n = top.axis.shape[0]
    return jnp.zeros((n + 1, 4, 4)).at[top.body_carrier].add(moved)[:n]


def _spring_potential(top: Topology, spring: Array) -> Array:
    """½ k (q − r)² + ¼ k₃ (q − r)⁴ of every spring, as one polynomial a coordinate."""
    k, k3, r = spring.T
    coefficients = [
        0.5 * k * r**2 + 0.25 * k3 * r**4,
        -k * r - k3 * r**3,
        0.5 * k + 1.5 * k3 * r**2,
        -k3 * r,
        0.25 * k3,
    ]
    empty = jnp.zeros((top.axis.shape[0], 5))
    return empty.at[top.spring_index].add(jnp.stack(coefficients, -1))


def _armature(top: Topology, motor: Array, armature: Array) -> Array:
    gear, rotor = motor[:, 1], motor[:, 2]
    total = jnp.zeros(top.axis.shape[0]).at[top.motor_index].add(gear**2 * rotor)
    return total.at[top.armature_index].add(armature[:, 0])


def _customs(top: Topology, values: Array) -> tuple[CustomRow, ...]:
    rows, at = [], 0
    for index, size in zip(top.custom_index, top.custom_sizes, strict=True):
        rows.append(CustomRow(index, values[at : at + size]))
        at += size
    return tuple(rows)


def _maximal(top: MaximalTopology, placement: Array) -> Maximal:
    """Joint rows between bodies, in the bodies' frames."""
    place = placement[top.first]
    at = place[top.row_body]
    world = top.row_world[:, None] > 0
    point = top.row_point[:, None] > 0
    turned = jnp.einsum("rij,rj->ri", at[:, :3, :3], top.row_direction)
    parent, none = top.parent[top.row_body], top.link.shape[0]
    return Maximal(
        link=top.link,
        parent=top.parent,
        place=place,
        body_of=top.body_of,
        basis=top.basis,
        owner=top.owner,
        component=top.component,
        sign=top.sign,
        row_direction=Attached(
            jnp.where(world[:, 0], none, parent), jnp.where(world, top.row_direction, turned)
        ),
        row_to=Attached(top.row_body, top.row_to),
        row_start=Attached(
            jnp.where(point[:, 0], parent, top.row_body), jnp.where(point, at[:, :3, 3], 0.0)
        ),
    )


def _poses(origin: Array, rotation: Array, tilt: Array) -> Array:
    """4×4 poses: the given rotation, then a small tilt about the frame's own axes."""
    count = origin.shape[0]
    turned = rotation.reshape(count, 3, 3) @ jax.vmap(rotation_of_vector)(tilt)
    top = jnp.concatenate([turned, origin[:, :, None]], -1)
    bottom = jnp.broadcast_to(jnp.array([[[0.0, 0.0, 0.0, 1.0]]]), (count, 1, 4))
    return jnp.concatenate([top, bottom], -2)
