"""Numbers written back into URDF and MJCF text: MuJoCo reads them there, and the rest of the text stays."""

from __future__ import annotations

import dataclasses
import os
import random
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
from test_xmltext import Scribe

from mechid import (
    Mechanism,
    MechidError,
    Parameters,
    read_mechanism,
    roll_pitch_yaw,
    rotation_about,
    write_mechanism,
)
from mechid.model.parts import Armature, Custom, Damper, Friction, Motor, Spring
from mechid.model.reading import read_mechanism_text
from mechid.model.writing import rewritten

ROBOTS = (
    "baxter.urdf",
    "franka_emika_panda/panda.xml",
    "kuka_iiwa_14/iiwa14.xml",
    "universal_robots_ur10e/ur10e.xml",
    "cassie/cassie.xml",
)


@pytest.fixture(params=ROBOTS)
def robot(request, reference) -> Path:
    path = reference / "data" / "models" / request.param
    if not path.exists():
        pytest.skip(f"reference data absent: {path}")
    return path


def replaced(m: Mechanism, kind: str, name: str, **values: Any) -> Mechanism:
    """A mechanism with other values in one of its parts."""
    parts = [dataclasses.replace(p, **values) if p.name == name else p for p in getattr(m, kind)]
    return dataclasses.replace(m, **{kind: tuple(parts)})


def on(m: Mechanism, kind: type, name: str, **values: Any) -> Mechanism:
    """A mechanism with other values in an element of some kind."""
    parts = [dataclasses.replace(e, **values) if (type(e), e.name) == (kind, name) else e for e in m.elements]
    return dataclasses.replace(m, elements=tuple(parts))


def part(m: Mechanism, kind: str, name: str) -> Any:
    return next(p for p in getattr(m, kind) if p.name == name)


def shaken(m: Mechanism, seed: int = 0) -> Mechanism:
    """A mechanism with other inertias, dampings, frictions, armatures and stiffnesses."""
    rng = np.random.default_rng(seed)

    def some(x: float) -> float:
        return x * rng.uniform(0.8, 1.25)

    bodies = []
    for b in m.bodies:
        if b.mass:
            a = rng.standard_normal((3, 3))
            mass = 1e-3 * np.trace(b.inertia) * a @ a.T
            com = b.com + 0.01 * rng.standard_normal(3)
            b = dataclasses.replace(
                b,
                mass=some(b.mass),
                com=com,
                inertia=some(1.0) * b.inertia + np.trace(mass) * np.eye(3) - mass,
            )
        bodies.append(b)
    elements = []
    for e in m.elements:
        if isinstance(e, Custom):
            e = dataclasses.replace(e, parameters=tuple((k, some(v)) for k, v in e.parameters))
        for quantity in {Damper: ["damping"], Armature: ["armature"], Spring: ["stiffness"]}.get(type(e), ()):
            e = dataclasses.replace(e, **{quantity: some(getattr(e, quantity))})
        elements.append(e)
    m = dataclasses.replace(m, bodies=tuple(bodies), elements=tuple(elements))
    for c in m.coordinates:
        if "." not in c.name:
            m = m.friction(c.name, coulomb=some(0.1))
    return m


# What MuJoCo makes of a text, without the reader of this package


def compiled(text: str) -> Any:
    """MuJoCo's model of an MJCF text whose inertias are all written, without its shapes."""
    spec = mujoco.MjSpec.from_string(text)
    for kind in (
        "actuators",
        "keys",
        "sensors",
        "tendons",
        "excludes",
        "geoms",
        "meshes",
        "materials",
        "textures",
    ):
        for element in list(getattr(spec, kind)):
            spec.delete(element)
    return spec.compile()


def matrix(q: Any) -> np.ndarray:
    flat = np.zeros(9)
    mujoco.mju_quat2Mat(flat, np.asarray(q, float))
    return flat.reshape(3, 3)


def assert_mujoco_reads(text: str, m: Mechanism) -> None:
    if "<robot" in text:
        spec = mujoco.MjSpec.from_string(text)
        inertial = {}
        for b in spec.bodies:
            if b.explicitinertial:
                xx, yy, zz, xy, xz, yz = b.fullinertia
                own = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
                inertial[b.name] = (b.mass, b.ipos, matrix(b.iquat) @ own @ matrix(b.iquat).T)
        joints = {j.name: (j.damping[0], j.frictionloss, 0.0, 0.0) for j in spec.joints}
    else:
        model = compiled(text)
        inertial, joints = {}, {}
        for i in range(1, model.nbody):
            turn = matrix(model.body_iquat[i])
            tensor = turn @ np.diag(model.body_inertia[i]) @ turn.T
            inertial[model.body(i).name] = (model.body_mass[i], model.body_ipos[i], tensor)
        for j in range(model.njnt):
            d = model.jnt_dofadr[j]
            four = (model.dof_damping[d], model.dof_frictionloss[d], model.dof_armature[d])
            joints[model.joint(j).name] = (*four, model.jnt_stiffness[j])
    massive = [b for b in m.bodies if b.mass]
    assert massive
    for b in massive:
        mass, com, inertia = inertial[b.name]
        np.testing.assert_allclose(mass, b.mass, rtol=1e-14)
        np.testing.assert_allclose(com, b.com, rtol=1e-14, atol=1e-16)
        np.testing.assert_allclose(inertia, b.inertia, rtol=0, atol=1e-8 * np.abs(b.inertia).max())
    for c in m.coordinates:
        if "." not in c.name:
            four = [0.0] * 4
            quantities = (
                (Damper, "damping"),
                (Friction, "coulomb"),
                (Armature, "armature"),
                (Spring, "stiffness"),
            )
            for k, (kind, quantity) in enumerate(quantities):
                four[k] = sum(
                    getattr(e, quantity) for e in m.elements if type(e) is kind and e.coordinate == c.name
                )
            np.testing.assert_allclose(joints[c.name], four, rtol=1e-14)


