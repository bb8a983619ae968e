"""`simulation_error` from end to end on a pendulum, and every sentence with which it refuses."""

from __future__ import annotations

import numpy as np
import pytest
from estimation_cases import freed, log_with

from mechid import MechidError, Parameters, Variational, log_of, simulate
from mechid.dynamics.sensors import FunctionSensor, frame_pose, joint_position
from mechid.estimate.experiment import Cost, Experiment, Measured, Start
from mechid.estimate.problem import ShootingProblem
from mechid.estimate.simulation_error import simulation_error
from mechid.estimate.solvers.lbfgsb import LBFGSB
from mechid.estimate.solvers.levenberg_marquardt import LevenbergMarquardt
from mechid.estimate.solvers.steepest_descent import SteepestDescent
from mechid.studies import mechanisms

STD, STEPS = 0.01, 200
STEPPER = Variational(0.01)
ROD = mechanisms.pendulum(damping=0.1).spring("hinge", stiffness=2.0).frame("tip", "rod", origin=(0, 0, -0.5))
TRUTH = {"rod.mass": 1.0, "hinge.damping": 0.1}
FREE = freed(ROD, "rod.mass", start=1.3).free("hinge.damping", start=0.2)
POSITION = joint_position(ROD, "hinge")
(TAU,) = ROD.input_names


def recording(seed=0, std=STD, amplitude=2.0, name="swing", noise=STD, **options):
    torque = amplitude * np.sin(7.0 * 0.01 * np.arange(STEPS))
    run = simulate(ROD, STEPPER, STEPS, q=[1.0], inputs=torque[:, None])
    q = run.q[:, 0] + noise * np.random.default_rng(seed).normal(size=len(run.t))
    log = log_with(name, q=(run.t, q), tau=(run.t[:-1], torque))
    given = {"inputs": {TAU: "tau"}, "start": Start(q={"hinge": 1.0})} | options
    return Experiment(log, [Measured(POSITION, "q", std=std)], **given)


@pytest.fixture(scope="module")
def fit():
    return simulation_error(ROD, STEPPER, recording(), FREE)


def test_mass_and_damping(fit):
    assert fit.converged
    assert fit.outcome.startswith("Converged after ")
    for name, p in fit.parameters.items():
        assert abs(p.value - TRUTH[name]) < 3 * p.std
        assert 0.0 < p.std < 0.05
    assert [p.unit for p in fit.parameters.values()] == ["kg", "N·m·s/rad"]
    assert [p.start for p in fit.parameters.values()] == [1.3, 0.2]
    assert fit.cost[1] == pytest.approx(0.5 * (STEPS + 1), rel=0.3)
    assert fit.cost[0] == pytest.approx(fit.trace[0].cost)
    assert fit.trace[-1].values == pytest.approx(tuple(fit.values.values()))
    assert (fit.estimator, fit.solver) == ("simulation error", "LevenbergMarquardt")
    assert set(fit.seconds) == {"compile", "run"}


def test_residuals_are_those_of_the_fitted_mechanism(fit):
    """`fit.mechanism` simulated anew."""
    (c,) = fit.channels
    log = recording().log
    run = simulate(fit.mechanism, STEPPER, STEPS, q=[1.0], inputs=log["tau"].values[:, None])
    assert c.predicted == pytest.approx(run.q[:, 0], abs=1e-9)
    assert c.measured.tolist() == log["q"].values.tolist()
    assert c.time == pytest.approx(run.t)
    assert (c.experiment, c.channel, c.std, c.estimated) == ("swing", "q", STD, False)
    assert c.rms == pytest.approx(float(np.sqrt(np.mean(c.residual**2))))


@pytest.mark.parametrize("start", [None, Start(q={"hinge": 1.1}, q_std="free", v_std="free")])
def test_without_noise_the_truth_comes_back(start):
    options = {} if start is None else {"start": start}
    fit = simulation_error(
        ROD, STEPPER, recording(noise=0.0, **options), FREE, LevenbergMarquardt(cost_tolerance=1e-20)
    )
    for name, value in TRUTH.items():
        assert fit.values[name] == pytest.approx(value, rel=1e-7)
    if start is not None:
        assert {k: p.value for k, p in fit.starts.items()} == pytest.approx(
            {"swing: q(hinge)": 1.0, "swing: v(hinge)": 0.0}, abs=1e-7
        )


@pytest.mark.parametrize("gradients", ["forward", "adjoint"])
@pytest.mark.parametrize("solver", [LBFGSB(cost_tolerance=1e-14), SteepestDescent(max_iterations=3)])
def test_other_solvers(fit, solver, gradients):
    found = simulation_error(ROD, STEPPER, recording(), FREE, solver, gradients=gradients)
    assert found.solver == type(solver).__name__
    assert found.cost[1] < found.cost[0]
    if isinstance(solver, LBFGSB):
        for name, p in fit.parameters.items():
            assert found.values[name] == pytest.approx(p.value, abs=0.01 * p.std)


