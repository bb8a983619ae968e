"""Friction that sticks: closed forms, all cases enumerated, and derivatives on both sides of stick and slip."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mechid
from mechid import BDF, Mechanism, Parameters, Spook, Variational, assemble, simulate, simulate_batch
from mechid.compile import jit
from mechid.dynamics import complementarity, dry
from mechid.dynamics.batch import _together
from mechid.dynamics.linearization import tangent_of
from mechid.dynamics.simulate import planned
from mechid.studies.mechanisms import four_bar

STEPPERS: dict[str, Any] = {
    "midpoint left": Variational,
    "midpoint balanced": lambda h: Variational(h, forces="balanced"),
    "trapezoidal": lambda h: Variational(h, rule="trapezoidal"),
    "BDF 1": lambda h: BDF(h, order=1),
    "BDF 2": BDF,
    "SPOOK": Spook,
}
CORE = ("midpoint balanced", "SPOOK")
every_stepper = pytest.mark.parametrize(
    "name", [n if n in CORE else pytest.param(n, marks=pytest.mark.slow) for n in STEPPERS]
)
MASS, LEVEL, DT = 2.0, 3.0, 0.01


def creep(force: float, inertia: float) -> float:
    """The rate of what sticks, with room for rounding."""
    return 1.01 * dry.CREEP * DT * force / inertia + 1e-12


def block(stiffness: float = 0.0, **friction: float) -> Mechanism:
    """On a horizontal rail."""
    body = Mechanism("block").body("block", mass=MASS, inertia=(0.1, 0.1, 0.1))
    on_rail = body.prismatic("x", "world", "block", axis="x").torque("x").spring("x", stiffness=stiffness)
    return on_rail.dry_friction("x", **({"coulomb": LEVEL} | friction))


def pendulum(**friction: float) -> Mechanism:
    rod = Mechanism("pendulum").body("rod", mass=1.0, com=(0, 0, -0.5), inertia=(0.02, 0.02, 0.01))
    hinged = rod.revolute("hinge", "world", "rod", axis="y").torque("hinge").spring("hinge", stiffness=0.0)
    return hinged.dry_friction("hinge", **friction)


# Closed forms


@every_stepper
def test_a_sliding_block_comes_to_rest_and_stays(name):
    """It slows down by C/m, and then is where v²/(2 C/m) says."""
    run = simulate(block(), STEPPERS[name](DT), 300, v=[0.61])
    slowing = LEVEL / MASS
    assert run.v[1:40, 0] == pytest.approx(0.61 - slowing * run.t[1:40], abs=1e-9)
    assert run.q[-1, 0] == pytest.approx(0.61**2 / (2 * slowing), abs=0.6 * DT * 0.61)
    assert np.abs(np.diff(run.q[100:, 0])).max() < creep(LEVEL, MASS) * DT
    if name in ("midpoint balanced", "trapezoidal"):
        # what is left of the momentum changes its sign at each step, and nothing moves
        assert np.abs(run.v[50:]).max() < 0.5 * DT * slowing
        assert np.abs(run.v[50:-1] + run.v[51:]).max() < 2.0 * creep(LEVEL, MASS)
    else:
        assert np.abs(run.v[50:]).max() < 1e-9


@pytest.mark.slow
@every_stepper
def test_a_push_must_exceed_the_level(name):
    stepper = STEPPERS[name](DT)
    held = simulate(block(), stepper, 1000, inputs=[0.99 * LEVEL])
    assert np.abs(held.q).max() < creep(LEVEL, MASS) * held.t[-1]
    assert np.abs(held.v).max() < 2.0 * creep(LEVEL, MASS)
    pushed = simulate(block(), stepper, 100, inputs=[LEVEL + 1.0])
    assert pushed.v[-1, 0] == pytest.approx(1.0 / MASS, abs=1e-8)
    assert pushed.q[-1, 0] == pytest.approx(0.5 / MASS, rel=0.011)


@pytest.mark.slow
@every_stepper
def test_a_stribeck_excess_is_overcome_once(name):
    """Then only the Coulomb level is left: (F − C)/m."""
    sticky = block(stribeck=1.0, stribeck_velocity=0.05)
    stepper = STEPPERS[name](DT)
    assert (
        np.abs(simulate(sticky, stepper, 200, inputs=[LEVEL + 0.9]).q).max()
        < creep(LEVEL + 0.9, MASS) * 200 * DT
    )
    run = simulate(sticky, stepper, 200, inputs=[LEVEL + 1.1])
    assert run.v[-1, 0] - run.v[-51, 0] == pytest.approx(50 * DT * 1.1 / MASS, rel=1e-6)
    assert simulate(sticky, stepper, 20, v=[0.5], inputs=[LEVEL + 0.9]).v[-1, 0] > 0.5


@pytest.mark.slow
@every_stepper
def test_a_pendulum_rests_off_its_lowest_point(name):
    """Anywhere its weight is held, |m g l sin φ| ≤ C + S; friction only takes energy on the way."""
    run = simulate(pendulum(coulomb=0.8, stribeck=0.3), STEPPERS[name](DT), 1000, q=[2.0])
    rest = run.q[-1, 0]
    assert 0.01 < abs(9.81 * 0.5 * np.sin(rest)) <= 1.1
    assert np.ptp(run.q[-100:]) < creep(1.1, 0.27) * 100 * DT
    rate = run.v[1:, 0] if isinstance(run.stepper, BDF | Spook) else np.diff(run.q[:, 0]) / DT
    assert np.all(run.multipliers[:, -1] * rate <= 1e-12)
    # BDF takes some by itself
    taken, lost = -np.sum(run.multipliers[:, -1] * rate), 9.81 * 0.5 * (np.cos(rest) - np.cos(2.0))
    assert taken == pytest.approx(lost, rel=0.2 if name == "BDF 1" else 0.05)


# Friction of the joint's load


@every_stepper
@pytest.mark.parametrize("height", [0.0, 0.3])
def test_a_rail_that_carries_the_block(name, height):
    """F = μ (r m g + F c): the centre of mass at a height c turns what slows it down into a moment."""
    mu, radius = 0.2, 0.8
    m = Mechanism("block").body("block", mass=MASS, com=(0, 0, height), inertia=(0.1, 0.1, 0.1))
    m = m.prismatic("x", "world", "block", axis="x").torque("x").spring("x", stiffness=0.0)
    m = m.dry_friction("x", load_coefficient=mu, load_radius=radius)
    run = simulate(m, STEPPERS[name](DT), 100, v=[1.0])
    force = mu * radius * MASS * 9.81 / (1.0 - mu * height)
    assert (run.v[40, 0] - run.v[20, 0]) / (20 * DT) == pytest.approx(-force / MASS, rel=1e-3)
    assert run.q[-1, 0] - run.q[-2, 0] == pytest.approx(0.0, abs=1e-7)


@every_stepper
def test_a_bearing_that_carries_a_wheel(name):
    """J φ̈ = −μ r m (|g_x| + |g_z|): the sum of components, not their length."""
    J, mu, radius = 0.05, 0.1, 0.02
    m = Mechanism("wheel", gravity=(3.0, 0, -4.0)).body("wheel", mass=MASS, inertia=(J, J, J))
    m = m.revolute("axle", "world", "wheel", axis="y").torque("axle").spring("axle", stiffness=0.0)
    m = m.dry_friction("axle", load_coefficient=mu, load_radius=radius)
    run = simulate(m, STEPPERS[name](DT), 50, v=[5.0])
    slowing = mu * radius * MASS * (3.0 + 4.0) / J
    assert run.v[2:, 0] - run.v[1:-1, 0] == pytest.approx(-slowing * DT, rel=1e-2)


LOADED = {"load_coefficient": 0.1, "load_radius": 0.02}


def furuta(**load: float) -> Mechanism:
    """An arm about the vertical that carries a pendulum, friction on both hinges."""
    return (
        Mechanism("furuta")
        .body("arm", mass=0.24, com=(0.128, 0, 0), inertia=(1e-4, 3e-3, 3e-3))
        .revolute("base", "world", "arm", axis="z")
        .body("rod", mass=0.43, com=(0, 0, -0.092), inertia=(4e-3, 4e-3, 1e-4))
        .revolute("elbow", "arm", "rod", axis="x", origin=(0.248, 0, 0))
        .torque("base")
        .dry_friction("base", coulomb=0.03, stribeck=0.02, stribeck_velocity=2.0, **load)
        .dry_friction("elbow", coulomb=0.3, stribeck=0.1, stribeck_velocity=3.0, **load)
    )


def loaded_linkage() -> Mechanism:
    """A four-bar whose hinges rub under their load, pulled by a spring between bodies and pushed at its rocker."""
    return (
        four_bar()
        .frame("knee", "coupler", origin=(0.1, 0, 0.05))
        .line_spring("pull", "world", "knee", stiffness=40.0, rest=0.2, damping=0.3)
        .force("push", "knee", moment=True)
        .dry_friction("a", load_coefficient=0.2, load_radius=0.02)
        .dry_friction("b", coulomb=0.01, load_coefficient=0.1, load_radius=0.03)
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["midpoint balanced", "BDF 2"])
@pytest.mark.parametrize("make", [furuta, loaded_linkage], ids=["furuta", "four-bar"])
def test_loads_are_those_of_spooks_joints(name, make):
    """Coordinates know no joints, SPOOK has their impulses as unknowns: both come to one motion."""
    m = make(**LOADED) if make is furuta else make()
    q = [0.3, -1.8] if make is furuta else assemble(m, {"a": 0.9})
    push = 0.3 * np.ones(len(m.input_names))

    def path(stepper: Any) -> np.ndarray:
        steps = round(1.0 / stepper.dt)
        return simulate(m, stepper, steps, every=steps // 50, inputs=push, q=q).q

    # what is of first order in its step taken out
    fine, finer = (path(Spook(dt, compliance=1e-10)) for dt in (4e-5, 2e-5))
    exact = 2.0 * finer - fine
    errors = [np.abs(path(STEPPERS[name](dt)) - exact).max() for dt in (0.01, 0.0025)]
    assert errors[1] < 0.35 * errors[0]
    assert errors[1] < 1e-3 * np.ptp(exact)


@pytest.mark.parametrize("forces", ["left", "balanced"])
def test_more_hinges_rub_than_a_linkage_can_move(forces):
    """One way to move, friction at three hinges that share it: energy falls by what they take."""
    m = four_bar()
    for hinge in "abc":
        m = m.dry_friction(hinge, coulomb=0.05)
    stepper = Variational(1e-3, forces=forces)
    run = simulate(m, stepper, 3000, q=assemble(m, {"a": 0.9}))
    taken = -np.sum(run.multipliers[:, -3:] * np.diff(run.q, axis=0) / 1e-3)
    energy = [float(sum(run.model.energy(run.q[i], run.v[i]))) for i in (0, -1)]
    assert taken == pytest.approx(energy[0] - energy[1], rel=5e-3)
    assert np.all(run.multipliers[:, -3:] * np.diff(run.q, axis=0) <= 1e-12)


@pytest.mark.parametrize("coefficient", [0.14, 0.3, 1.0])
def test_friction_that_grows_with_its_own_load_may_stop_at_once(coefficient):
    """A hinge whose force stops it is pressed the more by that: m c/(J + m c²) per N·m s, against 1/(μ r)."""
    rod = Mechanism("rod").body("rod", mass=1.0, com=(0, 0, -0.1), inertia=(0.0033, 0.0033, 0.001))
    m = rod.revolute("hinge", "world", "rod", axis="y").dry_friction("hinge", load_coefficient=coefficient)
    assert coefficient * 0.1 / (0.0033 + 0.1**2) > 1.0
    run = simulate(m, Spook(1e-3), 20, v=[3.0])
    assert np.abs(run.v[1:]).max() < 1e-5


# Cases of several coordinates


def enumerated(slide: dry.Slide) -> list[np.ndarray]:
    """All solutions, from every case of sticking and sliding and every sign of the joint's impulses."""
    rate, H, sigma, bound, load, N, U, _ = slide
    d, found = len(rate), []
    for cases in itertools.product((-1.0, 0.0, 1.0), repeat=d):
        for signs in itertools.product((-1.0, 1.0), repeat=len(load)):
            J = np.stack(
                [
                    H[i] + sigma[i] * np.eye(d)[i] if c == 0 else np.eye(d)[i] - c * (U[i] * signs) @ N
                    for i, c in enumerate(cases)
                ]
            )
            right = [
                -rate[i] if c == 0 else c * (bound[i] + (U[i] * signs) @ load) for i, c in enumerate(cases)
            ]
            impulse = np.linalg.solve(J, right)
            n = load + N @ impulse
            b, s, c = bound + U @ np.abs(n), rate + H @ impulse, np.array(cases)
            held = np.where(c == 0, np.abs(impulse) <= b + 1e-9, c * s <= 1e-9)
            if np.all(held) and np.all(np.multiply(signs, n) >= -1e-9):
                found.append(impulse)
    return found


