"""The block-arrow least-squares problem of a trajectory: states in a chain, parameters as a border.

Each interval k is given as the affine map that its linearised residual leaves, hard rows and multipliers solved
for,

    x_{k+1} = M_k [w_k ; X_k ; θ ; 1]          X_k: the window of states that ends with x_k

with soft rows  W (w_k + s_k)  (state errors)  and  Y_k [w_k ; X_k ; θ ; 1]  (samples). One sweep backward in time
keeps the cost to go as a triangle R [X ; θ ; 1], by orthogonal transformations only: nothing is squared, and
nothing is inverted but the triangle of w, which W keeps regular. Its feedback w(X, θ) is what keeps the sweep
forward stable along motions that are not, so that exact dynamics are treated as the limit of a large W. Rows that
know θ alone fall out on the way.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mechid.compile import jit
from mechid.dynamics.tree import Array

PIECE = 256
"""intervals a call of a compiled program"""
LANES = 16
UNBLOCKED = 48
"""columns up to which Householder's transformations are written out, so that a sweep is one kernel; then LAPACK"""


class Sizes(NamedTuple):
    """What is known while compiling."""

    errors: int
    """w of an interval"""
    state: int
    """tangent size of a state"""
    window: int
    border: int
    """parameters"""

    @property
    def chain(self) -> int:
        """Size of X."""
        return self.state * self.window

    @property
    def columns(self) -> int:
        """w, X, θ, 1"""
        return self.errors + self.chain + self.border + 1


class Chain(NamedTuple):
    """N intervals of one log."""

    sizes: Sizes
    M: np.ndarray
    """(N, nx, columns)"""
    Y: np.ndarray
    """(N, ny, columns) weighted rows of samples"""
    W: np.ndarray
    """(w, w) square root of the weight of state errors"""
    shift: np.ndarray
    """(N, w) s"""
    first: np.ndarray | None = None
    """(rows, X + θ + 1) weighted rows of samples of the first state itself"""


class Swept(NamedTuple):
    """What a sweep backward leaves."""

    gain: np.ndarray
    """(N, w, X + θ + 1): the best w_k for a given past"""
    first: np.ndarray
    """(X, X + θ + 1) the cost of the whole chain as rows on its first window"""
    rest: np.ndarray
    """(rows, θ + 1) what it says of θ alone"""
    log_determinant: float
    """Σ log |R_ww| over the chain"""


def sweep(chain: Chain) -> Swept:
    """Backward: eliminate every w and state."""
    sizes, n = chain.sizes, len(chain.M)
    R = np.zeros((sizes.chain, sizes.columns - sizes.errors))
    gains = np.empty((n, sizes.errors, sizes.columns - sizes.errors))
    rest, total = np.zeros((0, sizes.border + 1)), 0.0
    for first in reversed(range(0, n, PIECE)):
        count = min(PIECE, n - first)
        part = [_padded(a[first : first + count]) for a in (chain.M, chain.Y, chain.shift)]
        R, gain, fallen, logs = _sweep(sizes, R, *part, chain.W, count)
        gains[first : first + count] = np.asarray(gain)[:count]
        more = np.asarray(fallen)[:count].reshape(-1, sizes.border + 1)
        rest = _triangle(np.concatenate([rest, more]))
        total += float(logs)
    return Swept(gains, np.asarray(R), rest, total)


