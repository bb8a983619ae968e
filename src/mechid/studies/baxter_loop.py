"""`baxter-loop`: the stiffness of a flexible loop by touch alone (Caldwell 2014, Section IV).

Baxter's arm holds a clamped loop (radius 0.355 m, 0.132 kg) and stretches, bends and twists it for 20 s; joint
angles and torques are recorded at 100 Hz. The loop is modelled by 12 rigid links with springs; its stiffnesses κ_θ
(in its plane) and κ_ψ (out of it) are found from the hand's path.

The recording is made by a finer loop of 24 links stepped at half the step, with noise on angles (the hand is then
known to about 5 mm) and torques: the fitted model is never the truth. truth.* are the stiffnesses of a joint in a
loop of 12 links; for n links the same elastic ring has

    κ_n = κ_12 · (ℓ_12/ℓ_n) · (p_n/p_12)³        ℓ length of a link, p = n ℓ the loop's

since a joint stands for the bending of one link's length, and a ring of radius R is as stiff as EI/R³ (polygons of
the same height are the longer the fewer links they have). Torques alone would not keep the simulation on the
recorded motion: F = T_meas − K(t)(b − b_meas) with gains from a linear-quadratic regulator, found at the start
and frozen.
"""

from __future__ import annotations

from math import pi
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mechid.compile import jit
from mechid.data.log import Channel, Log
from mechid.dynamics.sensors import frame_position, joint_position
from mechid.dynamics.simulate import simulate
from mechid.dynamics.variational import Variational
from mechid.errors import MechidError
from mechid.estimate.experiment import LQR, Experiment, Measured, Start, Tracked
from mechid.estimate.fit import Fit
from mechid.estimate.simulation_error import simulation_error
from mechid.estimate.solvers.steepest_descent import SteepestDescent
from mechid.model.mechanism import Mechanism
from mechid.model.parameters import Parameters
from mechid.report.fit_plot import plot_convergence
from mechid.studies import mechanisms
from mechid.studies.identification import SOLVERS, by_prefix, chosen, cost_table, tell, watched
from mechid.studies.study import Settings, Study

SETTINGS: Settings = {
    "truth.kappa_theta": 4.5,
    "truth.kappa_psi": 1.0,
    "truth.links": 24,
    "start.kappa_theta": 5.0,
    "start.kappa_psi": 5.0,
    "links": 12,
    "steps": 2000,
    "solver": "levenberg-marquardt",
    "cost": "position",
    "noise": 0.005,
    "torque_noise": 0.05,
    "seed": 0,
    "state_weight": 1.0,
    "input_weight": 1e-3,
    "filter": 3.0,
    "loop_damping": 0.01,
    "max_iterations": 100,
    "compare": True,
}
ABOUT = {
    "truth.kappa_theta": "in-plane stiffness of the recorded loop, as of a joint between 12 links, N·m/rad",
    "truth.kappa_psi": "the same out of the plane",
    "truth.links": "links of the recorded loop",
    "start.kappa_theta": "where the search begins, N·m/rad",
    "start.kappa_psi": "the same for ψ",
    "links": "links of the fitted loop (even)",
    "steps": "of 0.01 s",
    "solver": "levenberg-marquardt, steepest-descent, lbfgsb",
    "cost": "position (of the hand) or angles (of the arm's joints)",
    "noise": "how well the hand's place is known from the noisy angles, m",
    "torque_noise": "std of the measured torques, N·m",
    "seed": "of the noise",
    "state_weight": "Q of the regulator",
    "input_weight": "R of the regulator",
    "filter": "cutoff of a zero-phase filter on the angles that are fed back and on the torques, Hz; 0: none",
    "loop_damping": "of a joint between 12 links, N·m·s/rad",
    "max_iterations": "of the solver",
    "compare": "also fit a loop of 6 links (where links is 12)",
}
QUICK: Settings = {"steps": 300, "compare": False, "truth.links": 16}
COSTS = ("position", "angles")
DT = 0.01

