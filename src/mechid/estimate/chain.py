"""All experiments as chains of states: cost, violation and linearisation of y = (θ, ξ₁, ξ₂, …), x_k and z_k.

    soft   ½ Σ ‖W (w_k + s_k)‖² + ½ Σ ‖sample residuals‖² + priors,   w_k the dynamic rows of interval k
    hard   all other rows: closed loops, definitions

Where the dynamics are to be exact W is large and WᵀW s_k are estimates of their multipliers (augmented Lagrangian).
The first state of a chain follows from θ and from what is unknown of it (ξ), loops closed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from mechid.compile import jit
from mechid.dynamics.assembly import with_driven
from mechid.dynamics.contacts import blurred
from mechid.dynamics.intervals import (
    GivenMotion,
    Intervals,
    dynamic_rows,
    interval_residuals,
    linear_intervals,
    moved,
)
from mechid.dynamics.linearization import tangent_at
from mechid.dynamics.model import Model
from mechid.dynamics.sensors import JointPosition
from mechid.dynamics.stepper import Stepper
from mechid.dynamics.tree import Array
from mechid.estimate.problem import ShootingProblem, each
from mechid.estimate.residuals import residuals, sample_rows
from mechid.estimate.samples import Group
from mechid.estimate.shooting import Shooting
from mechid.estimate.solvers.block_arrow import Chain, Sizes, Swept, follow, sweep
from mechid.estimate.solvers.problem import within
from mechid.estimate.standard import Standard, factors, measured, slopes
from mechid.estimate.start import Tangents
from mechid.estimate.uncertainty import Rows


class Motion(NamedTuple):
    """A log's states and multipliers, as far as they are known."""

    states: Any
    """N + 1"""
    z: np.ndarray
    """(N, nz)"""


class Link(NamedTuple):
    """A log at a point."""

    motion: Motion
    given: GivenMotion
    q: np.ndarray
    v: np.ndarray
    """first coordinates and rates"""
    errors: np.ndarray
    """(N, dynamic rows) w"""
    hard: np.ndarray
    """(N, hard rows)"""
    residuals: tuple[np.ndarray, ...]
    """(m, c) weighted, for each group of sensors"""


class Place(NamedTuple):
    """All unknowns, with their cost."""

    y: np.ndarray
    model: Any
    links: tuple[Link, ...]
    cost: float
    """∞ where it cannot be computed"""
    violation: float
    """Σ |hard rows|, conditions on first states among them"""


class Linear(NamedTuple):
    """All chains linearised and swept."""

    tangent: list[Any]
    """∂(the model's numbers)/∂θ"""

    chains: tuple[Chain, ...]
    intervals: tuple[Intervals, ...]
    swept: tuple[Swept, ...]
    starts: tuple[Tangents, ...]
    triangle: np.ndarray
    """(rows, y + 1): cost of a step d, all states at their best, is ½ ‖triangle [d ; 1]‖²"""
    held: np.ndarray = np.zeros((0, 0))
    """(rows, y + 1): what conditions on first states demand of it, held [d ; 1] = 0"""


class Step(NamedTuple):
    """A change of all unknowns."""

    d: np.ndarray
    x: tuple[np.ndarray, ...]
    """(N + 1, nx) tangent vectors"""
    z: tuple[np.ndarray, ...]
    slopes: list[Any]
    """of the model's numbers, None where they stay"""


