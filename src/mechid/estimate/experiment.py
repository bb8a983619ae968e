"""`Experiment`: one log explained by one mechanism: what was put in, what was measured, how it began.

    Experiment(
        log,
        inputs={"shoulder": "tau1", "elbow": "tau2"},
        measured=[Measured(joint_position(arm, "shoulder", "elbow"), ("q1", "q2"), std=1e-3)],
        start=Start(q={"shoulder": 0.3}, q_std={"elbow": "free"}),
    )

Sample times need not be step times, channels may have their own, and samples may be missing. SI units.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mechid.data.log import Log
from mechid.dynamics.sensors import Sensor
from mechid.errors import MechidError, choices
from mechid.model.geometry import Array, finite, numeric
from mechid.model.system import System

HOLDS = ("zero-order", "midpoint", "mean", "end")
"""how an input's samples become one value a step: the last one before it, the value in its middle, its mean, the
value at its end, where BDF balances forces"""
ALIKE = 1e-9
"""of the standard deviations: entries of a covariance on both sides of its diagonal may differ so much"""
DEFINITE = 1e-12
"""smallest eigenvalue of a correlation matrix"""


@dataclass(frozen=True, eq=False)
class Measured:
    """Channels of the log that a sensor should show."""

    sensor: Sensor
    channels: Sequence[str] | str
    """a name for each of the sensor's values, in its order"""
    std: float | Sequence[float] | None = None
    """standard deviation of the noise, in the channel's SI unit, for all or for each; None: estimated"""
    covariance: ArrayLike | None = None
    """(c, c) of the noise, where it is correlated between the channels, in the place of std; the product of two
    channels' SI units"""

    def __post_init__(self) -> None:
        given: Any = self.channels if isinstance(self.channels, list | tuple) else (self.channels,)
        names = tuple(given)
        if not names or not all(isinstance(n, str) for n in names):
            raise MechidError(f"A sensor needs names of channels, not {self.channels!r}.")
        object.__setattr__(self, "channels", names)
        if self.std is not None:
            shape = (len(names),) if np.ndim(self.std) else ()  # type: ignore[arg-type]
            std = finite(self.std, shape, f"The std of {choices(names)}")  # type: ignore[arg-type]
            if np.any(std <= 0.0):
                raise MechidError(f"The std of {choices(names)} must be > 0, not {self.std}.")
        if self.covariance is not None:
            if self.std is not None:
                raise MechidError(
                    f"The noise of {choices(names)} is given twice, as std and as covariance: give one of them."
                )
            object.__setattr__(self, "covariance", _covariance(self.covariance, names))

    @property
    def noise(self) -> Array | None:
        """A standard deviation for each channel, or None."""
        if self.covariance is not None:
            return np.sqrt(np.diag(np.asarray(self.covariance)))
        return None if self.std is None else np.broadcast_to(np.asarray(self.std, float), len(self.channels))

    @property
    def correlation(self) -> Array | None:
        """(c, c) of the noise between channels; None where there is none."""
        std = self.noise
        if self.covariance is None or std is None:
            return None
        C = np.asarray(self.covariance) / np.outer(std, std)
        np.fill_diagonal(C, 1.0)
        return None if np.array_equal(C, np.eye(len(C))) else C


def _covariance(given: ArrayLike, names: tuple[str, ...]) -> Array:
    what = f"The covariance of {choices(names)}"
    C = finite(given, (len(names), len(names)), what)
    size = np.abs(np.diag(C))
    if np.any(np.abs(C - C.T) > ALIKE * np.sqrt(np.outer(size, size))):
        raise MechidError(f"{what} is not symmetric.")
    C = (C + C.T) / 2
    std = np.sqrt(size)
    if np.any(np.diag(C) <= 0.0) or np.linalg.eigvalsh(C / np.outer(std, std))[0] < DEFINITE:
        raise MechidError(f"{what} is not positive definite.")
    return C


Known = float | str
"""a standard deviation; 0 or "known": exactly known; ∞ or "free": unknown"""


