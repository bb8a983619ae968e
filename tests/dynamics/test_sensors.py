"""What sensors show of a pendulum on a cart, against values computed by hand."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from mechid import Mechanism, MechidError
from mechid.dynamics import sensors
from mechid.dynamics.model import TreeModel
from mechid.dynamics.stepper import Observation
from mechid.dynamics.variational import State, Variational

PIVOT = np.array([0.0, 0.2, 0.3])
TIP = np.array([0.05, 0.1, -0.5])
TURN = Rotation.from_rotvec([0.3, -0.4, 1.2])
DT = 0.05


def swing() -> Mechanism:
    return (
        Mechanism("swing")
        .body("cart", mass=2.0)
        .prismatic("slide", "world", "cart", axis="x")
        .body("rod", mass=1.0, com=(0, 0, -0.25), inertia=(0.02, 0.02, 0.001))
        .revolute("hinge", "cart", "rod", axis="y", origin=PIVOT)
        .frame("tip", "rod", origin=TIP, rotation=TURN.as_matrix())
        .damper("slide", damping=0.5)
        .damper("hinge", damping=0.2, cubic=0.1)
        .motor("hinge", gain=0.5, gear_ratio=4.0)
        .frame("rail", "world", origin=(0, 0.2, 0))
        .loop("track", "rail", "cart", kind="pin", axis="y")
        .coupling("belt", "slide", "hinge", ratio=0.1)
    )


class Shown(NamedTuple):
    """The sensors, or what each shows at one instant."""

    position: Any
    slide: Any
    velocity: Any
    force: Any
    tip: Any
    tip_velocity: Any
    pose: Any
    cart_pose: Any
    track: Any
    belt: Any
    power: Any


def power(observation: Observation) -> jax.Array:
    return jnp.sum(observation.force * observation.v)


MECHANISM = swing()
SENSORS = Shown(
    sensors.joint_position(MECHANISM, "hinge", "slide"),
    sensors.joint_position(MECHANISM, "slide"),
    sensors.joint_velocity(MECHANISM, "hinge", "slide"),
    sensors.joint_force(MECHANISM, "hinge", "slide"),
    sensors.frame_position(MECHANISM, "tip"),
    sensors.frame_velocity(MECHANISM, "tip"),
    sensors.frame_pose(MECHANISM, "tip"),
    sensors.frame_pose(MECHANISM, "cart"),
    sensors.reaction(MECHANISM, "track"),
    sensors.reaction(MECHANISM, "belt"),
    sensors.FunctionSensor(power),
)


@jax.jit
def look(stepper: Variational, model: TreeModel, shown: Shown, states: State, z, u, s) -> Shown:
    x0, x1 = (jax.tree.map(lambda a, i=i: a[i], states) for i in (0, 1))
    seen = stepper.observe(x0, x1, z, u, 0.7, 3, s, model)
    return Shown(*(sensor.predict(seen, model) for sensor in shown))


@pytest.fixture(scope="module")
def model() -> TreeModel:
    return MECHANISM.lower()


class Loose(Variational):
    """Rates as they are, also where they open a loop: the sensors alone are under test."""

    def velocities(self, model, x, u, driven):
        return x.p


jax.tree_util.register_dataclass(
    Loose,
    data_fields=["dt", "absolute_tolerance", "relative_tolerance"],
    meta_fields=["rule", "forces"],
)


def shown_at(model: TreeModel, path, s: float, u: float, z: np.ndarray) -> Shown:
    """Sensors along a path of cubic polynomials q(t), at the fraction s of an interval."""
    ends = [0.0, DT]
    states = State(
        np.array([[p(t) for p in path] for t in ends]),
        np.array([[p.deriv()(t) for p in path] for t in ends]),
    )
    return look(Loose(DT), model, SENSORS, states, z, np.array([u]), s)


Z = np.array([0.3, -0.6, 0.9])


@pytest.mark.parametrize("s", [0.0, 0.35, 1.0])
@pytest.mark.parametrize("angle", [0.4, 2.5, -7.0])
def test_each_sensor_against_hand_computed_values(model: TreeModel, angle: float, s: float) -> None:
    path = (
        np.polynomial.Polynomial([0.3, 1.2, -3.0, 8.0]),
        np.polynomial.Polynomial([angle, -2.0, 5.0, -9.0]),
    )
    shown = shown_at(model, path, s, 0.6, Z)
    (x, theta), (vx, spin) = ([f(s * DT) for f in fs] for fs in (path, [p.deriv() for p in path]))

    def close(got, want) -> None:
        np.testing.assert_allclose(got, want, atol=1e-13)

    close(shown.position, [theta, x])
    close(shown.slide, [x])
    close(shown.velocity, [spin, vx])
    torque = 4.0 * 0.5 * 0.6 - 0.2 * spin - 0.1 * spin**3
    close(shown.force, [torque, -0.5 * vx])
    turn = Rotation.from_rotvec([0, theta, 0])
    place = np.array([x, 0, 0]) + PIVOT + turn.apply(TIP)
    close(shown.tip, place)
    close(shown.tip_velocity, np.array([vx, 0, 0]) + np.cross([0, spin, 0], turn.apply(TIP)))
    close(shown.pose[:3], place)
    close(shown.pose[3:], (turn * TURN).as_rotvec())
    close(shown.cart_pose, [x, 0, 0, 0, 0, 0])
    close(shown.track, -Z[:2] / DT)
    close(shown.belt, -Z[2:] / DT)
    close(shown.power, [torque * spin - 0.5 * vx**2])


def test_velocities_are_the_slopes_of_positions(model: TreeModel) -> None:
    path = (np.polynomial.Polynomial([0.1, -1.0]), np.polynomial.Polynomial([1.0, 3.0]))
    step = 1e-4
    before, now, after = (shown_at(model, path, s, 0.0, Z) for s in (0.5 - step, 0.5, 0.5 + step))
    slope = (np.asarray(after.tip) - before.tip) / (2 * step * DT)
    np.testing.assert_allclose(now.tip_velocity, slope, atol=1e-7)


def test_a_state_with_its_momentum_shows_its_own_rates() -> None:
    """Through the variational stepper's own momenta, on a pendulum without loops."""
    free = Mechanism("free").body("rod", mass=1.0, com=(0, 0, -0.25), inertia=(0.02, 0.02, 0.001))
    free = free.revolute("hinge", "world", "rod", axis="y").torque("hinge")
    lowered, sensor = free.lower(), sensors.joint_velocity(free, "hinge")

    @jax.jit
    def see(stepper, model, q, v):
        x = stepper.initial(model, q, v, jnp.zeros(1), 0.0)
        return x.p, sensor.predict(
            stepper.observe(x, x, jnp.zeros(0), jnp.zeros(1), 0.0, 0, 0.0, model), model
        )

    p, shown = see(Variational(DT), lowered, jnp.array([0.4]), jnp.array([-1.7]))
    np.testing.assert_allclose(p, (0.02 + 1.0 * 0.25**2) * -1.7, rtol=1e-14)
    np.testing.assert_allclose(shown, -1.7, rtol=1e-14)


