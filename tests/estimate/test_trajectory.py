"""`joint` and `full_discretization` against simulations, a Kalman smoother, and dense Gaussian likelihoods."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
from estimation_cases import freed, log_with, problem_of

from mechid import (
    BDF,
    MechidError,
    Parameters,
    Spook,
    Variational,
    full_discretization,
    joint,
    simulate,
)
from mechid.dynamics.sensors import joint_position
from mechid.estimate import state_errors
from mechid.estimate.chain import ChainProblem
from mechid.estimate.experiment import Experiment, Measured, Start, Tracked
from mechid.estimate.first_guess import first_guess
from mechid.estimate.lifted import SMALL, solve_lifted
from mechid.estimate.simulation_error import simulation_error
from mechid.estimate.solvers.lbfgsb import LBFGSB
from mechid.estimate.solvers.levenberg_marquardt import LevenbergMarquardt
from mechid.estimate.state_errors import log_likelihood, most_likely
from mechid.studies import mechanisms
from mechid.studies.matrix import CASES, STEPPERS, recorded

pytestmark = pytest.mark.xdist_group("trajectory")

STD, STEPS, H = 0.01, 120, 0.01
STEPPER = Variational(H)
TIGHT = LevenbergMarquardt(cost_tolerance=1e-13)


# A linear mechanism: a wheel on a spring and a damper, which is a pendulum without weight

INERTIA, STIFFNESS, DAMPING = 2.0, 30.0, 0.7
WHEEL = replace(
    mechanisms.pendulum(length=0.5, mass=24.0, damping=DAMPING).spring("hinge", stiffness=STIFFNESS),
    gravity=(0.0, 0.0, 0.0),
)
PRIOR = Start(q=[0.2], v=[0.1], q_std=0.3, v_std=0.5)
OPEN = Start(q=[0.2], q_std="free", v_std="free")


class Linear(NamedTuple):
    """x₁ = A x + B u + E w for x = (q, p): the midpoint rule written out, forces on the left."""

    A: np.ndarray
    B: np.ndarray
    E: np.ndarray


def midpoint_rule() -> Linear:
    """p − h k (q + q₁)/4 − (m/h + b)(q₁ − q) + h u = w₀,   p₁ + h k (q + q₁)/4 − m/h (q₁ − q) = w₁"""
    m, k, b = INERTIA / H, H * STIFFNESS / 4, DAMPING
    now = np.array([[-(m + b) - k, 0.0], [k - m, 1.0]])
    before = np.array([[m + b - k, 1.0], [k + m, 0.0]])
    inverse = np.linalg.inv(now)
    return Linear(-inverse @ before, -inverse @ np.array([H, 0.0]), inverse)


def torque() -> np.ndarray:
    return 3.0 * np.sin(7.0 * H * np.arange(STEPS))


def pushed(start: Start, impulses: float = 0.0, seed: int = 0) -> Experiment:
    """Angles of the wheel with noise, made by the rule above, with impulses of a given std in both its rows."""
    A, B, E = midpoint_rule()
    rng = np.random.default_rng(seed)
    x = [np.array([0.2, 0.0])]
    for u in torque():
        x.append(A @ x[-1] + B * u + E @ (impulses * rng.normal(size=2)))
    t = H * np.arange(STEPS + 1)
    seen = np.array(x)[:, 0] + STD * rng.normal(size=len(t))
    seen[[7, 8, 40]] = np.nan
    log = log_with("push", q=(t, seen), u=(t[:-1], torque()))
    measured = [Measured(joint_position(WHEEL, "hinge"), "q", std=STD)]
    return Experiment(log, measured, inputs={WHEEL.input_names[0]: "u"}, start=start)


def nothing_free(experiment: Experiment) -> tuple[Any, Any]:
    """A problem in which no parameter is free, with a first guess of its states."""
    base = problem_of(STEPPER, experiment, Parameters(WHEEL))
    return base, first_guess(base.shootings[0], base.free.bind(base.free.theta0))


def best_states(experiment: Experiment, W: np.ndarray) -> Any:
    """The best states where no parameter is free."""
    base, guess = nothing_free(experiment)
    y = np.concatenate([guess.q[0], guess.v[0]])
    settings = LevenbergMarquardt(cost_tolerance=1e-20, initial_damping=0.0)
    return solve_lifted(ChainProblem(base, W), settings, y, (guess.motion,))


def smoothed(experiment: Experiment, Q: np.ndarray) -> np.ndarray:
    """(N + 1, 2) Kalman's filter, then Rauch, Tung and Striebel backwards."""
    A, B, _ = midpoint_rule()
    x, P = np.array([0.2, INERTIA * 0.1]), np.diag([0.3**2, (INERTIA * 0.5) ** 2])
    c = np.array([1.0, 0.0])
    before, after = [], []
    for k, z in enumerate(experiment.log["q"].values):
        before.append((x, P))
        if np.isfinite(z):
            gain = P @ c / (c @ P @ c + STD**2)
            left = np.eye(2) - np.outer(gain, c)
            x, P = x + gain * (z - c @ x), left @ P @ left.T + STD**2 * np.outer(gain, gain)
        after.append((x, P))
        if k < STEPS:
            x, P = A @ x + B * torque()[k], A @ P @ A.T + Q
    result = [after[-1][0]]
    for (x, P), (ahead, spread) in zip(after[-2::-1], before[:0:-1], strict=True):
        result.append(x + P @ A.T @ np.linalg.solve(spread, result[-1] - ahead))
    return np.array(result[::-1])