@pytest.mark.parametrize("d", [1, 3])
def test_impulses_are_those_of_lemkes_algorithm(d):
    """Without loads friction is a linear complementarity problem in a box."""
    rng = np.random.default_rng(d)
    A = rng.normal(size=(200, d, d))
    H = A @ np.swapaxes(A, 1, 2) + 0.1 * np.eye(d)
    rate, bound, inertia = rng.normal(size=(200, d)), rng.uniform(0.0, 1.0, (200, d)), np.ones(d)

    def both(H, rate, bound):
        none = jnp.zeros((0, d))
        slide = dry.Slide(rate, H, dry.CREEP / inertia, bound, jnp.zeros(0), none, none.T, np.zeros(d, bool))
        lemke = complementarity.boxed(H + dry.CREEP * jnp.eye(d), rate, -bound, bound)
        return dry.solved(slide, jnp.zeros(d))[0], lemke.z

    own, lemke = jit(jax.vmap(both), once=True)(H, rate, bound)
    assert np.asarray(own) == pytest.approx(np.asarray(lemke), abs=1e-9)
    assert 0.1 < np.mean(np.abs(lemke) < 0.999 * bound) < 0.9


@pytest.mark.parametrize("loads", [0, 2])
@pytest.mark.parametrize("d", [1, 2, 3])
def test_impulses_are_those_of_the_one_case_that_fits(d, loads):
    """Random positive definite H of mixed units; loads that make bounds grow by less than impulses do."""
    count, rng = 500 if loads else 1500, np.random.default_rng(d)
    units = 10.0 ** rng.uniform(-1, 1, (count, d))
    A = rng.normal(size=(count, d, d))
    H = units[:, :, None] * (A @ np.swapaxes(A, 1, 2) + 0.01 * np.eye(d)) * units[:, None]
    N, U = rng.uniform(-1, 1, (count, loads, d)), rng.uniform(0, 0.5, (count, d, loads)) / (d * max(loads, 1))
    slides = dry.Slide(
        units * rng.normal(size=(count, d)),
        H,
        dry.CREEP * np.einsum("kii->ki", H),
        rng.uniform(0, 1, (count, d)) / units,
        rng.normal(size=(count, loads)) / units.max(1, keepdims=True),
        N * units[:, None],
        U / units[:, :, None],
        np.zeros((count, d), bool),
    )
    guess = rng.normal(size=(count, d)) / units
    two_sided = np.zeros(d, bool)

    def one(slide, guess):
        slide = slide._replace(one_sided=two_sided)
        return *dry.solved(slide, guess), dry._pivoted(slide, dry.solved(slide, guess)[0])

    impulses, left, pivoted = jax.jit(jax.vmap(one))(slides, guess)
    assert np.asarray(left).max() < 1e-9
    kinds = set()
    # bounds that follow the impulses may lead Lemke's algorithm to a ray, or its signs of loads to change, seldom
    agree = np.abs((pivoted - impulses) * units).max(1) < 1e-6
    assert agree.mean() > 0.98
    for i, impulse in enumerate(np.asarray(impulses)):
        slide = jax.tree.map(lambda a, i=i: a[i], slides)
        wanted = enumerated(slide)
        assert min(np.abs((impulse - w) * units[i]).max() for w in wanted) < 1e-6
        kinds.add(int(np.sum(np.abs(slide.rate + H[i] @ impulse) > 1e-6 * units[i])))
    assert kinds == set(range(d + 1))


