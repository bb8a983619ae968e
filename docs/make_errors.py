"""Writes docs/errors.md from the table of tests/test_bad_input.py: `python docs/make_errors.py`."""

from __future__ import annotations

import html
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent

HEAD = """\
# What mechid says of bad input

Made from the table of `tests/test_bad_input.py` by `docs/make_errors.py`; a test provokes every row and compares
the whole sentence. In Python each of them is the text of a `MechidError`; the command line prints it and exits with
2. `/home/me` stands for the folder of the file.

Inertias: the principal moments must not be negative, and the largest must not exceed the sum of the other two. Thin
rods, plates and bodies without mass are legal, and so is what rounding leaves: a millionth of the largest moment.
No number of a mechanism may exceed 1e50 in size.
"""

FINE = """\
What looks like a mistake and is none: it is read, and what was done about it stands in the mechanism's notes.
"""


def page(table: dict[str, list[Any]], fine: list[Any]) -> str:
    """The whole page."""
    parts = [HEAD]
    for name, rows in table.items():
        parts.append(f"## {name}\n\n{_rows('mistake', rows)}")
    parts.append(f"## Not errors\n\n{FINE}\n{_rows('given', fine)}")
    return "\n".join(parts)


def _rows(what: str, rows: list[Any]) -> str:
    lines = [f"| {what} | what is said |", "| --- | --- |"]
    lines += [f"| {_cell(row.what)} | {_cell(row.sentence) or '(nothing)'} |" for row in rows]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    """Text in a table: nothing in it is read as markup."""
    marked = html.escape(text, quote=False)
    return "".join(f"\\{c}" if c in "|*_[]`\\" else c for c in marked)


if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parent / "tests"))
    from test_bad_input import FINE as NOT_ERRORS
    from test_bad_input import TABLE

    (HERE / "errors.md").write_text(page(TABLE, NOT_ERRORS), encoding="utf-8")
