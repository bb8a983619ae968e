"""Regression: motions of which the truth is known, worked out by hand, and what has to be said of the result."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from mechid import (
    BDF,
    Experiment,
    Measured,
    Mechanism,
    MechidError,
    OneStep,
    Parameters,
    Spook,
    Variational,
    log_of,
    simulate,
)
from mechid.dynamics.sensors import joint_position
from mechid.estimate.measured_motion import Signals
from mechid.estimate.regression import explained, regression

ARM = (
    Mechanism("arm")
    .body("upper", mass=2.0, com=(0, 0, -0.2), inertia=(0.03, 0.03, 0.002))
    .body("fore", mass=1.0, com=(0.01, 0, -0.15), inertia=(0.02, 0.02, 0.001))
    .revolute("shoulder", "world", "upper", axis="y")
    .revolute("elbow", "upper", "fore", axis="y", origin=(0, 0, -0.4))
    .damper("shoulder", damping=0.5)
    .damper("elbow", damping=0.3)
    .offset("elbow", force=0.2)
    .torque("shoulder")
    .torque("elbow")
)
BODIES = [f"{b}.{n}" for b in ("upper", "fore") for n in ("mass", "first_moment", "origin_inertia")]
OTHERS = ["shoulder.damping", "elbow.damping", "elbow.offset"]
BASE = {
    "upper.first_moment.x": 0.0,
    "upper.first_moment.z − 0.4·fore.mass": -0.8,
    "upper.origin_inertia.yy + 0.16·fore.mass": 0.03 + 2 * 0.04 + 0.16,
    "fore.first_moment.x": 0.01,
    "fore.first_moment.z": -0.15,
    "fore.origin_inertia.yy": 0.02 + 0.15**2 + 0.01**2,
    "shoulder.damping": 0.5,
    "elbow.damping": 0.3,
    "elbow.offset": 0.2,
}
"""what a planar arm tells, worked out by hand"""


def torques(t):
    return np.array([4 * np.sin(3 * t) + 3 * np.sin(7.1 * t), 2 * np.sin(5 * t) + 1.5 * np.cos(9 * t)])


@pytest.fixture(scope="module")
def motion():
    """The arm's motion by its equations written down by hand (both angles from the vertical), to 1e-11."""
    g, link = 9.81, 0.4
    inertia1, inertia2 = 0.03 + 2 * 0.04 + link**2, 0.02 + 0.15**2 + 0.01**2
    first1 = 2 * 0.2 + link

    def rates(t, x):
        a, b, va, vb = x[0], x[0] + x[1], x[2], x[2] + x[3]
        # the fore arm's centre of mass, from the elbow, in the plane: (x, z)
        along = np.array([0.01 * np.cos(b) - 0.15 * np.sin(b), -0.01 * np.sin(b) - 0.15 * np.cos(b)])
        turned = np.array([along[1], -along[0]])
        elbow = link * np.array([-np.cos(a), np.sin(a)])
        c, s = elbow @ turned, elbow @ (-along)
        bent = link * np.array([np.sin(a), np.cos(a)]) @ turned
        tau = torques(t) + np.array([-0.5 * x[2], -0.3 * x[3] + 0.2])
        M = np.array([[inertia1, c], [c, inertia2]])
        # generalized forces of the absolute angles a and b
        weight = np.array([-first1 * g * np.sin(a), g * turned[1] * -1.0])
        force = np.array([tau[0] - tau[1], tau[1]]) + weight - np.array([s * vb**2, bent * va**2])
        acc = np.linalg.solve(M, force)
        return [x[2], x[3], acc[0], acc[1] - acc[0]]

    t = np.arange(0.0, 12.0, 0.005)
    found = solve_ivp(rates, (0, 12), [0.3, -0.2, 0, 0], t_eval=t, rtol=1e-11, atol=1e-12, method="DOP853")
    return t, found.y[:2]


def recording(motion, noise=0.0, torque_noise=0.0, seed=0, mechanism=ARM, **options):
    t, q = motion
    rng = np.random.default_rng(seed)
    u = torques(t)
    channels = {f"q{i}": q[i] + noise * rng.normal(size=len(t)) for i in range(2)}
    channels |= {f"u{i}": u[i] + torque_noise * rng.normal(size=len(t)) for i in range(2)}
    log = log_of(t, channels, name="swing")
    given = {"inputs": {"shoulder.torque": "u0", "elbow.torque": "u1"}, "hold": "midpoint"} | options
    return Experiment(log, [Measured(joint_position(mechanism, "shoulder", "elbow"), ["q0", "q1"])], **given)


