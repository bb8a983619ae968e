"""The shooting problems of `versions.py`: one mechanism, one log and one experiment each.

A case is made of public parts of the package only, so that any version of it can compute the case. Logs are
simulated with the parameters of the mechanism; noise of a fixed seed is added.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from mechid import (
    BDF,
    Condition,
    Cost,
    Experiment,
    FunctionSensor,
    Log,
    Measured,
    Mechanism,
    OneStep,
    Parameters,
    Spook,
    Start,
    SymbolicMechanism,
    Tracked,
    Variational,
    frame_pose,
    frame_position,
    frame_velocity,
    joint_force,
    joint_position,
    joint_velocity,
    reaction,
    simulate,
)
from mechid.data.log import Channel
from mechid.dynamics.sensors import Sensor
from mechid.studies import baxter_loop, mechanisms

Data = dict[str, np.ndarray]
"""what a log is made of: (2, n) times (s) and values by the name of a channel"""
Channels = Mapping[str, tuple[np.ndarray, np.ndarray]]
Steppers = Mapping[str, Callable[[float], Any]]
"""steppers of a step size (s) by name"""

STEPPERS: Steppers = {
    "Variational midpoint": Variational,
    "Variational trapezoidal": lambda dt: Variational(dt, rule="trapezoidal"),
    "BDF 2": lambda dt: BDF(dt, order=2),
    "BDF 4": lambda dt: BDF(dt, order=4),
    "OneStep midpoint": OneStep,
    "Spook": Spook,
}
ONLY_SPOOK: Steppers = {"Spook": Spook}


@dataclass(frozen=True, eq=False)
class Case:
    """A shooting problem."""

    dt: float
    """s"""
    free: Parameters
    record: Callable[[], Data]
    """simulates what is measured"""
    experiment: Callable[[Data], Experiment]
    steppers: Steppers = field(default_factory=lambda: STEPPERS)
    keep: int | None = None
    """steps whose states are kept in memory; None: as many as by default"""
    gains: bool = False
    """True where the gains of the feedback have to be computed"""


def _log(data: Data) -> Log:
    return Log("log", {name: Channel(t, x) for name, (t, x) in data.items()})


def _data(channels: Channels) -> Data:
    return {name: np.stack([t, x]) for name, (t, x) in channels.items()}


def _noisy(values: np.ndarray, std: float, seed: int) -> np.ndarray:
    return values + std * np.random.default_rng(seed).normal(size=values.shape)


def _freed(mechanism: Any, *addresses: str) -> Parameters:
    free = Parameters(mechanism)
    for address in addresses:
        free = free.free(address)
    return free


def _angles(
    mechanism: Any,
    dt: float,
    steps: int,
    *,
    std: float = 1e-3,
    stepper: Any = Variational,
    inputs: Mapping[str, np.ndarray] | None = None,
    rates: bool = False,
    **start: Any,
) -> Data:
    """Noisy coordinates (and velocities) of a simulation, by their names, and its inputs (steps + 1)."""
    inputs = {} if inputs is None else inputs
    columns = [inputs[name][:-1] for name in mechanism.input_names]
    table = np.stack(columns, -1) if columns else None
    motion = simulate(mechanism, stepper(dt), steps, inputs=table, **start)
    noisy = _noisy(motion.q, std, 0)
    channels = {name: (motion.t, noisy[:, i]) for i, name in enumerate(mechanism.coordinate_names)}
    if rates:
        noisy = _noisy(motion.v, 10 * std, 1)
        channels |= {
            f"v {name}": (motion.t, noisy[:, i]) for i, name in enumerate(mechanism.coordinate_names)
        }
    return _data(channels | {f"u {name}": (motion.t, values) for name, values in inputs.items()})


def _logged_inputs(mechanism: Any) -> dict[str, str]:
    return {name: f"u {name}" for name in mechanism.input_names}


def _times(dt: float, steps: int) -> np.ndarray:
    return dt * np.arange(steps + 1)


# A pendulum: a long horizon, a prior on the initial state, a cost of the user's own


ROD = mechanisms.pendulum(damping=0.1).spring("hinge", stiffness=2.0)
ROD_STEPS, ROD_DT = 4500, 0.01


def _rod_channels() -> Data:
    torque = np.sin(0.9 * _times(ROD_DT, ROD_STEPS))
    return _angles(ROD, ROD_DT, ROD_STEPS, q=[1.0], rates=True, inputs={ROD.input_names[0]: torque})


def _rod_experiment(data: Data) -> Experiment:
    measured = [
        Measured(joint_position(ROD, "hinge"), "hinge", std=1e-3),
        Measured(joint_velocity(ROD, "hinge"), "v hinge", std=1e-2),
    ]
    start = Start(q={"hinge": 1.0}, q_std={"hinge": 0.05}, v_std="free")
    return Experiment(_log(data), measured, inputs=_logged_inputs(ROD), start=start, terminal_weight=3.0)


def pendulum() -> Case:
    """4500 steps; a positive parameter, a prior on the angle at the start, the last sample weighted."""
    free = (
        _freed(ROD, "hinge.stiffness", "rod.mass", "rod.com.z")
        .free("hinge.damping", transform="positive")
        .free("rod.inertia.yy", prior=(0.02, 0.01))
    )
    return Case(ROD_DT, free, _rod_channels, _rod_experiment)


def _running(seen: Any, measured: Any, parameters: Any) -> Any:
    gap = (seen.q - measured[:1]) / 0.1
    return jnp.sum(jnp.log(1.0 + gap**2)) + 0.01 * parameters["rod.mass"] ** 2 * seen.v[0] ** 2


def _terminal(seen: Any, measured: Any, parameters: Any) -> Any:
    return 50.0 * parameters["hinge.damping"] * jnp.sum((seen.q - measured[:1]) ** 2) + jnp.sin(seen.q[0])


def own_cost() -> Case:
    """A cost of Bolza form with the parameters in it; states beyond the first 2000 steps are not kept."""
    free = _freed(ROD, "hinge.stiffness", "rod.mass", "rod.com.z", "hinge.damping")
    return Case(
        ROD_DT,
        free,
        _rod_channels,
        lambda data: replace(_rod_experiment(data), cost=Cost(_running, _terminal), terminal_weight=0.0),
        keep=2000,
    )


# A cart-pendulum: correlated noise, missing samples, steps of different sizes


def cart_pendulum() -> Case:
    """300 steps under a force; correlated noise, missing samples; once with steps of two sizes."""
    mechanism = mechanisms.damped(mechanisms.cart_pendulum(damping=0.1), {"slide": 0.2})
    dt, steps = 0.01, 300

    def record() -> Data:
        t = _times(dt, steps)
        force = 3 * np.sin(2 * np.pi * 0.5 * t) + 2 * np.sin(2 * np.pi * 1.3 * t)
        channels = _angles(mechanism, dt, steps, q=[0.0, 0.3], inputs={mechanism.input_names[0]: force})
        channels["hinge"][1, [3, 150, 299]] = np.nan
        return channels

    def experiment(data: Data) -> Experiment:
        noise = 1e-6 * np.array([[1.0, 0.6], [0.6, 2.0]])
        measured = Measured(joint_position(mechanism, "slide", "hinge"), ("slide", "hinge"), covariance=noise)
        start = Start(q={"hinge": 0.3}, q_std="free", v_std={"slide": 0.1})
        inputs = _logged_inputs(mechanism)
        return Experiment(
            _log(data), [measured], inputs=inputs, start=start, hold="midpoint", span=(0.0, dt * steps)
        )

    free = _freed(mechanism, "cart.mass", "pole.mass", "pole.com.z", "hinge.damping", "slide.damping")
    uneven = np.tile([0.8 * dt, 1.2 * dt], steps // 2)
    return Case(
        dt,
        free,
        record,
        experiment,
        STEPPERS | {"Variational midpoint, uneven steps": lambda dt: Variational(uneven)},
    )


# Two links and a spring between bodies; sensors of two rates


def double_pendulum() -> Case:
    """Two rods with a damped spring between a body and the world; samples between the ends of steps."""
    m = Mechanism("double pendulum")
    for name, parent, length in (("upper", "world", 0.5), ("lower", "upper", 0.4)):
        inertia = length**2 / 12
        m = m.body(name, mass=1.0, com=(0, 0, -length / 2), inertia=(inertia, inertia, 1e-3))
        origin = (0, 0, 0) if parent == "world" else (0, 0, -0.5)
        m = m.revolute(f"{name}_hinge", parent, name, axis="y", origin=origin)
        m = m.damper(f"{name}_hinge", damping=0.05)
    mechanism = (
        m.frame("post", "world", origin=(0.6, 0.1, -0.2))
        .frame("tip", "lower", origin=(0, 0, -0.4))
        .line_spring("cord", "post", "tip", stiffness=12.0, cubic=5.0, rest=0.3, damping=0.4)
        .torque("upper_hinge")
    )
    dt, steps = 0.01, 250
    names = mechanism.coordinate_names

    def record() -> Data:
        torque = {"upper_hinge.torque": np.sin(3 * _times(dt / 4, 4 * steps))}
        fine = _angles(mechanism, dt / 4, 4 * steps, q=[0.5, -0.3], rates=True, inputs=torque)
        slow, fast = slice(3, None, 13), slice(0, None, 3)
        times = {**dict.fromkeys(names, fast), **{f"v {n}": slow for n in names}}
        return {name: x[:, times.get(name, slice(None))] for name, x in fine.items()}

    def experiment(data: Data) -> Experiment:
        measured = [
            Measured(joint_position(mechanism, *names), names, std=1e-3),
            Measured(joint_velocity(mechanism, *names), tuple(f"v {n}" for n in names), std=1e-2),
        ]
        start = Start(q={"upper_hinge": 0.5, "lower_hinge": -0.3}, q_std="free", v_std="free")
        return Experiment(_log(data), measured, inputs=_logged_inputs(mechanism), start=start, hold="mean")

    numbers = (
        "lower.mass",
        "lower_hinge.origin.z",
        "cord.stiffness",
        "cord.rest",
        "cord.damping",
        "tip.origin.z",
    )
    return Case(dt, _freed(mechanism, *numbers), record, experiment)


# A closed loop: every sensor, feedback, a partly known start


def four_bar() -> Case:
    """Seven sensors at two rates between the ends of steps, feedback, lengths in the loop."""
    bar = mechanisms.four_bar(damping=0.05).spring("b", stiffness=3.0, rest=0.2)
    dt, steps = 0.005, 100
    end = dt * steps
    sensors: dict[str, tuple[Sensor, int, float]] = {
        "joint_position": (joint_position(bar, "a", "c"), 2, 0.1),
        "joint_velocity": (joint_velocity(bar, "b"), 1, 0.5),
        "frame_position": (frame_position(bar, "coupler-end"), 3, 0.1),
        "frame_pose": (frame_pose(bar, "rocker-end"), 6, 0.2),
        "joint_force": (joint_force(bar, "c"), 1, 0.3),
        "function": (FunctionSensor(lambda seen: jnp.array([seen.q[0] * seen.v[1], seen.u[0]])), 2, 0.4),
        "reaction": (reaction(bar, "closure"), 2, 50.0),
    }
    rates = {"fast": (0.0, 0.0031), "slow": (0.0042, 0.0173)}

    def names(sensor: str, rate: str) -> list[str]:
        return [f"{sensor} {rate} {i}" for i in range(sensors[sensor][1])]

    def record() -> Data:
        rng = np.random.default_rng(0)
        t = _times(dt, steps)
        channels = {"tau": (t, np.sin(9 * t)), "ref": (t, -0.9 + 0.3 * np.sin(5 * t))}
        for rate, (first, interval) in rates.items():
            time = np.append(np.arange(first, end, interval), end)
            for sensor in sensors:
                channels |= {c: (time, 0.1 * rng.normal(size=len(time))) for c in names(sensor, rate)}
        return _data(channels)

    def experiment(data: Data) -> Experiment:
        start = Start(
            q=mechanisms.FOUR_BAR_GUESS,
            v={"a": 1.0, "b": -1.0, "c": 0.3},
            q_std={"a": 0.05, "b": "free", "c": 0.2},
            v_std={"a": "free", "b": "free", "c": 0.3},
        )
        measured = [
            Measured(x, names(s, rate), std=std) for rate in rates for s, (x, _, std) in sensors.items()
        ]
        feedback = Tracked({"a": "ref"}, gain=[[4.0]])
        return Experiment(
            _log(data), measured, inputs={bar.input_names[0]: "tau"}, start=start, feedback=feedback
        )

    numbers = (
        "b.stiffness",
        "c.damping",
        "coupler.mass",
        "coupler.com.x",
        "rocker-end.origin.x",
        "b.origin.x",
    )
    return Case(dt, _freed(bar, *numbers), record, experiment, gains=True)


# Friction: dry, with sticking; smooth, in gears


def dry_friction() -> Case:
    """An arm that carries a pendulum; both hinges slide and stick, one with friction by load."""
    load = {"load_coefficient": 0.1, "load_radius": 0.02}
    mechanism = (
        Mechanism("furuta")
        .body("arm", mass=0.24, com=(0.128, 0, 0), inertia=(1e-4, 3e-3, 3e-3))
        .revolute("base", "world", "arm", axis="z")
        .body("rod", mass=0.43, com=(0, 0, -0.092), inertia=(4e-3, 4e-3, 1e-4))
        .revolute("elbow", "arm", "rod", axis="x", origin=(0.248, 0, 0))
        .torque("base")
        .dry_friction("base", coulomb=0.03, stribeck=0.02, stribeck_velocity=2.0, **load)
        .dry_friction("elbow", coulomb=0.05, stribeck=0.02, stribeck_velocity=3.0, **load)
    )
    numbers = ("rod.mass", "base.coulomb", "base.stribeck", "elbow.coulomb", "elbow.load_coefficient")
    return _sliding(mechanism, numbers)


def dry_friction_without_load() -> Case:
    """A cart that slides and sticks under a pendulum."""
    mechanism = mechanisms.cart_pendulum(damping=0.02).dry_friction(
        "slide", coulomb=0.8, stribeck=0.4, stribeck_velocity=0.2
    )
    return _sliding(mechanism, ("cart.mass", "pole.mass", "slide.coulomb", "slide.stribeck"), push=3.0)


def _sliding(mechanism: Mechanism, numbers: tuple[str, ...], push: float = 0.3) -> Case:
    dt, steps = 0.01, 200
    start = {"q": [0.3, -0.8], "v": [1.0, -2.0]}
    names = mechanism.coordinate_names

    def record() -> Data:
        force = {mechanism.input_names[0]: push * np.cos(5.0 * _times(dt, steps))}
        return _angles(mechanism, dt, steps, inputs=force, **start)

    def experiment(data: Data) -> Experiment:
        measured = Measured(joint_position(mechanism, *names), names, std=1e-3)
        begin = Start(**start, v_std={names[1]: 0.5})
        return Experiment(_log(data), [measured], inputs=_logged_inputs(mechanism), start=begin)

    return Case(dt, _freed(mechanism, *numbers), record, experiment)


def smooth_friction() -> Case:
    """A motor and a link behind a harmonic drive: a combination of coordinates, gear friction, cubic springs."""
    mechanism = mechanisms.harmonic_drive_joint(reduction=20.0)
    dt, steps = 0.002, 400
    names = mechanism.coordinate_names

    def record() -> Data:
        current = 2.0 * np.sin(12.0 * _times(dt, steps)) + 0.5
        return _angles(mechanism, dt, steps, inputs={"current": current})

    def experiment(data: Data) -> Experiment:
        measured = Measured(joint_position(mechanism, *names), names, std=1e-3)
        return Experiment(_log(data), [measured], inputs=_logged_inputs(mechanism), start=Start(v_std="free"))

    numbers = (
        "twist.stiffness",
        "twist.damping",
        "motor.coulomb",
        "link.coulomb",
        "link.damping",
        "current.gain",
    )
    return Case(dt, _freed(mechanism, *numbers), record, experiment)


# Stiffness, floating bases, paths, delays


def stiff_springs() -> Case:
    """Three carriages coupled by springs of 1e4 to 1e6 N/m; steps of 10 ms.

    Steppers that are not stable there, |ω| dt = 20, take steps of a twentieth.
    """
    m, parent = Mechanism("carriages"), "world"
    for i, stiffness in enumerate((1e4, 1e6, 1e5)):
        m = m.body(f"carriage{i}", mass=1.0).prismatic(f"slide{i}", parent, f"carriage{i}", axis="x")
        m = m.spring(f"slide{i}", stiffness=stiffness).damper(f"slide{i}", damping=100.0)
        parent = f"carriage{i}"
    mechanism = m.force("push", "carriage2")
    dt, steps = 0.01, 300
    names = mechanism.coordinate_names

    def record() -> Data:
        t = _times(dt, steps)
        push = {f"push.{x}": 500.0 * np.sin(30.0 * t) * (x == "x") for x in "xyz"}
        return _angles(mechanism, dt, steps, std=1e-4, q=[0.01, 1e-4, 1e-3], inputs=push)

    def experiment(data: Data) -> Experiment:
        measured = Measured(joint_position(mechanism, *names), names, std=1e-4)
        start = Start(q=[0.01, 1e-4, 1e-3], q_std="free", v_std="free")
        return Experiment(_log(data), [measured], inputs=_logged_inputs(mechanism), start=start)

    numbers = ("slide0.stiffness", "slide1.stiffness", "slide2.stiffness", "slide1.damping", "carriage1.mass")
    fine: Steppers = {
        "Variational trapezoidal": lambda dt: Variational(dt / 20, rule="trapezoidal"),
        "BDF 4": lambda dt: BDF(dt / 20, order=4),
        "Spook": lambda dt: Spook(dt / 20),
    }
    return Case(dt, _freed(mechanism, *numbers), record, experiment, STEPPERS | fine)


def floating_base() -> Case:
    """A body free in space with an arm on it; poses and velocities of frames are measured."""
    mechanism = (
        Mechanism("satellite", gravity=(0, 0, -0.5))
        .body("base", mass=4.0, com=(0.02, 0, 0.01), inertia=(0.2, 0.3, 0.25))
        .floating("free", "world", "base")
        .body("arm", mass=1.0, com=(0, 0, -0.2), inertia=(0.02, 0.02, 0.002))
        .revolute("elbow", "base", "arm", axis="y", origin=(0.1, 0, -0.1))
        .damper("elbow", damping=0.05)
        .frame("hand", "arm", origin=(0, 0, -0.4))
        .torque("elbow")
        .force("jet", "base", axes="body", moment=True)
    )
    dt, steps = 0.01, 150
    start = {"q": [0.0, 0.1, 0.2, 0.3, -0.2, 0.1, 0.5], "v": [0.1, 0, 0.2, 0.5, -0.4, 0.3, 1.0]}

    def record() -> Data:
        t = _times(dt, steps)
        inputs = {name: np.sin((i + 3.0) * t + i) for i, name in enumerate(mechanism.input_names)}
        motion = simulate(
            mechanism, Variational(dt), steps, inputs=np.stack(list(inputs.values()), -1)[:-1], **start
        )
        place = motion.frame("base")[:, :3, 3]
        turn = np.stack([_turn(pose[:3, :3]) for pose in motion.frame("base")])
        pose = _noisy(np.concatenate([place, turn], 1), 1e-3, 0)
        rate = _noisy(np.gradient(motion.frame("hand")[:, :3, 3], t, axis=0), 1e-2, 1)
        elbow = _noisy(motion.q[:, -1], 1e-3, 2)
        channels = {f"pose{i}": (t, pose[:, i]) for i in range(6)} | {
            f"rate{i}": (t, rate[:, i]) for i in range(3)
        }
        return _data(channels | {"elbow": (t, elbow)} | {f"u {name}": (t, x) for name, x in inputs.items()})

    def experiment(data: Data) -> Experiment:
        measured = [
            Measured(frame_pose(mechanism, "base"), [f"pose{i}" for i in range(6)], std=1e-3),
            Measured(frame_velocity(mechanism, "hand"), [f"rate{i}" for i in range(3)], std=1e-2),
            Measured(joint_position(mechanism, "elbow"), "elbow", std=1e-3),
        ]
        begin = Start(**start, q_std={"free.x": "free", "elbow": 0.01}, v_std="free")
        return Experiment(_log(data), measured, inputs=_logged_inputs(mechanism), start=begin)

    numbers = ("base.mass", "base.com.x", "base.inertia.xx", "arm.mass", "arm.com.z", "hand.origin.z")
    return Case(dt, _freed(mechanism, *numbers), record, experiment)


def _turn(rotation: np.ndarray) -> np.ndarray:
    """The rotation vector of a rotation matrix, rad."""
    from scipy.spatial.transform import Rotation

    return Rotation.from_matrix(rotation).as_rotvec()


CART = (
    Mechanism("cart on a path")
    .body("cart", mass=1.0)
    .prismatic("slide", "world", "cart", axis="x")
    .body("rod", mass=0.5, com=(0, 0, -0.3), inertia=(0.02, 0.02, 0.001))
    .revolute("hinge", "cart", "rod", axis="y")
    .frame("tip", "rod", origin=(0, 0, -0.6))
    .damper("hinge", damping=0.05)
    .motor("hinge", gain=0.8, name="motor")
    .force("push", "tip")
    .drive("slide", name="path")
)


def _cart_channels(dt: float, steps: int) -> Data:
    rng = np.random.default_rng(0)
    t = _times(dt, steps)
    held = np.repeat(rng.normal(size=(steps // 5 + 1, 2)), 5, 0)[: steps + 1]
    x = 0.05 * np.sin(8 * t)
    table = np.stack([held[:, 0], held[:, 1], 0 * t, 0 * t, np.append(x[1:], x[-1])], -1)
    motion = simulate(CART, Variational(dt), steps, q=[0.0, 0.2], v=[0.4, 0.0], inputs=table[:-1])
    q = _noisy(motion.q[:, 1], 1e-3, 1)
    tau = np.append(motion.inputs[:, 0], 0.0) * 0.8 - 0.05 * motion.v[:, 1]
    rate, force = (
        _noisy(motion.v[:, 0], 1e-2, 2),
        _noisy(np.append(0.0, motion.multipliers[:, 0] / dt), 0.1, 3),
    )
    noisy = {"q": q, "tau": _noisy(tau, 0.1, 4), "rate": rate, "force": force}
    channels = {"u": held[:, 0], "f": held[:, 1], "x": x} | noisy
    return _data({name: (t, values) for name, values in channels.items()})


def _cart_experiment(data: Data, hold: str, feedback: Tracked | None = None) -> Experiment:
    measured = [
        Measured(joint_position(CART, "hinge"), "q", std=1e-3),
        Measured(joint_velocity(CART, "slide"), "rate", std=1e-2),
        Measured(joint_force(CART, "hinge"), "tau", std=0.1),
        Measured(reaction(CART, "path"), "force", std=0.1),
    ]
    start = Start(q={"hinge": 0.2}, q_std={"hinge": "free"}, v={"slide": 0.4}, v_std={"hinge": "free"})
    inputs = {"motor": "u", "push.x": "f", "path": "x"}
    return Experiment(_log(data), measured, inputs=inputs, start=start, hold=hold, feedback=feedback)


def driven_coordinate() -> Case:
    """A pendulum on a cart that follows a path; the force along the path is measured."""
    free = _freed(CART, "rod.mass", "rod.com.z", "cart.mass", "hinge.damping", "motor.gain", "tip.origin.z")
    return Case(0.01, free, lambda: _cart_channels(0.01, 200), lambda data: _cart_experiment(data, "end"))


def input_delays() -> Case:
    """The same over 4400 steps with three late inputs and feedback; half of the states are not kept."""
    free = _freed(CART, "motor.gain", "rod.mass").free("motor.delay", start=0.0037, transform="positive")
    free = free.tie("late", {"push.x.delay": 1.0, "path.delay": 0.65}, start=0.0022, unit="s")
    feedback = Tracked({"hinge": "q"}, [[0.5], *[[0.0]] * 4])
    return Case(
        0.005,
        free,
        lambda: _cart_channels(0.005, 4400),
        lambda data: _cart_experiment(data, "zero-order", feedback),
        keep=2000,
        gains=True,
    )


# Formulas and functions of the user


def symbolic() -> Case:
    """The cart-pendulum of a Lagrangian, with a free delay of its force."""
    mechanism = SymbolicMechanism.from_lagrangian(
        "cart-pendulum",
        "(M + m)/2*s'^2 - m*l*cos(p)*s'*p' + (J + m*l^2)/2*p'^2 + m*g*l*cos(p)",
        coordinates={"s": "m", "p": "rad"},
        parameters={"M": 1.0, "m": 0.3, "l": 0.5, "J": 0.3 / 12, "c": 0.02},
        constants={"g": 9.81},
        inputs={"u": "N"},
        forces={"s": "u"},
        dissipation="c/2*p'^2",
    )
    dt, steps = 0.01, 300

    def record() -> Data:
        force = {"u": 2.0 * np.sin(4.0 * _times(dt, steps))}
        return _angles(mechanism, dt, steps, q=[0.0, 0.4], inputs=force)

    def experiment(data: Data) -> Experiment:
        measured = Measured(joint_position(mechanism, "s", "p"), ("s", "p"), std=1e-3)
        start = Start(q={"p": 0.4}, q_std="free", v_std="free")
        return Experiment(_log(data), [measured], inputs={"u": "u u"}, start=start)

    free = _freed(mechanism, "M", "m", "l", "c").free("u.delay", start=0.0043)
    return Case(dt, free, record, experiment)


def rolling() -> Case:
    """Chaplygin's sleigh in symbols: a constraint on velocities."""
    mechanism = SymbolicMechanism.from_lagrangian(
        "sleigh",
        "m/2*((x' - a*th'*sin(th))^2 + (y' + a*th'*cos(th))^2) + J/2*th'^2",
        coordinates={"x": "m", "y": "m", "th": "rad"},
        parameters={"m": 2.0, "J": 0.3, "a": 0.2},
        rolling={"blade": "y'*cos(th) = x'*sin(th)"},
        inputs={"u": "N·m"},
        forces={"th": "u"},
    )
    dt, steps = 0.01, 200

    def record() -> Data:
        torque = {"u": 0.3 * np.sin(3.0 * _times(dt, steps))}
        return _angles(mechanism, dt, steps, stepper=OneStep, v=[1.0, 0.0, 0.5], inputs=torque)

    def experiment(data: Data) -> Experiment:
        names = mechanism.coordinate_names
        measured = Measured(joint_position(mechanism, *names), names, std=1e-3)
        start = Start(v={"x": 1.0, "th": 0.5}, q_std="free", v_std="free")
        return Experiment(_log(data), [measured], inputs={"u": "u u"}, start=start)

    return Case(dt, _freed(mechanism, "m", "J", "a"), record, experiment)


