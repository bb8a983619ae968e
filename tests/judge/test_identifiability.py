"""What sensitivities made by hand tell, against directions and deviations worked out on paper."""

import numpy as np
import pytest

from mechid import Mechanism, Parameters
from mechid.estimate.fit import Estimate, Fit
from mechid.estimate.solvers.problem import Iteration
from mechid.judge.identifiability import LOST, TOLD, WEAK
from mechid.studies.mechanisms import cart_pendulum

ADDRESSES = ("cart.mass", "pole.mass", "hinge.damping", "pole.com.z")
ANY = (None, None)
COMMON = "are found up to a common factor: only their ratios can be told."


def made(values, sensitivities, *, std=None, covariance=None, starts=None, bounds=None, transform="none"):
    """A fit of parameters a, b, c, … with sensitivities by θ; the covariance follows where it is not given."""
    n = len(values)
    starts = [1.5 * x for x in values] if starts is None else starts
    bounds = [ANY] * n if bounds is None else bounds
    free = Parameters(cart_pendulum())
    for address, name, start, (lower, upper) in zip(ADDRESSES, "abcd", starts, bounds, strict=False):
        free = free.free(address, name=name, start=start, bounds=(lower, upper), transform=transform)
    R = np.asarray(sensitivities, float)
    theta = np.array([p.theta(x) for p, x in zip(free.entries, values, strict=True)])
    if covariance is None:
        covariance = (
            np.diag(np.full(n, np.inf)) if std is None else np.diag(np.square(np.asarray(std, float)))
        )
    stds = np.sqrt(np.diag(covariance))
    parameters = {
        p.name: Estimate(p.name, float(x), float(s), "kg", p.start, *p.bounds)
        for p, x, s in zip(free.entries, values, stds, strict=True)
    }
    trace = tuple(Iteration(i, 1.0, 1.0, tuple(values), 0.1, 0.0, i) for i in range(3))
    return Fit(
        "simulation error", "LevenbergMarquardt", free, theta, parameters, {}, covariance, (2.0, 1.0), trace, (),
        True, "Converged.", {}, R,
    )  # fmt: skip


def null(*vectors):
    """Sensitivities that vanish along the vectors and only there."""
    Q, _ = np.linalg.qr(np.column_stack([*vectors, np.eye(len(vectors[0]))]))
    return 1e3 * Q[:, len(vectors) :].T


# Directions


def test_columns_are_scaled_to_relative_changes():
    """Diagonal R: the std of a value is 1/R, and relative to the value 1/(R value)."""
    found = made([2.0, 5.0], np.diag([50.0, 4.0]), std=[0.02, 0.25], starts=[1.0, 1.0]).identifiability
    assert found.stds == pytest.approx([0.01, 0.05])
    assert found.singular_values == pytest.approx([100.0, 20.0])
    assert found.directions == pytest.approx(np.eye(2))
    assert found.classes == (TOLD, TOLD)
    assert found.condition == pytest.approx(5.0)
    assert found.sentences == ()
    assert found.suggestion == ""


def test_a_start_larger_than_the_value_is_the_size():
    found = made([2.0, 5.0], np.diag([50.0, 4.0]), std=[0.02, 0.25], starts=[8.0, 5.0]).identifiability
    assert found.sizes == pytest.approx([8.0, 5.0])
    assert found.stds == pytest.approx([1 / 400, 1 / 20])


def test_a_logarithm_is_relative_already():
    """θ = log value: R by θ is the relative sensitivity."""
    fit = made([2.0, 5.0], np.diag([10.0, 20.0]), std=[0.2, 0.25], starts=[2.0, 5.0], transform="positive")
    assert fit.identifiability.singular_values == pytest.approx([20.0, 10.0])
    assert np.abs(fit.identifiability.directions) == pytest.approx(np.array([[0.0, 1.0], [1.0, 0.0]]))


def test_deviations_that_were_scaled_up_are_scaled_up_along_directions():
    found = made([2.0, 5.0], np.diag([50.0, 4.0]), std=[0.06, 0.75], starts=[1.0, 1.0]).identifiability
    assert found.stds == pytest.approx([0.03, 0.15])


