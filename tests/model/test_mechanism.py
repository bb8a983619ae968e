"""What the builder refuses, in which words, and what it promises about order and immutability."""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mechid import Mechanism, MechidError
from mechid.studies import mechanisms


def pendulum() -> Mechanism:
    return (
        Mechanism("pendulum")
        .body("rod", mass=1.0, com=(0, 0, -0.5), inertia=(0.1, 0.1, 0.01))
        .revolute("hinge", "world", "rod", axis="y")
        .frame("tip", "rod", origin=(0, 0, -1))
    )


def loose_arm() -> Mechanism:
    return pendulum().body("arm", mass=1.0)


def two_links() -> Mechanism:
    return loose_arm().revolute("elbow", "rod", "arm")


def energy(q, p):
    return 0.5 * p[0] * q[0] ** 2


Case = tuple[Callable[[], Any], tuple[str, ...]]

BAD_BODIES: dict[str, Case] = {
    "negative mass": (lambda: pendulum().body("box", mass=-1), ("body 'box'", "-1 kg", "≥ 0")),
    "NaN mass": (lambda: pendulum().body("box", mass=np.nan), ("mass", "'box'", "finite", "nan")),
    "infinite mass": (lambda: pendulum().body("box", mass=np.inf), ("mass", "'box'", "finite")),
    "mass in words": (lambda: pendulum().body("box", mass="heavy"), ("mass", "'box'", "'heavy'")),
    "two masses": (
        lambda: pendulum().body("box", mass=[1, 2]),
        ("mass", "'box'", "one number", "(2,)"),
    ),
    "flat com": (
        lambda: pendulum().body("box", com=(1, 2)),
        ("centre of mass", "'box'", "(3,)", "(2,)"),
    ),
    "ragged com": (lambda: pendulum().body("box", com=[[1], 2, 3]), ("'box'", "numbers")),
    "infinite com": (
        lambda: pendulum().body("box", com=(0, 0, np.inf)),
        ("'box'", "finite", "inf"),
    ),
    "triangle inequality": (
        lambda: pendulum().body("box", inertia=(1, 1, 3)),
        ("inertia of body 'box'", "triangle inequality", "1 + 1 < 3 kg·m²"),
    ),
    "triangle inequality in turned axes": (
        lambda: pendulum().body("box", inertia=(2, 2, 1, 1.5, 0, 0)),
        ("inertia of body 'box'", "triangle inequality", "0.5 + 1 < 3.5 kg·m²"),
    ),
    "negative moment": (
        lambda: pendulum().body("box", inertia=(1, -1, 1)),
        ("inertia of body 'box'", "negative principal moment", "-1 kg·m²"),
    ),
    "not symmetric": (
        lambda: pendulum().body("box", inertia=[[1, 0.1, 0], [0, 1, 0], [0, 0, 1]]),
        ("inertia of body 'box'", "not symmetric"),
    ),
    "four inertias": (lambda: pendulum().body("box", inertia=np.ones(4)), ("'box'", "shape (4,)")),
    "NaN inertia": (lambda: pendulum().body("box", inertia=(1, 1, np.nan)), ("'box'", "finite")),
    "inertia in words": (lambda: pendulum().body("box", inertia="big"), ("'box'", "'big'")),
    "ragged inertia": (lambda: pendulum().body("box", inertia=[[1], [2, 3]]), ("'box'", "numbers")),
    "body twice": (lambda: pendulum().body("rod"), ("body named 'rod'", "unique")),
    "body called world": (lambda: pendulum().body("world"), ("'world'", "unique")),
    "body like a frame": (lambda: pendulum().body("tip"), ("'tip'", "unique")),
    "name with a blank": (lambda: pendulum().body("the rod"), ("'the rod'", "body", "blanks")),
    "name with a star": (lambda: pendulum().body("rod*"), ("'rod*'", "body", "*")),
    "name with brackets": (lambda: pendulum().frame("tip[0]", "rod"), ("'tip[0]'", "frame")),
    "empty name": (lambda: pendulum().body(""), ("''", "not a name", "body")),
    "name that is none": (lambda: pendulum().body(None), ("None", "not a name", "body")),
    "gravity as one number": (lambda: Mechanism("m", gravity=9.81), ("ravity", "(3,)")),
    "gravity in words": (lambda: Mechanism("m", gravity=(0, 0, "down")), ("ravity", "down")),
}

