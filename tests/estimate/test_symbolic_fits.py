"""Mechanisms in symbols in every estimator; what can be told where single parameters cannot."""

from __future__ import annotations

import numpy as np
import pytest
from estimation_cases import log_with
from scipy.integrate import solve_ivp

from mechid import BDF, MechidError, Parameters, Variational, full_discretization, joint
from mechid.dynamics.onestep import OneStep
from mechid.dynamics.sensors import joint_position
from mechid.estimate.experiment import Experiment, Measured, Start
from mechid.estimate.simulation_error import simulation_error
from mechid.estimate.solvers.lbfgsb import LBFGSB
from mechid.model.symbolic.mechanism import SymbolicMechanism

H, N, STD = 0.02, 150, 2e-3
TIME = H * np.arange(N + 1)
TRUTH = {"J": 0.5, "c": 0.15, "w": 4.0}
PENDULUM = SymbolicMechanism.from_lagrangian(
    "pendulum",
    "J/2*p'^2 + w*cos(p)",
    coordinates={"p": "rad"},
    parameters={"J": (0.45, "kg·m²"), "c": (0.1, "N·m·s/rad"), "w": (3.7, "N·m")},
    inputs={"u": "N·m"},
    forces={"p": "u - c*p'"},
)


def torque(t):
    return 0.8 * np.sin(4.5 * t) + 0.6 * np.cos(1.3 * t + 0.4)


def recorded(delay=0.0, seed=0):
    """By SciPy: none of the steppers made these data."""

    def slope(t, y):
        u = torque(max(t - delay, 0.0))
        return [y[1], (u - TRUTH["c"] * y[1] - TRUTH["w"] * np.sin(y[0])) / TRUTH["J"]]

    q = solve_ivp(slope, (0, TIME[-1]), [0.4, -0.5], t_eval=TIME, rtol=1e-10, atol=1e-10).y[0]
    return q + STD * np.random.default_rng(seed).normal(size=N + 1)


def experiment(q, hold, mechanism=PENDULUM):
    return Experiment(
        log_with("log", q=(TIME, q), u=(TIME, torque(TIME))),
        [Measured(joint_position(mechanism, "p"), "q", std=STD)],
        inputs={"u": "u"},
        start=Start(q=[0.4], q_std="free", v_std="free"),
        hold=hold,
    )


STEPPERS = {
    "variational": (Variational(H, forces="balanced"), "midpoint"),
    "bdf3": (BDF(H, order=3), "end"),
    "midpoint": (OneStep(H), "midpoint"),
}
ESTIMATORS = {
    "adjoint": lambda *a: simulation_error(*a, LBFGSB(), gradients="adjoint"),
    "segments": lambda *a: simulation_error(*a, segments=3),
    "joint": lambda *a: joint(*a, state_error_weight=1e10),
    "full": full_discretization,
    "ipopt": lambda *a: full_discretization(*a, method="ipopt"),
}


def unknown(*names, mechanism=PENDULUM):
    free = Parameters(mechanism)
    for name in names:
        free = free.free(name, bounds=(0.0, None))
    return free


@pytest.fixture(scope="module")
def found():
    made = {}

    def get(name):
        if name not in made:
            stepper, hold = STEPPERS[name]
            made[name] = simulation_error(PENDULUM, stepper, experiment(recorded(), hold), unknown(*TRUTH))
        return made[name]

    return get


@pytest.mark.parametrize("name", STEPPERS)
def test_every_estimator_finds_the_truth(name, found):
    fit = found(name)
    assert fit.converged
    for key, truth in TRUTH.items():
        p = fit.parameters[key]
        assert abs(p.value - truth) < 3 * p.std < 0.2 * truth, key
    stepper, hold = STEPPERS[name]
    for estimator, run in ESTIMATORS.items():
        other = run(PENDULUM, stepper, experiment(recorded(), hold), unknown(*TRUTH))
        assert other.converged, estimator
        # BDF begins each segment with lower orders
        near = 2.0 if (name, estimator) == ("bdf3", "segments") else 0.3
        for key, own in fit.parameters.items():
            assert other.parameters[key].value == pytest.approx(own.value, abs=near * own.std), (
                estimator,
                key,
            )
            assert other.parameters[key].std == pytest.approx(own.std, rel=0.1), (estimator, key)


