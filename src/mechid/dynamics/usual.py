"""The stepper for a mechanism where none is asked for."""

from __future__ import annotations

from mechid.dynamics.onestep import OneStep
from mechid.dynamics.spook import Spook
from mechid.dynamics.stepper import Stepper
from mechid.dynamics.variational import Variational
from mechid.errors import MechidError
from mechid.model.system import System


def usual(system: System) -> str:
    """The first that can move it: variational, midpoint for equations without a Lagrangian, spook for contacts."""
    choices: dict[str, Stepper] = {
        "variational": Variational(1.0),
        "midpoint": OneStep(1.0),
        "spook": Spook(1.0),
    }
    model = system.lower()
    for name, stepper in choices.items():
        try:
            stepper.on(system).check(model, 1)
        except MechidError:
            continue
        return name
    return "variational"
