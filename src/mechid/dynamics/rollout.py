"""Motions as pure functions: solve all steps, then give the solved motion its derivatives.

    now, motion = solve_motion(stepper, model, now, rows, law)       steps to the first failure; no derivative
    motion = differentiable_motion(stepper, model, past, rows, law, motion)
                                                                     the same numbers, with their derivatives
    motion = rollout(stepper, model, x0, rows, …)                    both

`differentiable_motion` is the identity in its last argument. By the implicit function theorem its tangents follow
from the linearised steps, dx_{k+1} = A_k dx_k + B_k dθ (Caldwell, Eqs. 6–8); JAX transposes that scan into the
discrete adjoint (Lemma 1), and differentiates it again for second derivatives. Everything here composes with
`jax.jit`, `grad`, `jvp`, `vmap` and `scan`.

A step that cannot be solved ends the motion: its `Outcome` says why, and all later states repeat the last one that
was solved, so that every number stays finite.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero

from mechid.dynamics.model import Model
from mechid.dynamics.stepper import HISTORY, Outcome, Stepper
from mechid.dynamics.tree import Array

BLOCK = 32
"""steps under one condition in loops over part of an array: at most so many are worked through in vain"""


class Now(NamedTuple):
    """Where a motion stands: all that the next step needs."""

    history: Any
    """the last max(window, HISTORY) states, oldest first"""
    memory: Any
    """what the stepper keeps of the newest (`Stepper.remember`)"""
    zs: Array
    """(HISTORY, nz) the last multipliers"""
    k: Array
    """number of the next step"""
    t: Array
    """s"""
    driven: Array
    """rates of driven coordinates over the last step"""
    u: Array
    """(nu,) inputs that acted over the last step"""


class Past(NamedTuple):
    """What a motion depends on besides model and inputs."""

    states: Any
    """the last `window` states, oldest first"""
    driven: Array
    """rates of driven coordinates over the last step"""
    t: Array
    """s"""


class Motion(NamedTuple):
    """N steps and the N + 1 states between them."""

    states: Any
    """(N + 1) the stepper's own states"""
    z: Array
    """(N, nz) multipliers"""
    u: Array
    """(N, nu) inputs that acted"""
    t: Array
    """(N,) when each step begins, s"""
    driven: Array
    """(N, driven) rates of driven coordinates before each step"""
    k: Array
    """(N,) number of each step"""
    outcome: Array
    """(N,) an `Outcome` each"""
    iterations: Array
    """(N,) of Newton's method"""
    residual: Array
    """(N,) largest residual as a multiple of its tolerance"""

    @property
    def solved(self) -> Array:
        """Number of steps that were solved."""
        return jnp.sum(self.outcome == int(Outcome.SOLVED))


def begin(stepper: Stepper, model: Model, x0: Any, u0: Array, t0: Any, driven: Array) -> Now:
    """Where a motion stands before its first step; u0: the inputs that act there."""
    return Now(
        jax.tree.map(lambda a: jnp.stack([a] * max(stepper.window, HISTORY)), x0),
        stepper.remember(model, x0, u0),
        jnp.zeros((HISTORY, stepper.nz(model))),
        jnp.asarray(0, int),
        jnp.asarray(t0, float),
        jnp.asarray(driven, float),
        jnp.asarray(u0, float),
    )


def past_of(stepper: Stepper, now: Now) -> Past:
    """What the motion from here on depends on."""
    return Past(jax.tree.map(lambda a: a[a.shape[0] - stepper.window :], now.history), now.driven, now.t)


def first_past(stepper: Stepper, x0: Any, driven: Array, t0: Any) -> Past:
    """The past of a motion that begins at x0: every state of the window is x0."""
    states = jax.tree.map(lambda a: jnp.stack([a] * stepper.window), x0)
    return Past(states, jnp.asarray(driven, float), jnp.asarray(t0, float))


# Laws: inputs from the state


