"""The real Furuta pendulum: its model against closed forms, its logs, and what a least-squares check says of it."""

import json

import numpy as np
import pytest

from mechid.dynamics.simulate import simulate
from mechid.dynamics.variational import Variational
from mechid.errors import MechidError
from mechid.estimate import samples
from mechid.model.geometry import rotation_about
from mechid.studies import furuta_qube, furuta_real
from mechid.studies.furuta_qube import NOMINAL, freed, qube
from mechid.studies.study import run_study


@pytest.fixture
def logs(reference):
    folder = reference / "data" / "qube_furuta"
    if not folder.is_dir():
        pytest.skip("the logs of qube_furuta are absent")
    return folder


def moved(values, steps=150, q=(0.3, 1.0)):
    free = freed(qube("viscous"), list(values), values)
    volts = np.zeros((steps, 1))
    volts[: steps // 2, 0] = 1.0
    return simulate(free.apply(free.theta0), Variational(0.004), steps, q=q, inputs=volts)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["part=scenarios"], "Setting part is of made data"),
        (["noise=0.5"], "Setting noise is what data are made with"),
        (["optimum=likeliest"], "Setting optimum is of made data"),
        (["sweep=dt"], "Setting sweep is of made data"),
        (["truth.J_Azz=0.004"], "Setting truth.J_Azz is what data are made with"),
        (["stepper=variational", "compliance=1e-6"], "Setting compliance is one of SPOOK"),
        (["stepper=euler"], "There is no stepper named 'euler'"),
        (["time=7"], "Setting time is what data are made with"),
        (["held=-1"], "Setting held must be ≥ 0"),
    ],
)
def test_wrong_settings_are_told(changes, words, tmp_path):
    with pytest.raises(MechidError) as told:
        run_study("furuta", quick=True, changes=["data=real", *changes], as_json=False, out=tmp_path)
    assert words in str(told.value)


def test_absent_data_are_told(tmp_path, monkeypatch):
    monkeypatch.setenv("MECHID_REFERENCE", str(tmp_path))
    with pytest.raises(MechidError, match="set MECHID_REFERENCE to the folder that holds it"):
        run_study("furuta", quick=True, changes=["data=real"], as_json=False, out=tmp_path)


def test_logs_must_be_left_to_validate_with(logs, tmp_path):
    with pytest.raises(MechidError, match="Setting logs must be between 1 and"):
        run_study("furuta", quick=True, changes=["data=real", "logs=99"], as_json=False, out=tmp_path)


def test_no_voltage_before_a_log(logs):
    """A log begins with the first voltage: as long as none has come, none acts."""
    log = furuta_qube.recording(furuta_qube.recordings()["chirp_pos"][0], np.inf)
    e = furuta_qube.experiment(log)
    grid = samples.grid(e, Variational(0.002))
    acting = samples.inputs(e, qube("viscous").delayed("motor", 0.005), grid)[:, 0]
    assert log["theta"].time[0] == grid.t[0] == 0.0
    assert log["u"].values[1] == 1.5
    assert acting[:4] == pytest.approx([0.0, 0.0, 0.75, 1.5])


def test_the_arm_turns_as_its_equation_says():
    """Hanging still, at the first moment: (J_Azz + J_Bxx + m L² − (m L l)²/J) θ'' = K V, J about the hinge."""
    size = furuta_qube.QUBE
    J = NOMINAL["J_Byy"] + size.mass_pendulum * size.com_pendulum**2
    coupling = size.mass_pendulum * size.arm * size.com_pendulum
    felt = NOMINAL["J_Azz"] + size.J_Bxx + size.mass_pendulum * size.arm**2 - coupling**2 / J
    run = simulate(qube("viscous"), Variational(1e-5, forces="balanced"), 100, inputs=np.array([1.0]))
    theta = 0.5 * NOMINAL["K"] / felt * run.t[-1] ** 2
    assert np.isclose(run.q[-1, 0], theta, rtol=2e-3)
    # pushed forward, the pendulum stays behind
    assert np.isclose(run.q[-1, 1], -coupling / J * theta, rtol=2e-3)


def test_what_no_log_can_tell():
    plain = moved({"J_Axx": NOMINAL["J_Axx"], "J_Ayy": NOMINAL["J_Ayy"]})
    other = moved({"J_Axx": 5 * NOMINAL["J_Axx"], "J_Ayy": 3 * NOMINAL["J_Ayy"]})
    assert np.allclose(plain.q, other.q, atol=1e-10)


def test_a_turned_tilt_is_another_tilt():
    tilt = np.array([0.05, -0.03, 0.4])
    angle = np.linalg.norm(tilt)
    # where the arm sees gravity, and the tilt without a turn that shows it the same
    down = rotation_about(tilt / angle, angle).T @ np.array([0.0, 0.0, -1.0])
    axis = np.cross(down, [0.0, 0.0, -1.0])
    level = axis / np.linalg.norm(axis) * np.arcsin(np.linalg.norm(axis))
    one = moved({f"tilt_{k}": x for k, x in zip("xyz", tilt, strict=True)})
    two = moved({f"tilt_{k}": x for k, x in zip("xyz", level, strict=True)})
    assert abs(level[2]) < 1e-12
    assert np.allclose(one.q, two.q, atol=1e-8)
    assert np.abs(one.q - moved({"tilt_x": 0.0}).q).max() > 1e-2


@pytest.mark.slow
def test_dry_friction_that_hardly_shows_is_found_to_be_so(logs):
    """Steps used to jump over the law of friction from side to side, for as long as was allowed."""
    kinds = furuta_qube.recordings()
    fitted = [furuta_qube.recording(kinds[kind][0], np.inf) for kind in ("chirp_pos", "swing_up")]
    stepper = Variational(0.004, forces="balanced")
    setup = furuta_real.Setup(stepper, fitted, [], furuta_real.weights(stepper, 3e-6, 3e-7))
    names = (*furuta_real.SHOWING, "b1", "b2", "mu1", "mu2")
    fit = furuta_real.fitted(setup, names, "dry", NOMINAL, marginal=False)
    assert fit.converged, fit.outcome
    # a step of the encoder in a sample is 0.8 rad/s: what friction does below is not seen
    assert fit.parameters["mu1"].value < 3 * fit.parameters["mu1"].std


@pytest.mark.slow
def test_the_qube_is_what_least_squares_say(logs, tmp_path, capsys):
    """README of the data: pendulum 0.94, arm 1.25, gain 0.85–0.9 of nominal, cable 2e-3 N·m/rad, 4–8 ms late."""
    result = run_study("furuta", quick=True, changes=["data=real"], as_json=True, out=tmp_path)
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == json.loads(json.dumps(result))
    real = result["real"]
    assert real["converged"]
    ratios = real["ratios"]
    assert abs(ratios["pendulum about its hinge"] - 0.94) < 0.02
    assert abs(ratios["arm with the pendulum on it"] - 1.25) < 0.06
    assert 0.82 < ratios["gain"] < 0.97
    assert 8e-4 < ratios["cable"] < 3e-3
    assert 0.003 < result["parameters"]["delay"]["value"] < 0.009
    assert not result["parameters"]["tilt_z"]["identifiable"]
    assert result["validation"]["score"] < 1.3
    rms = real["simulation"]["rms"]
    for angle in ("theta", "alpha"):
        assert rms["identified"][angle] < 0.5 * rms["maker"][angle]
    assert len(list(tmp_path.glob("simulated-*.png"))) == 3
