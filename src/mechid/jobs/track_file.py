"""`read_track`: what a file for `mechid track` asks for: a form, bounds, columns of channels, how to track.

    asked = read_track(Path("joint.toml"))
    asked.tracker.start()

Keys: docs/tracking.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mechid.data.units import same_dimension, to_si
from mechid.errors import choices, unknown
from mechid.estimate.joint_form import FrictionForm, JointForm
from mechid.estimate.linear_form import LinearForm, MechanismForm
from mechid.estimate.online import Tracker
from mechid.estimate.recursive import Forgetting
from mechid.estimate.separable import CRITERIA
from mechid.jobs.entries import Entry, EntryFile, read_entries
from mechid.jobs.lag import Derived
from mechid.jobs.study_file import read_mechanism_entry, read_parameters
from mechid.model.parameters import Parameters

FORMS = ("friction", "joint", "mechanism")
KEYS = ("form", "bounds", "parameters", "channels", "stream", "derivatives", "tracker", "output")
JOINT = ("J_in", "K_m", "ratio", "J_out", "T_g")
WHOLE = {"window": 10, "least": 2}
NUMBERS = ("rank_tolerance", "agreement", "precision", "threshold")
FORGETTING = ("memory", "alarm", "smoothing", "fastest")
RATES = (("_rate", "", 1), (" rate", " position", 1))
SECOND = (("_acc", "", "_rate"), (" acceleration", " position", " rate"))


@dataclass(frozen=True)
class Column:
    """Where a channel is in the stream."""

    name: str
    factor: float
    """to SI"""


@dataclass(frozen=True, eq=False)
class Asked:
    """A file for `mechid track` without mistakes."""

    file: EntryFile
    tracker: Tracker
    columns: dict[str, Column]
    """of channels, as far as they are given"""
    source: str
    time: str | None
    """column of the time; None where samples come at `rate`"""
    rate: float
    header: tuple[str, ...]
    """columns of a CSV stream that has no header"""
    window: int
    """samples over which derivatives are taken"""
    degree: int
    every: int
    """samples from one estimate written to the next"""
    save: float
    """s from one saved state to the next"""

    @property
    def expected(self) -> tuple[str, ...]:
        """Columns without which a stream cannot be followed: the time's, and those of channels not derived."""
        channels = self.tracker.form.channels
        named = [c for c in channels if c in self.columns]
        own = [c for c in channels if c not in named and c != "time" and not origin(c, channels)]
        time = [] if self.time is None else [self.time]
        return (*time, *(self.columns[c].name if c in named else c for c in channels if c in (*named, *own)))


def read_track(path: Path, changes: Sequence[str] = ()) -> Asked:
    """What a file asks for; `changes` are key=value in the place of its own entries."""
    file = read_entries(path, changes)
    given = file.root.table(KEYS, needs=("form",))
    form = _form(file.root)
    tracker = _tracker(form, given.get("bounds"), given.get("tracker"))
    stream = _table(given.get("stream"), ("source", "time", "rate", "columns"))
    derivatives = _table(given.get("derivatives"), ("window", "degree"))
    output = _table(given.get("output"), ("every", "save"))
    if "rate" in stream and "time" in stream:
        raise stream["rate"].error("Give the time's column or the rate, not both.")
    columns = _columns(given.get("channels"), form)
    header = tuple(stream["columns"].texts()) if "columns" in stream else ()
    if len(set(header)) < len(header):
        raise stream["columns"].error("Columns must have names of their own.")
    window = derivatives["window"].whole(3) if "window" in derivatives else 21
    if window % 2 == 0:
        raise derivatives["window"].error(f"'window' must be an odd number of samples, not {window}.")
    degree = derivatives["degree"].whole(2) if "degree" in derivatives else 3
    if degree >= window:
        where = derivatives.get("degree") or derivatives["window"]
        raise where.error(f"'degree' must be below the window's {window} samples, not {degree}.")
    return Asked(
        file,
        tracker,
        columns,
        stream["source"].text() if "source" in stream else "-",
        None if "rate" in stream else stream["time"].text() if "time" in stream else "t",
        stream["rate"].number(above=0.0) if "rate" in stream else np.nan,
        header,
        window,
        degree,
        output["every"].whole() if "every" in output else 100,
        output["save"].number(least=0.0) if "save" in output else 2.0,
    )


def _table(entry: Entry | None, valid: Sequence[str]) -> dict[str, Entry]:
    return {} if entry is None else entry.table(valid)


