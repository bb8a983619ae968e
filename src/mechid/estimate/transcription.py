"""The full discretisation as one sparse nonlinear program: all that an interior-point method asks for.

    min ½ Σ ‖sample residuals‖² + priors      with  r_k = 0 for every interval, bounds and limits of the parameters

    v = (y, d₁ … d_N, z₀ … z_{N−1}, …)        y = (θ, ξ₁, ξ₂, …),  x_k = retract(x̄_k, d_k) around a first guess x̄

Nothing is eliminated but the first state of each log, which follows from y: every row of every interval is a
constraint, on the states of its window, its multipliers and θ; so are conditions on first states. The Hessian is
that of Gauss and Newton. Unknowns and rows are scaled to the order of one, and the cost is divided by the number of
samples.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse

from mechid.compile import jit
from mechid.dynamics.intervals import Intervals, dynamic_rows, interval_blocks, moved
from mechid.dynamics.linearization import tangent_at
from mechid.dynamics.model import Model, float_leaves
from mechid.dynamics.stepper import Stepper
from mechid.dynamics.tree import Array
from mechid.estimate.chain import ChainProblem, Link, Motion, Place, ranges
from mechid.estimate.problem import each
from mechid.estimate.residuals import sample_rows
from mechid.estimate.shooting import Shooting
from mechid.estimate.solvers.ipopt import Sparse
from mechid.estimate.solvers.problem import within
from mechid.estimate.whitening import Weight

TOUCHED = 1e-6
"""of an unknown's scale: nearer to a bound that holds it, it lies on the bound"""


class Log(NamedTuple):
    """Where a log's unknowns stand in v."""

    steps: int
    y: slice
    """ξ"""
    x: slice
    """(steps · nx) d"""
    z: slice
    """(steps · nz)"""


class Rows(NamedTuple):
    """Slopes of m groups of r rows, each by some states, by the multipliers of an interval, and by θ."""

    interval: np.ndarray
    """(m,)"""
    states: np.ndarray
    """(m, s) numbers of the states"""
    x: np.ndarray
    """(m, s, r, nx)"""
    z: np.ndarray
    """(m, r, nz)"""
    theta: np.ndarray
    """(m, r, θ)"""


class Slopes(NamedTuple):
    """All slopes at a point, in the program's units."""

    r: np.ndarray
    """residuals of samples and priors"""
    residuals: Sparse
    rows: Sparse


