"""A stream whose numbers jump: what is told, when, and that a tracker that was saved goes on bit by bit."""

import dataclasses
import functools

import numpy as np
import pytest

from mechid.errors import MechidError
from mechid.estimate.joint_form import FrictionForm, JointForm
from mechid.estimate.online import Event, Tracker, Tracking
from mechid.estimate.online_state import load_state, save_state, state
from mechid.studies.joint_friction_streams import Stream, friction_stream

TRUTH = {"b_in": 76.0, "b_inD": 40.0, "C1": 25.0, "C2": 590.0, "omega_1": 0.0616, "omega_S": 0.1312}
BOUNDS = {"omega_1": (0.005, 1.0), "omega_S": (0.01, 2.0)}
TRACKER = Tracker(FrictionForm(), BOUNDS, delay=200, beside=False)


@functools.cache
def stream() -> Stream:
    return friction_stream(TRUTH, 15.0, 0.05, (6.0, 10.0), 1.0, 0)


def follow(tracking: Tracking, samples: np.ndarray, first: int = 0) -> list[Event]:
    events = []
    for i in range(first, len(samples)):
        events += tracking.update(i * 1e-3, samples[i]).events
    return events


@functools.cache
def followed() -> tuple[list[Event], list[dict[str, float]]]:
    """All events, and the values before each jump and at the end."""
    tracking, events, values = TRACKER.start(), [], []
    samples = stream().samples
    for a, b in ((0, 6000), (6000, 10000), (10000, 15000)):
        events += follow(tracking, samples[:b], a)
        values.append(tracking.values)
    return events, values


def test_linear_numbers_jump_without_and_nonlinear_ones_with_a_search() -> None:
    events, _ = followed()
    kinds = [(e.kind, e.mcs) for e in events]
    assert kinds == [("started", True), ("changed", False), ("search", True), ("changed", True)]
    started, linear, search, nonlinear = events
    assert started.time < 3.0
    assert linear.time == pytest.approx(6.0, abs=0.05)
    assert set(linear.changed) == {"b_in", "b_inD", "C1", "C2"}
    assert linear.changed["b_inD"] == pytest.approx((40.0, 60.0), rel=0.01)
    assert search.time == pytest.approx(10.0, abs=0.05)
    assert {"omega_1", "omega_S"} <= set(nonlinear.changed)
    assert nonlinear.changed["omega_S"] == pytest.approx((0.1312, 0.15744), rel=0.01)


def test_values_between_the_jumps() -> None:
    _, values = followed()
    for found, i in zip(values, (5999, 9999, 14999), strict=True):
        for name, course in stream().truth.items():
            assert found[name] == pytest.approx(course[i], rel=0.03 if name.startswith("omega") else 0.02)


def test_nothing_is_claimed_while_it_is_not_known_what_has_changed() -> None:
    """Many ω explain a short stretch: what is told as tracking, with a finite std, is near what made the stream."""
    tracking, made, modes = TRACKER.start(), stream(), []
    for i, sample in enumerate(made.samples):
        modes.append(tracking.update(i * 1e-3, sample).mode)
        if i % 20 or modes[-1] == "starting":
            continue
        std = list(tracking.std.values())
        assert np.isfinite(std).all() == (modes[-1] == "tracking")
        if modes[-1] == "tracking":
            for name, course in made.truth.items():
                assert tracking.values[name] == pytest.approx(course[i], rel=0.1), i
    events, _ = followed()
    for event in events[1:]:
        if event.kind == "changed":
            assert set(modes[round(1e3 * event.time) + 1 : round(1e3 * event.told)]) == {"changing"}
            assert modes[round(1e3 * event.told)] == "tracking"


def test_standard_deviations_hold_over_streams() -> None:
    """Errors of many streams in units of their std: with ω taken for exact they would be twice as large as told."""
    errors = []
    for seed in range(16):
        made, tracking = friction_stream(TRUTH, 4.0, 0.05, (100.0, 100.0), 1.0, seed), TRACKER.start()
        follow(tracking, made.samples)
        assert tracking.mode == "tracking"
        std = tracking.std
        errors.append([(value - TRUTH[name]) / std[name] for name, value in tracking.values.items()])
    sizes = np.sqrt(np.mean(np.square(errors), axis=0))
    assert np.all((sizes > 0.5) & (sizes < 1.5)), sizes


@pytest.mark.parametrize(("channel", "value"), [(2, 1e5), (1, 1e3)])
def test_an_impossible_sample_of_the_start_is_left_out(channel: int, value: float) -> None:
    """A torque or a velocity: the noise is that of the stream, and jumps are found as without it."""
    samples = stream().samples[:8000].copy()
    samples[1000, channel] = value
    tracking = TRACKER.start()
    started, changed = follow(tracking, samples)
    assert started.what.endswith("Measurements left out as outliers: 1.")
    assert tracking.noise == pytest.approx([0.05], rel=0.05)
    assert (changed.kind, changed.mcs) == ("changed", False)
    assert changed.time == pytest.approx(6.0, abs=0.05)


