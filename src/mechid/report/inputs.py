"""What the command line says of a start and of inputs: NAME=VALUE, and tables of inputs over time."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mechid.errors import MechidError, choices, unknown
from mechid.report.export import MARKS


def assignments(option: str, kind: str, given: Iterable[str], valid: Sequence[str]) -> dict[str, float]:
    """Numbers by name from texts NAME=VALUE."""
    numbers: dict[str, float] = {}
    for text in given:
        # the last = parts, for names that hold one
        name, equals, value = text.rpartition("=")
        if not equals or not name:
            raise MechidError(f"{option} takes NAME=VALUE, not '{text}'. Names: {choices(valid)}.")
        if name not in valid:
            raise unknown(kind, name, valid)
        if name in numbers:
            raise MechidError(f"{option} gives '{name}' twice.")
        numbers[name] = _number(value, f"{option} {name}")
    return numbers


def _number(text: str, what: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise MechidError(f"{what} takes a number, not '{text}'.") from None
    if not np.isfinite(value):
        raise MechidError(f"{what} takes a finite number, not '{text}'.")
    return value


@dataclass(frozen=True)
class InputTable:
    """Inputs over time, as a file gives them."""

    path: Path
    t: np.ndarray
    values: dict[str, np.ndarray]

    def at(self, times: np.ndarray, *, linear: bool) -> dict[str, np.ndarray]:
        """Values at times: of the row before, or between rows in a straight line. After the end the last one."""
        if linear:
            return {name: np.interp(times, self.t, column) for name, column in self.values.items()}
        # a time that is a row's but for rounding is that row's
        slack = 1e-9 * max(1.0, abs(float(self.t[-1])))
        before = np.searchsorted(self.t, times + slack, side="right") - 1
        return {name: column[before] for name, column in self.values.items()}


def read_inputs(path: Path, valid: Sequence[str]) -> InputTable:
    """A table with a column t and a column for each input that it gives; what `--out` writes is one too."""
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            lines = [
                (i, row) for i, row in enumerate(csv.reader(file), 1) if any(cell.strip() for cell in row)
            ]
    except FileNotFoundError:
        raise MechidError(f"--inputs: there is no file '{path}'.") from None
    except UnicodeDecodeError:
        raise MechidError(f"--inputs: '{path}' is not UTF-8 text.") from None
    except (OSError, csv.Error) as error:
        raise MechidError(
            f"--inputs: '{path}' cannot be read: {getattr(error, 'strerror', error)}."
        ) from None
    if len(lines) < 2:
        raise MechidError(f"--inputs: '{path}' needs a line of column names and at least one row.")
    names = _names(path, [cell.strip() for cell in lines[0][1]], valid)
    rows = np.array([_row(path, line, row, names) for line, row in lines[1:]])
    t = rows[:, names.index("t")]
    late = np.flatnonzero(np.diff(t) <= 0.0)
    if len(late):
        line = lines[late[0] + 2][0]
        raise MechidError(f"--inputs: '{path}', line {line}: t does not increase.")
    if t[0] > 0.0:
        raise MechidError(f"--inputs: '{path}' begins at t = {t[0]:g} s, the simulation at 0.")
    return InputTable(path, t, {n: rows[:, i] for i, n in enumerate(names) if n in valid})


def _names(path: Path, heads: list[str], valid: Sequence[str]) -> list[str]:
    """Column names, inputs without the mark u/; columns of coordinates, rates and frames are passed over."""
    names = [h.removeprefix("u/") if h.removeprefix("u/") in valid else h for h in heads]
    if "t" not in names:
        raise MechidError(f"--inputs: '{path}' has no column t; it has {choices(names)}.")
    for name in names:
        if names.count(name) > 1:
            raise MechidError(f"--inputs: '{path}' has two columns '{name}'.")
        passed = name.startswith(MARKS) and not name.startswith("u/")
        if name != "t" and name not in valid and not passed:
            raise unknown(f"input (a column of '{path}')", name, valid)
    if not any(name in valid for name in names):
        raise MechidError(f"--inputs: '{path}' has no column of an input; valid: {choices(valid)}.")
    return names


def _row(path: Path, line: int, row: list[str], names: list[str]) -> list[float]:
    if len(row) != len(names):
        raise MechidError(f"--inputs: '{path}', line {line} has {len(row)} cells for {len(names)} columns.")
    numbers = []
    for name, cell in zip(names, row, strict=True):
        try:
            value = float(cell)
        except ValueError:
            value = np.nan
        if not np.isfinite(value):
            raise MechidError(
                f"--inputs: '{path}', line {line}, column '{name}': '{cell.strip()}' is no finite number."
            )
        numbers.append(value)
    return numbers