def test_all_steppers_find_the_same(found):
    one, *others = (found(name) for name in STEPPERS)
    for other in others:
        for key, own in one.parameters.items():
            assert other.parameters[key].value == pytest.approx(own.value, abs=1.2 * own.std)
            assert other.parameters[key].std == pytest.approx(own.std, rel=0.1)


@pytest.mark.parametrize("name", ["bdf3", "midpoint"])
def test_a_free_delay_of_an_input_in_symbols(name):
    late = 1.6 * H
    stepper, hold = STEPPERS[name]
    free = unknown(*TRUTH).free("u.delay", start=0.0, bounds=(0.0, 0.2))
    fit = simulation_error(PENDULUM, stepper, experiment(recorded(late), hold), free)
    assert fit.converged
    for key, truth in {**TRUTH, "u.delay": late}.items():
        p = fit.parameters[key]
        assert abs(p.value - truth) < 3 * p.std < 0.2 * truth, key
    assert fit.mechanism.delays["u"] == fit.parameters["u.delay"].value


def test_a_constraint_on_rates_in_a_fit():
    """The sleigh's turning tells where its centre is: ω̇ = −m a v ω/(J + m a²), v̇ = a ω², by SciPy."""
    m = SymbolicMechanism.from_lagrangian(
        "sleigh",
        "m/2*((x' - a*th'*sin(th))^2 + (y' + a*th'*cos(th))^2) + J/2*th'^2",
        coordinates={"x": "m", "y": "m", "th": "rad"},
        parameters={"J": 0.2, "a": 0.25},
        constants={"m": 2.0},
        rolling={"blade": "y'*cos(th) = x'*sin(th)"},
    )

    def slope(_, y):
        _, _, th, v, w = y
        return [v * np.cos(th), v * np.sin(th), w, 0.2 * w**2, -2.0 * 0.2 * v * w / (0.3 + 2.0 * 0.2**2)]

    t = 0.02 * np.arange(101)
    y = solve_ivp(slope, (0, 2), [0, 0, 0, -0.3, 1.5], t_eval=t, rtol=1e-10, atol=1e-10).y
    noisy = y[:3] + 1e-3 * np.random.default_rng(0).normal(size=(3, 101))
    e = Experiment(
        log_with("ice", x=(t, noisy[0]), y=(t, noisy[1]), th=(t, noisy[2])),
        [Measured(joint_position(m, "x", "y", "th"), ("x", "y", "th"), std=1e-3)],
        start=Start(q_std="free", v=[-0.3, 0.0, 1.5], v_std="free"),
    )
    fits = [
        run(m, OneStep(0.02), e, unknown("J", "a", mechanism=m))
        for run in (simulation_error, full_discretization)
    ]
    for fit in fits:
        assert fit.converged
        for key, truth in (("J", 0.3), ("a", 0.2)):
            p = fit.parameters[key]
            assert abs(p.value - truth) < 3 * p.std < 0.2 * truth
            assert p.value == pytest.approx(fits[0].parameters[key].value, abs=0.3 * p.std)


@pytest.mark.parametrize("estimator", ["segments", "joint", "full"])
def test_a_mass_that_starts_at_nothing_is_refused(estimator):
    free = Parameters(PENDULUM).free("J", start=0.0, bounds=(0.0, None))
    with pytest.raises(MechidError, match=r"mass matrix of 'pendulum' is singular at the start: .*'p'"):
        ESTIMATORS[estimator](PENDULUM, OneStep(H), experiment(recorded(), "midpoint"), free)


# Combinations


