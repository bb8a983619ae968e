"""Case 2 of `joint-friction`: numbers that jump, and the same by multilevel coordinate search alone."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from mechid.estimate.joint_form import FrictionForm
from mechid.estimate.linear_form import LinearForm
from mechid.estimate.online import Tracker
from mechid.estimate.separable import middle, separable
from mechid.estimate.solvers.mcs import mcs
from mechid.estimate.solvers.problem import plural
from mechid.studies.joint_friction_follow import (
    Followed,
    as_json,
    draw,
    errors_told,
    followed,
    full_rank_after,
    is_tracking,
    started,
)
from mechid.studies.joint_friction_streams import LINEAR, NONLINEAR, friction_stream
from mechid.studies.study import Settings, Study

BOUNDS = {"omega_1": (0.005, 1.0), "omega_S": (0.01, 2.0)}
LINEAR_BOUNDS = {"b_in": (0.0, 1000.0), "b_inD": (0.0, 1000.0), "C1": (0.0, 1000.0), "C2": (0.0, 5000.0)}
"""which the search of all numbers needs and the integrated algorithm does not"""
THIN = 800
"""samples that searches look at, both kinds of them"""
WITHIN = 0.05
"""how much higher than the integrated algorithm's criterion counts as the same"""


def jumps(settings: Settings, study: Study) -> dict[str, Any]:
    """Tables, a figure, and the numbers for the JSON line."""
    truth = {name: float(settings[f"truth.{name}"]) for name in (*LINEAR, *NONLINEAR)}
    ends = (float(settings["linear_jump"]), float(settings["nonlinear_jump"]))
    delta, noise = float(settings["delta_S"]), float(settings["noise"])
    stream = friction_stream(truth, float(settings["time"]), noise, ends, delta, int(settings["seed"]))
    form = FrictionForm(delta_S=delta)
    criterion = str(settings["criterion"])
    tracker = Tracker(form, BOUNDS, window=8000, delay=200, beside=False, criterion=criterion)
    f = followed(tracker, stream)
    study.say(
        f"{len(stream.time)} samples in {stream.time[-1]:.3g} s; bounds of ω1 and ω_S alone are given, "
        f"{f.seconds / len(stream.time) * 1e6:.3g} µs a sample with all {f.tracking.searches} searches."
    )
    phases = _phases(f, ends, criterion)
    _table(study, phases)
    for event in f.events:
        searched = "with MCS" if event.mcs else "without MCS"
        study.say(f"  {event.time:7.3f} s, told at {event.told:.3f} s, {searched}: {event.what}")
    study.say("")
    claims = _claims(study, f, ends)
    result = {
        "parameters": phases[0]["parameters"] if phases else {},
        "phases": phases,
        "events": [as_json(e) for e in f.events],
        "claims": claims,
        "updates": {"samples": len(stream.time), "searches": f.tracking.searches},
        "seconds": {"compile": 0.0, "run": f.seconds},
    }
    if is_tracking(f) and float(settings["mcs_seconds"]) > 0.0:
        result |= _compared(study, f, ends, criterion, float(settings["mcs_seconds"]))
    path = study.figure_path("case2.png")
    groups = [("N·m, N·m·s/rad", ("b_in", "b_inD", "C1")), ("C2 (N·m·s/rad)", ("C2",)), ("rad/s", NONLINEAR)]
    draw(f, path, groups, "error (N·m)")
    study.say(f"Figure: {path}")
    return result | {"figure": str(path)}


def _phases(f: Followed, ends: tuple[float, float], criterion: str) -> list[dict[str, Any]]:
    """Between the jumps: what is found at the end, what it was made with, what a batch of all of it says."""
    stream, made = f.stream, []
    last = float(stream.time[-1])
    cuts = sorted({0.0, *(e for e in ends if e < last), last + 1e-3})
    for first, end in pairwise(cuts):
        found, std = f.values_at(end), f.std_at(end)
        a, b = np.searchsorted(stream.time, [first, end])
        batch = separable(f.tracking.form, stream.samples[a:b], BOUNDS, criterion=criterion).parameters
        rows = {}
        for name, value in found.items():
            truth = float(stream.truth[name][b - 1])
            rows[name] = {
                "value": value,
                "std": std[name] if np.isfinite(std[name]) else None,
                "truth": truth,
                "start": None,
                "unit": batch[name].unit,
                "error": value / truth - 1.0 if truth else value,
                "batch": batch[name].value,
                "batch_std": batch[name].std,
            }
        made.append({"from": first, "to": min(end, last), "parameters": rows})
    return made


def _table(study: Study, phases: list[dict[str, Any]]) -> None:
    for phase in phases:
        rows = [
            [
                name,
                f"{p['truth']:.5g}",
                f"{p['value']:.5g}" + ("" if p["std"] is None else f" ± {p['std']:.2g}"),
                f"{100.0 * p['error']:+.2f} %",
                f"{p['batch']:.5g} ± {p['batch_std']:.2g}",
            ]
            for name, p in phase["parameters"].items()
        ]
        title = f"At {phase['to']:.4g} s"
        study.table(title, ["", "truth", "recursive", "error", f"batch from {phase['from']:g} s"], rows)


