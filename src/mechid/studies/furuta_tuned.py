"""Scenarios of a Furuta pendulum simulated with parameters that several state error weights lead to (Fig. 5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mechid.dynamics.simulate import simulate
from mechid.estimate import samples
from mechid.estimate.experiment import Experiment
from mechid.estimate.fit import Fit
from mechid.model.mechanism import Mechanism
from mechid.model.parameters import Parameters
from mechid.studies import furuta_plot
from mechid.studies.furuta_model import fitted, stepper_of, weight_of
from mechid.studies.furuta_sweep import swept
from mechid.studies.study import Settings, Study

WEIGHTS = (1.0, 10.0, 100.0, 1000.0)
COURSES = ("J_Azz", "J_Byy")
"""parameters whose course over the iterations is drawn"""


def simulated(
    settings: Settings,
    study: Study,
    free: Mapping[str, tuple[Mechanism, Parameters]],
    logs: Mapping[str, Experiment],
    fits: Mapping[str, Fit],
) -> dict[str, Any]:
    """Each scenario from its fitted start and its input alone, for each weight: a figure, and rms errors (rad)."""
    told: dict[str, Any] = {}
    own = weight_of(settings)
    for name, log in logs.items():

        def fit(weight: float, name: str = name, log: Experiment = log) -> Fit:
            if weight == own:
                return fits[name]
            return fitted(settings, free[name][0], log, free[name][1], weight=weight)

        found = {w: f for w, f in swept(fit, sorted({*WEIGHTS, own})).items() if isinstance(f, Fit)}
        motions = {w: _motion(settings, f, log) for w, f in found.items()}
        channels = [log.log[c] for c in log.measured[0].channels]
        t, measured = channels[0].time, np.stack([c.values for c in channels], -1)
        told[name] = {f"{w:g}": _rms(t, measured, *m) for w, m in motions.items()}
        traces = {
            w: ({n: _course(f, n) for n in COURSES}, [x.cost for x in f.trace]) for w, f in found.items()
        }
        path = study.figure_path(f"simulated-{name}.png")
        furuta_plot.tuned(name, t, measured, motions, log.log["u"], traces, path)
    weights = list(next(iter(told.values())))
    study.table(
        "Simulations from the fitted starts and inputs alone (Fig. 5): rms errors of θ1 and θ2, mrad",
        ["scenario", *(f"κ = {w}" for w in weights)],
        [
            [name, *(", ".join(f"{1e3 * x:.3g}" for x in row[w]) if w in row else "–" for w in weights)]
            for name, row in told.items()
        ],
    )
    return told


def _motion(settings: Settings, fit: Fit, log: Experiment) -> tuple[np.ndarray, np.ndarray]:
    """Times and angles, simulated from the first state that was found."""
    stepper = stepper_of(settings)
    grid = samples.grid(log, stepper)
    starts = np.array([p.value for p in fit.starts.values()])
    q, v = starts.reshape(2, -1)
    inputs = samples.inputs(log, fit.mechanism, grid)
    run = simulate(fit.mechanism, stepper, grid.steps, q=q, v=v, inputs=inputs, throw=False)
    return grid.t[: len(run.q)], np.asarray(run.q)


def _rms(t: np.ndarray, measured: np.ndarray, at: np.ndarray, q: np.ndarray) -> list[float]:
    seen = np.stack([np.interp(t, at, q[:, i], right=np.nan) for i in range(q.shape[1])], -1)
    return np.sqrt(np.nanmean((seen - measured) ** 2, axis=0)).tolist()


def _course(fit: Fit, name: str) -> list[float]:
    """A parameter over the iterations."""
    i = list(fit.parameters).index(name)
    return [x.values[i] for x in fit.trace]
