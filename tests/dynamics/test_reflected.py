"""Inertias by which rows of dry friction are measured, against the mass matrix."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from mechid import rotation_about
from mechid.dynamics.reflected import reflected_inertias
from mechid.studies import mechanisms


def test_they_are_the_diagonal_of_the_mass_matrix_at_zero():
    m = (
        mechanisms.pendulum(damping=0.1)
        .body("slider", mass=0.7, com=(0.1, 0.2, -0.1), inertia=(0.02, 0.03, 0.01))
        .prismatic("rail", "rod", "slider", axis=(1, 1, 0), origin=(0, 0.1, -0.4))
        .body("lump", mass=0.2, com=(0, 0.3, 0))
        .fixed("glue", "slider", "lump", origin=(0.1, 0, 0), rotation=rotation_about("x", 0.4))
        .body("ball", mass=0.3, com=(0.05, 0, 0), inertia=(0.01, 0.02, 0.03))
        .spherical("socket", "lump", "ball", origin=(0, 0, 0.2), rotation=rotation_about("y", 0.7))
        .armature("rail", inertia=0.4)
        .motor("hinge", rotor_inertia=1e-4, gear_ratio=50.0)
        .combination("sum", {"hinge": 2.0, "socket.1": -3.0})
        .armature("sum", inertia=0.1)
    )
    want = np.diag(m.lower().mass_matrix(jnp.zeros(len(m.coordinates))))
    assert reflected_inertias(m) == pytest.approx(want, rel=1e-12)
