"""A stream through a tracker: the course of all numbers and errors, what happened, and how long it took."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mechid.estimate.online import Tracker, Tracking
from mechid.estimate.online_parts import STARTING, Event, excited
from mechid.files import replacing
from mechid.studies.joint_friction_streams import Stream

EVERY = 20
"""samples from one kept estimate to the next"""


@dataclass(frozen=True, eq=False)
class Followed:
    """What a tracker made of a stream."""

    tracking: Tracking
    stream: Stream
    at: np.ndarray
    """numbers of the samples after which estimates are kept"""
    values: np.ndarray
    """(kept, names) nan while starting"""
    std: np.ndarray
    """(kept, names) as the tracker gave it then; ∞ while changing"""
    error: np.ndarray
    """(samples, outputs) measured − predicted before the sample was taken in; nan while starting"""
    events: tuple[Event, ...]
    seconds: float
    """of the processor, for all updates and searches"""

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.tracking.form.names, *self.tracking.form.nonlinear)

    def values_at(self, moment: float) -> dict[str, float]:
        """The last estimate before a moment (s)."""
        return dict(zip(self.names, self.values[self._before(moment)].tolist(), strict=True))

    def std_at(self, moment: float) -> dict[str, float]:
        """Its standard deviations."""
        return dict(zip(self.names, self.std[self._before(moment)].tolist(), strict=True))

    def _before(self, moment: float) -> int:
        return int(np.searchsorted(self.stream.time[self.at], moment, side="left")) - 1


def followed(tracker: Tracker, stream: Stream) -> Followed:
    """The stream's samples one by one; searches are part of the time."""
    tracking, form = tracker.start(), tracker.form
    times, samples = stream.time.tolist(), stream.samples.tolist()
    # errors are looked at in this many batches of θ, apart from the time that counts
    events: list[Event] = []
    kept, values, std = [], [], []
    seconds = 0.0
    for first in range(0, len(times), EVERY):
        clock = time.process_time()
        for i in range(first, min(first + EVERY, len(times))):
            report = tracking.update(times[i], samples[i])
            if report.events:
                events += report.events
        seconds += time.process_time() - clock
        kept.append(min(first + EVERY, len(times)) - 1)
        values.append(list(tracking.values.values()))
        std.append(list(tracking.std.values()))
    at, course = np.array(kept), np.array(values)
    error = np.full((len(times), len(form.outputs)), np.nan)
    n = len(form.names)
    for i in range(len(at) - 1):
        here = slice(at[i] + 1, at[i + 1] + 1)
        if np.isfinite(course[i]).all():
            phi, y = form.rows(stream.samples[here], course[i, n:])
            error[here] = y - phi @ course[i, :n]
    tracking.close()
    return Followed(tracking, stream, at, course, np.array(std), error, tuple(events), seconds)


def full_rank_after(form: Any, stream: Stream, omega: np.ndarray, tolerance: float) -> float:
    """s after which φ has full rank: its smallest singular value is that part of the largest."""
    for count in range(100, len(stream.time) + 1, 100):
        phi, _ = form.rows(stream.samples[:count], omega)
        R = np.asarray(np.linalg.qr(phi.reshape(-1, phi.shape[-1]), mode="r"))
        if len(R) == phi.shape[-1] and excited(R) >= tolerance:
            return float(stream.time[count - 1])
    return float("nan")


def errors_told(f: Followed, velocity: np.ndarray) -> dict[str, float]:
    """Shares of the errors below 5 % of the largest torque, the largest error, and the speed at which it was."""
    _, y = f.tracking.form.rows(f.stream.samples, f.tracking.omega)
    relative = np.abs(f.error[:, 0]) / np.abs(y[:, 0]).max()
    there = np.isfinite(relative)
    worst = int(np.nanargmax(np.where(there, relative, np.nan)))
    return {
        "below_5_percent": float(np.mean(relative[there] < 0.05)),
        "largest": float(relative[worst]),
        "largest_at": float(f.stream.time[worst]),
        "speed_there": float(abs(velocity[worst])),
    }


def as_json(event: Event) -> dict[str, Any]:
    """An event for a program."""
    changed = {name: list(pair) for name, pair in event.changed.items()}
    return {**event._asdict(), "changed": changed}


def draw(f: Followed, path: Path, groups: list[tuple[str, tuple[str, ...]]], output: str) -> None:
    """Estimates of groups of numbers over time, dashed what they were made with, and the error below."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        len(groups) + 1, 1, sharex=True, figsize=(9, 2.1 * (len(groups) + 1)), layout="constrained"
    )
    t = f.stream.time
    for axis, (label, names) in zip(axes[:-1], groups, strict=True):
        for i, name in enumerate(names):
            course = f.values[:, f.names.index(name)]
            axis.plot(t[f.at], course, color=f"C{i}", lw=1.2, label=name)
            truth = f.stream.truth[name]
            axis.plot(t[f.at], truth[f.at], color=f"C{i}", lw=0.9, ls="--")
            low, high = truth.min(), truth.max()
            size = max(abs(low), abs(high))
            axis.set_ylim(
                min(low - 0.25 * size, axis.get_ylim()[0] if i else np.inf),
                max(high + 0.25 * size, axis.get_ylim()[1] if i else -np.inf),
            )
        axis.set_ylabel(label)
        axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize="small", frameon=False)
        axis.grid(alpha=0.3)
    for i, name in enumerate(f.tracking.form.outputs):
        axes[-1].plot(t, f.error[:, i], lw=0.5, label=name)
    axes[-1].set_ylabel(output)
    axes[-1].set_xlabel("time (s)")
    axes[-1].grid(alpha=0.3)
    for axis in axes:
        for event in f.events:
            if event.kind in ("changed", "search"):
                axis.axvline(event.time, color="0.6", lw=0.7, ls="-" if event.mcs else ":")
    axes[0].set_title(
        "estimates; dashed: what the stream was made with; dotted lines: told changes", loc="left"
    )
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=130)
    plt.close(figure)


def started(f: Followed) -> float:
    """s when the start was over; nan if it never was."""
    return next((e.time for e in f.events if e.kind == "started"), float("nan"))


def is_tracking(f: Followed) -> bool:
    """Whether the start was over."""
    return f.tracking.mode != STARTING
