"""What studies that identify parameters share: solvers by name, the table beside the paper's, the JSON's fields."""

from __future__ import annotations

from typing import Any

import numpy as np

from mechid.errors import unknown
from mechid.estimate.fit import Fit
from mechid.estimate.solvers.lbfgsb import LBFGSB
from mechid.estimate.solvers.levenberg_marquardt import LevenbergMarquardt
from mechid.estimate.solvers.problem import Iteration
from mechid.estimate.solvers.steepest_descent import SteepestDescent
from mechid.studies.study import Settings, Study

SOLVERS = {
    "levenberg-marquardt": LevenbergMarquardt,
    "steepest-descent": SteepestDescent,
    "lbfgsb": LBFGSB,
}


def chosen(settings: Settings, key: str, choices: Any) -> str:
    """A setting that must be one of some words."""
    if settings[key] not in choices:
        raise unknown(key, settings[key], choices)
    return settings[key]


def solver_of(settings: Settings) -> Any:
    return SOLVERS[chosen(settings, "solver", SOLVERS)]()


def by_prefix(settings: Settings, prefix: str) -> dict[str, float]:
    """Settings prefix.NAME by NAME."""
    return {
        k.removeprefix(f"{prefix}."): float(v) for k, v in settings.items() if k.startswith(f"{prefix}.kappa")
    }


def watched(study: Study, every: int = 1) -> Any:
    """Print an iteration now and then."""

    def tell(line: Iteration) -> None:
        if line.number % every == 0:
            values = ", ".join(f"{x:.6g}" for x in line.values)
            study.say(
                f"  {line.number:3d}   cost {line.cost:<10.6g} ‖gradient‖ {line.gradient_norm:<8.3g} "
                f"[{values}]   {line.seconds:.2f} s"
            )

    return tell


def spread(fit: Fit) -> dict[str, float]:
    """Standard deviations for a cost in plain squares: the residuals tell the noise."""
    found = fit.extra["uncertainty"]
    factor = found.misfit / max(1.0, found.misfit)
    return {name: p.std * factor for name, p in fit.parameters.items()}


def tell(study: Study, fit: Fit, truth: dict[str, float], paper: dict[str, Any], *, title: str) -> None:
    """The parameters beside truth and paper, on the screen and in the result."""
    stds = spread(fit)
    rows = []
    for name, p in fit.parameters.items():
        told = paper.get("parameters", {}).get(name)
        rows.append(
            [
                name,
                f"{p.value:.6g} ± {stds[name]:.2g}",
                f"{truth[name]:.6g}",
                f"{100 * (p.value / truth[name] - 1):+.2g} %",
                f"{p.start:g}",
                "–" if told is None else f"{told}",
                p.unit,
            ]
        )
    study.table(title, ["parameter", "found", "truth", "off by", "start", "paper", "unit"], rows)
    study.result["parameters"] = {
        name: {
            "value": p.value,
            "std": float(stds[name]) if np.isfinite(stds[name]) else None,
            "truth": truth[name],
            "start": p.start,
            "unit": p.unit,
        }
        for name, p in fit.parameters.items()
    }
    study.result["iterations"] = fit.iterations
    study.result["cost"] = {"start": fit.cost[0], "end": fit.cost[1]}
    study.result["seconds"] = fit.seconds
    study.result["outcome"] = fit.outcome
    study.result["paper"] = paper


def cost_table(study: Study, rows: list[tuple[str, Fit, str]]) -> None:
    """Several fits beside what the paper says of each."""
    study.table(
        "Cost, iterations and time",
        ["", "J start", "J end", "iterations", "compile", "run", "paper"],
        [
            [
                name,
                f"{f.cost[0]:.4g}",
                f"{f.cost[1]:.4g}",
                str(f.iterations),
                f"{f.seconds['compile']:.2f} s",
                f"{f.seconds['run']:.2f} s",
                paper,
            ]
            for name, f, paper in rows
        ],
    )
