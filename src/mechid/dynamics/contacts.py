"""What holds a mechanism on one side only: stops of coordinates, points above planes with friction.

A row c(q) ≥ 0 with an impulse λ ≥ 0, one of which is zero (Marklund, Eqs. 2.21 and 2.24). Rows of points stand as
all normals, then two directions along the plane for each.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mechid.dynamics.loops import Attached
from mechid.dynamics.tree import Array


class Contacts(NamedTuple):
    """k points above planes."""

    direction: Attached
    to: Attached
    start: Attached
    """(3 k) rows n·(x_b − x_a)"""
    friction: Array
    """(k,) coefficients"""
    blur: Array
    """(3 k,) m/s, as that of dry friction"""
    inertia: Array
    """(3 k,) kg: all masses together"""


class Stops(NamedTuple):
    """s ends of coordinates' ways."""

    index: Array
    """(s,) coordinate"""
    sense: Array
    """(s,) 1 where it is the lower end, −1 where it is the upper one"""
    at: Array
    """(s,) rad or m"""
    blur: Array
    """(s,) rad/s or m/s"""
    inertia: Array
    """(s,) kg·m² or kg, as that of dry friction"""


def stop_rows(stops: Stops, q: Array) -> tuple[Array, Array]:
    """How far the coordinates are from their stops, and its slope."""
    slope = stops.sense[:, None] * jax.nn.one_hot(stops.index, q.shape[0])
    return stops.sense * (q[stops.index] - stops.at), slope


def felt(model: Any) -> np.ndarray:
    """(3 k + s + d,) inertias that contacts, stops and dry friction feel, kg or kg·m²."""
    return np.concatenate([model.contacts.inertia, model.stops.inertia, model.dry.inertia])


def blurred(model: Any, blur: Any) -> Any:
    """The model with corners rounded over rates, in the same order."""
    k, d = len(model.contacts.blur), len(model.dry.blur)
    return replace(
        model,
        contacts=model.contacts._replace(blur=blur[:k]),
        stops=model.stops._replace(blur=blur[k : len(blur) - d]),
        dry=model.dry._replace(blur=blur[len(blur) - d :]),
    )


def grip(contacts: Contacts, impulses: Array) -> Array:
    """(2 k,) largest impulses of friction along the planes, from those across them."""
    return jnp.repeat(contacts.friction * jnp.abs(impulses), 2)
