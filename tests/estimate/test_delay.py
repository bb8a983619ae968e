"""Inputs that act later than they were logged: means by brute force, slopes by differences, known delays found."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from estimation_cases import differences, log_with, problem_of

from mechid import (
    BDF,
    Mechanism,
    MechidError,
    Parameters,
    Spook,
    Variational,
    full_discretization,
    joint,
    simulate,
)
from mechid.data.log import Channel
from mechid.dynamics.sensors import joint_force, joint_position
from mechid.estimate import samples
from mechid.estimate.delay import signal
from mechid.estimate.experiment import HOLDS, Experiment, Measured, Start, Tracked
from mechid.estimate.simulation_error import simulation_error
from mechid.estimate.solvers.lbfgsb import LBFGSB
from mechid.judge.identifiability import NOT_IDENTIFIABLE
from mechid.judge.validation import cross_validate

# What acts over a step


def between_samples(time, values, hold):
    """The signal as a function of time, written without the module's own arithmetic."""
    if hold == "zero-order":
        return lambda t: np.array([values[max(np.sum(time <= x) - 1, 0)] for x in t])
    return lambda t: np.interp(t, time, values)


@pytest.mark.parametrize("hold", HOLDS)
@pytest.mark.parametrize("delay", [-0.031, 0.0137, 0.2])
def test_values_and_slopes_over_steps(hold, delay):
    """Steps that begin before the samples and end after them, in irregular time; one sample is missing."""
    rng = np.random.default_rng(0)
    time = np.cumsum(rng.uniform(0.005, 0.02, 40))
    values = rng.normal(size=40)
    values[7] = np.nan
    good = np.isfinite(values)
    made = signal(Channel(time, values), hold)
    t = np.linspace(-0.03, time[-1] + 0.03, 60)
    u = between_samples(time[good], values[good], hold)
    fine = 4000
    parts = (np.arange(fine) + 0.5) / fine
    want = [u(a + parts * (b - a) - delay).mean() for a, b in pairwise(t)]
    if hold in ("midpoint", "end"):
        want = u(((t[:-1] + t[1:]) / 2 if hold == "midpoint" else t[1:]) - delay)
    found, slope = made.over(t, delay)
    assert found == pytest.approx(want, abs=2e-3)
    h = 1e-7
    wanted = (made.over(t, delay + h)[0] - made.over(t, delay - h)[0]) / (2 * h)
    assert slope == pytest.approx(wanted, abs=1e-4)


def test_slope_where_edges_meet_ends_of_steps():
    """Every edge lies at the end of a step: the middle of what a little more and a little less delay would do."""
    t = 0.01 * np.arange(30)
    made = signal(Channel(t, np.random.default_rng(0).normal(size=30)), "zero-order")
    for delay in (0.0, 0.02):
        above, below = (made.over(t, delay + d)[0] for d in (1e-4, -1e-4))
        found, slope = made.over(t, delay)
        assert slope == pytest.approx((above - below) / 2e-4, rel=1e-6, abs=1e-6)
        assert found[2:] == pytest.approx(made.values[2 - round(delay / 0.01) : 29 - round(delay / 0.01)])


def test_without_a_delay_inputs_are_as_before():
    """Of steps of two samples and more a hold without delay takes the first, with one the mean."""
    e = experiment(np.zeros(N + 1), STEPS_OF_FIVE)
    grid = samples.grid(e, Variational(2 * H))
    assert samples.inputs(e, ARM, grid)[:, 0] == pytest.approx(STEPS_OF_FIVE[:-1:2])
    late = samples.inputs(e, ARM.delayed("motor", H), grid)[:, 0]
    assert late[1:] == pytest.approx((STEPS_OF_FIVE[1:-2:2] + STEPS_OF_FIVE[2:-1:2]) / 2)
    assert late[0] == STEPS_OF_FIVE[0]


# Derivatives: a cart on a given path, a pendulum on it with a motor and a force at its tip, all late


