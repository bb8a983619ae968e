"""The parts of a mechanism: bodies, joints, frames, loops and elements, as immutable data with units."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from mechid.errors import MechidError
from mechid.model.geometry import Array


@dataclass(frozen=True, eq=False)
class Body:
    """A rigid body. Its frame is the frame of the joint that carries it."""

    name: str
    mass: float
    """kg"""
    com: Array
    """centre of mass in the body's frame, m"""
    inertia: Array
    """3×3 about the centre of mass, along the body's axes, kg·m²"""


@dataclass(frozen=True)
class Coordinate:
    """One generalized coordinate: a rotation about or a translation along an axis of its joint."""

    name: str
    revolute: bool
    axis: tuple[float, float, float]
    lower: float = -np.inf
    upper: float = np.inf
    """rad or m: how far the real joint goes; no force acts there"""
    max_rate: float = np.inf
    """rad/s or m/s"""
    max_force: float = np.inf
    """N·m or N: the most that what drives the real joint can give"""

    @property
    def unit(self) -> str:
        return "rad" if self.revolute else "m"

    @property
    def force_unit(self) -> str:
        return "N·m" if self.revolute else "N"


@dataclass(frozen=True, eq=False)
class Joint:
    """What connects a body to its parent: coordinates in a row, from the parent's side to the child's."""

    name: str
    kind: str
    parent: str
    child: str
    origin: Array
    """position of the joint's frame in the parent's, m"""
    rotation: Array
    """orientation of the joint's frame in the parent's"""
    coordinates: tuple[Coordinate, ...]


@dataclass(frozen=True, eq=False)
class Frame:
    """A named frame fixed to a body."""

    name: str
    body: str
    origin: Array
    """m"""
    rotation: Array


@dataclass(frozen=True, eq=False)
class Loop:
    """A closure between two frames; its rows vanish when it is closed.

    Each row is n·(x_b − x_a): a direction n fixed in one frame stands perpendicular to the line between two
    points fixed in others. Directions count as lines between two points of one frame.
    """

    name: str
    kind: str
    first: str
    second: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Row:
    """n·(x_b − x_a) = 0, each vector given in the frame that carries it."""

    direction: tuple[str, tuple[float, float, float]]
    to: tuple[str, tuple[float, float, float]]
    start: tuple[str, tuple[float, float, float]]
    unit: str


@dataclass(frozen=True)
class Coupling:
    """coordinate = offset + ratio·other + c2·other² + c3·other³ + c4·other⁴ (gears, mimic joints)."""

    name: str
    coordinate: str
    other: str
    offset: float
    ratio: float
    c2: float = 0.0
    c3: float = 0.0
    c4: float = 0.0

    quantities: ClassVar[dict[str, str]] = {
        "offset": "x", "ratio": "x/y", "c2": "x/y²", "c3": "x/y³", "c4": "x/y⁴"
    }  # fmt: skip


@dataclass(frozen=True)
class Combination:
    """Σ ratio·coordinate, a length or angle on which elements act as on a coordinate (a gear's twist)."""

    name: str
    coordinates: tuple[Coordinate, ...]
    ratios: tuple[float, ...]

    @property
    def revolute(self) -> bool:
        """Whether it is an angle, as its first coordinate is."""
        return self.coordinates[0].revolute

    @property
    def unit(self) -> str:
        return self.coordinates[0].unit

    @property
    def force_unit(self) -> str:
        return self.coordinates[0].force_unit


@dataclass(frozen=True)
class Drive:
    """A coordinate that follows a given path: its input is the coordinate's value at the end of a step."""

    name: str
    coordinate: str


# Elements. `quantities` names the numbers of an element with their units (F and x: the coordinate's own).
# A coordinate may be a combination of some, but for what sticks or stops.


@dataclass(frozen=True)
class Spring:
    """Force −k (q − rest) − k₃ (q − rest)³ on a coordinate, from a potential."""

    name: str
    coordinate: str
    stiffness: float
    cubic_stiffness: float = 0.0
    rest: float = 0.0

    quantities: ClassVar[dict[str, str]] = {
        "stiffness": "F/x", "cubic_stiffness": "F/x³", "rest": "x"
    }  # fmt: skip


@dataclass(frozen=True)
class Damper:
    """Force −b v − b₃ v³ on a coordinate."""

    name: str
    coordinate: str
    damping: float
    cubic_damping: float = 0.0

    quantities: ClassVar[dict[str, str]] = {"damping": "F·s/x", "cubic_damping": "F·s³/x³"}


