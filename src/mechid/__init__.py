"""mechid: the physical parameters of mechanisms from logs of their motion, with honest uncertainty."""

from typing import TYPE_CHECKING, Any

from mechid.compile import enable_float64, setup
from mechid.data.log import Channel, Log, log_of, read_log
from mechid.data.writing import write_log
from mechid.dynamics.assembly import assemble, project_rates
from mechid.dynamics.batch import simulate_batch
from mechid.dynamics.bdf import BDF
from mechid.dynamics.feedback import feedback
from mechid.dynamics.linearization import adjoint, sensitivities, transitions
from mechid.dynamics.onestep import OneStep
from mechid.dynamics.sensors import (
    FunctionSensor,
    frame_pose,
    frame_position,
    frame_velocity,
    joint_force,
    joint_position,
    joint_velocity,
    reaction,
)
from mechid.dynamics.simulate import simulate
from mechid.dynamics.spook import Spook
from mechid.dynamics.spook_rows import Softness
from mechid.dynamics.trajectory import Trajectory
from mechid.dynamics.variational import Variational
from mechid.errors import MechidError, SimulationError
from mechid.estimate.experiment import LQR, Condition, Cost, Experiment, Measured, Start, Tracked
from mechid.estimate.fit import Fit
from mechid.estimate.fit_batch import FitBatch, fit_batch
from mechid.estimate.joint_form import FrictionForm, JointForm
from mechid.estimate.measured_motion import Signals
from mechid.estimate.online import Tracker
from mechid.estimate.recursive import Forgetting
from mechid.estimate.regression import explained, regression
from mechid.estimate.residual_function import residual_function
from mechid.estimate.separable import separable
from mechid.estimate.simulation_error import simulation_error
from mechid.estimate.solvers.lbfgsb import LBFGSB
from mechid.estimate.solvers.levenberg_marquardt import LevenbergMarquardt
from mechid.estimate.solvers.steepest_descent import SteepestDescent
from mechid.estimate.trajectory import full_discretization, joint
from mechid.judge.sweeps import sweep
from mechid.judge.validation import Validation, cross_validate
from mechid.model.geometry import roll_pitch_yaw, rotation_about
from mechid.model.mechanism import Mechanism
from mechid.model.parameter import Quantity
from mechid.model.parameters import Parameters
from mechid.model.reading import read_mechanism
from mechid.model.writing import write_mechanism

if TYPE_CHECKING:
    from mechid.dynamics.symbolic import symbolic_output
    from mechid.model.symbolic.mechanism import SymbolicMechanism


def __getattr__(name: str) -> Any:
    """What needs SymPy, which takes long to import, is imported when it is asked for."""
    if name == "SymbolicMechanism":
        from mechid.model.symbolic.mechanism import SymbolicMechanism

        return SymbolicMechanism
    if name == "symbolic_output":
        from mechid.dynamics.symbolic import symbolic_output

        return symbolic_output
    raise AttributeError(f"module 'mechid' has no attribute {name!r}")


__all__ = [
    "BDF",
    "LBFGSB",
    "LQR",
    "Channel",
    "Condition",
    "Cost",
    "Experiment",
    "Fit",
    "FitBatch",
    "Forgetting",
    "FrictionForm",
    "FunctionSensor",
    "JointForm",
    "LevenbergMarquardt",
    "Log",
    "Measured",
    "Mechanism",
    "MechidError",
    "OneStep",
    "Parameters",
    "Quantity",
    "Signals",
    "SimulationError",
    "Softness",
    "Spook",
    "Start",
    "SteepestDescent",
    "SymbolicMechanism",
    "Tracked",
    "Tracker",
    "Trajectory",
    "Validation",
    "Variational",
    "adjoint",
    "assemble",
    "cross_validate",
    "enable_float64",
    "explained",
    "feedback",
    "fit_batch",
    "frame_pose",
    "frame_position",
    "frame_velocity",
    "full_discretization",
    "joint",
    "joint_force",
    "joint_position",
    "joint_velocity",
    "log_of",
    "project_rates",
    "reaction",
    "read_log",
    "read_mechanism",
    "regression",
    "residual_function",
    "roll_pitch_yaw",
    "rotation_about",
    "sensitivities",
    "separable",
    "setup",
    "simulate",
    "simulate_batch",
    "simulation_error",
    "sweep",
    "symbolic_output",
    "transitions",
    "write_log",
    "write_mechanism",
]
