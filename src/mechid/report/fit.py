"""A fit as a person reads it: how it ended, parameters with digits that follow their std, channels, notes.

`summary` gives text, `show_fit` prints the same on a console, `result_dict` gives everything for a file.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from rich.console import Console

from mechid.estimate.fit import Compared, Estimate, Fit
from mechid.estimate.solvers.problem import Iteration
from mechid.judge.combinations import Combination
from mechid.judge.identifiability import (
    AT_BOUND,
    DID_NOT_MOVE,
    NO_STD,
    NOT_IDENTIFIABLE,
    POORLY_KNOWN,
)
from mechid.report.base import base_dict, base_notes, show_base
from mechid.report.numbers import digits
from mechid.report.screen import WIDTH, counted, listed, say, table

NOT_TOLD = "not told by the data"
STRONG = 0.9
"""correlations from here on are named"""
ROWS = 40
"""first states and channels that are still printed; all are in the result's file"""
PAIRS = 10
"""strong correlations that are still named"""
WATCHED = 4
"""parameters on a line of progress"""


def summary(fit: Fit) -> str:
    """The result as text: an outcome, tables, and notes in words."""
    return "\n".join(fit_lines(fit))


def fit_lines(fit: Fit) -> list[str]:
    """The lines of the summary, at most WIDTH columns wide."""
    text = io.StringIO()
    console = Console(
        file=text,
        width=WIDTH,
        color_system=None,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )
    show_fit(fit, console)
    return [line.rstrip() for line in text.getvalue().rstrip().splitlines()]


def show_fit(fit: Fit, console: Console) -> None:
    """Print the result."""
    say(console, fit.outcome)
    say(console, _about(fit))
    say(console, _effort(fit))
    console.print()
    _parameters(fit, console)
    show_base(fit, console)
    if fit.starts:
        _starts(fit, console)
    if fit.channels:
        _channels(fit.channels, console)
    _correlations(fit, console)
    told = notes(fit)
    if told:
        console.print("Notes", style="bold")
    for i, note in enumerate(told, 1):
        listed(console, f"{i}.", [note])


def progress_line(iteration: Iteration, names: Sequence[str], units: Sequence[str]) -> str:
    """An iteration on one line, for someone who waits."""
    values = [
        f"{name} {value:.5g} {unit}".rstrip()
        for name, value, unit in zip(names, iteration.values, units, strict=True)
    ]
    more = ["…"] if len(values) > WATCHED else []
    cells = [
        f"{iteration.number:4d}",
        f"cost {iteration.cost:.4e}",
        f"gradient {iteration.gradient_norm:.1e}",
        ", ".join([*values[:WATCHED], *more]),
        f"{iteration.seconds:.1f} s",
    ]
    return "  ".join(cells)


# Parts


def _about(fit: Fit) -> str:
    samples = sum(int(np.isfinite(c.residual).sum()) for c in fit.channels)
    experiments = len({c.experiment for c in fit.channels})
    counts = [counted(experiments, "experiment"), counted(samples, "sample")] if experiments else []
    return ", ".join([fit.estimator, fit.solver, *counts])


def _effort(fit: Fit) -> str:
    cells = [f"cost {fit.cost[0]:.4g} → {fit.cost[1]:.4g}", counted(max(fit.iterations, 0), "iteration")]
    if "run" in fit.seconds:
        compiling = f" after {fit.seconds['compile']:.1f} s to compile" if "compile" in fit.seconds else ""
        cells.append(f"{fit.seconds['run']:.1f} s{compiling}")
    return ", ".join(cells)


def _parameters(fit: Fit, console: Console) -> None:
    found = list(fit.parameters.values())
    if "linear" in fit.extra:  # what combinations tell stands in a table of its own
        found = [p for p in found if np.isfinite(p.std)]
        if not found:
            return
    hidden = [NOT_IDENTIFIABLE in fit.flags[p.name] for p in found]
    rows = [
        [p.name, cell, p.unit, f"{p.start:.4g}", ", ".join(fit.flags[p.name])]
        for p, cell in zip(found, _value_cells(found, hidden), strict=True)
    ]
    table(console, "Parameters", ["name", "value ± std", "unit", "start", "beware"], rows, left=3)


