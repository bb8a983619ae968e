"""From logs to samples of a motion: positions filtered without phase, rates and accelerations, inputs as they act.

Positions go through a Butterworth low-pass forwards and backwards and through differences of eighth order. What
follows from them is later averaged over windows, both sides of the equations alike, which keeps them true whatever
the window is. Noise that the low-pass leaves in accelerations biases inertias low (errors in variables): by how
much is told.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from mechid.data import filters
from mechid.data.log import Channel
from mechid.data.runs import cubic, read_off, runs, typical_step
from mechid.dynamics.sensors import AxisPosition, JointPosition
from mechid.errors import MechidError, choices, unknown
from mechid.estimate.delay import signal
from mechid.estimate.experiment import Experiment
from mechid.estimate.linear_form import MechanismForm

RATE = np.array([0.0, 4 / 5, -1 / 5, 4 / 105, -1 / 280])
"""weights of x_k − x_−k in the first derivative"""
BEND = np.array([-205 / 72, 8 / 5, -1 / 5, 8 / 315, -1 / 560])
"""weights of x_k + x_−k in the second one"""
REACH = 4
KEPT = 0.95
"""part of a rate's power that lies at the frequencies of the motion"""
CLEAR = 4.0
"""times the density that noise has, beyond which there is motion"""
ROUNDED, TOLD = 3e-4, 3e-3
"""part of the motion's accelerations that a low-pass that is chosen may take away, and from which on it is told"""
WIDER = 1.02
"""step of the search for the cutoff"""
NEAR = 3.0
"""by how much the density of acceleration may exceed its least to count as having fallen that far"""
BIASED = 0.01
"""noise in accelerations, as a part of their variance, from which on it is told"""


@dataclass(frozen=True)
class Signals:
    """How positions become accelerations, and samples become rows. None: chosen from the log, and told."""

    cutoff: float | None = None
    """Hz, of the low-pass of positions; ∞: none"""
    order: int = 4
    window: float | None = None
    """s, over which both sides of the equations are averaged; 0: every sample is a row"""
    trim: float | None = None
    """s left out at both ends of every run without gaps, where filters know too little"""

    def __post_init__(self) -> None:
        for name in ("cutoff", "window", "trim"):
            x = getattr(self, name)
            good = isinstance(x, int | float) and not isinstance(x, bool) and x >= 0.0
            if x is not None and (not good or (name == "cutoff" and x == 0.0)):
                least = "> 0" if name == "cutoff" else "≥ 0"
                raise MechidError(f"The {name} of signals must be a number {least}, or None, not {x!r}.")
        if not isinstance(self.order, int) or isinstance(self.order, bool) or not 1 <= self.order <= 10:
            raise MechidError(
                f"The order of signals must be a whole number from 1 to 10, not {self.order!r}."
            )


class Motion(NamedTuple):
    """One log as samples of a linear form."""

    name: str
    samples: np.ndarray
    """(N, channels of the form)"""
    runs: tuple[slice, ...]
    """of samples without gaps between them"""
    together: int
    """samples that one row is the mean of"""
    notes: tuple[str, ...]
    signals: Signals
    """with the cutoff that was chosen"""


