"""A mechanism prints as a tree with names and units."""

from __future__ import annotations

from mechid import Mechanism
from mechid.studies import mechanisms


def lines(mechanism: Mechanism) -> list[str]:
    return repr(mechanism).splitlines()


def test_pendulum() -> None:
    text = lines(mechanisms.pendulum(damping=0.02))
    assert text[0].startswith("pendulum: 1 bod")
    assert text[0].endswith(", gravity (0, 0, -9.81) m/s²")
    assert text[1:] == [
        "world",
        "└─ rod [1 kg] by revolute hinge about y",
        "        · damper hinge: damping 0.02 N·m·s/rad",
        "        · motor hinge.torque: gain 1 N·m/input, gear ratio 1",
        "inputs: hinge.torque",
    ]


def test_four_bar() -> None:
    assert lines(mechanisms.four_bar(damping=0.05)) == [
        "four-bar: 3 bodies, 3.5 kg, 3 coordinates, 2 constraint rows, gravity (0, 0, -9.81) m/s²",
        "world",
        "├─ crank [1 kg] by revolute a about y",
        "│       · motor a.torque: gain 1 N·m/input, gear ratio 1",
        "│  └─ coupler [1.5 kg] by revolute b about y at (0.2, 0, 0) m",
        "│     └─ frame coupler-end at (0.5, 0, 0) m",
        "└─ rocker [1 kg] by revolute c about y at (0.4, 0, 0) m",
        "        · damper c: damping 0.05 N·m·s/rad",
        "   └─ frame rocker-end at (0.4, 0, 0) m",
        "loop closure: coupler-end ≡ rocker-end (pin, 2 rows)",
        "inputs: a.torque",
    ]


def every_kind() -> Mechanism:
    return (
        Mechanism("zoo", gravity=(0, 0, 0))
        .body("cart", mass=2.0)
        .prismatic("slide", "world", "cart", axis="-x")
        .body("hub")
        .universal("cardan", "cart", "hub", axes="xz", coordinates=("theta", "psi"))
        .body("plate", mass=0.25)
        .fixed("weld", "hub", "plate")
        .frame("eye", "world", origin=(0, 0, 1))
        .spring("slide", stiffness=3.0, cubic=2.0, rest=0.1)
        .spring("theta", stiffness=0.0, name="slack")
        .damper("slide", damping=0.5, cubic=0.25)
        .friction("psi", coulomb=0.1, stribeck=0.05)
        .dry_friction("theta", coulomb=0.2, load_coefficient=0.1, load_radius=0.02)
        .motor("psi", gain=0.03, gear_ratio=50, rotor_inertia=1e-5)
        .armature("slide", inertia=0.7)
        .line_spring("cord", "eye", "plate", stiffness=10, rest=0.5, damping=0.2)
        .force("push", "plate")
        .force("screw", "hub", axes="body", moment=True)
        .element("own", ["theta", "psi"], potential=lambda q, p: p[0] * q[0], parameters={"k": 3.0})
        .coupling("gear", "psi", "theta", ratio=-2, offset=0.5, higher=(0, 0.25))
        .drive("slide")
    )


def test_every_kind_of_part_shows_its_numbers_with_units() -> None:
    text = lines(every_kind())
    for line in (
        "├─ frame eye at (0, 0, 1) m",
        "└─ cart [2 kg] by prismatic slide along -x",
        "        · spring slide: stiffness 3 N/m, cubic stiffness 2 N/m³, rest 0.1 m",
        "        · damper slide: damping 0.5 N·s/m, cubic damping 0.25 N·s³/m³",
        "        · armature slide: armature 0.7 kg",
        "   └─ hub [massless] by universal cardan about x about z as theta, psi",
        "           · spring slack: zero",
        "           · friction psi: coulomb 0.1 N·m, stribeck 0.05 N·m, "
        "stribeck velocity 0.1 rad/s, "
        "stribeck exponent 2, friction width 0.01 rad/s",
        "           · dry friction theta: coulomb 0.2 N·m, stribeck velocity 0.1 rad/s, stribeck exponent 2, "
        "load coefficient 0.1, load radius 0.02 m",
        "           · motor psi.motor: gain 0.03 N·m/input, gear ratio 50, rotor inertia 1e-05 kg·m²",
        "      └─ plate [0.25 kg] by fixed weld",
        "coupling gear: psi = 0.5 + -2·theta + 0.25·theta^3",
        "drive slide.drive: slide follows its input",
        "line spring cord: eye to plate, stiffness 10 N/m, rest 0.5 m, damping 0.2 N·s/m",
        "force push: at plate, in world axes (input)",
        "force and moment screw: at hub, in body axes (input)",
        "element own: on theta, psi k 3",
        "inputs: psi.motor, push.x, push.y, push.z, screw.fx, screw.fy, screw.fz, screw.mx, "
        "screw.my, screw.mz, slide.drive",
    ):
        assert line in text, f"{line}\nis not in\n" + "\n".join(text)
    assert not any(line.endswith(" ") for line in text)


def test_bodies_that_hang_on_nothing_yet_are_shown() -> None:
    unfinished = mechanisms.pendulum().body("spare", mass=4.0).frame("grip", "spare")
    text = repr(unfinished)
    assert "spare [4 kg]" in text
    assert "frame grip" in text