@dataclass(frozen=True, eq=False)
class Condition:
    """What the first state must fulfil: residual(q, v, model) = 0.

        Condition("hangs still", lambda q, v, model: model.force_balance(q, 0 * v, 0 * v, jnp.zeros(model.nu), 0.0))

    It ties what is unknown of the first state to the parameters, or to itself. What is held by the start's
    standard deviations stays held: leave free what the condition is to determine.
    """

    name: str
    residual: Callable[[Any, Any, Any], Any]
    """of the first coordinates (rad, m), their rates (rad/s, m/s) and the model with its parameters; in jax.numpy,
    a number or a vector in SI units"""
    std: float | Sequence[float] | None = None
    """how closely it is held, in the residual's SI unit, for all its values or for each; None: exactly, which
    needs LevenbergMarquardt. A std far below what the data tell makes the search slow: hold it exactly instead"""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise MechidError(f"A condition needs a name, not {self.name!r}.")
        if not callable(self.residual):
            raise MechidError(
                f"The residual of condition '{self.name}' must be a function of (q, v, model), not "
                f"{self.residual!r}."
            )
        if self.std is not None:
            what = f"The std of condition '{self.name}'"
            shape = np.shape(numeric(self.std, what))  # type: ignore[arg-type]
            if len(shape) > 1 or np.any(finite(self.std, shape, what) <= 0.0):  # type: ignore[arg-type]
                raise MechidError(f"{what} must be > 0, one number or one for each value, not {self.std}.")


@dataclass(frozen=True, eq=False)
class Start:
    """What is known of the first state: coordinates, rates, and how well.

    Values by name or in order, 0 where absent. Standard deviations by name, or one for all: 0 or "known" holds a
    value, "free" leaves it open, a number in between is a prior. Where loops are closed, as many coordinates as
    they determine follow from the others, the least known ones first. Conditions say what else must hold.
    """

    q: Mapping[str, float] | ArrayLike | None = None
    """rad or m"""
    v: Mapping[str, float] | ArrayLike | None = None
    """rad/s or m/s"""
    q_std: Mapping[str, Known] | Known = 0.0
    v_std: Mapping[str, Known] | Known = 0.0
    conditions: Sequence[Condition] | Condition = ()

    def __post_init__(self) -> None:
        given: Any = self.conditions
        conditions = tuple(given) if isinstance(given, list | tuple) else (given,)
        for c in conditions:
            if not isinstance(c, Condition):
                raise MechidError(f"The conditions of a start must be Condition(…), not {c!r}.")
        names = [c.name for c in conditions]
        for name in names:
            if names.count(name) > 1:
                raise MechidError(
                    f"Two conditions of a start are called '{name}': give each a name of its own."
                )
        object.__setattr__(self, "conditions", conditions)

    def values(self, mechanism: System) -> tuple[Array, Array]:
        """Coordinates and rates."""
        return (
            mechanism.coordinate_vector(self.q, "The initial coordinate"),  # type: ignore[arg-type]
            mechanism.coordinate_vector(self.v, "The initial rate"),  # type: ignore[arg-type]
        )

    def stds(self, mechanism: System) -> tuple[Array, Array]:
        """Their standard deviations: 0 held, ∞ free."""
        return _stds(mechanism, self.q_std, "q_std"), _stds(mechanism, self.v_std, "v_std")


def _stds(mechanism: System, given: Mapping[str, Known] | Known, what: str) -> Array:
    if not isinstance(given, Mapping):
        return np.full(len(mechanism.coordinates), _std(given, f"The {what} of the start"))
    stds = np.zeros(len(mechanism.coordinates))
    for name, value in given.items():
        mechanism.coordinate(name)
        stds[mechanism.coordinate_names.index(name)] = _std(value, f"The {what} of '{name}'")
    return stds


def _std(value: Any, what: str) -> float:
    if isinstance(value, str):
        if value not in ("known", "free"):
            raise MechidError(f"{what} is '{value}'; valid: a number ≥ 0, 'known', 'free'.")
        return 0.0 if value == "known" else np.inf
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not value >= 0.0:
        raise MechidError(f"{what} is {value!r}; valid: a number ≥ 0, 'known', 'free'.")
    return float(value)


