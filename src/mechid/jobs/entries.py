"""A TOML file whose entries know where they stand, so that a mistake is told with its line.

file = read_entries(Path("study.toml"), changes=["stepper.dt=0.001"])
file.root["stepper"]["dt"].number(above=0.0)      # or: study.toml, line 7: 'dt' must be a number > 0, not 'x'.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path as File
from typing import Any

from mechid.errors import MechidError, choices, unknown
from mechid.jobs.toml_lines import Path, key_lines


class PlacedError(MechidError):
    """A mistake that is told with its line already."""


@dataclass(frozen=True, eq=False)
class EntryFile:
    """A TOML file, read, with the changes of the command line."""

    path: File
    text: str
    data: dict[str, Any]
    lines: dict[Path, int]
    changes: tuple[str, ...] = ()
    changed: dict[Path, str] = field(default_factory=dict)
    """entries that the command line gave, with its words"""

    @property
    def root(self) -> Entry:
        return Entry(self, (), self.data)

    def place(self, path: Path) -> str:
        """Where an entry stands; for one that is not there, what it would stand in."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.changed:
                return f"--set {self.changed[path[:length]]}"
            if path[:length] in self.lines:
                return f"{self.path}, line {self.lines[path[:length]]}"
        return str(self.path)


@dataclass(frozen=True, eq=False)
class Entry:
    """A value of the file."""

    file: EntryFile
    path: Path
    value: Any

    @property
    def key(self) -> str:
        return str(next((p for p in reversed(self.path) if isinstance(p, str)), ""))

    @property
    def title(self) -> str:
        """What a sentence calls it."""
        if not self.path:
            return "the study"
        if len(self.path) == 1 and isinstance(self.value, dict):
            return f"[{self.key}]"
        if len(self.path) == 2 and isinstance(self.path[1], int) and isinstance(self.value, dict):
            return f"[[{self.key}]]"
        return f"'{self.key}'"

    def error(self, sentence: object) -> MechidError:
        return PlacedError(f"{self.file.place(self.path)}: {sentence}")

    @contextmanager
    def blamed(self) -> Iterator[None]:
        """Tell mistakes that are found meanwhile with this entry's line, where they have none."""
        try:
            yield
        except PlacedError:
            raise
        except MechidError as error:
            raise self.error(error) from None

    # What it holds

    def __contains__(self, key: str) -> bool:
        return key in self.value

    def __getitem__(self, key: str | int) -> Entry:
        return Entry(self.file, (*self.path, key), self.value[key])

    def get(self, key: str) -> Entry | None:
        return self[key] if key in self.value else None

    def table(self, valid: Sequence[str] | None = None, needs: Sequence[str] = ()) -> dict[str, Entry]:
        """Its entries by key, all of them valid and none missing."""
        if not isinstance(self.value, dict):
            raise self._wrong("a table")
        for key in self.value:
            if valid is not None and key not in valid:
                raise self[key].error(unknown(f"key of {self.title}", key, valid))
        for key in needs:
            if key not in self.value:
                raise self.error(f"{self.title[0].upper()}{self.title[1:]} needs the key '{key}'.")
        return {key: self[key] for key in self.value}

    def list(self, of: str = "a list") -> list[Entry]:
        if not isinstance(self.value, list):
            raise self._wrong(of)
        return [self[i] for i in range(len(self.value))]

    def tables(self) -> list[Entry]:
        """One table or a list of them."""
        return [self] if isinstance(self.value, dict) else self.list("a table or a list of tables")

    def text(self, valid: Sequence[str] | None = None, noun: str = "") -> str:
        if not isinstance(self.value, str):
            raise self._wrong("a text")
        if valid is not None and self.value not in valid:
            raise self.error(unknown(noun or self.key, self.value, valid))
        return self.value

    def texts(self) -> list[str]:
        """One text or a list of them."""
        if isinstance(self.value, str):
            return [self.value]
        found = self.list("a text or a list of texts")
        if not found:
            raise self.error(f"{self.title} is empty.")
        return [e.text() for e in found]

    def number(self, *, above: float | None = None, least: float | None = None, finite: bool = True) -> float:
        least_text = "" if least is None else f" ≥ {least:g}"
        kind = f"a number > {above:g}" if above is not None else f"a number{least_text}"
        good = isinstance(self.value, int | float) and not isinstance(self.value, bool)
        good = good and not math.isnan(self.value) and not (finite and math.isinf(self.value))
        good = good and (above is None or self.value > above) and (least is None or self.value >= least)
        if not good:
            raise self._wrong(kind)
        return float(self.value)

    def numbers(self, count: int | None = None, *, finite: bool = True) -> list[float]:
        what = "a list of numbers" if count is None else f"a list of {count} numbers"
        found = self.list(what)
        if count is not None and len(found) != count:
            raise self._wrong(what)
        return [e.number(finite=finite) for e in found]

    def whole(self, least: int = 1) -> int:
        if not isinstance(self.value, int) or isinstance(self.value, bool) or self.value < least:
            raise self._wrong(f"a whole number ≥ {least}")
        return self.value

    def _wrong(self, wanted: str) -> MechidError:
        return self.error(f"'{self.key}' must be {wanted}, not {shown(self.value)}.")


