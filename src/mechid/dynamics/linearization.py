"""Exact linearisation along a trajectory: transitions A_k, B_k, forward sensitivities dx_k/dθ, and the adjoint.

Forward:   dx_{k+1} = A_k dx_k + B_k dθ (Caldwell, Eqs. 6–8) with dx_0/dθ where the initial state depends on θ
           (momenta, lengths in a loop). Cost grows with the number of parameters.
Adjoint:   for J = Σ ℓ_k(x_k), λ_k = A_kᵀ λ_{k+1} + ∂ℓ_k/∂x_k backward in time and
           dJ/dθ = Σ B_kᵀ λ_{k+1} + (dx_0/dθ)ᵀ λ_0 (Lemma 1). What the steps say of the model's numbers is summed up
           and turned into parameters once, at the end: cost hardly grows with their number.

A_k and B_k themselves are not formed: each step is used in the form in which it is solved (`LinearStep`).
Linearising the steps is nearly all of the work and needs no order, so each core takes pieces of the trajectory;
the recursion then runs over them. A controller u = f(t, q, v) closes the loop: du_k = (∂f/∂x_k) dx_k.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from mechid.compile import jit
from mechid.dynamics.course import InputSlopes, Stretch, whole
from mechid.dynamics.model import Model, float_leaves
from mechid.dynamics.stepper import (
    LinearStep,
    Stepper,
    Transition,
    along,
    model_tangent,
    moved_by,
    moving,
    parameter_count,
)
from mechid.dynamics.trajectory import Controller, Law, Trajectory, controlled
from mechid.dynamics.tree import Array
from mechid.errors import MechidError
from mechid.model.geometry import finite
from mechid.model.parameters import Parameters

PIECE = 128
"""steps that are linearised by one call"""

Bind = Callable[[Array], Model]
"""θ ↦ model: `Parameters`, or a function in jax.numpy"""


class Sensitivities(NamedTuple):
    """How the motion moves with the parameters, in tangent coordinates of the states."""

    states: np.ndarray
    """(N + 1, nx, nθ)"""
    multipliers: np.ndarray
    """(N, nz, nθ)"""


def transitions(trajectory: Trajectory, bind: Bind | None = None, theta: Array | None = None) -> Transition:
    """A_k, B_u, B_θ of every step, stacked (open loop: inputs held)."""
    _check(trajectory)
    tangent = None if bind is None or theta is None else tangent_of(bind, theta)
    parts = []
    for (*rows, _, _), count in pieces(trajectory.stepper, whole(trajectory)):
        out = _transitions(trajectory.stepper, trajectory.model, tangent, tuple(rows))
        parts.append(jax.tree.map(lambda a, m=count: np.asarray(a)[:m], out))
    return jax.tree.map(lambda *a: np.concatenate(a), *parts)


def sensitivities(trajectory: Trajectory, bind: Bind, theta: ArrayLike) -> Sensitivities:
    """dx_k/dθ and dz_k/dθ along a trajectory that was simulated at bind(θ), through its controller if any.

    The initial coordinates and rates are held; the initial state may still depend on θ (p = M v).
    """
    _check(trajectory)
    stepper, model = trajectory.stepper, trajectory.model
    tangent = tangent_of(bind, theta)
    first = np.asarray(_start(stepper, model, tangent, *_given(trajectory)))
    moved = list(
        forward(stepper, model, tangent, trajectory.controller, whole(trajectory), _past(stepper, first))
    )
    return Sensitivities(
        np.concatenate([first[None], *(m.dx for m in moved)]), np.concatenate([m.dz for m in moved])
    )


class Moved(NamedTuple):
    """How up to PIECE steps move with the parameters."""

    first: int
    """number of the first of them"""
    dx: np.ndarray
    """(steps, nx, n) of the states that they reach"""
    dz: np.ndarray
    du: np.ndarray
    """of inputs, through a controller or their delays"""
    carry: Array
    """(window, nx, n) of the last states"""


def forward(
    stepper: Stepper,
    model: Model,
    tangent: Any,
    controller: Any,
    stretch: Stretch,
    carry: Array,
    ahead: Ahead | None = None,
) -> Iterator[Moved]:
    """Sensitivities along a stretch, piece by piece, from those of the window in which it begins.

    carry may have more columns than the tangent: changes of the start alone. ahead: what has been linearised
    already.
    """

    def linearised(piece: Any) -> _Linear:
        done = None if ahead is None else ahead.found.pop(int(piece[0][4][0]), None)
        return _linearise(stepper, model, tangent, *piece) if done is None else done.result()

    for (rows, count), linear in on_all_cores(linearised, pieces(stepper, stretch)):
        late = None if stretch.moved is None else stretch.moved.of(rows[4] - stretch.first)
        carry, dx, dz, du = _forward(stepper, model, tangent, carry, rows, linear, count, controller, late)
        moved = [np.asarray(x)[:count] for x in (dx, dz, du)]
        yield Moved(int(rows[4][0]), moved[0], moved[1], moved[2], carry)


class Ahead:
    """Linearises the pieces of a motion on another core while it is still being marched."""

    def __init__(self, stepper: Stepper, model: Model, tangent: Any) -> None:
        self.by = (stepper, model, tangent)
        self.found: dict[int, Future[_Linear]] = {}
        self._pool = ThreadPoolExecutor(1)

    def see(self, stretch: Stretch) -> None:
        """Steps that have just been solved."""
        stepper, model, tangent = self.by
        for piece in pieces(stepper, stretch):
            work = self._pool.submit(
                lambda p=piece: jax.block_until_ready(_linearise(stepper, model, tangent, *p))
            )
            self.found[int(piece[0][4][0])] = work

    def close(self, *, cancel: bool) -> None:
        """Nothing more will come; with cancel nothing of it is wanted."""
        self._pool.shutdown(wait=False, cancel_futures=cancel)


def adjoint(
    trajectory: Trajectory,
    bind: Bind,
    theta: ArrayLike,
    by_state: ArrayLike,
    by_multiplier: ArrayLike | None = None,
) -> np.ndarray:
    """dJ/dθ of a cost J(x_0, …, x_N, z_0, …) along a trajectory that was simulated at bind(θ).

    by_state: (N + 1, nx) slopes of J by the states' tangent coordinates; by_multiplier: (N, nz) by the
    multipliers. The initial coordinates and rates are held.
    """
    _check(trajectory)
    stepper, model, steps = trajectory.stepper, trajectory.model, trajectory.steps
    nx, nz = stepper.nx(model), stepper.nz(model)
    slopes = finite(by_state, (steps + 1, nx), "The slopes of the cost by the states")
    given_z = np.zeros((steps, nz)) if by_multiplier is None else by_multiplier
    slopes_z = finite(given_z, (steps, nz), "The slopes of the cost by the multipliers")
    tangent = tangent_of(bind, theta)
    by = Slopes(slopes[1:], slopes_z, np.zeros((steps, model.nu)))
    carry = jnp.zeros((stepper.window, nx))
    carry, total, _ = backward(stepper, model, tangent, trajectory.controller, whole(trajectory), by, carry)
    by_start = jnp.sum(carry, 0) + slopes[0]
    return np.asarray(_gradient(stepper, model, tangent, total, by_start, *_given(trajectory)))


class Slopes(NamedTuple):
    """A cost's slopes along a stretch, by the states that its steps reach, their multipliers and inputs."""

    x: np.ndarray
    z: np.ndarray
    u: np.ndarray


