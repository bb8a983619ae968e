"""What the studies of symbolic mechanisms share: motions by an independent integrator, forces, gaps, estimators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from mechid.errors import MechidError
from mechid.estimate.simulation_error import simulation_error
from mechid.estimate.trajectory import full_discretization, joint
from mechid.studies.study import Settings

ESTIMATORS: dict[str, Callable[..., Any]] = {
    "full-discretization": full_discretization,
    "joint": joint,
    "simulation-error": simulation_error,
}
TOLERANCE = 1e-10
LONGEST = 100_000
"""steps of a log"""
MANY = 4.0
"""std from the truth that noise does not explain"""
GOOD = 4
"""order from which on the error of steps is less than that of noise at the studies' own settings"""
SINES = ((0.31, 0.5, 0.3), (0.73, 0.8, 1.9), (1.17, 0.7, 4.1), (1.9, 0.4, 2.2), (2.6, 0.3, 5.0))
"""Hz, part of the amplitude, rad"""


def multisine(t: Any, amplitude: float) -> Any:
    """A force that excites all that moves within some seconds, N."""
    return amplitude * sum(a * np.sin(2.0 * np.pi * f * t + phase) for f, a, phase in SINES)


def exact_motion(
    motion: Callable[[float, np.ndarray], Sequence[float]], start: Sequence[float], settings: Settings
) -> tuple[np.ndarray, np.ndarray]:
    """Times and states of x' = motion(t, x) by an explicit Runge–Kutta method of order 8."""
    from scipy.integrate import solve_ivp

    dt, time = float(settings["dt"]), float(settings["time"])
    if not 0.0 < time < np.inf:
        raise MechidError(f"Setting time must be > 0 and finite, not {time:g}.")
    if not 0.0 < dt < time / 20.0:
        raise MechidError(f"A log of {time:g} s needs a step between 0 and {time / 20:g} s, not {dt:g} s.")
    if time / dt > LONGEST:
        raise MechidError(
            f"A log of {time:g} s in steps of {dt:g} s has {time / dt:.3g} of them; this study "
            f"takes {LONGEST} at most."
        )
    t = dt * np.arange(round(time / dt) + 1)
    run = solve_ivp(motion, (0.0, t[-1]), start, "DOP853", t, rtol=TOLERANCE, atol=TOLERANCE)
    if not run.success or not np.all(np.isfinite(run.y)):
        raise MechidError(f"The true motion could not be made: {run.message}")
    return t, run.y.T


def beyond(pulls: Mapping[str, float], settings: Settings) -> list[str]:
    """What is to be said of values that lie many stds from the truth, which the study knows."""
    if not pulls:
        return []
    name, order = max(pulls, key=lambda n: abs(pulls[n])), int(settings["order"])
    if not abs(pulls[name]) > MANY:
        return []
    off = f"'{name}' is found {abs(pulls[name]):.3g} std from what the data are made with"
    if order < GOOD:
        return [
            f"{off}: the error of BDF of order {order} shows in steps of {float(settings['dt']):g} s, which no std "
            "here contains; a higher order or smaller steps make it smaller."
        ]
    return [f"{off}: the search may have ended in a minimum that is not the lowest, or steps are too long."]


def with_gaps(values: np.ndarray, settings: Settings, rng: np.random.Generator) -> np.ndarray:
    """Samples of which a part is missing."""
    missing = float(settings["missing"])
    if not 0.0 <= missing <= 0.9:
        raise MechidError(f"Setting missing must lie between 0 and 0.9, not {missing:g}.")
    return np.where(rng.uniform(size=values.shape) < missing, np.nan, values)


def noise_of(settings: Settings) -> tuple[np.random.Generator, float]:
    """What noise is drawn from, and its std."""
    seed, noise = int(settings["seed"]), float(settings["noise"])
    if seed < 0:
        raise MechidError(f"Setting seed must be ≥ 0, not {seed}.")
    if not 0.0 < noise < np.inf:
        raise MechidError(f"Setting noise must be > 0 and finite, not {noise:g}.")
    return np.random.default_rng(seed), noise


def checked_order(settings: Settings) -> int:
    order = int(settings["order"])
    if not 1 <= order <= 6:
        raise MechidError(f"Setting order must be one of 1, 2, 3, 4, 5, 6, not {order}.")
    return order
