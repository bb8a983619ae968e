"""A first guess of all states, from the log itself (Marklund, Section 4.4), so that no simulation has to succeed.

Sensors that see the configuration alone tell it at every step, each step beginning from the one before, with closed
loops kept closed. Coordinates are then smoothed without phase (Butterworth, forwards and backwards) and
differentiated; loops are closed again, and multipliers are what leaves the smallest residual in each interval.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg

from mechid.compile import jit
from mechid.dynamics.linear import factorise, solve
from mechid.dynamics.model import Model
from mechid.dynamics.sensors import JointPosition
from mechid.dynamics.simulate import simulate
from mechid.dynamics.stepper import Stepper, opening
from mechid.dynamics.tree import Array
from mechid.errors import MechidError, SimulationError
from mechid.estimate.chain import Motion, given_motion
from mechid.estimate.samples import Group
from mechid.estimate.shooting import Shooting

PULL = 1e-3
"""of a sensor's unit slope: how strongly a coordinate stays where it was in the step before"""
HEAVY = 1e3
"""weight of closed loops against what sensors see"""
PASSES = 4


class Guess(NamedTuple):
    """States and multipliers of a log, and the coordinates and rates behind them."""

    motion: Motion
    q: np.ndarray
    v: np.ndarray
    told: bool
    """the log tells every coordinate; else a simulation had to"""


def first_guess(s: Shooting, model: Model) -> Guess:
    """All states, from the log where it tells every coordinate, else from a simulation."""
    found = _read_off(s, model)
    if found is None:
        groups = [_positional(s, g) for g in s.groups]
        if all(g is None for g in groups):
            return _simulated(s, model)
        silent = _untold(s, model, groups)
        if silent is None:
            return _simulated(s, model)
        found = _configurations(s, model, groups)
    else:
        silent = np.zeros(0, int)
    q = _smooth(s.grid.t, found)
    rates = np.gradient(q, s.grid.t, axis=0, edge_order=2 if len(q) > 2 else 1)
    if len(silent):
        rates[:, silent] = np.asarray(_rolled(model, q, rates, s.grid.t, silent))
        steps = np.diff(s.grid.t)[:, None] * (rates[1:, silent] + rates[:-1, silent]) / 2
        q[:, silent] = s.first.q[silent] + np.concatenate([np.zeros((1, len(silent))), np.cumsum(steps, 0)])
    return _guess(s, model, q, rates, told=True)


def _simulated(s: Shooting, model: Model) -> Guess:
    try:
        run = simulate(
            s.free.mechanism,
            s.stepper,
            s.grid.steps,
            q=s.first.q,
            v=s.first.v,
            inputs=np.asarray(s.table),
            t0=float(s.grid.t[0]),
            model=model,
        )
    except SimulationError as error:
        raise MechidError(
            f"The log of experiment '{s.experiment.name}' does not tell every coordinate, and the starting "
            f"parameters cannot be simulated: measure more, or start nearer. {error}"
        ) from None
    return Guess(Motion(run.states, run.multipliers), run.q, run.v, False)


# Which sensors tell the configuration


def _positional(s: Shooting, group: Group) -> list[bool] | None:
    """For each sensor of a group whether it depends on the configuration alone; None where none does."""
    model = s.free.bind(s.free.theta0)
    nq = model.nq
    rng = np.random.default_rng(0)
    q, v = s.first.q, rng.normal(size=nq)
    by_q, by_v, by_z = _slopes(s.stepper, model, group.sensors, q, v, s.stepper.nz(model), s.grid.t[0])
    ends = np.cumsum((0, *group.form.sizes))
    found = [
        bool(np.abs(by_q[a:b]).max(initial=0) > 0)
        and not np.abs(by_v[a:b]).max(initial=0)
        and not np.abs(by_z[a:b]).max(initial=0)
        for a, b in pairwise(ends)
    ]
    return found if any(found) and group.times else None


@partial(jit, once=True, static_argnums=(5,))
def _slopes(
    stepper: Stepper, model: Model, sensors: Any, q: Array, v: Array, nz: int, t: Array
) -> tuple[Array, ...]:
    def seen(q: Array, v: Array, z: Array) -> Array:
        return _shown(stepper, model, sensors, q, v, z, jnp.zeros(model.nu), t)

    return jax.jacfwd(seen, argnums=(0, 1, 2))(q, v, jnp.zeros(nz))


def _shown(
    stepper: Stepper, model: Model, sensors: Any, q: Array, v: Array, z: Array, u: Array, t: Array
) -> Array:
    seen = stepper.at(q, v, z, u, t, model)
    return jnp.concatenate([sensor.predict(seen, model) for sensor in sensors])