VALUES = re.compile(
    r'\b(mass|pos|fullinertia|diaginertia|value|xyz|i[xyz][xyz]|damping|friction|stiffness|armature)="[^"]*"'
)
ADDED = re.compile(
    r' (frictionloss|damping|armature|fullinertia|diaginertia|quat)="[^"]*"|\n *<dynamics [^>]*/>'
)


def masked(text: str) -> str:
    """A text without the values of what is identified, and without the attributes that may be added for them."""
    return VALUES.sub(r"\1", ADDED.sub("", text))


# Robots


def test_nothing_changed_is_the_same_file(robot, tmp_path):
    target = tmp_path / robot.name
    assert write_mechanism(read_mechanism(robot), robot, target) == []
    assert target.read_bytes() == robot.read_bytes()


def test_mujoco_reads_the_numbers_and_the_rest_stays(robot, tmp_path):
    target = tmp_path / robot.name
    m = shaken(read_mechanism(robot))
    changes = write_mechanism(m, robot, target)
    before, after = robot.read_text(), target.read_text()
    assert_mujoco_reads(after, m)
    assert masked(after) == masked(before)
    assert re.findall(r"<!--.*?-->", after, re.DOTALL) == re.findall(r"<!--.*?-->", before, re.DOTALL)
    assert len(after.splitlines()) - len(before.splitlines()) == after.count("<dynamics") - before.count(
        "<dynamics"
    )
    assert len(changes) >= 10 * sum(b.mass > 0.0 for b in m.bodies)


def test_one_number_is_one_edit(robot, tmp_path):
    m = read_mechanism(robot)
    name = next(b.name for b in m.bodies if b.mass > 0.1)
    old = part(m, "bodies", name).mass
    (change,) = write_mechanism(replaced(m, "bodies", name, mass=0.123), robot, tmp_path / "a.xml")
    assert str(change) == f"body '{name}': mass {old:.6g} → 0.123 kg"
    before, after = robot.read_text().splitlines(), (tmp_path / "a.xml").read_text().splitlines()
    ((x, y),) = [(x, y) for x, y in zip(before, after, strict=True) if x != y]
    assert float(re.sub(r'.*(mass|value)="([^"]*)".*', r"\2", x)) == old
    assert y == re.sub(r'((mass|value)=")[^"]*"', r'\g<1>0.123"', x)


def test_a_written_robot_is_written_again_from_itself(robot, tmp_path):
    first, second = tmp_path / "1.xml", tmp_path / "2.xml"
    m = shaken(read_mechanism(robot))
    write_mechanism(m, robot, first)
    assert write_mechanism(m, first, second) == []
    write_mechanism(read_mechanism(robot), first, second)
    assert masked(second.read_text()) == masked(robot.read_text())


# URDF, sentence by sentence

URDF = """<?xml version='1.0'?>
<robot name="arm">
  <!-- <link name="upper"><inertial><mass value="7"/></inertial></link> -->
  <link name='base'/>
  <link name="upper" >
    <inertial>
      <origin rpy="0.3 -0.4 0.5"
              xyz="0.10  0 -.3"/>   <!-- from CAD -->
      <mass value = '1.50'/>
      <inertia ixx="0.1" ixy="0" ixz="0" iyy="0.2" iyz="0.01" izz="0.25"/>
    </inertial>
  </link>
  <link name="lower"><inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/>
  </inertial></link>
  <link name="claw">
    <visual><geometry><sphere radius="1"/></geometry></visual>
  </link>
  <joint name="shoulder" type="revolute">
    <parent link="base"/> <child link="upper"/>
    <origin xyz="0 0 1.0" rpy="-1.57079632679 3.1415 0"/>
    <axis xyz="0 0 1"/>
    <limit lower="-1" upper="2" velocity="3" effort="40"/>
    <dynamics damping="0.70" friction="0.0"/>
  </joint>
  <joint name="elbow" type="continuous">
    <parent link="upper"/>
    <child link="lower"/> <!-- the last one -->
  </joint>
  <joint name="finger" type="prismatic"><parent link="lower"/><child link="claw"/>
    <mimic joint="elbow" multiplier="2"/></joint>
</robot>
"""
ARM = read_mechanism_text(URDF)
TURN = roll_pitch_yaw(0.3, -0.4, 0.5)


