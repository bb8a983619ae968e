"""The KUKA KR300 of `joint-friction`: what encoders on both sides of a gear and the motor's torque tell of a joint.

For each of axes 1 to 3, with q and q_l the angles of motor and link (rad, on the link's side), τ the torque of the
motor (N·m, on its side) and N the ratio, the first line of (3.8), the twist measured in the place of the link's
motion:

    τ = J N q̈ + b N q̇ + C tanh(q̇/w) + (k/N) (q − q_l − offset − lag q̇)

In it the link's inertia, weight and the other axes do not appear: all they do passes through the gear. So J and k
stand apart, if the twist is measured finely enough. Both sides are in error, and so each is taken to be exact in
turn: the torque regressed on the twist gives a stiffness that is too low, by what the twist's errors hide; the
twist regressed on the torque gives one that is too high. The truth lies between. Viscous friction and the lag
between the encoders are one number here; friction is told apart in the motor's torque as a function of the motion
alone, with the arm's inertia and weight in the place of the twist.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import root_scalar
from scipy.signal import savgol_filter

from mechid.data.log import Log, read_log
from mechid.errors import MechidError, unknown
from mechid.estimate.linear import LinearSolution, least_squares
from mechid.reference import reference_file
from mechid.studies import joint_friction_kr300_tell as words
from mechid.studies.study import Settings, Study

AXES = (1, 2, 3)
FOLDER = ("data", "kuka_kr300")
SETTINGS: Settings = {"kr300_fit": "A", "kr300_window": 0.164}
ABOUT = {
    "kr300_fit": "log of the real KUKA KR300 that is fitted; the next one judges",
    "kr300_window": "s that the filter of its signals and their derivatives looks over",
}
RATIO = {1: 256.857, 2: 267.429, 3: 252.333}
PUBLISHED = {
    "stiffness": {1: 4.578e6, 2: 7.519e6, 3: 4.100e6},
    "motor_inertia": {1: 0.00923, 2: 0.0118, 3: 0.0118},
}
TOLD, ROUGH = 0.15, 0.5
"""relative standard deviation up to which a number is told, up to which it is told roughly"""
MOVING = 3e-3
"""rad/s of the link: below it friction holds, and its force is any"""
ROUND, STRIBECK = 0.01, 0.05
"""rad/s of the link: over which friction changes its sign, and over which its excess fades"""
ENDS = 0.1
"""s before and behind a filter's window that are left out"""


@dataclass(frozen=True, eq=False)
class Axis:
    """One axis in one log; all signals through one filter, whose derivatives are those of its polynomials."""

    number: int
    time: np.ndarray
    q: np.ndarray
    """(N, 3) of all three axes, rad"""
    v: np.ndarray
    a: np.ndarray
    torque: np.ndarray
    """N·m, of the motor"""
    twist: np.ndarray
    """motor less link, rad"""

    def own(self, of: np.ndarray) -> np.ndarray:
        """This axis of all three."""
        return np.asarray(of)[:, self.number - 1]

    @property
    def rate(self) -> np.ndarray:
        return self.own(self.v)

    @property
    def moving(self) -> np.ndarray:
        return np.abs(self.rate) > MOVING


class Reading(NamedTuple):
    """One number as one regression of one log gives it."""

    how: str
    value: float
    std: float


@dataclass(frozen=True)
class Found:
    """One number of one axis, from all its readings."""

    name: str
    brackets: tuple[tuple[Reading, ...], ...]
    """readings between which each regression leaves it; one where both sides were not regressed"""
    published: float | None = None

    @property
    def readings(self) -> tuple[Reading, ...]:
        return tuple(r for bracket in self.brackets for r in bracket)

    @cached_property
    def together(self) -> tuple[float, float]:
        """Value and standard deviation.

        The middles of the brackets, each known to half its width and its readings' own deviations, weighed by these
        and by how far they scatter beyond them (Paule and Mandel). They come from the same logs: their deviations
        do not average out.
        """
        values = np.array([np.mean([r.value for r in bracket]) for bracket in self.brackets])
        own = np.array([np.mean([r.std**2 for r in b]) + np.var([r.value for r in b]) for b in self.brackets])

        def excess(more: float) -> float:
            weight = 1.0 / (own + more)
            middle = weight @ values / weight.sum()
            return float(weight @ (values - middle) ** 2 - (len(values) - 1))

        scatter, top = 0.0, 10.0 * float(np.var(values)) + 1e-300
        if excess(0.0) > 0.0:
            scatter = float(root_scalar(excess, bracket=(0.0, top)).root)
        weight = 1.0 / (own + scatter)
        return float(weight @ values / weight.sum()), float(np.sqrt(len(values) / weight.sum()))

    @property
    def value(self) -> float:
        return self.together[0]

    @property
    def std(self) -> float:
        return self.together[1]

    @property
    def told(self) -> str:
        spread = self.std / self.value if self.value > 0.0 else np.inf
        return "no" if spread > ROUGH else "yes" if spread <= TOLD else "roughly"