@dataclass(frozen=True, eq=False)
class Transcription:
    """A `SparseProgram`: all logs around a first guess of their states."""

    problem: ChainProblem
    """without a cost of state errors"""
    guess: Place
    logs: tuple[Log, ...]
    scale: np.ndarray
    """of every unknown"""
    row_scale: np.ndarray
    samples: int
    """what the cost is divided by"""
    memory: dict[str, Any] = field(default_factory=lambda: {"evaluations": 0}, repr=False)
    """the last place and the last slopes, which are asked for more than once"""

    @property
    def size(self) -> int:
        """of y"""
        return self.problem.base.size

    @property
    def start(self) -> np.ndarray:
        v = np.zeros(len(self.scale))
        v[: self.size] = self.guess.y
        for log, link in zip(self.logs, self.guess.links, strict=True):
            v[log.z] = link.motion.z.ravel()
        return v / self.scale

    @property
    def lower(self) -> np.ndarray:
        return self._bounds(self.problem.base.lower, -np.inf)

    @property
    def upper(self) -> np.ndarray:
        return self._bounds(self.problem.base.upper, np.inf)

    def _bounds(self, of_y: np.ndarray, others: float) -> np.ndarray:
        return np.concatenate([of_y, np.full(len(self.scale) - self.size, others)]) / self.scale

    @property
    def row_lower(self) -> np.ndarray:
        """Equations and conditions are zero; limits of the parameters, which come last, are at most zero."""
        limits = len(self.problem.base.free.inequalities[1])
        return np.concatenate([np.zeros(len(self.row_scale) - limits), np.full(limits, -np.inf)])

    @property
    def row_upper(self) -> np.ndarray:
        return np.zeros(len(self.row_scale))

    # Values

    def values(self, v: np.ndarray) -> tuple[float, np.ndarray]:
        place = self.place(v)
        if not np.isfinite(place.cost):
            return np.nan, np.full(len(self.row_scale), np.nan)
        rows = [np.concatenate([link.errors, link.hard], 1).ravel() for link in place.links]
        base = self.problem.base
        of_y = [base.held(place.y), -base.limits(place.y)[1]]
        return place.cost / self.samples, np.concatenate([*rows, *of_y]) / self.row_scale

    def place(self, v: np.ndarray) -> Place:
        """All states and their residuals."""
        last = self.memory.get("place")
        if last is None or not np.array_equal(last[0], v):
            self.memory["evaluations"] += 1
            last = self.memory["place"] = (v.copy(), self.problem.evaluate(*self._unpacked(v)))
        return last[1]

    def _unpacked(self, v: np.ndarray) -> tuple[np.ndarray, tuple[Motion, ...]]:
        full, model = v * self.scale, self.guess.model
        still = [None] * len(float_leaves(model))
        motions = []
        for s, log, link in zip(self.problem.base.shootings, self.logs, self.guess.links, strict=True):
            table = np.asarray(s.table)
            u = np.concatenate([table, table[-1:]])
            d = _with_first(full[log.x], log.steps)
            states = moved(s.stepper, model, model, still, link.motion.states, d, u, s.grid.t)
            motions.append(Motion(states, full[log.z].reshape(link.motion.z.shape)))
        return full[: self.size], tuple(motions)

    # Derivatives

    def slopes(self, v: np.ndarray) -> tuple[np.ndarray, Sparse]:
        found = self._slopes(v)
        return found.residuals.T @ found.r, found.rows

    def curvature(self, v: np.ndarray) -> Sparse:
        J = self._slopes(v).residuals
        if "places" not in self.memory:
            ones = Sparse((np.ones(J.nnz), J.indices, J.indptr), shape=J.shape)
            self.memory["places"] = _upper(ones.T @ ones)
        places, H = self.memory["places"], _upper(J.T @ J)
        # a product leaves out what happens to be zero
        data = np.zeros(places.nnz)
        data[np.searchsorted(_numbers(places), _numbers(H))] = H.data
        return Sparse((data, places.indices, places.indptr), shape=places.shape)

    def reduced_slope(self, v: np.ndarray, multipliers: np.ndarray) -> np.ndarray:
        """The cost's slope by y, all states following, as the rows' multipliers tell it."""
        gradient, rows = self.slopes(v)
        return (gradient + rows.T @ multipliers)[: self.size] / self.scale[: self.size] * self.samples

    def on_bounds(self, v: np.ndarray, multipliers: np.ndarray) -> np.ndarray:
        """Unknowns that a bound holds put on it: a barrier keeps them away a little."""
        v, n = v.copy(), self.size
        for bound, pull in ((self.lower, -multipliers), (self.upper, multipliers)):
            gap = np.abs(v - bound)
            v = np.where((gap <= TOUCHED) & (pull > gap), bound, v)
        v[:n] = within(self.problem.base, v[:n] * self.scale[:n]) / self.scale[:n]
        return v

    def _slopes(self, v: np.ndarray) -> Slopes:
        last = self.memory.get("slopes")
        if last is None or not np.array_equal(last[0], v):
            last = self.memory["slopes"] = (v.copy(), self._linearised(v))
        return last[1]

    def _linearised(self, v: np.ndarray) -> Slopes:
        place, base, full = self.place(v), self.problem.base, v * self.scale
        tangent = tangent_at(base.free, place.y[: base.free.size], place.model)

        def one(i: int) -> tuple[Any, ...]:
            s, log, link = base.shootings[i], self.logs[i], place.links[i]
            first = jax.tree.map(lambda a: a[0], link.motion.states)
            t = float(s.grid.t[0])
            start = s.first.slopes(s.stepper, place.model, tangent, first, link.q, link.v, t)
            d = _with_first(full[log.x], log.steps)
            turned = np.asarray(_turned(s.stepper, self.guess.links[i].motion.states, d))
            weights = s.weights(base.noise[i])
            samples = _sample_slopes(s, place.model, tangent, weights, link, base.free.size)
            equations = [_equation_slopes(s.stepper, place.model, tangent, link)]
            return *([_spread(r, log, start.x, turned) for r in x] for x in (samples, equations)), start

        samples, equations, starts = zip(*each(one, range(len(self.logs))), strict=True)
        r, J = base.prior(place.y, list(starts))
        r = np.concatenate([*(x.ravel() for link in place.links for x in link.residuals), r])
        root = np.full(len(r), 1.0 / np.sqrt(self.samples))
        of_y = np.concatenate([base.held_slopes(place.y, list(starts)), base.limits(place.y)[0]])
        return Slopes(
            r * root,
            self._matrix([x for parts in samples for x in parts], J, root),
            self._matrix([x for parts in equations for x in parts], of_y, 1.0 / self.row_scale),
        )

    def _matrix(self, parts: list[Entries], last: np.ndarray, row_scale: np.ndarray) -> Sparse:
        """Parts of rows one below another, then rows on y alone; in the program's units."""
        tops = np.cumsum([0, *(part.rows for part in parts)])
        i, j = np.indices(last.shape)
        row = np.concatenate(
            [*(p.row + top for p, top in zip(parts, tops, strict=False)), i.ravel() + tops[-1]]
        )
        column = np.concatenate([*(p.column for p in parts), j.ravel()])
        value = (
            np.concatenate([*(p.value for p in parts), last.ravel()]) * row_scale[row] * self.scale[column]
        )
        made = scipy.sparse.coo_array((value, (row, column)), shape=(tops[-1] + len(last), len(self.scale)))
        return _sorted(made)


