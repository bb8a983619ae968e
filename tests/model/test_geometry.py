"""Rotation helpers against SciPy's, inertias at the edge of what a body can have."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from mechid import MechidError
from mechid.model.geometry import (
    finite,
    inertia_matrix,
    numbers,
    perpendicular,
    roll_pitch_yaw,
    rotation_about,
    rotation_matrix,
    skew,
    unit,
)

RNG = np.random.default_rng(7)
VECTORS = [*RNG.normal(size=(6, 3)), np.array([0, 0, np.pi]), np.array([1e-9, -2e-9, 1e-9])]


def close(a, b) -> None:
    np.testing.assert_allclose(a, b, atol=1e-14)


@pytest.mark.parametrize("vector", VECTORS)
def test_rotation_about_an_axis(vector: np.ndarray) -> None:
    angle = float(np.linalg.norm(vector))
    if angle > 1e-6:
        close(rotation_about(vector, 0.7), Rotation.from_rotvec(0.7 * vector / angle).as_matrix())
    close(rotation_matrix(vector, "R"), Rotation.from_rotvec(vector).as_matrix())


@pytest.mark.parametrize("name", ["x", "y", "z", "-x", "-y", "-z", "+x"])
def test_axes_by_their_letters(name: str) -> None:
    sign = -1.0 if name[0] == "-" else 1.0
    want = sign * np.eye(3)["xyz".index(name[-1])]
    close(unit(name, "axis"), want)
    close(rotation_about(name, 1.1), Rotation.from_rotvec(1.1 * want).as_matrix())


@pytest.mark.parametrize("angles", [*RNG.uniform(-3, 3, (6, 3)), (0.3, np.pi / 2, -0.4)])
def test_roll_pitch_yaw_turns_about_the_fixed_axes_in_this_order(angles) -> None:
    close(roll_pitch_yaw(*angles), Rotation.from_euler("xyz", angles).as_matrix())


def test_rotation_matrices_pass_and_nothing_is_the_identity() -> None:
    R = Rotation.from_rotvec([0.3, -1.2, 0.4]).as_matrix()
    close(rotation_matrix(R, "R"), R)
    close(rotation_matrix(None, "R"), np.eye(3))
    close(rotation_matrix((0, 0, 0), "R"), np.eye(3))


def test_a_slightly_turned_axis_is_no_rotation() -> None:
    R = np.eye(3)
    R[0, 1] = 1e-4
    with pytest.raises(MechidError, match=r"not a rotation matrix.*0\.0001"):
        rotation_matrix(R, "R")


@pytest.mark.parametrize("a", VECTORS[:3])
def test_skew_is_the_cross_product(a: np.ndarray) -> None:
    b = np.array([0.2, -0.7, 1.3])
    close(skew(a) @ b, np.cross(a, b))


@pytest.mark.parametrize("axis", [*VECTORS[:4], *np.eye(3), -np.eye(3)[1]])
def test_perpendicular_completes_a_right_handed_triad(axis: np.ndarray) -> None:
    axis = axis / np.linalg.norm(axis)
    triad = np.array([axis, *perpendicular(axis)])
    close(triad @ triad.T, np.eye(3))
    assert np.linalg.det(triad) == pytest.approx(1.0)


def test_units_have_length_one_whatever_the_scale() -> None:
    close(unit((0, 3e-5, -4e-5), "axis"), (0, 0.6, -0.8))
    close(unit((0, 3e5, -4e5), "axis"), (0, 0.6, -0.8))


# Inertias

TURN = Rotation.from_rotvec([0.4, -0.9, 0.2]).as_matrix()

LEGAL = {
    "massless": np.zeros(3),
    "a thin rod": np.array([0.0, 0.3, 0.3]),
    "a thin plate": np.array([0.1, 0.2, 0.3]),
    "a ball": np.full(3, 0.4),
    "a tiny thin rod": np.array([0.0, 3e-9, 3e-9]),
}


@pytest.mark.parametrize("case", LEGAL)
def test_thin_and_massless_inertias_are_legal_in_any_axes(case: str) -> None:
    principal = LEGAL[case]
    close(inertia_matrix(principal, "I"), np.diag(principal))
    turned = TURN @ np.diag(principal) @ TURN.T
    close(inertia_matrix(turned, "I"), turned)
    six = turned[[0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2]]
    close(inertia_matrix(six, "I"), turned)


def test_no_inertia_is_zero() -> None:
    close(inertia_matrix(None, "I"), np.zeros((3, 3)))


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e6])
@pytest.mark.parametrize(
    ("principal", "words"),
    [((1, 1, 2.001), "triangle inequality"), ((1, 1, -0.001), "negative principal moment")],
)
def test_impossible_inertias_are_refused_at_any_scale(principal, words: str, scale: float) -> None:
    with pytest.raises(MechidError, match=words):
        inertia_matrix(scale * TURN @ np.diag(principal) @ TURN.T, "I")


def test_the_triangle_inequality_is_that_of_masses_in_space() -> None:
    """Any cloud of points has an inertia that passes; exchanging Σ x² for −Σ x² breaks it."""
    points = RNG.normal(size=(20, 3))
    second = points.T @ points
    cloud = np.trace(second) * np.eye(3) - second
    close(inertia_matrix(cloud, "I"), cloud)
    impossible = cloud - 2.1 * np.linalg.eigvalsh(second).min() * np.eye(3)
    with pytest.raises(MechidError):
        inertia_matrix(impossible, "I")


# Checked arrays


def test_finite_gives_floats_of_the_shape() -> None:
    assert finite([1, 2, 3], (3,), "v").dtype == np.float64
    assert float(finite(2, (), "v")) == 2.0


def test_short_text_of_numbers() -> None:
    assert numbers((0.1, -9.81, 1234567.0)) == "(0.1, -9.81, 1.235e+06)"
    assert numbers((1.23456,), precision=2) == "(1.2)"
