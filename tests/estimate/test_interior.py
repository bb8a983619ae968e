"""IPOPT on a program with a closed form; the program of a full discretisation against differences; its fits."""

from __future__ import annotations

import signal
import sys
from dataclasses import dataclass, replace

import numpy as np
import pytest
import scipy.sparse
from estimation_cases import freed, log_with, problem_of

from mechid import (
    BDF,
    Experiment,
    LevenbergMarquardt,
    Measured,
    MechidError,
    Parameters,
    Spook,
    Start,
    Variational,
    full_discretization,
    joint_position,
    simulate,
    simulation_error,
)
from mechid.estimate import interior
from mechid.estimate.chain import ChainProblem
from mechid.estimate.experiment import Condition
from mechid.estimate.first_guess import first_guess
from mechid.estimate.solvers.ipopt import interior_point
from mechid.estimate.transcription import transcribed
from mechid.studies import mechanisms
from mechid.studies.matrix import CASES, recorded

pytestmark = pytest.mark.xdist_group("interior")

# A program with a closed form: the point of a circle that lies nearest, above a floor


@dataclass(frozen=True)
class Nearest:
    """min ½ ‖v − target‖²  with  ‖v‖² = 1  and  v₁ ≥ floor"""

    target: np.ndarray
    floor: float = -np.inf
    start = np.array([0.6, 0.7])
    upper = np.full(2, np.inf)
    row_lower = row_upper = np.zeros(1)

    @property
    def lower(self):
        return np.array([-np.inf, self.floor])

    def values(self, v):
        return 0.5 * float(np.sum((v - self.target) ** 2)), np.array([v @ v - 1.0])

    def slopes(self, v):
        return v - self.target, scipy.sparse.csc_array(2.0 * v[None])

    def curvature(self, v):
        return scipy.sparse.csc_array(np.eye(2))


def unseen(v, multipliers):
    pass


def test_the_nearest_point_of_a_circle(capfd):
    target = np.array([0.9, 0.3])
    ended = interior_point(Nearest(target), 50, unseen)
    assert ended.converged, ended.status
    assert ended.v == pytest.approx(target / np.linalg.norm(target), abs=1e-7)
    assert ended.bound_multipliers == pytest.approx(0.0, abs=1e-7)
    assert capfd.readouterr() == ("", "")


def test_the_nearest_point_of_a_circle_above_a_floor():
    """At (√(1 − f²), f); there the floor pulls with f − b − f (√(1 − f²) − a)/√(1 − f²)."""
    a, b, f = 0.9, 0.3, 0.5
    ended = interior_point(Nearest(np.array([a, b]), f), 50, unseen)
    across = np.sqrt(1.0 - f**2)
    assert ended.converged, ended.status
    assert ended.v == pytest.approx([across, f], abs=1e-7)
    assert ended.bound_multipliers == pytest.approx([0.0, -(f - b - f * (across - a) / across)], abs=1e-6)


def test_every_iteration_is_seen():
    seen = []
    ended = interior_point(
        Nearest(np.array([0.9, 0.3])), 50, lambda v, multipliers: seen.append((v, multipliers))
    )
    assert seen[0][0] == pytest.approx(Nearest.start)
    assert seen[-1][0] == pytest.approx(ended.v)
    v, (multiplier,) = seen[-1]
    assert 2.0 * multiplier * v == pytest.approx([0.9, 0.3] - v, abs=1e-7)


def test_too_few_iterations():
    ended = interior_point(Nearest(np.array([0.9, 0.3])), 1, unseen)
    assert not ended.converged
    assert ended.status == "Maximum_Iterations_Exceeded"


class Nowhere(Nearest):
    """Its row asks for v₁ = 0, below its floor."""

    def values(self, v):
        return super().values(v)[0], v[1:]

    def slopes(self, v):
        return super().slopes(v)[0], scipy.sparse.csc_array(np.array([[0.0, 1.0]]))


def test_rows_that_cannot_be_fulfilled():
    seen = []
    ended = interior_point(Nowhere(np.array([0.9, 0.3]), 0.5), 200, lambda v, multipliers: seen.append(v))
    assert not ended.converged
    assert ended.why == "IPOPT finds no states near here that solve the equations"
    assert len(seen) > 2


class Broken(Nearest):
    """Cannot be computed but at its start."""

    def values(self, v):
        if not np.allclose(v, self.start):
            raise MechidError("Here nothing can be computed.")
        return super().values(v)


def test_what_is_raised_on_the_way_is_raised():
    """By the program, or by who watches; and nothing is printed, as a test above holds."""
    with pytest.raises(MechidError, match=r"Here nothing can be computed\."):
        interior_point(Broken(np.array([0.9, 0.3])), 50, unseen)

    def stop(v, multipliers):
        raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        interior_point(Nearest(np.array([0.9, 0.3])), 50, stop)


