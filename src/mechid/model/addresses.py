"""Addresses: one vector holds every number of a mechanism, and every number has a name and a unit.

The vector is a row of blocks. Bodies' ten numbers stand in it linearly (m, m·c, inertia about the frame's
origin); a person addresses them physically (`mass`, `com.x`, `inertia.xx` about the centre of mass) or linearly
(`first_moment.x`, `origin_inertia.xx`).
"""

from __future__ import annotations

import difflib
import fnmatch
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from mechid.errors import MechidError, choices
from mechid.model.geometry import Array, rotation_about
from mechid.model.inertia import linear_from_physical
from mechid.model.parts import (
    Armature,
    Body,
    Combination,
    Contact,
    Coupling,
    Custom,
    Damper,
    DryFriction,
    Friction,
    GearFriction,
    LineSpring,
    LoadFriction,
    LowerStop,
    Motor,
    Offset,
    PeriodicFriction,
    PiecewiseSpring,
    Spring,
    UpperStop,
    element_numbers,
    quantity_unit,
    rigid_numbers,
)

if TYPE_CHECKING:
    from mechid.model.mechanism import Mechanism

TABLES = {
    "spring": Spring,
    "damper": Damper,
    "friction": Friction,
    "gear_friction": GearFriction,
    "load_friction": LoadFriction,
    "piecewise_spring": PiecewiseSpring,
    "periodic_friction": PeriodicFriction,
    "dry_friction": DryFriction,
    "lower_stop": LowerStop,
    "upper_stop": UpperStop,
    "contact": Contact,
    "motor": Motor,
    "armature": Armature,
    "offset": Offset,
    "line_spring": LineSpring,
}
"""Elements whose numbers stand in a table, one row an element."""


@dataclass(frozen=True)
class Address:
    """The name of one number: "elbow.damping"."""

    name: str
    index: int
    """place in the vector of values"""
    unit: str
    kind: str
    """what it belongs to: body, joint, spring, …"""
    chart: str = ""
    """for a body's numbers: "physical" or "linear" (the mass is both)"""
    body: int = -1

    @property
    def qualified(self) -> str:
        return f"{self.kind}/{self.name}"


@dataclass(frozen=True)
class Layout:
    """Where each block stands in the vector of values, and every address."""

    blocks: dict[str, tuple[int, int, int]]
    """name: offset, rows, columns"""
    size: int
    addresses: tuple[Address, ...]

    def block(self, values: Array, name: str) -> Array:
        offset, rows, columns = self.blocks[name]
        return values[offset : offset + rows * columns].reshape(rows, columns)

    def find(self, pattern: str) -> list[Address]:
        """Every address that a name or a pattern with * and ? means.

        A vector's name stands for its components ("link.com" for com.x, com.y, com.z).
        """
        matched = [
            a
            for a in self.addresses
            for full in ([a.name, a.qualified] if "/" in pattern else [a.name])
            if fnmatch.fnmatchcase(full, pattern)
            or (
                fnmatch.fnmatchcase(full.rpartition(".")[0], pattern)
                and full.rpartition(".")[2] in _COMPONENTS
            )
        ]
        if not matched:
            raise self._unknown(pattern)
        count = Counter(a.name for a in matched)
        twice = sorted({a.qualified for a in matched if count[a.name] > 1})
        if twice:
            raise MechidError(
                f"Address '{pattern}' is ambiguous: it could mean {choices(twice)}. Write the kind in front."
            )
        return matched

    def _unknown(self, pattern: str) -> MechidError:
        names = list(dict.fromkeys(a.name for a in self.addresses))
        near = difflib.get_close_matches(pattern, names, n=4, cutoff=0.5)
        near += [n for n in names if pattern.strip("*") and pattern.strip("*") in n and n not in near]
        first, _, last = pattern.partition(".")
        near += [n for n in names if n.startswith(f"{first}.") and n.endswith(f".{last}") and n not in near]
        hint = f"Near matches: {choices(near, 8)}." if near else f"Valid: {choices(names)}."
        return MechidError(f"There is no number with the address '{pattern}'. {hint}")


