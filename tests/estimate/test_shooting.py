"""Costs of experiments and their derivatives: adjoint = forward = finite differences of simulations."""

from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from estimation_cases import differences, freed, log_with, problem_of
from scipy.interpolate import CubicHermiteSpline

from mechid import BDF, Spook, Variational, assemble, project_rates, simulate
from mechid.dynamics import driver
from mechid.dynamics.sensors import (
    FunctionSensor,
    frame_pose,
    frame_position,
    joint_force,
    joint_position,
    joint_velocity,
    reaction,
)
from mechid.estimate.experiment import Cost, Experiment, Measured, Start, Tracked
from mechid.estimate.finish import compared
from mechid.estimate.solvers.levenberg_marquardt import LevenbergMarquardt
from mechid.studies import mechanisms

# tighter than by default, for the sake of finite differences
TIGHT = {"absolute_tolerance": 1e-13, "relative_tolerance": 1e-14}


def by_adjoint(problem, point):
    return replace(problem, gradients="adjoint", memory={}).gradient(point)


def assert_gradients_agree(problem, y, *, differ=1e-8, step=2e-3):
    """Of all unknowns, each to a part of its own slope."""
    point = problem.evaluate(y)
    assert np.isfinite(point.cost)
    forward, backward = problem.quadratic(point).g, by_adjoint(problem, point)
    assert np.abs(forward - backward).max() <= 1e-10 * np.abs(forward).max()
    assert forward == pytest.approx(backward, rel=1e-9)
    h = step * np.maximum(np.abs(y), 0.1)
    found = differences(lambda y: problem.evaluate(y).cost, y, h)
    # slopes that nearly vanish are held to a part of the largest
    scale = np.maximum(np.abs(forward), 1e-2 * np.max(np.abs(forward * h)) / h)
    assert np.abs((found - forward) / scale).max() < differ


# A four-bar: every sensor, at two rates and inside steps, a partly known start, lengths in the loop, feedback

BAR = mechanisms.four_bar(damping=0.05).spring("b", stiffness=3.0, rest=0.2)
BAR_NUMBERS = (
    "b.stiffness",
    "c.damping",
    "coupler.mass",
    "coupler.com.x",
    "rocker-end.origin.x",
    "b.origin.x",
)
BAR_START = Start(
    q=mechanisms.FOUR_BAR_GUESS,
    v={"a": 1.0, "b": -1.0, "c": 0.3},
    q_std={"a": 0.05, "b": "free", "c": 0.2},
    v_std={"a": "free", "b": "free", "c": 0.3},
)


def of_everything(seen):
    return jnp.array([seen.q[0] * seen.v[1], jnp.sin(seen.t) + seen.u[0]])


SENSORS = {
    "joint_position": (joint_position(BAR, "a", "c"), 0.1),
    "joint_velocity": (joint_velocity(BAR, "b"), 0.5),
    "frame_position": (frame_position(BAR, "coupler-end"), 0.1),
    "frame_pose": (frame_pose(BAR, "rocker-end"), 0.2),
    "joint_force": (joint_force(BAR, "c"), 0.3),
    "function": (FunctionSensor(of_everything), 0.4),
    "reaction": (reaction(BAR, "closure"), 50.0),
}
SIZES = {"joint_position": 2, "frame_position": 3, "frame_pose": 6, "function": 2, "reaction": 2}


def bar_experiment(values, *, gain=4.0, start=BAR_START, dt=0.005, steps=100):
    """values: (sensor, index, times) ↦ what was measured."""
    end = steps * dt
    t = dt * np.arange(steps + 1)
    channels = {"tau": (t, np.sin(9 * t)), "ref": (t, -0.9 + 0.3 * np.sin(5 * t))}
    measured = []
    for rate, time in (("fast", np.arange(0.0, end, 0.0031)), ("slow", np.arange(0.0042, end, 0.0173))):
        time = np.append(time, end)
        for name, (sensor, std) in SENSORS.items():
            own = [f"{name} {rate} {i}" for i in range(SIZES.get(name, 1))]
            channels |= {c: (time, values(name, i, time)) for i, c in enumerate(own)}
            measured.append(Measured(sensor, own, std=std))
    return Experiment(
        log_with("bar", **channels),
        measured,
        inputs={BAR.input_names[0]: "tau"},
        start=start,
        feedback=Tracked({"a": "ref"}, gain=[[gain]]),
    )


def some_values():
    rng = np.random.default_rng(0)
    return lambda name, i, time: 0.1 * rng.normal(size=len(time))