def transcribed(problem: ChainProblem, guess: Place, y_scale: np.ndarray) -> Transcription:
    """The program around a first guess.

    A state's scale is how far it runs. A row's is what its states add up to at most, and a multiplier's what moves
    its rows by as much. Scales of unknowns are powers of two, so that nothing is rounded.
    """
    base, model = problem.base, guess.model
    nx, nz = problem.stepper.nx(model), problem.stepper.nz(model)
    tangent = tangent_at(base.free, guess.y[: base.free.size], model)
    logs, scales, row_scales, at = [], [y_scale], [], base.size
    for s, link, place in zip(base.shootings, guess.links, base.places, strict=True):
        n = s.grid.steps
        ends = np.cumsum([at, n * nx, n * nz])
        x, z = (slice(int(a), int(b)) for a, b in pairwise(ends))
        logs.append(Log(n, place, x, z))
        at = z.stop
        run = ranges(s.stepper, link.motion.states)
        by = _equation_slopes(s.stepper, model, tangent, link)
        rows = _or_one((np.abs(by.x) * run).max((0, 1, 3)))
        moves = _or_one((np.abs(by.z) / rows[:, None]).max((0, 1)))
        scales += [np.tile(run, n), np.tile(1.0 / moves, n)]
        row_scales.append(np.tile(rows, n))
    of_y = len(base.held(guess.y)) + len(base.limits(guess.y)[1])
    row_scales.append(np.ones(of_y))
    samples = max(sum(int(np.count_nonzero(r)) for link in guess.links for r in link.residuals), 1)
    scale = np.exp2(np.round(np.log2(np.concatenate(scales))))
    made = Transcription(problem, guess, tuple(logs), scale, np.concatenate(row_scales), samples)
    rows = made.slopes(made.start)[1].tocsr()[len(made.row_scale) - of_y :]
    sizes = np.concatenate([*row_scales[:-1], _or_one(abs(rows).max(1).toarray().ravel())])
    return replace(made, row_scale=sizes, memory={"evaluations": 0})


def _or_one(a: np.ndarray) -> np.ndarray:
    return np.where(a > 0.0, a, 1.0)


def _with_first(d: np.ndarray, steps: int) -> np.ndarray:
    """(steps + 1, nx) changes of states, the first one's being 0."""
    d = d.reshape(steps, -1)
    return np.concatenate([np.zeros_like(d[:1]), d])


