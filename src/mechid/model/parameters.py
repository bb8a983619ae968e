"""`Parameters`: which numbers of a mechanism are free, and how a solver's vector theta moves them.

    free = (
        Parameters(arm)
        .free("theta*.stiffness", name="kappa", start=10.0, bounds=(0.0, None))
        .free("*.damping", transform="positive")
        .tie("length", {"elbow.origin.y": 1.0, "upper.inertia.xx": lambda L: 0.3 * L**2}, unit="m")
        .free_inertia("hand")
    )

theta → one number a parameter (transforms) → the vector of values (factors and functions of these numbers, then
each body's chart) → a model. A body whose mass, com or inertia is free keeps its other physical numbers: its
mass moves neither its centre of mass nor its inertia about it. SI units.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from mechid.errors import MechidError, choices, unknown
from mechid.model.addresses import TABLES, Address
from mechid.model.geometry import Array, finite, rotation_about
from mechid.model.inertia import (
    linear_from_log_cholesky,
    linear_from_physical,
    log_cholesky_from_linear,
    physical_from_linear,
    symmetric,
)
from mechid.model.mechanism import Mechanism
from mechid.model.parts import Coupling, Custom, rigid_numbers

if TYPE_CHECKING:
    from mechid.dynamics.lowering import Lowering
    from mechid.dynamics.model import TreeModel

TRANSFORMS = ("none", "positive", "interval")
LOG_CHOLESKY = ("alpha", "d1", "d2", "d3", "s12", "s23", "s13", "t1", "t2", "t3")
_KINDS: dict[type, str] = {part: kind for kind, part in TABLES.items()} | {
    Coupling: "coupling",
    Custom: "custom",
}

Bounds = Sequence[float | None]
Map = float | Callable[[Any], Any]


@dataclass(frozen=True)
class Quantity:
    """A number with its unit."""

    value: float
    unit: str

    def __str__(self) -> str:
        return f"{self.value:.6g} {self.unit}".rstrip()


class Move(NamedTuple):
    """A number of the mechanism that a parameter sets: to map·value, or to map(value)."""

    address: Address
    map: Map


@dataclass(frozen=True, eq=False)
class Parameter:
    """One free number. Its start, bounds and prior are physical values, not theta."""

    name: str
    unit: str
    start: float
    bounds: Any = (None, None)
    """lower and upper; open sides are given as None and kept as ±∞"""
    transform: str = "none"
    prior: tuple[float, float] | None = None
    """mean and standard deviation"""
    moves: tuple[Move, ...] = ()
    inertia_of: int = -1
    """the body, for one of the ten numbers of `free_inertia`"""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise MechidError(f"{self.name!r} is not a name for a parameter: use a text.")
        if self.transform not in TRANSFORMS:
            raise MechidError(
                f"Parameter '{self.name}' has the unknown transform {self.transform!r}; "
                f"valid: {choices(TRANSFORMS)}."
            )
        object.__setattr__(self, "bounds", _bounds(self.name, self.bounds, self.transform))
        if self.prior is not None:
            mean, std = finite(self.prior, (2,), f"The prior (mean, std) of parameter '{self.name}'")
            if std <= 0.0:
                raise MechidError(f"The prior of parameter '{self.name}' has std {std:g}, not > 0.")
            object.__setattr__(self, "prior", (float(mean), float(std)))
        start = float(finite(self.start, (), f"The start of parameter '{self.name}'"))
        object.__setattr__(self, "start", start)
        lower, upper = self.bounds
        if not (lower <= start <= upper and math.isfinite(self.theta(start))):
            raise MechidError(
                f"The start of parameter '{self.name}' is {Quantity(start, self.unit)}; with transform "
                f"'{self.transform}' it must lie inside its bounds {self.range_text}."
            )

    def theta(self, value: float) -> float:
        """The solver's coordinate of a physical value, ±∞ at the ends of a transform."""
        lower, upper = self.bounds
        with np.errstate(divide="ignore", invalid="ignore"):
            if self.transform == "positive":
                return float(np.log(value))
            if self.transform == "interval":
                return float(np.log(value - lower) - np.log(upper - value))
        return value

    @property
    def range_text(self) -> str:
        return " … ".join(f"{b:g}".replace("inf", "∞").replace("-", "−") for b in self.bounds)


def _bounds(name: str, bounds: Any, transform: str) -> tuple[float, float]:
    try:
        pair = [e if b is None else float(b) for b, e in zip(bounds, (-np.inf, np.inf), strict=True)]
    except (TypeError, ValueError):
        raise MechidError(
            f"The bounds of parameter '{name}' must be two numbers or None, not {bounds!r}."
        ) from None
    if transform == "positive" and bounds[0] is None:
        pair[0] = 0.0
    lower, upper = pair
    if not lower < upper:
        raise MechidError(
            f"The bounds of parameter '{name}' must be numbers with lower < upper, not {bounds!r}."
        )
    if transform == "positive" and lower < 0.0:
        raise MechidError(f"Parameter '{name}' is positive, but its lower bound is {lower:g}.")
    if transform == "interval" and not np.all(np.isfinite(pair)):
        raise MechidError(f"Parameter '{name}' with transform 'interval' needs both bounds.")
    return lower, upper


