"""`JointForm`, `FrictionForm`: a geared joint as y = φ(ω) θ (da Silva et al. 2007, (4.1)–(4.6)).

    J_in θ̈_in − K_m I = −T_stiff − T_d,in                 T_stiff = k1 Δ + k2 Δ³,  Δ = θ_in − r θ_out
    T_out             = r T_stiff − T_d,out               r = N + 1, the reduction; 1 where all is on the link side
    T_d,in  = b_in θ̇_in + b_inD θ_in + C1 tanh(θ̇_in/ω1) + C2 θ̇_in exp(−|θ̇_in/ω_S|^δ)
    T_d,out = b_out θ̇_out + b_outC sign θ̇_out + A1 sin θ_out + A2 cos θ_out

ω1, the width in which dry friction turns round, and ω_S, Stribeck's velocity, are not linear; δ may be free as
well. `FrictionForm` is T_d,in alone, where the friction torque itself is known. Forms hold no data: samples come as
a table with a column for each channel, in SI units.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import copysign, cos, exp, sin, tanh

import numpy as np

from mechid.errors import MechidError

Array = np.ndarray


@dataclass(frozen=True)
class _Friction:
    """What both forms have in common."""

    delta_S: float | None = 1.0
    """Stribeck's exponent δ; None where it is to be found"""
    nonlinear: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        delta = self.delta_S
        if delta is not None and not (isinstance(delta, int | float) and 0.0 < delta < np.inf):
            raise MechidError(f"delta_S must be a positive number, or None where it is free, not {delta!r}.")
        free = ("omega_1", "omega_S") if delta is not None else ("omega_1", "omega_S", "delta_S")
        object.__setattr__(self, "nonlinear", free)

    @property
    def nonlinear_units(self) -> tuple[str, ...]:
        return ("rad/s", "rad/s", "")[: len(self.nonlinear)]

    @property
    def positive(self) -> tuple[str, ...]:
        """The nonlinear numbers that must be above zero: widths, velocities and exponents are."""
        return self.nonlinear

    def _exponent(self, omega: Array) -> float:
        return float(omega[2]) if self.delta_S is None else self.delta_S

    def _columns(self, v: Array, omega: Array) -> tuple[Array, Array]:
        """What C1 and C2 multiply at velocities v."""
        if np.any(omega <= 0.0):
            name, value = next((n, x) for n, x in zip(self.nonlinear, omega, strict=True) if x <= 0.0)
            raise MechidError(f"{name} must be > 0, not {value:g}: give bounds above zero.")
        z = np.abs(v) / omega[1]
        delta = self._exponent(omega)
        return np.tanh(v / omega[0]), v * np.exp(-(z if delta == 1.0 else z**delta))

    def _pair(self, v: float, omega: Array) -> tuple[float, float]:
        """The same for one number."""
        z = abs(v) / float(omega[1])
        delta = self._exponent(omega)
        return tanh(v / float(omega[0])), v * exp(-(z if delta == 1.0 else z**delta))

    def _slopes(self, v: Array, omega: Array) -> tuple[Array, list[Array]]:
        """Derivative of C1's column by ω1, and of C2's by ω_S and δ."""
        w1, ws, delta = float(omega[0]), float(omega[1]), self._exponent(omega)
        z = np.abs(v) / ws
        power = z**delta
        e = v * np.exp(-power) * power
        by = [e * delta / ws]
        if self.delta_S is None:
            by.append(-e * np.log(np.where(z > 0.0, z, 1.0)))
        # 1 − tanh² is cosh⁻², which does not overflow in this form
        return -(v / w1**2) * (1.0 - np.tanh(v / w1) ** 2), by


@dataclass(frozen=True)
class FrictionForm(_Friction):
    """The friction torque T_d,in of a motor's side: (4.1)."""

    names = ("b_in", "b_inD", "C1", "C2")
    units = ("N·m·s/rad", "N·m/rad", "N·m", "N·m·s/rad")
    outputs = ("T_d_in",)
    channels = ("theta_in", "theta_in_rate", "T_d_in")
    channel_units = ("rad", "rad/s", "N·m")

    def rows(self, samples: Array, omega: Array) -> tuple[Array, Array]:
        """φ (N, 1, 4) and y (N, 1)."""
        v = samples[:, 1]
        phi = np.empty((len(samples), 1, 4))
        phi[:, 0, 0] = v
        phi[:, 0, 1] = samples[:, 0]
        phi[:, 0, 2], phi[:, 0, 3] = self._columns(v, omega)
        return phi, samples[:, 2:3]

    def row(self, sample: Sequence[float], omega: Array) -> tuple[Array, Array]:
        """φ (1, 4) and y (1,) of one sample, in a third of the time."""
        q, v, torque = sample
        turn, stribeck = self._pair(v, omega)
        return np.array([[v, q, turn, stribeck]]), np.array([torque])

    def slopes(self, samples: Array, omega: Array) -> Array:
        """∂φ/∂ω (k, N, 1, 4)."""
        made = np.zeros((len(self.nonlinear), len(samples), 1, 4))
        made[0, :, 0, 2], by = self._slopes(samples[:, 1], omega)
        for i, column in enumerate(by):
            made[1 + i, :, 0, 3] = column
        return made


