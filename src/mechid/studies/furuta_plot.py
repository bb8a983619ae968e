"""Figures of the Furuta study: sweeps as in Figs. 4, 6 and 7."""

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
