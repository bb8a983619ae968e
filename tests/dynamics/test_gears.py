"""A joint with a harmonic drive: against its equations written out, its energy, and found again from a log."""

from typing import NamedTuple

import jax
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
    Start,
    Variational,
    joint,
    joint_position,
    log_of,
    simulate,
    simulation_error,
)
from mechid.dynamics.sensors import joint_velocity, transmitted
from mechid.estimate.linear_form import MechanismForm
from mechid.model.gears import amplitude_and_phase, in_series, sine_and_cosine, wave
from mechid.studies.mechanisms import harmonic_drive_joint

NUMBERS = {
    "reduction": 50.0, "motor_inertia": 5e-4, "link_inertia": 3.0, "load": 15.0, "stiffness": 0.8,
    "cubic_stiffness": 0.5, "gear_damping": 3e-3, "damping": 4e-3, "cubic_damping": 2e-6, "dahl": 2e-3,
    "coulomb": 0.06, "slow_damping": 0.03, "width": 2.0, "stribeck_velocity": 6.0, "stribeck_exponent": 0.5,
    "link_damping": 0.7, "link_coulomb": 1.0, "link_width": 0.1, "sine": 2.0, "cosine": -1.0,
    "motor_constant": 0.4,
}  # fmt: skip
START, RATES, CURRENT = [10.0, 0.19], [-20.0, 0.3], 1.5


def by_hand(t: float, x: np.ndarray) -> np.ndarray:
    """Eqs. (3.8) with (4.1) to (4.4) as they are printed."""
    p = NUMBERS
    n = p["reduction"] + 1
    q_in, q_out, v_in, v_out = x
    twist, rate = q_in - n * q_out, v_in - n * v_out
    T_stiff, T_d = p["stiffness"] * twist + p["cubic_stiffness"] * twist**3, p["gear_damping"] * rate
    T_in = p["damping"] * v_in + p["cubic_damping"] * v_in**3 + p["dahl"] * q_in
    T_in += p["coulomb"] * np.tanh(v_in / p["width"])
    T_in += p["slow_damping"] * v_in * np.exp(-(abs(v_in / p["stribeck_velocity"]) ** p["stribeck_exponent"]))
    T_fscs = p["link_coulomb"] * np.tanh(v_out / p["link_width"])
    T_fscs += p["sine"] * np.sin(q_out) + p["cosine"] * np.cos(q_out)
    a_in = (p["motor_constant"] * CURRENT - T_in - T_d - T_stiff) / p["motor_inertia"]
    a_out = n * (T_stiff + T_d) - p["link_damping"] * v_out - T_fscs + p["load"] * np.sin(q_out)
    return np.array([v_in, v_out, a_in, a_out / p["link_inertia"]])


@pytest.fixture(scope="module")
def truth() -> np.ndarray:
    end = solve_ivp(by_hand, (0.0, 0.4), [*START, *RATES], rtol=1e-11, atol=1e-11, method="DOP853")
    return end.y[:2, -1]


@pytest.mark.parametrize(
    ("make", "order"),
    [(lambda dt: Variational(dt, forces="balanced"), 2), (BDF, 2), (OneStep, 2), (Spook, 1)],
    ids=["variational", "bdf", "one step", "spook"],
)
def test_every_stepper_converges_to_the_equations_written_out(truth, make, order):
    """The motor stands beyond ±π throughout."""
    m = harmonic_drive_joint(**NUMBERS)
    errors = []
    for steps in (800, 1600):
        run = simulate(m, make(0.4 / steps), steps, q=START, v=RATES, inputs=[CURRENT])
        errors.append(np.max(np.abs(run.q[-1] - truth) / [50.0, 1.0]))
        assert run.q[:, 0].min() > np.pi
    assert errors[0] / errors[1] > 2**order - 0.25 * order
    assert errors[1] < (2e-5 if order == 2 else 2e-3)


