"""The same motion as another engine's: an arm that swings freely and a leg with closed loops, against MuJoCo.

Both engines read one text. For the arm MuJoCo's own Runge–Kutta method is the reference. MuJoCo's loops are soft,
so for the leg only its mass matrix, forces and Jacobians are taken, and M a + b = Jᵀλ with J a = −J̇ v is integrated
here at a small step. Extrapolating ours to dt = 0 by its order shows that both go to one motion.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from xml.etree import ElementTree

import mujoco
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import mechid
from mechid import Mechanism, Variational, simulate
from mechid.model.reading import read_mechanism_text
from mechid.reference import reference_file

HALVINGS = np.array([4.0, 2.0, 1.0])


class Pair(NamedTuple):
    """One file read by two engines; no limits, contacts or actuators act."""

    mechanism: Mechanism
    model: Any
    bodies: list[str]


def read(path: str, without: str = "") -> Pair:
    """The file without geometry and what needs it, with its base fixed, and without bodies of some names."""
    root = ElementTree.parse(reference_file("data", "models", *path.split("/"))).getroot()
    unneeded = {"asset", "sensor", "actuator", "keyframe", "geom", "camera", "light", "freejoint"}
    unneeded |= {"material", "position", "general"}
    for parent in list(root.iter()):
        for part in list(parent):
            named = part.get("name", "") + part.get("body1", "")
            if part.tag in unneeded or (without and part.tag in ("body", "connect") and without in named):
                parent.remove(part)
    text = ElementTree.tostring(root, encoding="unicode")
    model = mujoco.MjModel.from_xml_string(text)
    off = mujoco.mjtDisableBit
    model.opt.disableflags = int(off.mjDSBL_LIMIT) | int(off.mjDSBL_CONTACT) | int(off.mjDSBL_FRICTIONLOSS)
    model.opt.integrator = mujoco.mjtIntegrator.mjINT_RK4
    bodies = [model.body(i).name for i in range(1, model.nbody)]
    return Pair(read_mechanism_text(text, actuators="none"), model, bodies)


def by_mujoco(pair: Pair, qpos: np.ndarray, qvel: np.ndarray, span: float, dt: float) -> Any:
    """MuJoCo's own simulation; its data at the end."""
    pair.model.opt.timestep = dt
    data = mujoco.MjData(pair.model)
    data.qpos[:], data.qvel[:] = qpos, qvel
    for _ in range(round(span / dt)):
        mujoco.mj_step(pair.model, data)
    mujoco.mj_forward(pair.model, data)
    return data


def by_mechid(pair: Pair, q: np.ndarray, v: np.ndarray, span: float, forces: str, dts: Any) -> list[Any]:
    steppers = [Variational(float(dt), forces=forces) for dt in dts]
    return [simulate(pair.mechanism, s, round(span / s.dt), q=q, v=v) for s in steppers]


def places(pair: Pair, run: mechid.Trajectory) -> np.ndarray:
    """(bodies, 4, 4) poses at the end."""
    return np.array([run.frame(b)[-1] for b in pair.bodies])


def poses(pair: Pair, data: Any) -> np.ndarray:
    """MuJoCo's."""
    found = np.tile(np.eye(4), (len(pair.bodies), 1, 1))
    found[:, :3, :3] = data.xmat[1:].reshape(-1, 3, 3)
    found[:, :3, 3] = data.xpos[1:]
    return found


def assert_order(results: list[np.ndarray], reference: np.ndarray, order: int, limit: float) -> None:
    """The difference falls with dt as it should, and what is left at dt = 0 is below the limit."""
    errors = np.array([np.abs(r - reference).max() for r in results])
    orders = np.log2(errors[:-1] / errors[1:])
    assert np.abs(orders - order).max() < 0.2, (errors, orders)
    last, before, share = results[-1], results[-2], 2.0**order
    left = np.abs((share * last - before) / (share - 1) - reference).max()
    assert left < limit, (errors, left)
    assert left < 0.05 * errors[-1], (errors, left)


# An arm without loops


ARM_Q = np.array([0.3, -0.4, 0.8, 0.5, -0.7, 0.2])
ARM_V = np.array([1.0, -0.5, 0.7, 1.0, -1.0, 2.0])


@pytest.fixture(scope="module")
def arm(reference):
    return read("universal_robots_ur10e/ur10e.xml")