BAD_JOINTS: dict[str, Case] = {
    "unknown parent": (
        lambda: loose_arm().revolute("elbow", "rud", "arm"),
        ("joint 'elbow'", "parent", "'rud'", "Did you mean rod", "Valid: world, rod, arm"),
    ),
    "unknown child": (
        lambda: loose_arm().revolute("elbow", "rod", "arn"),
        ("joint 'elbow'", "child", "'arn'", "Did you mean arm?", "Valid: rod, arm."),
    ),
    "unknown child without a near match": (
        lambda: pendulum().revolute("elbow", "rod", "qqq"),
        ("joint 'elbow'", "'qqq'. Valid: rod."),
    ),
    "the world as child": (
        lambda: pendulum().revolute("elbow", "rod", "world"),
        ("joint 'elbow'", "child", "'world'"),
    ),
    "second parent": (
        lambda: two_links().revolute("weld", "world", "arm"),
        ("'arm'", "joint 'elbow'", "joint 'weld'", "second parent", "loop(…)"),
    ),
    "cycle": (
        lambda: Mechanism().body("a").body("b").revolute("j", "a", "b").revolute("k", "b", "a"),
        ("Joint 'k'", "from 'b' to 'a'", "cycle", "loop(…)"),
    ),
    "cycle of three": (
        lambda: (
            Mechanism()
            .body("a")
            .body("b")
            .body("c")
            .revolute("ab", "a", "b")
            .revolute("bc", "b", "c")
            .revolute("ca", "c", "a")
        ),
        ("Joint 'ca'", "from 'c' to 'a'", "cycle"),
    ),
    "onto itself": (
        lambda: loose_arm().revolute("elbow", "arm", "arm"),
        ("Joint 'elbow'", "from 'arm' to 'arm'", "cycle"),
    ),
    "joint twice": (
        lambda: loose_arm().fixed("hinge", "rod", "arm"),
        ("joint named 'hinge'", "unique"),
    ),
    "zero axis": (
        lambda: loose_arm().revolute("elbow", "rod", "arm", axis=(0, 0, 0)),
        ("axis of joint 'elbow'", "no direction"),
    ),
    "unknown axis": (
        lambda: loose_arm().prismatic("elbow", "rod", "arm", axis="w"),
        ("axis of joint 'elbow'", "'w'", "valid: x, y, z, -x, -y, -z or three numbers"),
    ),
    "axis with two signs": (
        lambda: loose_arm().revolute("elbow", "rod", "arm", axis="+-x"),
        ("axis of joint 'elbow'", "'+-x'"),
    ),
    "flat axis": (
        lambda: loose_arm().revolute("elbow", "rod", "arm", axis=(1, 0)),
        ("axis of joint 'elbow'", "(3,)", "(2,)"),
    ),
    "too many axes": (
        lambda: loose_arm().universal("elbow", "rod", "arm", axes="xyz"),
        ("universal", "2 axes", "'elbow'", "given 3"),
    ),
    "too few axes": (
        lambda: loose_arm().spherical("elbow", "rod", "arm", axes="xy"),
        ("spherical", "3 axes", "'elbow'", "given 2"),
    ),
    "axes not perpendicular": (
        lambda: loose_arm().universal("elbow", "rod", "arm", axes=("x", (1, 1, 0))),
        ("universal joint 'elbow'", "perpendicular"),
    ),
    "axis repeated": (
        lambda: loose_arm().spherical("elbow", "rod", "arm", axes="zxz"),
        ("spherical joint 'elbow'", "perpendicular"),
    ),
    "too few coordinate names": (
        lambda: loose_arm().universal("elbow", "rod", "arm", coordinates=("a",)),
        ("Joint 'elbow'", "2 coordinates", "1 name"),
    ),
    "a coordinate of nothing": (
        lambda: loose_arm().fixed("elbow", "rod", "arm", coordinates="a"),
        ("Joint 'elbow'", "0 coordinates", "1 name"),
    ),
    "coordinate twice": (
        lambda: loose_arm().universal("elbow", "rod", "arm", coordinates=("a", "a")),
        ("coordinate named 'a'", "unique"),
    ),
    "coordinate of another joint": (
        lambda: loose_arm().revolute("elbow", "rod", "arm", coordinates="hinge"),
        ("coordinate named 'hinge'", "unique"),
    ),
    "flat origin": (
        lambda: loose_arm().revolute("elbow", "rod", "arm", origin=(1, 2)),
        ("origin of joint 'elbow'", "(3,)", "(2,)"),
    ),
    "stretched rotation": (
        lambda: loose_arm().fixed("elbow", "rod", "arm", rotation=2 * np.eye(3)),
        ("rotation of joint 'elbow'", "not a rotation matrix", "differs from 1 by 3"),
    ),
    "reflection": (
        lambda: loose_arm().fixed("elbow", "rod", "arm", rotation=-np.eye(3)),
        ("rotation of joint 'elbow'", "not a rotation matrix", "determinant"),
    ),
    "small rotation matrix": (
        lambda: loose_arm().fixed("elbow", "rod", "arm", rotation=np.eye(2)),
        ("rotation of joint 'elbow'", "(2, 2)"),
    ),
    "rotation in words": (
        lambda: loose_arm().fixed("elbow", "rod", "arm", rotation="x"),
        ("rotation of joint 'elbow'", "'x'"),
    ),
    "NaN rotation": (
        lambda: loose_arm().fixed("elbow", "rod", "arm", rotation=(np.nan, 0, 0)),
        ("rotation of joint 'elbow'", "finite"),
    ),
}

