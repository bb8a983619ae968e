"""Problems for tests of derivatives: few steps, few unknowns, everything that a motion may depend on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from estimation_cases import freed, log_with

from mechid import BDF, Condition, Mechanism, OneStep, Parameters, Spook, Variational
from mechid.dynamics.sensors import (
    FunctionSensor,
    frame_pose,
    frame_position,
    joint_force,
    joint_position,
    joint_velocity,
    reaction,
)
from mechid.estimate.experiment import Cost, Experiment, Measured, Start, Tracked
from mechid.model.symbolic.mechanism import SymbolicMechanism
from mechid.model.system import System
from mechid.studies import mechanisms

# tighter than by default, for the sake of finite differences
TIGHT = {"absolute_tolerance": 1e-13, "relative_tolerance": 1e-14}
STEPS, DT = 12, 0.01


class Case(NamedTuple):
    mechanism: System
    stepper: Any
    experiments: Experiment | list[Experiment]
    free: Parameters


def record(
    sensors: list[tuple[Any, int, float]],
    *,
    steps: int = STEPS,
    dt: float = DT,
    between: bool = False,
    name: str = "log",
    drivers: dict[str, Any] | None = None,
    **options: Any,
) -> Experiment:
    """Sensors (sensor, channels, std) with random numbers for what they measured.

    Args:
        between: samples lie inside steps, not at their ends.
        drivers: functions of time in the log, by the name of their channel.
        options: of the experiment.
    """
    rng = np.random.default_rng(7)
    t = dt * np.arange(steps + 1)
    time = np.append(np.arange(0.0, steps * dt, 0.77 * dt), steps * dt) if between else t
    channels = {k: (t, f(t)) for k, f in (drivers or {}).items()}
    measured = []
    for i, (sensor, count, std) in enumerate(sensors):
        own = [f"s{i}_{j}" for j in range(count)]
        channels |= {c: (time, 0.3 * rng.normal(size=len(time))) for c in own}
        measured.append(Measured(sensor, own, std=std))
    return Experiment(log_with(name, **channels), measured, **options)


def wave(amplitude: float, frequency: float, phase: float = 0.3) -> Callable[[np.ndarray], np.ndarray]:
    return lambda t: amplitude * np.sin(frequency * t + phase)


# Loops


def four_bar(stepper: Any) -> Case:
    """A length in the loop; the crank's angle and rate are unknown, the rest follows."""
    m = mechanisms.four_bar(damping=0.05).spring("b", stiffness=3.0, rest=0.2)
    start = Start(
        q=mechanisms.FOUR_BAR_GUESS,
        v={"a": 1.0},
        q_std={"a": 0.2, "b": "free", "c": "free"},
        v_std={"a": 0.5, "b": "free", "c": "free"},
    )
    sensors = [
        (joint_position(m, "a", "c"), 2, 0.1),
        (joint_velocity(m, "b"), 1, 0.5),
        (reaction(m, "closure"), 2, 30.0),
    ]
    e = record(sensors, inputs={m.input_names[0]: "tau"}, start=start, drivers={"tau": wave(1.0, 30.0)})
    return Case(m, stepper, e, freed(m, "rocker-end.origin.x", "coupler.mass"))


# Friction


def block() -> Mechanism:
    body = Mechanism("block").body("block", mass=2.0, inertia=(0.1, 0.1, 0.1))
    body = body.prismatic("x", "world", "block", axis="x").torque("x").spring("x", stiffness=40.0)
    return body.dry_friction("x", coulomb=3.0, stribeck=1.5, stribeck_velocity=0.4, stribeck_exponent=1.5)


def sliding(stepper: Any) -> Case:
    """Always the same way, through the falling part of Stribeck's curve."""
    m = block()
    sensors = [(joint_position(m, "x"), 1, 0.01), (joint_velocity(m, "x"), 1, 0.1)]
    e = record(sensors, start=Start(v={"x": 0.9}, v_std="free"))
    return Case(m, stepper, e, freed(m, "x.coulomb", "x.stribeck", "x.stribeck_velocity"))


def sticking_then_sliding(stepper: Any) -> Case:
    """Pushed below the level of friction for five steps, then far above."""
    m = block()
    push = {"push": lambda t: np.where(t < 4.5 * DT, 1.0, 30.0)}
    sensors = [(joint_position(m, "x"), 1, 1e-3), (joint_velocity(m, "x"), 1, 0.1)]
    e = record(sensors, inputs={"x.torque": "push"}, drivers=push)
    return Case(m, stepper, e, freed(m, "x.coulomb", "block.mass", "x.stiffness"))


