"""`repetitions`: how often the truth lies within three standard deviations of what is found.

Masses, inertias, lengths and damping, not only springs, on three mechanisms: the loop of six links, a four-bar
and Baxter's arm alone. Each log is made once, then fitted again and again with fresh noise, from starts away from
the truth.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from mechid.data.log import Channel, Log
from mechid.dynamics.assembly import assemble
from mechid.dynamics.sensors import frame_position, joint_position
from mechid.dynamics.simulate import simulate
from mechid.dynamics.variational import Variational
from mechid.errors import MechidError
from mechid.estimate.experiment import Experiment, Measured, Start
from mechid.estimate.fit_batch import fit_batch
from mechid.model.mechanism import Mechanism
from mechid.model.parameters import Parameters
from mechid.studies import mechanisms
from mechid.studies.study import Settings, Study

SETTINGS: Settings = {"repetitions": 100, "noise": 1e-3, "seed": 0, "only": "all"}
ABOUT = {
    "repetitions": "fits of each mechanism",
    "noise": "std of the measured angles (rad) or positions (m)",
    "seed": "of the noise",
    "only": "all, loop6, four-bar or baxter-arm",
}
QUICK: Settings = {"repetitions": 8, "only": "four-bar"}


class Case(NamedTuple):
    mechanism: Mechanism
    q: Any
    inputs: np.ndarray
    sensor: Any
    channels: tuple[str, ...]
    free: Parameters
    dt: float


def _loop6() -> Case:
    m, dt, steps = mechanisms.loop6(damping=0.2), 0.005, 300
    force = mechanisms.loop6_force((np.arange(steps) + 0.5) * dt)

    def rod(length: Any) -> Any:
        return 0.2 * length**2 / 12

    length: dict[str, Any] = {f"joint{i}.origin.y": 1.0 for i in range(2, 8)}
    length |= {"link*.com.y": 0.5, "link*.inertia.xx": rod, "link*.inertia.zz": rod, "tip.origin.y": 1.0}
    free = (
        Parameters(m)
        .free("theta*.stiffness", name="kappa_theta", start=15.0, bounds=(0, None))
        .free("psi*.stiffness", name="kappa_psi", start=24.0, bounds=(0, None))
        .free("*.damping", name="damping", start=0.3, bounds=(0, None))
        .tie("length", length, start=1.02, unit="m")
    )
    return Case(m, None, force, frame_position(m, "tip"), tuple("xyz"), free, dt)


def _four_bar() -> Case:
    m, dt, steps = mechanisms.four_bar(damping=0.05), 0.005, 400
    q = assemble(m, mechanisms.FOUR_BAR_GUESS, hold=["a"])
    torque = 0.5 * np.sin(2 * np.pi * np.arange(steps)[:, None] * dt * 0.7)
    free = (
        Parameters(m)
        .free("coupler.mass", start=1.2, bounds=(0, None))
        .free("rocker.inertia.yy", start=0.02, bounds=(0, None))
        .free("c.damping", start=0.1, bounds=(0, None))
        .free("b.origin.x", name="crank length", start=0.21)
    )
    return Case(m, q, torque, joint_position(m, "a", "c"), ("a", "c"), free, dt)


def _baxter_arm() -> Case:
    facts = mechanisms.baxter_facts()
    m = mechanisms.baxter_arm()
    names = m.coordinate_names
    m = mechanisms.damped(m, dict(zip(names, facts["arm_damping"], strict=True)))
    dt, steps = 0.01, 300
    t = (np.arange(steps) + 0.5)[:, None] * dt
    shake = np.array([4.0, 6.0, 3.0, 3.0, 1.0, 1.0, 0.4]) * np.sin(2 * np.pi * t * np.linspace(0.4, 1.6, 7))
    torque = np.array(facts["u_gravity_const"]) + shake
    free = (
        Parameters(m)
        .free("right_lower_elbow.mass", start=1.5, bounds=(0, None))
        .free("right_lower_forearm.com.z", start=0.1)
        .free("right_upper_elbow.inertia.yy", start=0.03, bounds=(0, None))
        .free("s1.damping", start=12.0, bounds=(0, None))
        .free("w1.damping", start=0.7, bounds=(0, None))
    )
    return Case(m, facts["q0_arm"], torque, joint_position(m, *names), tuple(names), free, dt)


CASES: dict[str, Callable[[], Case]] = {"loop6": _loop6, "four-bar": _four_bar, "baxter-arm": _baxter_arm}


def run(settings: Settings, study: Study) -> None:
    only, count = str(settings["only"]), int(settings["repetitions"])
    if only not in (*CASES, "all"):
        raise MechidError(f"There is no mechanism '{only}' here; valid: all, {', '.join(CASES)}.")
    if count < 1:
        raise MechidError(f"The number of repetitions must be ≥ 1, not {count}.")
    study.result["mechanisms"] = {}
    for name in CASES if only == "all" else [only]:
        pulls, truth, spread, inside = repeat(CASES[name](), name, settings)
        rows = [
            [k, f"{truth[k]:.4g}", f"{spread[i]:.2g}", f"{pulls[:, i].mean():+.2f}", f"{pulls[:, i].std():.2f}",
             f"{np.sum(np.abs(pulls[:, i]) < 1.96)} of {count}", f"{np.sum(np.abs(pulls[:, i]) < 3)} of {count}"]
            for i, k in enumerate(truth)
        ]  # fmt: skip
        study.table(
            f"{name}: {count} repetitions, (found − truth)/std",
            ["parameter", "truth", "std", "mean", "spread", "within 1.96", "within 3"],
            rows,
        )
        study.say(f"All parameters within three standard deviations in {inside} of {count} repetitions.")
        study.result["mechanisms"][name] = {
            "within_three": inside,
            "repetitions": count,
            "parameters": {
                k: {
                    "truth": truth[k],
                    "mean": float(pulls[:, i].mean()),
                    "spread": float(pulls[:, i].std()),
                    "within_three": int(np.sum(np.abs(pulls[:, i]) < 3)),
                }
                for i, k in enumerate(truth)
            },
        }


def repeat(case: Case, name: str, settings: Settings) -> tuple[np.ndarray, dict[str, float], np.ndarray, int]:
    """(found − truth)/std of every repetition, the truth, the stds of the last, and how often all were within 3."""
    m, noise = case.mechanism, float(settings["noise"])
    stepper = Variational(case.dt)
    motion = simulate(m, stepper, len(case.inputs), q=case.q, inputs=case.inputs)
    seen = motion.frame("tip")[:, :3, 3] if name == "loop6" else _angles(motion, case)
    truth = true_values(case)
    rng = np.random.default_rng(int(settings["seed"]))
    inputs = {f"u{i}": Channel(motion.t[:-1], case.inputs[:, i], "") for i in range(case.inputs.shape[1])}
    sources = {n: f"u{i}" for i, n in enumerate(m.input_names)}

    def experiment() -> Experiment:
        noisy = seen + noise * rng.normal(size=seen.shape)
        channels = {k: Channel(motion.t, noisy[:, i], "") for i, k in enumerate(case.channels)}
        return Experiment(
            Log(name, channels | inputs, ()),
            [Measured(case.sensor, case.channels, std=noise)],
            inputs=sources,
            start=Start(q=motion.q[0]),
        )

    batch = fit_batch(m, stepper, [experiment() for _ in range(int(settings["repetitions"]))], case.free)
    pulls = (batch.values - np.array(list(truth.values()))) / batch.stds
    return pulls, truth, batch.stds[-1], int(np.sum(np.all(np.abs(pulls) < 3, axis=1)))


def true_values(case: Case) -> dict[str, float]:
    """What the mechanism itself says of its free parameters."""
    own = Parameters(case.mechanism)
    found = {}
    for p in case.free.entries:
        move = p.moves[0]
        found[p.name] = own.free(move.address.name).entries[0].start / (
            1.0 if callable(move.map) else move.map
        )
    return found


def _angles(motion: Any, case: Case) -> np.ndarray:
    return motion.q[:, [case.mechanism.coordinate_names.index(n) for n in case.channels]]