@dataclass(frozen=True, eq=False)
class ChainProblem:
    """Experiments whose states are unknowns, sharing the parameters."""

    base: ShootingProblem
    """parameters, first states, samples, noise, priors and bounds"""
    weight: np.ndarray
    """(w, w) square root W of the state errors' weight"""
    shift: tuple[np.ndarray, ...] | None = None
    """(N, w) s of each log"""
    belief: tuple[np.ndarray, np.ndarray] | None = None
    """means and 1/std of further rows on θ"""
    level: float = 0.0
    """state errors, in parts of what moves a state through its range, that cost as much as one std of a sample"""
    last: float = np.inf
    """relative length of the step after which multipliers were last moved"""
    blur: np.ndarray | None = None
    """rad/s or m/s over which contacts, stops and dry friction are rounded"""
    pace: np.ndarray | None = None
    """rad/s or m/s, RMS of the rates of the same rows"""
    standard: Standard | None = None
    """what state errors are measured by; None: impulses as they are"""

    @property
    def stepper(self) -> Stepper:
        return self.base.shootings[0].stepper

    def bound(self, y: np.ndarray) -> Model:
        """The model for the parameters of y, kept until others are asked for."""
        theta = y[: self.base.free.size]
        blur = b"" if self.blur is None else self.blur.tobytes()
        key, kept = theta.tobytes() + blur, self.base.memory.get("model")
        if kept is None or kept[0] != key:
            model = self.base.free.bind(theta)
            if self.blur is not None:
                model = blurred(model, self.blur)
            kept = self.base.memory["model"] = (key, model)
        return kept[1]

    # Cost

    def evaluate(self, y: np.ndarray, motions: tuple[Motion, ...]) -> Place:
        base, model = self.base, self.bound(y)
        rows, factor = dynamic_rows(self.stepper, model), self._factor(model)

        def one(i: int) -> Link | None:
            s, motion = base.shootings[i], motions[i]
            found = s.first.at(model, y[base.places[i]])
            if found is None:
                return None
            first = first_states(s, model, *found)
            states = jax.tree.map(lambda a, b: np.concatenate([b[None], a[1:]]), motion.states, first)
            now = Motion(states, motion.z)
            given = given_motion(s, now, y[: base.free.size])
            r = interval_residuals(s.stepper, model, given)
            seen = residuals(s.stepper, model, s.groups, s.weights(base.noise[i]), given)
            return Link(now, given, *found, factor * r[:, rows], np.delete(r, rows, axis=1), seen)

        links = each(one, range(len(motions)))
        if any(link is None for link in links):
            return Place(y, model, (), np.inf, np.inf)
        return self.priced(Place(y, model, tuple(links), 0.0, 0.0))

    def rounded(self, place: Place) -> Place:
        """The same place where this problem rounds friction otherwise: sensors see what they saw."""
        model = self.bound(place.y)
        rows, factor = dynamic_rows(self.stepper, model), self._factor(model)

        def one(link: Link) -> Link:
            r = interval_residuals(self.stepper, model, link.given)
            return link._replace(errors=factor * r[:, rows], hard=np.delete(r, rows, axis=1))

        return self.priced(place._replace(model=model, links=tuple(each(one, place.links))))

    def priced(self, place: Place) -> Place:
        """The same place with its cost in this problem's weights."""
        cost = 0.5 * float(np.sum(self.base.prior_residuals(place.y) ** 2))
        cost += 0.5 * float(np.sum(self._believed(place.y)[0] ** 2))
        violation = float(np.abs(self.base.held(place.y)).sum())
        for i, link in enumerate(place.links):
            e = self._weighed(link.errors + self._shift(i, link))
            cost += 0.5 * (float(np.vdot(e, e)) + sum(float(np.vdot(r, r)) for r in link.residuals))
            violation += float(np.abs(link.hard).sum())
        fine = np.isfinite(cost + violation)
        return place._replace(cost=cost if fine else np.inf, violation=violation if fine else np.inf)

    def _factor(self, model: Model) -> Any:
        return 1.0 if self.standard is None else factors(self.standard, self.stepper, model)

    def _believed(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Residuals of further rows on θ, and their slopes by y."""
        nt, n = self.base.free.size, self.base.size
        if self.belief is None:
            return np.zeros(0), np.zeros((0, n))
        mean, root = self.belief
        return root * (y[:nt] - mean), np.eye(nt, n) * root[:, None]

    def openness(self, place: Place) -> float:
        """Mean size of the hard rows, or of the conditions on first states where they are larger."""
        held = np.abs(self.base.held(place.y))
        rest = place.violation - held.sum()
        mean = rest / max(sum(link.hard.size for link in place.links), 1)
        return max(float(mean), float(held.mean()) if len(held) else 0.0)

    def _weighed(self, errors: np.ndarray) -> np.ndarray:
        # the library's threads would cost more than small products
        own = np.diag(self.weight)
        return errors * own if np.array_equal(self.weight, np.diag(own)) else errors @ self.weight.T

    def _shift(self, i: int, link: Link) -> np.ndarray:
        return np.zeros_like(link.errors) if self.shift is None else self.shift[i]

    # Derivatives

    def linearise(self, place: Place) -> Linear:
        base, nt = self.base, self.base.free.size
        theta, model = place.y[:nt], place.model
        tangent = tangent_at(base.free, theta, model)
        by_theta = None
        if self.standard is not None:
            by_theta = slopes(self.standard, self.stepper, model, tangent)

        def one(i: int) -> tuple[Any, ...]:
            s, link = base.shootings[i], place.links[i]
            chain, intervals = self._chain(i, model, tangent, link, by_theta)
            first = jax.tree.map(lambda a: a[0], link.motion.states)
            start = s.first.slopes(s.stepper, model, tangent, first, link.q, link.v, float(s.grid.t[0]))
            return chain, intervals, sweep(chain), start

        found = each(one, range(len(place.links)))
        chains, intervals, swept, starts = zip(*found, strict=True)
        return self._joined(place, Linear(tangent, chains, intervals, swept, starts, np.zeros((0, 0))))

    def reweighed(self, place: Place, linear: Linear) -> Linear:
        """What this problem's weights make of a linearisation at the same place."""
        chains = tuple(
            c._replace(W=self.weight, shift=self._shift(i, link))
            for i, (c, link) in enumerate(zip(linear.chains, place.links, strict=True))
        )
        return self._joined(place, linear._replace(chains=chains, swept=tuple(each(sweep, chains))))

    def _joined(self, place: Place, linear: Linear) -> Linear:
        """With the triangle of all that is known of y."""
        base = self.base
        r, J = base.prior(place.y, list(linear.starts))
        more, slopes = self._believed(place.y)
        rows = [np.concatenate([J, r[:, None]], 1), np.concatenate([slopes, more[:, None]], 1)]
        for chain, out, start, at in zip(
            linear.chains, linear.swept, linear.starts, base.places, strict=True
        ):
            rows += [self._wide(chain, out, start, at)]
        held = np.column_stack([base.held_slopes(place.y, list(linear.starts)), base.held(place.y)])
        return linear._replace(triangle=np.asarray(np.linalg.qr(np.concatenate(rows), mode="r")), held=held)

    def _chain(
        self, i: int, model: Model, tangent: Any, link: Link, by_theta: np.ndarray | None
    ) -> tuple[Chain, Intervals]:
        s, nt = self.base.shootings[i], self.base.free.size
        stepper = s.stepper
        intervals = linear_intervals(stepper, model, tangent, link.given)
        if by_theta is not None:
            intervals = measured(intervals, link.errors, self._factor(model), by_theta)
        sizes = Sizes(link.errors.shape[1], stepper.nx(model), stepper.window, nt)
        weights = self.base.shootings[i].weights(self.base.noise[i])
        tables, first = [], []
        for group, weight in zip(s.groups, weights, strict=True):
            rows = sample_rows(stepper, model, tangent, group, weight, link.given, intervals, nt)
            n = leading(group)
            first.append(rows[:n, :, sizes.errors :].reshape(n * rows.shape[1], sizes.columns - sizes.errors))
            tables.append(_by_interval(rows[n:], group.interval[n:], s.grid.steps))
        rows = tables[0] if len(tables) == 1 else np.concatenate(tables, 1)
        chain = Chain(sizes, intervals.M, rows, self.weight, self._shift(i, link), np.concatenate(first))
        return chain, intervals

    def _wide(self, chain: Chain, swept: Swept, start: Tangents, place: slice) -> np.ndarray:
        """What a chain says of (θ, ξ, 1), among all unknowns."""
        nt, nx, X = self.base.free.size, chain.sizes.state, chain.sizes.chain
        first = swept.first if chain.first is None else np.concatenate([swept.first, chain.first])
        n, newest = len(first), first[:, X - nx : X]
        rows = np.zeros((n + len(swept.rest), self.base.size + 1))
        rows[:n, :nt] = newest @ start.x[:, :nt] + first[:, X : X + nt]
        rows[:n, place] = newest @ start.x[:, nt:]
        rows[:n, -1] = first[:, -1]
        rows[n:, :nt], rows[n:, -1] = swept.rest[:, :nt], swept.rest[:, -1]
        return rows

    def step(self, linear: Linear, d: np.ndarray) -> Step:
        """How all states and multipliers follow a step of y."""
        columns = np.concatenate([d, [1.0]])[:, None]
        found = [self.response(linear, i, columns) for i in range(len(linear.chains))]
        nt = self.base.free.size
        slopes = [None if s is None else s @ d[:nt] for s in linear.tangent]
        return Step(d, tuple(x[..., 0] for x, _, _ in found), tuple(z[..., 0] for _, _, z in found), slopes)

    def response(
        self, linear: Linear, i: int, columns: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """States, state errors and multipliers of a log for columns of (y, 1)."""
        nt, chain = self.base.free.size, linear.chains[i]
        start, place = linear.starts[i].x, self.base.places[i]
        first = start[:, :nt] @ columns[:nt] + start[:, nt:] @ columns[place]
        border = np.concatenate([columns[:nt], columns[-1:]])
        x, w = follow(chain, linear.swept[i], first, border)
        z = _applied(linear.intervals[i].Z, w, windows(x, chain.sizes), border)
        return x, w, z

    def rows(self, place: Place, linear: Linear, *, errors: bool) -> Rows:
        """Residuals of samples (and state errors) and priors, with their slopes by y, all states following."""
        n = self.base.size
        columns = np.concatenate([np.eye(n), np.zeros((1, n))])
        r, J, lengths = [], [], []
        softly: list[Any] = []
        for i, link in enumerate(place.links):
            x, w, _ = self.response(linear, i, columns)
            border = np.concatenate([columns[: self.base.free.size], columns[-1:]])
            chain = linear.chains[i]
            X = windows(x, chain.sizes)
            table = _applied(chain.Y, w, X, border)
            early = np.zeros((0, n)) if chain.first is None else chain.first @ np.concatenate([X[0], border])
            at = 0
            for group, own in zip(self.base.shootings[i].groups, link.residuals, strict=True):
                (m, c), lead = own.shape, leading(group)
                interval = group.interval[lead:]
                slot = _slots(interval)
                place_of = at + (slot[:, None] * c + np.arange(c))
                at += c * (int(slot.max(initial=-1)) + 1)
                J.append(early[: lead * c])
                early = early[lead * c :]
                J.append(table[interval[:, None], place_of].reshape((m - lead) * c, n))
                r.append(own.reshape(-1))
                lengths.append((m * c, c))
            if errors:
                softly.append(((link.errors @ self.weight.T).reshape(-1), (self.weight @ w).reshape(-1, n)))
        present = int(sum(np.count_nonzero(own) for link in place.links for own in link.residuals))
        more, slopes = self.base.prior(place.y, list(linear.starts))
        return Rows(
            np.concatenate([*r, *(e for e, _ in softly), more]),
            np.concatenate([*J, *(slope for _, slope in softly), slopes]),
            linear.held[:, :n],
            lengths,
            present,
            sum(e.size for e, _ in softly),
        )

    def moved(self, place: Place, step: Step, part: float = 1.0) -> tuple[np.ndarray, tuple[Motion, ...]]:
        """All unknowns after a part of a step, inside their bounds; the first states follow from y."""
        y = within(self.base, place.y + part * step.d)
        new = self.bound(y)
        slopes = [None if s is None else part * s for s in step.slopes]
        motions = []
        for s, link, dx, dz in zip(self.base.shootings, place.links, step.x, step.z, strict=True):
            u = np.concatenate([link.given.u, link.given.u[-1:]])
            states = moved(s.stepper, place.model, new, slopes, link.motion.states, part * dx, u, s.grid.t)
            motions.append(Motion(states, link.motion.z + part * dz))
        return y, tuple(motions)


def windows(x: np.ndarray, sizes: Sizes) -> np.ndarray:
    """(N, X, c) the window before each interval, oldest first; what lies before the start does not count."""
    n = len(x) - 1
    if sizes.window == 1:
        return x[:n]
    parts = [x[:n]]
    for back in range(1, sizes.window):
        parts.insert(0, np.concatenate([np.zeros_like(x[:back]), x[: n - back]])[:n])
    return np.concatenate(parts, 1)


def _applied(rows: np.ndarray, w: np.ndarray, X: np.ndarray, border: np.ndarray) -> np.ndarray:
    """(N, r, c) rows on (w, X, θ, 1) at given columns."""
    e, nX = w.shape[1], X.shape[1]
    return rows[..., :e] @ w + rows[..., e : e + nX] @ X + rows[..., e + nX :] @ border


def first_states(s: Shooting, model: Model, q: np.ndarray, v: np.ndarray) -> Any:
    """The stepper's state for first coordinates and rates."""
    u = with_driven(s.free.mechanism, np.asarray(s.table)[0, : model.nu], q)
    return jax.tree.map(np.asarray, _initial(s.stepper, model, q, v, u, float(s.grid.t[0])))


@partial(jit, once=True)
def _initial(stepper: Stepper, model: Model, q: Array, v: Array, u: Array, t: Array) -> Any:
    return stepper.initial(model, q, v, u, t)


def given_motion(s: Shooting, motion: Motion, theta: np.ndarray) -> GivenMotion:
    """A motion as what residuals and sensors look at."""
    table = np.asarray(s.acting(theta))
    return GivenMotion(motion.states, motion.z, table, s.grid.t[:-1], s.moved_inputs(theta))


def _by_interval(rows: np.ndarray, interval: np.ndarray, steps: int) -> np.ndarray:
    """(steps, slots · c, columns): rows of the samples that lie in each interval, zeros where there are fewer."""
    _, c, columns = rows.shape
    if np.array_equal(interval, np.arange(steps)):
        return rows
    slot = _slots(interval)
    table = np.zeros((steps, int(slot.max(initial=-1)) + 1, c, columns))
    table[interval, slot] = rows
    return table.reshape(steps, -1, columns)


def leading(group: Group) -> int:
    """How many samples, of coordinates alone, lie in the moment in which a log begins: rows of the first state."""
    if not all(isinstance(sensor, JointPosition) for sensor in group.sensors):
        return 0
    return int(np.count_nonzero((group.interval == 0) & (group.fraction == 0.0)))


def _slots(interval: np.ndarray) -> np.ndarray:
    """The how manieth sample of its interval each is."""
    return np.arange(len(interval)) - np.searchsorted(interval, interval)


def ranges(stepper: Stepper, states: Any) -> np.ndarray:
    """How far each component of a state runs, seen from the first; the farthest where one stays."""
    run = np.ptp(np.asarray(_seen_from_first(stepper, states)), axis=0)
    return np.where(run > 1e-6 * run.max(), run, max(run.max(), 1e-12))


def some(steps: int, most: int = 200) -> np.ndarray:
    """Intervals spread over a motion, where not all are needed."""
    return np.linspace(0, steps - 1, min(steps, most)).astype(int)


@partial(jit, once=True)
def coordinates(stepper: Stepper, model: Model, states: Any) -> tuple[Array, Array]:
    """Of states, and the mass matrix at the middle one."""
    q = jax.vmap(lambda x: stepper.positions(model, x))(states)
    return q, model.mass_matrix(q[q.shape[0] // 2])


@partial(jit, once=True)
def _seen_from_first(stepper: Stepper, states: Any) -> Array:
    first = jax.tree.map(lambda a: a[0], states)
    return jax.vmap(lambda x: stepper.local(first, x))(states)
