"""A compiled MuJoCo model as a mechanism: its bodies, joints, sites, equalities and actuators.

A body of the file keeps its frame. Where it has several joints, or one that does not pass through its origin,
massless bodies named "body/joint" stand between, each carried by one joint.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from mechid.errors import MechidError
from mechid.model.geometry import Array, numbers, rotation_about
from mechid.model.mechanism import WORLD, Mechanism
from mechid.model.read_equalities import Named, add_equalities
from mechid.model.read_mujoco import mj, rotation_of
from mechid.model.read_names import Names, fit, listed

FREE, BALL, SLIDE, HINGE = range(4)
"""MuJoCo's types of joints"""


class Inertial(NamedTuple):
    mass: float
    com: Array
    inertia: Array
    """3×3 about the centre of mass, along the body's axes"""


class Written(NamedTuple):
    """An <inertial> as it stands in the file."""

    inertial: Inertial
    along: bool
    """whether its axes are the body's"""


class Actuator(NamedTuple):
    """An actuator on a hinge or slide."""

    name: str
    joint: str
    gear: float
    gain: float
    law: bool
    """whether its force follows a law of its own, a servo's for instance"""
    strength: float
    """the largest force behind the gear"""
    rotor: float
    """inertia before the gear"""
    damping: float
    """before the gear"""


class Source(NamedTuple):
    """What the compiled model does not hold."""

    written: dict[str, Written]
    """bodies with an <inertial>"""
    actuators: list[Actuator]
    notes: list[str]


def build(model: Any, name: str, source: Source, motors: bool) -> Mechanism:
    """The mechanism of a compiled model, with its actuators as motors if asked for."""
    return _Builder(model, source).build(name, motors)


def ball_damping(q: Any, v: Any, t: Any, p: Any) -> Any:
    """−b EᵀE v on Cardan angles about x, y, z: the moment −b ω of a damped ball joint, ω = E(q) v."""
    s = jnp.sin(q[1])
    return -p[0] * jnp.stack([v[0] + s * v[2], v[1], v[2] + s * v[0]])


