"""`structure`: which parameters of a mechanism act on its motion at all, and which can be told apart.

The balance of forces is linear in each body's m, m·c and inertia about its origin, and in armatures, damping,
Coulomb friction and stiffness,

    Pᵀ (M(q) a + bias(q, v) − F) = Pᵀ Y(q, v, a) π − Pᵀ B u,

with P the projector onto the directions that the loops leave free. Columns of Pᵀ Y that vanish for every motion
belong to parameters that never act; the null space of the stacked columns tells which act only together (the base
parameters of Gautier and Khalil, 1990). Both are read off motions drawn at random, limits of joints left aside.
No log can tell more, with inputs known and every loop closed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mechid.compile import jit
from mechid.dynamics.assembly import assemble, with_driven
from mechid.dynamics.lowering import lower
from mechid.dynamics.model import TreeModel
from mechid.dynamics.tree import Array, spread
from mechid.errors import MechidError
from mechid.judge.closure import assembled
from mechid.model.inertia import linear_from_pseudo, pseudo_from_linear
from mechid.model.mechanism import Mechanism
from mechid.model.parts import Armature, Damper, DryFriction, Friction, GearFriction, Motor, Spring

TEN = (
    "mass",
    *(f"first_moment.{c}" for c in "xyz"),
    *(f"origin_inertia.{c}" for c in ("xx", "yy", "zz", "xy", "xz", "yz")),
)
"""a body's numbers in the form in which the balance of forces is linear in them"""
ALONE, TOGETHER, NEVER = "alone", "in combination", "never"
SILENT = 1e-10
"""a column this much smaller than the largest of its kind never acts"""
DEPENDENT = 1e-8
"""singular values of normalised columns this much smaller than the largest are zero"""


@dataclass(frozen=True)
class Combination:
    """A base parameter: `leading` + Σ factor·other, which acts as one number."""

    leading: str
    others: dict[str, float]

    def __str__(self) -> str:
        return " ".join(
            [self.leading, *(f"{'+' if f > 0 else '−'} {_times(f)}{n}" for n, f in self.others.items())]
        )


@dataclass(frozen=True)
class Structure:
    """How each parameter acts on the motion, in principle."""

    action: dict[str, str]
    """address: "alone" (a log can tell it by itself), "in combination", or "never\""""
    inertial: tuple[str, ...]
    """addresses of the bodies' numbers; the others are of armatures, damping, friction and springs"""
    inertial_rank: int
    """independent combinations of the bodies' numbers, everything else known"""
    combinations: tuple[Combination, ...]
    """independent combinations of all of them; the numbers that act alone are among them"""
    margin: tuple[float, float]
    """smallest singular value that counts, largest that does not, as parts of the largest"""

    @property
    def rank(self) -> int:
        return len(self.combinations)

    def which(self, action: str) -> list[str]:
        return [name for name, how in self.action.items() if how == action]


def structure(mechanism: Mechanism, *, seed: int = 0) -> Structure:
    """Which of the bodies' numbers, armatures, dampings, frictions and stiffnesses act, and which only together.

    Bodies without mass and inertia are left out. A loop that cannot be closed is refused as `assemble` does.
    """
    model = lower(mechanism)
    names, inertial = _parameters(mechanism)
    random = np.random.default_rng(seed)
    count = 4 + int(np.ceil(2.0 * len(names) / max(1, model.nq - model.nc)))
    q = _configurations(mechanism, count, random)
    v, a = 2.0 * random.standard_normal((2, *q.shape)) * np.array([1.0, 3.0])[:, None, None]
    u = np.array([with_driven(mechanism, np.zeros(model.nu), x) for x in q])
    slopes = jax.tree.map(np.asarray, _regressor(model, q, v, a, u))
    columns = np.stack(list(_columns(mechanism, model, slopes)), -1).reshape(-1, len(names))
    return _judged(names, inertial, columns)


def _parameters(mechanism: Mechanism) -> tuple[list[str], tuple[str, ...]]:
    inertial = [f"{b.name}.{number}" for b in _heavy(mechanism) for number in TEN]
    return [*inertial, *(f"{e.name}.{quantity}" for e, quantity in _linear(mechanism))], tuple(inertial)


def _heavy(mechanism: Mechanism) -> list[Any]:
    return [b for b in mechanism.bodies if b.mass or np.any(b.inertia)]