@jit
def _turned(stepper: Stepper, states: Any, d: Array) -> Array:
    """(steps + 1, nx, nx) how a state's tangent vector follows d: not one to one where there are rotations."""

    def one(x: Any, d: Array) -> Array:
        here = stepper.retract(x, d)
        return jax.jacfwd(lambda e: stepper.local(here, stepper.retract(x, d + e)))(jnp.zeros_like(d))

    return jax.vmap(one)(states, d)


# Rows and their entries


def _equation_slopes(stepper: Stepper, model: Model, tangent: Any, link: Link) -> Rows:
    """Of all intervals' residuals: dynamic rows, then the others."""
    by = interval_blocks(stepper, model, tangent, link.given)
    dynamic = dynamic_rows(stepper, model)
    order = np.concatenate([dynamic, np.setdiff1d(np.arange(by.r.shape[1]), dynamic)])
    k = np.arange(len(by.r))
    states = np.maximum(k[:, None] + np.arange(1 - stepper.window, 2), 0)
    x, z, theta = (np.asarray(a) for a in (by.x, by.z, by.theta))
    return Rows(k, states, x[:, :, order], z[:, order], theta[:, order])


def _sample_slopes(
    s: Shooting, model: Model, tangent: Any, weights: list[Weight], link: Link, parameters: int
) -> list[Rows]:
    """Of each group's residuals, by the states at the ends of the interval in which a sample lies."""
    nx, nz = s.stepper.nx(model), s.stepper.nz(model)
    # columns: the state after, multipliers, the state before, θ, 1
    sizes = [nx, nz, nx, parameters]
    columns = sum(sizes) + 1
    chosen = (np.eye(nx, columns), np.eye(nz, columns, nx))
    ends = Intervals(*(np.broadcast_to(a, (s.grid.steps, *a.shape)) for a in chosen))
    found = []
    for group, weight in zip(s.groups, weights, strict=True):
        table = sample_rows(s.stepper, model, tangent, group, weight, link.given, ends, parameters)
        after, z, before, theta, _ = np.split(table, np.cumsum(sizes), axis=-1)
        k = group.interval
        found.append(Rows(k, np.stack([k, k + 1], 1), np.stack([before, after], 1), z, theta))
    return found


class Entries(NamedTuple):
    """Of a sparse matrix, with how many rows it has."""

    row: np.ndarray
    column: np.ndarray
    value: np.ndarray
    rows: int


def _spread(by: Rows, log: Log, start: np.ndarray, turned: np.ndarray) -> Entries:
    """Slopes by unknowns. start: how the first state follows (θ, ξ); turned: how the others follow d."""
    m, _, r, nx = by.x.shape
    nz, nt = by.z.shape[-1], by.theta.shape[-1]
    row = (r * np.arange(m)[:, None] + np.arange(r))[:, :, None]
    later = by.states > 0
    i, j = np.nonzero(later)
    number = by.states[i, j]
    first = np.where(later[..., None, None], 0.0, by.x).sum(1)
    near = np.flatnonzero(~later.all(1))
    blocks = [
        (row[i], log.x.start + nx * (number[:, None] - 1) + np.arange(nx), by.x[i, j] @ turned[number]),
        (row, log.z.start + nz * by.interval[:, None] + np.arange(nz), by.z),
        (row, np.broadcast_to(np.arange(nt), (m, nt)), by.theta + first @ start[:, :nt]),
        (row[near], np.tile(np.r_[log.y], (len(near), 1)), first[near] @ start[:, nt:]),
    ]
    parts = [
        [np.broadcast_to(a, value.shape).ravel() for a in (row, column[:, None, :], value)]
        for row, column, value in blocks
    ]
    row, column, value = (np.concatenate(part) for part in zip(*parts, strict=True))
    return Entries(row, column, value, m * r)


def _upper(a: Any) -> Sparse:
    return _sorted(scipy.sparse.triu(a))


def _sorted(a: Any) -> Sparse:
    """By columns, rows rising."""
    made = Sparse(a)
    made.sum_duplicates()
    return made


def _numbers(a: Sparse) -> np.ndarray:
    """Places counted column by column."""
    height, width = a.shape  # type: ignore[misc]
    return np.repeat(np.arange(width), np.diff(a.indptr)) * np.int64(height) + a.indices
