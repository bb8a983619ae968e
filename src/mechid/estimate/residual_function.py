"""`residual_function`: what simulation error minimises, as a pure function for `jax.grad`, `jit`, `vmap`, samplers.

    r(y) = weighted residuals of all samples, then of priors and soft conditions,    y = (θ, ξ₁, ξ₂, …)

θ are the parameters, ξ what is unknown of each experiment's initial state. A motion that ends early, since a step
could not be solved, has finite residuals and an infinite cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from mechid.compile import register
from mechid.dynamics.feedback import Feedback
from mechid.dynamics.rollout import Motion, rollout
from mechid.dynamics.stepper import Stepper
from mechid.dynamics.trajectory import as_law
from mechid.dynamics.tree import Array
from mechid.errors import MechidError
from mechid.estimate.conditions import condition_residuals, exact, soft
from mechid.estimate.delay import late_input
from mechid.estimate.experiment import Experiment
from mechid.estimate.prepare import check, prepared
from mechid.estimate.residuals import Comparison, comparison
from mechid.estimate.shooting import Shooting
from mechid.estimate.solvers.levenberg_marquardt import LevenbergMarquardt
from mechid.estimate.solvers.steepest_descent import SteepestDescent
from mechid.estimate.tracking import with_gains
from mechid.model.parameters import Parameters
from mechid.model.system import System


class Evaluated(NamedTuple):
    """A residual function at one point."""

    residuals: Array
    """samples of each experiment, then priors and soft conditions; finite also where a motion ended early"""
    cost: Array
    """½ Σ residuals², or what the experiments' own costs add up to; ∞ where a motion ended early"""
    solved: Array
    """(experiments,) steps that were solved"""


class Data(NamedTuple):
    """The numbers of an experiment; they may be mapped over."""

    stepper: Stepper
    rows: Any
    """(steps, nu) inputs, or what a law sees"""
    law: Any
    t: Any
    """(steps + 1,) s"""
    compare: Comparison
    late: tuple[tuple[Any, Any], ...]
    """times and values of the inputs whose delay is free"""


@dataclass(frozen=True, eq=False)
class ResidualFunction:
    """The weighted residuals of experiments as a pure function of the unknowns: call it, or `evaluate` it.

    A pytree whose leaves are the data: an argument of `jax.jit`, so that other data compile nothing anew.
    """

    data: tuple[Data, ...]
    known: Any
    """what is known while compiling: (parameters, shootings)"""

    @property
    def free(self) -> Parameters:
        return self.known.free

    @property
    def size(self) -> int:
        """Number of unknowns."""
        return self.free.size + sum(s.size for s in self.known.shootings)

    @property
    def start(self) -> np.ndarray:
        """(n,) unknowns where a fit would begin."""
        return np.concatenate([self.free.theta0, *(s.first.unknowns for s in self.known.shootings)])

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the unknowns."""
        starts = (f"{s.experiment.name}: {name}" for s in self.known.shootings for name in s.first.names)
        return (*self.free.names, *starts)

    def __call__(self, y: Array) -> Array:
        """(rows,) weighted residuals."""
        return self.evaluate(y).residuals

    def cost(self, y: Array) -> Array:
        """Half the sum of squares, or the experiments' own costs; ∞ where a step could not be solved."""
        return self.evaluate(y).cost

    def evaluate(self, y: Array) -> Evaluated:
        """Residuals, cost and how far each motion was solved.

        Args:
            y: (n,) unknowns: the parameters' θ, then each experiment's unknown initial coordinates and rates.
        """
        y = self._checked(y)
        n = self.free.size
        model, values = self.free.bind(y[:n]), jnp.asarray(self.free.numbers(y[:n]))
        mean, std = self.free.priors
        believed = np.flatnonzero(np.isfinite(std))
        rows, soft_rows = [], [((values - mean) / std)[believed]]
        cost, fine, solved = jnp.zeros(()), jnp.asarray(True), []
        for data, s, place in zip(self.data, self.known.shootings, self._places, strict=True):
            motion, q, v = self._motion(data, s, model, y[:n], y[place])
            found = data.compare(data.stepper, model, motion, values)
            if isinstance(found, tuple):
                rows += [r.reshape(-1) for r in found]
            else:
                cost += found
            solved.append(motion.solved)
            fine &= motion.solved == len(s.grid.t) - 1
            known = np.flatnonzero(np.isfinite(s.first.std))
            soft_rows.append(((jnp.concatenate([q, v]) - s.first.mean) / s.first.std)[known])
            soft_rows.append(condition_residuals(soft(s.experiment.start.conditions), q, v, model))
        r = jnp.concatenate([*rows, *soft_rows])
        cost = jnp.where(fine, cost + 0.5 * jnp.vdot(r, r), jnp.inf)
        return Evaluated(r, cost, jnp.stack(solved))

    def motions(self, y: Array) -> tuple[Motion, ...]:
        """The motion of each experiment."""
        y = self._checked(y)
        theta = y[: self.free.size]
        model = self.free.bind(theta)
        triples = zip(self.data, self.known.shootings, self._places, strict=True)
        return tuple(self._motion(d, s, model, theta, y[place])[0] for d, s, place in triples)

    def conditions(self, y: Array) -> Array:
        """Residuals of the conditions on initial states that are to hold exactly; they are no part of the cost."""
        y = self._checked(y)
        theta = y[: self.free.size]
        model, found = self.free.bind(theta), [jnp.zeros(0)]
        for data, s, place in zip(self.data, self.known.shootings, self._places, strict=True):
            _, q, v = self._begin(data, s, model, data.rows[0], y[place])
            found.append(condition_residuals(exact(s.experiment.start.conditions), q, v, model))
        return jnp.concatenate(found)

    @property
    def _places(self) -> list[slice]:
        ends = np.cumsum([self.free.size, *(s.size for s in self.known.shootings)])
        return [slice(int(a), int(b)) for a, b in pairwise(ends)]

    def _checked(self, y: Any) -> Array:
        y = jnp.asarray(y, float)
        if y.shape != (self.size,):
            raise MechidError(
                f"The unknowns must have shape ({self.size},), not {y.shape}: {', '.join(self.names)}."
            )
        return y

    def _begin(self, data: Data, s: Shooting, model: Any, row: Array, unknowns: Array) -> Any:
        """The first state, coordinates and rates; driven inputs stand where their coordinates are."""
        m = s.free.mechanism
        u = jnp.asarray(row)[: model.nu]
        for d in m.drives:
            u = u.at[m.input_names.index(d.name)].set(s.first.q[m.coordinate_names.index(d.coordinate)])
        return s.first.state(data.stepper, model, unknowns, u, data.t[0])

    def _motion(self, data: Data, s: Shooting, model: Any, theta: Array, unknowns: Array) -> Any:
        rows = jnp.asarray(data.rows)
        if s.late:
            at, count, _ = self.free.lowering.layout.blocks["delay"]
            delays = self.free.values(theta)[at : at + count]
            for x, (time, values) in zip(s.late, data.late, strict=True):
                late = late_input(x.signal.hold, time, values, data.t, delays[x.column])
                rows = rows.at[:, x.column].set(late)
        x0, q, v = self._begin(data, s, model, rows[0], unknowns)
        driven = v[model.driven]
        motion = rollout(data.stepper, model, x0, rows, t0=data.t[0], law=data.law, driven=driven)
        return motion, q, v