def _starts(fit: Fit, console: Console) -> None:
    found = list(fit.starts.values())[:ROWS]
    hidden = [not np.isfinite(p.std) and fit.identifiability.judged for p in found]
    rows = [
        [p.name, cell, p.unit, f"{p.start:.4g}"]
        for p, cell in zip(found, _value_cells(found, hidden, percent=False), strict=True)
    ]
    table(console, "First states", ["name", "value ± std", "unit", "start"], rows, left=3)
    _left_out(console, len(fit.starts), "first state")


def _channels(channels: Sequence[Compared], console: Console) -> None:
    several = len({c.experiment for c in channels}) > 1
    rows = [
        [
            f"{c.experiment}: {c.channel}" if several else c.channel,
            str(int(np.isfinite(c.residual).sum())),
            f"{c.rms:.3g}",
            f"{c.std:.3g}",
            "estimated" if c.estimated else "given",
        ]
        for c in channels[:ROWS]
    ]
    table(console, "Channels (SI)", ["name", "samples", "rms residual", "noise std", "noise"], rows)
    _left_out(console, len(channels), "channel")


def _left_out(console: Console, count: int, kind: str) -> None:
    if count > ROWS:
        say(console, f"{counted(count - ROWS, f'more {kind}')} in the result's file.\n")


def _correlations(fit: Fit, console: Console) -> None:
    pairs = strong_correlations(fit)
    if pairs:
        shown = [f"{a} – {b} {_signed(rho)}" for a, b, rho in pairs[:PAIRS]]
        more = [f"{len(pairs) - PAIRS} more"] if len(pairs) > PAIRS else []
        listed(console, "Strong correlations:", [*shown, *more])
        console.print()


def strong_correlations(fit: Fit) -> list[tuple[str, str, float]]:
    """Pairs of parameters that are told together only, the strongest first."""
    names, rho = list(fit.parameters), fit.correlation
    found = [
        (names[i], names[j], float(rho[i, j]))
        for i in range(len(names))
        for j in range(i + 1, len(names))
        if abs(rho[i, j]) > STRONG
    ]
    return sorted(found, key=lambda pair: -abs(pair[2]))


def notes(fit: Fit) -> list[str]:
    """What has to be said of the result, in sentences."""
    judged, told = fit.identifiability, list(fit.notes)
    if "linear" in fit.extra:
        return [
            *told,
            *base_notes(fit),
            *map(_bound_note, (fit.parameters[n] for n in _having(fit, AT_BOUND))),
        ]
    if not fit.converged:
        told.append(
            "The numbers are those of the last iteration; standard deviations hold at a solution only."
        )
    told += judged.sentences
    unsaid = [n for n in _having(fit, NOT_IDENTIFIABLE) if not any(n in s for s in judged.sentences)]
    if unsaid:
        told.append(f"The data do not tell {', '.join(unsaid)}.")
    if judged.suggestion:
        told[-1] = f"{told[-1]} {judged.suggestion}"
    shown = [c for c in judged.combinations if len(c.names) > 1]
    if shown:
        texts = [_equals(c) for c in shown]
        told.append(f"What can be told of them: {', '.join(texts)} (SI).")
    if judged.known is not None:
        texts = [_equals(c) for c in judged.known.told]
        given = " and ".join(f"{c.expression} at {c.value:.3g}" for c in judged.known.given)
        told.append(f"With {given} the data tell {', '.join(texts)} (SI).")
    told += [_bound_note(fit.parameters[name]) for name in _having(fit, AT_BOUND)]
    poor = [f"{n} (±{_percent(fit.parameters[n])})" for n in _having(fit, POORLY_KNOWN)]
    if poor:
        told.append(f"Poorly known: {', '.join(poor)}.")
    still = [n for n in _having(fit, DID_NOT_MOVE) if NOT_IDENTIFIABLE not in fit.flags[n]]
    if still:
        told.append(f"Exactly where the search began: {', '.join(still)}.")
    unknown = _having(fit, NO_STD)
    if unknown:
        told.append(f"Without standard deviation, so how far to trust it is not known: {', '.join(unknown)}.")
    return told


def _having(fit: Fit, flag: str) -> list[str]:
    return [name for name, own in fit.flags.items() if flag in own]


