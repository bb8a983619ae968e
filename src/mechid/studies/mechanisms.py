"""The mechanisms of the studies and tests."""

from __future__ import annotations

import json
from collections.abc import Callable
from math import copysign, cos, pi, sin, tan
from typing import Any

import jax.numpy as jnp
import numpy as np

from mechid.model.geometry import roll_pitch_yaw, rotation_about
from mechid.model.mechanism import Mechanism
from mechid.reference import reference_file


def pendulum(length: float = 0.5, mass: float = 1.0, damping: float = 0.0) -> Mechanism:
    """A uniform rod on a hinge about y, hanging at 0, with a torque."""
    return (
        Mechanism("pendulum")
        .body("rod", mass=mass, com=(0, 0, -length / 2), inertia=_rod(mass, length, "z"))
        .revolute("hinge", "world", "rod", axis="y")
        .damper("hinge", damping=damping)
        .torque("hinge")
    )


def cart_pendulum(
    cart: float = 1.0, pole: float = 0.3, length: float = 1.0, damping: float = 0.0
) -> Mechanism:
    """A pole hanging on a cart that slides along x, with a force on the cart."""
    return (
        Mechanism("cart-pendulum")
        .body("cart", mass=cart)
        .prismatic("slide", "world", "cart", axis="x")
        .body("pole", mass=pole, com=(0, 0, -length / 2), inertia=_rod(pole, length, "z"))
        .revolute("hinge", "cart", "pole", axis="y")
        .damper("hinge", damping=damping)
        .torque("slide")
    )


def four_bar(damping: float = 0.0) -> Mechanism:
    """Crank, coupler and rocker in the x–z plane, with a torque on the crank."""
    return (
        Mechanism("four-bar")
        .body("crank", mass=1.0, com=(0.1, 0, 0), inertia=_rod(1.0, 0.2, "x"))
        .revolute("a", "world", "crank", axis="y")
        .body("coupler", mass=1.5, com=(0.25, 0, 0), inertia=_rod(1.5, 0.5, "x"))
        .revolute("b", "crank", "coupler", axis="y", origin=(0.2, 0, 0))
        .body("rocker", mass=1.0, com=(0.2, 0, 0), inertia=_rod(1.0, 0.4, "x"))
        .revolute("c", "world", "rocker", axis="y", origin=(0.4, 0, 0))
        .damper("c", damping=damping)
        .torque("a")
        .frame("coupler-end", "coupler", origin=(0.5, 0, 0))
        .frame("rocker-end", "rocker", origin=(0.4, 0, 0))
        .loop("closure", "coupler-end", "rocker-end", kind="pin", axis="y")
    )


def furuta(
    inertia_arm: float = 3e-3,
    inertia_pendulum: float = 4e-3,
    damping_arm: float = 1e-3,
    damping_pendulum: float = 1e-4,
) -> Mechanism:
    """A Furuta pendulum (Marklund, Appendix G): an arm turning about the vertical, a pendulum about the arm.

    Sizes and masses are the paper's; inertias (kg·m²) are about the centres of mass, of the arm about the vertical,
    of the pendulum about its hinge. The pendulum hangs at 0.
    """
    return (
        Mechanism("furuta", gravity=(0, 0, -9.82))
        .body("arm", mass=0.238, com=(0.128, 0, 0), inertia=(1e-4, 3e-3, inertia_arm))
        .revolute("turn", "world", "arm", axis="z")
        .body("pendulum", mass=0.428, com=(0, 0, -0.092), inertia=(inertia_pendulum, 4e-3, 1e-4))
        .revolute("swing", "arm", "pendulum", axis="x", origin=(0.248, 0, 0))
        .damper("turn", damping=damping_arm)
        .damper("swing", damping=damping_pendulum)
        .torque("turn")
    )


