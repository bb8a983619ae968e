"""Which parameters act, against counts from textbooks and against MuJoCo's inverse dynamics."""

import mujoco
import numpy as np
import pytest

from mechid import Mechanism, read_mechanism
from mechid.errors import MechidError
from mechid.judge.structure import structure
from mechid.reference import reference_file

UPRIGHT, ALONG = (0.0, 0.0, -9.81), (0.0, -9.81, 0.0)
SOLID = {"mass": 1.0, "com": (0.1, 0.02, -0.3), "inertia": (0.02, 0.03, 0.01)}


def pendulum(gravity):
    return Mechanism(gravity=gravity).body("rod", **SOLID).revolute("hinge", "world", "rod", axis="y")


def arm(gravity, axes, offsets):
    """A chain of hinges with bodies of all ten numbers."""
    chain, parent = Mechanism(gravity=gravity), "world"
    for i, (axis, origin) in enumerate(zip(axes, offsets, strict=True)):
        chain = chain.body(f"link{i}", **SOLID).revolute(
            f"j{i}", parent, f"link{i}", axis=axis, origin=origin
        )
        parent = f"link{i}"
    return chain


def test_a_pendulum_shows_its_inertia_about_the_axis_and_two_moments():
    found = structure(pendulum(UPRIGHT))
    alone = ["rod.first_moment.x", "rod.first_moment.z", "rod.origin_inertia.yy"]
    assert found.which("alone") == alone
    assert found.which("in combination") == []
    assert len(found.which("never")) == 7
    assert found.rank == found.inertial_rank == 3


def test_with_gravity_along_the_axis_only_the_inertia_acts():
    assert structure(pendulum(ALONG)).which("alone") == ["rod.origin_inertia.yy"]


@pytest.mark.parametrize(
    ("axes", "gravity", "cluster"),
    [
        ("yy", UPRIGHT, 2),
        ("yy", ALONG, 2),
        ("yyy", UPRIGHT, 3),
        ("zyy", UPRIGHT, 1),
        ("yzy", UPRIGHT, 1),
        ("zyyyzy", UPRIGHT, 1),
    ],
)
def test_hinges_parallel_or_perpendicular_have_mayedas_number(axes, gravity, cluster):
    """7 N − 4 β, two less where the first axis is along gravity; β: first axes that are parallel."""
    offsets = [(0.3, 0.1 * i, 0.2) for i in range(len(axes))]
    along = np.allclose(np.abs(np.array(gravity) / 9.81), np.eye(3)["xyz".index(axes[0])])
    expected = 7 * len(axes) - 4 * cluster - 2 * along
    assert structure(arm(gravity, axes, offsets)).inertial_rank == expected


def test_a_planar_arm_groups_the_outer_mass_with_the_inner_link():
    """Two hinges, second at distance l along x: m₂ goes with l² into I₁ and with l into m₁x₁."""
    found = structure(arm(UPRIGHT, "yy", [(0, 0, 0), (0.3, 0, 0)]))
    combined = {c.leading: c.others for c in found.combinations if c.others}
    assert set(combined) == {"link0.origin_inertia.yy", "link0.first_moment.x"}
    assert combined["link0.origin_inertia.yy"] == pytest.approx({"link1.mass": 0.09})
    assert combined["link0.first_moment.x"] == pytest.approx({"link1.mass": 0.3})


def test_an_armature_on_the_first_axis_cannot_be_told_from_inertia():
    found = structure(pendulum(UPRIGHT).armature("hinge", inertia=0.1).damper("hinge", damping=0.1))
    assert found.which("in combination") == ["rod.origin_inertia.yy", "hinge.armature"]
    assert found.action["hinge.damping"] == "alone"
    assert (found.inertial_rank, found.rank) == (3, 4)


def test_dry_friction_is_told_from_damping_and_from_friction_elsewhere():
    m = arm(UPRIGHT, "yy", [(0, 0, 0), (0.3, 0, 0)]).damper("j0", damping=0.1)
    found = structure(m.dry_friction("j0", coulomb=0.1).dry_friction("j1", coulomb=0.0))
    assert {found.action[n] for n in ("j0.coulomb", "j1.coulomb", "j0.damping")} == {"alone"}
    twice = structure(m.dry_friction("j0", coulomb=0.1).dry_friction("j0", coulomb=0.2, name="seal"))
    assert twice.action["j0.coulomb"] == twice.action["seal.coulomb"] == "in combination"


