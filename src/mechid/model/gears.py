"""Numbers of geared joints in the other forms in which they are stated: periods of friction, springs in a row."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from mechid.errors import MechidError, unknown
from mechid.model.geometry import finite

FAINT = 2.0
"""standard deviations that an amplitude must have for its phase to be told"""


class Wave(NamedTuple):
    """A sin(n q + γ) (da Silva, Eq. 3.6), with standard deviations; NaN where none were given."""

    amplitude: float
    """N·m or N"""
    phase: float
    """rad, within ±π"""
    amplitude_std: float
    phase_std: float
    """∞ where the amplitude is too small to have a phase"""


def amplitude_and_phase(sine: float, cosine: float, covariance: ArrayLike | None = None) -> Wave:
    """The wave A sin(n q + γ) = A₁ sin(n q) + A₂ cos(n q) (Eq. 3.7), from A₁, A₂ and their covariance (2, 2)."""
    one, two = (float(finite(x, (), "An amplitude")) for x in (sine, cosine))
    size, phase = float(np.hypot(one, two)), float(np.arctan2(two, one))
    if covariance is None:
        return Wave(size, phase, np.nan, np.nan)
    C = np.asarray(covariance, float)
    if C.shape != (2, 2):
        raise MechidError(f"The covariance of two amplitudes is of shape (2, 2), not {C.shape}.")
    # where there is no direction, that of the largest error counts
    along = np.array([one, two]) / size if size > 0.0 else np.linalg.eigh(np.nan_to_num(C))[1][:, -1]
    across = np.array([-along[1], along[0]])
    amplitude_std, turned = (float(np.sqrt(max(d @ C @ d, 0.0))) for d in (along, across))
    told = size > FAINT * max(amplitude_std, turned)
    return Wave(size, phase, amplitude_std, turned / size if told else np.inf)


def sine_and_cosine(amplitude: float, phase: float) -> tuple[float, float]:
    """A₁ and A₂ of A sin(n q + γ)."""
    return float(amplitude * np.cos(phase)), float(amplitude * np.sin(phase))


def wave(fit: Any, element: str) -> Wave:
    """Amplitude and phase of a periodic friction that a fit found, by the element's name."""
    names = list(fit.parameters)
    ends = [f"{element}.sine", f"{element}.cosine"]
    for name in ends:
        if name not in names:
            raise unknown("parameter of the fit", name, names)
    at = [names.index(name) for name in ends]
    one, two = (fit.parameters[name].value for name in ends)
    return amplitude_and_phase(one, two, np.asarray(fit.covariance)[np.ix_(at, at)])


def in_series(gear: float, sensor: float, cubic: float = 0.0) -> tuple[float, float]:
    """Stiffness and cubic stiffness of a spring k₁, k₂ with a linear one of stiffness k_s behind it.

        T = K₁ Δ + K₂ Δ³ + …,    K₁ = k₁ k_s/(k₁ + k_s),    K₂ = k₂ (k_s/(k₁ + k_s))⁴

    exact for k₂ = 0, else to the third power of Δ. It says that nothing between the two has inertia.
    """
    k, s, c = finite([gear, sensor, cubic], (3,), "Stiffnesses in a row")
    if not (k > 0.0 and s > 0.0):
        raise MechidError(f"Springs in a row need stiffnesses > 0, not {k:g} and {s:g}.")
    return float(k * s / (k + s)), float(c * (s / (k + s)) ** 4)