def harmonic_drive_joint(
    *,
    reduction: float = 100.0,
    motor_inertia: float = 4e-4,
    link_inertia: float = 2.0,
    load: float = 20.0,
    stiffness: float = 0.5,
    cubic_stiffness: float = 0.3,
    gear_damping: float = 2e-3,
    damping: float = 5e-3,
    cubic_damping: float = 1e-6,
    dahl: float = 1e-3,
    coulomb: float = 0.05,
    slow_damping: float = 0.02,
    width: float = 2.0,
    stribeck_velocity: float = 5.0,
    stribeck_exponent: float = 1.0,
    link_damping: float = 1.0,
    link_coulomb: float = 2.0,
    link_width: float = 0.05,
    sine: float = 1.5,
    cosine: float = 0.8,
    motor_constant: float = 1.0,
) -> Mechanism:
    """The joint of da Silva, Eq. (3.8): a motor, a harmonic drive and a link, which stands upright at 0.

    What acts on the motor (J_in, T_d,in of Eq. 4.1) and in the gear (k1, k2 of Eq. 4.2) is in N·m and rad of the
    motor, what acts on the link (T_d,out and T_d,fscs, Eqs. 4.3 and 4.4) in those of the link. `load` is the
    largest moment of its weight, N·m. The input is the motor's current (A) where motor_constant is in N·m/A.
    """
    # half of the inertia is that of a point mass
    lever = 0.5 * 9.81 * link_inertia / load if load else 0.0
    mass = 2.0 * load**2 / (9.81**2 * link_inertia)
    return (
        Mechanism("harmonic drive", gravity=(0, 0, -9.81))
        .body("rotor", mass=0.1, inertia=(motor_inertia,) * 3)
        .revolute("motor", "world", "rotor", axis="y")
        .body("arm", mass=mass, com=(0, 0, lever), inertia=(link_inertia - mass * lever**2,) * 3)
        .revolute("link", "world", "arm", axis="y")
        .combination("twist", {"motor": 1.0, "link": -(reduction + 1.0)})
        .spring("twist", stiffness=stiffness, cubic=cubic_stiffness)
        .damper("twist", damping=gear_damping)
        .damper("motor", damping=damping, cubic=cubic_damping)
        .spring("motor", stiffness=dahl, name="dahl")
        .gear_friction(
            "motor",
            coulomb=coulomb,
            slow_damping=slow_damping,
            width=width,
            stribeck_velocity=stribeck_velocity,
            stribeck_exponent=stribeck_exponent,
        )
        .damper("link", damping=link_damping)
        .friction("link", coulomb=link_coulomb, width=link_width)
        .periodic_friction("link", sine=sine, cosine=cosine)
        .motor("motor", gain=motor_constant, name="current")
    )


FOUR_BAR_GUESS = {"a": -0.9, "b": 0.5, "c": -1.1}
"""near a configuration that closes it; hold a"""


def loop6(
    length: float = 1.0,
    mass: float = 0.2,
    kappa_theta: float = 20.0,
    kappa_psi: float = 20.0,
    damping: float = 0.0,
    axes: str = "world",
) -> Mechanism:
    """The hexagonal loop of six links (Caldwell's draft, Section IV.C): 13 coordinates, 6 constraints."""
    chain, parent, place = Mechanism("loop6", gravity=(0, 0, -9.8)), "world", {}
    for i in range(1, 7):
        theta, psi, link = f"theta{i}", f"psi{i}", f"link{i}"
        chain = (
            chain.body(link, mass=mass, com=(0, length / 2, 0), inertia=_rod(mass, length, "y"))
            .universal(f"joint{i}", parent, link, axes="xz", coordinates=(theta, psi), **place)
            .spring(theta, stiffness=kappa_theta)
            .spring(psi, stiffness=kappa_psi)
        )
        parent, place = link, {"origin": (0, length, 0), "rotation": rotation_about("x", pi / 3)}
    closed = (
        chain.body("end")
        .revolute("joint7", parent, "end", axis="x", coordinates="theta7", **place)
        .spring("theta7", stiffness=kappa_theta)
        .loop("closure", "world", "end", kind="point-on-axis")
        .frame("tip", "link3", origin=(0, length, 0))
        .force("push", "tip", axes=axes)
    )
    return damped(closed, {name: damping for name in closed.coordinate_names if damping})


def loop6_force(t: np.ndarray) -> np.ndarray:
    """The draft's force at the third link's end, N."""
    return np.stack([20 * np.cos(t / 50), 10 * np.cos(t / 50 + pi / 3), 20 * np.cos(t / 50 + 2 * pi / 3)], -1)


def damped(mechanism: Mechanism, damping: dict[str, float]) -> Mechanism:
    """A mechanism with viscous dampers on some coordinates."""
    for name, value in damping.items():
        mechanism = mechanism.damper(name, damping=value)
    return mechanism


def baxter_arm(name: str = "baxter-arm") -> Mechanism:
    """Baxter's right arm alone, a torque on each of its seven joints."""
    facts = baxter_facts()
    arm, parent = Mechanism(name, gravity=facts["gravity"]), "world"
    for part in facts["arm"]:
        xx, xy, xz, yy, yz, zz = part["inertia"]
        arm = arm.body(part["child"], mass=part["mass"], com=part["com"], inertia=(xx, yy, zz, xy, xz, yz))
        place: dict[str, Any] = {"origin": part["xyz"], "rotation": roll_pitch_yaw(*part["rpy"])}
        if part["type"] == "fixed":
            arm = arm.fixed(part["joint"], parent, part["child"], **place)
        else:
            joint = part["joint"].removeprefix("right_")
            arm = arm.revolute(joint, parent, part["child"], axis="z", **place).torque(joint)
        parent = part["child"]
    return arm


