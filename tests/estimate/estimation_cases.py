"""Experiments made by simulation, and the problems that solvers see, for the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mechid import Mechanism, Parameters
from mechid.data.log import Channel, Log
from mechid.dynamics.driver import KEEP
from mechid.estimate.experiment import Experiment
from mechid.estimate.prepare import prepared
from mechid.estimate.problem import ShootingProblem
from mechid.estimate.tracking import with_gains


def freed(mechanism: Mechanism, *addresses: str, **options: Any) -> Parameters:
    free = Parameters(mechanism)
    for address in addresses:
        free = free.free(address, **options)
    return free


def log_with(name: str = "log", **channels: tuple[Any, Any]) -> Log:
    """A log of (time, values) by name; a double underscore stands for a dot."""
    made = {
        k.replace("__", "."): Channel(np.asarray(t, float), np.asarray(x, float))
        for k, (t, x) in channels.items()
    }
    return Log(name, made)


def problem_of(
    stepper: Any, experiments: Any, free: Parameters, *, gradients: str = "forward", keep: int = KEEP
) -> ShootingProblem:
    """What a solver sees: all stds given, gains found."""
    experiments = [experiments] if isinstance(experiments, Experiment) else experiments
    made = [prepared(stepper, e, free, keep) for e in experiments]
    made = [with_gains(s) if s.experiment.feedback is not None else s for s in made]
    noise = tuple(tuple(g.std for g in s.groups) for s in made)
    return ShootingProblem(free, tuple(made), noise, (None,) * len(made), gradients)


def differences(function: Callable[[np.ndarray], float], y: np.ndarray, h: np.ndarray) -> np.ndarray:
    """The gradient by central differences, extrapolated twice (error h⁶)."""
    found = np.zeros(len(y))
    for i in range(len(y)):
        one = np.eye(len(y))[i] * h[i]
        a, b, c = ((function(y + s * one) - function(y - s * one)) / (2 * s * h[i]) for s in (1.0, 0.5, 0.25))
        a, b = (4 * b - a) / 3, (4 * c - b) / 3
        found[i] = (16 * b - a) / 15
    return found