def log_marginal(experiment: Experiment, kappa: float) -> float:
    """Of all samples at once, first state integrated over a flat prior; but for what κ does not change."""
    A, B, E = midpoint_rule()
    by_x, by_w, mean = np.eye(2), np.zeros((2, 2 * STEPS)), np.zeros(2)
    C, G, d = [by_x[0]], [by_w[0]], [0.0]
    for k in range(STEPS):
        by_x, by_w, mean = A @ by_x, A @ by_w, A @ mean + B * torque()[k]
        by_w[:, 2 * k : 2 * k + 2] = E
        C.append(by_x[0])
        G.append(by_w[0])
        d.append(mean[0])
    z = experiment.log["q"].values
    at = np.isfinite(z)
    C, G, r = np.array(C)[at], np.array(G)[at], (z - d)[at]
    V = STD**2 * np.eye(len(r)) + G @ G.T / kappa
    H = C.T @ np.linalg.solve(V, C)
    best = np.linalg.solve(H, C.T @ np.linalg.solve(V, r))
    r = r - C @ best
    return -0.5 * (r @ np.linalg.solve(V, r) + np.linalg.slogdet(V)[1] + np.linalg.slogdet(H)[1])


WEIGHTS = {
    "a number": 1e4 * np.eye(2),
    "a soft one": np.eye(2),
    "a matrix": np.array([[3e4, 1.2e4], [1.2e4, 2e4]]),
}


@pytest.mark.parametrize("weight", WEIGHTS)
def test_states_of_a_linear_mechanism_are_those_of_a_kalman_smoother(weight):
    kappa = WEIGHTS[weight]
    experiment = pushed(PRIOR, impulses=0.01)
    found = best_states(experiment, np.linalg.cholesky(kappa).T)
    assert found.converged
    E = midpoint_rule().E
    want = smoothed(experiment, E @ np.linalg.inv(kappa) @ E.T)
    states = found.place.links[0].motion.states
    assert np.concatenate([states.q, states.p], 1) == pytest.approx(want, abs=1e-8)


def test_one_step_is_enough_where_all_is_linear():
    assert best_states(pushed(PRIOR), 100.0 * np.eye(2)).iterations <= 3


def test_the_likelihood_of_a_linear_mechanism():
    """Differences between weights are those of a dense Gaussian, states and first state integrated."""
    experiment = pushed(OPEN, impulses=0.01)
    found, want = [], []
    for kappa in (1e2, 1e4, 1e7):
        found.append(log_likelihood(best_states(experiment, np.sqrt(kappa) * np.eye(2))))
        want.append(log_marginal(experiment, kappa))
    assert np.diff(found) == pytest.approx(np.diff(want), abs=1e-6)
    assert min(np.abs(np.diff(want))) > 1.0


# A pendulum: the same answers as from simulations

ROD = mechanisms.pendulum(damping=0.1).spring("hinge", stiffness=2.0)
FREE = freed(ROD, "rod.mass", start=1.3).free("hinge.damping", start=0.2)
NEARLY = freed(ROD, "rod.mass", bounds=(0.999, 1.001)).free("hinge.damping", start=0.2)
"""of the mass too little is open to matter"""
POSITION = joint_position(ROD, "hinge")
(TAU,) = ROD.input_names
T = H * np.arange(STEPS + 1)


