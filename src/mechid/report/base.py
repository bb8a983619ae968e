"""What equations that are linear in the parameters tell of them: base parameters and how well each is excited."""

from __future__ import annotations

from typing import Any

import numpy as np
from rich.console import Console

from mechid.estimate.fit import Fit
from mechid.report.numbers import digits
from mechid.report.screen import listed, table

WEAK = 0.03
"""excitation, as a part of the strongest, below which a direction is named"""
SHARE = 0.3
"""part of the largest entry from which on a parameter takes part in a direction"""
NAMED = 6


def show_base(fit: Fit, console: Console) -> None:
    """Combinations that act as one number, and how strongly each direction of the parameters is excited."""
    linear = fit.extra.get("linear")
    if linear is None:
        return
    base, values = linear.base, _values(fit)
    start = base.combine(fit.extra["form"].numbers.start)
    shown = [i for i in range(len(values)) if not _alone(fit, i)]
    rows = []
    for i in shown:
        value, std = digits(values[i], base.std[i])
        unit = linear_units(fit)[base.independent[i]]
        rows.append([base.expressions[i], f"{value} ± {std}" if std else value, unit, f"{start[i]:.4g}"])
    if rows:
        table(console, "Base parameters", ["combination", "value ± std", "unit", "start"], rows, left=3)
    told = linear.excitation[: linear.rank]
    if len(told):
        span = f"{told[0]:.3g} to {told[-1]:.3g} (condition {linear.condition:.3g})"
        console.print(f"Excitation of {len(told)} directions: {span}.")
        console.print()
    if base.silent:
        names = [base.names[i] for i in base.silent]
        listed(console, "Act nowhere in these motions:", names)
        console.print()


def linear_units(fit: Fit) -> tuple[str, ...]:
    """Of the numbers in which the equations are linear."""
    return fit.extra["form"].units


def _values(fit: Fit) -> np.ndarray:
    """Base parameters of the result, which consistency may have moved."""
    near = fit.extra["consistent"]
    base = fit.extra["linear"].base
    return base.values if near is None else base.combine(near.theta)


def _alone(fit: Fit, i: int) -> bool:
    """A base parameter that is one parameter of the fit."""
    base = fit.extra["linear"].base
    name = base.names[base.independent[i]]
    return not np.any(np.abs(base.factors[i]) > 1e-7) and name in fit.parameters


def base_notes(fit: Fit) -> list[str]:
    """Directions that are told but hardly excited, in sentences."""
    linear, told = fit.extra["linear"], []
    for i in range(linear.rank):
        part = linear.excitation[i] / linear.excitation[0]
        if part < WEAK:
            share = np.abs(linear.directions[:, i])
            names = [linear.names[j] for j in np.argsort(-share) if share[j] > SHARE * share.max()][:NAMED]
            told.append(
                f"{', '.join(names)}: excited {part:.1g} times as strongly as the best direction; motions that "
                "tell them apart better would tell more."
            )
    return told


def base_dict(fit: Fit) -> dict[str, Any]:
    """For a file; empty for other estimators."""
    linear = fit.extra.get("linear")
    if linear is None:
        return {}
    base, values = linear.base, _values(fit)
    return {
        "rank": linear.rank,
        "base_parameters": [
            {"expression": e, "value": float(v), "std": float(s)}
            for e, v, s in zip(base.expressions, values, base.std, strict=True)
        ],
        "excitation": [float(x) for x in linear.excitation],
        "silent": [base.names[i] for i in base.silent],
    }
