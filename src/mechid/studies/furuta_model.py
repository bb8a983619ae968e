"""The Furuta pendulum of Marklund et al. as a mechanism, with the names of the paper's tables, and logs of it.

The arm A turns about the vertical (hinge 1), the pendulum B about the arm (hinge 2) and hangs at θ2 = 0. Inertias
are about the centres of mass: xx of A along the arm, zz about the vertical; of B, yy about hinge 2, xx along the
pendulum. The lengths are those that fit the paper's drawings and results; its tables print them garbled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mechid.data.log import Channel, Log
from mechid.dynamics.sensors import joint_position
from mechid.dynamics.simulate import simulate
from mechid.dynamics.spook import Spook
from mechid.dynamics.stepper import Stepper
from mechid.dynamics.trajectory import Trajectory
from mechid.dynamics.variational import Variational
from mechid.errors import MechidError
from mechid.estimate.experiment import Experiment, Measured, Start
from mechid.estimate.fit import Fit
from mechid.estimate.trajectory import joint
from mechid.model.geometry import rotation_about
from mechid.model.mechanism import Mechanism
from mechid.model.parameters import Parameters
from mechid.studies.study import Settings

FRICTIONS = ("viscous", "dry", "stribeck")
STRIBECK_VELOCITY = 0.5
"""rad/s, held: a swinging pendulum passes it too fast to tell it"""
HEAVIEST = 1.0
"""kg·m²"""
PAPERS_WEIGHT = 100.0
"""κ of Sections 4.6 and 4.7"""
ANGLES = ("theta1", "theta2")
NO_LOAD = 1e-12
"""of a load coefficient that is 0: the variational integrator asks that there be one when a mechanism is made"""


@dataclass(frozen=True)
class Size:
    """What is weighed and measured of a Furuta pendulum: kg, m, kg·m²."""

    mass_arm: float
    mass_pendulum: float
    com_arm: float
    """hinge 1 to the arm's centre of mass"""
    arm: float
    """hinge 1 to hinge 2"""
    com_pendulum: float
    """hinge 2 to the pendulum's centre of mass"""
    J_Bxx: float
    J_shaft: float
    gravity: float


PENDCON = Size(0.238, 0.428, 0.128, 0.248, 0.092, 1e-4, 1e-4, 9.82)
"""Tables 1 and G.5"""

ADDRESSES = {
    "J_Axx": "arm.inertia.xx",
    "J_Ayy": "arm.inertia.yy",
    "J_Azz": "arm.inertia.zz",
    "J_Byy": "pendulum.inertia.xx",
    "J_Bzz": "pendulum.inertia.yy",
    "b1": "turn.damping",
    "b2": "swing.damping",
    "mu1": "dry1.load_coefficient",
    "mu2": "dry2.load_coefficient",
    "S1": "dry1.stribeck",
    "S2": "dry2.stribeck",
    "K": "motor.gain",
    "tilt_x": "gravity.tilt.x",
    "tilt_y": "gravity.tilt.y",
    "tilt_z": "gravity.tilt.z",
}
"""of the paper's parameters in the mechanism"""

INERTIAS = ("J_Axx", "J_Ayy", "J_Azz", "J_Byy", "J_Bzz")

TRUTH = {
    "J_Axx": 1e-4,
    "J_Ayy": 3e-3,
    "J_Azz": 3e-3,
    "J_Byy": 4e-3,
    "J_Bzz": 4e-3,
    "b1": 1e-3,
    "b2": 1e-4,
    "mu1": 6e-4,
    "mu2": 2e-4,
    "S1": 0.0,
    "S2": 0.0,
    "K": 7.3,
    "tilt_x": 0.01,
    "tilt_y": -0.006,
    "tilt_z": 0.0,
}
"""Table G.5; friction and gain near Table 4's; a stand that is not quite level"""
START = {
    "J_Axx": 0.01,
    "J_Ayy": 0.01,
    "J_Azz": 0.01,
    "J_Byy": 0.01,
    "J_Bzz": 0.01,
    "b1": 1e-4,
    "b2": 1e-4,
    "mu1": 1e-4,
    "mu2": 1e-4,
    "S1": 1e-4,
    "S2": 1e-4,
    "K": 0.1,
    "tilt_x": 0.0,
    "tilt_y": 0.0,
    "tilt_z": 0.0,
}
"""Table 1"""


def furuta(
    values: Mapping[str, float], friction: str = "dry", size: Size = PENDCON, *, level: bool = False
) -> Mechanism:
    """The mechanism with the paper's parameters; those of absent kinds of friction are not used.

    level: dry friction is a torque (N·m) in the place of a part of the joint's load.
    """
    tilt = np.array([values.get(f"tilt_{k}", 0.0) for k in "xyz"])
    angle = float(np.linalg.norm(tilt))
    tilt = tilt / angle if angle else np.array([1.0, 0.0, 0.0])
    m = (
        Mechanism("furuta", gravity=np.array([0, 0, -size.gravity]) @ rotation_about(tilt, angle))
        .body(
            "arm",
            mass=size.mass_arm,
            com=(size.com_arm, 0, 0),
            inertia=(1.0, 1.0, 1.0),
        )
        .revolute("turn", "world", "arm", axis="z")
        .body(
            "pendulum",
            mass=size.mass_pendulum,
            com=(0, 0, -size.com_pendulum),
            inertia=(1.0, 1.0, size.J_Bxx),
        )
        .revolute("swing", "arm", "pendulum", axis="x", origin=(size.arm, 0, 0))
        .damper("turn", damping=values["b1"])
        .damper("swing", damping=values["b2"])
        .armature("turn", inertia=size.J_shaft)
        .motor("turn", gain=values["K"], name="motor")
    )
    # the paper's inertias need not be those of a body: components that do not show are anything
    inertias = Parameters(m)
    for name in INERTIAS:
        inertias = inertias.free(ADDRESSES[name], name=name)
    m = inertias.apply([values[name] for name in INERTIAS])
    if friction == "viscous":
        return m
    for i, hinge in ((1, "turn"), (2, "swing")):
        m = m.dry_friction(
            hinge,
            coulomb=values[f"mu{i}"] if level else 0.0,
            load_coefficient=0.0 if level else max(values[f"mu{i}"], NO_LOAD),
            stribeck=values[f"S{i}"] if friction == "stribeck" else 0.0,
            stribeck_velocity=STRIBECK_VELOCITY,
            name=f"dry{i}",
        )
    return m


