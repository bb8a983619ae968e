"""URDF and MJCF text: what becomes of each element, and what is refused in which words."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from mechid import Mechanism, MechidError, read_mechanism
from mechid.model.parts import Armature, Custom, Damper, Friction, Motor, Spring
from mechid.model.reading import read_mechanism_text

INF = np.inf


def body(m: Mechanism, name: str) -> Any:
    return next(b for b in m.bodies if b.name == name)


def joint(m: Mechanism, name: str) -> Any:
    return next(j for j in m.joints if j.name == name)


def elements(m: Mechanism, kind: type) -> dict[str, Any]:
    return {e.name: e for e in m.elements if type(e) is kind}


def told(m: Mechanism, *words: str) -> bool:
    """Whether one note has all the words."""
    return any(all(w in note for w in words) for note in m.notes)


# URDF

INERTIAL = (
    '<inertial><origin xyz="0.1 0.2 0.3" rpy="{rpy}"/><mass value="{mass}"/>'
    '<inertia ixx="1" iyy="2" izz="2.5" ixy="0.1" ixz="-0.2" iyz="0.3"/></inertial>'
)
ARM = f"""<?xml version="1.0"?>
<robot name="arm">
  <link name="base"><visual><geometry><sphere radius="1"/></geometry></visual></link>
  <link name="upper">{INERTIAL.format(rpy="0 0 1.5707963267948966", mass=2)}</link>
  <link name="lower">{INERTIAL.format(rpy="0.3 -0.4 0.5", mass=1.5)}</link>
  <link name="rod">{INERTIAL.format(rpy="0 0 0", mass=0.5)}</link>
  <link name="claw">{INERTIAL.format(rpy="0 0 0", mass=0.5)}</link>
  <link name="lens"/>
  <joint name="shoulder" type="revolute">
    <parent link="base"/><child link="upper"/><origin xyz="0 0 1" rpy="0.1 0.2 0.3"/><axis xyz="0 3 4"/>
    <limit lower="-1" upper="2" velocity="3" effort="40"/><dynamics damping="0.5" friction="0.25"/>
  </joint>
  <joint name="elbow" type="continuous">
    <parent link="upper"/><child link="lower"/><axis xyz="0 0 -1"/>
    <limit velocity="5" effort="6" lower="-1" upper="1"/>
  </joint>
  <joint name="slide" type="prismatic">
    <parent link="lower"/><child link="rod"/><limit lower="0" upper="0.4"/>
  </joint>
  <joint name="grip" type="revolute">
    <parent link="rod"/><child link="claw"/><limit lower="0" upper="0" velocity="0" effort="0"/>
    <mimic joint="slide" multiplier="-2" offset="0.1"/>
  </joint>
  <joint name="mount" type="fixed"><parent link="claw"/><child link="lens"/><origin xyz="0 0 0.05"/></joint>
  <transmission name="t"><joint name="shoulder"/></transmission>
  <gazebo/>
</robot>"""


def test_urdf_joints_and_names() -> None:
    m = read_mechanism_text(ARM)
    assert m.name == "arm"
    assert m.gravity.tolist() == [0.0, 0.0, -9.81]
    kinds = {j.name: (j.kind, j.parent, j.child) for j in m.joints}
    assert kinds == {
        "base": ("fixed", "world", "base"),
        "shoulder": ("revolute", "base", "upper"),
        "elbow": ("revolute", "upper", "lower"),
        "slide": ("prismatic", "lower", "rod"),
        "grip": ("revolute", "rod", "claw"),
        "mount": ("fixed", "claw", "lens"),
    }
    assert m.coordinate("shoulder").axis == pytest.approx((0.0, 0.6, 0.8))
    assert m.coordinate("slide").axis == (1.0, 0.0, 0.0)
    np.testing.assert_array_equal(joint(m, "mount").origin, [0, 0, 0.05])


def test_urdf_limits_say_what_a_joint_can_do() -> None:
    m = read_mechanism_text(ARM)
    able = {c.name: (c.lower, c.upper, c.max_rate, c.max_force) for c in m.coordinates}
    assert able == {
        "shoulder": (-1.0, 2.0, 3.0, 40.0),
        "elbow": (-INF, INF, 5.0, 6.0),
        "slide": (0.0, 0.4, INF, INF),
        # an exporter that knows none writes zeros
        "grip": (-INF, INF, INF, INF),
    }


def test_urdf_dynamics_mimic_and_torques() -> None:
    m = read_mechanism_text(ARM)
    assert {n: d.damping for n, d in elements(m, Damper).items()} == {"shoulder": 0.5}
    assert {n: f.coulomb for n, f in elements(m, Friction).items()} == {"shoulder": 0.25}
    assert [(c.coordinate, c.other, c.ratio, c.offset) for c in m.couplings] == [("grip", "slide", -2.0, 0.1)]
    assert m.input_names == ("shoulder.torque", "elbow.torque", "slide.torque")
    assert read_mechanism_text(ARM, actuators="none").input_names == ()


def test_urdf_notes() -> None:
    m = read_mechanism_text(ARM)
    assert told(m, "root link base", "fixed to the world")
    assert told(m, "massless", "base")
    assert told(m, "<transmission> (1)", "<gazebo> (1)")
    assert told(m, "friction", "smooth")
    assert told(m, "Limits", "nothing acts")
    assert all(note.endswith(".") and "\n" not in note for note in m.notes)
    assert all(f"note: {note}" in repr(m).splitlines() for note in m.notes)


def test_urdf_numbers_are_mujocos() -> None:
    """Places, axes and turned inertias against MuJoCo's own reading."""
    # which warns about a limit from 0 to 0
    spec = mujoco.MjSpec.from_string(ARM.replace('upper="0" velocity="0"', 'upper="1"'))
    spec.compiler.fusestatic = 0
    for geom in list(spec.geoms):
        spec.delete(geom)
    model, m = spec.compile(), read_mechanism_text(ARM)
    for name in ("upper", "lower", "rod", "claw"):
        want, got = model.body(name), body(m, name)
        turn = Rotation.from_quat(want.iquat[[1, 2, 3, 0]]).as_matrix()
        np.testing.assert_allclose(got.inertia, turn @ np.diag(want.inertia) @ turn.T, atol=1e-12)
        np.testing.assert_array_equal(got.com, want.ipos)
        hung = next(j for j in m.joints if j.child == name)
        np.testing.assert_allclose(hung.origin, want.pos, atol=1e-15)
        np.testing.assert_allclose(
            hung.rotation, Rotation.from_quat(want.quat[[1, 2, 3, 0]]).as_matrix(), atol=1e-14
        )
        np.testing.assert_allclose(hung.coordinates[0].axis, model.joint(hung.name).axis, atol=1e-15)
    # by hand: a quarter turn about z swaps x and y
    assert body(m, "upper").inertia == pytest.approx(
        np.array([[2, -0.1, -0.3], [-0.1, 1, -0.2], [-0.3, -0.2, 2.5]])
    )


