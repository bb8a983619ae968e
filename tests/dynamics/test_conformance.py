"""The suite that keeps steppers one program: every stepper on every mechanism."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from symbolic_cases import cart_pendulum, hanging, sleigh

from mechid.dynamics.bdf import ALPHA, BDF
from mechid.dynamics.onestep import OneStep
from mechid.dynamics.simulate import simulate
from mechid.dynamics.spook import Spook
from mechid.dynamics.stepper import RowKind, Stepper, float_leaves
from mechid.dynamics.variational import Variational
from mechid.studies.steppers import MACHINES, Machine, convergence

STEPPERS = {
    "variational": Variational,
    "spook": lambda dt: Spook(dt, compliance=1e-8),
    "bdf2": lambda dt: BDF(dt, order=2),
    "trapezoidal": lambda dt: Variational(dt, rule="trapezoidal"),
    "bdf3": lambda dt: BDF(dt, order=3),
    "midpoint": OneStep,
    "one-step trapezoidal": lambda dt: OneStep(dt, rule="trapezoidal"),
}
EVERYWHERE = ("variational", "spook", "bdf2")
IN_SYMBOLS = {
    "cart in symbols": lambda: Machine(
        cart_pendulum(), np.array([0.1, 1.2]), np.array([0.2, -1.0]), np.array([0.7]), 0.01, 0.5
    ),
    "bob": lambda: Machine(hanging(), np.array([0.3, -0.4]), np.array([0.8, 0.6]), np.zeros(0), 0.01, 0.5),
    "sleigh": lambda: Machine(
        sleigh(), np.array([0.1, 0.2, 0.0]), np.array([1.0, 0.0, 0.5]), np.zeros(0), 0.01, 0.5
    ),
}
"""mechanisms in symbols: without constraints, with one on coordinates, with one on rates"""
ALL_MACHINES = {**MACHINES, **IN_SYMBOLS}
PAIRS = [
    *((m, s) for m in MACHINES for s in STEPPERS if s in EVERYWHERE or m == "four-bar"),
    *(("cart in symbols", s) for s in ("variational", "spook", "bdf3", "midpoint")),
    *(("bob", s) for s in ("trapezoidal", "spook", "bdf2", "midpoint", "one-step trapezoidal")),
    *(("sleigh", s) for s in ("spook", "bdf2", "midpoint", "one-step trapezoidal")),
]
CELLS = [pytest.param(m, s, id=f"{m}-{s}", marks=pytest.mark.xdist_group(f"{m}")) for m, s in PAIRS]
every_cell = pytest.mark.parametrize(("machine", "stepper"), CELLS)


# Compiled once a stepper and a size, with everything else as arguments.
quickly = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


@quickly
def _residual(stepper, xs, z, u, t, k, model):
    return stepper.residual(xs, z, u, t, k, model)


@quickly
def _linearize(stepper, xs, z, u, t, k, model, tangent):
    return stepper.linearize(xs, z, u, t, k, model, tangent)


@jax.jit
def _moved(stepper, xs, d):
    return jax.vmap(stepper.retract)(xs, d)


@pytest.fixture(scope="module")
def runs():
    """Short runs, made once."""
    made = {}

    def get(machine: str, stepper: str):
        if (machine, stepper) not in made:
            at = ALL_MACHINES[machine]()
            made[machine, stepper] = (
                at,
                simulate(at.mechanism, STEPPERS[stepper](at.dt), 6, q=at.q, v=at.v, inputs=at.u),
            )
        return made[machine, stepper]

    return get


def _window(run, k):
    """The states around step k, multipliers, input, time, number."""
    around = np.maximum(np.arange(k + 1 - run.stepper.window, k + 2), 0)
    xs = jax.tree.map(lambda a: jnp.asarray(a[around]), run.states)
    return xs, jnp.asarray(run.multipliers[k]), jnp.asarray(run.inputs[k]), run.t[k], k


@every_cell
def test_the_step_solves_the_residual(runs, machine, stepper):
    _, run = runs(machine, stepper)
    for k in (0, 1, 5):
        r = _residual(run.stepper, *_window(run, k), run.model)
        assert r.shape == (run.stepper.nx(run.model) + run.stepper.nz(run.model),)
        assert np.abs(r).max() < 1e-9
    assert len(run.stepper.rows(run.model)) == len(r)


@every_cell
def test_linearize_equals_differences_of_the_residual(runs, machine, stepper):
    """Along random directions of states, multipliers, inputs and all numbers, off the solution too."""
    at, run = runs(machine, stepper)
    method, model = run.stepper, run.model
    xs, z, u, t, k = _window(run, 5)
    low = at.mechanism.lowered()
    rng = np.random.default_rng(3)
    direction = rng.normal(size=low.values.size) * (low.values != 0.0)
    step = 1e-5
    models = [low.model(low.values + s * step * direction) for s in (1.0, -1.0)]
    tangent = [
        (a - b)[..., None] / (2 * step) for a, b in zip(*(float_leaves(m) for m in models), strict=True)
    ]
    shape = (method.window + 1, method.nx(model))
    xs = _moved(method, xs, 0.01 * rng.normal(size=shape))
    blocks = _linearize(method, xs, z, u, t, k, model, tangent)
    dx, dz, du = rng.normal(size=shape), rng.normal(size=z.shape), rng.normal(size=u.shape)

    def slope(change):
        ends = [_residual(method, *change(s * step), t, k, model) for s in (1.0, -1.0)]
        return (ends[0] - ends[1]) / (2 * step)

    by_number = (
        _residual(method, xs, z, u, t, k, models[0]) - _residual(method, xs, z, u, t, k, models[1])
    ) / (2 * step)
    for exact, difference in (
        (jnp.einsum("wij,wj->i", blocks.x, dx), slope(lambda s: (_moved(method, xs, s * dx), z, u))),
        (blocks.z @ dz, slope(lambda s: (xs, z + s * dz, u))),
        (blocks.u @ du, slope(lambda s: (xs, z, u + s * du))),
        (blocks.theta[:, 0], by_number),
    ):
        assert np.abs(exact - difference).max() <= 1e-6 * (1 + np.abs(exact).max())


@pytest.mark.parametrize(
    ("machine", "stepper"),
    [
        pytest.param("model A", "variational", marks=pytest.mark.xdist_group("model A")),
        pytest.param("four-bar", "trapezoidal", marks=pytest.mark.xdist_group("four-bar")),
    ],
)
def test_the_closed_form_equals_automatic_differentiation(runs, machine, stepper):
    _, run = runs(machine, stepper)
    now = _window(run, 5)
    tangent = [x[..., None] for x in float_leaves(run.model)]
    exact = _linearize(run.stepper, *now, run.model, tangent)
    automatic = quickly(Stepper.linearize)(run.stepper, *now, run.model, tangent)
    for a, b in zip(exact, automatic, strict=True):
        assert a.shape == b.shape
        assert np.abs(a - b).max(initial=0.0) <= 1e-11 * (1 + np.abs(b).max(initial=0.0))


@every_cell
def test_retract_and_local_are_inverse(runs, machine, stepper):
    _, run = runs(machine, stepper)
    x = jax.tree.map(lambda a: jnp.asarray(a[2]), run.states)
    y = jax.tree.map(lambda a: jnp.asarray(a[5]), run.states)
    method = run.stepper
    d = jnp.asarray(np.random.default_rng(0).normal(size=method.nx(run.model)))
    local, retract = jax.jit(method.local), jax.jit(method.retract)
    assert np.abs(local(x, retract(x, d)) - d).max() < 1e-12
    back = retract(x, local(x, y))
    assert np.abs(local(y, back)).max() < 1e-12
    assert np.abs(local(x, x)).max() < 1e-15


@pytest.mark.xdist_group("four-bar")
@pytest.mark.parametrize("stepper", EVERYWHERE)
def test_observe_interpolates_and_agrees(runs, stepper):
    """Between the ends of a step; and the pin's force is the same for every stepper."""
    at, _ = runs("four-bar", stepper)
    dt = at.dt / 8
    run = simulate(at.mechanism, STEPPERS[stepper](dt), 320, q=at.q, v=at.v, inputs=at.u)
    k = run.steps - 1
    xs, z, u, t, _ = _window(run, k)
    x0, x1 = (jax.tree.map(lambda a, i=i: a[i], xs) for i in (-2, -1))
    look = jax.jit(lambda s: run.stepper.observe(x0, x1, z, u, t, k, s, run.model))
    start, middle, end = (look(s) for s in (0.0, 0.5, 1.0))
    for seen, i in ((start, -2), (end, -1)):
        turns = (seen.q - run.q[i]) / (2 * np.pi)
        assert np.abs(turns - np.round(turns)).max() < 1e-14
        assert np.abs(seen.v - run.v[i]).max() < 1e-10
    assert float(middle.t) == pytest.approx(run.t[k] + dt / 2)
    slope = (look(0.501).q - look(0.499).q) / (0.002 * dt)
    assert np.abs(slope - middle.v).max() < 1e-6
    fine = simulate(at.mechanism, Variational(dt / 2), 640, q=at.q, v=at.v, inputs=at.u)
    expected = -fine.multipliers[-1] / (dt / 2)
    assert np.abs(end.reaction - expected).max() < 0.03 * np.abs(expected).max()


