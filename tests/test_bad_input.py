"""Bad input and what mechid says of it, sentence for sentence. docs/errors.md is made from this table."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import mujoco
import numpy as np
import pytest

from mechid import (
    BDF,
    Mechanism,
    MechidError,
    Parameters,
    Softness,
    Spook,
    Variational,
    adjoint,
    assemble,
    project_rates,
    read_mechanism,
    sensitivities,
    simulate,
    simulate_batch,
    transitions,
    write_mechanism,
)
from mechid.model.reading import read_mechanism_text


class Row(NamedTuple):
    what: str
    """as a reader of the page looks for it"""
    provoke: Callable[[], Any]
    """run in an empty folder"""
    sentence: str
    """in full; `/home/me` stands for that folder"""


# A pendulum to go wrong with

STEP = Variational(0.01)
SOLID = {"mass": 1.0, "com": (0.0, 0.0, -0.5), "inertia": (0.1, 0.1, 0.01)}


def pendulum() -> Mechanism:
    m = Mechanism("pendulum").body("rod", **SOLID).revolute("hinge", "world", "rod", axis="y")
    return m.frame("tip", "rod", origin=(0, 0, -1)).damper("hinge", damping=0.1).torque("hinge")


def loose() -> Mechanism:
    return pendulum().body("arm", **SOLID)


def two_links() -> Mechanism:
    return loose().revolute("elbow", "rod", "arm", axis="y", origin=(0, 0, -1))


def pinned() -> Mechanism:
    """Its tip is pinned a hand's breadth below where it hangs."""
    return (
        pendulum()
        .frame("nail", "world", origin=(0, 0, -1.1))
        .loop("pin", "nail", "tip", kind="pin", axis="y")
    )


def held() -> Mechanism:
    """Two links whose second end is pinned where it hangs."""
    m = two_links().frame("end", "arm", origin=(0, 0, -1)).frame("nail", "world", origin=(0, 0, -2))
    return m.loop("pin", "nail", "end", kind="pin", axis="y")


def free(address: str = "hinge.damping", **options: Any) -> Parameters:
    return Parameters(pendulum()).free(address, **options)


def at_rest() -> Any:
    return simulate(pendulum(), STEP, 0)


@functools.cache
def moved() -> Any:
    return simulate(pendulum(), STEP, 2)


def in_float32(code: str) -> None:
    """Run lines in a process that has computed in float32 already, and raise what they are told."""
    lines = [
        "import jax, mechid",
        "jax.numpy.zeros(1)",
        "try:",
        textwrap.indent(code, "    "),
        "except mechid.MechidError as e:",
        "    print(e)",
    ]
    clean = {k: v for k, v in os.environ.items() if k != "JAX_ENABLE_X64"} | {"PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, encoding="utf-8", env=clean
    )
    assert done.returncode == 0, done.stderr
    raise MechidError(done.stdout.strip())


# Files