@pytest.mark.parametrize(
    ("changed", "edits"),
    [
        pytest.param(replaced(ARM, "bodies", "upper", mass=1.25), {"'1.50'": "'1.25'"}, id="mass"),
        pytest.param(
            replaced(ARM, "bodies", "upper", com=np.array([0.1, 0.02, -0.3])),
            {"0.10  0 -.3": "0.10  0.02 -.3"},
            id="centre of mass",
        ),
        pytest.param(
            replaced(ARM, "bodies", "upper", inertia=TURN @ np.diag([0.1, 0.25, 0.25]) @ TURN.T),
            {'iyy="0.2" iyz="0.01"': 'iyy="0.25" iyz="0.0"'},
            id="inertia in its own axes",
        ),
        pytest.param(
            replaced(ARM, "bodies", "lower", com=np.array([0.0, 0.0, 0.5])),
            {'<inertial><mass value="1"': '<inertial><origin xyz="0.0 0.0 0.5"/><mass value="1"'},
            id="an origin that was not there",
        ),
        pytest.param(
            replaced(ARM, "bodies", "claw", mass=0.5, inertia=np.diag([0.1, 0.1, 0.125])),
            {
                '<link name="claw">': '<link name="claw">\n    <inertial>\n      <origin xyz="0.0 0.0 0.0"/>\n'
                '      <mass value="0.5"/>\n      <inertia ixx="0.1" iyy="0.1" izz="0.125" ixy="0.0" ixz="0.0" '
                'iyz="0.0"/>\n    </inertial>'
            },
            id="an inertia that was not there",
        ),
        pytest.param(
            on(ARM, Damper, "shoulder", damping=0.25).friction("shoulder", coulomb=0.125),
            {'"0.70" friction="0.0"': '"0.25" friction="0.125"'},
            id="damping and friction",
        ),
        pytest.param(
            ARM.damper("elbow", damping=0.5, name="oil").friction("elbow", coulomb=0.25),
            {"<!-- the last one -->": '<!-- the last one -->\n    <dynamics damping="0.5" friction="0.25"/>'},
            id="dynamics that was not there",
        ),
        pytest.param(
            dataclasses.replace(ARM, elements=tuple(e for e in ARM.elements if not isinstance(e, Damper))),
            {'damping="0.70"': 'damping="0.0"'},
            id="a damper taken out",
        ),
        pytest.param(
            replaced(ARM, "joints", "shoulder", origin=np.array([0.0, 0.25, 1.0])),
            {'"0 0 1.0"': '"0 0.25 1.0"'},
            id="a joint's place",
        ),
        pytest.param(
            replaced(ARM, "joints", "elbow", rotation=rotation_about("z", 0.25)),
            {'<parent link="upper"/>': '<origin rpy="0.0 0.0 0.25"/>\n    <parent link="upper"/>'},
            id="a joint's rotation",
        ),
        pytest.param(
            replaced(ARM, "couplings", "finger", ratio=1.5, offset=0.25),
            {'multiplier="2"': 'multiplier="1.5" offset="0.25"'},
            id="mimic",
        ),
        pytest.param(
            replaced(
                ARM,
                "joints",
                "shoulder",
                coordinates=(dataclasses.replace(ARM.coordinate("shoulder"), upper=2.5, max_force=30.0),),
            ),
            {'upper="2"': 'upper="2.5"', 'effort="40"': 'effort="30.0"'},
            id="limits",
        ),
    ],
)
def test_a_change_in_a_urdf_is_this_edit(changed, edits):
    expected = URDF
    for old, new in edits.items():
        assert expected.count(old) == 1
        expected = expected.replace(old, new)
    text, changes = rewritten(URDF, changed)
    assert text == expected
    assert changes


def test_angles_of_a_joint_stay_near_those_in_the_file():
    """Roll, pitch and yaw are not unique: a small turn gives the nearest ones."""
    turned = part(ARM, "joints", "shoulder").rotation @ rotation_about((1, 2, 3), 1e-3)
    text, (change,) = rewritten(URDF, replaced(ARM, "joints", "shoulder", rotation=turned))
    angles = [float(x) for x in re.findall(r'rpy="(-1\.5[^"]*)"', text)[0].split()]
    np.testing.assert_allclose(angles, [-1.57079632679, 3.1415, 0.0], atol=2e-3)
    np.testing.assert_allclose(roll_pitch_yaw(*angles), turned, atol=1e-15)
    assert str(change) == "joint 'shoulder': turned by 0.001 rad"


