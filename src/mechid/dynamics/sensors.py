"""Sensors: what a measured channel should show, from an `Observation`, never from a stepper's own state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import jax.numpy as jnp
import numpy as np

from mechid.compile import register
from mechid.dynamics import elements
from mechid.dynamics.model import Model
from mechid.dynamics.rotations import (
    conjugate,
    product,
    quaternion_of_rotation,
    quaternion_of_vector,
    vector_of_quaternion,
)
from mechid.dynamics.stepper import Observation
from mechid.dynamics.tree import Array
from mechid.errors import MechidError, unknown
from mechid.model.mechanism import Mechanism
from mechid.model.system import System


class Sensor(Protocol):
    def predict(self, observation: Observation, model: Model) -> Array:
        """The channels that this sensor would show."""
        ...

    def difference(self, predicted: Array, measured: Array) -> Array:
        """predicted − measured; angles are compared the short way round."""
        ...


class _Plain:
    def difference(self, predicted: Array, measured: Array) -> Array:
        return predicted - measured


@dataclass(frozen=True, eq=False)
class JointPosition:
    """Joint coordinates, rad or m."""

    index: Any
    revolute: Any

    def predict(self, observation: Observation, model: Model) -> Array:
        return observation.q[self.index]

    def difference(self, predicted: Array, measured: Array) -> Array:
        gap = predicted - measured
        return jnp.where(self.revolute, jnp.arctan2(jnp.sin(gap), jnp.cos(gap)), gap)


@dataclass(frozen=True, eq=False)
class JointVelocity(_Plain):
    """Rates of joint coordinates, rad/s or m/s."""

    index: Any

    def predict(self, observation: Observation, model: Model) -> Array:
        return observation.v[self.index]


@dataclass(frozen=True, eq=False)
class JointForce(_Plain):
    """Force of elements and inputs on joint coordinates, N·m or N."""

    index: Any

    def predict(self, observation: Observation, model: Model) -> Array:
        return observation.force[self.index]


@dataclass(frozen=True, eq=False)
class AxisPosition(_Plain):
    """Coordinates and combinations of them, rad or m; not the short way round."""

    index: Any

    def predict(self, observation: Observation, model: Model) -> Array:
        return elements.axes(model, observation.q)[self.index]  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class AxisVelocity(_Plain):
    """Their rates, rad/s or m/s."""

    index: Any

    def predict(self, observation: Observation, model: Model) -> Array:
        return elements.axes(model, observation.v)[self.index]  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class Transmitted(_Plain):
    """What springs and dampers on coordinates and combinations transmit, N·m or N: as a torque sensor shows it."""

    index: Any

    def predict(self, observation: Observation, model: Model) -> Array:
        y, w = (elements.axes(model, x) for x in (observation.q, observation.v))  # type: ignore[arg-type]
        return elements.transmitted(model, y, w)[self.index]  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class FramePosition(_Plain):
    """World position of a frame's origin, m."""

    index: Any

    def predict(self, observation: Observation, model: Model) -> Array:
        return observation.frames[self.index, :3, 3]


@dataclass(frozen=True, eq=False)
class FrameVelocity(_Plain):
    """World velocity of a frame's origin, m/s."""

    index: Any

    def predict(self, observation: Observation, model: Model) -> Array:
        return observation.twists[self.index, 3:]


@dataclass(frozen=True, eq=False)
class FramePose:
    """World position (m) and orientation (rotation vector, rad) of a frame: six channels."""

    index: Any

    def predict(self, observation: Observation, model: Model) -> Array:
        pose = observation.frames[self.index]
        turn = vector_of_quaternion(quaternion_of_rotation(pose[:3, :3]))
        return jnp.concatenate([pose[:3, 3], turn])

    def difference(self, predicted: Array, measured: Array) -> Array:
        """The rotation between the two orientations, in world axes, as a vector."""
        a, b = quaternion_of_vector(predicted[3:]), quaternion_of_vector(measured[3:])
        turn = vector_of_quaternion(product(a, conjugate(b)))
        return jnp.concatenate([predicted[:3] - measured[:3], turn])


