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
from mechid.dynamics.stepper import Stepper, along, parameter_count
from mechid.dynamics.tree import Array
from mechid.errors import MechidError
from mechid.estimate.experiment import Start
from mechid.model.system import System


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
        by_q, by_v = np.zeros((nq, self.size)), np.zeros((nq, self.size))
        n = len(self.free_q)
        by_q[self.free_q, np.arange(n)] = 1.0
        by_v[self.free_v, n + np.arange(len(self.free_v))] = 1.0
        u = with_driven(self.mechanism, np.zeros(model.nu), q)
        rows = _undriven_rows(self.mechanism)
        follow = self.dependent, self.following
        out = _slopes(stepper, model, tangent, x, q, v, u, t, by_q, by_v, *follow, rows)
        return Tangents(*map(np.asarray, out))


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
    rows = _undriven_rows(mechanism)
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
    rows = _undriven_rows(mechanism)
    q, v = q.copy(), v.copy()
    for _ in range(30 if len(dependent) else 0):
        h, slope = (a[:rows] for a in constraint_rows(mechanism, model, q))  # type: ignore[arg-type]
        if not np.all(np.isfinite(h)):
            return None
        if np.abs(h).max() < 1e-2 * CLOSED:
            break
        step = np.linalg.lstsq(slope[:, dependent], h, rcond=None)[0]
        q[dependent] -= step * min(1.0, 0.5 / max(np.abs(step).max(), 1e-300))
    else:
        if len(dependent):
            return None
    v[following] = 0.0
    opening, slope = map(np.asarray, _rate_rows(model, q, v, rows))
    v[following] = -np.linalg.lstsq(slope[:, following], opening, rcond=None)[0]
    return q, v


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


def _undriven_rows(mechanism: System) -> int:
    return len(mechanism.constraint_names) - len(mechanism.drives)


@partial(jit, once=True, static_argnums=(12,))
def _slopes(
    stepper: Stepper,
    model: Model,
    tangent: Any,
    x: Any,
    q: Array,
    v: Array,
    u: Array,
    t: Array,
    by_q: Array,
    by_v: Array,
    dependent: Array,
    following: Array,
    rows: int,
) -> tuple[Array, Array, Array]:
    """Implicit differentiation of closed loops, then of the first state."""

    def by_theta(function: Any, like: Array) -> Array:
        return along(function, model, tangent, like)

    own = by_theta(lambda m: m.constraint(q, u)[0][:0], jnp.zeros(0)).shape[-1]
    dq = jnp.concatenate([jnp.zeros((q.shape[0], own)), by_q], -1)
    dv = jnp.concatenate([jnp.zeros((q.shape[0], own)), by_v], -1)
    none = jnp.zeros_like(by_q[0])

    def filled(slopes: Array) -> Array:
        return jnp.concatenate([slopes, jnp.zeros((slopes.shape[0], none.shape[0]))], -1)

    def solved(d: Array, which: Array, slope: Array, change: Array) -> Array:
        """Derivatives with those of the dependent ones such that nothing changes in what must vanish."""
        kept = d.at[which].set(0.0)
        change = change - slope[:, which] @ d[which]
        return kept.at[which].set(-jnp.linalg.pinv(slope[:, which]) @ change)

    if rows:
        slope = model.constraint(q, u)[1][:rows]
        change = slope @ dq + filled(by_theta(lambda m: m.constraint(q, u)[0][:rows], jnp.zeros(rows)))
        dq = solved(dq, dependent, slope, change)
    if rows + model.nr:
        slope = _opening(model, q, v, rows)[1]
        bend = jax.jacfwd(lambda q: _opening(model, q, v, rows)[0])(q)
        own_change = by_theta(lambda m: _opening(m, q, v, rows)[0], jnp.zeros(rows + model.nr))
        dv = solved(dv, following, slope, slope @ dv + bend @ dq + filled(own_change))

    def state(m: Model, q: Array, v: Array) -> Array:
        return stepper.local(x, stepper.initial(m, q, v, u, t))

    def moved(dq: Array, dv: Array) -> Array:
        return jax.jvp(lambda q, v: state(model, q, v), (q, v), (dq, dv))[1]

    dx = jax.vmap(moved, in_axes=-1, out_axes=-1)(dq, dv)
    return dx + filled(by_theta(lambda m: state(m, q, v), jnp.zeros(dx.shape[0]))), dq, dv
