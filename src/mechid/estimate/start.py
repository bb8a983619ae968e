"""The first state as a function of the unknowns: what is held, what is free, what follows from closed loops.

Of nq coordinates on loops with r independent rows, r follow from the others; so do as many rates:

    h(q_I, q_D; θ) = 0,    Dh(q; θ) v = 0,    c(q, v; θ) = 0

and where constraints c are on rates alone, as many more rates follow.
The independent ones (I) are held at their values or are unknowns ξ of the experiment; the dependent ones (D) are
found by Newton's method, so that lengths in a loop may be free too. Derivatives follow by implicit differentiation.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg

from mechid.compile import jit
from mechid.dynamics.assembly import CLOSED, constraint_rows, with_driven
from mechid.dynamics.model import Model, moves_only_forces
from mechid.dynamics.stepper import Stepper, columns, parameter_count
from mechid.dynamics.tree import Array
from mechid.errors import MechidError
from mechid.estimate.experiment import Start
from mechid.model.system import System

NEWTON = 30
"""steps at most in which loops are closed"""


class FirstState(NamedTuple):
    """How the first coordinates and rates depend on the unknowns ξ of one experiment."""

    mechanism: System
    q: np.ndarray
    v: np.ndarray
    """values as given; the dependent ones as found at the starting parameters"""
    dependent: np.ndarray
    """coordinates that follow from the loops"""
    following: np.ndarray
    """coordinates whose rates follow"""
    free_q: np.ndarray
    free_v: np.ndarray
    """coordinates whose value, whose rate is an unknown, in the order of ξ"""
    mean: np.ndarray
    std: np.ndarray
    """(2 nq,) priors on coordinates, then rates; ∞ where there is none"""

    @property
    def size(self) -> int:
        return len(self.free_q) + len(self.free_v)

    @property
    def names(self) -> tuple[str, ...]:
        names = self.mechanism.coordinate_names
        return (*(f"q({names[i]})" for i in self.free_q), *(f"v({names[i]})" for i in self.free_v))

    @property
    def units(self) -> tuple[str, ...]:
        units = [c.unit for c in self.mechanism.coordinates]
        return (*(units[i] for i in self.free_q), *(f"{units[i]}/s" for i in self.free_v))

    @property
    def unknowns(self) -> np.ndarray:
        """ξ as given."""
        return np.concatenate([self.q[self.free_q], self.v[self.free_v]])

    def at(self, model: Model, unknowns: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """Coordinates and rates for ξ, loops closed; None where they cannot be closed."""
        q, v, n = self.q.copy(), self.v.copy(), len(self.free_q)
        q[self.free_q], v[self.free_v] = unknowns[:n], unknowns[n:]
        return _closed(self.mechanism, model, q, v, self.dependent, self.following)

    def slopes(
        self, stepper: Stepper, model: Model, tangent: Any, x: Any, q: Any, v: Any, t: float
    ) -> Tangents:
        """Derivatives of the first state, coordinates and rates by (θ, ξ)."""
        nq = len(q)
        if not self.size and moves_only_forces(model, tangent):
            none = np.zeros((nq, parameter_count(tangent)))
            return Tangents(np.zeros((stepper.nx(model), none.shape[1])), none, none)
        u = with_driven(self.mechanism, np.zeros(model.nu), q)
        kinds = tuple(tuple(x.tolist()) for x in (self.free_q, self.free_v, self.dependent, self.following))
        rows = undriven_rows(self.mechanism)
        found = np.asarray(_slopes(stepper, model, tangent, x, q, v, u, t, kinds, rows))
        return Tangents(*np.split(found, [len(found) - 2 * nq, len(found) - nq]))


class Tangents(NamedTuple):
    """By θ and ξ, columns in that order."""

    x: np.ndarray
    """(nx, nθ + nξ)"""
    q: np.ndarray
    v: np.ndarray


def first_state(mechanism: System, model: Model, start: Start, who: str) -> FirstState:
    """Decide which coordinates follow from the loops, the least known first, and close them."""
    q, v = start.values(mechanism)
    std_q, std_v = start.stds(mechanism)
    rows = undriven_rows(mechanism)
    driven = [mechanism.coordinate_names.index(d.coordinate) for d in mechanism.drives]
    dependent = following = np.zeros(0, int)
    if rows:
        slope = constraint_rows(mechanism, model, q)[1][:rows]  # type: ignore[arg-type]
        dependent = following = _giving_way(slope, std_q, driven)
    found = _closed(mechanism, model, q, v, dependent, dependent)
    if found is not None and model.nr:
        slope = np.asarray(_rate_rows(model, *found, rows)[1])
        following = _giving_way(slope, std_v, driven)
        found = _closed(mechanism, model, q, v, dependent, following)
    if found is None:
        names = ", ".join(mechanism.coordinate_names[i] for i in dependent)
        raise MechidError(
            f"The loops of '{mechanism.name}' cannot be closed at the start of experiment '{who}' by moving "
            f"{names}: give a start near a closed configuration (assemble(…) finds one)."
        )
    every = np.arange(len(q))
    return FirstState(
        mechanism,
        *found,
        dependent,
        following,
        np.flatnonzero(~np.isin(every, dependent) & (std_q > 0.0)),
        np.flatnonzero(~np.isin(every, following) & (std_v > 0.0)),
        np.concatenate([q, v]),
        np.where(np.concatenate([std_q, std_v]) > 0.0, np.concatenate([std_q, std_v]), np.inf),
    )


def _giving_way(slope: np.ndarray, std: np.ndarray, driven: list[int]) -> np.ndarray:
    """As many columns as there are independent rows: what is free before what has a prior, that before what is
    known."""
    ease = np.where(std == 0.0, 1.0, np.where(np.isinf(std), 1e6, 1e3))
    ease[driven] = 0.0
    r, order = scipy.linalg.qr(slope * ease, mode="r", pivoting=True)  # type: ignore[misc]
    size = np.abs(np.diag(r))
    return np.sort(order[: int(np.sum(size > 1e-9 * size[0]))])


def _closed(
    mechanism: System,
    model: Model,
    q: np.ndarray,
    v: np.ndarray,
    dependent: np.ndarray,
    following: np.ndarray,
) -> tuple[np.ndarray, np.ndarray] | None:
    """Move dependent coordinates and rates until every loop is and stays closed."""
    if not len(dependent) and not len(following):
        return q, v
    kinds = tuple(dependent.tolist()), tuple(following.tolist()), undriven_rows(mechanism)
    q, v, gap = map(np.asarray, _closed_start(model, q, v, *kinds))
    return (q, v) if gap < 1e-2 * CLOSED else None


def closed_start(
    model: Model, q: Array, v: Array, dependent: Any, following: Any, rows: int
) -> tuple[Array, Array]:
    """Coordinates and rates with the dependent ones moved until every loop is and stays closed: a pure function.

    Args:
        dependent: coordinates that are moved (Newton's method, at most NEWTON steps).
        following: coordinates whose rates are.
        rows: of the constraint that are no drives.

    Derivatives follow from the implicit function theorem; where loops cannot be closed they mean nothing.
    """
    index, follow = (np.asarray(x, int) for x in (dependent, following))

    def gap(y: Array) -> tuple[Array, Array]:
        h, slope = model.constraint(q.at[index].set(y), jnp.zeros(model.nu))
        return h[:rows], slope[:rows, index]

    def newton(_: Any, y: Array) -> Array:
        def going(state: tuple[Array, Array]) -> Array:
            y, passes = state
            return (passes < NEWTON) & (jnp.max(jnp.abs(gap(y)[0])) >= 1e-2 * CLOSED)

        def step(state: tuple[Array, Array]) -> tuple[Array, Array]:
            y, passes = state
            h, slope = gap(y)
            d = _solved(slope, h)
            return y - d * jnp.minimum(1.0, 0.5 / jnp.maximum(jnp.max(jnp.abs(d)), 1e-300)), passes + 1

        return jax.lax.while_loop(going, step, (y, jnp.asarray(0)))[0]

    def square(y: Array) -> Array:
        """As many equations as unknowns, also where rows depend on each other."""
        h, slope = gap(y)
        return _pseudo_inverse(jax.lax.stop_gradient(slope)) @ h

    def linear(function: Any, b: Array) -> Array:
        return jnp.linalg.solve(jax.vmap(function)(jnp.eye(b.shape[0])).T, b)

    if len(index):
        q = q.at[index].set(jax.lax.custom_root(square, q[index], newton, linear))
    if len(follow):
        v = v.at[follow].set(0.0)
        opening, slope = _opening(model, q, v, rows)
        v = v.at[follow].set(-_solved(slope[:, follow], opening))
    return q, v


def _pseudo_inverse(A: Array) -> Array:
    """(AᵀA)⁻¹Aᵀ of a matrix whose columns are independent."""
    Q, R = jnp.linalg.qr(A)
    return jax.scipy.linalg.solve_triangular(R, Q.T)


def _solved(A: Array, b: Array) -> Array:
    """The x with the smallest ‖A x − b‖."""
    return _pseudo_inverse(A) @ b


@partial(jit, once=True, static_argnums=(3, 4, 5))
def _closed_start(
    model: Model, q: Array, v: Array, dependent: tuple[int, ...], following: tuple[int, ...], rows: int
) -> tuple[Array, Array, Array]:
    """The same with the largest gap that is left; ∞ where it is no number."""
    q, v = closed_start(model, q, v, dependent, following, rows)
    h = model.constraint(q, jnp.zeros(model.nu))[0][:rows]
    left = jnp.max(jnp.abs(h), initial=0.0) if len(dependent) else jnp.zeros(())
    return q, v, jnp.where(jnp.isfinite(left), left, jnp.inf)


@partial(jit, once=True, static_argnums=(3,))
def _rate_rows(model: Model, q: Array, v: Array, rows: int) -> tuple[Array, Array]:
    """What must vanish of rates, and its slope by them."""
    return _opening(model, q, v, rows)


def _opening(model: Model, q: Array, v: Array, rows: int) -> tuple[Array, Array]:
    # slopes of loops do not depend on inputs
    slope = model.constraint(q, jnp.zeros(model.nu))[1][:rows]
    if not model.nr:
        return slope @ v, slope
    rolling, along = model.rolling(q, v, jnp.zeros(()))
    return jnp.concatenate([slope @ v, rolling]), jnp.concatenate([slope, along])


def undriven_rows(mechanism: System) -> int:
    """Rows of the constraint that are no drives."""
    return len(mechanism.constraint_names) - len(mechanism.drives)


@partial(jit, once=True, static_argnums=(8, 9))
def _slopes(
    stepper: Stepper,
    model: Model,
    tangent: Any,
    x: Any,
    q: Array,
    v: Array,
    u: Array,
    t: Array,
    kinds: tuple[tuple[int, ...], ...],
    rows: int,
) -> Array:
    """(nx + 2 nq, nθ + nξ) of the first state, coordinates and rates."""
    free_q, free_v, dependent, following = (np.asarray(x, int) for x in kinds)

    def first(q_free: Array, v_free: Array, m: Model) -> Array:
        moved = q.at[free_q].set(q_free), v.at[free_v].set(v_free)
        new_q, new_v = closed_start(m, *moved, dependent, following, rows)
        return jnp.concatenate([stepper.local(x, stepper.initial(m, new_q, new_v, u, t)), new_q, new_v])

    _, by_start, by_theta = columns(first, (q[free_q], v[free_v]), model, tangent)
    return jnp.concatenate([by_theta, *by_start], 1)
