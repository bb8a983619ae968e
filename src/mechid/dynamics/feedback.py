"""Feedback along a measured motion: F = T(t) − K(t) (b − b_meas(t)), the papers' stabilising filter (Section IV.C).

Inputs T, gains K and references b_meas are data, one row a step; the law is the same for all of them, so that
another log, other gains or another mechanism of the same size compile nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mechid.dynamics.trajectory import Law
from mechid.model.geometry import finite, numeric
from mechid.model.system import System


@dataclass(frozen=True)
class Tracking(Law):
    """u = row's input − row's gains (q[index] − row's reference), q at the start of the step."""

    index: tuple[int, ...]
    """of the coordinates that are fed back"""
    inputs: int

    def __call__(self, t: Any, q: Any, v: Any, row: Any) -> Any:
        nu, nb = self.inputs, len(self.index)
        pick = np.zeros((nb, q.shape[0]))
        pick[np.arange(nb), list(self.index)] = 1.0
        gains = row[nu + nb :].reshape(nu, nb)
        return row[:nu] - gains @ (pick @ q - row[nu : nu + nb])


@dataclass(frozen=True, eq=False)
class Feedback:
    """Inputs with feedback on measured coordinates: what `simulate` takes as inputs."""

    law: Tracking
    rows: np.ndarray
    """(steps, nu + nb + nu·nb) inputs, references and gains"""


def feedback(
    mechanism: System,
    coordinates: Sequence[str],
    *,
    inputs: ArrayLike,
    reference: ArrayLike,
    gain: ArrayLike,
) -> Feedback:
    """u_k = inputs_k − gain_k (q[coordinates] − reference_k) at the start of step k.

    inputs (steps, nu); reference (steps, nb), rad or m; gain (steps, nu, nb), or one (nu, nb) for all steps,
    in N·m/rad or N/m.
    """
    nu, nb = len(mechanism.input_names), len(coordinates)
    for name in coordinates:
        mechanism.coordinate(name)
    steps = len(numeric(inputs, "The inputs of the feedback"))
    gains = numeric(gain, "The gains of the feedback")
    if gains.shape == (nu, nb):
        gains = np.broadcast_to(gains, (steps, nu, nb))
    parts = (
        finite(inputs, (steps, nu), "The inputs of the feedback"),
        finite(reference, (steps, nb), "The reference of the feedback"),
        finite(gains, (steps, nu, nb), "The gains of the feedback").reshape(steps, nu * nb),
    )
    index = tuple(mechanism.coordinate_names.index(name) for name in coordinates)
    return Feedback(Tracking(index, nu), np.concatenate(parts, 1))
