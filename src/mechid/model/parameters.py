"""`Parameters`: which numbers of a mechanism are free, and how a solver's vector theta moves them.

    free = (
        Parameters(arm)
        .free("theta*.stiffness", name="kappa", start=10.0, bounds=(0.0, None))
        .free("*.damping", transform="positive")
        .tie("length", {"elbow.origin.y": 1.0, "upper.inertia.xx": lambda L: 0.3 * L**2}, unit="m")
        .free_inertia("hand")
    )

theta → one number a parameter (transforms) → the vector of values (factors and functions of these
numbers, then each body's chart) → a model. A body whose mass, com or inertia is free keeps its
other physical numbers: its mass moves neither its centre of mass nor its inertia about it.
SI units.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from numpy.typing import ArrayLike

from mechid.errors import MechidError, choices, unknown
from mechid.model import inertia
from mechid.model.addresses import Address
from mechid.model.geometry import Array, finite, numeric
from mechid.model.parameter import TRANSFORMS, Bounds, Map, Move, Parameter, Prior, Quantity, checked_map
from mechid.model.parts import rigid_numbers
from mechid.model.system import Lowered, System

if TYPE_CHECKING:
    from mechid.dynamics.model import Model

LOG_CHOLESKY = ("alpha", "d1", "d2", "d3", "s12", "s23", "s13", "t1", "t2", "t3")


@dataclass(frozen=True, eq=False, repr=False)
class Parameters:
    """The free numbers of a mechanism. Immutable; what adds to it returns a new set."""

    mechanism: System
    entries: tuple[Parameter, ...] = field(default=(), kw_only=True)
    limits: tuple[tuple[dict[str, float], float], ...] = field(default=(), kw_only=True)
    """factors by name, and the upper bound of the sum"""
    lowering: Lowered = field(default=None, kw_only=True)  # type: ignore[assignment]
    """layout and own values of the mechanism, worked out once"""

    def __post_init__(self) -> None:
        if not isinstance(self.mechanism, System):
            raise MechidError(f"Parameters are those of a Mechanism, not of {self.mechanism!r}.")
        if self.lowering is None:
            object.__setattr__(self, "lowering", self.mechanism.lowered())

    # Choosing what is free

    def free(
        self,
        pattern: str,
        *,
        name: str | None = None,
        start: float | None = None,
        unit: str | None = None,
        bounds: Bounds = (None, None),
        transform: str = "none",
        prior: Prior | None = None,
    ) -> Parameters:
        """Free every number that a pattern means, each by itself; with a `name`, all as one.

        start (by default the current value), bounds (None: open) and prior (mean, std) are physical
        values. transform: "none", "positive" (theta = log value) or "interval" (logistic).
        """
        found = self._find(pattern)
        alone = [(a.qualified if "/" in pattern else a.name, [a]) for a in found]
        new = []
        for label, group in alone if name is None else [(name, found)]:
            units = list(dict.fromkeys(a.unit for a in group))
            if unit is None and len(units) > 1:
                raise MechidError(
                    f"Parameter '{label}' would tie numbers of different units ({choices(units)}): "
                    "give unit=…, or free them apart."
                )
            if unit is not None and len(units) == 1 and unit != units[0]:
                own = f"is {units[0]}" if units[0] else "is none"
                raise MechidError(f"The unit of '{label}' {own}, not {unit!r}: values are in SI.")
            moves = tuple(Move(a, 1.0) for a in group)
            value = self._agreed(label, moves) if start is None else start
            text = units[0] if unit is None else unit
            new.append(Parameter(label, text, value, bounds, transform, prior, moves))
        return self._with(new)

    def tie(
        self,
        name: str,
        maps: Mapping[str, Map],
        *,
        start: float | None = None,
        unit: str = "",
        bounds: Bounds = (None, None),
        transform: str = "none",
        prior: Prior | None = None,
    ) -> Parameters:
        """One parameter that moves many numbers, each by a factor or a jax.numpy function of it."""
        if not isinstance(maps, Mapping) or not maps:
            raise MechidError(
                f"Parameter '{name}' moves nothing: give addresses with factors, {{'elbow.damping': 1.0}}."
            )
        found = [(a, m) for pattern, m in maps.items() for a in self._find(pattern)]
        moves = tuple(Move(a, checked_map(name, a, m)) for a, m in found)
        value = self._agreed(name, moves) if start is None else start
        new = Parameter(name, unit, value, bounds, transform, prior, moves)
        for move in moves:
            finite(move(new.start), (), f"'{move.address.name}' at the start of parameter '{name}'")
        return self._with([new])

    def free_inertia(self, body: str) -> Parameters:
        """Free a body's ten inertial numbers so that every theta is physically consistent.

        Ten log-Cholesky numbers of its pseudo-inertia; `physical` reports mass, com and inertia.
        """
        names = [b.name for b in self.mechanism.bodies]
        if body not in names:
            raise unknown("body", body, names)
        own = [a for a in self.lowering.layout.addresses if a.body == names.index(body)]
        ten = [a for a in own if a.chart != "linear"]
        start = inertia.log_cholesky_from_linear(self.lowering.values[[a.index for a in ten]], body)
        return self._with(
            Parameter(f"{body}.{k}", unit, x, moves=(Move(a, 1.0),), body=body)
            for k, unit, x, a in zip(LOG_CHOLESKY, ["1"] * 4 + ["m"] * 6, start, ten, strict=True)
        )

    def limit(self, factors: Mapping[str, float], *, upper: float) -> Parameters:
        """Σ factor·value ≤ upper, over the physical values of parameters by name."""
        if not isinstance(factors, Mapping):
            raise MechidError(f"A limit is on factors by name, {{'kappa': 1.0}}, not on {factors!r}.")
        for name in factors:
            if name not in self.names:
                raise unknown("parameter", name, self.names)
        what = f"the limit on {choices(factors)}"
        row = {name: float(finite(c, (), f"Each factor of {what}")) for name, c in factors.items()}
        if not any(row.values()):
            raise MechidError("A limit needs a parameter with a factor that is not zero.")
        bound = float(finite(upper, (), f"The upper side of {what}"))
        total = sum(p.start * row.get(p.name, 0.0) for p in self.entries)
        if total > bound + 1e-9 * max(1.0, abs(bound)):
            raise MechidError(f"The start violates {what}: {total:g} is more than {bound:g}.")
        return replace(self, limits=(*self.limits, (row, bound)))

    def _find(self, pattern: str) -> list[Address]:
        if not isinstance(pattern, str):
            raise MechidError(f"An address is a text like 'elbow.damping', not {pattern!r}.")
        return self.lowering.layout.find(pattern)

    def _agreed(self, name: str, moves: Sequence[Move]) -> float:
        """A parameter's current value: what all numbers that it moves agree on."""
        physical, linear = self._base(range(len(self.mechanism.bodies))), self.lowering.values
        now = [float((physical if a.chart == "physical" else linear)[a.index]) for a, _ in moves]
        implied = [x / m.map for x, m in zip(now, moves, strict=True) if not callable(m.map)]
        if not implied:
            raise MechidError(f"Parameter '{name}' moves numbers by functions only: give start=….")
        if not np.allclose([float(m(implied[0])) for m in moves], now, rtol=1e-9, atol=1e-15):
            texts = [f"{m.address.name} = {x:.6g}" for m, x in zip(moves, now, strict=True)]
            raise MechidError(
                f"The current values of what parameter '{name}' ties do not agree "
                f"({choices(texts)}): give start=…."
            )
        return implied[0]

    def _with(self, new: Iterable[Parameter]) -> Parameters:
        """This set and more parameters, if no number is moved twice and no body in two charts."""
        larger = replace(self, entries=(*self.entries, *new))
        chart: dict[int, Address] = {}
        owner: dict[int, str] = {}
        for p, a in larger._moved():
            if a.chart and not p.body and chart.setdefault(a.body, a).chart != a.chart:
                both = f"'{chart[a.body].name}' and '{a.name}'"
                raise MechidError(
                    f"{both} describe one body in two ways: free its mass, com and inertia, or its "
                    "mass, first_moment and origin_inertia."
                )
            by = f"free_inertia('{p.body}')" if p.body else f"parameter '{p.name}'"
            if a.index in owner:
                both = f"{owner[a.index]} and by {by}"
                raise MechidError(f"Number '{a.name}' would be moved twice: by {both}.")
            owner[a.index] = by
        reported = [p.moves[0].address.name for p in larger.entries if p.body]
        for name, count in Counter([*larger.names, *reported]).items():
            if count > 1:
                raise MechidError(f"There is a parameter '{name}' already: names must be unique.")
        return larger

    def _moved(self) -> Iterator[tuple[Parameter, Address]]:
        return ((p, m.address) for p in self.entries for m in p.moves)

    # What a solver sees

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(p.name for p in self.entries)

    @property
    def units(self) -> tuple[str, ...]:
        return tuple(p.unit for p in self.entries)

    @property
    def size(self) -> int:
        return len(self.entries)

    @property
    def theta0(self) -> Array:
        """theta at the start."""
        return np.array([p.theta(p.start) for p in self.entries], float)

    def bounds(self) -> tuple[Array, Array]:
        """Lower and upper bounds of the physical values, ±∞ where open."""
        return _columns(p.bounds for p in self.entries)

    @property
    def bounds_theta(self) -> tuple[Array, Array]:
        """Lower and upper bounds of theta, ±∞ where open."""
        return _columns([p.theta(b) for b in p.bounds] for p in self.entries)

    @property
    def priors(self) -> tuple[Array, Array]:
        """Means and standard deviations of the physical values; start and ∞ without a prior."""
        return _columns(p.prior or (p.start, math.inf) for p in self.entries)

    @property
    def inequalities(self) -> tuple[Array, Array]:
        """A and upper of A @ numbers(theta) ≤ upper, a row a limit."""
        rows = [[row.get(name, 0.0) for name in self.names] for row, _ in self.limits]
        uppers = np.array([upper for _, upper in self.limits], float)
        return np.array(rows, float).reshape(len(rows), self.size), uppers

    # From theta to numbers

    def numbers(self, theta: ArrayLike) -> jax.Array | Array:
        """The physical value of each parameter; on the host unless traced."""
        if not isinstance(theta, Tracer):
            return self.numbers_with_slopes(self._checked(numeric(theta, "theta")))[0]
        x = self._vector(theta)
        kinds = np.array([TRANSFORMS.index(p.transform) for p in self.entries])
        positive, interval = np.flatnonzero(kinds == 1), np.flatnonzero(kinds == 2)
        lower, upper = (b[interval] for b in self.bounds())
        between = lower + (upper - lower) * jax.nn.sigmoid(x[interval])
        return x.at[positive].set(jnp.exp(x[positive])).at[interval].set(between)

    def numbers_with_slopes(self, theta: ArrayLike) -> tuple[Array, Array]:
        """The physical value of each parameter and its derivative by its own theta, on the host."""
        pairs = [p.value(float(x)) for p, x in zip(self.entries, np.asarray(theta), strict=True)]
        return _columns(pairs)

    def values(self, theta: ArrayLike) -> jax.Array:
        """The mechanism's vector of values, differentiable in theta."""
        return self._programs[0](self._vector(theta))

    def tangent(self, theta: ArrayLike) -> jax.Array:
        """∂values/∂theta."""
        return self._programs[1](self._vector(theta))

    # Inputs that act late

    @cached_property
    def late_inputs(self) -> tuple[str, ...]:
        """Inputs whose delay is free."""
        moved = {a.index for _, a in self._moved()}
        at = self.lowering.layout.blocks.get("delay", (0, 0, 1))[0]
        return tuple(name for i, name in enumerate(self.mechanism.input_names) if at + i in moved)

    def delays(self, theta: ArrayLike) -> tuple[Array, Array]:
        """How late each input acts, s, and ∂/∂theta (inputs, parameters), on the host."""
        at, count, _ = self.lowering.layout.blocks.get("delay", (0, 0, 1))
        chosen = slice(at, at + count)
        return np.asarray(self.values(theta))[chosen], np.asarray(self.tangent(theta))[chosen]

    def __call__(self, theta: ArrayLike) -> Model:
        """The model for a theta: `bind`."""
        return self.bind(theta)

    def bind(self, theta: ArrayLike) -> Model:
        """The model for a theta, in traced functions too.

        Traced, only what the parameters change depends on theta: the rest is known while compiling, so that nothing
        is differentiated by it.
        """
        model = self.lowering.model(self.values(theta))
        if not isinstance(theta, Tracer):
            return model
        leaves, structure = jax.tree.flatten(model)
        same = zip(leaves, *self._still, strict=True)
        return jax.tree.unflatten(structure, [known if still else x for x, still, known in same])

    def physical_numbers(self, theta: ArrayLike) -> jax.Array | Array:
        """The numbers of `physical` in its order, differentiable in theta."""
        x = self.numbers(theta)
        if not self._ten.size:
            return x
        x = jnp.asarray(x)
        linear = inertia.linear_from_log_cholesky(x[self._ten])
        return x.at[self._ten].set(inertia.physical_from_linear(linear))

    def physical(self, theta: ArrayLike) -> dict[str, Quantity]:
        """What a person reads, by name; for a body of `free_inertia` mass, com and inertia."""
        reported = [p.moves[0].address if p.body else p for p in self.entries]
        numbers = np.asarray(self.physical_numbers(theta)).tolist()
        return {r.name: Quantity(x, r.unit) for r, x in zip(reported, numbers, strict=True)}

    def apply(self, theta: ArrayLike) -> Any:
        """The mechanism with the numbers of theta in its parts (tilts turn the rotations)."""
        theta = finite(theta, (self.size,), "theta")
        layout, values = self.lowering.layout, np.array(self.values(theta))
        held = layout.block(np.array(self._held(self.numbers(theta))), "rigid")
        linear = layout.block(values, "rigid")
        tens = {}
        for b in sorted({a.body for _, a in self._moved()} - {-1}):
            if linear[b, 0] == 0.0 and linear[b, 1:4].any():
                name = self.mechanism.bodies[b].name
                raise MechidError(f"Body '{name}' has a first moment but no mass to write it with.")
            tens[b] = held[b] if b in self._physical else inertia.physical_from_linear(linear[b])
        return self.mechanism.renewed(layout, values, tens)

    @cached_property
    def _still(self) -> tuple[list[bool], list[Any]]:
        """For each leaf of the model whether no parameter changes it, and its value.

        Found at two points off the start, where no derivative vanishes by chance.
        """
        rng = np.random.default_rng(0)
        size = 0.01 + 0.01 * np.abs(self.theta0)
        with jax.ensure_compile_time_eval():
            slopes = []
            for x in (self.theta0 + size * rng.uniform(0.5, 1.0, self.size) for _ in range(2)):
                slopes.append(self.lowering.tangent(*map(np.asarray, (self.values(x), self.tangent(x)))))
            known = jax.tree.leaves(self.lowering.model(np.asarray(self.values(self.theta0))))
        moving = iter([any(np.any(np.asarray(s)) for s in both) for both in zip(*slopes, strict=True)])
        return [not (np.asarray(x).dtype.kind == "f" and next(moving)) for x in known], known

    def _vector(self, theta: Any) -> jax.Array:
        """theta as a vector of the right length, traced or not."""
        return self._checked(
            jnp.asarray(theta if isinstance(theta, jax.Array) else numeric(theta, "theta"), float)
        )

    def _checked(self, x: Any) -> Any:
        if x.shape != (self.size,):
            raise MechidError(f"theta must have shape ({self.size},), not {x.shape}.")
        return x

    @cached_property
    def _programs(self) -> tuple[Callable[..., jax.Array], Callable[..., jax.Array]]:
        """`values` and `tangent`, which run inside other programs too: no compiler options."""
        return jax.jit(self._values), jax.jit(jax.jacfwd(self._values))

    def _values(self, theta: jax.Array) -> jax.Array:
        x = jnp.asarray(self.numbers(theta))
        vector = self._held(x)
        if self._physical:
            first = self.lowering.layout.blocks["rigid"][0]
            at = first + 10 * np.array(self._physical)[:, None] + np.arange(10)
            vector = vector.at[at].set(inertia.linear_from_physical(vector[at]))
        if self._ten.size:
            places = [p.moves[0].address.index for p in self.entries if p.body]
            linear = inertia.linear_from_log_cholesky(x[self._ten])
            vector = vector.at[np.reshape(places, (-1, 10))].set(linear)
        return vector

    def _held(self, x: ArrayLike) -> jax.Array:
        """The vector of values, each body in the chart in which it is moved: one scatter."""
        factors = [(i, m) for i, m in self._moves if not callable(m.map)]
        functions = [(i, m) for i, m in self._moves if callable(m.map)]
        x, source = jnp.asarray(x), np.array([i for i, _ in factors], int)
        moved = np.array([m.map for _, m in factors], float) * x[source]
        results = jnp.concatenate([moved, *(jnp.reshape(m(x[i]), 1) for i, m in functions)])
        target = np.array([m.address.index for _, m in factors + functions], int)
        return jnp.asarray(self._base(self._physical)).at[target].set(results)

    def _base(self, bodies: Iterable[int]) -> Array:
        """The mechanism's own vector of values with some bodies in the physical chart."""
        vector = self.lowering.values.copy()
        rows = self.lowering.layout.block(vector, "rigid")
        for b in bodies:
            rows[b] = rigid_numbers(self.mechanism.bodies[b])
        return vector

    @cached_property
    def _moves(self) -> list[tuple[int, Move]]:
        return [(i, m) for i, p in enumerate(self.entries) if not p.body for m in p.moves]

    @cached_property
    def _physical(self) -> list[int]:
        """Bodies that are moved in the physical chart."""
        linear = {a.body for _, (a, _) in self._moves if a.chart == "linear"}
        return sorted({a.body for _, (a, _) in self._moves} - linear - {-1})

    @cached_property
    def _ten(self) -> np.ndarray:
        """(k, 10) places of the bodies of `free_inertia` among the parameters."""
        return np.array([i for i, p in enumerate(self.entries) if p.body], int).reshape(-1, 10)

    def __repr__(self) -> str:
        table = [("name", "start", "unit", "bounds", "transform", "moves")]
        for p in self.entries:
            how = "log-Cholesky" if p.body else p.transform
            moves = f"all of {p.body}" if p.body else choices(map(str, p.moves), 6)
            table.append((p.name, f"{p.start:.6g}", p.unit, p.range_text, how, moves))
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in table]
        for row, upper in self.limits:
            lines.append(f"limit: {' '.join(f'{c:+g}·{n}' for n, c in row.items())} ≤ {upper:g}")
        return "\n".join([f"{self.mechanism.name}: {self.size} free parameters", *lines])


def _columns(pairs: Iterable[Any]) -> tuple[Array, Array]:
    first, second = np.array(list(pairs), float).reshape(-1, 2).T
    return first, second