def test_rounding_in_an_inertia_moved_far_keeps_its_figures():
    source = URDF.replace('<inertial><mass value="1"/>', '<inertial><origin xyz="0 0 9"/><mass value="1"/>')
    inertia = np.diag([1.0 + 2e-14, 1.5, 1.0])
    text, changes = rewritten(
        source, replaced(read_mechanism_text(source), "bodies", "lower", inertia=inertia)
    )
    assert text == source.replace('ixx="1" iyy="1"', 'ixx="1" iyy="1.5"')
    assert [c.quantity for c in changes] == ["inertia.yy"]


def test_parameters_applied_are_written(tmp_path):
    """A body moved by its first moment: what only rounding has touched keeps its figures."""
    free = Parameters(ARM).free("upper.first_moment.x", name="moment").free("shoulder.damping")
    text, changes = rewritten(URDF, free.apply([0.18, 0.5]))
    assert 'xyz="0.12  0 -.3"' in text
    assert "'1.50'" in text
    assert 'damping="0.5"' in text
    assert {c.quantity for c in changes} == {"com.x", "damping", "inertia.yy", "inertia.zz", "inertia.xz"}


# MJCF, sentence by sentence

DIAGONAL = '<inertial pos="0 0 0.1" mass="2.0" diaginertia="1 2 2.5"/>'
MJCF = """<mujoco model="m">
  <compiler {compiler}/>
  <default><default class="d"><joint damping="3" armature="0.50"/></default></default>
  <worldbody>
    <!-- <body name="arm"><inertial mass="9"/></body> -->
    <body name="arm" pos="1 0 0">
      {inertial}
      <joint name="j" {joint}/>
      <body name="tip" pos="0 0 1"><inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/>
        <joint name="k" axis="1 0 0" class="d" ref="{ref}"/>{inside}</body>
    </body>
  </worldbody>
  {more}
</mujoco>
"""


def mjcf(**parts: str) -> str:
    given = {
        "compiler": "",
        "inertial": DIAGONAL,
        "joint": 'axis="0 1 0"',
        "inside": "",
        "more": "",
        "ref": "0",
    }
    return MJCF.format(**{**given, **parts})


def arm_inertia(m: Mechanism, inertia: Any) -> Mechanism:
    return replaced(m, "bodies", "arm", inertia=np.asarray(inertia, float))


EQUAL = '<equality><joint joint1="j" joint2="k" polycoef="0 1.0"/></equality>'
GENERAL = '<actuator><general joint="k"/><motor name="a" joint="j" gear="3 0"/></actuator>'
QUAT = '<inertial pos="0 0 0" quat="1 1 0 0" mass="1" diaginertia="1 2 2.5"/>'
UNIT = '<inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/>'
FRAMED = f'<frame pos="0 0 1" euler="0 0 90"><body name="toe" pos="2.0 0 0">{UNIT}</body></frame>'
BALL = f'<body name="toe">{UNIT}<joint name="b" type="ball" damping="1"/></body>'
GEOM = '<geom size="0.1"/>'
CONNECT = '<equality><connect body1="arm" body2="tip" anchor="0 0 1"/></equality>'


