"""From logs to arrays over steps and samples, on signals whose answers are written down."""

from __future__ import annotations

import numpy as np
import pytest
from estimation_cases import log_with

from mechid import BDF, MechidError, Variational
from mechid.dynamics.sensors import joint_position, joint_velocity
from mechid.estimate import samples
from mechid.estimate.experiment import Experiment, Measured
from mechid.studies import mechanisms

PENDULUM = mechanisms.pendulum()
INPUT = PENDULUM.input_names[0]


def measured(log, **options):
    return Experiment(log, [Measured(joint_position(PENDULUM, "hinge"), "q", std=1.0)], **options)


# Steps


@pytest.mark.parametrize(
    ("time", "span", "dt", "want"),
    [
        ([0.0, 0.1, 0.2], (None, None), 0.1, [0.0, 0.1, 0.2]),
        ([1.0, 1.25], (None, None), 0.1, [1.0, 1.1, 1.2, 1.3]),
        ([0.0, 1.0], (0.4, 0.6), 0.1, [0.4, 0.5, 0.6]),
        ([0.0, 1.0], (0.7, None), 0.1, [0.7, 0.8, 0.9, 1.0]),
        # a clock that runs a little fast opens no further step
        ([0.0, 0.1, 0.200001], (None, None), 0.1, [0.0, 0.1, 0.2]),
        ([0.0, 0.1, 0.21], (None, None), 0.1, [0.0, 0.1, 0.2, 0.3]),
    ],
)
def test_steps_cover_the_span(time, span, dt, want):
    grid = samples.grid(measured(log_with(q=(time, np.zeros(len(time)))), span=span), BDF(dt))
    assert grid.t == pytest.approx(np.array(want), abs=1e-12)
    assert grid.steps == len(want) - 1


def test_steps_of_their_own_sizes():
    log = log_with(q=([2.0, 3.0], [0.0, 0.0]))
    grid = samples.grid(measured(log), Variational(np.array([0.1, 0.3, 0.2])))
    assert grid.t == pytest.approx(np.array([2.0, 2.1, 2.4, 2.6]))


def test_the_span_reaches_over_all_measured_channels():
    log = log_with(q=([0.5, 1.0], [0, 0]), v=([0.2, 0.9], [0, 0]), other=([0.0, 9.0], [0, 0]))
    position, velocity = joint_position(PENDULUM, "hinge"), joint_velocity(PENDULUM, "hinge")
    grid = samples.grid(Experiment(log, [Measured(position, "q"), Measured(velocity, "v")]), BDF(0.1))
    assert (grid.t[0], grid.t[-1]) == pytest.approx((0.2, 1.0))


# Samples


TABLE = [
    # time, step, fraction; steps of 0.1 s from 0 to 0.3
    (-0.05, None, None),
    (0.0, 0, 0.0),
    (0.025, 0, 0.25),
    (0.1, 0, 1.0),
    (0.1 + 1e-9, 0, 1.0),
    (0.15, 1, 0.5),
    (0.2 - 1e-9, 1, 1.0),
    (0.29, 2, 0.9),
    (0.3, 2, 1.0),
    (0.3 + 5e-5, 2, 1.0005),
    (0.35, None, None),
]


def test_where_samples_lie():
    time = np.array([row[0] for row in TABLE])
    experiment = measured(log_with(q=(time, np.arange(len(time)))), span=(0.0, 0.3))
    grid = samples.grid(experiment, BDF(0.1))
    (group,) = samples.groups(experiment, grid)
    inside = [i for i, row in enumerate(TABLE) if row[1] is not None]
    assert group.interval.tolist() == [TABLE[i][1] for i in inside]
    assert group.fraction == pytest.approx(np.array([TABLE[i][2] for i in inside]), abs=1e-12)
    assert group.values[:, 0].tolist() == inside
    assert not group.form.at_ends
    # what is as good as at an end is there exactly
    assert {0.0, 1.0} <= set(group.fraction.tolist())
    assert np.sum((group.fraction == 0.0) | (group.fraction == 1.0)) == 5


def test_samples_at_ends_of_steps_are_told_apart():
    time = 0.1 * np.arange(4)
    experiment = measured(log_with(q=(time, time)))
    (group,) = samples.groups(experiment, samples.grid(experiment, BDF(0.1)))
    assert group.form.at_ends
    assert (group.interval.tolist(), group.fraction.tolist()) == ([0, 0, 1, 2], [0, 1, 1, 1])


def test_steps_of_different_sizes_hold_their_samples():
    log = log_with(q=([0.0, 0.05, 0.1, 0.25, 0.4, 0.6], np.zeros(6)))
    experiment, stepper = measured(log), Variational(np.array([0.1, 0.3, 0.2]))
    (group,) = samples.groups(experiment, samples.grid(experiment, stepper))
    assert group.interval.tolist() == [0, 0, 0, 1, 1, 2]
    assert group.fraction == pytest.approx(np.array([0.0, 0.5, 1.0, 0.5, 1.0, 1.0]))


