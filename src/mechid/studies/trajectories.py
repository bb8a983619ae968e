"""`trajectories`: the six-link loop of Caldwell's draft, simulated and compared with another engine's trajectories.

The draft gives neither link length, step nor horizon; the reference trajectories take 1 m, 0.01 s and 2 s
(undamped) or 20 s (every joint damped by 0.1 N·m·s/rad), with the force in the third link's own axes.
"""

from __future__ import annotations

import time

import numpy as np

from mechid.dynamics.simulate import simulate
from mechid.dynamics.trajectory import Trajectory
from mechid.dynamics.variational import Variational
from mechid.reference import reference_folder
from mechid.studies import mechanisms
from mechid.studies.study import Settings, Study

SETTINGS: Settings = {"dt": 0.01, "steps": 2000, "kappa_theta": 20.0, "kappa_psi": 20.0}
QUICK: Settings = {"steps": 200}

REFERENCES = {0.0: "A_forced_undamped_200.npz", 0.1: "A_forced_damped.npz"}


def run(settings: Settings, study: Study) -> None:
    dt, steps = float(settings["dt"]), int(settings["steps"])
    stiffness = {k: float(settings[k]) for k in ("kappa_theta", "kappa_psi")}
    study.say(str(mechanisms.loop6(**stiffness, axes="body")).split("\n")[0])
    rows, study.result["runs"] = [], []
    for damping, file in REFERENCES.items():
        count = steps if damping else min(steps, 200)
        mechanism = mechanisms.loop6(damping=damping, axes="body", **stiffness)
        force = mechanisms.loop6_force((np.arange(count) + 0.5) * dt)
        began = time.perf_counter()
        run = simulate(mechanism, Variational(dt), count, inputs=force)
        seconds = time.perf_counter() - began
        began = time.perf_counter()
        simulate(mechanism, Variational(dt), count, inputs=force)
        again = time.perf_counter() - began
        result = {
            "damping": damping,
            "steps": count,
            "violation": float(run.violation.max()),
            "newton_iterations": float(run.iterations.mean()),
            "seconds": {"first": seconds, "again": again},
            "difference": _difference(run, settings, file),
        }
        study.result["runs"].append(result)
        rows.append(_row(result))
    study.table(
        "Largest differences from another engine's trajectories (SI units)",
        ["damping", "steps", "Δq", "Δp", "Δλ", "loop open", "first run", "again"],
        rows,
    )
    same = [r["difference"] for r in study.result["runs"] if r["difference"]]
    if same:
        worst = max(d["q"] for d in same)
        study.say(f"The coordinates agree to {worst:.1e} rad; the loop stays closed.")
    else:
        study.say(
            "Nothing to compare with: the reference holds dt = 0.01, κ = 20 only"
            if reference_folder().is_dir()
            else f"Nothing to compare with: there is no folder '{reference_folder()}' (set MECHID_REFERENCE)."
        )


def _difference(run: Trajectory, settings: Settings, file: str) -> dict[str, float] | None:
    """Largest differences from the reference, where it was made for the same numbers."""
    path = reference_folder() / "reference" / "variational" / file
    same = all(settings[k] == SETTINGS[k] for k in ("dt", "kappa_theta", "kappa_psi"))
    if not same or not path.exists():
        return None
    wanted = np.load(path)
    n = min(run.steps, len(wanted["u"]))
    ours = {"q": run.q[: n + 1], "p": run.states.p[: n + 1], "lam": run.multipliers[:n]}
    return {k: float(np.abs(x - wanted[k][: len(x)]).max()) for k, x in ours.items()}


def _row(result: dict) -> list[str]:
    gap = result["difference"] or {}
    seconds = result["seconds"]
    return [
        f"{result['damping']:g}",
        str(result["steps"]),
        *(f"{gap[k]:.1e}" if gap else "–" for k in ("q", "p", "lam")),
        f"{result['violation']:.1e}",
        f"{seconds['first']:.2f} s",
        f"{seconds['again']:.2f} s",
    ]
