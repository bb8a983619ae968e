"""A_k and B_k against finite differences of the simulation itself, for every kind of number."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mechid import (
    Parameters,
    Variational,
    assemble,
    project_rates,
    sensitivities,
    simulate,
    transitions,
)
from mechid.compile import jit
from mechid.dynamics.rollout import rollout
from mechid.studies import mechanisms


@pytest.fixture(scope="module")
def bar():
    """A sprung, damped four-bar in motion."""
    m = mechanisms.four_bar(damping=0.05).spring("b", stiffness=3.0, rest=0.2)
    q = assemble(m, mechanisms.FOUR_BAR_GUESS, hold=["a"])
    return m, q, project_rates(m, q, {"a": 1.0}, hold=["a"])


FREE = {
    "stiffness": "b.stiffness",
    "rest": "b.rest",
    "damping": "c.damping",
    "mass": "coupler.mass",
    "centre of mass": "coupler.com.x",
    "inertia": "rocker.inertia.yy",
    "length": "rocker-end.origin.x",
    "anchor": "b.origin.x",
    "gravity": "gravity.x",
    "gain": "a.torque.gain",
}


def _after(m, stepper, theta, free, q, v, steps):
    return simulate(m, stepper, steps, q=q, v=v, inputs=[0.5], model=free.bind(theta))


def test_one_step_with_every_kind_of_number(bar):
    """B_0: at a fixed first state. Lengths change what closes, so q, v are held and one step is compared."""
    m, q, v = bar
    stepper = Variational(0.005)
    free = Parameters(m)
    for address in FREE.values():
        free = free.free(address)
    theta = free.theta0
    run = _after(m, stepper, theta, free, q, v, 1)
    by = transitions(run, free.bind, theta)
    step = jax.jit(lambda x, model: stepper.step(
        jax.tree.map(lambda a: a[None], x), jnp.array([0.5]), 0.0, 0, model, (x, jnp.zeros(by.z_x.shape[2]))
    ))  # fmt: skip
    x0 = jax.tree.map(lambda a: jnp.asarray(a[0]), run.states)
    base, local = step(x0, free.bind(theta)), jax.jit(stepper.local)
    for i, name in enumerate(FREE):
        h = 1e-6 * max(1.0, abs(theta[i]))
        ends = [step(x0, free.bind(theta + s * h * np.eye(len(theta))[i])) for s in (1, -1)]
        slope = [(local(base.state, e.state), e.z) for e in ends]
        dx, dz = ((a - b) / (2 * h) for a, b in zip(*slope, strict=True))
        assert np.abs(by.B_theta[0, :, i] - dx).max() < 1e-6 * (1 + np.abs(dx).max()), name
        assert np.abs(by.z_theta[0, :, i] - dz).max() < 1e-6 * (1 + np.abs(dz).max()), name


def test_one_step_by_state_and_input(bar):
    m, q, v = bar
    stepper = Variational(0.005)
    run = simulate(m, stepper, 3, q=q, v=v, inputs=[0.5])
    by = transitions(run)
    step = jax.jit(lambda x, u: stepper.step(
        jax.tree.map(lambda a: a[None], x), u, 0.0, 2, run.model, (x, jnp.zeros(2))
    ))  # fmt: skip
    x = jax.tree.map(lambda a: jnp.asarray(a[2]), run.states)
    u = jnp.array([0.5])
    for i in range(6):
        ends = [step(stepper.retract(x, s * 1e-6 * jnp.eye(6)[i]), u) for s in (1, -1)]
        dx = stepper.local(ends[1].state, ends[0].state) / 2e-6
        dz = (ends[0].z - ends[1].z) / 2e-6
        assert np.abs(by.A[2, 0, :, i] - dx).max() < 1e-6 * (1 + np.abs(dx).max())
        assert np.abs(by.z_x[2, 0, :, i] - dz).max() < 1e-6 * (1 + np.abs(dz).max())
    ends = [step(x, u + s * 1e-4) for s in (1, -1)]
    dx = stepper.local(ends[1].state, ends[0].state) / 2e-4
    assert np.abs(by.B_u[2, :, 0] - dx).max() < 1e-8


@pytest.mark.parametrize("name", ["stiffness", "damping", "mass", "inertia", "gravity"])
def test_sensitivities_over_a_run(bar, name):
    """dq/dθ over 60 steps, the momenta of the start included, against two simulations."""
    m, q, v = bar
    free = Parameters(m).free(FREE[name])
    theta, stepper = free.theta0, Variational(0.005)
    run = _after(m, stepper, theta, free, q, v, 60)
    dx = sensitivities(run, free.bind, theta)
    h = 1e-5
    ends = [_after(m, stepper, theta + s * h, free, q, v, 60) for s in (1, -1)]
    dq = (ends[0].q - ends[1].q) / (2 * h)
    dz = (ends[0].multipliers - ends[1].multipliers) / (2 * h)
    assert np.abs(dx.states[:, :3, 0] - dq).max() < 1e-5 * np.abs(dq).max()
    assert np.abs(dx.multipliers[..., 0] - dz).max() < 1e-5 * np.abs(dz).max()


def test_sensitivity_to_the_initial_state(bar):
    """The product of A_k against a run from a moved state."""
    m, q, v = bar
    stepper = Variational(0.005)
    run = simulate(m, stepper, 60, q=q, v=v, inputs=[0.5])
    product = np.eye(6)
    for A in transitions(run).A:
        product = A[0] @ product
    d = np.random.default_rng(1).normal(size=6)
    inputs = np.full((60, 1), 0.5)
    x0 = jax.tree.map(lambda a: jnp.asarray(a[0]), run.states)
    moved = jit(lambda d: rollout(stepper, run.model, stepper.retract(x0, d), inputs))
    ends = [moved(jnp.asarray(s * 1e-6 * d)) for s in (1, -1)]
    last = [jax.tree.map(lambda a: jnp.asarray(a[-1]), e.states) for e in ends]
    slope = stepper.local(last[1], last[0]) / 2e-6
    assert np.abs(product @ d - slope).max() < 1e-5 * np.abs(slope).max()


def test_sensitivities_through_a_controller():
    """Feedback closes the loop: the input moves with the state."""
    m = mechanisms.cart_pendulum(damping=0.1)

    def controller(t, q, v):
        return jnp.array([-20.0 * q[0] - 5.0 * v[0] + jnp.sin(t)])

    free = Parameters(m).free("hinge.damping").free("pole.mass")
    theta, stepper = free.theta0, Variational(0.01)

    def after(th):
        return simulate(m, stepper, 50, q=[0.1, 1.0], inputs=controller, model=free.bind(th))

    dx = sensitivities(after(theta), free.bind, theta)
    for i in range(2):
        h = 1e-5 * np.eye(2)[i]
        dq = (after(theta + h).q - after(theta - h).q) / 2e-5
        assert np.abs(dx.states[:, :2, i] - dq).max() < 1e-5 * np.abs(dq).max()