def controlled(
    law: Any, stepper: Stepper, model: Model, x: Any, t: Array, row: Array, driven: Array
) -> Array:
    """The inputs that a law gives at a state; velocities, which take a linear solution, only if it uses them."""
    q = stepper.positions(model, x)
    still = jnp.zeros_like(q)
    program = jax.make_jaxpr(lambda *now: law(*now))(t, q, still, row).jaxpr
    velocity = program.invars[-1 - len(jax.tree.leaves(row))]
    used = {id(v) for v in [*program.outvars, *(v for e in program.eqns for v in e.invars)]}
    v = stepper.velocities(model, x, row[: model.nu], driven) if id(velocity) in used else still
    return jnp.asarray(law(t, q, v, row), float)


# Solving


def solve_motion(
    stepper: Stepper, model: Model, now: Now, rows: Array, law: Any = None, count: Any = None
) -> tuple[Now, Motion]:
    """Step from `now` through the rows of inputs, or to the first step that fails.

    Args:
        rows: (N, w) inputs of each step, or what the law sees of it.
        law: u = law(t, q, v, row) as a pytree (`as_law`), or None where rows are the inputs.
        count: steps that are meant, N by default; it may be traced, so that one program serves many lengths.

    Returns:
        Where the motion stands after its last attempt, and the motion of N steps. It has no derivatives.
    """
    rows = jnp.asarray(rows)
    n = rows.shape[0]
    count = jnp.asarray(n if count is None else count)

    def step(now: Now, row: Array) -> tuple[Now, tuple[Any, ...]]:
        newest = jax.tree.map(lambda a: a[-1], now.history)
        before = stepper.positions(model, newest)
        u = row if law is None else controlled(law, stepper, model, newest, now.t, row, now.driven)
        last = jax.tree.map(lambda a: a[-HISTORY:], now.history)
        guess = stepper.predict(last, now.zs, now.k + 1)
        s = stepper.step(past_of(stepper, now).states, u, now.t, now.k, model, guess, now.memory)
        h = stepper.step_size(now.k)
        after = Now(
            jax.tree.map(lambda old, new: jnp.concatenate([old[1:], new[None]]), now.history, s.state),
            s.memory,
            jnp.concatenate([now.zs[1:], s.z[None]]),
            now.k + 1,
            now.t + h,
            (stepper.positions(model, s.state) - before)[model.driven] / h,
            u,
        )
        return after, (s.state, s.z, u, now.t, now.driven, now.k, s.outcome, s.iterations, s.residual)

    x0 = jax.tree.map(lambda a: a[-1], now.history)
    shapes = jax.eval_shape(
        lambda now, row: step(now, row)[1], now, jax.ShapeDtypeStruct(rows.shape[1:], float)
    )
    kept = jax.tree.map(lambda s: jnp.zeros((n, *s.shape), s.dtype), shapes)
    kept = (*kept[:6], jnp.full(n, int(Outcome.NOT_REACHED)), *kept[7:])

    def going(state: tuple[Any, ...]) -> Array:
        _, _, i, fine = state
        return fine & (i < count)

    def one(state: tuple[Any, ...]) -> tuple[Any, ...]:
        now, kept, i, _ = state
        now, new = step(now, rows[i])
        kept = jax.tree.map(
            lambda a, b: jax.lax.dynamic_update_index_in_dim(a, b.astype(a.dtype), i, 0), kept, new
        )
        return now, kept, i + 1, new[6] == int(Outcome.SOLVED)

    start = (now, kept, jnp.asarray(0), jnp.asarray(True))
    now, (states, *rest), _, _ = jax.lax.while_loop(going, one, start)
    motion = Motion(jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), x0, states), *rest)
    return now, _frozen(motion)


def _frozen(motion: Motion) -> Motion:
    """The motion with its last solved state, and zeros, in the place of what could not be solved."""
    done = motion.solved
    n = motion.outcome.shape[0]
    last = jnp.minimum(jnp.arange(n + 1), done)
    fine = jnp.arange(n) < done

    def kept(a: Array) -> Array:
        return jnp.where(fine.reshape(n, *(1,) * (a.ndim - 1)), a, 0.0)

    return motion._replace(
        states=jax.tree.map(lambda a: a[last], motion.states), z=kept(motion.z), u=kept(motion.u)
    )


