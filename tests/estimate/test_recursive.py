"""Recursive least squares beside batches, weighted batches and the covariance form in extended precision."""

import numpy as np
import pytest

from mechid.errors import MechidError
from mechid.estimate.recursive import Accumulated, Forgetting, Recursive

NEVER = Forgetting(memory=np.inf, alarm=np.inf)


def stream(n: int, m: int, count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=n)
    phi = rng.normal(size=(count, m, n)) * np.geomspace(1.0, 100.0, n)
    noise = np.geomspace(0.1, 1.0, m)
    return truth, phi, phi @ truth + noise * rng.normal(size=(count, m))


def test_without_forgetting_it_is_the_batch() -> None:
    n, m = 5, 2
    _, phi, y = stream(n, m, 300)
    y[::7, 0] = np.nan
    phi[::11, 1, 2] = np.nan
    noise = np.array([0.1, 1.0])
    running = Recursive(np.ones(n), np.full(n, 10.0), noise, NEVER)
    for row, right in zip(phi, y, strict=True):
        running.update(row, right)
    rows = (phi / noise[:, None]).reshape(-1, n)
    right = (y / noise).ravel()
    there = np.isfinite(right) & np.isfinite(rows).all(axis=1)
    assert 400 < there.sum() < 600
    rows, right = np.vstack([rows[there], np.eye(n) / 10.0]), np.append(right[there], np.ones(n) / 10.0)
    theta = np.linalg.lstsq(rows, right, rcond=None)[0]
    assert running.theta == pytest.approx(theta, rel=1e-10)
    running.misfit = 1.0
    assert running.covariance == pytest.approx(np.linalg.inv(rows.T @ rows), rel=1e-8)


def test_even_forgetting_is_a_weighted_batch() -> None:
    n, m, count, factor = 4, 2, 400, 0.97
    _, phi, y = stream(n, m, count)
    running = Recursive(np.zeros(n), np.full(n, 1e9), np.ones(m), NEVER)
    for row, right in zip(phi, y, strict=True):
        running.forget(factor)
        running.update(row, right)
    root = factor ** (0.5 * np.arange(count - 1, -1, -1))
    theta = np.linalg.lstsq(
        (root[:, None, None] * phi).reshape(-1, n), (root[:, None] * y).ravel(), rcond=None
    )
    assert running.theta == pytest.approx(theta[0], rel=1e-9)


def covariance_form(phi, y, std, memory: float) -> tuple[np.ndarray, np.ndarray]:
    """Kulhavý's directional forgetting, row by row, on the covariance in extended precision."""
    n, m = phi.shape[2], phi.shape[1]
    P, theta = np.diag(np.longdouble(std) ** 2), np.zeros(n, np.longdouble)
    for rows, right in zip(phi.astype(np.longdouble), y.astype(np.longdouble), strict=True):
        for f, value in zip(rows, right, strict=True):
            g = P @ f
            h = f @ g
            loss = min(n / (m * memory), h)
            P = P + (1 / (1 - loss) - 1) * np.outer(g, g) / h
            g = P @ f
            gain = g / (1 + f @ g)
            theta = theta + gain * (value - f @ theta)
            P = P - np.outer(gain, g)
    return theta.astype(float), P.astype(float)


def test_directional_forgetting_stays_with_extended_precision() -> None:
    n, m, memory = 4, 2, 40.0
    _, phi, y = stream(n, m, 4000)
    # directions come and go
    phi[1000:2500, :, 1] = 0.0
    running = Recursive(np.zeros(n), np.full(n, 100.0), np.ones(m), Forgetting(memory, alarm=np.inf))
    for row, right in zip(phi, y, strict=True):
        running.update(row, right)
    theta, P = covariance_form(phi, y, np.full(n, 100.0), memory)
    assert running.theta == pytest.approx(theta, rel=1e-9)
    running.misfit = 1.0
    assert running.covariance == pytest.approx(P, rel=1e-8, abs=1e-12)


