"""What a running `Tracker` tells (events, reports) and keeps about searches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import exp
from typing import Any, NamedTuple, SupportsFloat

import numpy as np

from mechid.errors import MechidError, choices
from mechid.estimate.beside import Request
from mechid.estimate.reduced import IN_A_ROW

Array = np.ndarray

CROWDED, OFTEN = 500.0, 0.03
"""samples over which outliers are counted together, and the part of them that may be some"""
STARTING, TRACKING, CHANGING = "starting", "tracking", "changing"
"""nothing known yet; known; something has changed or may have, and it is not known yet to what"""


class Event(NamedTuple):
    """Something that happened in a stream."""

    time: float
    """s, when it happened, as far as it can be told"""
    told: float
    """s, when it was certain"""
    kind: str
    """started, search, changed, unexplained, outlier or fault"""
    what: str
    """a sentence"""
    mcs: bool
    """whether the space-wide search ran for it"""
    changed: dict[str, tuple[float, float]]
    """numbers that moved: from, to"""


class Report(NamedTuple):
    """What one sample told."""

    time: float
    error: float
    """N_err: root mean square of the last innovations in units of the noise; nan while starting"""
    mode: str
    events: tuple[Event, ...]


@dataclass
class Settling:
    """ω being found: estimates on growing windows until two agree."""

    since: int
    """number of the first sample that counts"""
    next: int
    """number of the sample at which to search next"""
    time: float
    """s, when it began"""
    begun: int = 0
    """number of the sample after which it began; `since` moves on when samples belong to different times"""
    before: tuple[Array, Array] | None = None
    """θ, ω and their std before; None at the start"""
    last: Array | None = None
    """the last estimate of θ and ω, if it explains its window"""
    confirm: bool = False
    """two local estimates agree: a space-wide search is to say the same"""
    searches: int = 0


@dataclass
class Pending:
    """A search under way."""

    request: Request
    called: int
    """number of the sample that called for it"""


class Held(NamedTuple):
    """Rows of a sample that cannot be, as far as is known."""

    count: int
    """number of the sample"""
    time: float
    phi: Array
    y: Array
    """nan in rows that can be"""


@dataclass
class Aside:
    """Samples that cannot be: a single one is an outlier, several in a row or too many of them are a change."""

    held: list[Held] = field(default_factory=list)
    """the last ones, without one between them that can be"""
    outliers: int = 0
    """samples that were passed over"""
    crowd: float = 0.0
    """outliers of late: each weighs less by 1/e after `CROWDED` samples"""
    last: int = 0
    """number of the sample at which the last one was counted"""

    def hold(self, held: Held) -> bool:
        """Puts rows aside; whether there are too many in a row for outliers."""
        self.held.append(held)
        return len(self.held) > IN_A_ROW

    def let_go(self, count: int) -> bool:
        """Counts what is held as outliers; whether there are too many of late for outliers."""
        self.outliers += len(self.held)
        self.crowd = self.crowd * exp((self.last - count) / CROWDED) + len(self.held)
        self.last, self.held = count, []
        return self.crowd > OFTEN * CROWDED


def excited(R: Array) -> float:
    """Smallest singular value of a triangle by the largest, columns of length one."""
    size = np.linalg.norm(R, axis=0)
    if not np.all(size > 0.0):
        return 0.0
    s = np.linalg.svd(R / size, compute_uv=False)
    return float(s[-1] / s[0])


def check_noise(noise: Any, outputs: Sequence[str]) -> None:
    """A positive, finite number for each output."""
    count = f"{len(outputs)} positive, finite number{'s' if len(outputs) > 1 else ''} in a list"
    try:
        numbers = np.array(noise, float)
    except (TypeError, ValueError):
        numbers = np.zeros(0)
    if numbers.shape != (len(outputs),) or not np.all((numbers > 0.0) & np.isfinite(numbers)):
        raise MechidError(f"The noise of {choices(outputs)} takes {count}, not {noise!r}.")


def check_sample(sample: Any, channels: Sequence[str]) -> None:
    """A number for each channel."""
    given = (
        list(sample) if isinstance(sample, Sequence | np.ndarray) and not isinstance(sample, str) else None
    )
    if given is None or len(given) != len(channels):
        raise MechidError(
            f"A sample takes {len(channels)} numbers ({', '.join(channels)}), not {sample!r}."
        ) from None
    for name, number in zip(channels, given, strict=True):
        if isinstance(number, bool | str) or not isinstance(number, SupportsFloat):
            raise MechidError(
                f"{name} of a sample must be a number, nan where it is missing, not {number!r}."
            ) from None