def freed(names, mechanism=ARM):
    free = Parameters(mechanism)
    for name in names:
        free = free.free(name)
    return free


def base_of(fit):
    base = fit.extra["linear"].base
    return dict(zip(base.expressions, zip(base.values, base.std, strict=True), strict=True))


def test_base_parameters_are_those_worked_out_by_hand(motion):
    """Expressions and values, from a motion that another integrator made of equations written down by hand."""
    fit = regression(ARM, recording(motion), freed([*BODIES, *OTHERS]), signals=Signals(cutoff=np.inf))
    found = base_of(fit)
    assert set(found) == set(BASE)
    for name, (value, _) in found.items():
        assert value == pytest.approx(BASE[name], rel=1e-5, abs=1e-6), name
    assert np.isinf(fit.parameters["fore.mass"].std)
    assert fit.parameters["elbow.damping"].value == pytest.approx(0.3, rel=1e-5)


def test_filters_and_means_keep_the_equations_true(motion):
    """Strong filters of a slow motion without noise: both sides are averaged alike."""
    slow = regression(
        ARM, recording(motion), freed([*BODIES, *OTHERS]), signals=Signals(cutoff=20.0, window=0.1)
    )
    for name, (value, _) in base_of(slow).items():
        assert value == pytest.approx(BASE[name], rel=3e-3, abs=1e-3), name


def test_standard_deviations_cover_the_truth(motion):
    """Torque noise that is white: of 20 repetitions, errors in units of std have the size of one."""
    free = freed([*BODIES, *OTHERS])
    apart = []
    for seed in range(20):
        fit = regression(
            ARM, recording(motion, torque_noise=0.1, seed=seed), free, signals=Signals(cutoff=np.inf)
        )
        apart += [(v - BASE[name]) / s for name, (v, s) in base_of(fit).items()]
    assert 0.85 < np.std(apart) < 1.2
    assert np.abs(apart).max() < 4.5


def test_noise_in_positions_biases_inertias_low_and_is_told(motion):
    """With too high a cutoff the note's size is that of the bias; the cutoff that is chosen needs no note."""
    free = freed(["fore.origin_inertia.yy", *OTHERS])
    rough = regression(ARM, recording(motion, noise=2e-4), free, signals=Signals(cutoff=60.0, window=0.0))
    told = [n for n in rough.notes if "inertias come out low" in n]
    assert len(told) == 1
    share = float(told[0].split(" % of its variance")[0].split()[-1]) / 100.0
    low = 1.0 - rough.parameters["fore.origin_inertia.yy"].value / BASE["fore.origin_inertia.yy"]
    assert 0.3 * share < low < 1.5 * share
    chosen = regression(ARM, recording(motion, noise=2e-4), free)
    assert not any("come out low" in n for n in chosen.notes)
    assert any("chosen from the log" in n for n in chosen.notes)
    found = chosen.parameters["fore.origin_inertia.yy"]
    assert found.value == pytest.approx(BASE["fore.origin_inertia.yy"], rel=0.01)


@pytest.mark.parametrize("loss", ["huber", "tukey"])
def test_outliers_of_a_torque_are_taken_out(motion, loss):
    e = recording(motion, torque_noise=0.02)
    rng = np.random.default_rng(4)
    channel = e.log["u1"]
    hit = channel.values + 15.0 * (rng.random(len(channel.values)) < 0.03)
    e = replace(e, log=e.log.with_channel("u1", channel.time, hit))
    free, signals = freed([*BODIES, *OTHERS]), Signals(cutoff=np.inf, window=0.0)
    plain = base_of(regression(ARM, e, free, signals=signals))
    robust = base_of(regression(ARM, e, free, signals=signals, loss=loss))
    off = {k: [abs(f[k][0] - BASE[k]) for f in (plain, robust)] for k in ("elbow.offset", "elbow.damping")}
    assert off["elbow.offset"][0] > 0.3
    assert off["elbow.offset"][1] < 0.03 * off["elbow.offset"][0]
    # outliers on one side shift Huber's estimate a little, and Tukey's not
    slack = 0.005 if loss == "huber" else 0.0
    assert abs(robust["elbow.offset"][0] - 0.2) < 4.0 * robust["elbow.offset"][1] + slack


