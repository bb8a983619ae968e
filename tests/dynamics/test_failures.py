"""Failures are told: which step, when, the residual and the likely cause; nothing is handed on as NaN."""

import numpy as np
import pytest

from mechid import (
    BDF,
    Mechanism,
    MechidError,
    SimulationError,
    Spook,
    Variational,
    assemble,
    simulate,
    transitions,
)
from mechid.studies import mechanisms


def _all_finite(run):
    return np.all(np.isfinite(run.q)) and np.all(np.isfinite(run.states.p))


def test_a_stiff_undamped_mode_at_a_large_step():
    m = mechanisms.loop6(kappa_theta=4e4, kappa_psi=4e4)
    force = np.full((400, 3), 400.0)
    with pytest.raises(
        SimulationError, match=r"Step \d+ at t = .* s could not be solved: .*times the tol"
    ) as e:
        simulate(m, Variational(0.2), 400, inputs=force)
    run = e.value.trajectory
    assert 0 <= run.steps < 400
    assert _all_finite(run)
    quiet = simulate(m, Variational(0.2), 400, inputs=force, throw=False)
    assert quiet.steps == run.steps
    assert quiet.outcome == str(e.value)


@pytest.mark.xdist_group("model B")
def test_the_undamped_baxter_loop_breaks_down_at_a_coarse_step(reference):
    """Known of this model: at dt = 0.01 without loop damping it ends after about 1.5 s."""
    facts = mechanisms.baxter_facts()
    arm = mechanisms.baxter_loop()
    arm = mechanisms.damped(arm, dict(zip(arm.coordinate_names, facts["arm_damping"], strict=False)))
    q = np.concatenate([facts["q0_arm"], np.zeros(24)])
    control = mechanisms.baxter_controller(0.01)
    run = simulate(arm, Variational(0.01), 400, q=q, inputs=control, throw=False)
    assert 1.4 < run.t[-1] < 1.7
    assert "dt = 0.01 s is too large for the mode at" in run.outcome
    assert "some damping" in run.outcome
    assert _all_finite(run)


def test_a_drive_that_pulls_a_loop_out_of_reach():
    m = mechanisms.four_bar().drive("a").drive("c")
    q = assemble(mechanisms.four_bar(), mechanisms.FOUR_BAR_GUESS, hold=["a"])
    path = np.stack([np.zeros(50), q[0] + 0.0 * np.arange(50), q[2] + 0.05 * np.arange(1, 51)], -1)
    with pytest.raises(SimulationError, match="could not be solved"):
        simulate(m, Variational(0.01), 50, q=q, inputs=path)


def test_a_coordinate_without_inertia():
    m = Mechanism("loose").body("a", mass=1.0).prismatic("x", "world", "a", axis="x")
    m = m.body("b").revolute("spin", "a", "b", axis="z")
    with pytest.raises(SimulationError, match="'spin' moves freely without inertia"):
        simulate(m, Variational(0.01), 5, v={"x": 1.0})


def test_a_loop_closed_twice():
    m = mechanisms.four_bar().loop("again", "coupler-end", "rocker-end", kind="pin", axis="y")
    q = assemble(mechanisms.four_bar(), mechanisms.FOUR_BAR_GUESS, hold=["a"])
    with pytest.raises(SimulationError, match=r"singular .*depend on each other"):
        simulate(m, Variational(0.01), 5, q=q)


def test_spook_counts_turns():
    """A spring that is wound up through several of them."""
    m = mechanisms.pendulum().spring("hinge", stiffness=0.05)
    wound, other = (simulate(m, step(0.001), 1500, v=[20.0]) for step in (Spook, Variational))
    assert other.q.max() > 4 * np.pi
    np.testing.assert_allclose(wound.q, other.q, atol=0.1)
    back = simulate(m, Spook(0.001), 1, q=[15.0])
    assert back.q[0, 0] == pytest.approx(15.0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"stepper": Variational(0.0)}, "dt must be positive"),
        ({"stepper": Variational(-0.1)}, "dt must be positive"),
        ({"stepper": Variational(float("nan"))}, "dt must be positive"),
        ({"stepper": Variational(np.full(3, 0.1))}, "3 step sizes were given for 5 steps"),
        ({"stepper": BDF(np.full(5, 0.1))}, "constant step size"),
        ({"stepper": Spook(0.01, compliance=-1.0)}, "compliance of Spook must be ≥ 0"),
        ({"steps": -1}, "steps must be ≥ 0"),
        ({"q": [0.0, 1.0]}, "shape"),
        ({"q": [float("nan")]}, "finite"),
        ({"q": {"hing": 1.0}}, "Did you mean hinge"),
        ({"v": {"knee": 1.0}}, "no coordinate named 'knee'"),
        ({"inputs": np.zeros((5, 2))}, "inputs"),
        ({"inputs": np.full((5, 1), np.nan)}, "finite"),
        ({"inputs": "abc"}, "numbers"),
        ({"inputs": lambda t, q, v: np.zeros(2)}, r"shape \(2,\), not one value for each input"),
        ({"inputs": lambda t, q, v: [float(q[0])]}, "no jax.numpy function"),
        ({"stepper": Variational("a")}, "must be a number"),
        ({"stepper": Spook(0.01, compliance="x")}, "compliance of Spook must be numbers"),
        ({"steps": 2.5}, "whole"),
    ],
)
def test_bad_arguments(change, words):
    arguments = {"stepper": Variational(0.01), "steps": 5} | change
    with pytest.raises(MechidError, match=words):
        simulate(mechanisms.pendulum(), **arguments)


def test_a_start_that_leaves_the_loop_open():
    with pytest.raises(MechidError, match=r"'closure' open by .*assemble"):
        simulate(mechanisms.four_bar(), Variational(0.01), 5)
    q = assemble(mechanisms.four_bar(), mechanisms.FOUR_BAR_GUESS, hold=["a"])
    with pytest.raises(MechidError, match=r"'closure' at .*project_rates"):
        simulate(mechanisms.four_bar(), Variational(0.01), 5, q=q, v={"a": 1.0})


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Variational(0.1, rule="simpson"), "no rule 'simpson'; valid: midpoint, trapezoidal"),
        (lambda: Variational(0.1, forces="right"), "valid: left, balanced"),
        (lambda: BDF(0.1, order=7), "no BDF of order 7"),
    ],
)
def test_steppers_refuse_what_they_do_not_know(make, words):
    with pytest.raises(MechidError, match=words):
        make()


def test_no_steps_give_the_start():
    run = simulate(mechanisms.pendulum(), Variational(0.01), 0, q=[0.3])
    assert run.steps == 0
    assert run.q.tolist() == [[0.3]]
    with pytest.raises(MechidError, match="without steps has no derivatives"):
        transitions(run)
