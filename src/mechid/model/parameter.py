"""One free number of a mechanism: its start, bounds, transform, prior, and what it moves. SI units."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np

from mechid.errors import MechidError, choices
from mechid.model.addresses import Address
from mechid.model.geometry import finite

TRANSFORMS = ("none", "positive", "interval")

Map = float | Callable[[Any], Any]
Bounds = tuple[float | None, float | None]
Prior = tuple[float, float]


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

    def __call__(self, value: Any) -> Any:
        return self.map(value) if callable(self.map) else self.map * value

    def __str__(self) -> str:
        name = self.address.name
        return f"f({name})" if callable(self.map) else f"{self.map:g}·{name}".removeprefix("1·")


@dataclass(frozen=True, eq=False)
class Parameter:
    """One free number. Its start, bounds and prior are physical values, not theta."""

    name: str
    unit: str
    start: float
    bounds: Any = (None, None)
    """lower and upper; an open side is given as None and kept as ±∞"""
    transform: str = "none"
    prior: Prior | None = None
    """mean and standard deviation"""
    moves: tuple[Move, ...] = ()
    body: str = ""
    """for one of the ten of `free_inertia`; `moves` then names the number reported in its place"""

    def __post_init__(self) -> None:
        who = f"parameter '{self.name}'"
        if not isinstance(self.name, str) or not self.name.strip():
            raise MechidError(f"{self.name!r} is not a name for a parameter: use a text.")
        if self.transform not in TRANSFORMS:
            valid = choices(TRANSFORMS)
            raise MechidError(f"The transform of {who} is {self.transform!r}; valid: {valid}.")
        object.__setattr__(self, "bounds", _bounds(who, self.bounds, self.transform))
        if self.prior is not None:
            mean, std = finite(self.prior, (2,), f"The prior (mean, std) of {who}").tolist()
            if std <= 0.0:
                raise MechidError(f"The prior of {who} has std {std:g}; it must be > 0.")
            object.__setattr__(self, "prior", (mean, std))
        start = float(finite(self.start, (), f"The start of {who}"))
        object.__setattr__(self, "start", start)
        if not (self.bounds[0] <= start <= self.bounds[1] and math.isfinite(self.theta(start))):
            raise MechidError(
                f"The start of {who} is {Quantity(start, self.unit)}; with transform "
                f"'{self.transform}' it must lie inside {self.range_text}."
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

    def value(self, theta: float) -> tuple[float, float]:
        """The physical value at a solver's coordinate, and its derivative."""
        if self.transform == "positive":
            x = math.exp(theta) if theta < 709.0 else math.inf
            return x, x
        if self.transform == "interval":
            lower, upper = self.bounds
            part = 0.5 * (1.0 + float(np.tanh(0.5 * theta)))
            return lower + (upper - lower) * part, (upper - lower) * part * (1.0 - part)
        return theta, 1.0

    @property
    def range_text(self) -> str:
        return " … ".join(f"{b:g}".replace("inf", "∞").replace("-", "−") for b in self.bounds)


def _bounds(who: str, bounds: Any, transform: str) -> tuple[float, float]:
    least = 0.0 if transform == "positive" else -math.inf
    try:
        given = [b if b is None else float(b) for b in bounds]
        lower, upper = (x if b is None else b for b, x in zip(given, (least, math.inf), strict=True))
    except (TypeError, ValueError):
        raise MechidError(f"The bounds of {who} must be a pair, not {bounds!r}.") from None
    if transform == "interval" and not (math.isfinite(lower) and math.isfinite(upper)):
        raise MechidError(f"The transform 'interval' of {who} needs both bounds, not {bounds!r}.")
    if not least <= lower < upper:
        rule = "0 ≤ lower < upper" if transform == "positive" else "lower < upper"
        raise MechidError(f"The bounds of {who} must be numbers with {rule}, not {bounds!r}.")
    return lower, upper


def checked_map(name: str, address: Address, map: Map) -> Map:
    what = f"of '{address.name}' in parameter '{name}'"
    if not callable(map):
        factor = float(finite(map, (), f"The factor {what}"))
        if factor == 0.0:
            raise MechidError(f"The factor {what} is zero.")
        return factor
    try:
        shape = jax.eval_shape(map, jax.ShapeDtypeStruct((), float)).shape
    except Exception as error:
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        raise MechidError(f"The function {what} cannot be traced by JAX: {reason}.") from error
    if shape != ():
        raise MechidError(f"The function {what} must give one number, not shape {shape}.")
    return map
