"""The study of the joint's friction: what it finds, when it searches, and what its JSON holds."""

import json

import numpy as np
import pytest

from mechid.errors import MechidError
from mechid.estimate.joint_form import FrictionForm, JointForm
from mechid.studies.joint_friction_jumps import alone
from mechid.studies.joint_friction_streams import (
    J_IN,
    J_OUT,
    JOINT,
    TABLE,
    WEIGHT,
    friction_stream,
    joint_stream,
)
from mechid.studies.study import run_study


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    changes = ["time=30", "linear_jump=10", "nonlinear_jump=18", "mcs_seconds=0.5", "seed=3", "truth.C1=30"]
    out = tmp_path_factory.mktemp("joint-friction")
    return run_study("joint-friction", quick=True, changes=changes, as_json=True, out=out)


def test_numbers_are_found_in_every_phase(result):
    assert [phase["to"] for phase in result["phases"]] == [10.0, 18.0, pytest.approx(30.0, abs=0.01)]
    for phase, linear, nonlinear in zip(result["phases"], (1.0, 1.5, 1.5), (1.0, 1.0, 1.2), strict=True):
        for name, p in phase["parameters"].items():
            truth = (TABLE | {"C1": 30.0})[name] * (nonlinear if name.startswith("omega") else linear)
            assert p["truth"] == pytest.approx(truth)
            assert p["value"] == pytest.approx(truth, rel=0.03 if name.startswith("omega") else 0.02)
    assert result["parameters"]["C1"]["value"] == pytest.approx(30.0, rel=0.02)


def test_values_have_their_own_standard_deviations(result):
    """The recursive ones know less than a batch of all samples, and are as far off as they say."""
    errors = []
    for phase in result["phases"]:
        for p in phase["parameters"].values():
            assert 0.0 < p["batch_std"] < p["std"]
            errors += [(p["value"] - p["truth"]) / p["std"], (p["batch"] - p["truth"]) / p["batch_std"]]
    assert 0.4 < np.sqrt(np.mean(np.square(errors))) < 2.0


def test_mcs_runs_for_the_nonlinear_jump_alone(result):
    events = result["events"]
    linear = [e for e in events if e["kind"] == "changed" and not e["mcs"]]
    searches = [e for e in events if e["kind"] == "search"]
    assert len(linear) == 1
    assert linear[0]["time"] == pytest.approx(10.0, abs=0.05)
    assert set(linear[0]["changed"]) == {"b_in", "b_inD", "C1", "C2"}
    assert len(searches) == 1
    assert searches[0]["time"] == pytest.approx(18.0, abs=0.05)
    assert result["claims"]["mcs_at_nonlinear_jump"]
    assert not result["claims"]["mcs_at_linear_jump"]


def test_the_result_is_json_with_a_comparison(result):
    again = json.loads(json.dumps(result))
    assert again["speedup_over_mcs"] > 0.0
    assert again["speedup_is_a_lower_bound"] in (True, False)
    assert again["updates"]["samples"] == 30000


def test_mcs_alone_stops_at_the_target_and_at_the_limit():
    stream = friction_stream(TABLE, 3.0, 0.05, (100.0, 100.0), 1.0, 0)
    few = stream.samples[::10]
    easy = alone(FrictionForm(), few, 0.05, "squares", 1e9, 5.0)
    assert easy.value <= 1e9
    hard = alone(FrictionForm(), few, 0.05, "squares", -1.0, 0.1)
    assert 0.1 <= hard.seconds < 1.0
    numbers = np.array(list(TABLE.values()))
    phi, y = FrictionForm().rows(few, numbers[4:])
    least = 0.5 * float(np.sum(((phi[:, 0] @ numbers[:4] - y[:, 0]) / 0.05) ** 2))
    assert hard.value > least


def test_the_form_is_the_mechanisms_balance():
    """Regressor and simulated joint say the same, up to the noise of what is derived."""
    truth = TABLE | JOINT
    stream = joint_stream(truth, 6.0, 0.0, 1.0, 0)
    samples = stream.samples[1000:-20]
    phi, y = JointForm(J_in=J_IN).rows(samples, np.array([TABLE["omega_1"], TABLE["omega_S"]]))
    left = y - phi @ np.array([truth[name] for name in JointForm.names])
    size = np.nanstd(y, axis=0)
    assert np.nanstd(left[:, 0]) < 0.02 * size[0]
    assert np.nanstd(left[:, 1]) < 0.01 * size[1]
    # the link's own balance, from its motion alone
    acceleration = np.gradient(samples[:, 5], 1e-3)
    balance = J_OUT * acceleration - WEIGHT * np.sin(samples[:, 4])
    there = np.isfinite(samples[:, 6])
    assert np.corrcoef(balance[there], samples[there, 6])[0, 1] > 0.99


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("case=3", "There is no case named '3'. Valid: 1, 2, kr300."),
        ("time=-1", "Setting time must be positive and finite, not -1."),
        ("truth.omega_1=5", "Setting truth.omega_1 must be from 0.005 to 1 rad/s, not 5."),
        ("criterion=max", "There is no criterion named 'max'. Valid: squares, norm."),
    ],
)
def test_mistakes(change, told, tmp_path):
    with pytest.raises(MechidError) as error:
        run_study("joint-friction", quick=True, changes=[change], as_json=True, out=tmp_path)
    assert str(error.value) == told
