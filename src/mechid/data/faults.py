"""What is broken about a channel, seen from its samples alone: gaps, spikes, values that are stuck or clipped.

A doubtful case is no fault: an encoder's steps, a machine at rest, a turning point, a square wave are none.

A smooth signal that comes to rest slows down first. One that runs on at its speed up to a sample and then holds one
value exactly was cut off there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mechid.data.filters import spikes
from mechid.data.inspect import Gap, timing
from mechid.data.log import Channel

LONG = 5.0
"""usual steps from sample to sample before a gap is worth a word"""
COMMON = 0.02
"""of the samples: what happens more often is how a channel is, not a fault of it"""
THRESHOLD, WINDOW = 5.0, 11
"""of the Hampel filter, as `Log.despiked` has them"""
FILTERS = ((THRESHOLD, WINDOW), (5.0, 7), (5.0, 5), (3.0, 5))
"""what is tried to take spikes out, the usual one first"""
BRIEF = 3
"""samples in a row that a spike may last"""
CLEAR = 4.0
"""how many times the sharpest bend elsewhere a spike stands out"""
RETURNS = 0.4
"""of a spike: by how much the samples before and after it may differ"""
HELD = 10
"""samples in a row, at least, for a value to be stuck"""
PART = 0.01
"""of a channel's samples, at least, for a value to be stuck"""
COUNTS = 5.0
"""smallest steps of a channel that it must move beside a held value for its speed to be known"""
BRISK = 0.3
"""of its usual speed: what a channel must have beside a held value"""
STEADY = 0.4
"""of the way beside a held value: what lies in the nearer half. 1/2 at constant speed, 1/4 when coming to rest"""
JUMP = 5.0
"""times the largest usual step from sample to sample"""
AROUND = 50
"""samples on either side of a held value, at least, by which the speed of a channel is known there"""
TURN = 0.02
"""of a full turn: how near to one a jump is that is an angle read within ±π"""
SLOWER = 4.0
"""times as long as other values are held in a row"""
MOST = 5
"""stretches that are stuck; what happens more often is how a channel is"""
OFTEN, VISITS = 0.02, 2
"""of the samples that lie at a limit before it counts as one, and how often it is met"""
LASTING = 0.1
"""of a channel's samples: a value that is held for long"""
PILED, NEAR = 5.0, 0.3
"""times as many samples as have any other value within this part of the range"""


@dataclass(frozen=True)
class Spikes:
    """Samples far from those before and after them."""

    times: np.ndarray
    """s"""
    largest: float
    """how far the largest is from its neighbours, in the channel's unit"""
    at: float
    """s, of the largest"""
    filter: tuple[float, int] | None
    """threshold and window of a `Log.despiked` that takes all of them out and hardly anything else"""


@dataclass(frozen=True)
class Stuck:
    """A value that was held while the quantity went on."""

    value: float
    start: float
    """s"""
    end: float
    """s"""
    ends: bool
    """it was never left: the channel ends with it"""


@dataclass(frozen=True)
class Clipped:
    """A limit that cuts a channel off."""

    limit: float
    share: float
    """of the samples"""


def within(channel: Channel, start: float, end: float) -> Channel | None:
    """The samples of a span, s; None where there is none that is not missing."""
    slack = 1e-9 * max(abs(start), abs(end), 1.0)
    inside = (channel.time >= start - slack) & (channel.time <= end + slack)
    if not np.isfinite(channel.values[inside]).any():
        return None
    return Channel(channel.time[inside], channel.values[inside], channel.unit)


def long_gaps(channel: Channel) -> tuple[Gap, ...]:
    """Stretches without samples that last several usual steps; none where a channel is sampled in bursts."""
    if len(channel) < 3:
        return ()
    step = float(np.median(np.diff(channel.time)))
    found = tuple(g for g in timing(channel).gaps if g.duration > LONG * step * (1.0 + 1e-9))
    return found if len(found) <= max(1.0, COMMON * len(channel)) else ()