class _Builder:
    def __init__(self, model: Any, source: Source) -> None:
        self.model, self.source = model, source
        self.names = Names()
        self.notes = list(source.notes)
        self.inferred: list[str] = []
        self.changed: list[str] = []
        self.body = [WORLD, *(self.names.of_file("frame", model.body(b).name) for b in range(1, model.nbody))]
        self.joint = [self.names.of_file("joint", model.joint(j).name) for j in range(model.njnt)]
        self.site = [self._site_name(model.site(s).name) for s in range(model.nsite)]

    def _site_name(self, name: str) -> str:
        return self.names.of_file("frame", name) if name else ""

    def build(self, name: str, motors: bool) -> Mechanism:
        m = Mechanism(name, self._gravity())
        for b in range(1, self.model.nbody):
            m = self._hang(m.body(self.body[b], **self._inertial(b)._asdict()), b)
        for j in range(self.model.njnt):
            m = self._passive(m, j)
        for s, site in enumerate(self.site):
            if site:
                on = self.body[self.model.site_bodyid[s]]
                at = self.model.site_pos[s], rotation_of(self.model.site_quat[s])
                m = m.frame(site, on, origin=at[0], rotation=at[1])
        if not self._off("EQUALITY", "CONSTRAINT"):
            m, notes = add_equalities(m, self.model, Named(self.body, self.joint, self.site, self.names))
            self.notes += notes
        m = self._actuators(m, motors)
        return dataclasses.replace(m, notes=(*self.notes, *self._more_notes(), *self.names.notes()))

    def _off(self, *what: str) -> bool:
        """Whether the file's flags switch something off."""
        bits = [int(getattr(mj.mjtDisableBit, f"mjDSBL_{w}", 0)) for w in what]
        return any(self.model.opt.disableflags & bit for bit in bits)

    def _gravity(self) -> Array:
        return np.zeros(3) if self._off("GRAVITY") else np.array(self.model.opt.gravity)

    # Bodies and joints

    def _inertial(self, b: int) -> Inertial:
        """What was compiled; in the file's own figures where these say the same."""
        turn = rotation_of(self.model.body_iquat[b])
        principal = self.model.body_inertia[b]
        inertia = turn @ np.diag(principal) @ turn.T
        compiled = Inertial(float(self.model.body_mass[b]), np.array(self.model.body_ipos[b]), inertia)
        written = self.source.written.get(self.model.body(b).name)
        if written is None:
            if compiled.mass:
                self.inferred.append(self.body[b])
            return compiled
        own = written.inertial
        moments = np.linalg.eigvalsh(own.inertia)
        same = (
            np.isclose(own.mass, compiled.mass, rtol=1e-9, atol=0.0)
            and np.allclose(own.com, compiled.com, rtol=0.0, atol=1e-9)
            and np.allclose(moments, sorted(principal), rtol=1e-6, atol=1e-9 * max(principal))
        )
        if not same:
            self.changed.append(self.body[b])
        return own if same and written.along else compiled

    def _hang(self, m: Mechanism, b: int) -> Mechanism:
        """Hang a body on its parent by its joints in a row."""
        model, name = self.model, self.body[b]
        joints = range(model.body_jntadr[b], model.body_jntadr[b] + model.body_jntnum[b])
        parent = self.body[model.body_parentid[b]]
        origin, rotation, behind = model.body_pos[b], rotation_of(model.body_quat[b]), np.zeros(3)
        for j in joints:
            anchor = self._anchor(j)
            carries = j == joints[-1] and not anchor.any()
            child = name if carries else self.names.new("frame", f"{name}/{self.joint[j]}")
            m = m if carries else m.body(child)
            at = origin + rotation @ (anchor - behind)
            m = self._join(m, j, parent, child, at, rotation)
            parent, origin, rotation, behind = child, np.zeros(3), np.eye(3), anchor
        if len(joints) and parent == name:
            return m
        at = origin - behind
        return m.fixed(self.names.new("joint", name), parent, name, origin=at, rotation=rotation)

    def _anchor(self, j: int) -> Array:
        """The point of the body that a joint turns about; the origin where it does as well."""
        point, axis = np.array(self.model.jnt_pos[j]), self.model.jnt_axis[j]
        if self.model.jnt_type[j] in (SLIDE, FREE):
            return np.zeros(3)
        beside = np.linalg.norm(np.cross(point, axis)) > 1e-14 * np.linalg.norm(point)
        return point if beside or self.model.jnt_type[j] == BALL else np.zeros(3)

    def _join(
        self, m: Mechanism, j: int, parent: str, child: str, origin: Array, rotation: Array
    ) -> Mechanism:
        model, name, kind = self.model, self.joint[j], self.model.jnt_type[j]
        if kind == FREE:
            return m.floating(name, parent, child)
        if kind == BALL:
            return m.spherical(name, parent, child, origin=origin, rotation=rotation)
        axis, ref = np.array(model.jnt_axis[j]), float(model.qpos0[model.jnt_qposadr[j]])
        able = {
            "axis": axis,
            "limits": model.jnt_range[j] if model.jnt_limited[j] else (-np.inf, np.inf),
            "max_force": self._strength(j),
        }
        if kind == SLIDE:
            at = origin - ref * (rotation @ axis)
            return m.prismatic(name, parent, child, origin=at, rotation=rotation, **able)
        turned = rotation @ rotation_about(axis, -ref) if ref else rotation
        return m.revolute(name, parent, child, origin=origin, rotation=turned, **able)

    def _strength(self, j: int) -> float:
        """The most that the actuators of a joint can give together."""
        own = [a.strength for a in self.source.actuators if a.joint == self.model.joint(j).name]
        strength = sum(own) if own else np.inf
        if self.model.jnt_actfrclimited[j]:
            strength = min(strength, np.abs(self.model.jnt_actfrcrange[j]).max())
        return strength

    # What acts in a joint

    def _passive(self, m: Mechanism, j: int) -> Mechanism:
        model, name, kind = self.model, self.joint[j], self.model.jnt_type[j]
        d = model.jnt_dofadr[j]
        stiffness = self._powers("jnt_stiffness", j)
        damping = self._powers("dof_damping", d)
        friction, armature = float(model.dof_frictionloss[d]), float(model.dof_armature[d])
        springs, dampers = not self._off("SPRING", "PASSIVE"), not self._off("DAMPER", "PASSIVE")
        self._refuse_in(j, stiffness, damping, friction, armature)
        if kind in (FREE, BALL):
            turning = next(x for x in m.joints if x.name == name)
            names = [c.name for c in turning.coordinates]
            if damping[0] and dampers:
                for c in names[:-3]:
                    m = m.damper(c, damping=damping[0])
                m = m.element(name, names[-3:], force=ball_damping, parameters={"damping": damping[0]})
            return m
        if stiffness.any() and springs:
            rest = float(model.qpos_spring[model.jnt_qposadr[j]])
            m = m.spring(name, stiffness=stiffness[0], cubic=stiffness[2], rest=rest)
        if damping.any() and dampers:
            m = m.damper(name, damping=damping[0], cubic=damping[2])
        if friction and not self._off("FRICTIONLOSS", "CONSTRAINT"):
            m = m.friction(name, coulomb=friction)
        if armature:
            m = m.armature(name, inertia=armature)
        return m

    def _powers(self, what: str, i: int) -> Array:
        """The coefficients of the first, second and third power; the higher ones came with later versions."""
        higher = getattr(self.model, f"{what}poly", None)
        return np.array([getattr(self.model, what)[i], *(higher[i] if higher is not None else (0.0, 0.0))])

    def _refuse_in(self, j: int, stiffness: Array, damping: Array, friction: float, armature: float) -> None:
        who = f"joint '{self.model.joint(j).name}'"
        for what, value in (("damping", damping), ("frictionloss", friction), ("armature", armature)):
            if np.any(np.less(value, 0.0)):
                raise MechidError(f"the {what} of {who} is negative.")
        for what, value in (("stiffness", stiffness), ("damping", damping)):
            if value[1]:
                raise MechidError(f"the {what} of {who} has a quadratic part, which is not supported.")
        if np.any(getattr(self.model, "jnt_springyield", np.zeros(j + 1))[j]):
            raise MechidError(f"the spring of {who} yields, which is not supported.")
        if self.model.jnt_type[j] in (FREE, BALL):
            kind = "ball" if self.model.jnt_type[j] == BALL else "free"
            found = {"stiffness": stiffness.any(), "frictionloss": friction, "armature": armature}
            found["cubic damping"] = damping[2]
            for what, value in found.items():
                if value:
                    raise MechidError(f"{what} of a {kind} joint is not supported, and {who} has it.")

    # Actuators and notes

    def _actuators(self, m: Mechanism, motors: bool) -> Mechanism:
        """Motors; without them what their rotors do to the joints stays."""
        joint = {self.model.joint(j).name: self.joint[j] for j in range(self.model.njnt)}
        servos = []
        for a in self.source.actuators:
            taken = fit(a.name) in m.coordinate_names
            name = self.names.new("motor", f"{a.name}.motor" if taken else a.name)
            on = joint[a.joint]
            if motors:
                m = m.motor(on, gain=a.gain, gear_ratio=a.gear, rotor_inertia=a.rotor, name=name)
            elif a.rotor:
                m = m.armature(on, inertia=a.gear**2 * a.rotor, name=name)
            if a.damping and not self._off("DAMPER", "PASSIVE"):
                m = m.damper(on, damping=a.gear**2 * a.damping, name=name)
            if a.law and motors:
                servos.append(name)
        if servos:
            self.notes.append(
                f"The inputs of these servos are forces before the gear, their laws are left out: {listed(servos)}."
            )
        return m

    def _more_notes(self) -> list[str]:
        model, notes = self.model, []
        if self.inferred:
            notes.append(
                f"The inertia of these bodies is inferred from their geoms: {listed(self.inferred)}."
            )
        if self.changed:
            notes.append(
                "The file's settings (inertiafromgeom, balanceinertia, bounds, settotalmass) change the inertia of "
                f"these bodies, and so it is here: {listed(self.changed)}."
            )
        flags = ("GRAVITY", "SPRING", "DAMPER", "PASSIVE", "FRICTIONLOSS", "EQUALITY", "CONSTRAINT")
        off = [flag.lower() for flag in flags if self._off(flag)]
        if off:
            notes.append(f"Left out because the file's flags switch it off: {listed(off)}.")
        limited = [j for j in range(model.njnt) if model.jnt_limited[j]]
        balls = [self.joint[j] for j in limited if model.jnt_type[j] == BALL]
        if balls:
            notes.append(f"The range of ball joints is left out: {listed(balls)}.")
        if len(limited) > len(balls):
            notes.append("Limits of joints are information: nothing acts at them.")
        if any(model.dof_frictionloss):
            notes.append("Dry friction is smooth here: its step at rest is rounded over friction_width.")
        for j in range(model.njnt):
            if model.jnt_type[j] == FREE:
                b = model.jnt_bodyid[j]
                notes.append(
                    f"The free body {self.body[b]} stands at {numbers(model.body_pos[b])} m in the file; its "
                    "coordinates are its place and angles in the world, zero unless given."
                )
        return notes