register(ResidualFunction, ["data"], ["known"])


@dataclass(frozen=True, eq=False)
class _Known:
    free: Parameters
    shootings: tuple[Shooting, ...]


def residual_function(
    mechanism: System, stepper: Stepper, experiments: Experiment | Sequence[Experiment], free: Parameters
) -> ResidualFunction:
    """What `simulation_error` minimises, as a pure function of the unknowns.

    Args:
        mechanism, stepper, experiments, free: as for `simulation_error`. Every channel needs a `std`: noise is not
            estimated here.

    Returns:
        A `ResidualFunction` r with r(y), r.cost(y), r.evaluate(y) and r.motions(y). They compose with `jax.jit`,
        `grad`, `jvp`, `vmap` and `scan`; nothing in them is run on the host.

    Raises:
        MechidError: what `simulation_error` would refuse, and channels without std.
    """
    given: list[Any] = list(experiments) if isinstance(experiments, list | tuple) else [experiments]
    own = any(isinstance(e, Experiment) and e.cost is not None for e in given)
    solver = SteepestDescent() if own else LevenbergMarquardt()
    check(mechanism, stepper, given, free, solver, None)
    shootings = []
    for e in given:
        s = prepared(stepper, e, free)
        s = with_gains(s) if e.feedback is not None else s
        for group in s.groups:
            unknown = [c for c, std in zip(group.channels, group.std, strict=True) if np.isnan(std)]
            if unknown and s.loss.running is None:
                raise MechidError(
                    f"Channel '{unknown[0]}' of experiment '{e.name}' has no std: a residual function needs the "
                    "noise of every channel (std=…)."
                )
        shootings.append(s)
    return ResidualFunction(tuple(map(_data, shootings)), _Known(free, tuple(shootings)))


def _data(s: Shooting) -> Data:
    n = s.grid.steps
    noise = tuple(np.where(np.isnan(g.std), 1.0, g.std) for g in s.groups)
    compare = comparison(s.groups, s.weights(noise), s.loss, 0, n, n)
    exactly = tuple(x._replace(**_cut(x)) for x in compare.samples)
    table, law = s.table, None
    if isinstance(table, Feedback):
        table, law = table.rows, as_law(table.law)
    late = tuple((np.asarray(x.signal.time), np.asarray(x.signal.values)) for x in s.late)
    return Data(s.stepper, table, law, s.grid.t, replace(compare, samples=exactly), late)


def _cut(samples: Any) -> dict[str, Any]:
    """Samples without padding."""
    return {k: getattr(samples, k)[: samples.count] for k in ("step", "fraction", "values", "weight", "last")}
