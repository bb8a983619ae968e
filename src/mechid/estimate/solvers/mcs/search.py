"""`mcs`: the public face of multilevel coordinate search, its limits, its record and its result."""

from __future__ import annotations

import operator
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mechid.errors import MechidError
from mechid.estimate.solvers.mcs.initial import Region, default_lists
from mechid.estimate.solvers.mcs.sweeps import Search
from mechid.estimate.solvers.problem import plural

HUGE = 1e60
"""values beyond this size count as failed, since squares of them are no numbers any more"""
BLOCKED = 1e30
"""what a failed evaluation counts while no other has succeeded"""


@dataclass(frozen=True, eq=False)
class MCSState:
    """All that was asked and answered: the search follows from it, since nothing in it is random."""

    points: np.ndarray
    """(evaluations, n)"""
    values: np.ndarray
    """what the function returned; nan or ±∞ where it failed"""


@dataclass(frozen=True, eq=False)
class Minimum:
    """A local minimum that was found."""

    x: np.ndarray
    value: float


@dataclass(frozen=True, eq=False)
class MCSResult:
    """Where a search stands."""

    x: np.ndarray
    """the best point"""
    value: float
    """the function's value there; ∞ where every evaluation failed"""
    evaluations: int
    sweeps: int
    minima: tuple[Minimum, ...]
    """ends of local searches by increasing value; those above the best may have been left before they converged"""
    outcome: str
    """a sentence"""
    state: MCSState
    """give it to `mcs` to continue"""


def mcs(
    function: Callable[[np.ndarray], float],
    lower: Sequence[float] | np.ndarray,
    upper: Sequence[float] | np.ndarray,
    *,
    start: Sequence[float] | np.ndarray | None = None,
    lists: Sequence[Sequence[float]] | None = None,
    target: float | None = None,
    evaluations: int | None = None,
    patience: int | None = None,
    levels: int | None = None,
    local: bool = True,
    state: MCSState | None = None,
) -> MCSResult:
    """The lowest value of a function of n numbers between bounds, by multilevel coordinate search.

    Bounds may be infinite. The search begins with a list of at least three values for each coordinate (`lists`; by
    default the bounds and the middle, see `default_lists`) at a point of these (`start`; by default the values in
    the middle), which is put into the lists if it is not there. A function that fails returns nan or ∞.

    It stops at a value of `target` or below, after `evaluations` of the function (by default 50 n²), or after
    `patience` sweeps without improvement (3 n), counted from the first evaluation that succeeds. Boxes have
    `levels` (5 n + 10): more of them mean a search that is more thorough near good points before others are tried.
    Without `local` there are no local searches.

    `state`, of an earlier result with the same bounds, lists and levels, continues that search with the very points
    that it would have tried next; `evaluations` counts those of the state too. The state's points are
    gone through again, but not evaluated.
    """
    region = _region(lower, upper)
    n = len(region.lower)
    values, first = _lists(region, lists, start)
    levels = 5 * n + 10 if levels is None else _whole("The number of levels", levels, 2)
    patience = 3 * n if patience is None else _whole("The patience", patience, 1)
    limit = 50 * n**2 if evaluations is None else _whole("The number of evaluations", evaluations, 1)
    target = -np.inf if target is None else _number("The target", target)
    search = Search(region, values, first, levels, patience, bool(local))
    return _drive(function, search, target, limit, _record(state, n))


def _drive(
    function: Callable[[np.ndarray], float], search: Search, target: float, limit: int, record: MCSState
) -> MCSResult:
    """Answers the search's questions, from the record as long as it reaches."""
    points: list[np.ndarray] = []
    raw: list[float] = []
    wall = _Wall()
    asking, answer, best = search.run(), None, -1
    why = ""
    while not why:
        x, end = _next(asking, answer)
        if x is None:
            why = f"Ended after {plural(len(raw), 'evaluation')}: {end}."
            break
        k = len(raw)
        if k < len(record.values):
            if not np.array_equal(record.points[k], x):
                raise MechidError(
                    f"The state belongs to another search: its evaluation {k + 1} was "
                    f"at {record.points[k].tolist()}, this search asks for {x.tolist()}; "
                    "give the same bounds, lists, start and levels."
                )
            value = float(record.values[k])
        elif k >= limit:
            why = f"Stopped after {plural(k, 'evaluation')}, the limit: allow more to continue."
            break
        else:
            try:
                value = _value(function, x)
            except KeyboardInterrupt:
                why = f"Interrupted after {plural(k, 'evaluation')}."
                break
        points.append(x)
        raw.append(value)
        answer = wall.finite(value)
        if wall.works(value) and (best < 0 or value < raw[best]):
            best = k
            if value <= target:
                why = f"Reached the target after {plural(k + 1, 'evaluation')}."
        search.blocked = best < 0
    if best < 0:
        why += " No evaluation has succeeded."
    minima = sorted((Minimum(m.x, float(m.f)) for m in search.basket if m.f < BLOCKED), key=lambda m: m.value)
    return MCSResult(
        points[best].copy() if best >= 0 else points[0].copy(),
        raw[best] if best >= 0 else np.inf,
        len(raw),
        search.sweeps,
        tuple(minima),
        why,
        MCSState(np.array(points), np.array(raw)),
    )


def _next(asking: Generator[np.ndarray, float, str], answer: float | None) -> tuple[np.ndarray | None, str]:
    """The next point, or None and why there is none."""
    # differences of values that failed or are huge may overflow, which only makes a model useless
    with np.errstate(all="ignore"):
        try:
            return (next(asking) if answer is None else asking.send(answer)), ""
        except StopIteration as end:
            return None, end.value