# Derivatives


def freed(mechanism: Mechanism) -> Parameters:
    free = (
        Parameters(mechanism)
        .free("rod.mass")
        .free("base.coulomb")
        .free("base.stribeck")
        .free("elbow.coulomb")
    )
    return free.free("elbow.load_coefficient")


FREE = freed(furuta(**LOADED))

residual = jit(lambda stepper, *now: stepper.residual(*now), once=True)
linearize = jit(lambda stepper, *now: stepper.linearize(*now), once=True)
moved = jit(lambda stepper, xs, d: jax.vmap(stepper.retract)(xs, d), once=True)


@pytest.mark.slow
@every_stepper
def test_derivatives_and_steps_on_both_sides_of_stick_and_slip(name):
    """`linearize` against differences of the residual, off the solution; and what a step leaves of the residual."""
    stepper = STEPPERS[name](DT)
    if name == "SPOOK":
        stepper = Spook(DT, compliance=1e-4)
    free = FREE
    theta = free.theta0
    q, v, inputs = [0.3, -0.8], [3.0, -2.0], 0.4 * np.cos(0.3 * np.arange(60))[:, None]
    run = simulate(free.mechanism, stepper, 60, q=q, v=v, inputs=inputs, model=free(theta))
    rng, tangent = np.random.default_rng(2), tangent_of(free, theta)
    seen = set()
    for k in range(2, 60, 4):
        around = np.arange(k + 1 - stepper.window, k + 2)
        xs = jax.tree.map(lambda a, i=around: jnp.asarray(a[i]), run.states)
        z, u, t = run.multipliers[k], run.inputs[k], run.t[k]
        assert np.abs(residual(stepper, xs, z, u, t, k, run.model)).max() < 1e-9
        shape = (stepper.window + 1, stepper.nx(run.model))
        xs = moved(stepper, xs, 1e-5 * rng.normal(size=shape))
        z = z + rng.choice([-1.0, 1.0], z.shape) * rng.uniform(1e-6, 2e-6, z.shape)
        by = linearize(stepper, xs, z, u, t, k, run.model, tangent)
        seen.update((np.abs(run.q[k + 1] - run.q[k]) > 0.05 * DT).tolist())
        h = 1e-7
        directions = [rng.normal(size=s) for s in (shape, z.shape, u.shape, theta.shape)]
        found = np.einsum("wrx,wx->r", by.x, directions[0]), by.z @ directions[1], by.u @ directions[2]
        for i, (exact, d) in enumerate(zip((*found, by.theta @ directions[3]), directions, strict=True)):
            ends = []
            for s in (h, -h):
                dx, dz, du, dtheta = (s * d if i == j else 0.0 * directions[j] for j in range(4))
                now = (moved(stepper, xs, dx), z + dz, u + du, t, k, free(theta + dtheta))
                ends.append(np.asarray(residual(stepper, *now)))
            want = (ends[0] - ends[1]) / (2 * h)
            assert np.abs(exact - want).max() < 2e-6 * (1e-2 + np.abs(want).max()), (k, i)
    assert seen == {True, False}


