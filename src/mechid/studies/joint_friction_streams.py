"""Streams for `joint-friction`: a triangular motion of about a minute, and what sensors show of it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from mechid.dynamics.simulate import simulate
from mechid.dynamics.variational import Variational
from mechid.estimate.joint_form import FrictionForm
from mechid.studies.mechanisms import harmonic_drive_joint

RATE = 1000.0
"""samples a second"""
AMPLITUDE, PERIOD = 0.5, 4.0
"""of the triangle, rad and s: ±0.5 rad/s with a reversal every two seconds"""
SERVO = 3.0
"""Hz, of the position loop that follows the triangle; damping 0.7"""
RIPPLE, CYCLES = 0.02, 40.0
"""of the velocity: part of it, and cycles a radian; a harmonic drive's kinematic error"""
TABLE = {"b_in": 76.0, "b_inD": 40.0, "C1": 25.0, "C2": 590.0, "omega_1": 0.0616, "omega_S": 0.1312}
"""Table 7.1, in N·m, rad and s"""
MOVING = 0.03
"""rad/s of the link, below which the output torque is left out (case 1)"""
ENCODER = 1e-6
"""rad, std of angles (case 1)"""
ROUND, SMOOTHED = 0.98, 9
"""of case 1: how sharp the triangle's corners are, 1 for sharp ones; samples over which derivatives are taken"""
JOINT = {"k1": 1e4, "k2": 2e7, "b_out": 10.0, "b_outC": 5.0, "A1": 3.0, "A2": 2.0}
"""the rest of the joint, chosen here: the paper prints none of it. N·m, N·m/rad, N·m/rad³, N·m·s/rad"""
J_IN, J_OUT, WEIGHT = 5.0, 3.0, 15.0
"""kg·m², kg·m², N·m"""
LINEAR, NONLINEAR = ("b_in", "b_inD", "C1", "C2"), ("omega_1", "omega_S")


class Stream(NamedTuple):
    """Samples of a form's channels, and what they were made with."""

    time: np.ndarray
    """s"""
    samples: np.ndarray
    """(N, channels)"""
    truth: dict[str, np.ndarray]
    """(N,) of each number"""