@pytest.mark.parametrize("loss", ["huber", "tukey"])
def test_outliers_are_found_before_rows_are_averaged(motion, loss):
    """With default signals every row is a mean that holds some; errors stay those of a log without outliers."""
    clean = recording(motion, torque_noise=0.02, noise=1e-4)
    rng = np.random.default_rng(5)
    hits = {name: rng.random(len(motion[0])) < 0.02 for name in ("u0", "u1")}
    log = clean.log
    for name, hit in hits.items():
        size = 200.0 * hit * rng.choice([-1.0, 1.0], len(hit))
        log = log.with_channel(name, motion[0], clean.log[name].values + size)
    free = freed([*BODIES, *OTHERS])
    without, squared, robust = (
        regression(ARM, replace(clean, log=x), free, loss=how)
        for x, how in ((clean.log, "squared"), (log, "squared"), (log, loss))
    )
    off = [
        np.linalg.norm(
            [(v - BASE[k]) / s for (k, (v, _)), (_, s) in zip(found.items(), scale.values(), strict=True)]
        )
        for scale in [base_of(without)]
        for found in (base_of(without), base_of(squared), base_of(robust))
    ]
    assert off[1] > 10.0 * off[0]
    assert off[2] < 1.5 * off[0] + 1.0
    told = next(n for n in robust.notes if "left out before averaging" in n)
    inner = [int(told.split(f" of '{name}'")[0].split()[-1]) for name in ("shoulder", "elbow")]
    # a sample acts from half a step before to half a step after
    for count, hit in zip(inner, hits.values(), strict=True):
        assert 0.9 * hit.sum() < count <= 1.05 * hit.sum()
    assert not any("left out before averaging" in n for n in squared.notes)


@pytest.mark.parametrize("loss", ["huber", "tukey"])
def test_where_nothing_lies_off_robust_losses_find_the_same(motion, loss):
    e = recording(motion, torque_noise=0.05, noise=1e-4)
    plain, robust = (regression(ARM, e, freed([*BODIES, *OTHERS]), loss=how) for how in ("squared", loss))
    for (name, (value, std)), (other, _) in zip(
        base_of(plain).items(), base_of(robust).values(), strict=True
    ):
        assert abs(value - other) < std, name
    assert not any("left out before averaging" in n for n in robust.notes)


ROD = (
    Mechanism("rod")
    .body("rod", mass=1.0, com=(0, 0, -0.3), inertia=(0.02, 0.02, 0.001))
    .revolute("hinge", "world", "rod", axis="y")
    .damper("hinge", damping=0.4)
    .torque("hinge")
)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("fastest", [0.5, 2.0, 5.0])
def test_the_cutoff_that_is_chosen_keeps_the_motion(fastest, seed):
    """Five lines with gaps between them and noisy angles; torques by (J + m l²) q̈ + b q̇ + m g l sin q = τ."""
    rng = np.random.default_rng(seed)
    t = np.arange(0.0, 40.0, 0.005)
    f = np.linspace(0.1, fastest, 5)
    size, phase = 0.25 / np.sqrt(f / f[0]), rng.uniform(0.0, 6.28, 5)
    turn = 2.0 * np.pi * f[:, None] * t + phase[:, None]
    w = 2.0 * np.pi * f
    q, v, a = size @ np.sin(turn), (size * w) @ np.cos(turn), -(size * w**2) @ np.sin(turn)
    inertia, first = 0.02 + 0.3**2, 0.3
    tau = inertia * a + 0.4 * v + first * 9.81 * np.sin(q) + 0.05 * rng.normal(size=len(t))
    log = log_of(t, {"q": q + 1e-3 * rng.normal(size=len(t)), "tau": tau})
    e = Experiment(
        log, [Measured(joint_position(ROD, "hinge"), ["q"])], inputs={"hinge.torque": "tau"}, hold="midpoint"
    )
    free = freed(["rod.origin_inertia.yy", "rod.first_moment.z", "hinge.damping"], ROD)
    fit = regression(ROD, e, free)
    truth = {"rod.origin_inertia.yy": inertia, "rod.first_moment.z": -first, "hinge.damping": 0.4}
    for name, p in fit.parameters.items():
        assert abs(p.value - truth[name]) < 4.0 * p.std, name
        assert p.value == pytest.approx(truth[name], rel=0.01)
    cutoff = fit.extra["signals"].cutoff
    # what the filter takes of the fastest line
    assert 1.0 - 1.0 / (1.0 + (fastest / cutoff) ** 8) < 2e-3
    assert cutoff < 6.0 * fastest
    assert not any("low-pass of" in n and "away" in n for n in fit.notes)
    low = regression(ROD, e, free, signals=Signals(cutoff=1.5 * fastest))
    assert any("% of the acceleration of 'hinge' away" in n for n in low.notes)
    assert abs(low.parameters["rod.origin_inertia.yy"].value / inertia - 1.0) > 0.005


