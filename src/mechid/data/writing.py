"""`write_log`: a log in a file that `read_log` reads back as it was: .csv for every program, .npz for NumPy.

Files appear whole or not at all. Notes are not written.
"""

from __future__ import annotations

import csv
import os
import zipfile

import numpy as np

from mechid.data.log import Log
from mechid.data.read_text import NOT_SAMPLED
from mechid.data.table import given_path
from mechid.data.timed import is_time
from mechid.data.units import with_unit
from mechid.errors import MechidError
from mechid.files import replacing

FORMATS = (".csv", ".npz")
_ROWS = 4096
"""rows that are put into words at a time"""


def write_log(log: Log, path: str | os.PathLike[str]) -> None:
    """Write a log. A .csv has one column of time, t [s], with the time stamps of all channels.

    In a .csv nan is a missing sample; an empty cell says that the channel has no time stamp there.
    """
    where = given_path(path)
    if where.suffix not in FORMATS:
        raise MechidError(f"'{where}' ends in '{where.suffix}'; valid: {', '.join(FORMATS)}.")
    for name in log.names:
        group, _, last = name.rpartition(".")
        if name == "t" or (where.suffix == ".npz" and group and is_time(last)):
            raise MechidError(
                f"A channel '{name}' cannot be written, for it would be read as time; rename it."
            )
    with replacing(where) as temporary:
        if where.suffix == ".npz":
            _write_npz(log, temporary)
        else:
            _write_csv(log, temporary)


def _write_csv(log: Log, path: str) -> None:
    channels = list(log.channels.values())
    times = channels[0].time
    shared = all(np.array_equal(c.time, times) for c in channels)
    if not shared:
        times = np.unique(np.concatenate([c.time for c in channels]))
    rows = [np.searchsorted(times, c.time) for c in channels]
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        if not shared:
            file.write(NOT_SAMPLED + "\n")
        heads = ["t [s]", *(with_unit(n, c.unit) for n, c in log.channels.items())]
        csv.writer(file, lineterminator="\n").writerow(heads)
        for first in range(0, len(times), _ROWS):
            last = min(first + _ROWS, len(times))
            columns = [list(map(repr, times[first:last].tolist()))]
            for channel, at in zip(channels, rows, strict=True):
                a, b = np.searchsorted(at, [first, last])
                words = [""] * (last - first)
                for row, value in zip((at[a:b] - first).tolist(), channel.values[a:b].tolist(), strict=True):
                    words[row] = repr(value)
                columns.append(words)
            file.write("\n".join(map(",".join, zip(*columns, strict=True))) + "\n")


def _write_npz(log: Log, path: str) -> None:
    """One array a channel; `t` is the time of the first and of those that share it, `name.t` that of another."""
    times = log[log.names[0]].time
    arrays = {"t [s]": times}
    for name, channel in log.channels.items():
        arrays[with_unit(name, channel.unit)] = channel.values
        if not np.array_equal(channel.time, times):
            arrays[f"{name}.t [s]"] = channel.time
    # np.savez takes no array called `file`
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, array, allow_pickle=False)
