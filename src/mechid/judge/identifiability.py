"""`identifiability`: which directions of the parameters the data of a fit tell, and which they do not.

With R the weighted sensitivities by θ, first states projected out, S = ∂value/∂θ and D the parameters' sizes,

    R S⁻¹ D = U diag(s) Vᵀ,        std along the column v of V = 1/s,

in relative changes of the parameters: 1 is 100 %. Where the covariance was scaled up (noise larger than stated,
residuals that are correlated) so are these. A direction is "told", "weak" (known to worse than 30 %) or "lost".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from mechid.estimate.fit import Estimate, Fit
from mechid.estimate.uncertainty import physical_slope
from mechid.judge.combinations import Combination, Known, combinations, were_known
from mechid.model.system import System

TOLD, WEAK, LOST = "told", "weak", "lost"
AT_BOUND, NOT_IDENTIFIABLE, POORLY_KNOWN, DID_NOT_MOVE, NO_STD = (
    "at bound",
    "not identifiable",
    "poorly known",
    "did not move",
    "no std",
)
POOR = 0.3
"""relative std above which a direction is weak and a parameter poorly known"""
HOPELESS = 10.0
"""relative std above which a direction is lost: not even the order of magnitude is told"""
CANCELS = 1e-8
"""columns whose sum is this part of their sizes cancel"""
SHARE = 0.3
"""part of the largest entry from which a parameter takes part in a direction"""


@dataclass(frozen=True, eq=False)
class Identifiability:
    """What the data tell, direction by direction, the best told first."""

    names: tuple[str, ...]
    sizes: np.ndarray
    """(n,) what counts as 100 % of each parameter, in its unit"""
    singular_values: np.ndarray
    """(n,) of the relative sensitivities; empty where there are none to judge"""
    stds: np.ndarray
    """(n,) relative standard deviation along each direction; ∞ where nothing is told"""
    directions: np.ndarray
    """(n, n) a column a direction of length 1, in relative changes; those of std ∞ span their space, as plainly
    as can be said, and need not be perpendicular"""
    classes: tuple[str, ...]
    """"told", "weak" or "lost" for each direction"""
    sentences: tuple[str, ...]
    """one for each direction that is weak or lost; parameters that do nothing share one"""
    suggestion: str
    """what to do about them; empty where all is told"""
    combinations: tuple[Combination, ...] = ()
    """where some parameters cannot be told alone: what can, parameters and expressions of them, with values and
    standard deviations; empty where all is told, or where there are no simple expressions"""
    known: Known | None = None
    """where there are none: what would be told if a few parameters were known"""

    @property
    def judged(self) -> bool:
        """False where there are no sensitivities: a cost of the user's own, or a fit that went astray."""
        return len(self.singular_values) > 0

    @property
    def condition(self) -> float:
        """Largest by smallest singular value; ∞ where a direction is lost entirely."""
        if not self.judged:
            return np.nan
        return (
            np.inf if np.isinf(self.stds).any() else float(self.singular_values[0] / self.singular_values[-1])
        )

    def taking_part(self, name: str) -> bool:
        """Whether a parameter has a share in a direction that is weak or lost."""
        bad = [i for i, c in enumerate(self.classes) if c != TOLD]
        weights = np.abs(self.directions[:, bad])
        return bool(np.any(weights[self.names.index(name)] > SHARE * weights.max(axis=0, initial=0.0)))


def identifiability(fit: Fit) -> Identifiability:
    """Which directions of the parameters the data tell, with a sentence for each that they do not."""
    names, found = tuple(fit.parameters), tuple(fit.parameters.values())
    n = len(names)
    sizes = np.array([_size(p) for p in found])
    if not n or not len(fit.sensitivities) or not np.isfinite(fit.sensitivities).all():
        return Identifiability(names, sizes, np.zeros(0), np.zeros(0), np.zeros((n, 0)), (), (), "")
    relative = _by_values(fit) * sizes
    s, V = _decomposed(relative)
    columns = np.linalg.norm(relative, axis=0)
    null = s <= CANCELS * np.linalg.norm(V * columns[:, None], axis=0)
    V[:, null] = _plainest(V[:, null])
    with np.errstate(divide="ignore"):
        stds = np.where(null, np.inf, np.maximum(1.0 / s, _along(fit, sizes, V)))
    classes = tuple(LOST if std > HOPELESS else WEAK if std > POOR else TOLD for std in stds)
    bad = [i for i in range(n) if classes[i] != TOLD]
    silent = [i for i in bad if np.isinf(stds[i]) and np.sum(_members(V[:, i], stds[i])) == 1]
    sentences = [_sentence(found, sizes, V[:, i], stds[i]) for i in bad if i not in silent]
    if silent:
        sentences.append(_silence([names[int(np.argmax(np.abs(V[:, i])))] for i in silent]))
    alone = all(np.sum(_members(V[:, i], stds[i])) == 1 for i in bad)
    together = any(classes[i] == LOST and np.sum(_members(V[:, i], stds[i])) > 1 for i in bad)
    suggestion = _suggestion(len(bad), len(sentences), alone, together)
    told, known = _tellable(fit.free.mechanism, found, sizes, V, stds, classes)
    return Identifiability(names, sizes, s, stds, V, classes, tuple(sentences), suggestion, told, known)


