"""The rows of SPOOK's constraints: how many there are, and how soft each is.

They stand as contacts (all normals, then two directions along the plane for each), joints, loops, couplings,
drives, stops. A row g with rate G v, compliance ε, relaxation time τ, γ = 1/(1 + 4τ/h) and an impulse λ moves at

    G v⁺ = −(4/h) γ g + γ G v − Σ λ        Σ = (4/h²) γ ε

so that it gives way by ε F under a force F that stays, and a gap closes as exp(−t/τ) where τ is many steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from mechid.compile import register
from mechid.dynamics import dry
from mechid.dynamics.contacts import stop_rows
from mechid.dynamics.loops import joint_rows
from mechid.dynamics.lowering import lower
from mechid.dynamics.model import TreeModel
from mechid.dynamics.tree import Array
from mechid.errors import MechidError, unknown
from mechid.model.geometry import finite
from mechid.model.mechanism import Mechanism
from mechid.model.parts import Contact, LowerStop, UpperStop


class Counts(NamedTuple):
    """Impulses, in their order."""

    contacts: int
    held: int
    """joints, loops, couplings, drives"""
    stops: int
    dry: int

    @property
    def closing(self) -> int:
        return self.contacts + self.held + self.stops


def counts(model: TreeModel) -> Counts:
    return Counts(
        model.contacts.to.link.shape[0],
        model.maximal.row_to.link.shape[0] + model.nc,
        model.stops.index.shape[0],
        model.dry.index.shape[0],
    )


def split(model: TreeModel, z: Array) -> tuple[Array, Array]:
    """Multipliers of all rows that close; impulses of friction."""
    count = z.shape[0] - model.dry.index.shape[0]
    return z[:count], z[count:]


def coordinate_rows(model: TreeModel, q: Array, u: Array) -> tuple[Array, Array]:
    """Rows on joint coordinates with their slopes: couplings, drives, stops."""
    if not model.stops.index.shape[0]:
        return joint_rows(model, q, u)
    both = joint_rows(model, q, u), stop_rows(model.stops, q)
    return tuple(jnp.concatenate(parts) for parts in zip(*both, strict=True))  # type: ignore[return-value]


def turning(model: TreeModel) -> Array:
    """Which of the rows that close are in rad; the others are in m."""
    own = model.maximal
    on_joints = jnp.concatenate([model.coupling_index[:, 0], model.drive_index[:, 0], model.stops.index])
    kinds = [
        np.zeros(counts(model).contacts, bool),
        own.row_to.link == own.row_start.link,
        own.body_of[model.row_to.link] == own.body_of[model.row_start.link],
        model.revolute[on_joints] > 0,
    ]
    return jnp.concatenate(kinds)


# How soft they are


@dataclass(frozen=True)
class Softness:
    """How soft one constraint is; None: as the stepper says of all."""

    compliance: Any = None
    """of its rows in m: m/N"""
    rotational_compliance: Any = None
    """of its rows in rad: rad/(N·m)"""
    relaxation_time: Any = None
    """s"""
    rotational_relaxation_time: Any = None
    """s, of its rows in rad; as `relaxation_time` where None"""


NUMBERS = ("compliance", "rotational_compliance", "relaxation_time", "rotational_relaxation_time")


class ByRow(NamedTuple):
    """Softness of all rows that close, not numbers where it is the stepper's own."""

    compliance: Any
    relaxation: Any


def check_softness(of: Any, who: str) -> None:
    """Refuse numbers that make no sense."""
    for name in NUMBERS:
        value = getattr(of, name)
        if value is not None and finite(value, (), f"The {name} of {who}") < 0.0:
            raise MechidError(f"The {name} of {who} must be ≥ 0, not {value}.")


