"""The Stäubli TX40 of `arm-regression`: its logs, its mechanism, and the numbers published with them (figaroh).

Six motors turn six joints through gears of 32, 32, 45, −48, 45 and 32; motor 6 sits before joint 5 and turns with
it too: motor angles are R q and joint torques Rᵀ τ with R diagonal but for R[6, 5] = 32. Its rotor and its own
friction therefore feel the rate of q5 + q6. The rotor is a body of the mechanism whose two turns are coupled to the
joints; the friction is an element of both.
"""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from mechid.data.log import Log, log_of
from mechid.dynamics.sensors import joint_position
from mechid.errors import MechidError
from mechid.estimate.experiment import Experiment, Measured
from mechid.model.mechanism import Mechanism
from mechid.model.parameters import Parameters
from mechid.model.reading import read_mechanism
from mechid.reference import reference_file

FOLDER = ("data", "staubli_tx40")
RATE = 5000.0
"""Hz"""
RATIOS = np.diag([32.0, 32.0, 45.0, -48.0, 45.0, 32.0])
RATIOS[5, 4] = 32.0
ZERO = np.array([0.0, -np.pi / 2, np.pi / 2, 0.0, 0.0, 0.0])
"""rad, added to the joint angles that the motors' give"""
JOINTS = tuple(f"joint_{i}" for i in range(1, 7))
LINKS = tuple(f"link_{i}" for i in range(1, 7))
WIDTH = 0.02
"""rad/s over which dry friction changes its side"""


BALL = 0.03
"""m"""


def read_tx40() -> Log:
    """Joint angles (rad) and joint torques (N·m) of the exciting motion."""
    angles, torques = (
        np.loadtxt(reference_file(*FOLDER, name), delimiter=",", skiprows=1)
        for name in ("pos_read_data.csv", "curr_data.csv")
    )
    q = np.linalg.solve(RATIOS, angles.T).T + ZERO
    tau = torques @ RATIOS
    t = np.arange(len(q)) / RATE
    channels = {f"q{i + 1}": q[:, i] for i in range(6)} | {f"tau{i + 1}": tau[:, i] for i in range(6)}
    units = {name: "rad" if name.startswith("q") else "N·m" for name in channels}
    return log_of(t, channels, units=units, name="tx40")


def _shaft(q: Any, v: Any, t: Any, p: Any) -> Any:
    """Friction of motor 6 on joints 5 and 6."""
    rate = v[0] + v[1]
    force = -p[0] * rate - p[1] * jnp.tanh(rate / WIDTH)
    return jnp.stack([force, force])


def tx40(*, thick: bool = False) -> Mechanism:
    """The arm of the file with rotors, friction and offsets.

    thick: links that are thin rods in the file get at least the inertia of a ball of 3 cm, so that a search among
    real bodies can begin there.
    """
    arm = read_mechanism(reference_file(*FOLDER, "tx40_mdh_modified.urdf"))
    if thick:
        balls = [replace(b, inertia=b.inertia + 0.4 * b.mass * BALL**2 * np.eye(3)) for b in arm.bodies]
        arm = replace(arm, bodies=tuple(balls))
    for joint in JOINTS:
        arm = (
            arm.armature(joint, inertia=0.05)
            .damper(joint, damping=1.0)
            .friction(joint, coulomb=1.0, width=WIDTH)
            .offset(joint)
        )
    return (
        arm.body("half_way", mass=0.0)
        .body("rotor_6", mass=0.0, inertia=(0.01, 0.01, 0.01))
        .revolute("turn_5", "world", "half_way", axis="z")
        .revolute("turn_6", "half_way", "rotor_6", axis="z")
        .coupling("with_5", "turn_5", "joint_5", offset=0.0, ratio=1.0)
        .coupling("with_6", "turn_6", "joint_6", offset=0.0, ratio=1.0)
        .element(
            "motor_6",
            ["joint_5", "joint_6"],
            force=_shaft,
            parameters={"damping": 0.5, "coulomb": 1.0},
        )
    )


def freed(arm: Mechanism, *, consistent: bool = False) -> Parameters:
    """All inertial numbers of the links, rotors, friction and offsets."""
    free = Parameters(arm)
    for link in LINKS:
        if consistent:
            free = free.free_inertia(link)
        else:
            for number in ("mass", "first_moment", "origin_inertia"):
                free = free.free(f"{link}.{number}")
    for joint in JOINTS:
        for number in ("armature", "damping", "coulomb", "offset"):
            free = free.free(f"{joint}.{number}")
    return free.free("rotor_6.inertia.zz").free("motor_6.damping").free("motor_6.coulomb")


def experiment(arm: Mechanism, log: Log, span: tuple[float | None, float | None], name: str) -> Experiment:
    """A part of the log."""
    inputs = {f"{joint}.torque": f"tau{i + 1}" for i, joint in enumerate(JOINTS)}
    measured = Measured(joint_position(arm, *JOINTS), [f"q{i + 1}" for i in range(6)])
    return Experiment(log, [measured], inputs=inputs, hold="midpoint", span=span, name=name)


class Published(NamedTuple):
    """A number of the source, with what it is in numbers of the mechanism."""

    expression: str
    factors: dict[str, float]
    value: float
    std: float


def published(name: str) -> list[Published]:
    """TX40_ep_5.csv (essential parameters) or TX40_bp_5.csv (all base parameters), by weighted least squares."""
    found = []
    with reference_file(*FOLDER, name).open(encoding="utf-8") as file:
        for row in csv.reader(file):
            expression, _, _, value, percent = row
            found.append(
                Published(
                    expression,
                    _factors(expression),
                    float(value),
                    abs(float(value)) * float(percent) / 100.0,
                )
            )
    return found


def _factors(expression: str) -> dict[str, float]:
    """{number of the mechanism: factor} of a sum as the source writes it: "Ixx2 - 1.0*Iyy2 - 0.05*m3"."""
    total: dict[str, float] = {}
    for sign, factor, symbol in re.findall(r"([+-]?)\s*(?:([\d.]+)\*)?([A-Za-z]+\d)", expression):
        size = float(factor or 1.0) * (-1.0 if sign == "-" else 1.0)
        for name in _names(symbol):
            total[name] = total.get(name, 0.0) + size
    return total


def _names(symbol: str) -> list[str]:
    """What a symbol of the source is here. Its motor 6 is counted with the joints' own terms, ours apart."""
    kind, number = symbol[:-1], symbol[-1]
    link, joint = f"link_{number}", f"joint_{number}"
    if kind.startswith("I") and len(kind) == 3 and set(kind[1:]) <= set("xyz"):
        return [f"{link}.origin_inertia.{kind[1:]}"]
    if kind in ("mx", "my", "mz"):
        return [f"{link}.first_moment.{kind[1]}"]
    shared = {"Ia": "rotor_6.inertia.zz", "fv": "motor_6.damping"} if number in "56" else {}
    own = {"m": f"{link}.mass", "Ia": f"{joint}.armature", "fv": f"{joint}.damping"}
    own |= {"fs": f"{joint}.coulomb", "off": f"{joint}.offset"}
    motor = {"Iam": "rotor_6.inertia.zz", "fvm": "motor_6.damping", "fsm": "motor_6.coulomb"}
    if kind in motor:
        return [motor[kind]]
    if kind in own:
        return [own[kind], *([shared[kind]] if kind in shared else [])]
    raise MechidError(f"The published symbol '{symbol}' is not known.")
