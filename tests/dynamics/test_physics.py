"""What the motion must keep: order, momentum, energy, closed loops; and one program for many mechanisms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from mechid import BDF, Mechanism, Spook, Variational, assemble, project_rates, simulate
from mechid.dynamics import driver
from mechid.dynamics.rates import State
from mechid.studies import mechanisms
from mechid.studies.drift import METHODS, explicit


def furuta() -> Mechanism:
    """An arm about the vertical that carries a pendulum, without friction."""
    return (
        Mechanism("furuta")
        .body("arm", mass=0.24, com=(0.128, 0, 0), inertia=(1e-4, 3e-3, 3e-3))
        .revolute("base", "world", "arm", axis="z")
        .body("rod", mass=0.43, com=(0, 0, -0.092), inertia=(4e-3, 4e-3, 1e-4))
        .revolute("elbow", "arm", "rod", axis="x", origin=(0.248, 0, 0))
    )


def test_a_pendulum_follows_its_equation():
    """J φ̈ = −m g l sin φ − b φ̇ + τ, integrated by an adaptive method."""
    length, mass, b, torque = 0.5, 1.2, 0.05, 0.4
    m = mechanisms.pendulum(length, mass, b)
    J, weight = mass * length**2 / 3, mass * 9.81 * length / 2

    def slope(t, x):
        return [x[1], (-weight * np.sin(x[0]) - b * x[1] + torque) / J]

    exact = solve_ivp(slope, (0, 2.0), [1.0, 2.0], rtol=1e-12, atol=1e-12).y[:, -1]
    errors = []
    for n in (200, 400):
        run = simulate(m, Variational(2.0 / n, forces="balanced"), n, q=[1.0], v=[2.0], inputs=[torque])
        errors.append(abs(run.q[-1, 0] - exact[0]))
        assert abs(run.v[-1, 0] - exact[1]) < 250 / n**2
    assert np.log2(errors[0] / errors[1]) == pytest.approx(2.0, abs=0.05)
    assert errors[1] < 3e-4


@pytest.mark.parametrize("rule", ["midpoint", "trapezoidal"])
def test_momentum_is_exact(rule):
    """A cart without force keeps its horizontal momentum; an arm about the vertical its angular one."""
    cart = mechanisms.cart_pendulum()
    furuta_too = furuta().torque("base")  # of the cart's size: one compiled program
    for m, q, v in ((cart, [0.0, 2.0], [1.0, 3.0]), (furuta_too, [0.0, 2.5], [3.0, 1.0])):
        run = simulate(m, Variational(0.01, rule=rule), 2000, q=q, v=v)
        assert np.abs(run.states.p[:, 0] - run.states.p[0, 0]).max() < 1e-9


def test_energy_stays_bounded_over_1e5_steps_and_the_loop_closed():
    bar = mechanisms.four_bar()
    q = assemble(bar, mechanisms.FOUR_BAR_GUESS, hold=["a"])
    run = simulate(bar, Variational(0.005), 100_000, q=q)
    kinetic, potential = run.energy
    error = np.abs(kinetic + potential - potential[0]) / np.ptp(potential)
    assert error.max() < 2e-3
    assert error[-10_000:].max() < 1.2 * error[:10_000].max()
    assert run.violation.max() < 1e-10


def test_explicit_integrators_drift():
    """Why: constraints at acceleration level open, and explicit Euler gains energy."""
    bar = mechanisms.four_bar()
    q = assemble(bar, mechanisms.FOUR_BAR_GUESS, hold=["a"])
    start = np.concatenate([q, np.zeros(3)])
    for name, least in (("explicit Euler", 1e-2), ("RK4", 1e-5)):
        _, opening = explicit(bar.lower(), METHODS[name], start, np.zeros(1), 0.005, 2000)
        assert np.asarray(opening)[-1] > least


def test_the_continuous_equations_agree_with_the_discrete_ones():
    """RK4 at a small step on Eq. 1 and the variational integrator follow one motion."""
    bar = mechanisms.four_bar()
    q = assemble(bar, mechanisms.FOUR_BAR_GUESS, hold=["a"])
    start = np.concatenate([q, np.zeros(3)])
    energy, _ = explicit(bar.lower(), METHODS["RK4"], start, np.zeros(1), 0.0005, 2000)
    fine = simulate(bar, Variational(0.0005), 2000, q=q)
    kinetic, potential = fine.energy
    assert np.abs(np.asarray(energy) - potential[0]).max() < 1e-6
    assert np.abs(kinetic + potential - potential[0]).max() < 1e-4


def test_one_program_serves_mechanisms_of_equal_size():
    """Different joints, names, numbers and topology; one compiled step."""

    def chain(kinds, parents, seed):
        rng = np.random.default_rng(seed)
        m = Mechanism(f"chain{seed}")
        for i, (kind, parent) in enumerate(zip(kinds, parents, strict=True)):
            name = f"body{seed}_{i}"
            m = m.body(name, mass=rng.uniform(0.5, 2), com=rng.normal(size=3) / 5, inertia=(0.1, 0.12, 0.15))
            build = m.revolute if kind == "R" else m.prismatic
            above = "world" if parent < 0 else f"body{seed}_{parent}"
            m = build(f"j{seed}_{i}", above, name, axis=rng.normal(size=3), origin=rng.normal(size=3) / 3)
        return m

    first = chain("RPRR", (-1, 0, 1, 2), 1)
    second = chain("RRPR", (-1, 0, 0, 1), 2)
    simulate(first, Variational(0.01), 10)
    before = driver.advance.compilations()
    run = simulate(second, Variational(0.02), 200, v=[0.1, 0.2, 0.3, 0.1])
    assert driver.advance.compilations() == before
    assert run.steps == 200


def test_steps_may_vary():
    """Unequal steps follow the same motion."""
    m = mechanisms.pendulum()
    even = simulate(m, Variational(0.001), 1000, q=[1.0])
    sizes = np.where(np.arange(666) % 2 == 0, 0.001, 0.002)
    sizes = np.append(sizes, 1.0 - sizes.sum())
    odd = simulate(m, Variational(sizes), len(sizes), q=[1.0])
    assert odd.t[-1] == pytest.approx(1.0)
    assert abs(odd.q[-1, 0] - even.q[-1, 0]) < 1e-4


@pytest.mark.parametrize("stepper", [Variational, BDF, Spook])
def test_a_driven_coordinate_follows_its_path(stepper):
    """A pendulum whose pivot is shaken: the same as one in an accelerated frame."""
    m = mechanisms.cart_pendulum().drive("slide")
    h, steps = 0.001, 1000
    t = h * np.arange(steps + 1)
    path, rate, acceleration = 0.1 * np.sin(5 * t), 0.5 * np.cos(5 * t), lambda s: -2.5 * np.sin(5 * s)
    inputs = np.stack([0 * t[1:], path[1:]], -1)
    run = simulate(m, stepper(h), steps, q=[0.0, 1.0], v=[0.5, 0.0], inputs=inputs)
    assert np.abs(run.q[:, 0] - path).max() < 1e-8

    def slope(s, x):  # uniform rod of length 1 about a moving pivot, hanging along −z, turning about y
        return [x[1], 1.5 * (-9.81 * np.sin(x[0]) + acceleration(s) * np.cos(x[0]))]

    exact = solve_ivp(slope, (0, 1), [1.0, 0.0], rtol=1e-10, atol=1e-10).y[:, -1]
    assert abs(run.q[-1, 1] - exact[0]) < 0.01
    assert abs(run.v[-1, 0] - rate[-1]) < 0.01
    assert abs(run.v[-1, 1] - exact[1]) < 0.05


@pytest.mark.parametrize("order", [1, 2, 3, 4, 5, 6])
def test_bdf_has_its_order(order):
    """Steps from exact past states: the local error falls as dt^(order + 1)."""
    m = mechanisms.pendulum()
    model = m.lower()
    exact = solve_ivp(
        lambda t, x: [x[1], -1.5 * 9.81 / 0.5 * np.sin(x[0])],
        (0, 1.5), [1.0, 0.0], rtol=1e-13, atol=1e-14, dense_output=True,
    ).sol  # fmt: skip
    errors, step = [], jax.jit(BDF.step)
    for h in (0.04, 0.02):
        method = BDF(h, order=order)
        past = np.array([exact(1.0 - h * (order - 1 - i)) for i in range(order)])
        xs = State(jnp.asarray(past[:, :1]), jnp.asarray(past[:, 1:]))
        guess = (State(xs.q[-1], xs.v[-1]), jnp.zeros(0))
        out = step(method, xs, jnp.zeros(1), 1.0, order, model, guess)
        errors.append(abs(float(out.state.q[0]) - exact(1.0 + h)[0]))
    assert np.log2(errors[0] / errors[1]) > order + 0.6


def test_rates_of_a_closed_loop_are_found_from_momenta():
    """Model A has a singular mass matrix; its rates still come out as the differences of its motion."""
    m = mechanisms.loop6(damping=0.1)
    run = simulate(m, Variational(0.001, forces="balanced"), 100, inputs=[5.0, 3.0, 2.0])
    slope = (run.q[52] - run.q[50]) / 0.002
    assert np.linalg.matrix_rank(np.asarray(run.model.mass_matrix(jnp.asarray(run.q[50])))) < 13
    assert np.abs(run.v[51] - slope).max() < 0.02 * np.abs(slope).max()


def test_spook_takes_a_loop_that_is_closed_twice():
    bar = mechanisms.four_bar()
    twice = bar.loop("again", "coupler-end", "rocker-end", kind="pin", axis="y")
    q = assemble(bar, mechanisms.FOUR_BAR_GUESS, hold=["a"])
    once, both = (simulate(m, Spook(0.002), 100, q=q) for m in (bar, twice))
    assert np.abs(once.q - both.q).max() < 1e-6


def test_projected_rates_start_a_loop_without_a_jolt():
    bar = mechanisms.four_bar()
    q = assemble(bar, mechanisms.FOUR_BAR_GUESS, hold=["a"])
    v = project_rates(bar, q, {"a": 2.0}, hold=["a"])
    run = simulate(bar, Variational(1e-4), 5, q=q, v=v)
    assert np.abs((run.q[1] - run.q[0]) / 1e-4 - v).max() < 0.02


@pytest.mark.parametrize("every", [3, 10, 256, 400])
def test_every_so_many_states_are_those_of_the_whole_run(every):
    """Rates of a driven coordinate too, which are those of the last step and no mean."""
    m = mechanisms.cart_pendulum().drive("slide")
    t = 0.01 * np.arange(1, 301)
    given = {"q": [0, 1.0], "v": [0.5, 0], "inputs": np.stack([0 * t, 0.1 * np.sin(5 * t)], -1)}
    whole = simulate(m, Variational(0.01), 300, **given)
    thinned = simulate(m, Variational(0.01), 300, every=every, **given)
    for name in ("t", "q", "v"):
        np.testing.assert_array_equal(getattr(thinned, name), getattr(whole, name)[::every])
    np.testing.assert_array_equal(thinned.inputs, whole.inputs[every - 1 :: every])
    assert thinned.steps == 300 // every