def test_bodies_fixed_to_the_world_never_act_and_massless_ones_are_left_out():
    m = pendulum(UPRIGHT).body("base", **SOLID).fixed("bolt", "world", "base")
    m = m.body("tip").fixed("weld", "rod", "tip").body("tool", **SOLID).fixed("grip", "rod", "tool")
    found = structure(m)
    assert {found.action[f"base.{n}"] for n in ("mass", "first_moment.x", "origin_inertia.yy")} == {"never"}
    assert "tip.mass" not in found.action
    assert found.action["tool.first_moment.x"] == found.action["rod.first_moment.x"] == "in combination"
    assert found.inertial_rank == 3


def four_bar():
    bar = {"mass": 1.0, "com": (0.1, 0, 0), "inertia": (0.001, 0.003, 0.003)}
    return (
        Mechanism()
        .body("crank", **bar)
        .revolute("a", "world", "crank", axis="y")
        .body("coupler", **bar)
        .revolute("b", "crank", "coupler", axis="y", origin=(0.2, 0, 0))
        .body("rocker", **bar)
        .revolute("c", "world", "rocker", axis="y", origin=(0.4, 0, 0))
        .frame("coupler-end", "coupler", origin=(0.5, 0, 0))
        .frame("rocker-end", "rocker", origin=(0.4, 0, 0))
        .loop("closure", "coupler-end", "rocker-end", kind="pin", axis="y")
    )


def test_a_four_bar_has_eight():
    """In the plane m, m·x, m·z, J of each link. Crank and rocker turn about fixed pins, so their masses never act;
    the coupler is two masses at its pins, which belong to the neighbours, and m·z and a rest of J: 3 + 3 + 2.
    """
    found = structure(four_bar())
    assert found.action["coupler.mass"] == "in combination"
    assert found.action["crank.origin_inertia.xx"] == "never"
    assert found.inertial_rank == 8


def test_loops_that_cannot_close_are_refused():
    far = four_bar().body("x", mass=1.0).revolute("d", "world", "x", axis="y", origin=(9, 0, 0))
    far = far.loop("reach", "x", "crank", kind="point")
    with pytest.raises(MechidError, match="cannot be closed"):
        structure(far)


def test_the_ur10e_has_as_many_as_mujocos_inverse_dynamics(reference):
    """Ten point masses span a body's ten numbers: MuJoCo's forces for each of them, at random motions."""
    path = reference_file("data", "models", "universal_robots_ur10e", "ur10e.xml")
    spec = mujoco.MjSpec.from_file(str(path))
    for kind in ("geoms", "meshes", "materials", "textures", "sensors"):
        for element in list(getattr(spec, kind)):
            spec.delete(element)
    random = np.random.default_rng(3)
    bodies = [b for b in spec.bodies if b.name not in ("world", "base")]
    for body in bodies:
        for k, place in enumerate(random.uniform(-0.5, 0.5, (10, 3))):
            body.add_body(
                name=f"{body.name}/{k}", pos=place, mass=1e-9, inertia=[1e-12] * 3, explicitinertial=True
            )
    model = spec.compile()
    data = mujoco.MjData(model)
    points = [model.body(f"{b.name}/{k}").id for b in bodies for k in range(10)]
    rows = []
    for _ in range(40):
        data.qpos[:], data.qvel[:], data.qacc[:] = random.uniform(-3, 3, (3, 6))
        forces = []
        for point in [None, *points]:
            model.body_mass[points] = 0.0
            if point is not None:
                model.body_mass[point] = 1.0
            mujoco.mj_inverse(model, data)
            forces.append(data.qfrc_inverse.copy())
        rows.append(np.array(forces[1:]).T - forces[0][:, None])
    values = np.linalg.svd(np.concatenate(rows), compute_uv=False)
    ours = structure(read_mechanism(path)).inertial_rank
    assert ours == 36
    assert values[ours - 1] > 1e-4 * values[0]
    assert values[ours] < 1e-9 * values[0]


@pytest.mark.parametrize(("file", "count"), [("kuka_iiwa_14/iiwa14.xml", 43), ("baxter.urdf", 2 * 43 + 1)])
def test_robots_of_seven_hinges_have_mayedas_number(file, count, reference):
    assert structure(read_mechanism(reference_file("data", "models", file))).inertial_rank == count
