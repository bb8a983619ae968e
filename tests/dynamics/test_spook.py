"""SPOOK where other steppers have trouble: mass ratios of ten thousand, rows that say the same twice; softness of
single constraints, stiff viscous friction and motor shafts, by closed forms."""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np
import pytest

from mechid import Mechanism, MechidError, Softness, Spook, Variational, simulate
from mechid.dynamics import driver
from mechid.studies import mechanisms


def chain(upper: float, lower: float) -> Mechanism:
    """A double pendulum of two masses, kg."""
    m = Mechanism("chain")
    for name, parent, mass in (("upper", "world", upper), ("lower", "upper", lower)):
        m = m.body(name, mass=mass, com=(0, 0, -0.25), inertia=(0.02 * mass, 0.02 * mass, 0.001 * mass))
        below = (0, 0, 0) if parent == "world" else (0, 0, -0.5)
        m = m.revolute(f"{name}_hinge", parent, name, axis="y", origin=below)
    return m


@pytest.mark.parametrize("masses", [(1.0, 1.0), (0.01, 100.0), (100.0, 0.01)])
def test_mass_ratios(masses):
    """The error is one of the step alone: first order, whatever the masses."""
    m, start = chain(*masses), [0.5, 0.2]
    exact = simulate(m, Variational(2e-4, forces="balanced"), 2500, q=start).q[-1]
    off = [
        np.abs(simulate(m, Spook(dt, compliance=1e-12), round(0.5 / dt), q=start).q[-1] - exact)
        for dt in (1e-3, 5e-4)
    ]
    assert np.all(off[0] < 3e-3)
    assert off[0] / off[1] == pytest.approx(2.0, rel=0.05)


def test_a_door_on_three_hinges():
    """Six rows too many: J φ̈ = τ as on one hinge, and the hinges share the weight."""
    J, torque, dt = 0.6 + 10.0 * 0.4**2, 1.5, 1e-3
    door = Mechanism("door").body("door", mass=10.0, com=(0.4, 0, 0), inertia=(1.0, 1.0, 0.6))
    door = door.revolute("hinge", "world", "door", axis="z").torque("hinge")
    for name, z in (("low", -0.8), ("high", 0.8)):
        door = door.frame(f"post.{name}", "world", origin=(0, 0, z))
        door = door.frame(f"leaf.{name}", "door", origin=(0, 0, z))
        door = door.loop(name, f"post.{name}", f"leaf.{name}", kind="point")
    run = simulate(door, Spook(dt, compliance=1e-10), 1000, inputs=np.full((1000, 1), torque))
    t = run.t[-1]
    assert run.q[-1, 0] == pytest.approx(0.5 * torque / J * t * (t + dt), rel=1e-4)
    # rows along z are equally soft, so that each hinge carries a third
    forces = np.abs(run.multipliers[-1]) / dt
    assert np.sum(np.abs(forces - 10.0 * 9.81 / 3) < 1e-3) == 3


def test_slopes_of_what_slides_backwards():
    """Coordinates by the bodies' poses, backwards as well as forwards."""
    m, stepper = mechanisms.cart_pendulum(), Spook(0.01)
    model = m.lower()
    x = stepper.initial(model, np.array([0.1, 0.8]), np.zeros(2), np.zeros(model.nu), 0.0)

    def positions(d):
        return stepper.positions(model, stepper.retract(x, d))

    still = np.zeros(stepper.nx(model))
    backward, forward = (np.asarray(jax.jit(by(positions))(still)) for by in (jax.jacrev, jax.jacfwd))
    assert np.abs(forward).max() > 0.5
    assert backward == pytest.approx(forward, abs=1e-12)


# Softness of single constraints: ε F, and τ

G = 9.81


