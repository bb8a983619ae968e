"""What a log looks like: rates, jitter, gaps, ranges, channels that are stuck or saturated."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from mechid.data.log import Channel, Log
from mechid.data.runs import GAP, is_even, runs, typical_step

STUCK = 0.1
"""of its samples: what a channel may hold one value in a row before it is remarked"""
SATURATED = 0.02
"""of its samples: what may lie exactly at the largest or smallest value before it is remarked"""
_FEWEST = 50
"""samples before either is remarked"""


@dataclass(frozen=True)
class Gap:
    """A stretch without samples."""

    start: float
    """s, of the last sample before it; of the first time stamp if there is none"""
    end: float
    """s, of the first sample after it; of the last time stamp if there is none"""

    @property
    def duration(self) -> float:
        """s"""
        return self.end - self.start


@dataclass(frozen=True)
class Timing:
    """How a channel is sampled."""

    rate: float
    """Hz, mean outside gaps; NaN for a single sample"""
    jitter: float
    """standard deviation of steps outside gaps, divided by the median step"""
    gaps: tuple[Gap, ...]
    """stretches of missing samples or time stamps"""
    uniform: bool
    """whether time stamps are equidistant throughout, so that filters apply"""


def timing(channel: Channel) -> Timing:
    """Rate, jitter and gaps of a channel."""
    steps = np.diff(channel.time)
    gaps = _gaps(channel)
    if not len(steps):
        return Timing(np.nan, np.nan, gaps, False)
    usual = steps[steps <= GAP * typical_step(channel.time)]
    jitter = float(np.std(usual) / np.median(steps))
    return Timing(1.0 / float(np.mean(usual)), jitter, gaps, is_even(channel.time))


def gaps(log: Log) -> dict[str, tuple[Gap, ...]]:
    """The gaps of each channel that has any."""
    found = {name: _gaps(channel) for name, channel in log.channels.items()}
    return {name: some for name, some in found.items() if some}


def _gaps(channel: Channel) -> tuple[Gap, ...]:
    time = channel.time
    found = runs(time, channel.values)
    if not found:
        return (Gap(float(time[0]), float(time[-1])),)
    first, last = int(found[0][0]), int(found[-1][-1])
    inner = [(a[-1], b[0]) for a, b in itertools.pairwise(found)]
    before = [(0, first)] if first > 0 else []
    after = [(last, len(time) - 1)] if last < len(time) - 1 else []
    return tuple(Gap(float(time[i]), float(time[j])) for i, j in (*before, *inner, *after))


def remarks(channel: Channel) -> tuple[str, ...]:
    """Phrases on what is odd about a channel: constant, stuck for long, or often at its limits."""
    values = channel.values[~channel.missing]
    if not len(values):
        return ("all missing",)
    low, high = float(values.min()), float(values.max())
    if low == high:
        return ("constant",) if len(values) > 1 else ()
    told = []
    starts = np.flatnonzero(np.concatenate([[True], np.diff(values) != 0.0]))
    lengths = np.diff(np.append(starts, len(values)))
    longest = int(np.argmax(lengths))
    if lengths[longest] >= max(_FEWEST, STUCK * len(values)):
        time = channel.time[~channel.missing]
        first, last = starts[longest], starts[longest] + lengths[longest] - 1
        told.append(f"{values[first]:.4g} from {time[first]:.4g} to {time[last]:.4g} s")
    for what, limit in (("largest", high), ("smallest", low)):
        # a limit is met again and again; a stretch of standing still is met once
        count, times = int(np.sum(values == limit)), int(np.sum(values[starts] == limit))
        if count >= max(_FEWEST, SATURATED * len(values)) and times > 1:
            told.append(f"at its {what} in {100.0 * count / len(values):.0f} % of the samples")
    return tuple(told)


# The table


def describe(log: Log) -> str:
    """A table of the channels of a log, and its notes."""
    head = (
        "channel",
        "unit",
        "samples",
        "rate",
        "jitter",
        "missing",
        "gaps",
        "smallest",
        "largest",
        "remarks",
    )
    rows = [head, *(_row(name, channel) for name, channel in log.channels.items())]
    count = f"{len(log)} channel{'s' if len(log) > 1 else ''}"
    title = f"Log '{log.name}': {count}, {log.start:.6g} to {log.end:.6g} s"
    return "\n".join([title, *_aligned(rows), *(f"- {note}" for note in log.notes)])


def _row(name: str, channel: Channel) -> tuple[str, ...]:
    sampled = timing(channel)
    known = channel.values[~channel.missing]
    return (
        name,
        channel.unit,
        str(len(channel)),
        "" if np.isnan(sampled.rate) else f"{sampled.rate:.5g} Hz",
        "" if np.isnan(sampled.jitter) else _percent(sampled.jitter),
        str(int(channel.missing.sum()) or ""),
        str(len(sampled.gaps) or ""),
        f"{known.min():.4g}" if len(known) else "",
        f"{known.max():.4g}" if len(known) else "",
        "; ".join(remarks(channel)),
    )


def _percent(part: float) -> str:
    return f"{100.0 * part:.2g} %" if part > 1e-5 else "0 %"


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Names, units and remarks to the left, numbers to the right; columns without anything are left out."""
    kept = [i for i in range(len(rows[0])) if any(row[i] for row in rows[1:])]
    widths = {i: max(len(row[i]) for row in rows) for i in kept}
    left = {0, 1, len(rows[0]) - 1}
    for row in rows:
        cells = (row[i].ljust(widths[i]) if i in left else row[i].rjust(widths[i]) for i in kept)
        yield "  ".join(cells).rstrip()
