"""Linear least squares: against dense algebra, the equations that robust losses solve, and many repetitions."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg

from mechid import MechidError
from mechid.estimate.linear import HUBER, MAD, TUKEY, least_squares, solve
from mechid.estimate.triangle import Triangle, compress

TRUTH = np.array([1.0, -2.0, 3.0, 0.5])
NAMES = ("a", "b", "c", "d")


def rows(seed=0, samples=700, noise=(0.1, 1.0)):
    rng = np.random.default_rng(seed)
    phi = rng.normal(size=(samples, len(noise), 4)) * np.array([1.0, 10.0, 0.1, 3.0])
    return phi, phi @ TRUTH + np.array(noise) * rng.normal(size=phi.shape[:2])


def flat(phi, y):
    return phi.reshape(-1, phi.shape[-1]), y.ravel()


def test_a_triangle_holds_all_of_the_rows():
    """‖φ θ − y‖² for any θ; columns that are zero, missing samples, weights and few rows included."""
    phi, y = rows(samples=1300)
    phi[:, :, 2] = 0.0
    y[5, 0] = np.nan
    weights = np.random.default_rng(1).uniform(0.0, 2.0, y.shape)
    triangle = compress(phi, y, weights)
    for theta in (TRUTH, np.ones(4), np.zeros(4)):
        direct = np.nansum(weights * (phi @ theta - y) ** 2)
        assert triangle.square(theta) == pytest.approx(direct, rel=1e-12)
    assert triangle.count == y.size - 1
    few = compress(phi[:1], y[:1])
    assert few.square(TRUTH) == pytest.approx(np.sum((phi[0] @ TRUTH - y[0]) ** 2), rel=1e-12)


def test_triangles_add_up():
    phi, y = rows(samples=400)
    total = Triangle.empty(4)
    for first in range(0, 400, 90):
        total = total.plus(compress(phi[first : first + 90], y[first : first + 90]))
    whole = solve(compress(phi, y), NAMES)
    parts = solve(total, NAMES)
    np.testing.assert_allclose(parts.theta, whole.theta, rtol=1e-12)
    np.testing.assert_allclose(parts.std, whole.std, rtol=1e-12)
    assert total.count == y.size


def test_ordinary_least_squares_is_that_of_dense_algebra():
    phi, y = rows(noise=(0.3,))
    found = least_squares(phi, y, NAMES)
    A, b = flat(phi, y)
    theta, square, *_ = np.linalg.lstsq(A, b, rcond=None)
    sigma2 = square[0] / (len(b) - 4)
    np.testing.assert_allclose(found.theta, theta, rtol=1e-11)
    np.testing.assert_allclose(found.covariance, sigma2 * np.linalg.inv(A.T @ A), rtol=1e-9)
    np.testing.assert_allclose(found.scale, np.sqrt(sigma2), rtol=1e-11)


def test_digits_that_normal_equations_lose_are_kept():
    """Columns that differ by 1e-7: φᵀφ is singular to rounding, its triangle is not."""
    rng = np.random.default_rng(3)
    t = rng.normal(size=3000)
    phi = np.stack([t, t + 1e-7 * rng.normal(size=3000)], -1)
    found = least_squares(phi, phi @ np.array([2.0, 5.0]), ("a", "b"))
    assert found.rank == 2
    np.testing.assert_allclose(found.theta, [2.0, 5.0], rtol=1e-7)


def test_given_stds_weigh_outputs():
    phi, y = rows()
    found = least_squares(phi, y, NAMES, std=(0.1, 1.0))
    A, b = flat(phi / np.array([0.1, 1.0])[:, None], y / np.array([0.1, 1.0]))
    np.testing.assert_allclose(found.theta, np.linalg.lstsq(A, b, rcond=None)[0], rtol=1e-11)


def test_noise_of_outputs_is_estimated_with_theta():
    """The fixed point of θ and stds: weights are those of the residuals that they lead to."""
    phi, y = rows(samples=4000)
    found = least_squares(phi, y, NAMES, std="estimated")
    np.testing.assert_allclose(found.scale, [0.1, 1.0], rtol=0.05)
    A, b = flat(phi / found.scale[:, None], y / found.scale)
    np.testing.assert_allclose(found.theta, np.linalg.lstsq(A, b, rcond=None)[0], rtol=1e-6)
    np.testing.assert_allclose(np.std(phi @ found.theta - y, axis=0), found.scale, rtol=1e-3)
    ordinary = least_squares(phi, y, NAMES)
    assert np.all(found.std < 0.3 * ordinary.std)


@pytest.mark.parametrize(
    ("loss", "psi"),
    [
        ("huber", lambda e: np.clip(e, -HUBER, HUBER)),
        ("tukey", lambda e: np.where(np.abs(e) < TUKEY, e * (1 - (e / TUKEY) ** 2) ** 2, 0.0)),
    ],
)
def test_robust_losses_solve_their_equations(loss, psi):
    """Σ φᵀ ψ(r/s)/s = 0, and outliers do not move θ by more than its noise."""
    phi, y = rows(samples=3000)
    rng = np.random.default_rng(9)
    y = y + 30.0 * (rng.random(y.shape) < 0.1) * (1.0 + rng.random(y.shape))
    y[7, 1] = np.nan
    found = least_squares(phi, y, NAMES, loss=loss, std="estimated")
    r = phi @ found.theta - y
    s = MAD * np.nanmedian(np.abs(r), axis=0)
    score = np.einsum("tjn,tj->n", phi, np.nan_to_num(psi(r / s)) / s)
    size = np.sqrt(np.einsum("tjn,tj->n", phi**2, np.nan_to_num(psi(r / s)) ** 2 / s**2))
    assert np.all(np.abs(score) < 0.02 * size)
    assert found.converged
    worse = least_squares(phi, y, NAMES, std="estimated")
    off = np.abs(found.theta - TRUTH)
    assert np.all(off < 4.0 * found.std)
    assert np.linalg.norm(off) < 0.1 * np.linalg.norm(worse.theta - TRUTH)


@pytest.mark.parametrize("loss", ["squared", "huber", "tukey"])
@pytest.mark.parametrize("std", [None, "estimated"])
def test_standard_deviations_are_those_of_repetitions(loss, std):
    found = [least_squares(*rows(seed, samples=60), NAMES, loss=loss, std=std) for seed in range(150)]
    spread = np.std([f.theta for f in found], axis=0)
    told = np.median([f.std for f in found], axis=0)
    np.testing.assert_allclose(told, spread, rtol=0.2)


def test_efficiency_of_robust_losses_on_gaussian_noise():
    """Of 95 %, which defines their constants."""
    var = {
        loss: np.var(
            [least_squares(*rows(s, samples=80), NAMES, loss=loss).theta for s in range(200)], axis=0
        )
        for loss in ("squared", "huber", "tukey")
    }
    # outputs weighed alike with the louder one dominating
    for loss in ("huber", "tukey"):
        assert np.mean(var["squared"] / var[loss]) == pytest.approx(0.95, abs=0.06)


def test_what_acts_together_is_told_as_one():
    """c = 2 a − b/2 and d silent: two base parameters, their values those of the truth, no std for single ones."""
    rng = np.random.default_rng(2)
    phi = rng.normal(size=(300, 1, 4))
    phi[..., 2] = 2.0 * phi[..., 0] - 0.5 * phi[..., 1]
    phi[..., 3] = 0.0
    y = phi @ TRUTH + 0.01 * rng.normal(size=(300, 1))
    found = least_squares(phi, y, NAMES, order=range(4))
    assert found.rank == 2
    assert found.base.expressions == ("a + 2·c", "b − 0.5·c")
    assert found.base.silent == (3,)
    np.testing.assert_allclose(found.base.values, [7.0, -3.5], atol=4e-3)
    assert np.isinf(found.std).all()
    np.testing.assert_allclose(found.base.combine(TRUTH), [7.0, -3.5])
    np.testing.assert_allclose(phi[:, 0] @ found.null, 0.0, atol=1e-12)
    # the base is an ordinary problem of two columns
    A = phi[:, 0, :2]
    sigma = np.linalg.norm(A @ np.linalg.lstsq(A, y[:, 0], rcond=None)[0] - y[:, 0]) / np.sqrt(298)
    np.testing.assert_allclose(found.base.std, sigma * np.sqrt(np.diag(np.linalg.inv(A.T @ A))), rtol=1e-3)
    picked = least_squares(phi, y, NAMES).base
    other = np.linalg.lstsq(phi[:, 0, list(picked.independent)], y[:, 0], rcond=None)[0]
    np.testing.assert_allclose(picked.values, other, rtol=1e-9)


def test_excitation_is_that_of_unit_columns():
    phi, y = rows()
    A, _ = flat(phi, y)
    np.testing.assert_allclose(
        least_squares(phi, y, NAMES).excitation,
        scipy.linalg.svdvals(A / np.linalg.norm(A, axis=0)),
        rtol=1e-10,
    )


def test_of_what_is_not_told_the_reference_stays():
    phi, y = rows(noise=(1e-9,))
    phi[..., 3] = 0.0
    y = phi @ TRUTH
    found = least_squares(phi, y, NAMES, reference=np.array([5.0, 5.0, 5.0, 7.0]))
    np.testing.assert_allclose(found.theta, [1.0, -2.0, 3.0, 7.0], rtol=1e-9)


def test_nothing_measured_tells_nothing():
    phi, y = rows(samples=10)
    found = least_squares(phi, np.full_like(y, np.nan), NAMES)
    assert found.rank == 0
    assert np.isinf(found.std).all()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"loss": "cauchy"}, "no loss named 'cauchy'"),
        ({"std": "guessed"}, "no choice of std named 'guessed'"),
        ({"std": (1.0, 0.0)}, "above zero"),
        ({"names": ("a", "b")}, "2 names were given for 4 columns"),
        ({"y": np.zeros(3)}, "do not fit"),
    ],
)
def test_mistakes_are_told_in_a_sentence(changes, told):
    phi, y = rows(samples=20)
    given = {"phi": phi, "y": y, "names": NAMES, **changes}
    with pytest.raises(MechidError, match=told):
        least_squares(given.pop("phi"), given.pop("y"), given.pop("names"), **given)
