"""Small dense systems against NumPy: every size on both sides of SMALL, pivoting, bad scaling, slopes."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mechid.compile import jit
from mechid.dynamics.linear import (
    SMALL,
    decomposed,
    eliminated,
    factorise,
    solve,
    solve_once,
    solve_transposed,
)

SIZES = (1, 2, 3, 19, 43, 64, 65, 80)
WAYS = (eliminated, decomposed)
every_way = pytest.mark.parametrize("way", WAYS)
SEVERAL = 4


@partial(jit, once=True, static_argnums=(0,))
def solutions(way: Any, matrix: Any, columns: Any) -> Any:
    """Of A x = b and Aᵀ x = b for several right-hand sides, and for the first alone."""
    factors = way(matrix)
    both = (solve(factors, columns), solve_transposed(factors, columns))
    return *both, solve(factors, columns[:, 0]), solve_transposed(factors, columns[:, 0])


def orthogonal(rng: np.random.Generator, n: int) -> np.ndarray:
    return np.linalg.qr(rng.normal(size=(n, n)))[0]


def saddle(rng: np.random.Generator, n: int) -> np.ndarray:
    """[M Jᵀ; J 0] with a third of the rows constraints and M singular where they lock."""
    nc = n // 3
    J, half = rng.normal(size=(nc, n - nc)), rng.normal(size=(n - nc, n - nc))
    half[: nc // 2] = 0.0
    return np.block([[half.T @ half, J.T], [J, np.zeros((nc, nc))]])


MATRICES = {
    "random": lambda rng, n: rng.normal(size=(n, n)),
    "zero diagonal": lambda rng, n: rng.normal(size=(n, n)) * (1 - np.eye(n)) if n > 1 else np.ones((1, 1)),
    "saddle point": saddle,
    "permutation": lambda rng, n: np.eye(n)[rng.permutation(n)],
    "tiny leading pivots": lambda rng, n: rng.normal(size=(n, n)) - (1 - 1e-14) * np.triu(np.ones((n, n))),
    "reversed triangle": lambda rng, n: np.triu(rng.uniform(1, 2, (n, n)))[::-1] + n * np.eye(n)[::-1],
}


def backward_error(matrix: np.ndarray, x: np.ndarray, b: np.ndarray) -> float:
    """The smallest change of the matrix, relative to it, for which the worst of the columns is exact."""
    x, b = x.reshape(len(b), -1), b.reshape(len(b), -1)
    left = np.linalg.norm(matrix @ x - b, axis=0)
    return float(np.max(left / (np.linalg.norm(matrix, 2) * np.linalg.norm(x, axis=0))))


@pytest.mark.parametrize(
    ("way", "n"), [(eliminated, n) for n in SIZES] + [(decomposed, n) for n in (1, 3, 19, 65, 80)]
)
def test_solutions_are_those_of_numpy(way: Any, n: int) -> None:
    for name, make in MATRICES.items():
        rng = np.random.default_rng(n)
        A, b = make(rng, n), rng.normal(size=(n, SEVERAL))
        allowed = 1e-15 * (10 + n) * np.linalg.cond(A)
        assert allowed < 1e-8, f"{name} {n} is ill-conditioned: a test of nothing"
        several, transposed, one, one_transposed = solutions(way, A, b)
        for got, want in (
            (several, np.linalg.solve(A, b)),
            (transposed, np.linalg.solve(A.T, b)),
            (one, np.linalg.solve(A, b[:, 0])),
            (one_transposed, np.linalg.solve(A.T, b[:, 0])),
        ):
            assert got.shape == want.shape
            assert np.abs(got - want).max() <= allowed * np.abs(want).max(), (name, n)


@pytest.mark.parametrize("n", SIZES)
def test_the_way_is_chosen_by_size(n: int) -> None:
    """The inverse up to SMALL unknowns, LAPACK's factors beyond."""
    order = jax.eval_shape(factorise, jnp.zeros((n, n))).order
    assert order.shape == ((0,) if n <= SMALL else (n,))