PAPER: dict[str, Any] = {
    "parameters": {"kappa_theta": 4.45252, "kappa_psi": 0.96969},
    "iterations": 75,
    "gradient_norm": 0.001138,
    "cost": {"start": 2.13506, "end": 1.106741},
    "cost_6_links": 1.54588,
    "minutes": 219.05,
    "minutes_6_links": 61.01,
}

MODES = np.array([0.10, 0.10, 0.06, 0.3, 0.3, 0.6])
"""how far the hand moves along x, y, z (m) and turns about them (rad)"""
FREQUENCIES = np.array([0.10, 0.15, 0.20, 0.25, 0.30, 0.35])
"""how often, Hz"""
TILT = pi / 12
"""of the axes of ψ, as in the paper's loop of 12 links, kept for every number of links"""


def run(settings: Settings, study: Study) -> None:
    chosen(settings, "cost", COSTS)
    chosen(settings, "solver", SOLVERS)
    _check_links("links", int(settings["links"]))
    recording = record(settings)
    study.say(
        f"Recorded: {settings['steps']} steps of {DT:g} s with a loop of {settings['truth.links']} links; the hand "
        f"moves by {', '.join(f'{x:.2f}' for x in np.ptp(recording['hand'], 0))} m along x, y, z and is known to "
        f"{1e3 * _error(recording):.1f} mm."
    )
    links = int(settings["links"])
    numbers = [links, 6] if settings["compare"] and links == 12 else [links]
    fits: dict[int, Fit] = {}
    for n in numbers:
        study.say(f"{n} links, {settings['solver']}:")
        fits[n] = identify(settings, recording, n, study)
        study.say(f"  {fits[n].outcome}")
    fit = fits[links]
    truth = {k: x * stiffness_factor(links) for k, x in by_prefix(settings, "truth").items()}
    tell(study, fit, truth, PAPER, title=f"Stiffness of a loop of {links} links ({settings['cost']})")
    paper = {12: "J 2.13506 → 1.106741, 75 iterations, 219 min", 6: "J 1.54588, 61 min"}
    cost_table(study, [(f"{n} links", f, paper.get(n, "–")) for n, f in fits.items()])
    for note in fit.notes:
        study.say(note)
    plot_convergence(fit, study.figure_path("convergence.png"))
    if settings["cost"] == "position":
        _draw_paths(study, recording, fit)
    study.result["links"] = {
        str(n): {
            "cost": {"start": f.cost[0], "end": f.cost[1]},
            "iterations": f.iterations,
            "seconds": f.seconds,
            "parameters": f.values,
            "truth": {k: x * stiffness_factor(n) for k, x in by_prefix(settings, "truth").items()},
        }
        for n, f in fits.items()
    }
    study.result["gradient_norm"] = fit.trace[-1].gradient_norm
    study.say(f"Convergence (Fig. 4) and the hand's paths (Fig. 5) are drawn in {study.out}.")


# The recording


def record(settings: Settings) -> dict[str, np.ndarray]:
    """Joint angles, torques and the hand's path as Baxter would log them, with the truth beside."""
    links, steps = int(settings["truth.links"]), int(settings["steps"])
    _check_links("truth.links", links)
    if steps < 10:
        raise MechidError(f"The number of steps must be ≥ 10, not {steps}.")
    arm = loop(by_prefix(settings, "truth"), links, settings)
    start, fine = start_of(arm), DT / 2
    motion = simulate(arm, Variational(fine), 2 * steps, q=start, inputs=recorded_motion(arm, fine))
    angles, hand = motion.q[::2, :7], motion.frame("top")[::2, :3, 3]
    torque = motion.inputs.reshape(steps, 2, -1).mean(1)
    rng = np.random.default_rng(int(settings["seed"]))
    # equal noise on all angles, such that the hand's place is off by `noise` in the root mean square
    slope = _hand_slope(arm, start)
    sigma = float(settings["noise"]) / np.sqrt(np.sum(slope[:3] ** 2))
    noisy = angles + sigma * rng.normal(size=angles.shape)
    return {
        "t": DT * np.arange(steps + 1),
        "angles": noisy,
        "torque": torque + float(settings["torque_noise"]) * rng.normal(size=torque.shape),
        "hand": _hand_path(arm, noisy),
        "true_hand": hand,
        "sigma": np.array(sigma),
    }


