"""On which line each entry of a TOML text stands, which `tomllib` does not tell.

    key_lines('[stepper]\\nkind = "spook"')      # {("stepper",): 1, ("stepper", "kind"): 2}

Reads texts that `tomllib` has taken without complaint; what is no TOML is not its business.
"""

from __future__ import annotations

import tomllib

Path = tuple[str | int, ...]
"""keys, and places in arrays"""


def key_lines(text: str) -> dict[Path, int]:
    """The line (from 1) of every table, key and array element, inline ones too; where it is named first."""
    scanner = _Scanner(text.replace("\r\n", "\n"))
    scanner.document()
    return scanner.lines


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text, self.at, self.lines = text, 0, {}
        self.counts: dict[Path, int] = {}
        """how many tables of each [[array]] have begun"""

    def document(self) -> None:
        prefix: Path = ()
        while self.blank():
            if self.text.startswith("[[", self.at):
                self.at += 2
                path = self.standing(self.key())
                self.counts[path] = self.counts.get(path, 0) + 1
                prefix = (*path, self.counts[path] - 1)
                self.note(prefix)
                self.at = self.text.index("]]", self.at) + 2
            elif self.text[self.at] == "[":
                self.at += 1
                prefix = self.standing(self.key())
                self.note(prefix)
                self.at = self.text.index("]", self.at) + 1
            else:
                self.pair(prefix)

    def standing(self, key: Path) -> Path:
        """A header's key with the places in arrays that it stands in: a.b → ("a", 1, "b") in the second [[a]]."""
        path: Path = ()
        for i, part in enumerate(key):
            path = (*path, part)
            if i + 1 < len(key) and path in self.counts:
                path = (*path, self.counts[path] - 1)
        return path

    def note(self, path: Path) -> None:
        line = self.text.count("\n", 0, self.at) + 1
        for length in range(1, len(path) + 1):
            self.lines.setdefault(path[:length], line)

    def blank(self) -> bool:
        """Skip white space, ends of lines and comments; whether anything is left."""
        while self.at < len(self.text):
            if self.text[self.at] == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            elif self.text[self.at].isspace():
                self.at += 1
            else:
                return True
        return False

    def pair(self, prefix: Path) -> None:
        path = (*prefix, *self.key())
        self.note(path)
        self.at = self.text.index("=", self.at) + 1
        self.value(path)

    def key(self) -> Path:
        """A dotted key."""
        parts: list[str] = []
        while True:
            self.blank()
            begin = self.at
            if self.text[begin] in "\"'":
                self.string()
                written = self.text[begin : self.at]
                parts.append(next(iter(tomllib.loads(f"{written} = 0"))))
            else:
                while self.text[self.at].isalnum() or self.text[self.at] in "_-":
                    self.at += 1
                parts.append(self.text[begin : self.at])
            self.blank()
            if self.text[self.at] != ".":
                return tuple(parts)
            self.at += 1

    def value(self, path: Path) -> None:
        self.blank()
        mark = self.text[self.at]
        if mark in "\"'":
            self.string()
        elif mark == "[":
            self.listed("]", path)
        elif mark == "{":
            self.listed("}", path)
        else:
            while self.at < len(self.text) and self.text[self.at] not in ",]}\n#":
                self.at += 1

    def listed(self, end: str, path: Path) -> None:
        """An array or an inline table."""
        self.at += 1
        count = 0
        while self.blank() and self.text[self.at] != end:
            if self.text[self.at] == ",":
                self.at += 1
            elif end == "}":
                self.pair(path)
            else:
                self.note((*path, count))
                self.value((*path, count))
                count += 1
        self.at += 1

    def string(self) -> None:
        mark = self.text[self.at]
        mark = 3 * mark if self.text.startswith(3 * mark, self.at) else mark
        self.at += len(mark)
        while not self.text.startswith(mark, self.at):
            self.at += 2 if self.text[self.at] == "\\" and mark[0] == '"' else 1
        self.at += len(mark)
        # a text may end in one or two quotation marks before the three that close it
        while len(mark) == 3 and self.text.startswith(mark[0], self.at):
            self.at += 1