@pytest.mark.parametrize(
    ("parts", "change", "edits"),
    [
        pytest.param(
            {},
            lambda m: arm_inertia(m, np.diag([1, 2, 2.75])),
            {"1 2 2.5": "1 2 2.75"},
            id="a diagonal one stays so",
        ),
        pytest.param(
            {"inertial": QUAT},
            lambda m: arm_inertia(m, np.diag([1, 2.5, 2.25])),
            {"1 2 2.5": "1 2.25 2.5"},
            id="a diagonal one in its own axes",
        ),
        pytest.param(
            {"inertial": QUAT},
            lambda m: arm_inertia(m, [[1, 0.1, 0], [0.1, 2.5, 0], [0, 0, 2]]),
            {' quat="1 1 0 0"': "", 'diaginertia="1 2 2.5"': 'fullinertia="1.0 2.5 2.0 0.1 0.0 0.0"'},
            id="a diagonal one becomes full",
        ),
        pytest.param(
            {"inertial": GEOM},
            lambda m: arm_inertia(replaced(m, "bodies", "arm", mass=2.0), np.diag([1, 1, 1.5])),
            {
                GEOM: '<inertial pos="0.0 0.0 0.0" mass="2.0" fullinertia="1.0 1.0 1.5 0.0 0.0 0.0"/>'
                f"\n      {GEOM}"
            },
            id="an inertia from a geom becomes its own",
        ),
        pytest.param(
            {},
            lambda m: on(on(m, Damper, "k", damping=2.5), Armature, "k", armature=0.25),
            {'class="d" ref="0"': 'class="d" ref="0" damping="2.5" armature="0.25"'},
            id="inherited values become attributes",
        ),
        pytest.param(
            {"joint": 'stiffness="5" springref="30.0" damping="0"'},
            lambda m: on(m, Spring, "j", stiffness=6.0, rest=np.pi / 4),
            {'"5" springref="30.0"': '"6.0" springref="45.0"'},
            id="a spring in degrees",
        ),
        pytest.param(
            {"compiler": 'angle="radian"', "joint": 'stiffness="5"'},
            lambda m: on(m, Spring, "j", cubic_stiffness=2.0, rest=0.5),
            {'stiffness="5"': 'stiffness="5 0.0 2.0" springref="0.5"'},
            id="a cubic spring in radians",
        ),
        pytest.param(
            {"joint": 'springref="30"'},
            lambda m: m.spring("j", stiffness=2.0),
            {'springref="30"': 'springref="0.0" stiffness="2.0"'},
            id="a new spring where a rest was left",
        ),
        pytest.param(
            {"joint": 'type="slide" range="-1 1.0"'},
            lambda m: replaced(
                m, "joints", "j", coordinates=(dataclasses.replace(m.coordinate("j"), lower=-0.5),)
            ).friction("j", coulomb=0.1),
            {'"-1 1.0"': '"-0.5 1.0" frictionloss="0.1"'},
            id="the range of a slide",
        ),
        pytest.param(
            {"more": EQUAL},
            lambda m: replaced(m, "couplings", "j", ratio=2.0, c3=0.5),
            {'"0 1.0"': '"0 2.0 0.0 0.5"'},
            id="a coupling",
        ),
        pytest.param(
            {"more": EQUAL, "ref": "90"},
            lambda m: replaced(m, "couplings", "j", ratio=2.0, offset=1.0 - np.pi),
            {'"0 1.0"': '"1.0 2.0"'},
            id="a coupling about a reference",
        ),
        pytest.param(
            {"more": EQUAL.replace("<joint", '<joint joint1="k" active="false"/><joint')},
            lambda m: replaced(m, "couplings", "j", ratio=2.0),
            {'"0 1.0"': '"0 2.0"'},
            id="a coupling behind one that is switched off",
        ),
        pytest.param(
            {"more": GENERAL},
            lambda m: on(on(m, Motor, "a", gear_ratio=4.0), Motor, "actuator1", gain=2.0, rotor_inertia=0.1),
            {'<general joint="k"': '<general joint="k" gainprm="2.0" armature="0.1"', '"3 0"': '"4.0 0"'},
            id="actuators",
        ),
        pytest.param(
            {"more": '<actuator><motor name="a" joint="j" gear="2" damping="1"/></actuator>'},
            lambda m: on(m, Motor, "a", gear_ratio=4.0),
            {'gear="2" damping="1"': 'gear="4.0" damping="0.25"'},
            id="damping behind a gear that changes",
        ),
        pytest.param(
            {"inside": BALL},
            lambda m: replaced(m, "elements", "b", parameters=(("damping", 0.5),)),
            {'type="ball" damping="1"': 'type="ball" damping="0.5"'},
            id="a damped ball joint",
        ),
        pytest.param(
            {"inside": '<site name="s" pos="0 .50 0" euler="0 0 90"/>'},
            lambda m: replaced(m, "frames", "s", origin=np.array([0.25, 0.5, 0]), rotation=np.eye(3)),
            {'"0 .50 0" euler="0 0 90"': '"0.25 .50 0" quat="1.0 0.0 0.0 0.0"'},
            id="a site",
        ),
        pytest.param(
            {"more": '<option timestep="0.1"/>'},
            lambda m: dataclasses.replace(m, gravity=np.array([0, 0, -9.5])),
            {'timestep="0.1"': 'timestep="0.1" gravity="0.0 0.0 -9.5"'},
            id="gravity",
        ),
        pytest.param(
            {},
            lambda m: dataclasses.replace(m, gravity=np.array([0, 0, -9.5])),
            {"  <compiler": '  <option gravity="0.0 0.0 -9.5"/>\n  <compiler'},
            id="gravity without an option",
        ),
        pytest.param(
            {},
            lambda m: replaced(m, "joints", "k", origin=np.array([0, 0, 0.75])),
            {'pos="0 0 1"': 'pos="0 0 0.75"'},
            id="a length",
        ),
        pytest.param(
            {"joint": 'pos="0 0 .5" axis="0 1 0"'},
            lambda m: replaced(m, "joints", "j", origin=np.array([1.25, 0, 0.5])),
            {'pos="1 0 0"': 'pos="1.25 0 0"'},
            id="the place of a joint beside its body's origin",
        ),
        pytest.param(
            {"joint": 'pos="0 0 .5" axis="0 1 0"'},
            lambda m: replaced(
                replaced(m, "joints", "arm", origin=np.array([0, 0, -0.25])),
                "joints",
                "j",
                origin=np.array([1, 0, 0.25]),
            ),
            {'"0 0 .5"': '"0 0 0.25"'},
            id="the point that a joint turns about",
        ),
        pytest.param(
            {"inside": FRAMED},
            lambda m: replaced(m, "joints", "toe", origin=np.array([0.0, 3.0, 1.0])),
            {'"2.0 0 0"': '"3.0 0 0"'},
            id="a body in a frame",
        ),
        pytest.param(
            {"more": CONNECT},
            lambda m: replaced(
                replaced(m, "frames", "arm/anchor", origin=np.array([0, 0, 1.5])),
                "frames",
                "tip/anchor",
                origin=np.array([0, 0, 0.5]),
            ),
            {'anchor="0 0 1"': 'anchor="0 0 1.5"'},
            id="both ends of a loop",
        ),
    ],
)
def test_a_change_in_an_mjcf_is_this_edit(parts, change, edits):
    source = expected = mjcf(**parts)
    for old, new in edits.items():
        assert expected.count(old) == 1
        expected = expected.replace(old, new)
    ignore = ("anchor", "origin") if "connect" in source else ()
    text, changes = rewritten(source, change(read_mechanism_text(source)), ignore=ignore)
    assert text == expected
    assert changes


