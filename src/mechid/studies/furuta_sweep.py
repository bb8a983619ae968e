"""Fits of the Furuta study over a method parameter: step, compliance or state error weight (Figs. 4, 6, 7)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mechid.errors import MechidError
from mechid.estimate.fit import Fit
from mechid.studies import furuta_plot
from mechid.studies.joint_fits import numbers
from mechid.studies.study import Settings, Study

SWEEPS = ("all", "none", "dt", "compliance", "weight")
STEPS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.04)
"""s"""
COMPLIANCES = (1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3)
"""m/N and rad/(N·m)"""
WEIGHTS = (1e-2, 1e-1, 1.0, 1e1, 1e2, 1e3, 1e4)


def chosen_sweeps(settings: Settings) -> tuple[str, ...]:
    """Which of them the setting asks for."""
    of_spook = ("compliance",) if settings["stepper"] == "spook" else ()
    return {"all": ("dt", *of_spook, "weight"), "none": ()}.get(settings["sweep"], (settings["sweep"],))


def swept(fit: Callable[[float], Fit], values: Sequence[float]) -> dict[float, Fit | str]:
    """A fit for each value, or the sentence that says why there is none."""
    found: dict[float, Fit | str] = {}
    for value in values:
        try:
            found[value] = fit(value)
        except MechidError as error:
            found[value] = str(error)
    return found


def told_sweep(
    study: Study,
    key: str,
    title: str,
    unit: str,
    fits: Mapping[float, Fit | str],
    truth: Mapping[str, float],
    *,
    names: Sequence[str],
    figure: str,
) -> list[dict[str, Any]]:
    """A sweep as a table, a figure and rows of the result."""
    rows, cells = [], []
    for value, fit in fits.items():
        if isinstance(fit, str):
            rows.append([f"{value:g}", *["–"] * len(names), "–", "–", fit])
            cells.append({key: value, "why": fit})
            continue
        cell = numbers(fit, truth)
        cells.append({key: value, **cell})
        rows.append(
            [
                f"{value:g}",
                *[f"{fit.parameters[n].value:.4g}" for n in names],
                f"{1e3 * cell['observation_error']:.3g}",
                f"{cell['state_error']:.2e}",
                f"{fit.iterations}" if fit.converged else f"{fit.iterations}, not converged",
            ]
        )
    columns = [f"{key} ({unit})" if unit else key, *names, "angles, mrad", "impulses", "iterations"]
    study.table(title, columns, [["truth", *[f"{truth[n]:.4g}" for n in names], "", "", ""], *rows])
    furuta_plot.sweep(cells, key, unit, {n: truth[n] for n in names}, study.figure_path(figure))
    return cells


def told_stiffness(study: Study, cells: Sequence[Mapping[str, Any]]) -> None:
    """Whether stiff joints fail, as they do with the paper's explicit inverse dynamics."""
    failed = [c["compliance"] for c in cells if "why" in c or not c["converged"]]
    study.say(
        "The paper's method breaks down below 1e-6 m/N; "
        + (
            f"here it fails at {', '.join(f'{x:g}' for x in failed)}."
            if failed
            else "here every fit converges."
        )
    )
