"""`touch`: what one contact point cannot tell of a loop, and what a second arm or an external sensor adds.

The loop of `baxter-loop`, with more free than the paper's two stiffnesses: those of every joint apart, the mass of
the links, the damping of the joints. Three ways to look at it:

    one hand          angles and torques of the arm that holds it, as in the paper
    + a camera        the position of a point on the loop's left side as well
    + a second arm    a small gantry that holds that point, its slides measured and driven (one more branch)

The table shows what each adds to the standard deviations (the paper's outlook, Section V). Here the log is made
by the fitted model itself, so that nothing but the noise limits what can be told.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from mechid.data.log import Channel, Log
from mechid.dynamics.sensors import frame_position, joint_position
from mechid.dynamics.simulate import simulate
from mechid.dynamics.variational import Variational
from mechid.estimate.experiment import LQR, Experiment, Measured, Start, Tracked
from mechid.estimate.fit import Fit
from mechid.estimate.simulation_error import simulation_error
from mechid.model.mechanism import Mechanism
from mechid.model.parameters import Parameters
from mechid.studies import baxter_loop, mechanisms
from mechid.studies.identification import chosen
from mechid.studies.study import Settings, Study

SETTINGS: Settings = {
    "truth.kappa_theta": 4.5,
    "truth.kappa_psi": 1.0,
    "steps": 1000,
    "angle_noise": 0.004,
    "camera_noise": 0.002,
    "slide_noise": 0.001,
    "loop_damping": 0.01,
    "state_weight": 1.0,
    "input_weight": 1e-3,
    "seed": 0,
    "only": "all",
}
ABOUT = {
    "truth.kappa_theta": "in-plane stiffness of the loop's joints, N·m/rad",
    "truth.kappa_psi": "out-of-plane stiffness, N·m/rad",
    "steps": "of 0.01 s",
    "angle_noise": "std of the arm's angles, rad",
    "camera_noise": "std of the camera's positions, m",
    "slide_noise": "std of the second arm's slides, m",
    "loop_damping": "of the loop's joints, N·m·s/rad",
    "state_weight": "Q of the regulator",
    "input_weight": "R of the regulator",
    "seed": "of the noise",
    "only": "all, hand, camera or second-arm",
}
QUICK: Settings = {"steps": 200, "only": "hand"}
WAYS = {"hand": "one hand", "camera": "+ a camera", "second-arm": "+ a second arm"}
DT = baxter_loop.DT
SIDE = "side"


class Setup(NamedTuple):
    mechanism: Mechanism
    start: np.ndarray
    driven: tuple[str, ...]
    """coordinates with a motor, whose position is measured"""
    noise: np.ndarray
    """of each of them"""


def run(settings: Settings, study: Study) -> None:
    only = chosen(settings, "only", [*WAYS, "all"])
    fits: dict[str, Fit] = {}
    for way in WAYS if only == "all" else [only]:
        study.say(f"{WAYS[way]} …")
        fits[way] = look(way, settings)
        study.say(f"  {fits[way].outcome}")
    truth = true_values(settings)
    rows = [
        [name, f"{truth[name]:.4g}", *(_cell(f, name, truth[name]) for f in fits.values())] for name in truth
    ]
    study.table(
        "Standard deviation of each parameter, relative (* not identifiable)",
        ["parameter", "truth", *(WAYS[w] for w in fits)],
        rows,
    )
    study.result["ways"] = {}
    for way, fit in fits.items():
        study.say(f"{WAYS[way]}:")
        sentences = fit.identifiability.sentences
        for sentence in sentences or ("every direction is told by these data.",):
            study.say(f"  {sentence}")
        study.result["ways"][way] = {
            "parameters": {
                k: {"value": p.value, "std": p.std if np.isfinite(p.std) else None, "truth": truth[k]}
                for k, p in fit.parameters.items()
            },
            "flags": {k: list(v) for k, v in fit.flags.items()},
            "directions": list(sentences),
            "seconds": fit.seconds,
        }


def _cell(fit: Fit, name: str, truth: float) -> str:
    mark = "*" if "not identifiable" in fit.flags[name] else ""
    return f"{100 * fit.parameters[name].std / abs(truth):.2g} %{mark}"


def look(way: str, settings: Settings) -> Fit:
    """A fit of all parameters, for one way to look at the loop."""
    at = setup(settings, second=way == "second-arm")
    m, steps = at.mechanism, int(settings["steps"])
    motion = simulate(m, Variational(DT), steps, q=at.start, inputs=_moved(at))
    rng = np.random.default_rng(int(settings["seed"]))
    index = [m.coordinate_names.index(n) for n in at.driven]
    seen = motion.q[:, index] + at.noise * rng.normal(size=(steps + 1, len(index)))
    channels = {n: Channel(motion.t, seen[:, i], "") for i, n in enumerate(at.driven)}
    channels |= {f"T.{n}": Channel(motion.t[:-1], motion.inputs[:, i], "") for i, n in enumerate(at.driven)}
    measured = [Measured(joint_position(m, *at.driven), at.driven, std=tuple(at.noise))]
    if way == "camera":
        path = motion.frame(SIDE)[:, :3, 3]
        path = path + float(settings["camera_noise"]) * rng.normal(size=path.shape)
        channels |= {k: Channel(motion.t, path[:, i], "m") for i, k in enumerate("xyz")}
        measured.append(Measured(frame_position(m, SIDE), tuple("xyz"), std=float(settings["camera_noise"])))
    weights = LQR(float(settings["state_weight"]), float(settings["input_weight"]))
    experiment = Experiment(
        Log(way, channels, ()),
        measured,
        inputs={name: f"T.{n}" for name, n in zip(m.input_names, at.driven, strict=True)},
        start=Start(q=at.start),
        feedback=Tracked({n: n for n in at.driven}, weights),
        span=(0.0, float(motion.t[-1])),
    )
    return simulation_error(m, Variational(DT), experiment, free(m, settings))


def setup(settings: Settings, *, second: bool) -> Setup:
    """The arm with the loop and a mark on its left side; with a second arm that holds the mark."""
    k_theta, k_psi = (float(settings[f"truth.{k}"]) for k in ("kappa_theta", "kappa_psi"))
    length, _ = mechanisms.loop_link(12)
    m = mechanisms.baxter_loop_forced(k_theta, k_psi, 12, float(settings["loop_damping"]))
    m = m.frame(SIDE, "link_l3", origin=(0, length / 2, 0))
    start, driven = baxter_loop.start_of(m), m.coordinate_names[:7]
    noise = np.full(7, float(settings["angle_noise"]))
    if not second:
        return Setup(m, start, driven, noise)
    place = baxter_loop.frame_at(m, SIDE, start)[:3, 3]
    parent, origin = "world", place
    slides = tuple(f"slide_{k}" for k in "xyz")
    for axis, name in zip("xyz", slides, strict=True):
        m = (
            m.body(f"second_{axis}", mass=0.5)
            .prismatic(name, parent, f"second_{axis}", axis=axis, origin=origin)
            .damper(name, damping=10.0)
            .torque(name)
        )
        parent, origin = f"second_{axis}", (0.0, 0.0, 0.0)
    m = m.loop("second_grasp", SIDE, "second_z", kind="point")
    noise = np.concatenate([noise, np.full(3, float(settings["slide_noise"]))])
    return Setup(m, np.r_[start, np.zeros(3)], (*driven, *slides), noise)


def _moved(at: Setup) -> Any:
    """The recorded motion of the arm; a second one pulls the loop sideways, forth and back."""
    first = baxter_loop.recorded_motion(at.mechanism, DT)
    if len(at.driven) == 7:
        return first
    slides = slice(len(at.start) - 3, None)

    def controller(t: Any, q: Any, v: Any) -> Any:
        pull = jnp.array([0.03, 0.05, 0.02]) * (1 - jnp.cos(2 * np.pi * jnp.array([0.3, 0.2, 0.4]) * t)) / 2
        weight = jnp.array([0.0, 0.0, 0.5 * 9.8])
        return jnp.concatenate([first(t, q, v), weight + 60.0 * (pull - q[slides])])

    return controller


def free(m: Mechanism, settings: Settings) -> Parameters:
    """Everything of the loop: each joint's stiffnesses, the links' mass, the joints' damping."""
    truth = true_values(settings)
    parameters = Parameters(m)
    for name in list(truth)[:-2]:
        parameters = parameters.free(
            f"{name}.stiffness", name=name, start=1.1 * truth[name], bounds=(1e-3, None)
        )
    masses = {f"link_{s}{i}.mass": 0.5 if i == 6 else 1.0 for s in "lr" for i in range(1, 7)}
    dampers = {f"{letter}_*.damping": 1.0 for letter in ("th", "ps")}
    return parameters.tie(
        "link_mass", masses, start=1.1 * truth["link_mass"], unit="kg", bounds=(1e-5, None)
    ).tie("damping", dampers, start=1.1 * truth["damping"], unit="N·m·s/rad", bounds=(1e-4, None))


def true_values(settings: Settings) -> dict[str, float]:
    kinds = {"th": float(settings["truth.kappa_theta"]), "ps": float(settings["truth.kappa_psi"])}
    values = {f"{letter}_{s}{i}": x for letter, x in kinds.items() for s in "lr" for i in range(1, 7)}
    return values | {"link_mass": mechanisms.loop_link(12)[1], "damping": float(settings["loop_damping"])}
