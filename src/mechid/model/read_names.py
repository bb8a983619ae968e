"""Names that a file gives, as a mechanism may bear them, and sentences that list them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

from mechid.errors import choices
from mechid.model.mechanism import WORLD

_UNFIT = re.compile(r"[\s*?\[\]]")


def fit(name: str) -> str:
    """A name with blanks, *, ? and brackets turned into _."""
    return _UNFIT.sub("_", name)


class Names:
    """Hands out names, each once a kind; keeps what had to be changed."""

    def __init__(self) -> None:
        self._taken: defaultdict[str, set[str]] = defaultdict(set)
        self._taken["frame"].add(WORLD)
        self._changed: dict[tuple[str, str], str] = {}

    def new(self, kind: str, wanted: str) -> str:
        """A fit name, numbered where it is taken already."""
        first = fit(wanted)
        name, number = first, 2
        while name in self._taken[kind]:
            name, number = f"{first}_{number}", number + 1
        self._taken[kind].add(name)
        return name

    def of_file(self, kind: str, wanted: str) -> str:
        """A name that stands in the file: a change is kept to be told."""
        name = self.new(kind, wanted)
        if name != wanted:
            self._changed[wanted, name] = f"'{wanted}' is {name}"
        return name

    def notes(self) -> list[str]:
        if not self._changed:
            return []
        return [f"Names that a mechanism cannot bear are changed: {listed(self._changed.values())}."]


def listed(names: Iterable[str]) -> str:
    """A few names in a sentence."""
    return choices(names, 8)
