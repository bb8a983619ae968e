"""State errors beside the inertias that they act on: full discretisation where a common factor cannot be told."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from mechid import (
    BDF,
    Experiment,
    Measured,
    OneStep,
    Parameters,
    Spook,
    Start,
    SymbolicMechanism,
    Variational,
    full_discretization,
    joint_position,
    log_of,
    simulation_error,
)
from mechid.dynamics.linearization import tangent_of
from mechid.estimate.standard import factors, slopes, standard_of
from mechid.studies import mechanisms

LENGTH, NOISE = 0.5, 2e-3


def pendulum() -> SymbolicMechanism:
    return SymbolicMechanism.from_lagrangian(
        "pendulum",
        "m*l^2/2*p'^2 + m*g*l*cos(p)",
        coordinates={"p": "rad"},
        parameters={"m": (1.0, "kg"), "l": (LENGTH, "m")},
        constants={"g": 9.81},
    )


def experiment(mechanism: SymbolicMechanism) -> Experiment:
    """A swing, by an explicit method of order 8; a sine is left unexplained."""
    t = 0.01 * np.arange(401)
    swing = solve_ivp(
        lambda _, x: [x[1], -9.81 / LENGTH * np.sin(x[0])], (0, 4), [1.0, 0.0], "DOP853", t, rtol=1e-10
    )
    seen = swing.y[0] + 1e-3 * np.sin(11.0 * t) + NOISE * np.random.default_rng(0).normal(size=len(t))
    return Experiment(
        log_of(t, {"p": seen}, units={"p": "rad"}),
        [Measured(joint_position(mechanism, "p"), "p", std=NOISE)],
        start=Start(q=[1.0], q_std="free", v_std="free"),
    )


@pytest.mark.parametrize("stepper", [OneStep(0.01), BDF(0.01, 4), Variational(0.01)])
def test_a_mass_that_no_motion_tells_does_not_vanish(stepper):
    """Equations that hold for every m hold best for none: the length and its std are those with the mass known."""
    m = pendulum()
    given = experiment(m)
    free = Parameters(m).free("l", start=0.4, bounds=(0, None))
    known = full_discretization(m, stepper, given, free)
    both = full_discretization(m, stepper, given, free.free("m", bounds=(0, None)))
    assert both.converged
    assert both.parameters["m"].value == pytest.approx(1.0, rel=0.05)
    assert not np.isfinite(both.parameters["m"].std)
    assert both.parameters["l"].value == pytest.approx(known.parameters["l"].value, rel=1e-6)
    assert both.parameters["l"].std == pytest.approx(known.parameters["l"].std, rel=1e-3)
    assert both.cost[1] == pytest.approx(known.cost[1], rel=1e-6)


def test_length_as_simulation_tells_it():
    m = pendulum()
    free = Parameters(m).free("l", start=0.4, bounds=(0, None)).free("m", bounds=(0, None))
    exact = full_discretization(m, OneStep(0.01), experiment(m), free).parameters["l"]
    shot = simulation_error(m, OneStep(0.01), experiment(m), free).parameters["l"]
    assert exact.value == pytest.approx(shot.value, abs=1e-2 * shot.std)


@pytest.mark.parametrize("stepper", [Variational(0.01), Spook(0.01)])
def test_slopes_of_inertias(stepper):
    """Against differences, in a linkage whose masses, lengths and armatures move."""
    m = mechanisms.four_bar().armature("a", inertia=0.02)
    free = Parameters(m).free("coupler.mass").free("crank.inertia.yy").free("a.armature").free("rocker.com.x")
    theta = free.theta0
    model = free(theta)
    states = jax.vmap(lambda q: stepper.initial(model, q, 0 * q, np.zeros(1), 0.0))(
        np.random.default_rng(0).normal(size=(20, 3))
    )
    standard = standard_of(stepper, model, [states])
    assert factors(standard, stepper, model) == pytest.approx(1.0)
    found = slopes(standard, stepper, model, tangent_of(free, theta))
    for i, h in enumerate(1e-6 * np.eye(free.size)):
        ends = [np.log(factors(standard, stepper, free(theta + s * h))) for s in (-1, 1)]
        assert found[:, i] == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-6, abs=1e-6)
    assert np.abs(found).max() > 0.1
