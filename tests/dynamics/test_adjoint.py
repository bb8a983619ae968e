"""`adjoint` against forward sensitivities, finite differences, and automatic differentiation of a toy stepper."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mechid
from mechid import BDF, Mechanism, MechidError, Parameters, Spook, Trajectory, Variational, simulate
from mechid.compile import jit
from mechid.dynamics import prepare
from mechid.dynamics.model import float_leaves
from mechid.dynamics.rollout import BLOCK
from mechid.dynamics.stepper import RowKind, Stepper, StepResult, model_tangent
from mechid.studies import mechanisms


def contraction(run: Trajectory, free: Any, theta: Any, by_state: Any, by_multiplier: Any) -> np.ndarray:
    """dJ/dθ from forward sensitivities."""
    forward = mechid.sensitivities(run, free, theta)
    by_x = np.einsum("ki,kij->j", by_state, forward.states)
    return by_x + np.einsum("ki,kij->j", by_multiplier, forward.multipliers)


def slopes(run: Trajectory, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    nx, nz = run.stepper.nx(run.model), run.stepper.nz(run.model)
    return rng.normal(size=(run.steps + 1, nx)), rng.normal(size=(run.steps, nz))


def assert_adjoint_is_the_contraction(run: Trajectory, free: Any, theta: Any) -> None:
    by_x, by_z = slopes(run)
    for a, b in ((by_x, by_z), (by_x, 0 * by_z), (0 * by_x, by_z)):
        want = contraction(run, free, theta, a, b)
        got = mechid.adjoint(run, free, theta, a, b)
        assert np.abs(got - want).max() <= 1e-9 * np.abs(want).max()
    without = mechid.adjoint(run, free, theta, by_x)
    assert np.array_equal(without, mechid.adjoint(run, free, theta, by_x, 0 * by_z))


# Mechanisms, with parameters of every kind


class Case(NamedTuple):
    free: Parameters
    q: Any
    v: Any

    def run(self, stepper: Stepper, steps: int, inputs: Any, theta: Any = None) -> Trajectory:
        model = self.free(self.free.theta0 if theta is None else theta)
        return simulate(self.free.mechanism, stepper, steps, q=self.q, v=self.v, inputs=inputs, model=model)


def freed(mechanism: Mechanism, *addresses: str) -> Parameters:
    free = Parameters(mechanism)
    for address in addresses:
        free = free.free(address)
    return free


def four_bar() -> Case:
    m = mechanisms.four_bar(damping=0.05).spring("b", stiffness=3.0, rest=0.2)
    q = mechid.assemble(m, mechanisms.FOUR_BAR_GUESS, hold=["a"])
    numbers = freed(
        m,
        "b.stiffness",
        "b.rest",
        "c.damping",
        "coupler.mass",
        "coupler.com.x",
        "rocker.inertia.yy",
        "rocker-end.origin.x",
        "b.origin.x",
        "gravity.x",
        "a.torque.gain",
    )
    return Case(numbers, q, mechid.project_rates(m, q, {"a": 1.0}, hold=["a"]))


def cart_pendulum() -> Case:
    m = mechanisms.cart_pendulum(damping=0.1).spring("slide", stiffness=2.0)
    numbers = freed(
        m,
        "slide.stiffness",
        "hinge.damping",
        "pole.mass",
        "pole.com.z",
        "pole.inertia.yy",
        "hinge.origin.x",
        "gravity.z",
        "slide.torque.gain",
    )
    return Case(numbers, [0.1, 1.0], [0.0, 0.5])


def pendulum() -> Case:
    m = mechanisms.pendulum(damping=0.1)
    return Case(freed(m, "hinge.damping", "rod.mass", "rod.com.z", "hinge.torque.gain"), [1.0], [0.5])


CASES = {"four-bar": four_bar, "cart-pendulum": cart_pendulum, "pendulum": pendulum}


def from_coordinates(t: Any, q: Any, v: Any) -> Any:
    return jnp.array([-20.0 * q[0] + jnp.sin(t)])


def from_rates(t: Any, q: Any, v: Any) -> Any:
    return jnp.array([-20.0 * q[0] - 0.5 * v[0] + jnp.sin(t)])


INPUTS = {"open loop": [0.5], "coordinates": from_coordinates, "rates": from_rates}


@pytest.fixture(scope="module")
def bar():
    return four_bar()


BALANCED = Variational(0.005, forces="balanced")


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(1, marks=pytest.mark.slow),
        pytest.param(4 * BLOCK, marks=pytest.mark.slow),
        2 * 4 * BLOCK + 44,
    ],
)
def test_adjoint_is_the_contraction_of_sensitivities(bar, steps):
    """Within a piece, exactly one, and more with a rest."""
    run = bar.run(BALANCED, steps, [0.5])
    assert_adjoint_is_the_contraction(run, bar.free, bar.free.theta0)


@pytest.mark.slow
@pytest.mark.parametrize("inputs", ["coordinates", "rates"])
def test_adjoint_through_a_controller(inputs):
    case = cart_pendulum()
    run = case.run(Variational(0.01), 40, INPUTS[inputs])
    assert_adjoint_is_the_contraction(run, case.free, case.free.theta0)


@pytest.mark.slow
@pytest.mark.parametrize("inputs", INPUTS)
@pytest.mark.parametrize(
    ("name", "stepper"),
    [
        (name, stepper)
        for name in ("four-bar", "cart-pendulum")
        for stepper in (
            Variational(0.005),
            Variational(0.005, forces="balanced"),
            Variational(0.005, rule="trapezoidal"),
        )
    ]
    + [("pendulum", BDF(0.01, order=2)), ("pendulum", BDF(0.01, order=3)), ("pendulum", Spook(0.01))],
)
def test_adjoint_of_every_stepper(name, stepper, inputs):
    case = CASES[name]()
    run = case.run(stepper, 40, INPUTS[inputs])
    assert_adjoint_is_the_contraction(run, case.free, case.free.theta0)


def test_gradient_of_a_cost_is_that_of_finite_differences(bar):
    """J = ½ Σ (q − target)² + ½ Σ λ², of simulations from one start: 60 steps, every kind of number."""
    steps, theta = 60, bar.free.theta0
    target = np.random.default_rng(2).normal(size=(steps + 1, 3))

    def cost(run):
        return 0.5 * np.sum((run.q - target) ** 2) + 0.5 * np.sum(run.multipliers**2)

    run = bar.run(BALANCED, steps, [0.5])
    by_state = np.concatenate([run.q - target, np.zeros((steps + 1, 3))], 1)
    gradient = mechid.adjoint(run, bar.free, theta, by_state, run.multipliers)
    for i, name in enumerate(bar.free.names):
        # a length opens the loop at the start, where no more than 1e-6 m is let through
        h = 4e-7 if "origin" in name else 1e-5
        ends = [cost(bar.run(BALANCED, steps, [0.5], theta + s * h * np.eye(len(theta))[i])) for s in (1, -1)]
        difference = (ends[0] - ends[1]) / (2 * h)
        assert gradient[i] == pytest.approx(difference, rel=1e-5, abs=1e-6), name


def test_a_function_serves_as_well_as_parameters(bar):
    run, theta = bar.run(BALANCED, 40, [0.5]), bar.free.theta0
    by_x, by_z = slopes(run)
    want = mechid.adjoint(run, bar.free, theta, by_x, by_z)
    got = mechid.adjoint(run, lambda th: bar.free.bind(th), list(theta), by_x.tolist(), by_z)
    assert np.abs(got - want).max() < 1e-12 * np.abs(want).max()


def test_what_is_asked_of_the_slopes(bar):
    run, theta = bar.run(BALANCED, 5, [0.5]), bar.free.theta0
    by_x, by_z = slopes(run)
    with pytest.raises(MechidError, match=r"slopes of the cost by the states .*\(6, 6\)"):
        mechid.adjoint(run, bar.free, theta, by_x[1:])
    with pytest.raises(MechidError, match=r"slopes of the cost by the multipliers .*\(5, 2\)"):
        mechid.adjoint(run, bar.free, theta, by_x, by_z[:, :1])
    with pytest.raises(MechidError, match="slopes of the cost by the states"):
        mechid.adjoint(run, bar.free, theta, np.full_like(by_x, np.nan))
    with pytest.raises(MechidError, match="at least one step"):
        mechid.adjoint(bar.run(BALANCED, 0, [0.5]), bar.free, theta, by_x[:1])


# A toy: no mechanism, any number of past states, and a step that is written down. Automatic differentiation of
# the whole recursion is the oracle, and all that a stepper inherits is tried.


class ToyModel(NamedTuple):
    numbers: Any
    """(3,) decay, curvature of the constraint, gain"""

    @property
    def nu(self) -> int:
        return 1

    @property
    def driven(self) -> Any:
        return np.zeros(0, dtype=int)


@partial(jax.tree_util.register_dataclass, data_fields=["dt"], meta_fields=["window"])
@dataclass(frozen=True, eq=False)
class Toy(Stepper):
    """x1 = f(past, u, t) + (0, 2) z with x1[1] = sin(c x1[0])."""

    dt: float
    window: int

    def nx(self, model):
        return 2

    def nz(self, model):
        return 1

    def rows(self, model):
        return (RowKind.DYNAMIC,) * 2 + (RowKind.HARD,)

    def initial(self, model, q, v, u, t):
        return jnp.array([q[0], jnp.sin(model.numbers[1] * q[0])]) + 0.1 * v

    def free_step(self, past, u, t, k, model):
        """Older states count for less, and the first step for more."""
        weights = 0.5 ** jnp.arange(self.window)[::-1] * (1.0 + (k == 0))
        pulled = weights @ jnp.sin(past) + jnp.array([0.3, -0.2]) * past[0, 0] * past[-1, 1]
        return past[-1] - self.step_size(k) * (
            model.numbers[0] * pulled - model.numbers[2] * u[0] * jnp.cos(t)
        )

    def residual(self, xs, z, u, t, k, model):
        free = self.free_step(xs[:-1], u, t, k, model)
        x1 = xs[-1]
        return jnp.append(x1 - free - jnp.array([0.0, 2.0]) * z[0], x1[1] - jnp.sin(model.numbers[1] * x1[0]))

    def step(self, xs, u, t, k, model, guess, memory=None):
        free = self.free_step(xs, u, t, k, model)
        x1 = jnp.array([free[0], jnp.sin(model.numbers[1] * free[0])])
        return StepResult(x1, (x1[1:] - free[1:]) / 2.0, 0, 0, 0.0)

    def retract(self, x, d):
        return x + d

    def local(self, x, y):
        return y - x

    def positions(self, model, x):
        return x

    def velocities(self, model, x, u, driven):
        return model.numbers[0] * x**2


def toy_motion(stepper: Toy, model: Any, q: Any, v: Any, table: Any, controller: Any) -> Any:
    """States, multipliers and inputs of the recursion."""
    first = stepper.initial(model, q, v, table[0], 0.0)

    def step(past, now):
        k, u = now
        t = stepper.dt * k
        if controller is not None:
            u = controller(t, past[-1], stepper.velocities(model, past[-1], u, None))
        s = stepper.step(past, u, t, k, model, None)
        return jnp.concatenate([past[1:], s.state[None]]), (s.state, s.z, u)

    past = jnp.broadcast_to(first, (stepper.window, 2))
    _, (states, zs, us) = jax.lax.scan(step, past, (jnp.arange(len(table)), table))
    return jnp.concatenate([first[None], states]), zs, us


TOY_INPUTS = {
    "open loop": None,
    "coordinates": lambda t, q, v: jnp.array([0.4 * jnp.sin(q[0]) - q[1] + t]),
    "rates": lambda t, q, v: jnp.array([0.4 * jnp.sin(q[0]) - v[1] * q[0] + t]),
}


@pytest.mark.parametrize(
    ("window", "inputs"),
    [
        (2, "rates"),
        (3, "coordinates"),
        *(pytest.param(*x, marks=pytest.mark.slow) for x in ((1, "rates"), (2, "open loop"), (3, "rates"))),
    ],
)
def test_a_toy_with_several_past_states(window, inputs):
    """The gradient and the forward sensitivities against automatic differentiation of the recursion."""
    stepper, theta = Toy(0.05, window), jnp.array([0.8, 1.3, 0.7])
    q, v, steps = jnp.array([0.4, 0.0]), jnp.array([0.5, -0.3]), 4 * BLOCK + 20
    controller = TOY_INPUTS[inputs]
    table = jnp.full((steps, 1), 0.5)

    def bind(th):
        return ToyModel(jnp.array([th[0], th[1] * th[0], jnp.exp(th[2])]))

    @partial(jit, once=True)
    def everything(th):
        def motion(th):
            return toy_motion(stepper, bind(th), q, v, table, controller)

        return motion(th), jax.jacfwd(motion)(th)

    (x, z, u), (dx, dz, _) = jax.tree.map(np.asarray, everything(theta))
    t = 0.05 * np.arange(steps + 1)
    run = Trajectory(
        None, stepper, bind(theta), t, x, z, u, np.zeros(steps), np.zeros(steps), "", q, v, controller,
            np.asarray(table), np.zeros((steps + 1, 0)),
    )  # fmt: skip
    assert 0.1 < np.abs(dx[-1]).max() < 100.0
    forward = mechid.sensitivities(run, bind, theta)
    assert np.abs(forward.states - dx).max() < 1e-11 * np.abs(dx).max()
    assert np.abs(forward.multipliers - dz).max() < 1e-11 * np.abs(dz).max()
    by_x, by_z = slopes(run)
    want = np.einsum("ki,kij->j", by_x, dx) + np.einsum("ki,kij->j", by_z, dz)
    got = mechid.adjoint(run, bind, theta, by_x, by_z)
    assert np.abs(got - want).max() < 1e-11 * np.abs(want).max()


# From parameters to the arrays of a model


def everything_at_once() -> Mechanism:
    """Every kind of joint, element and closure that has numbers."""

    def tug(q, v, t, p):
        return jnp.array([-p[0] * jnp.tanh(v[0] / p[1]), 0.1 * q[0] * jnp.sin(t)])

    return (
        Mechanism("everything")
        .body("base", mass=2.0, com=(0.1, 0, 0.2), inertia=(0.1, 0.2, 0.25, 0.01, 0.02, 0.03))
        .prismatic("rail", "world", "base", axis="x", origin=(0, 0.1, 0))
        .body("bracket", mass=0.4, com=(0, 0.05, 0), inertia=(0.01, 0.02, 0.025))
        .fixed("screws", "base", "bracket", origin=(0.1, 0, 0.3), rotation=mechid.rotation_about("x", 0.4))
        .body("arm", mass=1.0, com=(0.2, 0, 0), inertia=(0.02, 0.1, 0.1))
        .universal("shoulder", "bracket", "arm", axes="xz", origin=(0, 0.2, 0))
        .body("hand", mass=0.5, com=(0, 0, 0.1), inertia=(0.01, 0.012, 0.015))
        .spherical("wrist", "arm", "hand", origin=(0.4, 0, 0), rotation=mechid.rotation_about("z", 0.7))
        .body("wheel", mass=0.3, inertia=(0.01, 0.01, 0.02))
        .revolute("axle", "base", "wheel", axis=(0, 1, 1), origin=(-0.2, 0, 0))
        .frame("tip", "hand", origin=(0, 0, 0.2), rotation=mechid.rotation_about("y", 0.3))
        .frame("hook", "world", origin=(0.5, 0.5, 0.5))
        .frame("eye", "bracket", origin=(0, 0, 0.1))
        .spring("shoulder.1", stiffness=5.0, cubic=0.4, rest=0.1)
        .spring("shoulder.1", stiffness=1.0, rest=-0.3, name="second")
        .damper("shoulder.2", damping=0.3, cubic=0.02)
        .friction("axle", coulomb=0.2, stribeck=0.1)
        .motor("rail", gain=2.0, gear_ratio=3.0, rotor_inertia=0.01)
        .torque("axle")
        .armature("wrist.1", inertia=0.05)
        .line_spring("cable", "tip", "hook", stiffness=30.0, cubic=2.0, rest=0.3, damping=0.1)
        .force("push", "tip", axes="body", moment=True)
        .element("tug", ["rail", "axle"], force=tug, parameters={"level": 0.4, "width": 0.1})
        .element("pot", "axle", potential=lambda q, p: p[0] * jnp.cos(q[0]), parameters={"depth": 0.2})
        .coupling("gear", "axle", "rail", ratio=2.0, offset=0.1, higher=(0.3,))
        .loop("closure", "tip", "hook", kind="point-on-axis")
        .drive("wrist.3")
    )


def every_number(mechanism: Mechanism) -> Parameters:
    """All addresses free, bodies by mass, com and inertia."""
    free = Parameters(mechanism)
    for address in free.lowering.layout.addresses:
        if address.chart != "linear":
            free = free.free(address.qualified)
    return free


def by_bind(free: Parameters, theta: np.ndarray) -> list[Any]:
    return jit(partial(model_tangent, free.bind), once=True)(theta)


def by_prepare(free: Parameters, theta: np.ndarray) -> list[Any]:
    values, by_theta = np.asarray(free.values(theta)), np.asarray(free.tangent(theta))
    return prepare.prepare_tangent(free.lowering.topology, values, by_theta)


@pytest.mark.parametrize("other", [by_prepare, pytest.param(by_bind, marks=pytest.mark.slow)])
def test_slopes_of_a_model_by_every_number(monkeypatch, other):
    """The complex step against the compiled program and jax.jacfwd of bind; tilts are zero, tiny or large."""
    free = every_number(everything_at_once())
    kinds = {name.partition("/")[0] for name in free.names}
    assert kinds >= {"world", "body", "joint", "frame", "spring", "damper", "friction", "motor", "armature"}
    assert kinds >= {"line_spring", "element", "coupling"}
    tilts = np.flatnonzero([".tilt." in name for name in free.names])
    theta = free.theta0.copy()
    # gravity's comes first: about the vertical itself it would change nothing
    theta[tilts] = np.resize(np.repeat([1e-4, 0.0, 0.5], 3), len(tilts))
    monkeypatch.setattr(prepare, "MANY", free.size - 1)
    want = other(free, theta)
    monkeypatch.setattr(prepare, "MANY", free.size)
    stepped = by_prepare(free, theta)
    assert all(isinstance(x, jax.Array) for x in want)
    assert all(isinstance(x, np.ndarray) for x in stepped)
    assert len(want) == len(stepped) == len(float_leaves(free(theta)))
    moved = np.zeros(free.size, dtype=bool)
    for a, b in zip(want, stepped, strict=True):
        assert a.shape == b.shape
        assert np.abs(a - b).max(initial=0.0) < 1e-13 * (1.0 + np.abs(a).max(initial=0.0))
        moved |= np.abs(a).reshape(-1, free.size).any(0)
    # how late inputs act is no number of the model
    assert all(name.startswith("input/") for name in np.array(free.names)[~moved])


def test_a_model_of_theta_is_that_of_the_mechanism_with_its_numbers():
    """`bind` against `apply`, which turns rotations by their tilts and writes all numbers into the parts."""
    free = every_number(everything_at_once())
    theta = free.theta0 + 0.1 * np.random.default_rng(8).uniform(-1, 1, free.size)
    for a, b in zip(float_leaves(free(theta)), float_leaves(free.apply(theta).lower()), strict=True):
        assert np.abs(np.asarray(a) - np.asarray(b)).max(initial=0.0) < 1e-12


def test_slopes_of_a_model_are_finite_differences():
    """The complex step, which a function that is not analytic would betray, against two lowered models."""
    free = every_number(everything_at_once())
    rng = np.random.default_rng(7)
    theta = free.theta0 + 0.1 * rng.uniform(-1, 1, free.size)
    for _ in range(3):
        direction = rng.normal(size=(free.size, 1))
        along = np.asarray(free.tangent(theta)) @ direction
        got = prepare.prepare_tangent(free.lowering.topology, np.asarray(free.values(theta)), along)
        ends = [float_leaves(free(theta + s * 1e-5 * direction[:, 0])) for s in (1, -1)]
        for exact, a, b in zip(got, *ends, strict=True):
            difference = (np.asarray(a) - np.asarray(b)) / 2e-5
            scale = 1.0 + np.abs(difference).max(initial=0.0)
            assert np.abs(exact[..., 0] - difference).max(initial=0.0) < 1e-7 * scale
