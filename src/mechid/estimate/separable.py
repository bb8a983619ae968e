"""`separable`: y = φ(ω) θ by least squares in θ inside a search of the few ω that are not linear.

    f(ω) = min over θ of ½ ‖(y − φ(ω) θ)/σ‖²                                        (5.3)
    f(ω) = min over θ of ‖(y − φ(ω) θ)/σ‖                                           (5.4)

(da Silva et al. 2007). The search is space-wide (multilevel coordinate search: bounds, no start) or local; both end
with steps of variable projection, of which `reduced` tells.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mechid.errors import MechidError, choices, unknown
from mechid.estimate.fit import Estimate
from mechid.estimate.linear import LinearSolution, solve
from mechid.estimate.linear_form import LinearForm
from mechid.estimate.reduced import Reduced, descended
from mechid.estimate.solvers.mcs import MCSState, mcs
from mechid.estimate.solvers.mcs.initial import Region, default_lists

Array = np.ndarray

CRITERIA = ("squares", "norm")
SOLVERS = ("mcs", "local")
WEAK = 1.0
"""a standard deviation that large a part of the value tells not even its sign"""
BASINS, FIRST, KEPT = 30, 6, 6
"""points of a space-wide search from which steps are taken, how many, and of how many of them to the end"""
NEAR = 0.08
"""part of the width by which they are apart"""
FACTOR = 1.5
"""by which they are where logarithms are searched"""


@dataclass(frozen=True, eq=False)
class SeparableFit:
    """Numbers of a form as they were found. `Fit` is of mechanisms: its `Parameters` are addresses in one."""

    parameters: dict[str, Estimate]
    """by name, linear ones first; std of all together, ∞ where the data do not tell"""
    theta: Array
    omega: Array
    covariance: Array
    """of θ and ω"""
    linear: LinearSolution
    """of θ with ω as found: rank, excitation, combinations"""
    noise: Array
    """std of each output's residuals, in its unit"""
    misfit: float
    """root mean square of the residuals over the noise that was given; 1 where none was"""
    criterion: float
    """its value"""
    evaluations: int
    seconds: float
    converged: bool
    outcome: str
    """a sentence"""
    notes: tuple[str, ...] = ()
    outliers: int = 0
    """rows that were left out"""

    @property
    def values(self) -> dict[str, float]:
        return {name: p.value for name, p in self.parameters.items()}

    @property
    def flags(self) -> dict[str, tuple[str, ...]]:
        """For each parameter what to beware of."""
        return {name: _flags(p) for name, p in self.parameters.items()}

    def summary(self) -> str:
        """The result as a table and sentences."""
        lines = [self.outcome, "", f"{'name':12} {'value ± std':>26}  unit"]
        for name, p in self.parameters.items():
            told = f"{p.value:.5g} ± {p.std:.2g}" if np.isfinite(p.std) else "not told by these data"
            flags = "".join(f"  {flag}" for flag in self.flags[name] if np.isfinite(p.std))
            lines.append(f"{name:12} {told:>26}  {p.unit}{flags}".rstrip())
        return "\n".join([*lines, *(f"{i}. {note}" for i, note in enumerate(self.notes, 1))])

    def __repr__(self) -> str:
        return self.summary()


def _flags(p: Estimate) -> tuple[str, ...]:
    if not np.isfinite(p.std):
        return ("not told by these data",)
    found = []
    if p.value in (p.lower, p.upper):
        found.append("at its bound")
    if p.std > WEAK * abs(p.value):
        found.append("smaller than its standard deviation")
    return tuple(found)