@pytest.mark.parametrize(
    ("span", "forces", "order", "limit"),
    [
        (0.2, "balanced", 2, 1e-9),
        pytest.param(2.0, "balanced", 2, 1e-6, marks=pytest.mark.slow),
        pytest.param(0.2, "left", 1, 2e-5, marks=pytest.mark.slow),
    ],
)
def test_an_arm_swings_as_in_mujoco(arm, span, forces, order, limit):
    """UR10e with its armature and damping; the impulse of damping on the left end alone costs an order."""
    assert arm.model.dof_damping.min() >= 2.0
    assert arm.model.dof_armature.min() == 0.1
    want = by_mujoco(arm, ARM_Q, ARM_V, span, 1e-4)
    runs = by_mechid(arm, ARM_Q, ARM_V, span, forces, HALVINGS * 1e-3)
    assert np.abs(want.qpos - ARM_Q).max() > 0.1
    assert_order([r.q[-1] for r in runs], want.qpos, order, limit)
    assert_order([r.v[-1] for r in runs], want.qvel, order, 20 * limit)
    assert_order([places(arm, r) for r in runs], poses(arm, want), order, limit)


# A leg with two closed loops


LEG_HOME = """0.00449956 0 0.497301 0.97861 -0.0164104 0.0177766 -0.204298
    -1.1997 0 1.42671 -2.25907e-06 -1.52439 1.50645 -1.59681"""
"""of the left leg, the file's own"""
LEG_RATES = {"left-hip-roll": -1.0, "left-hip-yaw": 1.5, "left-hip-pitch": 2.0, "left-knee": -3.0}


class Leg(NamedTuple):
    pair: Pair
    q: np.ndarray
    v: np.ndarray
    qpos: np.ndarray
    qvel: np.ndarray


@pytest.fixture(scope="module")
def leg(reference):
    """Cassie's left leg below a fixed pelvis, closed and in motion."""
    pair = read("cassie/cassie.xml", without="right-")
    mechanism, model = pair.mechanism, pair.model
    assert [loop.kind for loop in mechanism.loops] == ["pin", "point"]
    home, guess = np.array([float(x) for x in LEG_HOME.split()]), {}
    for j in range(model.njnt):
        name, p = model.joint(j).name, model.jnt_qposadr[j]
        if model.jnt_type[j] == mujoco.mjtJoint.mjJNT_BALL:
            angles = Rotation.from_quat(home[p : p + 4], scalar_first=True).as_euler("XYZ")
            guess |= {f"{name}.{i + 1}": x for i, x in enumerate(angles)}
        else:
            guess[name] = home[p]
    q = mechid.assemble(mechanism, guess)
    v = mechid.project_rates(mechanism, q, LEG_RATES)
    return Leg(pair, q, v, *in_mujoco(pair, q, v))


