"""The sweep along a chain against dense least squares in all its unknowns."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from mechid.estimate.solvers.block_arrow import PIECE, UNBLOCKED, Chain, Sizes, follow, sweep, triangular

pytestmark = pytest.mark.xdist_group("block_arrow")


class Dense(NamedTuple):
    """The same problem with the columns: window before the start, all w, θ, 1."""

    A: np.ndarray
    states: np.ndarray
    """(N + 1, state, columns)"""
    window: int
    errors: int

    def best(self, first: np.ndarray, theta: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """Sum of squares, states and errors, for a window and parameters that are given."""
        X, E = self.window, self.errors
        given = np.concatenate([first, np.zeros(E), theta, [1.0]])
        right = self.A @ given
        w = -np.linalg.lstsq(self.A[:, X : X + E], right, rcond=None)[0]
        given[X : X + E] = w
        return float(np.sum((self.A @ given) ** 2)), self.states @ given, w


def random_chain(sizes: Sizes, steps: int, samples: int, seed: int) -> Chain:
    rng = np.random.default_rng(seed)
    e, C = sizes.errors, sizes.columns
    M = rng.normal(size=(steps, sizes.state, C))
    # states neither die out nor explode over many intervals
    M[:, :, e : e + sizes.chain] *= 0.9 / np.sqrt(sizes.chain)
    return Chain(
        sizes,
        M,
        rng.normal(size=(steps, samples, C)),
        np.triu(rng.normal(size=(e, e))) + 3.0 * np.eye(e),
        rng.normal(size=(steps, e)),
    )


def dense(chain: Chain) -> Dense:
    """Row by row, every state written out in the unknowns."""
    (e, n, _, m), N = chain.sizes, len(chain.M)
    X0, E = chain.sizes.chain, N * chain.sizes.errors
    count = X0 + E + m + 1
    one = np.eye(count)
    X, border = one[:X0], one[X0 + E :]
    rows, states = [], [X[X0 - n :]]
    for k in range(N):
        w = one[X0 + k * e : X0 + (k + 1) * e]
        past = np.concatenate([w, X, border])
        rows += [chain.W @ (w + np.outer(chain.shift[k], one[-1])), chain.Y[k] @ past]
        states.append(chain.M[k] @ past)
        X = np.concatenate([X[n:], states[-1]])
    return Dense(np.concatenate(rows), np.array(states), X0, E)


CHAINS = {
    "short": (Sizes(2, 3, 1, 2), 7, 2),
    "one interval": (Sizes(2, 3, 1, 2), 1, 2),
    "window of three": (Sizes(2, 2, 3, 2), 9, 1),
    "shorter than its window": (Sizes(2, 2, 3, 2), 2, 1),
    "no parameters": (Sizes(2, 3, 1, 0), 6, 2),
    "no samples": (Sizes(2, 3, 1, 2), 5, 0),
    "more than a piece": (Sizes(1, 2, 1, 1), PIECE + 9, 1),
    "wide": (Sizes(UNBLOCKED // 2, UNBLOCKED // 2 + 3, 1, 3), 4, 2),
}


@pytest.fixture(scope="module", params=CHAINS)
def case(request):
    sizes, steps, samples = CHAINS[request.param]
    chain = random_chain(sizes, steps, samples, seed=sum(map(ord, request.param)))
    return chain, sweep(chain), dense(chain)


def test_the_cost_that_is_left(case):
    """Of the first window and the parameters, all errors at their best."""
    chain, swept, whole = case
    rng = np.random.default_rng(0)
    for _ in range(2):
        first, theta = rng.normal(size=chain.sizes.chain), rng.normal(size=chain.sizes.border)
        left = np.concatenate([first, theta, [1.0]])
        found = np.sum((swept.first @ left) ** 2) + np.sum((swept.rest @ left[len(first) :]) ** 2)
        assert found == pytest.approx(whole.best(first, theta)[0], rel=1e-11)


def test_the_states_and_errors_that_follow(case):
    """Two columns at once; without the constant all follows linearly."""
    chain, swept, whole = case
    sizes = chain.sizes
    rng = np.random.default_rng(1)
    first, theta = rng.normal(size=(sizes.state, 2)), rng.normal(size=(sizes.border, 2))
    border = np.concatenate([theta, np.ones((1, 2))])
    states, errors = follow(chain, swept, first, border)
    assert states.shape == (len(chain.M) + 1, sizes.state, 2)
    for i in range(2):
        window = np.concatenate([np.zeros(sizes.chain - sizes.state), first[:, i]])
        _, x, w = whole.best(window, theta[:, i])
        assert states[..., i] == pytest.approx(x, rel=1e-8, abs=1e-9)
        assert errors[..., i].ravel() == pytest.approx(w, rel=1e-8, abs=1e-9)
    border[-1] = 0.0
    slopes, _ = follow(chain, swept, first, border)
    shifted, _ = follow(chain, swept, 2.0 * first, 2.0 * border)
    assert shifted == pytest.approx(2.0 * slopes, rel=1e-9, abs=1e-9)


def test_the_determinant(case):
    """Of the dense Hessian by all w, which is what Laplace's integral over them leaves."""
    _, swept, whole = case
    by_w = whole.A[:, whole.window : whole.window + whole.errors]
    sign, value = np.linalg.slogdet(by_w.T @ by_w)
    assert sign > 0
    assert swept.log_determinant == pytest.approx(0.5 * value, rel=1e-10)


