"""`show` tells what is in a mechanism, on the screen and to a program."""

from __future__ import annotations

import io

from rich.console import Console

from mechid.report.show import show
from mechid.studies import mechanisms


def test_dry_friction_is_shown():
    screen = io.StringIO()
    m = mechanisms.pendulum().dry_friction("hinge", coulomb=0.37, stribeck=0.12, load_coefficient=0.05)
    data = show(m, Console(file=screen, width=100))
    assert data["coordinates"][0]["friction"] == 0.37
    assert data["identifiable"]["action"]["hinge.coulomb"] == "alone"
    told = screen.getvalue()
    assert "Coulomb 0.37, Stribeck excess 0.12, load coefficient 0.05" in told
    assert "1 coulomb unknown" in told
