"""Broken files: whatever stands in one, the readers give a mechanism or a sentence, and print nothing.

Every case has a seed, which a failure names; `broken(text, seed)` gives its text again. MECHID_FUZZ sets the number
of cases for each file.
"""

from __future__ import annotations

import os
import re
import warnings
from pathlib import Path

import numpy as np
import pytest

from mechid import MechidError
from mechid.model.reading import read_mechanism_text
from mechid.reference import reference_folder

CASES = int(os.environ.get("MECHID_FUZZ", "120"))
"""for a small file; a robot's file, which takes longer, has a third"""
FIRST = int(os.environ.get("MECHID_FUZZ_FIRST", "0"))
"""the first seed"""

URDF = """<?xml version="1.0"?>
<robot name="arm">
  <link name="base"><visual><geometry><mesh filename="base.stl"/></geometry></visual></link>
  <link name="upper">
    <inertial>
      <origin xyz="0 0 -0.5" rpy="0.1 0 0"/><mass value="2"/>
      <inertia ixx="0.2" iyy="0.2" izz="0.03" ixy="0" ixz="0.01" iyz="0"/>
    </inertial>
  </link>
  <link name="lower"><inertial><mass value="1.5"/>
    <inertia ixx="0.1" iyy="0.1" izz="0.1" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <link name="claw"/>
  <joint name="shoulder" type="revolute">
    <parent link="base"/><child link="upper"/><origin xyz="0 0 1" rpy="0.1 0.2 0.3"/><axis xyz="0 3 4"/>
    <limit lower="-1" upper="2" velocity="3" effort="40"/><dynamics damping="0.5" friction="0.25"/>
  </joint>
  <joint name="slide" type="prismatic">
    <parent link="upper"/><child link="lower"/><limit lower="0" upper="0.4" velocity="1" effort="1"/>
  </joint>
  <joint name="grip" type="continuous">
    <parent link="lower"/><child link="claw"/><mimic joint="slide" multiplier="-2" offset="0.1"/>
  </joint>
</robot>"""

MJCF = """<mujoco model="loop">
  <compiler angle="radian" autolimits="true"/>
  <option gravity="0 0 -9.8"><flag contact="disable"/></option>
  <default><joint damping="0.1"/><default class="stiff"><joint stiffness="3" springref="0.2"/></default></default>
  <asset><mesh name="cup" file="cup.stl"/><material name="red" rgba="1 0 0 1"/></asset>
  <worldbody>
    <geom name="floor" type="plane" size="1 1 1"/>
    <body name="crank" pos="0 0 1" euler="0 0.1 0">
      <inertial pos="0.1 0 0" mass="2" diaginertia="0.1 0.15 0.2"/>
      <joint name="a" axis="0 1 0" range="-1 2" armature="0.01" frictionloss="0.1"/>
      <site name="tip" pos="0.5 0 0"/>
      <body name="rod" pos="0.5 0 0">
        <joint name="b" class="stiff" axis="0 1 0" pos="0 0 0.1" ref="0.1"/>
        <joint name="c" type="slide" axis="1 0 0"/>
        <geom type="capsule" fromto="0 0 0 0.5 0 0" size="0.02" density="500"/>
        <body name="ball" pos="0.5 0 0">
          <inertial pos="0 0 0" mass="1" fullinertia="0.1 0.1 0.1 0 0.01 0"/>
          <joint name="d" type="ball" damping="0.2"/>
          <geom type="mesh" mesh="cup" material="red"/>
        </body>
      </body>
    </body>
    <body name="free" pos="1 0 0"><freejoint name="f"/><geom type="box" size="0.1 0.2 0.3" mass="1"/></body>
  </worldbody>
  <equality>
    <connect name="pin" body1="ball" body2="free" anchor="0 0 0"/>
    <joint name="gear" joint1="b" joint2="a" polycoef="0.1 2 0 0 0"/>
    <weld name="held" site1="tip" site2="end"/>
  </equality>
  <contact><exclude body1="crank" body2="rod"/></contact>
  <tendon><fixed name="t"><joint joint="a" coef="1"/></fixed></tendon>
  <actuator><motor name="m" joint="a" gear="10" ctrlrange="-1 1"/><position name="p" joint="b" kp="3"/></actuator>
  <sensor><jointpos joint="a"/></sensor>
  <keyframe><key name="home" qpos="0 0 0 1 0 0 0 1 0 0 1 0 0 0"/></keyframe>
</mujoco>""".replace('<freejoint name="f"/>', '<freejoint name="f"/><site name="end"/>')

ROBOTS = (
    "baxter.urdf",
    "franka_emika_panda/panda.xml",
    "universal_robots_ur10e/ur10e.xml",
    "kuka_iiwa_14/iiwa14.xml",
    "cassie/cassie.xml",
)