def _tellable(
    mechanism: System,
    found: tuple[Estimate, ...],
    sizes: np.ndarray,
    V: np.ndarray,
    stds: np.ndarray,
    classes: tuple[str, ...],
) -> tuple[tuple[Combination, ...], Known | None]:
    """What can be told where directions are lost; if that is no expression, what could if some were known."""
    lost = np.array([c == LOST for c in classes])
    if not lost.any():
        return (), None
    told = V[:, ~lost] * sizes[:, None] * stds[~lost]
    values = np.array([p.value for p in found])
    null = V[:, lost] * sizes[:, None]
    names = [p.name for p in found]
    covariance = told @ told.T
    simple = combinations(names, values, null, covariance, lambda x: mechanism.combined(names, x)) or ()
    if any(len(c.names) > 1 for c in simple):
        return simple, None
    return simple, were_known(names, values, sizes, null, covariance)


def flags(fit: Fit) -> dict[str, tuple[str, ...]]:
    """For each parameter what to beware of; empty where nothing is."""
    judged = fit.identifiability
    return {name: tuple(_flags(fit, judged, i)) for i, name in enumerate(fit.parameters)}


# Sizes and sensitivities


def _size(p: Estimate) -> float:
    """What counts as 100 % of a parameter: the larger of its value and its start.

    A parameter that began at 0 and cannot be told from 0 has no such size: half the width of its bounds takes its
    place. Where these are open it is measured in tens of its std, so that it can be lost, but not weak: nothing
    says how well it would have to be known.
    """
    own = max(abs(p.value), abs(p.start))
    if own > 0.0 and (p.start != 0.0 or abs(p.value) > 3.0 * p.std):
        return own
    width = 0.5 * (p.upper - p.lower)
    if np.isfinite(width):
        return float(max(own, width))
    return max(own, 10.0 * p.std) if 0.0 < p.std < np.inf else own or 1.0


def _by_values(fit: Fit) -> np.ndarray:
    """Weighted sensitivities by the physical values: R S⁻¹. A value that θ no longer moves has none."""
    slope = physical_slope(fit.free, fit.theta)
    moved = np.flatnonzero(np.abs(np.diag(slope)) > 0.0)
    if np.count_nonzero(slope - np.diag(np.diag(slope))):  # the ten numbers of a body come from each other
        return fit.sensitivities @ np.linalg.pinv(slope, rcond=1e-14)
    result = np.zeros_like(fit.sensitivities)
    result[:, moved] = fit.sensitivities[:, moved] / np.diag(slope)[moved]
    return result


