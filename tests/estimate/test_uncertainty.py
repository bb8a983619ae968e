"""Standard deviations: against plain least squares and many repetitions, and when to say that they are wrong."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
from estimation_cases import freed, log_with

from mechid import Variational, simulate
from mechid.dynamics.sensors import joint_position
from mechid.estimate.experiment import Cost, Experiment, Measured, Start
from mechid.estimate.simulation_error import simulation_error
from mechid.estimate.solvers.steepest_descent import SteepestDescent
from mechid.studies import mechanisms

STD, STEPS = 0.01, 200
STEPPER = Variational(0.01)
ROD = mechanisms.pendulum(damping=0.1).spring("hinge", stiffness=2.0).frame("tip", "rod", origin=(0, 0, -0.5))
TRUTH = np.array([1.0, 0.1])
FREE = freed(ROD, "rod.mass", start=1.3).free("hinge.damping", start=0.2)
TORQUE = 2.0 * np.sin(7.0 * 0.01 * np.arange(STEPS))


@pytest.fixture(scope="module")
def motion():
    return simulate(ROD, STEPPER, STEPS, q=[1.0], inputs=TORQUE[:, None])


def recording(motion, noise, std=STD, **options):
    log = log_with("swing", q=(motion.t, motion.q[:, 0] + noise), tau=(motion.t[:-1], TORQUE))
    given = {"inputs": {ROD.input_names[0]: "tau"}, "start": Start(q={"hinge": 1.0})} | options
    return Experiment(log, [Measured(joint_position(ROD, "hinge"), "q", std=std)], **given)


def white(seed, size=STEPS + 1):
    return STD * np.random.default_rng(seed).normal(size=size)


def coloured(seed, memory=0.9):
    """Noise of the same std whose neighbours are correlated."""
    e, x = white(seed), np.zeros(STEPS + 1)
    x[0] = e[0]
    for k in range(1, STEPS + 1):
        x[k] = memory * x[k - 1] + np.sqrt(1 - memory**2) * e[k]
    return x


def fitted(motion, noise, std=STD, free=FREE, **options):
    return simulation_error(ROD, STEPPER, recording(motion, noise, std, **options), free)


def test_covariance_is_that_of_least_squares(motion):
    """(JᵀJ)⁻¹ with J by differences of simulations."""
    fit = fitted(motion, white(0))
    assert fit.notes == ()
    J = np.zeros((STEPS + 1, 2))
    for i in range(2):
        h = 1e-4 * np.eye(2)[i]
        ends = [
            simulate(
                ROD, STEPPER, STEPS, q=[1.0], inputs=TORQUE[:, None], model=FREE.bind(fit.theta + s * h)
            ).q
            for s in (1, -1)
        ]
        J[:, i] = (ends[0] - ends[1])[:, 0] / 2e-4 / STD
    want = np.linalg.inv(J.T @ J)
    assert fit.covariance == pytest.approx(want, rel=1e-5)
    # the triangle of sensitivities says the same
    R = fit.sensitivities
    information = R.T @ R
    assert information == pytest.approx(J.T @ J, rel=1e-5)


def test_free_first_states_are_projected_out(motion):
    """The block of the inverse of all, which is larger than the inverse of the block."""
    held = fitted(motion, white(0))
    fit = fitted(motion, white(0), start=Start(q={"hinge": 1.0}, q_std="free", v_std="free"))
    problem = fit.extra["problem"]
    y = np.concatenate([fit.theta, [p.value for p in fit.starts.values()]])
    _, J, _ = problem.rows(problem.evaluate(y))
    whole = np.linalg.inv(J.T @ J)
    assert fit.covariance == pytest.approx(whole[:2, :2], rel=1e-6)
    stds = [p.std for p in fit.starts.values()]
    assert stds == pytest.approx(np.sqrt(np.diag(whole)[2:]), rel=1e-6)
    assert np.all(np.diag(fit.covariance) > np.diag(held.covariance))
    R = fit.sensitivities
    assert np.linalg.inv(R.T @ R) == pytest.approx(whole[:2, :2], rel=1e-6)


def test_a_transformed_parameter_has_the_std_of_its_value(motion):
    plain = fitted(motion, white(0))
    free = freed(ROD, "rod.mass", start=1.3, transform="positive").free(
        "hinge.damping", start=0.2, transform="interval", bounds=(0.0, 1.0)
    )
    other = fitted(motion, white(0), free=free)
    for name, p in other.parameters.items():
        assert p.value == pytest.approx(plain.values[name], rel=1e-4)
        assert p.std == pytest.approx(plain.parameters[name].std, rel=1e-3)


def test_a_prior_adds_its_information(motion):
    """As one more measurement of the mass: 1/σ² adds to the diagonal of the information."""
    std = 0.5 * fitted(motion, white(0)).parameters["rod.mass"].std
    free = freed(ROD, "rod.mass", start=1.3, prior=(1.0, std)).free("hinge.damping", start=0.2)
    without, with_prior = fitted(motion, white(0)), fitted(motion, white(0), free=free)
    want = np.linalg.inv(without.covariance) + np.diag([1.0 / std**2, 0.0])
    assert np.linalg.inv(with_prior.covariance) == pytest.approx(want, rel=1e-2)
    assert abs(with_prior.values["rod.mass"] - 1.0) < abs(without.values["rod.mass"] - 1.0)


REPETITIONS = 40


def test_the_truth_lies_in_the_intervals(motion):
    """95 % intervals of 40 repetitions, and the sum of squares of all deviations."""
    z, inside = np.zeros((REPETITIONS, 2)), np.zeros(2)
    for seed in range(REPETITIONS):
        fit = fitted(motion, white(100 + seed))
        assert fit.converged
        for i, p in enumerate(fit.parameters.values()):
            z[seed, i] = (p.value - TRUTH[i]) / p.std
            inside[i] += p.interval[0] <= TRUTH[i] <= p.interval[1]
    assert np.all(inside >= scipy.stats.binom.ppf(1e-4, REPETITIONS, 0.95))
    low, high = scipy.stats.chi2.ppf([1e-4, 1 - 1e-4], REPETITIONS)
    assert np.all((np.sum(z**2, 0) > low) & (np.sum(z**2, 0) < high))


def test_noise_larger_than_stated(motion):
    """Said, and standard deviations are scaled up to what the residuals show."""
    honest, bold = fitted(motion, white(0)), fitted(motion, white(0), STD / 3)
    (note,) = bold.notes
    misfit = bold.extra["uncertainty"].misfit
    assert misfit == pytest.approx(3.0, rel=0.15)
    assert note == (
        f"The residuals are {misfit:.3g} times the stated noise: the model does not explain all of the data; "
        "standard deviations are scaled up by that factor."
    )
    for name, p in bold.parameters.items():
        assert p.std == pytest.approx(honest.parameters[name].std * misfit / 3, rel=1e-3)


def test_noise_smaller_than_stated_is_not_scaled_down(motion):
    honest, shy = fitted(motion, white(0)), fitted(motion, white(0), 3 * STD)
    assert shy.notes == ()
    for name, p in shy.parameters.items():
        assert p.std == pytest.approx(3 * honest.parameters[name].std, rel=1e-3)


def test_missing_samples_do_not_count_as_residuals(motion):
    """Half of the samples missing: the misfit stays 1, standard deviations grow by about √2."""
    noise = white(0)
    noise[1::2] = np.nan
    fit, whole = fitted(motion, noise), fitted(motion, white(0))
    assert fit.notes == ()
    assert fit.extra["uncertainty"].misfit == pytest.approx(1.0, abs=0.2)
    for name, p in fit.parameters.items():
        assert p.std == pytest.approx(np.sqrt(2) * whole.parameters[name].std, rel=0.1)


@pytest.mark.parametrize("seed", range(4))
def test_white_noise_raises_no_note(motion, seed):
    fit = fitted(motion, white(seed))
    assert fit.notes == ()
    assert fit.extra["uncertainty"].correlation < 0.4


def newey_west(J, r, lags):
    """The sandwich, lag by lag."""
    scores = J * r[:, None]
    S = scores.T @ scores
    for l in range(1, lags + 1):
        cross = scores[l:].T @ scores[:-l]
        S += (1.0 - l / (lags + 1)) * (cross + cross.T)
    C = np.linalg.inv(J.T @ J)
    return C @ S @ C


def test_correlated_residuals_are_said_and_counted(motion):
    fit = fitted(motion, coloured(3))
    found = fit.extra["uncertainty"]
    c = next(c for c in fit.channels)
    near = np.sum(c.residual[1:] * c.residual[:-1]) / np.sum(c.residual**2)
    assert found.correlation == pytest.approx(near, rel=1e-9)
    assert fit.notes[-1] == (
        f"Neighbouring residuals are correlated ({near:.2f}): they show the model's errors, not noise. "
        "Standard deviations take these correlations into account, but not what a better model would change."
    )
    problem = fit.extra["problem"]
    r, J, _ = problem.rows(problem.evaluate(fit.theta))
    want = newey_west(J, r, int(np.ceil(4.0 * np.sqrt(STEPS + 1))))
    usual = np.linalg.inv(J.T @ J) * max(found.misfit if len(fit.notes) == 2 else 1.0, 1.0) ** 2
    stds = np.sqrt(np.maximum(np.diag(want), np.diag(usual)))
    assert [p.std for p in fit.parameters.values()] == pytest.approx(stds, rel=1e-6)


def test_correlated_noise_widens_the_intervals(motion):
    """With white-noise formulas too many truths would lie outside; with these most lie inside."""
    z, plain = np.zeros((12, 2)), np.zeros((12, 2))
    for seed in range(12):
        fit = fitted(motion, coloured(500 + seed))
        problem = fit.extra["problem"]
        _, J, _ = problem.rows(problem.evaluate(fit.theta))
        white_stds = np.sqrt(np.diag(np.linalg.inv(J.T @ J)))
        for i, p in enumerate(fit.parameters.values()):
            z[seed, i], plain[seed, i] = ((p.value - TRUTH[i]) / s for s in (p.std, white_stds[i]))
    assert np.sqrt(np.mean(plain**2)) > 1.5
    assert np.sqrt(np.mean(z**2)) < 0.7 * np.sqrt(np.mean(plain**2))


def test_what_the_data_do_not_tell_has_no_std(motion):
    """The frame's place does not move the hinge: ∞, and nothing else suffers."""
    free = freed(ROD, "rod.mass", start=1.3).free("hinge.damping", start=0.2).free("tip.origin.z")
    fit, two = fitted(motion, white(0), free=free), fitted(motion, white(0))
    assert fit.parameters["tip.origin.z"].std == np.inf
    assert fit.values["tip.origin.z"] == -0.5
    for name, p in two.parameters.items():
        assert fit.parameters[name].std == pytest.approx(p.std, rel=1e-6)
        assert fit.values[name] == pytest.approx(p.value, rel=1e-6)
    assert np.all(fit.covariance[2, :2] == 0.0)


def test_a_cost_of_ones_own_has_no_std(motion):
    experiment = replace(
        recording(motion, white(0)), cost=Cost(lambda seen, measured, p: abs(seen.q[0] - measured[0]))
    )
    fit = simulation_error(ROD, STEPPER, experiment, FREE, SteepestDescent(max_iterations=1))
    assert all(p.std == np.inf for p in fit.parameters.values())
    assert fit.notes == ("A cost of your own has no standard deviations: they belong to weighted squares.",)
