"""What a [[log]] of a study file changes about its channels before they are used.

In this order: shift, scale, without, despike, fill, filter; a filter would smear out what is to be left out.
"""

from __future__ import annotations

from mechid.data.faults import THRESHOLD, WINDOW
from mechid.data.log import Log
from mechid.errors import unknown
from mechid.jobs.entries import Entry


def mended(entry: Entry, log: Log) -> Log:
    """The log with all changes that its entry asks for."""
    for change in (_shifted, _scaled, _shortened, _despiked, _filled, _filtered):
        log = change(entry, log)
    return log


def _shifted(entry: Entry, log: Log) -> Log:
    for channel, e in entry["shift"].table().items() if "shift" in entry else ():
        named_channel(e, log, channel)
        with e.blamed():
            log = log.shifted(e.number(), channel)
    return log


def _scaled(entry: Entry, log: Log) -> Log:
    for channel, e in entry["scale"].table().items() if "scale" in entry else ():
        named_channel(e, log, channel)
        factor = e.number()
        if factor == 0.0:
            raise e.error(f"The scale of '{channel}' is 0, which leaves nothing of it.")
        with e.blamed():
            log = log.scaled(channel, factor)
    return log


def _shortened(entry: Entry, log: Log) -> Log:
    """Stretches of a channel left out: [from, to] in s, or a list of them."""
    for channel, e in entry["without"].table().items() if "without" in entry else ():
        named_channel(e, log, channel)
        several = isinstance(e.value, list) and any(isinstance(x, list) for x in e.value)
        for part in e.list() if several else [e]:
            first, last = part.numbers(2)
            if not first <= last:
                raise part.error(f"'{channel}' is to be left out from {first:g} to {last:g} s: backwards.")
            with part.blamed():
                log = log.without(channel, first, last)
    return log


def _despiked(entry: Entry, log: Log) -> Log:
    for e in entry["despike"].tables() if "despike" in entry else ():
        given = e.table(("channels", "threshold", "window"), needs=("channels",))
        names = named_channels(given["channels"], log)
        threshold = given["threshold"].number(above=0.0) if "threshold" in given else THRESHOLD
        window = given["window"].whole() if "window" in given else WINDOW
        with e.blamed():
            log = log.despiked(*names, threshold=threshold, window=window)
    return log


def _filled(entry: Entry, log: Log) -> Log:
    """Missing samples between others no further apart than the given seconds, in straight lines."""
    for channel, e in entry["fill"].table().items() if "fill" in entry else ():
        named_channel(e, log, channel)
        longest = e.number(above=0.0)
        with e.blamed():
            log = log.filled(channel, longest_gap=longest)
    return log


def _filtered(entry: Entry, log: Log) -> Log:
    for e in entry["filter"].tables() if "filter" in entry else ():
        given = e.table(("cutoff", "channels", "order"), needs=("cutoff",))
        names = named_channels(given["channels"], log) if "channels" in given else ()
        order = given["order"].whole() if "order" in given else 4
        cutoff = given["cutoff"].number(above=0.0)
        with e.blamed():
            log = log.filtered(*names, cutoff=cutoff, order=order)
    return log


def named_channels(entry: Entry, log: Log) -> list[str]:
    names = entry.texts()
    for i, name in enumerate(names):
        named_channel(entry[i] if isinstance(entry.value, list) else entry, log, name)
    return names


def named_channel(entry: Entry, log: Log, name: str) -> str:
    if name not in log:
        raise entry.error(unknown(f"channel (in log '{log.name}')", name, log.names))
    return name