def urdf(*joints: str, links: str = "abc") -> str:
    return "<robot name='r'>" + "".join(f'<link name="{l}"/>' for l in links) + "".join(joints) + "</robot>"


def pair(name: str, parent: str, child: str, kind: str = "continuous", inside: str = "") -> str:
    return (
        f'<joint name="{name}" type="{kind}"><parent link="{parent}"/><child link="{child}"/>{inside}</joint>'
    )


def test_a_urdf_root_called_world_is_the_world() -> None:
    text = urdf(pair("j", "world", "a"), links="").replace(
        "<joint", '<link name="world"/><link name="a"/><joint', 1
    )
    m = read_mechanism_text(text)
    assert [(j.name, j.parent) for j in m.joints] == [("j", "world")]
    assert [b.name for b in m.bodies] == ["a"]


def test_a_floating_urdf_joint_floats() -> None:
    m = read_mechanism_text(urdf(pair("f", "a", "b", "floating", '<origin xyz="1 2 3"/>'), links="ab"))
    assert joint(m, "f").kind == "floating"
    assert joint(m, "f").origin.tolist() == [1.0, 2.0, 3.0]
    assert m.input_names == ()


def test_the_order_of_elements_in_a_urdf_is_free() -> None:
    m = read_mechanism_text(urdf(pair("k", "b", "c"), pair("j", "a", "b"), links="cba"))
    assert m.coordinate_names == ("k", "j")
    assert {j.child: j.parent for j in m.joints} == {"a": "world", "b": "a", "c": "b"}


URDF_REFUSED = {
    "no link": (urdf(links=""), ("no <link>",)),
    "unnamed link": ("<robot><link/></robot>", ("<link>", "line 1", "name")),
    "link twice": (urdf(links="aa"), ("two links named 'a'", "lines 1 and 1")),
    "joint twice": (urdf(pair("j", "a", "b"), pair("j", "b", "c")), ("two joints named 'j'",)),
    "no type": ("<robot><link name='a'/><joint name='j'/></robot>", ("joint 'j'", "type")),
    "planar": (urdf(pair("j", "a", "b", "planar"), links="ab"), ("'j'", "'planar'", "revolute", "floating")),
    "unknown type": (urdf(pair("j", "a", "b", "ball"), links="ab"), ("'j'", "'ball'", "continuous")),
    "no parent": (
        urdf('<joint name="j" type="fixed"><child link="a"/></joint>'),
        ("joint 'j'", "no <parent>"),
    ),
    "unknown parent": (
        urdf(pair("j", "aa", "b"), links="ab"),
        ("parent of joint 'j'", "'aa'", "Valid: a, b"),
    ),
    "unknown child": (urdf(pair("j", "a", "bb"), links="ab"), ("child of joint 'j'", "'bb'")),
    "two parents": (urdf(pair("j", "a", "c"), pair("k", "b", "c")), ("'c'", "two parents", "'j'", "'k'")),
    "two roots": (urdf(pair("j", "a", "b")), ("2 root links", "a, c")),
    "ring": (urdf(pair("j", "b", "c"), pair("k", "c", "b")), ("b, c", "ring")),
    "nothing but a ring": (urdf(pair("j", "a", "b"), pair("k", "b", "a"), links="ab"), ("ring",)),
    "own child": (urdf(pair("j", "b", "b"), links="ab"), ("b", "ring")),
    "zero axis": (
        urdf(pair("j", "a", "b", inside='<axis xyz="0 0 0"/>'), links="ab"),
        ("axis", "'j'", "zero"),
    ),
    "two numbers": (
        urdf(pair("j", "a", "b", inside='<axis xyz="0 1"/>'), links="ab"),
        ("xyz='0 1'", "'j'", "3 num"),
    ),
    "words": (
        urdf(pair("j", "a", "b", inside='<axis xyz="0 0 up"/>'), links="ab"),
        ("'0 0 up'", "'j'", "line 1"),
    ),
    "NaN": (
        urdf(pair("j", "a", "b", inside='<origin xyz="0 0 nan"/>'), links="ab"),
        ("'0 0 nan'", "'j'", "finite"),
    ),
    "infinite": (
        urdf(pair("j", "a", "b", inside='<origin rpy="0 0 1e999"/>'), links="ab"),
        ("rpy='0 0 1e999'",),
    ),
    "two axes": (urdf(pair("j", "a", "b", inside="<axis/><axis/>"), links="ab"), ("'j'", "two <axis>")),
    "limits": (
        urdf(pair("j", "a", "b", "revolute", '<limit lower="2" upper="-1"/>'), links="ab"),
        ("limits", "'j'", "from 2 down to -1"),
    ),
    "negative effort": (
        urdf(pair("j", "a", "b", "revolute", '<limit effort="-1"/>'), links="ab"),
        ("effort", "'j'", "-1"),
    ),
    "negative damping": (
        urdf(pair("j", "a", "b", inside='<dynamics damping="-1"/>'), links="ab"),
        ("damping", "'j'", "-1", "≥ 0"),
    ),
    "damped floating": (
        urdf(pair("j", "a", "b", "floating", '<dynamics damping="1"/>'), links="ab"),
        ("floating", "'j'"),
    ),
    "unknown mimic": (
        urdf(pair("j", "a", "b", inside='<mimic joint="k"/>'), links="ab"),
        ("'j' to mimic", "'k'", "Valid: j"),
    ),
    "mimics itself": (
        urdf(pair("j", "a", "b", inside='<mimic joint="j"/>'), links="ab"),
        ("'j' mimics itself",),
    ),
    "mimics a fixed joint": (
        urdf(pair("j", "a", "b", inside='<mimic joint="k"/>'), pair("k", "b", "c", "fixed")),
        ("'j' to mimic", "'k'"),
    ),
    "fixed mimic": (
        urdf(pair("j", "a", "b"), pair("k", "b", "c", "fixed", '<mimic joint="j"/>')),
        ("'k' is fixed",),
    ),
    "negative mass": (ARM.replace('value="1.5"', 'value="-1.5"'), ("mass", "'lower'", "line 5", "-1.5 kg")),
    "triangle": (
        ARM.replace('izz="2.5"', 'izz="4"', 1),
        ("inertia", "'upper'", "line 4", "triangle inequality"),
    ),
    "not positive": (ARM.replace('ixy="0.1"', 'ixy="9"', 1), ("inertia", "'upper'", "negative principal")),
    "no mass": (re.sub("<mass.*?/>", "", ARM, count=1), ("'upper'", "line 4", "no <mass>")),
    "no inertia": (re.sub("<inertia .*?/>", "", ARM, count=1), ("'upper'", "line 4", "no <inertia>")),
    "no iyz": (ARM.replace('iyz="0.3"', "", 1), ("'upper'", "iyz")),
    "macros": ('<robot xmlns:xacro="x"><xacro:property name="a"/></robot>', ("xacro:property", "expand")),
}