def follow(
    chain: Chain, swept: Swept, first: np.ndarray, border: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Forward: (N + 1, nx, c) states and (N, w, c) state errors for columns of the first state and of (θ, 1)."""
    sizes, n = chain.sizes, len(chain.M)
    X = np.concatenate([np.zeros((sizes.chain - sizes.state, first.shape[1])), first])
    states = np.empty((n + 1, *first.shape))
    errors = np.empty((n, sizes.errors, first.shape[1]))
    states[0] = first
    for begin in range(0, n, PIECE):
        count = min(PIECE, n - begin)
        part = [_padded(a[begin : begin + count]) for a in (chain.M, swept.gain)]
        X, x, w = _follow(sizes, X, border, *part, count)
        states[begin + 1 : begin + 1 + count] = np.asarray(x)[:count]
        errors[begin : begin + count] = np.asarray(w)[:count]
    return states, errors


def _padded(a: np.ndarray) -> np.ndarray:
    if len(a) == PIECE:
        return a
    return np.concatenate([a, np.zeros((PIECE - len(a), *a.shape[1:]))])


def _triangle(rows: np.ndarray) -> np.ndarray:
    return np.asarray(np.linalg.qr(rows, mode="r")) if len(rows) > rows.shape[1] else rows


@partial(jit, static_argnums=(0,))
def _sweep(
    sizes: Sizes, R: Array, M: Array, Y: Array, shift: Array, W: Array, count: Array
) -> tuple[Array, Array, Array, Array]:
    e, X, m1 = sizes.errors, sizes.chain, sizes.border + 1
    ny = Y.shape[1]
    older = X - sizes.state

    def one(i: Array, carry: tuple[Array, ...]) -> tuple[Array, ...]:
        R, gains, rests, logs = carry
        k = count - 1 - i
        # the window moves on by one state: its newest is M, the others were there
        rows = R[:, older:X] @ M[k]
        moved = [jnp.zeros((X, e + sizes.state)), R[:, :older], R[:, X:]]
        errors = jnp.concatenate([W, jnp.zeros((e, X + m1 - 1)), (W @ shift[k])[:, None]], 1)
        S = jnp.concatenate([errors, rows + jnp.concatenate(moved, 1), Y[k]])
        if e + X > UNBLOCKED:
            S = triangular(S, e + X)
            top, T = S[:e], S[e:, e:]
        else:
            # X needs neither the rows of w nor its columns
            S = triangular(S, e)
            top, T = S[:e], triangular(S[e:, e:], X)
        gain = -_back(top[:, :e], top[:, e:])
        logs += jnp.sum(jnp.log(jnp.abs(jnp.diagonal(top))))
        return T[:X], _put(gains, gain, k), _put(rests, T[X:, X:], k), logs

    start = (
        R,
        jnp.zeros((PIECE, e, X + m1)),
        jnp.zeros((PIECE, ny, m1)),
        jnp.zeros(()),
    )
    return jax.lax.fori_loop(0, count, one, start)


@partial(jit, static_argnums=(0,))
def _follow(
    sizes: Sizes, X: Array, border: Array, M: Array, gain: Array, count: Array
) -> tuple[Array, Array, Array]:
    e, n, columns = sizes.errors, sizes.state, X.shape[1]

    def one(i: Array, carry: tuple[Array, ...]) -> tuple[Array, ...]:
        X, states, errors = carry
        past = jnp.concatenate([X, border])
        w = gain[i] @ past
        x = M[i] @ jnp.concatenate([w, past])
        return jnp.concatenate([X[n:], x]), _put(states, x, i), _put(errors, w, i)

    start = (X, jnp.zeros((PIECE, n, columns)), jnp.zeros((PIECE, e, columns)))
    return jax.lax.fori_loop(0, count, one, start)


def triangular(S: Array, columns: int) -> Array:
    """The first columns of S made upper triangular by Householder's reflections."""
    if columns > UNBLOCKED:
        T = jnp.linalg.qr(S, mode="r")
        return jnp.concatenate([T, jnp.zeros((S.shape[0] - T.shape[0], S.shape[1]))])
    number, count = np.arange(S.shape[0]), S.shape[1]
    # rows of whole vectors of the machine are quicker than shorter ones
    S = jnp.pad(S, ((0, 0), (0, -count % LANES)))

    def one(j: Array, S: Array) -> Array:
        column = jax.lax.dynamic_index_in_dim(S, j, 1, keepdims=False)
        x = jnp.where(number >= j, column, 0.0)
        size = jnp.sqrt(jnp.sum(x * x))
        top = jax.lax.dynamic_index_in_dim(x, j, 0, keepdims=False)
        v = x + jnp.where(number == j, jnp.where(top > 0, size, -size), 0.0)
        half = size * (size + jnp.abs(top))
        return S - (v * jnp.where(half > 0, 1.0 / jnp.where(half > 0, half, 1.0), 0.0))[:, None] * (v @ S)

    return jax.lax.fori_loop(0, min(columns, S.shape[0]), one, S)[:, :count]


def _back(U: Array, B: Array) -> Array:
    """U⁻¹ B for an upper triangle, in plain loops."""
    n = U.shape[0]

    def one(i: Array, x: Array) -> Array:
        j = n - 1 - i
        row = jax.lax.dynamic_index_in_dim(U, j, 0, keepdims=False)
        right = jax.lax.dynamic_index_in_dim(x, j, 0, keepdims=False)
        pivot = jax.lax.dynamic_index_in_dim(row, j, 0, keepdims=False)
        later = jnp.where(np.arange(n) > j, row, 0.0)
        return jax.lax.dynamic_update_index_in_dim(x, (right - later @ x) / pivot, j, 0)

    return jax.lax.fori_loop(0, n, one, B) if n else B


def _put(kept: Array, new: Array, i: Array) -> Array:
    return jax.lax.dynamic_update_index_in_dim(kept, new, i, 0)