def swung(name="swing", seed=0, amplitude=2.0, unknown=0.0, **options):
    """A log with noise: the angle at 100 Hz and again at 37 Hz, both inside steps.

    unknown: std of torques that act in every step and are not in it, N·m.
    """
    rng = np.random.default_rng(seed)
    torque = amplitude * np.sin(7.0 * T[:-1])
    acting = torque + unknown * rng.normal(size=STEPS)
    run = simulate(ROD, STEPPER, STEPS, q=[1.0], v=[0.5], inputs=acting[:, None])
    often = T + np.where((np.arange(STEPS + 1) % STEPS) > 0, 0.003, 0.0)
    rarely = np.arange(0.013, T[-1], 0.027)
    q, r = (
        np.interp(x, run.t, run.q[:, 0]) + s * rng.normal(size=len(x))
        for x, s in ((often, STD), (rarely, 0.02))
    )
    log = log_with(name, q=(often, q), tau=(T[:-1], torque), r=(rarely, r))
    measured = [Measured(POSITION, "q", std=STD), Measured(POSITION, "r", std=0.02)]
    start = Start(q={"hinge": 0.9}, q_std="free", v_std="free")
    return Experiment(log, measured, **({"inputs": {TAU: "tau"}, "start": start} | options))


SWING = swung()


def fitted(by: Any = joint, experiments: Any = SWING, free: Parameters = FREE, **options: Any) -> Any:
    return by(ROD, STEPPER, experiments, free, **options)


@pytest.fixture(scope="module")
def simulated():
    return fitted(simulation_error, solver=TIGHT)


@pytest.fixture(scope="module")
def exact():
    return fitted(full_discretization)


@pytest.fixture(scope="module")
def soft():
    return fitted(state_error_weight=1e5)


def assert_same(found, want, *, value=1e-6, std=1e-3):
    assert found.converged, found.outcome
    for kind in ("parameters", "starts"):
        estimates = getattr(want, kind)
        assert set(getattr(found, kind)) == set(estimates)
        for name, p in estimates.items():
            # a rate that is nearly zero is known to parts of its std, not of itself
            known = pytest.approx(p.value, rel=value, abs=1e-4 * p.std)
            assert getattr(found, kind)[name].value == known, name
            assert getattr(found, kind)[name].std == pytest.approx(p.std, rel=std), name


def test_exact_dynamics_give_what_simulations_give(simulated, exact):
    """Parameters, first states, their standard deviations, cost and residuals."""
    assert_same(exact, simulated)
    assert exact.cost[1] == pytest.approx(simulated.cost[1], rel=1e-7)
    for c, want in zip(exact.channels, simulated.channels, strict=True):
        assert c.residual == pytest.approx(want.residual, abs=1e-4 * c.std)
    assert exact.covariance == pytest.approx(simulated.covariance, rel=2e-3)
    assert (exact.estimator, exact.solver) == ("full discretisation", "LevenbergMarquardt")
    assert exact.notes == ()


def test_the_augmented_lagrangian_gives_the_same(simulated):
    assert_same(fitted(full_discretization, method="augmented-lagrangian"), simulated)


def test_state_errors_that_cost_more_lead_to_exact_dynamics(exact, soft):
    """Each hundredfold weight comes nearer, in the end a hundred times."""
    found = [fitted(state_error_weight=k) for k in (1e6, 1e8, 1e10)]
    assert all(f.converged for f in found)
    away = [max(abs(f.values[n] / p.value - 1.0) for n, p in exact.parameters.items()) for f in found]
    assert away[0] > 5.0 * away[1]
    assert away[1] == pytest.approx(100.0 * away[2], rel=0.2)
    assert (soft.estimator, soft.solver) == ("joint estimation", "LevenbergMarquardt")


def test_the_truth_within_its_standard_deviations(exact, soft):
    for fit in (exact, soft):
        for name, truth in (("rod.mass", 1.0), ("hinge.damping", 0.1)):
            p = fit.parameters[name]
            assert abs(p.value - truth) < 3.0 * p.std
            assert p.std < 0.2
    assert all(soft.parameters[n].std > p.std for n, p in exact.parameters.items())


