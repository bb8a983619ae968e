"""The study `arm-regression` on the real TX40 against the published numbers; `mechid fit` by regression."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from mechid import MechidError, Parameters
from mechid.estimate.linear import least_squares
from mechid.estimate.linear_form import MechanismForm
from mechid.estimate.regression import regression
from mechid.jobs.study_file import read_study
from mechid.studies import tx40
from mechid.studies.study import run_study


@pytest.fixture(scope="module")
def quick(reference, tmp_path_factory):
    folder = tmp_path_factory.mktemp("arm")
    return run_study("arm-regression", quick=True, changes=[], as_json=True, out=folder), folder


def test_friction_is_the_published_one(quick):
    """Viscous friction of axes 1 to 4 within 3 %, all of the friction within the std of both."""
    result, _ = quick
    for i, value in enumerate((8.03, 5.52, 2.00, 1.11), 1):
        assert result["parameters"][f"fv{i}"]["value"] == pytest.approx(value, rel=0.03)
    for name in (f"f{kind}{i}" for kind in "vs" for i in range(1, 6)):
        p = result["parameters"][name]
        assert abs(p["value"] - p["published"]) < 3.0 * np.hypot(p["std"], p["published_std"]), name


def test_base_parameters_are_the_published_ones(quick):
    """What the source prints as known to better than 5 % lies within 4 std here; every combination is told."""
    result, _ = quick
    known = {k: p for k, p in result["parameters"].items() if p["published_std"] < 0.05 * abs(p["published"])}
    assert len(known) > 15
    for name, p in known.items():
        assert p["value"] is not None, name
        assert abs(p["value"] - p["published"]) < 4.0 * np.hypot(p["std"], p["published_std"]), name


def test_a_held_back_part_is_predicted(quick):
    result, folder = quick
    assert result["validation"]["relative"] < 0.1
    assert result["validation"]["relative"] < 2.0 * result["validation"]["relative_fitted"]
    assert all(a["relative"] < 0.15 for a in result["axes"].values())
    assert (folder / "torques.png").stat().st_size > 20000


def test_published_sums_are_read_as_they_are_written():
    assert tx40._factors("Ixx2 - 1.0*Iyy2 - 0.05*m3 + 1.0*fv5") == {
        "link_2.origin_inertia.xx": 1.0,
        "link_2.origin_inertia.yy": -1.0,
        "link_3.mass": -0.05,
        "joint_5.damping": 1.0,
        "motor_6.damping": 1.0,
    }


def test_couplings_of_axis_6_are_those_of_the_source(reference):
    """The columns of motor 6 that figaroh writes down: τ5 += J a6 + f v6 + s sign(v5 + v6), and for 6 with 5."""
    arm = tx40.tx40()
    free = Parameters(arm).free("rotor_6.inertia.zz").free("motor_6.damping").free("motor_6.coulomb")
    form = MechanismForm(free)
    x = np.random.default_rng(0).normal(size=(5, len(form.channels)))
    phi, _ = form.rows(x)
    v = x[:, [form.channels.index(f"joint_{i} rate") for i in (5, 6)]].sum(1)
    a = x[:, [form.channels.index(f"joint_{i} acceleration") for i in (5, 6)]].sum(1)
    for row in (4, 5):
        np.testing.assert_allclose(phi[:, row, 0], a, rtol=1e-12)
        np.testing.assert_allclose(phi[:, row, 1], v, rtol=1e-12)
        np.testing.assert_allclose(phi[:, row, 2], np.tanh(v / tx40.WIDTH), rtol=1e-12)
    np.testing.assert_allclose(phi[:, :4], 0.0, atol=1e-12)


def test_rank_is_that_of_random_motions(reference):
    """Of 87 numbers as many combinations are told by the log as by motions drawn at random."""
    form = MechanismForm(tx40.freed(tx40.tx40()))
    x = np.random.default_rng(1).normal(size=(200, len(form.channels)))
    phi, y = form.rows(x)
    assert least_squares(phi, y, form.names).rank == 62


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("cutoff=1e9", "Setting cutoff must be below half the rate, 500 Hz, not 1e+09."),
        ("cutoff=-1", "Setting cutoff must be ≥ 0, not -1."),
        ("seed=-1", "Setting seed must be a whole number ≥ 0, not -1."),
        ("held_back=1", "Setting held_back must lie between 0 and 0.9, not 1."),
        ("end=nan", "Setting end must lie between 2 and"),
    ],
)
def test_wrong_settings_are_one_sentence(change, told, reference, tmp_path):
    with pytest.raises(MechidError) as caught:
        run_study("arm-regression", quick=True, changes=[change], as_json=True, out=tmp_path)
    assert str(caught.value).startswith(told)


def test_nothing_is_random(quick, tmp_path):
    again = run_study("arm-regression", quick=True, changes=["seed=5"], as_json=True, out=tmp_path)
    assert again["parameters"] == quick[0]["parameters"]


EXAMPLE = Path(__file__).parents[2] / "examples" / "arm"


def test_fit_by_regression_from_a_study_file():
    """The example's arm without any search: its truth within 4 std and 7 %."""
    study = read_study(
        EXAMPLE / "study.toml", ["estimator=regression", "signals.cutoff=10", "weights=estimated"]
    )
    fit = regression(study.mechanism, study.experiments, study.free, **study.regression)
    truth = json.loads((EXAMPLE / "truth.json").read_text(encoding="utf-8"))
    assert set(truth) == set(fit.parameters)
    for name, value in truth.items():
        found = fit.parameters[name]
        assert abs(found.value - value) < 4.0 * found.std, name
        assert found.value == pytest.approx(value, rel=0.07), name


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (["loss=huber"], "loss belongs to estimator 'regression'"),
        (["estimator=regression", "segments=3"], "takes no segments"),
        (["estimator=regression", "signals.cutof=3"], "no key of [signals] named 'cutof'"),
        (["estimator=regression", "signals.cutoff=0"], "cutoff of signals"),
        (["estimator=regression", "loss=cauchy"], "no loss named 'cauchy'"),
        (["estimator=regression", 'parameters."hand.com.z"={}'], "first_moment"),
        (["estimator=regression", "signals.trim=9"], "smaller trim"),
        (["estimator=regression", "rows=stepper", "stepper.kind=spook"], "Spook's rows hold multipliers"),
    ],
)
def test_mistakes_in_a_study_file_are_told(changes, told):
    with pytest.raises(MechidError) as caught:
        read_study(EXAMPLE / "study.toml", changes)
    assert told in str(caught.value)