@dataclass(frozen=True)
class Friction:
    """Smooth dry friction on a coordinate.

    Force −(C + S exp(−|v/v_S|^δ)) tanh(v/w), with Coulomb level C, Stribeck excess S (breaking away takes
    C + S), Stribeck velocity v_S, exponent δ and smoothing width w.
    """

    name: str
    coordinate: str
    coulomb: float
    stribeck: float
    stribeck_velocity: float
    stribeck_exponent: float
    friction_width: float

    quantities: ClassVar[dict[str, str]] = {
        "coulomb": "F",
        "stribeck": "F",
        "stribeck_velocity": "x/s",
        "stribeck_exponent": "1",
        "friction_width": "x/s",
    }


@dataclass(frozen=True)
class GearFriction:
    """Smooth friction of a gear (da Silva, Eq. 4.1): force −C₁ tanh(v/w) − C₂ v exp(−|v/v_S|^δ).

    Coulomb level C₁, damping C₂ that fades beyond the Stribeck velocity v_S with exponent δ, smoothing width w.
    """

    name: str
    coordinate: str
    coulomb: float
    slow_damping: float
    friction_width: float
    stribeck_velocity: float
    stribeck_exponent: float

    quantities: ClassVar[dict[str, str]] = {
        "coulomb": "F",
        "slow_damping": "F·s/x",
        "friction_width": "x/s",
        "stribeck_velocity": "x/s",
        "stribeck_exponent": "1",
    }


@dataclass(frozen=True)
class LoadFriction:
    """The same in proportion to what is transmitted (Eq. 3.5): −|T| (μ tanh(v/w) + (v/ω₂) exp(−|v/v_S|^δ)).

    T is the force of springs and dampers along another coordinate or combination, `load`.
    """

    name: str
    coordinate: str
    load: str
    load_coefficient: float
    slow_coefficient: float
    """1/ω₂"""
    friction_width: float
    stribeck_velocity: float
    stribeck_exponent: float

    quantities: ClassVar[dict[str, str]] = {
        "load_coefficient": "1",
        "slow_coefficient": "s/x",
        "friction_width": "x/s",
        "stribeck_velocity": "x/s",
        "stribeck_exponent": "1",
    }


@dataclass(frozen=True)
class PiecewiseSpring:
    """A spring that stiffens at two loads, as gear makers state it: K₁ up to ±T₁, K₂ up to ±T₂, K₃ beyond."""

    name: str
    coordinate: str
    first_stiffness: float
    second_stiffness: float
    third_stiffness: float
    first_load: float
    second_load: float
    rest: float = 0.0

    quantities: ClassVar[dict[str, str]] = {
        "first_stiffness": "F/x",
        "second_stiffness": "F/x",
        "third_stiffness": "F/x",
        "first_load": "F",
        "second_load": "F",
        "rest": "x",
    }


@dataclass(frozen=True)
class PeriodicFriction:
    """Force −A₁ sin(n q) − A₂ cos(n q), n times a turn; from a potential."""

    name: str
    coordinate: str
    sine: float
    cosine: float
    cycles: float = 1.0

    quantities: ClassVar[dict[str, str]] = {"sine": "F", "cosine": "F", "cycles": "1"}


@dataclass(frozen=True)
class DryFriction:
    """Dry friction on a coordinate that really sticks: any force up to a bound at rest, the bound while it slides.

    The bound is C + S exp(−|v/v_S|^δ) + μ (r Σ |forces| + Σ |moments|): Coulomb level C, Stribeck excess S with
    velocity v_S and exponent δ, and coefficient μ of the load that the coordinate's joint carries, the components
    of its force at a radius r (with `Spook`, `Variational` and `BDF`).
    """

    name: str
    coordinate: str
    coulomb: float
    stribeck: float
    stribeck_velocity: float
    stribeck_exponent: float
    load_coefficient: float
    load_radius: float

    quantities: ClassVar[dict[str, str]] = {
        "coulomb": "F",
        "stribeck": "F",
        "stribeck_velocity": "x/s",
        "stribeck_exponent": "1",
        "load_coefficient": "1",
        "load_radius": "m",
    }


@dataclass(frozen=True)
class LowerStop:
    """The end of a coordinate's way: it does not go below, and is not held there."""

    name: str
    coordinate: str
    lower_stop: float

    quantities: ClassVar[dict[str, str]] = {"lower_stop": "x"}


@dataclass(frozen=True)
class UpperStop:
    """The other end of a coordinate's way."""

    name: str
    coordinate: str
    upper_stop: float

    quantities: ClassVar[dict[str, str]] = {"upper_stop": "x"}


@dataclass(frozen=True)
class Contact:
    """A point (a frame's origin) that stays on the side of a plane to which its z axis points, with dry friction.

    The plane is the xy plane of another frame; friction along each of its axes is at most a coefficient times the
    normal force (a box in the plane).
    """

    name: str
    point: str
    plane: str
    contact_friction: float

    quantities: ClassVar[dict[str, str]] = {"contact_friction": "1"}


