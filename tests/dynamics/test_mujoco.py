"""Random trees against MuJoCo: mass matrix, bias force, poses and velocities of frames."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from mechid import Mechanism
from mechid.dynamics.model import TreeModel

mujoco = pytest.importorskip("mujoco")

MOVING, FIXED, FRAMES = 9, 3, 4
TOLERANCE = 1e-10


class Link(NamedTuple):
    name: str
    parent: str
    kind: str
    axis: np.ndarray
    origin: np.ndarray
    rotation: Rotation
    mass: float
    com: np.ndarray
    inertia: np.ndarray


class Tree(NamedTuple):
    links: list[Link]
    frames: list[tuple[str, str, np.ndarray, Rotation]]
    gravity: np.ndarray
    joint_order: np.ndarray


def fixed_depth(parents: list[int], fixed: set[int]) -> int:
    """The longest chain of fixed links."""

    def depth(i: int) -> int:
        return 1 + depth(parents[i]) if i in fixed else 0

    return max(depth(i) for i in fixed)


def tree(seed: int) -> Tree:
    """A random tree; all have one size and two fixed links in a row: one program serves them."""
    rng = np.random.default_rng(seed)
    count = MOVING + FIXED
    while True:
        parents = [int(rng.integers(-1, i)) for i in range(count)]
        fixed = set(rng.choice(count, FIXED, replace=False).tolist())
        if fixed_depth(parents, fixed) == 2:
            break
    links = []
    for i in range(count):
        kind = "fixed" if i in fixed else str(rng.choice(["revolute", "prismatic"], p=[0.65, 0.35]))
        points = rng.normal(size=(5, 3)) * rng.uniform(0.05, 0.3)
        second = points.T @ points
        axis = rng.normal(size=3)
        links.append(
            Link(
                f"link{i}",
                f"link{parents[i]}" if parents[i] >= 0 else "world",
                kind,
                axis / np.linalg.norm(axis),
                rng.uniform(-0.5, 0.5, 3),
                Rotation.from_rotvec(rng.uniform(-2, 2, 3)),
                float(rng.uniform(0.2, 3.0)),
                rng.uniform(-0.3, 0.3, 3),
                np.trace(second) * np.eye(3) - second,
            )
        )
    frames = [
        (
            f"frame{i}",
            f"link{rng.integers(count)}",
            rng.uniform(-0.5, 0.5, 3),
            Rotation.from_rotvec(rng.uniform(-2, 2, 3)),
        )
        for i in range(FRAMES)
    ]
    return Tree(links, frames, rng.normal(size=3) * 5.0, rng.permutation(count))


def as_mechanism(t: Tree) -> Mechanism:
    m = Mechanism("random tree", gravity=t.gravity)
    for l in t.links:
        m = m.body(l.name, mass=l.mass, com=l.com, inertia=l.inertia)
    for i in t.joint_order:
        l = t.links[i]
        at: dict[str, Any] = {"origin": l.origin, "rotation": l.rotation.as_matrix()}
        if l.kind != "fixed":
            at["axis"] = l.axis
        m = getattr(m, l.kind)(f"q{i}", l.parent, l.name, **at)
    for name, body, origin, rotation in t.frames:
        m = m.frame(name, body, origin=origin, rotation=rotation.as_matrix())
    return m


def as_mjcf(t: Tree) -> str:
    def text(values) -> str:
        return " ".join(repr(float(x)) for x in np.ravel(values))

    def quaternion(rotation: Rotation) -> str:
        return text(rotation.as_quat()[[3, 0, 1, 2]])

    def children(parent: str) -> str:
        return "".join(body(i, l) for i, l in enumerate(t.links) if l.parent == parent)

    def body(i: int, l: Link) -> str:
        six = l.inertia[[0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2]]
        kind = {"revolute": "hinge", "prismatic": "slide"}.get(l.kind)
        joint = f'<joint name="q{i}" type="{kind}" axis="{text(l.axis)}"/>' if kind else ""
        sites = "".join(
            f'<site name="{name}" pos="{text(origin)}" quat="{quaternion(rotation)}"/>'
            for name, on, origin, rotation in t.frames
            if on == l.name
        )
        return (
            f'<body name="{l.name}" pos="{text(l.origin)}" quat="{quaternion(l.rotation)}">'
            f'<inertial pos="{text(l.com)}" mass="{l.mass!r}" fullinertia="{text(six)}"/>'
            f"{joint}{sites}{children(l.name)}</body>"
        )

    return (
        f'<mujoco><compiler angle="radian"/><option gravity="{text(t.gravity)}"/>'
        f"<worldbody>{children('world')}</worldbody></mujoco>"
    )


class Seen(NamedTuple):
    mass: np.ndarray
    bias: np.ndarray
    poses: np.ndarray
    """(bodies and frames, 4, 4)"""
    twists: np.ndarray


def by_mujoco(t: Tree, names: tuple[str, ...], q: np.ndarray, v: np.ndarray) -> Seen:
    """MuJoCo's answers in the order of the mechanism's coordinates, bodies and frames."""
    model = mujoco.MjModel.from_xml_string(as_mjcf(t))
    data = mujoco.MjData(model)
    place = np.array([model.joint(name).dofadr[0] for name in names])
    data.qpos[place], data.qvel[place] = q, v
    mujoco.mj_forward(model, data)
    mass = np.zeros((model.nv, model.nv))
    # column by column: the arguments of mj_fullM differ between versions
    for i, unit in enumerate(np.eye(model.nv)):
        mujoco.mj_mulM(model, data, mass[i], unit)
    poses, twists = [], []
    bodies = [(data.body(l.name), mujoco.mj_jacBody, model.body(l.name).id) for l in t.links]
    sites = [(data.site(f[0]), mujoco.mj_jacSite, model.site(f[0]).id) for f in t.frames]
    for where, jacobian, number in bodies + sites:
        pose = np.eye(4)
        pose[:3, :3], pose[:3, 3] = where.xmat.reshape(3, 3), where.xpos
        poses.append(pose)
        moving, turning = np.zeros((2, 3, model.nv))
        jacobian(model, data, moving, turning, number)
        twists.append(np.concatenate([turning @ data.qvel, moving @ data.qvel]))
    bias = data.qfrc_bias[place]
    return Seen(mass[np.ix_(place, place)], bias, np.array(poses), np.array(twists))


@jax.jit
def by_mechid(model: TreeModel, q, v) -> Seen:
    none = 0.0 * q
    return Seen(
        model.mass_matrix(q),
        model.force_balance(q, v, none, none[:0], 0.0),
        model.frame_poses(q)[1:],
        model.frame_twists(q, v)[1:],
    )


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_random_tree(seed: int) -> None:
    t = tree(seed)
    mechanism = as_mechanism(t)
    model = mechanism.lower()
    rng = np.random.default_rng(100 + seed)
    for _ in range(3):
        q, v = rng.uniform(-1.5, 1.5, MOVING), rng.uniform(-3, 3, MOVING)
        want = by_mujoco(t, mechanism.coordinate_names, q, v)
        for got, expected in zip(by_mechid(model, q, v), want, strict=True):
            scale = max(1.0, float(np.abs(expected).max()))
            np.testing.assert_allclose(got, expected, rtol=0, atol=TOLERANCE * scale)


def test_the_trees_differ_but_share_one_program() -> None:
    trees = [tree(seed) for seed in (1, 2, 3)]
    assert len({tuple(l.parent for l in t.links) for t in trees}) == 3
    kinds = {l.kind for t in trees for l in t.links}
    assert kinds == {"revolute", "prismatic", "fixed"}
    shapes = [[leaf.shape for leaf in jax.tree.leaves(as_mechanism(t).lower())] for t in trees]
    assert shapes[0] == shapes[1] == shapes[2]
