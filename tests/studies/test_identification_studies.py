"""The papers' identifications: their figures come out, and the JSON holds what it promises."""

import json

import numpy as np
import pytest

from mechid.studies import baxter_loop, mechanisms
from mechid.studies.matrix import CASES, ESTIMATORS, STEPPERS
from mechid.studies.study import run_study


def test_loop6_reproduces_the_draft(tmp_path, capsys):
    result = run_study("loop6", quick=False, changes=[], as_json=True, out=tmp_path)
    printed = capsys.readouterr().out.splitlines()
    assert json.loads(printed[-1]) == json.loads(json.dumps(result))
    descent, marquardt = (result["fits"][k] for k in ("steepest-descent", "levenberg-marquardt"))
    # the draft: 86 iterations, [19.9997, 20.0120] at a gradient's norm of 1e-3
    assert 84 <= descent["iterations"] <= 88
    assert abs(descent["parameters"]["kappa_theta"] - 19.9997) < 2e-4
    assert abs(descent["parameters"]["kappa_psi"] - 20.0120) < 1e-3
    assert descent["gradient_norm"] < 1e-3
    assert marquardt["iterations"] <= 5
    assert all(abs(x - 20.0) < 1e-6 for x in marquardt["parameters"].values())
    for name in ("kappa_theta", "kappa_psi"):
        assert set(result["parameters"][name]) == {"value", "std", "truth", "start", "unit"}
    assert set(result["seconds"]) == {"compile", "run"}
    assert (tmp_path / "convergence-steepest-descent.png").stat().st_size > 10_000


def test_other_truths_and_starts_are_found(tmp_path, capsys):
    changes = ["truth.kappa_theta=13", "truth.kappa_psi=17", "start.kappa_psi=25", "noise=0.002", "seed=3"]
    result = run_study("loop6", quick=True, changes=changes, as_json=True, out=tmp_path)
    capsys.readouterr()
    for name, truth in (("kappa_theta", 13.0), ("kappa_psi", 17.0)):
        found = result["parameters"][name]
        assert found["truth"] == truth
        assert abs(found["value"] - truth) < 4 * found["std"]


def test_one_elastic_ring_in_any_number_of_links(reference):
    """Loops of other numbers of links have the same height and mass, and close on the same hand and clamp."""
    for links in (6, 24):
        length, mass = mechanisms.loop_link(links)
        assert np.isclose(links * mass, 0.132)
        assert np.isclose(length / 2 / np.tan(np.pi / links), mechanisms.baxter_facts()["apothem"])
        arm = mechanisms.baxter_loop(links=links, tilt=np.pi / 12)
        h = arm.lower().constraint(baxter_loop.start_of(arm), np.zeros(7))[0]
        assert np.abs(h).max() < 1e-6
    assert baxter_loop.stiffness_factor(12) == 1.0
    # twice the links, half the length each: nearly twice as stiff a joint
    assert 1.8 < baxter_loop.stiffness_factor(24) < 2.05


@pytest.mark.slow
def test_baxter_finds_the_stiffness_of_a_finer_loop(reference, tmp_path, capsys):
    result = run_study("baxter-loop", quick=False, changes=["compare=false"], as_json=True, out=tmp_path)
    capsys.readouterr()
    assert abs(result["parameters"]["kappa_theta"]["value"] / 4.5 - 1) < 0.06
    assert abs(result["parameters"]["kappa_psi"]["value"] - 1) < 0.12
    assert result["cost"]["end"] < 0.1 * result["cost"]["start"]
    assert (tmp_path / "paths.png").stat().st_size > 10_000


@pytest.mark.slow
def test_the_matrix_is_full(tmp_path, capsys):
    result = run_study("matrix", quick=True, changes=[], as_json=True, out=tmp_path)
    capsys.readouterr()
    cells = result["cells"]
    assert len(cells) == len(CASES) * len(STEPPERS) * len(ESTIMATORS)
    for c in cells:
        if "why" not in c:
            continue
        if c["estimator"] == "regression":
            assert "linear" in c["why"] or "multipliers" in c["why"] or "Lagrangian" in c["why"]
        else:
            assert c["stepper"] in ("variational", "trapezoidal")
            assert "Lagrangian" in c["why"]
    filled = [
        c for c in cells if "why" not in c and c["stepper"] in ("variational", "trapezoidal", "midpoint")
    ]
    assert all(abs(x) < 4 for c in filled for x in c["pulls"].values())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["loop6", "four-bar", "baxter-arm"])
def test_the_truth_lies_within_three_standard_deviations(name, reference, tmp_path, capsys):
    changes = [f"only={name}", "repetitions=100"]
    result = run_study("repetitions", quick=False, changes=changes, as_json=True, out=tmp_path)
    capsys.readouterr()
    assert result["mechanisms"][name]["within_three"] >= 95