def clear_spikes(channel: Channel) -> Spikes | None:
    """Spikes that nobody would take for motion: few, brief, back where they came from, sharper than all else."""
    time, x = _there(channel)
    if len(x) < 2 * WINDOW:
        return None
    candidate = _off_line(x)
    beside = np.convolve(candidate, np.ones(2 * BRIEF + 1), "same") > 0
    bends = np.abs(x[1:-1] - (x[:-2] + x[2:]) / 2.0)
    calm = bends[~beside[1:-1]]
    if not candidate.any() or not len(calm):
        return None
    usual = max(float(calm.max()), _resolution(x))
    found, heights = [], []
    for first, last in _stretches(candidate):
        if last - first >= BRIEF or first == 0 or last == len(x) - 1:
            continue
        before, after = x[first - 1], x[last + 1]
        height = np.abs(x[first : last + 1] - (before + after) / 2.0)
        if height.min() > CLEAR * usual and abs(after - before) <= RETURNS * height.max():
            found += range(first, last + 1)
            heights += height.tolist()
    if not found or len(found) > max(1.0, COMMON * len(x)):
        return None
    worst = int(np.argmax(heights))
    return Spikes(time[found], float(heights[worst]), float(time[found[worst]]), _filter(time, x, found))


def _filter(time: np.ndarray, x: np.ndarray, found: list[int]) -> tuple[float, int] | None:
    for threshold, window in FILTERS:
        taken = spikes(time, x, threshold, window)
        if taken[found].all() and taken.sum() <= len(found) + COMMON * len(x) / 2.0:
            return threshold, window
    return None


def stuck(channel: Channel) -> tuple[Stuck, ...]:
    """Stretches of one value that were entered and left at full speed, or by a jump; or entered so and never left.

    Whether something else moved meanwhile is for the caller to judge where the channel ends with the stretch.
    """
    time, x = _there(channel)
    held = _held(x)
    if not held or len(x) < 2 * HELD:
        return ()
    # a sensor that is slower than its log holds every value for a while
    others = np.sort([b - a + 1 for a, b in held])[:-1]
    least = max(HELD, PART * len(x), SLOWER * (float(np.quantile(others, 0.9)) if len(others) else 1.0))
    pace, found = _pace(x), []
    for first, last in held:
        if last - first + 1 < least:
            continue
        # a chirp is slow at first: what is a jump there is none where it is fast
        around = max(last - first + 1, AROUND)
        near = _pace(x[max(first - around, 0) : first], x[last + 1 : last + 1 + around])
        if _sticks(x, first, last, pace) or _sticks(x, first, last, near, only_jumps=True):
            ends = last == len(x) - 1
            found.append(Stuck(float(x[first]), float(time[first]), float(time[last]), ends))
    return tuple(found) if len(found) <= MOST else ()


def dropouts(channel: Channel) -> tuple[Stuck, ...]:
    """Brief stretches of one value far from what was there before and is there after: left out by a sensor.

    Longer than a spike, too short for `stuck`; few of them, since what happens often is how a channel is.
    """
    time, x = _there(channel)
    if len(x) < 2 * HELD:
        return ()
    pace, found = _pace(x), []
    for first, last in _held(x, BRIEF + 1):
        if last - first + 1 >= max(HELD, PART * len(x)) or first == 0 or last == len(x) - 1:
            continue
        before, after = x[first - 1], x[last + 1]
        height = min(abs(x[first] - before), abs(x[first] - after))
        back = abs(after - before) <= RETURNS * height
        if back and _jumps(x, first, -1, pace) and _jumps(x, last, 1, pace):
            found.append(Stuck(float(x[first]), float(time[first]), float(time[last]), False))
    return tuple(found) if len(found) <= MOST else ()