def test_the_states_solve_the_equations(exact):
    """The mechanism that was found, simulated from the first state that was found."""
    start = [p.value for p in exact.starts.values()]
    torque = SWING.log["tau"].values[:, None]
    run = simulate(exact.mechanism, STEPPER, STEPS, q=start[:1], v=start[1:], inputs=torque)
    (link,) = exact.extra["solution"].place.links
    # state errors end where they move the motion by less than this part of its range, on average
    assert link.motion.states.q == pytest.approx(run.q, abs=SMALL * np.ptp(run.q))
    assert np.abs(link.errors).max() < 1e-8


def test_differences_of_the_determinant_are_no_compiling(soft, monkeypatch):
    """The fit before has compiled all: what takes long now is running."""
    found = state_errors._determinant

    def slow(*given):
        time.sleep(1.0)
        return found(*given)

    monkeypatch.setattr(state_errors, "_determinant", slow)
    again = fitted(state_error_weight=1e5)
    assert again.values == pytest.approx(soft.values, rel=1e-9)
    assert again.seconds["run"] > 1.0


# How state errors are weighed


def test_a_weight_for_each_row_and_as_a_matrix(soft):
    for weight in ([1e5, 1e5], np.diag([1e5, 1e5])):
        again = fitted(state_error_weight=weight)
        assert again.values == pytest.approx(soft.values, rel=1e-9)
        assert again.covariance == pytest.approx(soft.covariance, rel=1e-9)


def test_a_heavier_row_has_smaller_errors():
    first, second = (
        np.sqrt(np.mean(f.extra["solution"].place.links[0].errors ** 2, 0))
        for f in (fitted(state_error_weight=w) for w in ([1e4, 1e6], [1e6, 1e4]))
    )
    assert first[0] > 30.0 * first[1]
    assert second[1] > 30.0 * second[0]


@pytest.mark.slow
def test_errors_of_states_are_those_of_impulses_where_all_is_linear():
    experiment, E = pushed(PRIOR, impulses=0.01), midpoint_rule().E
    free = freed(WHEEL, "hinge.damping", start=0.5)
    kappa = 1e4
    by_impulses, by_states = (
        joint(
            WHEEL, STEPPER, experiment, free, TIGHT, state_errors=form, state_error_weight=w, marginal=False
        )
        for form, w in (("impulses", kappa), ("states", kappa * np.linalg.inv(E @ E.T)))
    )
    # E holds the damping, which makes the difference: errors of impulses are so small that it hardly counts
    assert by_states.values == pytest.approx(by_impulses.values, rel=1e-3)
    links = [f.extra["solution"].place.links[0] for f in (by_impulses, by_states)]
    assert links[1].errors == pytest.approx(links[0].errors @ E.T, abs=1e-2 * np.abs(links[1].errors).max())
    assert np.asarray(by_states.covariance) == pytest.approx(np.asarray(by_impulses.covariance), rel=1e-2)


@pytest.mark.slow
def test_forms_of_state_errors_that_are_chosen_a_weight():
    for form in ("two-impulses", "states"):
        found = fitted(state_errors=form)
        assert found.converged
        for name, truth in (("rod.mass", 1.0), ("hinge.damping", 0.1)):
            p = found.parameters[name]
            assert abs(p.value - truth) < 4.0 * p.std


def test_an_exact_model_leaves_nothing_for_state_errors():
    """The log is of the same model and step: the weight is the largest that is looked for."""
    found = fitted(free=NEARLY)
    assert found.converged
    (told,) = [n for n in found.notes if "weight" in n]
    assert told.startswith(
        "State errors explain nothing that noise does not: their weight was taken as large"
    )
    assert float(told.split()[-1].rstrip(".")) > 1e9
    assert [x.number for x in found.trace] == list(range(len(found.trace)))
    assert f"after {found.iterations} iterations with " in found.outcome


def test_the_weight_of_impulses_on_a_linear_mechanism():
    """In both rows of every step, all else known."""
    impulse = 0.02
    base, guess = nothing_free(pushed(OPEN, impulse))
    y = np.concatenate([guess.q[0], guess.v[0]])
    found = most_likely(base, LevenbergMarquardt(), y, (guess.motion,), np.eye(2))
    assert 1 / 3 < found.weight * impulse**2 < 3
    best = max(found.tried, key=lambda t: t.log_likelihood)
    assert found.weight == pytest.approx(10.0**best.log_weight)
    assert len(found.tried) < 16


