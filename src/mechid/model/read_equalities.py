"""Equalities of a compiled MuJoCo model as loops and couplings.

A connect is a point that two bodies share, a weld a frame. Where the joints between the two bodies keep them in a
plane, as in a four-bar, a shared point is a pin: its third row would repeat what the joints lock.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from mechid.errors import MechidError
from mechid.model.geometry import Array
from mechid.model.mechanism import WORLD, Mechanism
from mechid.model.parts import Frame, Joint
from mechid.model.read_mujoco import mj, rotation_of
from mechid.model.read_names import Names, listed

FLAT = 1e-9
"""m or sine of an angle: what still counts as in a plane"""


class Named(NamedTuple):
    """The names that MuJoCo's bodies, joints and sites have in the mechanism."""

    body: list[str]
    joint: list[str]
    site: list[str]
    names: Names


def add_equalities(m: Mechanism, model: Any, named: Named) -> tuple[Mechanism, list[str]]:
    """The mechanism with the loops and couplings of the model, and notes."""
    for e in range(model.neq):
        add = _coupling if model.eq_type[e] == mj.mjtEq.mjEQ_JOINT else _loop
        m = add(m, model, e, named)
    notes = []
    if model.neq:
        notes.append("Equalities are exact here: their softness (solref, solimp) is left out.")
    pins = [loop.name for loop in m.loops if loop.kind == "pin"]
    if pins:
        notes.append(
            f"These points are shared by bodies that move in one plane, and so they are pins: {listed(pins)}."
        )
    return m, notes


def _name(model: Any, e: int, otherwise: str, names: Names) -> str:
    given = model.eq(e).name
    return names.of_file("constraint", given) if given else names.new("constraint", otherwise)


def _coupling(m: Mechanism, model: Any, e: int, named: Named) -> Mechanism:
    """y − y₀ = Σ aᵢ (x − x₀)ⁱ, with y₀ and x₀ the reference values of the two joints."""
    first, second = model.eq_obj1id[e], model.eq_obj2id[e]
    y, y0 = named.joint[first], model.qpos0[model.jnt_qposadr[first]]
    name = _name(model, e, y, named.names)
    if second < 0:
        others = [c for c in m.coordinate_names if c != y]
        if not others:
            raise MechidError(f"equality '{name}' holds the only joint, '{y}'.")
        return m.coupling(name, y, others[0], ratio=0.0, offset=float(y0 + model.eq_data[e, 0]))
    x0 = model.qpos0[model.jnt_qposadr[second]]
    shifted = np.polynomial.Polynomial(model.eq_data[e, :5])(np.polynomial.Polynomial([-x0, 1.0]))
    a = np.zeros(5)
    a[: len(shifted.coef)] = shifted.coef
    return m.coupling(name, y, named.joint[second], offset=a[0] + y0, ratio=a[1], higher=list(a[2:]))


def _loop(m: Mechanism, model: Any, e: int, named: Named) -> Mechanism:
    data, weld = model.eq_data[e], model.eq_type[e] == mj.mjtEq.mjEQ_WELD
    ends = model.eq_obj1id[e], model.eq_obj2id[e]
    if model.eq_objtype[e] == mj.mjtObj.mjOBJ_SITE:
        frames = [named.site[s] for s in ends]
        name = _name(model, e, "/".join(frames), named.names)
    else:
        bodies = [named.body[b] for b in ends]
        name = _name(model, e, "/".join(bodies), named.names)
        # a weld holds its anchor in the second body and the pose of that in the first
        places = (data[3:6], data[0:3]) if weld else (data[0:3], data[3:6])
        turns = (rotation_of(data[6:10]), np.eye(3)) if weld else (np.eye(3), np.eye(3))
        frames = []
        for body, origin, rotation in zip(bodies, places, turns, strict=True):
            frames.append(named.names.new("frame", f"{body}/{model.eq(e).name or 'anchor'}"))
            m = m.frame(frames[-1], body, origin=origin, rotation=rotation)
    if weld and data[10] != 0.0:
        return m.loop(name, *frames, kind="frame")
    axis = _plane(m, *frames)
    if axis is None:
        return m.loop(name, *frames, kind="point")
    return m.loop(name, *frames, kind="pin", axis=axis)


def _plane(m: Mechanism, first: str, second: str) -> Array | None:
    """The normal, in the first frame, of the plane in which two frames move against each other, if there is one."""
    ends = [next(f for f in m.frames if f.name == name) for name in (first, second)]
    ways = [list(_way(m, frame.body)) for frame in ends]
    shared = {j.name for j in ways[0]} & {j.name for j in ways[1]}
    poses, turns, slides = [], [], []
    for frame, way in zip(ends, ways, strict=True):
        pose = np.eye(4)
        for joint in reversed([j for j in way if j.name not in shared]):
            pose = pose @ _pose(joint)
            for c in joint.coordinates:
                (turns if c.revolute else slides).append(pose[:3, :3] @ np.array(c.axis))
        poses.append(pose @ _pose(frame))
    if not turns:
        return None
    normal = turns[0]
    apart = (poses[1] - poses[0])[:3, 3] @ normal
    if np.linalg.norm(np.cross(turns, normal), axis=1).max() > FLAT or abs(apart) > FLAT:
        return None
    if any(abs(slide @ normal) > FLAT for slide in slides):
        return None
    return poses[0][:3, :3].T @ normal


def _way(m: Mechanism, body: str) -> Iterator[Joint]:
    """The joints from a body up to the world."""
    carrying = {j.child: j for j in m.joints}
    while body != WORLD:
        yield carrying[body]
        body = carrying[body].parent


def _pose(part: Joint | Frame) -> Array:
    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = part.rotation, part.origin
    return pose
