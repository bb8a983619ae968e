"""A trajectory as a figure: coordinates, rates, inputs, energy and loop openings over time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from mechid.dynamics.trajectory import Trajectory
from mechid.files import replacing

POINTS = 4000
"""drawn along a curve at most"""
NAMED = 36
"""curves that still have their names in the legend"""


def plot(run: Trajectory, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    panels = _panels(run)
    heights = [
        1.0 if label.startswith("rate") else 1.0 + 0.04 * max(0, len(names) - 8)
        for label, names, _, _ in panels
    ]
    figure, axes = plt.subplots(
        len(panels),
        1,
        sharex=True,
        squeeze=False,
        figsize=(9, 1.0 + 2.0 * sum(heights)),
        height_ratios=heights,
        layout="constrained",
    )
    for axis, (label, names, curves, over) in zip(axes[:, 0], panels, strict=True):
        _draw(axis, run.t, label, names, curves, over)
    axes[-1, 0].set_xlabel("time (s)")
    axes[0, 0].set_title(f"{run.mechanism.name}, {run.steps} steps to {run.t[-1]:.4g} s", loc="left")
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=130)
    plt.close(figure)


def _panels(run: Trajectory) -> list[tuple[str, list[str], np.ndarray, str]]:
    """Axis label, names of the curves, curves (rows are states or steps), and how they are drawn."""
    m = run.mechanism
    panels: list[tuple[str, list[str], np.ndarray, str]] = []
    for turns, angle, rate in ((True, "angle (rad)", "rate (rad/s)"), (False, "length (m)", "rate (m/s)")):
        own = [i for i, c in enumerate(m.coordinates) if c.revolute == turns]
        if own:
            names = [m.coordinate_names[i] for i in own]
            panels += [(angle, names, run.q[:, own], ""), (rate, names, run.v[:, own], "")]
    moving = np.flatnonzero(np.abs(run.inputs).max(axis=0, initial=0.0) > 0.0)
    if len(moving):
        held = np.concatenate([run.inputs, run.inputs[-1:]])[:, moving]
        panels.append(("input (N·m, N)", [m.input_names[i] for i in moving], held, "steps-post"))
    kinetic, potential = run.energy
    parts = np.stack([kinetic, potential - potential[0], kinetic + potential - potential[0]], 1)
    panels.append(("energy (J)", ["kinetic", "potential − its start", "total"], parts, ""))
    if m.constraint_names:
        opening = np.maximum(run.violation, 1e-17)[:, None]
        panels.append(("loops open by (m, rad)", ["largest"], opening, "log"))
    return panels


def _draw(axis: Any, t: np.ndarray, label: str, names: list[str], curves: np.ndarray, how: str) -> None:
    every = max(1, len(t) // POINTS)
    colours = [f"C{i}" for i in range(10)]
    dashes = ["-", "--", ":", "-."]
    for i, name in enumerate(names):
        style = {"color": colours[i % 10], "ls": dashes[(i // 10) % 4], "lw": 1.1}
        shown = name if i < NAMED else None
        step = how if how.startswith("steps") else "default"
        axis.plot(t[::every], curves[::every, i], label=shown, drawstyle=step, **style)
    if how == "log":
        axis.set_yscale("log")
    axis.set_ylabel(label)
    axis.grid(alpha=0.3)
    axis.margins(x=0.01)
    if not label.startswith("rate"):  # coloured as the coordinates above them
        columns = 1 if len(names) <= 18 else 2
        axis.legend(
            loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize="x-small", ncols=columns, frameon=False
        )
