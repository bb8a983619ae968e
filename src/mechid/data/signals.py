"""From a log to another log: parts of it, other times and units, filters, derivatives, gaps.

Functions that take *names work on those channels; on all of them where none is given. What loses or makes up
samples leaves a note in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import ArrayLike

from mechid.data import filters
from mechid.data.log import Channel, Log, channel_of, frozen
from mechid.data.runs import METHODS, linear, read_off
from mechid.data.units import rate_unit
from mechid.errors import MechidError, unknown
from mechid.model.geometry import finite, numeric

MOST = 1e8
"""times that a log is resampled at"""

# Parts and names


def selected(log: Log, *names: str) -> Log:
    """The log with these channels only, in this order."""
    return Log(log.name, {name: log[name] for name in names}, log.notes)


def renamed(log: Log, names: Mapping[str, str]) -> Log:
    """The log with channels called otherwise: {new: old}. The others keep their names."""
    new_of = {}
    for new, old in names.items():
        log[old]
        if old in new_of:
            raise MechidError(f"Channel '{old}' is renamed twice, to '{new_of[old]}' and '{new}'.")
        new_of[old] = new
    channels = {}
    for name, channel in log.channels.items():
        new = new_of.get(name, name)
        if new in channels:
            raise MechidError(f"There would be two channels '{new}'.")
        channels[new] = channel
    return Log(log.name, channels, log.notes)


def between(log: Log, start: float | None = None, end: float | None = None) -> Log:
    """The samples from `start` to `end` (s, both included; None: from the first, to the last)."""
    first = log.start if start is None else _number(start, "start")
    last = log.end if end is None else _number(end, "end")
    kept, notes = {}, []
    for name, channel in log.channels.items():
        a, b = np.searchsorted(channel.time, first, "left"), np.searchsorted(channel.time, last, "right")
        if a < b:
            kept[name] = Channel(channel.time[a:b], channel.values[a:b], channel.unit)
        else:
            notes.append(f"Channel '{name}' has no samples from {first:g} to {last:g} s and is left out.")
    if not kept:
        raise MechidError(
            f"Log '{log.name}' has no samples from {first:g} to {last:g} s;"
            f" it runs from {log.start:g} to {log.end:g} s."
        )
    return Log(log.name, kept, (*log.notes, *notes))


def with_channel(log: Log, name: str, time: ArrayLike, values: ArrayLike, unit: str = "") -> Log:
    """The log with one more channel, or another in place of one: values in `unit`, converted to SI."""
    stamps, numbers = numeric(time, f"The time of channel '{name}'"), numeric(values, f"Channel '{name}'")
    return _replaced(log, {name: channel_of(name, stamps, numbers, unit)})


# Times and values


def shifted(log: Log, seconds: float, *names: str) -> Log:
    """Channels later by some seconds (earlier, if negative): what takes out a known delay."""
    by = _number(seconds, "seconds")
    made = {n: Channel(c.time + by, c.values, c.unit) for n, c in _of(log, names).items()}
    return _replaced(log, made, f"Shifted by {by:g} s: {', '.join(made)}.")


def scaled(log: Log, name: str, factor: float, unit: str | None = None) -> Log:
    """A channel times a factor; `unit` is what the product is in (converted to SI), by default what it was."""
    channel = log[name]
    unit = channel.unit if unit is None else unit
    return _replaced(
        log, {name: channel_of(name, channel.time, channel.values * _number(factor, "factor"), unit)}
    )


def unwrapped(log: Log, *names: str, period: float = 2.0 * np.pi) -> Log:
    """Angles without jumps: full periods are added where two samples differ by more than half of one."""
    filters.positive(period, "period=", "the channel's unit")
    _named(names, "unwrapped")

    def unwrap(channel: Channel) -> np.ndarray:
        values, there = channel.values.copy(), ~channel.missing
        values[there] = np.unwrap(values[there], period=period)
        return values

    return _mapped(log, names, unwrap)


def wrapped(log: Log, *names: str, period: float = 2.0 * np.pi, center: float = 0.0) -> Log:
    """Angles within half a period of `center`: from center − period/2, included, to center + period/2."""
    filters.positive(period, "period=", "the channel's unit")
    lowest = _number(center, "center") - period / 2.0
    _named(names, "wrapped")

    def wrap(channel: Channel) -> np.ndarray:
        turned = np.mod(channel.values - lowest, period)
        # the remainder of a tiny negative number rounds to the period itself
        return np.where(turned >= period, 0.0, turned) + lowest

    return _mapped(log, names, wrap)


# Filters


def filtered(log: Log, *names: str, cutoff: float, order: int = 4) -> Log:
    """Channels through a Butterworth low-pass, forwards and backwards: no phase, half the gain at `cutoff` (Hz).

    Needs equidistant samples. Gaps stay gaps: each run between them is filtered by itself, and one too short for it
    becomes missing, which a note tells.
    """
    made, notes = {}, []
    for name, c in _of(log, names).items():
        values, told = filters.low_pass(f"Channel '{name}'", c.time, c.values, cutoff, order)
        made[name] = Channel(c.time, values, c.unit)
        notes += told
    return _replaced(
        log, made, f"Low-pass of {cutoff:g} Hz, order {order}, both ways: {', '.join(made)}.", *notes
    )


def derivative(
    log: Log,
    name: str,
    *,
    cutoff: float | None = None,
    window: float | None = None,
    order: int | None = None,
    into: str | None = None,
) -> Log:
    """The log with the time derivative of a channel, called `into`, by default name_rate. No phase.

    cutoff: Hz of the low-pass (of that order, 4 by default) before central differences.
    window: s over which a polynomial (of that degree, 3 by default) is fitted around each sample.
    With neither: central differences of the samples as they are; uneven time stamps are taken into account.
    """
    channel, what = log[name], f"Channel '{name}'"
    values, notes = channel.values, []
    if cutoff is not None and window is not None:
        raise MechidError("Either cutoff= or window= says how a derivative is smoothed, not both.")
    if order is not None and cutoff is None and window is None:
        raise MechidError("order= goes with cutoff= or window=.")
    if window is not None:
        rate, told = filters.local_polynomial(
            what, channel.time, values, window, 3 if order is None else order
        )
    else:
        if cutoff is not None:
            values, notes = filters.low_pass(
                what, channel.time, values, cutoff, 4 if order is None else order
            )
        rate, told = filters.central_differences(what, channel.time, values)
    made = channel_of(into or f"{name}_rate", channel.time, rate, rate_unit(channel.unit))
    return _replaced(log, {into or f"{name}_rate": made}, *notes, *told)


def despiked(log: Log, *names: str, threshold: float = 5.0, window: int = 11) -> Log:
    """Channels whose spikes are missing samples; a note says how many.

    A spike is further than `threshold` standard deviations from the median of the `window` samples around it.
    """
    made, notes = {}, []
    for name, c in _of(log, names).items():
        spikes = filters.spikes(c.time, c.values, threshold, window)
        made[name] = Channel(c.time, np.where(spikes, np.nan, c.values), c.unit)
        if spikes.any():
            notes.append(f"Channel '{name}': {_counted(int(spikes.sum()), 'spike')} taken as missing.")
    return _replaced(log, made, *notes)


# Gaps and other rates


def resampled(
    log: Log,
    *,
    rate: float | None = None,
    times: ArrayLike | None = None,
    method: str = "linear",
    longest_gap: float | None = None,
) -> Log:
    """All channels at the same times: `times` (s), or from the log's start on at `rate` (Hz).

    method: "linear", "cubic" (spline), "hold" (the last sample) or "mean" over the new step around each time,
    which also weakens what a lower rate would alias. Unwrap angles first.
    longest_gap: s between samples that is bridged; longer gaps are NaN, and so is what lies before the first or
    after the last sample. By default 1.75 steps of the channel, so that no sample is made up; np.inf bridges all.
    """
    if method not in METHODS:
        raise unknown("method", method, METHODS)
    if (rate is None) == (times is None):
        raise MechidError("resampled takes either rate= or times=.")
    if longest_gap is not None and longest_gap != np.inf:
        filters.positive(longest_gap, "longest_gap=", "s")
    if rate is not None:
        filters.positive(rate, "rate=", "Hz")
        if log.duration * rate > MOST:
            raise MechidError(
                f"Resampling from {log.start:g} to {log.end:g} s at {rate:g} Hz gives more than {MOST:g} times."
            )
        new = log.start + np.arange(int(log.duration * rate * (1.0 + 1e-9) + 1e-9) + 1) / rate
    else:
        new = numeric(times, "times=")  # pyright: ignore[reportArgumentType]
        new = finite(new, new.shape, "times=")
        if new.ndim != 1 or not len(new) or np.any(np.diff(new) <= 0.0):
            raise MechidError("times= must be increasing times of shape (n,), in s.")
    new = frozen(new)
    made = {
        name: Channel(new, read_off(c.time, c.values, new, METHODS[method], longest_gap), c.unit)
        for name, c in log.channels.items()
    }
    how = f"at {rate:g} Hz" if rate is not None else f"at {len(new)} given times"
    return _replaced(log, made, f"Resampled {how} ({method}).")


def filled(log: Log, *names: str, longest_gap: float) -> Log:
    """Channels whose missing samples are interpolated in straight lines, where the gap is at most that long (s)."""
    if longest_gap != np.inf:
        filters.positive(longest_gap, "longest_gap=", "s")
    made, notes = {}, []
    for name, c in _of(log, names).items():
        lines = read_off(c.time, c.values, c.time, linear, longest_gap)
        made[name] = Channel(c.time, np.where(c.missing, lines, c.values), c.unit)
        count = int(np.sum(c.missing) - np.sum(made[name].missing))
        if count:
            notes.append(f"Channel '{name}': {_counted(count, 'missing sample')} interpolated.")
    return _replaced(log, made, *notes)


def without(log: Log, name: str, start: float, end: float) -> Log:
    """A channel whose samples from `start` to `end` (s, both included) are missing."""
    channel, first, last = log[name], _number(start, "start"), _number(end, "end")
    inside = (channel.time >= first) & (channel.time <= last)
    if not inside.any():
        raise MechidError(
            f"Channel '{name}' has no samples from {first:g} to {last:g} s;"
            f" it runs from {channel.time[0]:g} to {channel.time[-1]:g} s."
        )
    made = Channel(channel.time, np.where(inside, np.nan, channel.values), channel.unit)
    return _replaced(log, {name: made}, f"Channel '{name}' is taken as missing from {first:g} to {last:g} s.")


def without_missing(log: Log, *names: str) -> Log:
    """Channels less their missing samples: each keeps the time stamps at which it was sampled."""
    made = {}
    for name, c in _of(log, names).items():
        if c.missing.all():
            raise MechidError(f"Channel '{name}' has no samples that are not missing.")
        made[name] = Channel(c.time[~c.missing], c.values[~c.missing], c.unit)
    return _replaced(log, made)


def _of(log: Log, names: tuple[str, ...]) -> dict[str, Channel]:
    return {name: log[name] for name in names or log.names}


def _mapped(log: Log, names: tuple[str, ...], function: Callable[[Channel], np.ndarray]) -> Log:
    return _replaced(log, {n: Channel(c.time, function(c), c.unit) for n, c in _of(log, names).items()})


def _replaced(log: Log, channels: Mapping[str, Channel], *notes: str) -> Log:
    return Log(log.name, {**log.channels, **channels}, (*log.notes, *notes))


def _named(names: tuple[str, ...], function: str) -> None:
    """Not every channel is an angle."""
    if not names:
        raise MechidError(f"{function} takes the names of the channels that are angles.")


def _number(value: float, what: str) -> float:
    return float(finite(value, (), f"{what}="))


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
