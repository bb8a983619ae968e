"""Streams for `joint-friction`: a triangular motion of about a minute, and what sensors show of it."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from mechid.estimate.joint_form import FrictionForm

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
    edges = [0, *(int(np.searchsorted(t, j)) for j in jumps), len(t)]
    for a, b in pairwise(edges):
        if a == b:
            continue
        here = np.column_stack([q[a:b], v[a:b], zero[a:b]])
        phi, _ = form.rows(here, np.array([course[name][a] for name in NONLINEAR]))
        torque[a:b] = phi[:, 0] @ np.array([course[name][a] for name in LINEAR])
    torque += noise * rng.normal(size=len(t))
    return Stream(t, np.column_stack([q, v, torque]), course)