def shown(value: Any) -> str:
    """A value as a sentence shows it."""
    if isinstance(value, dict):
        return f"a table with {choices(value)}" if value else "an empty table"
    if isinstance(value, list):
        return f"[{', '.join(map(shown, value[:4]))}{', …' if len(value) > 4 else ''}]"
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if isinstance(value, str | int | float) else str(value)


# Reading


def read_entries(path: File, changes: Sequence[str] = ()) -> EntryFile:
    """The file's entries, with those that the command line gives in the place of its own."""
    text = _text(path)
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _no_toml(path, str(error)) from None
    except RecursionError:
        raise MechidError(f"{path}: its arrays are nested too deeply.") from None
    changed: dict[Path, str] = {}
    for change in changes:
        _merge(data, _parsed(change), (), change, changed)
    return EntryFile(path, text, data, key_lines(text), tuple(changes), changed)


def _text(path: File) -> str:
    try:
        if path.is_dir():
            raise MechidError(f"'{path}' is a folder; a study is a TOML file.{_neighbours(path)}")
        # kept as it is but for what an editor may put in front
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise MechidError(f"There is no file '{path}'.{_neighbours(path.parent)}") from None
    except UnicodeDecodeError as error:
        raise MechidError(f"'{path}' is not UTF-8 text: byte {error.start} is not.") from None
    except OSError as error:
        raise MechidError(f"'{path}' cannot be read: {error.strerror or error}.") from None


def _neighbours(folder: File) -> str:
    found = sorted(p.name for p in folder.glob("*.toml")) if folder.is_dir() else []
    return f" TOML files there: {choices(found)}." if found else ""


def _no_toml(path: File, told: str) -> MechidError:
    place = re.search(r" \(at line (\d+), column (\d+)\)$", told)
    if place is None:
        return MechidError(f"{path} is no TOML: {told}.")
    return MechidError(f"{path}, line {place[1]}: no TOML at column {place[2]}: {told[: place.start()]}.")


def _parsed(change: str) -> dict[str, Any]:
    """key=value as TOML; a value that is none is a text."""
    key, _, value = change.partition("=")
    for text in (change, f"{key} = {_quoted(value.strip())}"):
        try:
            found = tomllib.loads(text)
        except (tomllib.TOMLDecodeError, RecursionError):
            continue
        if "=" in change and not change.lstrip().startswith("["):
            return found
    raise MechidError(
        f"--set takes key=value with a key of the study, as in stepper.dt=0.001, not '{change}'."
    )


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _merge(into: Any, new: dict[str, Any], path: Path, words: str, changed: dict[Path, str]) -> None:
    """Put new values in the place of those that are there, table by table; one of [[tables]] by number, from 0."""
    if isinstance(into, list) and len(into) == 1 and not all(key.isdigit() for key in new):
        new = {"0": new}
    for key, value in new.items():
        at: Any = key
        if isinstance(into, list):
            at = int(key) if key.isdigit() else -1
            if not 0 <= at < len(into):
                raise MechidError(
                    f"--set {words}: '{path[-1]}' takes a number from 0 to {len(into) - 1} here, not '{key}'."
                )
        old = into[at] if isinstance(into, list) else into.get(at)
        if isinstance(value, dict) and isinstance(old, dict | list):
            _merge(old, value, (*path, at), words, changed)
            continue
        into[at] = value
        changed[(*path, at)] = words
