"""Logs and channels: what they hold, what is noticed about them, units."""

import dataclasses
import math
import pickle

import numpy as np
import pytest

from mechid.data.inspect import Gap, describe, gaps, remarks, timing
from mechid.data.log import Channel, Log, log_of
from mechid.data.units import known_units, rate_unit, same_dimension, split_unit, to_si, with_unit
from mechid.errors import MechidError

T = np.arange(101) / 100.0


def test_arrays_become_channels_in_si():
    log = log_of(T, {"q": 180.0 * T, "x": 1e3 * T, "raw": T}, units={"q": "deg", "x": "mm"})
    assert log.names == tuple(log) == ("q", "x", "raw")
    assert [log[n].unit for n in log] == ["rad", "m", ""]
    assert log["q"].values == pytest.approx(math.pi * T)
    assert log["x"].values == pytest.approx(T)
    assert (log.start, log.end, log.duration) == (0.0, 1.0, 1.0)
    assert "q" in log
    assert "p" not in log
    assert log["q"].time is log["x"].time


def test_a_matrix_becomes_one_channel_a_column():
    log = log_of(T, {"q": np.stack([T, 2 * T], 1)})
    assert log.names == ("q[0]", "q[1]")
    assert np.array_equal(log["q[1]"].values, 2 * T)


def test_a_log_is_a_copy_that_nobody_changes():
    values = T.copy()
    log = log_of(T, {"q": values})
    values[0] = 7.0
    assert log["q"].values[0] == 0.0
    with pytest.raises(ValueError, match="read-only"):
        log["q"].values[0] = 1.0
    with pytest.raises(TypeError):
        log.channels["p"] = log["q"]  # pyright: ignore
    with pytest.raises(dataclasses.FrozenInstanceError):
        log.name = "other"  # pyright: ignore


def test_a_log_is_pickled():
    log = log_of(T, {"q": T}, units={"q": "rad"})
    again = pickle.loads(pickle.dumps(log))
    assert np.array_equal(again["q"].values, T)
    assert again["q"].unit == "rad"


# What is noticed


def test_timing_of_even_samples():
    found = timing(Channel(T, T))
    assert found.rate == pytest.approx(100.0)
    assert found.jitter == pytest.approx(0.0, abs=1e-9)
    assert found.uniform
    assert found.gaps == ()


def test_jitter_is_the_spread_of_steps():
    steps = np.tile([0.9e-3, 1.1e-3, 1.0e-3], 100)
    found = timing(Channel(np.cumsum(steps), np.zeros(300)))
    assert found.jitter == pytest.approx(0.1 * math.sqrt(2 / 3), rel=0.01)
    assert found.rate == pytest.approx(1e3, rel=1e-3)
    assert not found.uniform


def test_gaps_of_missing_samples_and_of_missing_time_stamps():
    values = T.copy()
    values[[0, 50, 51, 100]] = np.nan
    assert timing(Channel(T, values)).gaps == (Gap(0.0, 0.01), Gap(0.49, 0.52), Gap(0.99, 1.0))
    assert timing(Channel(T, values)).uniform
    cut = np.delete(T, slice(20, 30))
    found = timing(Channel(cut, cut))
    assert found.gaps == (Gap(0.19, 0.30),)
    assert found.gaps[0].duration == pytest.approx(0.11)
    assert not found.uniform
    assert found.rate == pytest.approx(100.0)


def test_gaps_of_a_log_are_those_of_its_channels():
    log = log_of(T, {"whole": T, "holed": np.where(T == 0.5, np.nan, T), "none": np.full(101, np.nan)})
    assert gaps(log) == {"holed": (Gap(0.49, 0.51),), "none": (Gap(0.0, 1.0),)}


def test_stuck_and_saturated_channels_are_remarked():
    t = np.arange(1000) / 100.0
    assert remarks(Channel(t, np.full(1000, 3.0))) == ("constant",)
    assert remarks(Channel(t, np.full(1000, np.nan))) == ("all missing",)
    assert remarks(Channel(t, np.sin(t))) == ()
    stuck = np.where((t >= 2.0) & (t <= 4.0), 5.0, np.sin(t))
    assert remarks(Channel(t, stuck)) == ("5 from 2 to 4 s",)
    # a sine beyond half its size in a third of the time, either way
    clipped = remarks(Channel(t, np.clip(np.sin(2 * math.pi * t), -0.5, 2.0)))
    assert clipped == ("at its smallest in 33 % of the samples",)


