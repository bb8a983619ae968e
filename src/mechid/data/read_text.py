"""Tables in text: CSV and its kin.

Cells are parted by semicolons, tabs, commas or white space, whichever all lines agree on; with semicolons or tabs
numbers may have a decimal comma. Lines that begin with # are comments. A line of names may come first (also as the
comment before the first row, as NumPy writes it), and a line of units after it.

A whole table of numbers goes through NumPy's reader; only a file it does not take is read cell by cell, which
finds text columns and says which cell is no number.
"""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mechid.data.table import Table, content
from mechid.data.units import split_unit
from mechid.errors import MechidError

NOT_SAMPLED = "# mechid: an empty cell says that the channel was not sampled at that time"
"""the comment with which a text says so; without it an empty cell is a missing sample"""

_MISSING = {"", "nan", "null", "none", "na", "n/a", "-nan", "nan(ind)", "-nan(ind)"}
_WORDS = {"true": 1.0, "false": 0.0}
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?inf(inity)?", re.ASCII | re.IGNORECASE)
_SAMPLE = 20
"""lines that are looked at to find what parts cells"""


@dataclass(frozen=True)
class _Layout:
    """How the cells of a text are parted and what stands above its rows."""

    delimiter: str | None
    """None: white space"""
    heads: tuple[str, ...]
    units: tuple[str, ...] | None
    """a line of units under the names"""
    first: int
    """index of the line with the first row"""

    @property
    def decimal_comma(self) -> bool:
        return self.delimiter in (";", "\t")


def read_text(path: Path) -> Table:
    """The columns of a text file."""
    text, notes = _decoded(path)
    lines = text.split("\n")
    sparse = NOT_SAMPLED in lines[:_SAMPLE]
    try:
        layout = _layout(path, lines)
        body = lines[layout.first :]
        rows = _fast(body, layout, np.inf if sparse else np.nan)
        left_out: dict[str, str] = {}
        if rows is None:
            rows, left_out, cut = _cell_by_cell(path, body, layout, np.inf if sparse else np.nan)
            notes += cut
    except csv.Error as error:
        raise MechidError(f"'{path}' cannot be taken apart into cells: {error}.") from None
    names, units = _names(path, layout)
    columns, told = _without_nameless(names, layout, rows)
    if not sparse:
        columns, infinite = _finite(columns)
        told += infinite
    return Table(
        path,
        {name: c for name, c in columns.items() if name not in left_out},
        units,
        left_out,
        (*notes, *_odd_units(layout), *told),
        _placing(body, layout.first),
        sparse=sparse,
    )


def _decoded(path: Path) -> tuple[str, tuple[str, ...]]:
    """The text of a file with \\n between lines."""
    data = content(path)
    notes: tuple[str, ...] = ()
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        text = data.decode("utf-16", "replace")
    elif b"\0" in data[:4096]:
        raise MechidError(
            f"'{path}' is not text; logs are read from text (CSV), from NumPy's .npz and from MATLAB's .mat."
        )
    else:
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError:
            text = data.decode("cp1252", "replace")
            notes = ("The file is not UTF-8; it is read as Windows text (cp1252).",)
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text, notes


# What stands above the rows


def _layout(path: Path, lines: Sequence[str]) -> _Layout:
    held = (i for i, line in enumerate(lines) if line.strip() and not line.lstrip().startswith("#"))
    sample = [i for i, _ in zip(held, range(_SAMPLE), strict=False)]
    if not sample:
        raise MechidError(f"'{path}' has no rows.")
    delimiter = _delimiter([lines[i] for i in sample])
    comma = delimiter in (";", "\t")

    def cells(index: int) -> list[str]:
        return _cells(lines[index], delimiter)

    def numeric(found: list[str]) -> bool:
        return all(_is_number(cell, comma) for cell in found) and any(found)

    first, *others = sample
    if numeric(cells(first)):
        count = len(cells(first))
        heads = _commented(lines[:first], delimiter, count) or [f"c{i}" for i in range(count)]
        return _Layout(delimiter, tuple(heads), None, first)
    if not others:
        raise MechidError(f"'{path}' has no rows, only line {first + 1}, which holds no numbers.")
    line = re.sub(r"\s+(?=[\[(])", "", lines[first]) if delimiter is None else lines[first]
    heads = _cells(line, delimiter)
    under = cells(others[0])
    if (
        len(others) > 1
        and len(under) == len(heads)
        and not numeric(under)
        and any(under)
        and _all_units(under)
    ):
        return _Layout(delimiter, tuple(heads), tuple(under), others[1])
    return _Layout(delimiter, tuple(heads), None, others[0])