def separable(
    form: LinearForm,
    samples: Array,
    bounds: Mapping[str, Sequence[float]] | None = None,
    *,
    noise: Sequence[float] | Array | None = None,
    solver: str = "mcs",
    start: Sequence[float] | Array | None = None,
    criterion: str = "squares",
    thin: int = 800,
    evaluations: int | None = None,
    beyond: float = np.inf,
) -> SeparableFit:
    """θ and ω of a form from a table of samples (N, channels); rows with NaN are missing.

    bounds: of each nonlinear number, (low, high), infinite ones allowed. noise: std of each output; estimated where
    it is not given. The space-wide search looks at no more than `thin` samples, the steps after it at all of them.
    beyond: robust standard deviations of the residuals beyond which single samples are left out.
    """
    clock = time.perf_counter()
    if criterion not in CRITERIA:
        raise unknown("criterion", criterion, CRITERIA)
    if solver not in SOLVERS:
        raise unknown("solver", solver, SOLVERS)
    if not beyond > 0.0:
        raise MechidError(f"beyond must be a number of standard deviations above zero, not {beyond!r}.")
    low, high = checked_bounds(form, bounds)
    samples = checked_samples(form, samples)
    k = len(form.nonlinear)
    omega = _middle(low, high) if start is None else np.array(start, float)
    if omega.shape != (k,) or not np.all((omega >= low) & (omega <= high)):
        raise MechidError(
            f"The start of the nonlinear numbers is {omega.tolist()}; it must lie in their bounds."
        )
    reduced = Reduced.of(form, samples, None if noise is None else np.array(noise, float), omega)
    reduced = _cleaned(reduced, omega, noise is not None, beyond)
    count, told, converged = 0, "", False
    if k and solver == "mcs":
        omega, count, told = _searched(
            reduced, (low, high), omega, start is not None, criterion, thin, evaluations
        )
    once = noise is not None or len(form.outputs) == 1
    for i in range(6):
        used = reduced.missing
        omega, steps, converged = descended(reduced, omega, low, high) if k else (omega, 0, True)
        count += steps
        reduced = reduced.with_noise(omega) if noise is None else reduced
        reduced = _cleaned(reduced, omega, noise is not None, beyond)
        # weights have settled, and the same samples are left out as before
        if i >= (0 if once else 2) and np.array_equal(used, reduced.missing):
            break
    return _result(reduced, omega, (low, high), criterion, noise is not None, count, converged, told, clock)


def _cleaned(reduced: Reduced, omega: Array, given: bool, beyond: float) -> Reduced:
    """Without outliers, and with the noise of what is left where none is given."""
    if not np.isfinite(beyond):
        return reduced
    kept = reduced.without_outliers(omega, beyond)
    return kept if given else kept.with_noise(omega)


def _searched(
    reduced: Reduced,
    bounds: tuple[Array, Array],
    start: Array,
    given: bool,
    criterion: str,
    thin: int,
    evaluations: int | None,
) -> tuple[Array, int, str]:
    """ω by space-wide search: the best of its minima after some steps from each; evaluations and a sentence.

    Numbers that cannot be ≤ 0 are searched for by their logarithms: widths and velocities span decades.
    """
    few = reduced.thinned(thin)
    logs = bounds[0] > 0.0
    value = few.criterion(criterion)
    with np.errstate(divide="ignore"):
        low, high = (np.where(logs, np.log(np.where(logs, b, 1.0)), b) for b in bounds)

    def of(x: Array) -> Array:
        return np.clip(np.where(logs, np.exp(np.where(logs, np.clip(x, -40.0, 40.0), 0.0)), x), *bounds)

    first = np.where(logs, np.log(np.where(logs, start, 1.0)), start) if given else None
    k = len(start)
    limit = 200 * k if evaluations is None else evaluations
    lists = [_list(*row).tolist() for row in zip(low, high, logs, strict=True)]
    found = mcs(
        lambda x: value(of(x)),
        low,
        high,
        lists=lists,
        evaluations=limit,
        patience=10 * k,
        start=first,
    )
    if not np.isfinite(found.value):
        raise MechidError(f"No values of {choices(reduced.form.nonlinear)} gave finite rows: {found.outcome}")
    begun = [descended(few, of(x), *bounds, limit=FIRST) for x in _apart(found.state, high - low, logs)]
    kept = sorted((end[0] for end in begun), key=few.square)[:KEPT]
    ends = [descended(few, omega, *bounds) for omega in kept]
    best = min((end[0] for end in ends), key=few.square)
    return best, found.evaluations + sum(end[1] for end in begun + ends), found.outcome


def _list(low: float, high: float, log: bool) -> Array:
    """Where the search begins along a coordinate; on open logarithms a factor of 20 and 8000 from the bound."""
    if log and np.isinf(high):
        return low + np.array([0.0, 3.0, 9.0])
    return default_lists(Region(np.array([low]), np.array([high])))[0]


def _apart(state: MCSState, width: Array, logs: Array) -> list[Array]:
    """The best points of a search that are some way apart: where valleys may begin."""
    finite = np.isfinite(state.values)
    spread = np.ptp(state.points[finite], axis=0)
    size = NEAR * np.where(np.isfinite(width), width, np.where(spread > 0.0, spread, 1.0))
    size = np.where(logs, np.log(FACTOR), size)
    kept: list[Array] = []
    for i in np.argsort(np.where(finite, state.values, np.inf), kind="stable")[: finite.sum()]:
        x = state.points[i]
        if all(np.max(np.abs(x - other) / size) > 1.0 for other in kept):
            kept.append(x)
        if len(kept) == BASINS:
            break
    return kept


