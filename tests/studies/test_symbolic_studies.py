"""The note's two examples: what can be told is told, what cannot is said so; the JSON holds what it promises."""

import json
import re

import pytest

from mechid.errors import MechidError
from mechid.studies.study import run_study


def ran(name, capsys, tmp_path, *changes, quick=True):
    result = run_study(name, quick=quick, changes=list(changes), as_json=True, out=tmp_path)
    printed = capsys.readouterr().out.splitlines()
    assert json.loads(printed[-1]) == json.loads(json.dumps(result))
    return result


def off_by(p):
    return abs(p["value"] - p["truth"]) / p["std"]


@pytest.mark.parametrize("changes", [(), ("truth.m=0.7", "truth.k=55", "seed=4", "order=3", "missing=0.3")])
def test_a_mass_on_a_spring_tells_ratios_without_a_force(changes, capsys, tmp_path):
    alone = ran("mass-spring", capsys, tmp_path, *changes)
    assert alone["identifiable"] == ["c/m", "k/m"]
    assert alone["not_identifiable"] == ["m", "c", "k"]
    assert all(alone["parameters"][n]["value"] is None for n in "mck")
    truth = {n: p["truth"] for n, p in alone["parameters"].items()}
    assert truth["c/m"] == pytest.approx(truth["c"] / truth["m"])
    assert all(off_by(alone["parameters"][n]) < 3.5 for n in ("c/m", "k/m"))
    forced = alone["cases"]["known"]
    assert forced["identifiable"] == ["m", "c", "k"]
    assert forced["not_identifiable"] == []
    assert all(off_by(forced["parameters"][n]) < 3.5 for n in "mck")


def test_the_case_that_is_asked_for_comes_first(capsys, tmp_path):
    result = ran("mass-spring", capsys, tmp_path, "force=known", "estimator=simulation-error")
    assert result["force"] == "known"
    assert set(result["parameters"]) == {"m", "c", "k"}


def test_a_cart_pendulum_with_friction_and_missing_samples(capsys, tmp_path):
    result = ran(
        "cart-pendulum", capsys, tmp_path, "friction=viscous", "missing=0.3", "truth.l=0.7", "seed=2"
    )
    assert set(result["parameters"]) == {"M", "m", "l", "b", "c"}
    assert result["parameters"]["l"]["truth"] == 0.7
    assert all(off_by(p) < 3.5 for p in result["parameters"].values())
    assert len(result["starts"]) == 4
    assert (tmp_path / "cart-pendulum.png").stat().st_size > 10_000


def test_without_a_force_the_cart_is_told_by_the_pendulum(capsys, tmp_path):
    result = ran("cart-pendulum", capsys, tmp_path, "force=none")
    assert result["identifiable"] == ["l", "m/M"]
    assert all(off_by(result["parameters"][n]) < 3.5 for n in result["identifiable"])


def test_simulation_errors_end_in_the_lowest_minimum(capsys, tmp_path):
    """Noise alone costs half of what was measured."""
    result = ran("cart-pendulum", capsys, tmp_path, "estimator=simulation-error")
    assert all(off_by(p) < 3.5 for p in result["parameters"].values())
    assert result["cost"]["end"] == pytest.approx(501, rel=0.15)
    assert result["parameters"]["m"]["start"] == 0.5
    assert result["notes"] == []


@pytest.mark.parametrize(
    ("name", "case"), [("mass-spring", "force=known"), ("cart-pendulum", "compare=false")]
)
def test_the_error_of_a_low_order_is_told(name, case, capsys, tmp_path):
    result = ran(name, capsys, tmp_path, "order=2", case)
    worst = max((n for n, p in result["parameters"].items()), key=lambda n: off_by(result["parameters"][n]))
    told = (
        f"'{worst}' is found {off_by(result['parameters'][worst]):.3g} std from what the data are made with: "
    )
    assert result["notes"][-1].startswith(told + "the error of BDF of order 2 shows in steps of 0.01 s")


@pytest.mark.slow
def test_every_order_and_the_upright(capsys, tmp_path):
    result = ran("cart-pendulum", capsys, tmp_path, quick=False)
    costs = {name: fit["cost"]["end"] for name, fit in result["orders"].items()}
    assert costs["BDF1"] > 100 * costs["BDF2"] > 100 * costs["BDF4"]
    assert result["swing_up"]["nearest_upright"] < 0.1
    for part in (result["swing_up"], result["missing"], *(result["orders"][f"BDF{k}"] for k in (4, 5, 6))):
        assert all(off_by(p) < 3.5 for p in part["parameters"].values())


@pytest.mark.parametrize(
    ("name", "change", "sentence"),
    [
        ("mass-spring", "force=some", "There is no force named 'some'"),
        ("mass-spring", "order=7", "Setting order must be one of 1, 2, 3, 4, 5, 6, not 7."),
        ("cart-pendulum", "missing=1.5", "Setting missing must lie between 0 and 0.9, not 1.5."),
        ("cart-pendulum", "truth.l=-1", "Setting truth.l must be > 0, not -1."),
        ("mass-spring", "seed=-1", "Setting seed must be ≥ 0, not -1."),
        ("cart-pendulum", "seed=-1", "Setting seed must be ≥ 0, not -1."),
        ("mass-spring", "noise=nan", "Setting noise must be > 0 and finite, not nan."),
        ("cart-pendulum", "noise=0", "Setting noise must be > 0 and finite, not 0."),
        (
            "mass-spring",
            "time=1e12",
            "A log of 1e+12 s in steps of 0.01 s has 1e+14 of them; this study takes 100000",
        ),
        ("cart-pendulum", "time=nan", "Setting time must be > 0 and finite, not nan."),
        ("cart-pendulum", "dt=nan", "A log of 5 s needs a step between 0 and 0.25 s, not nan s."),
        ("mass-spring", "missing=nan", "Setting missing must lie between 0 and 0.9, not nan."),
        ("cart-pendulum", "dt=2", "A log of 5 s needs a step between 0 and 0.25 s, not 2 s."),
    ],
)
def test_settings_that_make_no_sense(name, change, sentence, capsys, tmp_path):
    with pytest.raises(MechidError, match=re.escape(sentence)):
        run_study(name, quick=True, changes=[change], as_json=False, out=tmp_path)