VALUES = (
    "nan", "inf", "-inf", "1e400", "-1", "0", "", " ", "x", "1e308", "-1e308", "1e-320", "1e-12", "1e12", "0 0 0",
    "1 2", "1 nan 0", "inf 0 0", "true", "free", "ball", "world", "9" * 400, "é", "😀", "\u2028", "&#10;", "&lt;",
    "*", "a b", "[", "a\tb", "0x10", "1_0", "١", "1,5", "--1", "1e", "a" * 3000, "2147483648", "-2147483649",
    "99999999999999999999", "../..", "/dev/null", "%s%n", "{0}", "planar", "floating", "mimic",
)  # fmt: skip
"""what a value is replaced by"""
WORDS = (
    "link", "joint", "inertial", "inertia", "mass", "origin", "axis", "limit", "mimic", "parent", "child", "name",
    "body", "geom", "site", "freejoint", "frame", "replicate", "worldbody", "equality", "connect", "weld", "tendon",
    "default", "class", "compiler", "option", "flag", "asset", "include", "attach", "size", "pos", "quat", "euler",
    "axisangle", "xyaxes", "zaxis", "range", "ref", "springref", "type", "gravcomp", "mocap", "childclass",
    "damping", "robot", "mujoco", "fullinertia", "diaginertia", "extension", "plugin", "composite", "flexcomp",
    "count", "dim", "xacro:macro", "custom", "keyframe", "joint1", "body1", "site1", "anchor", "polycoef",
    "actuator", "a:b", "_",
)  # fmt: skip
"""what a name of an element or attribute is replaced by"""
EXTRAS = (
    "<joint/>", "<body/>", "<freejoint/>", '<joint type="ball"/>', '<joint type="free"/>', "<inertial/>", "<link/>",
    '<link name="x"/>', '<include file="x.xml"/>', '<frame euler="0 0 1"/>', "<!-- -- -->", "<![CDATA[ x ]]>", "&",
    "<?x y?>", '<replicate count="3"/>', "<default/>", "<compiler/>", '<compiler settotalmass="1"/>', "<option/>",
    '<compiler inertiafromgeom="true"/>', '<compiler balanceinertia="true"/>', '<compiler coordinate="global"/>',
    '<compiler boundmass="0.1" boundinertia="0.1"/>', '<compiler angle="degree" eulerseq="zyx"/>', "&a;", "\0",
    '<geom type="mesh" mesh="cup"/>', '<geom size="0.1"/>', '<composite type="cable" count="3 1 1"/>', "\u0007",
    '<option density="1"/>', '<size nuserdata="1000000" memory="1M"/>', '<motor joint="a"/>', '<site name="s"/>',
    '<weld body1="a" body2="b"/>', '<mimic joint="shoulder"/>', '<attach model="x"/>', "<robot/>", "<mujoco/>",
    '<numeric data="1"/>', '<plugin plugin="mujoco.pid"/>', '<hfield name="h" nrow="2" ncol="2" size="1 1 1 1"/>',
    '<!DOCTYPE x [<!ENTITY a "b">]>', '<?xml version="1.0" encoding="latin-1"?>', "<a xmlns:xacro='x'/>", "]]>",
)  # fmt: skip
"""what is put between elements"""

_VALUE = re.compile(r"""(?<==")[^"]*(?=")|(?<==')[^']*(?=')""")
_NUMBER = re.compile(r"""(?<=[\s"'])[-+]?\d[\d.eE+-]*(?=[\s"'])""")
_ATTRIBUTE = re.compile(r"""\s[\w:]+=("[^"]*"|'[^']*')""")
_NAME = re.compile(r"(?<=<)[\w:]+|\b[\w:]+(?==[\"'])")
_LEAF = re.compile(r"<[\w:]+(\s[^<>]*)?/>")
_BLOCK = re.compile(r"<([\w:]+)(\s[^<>]*)?(?<!/)>.*?</\1>", re.DOTALL)
_BETWEEN = re.compile(r"(?<=>)\s*(?=<)")


def broken(text: str, seed: int) -> str:
    """A text with one to four mistakes in it."""
    rng = np.random.default_rng(seed)
    for _ in range(rng.choice([1, 1, 1, 2, 2, 3, 4])):
        text = _mistake(text, rng)
    return text