def test_gaps_cut_a_log_into_runs(motion):
    e = recording(motion, torque_noise=0.05)
    cut = replace(e, log=e.log.without("q1", 3.0, 3.4).without("u0", 7.0, 7.1))
    fit = regression(ARM, cut, freed([*BODIES, *OTHERS]))
    assert "ends of 3 runs" in fit.notes[0]
    for name, (value, std) in base_of(fit).items():
        assert abs(value - BASE[name]) < 4.5 * std + 2e-3, name


def test_two_logs_and_a_held_back_one(motion):
    t, q = motion
    halves = [
        recording((t[a:b], q[:, a:b]), torque_noise=0.05, name=n)
        for a, b, n in ((0, 1000, "a"), (1000, 2000, "b"))
    ]
    fit = regression(ARM, halves, freed([*BODIES, *OTHERS]))
    assert len({c.experiment for c in fit.channels}) == 2
    seen = explained(fit, recording((t[2000:], q[:, 2000:]), torque_noise=0.05, name="c"))
    for c in seen:
        assert c.rms < 0.06
        assert c.rms < 0.06 * np.std(c.measured)


def test_consistent_bodies_fit_as_well_where_the_linear_ones_are_consistent(motion):
    """Free and consistent estimates have the same base parameters."""
    e = recording(motion, torque_noise=0.02)
    linear = regression(ARM, e, freed([*BODIES, *OTHERS]))
    free = Parameters(ARM).free_inertia("upper").free_inertia("fore")
    for name in OTHERS:
        free = free.free(name)
    fit = regression(ARM, e, free)
    near = fit.extra["consistent"]
    assert near.converged
    assert near.rise < 1e-3
    numbers = dict(zip(fit.extra["form"].names, near.theta, strict=True))
    theta = np.array([numbers[n] for n in linear.extra["linear"].names])
    np.testing.assert_allclose(
        linear.extra["linear"].base.combine(theta), linear.extra["linear"].base.values, rtol=1e-4, atol=1e-6
    )
    assert any("consistent as it is" in n for n in fit.notes)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_consistent_bodies_are_bodies_whatever_the_noise(motion, seed):
    """Noise that makes linear inertias impossible; the rise in cost is reported and never negative."""
    e = recording(motion, torque_noise=3.0, seed=seed, span=(0.0, 1.5))
    free = Parameters(ARM).free_inertia("upper").free_inertia("fore").free("elbow.damping")
    fit = regression(ARM, e, free, signals=Signals(cutoff=np.inf))
    near = fit.extra["consistent"]
    assert near.rise >= 0.0
    for body in fit.mechanism.bodies:
        moments = np.linalg.eigvalsh(body.inertia)
        assert body.mass > 0.0
        assert moments[0] > 0.0
        assert moments[0] + moments[1] >= moments[2] * (1 - 1e-9)
    assert any("rms from" in n for n in fit.notes)


def test_bounds_hold(motion):
    e = recording(motion, torque_noise=0.02)
    free = freed(["fore.origin_inertia.yy", "elbow.offset"]).free(
        "elbow.damping", start=0.5, bounds=(0.4, 1.0)
    )
    fit = regression(ARM, e, free)
    assert fit.parameters["elbow.damping"].value == pytest.approx(0.4)
    assert "at bound" in fit.flags["elbow.damping"]
    assert any("beyond bounds" in n for n in fit.notes)


def test_the_summary_tells_combinations_and_not_numbers_that_are_not_told(motion):
    fit = regression(ARM, recording(motion, torque_noise=0.02), freed([*BODIES, *OTHERS]))
    text = fit.summary()
    assert "upper.first_moment.z − 0.4·fore.mass" in text
    assert "Excitation of 9 directions" in text
    assert "Act nowhere in these motions" in text
    assert "\nfore.mass " not in text


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"loss": "cauchy"}, "no loss named 'cauchy'"),
        ({"weights": "none"}, "no choice of weights named 'none'"),
        ({"weights": (1.0, -1.0)}, "stds > 0"),
        ({"signals": 3}, "must be Signals"),
    ],
)
def test_wrong_options_are_refused(motion, options, told):
    with pytest.raises(MechidError, match=told):
        regression(ARM, recording(motion), freed(OTHERS), **options)


