"""Inputs that act later than they were logged: their values over steps for a delay, and their slopes by it.

    u_k(d) = mean over step k of u(t − d),        ∂u_k/∂d = −(u(t_{k+1} − d) − u(t_k − d)) / (t_{k+1} − t_k)

u is what the samples mean: held from one to the next, or a line through them. The mean over a step is continuous in
the delay, and smooth but for kinks where an edge of a held input crosses the end of a step; there the slope is the
middle of both sides. Before its first sample and after its last a channel is taken to have had that value.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mechid.data.log import Channel

NEAR = 1e-6
"""of a step: an edge this close to a step's end counts as there"""


class Signal(NamedTuple):
    """A channel between its samples."""

    time: np.ndarray
    values: np.ndarray
    """at samples, missing ones left out"""
    hold: str
    """how samples become one value a step, a word of `HOLDS`"""

    def over(self, t: np.ndarray, delay: float) -> tuple[np.ndarray, np.ndarray]:
        """(steps,) what acts over steps with these ends (s), and its slope by the delay."""
        h, at = np.diff(t), t - delay
        if self.hold in ("midpoint", "end"):
            middle = (at[:-1] + at[1:]) / 2 if self.hold == "midpoint" else at[1:]
            return np.interp(middle, self.time, self.values), -self._steepness(middle, NEAR * h)
        if self.hold == "mean":
            ends = np.interp(at, self.time, self.values)
            return np.diff(self._area_below_line(at)) / h, -np.diff(ends) / h
        slack = NEAR * np.append(h, h[-1])
        ends = (self.values[self._before(at - slack)] + self.values[self._before(at + slack)]) / 2
        return np.diff(self._area_below_steps(at)) / h, -np.diff(ends) / h

    def _before(self, t: np.ndarray) -> np.ndarray:
        """The last sample at or before each time; the first where there is none."""
        return np.maximum(np.searchsorted(self.time, t, side="right") - 1, 0)

    def _area_below_steps(self, t: np.ndarray) -> np.ndarray:
        """∫ u from the first sample on, u held."""
        whole = np.concatenate([[0.0], np.cumsum(self.values[:-1] * np.diff(self.time))])
        i = self._before(t)
        return whole[i] + self.values[i] * (t - self.time[i])

    def _area_below_line(self, t: np.ndarray) -> np.ndarray:
        """∫ u from the first sample on, u a line through the samples."""
        means = (self.values[1:] + self.values[:-1]) / 2
        whole = np.concatenate([[0.0], np.cumsum(means * np.diff(self.time))])
        i = self._before(t)
        return whole[i] + (self.values[i] + np.interp(t, self.time, self.values)) / 2 * (t - self.time[i])

    def _steepness(self, t: np.ndarray, slack: np.ndarray) -> np.ndarray:
        """du/dt of the line through the samples; at a sample the middle of both sides."""
        steep = np.concatenate([[0.0], np.diff(self.values) / np.diff(self.time), [0.0]])
        left, right = (np.searchsorted(self.time, x, side="right") for x in (t - slack, t + slack))
        return (steep[left] + steep[right]) / 2


def signal(channel: Channel, hold: str) -> Signal:
    """A channel between its samples."""
    good = np.isfinite(channel.values)
    return Signal(channel.time[good], channel.values[good], hold)


class Late(NamedTuple):
    """An input whose delay is free."""

    column: int
    """among the inputs"""
    signal: Signal