@pytest.fixture(scope="module")
def bar():
    return problem_of(Variational(0.005, **TIGHT), bar_experiment(some_values()), freed(BAR, *BAR_NUMBERS))


@pytest.mark.slow
def test_gradients_of_a_four_bar(bar):
    """One dependent pair of coordinates follows the lengths, which re-close the loop at the start."""
    (s,) = bar.shootings
    assert [g.form.at_ends for g in s.groups] == [False, False]
    assert s.grid.steps == 100
    assert s.first.names == ("q(a)", "v(a)")
    assert_gradients_agree(bar, bar.start)


def test_samples_inside_steps_of_a_four_bar(bar):
    """Angles and rates between steps: the cubic through what `simulate` gives at their ends."""
    (s,) = bar.shootings
    (*_, run), log = bar.evaluate(bar.start).runs, s.experiment.log
    motion = simulate(BAR, s.stepper, 100, q=run.q, v=run.v, inputs=s.table)
    cubic = CubicHermiteSpline(motion.t, motion.q, motion.v)
    shown = {c.channel: c for c in compared(bar, bar.evaluate(bar.start))}
    for rate in ("fast", "slow"):
        for name, want in (
            ("joint_position {} 0", lambda t: cubic(t)[:, 0]),
            ("joint_position {} 1", lambda t: cubic(t)[:, 2]),
            ("joint_velocity {} 0", lambda t: cubic(t, 1)[:, 1]),
        ):
            c = shown[name.format(rate)]
            assert c.time == pytest.approx(log[c.channel].time, abs=1e-12)
            assert c.measured.tolist() == log[c.channel].values.tolist()
            assert c.predicted == pytest.approx(want(c.time), abs=1e-9)


@pytest.mark.slow
def test_the_gauss_newton_model_of_a_four_bar(bar):
    """The rows' slopes against differences of the residuals, one unknown after the other."""
    y = bar.start
    r, J, C = bar.rows(bar.evaluate(y))
    assert not len(C)
    assert 0.5 * r @ r == pytest.approx(bar.evaluate(y).cost, rel=1e-13)
    model = bar.quadratic(bar.evaluate(y))
    assert np.abs(model.H - J.T @ J).max() < 1e-12 * np.abs(model.H).max()
    for i in range(len(y)):
        h = 3e-5 * np.eye(len(y))[i]
        rows = [bar.rows(bar.evaluate(z))[0] for z in (y + h, y - h)]
        slope = (rows[0] - rows[1]) / 6e-5
        assert np.abs(slope - J[:, i]).max() < 1e-5 * np.abs(J[:, i]).max(), i


