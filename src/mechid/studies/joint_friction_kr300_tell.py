"""What is said and drawn of the KUKA KR300's joints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mechid.report.fit import digits

if TYPE_CHECKING:
    from mechid.studies.joint_friction_kr300 import Axis, Found, Judged
    from mechid.studies.study import Study

WORDS = {
    "stiffness": "gear stiffness k",
    "motor_inertia": "motor inertia J",
    "viscous": "viscous friction b, motor and link",
    "coulomb": "Coulomb friction C",
    "stribeck": "Stribeck excess",
    "lag": "link encoder behind, less b N²/k",
}
UNITS = {
    "stiffness": "N·m/rad",
    "motor_inertia": "kg·m²",
    "viscous": "N·m·s/rad",
    "coulomb": "N·m",
    "stribeck": "N·m",
    "lag": "s",
}


def tell(study: Study, axis: Judged, fitted: str, other: str) -> None:
    """The tables of one axis."""
    rows = []
    for name, found in axis.found.items():
        ends = [r.value for r in found.readings]
        rows.append(
            [
                WORDS[name],
                f"{min(ends):.3g} … {max(ends):.3g}",
                "not told" if found.told == "no" else " ± ".join(digits(found.value, found.std)),
                "" if found.published is None else f"{found.published:.4g}",
                UNITS[name],
                found.told,
            ]
        )
    columns = ["", "readings", "together", "published", "unit", "told"]
    study.table(f"Axis {axis.number}: link side for k, motor side for all else", columns, rows)
    for name, (error, size) in axis.foretold.items():
        unit = "mrad" if name.startswith("twist") else "N·m"
        scale = 1e3 if unit == "mrad" else 1.0
        share = 1.0 - (error / size) ** 2
        explained = f"{share:.0%} explained" if share > 0.0 else "worse than its mean"
        study.say(
            f"  Fitted on {fitted}, the {name} of {other}: off by {scale * error:.3g} {unit} rms of "
            f"{scale * size:.3g} {unit} ({explained})."
        )
    study.say("")


def remarks(judged: Sequence[Judged]) -> list[str]:
    """What these logs tell of the gears and what not, and why."""
    lags = [1e3 * axis.found["lag"].value for axis in judged]
    K = [axis.controller[0] for axis in judged]
    part = min(axis.controller[1] for axis in judged)
    said = [
        f"The twist is mostly time: the link's encoders lag behind the motors' by {min(lags):.2g} to "
        f"{max(lags):.2g} ms, which shows as more than gears twist. A lag and viscous friction before the gear are "
        "one number in the twist: the lag given is the encoders' less b N²/k.",
        f"Fast torques tell of the controller, not of the motor: {part:.0%} and more of what changes from one "
        f"sample to the next is −{min(K):.1f} to −{max(K):.1f} N·m·s/rad times the motor's last rate, noise of its "
        "encoder that is fed back. A motor inertia from fast motion would be the controller's; the filter leaves "
        "it out.",
    ]
    for axis in judged:
        said.append(_of_stiffness(axis.number, axis.found["stiffness"]))
        said.append(_of_inertia(axis.number, axis.found["motor_inertia"]))
    said.append(
        "Motor and link accelerate alike at these stiffnesses: without the twist only the sum of both inertias "
        "acts, and that changes with the arm's pose and with what the other axes do. Where weight loads a gear its "
        "twist foretells the torque of the other log far better than a rigid arm does."
    )
    return said


def _of_stiffness(number: int, k: Found) -> str:
    low, high = (pick(r.value for r in k.readings) for pick in (min, max))
    if k.told == "no":
        why = "Nothing but its inertia loads it, and twists it by less than its encoders err."
        return (
            f"Axis {number} does not tell its stiffness: readings lie between {low:.2g} and {high:.2g} N·m/rad."
            f"{' ' + why if number == 1 else ''}"
        )
    known = "well" if k.told == "yes" else "roughly"
    off = abs(k.value - k.published) / k.std if k.published else 0.0
    beside = (
        f"; the published {k.published:.4g} lies {off:.1f} standard deviations off" if k.published else ""
    )
    return (
        f"Axis {number} tells its stiffness {known}, since weight loads the gear: {low:.2g} to {high:.2g} N·m/rad"
        f"{beside}."
    )


def _of_inertia(number: int, J: Found) -> str:
    low, high = (pick(r.value for r in J.readings) for pick in (min, max))
    if J.told == "no":
        return (
            f"Axis {number} does not tell its motor's inertia: readings from {low:.2g} to {high:.2g} kg·m²."
        )
    known = "tells" if J.told == "yes" else "tells only roughly"
    return f"Axis {number} {known} its motor's inertia: {low:.2g} to {high:.2g} kg·m²."


def as_json(axis: Judged) -> dict[str, Any]:
    """Per number its value, std, unit, published value and readings; None where it is not told."""
    return {
        "parameters": {
            name: {
                "value": None if f.told == "no" else f.value,
                "std": None if f.told == "no" else f.std,
                "unit": UNITS[name],
                "published": f.published,
                "told": f.told,
                "readings": [r._asdict() for r in f.readings],
            }
            for name, f in axis.found.items()
        },
        "foretold": {name: {"error": e, "signal": s} for name, (e, s) in axis.foretold.items()},
        "controller": {"gain": axis.controller[0], "explained": axis.controller[1]},
    }


def draw(axes: Mapping[tuple[str, int], Axis], judged: Sequence[Judged], other: str, path: Path) -> None:
    """For each axis: the twist of the log that judges, measured and foretold; all readings of k and of J."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2 * len(judged), 8.4), layout="constrained")
    panels = figure.subplots(3, len(judged))
    for column, axis in zip(panels.T, judged, strict=True):
        at = axes[other, axis.number]
        lag = axis.found["lag"].value
        offset = float(np.mean(at.twist - lag * at.rate))
        shown = 1e6 * (at.twist - offset - lag * at.rate)
        foretold = np.where(at.moving, 1e6 * (axis.twist(at) - offset - lag * at.rate), np.nan)
        column[0].plot(at.time, shown, label=f"measured, log {other}")
        column[0].plot(at.time, foretold, label="foretold from motion and torque")
        column[0].set(title=f"axis {axis.number}", xlabel="s")
        for panel, name in ((column[1], "stiffness"), (column[2], "motor_inertia")):
            found = axis.found[name]
            for i, reading in enumerate(found.readings):
                panel.errorbar(
                    reading.value, -i, xerr=2.0 * reading.std, fmt="o", color=f"C{i % 2}", capsize=2
                )
            if found.published is not None:
                panel.axvline(found.published, color="0.4", linestyle="--", label="published")
            panel.set_yticks(-np.arange(len(found.readings)), [r.how for r in found.readings], fontsize=7)
            panel.set_xlabel(f"{WORDS[name]}, {UNITS[name]}")
            largest = max(max(abs(r.value) for r in found.readings), found.published or 0.0)
            panel.set_xlim(min(0.0, *(1.2 * r.value for r in found.readings)), 1.5 * largest)
    panels[0, 0].set_ylabel("twist without lag, µrad")
    panels[0, 0].legend(fontsize=7)
    panels[1, 0].legend(fontsize=7)
    figure.savefig(path, dpi=120)