@dataclass(frozen=True, eq=False, repr=False)
class Parameters:
    """The free numbers of a mechanism. Immutable; every method that adds returns a new set."""

    mechanism: Mechanism
    entries: tuple[Parameter, ...] = field(default=(), kw_only=True)
    limits: tuple[tuple[dict[str, float], float], ...] = field(default=(), kw_only=True)
    """Σ coefficient·value ≤ upper"""
    _lowering: Lowering | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        from mechid.dynamics.lowering import Lowering

        if not isinstance(self.mechanism, Mechanism):
            raise MechidError(f"Parameters are those of a Mechanism, not of {self.mechanism!r}.")
        if self._lowering is None:
            object.__setattr__(self, "_lowering", Lowering(self.mechanism))

    @property
    def lowering(self) -> Lowering:
        """The mechanism's topology, layout and own values, worked out once."""
        assert self._lowering is not None
        return self._lowering

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
        prior: tuple[float, float] | None = None,
    ) -> Parameters:
        """Free every number that a pattern means: each by itself, or with a `name` all as one parameter.

        start (by default the current value), bounds (None: open) and prior (mean, standard deviation) are
        physical values. transform: "none", "positive" (theta = log value) or "interval" (logistic).
        """
        found = self._find(pattern)
        alone = [(a.qualified if "/" in pattern else a.name, [a]) for a in found]
        new = []
        for label, group in alone if name is None else [(name, found)]:
            units = list(dict.fromkeys(a.unit for a in group))
            if unit is None and len(units) > 1:
                raise MechidError(
                    f"Parameter '{label}' would tie numbers of different units ({choices(units)}): give "
                    "unit=…, or free them apart."
                )
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
        prior: tuple[float, float] | None = None,
    ) -> Parameters:
        """One parameter that moves many numbers, each by a factor or a function (in jax.numpy) of it."""
        if not maps:
            raise MechidError(f"Parameter '{name}' moves nothing: give addresses with their factors.")
        moves = tuple(
            Move(a, _checked_map(name, a.name, m)) for k, m in maps.items() for a in self._find(k)
        )
        value = self._agreed(name, moves) if start is None else start
        new = Parameter(name, unit, value, bounds, transform, prior, moves)
        for address, result in zip((m.address.name for m in moves), _moved(moves, new.start), strict=True):
            finite(result, (), f"What parameter '{name}' gives '{address}' at its start")
        return self._with([new])

    def free_inertia(self, body: str) -> Parameters:
        """Free a body's ten inertial numbers so that every theta is physically consistent.

        Ten log-Cholesky numbers of its pseudo-inertia; `physical` reports mass, com and inertia.
        """
        names = [b.name for b in self.mechanism.bodies]
        if body not in names:
            raise unknown("body", body, names)
        number = names.index(body)
        linear = self.lowering.layout.block(self.lowering.values, "rigid")[number]
        start = log_cholesky_from_linear(linear, body)
        return self._with(
            Parameter(f"{body}.{k}", "m" if k[0] in "st" else "1", x, inertia_of=number)
            for k, x in zip(LOG_CHOLESKY, start, strict=True)
        )

    def limit(self, coefficients: Mapping[str, float], *, upper: float) -> Parameters:
        """Σ coefficient·value ≤ upper, over the physical values of parameters by name."""
        for name in coefficients:
            if name not in self.names:
                raise unknown("parameter", name, self.names)
        what = f"the limit on {choices(coefficients)}"
        numbers = {n: float(finite(c, (), f"Each factor of {what}")) for n, c in coefficients.items()}
        if not any(numbers.values()):
            raise MechidError("A limit needs at least one parameter with a factor that is not zero.")
        bound = float(finite(upper, (), f"The upper side of {what}"))
        total = sum(p.start * numbers.get(p.name, 0.0) for p in self.entries)
        if total > bound + 1e-9 * max(1.0, abs(bound)):
            raise MechidError(f"The start violates {what}: {total:g} is more than {bound:g}.")
        return dataclasses.replace(self, limits=(*self.limits, (numbers, bound)))

    def _find(self, pattern: str) -> list[Address]:
        if not isinstance(pattern, str):
            raise MechidError(f"An address is a text like 'elbow.damping', not {pattern!r}.")
        return self.lowering.layout.find(pattern)

    def _agreed(self, name: str, moves: Sequence[Move]) -> float:
        """The current value of a parameter: what all numbers that it moves agree on."""
        bases = {"physical": self._base(range(len(self.mechanism.bodies)))}
        now = [float(bases.get(a.chart, self.lowering.values)[a.index]) for a, _ in moves]
        implied = [x / m.map for x, m in zip(now, moves, strict=True) if not callable(m.map)]
        if not implied:
            raise MechidError(f"Parameter '{name}' moves numbers by functions only: give start=….")
        if not np.allclose(_moved(moves, implied[0]), now, rtol=1e-9, atol=1e-15):
            pairs = zip(moves, now, strict=True)
            texts = [f"{m.address.name} is {Quantity(x, m.address.unit)}" for m, x in pairs]
            raise MechidError(
                f"What parameter '{name}' ties does not agree on one current value "
                f"({choices(texts)}): give start=…."
            )
        return implied[0]

    def _with(self, new: Iterable[Parameter]) -> Parameters:
        """This set and more parameters, if none moves what another moves."""
        larger = dataclasses.replace(self, entries=(*self.entries, *new))
        ...
