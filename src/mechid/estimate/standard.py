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
"""of the largest inertia of its kind: rows that move nothing by themselves count as they are"""


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
    return Standard(q, np.exp(np.asarray(_sizes(stepper, model, q))))


def factors(standard: Standard, stepper: Stepper, model: Model) -> np.ndarray:
    """(rows,) n₀ / n."""
    return standard.inertia / np.exp(np.asarray(_sizes(stepper, model, standard.q)))


def slopes(standard: Standard, stepper: Stepper, model: Model, tangent: Any) -> np.ndarray:
    """(rows, θ) ∂ log n/∂θ."""
    return np.asarray(_slopes(stepper, model, tangent, standard.q))


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
def _sizes(stepper: Stepper, model: Model, q: Array) -> Array:
    return _logarithms(stepper, model, q)


@partial(jit, once=True)
def _slopes(stepper: Stepper, model: Model, tangent: Any, q: Array) -> Array:
    here = _logarithms(stepper, model, q)
    return along(lambda m: _logarithms(stepper, m, q), model, tangent, here)


def _logarithms(stepper: Stepper, model: Model, q: Array) -> Array:
    n = jnp.mean(jnp.abs(jax.vmap(lambda q: stepper.row_inertias(model, q))(q)), 0)
    acts = n > NONE * jnp.max(n)
    return jnp.where(acts, jnp.log(jnp.where(acts, n, 1.0)), 0.0)
