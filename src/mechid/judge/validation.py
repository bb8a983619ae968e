"""`cross_validate`: how well a fit explains logs that it has not seen.

The parameters are frozen; what belongs to the other logs alone is estimated again: their first states as far as
they are not known, and, after a joint estimation, all their states with the same weight of state errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mechid.errors import MechidError
from mechid.estimate.chain import ChainProblem
from mechid.estimate.experiment import Experiment
from mechid.estimate.finish import compared
from mechid.estimate.fit import Compared, Fit
from mechid.estimate.solvers.problem import Point
from mechid.estimate.trajectory import frozen
from mechid.threads import small_matrices


@dataclass(frozen=True, eq=False)
class Validation:
    """What other logs say of a fit."""

    score: float
    """root mean square of the weighted residuals (and state errors): 1 where only noise is left"""
    cost: float
    """half the sum of their squares"""
    samples: int
    channels: tuple[Compared, ...]

    def __str__(self) -> str:
        rows = ", ".join(f"{c.experiment}: {c.channel} {c.rms:.3g}" for c in self.channels)
        return (
            f"Other logs are explained to {self.score:.3g} times their noise ({self.samples} samples; "
            f"rms residuals: {rows})."
        )


@small_matrices()
def cross_validate(fit: Fit, experiments: Experiment | Sequence[Experiment]) -> Validation:
    """The score of a fit on logs that it has not seen."""
    given: list[Any] = list(experiments) if isinstance(experiments, list | tuple) else [experiments]
    if not given:
        raise MechidError("A cross-validation needs at least one experiment.")
    for e in given:
        if not isinstance(e, Experiment):
            raise MechidError(f"A cross-validation needs Experiments, not {e!r}.")
    chain = fit.extra.get("chain")
    soft = isinstance(chain, ChainProblem) and chain.shift is None
    stepper = fit.extra["problem"].shootings[0].stepper
    place, base, errors = frozen(fit, stepper, given, chain.weight if soft and chain is not None else None)
    squares = sum(float(np.vdot(r, r)) for link in place.links for r in link.residuals) + errors
    samples = int(sum(g.present.sum() for s in base.shootings for g in s.groups))
    freedom = max(samples - base.size, 1)
    channels = compared(base, Point(place.y, place.cost, runs=place.links))
    return Validation(float(np.sqrt(squares / freedom)), 0.5 * squares, samples, channels)