def test_the_weight_of_impulses_that_were_there():
    """Torques that the log does not know: impulses of std 0.02 N·m·s a step, shared by two rows."""
    impulse = 0.02
    found = fitted(experiments=swung(unknown=impulse / H), free=NEARLY)
    assert found.converged
    p = found.parameters["hinge.damping"]
    assert abs(p.value - 0.1) < 3.0 * p.std
    (told,) = [n for n in found.notes if "weight" in n]
    assert told.startswith("The state error weight κ = ")
    assert told.endswith("N·m·s or N·s a step that the model lacks.")
    kappa = float(found.extra["chain"].weight[0, 0] ** 2)
    assert told.split()[6] == f"{kappa:.3g}"
    assert 0.25 < kappa * impulse**2 / 2.0 < 4.0


# Logs


def test_two_logs_share_their_parameters(exact):
    """Their informations add up."""
    other = swung("harder", seed=1, amplitude=4.0)
    alone, both = (fitted(full_discretization, x) for x in (other, [SWING, other]))
    assert both.converged
    assert [c.experiment for c in both.channels] == ["swing", "swing", "harder", "harder"]
    assert len(both.starts) == 4
    information = [np.linalg.inv(f.covariance) for f in (exact, alone)]
    assert np.linalg.inv(both.covariance) == pytest.approx(sum(information), rel=0.05)
    mean = np.linalg.solve(
        sum(information), sum(i @ f.theta for i, f in zip(information, (exact, alone), strict=True))
    )
    assert both.theta == pytest.approx(mean, rel=0.01)


def with_gaps(*, taken_out: bool):
    """Two thirds of the angles, the others missing or not even there."""
    kept = np.arange(STEPS + 1) % 3 != 1
    q = SWING.log["q"]
    values = np.where(kept, q.values, np.nan)
    seen = (q.time[kept], values[kept]) if taken_out else (q.time, values)
    channels = {n: (SWING.log[n].time, SWING.log[n].values) for n in ("tau", "r")}
    return replace(SWING, log=log_with("swing", q=seen, **channels))


def test_missing_samples_do_not_count():
    found, want = (fitted(experiments=with_gaps(taken_out=t), state_error_weight=1e5) for t in (False, True))
    assert_same(found, want)
    assert found.cost[1] == pytest.approx(want.cost[1], rel=1e-9)
    assert np.isnan(found.channels[0].residual).sum() == 40
    assert [c.channel for c in found.channels] == ["q", "r"]
    assert [len(c.time) for c in found.channels] == [121, 44]


def test_noise_that_is_not_given(exact):
    """From the residuals where dynamics are exact, from fast changes where states may err."""
    e = replace(SWING, measured=[Measured(POSITION, "q"), SWING.measured[1]])
    hard, easy = fitted(full_discretization, e), fitted(experiments=e, state_error_weight=1e5)
    c, given = hard.channels
    assert (c.estimated, given.estimated) == (True, False)
    assert c.std == pytest.approx(c.rms, rel=0.02)
    assert c.std == pytest.approx(STD, rel=0.2)
    for name, p in exact.parameters.items():
        assert hard.values[name] == pytest.approx(p.value, abs=0.05 * p.std)
    assert easy.channels[0].std == pytest.approx(STD, rel=0.3)
    (note,) = easy.notes
    assert (
        note
        == f"Noise estimated from the fastest changes of each channel (std): q {easy.channels[0].std:.2g}."
    )


# Bounds, beginnings and interruptions


def test_bounds_are_kept():
    free = freed(ROD, "rod.mass", start=1.3).free("hinge.damping", start=0.3, bounds=(0.2, None))
    for found in (fitted(free=free, state_error_weight=1e5), fitted(full_discretization, free=free)):
        assert found.converged, found.outcome
        assert found.values["hinge.damping"] == 0.2
        assert all(x.values[1] >= 0.2 for x in found.trace)
        assert "at bound" in found.flags["hinge.damping"]
        assert "at bound" not in found.flags["rod.mass"]


