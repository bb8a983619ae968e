"""From topology and a vector of values to the arrays of a `TreeModel`.

A differentiable function that runs once a simulation, not once a step: bodies behind fixed joints are fused
into what carries them, springs on one coordinate are summed into one polynomial, motors into one matrix. With
plain numbers it runs in NumPy, so that lowering a mechanism needs no compiler.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mechid.compile import jit
from mechid.dynamics.contacts import Contacts, Stops
from mechid.dynamics.dry import DryRows
from mechid.dynamics.elements import AxisRows, CustomRow, LineSprings, LoadRows, Wrenches
from mechid.dynamics.loops import Attached
from mechid.dynamics.model import Maximal, TreeModel, float_leaves
from mechid.model.geometry import skew
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
    """Integer arrays of a mechanism, in NumPy."""

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
    combination_terms: Any
    """(terms, 2) combination and coordinate of each ratio"""
    combinations: int
    spring_index: Any
    damper_index: Any
    friction_index: Any
    gear_friction_index: Any
    load_friction_index: Any
    load_index: Any
    piecewise_spring_index: Any
    periodic_friction_index: Any
    dry_friction_index: Any
    dry_loaded: Any
    """those of them that were made with a coefficient of the joint's load"""
    lower_stop_index: Any
    upper_stop_index: Any
    motor_index: Any
    armature_index: Any
    offset_index: Any
    motor_input: Any
    line_frames: Any
    wrenches: Wrenches
    custom_index: tuple[Any, ...]
    row_direction: RowTopology
    row_to: RowTopology
    row_start: RowTopology
    contact_direction: RowTopology
    contact_to: RowTopology
    contact_start: RowTopology
    coupling_index: Any
    drive_index: Any
    maximal: MaximalTopology
    blocks: tuple[tuple[str, int, int, int], ...]
    functions: tuple[tuple[Any, bool], ...]
    custom_sizes: tuple[int, ...]
    nu: int
    felt: Any
    """(n,) kg·m² or kg: the mechanism's own inertias, by which rows of dry friction and stops are measured"""
    weight: float
    """kg, all masses together: the same for contacts"""


def prepare(top: Topology, values: Any) -> TreeModel:
    """The model for a vector of values: at once in NumPy, or traced and differentiable in JAX."""
    xp = np if isinstance(values, np.ndarray) else jnp
    part: dict[str, Any] = {
        name: values[offset : offset + rows * columns].reshape(rows, columns)
        for name, offset, rows, columns in top.blocks
    }
    n = top.axis.shape[0]
    axes = n + top.combinations
    combined, of = top.combination_terms.T
    shape = _geometry_of(xp, top, part)
    gear, gain, rotor = part["motor"][:, 1], part["motor"][:, 0], part["motor"][:, 2]
    return TreeModel(
        jumps=top.jumps,
        ancestry=top.ancestry,
        motion=shape.motion,
        axis=top.axis,
        revolute=top.revolute,
        pseudo=_pseudo(xp, top, part["rigid"], shape.body),
        # as a stand that is tilted sees it
        gravity=part["gravity"][0] @ _rotations(xp, part["gravity_tilt"])[0],
        combination=_summed(xp, (top.combinations, n), (combined, of), part["combination"][:, 0]),
        # a constant force has a potential that falls evenly
        potential=_summed(xp, (axes, 5), top.spring_index, _spring_potential(xp, part["spring"]))
        - _summed(xp, (axes, 5), top.offset_index, part["offset"] * np.eye(5)[1]),
        armature=_summed(xp, (axes,), top.motor_index, gear**2 * rotor)
        + _summed(xp, (axes,), top.armature_index, part["armature"][:, 0]),
        damping=_summed(xp, (axes, 2), top.damper_index, part["damper"]),
        motor=_summed(xp, (axes, top.nu), (top.motor_index, top.motor_input), gain * gear),
        friction=AxisRows(top.friction_index, part["friction"]),
        gear_friction=AxisRows(top.gear_friction_index, part["gear_friction"]),
        load_friction=LoadRows(top.load_friction_index, top.load_index, part["load_friction"]),
        piecewise=AxisRows(top.piecewise_spring_index, part["piecewise_spring"]),
        periodic=AxisRows(top.periodic_friction_index, part["periodic_friction"]),
        dry=DryRows(
            top.dry_friction_index,
            part["dry_friction"],
            *_scales(top, top.dry_friction_index),
            top.dry_loaded,
        ),
        contacts=Contacts(
            *shape.contacts,
            part["contact"][:, 0],
            _none(top.contact_to.frame),
            np.full(len(top.contact_to.frame), top.weight),  # type: ignore[arg-type]
        ),
        stops=_stops(xp, top, part),
        line_springs=LineSprings(shape.line_start, shape.line_end, part["line_spring"]),
        wrenches=top.wrenches,
        customs=_customs(top, part["custom"][:, 0]),
        row_direction=shape.row_direction,
        row_to=shape.row_to,
        row_start=shape.row_start,
        coupling_index=top.coupling_index,
        coupling=part["coupling"],
        drive_index=top.drive_index,
        frame_link=top.frame_link,
        frame_pose=shape.frame,
        maximal=shape.maximal,
        functions=top.functions,
    )