@pytest.mark.parametrize(
    "how",
    ["quat='1 2 3 4'", "axisangle='1 2 3 40'", "xyaxes='1 2 0 0 1 3'", "zaxis='1 2 -3'", "zaxis='0 0 -1'"]
    + [f"euler='10 20 30'{seq}" for seq in ("", "zyx", "XYZ", "xZy")],
)
@pytest.mark.parametrize("angle", ["radian", "degree"])
def test_every_way_to_write_an_orientation(how, angle):
    """A body turned by a little: MuJoCo's own rotation before and after."""
    how, _, seq = how.rpartition("'")
    compiler = f'angle="{angle}"' + (f' eulerseq="{seq}"' if seq else "")
    source = mjcf(compiler=compiler).replace('pos="0 0 1"', f"""pos="0 0 1" {how}'""")
    turn = rotation_about((3, -1, 2), 0.1)
    m = read_mechanism_text(source)
    text, _ = rewritten(source, replaced(m, "joints", "k", rotation=part(m, "joints", "k").rotation @ turn))
    before, after = (matrix(compiled(t).body("tip").quat) for t in (source, text))
    np.testing.assert_allclose(after, before @ turn, atol=1e-15)


def test_a_body_turned_where_its_joint_has_a_reference():
    """At the reference angle the body stands as the file says: turned with its joint."""
    source = mjcf(joint='axis="1 0 0" ref="40" pos="0 .1 0"')
    m = read_mechanism_text(source)
    turn = rotation_about((1, 2, 3), 0.2)
    text, _ = rewritten(source, replaced(m, "joints", "j", rotation=turn @ part(m, "joints", "j").rotation))
    body = compiled(text).body("arm")
    np.testing.assert_allclose(matrix(body.quat), turn, atol=1e-15)
    np.testing.assert_allclose(body.pos + turn @ [0, 0.1, 0], [1, 0.1, 0], atol=1e-15)


# Odd formatting


class PlainScribe(Scribe):
    """MuJoCo's own reader takes comments and blanks between elements, nothing else."""

    def junk(self) -> str:
        text = super().junk()
        return text if not text.strip() or text.startswith("<!--") else ""


@pytest.mark.parametrize("seed", range(15))
@pytest.mark.parametrize("kind", ["urdf", "mjcf"])
def test_odd_formatting_stays(kind, seed, tmp_path):
    plain = URDF if kind == "urdf" else mjcf(more=GENERAL, joint='damping="0.1" frictionloss=".2"')
    scribe = Scribe(seed) if kind == "urdf" else PlainScribe(seed)
    data = scribe.file(ET.fromstring(plain))
    source, target = tmp_path / f"odd.{'urdf' if kind == 'urdf' else 'xml'}", tmp_path / "out.xml"
    source.write_bytes(data)
    m = read_mechanism(source)
    assert write_mechanism(m, source, target) == []
    assert target.read_bytes() == data
    changed = (
        shaken(m, seed)
        if kind == "urdf"
        else replaced(m, "bodies", "arm", mass=3.25, com=np.array([0, 1, 0.1]))
    )
    write_mechanism(changed, source, target)
    assert target.read_bytes().count(b"\r") == data.count(b"\r") or b"\r\n" in data
    junk = re.compile(rb"<!--.*?-->|<\?.*?\?>|<!\[CDATA\[.*?\]\]>", re.DOTALL)
    assert junk.findall(target.read_bytes()) == junk.findall(data)
    write_mechanism(m, target, target)
    restored = junk.sub(b"", target.read_bytes())
    assert names_only(restored) == names_only(junk.sub(b"", data))


