"""`run_track`: what `mechid track` does: a stream is followed, what is found is written, its state saved.

The order of things keeps the output whole: lines are written and flushed to the disk, then the state, which says
how many bytes of output and of input belong to it. Who resumes cuts the output there and goes on with the input
there; in a pipe or socket, which cannot be gone back in, with what comes, unless it begins again: then as many
lines are passed over as had been used.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time as clock
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
from rich.console import Console
from rich.text import Text

from mechid.errors import MechidError
from mechid.estimate.online import BLOCK, Tracking
from mechid.estimate.online_parts import STARTING, Event, Report
from mechid.estimate.online_state import load_state, save_state, state
from mechid.jobs.checkpoint import set_aside
from mechid.jobs.lag import Lag
from mechid.jobs.lines import Garbage, Lines
from mechid.jobs.opening import Opening
from mechid.jobs.sources import Source, opened, refuse_overwriting
from mechid.jobs.stream_clock import Sorted, Stamped, StreamClock
from mechid.jobs.track_file import Asked, chosen_columns
from mechid.report.screen import counted
from mechid.report.track import Live

TOLD = 5
"""lines that hold no sample which are told one by one"""
LOOKED = 100
"""lines of garbage from the beginning after which nothing more is hoped for"""


@dataclass
class Counts:
    """How far a stream was read. All of it is saved."""

    bytes: int = 0
    lines: int = 0
    garbage: int = 0
    samples: int = 0
    last: float = -math.inf
    """s, time of the last sample"""
    written: int = 0
    """bytes of output"""


@dataclass
class Sink:
    """Where JSON lines go."""

    path: Path | None
    """None: the standard output"""
    counts: Counts
    _file: IO[bytes] | None = field(default=None)

    def open(self, resumed: bool) -> Path | None:
        """Begins to write, or goes on. What an earlier run has written and this one does not go on with is kept
        under another name, which is returned."""
        if self.path is None:
            return None
        before = None
        try:
            real = self.path.resolve()
            if not resumed and real.is_file() and real.stat().st_size:
                before = set_aside(real)
            self._file = open(self.path, "r+b" if resumed and self.path.exists() else "wb")  # noqa: SIM115
            if self._file.seek(0, os.SEEK_END) < self.counts.written:
                raise MechidError(f"'{self.path}' is shorter than what was written to it: start anew.")
            self._file.truncate(self.counts.written)
            self._file.seek(self.counts.written)
        except OSError as error:
            raise MechidError(f"'{self.path}' cannot be written: {error.strerror or error}.") from None
        return before

    def write(self, made: dict[str, Any], *, counted: bool = True) -> None:
        data = (json.dumps(made, ensure_ascii=False) + "\n").encode()
        if self._file is None:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        else:
            self._file.write(data)
        if counted:
            self.counts.written += len(data)

    def sync(self) -> None:
        if self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


@dataclass
class Job:
    """A running track."""

    asked: Asked
    tracking: Tracking
    lines: Lines
    counts: Counts
    sink: Sink
    kept: Path | None
    """where the state is saved"""
    tell: Callable[[str], None]
    show: Callable[[Tracking, str], None]
    lag: Lag | None = None
    ready: bool = False
    """columns are known"""
    clock: StreamClock = field(default_factory=StreamClock)
    opening: Opening = field(default_factory=Opening)
    saved: float = 0.0
    _block: list[tuple[float, np.ndarray]] = field(default_factory=list)
    _factors: np.ndarray = field(default_factory=lambda: np.ones(0))
    _picks: list[int] = field(default_factory=list)

    # -- the stream ----------------------------------------------------------------------------------------

    def follow(self, source: Source) -> None:
        """Reads to the end."""
        unsure = self.counts.lines > 0 and not source.seekable
        before = 0 if source.seekable else self.counts.bytes
        passed = 0
        for line in source.lines():
            if line is None:
                self._flush()
                self._save()
                self._show()
                continue
            if unsure:
                # a stream that begins again, or one that goes on
                passed, unsure = self.counts.lines if self._begins_again(line) else 0, False
                before = 0 if passed else before
            if passed:
                passed -= 1
                continue
            self.counts.lines += 1
            self.counts.bytes = before + source.used
            self._line(line)
            if self.counts.lines % 256 == 0:
                self._save()
        self._flush()
        self._save(now=True)
        # what waits is in the state: if the stream goes on after all, further lines settle it
        self._settle(self.clock.end())
        self._flush()
        if not self.counts.samples:
            raise self._nothing()

    def _begins_again(self, line: bytes) -> bool:
        text = line.decode("utf-8", "replace").strip()
        if self.lines.header:
            return text == self.lines.header
        try:
            time, _ = self.lines.sample(text)
        except Garbage:
            return False
        return self.clock.seen_before(time)

    def _line(self, line: bytes) -> None:
        try:
            text = line.decode("utf-8-sig" if self.counts.lines == 1 else "utf-8").strip()
            if not text or text.startswith("#") or (self.lines.header and text == self.lines.header):
                return
            if not self.ready and self._header(text):
                return
            time, numbers = self.lines.sample(text)
        except (Garbage, UnicodeDecodeError) as error:
            why = "no text" if isinstance(error, UnicodeDecodeError) else str(error)
            self._garbage(self.counts.lines, why)
            if self.counts.garbage >= LOOKED and not self.counts.samples and self.clock.ahead is None:
                raise self._nothing() from None
            return
        if math.isnan(time):
            self._take(self.counts.samples / self.asked.rate, numbers)
        else:
            self._settle(self.clock.sort(Stamped(self.counts.lines, time, numbers)))

    def _settle(self, settled: Sorted) -> None:
        for line, why in settled.garbage:
            self._garbage(line, why)
        if settled.anew:
            self._flush()
            self.tell(settled.anew)
            first, last = settled.samples[0].time, settled.samples[-1].time
            event = Event(first, last, "clock", settled.anew, False, {})
            self._written(event)
        for sample in settled.samples:
            self._take(sample.time, sample.numbers)

    def _garbage(self, line: int, why: str) -> None:
        self.counts.garbage += 1
        if self.counts.garbage <= TOLD:
            more = " Further ones are only counted." if self.counts.garbage == TOLD else ""
            self.tell(f"Line {line} holds no sample: {why}.{more}")

    def _take(self, time: float, numbers: list[float]) -> None:
        self.counts.samples += 1
        self.counts.last = time
        sample = np.full(len(self.tracking.form.channels), np.nan)
        sample[self._picks] = np.array(numbers) * self._factors
        if self.lag is not None:
            made = self.lag.pass_through(time, sample)
            if made is None:
                return
            time, sample = made
        channels = self.tracking.form.channels
        if channels[0] == "time":
            sample[0] = time
        if self.tracking.single:
            self._told(self.tracking.update(time, sample.tolist()))
            return
        self._block.append((time, sample))
        if len(self._block) == BLOCK:
            self._flush()

    def _flush(self) -> None:
        block, self._block = self._block, []
        if block:
            times, samples = zip(*block, strict=True)
            for report in self.tracking.update_all(times, np.array(samples)):
                self._told(report)

    # -- what is told --------------------------------------------------------------------------------------

    def _told(self, report: Report) -> None:
        for event in report.events:
            self._written(event)
        if self.tracking.count % self.asked.every == 0:
            self.sink.write(self._estimate(report))
            self._show()

    def _estimate(self, report: Report) -> dict[str, Any]:
        made: dict[str, Any] = {"kind": "estimate", "time": report.time, "mode": report.mode}
        if report.mode != STARTING:
            made |= {"error": report.error, "values": self.tracking.values, "std": self._std()}
        made |= {"samples": self.counts.samples, "garbage": self.counts.garbage}
        return made | {"outliers": self.tracking.aside.outliers}

    def _std(self) -> dict[str, float | None]:
        return {name: _plain(std) for name, std in self.tracking.std.items()}

    def _written(self, event: Event) -> None:
        made = event._asdict()
        self.sink.write({"kind": "event", "event": made.pop("kind"), **made})

    def _show(self) -> None:
        what = f"{counted(self.counts.samples, 'sample')}, {counted(self.counts.garbage, 'line')} of garbage"
        self.show(self.tracking, what)

    def finish(self) -> dict[str, Any]:
        """The last line: what was read and where the numbers stand."""
        made: dict[str, Any] = {"kind": "end", "time": _plain(self.counts.last), "mode": self.tracking.mode}
        made |= {"samples": self.counts.samples, "garbage": self.counts.garbage}
        made |= {"outliers": self.tracking.aside.outliers, "searches": self.tracking.searches}
        if self.tracking.mode != STARTING:
            made |= {"values": self.tracking.values, "std": self._std()}
        self.sink.write(made, counted=False)
        self.sink.sync()
        return made

    def stop(self) -> None:
        """Interrupted: what is known is kept."""
        self._flush()
        self._save(now=True)

    # -- columns -------------------------------------------------------------------------------------------

    def _header(self, text: str) -> bool:
        """Whether a line before the first sample is the header; Garbage is raised if it is neither that nor one."""
        try:
            header = self.lines.open(text, self.asked.header)
            self.prepare()
        except Garbage:
            self.opening.numbers += self.lines.only_numbers(text)
            raise
        except MechidError as error:
            if self.asked.header:
                raise
            self.opening.refuse(self.asked.expected, self.lines.columns, str(error))
            self.lines.forget()
            raise Garbage(str(error).removesuffix(".")) from None
        return header

    def _nothing(self) -> MechidError:
        """That no line was a sample."""
        return self.opening.error(self.asked.expected, self.asked.header or self.ready, self.counts.garbage)

    def prepare(self) -> None:
        """Chooses columns for channels, and derives the channels that have none."""
        chosen = chosen_columns(self.asked, self.lines.columns)
        self.lines.choose([column.name for column in chosen.taken.values()])
        channels = self.asked.tracker.form.channels
        self._picks = [channels.index(name) for name in chosen.taken]
        self._factors = np.array([column.factor for column in chosen.taken.values()])
        for d in chosen.derived:
            what = "derivative" if d.order == 1 else "second derivative"
            name, source = channels[d.channel], channels[d.source]
            self.tell(f"{name} is the {what} of {source} over {self.asked.window} samples.")
        if chosen.derived:
            self.lag = Lag(len(channels), chosen.derived, self.asked.window, self.asked.degree)
            self.tell(f"Estimates are {self.lag.half} samples late by that.")
        self.ready = True

    # -- state ---------------------------------------------------------------------------------------------

    def _save(self, *, now: bool = False) -> None:
        if self.kept is None or not (now or clock.monotonic() - self.saved >= self.asked.save):
            return
        # samples of a block that has not been taken in yet would be lost
        self._flush()
        self.sink.sync()
        about = {
            "counts": vars(self.counts),
            "clock": self.clock.state(),
            "opening": vars(self.opening),
            "columns": self.lines.columns,
            "kind": self.lines.kind,
            "separator": self.lines.separator,
            "header": self.lines.header,
            "asked": _digest(self.asked),
        }
        given = state(self.tracking) | {"job": json.dumps(about)}
        if self.lag is not None:
            given |= self.lag.state()
        save_state(given, self.kept)
        self.saved = clock.monotonic()

    def resume(self, path: Path) -> None:
        """Goes to where a saved state stands."""
        given = load_state(path)
        try:
            about = json.loads(str(given["job"]))
            if about["asked"] != _digest(self.asked):
                raise MechidError(f"'{path}' was saved under other settings: start without --resume.")
            for key, value in about["counts"].items():
                setattr(self.counts, key, value)
            self.clock = StreamClock.restored(about["clock"])
            self.opening = Opening(**about["opening"])
            self.lines.columns, self.lines.kind = tuple(about["columns"]), about["kind"]
            self.lines.separator, self.lines.header = about["separator"], about["header"]
        except (KeyError, TypeError, ValueError) as error:
            raise MechidError(f"'{path}' is no state of mechid track ({error}).") from None
        self.tracking = self.asked.tracker.resume(given)
        if self.lines.kind:
            self.prepare()
            if self.lag is not None:
                self.lag.restore(given)


def _digest(asked: Asked) -> list[str]:
    return [asked.file.text, *asked.file.changes]


def _plain(value: float) -> float | None:
    """JSON knows no infinity."""
    return value if math.isfinite(value) else None


def run_track(
    asked: Asked,
    console: Console,
    *,
    source: str | None = None,
    out: Path | None = None,
    kept: Path | None = None,
    resume: bool = False,
    quiet: bool = False,
) -> dict[str, Any]:
    """Follow the stream to its end; the last line written is returned."""

    def tell(sentence: str) -> None:
        if not quiet:
            console.print(Text(sentence), soft_wrap=True)

    kept = out.with_name(f"{out.name}.state.npz") if kept is None and out is not None else kept
    if resume and kept is None:
        raise MechidError("--resume needs --out or --state: where else would the state stand?")
    where = asked.source if source is None else source
    refuse_overwriting(asked.file.path, where, out, kept)
    counts = Counts()
    lines = Lines(asked.time, asked.rate)
    with Live(quiet, console) as live:
        job = Job(asked, asked.tracker.start(), lines, counts, Sink(out, counts), kept, tell, live.show)
        resumed = resume and kept is not None and kept.exists()
        if resumed and kept is not None:
            job.resume(kept)
            tell(f"Resuming after {counted(counts.samples, 'sample')}.")
        elif resume:
            tell(f"There is no '{kept}' yet: beginning at the beginning.")
        with opened(where, tell) as stream:
            if stream.seekable:
                stream.skip(counts.bytes)
            try:
                if not resumed and kept is not None and (before := set_aside(kept)) is not None:
                    tell(f"The state of an earlier run is kept as {before}.")
                if (before := job.sink.open(resumed)) is not None:
                    tell(f"The output of an earlier run is kept as {before}.")
                job.follow(stream)
                return job.finish()
            except BrokenPipeError:
                # who reads the output has had enough
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                return {}
            except KeyboardInterrupt:
                job.stop()
                raise
            finally:
                job.tracking.close()
                job.sink.close()
