"""`LinearForm`: equations that are linear in θ once a sample is measured; `MechanismForm`: those of a mechanism.

    M(q) a + bias(q, v) − F(q, v) = B u      ⟺      φ(q, v, a, u) θ = y

with a row for each coordinate that is free to move. For mechanisms of parts φ comes in closed form from
`tree_regressor` and from the laws of the elements, in NumPy; for others as derivatives of the balance of forces.
What couplings tie or loops close is taken out: rows are those of the independent coordinates, with what they take
along.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from mechid.compile import jit
from mechid.dynamics.model import float_leaves, with_float_leaves
from mechid.errors import MechidError
from mechid.estimate.closed_motion import ClosedMotion
from mechid.estimate.linear_numbers import LinearNumbers, linear_numbers
from mechid.estimate.tree_regressor import CHUNK, bodies_columns
from mechid.model.mechanism import Mechanism
from mechid.model.parameters import Parameters
from mechid.model.parts import (
    Contact,
    Custom,
    GearFriction,
    LineSpring,
    LoadFriction,
    LowerStop,
    PeriodicFriction,
    PiecewiseSpring,
    UpperStop,
    Wrench,
)

Array = np.ndarray

APART = (LineSpring, Wrench, GearFriction, LoadFriction, PiecewiseSpring, PeriodicFriction)
"""elements without columns of their own here: with them all columns are derivatives of the balance"""


class LinearForm(Protocol):
    """y = φ(x; ω) θ: what is linear in θ once a sample x is measured and the nonlinear numbers ω are fixed."""

    @property
    def names(self) -> tuple[str, ...]:
        """of θ"""
        ...

    @property
    def units(self) -> tuple[str, ...]:
        """of θ"""
        ...

    @property
    def nonlinear(self) -> tuple[str, ...]:
        """of ω; may be empty"""
        ...

    @property
    def outputs(self) -> tuple[str, ...]:
        """of the rows that one sample gives"""
        ...

    @property
    def channels(self) -> tuple[str, ...]:
        """of a sample, in order"""
        ...

    def rows(self, samples: np.ndarray, omega: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """φ (N, outputs, names) and y (N, outputs) of samples (N, channels)."""
        ...


class MechanismForm:
    """The balance of forces of any mechanism, linear in what is free of it.

    Samples hold the time, then position, rate and acceleration of each independent coordinate, then inputs. ω are
    numbers that shape a friction law, if parameters are named `nonlinear`. Where loops are closed the independent
    coordinates are some of those that are `measured`, and loops close `near` the coordinates given.
    """

    def __init__(
        self,
        free: Parameters,
        *,
        nonlinear: Sequence[str] = (),
        measured: Sequence[str] = (),
        near: Array | None = None,
    ) -> None:
        self.free = free
        self.numbers: LinearNumbers = linear_numbers(free, nonlinear)
        m = self.mechanism = free.mechanism
        _refuse_unknown_forces(m)
        self.names, self.units, self.nonlinear = (
            self.numbers.names,
            self.numbers.units,
            self.numbers.nonlinear,
        )
        if not self.names:
            raise MechidError("Nothing is free: a regression needs at least one parameter.")
        tied = {c.coordinate for c in m.couplings}
        self.closure = ClosedMotion(free, measured, near) if has_loops(m) else None
        self.independent = (
            self.closure.names if self.closure else tuple(c for c in m.coordinate_names if c not in tied)
        )
        driven = {d.coordinate for d in m.drives}
        # a driven coordinate takes any force that its path needs
        self.outputs = tuple(c for c in self.independent if c not in driven)
        self.channels = (
            "time",
            *(f"{c} {what}" for what in ("position", "rate", "acceleration") for c in self.independent),
            *m.input_names,
        )
        turns = [m.coordinate(c).unit for c in self.independent]
        # an input may be a force or, before a motor's gain, a current
        self.channel_units = (
            "s", *(f"{unit}{per}" for per in ("", "/s", "/s²") for unit in turns), *(None for _ in m.input_names)
        )  # fmt: skip
        parts = isinstance(m, Mechanism)
        self.closed = parts and not m.combinations and not any(isinstance(e, APART) for e in m.elements)

    def rows(self, samples: np.ndarray, omega: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """φ (N, outputs, names), y (N, outputs)."""
        return self.mean_rows(samples, 1, omega)

    def mean_rows(
        self, samples: np.ndarray, together: int, omega: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Means of the rows of so many neighbouring samples; what is left at the end is left out."""
        samples = np.asarray(samples, float)
        if samples.ndim != 2 or samples.shape[1] != len(self.channels):
            raise MechidError(
                f"Samples are (samples, {len(self.channels)} channels: {', '.join(self.channels)}), not "
                f"{samples.shape}."
            )
        still = self.numbers.still.copy()
        still[list(self.numbers.places)] = () if omega is None else omega
        m, p, count = len(self.outputs), len(self.names), len(samples) // together
        phi, y = np.empty((m, p, count)), np.empty((m, count))
        whole = self._motion(samples)
        customs = self._customs(whole, still)
        size = max(1, CHUNK // together) if self.closed else max(count, 1)
        # levers that vary multiply rows before the mean is taken
        early = together if self._even else 1
        for first in range(0, count, size):
            at = slice(first * together, min(first + size, count) * together)
            motion = whole.part(at)
            columns, balance = self._balance(motion, still, early)
            for e in customs:
                columns[e.coordinates] += _mean(e.slopes[:, :, at], early)
                balance[e.coordinates] += _mean(e.rest[:, at], early)
            to = slice(first, first + size)
            phi[:, :, to] = _mean(self._projected(motion, columns), together // early)
            y[:, to] = -_mean(self._projected(motion, balance), together // early)
        return np.moveaxis(phi, -1, 0), y.T

    @property
    def _even(self) -> bool:
        """Couplings are straight lines, and nothing else ties coordinates."""
        return self.closure is None and not any(c.c2 or c.c3 or c.c4 for c in self._couplings)

    def _motion(self, samples: np.ndarray) -> _Motion:
        """All coordinates of samples, components first; what is coupled follows."""
        m, k = self.mechanism, len(self.independent)
        x = np.ascontiguousarray(samples.T)
        place = [m.coordinate_names.index(c) for c in self.independent]
        q, v, a = np.zeros((3, len(m.coordinates), x.shape[1]))
        q[place], v[place], a[place] = x[1 : 1 + k], x[1 + k : 1 + 2 * k], x[1 + 2 * k : 1 + 3 * k]
        if self.closure is not None:
            following = self.closure.motion(x[1 : 1 + k], x[1 + k : 1 + 2 * k], x[1 + 2 * k : 1 + 3 * k])
            return _Motion(x[0], *following[:3], x[1 + 3 * k :], following[3])
        lever = np.zeros((len(m.coordinates), k, 1))
        lever[place, np.arange(k)] = 1.0
        for c in self._couplings:
            one, other = (m.coordinate_names.index(n) for n in (c.coordinate, c.other))
            s = q[other]
            q[one] = c.offset + s * (c.ratio + s * (c.c2 + s * (c.c3 + s * c.c4)))
            slope = c.ratio + s * (2 * c.c2 + s * (3 * c.c3 + s * 4 * c.c4))
            v[one] = slope * v[other]
            a[one] = slope * a[other] + (2 * c.c2 + s * (6 * c.c3 + s * 12 * c.c4)) * v[other] ** 2
            if not self._even and lever.shape[2] == 1:
                lever = np.broadcast_to(lever, (*lever.shape[:2], x.shape[1])).copy()
            lever[one] = lever[other] * (slope if lever.shape[2] > 1 else c.ratio)
        return _Motion(x[0], q, v, a, x[1 + 3 * k :], lever)

    @cached_property
    def _couplings(self) -> list[Any]:
        """In an order in which each one's other coordinate is known."""
        left, known, order = list(self.mechanism.couplings), set(self.independent), []
        while left:
            ready = [c for c in left if c.other in known]
            if not ready:
                raise MechidError(
                    f"Couplings {', '.join(c.name for c in left)} depend on each other in a circle."
                )
            order += ready
            known |= {c.coordinate for c in ready}
            left = [c for c in left if c not in ready]
        return order

    def _projected(self, motion: _Motion, rows: np.ndarray) -> np.ndarray:
        """Rows of all coordinates (n, …, N) as those of the outputs."""
        kept = [self.independent.index(c) for c in self.outputs]
        if self.closure is None and not self._couplings:
            return rows if len(kept) == len(rows) else rows[kept]
        lever = motion.lever[:, kept]
        if lever.shape[2] == 1:
            return np.tensordot(lever[:, :, 0].T, rows, 1)
        return np.einsum("ijn,i...n->j...n", lever, rows)

    def _balance(self, motion: _Motion, still: np.ndarray, together: int) -> tuple[np.ndarray, np.ndarray]:
        """Slopes of the balance by θ (n, p, N), and the balance where θ is zero (n, N)."""
        if not self.closed:
            columns, balance = self._differentiated(motion, still)
            return _mean(columns, together), _mean(balance, together)
        n, count = motion.q.shape[0], motion.q.shape[1] // together
        columns, balance = np.zeros((n, len(self.names), count)), np.zeros((n, count))
        for places, coordinates, forces in self._terms(motion, still):
            forces = _mean(forces, together)
            slopes, own = self.numbers.slopes[places], still[places]
            for row, to in zip(*np.nonzero(slopes), strict=True):
                columns[coordinates, to] += slopes[row, to] * forces[row]
            if own.any():
                balance[coordinates] += np.tensordot(own, forces, 1)
        return columns, balance

    def _terms(self, motion: _Motion, still: np.ndarray) -> Iterator[tuple[list[int], list[int], np.ndarray]]:
        """(places among the values, coordinates, forces (places, coordinates, N) by unit values)."""
        m = self.mechanism
        moved = np.any(self.numbers.slopes, axis=1)
        offset, bodies, _ = self.free.lowering.layout.blocks["rigid"]
        places = [list(range(offset + 10 * b, offset + 10 * b + 10)) for b in range(bodies)]
        heavy = [b for b in range(bodies) if moved[places[b]].any() or still[places[b]].any()]
        frames = [m.frame_names.index(m.bodies[b].name) for b in heavy]
        found = bodies_columns(self._model, frames, motion.q, motion.v, motion.a)
        for b, (coordinates, forces) in zip(heavy, found, strict=True):
            yield places[b], coordinates, forces
        for kind, index, law in self._laws:
            at, rows, width = self.free.lowering.layout.blocks[kind]
            for row in range(rows):
                place, i = list(range(at + row * width, at + (row + 1) * width)), int(index[row])
                forces = law(still[place], motion.q[i], motion.v[i], motion.a[i], motion, row, moved[place])
                yield place, [i], forces[:, None]

    def _customs(self, motion: _Motion, still: np.ndarray) -> list[_Custom]:
        """What users' elements add, for all samples at once: their functions are compiled."""
        m, found = self.mechanism, []
        if not isinstance(m, Mechanism) or not self.closed:
            return found
        at = self.free.lowering.layout.blocks["custom"][0]
        for e in m.elements:
            if isinstance(e, Custom):
                place = list(range(at, at + len(e.parameters)))
                at += len(e.parameters)
                coordinates = [m.coordinate_names.index(c) for c in e.coordinates]
                q, v = motion.q[coordinates].T, motion.v[coordinates].T
                slopes, rest = _felt(e, still[place], q, v, motion.time, self.numbers.slopes[place])
                found.append(_Custom(coordinates, slopes, rest))
        return found

    @cached_property
    def _model(self) -> Any:
        return self.free.lowering.model(np.array(self.free.lowering.values))

    @cached_property
    def _laws(self) -> list[tuple[str, Any, Callable[..., np.ndarray]]]:
        lowering: Any = self.free.lowering
        top = lowering.topology
        return [
            ("spring", top.spring_index, _spring),
            ("damper", top.damper_index, lambda x, q, v, a, *_: np.array([v, v**3])),
            ("friction", top.friction_index, _friction),
            ("dry_friction", top.dry_friction_index, _dry),
            ("armature", top.armature_index, lambda x, q, v, a, *_: a[None]),
            ("offset", top.offset_index, lambda x, q, v, a, *_: -np.ones((1, len(q)))),
            ("motor", top.motor_index, partial(_motor, top.motor_input)),
        ]

    def _differentiated(self, motion: _Motion, still: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        start = still + self.numbers.slopes @ self.numbers.start
        model = self.free.lowering.model(start)
        slopes = [jnp.asarray(s) for s in self.free.lowering.tangent(start, self.numbers.slopes)]
        q, v, a, u = (x.T for x in (motion.q, motion.v, motion.a, motion.u))
        balance, columns = (np.asarray(x) for x in _slopes(model, slopes, motion.time, q, v, a, u))
        columns = np.moveaxis(columns, 0, -1)
        return columns, balance.T - np.tensordot(self.numbers.start, columns, (0, 1))


class _Motion(NamedTuple):
    time: Array
    q: Array
    v: Array
    a: Array
    """(n, N)"""
    u: Array
    lever: Array
    """(n, independent, N or 1) rates of all coordinates by those of the independent ones"""

    def part(self, at: slice) -> _Motion:
        """Some of the samples."""
        lever = self.lever if self.lever.shape[2] == 1 else self.lever[..., at]
        return _Motion(self.time[at], self.q[:, at], self.v[:, at], self.a[:, at], self.u[:, at], lever)


def _mean(x: np.ndarray, together: int) -> np.ndarray:
    """Means of so many neighbours along the last axis."""
    return x if together == 1 else x.reshape(*x.shape[:-1], x.shape[-1] // together, together).mean(-1)


class _Custom(NamedTuple):
    coordinates: list[int]
    slopes: Array
    """(coordinates, n, N)"""
    rest: Array
    """(coordinates, N)"""


def acts_on(m: Any, name: str) -> list[tuple[int, float]]:
    """The coordinates that an element on a coordinate or a combination pushes, each with its ratio."""
    if name in m.coordinate_names:
        return [(m.coordinate_names.index(name), 1.0)]
    found = next(c for c in m.combinations if c.name == name)
    return [
        (m.coordinate_names.index(c.name), r) for c, r in zip(found.coordinates, found.ratios, strict=True)
    ]


def has_loops(m: Any) -> bool:
    """Whether coordinates follow from others by more than couplings."""
    return bool(m.loops) or (not isinstance(m, Mechanism) and bool(m.constraint_names))


def _refuse_unknown_forces(m: Any) -> None:
    if m.rolling_names:
        raise MechidError(
            f"Mechanism '{m.name}' has constraints on rates, whose forces are not measured: regression takes "
            "trees, couplings of coordinates and closed loops; use simulation_error or joint."
        )
    for e in m.elements:
        if isinstance(e, Contact | LowerStop | UpperStop):
            raise MechidError(
                f"Element '{e.name}' pushes only where something touches, with a force that is not measured: "
                "regression cannot know it. Use simulation_error with Spook, or a mechanism without it."
            )


# The laws of elements: (numbers, N) by unit numbers, as they stand in the balance.


def _spring(x: Array, q: Array, v: Array, a: Array, motion: _Motion, row: int, moved: Array) -> Array:
    stiffness, _, rest = x
    # linear in the rest only where it moves by itself
    pull = np.array([q, q**3, np.full_like(q, -stiffness)])
    if not moved[2]:
        pull = np.array([q - rest, (q - rest) ** 3, np.zeros_like(q)])
    return pull


def _friction(x: Array, q: Array, v: Array, a: Array, *_: Any) -> Array:
    _, _, velocity, exponent, width = x
    side = np.tanh(v / width)
    return np.array([side, side * np.exp(-(np.abs(v / velocity) ** exponent)), *np.zeros((3, len(v)))])


def _dry(x: Array, q: Array, v: Array, a: Array, *_: Any) -> Array:
    _, _, velocity, exponent, load, _ = x
    if load:
        raise MechidError("Dry friction that grows with the load of its joint is not known to a regression.")
    side = np.sign(v)
    return np.array([side, side * np.exp(-(np.abs(v / velocity) ** exponent)), *np.zeros((4, len(v)))])


def _motor(
    inputs: Array, x: Array, q: Array, v: Array, a: Array, motion: _Motion, row: int, moved: Array
) -> Array:
    gain, ratio, _ = x
    u = motion.u[inputs[row]]
    if moved[1]:
        return np.array([np.zeros_like(q), -gain * u, np.zeros_like(q)])
    return np.array([-ratio * u, np.zeros_like(q), ratio**2 * a])


def _felt(e: Custom, p: Array, q: Array, v: Array, t: Array, slopes: Array) -> tuple[Array, Array]:
    """Slopes (coordinates, n, N) by θ and value (coordinates, N) of a user's element, as in the balance."""
    force = partial(_custom, e.function, e.is_potential)
    by, rest = (np.asarray(x) for x in force(q, v, t, p, slopes))
    other = np.asarray(force(q, v, t, p + slopes.sum(1), slopes)[0])
    if not np.allclose(by, other, rtol=1e-9, atol=1e-12 * np.abs(by).max(initial=1.0)):
        raise MechidError(
            f"Regression finds numbers in which the equations of motion are linear; the force of element "
            f"'{e.name}' is not linear in what is free of it. Hold some of it, or use simulation_error or joint."
        )
    return np.moveaxis(by, 0, -1), rest.T


@partial(jit, once=True, static_argnums=(0, 1))
def _custom(function: Any, is_potential: bool, q: Any, v: Any, t: Any, p: Any, slopes: Any) -> Any:
    def felt(q: Any, v: Any, t: Any, p: Any) -> Any:
        if is_potential:
            return jax.grad(function)(q, p)
        return -jnp.asarray(function(q, v, t, p), float)

    by = jax.vmap(jax.jacfwd(felt, argnums=3), (0, 0, 0, None))(q, v, t, p)
    return by @ slopes, jax.vmap(felt, (0, 0, 0, None))(q, v, t, p)


@partial(jit, once=True)
def _slopes(model: Any, slopes: list[Any], t: Any, q: Any, v: Any, a: Any, u: Any) -> tuple[Any, Any]:
    """The balance (N, n) and its slopes (N, n, p)."""
    leaves = float_leaves(model)

    def one(t: Any, q: Any, v: Any, a: Any, u: Any) -> tuple[Any, Any]:
        def balance(floats: list[Any]) -> Any:
            return with_float_leaves(model, floats).force_balance(q, v, a, u, t)

        def along(tangent: list[Any]) -> Any:
            return jax.jvp(balance, (leaves,), (tangent,))[1]

        return balance(leaves), jax.vmap(along, in_axes=-1, out_axes=-1)(slopes)

    return jax.vmap(one)(t, q, v, a, u)