# Loops over part of an array


def scan_blocks(one: Callable[[Any, Any], tuple[Any, Any]], carry: Any, xs: Any, count: Array) -> Any:
    """The outputs of `jax.lax.scan(one, carry, xs)`, those from `count` on left out: zeros.

    Work is skipped in blocks, so that one program serves many lengths at the cost of its own; `one` must give
    finite numbers also for the rest of the last block. A backward pass linearises each step once and stores none.
    """
    n = jax.tree.leaves(xs)[0].shape[0]
    blocks = -(-n // BLOCK)

    def masked(carry: Any, now: tuple[Array, Any]) -> tuple[Any, Any]:
        i, x = now
        after, out = one(carry, x)
        fine = i < count
        after = jax.tree.map(lambda a, b: jnp.where(fine, a, b), after, carry)
        return after, jax.tree.map(lambda a: jnp.where(fine, a, 0.0), out)

    def block(carry: Any, now: tuple[Array, Any]) -> tuple[Any, Any]:
        def going(carry: Any) -> tuple[Any, Any]:
            return jax.lax.scan(jax.checkpoint(masked, prevent_cse=False), carry, now)

        shapes = jax.eval_shape(going, carry)[1]

        def ended(carry: Any) -> tuple[Any, Any]:
            return carry, jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)

        return jax.lax.cond(now[0][0] < count, going, ended, carry)

    def blocked(a: Array) -> Array:
        rest = blocks * BLOCK - n
        filled = jnp.concatenate([a, jnp.broadcast_to(a[-1:], (rest, *a.shape[1:]))]) if rest else a
        return filled.reshape(blocks, BLOCK, *a.shape[1:])

    rows = jax.tree.map(blocked, (jnp.arange(n), xs))
    _, out = jax.lax.scan(jax.checkpoint(block, prevent_cse=False), carry, rows)
    return jax.tree.map(lambda a: a.reshape(blocks * BLOCK, *a.shape[2:])[:n], out)


# Derivatives


def _is_zero(tangent: Any) -> bool:
    return isinstance(tangent, SymbolicZero)


def _filled(tangents: Any, like: Any) -> Any:
    """Tangents with arrays of zeros for those that are known to vanish."""

    def one(tangent: Any, x: Any) -> Any:
        return jnp.zeros(jnp.shape(x)) if _is_zero(tangent) else tangent

    return jax.tree.map(one, tangents, like, is_leaf=_is_zero)


def _changing(tree: Any, tangents: Any) -> tuple[list[Array], list[Array], Any]:
    """The leaves of a tree that change, their tangents, and a function that puts others in their place."""
    leaves, structure = jax.tree.flatten(tree)
    slopes = jax.tree.leaves(tangents, is_leaf=_is_zero)
    chosen = [
        i
        for i, (x, d) in enumerate(zip(leaves, slopes, strict=True))
        if not _is_zero(d) and jnp.issubdtype(jnp.result_type(x), jnp.inexact)
    ]

    def put(new: list[Array]) -> Any:
        out = list(leaves)
        for i, x in zip(chosen, new, strict=True):
            out[i] = x
        return jax.tree.unflatten(structure, out)

    return [leaves[i] for i in chosen], [slopes[i] for i in chosen], put


def _no_tangent(tree: Any) -> Any:
    return jax.tree.map(
        lambda a: (
            jnp.zeros(a.shape)
            if jnp.issubdtype(a.dtype, jnp.inexact)
            else np.zeros(a.shape, jax.dtypes.float0)
        ),
        tree,
    )


def differentiable_motion(
    stepper: Stepper, model: Model, past: Past, rows: Array, law: Any, motion: Motion
) -> Motion:
    """The motion given, as a function of stepper, model, past, rows and law, which have led to it.

    Derivatives of every order, forward and reverse. Those of steps beyond the first that failed are zero.
    """
    rows = jnp.asarray(rows)
    if law is not None:
        first = jax.tree.map(lambda a: a[0], motion.states)
        law = _with_enclosed(law, jax.lax.stop_gradient(stepper.positions(model, first)), rows[0])
    return _attached(stepper, model, past, rows, law, motion)


