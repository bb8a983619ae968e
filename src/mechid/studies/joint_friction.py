"""`joint-friction`: a space robot's joint that watches its own friction (da Silva et al. 2007).

case=2      friction alone: linear numbers jump by 50 % at 16 s, nonlinear ones by 20 % at 32 s. No starting values
            but bounds; beside it the same with all six numbers found by multilevel coordinate search
case=1      the whole joint: stiffness, friction of motor and link, ten linear numbers, simulated with sensors
case=kr300  real logs of a KUKA KR300 with encoders on both sides of its gears

The paper's recordings are not public. Case 2 takes the motion of a servo that follows a triangle, with ripple and
an encoder's noise in its velocity, and calculates the friction torque as the paper does; noise is added to it.
Case 1 is simulated with the mechanism of (3.8). All is on the link's side with a reduction of 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mechid.errors import MechidError
from mechid.studies.identification import chosen
from mechid.studies.joint_friction_kr300 import ABOUT as KR300_ABOUT
from mechid.studies.joint_friction_kr300 import SETTINGS as KR300
from mechid.studies.joint_friction_kr300 import kr300
from mechid.studies.joint_friction_streams import JOINT, TABLE
from mechid.studies.study import Settings, Study

SETTINGS: Settings = {
    "case": "2",
    "time": 60.0,
    "linear_jump": 16.0,
    "nonlinear_jump": 32.0,
    "noise": 0.05,
    "delta_S": 1.0,
    "criterion": "squares",
    "mcs_seconds": 25.0,
    "seed": 0,
    **{f"truth.{name}": value for name, value in (TABLE | JOINT).items()},
    **KR300,
}
ABOUT = {
    "case": "1 (the whole joint), 2 (friction that jumps) or kr300 (real logs)",
    "time": "length of the stream, s",
    "linear_jump": "when the linear numbers jump by 50 %, s (case 2)",
    "nonlinear_jump": "when the nonlinear numbers jump by 20 %, s (case 2)",
    "noise": "std of measured torques, N·m",
    "delta_S": "Stribeck's exponent",
    "criterion": "squares (5.3) or norm (5.4)",
    "mcs_seconds": "how long the search of all numbers may take each time, s; 0: it is left out (case 2)",
    "seed": "of the noise",
    **KR300_ABOUT,
}
QUICK: Settings = {"time": 45.0, "mcs_seconds": 2.0}


def run(settings: Settings, study: Study) -> None:
    case = chosen(settings, "case", ("1", "2", "kr300"))
    chosen(settings, "criterion", ("squares", "norm"))
    for key in ("time", "linear_jump", "nonlinear_jump", "delta_S"):
        if not 0.0 < float(settings[key]) < np.inf:
            raise MechidError(f"Setting {key} must be positive and finite, not {settings[key]:g}.")
    for key in ("noise", "mcs_seconds"):
        if not 0.0 <= float(settings[key]) < np.inf:
            raise MechidError(f"Setting {key} must be ≥ 0 and finite, not {settings[key]:g}.")
    for key in (k for k in settings if k.startswith("truth.")):
        if not np.isfinite(float(settings[key])):
            raise MechidError(f"Setting {key} must be finite, not {settings[key]:g}.")
    for key in ("truth.omega_1", "truth.omega_S"):
        if not 0.005 <= float(settings[key]) <= 1.0:
            raise MechidError(f"Setting {key} must be from 0.005 to 1 rad/s, not {settings[key]:g}.")
    if float(settings["time"]) > 600.0:
        raise MechidError(f"Setting time must be at most 600 s, not {settings['time']:g}.")
    study.result["case"] = case
    study.result |= _case(case)(settings, study)


def _case(case: str) -> Any:
    if case == "kr300":
        return kr300
    if case == "1":
        from mechid.studies.joint_friction_whole import whole

        return whole
    from mechid.studies.joint_friction_jumps import jumps

    return jumps