CART = (
    Mechanism("cart")
    .body("cart", mass=1.0)
    .prismatic("slide", "world", "cart", axis="x")
    .body("rod", mass=0.5, com=(0, 0, -0.3), inertia=(0.02, 0.02, 0.001))
    .revolute("hinge", "cart", "rod", axis="y")
    .frame("tip", "rod", origin=(0, 0, -0.6))
    .damper("hinge", damping=0.05)
    .motor("hinge", gain=0.8, name="motor")
    .force("push", "tip")
    .drive("slide", name="path")
)


def cart_experiment(hold, feedback=None):
    rng = np.random.default_rng(0)
    t = 0.01 * np.arange(61)
    channels = {"u": rng.normal(size=61), "f": rng.normal(size=61), "x": 0.05 * np.sin(8 * t)}
    channels |= {"q": 0.3 * np.cos(4 * t), "tau": rng.normal(size=61)}
    return Experiment(
        log_with("cart", **{k: (t, x) for k, x in channels.items()}),
        [
            Measured(joint_position(CART, "hinge"), "q", std=0.1),
            Measured(joint_force(CART, "hinge"), "tau", std=1.0),
        ],
        inputs={"motor": "u", "push.x": "f", "path": "x"},
        start=Start(q={"hinge": 0.2}, q_std={"hinge": "free"}),
        hold=hold,
        feedback=feedback,
    )


@pytest.mark.parametrize(
    ("hold", "feedback"), [("zero-order", None), ("mean", Tracked({"hinge": "q"}, [[2.0], *[[0.0]] * 4]))]
)
def test_gradients_by_delays_of_every_kind_of_input(hold, feedback):
    """One delay by its logarithm, two tied by factors; the motion is made again in stretches of 25 steps."""
    free = Parameters(CART).free("motor.gain").free("motor.delay", start=0.0137, transform="positive")
    free = free.tie("late", {"push.x.delay": 1.0, "path.delay": 0.65}, start=0.0052, unit="s")
    stepper = Variational(0.01, absolute_tolerance=1e-13, relative_tolerance=1e-14)
    problem = problem_of(stepper, cart_experiment(hold, feedback), free, keep=25)
    y = problem.start
    point = problem.evaluate(y)
    forward = problem.quadratic(point).g
    backward = replace(problem, gradients="adjoint", memory={}).gradient(point)
    assert forward == pytest.approx(backward, rel=1e-9)
    found = differences(lambda y: problem.evaluate(y).cost, y, np.full(4, 1e-3))
    assert forward == pytest.approx(found, rel=1e-7)


# Fits: a pendulum whose motor acts 1.7 samples late


