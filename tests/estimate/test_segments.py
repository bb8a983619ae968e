"""Multiple shooting against single shooting, and the continuity that it has to close."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from estimation_cases import freed, log_with, problem_of

from mechid import MechidError, Variational, simulate
from mechid.dynamics.sensors import joint_position
from mechid.estimate.experiment import Experiment, Measured, Start
from mechid.estimate.problem import ShootingProblem
from mechid.estimate.segments import solve_in_segments
from mechid.estimate.simulation_error import simulation_error
from mechid.estimate.solvers.lbfgsb import LBFGSB
from mechid.estimate.solvers.levenberg_marquardt import LevenbergMarquardt
from mechid.estimate.solvers.steepest_descent import SteepestDescent
from mechid.studies import mechanisms

DT, STEPS, STD = 0.01, 151, 2e-3
CART = mechanisms.cart_pendulum(damping=0.05)
STEPPER = Variational(DT)
FREE = freed(CART, "pole.mass", start=0.45).free("hinge.damping", start=0.02)
TRUTH = {"pole.mass": 0.3, "hinge.damping": 0.05}


def recording(seed=0, hinge=1.0, name="swing", steps=STEPS):
    force = 2.0 * np.sin(5.0 * DT * np.arange(steps))
    run = simulate(CART, STEPPER, steps, q=[0.0, hinge], inputs=force[:, None])
    noise = STD * np.random.default_rng(seed).normal(size=run.q.shape)
    noisy = run.q + noise
    log = log_with(name, x=(run.t, noisy[:, 0]), h=(run.t, noisy[:, 1]), f=(run.t[:-1], force))
    return Experiment(
        log,
        [Measured(joint_position(CART, "slide", "hinge"), ("x", "h"), std=STD)],
        inputs={CART.input_names[0]: "f"},
        start=Start(q={"hinge": 0.9}, q_std="free", v_std="free"),
    )


SOLVER = LevenbergMarquardt(cost_tolerance=1e-14)


@pytest.fixture(scope="module")
def single():
    return simulation_error(CART, STEPPER, recording(), FREE, SOLVER)


@pytest.mark.parametrize("segments", [2, 5])
def test_segments_find_what_single_shooting_finds(single, segments):
    """An odd number of steps, so that segments differ in length."""
    fit = simulation_error(CART, STEPPER, recording(), FREE, SOLVER, segments=segments)
    assert single.converged
    assert fit.converged
    for name, p in fit.parameters.items():
        assert p.value == pytest.approx(single.values[name], rel=1e-6)
        assert p.std == pytest.approx(single.parameters[name].std, rel=1e-3)
        assert abs(p.value - TRUTH[name]) < 4 * p.std
    assert fit.cost[1] == pytest.approx(single.cost[1], rel=1e-8)
    assert fit.starts.keys() == single.starts.keys()
    for name, p in fit.starts.items():
        assert p.value == pytest.approx(single.starts[name].value, abs=1e-6)
    problem = fit.extra["problem"]
    assert len(problem.shootings) == segments
    assert sum(s.grid.steps for s in problem.shootings) == STEPS
    assert [x.number for x in fit.trace] == list(range(len(fit.trace)))


def test_continuity_is_closed_at_the_end(single):
    """Each segment, simulated anew from where the solver says it begins, ends where the next one begins."""
    fit = simulation_error(CART, STEPPER, recording(), FREE, SOLVER, segments=2)
    problem = fit.extra["problem"]
    first, second = problem.shootings
    # all unknowns of the last point, by name: θ, then (q, v) of each segment
    mechanism = fit.mechanism
    q0 = np.array([p.value for p in fit.starts.values()])
    force = recording().log["f"].values
    run = simulate(mechanism, STEPPER, STEPS, q=q0[:2], v=q0[2:], inputs=force[:, None])
    shown = {c.channel: c for c in fit.channels}
    # one simulation through both of them shows what the two segments show
    assert np.abs(run.q[:, 0] - shown["x"].predicted).max() < 1e-7
    assert np.abs(run.q[:, 1] - shown["h"].predicted).max() < 1e-7
    assert shown["x"].time == pytest.approx(run.t)
    assert first.grid.steps + second.grid.steps == STEPS


def test_two_experiments_in_segments():
    both = [recording(), recording(1, 1.4, "other", steps=120)]
    whole = simulation_error(CART, STEPPER, both, FREE, SOLVER)
    cut = simulation_error(CART, STEPPER, both, FREE, SOLVER, segments=2)
    for name, p in cut.parameters.items():
        assert p.value == pytest.approx(whole.values[name], rel=1e-6)
    assert {c.experiment for c in cut.channels} == {"swing", "other"}


def test_estimated_noise_in_segments(single):
    """As in single shooting: the std of the residuals, not of the motion."""
    given = recording()
    unknown = replace(given, measured=[replace(given.measured[0], std=None)])
    fit = simulation_error(CART, STEPPER, unknown, FREE, SOLVER, segments=2)
    for c in fit.channels:
        assert c.estimated
        assert c.std == pytest.approx(STD, rel=0.3)
    for name, p in single.parameters.items():
        assert fit.values[name] == pytest.approx(p.value, abs=0.5 * p.std)
        assert fit.parameters[name].std == pytest.approx(p.std, rel=0.3)


def test_interrupted_on_the_way(monkeypatch):
    """The segments fitted so far come back, with a sentence."""
    calls, evaluate = [], ShootingProblem.evaluate

    def stop(self, y):
        calls.append(y)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return evaluate(self, y)

    monkeypatch.setattr(ShootingProblem, "evaluate", stop)
    fit = simulation_error(CART, STEPPER, recording(), FREE, SOLVER, segments=2)
    assert not fit.converged
    assert fit.outcome.startswith("Interrupted after ")
    assert fit.trace[-1].cost < fit.trace[0].cost
    assert fit.extra["problem"].follows == (None,)


def cut(segments, solver=SOLVER):
    return simulation_error(CART, STEPPER, recording(), FREE, solver, segments=segments)


REFUSED = {
    "steepest descent": (
        lambda: cut(2, SteepestDescent()),
        "Segments need LevenbergMarquardt: continuity is kept by its equality rows.",
    ),
    "lbfgsb": (
        lambda: cut(2, LBFGSB()),
        "Segments need LevenbergMarquardt: continuity is kept by its equality rows.",
    ),
    "too many": (lambda: cut(200), "200 segments are more than the 151 steps of experiment 'swing'."),
    "steps of different sizes": (
        lambda: solve_in_segments(
            problem_of(Variational(np.full(STEPS, DT)), recording(), FREE), SOLVER, 2, None
        ),
        "Segments need one constant step size dt.",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case):
    call, sentence = REFUSED[case]
    with pytest.raises(MechidError) as found:
        call()
    assert str(found.value) == sentence


@pytest.mark.parametrize("segments", [0, -2, 1.5, "two"])
def test_numbers_of_segments_that_make_no_sense(segments):
    with pytest.raises(MechidError):
        cut(segments)
