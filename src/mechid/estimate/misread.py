"""Whether a log that a fit cannot explain is explained if a channel is read otherwise.

With the other sign, half a turn on, with a constant added, or two channels in each other's place. What no reading
explains is told with what usually is the cause.

Parameters run away from a channel that is read wrongly, so that its residuals alone need not show it. The fit is
tried again, by simulation and for a few iterations, with the readings that promise most. Only fits that leave much
of a channel unexplained pay for this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from mechid.data import faults
from mechid.data.faults import constant
from mechid.data.log import Channel
from mechid.dynamics.sensors import JointPosition, JointVelocity
from mechid.errors import MechidError
from mechid.estimate.delay import Late
from mechid.estimate.experiment import Experiment, Measured
from mechid.estimate.fit import Compared
from mechid.estimate.problem import ShootingProblem
from mechid.estimate.samples import Group
from mechid.estimate.shooting import Shooting
from mechid.estimate.solvers.levenberg_marquardt import LevenbergMarquardt
from mechid.estimate.solvers.problem import Point
from mechid.estimate.start import FirstState
from mechid.estimate.whitening import unmixed

UNEXPLAINED = 0.2
"""of a channel's spread: residuals from which another reading is tried"""
BETTER = 0.4
"""of its residual: what another reading must leave at most"""
WORSE = 1.5
"""times their residual: what it may cost other channels"""
TRIED = 3
"""readings that are fitted; the others are only simulated"""
ITERATIONS = 20
CLOSE = 0.1
"""of a channel's spread: how near a start must be to its first sample to have been read off it"""
NOISE = 2.0
"""times what changes from sample to sample: residuals that are no more are noise"""
CONSTANT = 0.8
"""of the root mean square: a median residual that is more is an offset"""
CONCENTRATED = 0.5
"""of the root mean square: a usual residual that is less is due to some of the samples"""


@dataclass(frozen=True)
class Reading:
    """A channel of an experiment read otherwise: sign · value + offset; or another in its place."""

    experiment: str
    channel: str
    sign: float
    offset: float
    """rad"""
    put_in: bool
    """an input, not a measurement"""
    other: str = ""
    """the channel in whose place it is"""


class Tried(NamedTuple):
    """How well a reading explains the logs."""

    reading: Reading
    y: np.ndarray
    cost: float
    rms: dict[tuple[str, str], float]
    """of the residuals, by experiment and channel"""


def unexplained(compared: Sequence[Compared]) -> list[Compared]:
    """Channels that move and of whose motion the fit leaves much."""
    return [c for c in compared if 0.0 < _allowed(c) < c.rms]


def _allowed(c: Compared) -> float:
    """Residuals that are no cause for a word: a part of the spread, or what it shows at rest; 0 without motion."""
    there, spread = np.isfinite(c.measured), _spread(c.measured)
    noise = faults.noise(Channel(c.time[there], c.measured[there])) if spread else 0.0
    return max(UNEXPLAINED * spread, NOISE * noise)


def misread(
    problem: ShootingProblem, y: np.ndarray, compared: Sequence[Compared], *, simulated: bool = True
) -> tuple[str, ...]:
    """Sentences on channels that would be explained if they were read otherwise; or that nothing explains.

    problem: whole experiments. y: parameters and first states that were found. simulated: `compared` stems from a
    motion that the parameters explain, not from states that were free to follow the log.
    """
    left = unexplained(compared)
    if not problem.least_squares or any(not isinstance(s.table, np.ndarray) for s in problem.shootings):
        return _left_words(problem, left)
    if simulated and not left:
        return ()
    return _read_otherwise(problem, y, compared, simulated) or _left_words(problem, left)


def _read_otherwise(
    problem: ShootingProblem, y: np.ndarray, compared: Sequence[Compared], simulated: bool
) -> tuple[str, ...]:
    """A sentence on readings that explain far more; none where there are none."""
    problem = replace(problem, memory={})
    reached = Tried(_AS_IT_IS, y, *_judged(problem, problem.evaluate(y)))
    allowed = {(c.experiment, c.channel): _allowed(c) for c in compared}
    if not simulated and np.isfinite(reached.cost) and not _bad(reached.rms, allowed):
        # what was found explains the log without states that follow it
        return ()
    if not simulated or not np.isfinite(reached.cost):
        found = _fitted(problem, _AS_IT_IS, [y, problem.start])
        reached = reached if found is None else found
    before = {(c.experiment, c.channel): c.rms for c in compared} if simulated else reached.rms
    bad = _bad(before, allowed)
    if not bad:
        return ()
    promised = []
    for reading in _readings(problem, bad) + (_offsets(problem, bad, compared) if simulated else []):
        changed, starts = _changed(problem, y, reading)
        costs = [changed.evaluate(at).cost for at in starts]
        promised.append(
            (min(costs), reading, [starts[i] for i in np.argsort(costs) if np.isfinite(costs[i])])
        )
    promised.sort(key=lambda p: p[0])
    good = []
    for _, reading, starts in promised[:TRIED]:
        # parameters that ran away from a wrong reading may be too far off to come back
        for at in starts:
            found = _fitted(_changed(problem, y, reading)[0], reading, [at])
            if found is not None and _explains(found, before, bad):
                good.append(found)
                break
    return _sentence(good, before, bad, problem, "" if simulated else " in a simulation")


