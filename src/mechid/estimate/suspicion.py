"""What looks broken about the logs of a fit, in sentences: before it, from the channels; after it, from residuals.

Logs are fitted as they are. A sentence names the channel, the times and the method of `Log` that mends it, which is
also a key of [[log]] in a study file. What cannot tell anything is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from mechid.data.faults import (
    THRESHOLD,
    WINDOW,
    Stuck,
    clear_spikes,
    clipped,
    constant,
    dropouts,
    long_gaps,
    stuck,
    within,
)
from mechid.data.log import Channel
from mechid.dynamics.sensors import JointPosition, JointVelocity
from mechid.errors import MechidError
from mechid.estimate.experiment import Experiment
from mechid.estimate.fit import Compared

LISTED = 5
"""times that are still named one by one"""
GOES_ON = 0.5
"""of its usual speed: what another channel must have for it to move on"""
OPPOSED = -0.8
"""correlation of a channel with the rate of another from which it is minus that rate"""
OUTLYING = 8.0
"""standard deviations, by the median, from which a residual is an outlier"""
FEW = 0.01
"""of the samples: outliers at most"""
MOST_OF = 0.5
"""of a channel's squares: what outliers must carry to be told"""


def refuse_stillness(experiment: Experiment, start: float, end: float) -> None:
    """Refuse sensors that show one value throughout while an input moves."""
    measured, put_in = _channels(experiment, start, end)
    moving = [n for n, c in put_in.items() if not constant(c)]
    if moving and measured and all(constant(c) for c in measured.values()):
        held = ", ".join(f"'{n}' ({_value(c.values[~c.missing][0], c)})" for n, c in measured.items())
        raise MechidError(
            f"Nothing that experiment '{experiment.name}' measures moves, though its input '{moving[0]}' does: "
            f"{held} {'is' if len(measured) == 1 else 'are'} constant throughout; a stuck sensor tells nothing."
        )


def before(experiment: Experiment, start: float, end: float) -> tuple[str, ...]:
    """What looks broken about the channels of an experiment between two times, s; looked for once."""
    known = _TOLD.setdefault(experiment, {})
    if (start, end) not in known:
        known[start, end] = _looked(experiment, start, end)
    return known[start, end]


_TOLD: WeakKeyDictionary[Experiment, dict[tuple[float, float], tuple[str, ...]]] = WeakKeyDictionary()


def _looked(experiment: Experiment, start: float, end: float) -> tuple[str, ...]:
    measured, put_in = _channels(experiment, start, end)
    told = _gap_notes(experiment.name, measured)
    for name, channel in {**measured, **put_in}.items():
        told += _spike_notes(experiment.name, name, channel)
    for name, channel in measured.items():
        others = {n: c for n, c in {**measured, **put_in}.items() if n != name}
        told += _stuck_notes(experiment.name, name, channel, others)
        told += _dropout_notes(experiment.name, name, channel)
    told += _still_notes(experiment.name, measured)
    for name, channel in put_in.items():
        told += _clip_notes(experiment.name, name, channel)
        told += _held_input_notes(experiment.name, name, channel, measured)
    return tuple(told + _rate_notes(experiment, measured))


def outliers(compared: Sequence[Compared], spiked: Sequence[str] = ()) -> tuple[str, ...]:
    """Channels of whose cost a few single samples carry most; not those of which `spiked` speaks already."""
    told = []
    for c in compared:
        who = _who(c.experiment, c.channel)
        there = np.flatnonzero(np.isfinite(c.residual))
        r = c.residual[there]
        if len(r) < 1.0 / FEW or any(note.startswith(who) and " spike" in note for note in spiked):
            continue
        away = np.abs(r - np.median(r))
        # noise that is known says more than residuals that states follow
        far = away > OUTLYING * max(1.4826 * float(np.median(away)), 0.0 if c.estimated else c.std)
        far &= np.abs(r) > 3.0 * c.std
        share = float(np.sum(r[far] ** 2) / max(float(np.sum(r**2)), 1e-300))
        # a stretch of large residuals is something that the model lacks
        alone = far & ~(np.roll(far, 1) & np.roll(far, -1))
        if 0 < far.sum() <= FEW * len(r) and np.array_equal(far, alone) and share >= MOST_OF:
            times = c.time[there[far]]
            told.append(
                f"{who}: {_counted(len(times), 'sample')}, at {_times(times)}, carr"
                f"{'ies' if len(times) == 1 else 'y'} {100 * share:.0f} % of its squared residuals: an outlier "
                f"pulls all parameters. {_without(c.channel, times[0], times[0])} takes one out."
            )
    return tuple(told)


# Before