def test_estimated_noise(fit):
    """The same parameters, the std of the residuals, and standard deviations that belong to it."""
    found = simulation_error(ROD, STEPPER, recording(std=None), FREE)
    assert found.converged
    (c,) = found.channels
    assert c.estimated
    assert c.std == pytest.approx(c.rms, rel=0.02)
    assert c.std == pytest.approx(STD, rel=0.15)
    assert found.notes == ()
    for name, p in fit.parameters.items():
        assert found.values[name] == pytest.approx(p.value, abs=0.05 * p.std)
        assert found.parameters[name].std == pytest.approx(p.std * c.rms / STD, rel=0.02)
    assert [x.number for x in found.trace] == list(range(len(found.trace)))
    assert f"after {found.iterations} iteration" in found.outcome


def test_at_bound():
    free = freed(ROD, "rod.mass", start=1.3).free("hinge.damping", start=0.3, bounds=(0.2, None))
    found = simulation_error(ROD, STEPPER, recording(), free)
    assert found.converged
    assert found.values["hinge.damping"] == 0.2
    assert found.parameters["hinge.damping"].lower == 0.2
    assert "at bound" in found.flags["hinge.damping"]
    assert "at bound" not in found.flags["rod.mass"]


def limited(transform="none"):
    """mass + 5 damping ≤ 1.3, where the truth has 1.5."""
    free = freed(ROD, "rod.mass", start=0.8, transform=transform)
    free = free.free("hinge.damping", start=0.05, transform=transform)
    return free.limit({"rod.mass": 1.0, "hinge.damping": 5.0}, upper=1.3)


@pytest.mark.parametrize("transform", ["none", "positive"])
def test_a_limit_between_parameters(transform):
    found = simulation_error(ROD, STEPPER, recording(), limited(transform))
    assert found.converged, found.outcome
    assert found.values["rod.mass"] + 5 * found.values["hinge.damping"] == pytest.approx(1.3, abs=1e-6)


@pytest.mark.parametrize("solver", [LBFGSB(), SteepestDescent(first_step=1e-4, max_iterations=20)])
def test_a_limit_is_never_ignored(solver):
    """A solver keeps it, or says that it cannot."""
    try:
        found = simulation_error(ROD, STEPPER, recording(), limited(), solver)
    except MechidError:
        return
    assert found.values["rod.mass"] + 5 * found.values["hinge.damping"] <= 1.3 + 1e-6


def test_two_experiments_share_their_parameters(fit):
    """Their informations add up."""
    other = recording(1, amplitude=4.0, name="harder")
    alone = simulation_error(ROD, STEPPER, other, FREE)
    both = simulation_error(ROD, STEPPER, [recording(), other], FREE)
    assert both.converged
    want = np.linalg.inv(fit.covariance) + np.linalg.inv(alone.covariance)
    assert np.linalg.inv(both.covariance) == pytest.approx(want, rel=0.05)
    weights = [np.linalg.inv(f.covariance) for f in (fit, alone)]
    mean = np.linalg.solve(want, sum(w @ f.theta for w, f in zip(weights, (fit, alone), strict=True)))
    assert both.theta == pytest.approx(mean, rel=5e-3)
    assert [c.experiment for c in both.channels] == ["swing", "harder"]


def test_progress_is_told(fit):
    seen = []
    found = simulation_error(ROD, STEPPER, recording(), FREE, progress=seen.append)
    assert tuple(seen) == found.trace


def test_steps_of_their_own_sizes(fit):
    """The same grid written as an array of steps."""
    found = simulation_error(ROD, Variational(np.full(STEPS, 0.01)), recording(), FREE)
    for name, p in fit.parameters.items():
        assert found.values[name] == pytest.approx(p.value, rel=1e-6)


def test_interrupted(monkeypatch):
    """What was reached so far comes back as a fit."""
    calls, evaluate = [], ShootingProblem.evaluate

    def stop(self, y):
        calls.append(y)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return evaluate(self, y)

    monkeypatch.setattr(ShootingProblem, "evaluate", stop)
    found = simulation_error(ROD, STEPPER, recording(), FREE)
    assert not found.converged
    assert found.outcome == "Interrupted after 1 iteration."
    assert found.cost[1] < found.cost[0]


# What is refused

LOG = log_with("run", q=(0.01 * np.arange(31), np.zeros(31)), other=(0.01 * np.arange(31), np.zeros(31)))


def experiment(**given):
    return Experiment(**({"log": LOG, "measured": [Measured(POSITION, "q", std=0.1)]} | given))


def found_with(**given):
    usual = {"mechanism": ROD, "stepper": STEPPER, "experiments": experiment(), "free": FREE}
    return simulation_error(**(usual | given))


