"""Charts of a body's ten inertial numbers.

- physical: m, centre of mass c, inertia about c (what a person reads);
- linear: m, m·c, inertia about the frame's origin (the Lagrangian is linear in these: what a model stores);
- log-Cholesky: ten free numbers whose image is exactly the physically consistent inertias (Rucker and
  Wensing, 2022), through the pseudo-inertia [[Σ, m c], [m cᵀ, m]] with Σ = ½ tr(I) 1 − I.

Inertia components are ordered xx, yy, zz, xy, xz, yz. All functions act on the last axis.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mechid.errors import MechidError

_ROW = np.array([0, 1, 2, 0, 0, 1])
_COLUMN = np.array([0, 1, 2, 1, 2, 2])


def _namespace(array: Any) -> Any:
    """NumPy for NumPy arrays, so that the host needs no compiler; jax.numpy otherwise."""
    return np if isinstance(array, np.ndarray) else jnp


def symmetric(six: jax.Array) -> jax.Array:
    """3×3 matrix from xx, yy, zz, xy, xz, yz."""
    place = np.array([[0, 3, 4], [3, 1, 5], [4, 5, 2]])
    return six[..., place]


def _shift(six: jax.Array, mass: jax.Array, c: jax.Array, sign: float) -> jax.Array:
    """Inertia moved by sign·m (|c|² 1 − c cᵀ)."""
    squares = _namespace(c).sum(c * c, -1, keepdims=True) * (_ROW == _COLUMN)
    return six + sign * mass[..., None] * (squares - c[..., _ROW] * c[..., _COLUMN])


def linear_from_physical(ten: jax.Array) -> jax.Array:
    m, c = ten[..., 0], ten[..., 1:4]
    parts = [m[..., None], m[..., None] * c, _shift(ten[..., 4:], m, c, 1.0)]
    return _namespace(ten).concatenate(parts, -1)


def physical_from_linear(ten: jax.Array) -> jax.Array:
    """Where there is no mass the first moment stands in the place of the centre of mass."""
    m = ten[..., 0]
    c = ten[..., 1:4] / (m + (m == 0.0))[..., None]
    return _namespace(ten).concatenate([m[..., None], c, _shift(ten[..., 4:], m, c, -1.0)], -1)


def pseudo_from_linear(ten: jax.Array) -> jax.Array:
    """4×4 pseudo-inertia, linear in the ten numbers."""
    xp = _namespace(ten)
    inertia = symmetric(ten[..., 4:])
    half_trace = 0.5 * (ten[..., 4] + ten[..., 5] + ten[..., 6])
    sigma = half_trace[..., None, None] * np.eye(3) - inertia
    top = xp.concatenate([sigma, ten[..., 1:4, None]], -1)
    bottom = xp.concatenate([ten[..., None, 1:4], ten[..., None, :1]], -1)
    return xp.concatenate([top, bottom], -2)


def linear_from_pseudo(pseudo: jax.Array) -> jax.Array:
    sigma = pseudo[..., :3, :3]
    trace = jnp.trace(sigma, axis1=-2, axis2=-1)[..., None]
    diagonal = jnp.asarray(_ROW == _COLUMN, pseudo.dtype)
    six = trace * diagonal - sigma[..., _ROW, _COLUMN]
    return jnp.concatenate([pseudo[..., 3:, 3], pseudo[..., :3, 3], six], -1)


def linear_from_log_cholesky(theta: jax.Array) -> jax.Array:
    """The ten linear numbers from (α, d1, d2, d3, s12, s23, s13, t1, t2, t3)."""
    alpha, d1, d2, d3, s12, s23, s13, t1, t2, t3 = jnp.moveaxis(theta, -1, 0)
    zero, one = jnp.zeros_like(alpha), jnp.ones_like(alpha)
    rows = [
        [jnp.exp(d1), s12, s13, t1],
        [zero, jnp.exp(d2), s23, t2],
        [zero, zero, jnp.exp(d3), t3],
        [zero, zero, zero, one],
    ]
    u = jnp.stack([jnp.stack(r, -1) for r in rows], -2)
    scale = jnp.exp(2.0 * alpha)[..., None, None]
    return linear_from_pseudo(scale * u @ jnp.swapaxes(u, -1, -2))


def log_cholesky_from_linear(ten: np.ndarray, body: str) -> np.ndarray:
    """The log-Cholesky numbers of a body; refused for thin rods and massless links."""
    pseudo = np.asarray(pseudo_from_linear(ten))  # type: ignore[arg-type]
    if pseudo[3, 3] <= 0.0:
        raise MechidError(
            f"Body '{body}' is massless: its inertia cannot be freed in the physically consistent form. "
            "Free its mass or inertia entries by their addresses instead."
        )
    flipped = pseudo[::-1, ::-1]
    smallest = np.linalg.eigvalsh(pseudo[:3, :3] / max(np.trace(pseudo[:3, :3]), 1e-300)).min()
    try:
        if smallest < 1e-9:
            raise np.linalg.LinAlgError
        upper = np.linalg.cholesky(flipped)[::-1, ::-1]
    except np.linalg.LinAlgError:
        raise MechidError(
            f"Body '{body}' has no extent along some direction (a thin rod, a plate or a point mass): its "
            "inertia cannot be freed in the physically consistent form. Free its entries by their "
            "addresses, or give it a thickness."
        ) from None
    alpha = np.log(upper[3, 3])
    u = upper / upper[3, 3]
    return np.array([alpha, *np.log(np.diag(u)[:3]), u[0, 1], u[1, 2], u[0, 2], u[0, 3], u[1, 3], u[2, 3]])
