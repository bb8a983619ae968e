"""How far parameters that a stepper finds from made data lie from the truth, in words and as a table.

A stepper of first order finds its own (shadow) parameters, with which it explains the log best (Marklund, Section
4.9): they come to the truth as the step goes to 0. Nothing is said of fits that did not converge, nor of parameters
that the data do not tell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mechid.estimate.fit import Fit
from mechid.judge.identifiability import AT_BOUND, NOT_IDENTIFIABLE
from mechid.studies.joint_fits import cell, numbers
from mechid.studies.study import Study

FAR = 3.0
"""standard deviations: what lies further off is no chance"""
EXPLAINED = 3.0
"""times their noise: residuals above which a fit explains nothing"""
STEPPERS = {"spook": "SPOOK", "variational": "the variational integrator"}


def explains(fit: Fit) -> bool:
    """Whether a fit converged and leaves about the noise."""
    return fit.converged and misfit(fit) <= EXPLAINED


def misfit(fit: Fit) -> float:
    """Root mean square of the residuals, in standard deviations of the noise."""
    return float(np.sqrt(np.mean([(c.rms / c.std) ** 2 for c in fit.channels])))


def apart(fit: Fit, truth: Mapping[str, float]) -> dict[str, float]:
    """Standard deviations that each parameter which the data tell lies from the truth."""
    return {
        name: (p.value - truth[name]) / p.std
        for name, p in fit.parameters.items()
        if name in truth and told(fit, name)
    }


def told(fit: Fit, name: str) -> bool:
    """Whether the data tell a parameter; a bound at which it ends says nothing of it."""
    return 0.0 < fit.parameters[name].std < np.inf and not {NOT_IDENTIFIABLE, AT_BOUND} & set(fit.flags[name])


def words(stepper: str, dt: float, fits: Mapping[str, Fit], truth: Mapping[str, float]) -> str:
    """Which parameters of fits, by their names ("": it has none), lie far from the truth, and why; may be empty."""
    fits = {name: fit for name, fit in fits.items() if fit.converged}
    lost = {name: misfit(fit) for name, fit in fits.items() if not explains(fit)}
    told = []
    if lost:
        told.append(
            f"Residuals{_of(lost)} are {_and([f'{x:.3g}' for x in lost.values()])} times the noise: what explains "
            "so little says nothing of the truth."
        )
    off = {name: apart(fit, truth) for name, fit in fits.items() if name not in lost}
    far = {name: {k: abs(x) for k, x in row.items() if abs(x) > FAR} for name, row in off.items()}
    far = {name: row for name, row in far.items() if row}
    if far:
        listed = "; ".join(f"{name}: {_listed(row)}" if name else _listed(row) for name, row in far.items())
        told.append(
            f"More than {FAR:g} standard deviations from the truth (in brackets how many) are {listed}: "
            f"{_reason(stepper, dt)}"
        )
    elif any(off.values()):
        told.append(
            f"Every parameter that {'the data tell' if '' in off else 'a log tells'} is within three standard "
            "deviations of the truth."
        )
    return " ".join(told)


def _reason(stepper: str, dt: float) -> str:
    if stepper == "spook":
        return (
            f"SPOOK is of first order, and its parameters at h = {dt:g} s are not those of continuous motion "
            "(a smaller dt comes nearer; stepper=variational finds the truth)."
        )
    return (
        "the variational integrator is of second order; in a short motion cheap state errors pull numbers too "
        "(a larger state_error_weight leaves them less)."
    )


def _of(names: Mapping[str, Any]) -> str:
    return "" if "" in names else f" of {_and(list(names))}"


def _listed(row: Mapping[str, float]) -> str:
    return ", ".join(f"{k} ({x:.0f})" for k, x in row.items())


def _and(parts: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))


def tell_steppers(
    study: Study, fits: Mapping[str, Fit], truth: Mapping[str, float], *, title: str, names: Sequence[str]
) -> dict[str, Any]:
    """What each stepper (by its setting) finds of one log, beside the truth: a table, and fields of the result."""
    rows = []
    for name in names:
        row = [name, f"{truth[name]:.4g}"]
        for fit in fits.values():
            row += [cell(fit, fit.parameters[name]), _off(fit, name, truth)]
        rows.append(row)
    rows.append(
        ["residuals, of the noise", "1", *(x for f in fits.values() for x in (f"{misfit(f):.3g}", ""))]
    )
    columns = ["", "truth", *(x for key in fits for x in (STEPPERS[key].removeprefix("the "), "std off"))]
    study.table(title, columns, rows)
    for key, fit in fits.items():
        if not fit.converged:
            who = STEPPERS[key]
            study.say(f"{who[0].upper()}{who[1:]}: {fit.outcome}")
    return {key: numbers(fit, truth) | {"std_off": apart(fit, truth)} for key, fit in fits.items()}


def _off(fit: Fit, name: str, truth: Mapping[str, float]) -> str:
    if AT_BOUND in fit.flags[name]:
        return AT_BOUND
    off = apart(fit, truth)
    return f"{off[name]:+.1f}" if name in off else "–"
