"""Where a URDF text holds a mechanism's numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mechid.model.geometry import Array, roll_pitch_yaw, rotation_about
from mechid.model.read_names import Names
from mechid.model.write_numbers import (
    SAME,
    SIX,
    Difference,
    Job,
)
from mechid.model.xmltext import Element, NewElement


class Urdf:
    """Where a URDF holds a mechanism's numbers."""

    what = "A URDF"
    behind = ("limit", "dynamics")
    skipped = ()
    worked_out: frozenset[str] = frozenset()

    def __init__(self, job: Job) -> None:
        root, new = job.root, job.new
        self.pen, self.wanted = job.pen, job.wanted
        self.coordinates = {c.name: c for c in new.coordinates}
        names = Names()
        self.links, self.joints = (
            {names.of_file(kind, e.get("name") or ""): e for e in root.children if e.name == tag}
            for kind, tag in (("frame", "link"), ("joint", "joint"))
        )

    def place(self, d: Difference) -> bool:
        """Put a number where it belongs; whether it has a place."""
        if d.kind == "body":
            return self._body(d)
        joint = self.joints.get(d.name)
        if joint is None:
            return False
        if d.kind == "joint":
            origin = self.pen.child(joint, "origin")
            if d.quantity == "origin":
                self.pen.put(origin, "xyz", d.after)
            else:
                self.pen.put(origin, "rpy", _roll_pitch_yaw(d.after, _angles(origin)), SAME)
            return True
        if d.kind == "coordinate":
            return self._limit(joint, d.name, d.quantity)
        homes = {
            ("damper", "damping"): ("dynamics", "damping"),
            ("friction", "coulomb"): ("dynamics", "friction"),
            ("coupling", "ratio"): ("mimic", "multiplier"),
            ("coupling", "offset"): ("mimic", "offset"),
        }
        if (d.kind, d.quantity) not in homes:
            return False
        tag, attribute = homes[d.kind, d.quantity]
        self.pen.put(self.pen.child(joint, tag), attribute, [d.after])
        return True

    def _body(self, d: Difference) -> bool:
        wanted = {**self.wanted["body", d.name], d.quantity: d.after}
        inertial = self.pen.child(self.links[d.name], "inertial")
        if new := isinstance(inertial, NewElement):
            inertial.children = [NewElement(tag) for tag in ("origin", "mass", "inertia")]
            origin, mass, inertia = inertial.children
        else:
            origin, mass, inertia = (self.pen.child(inertial, tag) for tag in ("origin", "mass", "inertia"))
        if new or d.quantity == "mass":
            self.pen.put(mass, "value", [wanted["mass"]])
        if new or d.quantity == "com":
            self.pen.put(origin, "xyz", wanted["com"])
        if new or d.quantity == "inertia":
            angles = _angles(origin)
            turn = roll_pitch_yaw(*angles)
            own = turn.T @ wanted["inertia"] @ turn
            noise = SAME * np.abs(own).max() if any(angles) else 0.0
            for i, j in SIX:
                self.pen.put(inertia, f"i{'xyz'[i]}{'xyz'[j]}", [own[i, j]], noise)
        return True

    def _limit(self, joint: Element, name: str, quantity: str) -> bool:
        c = self.coordinates[name]
        values = {"lower": c.lower, "upper": c.upper}
        if quantity in ("max_rate", "max_force"):
            values = {"velocity": c.max_rate} if quantity == "max_rate" else {"effort": c.max_force}
        elif joint.get("type") == "continuous":
            return False
        if not np.isfinite(list(values.values())).all():
            return False
        for attribute, value in values.items():
            self.pen.put(self.pen.child(joint, "limit"), attribute, [value])
        return True


def _angles(origin: Element | NewElement) -> list[float]:
    text = origin.get("rpy") if isinstance(origin, Element) else None
    return [float(a) for a in (text or "0 0 0").split()]


def _roll_pitch_yaw(rotation: Array, near: Sequence[float]) -> Array:
    """Angles with R = Rz(yaw) Ry(pitch) Rx(roll), exact beside the pole too; of all such the nearest ones."""
    yaw = math.atan2(rotation[1, 0], rotation[0, 0])
    rest = rotation_about("z", -yaw) @ rotation
    first = np.array([math.atan2(-rest[1, 2], rest[1, 1]), math.atan2(-rest[2, 0], rest[0, 0]), yaw])
    both = [first, np.array([first[0] + math.pi, math.pi - first[1], first[2] + math.pi])]
    turned = [x - 2 * math.pi * np.round((x - near) / (2 * math.pi)) for x in both]
    return min(turned, key=lambda x: float(np.abs(x - near).sum()))