@pytest.mark.xdist_group("four-bar")
def test_rows_say_what_may_be_softened():
    model = MACHINES["four-bar"]().mechanism.lower()
    kinds = {name: make(0.01).rows(model) for name, make in STEPPERS.items()}
    assert kinds["variational"].count(RowKind.HARD) == 2
    assert kinds["bdf2"].count(RowKind.DYNAMIC) == 3
    assert kinds["spook"].count(RowKind.DYNAMIC) == 18
    assert kinds["midpoint"].count(RowKind.DYNAMIC) == 3
    assert kinds["midpoint"].count(RowKind.HARD) == 4  # in coordinates and in rates
    rolling = sleigh().lower()
    for make in (OneStep(0.01), BDF(0.01)):
        assert make.rows(rolling).count(RowKind.HARD) == 1


@pytest.mark.parametrize("machine", [pytest.param(m, marks=pytest.mark.xdist_group(m)) for m in MACHINES])
def test_all_steppers_converge_to_one_motion(machine):
    kinds = ("variational, left", "variational, balanced", "BDF 2", "SPOOK")
    for row in convergence(2, [machine], kinds):
        print(machine, row.stepper, row.errors, row.orders)
        assert row.orders[-1] > row.expected - 0.25, row
        assert row.errors[-1] < 0.03, row