def test_beginning_elsewhere(soft, exact):
    """At what was found before, little is left to do."""
    for first, method, options in (
        (soft, joint, {"state_error_weight": 1e5}),
        (exact, full_discretization, {}),
    ):
        begin = first.trace[-1].unknowns
        found = fitted(method, begin=begin, **options)
        assert found.converged
        assert found.trace[0].unknowns == begin
        assert found.values == pytest.approx(first.values, rel=1e-4)
        assert found.iterations <= first.iterations + 2


def test_progress_is_told():
    seen = []
    found = fitted(state_error_weight=1e5, progress=seen.append)
    assert tuple(seen) == found.trace
    assert [line.number for line in seen] == list(range(len(seen)))
    assert found.trace[-1].values == pytest.approx(tuple(found.values.values()))
    seen = []
    found = fitted(state_error_weight=1e5, marginal=False, progress=seen.append)
    assert tuple(seen) == found.trace
    assert found.trace[-1].values == pytest.approx(tuple(found.values.values()))
    assert found.cost[0] == pytest.approx(found.trace[0].cost)
    assert found.cost[1] == pytest.approx(found.trace[-1].cost)


def interrupted(by, stop, **options):
    """A fit that is stopped by its progress; an interruption that comes through would end all tests."""
    try:
        return fitted(by, progress=stop, **options)
    except KeyboardInterrupt:
        pytest.fail("The interruption came through.")


@pytest.mark.parametrize("method", [joint, full_discretization])
@pytest.mark.parametrize("after", [0, 1, 2])
def test_interrupted(method, after):
    """What was reached so far comes back as a fit."""
    options = {"state_error_weight": 1e5} if method is joint else {}

    def stop(iteration):
        if iteration.number == after:
            raise KeyboardInterrupt

    found = interrupted(method, stop, **options)
    assert not found.converged
    assert found.outcome == f"Interrupted after {after} iteration{'s' if after != 1 else ''}."
    assert found.iterations == after
    assert found.values == dict(zip(FREE.names, found.trace[-1].values, strict=True))


def test_interrupted_while_a_weight_is_sought():
    """The search ends with what it has."""
    seen = []

    def stop(iteration):
        seen.append(iteration)
        if len(seen) >= 4:
            raise KeyboardInterrupt

    found = interrupted(joint, stop, free=NEARLY)
    assert not found.converged
    assert found.outcome.startswith("Interrupted after ")
    assert len(seen) == 4


# What is refused

WEIGHT_RULE = "(κ) must be > 0, not {}: full_discretization is its limit."
SHAPE_RULE = (
    "state_error_weight must be a number, 2 numbers (one for each dynamic row), or a (2, 2) matrix, "
    "not of shape {}."
)
FEEDBACK = (
    "Experiment 'swing' tracks its measured motion by feedback, which a {} does not need: its states are unknowns; "
    "leave the feedback out."
)
FEW = log_with("swing", q=(H * np.arange(3), np.ones(3)), tau=(T[:3], np.zeros(3)))
SILENT = log_with(
    "swing", q=(T, np.ones(STEPS + 1)), v=(T, np.full(STEPS + 1, np.nan)), tau=(T, np.zeros(STEPS + 1))
)

