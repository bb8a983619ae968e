"""Faults made on purpose, and signals that look like faults and are none; what real machines' logs show."""

from __future__ import annotations

import numpy as np
import pytest

from mechid import read_log
from mechid.data.faults import clear_spikes, clipped, dropouts, long_gaps, longest_hold, noise, stuck
from mechid.data.log import Channel
from mechid.reference import reference_folder

T = 0.01 * np.arange(400)
SWING = 0.8 * np.sin(2.3 * T) * np.exp(-0.1 * T) + 0.3 * np.sin(5.1 * T)
PUSH = 2.0 * np.sin(3.0 * T)
ENCODER = 2.0 * np.pi / 4096
FAULTS = (long_gaps, clear_spikes, stuck, dropouts, clipped)


def sensed(x: np.ndarray, noise: float = 0.0, step: float = 0.0) -> np.ndarray:
    x = x + noise * np.random.default_rng(0).normal(size=len(x))
    return np.round(x / step) * step if step else x


def channel(x: np.ndarray) -> Channel:
    return Channel(T, np.asarray(x, float))


SENSORS = [(0.0, 0.0), (1e-3, 0.0), (0.0, ENCODER), (1e-3, ENCODER)]
every_sensor = pytest.mark.parametrize(("noise", "step"), SENSORS)


@every_sensor
def test_gaps_are_found(noise, step):
    x = sensed(SWING, noise, step)
    x[100:140] = np.nan
    x[[200, 300, 301]] = np.nan
    (gap,) = long_gaps(channel(x))
    assert (gap.start, gap.end) == pytest.approx((0.99, 1.4))


@every_sensor
def test_spikes_are_found(noise, step):
    x = sensed(SWING, noise, step)
    x[[50, 200, 201, 333]] += [0.5, -0.3, -0.35, 0.4]
    found = clear_spikes(channel(x))
    assert found is not None
    np.testing.assert_allclose(found.times, [0.5, 2.0, 2.01, 3.33])
    assert (found.at, found.largest) == (pytest.approx(0.5), pytest.approx(0.5, abs=0.02))


@every_sensor
@pytest.mark.parametrize(("first", "last"), [(150, 190), (100, 200), (250, 400)])
def test_a_stuck_value_is_found(noise, step, first, last):
    x = sensed(SWING, noise, step)
    x[first:last] = x[first]
    (found,) = stuck(channel(x))
    assert (found.start, found.end) == pytest.approx((T[first], T[last - 1]), abs=0.011)
    assert found.ends == (last == 400)


def test_a_chirp_that_is_stuck_where_it_is_slow_is_found():
    """What is a jump there is none by the end, where it is ten times as fast."""
    t = 0.004 * np.arange(2500)
    x = sensed(0.3 * np.sin(2.0 * t + 1.0 * t**2) + 0.05 * t, step=0.003)
    assert not stuck(Channel(t, x))
    x[300:400] = x[300]
    (found,) = stuck(Channel(t, x))
    assert (found.start, found.end) == pytest.approx((t[300], t[399]), abs=0.013)


def test_an_angle_at_rest_beside_half_a_turn_is_not_stuck():
    """It arrives, rests, and is read on the other side when it leaves."""
    gone = np.where(T < 1.5, -0.3 * (1.5 - T) ** 2, 0.3 * np.maximum(T - 2.5, 0.0) ** 2)
    way = sensed(gone + 2047 * ENCODER, step=ENCODER)
    x = (way + np.pi) % (2.0 * np.pi) - np.pi
    assert np.ptp(np.diff(x)) > 6.0
    assert not stuck(channel(x))


def test_a_channel_that_drops_to_nothing_is_stuck():
    x = SWING + 1.0
    x[60:90] = 0.0
    (found,) = stuck(channel(x))
    assert (found.value, found.start, found.end) == (0.0, pytest.approx(0.6), pytest.approx(0.89))


@every_sensor
@pytest.mark.parametrize("count", [4, 8])
def test_a_brief_dropout_is_found(noise, step, count):
    x = sensed(SWING + 1.5, noise, step)
    x[170 : 170 + count] = 0.0
    (found,) = dropouts(channel(x))
    assert (found.value, found.start, found.end) == (
        0.0,
        pytest.approx(1.7),
        pytest.approx(1.69 + 0.01 * count),
    )
    assert not stuck(channel(x))