def file(name: str, text: str | bytes) -> str:
    Path(name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return name


def huge() -> str:
    with Path("arm.xml").open("wb") as out:
        out.truncate(65 * 2**20)
    return "arm.xml"


LIMIT = '<limit lower="-1" upper="1" velocity="1" effort="1"/>'
INERTIAL = '<inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>'


def joint(name: str, parent: str, child: str, kind: str = "revolute", inside: str = LIMIT) -> str:
    ends = f'<parent link="{parent}"/><child link="{child}"/>'
    return f'  <joint name="{name}" type="{kind}">{ends}{inside}</joint>'


def robot(*joints: str, links: str = "ab", inertial: str = INERTIAL) -> str:
    """A URDF of links a, b, …, of which all but the first have an inertia."""
    parts = [f'  <link name="{name}">{inertial if i else ""}</link>' for i, name in enumerate(links)]
    return "\n".join(['<robot name="arm">', *parts, *joints, "</robot>"])


def urdf(*joints: str, **options: Any) -> Callable[[], Any]:
    return lambda: read_mechanism(file("arm.urdf", robot(*joints, **options)))


HINGE = joint("j", "a", "b")
BODY = '<inertial pos="0 0 -1" mass="1" diaginertia="1 1 1"/><joint name="j" axis="0 1 0"/>'


def mjcf(body: str = BODY, more: str = "", inside: str = "") -> Callable[[], Any]:
    """Read an MJCF of one body."""
    text = f'<mujoco>\n<worldbody>\n<body name="b">\n{body}{inside}\n</body>\n</worldbody>\n{more}\n</mujoco>'
    return lambda: read_mechanism(file("arm.xml", text))


def text(content: str | bytes, name: str = "arm.urdf") -> Callable[[], Any]:
    return lambda: read_mechanism(file(name, content))


MESH = '<asset><mesh name="cup" file="cup.stl"/></asset>'
MOVES = '<worldbody><body name="c"><joint/><geom size="1"/></body></worldbody>'
CUP = '<geom type="mesh" mesh="cup"/>'
TENDON = '<tendon><fixed name="t" {}><joint joint="j" coef="1"/></fixed></tendon>'
BOMB = '<!DOCTYPE r [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>\n<robot name="&b;"/>'
OUTSIDE = '<!DOCTYPE r [<!ENTITY a SYSTEM "file:///etc/passwd">]>\n<robot name="&a;"/>'


def arm() -> Mechanism:
    return read_mechanism(file("arm.urdf", robot(HINGE)))


def frozen(name: str) -> str:
    Path(file(name, robot(HINGE))).chmod(0o444)
    return name


TABLE: dict[str, list[Row]] = {
    "Bodies": [
        Row(
            "a negative mass",
            lambda: pendulum().body("box", mass=-1.0),
            "The mass of body 'box' is -1 kg; it must be ≥ 0.",
        ),
        Row(
            "a mass that is not a number",
            lambda: pendulum().body("box", mass=np.nan),
            "The mass of body 'box' must be finite, not nan.",
        ),
        Row(
            "an infinite mass",
            lambda: pendulum().body("box", mass=np.inf),
            "The mass of body 'box' must be finite, not inf.",
        ),
        Row(
            "a mass beyond all measure",
            lambda: pendulum().body("box", mass=1e80),
            "The mass of body 'box' must be at most 1e+50 in size, not 1e+80.",
        ),
        Row(
            "a mass in words",
            lambda: pendulum().body("box", mass="heavy"),
            "The mass of body 'box' must be numbers, not 'heavy'.",
        ),
        Row(
            "no mass at all",
            lambda: pendulum().body("box", mass=None),
            "The mass of body 'box' must be numbers, not None.",
        ),
        Row(
            "two masses",
            lambda: pendulum().body("box", mass=[1.0, 2.0]),
            "The mass of body 'box' must be one number, not shape (2,).",
        ),
        Row(
            "a complex centre of mass",
            lambda: pendulum().body("box", com=(1j, 0, 0)),
            "The centre of mass of body 'box' must be numbers, not (1j, 0, 0).",
        ),
        Row(
            "a centre of mass of two numbers",
            lambda: pendulum().body("box", com=(0.0, 1.0)),
            "The centre of mass of body 'box' must have shape (3,), not shape (2,).",
        ),
        Row(
            "an impossible inertia",
            lambda: pendulum().body("box", inertia=(1.0, 1.0, 3.0)),
            (
                "The inertia of body 'box' violates the triangle inequality: principal moments 1 + 1 < 3 "
                "kg·m²."
            ),
        ),
        Row(
            "a negative moment of inertia",
            lambda: pendulum().body("box", inertia=(1.0, -1.0, 1.0)),
            "The inertia of body 'box' has a negative principal moment, -1 kg·m².",
        ),
        Row(
            "an inertia that is not positive",
            lambda: pendulum().body("box", inertia=(1.0, 1.0, 1.0, 2.0, 0.0, 0.0)),
            "The inertia of body 'box' has a negative principal moment, -1 kg·m².",
        ),
        Row(
            "an inertia that is not symmetric",
            lambda: pendulum().body("box", inertia=[[1, 0.1, 0], [0, 1, 0], [0, 0, 1]]),
            "The inertia of body 'box' is not symmetric.",
        ),
        Row(
            "an inertia of four numbers",
            lambda: pendulum().body("box", inertia=np.ones(4)),
            "The inertia of body 'box' must be 3, 6 or 3×3 numbers, not shape (4,).",
        ),
        Row(
            "a body's name twice",
            lambda: pendulum().body("rod"),
            "There is a body named 'rod' already: names must be unique.",
        ),
        Row(
            "a body called world",
            lambda: pendulum().body("world"),
            "There is a body named 'world' already: names must be unique.",
        ),
        Row(
            "a name with a blank",
            lambda: pendulum().body("the rod"),
            "'the rod' is not a name for a body: use a text without blanks, *, ? or brackets.",
        ),
        Row(
            "a name that is no text",
            lambda: pendulum().body(3),
            "3 is not a name for a body: use a text without blanks, *, ? or brackets.",
        ),
        Row(
            "gravity as one number",
            lambda: Mechanism("m", gravity=9.81),
            "Gravity must have shape (3,), not one number.",
        ),
    ],
    "Joints": [
        Row(
            "an unknown parent",
            lambda: loose().revolute("elbow", "rud", "arm"),
            (
                "There is no parent body for joint 'elbow' named 'rud'. Did you mean rod or world? Valid: "
                "world, rod, arm."
            ),
        ),
        Row(
            "an unknown child",
            lambda: loose().revolute("elbow", "rod", "arn"),
            "There is no child body for joint 'elbow' named 'arn'. Did you mean arm? Valid: rod, arm.",
        ),
        Row(
            "a second parent",
            lambda: two_links().revolute("weld", "world", "arm"),
            (
                "Body 'arm' already hangs on joint 'elbow'; joint 'weld' would be its second parent: close a "
                "loop with loop(…) instead."
            ),
        ),
        Row(
            "a cycle",
            lambda: Mechanism().body("a").body("b").revolute("j", "a", "b").revolute("k", "b", "a"),
            (
                "Joint 'k' from 'b' to 'a' would make a cycle: 'b' already hangs on 'a'. Close a loop with "
                "loop(…) instead."
            ),
        ),
        Row(
            "a body hung on itself",
            lambda: loose().revolute("elbow", "arm", "arm"),
            (
                "Joint 'elbow' from 'arm' to 'arm' would make a cycle: 'arm' already hangs on 'arm'. Close a "
                "loop with loop(…) instead."
            ),
        ),
        Row(
            "a joint's name twice",
            lambda: loose().fixed("hinge", "rod", "arm"),
            "There is a joint named 'hinge' already: names must be unique.",
        ),
        Row(
            "a coordinate's name twice",
            lambda: loose().revolute("e", "rod", "arm", coordinates="hinge"),
            "There is a coordinate named 'hinge' already: names must be unique.",
        ),
        Row(
            "an axis of no length",
            lambda: loose().revolute("elbow", "rod", "arm", axis=(0, 0, 0)),
            "The axis of joint 'elbow' has no direction: its length is 0.",
        ),
        Row(
            "an axis of NaN",
            lambda: loose().revolute("elbow", "rod", "arm", axis=(0, 0, np.nan)),
            "The axis of joint 'elbow' must be finite, not [0.0, 0.0, nan].",
        ),
        Row(
            "an axis of two numbers",
            lambda: loose().revolute("elbow", "rod", "arm", axis=(0, 1)),
            "The axis of joint 'elbow' must have shape (3,), not shape (2,).",
        ),
        Row(
            "an unknown axis",
            lambda: loose().prismatic("elbow", "rod", "arm", axis="w"),
            "The axis of joint 'elbow' is 'w'; valid: x, y, z, -x, -y, -z or three numbers.",
        ),
        Row(
            "axes that are none",
            lambda: loose().universal("elbow", "rod", "arm", axes=2),
            "The axes of joint 'elbow' are a list of axes, not 2.",
        ),
        Row(
            "too many axes",
            lambda: loose().universal("elbow", "rod", "arm", axes="xyz"),
            "A universal joint has 2 axes; 'elbow' was given 3.",
        ),
        Row(
            "axes that are not perpendicular",
            lambda: loose().universal("elbow", "rod", "arm", axes=("x", (1, 1, 0))),
            "The axes of universal joint 'elbow' must be perpendicular.",
        ),
        Row(
            "a rotation that is none",
            lambda: loose().fixed("elbow", "rod", "arm", rotation=np.eye(3) + 0.1),
            "The rotation of joint 'elbow' is not a rotation matrix: R Rᵀ differs from 1 by 0.23.",
        ),
        Row(
            "a reflection",
            lambda: loose().fixed("elbow", "rod", "arm", rotation=-np.eye(3)),
            "The rotation of joint 'elbow' is not a rotation matrix: its determinant is −1.",
        ),
        Row(
            "limits upside down",
            lambda: loose().revolute("e", "rod", "arm", limits=(2.0, 1.0)),
            "The limits of joint 'e' are [2.0, 1.0]: they must be two numbers, the lower one first.",
        ),
        Row(
            "a limit in words",
            lambda: loose().revolute("e", "rod", "arm", limits=("low", 1.0)),
            "The limits of joint 'e' must be numbers, not ('low', 1.0).",
        ),
        Row(
            "a negative largest rate",
            lambda: loose().revolute("e", "rod", "arm", max_rate=-1.0),
            "The largest rate of joint 'e' is -1.0; it must be ≥ 0.",
        ),
        Row(
            "an argument misspelt",
            lambda: loose().revolute("e", "rod", "arm", orign=(0, 0, 1)),
            (
                "There is no argument (for joint 'e') named 'orign'. Did you mean origin or coordinates? "
                "Valid: origin, rotation, coordinates."
            ),
        ),
        Row(
            "too few names of coordinates",
            lambda: loose().universal("e", "rod", "arm", coordinates=["a"]),
            "Joint 'e' has 2 coordinates, 1 name was given.",
        ),
    ],
    "Frames, loops and couplings": [
        Row(
            "a frame on an unknown body",
            lambda: pendulum().frame("end", "rodd"),
            "There is no body for frame 'end' named 'rodd'. Did you mean rod? Valid: world, rod.",
        ),
        Row(
            "a frame's name twice",
            lambda: pendulum().frame("tip", "rod"),
            "There is a frame named 'tip' already: names must be unique.",
        ),
        Row(
            "an unknown frame in a loop",
            lambda: pendulum().loop("ring", "world", "tup"),
            "There is no frame (for loop 'ring') named 'tup'. Did you mean tip? Valid: world, rod, tip.",
        ),
        Row(
            "a loop from a frame to itself",
            lambda: pendulum().loop("ring", "tip", "tip"),
            "Loop 'ring' joins frame 'tip' to itself.",
        ),
        Row(
            "an unknown kind of loop",
            lambda: pendulum().loop("ring", "world", "tip", kind="weld"),
            ("Loop 'ring' is of unknown kind 'weld'; valid: point, frame, point-on-axis, axis, planar, pin."),
        ),
        Row(
            "a loop's name twice",
            lambda: pinned().loop("pin", "nail", "rod"),
            "There is a loop named 'pin' already: names must be unique.",
        ),
        Row(
            "a coupling to itself",
            lambda: pendulum().coupling("gear", "hinge", "hinge"),
            "Coupling 'gear' couples coordinate 'hinge' to itself.",
        ),
        Row(
            "a coupling to an unknown coordinate",
            lambda: pendulum().coupling("g", "hinge", "hing"),
            "There is no coordinate named 'hing'. Did you mean hinge? Valid: hinge.",
        ),
        Row(
            "a coupling of the fifth power",
            lambda: two_links().coupling("gear", "hinge", "elbow", higher=(0, 0, 0, 1)),
            ("Coupling 'gear' goes up to the fourth power of 'elbow': 3 higher coefficients at most, not 4."),
        ),
        Row(
            "a coordinate driven twice",
            lambda: pendulum().drive("hinge").drive("hinge", name="d"),
            "Coordinate 'hinge' is driven already.",
        ),
    ],
    "Springs, motors and other elements": [
        Row(
            "a spring on an unknown coordinate",
            lambda: pendulum().spring("hing", stiffness=1.0),
            "There is no coordinate named 'hing'. Did you mean hinge? Valid: hinge.",
        ),
        Row(
            "a stiffness of NaN",
            lambda: pendulum().spring("hinge", stiffness=np.nan),
            "The stiffness of spring 'hinge' must be finite, not nan.",
        ),
        Row(
            "an element's name twice",
            lambda: pendulum().damper("hinge", damping=0.2),
            "There is a damper named 'hinge' already: names must be unique.",
        ),
        Row(
            "an input's name twice",
            lambda: pendulum().drive("hinge", name="hinge.torque"),
            "There is an input named 'hinge.torque' already: names must be unique.",
        ),
        Row(
            "friction below zero",
            lambda: pendulum().friction("hinge", coulomb=-1.0),
            "The coulomb level of friction on 'hinge' is -1; it must be ≥ 0.",
        ),
        Row(
            "friction of no width",
            lambda: pendulum().friction("hinge", coulomb=1.0, width=0.0),
            "The width of friction on 'hinge' must be > 0, not 0.",
        ),
        Row(
            "a negative armature",
            lambda: pendulum().armature("hinge", inertia=-0.1),
            "The armature on 'hinge' is -0.1; it must be ≥ 0.",
        ),
        Row(
            "a negative rotor inertia",
            lambda: pendulum().motor("hinge", rotor_inertia=-0.1),
            "The rotor_inertia of the motor on 'hinge' is -0.1; it must be ≥ 0.",
        ),
        Row(
            "a delay of an input that there is not",
            lambda: pendulum().motor("hinge").delayed("hinge", 0.01),
            "There is no input named 'hinge'. Did you mean hinge.motor or hinge.torque? Valid: hinge.torque, "
            "hinge.motor.",
        ),
        Row(
            "a delay that is no number",
            lambda: pendulum().motor("hinge").delayed("hinge.motor", np.inf),
            "The delay of input 'hinge.motor' must be finite, not inf.",
        ),
        Row(
            "a line spring to itself",
            lambda: pendulum().line_spring("s", "tip", "tip", stiffness=1.0),
            "Line spring 's' joins frame 'tip' to itself.",
        ),
        Row(
            "a force in unknown axes",
            lambda: pendulum().force("push", "tip", axes="rod"),
            "The axes of force 'push' are 'rod'; valid: world, body.",
        ),
        Row(
            "an element without a function",
            lambda: pendulum().element("own", "hinge"),
            "Element 'own' needs either force=… or potential=….",
        ),
        Row(
            "an element whose function takes other arguments",
            lambda: pendulum().element("own", "hinge", force=lambda q: -q),
            "The force of element 'own' must be a function of (q, v, t, p).",
        ),
        Row(
            "an element that gives too many forces",
            lambda: pendulum().element("own", "hinge", force=lambda q, v, t, p: np.zeros(2)),
            "The force of element 'own' must give one number a coordinate, shape (1,), not shape (2,).",
        ),
        Row(
            "a potential that is not one number",
            lambda: pendulum().element("own", "hinge", potential=lambda q, p: q),
            "The potential of element 'own' must give one number, not shape (1,).",
        ),
        Row(
            "parameters of an element without names",
            lambda: pendulum().element("own", "hinge", potential=lambda q, p: q[0], parameters=[1.0]),
            "The parameters of element 'own' are numbers by name, {'k': 1.0}, not [1.0].",
        ),
    ],
    "Whole mechanisms": [
        Row("a body on no joint", lambda: loose().lower(), "These bodies hang on no joint: arm."),
        Row(
            "nothing that moves",
            lambda: Mechanism("m").body("a").fixed("j", "world", "a").lower(),
            "Mechanism 'm' has no joint that moves.",
        ),
    ],
    "Files": [
        Row(
            "a missing file",
            lambda: (file("leg.urdf", "x"), read_mechanism("arm.urdf")),
            "There is no file 'arm.urdf'. Models in its folder: leg.urdf.",
        ),
        Row(
            "a missing file in a missing folder",
            lambda: read_mechanism("robots/arm.urdf"),
            "There is no file 'robots/arm.urdf'. There is no folder 'robots' either.",
        ),
        Row(
            "a folder",
            lambda: (Path("robots").mkdir(), read_mechanism("robots")),
            "'robots' is a folder, not a URDF or MJCF file.",
        ),
        Row("no name", lambda: read_mechanism(None), "A file's name is needed, not None."),
        Row("an empty file", text(""), "'arm.urdf' is empty."),
        Row(
            "a file that is not XML",
            text("mass = 3\n"),
            "'arm.urdf' is not valid XML: syntax error in line 1.",
        ),
        Row(
            "XML that is cut off",
            text('<robot name="arm">\n  <link name="a">\n'),
            "'arm.urdf' is not valid XML: it ends in line 3, inside <link>.",
        ),
        Row(
            "another root element",
            text('<sdf version="1.6"/>'),
            "'arm.urdf' is neither URDF nor MJCF: its root element is <sdf>; valid: <robot>, <mujoco>.",
        ),
        Row(
            "entities that multiply",
            text(BOMB),
            (
                "'arm.urdf' declares a document type in line 1: that is not supported, take the <!DOCTYPE …> "
                "out."
            ),
        ),
        Row(
            "an entity from outside",
            text(OUTSIDE),
            (
                "'arm.urdf' declares a document type in line 1: that is not supported, take the <!DOCTYPE …> "
                "out."
            ),
        ),
        Row(
            "a huge file",
            lambda: read_mechanism(huge()),
            "'arm.xml' has 65 MB; a URDF or MJCF file has 64 at most.",
        ),
        Row(
            "a file that is not UTF-8",
            text('<robot name="é"/>'.encode("latin-1")),
            "'arm.urdf' is not UTF-8 text: byte 0xe9 at place 13. Save it as UTF-8 first.",
        ),
        Row(
            "a file in UTF-16",
            text('<robot name="arm"/>'.encode("utf-16")),
            "'arm.urdf' is not UTF-8 text: byte 0xff at place 0. Save it as UTF-8 first.",
        ),
        Row(
            "unknown actuators",
            lambda: read_mechanism(file("arm.urdf", robot(HINGE)), actuators="all"),
            "The actuators are 'all'; valid: torque, none.",
        ),
    ],
    "URDF": [
        Row(
            "macros",
            text('<robot xmlns:xacro="x">\n  <xacro:property name="a"/>\n</robot>'),
            (
                "Cannot read 'arm.urdf': it holds macros (<xacro:property> in line 2): expand them first, "
                "xacro FILE > robot.urdf."
            ),
        ),
        Row("no links", urdf(links=""), "Cannot read 'arm.urdf': the robot has no <link>."),
        Row(
            "a link's name twice",
            urdf(links="aba"),
            "Cannot read 'arm.urdf': there are two links named 'a' (lines 2 and 4).",
        ),
        Row(
            "a joint's name twice",
            urdf(HINGE, joint("j", "b", "c"), links="abc"),
            "Cannot read 'arm.urdf': there are two joints named 'j' (lines 5 and 6).",
        ),
        Row(
            "a planar joint",
            urdf(joint("j", "a", "b", "planar")),
            (
                "Cannot read 'arm.urdf': joint 'j' (line 4) is of type 'planar', which is not supported; "
                "valid: revolute, continuous, prismatic, fixed, floating."
            ),
        ),
        Row(
            "an unknown type of joint",
            urdf(joint("j", "a", "b", "hinge")),
            (
                "Cannot read 'arm.urdf': joint 'j' (line 4) is of type 'hinge', which is not supported; "
                "valid: revolute, continuous, prismatic, fixed, floating."
            ),
        ),
        Row(
            "an unknown parent",
            urdf(joint("j", "aa", "b")),
            (
                "Cannot read 'arm.urdf': there is no link (the parent of joint 'j') named 'aa'. Did you mean "
                "a? Valid: a, b."
            ),
        ),
        Row(
            "an unknown child",
            urdf(joint("j", "a", "bb")),
            (
                "Cannot read 'arm.urdf': there is no link (the child of joint 'j') named 'bb'. Did you mean "
                "b? Valid: a, b."
            ),
        ),
        Row(
            "two parents",
            urdf(joint("j", "a", "c"), joint("k", "b", "c"), links="abc"),
            "Cannot read 'arm.urdf': link 'c' has two parents, by joints 'j' and 'k': a URDF is a tree.",
        ),
        Row(
            "two roots",
            urdf(HINGE, links="abc"),
            "Cannot read 'arm.urdf': it has 2 root links, a, c: a URDF has one.",
        ),
        Row(
            "links in a ring",
            urdf(joint("j", "b", "c"), joint("k", "c", "b"), links="abc"),
            "Cannot read 'arm.urdf': the links b, c hang on each other in a ring: a URDF is a tree.",
        ),
        Row(
            "a joint without a parent",
            urdf('  <joint name="j" type="fixed"><child link="b"/></joint>'),
            "Cannot read 'arm.urdf': joint 'j' (line 4) has no <parent>.",
        ),
        Row(
            "an axis of no length",
            urdf(joint("j", "a", "b", inside='<axis xyz="0 0 0"/>' + LIMIT)),
            "Cannot read 'arm.urdf': the axis of joint 'j' (line 4) is zero.",
        ),
        Row(
            "too few numbers",
            urdf(joint("j", "a", "b", inside='<axis xyz="0 1"/>' + LIMIT)),
            (
                "Cannot read 'arm.urdf': xyz='0 1' in <axis> of joint 'j' (line 4) must be 3 numbers, finite "
                "and in figures."
            ),
        ),
        Row(
            "words for numbers",
            urdf(joint("j", "a", "b", inside='<axis xyz="0 0 up"/>')),
            (
                "Cannot read 'arm.urdf': xyz='0 0 up' in <axis> of joint 'j' (line 4) must be 3 numbers, "
                "finite and in figures."
            ),
        ),
        Row(
            "a number that is NaN",
            urdf(joint("j", "a", "b", inside='<origin xyz="0 0 nan"/>')),
            (
                "Cannot read 'arm.urdf': xyz='0 0 nan' in <origin> of joint 'j' (line 4) must be 3 numbers, "
                "finite and in figures."
            ),
        ),
        Row(
            "limits upside down",
            urdf(joint("j", "a", "b", inside='<limit lower="2" upper="-1"/>')),
            "Cannot read 'arm.urdf': the limits of joint 'j' (line 4) run from 2 down to -1.",
        ),
        Row(
            "negative damping",
            urdf(joint("j", "a", "b", inside='<dynamics damping="-1"/>')),
            "Cannot read 'arm.urdf': the damping of joint 'j' (line 4) is -1; it must be ≥ 0.",
        ),
        Row(
            "an unknown joint to mimic",
            urdf(joint("j", "a", "b", inside='<mimic joint="k"/>')),
            (
                "Cannot read 'arm.urdf': there is no moving joint (for joint 'j' to mimic) named 'k'. Valid: "
                "j."
            ),
        ),
        Row(
            "joints that mimic each other",
            urdf(
                joint("j", "a", "b", inside='<mimic joint="k"/>'),
                joint("k", "b", "c", inside='<mimic joint="j"/>'),
                links="abc",
            ),
            "Cannot read 'arm.urdf': the joints j, k mimic each other in a ring: one of them must lead.",
        ),
        Row(
            "a negative mass",
            urdf(HINGE, inertial=INERTIAL.replace('"1"', '"-1"', 1)),
            "Cannot read 'arm.urdf': the mass of link 'b' (line 3) is -1 kg; it must be ≥ 0.",
        ),
        Row(
            "a missing mass",
            urdf(HINGE, inertial=INERTIAL.replace('<mass value="1"/>', "")),
            "Cannot read 'arm.urdf': the <inertial> of link 'b' (line 3) has no <mass>.",
        ),
        Row(
            "an impossible inertia",
            urdf(HINGE, inertial=INERTIAL.replace('izz="1"', 'izz="3"')),
            (
                "Cannot read 'arm.urdf': the inertia of link 'b' (line 3) violates the triangle inequality: "
                "principal moments 1 + 1 < 3 kg·m²."
            ),
        ),
        Row(
            "an inertia that is not positive",
            urdf(HINGE, inertial=INERTIAL.replace('xy="0"', 'xy="2"')),
            (
                "Cannot read 'arm.urdf': the inertia of link 'b' (line 3) has a negative principal moment, "
                "-1 kg·m²."
            ),
        ),
    ],
    "MJCF": [
        Row(
            "a missing include",
            text('<mujoco>\n<include file="leg.xml"/>\n</mujoco>', "arm.xml"),
            "Cannot read 'arm.xml': MuJoCo refuses it: Error opening file 'leg.xml' (<include>, line 2).",
        ),
        Row(
            "an unknown element",
            mjcf(inside="<jiont/>"),
            (
                "Cannot read 'arm.xml': MuJoCo refuses it: Schema violation: unrecognized element (<jiont>, "
                "line 4)."
            ),
        ),
        Row(
            "an unknown attribute",
            mjcf('<joint naem="j"/>'),
            (
                "Cannot read 'arm.xml': MuJoCo refuses it: Schema violation: unrecognized attribute: 'naem' "
                "(<joint>, line 4)."
            ),
        ),
        Row(
            "too few numbers",
            mjcf(BODY.replace("0 1 0", "0 1")),
            (
                "Cannot read 'arm.xml': MuJoCo refuses it: attribute 'axis' does not have enough data "
                "(<joint>, line 4)."
            ),
        ),
        Row(
            "words for numbers",
            mjcf(BODY.replace("0 1 0", "0 1 up")),
            "Cannot read 'arm.xml': MuJoCo refuses it: bad format in attribute 'axis' (<joint>, line 4).",
        ),
        Row(
            "a number that is NaN",
            mjcf(BODY.replace("0 1 0", "0 1 nan")),
            "Cannot read 'arm.xml': a value of axis= of <joint> (line 4) is not a number (nan).",
        ),
        Row(
            "an attribute that is empty",
            mjcf(more='<equality><connect body1="b" anchor=""/></equality>'),
            (
                "Cannot read 'arm.xml': MuJoCo fails on it, perhaps on anchor='' of <connect> (line 7), "
                "which is empty."
            ),
        ),
        Row(
            "an axis of no length",
            mjcf(BODY.replace("0 1 0", "0 0 0")),
            "Cannot read 'arm.xml': MuJoCo refuses it: axis too small in joint ('j', line 4).",
        ),
        Row(
            "a range upside down",
            mjcf(BODY.replace('"j"', '"j" range="2 -1"')),
            "Cannot read 'arm.xml': the range of joint 'j' (line 4) runs from 2 down to -1.",
        ),
        Row(
            "a negative mass",
            mjcf(BODY.replace('mass="1"', 'mass="-1"')),
            "Cannot read 'arm.xml': the mass of body 'b' (line 3) is -1 kg; it must be ≥ 0.",
        ),
        Row(
            "a moving body without mass",
            mjcf('<joint name="j"/>'),
            (
                "Cannot read 'arm.xml': MuJoCo refuses it: mass and inertia of moving bodies must be larger "
                "than 1e-15 ('b', line 3)."
            ),
        ),
        Row(
            "an impossible inertia",
            mjcf(BODY.replace("1 1 1", "1 1 3")),
            (
                "Cannot read 'arm.xml': the inertia of body 'b' (line 3) violates the triangle inequality: "
                "principal moments 1 + 1 < 3 kg·m²."
            ),
        ),
        Row(
            "an inertia that only a missing mesh gives",
            mjcf(f'<joint name="j"/>{CUP}', MESH),
            (
                "Cannot read 'arm.xml': body 'b' has no <inertial>, and mesh 'cup', from which its inertia "
                "is to be inferred, cannot be read (Error opening file 'cup.stl')."
            ),
        ),
        Row(
            "a name twice",
            mjcf(inside='<body name="b"/>'),
            "Cannot read 'arm.xml': MuJoCo refuses it: repeated name 'b' in body (<body>, line 4).",
        ),
        Row(
            "a tendon that acts",
            mjcf(more=TENDON.format('stiffness="1"')),
            "Cannot read 'arm.xml': tendon 't' (line 7) has stiffness, which is not supported.",
        ),
        Row(
            "an equality on tendons",
            mjcf(more=TENDON.format("") + '<equality><tendon name="e" tendon1="t"/></equality>'),
            (
                "Cannot read 'arm.xml': equality 'e' (line 7) is of type tendon, which is not supported; "
                "valid: connect, weld, joint."
            ),
        ),
        Row(
            "a plugin",
            mjcf(more='<extension><plugin plugin="mujoco.pid"><instance name="p"/></plugin></extension>'),
            "Cannot read 'arm.xml': plugins are not supported: mujoco.pid.",
        ),
        Row(
            "a class whose name holds a %",
            mjcf('<joint class="%s"/>'),
            (
                "Cannot read 'arm.xml': class='%s' of <joint> (line 4) holds a %, which is not supported "
                "there."
            ),
        ),
        Row(
            "a surrounding fluid",
            mjcf(more='<option density="1.2"/>'),
            (
                "Cannot read 'arm.xml': a surrounding fluid is not supported: <option density='1.2'>; take "
                "it out to do without."
            ),
        ),
        Row(
            "an actuator on an unknown joint",
            mjcf(more='<actuator><motor name="m" joint="k"/></actuator>'),
            "Cannot read 'arm.xml': there is no joint (for actuator 'm') named 'k'. Valid: j.",
        ),
        Row(
            "a spring in a ball joint",
            mjcf(BODY.replace("axis", 'type="ball" stiffness="1" axis')),
            "Cannot read 'arm.xml': stiffness of a ball joint is not supported, and joint 'j' has it.",
        ),
    ],
    "Simulation": [
        Row(
            "float32",
            lambda: in_float32(
                "m = mechid.Mechanism('m').body('a', mass=1.0).prismatic('x', 'world', 'a')\n"
                "mechid.simulate(m, mechid.Variational(0.01), 1)"
            ),
            (
                "JAX is in float32, mechid needs float64: call mechid.setup() (or set "
                "JAX_ENABLE_X64=1) before the first computation."
            ),
        ),
        Row(
            "a step of no length",
            lambda: simulate(pendulum(), Variational(0.0), 5),
            "The step size dt must be positive and finite, not 0.0.",
        ),
        Row(
            "a step of NaN",
            lambda: simulate(pendulum(), Variational(np.nan), 5),
            "The step size dt must be positive and finite, not nan.",
        ),
        Row(
            "a step in words",
            lambda: simulate(pendulum(), Variational("short"), 5),
            "The step size dt must be a number, not 'short'.",
        ),
        Row(
            "too few step sizes",
            lambda: simulate(pendulum(), Variational(np.full(3, 0.1)), 5),
            "3 step sizes were given for 5 steps.",
        ),
        Row(
            "varying steps where there must be one",
            lambda: simulate(pendulum(), BDF(np.full(5, 0.1)), 5),
            "BDF needs one constant step size dt; Variational takes varying ones.",
        ),
        Row(
            "a negative number of steps",
            lambda: simulate(pendulum(), STEP, -1),
            "The number of steps must be ≥ 0 and whole, not -1.",
        ),
        Row(
            "half a step",
            lambda: simulate(pendulum(), STEP, 2.5),
            "The number of steps must be ≥ 0 and whole, not 2.5.",
        ),
        Row(
            "an unknown rule",
            lambda: Variational(0.1, rule="simpson"),
            "There is no rule 'simpson'; valid: midpoint, trapezoidal.",
        ),
        Row(
            "unknown forces",
            lambda: Variational(0.1, forces="right"),
            "There is no forces='right'; valid: left, balanced.",
        ),
        Row(
            "an unknown order",
            lambda: BDF(0.1, order=7),
            "There is no BDF of order 7; valid: 1, 2, 3, 4, 5, 6.",
        ),
        Row(
            "a negative compliance",
            lambda: simulate(pendulum(), Spook(0.01, compliance=-1.0), 5),
            "The compliance of Spook must be ≥ 0, not -1.0.",
        ),
        Row(
            "softness of a joint that is not there",
            lambda: simulate(pendulum(), Spook(0.01, constraints={"elbow": Softness(1e-5)}), 5),
            "There is no constraint (of Spook) named 'elbow'. Valid: hinge.",
        ),
        Row(
            "a number for a joint's softness",
            lambda: simulate(pendulum(), Spook(0.01, constraints={"hinge": 1e-5}), 5),
            "The softness of 'hinge' must be Softness(…), not 1e-05.",
        ),
        Row(
            "too many coordinates",
            lambda: simulate(pendulum(), STEP, 5, q=[0.0, 1.0]),
            "The initial coordinate must have shape (1,), not shape (2,).",
        ),
        Row(
            "too many rates",
            lambda: simulate(pendulum(), STEP, 5, v=[0.0, 1.0]),
            "The initial rate must have shape (1,), not shape (2,).",
        ),
        Row(
            "a coordinate of NaN",
            lambda: simulate(pendulum(), STEP, 5, q={"hinge": np.nan}),
            "The initial coordinate 'hinge' must be finite, not nan.",
        ),
        Row(
            "a rate of NaN",
            lambda: simulate(pendulum(), STEP, 5, v=[np.nan]),
            "The initial rate must be finite, not [nan].",
        ),
        Row(
            "an unknown coordinate",
            lambda: simulate(pendulum(), STEP, 5, q={"hing": 1.0}),
            "There is no coordinate named 'hing'. Did you mean hinge? Valid: hinge.",
        ),
        Row(
            "too many inputs",
            lambda: simulate(pendulum(), STEP, 5, inputs=np.zeros((5, 2))),
            "The inputs (hinge.torque) must have shape (5, 1), not shape (5, 2).",
        ),
        Row(
            "an input of NaN",
            lambda: simulate(pendulum(), STEP, 5, inputs=np.full((5, 1), np.nan)),
            "The inputs (hinge.torque) must be finite, not [[nan], [nan], [nan], [nan], [nan]].",
        ),
        Row(
            "a single NaN among many inputs",
            lambda: simulate(pendulum(), STEP, 50, inputs=[[0.0]] * 49 + [[np.nan]]),
            "The inputs (hinge.torque) must be finite, not nan at (49, 0).",
        ),
        Row(
            "a controller that gives too much",
            lambda: simulate(pendulum(), STEP, 5, inputs=lambda t, q, v: np.zeros(2)),
            "The controller gives shape (2,), not one value for each input (hinge.torque).",
        ),
        Row(
            "a controller of other arguments",
            lambda: simulate(pendulum(), STEP, 5, inputs=lambda q: q),
            "The controller must be a function of (t, q, v).",
        ),
        Row(
            "something else than a mechanism",
            lambda: simulate("arm.urdf", STEP, 5),
            "A simulation needs a Mechanism, not 'arm.urdf'.",
        ),
        Row(
            "something else than a stepper",
            lambda: simulate(pendulum(), 0.01, 5),
            "A simulation needs a stepper (Variational, Spook, BDF or OneStep), not 0.01.",
        ),
        Row(
            "a start time that is no number",
            lambda: simulate(pendulum(), STEP, 5, t0=np.nan),
            "The start time t0 must be finite, not nan.",
        ),
        Row(
            "another mechanism's model",
            lambda: simulate(pendulum(), STEP, 5, model=two_links().lower()),
            "The model given is not one of mechanism 'pendulum'.",
        ),
        Row(
            "a state to keep every zero steps",
            lambda: simulate(pendulum(), STEP, 5, every=0),
            "The states to keep, every=0, must be ≥ 1 and whole.",
        ),
        Row(
            "a run that is no dictionary",
            lambda: simulate_batch(pendulum(), STEP, 5, [3]),
            "Run 0 must be a dictionary of q, v, inputs, t0, model, not 3.",
        ),
        Row(
            "nothing to hold",
            lambda: assemble(pinned(), hold=None),
            "What to hold must name coordinates, not None.",
        ),
        Row(
            "a loop that is open at the start",
            lambda: simulate(pinned(), STEP, 5),
            (
                "The initial coordinates leave 'pin' open by 0.1 m or rad: find consistent ones with "
                "assemble(…)."
            ),
        ),
        Row(
            "rates that tear a loop",
            lambda: simulate(held(), STEP, 5, v={"hinge": 1.0}),
            "The initial rates open 'pin' at 2 m/s or rad/s: find consistent ones with project_rates(…).",
        ),
        Row(
            "a loop that cannot be closed",
            lambda: assemble(pinned()),
            "Loop 'pin' cannot be closed: it stays open by 0.1 m.",
        ),
        Row(
            "an unknown coordinate to hold",
            lambda: assemble(held(), hold=["knee"]),
            "There is no coordinate named 'knee'. Valid: hinge, elbow.",
        ),
        Row(
            "rates that cannot be kept",
            lambda: project_rates(held(), [0.0, 0.0], {"hinge": 1.0}, hold=["hinge", "elbow"]),
            "No rates with hinge, elbow held keep 'pin' closed: it opens at 2 m/s or rad/s.",
        ),
        Row(
            "an unknown argument of a run",
            lambda: simulate_batch(pendulum(), STEP, 5, [{"q": [0.1]}, {"p": [0.1]}]),
            "There is no argument (of run 1) named 'p'. Valid: q, v, inputs, t0, model.",
        ),
        Row(
            "no workers",
            lambda: simulate_batch(pendulum(), STEP, 5, [{}], workers=0),
            "The number of workers must be ≥ 1, not 0.",
        ),
        Row(
            "an unknown frame of a trajectory",
            lambda: at_rest().frame("top"),
            "There is no frame named 'top'. Did you mean tip? Valid: world, rod, tip.",
        ),
    ],
    "Parameters and derivatives": [
        Row(
            "an unknown address",
            lambda: free("hinge.dampin"),
            (
                "There is no number with the address 'hinge.dampin'. Near matches: hinge.damping, "
                "hinge.cubic_damping, hinge.torque.gain, hinge.origin.z."
            ),
        ),
        Row(
            "a pattern that matches nothing",
            lambda: free("*.stiffness"),
            (
                "There is no number with the address '*.stiffness'. Valid: gravity.x, gravity.y, gravity.z, "
                "gravity.tilt.x, gravity.tilt.y, gravity.tilt.z, rod.mass, rod.com.x, rod.com.y, rod.com.z, "
                "rod.inertia.xx, rod.inertia.yy, … (43 in all)."
            ),
        ),
        Row(
            "an address that is no text", lambda: free(3), "An address is a text like 'elbow.damping', not 3."
        ),
        Row(
            "an ambiguous address",
            lambda: Parameters(
                pendulum().spring("hinge", stiffness=1.0).line_spring("hinge", "tip", "world", stiffness=1.0)
            ).free("hinge.stiffness"),
            (
                "Address 'hinge.stiffness' is ambiguous: it could mean line_spring/hinge.stiffness, "
                "spring/hinge.stiffness. Write the kind in front."
            ),
        ),
        Row(
            "a number freed twice",
            lambda: free().free("hinge.damping", name="again"),
            (
                "Number 'hinge.damping' would be moved twice: by parameter 'hinge.damping' and by parameter "
                "'again'."
            ),
        ),
        Row(
            "a parameter's name twice",
            lambda: free(name="b").free("rod.mass", name="b"),
            "There is a parameter 'b' already: names must be unique.",
        ),
        Row(
            "numbers of different units as one",
            lambda: free("rod.*", name="all"),
            (
                "Parameter 'all' would tie numbers of different units (kg, m, kg·m², kg·m): give unit=…, or "
                "free them apart."
            ),
        ),
        Row(
            "bounds upside down",
            lambda: free(bounds=(1.0, 0.0)),
            "The bounds of parameter 'hinge.damping' must be numbers with lower < upper, not (1.0, 0.0).",
        ),
        Row(
            "one bound",
            lambda: free(bounds=1.0),
            "The bounds of parameter 'hinge.damping' must be a pair, not 1.0.",
        ),
        Row(
            "a start outside the bounds",
            lambda: free(start=3.0, bounds=(0.0, 1.0)),
            (
                "The start of parameter 'hinge.damping' is 3 N·m·s/rad; with transform 'none' it must lie "
                "inside 0 … 1."
            ),
        ),
        Row(
            "an interval without an end",
            lambda: free(transform="interval", bounds=(0.0, None)),
            "The transform 'interval' of parameter 'hinge.damping' needs both bounds, not (0.0, None).",
        ),
        Row(
            "an unknown transform",
            lambda: free(transform="log"),
            "The transform of parameter 'hinge.damping' is 'log'; valid: none, positive, interval.",
        ),
        Row(
            "a prior without a width",
            lambda: free(prior=(0.1, 0.0)),
            "The prior of parameter 'hinge.damping' has std 0; it must be > 0.",
        ),
        Row(
            "a factor of zero",
            lambda: Parameters(pendulum()).tie("b", {"hinge.damping": 0.0}),
            "The factor of 'hinge.damping' in parameter 'b' is zero.",
        ),
        Row(
            "addresses without factors",
            lambda: Parameters(pendulum()).tie("b", ["hinge.damping"]),
            "Parameter 'b' moves nothing: give addresses with factors, {'elbow.damping': 1.0}.",
        ),
        Row(
            "the inertia of an unknown body",
            lambda: Parameters(pendulum()).free_inertia("rodd"),
            "There is no body named 'rodd'. Did you mean rod? Valid: rod.",
        ),
        Row(
            "the inertia of a massless body",
            lambda: Parameters(two_links().body("pad").fixed("glue", "arm", "pad")).free_inertia("pad"),
            (
                "Body 'pad' is massless: its inertia cannot be freed in the physically consistent form. Free "
                "its mass or inertia entries by their addresses instead."
            ),
        ),
        Row(
            "a limit that the start violates",
            lambda: free().limit({"hinge.damping": 1.0}, upper=0.05),
            "The start violates the limit on hinge.damping: 0.1 is more than 0.05.",
        ),
        Row(
            "a theta of the wrong length",
            lambda: free().numbers([0.1, 0.2]),
            "theta must have shape (1,), not (2,).",
        ),
        Row("a theta in words", lambda: free().values("abc"), "theta must be numbers, not 'abc'."),
        Row("a theta of NaN", lambda: free().apply([np.nan]), "theta must be finite, not [nan]."),
        Row(
            "slopes of the wrong shape",
            lambda: adjoint(moved(), free(), [0.1], np.zeros((2, 2))),
            "The slopes of the cost by the states must have shape (3, 2), not shape (2, 2).",
        ),
        Row(
            "sensitivities without steps",
            lambda: sensitivities(at_rest(), free(), [0.1]),
            "A trajectory without steps has no derivatives: simulate at least one step.",
        ),
        Row(
            "transitions without steps",
            lambda: transitions(at_rest()),
            "A trajectory without steps has no derivatives: simulate at least one step.",
        ),
    ],
    "Writing": [
        Row(
            "a mechanism of another file",
            lambda: (arm(), write_mechanism(pendulum(), "arm.urdf", "x.urdf")),
            (
                "The mechanism is not the one of 'arm.urdf': it has the bodies rod, which the file has not "
                "and it lacks the file's bodies a, b."
            ),
        ),
        Row(
            "a mechanism with another joint",
            lambda: write_mechanism(
                read_mechanism_text(robot(joint("j", "a", "b", "prismatic"))),
                file("arm.urdf", robot(HINGE)),
                "x.urdf",
            ),
            (
                "The mechanism is not the one of 'arm.urdf': the kind, the ends or the axes of these joints "
                "differ from the file's: j."
            ),
        ),
        Row(
            "an armature into a URDF",
            lambda: write_mechanism(arm().armature("j", inertia=0.1), "arm.urdf", "x.urdf"),
            'A URDF has no place for armature of j: ignore=("armature",) leaves such numbers out.',
        ),
        Row(
            "an unknown quantity to leave out",
            lambda: write_mechanism(arm(), "arm.urdf", "x.urdf", ignore=("armatur",)),
            (
                "There is no quantity (for ignore) named 'armatur'. Did you mean armature or ratio? Valid: "
                "stiffness, cubic_stiffness, rest, damping, cubic_damping, coulomb, stribeck, "
                "stribeck_velocity, stribeck_exponent, friction_width, slow_damping, load_coefficient, "
                "… (56 in all)."
            ),
        ),
        Row(
            "a read-only target",
            lambda: write_mechanism(arm(), "arm.urdf", frozen("x.urdf")),
            "'/home/me/x.urdf' is read-only.",
        ),
        Row(
            "a missing folder to write into",
            lambda: write_mechanism(arm(), "arm.urdf", "new/x.urdf"),
            "There is no folder '/home/me/new' to write 'x.urdf' into.",
        ),
        Row(
            "a folder to write over",
            lambda: (Path("new").mkdir(), write_mechanism(arm(), "arm.urdf", "new")),
            "'/home/me/new' is a folder, not a file to write.",
        ),
        Row(
            "something that is no mechanism",
            lambda: write_mechanism(free(), "arm.urdf", "x.urdf"),
            "A mechanism is written, not Parameters: give parameters.apply(theta).",
        ),
    ],
}

FINE: list[Row] = [
    Row(
        "a missing mesh in a URDF",
        urdf(HINGE, inertial=f'{INERTIAL}<visual><geometry><mesh filename="b.stl"/></geometry></visual>'),
        "Geometry is left out: nothing touches anything.",
    ),
    Row(
        "a missing mesh in an MJCF beside a given inertia",
        mjcf(inside=CUP, more=MESH),
        "Left out: the contacts of 1 geom.",
    ),
    Row(
        "a missing mesh on a body that never moves",
        mjcf(CUP, MESH.replace("/asset>", f"/asset>{MOVES}")),
        "Meshes that cannot be read give no mass to bodies that never move: b.",
    ),
    Row(
        "a misspelt element in a URDF",
        urdf(joint("j", "a", "b", inside=f'{LIMIT}<orgin xyz="0 0 1"/>')),
        "What a URDF does not know is left out: <orgin> in <joint> (line 4).",
    ),
    Row("a thin rod", lambda: pendulum().body("box", mass=1.0, inertia=(1.0, 1.0, 0.0)), ""),
    Row("a thin plate", lambda: pendulum().body("box", mass=1.0, inertia=(1.0, 1.0, 2.0)), ""),
    Row(
        "a thin plate in six figures",
        lambda: pendulum().body("box", mass=1.0, inertia=(1.0, 1.0, 2.000001)),
        "",
    ),
    Row(
        "a body without mass between two others",
        lambda: pendulum().body("box").fixed("glue", "rod", "box"),
        "",
    ),
    Row(
        "negative damping with a cubic part", lambda: two_links().damper("elbow", damping=-1.0, cubic=1.0), ""
    ),
]
"""what looks like a mistake and is none; the sentence is what the mechanism's notes say of it"""

REFUSED, WORDS_OF = "MuJoCo refuses it: ", "4."
"""what follows is said by MuJoCo, in the words of this version"""

EVERY = [pytest.param(row, id=f"{part}: {row.what}") for part, rows in TABLE.items() for row in rows]


def plain(sentence: object) -> str:
    """A sentence without the folder of the test."""
    return str(sentence).replace(os.path.realpath("."), "/home/me")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("row", EVERY)
def test_what_is_said_of_a_mistake(row, folder, capfd):
    with pytest.raises(MechidError) as caught:
        row.provoke()
    said, want = plain(caught.value), row.sentence
    if not mujoco.__version__.startswith(WORDS_OF):
        said, want = (x.partition(REFUSED)[0] for x in (said, want))
    assert said == want
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("row", FINE, ids=lambda row: row.what)
def test_what_is_no_mistake(row, folder):
    notes = row.provoke().notes
    assert row.sentence in notes if row.sentence else not notes


def test_every_sentence_reads_well():
    """One line, with a full stop, short, and without the words of a programmer."""
    for rows in TABLE.values():
        assert len({row.what for row in rows}) == len(rows)
        for row in rows:
            s = row.sentence
            assert s.endswith("."), s
            assert not s[0].islower() or s.startswith("theta "), s
            assert len(s) < 330, s
            assert not re.search(
                r"[\n\t]|Traceback|\w+Error\b|NoneType|ndarray|dtype|<lambda>|object at|np\.", s
            ), s


def test_there_are_enough_rows():
    assert sum(map(len, TABLE.values())) >= 60


def test_the_page_is_up_to_date():
    """Run `python docs/make_errors.py` after a change of the table."""
    where = Path(__file__).parent.parent / "docs" / "make_errors.py"
    spec = importlib.util.spec_from_file_location("make_errors", where)
    assert spec is not None
    assert spec.loader is not None
    make = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make)
    assert where.with_name("errors.md").read_text(encoding="utf-8") == make.page(TABLE, FINE)