@pytest.mark.slow
@pytest.mark.parametrize("name", CORE)
def test_derivatives_of_a_simulation(name):
    """By θ, forward and backward, against two simulations that pass through the same cases."""
    stepper, steps = STEPPERS[name](DT), 60
    free = FREE
    theta = free.theta0
    inputs = 0.4 * np.cos(0.3 * np.arange(steps))[:, None]

    def after(theta: np.ndarray) -> Any:
        start = {"q": [0.3, -0.8], "v": [3.0, -2.0], "inputs": inputs}
        return simulate(free.mechanism, stepper, steps, model=free(theta), **start)

    run, rng = after(theta), np.random.default_rng(5)
    forward = mechid.sensitivities(run, free, theta)
    by_x, by_z = rng.normal(size=forward.states.shape[:2]), rng.normal(size=forward.multipliers.shape[:2])
    cost = np.einsum("ki,kij->j", by_x, forward.states) + np.einsum("ki,kij->j", by_z, forward.multipliers)
    backward = mechid.adjoint(run, free, theta, by_x, by_z)
    assert backward == pytest.approx(cost, rel=1e-7, abs=1e-9 * np.abs(cost).max())
    for i in range(free.size):
        h = 1e-6 * np.eye(free.size)[i]
        ends = [after(theta + s * h) for s in (1, -1)]
        dz = (ends[0].multipliers - ends[1].multipliers)[:, -2:] / 2e-6
        want = forward.multipliers[:, -2:, i]
        assert np.abs(want - dz).max() < 1e-4 * np.abs(dz).max(), free.names[i]