@dataclass(frozen=True)
class LQR:
    """Gains of a finite-horizon discrete linear-quadratic regulator along the measured motion.

    It minimises Σ state_weight ‖b − b_meas‖² + input_weight ‖u − T‖²; the larger their ratio, the stiffer.
    """

    state_weight: float | tuple[float, ...] = 1.0
    """Q: 1/rad² or 1/m², for all tracked coordinates or for each"""
    input_weight: float | tuple[float, ...] = 1e-3
    """R: 1/(N·m)² or 1/N², for all inputs or for each"""


@dataclass(frozen=True, eq=False)
class Tracked:
    """The papers' stabilising filter: F = T_meas − K(t) (b − b_meas), on the coordinates that are measured.

    The gains are found once, at the starting parameters, and then held: they do not enter the gradient.
    """

    channels: Mapping[str, str]
    """a channel of the log for each coordinate that is fed back"""
    gain: LQR | ArrayLike = field(default_factory=LQR)
    """LQR(…), or K: (inputs, tracked) for all steps, or (steps, inputs, tracked)"""


@dataclass(frozen=True, eq=False)
class Cost:
    """A cost of Bolza form: Σ running(…) over the samples + terminal(…) at the last one.

    Both are functions (observation, measured, parameters) in jax.numpy that give one number: what sensors see at
    the sample, the channels of `measured` in their order, and the parameters' physical values by name.
    """

    running: Callable[[Any, Any, Mapping[str, Any]], Any]
    terminal: Callable[[Any, Any, Mapping[str, Any]], Any] | None = None


@dataclass(frozen=True, eq=False)
class Experiment:
    """One log explained by one mechanism."""

    log: Log
    measured: Sequence[Measured]
    inputs: Mapping[str, str | float] = field(default_factory=dict)
    """a channel, or one value held throughout, for each of the mechanism's inputs; 0 where absent"""
    start: Start = field(default_factory=Start)
    hold: str = "zero-order"
    span: tuple[float | None, float | None] = (None, None)
    """from when to when, s; by default from the first to the last sample of a measured channel"""
    feedback: Tracked | None = None
    cost: Cost | None = None
    """in the place of weighted squares"""
    terminal_weight: float = 0.0
    """how many times more the last sample counts (m_d of the papers: 1)"""
    name: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.log, Log):
            raise MechidError(f"An experiment needs a Log, not {self.log!r}: use read_log(…) or log_of(…).")
        if not self.name:
            object.__setattr__(self, "name", self.log.name)
        measured = tuple(self.measured) if isinstance(self.measured, list | tuple) else (self.measured,)
        if not measured:
            raise MechidError(f"Experiment '{self.name}' measures nothing: give at least one Measured(…).")
        for m in measured:
            if not isinstance(m, Measured):
                raise MechidError(f"Experiment '{self.name}' needs Measured(…), not {m!r}.")
        object.__setattr__(self, "measured", measured)
        if self.hold not in HOLDS:
            raise MechidError(
                f"The hold of experiment '{self.name}' is {self.hold!r}; valid: {choices(HOLDS)}."
            )
        weight = finite(self.terminal_weight, (), f"The terminal_weight of experiment '{self.name}'")
        if weight < 0.0:
            raise MechidError(f"The terminal_weight of experiment '{self.name}' must be ≥ 0.")
        for what, kind in (("inputs", Mapping), ("start", Start), ("feedback", Tracked), ("cost", Cost)):
            value = getattr(self, what)
            if not isinstance(value, kind) and (value is not None or what in ("inputs", "start")):
                raise MechidError(
                    f"The {what} of experiment '{self.name}' must be a {kind.__name__}, not {value!r}."
                )
        span = self.span
        if not isinstance(span, list | tuple) or len(span) != 2:
            raise MechidError(f"The span of experiment '{self.name}' must be (from, to) in s, not {span!r}.")
        for x in span:
            if x is not None and (isinstance(x, bool) or not isinstance(x, int | float | np.number)):
                raise MechidError(
                    f"The span of experiment '{self.name}' must be numbers or None, not {span!r}."
                )
