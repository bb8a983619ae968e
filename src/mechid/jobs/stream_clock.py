"""`StreamClock`: times of a stream in order, whatever single stamps say.

A time far ahead of the last one waits for the next line: one that comes later confirms it, one that lies before it
shows that it was wrong. Times that went back are no samples, unless they go on evenly for some lines: then the
clock has begun anew, and later times are moved so that they go on increasing. Nothing that waits is lost.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

FAR = 10.0
"""usual steps, beyond which a time waits for the next line"""
EVEN = 20
"""lines after which a clock that went back counts as begun anew; a wrong stamp less far ahead cannot seem so"""
USUAL = 9
"""steps of which the usual one is the median"""


class Stamped(NamedTuple):
    """A line's time and numbers."""

    line: int
    time: float
    """s"""
    numbers: list[float]


class Sorted(NamedTuple):
    """What a line has settled: of itself and of those that waited."""

    samples: tuple[Stamped, ...] = ()
    """by increasing time"""
    garbage: tuple[tuple[int, str], ...] = ()
    """lines, and why"""
    anew: str = ""
    """that the clock has begun anew, as a sentence"""


@dataclass
class StreamClock:
    """Lines that wait, and what is usual. All of it is saved."""

    last: float = -math.inf
    """s, time of the last sample"""
    moved: float = 0.0
    """s, added to what the clock says"""
    steps: list[float] = field(default_factory=list)
    """the last ones"""
    ahead: Stamped | None = None
    """far ahead of the last sample"""
    back: list[Stamped] = field(default_factory=list)
    """evenly one after the other, the first not after the last sample"""

    def sort(self, line: Stamped) -> Sorted:
        """What a further line settles."""
        time = line.time + self.moved
        if time <= self.last:
            return self._gone_back(line)
        known = line._replace(time=time) if self.moved else line
        garbage: tuple[tuple[int, str], ...] = ()
        if self.back:
            garbage, self.back = self._refused(self.back), []
        if self.ahead is None:
            if self._usual(time - self.last):
                return Sorted((self._taken(known),), garbage)
            self.ahead = known
            return Sorted((), garbage)
        before = self.ahead
        if time > before.time:
            self.ahead = None
            confirmed = self._taken(before)
            more = self.sort(line)
            return Sorted((confirmed, *more.samples), (*garbage, *more.garbage))
        if time == before.time:
            return Sorted((), (*garbage, (line.line, f"time {time:g} s comes twice")))
        self.ahead = None
        more = self.sort(line)
        wrong = (before.line, f"time {before.time:g} s lies far after the next line's, {time:g} s")
        return Sorted(more.samples, (*garbage, wrong, *more.garbage))

    def end(self) -> Sorted:
        """What is settled when no further line comes: nothing has contradicted a time far ahead."""
        garbage, kept = self._refused(self.back), self.ahead
        self.back, self.ahead = [], None
        return Sorted(() if kept is None else (self._taken(kept),), garbage)

    def seen_before(self, time: float) -> bool:
        """Whether the clock has been at this time already."""
        return time + self.moved <= self.last

    def state(self) -> dict[str, Any]:
        """As JSON knows it."""
        return asdict(self) | {"ahead": self.ahead, "back": self.back}

    @staticmethod
    def restored(given: dict[str, Any]) -> StreamClock:
        made = StreamClock(**given)
        made.ahead = None if made.ahead is None else Stamped(*made.ahead)
        made.back = [Stamped(*b) for b in made.back]
        return made

    # -- parts ---------------------------------------------------------------------------------------------

    def _gone_back(self, line: Stamped) -> Sorted:
        garbage: tuple[tuple[int, str], ...] = ()
        if self.back and not self._continues(line):
            garbage, self.back = self._refused(self.back), []
        self.back.append(line)
        if len(self.back) < EVEN:
            return Sorted((), garbage)
        run, self.back = self.back, []
        if self.ahead is not None:
            wrong = f"time {self.ahead.time:g} s lies far after those of the next lines"
            garbage, self.ahead = (*garbage, (self.ahead.line, wrong)), None
        first, before = run[0], self.last - self.moved
        step = self._step() if self.steps else run[1].time - first.time
        self.moved = self.last + step - first.time
        anew = (
            f"Line {first.line}: the clock went back from {before:g} s to {first.time:g} s and goes on evenly. "
            f"Times are moved by {self.moved:g} s from here on."
        )
        samples = tuple(self._taken(s._replace(time=s.time + self.moved)) for s in run)
        return Sorted(samples, garbage, anew)

    def _continues(self, line: Stamped) -> bool:
        """Whether a line goes on where those that went back were."""
        return bool(self.back) and 0.0 < line.time - self.back[-1].time <= FAR * self._step()

    def _taken(self, sample: Stamped) -> Stamped:
        if self.last > -math.inf:
            self.steps.append(sample.time - self.last)
            if len(self.steps) > USUAL:
                del self.steps[0]
        self.last = sample.time
        return sample

    def _usual(self, step: float) -> bool:
        # the smallest step is no more than the usual one, and found sooner
        return bool(self.steps) and (step <= FAR * min(self.steps) or step <= FAR * self._step())

    def _step(self) -> float:
        return sorted(self.steps)[len(self.steps) // 2] if self.steps else math.inf

    def _refused(self, lines: list[Stamped]) -> tuple[tuple[int, str], ...]:
        return tuple(
            (b.line, f"time {b.time + self.moved:g} s does not lie after {self.last:g} s") for b in lines
        )
