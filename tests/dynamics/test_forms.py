"""Steps with their errors in another form: derivatives, and that steps leave no errors."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from mechid import BDF, Parameters, Spook, Variational
from mechid.compile import jit
from mechid.dynamics.forms import Forward, TwoImpulses
from mechid.dynamics.linearization import tangent_of
from mechid.dynamics.stepper import RowKind, Stepper
from mechid.studies import mechanisms

FREE = Parameters(mechanisms.furuta()).free("pendulum.mass").free("pendulum.com.z").free("swing.damping")
MODEL = FREE.bind(FREE.theta0)
STEPPERS = {
    "variational": Variational(0.01),
    "bdf2": BDF(0.01, 2),
    "spook": Spook(0.01, compliance=1e-4),
}
FORMS = {"two impulses": TwoImpulses, "forward": Forward}

residual = jit(lambda stepper, xs, z, u, t, k, model: stepper.residual(xs, z, u, t, k, model), once=True)
linearize = jit(
    lambda stepper, xs, z, u, t, k, model, tangent: stepper.linearize(xs, z, u, t, k, model, tangent),
    once=True,
)


def stacked(states: list[Any]) -> Any:
    return jax.tree.map(lambda *a: np.stack(a), *states)


def near_a_motion(stepper: Stepper) -> tuple[list[Any], np.ndarray]:
    """States and multipliers that do not solve the equations."""
    rng = np.random.default_rng(3)
    states = [stepper.initial(MODEL, np.array([0.3, -0.8]), np.array([1.0, -2.0]), np.zeros(MODEL.nu), 0.0)]
    for _ in range(stepper.window):
        states.append(stepper.retract(states[-1], 3e-3 * rng.normal(size=stepper.nx(MODEL))))
    return states, 1e-3 * rng.normal(size=stepper.nz(MODEL))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "inner", ["bdf2", *(pytest.param(n, marks=pytest.mark.slow) for n in ("variational", "spook"))]
)
def test_derivatives_are_those_of_the_residual(inner, form):
    stepper = FORMS[form](STEPPERS[inner])
    states, z = near_a_motion(stepper)
    rest, tangent = (np.zeros(MODEL.nu), 0.0, 5), tangent_of(FREE, FREE.theta0)
    by = linearize(stepper, stacked(states), z, *rest, MODEL, tangent)
    assert np.asarray(by.r) == pytest.approx(np.asarray(residual(stepper, stacked(states), z, *rest, MODEL)))
    rng, h = np.random.default_rng(4), 1e-5
    for _ in range(3):
        dx, dz, dtheta = (rng.normal(size=n) for n in ((len(states), stepper.nx(MODEL)), len(z), FREE.size))

        def at(part, dx=dx, dz=dz, dtheta=dtheta):
            xs = stacked([stepper.retract(x, part * d) for x, d in zip(states, dx, strict=True)])
            model = FREE.bind(FREE.theta0 + part * dtheta)
            return np.asarray(residual(stepper, xs, z + part * dz, *rest, model))

        want = (8.0 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12.0 * h)
        found = np.einsum("wrx,wx->r", by.x, dx) + by.z @ dz + by.theta @ dtheta
        assert found == pytest.approx(want, rel=1e-5, abs=1e-5 * np.abs(want).max())


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "inner", ["variational", *(pytest.param(n, marks=pytest.mark.slow) for n in ("bdf2", "spook"))]
)
def test_a_step_has_no_errors(inner, form):
    stepper = FORMS[form](STEPPERS[inner])
    states, z = near_a_motion(stepper)
    u, t = np.zeros(MODEL.nu), 0.0
    step = jit(lambda s, model, xs, guess: s.step(xs, u, t, 5, model, guess), once=True)
    found = step(stepper, MODEL, stacked(states[:-1]), (states[-1], z))
    left = residual(stepper, stacked([*states[:-1], found.state]), found.z, u, t, 5, MODEL)
    assert np.asarray(left) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.slow
def test_which_rows_are_errors():
    for inner in STEPPERS.values():
        kinds = TwoImpulses(inner).rows(MODEL)
        assert kinds.count(RowKind.DYNAMIC) == inner.nx(MODEL)
        assert Forward(inner).rows(MODEL).count(RowKind.DYNAMIC) == inner.nx(MODEL)
    # the impulse that moves a coordinate by e against its rate is M e / h
    stepper = STEPPERS["bdf2"]
    states, z = near_a_motion(stepper)
    rest = (np.zeros(MODEL.nu), 0.0, 5, MODEL)
    plain, both = (
        np.asarray(residual(s, stacked(states), z, *rest)) for s in (stepper, TwoImpulses(stepper))
    )
    assert both[2:] == pytest.approx(plain[2:])
    M = np.asarray(MODEL.mass_matrix(states[-2].q))
    assert both[:2] == pytest.approx(plain[2:4] + M @ plain[:2] / 0.01)