class Geometry(NamedTuple):
    """What follows from the poses of joints and frames alone."""

    body: Any
    frame: Any
    motion: Any
    line_start: Attached
    line_end: Attached
    row_direction: Attached
    row_to: Attached
    row_start: Attached
    contacts: tuple[Attached, Attached, Attached]
    maximal: Maximal


POSES = tuple(f"{what}_{part}" for what in ("joint", "frame") for part in ("origin", "rotation", "tilt"))
"""blocks of values that make the geometry"""


def _geometry_of(xp: Any, top: Topology, part: dict[str, Any]) -> Geometry:
    """Kept where it is made of plain numbers: most parameters leave it alone."""
    poses = [part[name] for name in POSES]
    if xp is not np or any(np.iscomplexobj(x) and x.imag.any() for x in poses):
        return _geometry(xp, top, dict(zip(POSES, poses, strict=True)))
    return _kept_geometry(_Static(top), tuple(x.real.tobytes() for x in poses))


@lru_cache(maxsize=64)
def _kept_geometry(static: _Static, poses: tuple[bytes, ...]) -> Geometry:
    top = static.top
    sizes = {name: (rows, columns) for name, _, rows, columns in top.blocks}
    part = {k: np.frombuffer(x).reshape(sizes[k]) for k, x in zip(POSES, poses, strict=True)}
    return _geometry(np, top, part)


def _geometry(xp: Any, top: Topology, part: dict[str, Any]) -> Geometry:
    joint = _poses(xp, part["joint_origin"], part["joint_rotation"], part["joint_tilt"])
    body = _body_poses(xp, top, joint)
    frame = _frame_poses(xp, top, part, body)
    motion = _motion(xp, top, joint, body)

    def attached(index: Any, vector: Any, *, point: bool) -> Attached:
        pose = frame[index]
        return Attached(top.frame_link[index], _turned(pose, vector) + point * pose[:, :3, 3])

    line_start, line_end = (attached(i, np.zeros((len(i), 3)), point=True) for i in top.line_frames.T)
    return Geometry(
        body,
        frame,
        motion,
        line_start,
        line_end,
        row_direction=attached(*top.row_direction, point=False),
        row_to=attached(*top.row_to, point=True),
        row_start=attached(*top.row_start, point=True),
        contacts=(
            attached(*top.contact_direction, point=False),
            attached(*top.contact_to, point=True),
            attached(*top.contact_start, point=True),
        ),
        maximal=_maximal(xp, top.maximal, motion[0]),
    )


MANY = 24
"""parameters from which on their slopes are worth a compiled program"""