BAD_CLOSURES: dict[str, Case] = {
    "frame on nothing": (
        lambda: pendulum().frame("end", "rodd"),
        ("frame 'end'", "'rodd'", "Did you mean rod?"),
    ),
    "frame twice": (lambda: pendulum().frame("tip", "rod"), ("frame named 'tip'", "unique")),
    "frame like a body": (lambda: pendulum().frame("rod", "rod"), ("'rod'", "unique")),
    "frame at a number": (
        lambda: pendulum().frame("end", "rod", origin=1.0),
        ("origin of frame 'end'", "(3,)"),
    ),
    "loop of an unknown frame": (
        lambda: pendulum().loop("ring", "world", "tup"),
        ("loop 'ring'", "'tup'", "Did you mean tip?", "Valid: world, rod, tip."),
    ),
    "loop of an unknown kind": (
        lambda: pendulum().loop("ring", "world", "tip", kind="weld"),
        ("Loop 'ring'", "'weld'", "point, frame, point-on-axis, axis, planar, pin"),
    ),
    "loop of a frame to itself": (
        lambda: pendulum().loop("ring", "tip", "tip"),
        ("Loop 'ring'", "'tip'", "itself"),
    ),
    "loop about nothing": (
        lambda: pendulum().loop("ring", "world", "tip", kind="pin", axis=(0, 0, 0)),
        ("axis of loop 'ring'", "no direction"),
    ),
    "loop twice": (
        lambda: pendulum().loop("ring", "world", "tip").loop("ring", "world", "rod"),
        ("'ring'", "unique"),
    ),
    "coupling like a loop": (
        lambda: two_links().loop("ring", "world", "tip").coupling("ring", "hinge", "elbow"),
        ("'ring'", "unique"),
    ),
    "coupling to itself": (
        lambda: pendulum().coupling("gear", "hinge", "hinge"),
        ("Coupling 'gear'", "'hinge'", "itself"),
    ),
    "coupling to nothing": (
        lambda: pendulum().coupling("gear", "hinge", "hing"),
        ("coordinate named 'hing'", "Did you mean hinge?"),
    ),
    "coupling of the fifth power": (
        lambda: two_links().coupling("gear", "hinge", "elbow", higher=(1, 2, 3, 4)),
        ("Coupling 'gear'", "fourth power", "'elbow'"),
    ),
    "coupling by NaN": (
        lambda: two_links().coupling("gear", "hinge", "elbow", ratio=np.nan),
        ("coupling 'gear'", "finite"),
    ),
    "coupling in words": (
        lambda: two_links().coupling("gear", "hinge", "elbow", higher=("little",)),
        ("coupling 'gear'", "little"),
    ),
    "drive of nothing": (
        lambda: pendulum().drive("hing"),
        ("coordinate named 'hing'", "Did you mean hinge?"),
    ),
    "drive twice": (
        lambda: pendulum().drive("hinge").drive("hinge", name="again"),
        ("'hinge'", "driven already"),
    ),
    "the same drive": (lambda: pendulum().drive("hinge").drive("hinge"), ("'hinge", "already")),
}