H, N, STD = 0.01, 200, 1e-3
ARM = (
    Mechanism("arm")
    .body("rod", mass=1.0, com=(0, 0, -0.4), inertia=(0.05, 0.05, 0.001))
    .revolute("hinge", "world", "rod", axis="y")
    .damper("hinge", damping=0.05)
    .motor("hinge", gain=1.0, name="motor")
)
STEPS_OF_FIVE = np.repeat(np.random.default_rng(3).normal(size=N // 5 + 1), 5)[: N + 1]
TRUTH = 1.7 * H
STEPPERS = {
    "variational": Variational(H),
    "spook": Spook(H),
    "bdf1": BDF(H, order=1),
    "bdf2": BDF(H, order=2),
}


def experiment(q, u=STEPS_OF_FIVE, **more):
    t = H * np.arange(N + 1)
    log = log_with("log", q=(t, q), u=(t, u), **more)
    return Experiment(
        log,
        [Measured(joint_position(ARM, "hinge"), "q", std=STD)],
        inputs={"motor": "u"},
        start=Start(q=[0.3], q_std="free", v_std="free"),
    )


def recorded(stepper, seed=0):
    """A step from k to k + 1 sees the input of k − 2 for 0.7 of its time, that of k − 1 for the rest."""
    before, last = (STEPS_OF_FIVE[np.maximum(np.arange(N) - i, 0)] for i in (2, 1))
    motion = simulate(ARM, stepper, N, q=[0.3], inputs=(0.7 * before + 0.3 * last)[:, None])
    return experiment(motion.q[:, 0] + STD * np.random.default_rng(seed).normal(size=N + 1))


def unknown():
    return (
        Parameters(ARM)
        .free("motor.delay", name="delay", start=0.0, bounds=(0.0, 0.1))
        .free("hinge.damping", start=0.1, bounds=(0.0, None))
        .free("motor.gain", start=0.8)
    )


ESTIMATORS = {
    "adjoint": lambda *a: simulation_error(*a, LBFGSB(), gradients="adjoint"),
    "segments": lambda *a: simulation_error(*a, segments=3),
    "joint": lambda *a: joint(*a, state_error_weight=1e12),
    "full": full_discretization,
    "ipopt": lambda *a: full_discretization(*a, method="ipopt"),
}


@pytest.mark.parametrize("name", ["variational", "bdf1", pytest.param("spook", marks=pytest.mark.slow)])
def test_every_estimator_finds_the_delay(name):
    """The truth, and what forward sensitivities find: they are checked against differences above."""
    stepper = STEPPERS[name]
    e = recorded(stepper)
    fit = simulation_error(ARM, stepper, e, unknown())
    assert fit.converged
    own = fit.parameters["delay"]
    assert abs(own.value - TRUTH) < 3 * own.std < 1e-3
    for estimator, run in ESTIMATORS.items():
        other = run(ARM, stepper, e, unknown())
        found = other.parameters["delay"]
        assert other.converged, estimator
        assert found.value == pytest.approx(own.value, abs=0.4 * own.std), estimator
        assert found.std == pytest.approx(own.std, rel=0.1), estimator
    # what was found explains another log of the same machine, without being free there
    assert fit.mechanism.delays == {"motor": own.value}
    assert cross_validate(fit, [replace(recorded(stepper, 1), name="other")]).score == pytest.approx(
        1, abs=0.15
    )


def test_standard_deviations_of_a_delay_are_true():
    """Sixteen logs with other noise: errors in parts of the std."""
    found = []
    for seed in range(16):
        fit = simulation_error(
            ARM, STEPPERS["variational"], recorded(STEPPERS["variational"], seed), unknown()
        )
        p = fit.parameters["delay"]
        found.append((p.value - TRUTH) / p.std)
    assert abs(np.mean(found)) < 0.75
    assert 0.55 < np.std(found) < 1.5
    assert np.abs(found).max() < 3.5


def test_a_delay_of_whole_samples_alone_is_found():
    """Every edge of the input then meets the end of a step, where slopes jump; and no other number is free."""
    stepper = STEPPERS["bdf2"]
    u = STEPS_OF_FIVE[np.maximum(np.arange(N) - 2, 0)]
    motion = simulate(ARM, stepper, N, q=[0.3], inputs=u[:, None])
    e = experiment(motion.q[:, 0] + STD * np.random.default_rng(0).normal(size=N + 1))
    free = Parameters(ARM).free("motor.delay", start=0.005)
    for run in (simulation_error, full_discretization):
        fit = run(ARM, stepper, e, free)
        p = fit.parameters["motor.delay"]
        assert fit.converged
        assert abs(p.value - 2 * H) < 3 * p.std < 1e-3


def test_a_delay_that_no_input_shows_is_said_to_be_unknown():
    stepper = STEPPERS["variational"]
    motion = simulate(ARM, stepper, N, q=[0.3], inputs=[0.2])
    still = experiment(
        motion.q[:, 0] + STD * np.random.default_rng(0).normal(size=N + 1), np.full(N + 1, 0.2)
    )
    for inputs in ({"motor": "u"}, {"motor": 0.2}):
        for run in (simulation_error, full_discretization):
            fit = run(ARM, stepper, replace(still, inputs=inputs), unknown())
            assert fit.converged
            assert NOT_IDENTIFIABLE in fit.flags["delay"]
            assert "delay" in str(fit)


def test_mistakes_about_delays_are_told():
    with pytest.raises(MechidError, match=r"no input named 'motr'. Did you mean motor\? Valid: motor"):
        ARM.delayed("motr", 0.01)
    with pytest.raises(MechidError, match="The delay of input 'motor'"):
        ARM.delayed("motor", np.nan)
    with pytest.raises(MechidError, match=r"address 'hinge.delay'. Near matches: .*hinge.torque.delay"):
        Parameters(ARM.torque("hinge")).free("hinge.delay")
    assert "delays: motor 0.01 s" in str(ARM.delayed("motor", 0.01))