def _linear(mechanism: Mechanism) -> Iterator[tuple[Any, str]]:
    """Elements on a coordinate with the number in which their force is linear."""
    for e in mechanism.elements:
        if isinstance(e, Armature):
            yield e, "armature"
        elif isinstance(e, Motor) and e.rotor_inertia:
            yield e, "rotor_inertia"
        elif isinstance(e, Damper):
            yield e, "damping"
        elif isinstance(e, Friction | DryFriction | GearFriction):
            yield e, "coulomb"
            if isinstance(e, GearFriction):
                yield e, "slow_damping"
        elif isinstance(e, Spring):
            yield e, "stiffness"


def _configurations(mechanism: Mechanism, count: int, random: np.random.Generator) -> np.ndarray:
    """(count, n) coordinates drawn at random that close every loop."""
    reach = np.array(
        [_reach(len(j.coordinates), c.revolute) for j in mechanism.joints for c in j.coordinates]
    )
    if not mechanism.constraint_names:
        return random.uniform(-1.0, 1.0, (count, len(reach))) * reach
    at = assembled(mechanism)
    found, share = [], 1.0
    while len(found) < count:
        guess = at + share * random.uniform(-1.0, 1.0, len(reach)) * reach
        try:
            found.append(assemble(mechanism, guess))
        except MechidError:
            share = max(0.8 * share, 0.02)
    return np.array(found)


def _reach(coordinates: int, revolute: bool) -> float:
    """How far coordinates are drawn; those of compound joints stay off the singular middle angle."""
    return (np.pi if coordinates == 1 else 1.2) if revolute else 1.0


@partial(jit, once=True)
def _regressor(model: TreeModel, q: Array, v: Array, a: Array, u: Array) -> dict[str, Array]:
    """Slopes of the balance of forces along the free directions, by what moves the model: (samples, n, …)."""
    return jax.vmap(partial(_slopes, model))(q, v, a, u)


def _slopes(model: TreeModel, q: Array, v: Array, a: Array, u: Array) -> dict[str, Array]:
    free = jnp.eye(model.nq)
    if model.nc:

        def rows(x: Array) -> Array:
            return model.constraint(x, u)[1]

        slope = rows(q)
        undriven = slope[: model.nc - model.driven.shape[0]]
        inverse = jnp.linalg.pinv(undriven, rtol=1e-9)
        v = v - inverse @ (undriven @ v)
        curved = jax.jvp(lambda x: rows(x)[: undriven.shape[0]] @ v, (q,), (v,))[1]
        a = a - inverse @ (undriven @ a + curved)
        free = free - jnp.linalg.pinv(slope, rtol=1e-9) @ slope

    def balance(by: dict[str, Array]) -> Array:
        moved = dataclasses.replace(
            model,
            pseudo=model.pseudo + pseudo_from_linear(by["ten"]),
            armature=model.armature + by["armature"],
            damping=model.damping.at[:, 0].add(by["damping"]),
            potential=model.potential + by["potential"],
            friction=model.friction._replace(values=model.friction.values.at[:, 0].add(by["coulomb"])),
            gear_friction=model.gear_friction._replace(
                values=model.gear_friction.values.at[:, :2].add(by["gear"])
            ),
        )
        sliding = spread(by["dry"] * jnp.sign(v[model.dry.index]), model.dry.index, model.nq)
        return moved.force_balance(q, v, a, u, jnp.asarray(0.0)) + sliding

    axes = len(model.armature)
    still = {
        "ten": jnp.zeros((model.nq, 10)),
        "armature": jnp.zeros(axes),
        "damping": jnp.zeros(axes),
        "potential": jnp.zeros((axes, 5)),
        "gear": jnp.zeros((model.gear_friction.values.shape[0], 2)),
        "coulomb": jnp.zeros(model.friction.values.shape[0]),
        "dry": jnp.zeros(model.dry.values.shape[0]),
    }
    by = jax.jacfwd(balance)(still)
    return {name: jnp.tensordot(free, slope, 1) for name, slope in by.items()}


