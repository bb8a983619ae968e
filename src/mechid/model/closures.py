"""The rows of loop closures, each n·(x_b − x_a) = 0 with vectors fixed in frames.

`point-on-axis` is the papers' form (Caldwell, Eqs. 13–14, with a last homogeneous entry 1): the points
e_x, e_y, e_z of the second frame lie on the x, y, z axes of the first. `frame` is position and rotation: near
closure its rows are the components of the small rotation between the frames.
"""

from __future__ import annotations

import numpy as np

from mechid.errors import MechidError
from mechid.model.geometry import Array, perpendicular
from mechid.model.parts import Row

KINDS = ("point", "frame", "point-on-axis", "axis", "planar", "pin")
_ORIGIN = (0.0, 0.0, 0.0)


def rows(name: str, kind: str, first: str, second: str, axis: Array) -> tuple[Row, ...]:
    """The rows of a loop of a kind."""
    if kind == "point":
        return _point(first, second)
    if kind == "frame":
        x, y, z = np.eye(3)
        turned = [(y, z), (z, x), (x, y)]
        return _point(first, second) + tuple(_dot(first, a, second, b) for a, b in turned)
    if kind == "point-on-axis":
        e = [_triple(v) for v in np.eye(3)]
        pairs = [(p, a) for p in range(3) for a in range(3) if a != p]
        return tuple(Row((first, e[a]), (first, _ORIGIN), (second, e[p]), "m") for p, a in pairs)
    if kind == "axis":
        return tuple(_dot(first, n, second, axis) for n in perpendicular(axis))
    if kind == "planar":
        plane = Row((first, _triple(axis)), (second, _ORIGIN), (first, _ORIGIN), "m")
        return (plane, *rows(name, "axis", first, second, axis))
    if kind == "pin":
        return tuple(
            Row((first, _triple(n)), (second, _ORIGIN), (first, _ORIGIN), "m") for n in perpendicular(axis)
        )
    raise MechidError(f"Loop '{name}' is of unknown kind '{kind}'; valid: {', '.join(KINDS)}.")


def four_points(first: str, second: str) -> tuple[Row, ...]:
    """Origin and the ends of all three axes coincide: twelve rows that vanish only where the frames do."""
    corners = [_ORIGIN, *(_triple(e) for e in np.eye(3))]
    return tuple(Row(("world", _triple(n)), (second, c), (first, c), "m") for c in corners for n in np.eye(3))


def _point(first: str, second: str) -> tuple[Row, ...]:
    """x_second − x_first along the world's axes."""
    return tuple(Row(("world", _triple(e)), (second, _ORIGIN), (first, _ORIGIN), "m") for e in np.eye(3))


def _dot(first: str, a: Array, second: str, b: Array) -> Row:
    """Direction a of the first frame perpendicular to direction b of the second."""
    return Row((first, _triple(a)), (second, _triple(b)), (second, _ORIGIN), "rad")


def _triple(v: Array) -> tuple[float, float, float]:
    return (float(v[0]), float(v[1]), float(v[2]))
