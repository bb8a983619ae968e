"""The study of a hinge's friction: its parts against closed forms, its tables, and measured logs."""

import json

import numpy as np
import pytest

from mechid.data.log import Channel, Log
from mechid.dynamics.simulate import simulate
from mechid.dynamics.variational import Variational
from mechid.errors import MechidError
from mechid.studies import pendulum, pendulum_driven, pendulum_models
from mechid.studies.study import run_study

TRUTH = {"J": 0.0039, "b": 2e-4, "mu": 0.0017, "mu_delta": 8e-4, "zeta": 0.25}
NONE = TRUTH | {"b": 0.0, "mu": 0.0, "mu_delta": 0.0}


def test_a_release_without_friction_is_that_of_the_stepper():
    """Two integrations of one pendulum: the study's own, and a variational one."""
    own = pendulum_models.swung(np.array([2.0]), NONE, 2.0)[:, 0]
    free = pendulum_models.released("viscous", "level", pendulum_models.STARTS | {"J": 0.0039, "b": 0.0})
    run = simulate(free.apply(free.theta0), Variational(1e-3), 2000, q={"hinge": 2.0})
    assert np.abs(own - run.q[:, 0]).max() < 2e-3


def test_coulomb_friction_takes_its_energy_and_holds_the_rod():
    """A swing's height falls by the torque times the angle; at the end the torque holds the weight."""
    m, l, g = pendulum_models.RELEASED
    torque = 0.002 * m * g
    own = pendulum_models.swung(np.array([0.2]), NONE | {"mu_delta": 0.002, "zeta": 0.0}, 6.0)[:, 0]
    turned = -own.min()
    assert np.isclose(m * g * l * (np.cos(turned) - np.cos(0.2)), torque * (0.2 + turned), rtol=1e-3)
    assert np.ptp(own[-500:]) < 1e-9
    assert m * g * l * abs(np.sin(own[-1])) <= torque


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("data=made", "There is no data named 'made'."),
        ("friction=wet", "There is no friction named 'wet'."),
        ("stepper=euler", "There is no stepper named 'euler'."),
        ("law=soft", "There is no law named 'soft'."),
        ("dt=0", "Setting dt must be positive and finite, not 0."),
        ("truth.b=-1", "Setting truth.b must be ≥ 0 and finite, not -1."),
        ("releases=1", "Setting releases must be ≥ 2"),
        ("releases=1000000", "Setting releases must be ≤ 100"),
        ("seed=-1", "Setting seed must be ≥ 0, not -1."),
        (
            "dt=0.0314",
            "Setting dt must be a whole number of samples of the releases, of 0.001 s each, not 0.0314.",
        ),
        ("delay=0.1", "Setting delay is of data=real"),
        ("time=0.01", "Setting time must be two steps at least"),
    ],
)
def test_wrong_settings_are_told(change, sentence, tmp_path):
    with pytest.raises(MechidError, match=sentence.replace(".", r"\.")):
        run_study("pendulum", quick=True, changes=[change], as_json=False, out=tmp_path)


def test_the_load_is_not_known_to_the_driven_pendulum(tmp_path):
    with pytest.raises(MechidError, match="There is no law named 'load'"):
        run_study("pendulum", quick=True, changes=["data=real", "law=load"], as_json=False, out=tmp_path)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (["truth.mu=0.5"], "Setting truth.mu is what releases are made with"),
        (["noise=3"], "Setting noise is what releases are made with"),
        (["compliance=7"], "Setting compliance is of data=synthetic"),
        (["stepper=variational"], "Setting stepper is of data=synthetic"),
        (["delay=-1"], "Setting delay must be ≥ 0 and finite, not -1"),
        (["friction=viscous", "law=level"], "Setting law is of dry friction"),
    ],
)
def test_settings_of_releases_are_none_of_the_driven_pendulum(changes, sentence, tmp_path):
    with pytest.raises(MechidError, match=sentence):
        run_study("pendulum", quick=True, changes=["data=real", *changes], as_json=False, out=tmp_path)


def test_the_compliance_is_none_of_the_variational_integrator(tmp_path):
    changes = ["stepper=variational", "compliance=1e-6"]
    with pytest.raises(MechidError, match="Setting compliance is one of SPOOK"):
        run_study("pendulum", quick=True, changes=changes, as_json=False, out=tmp_path)


def test_absent_data_are_told(tmp_path, monkeypatch):
    monkeypatch.setenv("MECHID_REFERENCE", str(tmp_path))
    with pytest.raises(MechidError, match="set MECHID_REFERENCE to the folder that holds it"):
        run_study("pendulum", quick=True, changes=["data=real"], as_json=False, out=tmp_path)


@pytest.mark.slow
def test_each_model_explains_more_than_the_plainer_one(tmp_path, capsys):
    changes = ["releases=2", "time=20"]
    result = run_study("pendulum", quick=False, changes=changes, as_json=True, out=tmp_path)
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == json.loads(json.dumps(result))
    for score in ("cost", "cv"):
        errors = [result["validation"][f][score] for f in pendulum_models.FRICTIONS]
        assert errors == sorted(errors, reverse=True)
    for release in (result, *result["releases"]["stribeck"]):
        assert abs(release["parameters"]["J"]["value"] / TRUTH["J"] - 1) < 0.05
    # the step of SPOOK shows in J, that of the variational integrator does not
    off = {name: fit["std_off"] for name, fit in result["steppers"].items()}
    assert abs(off["spook"]["J"]) > 5
    assert max(map(abs, off["variational"].values())) < 3
    zeta = [r["parameters"]["zeta"] for r in result["releases"]["stribeck"]]
    assert not any(z["identifiable"] for z in zeta if "at bound" in z["flags"])
    assert set(pendulum.PAPER["table3"]) == set(result["table3"])
    assert (tmp_path / "stribeck.png").stat().st_size > 10_000


@pytest.mark.slow
def test_the_first_moment_is_the_weighed_one(reference, tmp_path, capsys):
    """Of each log alone and of all together; J/ml, which no torque constant changes, is that of a rod of 0.5 m."""
    if not (reference / "data" / "dfki_simple_pendulum").is_dir():
        pytest.skip("the logs of dfki_simple_pendulum are absent")
    changes = ["data=real", "friction=dry"]
    result = run_study("pendulum", quick=True, changes=changes, as_json=True, out=tmp_path)
    capsys.readouterr()
    found = {log: fit["parameters"] for log, fit in result["logs"]["dry"].items()}
    assert result["parameters"] == found[pendulum_driven.TOGETHER]
    assert set(found) == {*(path.stem for path in pendulum_driven.recordings()), pendulum_driven.TOGETHER}
    for values in found.values():
        assert abs(values["ml"]["value"] / pendulum_driven.WEIGHED - 1) < 0.1
    both = found[pendulum_driven.TOGETHER]
    assert abs(both["J"]["value"] / both["ml"]["value"] / 0.503 - 1) < 0.03
    # the data ask for losses in the gears
    assert result["without_loss"]["dry"]["cost_above"] > 20


def test_the_noise_of_torques_is_told_by_their_fastest_changes():
    """White noise of a known std on a slow swing, at two rates."""
    rng = np.random.default_rng(0)
    logs = []
    for rate in (200.0, 500.0):
        t = np.arange(int(20 * rate)) / rate
        torque = Channel(t, np.sin(t) + 0.02 * rate**0.5 * rng.normal(size=t.size), "N·m")
        logs.append(Log("swing", {"torque": torque}, ()))
    assert abs(pendulum_driven.torque_noise(logs) / 0.02 - 1) < 0.05
