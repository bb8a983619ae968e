"""A Quanser QUBE as a Furuta pendulum: what its maker says, and its logs.

Masses, lengths and gravity are the maker's; they set the scale, as angles and volts alone know no kilogram. The
maker gives the arm's inertia about its axis as m L²/12: its centre of mass lies on the axis, and J_Azz is about it,
rotor and hub included. The motor's torque is k_m (V − k_m ω)/R_m: K = k_m/R_m, and k_m²/R_m is part of b1. Angles
have the signs of the logs: α > 0 leans towards growing θ, so that a forward push of the arm makes α < 0.
The voltage acts a delay later than it was logged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from mechid.data.log import Channel, Log, read_log
from mechid.dynamics.sensors import joint_position
from mechid.errors import MechidError
from mechid.estimate.experiment import Experiment, Measured, Start
from mechid.model.mechanism import Mechanism
from mechid.model.parameters import Parameters
from mechid.reference import reference_file
from mechid.studies.furuta_model import ADDRESSES, Size, furuta

ENCODER = 2 * np.pi / 2048
"""rad, a step"""
NOISE = ENCODER / 12**0.5
"""rad, std of an angle that is known to a step"""
UPRIGHT = 2.9
"""rad: a log is used until the pendulum stands this high; what follows is balancing, an unstable posture that
feedback holds, and whose log shows the feedback more than the pendulum"""
COLUMNS = {"theta": "theta", "alpha": "alpha", "u": "u_applied_V"}
"""channels and columns: logged velocities lag, and commands above the amplifier's limit do not act"""

RESISTANCE, TORQUE_CONSTANT = 8.4, 0.042
"""Ω; N·m/A and V·s/rad"""
ARM, PENDULUM = 0.085, 0.129
"""m, lengths"""
QUBE = Size(
    mass_arm=0.095,
    mass_pendulum=0.024,
    com_arm=0.0,
    arm=ARM,
    com_pendulum=PENDULUM / 2,
    J_Bxx=3e-7,  # a rod of 10 mm, of which no log tells much
    J_shaft=0.0,
    gravity=9.81,
)
NOMINAL = {
    "J_Axx": QUBE.mass_arm * ARM**2 / 12,
    "J_Ayy": QUBE.mass_arm * ARM**2 / 12,
    "J_Azz": QUBE.mass_arm * ARM**2 / 12,
    "J_Byy": QUBE.mass_pendulum * PENDULUM**2 / 12,
    "J_Bzz": QUBE.mass_pendulum * PENDULUM**2 / 12,
    "b1": TORQUE_CONSTANT**2 / RESISTANCE,
    "b2": 0.0,
    "mu1": 0.0,
    "mu2": 0.0,
    "S1": 0.0,
    "S2": 0.0,
    "K": TORQUE_CONSTANT / RESISTANCE,
    "tilt_x": 0.0,
    "tilt_y": 0.0,
    "tilt_z": 0.0,
    "alpha_0": 0.0,
    "k_cable": 0.0,
    "theta_cable": 0.0,
    "delay": 0.0,
}
"""The maker's values: a level stand, no friction but the motor's, no cable, no delay"""
STARTS = NOMINAL | {"b2": 1e-6, "mu1": 1e-4, "mu2": 1e-5, "S1": 1e-5, "S2": 1e-6, "k_cable": 1e-3}
STARTS |= {"delay": 0.004}
"""where a search begins: friction and a spring that can be felt"""

PLACES = ADDRESSES | {
    "mu1": "dry1.coulomb",
    "mu2": "dry2.coulomb",
    "alpha_0": "swing.tilt.x",
    "k_cable": "cable.stiffness",
    "theta_cable": "cable.rest",
    "delay": "motor.delay",
}
"""of parameters in the mechanism; dry friction is a torque"""
SIGNED = ("tilt_x", "tilt_y", "tilt_z", "alpha_0", "theta_cable", "delay")


@cache
def qube(friction: str) -> Mechanism:
    """The Furuta pendulum with a cable, at the maker's values; one for each kind of friction, so
    that what was compiled for it serves all its fits."""
    return furuta(NOMINAL, friction, QUBE, level=True).spring(
        "turn", stiffness=NOMINAL["k_cable"], rest=NOMINAL["theta_cable"], name="cable"
    )


@cache
def angles() -> Any:
    """What both encoders see."""
    return joint_position(qube("viscous"), "turn", "swing")


def freed(mechanism: Mechanism, names: Sequence[str], start: Mapping[str, float]) -> Parameters:
    """Parameters by name; what cannot be negative is not."""
    free = Parameters(mechanism)
    for name in names:
        bounds = (None, None) if name in SIGNED else (0.0, None)
        free = free.free(PLACES[name], name=name, start=start[name], bounds=bounds)
    return free


# Logs


def recordings() -> dict[str, list[Path]]:
    """The logs of each kind of motion, by what stands before the number in a file's name."""
    kinds: dict[str, list[Path]] = {}
    for path in sorted(reference_file("data", "qube_furuta").glob("*.csv")):
        kinds.setdefault(path.stem.rstrip("0123456789").rstrip("_"), []).append(path)
    if not kinds:
        raise MechidError("There are no logs (*.csv) in the reference folder 'data/qube_furuta'.")
    return kinds


def recording(path: Path, longest: float) -> Log:
    """A log until the pendulum stands upright, or for so many seconds. It begins with the voltage: none before."""
    log = read_log(path, time="t", columns=COLUMNS)
    theta, alpha, u = (log[name] for name in COLUMNS)
    standing = np.abs(alpha.values) > UPRIGHT
    end = int(np.argmax(standing)) if standing.any() else alpha.values.size
    end = min(end, int(np.searchsorted(alpha.time, alpha.time[0] + longest, side="right")))
    if end < 10:
        raise MechidError(f"Log '{log.name}' has {end} samples before the pendulum stands upright.")
    return Log(
        log.name,
        {
            "theta": Channel(theta.time[:end], theta.values[:end], "rad"),
            "alpha": Channel(alpha.time[:end], alpha.values[:end], "rad"),
            "u": Channel(np.append(2 * u.time[0] - u.time[1], u.time), np.append(0.0, u.values), "V"),
        },
        log.notes,
    )


def experiment(log: Log) -> Experiment:
    """A log explained from its first angles on."""
    first = [log[name].values[0] for name in ("theta", "alpha")]
    return Experiment(
        log,
        [Measured(angles(), ("theta", "alpha"), std=NOISE)],
        inputs={"motor": "u"},
        start=Start(first, q_std="free", v_std="free"),
    )