def measured_motion(form: MechanismForm, experiment: Experiment, signals: Signals) -> Motion:
    """The samples of an experiment."""
    who = f"Experiment '{experiment.name}'"
    channels, notes = _positions(form, experiment)
    t = _times(channels[0], experiment, who)
    q = np.array([_on(c, t) for c in channels])
    u = _inputs(form, experiment, t)
    whole = np.isfinite(q).all(0) & np.isfinite(u).all(0)
    step = typical_step(t)
    cutoff = signals.cutoff
    stretches = runs(t, np.where(whole, 0.0, np.nan))
    if not stretches:
        raise MechidError(f"{who} has no moment at which all positions and inputs were measured.")
    longest = max(stretches, key=len)
    if len(longest) < 32:
        raise MechidError(
            f"{who} has only {len(longest)} samples in a row; differentiating them twice takes 32 at least."
        )
    noise = [_noise(x[longest], step) for x in q]
    chosen = cutoff is None
    spectra = [_motion_of(x[longest], step) for x in q]
    if cutoff is None:
        cutoff = max(_chosen(s, step, signals.order) for s in spectra)
    choice = Signals(cutoff, signals.order, signals.window, signals.trim)
    filtered = cutoff < 0.4 / step
    if not filtered:
        cutoff = 0.4 / step
    window = 0.4 / cutoff if signals.window is None else signals.window
    together = max(1, round(window / step))
    trim = (2.0 / cutoff if filtered else 0.0) if signals.trim is None else signals.trim
    if filtered:
        smooth = [
            filters.low_pass(
                f"{who}, channel of '{name}'", t, np.where(whole, x, np.nan), cutoff, signals.order
            )
            for name, x in zip(form.independent, q, strict=True)
        ]
        q, lost = np.array([x for x, _ in smooth]), smooth[0][1]
        notes += lost
    else:
        _refuse_uneven(who, t, stretches)
    kept, pieces, at = [], [], 0
    margin = REACH + round(trim / step)
    for run in stretches:
        count = (len(run) - 2 * margin) // together * together
        if count <= 0 or np.isnan(q[0, run[0]]):
            continue
        inner = slice(margin, margin + count)
        v, a = _derivatives(q[:, run], step)
        pieces.append(np.vstack([t[run][None], q[:, run], v, a, u[:, run]])[:, inner].T)
        kept.append(slice(at, at + count))
        at += count
    if not pieces:
        raise MechidError(
            f"{who} has no run of samples longer than what is trimmed at its ends, {2 * margin * step:.3g} s, and "
            f"a window of {together * step:.3g} s: give a smaller trim or a higher cutoff."
        )
    samples = np.concatenate(pieces)
    how = f"by a low-pass of {cutoff:.3g} Hz (order {signals.order}, forwards and backwards)"
    how = (how + ", chosen from the log" * chosen) if filtered else "by no low-pass"
    notes.append(
        f"{who}: positions at {1 / step:.4g} Hz, filtered {how}; both sides averaged over {together * step:.3g} s, "
        f"{at // together} rows a coordinate; {len(t) - at} of {len(t)} samples left out at the ends of "
        f"{len(kept)} run{'s' * (len(kept) != 1)} ({trim:.3g} s and differences)."
    )
    notes += _bias(form, samples, kept, together, step, noise, cutoff if filtered else None, signals.order)
    if filtered:
        notes += _rounding(who, form, [s.rounded(cutoff, step, signals.order)[0] for s in spectra], cutoff)
    return Motion(experiment.name, samples, tuple(kept), together, tuple(notes), choice)


def measured_positions(mechanism: Any, experiment: Experiment) -> tuple[dict[str, Channel], list[str]]:
    """Channels of positions by coordinate, and the names of all other measured channels."""
    names = mechanism.coordinate_names
    found: dict[str, Channel] = {}
    unused: list[str] = []
    for m in experiment.measured:
        if isinstance(m.sensor, JointPosition | AxisPosition):
            for i, c in zip(np.atleast_1d(m.sensor.index), m.channels, strict=True):
                if c not in experiment.log:
                    raise unknown("channel", c, experiment.log.names)
                if int(i) < len(names):
                    found[names[int(i)]] = experiment.log[c]
                else:  # a combination
                    unused.append(c)
        else:
            unused += list(m.channels)
    return found, unused


def _positions(form: MechanismForm, experiment: Experiment) -> tuple[list[Channel], list[str]]:
    """A channel of positions for each independent coordinate."""
    found, unused = measured_positions(form.mechanism, experiment)
    for name in form.independent:
        if name not in found:
            raise MechidError(
                f"Regression needs the position of every coordinate, and experiment '{experiment.name}' does not "
                f"measure that of '{name}': give Measured(joint_position(mechanism, '{name}'), …), or use "
                "simulation_error or joint."
            )
    notes = []
    if unused:
        notes.append(
            f"Experiment '{experiment.name}': {choices(unused)} were not used: rates and accelerations come from "
            "positions."
        )
    follow = [c for c in found if c not in form.independent]
    if follow:
        notes.append(
            f"Experiment '{experiment.name}': the positions of {choices(follow)} follow from the others and were "
            "not used."
        )
    return [found[name] for name in form.independent], notes


def _times(first: Channel, experiment: Experiment, who: str) -> np.ndarray:
    start, end = experiment.span
    t = first.time
    t = t[(t >= (-np.inf if start is None else start)) & (t <= (np.inf if end is None else end))]
    if len(t) < 2:
        raise MechidError(f"{who} has no two samples in its span.")
    return t


def _on(channel: Channel, t: np.ndarray) -> np.ndarray:
    """A channel at other times, by splines within its runs."""
    if len(channel.time) == len(t) and np.array_equal(channel.time, t):
        return channel.values
    at = np.searchsorted(channel.time, t)
    inside = at < len(channel.time)
    if inside.all() and np.array_equal(channel.time[at], t):
        return channel.values[at]
    return read_off(channel.time, channel.values, t, cubic, None)