def loop(stiffness: dict[str, float], links: int, settings: Settings) -> Mechanism:
    """The arm with a loop of some links, whose joints are as stiff and damped as given for 12."""
    factor = stiffness_factor(links)
    k_theta, k_psi = (stiffness[k] * factor for k in ("kappa_theta", "kappa_psi"))
    return mechanisms.baxter_loop_forced(
        k_theta, k_psi, links, float(settings["loop_damping"]) * factor, TILT
    )


def stiffness_factor(links: int) -> float:
    """κ_n/κ_12 of one elastic ring."""
    (length, _), (twelfth, _) = mechanisms.loop_link(links), mechanisms.loop_link(12)
    return twelfth / length * (links * length / (12 * twelfth)) ** 3


def start_of(arm: Mechanism) -> np.ndarray:
    """The arm at its start, the loop a regular polygon."""
    return np.r_[mechanisms.baxter_facts()["q0_arm"], np.zeros(len(arm.coordinates) - 7)]


def recorded_motion(arm: Mechanism, dt: float) -> Any:
    """A controller that stretches (z), bends (x, y) and twists the loop, and holds the arm softly."""
    facts = mechanisms.baxter_facts()
    start, weight, gain = (np.array(facts[k]) for k in ("q0_arm", "u_gravity_const", "arm_K"))
    directions = np.linalg.pinv(_hand_slope(arm, start_of(arm))) * MODES

    def controller(t: Any, q: Any, v: Any) -> Any:
        shape = (1 - jnp.cos(2 * np.pi * FREQUENCIES * (t + dt / 2))) / 2
        return weight + gain * (start + directions @ shape - q[:7])

    return controller


def _hand_slope(arm: Mechanism, q: np.ndarray) -> np.ndarray:
    """(6, 7) how the hand moves and turns with the arm's angles."""
    rates = np.eye(len(q))[:7]
    twists = np.asarray(_twists(arm.lower(), q, rates))[:, arm.frame_names.index("top")]
    return np.concatenate([twists[:, 3:], twists[:, :3]], 1).T


def frame_at(arm: Mechanism, name: str, q: np.ndarray) -> np.ndarray:
    """(4, 4) pose of a frame."""
    return np.asarray(_poses(arm.lower(), q[None]))[0, arm.frame_names.index(name)]


def _hand_path(arm: Mechanism, angles: np.ndarray) -> np.ndarray:
    q = np.concatenate([angles, np.zeros((len(angles), len(arm.coordinates) - 7))], 1)
    return np.asarray(_poses(arm.lower(), q))[:, arm.frame_names.index("top"), :3, 3]


def _error(recording: dict[str, np.ndarray]) -> float:
    gap = recording["hand"] - recording["true_hand"]
    return float(np.sqrt(np.mean(np.sum(gap**2, 1))))


# The identification


def identify(
    settings: Settings, recording: dict[str, np.ndarray], links: int, study: Study | None = None
) -> Fit:
    """Fit a loop of some links to a recording."""
    mechanism, experiment, free = problem(settings, recording, links)
    solver = SOLVERS[settings["solver"]]
    limits = {"max_iterations": int(settings["max_iterations"])}
    if solver is SteepestDescent:
        limits["gradient_tolerance"] = PAPER["gradient_norm"]
    progress = None if study is None else watched(study, 10 if solver is SteepestDescent else 1)
    stepper = Variational(DT, absolute_tolerance=1e-9)
    return simulation_error(mechanism, stepper, experiment, free, solver(**limits), progress=progress)