@dataclass(frozen=True)
class Judged:
    """One axis: its numbers, and how well the twist and the torque of the other log are foretold."""

    number: int
    found: dict[str, Found]
    foretold: dict[str, tuple[float, float]]
    """rms of the errors on the other log, and of the signal about its mean; of a twist about its lag"""
    controller: tuple[float, float]
    """N·m·s/rad of the velocity controller that fast torques follow, and how much of these it explains"""
    twist_fit: LinearSolution = field(repr=False)

    def twist(self, at: Axis) -> np.ndarray:
        """What the fitted log says of a twist, from motion and torque."""
        columns = _gear_columns(at, np.ones(len(at.time), bool)) | {"torque": at.torque}
        return np.column_stack(list(columns.values())) @ self.twist_fit.theta


def kr300(settings: Settings, study: Study) -> dict[str, Any]:
    """Tables and sentences on the real joints, their figure, and their numbers for the JSON line.

    settings: kr300_fit, the log that is fitted (the next one judges), kr300_window, s of the filter.
    """
    fitted, window = str(settings["kr300_fit"]), float(settings["kr300_window"])
    names = recordings()
    if fitted not in names:
        raise unknown("log of the KUKA KR300 (kr300_fit)", fitted, names)
    if not 0.02 <= window <= 1.0:
        raise MechidError(f"The filter's window kr300_window must be between 0.02 and 1 s, not {window:g}.")
    other = names[(names.index(fitted) + 1) % len(names)]
    pair = (fitted, other)
    logs = {name: read_log(reference_file(*FOLDER, f"traj_{name}.csv"), time="t") for name in pair}
    judged = [judge(logs, number, fitted, other, window) for number in AXES]
    for axis in judged:
        words.tell(study, axis, fitted, other)
    said = words.remarks(judged)
    for sentence in said:
        study.say(f"  {sentence}")
    path = study.figure_path("kr300.png")
    at = {(name, number): signals(logs[name], number, window) for name in pair for number in AXES}
    words.draw(at, judged, other, path)
    study.say(f"\n  Figure: {path}")
    axes = {axis.number: words.as_json(axis) for axis in judged}
    return {
        "parameters": {
            f"{name}_{number}": p for number, told in axes.items() for name, p in told["parameters"].items()
        },
        "fitted": fitted,
        "validated": other,
        "axes": {str(number): told for number, told in axes.items()},
        "remarks": said,
        "figure": str(path),
    }


# From logs to signals


def recordings() -> list[str]:
    """Names of all logs of the folder."""
    names = sorted(p.stem.removeprefix("traj_") for p in reference_file(*FOLDER).glob("traj_*.csv"))
    if len(names) < 2:
        raise MechidError(
            f"The reference folder '{'/'.join(FOLDER)}' must hold two logs (traj_*.csv) or more, "
            f"one to fit and one to judge, not {len(names)}."
        )
    return names


