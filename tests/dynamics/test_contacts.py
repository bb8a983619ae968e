"""Stops and contacts: closed forms, complementarity, and derivatives in every case."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mechid import BDF, Mechanism, MechidError, Parameters, Spook, Variational, simulate
from mechid.compile import jit
from mechid.dynamics.linearization import tangent_of

DT, G = 0.002, 9.81


def pendulum(**stops: float) -> Mechanism:
    rod = Mechanism("pendulum").body("rod", mass=1.0, com=(0, 0, -0.5), inertia=(0.02, 0.02, 0.01))
    return rod.revolute("hinge", "world", "rod", axis="y").torque("hinge").stops("hinge", **stops)


def block(slope: float, friction: float) -> Mechanism:
    """A point mass, but for a little inertia, free in space above a plane that slopes down along x."""
    turn = (0.0, slope, 0.0)
    return (
        Mechanism("block")
        .body("block", mass=2.0, inertia=(1.0, 1.0, 1.0))
        .floating("free", "world", "block")
        .frame("ground", "world", rotation=turn)
        .contact("touch", point="block", plane="ground", friction=friction)
    )


def table(friction: float = 0.5) -> Mechanism:
    """A board on four feet."""
    board = Mechanism("table").body("board", mass=4.0, com=(0.05, 0, 0), inertia=(0.1, 0.2, 0.3))
    board = board.floating("free", "world", "board")
    for i, (x, y) in enumerate([(-0.2, -0.3), (-0.2, 0.3), (0.2, -0.3), (0.2, 0.3)]):
        board = board.frame(f"foot{i}", "board", origin=(x, y, -0.1))
        board = board.contact(f"touch{i}", point=f"foot{i}", plane="world", friction=friction)
    return board.force("push", "board")


def test_a_pendulum_falls_on_its_stop_and_rests_there():
    run = simulate(pendulum(upper=0.3), Spook(DT), 800, q=[-1.2])
    hit = np.argmax(run.q[:, 0] > 0.3 - 1e-3)
    assert 50 < hit < 400
    # impacts are inelastic: it falls back by its own weight alone
    assert run.q[:, 0].max() < 0.3 + 1e-6
    assert abs(run.v[hit + 2, 0]) < 0.05
    free = simulate(pendulum(upper=3.0), Spook(DT), hit - 2, q=[-1.2])
    assert run.q[: hit - 1, 0] == pytest.approx(free.q[:, 0], abs=1e-9)


def test_a_stop_carries_what_leans_on_it():
    run = simulate(pendulum(lower=0.3), Spook(DT, compliance=1e-10), 400, q=[0.5])
    assert run.q[-1, 0] == pytest.approx(0.3, abs=1e-6)
    assert abs(run.v[-1, 0]) < 1e-6
    # the impulse against the stop is that of the weight
    assert run.multipliers[-1, -1] / DT == pytest.approx(0.5 * G * np.sin(0.3), rel=1e-3)
    pulled = simulate(pendulum(lower=0.3), Spook(DT), 400, q=[0.5], inputs=np.full((400, 1), 3.0))
    assert pulled.q[-1, 0] > 0.5


@pytest.mark.parametrize("slope", [0.2, 0.5])
def test_a_block_on_a_slope_sticks_or_slides(slope):
    friction = 0.3
    run = simulate(block(slope, friction), Spook(DT), 500)
    along = run.q[:, 0] * np.cos(slope) - run.q[:, 2] * np.sin(slope)
    across = run.q[:, 0] * np.sin(slope) + run.q[:, 2] * np.cos(slope)
    assert np.abs(across).max() < 1e-6
    faster = max(np.sin(slope) - friction * np.cos(slope), 0.0) * G
    t = run.t[-1]
    # first order: a step's worth of speed
    assert along[-1] == pytest.approx(0.5 * faster * t * (t + DT), rel=1e-3, abs=1e-5)


def test_feet_share_the_weight_and_hold_a_push():
    weight, push = 4.0 * G, 0.9 * 0.5 * 4.0 * G
    inputs = np.tile([push, 0.0, 0.0], (300, 1))
    run = simulate(table(), Spook(DT), 300, q=[0, 0, 0.1, 0, 0, 0], inputs=inputs)
    assert np.abs(run.q[-1] - run.q[0]).max() < 1e-4
    normal, along = run.multipliers[-1, :4] / DT, run.multipliers[-1, 4:12].reshape(4, 2) / DT
    assert np.all(normal >= 0.0)
    assert normal.sum() == pytest.approx(weight, rel=1e-6)
    assert -along[:, 0].sum() == pytest.approx(push, rel=1e-3)
    assert np.all(np.abs(along) <= 0.5 * normal[:, None] + 1e-9)
    slides = simulate(table(), Spook(DT), 300, q=[0, 0, 0.1, 0, 0, 0], inputs=2.0 * inputs)
    t = slides.t[-1]
    assert slides.q[-1, 0] == pytest.approx(0.5 * (2 * push - 0.5 * weight) / 4.0 * t * (t + DT), rel=2e-2)


def test_a_dropped_board_lands():
    run = simulate(table(), Spook(DT), 500, q=[0, 0, 0.15, 0.1, 0.05, 0], v=[0.2, 0, 0, 0, 0, 0])
    assert run.q[-1, 2] == pytest.approx(0.1, abs=1e-4)
    assert np.abs(run.q[-1, 3:5]).max() < 1e-3
    assert np.abs(run.v[-1]).max() < 1e-3


FREE = (
    Parameters(table())
    .free("board.mass")
    .free("board.com.x")
    .free("touch0.contact_friction")
    .free("foot1.origin.z")
)
residual = jit(lambda stepper, *now: stepper.residual(*now), once=True)
linearize = jit(lambda stepper, *now: stepper.linearize(*now), once=True)
moved = jit(lambda stepper, xs, d: jax.vmap(stepper.retract)(xs, d), once=True)


def assert_slopes(free: Parameters, run, picked) -> None:
    """`linearize` against differences of the residual near steps of a run, which leave nothing of it."""
    stepper, theta = run.stepper, free.theta0
    rng, tangent = np.random.default_rng(2), tangent_of(free, free.theta0)
    for k in picked:
        xs = jax.tree.map(lambda a, k=k: jnp.asarray(a[k : k + 2]), run.states)
        z, u, t = run.multipliers[k], run.inputs[k], run.t[k]
        assert np.abs(residual(stepper, xs, z, u, t, k, run.model)).max() < 1e-8
        shape = (2, stepper.nx(run.model))
        xs = moved(stepper, xs, 1e-5 * rng.normal(size=shape))
        z = z + rng.choice([-1.0, 1.0], z.shape) * rng.uniform(1e-6, 2e-6, z.shape)
        by = linearize(stepper, xs, z, u, t, k, run.model, tangent)
        h = 1e-8  # so short that hardly a corner lies within it
        ways = [rng.normal(size=s) for s in (shape, z.shape, u.shape, theta.shape)]
        found = np.einsum("wrx,wx->r", by.x, ways[0]), by.z @ ways[1], by.u @ ways[2], by.theta @ ways[3]
        for i, exact in enumerate(found):
            ends = []
            for s in (h, -h):
                dx, dz, du, dtheta = (s * ways[j] if i == j else 0.0 * ways[j] for j in range(4))
                now = (moved(stepper, xs, dx), z + dz, u + du, t, k, free(theta + dtheta))
                ends.append(np.asarray(residual(stepper, *now)))
            want = (ends[0] - ends[1]) / (2 * h)
            assert np.abs(exact - want).max() < 3e-5 * (1e-2 + np.abs(want).max()), (k, i)


def test_derivatives_of_contacts():
    inputs = np.tile([20.0, 3.0, 0.0], (120, 1))
    run = simulate(
        table(),
        Spook(DT, compliance=1e-4),
        120,
        q=[0, 0, 0.12, 0.1, 0.05, 0],
        inputs=inputs,
        model=FREE(FREE.theta0),
    )
    normal = run.multipliers[:, :4]
    assert np.any(normal[:40] == 0.0)
    assert np.any(normal > 0.0)
    assert_slopes(FREE, run, range(5, 120, 23))


def test_derivatives_of_stops():
    rod = pendulum(lower=-0.2, upper=0.3).damper("hinge", damping=0.1)
    free = Parameters(rod).free("rod.mass").free("hinge.upper_stop").free("hinge.damping")
    run = simulate(rod, Spook(DT, compliance=1e-4), 400, q=[-1.2], model=free(free.theta0))
    assert np.any(run.multipliers[:, -1] > 0.0)
    assert_slopes(free, run, range(5, 400, 79))


@pytest.mark.parametrize("stepper", [Variational(DT), BDF(DT)])
def test_other_steppers_refuse_them(stepper):
    name = type(stepper).__name__
    with pytest.raises(MechidError, match=f"^{name} knows no stops: Spook does.$"):
        simulate(pendulum(upper=0.3), stepper, 10)
    with pytest.raises(MechidError, match=f"^{name} knows no contacts: Spook does.$"):
        simulate(block(0.1, 0.3), stepper, 10)
    rod = Mechanism("rod").body("rod", mass=1.0).revolute("hinge", "world", "rod", axis="y")
    free = Parameters(rod.dry_friction("hinge")).free("hinge.load_coefficient", start=0.1)
    with pytest.raises(MechidError, match=f"^{name} takes a load_coefficient of dry friction only where the"):
        simulate(free.mechanism, stepper, 10, model=free(free.theta0))


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda m: m.stops("hinge"), "The stops of 'hinge' need lower=…, upper=… or both."),
        (lambda m: m.stops("hinge", lower=1, upper=0), "must have lower < upper, not 1 and 0"),
        (lambda m: m.stops("knee", lower=1), "knee"),
        (
            lambda m: m.contact("c", point="rod", plane="rod"),
            "Contact 'c' is between frame 'rod' and itself.",
        ),
        (lambda m: m.contact("c", point="toe", plane="world"), "toe"),
        (lambda m: m.contact("c", point="rod", plane="world", friction=-1), "must be"),
    ],
)
def test_mistakes(make, told):
    rod = Mechanism("rod").body("rod", mass=1.0).revolute("hinge", "world", "rod", axis="y")
    with pytest.raises(MechidError, match=told.replace("(", r"\(").replace(".", r"\.")):
        make(rod)
