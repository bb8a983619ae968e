"""SPOOK where other steppers have trouble: mass ratios of ten thousand, rows that say the same twice."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from mechid import Mechanism, Spook, Variational, simulate
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
    backward, forward = (np.asarray(by(positions)(still)) for by in (jax.jacrev, jax.jacfwd))
    assert np.abs(forward).max() > 0.5
    assert backward == pytest.approx(forward, abs=1e-12)
