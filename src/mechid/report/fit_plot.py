"""A fit as figures: measured and predicted channels with their residuals, and how the solver got there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from mechid.errors import MechidError
from mechid.estimate.fit import Compared, Fit
from mechid.files import replacing
from mechid.report.export import FIGURES, check_target

PANELS = 12
"""channels that are drawn at most"""
POINTS = 4000
"""drawn of a channel at most"""
NAMED = 20
"""parameters that still have their names in the legend"""


def plot_fit(fit: Fit, path: Path) -> None:
    """Each channel as measured and as predicted, its residual below with a band of ±2 std of the noise."""
    check_target("The figure", path, FIGURES)
    if not fit.channels:
        raise MechidError("There is nothing to draw: the fit compares no channels.")
    shown = fit.channels[:PANELS]
    across = _columns(len(shown))
    down = -(-len(shown) // across)
    plt = _pyplot()
    figure = plt.figure(figsize=(max(6.0, 4.2 * across), 0.6 + 3.0 * down), layout="constrained")
    grid = figure.add_gridspec(2 * down, across, height_ratios=[3.0, 1.0] * down)
    several = len({c.experiment for c in fit.channels}) > 1
    for i, channel in enumerate(shown):
        row, column = divmod(i, across)
        above = figure.add_subplot(grid[2 * row, column])
        below = figure.add_subplot(grid[2 * row + 1, column], sharex=above)
        _draw_channel(above, below, channel, f"{channel.experiment}: " if several else "")
        above.tick_params(labelbottom=False)
        if i + across >= len(shown):
            below.set_xlabel("time (s)")
        if column == 0:
            below.set_ylabel("residual", fontsize="small")
        if i == 0:
            above.legend(fontsize="x-small", loc="best")
    some = f", {len(shown)} of {len(fit.channels)} channels" if len(shown) < len(fit.channels) else ""
    figure.suptitle(f"{fit.free.mechanism.name}: {fit.estimator}{some} (SI units)", fontsize="medium")
    _write(plt, figure, path)


def plot_convergence(fit: Fit, path: Path) -> None:
    """Cost, gradient and parameters over the iterations."""
    check_target("The figure", path, FIGURES)
    if not fit.trace:
        raise MechidError("There is nothing to draw: the fit has no trace of its iterations.")
    plt = _pyplot()
    figure, axes = plt.subplots(3, 1, sharex=True, figsize=(8, 7.5), layout="constrained")
    number = [i.number for i in fit.trace]
    _draw_log(axes[0], number, [i.cost for i in fit.trace], "cost")
    _draw_log(axes[1], number, [i.gradient_norm for i in fit.trace], "norm of gradient")
    for k, (name, p) in enumerate(fit.parameters.items()):
        size = abs(p.value) or abs(p.start) or 1.0
        values = np.array([i.values[k] for i in fit.trace]) / size
        dashes = ["-", "--", ":", "-."][(k // 10) % 4]
        label = name if k < NAMED else None
        axes[2].plot(number, values, dashes, color=f"C{k % 10}", lw=1.1, marker=".", ms=4, label=label)
    axes[2].set_ylabel("value / value found")
    axes[2].set_xlabel("iteration")
    axes[2].xaxis.get_major_locator().set_params(integer=True)
    axes[2].grid(alpha=0.3)
    if len(fit.parameters) > 6:
        axes[2].legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize="x-small", frameon=False)
    elif fit.parameters:
        axes[2].legend(loc="best", fontsize="x-small")
    axes[0].set_title(
        f"{fit.free.mechanism.name}: {fit.estimator}, {fit.solver}", loc="left", fontsize="medium"
    )
    _write(plt, figure, path)


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def _write(plt: Any, figure: Any, path: Path) -> None:
    try:
        with replacing(path) as temporary:
            figure.savefig(temporary, dpi=130)
    finally:
        plt.close(figure)


def _columns(count: int) -> int:
    return 1 if count == 1 else 2 if count in (2, 4) else 3


def _draw_channel(above: Any, below: Any, c: Compared, prefix: str) -> None:
    seen = np.flatnonzero(np.isfinite(c.residual))
    every = seen[:: max(1, -(-len(seen) // POINTS))]
    t, measured, residual = c.time[every], c.measured[every], c.residual[every]
    above.plot(t, measured, ".", color="0.55", ms=4, label="measured")
    above.plot(*_broken(t, measured + residual), "-", color="C0", lw=1.2, label="predicted")
    above.set_title(f"{prefix}{c.channel}, rms {c.rms:.3g}", loc="left", fontsize="small")
    if np.isfinite(c.std):
        below.axhspan(-2.0 * c.std, 2.0 * c.std, color="C0", alpha=0.12, lw=0)
    below.axhline(0.0, color="0.4", lw=0.6)
    below.plot(t, residual, ".", color="C3", ms=2)
    for axis in (above, below):
        axis.grid(alpha=0.3)
        axis.margins(x=0.01)
        axis.tick_params(labelsize="x-small")


def _broken(t: np.ndarray, curve: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A curve that is interrupted where samples are missing for long."""
    if len(t) < 3:
        return t, curve
    apart = np.diff(t)
    gaps = np.flatnonzero(apart > 5.0 * np.median(apart)) + 1
    return np.insert(t, gaps, np.nan), np.insert(curve, gaps, np.nan)


def _draw_log(axis: Any, number: list[int], values: list[float], label: str) -> None:
    """On a logarithmic axis; what is 0 or infinite is left out."""
    shown = np.array(values, float)
    shown[~(np.isfinite(shown) & (shown > 0.0))] = np.nan
    if np.isfinite(shown).any():
        axis.set_yscale("log")
    axis.plot(number, shown, "-", color="C0", lw=1.1, marker=".", ms=4)
    axis.set_ylabel(label)
    axis.grid(alpha=0.3)
