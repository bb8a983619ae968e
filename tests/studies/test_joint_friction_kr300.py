"""The regressions of the KUKA KR300's joints: on made logs whose truth is known, and on the real ones."""

import json

import numpy as np
import pytest
from rich.console import Console
from scipy.integrate import solve_ivp

from mechid import MechidError, log_of
from mechid.studies import joint_friction_kr300 as kr300
from mechid.studies.study import Study

STIFFNESS, INERTIA, VISCOUS, COULOMB, LAG = 4.1e6, 0.0118, 0.02, 1.8, 3e-3
N = kr300.RATIO[3]


def made(phase: float, seed: int):
    """An elbow with a motor, a gear and a heavy forearm, under a controller; all other axes stand still."""
    link, weight = 500.0, 4000.0

    def path(t):
        return 0.4 * np.sin(0.9 * t + phase) + 0.2 * np.sin(2.1 * t)

    def wanted(t):
        return 0.36 * np.cos(0.9 * t + phase) + 0.42 * np.cos(2.1 * t)

    def torque(t, q, v):
        return 60.0 * N * (path(t) - q) + 5.0 * N * (wanted(t) - v) - weight * np.cos(q) / N

    def motion(t, x):
        q, p, v, w = x
        passed = STIFFNESS * (q - p)
        rubbed = VISCOUS * N * v + COULOMB * np.tanh(v / 0.01)
        a = (torque(t, q, v) - rubbed - passed / N) / (INERTIA * N)
        return [v, w, a, (passed + weight * np.cos(p)) / link]

    t = 0.004 * np.arange(2501)
    start = [path(0.0), path(0.0), wanted(0.0), wanted(0.0)]
    fine = solve_ivp(
        motion, (0.0, 10.0), start, t_eval=t, method="Radau", rtol=1e-8, atol=1e-10, dense_output=True
    )
    q, _, v, _ = fine.y
    rng = np.random.default_rng(seed)
    late = fine.sol(np.maximum(t - LAG, 0.0))[1]
    channels = {}
    for i in kr300.AXES:
        channels |= {f"q_motor_{i}": 0.0 * t, f"q_link_{i}": 0.0 * t, f"tau_motor_{i}": 0.0 * t}
    channels["q_motor_3"] = q + 1e-6 * rng.normal(size=len(t))
    channels["q_link_3"] = late + 1e-5 * rng.normal(size=len(t))
    channels["tau_motor_3"] = torque(t, q, v) + 0.3 * rng.normal(size=len(t))
    return log_of(t, channels)


def test_numbers_of_a_made_gear_are_found():
    logs = {"A": made(0.0, 1), "B": made(1.0, 2)}
    axis = kr300.judge(logs, 3, "A", "B", 0.1)
    for name, truth in {"stiffness": STIFFNESS, "motor_inertia": INERTIA, "coulomb": COULOMB}.items():
        found = axis.found[name]
        assert found.told == "yes", (name, found)
        assert abs(found.value - truth) < 3.0 * found.std, (name, found)
        assert found.std < 0.2 * truth, (name, found)
    # the lag less what viscous friction hides of it
    assert axis.found["lag"].value == pytest.approx(LAG - VISCOUS * N**2 / STIFFNESS, abs=1e-4)
    error, size = axis.foretold["twist, from motion and torque"]
    assert error < 0.15 * size


def test_standard_deviations_know_that_residuals_are_alike():
    """Of a slope in slow noise: as far as slopes of many such logs lie apart."""
    rng = np.random.default_rng(0)
    t = np.linspace(-1.0, 1.0, 2000)
    slopes, stds = [], []
    for _ in range(200):
        noise = np.convolve(rng.normal(size=2000 + 19), np.ones(20) / 20.0, "valid")
        fit = kr300.regressed({"one": np.ones(2000), "slope": t}, 2.0 * t + noise, [2000])
        slopes.append(fit.theta[1])
        stds.append(fit.std[1])
    assert np.mean(slopes) == pytest.approx(2.0, abs=0.03)
    assert np.mean(stds) == pytest.approx(np.std(slopes), rel=0.3)


def test_the_real_joints(reference, tmp_path):
    """Weight tells the stiffness of the elbow; nothing tells that of the vertical axis."""
    study = Study("joint-friction", tmp_path, Console(quiet=True))
    result = kr300.kr300(dict(kr300.SETTINGS), study)
    json.dumps(result)
    first, second, third = (result["axes"][i]["parameters"] for i in "123")
    assert first["stiffness"]["told"] == "no"
    assert first["stiffness"]["value"] is None
    assert third["stiffness"]["told"] == "yes"
    k = third["stiffness"]
    assert abs(k["value"] - k["published"]) < 3.0 * k["std"]
    assert second["stiffness"]["published"] == 7.519e6
    # both logs say the same of friction and of the encoders' clocks
    for axis in (first, second, third):
        assert axis["coulomb"]["told"] == "yes"
        assert 2.5e-3 < axis["lag"]["value"] < 3.2e-3
    # a gear whose twist is known foretells the elbow's torque on the log that was not fitted
    told = result["axes"]["3"]["foretold"]
    assert told["torque, from motion and twist"]["error"] < 0.5 * told["torque, from motion alone"]["error"]
    assert (tmp_path / "kr300.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("change", "words"),
    [({"kr300_fit": "C"}, "Valid: A, B"), ({"kr300_window": 0.0}, "between 0.02 and 1 s")],
)
def test_settings_that_make_no_sense(change, words, tmp_path):
    study = Study("joint-friction", tmp_path, Console(quiet=True))
    with pytest.raises(MechidError, match=words):
        kr300.kr300(kr300.SETTINGS | change, study)
