"""Small dense systems that are factorised once and solved several times.

Two ways, behind one set of functions:

- `eliminated`: the inverse itself, by Gauss–Jordan elimination with partial pivoting. Plain loops, which the
  compiler fuses with what stands around them, so that a whole simulation becomes one kernel; each further
  solution is one product. Those who solve equations this way check the residual.
- `decomposed`: LAPACK's LU factors, for systems beyond SMALL unknowns, and where one kernel would take long to
  compile because the matrix comes from automatic differentiation. LAPACK returns its row exchanges one after the
  other; to turn them into a permutation without a loop the row numbers c ride along as one more column:
  w = L⁻¹ P c is left there, so P c = L w, exact after rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mechid.compile import accelerated
from mechid.dynamics.tree import Array, take

SMALL = 64


class Factors(NamedTuple):
    """What solves a square system."""

    matrix: Array
    """(n, n) the inverse; or L below the diagonal (ones on it) and U above, of P A = L U"""
    order: Array
    """(n,) row of A that stands in each row of P A; empty where the inverse is kept"""


def factorise(matrix: Array) -> Factors:
    """The factors of a square matrix; a singular one gives infinite or undefined solutions."""
    if accelerated():
        return Factors(jnp.linalg.inv(matrix), jnp.zeros(0, dtype=jnp.int32))
    return eliminated(matrix) if matrix.shape[0] <= SMALL else decomposed(matrix)


def eliminated(matrix: Array) -> Factors:
    return Factors(inverse(matrix), jnp.zeros(0, dtype=jnp.int32))


@jax.custom_jvp
def inverse(matrix: Array) -> Array:
    """The inverse X of a matrix A; its derivative is dX = −X dA X, not that of the elimination."""
    return _inverse(matrix)


@inverse.defjvp
def _inverse_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    X = inverse(*primals)
    return X, -X @ tangents[0] @ X


def decomposed(matrix: Array) -> Factors:
    n = matrix.shape[0]
    number = jnp.arange(n, dtype=matrix.dtype)[:, None]
    table, _, _ = jax.lax.linalg.lu(jnp.concatenate([matrix, number], 1))
    lu, ridden = table[:, :n], table[:, n]
    return Factors(lu, jnp.round(jnp.tril(lu, -1) @ ridden + ridden).astype(jnp.int32))


def solve(factors: Factors, rhs: Array) -> Array:
    """The solution of A x = rhs, for one or several right-hand sides (n,) or (n, m)."""
    if not factors.order.shape[0]:
        return factors.matrix @ rhs
    columns = rhs.reshape(rhs.shape[0], -1).at[factors.order].get(mode="clip")
    lower = _triangle(factors.matrix, columns, lower=True)
    return _triangle(factors.matrix, lower, lower=False).reshape(rhs.shape)


def solve_transposed(factors: Factors, rhs: Array) -> Array:
    """The solution of Aᵀ x = rhs."""
    if not factors.order.shape[0]:
        return factors.matrix.T @ rhs
    columns = rhs.reshape(rhs.shape[0], -1)
    upper = _triangle(factors.matrix, columns, lower=False, transposed=True)
    lower = _triangle(factors.matrix, upper, lower=True, transposed=True)
    return jnp.zeros_like(columns).at[factors.order].set(lower, mode="drop").reshape(rhs.shape)


def solve_once(matrix: Array, rhs: Array) -> Array:
    """The solution of A x = rhs, differentiable without going through the elimination."""

    def by(use: Callable[[Factors, Array], Array]) -> Callable[[Any, Array], Array]:
        return lambda _, b: use(factorise(matrix), b)

    return jax.lax.custom_linear_solve(lambda x: matrix @ x, rhs, by(solve), by(solve_transposed))


def _triangle(lu: Array, columns: Array, *, lower: bool, transposed: bool = False) -> Array:
    return jax.lax.linalg.triangular_solve(
        lu, columns, left_side=True, lower=lower, unit_diagonal=lower, transpose_a=transposed
    )


@jax.custom_batching.custom_vmap
def _inverse(matrix: Array) -> Array:
    """Gauss–Jordan in place, two pivots at a time: each pair is two exchanges of rows and one rank-two update.

    With row k and column k set to zero, a + c rᵀ does the whole elimination for c = −column (1 at k) and
    r = row/pivot (1/pivot at k). The second pivot of a pair sees the first one's update through c and r.
    """
    size = matrix.shape[0]
    n = size + size % 2
    number = jnp.arange(n)
    cut, put = jax.lax.dynamic_slice_in_dim, jax.lax.dynamic_update_slice_in_dim

    def exchange(order: Array, k: Array, p: Array) -> Array:
        return put(put(order, cut(order, k, 1), p, 0), cut(order, p, 1), k, 0)

    def cleared(a: Array, k: Array, p: Array) -> Array:
        """Row k moved to p; row and column k zero."""
        a = put(a, cut(a, k, 1, 0), p, 0)
        return put(put(a, jnp.zeros((1, n)), k, 0), jnp.zeros((n, 1)), k, 1)

    def pivot(a: Array, c: Array, r: Array, k: Array) -> tuple[Array, Array, Array]:
        """The row to pivot on and the factors of its update, for a + c rᵀ."""
        column = cut(a, k, 1, 1)[:, 0] + c * r[k]
        p = jnp.argmax(jnp.where(number >= k, jnp.abs(column), -1.0))
        there = cut(a, p, 1, 0)[0] + c[p] * r
        one = 1.0 / there[k]
        new_c = jnp.where(number == k, 1.0, jnp.where(number == p, -column[k], -column))
        return p, new_c, jnp.where(number == k, one, there * one)

    def eliminate(i: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        a, order = state
        k, l = 2 * i, 2 * i + 1
        p, c, r = pivot(a, jnp.zeros(n), jnp.zeros(n), k)
        a, order = cleared(a, k, p), exchange(order, k, p)
        p, c_second, r_second = pivot(a, c, r, l)
        a, order = cleared(a, l, p), exchange(order, l, p)
        c = jnp.where(number == l, 0.0, jnp.where(number == p, c[l], c))
        r = jnp.where(number == l, 0.0, r)
        return a + (c[:, None] * r[None] + c_second[:, None] * r_second[None]), order

    if n > size:
        matrix = jnp.pad(matrix, (0, 1)) + jnp.diag(jnp.where(number == size, 1.0, 0.0))
    a, order = jax.lax.fori_loop(0, n // 2, eliminate, (matrix, number))
    # a inverts P A: its columns stand in the order of the exchanged rows
    place = jnp.sum(jnp.where(order[None] == number[:, None], number[None], 0), 1)
    return take(a.T, place).T[:size, :size]


@_inverse.def_vmap
def _inverses(axis_size: int, in_batched: Any, matrices: Array) -> tuple[Array, bool]:
    return jax.vmap(_masked_inverse)(matrices), True


def _masked_inverse(matrix: Array) -> Array:
    """The same for one of many, a pivot at a time: rows and columns are told by masks, as slices would differ."""
    number = np.arange(matrix.shape[0])

    def eliminate(k: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        a, order = state
        here = number == k

        def at(mask: Array, values: Array) -> Array:
            return jnp.sum(jnp.where(mask, values, 0), -1)

        column = at(here, a)
        there = number == jnp.argmax(jnp.where(number >= k, jnp.abs(column), -1.0))
        row, moved = at(there, a.T), at(here, a.T)
        c = jnp.where(here, -1.0, jnp.where(there, at(here, column), column))
        r = jnp.where(here, 1.0, row) / at(here, row)
        rest = jnp.where(here[:, None] | here, 0.0, jnp.where(there[:, None], moved, a))
        order = jnp.where(here, at(there, order), jnp.where(there, at(here, order), order))
        return rest - c[:, None] * r, order

    a, order = jax.lax.fori_loop(0, matrix.shape[0], eliminate, (matrix, number))
    return a @ jnp.where(order[:, None] == number, 1.0, 0.0)