@dataclass(frozen=True)
class JointForm(_Friction):
    """The whole joint: (4.5), (4.6). With J_out the output torque is taken from the link's acceleration."""

    J_in: float = 0.0
    """inertia of the motor's side, kg·m²"""
    K_m: float = 1.0
    """motor constant, N·m/A"""
    ratio: float = 1.0
    """N + 1"""
    J_out: float | None = None
    """inertia of the link's side, kg·m²; None where T_out is measured"""
    T_g: float = 0.0
    """weight's torque on the link at 90°, N·m; with J_out only"""

    channels: tuple[str, ...] = field(init=False)
    names = ("k1", "k2", "C1", "C2", "b_in", "b_inD", "b_out", "b_outC", "A1", "A2")
    units = (
        *("N·m/rad", "N·m/rad³", "N·m", "N·m·s/rad", "N·m·s/rad", "N·m/rad"),
        *("N·m·s/rad", "N·m", "N·m", "N·m"),
    )
    outputs = ("input", "output")

    @property
    def channel_units(self) -> tuple[str | None, ...]:
        """SI units of the channels; None for a motor's current that stands for its torque (K_m = 1)."""
        current, last = None if self.K_m == 1.0 else "A", "N·m" if self.J_out is None else "rad/s²"
        return ("rad", "rad/s", "rad/s²", current, "rad", "rad/s", last)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("J_in", "K_m", "ratio", "T_g", "J_out"):
            value = getattr(self, name)
            if (name != "J_out" or value is not None) and not np.isfinite(value):
                raise MechidError(f"{name} of a joint must be finite, not {value!r}.")
        if self.ratio == 0.0:
            raise MechidError("ratio of a joint must not be 0.")
        last = "T_out" if self.J_out is None else "theta_out_acc"
        given = ("theta_in", "theta_in_rate", "theta_in_acc", "I_a", "theta_out", "theta_out_rate", last)
        object.__setattr__(self, "channels", given)

    def rows(self, samples: Array, omega: Array) -> tuple[Array, Array]:
        """φ (N, 2, 10) and y (N, 2)."""
        q, v, a, current, link, rate, last = samples.T
        y = np.empty((len(samples), 2))
        y[:, 0] = self.J_in * a - self.K_m * current
        y[:, 1] = last if self.J_out is None else self.J_out * last - self.T_g * np.sin(link)
        phi = np.zeros((len(samples), 2, 10))
        twist = q - self.ratio * link
        tanh, stribeck = self._columns(v, omega)
        phi[:, 1, 0] = self.ratio * twist
        phi[:, 1, 1] = self.ratio * twist**3
        phi[:, 0, 0] = twist
        phi[:, 0, 1] = twist**3
        phi[:, 0, 2], phi[:, 0, 3], phi[:, 0, 4], phi[:, 0, 5] = tanh, stribeck, v, q
        phi[:, 1, 6], phi[:, 1, 7] = rate, np.sign(rate)
        phi[:, 1, 8], phi[:, 1, 9] = np.sin(link), np.cos(link)
        phi[:, 0] *= -1.0
        phi[:, 1, 6:] *= -1.0
        return phi, y

    def row(self, sample: Sequence[float], omega: Array) -> tuple[Array, Array]:
        """φ (2, 10) and y (2,) of one sample, in a third of the time."""
        q, v, a, current, link, rate, last = sample
        twist = q - self.ratio * link
        cube = twist * twist * twist
        turn, stribeck = self._pair(v, omega)
        weight, side = sin(link), copysign(1.0, rate) if rate else rate
        out = last if self.J_out is None else self.J_out * last - self.T_g * weight
        first = [-twist, -cube, -turn, -stribeck, -v, -q, 0.0, 0.0, 0.0, 0.0]
        r = self.ratio
        second = [r * twist, r * cube, 0.0, 0.0, 0.0, 0.0, -rate, -side, -weight, -cos(link)]
        return np.array([first, second]), np.array([self.J_in * a - self.K_m * current, out])

    def slopes(self, samples: Array, omega: Array) -> Array:
        """∂φ/∂ω (k, N, 2, 10)."""
        made = np.zeros((len(self.nonlinear), len(samples), 2, 10))
        by_width, by = self._slopes(samples[:, 1], omega)
        made[0, :, 0, 2] = -by_width
        for i, column in enumerate(by):
            made[1 + i, :, 0, 3] = -column
        return made