def in_mujoco(pair: Pair, q: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """qpos and qvel: a ball's Cardan angles are a quaternion there, its rates an angular velocity in its axes."""
    model, at = pair.model, {name: i for i, name in enumerate(pair.mechanism.coordinate_names)}
    qpos, qvel = np.zeros(model.nq), np.zeros(model.nv)
    for j in range(model.njnt):
        name, p, d = model.joint(j).name, model.jnt_qposadr[j], model.jnt_dofadr[j]
        if model.jnt_type[j] == mujoco.mjtJoint.mjJNT_BALL:
            own = [at[f"{name}.{i}"] for i in (1, 2, 3)]
            turn = Rotation.from_euler("XYZ", q[own])
            qpos[p : p + 4] = turn.as_quat(scalar_first=True)
            # the angular velocity is what a small turn leads to
            ahead = Rotation.from_euler("XYZ", q[own] + 1e-6 * v[own])
            back = Rotation.from_euler("XYZ", q[own] - 1e-6 * v[own])
            qvel[d : d + 3] = (back.inv() * ahead).as_rotvec() / 2e-6
        else:
            qpos[p], qvel[d] = q[at[name]], v[at[name]]
    return qpos, qvel


def constrained(pair: Pair, qpos: np.ndarray, qvel: np.ndarray, span: float, dt: float) -> Any:
    """Runge–Kutta on the constrained equations, from MuJoCo's terms; its data at the end."""
    model, data = pair.model, mujoco.MjData(pair.model)
    n, balls = model.nv, np.flatnonzero(model.jnt_type == mujoco.mjtJoint.mjJNT_BALL)
    hinges = np.flatnonzero(model.jnt_type != mujoco.mjtJoint.mjJNT_BALL)

    def gaps() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of every connect: how far it is open, J and J̇ v."""
        apart, slopes, rest = [], [], []
        for e in range(model.neq):
            ends = []
            both = (model.eq_obj1id[e], model.eq_obj2id[e])
            for b, anchor in zip(both, model.eq_data[e, :6].reshape(2, 3), strict=True):
                x, jac, change = data.xpos[b] + data.xmat[b].reshape(3, 3) @ anchor, *np.zeros((2, 3, n))
                mujoco.mj_jac(model, data, jac, None, x, b)
                mujoco.mj_jacDot(model, data, change, None, x, b)
                ends.append((x, jac, change @ data.qvel))
            for kept, one, other in zip((apart, slopes, rest), *ends, strict=True):
                kept.append(one - other)
        return np.concatenate(apart), np.concatenate(slopes), np.concatenate(rest)

    def slope(x: np.ndarray) -> np.ndarray:
        data.qpos[:], data.qvel[:] = x[: model.nq], x[model.nq :]
        mujoco.mj_forward(model, data)
        mass = np.zeros((n, n))
        for i, unit in enumerate(np.eye(n)):
            mujoco.mj_mulM(model, data, mass[i], unit)
        _, J, rest = gaps()
        free = np.linalg.solve(mass, np.column_stack([data.qfrc_passive - data.qfrc_bias, J.T]))
        # a connect in a plane has a row too many
        pull = np.linalg.lstsq(J @ free[:, 1:], -rest - J @ free[:, 0], rcond=1e-9)[0]
        rates = np.zeros(model.nq)
        rates[model.jnt_qposadr[hinges]] = data.qvel[model.jnt_dofadr[hinges]]
        for p, d in zip(model.jnt_qposadr[balls], model.jnt_dofadr[balls], strict=True):
            mujoco.mju_mulQuat(rates[p : p + 4], x[p : p + 4], np.array([0.0, *data.qvel[d : d + 3]]) / 2)
        return np.concatenate([rates, free[:, 0] + free[:, 1:] @ pull])

    x = np.concatenate([qpos, qvel])
    for _ in range(round(span / dt)):
        a = slope(x)
        b = slope(x + dt / 2 * a)
        c = slope(x + dt / 2 * b)
        x = x + dt / 6 * (a + 2 * b + 2 * c + slope(x + dt * c))
    slope(x)
    assert np.abs(gaps()[0]).max() < 1e-10
    return data


@pytest.fixture
def without_equalities(leg):
    """MuJoCo's own soft loops are off."""
    off, before = mujoco.mjtDisableBit.mjDSBL_EQUALITY, leg.pair.model.opt.disableflags
    leg.pair.model.opt.disableflags = before | int(off)
    yield
    leg.pair.model.opt.disableflags = before


@pytest.mark.usefixtures("without_equalities")
@pytest.mark.parametrize(("span", "limit"), [(0.04, 1e-8), pytest.param(0.3, 1e-6, marks=pytest.mark.slow)])
def test_a_closed_leg_moves_as_by_mujocos_terms(leg, span, limit):
    """Cassie's leg: springs, a ball joint, armature and damping; positions of bodies."""
    want = poses(leg.pair, constrained(leg.pair, leg.qpos, leg.qvel, span, 1e-4))
    runs = by_mechid(leg.pair, leg.q, leg.v, span, "balanced", HALVINGS * 1.25e-4)
    assert np.abs(runs[-1].q[-1] - leg.q).max() > 0.05
    assert max(r.violation.max() for r in runs) < 1e-10
    assert_order([places(leg.pair, r) for r in runs], want, 2, limit)


def test_soft_loops_of_mujoco_approach_ours_as_they_stiffen(leg):
    """MuJoCo's own simulation of the leg: its loops yield less and less, and the motion becomes ours."""
    span, model = 0.04, leg.pair.model
    coarse, fine = (
        places(leg.pair, r) for r in by_mechid(leg.pair, leg.q, leg.v, span, "balanced", [5e-4, 2.5e-4])
    )
    ours = (4 * fine - coarse) / 3
    errors = []
    for time_constant in (0.02, 0.005, 0.001):
        model.eq_solref[:] = [time_constant, 1.0]
        model.eq_solimp[:] = [0.9999, 0.9999, 0.001, 0.5, 2.0]
        errors.append(
            np.abs(poses(leg.pair, by_mujoco(leg.pair, leg.qpos, leg.qvel, span, 5e-5)) - ours).max()
        )
    assert errors[0] > 3 * errors[1] > 9 * errors[2], errors
    assert errors[2] < 1e-6
