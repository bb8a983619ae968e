"""mechid: the physical parameters of mechanisms from logs of their motion, with honest uncertainty."""

from mechid.compile import enable_float64
from mechid.dynamics.assembly import assemble, project_rates
from mechid.dynamics.batch import simulate_batch
from mechid.dynamics.bdf import BDF
from mechid.dynamics.linearization import adjoint, sensitivities, transitions
from mechid.dynamics.simulate import simulate
from mechid.dynamics.spook import Spook
from mechid.dynamics.trajectory import Trajectory
from mechid.dynamics.variational import Variational
from mechid.errors import MechidError, SimulationError
from mechid.model.geometry import roll_pitch_yaw, rotation_about
from mechid.model.mechanism import Mechanism
from mechid.model.parameter import Quantity
from mechid.model.parameters import Parameters
from mechid.model.reading import read_mechanism
from mechid.model.writing import write_mechanism

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
    "adjoint",
    "assemble",
    "enable_float64",
    "project_rates",
    "read_mechanism",
    "roll_pitch_yaw",
    "rotation_about",
    "sensitivities",
    "simulate",
    "simulate_batch",
    "transitions",
    "write_mechanism",
]
