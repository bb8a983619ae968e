"""Friction that sticks, found together with all states."""

from __future__ import annotations

import numpy as np
import pytest
from estimation_cases import freed, log_with

from mechid import MechidError, Variational, full_discretization, joint, simulate
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


def swing(seed: int = 0) -> Experiment:
    """Made at a tenth of the step."""
    t, rng = H * np.arange(STEPS + 1), np.random.default_rng(seed)
    torque = 0.8 * np.sin(2 * np.pi * 0.7 * t)
    fine = Variational(H / FINER, forces="balanced")
    pushes = np.repeat(torque[:-1], FINER)[:, None]
    run = simulate(ROD, fine, STEPS * FINER, q=[1.5], v=[0.0], inputs=pushes)
    angle = run.q[::FINER, 0] + 1e-3 * rng.normal(size=STEPS + 1)
    log = log_with("swing", q=(t, angle), tau=(t, torque))
    measured = [Measured(joint_position(ROD, "hinge"), "q", std=1e-3)]
    start = Start(q=[1.5], q_std="free", v_std="free")
    return Experiment(log, measured, inputs={ROD.input_names[0]: "tau"}, start=start)


def test_mass_damping_and_dry_friction_of_a_pendulum():
    fit = joint(ROD, Variational(H, forces="balanced"), swing(), FREE, state_error_weight=1e8, marginal=False)
    assert fit.converged, fit.outcome
    assert fit.iterations <= 6
    for name, truth in TRUTH.items():
        p = fit.parameters[name]
        assert abs(p.value - truth) < 3.0 * p.std
        assert p.std < 0.2 * truth


def test_exact_equations_do_not_stick():
    with pytest.raises(MechidError) as found:
        full_discretization(ROD, Variational(H), swing(), FREE)
    assert str(found.value) == (
        "Dry friction on 'hinge' sticks, which exact equations of motion cannot be solved with: use joint(…), or "
        "friction(…, width=…), which is smooth."
    )