def test_a_log_prints_as_a_table():
    log = log_of(
        T, {"q": np.where(T == 0.5, np.nan, T), "u": np.full(101, 2.0)}, units={"q": "rad"}, name="run"
    )
    log = Log(log.name, log.channels, ("A note.",))
    assert repr(log) == describe(log)
    assert repr(log).splitlines() == [
        "Log 'run': 2 channels, 0 to 1 s",
        "channel  unit  samples    rate  jitter  missing  gaps  smallest  largest  remarks",
        "q        rad       101  100 Hz     0 %        1     1         0        1",
        "u                  101  100 Hz     0 %                        2        2  constant",
        "- A note.",
    ]


def test_a_single_sample_is_a_log():
    log = log_of([1.0], {"q": [2.0]})
    assert math.isnan(timing(log["q"]).rate)
    assert "1 channel, 1 to 1 s" in repr(log)


# Units


@pytest.mark.parametrize(
    ("unit", "factor", "si"),
    [
        ("", 1.0, ""),
        ("deg", math.pi / 180, "rad"),
        ("°", math.pi / 180, "rad"),
        ("Deg", math.pi / 180, "rad"),
        ("°/s", math.pi / 180, "rad/s"),
        ("rpm", math.pi / 30, "rad/s"),
        ("RPM", math.pi / 30, "rad/s"),
        ("rev/min", math.pi / 30, "rad/s"),
        ("rad/s2", 1.0, "rad/s²"),
        ("rad/s^2", 1.0, "rad/s²"),
        ("rad/sec", 1.0, "rad/s"),
        ("mm", 1e-3, "m"),
        ("in", 0.0254, "m"),
        ("Nm", 1.0, "N·m"),
        ("N*m", 1.0, "N·m"),
        ("N.m", 1.0, "N·m"),
        ("N m", 1.0, "N·m"),
        ("N·m", 1.0, "N·m"),
        ("mNm", 1e-3, "N·m"),
        ("mN", 1e-3, "N"),
        ("kN", 1e3, "N"),
        ("g", 1e-3, "kg"),
        ("kg*m^2", 1.0, "kg·m²"),
        ("µs", 1e-6, "s"),
        ("ns", 1e-9, "s"),
        ("mA", 1e-3, "A"),
        ("km/h", 1 / 3.6, "m/s"),
        ("gn", 9.80665, "m/s²"),
    ],
)
def test_units_in_si(unit, factor, si):
    assert to_si(unit) == (pytest.approx(factor, rel=1e-15), si)


@pytest.mark.parametrize("unit", ["furlong", "m s", "mPa", "MS", "G", "°C", "0", "s-"])
def test_what_is_no_unit_is_refused(unit):
    with pytest.raises(MechidError, match="is no unit that is known; valid: "):
        to_si(unit)


def test_every_unit_is_known_and_si_units_stay():
    for unit in known_units():
        factor, si = to_si(unit)
        assert factor > 0.0
        assert to_si(si) == (1.0, si)
        if rate_unit(si):
            assert to_si(rate_unit(si)) == (1.0, rate_unit(si))


def test_dimensions_are_compared():
    assert same_dimension("deg", "rad")
    assert same_dimension("rpm", "°/s")
    assert not same_dimension("deg", "m")


@pytest.mark.parametrize(
    ("header", "name", "unit"),
    [
        ("q1 [deg]", "q1", "deg"),
        ("torque (Nm)", "torque", "Nm"),
        ("Time(s)", "Time", "s"),
        ("q[0]", "q[0]", None),
        ("q[0] [rad]", "q[0]", "rad"),
        ("speed (left)", "speed (left)", None),
        ("q(t)", "q(t)", None),
        ("x [deg] []", "x [deg]", ""),
        ("[deg]", "[deg]", None),
    ],
)
def test_headers_hold_units(header, name, unit):
    assert split_unit(header) == (name, unit)


@pytest.mark.parametrize("name", ["q", "q[0]", "x [deg]", "x []", "f(t)", "v (m/s)"])
@pytest.mark.parametrize("unit", ["", "rad", "N·m"])
def test_headers_are_taken_apart_as_they_were_made(name, unit):
    again, found = split_unit(with_unit(name, unit))
    assert (again, found or "") == (name, unit)
