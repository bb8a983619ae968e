"""The Whipple bicycle: four rigid bodies and two wheels that roll without slip, by SymPy's Kane's method.

Geometry and numbers are those of the benchmark by Meijaard, Papadopoulos, Ruina and Schwab (2007): x forward, y to
the right, z down; all angles zero where it stands upright with its steer straight. Coordinates yaw, lean, steer,
turns of both wheels, and pitch, which follows from both wheels being on the ground; of six speeds lean, steer and
rear wheel are free, the front wheel's rolling gives the others.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import sympy.physics.mechanics

from mechid.model.symbolic.expressions import sm
from mechid.model.symbolic.mechanism import SymbolicMechanism

me: Any = sympy.physics.mechanics

PARAMETERS: dict[str, tuple[float, str]] = {
    "w": (1.02, "m"),
    "c": (0.08, "m"),
    "lam": (np.pi / 10, "rad"),
    "r_R": (0.3, "m"),
    "m_R": (2.0, "kg"),
    "I_Rxx": (0.0603, "kg·m²"),
    "I_Ryy": (0.12, "kg·m²"),
    "x_B": (0.3, "m"),
    "z_B": (-0.9, "m"),
    "m_B": (85.0, "kg"),
    "I_Bxx": (9.2, "kg·m²"),
    "I_Byy": (11.0, "kg·m²"),
    "I_Bzz": (2.8, "kg·m²"),
    "I_Bxz": (2.4, "kg·m²"),
    "x_H": (0.9, "m"),
    "z_H": (-0.7, "m"),
    "m_H": (4.0, "kg"),
    "I_Hxx": (0.05892, "kg·m²"),
    "I_Hyy": (0.06, "kg·m²"),
    "I_Hzz": (0.00708, "kg·m²"),
    "I_Hxz": (-0.00756, "kg·m²"),
    "r_F": (0.35, "m"),
    "m_F": (3.0, "kg"),
    "I_Fxx": (0.1405, "kg·m²"),
    "I_Fyy": (0.28, "kg·m²"),
}
"""wheelbase, trail, tilt of the steer axis; rear wheel, rear frame with rider, front frame, front wheel"""


def whipple() -> SymbolicMechanism:
    """The bicycle with a steer torque (N·m) as its input."""
    method, torque = kane()
    return SymbolicMechanism.from_method(
        method,
        name="Whipple bicycle",
        parameters=PARAMETERS,
        constants={"g": (9.81, "m/s²")},
        inputs={torque: "N·m"},
    )


def kane() -> tuple[Any, Any]:
    """Kane's equations, and the steer torque in them."""
    p = {name: sm.Symbol(name) for name in (*PARAMETERS, "g")}
    yaw, lean, steer, rear, front, pitch = q = me.dynamicsymbols("yaw lean steer rear front pitch")
    u_yaw, u_lean, u_steer, u_rear, u_front, u_pitch = u = me.dynamicsymbols(
        "u_yaw u_lean u_steer u_rear u_front u_pitch"
    )
    torque = me.dynamicsymbols("T")

    # frames: ground, heading, leaning plane of the rear wheel, rear frame, steer axis, front frame
    N, Y, L, B, H, F, G, R, W = (me.ReferenceFrame(x) for x in "NYLBHFGRW")
    Y.orient_axis(N, N.z, yaw)
    L.orient_axis(Y, Y.x, lean)
    B.orient_axis(L, L.y, pitch)
    H.orient_axis(B, B.y, p["lam"])
    F.orient_axis(H, H.z, steer)
    G.orient_axis(F, F.y, -p["lam"])
    for frame, before, rate in (
        (Y, N, u_yaw * N.z),
        (L, Y, u_lean * Y.x),
        (B, L, u_pitch * L.y),
        (H, B, 0 * B.y),
        (F, H, u_steer * H.z),
        (G, F, 0 * F.y),
        (R, B, u_rear * B.y),
        (W, F, u_front * F.y),
    ):
        frame.set_ang_vel(before, rate)

    # points, and distances along and across the steer axis
    across = (p["w"] + p["c"]) * sm.cos(p["lam"]) - p["r_R"] * sm.sin(p["lam"])
    along = p["w"] * sm.sin(p["lam"]) + (p["r_R"] - p["r_F"]) * sm.cos(p["lam"])
    offset = p["r_F"] * sm.sin(p["lam"]) - p["c"] * sm.cos(p["lam"])
    ground, hub = me.Point("ground"), me.Point("hub")
    hub.set_pos(ground, -p["r_R"] * L.z)
    rider = hub.locatenew("rider", p["x_B"] * B.x + (p["z_B"] + p["r_R"]) * B.z)
    axis = hub.locatenew("axis", across * H.x + along * H.z)
    front_hub = axis.locatenew("front_hub", offset * F.x)
    fork = front_hub.locatenew("fork", (p["x_H"] - p["w"]) * G.x + (p["z_H"] + p["r_F"]) * G.z)
    down = N.z - N.z.dot(F.y) * F.y
    lowest = front_hub.locatenew("lowest", p["r_F"] / sm.sqrt(1 - N.z.dot(F.y) ** 2) * down)
    hub.set_vel(N, R.ang_vel_in(N).cross(hub.pos_from(ground)))
    for point, known, frame in (
        (rider, hub, B),
        (axis, hub, H),
        (front_hub, axis, F),
        (fork, front_hub, F),
    ):
        point.v2pt_theory(known, N, frame)
    slip = front_hub.vel(N) + W.ang_vel_in(N).cross(lowest.pos_from(front_hub))

    def tensor(frame: Any, body: str, *, crossed: bool) -> Any:
        numbers = [p[f"I_{body}{ij}"] for ij in ("xx", "yy", "zz")]
        return me.inertia(frame, *numbers, 0, 0, p[f"I_{body}xz"] if crossed else 0)

    def wheel(frame: Any, body: str) -> Any:
        return me.inertia(frame, p[f"I_{body}xx"], p[f"I_{body}yy"], p[f"I_{body}xx"])

    bodies = [
        me.RigidBody("rear wheel", hub, R, p["m_R"], (wheel(B, "R"), hub)),
        me.RigidBody("rear frame", rider, B, p["m_B"], (tensor(B, "B", crossed=True), rider)),
        me.RigidBody("front frame", fork, F, p["m_H"], (tensor(G, "H", crossed=True), fork)),
        me.RigidBody("front wheel", front_hub, W, p["m_F"], (wheel(F, "F"), front_hub)),
    ]
    weights = [(b.masscenter, b.mass * p["g"] * N.z) for b in bodies]
    method = me.KanesMethod(
        N,
        q_ind=[yaw, lean, steer, rear, front],
        q_dependent=[pitch],
        u_ind=[u_lean, u_steer, u_rear],
        u_dependent=[u_yaw, u_front, u_pitch],
        kd_eqs=[x.diff() - y for x, y in zip(q, u, strict=True)],
        configuration_constraints=[lowest.pos_from(ground).dot(N.z)],
        velocity_constraints=[slip.dot(x) for x in (Y.x, Y.y, Y.z)],
    )
    method.kanes_equations(bodies, [*weights, (F, torque * F.z), (B, -torque * F.z)])
    return method, torque