class Pressed(Nearest):
    """Ctrl-C comes with every evaluation."""

    def values(self, v):
        signal.raise_signal(signal.SIGINT)
        return super().values(v)


@pytest.fixture
def listening():
    """Ctrl-C is heard also where the tests were started in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_while_the_program_computes(capfd, listening):
    """It ends with the next iteration, and whoever listened before listens again."""
    before = signal.getsignal(signal.SIGINT)
    try:
        interior_point(Pressed(np.array([0.9, 0.3])), 50, unseen)
        pytest.fail("It went on.")
    except KeyboardInterrupt:
        assert capfd.readouterr() == ("", "")
    assert signal.getsignal(signal.SIGINT) is before


# The program of a full discretisation

STD, STEPS, H = 0.01, 80, 0.01
ROD = mechanisms.pendulum(damping=0.1).spring("hinge", stiffness=2.0)
CART = mechanisms.cart_pendulum(damping=0.05)
FREE = freed(ROD, "rod.mass", start=1.3).free("hinge.damping", start=0.2)
CART_FREE = freed(CART, "pole.mass", start=0.4).free("cart.mass", start=1.3).free("hinge.damping", start=0.1)


def swung(mechanism=ROD, stepper=None, q=(1.0,), steps=STEPS, seed=0, name="swing", std=STD, **start):
    """All angles with noise, at every step."""
    stepper = Variational(H) if stepper is None else stepper
    t, names = H * np.arange(steps + 1), mechanism.coordinate_names
    rng = np.random.default_rng(seed)
    push = 4.0 * np.sin(6.0 * t[:-1])
    run = simulate(mechanism, stepper, steps, q=list(q), inputs=push[:, None])
    seen = run.q + STD * rng.normal(size=run.q.shape)
    log = log_with(name, u=(t[:-1], push), **{n: (t, seen[:, i]) for i, n in enumerate(names)})
    measured = [Measured(joint_position(mechanism, *names), names, std=std)]
    start = Start(**({"q": list(q), "q_std": "free", "v_std": "free"} | start))
    return Experiment(log, measured, inputs={mechanism.input_names[0]: "u"}, start=start)


def program_of(mechanism, stepper, experiment, free):
    """The program around a first guess, and unknowns some way from it."""
    base = problem_of(stepper, experiment, free)
    (s,) = base.shootings
    guess = first_guess(s, free.bind(free.theta0))
    first = np.concatenate([guess.q[0, s.first.free_q], guess.v[0, s.first.free_v]])
    errors = sum(kind.name == "DYNAMIC" for kind in stepper.rows(free.bind(free.theta0)))
    problem = ChainProblem(base, np.zeros((errors, errors)))
    place = problem.evaluate(np.concatenate([free.theta0, first]), (guess.motion,))
    program = transcribed(problem, place, np.ones(base.size))
    return program, program.start + 0.1 * np.random.default_rng(1).normal(size=len(program.start))


@pytest.mark.slow
@pytest.mark.parametrize(
    "stepper",
    [Variational(H), BDF(H, 3), pytest.param(Spook(H), marks=pytest.mark.slow)],
    ids=["variational", "BDF3", "SPOOK"],
)
def test_slopes_are_those_of_differences(stepper):
    """Of cost and rows by all unknowns: windows, a first state that follows, rotations away from their guess."""
    start = {"q": [0.7], "q_std": 0.1, "v_std": "free"}
    free = FREE.limit({"rod.mass": 1.0, "hinge.damping": 2.0}, upper=2.0)
    program, v = program_of(ROD, stepper, swung(steps=5, **start), free)
    gradient, rows = program.slopes(v)
    assert program.row_lower[-1] == -np.inf
    h = 1e-5
    for i in range(len(v)):
        one = np.eye(len(v))[i]
        (f1, g1), (f0, g0) = (program.values(v + s * h * one) for s in (1.0, -1.0))
        assert gradient[i] == pytest.approx((f1 - f0) / (2 * h), rel=1e-5, abs=1e-6), i
        assert rows[:, [i]].toarray().ravel() == pytest.approx((g1 - g0) / (2 * h), rel=1e-5, abs=1e-6), i


@pytest.mark.slow
def test_the_hessian_is_that_of_gauss_and_newton():
    """Angles, and so residuals, are linear in the unknowns here: it is the gradient's slope."""
    program, v = program_of(ROD, Variational(H), swung(steps=5), FREE)
    upper = program.curvature(v).toarray()
    H_full = upper + np.triu(upper, 1).T
    assert np.array_equal(upper, np.triu(upper))
    for i in range(len(v)):
        one = np.eye(len(v))[i]
        slope = program.slopes(v + 0.5 * one)[0] - program.slopes(v - 0.5 * one)[0]
        assert H_full[i] == pytest.approx(slope, abs=1e-8 * np.abs(upper).max())
    again = program.curvature(program.start)
    assert np.array_equal(again.indices, program.curvature(v).indices)


