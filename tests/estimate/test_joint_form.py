"""The joint's rows beside the torques of (3.8), (4.1)–(4.4) written out, and their slopes beside differences."""

from math import cos, exp, sin, tanh

import numpy as np
import pytest

from mechid.errors import MechidError
from mechid.estimate.joint_form import FrictionForm, JointForm
from mechid.estimate.separable import separable

FORMS = [
    FrictionForm(),
    FrictionForm(delta_S=2.0),
    FrictionForm(delta_S=None),
    JointForm(J_in=0.3, K_m=2.0),
    JointForm(J_in=0.3, K_m=2.0, ratio=160.0, delta_S=None),
    JointForm(J_in=0.3, J_out=1.2, T_g=5.0),
]


def omega_of(form) -> np.ndarray:
    return np.array([0.06, 0.13, 1.3])[: len(form.nonlinear)]


def samples_of(form, count: int) -> np.ndarray:
    return 0.3 * np.random.default_rng(0).normal(size=(count, len(form.channels)))


def test_rows_are_the_torques() -> None:
    form = JointForm(J_in=0.3, K_m=2.0, ratio=3.0, delta_S=1.3)
    theta = np.array([1e3, 2e4, 25.0, 590.0, 76.0, 40.0, 3.0, 2.0, 0.7, 0.4])
    k1, k2, C1, C2, b, bD, b_out, bC, A1, A2 = theta
    for sample in samples_of(form, 20):
        q, v, a, _, link, rate, _ = sample
        twist = q - 3.0 * link
        stiff = k1 * twist + k2 * twist**3
        damping = b * v + bD * q + C1 * tanh(v / 0.06) + C2 * v * exp(-((abs(v) / 0.13) ** 1.3))
        # what the motor and the torque sensor show then
        current = (0.3 * a + damping + stiff) / 2.0
        out = 3.0 * stiff - b_out * rate - bC * np.sign(rate) - A1 * sin(link) - A2 * cos(link)
        made = np.array([[q, v, a, current, link, rate, out]])
        phi, y = form.rows(made, np.array([0.06, 0.13]))
        assert (phi[0] @ theta) == pytest.approx(y[0], rel=1e-12)


def test_output_torque_from_the_links_acceleration() -> None:
    form = JointForm(J_out=1.2, T_g=5.0)
    sample = np.array([[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]])
    _, y = form.rows(sample, np.array([0.06, 0.13]))
    assert y[0, 1] == pytest.approx(1.2 * 0.7 - 5.0 * sin(0.5))


@pytest.mark.parametrize("form", FORMS)
def test_one_sample_as_many(form) -> None:
    samples = samples_of(form, 30)
    samples[0] = 0.0
    phi, y = form.rows(samples, omega_of(form))
    for i, sample in enumerate(samples):
        one, right = form.row(sample, omega_of(form))
        assert one == pytest.approx(phi[i], rel=1e-13, abs=1e-300)
        assert right == pytest.approx(y[i], rel=1e-13)


@pytest.mark.parametrize("form", FORMS)
def test_slopes_beside_differences(form) -> None:
    samples, omega = samples_of(form, 30), omega_of(form)
    slopes = form.slopes(samples, omega)
    assert np.abs(slopes).max() > 0.1
    for i in range(len(omega)):
        step = np.zeros_like(omega)
        step[i] = 1e-6 * omega[i]
        ahead, behind = (form.rows(samples, omega + s)[0] for s in (step, -step))
        assert slopes[i] == pytest.approx((ahead - behind) / (2.0 * step[i]), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (
            lambda: FrictionForm(delta_S=0.0),
            "delta_S must be a positive number, or None where it is free, not 0.0.",
        ),
        (lambda: JointForm(ratio=0.0), "ratio of a joint must not be 0."),
        (lambda: JointForm(J_in=np.nan), "J_in of a joint must be finite, not nan."),
    ],
)
def test_mistakes(make, told: str) -> None:
    with pytest.raises(MechidError) as error:
        make()
    assert str(error.value) == told


@pytest.mark.parametrize("form", [FrictionForm(), JointForm(J_in=1.0)])
@pytest.mark.parametrize(
    ("low", "what"), [(-1.0, "omega_1 must be > 0, not"), (0.0, "omega_1 must be > 0, not")]
)
def test_widths_and_velocities_are_searched_above_zero(form, low, what):
    """A width below zero only turns the sign of Coulomb's level round: every number would be found twice."""
    rng = np.random.default_rng(0)
    samples = rng.normal(size=(50, len(form.channels)))
    with pytest.raises(MechidError, match=what):
        separable(form, samples, {"omega_1": (low, 1.0), "omega_S": (0.01, 1.0)})
