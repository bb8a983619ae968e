"""Parameters against mechanisms written out by hand, parallel axes and finite differences."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from mechid.dynamics.lowering import Lowering
from mechid.errors import MechidError
from mechid.model.mechanism import Mechanism
from mechid.model.parameter import Quantity
from mechid.model.parameters import Parameters
from mechid.studies import mechanisms

INERTIA = (0.30, 0.10, 0.32, 0.01, 0.02, -0.01)


def arm(
    *,
    stiffness: tuple[float, float] = (10.0, 10.0),
    damping: tuple[float, float] = (0.1, 0.2),
    length: float = 1.0,
    mass: float = 2.0,
    com: tuple[float, float, float] = (0.02, 0.5, 0.1),
) -> Mechanism:
    """Two links with every kind of number in the vector of values."""
    return (
        Mechanism("arm")
        .body("link1", mass=3.0, com=(0.0, 0.5 * length, 0.0), inertia=(length**2 / 4, 0.3, 0.2))
        .body("link2", mass=mass, com=com, inertia=INERTIA)
        .body("slider", mass=0.5, inertia=(0.01, 0.01, 0.01))
        .body("tool", mass=0.2, com=(0.0, 0.0, 0.05), inertia=(0.002, 0.002, 0.001))
        .body("dust", mass=0.0, com=(0.1, 0.2, 0.3))
        .body("rod", mass=0.1, inertia=(0.01, 0.0, 0.01))
        .revolute("theta1", "world", "link1", axis="x", rotation=(0.3, 0.0, 0.2))
        .revolute("theta2", "link1", "link2", axis="x", origin=(0.0, length, 0.0))
        .prismatic("slide", "world", "slider", axis="y")
        .fixed("mount", "link2", "tool", origin=(0.0, 0.4, 0.0), rotation=(0.0, 0.5, 0.0))
        .fixed("speck", "link2", "dust", origin=(0.0, 0.1, 0.0))
        .revolute("rod_joint", "slider", "rod", axis="z")
        .frame("tip", "link2", origin=(0.0, 0.9, 0.0), rotation=(0.1, 0.2, 0.3))
        .frame("slide", "slider", origin=(0.1, 0.0, 0.0))
        .spring("theta1", stiffness=stiffness[0], cubic=0.5, rest=0.1)
        .spring("theta2", stiffness=stiffness[1])
        .damper("theta1", damping=damping[0])
        .damper("theta2", damping=damping[1], cubic=0.01)
        .friction("slide", coulomb=0.3, stribeck=0.1)
        .motor("theta1", gain=2.0, gear_ratio=5.0, rotor_inertia=0.001)
        .armature("theta2", inertia=0.03)
        .line_spring("cable", "tip", "slide", stiffness=20.0, rest=0.3, damping=0.4)
        .force("push", "tip")
        .element(
            "wind",
            ["theta1", "theta2"],
            force=lambda q, v, t, p: -p[0] * v + p[1],
            parameters={"drag": 0.05, "bias": 0.2},
        )
        .coupling("gear", "rod_joint", "theta1", ratio=2.0, offset=0.1)
    )


ARM = arm()


@pytest.fixture(scope="module")
def everything() -> Parameters:
    """Free numbers in every block, under every transform and chart."""
    return (
        Parameters(ARM)
        .free("theta*.stiffness", name="kappa", bounds=(0.0, None))
        .free("theta?.damping", transform="positive")
        .free("link2.mass", bounds=(0.5, 6.0), transform="interval")
        .free("link2.com")
        .free("slider.first_moment")
        .free("slider.mass")
        .tie(
            "length",
            {
                "theta2.origin.y": 1.0,
                "link1.com.y": 0.5,
                "link1.inertia.xx": lambda L: L**2 / 4,
            },
            unit="m",
        )
        .free_inertia("tool")
        .free("theta1.tilt")
        .free("tip.tilt.x")
        .free("frame/slide.origin.x")
        .free("gravity.z")
        .free("slide.coulomb")
        .free("theta1.motor.rotor_inertia")
        .free("theta2.armature")
        .free("cable.rest")
        .free("wind.bias")
        .free("gear.ratio")
    )


def moved(parameters: Parameters, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return parameters.theta0 + 0.2 * rng.standard_normal(parameters.size)


def own_values(mechanism: Mechanism) -> np.ndarray:
    return Lowering(mechanism).values


# Which numbers are free


def test_order_names_units_and_start():
    free = (
        Parameters(ARM)
        .free("*.damping", transform="positive")
        .free("theta*.stiffness", name="kappa", start=12.0)
        .free("link2.com")
    )
    assert free.names == (
        *("theta1.damping", "theta2.damping", "cable.damping", "kappa"),
        *("link2.com.x", "link2.com.y", "link2.com.z"),
    )
    assert free.units == ("N·m·s/rad", "N·m·s/rad", "N·s/m", "N·m/rad", "m", "m", "m")
    assert free.size == 7
    want = [np.log(0.1), np.log(0.2), np.log(0.4), 12.0, 0.02, 0.5, 0.1]
    np.testing.assert_allclose(free.theta0, want, rtol=1e-15)


def test_a_set_is_immutable_and_lowers_its_mechanism_once():
    none = Parameters(ARM)
    one = none.free("gravity.z")
    assert (none.size, one.size) == (0, 1)
    assert one.lowering is none.lowering
    with pytest.raises(AttributeError):
        one.entries = ()  # type: ignore[misc]


def test_nothing_free_gives_the_mechanism_itself():
    none = Parameters(ARM)
    np.testing.assert_array_equal(none.values([]), own_values(ARM))
    assert none.tangent([]).shape == (own_values(ARM).size, 0)
    assert [a.shape for a in none.inequalities] == [(0, 0), (0,)]
    assert none.physical([]) == {}


def test_the_start_is_the_mechanism(everything):
    np.testing.assert_allclose(everything.values(everything.theta0), own_values(ARM), rtol=1e-13, atol=1e-15)


def test_a_kind_in_front_tells_a_joint_from_a_frame():
    free = Parameters(ARM).free("frame/slide.origin.x").free("joint/slide.origin.x")
    assert free.names == ("frame/slide.origin.x", "joint/slide.origin.x")
    np.testing.assert_allclose(free.theta0, [0.1, 0.0])


# From theta to values, against mechanisms with the numbers written in by hand


def test_a_name_ties_every_match_to_one_parameter():
    free = Parameters(ARM).free("theta*.stiffness", name="kappa").free("theta?.damping")
    want = own_values(arm(stiffness=(7.0, 7.0), damping=(0.3, 0.4)))
    np.testing.assert_allclose(free.values([7.0, 0.3, 0.4]), want, rtol=1e-15)


def test_a_length_moves_by_factors_and_functions():
    free = Parameters(ARM).tie(
        "length",
        {"theta2.origin.y": 1.0, "link1.com.y": 0.5, "link1.inertia.xx": lambda L: L**2 / 4},
        unit="m",
    )
    assert free.theta0 == pytest.approx(1.0)
    np.testing.assert_allclose(free.values([1.3]), own_values(arm(length=1.3)), rtol=1e-14)


def test_mass_and_com_keep_the_inertia_about_the_centre_of_mass():
    free = Parameters(ARM).free("link2.mass").free("link2.com")
    want = own_values(arm(mass=5.0, com=(0.3, -0.2, 0.1)))
    np.testing.assert_allclose(free.values([5.0, 0.3, -0.2, 0.1]), want, rtol=1e-14)


def test_parallel_axes_of_a_freed_mass():
    free = Parameters(ARM).free("link2.mass")
    ten = free.lowering.layout.block(np.array(free.values([5.0])), "rigid")[1]
    # m, m c and I + m (c·c 1 − c cᵀ) with c = (0.02, 0.5, 0.1)
    want = [5.0, 0.1, 2.5, 0.5, 0.30 + 1.3, 0.10 + 0.052, 0.32 + 1.252]
    want += [0.01 - 0.05, 0.02 - 0.01, -0.01 - 0.25]
    np.testing.assert_allclose(ten, want, rtol=1e-13)


def test_linear_numbers_move_alone():
    free = Parameters(ARM).free("link2.mass").free("link2.first_moment.y")
    before = own_values(ARM)
    after = np.array(free.values([5.0, 0.7]))
    at = free.lowering.layout.blocks["rigid"][0] + 10
    assert sorted(np.flatnonzero(after != before)) == [at, at + 2]
    np.testing.assert_array_equal(after[[at, at + 2]], [5.0, 0.7])


def test_a_massless_body_gets_its_mass_where_its_centre_of_mass_is():
    free = Parameters(ARM).free("dust.mass")
    ten = free.lowering.layout.block(np.array(free.values([2.0])), "rigid")[4]
    np.testing.assert_allclose(ten[:4], [2.0, 0.2, 0.4, 0.6], rtol=1e-15)


@pytest.mark.parametrize("seed", [0, 1])
def test_tangent_equals_finite_differences(everything, seed):
    theta, h = moved(everything, seed), 1e-6
    columns = [
        (everything.values(theta + d) - everything.values(theta - d)) / (2 * h)
        for d in h * np.eye(everything.size)
    ]
    np.testing.assert_allclose(everything.tangent(theta), np.array(columns).T, rtol=1e-7, atol=1e-8)


def test_bind_is_the_same_traced_and_differentiable():
    free = Parameters(ARM).free("link2.mass", transform="positive").free("theta1.tilt.y").free_inertia("tool")
    theta = moved(free)

    def pseudo(x):
        return free.bind(x).pseudo

    traced, slope = jax.jit(lambda x: (pseudo(x), jax.jacfwd(pseudo)(x)))(theta)
    np.testing.assert_allclose(traced, pseudo(theta), rtol=1e-13, atol=1e-15)
    for i, d in enumerate(1e-6 * np.eye(free.size)):
        difference = (pseudo(theta + d) - pseudo(theta - d)) / 2e-6
        np.testing.assert_allclose(slope[..., i], difference, rtol=1e-7, atol=1e-8)


# Transforms, bounds, priors, limits


@pytest.mark.parametrize(
    ("transform", "bounds", "theta"),
    [
        ("none", (None, None), 0.7),
        ("none", (0.5, None), 0.7),
        ("positive", (None, None), np.log(0.7)),
        ("positive", (0.5, 1.0), np.log(0.7)),
        ("interval", (0.5, 1.0), np.log(0.2 / 0.3)),
    ],
)
def test_transforms_there_and_back(transform, bounds, theta):
    free = Parameters(ARM).free("theta1.damping", start=0.7, bounds=bounds, transform=transform)
    np.testing.assert_allclose(free.theta0, [theta], rtol=1e-14)
    assert free.physical(free.theta0)["theta1.damping"].value == pytest.approx(0.7, rel=1e-14)
    lower, upper = free.bounds()
    for physical, solver in zip((lower, upper), free.bounds_theta, strict=True):
        np.testing.assert_allclose(free.numbers(solver), physical, rtol=1e-14)
    # the coordinate runs upwards through the whole range
    inside = np.linspace(-3.0, 3.0, 7) + theta
    numbers = [float(free.numbers([x])[0]) for x in inside]
    assert np.all(np.diff(numbers) > 0)
    if transform == "interval":
        assert lower[0] < min(numbers)
        assert max(numbers) < upper[0]


def test_large_numbers_do_not_poison_the_slopes_of_others():
    free = Parameters(ARM).free("theta1.stiffness", start=1e4).free("theta1.damping", transform="positive")
    assert np.all(np.isfinite(free.tangent(free.theta0)))
    assert np.all(np.isfinite(jax.grad(lambda x: free.numbers(x).sum())(free.theta0)))


def test_priors_and_inequalities_as_arrays():
    free = (
        Parameters(ARM)
        .free("theta1.damping", prior=(0.15, 0.05))
        .free("theta2.damping")
        .limit({"theta1.damping": 1.0, "theta2.damping": -1.0}, upper=0.0)
        .limit({"theta2.damping": 2.0}, upper=3.0)
    )
    mean, std = free.priors
    np.testing.assert_array_equal(mean, [0.15, 0.2])
    np.testing.assert_array_equal(std, [0.05, np.inf])
    matrix, upper = free.inequalities
    np.testing.assert_array_equal(matrix, [[1.0, -1.0], [0.0, 2.0]])
    np.testing.assert_array_equal(upper, [0.0, 3.0])


# The physically consistent inertia


def test_random_log_cholesky_numbers_are_physically_consistent():
    free = Parameters(ARM).free_inertia("link2")
    rng = np.random.default_rng(3)
    for _ in range(20):
        (body,) = [b for b in free.apply(rng.normal(size=10)).bodies if b.name == "link2"]
        a, b, c = np.linalg.eigvalsh(body.inertia)
        assert body.mass > 0
        assert a > 0
        assert a + b > c


def test_a_freed_inertia_is_reported_as_mass_com_and_inertia():
    free = Parameters(ARM).free("gravity.z").free_inertia("link2").free("theta1.damping")
    assert free.names[1:3] == ("link2.alpha", "link2.d1")
    report = free.physical(free.theta0)
    assert list(report) == [
        "gravity.z",
        "link2.mass",
        *(f"link2.com.{c}" for c in "xyz"),
        *(f"link2.inertia.{c}" for c in ("xx", "yy", "zz", "xy", "xz", "yz")),
        "theta1.damping",
    ]
    want = [-9.81, 2.0, 0.02, 0.5, 0.1, *INERTIA, 0.1]
    np.testing.assert_allclose([q.value for q in report.values()], want, rtol=1e-12)
    assert report["link2.mass"].unit == "kg"
    assert report["link2.inertia.xy"].unit == "kg·m²"
    assert report["gravity.z"] == Quantity(-9.81, "m/s²")
    assert str(Quantity(2.0, "kg")) == "2 kg"
    # α is half the log of the mass and t is the centre of mass
    np.testing.assert_allclose(free.theta0[1], 0.5 * np.log(2.0), rtol=1e-14)
    np.testing.assert_allclose(free.theta0[8:11], [0.02, 0.5, 0.1], rtol=1e-14)


def test_reported_numbers_are_differentiable():
    free = Parameters(ARM).free("theta1.damping", transform="positive").free_inertia("link2")
    theta, h = moved(free), 1e-6
    report = jax.jit(free.physical_numbers)
    slope = jax.jit(jax.jacfwd(free.physical_numbers))(theta)
    for i, d in enumerate(h * np.eye(free.size)):
        difference = (report(theta + d) - report(theta - d)) / (2 * h)
        np.testing.assert_allclose(slope[:, i], difference, rtol=1e-6, atol=1e-8)


# Writing back


def test_the_written_mechanism_lowers_to_the_bound_model(everything):
    theta = moved(everything)
    written = everything.apply(theta)
    bound, lowered = everything.bind(theta), written.lower()
    assert jax.tree.structure(bound) == jax.tree.structure(lowered)
    for a, b in zip(jax.tree.leaves(bound), jax.tree.leaves(lowered), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13)
    before = jax.tree.leaves(ARM.lower())
    changed = [np.any(np.asarray(a) != b) for a, b in zip(jax.tree.leaves(bound), before, strict=True)]
    assert sum(changed) >= 10  # motion, inertia, gravity, springs, dampers, friction, …
    assert ARM.bodies[1].mass == 2.0


def test_what_is_not_free_is_written_unchanged():
    written = Parameters(ARM).free("theta1.damping").apply([0.7])
    np.testing.assert_array_equal(own_values(written), own_values(arm(damping=(0.7, 0.2))))
    assert written.bodies == ARM.bodies
    assert [type(e) for e in written.elements] == [type(e) for e in ARM.elements]


@pytest.mark.parametrize("tilt", [(0.3, -0.2, 0.5), (1e-12, 0.0, 0.0), (0.0, 0.0, 0.0)])
def test_a_tilt_is_folded_into_the_rotation(tilt):
    joint = Parameters(ARM).free("theta1.tilt").apply(tilt).joints[0]
    want = Rotation.from_rotvec([0.3, 0.0, 0.2]) * Rotation.from_rotvec(tilt)
    np.testing.assert_allclose(joint.rotation, want.as_matrix(), atol=1e-15)


def test_a_body_whose_mass_ends_at_zero_keeps_its_centre_of_mass():
    (dust,) = [b for b in Parameters(ARM).free("dust.mass").apply([0.0]).bodies if b.name == "dust"]
    np.testing.assert_array_equal(dust.com, [0.1, 0.2, 0.3])


def test_a_first_moment_without_mass_cannot_be_written():
    free = Parameters(ARM).free("dust.first_moment.x")
    with pytest.raises(MechidError, match="'dust' has a first moment but no mass"):
        free.apply([0.1])


# The table


def test_the_table_says_what_is_free():
    text = repr(
        Parameters(ARM)
        .free("theta*.stiffness", name="kappa", bounds=(0.0, None))
        .tie(
            "length",
            {"theta2.origin.y": 1.0, "link1.com.y": 0.5, "link1.inertia.xx": lambda L: L**2 / 4},
        )
        .free_inertia("link2")
        .limit({"kappa": 1.0, "length": -2.0}, upper=9.0)
    )
    rows = [line.split() for line in text.splitlines()]
    assert rows[0] == ["arm:", "12", "free", "parameters"]
    assert rows[1] == ["name", "start", "unit", "bounds", "transform", "moves"]
    assert "kappa  " in text
    assert "N·m/rad  0 … ∞" in text
    assert text.count("theta1.stiffness, theta2.stiffness") == 1
    assert "theta2.origin.y, 0.5·link1.com.y, f(link1.inertia.xx)" in text
    assert text.count("log-Cholesky  all of link2") == 10
    assert rows[-1] == ["limit:", "+1·kappa", "-2·length", "≤", "9"]


# One sentence for every mistake

NAN = float("nan")
MISTAKES = {
    "unknown address": (lambda p: p.free("theta1.dampin"), r"'theta1.dampin'.*theta1.damping"),
    "ambiguous address": (
        lambda p: p.free("slide.origin.x"),
        r"ambiguous.*frame/slide.*joint/slide",
    ),
    "address no text": (lambda p: p.free(["a"]), r"An address is a text"),
    "unknown transform": (
        lambda p: p.free("theta1.damping", transform="log"),
        r"'theta1.damping' is 'log'; valid: none, positive, interval",
    ),
    "lower above upper": (
        lambda p: p.free("theta1.damping", bounds=(1.0, 0.0)),
        r"'theta1.damping' must be numbers with lower < upper, not \(1.0, 0.0\)",
    ),
    "bound not a number": (
        lambda p: p.free("theta1.damping", bounds=(NAN, 1)),
        r"lower < upper, not",
    ),
    "bounds no pair": (lambda p: p.free("theta1.damping", bounds=1.0), r"must be a pair, not 1.0"),
    "bounds of three": (lambda p: p.free("theta1.damping", bounds=(0, 1, 2)), r"must be a pair"),
    "start outside": (
        lambda p: p.free("theta1.damping", start=3.0, bounds=(0, 1)),
        r"start of parameter 'theta1.damping' is 3 N·m·s/rad; .* inside 0 … 1",
    ),
    "start no number": (
        lambda p: p.free("theta1.damping", start=NAN),
        r"start of .* must be finite",
    ),
    "positive at zero": (
        lambda p: p.free("theta1.damping", start=0.0, transform="positive"),
        r"with transform 'positive' it must lie inside 0 … ∞",
    ),
    "positive below zero": (
        lambda p: p.free("theta1.damping", bounds=(-1, 1), transform="positive"),
        r"0 ≤ lower < upper, not \(-1, 1\)",
    ),
    "interval half open": (
        lambda p: p.free("theta1.damping", bounds=(0, None), transform="interval"),
        r"'interval' of parameter 'theta1.damping' needs both bounds",
    ),
    "interval at its end": (
        lambda p: p.free("theta1.damping", start=0, bounds=(0, 1), transform="interval"),
        r"must lie inside 0 … 1",
    ),
    "prior std": (lambda p: p.free("theta1.damping", prior=(1, 0)), r"'theta1.damping' has std 0"),
    "prior no pair": (lambda p: p.free("theta1.damping", prior=1.0), r"prior .* shape \(2,\)"),
    "name no text": (lambda p: p.free("theta1.damping", name=" "), r"' ' is not a name"),
    "different values": (
        lambda p: p.free("theta?.damping", name="b"),
        r"'b' ties do not agree \(theta1.damping = 0.1, theta2.damping = 0.2\): give start",
    ),
    "different units": (
        lambda p: p.free("*.damping", name="b", start=1.0),
        r"'b' would tie numbers of different units \(N·m·s/rad, N·s/m\)",
    ),
    "twice": (
        lambda p: p.free("theta1.damping").free("theta?.damping", name="b", start=1.0),
        r"'theta1.damping' .* twice: by parameter 'theta1.damping' and by parameter 'b'",
    ),
    "twice in one tie": (
        lambda p: p.tie("L", {"theta2.origin.y": 1.0, "theta2.origin": 1.0}, start=1.0),
        r"'theta2.origin.y' would be moved twice: by parameter 'L' and by parameter 'L'",
    ),
    "twice by inertia": (
        lambda p: p.free("link2.com.x").free_inertia("link2"),
        r"'link2.com.x' .* by parameter 'link2.com.x' and by free_inertia\('link2'\)",
    ),
    "twice after inertia": (
        lambda p: p.free_inertia("link2").free("link2.first_moment.x"),
        r"'link2.first_moment.x' .* by free_inertia\('link2'\) and by parameter",
    ),
    "inertia twice": (
        lambda p: p.free_inertia("link2").free_inertia("link2"),
        r"'link2.mass' .* by free_inertia\('link2'\) and by free_inertia\('link2'\)",
    ),
    "two charts": (
        lambda p: p.free("link2.com.x").free("link2.first_moment.y"),
        r"'link2.com.x' and 'link2.first_moment.y' describe one body in two ways",
    ),
    "two charts in one pattern": (lambda p: p.free("link2.*"), r"describe one body in two ways"),
    "same name": (
        lambda p: p.free("theta1.damping", name="a").free("theta2.damping", name="a"),
        r"There is a parameter 'a' already",
    ),
    "name of a reported number": (
        lambda p: p.free("theta1.damping", name="link2.mass").free_inertia("link2"),
        r"There is a parameter 'link2.mass' already",
    ),
    "empty tie": (lambda p: p.tie("L", {}), r"'L' moves nothing"),
    "zero factor": (
        lambda p: p.tie("L", {"theta2.origin.y": 0.0}),
        r"'theta2.origin.y' in .* 'L' is zero",
    ),
    "factor no number": (
        lambda p: p.tie("L", {"theta2.origin.y": "x"}),
        r"factor of .* must be numbers",
    ),
    "functions only": (
        lambda p: p.tie("L", {"theta2.origin.y": lambda L: 2 * L}),
        r"'L' moves numbers by functions only: give start",
    ),
    "function not traceable": (
        lambda p: p.tie("L", {"theta2.origin.y": lambda L: float(L)}, start=1.0),
        r"function of 'theta2.origin.y' in parameter 'L' cannot be traced",
    ),
    "function of many": (
        lambda p: p.tie("L", {"theta2.origin.y": lambda L: jnp.array([L, L])}, start=1.0),
        r"must give one number, not shape \(2,\)",
    ),
    "function without value": (
        lambda p: p.tie("L", {"theta2.origin.y": lambda L: jnp.log(-L)}, start=1.0),
        r"'theta2.origin.y' at the start of parameter 'L' must be finite",
    ),
    "function disagrees": (
        lambda p: p.tie("L", {"theta2.origin.y": 1.0, "link1.com.y": lambda L: 0.7 * L}),
        r"do not agree \(theta2.origin.y = 1, link1.com.y = 0.5\)",
    ),
    "unknown body": (
        lambda p: p.free_inertia("link"),
        r"no body named 'link'.*link1.*Valid: link1",
    ),
    "massless": (lambda p: p.free_inertia("dust"), r"'dust' is massless"),
    "thin rod": (lambda p: p.free_inertia("rod"), r"'rod' has no extent along some direction"),
    "limit unknown": (
        lambda p: p.free("theta1.damping").limit({"theta1.damp": 1.0}, upper=0.0),
        r"no parameter named 'theta1.damp'. Did you mean theta1.damping",
    ),
    "limit empty": (lambda p: p.limit({}, upper=0.0), r"needs a parameter"),
    "limit zero": (
        lambda p: p.free("theta1.damping").limit({"theta1.damping": 0.0}, upper=0.0),
        r"factor that is not zero",
    ),
    "limit upper": (
        lambda p: p.free("theta1.damping").limit({"theta1.damping": 1.0}, upper=NAN),
        r"upper side of the limit on theta1.damping must be finite",
    ),
    "limit violated": (
        lambda p: p.free("theta1.damping").limit({"theta1.damping": 1.0}, upper=0.05),
        r"start violates the limit on theta1.damping: 0.1 is more than 0.05",
    ),
    "theta of wrong size": (
        lambda p: p.free("theta1.damping").values([1.0, 2.0]),
        r"theta must have shape \(1,\), not \(2,\)",
    ),
    "no mechanism": (lambda p: Parameters("arm"), r"those of a Mechanism, not of 'arm'"),
    "mechanism incomplete": (
        lambda p: Parameters(Mechanism("m").body("loose", mass=1.0)),
        r"hang on no joint: loose",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_said_in_a_sentence(mistake):
    make, sentence = MISTAKES[mistake]
    with pytest.raises(MechidError, match=sentence) as caught:
        make(Parameters(ARM))
    assert str(caught.value).count("\n") == 0


def test_a_unit_is_that_of_the_number():
    """Values are in SI: a label of another unit would print 1 kg as 1 g."""
    m = mechanisms.pendulum()
    assert Parameters(m).free("rod.mass", unit="kg").entries[0].unit == "kg"
    with pytest.raises(MechidError, match=r"^The unit of 'rod.mass' is kg, not 'g': values are in SI\.$"):
        Parameters(m).free("rod.mass", unit="g")
