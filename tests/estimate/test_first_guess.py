"""First guesses of all states: from the log where it tells every coordinate, else from a simulation."""

from __future__ import annotations

import numpy as np
import pytest
from estimation_cases import freed, log_with
from scipy.optimize import fsolve

from mechid import MechidError, Variational, assemble, simulate
from mechid.dynamics.assembly import constraint_rows
from mechid.dynamics.sensors import frame_position, joint_position, joint_velocity
from mechid.estimate.experiment import Experiment, Measured, Start
from mechid.estimate.first_guess import first_guess
from mechid.estimate.prepare import prepared
from mechid.estimate.trajectory import fast_noise
from mechid.studies import mechanisms

pytestmark = pytest.mark.xdist_group("first_guess")

H, STEPS = 0.01, 150
STEPPER = Variational(H)
CART = (
    mechanisms.cart_pendulum(damping=0.02)
    .spring("slide", stiffness=1.0)
    .frame("tip", "pole", origin=(0, 0, -1.0))
)
FREE = freed(CART, "pole.mass").free("hinge.damping")
RNG = np.random.default_rng


def run_of(mechanism=CART, q=None, v=None, steps=STEPS, **options):
    return simulate(mechanism, STEPPER, steps, q=q, v=v, **options)


def guess_of(mechanism, free, measured, start=None, **channels):
    """(channels: time and values) the guess, and the shooting that it belongs to."""
    e = Experiment(log_with("run", **channels), measured, start=start or Start(q_std="free", v_std="free"))
    s = prepared(STEPPER, e, free)
    return first_guess(s, free.bind(free.theta0)), s


def seen_by(*names, std=0.01):
    return Measured(joint_position(CART, *names), names, std=std)


def off(found, truth):
    """Root mean square of what a guess is off, for each coordinate."""
    return np.sqrt(np.mean((found - truth) ** 2, 0))


@pytest.fixture(scope="module")
def swing():
    return run_of(q={"hinge": 1.2}, v={"slide": 0.3})


def channels_of(run, noise=0.0, **more):
    values = run.q + noise * RNG(0).normal(size=run.q.shape)
    return {n: (run.t, values[:, i]) for i, n in enumerate(CART.coordinate_names)} | more


def test_coordinates_that_are_measured(swing):
    """Without noise: rates to the order of differences, and momenta that belong to them."""
    guess, _ = guess_of(CART, FREE, [seen_by("slide", "hinge")], **channels_of(swing))
    assert guess.told
    assert off(guess.q, swing.q).max() < 1e-3
    assert off(guess.v, swing.v).max() < 0.05
    assert guess.motion.states.q.tolist() == guess.q.tolist()
    assert off(guess.motion.states.p, swing.states.p).max() < 0.02


def test_noise_is_smoothed_away(swing):
    """Less than half of it is left in the coordinates, and rates are far better than by differences."""
    guess, _ = guess_of(CART, FREE, [seen_by("slide", "hinge")], **channels_of(swing, noise=0.01))
    assert guess.told
    assert off(guess.q, swing.q).max() < 0.006
    assert off(guess.v, swing.v).max() < 0.25 * 0.01 / H


def test_samples_at_other_times_and_missing_ones(swing):
    """Channels at 40 Hz and at 100 Hz, the latter with gaps, beginning later and ending sooner."""
    rare = np.arange(0.0, 1.5, 0.025)
    slide = np.interp(rare, swing.t, swing.q[:, 0])
    hinge = swing.q[:, 1].copy()
    hinge[[0, 1, 30, 31, 32, 149, 150]] = np.nan
    guess, _ = guess_of(
        CART, FREE, [seen_by("slide"), seen_by("hinge")], slide=(rare, slide), hinge=(swing.t, hinge)
    )
    assert guess.told
    assert guess.q.shape == (STEPS + 1, 2)
    assert off(guess.q, swing.q).max() < 0.01


def test_angles_that_are_logged_between_plus_and_minus_pi():
    """Two turns: the guess goes on where the log jumps, and begins at the turn of the start."""
    run = run_of(q={"hinge": 1.0}, v={"hinge": 9.0})
    assert run.q[-1, 1] > 2.5 * np.pi
    channels = channels_of(run) | {"hinge": (run.t, np.angle(np.exp(1j * run.q[:, 1])))}
    for turn in (0.0, 2.0 * np.pi):
        start = Start(q={"hinge": 1.0 + turn}, q_std="free", v_std="free")
        guess, _ = guess_of(CART, FREE, [seen_by("slide", "hinge")], start, **channels)
        assert guess.told
        assert off(guess.q - [0.0, turn], run.q).max() < 0.01
        assert off(guess.v, run.v).max() < 0.3


# What does not tell all coordinates


@pytest.mark.parametrize("measured", ["one coordinate", "rates"])
def test_a_simulation_takes_the_place_of_what_is_not_told(swing, measured):
    """Its states solve the equations from the start as given. Rates are not taken for positions."""
    if measured == "rates":
        sensors = [Measured(joint_velocity(CART, "slide", "hinge"), ("slide", "hinge"), std=0.1)]
        channels = {n: (swing.t, swing.v[:, i]) for i, n in enumerate(CART.coordinate_names)}
    else:
        sensors, channels = [seen_by("hinge")], {"hinge": (swing.t, swing.q[:, 1])}
    start = Start(q={"hinge": 1.2}, v={"slide": 0.3}, q_std="free", v_std="free")
    guess, _ = guess_of(CART, FREE, sensors, start, **channels)
    assert not guess.told
    assert guess.q == pytest.approx(swing.q, abs=1e-9)
    assert guess.motion.states.p == pytest.approx(swing.states.p, abs=1e-9)


