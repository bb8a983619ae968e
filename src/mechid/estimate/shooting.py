"""One experiment by shooting: simulate from its start, compare with its log, differentiate the difference.

Unknowns: the parameters θ, shared by all experiments, and ξ, what is unknown of this one's first state.

    forward   r and ∂r/∂(θ, ξ) by sensitivities               cost grows with the number of unknowns
    backward  ∂J/∂(θ, ξ) by the discrete adjoint (Lemma 1)     cost hardly grows with it
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from mechid.dynamics.course import Course, InputSlopes, Stretch, course
from mechid.dynamics.feedback import Feedback
from mechid.dynamics.linearization import Ahead, backward, forward, tangent_of
from mechid.dynamics.model import Model
from mechid.dynamics.simulate import planned
from mechid.dynamics.stepper import Stepper, parameter_count
from mechid.errors import MechidError
from mechid.estimate.delay import Late
from mechid.estimate.experiment import Experiment
from mechid.estimate.residuals import Loss, pulled, residual_slopes, residuals
from mechid.estimate.samples import Grid, Group
from mechid.estimate.start import FirstState, Tangents
from mechid.estimate.whitening import Weight, weighting
from mechid.model.parameters import Parameters

AHEAD = 4096
"""steps at most whose derivatives are begun before the simulation ends, for the sake of memory"""


class Run(NamedTuple):
    """An experiment simulated at some unknowns."""

    theta: np.ndarray
    unknowns: np.ndarray
    model: Any
    course: Course | None
    """None where it could not begin"""
    q: np.ndarray
    v: np.ndarray
    residuals: tuple[np.ndarray, ...]
    """(m, c) weighted, for each group; of the samples that were reached"""
    cost: float
    """∞ where a step could not be solved"""
    failure: str = ""
    ahead: Ahead | None = None
    """derivatives of it that are already on their way"""


class Linear(NamedTuple):
    """Weighted residuals and their derivatives by (θ, ξ): rows are samples × channels, group by group."""

    r: np.ndarray
    J: np.ndarray
    start: Tangents
    """how the first coordinates and rates move"""


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

    @property
    def size(self) -> int:
        """Unknowns of the first state."""
        return self.first.size

    @cached_property
    def loss(self) -> Loss:
        cost = self.experiment.cost
        return Loss() if cost is None else Loss(cost.running, cost.terminal, self.free.names)

    def weights(self, noise: tuple[np.ndarray, ...]) -> list[Weight]:
        """What makes every sample's noise white and of unit std, 0 where it is missing."""
        return [weighting(g, std) for g, std in zip(self.groups, noise, strict=True)]

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
        failed = Run(theta, unknowns, model, None, self.first.q, self.first.v, (), np.inf)
        if start is None:
            return failed._replace(failure="The loops cannot be closed at the start.")
        q, v = start
        weights = self.weights(noise)
        found: list[list[np.ndarray]] = [[] for _ in self.groups]
        total = [0.0]

        def compare(stretch: Stretch) -> None:
            for i, (group, weight) in enumerate(zip(self.groups, weights, strict=True)):
                found[i].append(residuals(self.stepper, model, group, weight, stretch))
            if self.loss.running is not None:
                total[0] += self._pulled(theta, model, weights, stretch).value

        try:
            plan = planned(
                self.free.mechanism,
                self.stepper,
                self.grid.steps,
                q=q,
                v=v,
                inputs=self.acting(theta),
                t0=float(self.grid.t[0]),
                model=model,
            )
        except MechidError as error:
            return failed._replace(failure=str(error))
        begun = None
        if ahead and self.grid.steps <= min(AHEAD, self.keep):
            begun = Ahead(self.stepper, model, tangent_of(self.free, theta))
        made = course(plan, self.grid.t, keep=self.keep, visit=compare, early=begun.see if begun else None)
        if begun is not None:
            begun.close(cancel=made.failed is not None)
        r = tuple(np.concatenate(parts) for parts in found)
        cost = (
            total[0]
            if self.loss.running is not None
            else 0.5 * sum(float(np.vdot(x, x)) for x in (r[:-1] if self.continued else r))
        )
        failure = ""
        if made.failed is not None or not np.isfinite(cost):
            failure = f"The simulation fails at t = {made.t[-1]:.4g} s."
            cost = np.inf
        return Run(theta, unknowns, model, made, q, v, r, cost, failure, begun)

    def linearise(self, run: Run, noise: tuple[np.ndarray, ...]) -> Linear:
        """Residuals and their derivatives, by forward sensitivities."""
        course = self._course(run)
        tangent, start = self._tangents(run)
        weights = self.weights(noise)
        carry = jnp.broadcast_to(start.x, (self.stepper.window, *start.x.shape))
        newest = start.x
        parts: list[list[np.ndarray]] = [[] for _ in self.groups]
        for stretch in self._stretches(run):
            for m in forward(
                self.stepper, run.model, tangent, course.plan.controller, stretch, carry, run.ahead
            ):
                moved = (np.concatenate([newest[None], m.dx]), m.dz, m.du)
                newest, carry = m.dx[-1], m.carry
                for i, (group, weight) in enumerate(zip(self.groups, weights, strict=True)):
                    parts[i].append(
                        residual_slopes(
                            self.stepper, run.model, tangent, group, weight, stretch, moved, m.first
                        )
                    )
        n = start.x.shape[-1]
        J = [np.concatenate([x.reshape(-1, n) for x in rows]) for rows in parts]
        return Linear(np.concatenate([r.reshape(-1) for r in run.residuals]), np.concatenate(J), start)

    def gradient(self, run: Run, noise: tuple[np.ndarray, ...]) -> tuple[np.ndarray, Tangents]:
        """∂J/∂(θ, ξ), by the adjoint; and how the first coordinates and rates move."""
        course = self._course(run)
        tangent, start = self._tangents(run)
        weights = self.weights(noise)
        stepper, model = self.stepper, run.model
        carry = jnp.zeros((stepper.window, stepper.nx(model)))
        numbers: Any = None
        direct, late = np.zeros(self.free.size), np.zeros(self.free.size)
        for stretch in self._stretches(run, backward=True):
            cost = self._pulled(run.theta, model, weights, stretch)
            carry, grown, more_late = backward(
                stepper, model, tangent, course.plan.controller, stretch, cost.by, carry
            )
            late += more_late
            carry = carry.at[-1].add(cost.begin)
            more = [np.asarray(a) + b for a, b in zip(grown, cost.numbers, strict=True)]
            numbers = more if numbers is None else [a + b for a, b in zip(numbers, more, strict=True)]
            direct += cost.parameters
        slopes = [x for x in tangent if x is not None]
        gradient = np.asarray(jnp.sum(carry, 0)) @ start.x
        own = parameter_count(tangent)
        for bar, slope in zip(numbers, slopes, strict=True):
            gradient[:own] += np.tensordot(bar, slope, bar.ndim)
        gradient[:own] += late
        if self.loss.running is not None:
            gradient[: self.free.size] += direct * self.free.numbers_with_slopes(run.theta)[1]
        return gradient, start

    def _course(self, run: Run) -> Course:
        if run.course is None or not np.isfinite(run.cost):
            raise MechidError(f"There is no derivative where the simulation fails: {run.failure}")
        return run.course

    def _stretches(self, run: Run, *, backward: bool = False) -> Iterator[Stretch]:
        """The steps of a run, with how their inputs move with the parameters."""
        moved = self.moved_inputs(run.theta)
        for s in self._course(run).stretches(backward=backward):
            yield s if moved is None else s._replace(moved=moved.of(slice(s.first, s.first + s.steps)))

    def _tangents(self, run: Run) -> tuple[list[Any], Tangents]:
        tangent = tangent_of(self.free, run.theta)
        assert run.course is not None
        x, t = run.course.plan.state, float(self.grid.t[0])
        return tangent, self.first.slopes(self.stepper, run.model, tangent, x, run.q, run.v, t)

    def _pulled(self, theta: np.ndarray, model: Model, weights: list[Weight], stretch: Stretch) -> Any:
        last = stretch.first + stretch.steps == self.grid.steps
        tangent = tangent_of(self.free, theta)
        values = self.free.numbers_with_slopes(theta)[0]
        return pulled(
            self.stepper, model, tangent, self.groups, weights, stretch, self.loss, values, last=last
        )