REFUSED = {
    "weight 0": (lambda: fitted(state_error_weight=0), "state_error_weight " + WEIGHT_RULE.format(0)),
    "weight −1": (lambda: fitted(state_error_weight=-1), "state_error_weight " + WEIGHT_RULE.format(-1)),
    "a row's weight 0": (
        lambda: fitted(state_error_weight=[1.0, 0.0]),
        "state_error_weight " + WEIGHT_RULE.format([1.0, 0.0]),
    ),
    "weight nan": (
        lambda: fitted(state_error_weight=np.nan),
        "state_error_weight must be finite, not nan.",
    ),
    "weight in words": (
        lambda: fitted(state_error_weight="large"),
        "state_error_weight must be numbers, not 'large'.",
    ),
    "three weights": (lambda: fitted(state_error_weight=[1.0, 2.0, 3.0]), SHAPE_RULE.format((3,))),
    "a larger matrix": (lambda: fitted(state_error_weight=np.eye(3)), SHAPE_RULE.format((3, 3))),
    "not positive definite": (
        lambda: fitted(state_error_weight=[[1.0, 2.0], [2.0, 1.0]]),
        "state_error_weight must be a positive definite matrix.",
    ),
    "form of state errors": (
        lambda: fitted(state_errors="forces"),
        "There are no state_errors 'forces'; valid: impulses, two-impulses, states.",
    ),
    "method": (
        lambda: fitted(full_discretization, method="newton"),
        "There is no method 'newton' of full discretisation; valid: sqp, augmented-lagrangian, ipopt.",
    ),
    "feedback": (
        lambda: fitted(experiments=swung(feedback=Tracked({"hinge": "q"}))),
        FEEDBACK.format("joint estimation"),
    ),
    "feedback of exact dynamics": (
        lambda: fitted(full_discretization, swung(feedback=Tracked({"hinge": "q"}))),
        FEEDBACK.format("full discretisation"),
    ),
    "solver": (
        lambda: fitted(solver=LBFGSB()),
        "The solver of a joint estimation is LevenbergMarquardt(…), not LBFGSB.",
    ),
    "solver by name": (
        lambda: fitted(solver="lm"),
        "A solver is LevenbergMarquardt(), SteepestDescent() or LBFGSB(), not 'lm'.",
    ),
    "few samples": (
        lambda: fitted(experiments=replace(SWING, log=FEW, measured=SWING.measured[:1])),
        "Experiment 'swing' has 3 samples for 4 unknowns (parameters and first states): record more, or free less.",
    ),
    "a channel without values": (
        lambda: fitted(
            experiments=replace(
                SWING, log=SILENT, measured=[Measured(POSITION, "v", std=STD), SWING.measured[0]]
            )
        ),
        "Channel 'v' of experiment 'swing' has no values.",
    ),
    "no values at all": (
        lambda: fitted(experiments=replace(SWING, log=SILENT, measured=[Measured(POSITION, "v", std=STD)])),
        "Experiment 'swing' has no sample within 0 … 1.2 s.",
    ),
    "begin of another size": (lambda: fitted(begin=[1.0]), "begin must have shape (4,), not shape (1,)."),
    "begin nan": (
        lambda: fitted(begin=[1.0, 0.1, np.nan, 0.0]),
        "begin must be finite, not [1.0, 0.1, nan, 0.0].",
    ),
    "nothing free": (
        lambda: fitted(free=Parameters(ROD)),
        "No parameter is free: name at least one, Parameters(mechanism).free('elbow.damping').",
    ),
    "no experiment": (lambda: fitted(experiments=[]), "An estimation needs at least one experiment."),
}


@pytest.mark.filterwarnings("ignore:Degrees of freedom")
@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case):
    call, sentence = REFUSED[case]
    with pytest.raises(MechidError) as found:
        call()
    assert str(found.value) == sentence


# Other steppers, and a closed loop


@pytest.mark.slow
@pytest.mark.parametrize("stepper", [BDF(H, 2), Spook(H), Variational(H, forces="balanced")])
def test_other_steppers(stepper):
    want = simulation_error(ROD, stepper, SWING, FREE, TIGHT)
    assert_same(full_discretization(ROD, stepper, SWING, FREE), want, value=3e-6)
    again = full_discretization(ROD, stepper, SWING, FREE, method="augmented-lagrangian")
    assert_same(again, want, value=3e-6)
    away = [
        abs(
            joint(ROD, stepper, SWING, FREE, state_error_weight=k).values["rod.mass"]
            - want.values["rod.mass"]
        )
        for k in (1e7, 1e9, 1e11)
    ]
    assert away == sorted(away, reverse=True)


@pytest.mark.slow
@pytest.mark.parametrize("stepper", STEPPERS)
def test_a_closed_loop(stepper):
    at = CASES["four-bar"]()
    e, _ = recorded(at, {"time": 1.0, "dt": 0.005, "noise": 1e-3, "seed": 0}, "four-bar")
    e = replace(e, start=replace(e.start, q_std="free", v_std="free"))
    free, made = at.free(at.mechanism), STEPPERS[stepper](0.005)
    want = simulation_error(at.mechanism, made, e, free, TIGHT)
    assert_same(full_discretization(at.mechanism, made, e, free), want)
    away = []
    for k in (1e8, 1e11):
        found = joint(at.mechanism, made, e, free, state_error_weight=k)
        assert found.converged, found.outcome
        (link,) = found.extra["solution"].place.links
        assert np.abs(link.hard).max(initial=0.0) < 3e-8
        away.append(max(abs(found.values[n] / p.value - 1.0) for n, p in want.parameters.items()))
    assert away[1] < away[0]
