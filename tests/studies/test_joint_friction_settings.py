"""Settings of `joint-friction`: each that makes no stream or no result is refused in a sentence."""

import numpy as np
import pytest

from mechid.errors import MechidError
from mechid.studies.joint_friction import QUICK, SETTINGS, check
from mechid.studies.joint_friction_streams import TABLE, friction_stream
from mechid.studies.study import run_study


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"seed": -1}, "Setting seed must be a whole number ≥ 0, not -1."),
        ({"noise": -0.1}, "Setting noise must be ≥ 0 and finite, not -0.1."),
        ({"noise": np.nan}, "Setting noise must be ≥ 0 and finite, not nan."),
        ({"time": 0.0}, "Setting time must be positive and finite, not 0."),
        ({"time": 1e5}, "Setting time must be from 2 to 600 s, not 100000."),
        ({"delta_S": 1000.0}, "Setting delta_S must be from 0.1 to 10, not 1000."),
        ({"linear_jump": 40.0}, "Setting linear_jump must be below nonlinear_jump, 32 s, not 40."),
        ({"truth.b_in": np.inf}, "Setting truth.b_in must be finite, at most 1e9, not inf."),
        ({"truth.omega_S": -1.0}, "Setting truth.omega_S must be from 0.01 to 1 rad/s, not -1."),
        ({"mcs_seconds": 1e9}, "Setting mcs_seconds must be from 0 to 3600 s, not 1e+09."),
    ],
)
def test_wrong_settings_are_one_sentence(change, told):
    with pytest.raises(MechidError) as caught:
        check(SETTINGS | change)
    assert str(caught.value) == told


def test_the_defaults_are_valid():
    check(SETTINGS)
    check(SETTINGS | QUICK)


@pytest.mark.parametrize("change", [["noise=10000"], ["noise=200"]])
def test_a_stream_that_tells_nothing_is_said_to(change, tmp_path):
    changes = ["time=3", "mcs_seconds=0", *change]
    with pytest.raises(MechidError, match="does not tell its numbers: the tracker did not start"):
        run_study("joint-friction", quick=True, changes=changes, as_json=True, out=tmp_path)


@pytest.mark.parametrize("jumps", [(4.0, 2.0), (2.0, 4.0)])
def test_jumps_come_in_whichever_order(jumps):
    """The torque is that of the numbers that hold at each sample, worked out sample by sample."""
    stream = friction_stream(TABLE, 5.0, 0.0, jumps, 1.0, 0)
    q, v, torque = stream.samples.T
    p = {name: value * np.where(stream.time >= jumps[name.startswith("omega")], 1.2 if name.startswith("omega")
         else 1.5, 1.0) for name, value in TABLE.items()}  # fmt: skip
    expected = p["b_in"] * v + p["b_inD"] * q + p["C1"] * np.tanh(v / p["omega_1"])
    expected += p["C2"] * v * np.exp(-np.abs(v) / p["omega_S"])
    np.testing.assert_allclose(torque, expected, rtol=1e-9, atol=1e-9)


def test_a_result_without_a_comparison_says_why(tmp_path):
    changes = ["time=12", "linear_jump=5", "nonlinear_jump=8", "mcs_seconds=0"]
    result = run_study("joint-friction", quick=True, changes=changes, as_json=True, out=tmp_path)
    assert result["speedup_over_mcs"] is None
    assert "mcs_seconds is 0" in result["speedup_over_mcs_is_null_because"]
    assert result["events"]


@pytest.mark.parametrize("case", ["1", "kr300"])
def test_cases_without_a_comparison(case, tmp_path, reference):
    changes = [f"case={case}", "time=12"]
    result = run_study("joint-friction", quick=True, changes=changes, as_json=True, out=tmp_path)
    assert result["speedup_over_mcs"] is None
    assert result["speedup_over_mcs_is_null_because"]
    assert isinstance(result["events"], list)
    assert bool(result["events"]) == (case == "1")
