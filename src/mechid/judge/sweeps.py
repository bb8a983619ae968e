"""`sweep`: one estimation over many settings (weights, compliances, steps, what is held), on all cores.

fits = sweep(lambda weight, begin: joint(…, state_error_weight=weight, begin=begin), [1e6, 1e7, 1e8, 1e9])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from mechid.errors import MechidError
from mechid.estimate.fit import Fit
from mechid.threads import small_matrices


@small_matrices()
def sweep(fit: Callable[[Any, Fit | None], Fit], points: Sequence[Any]) -> list[Fit | MechidError]:
    """A fit for each point, or the error that says why there is none.

    The middle point comes first and alone, so that all programs are compiled once; then points before and after it
    side by side, each with its neighbour's fit to begin with (`begin`, None where there is none yet). Order the
    points so that neighbours are near to each other.
    """
    if not points:
        raise MechidError("A sweep needs at least one point.")
    middle = len(points) // 2
    first = _tried(fit, points[middle], None)

    def chain(others: Sequence[Any]) -> list[Fit | MechidError]:
        found: list[Fit | MechidError] = [first]
        for point in others:
            near = next((f for f in reversed(found) if isinstance(f, Fit)), None)
            found.append(_tried(fit, point, near))
        return found[1:]

    with ThreadPoolExecutor(2) as pool:
        before, after = pool.map(chain, (points[:middle][::-1], points[middle + 1 :]))
    return [*before[::-1], first, *after]


def _tried(fit: Callable[..., Fit], point: Any, begin: Fit | None) -> Fit | MechidError:
    try:
        return fit(point, begin)
    except MechidError as error:
        return error
