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
ATTEMPTS = 6
"""at finding states that have a value, before it is given up"""
LOST = 1e-7
"""of the largest singular value: directions of parameters that change nothing"""
ROUNDING = 1e-11
"""of what another parameter does: what is not told from rounding"""
_NOWHERE = "the equations have no finite value at any state that was tried"


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
    numbers = m.values[at]
    sizes = np.where(numbers == 0.0, 1.0, np.abs(numbers))
    rows = _rows(m, inputs, seed)[:, at] * sizes
    if len(at) and not len(rows):
        return Tellable((), (), f"What motions tell of {_and(names)} cannot be judged here: {_NOWHERE}.")
    # what a parameter does counts by itself, however small beside what others do, but for rounding
    acts = np.linalg.norm(rows, axis=0)
    weak = acts <= ROUNDING * acts.max(initial=0.0)
    acts = np.where(weak, 1.0, acts)
    _, s, right = np.linalg.svd(np.where(weak, 0.0, rows / acts), full_matrices=True)
    s = np.concatenate([s, np.zeros(len(at) - len(s))])
    relative = right[s <= LOST * s.max(initial=0.0)].T / acts[:, None]
    null = relative / np.abs(relative).max(axis=0, initial=0.0) * sizes[:, None]
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
    if not combined:
        them = "them" if len(moved) > 1 else "it"
        told = f"{_and(moved)} cannot be told {given}: no motion depends on {them}."
    else:
        told = f"{_and(moved)} cannot be told alone {given}: only {_and(combined)} can be found."
    return Tellable(expressions, tuple(moved), told)


def _and(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _rows(m: SymbolicMechanism, inputs: bool, seed: int) -> np.ndarray:
    """Slopes of accelerations by all parameters at states where there are any, one row an acceleration."""
    rng = np.random.default_rng(seed)
    model, found = m.lower(), []
    for attempt in range(ATTEMPTS):
        q, v, u, t = _states(m, inputs, rng, near=not attempt)
        if not attempt and inputs and m.inputs:
            u = u * _as_large(*map(np.asarray, _forces(model, q, v, u, t)))
        slopes = np.asarray(_slopes(model, *_closed(model, q, v, u, t), u, t))
        rows = slopes.reshape(-1, slopes.shape[-1])
        found.append(rows[np.isfinite(rows).all(1)])
        if 2 * sum(map(len, found)) >= len(rows):
            break
    return np.concatenate(found)


def _states(
    m: SymbolicMechanism, inputs: bool, rng: np.random.Generator, *, near: bool
) -> tuple[np.ndarray, ...]:
    """Coordinates, rates, inputs and times at random: about zero, or anywhere, for what has no value there."""
    n, nu = len(m.coordinates), len(m.inputs)
    q, v = rng.uniform(-0.7, 0.7, (2, STATES, n))
    u = rng.uniform(-1.0, 1.0, (STATES, nu)) * float(inputs)
    if not near:
        q = q * 10.0 ** rng.uniform(-3.0, 1.0, q.shape) + rng.choice(
            (0.0, 1.0, -1.0, 3.0, -3.0, 10.0), q.shape
        )
    return q, v, u, rng.uniform(0.0, 1.0, STATES)


def _as_large(forces: np.ndarray, by_inputs: np.ndarray) -> np.ndarray:
    """What inputs must be multiplied with to do as much as all other forces together: beside these they show."""
    own, by = (np.median(np.nan_to_num(np.abs(x)), axis=0) for x in (forces, by_inputs))
    with np.errstate(all="ignore"):
        ratios = own[:, None] / by
    ratios = np.where(np.isfinite(ratios), ratios, 0.0).max(axis=0)
    return np.where(ratios > 0.0, np.clip(ratios, 1e-12, 1e12), 1.0)


@partial(jit, once=True)
def _forces(model: SymbolicModel, q: Array, v: Array, u: Array, t: Array) -> tuple[Array, Array]:
    """What acts without inputs, and its slopes by these, at every state."""

    def one(now: tuple[Array, ...]) -> tuple[Array, Array]:
        q, v, u, t = now

        def acting(u: Array) -> Array:
            return model.force_balance(q, v, jnp.zeros_like(q), u, t)

        slope = jax.jacfwd(acting)(u)
        return acting(u) - slope @ u, slope

    return jax.lax.map(one, (q, v, u, t))


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