def _channels(
    experiment: Experiment, start: float, end: float
) -> tuple[dict[str, Channel], dict[str, Channel]]:
    """What was measured and what was put in between two times."""

    def present(names: Iterable[str]) -> dict[str, Channel]:
        found = {n: within(experiment.log[n], start, end) for n in dict.fromkeys(names)}
        return {n: c for n, c in found.items() if c is not None}

    put_in = (c for c in experiment.inputs.values() if isinstance(c, str))
    return present(c for m in experiment.measured for c in m.channels), present(put_in)


def _gap_notes(experiment: str, measured: dict[str, Channel]) -> list[str]:
    """One sentence for channels that have their gaps in common."""
    found: dict[tuple[tuple[float, float], ...], list[str]] = {}
    for name, channel in measured.items():
        gaps = tuple((g.start, g.end) for g in long_gaps(channel))
        if gaps:
            found.setdefault(gaps, []).append(name)
    told = []
    for gaps, names in found.items():
        longest = max(gaps, key=lambda g: g[1] - g[0])
        span = f"from {_time(longest[0])} to {_time(longest[1])} s"
        total = sum(b - a for a, b in gaps)
        what = (
            f"no samples {span}"
            if len(gaps) == 1
            else f"{len(gaps)} gaps, {total:.3g} s in all, the longest {span}"
        )
        have = "has" if len(names) == 1 else "have"
        told.append(f"{_who(experiment, *names)} {have} {what}.")
    if told:
        told[-1] += " What is missing is passed over: it costs nothing and tells nothing."
    return told


def _spike_notes(experiment: str, name: str, channel: Channel) -> list[str]:
    found = clear_spikes(channel)
    if found is None:
        return []
    count, size = len(found.times), _value(found.largest, channel)
    what = f"a spike of {size} at {_times(found.times)}"
    if count > 1:
        what = f"{count} spikes, at {_times(found.times)}, the largest of {size} at {_time(found.at)} s"
    them = "it" if count == 1 else "them"
    if found.filter is None:
        mend = f"{_without(name, found.at, found.at)} takes {'it' if count == 1 else 'one'} out."
    else:
        options = (
            "" if found.filter == (THRESHOLD, WINDOW) else ", threshold={:g}, window={}".format(*found.filter)
        )
        mend = f"Log.despiked('{name}'{options}) takes {them} out (despike in a study file)."
    return [f"{_who(experiment, name)} has {what}. {mend}"]


def _stuck_notes(experiment: str, name: str, channel: Channel, others: dict[str, Channel]) -> list[str]:
    told, others = [], {n: c for n, c in others.items() if not constant(c)}
    for s in stuck(channel):
        moving = [n for n, c in others.items() if _goes_on(c, s)]
        # all stood still, or there is nothing else to tell whether the machine did
        if not moving and (others or s.ends):
            continue
        until = f"from {_time(s.start)} s on" if s.ends else f"from {_time(s.start)} to {_time(s.end)} s"
        moves = "moved right before" if s.ends else "moves right before and after"
        meanwhile = f" and '{moving[0]}' goes on" if moving else ""
        told.append(
            f"{_who(experiment, name)} stands at {_value(s.value, channel)} {until}, though it {moves}{meanwhile}:"
            f" a sensor that is stuck? {_without(name, s.start, s.end)} takes these samples out."
        )
    return told


def _dropout_notes(experiment: str, name: str, channel: Channel) -> list[str]:
    """One sentence for stretches in which a sensor dropped out."""
    found = dropouts(channel)
    if not found:
        return []
    first = found[0]
    span = f"{_time(first.start)} to {_time(first.end)} s"
    what = f"drops to {_value(first.value, channel)} from {span}, and comes back at once"
    if len(found) > 1:
        what = f"drops out {len(found)} times, first to {_value(first.value, channel)} from {span}"
    them = "these samples" if len(found) == 1 else "the first"
    return [f"{_who(experiment, name)} {what}. {_without(name, first.start, first.end)} takes {them} out."]


def _held_input_notes(
    experiment: str, name: str, channel: Channel, measured: dict[str, Channel]
) -> list[str]:
    """An input that stands while what it moves goes on; where it stands at a limit that has been told."""
    limits = [c.limit for c in clipped(channel)]
    told = []
    for s in stuck(channel):
        moving = [n for n, c in measured.items() if _goes_on(c, s)]
        # a drive that was switched off, or ends, may stand at anything
        if s.ends or s.value in limits or not moving:
            continue
        told.append(
            f"{_who(experiment, name)} stands at {_value(s.value, channel)} from {_time(s.start)} to "
            f"{_time(s.end)} s, though it moves right before and after and '{moving[0]}' goes on: an input that "
            "was not logged there? What acted is not known; a span without it leaves it out."
        )
    return told


