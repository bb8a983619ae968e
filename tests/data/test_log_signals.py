"""What is done to logs, against closed forms: no phase, exact on lines, gaps stay gaps."""

import math

import numpy as np
import pytest

from mechid.data.log import Log, log_of
from mechid.errors import MechidError

T = np.arange(2001) / 1000.0
RNG = np.random.default_rng(5)


def one(values: np.ndarray, unit: str = "rad", time: np.ndarray = T) -> Log:
    return log_of(time, {"q": values}, units={"q": unit})


def inner(values: np.ndarray) -> np.ndarray:
    return values[300:-300]


# Parts, times, values


def test_parts_and_names():
    log = log_of(T, {"a": T, "b": 2 * T, "c": 3 * T})
    assert log.selected("c", "a").names == ("c", "a")
    assert log.renamed({"x": "b"}).names == ("a", "x", "c")
    assert log.renamed({"a": "b", "b": "a"})["a"].values[-1] == 4.0
    part = log.between(0.5, 1.0)
    assert (part.start, part.end, len(part["a"])) == (0.5, 1.0, 501)
    assert log.between(end=0.25).end == 0.25


def test_a_slow_channel_without_samples_is_left_out_with_a_note():
    log = one(T).with_channel("slow", [0.0, 1.0, 2.0], [1.0, 2.0, 3.0], "deg")
    assert log["slow"].values == pytest.approx(np.radians([1.0, 2.0, 3.0]))
    part = log.between(0.2, 0.4)
    assert part.names == ("q",)
    assert part.notes == ("Channel 'slow' has no samples from 0.2 to 0.4 s and is left out.",)


def test_shift_and_scale():
    log = log_of(T, {"a": T, "b": T})
    late = log.shifted(0.5, "b")
    assert (late["a"].time[0], late["b"].time[0], late.end) == (0.0, 0.5, 2.5)
    torque = log.scaled("a", 50.0, "mNm")["a"]
    assert torque.unit == "N·m"
    assert torque.values == pytest.approx(0.05 * T)
    assert log.scaled("a", -1.0)["a"].unit == ""


def test_unwrapping_undoes_wrapping_across_missing_samples():
    angle = 20.0 * np.sin(3.0 * T)
    log = one(angle).without("q", 0.5, 0.51)
    wrapped = log.wrapped("q")
    assert np.nanmax(np.abs(wrapped["q"].values)) <= math.pi
    again = wrapped.unwrapped("q")["q"].values
    known = ~np.isnan(again)
    assert np.isnan(again).sum() == 11
    assert again[known] == pytest.approx(angle[known], abs=1e-12)
    turned = one(angle).wrapped("q", period=1.0, center=0.5)["q"].values
    assert turned.min() >= 0.0
    assert turned.max() < 1.0


# Filters


@pytest.mark.parametrize(("f", "order"), [(5.0, 4), (20.0, 4), (40.0, 2), (40.0, 1)])
def test_a_filtered_sine_is_smaller_but_not_later(f, order):
    """The gain of a Butterworth filter made by the bilinear map, passed twice."""
    sine = np.sin(2 * math.pi * f * T)
    warped = math.tan(math.pi * f / 1000) / math.tan(math.pi * 20 / 1000)
    gain = 1.0 / (1.0 + warped ** (2 * order))
    out = one(sine).filtered("q", cutoff=20.0, order=order)["q"]
    assert out.unit == "rad"
    assert inner(out.values) == pytest.approx(inner(gain * sine), abs=1e-5)


def test_a_constant_and_the_other_channels_stay():
    log = log_of(T, {"a": np.full(2001, 1e6), "b": np.sin(300 * T)})
    out = log.filtered("a", cutoff=3.0)
    assert out["a"].values == pytest.approx(np.full(2001, 1e6), rel=1e-14)
    assert out["b"] is log["b"]
    assert out.notes == ("Low-pass of 3 Hz, order 4, both ways: a.",)


def test_runs_between_gaps_are_filtered_by_themselves():
    steps = np.where(T < 1.0, 0.0, 1.0)
    out = one(steps).without("q", 0.99, 1.01).filtered("q", cutoff=10.0)["q"].values
    assert np.isnan(out).sum() == 21
    assert np.nanmax(np.abs(out - steps)) < 1e-12


def test_a_run_too_short_becomes_missing_with_a_note():
    out = one(T).without("q", 0.1, 0.2).without("q", 0.21, 0.3).filtered("q", cutoff=10.0)
    assert np.isnan(out["q"].values[101:300]).all()
    assert out.notes[-1] == "Channel 'q': 1 run is shorter than 16 samples and now missing, at 0.201 s."


@pytest.mark.parametrize("how", [{}, {"cutoff": 50.0}, {"window": 0.02}, {"window": 0.02, "order": 4}])
def test_the_derivative_of_a_sine_is_a_cosine(how):
    log = one(np.sin(2 * math.pi * T)).derivative("q", **how)
    assert log["q_rate"].unit == "rad/s"
    exact = 2 * math.pi * np.cos(2 * math.pi * T)
    assert inner(log["q_rate"].values) == pytest.approx(inner(exact), abs=2e-4)
    assert log["q_rate"].values == pytest.approx(exact, abs=0.03)