def _inputs(form: MechanismForm, experiment: Experiment, t: np.ndarray) -> np.ndarray:
    """(nu, N) the inputs that act at these times: means over a step around each."""
    names = form.mechanism.input_names
    u = np.zeros((len(names), len(t)))
    middle = (t[1:] + t[:-1]) / 2
    edges = np.concatenate([[2 * t[0] - middle[0]], middle, [2 * t[-1] - middle[-1]]])
    for name, source in experiment.inputs.items():
        if name not in names:
            raise unknown("input", name, names)
        if isinstance(source, str):
            if source not in experiment.log:
                raise unknown("channel", source, experiment.log.names)
            channel = experiment.log[source]
            delay = form.mechanism.delays.get(name, 0.0)
            u[names.index(name)] = signal(channel, experiment.hold).over(edges, delay)[0]
            # what was not measured is not made up
            gaps = read_off(channel.time, channel.values, t - delay, _nothing, None)
            u[names.index(name), np.isnan(gaps)] = np.nan
        elif isinstance(source, int | float | np.number) and np.isfinite(source):
            u[names.index(name)] = float(source)
        else:
            raise MechidError(f"Input '{name}' needs a channel's name or a number, not {source!r}.")
    return u


def _nothing(t: np.ndarray, x: np.ndarray, times: np.ndarray, width: float) -> np.ndarray:
    return np.zeros(len(times))


def _refuse_uneven(who: str, t: np.ndarray, stretches: list[np.ndarray]) -> None:
    for run in stretches:
        steps = np.diff(t[run])
        if len(steps) and np.ptp(steps) > 0.1 * np.median(steps):
            raise MechidError(
                f"{who} is not sampled evenly (steps from {steps.min():.3g} to {steps.max():.3g} s): resample it "
                f"first, with resampled(rate={1.0 / np.mean(steps):.4g})."
            )


def _derivatives(q: np.ndarray, step: float) -> tuple[np.ndarray, np.ndarray]:
    """Rates and accelerations; the first and last samples are not to be used."""
    v, a = np.zeros_like(q), BEND[0] * q
    for k in range(1, REACH + 1):
        ahead, behind = np.roll(q, -k, axis=1), np.roll(q, k, axis=1)
        v += RATE[k] * (ahead - behind)
        a += BEND[k] * (ahead + behind)
    return v / step, a / step**2


def _bending(omega: np.ndarray) -> np.ndarray:
    """Gain of the second difference at angles of rotation per sample, times step²."""
    return BEND[0] + 2.0 * np.cos(np.outer(omega, np.arange(1, REACH + 1))) @ BEND[1:]


def _spectrum(x: np.ndarray, step: float) -> tuple[np.ndarray, np.ndarray]:
    """Frequencies (rad a sample) and density of a position's acceleration."""
    from scipy.signal import welch

    _, a = _derivatives(x[None], step)
    a = a[0, REACH:-REACH]
    f, density = welch(a, fs=1.0, nperseg=min(len(a), 4096), detrend="linear")
    return 2.0 * np.pi * f[1:], density[1:]


def _noise(x: np.ndarray, step: float) -> float:
    """Std of the white noise that a position seems to have, read off the upper half of its spectrum."""
    omega, density = _spectrum(x, step)
    gain = _bending(omega) ** 2 / step**4
    upper = omega > np.pi / 2
    return float(np.sqrt(np.median(density[upper] / gain[upper]) / 2.0)) if upper.any() else 0.0


class _Spectrum(NamedTuple):
    """Densities of a position's acceleration."""

    omega: np.ndarray
    """rad a sample"""
    motion: np.ndarray
    """as far as it is clear, up to the valley"""
    white: np.ndarray
    """by white noise in the position"""
    valley: float
    """Hz, where noise takes over"""

    def rounded(self, cutoff: float, step: float, order: int) -> tuple[float, float]:
        """What a low-pass of gain G takes away and what noise it leaves, as parts of what it leaves of the motion.

        Σ G (1 − G) S / Σ G² S, which biases inertias, and Σ G² N / Σ G² S, by which they come out low.
        """
        G = 1.0 / (1.0 + (np.tan(self.omega / 2.0) / np.tan(np.pi * cutoff * step)) ** (2 * order))
        kept = max(float(np.sum(G**2 * self.motion)), 1e-300)
        return float(np.sum(G * (1.0 - G) * self.motion)) / kept, float(np.sum(G**2 * self.white)) / kept


