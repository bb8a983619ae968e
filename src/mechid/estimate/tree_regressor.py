"""The balance of forces of a tree as columns: M a + bias − F = Σ column · number, for many samples at once.

With ω, ω̇ and a the angular velocity, its rate and the acceleration less gravity of a body's frame, in the body's
axes, the wrench that moves the body is linear in m, first moment μ and inertia I about the frame's origin:

    force  = a m + (ω̇ × + ω × ω ×) μ          moment = I ω̇ + ω × I ω − a × μ

and what a coordinate must bear of it is its product with the coordinate's motion axis, in the body's axes too
(Atkeson, An and Hollerbach, 1986). In NumPy, components first and samples last: nothing is compiled.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from mechid.dynamics.model import TreeModel

Array = np.ndarray
CHUNK = 1024
"""samples at a time: what they need stays in the cache"""


class Moving(NamedTuple):
    """How a frame moves, in its own axes, (3, N) each, and what moves it."""

    turn: Array
    """ω"""
    turning: Array
    """ω̇"""
    acceleration: Array
    """of the origin, less gravity"""
    axes: Array
    """(6, d, N) motion axes of the coordinates that carry it, root first: [ω ; v of the origin] a unit of rate"""


def bodies_columns(
    model: TreeModel, frames: list[int], q: Array, v: Array, a: Array
) -> Iterator[tuple[list[int], Array]]:
    """For each frame the coordinates that carry it and the (10, d, N) forces on them by its ten numbers.

    frames: as they stand in the model (the world, bodies, named frames), each a body's; q, v, a: (n, N). A body's
    ten numbers are mass, first moment and inertia about its origin as xx, yy, zz, xy, xz, yz.
    """
    moving = _moving(model, q, v, a)
    paths = _paths(model)
    n = model.nq
    for frame in frames:
        carrier = int(model.frame_link[frame])
        if carrier == n:
            yield [], np.zeros((10, 0, q.shape[1]))
            continue
        pose = np.asarray(model.frame_pose[frame])
        yield paths[carrier], _ten(_attached(moving[carrier], pose))


def _paths(model: TreeModel) -> list[list[int]]:
    """The coordinates from the root to each, itself included."""
    parent, n = np.asarray(model.jumps[0]), model.nq
    paths = []
    for i in range(n):
        path = [i]
        while (up := int(parent[path[0]])) != n:
            path.insert(0, up)
        paths.append(path)
    return paths


def _moving(model: TreeModel, q: Array, v: Array, a: Array) -> list[Moving]:
    n, count = q.shape
    still = np.zeros((3, count))
    upward = np.repeat(-np.asarray(model.gravity)[:, None], count, 1)
    world = Moving(still, still, upward, np.zeros((6, 0, count)))
    parts = np.asarray(model.motion)
    found: dict[int, Moving] = {n: world}
    for path in sorted(_paths(model), key=len):
        i = path[-1]
        above = found[path[-2] if len(path) > 1 else n]
        constant, sine, rest, linear = parts[:, i, :, :, None]
        axis = np.asarray(model.axis[i])[:, None]
        if model.revolute[i]:
            pose = constant + np.sin(q[i]) * sine + (1.0 - np.cos(q[i])) * rest
            before = _carried(above, pose[:3, :3], constant[:3, 3])
            spin = axis * v[i]
            turning = before.turning + axis * a[i] + _cross(before.turn, spin)
            own = np.concatenate([axis, 0.0 * axis])
            now = Moving(before.turn + spin, turning, before.acceleration, before.axes)
        else:
            pose = constant + q[i] * linear
            before = _carried(above, constant[:3, :3] + 0.0 * q[i], pose[:3, 3])
            pull = axis * a[i] + 2.0 * _cross(before.turn, axis * v[i])
            own = np.concatenate([0.0 * axis, axis])
            now = before._replace(acceleration=before.acceleration + pull)
        own = np.broadcast_to(own[:, None], (6, 1, count))
        found[i] = now._replace(axes=np.concatenate([now.axes, own], 1))
    return [found[i] for i in range(n)]


def _carried(above: Moving, turn: Array, to: Array) -> Moving:
    """A frame fixed to another at a place and an orientation of this moment."""
    to = np.broadcast_to(to, above.turn.shape)
    swung = _cross(above.turning, to) + _cross(above.turn, _cross(above.turn, to))
    spin, slide = above.axes[:3], above.axes[3:]
    slide = slide + _cross(spin, to[:, None])
    return Moving(
        _turned(turn, above.turn),
        _turned(turn, above.turning),
        _turned(turn, above.acceleration + swung),
        np.concatenate([_turned(turn, spin), _turned(turn, slide)]),
    )


def _attached(carrier: Moving, pose: Array) -> Moving:
    if np.array_equal(pose, np.eye(4)):
        return carrier
    return _carried(carrier, pose[:3, :3, None], pose[:3, 3, None])


def _ten(body: Moving) -> Array:
    """(10, d, N) forces on the coordinates that carry a body, by its ten numbers."""
    (x, y, z), (dx, dy, dz), acceleration, axes = body
    spin, slide = axes[:3], axes[3:]
    ax, ay, az = acceleration
    sx, sy, sz = spin
    tx, ty, tz = slide
    out = np.empty((10, axes.shape[1], axes.shape[2]))
    out[0] = tx * ax + ty * ay + tz * az
    # ω̇ × + ω × ω × as a matrix, column by column, and − a ×
    xx, yy, zz, xy, xz, yz = x * x, y * y, z * z, x * y, x * z, y * z
    out[1] = -(yy + zz) * tx + (xy + dz) * ty + (xz - dy) * tz + sz * ay - sy * az
    out[2] = (xy - dz) * tx - (xx + zz) * ty + (yz + dx) * tz + sx * az - sz * ax
    out[3] = (xz + dy) * tx + (yz - dx) * ty - (xx + yy) * tz + sy * ax - sx * ay
    # I ω̇ + ω × I ω by xx, yy, zz, xy, xz, yz
    out[4] = dx * sx + xz * sy - xy * sz
    out[5] = -yz * sx + dy * sy + xy * sz
    out[6] = yz * sx - xz * sy + dz * sz
    out[7] = (dy - xz) * sx + (dx + yz) * sy + (xx - yy) * sz
    out[8] = (dz + xy) * sx + (zz - xx) * sy + (dx - yz) * sz
    out[9] = (yy - zz) * sx + (dz - xy) * sy + (dy + xz) * sz
    return out


def _turned(turn: Array, x: Array) -> Array:
    """Rᵀ x of (3, 3, N or 1) and (3, …, N)."""
    if x.ndim == 3:
        turn = turn[:, :, None]
    return turn[0] * x[0] + turn[1] * x[1] + turn[2] * x[2]


def _cross(a: Array, b: Array) -> Array:
    """a × b, components first."""
    a, b = np.broadcast_arrays(a, b)
    return np.stack([a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]])