@pytest.mark.parametrize(
    ("values", "vector", "sentence"),
    [
        ((2.0, 4.0, 5.0), (2.0, 4.0, 5.0), f"a, b and c {COMMON}"),
        ((2.0, 4.0, 5.0), (2.0, 4.0, -5.0), f"a, b and 1/c {COMMON}"),
        ((2.0, 4.0, 5.0), (2.0, 4.0, 0.0), "Only the ratio a/b can be told, not each of them."),
        ((2.0, 4.0, 5.0), (2.0, -4.0, 0.0), "Only the product a·b can be told, not each of them."),
        ((2.0, 4.0, -5.0), (2.0, 0.0, -5.0), "Only the ratio a/c can be told, not each of them."),
        ((2.0, 4.0, 5.0), (2.0, -2.0, 0.0), "a and b moved together (1 : −0.5) do not change the data."),
        ((2.0, 4.0, 5.0), (0.0, 1.0, 0.0), "b does not change the data: it cannot be told."),
        ((2.0, 4.0, 0.0), (2.0, 0.0, 3.0), "a and c moved together (1 : 1) do not change the data."),
    ],
)  # fmt: skip
def test_a_direction_that_does_nothing_is_found_and_named(values, vector, sentence):
    """The null vector in physical values, by hand; where c is 0 its size is its start, 3."""
    vector = np.array(vector)
    start = [*values[:2], values[2] or 3.0]
    found = made(values, null(vector), starts=start).identifiability
    assert found.classes == (TOLD, TOLD, LOST)
    assert np.isinf(found.stds[2])
    assert np.isinf(found.condition)
    expected = vector / np.abs(start)
    assert np.abs(found.directions[:, 2]) == pytest.approx(
        np.abs(expected) / np.linalg.norm(expected), abs=1e-9
    )
    assert found.sentences == (sentence,)
    assert "prior" in found.suggestion


def test_two_lost_directions_are_named_one_by_one():
    """Any mixture of the two spans the same space; the words are for c alone and for a with b."""
    mixed = null(np.array([2.0, 4.0, 7.0, 0.0]), np.array([2.0, 4.0, -9.0, 0.0]))
    found = made([2.0, 4.0, 5.0, -1.0], mixed).identifiability
    assert found.classes == (TOLD, TOLD, LOST, LOST)
    assert set(found.sentences) == {
        "Only the ratio a/b can be told, not each of them.",
        "c does not change the data: it cannot be told.",
    }


def test_parameters_that_do_nothing_share_a_sentence():
    found = made([2.0, 4.0, 5.0], np.diag([1e3, 0.0, 0.0])).identifiability
    assert found.sentences == ("b and c do not change the data: they cannot be told.",)
    assert found.suggestion == "Fix them, give them priors, or measure motions that tell more."


def test_the_ten_numbers_of_a_body_by_its_moments_and_inertia():
    """A hinge about y tells m x, m z and Iyy + m (x² + z²).

    With a larger mass x and z shrink, and Iyy grows by m (x² + z²) = 0.2 of its 0.4 kg·m²: 1 : −1 : −1 : 0.5.
    """
    rod = Mechanism().body("rod", mass=2.0, com=(0.1, 0.2, -0.3), inertia=(0.3, 0.4, 0.35, 0.01, 0.02, 0.03))
    free = Parameters(rod.revolute("hinge", "world", "rod", axis="y")).free_inertia("rod")
    theta = free.theta0
    numbers = free.physical(theta)

    def moments(theta):
        m, x, _, z, _, yy, *_ = np.asarray(free.physical_numbers(theta))
        return np.array([m * x, m * z, yy + m * (x**2 + z**2)])

    steps = 1e-5 * np.eye(10)
    R = np.stack([(moments(theta + d) - moments(theta - d)) / 2e-5 for d in steps], 1)
    parameters = {
        n: Estimate(n, q.value, np.inf, q.unit, q.value, -np.inf, np.inf) for n, q in numbers.items()
    }
    fit = Fit(
        "simulation error", "LevenbergMarquardt", free, theta, parameters, {}, np.diag(np.full(10, np.inf)),
        (2.0, 1.0), (), (), True, "Converged.", {}, np.concatenate([1e6 * R, np.zeros((7, 10))]),
    )  # fmt: skip
    found = fit.identifiability
    assert found.classes == (TOLD,) * 3 + (LOST,) * 7
    together = "rod.mass, rod.com.x, rod.com.z and rod.inertia.yy moved together (1 : −1 : −1 : 0.5)"
    assert found.sentences[0] == f"{together} do not change the data."
    others = ("com.y", "inertia.xx", "inertia.zz", "inertia.xy", "inertia.xz")
    shown = ", ".join(f"rod.{name}" for name in others)
    assert found.sentences[1] == f"{shown} and rod.inertia.yz do not change the data: they cannot be told."