def problem(
    settings: Settings, recording: dict[str, np.ndarray], links: int
) -> tuple[Mechanism, Experiment, Parameters]:
    """The fitted mechanism, its experiment and what is free."""
    _check_links("links", links)
    start = by_prefix(settings, "start")
    mechanism = loop(dict.fromkeys(start, 1.0), links, settings)
    arm = mechanism.coordinate_names[:7]
    t = recording["t"]
    channels = {f"b.{n}": Channel(t, recording["angles"][:, i], "rad") for i, n in enumerate(arm)}
    channels |= {f"T.{n}": Channel(t[:-1], recording["torque"][:, i], "N·m") for i, n in enumerate(arm)}
    channels |= {k: Channel(t, np.r_[np.nan, recording["hand"][1:, i]], "m") for i, k in enumerate("xyz")}
    log = Log("baxter", channels, ())
    tracked = {n: f"b.{n}" for n in arm}
    if settings["filter"]:
        # what steers the simulation is smoothed, what it is compared with is not
        for i, n in enumerate(arm):
            log = log.with_channel(f"smooth.{n}", t, recording["angles"][:, i], "rad")
        tracked = {n: f"smooth.{n}" for n in arm}
        log = log.filtered(*tracked.values(), *(f"T.{n}" for n in arm), cutoff=float(settings["filter"]))
    # J = Σ ‖w − w_meas‖², the last sample twice
    unit = np.sqrt(0.5)
    if settings["cost"] == "position":
        measured = Measured(frame_position(mechanism, "top"), tuple("xyz"), std=unit)
    else:
        measured = Measured(joint_position(mechanism, *arm), tuple(f"b.{n}" for n in arm), std=unit)
    gains = LQR(float(settings["state_weight"]), float(settings["input_weight"]))
    experiment = Experiment(
        log,
        [measured],
        inputs={f"{n}.torque": f"T.{n}" for n in arm},
        start=Start(q=start_of(mechanism)),
        feedback=Tracked(tracked, gains),
        span=(0.0, float(t[-1])),
        terminal_weight=1.0,
    )
    free = (
        Parameters(mechanism)
        .free("th_*.stiffness", name="kappa_theta", start=start["kappa_theta"], bounds=(1e-3, None))
        .free("ps_*.stiffness", name="kappa_psi", start=start["kappa_psi"], bounds=(1e-3, None))
    )
    return mechanism, experiment, free


def _check_links(what: str, links: int) -> None:
    if links < 4 or links % 2:
        raise MechidError(f"Setting {what} must be an even number ≥ 4, not {links}.")


# Figure 5


def _draw_paths(study: Study, recording: dict[str, np.ndarray], fit: Fit) -> None:
    """The measured path of the hand, and the simulated one for each iteration, lighter to darker."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    problem, measured = fit.extra["problem"], recording["hand"][1:]
    shown = fit.trace[:: max(1, len(fit.trace) // 12)]
    figure, axes = plt.subplots(1, 2, figsize=(11, 5), layout="constrained")
    for line in shown:
        run = problem.evaluate(np.array(line.values)).runs[0]
        # residuals of the first sample, at the start, are not among those of the papers' sum
        path = measured + run.residuals[0][1:] * problem.noise[0][0]
        shade = plt.get_cmap("YlOrBr")(0.25 + 0.6 * line.number / max(fit.iterations, 1))
        for axis, (i, j) in zip(axes, ((1, 2), (0, 2)), strict=True):
            axis.plot(path[:, i], path[:, j], color=shade, lw=0.8, label=f"iteration {line.number}")
    for axis, (i, j) in zip(axes, ((1, 2), (0, 2)), strict=True):
        axis.plot(measured[:, i], measured[:, j], "k", lw=0.4, label="measured", zorder=0)
        axis.set_xlabel(f"{'xyz'[i]} (m)")
        axis.set_ylabel(f"{'xyz'[j]} (m)")
        axis.set_aspect("equal", "datalim")
    axes[0].legend(frameon=False, fontsize="small")
    figure.savefig(study.figure_path("paths.png"), dpi=150)
    plt.close(figure)


_twists = jit(lambda model, q, rates: jax.vmap(lambda v: model.frame_twists(q, v))(rates), once=True)
_poses = jit(lambda model, q: jax.vmap(model.frame_poses)(q), once=True)