def backward(
    stepper: Stepper, model: Model, tangent: Any, controller: Any, stretch: Stretch, by: Slopes, carry: Array
) -> tuple[Array, list[Array], np.ndarray]:
    """Lemma 1 along a stretch: slopes by the window in which it begins, by the model's moving numbers, and by θ
    through the inputs that it moves, where it does.

    carry: slopes by the window in which it ends, from later stretches.
    """
    moved = tuple(x is not None for x in tangent)
    found, late = [], np.zeros(parameter_count(tangent))
    for (rows, count), linear in _linearised(stepper, model, None, pieces(stepper, stretch, backward=True)):
        k = rows[4] - stretch.first
        carry, by_step = _backward(
            stepper, model, carry, rows, linear, (by.x[k], by.z[k], by.u[k]), count, controller
        )
        found.append(by_step)
        if stretch.moved is not None:
            own = stretch.moved.of(k[:count])
            late += np.sum(np.asarray(by_step.u)[:count] * own.by_delay, axis=0) @ own.delays

    def grown(piece: tuple[tuple[tuple[Any, ...], int], Any]) -> list[Array]:
        (rows, count), by_step = piece
        return _grown(stepper, model, moved, rows, by_step, count, controller)

    total: Any = None
    solved = zip(pieces(stepper, stretch, backward=True), found, strict=True)
    for _, more in on_all_cores(grown, solved):
        total = more if total is None else [a + b for a, b in zip(total, more, strict=True)]
    return carry, total, late


