"""One experiment by shooting: simulate from its start, compare with its log, differentiate the difference.

Unknowns: the parameters θ, shared by all experiments, and ξ, what is unknown of this one's first state.

    forward   r and ∂r/∂(θ, ξ) by sensitivities               cost grows with the number of unknowns
    backward  ∂J/∂(θ, ξ) by the discrete adjoint (Lemma 1)     cost hardly grows with it
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from mechid.dynamics.driver import (
    Change,
    Chunk,
    Directions,
    TangentsBehind,
    chunk_length,
    compile_chunks,
    cotangents,
    fails,
    first_change,
    padded,
    solve_again,
    solve_chunks,
    tangents,
    unsolved,
)
from mechid.dynamics.feedback import Feedback
from mechid.dynamics.intervals import InputSlopes
from mechid.dynamics.linearization import tangent_of
from mechid.dynamics.simulate import Plan, planned
from mechid.dynamics.stepper import Stepper
from mechid.errors import MechidError
from mechid.estimate.delay import Late
from mechid.estimate.experiment import Experiment
from mechid.estimate.residuals import Comparison, Loss, comparison
from mechid.estimate.samples import Grid, Group
from mechid.estimate.start import FirstState, Tangents
from mechid.estimate.whitening import Weight, weighting
from mechid.model.parameters import Parameters


class Run(NamedTuple):
    """An experiment simulated at some unknowns."""

    theta: np.ndarray
    unknowns: np.ndarray
    model: Any
    plan: Plan | None
    """None where it could not begin"""
    chunks: tuple[Chunk, ...]
    q: np.ndarray
    v: np.ndarray
    residuals: tuple[np.ndarray, ...]
    """(m, c) weighted, for each group; of the samples that were reached"""
    cost: float
    """∞ where a step could not be solved"""
    failure: str = ""
    behind: Any = None
    """derivatives of it that are already on their way (`Behind`)"""
    moves: Any = None
    """how everything changes with the unknowns (`Moves`), where that is known already"""


class Linear(NamedTuple):
    """Weighted residuals and their derivatives by (θ, ξ): rows are samples × channels, group by group."""

    r: np.ndarray
    J: np.ndarray
    start: Tangents
    """how the first coordinates and rates move"""


class Moves(NamedTuple):
    """How all that a simulation depends on changes with (θ, ξ)."""

    start: Tangents
    directions: Directions
    """late inputs left out: they belong to chunks"""
    late: InputSlopes | None


@dataclass(frozen=True, eq=False)
class Shooting:
    """One experiment on its grid of steps."""

    experiment: Experiment
    stepper: Stepper
    free: Parameters
    grid: Grid
    groups: tuple[Group, ...]
    first: FirstState
    table: np.ndarray | Feedback
    """inputs, or inputs with feedback, at the starting parameters"""
    keep: int
    """steps whose states are kept; more are made again"""
    continued: bool = False
    """the last group only shows where this segment ends, and costs nothing"""
    late: tuple[Late, ...] = ()
    """inputs whose delay is free"""
    memory: dict[str, Any] = field(default_factory=dict, init=False, repr=False)
    """comparisons with the samples, at the noise they were last asked for"""

    @property
    def size(self) -> int:
        """Unknowns of the first state."""
        return self.first.size

    @cached_property
    def loss(self) -> Loss:
        cost = self.experiment.cost
        return Loss() if cost is None else Loss(cost.running, cost.terminal, self.free.names)

    @cached_property
    def length(self) -> int:
        """Steps of a chunk."""
        return chunk_length(self.stepper, self.free.bind(self.free.theta0), self.grid.steps)

    def weights(self, noise: tuple[np.ndarray, ...]) -> list[Weight]:
        """What makes every sample's noise white and of unit std, 0 where it is missing."""
        return [weighting(g, std) for g, std in zip(self.groups, noise, strict=True)]

    def comparisons(self, noise: tuple[np.ndarray, ...]) -> Sequence[Comparison]:
        """The samples of each chunk."""
        if self.memory.get("noise") is not noise:
            weights, n, length = self.weights(noise), self.grid.steps, self.length
            cuts = [(a, min(a + length, n)) for a in range(0, n, length)]
            found = [comparison(self.groups, weights, self.loss, *cut, length) for cut in cuts]
            self.memory.update(noise=noise, comparisons=found)
        return self.memory["comparisons"]

    def acting(self, theta: np.ndarray) -> np.ndarray | Feedback:
        """The inputs as they act at some parameters."""
        if not self.late:
            return self.table
        delays, _ = self.free.delays(theta)
        rows = np.array(self.table.rows if isinstance(self.table, Feedback) else self.table)
        for x in self.late:
            rows[:, x.column] = x.signal.over(self.grid.t, float(delays[x.column]))[0]
        return replace(self.table, rows=rows) if isinstance(self.table, Feedback) else rows

    def moved_inputs(self, theta: np.ndarray) -> InputSlopes | None:
        """How the inputs move with the parameters; None where no delay is free."""
        if not self.free.late_inputs:
            return None
        delays, slopes = self.free.delays(theta)
        by_delay = np.zeros((self.grid.steps, len(delays)))
        for x in self.late:
            by_delay[:, x.column] = x.signal.over(self.grid.t, float(delays[x.column]))[1]
        return InputSlopes(by_delay, slopes)

    def run(
        self,
        theta: np.ndarray,
        unknowns: np.ndarray,
        noise: tuple[np.ndarray, ...],
        model: Any = None,
        *,
        ahead: bool = False,
    ) -> Run:
        """Simulate and compare. What cannot be simulated costs ∞. ahead: begin with the derivatives meanwhile."""
        model = self.free.bind(theta) if model is None else model
        start = self.first.at(model, unknowns) if all(np.isfinite(unknowns)) else None
        failed = Run(theta, unknowns, model, None, (), self.first.q, self.first.v, (), np.inf)
        if start is None:
            return failed._replace(failure="The loops cannot be closed at the start.")
        q, v = start
        try:
            plan = self._planned(theta, q, v, model)
        except MechidError as error:
            return failed._replace(failure=str(error))
        compare, values = self.comparisons(noise), self.values(theta)
        begun, behind = failed._replace(plan=plan, q=q, v=v), None
        if ahead and self.length < self.grid.steps <= self.keep:
            behind = Behind(self, begun, noise)

        moves: list[Any] = [None]

        def meanwhile() -> None:
            if ahead and behind is None:
                moves[0] = self.moves(begun)

        chunks, parts, total = [], [], 0.0
        solved = solve_chunks(
            plan, comparisons=compare, values=values, length=self.length, meanwhile=meanwhile
        )
        for i, chunk in enumerate(solved):
            if behind is not None:
                behind.see(i, chunk)
            if self.loss.running is None:
                parts.append(self._meant(chunk, compare[i]))
            else:
                total += float(chunk.compared)
            whole = self.grid.steps <= self.keep
            chunks.append(chunk._replace(compared=None, motion=chunk.motion if whole else None))
        if behind is not None:
            behind.close(cancel=fails(chunks[-1]))
        r = tuple(np.concatenate(x) for x in zip(*parts, strict=True))
        costs = r[:-1] if self.continued else r
        cost = total if parts == [] else 0.5 * sum(float(np.vdot(x, x)) for x in costs)
        failure = ""
        if fails(chunks[-1]) or not np.isfinite(cost):
            at = self.grid.t[chunks[-1].first + chunks[-1].solved]
            failure = f"The simulation fails at t = {at:.4g} s."
            cost = np.inf
        return begun._replace(
            chunks=tuple(chunks), residuals=r, cost=cost, failure=failure, behind=behind, moves=moves[0]
        )

    def programs(self, *, adjoint: bool) -> list[Callable[[], Any]]:
        """Calls that compile what `run` and then `linearise` or `gradient` need, without solving a step."""
        theta, first = self.free.theta0, self.first
        noise = tuple(np.ones(len(g.std)) for g in self.groups)
        model = self.free.bind(theta)
        plan = self._planned(theta, first.q, first.v, model)
        compare, values = self.comparisons(noise)[0], self.values(theta)
        run = Run(theta, first.unknowns, model, plan, (), first.q, first.v, (), 0.0)

        def derivatives() -> None:
            moves, chunk = self.moves(run), unsolved(plan)
            directions = self.directions(moves, chunk)
            if adjoint:
                cotangents(plan, chunk, directions, compare, values, self._no_slopes(model))
            else:
                first = first_change(self.stepper, moves.start.x, model.driven.shape[0])
                tangents(plan, chunk, directions, compare, values, first)

        return [derivatives, lambda: compile_chunks(plan, compare, values)]

    def linearise(self, run: Run, noise: tuple[np.ndarray, ...]) -> Linear:
        """Residuals and their derivatives, by forward sensitivities."""
        plan, compare, values = self._plan(run), self.comparisons(noise), self.values(run.theta)
        if run.behind is not None and not run.behind.cancelled:
            moves, found = run.behind.results()
        else:
            moves, found = run.moves or self.moves(run), []
            carry = first_change(self.stepper, moves.start.x, run.model.driven.shape[0])
            for i, chunk in enumerate(run.chunks):
                chunk = solve_again(plan, chunk, compare[i], values)
                out, carry = tangents(plan, chunk, self.directions(moves, chunk), compare[i], values, carry)
                found.append(out)
        n = moves.start.x.shape[-1]
        parts = [
            self._meant(chunk._replace(compared=J), c)
            for chunk, J, c in zip(run.chunks, found, compare, strict=True)
        ]
        J = [np.concatenate(x).reshape(-1, n) for x in zip(*parts, strict=True)]
        r = np.concatenate([r.reshape(-1) for r in run.residuals])
        return Linear(r, np.concatenate(J), moves.start)

    def gradient(self, run: Run, noise: tuple[np.ndarray, ...]) -> tuple[np.ndarray, Tangents]:
        """∂J/∂(θ, ξ), by the adjoint; and how the first coordinates and rates move."""
        plan, compare, values = self._plan(run), self.comparisons(noise), self.values(run.theta)
        moves, carry = self.moves(run), self._no_slopes(run.model)
        gradient = np.zeros(moves.start.x.shape[-1])
        for i, chunk in reversed(list(enumerate(run.chunks))):
            chunk = solve_again(plan, chunk, compare[i], values)
            own, carry = cotangents(plan, chunk, self.directions(moves, chunk), compare[i], values, carry)
            gradient += np.asarray(own)
        return gradient + np.sum(np.asarray(carry.states), 0) @ moves.start.x, moves.start

    def _planned(self, theta: np.ndarray, q: np.ndarray, v: np.ndarray, model: Any) -> Plan:
        return planned(
            self.free.mechanism,
            self.stepper,
            self.grid.steps,
            q=q,
            v=v,
            inputs=self.acting(theta),
            t0=float(self.grid.t[0]),
            model=model,
        )

    def _no_slopes(self, model: Any) -> Change:
        """Slopes of a cost by what follows the last step: none."""
        states = np.zeros((self.stepper.window, self.stepper.nx(model)))
        return Change(states, np.zeros(model.driven.shape[0]))

    def _plan(self, run: Run) -> Plan:
        if run.plan is None or not np.isfinite(run.cost):
            raise MechidError(f"There is no derivative where the simulation fails: {run.failure}")
        return run.plan

    def values(self, theta: np.ndarray) -> np.ndarray:
        """The physical values that a user's cost sees."""
        none = self.loss.running is None
        return np.zeros(0) if none else np.asarray(self.free.numbers_with_slopes(theta)[0])

    def _meant(self, chunk: Chunk, compare: Comparison) -> list[np.ndarray]:
        """What was found at each sample of a chunk that was reached, without padding."""
        found = []
        for x, samples in zip(chunk.compared, compare.samples, strict=True):
            reached = int(np.searchsorted(samples.step[: samples.count], chunk.solved))
            found.append(np.asarray(x)[:reached])
        return found

    # Derivatives of what a simulation depends on

    def moves(self, run: Run) -> Moves:
        plan, t = run.plan, float(self.grid.t[0])
        assert plan is not None
        tangent = tangent_of(self.free, run.theta)
        start = self.first.slopes(self.stepper, run.model, tangent, plan.state, run.q, run.v, t)
        n = start.x.shape[-1]
        numbers = [None if s is None else _wide(s, n) for s in tangent]
        values = np.zeros((0, n))
        if self.loss.running is not None:
            values = _wide(np.diag(self.free.numbers_with_slopes(run.theta)[1]), n)
        late = self.moved_inputs(run.theta)
        if late is not None:
            late = late._replace(delays=_wide(late.delays, n))
        return Moves(start, Directions(numbers, values), late)

    def directions(self, moves: Moves, chunk: Chunk) -> Directions:
        """The directions of a chunk, those of its inputs among them."""
        if moves.late is None:
            return moves.directions
        own = moves.late.of(slice(chunk.first, chunk.first + chunk.count))
        return moves.directions._replace(late=(padded(own.by_delay, len(chunk.rows)), own.delays))