def _form(root: Entry) -> LinearForm:
    entry = root["form"]
    valid = ("kind", "delta_S", *JOINT, "model", "actuators")
    given = entry.table(valid, needs=("kind",))
    kind = given["kind"].text(FORMS, "kind of form")
    if kind == "mechanism":
        for key in given:
            if key not in ("kind", "model", "actuators"):
                raise given[key].error(f"A mechanism has no key '{key}'; valid: kind, model, actuators.")
        entry.table(None, needs=("model",))
        root.table(None, needs=("parameters",))
        _, mechanism = read_mechanism_entry(entry)
        free: Parameters = read_parameters(root["parameters"], mechanism)
        with entry.blamed():
            return MechanismForm(free)
    if "parameters" in root:
        raise root["parameters"].error(f"[parameters] belongs to a mechanism, not to a {kind} form.")
    own = ("kind", "delta_S", *(JOINT if kind == "joint" else ()))
    for key in given:
        if key not in own:
            raise given[key].error(f"A {kind} form has no key '{key}'; valid: {choices(own)}.")
    options: dict[str, Any] = {}
    if "delta_S" in given:
        free_delta = given["delta_S"].value == "free"
        options["delta_S"] = None if free_delta else given["delta_S"].number(above=0.0)
    options |= {key: given[key].number() for key in JOINT if key in given}
    with entry.blamed():
        return JointForm(**options) if kind == "joint" else FrictionForm(**options)


def _tracker(form: LinearForm, bounds: Entry | None, entry: Entry | None) -> Tracker:
    given = _table(entry, (*WHOLE, *NUMBERS, *FORGETTING, "noise", "criterion", "delay"))
    options: dict[str, Any] = {"delay": 500}
    limits = {} if bounds is None else bounds.table(form.nonlinear)
    if limits or bounds is not None:
        options["bounds"] = {name: _bounds(form, name, e) for name, e in limits.items()}
    options |= {key: given[key].whole(least) for key, least in WHOLE.items() if key in given}
    options |= {key: given[key].number(above=0.0) for key in NUMBERS if key in given}
    rule = {key: given[key].number(finite=key != "memory") for key in FORGETTING if key in given}
    if "noise" in given:
        limits = given["noise"].table(form.outputs, needs=form.outputs)
        options["noise"] = tuple(limits[name].number(above=0.0) for name in form.outputs)
    if "criterion" in given:
        options["criterion"] = given["criterion"].text(CRITERIA)
    if "delay" in given:
        ready = given["delay"].value == "ready"
        options["delay"] = None if ready else given["delay"].whole(0)
    blamed = entry or bounds
    if blamed is None:
        return Tracker(form, **options)
    with blamed.blamed():
        return Tracker(form, forgetting=Forgetting(**rule), **options)


def _bounds(form: LinearForm, name: str, entry: Entry) -> tuple[float, ...]:
    """Bounds of a nonlinear number, above zero where it must be."""
    low, high = entry.numbers(2, finite=False)
    if name in getattr(form, "positive", ()) and not low > 0.0:
        raise entry.error(f"The bounds of {name} must be > 0, not [{low:g}, {high:g}].")
    return low, high


def _columns(entry: Entry | None, form: LinearForm) -> dict[str, Column]:
    made = {}
    for name, e in (entry.table() if entry is not None else {}).items():
        if name not in form.channels:
            raise e.error(unknown("channel", name, form.channels))
        if isinstance(e.value, str):
            made[name] = Column(e.value, 1.0)
            continue
        given = e.table(("column", "unit"), needs=("column",))
        factor = 1.0
        if "unit" in given:
            with given["unit"].blamed():
                factor, unit = to_si(given["unit"].text())
            own = getattr(form, "channel_units", (None,) * len(form.channels))[form.channels.index(name)]
            if own is not None and not same_dimension(unit, own):
                raise given["unit"].error(
                    f"'{name}' is in {own}, which {given['unit'].text()} cannot be converted into."
                )
        made[name] = Column(given["column"].text(), factor)
    return made


class Chosen(NamedTuple):
    """Where the channels of a form come from."""

    taken: dict[str, Column]
    """by channel"""
    derived: list[Derived]


def chosen_columns(asked: Asked, columns: Sequence[str]) -> Chosen:
    """Columns of a stream for channels, and what the channels are derived from that have none."""
    channels = asked.tracker.form.channels
    taken = {}
    for name in channels:
        if name in asked.columns:
            taken[name] = asked.columns[name]
        elif name in columns and name != "time":
            taken[name] = Column(name, 1.0)
    derived = []
    for name in channels:
        if name in taken or name == "time":
            continue
        sources = [(s, order) for s, order in origin(name, channels) if s in taken]
        if not sources:
            entry = asked.file.root.get("channels") or asked.file.root
            raise entry.error(
                f"The stream has no column '{name}', and [channels] names none for it; "
                f"its columns: {', '.join(columns)}."
            )
        source, order = sources[0]
        derived.append(Derived(channels.index(name), channels.index(source), order))
    return Chosen(taken, derived)


def origin(name: str, channels: Sequence[str]) -> list[tuple[str, int]]:
    """From which channels another one can be derived, with the order of the derivative; the best first."""
    found = []
    for end, instead, order in RATES:
        if name.endswith(end):
            found.append((name.removesuffix(end) + instead, order))
    for end, place, rate in SECOND:
        if name.endswith(end):
            base = name.removesuffix(end)
            found += [(base + rate, 1), (base + place, 2)]
    return [(source, order) for source, order in found if source in channels]