def test_a_value_that_is_held_for_long_is_found():
    x = PUSH.copy()
    x[100:180] = x[100]
    held = longest_hold(channel(x))
    assert held is not None
    assert (held.value, held.start, held.end) == (x[100], pytest.approx(1.0), pytest.approx(1.79))
    assert longest_hold(channel(PUSH)) is None
    assert longest_hold(channel(np.sign(PUSH))) is None


@pytest.mark.parametrize("std", [1e-3, 0.05])
def test_noise_is_what_changes_from_sample_to_sample(std):
    assert noise(channel(sensed(SWING, std))) == pytest.approx(std, rel=0.15)
    assert noise(channel(SWING)) < 2e-3
    assert noise(channel(sensed(SWING, step=0.02))) == pytest.approx(0.02)


@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_limits_are_found(noise):
    u = sensed(PUSH, noise)
    assert [c.limit for c in clipped(channel(np.clip(u, -1.5, 1.5)))] == [1.5, -1.5]
    (found,) = clipped(channel(np.clip(u, -9.0, 1.5)))
    assert found.limit == 1.5
    assert 0.2 < found.share < 0.3


def random_levels() -> np.ndarray:
    return np.repeat(np.random.default_rng(1).normal(size=40), 10)


SOUND = {
    "a swing": SWING,
    "a swing seen by a coarse encoder": sensed(SWING, step=0.02),
    "a slow swing seen by an encoder": sensed(0.05 * SWING, step=ENCODER),
    "noise alone": np.random.default_rng(2).normal(size=400),
    "a push with noise": sensed(PUSH, 0.2),
    "a push in steps": sensed(PUSH, step=0.05),
    "rest, then motion": sensed(np.where(T < 1.5, 0.2, 0.7 - 0.5 * np.cos(2.0 * (T - 1.5))), step=ENCODER),
    "motion that friction ends": sensed(np.where(T < 2.0, 0.5 - 0.3 * (2.0 - T) ** 2, 0.5), step=ENCODER),
    "a rate that friction ends": np.where(T < 2.0, 0.6 * (2.0 - T), 0.0),
    "a square wave": np.sign(PUSH),
    "random levels": random_levels(),
    "pulses": np.where(T % 1.0 < 0.2, np.sin(5.0 * np.pi * (T % 1.0)), 0.0),
    "a sensor slower than the log": np.repeat(SWING[::12], 12)[:400],
    "a wrapped angle": (5.0 * SWING + np.pi) % (2.0 * np.pi) - np.pi,
    "a step": np.where(T < 2.0, 0.1, 0.9) + sensed(0.0 * T, 1e-3),
    "bounces": np.abs(np.sin(3.0 * T)),
    "constant": np.full(400, 0.3),
}


@pytest.mark.parametrize("what", SOUND)
def test_what_is_no_fault_is_not_taken_for_one(what):
    for fault in FAULTS:
        assert not fault(channel(SOUND[what])), fault.__name__


LOGS = ("dfki_simple_pendulum", "qube_furuta", "kuka_kr300", "staubli_tx40")
TRUE = {("swing_up_1", "u_applied_V"), ("swing_up_3", "u_applied_V")}
"""what acted ends at 4 V for 17 and 18 samples, while up to 7.2 V were commanded"""


@pytest.mark.parametrize("machine", LOGS)
def test_logs_of_real_machines_raise_no_false_alarm(machine):
    folder = reference_folder() / "data" / machine
    if not folder.is_dir():
        pytest.skip(f"needs the logs in {folder}")
    for path in sorted(folder.glob("*.csv")):
        if path.name.startswith("TX40_"):
            continue
        log = read_log(path, rate=5000.0) if machine == "staubli_tx40" else read_log(path)
        for name, one in log.channels.items():
            if (log.name, name) in TRUE:
                (found,) = clipped(one)
                assert found.limit == 4.0
                continue
            for fault in FAULTS:
                assert not fault(one), (log.name, name, fault.__name__)
