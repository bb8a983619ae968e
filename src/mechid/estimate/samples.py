"""From an experiment to arrays over steps and samples: when, what was put in, what was seen."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.linalg

from mechid.data.log import Channel
from mechid.dynamics.stepper import Stepper
from mechid.errors import MechidError, unknown
from mechid.estimate.delay import NEAR, Late, signal
from mechid.estimate.experiment import Experiment
from mechid.model.parameters import Parameters
from mechid.model.system import System

MOST = 1e8
"""steps"""


class Form(NamedTuple):
    """What is known of a group while compiling."""

    sizes: tuple[int, ...]
    """values of each sensor"""
    at_ends: bool
    """all samples lie at ends of steps"""


class Group(NamedTuple):
    """Sensors that are read at the same times."""

    sensors: tuple[Any, ...]
    form: Form
    channels: tuple[str, ...]
    interval: np.ndarray
    """(m,) the step in which a sample lies"""
    fraction: np.ndarray
    """(m,) where in it, 0 … 1"""
    values: np.ndarray
    """(m, c); 0 where missing"""
    present: np.ndarray
    """(m, c) 1, or 0 where missing"""
    emphasis: np.ndarray
    """(m,) how often a sample counts"""
    std: np.ndarray
    """(c,) of the noise; NaN where it is to be estimated"""
    correlation: np.ndarray | None = None
    """(c, c) of the noise between channels; None where there is none"""

    @property
    def times(self) -> int:
        return len(self.interval)

    @property
    def first_sample(self) -> Group:
        """One sample, in the first step."""
        along = {k: getattr(self, k)[:1] for k in ("fraction", "values", "present", "emphasis")}
        return self._replace(interval=np.zeros(1, int), **along)


class Grid(NamedTuple):
    """Steps of an experiment."""

    t: np.ndarray
    """(steps + 1,) s"""

    @property
    def steps(self) -> int:
        return len(self.t) - 1


def grid(experiment: Experiment, stepper: Stepper) -> Grid:
    """Steps that cover the experiment's span."""
    name = experiment.name
    channels = [_channel(experiment, c) for m in experiment.measured for c in m.channels]
    start, end = experiment.span
    start = min(c.time[0] for c in channels) if start is None else float(start)
    end = max(c.time[-1] for c in channels) if end is None else float(end)
    if not start < end:
        raise MechidError(f"The span of experiment '{name}' is empty: {start:g} … {end:g} s.")
    dt = np.asarray(stepper.dt, float)
    if dt.ndim == 1:
        return Grid(start + np.concatenate([[0.0], np.cumsum(dt)]))
    # a last sample just beyond a step's end still belongs to it
    steps = (end - start) / float(dt) - 1e-3
    if steps > MOST:
        raise MechidError(
            f"Experiment '{name}' would take {steps:.3g} steps of {dt:g} s: more than {MOST:g}."
        )
    steps = int(np.ceil(steps))
    if steps < 1:
        raise MechidError(
            f"The span of experiment '{name}' ({end - start:g} s) is shorter than dt = {dt:g} s."
        )
    return Grid(start + float(dt) * np.arange(steps + 1))


def inputs(experiment: Experiment, mechanism: System, grid: Grid) -> np.ndarray:
    """(steps, nu) the inputs held over each step, as they act: later than they were logged by their delays."""
    table = np.zeros((grid.steps, len(mechanism.input_names)))
    for name, source in experiment.inputs.items():
        if name not in mechanism.input_names:
            raise unknown("input", name, mechanism.input_names)
        column = mechanism.input_names.index(name)
        if isinstance(source, str):
            channel = _channel(experiment, source)
            table[:, column] = _held(channel, grid.t, experiment.hold, experiment.name, source)
            if delay := mechanism.delays.get(name, 0.0):
                table[:, column] = signal(channel, experiment.hold).over(grid.t, delay)[0]
        elif isinstance(source, int | float | np.number) and np.isfinite(source):
            table[:, column] = float(source)
        else:
            raise MechidError(f"Input '{name}' needs a channel's name or a number, not {source!r}.")
    return table


def late(experiment: Experiment, free: Parameters) -> tuple[Late, ...]:
    """The inputs from channels whose delay is free."""
    names = free.mechanism.input_names
    return tuple(
        Late(names.index(name), signal(_channel(experiment, source), experiment.hold))
        for name, source in experiment.inputs.items()
        if isinstance(source, str) and name in free.late_inputs
    )


def at_steps(experiment: Experiment, channel: str, t: np.ndarray) -> np.ndarray:
    """A channel at given times, interpolated."""
    return _held(_channel(experiment, channel), t, "interpolated", experiment.name, channel)


