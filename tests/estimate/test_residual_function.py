"""Derivatives of `residual_function` and `rollout` of first and second order, forward, reverse and mixed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from derivative_cases import CASES, DT, TIGHT, driven, late_motor
from estimation_cases import problem_of
from jax.tree_util import Partial

from mechid import BDF, MechidError, Spook, Variational, residual_function
from mechid.compile import jit
from mechid.dynamics.rollout import rollout
from mechid.dynamics.trajectory import as_law
from mechid.studies import mechanisms

EXACT = 1e-9
"""of the largest number: what two ways of computing one thing may differ by"""
NOISE = 1e-12
"""of the largest number: steps are solved to 1e-14 of their terms, and there are some dozen"""


class Everything(NamedTuple):
    """A function y ↦ (cost, rows r) at y; v: a direction, w: weights of the rows."""

    cost: Any
    r: Any
    gradient: Any
    wJ: Any
    Hv: Any
    """jvp of the gradient"""
    wJ_v: Any
    """jvp of wᵀJ"""
    slope: Any
    """gradient · v"""
    Jv: Any
    vH: Any
    """gradient of the jvp"""


def everything_of(both: Callable[[Any], Any], y: Any, v: Any, w: Any, mixed: bool = True) -> Everything:
    """In one program, since compiling is all of the time. mixed: the gradient of a jvp too."""

    def backward(y: Any) -> Any:
        (cost, rows), back = jax.vjp(both, y)
        return cost, rows, back((1.0, 0.0 * rows))[0], back((0.0, w))[0]

    def forward(y: Any) -> Any:
        slopes = jax.jvp(both, (y,), (v,))[1]
        return slopes[0], slopes

    here, (slope, Jv, Hv, wJ_v) = jax.jvp(backward, (y,), (v,))
    vH = Hv
    if mixed:
        vH, (slope, Jv) = jax.grad(forward, has_aux=True)(y)
    return Everything(*here, Hv, wJ_v, slope, Jv, vH)


def cost_and_rows(r: Any, y: Any) -> tuple[Any, Any]:
    at = r.evaluate(y)
    return at.cost, at.residuals


def _of_residuals(r: Any, y: Any, v: Any, w: Any, mixed: bool) -> Everything:
    return everything_of(partial(cost_and_rows, r), y, v, w, mixed)


of_residuals = jit(_of_residuals, once=True, static_argnums=(4,))


class Difference(NamedTuple):
    slope: np.ndarray
    error: float
    """what it may be wrong by: rounding, and the last change by extrapolation"""


def difference(values: dict[float, np.ndarray], h: float) -> Difference:
    """Central differences of f(s h), s = ±1, ±½, ±¼, extrapolated twice: (64 D₄ − 20 D₂ + D₁)/45, error h⁶.

    The error of what was extrapolated once (h⁴) is far above that. Rounding ε f of each value becomes at most
    ε f (4·64 + 2·20 + 1)/45 h.
    """
    a, b, c = ((values[s] - values[-s]) / (2 * s * h) for s in (1.0, 0.5, 0.25))
    once = (4 * c - b) / 3
    twice = (16 * once - (4 * b - a) / 3) / 15
    largest = max(np.abs(f).max() for f in values.values())
    return Difference(twice, float(np.abs(twice - once).max() + 6.6 * NOISE * largest / h))


def check_derivatives(
    program: Callable[[Any, Any, Any], Everything],
    y: np.ndarray,
    scale: np.ndarray,
    rows: int,
    rng: np.random.Generator,
    h: float = 4e-3,
) -> Everything:
    """All derivatives against each other, and along a random direction against differences.

    Args:
        program: (y, v, w) ↦ Everything.
        scale: sizes of y; the direction is up to so long.
        h: the differences' step along it.
    """
    u, v = rng.uniform(-1, 1, (2, len(y))) * scale
    w = rng.normal(size=rows)

    def at(y: Any, v: Any = v) -> Everything:
        return Everything(*map(np.asarray, program(y, v, w)))

    one, other = at(y), at(y, u)
    near = {s: at(y + s * h * v) for s in (1.0, 0.5, 0.25, -1.0, -0.5, -0.25)}
    assert all(np.isfinite(x).all() for x in one)
    # forward against reverse
    assert w @ one.Jv == pytest.approx(one.wJ @ v, abs=EXACT * np.abs(one.wJ * v).max())
    assert one.slope == pytest.approx(one.gradient @ v, abs=EXACT * np.abs(one.gradient * v).max())
    assert one.Hv * scale == pytest.approx(one.vH * scale, abs=EXACT * np.abs(one.Hv * scale).max())
    # symmetry
    assert u @ one.Hv == pytest.approx(v @ other.Hv, abs=EXACT * np.abs(u * one.Hv).max())
    # differences, by numbers of one size
    for exact, of in (("slope", "cost"), ("Jv", "r"), ("Hv", "gradient"), ("wJ_v", "wJ")):
        by = scale if of in ("gradient", "wJ") else 1.0
        found = difference({s: by * getattr(x, of) for s, x in near.items()}, h)
        assert found.error < 1e-5 * np.abs(found.slope).max(), f"differences of {of} tell too little"
        assert np.abs(by * getattr(one, exact) - found.slope).max() < found.error, f"{exact} is wrong"
    return one


def moved(r: Any, rng: np.random.Generator) -> np.ndarray:
    """A random point, up to a tenth from the start."""
    return r.start + 0.1 * rng.uniform(-1, 1, r.size) * sizes(r.start)


def sizes(y: np.ndarray) -> np.ndarray:
    return np.maximum(np.abs(y), 0.1)


def rows_of(r: Any) -> int:
    return jax.eval_shape(r, r.start).shape[0]


# Experiments


@pytest.fixture(scope="module")
def small():
    return residual_function(*CASES["small"]())


def test_first_and_second_derivatives(small):
    """Against differences; cost and residuals against those of simulation error."""
    rng = np.random.default_rng(0)
    y = moved(small, rng)
    found = check_derivatives(lambda *a: of_residuals(small, *a, False), y, sizes(y), rows_of(small), rng)
    case = CASES["small"]()
    point = problem_of(case.stepper, case.experiments, case.free).evaluate(y)
    assert found.cost == pytest.approx(point.cost, rel=EXACT)
    (own,) = point.runs[0].residuals
    assert found.r[: own.size] == pytest.approx(own.reshape(-1), abs=EXACT)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_derivatives(name):
    """The same and the gradient of the jvp; gradient and all residuals against those of simulation error."""
    case = CASES[name]()
    r = residual_function(*case)
    rng = np.random.default_rng(len(name))
    y = moved(r, rng)
    found = check_derivatives(lambda *a: of_residuals(r, *a, True), y, sizes(y), rows_of(r), rng)
    problem = problem_of(case.stepper, case.experiments, case.free, gradients="adjoint")
    point = problem.evaluate(y)
    assert found.cost == pytest.approx(point.cost, rel=EXACT)
    gradient = problem.gradient(point)
    assert found.gradient == pytest.approx(gradient, abs=EXACT * np.abs(gradient).max())
    of_samples = [r.reshape(-1) for run in point.runs for r in run.residuals]
    rows = np.concatenate([*of_samples, problem.prior_residuals(y)])
    assert found.r == pytest.approx(rows, abs=EXACT * np.abs(rows).max())


# Delays


@pytest.mark.parametrize(
    "hold", ["zero-order", "mean", *(pytest.param(h, marks=pytest.mark.slow) for h in ("midpoint", "end"))]
)
def test_a_second_derivative_by_a_delay_is_refused(hold):
    """Also where it vanishes but for kinks, between which the first one is constant."""
    r = residual_function(*late_motor(Variational(DT), hold))
    assert r.names == ("motor.delay",)
    assert jax.eval_shape(jax.grad(r.cost), r.start).shape == (1,)
    with pytest.raises(
        MechidError, match="no second derivative by their delay: hold the delay, or use first"
    ):
        jax.eval_shape(jax.hessian(r.cost), r.start)


@pytest.mark.slow
def test_first_derivatives_by_a_delay():
    case = driven(Variational(DT, **TIGHT), "motor.delay", "path.delay", "rod.mass")
    r = residual_function(*case)
    rng = np.random.default_rng(1)
    # of 0.0137 s and 0.0082 s; an edge of a line through samples is met by no step's end
    y = moved(r, rng)
    v, w = rng.uniform(-1, 1, r.size) * np.abs(y), rng.normal(size=rows_of(r))

    @jit
    def first(r: Any, y: Any) -> Any:
        rows, Jv = jax.jvp(r, (y,), (v,))
        return rows, Jv, jax.vjp(r, y)[1](w)[0], jax.grad(r.cost)(y)

    rows, Jv, wJ, gradient = map(np.asarray, first(r, y))
    assert w @ Jv == pytest.approx(wJ @ v, abs=EXACT * np.abs(wJ * v).max())
    h = 4e-3
    found = difference(
        {s: np.asarray(first(r, y + s * h * v)[0]) for s in (1, 0.5, 0.25, -1, -0.5, -0.25)}, h
    )
    assert found.error < 1e-5 * np.abs(found.slope).max()
    assert np.abs(Jv - found.slope).max() < found.error
    problem = problem_of(case.stepper, case.experiments, case.free, gradients="adjoint")
    point = problem.evaluate(y)
    assert 0.5 * rows @ rows == pytest.approx(point.cost, rel=EXACT)
    assert gradient == pytest.approx(problem.gradient(point), abs=EXACT * np.abs(gradient).max())


# Motions that end early


def with_input(r: Any, step: int, value: float) -> Any:
    """The same experiment with another input at one step: nothing is compiled anew."""
    (data,) = r.data
    rows = np.array(data.rows)
    rows[step] = value
    return replace(r, data=(data._replace(rows=rows),))


def test_a_motion_that_ends_early(small):
    """Its cost is infinite, all else finite; what was seen before has the derivatives that it has without it."""
    broken = with_input(small, 7, 1e20)
    y = small.start
    seen = np.zeros(rows_of(small))
    seen[:8] = np.random.default_rng(2).normal(size=8)
    before = of_residuals.compilations()
    both = (of_residuals(r, y, 0.3 * sizes(y), seen, False) for r in (small, broken))
    whole, ended = (Everything(*map(np.asarray, x)) for x in both)
    assert of_residuals.compilations() == max(before, 1)
    assert np.isfinite(whole.cost)
    assert ended.cost == np.inf
    assert all(np.isfinite(x).all() for x in ended[1:])
    assert ended.r[:8] == pytest.approx(whole.r[:8], abs=EXACT)
    for name in ("wJ", "wJ_v"):
        want = getattr(whole, name)
        assert getattr(ended, name) == pytest.approx(want, abs=EXACT * np.abs(want).max())
    assert ended.Jv[:8] == pytest.approx(whole.Jv[:8], abs=EXACT * np.abs(whole.Jv).max())
    solved = jit(lambda r, y: r.evaluate(y).solved, once=True)
    assert solved(small, y).tolist() == [12]
    assert solved(broken, y).tolist() == [7]


@pytest.mark.slow
def test_of_several_motions_some_end_early(small):
    """With `vmap` over inputs and unknowns: the others are as they are alone."""
    rng = np.random.default_rng(3)
    ys = np.stack([moved(small, rng) for _ in range(5)])
    rows = np.stack([np.array(small.data[0].rows)] * 5)
    rows[2, 7], ys[4, 0] = 1e20, np.nan

    def at(rows: Any, y: Any) -> Any:
        r = replace(small, data=(small.data[0]._replace(rows=rows),))
        (_, found), back = jax.vjp(partial(cost_and_rows, r), y)
        return r.evaluate(y), back((1.0, 0.0 * found))[0], back((0.0, found))[0]

    together = jax.tree.map(np.asarray, jit(jax.vmap(at), once=True)(rows, ys))
    assert together[0].solved[:, 0].tolist() == [12, 12, 7, 12, 0]
    assert (together[0].cost == np.inf).tolist() == [False, False, True, False, True]
    assert all(np.isfinite(x[2]).all() for x in (together[0].residuals, *together[1:]))
    alone = jit(at, once=True)
    for i in (0, 1, 2, 3):
        for got, want in zip(jax.tree.leaves(together), jax.tree.leaves(alone(rows[i], ys[i])), strict=True):
            assert got[i] == pytest.approx(np.asarray(want), abs=EXACT * np.abs(want).max())


@pytest.mark.slow
def test_loops_that_cannot_be_closed_cost_infinitely_much():
    """The crank, a tenth as long as the coupler, cannot reach from one end of it to the other."""
    case = CASES["four-bar"]()
    r = residual_function(*case)
    far = r.start.copy()
    far[0] = 4.0  # the rocker's length, m
    cost = jit(lambda y: r.cost(y), once=True)
    assert np.isfinite(cost(r.start))
    assert problem_of(case.stepper, case.experiments, case.free).evaluate(far).cost == np.inf
    assert cost(far) == np.inf


# Data


@pytest.mark.slow
def test_derivatives_by_the_data(small):
    """By inputs and by what was measured, and mixed with those by the unknowns."""
    (data,) = small.data
    (samples,) = data.compare.samples
    y, count = small.start, data.rows.size

    def both(d: Any) -> Any:
        tau, seen, dy = d[:count], d[count:-1], d[-1]
        compare = replace(data.compare, samples=(samples._replace(values=samples.values + seen[:, None]),))
        own = data._replace(rows=data.rows + tau[:, None], compare=compare)
        return cost_and_rows(replace(small, data=(own,)), y + dy * sizes(y))

    n = count + len(samples.values) + 1
    program = jit(lambda y, v, w: everything_of(both, y, v, w), once=True)
    found = check_derivatives(program, np.zeros(n), np.full(n, 0.3), rows_of(small), np.random.default_rng(6))
    # (predicted − measured)/std
    assert found.gradient[count:-1] == pytest.approx(-found.r[:-2] / 0.02, rel=EXACT)


# Rollouts


ROD = mechanisms.pendulum(damping=0.1)
CART = (
    mechanisms.cart_pendulum(damping=0.1)
    .frame("tip", "pole", origin=(0, 0, -1.0))
    .torque("hinge", name="motor")
    .drive("slide", name="path")
)
WEIGHTS = np.random.default_rng(11).normal(size=1000)


def push(p: Any, t: Any, q: Any, v: Any) -> Any:
    """Of state and time."""
    return jnp.stack([p["gain"] * jnp.sin(q[-1] - 1.0) - 0.3 * v[-1] + jnp.cos(p["frequency"] * t)])


def push_and_drive(p: Any, t: Any, q: Any, v: Any) -> Any:
    """The forces on cart and pole, then the cart's path, which follows the pole's rate."""
    path = 0.05 * jnp.sin(8.0 * t) + 1e-3 * p["gain"] * v[1] * q[1]
    return jnp.concatenate([jnp.zeros(1), push(p, t, q, v), jnp.stack([path])])


def seen(stepper: Any, model: Any, motion: Any) -> Any:
    """Coordinates of all states, multipliers, inputs and times in a row."""
    q = jax.vmap(lambda x: stepper.positions(model, x))(motion.states)
    return jnp.concatenate([x.reshape(-1) for x in (q, motion.z, motion.u, motion.t, motion.driven)])


ROLLOUTS = {
    "variational": (ROD, Variational(DT, **TIGHT), push),
    "driven": (CART, Variational(DT, **TIGHT), push_and_drive),
    "driven by BDF with steps of many sizes": (CART, BDF(DT, **TIGHT), push_and_drive),
    "Spook": (ROD, Spook(DT), push),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ROLLOUTS)
def test_rollouts_by_numbers_of_a_controller_by_time_and_by_the_step(name):
    """By two numbers in a `Partial`, the first state and its rate, when it begins, and the size of a step."""
    mechanism, stepper, control = ROLLOUTS[name]
    model, steps = mechanism.lower(), 12
    many = "many" in name
    pattern = 1.0 + 0.3 * np.sin(np.arange(steps)) if many else 1.0

    def both(y: Any) -> Any:
        gain, frequency, angle, rate, t0, dt = y
        own = replace(stepper, dt=dt * pattern)
        zero = jnp.zeros(model.nq)
        q, v = zero.at[-1].set(angle), zero.at[-1].set(rate).at[0].add(0.4)
        x0 = own.initial(model, q, v, jnp.zeros(model.nu), t0)
        law = as_law(Partial(control, {"gain": gain, "frequency": frequency}))
        rows = jnp.zeros((steps, model.nu))
        motion = rollout(own, model, x0, rows, t0=t0, law=law, driven=v[model.driven])
        rows = seen(own, model, motion)
        return 0.5 * jnp.sum(WEIGHTS[: rows.shape[0]] * rows**2), rows

    y = np.array([0.7, 20.0, 0.5, 1.0, 0.3, DT])
    rows = jax.eval_shape(both, y)[1].shape[0]
    program = jit(lambda y, v, w: everything_of(both, y, v, w), once=True)
    check_derivatives(program, y, y, rows, np.random.default_rng(4))


TABLE = np.random.default_rng(5).normal(size=(12, 1))


def begun(y: Any) -> Any:
    """The first state and a law."""
    stepper, model = Variational(DT, **TIGHT), ROD.lower()
    x0 = stepper.initial(model, y[:1], y[1:2], jnp.zeros(1), 0.0)
    law = as_law(Partial(lambda p, t, q, v: p * jnp.cos(3.0 * t) - 0.2 * v, y[2]))

    def piece(x: Any, rows: Any, t: Any) -> tuple[Any, Any]:
        motion = rollout(stepper, model, x, rows, t0=t, law=law)
        last = jax.tree.map(lambda a: a[-1], motion.states)
        return last, jax.vmap(lambda x: stepper.positions(model, x))(motion.states)

    return x0, piece


def whole(y: Any) -> Any:
    x0, piece = begun(y)
    return jnp.sum(WEIGHTS[:13, None] * piece(x0, TABLE, 0.0)[1] ** 2)


def pieces(y: Any) -> Any:
    """The same in three pieces, one after the other."""
    x0, piece = begun(y)

    def one(carry: Any, rows: Any) -> Any:
        x, q = piece(carry[0], rows, carry[1])
        return (x, carry[1] + 4 * DT), q

    _, q = jax.lax.scan(one, (x0, jnp.zeros(())), TABLE.reshape(3, 4, 1))
    return jnp.sum(WEIGHTS[:13, None] * jnp.concatenate([q[0, :1], *q[:, 1:]]) ** 2)


def same(got: Any, want: Any) -> None:
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert np.asarray(a) == pytest.approx(np.asarray(b), abs=EXACT * np.abs(b).max())


@pytest.mark.slow
def test_rollouts_in_a_scan_and_in_a_batch():
    """Values, gradients and gradients of slopes of the pieces are those of the whole, each alone and together."""
    ys = np.array([[0.5, 1.0, 0.7], [-0.8, 2.0, -1.0]])

    def slopes(f: Any, y: Any) -> Any:
        return jax.value_and_grad(f)(y), jax.value_and_grad(lambda y: jax.jvp(f, (y,), (ys[1],))[1])(y)

    @jit
    def everything(ys: Any) -> Any:
        batch = [jax.vmap(partial(slopes, f))(ys) for f in (whole, pieces)]
        return *batch, slopes(whole, ys[0])

    batch, pieced, alone = everything(ys)
    same(pieced, batch)
    same(alone, jax.tree.map(lambda a: a[0], batch))


@pytest.mark.slow
def test_second_derivatives_forward_over_reverse_in_a_scan():
    y = np.array([0.5, 1.0, 0.7])
    same(*[jit(jax.hessian(f), once=True)(y) for f in (pieces, whole)])


def last_angle(law: Any, model: Any) -> Any:
    stepper = Variational(DT)
    x0 = stepper.initial(model, jnp.array([0.5]), jnp.zeros(1), jnp.zeros(1), 0.0)
    motion = rollout(stepper, model, x0, np.zeros((5, 1)), law=law)
    return stepper.positions(model, jax.tree.map(lambda a: a[-1], motion.states))[0]


def test_a_controller_that_encloses_what_is_traced():
    """Its slope is that of a `Partial` with the same number."""
    model = ROD.lower()

    def control(p: Any, t: Any, q: Any, v: Any) -> Any:
        return p * jnp.sin(q)

    def both(p: Any) -> Any:
        laws = as_law(Partial(control, p)), as_law(lambda *now: control(p, *now))
        return [last_angle(law, model) for law in laws]

    want, found = jit(jax.jacfwd(both), once=True)(0.7)
    assert want > 1e-4
    assert float(found) == pytest.approx(float(want), rel=EXACT)


def test_an_element_that_encloses_what_is_traced_is_refused():
    def last(p: Any) -> Any:
        m = ROD.element("own", "hinge", force=lambda q, v, t, _: p * jnp.sin(q))
        return last_angle(None, m.lower())

    with pytest.raises(
        MechidError, match="uses a value that is being differentiated: give that value as one of"
    ):
        jax.grad(last)(0.7)