def prepare_tangent(top: Topology, values: np.ndarray, slopes: np.ndarray) -> list[Any]:
    """∂(float leaves of the model)/∂θ, parameters last, from ∂values/∂θ (values, parameters).

    By a complex step, which is exact to rounding and needs no compiler; compiled where there are many.
    """
    if slopes.shape[1] > MANY:
        return _compiled_tangent(_Static(top), values, slopes)
    size = 1e-30
    columns = [float_leaves(prepare(top, values + 1j * size * slope)) for slope in slopes.T]

    def slope(leaf: tuple[Any, ...]) -> Any:
        if not any(x.dtype.kind == "c" and x.imag.any() for x in leaf):
            return np.zeros((*leaf[0].shape, len(leaf)))
        return np.stack([x.imag / size for x in leaf], -1)  # of real numbers 0

    return [slope(leaf) for leaf in zip(*columns, strict=True)]


class _Static:
    """A topology as an argument that is known while compiling."""

    def __init__(self, top: Topology) -> None:
        self.top = top

    def __hash__(self) -> int:
        return id(self.top)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Static) and other.top is self.top


def _tangent_of(static: _Static, values: Any, slopes: Any) -> list[Any]:
    def one(slope: Any) -> list[Any]:
        return jax.jvp(lambda v: float_leaves(prepare(static.top, v)), (values,), (slope,))[1]

    return jax.vmap(one, in_axes=-1, out_axes=-1)(slopes)


_compiled_tangent = jit(_tangent_of, once=True, static_argnums=(0,))


def _summed(xp: Any, shape: tuple[int, ...], index: Any, rows: Any) -> Any:
    """Zeros of a shape with rows added at indices."""
    if xp is jnp:
        return jnp.zeros(shape).at[index].add(rows)
    total = np.zeros(shape, dtype=rows.dtype)
    np.add.at(total, index, rows)
    return total


def _turned(pose: Any, vectors: Any) -> Any:
    return (pose[:, :3, :3] @ vectors[:, :, None])[:, :, 0]


def _body_poses(xp: Any, top: Topology, joint: Any) -> Any:
    """Each body in the frame of the coordinate that carries it; the world comes last."""
    fixed = top.body_fixed[:, None, None]
    own = fixed * joint[top.body_joint] + (1.0 - fixed) * np.eye(4)
    poses = xp.concatenate([own, np.eye(4)[None]])
    for jump in top.fixed_jumps:
        poses = poses[jump] @ poses
    return poses


def _frame_poses(xp: Any, top: Topology, part: dict[str, Any], body: Any) -> Any:
    named = _poses(xp, part["frame_origin"], part["frame_rotation"], part["frame_tilt"])
    own = np.broadcast_to(np.eye(4), (top.frame_body.shape[0] - named.shape[0], 4, 4))
    return body[top.frame_body] @ xp.concatenate([own, named])


def _motion(xp: Any, top: Topology, joint: Any, body: Any) -> Any:
    """Each coordinate's transform to its parent as constant + sin + (1 − cos) + linear parts."""
    begins = top.first_of_joint >= 0
    k = np.where(begins, top.first_of_joint, 0)
    place = xp.where(begins[:, None, None], body[top.joint_parent[k]] @ joint[k], np.eye(4))
    K, slide = np.zeros((2, top.axis.shape[0], 4, 4))
    K[:, :3, :3] = [skew(a) for a in top.axis]
    slide[:, :3, 3] = top.axis
    turn = top.revolute[:, None, None]
    return place @ np.stack([np.broadcast_to(np.eye(4), K.shape), turn * K, turn * K @ K, (1 - turn) * slide])


def _pseudo(xp: Any, top: Topology, rigid: Any, body: Any) -> Any:
    """Pseudo-inertias of all bodies that a coordinate carries, in its frame. What the world carries rests."""
    pose = body[:-1]
    moved = pose @ pseudo_from_linear(rigid) @ xp.swapaxes(pose, -1, -2)
    n = top.axis.shape[0]
    return _summed(xp, (n + 1, 4, 4), top.body_carrier, moved)[:n]