@dataclass(frozen=True, eq=False)
class Reaction(_Plain):
    """Forces of loop constraints, N or N·m."""

    index: Any

    def predict(self, observation: Observation, model: Model) -> Array:
        return observation.reaction[self.index]


@dataclass(frozen=True, eq=False)
class FunctionSensor(_Plain):
    """Any function of an `Observation`, in jax.numpy."""

    function: Callable[[Observation], Array]

    def predict(self, observation: Observation, model: Model) -> Array:
        return jnp.atleast_1d(self.function(observation))


for _kind in (
    AxisPosition,
    AxisVelocity,
    Transmitted,
    JointVelocity,
    JointForce,
    FramePosition,
    FrameVelocity,
    FramePose,
    Reaction,
):
    register(_kind, ["index"])
register(JointPosition, ["index", "revolute"])
register(FunctionSensor, [], ["function"])


# By name


def joint_position(mechanism: System, *names: str) -> JointPosition | AxisPosition:
    """The positions of joint coordinates, and of combinations of them, by name."""
    if _combined(mechanism, names):
        return AxisPosition(_axes(mechanism, names))
    index = _coordinates(mechanism, names)
    turns = np.array([c.revolute for c in mechanism.coordinates])
    return JointPosition(index, turns[index])


def joint_velocity(mechanism: System, *names: str) -> JointVelocity | AxisVelocity:
    if _combined(mechanism, names):
        return AxisVelocity(_axes(mechanism, names))
    return JointVelocity(_coordinates(mechanism, names))


def joint_force(mechanism: System, *names: str) -> JointForce:
    return JointForce(_coordinates(mechanism, names))


def transmitted(mechanism: System, *names: str) -> Transmitted:
    """Force of springs and dampers on coordinates or combinations by name, positive where these are stretched."""
    if not isinstance(mechanism, Mechanism):
        raise MechidError(f"Mechanism '{mechanism.name}' has no springs that could be asked for their force.")
    return Transmitted(_axes(mechanism, names))


def frame_position(mechanism: System, name: str) -> FramePosition:
    return FramePosition(_frame(mechanism, name))


def frame_velocity(mechanism: System, name: str) -> FrameVelocity:
    return FrameVelocity(_frame(mechanism, name))


def frame_pose(mechanism: System, name: str) -> FramePose:
    return FramePose(_frame(mechanism, name))


def reaction(mechanism: System, loop: str) -> Reaction:
    """All rows of a loop, coupling or drive by name."""
    rows = [i for i, n in enumerate(mechanism.constraint_names) if n.split("[")[0] == loop]
    if not rows:
        valid = dict.fromkeys(n.split("[")[0] for n in mechanism.constraint_names)
        raise unknown("loop, coupling or drive", loop, valid)
    return Reaction(np.array(rows))


def _coordinates(mechanism: System, names: Sequence[str]) -> np.ndarray:
    if not names:
        raise MechidError("A joint sensor needs the name of at least one coordinate.")
    for name in names:
        mechanism.coordinate(name)
    return np.array([mechanism.coordinate_names.index(n) for n in names])


def _combined(mechanism: System, names: Sequence[str]) -> bool:
    return any(mechanism.axis(n) in mechanism.combinations for n in names)


def _axes(mechanism: System, names: Sequence[str]) -> np.ndarray:
    if not names:
        raise MechidError("A sensor needs the name of at least one coordinate or combination.")
    known = [c.name for c in (*mechanism.coordinates, *mechanism.combinations)]
    return np.array([known.index(mechanism.axis(n).name) for n in names])


def _frame(mechanism: System, name: str) -> np.ndarray:
    if name not in mechanism.frame_names:
        raise unknown("frame", name, mechanism.frame_names)
    return np.array(mechanism.frame_names.index(name))