def names_only(data: bytes) -> list[Any]:
    """Elements and attributes in their order, numbers as numbers, without those that were added as zeros."""

    def value(text: str) -> Any:
        try:
            return [round(float(x), 12) for x in text.split()]
        except ValueError:
            return text

    elements = ET.fromstring(data.removeprefix(b"\xef\xbb\xbf").lstrip()).iter()
    kept = [(e.tag, [(k, value(v)) for k, v in e.attrib.items() if value(v) != [0.0]]) for e in elements]
    return [(tag, attributes) for tag, attributes in kept if attributes and tag != "origin"]


# Refusals


def refusal(*args: Any, **more: Any) -> str:
    with pytest.raises(MechidError) as told:
        (rewritten if isinstance(args[0], str) else write_mechanism)(*args, **more)
    assert "\n" not in str(told.value)
    return str(told.value)


def everything() -> Mechanism:
    """The arm with numbers that no URDF can hold."""
    return (
        dataclasses.replace(ARM, gravity=np.array([0.0, 0.0, -9.5]))
        .armature("shoulder", inertia=0.1)
        .armature("elbow", inertia=0.1)
        .spring("elbow", stiffness=2.0)
        .damper("elbow", damping=1.0, cubic=0.5)
        .friction("elbow", coulomb=0.1, stribeck=0.1)
        .motor("elbow", gain=2.0)
        .frame("mark", "lower", origin=(0, 0, 1))
        .line_spring("cable", "mark", "base", stiffness=3.0)
        .torque("shoulder", name="push")
    )


def test_all_that_has_no_place_is_named_in_one_sentence():
    told = refusal(URDF, everything())
    assert told == (
        "A URDF has no place for gravity; frame mark; armature of shoulder, elbow; stiffness of elbow; "
        "cubic_damping of elbow; stribeck of elbow; gain of elbow.motor; line_spring cable: "
        'ignore=("gravity", "frame", "armature", "stiffness", "cubic_damping", "stribeck", "gain", "line_spring") '
        "leaves such numbers out."
    )


def test_what_has_no_place_may_be_left_out():
    words = ("gravity", "frame", "armature", "stiffness", "cubic_damping", "stribeck", "gain", "line_spring")
    text, changes = rewritten(URDF, everything(), ignore=words)
    assert text == URDF.replace(
        "<!-- the last one -->", '<!-- the last one -->\n    <dynamics damping="1.0" friction="0.1"/>'
    )
    assert [c.quantity for c in changes] == ["damping", "coulomb"]


def test_dry_friction_is_written_as_its_level():
    held = ARM.dry_friction("elbow", coulomb=0.25)
    text, changes = rewritten(URDF, held)
    assert text == URDF.replace(
        "<!-- the last one -->", '<!-- the last one -->\n    <dynamics friction="0.25"/>'
    )
    assert [str(c) for c in changes] == ["friction 'elbow': coulomb 0 → 0.25 N·m"]
    told = refusal(URDF, ARM.dry_friction("elbow", coulomb=0.25, stribeck=0.1, load_coefficient=0.1))
    assert "no place for load_coefficient of elbow; stribeck of elbow" in told
    assert "two frictions" in refusal(URDF, held.friction("elbow", coulomb=0.1))
    plain = mjcf()
    m = read_mechanism_text(plain).dry_friction("j", coulomb=0.1)
    assert rewritten(plain, m)[0].count('frictionloss="0.1"') == 1


def test_words_to_ignore_must_be_known():
    assert "Did you mean armature" in refusal(URDF, ARM, ignore=("armatur",))
    assert "tuple" in refusal(URDF, ARM, ignore="armature")


def test_a_mechanism_of_another_file_is_refused():
    other = Mechanism("other").body("rod", mass=1.0).revolute("hinge", "world", "rod")
    told = refusal(URDF, other, where="arm.urdf")
    assert told == (
        "The mechanism is not the one of 'arm.urdf': it has the bodies rod, which the file has not and it lacks "
        "the file's bodies base, upper, lower, claw."
    )
    coordinate = dataclasses.replace(ARM.coordinate("elbow"), axis=(0.0, 1.0, 0.0))
    assert "elbow" in refusal(URDF, replaced(ARM, "joints", "elbow", coordinates=(coordinate,)))


def test_numbers_that_cannot_be_read_back_are_refused(tmp_path):
    source = tmp_path / "arm.urdf"
    source.write_text(URDF)
    told = refusal(on(ARM, Damper, "shoulder", damping=-1.0), source, source)
    assert "Nothing was written" in told
    assert "shoulder" in told
    assert source.read_text() == URDF
    assert os.listdir(tmp_path) == ["arm.urdf"]
    assert "finite" in refusal(URDF, on(ARM, Damper, "shoulder", damping=np.nan))
    assert "two dampers" in refusal(URDF, ARM.damper("shoulder", damping=1.0, name="second"))


