"""The lowest point of a quadratic inside bounds, whatever its curvature."""

from __future__ import annotations

import numpy as np

FLAT = 1e-12
"""of the largest curvature: what is smaller counts as none"""


def value(g: np.ndarray, G: np.ndarray, p: np.ndarray) -> float:
    """q(p) = g·p + ½ pᵀ G p"""
    return float(g @ p + 0.5 * p @ G @ p)


def minimise(g: np.ndarray, G: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """A local minimiser p of q(p) = g·p + ½ pᵀ G p with lower ≤ p ≤ upper; the global one where G is positive.

    The bounds are finite; numbers that are not give 0. Sweeps of exact minimisation along single coordinates, which
    free and fix bounds, alternate with a step among the variables that are free: Newton's, or along a direction of
    negative curvature, up to the first bound.
    """
    p = np.clip(np.zeros_like(g), lower, upper)
    if not (np.isfinite(g).all() and np.isfinite(G).all()):
        return p
    q = value(g, G, p)
    for _ in range(10 * len(g) + 50):
        p = _coordinate_sweep(g, G, lower, upper, p)
        p = _subspace_step(g, G, lower, upper, p)
        lowered = value(g, G, p)
        if not lowered < q - 1e-14 * abs(q):
            break
        q = lowered
    return p


def _coordinate_sweep(
    g: np.ndarray, G: np.ndarray, lower: np.ndarray, upper: np.ndarray, p: np.ndarray
) -> np.ndarray:
    p = p.copy()
    for i in range(len(p)):
        slope, curvature = float(g[i] + G[i] @ p), float(G[i, i])
        down, up = lower[i] - p[i], upper[i] - p[i]
        if curvature > 0.0:
            step = min(max(-slope / curvature, down), up)
        else:
            step = min((down, up, 0.0), key=lambda t, s=slope, c=curvature: s * t + 0.5 * c * t * t)
        p[i] = min(max(p[i] + step, lower[i]), upper[i])
        if step == down:
            p[i] = lower[i]
        elif step == up:
            p[i] = upper[i]
    return p


def _subspace_step(
    g: np.ndarray, G: np.ndarray, lower: np.ndarray, upper: np.ndarray, p: np.ndarray
) -> np.ndarray:
    """p moved among its free variables; the lower of the two ways where curvature is negative."""
    free = np.flatnonzero((p > lower) & (p < upper))
    if not len(free):
        return p
    slope = (g + G @ p)[free]
    w, V = np.linalg.eigh(G[np.ix_(free, free)])
    along = V.T @ slope
    flat = FLAT * np.abs(G).max(initial=0.0)
    if w[0] < -flat or np.any((w <= flat) & (np.abs(along) > 1e-10 * np.abs(g).max(initial=0.0))):
        k = 0 if w[0] < -flat else int(np.argmax(np.where(w <= flat, np.abs(along), 0.0)))
        directions = [V[:, k], -V[:, k]]
    else:
        directions = [-V @ np.divide(along, w, out=np.zeros_like(w), where=w > flat)]
    tried = [_towards(p, free, d, lower, upper, newton=len(directions) == 1) for d in directions]
    return min([p, *tried], key=lambda r: value(g, G, r))


def _towards(
    p: np.ndarray, free: np.ndarray, d: np.ndarray, lower: np.ndarray, upper: np.ndarray, newton: bool
) -> np.ndarray:
    """p + t d with t up to the first bound, or 1 for Newton's step."""
    room = np.full(len(d), np.inf)
    moving = d != 0.0
    ends = np.where(d > 0.0, upper[free], lower[free])
    room[moving] = (ends[moving] - p[free][moving]) / d[moving]
    t = float(room.min(initial=np.inf))
    if newton and t >= 1.0:
        t = 1.0
    if not np.isfinite(t):
        return p
    moved = p.copy()
    moved[free] = np.clip(p[free] + t * d, lower[free], upper[free])
    hit = room <= t
    moved[free[hit]] = ends[hit]
    return moved