def test_rates_beside_coordinates_do_no_harm(swing):
    """Those of the hinge have an offset, which no coordinate shows."""
    sensors = [seen_by("slide", "hinge"), Measured(joint_velocity(CART, "hinge"), "v", std=0.1)]
    guess, _ = guess_of(CART, FREE, sensors, **channels_of(swing, v=(swing.t, swing.v[:, 1] + 5.0)))
    assert guess.told
    assert off(guess.q, swing.q).max() < 1e-3
    assert off(guess.v, swing.v).max() < 0.05


def test_a_simulation_that_fails_is_told(swing):
    """A spring that pushes: the motion grows beyond all numbers."""
    wild = freed(CART, "slide.stiffness", start=-3e5)
    start = Start(q={"hinge": 1.2}, v={"slide": 0.3})
    with pytest.raises(MechidError) as found:
        guess_of(CART, wild, [seen_by("hinge")], start, hinge=(swing.t, swing.q[:, 1]))
    assert str(found.value).startswith(
        "The log of experiment 'run' does not tell every coordinate, and the starting parameters cannot be "
        "simulated: measure more, or start nearer. Step "
    )


# Positions of a frame, and closed loops


def test_a_pole_seen_by_its_tip():
    """Camera positions alone: cart and pole follow, on the side where they start."""
    t = H * np.arange(81)
    hinge, slide = 0.9 + 0.6 * np.sin(5.0 * t), 0.5 * np.sin(4.0 * t)
    tip = {"x": slide - np.sin(hinge), "y": 0.0 * t, "z": -np.cos(hinge)}
    sensors = [Measured(frame_position(CART, "tip"), tuple(tip), std=1e-3)]
    # with the pole on its other side the tip can be in the same places
    other = slide - 2.0 * np.sin(hinge)
    for want in (np.stack([slide, hinge], 1), np.stack([other, -hinge], 1)):
        start = Start(q=want[0] + 0.05, q_std="free", v_std="free")
        guess, _ = guess_of(CART, FREE, sensors, start, **{n: (t, x) for n, x in tip.items()})
        assert guess.told
        assert off(guess.q, want).max() < 2e-3
        assert off(guess.v, np.gradient(want, H, axis=0)).max() < 0.2


def direction(angle):
    """Of a link's x axis after a turn about y."""
    return np.stack([np.cos(angle), 0.0 * angle, -np.sin(angle)], -1)


@pytest.fixture(scope="module")
def loop():
    """A four-bar in a motion that closes it, and the guess from the noisy angle of its crank alone."""
    bar = mechanisms.four_bar(damping=0.05)
    t = H * np.arange(81)
    first = assemble(bar, mechanisms.FOUR_BAR_GUESS, hold=["a"])
    q = [first]
    for a in first[0] + 1.5 * np.sin(3.0 * t[1:]):
        closed = fsolve(lambda x, a=a: opening(a, *x), q[-1][1:])
        q.append(np.concatenate([[a], closed]))
    q = np.array(q)
    crank = q[:, 0] + 1e-3 * RNG(0).normal(size=81)
    sensors = [Measured(joint_position(bar, "a"), "a", std=1e-3)]
    start = Start(q=first, q_std="free", v_std="free")
    return q, bar, *guess_of(bar, freed(bar, "c.damping"), sensors, start, a=(t, crank))


def opening(a, b, c):
    gap = 0.2 * direction(a) + 0.5 * direction(a + b) - 0.4 * direction(c)
    return gap[0] - 0.4, gap[2]


@pytest.mark.slow
def test_a_closed_loop_follows_from_its_crank(loop):
    q, _, guess, _ = loop
    assert guess.told
    assert off(guess.q, q).max() < 5e-3
    assert off(guess.v, np.gradient(q, H, axis=0)).max() < 0.2


@pytest.mark.slow
def test_a_guess_keeps_loops_closed(loop):
    """In coordinates and in rates; every step has its multipliers."""
    _, bar, guess, s = loop
    model = s.free.bind(s.free.theta0)
    for q, v in zip(guess.q[::10], guess.v[::10], strict=True):
        closure, slope = constraint_rows(bar, model, q)
        assert np.abs(closure).max() < 1e-10
        assert np.abs(slope @ v).max() < 1e-10
    assert guess.motion.z.shape == (80, model.nc)
    assert np.all(np.ptp(guess.motion.z, axis=0) > 0.01)


# Noise from a channel's fastest changes


def test_noise_of_a_channel(swing):
    """A smooth motion does not count, missing samples do no harm."""
    log = channels_of(swing, noise=0.02)
    log["hinge"][1][::17] = np.nan
    _, s = guess_of(CART, FREE, [seen_by("slide", "hinge", std=None)], **log)
    assert fast_noise(s.groups[0]) == pytest.approx([0.02, 0.02], rel=0.25)
    _, s = guess_of(CART, FREE, [seen_by("slide", "hinge", std=None)], **channels_of(swing))
    assert fast_noise(s.groups[0]).max() < 1e-4