def _decomposed(relative: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Singular values, 0 where there are fewer rows than parameters, and right singular vectors as columns.

    The largest entry of each is positive.
    """
    _, s, right = np.linalg.svd(relative)
    V = right.T * np.sign(right[np.arange(len(right)), np.argmax(np.abs(right), axis=1)])
    return np.concatenate([s, np.zeros(len(right) - len(s))]), V


def _plainest(null: np.ndarray) -> np.ndarray:
    """The same space by vectors of few entries: each has a parameter of its own that the others leave alone."""
    count = null.shape[1]
    if not count:
        return null
    pivots = np.asarray(scipy.linalg.qr(null.T, mode="r", pivoting=True)[-1])
    plain = null @ np.linalg.inv(null[np.sort(pivots[:count])])
    plain[np.abs(plain) < 1e-6 * np.abs(plain).max(axis=0)] = 0.0
    return plain / np.linalg.norm(plain, axis=0)


def _along(fit: Fit, sizes: np.ndarray, V: np.ndarray) -> np.ndarray:
    """Relative std along directions, by the covariance of the parameters whose std is finite."""
    told = np.isfinite(np.diag(fit.covariance))
    scaled = fit.covariance[np.ix_(told, told)] / np.outer(sizes[told], sizes[told])
    part = V[told]
    return np.sqrt(np.maximum(np.einsum("ik,ij,jk->k", part, scaled, part), 0.0))


# Words


def _members(v: np.ndarray, std: float) -> np.ndarray:
    """Which parameters a direction is about."""
    return np.abs(v) > (1e-3 if np.isinf(std) else 0.1) * np.abs(v).max()


def _sentence(found: tuple[Estimate, ...], sizes: np.ndarray, v: np.ndarray, std: float) -> str:
    """A direction in words: the parameters that it is about, by their relative changes."""
    places = np.flatnonzero(_members(v, std))
    values = np.array([found[j].value for j in places])
    parts_of_values = bool(np.all(values != 0.0))
    changes = v[places] * sizes[places] / values if parts_of_values else v[places]
    order = np.argsort(-np.round(np.abs(changes) / np.abs(changes).max(), 6), kind="stable")
    names, changes = [found[places[k]].name for k in order], changes[order]
    weights = changes / changes[0]
    known = f"±{_percent(std * abs(changes[0]))}"
    degree = "not" if np.isinf(std) else "hardly" if std > HOPELESS else "little"
    if len(names) == 1:
        return f"{names[0]} changes the data {degree}: {known}."
    if std > HOPELESS and parts_of_values and np.allclose(np.abs(weights), 1.0, atol=0.01):
        return _common_factor(names, weights)
    ratio = " : ".join([*(f"{w:.2g}".replace("-", "−") for w in weights[:6]), *["…"] * (len(names) > 6)])
    effect = "do not change the data" if np.isinf(std) else f"change the data {degree}: {known} of {names[0]}"
    return f"{_and(names)} moved together ({ratio}) {effect}."


def _common_factor(names: list[str], weights: np.ndarray) -> str:
    """Parameters that a common factor moves, or divides, without any change of the data."""
    together = weights[0] * weights > 0.0
    if len(names) == 2:
        one, other = names
        return (
            f"Only the ratio {one}/{other} can be told, not each of them."
            if together[1]
            else f"Only the product {one}·{other} can be told, not each of them."
        )
    shown = [name if same else f"1/{name}" for name, same in zip(names, together, strict=True)]
    return f"{_and(shown)} are found up to a common factor: only their ratios can be told."


def _silence(names: list[str]) -> str:
    if len(names) == 1:
        return f"{names[0]} does not change the data: it cannot be told."
    return f"{_and(names)} do not change the data: they cannot be told."


def _suggestion(directions: int, sentences: int, alone: bool, together: bool) -> str:
    """What to do; alone: every direction is about one parameter; together: some move along one that is lost."""
    if not directions:
        return ""
    if alone:
        what = "Fix it, give it a prior," if directions == 1 else "Fix them, give them priors,"
    elif sentences == 1:
        what = "Fix one of them, give one of them a prior,"
    else:
        what = "For each of these fix a parameter, give it a prior,"
    more = ", under a known force for instance" if together else ""
    return f"{what} or measure motions that tell more{more}."


def _and(names: list[str], limit: int = 6) -> str:
    if len(names) > limit:
        return f"{', '.join(names[:limit])} and {len(names) - limit} more"
    return " and ".join([", ".join(names[:-1]), names[-1]])


def _percent(part: float) -> str:
    return (
        f"{100.0 * part:.2g} %" if part < 1.0 else f"{100.0 * part:.0f} %" if part < 10.0 else "over 1000 %"
    )


# Flags


def _flags(fit: Fit, judged: Identifiability, i: int) -> list[str]:
    name, p = list(fit.parameters.items())[i]
    found = []
    if _at_bound(p, exact=fit.free.entries[i].transform == "none"):
        found.append(AT_BOUND)
    if not judged.judged:
        found += [NO_STD] if not np.isfinite(p.std) else []
    elif not np.isfinite(p.std) or (p.std > judged.sizes[i] and judged.taking_part(name)):
        found.append(NOT_IDENTIFIABLE)
    if np.isfinite(p.std) and NOT_IDENTIFIABLE not in found and relative_std(p, judged.sizes[i]) > POOR:
        found.append(POORLY_KNOWN)
    if fit.iterations > 0 and abs(p.value - p.start) <= 1e-12 * max(abs(p.value), abs(p.start)):
        found.append(DID_NOT_MOVE)
    return found


def relative_std(p: Estimate, size: float) -> float:
    """The std as a part of the value, or of a size where the value is 0."""
    return p.std / abs(p.value) if p.value else p.std / size


def _at_bound(p: Estimate, *, exact: bool) -> bool:
    """Whether a value lies on a bound; a transform only comes near to it."""
    near = (1e-9 if exact else 1e-6) * max(abs(p.value), abs(p.start))
    return any(np.isfinite(b) and abs(p.value - b) <= max(near, 1e-9 * abs(b)) for b in (p.lower, p.upper))