def noise(channel: Channel) -> float:
    """What changes from sample to sample and is no motion, at least a step of the sensor; 0 for few samples."""
    _, x = _there(channel)
    if len(x) <= 2 * HELD:
        return 0.0
    # third differences of white noise of std 1 have a std of √20
    return max(float(np.median(np.abs(np.diff(x, 3)))) / (0.6745 * np.sqrt(20.0)), _resolution(x))


def clipped(channel: Channel) -> tuple[Clipped, ...]:
    """Limits, largest or smallest, at which values pile up that come from in between, again and again.

    Once is enough where the limit is met and left at full speed.
    """
    _, x = _there(channel)
    found = []
    for limit in (x.max(), x.min()) if len(x) > 2 * HELD and x.max() > x.min() else ():
        count = int(np.sum(x == limit))
        runs = [(a, b) for a, b in _held(x) if x[a] == limit]
        # a square wave comes from another level, a pulse from rest: neither is on its way anywhere
        varied = [(a, b) for a, b in runs if _varied(x, a, -1) or _varied(x, b, 1)]
        near = x[(np.abs(x - limit) <= NEAR * np.ptp(x)) & (x != limit)]
        piled = PILED * (int(np.unique(near, return_counts=True)[1].max()) if len(near) else 1)
        enough = count >= max(OFTEN * len(x), HELD, piled) and len(varied) >= max(VISITS, 0.5 * len(runs))
        if limit != 0.0 and (enough or any(s.value == limit for s in stuck(channel))):
            found.append(Clipped(float(limit), count / len(x)))
    return tuple(found)


def constant(channel: Channel) -> bool:
    """Whether a channel of some length has one value throughout."""
    _, x = _there(channel)
    return len(x) >= HELD and float(x.max()) == float(x.min())


def longest_hold(channel: Channel) -> Stuck | None:
    """The one stretch of one value that lasts for long, and far longer than the others."""
    time, x = _there(channel)
    held = sorted(_held(x), key=lambda ends: ends[0] - ends[1])
    if not held:
        return None
    first, last = held[0]
    next_longest = held[1][1] - held[1][0] + 1 if len(held) > 1 else 1
    if last - first + 1 < max(HELD, LASTING * len(x), SLOWER * next_longest):
        return None
    return Stuck(float(x[first]), float(time[first]), float(time[last]), last == len(x) - 1)


# Parts


def _there(channel: Channel) -> tuple[np.ndarray, np.ndarray]:
    good = ~channel.missing
    return channel.time[good], channel.values[good]


