"""All experiments as one problem for a solver: cost, gradient and Gauss–Newton model of y = (θ, ξ₁, ξ₂, …).

    J(y) = ½ Σ r²  over samples, priors of the parameters and of the first states

With segments (multiple shooting) each experiment is cut into stretches whose first states are unknowns too, and
each must begin where the one before it ends: equality rows between (q, v) of the independent coordinates.
Conditions on first states are equality rows too, or rows of least squares where they have a std.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from mechid.dynamics.linearization import tangent_of
from mechid.dynamics.stepper import Observation
from mechid.dynamics.tree import Array
from mechid.errors import MechidError, choices
from mechid.estimate.conditions import condition_slopes, condition_values, exact, soft
from mechid.estimate.samples import Form, Group
from mechid.estimate.shooting import Linear, Run, Shooting
from mechid.estimate.solvers.problem import Point, Quadratic, plural
from mechid.estimate.start import FirstState, Tangents
from mechid.model.parameters import Parameters

Noise = tuple[tuple[np.ndarray, ...], ...]
"""std of every channel, for each shooting and group"""


@dataclass(frozen=True, eq=False)
class ShootingProblem:
    """Experiments, or segments of them, that share the parameters."""

    free: Parameters
    shootings: tuple[Shooting, ...]
    noise: Noise
    follows: tuple[int | None, ...]
    """for each shooting the one that it continues, or None where an experiment begins"""
    gradients: str = "forward"
    """how `gradient` works: forward or adjoint"""
    memory: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """the last point and the last derivatives, which are asked for more than once"""

    @property
    def least_squares(self) -> bool:
        return all(s.loss.running is None for s in self.shootings)

    @property
    def size(self) -> int:
        return self.free.size + sum(s.size for s in self.shootings)

    @property
    def places(self) -> list[slice]:
        """Where each shooting's unknowns stand in y."""
        ends = np.cumsum([self.free.size, *(s.size for s in self.shootings)])
        return [slice(int(a), int(b)) for a, b in pairwise(ends)]

    @property
    def lower(self) -> np.ndarray:
        return np.concatenate([self.free.bounds_theta[0], np.full(self.size - self.free.size, -np.inf)])

    @property
    def upper(self) -> np.ndarray:
        return np.concatenate([self.free.bounds_theta[1], np.full(self.size - self.free.size, np.inf)])

    @property
    def start(self) -> np.ndarray:
        return np.concatenate([self.free.theta0, *(s.first.unknowns for s in self.shootings)])

    def limits(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        A, upper = self.free.inequalities
        if not len(A):
            return np.zeros((0, self.size)), np.zeros(0)
        theta = y[: self.free.size]
        numbers, slopes = self.free.numbers_with_slopes(theta)
        rows, room = A * slopes, upper - A @ numbers
        return np.concatenate([rows, np.zeros((len(A), self.size - self.free.size))], 1), room

    def shown(self, y: np.ndarray) -> tuple[float, ...]:
        theta = y[: self.free.size]
        if not any(p.body for p in self.free.entries):
            return tuple(self.free.numbers_with_slopes(theta)[0].tolist())
        return tuple(np.asarray(self.free.physical_numbers(theta)).tolist())

    # Cost

    def evaluate(self, y: np.ndarray) -> Point:
        last = self.memory.get("point")
        if last is None or not np.array_equal(last.y, y):
            for run in [] if last is None else last.runs:
                if run.behind is not None:
                    run.behind.close(cancel=True)
            last = self.memory["point"] = self._evaluate(y)
        return last

    def _evaluate(self, y: np.ndarray) -> Point:
        theta = y[: self.free.size]
        model = self.free.bind(theta)

        def one(i: int) -> Run:
            s = self.shootings[i]
            return s.run(theta, y[self.places[i]], self.noise[i], model, ahead=ahead)

        # one experiment leaves a core free: it may begin with the derivatives
        ahead = len(self.shootings) == 1 and self.gradients == "forward" and self.least_squares

        runs = each(one, range(len(self.shootings)))
        cost = sum(r.cost for r in runs) + 0.5 * float(np.sum(self.prior_residuals(y) ** 2))
        if not np.isfinite(cost):
            return Point(y, np.inf, np.zeros(0), runs)
        return Point(y, float(cost), np.concatenate([self._gaps(y, runs), self.held(y)]), runs)

    # Derivatives

    def linear(self, point: Point) -> list[Linear]:
        last = self.memory.get("linear")
        if last is None or last[0] is not point:
            zipped = zip(self.shootings, point.runs, self.noise, strict=True)
            last = self.memory["linear"] = (point, each(lambda x: x[0].linearise(*x[1:]), zipped))
        return last[1]

    def _split(self, point: Point) -> tuple[list[Linear], np.ndarray]:
        """What the samples of each shooting tell, and the slopes C of continuity, which its last group shows, and
        of conditions."""
        samples, C = [], [np.zeros((0, self.size))]
        for i, (linear, place) in enumerate(zip(self.linear(point), self.places, strict=True)):
            follower = self._follower(i)
            count = 0 if follower is None else self.shootings[follower].size
            end = len(linear.r) - count
            if follower is not None:
                rows = self._placed(linear.J[end:], place)
                rows[:, self.places[follower]] -= np.eye(count)
                C.append(rows)
            samples.append(linear._replace(r=linear.r[:end], J=linear.J[:end]))
        return samples, np.concatenate([*C, self.held_slopes(point.y, [x.start for x in samples])])

    def rows(self, point: Point) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """All residuals and their derivatives by y (samples, then priors), and the slopes C of equality rows."""
        samples, C = self._split(point)
        r, J = self.prior(point.y, [x.start for x in samples])
        wide = [self._placed(x.J, place) for x, place in zip(samples, self.places, strict=True)]
        return np.concatenate([*(x.r for x in samples), r]), np.concatenate([*wide, J]), C

    def quadratic(self, point: Point) -> Quadratic:
        samples, C = self._split(point)
        r, J = self.prior(point.y, [x.start for x in samples])
        H, g = J.T @ J, J.T @ r
        for x, place in zip(samples, self.places, strict=True):
            at = np.r_[0 : self.free.size, place]
            H[np.ix_(at, at)] += x.J.T @ x.J
            g[at] += x.J.T @ x.r
        return Quadratic(H, g, C, point.gaps)

    def gradient(self, point: Point) -> np.ndarray:
        if self.gradients == "forward" and self.least_squares:
            return self.quadratic(point).g
        g, starts = np.zeros(self.size), []
        zipped = zip(self.shootings, point.runs, self.noise, strict=True)
        found = each(lambda x: x[0].gradient(*x[1:]), zipped)
        for (own, start), place in zip(found, self.places, strict=True):
            g[np.r_[0 : self.free.size, place]] += own
            starts.append(start)
        r, J = self.prior(point.y, starts)
        return g + J.T @ r

    def _placed(self, J: np.ndarray, place: slice) -> np.ndarray:
        """Columns of (θ, ξ of one shooting) among all unknowns."""
        wide = np.zeros((len(J), self.size))
        wide[:, : self.free.size] = J[:, : self.free.size]
        wide[:, place] = J[:, self.free.size :]
        return wide

    # Priors

    def prior_residuals(self, y: np.ndarray) -> np.ndarray:
        theta = y[: self.free.size]
        mean, std = self.free.priors
        known = np.flatnonzero(np.isfinite(std))
        r = [((self.free.numbers_with_slopes(theta)[0] - mean) / std)[known]]
        for i, chosen, first in self._believed:
            found = first.at(self.free.bind(theta), y[self.places[i]])
            gap = np.full(2 * len(first.q), np.inf) if found is None else np.concatenate(found) - first.mean
            r.append(gap[chosen] / first.std[chosen])
        return np.concatenate([*r, *self._conditions(y, soft)])

    def prior(self, y: np.ndarray, starts: list[Tangents]) -> tuple[np.ndarray, np.ndarray]:
        """Residuals of priors and their derivatives, given how first states move."""
        nt = self.free.size
        theta = y[:nt]
        _, std = self.free.priors
        known = np.flatnonzero(np.isfinite(std))
        _, slopes = self.free.numbers_with_slopes(theta)
        J = [np.diag(np.concatenate([slopes / std, np.zeros(self.size - nt)]))[known]]
        for i, chosen, first in self._believed:
            rows = np.concatenate([starts[i].q, starts[i].v])[chosen] / first.std[chosen][:, None]
            J.append(self._placed(rows, self.places[i]))
        return self.prior_residuals(y), np.concatenate([*J, *self._condition_slopes(y, starts, soft)])

    @property
    def _believed(self) -> list[tuple[int, np.ndarray, FirstState]]:
        """Experiments that believe something of their first state: which, and of which coordinates and rates."""
        found = []
        for i, (s, before) in enumerate(zip(self.shootings, self.follows, strict=True)):
            chosen = np.flatnonzero(np.isfinite(s.first.std))
            if len(chosen) and before is None:
                found.append((i, chosen, s.first))
        return found

    # Conditions on first states

    def held(self, y: np.ndarray) -> np.ndarray:
        """Residuals of the conditions that hold exactly."""
        return np.concatenate([np.zeros(0), *self._conditions(y, exact)])

    def held_slopes(self, y: np.ndarray, starts: list[Tangents]) -> np.ndarray:
        return np.concatenate([np.zeros((0, self.size)), *self._condition_slopes(y, starts, exact)])

    def _conditions(self, y: np.ndarray, which: Any) -> Iterator[np.ndarray]:
        for i, chosen in self._conditioned(which):
            first, model = self.shootings[i].first, self.free.bind(y[: self.free.size])
            found = first.at(model, y[self.places[i]])
            if found is None:
                yield np.full_like(condition_values(chosen, model, first.q, first.v), np.inf)
            else:
                yield condition_values(chosen, model, *found)

    def _condition_slopes(self, y: np.ndarray, starts: list[Tangents], which: Any) -> Iterator[np.ndarray]:
        theta = y[: self.free.size]
        for i, chosen in self._conditioned(which):
            model, tangent = self.free.bind(theta), tangent_of(self.free, theta)
            found = self.shootings[i].first.at(model, y[self.places[i]])
            assert found is not None
            yield self._placed(condition_slopes(chosen, model, tangent, *found, starts[i]), self.places[i])

    def _conditioned(self, which: Any) -> list[tuple[int, Any]]:
        """Experiments with conditions of one kind, and these."""
        begun = [i for i, before in enumerate(self.follows) if before is None]
        found = [(i, which(self.shootings[i].experiment.start.conditions)) for i in begun]
        return [(i, conditions) for i, conditions in found if conditions]

    # Continuity

    def _follower(self, i: int) -> int | None:
        return self.follows.index(i) if i in self.follows else None

    def _end(self, run: Run) -> np.ndarray:
        return run.residuals[-1].reshape(-1)

    def _gaps(self, y: np.ndarray, runs: Sequence[Run]) -> np.ndarray:
        """How far each segment ends from where the next one begins."""
        gaps = [
            self._end(runs[before]) - y[self.places[i]]
            for i, before in enumerate(self.follows)
            if before is not None
        ]
        return np.concatenate([np.zeros(0), *gaps])


class EndState(NamedTuple):
    """A sensor of the independent coordinates and rates: what the next segment begins with."""

    q: Any
    v: Any

    def predict(self, observation: Observation, model: Any) -> Array:
        return jnp.concatenate([observation.q[self.q], observation.v[self.v]])

    def difference(self, predicted: Array, measured: Array) -> Array:
        return predicted - measured


def with_end(shooting: Shooting, following: Shooting) -> Shooting:
    """A segment that also shows where it ends, as its last group, with weight 1 and nothing subtracted."""
    first, size = following.first, following.size
    group = Group(
        (EndState(first.free_q, first.free_v),),
        Form((size,), True),
        tuple(first.names),
        np.array([shooting.grid.steps - 1]),
        np.ones(1),
        np.zeros((1, size)),
        np.ones((1, size)),
        np.ones(1),
        np.ones(size),
    )
    return replace(shooting, groups=(*shooting.groups, group), continued=True)


def each(function: Any, items: Any) -> list[Any]:
    """The function of each item, on all cores where there are several."""
    items = list(items)
    if len(items) == 1:
        return [function(items[0])]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(function, items))


def refuse_too_few(problem: ShootingProblem) -> None:
    """Refuse logs with fewer samples (priors among them) than there are unknowns."""
    if not problem.least_squares:
        return
    samples = int(sum(g.present.sum() for s in problem.shootings for g in s.groups))
    known, names = (
        samples + len(problem.prior_residuals(problem.start)),
        [s.experiment.name for s in problem.shootings],
    )
    if known < problem.size:
        who = f"Experiment '{names[0]}' has" if len(names) == 1 else f"Experiments {choices(names)} have"
        raise MechidError(
            f"{who} {plural(samples, 'sample')} for {problem.size} unknowns (parameters and first states): record "
            "more, or free less."
        )
