"""Mechanisms in symbols as steppers see them: against bodies, SciPy, closed forms and published numbers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sympy as sm
from scipy.integrate import solve_ivp
from symbolic_cases import INERTIA, MASS, OFFSET, G, cart_pendulum, four_bar, hanging, sleigh

from mechid import BDF, MechidError, Spook, Variational, assemble, project_rates, simulate
from mechid.dynamics.onestep import OneStep
from mechid.dynamics.symbolic import Program
from mechid.dynamics.usual import usual
from mechid.model.symbolic.mechanism import SymbolicMechanism
from mechid.studies import mechanisms

# Against the same mechanism made of bodies


@jax.jit
def _everything(model, q, v, a, u):
    terms, hessians = model.terms_and_hessians(q, v, u, 0.0)
    return {
        "terms": terms,
        "hessians": hessians(),
        "mass": model.mass_matrix(q),
        "balance": model.force_balance(q, v, a, u, 0.0),
        "energy": model.energy(q, v),
    }


@pytest.mark.parametrize("name", ["cart-pendulum", "four-bar"])
def test_terms_are_those_of_the_bodies(name):
    symbols, bodies = {
        "cart-pendulum": (cart_pendulum(), mechanisms.cart_pendulum(damping=0.02)),
        "four-bar": (four_bar(), mechanisms.four_bar(damping=0.05)),
    }[name]
    rng = np.random.default_rng(0)
    n = len(symbols.coordinates)
    for _ in range(3):
        at = (*rng.normal(size=(3, n)), rng.normal(size=1))
        found, wanted = (_everything(m.lower(), *at) for m in (symbols, bodies))
        for key in wanted:
            for x, y in zip(jax.tree.leaves(found[key]), jax.tree.leaves(wanted[key]), strict=True):
                assert np.asarray(x) == pytest.approx(np.asarray(y), rel=1e-11, abs=1e-11), key


def test_closures_and_their_slopes():
    """Rows of bodies are along a link that turns: lengths, and at a closed loop directions, are the same."""
    bodies, symbols = mechanisms.four_bar().lower(), four_bar().lower()
    closed = assemble(mechanisms.four_bar(), mechanisms.FOUR_BAR_GUESS, hold=["a"])
    rows = jax.jit(lambda m, q: m.constraint(q, jnp.zeros(1)))
    for q in (closed, closed + 0.1, np.array([0.3, -0.2, 1.0])):
        gaps = [np.linalg.norm(rows(m, q)[0]) for m in (symbols, bodies)]
        assert gaps[0] == pytest.approx(gaps[1], abs=1e-9)
        h, weights = 1e-6, np.array([0.7, -1.3])
        bent, slope = (
            np.asarray(x) for x in (jax.jit(symbols.constraint_hessian)(q, weights), rows(symbols, q)[1])
        )
        for i, one in enumerate(np.eye(3)):
            above, below = (list(map(np.asarray, rows(symbols, q + x * one))) for x in (h, -h))
            assert (above[0] - below[0]) / (2 * h) == pytest.approx(slope[:, i], abs=1e-8)
            assert weights @ (above[1] - below[1]) / (2 * h) == pytest.approx(bent[:, i], abs=1e-8)
    found, wanted = (np.asarray(rows(m, closed)[1]) for m in (symbols, bodies))
    assert np.linalg.pinv(found) @ found == pytest.approx(np.linalg.pinv(wanted) @ wanted, abs=1e-9)


def closed_start():
    bodies = mechanisms.four_bar(damping=0.05)
    q = assemble(bodies, mechanisms.FOUR_BAR_GUESS, hold=["a"])
    return bodies, q, project_rates(bodies, q, {"a": 1.0}, hold=["a"])


@pytest.mark.parametrize("make", [Variational, BDF])
def test_the_loop_moves_like_that_of_bodies(make):
    symbols, (bodies, q, v) = four_bar(), closed_start()
    guess = dict(zip("abc", mechanisms.FOUR_BAR_GUESS.values(), strict=True))
    assert assemble(symbols, guess, hold=["a"]) == pytest.approx(q, abs=1e-9)
    assert project_rates(symbols, q, {"a": 1.0}, hold=["a"]) == pytest.approx(v, abs=1e-9)
    runs = [simulate(m, make(0.005), 60, q=q, v=v, inputs=[0.5]) for m in (symbols, bodies)]
    assert runs[0].q == pytest.approx(runs[1].q, abs=1e-8)
    assert runs[0].v == pytest.approx(runs[1].v, abs=1e-7)
    forces = [np.linalg.norm(r.multipliers, axis=1) / 0.005 for r in runs]
    assert forces[0] == pytest.approx(forces[1], rel=1e-4)
    assert runs[0].violation.max() < 1e-10


def test_one_step_rules_close_both_loops():
    """Within a step the loop is open by h², where rows that turn with a link and rows that do not differ."""
    symbols, (bodies, q, v) = four_bar(), closed_start()
    apart = []
    for steps in (30, 60):
        runs = [simulate(m, OneStep(0.2 / steps), steps, q=q, v=v, inputs=[0.5]) for m in (symbols, bodies)]
        apart.append(np.abs(runs[0].q - runs[1].q).max())
        assert max(r.violation.max() for r in runs) < 1e-10
    assert apart[1] < 2e-4
    assert orders(apart)[0] == pytest.approx(2.0, abs=0.3)


def test_a_loop_that_cannot_be_closed_is_told():
    with pytest.raises(
        MechidError, match=r"Loop 'rod' cannot be closed with x, y held: it stays open by 1.75 m or rad"
    ):
        assemble(hanging(), {"x": 1.0, "y": 1.0}, hold=["x", "y"])


# Against SciPy and closed forms


def orders(errors):
    return np.log2(np.array(errors[:-1]) / np.array(errors[1:]))


def spring():
    return SymbolicMechanism.from_equations(
        "spring",
        "m*s'' + c*s' + k*s = u",
        coordinates={"s": "m"},
        parameters={"m": 2.0, "c": 0.6, "k": 8.0},
        inputs="u",
    )


def made_up(t):
    """s = t⁸ e^(−t), so smooth at 0 that a start of low order does not show, and the force that makes it so."""
    e = np.exp(-t)
    s = t**8 * e
    rate = (8 * t**7 - t**8) * e
    faster = (56 * t**6 - 16 * t**7 + t**8) * e
    return s, rate, 2.0 * faster + 0.6 * rate + 8.0 * s


@pytest.mark.parametrize("order", range(1, 7))
def test_bdf_has_its_order(order):
    """With the values of the input at the ends of steps."""
    errors = []
    for steps in (20, 40, 80):
        t = np.linspace(0.0, 2.0, steps + 1)
        s, _, u = made_up(t)
        run = simulate(spring(), BDF(2.0 / steps, order=order), steps, inputs=u[1:, None])
        errors.append(np.abs(run.q[:, 0] - s).max())
    assert orders(errors)[-1] > order - 0.4
    assert orders(errors)[-1] < order + 0.6


@pytest.mark.parametrize("rule", ["midpoint", "trapezoidal"])
def test_one_step_rules_are_of_second_order(rule):
    errors = []
    for steps in (40, 80, 160):
        t = np.linspace(0.0, 2.0, steps + 1)
        _, _, u = made_up(t)
        held = made_up((t[1:] + t[:-1]) / 2)[2] if rule == "midpoint" else (u[1:] + u[:-1]) / 2
        run = simulate(spring(), OneStep(2.0 / steps, rule=rule), steps, inputs=held[:, None])
        s, rate, _ = made_up(t)
        errors.append(max(np.abs(run.q[:, 0] - s).max(), np.abs(run.v[:, 0] - rate).max()))
    assert orders(errors) == pytest.approx(2.0, abs=0.1)


def falling(t):
    """The cart-pendulum by SciPy: [[M + m, −m l cos], [−m l cos, J + m l²]] q̈ = …, written by hand."""
    M, m, l, J, c = 1.0, 0.3, 0.5, 0.3 / 12, 0.02

    def slope(_, y):
        p, w = y[1], y[3]
        inertia = [[M + m, -m * l * np.cos(p)], [-m * l * np.cos(p), J + m * l**2]]
        force = [0.7 - m * l * np.sin(p) * w**2, -m * G * l * np.sin(p) - c * w]
        return [*y[2:], *np.linalg.solve(inertia, force)]

    return solve_ivp(slope, (0, t[-1]), [0.1, 1.2, 0.2, -1.0], t_eval=t, rtol=1e-11, atol=1e-12).y.T


@pytest.mark.parametrize(
    ("make", "order"),
    [
        (lambda h: Variational(h, forces="balanced"), 2),
        (Variational, 1),
        (lambda h: BDF(h, order=2), 2),
        (OneStep, 2),
        (lambda h: OneStep(h, rule="trapezoidal"), 2),
        (Spook, 1),
    ],
    ids=["variational", "variational left", "bdf2", "midpoint", "trapezoidal", "spook"],
)
def test_the_cart_moves_as_scipy_says(make, order):
    errors = []
    for steps in (50, 100, 200):
        t = np.linspace(0.0, 1.0, steps + 1)
        run = simulate(cart_pendulum(), make(1.0 / steps), steps, q=[0.1, 1.2], v=[0.2, -1.0], inputs=[0.7])
        errors.append(np.abs(run.q - falling(t)[:, :2]).max())
    assert orders(errors)[-1] == pytest.approx(order, abs=0.3)
    assert errors[-1] < (0.02 if order == 1 else 2e-3)


@pytest.mark.parametrize(
    "make",
    [
        lambda h: Variational(h, rule="trapezoidal"),
        lambda h: BDF(h, order=2),
        lambda h: BDF(h, order=3),
        OneStep,
        lambda h: OneStep(h, rule="trapezoidal"),
    ],
    ids=["variational", "bdf2", "bdf3", "midpoint", "trapezoidal"],
)
def test_a_mass_on_a_circle_is_a_pendulum(make):
    errors = []
    angle, rate, l = 1.0, 0.7, 0.5
    start = l * np.array([np.sin(angle), -np.cos(angle)]), l * rate * np.array([np.cos(angle), np.sin(angle)])
    for steps in (100, 200, 400):
        t = np.linspace(0.0, 1.0, steps + 1)
        swing = solve_ivp(
            lambda _, y: [y[1], -G / l * np.sin(y[0])],
            (0, 1),
            [angle, rate],
            t_eval=t,
            rtol=1e-11,
            atol=1e-12,
        ).y
        run = simulate(hanging(), make(1.0 / steps), steps, q=start[0], v=start[1])
        errors.append(np.abs(run.q - l * np.stack([np.sin(swing[0]), -np.cos(swing[0])], -1)).max())
        assert run.violation.max() < 1e-9
    assert orders(errors)[-1] > 1.7
    # the rod's force: m (g cos φ + l φ̇²), along 2 q λ
    force = -run.multipliers[-1, 0] * steps * 2 * l
    wanted = -2.0 * (G * np.cos(swing[0, -1]) + l * swing[1, -1] ** 2)
    assert force == pytest.approx(wanted, rel=0.03)


def test_one_step_holds_rates_too():
    angle, l = 1.0, 0.5
    run = simulate(hanging(), OneStep(0.01), 200, q=[l * np.sin(angle), -l * np.cos(angle)])
    assert np.abs(np.sum(run.q * run.v, axis=1)).max() < 1e-10


def gliding(t, v0, w0):
    """Heading, speed along the blade and turning of the sleigh: hyperbolic functions of time."""
    inertia = INERTIA + MASS * OFFSET**2
    most = np.hypot(v0, np.sqrt(inertia / MASS) * w0)
    pace = OFFSET * most * MASS / inertia
    tau = np.arctanh(v0 / most) + pace * t
    turned = 2 * np.arctan(np.tanh(tau / 2))
    heading = np.sqrt(MASS / inertia) * most / pace * (turned - turned[0])
    return heading, most * np.tanh(tau), most * np.sqrt(MASS / inertia) / np.cosh(tau)


@pytest.mark.parametrize(
    "make",
    [lambda h: BDF(h, order=2), lambda h: BDF(h, order=3), OneStep, lambda h: OneStep(h, rule="trapezoidal")],
    ids=["bdf2", "bdf3", "midpoint", "trapezoidal"],
)
def test_the_sleigh_glides_as_chaplygin_found(make):
    errors = []
    for steps in (50, 100, 200):
        t = np.linspace(0.0, 2.0, steps + 1)
        heading, speed, _ = gliding(t, -0.3, 1.5)
        run = simulate(sleigh(), make(2.0 / steps), steps, v=[-0.3, 0.0, 1.5])
        th = run.q[:, 2]
        along = run.v[:, 0] * np.cos(th) + run.v[:, 1] * np.sin(th)
        errors.append(max(np.abs(th - heading).max(), np.abs(along - speed).max()))
        aside = run.v[:, 1] * np.cos(th) - run.v[:, 0] * np.sin(th)
        assert np.abs(aside).max() < 1e-9
    assert orders(errors)[-1] > 1.7
    assert errors[-1] < 1e-3
    # it ends gliding straight ahead
    assert speed[-1] > 0.5


def test_the_sleigh_far_away():
    """Rates are differences of coordinates, known to their rounding only."""
    near, far = (
        simulate(sleigh(), BDF(1e-3, order=3), 30, q=q, v=[1.0, 0.0, 0.5]) for q in ([0, 0, 0], [1e4, 1e4, 0])
    )
    assert far.q[-1, 2] == pytest.approx(near.q[-1, 2], abs=1e-4)


def test_starts_that_slip_are_refused():
    with pytest.raises(
        MechidError, match=r"The initial rates open 'blade' at 1 m/s or rad/s: find consistent ones with pro"
    ):
        simulate(sleigh(), OneStep(0.01), 5, v=[0.0, 1.0, 0.5])
    v = project_rates(sleigh(), [0.0, 0.0, 0.3], [1.0, 1.0, 0.5], hold=["x"])
    assert v == pytest.approx([1.0, np.tan(0.3), 0.5])
    with pytest.raises(MechidError, match="No rates with x, y, th held keep 'blade' closed"):
        project_rates(sleigh(), [0.0, 0.0, 0.3], [1.0, 1.0, 0.5], hold=["x", "y", "th"])


# What stays


def test_the_midpoint_rule_keeps_quadratic_energies():
    m = SymbolicMechanism.from_lagrangian(
        "spring", "m*s'^2/2 - k*s^2/2", coordinates={"s": "m"}, parameters={"m": 2.0, "k": 30.0}
    )
    for rule in ("midpoint", "trapezoidal"):
        run = simulate(m, OneStep(0.05, rule=rule), 400, q=[0.3])
        kinetic, potential = run.energy
        assert kinetic[0] == 0.0
        assert potential[0] == pytest.approx(30.0 * 0.09 / 2)
        assert kinetic + potential == pytest.approx(np.full(401, 1.35), rel=1e-11)
    lossy = simulate(m, BDF(0.05, order=2), 400, q=[0.3])
    assert sum(x[-1] for x in lossy.energy) < 0.8 * 1.35


@pytest.mark.parametrize("make", [OneStep, Variational])
def test_energy_does_not_drift(make):
    """A pendulum that swings wide for some 60 swings: what energy errs by does not grow."""
    m = SymbolicMechanism.from_lagrangian(
        "pendulum", "J/2*p'^2 + w*cos(p)", coordinates={"p": "rad"}, parameters={"J": 0.5, "w": 5.0}
    )
    run = simulate(m, make(0.04), 3000, q=[2.0])
    energy = sum(run.energy)
    early, late = (np.abs(energy[part] - energy[0]).max() for part in (slice(0, 300), slice(-300, None)))
    assert 1e-6 < late < 1.3 * early
    assert early < 0.05


# Inertia that changes with time


def leaking():
    """A mass that grows as m (1 + 2t), on a spring and a damper."""
    return SymbolicMechanism.from_equations(
        "filling",
        "m*(1 + 2*t)*s'' = -20*s - 2*m*s'",
        coordinates={"s": "m"},
        parameters={"m": 1.5},
    )


@pytest.mark.parametrize(
    ("make", "near"), [(Spook, 2e-3), (OneStep, 1e-6), (lambda h: BDF(h, order=2), 1e-4)]
)
def test_inertia_that_depends_on_time(make, near):
    wanted = solve_ivp(
        lambda t, y: [y[1], (-20 * y[0] - 3 * y[1]) / (1.5 * (1 + 2 * t))],
        (0, 1),
        [1.0, 0.0],
        rtol=1e-10,
        atol=1e-12,
    ).y[:, -1]
    run = simulate(leaking(), make(1e-3), 1000, q=[1.0])
    assert [run.q[-1, 0], run.v[-1, 0]] == pytest.approx(wanted, abs=5 * near)
    # at what time a state is, energies are not told
    assert np.all(np.isnan(run.energy))


def test_time_in_a_potential_leaves_the_kinetic_energy():
    m = SymbolicMechanism.from_lagrangian(
        "pulled", "m*s'^2/2 - k/2*(s - sin(3*t))^2", coordinates={"s": "m"}, parameters={"m": 2.0, "k": 5.0}
    )
    run = simulate(m, Variational(0.01), 10, q=[0.2], v=[1.0])
    kinetic, potential = run.energy
    assert kinetic == pytest.approx(run.v[:, 0] ** 2)
    assert np.all(np.isnan(potential))


@pytest.mark.parametrize("L", ["m*(1 + t)*s'^2/2 - k*s^2/2", "m*s'^2/2 + k*s*s' - k*s^2/2"])
def test_momenta_of_more_than_inertia_are_refused(L):
    m = SymbolicMechanism.from_lagrangian("x", L, coordinates={"s": "m"}, parameters={"m": 1.0, "k": 4.0})
    with pytest.raises(
        MechidError, match=r"those of this mechanism hold time or terms .* at rest: use BDF or OneStep\."
    ):
        simulate(m, Variational(0.01), 3, q=[1.0])


# What steppers refuse


def test_what_steppers_refuse():
    with pytest.raises(
        MechidError, match="Variational needs a Lagrangian, and this mechanism is given by its equations"
    ):
        simulate(spring(), Variational(0.01), 3)
    with pytest.raises(
        MechidError, match="Variational knows no constraints on rates alone: use BDF or OneStep"
    ):
        simulate(sleigh(), Variational(0.01), 3)
    with pytest.raises(MechidError, match="Mechanism 'cart-pendulum' has no joints or loops to be softened"):
        simulate(cart_pendulum(), Spook(0.01, constraints={"hinge": 1e-6}), 3)
    with pytest.raises(MechidError, match="There is no rule 'euler'; valid: midpoint, trapezoidal"):
        OneStep(0.01, rule="euler")
    with pytest.raises(MechidError, match="There is no BDF of order True"):
        BDF(0.01, order=True)
    with pytest.raises(MechidError, match="OneStep knows no dry friction"):
        simulate(mechanisms.pendulum().dry_friction("hinge", coulomb=0.1), OneStep(0.01), 3)
    driven = mechanisms.cart_pendulum().drive("slide", name="path")
    with pytest.raises(MechidError, match="OneStep knows no driven coordinates"):
        simulate(driven, OneStep(0.01), 3)


# Programs


def test_programs_compute_what_sympy_does():
    """Every function, and its slope by JAX; whole powers have slopes at zero."""
    x, y = (sm.Symbol(n, real=True) for n in "xy")
    given = [
        sm.sin(x) * sm.cos(y) / sm.tan(x), sm.asin(x / 3) + sm.acos(y / 3) + sm.atan(x) + sm.atan2(x, y),
        sm.sinh(x) + sm.cosh(y) * sm.tanh(x * y), sm.exp(-x) * sm.log(y),
        sm.sqrt(x) / sm.sqrt(y) + x ** sm.Rational(5, 3), sm.pi * x + sm.E,
        sm.Abs(x - 1) * sm.sign(y - x), x**-3 + y**7 - 1 / x, sm.Max(x, y, x * y) - sm.Min(x, y),
        sm.Piecewise((x**2, x > y), (y**3, True)), x**y, sm.Heaviside(x - y) * x, sm.Integer(10) ** 25 * x,
        sm.Rational(1, 3) * x, sm.cot(x) + sm.sec(y),
    ]  # fmt: skip
    m = SymbolicMechanism.from_equations("m", "x'' + y = 0", coordinates=["x"], parameters={"y": 1.0})
    program = Program(m, given, (len(given),))
    value = jax.jit(lambda q, p: program(q, None, None, None, 0.0, p))
    slope = jax.jit(jax.jacfwd(value))
    for at in ((0.7, 1.3), (1.6, 0.4)):
        q, p = np.array(at[:1]), np.array(at[1:])
        exact = [float(e.subs({x: at[0], y: at[1]})) for e in given]
        assert np.asarray(value(q, p)) == pytest.approx(exact, rel=1e-13)
        h = 1e-6
        by = [
            (float(e.subs({x: at[0] + h, y: at[1]})) - float(e.subs({x: at[0] - h, y: at[1]}))) / (2 * h)
            for e in given
        ]
        assert np.asarray(slope(q, p))[:, 0] == pytest.approx(by, rel=1e-6, abs=1e-6)
    still = Program(m, [x**2, x**3 * y, x * y], (3,))
    assert np.asarray(jax.jacfwd(lambda q: still(q, None, None, None, 0.0, np.ones(1)))(np.zeros(1)))[
        :, 0
    ] == (pytest.approx([0.0, 0.0, 1.0]))


def test_a_jump_in_a_lagrangian_has_no_slope_beside_it():
    m = SymbolicMechanism.from_lagrangian(
        "m", "m*s'^2/2 - k*s*sign(s)", dissipation="c*s'*sign(s')", coordinates={"s": "m"},
        parameters={"m": 2.0, "k": 3.0, "c": 0.5},
    )  # fmt: skip
    balance = m.lower().force_balance(*np.array([[-1.0], [2.0], [0.25]]), np.zeros(0), 0.0)
    assert np.asarray(balance) == pytest.approx([2.0 * 0.25 - 3.0 + 0.5])


def test_equal_equations_are_one_program():
    """Another set of numbers is no other program; another equation is."""
    one, same = cart_pendulum(), cart_pendulum()
    assert one.lower().code == same.lower().code
    assert hash(one.lower().code) == hash(same.lower().code)
    assert one.lower().code != spring().lower().code


# The bicycle


def test_the_whipple_bicycle_is_that_of_the_benchmark():
    """Linearised about riding straight: M q̈ + v C1 q̇ + (g K0 + v² K2) q = f for lean and steer, of
    Meijaard, Papadopoulos, Ruina and Schwab (2007), Table 1 and Eqs. 5.3."""
    from mechid.studies.whipple import whipple

    M = np.array([[80.81722, 2.31941332208709], [2.31941332208709, 0.29784188199686]])
    K0 = np.array([[-80.95, -2.59951685249872], [-2.59951685249872, -0.80329488458618]])
    K2 = np.array([[0.0, 76.59734589573222], [0.0, 2.65431523794604]])
    C1 = np.array([[0.0, 33.86641391492494], [-0.85035641456978, 1.68540397397560]])
    found = lean_and_steer(whipple())
    h, still = 1e-4, np.zeros(2)
    for v in (0.0, 5.0):
        by_q = np.array([(found(e, still, v) - found(-e, still, v)) / (2 * h) for e in h * np.eye(2)]).T
        by_v = np.array([(found(still, e, v) - found(still, -e, v)) / (2 * h) for e in h * np.eye(2)]).T
        assert by_q == pytest.approx(-np.linalg.solve(M, G * K0 + v**2 * K2), rel=1e-6, abs=1e-6)
        assert by_v == pytest.approx(-np.linalg.solve(M, v * C1), rel=1e-6, abs=1e-6)
        assert found(still, still, v) == pytest.approx([0.0, 0.0], abs=1e-9)
        assert found(still, still, v, 1.0) == pytest.approx(np.linalg.inv(M)[:, 1], rel=1e-9)


def lean_and_steer(m):
    """Accelerations of lean and steer for their values and rates at a speed, with the wheels on the ground."""
    s = m.symbols
    names = m.coordinate_names
    free, dependent = (
        [names.index(n) for n in ("lean", "steer")],
        [names.index(n) for n in ("yaw", "front", "pitch")],
    )
    rear, pitch = names.index("rear"), names.index("pitch")
    v = sm.Matrix(list(s.v))
    height = sm.Matrix([c.value for c in m.constraints])
    opening = sm.Matrix([*(height.jacobian(list(s.q)) * v), *(c.value for c in m.rolling)])
    wanted = [m.mass_matrix, m.rest, opening.jacobian(list(s.v)), opening.jacobian(list(s.q)) * v, height]
    program = sm.lambdify([*s.q, *s.v, *s.u, *s.theta], wanted, "numpy", cse=True)

    def at(q, v, u=0.0):
        return [np.array(x, float) for x in program(*q, *v, u, *m.values[: len(s.theta)])]

    def found(angles, rates, speed, torque=0.0):
        q, v = np.zeros(6), np.zeros(6)
        q[free] = angles
        for _ in range(6):
            _, _, C, _, gap = at(q, v)
            q[pitch] -= gap[0, 0] / C[0, pitch]
        v[free] = rates
        v[rear] = -speed / 0.3
        C = at(q, v)[2]
        v[dependent] = -np.linalg.solve(C[:, dependent], C @ v)
        inertia, rest, C, bend, _ = at(q, v, torque)
        K = np.block([[inertia, C.T], [C, np.zeros((3, 3))]])
        return np.linalg.solve(K, np.concatenate([rest.ravel(), -bend.ravel()]))[free]

    return found


@pytest.mark.parametrize(
    ("rows", "name"),
    [
        (["m*s'' = -k*s", "0*w'' + w = m - m"], "w"),
        (["m*s'' + 2*m*w'' = -k*s", "2*m*s'' + 4*m*w'' = 0"], "s"),
    ],
)
def test_a_singular_mass_matrix_is_refused_at_the_start(rows, name):
    """A massless coordinate; and a second row that is twice the first: (2, −1) moves without inertia."""
    m = SymbolicMechanism.from_equations(
        "loose", rows, coordinates={"s": "m", "w": "m"}, parameters={"m": 1.0, "k": 4.0}
    )
    with pytest.raises(MechidError, match=f"mass matrix of 'loose' is singular at the start.*'{name}'"):
        simulate(m, OneStep(0.01), 10, q=[1.0, 0.1])


@pytest.mark.parametrize(
    ("row", "mass", "told"),
    [
        ("m*s'' = -k*s", 0.0, "is singular at the start.*'s'"),
        ("m*s' = -k*s", 1.0, "is singular at the start.*'s'"),
        ("m*s^2*s'' = -k*s", 1.0, "is singular at the start.*'s'"),
        ("m/s*s'' = -k*s", 1.0, "is not finite at the start"),
    ],
)
@pytest.mark.parametrize("make", [OneStep, BDF, Spook])
def test_one_coordinate_without_inertia_is_refused(row, mass, told, make):
    m = SymbolicMechanism.from_equations("x", row, coordinates={"s": "m"}, parameters={"m": mass, "k": 1.0})
    with pytest.raises(MechidError, match=f"mass matrix of 'x' {told}"):
        simulate(m, make(0.01), 10, v=[1.0])


def test_small_inertia_is_inertia():
    """A milligram: s = cos(ω t) with the ω of k/m."""
    m = SymbolicMechanism.from_equations(
        "x", "m*s'' = -k*s", coordinates={"s": "m"}, parameters={"m": 1e-6, "k": 4e-6}
    )
    assert simulate(m, OneStep(1e-3), 1000, q=[1.0]).q[-1, 0] == pytest.approx(np.cos(2.0), abs=1e-5)


def test_the_usual_stepper_is_one_that_can():
    """A Lagrangian is varied, equations are not; what only pushes is for SPOOK."""

    pendulum = mechanisms.pendulum()
    assert usual(pendulum) == "variational"
    assert usual(pendulum.stops("hinge", upper=1.0)) == "spook"
    equations = SymbolicMechanism.from_equations(
        "x", "m*s'' = u", coordinates={"s": "m"}, parameters={"m": (1.0, "kg")}, inputs={"u": "N"}
    )
    assert usual(equations) == "midpoint"