def spring_log(mechanism, *, force):
    """A mass of 2 kg that falls onto a spring of 40 N/m with a damper of 0.6 N·s/m."""

    def slope(t, y):
        push = 8.0 * np.sin(3.0 * t) if force else 0.0
        return [y[1], 9.81 + (push - 0.6 * y[1] - 40.0 * y[0]) / 2.0]

    t = 0.02 * np.arange(151)
    s = solve_ivp(slope, (0, 3), [0.1, 0.0], t_eval=t, rtol=1e-10, atol=1e-10).y[0]
    noisy = s + 5e-3 * np.random.default_rng(1).normal(size=151)
    return Experiment(
        log_with("drop", s=(t, noisy), u=(t, 8.0 * np.sin(3.0 * t))),
        [Measured(joint_position(mechanism, "s"), "s", std=5e-3)],
        inputs={"u": "u"} if force else {},
        start=Start(q=[0.1], q_std="free", v_std="free"),
        hold="midpoint",
    )


def spring(*, force, **more):
    pushed = {"inputs": "u", "forces": {"s": "u"}} if force else {}
    return SymbolicMechanism.from_lagrangian(
        "mass-spring",
        "m*s'^2/2 - k*s^2/2 + m*g*s",
        dissipation="c*s'^2/2",
        coordinates={"s": "m"},
        **{"parameters": {"m": 1.8, "c": 0.5, "k": 35.0}, "constants": {"g": 9.81}, **pushed, **more},
    )


def test_gravity_alone_tells_ratios_and_their_stds():
    """c/m and k/m, as known as c and k are where m is held, by its value."""
    m = spring(force=False)
    e = spring_log(m, force=False)
    fit = simulation_error(m, OneStep(0.01), e, unknown("m", "c", "k", mechanism=m))
    told = {c.expression: c for c in fit.identifiability.combinations}
    assert set(told) == {"c/m", "k/m"}
    held = simulation_error(m, OneStep(0.01), e, unknown("c", "k", mechanism=m))
    for key, truth in (("c", 0.3), ("k", 20.0)):
        ratio, one = told[f"{key}/m"], held.parameters[key]
        assert abs(ratio.value - truth) < 3 * ratio.std
        assert ratio.value == pytest.approx(one.value / 1.8, abs=0.05 * ratio.std)
        assert ratio.std == pytest.approx(one.std / 1.8, rel=0.02)
        assert ratio.names == ("m", key)
    assert "known force" in fit.identifiability.suggestion
    for word in ("c/m", "k/m"):
        assert word in fit.summary()


def test_a_known_force_tells_all():
    m = spring(force=True)
    fit = simulation_error(m, OneStep(0.01), spring_log(m, force=True), unknown("m", "c", "k", mechanism=m))
    assert fit.identifiability.combinations == ()
    for key, truth in (("m", 2.0), ("c", 0.6), ("k", 40.0)):
        p = fit.parameters[key]
        assert abs(p.value - truth) < 3 * p.std < 0.2 * truth


def test_what_a_pendulum_under_a_torque_tells():
    """(J + m l²) p̈ = u − m g l sin p − (b + d) ṗ: three numbers of five, whatever their values are."""
    m = SymbolicMechanism.from_lagrangian(
        "pendulum",
        "(J + m*l^2)/2*p'^2 + m*g*l*cos(p)",
        coordinates={"p": "rad"},
        parameters={"m": 1.0, "l": 0.41, "J": 0.329, "b": 0.05, "d": 0.1},
        constants={"g": 9.81},
        inputs="u",
        forces={"p": "u - (b + d)*p'"},
    )
    e = experiment(recorded(), "midpoint", m)
    fit = simulation_error(m, OneStep(H), e, unknown("m", "l", "J", "b", "d", mechanism=m))
    told = {c.expression: c for c in fit.identifiability.combinations}
    wanted = {"l*m": TRUTH["w"] / 9.81, "J + l^2*m": TRUTH["J"], "b + d": TRUTH["c"]}
    assert set(told) == set(wanted)
    plain = simulation_error(PENDULUM, OneStep(H), experiment(recorded(), "midpoint"), unknown(*TRUTH))
    for (name, truth), (key, scale) in zip(
        wanted.items(), (("w", 9.81), ("J", 1.0), ("c", 1.0)), strict=True
    ):
        assert abs(told[name].value - truth) < 3 * told[name].std
        assert told[name].std == pytest.approx(plain.parameters[key].std / scale, rel=0.05)