def groups(experiment: Experiment, grid: Grid) -> tuple[Group, ...]:
    """What was measured within the grid, sensors with common time stamps together."""
    found: list[list[Any]] = []
    for m in experiment.measured:
        channels = [_channel(experiment, c) for c in m.channels]
        for c, name in zip(channels[1:], m.channels[1:], strict=True):
            if len(c.time) != len(channels[0].time) or np.any(c.time != channels[0].time):
                raise MechidError(
                    f"Channels '{m.channels[0]}' and '{name}' of one sensor have different time stamps: "
                    "resample them, or measure them by a sensor each."
                )
        for entry in found:
            if len(entry[0]) == len(channels[0].time) and np.all(entry[0] == channels[0].time):
                entry[1].append((m, channels))
                break
        else:
            found.append([channels[0].time, [(m, channels)]])
    result = tuple(_group(experiment, grid, time, members) for time, members in found)
    if not sum(g.present.sum() for g in result):
        span = f"{grid.t[0]:g} … {grid.t[-1]:g} s"
        raise MechidError(f"Experiment '{experiment.name}' has no sample within {span}.")
    return result


def _group(experiment: Experiment, grid: Grid, time: np.ndarray, members: list[Any]) -> Group:
    t, last = grid.t, grid.steps - 1
    slack = NEAR * np.diff(t)
    inside = (time >= t[0] - slack[0]) & (time <= t[-1] + 1e-3 * (t[-1] - t[-2]))
    stamps = time[inside]
    # samples at a step's end belong to that step, those at the start to the first
    interval = np.clip(np.searchsorted(t, stamps - slack[0], side="left") - 1, 0, last)
    fraction = (stamps - t[interval]) / (t[interval + 1] - t[interval])
    fraction = np.where(np.abs(fraction - 1.0) < NEAR, 1.0, np.where(np.abs(fraction) < NEAR, 0.0, fraction))
    values = np.stack([c.values[inside] for _, channels in members for c in channels], -1)
    present = np.isfinite(values)
    stds = [np.full(len(m.channels), np.nan) if m.noise is None else m.noise for m, _ in members]
    emphasis = np.ones(len(stamps))
    if len(stamps):
        emphasis[-1] += experiment.terminal_weight
    return Group(
        tuple(m.sensor for m, _ in members),
        Form(tuple(len(m.channels) for m, _ in members), bool(np.all((fraction == 0.0) | (fraction == 1.0)))),
        tuple(c for m, _ in members for c in m.channels),
        interval,
        fraction,
        np.where(present, values, 0.0),
        present.astype(float),
        emphasis,
        np.concatenate(stds),
        _correlation([(m.correlation, len(m.channels)) for m, _ in members]),
    )


def _correlation(parts: list[tuple[np.ndarray | None, int]]) -> np.ndarray | None:
    """Of all channels of a group: those of different sensors are not correlated."""
    if all(C is None for C, _ in parts):
        return None
    return np.asarray(scipy.linalg.block_diag(*(np.eye(c) if C is None else C for C, c in parts)))


def _channel(experiment: Experiment, name: str) -> Channel:
    if name not in experiment.log.channels:
        raise unknown(f"channel (of log '{experiment.log.name}')", name, experiment.log.names)
    return experiment.log[name]


def _held(channel: Channel, t: np.ndarray, hold: str, who: str, name: str) -> np.ndarray:
    """One value a step (or a time, interpolated); gaps longer than a step and twice the usual one are refused."""
    good = np.isfinite(channel.values)
    time, values = channel.time[good], channel.values[good]
    if not len(time):
        raise MechidError(f"Channel '{name}' of experiment '{who}' has no values.")
    usual = np.median(np.diff(channel.time)) if len(channel.time) > 1 else np.inf
    step = t[1] - t[0] if len(t) > 1 else 0.0
    allowed = max(2.5 * usual, step) * (1 + 1e-9)
    for i in np.flatnonzero(np.diff(time) > allowed):
        a, b = time[i], time[i + 1]
        if b > t[0] and a < t[-1]:
            raise MechidError(
                f"Channel '{name}' of experiment '{who}' has a gap from {a:g} to {b:g} s: what acted there is not "
                "known; fill it (Log.filled, or fill in a study file) or take a span without it."
            )
    if time[0] > t[0] + allowed or time[-1] < t[-1] - allowed:
        raise MechidError(
            f"Channel '{name}' of experiment '{who}' covers {time[0]:g} … {time[-1]:g} s, not the span "
            f"{t[0]:g} … {t[-1]:g} s: take a shorter span."
        )
    if hold == "interpolated":
        return np.interp(t, time, values)
    if hold == "end":
        return np.interp(t[1:], time, values)
    if hold == "midpoint":
        return np.interp((t[:-1] + t[1:]) / 2, time, values)
    if hold == "mean":
        # the integral of the interpolated signal, exactly at each step's ends
        knots = np.union1d(time, np.clip(t, time[0], time[-1]))
        fine = np.interp(knots, time, values)
        total = np.concatenate([[0.0], np.cumsum(np.diff(knots) * (fine[1:] + fine[:-1]) / 2)])
        ends = np.interp(np.clip(t, time[0], time[-1]), knots, total)
        width = np.diff(np.clip(t, time[0], time[-1]))
        return np.where(
            width > 0, np.diff(ends) / np.where(width > 0, width, 1.0), np.interp(t[:-1], time, values)
        )
    at = np.searchsorted(time, t[:-1] + NEAR * np.diff(t), side="right") - 1
    return values[np.maximum(at, 0)]
