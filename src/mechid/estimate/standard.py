"""State errors beside the inertias that they act on, so that a lighter mechanism does not make them smaller.

Where dynamics are to be exact their rows r(x, θ) = 0 may all be met by inertias that vanish. With n(θ) the inertia
of each row at some configurations of the log, and n₀ at the start, they are counted as

    e = w n₀ / n(θ)

which says what an impulse does to a rate, and does not change where all inertias are scaled alike.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mechid.compile import jit
from mechid.dynamics.intervals import Intervals
from mechid.dynamics.model import Model
from mechid.dynamics.stepper import Stepper, along
from mechid.dynamics.tree import Array

CONFIGURATIONS = 8
"""of a log, spread over it"""
NONE = 1e-12
"""of the largest inertia at the start: rows that move nothing by themselves count as they are"""
GONE = 1e-9
"""of its inertia at the start: what is left of a row that has none any more, and cannot be counted"""


class Standard(NamedTuple):
    """What state errors are measured by."""

    q: np.ndarray
    """(c, nq) configurations"""
    inertia: np.ndarray
    """(rows,) n₀, kg or kg·m²"""


def standard_of(stepper: Stepper, model: Model, states: list[Any]) -> Standard:
    """At a first guess of all logs' states."""
    found = []
    for path in states:
        count = len(jax.tree.leaves(path)[0])
        some = np.linspace(0, count - 1, CONFIGURATIONS).astype(int)
        found.append(np.asarray(_positions(stepper, model, jax.tree.map(lambda a, i=some: a[i], path))))
    q = np.concatenate(found)
    q = q[np.linspace(0, len(q) - 1, CONFIGURATIONS).astype(int)]
    n = np.asarray(_inertias(stepper, model, q))
    return Standard(q, np.where(n > NONE * n.max(initial=0.0), n, 0.0))


def factors(standard: Standard, stepper: Stepper, model: Model) -> np.ndarray:
    """(rows,) n₀ / n; not a number where an inertia has vanished."""
    n, first = np.asarray(_inertias(stepper, model, standard.q)), standard.inertia
    left = np.where(n > GONE * first, n, np.nan)
    return np.where(first > 0.0, first / np.where(first > 0.0, left, 1.0), 1.0)


def slopes(standard: Standard, stepper: Stepper, model: Model, tangent: Any) -> np.ndarray:
    """(rows, θ) ∂ log n/∂θ."""
    n, by_theta = (np.asarray(a) for a in _slopes(stepper, model, tangent, standard.q))
    acts = standard.inertia > 0.0
    return np.where(acts[:, None], by_theta / np.where(acts, n, 1.0)[:, None], 0.0)


def measured(intervals: Intervals, errors: np.ndarray, factor: np.ndarray, by_theta: np.ndarray) -> Intervals:
    """Intervals whose first columns stand for e in the place of w = e n/n₀.

    errors: (N, rows) e. What moves with θ is w, by e ∂(n/n₀)/∂θ.
    """
    e, nt = len(factor), by_theta.shape[1]
    for part in intervals:
        part[:, :, :e] /= factor
        if nt:
            part[:, :, -1 - nt : -1] += (part[:, :, :e] * errors[:, None]) @ by_theta
    return intervals


@partial(jit, once=True)
def _positions(stepper: Stepper, model: Model, states: Any) -> Array:
    return jax.vmap(lambda x: stepper.positions(model, x))(states)


@partial(jit, once=True)
def _inertias(stepper: Stepper, model: Model, q: Array) -> Array:
    return _means(stepper, model, q)


@partial(jit, once=True)
def _slopes(stepper: Stepper, model: Model, tangent: Any, q: Array) -> tuple[Array, Array]:
    here = _means(stepper, model, q)
    return here, along(lambda m: _means(stepper, m, q), model, tangent, here)


def _means(stepper: Stepper, model: Model, q: Array) -> Array:
    return jnp.mean(jax.vmap(lambda q: stepper.row_inertias(model, q))(q), 0)
