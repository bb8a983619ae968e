"""From a mechanism to its topology (integer arrays) and its vector of values, on the host.

`Lowering` keeps the names: which address, coordinate, frame or input stands where. The arrays go on to `prepare`.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from jax.core import Tracer

from mechid.compile import require_float64
from mechid.dynamics.elements import Wrenches
from mechid.dynamics.model import TreeModel
from mechid.dynamics.prepare import MaximalTopology, RowTopology, Topology, prepare, prepare_tangent
from mechid.dynamics.reflected import reflected_inertias
from mechid.model import addresses
from mechid.model.geometry import Array, perpendicular
from mechid.model.mechanism import WORLD, Mechanism
from mechid.model.parts import Contact, Custom, DryFriction, Joint, LineSpring, LoadFriction, Motor, Wrench
from mechid.model.system import Lowered


def lower(mechanism: Mechanism) -> TreeModel:
    """The mechanism with its own numbers, as arrays. A mechanism never changes, so it is lowered once."""
    require_float64()
    if mechanism not in _LOWERED:
        _LOWERED[mechanism] = Lowering(mechanism).model()
    return _LOWERED[mechanism]


_LOWERED: WeakKeyDictionary[Mechanism, TreeModel] = WeakKeyDictionary()


class Lowering(Lowered):
    """The topology of a mechanism and where its names stand in the arrays."""

    def __init__(self, mechanism: Mechanism) -> None:
        require_float64()
        self.mechanism = mechanism.checked()
        self.layout = addresses.layout(mechanism)
        self.values = addresses.values(mechanism, self.layout)
        self.n = len(mechanism.coordinates)
        self.index = {c.name: i for i, c in enumerate(mechanism.coordinates)}
        combinations = enumerate(mechanism.combinations, start=self.n)
        self.axis_index = self.index | {c.name: i for i, c in combinations}
        """coordinates, then combinations: what elements act on"""
        self.frame_index = {name: i for i, name in enumerate(mechanism.frame_names)}
        self.input_index = {name: i for i, name in enumerate(mechanism.input_names)}
        self._joint_of = {j.child: j for j in mechanism.joints}

    def model(self, values: Any = None) -> TreeModel:
        """The model for a vector of values (by default the mechanism's own)."""
        values = self.values if values is None else values
        return prepare(self.topology, values if isinstance(values, Tracer) else np.asarray(values))

    def tangent(self, values: np.ndarray, slopes: np.ndarray) -> list[Any]:
        return prepare_tangent(self.topology, values, slopes)

    def carrier(self, body: str) -> int:
        """The coordinate that carries a body; n for the world."""
        while body != WORLD:
            joint = self._joint_of[body]
            if joint.coordinates:
                return self.index[joint.coordinates[-1].name]
            body = joint.parent
        return self.n

    @cached_property
    def topology(self) -> Topology:
        m = self.mechanism
        parent, first_of_joint = self._parents()
        return Topology(
            jumps=_doubling(parent, 2 ** max(1, int(np.ceil(np.log2(max(self.n, 2)))))),
            ancestry=_ancestry(parent),
            axis=np.array([c.axis for c in m.coordinates]),
            revolute=np.array([float(c.revolute) for c in m.coordinates]),
            first_of_joint=first_of_joint,
            **self._bodies(),
            combination_terms=self._combinations(),
            combinations=len(m.combinations),
            **self._elements(),
            **self._constraints(),
            maximal=self._maximal(),
            blocks=tuple((name, *place) for name, place in self.layout.blocks.items()),
            functions=tuple((e.function, e.is_potential) for e in self._of(Custom)),
            custom_sizes=tuple(len(e.parameters) for e in self._of(Custom)),
            nu=len(m.input_names),
            felt=reflected_inertias(m),
            weight=max(sum(b.mass for b in m.bodies), 1e-12),
        )

    def _of(self, kind: type) -> list[Any]:
        return [e for e in self.mechanism.elements if type(e) is kind]

    def _parents(self) -> tuple[np.ndarray, np.ndarray]:
        """Each coordinate's parent (n: the world), and the joint it begins (−1: none)."""
        parent = np.full(self.n + 1, self.n)
        begins = np.full(self.n, -1)
        for k, joint in enumerate(self.mechanism.joints):
            before = self.carrier(joint.parent)
            for i, c in enumerate(joint.coordinates):
                parent[self.index[c.name]] = before
                begins[self.index[c.name]] = k if i == 0 else -1
                before = self.index[c.name]
        return parent, begins

    def _bodies(self) -> dict[str, np.ndarray]:
        m = self.mechanism
        number = {b.name: i for i, b in enumerate(m.bodies)} | {WORLD: len(m.bodies)}
        joint_number = {j.name: k for k, j in enumerate(m.joints)}
        joints = [self._joint_of[b.name] for b in m.bodies]
        fixed = [not j.coordinates for j in joints]
        above = np.arange(len(m.bodies) + 1)
        for i, (joint, rigid) in enumerate(zip(joints, fixed, strict=True)):
            above[i] = number[joint.parent] if rigid else i
        frames = [WORLD, *(b.name for b in m.bodies), *(f.body for f in m.frames)]
        return {
            "fixed_jumps": _doubling(above, None),
            "body_joint": np.array([joint_number[j.name] for j in joints], dtype=int),
            "body_fixed": np.array(fixed, dtype=float),
            "body_carrier": np.array([self.carrier(b.name) for b in m.bodies], dtype=int),
            "joint_parent": np.array([number[j.parent] for j in m.joints], dtype=int),
            "frame_body": np.array([number[b] for b in frames], dtype=int),
            "frame_link": np.array([self.carrier(b) for b in frames], dtype=int),
        }

    def _combinations(self) -> np.ndarray:
        """(terms, 2) combination and coordinate of each ratio."""
        m = self.mechanism
        terms = [(i, self.index[c.name]) for i, one in enumerate(m.combinations) for c in one.coordinates]
        return np.array(terms, dtype=int).reshape(-1, 2)

    def _elements(self) -> dict[str, Any]:
        on = {
            f"{kind}_index": np.array([self.axis_index[e.coordinate] for e in self._of(part)], dtype=int)
            for kind, part in addresses.TABLES.items()
            if part not in (LineSpring, Contact)
        }
        channels = []
        for e in self._of(Wrench):
            names = ("fx", "fy", "fz", "mx", "my", "mz") if e.moment else ("x", "y", "z")
            at = [self.input_index[f"{e.name}.{x}"] for x in names]
            channels.append(at + [len(self.input_index)] * (6 - len(at)))
        wrenches: Any = Wrenches(
            np.array([self.frame_index[e.frame] for e in self._of(Wrench)], dtype=int),  # type: ignore[arg-type]
            np.array(channels, dtype=int).reshape(-1, 6),  # type: ignore[arg-type]
            np.array([float(e.axes == "body") for e in self._of(Wrench)]),  # type: ignore[arg-type]
        )
        lines = [[self.frame_index[f] for f in (e.first, e.second)] for e in self._of(LineSpring)]
        return on | {
            "dry_loaded": np.flatnonzero([e.load_coefficient for e in self._of(DryFriction)]),
            "motor_input": np.array([self.input_index[e.name] for e in self._of(Motor)], dtype=int),
            "load_index": np.array([self.axis_index[e.load] for e in self._of(LoadFriction)], dtype=int),
            "line_frames": np.array(lines, dtype=int).reshape(-1, 2),
            "wrenches": wrenches,
            "custom_index": tuple(
                np.array([self.axis_index[c] for c in e.coordinates], dtype=int) for e in self._of(Custom)
            ),
        }

    def _constraints(self) -> dict[str, Any]:
        m = self.mechanism
        rows = [r for loop in m.loops for r in loop.rows]

        def part(name: str) -> RowTopology:
            pairs = [getattr(r, name) for r in rows]
            return RowTopology(
                np.array([self.frame_index[f] for f, _ in pairs], dtype=int),
                np.array([vector for _, vector in pairs]).reshape(-1, 3),
            )

        touching = self._of(Contact)
        normals = [(0, 0, 1)] * len(touching)
        planes = [self.frame_index[e.plane] for e in touching]
        along = [self.frame_index[e.plane] for e in touching for _ in range(2)]
        both = [self.frame_index[e.point] for e in touching for _ in range(2)]
        directions = np.array([*normals, *[(1, 0, 0), (0, 1, 0)] * len(touching)], float).reshape(-1, 3)
        origin = np.zeros((3 * len(touching), 3))
        points = [self.frame_index[e.point] for e in touching]
        couplings = [[self.index[c.coordinate], self.index[c.other]] for c in m.couplings]
        drives = [[self.index[d.coordinate], self.input_index[d.name]] for d in m.drives]
        return {
            "row_direction": part("direction"),
            "row_to": part("to"),
            "row_start": part("start"),
            "contact_direction": RowTopology(np.array([*planes, *along], dtype=int), directions),
            "contact_to": RowTopology(np.array([*points, *both], dtype=int), origin),
            "contact_start": RowTopology(np.array([*planes, *along], dtype=int), origin),
            "coupling_index": np.array(couplings, dtype=int).reshape(-1, 2),
            "drive_index": np.array(drives, dtype=int).reshape(-1, 2),
        }

    def _maximal(self) -> MaximalTopology:
        """Joints between free bodies: which directions they lock, how coordinates are read off them."""
        moving = [j for j in self.mechanism.joints if j.coordinates]
        link = [self.index[j.coordinates[-1].name] for j in moving]
        body_of = np.full(self.n + 1, len(moving))
        body_of[link] = np.arange(len(moving))
        basis, rows = [], []
        owner, component, sign = np.zeros(self.n, int), np.zeros(self.n, int), np.ones(self.n)
        for b, joint in enumerate(moving):
            triad, handed = _triad(joint)
            basis.append(triad)
            rows += [(b, *row) for row in _locked(joint, triad)]
            for i, c in enumerate(joint.coordinates):
                turns = sum(d.revolute for d in joint.coordinates[:i])
                slides = i - turns
                at = self.index[c.name]
                owner[at], component[at] = b, (3 + turns if c.revolute else slides)
                sign[at] = handed if c.revolute and turns == 2 else 1.0
        columns = list(zip(*rows, strict=True)) if rows else [()] * 5
        return MaximalTopology(
            link=np.array(link, dtype=int),
            first=np.array([self.index[j.coordinates[0].name] for j in moving], dtype=int),
            parent=np.array([body_of[self.carrier(j.parent)] for j in moving], dtype=int),
            body_of=body_of,
            basis=np.array(basis),
            owner=owner,
            component=component,
            sign=sign,
            row_body=np.array(columns[0], dtype=int),
            row_point=np.array(columns[1], dtype=float),
            row_world=np.array(columns[2], dtype=float),
            row_direction=np.array(columns[3]).reshape(-1, 3),
            row_to=np.array(columns[4]).reshape(-1, 3),
        )


def _doubling(above: np.ndarray, reach: int | None) -> np.ndarray:
    """Index arrays 1, 2, 4, … up: for `reach` generations, or until every one has arrived."""
    jumps: list[np.ndarray] = []
    while (2 ** len(jumps) < reach) if reach else np.any(above != above[above]):
        jumps.append(above)
        above = above[above]
    return np.array(jumps, dtype=int).reshape(len(jumps), len(above))


def _ancestry(parent: np.ndarray) -> Array:
    n = len(parent) - 1
    below = np.zeros((n + 1, n))
    for i in range(n):
        j = i
        while j != n:
            below[i, j] = 1.0
            j = parent[j]
    return below


def _triad(joint: Joint) -> tuple[Array, float]:
    """Right-handed axes to read a joint's angles and slides along (rows), and the third one's sense."""
    if joint.kind == "floating":
        return np.eye(3), 1.0
    axes = [np.array(c.axis) for c in joint.coordinates]
    if len(axes) == 1:
        return np.array([axes[0], *perpendicular(axes[0])]), 1.0
    third = np.cross(axes[0], axes[1])
    return np.array([axes[0], axes[1], third]), float(len(axes) < 3 or third @ axes[2] > 0) * 2 - 1


def _locked(joint: Joint, triad: Array) -> list[tuple[bool, bool, Array, Array]]:
    """Rows n·(x_b − x_a) that a joint locks: (between points?, n in world axes?, n, point or axis of the child)."""
    a, b, c = triad
    zero = np.zeros(3)
    together = [(True, True, e, zero) for e in np.eye(3)]
    if joint.kind == "revolute":
        return [*together, (False, False, b, a), (False, False, c, a)]
    if joint.kind == "prismatic":
        across = [(True, False, b, zero), (True, False, c, zero)]
        return [*across, *((False, False, n, m) for n, m in ((b, c), (c, a), (a, b)))]
    if joint.kind == "universal":
        return [*together, (False, False, a, b)]
    return together if joint.kind == "spherical" else []