BAD_ELEMENTS: dict[str, Case] = {
    "spring on nothing": (
        lambda: pendulum().spring("hing", stiffness=1),
        ("coordinate named 'hing'", "Did you mean hinge?"),
    ),
    "NaN spring": (
        lambda: pendulum().spring("hinge", stiffness=np.nan),
        ("pring 'hinge'", "finite"),
    ),
    "two springs of one name": (
        lambda: pendulum().spring("hinge", stiffness=1).spring("hinge", stiffness=2),
        ("spring named 'hinge'", "unique"),
    ),
    "damper in words": (lambda: pendulum().damper("hinge", damping="soft"), ("'hinge'", "'soft'")),
    "friction without width": (
        lambda: pendulum().friction("hinge", coulomb=1, width=0),
        ("width", "friction on 'hinge'", "> 0"),
    ),
    "friction of NaN width": (
        lambda: pendulum().friction("hinge", coulomb=1, width=np.nan),
        ("width", "friction on 'hinge'"),
    ),
    "friction of a width in words": (
        lambda: pendulum().friction("hinge", coulomb=1, width="thin"),
        ("width", "friction on 'hinge'", "'thin'"),
    ),
    "backward Stribeck velocity": (
        lambda: pendulum().friction("hinge", coulomb=1, stribeck_velocity=-1),
        ("stribeck_velocity", "friction on 'hinge'", "> 0"),
    ),
    "dry friction below zero": (
        lambda: pendulum().dry_friction("hinge", coulomb=-1),
        ("The coulomb of dry friction on 'hinge'", "≥ 0"),
    ),
    "Stribeck excess below zero": (
        lambda: pendulum().dry_friction("hinge", stribeck=-0.1),
        ("The stribeck of dry friction on 'hinge'", "≥ 0"),
    ),
    "NaN load coefficient": (
        lambda: pendulum().dry_friction("hinge", load_coefficient=np.nan),
        ("The load_coefficient of dry friction on 'hinge'", "finite"),
    ),
    "a load that a floating joint does not carry": (
        lambda: (
            Mechanism("ball")
            .body("ball", mass=1.0, inertia=(0.1, 0.1, 0.1))
            .floating("free", "world", "ball")
            .dry_friction("free.x", load_coefficient=0.2)
        ),
        ("The load_coefficient of dry friction on 'free.x' is 0.2", "'free' is floating", "leave it at 0"),
    ),
    "dry friction at rest only": (
        lambda: pendulum().dry_friction("hinge", stribeck_velocity=0),
        ("The stribeck_velocity of dry friction on 'hinge' must be > 0, not 0.",),
    ),
    "dry friction without exponent": (
        lambda: pendulum().dry_friction("hinge", stribeck_exponent=0.0),
        ("The stribeck_exponent of dry friction on 'hinge' must be > 0, not 0.",),
    ),
    "dry friction of a radius in words": (
        lambda: pendulum().dry_friction("hinge", load_radius="thin"),
        ("The load_radius of dry friction on 'hinge'", "'thin'"),
    ),
    "dry friction on nothing": (
        lambda: pendulum().dry_friction("hing", coulomb=1.0),
        ("coordinate named 'hing'", "Did you mean hinge?"),
    ),
    "infinite gain": (lambda: pendulum().motor("hinge", gain=np.inf), ("'hinge.motor'", "finite")),
    "torque twice": (
        lambda: pendulum().torque("hinge").torque("hinge"),
        ("'hinge.torque'", "unique"),
    ),
    "line spring to nothing": (
        lambda: pendulum().line_spring("cord", "tip", "wrld", stiffness=1),
        ("line spring 'cord'", "'wrld'", "Did you mean world"),
    ),
    "line spring to itself": (
        lambda: pendulum().line_spring("cord", "tip", "tip", stiffness=1),
        ("ine spring 'cord'", "'tip'", "itself"),
    ),
    "NaN line spring": (
        lambda: pendulum().line_spring("cord", "tip", "world", stiffness=np.nan),
        ("ine spring 'cord'", "finite"),
    ),
    "force at nothing": (
        lambda: pendulum().force("push", "tipp"),
        ("force 'push'", "'tipp'", "Did you mean tip?"),
    ),
    "force in unknown axes": (
        lambda: pendulum().force("push", "tip", axes="bdy"),
        ("force 'push'", "'bdy'", "valid: world, body"),
    ),
    "one input name for a torque and a force": (
        lambda: pendulum().torque("hinge", name="push.x").force("push", "tip"),
        ("input", "'push.x'", "unique"),
    ),
    "one input name for a torque and a drive": (
        lambda: pendulum().torque("hinge", name="hinge.drive").drive("hinge"),
        ("input", "'hinge.drive'", "unique"),
    ),
    "element without a function": (
        lambda: pendulum().element("own", ["hinge"]),
        ("Element 'own'", "force=…", "potential=…"),
    ),
    "element with both functions": (
        lambda: pendulum().element("own", ["hinge"], force=energy, potential=energy),
        ("Element 'own'", "force=…", "potential=…"),
    ),
    "element of a number": (
        lambda: pendulum().element("own", ["hinge"], potential=3.0),
        ("lement 'own'", "function"),
    ),
    "element on nothing": (
        lambda: pendulum().element("own", [], potential=energy),
        ("lement 'own'", "coordinate"),
    ),
    "element on an unknown coordinate": (
        lambda: pendulum().element("own", ["hing"], potential=energy),
        ("coordinate named 'hing'", "Did you mean hinge?"),
    ),
    "NaN in an element": (
        lambda: pendulum().element("own", ["hinge"], potential=energy, parameters={"k": np.nan}),
        ("lement 'own'", "'k'", "finite"),
    ),
    "words in an element": (
        lambda: pendulum().element("own", ["hinge"], potential=energy, parameters={"k": "stiff"}),
        ("lement 'own'", "'k'", "'stiff'"),
    ),
    "a parameter with a star": (
        lambda: pendulum().element("own", ["hinge"], potential=energy, parameters={"k*": 1.0}),
        ("'k*'", "not a name"),
    ),
}