def test_a_soft_joint_gives_way_by_compliance_times_force():
    """That joint only; and another number does not compile anew."""
    m, dt = chain(1.0, 2.0), 2e-3

    def sinks(**soft: Softness) -> np.ndarray:
        run = simulate(m, Spook(dt, compliance=1e-12, relaxation_time=0.02, constraints=soft), 500)
        return run.states.r[0, :, 2] - run.states.r[-1, :, 2]

    lower = sinks(lower_hinge=Softness(compliance=1e-4))
    assert lower == pytest.approx([0.0, 1e-4 * 2.0 * G], rel=1e-6, abs=1e-9)
    compiled = driver.advance.compilations()
    assert sinks(lower_hinge=Softness(compliance=3e-4))[1] == pytest.approx(3e-4 * 2.0 * G, rel=1e-6)
    assert sinks(upper_hinge=Softness(compliance=1e-4)) == pytest.approx([1e-4 * 3.0 * G] * 2, rel=1e-6)
    assert driver.advance.compilations() == compiled


def test_rotations_of_a_soft_joint_are_apart():
    """A door that sags about a horizontal axis by ε M, its hinge in place; then the other way round."""
    door = Mechanism("door").body("door", mass=2.0, com=(0.4, 0, 0), inertia=(0.1, 0.1, 0.1))
    door = door.revolute("hinge", "world", "door", axis="z")
    found = {}
    for what, soft in {
        "turns": Softness(rotational_compliance=1e-4),
        "sinks": Softness(compliance=1e-4),
    }.items():
        run = simulate(
            door, Spook(2e-3, compliance=1e-12, relaxation_time=0.02, constraints={"hinge": soft}), 1000
        )
        tilt = 2.0 * run.states.e[-1, 0, 2]
        found[what] = tilt, run.states.r[-1, 0, 2] + 0.4 * np.sin(tilt)
    assert found["turns"] == pytest.approx((1e-4 * 2.0 * G * 0.4, 0.0), rel=1e-4, abs=1e-8)
    assert found["sinks"] == pytest.approx((0.0, -1e-4 * 2.0 * G), rel=1e-4, abs=1e-8)


def test_soft_loops_and_stops():
    ball = Mechanism("ball").body("ball", mass=3.0, inertia=(0.1, 0.1, 0.1)).floating("free", "world", "ball")
    ball = ball.frame("post", "world").loop("rope", "post", "ball", kind="point")
    stepper = Spook(2e-3, compliance=1e-12, relaxation_time=0.02)
    soft = {"rope": Softness(compliance=2e-4)}
    run = simulate(ball, replace(stepper, constraints=soft), 500)
    assert run.q[-1, 2] == pytest.approx(-2e-4 * 3.0 * G, rel=1e-6)
    rod = Mechanism("rod").body("rod", mass=1.0, com=(0.5, 0, 0), inertia=(0.1, 0.1, 0.1))
    rod = rod.revolute("hinge", "world", "rod", axis="y").stops("hinge", upper=0.0)
    soft = {"hinge.stops": Softness(rotational_compliance=1e-3)}
    run = simulate(rod, replace(stepper, constraints=soft), 1000)
    assert run.q[-1, 0] == pytest.approx(1e-3 * 0.5 * G, rel=1e-4)