# Differences


@pytest.mark.parametrize(
    ("predicted", "measured", "difference"),
    [
        (0.3, 0.1, 0.2),
        (3.1, -3.1, 6.2 - 2 * np.pi),
        (-3.1, 3.1, 2 * np.pi - 6.2),
        (7.0, 7.0 - 2 * np.pi, 0.0),
    ],
)
def test_angles_are_compared_the_short_way_round(predicted, measured, difference) -> None:
    sensor = SENSORS.position
    got = sensor.difference(jnp.array([predicted, predicted]), jnp.array([measured, measured]))
    np.testing.assert_allclose(got, [difference, predicted - measured], atol=1e-14)


def test_everything_else_is_subtracted() -> None:
    for sensor in (SENSORS.velocity, SENSORS.force, SENSORS.tip, SENSORS.track, SENSORS.power):
        got = sensor.difference(jnp.array([5.0, 3.0]), jnp.array([-5.0, 1.0]))
        np.testing.assert_array_equal(got, [10.0, 2.0])


@pytest.fixture(scope="module")
def pose_difference():
    return jax.jit(SENSORS.pose.difference)


POSES = [
    ([0.3, -0.2, 0.5], [0.1, 0.4, -0.6]),
    ([0, 0, 3.1], [0, 0, -3.1]),
    ([2.0, 1.0, -1.5], [1.9, 1.1, -1.4]),
    ([1e-7, 0, 0], [0, 0, 0]),
    ([0, 5.0, 0], [0, 0.2, 0]),
]