def test_wrong_signals_are_refused():
    for options in (
        {"cutoff": 0.0},
        {"cutoff": "high"},
        {"order": 0},
        {"window": -1.0},
        {"trim": None, "order": 2.5},
    ):
        with pytest.raises(MechidError, match="of signals must be"):
            Signals(**options)


def test_what_a_regression_needs_is_told(motion):
    e = recording(motion)
    lonely = replace(e, measured=[Measured(joint_position(ARM, "elbow"), "q1")])
    with pytest.raises(MechidError, match="does not measure that of 'shoulder'"):
        regression(ARM, lonely, freed(OTHERS))
    with pytest.raises(MechidError, match="Nothing fixes the scale"):
        regression(ARM, replace(e, inputs={}), freed([*BODIES, *OTHERS]))
    with pytest.raises(MechidError, match="no limits"):
        regression(ARM, e, freed(OTHERS).limit({"elbow.damping": 1.0}, upper=2.0))


COARSE = 0.04
STEPPERS = {"variational": Variational(COARSE), "bdf2": BDF(COARSE, 2), "midpoint": OneStep(COARSE)}


@pytest.fixture(scope="module")
def coarse():
    """A motion that Variational steps at 0.04 s."""
    u = torques(COARSE * np.arange(300)).T
    run = simulate(ARM, STEPPERS["variational"], 300, q=[0.3, -0.2], inputs=u)
    channels = {
        "q0": run.q[:, 0],
        "q1": run.q[:, 1],
        "u0": np.append(u[:, 0], 0),
        "u1": np.append(u[:, 1], 0),
    }
    measured = [Measured(joint_position(ARM, "shoulder", "elbow"), ["q0", "q1"])]
    inputs = {"shoulder.torque": "u0", "elbow.torque": "u1"}
    return Experiment(log_of(run.t, channels), measured, inputs=inputs)


def test_a_variational_steppers_rows_hold_however_long_its_steps_are(coarse):
    """Its own motion gives its numbers to rounding; accelerations by differences do not."""
    free, signals = freed([*BODIES, *OTHERS]), Signals(cutoff=np.inf, window=0.0)
    exact = base_of(regression(ARM, coarse, free, stepper=STEPPERS["variational"], signals=signals))
    rough = base_of(regression(ARM, coarse, free, signals=signals))
    assert set(exact) == set(BASE)
    for name, (value, _) in exact.items():
        assert value == pytest.approx(BASE[name], abs=1e-8), name
    assert max(abs(rough[n][0] - BASE[n]) for n in BASE) > 1e-3


@pytest.mark.parametrize("kind", STEPPERS)
def test_rows_of_every_stepper_find_the_truth_with_short_steps(motion, kind):
    stepper = replace(STEPPERS[kind], dt=0.005)
    signals = Signals(cutoff=np.inf)
    fit = regression(ARM, recording(motion), freed([*BODIES, *OTHERS]), stepper=stepper, signals=signals)
    for name, (value, _) in base_of(fit).items():
        assert value == pytest.approx(BASE[name], rel=0.02, abs=4e-3), name
    assert any("rows are" in n for n in fit.notes)


def test_spook_is_refused_in_a_sentence(motion):
    with pytest.raises(MechidError, match="not possible without projecting"):
        regression(ARM, recording(motion), freed(OTHERS), stepper=Spook(0.005))


def test_a_motor_on_a_combination_drives_both_of_its_coordinates(motion):
    """The elbow's torque as a motor on elbow + shoulder, with what it does to the shoulder taken off that one's."""
    t, q = motion
    u = torques(t)
    other = replace(ARM, elements=tuple(e for e in ARM.elements if e.name != "elbow.torque"))
    other = other.combination("both", {"shoulder": 1.0, "elbow": 1.0}).torque("both")
    log = log_of(t, {"q0": q[0], "q1": q[1], "u0": u[0] - u[1], "u1": u[1]})
    e = Experiment(
        log,
        [Measured(joint_position(other, "shoulder", "elbow"), ["q0", "q1"])],
        inputs={"shoulder.torque": "u0", "both.torque": "u1"},
        hold="midpoint",
    )
    fit = regression(other, e, freed([*BODIES, *OTHERS], other), signals=Signals(cutoff=np.inf))
    for name, (value, _) in base_of(fit).items():
        assert value == pytest.approx(BASE[name], rel=1e-5, abs=1e-6), name
    np.testing.assert_allclose(fit.channels[0].measured, u[0][4:-4], atol=1e-12)