def checked_bounds(form: LinearForm, bounds: Mapping[str, Sequence[float]] | None) -> tuple[Array, Array]:
    """Lower and upper bounds in the form's order."""
    given = dict(bounds or {})
    for name in given:
        if name not in form.nonlinear:
            raise unknown("nonlinear number", name, form.nonlinear)
    missing = [name for name in form.nonlinear if name not in given]
    if missing:
        raise MechidError(f"Bounds are needed of {choices(missing)}.")
    pairs = []
    for name in form.nonlinear:
        try:
            low, high = map(float, given[name])
        except (TypeError, ValueError):
            low, high = np.nan, np.nan
        if not low < high:
            raise MechidError(
                f"The bounds of {name} must be two numbers, the lower first, not {given[name]!r}."
            )
        pairs.append((low, high))
    return np.array([p[0] for p in pairs]), np.array([p[1] for p in pairs])


def checked_samples(form: LinearForm, samples: Array) -> Array:
    """The table of samples as an array of the form's width."""
    table = np.asarray(samples, float)
    if table.ndim != 2 or table.shape[1] != len(form.channels):
        raise MechidError(
            f"Samples must be a table with {len(form.channels)} columns ({choices(form.channels)}), "
            f"not of shape {table.shape}."
        )
    return table


def _middle(low: Array, high: Array) -> Array:
    """A point between bounds, some of them infinite."""
    return np.array([middle(*pair) for pair in zip(low, high, strict=True)])


def middle(low: float, high: float) -> float:
    """A number between two bounds: in the middle, of logarithms if that can be, or a unit from the finite one."""
    if np.isfinite(low) and np.isfinite(high):
        return float(np.sqrt(low * high)) if low > 0.0 else 0.5 * (low + high)
    if np.isfinite(low):
        return low + max(1.0, abs(low))
    return high - max(1.0, abs(high)) if np.isfinite(high) else 0.0


def _result(
    reduced: Reduced,
    omega: Array,
    bounds: tuple[Array, Array],
    criterion: str,
    given: bool,
    count: int,
    converged: bool,
    told: str,
    clock: float,
) -> SeparableFit:
    form = reduced.form
    n, names = len(form.names), (*form.names, *form.nonlinear)
    linear = solve(reduced.linear(omega), form.names)
    together = solve(reduced.triangle(omega), names)
    misfit = float(together.scale[0])
    units = (*form.units, *getattr(form, "nonlinear_units", ("",) * len(form.nonlinear)))
    lower = np.append(np.full(n, -np.inf), bounds[0])
    upper = np.append(np.full(n, np.inf), bounds[1])
    values = np.append(linear.theta, omega)
    table = zip(names, values, together.std, units, lower, upper, strict=True)
    parameters = {
        name: Estimate(name, float(value), float(std), unit, np.nan, float(low), float(high))
        for name, value, std, unit, low, high in table
    }
    square = reduced.square(omega)
    notes = []
    phi, y = form.rows(reduced.samples, omega)
    there = np.isfinite(y) & np.isfinite(phi).all(axis=-1)
    outliers = int(np.count_nonzero(there.ravel() & reduced.missing))
    hidden = [name for name, p in parameters.items() if not np.isfinite(p.std)]
    if hidden:
        notes.append(f"The data do not tell {choices(hidden)}.")
    bound = [name for name, p in parameters.items() if "at its bound" in _flags(p)]
    if bound:
        notes.append(f"At a bound: {choices(bound)}.")
    if given and misfit > 1.5:
        notes.append(
            f"Residuals are {misfit:.3g} times the given noise; standard deviations are scaled up by that."
        )
    if outliers:
        notes.append(f"Measurements left out as outliers: {outliers}.")
    end = (
        f"Converged after {count} evaluations." if converged else f"Not converged after {count} evaluations."
    )
    return SeparableFit(
        parameters,
        linear.theta,
        omega,
        together.covariance,
        linear,
        reduced.residual_std(omega),
        misfit if given else 1.0,
        0.5 * square if criterion == "squares" else float(np.sqrt(square)),
        count,
        time.perf_counter() - clock,
        converged,
        f"{end} {told}".strip(),
        tuple(notes),
        outliers,
    )