def _untold(s: Shooting, model: Model, groups: list[list[bool] | None]) -> np.ndarray | None:
    """Coordinates that neither sensors nor loops show, but constraints on rates; None where some stay unknown."""
    rows = []
    for chosen, g in zip(groups, s.groups, strict=True):
        if chosen is None:
            continue
        by_q, _, _ = _slopes(
            s.stepper, model, _kept(chosen, g.sensors), s.first.q, s.first.v, s.stepper.nz(model), s.grid.t[0]
        )
        rows.append(np.asarray(by_q))
    rows.append(np.asarray(_closure(model, s.first.q, np.asarray(s.table)[0])[1]))
    J = np.concatenate(rows)
    size = 1e-6 * max(np.abs(J).max(), 1e-300)
    if np.linalg.matrix_rank(J, tol=size) == model.nq:
        return np.zeros(0, int)
    silent = np.flatnonzero(np.abs(J).max(0) <= size)
    shown = np.delete(J, silent, 1)
    along = np.asarray(_rolling_slope(model, s.first.q, s.first.v, s.grid.t[0]))[:, silent]
    whole = len(silent) and np.linalg.matrix_rank(shown, tol=size) == shown.shape[1]
    return silent if whole and np.linalg.matrix_rank(along) == len(silent) else None


@partial(jit, once=True)
def _rolling_slope(model: Model, q: Array, v: Array, t: Array) -> Array:
    return model.rolling(q, v, t)[1]


@partial(jit, once=True)
def _rolled(model: Model, q: Array, v: Array, t: Array, silent: Array) -> Array:
    """(N + 1, silent) rates that follow from those that are known."""

    def one(now: tuple[Array, ...]) -> Array:
        q, v, t = now
        gap, along = model.rolling(q, v.at[silent].set(0.0), t)
        return -jnp.linalg.pinv(along[:, silent]) @ gap

    return jax.lax.map(one, (q, v, t))


def _kept(chosen: list[bool], items: Any) -> tuple[Any, ...]:
    return tuple(x for keep, x in zip(chosen, items, strict=True) if keep)


@partial(jit, once=True)
def _closure(model: Model, q: Array, u: Array) -> tuple[Array, Array]:
    return model.constraint(q, u)


# Configurations, step by step


def _read_off(s: Shooting, model: Model) -> np.ndarray | None:
    """(N + 1, nq) coordinates, where joint sensors show each of them once and no loop ties them."""
    shown = [
        (g, sensor, slice(*ends))
        for g in s.groups
        if g.times
        for sensor, ends in zip(g.sensors, pairwise(np.cumsum((0, *g.form.sizes))), strict=True)
        if type(sensor) is JointPosition
    ]
    index = np.concatenate([np.asarray(sensor.index) for _, sensor, _ in shown] or [np.zeros(0, int)])
    if model.nc or not np.array_equal(np.sort(index), np.arange(model.nq)):
        return None
    q = np.empty((len(s.grid.t), model.nq))
    for g, sensor, columns in shown:
        at, turns = np.asarray(sensor.index), np.asarray(sensor.revolute, bool)
        seen = _on_grid(s, g, sensor, columns)
        first = s.first.q[at]
        whole = np.unwrap(seen, axis=0)
        whole += 2.0 * np.pi * np.round((first - whole[0]) / (2.0 * np.pi))
        q[:, at] = np.where(turns, whole, seen)
    return q


def _configurations(s: Shooting, model: Model, groups: list[list[bool] | None]) -> np.ndarray:
    """(N + 1, nq) what the sensors say at each step's ends."""
    targets, sensors = [], []
    for chosen, g in zip(groups, s.groups, strict=True):
        if chosen is not None:
            ends = np.cumsum((0, *g.form.sizes))
            for i in np.flatnonzero(chosen):
                targets.append(_on_grid(s, g, g.sensors[i], slice(ends[i], ends[i + 1])))
                sensors.append(g.sensors[i])
    table = np.asarray(s.table)
    u = np.concatenate([table[:1], table])
    return np.asarray(
        _track(s.stepper, model, tuple(sensors), tuple(targets), s.first.q, u, s.grid.t, s.stepper.nz(model))
    )


def _on_grid(s: Shooting, group: Group, sensor: Any, columns: slice) -> np.ndarray:
    """A sensor's samples at the ends of steps, between neighbours along their difference (angles the short way)."""
    t = s.grid.t
    present = np.flatnonzero(np.all(group.present[:, columns] > 0, 1))
    if not len(present):
        raise MechidError(
            f"Channel '{group.channels[columns.start]}' of experiment '{s.experiment.name}' has no values."
        )
    k = group.interval[present]
    time = t[k] + group.fraction[present] * (t[k + 1] - t[k])
    values = group.values[present][:, columns]
    if len(present) == 1:
        return np.repeat(values, len(t), 0)
    if type(sensor) is JointPosition:
        plain = np.diff(values, axis=0)
        whole = 2.0 * np.pi * np.round(plain / (2.0 * np.pi))
        gaps = np.where(np.asarray(sensor.revolute, bool), plain - whole, plain)
    else:
        gaps = np.asarray(jax.vmap(sensor.difference)(values[1:], values[:-1]))
    at = np.clip(np.searchsorted(time, t) - 1, 0, len(time) - 2)
    share = np.clip((t - time[at]) / (time[at + 1] - time[at]), 0.0, 1.0)
    return values[at] + share[:, None] * gaps[at]


