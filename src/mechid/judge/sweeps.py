"""`sweep`: one estimation over many settings (weights, compliances, steps, what is held), on all cores.

fits = sweep(lambda weight, begin: joint(…, state_error_weight=weight, begin=begin), [1e6, 1e7, 1e8, 1e9])
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from mechid.errors import MechidError
from mechid.estimate.fit import Fit


def sweep(fit: Callable[[Any, np.ndarray | None], Fit], points: Sequence[Any]) -> list[Fit | MechidError]:
    """A fit for each point, or the error that says why there is none.

    The middle point comes first and alone, so that all programs are compiled once; the others begin at its unknowns
    (`begin`, None where it failed), a part of the way that they have in common, and run side by side.
    """
    if not points:
        raise MechidError("A sweep needs at least one point.")
    middle = len(points) // 2
    first = _tried(fit, points[middle], None)
    begin = np.asarray(first.trace[-1].unknowns) if isinstance(first, Fit) else None
    others = [p for i, p in enumerate(points) if i != middle]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = list(pool.map(lambda point: _tried(fit, point, begin), others))
    return [*found[:middle], first, *found[middle:]]


def _tried(fit: Callable[..., Fit], point: Any, begin: np.ndarray | None) -> Fit | MechidError:
    try:
        return fit(point, begin)
    except MechidError as error:
        return error
