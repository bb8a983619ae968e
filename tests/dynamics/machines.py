"""The mechanisms that the suites run over, each with a start that closes it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mechid.dynamics.assembly import assemble, project_rates
from mechid.model.mechanism import Mechanism
from mechid.studies import mechanisms


class Machine(NamedTuple):
    mechanism: Mechanism
    q: np.ndarray
    v: np.ndarray
    u: np.ndarray
    dt: float
    """a step that is coarse but fine enough for every stepper"""
    time: float


def machine(name: str) -> Machine:
    return MACHINES[name]()


def _pendulum() -> Machine:
    m = mechanisms.pendulum(damping=0.02)
    return Machine(m, np.array([1.0]), np.array([2.0]), np.array([0.3]), 0.01, 0.5)


def _cart_pendulum() -> Machine:
    m = mechanisms.cart_pendulum(damping=0.01)
    q, v = np.array([0.1, 1.2]), np.array([0.2, -1.0])
    return Machine(m, q, v, np.array([0.7]), 0.01, 0.5)


def _four_bar() -> Machine:
    m = mechanisms.four_bar(damping=0.05)
    q = assemble(m, mechanisms.FOUR_BAR_GUESS, hold=["a"])
    v = project_rates(m, q, {"a": 1.0}, hold=["a"])
    return Machine(m, q, v, np.array([0.5]), 0.005, 0.2)


def _loop6() -> Machine:
    m = mechanisms.loop6(damping=0.1)
    return Machine(m, np.zeros(13), np.zeros(13), np.array([5.0, 3.0, 2.0]), 0.005, 0.1)


MACHINES: dict[str, Any] = {
    "pendulum": _pendulum,
    "cart-pendulum": _cart_pendulum,
    "four-bar": _four_bar,
    "model A": _loop6,
}
