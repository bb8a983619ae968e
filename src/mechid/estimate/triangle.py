"""Tall rows φ θ = y as a triangle, turned orthogonally block by block,

    Q [φ y] = [R d ; 0 ρ]   so that   ‖φ θ − y‖² = ‖R θ − d‖² + ρ²,

and never multiplied into φᵀφ, which would lose half of the digits.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack

from mechid.errors import MechidError

BLOCK, PANEL = 512, 16
"""rows turned at a time, columns at a time"""


class Triangle(NamedTuple):
    """Many rows φ θ = y as few: ‖φ θ − y‖² = ‖R θ − d‖² + rest."""

    R: np.ndarray
    """(k, n) upper triangle, k ≤ n"""
    d: np.ndarray
    """(k,)"""
    rest: float
    """sum of squares that no θ explains"""
    count: int
    """rows that it stands for"""

    @staticmethod
    def empty(n: int) -> Triangle:
        return Triangle(np.zeros((0, n)), np.zeros(0), 0.0, 0)

    def plus(self, other: Triangle) -> Triangle:
        """The rows of both."""
        both = compress(np.concatenate([self.R, other.R]), np.concatenate([self.d, other.d]))
        return both._replace(rest=self.rest + other.rest + both.rest, count=self.count + other.count)

    def times(self, factor: float) -> Triangle:
        """Every row multiplied by one number."""
        return Triangle(self.R * factor, self.d * factor, self.rest * factor**2, self.count)

    def square(self, theta: np.ndarray) -> float:
        """‖φ θ − y‖²."""
        return float(np.sum((self.R @ theta - self.d) ** 2) + self.rest)


def compress(phi: np.ndarray, y: np.ndarray, weights: np.ndarray | None = None) -> Triangle:
    """The triangle of rows φ (…, n), y (…): rows with NaN are left out, the others multiplied by √weights."""
    n = phi.shape[-1]
    rows, right = np.reshape(phi, (-1, n)), np.reshape(y, -1)
    root = np.ones(len(right)) if weights is None else np.sqrt(np.reshape(weights, -1))
    used = np.flatnonzero((root > 0) & np.isfinite(right))
    whole = len(used) == len(right)
    acting = np.flatnonzero(np.any(rows != 0.0, axis=0))
    k = len(acting)
    turned = np.zeros((k + 1, k + 1), order="F")
    for first in range(0, len(used), BLOCK):
        at = slice(first, first + BLOCK) if whole else used[first : first + BLOCK]
        block = np.empty((len(right[at]), k + 1), order="F")
        block[:, :k] = rows[at] if k == n else rows[at][:, acting]
        block[:, k] = right[at]
        if weights is not None:
            block *= root[at, None]
        turned = _below(turned, block)
    if not np.isfinite(turned).all():
        raise MechidError("The rows of the linear equations hold values that are not finite.")
    R = np.zeros((k, n))
    R[:, acting] = turned[:k, :k]
    return Triangle(R, turned[:k, k].copy(), float(turned[k, k] ** 2), len(used))


def _below(triangle: np.ndarray, block: np.ndarray) -> np.ndarray:
    """The triangle of a triangle and a block of rows below it (LAPACK's QR of triangular and pentagonal parts)."""
    width = min(PANEL, len(triangle))
    return lapack.dtpqrt(0, width, triangle, block, overwrite_a=1, overwrite_b=1)[0]  # type: ignore[attr-defined]