def by_row(mechanism: Mechanism, given: Mapping[str, Softness]) -> ByRow:
    """The rows of a mechanism's constraints with what is said of them by name."""
    if not isinstance(given, Mapping):
        raise MechidError(f"The constraints of Spook must be {{name: Softness(…)}}, not {given!r}.")
    names = _names(mechanism)
    radians = np.asarray(turning(lower(mechanism)))
    made = np.full((2, len(names)), np.nan)
    for name, soft in given.items():
        if name not in names:
            raise unknown("constraint (of Spook)", name, dict.fromkeys(names))
        if not isinstance(soft, Softness):
            raise MechidError(f"The softness of '{name}' must be Softness(…), not {soft!r}.")
        check_softness(soft, f"'{name}'")
        later = soft.rotational_relaxation_time
        later = soft.relaxation_time if later is None else later
        pairs = ((soft.compliance, soft.rotational_compliance), (soft.relaxation_time, later))
        here = np.array([n == name for n in names])
        for row, values in zip(made, pairs, strict=True):
            for value, chosen in zip(values, (here & ~radians, here & radians), strict=True):
                row[chosen] = np.nan if value is None else value
    return ByRow(*made)


def _names(mechanism: Mechanism) -> list[str]:
    """The constraint that each row that closes belongs to; stops are called after their coordinate."""
    m = mechanism
    touching = [e.name for e in m.elements if isinstance(e, Contact)]
    moving = [j.name for j in m.joints if j.coordinates]
    stops = [f"{e.name}.stops" for kind in (LowerStop, UpperStop) for e in m.elements if isinstance(e, kind)]
    return [
        *(*touching, *(name for name in touching for _ in range(2))),
        *(moving[b] for b in np.asarray(lower(m).maximal.row_to.link)),
        *(loop.name for loop in m.loops for _ in loop.rows),
        *(c.name for c in (*m.couplings, *m.drives)),
        *stops,
    ]


class Rows(NamedTuple):
    """How the rows that close pull."""

    sigma: Array
    """regularisation Σ"""
    stiff: Array
    gamma: Array
    """a row is to move at −stiff g + gamma G v"""


def regularised(soft: Softness, named: ByRow | None, model: TreeModel, h: Array, g: Array) -> Rows:
    """How each row is regularised: as `soft` says of all of them, or as is said of its constraint.

    A driven row is to arrive within the step; what is held from one side only may come to rest within it, and is
    pushed out as gently as the others where it has gone too far.
    """
    count, radians = counts(model), turning(model)
    turned = soft.compliance if soft.rotational_compliance is None else soft.rotational_compliance
    compliance = jnp.where(radians, turned, soft.compliance)
    relaxation = 2.0 * h if soft.relaxation_time is None else jnp.asarray(soft.relaxation_time)
    if soft.rotational_relaxation_time is not None:
        relaxation = jnp.where(radians, soft.rotational_relaxation_time, relaxation)
    if named is not None:
        compliance = jnp.where(jnp.isnan(named.compliance), compliance, named.compliance)
        relaxation = jnp.where(jnp.isnan(named.relaxation), relaxation, named.relaxation)
    gamma = 1.0 / (1.0 + 4.0 * relaxation / h)
    sigma = 4.0 / h**2 * gamma * compliance
    number, end = np.arange(count.closing), count.closing - count.stops
    driven = (number >= end - model.drive_index.shape[0]) & (number < end)
    stiff = jnp.where(driven, 1.0 / h, 4.0 / h * gamma)
    one_sided = (number < count.contacts // 3) | (number >= end)
    stiff = jnp.where(one_sided & (g > 0.0), 1.0 / h, stiff)
    along = (number >= count.contacts // 3) & (number < count.contacts)
    if count.contacts:
        sigma = jnp.where(along, dry.CREEP / jnp.sum(model.pseudo[model.maximal.link, 3, 3]), sigma)
    free = driven | one_sided | along
    return Rows(sigma, jnp.where(along, 0.0, stiff), jnp.where(free, 0.0, gamma))


register(Softness, NUMBERS)