def _with_enclosed(law: Any, q: Array, row: Array) -> Any:
    """A law whose function encloses traced values, such as gains, with these as leaves."""
    given = (jnp.zeros(()), jnp.zeros(q.shape), jnp.zeros(q.shape), jnp.zeros(row.shape))
    function, enclosed = jax.closure_convert(lambda *now: jnp.asarray(law(*now), float), *given)
    return jax.tree_util.Partial(_Enclosing(function), enclosed) if enclosed else law


class _Enclosing:
    """A function that takes what it enclosed first."""

    def __init__(self, function: Callable[..., Array]) -> None:
        self._function = function

    def __call__(self, enclosed: list[Array], *now: Any) -> Array:
        return self._function(*now, *enclosed)


@jax.custom_jvp
def _attached(stepper: Stepper, model: Model, past: Past, rows: Array, law: Any, motion: Motion) -> Motion:
    return motion


def _motion_jvp(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Motion, Motion]:
    stepper, model, past, rows, law, motion = primals
    d_past, d_rows = tangents[2:4]
    # differentiable again: second derivatives
    motion = _attached(*primals)
    numbers, d_numbers, put = _changing((stepper, model, law), (tangents[0], tangents[1], tangents[4]))
    rows, rows_rest, n = jnp.asarray(rows), _is_zero(d_rows), rows.shape[0]
    nx, window, done = stepper.nx(model), stepper.window, motion.solved
    every = jax.tree.map(lambda a, b: jnp.concatenate([a[:-1], b]), past.states, motion.states)
    times_rest = _is_zero(d_past.t) and not _changing(stepper.dt, tangents[0].dt)[0]
    clock = () if times_rest else (jnp.zeros(()),)

    def step(carry: tuple[Any, ...], step: tuple[Any, ...]) -> tuple[Any, Any]:
        """One linear step: changes of the window, of driven rates and the time; of what is kept of the step."""
        (dx, d_path, d_clock), (xs, z, u, now, path, k, row, d_row) = carry, step
        newest = jax.tree.map(lambda a: a[-2], xs)
        if d_row is None:
            d_row = jnp.zeros(row.shape)
        d_t = list(d_clock)
        du = d_row[: u.shape[0]]
        if law is not None:

            def control(d: Array, row: Array, path: Array, numbers: list[Array], t: list[Array]) -> Array:
                s, m, f = put(numbers)
                return controlled(f, s, m, s.retract(newest, d), t[0] if t else now, row, path)

            at = (jnp.zeros(nx), row, path, numbers, [now] * len(d_t))
            du = jax.jvp(control, at, (dx[-1], d_row, d_path, d_numbers, d_t))[1]

        def sides(numbers: list[Array], times: list[Array]) -> tuple[Array, Array]:
            s, m, _ = put(numbers)
            return s.sides(xs, z, u, times[0] if times else now, k, m)

        shapes = jax.eval_shape(sides, numbers, [now] * len(d_t))
        dF, dG = (jnp.zeros(s.shape) for s in shapes)
        if numbers or d_t:
            dF, dG = jax.jvp(sides, (numbers, [now] * len(d_t)), (d_numbers, d_t))[1]
        linear = stepper.linear_step(xs, z, u, now, k, model)
        d_new, dz = linear.forward(dx.reshape(-1), du, dF, dG)

        def ahead(numbers: list[Array], d0: Array, d1: Array) -> tuple[Array, Array]:
            s, m, _ = put(numbers)
            h = s.step_size(k)
            last = jax.tree.map(lambda a: a[-1], xs)
            q0, q1 = (s.positions(m, s.retract(x, d)) for x, d in ((newest, d0), (last, d1)))
            return (q1 - q0)[m.driven] / h, h

        d_after = d_path
        if d_path.shape[0] or d_t:
            still = jnp.zeros(nx)
            d_after, dh = jax.jvp(ahead, (numbers, still, still), (d_numbers, dx[-1], d_new))[1]
            d_t = [x + dh for x in d_t]
        after = (jnp.concatenate([dx[1:], d_new[None]]), d_after, tuple(d_t))
        return after, (d_new, dz, du, d_path, *d_clock)

    filled = _filled(d_past, past)
    d0 = jax.vmap(lambda x, dx: _to_local(stepper, x, dx))(past.states, filled.states)
    begun = (d0, filled.driven, tuple(filled.t for _ in clock))
    # beyond the last solved step that step is taken again: its numbers are finite
    i = jnp.clip(jnp.arange(n), 0, jnp.maximum(done - 1, 0))
    around = i[:, None] + jnp.arange(window + 1)
    along = (motion.z, motion.u, motion.t, motion.driven, motion.k, rows, None if rows_rest else d_rows)
    steps = (jax.tree.map(lambda a: a[around], every), *jax.tree.map(lambda a: a[i], along))
    dx, dz, du, d_path, *d_t = scan_blocks(step, begun, steps, done)
    # states that follow a failure repeat the last one
    last = jnp.minimum(jnp.arange(n + 1), done)
    dx = jnp.concatenate([d0[-1:], dx])[last]
    d_states = jax.vmap(lambda x, d: _to_state(stepper, x, d))(motion.states, dx)
    rest = _no_tangent(motion[5:])
    return motion, Motion(d_states, dz, du, d_t[0] if d_t else jnp.zeros(n), d_path, *rest)