def _spring_potential(xp: Any, spring: Any) -> Any:
    """½ k (q − r)² + ¼ k₃ (q − r)⁴ of every spring as a polynomial; those of one coordinate add up."""
    k, k3, r = spring.T
    coefficients = [
        0.5 * k * r**2 + 0.25 * k3 * r**4,
        -k * r - k3 * r**3,
        0.5 * k + 1.5 * k3 * r**2,
        -k3 * r,
        0.25 * k3,
    ]
    return xp.stack(coefficients, -1)


def _none(index: Any) -> Any:
    return np.zeros(len(index))


def _scales(top: Topology, index: Any) -> tuple[Any, Any]:
    """No rounding, and the inertias of coordinates."""
    return _none(index), np.maximum(top.felt[index], 1e-12)


def _stops(xp: Any, top: Topology, part: dict[str, Any]) -> Stops:
    lower, upper = top.lower_stop_index, top.upper_stop_index
    return Stops(
        np.concatenate([lower, upper]),  # type: ignore[arg-type]
        np.concatenate([np.ones(len(lower)), -np.ones(len(upper))]),  # type: ignore[arg-type]
        xp.concatenate([part["lower_stop"][:, 0], part["upper_stop"][:, 0]]),
        *_scales(top, np.concatenate([lower, upper])),
    )


def _customs(top: Topology, values: Any) -> tuple[CustomRow, ...]:
    rows, at = [], 0
    for index, size in zip(top.custom_index, top.custom_sizes, strict=True):
        rows.append(CustomRow(index, values[at : at + size]))
        at += size
    return tuple(rows)


def _maximal(xp: Any, top: MaximalTopology, placement: Any) -> Maximal:
    """Joint rows between bodies, in the bodies' frames."""
    place = placement[top.first]
    at = place[top.row_body]
    world, point = top.row_world[:, None] > 0, top.row_point[:, None] > 0
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
            xp.where(world[:, 0], none, parent),
            xp.where(world, top.row_direction, _turned(at, top.row_direction)),
        ),
        row_to=Attached(top.row_body, top.row_to),
        row_start=Attached(xp.where(point[:, 0], parent, top.row_body), xp.where(point, at[:, :3, 3], 0.0)),
    )


def _poses(xp: Any, origin: Any, rotation: Any, tilt: Any) -> Any:
    """4×4 poses: the given rotation, then a small tilt (a rotation vector) about the frame's own axes."""
    count = origin.shape[0]
    turned = rotation.reshape(count, 3, 3) @ _rotations(xp, tilt)
    top = xp.concatenate([turned, origin[:, :, None]], -1)
    bottom = np.broadcast_to(np.array([0.0, 0.0, 0.0, 1.0]), (count, 1, 4))
    return xp.concatenate([top, bottom], -2)


def _rotations(xp: Any, vectors: Any) -> Any:
    """exp of rotation vectors, smooth at zero: 1 + (sin φ/φ) K + ((1 − cos φ)/φ²) K²."""
    squared = (vectors**2).sum(-1)
    small = squared.real < 1e-6
    angle = xp.sqrt(xp.where(small, 1.0, squared))
    one = xp.where(small, 1.0 - squared / 6.0 + squared**2 / 120.0, xp.sin(angle) / angle)
    two = xp.where(small, 0.5 - squared / 24.0 + squared**2 / 720.0, (1.0 - xp.cos(angle)) / angle**2)
    K = vectors @ LEVI_CIVITA
    K = K.reshape(-1, 3, 3)
    return np.eye(3) + one[:, None, None] * K + two[:, None, None] * (K @ K)


LEVI_CIVITA = np.stack([skew(e) for e in np.eye(3)]).reshape(3, 9)
"""vector → its cross product matrix, flattened"""