@pytest.mark.parametrize(("share", "size"), [(1e-3, 5.0), (1e-3, 1e5), (5e-3, 1.0)])
def test_single_outliers_change_nothing(share: float, size: float) -> None:
    """A hundred and twenty standard deviations off, in quiet times, at jumps and after them: told once, counted."""
    rng, samples = np.random.default_rng(1), stream().samples.copy()
    spoilt = np.flatnonzero(rng.random(len(samples)) < share)
    samples[spoilt, 2] += size * rng.choice([-1.0, 1.0], len(spoilt))
    tracking = TRACKER.start()
    events = follow(tracking, samples)
    assert [e.kind for e in events if e.kind != "outlier"] == ["started", "changed", "search", "changed"]
    assert [e.kind for e in events].count("outlier") == 1
    assert [(e.kind, e.time) for e in events if e.kind in ("changed", "search")] == [
        ("changed", pytest.approx(6.0, abs=0.05)),
        ("search", pytest.approx(10.0, abs=0.05)),
        ("changed", pytest.approx(10.0, abs=0.05)),
    ]
    since = np.count_nonzero(spoilt > 1e3 * events[0].time)
    assert 0.8 * since <= tracking.aside.outliers <= since
    for name, value in tracking.values.items():
        assert value == pytest.approx(stream().truth[name][-1], rel=0.03)


def test_jumps_are_dated_to_the_sample() -> None:
    """Nothing is held back from the date of a change by waiting whether its first samples are outliers."""
    events, _ = followed()
    assert [e.time for e in events if e.kind in ("changed", "search")] == [6.0, 10.0, 10.0]


def test_noise_that_is_given_too_small_is_told() -> None:
    """After a full window, with what was found: the stream's noise is ten times what is said."""
    tracking = dataclasses.replace(TRACKER, noise=(0.005,), window=2000, delay=0).start()
    (event,) = follow(tracking, stream().samples[:4000])
    assert (event.kind, tracking.mode) == ("unexplained", "starting")
    assert event.told == pytest.approx(2.0, abs=0.6)
    assert float(event.what.split("residuals are ")[1].split()[0]) == pytest.approx(10.0, rel=0.1)
    assert event.what.endswith("The noise that was given may be too small.")


def test_too_many_outliers_are_a_change() -> None:
    samples = stream().samples[:5000].copy()
    samples[3000::20, 2] += 5.0
    tracking = TRACKER.start()
    _, outlier, search = follow(tracking, samples)
    assert (outlier.kind, search.kind) == ("outlier", "search")
    assert outlier.time == 3.0
    assert 3.0 < search.time < 4.0


@pytest.mark.parametrize("cut", [300, 1234, 6001, 6020, 6900, 10300, 11150, 12000])
def test_a_saved_tracker_goes_on_bit_by_bit(cut: int, tmp_path) -> None:
    """Cuts lie before the start, in a search, in a suspicion, while ω settles, in quiet times."""
    samples = stream().samples[: cut + 1500]
    whole = TRACKER.start()
    follow(whole, samples[:cut])
    save_state(state(whole), tmp_path / "state.npz")
    again = TRACKER.resume(load_state(tmp_path / "state.npz"))
    assert follow(again, samples, cut) == follow(whole, samples, cut)
    one, other = state(again), state(whole)
    assert one.keys() == other.keys()
    # seconds are told by a clock
    assert all(np.array_equal(one[key], other[key], equal_nan=True) for key in one if key != "about")


def test_searches_beside_the_stream_find_the_same() -> None:
    samples = stream().samples[:3000]
    here, beside = TRACKER.start(), dataclasses.replace(TRACKER, beside=True).start()
    try:
        assert follow(beside, samples) == follow(here, samples)
        assert beside.values == here.values
        assert np.isfinite(beside.omega).all()
    finally:
        beside.close()


def test_missing_samples_and_rest() -> None:
    """A tenth of all samples lacks something; then the joint rests, and nothing is lost."""
    samples = stream().samples[:6000].copy()
    rng = np.random.default_rng(0)
    samples[rng.random(6000) < 0.1, 2] = np.nan
    samples[rng.random(6000) < 0.01] = np.nan
    tracking = TRACKER.start()
    follow(tracking, samples)
    moving, std = tracking.values, tracking.std
    rest = np.column_stack([np.full(8000, 0.1), np.zeros(8000), 4.0 + 0.05 * rng.normal(size=8000)])
    assert follow(tracking, rest) == []
    for name in FrictionForm.names:
        assert tracking.values[name] == pytest.approx(moving[name], abs=6.0 * std[name])
    assert tracking.std == pytest.approx(std, rel=0.3)


