"""`loop6`: the stiffnesses of a loop of six links from where its manipulator stands (Caldwell's draft, IV.F).

The loop is pushed by a force at the end of its third link, whose position is measured. The draft gives neither
step, horizon nor link length, and speaks of the force in the link's axes; 0.005 s, 136 steps, 1 m and world axes
are inferred from the end point that it prints. Its cost is J = Σ ½‖w − w_meas‖², the last step counted twice.

variant=damped: every joint damped, 20 s. variant=undamped: 20 s without damping, where small changes grow so much
that single shooting is hopeless: multiple shooting.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mechid.data.log import Channel, Log
from mechid.dynamics.sensors import frame_position
from mechid.dynamics.simulate import simulate
from mechid.dynamics.variational import Variational
from mechid.errors import MechidError
from mechid.estimate.experiment import Experiment, Measured
from mechid.estimate.fit import Fit
from mechid.estimate.simulation_error import simulation_error
from mechid.model.mechanism import Mechanism
from mechid.model.parameters import Parameters
from mechid.report.fit_plot import plot_convergence
from mechid.studies import mechanisms
from mechid.studies.identification import SOLVERS, by_prefix, chosen, cost_table, solver_of, tell, watched
from mechid.studies.study import Settings, Study

SETTINGS: Settings = {
    "truth.kappa_theta": 20.0,
    "truth.kappa_psi": 20.0,
    "start.kappa_theta": 10.0,
    "start.kappa_psi": 25.0,
    "variant": "short",
    "solver": "both",
    "dt": 0.0,
    "steps": 0,
    "damping": 0.5,
    "segments": 0,
    "noise": -1.0,
    "seed": 0,
}
ABOUT = {
    "truth.kappa_theta": "stiffness that the data are made with, N·m/rad",
    "truth.kappa_psi": "the same for ψ",
    "start.kappa_theta": "where the search begins, N·m/rad",
    "start.kappa_psi": "the same for ψ",
    "variant": "short (the draft's, 0.68 s), damped (20 s), undamped (20 s, multiple shooting)",
    "solver": "levenberg-marquardt, steepest-descent, lbfgsb, both (the first two)",
    "dt": "step, s; 0: 0.005 for short, 0.01 for damped, 0.002 for undamped (which breaks down at larger ones)",
    "steps": "number of steps; 0: 136 for short, 20 s otherwise",
    "damping": "of every joint in the damped variant, N·m·s/rad",
    "segments": "parts of multiple shooting; 0: 1, for undamped two a second",
    "noise": "std of the measured positions, m; −1: none for short, 0.001 otherwise",
    "seed": "of the noise",
}
QUICK: Settings = {"solver": "levenberg-marquardt"}
STEPS = {"short": 0.005, "damped": 0.01, "undamped": 0.002}
"""s"""

PAPER: dict[str, Any] = {
    "parameters": {"kappa_theta": 19.9997, "kappa_psi": 20.0120},
    "iterations": 86,
    "gradient_norm": 1e-3,
    "start": [10.0, 25.0],
}


def run(settings: Settings, study: Study) -> None:
    variant = chosen(settings, "variant", STEPS)
    names = (
        ["steepest-descent", "levenberg-marquardt"] if settings["solver"] == "both" else [settings["solver"]]
    )
    chosen(settings, "solver", [*SOLVERS, "both"])
    if variant == "undamped":
        names = ["levenberg-marquardt"]
    truth = by_prefix(settings, "truth")
    mechanism, experiment, free = problem(settings, variant)
    time = experiment.log["x"].time
    steps, dt = time.size - 1, float(time[1] - time[0])
    study.say(f"Six links, {steps} steps of {dt:g} s.")
    if variant == "short":
        study.say(
            "Step, horizon, link length and the force's axes are inferred: the draft does not give them."
        )
    segments = int(settings["segments"]) or (max(1, round(2 * steps * dt)) if variant == "undamped" else 1)
    fits: dict[str, Fit] = {}
    for name in names:
        study.say(f"{name}:")
        fits[name] = simulation_error(
            mechanism,
            Variational(dt),
            experiment,
            free,
            solver_of({"solver": name}),
            segments=segments,
            progress=watched(study, 10 if name == "steepest-descent" else 1),
        )
        study.say(f"  {fits[name].outcome}")
    paper = PAPER if variant == "short" else {}
    told = {"steepest-descent": "86 iterations"} if paper else {}
    for name, fit in fits.items():
        tell(
            study, fit, truth, paper if name == "steepest-descent" else {}, title=f"Stiffness found by {name}"
        )
        plot_convergence(fit, study.figure_path(f"convergence-{name}.png"))
    cost_table(study, [(name, fit, told.get(name, "–")) for name, fit in fits.items()])
    study.result["paper"] = paper
    study.result["fits"] = {
        name: {
            "parameters": fit.values,
            "iterations": fit.iterations,
            "cost": {"start": fit.cost[0], "end": fit.cost[1]},
            "gradient_norm": fit.trace[-1].gradient_norm,
            "seconds": fit.seconds,
        }
        for name, fit in fits.items()
    }
    study.say(f"Convergence (Fig. 4 of the draft) is drawn in {study.out}.")


def problem(settings: Settings, variant: str) -> tuple[Mechanism, Experiment, Parameters]:
    """The measured motion, and what is to be found in it."""
    dt = float(settings["dt"])
    if not dt >= 0.0:
        raise MechidError(f"The step size dt must be positive and finite, not {dt:g}.")
    dt = dt or STEPS[variant]
    steps = int(settings["steps"]) or (136 if variant == "short" else round(20.0 / dt))
    if steps < 2:
        raise MechidError(f"The number of steps must be ≥ 2, not {steps}.")
    damping = float(settings["damping"]) if variant == "damped" else 0.0
    noise = float(settings["noise"])
    noise = (0.0 if variant == "short" else 1e-3) if noise < 0.0 else noise
    force = mechanisms.loop6_force((np.arange(steps) + 0.5) * dt)
    truth = by_prefix(settings, "truth")
    true = mechanisms.loop6(kappa_theta=truth["kappa_theta"], kappa_psi=truth["kappa_psi"], damping=damping)
    motion = simulate(true, Variational(dt), steps, inputs=force)
    tip = motion.frame("tip")[:, :3, 3]
    tip = tip + noise * np.random.default_rng(int(settings["seed"])).normal(size=tip.shape)
    # the papers' sum begins at the first step's end
    channels = {k: Channel(motion.t, np.r_[np.nan, tip[1:, i]], "m") for i, k in enumerate("xyz")}
    channels |= {f"force.{k}": Channel(motion.t[:-1], force[:, i], "N") for i, k in enumerate("xyz")}
    start = by_prefix(settings, "start")
    mechanism = mechanisms.loop6(
        kappa_theta=start["kappa_theta"], kappa_psi=start["kappa_psi"], damping=damping
    )
    free = (
        Parameters(mechanism)
        .free("theta*.stiffness", name="kappa_theta", bounds=(0.0, None))
        .free("psi*.stiffness", name="kappa_psi", bounds=(0.0, None))
    )
    std = 1.0 if variant == "short" else noise or 1e-6
    experiment = Experiment(
        Log("loop6", channels, ()),
        [Measured(frame_position(mechanism, "tip"), tuple("xyz"), std=std)],
        inputs={f"push.{k}": f"force.{k}" for k in "xyz"},
        terminal_weight=1.0 if variant == "short" else 0.0,
    )
    return mechanism, experiment, free
