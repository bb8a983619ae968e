"""Every element on one machine: closed forms against autodiff and finite differences.

The machine's poses are computed a second time in NumPy and SciPy from its parts; velocities,
energies and powers follow from these by finite differences. Variants of the machine share its
shape, so that one compiled program serves them all.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.polynomial.polynomial import polyval
from scipy.integrate import quad
from scipy.spatial.transform import Rotation

from mechid import Mechanism
from mechid.dynamics.elements import friction_law, gear_friction_law, piecewise_potential
from mechid.dynamics.model import TreeModel
from mechid.model.parts import Contact, DryFriction, Element, LowerStop, UpperStop

QUARTIC = (0.1, -2.0, 0.5, 0.3, -0.2)
GEAR, ROTOR, GAIN = 30.0, 2e-3, 0.4
FRICTION = {
    "coulomb": 0.8,
    "stribeck": 0.5,
    "stribeck_velocity": 0.3,
    "stribeck_exponent": 1.5,
    "width": 0.05,
}
TWIST = {"mast": 1.0, "x": -2.5, "elbow": 0.4}
"""a combination of coordinates, in rad"""
STEPS = {"stiffness": (3.0, 7.0, 4.0), "loads": (0.9, 4.1), "rest": 0.1}
CORD = {"stiffness": 20.0, "cubic": 5.0, "rest": 0.4, "damping": 3.0}
ROPE = {"stiffness": 7.0, "rest": 0.2, "damping": 1.0}


def own_force(q, v, t, p):
    return jnp.stack([p[0] * jnp.sin(q[1]) * v[0] * v[1] + jnp.cos(t), -p[1] * q[0] * v[1] ** 2])


def own_potential(q, p):
    return p[0] * (1.0 - jnp.cos(q[0] - q[1])) + 0.1 * q[0] ** 2 * q[1] ** 3


def machine(
    *,
    springs: float = 1.0,
    cord: dict[str, float] = CORD,
    rope: dict[str, float] = ROPE,
    friction: float = 1.0,
    dampers: float = 1.0,
    rotor: float = ROTOR,
    armature: float = 0.3,
    own: float = 1.0,
    gears: float = 1.0,
    twist: float = 1.0,
) -> Mechanism:
    """A cart with an arm and a boom with a bob, its joints not in the order of the tree."""
    rng = np.random.default_rng(3)

    def somewhere() -> dict[str, np.ndarray]:
        return {"origin": rng.uniform(-0.4, 0.4, 3), "rotation": rng.uniform(-1, 1, 3)}

    def solid() -> dict[str, Any]:
        points = rng.normal(size=(6, 3))
        second = 0.02 * points.T @ points
        inertia = np.trace(second) * np.eye(3) - second
        return {"mass": rng.uniform(0.5, 2), "com": rng.uniform(-0.3, 0.3, 3), "inertia": inertia}

    m = Mechanism("every element", gravity=(0.6, -1.0, -9.7))
    for name in ("forearm", "tool", "cart", "arm", "boom", "bob"):
        m = m.body(name, **solid())
    friction_values = FRICTION | {k: friction * FRICTION[k] for k in ("coulomb", "stribeck")}
    return (
        m.revolute("elbow", "arm", "forearm", axis=(0.6, 0, 0.8), **somewhere())
        .fixed("weld", "forearm", "tool", **somewhere())
        .prismatic("x", "world", "cart", axis=(0.8, 0.6, 0), **somewhere())
        .universal("shoulder", "cart", "arm", axes="zy", coordinates=("theta", "psi"), **somewhere())
        .spherical("neck", "boom", "bob", **somewhere())
        .revolute("mast", "world", "boom", axis="-y", **somewhere())
        .frame("grip", "tool", **somewhere())
        .frame("eye", "bob", **somewhere())
        .frame("hook", "world", **somewhere())
        .spring("x", stiffness=30.0 * springs, cubic=8.0 * springs, rest=0.2)
        .spring("x", stiffness=5.0 * springs, cubic=2.0 * springs, rest=-0.5, name="second")
        .spring("psi", stiffness=3.0 * springs, rest=0.4)
        .damper("x", damping=2.0 * dampers, cubic=0.7 * dampers)
        .damper("x", damping=0.5 * dampers, name="pad")
        .damper("neck.2", damping=0.3 * dampers)
        .friction("mast", **friction_values)
        .friction("elbow", coulomb=0.2 * friction, width=0.5)
        .motor("elbow", gain=GAIN, gear_ratio=GEAR, rotor_inertia=rotor)
        .torque("x")
        .armature("neck.1", inertia=armature)
        .offset("mast", force=1.7)
        .combination("twist", {name: twist * ratio for name, ratio in TWIST.items()})
        .combination("lean", {"psi": 0.3})
        .spring("twist", stiffness=6.0, cubic=2.0, rest=0.3)
        .damper("twist", damping=1.5, cubic=0.4)
        .armature("twist", inertia=0.6)
        .motor("twist", gain=0.5)
        .friction("lean", coulomb=0.3, width=0.2)
        .piecewise_spring("twist", **STEPS, name="steps")
        .periodic_friction("twist", sine=0.7, cosine=-0.4, cycles=2.0)
        .gear_friction(
            "elbow",
            coulomb=0.9 * gears,
            slow_damping=1.7 * gears,
            width=0.4,
            stribeck_velocity=0.8,
            stribeck_exponent=0.5,
        )
        .load_friction(
            "mast",
            load="twist",
            coefficient=0.2 * gears,
            slow_coefficient=0.5 * gears,
            width=0.3,
            stribeck_velocity=0.6,
        )
        .element("lash", ["twist", "x"], potential=own_potential, parameters={"k": 1.5})
        .line_spring("cord", "grip", "eye", **cord)
        .line_spring("rope", "hook", "arm", **rope)
        .force("screw", "grip", axes="body", moment=True)
        .force("wind", "eye")
        .force("hand", "bob", axes="world", moment=True)
        .force("jet", "boom", axes="body")
        .element("web", ["neck.3", "elbow"], force=own_force, parameters={"a": own, "b": 2 * own})
        .element("sail", ["psi", "mast"], potential=own_potential, parameters={"k": 4.0})
        .loop("clasp", "eye", "grip", kind="point")
        .loop("slot", "hook", "eye", kind="planar", axis=(0, 0.6, 0.8))
        .loop("lock", "grip", "boom", kind="frame")
        .loop("key", "boom", "grip", kind="point-on-axis")
        .coupling("cam", "mast", "psi", offset=QUARTIC[0], ratio=QUARTIC[1], higher=QUARTIC[2:])
        .drive("theta")
    )


MACHINE = machine()
NAMES = MACHINE.coordinate_names
N, NU = len(NAMES), len(MACHINE.input_names)
AT = {name: i for i, name in enumerate(NAMES)}
FRAME = {name: i for i, name in enumerate(MACHINE.frame_names)}


class Point(NamedTuple):
    """A state, an acceleration, inputs, a time and weights of the constraint rows."""

    q: np.ndarray
    v: np.ndarray
    a: np.ndarray
    u: np.ndarray
    t: float
    w: np.ndarray


def point(seed: int) -> Point:
    rng = np.random.default_rng(seed)
    q, v, a = rng.uniform(-1.2, 1.2, (3, N))
    rows = len(MACHINE.constraint_names)
    return Point(q, 2 * v, 3 * a, rng.normal(size=NU), 0.8, rng.normal(size=rows))


POINTS = {"first": point(11), "second": point(12), "third": point(13)}


class Answers(NamedTuple):
    energy: Any
    terms: Any
    hessians: Any
    constraint: Any
    constraint_hessian: Any
    force_balance: Any
    mass_matrix: Any
    poses: Any
    twists: Any


@jax.jit
def ask(model: TreeModel, p: Point) -> Answers:
    return Answers(
        model.energy(p.q, p.v),
        model.terms(p.q, p.v, p.u, p.t),
        model.terms_and_hessians(p.q, p.v, p.u, p.t)[1](),
        model.constraint(p.q, p.u),
        model.constraint_hessian(p.q, p.w),
        model.force_balance(p.q, p.v, p.a, p.u, p.t),
        model.mass_matrix(p.q),
        model.frame_poses(p.q),
        model.frame_twists(p.q, p.v),
    )


@jax.jit
def differentiate(model: TreeModel, p: Point) -> dict[str, Any]:
    """The same derivatives by automatic differentiation of energies, forces and closures."""

    def lagrangian(q, v):
        kinetic, potential = model.energy(q, v)
        return kinetic - potential

    def force(q, v, u):
        return model.terms(q, v, u, p.t).force

    first = jax.grad(lagrangian, (0, 1))
    L_q, L_v = first(p.q, p.v)
    (L_qq, _), (L_vq, L_vv) = jax.jacfwd(first, (0, 1))(p.q, p.v)
    F_q, F_v, F_u = jax.jacfwd(force, (0, 1, 2))(p.q, p.v, p.u)
    rows = lambda q: model.constraint(q, p.u)[0]  # noqa: E731
    slope = jax.jacfwd(rows)
    bend = jax.jacfwd(lambda q: p.w @ slope(q))(p.q)
    return {
        "L_q": L_q, "L_v": L_v, "L_qq": L_qq, "L_vq": L_vq, "L_vv": L_vv,
        "F_q": F_q, "F_v": F_v, "F_u": F_u, "slope": slope(p.q), "bend": bend,
    }  # fmt: skip


@pytest.fixture(scope="module")
def model() -> TreeModel:
    return MACHINE.lower()


def same(got, want, tolerance: float = 1e-11) -> None:
    scale = max(1.0, float(np.abs(want).max()))
    np.testing.assert_allclose(got, want, atol=tolerance * scale, rtol=0)


# Poses and energies, computed a second time


def place(origin, rotation: np.ndarray) -> np.ndarray:
    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = rotation, origin
    return pose


def poses(q: np.ndarray) -> dict[str, np.ndarray]:
    """World poses of every frame, link by link."""
    values = dict(zip(NAMES, q, strict=True))
    joints = {j.child: j for j in MACHINE.joints}

    def of(body: str) -> np.ndarray:
        if body == "world":
            return np.eye(4)
        joint = joints[body]
        pose = of(joint.parent) @ place(joint.origin, joint.rotation)
        for c in joint.coordinates:
            axis = values[c.name] * np.array(c.axis)
            turn = Rotation.from_rotvec(axis * c.revolute).as_matrix()
            pose = pose @ place((1 - c.revolute) * axis, turn)
        return pose

    known = {name: of(name) for name in ("world", *(b.name for b in MACHINE.bodies))}
    for f in MACHINE.frames:
        known[f.name] = known[f.body] @ place(f.origin, f.rotation)
    return known


STEP = 1e-5


def along(function, q: np.ndarray, v: np.ndarray) -> Any:
    """d/dt function(q) at the rates v, by a difference of fourth order."""
    near, far = (function(q + s * STEP * v) - function(q - s * STEP * v) for s in (1, 2))
    return (8 * near - far) / (12 * STEP)


def twists(q: np.ndarray, v: np.ndarray) -> dict[str, np.ndarray]:
    """Angular velocity and velocity of every frame."""
    now = poses(q)
    moved = along(lambda x: np.array(list(poses(x).values())), q, v)
    out = {}
    for (name, pose), rate in zip(now.items(), moved, strict=True):
        spin = rate[:3, :3] @ pose[:3, :3].T
        out[name] = np.array([spin[2, 1], spin[0, 2], spin[1, 0], *rate[:3, 3]])
    return out


def length(first: str, second: str):
    def of(q: np.ndarray) -> float:
        now = poses(q)
        return float(np.linalg.norm(now[second][:3, 3] - now[first][:3, 3]))

    return of


def gradient(function, q: np.ndarray) -> np.ndarray:
    return np.array([along(function, q, e) for e in np.eye(N)])


def twisted(q: np.ndarray) -> float:
    return sum(ratio * q[AT[name]] for name, ratio in TWIST.items())


def steps_by_hand(y: float) -> float:
    """The torque of STEPS, corner by corner."""
    far, (k1, k2, k3), (t1, t2) = abs(y - 0.1), STEPS["stiffness"], STEPS["loads"]
    first = t1 / k1
    second = first + (t2 - t1) / k2
    within = [(0.0, 0.0, k1), (first, t1, k2), (second, t2, k3)]
    start, torque, k = [part for part in within if far >= part[0]][-1]
    return np.sign(y - 0.1) * (torque + k * (far - start))


def line_energy(spring: dict[str, float], first: str, second: str):
    e = lambda q: length(first, second)(q) - spring["rest"]  # noqa: E731
    return lambda q: 0.5 * spring["stiffness"] * e(q) ** 2 + 0.25 * spring.get("cubic", 0.0) * e(q) ** 4


CASES = pytest.mark.parametrize("p", list(POINTS.values()), ids=list(POINTS))


@CASES
def test_poses_and_twists(model: TreeModel, p: Point) -> None:
    got = ask(model, p)
    same(got.poses, list(poses(p.q).values()), 1e-13)
    same(got.twists, list(twists(p.q, p.v).values()), 1e-9)


@CASES
def test_kinetic_energy_is_that_of_the_moving_masses(model: TreeModel, p: Point) -> None:
    now, moving = poses(p.q), twists(p.q, p.v)
    total = 0.5 * (GEAR**2 * ROTOR * p.v[AT["elbow"]] ** 2 + 0.3 * p.v[AT["neck.1"]] ** 2)
    total += 0.5 * 0.6 * twisted(p.v) ** 2
    for b in MACHINE.bodies:
        R, spin = now[b.name][:3, :3], moving[b.name][:3]
        velocity = moving[b.name][3:] + np.cross(spin, R @ b.com)
        turning = R.T @ spin
        total += 0.5 * b.mass * velocity @ velocity + 0.5 * turning @ b.inertia @ turning
    same(ask(model, p).energy[0], total, 1e-9)


@CASES
def test_potential_energy_is_the_sum_of_its_elements(model: TreeModel, p: Point) -> None:
    now, q = poses(p.q), dict(zip(NAMES, p.q, strict=True))
    total = 0.0
    for b in MACHINE.bodies:
        total -= b.mass * MACHINE.gravity @ (now[b.name] @ [*b.com, 1.0])[:3]
    total += 15.0 * (q["x"] - 0.2) ** 2 + 2.0 * (q["x"] - 0.2) ** 4
    total += 2.5 * (q["x"] + 0.5) ** 2 + 0.5 * (q["x"] + 0.5) ** 4 + 1.5 * (q["psi"] - 0.4) ** 2
    total += line_energy(CORD, "grip", "eye")(p.q) + line_energy(ROPE, "hook", "arm")(p.q)
    total -= 1.7 * q["mast"]
    total += 4.0 * (1 - np.cos(q["psi"] - q["mast"])) + 0.1 * q["psi"] ** 2 * q["mast"] ** 3
    y = twisted(p.q)
    total += 3.0 * (y - 0.3) ** 2 + 0.5 * (y - 0.3) ** 4
    ends = np.clip(np.array([0.0, 0.3, 0.3 + 3.2 / 7.0, 9.0]), 0.0, abs(y - 0.1))
    total += sum(quad(steps_by_hand, 0.1 + a, 0.1 + b)[0] for a, b in pairwise(ends))
    total += quad(lambda x: 0.7 * np.sin(2 * x) - 0.4 * np.cos(2 * x), 0.0, y)[0]
    total += 1.5 * (1 - np.cos(y - q["x"])) + 0.1 * y**2 * q["x"] ** 3
    same(ask(model, p).energy[1], total, 1e-12)


# Closed-form derivatives


@CASES
def test_terms_are_the_slopes_of_the_lagrangian(model: TreeModel, p: Point) -> None:
    got, want = ask(model, p), differentiate(model, p)
    same(got.terms.q, want["L_q"])
    same(got.terms.v, want["L_v"])


@CASES
def test_hessians(model: TreeModel, p: Point) -> None:
    got, want = ask(model, p), differentiate(model, p)
    same(got.hessians.qq, want["L_qq"])
    same(got.hessians.vq, want["L_vq"])
    same(got.hessians.vv, want["L_vv"])
    same(got.hessians.force_q, want["F_q"])
    same(got.hessians.force_v, want["F_v"])
    same(got.hessians.force_u, want["F_u"])
    same(got.mass_matrix, want["L_vv"])
    assert np.linalg.eigvalsh(np.asarray(got.mass_matrix)).min() > 0


@CASES
def test_the_force_balance_is_that_of_lagrange(model: TreeModel, p: Point) -> None:
    """d/dt ∂L/∂v − ∂L/∂q − F."""
    want = differentiate(model, p)
    balance = want["L_vv"] @ p.a + want["L_vq"] @ p.v - want["L_q"] - ask(model, p).terms.force
    same(ask(model, p).force_balance, balance)


@CASES
def test_constraint_derivatives(model: TreeModel, p: Point) -> None:
    got, want = ask(model, p), differentiate(model, p)
    same(got.constraint[1], want["slope"])
    same(got.constraint_hessian, want["bend"])


@CASES
def test_constraint_rows_from_poses(model: TreeModel, p: Point) -> None:
    """Each row written out by hand from the second set of poses."""
    now = poses(p.q)
    x = {name: pose[:3, 3] for name, pose in now.items()}
    R = {name: pose[:3, :3] for name, pose in now.items()}
    h = dict(zip(MACHINE.constraint_names, np.asarray(ask(model, p).constraint[0]), strict=True))

    def rows(name: str) -> np.ndarray:
        return np.array([value for key, value in h.items() if key.split("[")[0] == name])

    same(rows("clasp"), x["grip"] - x["eye"], 1e-13)
    normal = R["hook"] @ [0, 0.6, 0.8]
    assert rows("slot")[0] == pytest.approx(normal @ (x["eye"] - x["hook"]), abs=1e-13)
    tilt = np.cross(normal, R["eye"] @ [0, 0.6, 0.8])
    assert np.linalg.norm(rows("slot")[1:]) == pytest.approx(np.linalg.norm(tilt), abs=1e-13)
    same(rows("lock")[:3], x["boom"] - x["grip"], 1e-13)
    dots = R["grip"].T @ R["boom"]
    same(rows("lock")[3:], [dots[1, 2], dots[2, 0], dots[0, 1]], 1e-13)
    # the ends of the second frame's axes, seen from the first: off-diagonal components vanish
    seen = R["boom"].T @ (x["grip"][:, None] + R["grip"] - x["boom"][:, None])
    off = seen.T[~np.eye(3, dtype=bool)]
    same(rows("key"), -off, 1e-13)
    mast, psi = p.q[AT["mast"]], p.q[AT["psi"]]
    assert h["cam"] == pytest.approx(mast - polyval(psi, QUARTIC), abs=1e-13)
    driven = p.u[MACHINE.input_names.index("theta.drive")]
    assert h["theta.drive"] == pytest.approx(p.q[AT["theta"]] - driven, abs=1e-13)


# Single elements, isolated by taking them away


def effect(change: dict[str, Any], p: Point) -> Any:
    """Terms with everything, less terms of a machine that lacks something."""
    with_all, without = ask(MACHINE.lower(), p), ask(machine(**change).lower(), p)
    return jax.tree.map(lambda a, b: np.asarray(a) - np.asarray(b), with_all.terms, without.terms)


@CASES
@pytest.mark.parametrize(
    ("name", "spring", "ends"),
    [("cord", CORD, ("grip", "eye")), ("rope", ROPE, ("hook", "arm"))],
)
def test_a_line_springs_force_is_the_slope_of_its_energy(name, spring, ends, p: Point) -> None:
    slack = {name: {"stiffness": 0.0, "damping": spring["damping"]}}
    pull = effect(slack, p)
    same(pull.q, -gradient(line_energy(spring, *ends), p.q), 1e-8)
    same(pull.force, np.zeros(N))


@CASES
def test_a_line_springs_damper_takes_its_power(p: Point) -> None:
    drag = effect({"cord": CORD | {"damping": 0.0}}, p).force
    stretch = gradient(length("grip", "eye"), p.q)
    rate = stretch @ p.v
    same(drag, -CORD["damping"] * rate * stretch, 1e-8)
    assert drag @ p.v < 0.0


@CASES
def test_springs_pull_on_their_coordinates(p: Point) -> None:
    pull = effect({"springs": 0.0}, p).q
    want = np.zeros(N)
    x, psi = p.q[AT["x"]], p.q[AT["psi"]]
    want[AT["x"]] = -30 * (x - 0.2) - 8 * (x - 0.2) ** 3 - 5 * (x + 0.5) - 2 * (x + 0.5) ** 3
    want[AT["psi"]] = -3.0 * (psi - 0.4)
    same(pull, want)


@CASES
def test_dampers_brake_their_coordinates(p: Point) -> None:
    want = np.zeros(N)
    v = p.v[AT["x"]]
    want[AT["x"]] = -2.5 * v - 0.7 * v**3
    want[AT["neck.2"]] = -0.3 * p.v[AT["neck.2"]]
    same(effect({"dampers": 0.0}, p).force, want)


def friction_by_hand(v: float, C: float, S: float, v_S: float, delta: float, w: float) -> float:
    return -(C + S * np.exp(-(abs(v / v_S) ** delta))) * np.tanh(v / w)


@CASES
def test_friction_acts_on_its_coordinates(p: Point) -> None:
    want = np.zeros(N)
    want[AT["mast"]] = friction_by_hand(p.v[AT["mast"]], *FRICTION.values())
    want[AT["elbow"]] = -0.2 * np.tanh(p.v[AT["elbow"]] / 0.5)
    same(effect({"friction": 0.0}, p).force, want)


def slow_by_hand(v: float, C1: float, C2: float, w: float, v_S: float, delta: float) -> float:
    return -C1 * np.tanh(v / w) - C2 * v * np.exp(-(abs(v / v_S) ** delta))


@CASES
def test_friction_of_gears_acts_on_its_coordinates(p: Point) -> None:
    """Of the load that is transmitted along the twist as well."""
    y, rate = twisted(p.q), twisted(p.v)
    load = 6.0 * (y - 0.3) + 2.0 * (y - 0.3) ** 3 + 1.5 * rate + 0.4 * rate**3
    load += steps_by_hand(y) + 0.7 * np.sin(2 * y) - 0.4 * np.cos(2 * y)
    want = np.zeros(N)
    want[AT["elbow"]] = slow_by_hand(p.v[AT["elbow"]], 0.9, 1.7, 0.4, 0.8, 0.5)
    want[AT["mast"]] = abs(load) * slow_by_hand(p.v[AT["mast"]], 0.2, 0.5, 0.3, 0.6, 1.0)
    same(effect({"gears": 0.0}, p).force, want)


@CASES
def test_a_combination_shares_a_force_by_its_ratios(p: Point) -> None:
    """What acts along the twist reaches each coordinate times its ratio."""
    pull = effect({"twist": 0.0}, p)
    y, rate = twisted(p.q), twisted(p.v)
    share = np.array([TWIST.get(name, 0.0) for name in NAMES])
    brake = -1.5 * rate - 0.4 * rate**3 + 0.5 * p.u[MACHINE.input_names.index("twist.motor")]
    on_mast = np.eye(N)[AT["mast"]]
    rest = pull.force - brake * share
    same(rest, (rest @ on_mast) * on_mast)  # where friction feels its load
    same(pull.v, 0.6 * rate * share)
    torque = 6.0 * (y - 0.3) + 2.0 * (y - 0.3) ** 3 + steps_by_hand(y)
    torque += 0.7 * np.sin(2 * y) - 0.4 * np.cos(2 * y)
    x = p.q[AT["x"]]
    torque += 1.5 * np.sin(y - x) + 0.2 * y * x**3
    without = 1.5 * np.sin(-x)
    on_x = np.eye(N)[AT["x"]]
    same(pull.q, -torque * share + (1.5 * np.sin(y - x) - without - 0.3 * y**2 * x**2) * on_x)


@CASES
def test_a_user_written_force_acts_on_its_coordinates_in_their_order(p: Point) -> None:
    (q0, q1), (v0, v1) = (x[[AT["neck.3"], AT["elbow"]]] for x in (p.q, p.v))
    want = np.zeros(N)
    want[AT["neck.3"]] = np.sin(q1) * v0 * v1
    want[AT["elbow"]] = -2.0 * q0 * v1**2
    same(effect({"own": 0.0}, p).force, want)


def test_time_reaches_user_written_forces(model: TreeModel) -> None:
    p = POINTS["first"]
    early, late = (ask(model, p._replace(t=t)).terms.force for t in (0.5, 2.5))
    want = np.zeros(N)
    want[AT["neck.3"]] = np.cos(2.5) - np.cos(0.5)
    same(np.asarray(late) - early, want)


@CASES
def test_inputs_bring_the_power_of_their_forces(model: TreeModel, p: Point) -> None:
    """F·v equals force times velocity plus moment times spin, for inputs one kind at a time."""
    now, moving = poses(p.q), twists(p.q, p.v)
    u = dict(zip(MACHINE.input_names, p.u, strict=True))
    rest = np.asarray(ask(model, p._replace(u=0 * p.u)).terms.force)

    def part(name: str, *components: str) -> np.ndarray:
        return np.array([u[f"{name}.{c}"] for c in components])

    grip, boom = now["grip"][:3, :3], now["boom"][:3, :3]
    fs, ms = ("fx", "fy", "fz"), ("mx", "my", "mz")
    want = {
        "screw": grip @ part("screw", *fs) @ moving["grip"][3:]
        + grip @ part("screw", *ms) @ moving["grip"][:3],
        "wind": part("wind", *"xyz") @ moving["eye"][3:],
        "hand": part("hand", *fs) @ moving["bob"][3:] + part("hand", *ms) @ moving["bob"][:3],
        "jet": boom @ part("jet", *"xyz") @ moving["boom"][3:],
        "elbow": GEAR * GAIN * u["elbow.motor"] * p.v[AT["elbow"]],
        "x": u["x.torque"] * p.v[AT["x"]],
        "twist": 0.5 * u["twist.motor"] * twisted(p.v),
        "theta": 0.0,
    }
    for name, watts in want.items():
        mask = np.array([n.split(".")[0] == name for n in MACHINE.input_names])
        force = np.asarray(ask(model, p._replace(u=p.u * mask)).terms.force) - rest
        assert force @ p.v == pytest.approx(watts, abs=1e-8), name


def test_a_rotor_is_felt_through_the_square_of_its_gear() -> None:
    p = POINTS["second"]
    with_all = np.asarray(ask(MACHINE.lower(), p).mass_matrix)
    without = np.asarray(ask(machine(rotor=0.0, armature=0.0).lower(), p).mass_matrix)
    want = np.zeros(N)
    want[AT["elbow"]], want[AT["neck.1"]] = GEAR**2 * ROTOR, 0.3
    same(with_all - without, np.diag(want), 1e-13)


# The friction law


@pytest.mark.parametrize("v", [-3.0, -0.2, -1e-3, 0.0, 1e-9, 0.04, 0.3, 5.0])
def test_the_friction_law(v: float) -> None:
    values = np.array(list(FRICTION.values()))
    want = friction_by_hand(v, *FRICTION.values())
    assert float(law(v, values)) == pytest.approx(want, abs=1e-15)


law = jax.jit(friction_law)
law_slope = jax.jit(jax.grad(friction_law))


def test_friction_is_odd_peaks_and_levels_off() -> None:
    values = np.array([0.8, 0.5, 0.3, 2.0, 0.01])
    v = np.linspace(0.0, 4.0, 4001)
    force = np.asarray(jax.vmap(law, (0, None))(v, values))
    back = np.asarray(jax.vmap(law, (0, None))(-v, values))
    np.testing.assert_array_equal(force, -back)
    assert 1.2 < -force.min() <= 1.3
    assert 0.0 < v[force.argmin()] < 0.1
    assert -force[-1] == pytest.approx(0.8, abs=1e-12)


@pytest.mark.parametrize("exponent", [0.5, 1.0, 2.0])
def test_the_slope_of_friction_at_rest_is_that_of_its_breakaway(exponent: float) -> None:
    values = np.array([0.8, 0.5, 0.3, exponent, 0.05])
    assert float(law_slope(0.0, values)) == pytest.approx(-1.3 / 0.05)
    assert np.isfinite(float(law_slope(1e-12, values)))


@pytest.mark.parametrize("exponent", [0.5, 1.0, 2.0, 0.73])
@pytest.mark.parametrize("v", [-2.0, -1e-3, 0.0, 1e-12, 0.05, 3.0])
def test_friction_of_gears_and_its_slope(v: float, exponent: float) -> None:
    """At rest the slope is −C₁/w − C₂ for every exponent, and slopes by the numbers are finite."""
    values = np.array([0.9, 1.7, 0.4, 0.8, exponent])
    assert float(gear_law(v, values)) == pytest.approx(slow_by_hand(v, *values), abs=1e-15)
    by_v, by_numbers = gear_slopes(v, values)
    if abs(v) < 1e-9:
        assert float(by_v) == pytest.approx(-0.9 / 0.4 - 1.7, rel=1e-5)
        assert np.abs(by_numbers).max() < 1e-5
    else:
        step = 1e-6 * abs(v)
        ends = [slow_by_hand(v + s * step, *values) for s in (1, -1)]
        assert float(by_v) == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-6)
        for i, got in enumerate(by_numbers):
            near = [slow_by_hand(v, *(values + s * 1e-6 * np.eye(5)[i])) for s in (1, -1)]
            assert float(got) == pytest.approx((near[0] - near[1]) / 2e-6, abs=1e-8)


gear_law = jax.jit(gear_friction_law)
gear_slopes = jax.jit(jax.grad(gear_friction_law, (0, 1)))


@pytest.mark.parametrize("y", [-2.0, -0.5, -0.21, -0.19, 0.1, 0.39, 0.41, 0.85, 0.87, 3.0])
def test_the_piecewise_spring_is_odd_continuous_and_has_its_makers_stiffness(y: float) -> None:
    values = np.array([*STEPS["stiffness"], *STEPS["loads"], STEPS["rest"]])
    torque = jax.jit(jax.grad(piecewise_potential))
    assert float(torque(y, values)) == pytest.approx(steps_by_hand(y), abs=1e-13)
    assert float(torque(0.2 - y, values)) == pytest.approx(-steps_by_hand(y), abs=1e-13)
    stiff = float(jax.jit(jax.grad(jax.grad(piecewise_potential)))(y, values))
    far = abs(y - 0.1)
    assert stiff == pytest.approx(3.0 if far < 0.3 else 7.0 if far < 0.3 + 3.2 / 7.0 else 4.0)


def test_the_variants_share_one_shape() -> None:
    """Else each would be compiled on its own."""
    shapes = [[leaf.shape for leaf in jax.tree.leaves(m.lower())] for m in (MACHINE, machine(springs=0))]
    assert shapes[0] == shapes[1]
    # what sticks and what only pushes is tried apart
    apart = {DryFriction, LowerStop, UpperStop, Contact}
    assert {type(e) for e in MACHINE.elements} == set(get_args(Element)) - apart