class Line:
    names, units, nonlinear = ("offset", "slope"), ("N", "N/m"), ()
    outputs, channels = ("force",), ("place", "force")

    def rows(self, samples: np.ndarray, omega: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.stack([np.ones(len(samples)), samples[:, 0]], axis=1)[:, None], samples[:, 1:]


def line(slopes: list[float]) -> np.ndarray:
    """Samples of a line, 3000 of each slope."""
    rng, count = np.random.default_rng(0), 3000 * len(slopes)
    x = np.sin(0.01 * np.arange(count))
    return np.column_stack([x, 2.0 + np.repeat(slopes, 3000) * x + 0.01 * rng.normal(size=count)])


def test_a_form_without_nonlinear_numbers() -> None:
    tracking = Tracker(Line(), least=200, window=1000).start()
    events = follow(tracking, line([5.0, 7.0]))
    assert [e.kind for e in events] == ["started", "changed"]
    assert not events[1].mcs
    assert events[1].time == pytest.approx(3.0, abs=0.1)
    assert tracking.values == pytest.approx({"offset": 2.0, "slope": 7.0}, rel=1e-3)


def test_small_steps_add_up_until_they_are_told() -> None:
    """Steps of 1.2 % where 2 % count: every second one is told, from what was told before."""
    slopes = [5.0, 5.06, 5.12, 5.18, 5.24]
    tracking = Tracker(Line(), least=200, window=1000).start()
    events = follow(tracking, line(slopes))
    assert [e.kind for e in events] == ["started", "changed", "changed"]
    for event, at, (before, after) in zip(events[1:], (6.0, 12.0), ((5.0, 5.12), (5.12, 5.24)), strict=True):
        assert event.time == pytest.approx(at, abs=0.3)
        assert event.changed == {"slope": pytest.approx((before, after), rel=2e-3)}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"least": 5000}, "A window of 4000 samples holds less than the least, 5000."),
        ({"window": 0}, "window of a tracker must be a whole number ≥ 10, not 0."),
        ({"threshold": -1.0}, "threshold of a tracker must be a positive number, not -1.0."),
        (
            {"window": 10**8},
            "window of a tracker must be at most 10000000 samples, which it keeps, not 100000000.",
        ),
        *(
            (
                {"noise": noise},
                f"The noise of T_d_in takes 1 positive, finite number in a list, not {noise!r}.",
            )
            for noise in ((1.0, 2.0), 0.05, (-1.0,), (np.inf,), ("a",))
        ),
        ({"criterion": "max"}, "There is no criterion named 'max'. Valid: squares, norm."),
        ({"delay": True}, "delay of a tracker must be a whole number of samples, not True."),
        ({"delay": -1}, "delay of a tracker must be a whole number of samples, not -1."),
        ({"bounds": {}}, "Bounds are needed of omega_1, omega_S."),
    ],
)
def test_mistakes(change: dict, told: str) -> None:
    with pytest.raises(MechidError) as error:
        dataclasses.replace(TRACKER, **change)
    assert str(error.value) == told


@pytest.mark.parametrize(
    ("sample", "told"),
    [
        ([1.0, 2.0], "A sample takes 3 numbers (theta_in, theta_in_rate, T_d_in), not [1.0, 2.0]."),
        ([1.0], "A sample takes 3 numbers (theta_in, theta_in_rate, T_d_in), not [1.0]."),
        (1.0, "A sample takes 3 numbers (theta_in, theta_in_rate, T_d_in), not 1.0."),
        (
            [0.1, "fast", 3.0],
            "theta_in_rate of a sample must be a number, nan where it is missing, not 'fast'.",
        ),
        ([0.1, None, 3.0], "theta_in_rate of a sample must be a number, nan where it is missing, not None."),
    ],
)
@pytest.mark.parametrize("before", [10, 3000])
def test_samples_that_are_none(sample, told: str, before: int) -> None:
    """Starting and tracking; what was known stays, and the stream goes on."""
    tracking = TRACKER.start()
    follow(tracking, stream().samples[:before])
    with pytest.raises(MechidError) as error:
        tracking.update(3.0, sample)
    assert str(error.value) == told
    assert tracking.count == before
    tracking.update(3.0, stream().samples[before])


def test_a_state_of_another_tracker_is_refused(tmp_path) -> None:
    given = state(TRACKER.start())
    other = Tracker(JointForm(), BOUNDS, delay=200, beside=False)
    with pytest.raises(MechidError, match="belongs to another form"):
        other.resume(given)
    (tmp_path / "no.npz").write_text("hello")
    with pytest.raises(MechidError, match="is no state of a tracker"):
        load_state(tmp_path / "no.npz")