def _web(q: Any, v: Any, t: Any, p: Any) -> Any:
    return jnp.stack([-p[0] * jnp.sin(q[1]) * v[0] + jnp.cos(3 * t), -p[1] * v[1] * jnp.abs(v[1])])


def _sail(q: Any, p: Any) -> Any:
    return p[0] * (1.0 - jnp.cos(q[0] - q[1])) + 0.5 * q[0] ** 2


def _seen(seen: Any) -> Any:
    return jnp.stack([seen.q[0] * seen.v[1], jnp.sin(seen.t) + seen.u[0], seen.frames[-1, 0, 3]])


def own_element() -> Case:
    """A force and a potential of the user's own on a cart-pendulum, and a sensor of the user's own."""
    mechanism = (
        mechanisms.cart_pendulum(damping=0.05)
        .element("web", ["slide", "hinge"], force=_web, parameters={"a": 0.5, "b": 0.1})
        .element("sail", ["slide", "hinge"], potential=_sail, parameters={"k": 2.0})
        .frame("tip", "pole", origin=(0, 0, -1.0))
    )
    dt, steps = 0.01, 250
    (force,) = mechanism.input_names

    def record() -> Data:
        t = _times(dt, steps)
        motion = simulate(mechanism, Variational(dt), steps, q=[0.1, 0.4], inputs=np.sin(2 * t[:-1, None]))
        u = np.sin(2 * t)
        values = np.stack([motion.q[:, 0] * motion.v[:, 1], np.sin(t) + u, motion.frame("tip")[:, 0, 3]], -1)
        noisy = _noisy(values, 1e-3, 0)
        return _data({f"seen{i}": (t, noisy[:, i]) for i in range(3)} | {"u": (t, u)})

    def experiment(data: Data) -> Experiment:
        measured = Measured(FunctionSensor(_seen), ("seen0", "seen1", "seen2"), std=1e-3)
        start = Start(q={"slide": 0.1, "hinge": 0.4}, q_std="free", v_std="free")
        return Experiment(_log(data), [measured], inputs={force: "u"}, start=start)

    free = _freed(mechanism, "web.a", "web.b", "sail.k", "pole.mass", "hinge.damping", "tip.origin.z")
    return Case(dt, free, record, experiment)


