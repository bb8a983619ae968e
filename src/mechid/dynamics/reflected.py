"""The inertia that each coordinate feels in the zero position, all others held: the scale of what acts on it."""

from __future__ import annotations

import numpy as np

from mechid.model.geometry import Array
from mechid.model.mechanism import WORLD, Mechanism
from mechid.model.parts import Armature, Joint, Motor


def reflected_inertias(mechanism: Mechanism) -> Array:
    """(n,) kg·m² or kg: the mass matrix's diagonal at q = 0, rotors included."""
    joint_of = {j.child: j for j in mechanism.joints}
    bodies = {b.name: b for b in mechanism.bodies}
    felt = {c.name: 0.0 for c in mechanism.coordinates}
    for body in bodies.values():
        rotation, origin = _pose(body.name, joint_of)
        com, inertia = origin + rotation @ body.com, rotation @ body.inertia @ rotation.T
        # what moves the body: its own joint and all between it and the world
        carrier = body.name
        while carrier != WORLD:
            joint = joint_of[carrier]
            axes, point = _pose(carrier, joint_of)
            for c in joint.coordinates:
                axis = axes @ np.array(c.axis)
                arm = np.cross(axis, com - point)
                turning = axis @ inertia @ axis + body.mass * arm @ arm
                felt[c.name] += float(turning) if c.revolute else body.mass
            carrier = joint.parent
    terms = {c.name: {c.name: 1.0} for c in mechanism.coordinates}
    for one in mechanism.combinations:
        terms[one.name] = {c.name: r for c, r in zip(one.coordinates, one.ratios, strict=True)}
    for e in mechanism.elements:
        if isinstance(e, Armature | Motor):
            own = e.armature if isinstance(e, Armature) else e.gear_ratio**2 * e.rotor_inertia
            for name, ratio in terms[e.coordinate].items():
                felt[name] += ratio**2 * own
    return np.array(list(felt.values()))


def _pose(body: str, joint_of: dict[str, Joint]) -> tuple[Array, Array]:
    """A body's axes and origin in the world, all coordinates zero."""
    rotation, origin = np.eye(3), np.zeros(3)
    while body != WORLD:
        joint = joint_of[body]
        rotation, origin = joint.rotation @ rotation, joint.origin + joint.rotation @ origin
        body = joint.parent
    return rotation, origin