# Fits: the same answers as by sequential quadratic programming


def assert_same(found, want, *, of_std=1e-5):
    """To 1e-6 of the value, or to the part of its std to which the other's last step is known."""
    assert found.converged, found.outcome
    assert want.converged, want.outcome
    for kind in ("parameters", "starts"):
        estimates = getattr(want, kind)
        assert list(getattr(found, kind)) == list(estimates)
        for name, p in estimates.items():
            other = getattr(found, kind)[name]
            assert other.value == pytest.approx(p.value, rel=1e-6, abs=of_std * p.std), name
            assert other.std == pytest.approx(p.std, rel=1e-4), name
    assert found.cost[1] == pytest.approx(want.cost[1], rel=3e-7)
    for link in found.extra["solution"].place.links:
        assert np.abs(link.errors).max() < 1e-8
        assert np.abs(link.hard).max(initial=0.0) < 1e-8


def both(mechanism=ROD, stepper=None, experiment=None, free=FREE, **options):
    """By IPOPT and by the usual method."""
    stepper = Variational(H) if stepper is None else stepper
    experiment = SWING if experiment is None else experiment
    return [
        full_discretization(mechanism, stepper, experiment, free, method=method, **options)
        for method in ("ipopt", "sqp")
    ]


SWING = swung()


@pytest.fixture(scope="module")
def pendulum():
    return both()


def test_a_pendulum(pendulum):
    found, want = pendulum
    assert_same(found, want)
    for name, truth in (("rod.mass", 1.0), ("hinge.damping", 0.1)):
        assert abs(found.values[name] - truth) < 3.0 * found.parameters[name].std
    assert (found.estimator, found.solver) == ("full discretisation", "IPOPT")
    assert found.covariance == pytest.approx(want.covariance, rel=1e-4)
    for c, other in zip(found.channels, want.channels, strict=True):
        assert c.residual == pytest.approx(other.residual, abs=1e-5 * c.std)


@pytest.mark.slow
def test_a_pendulum_as_by_simulations(pendulum):
    """These stop much later, so that the answers agree much better."""
    late = LevenbergMarquardt(cost_tolerance=1e-18, step_tolerance=1e-13, initial_damping=1e-8)
    want = simulation_error(ROD, Variational(H), SWING, FREE, late)
    for kind in ("parameters", "starts"):
        for name, p in getattr(want, kind).items():
            other = getattr(pendulum[0], kind)[name]
            assert other.value == pytest.approx(p.value, rel=0.0, abs=1e-6 * p.std), name
            assert other.std == pytest.approx(p.std, rel=1e-4), name


def test_iterations_and_outcome(pendulum):
    found, _ = pendulum
    count = len(found.trace) - 1
    assert found.iterations == count
    assert (
        found.outcome
        == f"Converged after {count} iterations: slopes and equations are zero to 1e-8 of their scale."
    )
    assert [x.number for x in found.trace] == list(range(count + 1))
    assert found.trace[0].values == (1.3, 0.2)
    assert found.trace[-1].values == tuple(found.values.values())
    assert found.trace[-1].cost == pytest.approx(found.cost[1])
    assert found.trace[-1].gradient_norm < 1e-5 * found.trace[0].gradient_norm
    assert [x.evaluations for x in found.trace] == sorted({x.evaluations for x in found.trace})


@pytest.mark.slow
@pytest.mark.parametrize(
    "stepper", [BDF(H, 2), pytest.param(Spook(H), marks=pytest.mark.slow)], ids=["BDF2", "SPOOK"]
)
def test_a_pole_on_a_cart(stepper):
    assert_same(*both(CART, stepper, swung(CART, BDF(H, 2), (0.1, 0.8)), CART_FREE))


@pytest.mark.slow
@pytest.mark.parametrize(
    "stepper", [Variational(0.01, forces="balanced"), BDF(0.01, 2)], ids=["variational", "BDF2"]
)
def test_a_closed_loop(stepper):
    """Rows of the loop are constraints of the program as well."""
    at = CASES["four-bar"]()
    e, _ = recorded(at, {"time": 0.8, "dt": 0.01, "noise": 1e-3, "seed": 0}, "four-bar")
    e = replace(e, start=replace(e.start, q_std="free", v_std="free"))
    found, want = both(at.mechanism, stepper, e, at.free(at.mechanism))
    assert_same(found, want)
    assert found.extra["solution"].place.links[0].motion.z.shape[1] > 0


@pytest.mark.slow
def test_two_logs():
    other = swung(q=(-0.6,), seed=1, name="other", steps=60)
    found, want = both(experiment=[SWING, other])
    assert_same(found, want)
    assert len(found.starts) == 4


