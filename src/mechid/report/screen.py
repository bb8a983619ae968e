"""Tables and sentences on the screen, at most WIDTH columns wide; numbers short, in SI units."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

WIDTH = 100


def screen(*, quiet: bool = False) -> Console:
    """Where a command prints. quiet: words go to the error stream, when a program reads the other one."""
    console = Console(stderr=quiet, highlight=False, markup=False, emoji=False)
    known = console.is_terminal or "COLUMNS" in os.environ
    console.width = min(WIDTH, console.width) if known else WIDTH
    return console


def table(
    console: Console, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1
) -> None:
    """Print a table without its empty columns; the first `left` columns are text, the others numbers."""
    filled = [i for i in range(len(columns)) if i < left or any(row[i] for row in rows)]
    grid = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    for i in filled:
        grid.add_column(Text(columns[i]), justify="left" if i < left else "right", overflow="fold")
    for row in rows:
        grid.add_row(*(Text(row[i]) for i in filled))
    console.print(title, style="bold")
    console.print(grid)
    console.print()


def say(console: Console, sentence: str) -> None:
    console.print(Text(sentence))


def listed(console: Console, label: str, names: Sequence[str]) -> None:
    """A label with names after it, wrapped and indented."""
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(Text(label), Text(", ".join(names)))
    console.print(grid)


def short(value: float, digits: int = 4) -> str:
    """A number for a cell: nothing for zero and for what is infinite."""
    return "" if value == 0.0 or not np.isfinite(value) else f"{value:.{digits}g}"


def counted(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"
