"""Errors that a user can cause: one sentence each, naming the offender and what would have been valid."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable


class MechidError(Exception):
    """A mistake in the input, said in one sentence. The command line prints it and exits with 2."""

    def __init__(self, message: str) -> None:
        super().__init__(_one_line(message))


class SimulationError(MechidError):
    """A step that could not be solved. `trajectory` holds every step before it."""

    def __init__(self, message: str, trajectory: object | None = None) -> None:
        super().__init__(message)
        self.trajectory = trajectory


def choices(valid: Iterable[str], limit: int = 12) -> str:
    """A readable list of valid names, cut after `limit`."""
    names = list(valid)
    if not names:
        return "(there are none)"
    shown = ", ".join(names[:limit])
    return shown if len(names) <= limit else f"{shown}, … ({len(names)} in all)"


def unknown(kind: str, name: object, valid: Iterable[str]) -> MechidError:
    """The error for a name that does not exist: near matches first, then what is valid."""
    names = list(valid)
    near = difflib.get_close_matches(str(name), names, n=3, cutoff=0.5)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    return MechidError(f"There is no {kind} named '{name}'.{hint} Valid: {choices(names)}.")


_QUOTED_OR_UNBROKEN = re.compile(r"'[^']*'|[^\s']+")
_LONGEST = 300


def _one_line(message: str) -> str:
    """A sentence on one line and of a length to be read, whatever the names and values in it hold."""

    def short(found: re.Match[str]) -> str:
        text = found.group()
        return text if len(text) <= _LONGEST else f"{text[:80]}…{text[-1]}"

    printable = "".join(c if c.isprintable() else " " for c in str(message))
    return _QUOTED_OR_UNBROKEN.sub(short, printable)