_COMPONENTS = {"x", "y", "z", "xx", "yy", "zz", "xy", "xz", "yz"}
_XYZ = ("x", "y", "z")
_SIX = ("xx", "yy", "zz", "xy", "xz", "yz")


def layout(mechanism: Mechanism) -> Layout:
    """The layout of a mechanism's vector of values."""
    blocks: dict[str, tuple[int, int, int]] = {}
    addresses: list[Address] = []
    size = 0

    def block(name: str, rows: int, columns: int) -> int:
        nonlocal size
        blocks[name] = (size, rows, columns)
        size += rows * columns
        return blocks[name][0]

    def triple(at: int, prefix: str, unit: str, kind: str) -> None:
        addresses.extend(Address(f"{prefix}.{c}", at + i, unit, kind) for i, c in enumerate(_XYZ))

    triple(block("gravity", 1, 3), "gravity", "m/s²", "world")
    triple(block("gravity_tilt", 1, 3), "gravity.tilt", "rad", "world")
    at = block("rigid", len(mechanism.bodies), 10)
    for b, body in enumerate(mechanism.bodies):
        first = at + 10 * b
        addresses.append(Address(f"{body.name}.mass", first, "kg", "body", "", b))
        for chart, vector, unit, tensor in (
            ("physical", "com", "m", "inertia"),
            ("linear", "first_moment", "kg·m", "origin_inertia"),
        ):
            for i, c in enumerate(_XYZ):
                name = f"{body.name}.{vector}.{c}"
                addresses.append(Address(name, first + 1 + i, unit, "body", chart, b))
            for i, c in enumerate(_SIX):
                name = f"{body.name}.{tensor}.{c}"
                addresses.append(Address(name, first + 4 + i, "kg·m²", "body", chart, b))
    for kind, parts in (("joint", mechanism.joints), ("frame", mechanism.frames)):
        origin = block(f"{kind}_origin", len(parts), 3)
        tilt = block(f"{kind}_tilt", len(parts), 3)
        block(f"{kind}_rotation", len(parts), 9)
        for i, part in enumerate(parts):
            triple(origin + 3 * i, f"{part.name}.origin", "m", kind)
            triple(tilt + 3 * i, f"{part.name}.tilt", "rad", kind)
    at = block("delay", len(mechanism.input_names), 1)
    for i, name in enumerate(mechanism.input_names):
        addresses.append(Address(f"{name}.delay", at + i, "s", "input"))
    at = block("combination", sum(len(c.ratios) for c in mechanism.combinations), 1)
    for combination in mechanism.combinations:
        for c in combination.coordinates:
            unit = "1" if c.unit == combination.unit else f"{combination.unit}/{c.unit}"
            addresses.append(Address(f"{combination.name}.ratio.{c.name}", at, unit, "combination"))
            at += 1
    by_name = {c.name: c for c in (*mechanism.coordinates, *mechanism.combinations)}
    tables: dict[str, list[Any]] = {
        name: [e for e in mechanism.elements if type(e) is part] for name, part in TABLES.items()
    }
    for kind, rows in (*tables.items(), ("coupling", list(mechanism.couplings))):
        width = len(TABLES[kind].quantities) if kind in TABLES else 5
        at = block(kind, len(rows), width)
        for i, e in enumerate(rows):
            coordinate = by_name.get(getattr(e, "coordinate", ""))
            for j, (quantity, symbol) in enumerate(e.quantities.items()):
                unit = quantity_unit(symbol, coordinate, by_name.get(getattr(e, "other", "")))
                addresses.append(Address(f"{e.name}.{quantity}", at + width * i + j, unit, kind))
    customs = [e for e in mechanism.elements if isinstance(e, Custom)]
    at = block("custom", sum(len(e.parameters) for e in customs), 1)
    for e in customs:
        for name, _ in e.parameters:
            addresses.append(Address(f"{e.name}.{name}", at, "", "element"))
            at += 1
    return Layout(blocks, size, tuple(addresses))