BAD_QUESTIONS: dict[str, Case] = {
    "body without joint": (lambda: loose_arm().lower(), ("no joint", "arm.")),
    "nothing at all": (lambda: Mechanism("void").lower(), ("'void'", "no joint that moves")),
    "nothing that moves": (
        lambda: Mechanism("rock").body("a").fixed("weld", "world", "a").lower(),
        ("'rock'", "no joint that moves"),
    ),
    "unknown coordinate": (
        lambda: two_links().coordinate("elbo"),
        ("coordinate named 'elbo'", "Did you mean elbow?", "Valid: hinge, elbow."),
    ),
    "value of an unknown coordinate": (
        lambda: two_links().coordinate_vector({"elbo": 1.0}, "The start of coordinate"),
        ("coordinate named 'elbo'", "Did you mean elbow?"),
    ),
    "NaN value of a coordinate": (
        lambda: two_links().coordinate_vector({"elbow": np.nan}, "The start of coordinate"),
        ("The start of coordinate 'elbow'", "finite"),
    ),
    "too few values": (
        lambda: two_links().coordinate_vector([1.0], "The start of coordinate"),
        ("The start of coordinate", "(2,)", "(1,)"),
    ),
}

ALL = BAD_BODIES | BAD_JOINTS | BAD_CLOSURES | BAD_ELEMENTS | BAD_QUESTIONS


@pytest.mark.parametrize("case", ALL)
def test_a_mistake_is_said_in_one_clear_sentence(case: str) -> None:
    mistake, fragments = ALL[case]
    with pytest.raises(MechidError) as caught:
        mistake()
    sentence = str(caught.value)
    for fragment in fragments:
        assert fragment in sentence, sentence
    assert sentence.endswith("."), sentence
    assert "\n" not in sentence
    assert not sentence[0].islower(), sentence
    assert caught.value.__suppress_context__ or caught.value.__context__ is None, "a bare traceback"


