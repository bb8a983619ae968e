"""log.csv: what a recorder on a real arm would have written, here from MuJoCo with the numbers of truth.json.

    uv run python examples/arm/make_log.py

MuJoCo moves the arm in steps of 0.1 ms. A controller (1 kHz) makes the joints follow sums of sines and adds a
multisine torque; its torques act 3 ms late. Joints have dry friction that jumps at rest. The recorder takes,
250 times a second, encoders of 14 bits with a little noise and noisy torque sensors between motor and joint.
"""

import json
from pathlib import Path

import mujoco
import numpy as np

HERE = Path(__file__).parent
JOINTS = ("shoulder", "elbow", "wrist")
STEP, CONTROL, RECORD, DURATION = 1e-4, 1e-3, 4e-3, 6.0  # s
DELAY = 3e-3  # s, from the controller's command to the joint
ENCODER, ENCODER_NOISE = 2 * np.pi / 2**14, 1.5e-4  # rad
TORQUE_NOISE = np.array([0.04, 0.03, 0.01])  # N·m
STIFFNESS, DAMPING = np.array([60.0, 35.0, 8.0]), np.array([6.0, 3.0, 0.5])  # of the controller
REACH = np.array([0.7, 0.8, 0.7])  # rad
SHAKE = np.array([2.0, 1.2, 0.3])  # N·m, of the multisine torque


def real_arm() -> mujoco.MjModel:
    """The arm of the URDF file with the true masses, inertias, damping and dry friction."""
    spec = mujoco.MjSpec.from_file(str(HERE / "arm.urdf"))
    truth = json.loads((HERE / "truth.json").read_text())
    for body in spec.bodies:
        if f"{body.name}.mass" in truth:
            body.mass = truth[f"{body.name}.mass"]
            across, along = truth[f"{body.name}_inertia"], 1e-3
            body.inertia, body.iquat = [across, across, along], [1, 0, 0, 0]
            body.fullinertia = np.full(6, np.nan)
    for joint in spec.joints:
        joint.damping[0] = truth[f"{joint.name}.damping"]
        joint.frictionloss = truth[f"{joint.name}.coulomb"]
        # as near to a step at rest as MuJoCo's steps allow
        joint.solref_friction, joint.solimp_friction[:2] = [4 * STEP, 1], 0.99
        joint.limited = False
    model = spec.compile()
    model.opt.timestep = STEP
    model.opt.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    return model


def multisine(t: float, slow: float, fast: float, seed: int) -> np.ndarray:
    """A sum of eight sines for each joint, between two frequencies (Hz), of size 1 and from rest."""
    draw = np.random.default_rng(seed)
    frequency = np.linspace(slow, fast, 8) * draw.uniform(0.9, 1.1, (3, 8))
    phase = draw.uniform(0, 2 * np.pi, (3, 8))
    gate = min(1.0, t / 0.8) ** 2 * (3 - 2 * min(1.0, t / 0.8))
    return gate * np.sin(2 * np.pi * frequency * t + phase).sum(1) / 4


def record() -> np.ndarray:
    """Rows of t, three angles and three torques."""
    model, noise = real_arm(), np.random.default_rng(7)
    data = mujoco.MjData(model)
    waiting = [np.zeros(3)] * round(DELAY / CONTROL)
    rows = []
    for k in range(round(DURATION / STEP) + 1):
        t = k * STEP
        if k % round(CONTROL / STEP) == 0:
            error = REACH * multisine(t, 0.15, 1.2, 1) - data.qpos
            waiting.append(STIFFNESS * error - DAMPING * data.qvel + SHAKE * multisine(t, 0.5, 4.0, 2))
            data.qfrc_applied[:] = waiting.pop(0)
        # between two updates of the controller
        if k % round(RECORD / STEP) == round(CONTROL / STEP) // 2:
            angle = data.qpos + ENCODER_NOISE * noise.standard_normal(3)
            torque = data.qfrc_applied + TORQUE_NOISE * noise.standard_normal(3)
            rows.append([t, *ENCODER * np.round(angle / ENCODER), *torque])
        mujoco.mj_step(model, data)
    return np.array(rows)


def main() -> None:
    heads = ["t [s]", *(f"q_{j} [deg]" for j in JOINTS), *(f"tau_{j} [N·m]" for j in JOINTS)]
    rows = record()
    rows[:, 1:4] = np.rad2deg(rows[:, 1:4])
    with open(HERE / "log.csv", "w", encoding="utf-8", newline="\n") as file:
        file.write(",".join(heads) + "\n")
        for t, *numbers in rows.tolist():
            file.write(",".join([f"{t:.4f}", *(f"{x:.4f}" for x in numbers)]) + "\n")


if __name__ == "__main__":
    main()