@every_way
@pytest.mark.parametrize("n", [19, 80])
def test_badly_scaled_matrices(way: Any, n: int) -> None:
    """Units as different as 1e-6 and 1e6 in rows and columns cost neither digits nor, row by row, residual."""
    rng = np.random.default_rng(n)
    well = orthogonal(rng, n) @ np.diag(rng.uniform(0.5, 2, n)) @ orthogonal(rng, n)
    b = rng.normal(size=(n, SEVERAL))
    for rows, columns in ((6.0, 0.0), (0.0, 6.0), (6.0, 6.0)):
        left, right = (10 ** rng.uniform(-s, s, n) for s in (rows, columns))
        A, rhs = left[:, None] * well * right, left[:, None] * b
        exact = np.linalg.solve(well, b) / right[:, None]
        got = np.asarray(solutions(way, A, rhs)[0])
        assert np.abs(got / exact - 1).max() < 1e-9, (rows, columns)
        by_row = np.abs(A) @ np.abs(got) + np.abs(rhs)
        assert (np.abs(A @ got - rhs) / by_row).max() < 1e-12, (rows, columns)


@every_way
def test_a_stiff_mechanism_has_a_small_backward_error(way: Any) -> None:
    """Saddle points with masses between 1e-6 and 1e4, as a wrist on an arm: no worse than 100 × NumPy."""
    rng = np.random.default_rng(4)
    n, nc = 19, 6
    for _ in range(20):
        masses = 10 ** rng.uniform(-6, 4, n - nc)
        J = rng.normal(size=(nc, n - nc))
        A = np.block([[np.diag(masses), J.T], [J, np.zeros((nc, nc))]])
        b = rng.normal(size=(n, SEVERAL))
        got = np.asarray(solutions(way, A, b)[0])
        assert backward_error(A, got, b) < 100 * max(backward_error(A, np.linalg.solve(A, b), b), 1e-16)


SINGULAR = {
    "zero": lambda rng, n: np.zeros((n, n)),
    "a row of zeros": lambda rng, n: rng.normal(size=(n, n)) * (np.arange(n) != n // 2)[:, None],
    "a column of zeros": lambda rng, n: rng.normal(size=(n, n)) * (np.arange(n) != n - 1),
    "rank one": lambda rng, n: np.outer(rng.normal(size=n), rng.normal(size=n)) * (n > 1),
    "two equal rows": lambda rng, n: rng.normal(size=(n, n))[np.maximum(np.arange(n), 1) % n] * (n > 1),
    "not a number": lambda rng, n: np.full((n, n), np.nan),
}


@every_way
@pytest.mark.parametrize("n", [1, 3, 19, 65])
def test_singular_matrices_are_told_by_the_solution(way: Any, n: int) -> None:
    for name, make in SINGULAR.items():
        rng = np.random.default_rng(5)
        A, b = make(rng, n), rng.normal(size=(n, SEVERAL))
        for got in solutions(way, A, b):
            size = np.abs(got).max()
            assert not np.isfinite(size) or size > 1e10, (name, n, size)


@jit
def slopes(matrix: Any, rhs: Any, matrix_change: Any, rhs_change: Any, weights: Any) -> Any:
    """solve_once, its change along a direction, and the slopes of a weighted sum of its solution."""
    x, change = jax.jvp(solve_once, (matrix, rhs), (matrix_change, rhs_change))
    _, pull = jax.vjp(solve_once, matrix, rhs)
    return x, change, pull(weights)


@pytest.mark.parametrize("n", [5, SMALL + 6])
def test_slopes_of_a_solution(n: int) -> None:
    """jvp and vjp against central differences of NumPy's solution."""
    rng = np.random.default_rng(n)
    A, b = rng.normal(size=(n, n)) + 3 * np.sqrt(n) * np.eye(n), rng.normal(size=n)
    dA, db, w = rng.normal(size=(n, n)), rng.normal(size=n), rng.normal(size=n)
    x, dx, (by_A, by_b) = slopes(A, b, dA, db, w)
    h = 1e-5
    ends = [np.linalg.solve(A + s * h * dA, b + s * h * db) for s in (1, -1)]
    difference = (ends[0] - ends[1]) / (2 * h)
    assert np.abs(x - np.linalg.solve(A, b)).max() < 1e-12
    assert np.abs(dx - difference).max() < 1e-8 * np.abs(difference).max()
    assert np.sum(by_A * dA) + by_b @ db == pytest.approx(w @ difference, rel=1e-7)


def test_many_at_once_are_the_same_as_one_by_one() -> None:
    """Mapped over a batch, as an accelerator runs it; each matrix exchanges rows of its own."""
    rng = np.random.default_rng(8)
    A, b = rng.normal(size=(7, 19, 19)) * (1 - np.eye(19)), rng.normal(size=(7, 19))
    together = jit(jax.vmap(solve_once), once=True)(A, b)
    assert np.abs(together - np.linalg.solve(A, b[..., None])[..., 0]).max() < 1e-10