def names_of(friction: str) -> tuple[str, ...]:
    """The parameters of the four kinds of friction terms in use."""
    dry = () if friction == "viscous" else ("mu1", "mu2")
    return ("b1", "b2", *dry, *(("S1", "S2") if friction == "stribeck" else ()))


def freed(mechanism: Mechanism, names: Sequence[str], start: Mapping[str, float] = START) -> Parameters:
    """Parameters by the paper's names, within what such a pendulum can have."""
    free = Parameters(mechanism)
    for name in names:
        bounds = (-0.5, 0.5) if name.startswith("tilt") else (0.0, HEAVIEST if name[0] == "J" else None)
        free = free.free(ADDRESSES[name], name=name, start=start[name], bounds=bounds)
    return free


def true_values(settings: Settings) -> dict[str, float]:
    """Settings truth.NAME."""
    values = {name: float(settings[f"truth.{name}"]) for name in TRUTH}
    for name, value in values.items():
        if not np.isfinite(value) or (value < 0.0 and not name.startswith("tilt")):
            raise MechidError(f"truth.{name} must be ≥ 0 and finite, not {value:g}.")
        if name.startswith("J_") and value == 0.0:
            raise MechidError(f"truth.{name} must be > 0, not 0.")
    return values


def spook(settings: Settings, dt: float | None = None, compliance: float | None = None) -> Spook:
    """SPOOK with the settings' step and joints."""
    soft = positive(settings, "compliance") if compliance is None else compliance
    step = positive(settings, "dt") if dt is None else dt
    return Spook(step, compliance=soft, relaxation_time=positive(settings, "relaxation_time"))


def stepper_of(settings: Settings, dt: float | None = None) -> Stepper:
    """What fits use: SPOOK as in the paper, or the variational integrator, of second order, whose parameters are
    those of continuous motion rather than the step's own."""
    if settings["stepper"] == "spook":
        return spook(settings, dt)
    return Variational(positive(settings, "dt") if dt is None else dt, forces="balanced")


def positive(settings: Settings, key: str) -> float:
    value = float(settings[key])
    if not (np.isfinite(value) and value > 0.0):
        raise MechidError(f"Setting {key} must be positive and finite, not {settings[key]}.")
    return value


def weight_of(settings: Settings) -> float:
    """κ in the paper's units, where residuals are in rad: 1/(N·m·s)²."""
    return positive(settings, "state_error_weight") if settings["state_error_weight"] else PAPERS_WEIGHT


def per_noise(settings: Settings, weight: float | None = None) -> float:
    """κ beside residuals in standard deviations, as `joint` takes it."""
    return (weight_of(settings) if weight is None else weight) / positive(settings, "noise") ** 2


def fitted(
    settings: Settings,
    mechanism: Mechanism,
    log: Experiment | Sequence[Experiment],
    free: Parameters,
    *,
    stepper: Stepper | None = None,
    weight: float | None = None,
) -> Fit:
    """A joint estimation with the settings' stepper, weight and optimum, but for what is given."""
    return joint(
        mechanism,
        stepper_of(settings) if stepper is None else stepper,
        log,
        free,
        state_error_weight=per_noise(settings, weight),
        marginal=settings["optimum"] == "likeliest",
    )


def moved(
    mechanism: Mechanism, stepper: Stepper, time: float, keep: float, q: Any, inputs: Any = None
) -> Trajectory:
    """A motion of some seconds, of which a state is kept every `keep` seconds."""
    dt = float(stepper.dt)
    every = max(1, round(keep / dt))
    steps = every * max(2, round(time / (every * dt)))
    return simulate(mechanism, stepper, steps, q=q, inputs=inputs, every=every)


def logged(
    name: str,
    mechanism: Mechanism,
    t: np.ndarray,
    angles: np.ndarray,
    std: float,
    drive: Channel | None = None,
) -> Experiment:
    """Both angles measured with noise of a known std; the start is unknown but for what the log says."""
    channels = {k: Channel(t, angles[:, i], "rad") for i, k in enumerate(ANGLES)}
    if drive is not None:
        channels["u"] = drive
    return Experiment(
        Log(name, channels, ()),
        [Measured(joint_position(mechanism, "turn", "swing"), ANGLES, std=std)],
        inputs={} if drive is None else {"motor": "u"},
        start=Start(angles[0], q_std="free", v_std="free"),
        hold="mean",
    )
