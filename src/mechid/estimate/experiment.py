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
from mechid.model.geometry import Array, finite
from mechid.model.mechanism import Mechanism

HOLDS = ("zero-order", "midpoint", "mean")
"""how an input's samples become one value a step: the last one before it, the value in its middle, its mean"""


@dataclass(frozen=True, eq=False)
class Measured:
    """Channels of the log that a sensor should show."""

    sensor: Sensor
    channels: Sequence[str] | str
    """a name for each of the sensor's values, in its order"""
    std: float | Sequence[float] | None = None
    """standard deviation of the noise, in the channel's SI unit, for all or for each; None: estimated"""

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

    @property
    def noise(self) -> Array | None:
        """A standard deviation for each channel, or None."""
        return None if self.std is None else np.broadcast_to(np.asarray(self.std, float), len(self.channels))


Known = float | str
"""a standard deviation; 0 or "known": exactly known; ∞ or "free": unknown"""


@dataclass(frozen=True, eq=False)
class Start:
    """What is known of the first state: coordinates, rates, and how well.

    Values by name or in order, 0 where absent. Standard deviations by name, or one for all: 0 or "known" holds a
    value, "free" leaves it open, a number in between is a prior. Where loops are closed, as many coordinates as
    they determine follow from the others, the least known ones first.
    """

    q: Mapping[str, float] | ArrayLike | None = None
    """rad or m"""
    v: Mapping[str, float] | ArrayLike | None = None
    """rad/s or m/s"""
    q_std: Mapping[str, Known] | Known = 0.0
    v_std: Mapping[str, Known] | Known = 0.0

    def values(self, mechanism: Mechanism) -> tuple[Array, Array]:
        """Coordinates and rates."""
        return (
            mechanism.coordinate_vector(self.q, "The initial coordinate"),  # type: ignore[arg-type]
            mechanism.coordinate_vector(self.v, "The initial rate"),  # type: ignore[arg-type]
        )

    def stds(self, mechanism: Mechanism) -> tuple[Array, Array]:
        """Their standard deviations: 0 held, ∞ free."""
        return _stds(mechanism, self.q_std, "q_std"), _stds(mechanism, self.v_std, "v_std")


def _stds(mechanism: Mechanism, given: Mapping[str, Known] | Known, what: str) -> Array:
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
