"""How studies tell joint estimations: a table beside truth and paper, and the fields of the JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from mechid.estimate.fit import Estimate, Fit
from mechid.judge.identifiability import NOT_IDENTIFIABLE
from mechid.judge.validation import Validation
from mechid.model.mechanism import Mechanism
from mechid.model.parameters import Parameters
from mechid.report.fit import NOT_TOLD, digits
from mechid.studies.study import Study

MARK = "*"
"""behind a number that the data tell only if others are known"""


def tell(
    study: Study, fit: Fit, truth: Mapping[str, float], *, title: str, beside: str = "truth"
) -> dict[str, Any]:
    """A fit beside the truth, or what else is known: printed, and as fields of the result."""
    study.say(fit.outcome)
    rows = []
    for name, p in fit.parameters.items():
        true = truth.get(name)
        rows.append(
            [
                name,
                cell(fit, p),
                "–" if true is None else f"{true:.4g}",
                f"{p.start:g}",
                p.unit,
                ", ".join(fit.flags[name]),
            ]
        )
    study.table(title, ["parameter", "found", beside, "start", "unit", "beware"], rows)
    for sentence in filter(None, (*fit.identifiability.sentences, marked(fit))):
        study.say(f"  {sentence}")
    return numbers(fit, truth)


def cell(fit: Fit, p: Estimate) -> str:
    """A value with its std, or that the data do not tell it."""
    told = p.std
    hidden = NOT_IDENTIFIABLE in fit.flags[p.name] or not np.isfinite(told)
    if hidden:
        known = fit.identifiability.known
        told = {} if known is None else {c.expression: c.std for c in known.told}
        if p.name not in told:
            return NOT_TOLD
        told = told[p.name]
    value, std = digits(p.value, told)
    return f"{value} ± {std}{MARK if hidden else ''}"


def marked(fit: Fit) -> str:
    """What the mark of cells means in a fit; empty where there is none."""
    known = fit.identifiability.known
    if known is None:
        return ""
    return f"{MARK} with {' and '.join(f'{c.expression} at {c.value:.3g}' for c in known.given)}"


def numbers(fit: Fit, truth: Mapping[str, float] | None = None) -> dict[str, Any]:
    """A fit for a program."""
    truth = truth or {}
    return {
        "parameters": {
            name: {
                "value": p.value,
                "std": p.std if np.isfinite(p.std) else None,
                "truth": truth.get(name),
                "start": p.start,
                "unit": p.unit,
                "identifiable": NOT_IDENTIFIABLE not in fit.flags[name],
                "flags": list(fit.flags[name]),
            }
            for name, p in fit.parameters.items()
        },
        "if_known": _if_known(fit),
        "observation_error": observation_error(fit),
        "state_error": state_error(fit),
        "cost": {"start": fit.cost[0], "end": fit.cost[1]},
        "iterations": fit.iterations,
        "settled": settled(fit),
        "converged": fit.converged,
        "outcome": fit.outcome,
        "seconds": fit.seconds,
    }


def _if_known(fit: Fit) -> dict[str, Any] | None:
    known = fit.identifiability.known
    return known and {
        "given": {c.expression: c.value for c in known.given},
        "told": {c.expression: {"value": c.value, "std": c.std} for c in known.told},
    }


def settled(fit: Fit) -> int:
    """Iterations from which on every parameter that the data tell stays within 1 % or a tenth of its std."""
    told = [i for i, p in enumerate(fit.parameters.values()) if NOT_IDENTIFIABLE not in fit.flags[p.name]]
    ends = [list(fit.parameters.values())[i] for i in told]
    near = np.array([max(0.01 * abs(p.value), 0.1 * p.std) for p in ends])
    off = np.array([[x.values[i] for i in told] for x in fit.trace]) - [p.value for p in ends]
    late = np.flatnonzero(np.any(np.abs(off) > near, axis=1))
    return int(late[-1]) + 1 if late.size else 0


def observation_error(fit: Fit) -> float:
    """Root mean square of the angles' residuals, rad."""
    return float(np.sqrt(np.mean([c.rms**2 for c in fit.channels])))


def state_error(fit: Fit) -> float:
    """Root mean square of the impulses that the model lacks in a step, N·m·s and N·s together."""
    errors = [np.sum(np.asarray(link.errors) ** 2, 1) for link in fit.extra["solution"].place.links]
    return float(np.sqrt(np.mean(np.concatenate(errors))))


def paper_cost(fit: Fit, weight: float) -> float:
    """The paper's cost: squared residuals (rad²) and κ times squared impulses, by the number of steps."""
    links = fit.extra["solution"].place.links
    steps = sum(len(link.errors) for link in links)
    impulses = sum(float(np.sum(np.asarray(link.errors) ** 2)) for link in links)
    angles = sum(float(np.nansum(c.residual**2)) for c in fit.channels)
    return (angles + weight * impulses) / steps


def held(fit: Fit, mechanism: Mechanism) -> Fit:
    """The same fit as if it had found another mechanism's numbers: for what these say of logs."""
    return replace(fit, free=Parameters(mechanism), theta=np.zeros(0))


def validated(found: Validation) -> dict[str, Any]:
    """A cross-validation for a program."""
    return {
        "score": found.score,
        "cost": found.cost,
        "samples": found.samples,
        "rms": {f"{c.experiment}: {c.channel}": c.rms for c in found.channels},
    }
