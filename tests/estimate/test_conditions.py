"""Conditions on first states: against unknowns eliminated by hand, in every estimator, and every refusal."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from estimation_cases import freed, log_with, problem_of

from mechid import (
    Condition,
    MechidError,
    Variational,
    cross_validate,
    full_discretization,
    joint,
    simulate,
)
from mechid.dynamics.linearization import tangent_of
from mechid.dynamics.sensors import joint_position
from mechid.estimate.conditions import condition_slopes, condition_values
from mechid.estimate.experiment import Experiment, Measured, Start
from mechid.estimate.prepare import prepared
from mechid.estimate.simulation_error import simulation_error
from mechid.estimate.solvers.lbfgsb import LBFGSB
from mechid.estimate.solvers.levenberg_marquardt import LevenbergMarquardt
from mechid.studies import mechanisms

pytestmark = pytest.mark.xdist_group("conditions")

STD, STEPS, H = 0.01, 120, 0.01
STEPPER = Variational(H)
TIGHT = LevenbergMarquardt(cost_tolerance=1e-13)
STIFFNESS, REST, WEIGHT = 2.0, 1.5, 9.81 * 0.25
ROD = mechanisms.pendulum(damping=0.1).spring("hinge", stiffness=STIFFNESS, rest=REST)
(TAU,) = ROD.input_names
FREE = freed(ROD, "hinge.stiffness", start=1.6).free("hinge.damping", start=0.2)


def still(q, v, model):
    """No force is left where nothing moves: k (q − rest) + m g l/2 sin q = 0."""
    none = jnp.zeros_like(v)
    return model.force_balance(q, none, none, jnp.zeros(model.nu), 0.0)


def stiffness_at(angle):
    return WEIGHT * np.sin(angle) / (REST - angle)


EQUILIBRIUM = scipy.optimize.brentq(lambda a: stiffness_at(a) - STIFFNESS, 0.1, 1.4)


def hanging(*conditions, seed=0, noise=STD, angle=0.8, name="hang"):
    """The rod begins at rest where its spring holds it, then is pushed."""
    torque = 1.5 * np.sin(7.0 * H * np.arange(STEPS))
    run = simulate(ROD, STEPPER, STEPS, q=[EQUILIBRIUM], inputs=torque[:, None])
    q = run.q[:, 0] + noise * np.random.default_rng(seed).normal(size=len(run.t))
    log = log_with(name, q=(run.t, q), tau=(run.t[:-1], torque))
    start = Start(q=[angle], q_std="free", conditions=conditions)
    return Experiment(log, [Measured(joint_position(ROD, "hinge"), "q", STD)], {TAU: "tau"}, start)


HELD = Condition("hangs still", still)


def by_hand(experiment):
    """Stiffness eliminated: unknowns are damping and the first angle; and their covariance, stiffness included."""
    problem = problem_of(STEPPER, experiment, FREE)

    def y(z):
        return np.array([stiffness_at(z[1]), *z])

    def slope(z):
        h = 1e-6
        rate = (stiffness_at(z[1] + h) - stiffness_at(z[1] - h)) / (2 * h)
        return np.array([[0.0, rate], [1.0, 0.0], [0.0, 1.0]])

    def r(z):
        return problem.rows(problem.evaluate(y(z)))[0]

    def J(z):
        return problem.rows(problem.evaluate(y(z)))[1] @ slope(z)

    best = scipy.optimize.least_squares(r, [0.2, 0.8], J, xtol=1e-14, ftol=1e-14, gtol=1e-14).x
    E = slope(best)
    return y(best), E @ np.linalg.inv(J(best).T @ J(best)) @ E.T


@pytest.fixture(scope="module")
def eliminated():
    return by_hand(hanging())


@pytest.fixture(scope="module")
def simulated():
    return simulation_error(ROD, STEPPER, hanging(HELD), FREE, TIGHT)


def numbers(fit):
    """Values and stds of stiffness, damping and the first angle."""
    found = [*fit.parameters.values(), *fit.starts.values()]
    return np.array([p.value for p in found]), np.array([p.std for p in found])


def same(fit, eliminated, part=1e-3):
    assert fit.converged, fit.outcome
    y, C = eliminated
    values, stds = numbers(fit)
    np.testing.assert_array_less(np.abs(values - y), part * np.sqrt(np.diag(C)))
    misfit = fit.extra["uncertainty"].misfit
    assert misfit < 1.2
    np.testing.assert_allclose(stds, np.sqrt(np.diag(C)), rtol=1e-3)
    np.testing.assert_allclose(fit.covariance, C[:2, :2], rtol=2e-3)
    assert abs(values[0] - stiffness_at(values[2])) < 1e-7


def test_an_equilibrium_that_a_parameter_takes_part_in(simulated, eliminated):
    same(simulated, eliminated)


def test_a_condition_is_worth_something(simulated):
    """Without it the first angle is known less well, and stiffness a little; with it the truth is met."""
    loose = simulation_error(ROD, STEPPER, hanging(), FREE, TIGHT)
    values, stds = numbers(simulated)
    assert stds[0] < 0.99 * numbers(loose)[1][0]
    assert stds[2] < 0.5 * numbers(loose)[1][2]
    np.testing.assert_array_less(np.abs(values - [STIFFNESS, 0.1, EQUILIBRIUM]), 3 * stds)


@pytest.mark.slow
@pytest.mark.parametrize("segments", [2, 3])
def test_in_segments(eliminated, segments):
    same(simulation_error(ROD, STEPPER, hanging(HELD), FREE, TIGHT, segments=segments), eliminated)


@pytest.mark.slow
def test_with_exact_dynamics(eliminated):
    same(full_discretization(ROD, STEPPER, hanging(HELD), FREE, TIGHT), eliminated)


def test_with_state_errors(eliminated):
    """So small a room for them that they change nothing."""
    same(joint(ROD, STEPPER, hanging(HELD), FREE, TIGHT, state_error_weight=1e14), eliminated, part=0.05)


@pytest.mark.slow
def test_with_a_weight_that_is_chosen(eliminated):
    fit = joint(ROD, STEPPER, hanging(HELD), FREE)
    values, stds = numbers(fit)
    assert abs(values[0] - stiffness_at(values[2])) < 1e-7
    np.testing.assert_array_less(np.abs(values - eliminated[0]), stds)


@pytest.mark.slow
def test_far_from_the_start():
    """The start fulfils the condition, at another stiffness than the data tell."""
    free = freed(ROD, "hinge.stiffness", start=float(stiffness_at(1.2))).free("hinge.damping", start=0.2)
    fit = simulation_error(ROD, STEPPER, hanging(HELD, angle=1.2), free, TIGHT)
    assert fit.converged
    assert fit.iterations < 20
    same(fit, by_hand(hanging()))


@pytest.mark.slow
def test_a_small_std_comes_close_to_an_exact_condition(eliminated):
    fit = simulation_error(ROD, STEPPER, hanging(Condition("hangs still", still, 1e-4)), FREE, TIGHT)
    y, C = eliminated
    values, stds = numbers(fit)
    np.testing.assert_array_less(np.abs(values - y), 0.01 * np.sqrt(np.diag(C)))
    np.testing.assert_allclose(stds, np.sqrt(np.diag(C)), rtol=1e-2)


SOFT = Condition("hangs nearly still", still, 0.05)


@pytest.mark.slow
@pytest.mark.parametrize("estimate", [simulation_error, full_discretization])
def test_a_soft_condition_is_a_row_of_least_squares(estimate):
    """Dense: the rows of the samples, and one of the condition by finite differences."""
    fit = estimate(ROD, STEPPER, hanging(SOFT), FREE, TIGHT)
    values, stds = numbers(fit)
    problem = problem_of(STEPPER, hanging(), FREE)

    def row(y):
        k, _, angle = y
        return (k * (angle - REST) + WEIGHT * np.sin(angle)) / 0.05

    def slope(y):
        return np.array([(row(y + h) - row(y - h)) / 2e-6 for h in 1e-6 * np.eye(3)])

    def r(y):
        return np.append(problem.rows(problem.evaluate(y))[0], row(y))

    def J(y):
        return np.vstack([problem.rows(problem.evaluate(y))[1], slope(y)])

    want = scipy.optimize.least_squares(r, [1.6, 0.2, 0.8], J, xtol=1e-14, ftol=1e-14, gtol=1e-14).x
    C = np.linalg.inv(J(want).T @ J(want))
    np.testing.assert_array_less(np.abs(values - want), 1e-3 * np.sqrt(np.diag(C)))
    np.testing.assert_allclose(stds, np.sqrt(np.diag(C)), rtol=1e-3)
    assert fit.cost[1] == pytest.approx(0.5 * float(r(want) @ r(want)), rel=1e-6)


@pytest.mark.slow
def test_gradients_with_a_soft_condition():
    """Forward and adjoint, of the whole cost."""
    y = np.array([1.7, 0.15, 0.75])
    both = [problem_of(STEPPER, hanging(SOFT), FREE, gradients=g) for g in ("forward", "adjoint")]
    forward, adjoint = (p.gradient(p.evaluate(y)) for p in both)
    np.testing.assert_allclose(adjoint, forward, rtol=1e-8)
    h = 1e-5
    ends = [[both[0].evaluate(y + s * h * e).cost for s in (1, -1)] for e in np.eye(3)]
    np.testing.assert_allclose(forward, [(a - b) / (2 * h) for a, b in ends], rtol=1e-5)


@pytest.mark.slow
def test_of_two_experiments_one_has_a_condition():
    both = [hanging(name="loose"), hanging(HELD, seed=1, name="held")]
    fit = simulation_error(ROD, STEPPER, both, FREE, TIGHT)
    stiffness = fit.values["hinge.stiffness"]
    assert abs(stiffness - stiffness_at(fit.starts["held: q(hinge)"].value)) < 1e-7
    assert abs(stiffness - stiffness_at(fit.starts["loose: q(hinge)"].value)) > 1e-4
    assert fit.starts["held: q(hinge)"].std < 0.5 * fit.starts["loose: q(hinge)"].std


@pytest.mark.slow
def test_other_logs_are_begun_as_their_conditions_say(simulated):
    """All parameters known, the condition alone tells where the other log begins."""
    found = cross_validate(simulated, hanging(HELD, seed=3, name="other"))
    assert found.score == pytest.approx(1.0, abs=0.2)
    run = found.channels[0]
    assert run.predicted[0] == pytest.approx(numbers(simulated)[0][2], abs=1e-6)


# Two rates


CART = mechanisms.cart_pendulum(damping=0.1)
RATES = Condition("cart and pole turn alike", lambda q, v, model: v[0] - v[1])


def rolling(*conditions):
    run = simulate(CART, STEPPER, STEPS, q=[0.1, 1.0], v=[0.7, 0.7])
    rng = np.random.default_rng(1)
    seen = run.q + 0.002 * rng.normal(size=run.q.shape)
    log = log_with("roll", x=(run.t, seen[:, 0]), a=(run.t, seen[:, 1]))
    measured = [Measured(joint_position(CART, "slide", "hinge"), ("x", "a"), 0.002)]
    start = Start(q=[0.1, 1.0], v=[0.3, 1.0], v_std="free", conditions=list(conditions))
    return Experiment(log, measured, start=start)


@pytest.mark.slow
@pytest.mark.parametrize("estimate", [simulation_error, full_discretization])
def test_two_rates_are_equal(estimate):
    """As if there were one rate: y = (damping, rate, rate)."""
    free = freed(CART, "hinge.damping", start=0.2)
    fit = estimate(CART, STEPPER, rolling(RATES), free, TIGHT)
    values, stds = numbers(fit)
    assert fit.converged
    assert abs(values[1] - values[2]) < 1e-10
    problem = problem_of(STEPPER, rolling(), free)
    E = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])

    def rows(z):
        return problem.rows(problem.evaluate(E @ z))

    want = scipy.optimize.least_squares(
        lambda z: rows(z)[0], [0.2, 0.5], lambda z: rows(z)[1] @ E, xtol=1e-14, ftol=1e-14, gtol=1e-14
    ).x
    J = rows(want)[1] @ E
    C = E @ np.linalg.inv(J.T @ J) @ E.T
    np.testing.assert_array_less(np.abs(values - E @ want), 1e-3 * np.sqrt(np.diag(C)))
    np.testing.assert_allclose(stds, np.sqrt(np.diag(C)), rtol=1e-3)


# Slopes where loops are closed


@pytest.mark.slow
def test_slopes_through_a_closed_loop():
    """Lengths move dependent coordinates, and these the condition: finite differences of rows made anew."""
    bar = mechanisms.four_bar(damping=0.05).spring("b", stiffness=3.0, rest=0.2)
    free = freed(bar, "b.stiffness", "coupler.mass", "b.origin.x")

    def rows(q, v, model):
        none = jnp.zeros_like(v)
        force = model.force_balance(q, none, none, jnp.zeros(model.nu), 0.0)
        return jnp.stack([force[1] + q[2] ** 2, v[1] * q[1] + v[2]])

    both = (Condition("both", rows, [0.5, 2.0]),)
    guess = mechanisms.FOUR_BAR_GUESS
    start = Start(guess, {"a": 1.0}, {"a": 0.1, "b": "free", "c": "free"}, "free", both)
    t = H * np.arange(9)
    log = log_with("bar", a=(t, 0.3 + 0 * t))
    s = prepared(STEPPER, Experiment(log, [Measured(joint_position(bar, "a"), "a", 1.0)], start=start), free)
    y = np.concatenate([free.theta0, s.first.unknowns])

    def made(y):
        model = free.bind(y[:3])
        return condition_values(both, model, *s.first.at(model, y[3:]))

    model, tangent = free.bind(free.theta0), tangent_of(free, free.theta0)
    q, v = s.first.at(model, s.first.unknowns)
    x = STEPPER.initial(model, q, v, np.zeros(model.nu), 0.0)
    start = s.first.slopes(STEPPER, model, tangent, x, q, v, 0.0)
    got = condition_slopes(both, model, tangent, q, v, start)
    assert got.shape == (2, 5)
    h = 1e-5
    want = np.stack([(made(y + h * e) - made(y - h * e)) / (2 * h) for e in np.eye(5)], 1)
    assert np.abs(want).max(0).min() > 1e-2
    np.testing.assert_allclose(got, want, atol=1e-7 * np.abs(want).max())


# What is refused


def fails(q, v, model):
    raise RuntimeError("no such thing.")


BAD = {
    "raises": (
        Condition("odd", fails),
        "Condition 'odd' of experiment 'hang' fails: no such thing.",
    ),
    "shape": (
        Condition("odd", lambda q, v, model: jnp.zeros((2, 2))),
        "Condition 'odd' of experiment 'hang' must give a number or a vector, not shape (2, 2).",
    ),
    "empty": (
        Condition("odd", lambda q, v, model: q[:0]),
        "Condition 'odd' of experiment 'hang' must give a number or a vector, not shape (0,).",
    ),
    "std": (
        Condition("odd", lambda q, v, model: q, [0.1, 0.2]),
        "Condition 'odd' of experiment 'hang' gives 1 value, but its std has 2.",
    ),
    "not finite": (
        Condition("odd", lambda q, v, model: jnp.log(-q)),
        "Condition 'odd' of experiment 'hang' is not finite at the start.",
    ),
    "no derivative": (
        Condition("odd", lambda q, v, model: jnp.sqrt(q - 0.8)),
        "Condition 'odd' of experiment 'hang' has no derivative at the start.",
    ),
    "nothing is free": (
        Condition("odd", lambda q, v, model: v - 0.25),
        "Condition 'odd' of experiment 'hang' cannot be met by what is free: 0.25 of it would remain; free more of "
        "the start or of the parameters, or start elsewhere.",
    ),
}


@pytest.mark.parametrize("estimate", [simulation_error, full_discretization])
@pytest.mark.parametrize("case", BAD)
def test_bad_conditions(case, estimate):
    condition, sentence = BAD[case]
    with pytest.raises(MechidError) as error:
        estimate(ROD, STEPPER, hanging(condition), FREE)
    assert str(error.value) == sentence


def test_conditions_that_contradict_each_other():
    other = Condition("elsewhere", lambda q, v, model: q - 1.0)
    again = Condition("here", lambda q, v, model: q - 0.5)
    with pytest.raises(MechidError, match=r"cannot be met by what is free: 0\.25 of it"):
        simulation_error(ROD, STEPPER, hanging(other, again), FREE)


def test_solvers_that_know_no_equality_rows():
    with pytest.raises(MechidError) as error:
        simulation_error(ROD, STEPPER, hanging(HELD), FREE, LBFGSB())
    assert str(error.value) == (
        "LBFGSB cannot hold condition 'hangs still' exactly: give it a std, or use LevenbergMarquardt."
    )


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Condition("", still), "A condition needs a name, not ''."),
        (
            lambda: Condition("odd", 3.0),
            "The residual of condition 'odd' must be a function of (q, v, model), not 3.0.",
        ),
        (
            lambda: Condition("odd", still, 0.0),
            "The std of condition 'odd' must be > 0, one number or one for each value, not 0.0.",
        ),
        (
            lambda: Condition("odd", still, [[1.0]]),
            "The std of condition 'odd' must be > 0, one number or one for each value, not [[1.0]].",
        ),
        (lambda: Condition("odd", still, np.nan), "The std of condition 'odd' must be finite, not nan."),
        (
            lambda: Condition("odd", still, "small"),
            "The std of condition 'odd' must be numbers, not 'small'.",
        ),
        (
            lambda: Start(conditions=["still"]),
            "The conditions of a start must be Condition(…), not 'still'.",
        ),
        (
            lambda: Start(conditions=[HELD, Condition("hangs still", fails)]),
            "Two conditions of a start are called 'hangs still': give each a name of its own.",
        ),
    ],
)
def test_what_is_no_condition(make, sentence):
    with pytest.raises(MechidError) as error:
        make()
    assert str(error.value) == sentence
