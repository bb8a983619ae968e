"""`observe`: what a sensor shows along a motion, as a pure function."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from mechid.dynamics.model import Model
from mechid.dynamics.rollout import Motion
from mechid.dynamics.sensors import Sensor
from mechid.dynamics.stepper import Stepper
from mechid.dynamics.tree import Array


def observe(
    stepper: Stepper, model: Model, motion: Motion, sensor: Sensor, times: Array | None = None
) -> Array:
    """What a sensor shows along a motion.

    Args:
        motion: N steps, from `rollout` or `solve_motion`.
        sensor: `joint_position(…)`, `frame_pose(…)`, …
        times: (m,) s; between steps states are interpolated by cubics. By default the N + 1 ends of the steps.

    Returns:
        (m, c) the sensor's channels, differentiable by everything that the motion depends on.
    """
    n = motion.outcome.shape[0]
    if times is None:
        i = jnp.arange(n + 1)
        k, fraction = jnp.maximum(i - 1, 0), jnp.where(i == 0, 0.0, 1.0)
    else:
        times = jnp.asarray(times, float)
        k = jnp.clip(jnp.searchsorted(motion.t, times, side="right") - 1, 0, n - 1)
        fraction = (times - motion.t[k]) / jax.vmap(stepper.step_size)(motion.k[k])
    x0, x1 = (jax.tree.map(lambda a, at=k + j: a[at], motion.states) for j in (0, 1))
    rows = (x0, x1, motion.z[k], motion.u[k], motion.t[k], motion.k[k], fraction)
    see = stepper.seen_at_end if times is None else stepper.seen

    def one(now: tuple[Any, ...]) -> Array:
        return jnp.atleast_1d(sensor.predict(see(*now, model), model))  # type: ignore[arg-type]

    return jax.lax.map(one, rows)
