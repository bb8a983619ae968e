"""Columns of a table put on time: which column is time, in which unit, and what each channel is sampled at."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from mechid.data.table import Table
from mechid.data.units import same_dimension, split_unit, to_si
from mechid.errors import MechidError, choices, unknown
from mechid.model.geometry import LARGEST

TIMES = (
    "t",
    "time",
    "timestamp",
    "time_stamp",
    "stamp",
    "__time",
    "elapsed",
    "elapsed_time",
    "seconds",
    "sec",
)
"""names that a column of time has, in any case; `time_ms` and the like are understood too"""

_WITH_UNIT = re.compile(rf"({'|'.join(TIMES)})_(s|sec|ms|us|ns)", re.IGNORECASE)
COARSE = 1e-6
"""of a step: what the rounding of time stamps is before a note tells of it"""


class Timed(NamedTuple):
    """One channel, in the unit that the file or the caller gives."""

    time: np.ndarray
    values: np.ndarray
    unit: str


class _Base(NamedTuple):
    """A column of time; without a name it is made from a rate."""

    name: str | None
    stamps: np.ndarray | None
    factor: float


def timed(
    table: Table,
    *,
    time: str | None,
    rate: float | None,
    time_unit: str | None,
    columns: Mapping[str, str] | None,
    units: Mapping[str, str] | None,
) -> tuple[dict[str, Timed], tuple[str, ...]]:
    """The channels of a table by name, and notes."""
    bases = _bases(table, time, rate, time_unit)
    notes = list(table.notes)
    channels: dict[str, Timed] = {}
    left_out = dict(table.left_out)
    for base in bases.values():
        names = [n for n in table.columns if _base_of(n, bases) is base and n != base.name]
        found, odd = _expanded(table, names, base)
        left_out |= odd
        channels |= _ordered(table, found, base, rate, notes)
    order = list(table.columns)
    channels = dict(sorted(channels.items(), key=lambda item: order.index(_source(table, item[0]))))
    for name in table.columns:
        if _base_of(name, bases) is None:
            left_out[name] = "has no time that belongs to it"
    told = {b.name for b in bases.values()}
    if columns is None:
        notes += [f"'{name}' {why} and is left out." for name, why in left_out.items() if name not in told]
        columns = {name: name for name in channels}
    chosen = {new: _chosen(table, channels, left_out, old) for new, old in columns.items()}
    if not chosen:
        raise table.error(f" has no channels besides time; it has {choices(table.columns)}.")
    for name in units or {}:
        if name not in chosen:
            raise unknown(f"channel (in the units for '{table.path}')", name, chosen)
    return {n: c._replace(unit=(units or {}).get(n, c.unit)) for n, c in chosen.items()}, tuple(notes)


# Which column is time


def _bases(table: Table, time: str | None, rate: float | None, time_unit: str | None) -> dict[str, _Base]:
    """Columns of time by the group they stand in; the group of all columns is ""."""
    given = None if time_unit is None else _time_factor(time_unit, "time_unit")
    if rate is not None:
        if time is not None:
            raise MechidError("Either time= names the column of time or rate= gives one, not both.")
        if not isinstance(rate, int | float) or not 0.0 < rate < np.inf:
            raise MechidError(f"rate= must be a positive number of Hz, not {rate!r}.")
        return {"": _Base(None, None, 1.0)}
    if time is not None:
        name = split_unit(time)[0] if time not in table.columns else time
        if name in table.left_out:
            raise table.error(f": the column of time, '{name}', {table.left_out[name]}.")
        if name not in table.columns:
            raise unknown(f"column (in '{table.path}')", time, table.columns)
        unit = table.units.get(name, _suffix(name))
        factor = given if given is not None else _time_factor(unit, f"'{table.path}': column '{name}'")
        return {"": _Base(name, _stamps(table, name), factor)}
    bases = {}
    groups = dict.fromkeys(n.rpartition(".")[0] for n in table.columns) if table.grouped else [""]
    for group in groups:
        name = _time_name(table, group)
        if name is not None:
            factor = _time_factor(table.units.get(name, _suffix(name)), name) if given is None else given
            bases[group] = _Base(name, _stamps(table, name), factor)
    if not bases:
        texts = [f" ('{n}' {why})" for n, why in table.left_out.items() if is_time(n)]
        raise table.error(
            f" has no column of time{''.join(texts)}; name it with time= or give rate= in Hz."
            f" Its columns: {choices(table.columns)}."
        )
    return bases


def _time_name(table: Table, group: str) -> str | None:
    """The column of a group that is its time by its name, else the only one in seconds or parts of them."""
    leaves = {
        name.removeprefix(f"{group}.") if group else name: name
        for name, column in table.columns.items()
        if column.ndim == 1 and (not table.grouped or name.rpartition(".")[0] == group)
    }
    in_time = [leaf for leaf, name in leaves.items() if same_dimension(table.units.get(name, "s"), "s")]
    for valid in TIMES:
        if valid in in_time:
            return leaves[valid]
    # T comes last, which may be a temperature or a torque
    for valid in (*TIMES[1:], "t"):
        for leaf in in_time:
            if leaf.lower() == valid:
                return leaves[leaf]
    by_suffix = [leaf for leaf in in_time if _WITH_UNIT.fullmatch(leaf)]
    by_unit = [leaf for leaf in in_time if leaves[leaf] in table.units]
    for found in (by_suffix, by_unit if not group else []):
        if len(found) == 1:
            return leaves[found[0]]
    return None


def is_time(name: str) -> bool:
    """Whether a column of this name is taken for a time."""
    return name.lower() in TIMES or _WITH_UNIT.fullmatch(name) is not None


def _suffix(name: str) -> str:
    match = _WITH_UNIT.fullmatch(name.rpartition(".")[2])
    return match[2].lower() if match else "s"


def _time_factor(unit: str, what: str) -> float:
    factor, si = to_si(unit)
    if si != "s":
        raise MechidError(f"{what} is in '{unit}', which is no unit of time; valid: s, ms, us, ns, min, h.")
    return factor


def _stamps(table: Table, name: str) -> np.ndarray:
    stamps = table.columns[name]
    if stamps.ndim != 1:
        raise table.error(f": the column of time, '{name}', has shape {stamps.shape}.")
    bad = np.flatnonzero(~(np.abs(stamps) <= LARGEST))
    if len(bad):
        raise table.error(
            f", {table.place(int(bad[0]))}: the time, column '{name}', is missing or too large."
        )
    return stamps


def _base_of(name: str, bases: Mapping[str, _Base]) -> _Base | None:
    """The time of a column: of the nearest group around it; `name.t` is the time of `name` alone."""
    if any(name == base.name for base in bases.values()):
        return next(base for base in bases.values() if base.name == name)
    group = name
    while group not in bases:
        if not group:
            return None
        group = group.rpartition(".")[0]
    return bases[group]


# Channels on a time


def _expanded(
    table: Table, names: Iterable[str], base: _Base
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """One-dimensional columns as long as their time, and those that are not."""
    found: dict[str, np.ndarray] = {}
    odd: dict[str, str] = {}
    for name in names:
        column = table.columns[name]
        count = len(base.stamps) if base.stamps is not None else max(column.shape)
        if count not in column.shape:
            odd[name] = f"has shape {column.shape} for {count} times in '{base.name}'"
        elif column.ndim == 1:
            found[name] = column
        else:
            rows = column if column.shape[0] == count else column.T
            found |= {f"{name}[{i}]": np.ascontiguousarray(c) for i, c in enumerate(rows.T)}
    return found, odd


def _source(table: Table, channel: str) -> str:
    """The column that a channel comes from: q for q[0]."""
    return channel if channel in table.columns else re.sub(r"\[\d+\]$", "", channel)


def _ordered(
    table: Table, found: Mapping[str, np.ndarray], base: _Base, rate: float | None, notes: list[str]
) -> dict[str, Timed]:
    """Channels on increasing times; rows that stand there twice are dropped and noted."""

    def unit(name: str) -> str:
        return table.units.get(_source(table, name), "")

    if base.stamps is None or rate is not None:
        times = {len(c): np.arange(len(c)) / (rate or 1.0) for c in found.values()}
        return {name: Timed(times[len(c)], c, unit(name)) for name, c in found.items()}
    keep = _kept(table, found, base)
    stamps = base.stamps * base.factor
    if not keep.all():
        notes.append(
            f"{np.sum(~keep)} of {len(keep)} rows stand twice in the file, with the same time, and count once."
        )
        stamps = stamps[keep]
        found = {name: c[keep] for name, c in found.items()}
    notes += _coarse(stamps)
    if not table.sparse:
        return {name: Timed(stamps, c, unit(name)) for name, c in found.items()}
    there = {name: ~np.isinf(c) for name, c in found.items()}
    return {n: Timed(stamps[there[n]], c[there[n]], unit(n)) for n, c in found.items() if there[n].any()}


def _kept(table: Table, found: Mapping[str, np.ndarray], base: _Base) -> np.ndarray:
    """Which rows are not the row before once more; refuses time that does not increase otherwise."""
    assert base.stamps is not None
    steps = np.diff(base.stamps * base.factor)
    late = np.flatnonzero(steps <= 0.0)
    keep = np.ones(len(base.stamps), bool)
    for row in late.tolist():
        place, now = table.place(row + 1), base.stamps[row + 1]
        if base.stamps[row + 1] < base.stamps[row]:
            raise table.error(
                f", {place}: time runs backwards, from {base.stamps[row]:.10g} to {now:.10g} in '{base.name}'."
            )
        if any(not np.array_equal(c[row], c[row + 1], equal_nan=True) for c in found.values()):
            raise table.error(
                f", {place}: the time {now:.10g} in '{base.name}' stands there twice, with different values."
            )
        keep[row + 1] = False
    return keep


def _coarse(stamps: np.ndarray) -> list[str]:
    """A note where times are so large that float64 rounds them visibly."""
    if len(stamps) < 2:
        return []
    step, rounding = float(np.median(np.diff(stamps))), float(np.spacing(np.abs(stamps).max()))
    if rounding <= COARSE * step:
        return []
    return [
        f"Times near {stamps[-1]:.6g} s are resolved to {rounding:.2g} s, {rounding / step:.2g} of a step;"
        " times that begin near 0 would be finer."
    ]


def _chosen(table: Table, channels: Mapping[str, Timed], left_out: Mapping[str, str], old: str) -> Timed:
    name = old if old in channels or not isinstance(old, str) else split_unit(old)[0]
    if name in left_out:
        raise table.error(f": column '{name}' {left_out[name]}.")
    if name not in channels:
        raise unknown(f"column (in '{table.path}')", old, _valid(channels))
    return channels[name]


def _valid(channels: Mapping[str, Timed]) -> Sequence[Any]:
    return list(channels)
