"""mechid: the physical parameters of mechanisms from logs of their motion, with honest uncertainty."""

from mechid.compile import enable_float64
from mechid.errors import MechidError, SimulationError
from mechid.model.mechanism import Mechanism

__all__ = ["Mechanism", "MechidError", "SimulationError", "enable_float64"]
