"""Inputs that act later than they were logged: their values over steps for a delay, and their slopes by it.

    u_k(d) = mean over step k of u(t − d),        ∂u_k/∂d = −(u(t_{k+1} − d) − u(t_k − d)) / (t_{k+1} − t_k)

u is what the samples mean: held from one to the next, or a line through them. The mean over a step is continuous in
the delay, and smooth but for kinks where an edge of a held input crosses the end of a step; there the slope is the
middle of both sides. Before its first sample and after its last a channel is taken to have had that value.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mechid.data.log import Channel
from mechid.dynamics.tree import Array
from mechid.errors import MechidError

NEAR = 1e-6
"""of a step: an edge this close to a step's end counts as there"""


class Signal(NamedTuple):
    """A channel between its samples."""

    time: Any
    values: Any
    """at samples, missing ones left out"""
    hold: str
    """how samples become one value a step, a word of `HOLDS`"""

    def over(self, t: Any, delay: Any, xp: Any = np) -> tuple[Any, Any]:
        """(steps,) what acts over steps with these ends (s), and its slope by the delay.

        xp: numpy, or jax.numpy in traced functions.
        """
        h, at = xp.diff(t), t - delay
        if self.hold in ("midpoint", "end"):
            middle = (at[:-1] + at[1:]) / 2 if self.hold == "midpoint" else at[1:]
            return xp.interp(middle, self.time, self.values), -self._steepness(middle, NEAR * h, xp)
        if self.hold == "mean":
            ends = xp.interp(at, self.time, self.values)
            return xp.diff(self._area_below_line(at, xp)) / h, -xp.diff(ends) / h
        slack = NEAR * xp.append(h, h[-1])
        ends = (self.values[self._before(at - slack, xp)] + self.values[self._before(at + slack, xp)]) / 2
        return xp.diff(self._area_below_steps(at, xp)) / h, -xp.diff(ends) / h

    def _before(self, t: Any, xp: Any) -> Any:
        """The last sample at or before each time; the first where there is none."""
        return xp.maximum(xp.searchsorted(self.time, t, side="right") - 1, 0)

    def _area_below_steps(self, t: Any, xp: Any) -> Any:
        """∫ u from the first sample on, u held."""
        whole = xp.concatenate([xp.zeros(1), xp.cumsum(self.values[:-1] * xp.diff(self.time))])
        i = self._before(t, xp)
        return whole[i] + self.values[i] * (t - self.time[i])

    def _area_below_line(self, t: Any, xp: Any) -> Any:
        """∫ u from the first sample on, u a line through the samples."""
        means = (self.values[1:] + self.values[:-1]) / 2
        whole = xp.concatenate([xp.zeros(1), xp.cumsum(means * xp.diff(self.time))])
        i = self._before(t, xp)
        return whole[i] + (self.values[i] + xp.interp(t, self.time, self.values)) / 2 * (t - self.time[i])

    def _steepness(self, t: Any, slack: Any, xp: Any) -> Any:
        """du/dt of the line through the samples; at a sample the middle of both sides."""
        none = xp.zeros(1)
        steep = xp.concatenate([none, xp.diff(self.values) / xp.diff(self.time), none])
        left, right = (xp.searchsorted(self.time, x, side="right") for x in (t - slack, t + slack))
        return (steep[left] + steep[right]) / 2


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def late_input(hold: str, time: Array, values: Array, t: Array, delay: Array) -> Array:
    """What acts over steps with ends t, as a function of the delay: `Signal.over` in traced functions.

    Its derivative is the slope by the delay, which has no derivative of its own: a second one raises an error.
    """
    return Signal(jnp.asarray(time), jnp.asarray(values), hold).over(t, delay, jnp)[0]


@late_input.defjvp
def _late_input_jvp(hold: str, primals: tuple[Array, ...], tangents: tuple[Any, ...]) -> tuple[Array, Array]:
    time, values, t, delay = primals
    u, slope = Signal(jnp.asarray(time), jnp.asarray(values), hold).over(t, delay, jnp)
    return u, _only_once(slope, delay) * tangents[3]


@jax.custom_jvp
def _only_once(slope: Array, delay: Array) -> Array:
    """The slope as a function of the delay that cannot be differentiated."""
    return slope


@_only_once.defjvp
def _refuse_twice(primals: Any, tangents: Any) -> Any:
    raise MechidError(
        "Inputs that act late have no second derivative by their delay: hold the delay, or use first derivatives."
    )


def signal(channel: Channel, hold: str) -> Signal:
    """A channel between its samples."""
    good = np.isfinite(channel.values)
    return Signal(channel.time[good], channel.values[good], hold)


class Late(NamedTuple):
    """An input whose delay is free."""

    column: int
    """among the inputs"""
    signal: Signal
