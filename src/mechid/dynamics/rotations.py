"""Rotations in the compiled code: rotation vectors, unit quaternions (scalar first), smooth at zero."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from mechid.dynamics.tree import cross

Array = jax.Array


def skew(a: Array) -> Array:
    x, y, z = a
    return jnp.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])


def _half_sine(squared_angle: Array) -> Array:
    """sin(φ/2)/φ as a smooth function of φ²."""
    small = squared_angle < 1e-6
    angle = jnp.sqrt(jnp.where(small, 1.0, squared_angle))
    series = 0.5 - squared_angle / 48.0 + squared_angle**2 / 3840.0
    return jnp.where(small, series, jnp.sin(0.5 * angle) / angle)


def quaternion_of_vector(vector: Array) -> Array:
    """exp of a rotation vector, as a unit quaternion. Smooth at zero to third order."""
    squared = jnp.sum(vector * vector)
    small = squared < 1e-6
    angle = jnp.sqrt(jnp.where(small, 1.0, squared))
    scalar = jnp.where(small, 1.0 - squared / 8.0 + squared**2 / 384.0, jnp.cos(0.5 * angle))
    return jnp.concatenate([scalar[None], _half_sine(squared) * vector])


def vector_of_quaternion(e: Array) -> Array:
    """log of a unit quaternion, the rotation vector of at most π; smooth at the identity."""
    e = jnp.where(e[0] < 0.0, -e, e)
    squared = jnp.sum(e[1:] * e[1:])
    small = squared < 1e-8
    sine = jnp.sqrt(jnp.where(small, 1.0, squared))
    exact = 2.0 * jnp.arctan2(sine, e[0]) / sine
    return jnp.where(small, 2.0 + squared / 3.0, exact) * e[1:]


def product(a: Array, b: Array) -> Array:
    """a ∘ b of quaternions."""
    scalar = a[0] * b[0] - jnp.sum(a[1:] * b[1:])
    return jnp.concatenate([scalar[None], a[0] * b[1:] + b[0] * a[1:] + cross(a[1:], b[1:])])


def conjugate(e: Array) -> Array:
    return e * jnp.array([1.0, -1.0, -1.0, -1.0])


def rotation_of_quaternion(e: Array) -> Array:
    w, v = e[0], e[1:]
    return (w * w - jnp.sum(v * v)) * jnp.eye(3) + 2.0 * jnp.outer(v, v) + 2.0 * w * skew(v)


def quaternion_of_rotation(R: Array) -> Array:
    """A unit quaternion of a rotation matrix, from the largest of its four candidates."""
    t = jnp.trace(R)
    d = jnp.diag(R)
    squares = jnp.concatenate([(1.0 + t)[None], 1.0 + 2.0 * d - t])
    skewed = jnp.array([R[2, 1] - R[1, 2], R[0, 2] - R[2, 0], R[1, 0] - R[0, 1]])
    sums = R + R.T
    rows = jnp.stack(
        [
            jnp.concatenate([squares[:1], skewed]),
            jnp.array([skewed[0], squares[1], sums[0, 1], sums[0, 2]]),
            jnp.array([skewed[1], sums[0, 1], squares[2], sums[1, 2]]),
            jnp.array([skewed[2], sums[0, 2], sums[1, 2], squares[3]]),
        ]
    )
    row = rows[jnp.argmax(squares)]
    row = row / jnp.sqrt(jnp.sum(row * row))
    return jnp.where(row[0] < 0.0, -row, row)