def test_derivatives_are_exact_on_polynomials_also_at_the_ends():
    cubic = one(T**3 - T, "m").derivative("q", window=0.05, into="v").derivative("v", window=0.05, into="a")
    assert cubic["v"].values == pytest.approx(3 * T**2 - 1, abs=1e-9)
    assert cubic["a"].values == pytest.approx(6 * T, abs=1e-6)
    assert cubic["a"].unit == "m/s²"
    uneven = np.cumsum(RNG.uniform(0.8e-3, 1.2e-3, 500))
    square = one(uneven**2, time=uneven).derivative("q")["q_rate"].values
    assert square == pytest.approx(2 * uneven, abs=1e-10)


def test_spikes_become_missing_and_steps_of_an_encoder_stay():
    clean = np.round(np.sin(3 * T) / 0.01) * 0.01
    spiked = clean.copy()
    at = np.array([0, 7, 500, 501, 1500, 2000])
    spiked[at] += np.array([1.0, -1.0, 3.0, 2.0, -0.5, 1.0])
    log = one(spiked).despiked("q")
    assert np.array_equal(np.flatnonzero(log["q"].missing), at)
    assert log.notes == ("Channel 'q': 6 spikes taken as missing.",)
    noisy = one(RNG.normal(size=2001)).despiked("q", threshold=6.0)
    assert noisy["q"].missing.sum() <= 2


# Gaps and other rates


@pytest.mark.parametrize("method", ["linear", "cubic", "mean"])
@pytest.mark.parametrize("rate", [70.0, 100.0, 1000.0, 3333.0])
def test_straight_lines_are_resampled_exactly(method, rate):
    t = np.cumsum(RNG.uniform(0.8e-3, 1.2e-3, 1000))
    log = one(2.0 - 3.0 * t, time=t).resampled(rate=rate, method=method)
    new = log["q"]
    assert np.diff(new.time) == pytest.approx(np.full(len(new) - 1, 1 / rate))
    assert new.time[0] == t[0]
    assert 0.0 <= t[-1] - new.time[-1] < 1 / rate
    assert new.values == pytest.approx(2.0 - 3.0 * new.time, abs=1e-10)


def test_splines_follow_cubics_and_holding_keeps_samples():
    new = np.linspace(0.0, 2.0, 777)
    assert one(T**3).resampled(times=new, method="cubic")["q"].values == pytest.approx(new**3, abs=1e-9)
    coarse = one(np.arange(5.0), time=np.arange(5.0))
    held = coarse.resampled(times=[0.0, 0.5, 0.999, 1.0, 3.7, 4.0], method="hold")["q"].values
    assert held.tolist() == [0.0, 0.0, 0.0, 1.0, 3.0, 4.0]


def test_means_over_a_period_take_out_what_would_be_aliased():
    hum = one(np.sin(2 * math.pi * 50.0 * T + 0.3))
    slow = hum.resampled(rate=50.0, method="mean")["q"].values[1:-1]
    assert np.abs(slow).max() < 1e-6
    assert hum.resampled(rate=50.0)["q"].values[1:-1] == pytest.approx(np.full(99, math.sin(0.3)), abs=1e-9)


def test_gaps_stay_gaps_unless_they_may_be_bridged():
    log = one(T).without("q", 0.5, 0.6)
    new = log.resampled(rate=100.0)["q"]
    assert np.flatnonzero(new.missing).tolist() == list(range(50, 61))
    assert log.resampled(rate=100.0, longest_gap=0.2)["q"].values == pytest.approx(new.time)
    assert log.resampled(rate=100.0, longest_gap=np.inf)["q"].values == pytest.approx(new.time)
    assert log.resampled(rate=100.0, longest_gap=0.05)["q"].missing.sum() == 11


def test_nothing_is_made_up_before_or_after_what_was_measured():
    log = (
        one(T)
        .with_channel("short", T[500:1000], T[500:1000])
        .resampled(times=[-1.0, 0.25, 0.5, 0.75, 0.999, 3.0])
    )
    assert np.array_equal(log["q"].missing, [True, False, False, False, False, True])
    assert np.array_equal(log["short"].missing, [True, True, False, False, False, True])
    assert log["q"].time is log["short"].time


def test_short_gaps_are_filled_and_long_ones_stay():
    log = one(2.0 * T).without("q", 0.1, 0.11).without("q", 0.5, 0.6).without("q", 0.0, 0.002)
    out = log.filled("q", longest_gap=0.05)
    assert np.isnan(out["q"].values).sum() == 101 + 3
    assert out["q"].values[100:111] == pytest.approx(2.0 * T[100:111])
    assert out.notes[-1] == "Channel 'q': 11 missing samples interpolated."


def test_missing_samples_can_be_dropped():
    log = log_of(T, {"fast": T, "slow": np.where(np.arange(2001) % 10, np.nan, T)}).without_missing("slow")
    assert len(log["slow"]) == 201
    assert not log["slow"].missing.any()
    assert len(log["fast"]) == 2001


def test_what_a_log_gives_is_again_a_log_of_the_same_name():
    log = log_of(T, {"q": T}, name="run")
    for out in (
        log.filtered(cutoff=10.0),
        log.derivative("q"),
        log.resampled(rate=10.0),
        log.filled(longest_gap=1.0),
        log.despiked(),
    ):
        assert out.name == "run"


def test_functions_of_angles_need_names():
    with pytest.raises(MechidError, match="takes the names"):
        one(T).unwrapped()
