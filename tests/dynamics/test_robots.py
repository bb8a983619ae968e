"""Files read, robots and random ones, against MuJoCo: mass matrix, forces, poses, Jacobians, loops."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any, NamedTuple
from xml.etree import ElementTree

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import mechid
from mechid import Mechanism
from mechid.compile import jit
from mechid.model.parts import Friction
from mechid.model.reading import read_mechanism_text
from mechid.reference import reference_file

MODELS = {
    "baxter": "baxter.urdf",
    "panda": "franka_emika_panda/panda.xml",
    "ur10e": "universal_robots_ur10e/ur10e.xml",
    "iiwa14": "kuka_iiwa_14/iiwa14.xml",
    "cassie": "cassie/cassie.xml",
}
TOLERANCE = 1e-10


class Seen(NamedTuple):
    mass: Any
    balance: Any
    """bias force − springs and dampers: what is left at zero acceleration and input"""
    poses: Any
    """(frames, 4, 4)"""
    jacobians: Any
    """(frames, 6, coordinates): turning, then moving"""
    loops: Any
    """(rows, coordinates)"""
    gaps: Any
    """(rows,)"""


@jit
def answers(model: Any, q: Any, v: Any) -> Seen:
    none = jnp.zeros(model.nu)
    twists = jax.vmap(lambda e: model.frame_twists(q, e))(jnp.eye(model.nq))
    gaps, rows = model.constraint(q, none)
    balance = model.force_balance(q, v, jnp.zeros_like(q), none, 0.0)
    return Seen(model.mass_matrix(q), balance, model.frame_poses(q), jnp.moveaxis(twists, 0, -1), rows, gaps)


def by_mechid(mechanism: Mechanism, frames: list[str], q: np.ndarray, v: np.ndarray) -> Seen:
    seen = answers(mechanism.lower(), q, v)
    at = np.array([mechanism.frame_names.index(f) for f in frames])
    return seen._replace(poses=seen.poses[at], jacobians=seen.jacobians[at])


# MuJoCo's answers. Its rates are E v and its accelerations E a + Ė v, with v the rates of Cardan angles.


def by_mujoco(model: Any, mechanism: Mechanism, q: np.ndarray, v: np.ndarray) -> tuple[list[str], Seen]:
    """The frames that MuJoCo names, and its answers in the mechanism's coordinates."""
    model.opt.jacobian = mujoco.mjtJacobian.mjJAC_DENSE
    data = mujoco.MjData(model)
    data.qpos[:], E, rest = as_mujoco(model, mechanism, q, v)
    data.qvel[:] = E @ v
    mujoco.mj_forward(model, data)
    mass = np.zeros((model.nv, model.nv))
    for i, unit in enumerate(np.eye(model.nv)):
        mujoco.mj_mulM(model, data, mass[i], unit)
    names, poses, jacobians = zip(*frames_of(model, data), strict=True)
    count = int(np.sum(data.efc_type == mujoco.mjtConstraint.mjCNSTR_EQUALITY))
    rows = data.efc_J.reshape(-1, model.nv)[:count]
    return list(names), Seen(
        E.T @ mass @ E,
        E.T @ (mass @ rest + data.qfrc_bias - data.qfrc_passive),
        np.array(poses),
        np.array(jacobians) @ E,
        rows @ E,
        data.efc_pos[:count],
    )