def test_without_errors_the_chain_is_a_simulation():
    """No w: the cost is that of the samples along exact states."""
    chain = random_chain(Sizes(0, 3, 1, 2), 20, 2, seed=5)
    swept, whole = sweep(chain), dense(chain)
    first, theta = np.array([0.3, -1.0, 2.0]), np.array([1.0, -0.5])
    want = np.concatenate([first, theta, [1.0]])
    left = np.sum((swept.first @ want) ** 2) + np.sum((swept.rest @ want[3:]) ** 2)
    assert left == pytest.approx(np.sum((whole.A @ want) ** 2), rel=1e-11)
    states, errors = follow(chain, swept, first[:, None], want[3:, None])
    assert errors.shape == (20, 0, 1)
    assert states[..., 0] == pytest.approx(whole.states @ want, rel=1e-10, abs=1e-12)
    assert swept.log_determinant == 0.0


@pytest.mark.parametrize("kappa", [1e4, 1e10, 1e16])
def test_a_large_weight_is_the_limit_of_exact_dynamics(kappa):
    """The errors vanish as 1/κ, and nothing is lost by rounding, however large κ is."""
    chain = random_chain(Sizes(2, 3, 1, 2), 30, 2, seed=6)
    chain = chain._replace(W=np.sqrt(kappa) * np.eye(2), shift=np.zeros((30, 2)))
    none = random_chain(Sizes(0, 3, 1, 2), 30, 2, seed=6)
    exact = none._replace(M=chain.M[:, :, 2:], Y=chain.Y[:, :, 2:])
    first, border = np.array([[0.3], [-1.0], [2.0]]), np.array([[1.0], [-0.5], [1.0]])
    found, errors = follow(chain, sweep(chain), first, border)
    want, _ = follow(exact, sweep(exact), first, border)
    size = np.abs(want).max()
    assert np.abs(errors).max() < 1e3 * size / kappa
    assert np.abs(found - want).max() < 1e4 * size / kappa + 1e-12 * size


@pytest.mark.parametrize("columns", [5, UNBLOCKED + 6])
def test_triangles(columns):
    """Zeros below the diagonal, and every column's products as they were; a column of zeros does no harm."""
    S = np.random.default_rng(2).normal(size=(columns + 9, columns + 2))
    S[:, 2] = 0.0
    T = np.asarray(triangular(S, columns))
    assert T.shape == S.shape
    assert np.abs(np.tril(T, -1)[:, :columns]).max() < 1e-13 * columns
    products = T.T @ T
    assert products == pytest.approx(S.T @ S, rel=1e-11, abs=1e-11)
