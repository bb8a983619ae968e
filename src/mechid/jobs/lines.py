"""Lines of a stream as samples, CSV or JSON by the first line; what is neither is counted, never fatal."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mechid.errors import MechidError, unknown

LONGEST = 1 << 20
"""bytes of a line at most"""


class Garbage(Exception):
    """A line that holds no sample; the text says why."""


@dataclass
class Lines:
    """Makes samples of lines. `columns` and `kind` follow from the first line that is a header or an object."""

    time: str | None
    """column of the time, s; None where samples are counted"""
    rate: float
    """samples a second where they are counted"""
    kind: str = ""
    """csv or json; empty before the first line"""
    columns: tuple[str, ...] = ()
    separator: str = ","
    header: str = ""
    """the header's text, which a stream that begins again sends again"""
    wanted: tuple[str, ...] = field(default=())
    """columns of which a sample is made, set by `choose`"""
    _places: tuple[int, ...] = ()
    _clock: int = -1

    def open(self, text: str, given: Sequence[str] = ()) -> bool:
        """Reads the first line that says something. Whether it is a header, and no sample, is returned.

        given: columns of a CSV stream without a header.
        """
        if text.startswith("{"):
            made = _object(text)
            self.kind, self.columns = "json", tuple(made)
            return False
        for separator in (",", ";", "\t"):
            if separator in text:
                self.separator = separator
                break
        cells = tuple(cell.strip().strip('"') for cell in text.split(self.separator))
        numbers = sum(_is_number(cell) for cell in cells)
        if given:
            if numbers == 0 and cells == tuple(given):
                self.kind, self.columns, self.header = "csv", cells, text
                return True
            if len(cells) != len(given) or numbers < len(cells):
                raise Garbage(f"{len(given)} numbers were expected")
            self.kind, self.columns = "csv", tuple(given)
            return False
        if numbers or len(set(cells)) < len(cells) or not all(cells):
            raise Garbage("neither a header nor a JSON object")
        self.kind, self.columns, self.header = "csv", cells, text
        return True

    def only_numbers(self, text: str) -> bool:
        """Whether a line is a row of a CSV stream without a header."""
        cells = text.split(self.separator)
        return len(cells) > 1 and all(map(_is_number, cells)) and any(cell.strip() for cell in cells)

    def forget(self) -> None:
        """The line that was opened last was neither a header nor a sample after all."""
        self.kind, self.columns, self.separator, self.header = "", (), ",", ""

    def choose(self, wanted: Sequence[str]) -> None:
        """Says which columns a sample is made of; they must be there."""
        for name in (*([self.time] if self.time is not None else []), *wanted):
            if name not in self.columns:
                raise unknown("column of the stream", name, self.columns)
        self.wanted = tuple(wanted)
        self._places = tuple(self.columns.index(name) for name in wanted)
        self._clock = -1 if self.time is None else self.columns.index(self.time)

    def sample(self, text: str) -> tuple[float, list[float]]:
        """Time (nan where samples are counted) and numbers of a line, nan where missing; or Garbage is raised."""
        if self.kind == "json":
            return self._from_object(_object(text))
        cells = text.split(self.separator)
        if len(cells) != len(self.columns):
            raise Garbage(f"{len(cells)} cells instead of {len(self.columns)}")
        time = math.nan if self._clock < 0 else _number(cells[self._clock], "time")
        if self._clock >= 0 and math.isnan(time):
            raise Garbage("no time")
        return time, [
            _number(cells[place], name) for place, name in zip(self._places, self.wanted, strict=True)
        ]

    def _from_object(self, made: Mapping[str, Any]) -> tuple[float, list[float]]:
        time = math.nan
        if self.time is not None:
            time = _plain(made.get(self.time), self.time)
            if math.isnan(time):
                raise Garbage("no time")
        return time, [_plain(made.get(name), name) for name in self.wanted]


def _object(text: str) -> dict[str, Any]:
    try:
        made = json.loads(text)
    except (ValueError, RecursionError):
        raise Garbage("no JSON") from None
    if not isinstance(made, dict):
        raise Garbage("no JSON object")
    return made


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return not cell
    return True


def _number(cell: str, name: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        if not cell.strip():
            return math.nan
        raise Garbage(f"{name} is no number") from None
    return _finite(value, name)


def _plain(value: Any, name: str) -> float:
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Garbage(f"{name} is no number")
    try:
        return _finite(float(value), name)
    except OverflowError:
        raise Garbage(f"{name} is too large") from None


def _finite(value: float, name: str) -> float:
    if math.isinf(value) or abs(value) > 1e100:
        raise Garbage(f"{name} is too large")
    return value


def as_columns(values: Sequence[str]) -> tuple[str, ...]:
    """Column names that a file gives, all different."""
    if len(set(values)) < len(values):
        raise MechidError("Columns must have names of their own.")
    return tuple(values)
