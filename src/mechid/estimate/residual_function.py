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
from mechid.estimate.start import closed_start, undriven_rows
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
    q: Any
    v: Any
    """initial coordinates and rates where the unknowns leave them alone"""
    mean: Any
    std: Any
    """(2 nq,) what is believed of them; ∞ where nothing is"""


class Form(NamedTuple):
    """What is known of an experiment while compiling."""

    name: str
    steps: int
    free_q: tuple[int, ...]
    free_v: tuple[int, ...]
    """coordinates whose initial value, whose initial rate is unknown"""
    dependent: tuple[int, ...]
    following: tuple[int, ...]
    """coordinates that follow from closed loops, and whose rates do"""
    loop_rows: int
    """of the constraint that are no drives"""
    believed: tuple[int, ...]
    """of (q, v): what has a prior"""
    conditions: tuple[Any, ...]
    late: tuple[tuple[int, str], ...]
    """inputs whose delay is free, and how their samples are held"""


class Known(NamedTuple):
    """What is known of a residual function while compiling."""

    free: Parameters
    forms: tuple[Form, ...]


@dataclass(frozen=True, eq=False)
class ResidualFunction:
    """The weighted residuals of experiments as a pure function of the unknowns: call it, or `evaluate` it.

    A pytree whose leaves are the data: an argument of `jax.jit`, so that other data compile nothing anew.
    """

    data: tuple[Data, ...]
    known: Known

    @property
    def free(self) -> Parameters:
        return self.known.free

    @property
    def size(self) -> int:
        """Number of unknowns."""
        return self._places[-1].stop

    @property
    def start(self) -> np.ndarray:
        """(n,) unknowns where a fit would begin."""
        pairs = zip(self.data, self.known.forms, strict=True)
        begun = (
            x for d, f in pairs for x in (np.asarray(d.q)[list(f.free_q)], np.asarray(d.v)[list(f.free_v)])
        )
        return np.concatenate([self.free.theta0, *begun])

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the unknowns."""
        names = self.free.mechanism.coordinate_names
        starts = []
        for f in self.known.forms:
            starts += [f"{f.name}: q({names[i]})" for i in f.free_q]
            starts += [f"{f.name}: v({names[i]})" for i in f.free_v]
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
        for data, form, place in zip(self.data, self.known.forms, self._places, strict=True):
            motion, q, v = self._motion(data, form, model, y[:n], y[place])
            found = data.compare(data.stepper, model, motion, values)
            if isinstance(found, tuple):
                rows += [r.reshape(-1) for r in found]
            else:
                cost += found
            solved.append(motion.solved)
            fine &= motion.solved == form.steps
            known = list(form.believed)
            mean, std = (jnp.asarray(x)[jnp.array(known, int)] for x in (data.mean, data.std))
            soft_rows.append((jnp.concatenate([q, v])[jnp.array(known, int)] - mean) / std)
            soft_rows.append(condition_residuals(soft(form.conditions), q, v, model))
        r = jnp.concatenate([*rows, *soft_rows])
        cost = jnp.where(fine, cost + 0.5 * jnp.vdot(r, r), jnp.inf)
        return Evaluated(r, cost, jnp.stack(solved))

    def motions(self, y: Array) -> tuple[Motion, ...]:
        """The motion of each experiment."""
        y = self._checked(y)
        theta = y[: self.free.size]
        model = self.free.bind(theta)
        triples = zip(self.data, self.known.forms, self._places, strict=True)
        return tuple(self._motion(d, f, model, theta, y[place])[0] for d, f, place in triples)

    def conditions(self, y: Array) -> Array:
        """Residuals of the conditions on initial states that are to hold exactly; they are no part of the cost."""
        y = self._checked(y)
        theta = y[: self.free.size]
        model, found = self.free.bind(theta), [jnp.zeros(0)]
        for data, form, place in zip(self.data, self.known.forms, self._places, strict=True):
            _, q, v = self._begin(data, form, model, data.rows[0], y[place])
            found.append(condition_residuals(exact(form.conditions), q, v, model))
        return jnp.concatenate(found)

    @property
    def _places(self) -> list[slice]:
        ends = np.cumsum([self.free.size, *(len(f.free_q) + len(f.free_v) for f in self.known.forms)])
        return [slice(int(a), int(b)) for a, b in pairwise(ends)]

    def _checked(self, y: Any) -> Array:
        y = jnp.asarray(y, float)
        if y.shape != (self.size,):
            raise MechidError(
                f"The unknowns must have shape ({self.size},), not {y.shape}: {', '.join(self.names)}."
            )
        return y

    def _begin(self, data: Data, form: Form, model: Any, row: Any, unknowns: Array) -> Any:
        """The first state, coordinates and rates; driven inputs stand where their coordinates are."""
        m, n = self.free.mechanism, len(form.free_q)
        u = jnp.asarray(row)[: model.nu]
        for d in m.drives:
            u = u.at[m.input_names.index(d.name)].set(data.q[m.coordinate_names.index(d.coordinate)])
        q = jnp.asarray(data.q).at[jnp.array(form.free_q, int)].set(unknowns[:n])
        v = jnp.asarray(data.v).at[jnp.array(form.free_v, int)].set(unknowns[n:])
        q, v = closed_start(model, q, v, form.dependent, form.following, form.loop_rows)
        return data.stepper.initial(model, q, v, u, data.t[0]), q, v

    def _motion(self, data: Data, form: Form, model: Any, theta: Array, unknowns: Array) -> Any:
        rows = jnp.asarray(data.rows)
        if form.late:
            at, count, _ = self.free.lowering.layout.blocks["delay"]
            delays = self.free.values(theta)[at : at + count]
            for (column, hold), (time, values) in zip(form.late, data.late, strict=True):
                rows = rows.at[:, column].set(late_input(hold, time, values, data.t, delays[column]))
        x0, q, v = self._begin(data, form, model, rows[0], unknowns)
        driven = v[model.driven]
        motion = rollout(data.stepper, model, x0, rows, t0=data.t[0], law=data.law, driven=driven)
        return motion, q, v


register(ResidualFunction, ["data"], ["known"])


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
    shootings = checked_shootings(mechanism, stepper, given, free)
    return of_shootings(free, shootings)


def of_shootings(free: Parameters, shootings: Sequence[Shooting]) -> ResidualFunction:
    """The residual function of experiments that are on their grids of steps."""
    return ResidualFunction(tuple(map(_data, shootings)), Known(free, tuple(map(_form, shootings))))


def checked_shootings(
    mechanism: System, stepper: Stepper, given: list[Any], free: Parameters
) -> tuple[Shooting, ...]:
    """The experiments on their grids of steps, refused where `residual_function` would."""
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
    return tuple(shootings)


def _data(s: Shooting) -> Data:
    n = s.grid.steps
    noise = tuple(np.where(np.isnan(g.std), 1.0, g.std) for g in s.groups)
    compare = comparison(s.groups, s.weights(noise), s.loss, 0, n, n)
    exactly = tuple(x._replace(**_cut(x)) for x in compare.samples)
    table, law = s.table, None
    if isinstance(table, Feedback):
        table, law = table.rows, as_law(table.law)
    late = tuple((np.asarray(x.signal.time), np.asarray(x.signal.values)) for x in s.late)
    compare = replace(compare, samples=exactly)
    first = s.first
    return Data(s.stepper, table, law, s.grid.t, compare, late, first.q, first.v, first.mean, first.std)


def _form(s: Shooting) -> Form:
    first = s.first
    free_q, free_v, dependent, following = (
        tuple(x.tolist()) for x in (first.free_q, first.free_v, first.dependent, first.following)
    )
    return Form(
        s.experiment.name,
        s.grid.steps,
        free_q,
        free_v,
        dependent,
        following,
        undriven_rows(s.free.mechanism),
        tuple(np.flatnonzero(np.isfinite(first.std)).tolist()),
        tuple(s.experiment.start.conditions),  # type: ignore[arg-type]
        tuple((x.column, x.signal.hold) for x in s.late),
    )


def _cut(samples: Any) -> dict[str, Any]:
    """Samples without padding."""
    return {k: getattr(samples, k)[: samples.count] for k in ("step", "fraction", "values", "weight", "last")}