# Conditions on the initial state


def _still(q: Any, v: Any, model: Any) -> Any:
    none = jnp.zeros_like(v)
    return model.force_balance(q, none, none, jnp.zeros(model.nu), 0.0)


def condition() -> Case:
    """A rod that hangs still at the start: one condition held exactly, one with a std."""
    mechanism = mechanisms.pendulum(damping=0.1).spring("hinge", stiffness=2.0, rest=1.5)
    dt, steps = 0.01, 120

    def record() -> Data:
        torque = 1.5 * np.sin(7.0 * _times(dt, steps))
        return _angles(mechanism, dt, steps, std=0.01, q=[0.67], inputs={mechanism.input_names[0]: torque})

    def experiment(data: Data) -> Experiment:
        conditions = (
            Condition("hangs still", _still),
            Condition("rests", lambda q, v, model: v + 0.1 * q * v, std=0.05),
        )
        start = Start(q=[0.8], q_std="free", v_std="free", conditions=conditions)
        measured = Measured(joint_position(mechanism, "hinge"), "hinge", std=0.01)
        return Experiment(_log(data), [measured], inputs=_logged_inputs(mechanism), start=start)

    return Case(dt, _freed(mechanism, "hinge.stiffness", "hinge.damping", "rod.mass"), record, experiment)