def _mistake(text: str, rng: np.random.Generator) -> str:
    def pick(values):
        return values[rng.integers(len(values))]

    def spot(pattern):
        found = [m.span() for m in pattern.finditer(text)]
        return pick(found) if found else (0, 0)

    def put(span, new):
        return text[: span[0]] + new + text[span[1] :]

    def inside(pattern):
        a, b = spot(pattern)
        return text[a:b]

    kind = rng.integers(20)
    if kind == 0:  # any byte
        data = bytearray(text.encode("utf-8", "replace"))
        for _ in range(rng.integers(1, 4) if data else 0):
            data[rng.integers(len(data))] = rng.integers(256)
        return data.decode("utf-8", pick(["replace", "ignore", "surrogateescape"]))
    if kind == 1:
        return text[: rng.integers(len(text))] if len(text) > 1 else text
    if kind == 2:
        return put(spot(_ATTRIBUTE), "")
    if kind == 3:
        a, b = spot(_ATTRIBUTE)
        return put((a, b), text[a:b] * 2)
    if kind == 4:
        return put(spot(_NAME), pick(WORDS))
    if kind == 5:
        return put(spot(pick([_LEAF, _BLOCK])), "")
    if kind == 6:
        a, b = spot(pick([_LEAF, _BLOCK]))
        return put((a, b), text[a:b] * rng.integers(2, 4))
    if kind == 7:  # deep
        a, b = spot(_LEAF if rng.random() < 0.5 else _BLOCK)
        name, times = pick(WORDS), pick([2, 50, 400, 3000])
        return put((a, b), f"<{name}>" * times + text[a:b] + f"</{name}>" * times)
    if kind == 8:  # elsewhere
        piece = inside(pick([_LEAF, _BLOCK]))
        return put(spot(_BETWEEN), piece)
    if kind == 9:
        return put(spot(_BETWEEN), pick(EXTRAS))
    if kind == 10:  # an attribute of another element
        a, _ = spot(_ATTRIBUTE)
        return put((a, a), inside(_ATTRIBUTE))
    if kind in (11, 12):  # another element's value
        return put(spot(_VALUE), inside(_VALUE))
    if kind in (13, 14, 15):
        return put(spot(_NUMBER), pick(VALUES))
    if kind == 16:
        a, _ = spot(_ATTRIBUTE)
        return put((a, a), f' {pick(WORDS)}="{pick(VALUES)}"')
    if kind == 17:
        number = inside(_NUMBER)
        return put(spot(_NUMBER), f"{number}{pick(['e5', 'e-9', 'e30', 'e160', ' 1', '.', 'x'])}")
    return put(spot(_VALUE), pick(VALUES))


def outcome(text: str) -> str:
    """What is said against a text; nothing where it makes a mechanism that can be moved. All else is raised."""
    with warnings.catch_warnings(action="error"):
        try:
            read_mechanism_text(text).checked().lower()
        except MechidError as error:
            return str(error)
    return ""


def complaint(sentence: str) -> str:
    """What is wrong with a sentence, if anything."""
    if not sentence.endswith("."):
        return "it has no full stop"
    if len(sentence) < 10 or re.search(r"[\x00-\x1f\x7f\u2028\u2029]", sentence):
        return "it is not one line of text"
    if re.search(r"\b\w*(Error|Warning),|<class '|object at 0x|\bNoneType\b", sentence):
        return "it shows the inside of a program"
    if len(sentence) > 600:
        return "it is too long"
    return ""


def fuzzed(text: str, cases: int) -> None:
    kinds = set()
    for seed in range(FIRST, FIRST + cases):
        try:
            sentence = outcome(broken(text, seed))
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
        assert not sentence or not complaint(sentence), f"seed {seed}: {complaint(sentence)}: {sentence!r}"
        kinds.add(bool(sentence))
    assert kinds == {True, False}


@pytest.fixture
def silence(capfd, tmp_path, monkeypatch):
    """Nothing is printed and nothing is left in the folder."""
    monkeypatch.chdir(tmp_path)
    yield
    assert capfd.readouterr() == ("", "")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", [URDF, MJCF], ids=["urdf", "mjcf"])
def test_whole_files_are_read(text):
    assert outcome(text) == ""


@pytest.mark.parametrize("text", [URDF, MJCF], ids=["urdf", "mjcf"])
def test_broken_files_give_a_mechanism_or_a_sentence(text, silence):
    fuzzed(text, 3 * CASES)


@pytest.mark.parametrize("robot", ROBOTS)
def test_broken_robots_give_a_mechanism_or_a_sentence(robot, reference, silence):
    fuzzed(reference.joinpath("data", "models", robot).read_text(), CASES // 3)


def test_a_file_that_breaks_mujocos_reader_does_no_harm_to_the_next(silence):
    """Without a thread of its own the second reading would not end."""
    assert "anchor=''" in outcome(MJCF.replace('anchor="0 0 0"', 'anchor=""'))
    assert "not a number" in outcome(MJCF.replace('axis="0 1 0"', 'axis="0 1 nan"', 1))
    assert outcome(MJCF) == ""


def main() -> None:
    """Every case of every file without stopping, told one a line: for long runs."""
    import sys
    import traceback

    texts = {"urdf": URDF, "mjcf": MJCF}
    texts |= {r: p.read_text() for r in ROBOTS if (p := reference_folder() / "data" / "models" / r).is_file()}
    last = Path(sys.argv[1])
    for seed in range(FIRST, FIRST + CASES):
        for name, text in texts.items():
            last.write_text(f"{name} {seed}")
            try:
                sentence = outcome(broken(text, seed))
                wrong = sentence and complaint(sentence)
            except Exception:
                sentence, wrong = traceback.format_exc(limit=-3), "raised"
            if wrong:
                print(f"== {name} {seed} {wrong}: {sentence[:1500]}", flush=True)


if __name__ == "__main__":
    import mechid

    mechid.enable_float64()
    main()
