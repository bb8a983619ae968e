"""mechid as pure functions of JAX arrays: motions, what sensors show of them, residuals. See `docs/core.md`.

A motion:      rollout = differentiable_motion(…, solve_motion(…)), from a stepper, a model and a first state
Its sensors:   observe
Its residuals: `mechid.residual_function`
Many:          `mechid.simulate_batch`, `mechid.fit_batch`; their search, `levenberg_marquardt`, is a pure function
"""

from mechid.dynamics.observing import observe
from mechid.dynamics.rollout import (
    Motion,
    Now,
    Past,
    begin,
    differentiable_motion,
    first_past,
    past_after,
    rollout,
    solve_motion,
)
from mechid.dynamics.trajectory import as_law
from mechid.estimate.fit_batch import levenberg_marquardt
from mechid.estimate.residual_function import Evaluated, ResidualFunction, residual_function
from mechid.estimate.start import closed_start

__all__ = [
    "Evaluated",
    "Motion",
    "Now",
    "Past",
    "ResidualFunction",
    "as_law",
    "begin",
    "closed_start",
    "differentiable_motion",
    "first_past",
    "levenberg_marquardt",
    "observe",
    "past_after",
    "residual_function",
    "rollout",
    "solve_motion",
]