def baxter_loop(
    kappa_theta: float = 5.0, kappa_psi: float = 5.0, links: int = 12, tilt: float | None = None
) -> Mechanism:
    """Baxter's right arm holding a clamped loop: with twelve links 31 coordinates, 12 constraints.

    The top link is fixed to the hand, the bottom one, split in two halves, to the clamp. With another (even) number
    of links the loop has the same mass and the same height, so that it hangs on the same hand and clamp.

    tilt (rad): how far the axes of ψ are turned from the bisector of two links towards the second one. The papers
    put them into its frame, π/links; were they on the bisector, they would all meet in the middle of the flat
    loop, which then could not leave its plane.
    """
    facts = baxter_facts()
    arm = baxter_arm("baxter-loop")
    parent = arm.bodies[-1].name
    length, mass = loop_link(links)
    arm = (
        arm.body("top", mass=mass, inertia=_rod(mass, length, "y"))
        .fixed("grasp", parent, "top", rotation=facts["R_gripper_to_H"])
        .frame("clamp", "world", origin=facts["clamp_p"], rotation=facts["clamp_R"])
    )
    tilted = pi / links if tilt is None else tilt
    for side, along in (("l", 1.0), ("r", -1.0)):
        arm = _branch(arm, side, along, length, mass, kappa_theta, kappa_psi, links, tilted)
    return arm


def loop_link(links: int) -> tuple[float, float]:
    """Length (m) and mass (kg) of one of the loop's links."""
    facts = baxter_facts()
    if links == facts["nlinks"]:
        return facts["link_length"], facts["link_mass"]
    return 2 * facts["apothem"] * tan(pi / links), facts["loop_mass"] / links


def _branch(
    arm: Mechanism,
    side: str,
    along: float,
    length: float,
    mass: float,
    k_theta: float,
    k_psi: float,
    links: int,
    tilt: float,
) -> Mechanism:
    """Half of the loop's joints from the hand to the clamp, along ±y; the last link is half a link."""
    turn = -along * 2 * pi / links
    # a link's frame is turned by `lag` less than the link itself
    lag = turn / 2 - copysign(tilt, turn)
    direction = along * np.array([0.0, cos(lag), sin(lag)])
    parent, before, joints = "top", np.array([0, along * length / 2, 0]), links // 2
    for i in range(1, joints + 1):
        half = 0.5 if i == joints else 1.0
        link, theta, psi = f"link_{side}{i}", f"th_{side}{i}", f"ps_{side}{i}"
        arm = (
            arm.body(
                link,
                mass=half * mass,
                com=half * length / 2 * direction,
                inertia=_tilted(half, mass, length, lag),
            )
            .universal(
                f"joint_{side}{i}",
                parent,
                link,
                axes=("x", "-z" if side == "l" else "z"),
                coordinates=(theta, psi),
                origin=before,
                rotation=rotation_about("x", turn - lag if i == 1 else turn),
            )
            .spring(theta, stiffness=k_theta)
            .spring(psi, stiffness=k_psi)
        )
        parent, before = link, length * direction
    foot = f"N_{side}"
    return arm.frame(
        foot, parent, origin=length / 2 * direction, rotation=rotation_about("x", along * pi + lag)
    ).loop(f"clamp_{side}", "clamp", foot, kind="point-on-axis")


def _tilted(half: float, mass: float, length: float, angle: float) -> tuple[float, ...]:
    """Inertia of a thin rod along y, turned about x: xx, yy, zz, xy, xz, yz."""
    across = half * mass * (half * length) ** 2 / 12
    return (
        across,
        across * sin(angle) ** 2,
        across * cos(angle) ** 2,
        0.0,
        0.0,
        -across * cos(angle) * sin(angle),
    )


def baxter_loop_forced(
    kappa_theta: float = 5.0,
    kappa_psi: float = 5.0,
    links: int = 12,
    loop_damping: float | None = None,
    tilt: float | None = None,
) -> Mechanism:
    """The same with damped joints, as it is moved by `baxter_controller`."""
    facts = baxter_facts()
    arm = baxter_loop(kappa_theta, kappa_psi, links, tilt)
    damping = facts["loop_damping"] if loop_damping is None else loop_damping
    joints = [*facts["arm_damping"], *[damping] * (len(arm.coordinates) - 7)]
    return damped(arm, dict(zip(arm.coordinate_names, joints, strict=True)))


def baxter_controller(dt: float) -> Callable[[Any, Any, Any], Any]:
    """Position feedback of the arm along a smooth reference, evaluated in the middle of a step."""
    facts = baxter_facts()
    names = ("u_gravity_const", "arm_K", "ref_amp", "ref_freq_hz", "q0_arm")
    weight, gain, amplitude, frequency, start = (np.array(facts[n]) for n in names)

    def controller(t: Any, q: Any, v: Any) -> Any:
        phase = 2 * np.pi * frequency * (t + dt / 2)
        return weight + gain * (start + amplitude * (1 - jnp.cos(phase)) / 2 - q[:7])

    return controller


def baxter_facts() -> dict[str, Any]:
    """The constants of model B of the reference folder."""
    return json.loads(reference_file("reference", "variational", "model_B.json").read_text())


def _rod(mass: float, length: float, along: str) -> tuple[float, ...]:
    """Principal inertias of a thin rod about its middle."""
    across = mass * length**2 / 12
    return tuple(0.0 if axis == along else across for axis in "xyz")