@pytest.mark.parametrize("case", URDF_REFUSED)
def test_urdf_refused(case: str) -> None:
    text, words = URDF_REFUSED[case]
    assert_refused(text, words)


def assert_refused(text: str, words: tuple[str, ...]) -> None:
    with pytest.raises(MechidError) as caught:
        read_mechanism_text(text, where="file")
    sentence = str(caught.value)
    for word in ("'file'", *words):
        assert word in sentence, sentence
    assert "\n" not in sentence
    assert sentence.endswith(".")


# MJCF

SOLID = '<inertial pos="0.1 0.2 0.3" mass="2" diaginertia="1 1.5 2"/>'


def mjcf(*bodies: str, more: str = "", compiler: str = "") -> str:
    return f'<mujoco><compiler angle="radian" {compiler}/><worldbody>{"".join(bodies)}</worldbody>{more}</mujoco>'


def link(name: str, inside: str, at: str = "0 0 0") -> str:
    return f'<body name="{name}" pos="{at}">{SOLID}{inside}</body>'


HINGE = link("b", '<joint name="j"/>')
TWO = HINGE + link("c", '<joint name="k" ref="0.5"/>', "1 0 0")


def test_mjcf_numbers_are_the_files_own() -> None:
    full = "0.0314159 0.0271828 0.0141421 0.00577215 -0.00123 0.00231"
    text = mjcf(
        f'<body name="b"><joint/><inertial pos="0.1 0.2 0.3" mass="0.7" fullinertia="{full}"/></body>'
    )
    b = body(read_mechanism_text(text), "b")
    xx, yy, zz, xy, xz, yz = map(float, full.split())
    assert b.inertia.tolist() == [[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]
    assert (b.mass, b.com.tolist()) == (0.7, [0.1, 0.2, 0.3])


def test_a_turned_inertial_stands_along_the_bodys_axes() -> None:
    quarter = SOLID.replace("pos", 'euler="0 0 1.5707963267948966" pos')
    b = body(read_mechanism_text(mjcf(f'<body name="b"><joint/>{quarter}</body>')), "b")
    np.testing.assert_allclose(b.inertia, np.diag([1.5, 1.0, 2.0]), atol=1e-12)


def test_mjcf_elements_on_joints() -> None:
    actuators = """<actuator>
      <motor name="drive" joint="j" gear="50" ctrlrange="-2 2"/>
      <general name="winch" joint="j" gear="2" gainprm="3" forcerange="-5 4"/>
      <position name="servo" joint="j" kp="9"/>
      <motor name="j" joint="j"/>
    </actuator>"""
    able = 'damping="0.1" frictionloss="0.2" armature="0.3" stiffness="4" springref="0.5" range="-1 2" ref="0.25"'
    m = read_mechanism_text(mjcf(link("b", f'<joint name="j" {able}/>'), more=actuators))
    assert elements(m, Damper)["j"].damping == 0.1
    assert elements(m, Friction)["j"].coulomb == 0.2
    assert elements(m, Armature)["j"].armature == 0.3
    assert (elements(m, Spring)["j"].stiffness, elements(m, Spring)["j"].rest) == (4.0, 0.5)
    assert (m.coordinate("j").lower, m.coordinate("j").upper) == (-1.0, 2.0)
    motors = {n: (e.gain, e.gear_ratio) for n, e in elements(m, Motor).items()}
    assert motors == {"drive": (1, 50), "winch": (3, 2), "servo": (1, 1), "j.motor": (1, 1)}
    assert m.input_names == ("drive", "winch", "servo", "j.motor")
    assert told(m, "servo", "laws")
    assert not told(m, "laws", "winch")
    without = read_mechanism_text(
        mjcf(link("b", f'<joint name="j" {able}/>'), more=actuators), actuators="none"
    )
    assert without.input_names == ()
    assert len(without.elements) == 4


def test_what_actuators_can_give_together_is_the_joints_largest_force() -> None:
    one = '<motor joint="j" gear="-50" ctrlrange="-2 1"/>'
    two = '<general joint="j" gear="2" gainprm="3" forcerange="-5 4"/>'
    for actuators, strength in (
        (one, 100.0),
        (two, 10.0),
        (one + two, 110.0),
        (one + '<motor joint="j"/>', INF),
    ):
        m = read_mechanism_text(mjcf(HINGE, more=f"<actuator>{actuators}</actuator>"))
        assert m.coordinate("j").max_force == strength
    held = HINGE.replace('"j"', '"j" actuatorfrcrange="-7 3"')
    m = read_mechanism_text(mjcf(held, more=f"<actuator>{one}</actuator>"))
    assert m.coordinate("j").max_force == 7.0


def test_rotor_and_damping_of_an_actuator_stay_without_it() -> None:
    text = mjcf(
        HINGE, more='<actuator><motor name="m" joint="j" gear="3" armature="0.5" damping="0.25"/></actuator>'
    )
    m = read_mechanism_text(text)
    assert elements(m, Motor)["m"].rotor_inertia == 0.5
    assert elements(m, Damper)["m"].damping == 9 * 0.25
    without = read_mechanism_text(text, actuators="none")
    assert elements(without, Armature)["m"].armature == 9 * 0.5
    assert elements(without, Damper)["m"].damping == 9 * 0.25
    model = mujoco.MjModel.from_xml_string(text)
    data, unit = mujoco.MjData(model), np.zeros(1)
    data.qvel[0] = 1.0
    mujoco.mj_forward(model, data)
    mujoco.mj_mulM(model, data, unit, np.ones(1))
    assert unit[0] == pytest.approx(2 + 2 * (0.1**2 + 0.2**2) + 4.5)
    assert data.qfrc_passive[0] == pytest.approx(-2.25)


def test_cubic_springs_and_dampers() -> None:
    m = read_mechanism_text(mjcf(link("b", '<joint name="j" stiffness="1 0 3" damping="2 0 5"/>')))
    assert elements(m, Spring)["j"].cubic_stiffness == 3.0
    assert elements(m, Damper)["j"].cubic_damping == 5.0


def test_a_joint_beside_the_origin_leaves_the_bodys_frame_where_it_is() -> None:
    m = read_mechanism_text(mjcf(link("b", '<joint name="j" axis="0 1 0" pos="0 0 0.4"/>', "1 2 3")))
    assert [(j.name, j.parent, j.child) for j in m.joints] == [("j", "world", "b/j"), ("b", "b/j", "b")]
    assert joint(m, "j").origin.tolist() == [1, 2, 3.4]
    assert joint(m, "b").origin.tolist() == [0, 0, -0.4]
    assert body(m, "b").com.tolist() == [0.1, 0.2, 0.3]
    assert body(m, "b/j").mass == 0.0
    # on its own axis it does not matter, and along a slide neither
    for inside in (
        '<joint name="j" axis="0 0 1" pos="0 0 0.4"/>',
        '<joint name="j" type="slide" pos="1 2 3"/>',
    ):
        assert [b.name for b in read_mechanism_text(mjcf(link("b", inside))).bodies] == ["b"]


def test_several_joints_on_a_body_stand_in_a_row() -> None:
    slides = '<joint name="x" type="slide" axis="1 0 0"/><joint name="y" type="slide" axis="0 1 0"/>'
    three = slides + '<joint name="turn"/>'
    m = read_mechanism_text(mjcf(link("b", three, "1 2 3")))
    assert [(j.name, j.parent, j.child) for j in m.joints] == [
        ("x", "world", "b/x"),
        ("y", "b/x", "b/y"),
        ("turn", "b/y", "b"),
    ]
    assert joint(m, "x").origin.tolist() == [1, 2, 3]
    assert m.coordinate_names == ("x", "y", "turn")


def test_unnamed_parts_get_names_that_stay() -> None:
    several = f"<body>{SOLID}<joint/><joint axis='1 0 0'/></body>"
    m = read_mechanism_text(
        mjcf(
            f"<body>{SOLID}<joint name='q'/></body>", several, more="<actuator><motor joint='q'/></actuator>"
        )
    )
    assert [b.name for b in m.bodies] == ["body1", "body2", "body2/body2.1"]
    assert m.coordinate_names == ("q", "body2.1", "body2.2")
    assert m.input_names == ("actuator1",)


def test_names_that_cannot_be_borne_are_changed() -> None:
    text = mjcf(
        link("left arm", '<joint name="j[1]"/><site name="left arm"/>'), link("left_arm", '<joint name="k"/>')
    )
    m = read_mechanism_text(text)
    assert [b.name for b in m.bodies] == ["left_arm", "left_arm_2"]
    assert m.coordinate_names == ("j_1_", "k")
    assert told(m, "'left arm' is left_arm", "'j[1]' is j_1_", "'left_arm' is left_arm_2")


def test_free_and_ball_joints_with_damping() -> None:
    m = read_mechanism_text(
        mjcf(
            link("b", '<joint name="f" type="free" damping="2"/>'),
            link("c", '<joint name="s" type="ball" damping="3"/>'),
        )
    )
    assert (joint(m, "f").kind, joint(m, "s").kind) == ("floating", "spherical")
    assert {n: d.damping for n, d in elements(m, Damper).items()} == {"f.x": 2, "f.y": 2, "f.z": 2}
    assert {n: (c.coordinates[0], c.parameters) for n, c in elements(m, Custom).items()} == {
        "f": ("f.roll", (("damping", 2.0),)),
        "s": ("s.1", (("damping", 3.0),)),
    }


def test_joint_equalities_count_from_the_references() -> None:
    text = mjcf(TWO, more='<equality><joint joint1="j" joint2="k" polycoef="1 2 3 0 0"/></equality>')
    c = read_mechanism_text(text).couplings[0]
    # j = 1 + 2 (k − 0.5) + 3 (k − 0.5)²
    assert (c.coordinate, c.other) == ("j", "k")
    assert (c.offset, c.ratio, c.c2, c.c3, c.c4) == pytest.approx((0.75, -1.0, 3.0, 0.0, 0.0))
    held = mjcf(TWO, more='<equality><joint name="lock" joint1="k" polycoef="0.25 0 0 0 0"/></equality>')
    c = read_mechanism_text(held).couplings[0]
    assert (c.name, c.coordinate, c.ratio, c.offset) == ("lock", "k", 0.0, 0.75)


def gaps(text: str, frames: dict[str, tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """What MuJoCo says is open with its bodies at these places and turns."""
    model = mujoco.MjModel.from_xml_string(text)
    data = mujoco.MjData(model)
    for name, (place, turn) in frames.items():
        at = model.jnt_qposadr[model.body(name).jntadr[0]]
        data.qpos[at : at + 3], data.qpos[at + 3 : at + 7] = (
            place,
            Rotation.from_matrix(turn).as_quat()[[3, 0, 1, 2]],
        )
    mujoco.mj_forward(model, data)
    return data.efc_pos


@pytest.mark.parametrize("relpose", ["", 'relpose="0.3 -0.2 0.5 0.5 0.5 -0.5 0.5"'])
@pytest.mark.parametrize("anchor", ["", 'anchor="0.1 0.7 -0.4"'])
def test_a_weld_is_closed_where_mujoco_says(relpose: str, anchor: str) -> None:
    """Bodies placed so that the two frames coincide close MuJoCo's weld too."""
    turned = link("c", "<freejoint/>").replace("<body", '<body euler="0.3 0.2 0.1"')
    weld = f'<equality><weld name="w" body1="b" body2="c" {relpose} {anchor}/></equality>'
    text = mjcf(link("b", "<freejoint/>", "1 2 3"), turned, more=weld)
    m = read_mechanism_text(text)
    loop = m.loops[0]
    assert (loop.name, loop.kind, loop.first, loop.second) == ("w", "frame", "b/w", "c/w")
    first, second = (next(f for f in m.frames if f.name == n) for n in (loop.first, loop.second))
    place, turn = np.array([0.4, -0.6, 0.9]), Rotation.from_rotvec([0.4, 0.8, -0.3]).as_matrix()
    # the pose of c for which frame c/w stands on b/w
    other = turn @ first.rotation @ second.rotation.T
    at = place + turn @ first.origin - other @ second.origin
    assert np.abs(gaps(text, {"b": (place, turn), "c": (at, other)})).max() < 1e-12
    assert np.abs(gaps(text, {"b": (place, turn), "c": (at + 0.1, other)})).max() > 0.09
    assert np.abs(gaps(text, {"b": (place, turn), "c": (at, turn.T)})).max() > 0.01


def test_a_weld_without_torque_is_a_point() -> None:
    across = TWO.replace('ref="0.5"', 'axis="1 0 0"')
    text = mjcf(across, more='<equality><weld body1="b" body2="c" torquescale="0"/></equality>')
    loop = read_mechanism_text(text).loops[0]
    assert (loop.kind, loop.name, loop.first, loop.second) == ("point", "b/c", "b/anchor", "c/anchor")


TILTED = link("c", '<joint name="mid" {} pos="0 0 0.3"/>', "0 0.4 0").replace(
    "<body", '<body euler="0 0.3 0"'
)
CHAIN = link("b", f'<joint axis="0 1 0"/>{TILTED}') + link("d", '<joint axis="0 -1 0"/>', "1 0 0")


@pytest.mark.parametrize(
    ("middle", "kind"),
    [
        ('axis="0 1 0"', "pin"),
        ('axis="0 -2 0" ref="0.7"', "pin"),
        ('type="slide" axis="0.3 0 0.4"', "pin"),
        ('axis="0 1 0.001"', "point"),
        ('type="slide" axis="0.3 0.001 0.4"', "point"),
        ('type="ball"', "point"),
    ],
)
def test_a_point_shared_in_a_plane_is_a_pin(middle: str, kind: str) -> None:
    more = '<equality><connect body1="c" body2="d" anchor="0.5 0.1 0.2"/></equality>'
    m = read_mechanism_text(mjcf(CHAIN.format(middle), more=more))
    assert m.loops[0].kind == kind
    assert told(m, "pins", "c/d") == (kind == "pin")
    # seen along y, which is y in the first body too
    along = [np.array(row.direction[1]) @ (0, 1, 0) for row in m.loops[0].rows]
    assert (kind == "pin") == (np.abs(along).max() < 1e-12)


def test_the_axis_of_a_pin_stands_in_the_first_frame() -> None:
    quarter = link("b", '<joint axis="0 0 1"/>').replace("<body", '<body euler="1.5707963267948966 0 0"')
    connect = '<equality><connect body1="b" body2="c" anchor="0.5 0.1 0.2"/></equality>'
    m = read_mechanism_text(mjcf(quarter, link("c", '<joint axis="0 1 0"/>', "1 0 0"), more=connect))
    assert m.loops[0].kind == "pin"
    assert [row.direction[0] for row in m.loops[0].rows] == ["b/anchor"] * 2
    assert np.abs([row.direction[1][2] for row in m.loops[0].rows]).max() < 1e-12


def test_connect_holds_the_second_bodys_anchor_where_the_first_one_is() -> None:
    text = mjcf(TWO, more='<equality><connect body1="b" body2="c" anchor="0.5 0.1 0"/></equality>')
    m = read_mechanism_text(text)
    assert {f.name: f.origin.tolist() for f in m.frames} == {
        "b/anchor": [0.5, 0.1, 0.0],
        "c/anchor": pytest.approx([-0.5, 0.1, 0.0]),
    }
    world = read_mechanism_text(text.replace('body2="c"', ""))
    assert (world.loops[0].name, world.loops[0].second) == ("b/world", "world/anchor")


def test_equalities_between_sites_use_these_frames() -> None:
    sites = link("b", '<joint/><site name="s" pos="0 0 1"/>'), link("c", '<joint/><site name="t"/>')
    m = read_mechanism_text(mjcf(*sites, more='<equality><connect site1="s" site2="t"/></equality>'))
    assert (m.loops[0].name, m.loops[0].first, m.loops[0].second) == ("s/t", "s", "t")
    assert len(m.frames) == 2


def test_inertia_from_shapes() -> None:
    box = '<geom type="box" size="0.1 0.2 0.3" density="1000" pos="0.5 0 0"/>'
    m = read_mechanism_text(mjcf(f'<body name="b"><joint/>{box}</body>'))
    mass = 1000 * 0.2 * 0.4 * 0.6
    assert body(m, "b").mass == pytest.approx(mass)
    assert body(m, "b").com == pytest.approx([0.5, 0, 0])
    assert np.diag(body(m, "b").inertia) == pytest.approx(
        [mass / 12 * s for s in (0.4**2 + 0.6**2, 0.2**2 + 0.6**2, 0.2**2 + 0.4**2)]
    )
    assert told(m, "inferred", "b")
    written = read_mechanism_text(mjcf(f'<body name="b"><joint/>{SOLID}{box}</body>'))
    assert body(written, "b").mass == 2.0
    instead = read_mechanism_text(
        mjcf(f'<body name="b"><joint/>{SOLID}{box}</body>', compiler='inertiafromgeom="true"')
    )
    assert body(instead, "b").mass == pytest.approx(mass)
    assert told(instead, "settings", "b")


MESH = '<asset><mesh name="shape" file="gone.stl"/><texture name="t" type="2d" file="gone.png"/></asset>'


def test_groups_that_give_no_inertia_are_left_out() -> None:
    geoms = '<geom size="0.1"/><geom size="0.5" group="3"/><geom type="mesh" mesh="shape" group="4"/>'
    text = mjcf(f'<body name="b"><joint/>{geoms}</body>', more=MESH, compiler='inertiagrouprange="0 2"')
    assert body(read_mechanism_text(text), "b").mass == pytest.approx(4 / 3 * np.pi)


def test_compiler_settings_do_not_move_frames_or_fuse_bodies() -> None:
    plate = f'<body name="plate" pos="0 0 1">{SOLID}</body>'
    for inside, setting in (
        ('<freejoint align="true"/>', ""),
        ("<freejoint/>", 'alignfree="true"'),
        (f"<joint/>{plate}", 'fusestatic="true"'),
    ):
        m = read_mechanism_text(mjcf(link("b", inside), compiler=setting))
        assert len(m.bodies) == 1 + ("plate" in inside)
        for b in m.bodies:
            assert (b.mass, b.com.tolist()) == (2.0, [0.1, 0.2, 0.3])


def test_missing_meshes_matter_only_where_they_give_an_inertia() -> None:
    geom = '<geom type="mesh" mesh="shape"/>'
    m = read_mechanism_text(mjcf(link("b", f"<joint/>{geom}"), geom, more=MESH))
    assert body(m, "b").mass == 2.0
    weightless = geom.replace("/>", ' mass="0"/>')
    light = f'<body name="b"><joint/><geom size="0.1"/>{weightless}</body>'
    assert body(read_mechanism_text(mjcf(light, more=MESH)), "b").mass == pytest.approx(4 / 3 * np.pi)
    still = read_mechanism_text(mjcf(f'<body name="stand">{geom}</body>', HINGE, more=MESH))
    assert told(still, "never move", "stand")
    assert body(still, "stand").mass == 0.0
    two = MESH.replace("<mesh", '<mesh name="other" file="lost.obj"/><mesh', 1)
    both = f'<body name="stand">{geom}<geom size="0.1"/>{geom.replace("shape", "other")}</body>'
    assert body(read_mechanism_text(mjcf(both, HINGE, more=two)), "stand").mass == pytest.approx(
        4 / 3 * np.pi
    )
    assert_refused(
        mjcf(f'<body name="b"><joint/>{geom}</body>', more=MESH), ("body 'b'", "mesh 'shape'", "gone.stl")
    )


def test_settings_that_change_an_inertia_are_told() -> None:
    thin = '<body name="b"><joint/><inertial pos="0 0 0" mass="1" diaginertia="1 1 3"/></body>'
    m = read_mechanism_text(mjcf(thin, compiler='balanceinertia="true"'))
    model = mujoco.MjModel.from_xml_string(mjcf(thin, compiler='balanceinertia="true"'))
    assert np.linalg.eigvalsh(body(m, "b").inertia) == pytest.approx(sorted(model.body("b").inertia))
    assert told(m, "balanceinertia", "b")


def test_flags_switch_things_off() -> None:
    flags = '<option><flag gravity="disable" equality="disable"/></option>'
    m = read_mechanism_text(mjcf(TWO, more=flags + '<equality><joint joint1="j" joint2="k"/></equality>'))
    assert m.gravity.tolist() == [0, 0, 0]
    assert not m.couplings
    assert told(m, "flags", "gravity", "equality")
    sprung = mjcf(link("b", '<joint name="j" stiffness="1" damping="2" frictionloss="3"/>'), more="{}")
    for off, left in (
        ("spring", {Damper, Friction}),
        ("damper", {Spring, Friction}),
        ("frictionloss", {Spring, Damper}),
    ):
        m = read_mechanism_text(sprung.format(f'<option><flag {off}="disable"/></option>'))
        assert {type(e) for e in m.elements} == left


def test_what_does_nothing_to_the_motion_is_left_out_and_told() -> None:
    more = """<tendon><fixed name="cord"><joint joint="j" coef="1"/></fixed></tendon>
      <equality><joint name="idle" joint1="j" joint2="k" active="false"/></equality>
      <actuator><motor name="puller" tendon="cord"/></actuator>
      <sensor><jointpos joint="j"/></sensor><keyframe><key qpos="0 0"/></keyframe>"""
    m = read_mechanism_text(mjcf(TWO, '<geom size="1"/>', more=more))
    assert not m.couplings
    assert not m.input_names
    assert told(m, "1 geom", "1 sensor", "1 key frame", "cord")
    assert told(m, "puller", "not on a hinge")
    assert told(m, "idle", "not active")


def test_a_free_body_has_its_place_in_the_world_as_coordinates() -> None:
    m = read_mechanism_text(mjcf(link("b", "<freejoint/>", "0 0 1.1")))
    assert m.coordinate_names == tuple(f"b.{c}" for c in ("x", "y", "z", "roll", "pitch", "yaw"))
    assert joint(m, "b").origin.tolist() == [0, 0, 0]
    assert told(m, "b", "(0, 0, 1.1)")


def free(inside: str) -> str:
    return mjcf(link("b", f'<joint name="j" type="free" {inside}/>'))


def one(inside: str) -> str:
    return mjcf(link("b", f'<joint name="j" {inside}/>'))


MJCF_REFUSED = {
    "unknown element": (mjcf("<bodi/>"), ("<bodi>", "line 1")),
    "NaN": (one('axis="0 0 nan"'), ("axis=", "<joint>", "line 1", "not a number")),
    "infinite": (mjcf(link("b", "<joint/>", "0 0 inf")), ("'b'", "finite")),
    "two numbers": (one('axis="0 1"'), ("'axis'", "<joint>")),
    "words": (one('axis="0 0 up"'), ("'axis'", "<joint>")),
    "zero axis": (one('axis="0 0 0"'), ("axis", "'j'")),
    "range": (one('range="2 -1"'), ("range", "'j'", "from 2 down to -1")),
    "negative mass": (mjcf(HINGE.replace('mass="2"', 'mass="-2"')), ("mass", "'b'", "-2 kg")),
    "triangle": (mjcf(HINGE.replace("1 1.5 2", "1 1 3")), ("'b'", "triangle inequality")),
    "not positive": (
        mjcf(HINGE.replace('diaginertia="1 1.5 2"', 'fullinertia="1 1 1 2 0 0"')),
        ("'b'", "negative principal"),
    ),
    "massless": (mjcf('<body name="b"><joint/></body>'), ("mass", "'b'")),
    "body twice": (mjcf(HINGE, HINGE.replace('"j"', '"k"')), ("repeated name 'b'",)),
    "mocap": (mjcf('<body name="b" mocap="true"/>'), ("'b'", "mocap")),
    "gravity compensation": (mjcf(HINGE.replace("<body", '<body gravcomp="1"')), ("'b'", "gravcomp='1'")),
    "fluid": (mjcf(HINGE, more='<option density="1.2"/>'), ("fluid", "density='1.2'")),
    "viscosity": (mjcf(HINGE, more='<option viscosity="0.1"/>'), ("fluid", "viscosity='0.1'")),
    "stiff tendon": (
        mjcf(
            HINGE, more='<tendon><fixed name="t" stiffness="1"><joint joint="j" coef="1"/></fixed></tendon>'
        ),
        ("tendon 't'", "stiffness"),
    ),
    "tendon equality": (
        mjcf(
            HINGE,
            more='<tendon><fixed name="t"><joint joint="j" coef="1"/></fixed></tendon>'
            '<equality><tendon name="e" tendon1="t"/></equality>',
        ),
        ("equality 'e'", "type tendon", "connect, weld, joint"),
    ),
    "flex": (
        mjcf('<flexcomp name="cloth" type="grid" count="3 3 1" spacing=".1 .1 .1" dim="2"/>'),
        ("deformable", "cloth"),
    ),
    "plugin": (
        mjcf(HINGE, more='<extension><plugin plugin="mujoco.pid"><instance name="p"/></plugin></extension>'),
        ("plugin", "mujoco.pid"),
    ),
    "quadratic damping": (one('damping="1 2 0"'), ("damping", "'j'", "quadratic")),
    "quadratic spring": (one('stiffness="1 2 0"'), ("stiffness", "'j'", "quadratic")),
    "yielding spring": (one('stiffness="1" springyield="2"'), ("spring", "'j'", "yields")),
    "negative damping": (one('damping="-1"'), ("damping", "'j'", "negative")),
    "negative armature": (one('armature="-1"'), ("'j'", "armature")),
    "stiff ball": (one('type="ball" stiffness="1"'), ("stiffness", "ball", "'j'")),
    "ball armature": (one('type="ball" armature="1"'), ("armature", "ball", "'j'")),
    "ball friction": (one('type="ball" frictionloss="1"'), ("frictionloss", "ball", "'j'")),
    "free armature": (free('armature="1"'), ("armature", "free", "'j'")),
    "free spring": (free('stiffness="1"'), ("stiffness", "free", "'j'")),
    "unknown joint": (
        mjcf(HINGE, more='<actuator><motor name="m" joint="jay"/></actuator>'),
        ("'m'", "'jay'", "j"),
    ),
    "tendon motor with a rotor": (
        mjcf(
            HINGE,
            more='<tendon><fixed name="t"><joint joint="j" coef="1"/></fixed></tendon>'
            '<actuator><motor name="m" tendon="t" armature="1"/></actuator>',
        ),
        ("actuator 'm'", "armature"),
    ),
    "lock of the only joint": (
        mjcf(HINGE, more='<equality><joint name="e" joint1="j"/></equality>'),
        ("'e'", "only joint", "'j'"),
    ),
    "unknown body": (
        mjcf(HINGE, more='<equality><connect body1="b" body2="z" anchor="0 0 0"/></equality>'),
        ("'z'",),
    ),
    "many copies": (
        mjcf('<replicate count="1000"><replicate count="1000"><body/></replicate></replicate>'),
        ("<replicate>", "1000000 copies"),
    ),
    "missing include": ('<mujoco><include file="gone.xml"/></mujoco>', ("gone.xml", "<include>")),
    "missing model": (
        '<mujoco><asset><model name="m" file="gone.xml"/></asset></mujoco>',
        ("gone.xml",),
    ),
    "deep": (f"<mujoco>{'<a>' * 5000}{'</a>' * 5000}</mujoco>", ("nested too deeply",)),
}


@pytest.mark.parametrize("case", MJCF_REFUSED)
def test_mjcf_refused(case: str, capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: Any) -> None:
    text, words = MJCF_REFUSED[case]
    monkeypatch.chdir(tmp_path)
    assert_refused(text, words)
    assert capfd.readouterr() == ("", "")
    assert not list(tmp_path.iterdir())


# Files


BOTH_REFUSED = {
    "empty": ("", ("empty",)),
    "blank": (" \n ", ("empty",)),
    "not XML": ("mass 3", ("not valid XML", "line 1")),
    "broken": ("<mujoco>\n<worldbody>\n</mujoco>", ("not valid XML", "line 3")),
    "entities": ('<!DOCTYPE r [<!ENTITY a "b">]><robot name="&a;"/>', ("document type",)),
    "root": ("<sdf/>", ("<sdf>", "<robot>", "<mujoco>")),
}


@pytest.mark.parametrize("case", BOTH_REFUSED)
def test_refused_whatever_it_is(case: str) -> None:
    assert_refused(*BOTH_REFUSED[case])


def refusal(path: Any) -> str:
    with pytest.raises(MechidError) as caught:
        read_mechanism(path)
    return str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "arm.urdf").write_text(ARM)
    for path, words in (
        (tmp_path / "leg.urdf", ("There is no file", "leg.urdf", "arm.urdf")),
        (tmp_path / "no" / "leg.urdf", ("There is no file", "no folder")),
        (tmp_path, ("folder",)),
        ("a\0b", ("cannot be opened",)),
        (None, ("None",)),
    ):
        sentence = refusal(path)
        assert all(w in sentence for w in words), sentence
    (tmp_path / "latin.xml").write_bytes('<mujoco model="é"/>'.encode("latin-1"))
    assert "0xe9 at place 15" in refusal(tmp_path / "latin.xml")
    with (tmp_path / "huge.xml").open("wb") as file:
        file.truncate(65 * 2**20)
    assert "65 MB" in refusal(tmp_path / "huge.xml")
    with pytest.raises(MechidError, match="'thrust'; valid: torque, none"):
        read_mechanism(tmp_path / "arm.urdf", actuators="thrust")


def test_the_root_element_decides_not_the_suffix(tmp_path: Path) -> None:
    for name in ("arm.xml", "arm", "arm.mjcf"):
        (tmp_path / name).write_text(ARM)
        assert read_mechanism(tmp_path / name).name == "arm"
    for name in ("hinge.urdf", "hinge.XML", "hinge.txt", "hinge.xml"):
        (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + mjcf(HINGE).encode())
        assert read_mechanism(str(tmp_path / name)).name == "hinge"


def test_includes_are_found_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "hinge.xml").write_text(f"<mujoco><worldbody>{HINGE}</worldbody></mujoco>")
    main = tmp_path / "main.xml"
    main.write_text('<mujoco model="whole"><include file="parts/hinge.xml"/></mujoco>')
    assert [b.name for b in read_mechanism(main).bodies] == ["b"]
    main.rename(tmp_path / "main.txt")
    assert "ends in .xml" in refusal(tmp_path / "main.txt")


def test_a_file_that_was_changed_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "hinge.xml"
    for mass in ("2", "3"):
        path.write_text(mjcf(HINGE).replace('mass="2"', f'mass="{mass}"'))
        assert read_mechanism(path).bodies[0].mass == float(mass)


def test_nothing_is_printed_and_no_log_is_left(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    before = mujoco.get_mju_user_warning()
    read_mechanism_text(mjcf(TWO, more='<equality><joint joint1="j" joint2="k"/></equality>'))
    with pytest.raises(MechidError):
        read_mechanism_text(one('ref="nan"'))
    # about which MuJoCo's compiler warns: two joints do the same
    assert len(read_mechanism_text(mjcf(link("b", "<joint/><joint/>"))).coordinates) == 2
    assert mujoco.get_mju_user_warning() is before
    assert capfd.readouterr() == ("", "")
    assert not list(tmp_path.iterdir())


WORDS = [
    "nan",
    "inf",
    "-1",
    "0",
    "1e308",
    "1e-320",
    "",
    "x",
    "j",
    "b",
    "world",
    "0 0 0",
    "9" * 400,
    "é",
    "true",
    "free",
]


def outcome(text: str) -> str:
    """What is said against a text; nothing if it is read."""
    try:
        read_mechanism_text(text)
    except MechidError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("text", [ARM, mjcf(TWO, more='<equality><weld body1="b" body2="c"/></equality>')])
def test_broken_files_raise_nothing_but_sentences(text: str) -> None:
    """Values replaced, elements dropped or doubled: a mechanism or a sentence."""
    rng = random.Random(1)
    outcomes: list[str] = []
    for _ in range(150):
        broken = text
        for _ in range(rng.randint(1, 3)):
            kind = rng.choice(['"[^"]*"', "<[^/?!][^>]*/>", "[a-z]+="])
            spots = [m.span() for m in re.finditer(kind, broken)]
            if spots:
                a, b = rng.choice(spots)
                new = {"<": ["", broken[a:b] * 2], '"': [f'"{rng.choice(WORDS)}"']}.get(broken[a], ["odd="])
                broken = broken[:a] + rng.choice(new) + broken[b:]
        outcomes.append(outcome(broken))
    assert {"", "refused"} == {"refused" if sentence else "" for sentence in outcomes}
    odd = [s for s in outcomes if "\n" in s or "Error," in s]
    assert not odd


# Limits in the builder


def test_limits_are_kept_and_printed() -> None:
    m = (
        Mechanism("m")
        .body("a", mass=1.0)
        .revolute("hinge", "world", "a", limits=(-1, 2), max_rate=3, max_force=4)
        .body("b", mass=1.0)
        .prismatic("slide", "a", "b", limits=(0, INF))
    )
    hinge, slide = m.coordinates
    assert (hinge.lower, hinge.upper, hinge.max_rate, hinge.max_force) == (-1.0, 2.0, 3.0, 4.0)
    assert (slide.lower, slide.upper, slide.max_rate, slide.max_force) == (0.0, INF, INF, INF)
    text = repr(m)
    assert "by revolute hinge about z, limits -1 to 2 rad, 3 rad/s, 4 N·m\n" in text
    assert text.endswith("by prismatic slide along z, limits 0 to inf m")


@pytest.mark.parametrize(
    ("able", "words"),
    [
        ({"limits": (2, 1)}, ("limits", "'h'", "[2.0, 1.0]", "lower one first")),
        ({"limits": (np.nan, 1)}, ("limits", "'h'", "nan")),
        ({"limits": 3}, ("limits", "'h'", "two numbers")),
        ({"limits": ("low", "high")}, ("limits", "'h'", "low")),
        ({"max_rate": -1}, ("largest rate", "'h'", "-1", "≥ 0")),
        ({"max_force": np.nan}, ("largest force", "'h'", "nan")),
        ({"max_force": [1, 2]}, ("largest force", "'h'")),
    ],
)
def test_limits_that_make_no_sense(able: dict[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(MechidError) as caught:
        Mechanism().body("a").revolute("h", "world", "a", **able)
    assert all(w in str(caught.value) for w in words), caught.value
