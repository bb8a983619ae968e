"""What a person gives of a symbolic mechanism, read: names, units, values, forces, constraints, outputs."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mechid.errors import MechidError, choices, unknown
from mechid.model.geometry import finite
from mechid.model.symbolic.expressions import TIME, Expression, Symbols, name_of, named, sm

FORCE_UNITS = {"rad": "N·m", "m": "N"}
SI = ("kg", "m", "s", "A", "K", "rad", "N", "J", "W", "Pa", "Hz", "V", "C", "F", "H", "T", "Wb", "Ω", "ohm")
"""what units are products of"""


@dataclass(frozen=True)
class SymbolicCoordinate:
    """A generalized coordinate; one in rad turns, so that full turns do not count in what sensors compare."""

    name: str
    unit: str
    lower: float = -np.inf
    upper: float = np.inf
    max_rate: float = np.inf
    max_force: float = np.inf

    @property
    def revolute(self) -> bool:
        return self.unit == "rad"

    @property
    def force_unit(self) -> str:
        return FORCE_UNITS.get(self.unit, "")


@dataclass(frozen=True)
class Named:
    """A parameter with its value, or an expression with its unit."""

    name: str
    unit: str
    value: Any
    constant: bool = False
    """of a parameter: known, and not listed among what is to be found"""


def parts_of(
    name: Any, coordinates: Any, parameters: Any, inputs: Any, constants: Any = None
) -> dict[str, Any]:
    if not isinstance(name, str) or not name.strip():
        raise MechidError(f"A mechanism needs a name, not {name!r}.")
    given = (
        (coordinates, "Coordinate"),
        (parameters, "Parameter"),
        (constants, "Constant"),
        (inputs, "Input"),
    )
    q, p, c, u = (named(x, what) for x, what in given)
    seen: dict[str, str] = {}
    spelled: dict[str, str] = {}
    for kind, names in (("coordinate", q), ("parameter", p), ("constant", c), ("input", u)):
        for n in names:
            if n in seen:
                article = "an" if kind == "input" else "a"
                raise MechidError(f"'{n}' is a {seen[n]} and {article} {kind}: give each symbol one meaning.")
            seen[n] = kind
            # letters that stand for the same one, as φ and ϕ do, are one name in a formula
            other = spelled.setdefault(unicodedata.normalize("NFKC", n), n)
            if other != n:
                raise MechidError(f"'{other}' and '{n}' are one name in a formula: give one of them another.")
    return {
        "name": name,
        "coordinates": tuple(SymbolicCoordinate(n, _unit(unit, n)) for n, unit in q.items()),
        "parameters": (
            *(_parameter(n, value) for n, value in p.items()),
            *(replace(_parameter(n, value), constant=True) for n, value in c.items()),
        ),
        "inputs": tuple(Named(n, _unit(unit, n), None) for n, unit in u.items()),
        "symbols": Symbols(tuple(q), (*p, *c), tuple(u)),
    }


def _unit(given: Any, name: str) -> str:
    if given is None:
        return ""
    if not isinstance(given, str):
        raise MechidError(f"The unit of '{name}' must be a text, not {given!r}.")
    for factor in filter(None, re.split(r"[·*./()×\s]+", given.replace("**", "^"))):
        symbol = re.sub(r"\^?-?[\d⁰¹²³⁴⁵⁶⁷⁸⁹⁻½]+$", "", factor)
        if symbol and symbol not in SI:
            raise MechidError(
                f"The unit '{given}' of '{name}' has '{symbol}' in it; values here are in SI: "
                f"use {choices(SI, 20)}, and give the value in these."
            )
    return given


def _parameter(name: str, given: Any) -> Named:
    value, unit = given if isinstance(given, list | tuple) and len(given) == 2 else (given, "")
    if value is None:
        raise MechidError(
            f"Parameter '{name}' has no value: give a number, a first guess where it is to be found."
        )
    if isinstance(value, bool | str):
        raise MechidError(f"The value of parameter '{name}' must be a number, not {value!r}.")
    return Named(name, _unit(unit, name), float(finite(value, (), f"The value of parameter '{name}'")))


def forces_of(s: Symbols, given: Any) -> tuple[Expression, ...]:
    if given is None:
        return (sm.Integer(0),) * len(s.q)
    if not isinstance(given, Mapping):
        given = dict(zip(s.coordinates, _sequence(given, len(s.q), "forces"), strict=True))
    found = dict.fromkeys(s.coordinates, sm.Integer(0))
    for key, value in given.items():
        name = name_of(key, "A coordinate")
        if name not in found:
            raise unknown("coordinate", name, found)
        found[name] = s.expression(value, f"the force on '{name}'")
        refuse_within(found[name], s.a, f"the force on '{name}'", "it acts on them")
    return tuple(found.values())


def _sequence(given: Any, count: int, what: str) -> list[Any]:
    try:
        listed = [] if isinstance(given, str) else list(given)
    except TypeError:
        listed = []
    if len(listed) != count:
        raise MechidError(f"The {what} must be one for each of {count} coordinates, not {given!r}.")
    return listed


def more_of(s: Symbols, constraints: Any, rolling: Any, outputs: Any) -> dict[str, Any]:
    closed = tuple(_vanishing(s, constraints, "constraint"))
    for c in closed:
        refuse_within(c.value, (*s.v, *s.a, *s.u, TIME), f"constraint '{c.name}'", "it is one on coordinates")
        if not any(c.value.has(q) for q in s.q):
            raise MechidError(f"Constraint '{c.name}' holds no coordinate.")
    rolled = tuple(_vanishing(s, rolling, "rolling constraint"))
    for c in rolled:
        refuse_within(c.value, (*s.a, *s.u), f"rolling constraint '{c.name}'", "it is one on rates")
        if not any(c.value.has(v) for v in s.v):
            raise MechidError(f"Rolling constraint '{c.name}' holds no rate: give it as a constraint.")
        if any(c.value.diff(v).has(*s.v) for v in s.v):
            raise MechidError(f"Rolling constraint '{c.name}' is not linear in the rates.")
    shown = []
    for name, given in named(outputs, "Output").items():
        expression, unit = given if isinstance(given, list | tuple) and len(given) == 2 else (given, "")
        value = s.expression(expression, f"output '{name}'")
        refuse_within(value, s.a, f"output '{name}'", "sensors see coordinates, rates and inputs")
        shown.append(Named(name, _unit(unit, name), value))
    return {"constraints": closed, "rolling": rolled, "outputs": tuple(shown)}


def _vanishing(s: Symbols, given: Any, what: str) -> list[Named]:
    if given is None:
        return []
    if not isinstance(given, Mapping):
        listed = list(given) if isinstance(given, list | tuple | sm.MatrixBase) else [given]
        given = {f"{what.split()[0]}{i + 1}": e for i, e in enumerate(listed)}
    return [Named(str(n), "", equation_of(s, e, f"{what} '{n}'")) for n, e in given.items()]


def equation_of(s: Symbols, given: Any, what: str) -> Expression:
    """Left minus right side."""
    if isinstance(given, sm.Equality):
        return s.expression(given.lhs, what) - s.expression(given.rhs, what)
    if isinstance(given, str) and "=" in given:
        left, _, right = given.partition("=")
        if "=" in right:
            raise MechidError(f"{what[0].upper()}{what[1:]}, '{given}', has more than one = sign.")
        return s.expression(left, what) - s.expression(right, what)
    return s.expression(given, what)


def refuse_within(found: Expression, symbols: Sequence[Expression], what: str, why: str) -> None:
    for x in symbols:
        if x in found.free_symbols:
            raise MechidError(f"{what[0].upper()}{what[1:]} holds '{x}': {why}.")


def rate_of(expression: Expression, s: Symbols) -> Expression:
    """d/dt along a motion."""
    total = expression.diff(TIME)
    for q, v, a in zip(s.q, s.v, s.a, strict=True):
        total += expression.diff(q) * v + expression.diff(v) * a
    return total