def test_missing_samples_weigh_nothing_and_the_last_one_more():
    log = log_with(q=(0.1 * np.arange(4), [1.0, np.nan, 3.0, 4.0]))
    experiment = measured(log, terminal_weight=2.5)
    (group,) = samples.groups(experiment, samples.grid(experiment, BDF(0.1)))
    assert group.present[:, 0].tolist() == [1, 0, 1, 1]
    assert group.values[:, 0].tolist() == [1, 0, 3, 4]
    assert group.emphasis.tolist() == [1, 1, 1, 3.5]


def test_sensors_with_common_time_stamps_are_read_together():
    fast, slow = 0.1 * np.arange(4), 0.15 * np.arange(3)
    position, velocity = joint_position(PENDULUM, "hinge"), joint_velocity(PENDULUM, "hinge")
    log = log_with(a=(fast, fast), b=(slow, slow), c=(fast.copy(), -fast))
    experiment = Experiment(
        log, [Measured(position, "a", std=0.1), Measured(position, "b"), Measured(velocity, "c", std=[0.3])]
    )
    first, second = samples.groups(experiment, samples.grid(experiment, BDF(0.1)))
    assert (first.channels, second.channels) == (("a", "c"), ("b",))
    assert first.form.sizes == (1, 1)
    assert first.values.tolist() == np.stack([fast, -fast], -1).tolist()
    assert first.std.tolist() == [0.1, 0.3]
    assert np.isnan(second.std).all()


# Inputs


def held(hold, time, values, *, dt=0.1, end=0.4):
    log = log_with(q=([0.0, end], [0.0, 0.0]), u=(time, values))
    experiment = measured(log, inputs={INPUT: "u"}, hold=hold)
    grid = samples.grid(experiment, BDF(dt))
    return samples.inputs(experiment, PENDULUM, grid)[:, 0]


def test_holds_of_a_ramp():
    """u = 10 t, sampled at the steps: its start, middle, mean and end in each step."""
    time = 0.1 * np.arange(5)
    assert held("zero-order", time, 10 * time) == pytest.approx(np.array([0.0, 1.0, 2.0, 3.0]))
    assert held("midpoint", time, 10 * time) == pytest.approx(np.array([0.5, 1.5, 2.5, 3.5]))
    assert held("mean", time, 10 * time) == pytest.approx(np.array([0.5, 1.5, 2.5, 3.5]))
    assert held("end", time, 10 * time) == pytest.approx(np.array([1.0, 2.0, 3.0, 4.0]))


def test_holds_of_a_finer_signal():
    """A tooth of height 8 inside every step: 0 at its ends, 8 in the middle, 4 in the mean."""
    time = 0.05 * np.arange(9)
    teeth = 8.0 * (np.arange(9) % 2)
    assert held("zero-order", time, teeth) == pytest.approx(np.zeros(4))
    assert held("midpoint", time, teeth) == pytest.approx(np.full(4, 8.0))
    assert held("mean", time, teeth) == pytest.approx(np.full(4, 4.0))
    assert held("end", time, teeth) == pytest.approx(np.zeros(4))


def test_holds_of_samples_between_steps():
    """Samples at 0.05, 0.15, …: before the first one its value holds."""
    time = -0.05 + 0.1 * np.arange(6)
    values = np.arange(6.0)
    assert held("zero-order", time, values) == pytest.approx(np.array([0.0, 1.0, 2.0, 3.0]))
    assert held("midpoint", time, values) == pytest.approx(np.array([1.0, 2.0, 3.0, 4.0]))
    # at 0.1 it has risen from 0.5 to 1.5
    assert held("end", time, values) == pytest.approx(np.array([1.5, 2.5, 3.5, 4.5]))
    # from 0 to 0.1 it rises from 0.5 to 1.5
    assert held("mean", time, values) == pytest.approx(np.array([1.0, 2.0, 3.0, 4.0]))


def test_a_missing_input_sample_is_bridged_by_the_one_before():
    time, values = 0.1 * np.arange(5), np.array([0.0, 1.0, np.nan, 3.0, 4.0])
    assert held("zero-order", time, values) == pytest.approx(np.array([0.0, 1.0, 1.0, 3.0]))
    assert held("midpoint", time, values) == pytest.approx(np.array([0.5, 1.5, 2.5, 3.5]))
    assert held("end", time, values) == pytest.approx(np.array([1.0, 2.0, 3.0, 4.0]))


def test_one_value_held_and_absent_inputs():
    m = mechanisms.four_bar().torque("c")
    log = log_with(q=([0.0, 0.2], [0.0, 0.0]))
    experiment = Experiment(log, [Measured(joint_position(m, "a"), "q")], inputs={m.input_names[1]: 2})
    grid = samples.grid(experiment, BDF(0.1))
    assert samples.inputs(experiment, m, grid).tolist() == [[0, 2], [0, 2]]


