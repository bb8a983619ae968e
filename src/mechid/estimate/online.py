"""`Tracker`: numbers of a form followed through a stream, linear and nonlinear (da Silva et al. 2007, Section 6).

    tracking = Tracker(FrictionForm(), {"omega_1": (0.01, 1), "omega_S": (0.01, 2)}).start()
    for time, sample in stream:
        report = tracking.update(time, sample)          # constant time and memory

Starting: samples are collected in a moving window; once φ has full rank (singular values) ω and θ are estimated
together, on growing windows, until two estimates agree and residuals are noise. Normal: θ by recursive least
squares. When innovations exceed δ, a second least squares begins that knows only what comes after. If some θ
explains that to noise, the linear parameters have changed, and it takes over. If none does, ω has changed, and it
alone calls for the space-wide search: beside the stream, which goes on with the old ω until a result is certain and
swapped in. From the suspicion to its end the mode is "changing", and no standard deviation is claimed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mechid.errors import MechidError, choices, unknown
from mechid.estimate.beside import Answer, Beside, Request, searched
from mechid.estimate.linear import solve
from mechid.estimate.linear_form import LinearForm
from mechid.estimate.online_known import BEYOND, ODD, SURE, Known
from mechid.estimate.online_parts import (
    CHANGING,
    STARTING,
    TRACKING,
    Aside,
    Event,
    Held,
    Pending,
    Report,
    Settling,
    check_noise,
    check_sample,
    excited,
)
from mechid.estimate.recursive import Accumulated, Forgetting, solved
from mechid.estimate.reduced import Reduced
from mechid.estimate.separable import CRITERIA, checked_bounds
from mechid.estimate.triangle import Triangle

Array = np.ndarray

LARGEST = 10_000_000
"""samples of a window at most"""
WATCHED = 64
"""samples between two looks at how well the time since a change is excited"""
SHOWN = 5
"""events that are kept"""
BLOCK = 64
"""samples whose rows are made together"""


@dataclass(frozen=True)
class Tracker:
    """How a stream is followed."""

    form: LinearForm
    bounds: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """(low, high) of each nonlinear number; infinite ones allowed"""
    noise: Sequence[float] | None = None
    """std of each output, in its unit; estimated from the start's residuals where it is not given"""
    forgetting: Forgetting = field(default_factory=Forgetting)
    window: int = 4000
    """samples of which a batch holds at most"""
    least: int = 500
    """samples of which a batch holds at least, and by which it grows"""
    rank_tolerance: float = 1e-3
    """smallest singular value of φ, columns of length one, by the largest, that counts as full rank"""
    agreement: float = 0.02
    """δ_Θ: part of themselves by which two estimates in a row may differ"""
    precision: float = 0.003
    """std of ω, as a part of itself, that is waited for while the window is not full"""
    threshold: float = 1.5
    """δ: root mean square of residuals, in units of the noise, that counts as explained"""
    criterion: str = "squares"
    """of the search: squares (5.3) or norm (5.4)"""
    delay: int | None = None
    """samples after which a search's result is swapped in: runs are repeatable, and the stream waits where a
    search is late; None: when it is ready, and nothing ever waits"""
    beside: bool = True
    """searches run in a process of their own; else the stream waits"""

    def __post_init__(self) -> None:
        checked_bounds(self.form, self.bounds)
        for name, least in (("window", 10), ("least", 2)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise MechidError(f"{name} of a tracker must be a whole number ≥ {least}, not {value!r}.")
        if self.window > LARGEST:
            raise MechidError(
                f"window of a tracker must be at most {LARGEST} samples, which it keeps, not {self.window}."
            )
        if self.least > self.window:
            raise MechidError(f"A window of {self.window} samples holds less than the least, {self.least}.")
        for name in ("rank_tolerance", "agreement", "precision", "threshold"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 < value < np.inf:
                raise MechidError(f"{name} of a tracker must be a positive number, not {value!r}.")
        if self.criterion not in CRITERIA:
            raise unknown("criterion", str(self.criterion), CRITERIA)
        if self.noise is not None:
            check_noise(self.noise, self.form.outputs)
        delay = self.delay
        if delay is not None and (isinstance(delay, bool) or not isinstance(delay, int) or delay < 0):
            raise MechidError(f"delay of a tracker must be a whole number of samples, not {delay!r}.")

    def start(self) -> Tracking:
        """A tracker before its first sample."""
        return Tracking(self)

    def resume(self, state: Mapping[str, Any]) -> Tracking:
        """A tracker where another one's `state()` stood."""
        from mechid.estimate.online_state import restored

        return restored(self, state)


class Tracking(Known):
    """A running tracker. All that changes is in the attributes that `online_state.state` lists."""

    def __init__(self, tracker: Tracker) -> None:
        super().__init__(tracker)
        self.newcomer: Accumulated | None = None
        """least squares of what came after a suspicion"""
        self.suspected = (0, 0.0)
        """number and time of the sample at which it began"""
        self.settling: Settling | None = Settling(0, tracker.least, np.nan)
        self.pending: Pending | None = None
        self.aside = Aside()
        """samples that cannot be"""
        self.puzzled = False
        """told that nothing explains the samples; not told again before something does"""
        self.past: tuple[Event, ...] = ()
        """the last events"""
        self.searches = 0
        self.seconds = 0.0
        """spent in searches"""
        self._worker: Beside | None = None
        self._answer: Answer | None = None
        self._alarm = tracker.forgetting.alarm

    # -- what is known -------------------------------------------------------------------------------------

    @property
    def mode(self) -> str:
        """starting, tracking, or changing: from a suspicion until it is settled what has changed."""
        if self.estimate is None:
            return STARTING
        quiet = self.newcomer is None and self.settling is None and not self.aside.held
        return TRACKING if quiet else CHANGING

    @property
    def std(self) -> dict[str, float]:
        """Of all numbers by name; ∞ while they are changing, nan before the start is over.

        θ: what is not known of it with ω as it is, and what follows from what is not known of ω.
        """
        return self._named(np.full(self.n + self.k, np.inf) if self.mode == CHANGING else self.spread)

    @property
    def single(self) -> bool:
        """Whether the form makes the rows of one sample fast enough to be asked for one."""
        return self._row is not None

    # -- a sample ------------------------------------------------------------------------------------------

    def update_all(self, times: Sequence[float], samples: Array) -> Iterator[Report]:
        """The same for samples (N, channels) that are there together: their rows are made together."""
        if self._row is not None:
            yield from map(self.update, times, samples)
            return
        for first in range(0, len(samples), BLOCK):
            block = samples[first : first + BLOCK]
            # always as many rows, so that rounding is the same however samples come together
            padded = np.concatenate([block, np.repeat(block[-1:], BLOCK - len(block), axis=0)])
            omega = self.omega
            phi, y = self.form.rows(padded, omega)
            for i, sample in enumerate(block):
                if self.omega is not omega:
                    omega = self.omega
                    phi, y = self.form.rows(padded, omega)
                yield self.update(times[first + i], sample, (phi[i], y[i]))

    def update(self, time: float, sample: Sequence[float], rows: tuple[Array, Array] | None = None) -> Report:
        """Takes in a sample (a number for each channel, nan where missing) and tells what it showed.

        rows: φ and y of the sample, where they are known already.
        """
        try:
            if len(sample) != self._width:
                raise ValueError(len(sample))
            # numpy takes texts and None for numbers, of which arithmetic with one sample would complain
            if (self.estimate is None or self._row is None) and np.asarray(sample).dtype.kind not in "fiu":
                raise TypeError(sample)
            self.ring[self.count % len(self.ring)] = sample
            if rows is None and self.estimate is not None:
                rows = self._rows(sample)
        except (TypeError, ValueError):
            check_sample(sample, self.form.channels)
            raise
        self.count += 1
        events: list[Event] = []
        error = np.nan
        if self.estimate is not None:
            assert rows is not None
            phi, y = rows
            surprise = self.estimate.update(phi, y)
            if self.estimate.passed:
                y = self._put_aside(time, phi, y)
                surprise = self.estimate.surprise
            elif self.aside.held:
                if self.estimate.latest > ODD * self._alarm:
                    self._take_up()
                    surprise = self.estimate.surprise
                else:
                    self._pass_over(time, events)
            error = surprise**0.5
            if self.newcomer is not None:
                self.newcomer.update(phi, y)
                self._watch(time, events)
            elif self.settling is None:
                if surprise > self._alarm:
                    self._suspect(self.count, time)
                elif self.count % WATCHED == 0:
                    self.calm = self.estimate.triangle.copy(order="F")
        if self.settling is not None:
            self._settle(time, events)
        if events:
            self.past = (*self.past, *events)[-SHOWN:]
        return Report(time, error, self.mode, tuple(events))

    def close(self) -> None:
        """Ends the process that searches, if there is one."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    # -- samples that cannot be ----------------------------------------------------------------------------

    def _put_aside(self, time: float, phi: Array, y: Array) -> Array:
        """Holds back the rows that the estimate has passed over; y without them."""
        estimate = self.estimate
        assert estimate is not None
        rest, rows = y.copy(), estimate.passed
        rest[rows] = np.nan
        strange = np.full(y.shape, np.nan)
        strange[rows] = y[rows]
        if self.aside.hold(Held(self.count, time, phi, strange)):
            self._take_up()
        return rest

    def _take_up(self) -> None:
        """What was held back is no outliers: something has changed, at the first of them."""
        estimate, held = self.estimate, self.aside.held
        assert estimate is not None
        self.aside.held = []
        estimate.beyond = np.inf
        for rows in held:
            estimate.update(rows.phi, rows.y)
        estimate.beyond = self._beyond
        if self.newcomer is None and self.settling is None:
            self._suspect(held[0].count, held[0].time)
            held = held[1:]
        if self.newcomer is not None:
            for rows in held:
                self.newcomer.update(rows.phi, rows.y)

    def _pass_over(self, time: float, events: list[Event]) -> None:
        """What was held back was outliers: the samples after it are as they should be."""
        when = self.aside.held[0].time
        if not self.aside.outliers:
            what = (
                "A single sample lies further off than can be, and is passed over; others are only counted."
            )
            events.append(Event(when, time, "outlier", what, False, {}))
        if self.aside.let_go(self.count) and self.newcomer is None and self.settling is None:
            self._suspect(self.count, time)
            assert self.estimate is not None
            # too many to be passed over
            self.estimate.beyond = np.inf
            self.aside.crowd = 0.0

    # -- what a suspicion turns out to be ------------------------------------------------------------------

    def _suspect(self, count: int, time: float) -> None:
        """Something may have changed with the sample of that number."""
        assert self.estimate is not None
        self.newcomer = Accumulated(self.n, self.estimate.noise)
        self.suspected = count, time

    def _believe(self) -> None:
        """The suspicion is decided."""
        assert self.estimate is not None
        self.newcomer = None
        self.estimate.beyond = self._beyond

    def _watch(self, time: float, events: list[Event]) -> None:
        """Decides whether some θ explains what came since the suspicion."""
        since, now = self.newcomer, self.count - self.suspected[0]
        assert since is not None
        freedom = since.rows - self.n
        # neighbouring residuals may be alike: few of them say little
        if freedom < 2 * self.n + 20 or now < self.tracker.least // 10:
            return
        limit = self.tracker.threshold**2 * (1.0 + SURE * (2.0 / freedom) ** 0.5)
        if since.square > limit * freedom and not self._explained_but_for_outliers(limit):
            self._believe()
            if self.k:
                self._call_search(time, events)
            else:
                self._restart(time, events)
        elif now % WATCHED == 0 and now >= self.tracker.least:
            if self._calmed(limit * since.rows):
                return
            R = since.triangle[: self.n, : self.n]
            if excited(R) >= 0.3 * self.excitation[-1] / self.excitation[0]:
                self._accept(time, events)

    def _explained_but_for_outliers(self, limit: float) -> bool:
        """Whether single samples alone keep θ from explaining what came since the suspicion.

        They are then left out of it. Innovations do not show them while the estimate still follows a jump.
        """
        since = self.newcomer
        assert since is not None
        whole = Reduced.of(self.form, self.recent(self.suspected[0]), since.noise, self.omega)
        cleaned = whole.without_outliers(self.omega, BEYOND)
        outliers = whole.present - cleaned.present
        made = cleaned.linear(self.omega)
        if not outliers or made.rest > limit * (made.count - self.n):
            return False
        # some of them had been passed over, and counted, before
        self.aside.outliers += min(outliers, max(since.rows - made.count, 0))
        since.replace(made)
        return True

    def _calmed(self, allowed: float) -> bool:
        """Whether what was known before explains all since the suspicion; it is then known again, with the new."""
        estimate, since, n = self.estimate, self.newcomer, self.n
        assert estimate is not None
        assert since is not None
        R, d = since.triangle[:n, :n], since.triangle[:n, n]
        theta = solved(self.calm)
        if float(np.sum((R @ theta - d) ** 2)) + since.square > allowed:
            return False
        estimate.triangle[:] = self.calm
        estimate.absorb(R, d)
        estimate.surprise = 1.0
        self._believe()
        return True

    def _accept(self, time: float, events: list[Event]) -> None:
        """The newcomer's θ takes over."""
        estimate, since = self.estimate, self.newcomer
        assert estimate is not None
        assert since is not None
        before, before_std = self.settled
        triangle = since.triangle
        n = self.n
        found = solve(
            Triangle(triangle[:n, :n], triangle[:n, n], since.square, since.rows), self.form.names, std=1.0
        )
        self._know(found.theta, triangle[:n, :n], triangle[:n, n])
        self._follow_omega(Reduced.of(self.form, self.recent(self.suspected[0]), estimate.noise, self.omega))
        self.puzzled = False
        moved = self._moved(before[:n], found.theta, before_std[:n], found.std, self.form.names)
        if moved:
            names = choices(moved)
            what = f"The linear parameters have changed ({names}); no search was needed."
            events.append(Event(self.suspected[1], time, "changed", what, False, moved))
        self._believe()
        self._remember(found.theta, found.std, moved)

    def _restart(self, time: float, events: list[Event]) -> None:
        """Without nonlinear numbers nothing else can explain it."""
        if not self.puzzled:
            what = "No values of the parameters explain the samples since then to noise."
            events.append(Event(self.suspected[1], time, "unexplained", what, False, {}))
        self.puzzled = True

    def _call_search(self, time: float, events: list[Event]) -> None:
        begun, when = self.suspected
        what = (
            f"Residuals exceed δ and no linear parameters explain them: {choices(self.form.nonlinear)} "
            "are searched for."
        )
        events.append(Event(when, time, "search", what, True, {}))
        self.settling = Settling(
            begun, max(self.count, begun + self.tracker.least), when, begun, self.settled
        )

    # -- finding ω -----------------------------------------------------------------------------------------

    def _settle(self, time: float, events: list[Event]) -> None:
        """Searches on growing windows until two estimates agree."""
        settling = self.settling
        assert settling is not None
        if np.isnan(settling.time):
            settling.time = time
        if self.pending is None and self.count >= settling.next:
            self._begin_search(settling)
        if self.pending is not None:
            answer = self._ready(self.pending)
            if answer is not None:
                self._take(answer, self.pending, settling, time, events)

    def _begin_search(self, settling: Settling) -> None:
        samples = self.recent(settling.since)
        if settling.before is None and not self._full_rank(samples):
            settling.next = self.count + self.tracker.least
            return
        start = None if settling.last is None else settling.last[self.n :]
        solver = "mcs" if self.k and (start is None or settling.confirm) else "local"
        criterion = self.tracker.criterion
        request = Request(self.form, samples, self.bounds, self.noise, solver, start, criterion, BEYOND)
        self.pending = Pending(request, self.count)
        self.ask()

    def ask(self) -> None:
        """Begins the search that is pending."""
        assert self.pending is not None
        if self.tracker.beside and self.k:
            self._worker = self._worker or Beside()
            self._worker.ask(self.pending.request)
        else:
            self._answer = searched(self.pending.request)

    def _ready(self, pending: Pending) -> Answer | None:
        """The answer, when it is there and due."""
        delay = self.tracker.delay
        if delay is not None and self.count < pending.called + delay:
            return None
        if self._answer is not None:
            answer, self._answer = self._answer, None
            return answer
        assert self._worker is not None
        return self._worker.answer(wait=delay is not None)

    def _take(
        self, answer: Answer, pending: Pending, settling: Settling, time: float, events: list[Event]
    ) -> None:
        """Uses the result of a search, and decides whether another one follows."""
        self.pending = None
        self.searches += 1
        self.seconds += answer.seconds
        settling.searches += 1
        settling.next = self._longer(pending, settling)
        if answer.fault:
            events.append(Event(time, time, "fault", answer.fault, True, {}))
            self.close()
            return
        found = np.append(answer.theta, answer.omega)
        explained = answer.misfit <= self.tracker.threshold
        if not explained and self.count - settling.begun >= len(self.ring):
            self._tell_unexplained(answer, settling, time, events)
        if settling.before is not None and not explained:
            # what came before the search belongs to another time
            settling.since, settling.last, settling.confirm = pending.called, None, False
            settling.next = max(self.count, pending.called + self.tracker.least)
            return
        agreed = explained and settling.last is not None and self._agree(found, settling.last, answer.std)
        agreed = agreed and (
            len(pending.request.samples) == len(self.ring) or self._precise(found, answer.std)
        )
        settling.last = found if explained else None
        if agreed and (settling.confirm or not self.k):
            self._settled(answer, settling, time, events)
            return
        settling.confirm = agreed
        if agreed:
            settling.next = self.count

    def _tell_unexplained(self, answer: Answer, settling: Settling, time: float, events: list[Event]) -> None:
        """Once, that a whole window has passed and residuals are still more than noise."""
        if not self.puzzled:
            smaller = " The noise that was given may be too small." if self.tracker.noise is not None else ""
            what = (
                f"No values of the parameters explain the samples since then: residuals are {answer.misfit:.3g} "
                f"times their noise, and δ is {self.tracker.threshold:g}.{smaller}"
            )
            events.append(Event(settling.time, time, "unexplained", what, bool(self.k), {}))
        self.puzzled = True

    def _longer(self, pending: Pending, settling: Settling) -> int:
        """Number of the sample at which the window is half as long again, or new by that much."""
        held = len(pending.request.samples)
        grown = settling.since + min(held + max(held // 2, self.tracker.least), len(self.ring))
        return max(self.count, grown, pending.called + self.tracker.least)

    def _precise(self, found: Array, std: Array) -> bool:
        return bool(np.all(std[self.n :] <= self.tracker.precision * np.abs(found[self.n :])))

    def _agree(self, found: Array, last: Array, std: Array) -> bool:
        size = self.tracker.agreement * np.maximum(np.abs(found), np.abs(last))
        return bool(np.all(np.isfinite(std)) and np.all(np.abs(found - last) <= np.maximum(size, 2.0 * std)))

    def _settled(self, answer: Answer, settling: Settling, time: float, events: list[Event]) -> None:
        self.settling, self.puzzled = None, False
        found = np.append(answer.theta, answer.omega)
        if settling.before is None:
            self.noise = self._noise_of(answer)
            self.reset = np.maximum(np.abs(answer.theta), 10.0 * answer.std[: self.n])
        self._swap(answer, settling.since)
        if settling.before is None:
            self._full_rank(self.recent(0))
            events.append(Event(time, time, "started", self._started(answer.outliers), bool(self.k), {}))
            self.settled = found, answer.std
        else:
            before, std = settling.before
            names = (*self.form.names, *self.form.nonlinear)
            moved = self._moved(before, found, std, answer.std, names)
            if moved:
                what = f"{choices(moved)} have changed; {settling.searches} searches found them."
                events.append(Event(settling.time, time, "changed", what, True, moved))
            self._remember(found, answer.std, moved)

    def _started(self, outliers: int) -> str:
        weakest = self.form.names[int(np.argmax(np.abs(self.directions[:, -1])))]
        ratio = self.excitation[-1] / self.excitation[0]
        left_out = f" Measurements left out as outliers: {outliers}." if outliers else ""
        return (
            f"φ has full rank; its weakest singular value, {ratio:.2g} of the largest, is that of {weakest}."
            f"{left_out}"
        )
