"""`Table`: named columns as a file gives them, before anything is known of time."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from mechid.errors import MechidError


@dataclass(frozen=True, eq=False)
class Table:
    """Columns of a file in the units of its headers."""

    path: Path
    columns: Mapping[str, np.ndarray]
    """(n,) or (n, k) floats; NaN = missing"""
    units: Mapping[str, str]
    """units that headers name"""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """columns that are no numbers, each with a phrase that says what they are"""
    notes: tuple[str, ...] = ()
    place: Callable[[int], str] = lambda row: f"row {row}"
    """where a row stands in the file"""
    grouped: bool = False
    """names have dots and columns are timed by the time of their group, as in MATLAB's structs"""
    sparse: bool = False
    """an infinite value stands for a channel that was not sampled then"""

    def error(self, sentence: str) -> MechidError:
        return MechidError(f"'{self.path}'{sentence}")


def given_path(path: str | os.PathLike[str]) -> Path:
    try:
        return Path(os.fspath(path))  # pyright: ignore[reportArgumentType]
    except TypeError:
        raise MechidError(f"A file's name is needed, not {path!r}.") from None


def content(path: Path) -> bytes:
    """What a file holds."""
    try:
        if path.is_dir():
            raise MechidError(f"'{path}' is a folder, not a log.")
        return path.read_bytes()
    except FileNotFoundError:
        raise MechidError(f"There is no file '{path}'.") from None
    except (OSError, ValueError) as error:
        raise MechidError(f"'{path}' cannot be read: {getattr(error, 'strerror', None) or error}.") from None
