"""A pendulum with friction and its log, which the examples of this folder share."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from mechid import Experiment, Log, Measured, Mechanism, Start, Variational, joint_position, log_of, simulate

DT = 0.01
STD = 1e-3
"""rad, of the sensor's noise"""


def pendulum(damping: float = 0.05) -> Mechanism:
    """A rod on a hinge with a motor."""
    return (
        Mechanism("pendulum")
        .body("rod", mass=1.0, com=(0, 0, -0.25), inertia=(0.02, 0.02, 1e-4))
        .revolute("hinge", "world", "rod", axis="y")
        .damper("hinge", damping=damping)
        .torque("hinge")
    )


def recorded(mechanism: Mechanism, steps: int, seed: int = 0) -> Log:
    """A log of the mechanism, pushed by a sum of sines from rest at 1 rad."""
    t = DT * np.arange(steps)
    torque = 0.5 * np.sin(2.0 * t) + 0.3 * np.sin(5.3 * t)
    run = simulate(mechanism, Variational(DT), steps, q={"hinge": 1.0}, inputs=torque[:, None])
    angle = run.q[:, 0] + STD * np.random.default_rng(seed).normal(size=steps + 1)
    channels = {"angle": angle, "torque": np.append(torque, torque[-1])}
    return log_of(run.t, channels, units={"angle": "rad", "torque": "N·m"})


def experiment(mechanism: Mechanism, log: Log) -> Experiment:
    """The log as an experiment with the mechanism."""
    return Experiment(
        log,
        inputs={mechanism.input_names[0]: "torque"},
        measured=[Measured(joint_position(mechanism, "hinge"), "angle", std=STD)],
        start=Start(q={"hinge": 1.0}),
    )


def stribeck(v: jnp.ndarray) -> jnp.ndarray:
    """Friction that falls before it grows with the velocity, N·m."""
    return -(0.08 + 0.12 * jnp.exp(-((v / 0.8) ** 2))) * jnp.tanh(v / 0.05) - 0.02 * v