def loaded_bearing(stepper: Any) -> Case:
    """Friction that grows with what its hinge carries."""
    m = mechanisms.pendulum().dry_friction("hinge", coulomb=0.05, load_coefficient=0.2, load_radius=0.05)
    e = record([(joint_position(m, "hinge"), 1, 0.01)], start=Start(q={"hinge": 0.5}, v={"hinge": 2.0}))
    return Case(m, stepper, e, freed(m, "hinge.load_coefficient", "rod.mass", "rod.com.z"))


# Springs, bodies in space, drives


def stiff(stepper: Any) -> Case:
    """Three oscillations in a step; by the logarithm of the stiffness."""
    m = mechanisms.cart_pendulum().spring("slide", stiffness=4e6).damper("slide", damping=10.0)
    m = m.spring("hinge", stiffness=5e3, rest=0.1)
    free = freed(m, "slide.stiffness", "hinge.stiffness", transform="positive").free("pole.mass")
    start = Start(q={"slide": 1e-3, "hinge": 0.2}, q_std={"hinge": 0.1})
    sensors = [(joint_position(m, "slide"), 1, 1e-4), (joint_position(m, "hinge"), 1, 0.05)]
    e = record(sensors, inputs={"slide.torque": "push"}, start=start, drivers={"push": wave(300.0, 40.0)})
    return Case(m, stepper, e, free)


def floating(stepper: Any) -> Case:
    """A body thrown and turning, its pose seen in a frame that is tilted on it; pushed along its own axes."""
    m = (
        Mechanism("thrown")
        .body("box", mass=1.3, com=(0.1, -0.05, 0.02), inertia=(0.04, 0.06, 0.03))
        .floating("free", "world", "box")
        .frame("camera", "box", origin=(0.2, 0.1, -0.1), rotation=(0.7, -0.4, 1.1))
        .force("jet", "camera", axes="body", moment=True)
    )
    names = [f"free.{n}" for n in ("x", "y", "z", "roll", "pitch", "yaw")]
    start = Start(
        q=dict(zip(names, (0.1, -0.2, 0.3, 0.8, -0.5, 1.2), strict=True)),
        v=dict(zip(names, (0.5, 0.2, 1.0, 2.0, -3.0, 1.5), strict=True)),
        v_std={"free.pitch": "free"},
    )
    e = record(
        [(frame_pose(m, "camera"), 6, 0.1)],
        inputs={"jet.fx": "f", "jet.mz": "f"},
        start=start,
        drivers={"f": wave(4.0, 25.0)},
    )
    return Case(m, stepper, e, freed(m, "box.com.y", "box.inertia.xy", "camera.origin.x"))


def consistent_inertia(stepper: Any) -> Case:
    """All ten numbers of a body by their logarithms (Cholesky)."""
    m = mechanisms.furuta()
    start = Start(q={"turn": 0.2, "swing": 1.2}, v={"turn": 3.0, "swing": -2.0})
    e = record([(joint_position(m, "turn", "swing"), 2, 0.1)], start=start)
    return Case(m, stepper, e, Parameters(m).free_inertia("pendulum"))


CART = (
    Mechanism("cart")
    .body("cart", mass=1.0)
    .prismatic("slide", "world", "cart", axis="x")
    .body("rod", mass=0.5, com=(0, 0, -0.3), inertia=(0.02, 0.02, 0.001))
    .revolute("hinge", "cart", "rod", axis="y")
    .frame("tip", "rod", origin=(0, 0, -0.6))
    .damper("hinge", damping=0.05)
    .motor("hinge", gain=0.8, name="motor")
    .drive("slide", name="path")
)


def _cart(mechanism: Mechanism, **options: Any) -> Experiment:
    sensors = [
        (joint_position(mechanism, "hinge"), 1, 0.1),
        (joint_velocity(mechanism, "slide", "hinge"), 2, 0.3),
        (joint_force(mechanism, "hinge"), 1, 1.0),
        (reaction(mechanism, "path"), 1, 20.0),
    ]
    drivers = {"path": wave(0.05, 20.0), "u": wave(2.0, 40.0)}
    given = {
        "inputs": {"path": "path", "motor": "u"},
        "start": Start(q={"hinge": 0.4}, q_std={"hinge": "free"}, v={"slide": 0.7}, v_std=0.5),
    }
    return record(sensors, drivers=drivers, **(given | options))