@pytest.mark.parametrize(
    ("parts", "change", "words"),
    [
        (
            {"compiler": 'inertiafromgeom="true"', "inside": GEOM, "inertial": GEOM},
            {"mass": 2.0},
            'set it to "auto"',
        ),
        ({"compiler": 'settotalmass="5"'}, {"mass": 2.0}, 'settotalmass="5"'),
        ({"compiler": 'boundmass="1"'}, {"mass": 0.5}, 'boundmass="1"'),
        (
            {"compiler": 'balanceinertia="true"'},
            {"inertia": np.diag([1.0, 1.0, 3.0])},
            'balanceinertia="true"',
        ),
    ],
)
def test_a_compiler_that_changes_inertias_is_named(parts, change, words):
    source = mjcf(**parts)
    assert words in refusal(source, replaced(read_mechanism_text(source), "bodies", "arm", **change))


def test_the_second_end_of_a_connect_follows_the_first():
    source = mjcf(more=CONNECT)
    m = replaced(read_mechanism_text(source), "joints", "k", origin=np.array([0.0, 0.0, 0.75]))
    assert "site1, site2" in refusal(source, m)
    text, _ = rewritten(source, m, ignore=("anchor",))
    assert text == source.replace('pos="0 0 1"', 'pos="0 0 0.75"')


INCLUDED = f'<mujocoinclude><body name="toe">{UNIT}</body></mujocoinclude>'


def test_what_stands_in_an_included_file_is_refused_by_name(tmp_path):
    source = tmp_path / "robot.xml"
    (tmp_path / "toe.xml").write_text(INCLUDED)
    source.write_text(mjcf(inside='<include file="toe.xml"/>'))
    m = read_mechanism(source)
    told = refusal(replaced(m, "bodies", "toe", mass=2.0), source, source)
    assert "'toe.xml'" in told
    assert "robot.xml'" in told
    write_mechanism(replaced(m, "bodies", "tip", mass=2.5), source, source)
    assert 'mass="2.5"' in source.read_text()


def test_what_the_text_only_makes_is_refused():
    copies = f'<replicate count="2" offset="1 0 0"><body name="toe">{UNIT}</body></replicate>'
    source = mjcf(inside=copies)
    m = read_mechanism_text(source)
    name = next(b.name for b in m.bodies if b.name.startswith("toe"))
    assert "<replicate>" in refusal(source, replaced(m, "bodies", name, mass=2.0))
    assert 'mass="2.5"' in rewritten(source, replaced(m, "bodies", "arm", mass=2.5))[0]


def test_parts_without_a_name_are_found():
    bare = re.sub(r' name="(arm|tip|j|k)"', "", mjcf(inside=BALL))
    m = read_mechanism_text(bare)
    text, _ = rewritten(bare, replaced(m, "bodies", "body2", mass=0.25).friction("body1", coulomb=0.5))
    assert text == bare.replace('mass="1"', 'mass="0.25"', 1).replace(
        '0 1 0"/>', '0 1 0" frictionloss="0.5"/>'
    )


# Files


@pytest.fixture
def arm(tmp_path) -> Path:
    path = tmp_path / "arm.urdf"
    path.write_bytes(URDF.encode())
    return path


HEAVY = replaced(ARM, "bodies", "upper", mass=1.25)


def test_the_target_may_be_the_source(arm):
    arm.chmod(0o640)
    write_mechanism(HEAVY, arm, arm)
    assert arm.read_text() == URDF.replace("'1.50'", "'1.25'")
    assert arm.stat().st_mode & 0o777 == 0o640
    assert os.listdir(arm.parent) == ["arm.urdf"]


def test_a_link_stays_a_link(arm):
    link = arm.with_name("link.urdf")
    link.symlink_to(arm)
    write_mechanism(HEAVY, arm, link)
    assert link.is_symlink()
    assert "'1.25'" in arm.read_text()


def test_a_stop_on_the_way_leaves_the_old_file(arm, monkeypatch):
    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    for name in ("replace", "fsync"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, fail)
            assert "No space left on device" in refusal(HEAVY, arm, arm)
        assert arm.read_text() == URDF
        assert os.listdir(arm.parent) == ["arm.urdf"]


def test_places_that_cannot_be_written_are_refused(arm, tmp_path):
    assert "no folder" in refusal(HEAVY, arm, tmp_path / "none" / "a.urdf")
    assert "is a folder" in refusal(HEAVY, arm, tmp_path)
    assert "There is no file" in refusal(HEAVY, tmp_path / "none.urdf", arm)
    assert "file's name" in refusal(HEAVY, arm, None)
    assert "parameters.apply" in refusal(Parameters(ARM), arm, arm)
    arm.chmod(0o444)
    assert "read-only" in refusal(HEAVY, arm, arm)
    assert arm.read_text() == URDF


def test_figures_are_the_shortest_that_read_the_same():
    pick = random.Random(1)
    for _ in range(8):
        mass = pick.random() * 10 ** pick.randint(-9, 9)
        text, _ = rewritten(URDF, replaced(ARM, "bodies", "upper", mass=mass))
        figures = re.findall(r"mass value = '([^']*)'", text)[0]
        assert float(figures) == mass
        assert figures == repr(mass)