def matrices(
    stepper: Stepper, model: Model, tangent: Any, stretch: Stretch, *, backward: bool = False
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """The number of a first step with A_k and B_u of up to PIECE steps, open loop, along a stretch (window 1)."""
    order = pieces(stepper, stretch, backward=backward)
    for (rows, count), linear in _linearised(stepper, model, tangent, order):
        A, B = _matrices(stepper, model, linear.by, count)
        yield int(rows[4][0]), np.asarray(A)[:count], np.asarray(B)[:count]


def _past(stepper: Stepper, first: np.ndarray) -> Array:
    """The window before the first step: all of it is the first state."""
    return jnp.broadcast_to(first, (stepper.window, *first.shape))


def _linearised(stepper: Stepper, model: Model, tangent: Any, pieces: Iterable[Any]) -> Iterator[Any]:
    """Every piece with its steps linearised, and the parameters' columns where there is a tangent."""
    return on_all_cores(lambda piece: _linearise(stepper, model, tangent, *piece), pieces)


def on_all_cores(function: Callable[[Any], Any], pieces: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    """Each piece with the function of it, in turn. Every core works ahead by one piece, so memory is bounded."""
    waiting: deque[tuple[Any, Future[Any]]] = deque()
    for piece in pieces:
        waiting.append((piece, _pool().submit(lambda p: jax.block_until_ready(function(p)), piece)))
        if len(waiting) > CORES:
            done, result = waiting.popleft()
            yield done, result.result()
    for done, result in waiting:
        yield done, result.result()


CORES = os.cpu_count() or 1


@cache
def _pool() -> ThreadPoolExecutor:
    """Threads for pieces; what runs on them asks for no more of them."""
    return ThreadPoolExecutor(CORES)


def _check(trajectory: Trajectory) -> None:
    """Refuse a trajectory without derivatives."""
    if not isinstance(trajectory, Trajectory):
        raise MechidError(f"Derivatives are taken along a Trajectory, not {trajectory!r}.")
    if trajectory.every > 1:
        raise MechidError(
            f"The trajectory keeps only every {trajectory.every}th state; its derivatives need all of them: "
            "simulate with every=1."
        )
    if trajectory.steps == 0:
        raise MechidError("A trajectory without steps has no derivatives: simulate at least one step.")


def _given(trajectory: Trajectory) -> tuple[Any, ...]:
    """The first state and what it was made from."""
    anchor = jax.tree.map(lambda a: a[0], trajectory.states)
    return anchor, trajectory.start, trajectory.start_rates, trajectory.inputs[0], trajectory.t[0]


def pieces(
    stepper: Stepper, stretch: Stretch, *, backward: bool = False
) -> Iterator[tuple[tuple[Any, ...], int]]:
    """States around each step, multipliers, inputs, times, numbers, driven rates and rows, PIECE steps at a time.

    The last piece is filled up by repeating its last step; the count says how many are meant.
    """
    n, window = stretch.steps, stepper.window
    starts = range(0, n, PIECE)
    for first in reversed(starts) if backward else starts:
        i = np.minimum(np.arange(first, first + PIECE), n - 1)
        k = i + stretch.first
        # window + 1 states for each step, oldest first; what lies before the start repeats it
        around = np.maximum(k[:, None] + np.arange(1 - window, 2)[None], 0) - stretch.first + stretch.before
        xs = jax.tree.map(lambda a, at=around: a[at], stretch.states)
        along = (stretch.z, stretch.u, stretch.t)
        rows = (xs, *(a[i] for a in along), k, stretch.driven[i], stretch.rows[i])
        yield rows, min(PIECE, n - first)


def tangent_of(bind: Bind, theta: ArrayLike) -> list[Any]:
    """∂(float leaves of the model)/∂θ, None where no parameter moves a leaf."""
    if isinstance(bind, Parameters):
        values, slopes = (np.asarray(part(theta)) for part in (bind.values, bind.tangent))
        return moving(bind.lowering.tangent(values, slopes))
    return moving(_model_tangent(bind, jnp.asarray(theta, dtype=float)))


def tangent_at(free: Parameters, theta: ArrayLike, model: Model) -> list[Any]:
    """The same for parameters of which there may be none."""
    return tangent_of(free, theta) if free.size else [None] * len(float_leaves(model))


_model_tangent = jit(model_tangent, once=True, static_argnums=(0,))


@partial(jit, once=True)
def _start(
    stepper: Stepper, model: Model, tangent: Any, anchor: Any, q: Array, v: Array, u: Array, t: Array
) -> Array:
    """dx_0/dθ at fixed coordinates and rates."""
    return along(
        lambda m: stepper.local(anchor, stepper.initial(m, q, v, u, t)),
        model,
        tangent,
        jnp.zeros(stepper.nx(model)),
    )


@jit
def _transitions(stepper: Stepper, model: Model, tangent: Any, rows: tuple[Any, ...]) -> Transition:
    def one(now: tuple[Any, ...]) -> Transition:
        xs, z, u, t, k = now
        return stepper.transition(xs, z, u, t, k, model, tangent)

    return jax.lax.map(one, rows)


def _control(
    stepper: Stepper, law: Controller | Law, xs: Any, row: Array, t: Array, path: Array
) -> Callable[..., Array]:
    """The controller's input for a model and a change of the newest past state."""
    newest = jax.tree.map(lambda a: a[-2], xs)

    def control(d: Array, model: Model) -> Array:
        return controlled(law, stepper, model, stepper.retract(newest, d), t, row, path)

    return control


class _Linear(NamedTuple):
    """A step linearised, and what the parameters add to its equations and to the new state."""

    by: LinearStep
    dF: Array
    dG: Array


@jit
def _linearise(stepper: Stepper, model: Model, tangent: Any, rows: tuple[Any, ...], count: Array) -> _Linear:
    def one(now: tuple[Any, ...]) -> _Linear:
        xs, z, u, t, k, _, _ = now

        def sides(m: Model) -> tuple[Array, Array]:
            return stepper.sides(xs, z, u, t, k, m)

        by = stepper.linear_step(xs, z, u, t, k, model)
        return _Linear(by, *along(sides, model, tangent, jax.eval_shape(sides, model)))

    return collected(one, rows, count)


def collected(function: Callable[[Any], Any], rows: Any, count: Array) -> Any:
    """The function of the first `count` rows, stacked; zeros beyond."""
    steps = jax.tree.leaves(rows)[0].shape[0]
    shapes = jax.eval_shape(function, jax.tree.map(lambda a: a[0], rows))
    empty = jax.tree.map(lambda s: jnp.zeros((steps, *s.shape), s.dtype), shapes)

    def one(i: Array, kept: Any) -> Any:
        return _put(kept, function(jax.tree.map(lambda a: a[i], rows)), i)

    return jax.lax.fori_loop(0, count, one, empty)


def _put(kept: Any, new: Any, i: Array) -> Any:
    return jax.tree.map(lambda a, b: jax.lax.dynamic_update_index_in_dim(a, b, i, 0), kept, new)


def _forward_piece(
    stepper: Stepper,
    model: Model,
    tangent: list[Any],
    carry: Array,
    rows: tuple[Any, ...],
    linear: _Linear,
    count: Array,
    controller: Controller | Law | None,
    late: InputSlopes | None,
) -> tuple[Array, Array, Array, Array]:
    """Sensitivities of the window after `count` steps, and of what each of them reached on the way."""
    nx, nz, nu = stepper.nx(model), stepper.nz(model), model.nu
    number, own = carry.shape[-1], parameter_count(tangent)

    def filled(slopes: Array) -> Array:
        return jnp.concatenate([slopes, jnp.zeros((*slopes.shape[:-1], number - own))], -1)

    def one(i: Array, state: tuple[Array, ...]) -> tuple[Array, ...]:
        past, kept_x, kept_z, kept_u = state
        (xs, _, u, t, _, path, row), (by, dF, dG) = jax.tree.map(lambda a: a[i], (rows, linear))
        du = jnp.zeros((nu, number))
        if controller is not None:
            control, still = _control(stepper, controller, xs, row, t, path), jnp.zeros(nx)

            def input_change(d: Array) -> Array:
                return jax.jvp(lambda x: control(x, model), (still,), (d,))[1]

            du = jax.vmap(input_change, in_axes=-1, out_axes=-1)(past[-1])
            du += filled(along(lambda m: control(still, m), model, tangent, u))
        if late is not None:
            du += filled(late.by_delay[i][:, None] * late.delays)
        dx, dz = by.forward(past.reshape(-1, number), du, filled(dF), filled(dG))
        past = jnp.concatenate([past[1:], dx[None]])
        return past, _put(kept_x, dx, i), _put(kept_z, dz, i), _put(kept_u, du, i)

    steps = rows[1].shape[0]
    start = (carry, *(jnp.zeros((steps, size, number)) for size in (nx, nz, nu)))
    return jax.lax.fori_loop(0, count, one, start)


@jit
def _matrices(stepper: Stepper, model: Model, by: LinearStep, count: Array) -> tuple[Array, Array]:
    nx, nu = stepper.nx(model), model.nu
    dx = jnp.concatenate([jnp.eye(nx), jnp.zeros((nx, nu))], -1)
    du = jnp.concatenate([jnp.zeros((nu, nx)), jnp.eye(nu)], -1)

    def one(now: LinearStep) -> Array:
        dF = jax.eval_shape(lambda: now.backward(jnp.zeros(nx), jnp.zeros(stepper.nz(model)))[2])
        return now.forward(dx, du, jnp.zeros((*dF.shape, nx + nu)), jnp.zeros((nx, nx + nu)))[0]

    AB = collected(one, by, count)
    return AB[..., :nx], AB[..., nx:]


class _BySlopes(NamedTuple):
    """The cost's slopes by a step's equations, new state and inputs."""

    F: Array
    G: Array
    u: Array


def _backward_piece(
    stepper: Stepper,
    model: Model,
    carry: Array,
    rows: tuple[Any, ...],
    linear: _Linear,
    arrived: tuple[Array, Array, Array],
    count: Array,
    controller: Controller | Law | None,
) -> tuple[Array, _BySlopes]:
    """The cost's slopes by the window before `count` steps, and by what each of them solved."""
    nx = stepper.nx(model)

    def one(i: Array, state: tuple[Array, _BySlopes]) -> tuple[Array, _BySlopes]:
        later, kept = state
        at = count - 1 - i
        (xs, _, _, t, _, path, row), by, (by_x, by_z, by_u) = jax.tree.map(
            lambda a: a[at], (rows, linear.by, arrived)
        )
        # the newest state's slope is complete: every later step has added its share
        newest = later[-1] + by_x
        by_past, by_input, by_F = by.backward(newest, by_z)
        by_input += by_u
        past = by_past.reshape(-1, nx)
        if controller is not None:
            control, still = _control(stepper, controller, xs, row, t, path), jnp.zeros(nx)
            fed_back = jax.vjp(lambda d: control(d, model), still)[1](by_input)[0]
            past = jnp.concatenate([past[:-1], past[-1:] + fed_back])
        shifted = jnp.concatenate([jnp.zeros((1, nx)), later[:-1]]) + past
        return shifted, _put(kept, _BySlopes(by_F, newest, by_input), at)

    shapes = (linear.dF.shape[:2], (PIECE, nx), rows[2].shape)
    kept = _BySlopes(*(jnp.zeros(shape) for shape in shapes))
    return jax.lax.fori_loop(0, count, one, (carry, kept))


def _grown_piece(
    stepper: Stepper,
    model: Model,
    moved: tuple[bool, ...],
    rows: tuple[Any, ...],
    by_step: _BySlopes,
    count: Array,
    controller: Controller | Law | None,
) -> list[Array]:
    """The cost's slopes by the moved numbers of the model, summed over `count` steps."""
    marks = [True if m else None for m in moved]

    def one(i: Array, total: list[Array]) -> list[Array]:
        (xs, z, u, t, k, path, row), by = jax.tree.map(lambda a: a[i], (rows, by_step))

        def sides(m: Model) -> tuple[Array, Array, Array]:
            fed_back = jnp.zeros(u.shape)
            if controller is not None:
                control = _control(stepper, controller, xs, row, t, path)
                fed_back = control(jnp.zeros(stepper.nx(model)), m)
            return *stepper.sides(xs, z, u, t, k, m), fed_back

        of_moved, numbers = moved_by(sides, model, marks)
        (grown,) = jax.vjp(of_moved, numbers)[1](tuple(by))
        return [a + b for a, b in zip(total, grown, strict=True)]

    _, numbers = moved_by(lambda m: m, model, marks)
    return jax.lax.fori_loop(0, count, one, [jnp.zeros(x.shape) for x in numbers])


@partial(jit, once=True)
def _gradient(
    stepper: Stepper,
    model: Model,
    tangent: list[Any],
    bars: list[Array],
    by_start: Array,
    anchor: Any,
    q: Array,
    v: Array,
    u: Array,
    t: Array,
) -> Array:
    """From slopes by the model's numbers and by the first state to parameters."""
    of_moved, numbers = moved_by(
        lambda m: stepper.local(anchor, stepper.initial(m, q, v, u, t)), model, tangent
    )
    first = jax.vjp(of_moved, numbers)[1](by_start)[0]
    slopes = [x for x in tangent if x is not None]
    parts = [jnp.tensordot(a + b, x, a.ndim) for a, b, x in zip(bars, first, slopes, strict=True)]
    return sum(parts, jnp.zeros(parameter_count(tangent)))


_forward = jit(_forward_piece, static_argnums=(7,))
_backward = jit(_backward_piece, static_argnums=(7,))
_grown = jit(_grown_piece, static_argnums=(2, 6))
