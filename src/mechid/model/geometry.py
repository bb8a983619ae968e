"""Rotations and checked small arrays on the host (NumPy)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mechid.errors import MechidError

Array = NDArray[np.float64]

LARGEST = 1e50
"""what a number may be at most: products of a few such numbers are still finite"""

SLACK = 1e-6
"""by how much of its largest moment an inertia may miss being possible"""

_AXES = {"x": (1.0, 0.0, 0.0), "y": (0.0, 1.0, 0.0), "z": (0.0, 0.0, 1.0)}


def numeric(value: ArrayLike, what: str) -> Array:
    """`value` as a float array of its own (never the caller's memory)."""
    try:
        if value is None or np.iscomplexobj(value):
            raise TypeError
        return np.array(value, dtype=float)
    except (TypeError, ValueError):
        raise MechidError(f"{what} must be numbers, not {value!r}.") from None


def finite(value: ArrayLike, shape: tuple[int, ...], what: str) -> Array:
    """`value` as a float array of `shape`, or a sentence that says what is wrong with `what`."""
    array = numeric(value, what)
    if array.shape != shape:
        want = "be one number" if shape == () else f"have shape {shape}"
        given = f"shape {array.shape}" if array.shape else "one number"
        raise MechidError(f"{what} must {want}, not {given}.")
    if not np.all(np.isfinite(array)):
        raise MechidError(f"{what} must be finite, not {_told(array, ~np.isfinite(array))}.")
    if np.any(np.abs(array) > LARGEST):
        told = _told(array, np.abs(array) > LARGEST)
        raise MechidError(f"{what} must be at most {LARGEST:g} in size, not {told}.")
    return array


def _told(array: Array, bad: NDArray[np.bool_]) -> str:
    """An array in a sentence; of a large one the first bad number and its place."""
    if array.size <= 12:
        return str(array.tolist())
    place = np.argwhere(bad)[0].tolist()
    return f"{array[tuple(place)]:g} at {tuple(place) if len(place) > 1 else place[0]}"


def unit(axis: str | ArrayLike, what: str) -> Array:
    """A unit vector from "x", "-y", … or three numbers."""
    if isinstance(axis, str):
        sign, letter = (-1.0, axis[1:]) if axis.startswith("-") else (1.0, axis.removeprefix("+"))
        if letter not in _AXES:
            raise MechidError(f"{what} is '{axis}'; valid: x, y, z, -x, -y, -z or three numbers.")
        return sign * np.array(_AXES[letter])
    vector = finite(axis, (3,), what)
    length = float(np.linalg.norm(vector))
    if length < 1e-9:
        raise MechidError(f"{what} has no direction: its length is {length:g}.")
    return vector / length


def skew(a: ArrayLike) -> Array:
    x, y, z = np.asarray(a, dtype=float)
    return np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])


def rotation_about(axis: str | ArrayLike, angle: float) -> Array:
    """Rotation matrix about a unit axis by `angle` (rad)."""
    k = skew(unit(axis, "The axis of a rotation"))
    return np.eye(3) + np.sin(angle) * k + (1.0 - np.cos(angle)) * k @ k


def roll_pitch_yaw(roll: float, pitch: float, yaw: float) -> Array:
    """Rotation matrix Rz(yaw) Ry(pitch) Rx(roll), as in URDF (rad)."""
    return rotation_about("z", yaw) @ rotation_about("y", pitch) @ rotation_about("x", roll)


def rotation_matrix(value: ArrayLike | None, what: str) -> Array:
    """A checked rotation matrix from a 3×3 matrix, a rotation vector (rad) or None (identity)."""
    if value is None:
        return np.eye(3)
    array = numeric(value, what)
    if array.shape == (3,):
        vector = finite(array, (3,), what)
        angle = float(np.linalg.norm(vector))
        return np.eye(3) if angle == 0.0 else rotation_about(vector / angle, angle)
    matrix = finite(array, (3, 3), what)
    error = float(np.abs(matrix @ matrix.T - np.eye(3)).max())
    if error > 1e-6:
        raise MechidError(f"{what} is not a rotation matrix: R Rᵀ differs from 1 by {error:.2g}.")
    if np.linalg.det(matrix) < 0.0:
        raise MechidError(f"{what} is not a rotation matrix: its determinant is −1.")
    return matrix


def inertia_matrix(value: ArrayLike | None, what: str) -> Array:
    """A symmetric 3×3 inertia (kg·m²) from 3 principal values, 6 numbers or a 3×3 matrix.

    Six numbers are xx, yy, zz, xy, xz, yz. The principal moments must not be negative and must fulfil the
    triangle inequality; thin rods, plates and massless bodies (equality) are legal, and what figures in a file
    round off is allowed: SLACK times the largest moment.
    """
    if value is None:
        return np.zeros((3, 3))
    array = numeric(value, what)
    if array.shape == (3,):
        matrix = np.diag(finite(array, (3,), what))
    elif array.shape == (6,):
        xx, yy, zz, xy, xz, yz = finite(array, (6,), what)
        matrix = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
    elif array.shape != (3, 3):
        raise MechidError(f"{what} must be 3, 6 or 3×3 numbers, not shape {array.shape}.")
    else:
        matrix = finite(array, (3, 3), what)
        if np.abs(matrix - matrix.T).max() > 1e-9 * max(1e-12, np.abs(matrix).max()):
            raise MechidError(f"{what} is not symmetric.")
    principal = np.linalg.eigvalsh(matrix)
    slack = SLACK * max(principal.max(), 1e-12)
    if principal.min() < -slack:
        raise MechidError(f"{what} has a negative principal moment, {principal.min():.4g} kg·m².")
    if principal[0] + principal[1] < principal[2] - slack:
        raise MechidError(
            f"{what} violates the triangle inequality: principal moments "
            f"{principal[0]:.4g} + {principal[1]:.4g} < {principal[2]:.4g} kg·m²."
        )
    return matrix


def perpendicular(axis: ArrayLike) -> tuple[Array, Array]:
    """Two unit vectors that complete `axis` to a right-handed triad (axis, first, second)."""
    z = np.asarray(axis, dtype=float)
    first = np.cross(z, np.eye(3)[int(np.argmin(np.abs(z)))])
    first /= np.linalg.norm(first)
    return first, np.cross(z, first)


def numbers(value: Sequence[float] | Array, precision: int = 4) -> str:
    """Short text of a few numbers for printing."""
    return "(" + ", ".join(f"{float(x):.{precision}g}" for x in np.asarray(value).ravel()) + ")"