def test_the_tables_overlap_nowhere() -> None:
    tables = (BAD_BODIES, BAD_JOINTS, BAD_CLOSURES, BAD_ELEMENTS, BAD_QUESTIONS)
    assert len(ALL) == sum(map(len, tables))


# Immutability

BUILDER_CALLS: dict[str, Callable[[Mechanism], Mechanism]] = {
    "body": lambda m: m.body("box", mass=1.0),
    "revolute": lambda m: m.revolute("shoulder", "world", "spare"),
    "prismatic": lambda m: m.prismatic("shoulder", "world", "spare"),
    "fixed": lambda m: m.fixed("shoulder", "world", "spare"),
    "universal": lambda m: m.universal("shoulder", "world", "spare"),
    "spherical": lambda m: m.spherical("shoulder", "world", "spare"),
    "floating": lambda m: m.floating("shoulder", "world", "spare"),
    "frame": lambda m: m.frame("end", "arm"),
    "loop": lambda m: m.loop("ring", "world", "tip"),
    "coupling": lambda m: m.coupling("gear", "hinge", "elbow"),
    "combination": lambda m: m.combination("twist", {"hinge": 1.0, "elbow": -50.0}),
    "drive": lambda m: m.drive("elbow"),
    "spring": lambda m: m.spring("elbow", stiffness=1.0),
    "damper": lambda m: m.damper("elbow", damping=1.0),
    "friction": lambda m: m.friction("elbow", coulomb=1.0),
    "dry_friction": lambda m: m.dry_friction("elbow", coulomb=1.0),
    "piecewise_spring": lambda m: m.piecewise_spring("elbow", stiffness=(1.0, 2.0, 3.0), loads=(0.5, 1.0)),
    "gear_friction": lambda m: m.gear_friction("elbow", coulomb=1.0),
    "load_friction": lambda m: m.load_friction("elbow", load="hinge", coefficient=0.1),
    "periodic_friction": lambda m: m.periodic_friction("elbow", sine=1.0),
    "stops": lambda m: m.stops("elbow", lower=-1.0, upper=1.0),
    "contact": lambda m: m.contact("touch", point="tip", plane="world"),
    "motor": lambda m: m.motor("elbow"),
    "torque": lambda m: m.torque("elbow"),
    "armature": lambda m: m.armature("elbow", inertia=1.0),
    "offset": lambda m: m.offset("elbow", force=1.0),
    "line_spring": lambda m: m.line_spring("cord", "world", "tip", stiffness=1.0),
    "force": lambda m: m.force("push", "tip"),
    "delayed": lambda m: m.torque("elbow").delayed("elbow.torque", 0.01),
    "element": lambda m: m.element("own", ["elbow"], potential=energy, parameters={"k": 1.0}),
}


def snapshot(m: Mechanism) -> str:
    parts = {f.name: getattr(m, f.name) for f in dataclasses.fields(m)}
    names = [m.coordinate_names, m.input_names, m.constraint_names, m.frame_names, m._joint_of]
    return json.dumps([parts, names], default=lambda x: x.tolist() if hasattr(x, "tolist") else str(x))


@pytest.mark.parametrize("call", BUILDER_CALLS)
def test_a_builder_call_leaves_the_old_mechanism_as_it_was(call: str) -> None:
    old = two_links().body("spare")
    before = snapshot(old)
    new = BUILDER_CALLS[call](old)
    assert snapshot(old) == before
    assert snapshot(new) != before
    assert new is not old


def test_every_builder_call_is_covered() -> None:
    """Methods that give a mechanism are builder calls, apart from those that check and that take numbers."""
    signatures = {
        name: inspect.signature(f).return_annotation
        for name, f in inspect.getmembers(Mechanism, inspect.isfunction)
        if not name.startswith("_")
    }
    builders = {name for name, gives in signatures.items() if gives == "Mechanism"}
    assert builders - {"checked", "renewed"} == set(BUILDER_CALLS)


def test_fields_cannot_be_set() -> None:
    m = pendulum()
    with pytest.raises(dataclasses.FrozenInstanceError):
        m.gravity = (0, 0, 0)  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        m.bodies[0].mass = 2.0  # type: ignore[misc]