def _delimiter(sample: Sequence[str]) -> str | None:
    """What parts cells: what stands equally often in every line, else the first that stands in the first."""
    bare = [re.sub(r'"[^"]*"', "", line) for line in sample]
    for part in (";", "\t", ","):
        counts = {line.rstrip(part + " ").count(part) for line in bare}
        if len(counts) == 1 and counts != {0}:
            return part
    return next((part for part in (";", "\t", ",") if part in bare[0]), None)


def _cells(line: str, delimiter: str | None) -> list[str]:
    if '"' in line:
        found = next(csv.reader([line], delimiter=delimiter or " ", skipinitialspace=True))
        return [cell.strip() for cell in found]
    return [cell.strip() for cell in line.split(delimiter)]


def _commented(lines: Sequence[str], delimiter: str | None, count: int) -> list[str] | None:
    """Names in the comment just above the first row, where there is one for each column."""
    above = lines[-1].strip() if lines else ""
    if not above.startswith("#") or above == NOT_SAMPLED:
        return None
    found = _cells(above.lstrip("# "), delimiter)
    named = len(found) == count and all(found) and not any(_is_number(c, False) for c in found)
    return found if named and len(set(found)) == count else None


def _all_units(cells: Sequence[str]) -> bool:
    return all(split_unit(f"x [{cell.strip('[]()')}]")[1] is not None for cell in cells)


def _names(path: Path, layout: _Layout) -> tuple[list[str], dict[str, str]]:
    """The names of columns, and the units that are written with them."""
    names: list[str] = []
    units: dict[str, str] = {}
    for i, head in enumerate(layout.heads):
        name, unit = split_unit(head)
        name = name or f"c{i}"
        if layout.units is not None:
            unit = layout.units[i].strip("[]()") or unit
        if name in names:
            raise MechidError(
                f"'{path}' has two columns '{name}', the {names.index(name) + 1}. and the {i + 1}."
            )
        names.append(name)
        if unit is not None:
            units[name] = unit
    return names, units


def _odd_units(layout: _Layout) -> list[str]:
    """Notes on brackets in headers that hold no known unit and no index."""
    found = ((head, re.fullmatch(r".*\S\s*[\[(]([^\[\]()]+)[\])]", head)) for head in layout.heads)
    return [
        f"Column '{head}': '{odd[1]}' is no unit that is known, so its values are kept as they are."
        for head, odd in found
        if odd and split_unit(head)[1] is None and not odd[1].strip().isdigit()
    ]


# The rows


def _fast(body: Sequence[str], layout: _Layout, empty: float) -> np.ndarray | None:
    """(columns, rows) of a text that holds numbers only; None where it holds anything else."""
    found = None if layout.decimal_comma else _loaded(body, layout)
    if found is not None:
        return found
    text = "\n".join(body)
    if layout.decimal_comma:
        text = text.replace(",", ".")
    if layout.delimiter is not None:
        text = _with_empties(text, layout.delimiter, repr(empty))
    return _loaded(text.split("\n"), layout)


def _loaded(rows: Sequence[str], layout: _Layout) -> np.ndarray | None:
    quote = '"' if any('"' in row for row in rows[:_SAMPLE]) else None
    try:
        found = np.loadtxt(rows, delimiter=layout.delimiter, ndmin=2, quotechar=quote)
    except (ValueError, OverflowError):
        return None
    return found.T if found.shape[1] == len(layout.heads) else None