def _claims(study: Study, f: Followed, ends: tuple[float, float]) -> dict[str, Any]:
    """The paper's other claims beside ours."""
    form, stream = f.tracking.form, f.stream
    guess = np.array([middle(*pair) for pair in BOUNDS.values()])
    rank = full_rank_after(form, stream, guess, f.tracking.tracker.rank_tolerance)
    searches = [e.time for e in f.events if e.kind == "search"]
    linear = [t for t in searches if ends[0] - 0.1 <= t < ends[1] - 0.1]
    nonlinear = [t for t in searches if ends[1] - 0.1 <= t]
    errors = errors_told(f, stream.samples[:, 1])
    study.table(
        "What the paper says, and here",
        ["", "paper", "here"],
        [
            ["φ has full rank after", "13 s (case 1)", f"{rank:.3g} s, started at {started(f):.3g} s"],
            [f"MCS called at {ends[0]:g} s, linear jump", "no", plural(len(linear), "time")],
            [f"MCS called at {ends[1]:g} s, nonlinear jump", "yes", plural(len(nonlinear), "time")],
            ["errors below 5 %", "most", f"{100.0 * errors['below_5_percent']:.1f} % of all"],
            [
                "largest error",
                "20 %, at reversals",
                f"{100.0 * errors['largest']:.3g} % at {errors['largest_at']:.4g} s, "
                f"at {errors['speed_there']:.2g} rad/s",
            ],
            ["starting values", "none but bounds", "none but bounds"],
        ],
        left=3,
    )
    return {
        "full_rank_after": rank,
        "started": started(f),
        "mcs_at_linear_jump": bool(linear),
        "mcs_at_nonlinear_jump": bool(nonlinear),
        "errors": errors,
    }


class Alone(NamedTuple):
    """A search of all numbers."""

    value: float
    seconds: float
    evaluations: int


def _compared(
    study: Study, f: Followed, ends: tuple[float, float], criterion: str, limit: float
) -> dict[str, Any]:
    """The stream by searches of all six numbers: one whenever the integrated algorithm found new ones."""
    rows, all_of, reached = [], 0.0, True
    for first, end in _spans(f, ends):
        a, b = np.searchsorted(f.stream.time, [first, end])
        samples = f.stream.samples[a:b]
        few = samples[np.linspace(0, len(samples) - 1, min(THIN, len(samples))).astype(int)]
        noise = float(f.tracking.estimate.noise[0]) if f.tracking.estimate is not None else 1.0
        own = separable(f.tracking.form, few, BOUNDS, noise=[noise], criterion=criterion)
        wanted = (1.0 + WITHIN) * own.criterion
        found = alone(f.tracking.form, few, noise, criterion, wanted, limit)
        all_of += found.seconds
        reached &= found.value <= wanted
        rows.append(
            [
                f"{first:.4g} to {end:.4g} s",
                f"{own.criterion:.4g}",
                f"{found.value:.4g}",
                f"{found.evaluations}",
                f"{found.seconds:.3g} s",
            ]
        )
    study.table(
        f"All six numbers by MCS alone, until the criterion is as low as that of the integrated algorithm or "
        f"{limit:g} s have passed",
        ["samples", "integrated", "MCS alone", "evaluations", "time"],
        rows,
    )
    ratio = all_of / f.seconds
    more = "" if reached else " at least, since it did not get there"
    study.say(
        f"The integrated algorithm takes {f.seconds:.3g} s for all updates and searches, MCS alone {all_of:.3g} s "
        f"for its searches: {ratio:.3g} times as long{more} (paper: more than 20).\n"
    )
    return {
        "speedup_over_mcs": ratio,
        "speedup_is_a_lower_bound": not reached,
        "seconds_mcs_alone": all_of,
    }


def _spans(f: Followed, ends: tuple[float, float]) -> list[tuple[float, float]]:
    """From a change to when it was told; the first from the beginning to the start."""
    spans = [(0.0, started(f))]
    for jump in ends:
        told = [e.told for e in f.events if e.kind == "changed" and abs(e.time - jump) < 1.0]
        spans += [(jump, told[0])] if told else []
    return spans


def alone(
    form: LinearForm, samples: np.ndarray, noise: float, criterion: str, wanted: float, limit: float
) -> Alone:
    """θ and ω together by multilevel coordinate search, for so many seconds of the processor at most."""
    bounds = LINEAR_BOUNDS | BOUNDS
    low, high = np.array(list(bounds.values())).T
    begun = time.process_time()
    n = len(form.names)

    def value(numbers: np.ndarray) -> float:
        if time.process_time() - begun > limit:
            raise KeyboardInterrupt
        phi, y = form.rows(samples, numbers[n:])
        r = (phi[:, 0] @ numbers[:n] - y[:, 0]) / noise
        square = float(r @ r)
        return 0.5 * square if criterion == "squares" else square**0.5

    found = mcs(value, low, high, target=wanted, evaluations=10**9, patience=10**9)
    return Alone(found.value, time.process_time() - begun, found.evaluations)
