"""Separable estimation beside a search of all numbers together, differences and dense algebra."""

import numpy as np
import pytest
import scipy.optimize

from mechid.errors import MechidError
from mechid.estimate.joint_form import FrictionForm
from mechid.estimate.reduced import Reduced, outlying
from mechid.estimate.separable import separable

THETA, OMEGA = np.array([76.0, 40.0, 25.0, 590.0]), np.array([0.0616, 0.1312])
BOUNDS = {"omega_1": (0.005, 1.0), "omega_S": (0.01, 2.0)}
FORM = FrictionForm()


def samples_of(count: int = 600, noise: float = 0.2, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    t = np.linspace(0.0, 6.0, count)
    samples = np.column_stack([np.sin(t), 0.5 * np.cos(1.7 * t) ** 3, np.zeros(count)])
    samples[:, 2] = FORM.rows(samples, OMEGA)[0][:, 0] @ THETA + noise * rng.normal(size=count)
    return samples


def residuals(samples: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    phi, y = FORM.rows(samples, numbers[4:])
    return phi[:, 0] @ numbers[:4] - y[:, 0]


WIDE = dict.fromkeys(BOUNDS, (1e-3, np.inf))


@pytest.mark.parametrize(("criterion", "bounds"), [("squares", BOUNDS), ("norm", BOUNDS), ("squares", WIDE)])
def test_it_finds_the_optimum_of_all_numbers(criterion: str, bounds: dict[str, tuple[float, float]]) -> None:
    samples = samples_of()
    fit = separable(FORM, samples, bounds, criterion=criterion)
    both = scipy.optimize.least_squares(
        lambda x: residuals(samples, x), np.append(THETA, OMEGA), x_scale=np.append(THETA, OMEGA), xtol=1e-14
    )
    assert fit.converged
    assert np.append(fit.theta, fit.omega) == pytest.approx(both.x, rel=1e-4)
    square = 2.0 * both.cost / fit.noise[0] ** 2
    assert fit.criterion == pytest.approx(0.5 * square if criterion == "squares" else square**0.5, rel=1e-6)


def test_std_of_all_numbers_together() -> None:
    samples = samples_of()
    fit = separable(FORM, samples, BOUNDS, noise=[0.2])
    numbers = np.append(fit.theta, fit.omega)
    J = np.array(
        [
            (residuals(samples, numbers + h) - residuals(samples, numbers - h)) / (2.0 * h.max())
            for h in np.diag(1e-6 * numbers)
        ]
    ).T
    left = residuals(samples, numbers)
    dense = np.linalg.inv(J.T @ J) * (left @ left) / (len(left) - 6)
    assert fit.covariance == pytest.approx(dense, rel=1e-3)
    assert np.all(np.abs(numbers - np.append(THETA, OMEGA)) < 4.0 * np.sqrt(np.diag(dense)))
    assert fit.parameters["omega_1"].std == pytest.approx(np.sqrt(dense[4, 4]), rel=1e-3)


def test_gradient_beside_differences() -> None:
    reduced = Reduced.of(FORM, samples_of(), np.array([0.2]), OMEGA)
    at = np.array([0.1, 0.2])
    differences = [
        (reduced.square(at + h) - reduced.square(at - h)) / (4.0 * h.max()) for h in np.diag([1e-6, 1e-6])
    ]
    assert reduced.gradient(at) == pytest.approx(differences, rel=1e-6)


class WithoutSlopes:
    """The same form, whose slopes are found by differences."""

    names, units, nonlinear, outputs, channels = (
        *(FORM.names, FORM.units, FORM.nonlinear, FORM.outputs, FORM.channels),
    )

    def rows(self, samples: np.ndarray, omega: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return FORM.rows(samples, omega)


def test_local_search_and_a_form_without_slopes() -> None:
    samples = samples_of()
    wide = separable(FORM, samples, BOUNDS)
    near = separable(WithoutSlopes(), samples, BOUNDS, solver="local", start=[0.05, 0.15])
    assert near.omega == pytest.approx(wide.omega, rel=1e-5)


def test_missing_samples_are_passed_over() -> None:
    samples = samples_of()
    holes = samples.copy()
    holes[::5, 2] = np.nan
    holes[2::50, 1] = np.nan
    there = np.isfinite(holes).all(axis=1)
    fit, whole = separable(FORM, holes, BOUNDS), separable(FORM, samples[there], BOUNDS)
    assert fit.omega == pytest.approx(whole.omega, rel=1e-6)
    assert fit.theta == pytest.approx(whole.theta, rel=1e-6)


def test_what_the_data_do_not_tell() -> None:
    """At two speeds ±v friction is one number."""
    samples = samples_of()
    samples[:, 1] = np.where(np.arange(600) % 200 < 100, 0.3, -0.3)
    samples[:, 2] = FORM.rows(samples, OMEGA)[0][:, 0] @ THETA
    fit = separable(FORM, samples, BOUNDS, noise=[0.2])
    assert np.isinf(fit.parameters["C1"].std)
    assert np.isfinite(fit.parameters["b_inD"].std)
    assert fit.linear.rank == 2
    assert fit.flags["C2"] == ("not told by these data",)
    assert "The data do not tell" in fit.summary()


def test_a_number_at_its_bound_is_told() -> None:
    fit = separable(FORM, samples_of(), {"omega_1": (0.064, 0.1), "omega_S": (0.1, 0.2)})
    assert fit.parameters["omega_1"].value == 0.064
    assert "at its bound" in fit.flags["omega_1"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"solver": "brute"}, "There is no solver named 'brute'. Valid: mcs, local."),
        ({"criterion": "max"}, "There is no criterion named 'max'. Valid: squares, norm."),
        ({"bounds": {"omega_1": (0.1, 1.0)}}, "Bounds are needed of omega_S."),
        (
            {"bounds": {**BOUNDS, "omega_2": (0.1, 1.0)}},
            "There is no nonlinear number named 'omega_2'. Did you mean omega_S or omega_1? "
            "Valid: omega_1, omega_S.",
        ),
        (
            {"bounds": {**BOUNDS, "omega_S": (2.0, 1.0)}},
            "The bounds of omega_S must be two numbers, the lower first, not (2.0, 1.0).",
        ),
        (
            {"start": [5.0, 0.1]},
            "The start of the nonlinear numbers is [5.0, 0.1]; it must lie in their bounds.",
        ),
        (
            {"samples": np.zeros((5, 2))},
            "Samples must be a table with 3 columns (theta_in, theta_in_rate, T_d_in), not of shape (5, 2).",
        ),
    ],
)
def test_mistakes(change: dict, told: str) -> None:
    given = {"form": FORM, "samples": samples_of(), "bounds": BOUNDS, **change}
    with pytest.raises(MechidError) as error:
        separable(**given)
    assert str(error.value) == told


