"""Case 1 of `joint-friction`: the whole joint, ten linear numbers and two that are not."""

from __future__ import annotations

from typing import Any

import numpy as np

from mechid.estimate.joint_form import JointForm
from mechid.estimate.online import Tracker
from mechid.estimate.separable import middle, separable
from mechid.studies.joint_friction_follow import (
    as_json,
    draw,
    errors_told,
    followed,
    full_rank_after,
    started,
)
from mechid.studies.joint_friction_jumps import BOUNDS
from mechid.studies.joint_friction_streams import J_IN, joint_stream
from mechid.studies.study import Settings, Study

SKIPPED = 20
"""samples at both ends that derivatives spoil"""


def whole(settings: Settings, study: Study) -> dict[str, Any]:
    """Tables, a figure, and the numbers for the JSON line."""
    delta = float(settings["delta_S"])
    form = JointForm(J_in=J_IN, K_m=1.0, delta_S=delta)
    names = (*form.names, *form.nonlinear)
    truth = {name: float(settings[f"truth.{name}"]) for name in names}
    made = joint_stream(
        truth, float(settings["time"]), float(settings["noise"]), delta, int(settings["seed"])
    )
    stream = made._replace(
        time=made.time[SKIPPED:-SKIPPED],
        samples=made.samples[SKIPPED:-SKIPPED],
        truth={name: course[SKIPPED:-SKIPPED] for name, course in made.truth.items()},
    )
    criterion = str(settings["criterion"])
    # derived signals are alike from sample to sample, and reversals leave what the model does not hold
    tracker = Tracker(form, BOUNDS, window=8000, delay=200, beside=False, criterion=criterion, threshold=3.0)
    f = followed(tracker, stream)
    batch = separable(form, stream.samples, BOUNDS, criterion=criterion)
    found, std = f.tracking.values, f.tracking.std
    rows, parameters = [], {}
    for name in names:
        p = batch.parameters[name]
        parameters[name] = {
            "value": found[name],
            "std": std[name] if np.isfinite(std[name]) else None,
            "truth": truth[name],
            "start": None,
            "unit": p.unit,
            "error": found[name] / truth[name] - 1.0 if truth[name] else found[name],
            "batch": p.value,
            "batch_std": p.std,
        }
        error = f"{100.0 * parameters[name]['error']:+.2f} %"
        batched = f"{p.value:.5g} ± {p.std:.2g}"
        own = f"{found[name]:.5g} ± {std[name]:.2g}" if np.isfinite(std[name]) else f"{found[name]:.5g}"
        rows.append([name, f"{truth[name]:.5g}", own, error, batched, p.unit])
    study.table(
        f"The whole joint after {stream.time[-1]:.3g} s",
        ["", "truth", "recursive", "error", "batch", "unit"],
        rows,
    )
    for event in f.events:
        study.say(f"  {event.time:7.3f} s: {event.what}")
    guess = np.array([middle(*pair) for pair in BOUNDS.values()])
    rank = full_rank_after(form, stream, guess, tracker.rank_tolerance)
    weakest = form.names[int(np.argmax(np.abs(batch.linear.directions[:, -1])))]
    errors = errors_told(f, stream.samples[:, 1])
    study.table(
        "What the paper says, and here",
        ["", "paper", "here"],
        [
            ["φ has full rank after", "13 s", f"{rank:.3g} s, started at {started(f):.3g} s"],
            ["weakest singular value", "cubic stiffness", weakest],
            ["errors below 5 %", "most", f"{100.0 * errors['below_5_percent']:.1f} % of all"],
            [
                "largest error",
                "20 %, at reversals",
                f"{100.0 * errors['largest']:.3g} %, at {errors['speed_there']:.2g} rad/s",
            ],
        ],
        left=3,
    )
    path = study.figure_path("case1.png")
    groups = [
        ("k1 (N·m/rad)", ("k1",)),
        ("k2 (N·m/rad³)", ("k2",)),
        ("C1 (N·m), b", ("C1", "b_in", "b_inD")),
        ("C2 (N·m·s/rad)", ("C2",)),
        ("link (N·m)", ("b_out", "b_outC", "A1", "A2")),
        ("rad/s", ("omega_1", "omega_S")),
    ]
    draw(f, path, groups, "error (N·m)")
    study.say(f"Figure: {path}")
    return {
        "parameters": parameters,
        "events": [as_json(e) for e in f.events],
        "claims": {"full_rank_after": rank, "started": started(f), "weakest": weakest, "errors": errors},
        "excitation": batch.linear.excitation.tolist(),
        "updates": {"samples": len(stream.time), "searches": f.tracking.searches},
        "seconds": {"compile": 0.0, "run": f.seconds},
        "figure": str(path),
    }