def _bad(rms: dict[tuple[str, str], float], allowed: dict[tuple[str, str], float]) -> list[tuple[str, str]]:
    """Channels of which more is left than is allowed."""
    return [k for k, left in rms.items() if 0.0 < allowed[k] < left]


_AS_IT_IS = Reading("", "", 1.0, 0.0, False)


def _spread(measured: np.ndarray) -> float:
    known = measured[np.isfinite(measured)]
    return float(np.std(known)) if len(known) else 0.0


def _explains(found: Tried, before: dict[Any, float], bad: list[Any]) -> bool:
    """Whether the channel in question, for an input all that are bad, are explained better and none far worse."""
    own = (found.reading.experiment, found.reading.channel)
    judged = bad if found.reading.put_in or found.reading.other or own not in bad else [own]
    return all(found.rms[k] <= BETTER * before[k] for k in judged) and all(
        found.rms[k] <= WORSE * rms for k, rms in before.items()
    )


# Readings


def _readings(problem: ShootingProblem, bad: list[tuple[str, str]]) -> list[Reading]:
    found = []
    for s in problem.shootings:
        name = s.experiment.name
        if not any(experiment == name for experiment, _ in bad):
            continue
        for m in s.experiment.measured:
            turns = np.atleast_1d(m.sensor.revolute) if isinstance(m.sensor, JointPosition) else ()
            for i, channel in enumerate(m.channels):
                found.append(Reading(name, channel, -1.0, 0.0, False))
                if i < len(turns) and turns[i]:
                    found.append(Reading(name, channel, 1.0, np.pi, False))
            found += _swaps(name, m, bad)
        put_in = {c for c in s.experiment.inputs.values() if isinstance(c, str)}
        found += [Reading(name, channel, -1.0, 0.0, True) for channel in sorted(put_in)]
    return found


def _offsets(
    problem: ShootingProblem, bad: list[tuple[str, str]], compared: Sequence[Compared]
) -> list[Reading]:
    """Angles and positions of whose residuals most is a constant, less that."""
    found = []
    for s in problem.shootings:
        for c in compared:
            if c.experiment != s.experiment.name or (c.experiment, c.channel) not in bad:
                continue
            place, mean = _coordinate(s.experiment, c.channel), float(np.nanmedian(c.residual))
            if place is not None and not place[1] and abs(mean) > CONSTANT * c.rms:
                found.append(Reading(c.experiment, c.channel, 1.0, mean, False))
    return found


def _swaps(experiment: str, m: Measured, bad: list[tuple[str, str]]) -> list[Reading]:
    """Channels of one sensor in each other's place, where one of both is not explained."""
    if not isinstance(m.sensor, JointPosition | JointVelocity):
        return []
    pairs = [(a, b) for i, a in enumerate(m.channels) for b in m.channels[i + 1 :]]
    return [
        Reading(experiment, a, 1.0, 0.0, False, b)
        for a, b in pairs
        if (experiment, a) in bad or (experiment, b) in bad
    ]


def _changed(
    problem: ShootingProblem, y: np.ndarray, reading: Reading
) -> tuple[ShootingProblem, list[np.ndarray]]:
    """The problem with a channel read otherwise, and where to begin: at the given parameters, at those found."""
    shootings = tuple(
        _reread(s, reading) if s.experiment.name == reading.experiment else s for s in problem.shootings
    )
    changed = replace(problem, shootings=shootings, memory={})
    start = changed.start
    found = np.concatenate([y[: problem.free.size], start[problem.free.size :]])
    return changed, [start, found]


def _reread(s: Shooting, reading: Reading) -> Shooting:
    if reading.put_in:
        names = s.free.mechanism.input_names
        columns = [names.index(i) for i, c in s.experiment.inputs.items() if c == reading.channel]
        table = np.array(s.table)
        table[:, columns] *= reading.sign
        return replace(s, table=table, late=tuple(_turned(x, reading.sign, columns) for x in s.late))
    groups = tuple(_reread_group(g, reading) for g in s.groups)
    return replace(s, groups=groups, first=_reread_start(s, reading))