@pytest.mark.slow
def test_a_bound_that_holds(pendulum):
    """The barrier keeps away from it on the way, and the end lies on it."""
    free = freed(ROD, "rod.mass", start=1.3).free("hinge.damping", start=0.3, bounds=(0.2, 0.5))
    found, want = both(free=free)
    assert_same(found, want)
    assert found.values["hinge.damping"] == 0.2
    assert all(0.2 < x.values[1] < 0.5 for x in found.trace[:-1])
    assert found.flags == want.flags
    assert "at bound" in found.flags["hinge.damping"]
    assert found.cost[1] > pendulum[0].cost[1] + 1.0


@pytest.mark.slow
def test_a_limit_that_holds(pendulum):
    """Between two parameters, of which one is searched as its logarithm."""
    free = freed(ROD, "rod.mass", start=0.8, transform="positive").free("hinge.damping", start=0.05)
    found, want = both(free=free.limit({"rod.mass": 1.0, "hinge.damping": 1.0}, upper=1.0))
    assert sum(pendulum[0].values.values()) > 1.01
    assert_same(found, want)
    assert sum(found.values.values()) == pytest.approx(1.0, abs=1e-7)
    assert sum(found.values.values()) <= 1.0 + 1e-12


@pytest.mark.slow
def test_a_condition_on_the_first_state(pendulum):
    """Half as many rad/s as rad, which is not so of the best start without it."""
    bound = Condition("half", lambda q, v, model: v[0] - 0.5 * q[0])
    e = replace(SWING, start=replace(SWING.start, conditions=[bound]))
    found, want = both(experiment=e)
    assert_same(found, want)
    q, v = (p.value for p in found.starts.values())
    assert v == pytest.approx(0.5 * q, abs=1e-8)
    assert found.cost[1] > pendulum[0].cost[1] + 1.0


@pytest.mark.slow
def test_noise_that_is_not_given():
    found, want = both(experiment=swung(std=None))
    assert found.converged, found.outcome
    assert found.channels[0].estimated
    assert found.channels[0].std == pytest.approx(want.channels[0].std, rel=1e-3)
    assert found.channels[0].std == pytest.approx(STD, rel=0.3)
    for name, p in want.parameters.items():
        assert found.values[name] == pytest.approx(p.value, abs=1e-3 * p.std)


@pytest.mark.slow
def test_few_iterations_are_told():
    found = full_discretization(
        ROD, Variational(H), SWING, FREE, LevenbergMarquardt(max_iterations=1), method="ipopt"
    )
    assert not found.converged
    assert found.outcome == "Not converged after 1 iteration: allow more of them."
    assert found.iterations == 1


def test_progress_is_told(pendulum):
    seen = []
    found = full_discretization(ROD, Variational(H), SWING, FREE, method="ipopt", progress=seen.append)
    values = [np.array([x.values for x in trace]) for trace in (seen, found.trace)]
    assert values[0] == pytest.approx(values[1], rel=1e-9)
    assert found.values == pytest.approx(pendulum[0].values, rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["raised", "pressed"])
@pytest.mark.parametrize("after", [0, 2])
def test_interrupted(after, how):
    """What was reached so far comes back as a fit."""

    def stop(iteration):
        if iteration.number == after and how == "raised":
            raise KeyboardInterrupt
        if iteration.number == after:
            signal.raise_signal(signal.SIGINT)

    try:
        found = full_discretization(ROD, Variational(H), SWING, FREE, method="ipopt", progress=stop)
    except KeyboardInterrupt:
        pytest.fail("The interruption came through.")
    assert not found.converged
    assert found.outcome == f"Interrupted after {after} iterations."
    assert found.iterations == after
    assert found.values == dict(zip(FREE.names, found.trace[-1].values, strict=True))


@pytest.mark.slow
def test_interrupted_before_the_first_iteration(monkeypatch):
    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(interior, "interior_point", stopped)
    found = full_discretization(ROD, Variational(H), SWING, FREE, method="ipopt")
    assert found.outcome == "Interrupted after 0 iterations."
    assert found.values == pytest.approx({"rod.mass": 1.3, "hinge.damping": 0.2})


def test_without_the_extra(monkeypatch):
    """Told before anything is computed."""
    monkeypatch.setitem(sys.modules, "casadi", None)
    with pytest.raises(MechidError) as found:
        full_discretization(ROD, Variational(H), SWING, Parameters(ROD), method="ipopt")
    assert str(found.value) == "Method 'ipopt' needs the extra: pip install 'mechid[ipopt]'."


@pytest.mark.slow
def test_nothing_is_printed(capfd):
    full_discretization(ROD, Variational(H), SWING, FREE, method="ipopt")
    assert capfd.readouterr() == ("", "")
