"""`Log`: what was measured. Named channels over time, in SI units; immutable, every method returns a new log.

    log = read_log("swing.csv").filtered("torque", cutoff=20.0).derivative("q1", window=0.1)
    print(log)                      # a table of channels: units, rates, gaps, ranges
    log["q1"].time, log["q1"].values

A channel has time stamps of its own, so that sensors of different rates stand in one log. A missing sample is NaN.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mechid.data.read_arrays import read_mat, read_npz
from mechid.data.read_text import read_text
from mechid.data.table import given_path
from mechid.data.timed import timed
from mechid.data.units import to_si
from mechid.errors import MechidError, unknown
from mechid.model.geometry import LARGEST, numeric


@dataclass(frozen=True, eq=False)
class Channel:
    """One measured quantity over time."""

    time: np.ndarray
    """(n,) s, strictly increasing"""
    values: np.ndarray
    """(n,) in SI units; NaN = missing sample"""
    unit: str = ""
    """SI unit, "" where unknown"""

    def __post_init__(self) -> None:
        check_channel("A channel", self.time, self.values)
        factor, si = to_si(self.unit)
        if factor != 1.0:
            raise MechidError(
                f"A channel's unit must be SI, not '{self.unit}'; log_of converts, and scaled does."
            )
        for name in ("time", "values"):
            object.__setattr__(self, name, frozen(getattr(self, name)))
        object.__setattr__(self, "unit", si)

    def __len__(self) -> int:
        return len(self.time)

    def __repr__(self) -> str:
        span = f"{self.time[0]:.6g} to {self.time[-1]:.6g} s"
        return f"Channel({len(self)} samples, {span}, unit '{self.unit}')"

    @property
    def missing(self) -> np.ndarray:
        """(n,) True where a sample is missing"""
        return np.isnan(self.values)


@dataclass(frozen=True, eq=False, repr=False)
class Log:
    """Time-stamped named channels."""

    name: str
    channels: Mapping[str, Channel]
    notes: tuple[str, ...] = ()
    """sentences on what was noticed while reading and done since"""

    def __post_init__(self) -> None:
        if not self.channels:
            raise MechidError(f"Log '{self.name}' has no channels.")
        for name in self.channels:
            if not isinstance(name, str) or not name or not name.isprintable() or name != name.strip():
                raise MechidError(
                    f"A channel's name must be printable text without spaces around it, not {name!r}."
                )
        object.__setattr__(self, "channels", MappingProxyType(dict(self.channels)))
        object.__setattr__(self, "notes", tuple(self.notes))

    def __reduce__(self) -> tuple[Any, ...]:
        return Log, (self.name, dict(self.channels), self.notes)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.channels)

    def __getitem__(self, name: str) -> Channel:
        if name not in self.channels:
            raise unknown(f"channel (in log '{self.name}')", name, self.names)
        return self.channels[name]

    def __contains__(self, name: object) -> bool:
        return name in self.channels

    def __iter__(self) -> Iterator[str]:
        return iter(self.channels)

    def __len__(self) -> int:
        return len(self.channels)

    def __repr__(self) -> str:
        from mechid.data.inspect import describe

        return describe(self)

    @property
    def start(self) -> float:
        """s, of the first sample of any channel"""
        return min(float(c.time[0]) for c in self.channels.values())

    @property
    def end(self) -> float:
        """s, of the last sample of any channel"""
        return max(float(c.time[-1]) for c in self.channels.values())

    @property
    def duration(self) -> float:
        """s"""
        return self.end - self.start

    # Thin methods; mechid.data.signals says what each gives

    def selected(self, *names: str) -> Log:
        return _signals().selected(self, *names)

    def renamed(self, names: Mapping[str, str]) -> Log:
        return _signals().renamed(self, names)

    def between(self, start: float | None = None, end: float | None = None) -> Log:
        return _signals().between(self, start, end)

    def shifted(self, seconds: float, *names: str) -> Log:
        return _signals().shifted(self, seconds, *names)

    def scaled(self, name: str, factor: float, unit: str | None = None) -> Log:
        return _signals().scaled(self, name, factor, unit)

    def with_channel(self, name: str, time: ArrayLike, values: ArrayLike, unit: str = "") -> Log:
        return _signals().with_channel(self, name, time, values, unit)

    def unwrapped(self, *names: str, period: float = 2.0 * np.pi) -> Log:
        return _signals().unwrapped(self, *names, period=period)

    def wrapped(self, *names: str, period: float = 2.0 * np.pi, center: float = 0.0) -> Log:
        return _signals().wrapped(self, *names, period=period, center=center)

    def filtered(self, *names: str, cutoff: float, order: int = 4) -> Log:
        return _signals().filtered(self, *names, cutoff=cutoff, order=order)

    def derivative(
        self,
        name: str,
        *,
        cutoff: float | None = None,
        window: float | None = None,
        order: int | None = None,
        into: str | None = None,
    ) -> Log:
        return _signals().derivative(self, name, cutoff=cutoff, window=window, order=order, into=into)

    def resampled(
        self,
        *,
        rate: float | None = None,
        times: ArrayLike | None = None,
        method: str = "linear",
        longest_gap: float | None = None,
    ) -> Log:
        return _signals().resampled(self, rate=rate, times=times, method=method, longest_gap=longest_gap)

    def filled(self, *names: str, longest_gap: float) -> Log:
        return _signals().filled(self, *names, longest_gap=longest_gap)

    def without(self, name: str, start: float, end: float) -> Log:
        return _signals().without(self, name, start, end)

    def without_missing(self, *names: str) -> Log:
        return _signals().without_missing(self, *names)

    def despiked(self, *names: str, threshold: float = 5.0, window: int = 11) -> Log:
        return _signals().despiked(self, *names, threshold=threshold, window=window)


def _signals() -> Any:
    """Found when it is used: signals are functions of logs."""
    from mechid.data import signals

    return signals


def log_of(
    time: ArrayLike,
    channels: Mapping[str, ArrayLike],
    *,
    units: Mapping[str, str] | None = None,
    name: str = "log",
) -> Log:
    """A log of arrays: `time` (n,) in s, for each channel n values, or n×k for channels name[0] to name[k-1].

    units: in what unit the values of a channel are given; they are converted to SI. Without one they are taken as
    they are and the unit is unknown, "".
    """
    stamps = frozen(numeric(time, "The time of a log"))
    made: dict[str, Channel] = {}
    for key in units or {}:
        if key not in channels:
            raise unknown("channel (in units)", key, channels)
    for key, given in channels.items():
        values = numeric(given, f"The values of channel '{key}'")
        unit = (units or {}).get(key, "")
        wide = values.ndim == 2 and stamps.shape == values.shape[:1]
        columns = {f"{key}[{i}]": c for i, c in enumerate(values.T)} if wide else {key: values}
        for column, numbers in columns.items():
            if column in made:
                raise MechidError(f"There are two channels '{column}'.")
            made[column] = channel_of(column, stamps, numbers, unit)
    return Log(name, made)


def read_log(
    path: str | os.PathLike[str],
    *,
    time: str | None = None,
    rate: float | None = None,
    units: Mapping[str, str] | None = None,
    columns: Mapping[str, str] | None = None,
    time_unit: str | None = None,
    name: str | None = None,
) -> Log:
    """The log in a file: text (CSV and its kin), NumPy's .npz or MATLAB's .mat; what was noticed is in its notes.

    time: the column of time; found by itself if it is called t, time, timestamp, … or is the only one in seconds.
    rate: Hz, in place of a column of time; the first row is at 0 s.
    units: {channel: unit} of the values in the file, in place of what headers such as `q1 [deg]` say.
    columns: {channel: column}, the channels to take and what they are called in the file; all without it.
    time_unit: s, ms, us or ns; by default what the header of the column of time says, else s.
    """
    where = given_path(path)
    readers = {".npz": read_npz, ".mat": read_mat}
    table = readers.get(where.suffix.lower(), read_text)(where)
    found, notes = timed(table, time=time, rate=rate, time_unit=time_unit, columns=columns, units=units)
    shared = {id(c.time): frozen(c.time) for c in found.values()}
    channels = {
        key: channel_of(key, shared[id(c.time)], c.values, c.unit, f"'{where}': ") for key, c in found.items()
    }
    converted = [
        f"Channel '{key}' is converted from {c.unit} to {channels[key].unit}."
        for key, c in found.items()
        if to_si(c.unit)[0] != 1.0
    ]
    return Log(where.stem if name is None else name, channels, (*notes, *converted))


def frozen(array: np.ndarray) -> np.ndarray:
    """Floats that nobody can write to; channels of one time base share it."""
    if isinstance(array, np.ndarray) and array.dtype == np.float64 and not array.flags.writeable:
        return array
    own = np.array(array, dtype=float)
    own.flags.writeable = False
    return own


def channel_of(name: str, time: np.ndarray, values: np.ndarray, unit: str, where: str = "") -> Channel:
    """A channel from values in any unit; what is wrong is said with its name."""
    what = f"{where}channel '{name}'" if where else f"Channel '{name}'"
    check_channel(what, time, values)
    try:
        factor, si = to_si(unit)
    except MechidError as error:
        raise MechidError(f"{what}: {error}") from None
    if factor == 1.0:
        return Channel(time, values, si)
    check_channel(what, time, values * factor)
    return Channel(time, values * factor, si)


def check_channel(what: str, time: np.ndarray, values: np.ndarray) -> None:
    """Refuse what is no channel: times that do not increase, values that are not one for each time."""
    time, values = np.asarray(time), np.asarray(values)
    if time.ndim != 1 or not len(time):
        raise MechidError(f"{what} needs times of shape (n,), at least one, not shape {time.shape}.")
    if values.shape != time.shape:
        raise MechidError(f"{what} has values of shape {values.shape} for {len(time)} times.")
    bad = np.flatnonzero(~(np.abs(time) <= LARGEST))
    if len(bad):
        raise MechidError(f"{what} has the time {time[bad[0]]:g} at {bad[0]}; times must be finite numbers.")
    late = np.flatnonzero(np.diff(time) <= 0.0)
    if len(late):
        i = int(late[0]) + 1
        raise MechidError(
            f"{what} has times that do not increase: {time[i - 1]:.10g} s, then {time[i]:.10g} s at {i}."
        )
    bad = np.flatnonzero(np.abs(values) > LARGEST)
    if len(bad):
        raise MechidError(
            f"{what} is {values[bad[0]]:g} at {time[bad[0]]:.10g} s; values must be at most {LARGEST:g} in size,"
            " and NaN where they are missing."
        )