def driven(stepper: Any, *numbers: str) -> Case:
    """A pendulum on a cart whose path is given, and the force that this takes; motor and path act late."""
    m = CART.delayed("motor", 0.0137).delayed("path", 0.0082)
    return Case(
        m, stepper, _cart(m, hold="mean", between=True), freed(m, *(numbers or ("rod.mass", "rod.com.z")))
    )


# Models and parts written by users


def symbolic(stepper: Any) -> Case:
    m = SymbolicMechanism.from_lagrangian(
        "cart-pendulum",
        "(M + m)/2*s'^2 - m*l*cos(p)*s'*p' + (J + m*l^2)/2*p'^2 + m*g*l*cos(p)",
        coordinates={"s": "m", "p": "rad"},
        parameters={"M": 1.0, "m": 0.3, "l": 0.5, "J": 0.3 / 12, "c": 0.02},
        constants={"g": 9.81},
        inputs={"u": "N"},
        forces={"s": "u"},
        dissipation="c/2*p'^2",
    )
    start = Start(q={"p": 0.7}, v={"p": 1.0}, q_std={"p": "free"})
    sensors = [(joint_position(m, "s", "p"), 2, 0.1), (joint_velocity(m, "p"), 1, 0.5)]
    e = record(sensors, inputs={"u": "u"}, start=start, drivers={"u": wave(3.0, 30.0)})
    return Case(m, stepper, e, freed(m, "m", "l", "c"))


def sleigh(stepper: Any) -> Case:
    """Chaplygin's: a constraint on rates, so that one rate of the start follows."""
    m = SymbolicMechanism.from_lagrangian(
        "sleigh",
        "m/2*((x' - a*th'*sin(th))^2 + (y' + a*th'*cos(th))^2) + J/2*th'^2",
        coordinates={"x": "m", "y": "m", "th": "rad"},
        parameters={"m": 2.0, "J": 0.3, "a": 0.2},
        rolling={"blade": "y'*cos(th) = x'*sin(th)"},
    )
    start = Start(q={"th": 0.4}, v={"x": 1.0, "th": 2.0}, q_std={"th": "free"}, v_std={"x": 0.1, "y": "free"})
    e = record([(joint_position(m, "x", "y", "th"), 3, 0.1)], start=start)
    return Case(m, stepper, e, freed(m, "a", "J"))


def network(q: Any, v: Any, t: Any, p: Any) -> Any:
    """Friction by two neurons."""
    return -(p[0] * jnp.tanh(p[1] * v) + p[2] * jnp.tanh(3.0 * v + jnp.sin(q)))


ROD = mechanisms.pendulum(damping=0.1).frame("tip", "rod", origin=(0, 0, -0.5))
LEARNT = ROD.element("net", ["hinge"], force=network, parameters={"a": 0.5, "b": 2.0, "c": -0.3})
ROD_START = Start(q={"hinge": 0.8}, v={"hinge": 1.0}, v_std="free")


def of_everything(seen: Any) -> Any:
    """What no sensor shows: products of everything that there is to be seen."""
    pull = seen.force[0] * jnp.cos(seen.q[0]) + 0.1 * seen.twists[2, 3]
    return jnp.array([seen.v[0] * seen.frames[2, 0, 3] + seen.u[0] ** 2, pull + jnp.sin(seen.t)])


def nearly_still(q: Any, v: Any, model: Any) -> Any:
    still = jnp.zeros_like(v)
    force = model.force_balance(q, still, still, jnp.zeros(model.nu), 0.0)
    return jnp.concatenate([force * (1.0 + q), v * jnp.cos(q)])


def controlled(stepper: Any) -> Case:
    """Feedback along what was measured."""
    m = mechanisms.cart_pendulum(damping=0.1)
    e = record(
        [(joint_position(m, "slide", "hinge"), 2, 0.05)],
        inputs={m.input_names[0]: "f"},
        start=Start(q={"hinge": 0.6}, q_std={"hinge": "free"}),
        feedback=Tracked({"slide": "path"}, gain=[[60.0]]),
        drivers={"f": wave(3.0, 30.0), "path": wave(0.05, 20.0)},
    )
    return Case(m, stepper, e, freed(m, "pole.mass", "hinge.damping", "cart.mass"))


def running(seen: Any, measured: Any, parameters: Any) -> Any:
    gap = (seen.q - measured) / 0.1
    return jnp.sum(jnp.log(1.0 + gap**2)) + 0.01 * parameters["rod.mass"] ** 2 * seen.v[0] ** 2


def terminal(seen: Any, measured: Any, parameters: Any) -> Any:
    return 50.0 * parameters["hinge.damping"] * jnp.sum((seen.q - measured) ** 2) + jnp.sin(seen.q[0])