def _stretches(mask: np.ndarray) -> list[tuple[int, int]]:
    """First and last place of each stretch that is True."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], mask.astype(int), [0]])))
    return [(int(a), int(b) - 1) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def _held(x: np.ndarray, least: int = 2) -> list[tuple[int, int]]:
    """First and last place of each stretch of one value."""
    return [(a, b + 1) for a, b in _stretches(np.diff(x) == 0.0) if b - a + 2 >= least]


def _resolution(x: np.ndarray) -> float:
    """The smallest step of a channel that is not rounding."""
    steps = np.abs(np.diff(x))
    steps = steps[steps > 1e-9 * max(float(np.ptp(x)), 1e-300)] if len(x) else steps
    return float(np.quantile(steps, 0.05)) if len(steps) else 0.0


def _off_line(x: np.ndarray) -> np.ndarray:
    """Which samples a Hampel filter finds that follows the slope of the samples around each."""
    around = np.lib.stride_tricks.sliding_window_view(np.pad(x, WINDOW // 2, mode="reflect"), WINDOW)
    slope = np.median(np.diff(around, axis=1), axis=1)
    flat = around - slope[:, None] * (np.arange(WINDOW) - WINDOW // 2)
    middle = np.median(flat, axis=1)
    usual = 1.4826 * np.median(np.abs(flat - middle[:, None]), axis=1)
    return np.abs(x - middle) > THRESHOLD * np.maximum(usual, _resolution(x))


# At the edges of a held value


@dataclass(frozen=True)
class _Pace:
    """How a channel moves, in its unit and from sample to sample."""

    least: float
    """its smallest step, or its noise where that is larger"""
    usual: float
    """root mean square of its steps, jumps left out"""
    most: float
    """of nearly all its steps"""

    @property
    def window(self) -> int:
        """Samples in which it usually moves so far that its speed is known."""
        return int(np.clip(np.ceil(2.0 * COUNTS * self.least / max(self.usual, 1e-300)), 4, 1000))


def _pace(*parts: np.ndarray) -> _Pace:
    """Of a channel, or of parts of it."""
    x = max(parts, key=len)
    steps = np.concatenate([np.abs(np.diff(part)) for part in parts])
    moving = steps[steps > 0.0]
    most = float(np.quantile(moving, 0.98)) if len(moving) else 0.0
    # second differences of white noise of std 1 have a std of √6
    both = [(np.diff(part[:-1]) != 0.0) & (np.diff(part[1:]) != 0.0) for part in parts if len(part) > 2]
    bends = [np.abs(np.diff(part, 2)) for part in parts if len(part) > 2]
    bends = np.concatenate([np.zeros(0), *(b[chosen] for b, chosen in zip(bends, both, strict=True))])
    noise = float(np.median(bends)) / (0.6745 * np.sqrt(6.0)) if len(bends) else 0.0
    usual = float(np.sqrt(np.mean(moving[moving <= most] ** 2))) if len(moving) else 0.0
    return _Pace(max(_resolution(x), noise), usual, most)


def _side(x: np.ndarray, at: int, way: int, count: int) -> np.ndarray:
    """Samples from the edge of a held stretch outwards; empty where there are too few."""
    side = x[max(at - count, 0) : at + 1][::-1] if way < 0 else x[at : at + count + 1]
    return side if len(side) == count + 1 else side[:0]


def _jumps(x: np.ndarray, at: int, way: int, pace: _Pace) -> bool:
    side = _side(x, at, way, 1)
    step = abs(side[1] - side[0]) if len(side) else 0.0
    turns = abs(step / (2.0 * np.pi) - 1.0) < TURN
    return bool(step > JUMP * max(pace.most, pace.least) and step > 0.0 and not turns)


def _moves(x: np.ndarray, at: int, way: int, pace: _Pace) -> bool:
    """Whether a channel moves beside a held value."""
    side = _side(x, at, way, pace.window)
    return len(side) > 0 and bool(abs(side[-1] - side[0]) >= COUNTS * pace.least)


def _cut(x: np.ndarray, at: int, way: int, pace: _Pace) -> bool:
    """Whether it moves there at speed and without slowing down."""
    side = _side(x, at, way, pace.window)
    if not len(side) or not _moves(x, at, way, pace):
        return False
    whole, near = abs(side[-1] - side[0]), abs(side[pace.window // 2] - side[0])
    return bool(near >= STEADY * whole and whole >= BRISK * pace.usual * pace.window)


def _sticks(x: np.ndarray, first: int, last: int, pace: _Pace, *, only_jumps: bool = False) -> bool:
    """Whether a held value was entered and left by a jump or at speed."""
    ends = last == len(x) - 1
    jumps = _jumps(x, first, -1, pace), not ends and _jumps(x, last, 1, pace)
    if abs(x[first]) <= pace.least:
        return all(jumps)  # a rate of nothing is rest, a channel that drops to nothing is not
    if any(jumps):
        sides = [(first, -1, jumps[0])] if ends else [(first, -1, jumps[0]), (last, 1, jumps[1])]
        return all(jump or _moves(x, at, way, pace) for at, way, jump in sides)
    return not only_jumps and _cut(x, first, -1, pace) and (ends or _cut(x, last, 1, pace))


def _varied(x: np.ndarray, at: int, way: int) -> bool:
    """Whether the samples beside a held value differ from each other."""
    side = _side(x, at, way, 4)
    return len(np.unique(side)) >= 3