class _Wall:
    """What failed evaluations count: as much worse than the worst value so far as that is than the best."""

    def __init__(self) -> None:
        self.low, self.high = np.inf, -np.inf

    @staticmethod
    def works(value: float) -> bool:
        return abs(value) <= HUGE

    def finite(self, value: float) -> float:
        if self.works(value):
            self.low, self.high = min(self.low, value), max(self.high, value)
            return value
        if self.low > self.high:
            return BLOCKED
        return self.high + ((self.high - self.low) or max(abs(self.high), 1.0))


# -- what a user gives -------------------------------------------------------------------------------------


def _value(function: Callable[[np.ndarray], float], x: np.ndarray) -> float:
    value = function(x.copy())
    try:
        found = np.asarray(value, float)
    except (TypeError, ValueError):
        found = np.zeros(2)
    if found.size != 1:
        raise MechidError(f"The function to minimise must return one number, not {value!r}.")
    return float(found.reshape(()))


def _region(lower: Any, upper: Any) -> Region:
    low, high = _vector("The lower bounds", lower), _vector("The upper bounds", upper)
    if len(low) == 0:
        raise MechidError("There are no bounds: give at least one lower and one upper bound.")
    if len(low) != len(high):
        raise MechidError(
            f"There are {len(low)} lower bounds but {len(high)} upper ones; give as many of each."
        )
    for i, (u, v) in enumerate(zip(low, high, strict=True)):
        if not u < v or u == np.inf or v == -np.inf:
            raise MechidError(
                f"The bounds of coordinate {i} are {u:g} and {v:g}; the lower must be below the upper."
            )
    return Region(low, high)


def _lists(region: Region, lists: Any, start: Any) -> tuple[list[np.ndarray], np.ndarray]:
    """The starting list and the starting point's indices in it."""
    n = len(region.lower)
    made = default_lists(region)
    if lists is not None:
        if len(lists) != n:
            raise MechidError(
                f"There are {len(lists)} starting lists for {n} coordinates; give one for each."
            )
        made = [_list(i, values, region) for i, values in enumerate(lists)]
    if start is None:
        return made, np.array([len(values) // 2 for values in made])
    point = _vector("The start", start)
    if len(point) != n:
        raise MechidError(f"The start has {len(point)} coordinates, the bounds have {n}.")
    for i, value in enumerate(point):
        if not (np.isfinite(value) and region.lower[i] <= value <= region.upper[i]):
            raise MechidError(
                f"The start's coordinate {i} is {value:g}; it must be finite and "
                f"between {region.lower[i]:g} and {region.upper[i]:g}."
            )
        if lists is None and value not in made[i]:
            made[i] = _around(value, made[i], region.lower[i], region.upper[i])
        made[i] = np.union1d(made[i], [value])
    return made, np.array(
        [int(np.flatnonzero(values == p)[0]) for values, p in zip(made, point, strict=True)]
    )


def _around(value: float, values: np.ndarray, low: float, high: float) -> np.ndarray:
    """The default list with its middle moved to the start."""
    ends = [low if np.isfinite(low) else min(values[0], value - 10.0), high if np.isfinite(high) else 0.0]
    if not np.isfinite(high):
        ends[1] = max(values[-1], value + 10.0)
    return np.array([ends[0], value, ends[1]])


def _list(i: int, values: Any, region: Region) -> np.ndarray:
    made = _vector(f"The starting list of coordinate {i}", values)
    if len(made) < 3 or not np.all(np.diff(made) > 0.0) or not np.all(np.isfinite(made)):
        raise MechidError(
            f"The starting list of coordinate {i} is {made.tolist()}; "
            "it must hold at least 3 finite, increasing values."
        )
    if made[0] < region.lower[i] or made[-1] > region.upper[i]:
        raise MechidError(
            f"The starting list of coordinate {i} is {made.tolist()}; it must stay "
            f"between {region.lower[i]:g} and {region.upper[i]:g}."
        )
    return made


def _vector(what: str, values: Any) -> np.ndarray:
    try:
        made = np.array(values, float)
    except (TypeError, ValueError):
        raise MechidError(f"{what} must be numbers, not {values!r}.") from None
    if made.ndim != 1 or np.any(np.isnan(made)):
        raise MechidError(f"{what} must be a row of numbers, not {values!r}.")
    # adding 0 turns −0 into 0
    return made + 0.0


def _number(what: str, value: Any) -> float:
    try:
        made = float(value)
    except (TypeError, ValueError):
        made = np.nan
    if np.isnan(made):
        raise MechidError(f"{what} must be a number, not {value!r}.")
    return made


def _whole(what: str, value: Any, least: int) -> int:
    try:
        made = operator.index(value)
    except TypeError:
        made = least - 1
    if made < least or isinstance(value, bool):
        raise MechidError(f"{what} must be a whole number of at least {least}, not {value!r}.")
    return made


def _record(state: Any, n: int) -> MCSState:
    if state is None:
        return MCSState(np.zeros((0, n)), np.zeros(0))
    if not isinstance(state, MCSState):
        raise MechidError(f"The state must be the state of an earlier MCSResult, not {state!r}.")
    if state.points.shape != (len(state.values), n):
        raise MechidError(f"The state is of {state.points.shape[-1]} coordinates, the bounds have {n}.")
    return state
