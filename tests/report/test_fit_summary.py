"""A fit made by hand, in text, JSON and figures, against what a person would write."""

import dataclasses
import json

import numpy as np
import pytest

from mechid import Parameters
from mechid.errors import MechidError
from mechid.estimate.fit import Compared, Estimate, Fit
from mechid.estimate.solvers.problem import Iteration
from mechid.report.fit import digits, progress_line, result_dict
from mechid.report.fit_plot import plot_convergence
from mechid.studies.mechanisms import cart_pendulum

MASS, RATE = "kg", "N·m·s/rad"


@pytest.fixture
def fit():
    """Masses that are told, a damping at its bound, and another that the data do not tell."""
    free = (
        Parameters(cart_pendulum())
        .free("cart.mass", start=2.0)
        .free("pole.mass", start=0.5)
        .free("hinge.damping", start=0.1, bounds=(0.0, None))
        .free("pole.com.z", name="length", start=-0.4)
    )
    values = np.array([1.0234567, 0.3, 0.0, -0.4])
    covariance = np.diag([0.017**2, 0.005**2, 0.01**2, np.inf])
    covariance[0, 1] = covariance[1, 0] = 0.95 * 0.017 * 0.005
    stds = np.sqrt(np.diag(covariance))
    units, starts = (MASS, MASS, RATE, "m"), free.theta0
    bounds = [(-np.inf, np.inf)] * 2 + [(0.0, np.inf), (-np.inf, np.inf)]
    parameters = {
        name: Estimate(name, float(x), float(s), unit, float(start), *pair)
        for name, x, s, unit, start, pair in zip(free.names, values, stds, units, starts, bounds, strict=True)
    }
    R = np.zeros((4, 4))
    R[:3, :3] = np.linalg.cholesky(np.linalg.inv(covariance[:3, :3])).T
    t = np.linspace(0.0, 1.0, 51)
    residual = np.where(np.arange(51) % 2, 3e-3, -3e-3)
    residual[10] = np.nan
    channels = (
        Compared("swing", "x", t, np.sin(5 * t), residual, 3e-3, True),
        Compared("swing", "angle", t, np.cos(5 * t), 2.0 * residual, 5e-3, False),
    )
    trace = tuple(
        Iteration(i, 10.0 ** (2 - i), 10.0**-i, tuple(starts + (values - starts) * i / 3), 0.1, 0.1 * i, i + 1)
        for i in range(4)
    )  # fmt: skip
    first = {"swing: q(hinge)": Estimate("swing: q(hinge)", 0.31234, 0.0021, "rad", 0.3, -np.inf, np.inf)}
    return Fit(
        "simulation error", "LevenbergMarquardt", free, values, parameters, first, covariance, (100.0, 0.1), trace,
        channels, True, "Converged after 3 iterations: the parameters no longer move.",
        {"compile": 12.34, "run": 0.56}, R, ("Residuals are as large as stated.",),
    )  # fmt: skip


SUMMARY = """\
Converged after 3 iterations: the parameters no longer move.
simulation error, LevenbergMarquardt, 1 experiment, 100 samples
cost 100 → 0.1, 3 iterations, 0.6 s after 12.3 s to compile

Parameters
name           value ± std              unit       start                          beware
─────────────────────────────────────────────────────────────────────────────────────────
cart.mass       1.023 ± 0.017  (1.7 %)  kg             2
pole.mass      0.3000 ± 0.0050 (1.7 %)  kg           0.5
hinge.damping   0.000 ± 0.010           N·m·s/rad    0.1                        at bound
length         not told by the data     m           -0.4  not identifiable, did not move

First states
name             value ± std      unit  start
──────────────────────────────────────────────
swing: q(hinge)  0.3123 ± 0.0021  rad     0.3

Channels (SI)
name   samples  rms residual  noise std      noise
───────────────────────────────────────────────────
x           50         0.003      0.003  estimated
angle       50         0.006      0.005      given

Strong correlations: cart.mass – pole.mass +0.950

Notes
1. Residuals are as large as stated.
2. length does not change the data: it cannot be told. Fix it, give it a prior, or measure motions
   that tell more.
3. hinge.damping is at its lower bound, 0 N·m·s/rad: its std does not hold there; widen the bound,
   or fix the parameter.
"""


def test_the_summary_reads_like_this(fit):
    assert fit.summary() == SUMMARY.rstrip()