def _with_empties(text: str, delimiter: str, fill: str) -> str:
    """The text with something in every empty cell."""
    text = f"\n{text}\n"
    for _ in range(2):
        text = text.replace(delimiter * 2, f"{delimiter}{fill}{delimiter}")
    text = text.replace(f"{delimiter}\n", f"{delimiter}{fill}\n")
    return text.replace(f"\n{delimiter}", f"\n{fill}{delimiter}")[1:-1]


def _cell_by_cell(
    path: Path, body: Sequence[str], layout: _Layout, empty: float
) -> tuple[np.ndarray, dict[str, str], tuple[str, ...]]:
    """(columns, rows), the columns that hold text, and notes."""
    count = len(layout.heads)
    numbers, rows, notes = [], [], ()
    for number, line in enumerate(body, layout.first + 1):
        held = line.partition("#")[0]
        if not held.strip():
            continue
        cells = _cells(held, layout.delimiter)
        if len(cells) == count + 1 and not cells[-1]:
            cells.pop()
        if len(cells) != count:
            told = f"line {number} has {_counted(len(cells), 'cell')} for {_counted(count, 'column')}"
            # the last line of a recording that was stopped has no end
            if number == layout.first + len(body) and len(cells) < count and rows:
                notes = (f"The last {told}: it is cut off and left out.",)
                break
            raise MechidError(f"'{path}', {told}.")
        numbers.append(number)
        rows.append(cells)
    names = _names(path, layout)[0]
    left_out: dict[str, str] = {}
    columns = np.full((count, len(rows)), np.nan)
    for i, cells in enumerate(zip(*rows, strict=True)):
        wrong = _fill(columns[i], cells, layout.decimal_comma, empty)
        if wrong is None:
            continue
        if not np.isnan(columns[i]).all():
            raise MechidError(
                f"'{path}', line {numbers[wrong]}, column '{names[i]}': '{cells[wrong]}' is no number."
            )
        left_out[names[i]] = f"holds text ('{cells[wrong]}' in line {numbers[wrong]})"
    return columns, left_out, notes


def _fill(column: np.ndarray, cells: Sequence[str], comma: bool, empty: float) -> int | None:
    """Write the numbers of a column; the row of the first cell that is none."""
    wrong = None
    for row, cell in enumerate(cells):
        value = empty if not cell else _number(cell, comma)
        if value is None:
            wrong = row if wrong is None else wrong
        else:
            column[row] = value
    return wrong


def _number(cell: str, comma: bool) -> float | None:
    if _NUMBER.fullmatch(cell):
        return float(cell)
    small = cell.lower()
    if small in _MISSING:
        return np.nan
    if small in _WORDS:
        return _WORDS[small]
    if comma and "," in cell:
        return _number(cell.replace(",", ".", 1), False)
    return None


def _is_number(cell: str, comma: bool) -> bool:
    return _number(cell, comma) is not None


def _without_nameless(
    names: Sequence[str], layout: _Layout, rows: np.ndarray
) -> tuple[dict[str, np.ndarray], list[str]]:
    """The columns by name, less those that have neither a name nor a number: lines that end in a comma."""
    kept = [i for i, head in enumerate(layout.heads) if head or np.isfinite(rows[i]).any()]
    named = [f"A column without a name is called '{names[i]}'." for i in kept if not layout.heads[i]]
    return {names[i]: np.ascontiguousarray(rows[i]) for i in kept}, named


def _finite(columns: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], list[str]]:
    """Columns with infinite values as missing ones, and notes that say so."""
    infinite = {name: int(np.isinf(c).sum()) for name, c in columns.items()}
    notes = [
        f"Column '{name}': {_counted(count, 'infinite value')} taken as missing."
        for name, count in infinite.items()
        if count
    ]
    return {n: np.where(np.isinf(c), np.nan, c) if infinite[n] else c for n, c in columns.items()}, notes


def _placing(body: Sequence[str], first: int) -> Callable[[int], str]:
    """From the index of a row to words for its line; worked out when something is wrong with it."""

    def place(row: int) -> str:
        held = (i for i, line in enumerate(body, first + 1) if line.partition("#")[0].strip())
        return f"line {next(number for k, number in enumerate(held) if k == row)}"

    return place


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