@pytest.mark.parametrize(("predicted", "measured"), POSES)
def test_poses_differ_by_the_rotation_between_them(pose_difference, predicted, measured) -> None:
    x, y = np.array([1.0, 2.0, 3.0]), np.array([0.5, 2.5, 2.0])
    got = pose_difference(np.concatenate([x, predicted]), np.concatenate([y, measured]))
    turn = Rotation.from_rotvec(predicted) * Rotation.from_rotvec(measured).inv()
    np.testing.assert_allclose(got, [*(x - y), *turn.as_rotvec()], atol=1e-14)


def test_a_small_turn_about_a_world_axis_is_read_in_world_axes(pose_difference) -> None:
    measured = Rotation.from_rotvec([0.7, -1.1, 0.4])
    predicted = Rotation.from_rotvec([0, 0, 0.01]) * measured
    zero = np.zeros(3)
    got = pose_difference(
        np.concatenate([zero, predicted.as_rotvec()]), np.concatenate([zero, measured.as_rotvec()])
    )
    np.testing.assert_allclose(got, [0, 0, 0, 0, 0, 0.01], atol=1e-14)


@pytest.mark.parametrize("angle", [0.0, 1e-6, 1.0, 2.2, np.pi - 1e-7])
@pytest.mark.parametrize("axis", [(1, 0, 0), (0, -1, 0), (0, 0, 1), (0.6, -0.48, 0.64)], ids=str)
def test_orientations_of_any_angle_are_read_off(axis, angle: float) -> None:
    want = angle * np.array(axis)
    frames = np.eye(4)[None].copy()
    frames[0, :3, :3] = Rotation.from_rotvec(want).as_matrix()
    seen = Observation(*([None] * 3), jnp.asarray(frames), *([None] * 4))  # type: ignore[arg-type]
    got = read_pose(sensors.FramePose(0), seen)
    np.testing.assert_allclose(got[3:], want, atol=1e-8 if angle > 3 else 1e-14)


@jax.jit
def read_pose(sensor, seen):
    return sensor.predict(seen, None)


# Names

WRONG = {
    "coordinate": (
        lambda m: sensors.joint_position(m, "hinge", "slid"),
        ("coordinate named 'slid'", "Did you mean slide?", "Valid: slide, hinge."),
    ),
    "rate": (lambda m: sensors.joint_velocity(m, "hing"), ("'hing'", "Did you mean hinge?")),
    "force": (lambda m: sensors.joint_force(m, "rod"), ("coordinate named 'rod'",)),
    "no coordinate": (lambda m: sensors.joint_velocity(m), ("sensor", "at least one coordinate")),
    "frame": (
        lambda m: sensors.frame_pose(m, "top"),
        ("frame named 'top'", "Did you mean tip?", "Valid: world, cart, rod, tip, rail."),
    ),
    "point": (lambda m: sensors.frame_position(m, "hinge"), ("frame named 'hinge'",)),
    "velocity": (lambda m: sensors.frame_velocity(m, "bob"), ("frame named 'bob'",)),
    "loop": (
        lambda m: sensors.reaction(m, "tracks"),
        ("'tracks'", "Did you mean track?", "Valid: track, belt."),
    ),
    "row": (lambda m: sensors.reaction(m, "track[0]"), ("'track[0]'", "Valid: track, belt.")),
}


@pytest.mark.parametrize("case", WRONG)
def test_unknown_names_are_said_with_what_is_valid(case: str) -> None:
    mistake, fragments = WRONG[case]
    with pytest.raises(MechidError) as caught:
        mistake(MECHANISM)
    for fragment in fragments:
        assert fragment in str(caught.value)