# Stops and contacts


def stop() -> Case:
    """A pendulum that falls on its stop, rests on it and is drawn away."""
    rod = Mechanism("stopped").body("rod", mass=1.0, com=(0, 0, -0.5), inertia=(0.02, 0.02, 0.01))
    mechanism = rod.revolute("hinge", "world", "rod", axis="y").torque("hinge").stops("hinge", upper=0.3)
    dt, steps = 0.004, 400

    def record() -> Data:
        torque = np.where(_times(dt, steps) < 1.0, 3.0, -2.0)
        return _angles(mechanism, dt, steps, stepper=Spook, q=[-1.2], inputs={"hinge.torque": torque})

    def experiment(data: Data) -> Experiment:
        measured = Measured(joint_position(mechanism, "hinge"), "hinge", std=1e-3)
        start = Start(q=[-1.2], q_std="free", v_std="free")
        return Experiment(_log(data), [measured], inputs=_logged_inputs(mechanism), start=start)

    return Case(dt, _freed(mechanism, "rod.mass", "rod.com.z", "rod.inertia.yy"), record, experiment)


def contacts() -> Case:
    """A board on four feet, pushed until it slides."""
    m = Mechanism("board").body("board", mass=4.0, com=(0.05, 0, 0), inertia=(0.1, 0.2, 0.3))
    m = m.floating("free", "world", "board")
    for i, (x, y) in enumerate([(-0.2, -0.3), (-0.2, 0.3), (0.2, -0.3), (0.2, 0.3)]):
        m = m.frame(f"foot{i}", "board", origin=(x, y, -0.1))
        m = m.contact(f"touch{i}", point=f"foot{i}", plane="world", friction=0.3)
    mechanism = m.force("push", "board")
    dt, steps = 0.004, 150
    q = [0, 0, 0.12, 0, 0, 0]
    names = mechanism.coordinate_names

    def record() -> Data:
        t = _times(dt, steps)
        push = {"push.x": 30.0 * (t > 0.3), "push.y": 5.0 * (t > 0.3), "push.z": 0 * t}
        return _angles(mechanism, dt, steps, stepper=Spook, q=q, inputs=push)

    def experiment(data: Data) -> Experiment:
        measured = Measured(joint_position(mechanism, *names), names, std=1e-3)
        start = Start(q=q, v_std={"free.x": "free"})
        return Experiment(_log(data), [measured], inputs=_logged_inputs(mechanism), start=start)

    numbers = ("board.mass", "board.com.x", "touch0.contact_friction", "foot1.origin.z", "board.inertia.yy")
    return Case(dt, _freed(mechanism, *numbers), record, experiment)