def started(**start):
    return found_with(experiments=experiment(start=Start(**start)))


def measured_by(sensor, *channels):
    return found_with(experiments=experiment(measured=[Measured(sensor, channels or "q")]))


OTHER = mechanisms.pendulum()
STD_RULE = "valid: a number ≥ 0, 'known', 'free'."

REFUSED = {
    # Measured
    "no channels": (lambda: Measured(POSITION, []), "A sensor needs names of channels, not []."),
    "channels by number": (lambda: Measured(POSITION, [1]), "A sensor needs names of channels, not [1]."),
    "std below zero": (lambda: Measured(POSITION, "q", std=-1), "The std of q must be > 0, not -1."),
    "std of zero": (lambda: Measured(POSITION, "q", std=0.0), "The std of q must be > 0, not 0.0."),
    "too many stds": (
        lambda: Measured(POSITION, "q", std=[1, 2]),
        "The std of q must have shape (1,), not shape (2,).",
    ),
    "std in words": (lambda: Measured(POSITION, "q", std="a"), "The std of q must be numbers, not 'a'."),
    "std nan": (lambda: Measured(POSITION, "q", std=np.nan), "The std of q must be finite, not nan."),
    # Experiment
    "no log": (
        lambda: experiment(log=None),
        "An experiment needs a Log, not None: use read_log(…) or log_of(…).",
    ),
    "nothing measured": (
        lambda: experiment(measured=[]),
        "Experiment 'run' measures nothing: give at least one Measured(…).",
    ),
    "measured by name": (
        lambda: experiment(measured=["q"], name="first"),
        "Experiment 'first' needs Measured(…), not 'q'.",
    ),
    "hold": (
        lambda: experiment(hold="linear"),
        "The hold of experiment 'run' is 'linear'; valid: zero-order, midpoint, mean, end.",
    ),
    "terminal weight": (
        lambda: experiment(terminal_weight=-1),
        "The terminal_weight of experiment 'run' must be ≥ 0.",
    ),
    # Start
    "q_std in words": (lambda: started(q_std="maybe"), f"The q_std of the start is 'maybe'; {STD_RULE}"),
    "v_std below zero": (lambda: started(v_std={"hinge": -1}), f"The v_std of 'hinge' is -1; {STD_RULE}"),
    "v_std nan": (lambda: started(v_std=np.nan), f"The v_std of the start is nan; {STD_RULE}"),
    "v_std None": (lambda: started(v_std=None), f"The v_std of the start is None; {STD_RULE}"),
    "v_std True": (lambda: started(v_std=True), f"The v_std of the start is True; {STD_RULE}"),
    "v_std of what is not there": (
        lambda: started(v_std={"elbow": 1.0}),
        "There is no coordinate named 'elbow'. Valid: hinge.",
    ),
    "start of what is not there": (
        lambda: started(q={"elbow": 1.0}),
        "There is no coordinate named 'elbow'. Valid: hinge.",
    ),
    "start of another size": (
        lambda: started(q=[1.0, 2.0]),
        "The initial coordinate must have shape (1,), not shape (2,).",
    ),
    # sensors
    "values and channels": (
        lambda: measured_by(POSITION, "q", "other"),
        "A sensor of experiment 'run' gives 1 values, but 2 channels are named (q, other).",
    ),
    "six values": (
        lambda: measured_by(frame_pose(ROD, "tip")),
        "A sensor of experiment 'run' gives 6 values, but 1 channels are named (q).",
    ),
    "no sensor": (
        lambda: measured_by(None),
        "The sensor of 'q' cannot be computed for this mechanism: 'NoneType' object has no attribute 'predict'.",
    ),
    "a function that fails": (
        lambda: measured_by(FunctionSensor(lambda seen: seen.speed)),
        "The sensor of 'q' cannot be computed for this mechanism: 'Observation' object has no attribute 'speed'.",
    ),
    # simulation_error
    "mechanism": (lambda: found_with(mechanism=3), "An estimation needs a Mechanism, not 3."),
    "stepper": (
        lambda: found_with(stepper=0.01),
        "An estimation needs a stepper (Variational, Spook, BDF or OneStep), not 0.01.",
    ),
    "free by name": (
        lambda: found_with(free="rod.mass"),
        "What is free must be Parameters(mechanism).free(…), not 'rod.mass'.",
    ),
    "free of another": (
        lambda: found_with(free=freed(mechanisms.four_bar(), "c.damping")),
        "The free parameters are those of another mechanism ('four-bar'), not of 'pendulum'.",
    ),
    "nothing free": (
        lambda: found_with(free=Parameters(ROD)),
        "No parameter is free: name at least one, Parameters(mechanism).free('elbow.damping').",
    ),
    "no experiment": (
        lambda: found_with(experiments=[]),
        "An estimation needs at least one experiment.",
    ),
    "no experiments": (
        lambda: found_with(experiments=["swing.csv"]),
        "An estimation needs Experiments, not 'swing.csv'.",
    ),
    "one name twice": (
        lambda: found_with(experiments=[experiment(), experiment()]),
        "Two experiments are called 'run': give each a name of its own.",
    ),
    "gradients": (
        lambda: found_with(gradients="reverse"),
        "There are no gradients='reverse'; valid: forward, adjoint.",
    ),
    "solver by name": (
        lambda: found_with(solver="lm"),
        "A solver is LevenbergMarquardt(), SteepestDescent() or LBFGSB(), not 'lm'.",
    ),
    "a cost for least squares": (
        lambda: found_with(experiments=experiment(cost=Cost(lambda seen, measured, p: 0.0))),
        "LevenbergMarquardt needs a sum of squares, not a cost of your own: use SteepestDescent or LBFGSB.",
    ),
    "negative step": (
        lambda: found_with(stepper=Variational(np.full(31, -0.01))),
        "The step size dt must be positive and finite, not "
        + str(np.full(31, -0.01)).replace("\n", " ")
        + ".",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case):
    call, sentence = REFUSED[case]
    with pytest.raises(MechidError) as found:
        call()
    assert str(found.value) == sentence


MISTAKES = {
    "measured None": lambda: experiment(measured=None),
    "channels as a number": lambda: Measured(POSITION, 3),
    "inputs as a list": lambda: found_with(experiments=experiment(inputs=["tau"])),
    "inputs None": lambda: found_with(experiments=experiment(inputs=None)),
    "start as a dict": lambda: found_with(experiments=experiment(start={"hinge": 1.0})),
    "start None": lambda: found_with(experiments=experiment(start=None)),
    "terminal weight in words": lambda: experiment(terminal_weight="much"),
    "terminal weight nan": lambda: experiment(terminal_weight=np.nan),
    "span in words": lambda: found_with(experiments=experiment(span=("a", None))),
    "span of one": lambda: found_with(experiments=experiment(span=(0.1,))),
    "span as a number": lambda: found_with(experiments=experiment(span=0.1)),
    "feedback as a dict": lambda: found_with(experiments=experiment(feedback={"hinge": "q"})),
    "a cost that is no function": lambda: found_with(
        experiments=experiment(cost=Cost(3)), solver=SteepestDescent()
    ),
    "a cost that gives many numbers": lambda: found_with(
        experiments=experiment(cost=Cost(lambda seen, measured, p: seen.frames)), solver=SteepestDescent()
    ),
    "a cost of a parameter that is not there": lambda: found_with(
        experiments=experiment(cost=Cost(lambda seen, measured, p: p["kappa"])), solver=SteepestDescent()
    ),
    "keep 0": lambda: found_with(keep=0),
    "keep −1": lambda: found_with(keep=-1),
    "solver as a class": lambda: found_with(solver=LevenbergMarquardt),
    "experiments None": lambda: found_with(experiments=None),
    "step nan": lambda: found_with(stepper=Variational(np.nan)),
    "step in words": lambda: found_with(stepper=Variational("small")),
    "step zero": lambda: found_with(stepper=Variational(0.0)),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes_are_told_in_a_sentence(case):
    with pytest.raises(MechidError):
        MISTAKES[case]()


def test_a_start_that_cannot_be_simulated():
    """A spring that pushes: the motion grows beyond all numbers."""
    wild = mechanisms.pendulum(damping=0.1).spring("hinge", stiffness=-3200.0)
    wild = wild.frame("tip", "rod", origin=(0, 0, -0.5))
    free = freed(wild, "rod.mass").free("hinge.damping")
    with pytest.raises(MechidError) as found:
        simulation_error(wild, STEPPER, recording(), free)
    told = str(found.value)
    assert told.startswith("The starting parameters cannot be simulated. Step ")
    assert " s could not be solved: " in told
    assert told.endswith(".")


def test_fewer_samples_than_unknowns():
    m = mechanisms.pendulum()
    log = log_of([0.0, 0.01, 0.02], {"angle": [1.0, 1.0, 0.99]}, units={"angle": "rad"})
    start = Start(q={"hinge": 1.0}, q_std="free", v_std="free")
    given = Experiment(log, [Measured(joint_position(m, "hinge"), "angle", std=1e-3)], start=start)
    free = Parameters(m).free("rod.mass").free("hinge.damping")
    with pytest.raises(MechidError, match="has 3 samples for 4 unknowns"):
        simulation_error(m, Variational(0.01), given, free)
    held = Parameters(m).free("rod.mass").free("hinge.damping", prior=(0.02, 0.01))
    simulation_error(m, Variational(0.01), given, held, LevenbergMarquardt(max_iterations=1))