def test_arrays_given_to_the_builder_stay_the_callers_own() -> None:
    gravity, com, inertia = np.array([0.0, 0.0, -9.81]), np.array([0.0, 0.0, -0.5]), np.eye(3)
    origin, rotation = np.zeros(3), np.eye(3)
    m = (
        Mechanism("m", gravity=gravity)
        .body("rod", mass=1.0, com=com, inertia=inertia)
        .revolute("hinge", "world", "rod", origin=origin, rotation=rotation)
        .frame("tip", "rod", origin=origin, rotation=rotation)
    )
    before = snapshot(m)
    for array in (gravity, com, inertia, origin, rotation):
        array += 7.0
    assert snapshot(m) == before


# Order and names


def ordered() -> Mechanism:
    return (
        Mechanism("ordered")
        .body("a", mass=1.0)
        .body("b", mass=1.0)
        .body("c", mass=1.0)
        .body("d", mass=1.0)
        .body("e", mass=1.0)
        .floating("free", "world", "c")
        .revolute("j", "c", "a")
        .universal("u", "a", "b", coordinates=("bend", "twist"))
        .spherical("ball", "world", "d")
        .fixed("weld", "b", "e")
        .frame("tip", "e")
        .drive("j")
        .force("lift", "tip", moment=True)
        .torque("bend")
        .force("push", "a", axes="body")
        .motor("twist", name="winch")
        .coupling("gear", "bend", "twist")
        .loop("hook", "world", "tip", kind="point")
        .loop("ring", "d", "tip", kind="pin")
        .drive("ball.2", name="path")
    )


def test_coordinates_stand_in_the_order_of_their_joints() -> None:
    free = tuple(f"free.{x}" for x in ("x", "y", "z", "roll", "pitch", "yaw"))
    ball = ("ball.1", "ball.2", "ball.3")
    assert ordered().coordinate_names == (*free, "j", "bend", "twist", *ball)
    kinds = [c.revolute for c in ordered().coordinates]
    assert kinds == [False] * 3 + [True] * 9
    assert [c.axis for c in ordered().coordinates[9:]] == [(1, 0, 0), (0, 1, 0), (0, 0, 1)]


def test_inputs_are_motors_and_forces_as_added_then_drives() -> None:
    wrench = tuple(f"lift.{x}" for x in ("fx", "fy", "fz", "mx", "my", "mz"))
    push = ("push.x", "push.y", "push.z")
    want = (*wrench, "bend.torque", *push, "winch", "j.drive", "path")
    assert ordered().input_names == want


def test_constraint_rows_are_loops_then_couplings_then_drives() -> None:
    rows = ("hook[0]", "hook[1]", "hook[2]", "ring[0]", "ring[1]")
    assert ordered().constraint_names == (*rows, "gear", "j.drive", "path")


def test_frames_are_the_world_the_bodies_and_the_named_ones() -> None:
    assert ordered().frame_names == ("world", "a", "b", "c", "d", "e", "tip")


@pytest.mark.parametrize(
    ("kind", "rows"),
    [("point", 3), ("frame", 6), ("point-on-axis", 6), ("axis", 2), ("planar", 3), ("pin", 2)],
)
def test_loops_have_as_many_rows_as_their_kind_takes_away(kind: str, rows: int) -> None:
    assert len(pendulum().loop("ring", "world", "tip", kind=kind).constraint_names) == rows


def test_coordinate_vectors_from_names_sequences_and_nothing() -> None:
    m = two_links()
    np.testing.assert_array_equal(m.coordinate_vector({"elbow": 2}, "q"), [0.0, 2.0])
    np.testing.assert_array_equal(m.coordinate_vector([1, 2], "q"), [1.0, 2.0])
    np.testing.assert_array_equal(m.coordinate_vector(None, "q"), [0.0, 0.0])


def test_the_hexagonal_loop_is_built_in_under_25_lines() -> None:
    source = inspect.getsource(mechanisms.loop6)
    signature, body = source.split(mechanisms.loop6.__doc__ or "")
    assert signature.startswith("def loop6")
    lines = [line for line in body.strip('"').splitlines() if line.strip()]
    assert "return" in lines[-1]
    assert 0 < len(lines) < 25
