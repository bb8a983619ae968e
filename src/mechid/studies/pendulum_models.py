"""Pendulums of the study `pendulum`: what is free in each model of friction, and a motion that is integrated apart.

J and ml as in the paper (Marklund, Sections 4.2, 4.5); b viscous friction, N·m·s/rad; mu is r·μ of the paper, a
length: dry friction as a torque, over the load of the hinge (its weight, where the load is not modelled);
mu_delta the same for what sticking adds, over the weight; zeta = 1/v_S², s²/rad² (4.1).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mechid.compile import jit
from mechid.model.mechanism import Mechanism
from mechid.model.parameters import Parameters

FRICTIONS = ("viscous", "dry", "stribeck")
LAWS = {
    "smooth": "a Coulomb level with tanh(ω / 0.05 rad/s), which creeps in the place of sticking",
    "level": "a Coulomb level that sticks",
    "load": "that sticks and grows with the hinge's load (2.24, F.4)",
}
WIDTH = 0.05
"""rad/s"""
ENCODER = 2 * np.pi / 4096
"""rad, step of the encoder of the releases"""
FINE = 1e-4
"""s, step of the integration that releases are made by"""
SAMPLED = 10
"""of its steps from sample to sample: 1000 Hz"""


class Rod(NamedTuple):
    mass: float
    """kg"""
    arm: float
    """m, from the hinge to the centre of mass"""
    gravity: float
    """m/s²"""

    @property
    def weight(self) -> float:
        """N"""
        return self.mass * self.gravity


RELEASED = Rod(0.428, 0.092, 9.82)
"""the paper's hardware: what swings is the pendulum of its Furuta pendulum"""
DRIVEN = Rod(0.676, 0.45, 9.81)
"""weighed and measured (see the reference data)"""

STARTS = {"J": 0.01, "b": 1e-4, "mu": 1e-4, "mu_delta": 1e-4, "zeta": 1.0}
"""where the first search begins: J, b and mu as in Table 1 of the paper"""
DRIVEN_STARTS = {"J": 0.1, "ml": 0.2, "b": 0.01, "mu": 0.01, "mu_delta": 0.005, "zeta": 1.0, "loss": 0.05}


def released(friction: str, law: str, start: dict[str, float]) -> Parameters:
    """A rod on a hinge with friction; J about the centre of mass."""
    rod = RELEASED
    m = _rubbing(_rod("pendulum", rod), friction, law)
    free = Parameters(m).free("rod.inertia.yy", name="J", start=start["J"], bounds=(0.0, None))
    return _with_friction(free, friction, law, rod, start)


def driven(friction: str, law: str, start: dict[str, float], loss: float | None = None) -> Parameters:
    """A rod on a motor with gears; J about the hinge with the rotor in it, ml the first moment.

    loss: what the gears keep of the torque that they carry, against the motion; None: free.
    """
    rod = DRIVEN
    gain = start["loss"] if loss is None else loss
    m = _rod("driven-pendulum", rod).torque("hinge").motor("hinge", gain=gain, name="gears")
    m = _rubbing(m, friction, law)
    free = Parameters(m).free("rod.origin_inertia.yy", name="J", start=start["J"], bounds=(1e-3, None))
    free = free.tie("ml", {"rod.first_moment.z": -1.0}, unit="kg·m", start=start["ml"], bounds=(0.0, None))
    free = _with_friction(free, friction, law, rod, start)
    if loss is None:
        free = free.tie("loss", {"gears.gain": 1.0}, unit="1", start=start["loss"], bounds=(0.0, 0.9))
    return free


def _rubbing(m: Mechanism, friction: str, law: str) -> Mechanism:
    if friction == "viscous":
        return m
    if law == "smooth":
        return m.friction("hinge", coulomb=0.0, stribeck_exponent=2.0, width=WIDTH)
    # the variational integrator asks for loads only where some are there when the mechanism is made
    return m.dry_friction("hinge", load_coefficient=STARTS["mu"] if law == "load" else 0.0, load_radius=1.0)


def _with_friction(
    free: Parameters, friction: str, law: str, rod: Rod, start: dict[str, float]
) -> Parameters:
    free = free.free("hinge.damping", name="b", start=start["b"], bounds=(0.0, None))
    if friction == "viscous":
        return free
    moved = {"hinge.load_coefficient": 1.0} if law == "load" else {"hinge.coulomb": rod.weight}
    free = free.tie("mu", moved, unit="m", start=start["mu"], bounds=(0.0, None))
    return _sticking(free, rod, start) if friction == "stribeck" else free


def _rod(name: str, rod: Rod) -> Mechanism:
    across = rod.mass * rod.arm**2 / 3
    return (
        Mechanism(name, gravity=(0, 0, -rod.gravity))
        .body("rod", mass=rod.mass, com=(0, 0, -rod.arm), inertia=(across, across, across / 100))
        .revolute("hinge", "world", "rod", axis="y")
        .damper("hinge", damping=0.0)
    )


def _sticking(free: Parameters, rod: Rod, start: dict[str, float]) -> Parameters:
    return free.tie(
        "mu_delta", {"hinge.stribeck": rod.weight}, unit="m", start=start["mu_delta"], bounds=(0.0, None)
    ).tie(
        "zeta",
        {"hinge.stribeck_velocity": lambda zeta: zeta**-0.5},
        unit="s²/rad²",
        start=start["zeta"],
        bounds=(0.01, 100.0),
    )


def swung(angles: np.ndarray, truth: dict[str, float], time: float) -> np.ndarray:
    """(samples, releases) angles of rods let go at rest, each 1 ms, by an integration apart from all steppers.

        (J + m l²) ω' = −m g l sin θ − b ω − T,   |T| ≤ mu (|F_x| + |F_z|) + mu_delta m g exp(−zeta ω²)

    T holds the rod where it can, and F, the hinge's force, is that of the rod's acceleration.
    """
    m, l, g = RELEASED
    inertia = truth["J"] + m * l**2

    def step(state: tuple[jax.Array, ...], _: None) -> tuple[tuple[jax.Array, ...], None]:
        angle, rate, turning = state
        s, c = jnp.sin(angle), jnp.cos(angle)
        along, across = m * (g * c + l * rate**2), m * (g * s + l * turning)
        load = jnp.abs(along * s - across * c) + jnp.abs(along * c + across * s)
        sticks = truth["mu_delta"] * m * g * jnp.exp(-truth["zeta"] * rate**2)
        bound = FINE * (truth["mu"] * load + sticks) / inertia
        free = rate - FINE * (m * g * l * s + truth["b"] * rate) / inertia
        new = free - jnp.clip(free, -bound, bound)
        return (angle + FINE * new, new, (new - rate) / FINE), None

    def sample(state: tuple[jax.Array, ...], _: None) -> tuple[tuple[jax.Array, ...], jax.Array]:
        return jax.lax.scan(step, state, None, length=SAMPLED)[0], state[0]

    count = round(time / (FINE * SAMPLED)) + 1
    rest = jnp.zeros(len(angles))
    run = jit(lambda first: jax.lax.scan(sample, first, None, length=count)[1], once=True)
    return np.asarray(run((jnp.asarray(angles), rest, rest)))