def _motion_of(x: np.ndarray, step: float) -> _Spectrum:
    """What of a position's acceleration is motion, and what is noise."""
    omega, density = _spectrum(x, step)
    f = omega / (2.0 * np.pi * step)
    white = 2.0 * _noise(x, step) ** 2 * _bending(omega) ** 2 / step**4
    bins = _bins(f)
    clear = [density[b].mean() > CLEAR * white[b].mean() for b in bins]
    clear = clear if any(clear) else [True] * len(bins)
    motion = np.where(np.repeat(clear, [len(b) for b in bins]), np.maximum(density - white, 0.0), 0.0)
    valley = _valley(f, density, motion, bins)
    motion[f > valley] = 0.0
    return _Spectrum(omega, motion, white, valley)


def _chosen(spectrum: _Spectrum, step: float, order: int) -> float:
    """Hz, the cutoff for a position: where noise takes over, but not so low that the motion itself is rounded off.

    From the valley it rises until what the low-pass takes of the motion is small, or less than the noise it leaves.
    """
    cutoff = spectrum.valley
    while cutoff < 0.4 / step:
        rounded, noise = spectrum.rounded(cutoff, step, order)
        if rounded <= max(ROUNDED, noise):
            break
        cutoff *= WIDER
    return cutoff


def _bins(f: np.ndarray) -> list[np.ndarray]:
    """Thirds of an octave, over which narrow lines and chance are evened out."""
    edges = np.exp(np.arange(np.log(f[0]) - 1e-9, np.log(f[-1]) + 0.25, 0.25))
    where = np.digitize(f, edges)
    return [b for i in range(1, len(edges) + 1) if len(b := np.flatnonzero(where == i))]


def _valley(f: np.ndarray, density: np.ndarray, motion: np.ndarray, bins: list[np.ndarray]) -> float:
    """Hz, above those of the motion, at which the density of acceleration has fallen to where noise takes over."""
    rates = np.cumsum(motion / f**2)
    moving = f[np.searchsorted(rates, KEPT * rates[-1])]
    beyond = [b for b in bins if f[b[-1]] >= moving]
    middle = np.array([np.median(density[b]) for b in beyond])
    return float(np.mean(f[beyond[int(np.flatnonzero(middle <= NEAR * middle.min())[0])]]))


def _rounding(who: str, form: MechanismForm, shares: list[float], cutoff: float) -> list[str]:
    """How much of the motion a low-pass takes away."""
    share, name = max(zip(shares, form.independent, strict=True))
    if share <= TOLD:
        return []
    return [
        f"{who}: the low-pass of {cutoff:.3g} Hz takes {100 * share:.2g} % of the acceleration of '{name}' away, "
        "but nothing of the forces, which biases inertias by that much and more. A higher cutoff takes less."
    ]


def _bias(
    form: MechanismForm,
    samples: np.ndarray,
    kept: list[slice],
    together: int,
    step: float,
    noise: list[float],
    cutoff: float | None,
    order: int,
) -> list[str]:
    """How much noise is left in the accelerations, and which way it pulls."""
    from scipy.signal import butter, sosfreqz

    omega = (np.arange(8192) + 0.5) * np.pi / 8192
    gain = (_bending(omega) / step**2) ** 2
    if cutoff is not None:
        sos = np.asarray(butter(order, cutoff * step * 2.0, output="sos"))
        gain = gain * np.abs(sosfreqz(sos, worN=omega)[1]) ** 4
    if together > 1:
        gain = gain * (np.sin(together * omega / 2) / (together * np.sin(omega / 2))) ** 2
    left = float(np.mean(gain))
    k = len(form.independent)
    told = []
    for j, (name, s) in enumerate(zip(form.independent, noise, strict=True)):
        a = np.concatenate([samples[run, 1 + 2 * k + j].reshape(-1, together).mean(1) for run in kept])
        size = float(np.var(a))
        share = s**2 * left / size if size > 0.0 else 0.0
        if share > BIASED:
            told.append((share, name, s, np.sqrt(s**2 * left)))
    if not told:
        return []
    share, name, s, rest = max(told)
    others = f" (also {choices([n for x, n, _, _ in told if n != name])})" if len(told) > 1 else ""
    return [
        f"Noise of about {s:.2g} in the position of '{name}'{others} leaves {rest:.2g} of noise in its "
        f"acceleration (SI), {100 * share:.2g} % of its variance: inertias come out low by about that much. A "
        "lower cutoff or a longer window leaves less; simulation_error and joint differentiate nothing."
    ]
