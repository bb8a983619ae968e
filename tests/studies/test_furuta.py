"""The Furuta pendulum: made parameters come back, wrong settings are told."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from mechid.dynamics.simulate import simulate
from mechid.dynamics.variational import Variational
from mechid.errors import MechidError
from mechid.judge.identifiability import NOT_IDENTIFIABLE
from mechid.studies import furuta_scenarios
from mechid.studies.furuta_model import PENDCON, TRUTH, freed, furuta
from mechid.studies.joint_fits import settled
from mechid.studies.study import run_study


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("part=nothing", "There is no part named 'nothing'"),
        ("friction=wet", "There is no friction named 'wet'"),
        ("dt=-1", "Setting dt must be positive and finite"),
        ("compliance=0", "Setting compliance must be positive and finite"),
        ("truth.J_Azz=0", "truth.J_Azz must be > 0"),
        ("truth.b1=-1", "truth.b1 must be ≥ 0"),
        ("state_error_weight=-2", "Setting state_error_weight must be ≥ 0"),
        ("optimum=best", "There is no optimum named 'best'"),
        ("seed=-1", "Setting seed must be ≥ 0"),
        ("stepper=euler", "There is no stepper named 'euler'"),
        ("truth.J=1", "truth.J"),
    ],
)
def test_wrong_settings_are_told(change, words, tmp_path):
    with pytest.raises(MechidError) as told:
        run_study("furuta", quick=True, changes=[change], as_json=False, out=tmp_path)
    assert words in str(told.value)


def test_the_pendulum_swings_as_a_pendulum_with_its_inertia_does():
    """Held by a heavy arm: T = 2π sqrt(J/(m g l)) with J about the hinge."""
    size = PENDCON
    heavy = TRUTH | {"J_Azz": 1e6, "tilt_x": 0.0, "tilt_y": 0.0, "b2": 0.0}
    motion = simulate(furuta(heavy, "viscous"), Variational(1e-3), 3000, q={"swing": 0.01})
    crossings = motion.t[1:][np.diff(np.sign(motion.q[:, 1])) != 0]
    inertia = TRUTH["J_Byy"] + size.mass_pendulum * size.com_pendulum**2
    period = 2 * np.pi * np.sqrt(inertia / (size.mass_pendulum * size.gravity * size.com_pendulum))
    assert np.isclose(2 * np.diff(crossings).mean(), period, rtol=2e-3)


def test_tilts_are_those_of_gravity():
    """A stand that is turned about x and then stood on its feet again sees gravity turned the other way."""
    tilted = furuta(TRUTH | {"tilt_x": 0.01, "tilt_y": -0.006}, "viscous")
    turned = Rotation.from_rotvec([-0.01, 0.006, 0.0]).apply([0.0, 0.0, -PENDCON.gravity])
    assert np.allclose(tilted.gravity, turned, atol=1e-12)
    level = furuta(TRUTH | {"tilt_x": 0.0, "tilt_y": 0.0}, "viscous")
    free = freed(level, ("tilt_x", "tilt_y", "tilt_z"))
    assert np.allclose(free.apply([0.01, -0.006, 0.0]).gravity, turned, atol=1e-12)
    # about the vertical nothing changes
    assert np.allclose(free.apply([0.0, 0.0, 0.3]).gravity, level.gravity, atol=1e-12)


def test_iterations_until_parameters_settle():
    def line(*values):
        return SimpleNamespace(values=values)

    def end(name, value, std):
        return SimpleNamespace(name=name, value=value, std=std)

    fit = SimpleNamespace(
        parameters={"a": end("a", 2.0, 0.01), "b": end("b", 0.0, 1.0), "c": end("c", 5.0, np.inf)},
        flags={"a": (), "b": (), "c": (NOT_IDENTIFIABLE,)},
        trace=(line(1.0, 0.0, 0.0), line(2.01, 0.5, 1.0), line(1.99, 0.09, 2.0), line(2.0, 0.0, 5.0)),
    )
    assert settled(fit) == 2


def test_all_thirteen_parameters_have_addresses():
    mechanism = furuta(TRUTH, "dry")
    names = [n for n in TRUTH if n not in ("S1", "S2")]
    assert freed(mechanism, names).size == 13


def test_the_swing_up_comes_near_upright():
    real = furuta(TRUTH, "viscous")

    def volts(t, q, v):
        return furuta_scenarios.swing_up(t, q, v)[None] / TRUTH["K"]

    motion = simulate(real, Variational(5e-3), 2000, inputs=volts)
    assert np.abs(motion.q[:, 1]).max() > 2.4


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("compliance=1e-6", "Setting compliance is one of SPOOK"),
        ("sweep=compliance", "Setting sweep is over a number"),
    ],
)
def test_numbers_of_spook_are_none_of_the_variational_integrator(change, words, tmp_path):
    with pytest.raises(MechidError) as told:
        run_study("furuta", quick=True, changes=["stepper=variational", change], as_json=False, out=tmp_path)
    assert words in str(told.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("truth.mu1=5", "Setting truth.mu1 is not used with this friction: use friction=dry"),
        ("truth.S2=1", "Setting truth.S2 is not used with this friction: use friction=stribeck"),
        ("truth.tilt_x=0.3", "Setting truth.tilt_x is for the scenarios"),
        ("truth.K=1", "Setting truth.K is for the scenarios"),
        ("logs=2", "Setting logs is of logs: use data=real"),
        ("truth_dt=0.05", "Setting truth_dt must be the data's sampling, 0.001 s"),
        ("truth_dt=0.0003", "Setting truth_dt must be the data's sampling, 0.001 s"),
        ("dt=0.0314", "Setting dt must be a whole number of samples of the data"),
        ("dt=0.0005", "Setting dt must be a whole number of samples of the data"),
    ],
)
def test_settings_that_change_nothing_are_told(change, words, tmp_path):
    with pytest.raises(MechidError) as told:
        run_study("furuta", quick=True, changes=[change], as_json=False, out=tmp_path)
    assert words in str(told.value)


def test_steps_are_for_the_released_pendulum(tmp_path):
    with pytest.raises(MechidError, match="Setting sweep is over dt"):
        run_study("furuta", quick=True, changes=["part=scenarios", "sweep=dt"], as_json=False, out=tmp_path)


@pytest.mark.slow
def test_the_variational_integrator_finds_the_truth_at_a_coarse_step(tmp_path, capsys):
    changes = ["stepper=variational", "friction=dry", "seed=2"]
    result = run_study("furuta", quick=True, changes=changes, as_json=True, out=tmp_path)
    capsys.readouterr()
    for name, p in result["parameters"].items():
        assert abs(p["value"] - p["truth"]) < 3.0 * p["std"], name


@pytest.mark.slow
def test_quick_finds_the_shadow_parameters(tmp_path, capsys):
    result = run_study("furuta", quick=True, changes=[], as_json=True, out=tmp_path)
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == json.loads(json.dumps(result))
    found = result["parameters"]
    assert set(found) == {"J_Azz", "J_Byy", "b1", "b2"}
    assert abs(found["J_Byy"]["value"] / 4e-3 - 1) < 0.06
    assert abs(found["J_Azz"]["value"] / 3e-3 - 1) < 0.3
    # a coarse step is served better by its own parameters than by the true ones
    assert result["validation"]["score"] < result["validation"]["score_of_true_parameters"]
    assert (tmp_path / "release.png").stat().st_size > 10_000


@pytest.mark.slow
def test_other_truths_come_back_at_a_fine_step(tmp_path, capsys):
    changes = ["dt=0.002", "truth.J_Azz=0.005", "truth.J_Byy=0.003", "seed=4"]
    result = run_study("furuta", quick=True, changes=changes, as_json=True, out=tmp_path)
    capsys.readouterr()
    for name, truth in (("J_Azz", 5e-3), ("J_Byy", 3e-3)):
        assert result["parameters"][name]["truth"] == truth
        assert abs(result["parameters"][name]["value"] / truth - 1) < 0.08


@pytest.mark.slow
def test_thirteen_parameters_settle_within_six_iterations(tmp_path, capsys):
    changes = ["part=scenarios", "time=10", "sweep=none"]
    result = run_study("furuta", quick=True, changes=changes, as_json=True, out=tmp_path)
    capsys.readouterr()
    for name, fit in result["scenarios"]["fits"].items():
        assert (tmp_path / f"simulated-{name}.png").stat().st_size > 10_000
        assert fit["converged"], name
        assert fit["settled"] <= 6, name
        assert not fit["parameters"]["J_Axx"]["identifiable"]
        assert not fit["parameters"]["J_Ayy"]["identifiable"]
        assert not fit["parameters"]["tilt_z"]["identifiable"]
        assert ("K" in fit["parameters"]) == (name != "release")
        assert abs(fit["parameters"]["tilt_x"]["value"] - TRUTH["tilt_x"]) < 1e-3
        # which is known if the yaw is
        assert set(fit["if_known"]["given"]) == {"tilt_z"}
        assert fit["if_known"]["told"]["tilt_x"]["std"] < 1e-3
        assert fit["parameters"]["tilt_x"]["std_if_known"] < 1e-3
    # where SPOOK finds its own parameters at this step, the variational integrator finds the true ones
    off = {name: fit["std_off"] for name, fit in result["scenarios"]["steppers"].items()}
    assert abs(off["spook"]["J_Byy"]) > 10
    assert {"J_Azz", "J_Byy", "J_Bzz", "mu1", "K"} <= set(off["variational"])
    assert max(abs(x) for k, x in off["variational"].items() if not k.startswith("tilt")) < 3
    # a pulse is simulated from its input alone
    assert max(result["scenarios"]["simulation"]["pulse"]["100"]) < 0.1
