"""mechid: the physical parameters of mechanisms from logs of their motion, with honest uncertainty."""

from mechid.compile import enable_float64
from mechid.dynamics.assembly import assemble, project_rates
from mechid.dynamics.bdf import BDF
from mechid.dynamics.linearization import sensitivities, transitions
from mechid.dynamics.simulate import simulate
from mechid.dynamics.spook import Spook
from mechid.dynamics.trajectory import Trajectory
from mechid.dynamics.variational import Variational
from mechid.errors import MechidError, SimulationError
from mechid.model.geometry import roll_pitch_yaw, rotation_about
from mechid.model.mechanism import Mechanism
from mechid.model.parameter import Quantity
from mechid.model.parameters import Parameters

__all__ = [
    "BDF",
    "Mechanism",
    "MechidError",
    "Parameters",
    "Quantity",
    "SimulationError",
    "Spook",
    "Trajectory",
    "Variational",
    "assemble",
    "enable_float64",
    "project_rates",
    "roll_pitch_yaw",
    "rotation_about",
    "sensitivities",
    "simulate",
    "transitions",
]