class Behind:
    """The derivatives of a run, computed on a second thread as its chunks are solved."""

    def __init__(self, shooting: Shooting, run: Run, noise: tuple[np.ndarray, ...]) -> None:
        self._shooting, self._run = shooting, run
        self._compare, self._values = shooting.comparisons(noise), shooting.values(run.theta)
        self._moves: Any = None
        self.cancelled = False
        assert run.plan is not None
        self._tangents = TangentsBehind(run.plan, self._first)

    def _first(self) -> Change:
        self._moves = self._shooting.moves(self._run)
        return first_change(self._shooting.stepper, self._moves.start.x, self._run.model.driven.shape[0])

    def see(self, i: int, chunk: Chunk) -> None:
        """Begin with chunk number i, which has just been solved."""
        at = self._shooting.directions
        self._tangents.see(chunk, lambda: at(self._moves, chunk), self._compare[i], self._values)

    def close(self, *, cancel: bool) -> None:
        """Nothing more will come; with cancel nothing of it is wanted."""
        self.cancelled = cancel
        self._tangents.close(cancel=cancel)

    def results(self) -> tuple[Moves, list[Any]]:
        """How everything moves, and the derivatives of each chunk's comparison."""
        found = self._tangents.results()
        return self._moves, found


def _wide(slopes: Any, n: int) -> np.ndarray:
    """Derivatives by θ with zeros for the other unknowns, last axis n."""
    wide = np.zeros((*np.shape(slopes)[:-1], n))
    wide[..., : np.shape(slopes)[-1]] = slopes
    return wide
