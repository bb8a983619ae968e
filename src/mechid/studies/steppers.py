"""Three formulations, one motion: every stepper on every small mechanism, with observed orders of convergence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from mechid.dynamics.assembly import assemble, project_rates
from mechid.dynamics.bdf import BDF
from mechid.dynamics.simulate import simulate
from mechid.dynamics.spook import Spook
from mechid.dynamics.stepper import Stepper
from mechid.dynamics.variational import Variational
from mechid.model.mechanism import Mechanism
from mechid.studies import mechanisms
from mechid.studies.study import Settings, Study


class Machine(NamedTuple):
    """A mechanism with a start that closes it and inputs held throughout."""

    mechanism: Mechanism
    q: np.ndarray
    v: np.ndarray
    u: np.ndarray
    dt: float
    """coarse, but fine enough for every stepper"""
    time: float


class Kind(NamedTuple):
    make: Callable[[float], Stepper]
    order: int
    """expected where forces act"""


STEPPERS: dict[str, Kind] = {
    "variational, left": Kind(Variational, 1),
    "variational, balanced": Kind(lambda dt: Variational(dt, forces="balanced"), 2),
    "variational, trapezoidal": Kind(lambda dt: Variational(dt, rule="trapezoidal"), 2),
    "BDF 1": Kind(lambda dt: BDF(dt, order=1), 1),
    "BDF 2": Kind(lambda dt: BDF(dt, order=2), 2),
    "SPOOK": Kind(Spook, 1),
}


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
    return Machine(m, q, v, np.array([0.5]), 0.0025, 0.2)


def _loop6() -> Machine:
    m = mechanisms.loop6(damping=0.1)
    return Machine(m, np.zeros(13), np.zeros(13), np.array([5.0, 3.0, 2.0]), 0.005, 0.1)


def _harmonic_drive() -> Machine:
    m = mechanisms.harmonic_drive_joint(link_inertia=4.0)
    q, v = np.array([20.0, 0.2]), np.array([-30.0, 0.1])
    return Machine(m, q, v, np.array([0.4]), 0.001, 0.1)


MACHINES: dict[str, Callable[[], Machine]] = {
    "pendulum": _pendulum,
    "cart-pendulum": _cart_pendulum,
    "four-bar": _four_bar,
    "model A": _loop6,
    "harmonic drive": _harmonic_drive,
}


class Row(NamedTuple):
    machine: str
    stepper: str
    errors: list[float]
    """largest difference of coordinates over time from a fine solution, as dt is halved"""
    orders: list[float]
    expected: int
    violation: float


def convergence(
    halvings: int = 3, machines: Iterable[str] = MACHINES, steppers: Iterable[str] = STEPPERS
) -> Iterator[Row]:
    """Errors against a fine variational solution (extrapolated) for every mechanism and stepper."""
    for name in machines:
        at = MACHINES[name]()
        fine = [_run(at, Variational(at.dt / n, forces="balanced")).q[::n] for n in (32, 64)]
        limit = (4 * fine[1] - fine[0]) / 3
        for label in steppers:
            kind = STEPPERS[label]
            errors, violation = [], 0.0
            for i in range(halvings):
                dt = at.dt / 2**i
                run = _run(at, kind.make(dt))
                errors.append(float(np.abs(run.q[:: 2**i] - limit).max()))
                violation = float(run.violation.max())
            orders = [float(np.log2(a / b)) for a, b in pairwise(errors)]
            yield Row(name, label, errors, orders, kind.order, violation)


def _run(at: Machine, stepper: Stepper):
    steps = round(at.time / float(stepper.dt))
    return simulate(at.mechanism, stepper, steps, q=at.q, v=at.v, inputs=at.u)


def run(settings: Settings, study: Study) -> None:
    rows = list(convergence(int(settings["halvings"])))
    study.table(
        "Largest error of the coordinates over the run, as dt is halved",
        ["mechanism", "stepper", "errors", "orders seen", "expected"],
        [
            [
                r.machine,
                r.stepper,
                "  ".join(f"{e:.1e}" for e in r.errors),
                "  ".join(f"{o:.2f}" for o in r.orders),
                str(r.expected),
            ]
            for r in rows
        ],
    )
    study.result["rows"] = [r._asdict() for r in rows]
    worst = min(r.orders[-1] - r.expected for r in rows)
    study.say(
        f"All {len(rows)} pairs converge to one motion; the smallest observed order is "
        f"{worst:+.2f} from the expected one."
    )


SETTINGS: Settings = {"halvings": 3}
QUICK: Settings = {"halvings": 2}