@pytest.mark.parametrize(
    ("value", "std", "expected"),
    [
        (2.98987, 0.0171, ("2.990", "0.017")),
        (2.98987, 0.0996, ("2.99", "0.10")),
        (56789.0, 1234.0, ("56800", "1200")),
        (0.0012, 3.4, ("0.0", "3.4")),
        (-1.5, 0.2, ("-1.50", "0.20")),
        (1.2345e-5, 1.7e-7, ("1.234e-05", "0.017e-05")),
        (7.1e7, 2.2e6, ("7.10e+07", "0.22e+07")),
        (20.0, 3e-13, ("20", "3.0e-13")),
        (5.0, 0.0, ("5", "0")),
        (0.0, 0.012, ("0.000", "0.012")),
        (1.23456789, np.inf, ("1.23457", "")),
        (np.nan, 0.1, ("nan", "")),
    ],
)
def test_digits_follow_the_deviation(value, std, expected):
    assert digits(value, std) == expected


def test_what_is_not_told_is_no_number_in_the_table(fit):
    line = next(x for x in fit.summary().splitlines() if x.startswith("length"))
    assert "not told by the data" in line
    assert line.count("0.4") == 1  # its start


def test_without_convergence_the_deviations_are_in_doubt(fit):
    text = dataclasses.replace(fit, converged=False, outcome="Interrupted after 3 iterations.").summary()
    assert text.startswith("Interrupted after 3 iterations.\n")
    assert "last iteration" in text


def test_a_cost_of_ones_own_gives_numbers_without_deviations(fit):
    bare = dataclasses.replace(
        fit,
        parameters={n: dataclasses.replace(p, std=np.inf) for n, p in fit.parameters.items()},
        covariance=np.diag(np.full(4, np.inf)),
        sensitivities=np.zeros((0, 4)),
    )
    text = bare.summary()
    assert "1.02346" in text
    assert "not told" not in text
    assert "Without standard deviation" in text


def test_json_comes_back_as_it_went(fit):
    told = result_dict(fit)
    again = json.loads(json.dumps(told, allow_nan=False))
    assert again == told
    assert again["parameters"]["cart.mass"] == {
        "value": 1.0234567, "std": pytest.approx(0.017), "start": 2.0, "lower": None, "upper": None, "unit": "kg",
        "flags": [],
    }  # fmt: skip
    assert again["parameters"]["length"]["std"] is None
    assert again["parameters"]["length"]["flags"] == ["not identifiable", "did not move"]
    assert again["covariance"][3] == [0.0, 0.0, 0.0, None]
    assert again["cost"] == {"start": 100.0, "end": 0.1}
    assert len(again["trace"]) == again["iterations"] + 1 == 4
    assert again["channels"][1] == {
        "experiment": "swing", "channel": "angle", "samples": 50, "rms": pytest.approx(6e-3), "std": 5e-3,
        "estimated": False,
    }  # fmt: skip
    assert again["identifiability"]["singular_values"][3] == 0.0
    assert again["identifiability"]["stds"][3] is None


def test_progress_is_one_line():
    line = progress_line(Iteration(3, 0.0123456, 4.5e-3, (1.5, 2.0), 0.1, 2.34, 7), ["m", "k"], ["kg", ""])
    assert line == "   3  cost 1.2346e-02  gradient 4.5e-03  m 1.5 kg, k 2  2.3 s"


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_a_figure_is_written(fit, tmp_path, suffix):
    path = tmp_path / f"fit.{suffix}"
    fit.plot(path)
    begin = {"png": b"\x89PNG", "svg": b"<?xml"}[suffix]
    assert path.read_bytes().startswith(begin)
    assert path.stat().st_size > 5000


def test_more_channels_than_panels_are_drawn_in_part(fit, tmp_path, monkeypatch):
    monkeypatch.setattr("mechid.report.fit_plot.PANELS", 2)
    many = tuple(dataclasses.replace(fit.channels[0], channel=f"c{i}") for i in range(5))
    dataclasses.replace(fit, channels=many).plot(tmp_path / "many.svg")
    assert "2 of 5 channels" in (tmp_path / "many.svg").read_text(encoding="utf-8")


def test_the_way_of_the_solver_is_drawn(fit, tmp_path):
    plot_convergence(fit, tmp_path / "way.png")
    perfect = tuple(dataclasses.replace(i, cost=0.0, gradient_norm=0.0) for i in fit.trace)
    plot_convergence(dataclasses.replace(fit, trace=perfect), tmp_path / "perfect.png")
    assert all((tmp_path / name).stat().st_size > 5000 for name in ("way.png", "perfect.png"))


def test_figures_that_cannot_be_are_refused_in_a_sentence(fit, tmp_path):
    with pytest.raises(MechidError, match=r"ends in '\.txt'; valid: \.png, \.pdf, \.svg\."):
        fit.plot(tmp_path / "fit.txt")
    with pytest.raises(MechidError, match="there is no folder"):
        fit.plot(tmp_path / "absent" / "fit.png")
    with pytest.raises(MechidError, match="compares no channels"):
        dataclasses.replace(fit, channels=()).plot(tmp_path / "fit.png")
    with pytest.raises(MechidError, match="no trace"):
        plot_convergence(dataclasses.replace(fit, trace=()), tmp_path / "fit.png")