def _bound_note(p: Estimate) -> str:
    low = abs(p.value - p.lower) <= abs(p.value - p.upper)
    side, bound = ("lower", p.lower) if low else ("upper", p.upper)
    return (
        f"{p.name} is at its {side} bound, {f'{bound:g} {p.unit}'.rstrip()}: its std does not hold there; "
        "widen the bound, or fix the parameter."
    )


# Numbers


def _value_cells(found: Sequence[Estimate], hidden: Sequence[bool], *, percent: bool = True) -> list[str]:
    """Values with their std, "±" below "±"; what is not told is not shown as a number."""
    texts = [digits(p.value, p.std) for p in found]
    shown = [t for t, h in zip(texts, hidden, strict=True) if not h]
    wide = [max((len(t[k]) for t in shown), default=0) for k in (0, 1)]
    cells = []
    for p, (value, std), h in zip(found, texts, hidden, strict=True):
        part = f" ({_percent(p)})" if percent and p.value and np.isfinite(p.std) else ""
        if h:
            cells.append(NOT_TOLD + part.replace("(", "(±"))
        else:
            cells.append(f"{value:>{wide[0]}} ± {std:<{wide[1]}}{part}" if std else f"{value:>{wide[0]}}")
    return cells


def _percent(p: Estimate) -> str:
    """The std as a part of the value."""
    part = 100.0 * p.std / abs(p.value) if p.value else math.inf
    if part < 1e-3:
        return "<0.001 %" if part else "0 %"
    return f"{part:.2g} %" if part < 100.0 else f"{part:.0f} %" if part <= 1000.0 else ">1000 %"


def _signed(rho: float) -> str:
    return f"{rho:+.3f}".replace("-", "−")


# For a file


def result_dict(fit: Fit) -> dict[str, Any]:
    """Everything for JSON: raw numbers, null where they are infinite or missing."""
    judged = fit.identifiability
    return {
        "estimator": fit.estimator,
        "solver": fit.solver,
        "mechanism": fit.free.mechanism.name,
        "outcome": fit.outcome,
        "converged": bool(fit.converged),
        "parameters": {
            name: _estimate(p) | {"flags": list(fit.flags[name])} for name, p in fit.parameters.items()
        },
        "starts": {name: _estimate(p) for name, p in fit.starts.items()},
        "covariance": [_numbers(row) for row in np.asarray(fit.covariance)],
        "cost": {"start": _number(fit.cost[0]), "end": _number(fit.cost[1])},
        "iterations": fit.iterations,
        "trace": [
            {
                "number": i.number,
                "cost": _number(i.cost),
                "gradient_norm": _number(i.gradient_norm),
                "values": _numbers(i.values),
                "step": _number(i.step),
                "seconds": _number(i.seconds),
                "evaluations": i.evaluations,
            }
            for i in fit.trace
        ],
        "channels": [
            {
                "experiment": c.experiment,
                "channel": c.channel,
                "samples": int(np.isfinite(c.residual).sum()),
                "rms": _number(c.rms),
                "std": _number(c.std),
                "estimated": bool(c.estimated),
            }
            for c in fit.channels
        ],
        "identifiability": {
            "singular_values": _numbers(judged.singular_values),
            "stds": _numbers(judged.stds),
            "directions": [_numbers(v) for v in judged.directions.T],
            "classes": list(judged.classes),
            "condition": _number(judged.condition),
            "sentences": list(judged.sentences),
            "suggestion": judged.suggestion,
            "combinations": [
                {"expression": c.expression, "value": _number(c.value), "std": _number(c.std)}
                for c in judged.combinations
            ],
            "known": judged.known
            and {
                "given": {c.expression: c.value for c in judged.known.given},
                "told": {c.expression: {"value": c.value, "std": _number(c.std)} for c in judged.known.told},
            },
        },
        **base_dict(fit),
        "seconds": {name: _number(x) for name, x in fit.seconds.items()},
        "notes": list(fit.notes),
    }


def _equals(c: Combination) -> str:
    return f"{c.expression} = {' ± '.join(filter(None, digits(c.value, c.std)))}"


def _estimate(p: Estimate) -> dict[str, Any]:
    numbers = {key: _number(getattr(p, key)) for key in ("value", "std", "start", "lower", "upper")}
    return numbers | {"unit": p.unit}


def _number(x: float) -> float | None:
    return float(x) if np.isfinite(x) else None


def _numbers(row: Iterable[float]) -> list[float | None]:
    return [_number(x) for x in row]
