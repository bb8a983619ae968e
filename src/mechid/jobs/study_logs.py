"""[[log]] of a study file: a log read from its file, and what of it is put in, measured and known of the start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from mechid.data.log import Log, read_log
from mechid.data.units import known_units, to_si
from mechid.dynamics import sensors
from mechid.dynamics.stepper import Stepper
from mechid.errors import MechidError, unknown
from mechid.estimate import samples
from mechid.estimate.experiment import HOLDS, LQR, Experiment, Measured, Start, Tracked
from mechid.estimate.start import first_state
from mechid.jobs.entries import Entry
from mechid.jobs.log_changes import mended, named_channel, named_channels
from mechid.model.parameters import Parameters
from mechid.model.parts import Motor
from mechid.model.system import System

KEYS = (
    "file",
    "measured",
    "inputs",
    "start",
    "span",
    "hold",
    "time",
    "rate",
    "units",
    "columns",
    "filter",
    "feedback",
    "time_unit",
    "shift",
    "scale",
    "without",
    "despike",
    "fill",
    "name",
    "terminal_weight",
)
MOST = 1e8
"""steps of a log"""
TIME_UNITS = ("s", "ms", "us", "ns", "min", "h")
SENSORS = (
    "joint",
    "velocity",
    "force",
    "transmitted",
    "position",
    "frame_velocity",
    "pose",
    "reaction",
    "output",
)


def read_experiment(entry: Entry, mechanism: System, folder: Path) -> tuple[Experiment, Path]:
    """The experiment of one [[log]], and the file of its log."""
    given = entry.table(KEYS, needs=("file", "measured"))
    path = folder / given["file"].text()
    name = given["name"].text() if "name" in given else None
    log = mended(entry, _read(entry, path, name))
    measured = [_measured(e, mechanism, log) for e in given["measured"].tables()]
    if not measured:
        raise given["measured"].error("'measured' is empty: name at least one sensor.")
    span = _span(entry.get("span"), log, measured)
    feedback = entry.get("feedback")
    hold = given["hold"].text(HOLDS) if "hold" in given else HOLDS[0]
    weight = given["terminal_weight"].number(least=0.0) if "terminal_weight" in given else 0.0
    with entry.blamed():
        experiment = Experiment(
            log,
            measured,
            inputs=_inputs(entry.get("inputs"), mechanism, log),
            start=_start(entry.get("start"), mechanism, log, measured, span),
            hold=hold,
            span=span,
            feedback=None if feedback is None else _tracked(feedback, mechanism, log),
            terminal_weight=weight,
        )
    return experiment, path


def check_experiment(entry: Entry, experiment: Experiment, free: Parameters, stepper: Stepper) -> None:
    """Refuse what does not fit the grid of steps; what simulation_error would find only later, without a line."""
    mechanism = free.mechanism
    place = entry.get("span") or entry
    _check_length(place, experiment, float(stepper.dt))
    with place.blamed():
        grid = samples.grid(experiment, stepper)
    with entry["measured"].blamed():
        samples.groups(experiment, grid)
    for name, e in entry["inputs"].table().items() if "inputs" in entry else ():
        own = input_name(e, name, mechanism)
        with e.blamed():
            samples.inputs(replace(experiment, inputs={own: experiment.inputs[own]}), mechanism, grid)
    if experiment.feedback is not None:
        for name, e in entry["feedback"]["channels"].table().items():
            with e.blamed():
                samples.at_steps(experiment, experiment.feedback.channels[name], grid.t[:-1])
    with (entry.get("start") or entry).blamed():
        first_state(mechanism, free.bind(free.theta0), experiment.start, experiment.name)


def _check_length(entry: Entry, experiment: Experiment, dt: float) -> None:
    """Refuse steps that are longer than a log, and more of them than memory holds."""
    times = [experiment.log[c].time for m in experiment.measured for c in m.channels]
    first, last = experiment.span
    first = min(t[0] for t in times) if first is None else first
    last = max(t[-1] for t in times) if last is None else last
    steps, told = (last - first) / dt, f"Log '{experiment.name}' takes {last - first:g} s"
    if steps < 2.0:
        raise entry.error(f"{told}, less than two steps of dt = {dt:g} s: take a smaller dt.")
    if steps > MOST:
        raise entry.error(
            f"{told}, {steps:.3g} steps of dt = {dt:g} s; at most {MOST:g} are possible: take a shorter span or a "
            "larger dt."
        )


# The log


def _read(entry: Entry, path: Path, name: str | None) -> Log:
    options: dict[str, Any] = {"name": name}
    if "time" in entry:
        options["time"] = entry["time"].text()
    if "time_unit" in entry:
        options["time_unit"] = entry["time_unit"].text(TIME_UNITS, "unit of time")
    if "rate" in entry:
        options["rate"] = entry["rate"].number(above=0.0)
    for key in (k for k in ("columns", "units") if k in entry):
        options[key] = {n: e.text() for n, e in entry[key].table().items()}
    for e in entry["units"].table().values() if "units" in entry else ():
        try:
            to_si(e.value)
        except MechidError:
            raise e.error(unknown("unit", e.value, known_units())) from None
    try:
        return read_log(path, **options)
    except MechidError as error:
        raise _culprit(entry, path, options).error(error) from None


def _culprit(entry: Entry, path: Path, options: Mapping[str, Any]) -> Entry:
    """The key without which the log could be read: those of time first, then one name after the other."""

    def readable(**given: Any) -> bool:
        try:
            read_log(path, **given)
        except MechidError:
            return False
        return True

    timing = {k: options[k] for k in ("time", "rate", "time_unit") if k in options}
    if not readable(**timing):
        for key in timing:
            if readable(**{k: v for k, v in timing.items() if k != key}):
                return entry[key]
        return entry[next(iter(timing))] if timing and path.is_file() and "time" in timing else entry["file"]
    columns = options.get("columns")
    for new, old in (columns or {}).items():
        if not readable(**timing, columns={new: old}):
            return entry["columns"][new]
    for channel in options.get("units", {}):
        units = {channel: options["units"][channel]}
        if not readable(**timing, **({"columns": columns} if columns else {}), units=units):
            return entry["units"][channel]
    return entry["file"]


def _span(
    entry: Entry | None, log: Log, measured: Sequence[Measured]
) -> tuple[float, float] | tuple[None, None]:
    if entry is None:
        return None, None
    first, last = entry.numbers(2)
    if not first < last:
        raise entry.error(f"'span' must be from an earlier to a later time (s), not {first:g} to {last:g}.")
    times = np.concatenate([log[c].time for m in measured for c in m.channels])
    if not np.any((times >= first) & (times <= last)):
        told = f"{times.min():g} to {times.max():g} s"
        raise entry.error(f"Nothing was measured from {first:g} to {last:g} s; the log runs from {told}.")
    return first, last


# What is measured


def _measured(entry: Entry, mechanism: System, log: Log) -> Measured:
    given = entry.table((*SENSORS, "channels", "std", "covariance"), needs=("channels",))
    kinds = [k for k in SENSORS if k in given]
    if len(kinds) != 1:
        found = " and ".join(kinds) or "none"
        raise entry.error(f"A measurement needs one of {', '.join(SENSORS)}; here is {found}.")
    kind = kinds[0]
    sensor, units = _sensor(given[kind], kind, mechanism)
    channels = named_channels(given["channels"], log)
    if len(channels) != len(units):
        raise given["channels"].error(
            f"'{kind}' here gives {_values(units)}, but {len(channels)} "
            f"{'channel is' if len(channels) == 1 else 'channels are'} named."
        )
    for i, (name, unit) in enumerate(zip(channels, units, strict=True)):
        place = given["channels"][i] if isinstance(given["channels"].value, list) else given["channels"]
        _same_unit(place, log, name, unit, f"'{kind}'")
    std = None
    if "std" in given:
        several = isinstance(given["std"].value, list)
        std = given["std"].numbers(len(channels)) if several else given["std"].number(above=0.0)
    covariance = None
    if "covariance" in given:
        rows = given["covariance"].list("a list of lists of numbers")
        covariance = [row.numbers(len(channels)) for row in rows]
    with (given.get("covariance") or entry).blamed():
        return Measured(sensor, channels, std, covariance)


def _values(units: Sequence[str]) -> str:
    told = f" ({', '.join(units)})" if all(units) else ""
    return f"1 value{told}" if len(units) == 1 else f"{len(units)} values{told}"


def _same_unit(entry: Entry, log: Log, name: str, unit: str, what: str) -> None:
    """Refuse a channel of another unit than is wanted; what is not known passes."""
    if unit and log[name].unit not in ("", unit):
        raise entry.error(
            f"Channel '{name}' is in {log[name].unit}, but {what} is in {unit}: take another channel, or tell its "
            "unit in the file with the key 'units'."
        )


def _sensor(entry: Entry, kind: str, mechanism: System) -> tuple[Any, list[str]]:
    """A sensor, and the unit of each of its values."""
    if kind in ("joint", "velocity", "force", "transmitted"):
        names = entry.texts()
        found = []
        for i, name in enumerate(names):
            with (entry[i] if isinstance(entry.value, list) else entry).blamed():
                found.append(mechanism.coordinate(name) if kind == "force" else mechanism.axis(name))
        make = {
            "joint": sensors.joint_position,
            "velocity": sensors.joint_velocity,
            "force": sensors.joint_force,
            "transmitted": sensors.transmitted,
        }[kind]
        units = {
            "joint": [c.unit for c in found],
            "velocity": [f"{c.unit}/s" if c.unit else "" for c in found],
            "force": [c.force_unit for c in found],
            "transmitted": [c.force_unit for c in found],
        }[kind]
        return make(mechanism, *names), units
    if kind == "output":
        # only a symbolic mechanism has outputs, and SymPy takes long to import
        from mechid.dynamics.symbolic import symbolic_output

        names = entry.texts()
        with entry.blamed():
            return symbolic_output(mechanism, *names), [mechanism.output(n).unit for n in names]  # type: ignore
    name = entry.text()
    with entry.blamed():
        if kind == "position":
            return sensors.frame_position(mechanism, name), ["m"] * 3
        if kind == "frame_velocity":
            return sensors.frame_velocity(mechanism, name), ["m/s"] * 3
        if kind == "pose":
            return sensors.frame_pose(mechanism, name), ["m"] * 3 + ["rad"] * 3
        made = sensors.reaction(mechanism, name)
        return made, [_row_unit(mechanism, int(i)) for i in made.index]


def _row_unit(mechanism: System, row: int) -> str:
    """The unit of a constraint row's force; "" for couplings and drives, whose is a coordinate's."""
    rows = [r for loop in mechanism.loops for r in loop.rows]
    return ("N" if rows[row].unit == "m" else "N·m") if row < len(rows) else ""


# What is put in, and how it began


def input_name(entry: Entry, name: str, mechanism: System) -> str:
    """An input by its own name, or by that of the coordinate that its motor moves."""
    if name in mechanism.input_names:
        return name
    moved = [e.name for e in mechanism.elements if isinstance(e, Motor) and e.coordinate == name]
    if len(moved) == 1 and moved[0] in mechanism.input_names:
        return moved[0]
    raise entry.error(unknown("input", name, mechanism.input_names))


def _inputs(entry: Entry | None, mechanism: System, log: Log) -> dict[str, str | float]:
    inputs: dict[str, str | float] = {}
    for name, e in entry.table().items() if entry is not None else ():
        own = input_name(e, name, mechanism)
        if own in inputs:
            raise e.error(f"Input '{own}' is given twice.")
        inputs[own] = named_channel(e, log, e.value) if isinstance(e.value, str) else _constant(e)
    return inputs


def _constant(entry: Entry) -> float:
    if isinstance(entry.value, bool) or not isinstance(entry.value, int | float):
        raise entry.error(f"'{entry.key}' must be the name of a channel or a number, not {entry.value!r}.")
    return entry.number()


def _start(
    entry: Entry | None, mechanism: System, log: Log, measured: Sequence[Measured], span: tuple[Any, Any]
) -> Start:
    if entry is None:
        return Start()
    given = entry.table(("q", "v", "q_std", "v_std"))
    begin = span[0] if span[0] is not None else min(log[c].time[0] for m in measured for c in m.channels)
    values: dict[str, dict[str, float]] = {"q": {}, "v": {}}
    for key in values:
        for name, e in given[key].table().items() if key in given else ():
            _coordinate(e, mechanism, name)
            if isinstance(e.value, str):
                unit = mechanism.coordinate(name).unit + ("/s" if key == "v" else "")
                _same_unit(e, log, named_channel(e, log, e.value), unit, f"{key} of '{name}'")
            values[key][name] = _first(e, log, begin) if isinstance(e.value, str) else _constant(e)
    stds = {key: _std(given[key], mechanism) for key in ("q_std", "v_std") if key in given}
    return Start(values["q"], values["v"], **stds)


def _first(entry: Entry, log: Log, begin: float) -> float:
    """The first sample of a channel from `begin` on."""
    channel = log[named_channel(entry, log, entry.text())]
    there = np.flatnonzero((channel.time >= begin - 1e-9 * max(1.0, abs(begin))) & ~channel.missing)
    if not len(there):
        raise entry.error(f"Channel '{entry.value}' has no sample from {begin:g} s on.")
    return float(channel.values[there[0]])


def _std(entry: Entry, mechanism: System) -> Any:
    def known(e: Entry) -> float | str:
        good = e.value in ("known", "free") if isinstance(e.value, str) else _is_std(e.value)
        if not good:
            raise e.error(f"'{e.key}' must be a number ≥ 0, 'known' or 'free', not {e.value!r}.")
        return e.value

    if not isinstance(entry.value, dict):
        return known(entry)
    for name, e in entry.table().items():
        _coordinate(e, mechanism, name)
    return {name: known(e) for name, e in entry.table().items()}


def _is_std(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0.0


def _coordinate(entry: Entry, mechanism: System, name: str) -> None:
    with entry.blamed():
        mechanism.coordinate(name)


def _tracked(entry: Entry, mechanism: System, log: Log) -> Tracked:
    given = entry.table(("channels", "state_weight", "input_weight"), needs=("channels",))
    channels = {}
    for name, e in given["channels"].table().items():
        _coordinate(e, mechanism, name)
        channels[name] = named_channel(e, log, e.text())
        _same_unit(e, log, e.value, mechanism.coordinate(name).unit, f"'{name}'")
    if not channels:
        raise given["channels"].error(
            "'channels' is empty: name a channel for each coordinate that is fed back."
        )
    if not mechanism.input_names:
        raise entry.error(f"Mechanism '{mechanism.name}' has no input that feedback could act on.")
    weights: dict[str, Any] = {}
    for key, count in (("state_weight", len(channels)), ("input_weight", len(mechanism.input_names))):
        if key in given:
            e = given[key]
            several = isinstance(e.value, list)
            weights[key] = tuple(e.numbers(count)) if several else e.number(above=0.0)
            if several and min(weights[key]) <= 0.0:
                raise e.error(f"'{key}' must be numbers > 0, not {e.value}.")
    return Tracked(channels, LQR(**weights))
