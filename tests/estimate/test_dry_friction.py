"""Friction that sticks, found together with all states."""

from __future__ import annotations

import numpy as np
import pytest
from estimation_cases import freed, log_with

from mechid import (
    BDF,
    Fit,
    Mechanism,
    MechidError,
    Parameters,
    Spook,
    Variational,
    full_discretization,
    joint,
    simulate,
    simulation_error,
)
from mechid.dynamics.sensors import joint_position
from mechid.estimate.experiment import Experiment, Measured, Start
from mechid.studies import mechanisms

H, STEPS, FINER = 0.005, 600, 10
TRUTH = {"rod.mass": 1.0, "hinge.damping": 0.02, "hinge.coulomb": 0.15}
ROD = mechanisms.pendulum(damping=TRUTH["hinge.damping"]).dry_friction(
    "hinge", coulomb=TRUTH["hinge.coulomb"]
)
FREE = freed(ROD, "rod.mass", start=1.3)
FREE = FREE.free("hinge.damping", start=0.05, bounds=(0, None))
FREE = FREE.free("hinge.coulomb", start=0.05, bounds=(0, None))


def swing(mechanism: Mechanism = ROD, push: float = 0.8, pushed: float = 3.0, seed: int = 0) -> Experiment:
    """Made at a tenth of the step."""
    t, rng = H * np.arange(STEPS + 1), np.random.default_rng(seed)
    torque = push * np.sin(2 * np.pi * 0.7 * t) * (t < pushed)
    fine = Variational(H / FINER, forces="balanced")
    pushes = np.repeat(torque[:-1], FINER)[:, None]
    run = simulate(mechanism, fine, STEPS * FINER, q=[1.5], v=[0.0], inputs=pushes)
    angle = run.q[::FINER, 0] + 1e-3 * rng.normal(size=STEPS + 1)
    log = log_with("swing", q=(t, angle), tau=(t, torque))
    measured = [Measured(joint_position(mechanism, "hinge"), "q", std=1e-3)]
    start = Start(q=[1.5], q_std="free", v_std="free")
    return Experiment(log, measured, inputs={mechanism.input_names[0]: "tau"}, start=start)


def assert_found(fit: Fit, truth: dict[str, float]) -> None:
    assert fit.converged, fit.outcome
    for name, value in truth.items():
        p = fit.parameters[name]
        assert abs(p.value - value) < 3.0 * p.std
        assert p.std < 0.2 * value


def test_mass_damping_and_dry_friction_of_a_pendulum():
    fit = joint(ROD, Variational(H, forces="balanced"), swing(), FREE, state_error_weight=1e8, marginal=False)
    assert_found(fit, TRUTH)


STEPPERS = {"midpoint": Variational, "SPOOK": Spook, "BDF": BDF}
STEPPERS_ONCE = [n if n == "midpoint" else pytest.param(n, marks=pytest.mark.slow) for n in STEPPERS]


@pytest.mark.parametrize("name", STEPPERS_ONCE)
def test_a_pendulum_that_sticks_for_half_of_the_log(name):
    """Simulated from the same start the fit ends far off: its first guess of the friction never sticks."""
    truth = TRUTH | {"hinge.coulomb": 0.6}
    rod = mechanisms.pendulum(damping=0.02).dry_friction("hinge", coulomb=0.6)
    free = freed(rod, "rod.mass", start=1.3).free("hinge.damping", start=0.05, bounds=(0, None))
    free = free.free("hinge.coulomb", start=0.05, bounds=(0, None))
    fit = joint(
        rod,
        STEPPERS[name](H / 2),
        swing(rod, push=2.5, pushed=1.5),
        free,
        state_error_weight=1e8,
        marginal=False,
    )
    assert_found(fit, truth)


def test_exact_equations_give_what_simulations_give():
    """Simulations must start near: each swing that comes to rest too early or late is a valley of its own."""
    stepper = Variational(H, forces="balanced")
    exact = full_discretization(ROD, stepper, swing(), FREE)
    assert exact.converged, exact.outcome
    near = Parameters(ROD)
    for name in TRUTH:
        near = near.free(name, start=exact.parameters[name].value + 0.1 * exact.parameters[name].std)
    simulated = simulation_error(ROD, stepper, swing(), near)
    assert simulated.converged, simulated.outcome
    for name in TRUTH:
        a, b = exact.parameters[name], simulated.parameters[name]
        # corners are rounded over a hundredth of friction's impulses
        assert abs(a.value - b.value) < 0.02 * b.std


def test_interior_points_cannot_take_corners():
    pytest.importorskip("casadi")
    with pytest.raises(MechidError) as found:
        full_discretization(ROD, Variational(H), swing(), FREE, method="ipopt")
    assert str(found.value) == (
        "Dry friction on 'hinge' has corners, which method 'ipopt' cannot take: use 'sqp', or "
        "friction(…, width=…), which is smooth."
    )


# Stops


def falls_on_a_stop() -> tuple[Parameters, Experiment]:
    rod = mechanisms.pendulum(damping=0.05).stops("hinge", upper=0.3)
    run = simulate(rod, Spook(H), STEPS, q=[-1.2])
    angle = run.q[:, 0] + 1e-3 * np.random.default_rng(0).normal(size=STEPS + 1)
    measured = [Measured(joint_position(rod, "hinge"), "q", std=1e-3)]
    start = Start(q=[-1.2], q_std="free", v_std="free")
    free = Parameters(rod).free("hinge.damping", start=0.1, bounds=(0, None))
    free = free.free("hinge.upper_stop", start=0.28)
    return free, Experiment(log_with("stop", q=(run.t, angle)), measured, start=start)


@pytest.mark.parametrize(
    "estimate",
    [
        simulation_error,
        pytest.param(full_discretization, marks=pytest.mark.slow),
        pytest.param(lambda *a: joint(*a, state_error_weight=1e8), marks=pytest.mark.slow),
    ],
)
def test_where_a_stop_is(estimate):
    free, log = falls_on_a_stop()
    fit = estimate(free.mechanism, Spook(H), log, free)
    assert_found(fit, {"hinge.damping": 0.05, "hinge.upper_stop": 0.3})
