"""Every number of a mechanism by part and quantity, and where two mechanisms differ."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mechid.errors import MechidError
from mechid.model.addresses import TABLES
from mechid.model.mechanism import Mechanism
from mechid.model.parts import Coupling, Custom, DryFriction, Friction, quantity_unit
from mechid.model.xmltext import Element, Pen

SAME, SAME_TURNED, BACK = 1e-15, 1e-14, 1e-12
"""relative: numbers, and those that rotations act on, that count as unchanged; how near the result must come"""


@dataclass(frozen=True)
class Change:
    """One number that was written."""

    part: str
    """what it belongs to: body 'forearm'"""
    quantity: str
    before: float
    after: float
    unit: str

    def __str__(self) -> str:
        texts = [f"{x:.6g}" for x in (self.before, self.after)]
        if texts[0] == texts[1]:
            texts = [repr(x) for x in (self.before, self.after)]
        if self.quantity == "rotation":
            return f"{self.part}: turned by {texts[1]} {self.unit}"
        return f"{self.part}: {self.quantity} {' → '.join(texts)} {self.unit}".rstrip()


Table = dict[tuple[str, str], dict[str, Any]]
"""(kind, name): quantity: a number, a vector or a matrix"""

SIX = ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))
"""xx, yy, zz, xy, xz, yz"""
PASSIVE = ("spring", "damper", "friction", "armature")
"""elements of a joint's coordinate, one of a kind; where there is none its numbers are zero"""
ABILITIES = {"lower": "x", "upper": "x", "max_rate": "x/s", "max_force": "F"}
"""what a coordinate's real joint can do, with units (F and x: the coordinate's own)"""
_form = inspect.signature(Mechanism.friction).parameters
FRICTION = {
    "stribeck_velocity": _form["stribeck_velocity"].default,
    "stribeck_exponent": _form["stribeck_exponent"].default,
    "friction_width": _form["width"].default,
}
"""the form of a friction of which only the level is known"""


def table(m: Mechanism, actuators: Set[str]) -> Table:
    """Every number of a mechanism; elements of a joint, not of its actuators, by the name of their coordinate."""
    numbers: Table = {("world", "gravity"): {"gravity": m.gravity}}
    for b in m.bodies:
        numbers["body", b.name] = {"mass": b.mass, "com": b.com, "inertia": b.inertia}
    for kind, parts in (("joint", m.joints), ("frame", m.frames)):
        for part in parts:
            numbers[kind, part.name] = {"origin": part.origin, "rotation": part.rotation}
    for c in m.coordinates:
        numbers["coordinate", c.name] = {q: getattr(c, q) for q in ABILITIES}
    for c in m.couplings:
        numbers["coupling", c.name] = {q: getattr(c, q) for q in c.quantities}
    for c in m.combinations:
        # no file holds what acts along them
        acting: list[Any] = [e for e in m.elements if getattr(e, "coordinate", "") == c.name]
        named = {f"{type(e).__name__} {e.name} {q}": getattr(e, q) for e in acting for q in e.quantities}
        ratios = {f"ratio {one.name}": r for one, r in zip(c.coordinates, c.ratios, strict=True)}
        numbers["combination", c.name] = ratios | named
    combined = {c.name for c in m.combinations}
    for loop in m.loops:
        numbers["loop", loop.name] = {}
    for name, delay in m.delays.items():
        numbers["input", name] = {"delay": delay}
    kinds = {part: kind for kind, part in TABLES.items()}
    for e in m.elements:
        if isinstance(e, Custom):
            numbers["element", e.name] = dict(e.parameters)
        elif type(e) in kinds and getattr(e, "coordinate", "") not in combined:
            if isinstance(e, DryFriction):
                # a file knows a level and no form; of loads it knows nothing
                numbers["dry_friction", e.name] = {"load_coefficient": e.load_coefficient}
                form = (
                    e.coulomb,
                    e.stribeck,
                    e.stribeck_velocity,
                    e.stribeck_exponent,
                    FRICTION["friction_width"],
                )
                e = Friction(e.name, e.coordinate, *form)
            kind = kinds[type(e)]
            own = kind in PASSIVE and e.name not in actuators
            name = getattr(e, "coordinate", "") if own else e.name
            if (kind, name) in numbers:
                raise MechidError(f"Coordinate '{name}' has two {kind}s, and a file holds one: join them.")
            numbers[kind, name] = {q: getattr(e, q) for q in TABLES[kind].quantities}
    return numbers