def test_gaps_close_at_the_relaxation_time_of_their_joint():
    """v⁺ = −(4/h) γ g + γ v of stiff rows; about exp(−t/τ)."""
    dt, steps = 1e-3, 60
    m = chain(1.0, 1.0)
    times = {"upper_hinge": 0.01, "lower_hinge": 0.03}
    stepper = Spook(
        dt, compliance=0.0, constraints={k: Softness(relaxation_time=t) for k, t in times.items()}
    ).on(m)
    model = m.lower()
    x = stepper.initial(model, np.zeros(2), np.zeros(2), np.zeros(0), 0.0)
    apart = np.zeros((4, 2, 3))
    # both bodies aside, along the axes: the lower one once more
    apart[0, :, 1] = 1e-3, 3e-3
    x = stepper.retract(x, apart.reshape(-1))

    @jax.jit
    def step(x, z, model):
        end = stepper.step(jax.tree.map(lambda a: a[None], x), np.zeros(0), 0.0, 0, model, (x, z))
        return end.state, end.z

    z, gaps = np.zeros(stepper.nz(model)), []
    for _ in range(steps):
        x, z = step(x, z, model)
        gaps.append(np.diff(np.asarray(x.r)[:, 1], prepend=0.0))
    for seen, start, tau in zip(np.transpose(gaps), (1e-3, 2e-3), times.values(), strict=True):
        gamma, g, v = 1.0 / (1.0 + 4.0 * tau / dt), start, 0.0
        for now in seen:
            v = -4.0 / dt * gamma * g + gamma * v
            g += dt * v
            assert now == pytest.approx(g, abs=1e-12)
        assert np.log(seen[9] / seen[-1]) == pytest.approx((steps - 10) * dt / tau, rel=0.08)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (
            {"elbow": Softness(1e-4)},
            "There is no constraint .of Spook. named 'elbow'.*upper_hinge, lower_hinge",
        ),
        ({"upper_hinge": 1e-4}, "The softness of 'upper_hinge' must be Softness"),
        ({"upper_hinge": Softness(relaxation_time=-1.0)}, "The relaxation_time of 'upper_hinge' must be ≥ 0"),
        (1e-4, "The constraints of Spook must be {name: Softness"),
    ],
)
def test_softness_that_is_refused(given, complaint):
    with pytest.raises(MechidError, match=complaint):
        simulate(chain(1.0, 1.0), Spook(1e-3, constraints=given), 5)


# Velocity constraints of a hinge (Marklund, Appendix F)


@pytest.mark.parametrize("stiffness", [0.1, 1e4])
def test_viscous_friction_is_a_velocity_constraint(stiffness):
    """G v⁺ + λ/(b h) = 0: a wheel slows down by 1/(1 + b h/J) a step, however stiff; a torque turns it at τ/b."""
    J, dt = 0.3, 0.01
    b = stiffness * J / dt
    wheel = Mechanism("wheel").body("wheel", mass=1.0, inertia=(0.2, 0.2, J))
    wheel = wheel.revolute("axle", "world", "wheel", axis="z").damper("axle", damping=b).torque("axle")
    rates = simulate(wheel, Spook(dt), 5, v=[2.0]).v[:, 0]
    assert rates == pytest.approx(2.0 / (1.0 + stiffness) ** np.arange(6), rel=1e-9)
    run = simulate(wheel, Spook(dt), 200, inputs=np.full((200, 1), 0.7 * b))
    assert np.all(np.diff(run.v[:, 0]) > -1e-12)
    assert run.v[-1, 0] == pytest.approx(0.7, rel=1e-6)


def test_motor_shaft_and_viscous_friction_are_the_papers_constraints():
    """(F.2) and (F.3) with multipliers of their own: impulses λ on hinges, found from how the bare chain moves."""
    dt, b, shaft, torque = 0.01, np.array([30.0, 0.4]), np.array([0.0, 0.7]), np.array([0.0, 1.3])
    start = {"q": [0.4, -0.7], "v": [1.0, 3.0]}
    bare, full = chain(1.0, 2.0), chain(1.0, 2.0)
    for i, hinge in enumerate(("upper_hinge", "lower_hinge")):
        bare = bare.torque(hinge)
        full = full.torque(hinge).damper(hinge, damping=b[i]).armature(hinge, inertia=shaft[i])

    def rates(m: Mechanism, u: np.ndarray) -> np.ndarray:
        return simulate(m, Spook(dt), 1, inputs=u, **start).v[-1]

    free = rates(bare, np.zeros(2))
    moved = np.stack([rates(bare, e) - free for e in np.eye(2)], 1) / dt
    # λ_b = −b h s⁺, λ_motor = J (s − s⁺) + h τ
    H = np.eye(2) + moved @ np.diag(b * dt + shaft)
    expected = np.linalg.solve(H, free + moved @ (shaft * start["v"] + dt * torque))
    assert rates(full, torque) == pytest.approx(expected, rel=1e-9)
    assert np.abs(expected - rates(bare, torque)).max() > 0.5