def values(mechanism: Mechanism, where: Layout) -> Array:
    """The mechanism's own numbers as the vector of values."""
    parts: dict[str, Array] = {"gravity": np.asarray(mechanism.gravity)}
    rigid = np.array([rigid_numbers(b) for b in mechanism.bodies]).reshape(-1, 10)
    parts["rigid"] = np.asarray(linear_from_physical(rigid))  # type: ignore[arg-type]
    for kind, items in (("joint", mechanism.joints), ("frame", mechanism.frames)):
        parts[f"{kind}_origin"] = np.array([i.origin for i in items])
        parts[f"{kind}_rotation"] = np.array([i.rotation for i in items])
    for kind, part in TABLES.items():
        rows = [element_numbers(e) for e in mechanism.elements if type(e) is part]
        parts[kind] = np.array(rows)
    parts["delay"] = np.array([mechanism.delays.get(name, 0.0) for name in mechanism.input_names])
    parts["combination"] = np.array([r for c in mechanism.combinations for r in c.ratios])
    parts["coupling"] = np.array([element_numbers(c) for c in mechanism.couplings])
    customs = [e for e in mechanism.elements if isinstance(e, Custom)]
    parts["custom"] = np.array([v for e in customs for _, v in e.parameters])
    vector = np.zeros(where.size)
    for name, part in parts.items():
        offset, rows, columns = where.blocks[name]
        vector[offset : offset + rows * columns] = part.ravel()
    return vector


def written(m: Mechanism, layout: Layout, values: Array, tens: dict[int, Array]) -> Mechanism:
    """A mechanism with a vector of values, and the ten physical numbers of some bodies."""
    part = {name: layout.block(values, name) for name in layout.blocks}
    rows = {kind: iter(part[kind]) for kind in (*TABLES, "combination", "coupling", "custom")}
    bodies = [_weighed(b, tens[i]) if i in tens else b for i, b in enumerate(m.bodies)]
    return replace(
        m,
        gravity=part["gravity"][0] @ _turn(part["gravity_tilt"][0]),
        bodies=tuple(bodies),
        joints=_placed(m.joints, part["joint_origin"], part["joint_tilt"]),
        frames=_placed(m.frames, part["frame_origin"], part["frame_tilt"]),
        couplings=tuple(_renewed(c, rows) for c in m.couplings),
        combinations=tuple(_renewed(c, rows) for c in m.combinations),
        elements=tuple(_renewed(e, rows) for e in m.elements),
        delays={n: float(d) for n, d in zip(m.input_names, part["delay"][:, 0], strict=True) if d},
    )


def _weighed(body: Body, ten: Array) -> Body:
    xx, yy, zz, xy, xz, yz = ten[4:]
    matrix = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
    return replace(body, mass=float(ten[0]), com=np.array(ten[1:4]), inertia=matrix)


def _placed(parts: Iterable[Any], origins: Array, tilts: Array) -> tuple[Any, ...]:
    """Joints or frames at new origins, turned by their tilts."""
    moved = []
    for part, origin, tilt in zip(parts, origins, tilts, strict=True):
        moved.append(replace(part, origin=origin, rotation=part.rotation @ _turn(tilt)))
    return tuple(moved)


def _turn(tilt: Array) -> Array:
    angle = float(np.linalg.norm(tilt))
    return rotation_about(tilt / angle, angle) if angle else np.eye(3)


def _renewed(element: Any, rows: dict[str, Iterator[Array]]) -> Any:
    """An element, a coupling or a combination with the next row of its kind."""
    if isinstance(element, Combination):
        return replace(element, ratios=tuple(float(next(rows["combination"])[0]) for _ in element.ratios))
    if isinstance(element, Custom):
        pairs = tuple((name, float(next(rows["custom"])[0])) for name, _ in element.parameters)
        return replace(element, parameters=pairs)
    kinds = {part: kind for kind, part in TABLES.items()} | {Coupling: "coupling"}
    if type(element) not in kinds:
        return element
    row = map(float, next(rows[kinds[type(element)]]))
    return replace(element, **dict(zip(element.quantities, row, strict=True)))