def test_nothing_winds_up_where_nothing_is_excited() -> None:
    """At rest only one direction is seen for long: the others stay what they were, to rounding."""
    n = 3
    truth, phi, _ = stream(n, 1, 500)
    rng = np.random.default_rng(1)
    running = Recursive(np.zeros(n), np.full(n, 100.0), np.array([0.1]), Forgetting(memory=200.0))
    for row in phi:
        running.update(row, row @ truth + 0.1 * rng.normal(size=1))
    before, std = running.theta, running.std / np.sqrt(running.misfit)
    still = np.array([[0.0, 0.0, 1e-3]])
    for _ in range(20000):
        running.update(still * rng.normal(), 0.1 * rng.normal(size=1))
    # exponential forgetting would have made the std e^50 times larger
    assert running.std / max(running.misfit, 1.0) ** 0.5 == pytest.approx(std, rel=0.2)
    assert running.theta[:2] == pytest.approx(before[:2], abs=float(std[:2].max()))


def test_a_jump_is_followed_and_told() -> None:
    truth, phi, _ = stream(4, 1, 3000)
    rng = np.random.default_rng(2)
    running = Recursive(np.zeros(4), np.full(4, 100.0), np.array([0.1]))
    largest = 0.0
    for i, row in enumerate(phi):
        theta = truth if i < 2000 else 1.5 * truth
        surprise = running.update(row, row @ theta + 0.1 * rng.normal(size=1))
        if 100 < i < 2000:
            largest = max(largest, surprise)
        if i == 2003:
            assert surprise > 10.0 * largest
    assert largest < 4.0
    assert np.abs(running.theta - 1.5 * truth).max() < 5.0 * running.std.max()


def test_standard_deviations_hold() -> None:
    n, hits = 3, []
    for seed in range(60):
        truth, phi, y = stream(n, 1, 200, seed)
        running = Recursive(np.zeros(n), np.full(n, 100.0), np.array([0.1]), NEVER)
        for row, right in zip(phi, y, strict=True):
            running.update(row, right)
        hits.append((running.theta - truth) / running.std)
    assert 0.8 < np.std(hits) < 1.2


def test_rows_that_cannot_be_are_passed_over() -> None:
    """The estimate is that of the others; without a limit it is bent."""
    truth, phi, y = stream(4, 2, 400)
    spoilt = y.copy()
    spoilt[250, 0], spoilt[300, 1] = 1e3, -1e6
    noise = np.array([0.1, 1.0])
    runs = [Recursive(np.zeros(4), np.full(4, 100.0), noise, NEVER) for _ in range(3)]
    runs[0].beyond = 25.0
    passed = []
    without = spoilt.copy()
    without[250, 0] = without[300, 1] = np.nan
    for i in range(400):
        for running, given in zip(runs, (spoilt, without, spoilt), strict=True):
            running.update(phi[i], given[i])
        passed += [(i, j) for j in runs[0].passed]
    assert passed == [(250, 0), (300, 1)]
    assert runs[0].theta == pytest.approx(runs[1].theta, rel=1e-12)
    assert np.abs(runs[2].theta - truth).max() > 100.0 * np.abs(runs[0].theta - truth).max()


def test_accumulated_rest_is_what_no_theta_explains() -> None:
    _, phi, y = stream(5, 2, 100)
    y[3] = np.nan
    y[5, 1] = np.nan
    noise = np.array([0.1, 1.0])
    since = Accumulated(5, noise)
    for row, right in zip(phi, y, strict=True):
        since.update(row, right)
    there = np.isfinite(y).ravel()
    rows, right = (phi / noise[:, None]).reshape(-1, 5)[there], (y / noise).ravel()[there]
    rest = np.linalg.lstsq(rows, right, rcond=None)[1][0]
    assert since.rows == there.sum() == 197
    assert since.square == pytest.approx(rest, rel=1e-10)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Forgetting(memory=0.5), "memory of Forgetting must be a number ≥ 1, not 0.5."),
        (
            lambda: Forgetting(fastest=1.0),
            "fastest of Forgetting must be a number from 0 to below 1, not 1.0.",
        ),
        (
            lambda: Recursive([0.0], [0.0], [1.0]),
            "std must be 1 positive, finite numbers, not [0.0].",
        ),
        (
            lambda: Recursive([0.0], [1.0], [-1.0]),
            "The noise of outputs must be positive and finite, not [-1.0].",
        ),
    ],
)
def test_mistakes(make, told: str) -> None:
    with pytest.raises(MechidError) as error:
        make()
    assert str(error.value) == told