def moved(
    seconds: float, noise: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Time, position, velocity of a joint whose servo follows a triangle (noise: std of the velocity)."""
    from scipy.signal import butter, sosfilt

    t = np.arange(round(seconds * RATE)) / RATE
    target = 2.0 * AMPLITUDE / np.pi * np.arcsin(np.sin(2.0 * np.pi * t / PERIOD))
    w, dt = 2.0 * np.pi * SERVO, 1.0 / RATE
    q, v = np.zeros_like(t), np.zeros_like(t)
    for i in range(1, len(t)):
        v[i] = v[i - 1] + dt * (w * w * (target[i - 1] - q[i - 1]) - 1.4 * w * v[i - 1])
        q[i] = q[i - 1] + dt * v[i]
    v = v * (1.0 + RIPPLE * np.sin(CYCLES * q))
    # what is left of an encoder's noise behind the filter of its derivative
    white = np.asarray(sosfilt(butter(2, 40.0, fs=RATE, output="sos"), rng.normal(size=len(t))))
    return t, q, v + noise * white / np.std(white)


def friction_stream(
    truth: dict[str, float],
    seconds: float,
    noise: float,
    jumps: tuple[float, float],
    delta_S: float,
    seed: int,
) -> Stream:
    """Case 2: friction torque at measured velocities; linear numbers jump by 50 %, then nonlinear ones by 20 %."""
    rng = np.random.default_rng(seed)
    t, q, v = moved(seconds, 0.004, rng)
    factor = {name: np.where(t >= jumps[0], 1.5, 1.0) for name in LINEAR}
    factor |= {name: np.where(t >= jumps[1], 1.2, 1.0) for name in NONLINEAR}
    course = {name: truth[name] * factor[name] for name in (*LINEAR, *NONLINEAR)}
    form, zero = FrictionForm(delta_S=delta_S), np.zeros_like(t)
    torque = np.zeros_like(t)
    edges = [0, *sorted(int(np.searchsorted(t, j)) for j in jumps), len(t)]
    for a, b in pairwise(edges):
        if a == b:
            continue
        here = np.column_stack([q[a:b], v[a:b], zero[a:b]])
        phi, _ = form.rows(here, np.array([course[name][a] for name in NONLINEAR]))
        torque[a:b] = phi[:, 0] @ np.array([course[name][a] for name in LINEAR])
    torque += noise * rng.normal(size=len(t))
    return Stream(t, np.column_stack([q, v, torque]), course)


def joint_stream(truth: dict[str, float], seconds: float, noise: float, delta_S: float, seed: int) -> Stream:
    """Case 1: the joint of (3.8) under a servo, as its sensors show it; what is not measured is derived.

    Angles carry 1e-6 rad of noise, currents and the output torque `noise`; velocities of both sides and the motor's
    acceleration are derivatives of polynomials over 9 ms around each sample. The output torque is left out where
    the link rests.
    """
    import jax.numpy as jnp
    from scipy.signal import savgol_filter

    m = harmonic_drive_joint(
        reduction=0.0, motor_inertia=J_IN, link_inertia=J_OUT, load=WEIGHT, stiffness=truth["k1"],
        cubic_stiffness=truth["k2"], gear_damping=0.0, damping=truth["b_in"], cubic_damping=0.0,
        dahl=truth["b_inD"], coulomb=truth["C1"], slow_damping=truth["C2"], width=truth["omega_1"],
        stribeck_velocity=truth["omega_S"], stribeck_exponent=delta_S, link_damping=truth["b_out"],
        link_coulomb=truth["b_outC"], link_width=2e-3, sine=truth["A1"], cosine=truth["A2"],
    )  # fmt: skip

    def servo(t: Any, q: Any, v: Any) -> Any:
        turn = 2.0 * jnp.pi * t / PERIOD
        target = 2.0 * AMPLITUDE / jnp.pi * jnp.arcsin(ROUND * jnp.sin(turn))
        return jnp.array([2e4 * (target - q[0]) - 300.0 * v[0]])

    steps = round(seconds * RATE)
    run = simulate(m, Variational(1.0 / RATE, forces="balanced"), steps, inputs=servo)
    rng = np.random.default_rng(seed)
    t, q_in, q_out = run.t[1:], run.q[1:, 0].copy(), run.q[1:, 1].copy()
    twist = q_in - q_out
    # what the flange passes on to the link, from the link's own balance
    v_out = run.v[1:, 1]
    torque = truth["k1"] * twist + truth["k2"] * twist**3 - truth["b_out"] * v_out
    torque -= (
        truth["b_outC"] * np.tanh(v_out / 2e-3) + truth["A1"] * np.sin(q_out) + truth["A2"] * np.cos(q_out)
    )
    # held over a step: at a sample the mean of the steps around it acts
    held = np.append(run.inputs[:, 0], run.inputs[-1, 0])
    current = 0.5 * (held[:-1] + held[1:])
    q_in += ENCODER * rng.normal(size=len(t))
    q_out += ENCODER * rng.normal(size=len(t))
    current, torque = (x + noise * rng.normal(size=len(t)) for x in (current, torque))
    v_in, a_in, v_link = (
        np.asarray(savgol_filter(x, SMOOTHED, 3, deriv=order, delta=1.0 / RATE))
        for x, order in ((q_in, 1), (q_in, 2), (q_out, 1))
    )
    # at rest friction holds, and its force is any: the sign in (4.3) does not tell it
    torque = np.where(np.abs(v_link) < MOVING, np.nan, torque)
    course = {name: np.full(len(t), value) for name, value in truth.items()}
    return Stream(t, np.column_stack([q_in, v_in, a_in, current, q_out, v_link, torque]), course)