def _turned(x: Late, sign: float, columns: list[int]) -> Late:
    values = x.signal.values * sign
    return x._replace(signal=x.signal._replace(values=values)) if x.column in columns else x


def _reread_group(g: Group, reading: Reading) -> Group:
    if reading.channel not in g.channels:
        return g
    values, j = g.values.copy(), g.channels.index(reading.channel)
    if reading.other:
        present, i = g.present.copy(), g.channels.index(reading.other)
        values[:, [i, j]], present[:, [i, j]] = values[:, [j, i]], present[:, [j, i]]
        return g._replace(values=values, present=present)
    values[:, j] = g.present[:, j] * (reading.sign * values[:, j] + reading.offset)
    return g._replace(values=values)


def _reread_start(s: Shooting, reading: Reading) -> FirstState:
    """A first state that was read off the channel is read otherwise too."""
    first, place = s.first, _coordinate(s.experiment, reading.channel)
    if place is None or len(first.dependent):
        return first
    i, rate = place
    if reading.other:
        return _swapped_start(s, i, reading)
    channel = s.experiment.log[reading.channel]
    seen = channel.values[~channel.missing & (channel.time >= s.grid.t[0] - 1e-9)]
    given = first.v[i] if rate else first.q[i]
    if not len(seen) or abs(seen[0] - given) > CLOSE * float(np.std(seen)):
        return first
    q, v, mean = first.q.copy(), first.v.copy(), first.mean.copy()
    if not rate:
        q[i] = reading.sign * q[i] + reading.offset
        mean[i] = reading.sign * mean[i] + reading.offset
    v[i] *= reading.sign
    mean[len(q) + i] *= reading.sign
    return first._replace(q=q, v=v, mean=mean)


def _swapped_start(s: Shooting, i: int, reading: Reading) -> FirstState:
    """A first state with the values of two coordinates in each other's place."""
    first, place = s.first, _coordinate(s.experiment, reading.other)
    if place is None:
        return first
    both, turned = [i, place[0]], [place[0], i]
    q, v, mean = first.q.copy(), first.v.copy(), first.mean.copy()
    q[both], v[both], mean[both] = q[turned], v[turned], mean[turned]
    rates = [len(q) + k for k in both]
    mean[rates] = mean[[len(q) + k for k in turned]]
    return first._replace(q=q, v=v, mean=mean)


def _coordinate(experiment: Experiment, channel: str) -> tuple[int, bool] | None:
    """The joint coordinate that a channel shows, and whether it shows its rate."""
    for m in experiment.measured:
        if channel in m.channels and isinstance(m.sensor, JointPosition | JointVelocity):
            at = int(np.atleast_1d(m.sensor.index)[list(m.channels).index(channel)])
            return at, isinstance(m.sensor, JointVelocity)
    return None


# Fits


def _fitted(problem: ShootingProblem, reading: Reading, starts: list[np.ndarray]) -> Tried | None:
    """A few iterations from the cheaper of some starts; None where none can be simulated."""
    points = [problem.evaluate(np.clip(y, problem.lower, problem.upper)) for y in starts]
    best = min(points, key=lambda p: p.cost)
    if not np.isfinite(best.cost):
        return None
    try:
        solution = LevenbergMarquardt(max_iterations=ITERATIONS, cost_tolerance=1e-4).solve(problem, best.y)
    except MechidError:
        return None
    return Tried(reading, solution.point.y, *_judged(problem, solution.point))


def _judged(problem: ShootingProblem, point: Point) -> tuple[float, dict[tuple[str, str], float]]:
    """The cost, and the root mean square of each channel's residuals, ∞ where there are none."""
    found = {}
    for s, run, noise in zip(problem.shootings, point.runs, problem.noise, strict=True):
        for i, (group, std) in enumerate(zip(s.groups, noise, strict=True)):
            residuals = run.residuals[i] if np.isfinite(point.cost) else np.full_like(group.values, np.inf)
            plain = unmixed(group, residuals) * std if np.isfinite(point.cost) else residuals
            squares = np.sum(plain**2 / group.emphasis[:, None], 0)
            for name, square, count in zip(group.channels, squares, group.present.sum(0), strict=True):
                found[s.experiment.name, name] = float(np.sqrt(square / max(count, 1.0)))
    return point.cost, found


# Words


