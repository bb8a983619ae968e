"""Expressions of parameters that directions leave alone, against exact null spaces and SymPy's own slopes."""

from __future__ import annotations

import numpy as np
import pytest
import sympy as sm

from mechid.judge.combinations import Form, combinations, forms, were_known
from mechid.judge.symbols import structure_of_symbols
from mechid.model.symbolic.mechanism import SymbolicMechanism


def same_space(rows, others):
    """Whether two sets of whole rows span one space, exactly."""
    one, two = sm.Matrix(rows), sm.Matrix(others)
    return one.rank() == two.rank() == sm.Matrix.vstack(one, two).rank()


@pytest.mark.parametrize("product", [True, False])
@pytest.mark.parametrize("seed", range(12))
def test_whole_null_spaces_are_found_exactly(seed, product):
    """Directions of small whole numbers, in any basis: the expressions span their exact complement."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 6))
    k = int(rng.integers(1, n))
    numbers = rng.uniform(0.3, 20.0, n) * rng.choice([-1.0, 1.0], n)
    if not product:
        numbers[0] = 0.0  # of which there are no products
    free = rng.integers(-2, 3, (n - k, k))
    # rows that have a parameter of their own, and all directions that leave them alone
    exact = sm.Matrix.hstack(sm.eye(n - k), sm.Matrix(free.tolist()).reshape(n - k, k))
    whole = np.array([list(map(int, x)) for x in exact.nullspace()], float).T
    mixed = whole @ rng.normal(size=(k, k))
    null = mixed * numbers[:, None] if product else mixed
    names = [f"p{i}" for i in range(n)]
    found = forms(names, numbers, null)
    assert found is not None
    assert len(found) == n - k
    assert all(f.product == product for f in found)
    assert same_space([f.factors for f in found], exact.tolist())


@pytest.mark.parametrize(
    ("factors", "product", "text"),
    [
        ((1, -1, 0), True, "a/b"),
        ((2, 1, -1), True, "a^2*b/c"),
        ((-1, -2, 1), True, "c/(a*b^2)"),
        ((-1, 0, 0), True, "1/a"),
        ((1, 1, 0), False, "a + b"),
        ((-1, 2, -3), False, "-a + 2*b - 3*c"),
    ],
)
def test_forms_say_what_they_compute(factors, product, text):
    form = Form(("a", "b", "c"), factors, product)
    assert form.expression == text
    expression = sm.sympify(text.replace("^", "**"))
    symbols = sm.symbols("a b c")
    numbers = np.array([1.7, -2.3, 0.6])
    at = dict(zip(symbols, numbers, strict=True))
    assert form.value(numbers) == pytest.approx(float(expression.subs(at)))
    assert form.slope(numbers) == pytest.approx([float(expression.diff(s).subs(at)) for s in symbols])


def test_nothing_lost_and_everything_lost():
    numbers = np.array([1.0, 2.0])
    assert forms(["a", "b"], numbers, np.zeros((2, 0))) is None
    assert forms(["a", "b"], numbers, np.eye(2)) == ()
    assert combinations(["a", "b"], numbers, np.eye(2), np.zeros((2, 2))) == ()


def test_ratios_that_are_no_fractions_are_not_taken_for_some():
    """Of directions at random hardly any is that of an expression in whole powers."""
    rng = np.random.default_rng(0)
    taken = 0
    for _ in range(200):
        numbers = rng.uniform(0.5, 2.0, 2)
        taken += forms(["a", "b"], numbers, rng.normal(size=(2, 1))) is not None
    assert taken < 50


def test_a_zero_has_no_product():
    """a + b with a = 0."""
    found = forms(["a", "b"], np.array([0.0, 3.0]), np.array([[1.0], [-1.0]]))
    assert found is not None
    assert [f.expression for f in found] == ["a + b"]
    told = combinations(["a", "b"], np.array([0.0, 3.0]), np.array([[1.0], [-1.0]]), np.eye(2))
    assert told is not None
    assert [(c.expression, c.value, c.std) for c in told] == [("a + b", 3.0, pytest.approx(np.sqrt(2)))]


def test_parameters_that_no_direction_moves_stand_alone():
    """And stds follow from the covariance by their slopes."""
    names, numbers = ["a", "b", "c"], np.array([2.0, 5.0, 0.5])
    null = np.array([[2.0], [0.0], [0.5]])  # a and c up to a common factor
    covariance = np.diag([0.04, 0.09, 0.0])
    told = combinations(names, numbers, null, covariance)
    assert told is not None
    assert [c.expression for c in told] == ["b", "c/a"]
    assert told[0].std == pytest.approx(0.3)
    assert told[1].value == pytest.approx(0.25)
    assert told[1].std == pytest.approx(0.5 / 4.0 * 0.2)
    assert told[1].names == ("a", "c")


def test_the_equations_say_whether_it_is_a_sum_or_a_product():
    """Where a = b one direction is that of both."""
    numbers, null = np.array([2.0, 2.0]), np.array([[1.0], [-1.0]])

    def added(x):
        return [("a + b", x.sum(), np.ones(2))]

    def multiplied(x):
        return [("a*b", x.prod(), x[::-1])]

    for candidates, text in ((added, "a + b"), (multiplied, "a*b")):
        told = combinations(["a", "b"], numbers, null, np.eye(2), candidates)
        assert told is not None
        assert [c.expression for c in told] == [text]


# Before any data


def made(equation, parameters, *, constants=None, inputs="u"):
    return SymbolicMechanism.from_equations(
        "m", equation, coordinates={"p": "rad"}, parameters=parameters, constants=constants, inputs=inputs
    )


@pytest.mark.parametrize(
    ("equation", "parameters", "inputs", "told", "lost"),
    [
        ("m*p'' = u - c*p' - k*p", "mck", True, {"m", "c", "k"}, set()),
        ("m*p'' = u - c*p' - k*p", "mck", False, {"c/m", "k/m"}, {"m", "c", "k"}),
        ("(J + m*l^2)*p'' = u - m*g*l*sin(p)", "Jml", True, {"l*m", "J + l^2*m"}, {"J", "m", "l"}),
        ("m*p'' = u - (a + b)*p'", "mab", True, {"m", "a + b"}, {"a", "b"}),
        ("m*p'' = u - (a + b)*p' - k*r*p", "mabkr", True, {"m", "a + b", "k*r"}, {"a", "b", "k", "r"}),
        ("m*p'' = a*b*u - k*p", "mabk", True, {"a*b/m", "k/m"}, {"m", "a", "b", "k"}),
    ],
)
def test_what_motions_can_tell(equation, parameters, inputs, told, lost):
    """Spanning the same as what is expected, and written so where there is one way to write it."""
    values = dict(zip(parameters, (2.0, 0.5, 0.7, 1.3, 3.0), strict=False))
    m = made(equation, values, constants={"g": 9.81} if "g" in equation else None)
    found = structure_of_symbols(m, inputs=inputs)
    assert set(found.not_identifiable) == lost
    spanned(m, found.identifiable, told, parameters, values)
    assert found.sentence.endswith(".")
    for name in lost:
        assert name in found.sentence
    assert (not lost) == found.sentence.startswith("Every parameter can be told with known inputs")


def spanned(m, found, told, parameters, values):
    """Slopes of what was found and of what is expected span one space, at these values and at others."""
    symbols = [sm.Symbol(n) for n in parameters]
    for scale in (1.0, 1.37):
        at = {s: values[s.name] * scale ** (i + 1) for i, s in enumerate(symbols)}
        rows = [
            np.array([[float(e.diff(s).subs(at)) * at[s] for s in symbols] for e in map(parsed, texts)])
            for texts in (found, told)
        ]
        ranks = [np.linalg.matrix_rank(r, tol=1e-9) for r in (*rows, np.concatenate(rows))]
        assert ranks[0] == ranks[1] == ranks[2] == len(found) == len(told)


def parsed(text):
    return sm.sympify(text.replace("^", "**"), locals={n: sm.Symbol(n) for n in "mcklJabrg"})


def test_parameters_whose_values_are_alike():
    """A sum of equal parts, which one direction does not tell from a product."""
    m = made("m*p'' = u - (a + b)*p'", {"m": 2.0, "a": 0.5, "b": 0.5})
    assert set(structure_of_symbols(m).identifiable) == {"m", "a + b"}


def test_parts_within_a_constraint():
    """A mass on a circle by gravity alone: its radius is told, its mass is not."""
    m = SymbolicMechanism.from_lagrangian(
        "bob",
        "m/2*(x'^2 + y'^2) - m*g*y",
        coordinates={"x": "m", "y": "m"},
        parameters={"m": 2.0, "k": 0.5},
        constants={"g": 9.81},
        constraints={"rod": "x^2 + y^2 = 1"},
        forces={"x": "-k*x'"},
    )
    found = structure_of_symbols(m)
    assert set(found.identifiable) == {"k/m"}
    assert set(found.not_identifiable) == {"m", "k"}


def test_a_known_constant_in_a_sum_stays_in_it():
    """k + g m is told, not k + m."""
    m = made("J*p'' = u - (k + g*m)*p", {"J": 2.0, "k": 3.0, "m": 0.7}, constants={"g": 9.81})
    found = structure_of_symbols(m)
    assert set(found.not_identifiable) == {"k", "m"}
    (mixed,) = set(found.identifiable) - {"J"}
    expression = parsed(mixed)
    k, mass, g = sm.symbols("k m g")
    assert sm.simplify(expression - (k + g * mass)) == 0


def test_what_hides_behind_another_is_told_if_that_one_were_known():
    """Rows on x − z/2 and y + z/10: with z known they are rows on x and y; w is told all the same."""
    rows = np.array([[1.0, 0.0, -0.5, 0.0], [0.0, 1.0, 0.1, 0.0], [0.0, 0.0, 0.0, 1.0]])
    noise = np.array([1e-3, 2e-3, 5e-3])
    null = np.array([[0.5], [-0.1], [1.0], [0.0]])
    covariance = np.linalg.pinv(rows.T @ np.diag(noise**-2.0) @ rows)
    numbers, sizes = np.array([0.01, 0.02, 0.3, 4.0]), np.array([1.0, 1.0, 1.0, 4.0])
    known = were_known(["x", "y", "z", "w"], numbers, sizes, null, covariance)
    assert known is not None
    assert {c.expression: c.value for c in known.given} == {"z": 0.3}
    told = {c.expression: c for c in known.told}
    assert set(told) == {"x", "y"}
    alone = np.linalg.inv(rows[:, [0, 1, 3]].T @ np.diag(noise**-2.0) @ rows[:, [0, 1, 3]])
    for name, variance in zip("xy", np.diag(alone), strict=False):
        assert np.isclose(told[name].std ** 2, variance, rtol=1e-6)


def test_nothing_hides_behind_what_acts_on_nothing_else():
    null = np.array([[0.0], [1.0]])
    assert were_known(["a", "b"], np.ones(2), np.ones(2), null, np.diag([1e-4, 0.0])) is None
