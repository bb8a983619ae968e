"""Which lines of a stream are samples when stamps are wrong, clocks begin anew or samples are lost."""

import json
from itertools import pairwise

import pytest

from mechid.jobs.stream_clock import EVEN, Stamped, StreamClock

STEPS = [float(k) for k in range(40)]


def sorted_lines(times, *, saved=False):
    """Lines taken as samples with their times, lines that are garbage, and how often the clock began anew."""
    clock, samples, garbage, anew = StreamClock(), {}, [], 0
    for line, time in enumerate(times):
        if saved:
            clock = StreamClock.restored(json.loads(json.dumps(clock.state())))
        settled = clock.sort(Stamped(line, time, [2.0 * time]))
        for s in settled.samples:
            samples[s.line] = s.time
            assert s.numbers == [2.0 * times[s.line]]
        garbage += [line for line, _ in settled.garbage]
        anew += bool(settled.anew)
    settled = clock.end()
    samples |= {s.line: s.time for s in settled.samples}
    garbage += [line for line, _ in settled.garbage]
    assert sorted([*samples, *garbage]) == list(range(len(times)))
    found = list(samples.values())
    assert list(samples) == sorted(samples)
    assert all(a < b for a, b in pairwise(found))
    return samples, garbage, anew


def replaced(**by):
    made = list(STEPS)
    for place, time in by.items():
        made[int(place[1:])] = time
    return made


@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.parametrize(
    ("times", "garbage"),
    [
        (STEPS, []),
        (replaced(_20=6e7), [20]),
        (replaced(_0=6e7), [0]),
        (replaced(_1=6e7), [1]),
        (replaced(_20=3.0), [20]),
        (replaced(_20=19.0), [20]),
        (replaced(_20=6e7, _25=5e7), [20, 25]),
        (replaced(_20=6e7, _21=2.0), [20, 21]),
        (replaced(_20=24.0), [21, 22, 23, 24]),
        ([*STEPS, *(t + 5000.0 for t in STEPS)], []),
        ([*STEPS, 5000.0], []),
        ([*STEPS, *STEPS[:5]], [40, 41, 42, 43, 44]),
        ([], []),
        ([3.0], []),
    ],
)
def test_wrong_stamps_are_garbage_and_gaps_are_not(times, garbage, saved):
    samples, found, anew = sorted_lines(times, saved=saved)
    assert sorted(found) == garbage
    assert anew == 0
    assert all(time == times[line] for line, time in samples.items())


@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.parametrize("begin", [0.0, 7.0, -1e6])
def test_a_clock_that_begins_anew_loses_nothing(begin, saved):
    times = [*STEPS, *(t + begin for t in STEPS), *(t + begin for t in STEPS)]
    samples, garbage, anew = sorted_lines(times, saved=saved)
    assert garbage == []
    assert anew == 2
    assert list(samples.values()) == pytest.approx(range(120))


def test_a_wrong_stamp_while_the_clock_begins_anew():
    times = [*STEPS, *replaced(_5=6e7, _9=-3.0)]
    samples, garbage, anew = sorted_lines(times)
    assert anew == 1
    # those before it do not go on evenly
    assert 45 in garbage
    assert 49 in garbage
    assert samples[79] - samples[60] == pytest.approx(19.0)
    assert len(garbage) <= 10


def test_fewer_lines_than_tell_are_no_new_beginning():
    _, garbage, anew = sorted_lines([*STEPS, *STEPS[: EVEN - 1], 40.0])
    assert (garbage, anew) == (list(range(40, 40 + EVEN - 1)), 0)