def signals(log: Log, axis: int, window: float) -> Axis:
    """The signals of an axis, each through the filter of Savitzky and Golay (cubic, over `window` seconds)."""
    time = log["q_motor_1"].time
    step = float(np.median(np.diff(time)))
    width = 2 * int(window / step / 2.0) + 1

    def filtered(x: np.ndarray, order: int = 0) -> np.ndarray:
        return np.asarray(savgol_filter(x, width, 3, deriv=order, delta=step, axis=0))

    q = np.column_stack([log[f"q_motor_{i}"].values for i in AXES])
    twist = log[f"q_motor_{axis}"].values - log[f"q_link_{axis}"].values
    torque = log[f"tau_motor_{axis}"].values
    inner = slice(width // 2 + round(ENDS / step), -(width // 2 + round(ENDS / step)))
    parts = (time, filtered(q), filtered(q, 1), filtered(q, 2), filtered(torque), filtered(twist))
    return Axis(axis, *(part[inner] for part in parts))


# Regressions


def gear(axes: list[Axis], *, shaped: bool) -> tuple[LinearSolution, LinearSolution]:
    """The torque by twist and motion, and the twist by torque and motion.

    shaped: with an error of the link's encoder that comes again each turn.
    """
    parts = [_gear_columns(a, a.moving, shaped=shaped) for a in axes]
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    torque = np.concatenate([a.torque[a.moving] for a in axes])
    twist = np.concatenate([a.twist[a.moving] for a in axes])
    lengths = [int(a.moving.sum()) for a in axes]
    forward = regressed(columns | {"k/N": twist}, torque, lengths)
    return forward, regressed(columns | {"torque": torque}, twist, lengths)


def _gear_columns(axis: Axis, at: np.ndarray, *, shaped: bool = False) -> dict[str, np.ndarray]:
    N, rate, angle = RATIO[axis.number], axis.rate[at], axis.own(axis.q)[at]
    columns = {
        "offset": np.ones(len(rate)),
        "J": N * axis.own(axis.a)[at],
        "b": N * rate,
        "C": np.tanh(rate / ROUND),
    }
    return columns | ({"sine": np.sin(angle), "cosine": np.cos(angle)} if shaped else {})


def arm(axes: list[Axis], *, stribeck: bool = False) -> LinearSolution:
    """The torque by the motion alone: inertia, weight and friction of an arm that is taken to be rigid."""
    parts = [_arm_columns(a, stribeck) for a in axes]
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    torque = np.concatenate([a.torque[a.moving] for a in axes])
    return regressed(columns, torque, [int(a.moving.sum()) for a in axes])


def _arm_columns(axis: Axis, stribeck: bool = False) -> dict[str, np.ndarray]:
    N, m = RATIO[axis.number], axis.moving
    rate, q = axis.rate[m], axis.q[m]
    side = np.tanh(rate / ROUND)
    columns = {"offset": np.ones(len(q)), "J": N * axis.own(axis.a)[m], "b": N * rate, "C": side}
    if stribeck:
        columns["S"] = side * np.exp(-np.abs(rate / STRIBECK))
    # the weight of what lies behind an elbow; of the upper arm with it
    angles = {"2": q[:, 1], "23": q[:, 1] + q[:, 2]}
    for name in {1: (), 2: ("2", "23"), 3: ("23",)}[axis.number]:
        columns |= {f"sine {name}": np.sin(angles[name]), f"cosine {name}": np.cos(angles[name])}
    return columns


def regressed(columns: Mapping[str, np.ndarray], y: np.ndarray, lengths: list[int]) -> LinearSolution:
    """Least squares whose standard deviations know that neighbouring residuals are alike (Newey and West)."""
    phi = np.column_stack(list(columns.values()))
    fit = least_squares(phi, y, tuple(columns))
    size = np.linalg.norm(phi, axis=0)
    inverse = np.linalg.pinv((phi / size).T @ (phi / size)) / np.outer(size, size)
    middle, at = np.zeros((len(size), len(size))), 0
    residual = y - phi @ fit.theta
    for length in lengths:
        scores = phi[at : at + length] * residual[at : at + length, None]
        at += length
        lags = min(length - 1, int(np.ceil(4.0 * length**0.5)))
        middle += scores.T @ scores
        for lag in range(1, lags + 1):
            shared = scores[lag:].T @ scores[:-lag]
            middle += (1.0 - lag / (lags + 1)) * (shared + shared.T)
    return fit.with_covariance(inverse @ middle @ inverse)


# From regressions to numbers


def judge(logs: Mapping[str, Log], number: int, fitted: str, other: str, window: float) -> Judged:
    """An axis from both logs: readings of each number, and what the fitted log foretells of the other."""
    at = {name: signals(log, number, window) for name, log in logs.items()}
    both = [at[fitted], at[other]]
    gears = {name: gear([at[name]], shaped=False) for name in (fitted, other)}
    gears["both"] = gear(both, shaped=True)
    arms = {name: arm([at[name]]) for name in (fitted, other)} | {"both": arm(both)}
    N = RATIO[number]
    readings: dict[str, list[tuple[Reading, ...]]] = {name: [] for name in words.UNITS}
    for name, (forward, inverse) in gears.items():
        one, two = f"{name}, torque by twist", f"{name}, twist by torque"
        readings["stiffness"].append((_scaled(one, forward, "k/N", N), _inverse(two, inverse, N)))
        readings["motor_inertia"].append((_scaled(one, forward, "J", 1.0), _ratio(two, inverse, "J")))
        readings["coulomb"].append((_scaled(one, forward, "C", 1.0),))
        readings["lag"].append((_scaled(two, inverse, "b", N),))
    for name, fit in arms.items():
        how = f"{name}, arm"
        curved = arm(both if name == "both" else [at[name]], stribeck=True)
        readings["viscous"].append((_scaled(how, fit, "b", 1.0),))
        readings["coulomb"].append((_scaled(how, fit, "C", 1.0),))
        readings["stribeck"].append((_scaled(how, curved, "S", 1.0),))
    found = {
        name: Found(name, tuple(own), PUBLISHED.get(name, {}).get(number)) for name, own in readings.items()
    }
    return Judged(
        number,
        found,
        _foretold(at[fitted], at[other]),
        _controller(logs, number),
        gears[fitted][1],
    )


def _of(fit: LinearSolution, name: str) -> tuple[float, float]:
    i = fit.names.index(name)
    return float(fit.theta[i]), float(fit.std[i])


def _scaled(how: str, fit: LinearSolution, name: str, factor: float) -> Reading:
    value, std = _of(fit, name)
    return Reading(how, factor * value, factor * std)


def _inverse(how: str, fit: LinearSolution, N: float) -> Reading:
    """k = N / (twist for each N·m of the motor)."""
    value, std = _of(fit, "torque")
    return Reading(how, N / value, N * std / value**2)


def _ratio(how: str, fit: LinearSolution, name: str) -> Reading:
    """The motor's own number: minus what the twist follows it by, divided by what it follows torque by."""
    (top, top_std), (bottom, bottom_std) = _of(fit, name), _of(fit, "torque")
    value = -top / bottom
    return Reading(how, value, float(np.hypot(top_std / bottom, value * bottom_std / bottom)))


def _foretold(fitted: Axis, other: Axis) -> dict[str, tuple[float, float]]:
    """What the numbers of one log say of the other's twist and torque."""
    forward, inverse = gear([fitted], shaped=False)
    m = other.moving
    motion = _gear_columns(other, m)
    # what of a twist is neither offset nor lag
    still = np.column_stack([np.ones(m.sum()), other.rate[m]])
    twist = other.twist[m]
    left = twist - still @ np.linalg.lstsq(still, twist, rcond=None)[0]
    told = {
        "torque, from motion and twist": (forward, motion | {"": twist}, other.torque[m], other.torque[m]),
        "twist, from motion and torque": (inverse, motion | {"": other.torque[m]}, twist, left),
        "torque, from motion alone": (arm([fitted]), _arm_columns(other), other.torque[m], other.torque[m]),
    }
    return {
        name: (
            float(np.std(np.column_stack(list(columns.values())) @ fit.theta - seen)),
            float(np.std(signal)),
        )
        for name, (fit, columns, seen, signal) in told.items()
    }


def _controller(logs: Mapping[str, Log], number: int) -> tuple[float, float]:
    """How far fast torques are −K times the motor's last rate, and K (N·m·s/rad): second differences of both."""
    rates, torques = [], []
    for log in logs.values():
        step = float(np.median(np.diff(log["q_motor_1"].time)))
        rate = RATIO[number] * np.diff(log[f"q_motor_{number}"].values) / step
        rates.append(np.diff(rate, 2))
        torques.append(np.diff(log[f"tau_motor_{number}"].values[1:], 2))
    x, y = np.concatenate(rates), np.concatenate(torques)
    K = -float(x @ y / (x @ x))
    return K, float(1.0 - np.sum((y + K * x) ** 2) / np.sum(y**2))
