"""`Mechanism`: what a person reads and writes. Immutable; every method returns a new mechanism.

    pendulum = (
        Mechanism("pendulum")
        .body("rod", mass=1.0, com=(0, 0, -0.5), inertia=(0.1, 0.1, 0.01))
        .revolute("hinge", "world", "rod", axis="y")
        .damper("hinge", damping=0.02)
        .torque("hinge")
    )

SI units throughout: m, kg, s, rad, N, N·m.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from mechid.errors import MechidError, choices, unknown
from mechid.model import closures
from mechid.model.addresses import Layout, written
from mechid.model.geometry import Array, finite, inertia_matrix, numeric, rotation_matrix, unit
from mechid.model.parts import (
    Armature,
    Body,
    Combination,
    Contact,
    Coordinate,
    Coupling,
    Custom,
    Damper,
    Drive,
    DryFriction,
    Element,
    Frame,
    Friction,
    GearFriction,
    Joint,
    LineSpring,
    LoadFriction,
    Loop,
    LowerStop,
    Motor,
    Offset,
    PeriodicFriction,
    PiecewiseSpring,
    Spring,
    UpperStop,
    Wrench,
    check_function,
)
from mechid.model.printing import describe
from mechid.model.system import System

if TYPE_CHECKING:
    from mechid.dynamics.lowering import Lowering
    from mechid.dynamics.model import TreeModel

WORLD = "world"


@dataclass(frozen=True, eq=False, repr=False)
class Mechanism(System):
    """Named bodies, joints, frames, loops and elements under gravity."""

    name: str = "mechanism"
    gravity: Any = (0.0, 0.0, -9.81)
    """m/s², in world axes"""
    bodies: tuple[Body, ...] = field(default=(), kw_only=True)
    joints: tuple[Joint, ...] = field(default=(), kw_only=True)
    frames: tuple[Frame, ...] = field(default=(), kw_only=True)
    loops: tuple[Loop, ...] = field(default=(), kw_only=True)
    couplings: tuple[Coupling, ...] = field(default=(), kw_only=True)
    combinations: tuple[Combination, ...] = field(default=(), kw_only=True)
    drives: tuple[Drive, ...] = field(default=(), kw_only=True)
    elements: tuple[Element, ...] = field(default=(), kw_only=True)
    delays: Mapping[str, float] = field(default_factory=dict, kw_only=True)
    """s, by input: how much later it acts than it was logged; 0 where absent"""
    notes: tuple[str, ...] = field(default=(), kw_only=True)
    """sentences on what the file it was read from holds and it leaves out or changes"""

    def __post_init__(self) -> None:
        object.__setattr__(self, "gravity", finite(self.gravity, (3,), "Gravity"))

    # Bodies and joints

    def body(
        self,
        name: str,
        *,
        mass: float = 0.0,
        com: ArrayLike = (0.0, 0.0, 0.0),
        inertia: ArrayLike | None = None,
    ) -> Mechanism:
        """Add a body: mass (kg), centre of mass (m), inertia about it (kg·m²; 3, 6 or 3×3 numbers)."""
        self._new(name, "body", [WORLD, *self.frame_names])
        kilograms = float(finite(mass, (), f"The mass of body '{name}'"))
        if kilograms < 0.0:
            raise MechidError(f"The mass of body '{name}' is {kilograms:g} kg; it must be ≥ 0.")
        part = Body(
            name,
            kilograms,
            finite(com, (3,), f"The centre of mass of body '{name}'"),
            inertia_matrix(inertia, f"The inertia of body '{name}'"),
        )
        return dataclasses.replace(self, bodies=(*self.bodies, part))

    def revolute(
        self,
        name: str,
        parent: str,
        child: str,
        *,
        axis: str | ArrayLike = "z",
        limits: Sequence[float] = (-np.inf, np.inf),
        max_rate: float = np.inf,
        max_force: float = np.inf,
        **at: Any,
    ) -> Mechanism:
        """A hinge about `axis` (in the joint's frame). `origin` and `rotation` place the joint's frame.

        limits (rad), max_rate (rad/s) and max_force (N·m) say what the real joint can do; nothing acts there.
        """
        able = _abilities(name, limits, max_rate, max_force)
        return self._join(name, "revolute", parent, child, [(True, axis)], able=able, **at)

    def prismatic(
        self,
        name: str,
        parent: str,
        child: str,
        *,
        axis: str | ArrayLike = "z",
        limits: Sequence[float] = (-np.inf, np.inf),
        max_rate: float = np.inf,
        max_force: float = np.inf,
        **at: Any,
    ) -> Mechanism:
        """A slide along `axis`; limits (m), max_rate (m/s) and max_force (N) as for a hinge."""
        able = _abilities(name, limits, max_rate, max_force)
        return self._join(name, "prismatic", parent, child, [(False, axis)], able=able, **at)

    def fixed(self, name: str, parent: str, child: str, **at: Any) -> Mechanism:
        """A rigid connection."""
        return self._join(name, "fixed", parent, child, [], **at)

    def universal(
        self,
        name: str,
        parent: str,
        child: str,
        *,
        axes: Sequence[str | ArrayLike] = ("x", "y"),
        **at: Any,
    ) -> Mechanism:
        """Two hinges in a row through one point: first about axes[0], then about the turned axes[1]."""
        return self._join(name, "universal", parent, child, _turns(name, axes), **at)

    def spherical(
        self,
        name: str,
        parent: str,
        child: str,
        *,
        axes: Sequence[str | ArrayLike] = ("x", "y", "z"),
        **at: Any,
    ) -> Mechanism:
        """Three hinges in a row through one point (Cardan angles; singular where the second is ±π/2)."""
        return self._join(name, "spherical", parent, child, _turns(name, axes), **at)

    def floating(self, name: str, parent: str, child: str, **at: Any) -> Mechanism:
        """Six free coordinates: translations along x, y, z, then Cardan angles about x, y, z."""
        axes = [(turn, a) for turn in (False, True) for a in "xyz"]
        return self._join(name, "floating", parent, child, axes, **at)

    def _join(
        self,
        name: str,
        kind: str,
        parent: str,
        child: str,
        axes: Sequence[tuple[bool, str | ArrayLike]],
        *,
        origin: ArrayLike = (0.0, 0.0, 0.0),
        rotation: ArrayLike | None = None,
        coordinates: Sequence[str] | str | None = None,
        able: tuple[float, float, float, float] = (-np.inf, np.inf, np.inf, np.inf),
        **odd: Any,
    ) -> Mechanism:
        self._new(name, "joint", [j.name for j in self.joints])
        for argument in odd:
            raise unknown(f"argument (for joint '{name}')", argument, ("origin", "rotation", "coordinates"))
        bodies = [b.name for b in self.bodies]
        if parent not in (WORLD, *bodies):
            raise unknown(f"parent body for joint '{name}'", parent, [WORLD, *bodies])
        if child not in bodies:
            raise unknown(f"child body for joint '{name}'", child, bodies)
        if child in self._joint_of:
            raise MechidError(
                f"Body '{child}' already hangs on joint '{self._joint_of[child].name}'; joint '{name}' "
                "would be its second parent: close a loop with loop(…) instead."
            )
        ancestor = parent
        while ancestor in self._joint_of:
            ancestor = self._joint_of[ancestor].parent
        if ancestor == child:
            raise MechidError(
                f"Joint '{name}' from '{parent}' to '{child}' would make a cycle: "
                f"'{parent}' already hangs on '{child}'. Close a loop with loop(…) instead."
            )
        vectors = [unit(a, f"The axis of joint '{name}'") for _, a in axes]
        want = {"universal": 2, "spherical": 3}.get(kind, len(vectors))
        if len(vectors) != want:
            raise MechidError(f"A {kind} joint has {want} axes; '{name}' was given {len(vectors)}.")
        if kind in ("universal", "spherical"):
            gram = np.abs(np.array(vectors) @ np.array(vectors).T - np.eye(want))
            if gram.max() > 1e-9:
                raise MechidError(f"The axes of {kind} joint '{name}' must be perpendicular.")
        names = self._coordinate_names(name, kind, axes, coordinates)
        parts = tuple(
            Coordinate(n, turn, (float(v[0]), float(v[1]), float(v[2])), *able)
            for n, (turn, _), v in zip(names, axes, vectors, strict=True)
        )
        joint = Joint(
            name,
            kind,
            parent,
            child,
            finite(origin, (3,), f"The origin of joint '{name}'"),
            rotation_matrix(rotation, f"The rotation of joint '{name}'"),
            parts,
        )
        return dataclasses.replace(self, joints=(*self.joints, joint))

    def _coordinate_names(
        self,
        name: str,
        kind: str,
        axes: Sequence[tuple[bool, Any]],
        given: Sequence[str] | str | None,
    ) -> list[str]:
        if given is not None:
            names = _names(given, f"The coordinates of joint '{name}'")
        elif len(axes) == 1:
            names = [name]
        elif kind == "floating":
            names = [f"{name}.{n}" for n in ("x", "y", "z", "roll", "pitch", "yaw")]
        else:
            names = [f"{name}.{i + 1}" for i in range(len(axes))]
        if len(names) != len(axes):
            given = "1 name was" if len(names) == 1 else f"{len(names)} names were"
            raise MechidError(f"Joint '{name}' has {len(axes)} coordinates, {given} given.")
        for i, n in enumerate(names):
            self._new(n, "coordinate", [*self._axis_names, *names[:i]])
        return names

    # Frames, loops, couplings

    def frame(
        self,
        name: str,
        body: str,
        *,
        origin: ArrayLike = (0.0, 0.0, 0.0),
        rotation: ArrayLike | None = None,
    ) -> Mechanism:
        """A named frame fixed to a body or to the world."""
        self._new(name, "frame", self.frame_names)
        bodies = [WORLD, *(b.name for b in self.bodies)]
        if body not in bodies:
            raise unknown(f"body for frame '{name}'", body, bodies)
        part = Frame(
            name,
            body,
            finite(origin, (3,), f"The origin of frame '{name}'"),
            rotation_matrix(rotation, f"The rotation of frame '{name}'"),
        )
        return dataclasses.replace(self, frames=(*self.frames, part))

    def loop(
        self,
        name: str,
        first: str,
        second: str,
        *,
        kind: str = "frame",
        axis: str | ArrayLike = "z",
    ) -> Mechanism:
        """Close a loop between two frames.

        kind: "point" (origins coincide, 3 rows), "frame" (origins and axes coincide, 6 rows),
        "point-on-axis" (the same in the papers' form, 6 rows), "axis" (`axis` of both along one line, either
        way, 2 rows), "planar" (second's origin in first's plane, normals along `axis` parallel, 3 rows), "pin"
        (origins coincide seen along first's `axis`, 2 rows: what closes a mechanism that moves in a plane).
        """
        self._new(name, "loop", self._constraint_names)
        for f in (first, second):
            self._frame_known(f, f"loop '{name}'")
        if first == second:
            raise MechidError(f"Loop '{name}' joins frame '{first}' to itself.")
        rows = closures.rows(name, kind, first, second, unit(axis, f"The axis of loop '{name}'"))
        return dataclasses.replace(self, loops=(*self.loops, Loop(name, kind, first, second, rows)))

    def coupling(
        self,
        name: str,
        coordinate: str,
        other: str,
        *,
        ratio: float = 1.0,
        offset: float = 0.0,
        higher: Sequence[float] = (),
    ) -> Mechanism:
        """coordinate = offset + ratio·other + higher[0]·other² + … (gears, mimic joints)."""
        self._new(name, "coupling", self._constraint_names)
        for c in (coordinate, other):
            self.coordinate(c)
        if coordinate == other:
            raise MechidError(f"Coupling '{name}' couples coordinate '{coordinate}' to itself.")
        higher = numeric(higher, f"The higher coefficients of coupling '{name}'").ravel().tolist()
        if len(higher) > 3:
            raise MechidError(
                f"Coupling '{name}' goes up to the fourth power of '{other}': 3 higher coefficients at most, "
                f"not {len(higher)}."
            )
        powers = [*higher, *[0.0] * (3 - len(higher))]
        numbers = finite([offset, ratio, *powers], (5,), f"The coefficients of coupling '{name}'")
        part = Coupling(name, coordinate, other, *(float(x) for x in numbers))
        return dataclasses.replace(self, couplings=(*self.couplings, part))

    def combination(self, name: str, ratios: Mapping[str, float]) -> Mechanism:
        """Σ ratio·coordinate, which elements and sensors may name as they name a coordinate.

        A gear's twist, for instance: combination("twist", {"motor": 1.0, "link": -101.0}). It is an angle or a
        length as its first coordinate is, and has no freedom of its own.
        """
        self._new(name, "coordinate", self._axis_names)
        if not isinstance(ratios, Mapping) or not ratios:
            raise MechidError(
                f"The ratios of combination '{name}' are numbers by coordinate, {{'motor': 1.0, 'link': -101.0}}, "
                f"not {ratios!r}."
            )
        numbers = [finite(r, (), f"The ratio of '{c}' in combination '{name}'") for c, r in ratios.items()]
        part = Combination(name, tuple(map(self.coordinate, ratios)), tuple(map(float, numbers)))
        return dataclasses.replace(self, combinations=(*self.combinations, part))

    def drive(self, coordinate: str, *, name: str | None = None) -> Mechanism:
        """Let a coordinate follow a path: an input that gives its value at the end of each step."""
        self.coordinate(coordinate)
        name = name or f"{coordinate}.drive"
        self._new(name, "drive", self._constraint_names)
        if any(d.coordinate == coordinate for d in self.drives):
            raise MechidError(f"Coordinate '{coordinate}' is driven already.")
        return self._with_inputs(drives=(*self.drives, Drive(name, coordinate)))

    # Elements

    def spring(
        self,
        coordinate: str,
        *,
        stiffness: float,
        cubic: float = 0.0,
        rest: float = 0.0,
        name: str | None = None,
    ) -> Mechanism:
        """A spring on a coordinate: N·m/rad or N/m, cubic part per cube, rest in rad or m."""
        return self._on(Spring, name, coordinate, stiffness, cubic, rest)

    def damper(
        self, coordinate: str, *, damping: float, cubic: float = 0.0, name: str | None = None
    ) -> Mechanism:
        """A viscous damper on a coordinate (N·m·s/rad or N·s/m)."""
        return self._on(Damper, name, coordinate, damping, cubic)

    def friction(
        self,
        coordinate: str,
        *,
        coulomb: float,
        stribeck: float = 0.0,
        stribeck_velocity: float = 0.1,
        stribeck_exponent: float = 2.0,
        width: float = 0.01,
        name: str | None = None,
    ) -> Mechanism:
        """Smooth Coulomb friction (N·m or N); `stribeck` is what breaking away takes beyond it."""
        _not_negative(coulomb, f"The coulomb level of friction on '{coordinate}'")
        self._shape("friction", coordinate, width, stribeck_velocity, stribeck_exponent)
        return self._on(
            Friction, name, coordinate, coulomb, stribeck, stribeck_velocity, stribeck_exponent, width
        )

    def piecewise_spring(
        self,
        coordinate: str,
        *,
        stiffness: Sequence[float],
        loads: Sequence[float],
        rest: float = 0.0,
        name: str | None = None,
    ) -> Mechanism:
        """A spring as gear makers state it: stiffness K₁ up to the load ±T₁, K₂ up to ±T₂, K₃ beyond.

        stiffness: three numbers (N·m/rad or N/m); loads: T₁ and T₂ (N·m or N).
        """
        who = f"piecewise spring on '{coordinate}'"
        stiff = finite(stiffness, (3,), f"The stiffness of the {who}")
        limits = finite(loads, (2,), f"The loads of the {who}")
        if not np.all(stiff > 0.0) or not 0.0 <= limits[0] <= limits[1]:
            raise MechidError(
                f"The {who} needs three stiffnesses > 0 and loads 0 ≤ T₁ ≤ T₂, not {stiff.tolist()} and "
                f"{limits.tolist()}."
            )
        return self._on(PiecewiseSpring, name, coordinate, *stiff, *limits, rest)

    def gear_friction(
        self,
        coordinate: str,
        *,
        coulomb: float = 0.0,
        slow_damping: float = 0.0,
        width: float = 0.01,
        stribeck_velocity: float = 0.1,
        stribeck_exponent: float = 1.0,
        name: str | None = None,
    ) -> Mechanism:
        """Friction C₁ tanh(v/w) + C₂ v exp(−|v/v_S|^δ): Coulomb level C₁, damping C₂ of slow motion."""
        shape = self._shape("gear friction", coordinate, width, stribeck_velocity, stribeck_exponent)
        return self._on(GearFriction, name, coordinate, coulomb, slow_damping, *shape)

    def load_friction(
        self,
        coordinate: str,
        *,
        load: str,
        coefficient: float = 0.0,
        slow_coefficient: float = 0.0,
        width: float = 0.01,
        stribeck_velocity: float = 0.1,
        stribeck_exponent: float = 1.0,
        name: str | None = None,
    ) -> Mechanism:
        """Friction |T| (μ tanh(v/w) + (v/ω₂) exp(−|v/v_S|^δ)), T what springs and dampers on `load` transmit.

        coefficient: μ; slow_coefficient: 1/ω₂ (s/rad or s/m). load: a coordinate or combination.
        """
        self.axis(load)
        shape = self._shape("load friction", coordinate, width, stribeck_velocity, stribeck_exponent)
        return self._on(LoadFriction, name, coordinate, coefficient, slow_coefficient, *shape, load=load)

    def _shape(self, kind: str, coordinate: str, *numbers: float) -> tuple[float, ...]:
        """Width, Stribeck velocity and exponent of friction, checked."""
        for what, value in zip(("width", "stribeck_velocity", "stribeck_exponent"), numbers, strict=True):
            who = f"The {what} of {kind} on '{coordinate}'"
            if not finite(value, (), who) > 0.0:
                raise MechidError(f"{who} must be > 0, not {value:g}.")
        return numbers

    def periodic_friction(
        self,
        coordinate: str,
        *,
        sine: float = 0.0,
        cosine: float = 0.0,
        cycles: float = 1.0,
        name: str | None = None,
    ) -> Mechanism:
        """A force −A₁ sin(n q) − A₂ cos(n q) (N·m or N) that comes again n = `cycles` times a turn."""
        if not finite(cycles, (), f"The cycles of periodic friction on '{coordinate}'") > 0.0:
            raise MechidError(
                f"The cycles of periodic friction on '{coordinate}' must be > 0, not {cycles:g}."
            )
        return self._on(PeriodicFriction, name, coordinate, sine, cosine, cycles)

    def dry_friction(
        self,
        coordinate: str,
        *,
        coulomb: float = 0.0,
        stribeck: float = 0.0,
        stribeck_velocity: float = 0.1,
        stribeck_exponent: float = 2.0,
        load_coefficient: float = 0.0,
        load_radius: float = 1.0,
        name: str | None = None,
    ) -> Mechanism:
        """Dry friction that sticks: Coulomb level, Stribeck excess (N·m or N), and a part of the joint's load."""
        levels = {"coulomb": coulomb, "stribeck": stribeck, "load_coefficient": load_coefficient}
        for what, value in levels.items():
            _not_negative(value, f"The {what} of dry friction on '{coordinate}'")
        shape = {"stribeck_velocity": stribeck_velocity, "stribeck_exponent": stribeck_exponent}
        for what, value in (shape | {"load_radius": load_radius}).items():
            who = f"The {what} of dry friction on '{coordinate}'"
            if not finite(value, (), who) > 0.0:
                raise MechidError(f"{who} must be > 0, not {value:g}.")
        joint = next((j for j in self.joints if coordinate in [c.name for c in j.coordinates]), None)
        if load_coefficient and joint is not None and len(joint.coordinates) == 6:
            raise MechidError(
                f"The load_coefficient of dry friction on '{coordinate}' is {load_coefficient:g}, but joint "
                f"'{joint.name}' is {joint.kind}: it locks nothing and carries no load; leave it at 0."
            )
        numbers = (*levels.values(), load_radius)
        return self._on(DryFriction, name, coordinate, *numbers[:2], *shape.values(), *numbers[2:])

    def stops(
        self,
        coordinate: str,
        *,
        lower: float | None = None,
        upper: float | None = None,
        name: str | None = None,
    ) -> Mechanism:
        """Ends of a coordinate's way (rad or m): what hits one stays there until it is drawn away.

        Impacts are not modelled: all speed towards a stop is lost.
        """
        who = f"The stops of '{coordinate}'"
        if lower is None and upper is None:
            raise MechidError(f"{who} need lower=…, upper=… or both.")
        if lower is not None and upper is not None and not finite([lower, upper], (2,), who)[0] < upper:
            raise MechidError(f"{who} must have lower < upper, not {lower:g} and {upper:g}.")
        new = self
        for kind, at in ((LowerStop, lower), (UpperStop, upper)):
            new = new if at is None else new._on(kind, name, coordinate, at)
        return new

    def contact(self, name: str, *, point: str, plane: str, friction: float = 0.0) -> Mechanism:
        """A frame's origin that stays above the xy plane of another frame, with dry friction along the plane.

        Impacts are not modelled: all speed towards the plane is lost.
        """
        for f in (point, plane):
            self._frame_known(f, f"contact '{name}'")
        if point == plane:
            raise MechidError(f"Contact '{name}' is between frame '{point}' and itself.")
        _not_negative(friction, f"The friction of contact '{name}'")
        return self._add(Contact(name, point, plane, float(friction)))

    def motor(
        self,
        coordinate: str,
        *,
        gain: float = 1.0,
        gear_ratio: float = 1.0,
        rotor_inertia: float = 0.0,
        name: str | None = None,
    ) -> Mechanism:
        """A motor on a coordinate: one input u, force gear_ratio·gain·u, inertia gear_ratio²·rotor."""
        _not_negative(rotor_inertia, f"The rotor_inertia of the motor on '{coordinate}'")
        return self._on(Motor, name or f"{coordinate}.motor", coordinate, gain, gear_ratio, rotor_inertia)

    def torque(self, coordinate: str, *, name: str | None = None) -> Mechanism:
        """An input that is the torque (N·m) or force (N) on a coordinate."""
        return self._on(Motor, name or f"{coordinate}.torque", coordinate)

    def armature(self, coordinate: str, *, inertia: float, name: str | None = None) -> Mechanism:
        """Inertia (kg·m² or kg) felt by a coordinate's own velocity: a reflected rotor."""
        _not_negative(inertia, f"The armature on '{coordinate}'")
        return self._on(Armature, name, coordinate, inertia)

    def offset(self, coordinate: str, *, force: float = 0.0, name: str | None = None) -> Mechanism:
        """A constant force (N·m or N) on a coordinate."""
        return self._on(Offset, name, coordinate, force)

    def line_spring(
        self,
        name: str,
        first: str,
        second: str,
        *,
        stiffness: float,
        cubic: float = 0.0,
        rest: float = 0.0,
        damping: float = 0.0,
    ) -> Mechanism:
        """A spring and damper along the line between two frames (N/m, N/m³, m, N·s/m)."""
        for f in (first, second):
            self._frame_known(f, f"line spring '{name}'")
        if first == second:
            raise MechidError(f"Line spring '{name}' joins frame '{first}' to itself.")
        what = f"The values of line spring '{name}'"
        values = finite([stiffness, cubic, rest, damping], (4,), what)
        return self._add(LineSpring(name, first, second, *(float(x) for x in values)))

    def force(self, name: str, frame: str, *, axes: str = "world", moment: bool = False) -> Mechanism:
        """A force (N) at a frame as three inputs, and with `moment` a moment (N·m) as three more.

        axes: "world", or "body" for the frame's own axes.
        """
        self._frame_known(frame, f"force '{name}'")
        if axes not in ("world", "body"):
            raise MechidError(f"The axes of force '{name}' are '{axes}'; valid: world, body.")
        return self._add(Wrench(name, frame, axes, bool(moment)))

    def delayed(self, input: str, delay: float) -> Mechanism:
        """The same with an input (by its name) that acts so much later than it was logged, s.

        Estimators shift logged inputs by it; `simulate` takes inputs as they act. It may be free: "motor.delay".
        """
        if input not in self.input_names:
            raise unknown("input", input, self.input_names)
        late = float(finite(delay, (), f"The delay of input '{input}'"))
        return dataclasses.replace(self, delays={**self.delays, input: late})

    def element(
        self,
        name: str,
        coordinates: Sequence[str] | str,
        *,
        force: Callable[..., Any] | None = None,
        potential: Callable[..., Any] | None = None,
        parameters: dict[str, float] | None = None,
    ) -> Mechanism:
        """A user-written element on some coordinates, in jax.numpy.

        force(q, v, t, p) gives the forces on these coordinates; potential(q, p) gives an energy (J). q and v
        hold these coordinates only, p the numbers of `parameters` in their order.
        """
        if (force is None) == (potential is None):
            raise MechidError(f"Element '{name}' needs either force=… or potential=….")
        on = tuple(_names(coordinates, f"The coordinates of element '{name}'"))
        if not on or len(set(on)) < len(on):
            raise MechidError(f"Element '{name}' needs one or more different coordinates.")
        for c in on:
            self.axis(c)
        function = force if force is not None else potential
        if not callable(function):
            raise MechidError(f"Element '{name}' needs a function, not {function!r}.")
        if not isinstance(parameters, dict | None):
            raise MechidError(
                f"The parameters of element '{name}' are numbers by name, {{'k': 1.0}}, not {parameters!r}."
            )
        values = []
        for key, value in (parameters or {}).items():
            self._new(key, f"parameter of element '{name}'", ())
            what = f"The parameter '{key}' of element '{name}'"
            values.append((key, float(finite(value, (), what))))
        part = Custom(name, on, function, potential is not None, tuple(values))
        check_function(part)
        return self._add(part)

    def _on(self, kind: Any, name: str | None, coordinate: str, *values: float, **more: Any) -> Mechanism:
        if kind in (DryFriction, LowerStop, UpperStop) and coordinate in self._combination_names:
            raise MechidError(
                f"Dry friction and stops act on a coordinate, and '{coordinate}' is a combination of some."
            )
        self.axis(coordinate)
        label = name or coordinate
        what = f"of {kind.__name__.lower()} '{label}'"
        named = zip(kind.quantities, values, strict=False)
        checked = [float(finite(value, (), f"The {quantity} {what}")) for quantity, value in named]
        numbers = dict(zip(kind.quantities, checked, strict=False))
        return self._add(kind(label, coordinate, **numbers, **more))

    def _add(self, element: Element) -> Mechanism:
        self._new(
            element.name,
            type(element).__name__.lower(),
            [e.name for e in self.elements if type(e) is type(element)],
        )
        return self._with_inputs(elements=(*self.elements, element))

    def _with_inputs(self, **parts: Any) -> Mechanism:
        """This mechanism with new parts, if every input still has a name of its own."""
        new = dataclasses.replace(self, **parts)
        names = new.input_names
        if len(set(names)) < len(names):
            name = next(n for n in names if names.count(n) > 1)
            raise MechidError(f"There is an input named '{name}' already: names must be unique.")
        return new

    def _new(self, name: str, kind: str, taken: Sequence[str]) -> None:
        if not isinstance(name, str) or not name or set(name) & set("*?[] \t\n"):
            raise MechidError(
                f"{name!r} is not a name for a {kind}: use a text without blanks, *, ? or brackets."
            )
        if name in taken:
            raise MechidError(f"There is a {kind} named '{name}' already: names must be unique.")

    def _frame_known(self, name: str, where: str) -> None:
        if name not in self.frame_names:
            raise unknown(f"frame (for {where})", name, self.frame_names)

    # Looking things up

    @cached_property
    def _joint_of(self) -> dict[str, Joint]:
        return {j.child: j for j in self.joints}

    @property
    def _constraint_names(self) -> list[str]:
        return [c.name for c in (*self.loops, *self.couplings, *self.drives)]

    @cached_property
    def coordinates(self) -> tuple[Coordinate, ...]:
        """The generalized coordinates, in the order in which their joints were added."""
        return tuple(c for j in self.joints for c in j.coordinates)

    @property
    def _combination_names(self) -> tuple[str, ...]:
        return tuple(c.name for c in self.combinations)

    @property
    def _axis_names(self) -> tuple[str, ...]:
        return (*self.coordinate_names, *self._combination_names)

    @property
    def frame_names(self) -> tuple[str, ...]:
        """The world, every body's own frame, and the named frames."""
        return (WORLD, *(b.name for b in self.bodies), *(f.name for f in self.frames))

    @cached_property
    def input_names(self) -> tuple[str, ...]:
        """The inputs u in their order: motors and forces as they were added, then drives."""
        names: list[str] = []
        for e in self.elements:
            if isinstance(e, Motor):
                names.append(e.name)
            elif isinstance(e, Wrench):
                parts = ("fx", "fy", "fz", "mx", "my", "mz") if e.moment else ("x", "y", "z")
                names += [f"{e.name}.{p}" for p in parts]
        return (*names, *(d.name for d in self.drives))

    @cached_property
    def constraint_names(self) -> tuple[str, ...]:
        """One name a constraint row, in the order of the multipliers."""
        geometric = [f"{l.name}[{i}]" for l in self.loops for i in range(len(l.rows))]
        return (*geometric, *(c.name for c in self.couplings), *(d.name for d in self.drives))

    def checked(self) -> Mechanism:
        """This mechanism, if it is complete: every body hangs on a joint and something can move."""
        loose = [b.name for b in self.bodies if b.name not in self._joint_of]
        if loose:
            raise MechidError(f"These bodies hang on no joint: {choices(loose)}.")
        if not self.coordinates:
            raise MechidError(f"Mechanism '{self.name}' has no joint that moves.")
        return self

    def lower(self) -> TreeModel:
        """The mechanism as arrays: what the compiled code sees."""
        from mechid.dynamics.lowering import lower

        return lower(self)

    def lowered(self) -> Lowering:
        from mechid.dynamics.lowering import Lowering

        return Lowering(self)

    def renewed(self, layout: Layout, values: Array, tens: dict[int, Array]) -> Mechanism:
        return written(self, layout, values, tens)

    def __repr__(self) -> str:
        return describe(self)


def _names(names: Sequence[str] | str, what: str) -> list[str]:
    """One name or a list of names as a list."""
    if isinstance(names, str):
        return [names]
    if not isinstance(names, Sequence):
        raise MechidError(f"{what} are a name or a list of names, not {names!r}.")
    return list(names)


def _turns(joint: str, axes: Sequence[str | ArrayLike]) -> list[tuple[bool, str | ArrayLike]]:
    if not isinstance(axes, Sequence | np.ndarray):
        raise MechidError(f"The axes of joint '{joint}' are a list of axes, not {axes!r}.")
    return [(True, a) for a in axes]


def _not_negative(value: float, what: str) -> None:
    if finite(value, (), what) < 0.0:
        raise MechidError(f"{what} is {value:g}; it must be ≥ 0.")


def _abilities(
    joint: str, limits: Sequence[float], max_rate: float, max_force: float
) -> tuple[float, float, float, float]:
    """Lower and upper limit, largest rate and largest force of a joint, checked; each may be infinite."""
    ends = numeric(limits, f"The limits of joint '{joint}'")
    if ends.shape != (2,) or not ends[0] <= ends[1]:
        raise MechidError(
            f"The limits of joint '{joint}' are {ends.tolist()}: they must be two numbers, the lower one first."
        )
    for what, value in (("rate", max_rate), ("force", max_force)):
        number = numeric(value, f"The largest {what} of joint '{joint}'")
        if number.shape != () or not number >= 0.0:
            raise MechidError(f"The largest {what} of joint '{joint}' is {value}; it must be ≥ 0.")
    return float(ends[0]), float(ends[1]), float(max_rate), float(max_force)