# Convergence, batches


def exact_motion(duration: float, steps: int) -> np.ndarray:
    """A block on a spring, k = 40 N/m, driven by 6 sin 4t N: tiny steps in which friction takes what it may."""
    h = duration / steps
    x, v, path = 0.0, 0.0, np.zeros(steps + 1)
    for i in range(steps):
        v += h * (6.0 * np.sin(4.0 * h * (i + 0.5)) - 40.0 * x) / MASS
        v = np.sign(v) * max(abs(v) - h * LEVEL / MASS, 0.0)
        x += h * v
        path[i + 1] = x
    return path


@pytest.mark.slow
@every_stepper
def test_stick_and_slip_converge_to_one_motion(name):
    exact = exact_motion(3.0, 60_000)
    assert np.mean(np.diff(exact) == 0.0) > 0.04
    errors = []
    for steps in (300, 1200):
        t = 3.0 / steps * (np.arange(steps) + 0.5)
        run = simulate(
            block(stiffness=40.0), STEPPERS[name](3.0 / steps), steps, inputs=6.0 * np.sin(4 * t)[:, None]
        )
        errors.append(np.abs(run.q[:, 0] - exact[:: 60_000 // steps]).max())
    assert errors[0] < 0.08 * np.ptp(exact)
    assert errors[1] < 0.35 * errors[0]


@pytest.mark.slow
@pytest.mark.parametrize("stepper", [Variational(DT), Spook(DT)])
def test_a_batch_is_its_runs_one_by_one(stepper):
    m = block()
    runs: list[dict[str, Any]] = [
        {"v": [0.61]},
        {"inputs": [2.9]},
        {"inputs": [4.0]},
        {"v": [-1.0], "inputs": [3.5]},
    ]
    alone = [simulate(m, stepper, 100, **run) for run in runs]
    together = _together([planned(m, stepper, 100, **run) for run in runs], True, None)
    for one, other, third in zip(alone, together, simulate_batch(m, stepper, 100, runs), strict=True):
        assert np.abs(one.q - other.q).max() < 1e-10
        assert np.array_equal(one.q, third.q)
    assert np.ptp([run.q[-1, 0] for run in alone]) > 0.1


@pytest.mark.parametrize("blur", [0.0, 1e-3, 0.1])
def test_slopes_of_a_row_sharp_or_rounded(blur):
    rng = np.random.default_rng(3)
    for _ in range(50):
        impulse, rate, bound, inertia = rng.normal(size=2).tolist() + rng.uniform(0.1, 1.0, 2).tolist()
        at = (jnp.array(impulse), jnp.array(rate), jnp.array(bound))
        found = dry.slopes(*at, inertia, blur)
        wanted = jax.grad(lambda a, b, c, m=inertia: dry.row(a, b, c, m, blur), argnums=(0, 1, 2))(*at)
        np.testing.assert_allclose(found, wanted, atol=1e-12)


def test_a_rounded_row_holds_nearly_the_law():
    """Sliding lacks μ²/(m s) of its bound, sticking creeps by 2 μ² λ / (m (b² − λ²)), μ = m blur."""
    m, b, blur = 0.5, 0.3, 1e-3
    mu = m * blur
    sliding = b - mu**2 / (m * 2.0 + 2 * b) * (1 + b / m / 2.0)
    assert abs(dry.row(jnp.array(sliding), jnp.array(-2.0), b, m, blur)) < 2e-7
    creeping = 2 * mu**2 * 0.1 / (m * (b**2 - 0.1**2))
    assert abs(dry.row(jnp.array(0.1), jnp.array(-creeping - dry.CREEP * 0.1 / m), b, m, blur)) < 1e-10
