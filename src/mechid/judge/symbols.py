"""`structure_of_symbols`: which parameters of a symbolic mechanism its motion can tell at all, before any data.

Whoever sees coordinates, rates and accelerations knows q̈ = f(q, q̇, u; θ), and no more: with constraints their
multipliers are eliminated. Directions of θ that leave f as it is at many states, for several θ, cannot be told by
any experiment; with inputs at zero there may be more of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from mechid.compile import jit
from mechid.dynamics.stepper import opening
from mechid.dynamics.symbolic import SymbolicModel
from mechid.dynamics.tree import Array
from mechid.judge.combinations import combinations
from mechid.model.symbolic.mechanism import SymbolicMechanism

STATES = 40
LOST = 1e-7
"""of the largest singular value: directions of parameters that change nothing"""


@dataclass(frozen=True)
class Tellable:
    """What motions can tell."""

    identifiable: tuple[str, ...]
    """parameters, and expressions of those that cannot be told alone"""
    not_identifiable: tuple[str, ...]
    """parameters that cannot be told alone"""
    sentence: str


def structure_of_symbols(m: SymbolicMechanism, *, inputs: bool = True, seed: int = 0) -> Tellable:
    """What motions of a mechanism can tell of its parameters, with inputs that are known, or without any."""
    names = [p.name for p in m.parameters if not p.constant]
    at = [i for i, p in enumerate(m.parameters) if not p.constant]
    slopes = np.asarray(_slopes(m.lower(), *_states(m, inputs, seed)))[..., at]
    numbers = m.values[at]
    sizes = np.where(numbers == 0.0, 1.0, np.abs(numbers))
    rows = slopes.reshape(-1, len(at)) * sizes
    rows = rows[np.isfinite(rows).all(1)]
    _, s, right = np.linalg.svd(rows, full_matrices=True)
    s = np.concatenate([s, np.zeros(len(at) - len(s))])
    null = right[s <= LOST * s.max(initial=0.0)].T * sizes[:, None]
    return _tellable(m, names, numbers, null, inputs)


def _tellable(
    m: SymbolicMechanism, names: list[str], numbers: np.ndarray, null: np.ndarray, inputs: bool
) -> Tellable:
    given = "with known inputs" if inputs and m.inputs else "without inputs" if m.inputs else "of its motion"
    if not null.shape[1]:
        return Tellable(tuple(names), (), f"Every parameter can be told {given} in principle.")
    moved = [n for n, row, x in zip(names, null, numbers, strict=True) if np.abs(row).max() > 1e-6 * abs(x)]
    nothing = np.zeros((len(names), len(names)))
    found = combinations(names, numbers, null, nothing, lambda x: m.combined(names, x))
    alone = tuple(n for n in names if n not in moved)
    if found is None:
        told = (
            f"{_and(moved)} cannot be told apart {given}: {null.shape[1]} of their directions change nothing."
        )
        return Tellable(alone, tuple(moved), told)
    expressions = tuple(c.expression for c in found)
    combined = [c.expression for c in found if c.expression not in alone]
    what = f"only {_and(combined)} can be found" if combined else "no motion depends on them"
    return Tellable(expressions, tuple(moved), f"{_and(moved)} cannot be told alone {given}: {what}.")


def _and(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _states(m: SymbolicMechanism, inputs: bool, seed: int) -> tuple[np.ndarray, ...]:
    """Coordinates, rates and inputs at random, near closed loops."""
    rng = np.random.default_rng(seed)
    n, nu = len(m.coordinates), len(m.inputs)
    q, v = rng.uniform(-0.7, 0.7, (2, STATES, n))
    u = rng.uniform(-1.0, 1.0, (STATES, nu)) * float(inputs)
    t = rng.uniform(0.0, 1.0, STATES)
    return (*map(np.asarray, _closed(m.lower(), q, v, u, t)), u, t)


@partial(jit, once=True)
def _closed(model: SymbolicModel, q: Array, v: Array, u: Array, t: Array) -> tuple[Array, Array]:
    def one(now: tuple[Array, ...]) -> tuple[Array, Array]:
        q, v, u, t = now

        def closer(_: Array, q: Array) -> Array:
            h, slope = model.constraint(q, u)
            return q - jnp.linalg.pinv(slope) @ h

        if model.nc:
            q = jax.lax.fori_loop(0, 20, closer, q)
        if model.nc + model.nr:
            gap, slope = opening(model, q, v, u, t)
            v = v - jnp.linalg.pinv(slope) @ gap
        return q, v

    return jax.lax.map(one, (q, v, u, t))


@partial(jit, once=True)
def _slopes(model: SymbolicModel, q: Array, v: Array, u: Array, t: Array) -> Array:
    """(states, nq, parameters) of accelerations."""

    def acceleration(values: Array, q: Array, v: Array, u: Array, t: Array) -> Array:
        own = SymbolicModel(values, model.code)
        bias = own.force_balance(q, v, jnp.zeros_like(q), u, t)
        M = own.mass_matrix(q, t)
        if not model.nc + model.nr:
            return -jnp.linalg.solve(M, bias)
        slope = opening(own, q, v, u, t)[1]
        rows = slope.shape[0]
        bend = jax.jvp(lambda q, t: opening(own, q, v, u, t)[0], (q, t), (v, jnp.ones_like(t)))[1]
        K = jnp.block([[M, slope.T], [slope, jnp.zeros((rows, rows))]])
        return -jnp.linalg.solve(K, jnp.concatenate([bias, bend]))[: q.shape[0]]

    slope = jax.jacfwd(acceleration)
    return jax.lax.map(lambda now: slope(jnp.asarray(model.values, float), *now), (q, v, u, t))