def test_an_undamped_joint_keeps_its_energy():
    """With a gear maker's spring, whose stiffness jumps, and a torque that comes again each turn."""
    m = (
        Mechanism("joint")
        .body("rotor", inertia=(5e-4,) * 3)
        .revolute("motor", "world", "rotor", axis="y")
        .body("arm", mass=1.5, com=(0, 0, -0.6), inertia=(0.5, 0.5, 0.01))
        .revolute("link", "world", "arm", axis="y")
        .combination("twist", {"motor": 1.0, "link": -51.0})
        .piecewise_spring("twist", stiffness=(0.5, 0.8, 1.1), loads=(0.2, 0.7))
        .periodic_friction("link", sine=1.0, cosine=0.5)
        .armature("twist", inertia=1e-5)
    )
    run = simulate(m, Variational(0.001), 20000, q={"motor": 51.0, "link": 1.0}, v={"motor": 60.0})
    twist = run.q @ [1.0, -51.0]
    assert np.abs(twist).max() > 0.2 / 0.5 + 0.5 / 0.8  # beyond both corners
    total = np.sum(run.energy, 0)
    assert np.ptp(total) < 0.01 * np.ptp(run.energy[1])
    assert abs(total[-2000:].mean() - total[:2000].mean()) < 1e-3 * np.ptp(run.energy[1])


def test_a_flange_between_gear_and_torque_sensor():
    """As one softer spring where it is light, as a body of its own where it is not."""

    def flanged(inertia: float) -> Mechanism:
        return (
            Mechanism("flange")
            .body("rotor", inertia=(0.05,) * 3)
            .revolute("motor", "world", "rotor", axis="y")
            .body("flange", inertia=(inertia,) * 3)
            .revolute("flange", "world", "flange", axis="y")
            .body("arm", inertia=(2.0,) * 3)
            .revolute("link", "world", "arm", axis="y")
            .combination("gear", {"motor": 1.0, "flange": -1.0})
            .combination("sensor", {"flange": 1.0, "link": -1.0})
            .spring("gear", stiffness=40.0, cubic=30.0)
            .spring("sensor", stiffness=200.0)
        )

    k, k3 = in_series(40.0, 200.0, 30.0)
    assert k == pytest.approx(1 / (1 / 40 + 1 / 200))
    soft = (
        Mechanism("soft")
        .body("rotor", inertia=(0.05,) * 3)
        .revolute("motor", "world", "rotor", axis="y")
        .body("arm", inertia=(2.0,) * 3)
        .revolute("link", "world", "arm", axis="y")
        .combination("twist", {"motor": 1.0, "link": -1.0})
        .spring("twist", stiffness=k, cubic=k3)
    )
    want = simulate(soft, Variational(2e-3), 300, q=[0.2, 0.0]).q
    apart = []
    for inertia in (1e-4, 5e-2):
        at = [0.2, 0.2 * 40 / 240, 0.0]
        run = simulate(flanged(inertia), Variational(2e-3), 300, q=at)
        apart.append(np.abs(run.q[:, [0, 2]] - want).max())
    assert apart[0] < 0.004
    assert apart[1] > 0.03


# Found again


class Made(NamedTuple):
    truth: Mechanism
    experiment: Experiment
    free: Parameters