# Coefficients of BDF


def backward_differences(order):
    """Newest first, from Σ (1/j) ∇ʲ: the slope at the end of the polynomial through the last values."""
    found = np.zeros(order + 1)
    for j in range(1, order + 1):
        found[: j + 1] += (np.poly1d([-1.0, 1.0]) ** j).coeffs[::-1] / j
    return found


@pytest.mark.parametrize("order", range(1, 8))
def test_bdf_is_zero_stable_up_to_order_six(order):
    """Roots of Σ α_ℓ z^(k − ℓ): a single one at 1, all others within the circle; of order seven some are not."""
    alpha = backward_differences(order)
    if order <= 6:
        assert alpha == pytest.approx(np.array(ALPHA[order - 1]), rel=1e-14)
    roots = np.roots(alpha)
    sizes = np.sort(np.abs(roots))
    assert np.abs(roots - 1.0).min() < 1e-7
    if order == 7:
        assert sizes[-1] > 1.02
    else:
        assert sizes[-1] == pytest.approx(1.0, abs=1e-7)
        assert order == 1 or sizes[-2] < 0.9


def test_bdf_begins_with_lower_orders():
    """Step k uses the formula of order k + 1 until there are enough states, over the newest of them."""
    bdf = BDF(0.01, order=4)
    for k in range(7):
        used = min(k + 1, 4)
        alpha = np.asarray(bdf.coefficients(jnp.asarray(k)))
        assert alpha.shape == (5,)
        assert np.all(alpha[: 4 - used] == 0.0)
        assert alpha[4 - used :][::-1] == pytest.approx(backward_differences(used))
        # exact for polynomials of its order, at the newest of the times −4, …, 0
        t = np.arange(-4.0, 1.0)
        for power in range(used + 1):
            assert alpha @ t**power == pytest.approx(float(power == 1), abs=1e-12)