def _still_notes(experiment: str, measured: dict[str, Channel]) -> list[str]:
    """One sentence for channels that show one value throughout while another moves."""
    still = [n for n, c in measured.items() if constant(c)]
    moving = [n for n in measured if n not in still]
    if not still or not moving:
        return []
    values = ", ".join(_value(measured[n].values[~measured[n].missing][0], measured[n]) for n in still)
    one = len(still) == 1
    return [
        f"{_who(experiment, *still)} {'shows one value' if one else 'show one value each'} throughout, {values}, "
        f"while '{moving[0]}' moves: {'a joint' if one else 'joints'} at rest, or stuck? What is stuck should not "
        "be among what is measured."
    ]


def _goes_on(channel: Channel, s: Stuck) -> bool:
    """Whether a channel moves from one time to another about as much as elsewhere."""
    good = ~channel.missing
    time, x = channel.time[good], channel.values[good]
    inside = (time >= s.start) & (time <= s.end)
    if inside.sum() < 3 or not np.ptp(x) > 0.0:
        return False
    rate = np.abs(np.diff(x)) / np.diff(time)
    usual = float(np.sqrt(np.mean(rate**2)))
    now = rate[inside[1:] & inside[:-1]]
    return bool(len(now) and np.sqrt(np.mean(now**2)) >= GOES_ON * usual)


def _clip_notes(experiment: str, name: str, channel: Channel) -> list[str]:
    found = clipped(channel)
    if not found:
        return []
    limits = " and ".join(_value(f.limit, channel) for f in found)
    shares = " and ".join(f"{100 * f.share:.2g} %" for f in found)
    return [
        f"{_who(experiment, name)} is cut off at {limits} ({shares} of the samples): an input that saturates. "
        "Where the log does not hold what came out of the amplifier, what acted may differ there, and the "
        "parameters make up for it."
    ]


def _rate_notes(experiment: Experiment, measured: dict[str, Channel]) -> list[str]:
    """Rates that have the opposite sign of the change of their coordinate."""
    places, rates = _read(experiment, JointPosition), _read(experiment, JointVelocity)
    told = []
    for joint, rate in rates.items():
        place = places.get(joint)
        if place not in measured or rate not in measured:
            continue
        found = _rate_correlation(measured[place], measured[rate])
        if found < OPPOSED:
            told.append(
                f"{_who(experiment.name, rate)} is minus the rate of '{place}' (correlation {-found:.2f}): the "
                f"sign of one of them is swapped. Log.scaled('{rate}', -1) or Log.scaled('{place}', -1) turns it "
                "(scale in a study file)."
            )
    return told


def _read(experiment: Experiment, kind: type[Any]) -> dict[int, str]:
    """The channel of each joint coordinate that a kind of sensor shows."""
    found = {}
    for m in experiment.measured:
        sensor: Any = m.sensor
        if isinstance(sensor, kind):
            found |= {int(i): c for i, c in zip(np.atleast_1d(sensor.index), m.channels, strict=False)}
    return found


def _rate_correlation(place: Channel, rate: Channel) -> float:
    """Correlation of a channel with the slope of another over some samples; NaN where there are too few."""
    good, there = ~place.missing, ~rate.missing
    t, x = place.time[good], place.values[good]
    if len(t) < 20 or there.sum() < 20:
        return np.nan
    half = 2
    slope = (x[2 * half :] - x[: -2 * half]) / (t[2 * half :] - t[: -2 * half])
    seen = np.interp(t[half:-half], rate.time[there], rate.values[there])
    # an angle that is wrapped has jumps
    calm = np.abs(slope - np.median(slope)) <= 10.0 * np.median(np.abs(slope - np.median(slope))) + 1e-300
    if calm.sum() < 20 or not np.ptp(slope[calm]) > 0.0 or not np.ptp(seen[calm]) > 0.0:
        return np.nan
    return float(np.corrcoef(slope[calm], seen[calm])[0, 1])


# Words


def _who(experiment: str, *channels: str) -> str:
    names = [f"'{c}'" for c in channels]
    if len(names) == 1:
        return f"Channel {names[0]} of experiment '{experiment}'"
    return f"Channels {', '.join(names[:-1])} and {names[-1]} of experiment '{experiment}'"


def _without(name: str, start: float, end: float) -> str:
    return f"Log.without('{name}', {_time(start)}, {_time(end)}) (without in a study file)"


def _value(x: float, channel: Channel) -> str:
    return f"{x:.4g} {channel.unit}".rstrip().replace("-", "−", 1)


def _time(t: float) -> str:
    return f"{t:.6g}"


def _times(times: np.ndarray) -> str:
    shown = ", ".join(_time(t) for t in times[:LISTED])
    return f"{shown}{', …' if len(times) > LISTED else ''} s"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
