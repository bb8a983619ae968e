"""Weights that make the noise of a group's samples white and of unit std.

    r = (predicted − measured) / std           channels whose noise is independent
    r = L⁻¹ ((predicted − measured) / std)     noise with correlation matrix L Lᵀ between the channels

Where channels of a sample are missing, L Lᵀ is the correlation of those that are there. SI units.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mechid.estimate.samples import Group


@dataclass(frozen=True, eq=False)
class Mixed:
    """Matrices in the place of 1/std, one for each pattern of channels that are there."""

    tables: np.ndarray
    """(p, c, c)"""
    pattern: np.ndarray
    """(m,) of each sample"""
    scale: np.ndarray
    """(m,) root of how often each sample counts"""

    def __getitem__(self, j: np.ndarray) -> np.ndarray:
        """(…, c, c) matrices of some samples."""
        return self.scale[j][..., None, None] * self.tables[self.pattern[j]]


Weight = np.ndarray | Mixed
"""(m, c) 1/std of every sample; or a matrix for each; 0 where a channel is missing"""


def weighting(group: Group, std: np.ndarray) -> Weight:
    """What residuals of a group are multiplied by."""
    scale = np.sqrt(group.emphasis)
    if group.correlation is None:
        return group.present * scale[:, None] / std
    there, roots, pattern = _roots(group)
    tables = np.linalg.inv(roots) * there[:, :, None] * there[:, None, :] / std
    return Mixed(tables, pattern, scale)


def unmixed(group: Group, r: np.ndarray) -> np.ndarray:
    """(m, c) each channel's own residuals over their std, from weighted ones; 0 where missing."""
    if group.correlation is None:
        return r
    _, roots, pattern = _roots(group)
    own = np.zeros_like(r)
    for i, L in enumerate(roots):
        own[pattern == i] = r[pattern == i] @ L.T
    return own


def log_volume(group: Group) -> float:
    """½ Σ log |correlation| over the samples."""
    if group.correlation is None:
        return 0.0
    _, roots, pattern = _roots(group)
    each = np.log(np.diagonal(roots, axis1=1, axis2=2)).sum(1)
    return float(each[pattern].sum())


def _roots(group: Group) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Patterns of channels that are there (p, c); L of each (p, c, c), 1 where missing; each sample's pattern."""
    assert group.correlation is not None
    there, pattern = np.ones((1, len(group.correlation))), np.zeros(group.times, int)
    if not np.all(group.present):
        there, pattern = np.unique(group.present, axis=0, return_inverse=True)
    both = there[:, :, None] * there[:, None, :] > 0
    correlation = np.where(both, group.correlation, np.eye(len(group.correlation)))
    return there, np.linalg.cholesky(correlation), pattern.reshape(-1)