def _to_local(stepper: Stepper, x: Any, dx: Any) -> Array:
    """The change of a state in tangent coordinates."""
    return jax.jvp(lambda y: stepper.local(x, y), (x,), (dx,))[1]


def _to_state(stepper: Stepper, x: Any, d: Array) -> Any:
    """A change in tangent coordinates as one of the state."""
    return jax.jvp(lambda d: stepper.retract(x, d), (jnp.zeros_like(d),), (d,))[1]


_attached.defjvp(_motion_jvp, symbolic_zeros=True)


def past_after(stepper: Stepper, model: Model, past: Past, motion: Motion) -> Past:
    """The past of what follows a motion, after its last solved step."""
    done, window = motion.solved, stepper.window
    every = jax.tree.map(lambda a, b: jnp.concatenate([a[:-1], b]), past.states, motion.states)
    states = jax.tree.map(lambda a: jax.lax.dynamic_slice_in_dim(a, done, window), every)
    last = jnp.maximum(done - 1, 0)
    h = stepper.step_size(motion.k[last])
    q0, q1 = (
        stepper.positions(model, jax.tree.map(lambda a, i=i: a[i], motion.states)) for i in (last, last + 1)
    )
    driven = jnp.where(done > 0, (q1 - q0)[model.driven] / h, past.driven)
    return Past(states, driven, jnp.where(done > 0, motion.t[last] + h, past.t))


def rollout(
    stepper: Stepper,
    model: Model,
    x0: Any,
    rows: Array,
    *,
    t0: Any = 0.0,
    law: Any = None,
    driven: Array | None = None,
) -> Motion:
    """The motion from a state through all rows of inputs, differentiable by everything it depends on.

    Args:
        x0: the stepper's state (`stepper.initial`).
        rows: (N, nu) inputs held over each step; what a law sees of each step.
        t0: when it begins, s.
        law: u = law(t, q, v, row), see `as_law`; None where rows are the inputs.
        driven: initial rates of driven coordinates, 0 by default.
    """
    rows = jnp.asarray(rows)
    driven = jnp.zeros(model.driven.shape[0]) if driven is None else driven
    past = first_past(stepper, x0, driven, t0)
    still = jax.lax.stop_gradient((stepper, model, x0, rows, law, past))
    stepper_, model_, x0_, rows_, law_, past_ = still
    now = begin(stepper_, model_, x0_, rows_[0, : model.nu], past_.t, past_.driven)
    _, motion = solve_motion(stepper_, model_, now, rows_, law_)
    return differentiable_motion(stepper, model, past, rows, law, jax.lax.stop_gradient(motion))