def test_a_four_bar_with_a_free_start_recovers_it(bar):
    """Everything but the two angles is missing; the motion is one of `simulate`, sampled where steps end."""
    wanted, steps, dt = {"a": -0.8, "b": 0.45, "c": -1.05}, 100, 0.005
    q = assemble(BAR, wanted, hold=["a"])
    v = project_rates(BAR, q, {"a": 1.7}, hold=["a"])
    t = dt * np.arange(steps + 1)
    run = simulate(BAR, Variational(dt, **TIGHT), steps, q=q, v=v, inputs=np.sin(9 * t[:-1, None]))

    def values(name, i, time):
        seen = np.full(len(time), np.nan)
        if name == "joint_position":
            at = np.round(time / dt).astype(int)
            on_time = np.abs(time - t[at]) < 1e-12
            seen[on_time] = run.q[at[on_time], (0, 2)[i]]
        return seen

    open_start = Start(BAR_START.q, {"a": 1.0}, "free", "free")
    free = freed(BAR, *BAR_NUMBERS, prior=(1.0, 1.0))
    free = replace(free, entries=tuple(replace(p, prior=(p.start, 1e-7)) for p in free.entries))
    problem = problem_of(Variational(dt, **TIGHT), bar_experiment(values, gain=0.0, start=open_start), free)
    found = LevenbergMarquardt(cost_tolerance=1e-20).solve(problem, problem.start)
    assert found.converged, found.outcome
    (s,) = problem.shootings
    first = s.first.at(free.bind(found.point.y[: free.size]), found.point.y[free.size :])
    assert first[0] == pytest.approx(q, abs=1e-6)
    assert first[1] == pytest.approx(v, abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("stepper", [BDF(0.005, **TIGHT), Spook(0.005)])
def test_gradients_of_a_four_bar_by_other_steppers(stepper):
    problem = problem_of(stepper, bar_experiment(some_values()), freed(BAR, *BAR_NUMBERS))
    assert_gradients_agree(problem, problem.start)


# A pendulum: other steppers, long motions, costs of one's own

ROD = mechanisms.pendulum(damping=0.1).spring("hinge", stiffness=2.0).frame("tip", "rod", origin=(0, 0, -0.5))
ROD_NUMBERS = ("hinge.stiffness", "hinge.damping", "rod.mass", "rod.com.z")


def rod_experiment(steps=100, dt=0.01, *, missing=(), **options):
    rng = np.random.default_rng(1)
    t = dt * np.arange(steps + 1)
    q = 0.3 * np.sin(4 * t) + 0.1 * rng.normal(size=len(t))
    q[list(missing)] = np.nan
    log = log_with("rod", q=(t, q), tau=(t, np.sin(9 * t)))
    given = {
        "start": Start(q={"hinge": 1.0}, q_std={"hinge": 0.05}, v_std="free"),
        "inputs": {ROD.input_names[0]: "tau"},
    } | options
    return Experiment(log, [Measured(joint_position(ROD, "hinge"), "q", std=0.1)], **given)


def rod_problem(stepper=None, experiment=None, **options):
    stepper = Variational(0.01, **TIGHT) if stepper is None else stepper
    experiment = rod_experiment() if experiment is None else experiment
    return problem_of(stepper, experiment, freed(ROD, *ROD_NUMBERS), **options)


@pytest.mark.parametrize(
    "stepper",
    [
        Variational(0.01, **TIGHT),
        pytest.param(BDF(0.01, **TIGHT), marks=pytest.mark.slow),
        pytest.param(Spook(0.01), marks=pytest.mark.slow),
    ],
    ids=["variational", "bdf", "spook"],
)
def test_gradients_of_a_pendulum(stepper):
    problem = rod_problem(stepper, rod_experiment(terminal_weight=3.0))
    assert problem.shootings[0].groups[0].form.at_ends
    assert_gradients_agree(problem, problem.start)


@pytest.mark.slow
def test_gradients_over_a_long_motion():
    problem = rod_problem(experiment=rod_experiment(2000))
    assert_gradients_agree(problem, problem.start, differ=1e-5)


def test_transformed_and_tied_parameters():
    """The solver's coordinates are not the physical values; priors are on these."""
    free = (
        freed(ROD, "hinge.stiffness", transform="positive", prior=(3.0, 0.7))
        .free("hinge.damping", transform="interval", bounds=(0.0, 1.0))
        .free("rod.mass", name="mass", start=1.2, prior=(1.0, 0.1))
        .tie("middle", {"rod.com.z": lambda x: -(x**2)}, start=0.4, unit="m")
    )
    problem = problem_of(Variational(0.01, **TIGHT), rod_experiment(), free)
    assert_gradients_agree(problem, problem.start)
    r, _, _ = problem.rows(problem.evaluate(problem.start))
    # (2 − 3)/0.7, (1.2 − 1)/0.1, and the first angle's own, which is at its mean
    assert r[-3:] == pytest.approx(np.array([-1.0 / 0.7, 2.0, 0.0]))


def test_missing_samples_cost_nothing():
    """What a missing sample is replaced by, and whether it is there at all, does not matter."""
    missing = [3, 50, 99]
    whole, holed = rod_problem(), rod_problem(experiment=rod_experiment(missing=missing))
    y = whole.start
    r = whole.evaluate(y).runs[0].residuals[0][:, 0]
    there = np.setdiff1d(np.arange(101), missing)
    assert holed.evaluate(y).cost == pytest.approx(0.5 * np.sum(r[there] ** 2), rel=1e-13)
    experiment = rod_experiment()
    t, q = experiment.log["q"].time, experiment.log["q"].values
    shorter = replace(experiment, log=log_with("rod", q=(t[there], q[there]), tau=(t, np.sin(9 * t))))
    left_out = rod_problem(experiment=shorter)
    assert left_out.evaluate(y).cost == pytest.approx(holed.evaluate(y).cost, rel=1e-13)
    a, b = (by_adjoint(p, p.evaluate(y)) for p in (holed, left_out))
    assert a == pytest.approx(b, rel=1e-12)


def test_two_experiments_add_up():
    one, other = rod_experiment(name="one"), rod_experiment(80, name="other", missing=[7])
    both = rod_problem(experiment=[one, other])
    alone = [rod_problem(experiment=e) for e in (one, other)]
    assert both.size == 8
    y = both.start + np.linspace(0.01, 0.08, 8)
    parts = [np.r_[y[:4], y[place]] for place in both.places]
    points = [p.evaluate(x) for p, x in zip(alone, parts, strict=True)]
    assert both.evaluate(y).cost == pytest.approx(sum(p.cost for p in points), rel=1e-12)
    g = by_adjoint(both, both.evaluate(y))
    single = [by_adjoint(p, x) for p, x in zip(alone, points, strict=True)]
    assert g[:4] == pytest.approx(single[0][:4] + single[1][:4], rel=1e-12)
    assert g[4:] == pytest.approx(np.r_[single[0][4:], single[1][4:]], rel=1e-12)
    assert both.quadratic(both.evaluate(y)).g == pytest.approx(g, rel=1e-9)


# Memory


def test_motions_that_are_made_again(monkeypatch):
    """Four chunks, all of them kept or none: cost, adjoint and Gauss–Newton matrix, over 1000 steps."""
    monkeypatch.setattr(driver, "LONGEST", 256)
    experiment = rod_experiment(1000)
    whole, again = (rod_problem(experiment=experiment, keep=keep) for keep in (4096, 256))
    y = whole.start
    a, b = whole.evaluate(y), again.evaluate(y)
    assert len(a.runs[0].chunks) == len(b.runs[0].chunks) == 4
    assert all(chunk.motion is not None for chunk in a.runs[0].chunks)
    assert all(chunk.motion is None for chunk in b.runs[0].chunks)
    assert b.cost == pytest.approx(a.cost, rel=1e-12)
    assert by_adjoint(again, b) == pytest.approx(by_adjoint(whole, a), rel=1e-12)
    one, other = whole.quadratic(a), again.quadratic(b)
    assert np.abs(one.H - other.H).max() <= 1e-12 * np.abs(one.H).max()
    assert np.abs(one.g - other.g).max() <= 1e-12 * np.abs(one.g).max()


# Costs of one's own


def squares(seen, measured, parameters):
    return 0.5 * jnp.sum(((seen.q - measured) / 0.1) ** 2)


def running(seen, measured, parameters):
    """With the parameters themselves in it."""
    gap = (seen.q - measured) / 0.1
    return jnp.sum(jnp.log(1.0 + gap**2)) + 0.01 * parameters["rod.mass"] ** 2 * seen.v[0] ** 2


def terminal(seen, measured, parameters):
    return 50.0 * parameters["hinge.damping"] * jnp.sum((seen.q - measured) ** 2) + jnp.sin(seen.q[0])


def test_half_of_the_squares_is_the_usual_cost():
    """The angles stay within ±π, so that no full turn separates the two."""
    usual = rod_problem()
    own = rod_problem(experiment=rod_experiment(cost=Cost(squares)))
    assert (usual.least_squares, own.least_squares) == (True, False)
    y = usual.start
    a, b = usual.evaluate(y), own.evaluate(y)
    assert b.cost == pytest.approx(a.cost, rel=1e-13)
    assert own.gradient(b) == pytest.approx(by_adjoint(usual, a), rel=1e-11)


def test_a_cost_of_bolza_form():
    """Its value by hand from a simulation, its gradient by differences of its values."""
    problem = rod_problem(experiment=rod_experiment(cost=Cost(running, terminal)))
    y = problem.start
    names = dict(zip(ROD_NUMBERS, y[:4], strict=True))
    log = problem.shootings[0].experiment.log
    run = simulate(
        ROD, Variational(0.01, **TIGHT), 100, q=[1.0], v=[0.0], inputs=log["tau"].values[:-1, None]
    )
    gap = run.q[:, 0] - log["q"].values
    want = np.sum(np.log(1.0 + (gap / 0.1) ** 2) + 0.01 * names["rod.mass"] ** 2 * run.v[:, 0] ** 2)
    want += 50.0 * names["hinge.damping"] * gap[-1] ** 2 + np.sin(run.q[-1, 0])
    point = problem.evaluate(y)
    assert point.cost == pytest.approx(want, rel=1e-12)
    h = 2e-3 * np.maximum(np.abs(y), 0.1)
    found = differences(lambda y: problem.evaluate(y).cost, y, h)
    assert found == pytest.approx(problem.gradient(point), rel=1e-8)


# What cannot be simulated


def test_where_a_simulation_fails_the_cost_is_infinite():
    problem = rod_problem()
    y = problem.start.copy()
    y[2] = -40.0  # a mass that makes the inertia negative
    y[5] = 1e160
    assert problem.evaluate(y).cost == np.inf