def test_beyond_must_be_positive() -> None:
    with pytest.raises(MechidError) as error:
        separable(FORM, samples_of(), BOUNDS, beyond=0.0)
    assert str(error.value) == "beyond must be a number of standard deviations above zero, not 0.0."


def test_how_theta_follows_omega_is_that_of_differences() -> None:
    samples = samples_of(noise=1e-6)
    reduced = Reduced.of(FORM, samples, np.array([0.2]), OMEGA)
    found = reduced.sensitivity(OMEGA)
    for i in range(2):
        step = np.zeros(2)
        step[i] = 1e-5 * OMEGA[i]
        ahead, behind = (
            np.linalg.lstsq(FORM.rows(samples, omega)[0][:, 0], samples[:, 2], rcond=None)[0]
            for omega in (OMEGA + step, OMEGA - step)
        )
        assert found[:, i] == pytest.approx((ahead - behind) / (2.0 * step[i]), rel=1e-4)


@pytest.mark.parametrize("size", [5.0, 1e5])
def test_single_outliers_are_left_out(size: float) -> None:
    """The fit is that of the samples without them."""
    samples = samples_of()
    spoilt, gone = samples.copy(), [40, 171, 300, 301, 555]
    spoilt[gone, 2] += size * np.array([1.0, -1.0, 1.0, 1.0, -1.0])
    fit = separable(FORM, spoilt, BOUNDS, beyond=6.0)
    assert fit.outliers == 5
    assert fit.notes[-1] == "Measurements left out as outliers: 5."
    without = separable(FORM, np.delete(samples, gone, axis=0), BOUNDS)
    assert np.append(fit.theta, fit.omega) == pytest.approx(np.append(without.theta, without.omega), rel=1e-4)
    assert fit.noise == pytest.approx(without.noise, rel=1e-6)
    assert separable(FORM, spoilt, BOUNDS).noise[0] > 1.5 * without.noise[0]


def test_a_spike_in_what_multiplies_theta_is_left_out() -> None:
    """Least squares would follow it, with no residual there: the fit is that of the samples without it."""
    samples = samples_of()
    spoilt = samples.copy()
    spoilt[333, 1] = 1e3
    fit = separable(FORM, spoilt, BOUNDS, beyond=6.0)
    assert fit.outliers == 1
    without = separable(FORM, np.delete(samples, 333, axis=0), BOUNDS)
    assert np.append(fit.theta, fit.omega) == pytest.approx(np.append(without.theta, without.omega), rel=1e-4)


def test_what_the_form_does_not_say_is_no_outlier() -> None:
    """Stretches, slopes and more than a few per cent stay; missing rows are passed over."""
    rng = np.random.default_rng(0)
    left = rng.normal(size=(1000, 2))
    left[100, 0] = np.nan
    left[[99, 101, 500], 0] = 50.0
    left[200:210, 1] = 50.0
    left[300:303, 1] = 20.0, 30.0, 20.0
    found = outlying(left, 6.0)
    assert np.flatnonzero(found[:, 0]).tolist() == [99, 101, 500]
    assert not found[:, 1].any()
    left[::10, 1] = 50.0
    assert not outlying(left, 6.0)[:, 1].any()
