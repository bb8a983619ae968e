"""Noise that is correlated between channels: against dense generalised least squares, in every estimator."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from estimation_cases import differences, freed, log_with, problem_of

from mechid import MechidError, Variational, frame_position, full_discretization, joint, simulate
from mechid.dynamics.sensors import joint_position
from mechid.estimate.experiment import Experiment, Measured, Start
from mechid.estimate.prepare import prepared
from mechid.estimate.simulation_error import simulation_error
from mechid.estimate.solvers.lbfgsb import LBFGSB
from mechid.estimate.solvers.levenberg_marquardt import LevenbergMarquardt
from mechid.estimate.whitening import Mixed, log_volume, unmixed, weighting
from mechid.studies import mechanisms

pytestmark = pytest.mark.xdist_group("whitening")

STEPS, H = 100, 0.01
STEPPER = Variational(H)
TIGHT = LevenbergMarquardt(cost_tolerance=1e-14)
ROD = mechanisms.pendulum(damping=0.1).spring("hinge", stiffness=2.0).frame("tip", "rod", origin=(0, 0, -0.5))
TIP = frame_position(ROD, "tip")
FREE = freed(ROD, "hinge.stiffness", start=2.5).free("hinge.damping", start=0.2)
XYZ = ("x", "y", "z")
C = 1e-4 * np.array([[1.0, 0.9, -0.3], [0.9, 1.5, 0.1], [-0.3, 0.1, 0.7]])


@cache
def motion():
    run = simulate(ROD, STEPPER, STEPS, q=[1.0])
    angle = run.q[:, 0]
    tip = np.stack([-0.5 * np.sin(angle), 0.0 * angle, -0.5 * np.cos(angle)], 1)
    seen = tip + np.random.default_rng(0).multivariate_normal(np.zeros(3), C, len(tip))
    seen[[3, 17], 0] = seen[17, 2] = np.nan
    seen[40] = np.nan
    seen[50:60, 1] = np.nan
    return run.t, angle, seen


def swing(start=None, weight=0.0, more=(), **noise):
    t, angle, seen = motion()
    noisy = angle + 0.02 * np.random.default_rng(1).normal(size=len(t))
    log = log_with("swing", q=(t, noisy), **{n: (t, seen[:, i]) for i, n in enumerate(XYZ)})
    start = Start(q=[1.0], q_std="free") if start is None else start
    return Experiment(log, [Measured(TIP, XYZ, **noise), *more], start=start, terminal_weight=weight)


def numbers(fit):
    found = [*fit.parameters.values(), *fit.starts.values()]
    return np.array([p.value for p in found]), np.array([p.std for p in found])


def dense(y, weight=0.0):
    """½ Σ eᵀ C⁻¹ e over what is there, its gradient, and (Σ Jᵀ C⁻¹ J)⁻¹; e and J in metres."""
    problem = problem_of(STEPPER, swing(std=1.0), FREE)
    e, J, _ = problem.rows(problem.evaluate(y))
    e, J = e.reshape(-1, 3), J.reshape(-1, 3, 3)
    there = np.isfinite(motion()[2])
    times = np.ones(len(e))
    times[-1] += weight
    cost, g, information = 0.0, np.zeros(3), np.zeros((3, 3))
    for i, n in zip(range(len(e)), times, strict=True):
        p = there[i]
        if p.any():
            P = n * np.linalg.inv(C[np.ix_(p, p)])
            cost += 0.5 * e[i, p] @ P @ e[i, p]
            g += J[i, p].T @ P @ e[i, p]
            information += J[i, p].T @ P @ J[i, p]
    return cost, g, np.linalg.inv(information)


ESTIMATORS = {
    "simulation error": lambda e: simulation_error(ROD, STEPPER, e, FREE, TIGHT),
    "segments": lambda e: simulation_error(ROD, STEPPER, e, FREE, TIGHT, segments=2),
    "full discretisation": lambda e: full_discretization(ROD, STEPPER, e, FREE, TIGHT),
    "joint": lambda e: joint(ROD, STEPPER, e, FREE, TIGHT, state_error_weight=1e14),
}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_generalised_least_squares(name):
    fit = ESTIMATORS[name](swing(covariance=C))
    assert fit.converged, fit.outcome
    values, stds = numbers(fit)
    cost, g, covariance = dense(values)
    # the step that is still to go, in standard deviations
    assert np.abs(covariance @ g / np.sqrt(np.diag(covariance))).max() < 0.02
    np.testing.assert_allclose(stds, np.sqrt(np.diag(covariance)), rtol=1e-3)
    np.testing.assert_allclose(fit.covariance, covariance[:2, :2], rtol=2e-3)
    assert fit.cost[1] == pytest.approx(cost, rel=1e-3)
    # y is missing for ten samples in a row
    (note,) = fit.notes
    assert note.startswith("Channel 'y' of experiment 'swing' has no samples from 0.49 to 0.6 s.")


@pytest.mark.slow
def test_correlations_matter():
    """y shows nothing of the motion, but much of the noise of x."""
    with_them, without = (
        simulation_error(ROD, STEPPER, swing(**noise), FREE)
        for noise in ({"covariance": C}, {"std": np.sqrt(np.diag(C))})
    )
    assert np.all(numbers(with_them)[1] < 0.92 * numbers(without)[1])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["simulation error", "full discretisation"])
def test_a_diagonal_covariance_is_a_std(name):
    std = np.array([0.01, 0.02, 0.005])
    want = ESTIMATORS[name](swing(std=std))
    same = ESTIMATORS[name](swing(covariance=np.diag(std**2)))
    # no longer diagonal, but by nothing
    nearly = np.diag(std**2)
    nearly[0, 1] = nearly[1, 0] = 1e-22
    mixed = ESTIMATORS[name](swing(covariance=nearly))
    for fit in (same, mixed):
        for a, b in zip(numbers(fit), numbers(want), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12 if fit is same else 1e-9)
        np.testing.assert_allclose(fit.covariance, want.covariance, rtol=1e-12 if fit is same else 1e-8)
        assert fit.cost == pytest.approx(want.cost, rel=1e-12)
    assert isinstance(mixed.extra["problem"].shootings[0].weights((std,))[0], Mixed)
    assert isinstance(same.extra["problem"].shootings[0].weights((std,))[0], np.ndarray)


@pytest.mark.slow
def test_residuals_stay_in_the_unit_of_their_channels():
    fit = simulation_error(ROD, STEPPER, swing(covariance=C, weight=2.0), FREE, segments=2)
    q = fit.starts["swing: q(hinge)"].value
    angle = simulate(fit.mechanism, STEPPER, STEPS, q=[q]).q[:, 0]
    tip = np.stack([-0.5 * np.sin(angle), 0.0 * angle, -0.5 * np.cos(angle)], 1)
    for i, c in enumerate(fit.channels):
        np.testing.assert_allclose(c.residual, tip[:, i] - motion()[2][:, i], atol=1e-9)
        assert c.std == pytest.approx(np.sqrt(C[i, i]))
        assert c.rms == pytest.approx(np.sqrt(C[i, i]), rel=0.3)
        assert not c.estimated
    assert fit.extra["uncertainty"].misfit == pytest.approx(1.0, abs=0.15)


@pytest.mark.slow
def test_gradients():
    """The cost of dense squares, by the adjoint too; the last sample counts three times."""
    y = np.array([2.3, 0.15, 0.95])
    cost, g, _ = dense(y, weight=2.0)
    for gradients in ("forward", "adjoint"):
        problem = problem_of(STEPPER, swing(covariance=C, weight=2.0), FREE, gradients=gradients)
        point = problem.evaluate(y)
        assert point.cost == pytest.approx(cost, rel=1e-12)
        np.testing.assert_allclose(problem.gradient(point), g, rtol=1e-9)
    want = differences(lambda y: problem.evaluate(y).cost, y, np.full(3, 1e-2))
    np.testing.assert_allclose(g, want, rtol=1e-6)


@pytest.mark.slow
def test_a_solver_that_follows_gradients():
    want = simulation_error(ROD, STEPPER, swing(covariance=C), FREE, TIGHT)
    solver = LBFGSB(cost_tolerance=1e-15)
    fit = simulation_error(ROD, STEPPER, swing(covariance=C), FREE, solver, gradients="adjoint")
    values, stds = numbers(want)
    np.testing.assert_array_less(np.abs(numbers(fit)[0] - values), 0.02 * stds)


@pytest.mark.slow
@pytest.mark.parametrize("estimate", [simulation_error, full_discretization])
def test_noise_of_another_sensor_is_estimated(estimate):
    """Both are read at the same times; what is given stays given."""
    angle = Measured(joint_position(ROD, "hinge"), "q")
    fit = estimate(ROD, STEPPER, swing(covariance=C, more=[angle]), FREE)
    assert [c.estimated for c in fit.channels] == [False, False, False, True]
    last = fit.channels[-1]
    assert last.std == pytest.approx(last.rms, rel=0.02)
    assert last.std == pytest.approx(0.02, rel=0.2)
    np.testing.assert_allclose([c.std for c in fit.channels[:3]], np.sqrt(np.diag(C)))


def group_of(**noise):
    (group,) = prepared(STEPPER, swing(**noise, weight=2.0), FREE).groups
    return group


def test_weighted_noise_is_white():
    """W C Wᵀ = 1 over what is there, and weights can be taken back."""
    group = group_of(covariance=C)
    W = weighting(group, group.std)[np.arange(group.times)]
    W[-1] /= np.sqrt(3.0)
    for own, p in zip(W, group.present, strict=True):
        np.testing.assert_allclose(own @ C @ own.T, np.diag(p), atol=1e-12)
    e = np.random.default_rng(0).normal(size=group.present.shape) * group.present
    r = np.einsum("tij,tj->ti", W, e)
    np.testing.assert_allclose(unmixed(group, r) * group.std, e, atol=1e-14)


def test_the_volume_of_noise():
    """log |C| over all samples, in two parts: those of the stds and of the correlations."""
    group = group_of(covariance=C)
    parts = [C[np.ix_(p, p)] for p in group.present > 0]
    want = 0.5 * sum(np.linalg.slogdet(part)[1] for part in parts)
    assert np.sum(group.present.sum(0) * np.log(group.std)) + log_volume(group) == pytest.approx(want)
    assert log_volume(group_of(std=0.1)) == 0.0


LOPSIDED = C + 1e-6 * np.eye(3, k=1)


@pytest.mark.parametrize(
    ("noise", "sentence"),
    [
        (
            {"std": 0.1, "covariance": C},
            "The noise of x, y, z is given twice, as std and as covariance: give one of them.",
        ),
        ({"covariance": C[:2, :2]}, "The covariance of x, y, z must have shape (3, 3), not shape (2, 2)."),
        ({"covariance": 0.1}, "The covariance of x, y, z must have shape (3, 3), not one number."),
        ({"covariance": "wide"}, "The covariance of x, y, z must be numbers, not 'wide'."),
        ({"covariance": LOPSIDED}, "The covariance of x, y, z is not symmetric."),
        ({"covariance": C - 2e-4 * np.eye(3)}, "The covariance of x, y, z is not positive definite."),
        ({"covariance": np.ones((3, 3))}, "The covariance of x, y, z is not positive definite."),
        ({"covariance": np.diag([1.0, 0.0, 1.0])}, "The covariance of x, y, z is not positive definite."),
        (
            {"covariance": np.diag([1.0, np.inf, 1.0])},
            "The covariance of x, y, z must be finite, not [[1.0, 0.0, 0.0], [0.0, inf, 0.0], [0.0, 0.0, 1.0]].",
        ),
    ],
)
def test_what_is_refused(noise, sentence):
    with pytest.raises(MechidError) as error:
        Measured(TIP, XYZ, **noise)
    assert str(error.value) == sentence