def test_a_channel_between_its_samples():
    log = log_with(q=([0.0, 0.1, 0.2], [0.0, 1.0, 4.0]))
    found = samples.at_steps(measured(log), "q", np.array([0.05, 0.1, 0.15]))
    assert found == pytest.approx(np.array([0.5, 1.0, 2.5]))


T = 0.1 * np.arange(11)
GAP = np.r_[T[:3], T[8:]]


def inputs_of(**u):
    experiment = measured(log_with("run", q=(T, T), **u), inputs={INPUT: "u"})
    return samples.inputs(experiment, PENDULUM, samples.grid(experiment, BDF(0.1)))


def groups_of(*channels, span=(None, None), **more):
    sensor = joint_position(PENDULUM, *["hinge"] * len(channels))
    experiment = Experiment(log_with("run", **more), [Measured(sensor, channels)], span=span)
    return samples.groups(experiment, samples.grid(experiment, BDF(0.1)))


REFUSED = {
    "gap": (
        lambda: inputs_of(u=(GAP, GAP)),
        "Channel 'u' of experiment 'run' has a gap from 0.2 to 0.8 s: what acted there is not known; fill it "
        "(Log.filled, or fill in a study file) or take a span without it.",
    ),
    "gap of missing samples": (
        lambda: inputs_of(u=(T, np.where((T > 0.25) & (T < 0.75), np.nan, T))),
        "Channel 'u' of experiment 'run' has a gap from 0.2 to 0.8 s: what acted there is not known; fill it "
        "(Log.filled, or fill in a study file) or take a span without it.",
    ),
    "begins late": (
        lambda: inputs_of(u=(T[4:], T[4:])),
        "Channel 'u' of experiment 'run' covers 0.4 … 1 s, not the span 0 … 1 s: take a shorter span.",
    ),
    "ends early": (
        lambda: inputs_of(u=(T[:6], T[:6])),
        "Channel 'u' of experiment 'run' covers 0 … 0.5 s, not the span 0 … 1 s: take a shorter span.",
    ),
    "no values": (
        lambda: inputs_of(u=(T, np.full(11, np.nan))),
        "Channel 'u' of experiment 'run' has no values.",
    ),
    "unknown channel of an input": (
        lambda: inputs_of(v=(T, T)),
        "There is no channel (of log 'run') named 'u'. Valid: q, v.",
    ),
    "unknown channel": (
        lambda: groups_of("angel", angle=(T, T)),
        "There is no channel (of log 'run') named 'angel'. Did you mean angle? Valid: angle.",
    ),
    "unknown input": (
        lambda: samples.inputs(
            measured(log_with(q=(T, T)), inputs={"elbow": 1.0}), PENDULUM, samples.Grid(T)
        ),
        f"There is no input named 'elbow'. Valid: {INPUT}.",
    ),
    "input that is neither": (
        lambda: samples.inputs(measured(log_with(q=(T, T)), inputs={INPUT: None}), PENDULUM, samples.Grid(T)),
        f"Input '{INPUT}' needs a channel's name or a number, not None.",
    ),
    "infinite input": (
        lambda: samples.inputs(
            measured(log_with(q=(T, T)), inputs={INPUT: np.inf}), PENDULUM, samples.Grid(T)
        ),
        f"Input '{INPUT}' needs a channel's name or a number, not inf.",
    ),
    "different time stamps": (
        lambda: groups_of("a", "b", a=(T, T), b=(T + 0.01, T)),
        "Channels 'a' and 'b' of one sensor have different time stamps: resample them, or measure them by a sensor "
        "each.",
    ),
    "different numbers of samples": (
        lambda: groups_of("a", "b", a=(T, T), b=(T[1:], T[1:])),
        "Channels 'a' and 'b' of one sensor have different time stamps: resample them, or measure them by a sensor "
        "each.",
    ),
    "no sample within": (
        lambda: groups_of("a", a=(T, T), span=(5.0, 6.0)),
        "Experiment 'run' has no sample within 5 … 6 s.",
    ),
    "all missing": (
        lambda: groups_of("a", a=(T, np.full(11, np.nan))),
        "Experiment 'run' has no sample within 0 … 1 s.",
    ),
    "empty span": (
        lambda: groups_of("a", a=(T, T), span=(0.5, 0.5)),
        "The span of experiment 'run' is empty: 0.5 … 0.5 s.",
    ),
    "short span": (
        lambda: groups_of("a", a=(T, T), span=(0.5, 0.50001)),
        "The span of experiment 'run' (1e-05 s) is shorter than dt = 0.1 s.",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case):
    call, sentence = REFUSED[case]
    with pytest.raises(MechidError) as found:
        call()
    assert str(found.value) == sentence
