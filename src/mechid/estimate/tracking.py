"""The papers' stabilising filter (Section IV.C): F = T_meas − K(t) (b − b_meas) with gains from a discrete LQR.

The model is linearised along the measured motion, x_{k+1} = A_k x_k + B_k u_k, and a Riccati sweep backward gives

    K_k = (R + B_kᵀ P_{k+1} B_k)⁻¹ B_kᵀ P_{k+1} A_k,      P_k = Q + A_kᵀ P_{k+1} (A_k − B_k K_k)

Only b is measured, so that of K_k only the columns of b are used. The motion along which is linearised is found by
following b_meas with the stationary gains of the start. Gains are found once, at the starting parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from mechid.dynamics.feedback import Feedback, feedback
from mechid.dynamics.intervals import GivenMotion
from mechid.dynamics.linearization import given, transition_matrices
from mechid.dynamics.simulate import planned, simulated
from mechid.dynamics.variational import Variational
from mechid.errors import MechidError
from mechid.estimate.experiment import LQR, Tracked
from mechid.estimate.samples import at_steps
from mechid.estimate.shooting import Shooting
from mechid.model.geometry import finite

SETTLING = 100
"""steps of the sweep that finds the stationary gains of the start"""


def without_gains(shooting: Shooting) -> Shooting:
    """The experiment with feedback whose gains are zero: what is compiled for is the same."""
    law = _law(shooting)
    gain = np.zeros((len(shooting.free.mechanism.input_names), len(_tracked(shooting).channels)))
    return replace(shooting, table=law(gain))


def with_gains(shooting: Shooting) -> Shooting:
    """The experiment with feedback along its measured motion."""
    wanted, law = _tracked(shooting), _law(shooting)
    gain = wanted.gain
    if isinstance(gain, LQR):
        gain = _gains(shooting, gain, law, len(wanted.channels))
    return replace(shooting, table=law(gain))


def _tracked(shooting: Shooting) -> Tracked:
    wanted = shooting.experiment.feedback
    if wanted is None or not wanted.channels:
        raise MechidError(f"The feedback of experiment '{shooting.experiment.name}' tracks no coordinate.")
    return wanted


def _law(shooting: Shooting) -> Callable[[Any], Feedback]:
    """Feedback along the measured motion for given gains."""
    wanted, mechanism = _tracked(shooting), shooting.free.mechanism
    names, t = list(wanted.channels), shooting.grid.t[:-1]
    for name in names:
        mechanism.coordinate(name)
    if not mechanism.input_names:
        raise MechidError(f"Mechanism '{mechanism.name}' has no input that feedback could act on.")
    reference = np.stack([at_steps(shooting.experiment, wanted.channels[n], t) for n in names], -1)
    table = shooting.table.rows if isinstance(shooting.table, Feedback) else shooting.table
    inputs = table[:, : len(mechanism.input_names)]
    return lambda gain: feedback(mechanism, names, inputs=inputs, reference=reference, gain=gain)


def _gains(shooting: Shooting, weights: LQR, law: Any, tracked: int) -> np.ndarray:
    """(steps, nu, tracked) gains of the finite-horizon regulator along the measured motion."""
    free = shooting.free
    # any stepper's experiment can use them: a gain belongs to the mechanism, not to how it is stepped
    stepper = shooting.stepper
    if not isinstance(stepper, Variational):
        stepper = Variational(stepper.dt)
    model = free.bind(free.theta0)
    nu, nx = model.nu, stepper.nx(model)
    index = law(np.zeros((nu, tracked))).law.index
    Q, R = np.zeros((nx, nx)), np.zeros((nu, nu))
    Q[index, index] = _positive(weights.state_weight, tracked, "state_weight")
    R[np.diag_indices(nu)] = _positive(weights.input_weight, nu, "input_weight")

    def plan(inputs: Any) -> Any:
        q, v, t0 = shooting.first.q, shooting.first.v, float(shooting.grid.t[0])
        return planned(
            free.mechanism, stepper, shooting.grid.steps, q=q, v=v, inputs=inputs, t0=t0, model=model
        )

    rest = plan(law(np.zeros((nu, tracked))))
    still = jax.tree.map(lambda a: np.stack([np.asarray(a)] * 2), rest.state)
    nothing = np.zeros((1, stepper.nz(model)))
    A, B = _matrices(stepper, model, GivenMotion(still, nothing, rest.table[:1, :nu], shooting.grid.t[:1]))
    P = Q
    K = np.zeros((nu, nx))
    for _ in range(SETTLING):
        K, P = riccati(A[0], B[0], Q, R, P)
    motion = simulated(plan(law(K[:, index])), throw=False)
    if motion.steps < shooting.grid.steps:
        raise MechidError(
            f"The measured motion of experiment '{shooting.experiment.name}' cannot be followed beyond "
            f"t = {motion.t[-1]:.4g} s: give a larger input_weight or other gains."
        )
    gains, P = np.zeros((shooting.grid.steps, nu, tracked)), Q
    As, Bs = _matrices(stepper, model, given(motion))
    for i in reversed(range(len(As))):
        K, P = riccati(As[i], Bs[i], Q, R, P)
        gains[i] = K[:, index]
    return gains


def _matrices(stepper: Variational, model: Any, motion: GivenMotion) -> tuple[np.ndarray, np.ndarray]:
    """A_k and B_k of each step, open loop."""
    by = transition_matrices(stepper, model, motion)
    return by.A[:, 0], by.B_u  # type: ignore[return-value]


def riccati(
    A: np.ndarray, B: np.ndarray, Q: np.ndarray, R: np.ndarray, P: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """One step backward: the gain, and the cost to go before the step."""
    PB = P @ B
    K = np.linalg.solve(R + B.T @ PB, PB.T @ A)
    P = Q + A.T @ (P @ A - PB @ K)
    return K, 0.5 * (P + P.T)


def _positive(weight: Any, count: int, what: str) -> np.ndarray:
    values = finite(weight, (count,) if np.ndim(weight) else (), f"The {what} of LQR")
    if np.any(values <= 0.0):
        raise MechidError(f"The {what} of LQR must be > 0, not {weight}.")
    return np.broadcast_to(values, (count,))