def own_cost(stepper: Any) -> Case:
    """And a prior, which is a residual."""
    sensors = [(joint_position(ROD, "hinge"), 1, 0.1)]
    e = record(sensors, start=ROD_START, cost=Cost(running, terminal))
    free = freed(ROD, "rod.mass", "hinge.damping", transform="positive", prior=(0.3, 0.5))
    return Case(ROD, stepper, e, free)


def between_steps(stepper: Any) -> Case:
    """Two experiments, one with samples inside steps; transformed and tied parameters with priors."""
    m = ROD.spring("hinge", stiffness=2.0)
    sensors = [
        (joint_position(m, "hinge"), 1, 0.1),
        (joint_velocity(m, "hinge"), 1, 0.5),
        (frame_position(m, "tip"), 3, 0.1),
    ]
    start = Start(q={"hinge": 1.0}, q_std={"hinge": 0.05})
    es = [
        record(sensors, between=True, name="inside", start=start),
        record(sensors[:1], name="at ends", start=ROD_START, terminal_weight=3.0),
    ]
    free = freed(m, "hinge.stiffness", transform="positive", prior=(3.0, 0.7)).tie(
        "middle",
        {"rod.com.z": lambda x: -(x**2)},
        start=0.4,
        unit="m",
        transform="interval",
        bounds=(0.1, 0.9),
    )
    return Case(m, stepper, es, free)


def late_motor(stepper: Any, hold: str) -> Case:
    m = ROD.motor("hinge", gain=1.0, name="motor").delayed("motor", 0.0137)
    inputs, drivers = {"motor": "u"}, {"u": wave(2.0, 40.0)}
    e = record([(joint_position(m, "hinge"), 1, 0.1)], inputs=inputs, drivers=drivers, hold=hold)
    return Case(m, stepper, e, freed(m, "motor.delay"))


def small(stepper: Any) -> Case:
    """Little to compile."""
    m = mechanisms.pendulum(damping=0.1)
    sensors = [(joint_position(m, "hinge"), 1, 0.02)]
    tau = {m.input_names[0]: "tau"}
    e = record(sensors, inputs=tau, start=ROD_START, drivers={"tau": wave(1.0, 30.0)})
    return Case(m, stepper, e, freed(m, "rod.mass", "hinge.damping", prior=(0.9, 0.5)))


def written_by_the_user(stepper: Any) -> Case:
    """An element, a sensor inside steps, and a condition on the first state in which a parameter takes part."""
    m = LEARNT
    start = Start(
        q={"hinge": 0.7},
        v={"hinge": 0.5},
        q_std="free",
        conditions=Condition("nearly still", nearly_still, 0.3),
    )
    e = record(
        [(FunctionSensor(of_everything), 2, 0.2)],
        between=True,
        inputs={m.input_names[0]: "tau"},
        start=start,
        drivers={"tau": wave(1.0, 30.0)},
    )
    return Case(m, stepper, e, freed(m, "net.b", "rod.mass", "hinge.damping"))


BALANCED = Variational(DT, forces="balanced", **TIGHT)
CASES: dict[str, Callable[[], Case]] = {
    "small": lambda: small(Variational(DT, **TIGHT)),
    "written by the user": lambda: written_by_the_user(Variational(DT, **TIGHT)),
    "four-bar": lambda: four_bar(Variational(DT, **TIGHT)),
    "four-bar by Spook": lambda: four_bar(Spook(DT)),
    "sliding": lambda: sliding(Variational(DT, **TIGHT)),
    "sliding by BDF": lambda: sliding(BDF(DT, **TIGHT)),
    "sticking, then sliding": lambda: sticking_then_sliding(BALANCED),
    "loaded bearing": lambda: loaded_bearing(BALANCED),
    "stiff by BDF": lambda: stiff(BDF(DT, **TIGHT)),
    "floating": lambda: floating(BALANCED),
    "floating by Spook": lambda: floating(Spook(DT)),
    "driven": lambda: driven(Variational(DT, **TIGHT)),
    "consistent inertia": lambda: consistent_inertia(Variational(DT, **TIGHT)),
    "symbolic": lambda: symbolic(OneStep(DT, **TIGHT)),
    "rolling by BDF": lambda: sleigh(BDF(DT, **TIGHT)),
    "controlled": lambda: controlled(Variational(DT, **TIGHT)),
    "own cost": lambda: own_cost(Variational(DT, **TIGHT)),
    "between steps": lambda: between_steps(Variational(DT, **TIGHT)),
}