def test_well_and_less_well_told_are_both_told():
    """A factor of 1e10 between two independent parameters is no loss."""
    found = made([1.0, 1.0], np.diag([1e12, 1e2]), std=[1e-12, 1e-2]).identifiability
    assert found.classes == (TOLD, TOLD)


def test_a_weak_direction_has_its_size_in_words():
    """R = diag(1e3, 1/0.8) in the axes (1, 1)/√2 and (1, −1)/√2: a moves by 0.8/√2 = 57 %."""
    turn = np.array([[1.0, 1.0], [1.0, -1.0]]) / np.sqrt(2.0)
    R = np.diag([1e3, 1.25]) @ turn
    covariance = np.linalg.inv(R.T @ R)
    found = made([1.0, 1.0], R, covariance=covariance, starts=[1.0, 1.0]).identifiability
    assert found.classes == (TOLD, WEAK)
    assert found.stds == pytest.approx([1e-3, 0.8])
    assert found.sentences == ("a and b moved together (1 : −1) change the data little: ±57 % of a.",)


def test_a_parameter_at_zero_is_measured_by_its_bounds():
    found = made(
        [0.0, 1.0], np.diag([10.0, 10.0]), std=[0.1, 0.1], starts=[0.0, 1.0], bounds=[(-2.0, 2.0), ANY]
    )
    assert found.identifiability.sizes == pytest.approx([2.0, 1.0])
    assert found.flags["a"] == ("did not move",)


def test_a_parameter_not_told_from_zero_is_not_weak_for_that():
    """An offset of 0.0001 ± 0.001 that began at 0: well known, whatever its value."""
    fit = made([1e-4, 1.0], np.diag([1e3, 10.0]), std=[1e-3, 0.1], starts=[0.0, 1.1])
    assert fit.identifiability.classes == (TOLD, TOLD)
    assert fit.flags["a"] == ("poorly known",)


def test_without_sensitivities_nothing_is_judged():
    fit = made([1.0, 2.0], np.zeros((0, 2)))
    assert not fit.identifiability.judged
    assert np.isnan(fit.identifiability.condition)
    assert fit.flags == {"a": ("no std",), "b": ("no std",)}


# Flags


def test_what_takes_part_in_a_lost_direction_is_flagged_and_nothing_else():
    covariance = np.diag([np.inf, np.inf, 0.01])
    fit = made([2.0, 4.0, 5.0], null(np.array([2.0, 4.0, 0.0])), covariance=covariance)
    assert fit.flags == {"a": ("not identifiable",), "b": ("not identifiable",), "c": ()}


def test_a_deviation_above_the_value_is_not_identifiable_and_above_a_third_poor():
    fit = made([1.0, 1.0, 1.0], np.diag([0.5, 2.0, 10.0]), std=[2.0, 0.5, 0.1], starts=[0.9] * 3)
    assert fit.flags == {"a": ("not identifiable",), "b": ("poorly known",), "c": ()}


@pytest.mark.parametrize(
    ("value", "start", "bounds", "transform", "expected"),
    [
        (0.0, 1.0, (0.0, None), "none", True),
        (1e-10, 1.0, (0.0, None), "none", True),
        (1e-7, 1.0, (0.0, None), "none", False),
        (1e-7, 1.0, (0.0, None), "positive", True),
        (3.0, 1.0, (0.0, 3.0), "none", True),
        (3.0 - 1e-6, 1.0, (0.0, 3.0), "none", False),
    ],
)
def test_a_value_on_its_bound_is_flagged(value, start, bounds, transform, expected):
    fit = made([value], [[1e4]], std=[1e-9], starts=[start], bounds=[bounds], transform=transform)
    assert ("at bound" in fit.flags["a"]) is expected


def test_a_parameter_that_stayed_where_it_began_is_flagged():
    fit = made([2.0, 3.0], np.diag([1e3, 1e3]), std=[1e-3, 1e-3], starts=[2.0, 3.1])
    assert fit.flags == {"a": ("did not move",), "b": ()}
