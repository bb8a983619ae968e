"""`Live`: a table of a running tracker that is drawn anew some times a second, where there is a terminal."""

from __future__ import annotations

import math
import time
from types import TracebackType

from rich import box
from rich.console import Console, Group
from rich.live import Live as RichLive
from rich.table import Table
from rich.text import Text

from mechid.estimate.online import Tracking

PERIOD = 0.25
"""s from one drawing to the next"""


class Live:
    """A live table on a console; nothing where the console is none or words are not wanted."""

    def __init__(self, quiet: bool, console: Console) -> None:
        shown = console.is_terminal and not quiet
        self._live = RichLive(console=console, auto_refresh=False) if shown else None
        self._last = 0.0

    def __enter__(self) -> Live:
        if self._live is not None:
            self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.__exit__(kind, error, trace)

    def show(self, tracking: Tracking, what: str) -> None:
        """Draw the table, if the last drawing is long enough ago."""
        now = time.monotonic()
        if self._live is None or now - self._last < PERIOD:
            return
        self._last = now
        self._live.update(picture(tracking, what), refresh=True)


def picture(tracking: Tracking, what: str) -> Group:
    """What is known, and what happened last."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False)
    for column in ("name", "value", "±", "unit"):
        table.add_column(column, justify="left" if column in ("name", "unit") else "right")
    form, values = tracking.form, tracking.values
    units = (*form.units, *getattr(form, "nonlinear_units", ("",) * tracking.k))
    for (name, value), std, unit in zip(values.items(), tracking.std.values(), units, strict=True):
        known = value == value
        told = f"{std:.2g}" if math.isfinite(std) else ""
        table.add_row(name, f"{value:.5g}" if known else "…", told, unit)
    lines: list[Text] = []
    for event in tracking.past:
        lines.append(
            Text(f"{event.time:10.3f} s  {event.kind}: {event.what}", overflow="ellipsis", no_wrap=True)
        )
    doing = ", searching" if tracking.pending is not None else ""
    return Group(Text(f"{tracking.mode}{doing}: {what}", style="bold"), table, *lines)