@pytest.fixture(scope="module")
def made() -> Made:
    """A log of both encoders and of the torque that the gear transmits, from SPOOK's neighbour at a finer step."""
    m = harmonic_drive_joint(**NUMBERS)
    dt, steps = 0.002, 600
    t = dt * np.arange(steps)
    # a current that turns the joint back and forth
    current = 2.0 * np.sin(2 * np.pi * t / 0.6) + 1.0 * np.sin(2 * np.pi * t / 0.17)
    fine = simulate(
        m,
        Variational(dt / 4, forces="balanced"),
        4 * steps,
        q=START,
        v=RATES,
        inputs=np.repeat(current, 4)[:, None],
    )
    rng = np.random.default_rng(5)
    q, noise = fine.q[::4], (1e-3, 2e-5)
    twist = q @ [1.0, -51.0]
    rate = fine.v[::4] @ [1.0, -51.0]
    torque = 0.8 * twist + 0.5 * twist**3 + 3e-3 * rate
    log = log_of(
        dt * np.arange(steps + 1),
        {
            "motor": q[:, 0] + noise[0] * rng.normal(size=steps + 1),
            "link": q[:, 1] + noise[1] * rng.normal(size=steps + 1),
            "torque": torque + 2e-3 * rng.normal(size=steps + 1),
            "current": np.append(current, 0.0),
        },
        units={"motor": "rad", "link": "rad", "torque": "N*m", "current": "A"},
    )
    off = harmonic_drive_joint(
        **NUMBERS | {"stiffness": 0.6, "coulomb": 0.04, "damping": 5e-3, "sine": 1.0, "cosine": 0.0}
    )
    experiment = Experiment(
        log,
        inputs={"current": "current"},
        measured=[
            Measured(joint_position(off, "motor"), "motor", std=noise[0]),
            Measured(joint_position(off, "link"), "link", std=noise[1]),
            Measured(transmitted(off, "twist"), "torque", std=2e-3),
        ],
        start=Start(q={"motor": START[0], "link": START[1]}, v={"motor": RATES[0], "link": RATES[1]}),
    )
    free = (
        Parameters(off)
        .free("twist.stiffness", bounds=(0, None))
        .free("motor.coulomb", bounds=(0, None))
        .free("motor.damping")
        .free("link.sine")
        .free("link.cosine")
        .free("twist.ratio.link")
    )
    return Made(m, experiment, free)


TRUE = {
    "twist.stiffness": 0.8,
    "motor.coulomb": 0.06,
    "motor.damping": 4e-3,
    "link.sine": 2.0,
    "link.cosine": -1.0,
    "twist.ratio.link": -51.0,
}


def test_simulation_error_finds_the_joint(made):
    fit = simulation_error(
        made.free.mechanism, Variational(2e-3, forces="balanced"), made.experiment, made.free
    )
    assert fit.converged
    for name, value in TRUE.items():
        found = fit.parameters[name]
        assert abs(found.value - value) < 4 * found.std + 2e-3 * abs(value), name
        assert found.std < 0.05 * abs(value), name
    found = wave(fit, "link")
    assert found.amplitude == pytest.approx(np.hypot(2.0, 1.0), abs=4 * found.amplitude_std + 0.01)
    assert found.phase == pytest.approx(np.arctan2(-1.0, 2.0), abs=4 * found.phase_std + 0.01)


def test_joint_estimation_finds_the_joint(made):
    fit = joint(
        made.free.mechanism,
        Variational(2e-3, forces="balanced"),
        made.experiment,
        made.free,
        state_error_weight=1e6,
    )
    for name, value in TRUE.items():
        found = fit.parameters[name]
        assert abs(found.value - value) < 4 * found.std + 5e-3 * abs(value), name


# What sensors see


def test_sensors_of_a_combination():
    m = harmonic_drive_joint(**NUMBERS)
    dt = 1e-3
    run = simulate(m, Variational(dt), 20, q=START, v=RATES, inputs=[CURRENT])
    before, after = (jax.tree.map(lambda a, i=i: a[i], run.states) for i in (10, 11))

    made = joint_position(m, "twist", "link"), joint_velocity(m, "twist"), transmitted(m, "twist")

    @jax.jit
    def look(x0, x1, z, u):
        at = run.stepper.seen(x0, x1, z, u, run.t[10], 10, 0.0, run.model)
        return [sensor.predict(at, run.model) for sensor in made]

    places, rates, torques = look(before, after, run.multipliers[10], run.inputs[10])
    twist, rate = run.q[10] @ [1.0, -51.0], run.v[10] @ [1.0, -51.0]
    assert np.asarray(places) == pytest.approx(np.array([twist, run.q[10, 1]]))
    assert float(rates[0]) == pytest.approx(rate)
    assert float(torques[0]) == pytest.approx(0.8 * twist + 0.5 * twist**3 + 3e-3 * rate)
    with pytest.raises(MechidError, match="named 'twits'\\. Did you mean twist"):
        joint_position(m, "twist", "twits")


