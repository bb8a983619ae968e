"""A solver that can be stopped and continued: after every iteration the unknowns are in a file.

`Watched` stands between an estimator and a solver. It notes the unknowns of each iteration, starts from those of a
checkpoint, and turns a wish to stop into what solvers understand, so that they end with what they have.
"""

from __future__ import annotations

import json
import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from mechid.errors import MechidError, choices
from mechid.estimate.solvers.problem import Iteration, Point, Progress, Solution
from mechid.files import replacing

FORMAT = 1


@dataclass(frozen=True)
class Checkpoint:
    """How far a fit has come."""

    names: tuple[str, ...]
    """of the unknowns: parameters as the solver sees them, then first states"""
    unknowns: tuple[float, ...]
    iteration: int
    """since the first start"""
    cost: float

    def write(self, path: Path) -> None:
        data = {
            "format": FORMAT,
            "iteration": self.iteration,
            "cost": self.cost,
            "names": self.names,
            "unknowns": self.unknowns,
        }
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise MechidError(f"'{path}' cannot be written: {error.strerror or error}.") from None
        with replacing(path) as temporary:
            Path(temporary).write_text(json.dumps(data, indent=1) + "\n", "utf-8")


def checkpoint_path(out: Path) -> Path:
    """Where the checkpoint of a fit stands whose results go to `out`."""
    return out.with_name(f"{out.name}-unfinished") / "checkpoint.json"


def read_checkpoint(path: Path) -> Checkpoint:
    try:
        data = json.loads(path.read_text("utf-8"))
        if data["format"] != FORMAT or len(data["names"]) != len(data["unknowns"]):
            raise ValueError
        unknowns = tuple(map(float, data["unknowns"]))
        return Checkpoint(tuple(data["names"]), unknowns, int(data["iteration"]), float(data["cost"]))
    except FileNotFoundError:
        raise MechidError(
            f"There is nothing to resume: no '{path}'. An interrupted fit leaves one, a converged fit does not."
        ) from None
    except OSError as error:
        raise MechidError(f"'{path}' cannot be read: {error.strerror or error}.") from None
    except (ValueError, KeyError, TypeError):
        raise MechidError(f"'{path}' is no checkpoint of this version: start without --resume.") from None


def remove_checkpoint(path: Path) -> None:
    """A finished fit needs none; other things in its folder stay."""
    path.unlink(missing_ok=True)
    if path.parent.is_dir() and not any(path.parent.iterdir()):
        shutil.rmtree(path.parent, ignore_errors=True)


def set_aside(path: Path) -> Path | None:
    """Rename the checkpoint or state of an earlier run, if there is one, so that a new run does not replace it."""
    kept = path.with_name(f"{path.stem}-before{path.suffix}")
    try:
        path.replace(kept)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise MechidError(f"'{path}' cannot be renamed: {error.strerror or error}.") from None
    return kept


def same_unknowns(found: Checkpoint, names: Sequence[str], path: Path) -> None:
    """Refuse a checkpoint of other unknowns."""
    if found.names != tuple(names):
        other = [n for n in found.names if n not in names] + [n for n in names if n not in found.names]
        told = f" ({choices(other)})" if other else ""
        raise MechidError(f"'{path}' is of other unknowns than this study's{told}: start without --resume.")


class Stop:
    """A wish to stop."""

    asked = False


@contextmanager
def stoppable(tell: Callable[[], None]) -> Iterator[Stop]:
    """Turn the first Ctrl-C into a wish, of which `tell` speaks; the second one interrupts at once."""
    stop = Stop()

    def note(*_: Any) -> None:
        if stop.asked:
            raise KeyboardInterrupt
        stop.asked = True
        tell()

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = signal.signal(signal.SIGINT, note)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)


@dataclass
class Watched:
    """A solver whose iterations are kept in a file."""

    solver: Any
    path: Path
    stop: Stop
    begin: Checkpoint | None = None
    """where to start instead of the study's own start"""
    again: Callable[[int], None] | None = None
    """told when the estimator solves for the second, third, … time"""
    gradients: str = field(init=False)
    least_squares: bool = field(init=False)
    rounds: int = field(default=0, init=False)
    done: int = field(default=0, init=False)
    """iterations since the first start"""

    def __post_init__(self) -> None:
        self.gradients, self.least_squares = self.solver.gradients, self.solver.least_squares

    def loosened(self, iterations: int) -> Watched:
        """For problems on the way to the last one, which are watched too but not begun from a checkpoint."""
        return replace(self, solver=self.solver.loosened(iterations), begin=None, again=None)

    def solve(self, problem: Any, y: np.ndarray, progress: Progress | None = None) -> Solution:
        names = unknown_names(problem.free, problem.shootings)
        self.rounds += 1
        if self.rounds == 1 and self.begin is not None:
            same_unknowns(self.begin, names, self.path)
            y, self.done = np.array(self.begin.unknowns), self.begin.iteration
        if self.rounds > 1 and self.again is not None:
            self.again(self.rounds)
        seen, first = _Seen(problem, self.stop), self.done

        def note(iteration: Iteration) -> None:
            self.done = first + iteration.number
            Checkpoint(names, tuple(seen.y.tolist()), self.done, iteration.cost).write(self.path)
            if progress is not None:
                progress(iteration)

        return self.solver.solve(seen, y, note)


def unknown_names(free: Any, shootings: Sequence[Any]) -> tuple[str, ...]:
    first = [f"{s.experiment.name}: {n}" for s in shootings for n in s.first.names]
    return (*free.names, *first)


class _Seen:
    """A problem that remembers the unknowns last shown, and refuses to go on where a stop is asked for."""

    def __init__(self, problem: Any, stop: Stop) -> None:
        self._problem, self._stop = problem, stop
        self._evaluations = 0
        self.y = np.zeros(0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._problem, name)

    def evaluate(self, y: np.ndarray) -> Point:
        # a solver has something to return only after its first evaluation
        if self._stop.asked and self._evaluations:
            raise KeyboardInterrupt
        self._evaluations += 1
        return self._problem.evaluate(y)

    def shown(self, y: np.ndarray) -> tuple[float, ...]:
        self.y = np.array(y)
        return self._problem.shown(y)
