"""Figures of the Furuta study: sweeps as in Figs. 4, 6 and 7, simulations as in Fig. 5."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np


def sweep(
    cells: Sequence[Mapping[str, Any]], key: str, unit: str, truth: Mapping[str, float], path: Path
) -> None:
    """Parameters by their true values, and errors, over a method parameter."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullFormatter

    shown = [c for c in cells if "parameters" in c]
    figure = Figure(figsize=(6.4, 6.4), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    x = [c[key] for c in shown]
    for name, true in truth.items():
        values = np.array([c["parameters"][name]["value"] for c in shown])
        above.semilogx(x, values / true if true else values, marker=".", label=name)
    above.axhline(1.0, color="0.6", lw=0.8)
    above.set_ylabel("found / truth")
    above.legend(fontsize="small")
    below.loglog(x, [c["observation_error"] ** 2 for c in shown], marker=".", label="observations (rad²)")
    below.loglog(x, [c["state_error"] ** 2 for c in shown], marker=".", label="state errors (impulses²)")
    below.set_ylabel("mean square")
    below.xaxis.set_minor_formatter(NullFormatter())
    below.set_xlabel(f"{key} ({unit})" if unit else key)
    below.legend(fontsize="small")
    figure.savefig(path, dpi=120)


def simulated(
    name: str,
    t: np.ndarray,
    measured: np.ndarray,
    motions: Mapping[str, np.ndarray],
    volts: tuple[np.ndarray, np.ndarray],
    path: Path,
) -> None:
    """Measured and simulated angles of a log over its voltage, as in Fig. 5."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 7.0), layout="constrained")
    axes = figure.subplots(3, 1, sharex=True, height_ratios=[3, 3, 1])
    styles = ({"color": "C3", "lw": 1.3}, {"color": "C0", "lw": 0.9, "ls": "--"})
    for i, symbol in enumerate(("θ", "α")):
        axes[i].plot(t, measured[:, i], color="0.6", lw=2.6, label="measured")
        for style, (who, motion) in zip(styles, motions.items(), strict=True):
            rms = np.sqrt(np.nanmean((motion[:, i] - measured[:, i]) ** 2))
            axes[i].plot(t, motion[:, i], label=f"simulated, {who}: rms {rms:.2g} rad", **style)
        wide = np.ptp(measured[:, i])
        axes[i].set_ylim(measured[:, i].min() - 0.5 * wide, measured[:, i].max() + 0.6 * wide)
        axes[i].set_ylabel(f"{symbol} (rad)")
        axes[i].legend(fontsize="small", loc="upper left", ncols=3)
        axes[i].grid(alpha=0.3)
    axes[2].plot(*volts, color="0.3", lw=0.8)
    axes[2].set_ylabel("V")
    axes[2].set_xlabel("time (s)")
    axes[2].grid(alpha=0.3)
    figure.suptitle(f"{name}: not fitted; simulated from its first angles and its voltage", fontsize="medium")
    figure.savefig(path, dpi=120)


def tuned(
    name: str,
    t: np.ndarray,
    measured: np.ndarray,
    motions: Mapping[float, tuple[np.ndarray, np.ndarray]],
    volts: Any,
    traces: Mapping[float, tuple[Mapping[str, Sequence[float]], Sequence[float]]],
    path: Path,
) -> None:
    """Simulations with parameters tuned at several κ; how these and costs went, by iteration."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(11.0, 7.0), layout="constrained")
    axes = figure.subplots(3, 2, width_ratios=[2, 1])
    colors = {w: f"C{i}" for i, w in enumerate(motions)}
    for i in range(2):
        axes[i, 0].plot(t, measured[:, i], color="0.7", lw=2.6, label="measured")
        for w, (at, q) in motions.items():
            axes[i, 0].plot(at, q[:, i], color=colors[w], lw=0.9, label=f"simulated, κ = {w:g}")
        wide = np.ptp(measured[:, i])
        axes[i, 0].set_ylim(measured[:, i].min() - 0.3 * wide, measured[:, i].max() + 0.3 * wide)
        axes[i, 0].set_ylabel(f"θ{i + 1} (rad)")
        axes[i, 0].tick_params(labelbottom=False)
    shown = axes[0, 0].get_legend_handles_labels()
    figure.legend(*shown, loc="outside lower center", fontsize="small", ncols=len(shown[0]))
    axes[2, 0].plot(volts.time, volts.values, color="0.3", lw=0.8)
    axes[2, 0].set_ylabel("u (V)")
    axes[2, 0].set_xlabel("time (s)")
    for w, (courses, costs) in traces.items():
        for i, (parameter, values) in enumerate(courses.items()):
            axes[i, 1].plot(values, color=colors[w], marker=".")
            axes[i, 1].set_ylabel(f"{parameter} (kg·m²)")
        axes[2, 1].semilogy(np.array(costs) / costs[0], color=colors[w], marker=".")
    axes[2, 1].set_ylabel("cost / first cost")
    axes[2, 1].set_xlabel("iteration")
    for axis in axes.flat:
        axis.grid(alpha=0.3)
    for axis in axes[:, 1]:
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.suptitle(f"{name}: simulated from the fitted start and the input alone", fontsize="medium")
    figure.savefig(path, dpi=120)