def _columns(mechanism: Mechanism, model: TreeModel, by: dict[str, np.ndarray]) -> Iterator[np.ndarray]:
    """(samples, n) for each parameter, from the slopes by what coordinates carry and feel."""
    place = {name: i for i, name in enumerate(mechanism.frame_names)}
    both = (*mechanism.coordinates, *mechanism.combinations)
    number = {c.name: i for i, c in enumerate(both)}
    units = np.asarray(pseudo_from_linear(np.eye(10)))  # type: ignore[arg-type]
    for body in _heavy(mechanism):
        carrier, pose = (
            int(model.frame_link[place[body.name]]),
            np.asarray(model.frame_pose[place[body.name]]),
        )
        if carrier == model.nq:  # the world
            yield from [np.zeros(by["armature"].shape[:2])] * len(TEN)
            continue
        carried = np.asarray(linear_from_pseudo(jnp.asarray(pose @ units @ pose.T)))
        yield from list(np.moveaxis(by["ten"][:, :, carrier] @ carried.T, -1, 0))
    frictions, dry, gears = (
        [e.name for e in mechanism.elements if type(e) is kind]
        for kind in (Friction, DryFriction, GearFriction)
    )
    for e, quantity in _linear(mechanism):
        at = number[e.coordinate]
        if isinstance(e, DryFriction):
            yield by["dry"][:, :, dry.index(e.name)]
        elif isinstance(e, GearFriction):
            yield by["gear"][:, :, gears.index(e.name), int(quantity == "slow_damping")]
        elif quantity == "coulomb":
            yield by["coulomb"][:, :, frictions.index(e.name)]
        elif quantity == "stiffness":
            yield by["potential"][:, :, at] @ np.array([0.5 * e.rest**2, -e.rest, 0.5, 0.0, 0.0])
        elif quantity == "damping":
            yield by["damping"][:, :, at]
        else:
            yield by["armature"][:, :, at] * (e.gear_ratio**2 if isinstance(e, Motor) else 1.0)


def _judged(names: list[str], inertial: tuple[str, ...], columns: np.ndarray) -> Structure:
    sizes = np.linalg.norm(columns, axis=0)
    acting = np.flatnonzero(sizes > SILENT * sizes.max(initial=0.0))
    unit = columns[:, acting] / sizes[acting]
    values, null = _null_space(unit)
    rank = len(acting) - null.shape[1]
    shared = np.linalg.norm(null, axis=1) > 1e-6
    action = dict.fromkeys(names, NEVER)
    action |= {names[j]: TOGETHER if both else ALONE for j, both in zip(acting, shared, strict=True)}
    of_bodies = unit[:, acting < len(inertial)]
    inertial_rank = of_bodies.shape[1] - _null_space(of_bodies)[1].shape[1]
    margin = (float(values[rank - 1]) if rank else 1.0, float(values[rank]) if rank < len(values) else 0.0)
    return Structure(
        action,
        inertial,
        inertial_rank,
        _combinations(names, len(inertial), acting, sizes, unit, rank),
        margin,
    )


def _null_space(unit: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Singular values as parts of the largest, and a basis of the directions that do nothing."""
    if not unit.shape[1]:
        return np.zeros(0), np.zeros((0, 0))
    _, values, right = np.linalg.svd(np.linalg.qr(unit, mode="r"))
    values = np.concatenate([values, np.zeros(unit.shape[1] - len(values))]) / values[0]
    return values, right[values < DEPENDENT].T


def _combinations(
    names: list[str], inertial: int, acting: np.ndarray, sizes: np.ndarray, unit: np.ndarray, rank: int
) -> tuple[Combination, ...]:
    """Base parameters: each column that depends on earlier ones is added to them.

    Bodies come in their order, and of one body inertia before first moment before mass, so that what cannot be told
    of a body moves to the one that carries it.
    """
    order = np.argsort(np.where(acting < inertial, 10 * (acting // 10) + 9 - acting % 10, acting))
    triangle = np.asarray(np.linalg.qr(unit[:, order], mode="r"))
    kept: list[int] = []
    basis = np.zeros((len(triangle), 0))
    for j in range(len(order)):
        rest = triangle[:, j] - basis @ (basis.T @ triangle[:, j])
        rest -= basis @ (basis.T @ rest)
        if np.linalg.norm(rest) > 1e-6 and len(kept) < rank:
            basis = np.column_stack([basis, rest / np.linalg.norm(rest)])
            kept.append(j)
    others = [j for j in range(len(order)) if j not in kept]
    factors = (
        np.linalg.lstsq(triangle[:, kept], triangle[:, others], rcond=None)[0] if kept else np.zeros((0, 0))
    )
    where = acting[order]
    found = []
    for row, j in enumerate(kept):
        # columns were divided by their sizes
        added = {
            names[where[k]]: float(factors[row, i] * sizes[where[k]] / sizes[where[j]])
            for i, k in enumerate(others)
        }
        found.append(Combination(names[where[j]], {n: f for n, f in added.items() if abs(f) > 1e-7}))
    return tuple(found)


def _times(factor: float) -> str:
    size = abs(factor)
    return "" if abs(size - 1.0) < 1e-6 else f"{size:.4g}·"