@dataclass(frozen=True)
class Motor:
    """Force ratio·gain·u on a coordinate, and the rotor's inertia, ratio²·rotor_inertia, felt by it."""

    name: str
    coordinate: str
    gain: float = 1.0
    gear_ratio: float = 1.0
    rotor_inertia: float = 0.0

    quantities: ClassVar[dict[str, str]] = {
        "gain": "F/input", "gear_ratio": "1", "rotor_inertia": "F·s²/x"
    }  # fmt: skip


@dataclass(frozen=True)
class Armature:
    """Extra inertia felt by a coordinate's own velocity."""

    name: str
    coordinate: str
    armature: float

    quantities: ClassVar[dict[str, str]] = {"armature": "F·s²/x"}


@dataclass(frozen=True)
class Offset:
    """A constant force on a coordinate: what a torque sensor or an amplifier shows at rest."""

    name: str
    coordinate: str
    offset: float

    quantities: ClassVar[dict[str, str]] = {"offset": "F"}


@dataclass(frozen=True)
class LineSpring:
    """A spring and damper along the line between two frames' origins."""

    name: str
    first: str
    second: str
    stiffness: float
    cubic_stiffness: float = 0.0
    rest: float = 0.0
    damping: float = 0.0

    quantities: ClassVar[dict[str, str]] = {
        "stiffness": "N/m", "cubic_stiffness": "N/m³", "rest": "m", "damping": "N·s/m"
    }  # fmt: skip


@dataclass(frozen=True)
class Wrench:
    """A force (and moment) at a frame's origin, an input in the world's or the frame's own axes."""

    name: str
    frame: str
    axes: str
    moment: bool


@dataclass(frozen=True)
class Custom:
    """A user-written element: `force(q, v, t, p)` or `potential(q, p)` of some coordinates."""

    name: str
    coordinates: tuple[str, ...]
    function: Callable[..., Any]
    is_potential: bool
    parameters: tuple[tuple[str, float], ...] = field(default=())


def check_function(element: Custom) -> None:
    """Refuse a function that does not take what an element gives it, or gives what it cannot take."""
    n = len(element.coordinates)
    q, p = jax.ShapeDtypeStruct((n,), float), jax.ShapeDtypeStruct((len(element.parameters),), float)
    if element.is_potential:
        what, arguments, given, want = "potential", "(q, p)", (q, p), ()
    else:
        t = jax.ShapeDtypeStruct((), float)
        what, arguments, given, want = "force", "(q, v, t, p)", (q, q, t, p), (n,)
    who = f"The {what} of element '{element.name}'"
    try:
        with contextlib.suppress(ValueError):  # a compiled function does not tell
            inspect.signature(element.function).bind(*given)
    except TypeError:
        raise MechidError(f"{who} must be a function of {arguments}.") from None
    try:
        shape = jax.eval_shape(lambda *a: jnp.asarray(element.function(*a)), *given).shape
        _, enclosed = jax.closure_convert(element.function, *given)
    except Exception as error:
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        raise MechidError(f"{who} is no jax.numpy function of {arguments}: {reason}.") from error
    if enclosed:
        raise MechidError(
            f"{who} uses a value that is being differentiated: give that value as one of its parameters=…, or its "
            "derivative would be lost."
        )
    if shape != want:
        wanted = "one number" if element.is_potential else f"one number a coordinate, shape {want}"
        raise MechidError(f"{who} must give {wanted}, not shape {shape}.")


Element = (
    Spring
    | Damper
    | PiecewiseSpring
    | Friction
    | GearFriction
    | LoadFriction
    | PeriodicFriction
    | DryFriction
    | LowerStop
    | UpperStop
    | Contact
    | Motor
    | Armature
    | Offset
    | LineSpring
    | Wrench
    | Custom
)


def element_numbers(element: Any) -> tuple[float, ...]:
    """The numbers of an element or a coupling, in the order of its `quantities`."""
    return tuple(float(getattr(element, name)) for name in element.quantities)


def quantity_unit(
    symbol: str, coordinate: Coordinate | Combination | None, other: Coordinate | Combination | None = None
) -> str:
    """The SI unit of a quantity: F and x stand for the coordinate's force and length or angle, y for another's."""
    if coordinate is None:
        return symbol
    if other is not None:
        symbol = symbol.replace("y", other.unit)
        if symbol == "x/" + coordinate.unit:
            return "1"
    if symbol == "F·s²/x":
        return "kg·m²" if coordinate.revolute else "kg"
    return symbol.replace("F", coordinate.force_unit).replace("x", coordinate.unit)


def rigid_numbers(body: Body) -> Array:
    """m, com, inertia about the com as xx, yy, zz, xy, xz, yz: ten numbers."""
    i = body.inertia
    return np.array([body.mass, *body.com, i[0, 0], i[1, 1], i[2, 2], i[0, 1], i[0, 2], i[1, 2]])