def as_mujoco(
    model: Any, mechanism: Mechanism, q: np.ndarray, v: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """qpos, E and Ė v."""
    qpos, E, rest = np.zeros(model.nq), np.zeros((model.nv, len(q))), np.zeros(model.nv)
    for j, own in enumerate(coordinates(model, mechanism)):
        p, d, slides = model.jnt_qposadr[j], model.jnt_dofadr[j], 1 if len(own) == 1 else len(own) - 3
        qpos[p : p + slides] = q[own[:slides]]
        E[d : d + slides, own[:slides]] = np.eye(slides)
        if len(own) > 1:
            angles = own[-3:]
            qpos[p + slides : p + slides + 4] = quaternion(q[angles])
            turn = slice(d + slides, d + slides + 3)
            E[turn, angles], rest[turn] = turning(q[angles], v[angles])
    return qpos, E, rest


def from_mujoco(model: Any, mechanism: Mechanism, qpos: np.ndarray) -> np.ndarray:
    """The mechanism's coordinates for MuJoCo's."""
    q = np.zeros(len(mechanism.coordinates))
    for j, own in enumerate(coordinates(model, mechanism)):
        p, slides = model.jnt_qposadr[j], 1 if len(own) == 1 else len(own) - 3
        q[own[:slides]] = qpos[p : p + slides]
        if len(own) > 1:
            four = qpos[p + slides : p + slides + 4]
            q[own[-3:]] = Rotation.from_quat(four[[1, 2, 3, 0]]).as_euler("XYZ")
    return q


def coordinates(model: Any, mechanism: Mechanism) -> list[list[int]]:
    """The places of the coordinates of each of MuJoCo's joints."""
    index = {name: i for i, name in enumerate(mechanism.coordinate_names)}
    places = {j.name: [index[c.name] for c in j.coordinates] for j in mechanism.joints}
    bodies = [model.body(b).name for b in model.jnt_bodyid]
    return [places[model.joint(j).name or body] for j, body in enumerate(bodies)]


def quaternion(angles: np.ndarray) -> np.ndarray:
    return Rotation.from_euler("XYZ", angles).as_quat()[[3, 0, 1, 2]]


def turning(q: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """E and Ė v for Cardan angles about x, y, z: the angular velocity in the turned body's axes is E v."""
    (sb, sc), (cb, cc) = np.sin(q[1:]), np.cos(q[1:])
    E = np.array([[cb * cc, sc, 0.0], [-cb * sc, cc, 0.0], [sb, 0.0, 1.0]])
    by_b = np.array([[-sb * cc, 0.0, 0.0], [sb * sc, 0.0, 0.0], [cb, 0.0, 0.0]])
    by_c = np.array([[-cb * sc, cc, 0.0], [-cb * cc, -sc, 0.0], [0.0, 0.0, 0.0]])
    return E, (by_b * v[1] + by_c * v[2]) @ v


def frames_of(model: Any, data: Any) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Name, pose and Jacobian of every body and site."""
    for count, get, jac in (
        (model.nbody, "body", mujoco.mj_jacBody),
        (model.nsite, "site", mujoco.mj_jacSite),
    ):
        for i in range(count):
            where, pose, jacobian = getattr(data, get)(i), np.eye(4), np.zeros((6, model.nv))
            pose[:3, :3], pose[:3, 3] = where.xmat.reshape(3, 3), where.xpos
            jac(model, data, jacobian[3:], jacobian[:3], i)
            yield where.name, pose, jacobian


def assert_same(model: Any, mechanism: Mechanism, q: np.ndarray, v: np.ndarray) -> None:
    frames, want = by_mujoco(model, mechanism, q, v)
    got = by_mechid(mechanism, frames, q, v)
    for what in ("mass", "balance", "poses", "jacobians"):
        assert_close(getattr(got, what), getattr(want, what), what)


def assert_close(got: Any, want: Any, what: str = "") -> None:
    scale = max(1.0, float(np.abs(want).max(initial=0.0)))
    np.testing.assert_allclose(got, want, rtol=0, atol=TOLERANCE * scale, err_msg=what)


def same_rows(rows: np.ndarray) -> np.ndarray:
    """The projector on what rows span: equal where they lock the same motions."""
    rows = np.asarray(rows)
    return np.linalg.pinv(rows, rcond=1e-7) @ rows


# Robots


@functools.cache
def oracle(name: str) -> Any:
    """MuJoCo's own model of a robot's file, without its geometry, every link a body."""
    spec = mujoco.MjSpec.from_file(str(reference_file("data", "models", MODELS[name])))
    spec.compiler.fusestatic = 0
    for kind in ("geoms", "meshes", "materials", "textures", "sensors"):
        for element in list(getattr(spec, kind)):
            spec.delete(element)
    return spec.compile()


@functools.cache
def robot(name: str) -> Mechanism:
    return mechid.read_mechanism(reference_file("data", "models", MODELS[name]))


def written(name: str) -> ElementTree.Element:
    return ElementTree.parse(reference_file("data", "models", MODELS[name])).getroot()


@pytest.mark.parametrize("name", MODELS)
def test_robot_moves_as_in_mujoco(name: str, reference: Any) -> None:
    mechanism = robot(name)
    rng = np.random.default_rng(7)
    for _ in range(3):
        q, v = rng.uniform(-1.3, 1.3, (2, len(mechanism.coordinates)))
        assert_same(oracle(name), mechanism, q, 2 * v)


def inertials(root: ElementTree.Element) -> dict[str, tuple[float, list[float]]]:
    """Mass and centre of mass of every body as they stand in the file; zero where nothing does."""
    found = {}
    for body in root.iter("link" if root.tag == "robot" else "body"):
        mass, com = "0", "0 0 0"
        for part in body.findall("inertial") + body.findall("inertial/*"):
            mass = part.get("mass") or (part.get("value") if part.tag == "mass" else None) or mass
            com = part.get("pos") or part.get("xyz") or com
        found[body.get("name")] = (float(mass), [float(x) for x in com.split()])
    return found


@pytest.mark.parametrize("name", MODELS)
def test_robot_has_the_names_and_numbers_of_its_file(name: str, reference: Any) -> None:
    mechanism, root = robot(name), written(name)
    assert {b.name: (b.mass, b.com.tolist()) for b in mechanism.bodies} == inertials(root)
    assert sum(b.mass for b in mechanism.bodies) == pytest.approx(oracle(name).body_mass.sum(), rel=1e-12)
    tree = root.find("worldbody")
    joints = root.findall("joint") if tree is None else tree.iter("joint")
    assert {j.get("name") for j in joints} <= {j.name for j in mechanism.joints}
    sites = [] if tree is None else [s.get("name") for s in tree.iter("site")]
    assert set(sites) <= {f.name for f in mechanism.frames}


def test_baxter_keeps_fixed_joints_limits_and_gets_a_torque_a_joint(reference: Any) -> None:
    baxter = robot("baxter")
    assert len(baxter.bodies) == 49
    assert [j.kind for j in baxter.joints].count("revolute") == 15
    assert {"right_endpoint", "torso_t0", "head_nod"} <= {j.name for j in baxter.joints if j.kind == "fixed"}
    assert baxter.input_names == tuple(f"{c}.torque" for c in baxter.coordinate_names)
    s1 = baxter.coordinate("right_s1")
    assert (s1.lower, s1.upper, s1.max_rate, s1.max_force) == (-2.147, 1.047, 1.5, 100.0)
    # fused as MuJoCo fuses by default, 40 of 137 kg would be left
    assert sum(b.mass for b in baxter.bodies) == pytest.approx(136.6, abs=0.1)


def test_the_fingers_of_panda_are_coupled(reference: Any) -> None:
    panda = robot("panda")
    assert [(c.coordinate, c.other, c.ratio, c.offset) for c in panda.couplings] == [
        ("finger_joint1", "finger_joint2", 1.0, 0.0)
    ]
    q = np.linspace(-0.4, 0.4, len(panda.coordinates))
    frames, want = by_mujoco(oracle("panda"), panda, q, 0 * q)
    got = by_mechid(panda, frames, q, 0 * q)
    assert_close(got.loops, want.loops)
    assert_close(got.gaps, want.gaps)
    assert abs(want.gaps[0]) > 0.01
    assert panda.input_names == tuple(f"actuator{i}" for i in range(1, 8))
    told = " ".join(panda.notes)
    assert "actuator8" in told
    assert "tendon split" in told


def test_cassie_closes_where_mujoco_says_it_is_closed(reference: Any) -> None:
    cassie = robot("cassie")
    guess = from_mujoco(oracle("cassie"), cassie, oracle("cassie").key("home").qpos)
    q = mechid.assemble(cassie, guess)
    v = np.linspace(-1, 1, len(q))
    _, before = by_mujoco(oracle("cassie"), cassie, guess, v)
    frames, want = by_mujoco(oracle("cassie"), cassie, q, v)
    got = by_mechid(cassie, frames, q, v)
    assert np.abs(before.gaps).max() > 1e-3
    assert np.abs(want.gaps).max() < 1e-12
    assert np.abs(got.gaps).max() < 1e-12
    assert np.abs(q - guess).max() < 0.05
    # the foot's linkage moves in a plane, where two rows do what MuJoCo's three do
    assert [loop.kind for loop in cassie.loops] == ["pin", "point", "pin", "point"]
    assert np.linalg.matrix_rank(got.loops) == len(got.loops) == 10
    assert_close(same_rows(got.loops), same_rows(want.loops))
    # MuJoCo has the first point minus the second
    assert_close(got.loops[2:5], -want.loops[3:6])
    assert_same(oracle("cassie"), cassie, q, v)
    assert cassie.constraint_names[0] == "left-plantar-rod/left-foot[0]"


# Random files with everything that shifts a frame: several joints a body, joints beside the origin, references,
# degrees, default classes, euler angles, frames, free and ball joints, shapes that give an inertia


JOINTS = {
    "float": '<joint name="free" type="free" damping="0.3" armature="0"/>',
    "swing": '<joint name="ball" type="ball" pos="{pos}" class="light"/>',
    "hip": '<joint name="hip1" pos="{pos}" axis="{axis}"/>'
    '<joint name="hip2" pos="{other}" axis="{turn}" ref="{ref}"/>'
    '<joint name="hip3" type="slide" pos="{pos}" axis="{other}" ref="0.2"/>',
    "thigh": '<joint name="thigh" class="spring" axis="{axis}" ref="{ref}"/>',
    "rail": '<joint name="rail" type="slide" axis="{axis}" ref="-0.3" springref="0.1" stiffness="40"/>',
    "shin": '<joint name="shin" axis="{axis}" pos="{pos}" armature="0.2" frictionloss="0.4" range="-30 70"/>',
    "plate": "",
    "tool": "",
}
"""Bodies and their joints; the tool hangs on the plate, so that the trees have one size and share a program."""


def random_file(seed: int) -> str:
    rng = np.random.default_rng(seed)
    names = list(JOINTS)
    above = {"float": "world", "plate": str(rng.choice(["float", "thigh", "rail"])), "tool": "plate"}
    for i, name in enumerate(names[1:6], 1):
        above[name] = str(rng.choice(["world", *names[:i]]))

    def text(*size: int, scale: float = 1.0) -> str:
        return " ".join(f"{x:.6f}" for x in rng.uniform(-scale, scale, size))

    def mass(name: str) -> str:
        if name in ("rail", "tool"):
            return f'<geom type="box" size="0.1 0.2 0.3" pos="{text(3)}" euler="{text(3, scale=90)}" density="80"/>'
        points = rng.normal(size=(4, 3)) * 0.2
        full = np.trace(points.T @ points) * np.eye(3) - points.T @ points
        six = " ".join(map(repr, full[[0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2]].tolist()))
        return f'<inertial pos="{text(3, scale=0.3)}" mass="{rng.uniform(0.5, 3):.4f}" fullinertia="{six}"/>'

    def body(name: str) -> str:
        values = {key: text(3) for key in ("pos", "other", "axis", "turn")} | {"ref": text(1, scale=50)}
        inside = mass(name) + JOINTS[name].format(**values) + children(name)
        site = f'<site name="eye-{name}" pos="{text(3)}" euler="{text(3, scale=180)}"/>'
        at = f'pos="{text(3)}" euler="{text(3, scale=180)}"'
        own = f'<body name="{name}" {at} childclass="all">{inside}{site}</body>'
        return f'<frame pos="{text(3)}" euler="{text(3, scale=90)}">{own}</frame>' if name == "shin" else own

    def children(parent: str) -> str:
        return "".join(body(name) for name in names if above[name] == parent)

    return f"""<mujoco model="random {seed}">
      <compiler eulerseq="zyx"/>
      <option gravity="{text(3, scale=9)}"><flag contact="disable" limit="disable"/></option>
      <default>
        <default class="all"><joint damping="0.7"/>
          <default class="light"><joint damping="0.05"/></default>
          <default class="spring"><joint stiffness="12" springref="{text(1, scale=40)}" armature="0.05"/></default>
        </default>
      </default>
      <worldbody>{children("world")}</worldbody>
      <equality>
        <connect name="hook" body1="shin" body2="float" anchor="{text(3)}"/>
        <weld name="glue" body1="tool" body2="swing" anchor="{text(3)}"/>
        <joint joint1="thigh" joint2="rail" polycoef="0 {text(4)}"/>
      </equality>
    </mujoco>"""


def read_random(seed: int) -> tuple[Any, Mechanism]:
    text = random_file(seed)
    mechanism = read_mechanism_text(text)
    rigid = tuple(e for e in mechanism.elements if not isinstance(e, Friction))
    return mujoco.MjModel.from_xml_string(text), dataclasses.replace(mechanism, elements=rigid)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_random_file(seed: int) -> None:
    model, mechanism = read_random(seed)
    rng = np.random.default_rng(seed)
    for _ in range(3):
        q, v = rng.uniform(-1.3, 1.3, (2, len(mechanism.coordinates)))
        assert_same(model, mechanism, q, v)
    # the loops are closed where the file stands; near there they lock the same motions
    stands = from_mujoco(model, mechanism, model.qpos0)
    for guess in (stands, stands + rng.uniform(-0.1, 0.1, len(stands))):
        closed = mechid.assemble(mechanism, guess)
        frames, want = by_mujoco(model, mechanism, closed, 0 * guess)
        assert np.abs(want.gaps).max() < 1e-9
        assert_close(same_rows(by_mechid(mechanism, frames, closed, 0 * guess).loops), same_rows(want.loops))
        if guess is stands:
            assert_close(closed, stands)