def _sentence(
    good: list[Tried], before: dict[Any, float], bad: list[Any], problem: ShootingProblem, where: str
) -> tuple[str, ...]:
    """One sentence: of readings that explain about as much it is not known which one is right."""
    if not good:
        return ()
    best = min(t.cost for t in good)
    alike = [t for t in good if t.cost <= 2.0 * best + 1e-12]
    first = alike[0].reading
    own = (first.experiment, first.channel)
    key = own if not first.put_in and own in bad else max(bad, key=lambda k: before[k])
    log = next(s.experiment.log for s in problem.shootings if s.experiment.name == key[0])
    now, then, unit = before[key], min(t.rms[key] for t in alike), log[key[1]].unit
    signs = [t.reading for t in alike if t.reading.sign < 0.0]
    swaps = [
        f"channels '{t.reading.channel}' and '{t.reading.other}' in each other's place"
        for t in alike
        if t.reading.other
    ]
    turns = [
        f"channel '{t.reading.channel}' half a turn on (π rad added)"
        if t.reading.offset == np.pi
        else f"{t.reading.offset:.3g}".replace("-", "−")
        + f" {log[t.reading.channel].unit} added to channel '{t.reading.channel}'"
        for t in alike
        if t.reading.offset
    ]
    channels = " or of ".join(f"{'input ' if r.put_in else ''}channel '{r.channel}'" for r in signs)
    what = " or with ".join([*([f"the sign of {channels} swapped"] if signs else []), *turns, *swaps])
    whose = "its residual" if key == own and len(alike) == 1 else f"the residual of '{key[1]}'"
    mend = f" Log.scaled('{signs[0].channel}', -1) turns it (scale in a study file)." if signs else ""
    residual = f"{whose}{where} would fall from {now:.3g} to {then:.3g} {unit}".rstrip()
    return (
        f"Experiment '{first.experiment}' is explained far better with {what}: {residual}, and the parameters "
        f"would be others.{mend}",
    )


def _left_words(problem: ShootingProblem, left: Sequence[Compared]) -> tuple[str, ...]:
    """A sentence for each experiment: what of its channels no reading explains, and what may be the cause."""
    told = []
    for name in dict.fromkeys(c.experiment for c in left):
        log = next(s.experiment.log for s in problem.shootings if s.experiment.name == name)
        mine = [c for c in left if c.experiment == name]
        listed = " and ".join(filter(None, (", ".join(map(_left, mine[:-1])), _left(mine[-1]))))
        worst = max(mine, key=lambda c: c.rms / _spread(c.measured))
        sizes = f"residuals of {worst.rms:.3g} of a spread of {_spread(worst.measured):.3g} "
        sizes = f"{sizes}{log[worst.channel].unit}".rstrip() + (
            f", '{worst.channel}'" if len(mine) > 1 else ""
        )
        told.append(
            f"The fit leaves {listed} of experiment '{name}' unexplained ({sizes}), and the parameters may mean "
            f"nothing: {_cause(problem, name, worst)}"
        )
    return tuple(told)


def _left(c: Compared) -> str:
    return f"{min(100.0 * c.rms / _spread(c.measured), 999.0):.0f} % of '{c.channel}'"


def _cause(problem: ShootingProblem, name: str, c: Compared) -> str:
    """What usually is the cause of residuals like these."""
    dead = [
        source
        for s in problem.shootings
        if s.experiment.name == name
        for source in s.experiment.inputs.values()
        if isinstance(source, str) and constant(s.experiment.log[source])
    ]
    if dead:
        listed = " and ".join(f"'{d}'" for d in dict.fromkeys(dead))
        return f"the input {listed} is constant throughout; was nothing else put in?"
    log = next(s.experiment.log for s in problem.shootings if s.experiment.name == name)
    put_in = {i for s in problem.shootings for i in s.experiment.inputs.values() if isinstance(i, str)}
    for source in sorted(i for i in put_in if i in log):
        held = faults.longest_hold(log[source])
        if held is not None:
            return (
                f"the input '{source}' stands at {held.value:.4g} {log[source].unit} from {held.start:.6g} to "
                f"{held.end:.6g} s; was it logged there?"
            )
    r = np.abs(c.residual[np.isfinite(c.residual)])
    if 1.4826 * float(np.median(r)) < CONCENTRATED * c.rms:
        part = float(np.mean(r > c.rms))
        return (
            f"{100.0 * part:.2g} % of its samples carry most of it; are these measured, or a stretch that the "
            "model does not know?"
        )
    return (
        "channels of other joints, another unit (degrees?), an offset, a fold at half a turn, or a model that "
        "lacks what moves it?"
    )