def test_the_joint_as_a_regression():
    """φ θ is what the balance of forces lacks, for numbers of the gear and of its friction, at any sample."""
    m = harmonic_drive_joint(**NUMBERS)
    names = [
        "twist.stiffness",
        "twist.cubic_stiffness",
        "motor.damping",
        "motor.coulomb",
        "motor.slow_damping",
    ]
    names += ["link.sine", "link.cosine", "dahl.stiffness", "twist.damping"]
    free = Parameters(m)
    for name in names:
        free = free.free(name)
    form = MechanismForm(free)
    rng = np.random.default_rng(2)
    samples = rng.normal(size=(6, 8)) * [0, 20, 0.3, 30, 0.5, 100, 3, 2]
    phi, y = form.rows(samples)
    balance = jax.jit(m.lower().force_balance)
    for sample, one, right in zip(samples, phi, y, strict=True):
        q, v, a = sample[1:3], sample[3:5], sample[5:7]
        lacking = np.asarray(balance(q, v, a, sample[7:], 0.0))
        np.testing.assert_allclose(one @ free.theta0 - right, lacking, atol=1e-9 * np.abs(lacking).max())


# Amplitude and phase


def test_amplitude_and_phase_and_back():
    """Their spread is that of a sample."""
    C = np.array([[0.04, 0.01], [0.01, 0.02]])
    drawn = np.random.default_rng(1).multivariate_normal([3.0, -2.0], C, 200_000)
    sizes, phases = np.hypot(*drawn.T), np.arctan2(drawn[:, 1], drawn[:, 0])
    got = amplitude_and_phase(3.0, -2.0, C)
    assert sine_and_cosine(got.amplitude, got.phase) == pytest.approx((3.0, -2.0))
    assert got.amplitude == pytest.approx(np.sqrt(13.0))
    assert got.amplitude_std == pytest.approx(sizes.std(), rel=0.01)
    assert got.phase_std == pytest.approx(phases.std(), rel=0.01)
    q = np.linspace(0.0, 6.0, 7)
    np.testing.assert_allclose(
        got.amplitude * np.sin(q + got.phase), 3.0 * np.sin(q) - 2.0 * np.cos(q), atol=1e-12
    )


def test_a_faint_wave_has_no_phase():
    assert amplitude_and_phase(0.01, 0.02, 0.04 * np.eye(2)).phase_std == np.inf
    assert amplitude_and_phase(0.0, 0.0, np.diag([4.0, 9.0])).amplitude_std == pytest.approx(3.0)


# What is refused


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda m: m.combination("motor", {"link": 1.0}), "There is a coordinate named 'motor' already"),
        (lambda m: m.combination("new", {"lnik": 1.0}), "no coordinate named 'lnik'. Did you mean link"),
        (lambda m: m.combination("new", {}), "ratios of combination 'new' are numbers by coordinate"),
        (lambda m: m.combination("new", {"link": np.nan}), "ratio of 'link' in combination 'new' must be finite"),
        (lambda m: m.spring("twits", stiffness=1.0), "no coordinate or combination named 'twits'"),
        (lambda m: m.load_friction("motor", load="gear", coefficient=0.1), "combination named 'gear'"),
        (lambda m: m.dry_friction("twist", coulomb=1.0), "'twist' is a combination of some"),
        (lambda m: m.stops("twist", lower=0.0), "'twist' is a combination of some"),
        (
            lambda m: m.piecewise_spring("twist", stiffness=(1.0, 2.0, 3.0), loads=(2.0, 1.0)),
            "needs three stiffnesses > 0 and loads 0 ≤ T₁ ≤ T₂",
        ),
        (lambda m: m.gear_friction("motor", width=0.0, name="g"), "width of gear friction on 'motor' must be > 0"),
        (lambda m: m.periodic_friction("motor", cycles=0.0), "cycles of periodic friction on 'motor' must be > 0"),
        (lambda m: m.body("b").revolute("twist", "world", "b"), "There is a coordinate named 'twist' already"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(change, words):
    with pytest.raises(MechidError, match=words):
        change(harmonic_drive_joint())