@partial(jit, once=True, static_argnums=(7,))
def _track(
    stepper: Stepper, model: Model, sensors: Any, targets: Any, q: Array, u: Array, t: Array, nz: int
) -> Array:
    still, none = jnp.zeros(model.nq), jnp.zeros(nz)

    def one(q: Array, now: Any) -> tuple[Array, Array]:
        u, t, wanted = now
        before = q

        def gaps(q: Array) -> Array:
            seen = stepper.at(q, still, none, u, t, model)
            rows = [x.difference(x.predict(seen, model), y) for x, y in zip(sensors, wanted, strict=True)]
            return jnp.concatenate([*rows, PULL * (q - before), HEAVY * model.constraint(q, u)[0]])

        def better(_: Array, q: Array) -> Array:
            J = jax.jacfwd(gaps)(q)
            return q - jnp.linalg.solve(J.T @ J, J.T @ gaps(q))

        q = jax.lax.fori_loop(0, PASSES, better, q)
        return q, q

    return jax.lax.scan(one, q, (u, t, targets))[1]


# Smoothing


def _smooth(t: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Each coordinate with as much taken away as its noise, and no more."""
    if len(t) < 20:
        return q
    smooth = q.copy()
    for j in range(q.shape[1]):
        x = q[:, j]
        noise = np.std(np.diff(x, 2)) / np.sqrt(6.0)
        if noise <= 1e-12 * max(np.abs(x).max(), 1e-300):
            continue
        tried = [partial(_low_passed, x, float(cutoff)) for cutoff in np.geomspace(0.005, 0.5, 21)[:-1]]
        best = bisect_left(tried, True, key=lambda f: bool(np.std(f() - x) <= 1.15 * noise))
        if best < len(tried):
            smooth[:, j] = tried[best]()
    return smooth


def _low_passed(x: np.ndarray, cutoff: float) -> np.ndarray:
    """What is nearest to x and its second differences to zero; the gain is one half at the cutoff (of the rate).

    Its gain is that of a Butterworth filter of order 2 forwards and backwards, its ends are straight.
    """
    stiff = 1.0 / (2.0 * np.sin(np.pi * cutoff)) ** 4
    bands = np.tile(stiff * np.array([[1.0], [-4.0], [6.0]]), len(x))
    bands[2, [0, 1, -2, -1]] = stiff * np.array([1.0, 5.0, 5.0, 1.0])
    bands[1, [1, -1]] = -2.0 * stiff
    bands[2] += 1.0
    return scipy.linalg.solveh_banded(bands, x, overwrite_ab=True, check_finite=False)


# States


def _guess(s: Shooting, model: Model, q: np.ndarray, v: np.ndarray, *, told: bool) -> Guess:
    table = np.asarray(s.table)
    u = np.concatenate([table[:1], table])
    q, v, states = (jax.tree.map(np.asarray, x) for x in _states(s.stepper, model, q, v, u, s.grid.t))
    nothing = Motion(states, np.zeros((s.grid.steps, s.stepper.nz(model))))
    found = [
        np.asarray(_multipliers(s.stepper, model, rows))[:count]
        for rows, count in given_motion(s, nothing, s.free.theta0).pieces(s.stepper.window)
    ]
    return Guess(Motion(states, np.concatenate(found)), q, v, told)


@partial(jit, once=True)
def _states(
    stepper: Stepper, model: Model, q: Array, v: Array, u: Array, t: Array
) -> tuple[Array, Array, Any]:
    def one(now: tuple[Array, ...]) -> tuple[Array, Array, Any]:
        q, v, u, t = now

        def closer(_: Array, q: Array) -> Array:
            h, slope = model.constraint(q, u)
            return q - jnp.linalg.pinv(slope) @ h

        if model.nc:
            q = jax.lax.fori_loop(0, PASSES, closer, q)
        if model.nc + model.nr:
            gap, slope = opening(model, q, v, u, t)
            v = v - jnp.linalg.pinv(slope) @ gap
        return q, v, stepper.initial(model, q, v, u, t)

    return jax.lax.map(one, (q, v, u, t))


def _least_squares(A: Array, b: Array) -> Array:
    """About the shortest x with the smallest A x − b, in a tenth of the time of singular values: damped, twice."""
    square = A.T @ A
    size = jnp.maximum(jnp.max(jnp.diagonal(square)), 1e-300)
    factors = factorise(square + 1e-12 * size * jnp.eye(A.shape[1]))
    x = solve(factors, A.T @ b)
    return x + solve(factors, A.T @ (b - A @ x))


@partial(jit, once=True)
def _multipliers(stepper: Stepper, model: Model, rows: tuple[Any, ...]) -> Array:
    def one(now: tuple[Any, ...]) -> Array:
        xs, z, u, t, k = now

        if not z.shape[0]:
            return z
        r, moved = jax.linearize(lambda z: stepper.residual(xs, z, u, t, k, model), z)
        return z - _least_squares(jax.vmap(moved, out_axes=-1)(jnp.eye(z.shape[0])), r)

    return jax.lax.map(one, rows)