# The flexible loop of Baxter's arm


def baxter() -> Case:
    """12 links, 31 coordinates, 12 constraints, feedback by a regulator's gains; 300 steps."""
    settings = baxter_loop.SETTINGS | baxter_loop.QUICK
    mechanism = baxter_loop.loop({"kappa_theta": 5.0, "kappa_psi": 5.0}, 12, settings)
    free = (
        Parameters(mechanism)
        .free("th_*.stiffness", name="kappa_theta", bounds=(1e-3, None))
        .free("ps_*.stiffness", name="kappa_psi", bounds=(1e-3, None))
    )
    return Case(
        baxter_loop.DT,
        free,
        lambda: {name: np.asarray(x) for name, x in baxter_loop.record(settings).items()},
        lambda data: baxter_loop.problem(settings, data, 12)[1],
        {"Variational midpoint": lambda dt: Variational(dt, absolute_tolerance=1e-9)},
        gains=True,
    )


CASES: dict[str, Callable[[], Case]] = {
    "pendulum": pendulum,
    "pendulum, own cost": own_cost,
    "cart-pendulum": cart_pendulum,
    "double pendulum, line spring": double_pendulum,
    "four-bar, feedback": four_bar,
    "dry friction by load": dry_friction,
    "dry friction": dry_friction_without_load,
    "smooth friction, gear": smooth_friction,
    "stiff springs": stiff_springs,
    "floating base": floating_base,
    "driven coordinate": driven_coordinate,
    "late inputs": input_delays,
    "symbolic": symbolic,
    "symbolic, rolling": rolling,
    "own element and sensor": own_element,
    "condition at the start": condition,
    "stop": stop,
    "contacts": contacts,
    "flexible loop, 12 links": baxter,
}