@dataclass(frozen=True, eq=False)
class Difference:
    """A quantity that two tables do not share; all of a part where the first has no such part."""

    kind: str
    name: str
    quantity: str
    before: Any
    after: Any

    @property
    def key(self) -> tuple[str, str, str]:
        return self.kind, self.name, self.quantity


def differences(there: Table, wanted: Table, tolerance: float) -> Iterator[Difference]:
    """What must change for the table `there` to be as wanted."""
    for (kind, name), values in {**wanted, **there}.items():
        after = wanted.get((kind, name), _absent(kind, values) if kind in PASSIVE else None)
        if after is None:
            continue
        before = there.get((kind, name), _absent(kind, after))
        if before is None or set(before) != set(after):
            yield Difference(kind, name, kind, None, None)
            continue
        for quantity, value in after.items():
            least = SAME_TURNED if quantity in ("origin", "rotation", "inertia") else SAME
            own, slack = before[quantity], max(tolerance, least) * _scale(quantity, before, after)
            if not _same(own, value, slack):
                if np.ndim(value) and quantity != "rotation":
                    value = np.where(np.abs(value - own) <= slack, own, value)
                yield Difference(kind, name, quantity, own, value)


def _absent(kind: str, like: dict[str, Any]) -> dict[str, Any] | None:
    """The numbers of a part that a file does not mention; None where it would have to."""
    if kind in PASSIVE:
        return {**dict.fromkeys(like, 0.0), **(FRICTION if kind == "friction" else {})}
    if kind == "dry_friction":
        return {"load_coefficient": 0.0}
    if kind == "input":
        return {"delay": 0.0}
    return {"gain": 1.0, "gear_ratio": 1.0, "rotor_inertia": 0.0} if kind == "motor" else None


def _same(x: Any, y: Any, slack: float) -> bool:
    return np.array_equal(x, y) or bool(np.abs(np.subtract(x, y)).max() <= slack)


def _scale(quantity: str, *numbers: dict[str, Any]) -> float:
    """The size against which a quantity's rounding is measured; at least a millimetre for places."""
    shared = Coupling.quantities if quantity in Coupling.quantities else (quantity,)
    sizes = [np.abs(n[q]).max() for n in numbers for q in shared]
    if quantity == "inertia":
        sizes += [abs(n["mass"]) * np.dot(n["com"], n["com"]) for n in numbers]
    if quantity in ("com", "origin"):
        sizes.append(1e-3)
    return float(max((s for s in sizes if np.isfinite(s)), default=0.0))


def changes_of(m: Mechanism, d: Difference) -> Iterator[Change]:
    """A difference number by number."""
    part = d.kind if d.kind == "world" else f"{d.kind} '{d.name}'"
    if d.quantity == "rotation":
        angle = np.linalg.norm(d.after @ d.before.T - np.eye(3)) / math.sqrt(2.0)
        yield Change(part, "rotation", 0.0, float(angle), "rad")
        return
    suffixes = {(): [""], (3,): [".x", ".y", ".z"], (3, 3): [".xx", ".yy", ".zz", ".xy", ".xz", ".yz"]}
    rows = tuple(np.transpose(SIX)) if np.ndim(d.after) == 2 else ...
    before, after = (np.ravel(np.asarray(x, float)[rows]) for x in (d.before, d.after))
    scale = _scale("", {"": before}, {"": after})
    for suffix, x, y in zip(suffixes[np.shape(d.after)], before, after, strict=True):
        if not _same(x, y, SAME * scale):
            yield Change(part, d.quantity + suffix, float(x), float(y), _unit(m, d))


def _unit(m: Mechanism, d: Difference) -> str:
    plain = {"delay": "s", "gravity": "m/s²", "mass": "kg", "com": "m", "inertia": "kg·m²", "origin": "m"}
    if d.kind == "element" or d.quantity in plain:
        return plain.get(d.quantity, "")
    kind = TABLES.get(d.kind, Coupling)
    symbol = (ABILITIES if d.kind == "coordinate" else kind.quantities)[d.quantity]
    named = [e for e in (*m.elements, *m.couplings) if type(e) is kind and e.name == d.name]
    on, other = (getattr(named[0], what, "") if named else d.name for what in ("coordinate", "other"))
    by_name = {c.name: c for c in m.coordinates}
    return quantity_unit(symbol, by_name.get(on), by_name.get(other))


class Job(NamedTuple):
    """What is to be written where."""

    root: Element
    pen: Pen
    old: Mechanism
    new: Mechanism
    wanted: Table
    where: str
    path: Path | None
