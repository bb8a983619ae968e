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
    "mcs_seconds": 40.0,
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
QUICK: Settings = {"time": 30.0, "linear_jump": 10.0, "nonlinear_jump": 18.0, "mcs_seconds": 8.0}
SHORTEST, LONGEST = 2.0, 600.0
"""s"""
WITHOUT = {
    "1": "case 1 searches for ω1 and ω_S alone: MCS of all twelve numbers is not tried",
    "2": "MCS of all numbers is left out where mcs_seconds is 0 or the tracker has not started",
    "kr300": "real logs are fitted by linear regressions, without MCS",
}
"""why a result has no comparison with MCS"""


def run(settings: Settings, study: Study) -> None:
    case = chosen(settings, "case", ("1", "2", "kr300"))
    chosen(settings, "criterion", ("squares", "norm"))
    check(settings)
    study.result |= {"case": case, "events": [], "speedup_over_mcs": None}
    try:
        study.result |= _case(case)(settings, study)
    except ValueError as error:
        # of errors told when nothing was ever predicted
        if "All-NaN" not in str(error):
            raise
        raise _untold(settings) from None
    if case != "kr300" and not all(np.isfinite(p["value"]) for p in study.result["parameters"].values()):
        raise _untold(settings)
    if study.result["speedup_over_mcs"] is None:
        study.result["speedup_over_mcs_is_null_because"] = WITHOUT[case]


def _untold(settings: Settings) -> MechidError:
    return MechidError(
        f"The stream of {settings['time']:g} s with noise of {settings['noise']:g} N·m does not tell its numbers: "
        "the tracker did not start. Give a longer time, less noise or other truths."
    )


def check(settings: Settings) -> None:
    """Refuse settings under which there is no stream or nothing can be found in it."""
    for key in ("time", "linear_jump", "nonlinear_jump", "delta_S"):
        if not 0.0 < float(settings[key]) < np.inf:
            raise MechidError(f"Setting {key} must be positive and finite, not {settings[key]:g}.")
    for key in ("noise", "mcs_seconds"):
        if not 0.0 <= float(settings[key]) < np.inf:
            raise MechidError(f"Setting {key} must be ≥ 0 and finite, not {settings[key]:g}.")
    for key in (k for k in settings if k.startswith("truth.")):
        if not abs(float(settings[key])) <= 1e9:
            raise MechidError(f"Setting {key} must be finite, at most 1e9, not {settings[key]:g}.")
    ranges = {
        "truth.omega_1": (0.005, 1.0, "rad/s"),
        "truth.omega_S": (0.01, 1.0, "rad/s"),
        "time": (SHORTEST, LONGEST, "s"),
        "noise": (0.0, 1e4, "N·m"),
        "delta_S": (0.1, 10.0, ""),
        "mcs_seconds": (0.0, 3600.0, "s"),
    }
    for key, (low, high, unit) in ranges.items():
        if not low <= float(settings[key]) <= high:
            told = f"from {low:g} to {high:g} {unit}".rstrip()
            raise MechidError(f"Setting {key} must be {told}, not {settings[key]:g}.")
    if not settings["linear_jump"] < settings["nonlinear_jump"]:
        raise MechidError(
            f"Setting linear_jump must be below nonlinear_jump, {settings['nonlinear_jump']:g} s, not "
            f"{settings['linear_jump']:g}."
        )
    if not isinstance(settings["seed"], int) or settings["seed"] < 0:
        raise MechidError(f"Setting seed must be a whole number ≥ 0, not {settings['seed']}.")


def _case(case: str) -> Any:
    if case == "kr300":
        return kr300
    if case == "1":
        from mechid.studies.joint_friction_whole import whole

        return whole
    from mechid.studies.joint_friction_jumps import jumps

    return jumps
