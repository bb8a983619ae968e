"""The same trajectories, sensitivities and costs as another engine, for models A and B."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mechid.dynamics.linearization import sensitivities
from mechid.dynamics.lowering import Lowering
from mechid.dynamics.prepare import prepare
from mechid.dynamics.simulate import simulate
from mechid.dynamics.variational import Variational
from mechid.studies import mechanisms


def _load(reference, name):
    return np.load(reference / "reference" / "variational" / name)


def _agree(run, wanted, tolerance):
    assert np.abs(run.q - wanted["q"]).max() < tolerance
    assert np.abs(run.states.p - wanted["p"]).max() < tolerance
    assert np.abs(run.multipliers - wanted["lam"]).max() < tolerance
    middle = (run.q[1:] + run.q[:-1]) / 2
    rate = np.diff(run.q, axis=0) / float(run.stepper.dt)
    kinetic, potential = jax.jit(jax.vmap(run.model.energy))(middle, rate)
    change = kinetic + potential - wanted["energy_mid"]  # what rests on the world adds a constant there
    assert np.ptp(change) < tolerance
    assert run.violation.max() < 1e-10


def _bind(mechanism, **patterns):
    """θ ↦ model with one number for all addresses of each pattern."""
    low = Lowering(mechanism)
    places = [np.array([a.index for a in low.layout.find(p)]) for p in patterns.values()]

    def bind(theta):
        values = jnp.asarray(low.values)
        for i, place in enumerate(places):
            values = values.at[place].set(theta[i])
        return prepare(low.topology, values)

    return bind


@pytest.mark.parametrize(
    ("name", "damping", "tolerance"),
    [("A_forced_undamped_200.npz", 0.0, 1e-8), ("A_forced_damped.npz", 0.1, 1e-6)],
)
def test_model_a(reference, name, damping, tolerance):
    wanted = _load(reference, name)
    mechanism = mechanisms.loop6(damping=damping, axes="body")
    assert list(mechanism.coordinate_names) == list(wanted["names"])
    run = simulate(mechanism, Variational(0.01), len(wanted["u"]), inputs=wanted["u"])
    _agree(run, wanted, tolerance)
    tip = run.frame("tip")[:, :3, 3]
    assert np.abs(tip - wanted["w_L3e"]).max() < tolerance


@pytest.mark.parametrize("kappa", [(10, 25), (20, 20)])
def test_the_identification_of_model_a(reference, kappa):
    """Output, sensitivities, cost, gradient and Gauss–Newton Hessian of the draft's experiment."""
    wanted = _load(reference, "A_ident_hybrid_dt0.005_N136.npz")
    key = f"{kappa[0]}_{kappa[1]}"
    mechanism = mechanisms.loop6(kappa_theta=kappa[0], kappa_psi=kappa[1])
    dt = float(wanted["dt"])
    force = mechanisms.loop6_force((np.arange(136) + 0.5) * dt)
    run = simulate(mechanism, Variational(dt), 136, inputs=force)
    W = run.frame("tip")[:, :3, 3]
    assert np.abs(run.q - wanted[f"q_{key}"]).max() < 1e-8
    assert np.abs(W - wanted[f"W_{key}"]).max() < 1e-8
    bind = _bind(mechanism, theta="theta*.stiffness", psi="psi*.stiffness")
    dx = sensitivities(run, bind, jnp.array(kappa, dtype=float)).states
    dW = _frame_slope(run, "tip") @ dx[:, :13]
    assert np.abs(dW - wanted[f"dW_{key}"]).max() < 1e-6 * np.abs(wanted[f"dW_{key}"]).max()
    e = W - wanted["W_true"]
    weight = np.where(np.arange(137) == 136, 2.0, 1.0)
    weight[0] = 0.0
    cost = 0.5 * np.sum(weight * np.sum(e**2, -1))
    gradient = np.einsum("k,kip,ki->p", weight, dW, e)
    hessian = np.einsum("k,kip,kir->pr", weight, dW, dW)
    assert cost == pytest.approx(float(wanted[f"J_{key}"]), rel=1e-6, abs=1e-12)
    assert np.allclose(gradient, wanted[f"g_{key}"], rtol=1e-6, atol=1e-7)
    assert np.allclose(hessian, wanted[f"H_{key}"], rtol=1e-6)


def _frame_slope(run, frame):
    at = run.mechanism.frame_names.index(frame)
    slope = jax.jacfwd(lambda q: run.model.frame_poses(q)[at, :3, 3])
    return np.asarray(jax.jit(jax.vmap(slope))(run.q))


@pytest.fixture(scope="module")
def facts(reference):
    return json.loads((reference / "reference" / "variational" / "model_B.json").read_text())


def _start(facts):
    return np.concatenate([facts["q0_arm"], np.zeros(24)])


@pytest.mark.xdist_group("model B")
def test_model_b_conservative(reference, facts):
    wanted = _load(reference, "B_conservative_dt0.005.npz")
    mechanism = mechanisms.baxter_loop()
    assert list(mechanism.coordinate_names) == list(wanted["names"])
    springs = facts["conservative"]
    for name, k, rest in zip(
        mechanism.coordinate_names, springs["arm_spring_k"], springs["arm_rest"], strict=False
    ):
        mechanism = mechanism.spring(name, stiffness=k, rest=rest)
    run = simulate(mechanism, Variational(0.005), 2000, q=_start(facts))
    _agree(run, wanted, 1e-6)


@pytest.mark.xdist_group("model B")
def test_model_b_forced_and_its_sensitivities(reference, facts):
    """Closed loop: the recorded inputs and cost gradients come out of the feedback itself."""
    wanted, sens = _load(reference, "B_forced.npz"), _load(reference, "B_sens.npz")
    mechanism = mechanisms.baxter_loop_forced()
    controller = mechanisms.baxter_controller(0.01)
    run = simulate(mechanism, Variational(0.01), 2000, q=_start(facts), inputs=controller)
    _agree(run, wanted, 1e-6)
    assert np.abs(run.inputs - wanted["u"]).max() < 1e-6
    bind = _bind(mechanism, theta="th_*.stiffness", psi="ps_*.stiffness")
    dx = sensitivities(run, bind, jnp.array([5.0, 5.0])).states
    W = run.frame("top")[1:, :3, 3]
    dW = (_frame_slope(run, "top") @ dx[:, :31])[1:]
    e = W - sens["W_true"]
    assert np.abs(W - sens["W"]).max() < 1e-9
    assert np.abs(dW - sens["dW"]).max() < 1e-6 * np.abs(sens["dW"]).max()
    assert np.sum(e**2) == pytest.approx(float(sens["J"]), rel=1e-6)
    assert np.allclose(2 * np.einsum("kip,ki->p", dW, e), sens["g"], rtol=1e-6)
    assert np.allclose(2 * np.einsum("kip,kir->pr", dW, dW), sens["H_gn"], rtol=1e-6)
