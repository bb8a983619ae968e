"""Mechanisms in symbols: texts and SymPy alike, equations by hand, printed forms read back, SymPy's own methods."""

from __future__ import annotations

import re
import time

import jax.numpy as jnp
import numpy as np
import pytest
import sympy as sm
import sympy.physics.mechanics as me
from sympy.parsing.sympy_parser import implicit_multiplication, parse_expr, standard_transformations

from mechid import BDF, MechidError, simulate
from mechid.dynamics.bdf import ALPHA
from mechid.dynamics.onestep import OneStep
from mechid.dynamics.rates import State
from mechid.judge.symbols import structure_of_symbols
from mechid.model.symbolic import printing
from mechid.model.symbolic.expressions import Symbols
from mechid.model.symbolic.files import read_symbolic
from mechid.model.symbolic.mechanism import SymbolicMechanism

SPRING = {"coordinates": {"s": "m"}, "parameters": {"m": (2.0, "kg"), "c": 0.3, "k": 40.0}}
CART = {
    "coordinates": {"s": "m", "phi": "rad"},
    "parameters": {"M": (1.1, "kg"), "m": (0.3, "kg"), "l": (0.5, "m")},
    "constants": {"g": (9.81, "m/s²")},
    "inputs": {"u": "N"},
}
CART_ENERGY = "(M + m)/2*s'^2 + m*l*cos(phi)*s'*phi' + m*l^2/2*phi'^2 - m*g*l*cos(phi)"


def spring(**more):
    return SymbolicMechanism.from_lagrangian(
        "mass-spring", "m*s'^2/2 - k*s^2/2 + m*g*s", dissipation="c*s'^2/2", constants={"g": 9.81}, **SPRING, **more
    )  # fmt: skip


def cart():
    return SymbolicMechanism.from_lagrangian("cart-pendulum", CART_ENERGY, forces={"s": "u"}, **CART)


def numbers(expression, **values):
    """An expression of SymPy in plain numbers; rates and accelerations named s_d and s_dd."""
    named = {x: values[x.name.replace("''", "_dd").replace("'", "_d")] for x in expression.free_symbols}
    return float(expression.xreplace(named))


def accelerations(m, q, v, u=()):
    """q̈ of M q̈ + Cᵀ λ = h under constraints on coordinates and on rates, by NumPy."""
    s = m.symbols
    given = [*s.q, *s.v, *s.u, *s.theta]
    rows = (
        sm.Matrix([c.value for c in m.constraints]).jacobian(list(s.q))
        if m.constraints
        else sm.zeros(0, len(q))
    )
    opening = [*(rows * sm.Matrix(list(s.v)) if m.constraints else ()), *(c.value for c in m.rolling)]
    slope = sm.Matrix(opening).jacobian(list(s.v)) if opening else sm.zeros(0, len(q))
    bend = sm.Matrix(opening).jacobian(list(s.q)) * sm.Matrix(list(s.v)) if opening else sm.zeros(0, 1)
    at = (*q, *v, *u, *m.values[: len(s.theta)])
    M, h, C, b = (
        np.array(sm.lambdify(given, x, "numpy")(*at), float) for x in (m.mass_matrix, m.rest, slope, bend)
    )
    C, b = C.reshape(-1, len(q)), b.reshape(-1)
    K = np.block([[M, C.T], [C, np.zeros((len(C), len(C)))]])
    return np.linalg.solve(K, np.concatenate([h.ravel(), -b]))[: len(q)]


# Texts


KNOWN = Symbols(("x", "phi", "lambda"), ("a", "b_1", "µ"), ("u",))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a*x'^2/2 - b_1*cos(phi)", 2.0 * 0.7**2 / 2 - 3.0 * np.cos(0.2)),
        ("x''*a + phi'' *2", 1.3 * 2.0 + 0.9 * 2),
        ("-x^2 + +x", -(0.5**2) + 0.5),
        ("2^-1*x**3", 0.5 * 0.5**3),
        ("a / b_1 / 2 - 1e-3", 2.0 / 3.0 / 2 - 1e-3),
        ("atan2(sin(phi), exp(x)) + sqrt(a)*abs(-x)", np.arctan2(np.sin(0.2), np.exp(0.5)) + np.sqrt(2) * 0.5),
        ("pi*u + log(a) + t", np.pi * 0.4 + np.log(2.0) + 6.0),
        ("lambda'*lambda + µ", 0.11 * 0.1 + 5.0),
        ("a*x\n   + b_1*phi'\n", 2.0 * 0.5 + 3.0 * 0.8),
        ("sign(-a) + tanh(x) + asin(x) + acos(x)", -1 + np.tanh(0.5) + np.pi / 2),
    ],
)  # fmt: skip
def test_a_text_means_what_it_says(text, value):
    found = KNOWN.expression(text, "it")
    # Python spells what stands in its own source µ as μ
    known = {"a": 2.0, "b_1": 3.0, "\u00b5": 5.0, "u": 0.4, "t": 6.0}
    at = {
        "x": 0.5,
        "x_d": 0.7,
        "x_dd": 1.3,
        "phi": 0.2,
        "phi_d": 0.8,
        "phi_dd": 0.9,
        "lambda": 0.1,
        "lambda_d": 0.11,
    }
    assert numbers(found, **at, **known) == pytest.approx(value, rel=1e-14)


def test_texts_and_sympy_give_the_same():
    """Functions of time with their derivatives, plain symbols, symbols with assumptions."""
    s, phi, u = me.dynamicsymbols("s phi u")
    M, m, l, g = sm.symbols("M m l g", positive=True)
    energy = (M + m) / 2 * s.diff() ** 2 + m * l * sm.cos(phi) * s.diff() * phi.diff()
    energy += m * l**2 / 2 * phi.diff() ** 2 - m * g * l * sm.cos(phi)
    made = SymbolicMechanism.from_lagrangian(
        "cart",
        energy,
        coordinates={s: "m", phi: "rad"},
        parameters={M: 1.1, m: 0.3, l: 0.5},
        constants={g: 9.81},
        inputs={u: "N"},
        forces={s: u},
    )
    written = cart()
    assert made.balance == written.balance
    assert made.coordinate_names == written.coordinate_names
    equations = SymbolicMechanism.from_equations(
        "cart", [sm.Eq(x, 0) for x in (row.xreplace({}) for row in written.balance)], **CART
    )
    assert sm.simplify(sm.Matrix(equations.balance) - sm.Matrix(written.balance)) == sm.zeros(2, 1)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("x.__class__", "'x.__class__' in it is no part of a formula"),
        ("x.y", "'x.y' in it is no part of a formula"),
        ("__import__(x)", "'__import__' in it is no function that is known; valid: sin, cos"),
        ("open(x)", "'open' in it is no function"),
        ("eval(x)", "'eval' in it is no function"),
        ("(sin)(x)(x)", "is no part of a formula"),
        ("__builtins__", "'__builtins__' in it is neither coordinate, parameter nor input"),
        ("(lambda: x)()", "It, '(lambda: x)()', cannot be read as a formula"),
        ("[x for x in a]", "is no part of a formula"),
        ("(x := a)", "is no part of a formula"),
        ("x if a else u", "is no part of a formula"),
        ("{x: a}", "is no part of a formula"),
        ("x[0]", "'x[0]' in it is no part of a formula"),
        ("x' // 2", "'x' // 2' in it is no part of a formula"),
        ("x @ x", "is no part of a formula"),
        ("a < x", "is no part of a formula"),
        ('"os"', "is no part of a formula"),
        ("1j", "is no part of a formula"),
        ("True", "'True' in it is no number"),
        ("None", "is no part of a formula"),
        ("sin(x=a)", "is no part of a formula"),
        ("sin(*x)", "is no part of a formula"),
        ("sin(x, x)", "'sin(x, x)' in it has too many or too few arguments"),
        ("sqrt(x', 2)", "'sqrt(x', 2)' in it has too many or too few arguments"),
        ("atan2(x)", "has too many or too few arguments"),
        ("x; import os", "cannot be read"),
        ("import os", "cannot be read"),
        ("x''''", "cannot be read"),
        ("", "It, '', cannot be read"),
        ("\ud800", "cannot be read"),
        ("a +* x", "cannot be read"),
        ("x^1000", "It has a power of 1000; at most 100"),
        ("9^9^9", "It has a power of 9^9; at most 100"),
        ("((9^99)^99)^99", "'(9^99)^99' in it is no number that can be used"),
        ("x/0", "It holds a division by zero"),
        ("1/0", "'1 / 0' in it is no number"),
        ("x^(0/0)", "is no number"),
        ("x*1e999", "It holds 1e999, a number beyond those that can be used, 1e-300 to 1e300."),
        ("x*sqrt(-1)", "It holds a number that is not real"),
        ("x*log(0)", "It holds"),
        ("x + exp(exp(exp(100)))", "'exp(exp(100))' in it is no number that can be used"),
        ("x*asin(2)", "'asin(2)' in it is no number that can be used"),
        ("x__rate1", "cannot be part of a name"),
        ("-" * 60_000 + "x", "It is nested too deeply"),
        ("x" * 200_000, "It has 200000 characters; at most 100000"),
        ("y", "'y' in it is neither coordinate, parameter nor input; valid: coordinates x, phi, lambda; para"),
        ("a'", "'a'' in it is neither coordinate"),
    ],
)  # fmt: skip
def test_what_is_no_formula_is_refused_in_a_sentence(text, told):
    with pytest.raises(MechidError) as caught:
        KNOWN.expression(text, "it")
    message = str(caught.value)
    assert told in message
    assert message.endswith(".")
    assert len(message) < 700


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "a*x\u2019 + u",
            "character 4 is '\u2019' (right single quotation mark); a rate is written with a plain '",
        ),
        ("x \u2212 a", "character 3 is '\u2212' (minus sign); minus is written -"),
        ("a + x\u00b2", "character 6 is '\u00b2' (superscript two); a power is written ^2"),
        ("a\u00b7x", "character 2 is '\u00b7' (middle dot); a product is written *"),
        ("x + a_{1}", "character 7 is '{' (left curly bracket); a name is written plainly, m_1 for m_{1}"),
        ("x; a", "character 2 is ';' (semicolon); it means nothing in a formula"),
        ("2x + a", "behind '2' at character 1 an operator is missing, such as *"),
        ("u + a x", "behind 'a' at character 5 an operator is missing, such as *"),
        ("(x + a) u", "behind ')' at character 7 an operator is missing, such as *"),
        ("x' phi", "behind 'x'' at character 1 an operator is missing, such as *"),
        ("x*(a + (u)", "the bracket ( at character 3 is not closed"),
        ("x + a)", "the bracket ) at character 6 closes none"),
        ("x +* a", "at '+*', character 3, a number or a name is missing"),
        ("a*'x'", "the ' at character 3 is no rate of a name"),
        ("sin x", "'sin' at character 1 needs brackets, sin(\u2026)"),
        ("", "there is nothing in it"),
    ],
)
def test_what_is_odd_about_a_text_is_named_with_its_place(text, told):
    with pytest.raises(MechidError) as caught:
        KNOWN.expression(text, "it")
    assert str(caught.value).startswith(f"It, '{text}', cannot be read as a formula: {told}")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a(x + 1)", "'a' in it is no function: write a*(…) for a product with what is in brackets."),
        ("1,5*x", "'(1, 5 * x)' in it is no part of a formula: numbers have decimal points."),
        ("1e-999*x", "It holds 1e-999, a number beyond those that can be used, 1e-300 to 1e300."),
    ],
)
def test_what_was_meant_is_told(text, told):
    with pytest.raises(MechidError) as caught:
        KNOWN.expression(text, "it")
    assert str(caught.value) == told


@pytest.mark.parametrize("piece", ["x", "1", "'", "x ", "(", "1.", "x'", "1e", "x''", ")", " +", "1 "])
def test_long_texts_are_soon_refused(piece):
    began = time.perf_counter()
    with pytest.raises(MechidError):
        KNOWN.expression((piece * 99_999)[:99_999], "it")
    assert time.perf_counter() - began < 3.0


def test_names_written_for_latex():
    """Braces and backslashes are no part of a name."""
    t = me.dynamicsymbols._t
    q, m, k = sm.Function("\\theta_{1}")(t), sm.Symbol("m_{1}"), sm.Symbol("k")
    made = SymbolicMechanism.from_equations(
        "x", sm.Eq(m * q.diff(t, 2), -k * q), coordinates={q: "rad"}, parameters={m: 2.0, "k": 3.0}
    )
    assert made.coordinate_names == ("theta_1",)
    assert [p.name for p in made.parameters] == ["m_1", "k"]
    assert accelerations(made, [0.4], [0.0]) == pytest.approx([-0.6])
    w = sm.Function("\\omega_{1}")(t)
    N, O, P = me.ReferenceFrame("N"), me.Point("O"), me.Point("P")
    O.set_vel(N, 0)
    P.set_vel(N, w * N.x)
    method = me.KanesMethod(N, [q], [w], kd_eqs=[q.diff(t) - w])
    method.kanes_equations([me.Particle("p", P, m)], [(P, -k * q * N.x)])
    kane = SymbolicMechanism.from_method(method, parameters={m: 2.0, k: 3.0}, units={q: "m"})
    assert kane.coordinate_names == ("theta_1",)
    assert accelerations(kane, [0.4], [0.0]) == pytest.approx([-0.6])


def test_letters_that_are_one():
    with pytest.raises(
        MechidError, match="'\u03c6' and '\u03d5' are one name in a formula: give one of them another"
    ):
        SymbolicMechanism.from_equations(
            "x", "s'' = -\u03c6*s", coordinates={"s": "m"}, parameters={"\u03c6": 1.0, "\u03d5": 2.0}
        )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "[coordinates]\n\u03c6 = 'rad'",
            'a name with letters beyond a to z stands in quotes: "\u03c6" = ….',
        ),
        ("parameters = {m_\u03c6 = 1.0}", 'stands in quotes: "m_\u03c6" = ….'),
        ("equations = ['m*s'' = -k*s']", "a text with primes stands in double quotes: \"m*s'' = u\"."),
        ("lagrangian = 'm*s'^2/2'", "a text with primes stands in double quotes"),
        ("a = = 2", "it is not TOML: Invalid value (at line 1, column 5)."),
    ],
)
def test_files_that_are_no_toml(text, told):
    with pytest.raises(MechidError) as caught:
        read_symbolic(text, "x")
    assert str(caught.value).startswith("it is not TOML: ")
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("m = {value = true}", "The value of parameter 'm' must be a number, not True."),
        ('m = {value = "1.0"}', "The value of parameter 'm' must be a number, not '1.0'."),
        ("m = true", "The value of parameter 'm' must be a number, not True."),
        (
            "m = 1.0\n[delays]\nu = -0.1",
            "The delay of input 'u' must be ≥ 0 s, not -0.1: no input acts before",
        ),
        ("m = 1.0\n[delays]\nu = true", "The delay of input 'u' must be a number, not True."),
    ],
)
def test_values_in_files_are_numbers(more, told):
    text = (
        f'equations = ["m*s\'\' = u"]\ncoordinates = {{s = "m"}}\ninputs = {{u = "N"}}\n[parameters]\n{more}'
    )
    with pytest.raises(MechidError) as caught:
        read_symbolic(text, "x")
    assert str(caught.value).startswith(told)


def test_nothing_in_a_text_is_evaluated(monkeypatch):
    """A function that every evaluated text could call is never called, nor are those behind known names."""
    called = []
    monkeypatch.setattr("builtins.tripwire", lambda *a: called.append(a), raising=False)
    for text in (
        "tripwire()",
        "x + tripwire(x)",
        "sin(tripwire())",
        "(lambda x: tripwire())(1)",
        "tripwire",
        "x.tripwire",
        "[tripwire() for _ in x]",
        "f'{tripwire()}'",
        "x if tripwire() else x",
        "sin.tripwire(x)",
    ):
        with pytest.raises(MechidError):
            KNOWN.expression(text, "it")
    assert eval("tripwire()") is None  # it can be called
    assert called == [()]


def test_expressions_of_sympy_that_cannot_be_used():
    t = sm.Symbol("t")
    x = sm.Function("x")(t)
    for given, told in (
        (x.diff(t, 3), "only first and second derivatives of coordinates by t"),
        (sm.gamma(sm.Symbol("x")), r"holds gamma\(x\), which is not known"),
        (sm.Integral(sm.Symbol("a"), sm.Symbol("x")), "which is not known"),
        (sm.eye(2), "must be one expression, not ImmutableDenseMatrix"),
        (sm.true, "must be one expression"),
        (object(), "must be a text or a SymPy expression"),
        (sm.nan, "does not exist"),
        (sm.I * sm.Symbol("x"), "not real"),
        (sm.Symbol("y"), "'y' in it is neither"),
        (
            sm.Function("a")(x),
            r"It holds a\(x\(t\)\): a function that is not known here may depend on t alone",
        ),
        (sm.Function("a")(t, x), r"It holds a\(t, x\(t\)\): a function"),
        (sm.Function("a")(2), r"It holds a\(2\): a function"),
    ):
        with pytest.raises(MechidError, match=told):
            KNOWN.expression(given, "it")


# Lagrangians and equations


def test_the_mass_on_a_spring_is_equation_9():
    """m s̈ = u − c ṡ − k s with u = m g."""
    m = spring()
    at = {"m": 2.0, "c": 0.3, "k": 40.0, "g": 9.81, "s": 0.2, "s_d": -1.5}
    acceleration = (2.0 * 9.81 - 0.3 * -1.5 - 40.0 * 0.2) / 2.0
    assert numbers(m.balance[0], **at, s_dd=acceleration) == pytest.approx(0.0, abs=1e-14)
    assert numbers(m.balance[0], **at, s_dd=acceleration + 1.0) == pytest.approx(2.0)


def test_the_cart_is_equation_12():
    """With m g l sin φ, where the note's (10) and (12) lost the l."""
    u, M, m, l, g, phi, rate = 0.7, 1.1, 0.3, 0.5, 9.81, 0.4, -2.0
    inertia = [[M + m, m * l * np.cos(phi)], [m * l * np.cos(phi), m * l**2]]
    rest = [u + m * l * np.sin(phi) * rate**2, m * g * l * np.sin(phi)]
    wanted = np.linalg.solve(inertia, rest)
    assert accelerations(cart(), [0.1, phi], [0.6, rate], [u]) == pytest.approx(wanted, rel=1e-13)
    texts = [
        "(M + m)*s'' - m*l*sin(phi)*phi'^2 + m*l*cos(phi)*phi'' = u",
        "m*l*cos(phi)*s'' + m*l^2*phi'' - m*g*l*sin(phi) = 0",
    ]
    written = SymbolicMechanism.from_equations("cart", texts, **CART)
    assert accelerations(written, [0.1, phi], [0.6, rate], [u]) == pytest.approx(wanted, rel=1e-13)


def test_time_and_rates_in_a_lagrangian():
    """A bead on a wire that turns at ω, its spring's rest moving with time: m r̈ = m ω² r − k (r − sin 3t) − b."""
    m = SymbolicMechanism.from_lagrangian(
        "bead",
        "m/2*(r'^2 + r^2*w^2) - k/2*(r - sin(3*t))^2 + b*t*r'",
        coordinates={"r": "m"},
        parameters={"m": 2.0, "w": 3.0, "k": 5.0, "b": 0.7},
    )
    at = {"r": 0.4, "r_d": 9.0, "m": 2.0, "w": 3.0, "k": 5.0, "b": 0.7, "t": 0.2}
    wanted = (2.0 * 9.0 * 0.4 - 5.0 * (0.4 - np.sin(0.6)) - 0.7) / 2.0
    assert numbers(m.balance[0], **at, r_dd=wanted) == pytest.approx(0.0, abs=1e-14)


def test_absolute_values_have_slopes():
    """Air drag: D = c|ṡ|³/3 slows by c ṡ|ṡ|."""
    m = SymbolicMechanism.from_lagrangian(
        "drag", "m*s'^2/2", dissipation="c*abs(s')^3/3", coordinates={"s": "m"}, parameters={"m": 2.0, "c": 0.5}
    )  # fmt: skip
    assert accelerations(m, [0.0], [-3.0]) == pytest.approx([0.5 * 9.0 / 2.0])


# What is printed, read back


def from_text(table):
    """Rows of a printed general form: expressions with ^ and primes, cells two blanks apart."""
    blocks, name = {}, ""
    for line in table.splitlines()[1:]:
        start = line[:14].strip()
        name = start or name
        cells = re.split(r"\s{2,}", line[15:].strip().strip("[]").strip())
        blocks.setdefault(name, []).append([parsed(c) for c in cells] if name != "θ" else cells)
    return blocks


def parsed(text):
    plain = text.replace("^", "**").replace("''", "_dd").replace("'", "_d")
    return parse_expr(
        plain, {n: sm.Symbol(n) for n in re.findall(r"[A-Za-z]\w*", plain) if n not in ("sin", "cos")}
    )


def from_latex(text):
    """What SymPy's printer wrote, without the packages that its own reader needs."""
    while (start := text.find(r"\frac")) >= 0:
        above, end = braced(text, start + 5)
        below, end = braced(text, end)
        text = f"{text[:start]} (({above})/({below})) {text[end:]}"
    text = re.sub(r"\\d?dot\{\\?(\w+)\}", r" \1_d ", text)
    text = re.sub(r"\\?([A-Za-z]+)_\{j-(\d)\}", r" \1_\2 ", text)
    text = re.sub(r"\\?([A-Za-z]+)_\{j\}", r" \1_0 ", text)
    text = re.sub(r"\\left|\\right", "", text)
    text = re.sub(r"\\(sin|cos)\{(\(.*?\)\s*)\}", r" \1\2", text)
    text = re.sub(r"\^\{(\d)\}", r"**\1", text).replace("\\", "")
    names = {n: sm.Symbol(n) for n in re.findall(r"[A-Za-z]\w*", text) if n not in ("sin", "cos")}
    return parse_expr(text, names, (*standard_transformations, implicit_multiplication))


def braced(text, start):
    """What stands in the braces that open at a place, and where they end."""
    depth, i = 0, start
    while True:
        depth += {"{": 1, "}": -1}.get(text[i], 0)
        i += 1
        if not depth:
            return text[start + 1 : i - 1], i


def matrix_of(latex):
    inside = re.sub(r"\\(begin|end)\{bmatrix\}", "", latex)
    return sm.Matrix([[from_latex(x) for x in row.split("&")] for row in inside.split(r"\\")])


def tabular(latex):
    rows = re.findall(r"^\$(.*?)\$ & \$(.*)\$ \\\\$", latex, re.M)
    return dict(rows)


def test_table_2_comes_out():
    m, c, k, g, s, rate = sm.symbols("m c k g s s_d")
    form = spring().general_form()
    text = from_text(form.text())
    assert text["q(t)"] == [[s]]
    assert text["M(q(t))"] == [[m]]
    assert text["u(t)"] == [[0]]
    assert sm.expand(text["h(q(t), q'(t))"][0][0] - (m * g - c * rate - k * s)) == 0
    assert form.theta == ("s(t1)", "s'(t1)", "m", "c", "k")
    assert "[s(t1), s'(t1), m, c, k]" in form.text()
    latex = tabular(form.latex())
    assert from_latex(latex["M(q(t))"]) == m
    assert from_latex(latex["u(t)"]) == 0
    assert sm.expand(from_latex(latex[r"h(q(t), \dot q(t))"]) - (m * g - c * rate - k * s)) == 0
    assert latex[r"\theta"] == r"\left[s(t_1), \dot{s}(t_1), m, c, k\right]^T"
    # a force that is measured stands on its own side
    pushed = spring(inputs={"u": "N"}, forces={"s": "u"}).general_form()
    assert from_text(pushed.text())["u(t)"] == [[sm.Symbol("u")]]


def test_table_3_comes_out():
    M, m, l, g, phi, rate, u, s = sm.symbols("M m l g phi phi_d u s")
    inertia = sm.Matrix([[M + m, m * l * sm.cos(phi)], [m * l * sm.cos(phi), m * l**2]])
    rest = sm.Matrix([m * l * sm.sin(phi) * rate**2, m * g * l * sm.sin(phi)])
    form = cart().general_form()
    text = from_text(form.text())
    latex = tabular(form.latex())
    zero = sm.zeros
    for found in (sm.Matrix(text["M(q(t))"]), matrix_of(latex["M(q(t))"])):
        assert sm.expand(found - inertia) == zero(2, 2)
    for found in (sm.Matrix(text["h(q(t), q'(t))"]), matrix_of(latex[r"h(q(t), \dot q(t))"])):
        assert sm.expand(found - rest) == zero(2, 1)
    for found in (sm.Matrix(text["u(t)"]), matrix_of(latex["u(t)"])):
        assert found == sm.Matrix([u, 0])
    for found in (sm.Matrix(text["q(t)"]), matrix_of(latex["q(t)"])):
        assert found == sm.Matrix([s, phi])
    assert form.theta == ("s(t1)", "s'(t1)", "phi(t1)", "phi'(t1)", "M", "m", "l")


def test_inputs_that_enter_otherwise_stand_among_the_inputs():
    m = SymbolicMechanism.from_equations(
        "valve", "m*s'' + k*s = 1/u + sin(u)*s", coordinates={"s": "m"}, parameters={"m": 1.0, "k": 2.0}, inputs="u"
    )  # fmt: skip
    form = m.general_form()
    s, k, u = (m.symbols.all[n] for n in ("s", "k", "u"))
    assert form.h[0] == -k * s
    assert sm.expand(form.u[0] - 1 / u - sm.sin(u) * s) == 0


def test_both_tables_of_coefficients_are_one():
    """And each is exact for polynomials up to its order."""
    for k, used in enumerate(ALPHA, start=1):
        fractions = printing.backward_differences(k)
        assert [float(f) for f in fractions] == list(used)
        for power in range(k + 1):
            slope = sum(f * sm.Integer(-i) ** power for i, f in enumerate(fractions))
            assert slope == (1 if power == 1 else 0)


@pytest.mark.parametrize("order", range(1, 7))
def test_the_discrete_constraints_are_those_of_bdf(order):
    """Printed as text and LaTeX, evaluated; against (12) with differences by hand, and the stepper's rows."""
    h, count = 0.02, 2 * order + 1
    rng = np.random.default_rng(order)
    past = 0.1 * rng.normal(size=(count, 2))  # newest first
    u, M, m, l, g = 0.7, 1.1, 0.3, 0.5, 9.81
    alpha = np.array(ALPHA[order - 1])
    rates = np.array([alpha @ past[i : i + order + 1] / h for i in range(order + 1)])
    s_dd, phi_dd = alpha @ rates / h
    phi, rate = past[0, 1], rates[0, 1]
    wanted = [
        (M + m) * s_dd + m * l * np.cos(phi) * phi_dd - m * l * np.sin(phi) * rate**2 - u,
        m * l * np.cos(phi) * s_dd + m * l**2 * phi_dd - m * g * l * np.sin(phi),
    ]
    at = {"M": M, "m": m, "l": l, "g": g, "u_0": u, "Delta": h}
    at |= {f"{n}_{i}": past[i, j] for i in range(count) for j, n in enumerate(("s", "phi"))}
    made = cart()
    printed = made.discretized(order)
    # names with their step behind them, s_3 for s_(j-3)
    plain = re.sub(r"(\w+)_j", r"\1_0", re.sub(r"(\w+)_\(j-(\d+)\)", r"\1_\2", printed))
    text = [[parsed(side) for side in line.split(" = ")] for line in plain.splitlines()]
    found = [
        float((left - right).xreplace({x: at[x.name] for x in (left - right).free_symbols}))
        for left, right in text
    ]
    assert found == pytest.approx(wanted, rel=1e-9, abs=1e-9)
    if order <= 2:
        lines = made.discretized(order, latex=True).splitlines()[1:-1]
        for line, value in zip(lines, wanted, strict=True):
            left, right = (from_latex(side) for side in line.removesuffix(r"\\").split("&="))
            both = (left - right).xreplace({x: at[x.name] for x in (left - right).free_symbols})
            assert float(both) == pytest.approx(value, rel=1e-9, abs=1e-9)
    states = State(jnp.asarray(past[: order + 1][::-1]), jnp.asarray(rates[::-1]))
    rows = BDF(h, order=order).residual(
        states, jnp.zeros(0), jnp.array([u]), 0.0, jnp.asarray(order), made.lower()
    )
    assert np.abs(rows[:2]).max() < 1e-13
    assert np.asarray(rows[2:]) / h == pytest.approx(wanted, rel=1e-9, abs=1e-9)


def test_discrete_constraints_of_closed_loops_and_rolling():
    """Forces of constraints stand in the rows of both kinds: λ ∂c/∂q and λ ∂c/∂q̇."""
    m = SymbolicMechanism.from_lagrangian(
        "skate", "m/2*(x'^2 + y'^2) + J/2*th'^2", coordinates=["x", "y", "th"], parameters={"m": 1.0, "J": 2.0},
        constraints={"line": "x - 2*y"}, rolling={"blade": "x'*sin(th) - y'*cos(th)"},
    )  # fmt: skip
    rows = m.discretized(1).splitlines()
    assert len(rows) == 5
    plain = [re.sub(r"(\w+)_j", r"\1_0", re.sub(r"(\w+)_\(j-(\d+)\)", r"\1_\2", r)) for r in rows]
    left = [parsed(r.split(" = ")[0]) for r in plain]
    one, two, th = sm.symbols("lambda1_0 lambda2_0 th_0")
    assert [x.diff(one) for x in left] == [1, -2, 0, 0, 0]
    assert [x.diff(two) for x in left] == [sm.sin(th), -sm.cos(th), 0, 0, 0]
    with pytest.raises(MechidError, match="no BDF of order 7; valid: 1, 2, 3, 4, 5, 6"):
        m.discretized(7)


def test_names_with_lower_dashes_in_latex():
    m = SymbolicMechanism.from_equations("a", "m_1*q_1'' = 0", coordinates=["q_1"], parameters={"m_1": 1.0})
    assert "q_{1}_{j-1}" in m.discretized(1, latex=True)


def test_constraints_stand_in_latex_too():
    m = SymbolicMechanism.from_lagrangian(
        "skate", "m/2*(x'^2 + y'^2)", coordinates=["x", "y"], parameters={"m": 1.0},
        constraints={"line": "x^2 - 2*y"}, rolling={"blade": "x'*sin(y) - y'"},
    )  # fmt: skip
    lines = m.general_form().latex().splitlines()
    assert lines[6:8] == [
        r"constraints & $0 = x^{2} - 2 y$ \\",
        r" & $0 = \dot{x} \sin{\left(y \right)} - \dot{y}$ \\",
    ]
    assert lines[8].startswith(r"$\theta$")


@pytest.mark.parametrize("number", ["9.81", "0.1", "1.0e-20", "2.5e+30", "123456789.12345679"])
def test_numbers_print_as_they_were_typed(number):
    m = SymbolicMechanism.from_equations(
        "x", f"m*s'' = -{number}*s", coordinates={"s": "m"}, parameters={"m": 1.0}
    )
    assert f"  -{number}*s" in m.general_form().text()
    assert f" = -{number}*s_j" in m.discretized(1)
    assert accelerations(m, [1.0], [0.0]) == [-float(number)]
    if "e" not in number:
        assert f"$- {number} s$" in m.general_form().latex()


def test_numbers_alone_and_worked_out_print_short():
    m = SymbolicMechanism.from_equations(
        "x", "2.5*s'' = -(0.1*3)*s + a", coordinates={"s": "m"}, parameters={"a": 1.0}
    )
    text = m.general_form().text()
    assert "  2.5\n" in text
    assert "0.3*s" in text


@pytest.mark.parametrize(("taken", "step", "force"), [("Delta", "dt", "lambda"), ("lambda1", "Delta", "mu")])
def test_the_step_and_forces_have_names_of_their_own(taken, step, force):
    m = SymbolicMechanism.from_lagrangian(
        "x", f"m/2*(x'^2 + y'^2) - {taken}*y", coordinates=["x", "y"], parameters={"m": 1.0, taken: 2.0},
        constraints=["x - 2*y"],
    )  # fmt: skip
    first, second, _ = m.discretized(1).splitlines()
    assert first == f"{force}1_j + m*(-2*x_(j-1) + x_(j-2) + x_j)/{step}^2 = 0"
    assert second.endswith(f" = -{taken}")


def test_linear_parameters():
    assert spring().linear_parameters() == ("m", "c", "k")
    m = SymbolicMechanism.from_equations(
        "a", "J*p'' + m*l*g*sin(p) + c*p'^3 = T", coordinates=["p"],
        parameters={"J": 1.0, "m": 1.0, "l": 1.0, "c": 0.1}, constants={"g": 9.81, "T": 0.5},
    )  # fmt: skip
    assert m.linear_parameters() == ("J", "m", "c")


# SymPy's methods


def pendulum_by(kind):
    """A rod on a hinge with a torque, by each of SymPy's methods."""
    th, w, T = me.dynamicsymbols("th w T")
    m, l, J, g = sm.symbols("m l J g")
    N, B = me.ReferenceFrame("N"), me.ReferenceFrame("B")
    B.orient_axis(N, N.z, th)
    O = me.Point("O")
    O.set_vel(N, 0)
    if kind == "kane":
        B.set_ang_vel(N, w * N.z)
    c = O.locatenew("c", -l * B.y)
    c.v2pt_theory(O, N, B)
    body = me.RigidBody("rod", c, B, m, (me.inertia(B, 0, 0, J), c))
    loads = [(B, T * N.z), (c, -m * g * N.y)]
    if kind == "kane":
        method = me.KanesMethod(N, [th], [w], kd_eqs=[th.diff() - w])
        method.kanes_equations([body], loads)
    else:
        method = me.LagrangesMethod(me.Lagrangian(N, body), [th], forcelist=loads, frame=N)
    return SymbolicMechanism.from_method(
        method, parameters={"m": 2.0, "l": 0.5, "J": 0.1}, constants={"g": 9.81}, inputs={T: "N·m"}
    )


@pytest.mark.parametrize("kind", ["kane", "lagrange"])
def test_a_pendulum_by_both_methods(kind):
    m = pendulum_by(kind)
    wanted = (0.4 - 2.0 * 9.81 * 0.5 * np.sin(0.7)) / (0.1 + 2.0 * 0.25)
    assert accelerations(m, [0.7], [1.3], [0.4]) == pytest.approx([wanted], rel=1e-13)
    assert m.coordinate("th").unit == "rad"


def cart_by_kane(speeds):
    """Speeds that are rates, or that of the mass and the pendulum's own."""
    s, phi, u1, u2, u = me.dynamicsymbols("s phi u1 u2 u")
    M, m, l, g = sm.symbols("M m l g")
    N, B = me.ReferenceFrame("N"), me.ReferenceFrame("B")
    B.orient_axis(N, -N.z, phi)
    O = me.Point("O")
    O.set_vel(N, 0)
    carriage = O.locatenew("carriage", s * N.x)
    carriage.set_vel(N, s.diff() * N.x)
    bob = carriage.locatenew("bob", l * B.y)
    bob.set_vel(N, s.diff() * N.x + (phi.diff() * l) * B.x)
    equations = {
        "rates": [s.diff() - u1, phi.diff() - u2],
        "mixed": [u1 - s.diff() - l * sm.cos(phi) * phi.diff(), u2 - l * phi.diff()],
        "swapped": [s.diff() - u2, phi.diff() - u1],
    }[speeds]
    method = me.KanesMethod(N, [s, phi], [u1, u2], kd_eqs=equations)
    bodies = [me.Particle("cart", carriage, M), me.Particle("pole", bob, m)]
    method.kanes_equations(bodies, [(carriage, u * N.x), (bob, -m * g * N.y)])
    return SymbolicMechanism.from_method(
        method,
        parameters={"M": 1.1, "m": 0.3, "l": 0.5},
        constants={"g": 9.81},
        inputs={u: "N"},
        units={s: "m"},
    )


@pytest.mark.parametrize("speeds", ["rates", "mixed", "swapped"])
def test_the_cart_by_kane(speeds):
    at = [0.1, 0.4], [0.6, -2.0], [0.7]
    m = cart_by_kane(speeds)
    assert accelerations(m, *at) == pytest.approx(accelerations(cart(), *at), rel=1e-12)
    # rows are forces on the coordinates, whatever the speeds
    assert sm.simplify(sm.Matrix(m.balance) - sm.Matrix(cart().balance)) == sm.zeros(2, 1)
    assert [c.unit for c in m.coordinates] == ["m", "rad"]


@pytest.mark.parametrize("given", ["speeds of rates", "rates of speeds"])
def test_a_spinning_body_by_its_own_angular_velocity(given):
    """Euler angles z-x-z, where SymPy divides by the sine of the third; Euler's equations say what comes out."""
    angles, w = me.dynamicsymbols("a b c"), me.dynamicsymbols("w1 w2 w3")
    A, B, C = sm.symbols("A B C")
    N, F = me.ReferenceFrame("N"), me.ReferenceFrame("F")
    F.orient_body_fixed(N, angles, "zxz")
    by_rates = [F.ang_vel_in(N).dot(e) for e in F]
    equations = [x - y for x, y in zip(by_rates, w, strict=True)]
    if given == "rates of speeds":
        rates = [x.diff() for x in angles]
        solved = sm.solve(equations, rates, dict=True)[0]
        equations = [x - sm.simplify(solved[x]) for x in rates]
        F.set_ang_vel(N, sum((x * e for x, e in zip(w, F, strict=True)), 0 * F.x))
    O = me.Point("O")
    O.set_vel(N, 0)
    method = me.KanesMethod(N, angles, w, kd_eqs=equations)
    method.kanes_equations([me.RigidBody("top", O, F, sm.Integer(1), (me.inertia(F, A, B, C), O))], [])
    m = SymbolicMechanism.from_method(method, parameters={"A": 1.0, "B": 2.0, "C": 3.5})
    turning = sm.lambdify([*angles, *[x.diff() for x in angles]], by_rates)
    for third in (0.5, 0.0, np.pi / 2):
        q, v = np.array([0.3, 0.8, third]), np.array([1.0, -2.0, 3.0])
        a = accelerations(m, q, v)
        h = 1e-6
        spin = np.array(turning(*q, *v))
        ahead, behind = (np.array(turning(*(q + x * v + x**2 / 2 * a), *(v + x * a))) for x in (h, -h))
        changed = (ahead - behind) / (2 * h)
        inertia = np.array([1.0, 2.0, 3.5])
        assert inertia * changed == pytest.approx(-np.cross(spin, inertia * spin), rel=1e-7, abs=1e-7)


def test_kinematics_that_depend_on_time():
    """A speed measured on a belt that runs with t²: u = ẋ − t², whose rate is ẍ − 2t."""
    x, u = me.dynamicsymbols("x u")
    t = me.dynamicsymbols._t
    m = sm.Symbol("m")
    N = me.ReferenceFrame("N")
    P = me.Point("P")
    P.set_vel(N, (u + t**2) * N.x)
    method = me.KanesMethod(N, [x], [u], kd_eqs=[x.diff() - u - t**2])
    method.kanes_equations([me.Particle("p", P, m)], [(P, 3 * N.x)])
    made = SymbolicMechanism.from_method(method, parameters={m: 2.0})
    assert sm.expand(made.balance[0]) == 2 * made.symbols.a[0] * made.symbols.theta[0] / 2 - 3


def bead_constrained(kind):
    """A mass in x, y on a circle, by its constraint: a pendulum."""
    x, y, u1, u2 = me.dynamicsymbols("x y u1 u2")
    m, l, g = sm.symbols("m l g")
    N = me.ReferenceFrame("N")
    O, P = me.Point("O"), me.Point("P")
    O.set_vel(N, 0)
    P.set_pos(O, x * N.x + y * N.y)
    P.set_vel(N, x.diff() * N.x + y.diff() * N.y if kind == "lagrange" else u1 * N.x + u2 * N.y)
    body = me.Particle("bob", P, m)
    ring = x**2 + y**2 - l**2
    loads = [(P, -m * g * N.y)]
    if kind == "lagrange":
        method = me.LagrangesMethod(
            me.Lagrangian(N, body), [x, y], hol_coneqs=[ring], forcelist=loads, frame=N
        )
    else:
        method = me.KanesMethod(
            N,
            q_ind=[x],
            q_dependent=[y],
            u_ind=[u1],
            u_dependent=[u2],
            kd_eqs=[x.diff() - u1, y.diff() - u2],
            configuration_constraints=[ring],
            velocity_constraints=[x * u1 + y * u2],
        )
        method.kanes_equations([body], loads)
    return SymbolicMechanism.from_method(
        method, parameters={m: 2.0, l: 0.5}, constants={g: 9.81}, units={x: "m", y: "m"}
    )


@pytest.mark.parametrize("kind", ["kane", "lagrange"])
def test_a_holonomic_constraint_by_both_methods(kind):
    """Its rates' constraint follows from it, and is not held twice."""
    m = bead_constrained(kind)
    assert len(m.constraints) == 1
    assert not m.rolling
    angle, rate = 0.6, 1.7
    turned = -9.81 / 0.5 * np.sin(angle)
    out = np.array([np.sin(angle), -np.cos(angle)])
    along = np.array([np.cos(angle), np.sin(angle)])
    found = accelerations(m, 0.5 * out, 0.5 * rate * along)
    assert found == pytest.approx(0.5 * turned * along - 0.5 * rate**2 * out, rel=1e-12)


def sleigh(kind):
    """A body on a blade under its middle, pushed by its own turning: x, y, heading."""
    x, y, th, u1, u2, u3, F = me.dynamicsymbols("x y th u1 u2 u3 F")
    m, J, a = sm.symbols("m J a")
    N, B = me.ReferenceFrame("N"), me.ReferenceFrame("B")
    B.orient_axis(N, N.z, th)
    O, P = me.Point("O"), me.Point("P")
    O.set_vel(N, 0)
    P.set_pos(O, x * N.x + y * N.y)
    kane = kind == "kane"
    if kane:
        B.set_ang_vel(N, u3 * N.z)
    P.set_vel(N, u1 * N.x + u2 * N.y if kane else x.diff() * N.x + y.diff() * N.y)
    c = P.locatenew("c", a * B.x)
    c.v2pt_theory(P, N, B)
    body = me.RigidBody("sleigh", c, B, m, (me.inertia(B, 0, 0, J), c))
    loads = [(c, F * B.x)]
    if kane:
        method = me.KanesMethod(
            N,
            [x, y, th],
            u_ind=[u1, u3],
            u_dependent=[u2],
            kd_eqs=[x.diff() - u1, y.diff() - u2, th.diff() - u3],
            velocity_constraints=[P.vel(N).dot(B.y)],
        )
        method.kanes_equations([body], loads)
    else:
        method = me.LagrangesMethod(
            me.Lagrangian(N, body), [x, y, th], nonhol_coneqs=[P.vel(N).dot(B.y)], forcelist=loads, frame=N
        )
    return SymbolicMechanism.from_method(
        method, parameters={m: 2.0, J: 0.3, a: 0.2}, inputs={F: "N"}, units={"x": "m", "y": "m"}
    )


@pytest.mark.parametrize("kind", ["kane", "lagrange"])
def test_dependent_speeds_and_a_blade_by_both_methods(kind):
    """Chaplygin's sleigh: m(v̇ − a ω²) = F, (J + m a²) ω̇ = −m a v ω, at every heading."""
    m = sleigh(kind)
    assert len(m.rolling) == 1
    assert not m.constraints
    mass, J, a, v, w, F = 2.0, 0.3, 0.2, 1.5, 0.8, 0.9
    for th in (0.4, 0.0, np.pi / 2):
        ahead, left = np.array([np.cos(th), np.sin(th)]), np.array([-np.sin(th), np.cos(th)])
        faster = F / mass + a * w**2
        wanted = [*(faster * ahead + v * w * left), -mass * a * v * w / (J + mass * a**2)]
        found = accelerations(m, [3.0, -1.0, th], [*(v * ahead), w], [F])
        assert found == pytest.approx(wanted, rel=1e-12, abs=1e-12)


def test_speeds_without_a_coordinate_get_their_integral():
    """A wheel's spin beside its axle's angle."""
    th, w, spin = me.dynamicsymbols("th w spin")
    J, K = sm.symbols("J K")
    N, B, W = (me.ReferenceFrame(n) for n in "NBW")
    B.orient_axis(N, N.z, th)
    B.set_ang_vel(N, w * N.z)
    W.set_ang_vel(B, spin * B.z)
    O = me.Point("O")
    O.set_vel(N, 0)
    bodies = [
        me.RigidBody(n, O, f, sm.Integer(1), (me.inertia(B, 0, 0, i), O))
        for n, f, i in (("b", B, J), ("w", W, K))
    ]
    method = me.KanesMethod(N, [th], [w, spin], kd_eqs=[th.diff() - w])
    method.kanes_equations(bodies, [(W, 0.6 * N.z), (B, -0.6 * N.z)])
    m = SymbolicMechanism.from_method(method, parameters={J: 2.0, K: 0.5})
    assert m.coordinate_names == ("th", "int_spin")
    assert m.notes == ("Coordinate 'int_spin' is the integral of speed 'spin', which has no coordinate.",)
    # equal and opposite torques: J ẇ = −0.6, K (ẇ + ṡ) = 0.6
    assert accelerations(m, [0.0, 0.0], [0.0, 0.0]) == pytest.approx([-0.3, 1.2 + 0.3])


# What can be told before any data


def test_a_constraint_on_rates_that_depends_on_time_tells():
    """A belt that speeds up, x' = a t: its acceleration is a."""
    m = SymbolicMechanism.from_equations(
        "belt", ["m*x'' = 0", "m*y'' = -k*y"], coordinates={"x": "m", "y": "m"},
        parameters={"m": 2.0, "k": 3.0, "a": 0.5}, rolling={"belt": "x' = a*t"},
    )  # fmt: skip
    assert set(structure_of_symbols(m).identifiable) == {"a", "k/m"}


def test_inertia_that_depends_on_time_tells():
    """(m + r t) s'' = −k s: mass and what it gains are told apart by time."""
    m = SymbolicMechanism.from_equations(
        "filling", "(m + r*t)*s'' = -k*s", coordinates={"s": "m"}, parameters={"m": 2.0, "k": 3.0, "r": 0.5}
    )
    assert set(structure_of_symbols(m).identifiable) == {"k/m", "r/m"}


@pytest.mark.parametrize(
    ("m", "c", "k"), [(10.0, 100.0, 1e7), (1e9, 1e3, 1e6), (1e-9, 1e-12, 1e-6), (1.0, 1e-8, 1.0)]
)
def test_scales_make_nothing_untold(m, c, k):
    """By hand: a known force tells all three, none tells ratios."""
    made = SymbolicMechanism.from_equations(
        "x", "m*s'' = m*g - k*s - c*s' + u", coordinates={"s": "m"}, parameters={"m": m, "c": c, "k": k},
        constants={"g": 9.81}, inputs={"u": "N"},
    )  # fmt: skip
    assert structure_of_symbols(made).identifiable == ("m", "c", "k")
    assert structure_of_symbols(made, inputs=False).identifiable == ("c/m", "k/m")


@pytest.mark.parametrize("nothing", ["m", "k", "l"])
def test_a_parameter_at_zero_is_no_ratio(nothing):
    """What is told is told of it too, or why it cannot be."""
    values = {"m": 2.0, "k": 3.0, "l": 0.5} | {nothing: 0.0}
    made = SymbolicMechanism.from_equations(
        "x", "(1 + m)*l*s'' = -k*l*sin(s)", coordinates={"s": "rad"}, parameters=values
    )
    assert structure_of_symbols(made).sentence.endswith(".")
    plain = SymbolicMechanism.from_equations(
        "x", "m*s'' = -k*s", coordinates={"s": "m"}, parameters={"m": 2.0, "k": 0.0}
    )
    assert structure_of_symbols(plain).sentence == "m cannot be told of its motion: no motion depends on it."


@pytest.mark.parametrize("force", ["k*sqrt(s - 1)", "k*(s - 2)^1.5", "k*asin(50*s)", "k*log(-s - 0.9)"])
def test_where_forces_have_no_value_about_zero_others_are_looked_at(force):
    made = SymbolicMechanism.from_equations(
        "x", f"m*s'' = -{force} + u", coordinates={"s": "m"}, parameters={"m": 2.0, "k": 3.0}, inputs="u"
    )
    assert structure_of_symbols(made).identifiable == ("m", "k")


def test_where_forces_have_no_value_at_all_it_is_said():
    made = SymbolicMechanism.from_equations(
        "x", "m*s'' = -k*sqrt(-1 - s^2)", coordinates={"s": "m"}, parameters={"m": 2.0, "k": 3.0}
    )
    found = structure_of_symbols(made)
    assert found.sentence.startswith("What motions tell of m and k cannot be judged here: ")
    assert found.identifiable == found.not_identifiable == ()


# Mistakes


LINE = {"coordinates": {"s": "m"}, "parameters": {"m": 1.0}}
TWO = {"parameters": {"m": 1.0, "a": 2.0}}


@pytest.mark.parametrize(
    ("lagrangian", "more", "told"),
    [
        ("m*s'^2/2 - k*s^2/2", {}, "'k' in the Lagrangian is neither coordinate, parameter nor input; valid: "
                                   "coordinates s; parameters m; inputs (there are none)."),
        ("m*s'^2/2 + a*s*s'", TWO, "Parameter 'a' of 'line' cancels out of the equations of motion: no motion "
                                   "depends on it; leave it out."),
        ("m*s'^2/2 + a*(sin(s)^2 + cos(s)^2)", TWO, "Parameter 'a' of 'line' cancels out"),
        ("m*s'^2/2", TWO, "Parameter 'a' of 'line' appears nowhere"),
        ("m*s'^2/2", {"inputs": "u"}, "Input 'u' of 'line' appears nowhere"),
        ("m*s'^2/2", {"inputs": "m"}, "'m' is a parameter and an input: give each symbol one meaning."),
        ("m*s'^2/2", {"constants": {"s": 1.0}}, "'s' is a coordinate and a constant: give"),
        ("m*s'^2/2", {"coordinates": ["s", "s"]}, "Coordinate 's' is given twice."),
        ("m*s'^2/2", {"coordinates": ["2s"]}, "'2s' is not a name for coordinate: letters, digits and _ only."),
        ("m*s'^2/2", {"coordinates": ["sin"]}, "'sin' cannot name coordinate: it means something"),
        ("m*s'^2/2", {"coordinates": [3]}, "Coordinate is named by a text or a SymPy symbol, not by 3."),
        ("m*s'^2/2", {"coordinates": {"s": 3}}, "The unit of 's' must be a text, not 3."),
        ("m*s'^2/2", {"parameters": ["m"]}, "Parameter 'm' has no value: give a number"),
        ("m*s'^2/2", {"parameters": {"m": np.nan}}, "The value of parameter 'm' must be finite, not nan."),
        ("m*s'^2/2", {"parameters": {"m": ("x", "kg")}}, "The value of parameter 'm' must be a number, not 'x'."),
        ("m*s'^2/2", {"constraints": {"stop": "s' - 1"}}, "Constraint 'stop' holds 's'': it is one on"),
        ("m*s'^2/2", {"constraints": "m - 1"}, "Constraint 'constraint1' holds no coordinate."),
        ("m*s'^2/2", {"rolling": "s = 1"}, "Rolling constraint 'rolling1' holds no rate: give it as a constraint."),
        ("m*s'^2/2", {"rolling": ["s'^2 = 1"]}, "Rolling constraint 'rolling1' is not linear in the rates."),
        ("m*s'^2/2", {"forces": {"x": "1"}}, "There is no coordinate named 'x'. Valid: s."),
        ("m*s'^2/2", {"forces": ["1", "2"]}, "The forces must be one for each of 1 coordinates"),
        ("m*s'^2/2", {"forces": {"s": "s''"}}, "The force on 's' holds 's''': it acts on them."),
        ("m*s'^2/2", {"dissipation": "s''^2"}, "The dissipation holds 's''': it is a function of rates."),
        ("m*s'^2/2", {"outputs": {"a": "s''"}}, "Output 'a' holds 's''': sensors see coordinates"),
        ("m*s'*s''", {}, "The Lagrangian holds 's''': accelerations and inputs belong into forces."),
        ("m*s'^2/2 +", {}, "The Lagrangian, 'm*s'^2/2 +', cannot be read as a formula: at '+', "
                                   "character 10, a number or a name is missing."),
    ],
)  # fmt: skip
def test_mistakes_are_told(lagrangian, more, told):
    with pytest.raises(MechidError) as caught:
        SymbolicMechanism.from_lagrangian("line", lagrangian, **{**LINE, **more})
    assert str(caught.value).startswith(told)
    assert str(caught.value).endswith(".")


@pytest.mark.parametrize(
    ("equations", "told"),
    [
        (["m*s'' = 0", "s'' = 1"], "Mechanism 'line' has 1 coordinates (s), but 2 equations of motion: give one"),
        ([], "Mechanism 'line' has 1 coordinates (s), but 0 equations"),
        ("m*s''^2 = 1", "Equation 1 of 'line' is not linear in the accelerations (s'')."),
        ("m*sin(s'') = 1", "Equation 1 of 'line' is not linear in the accelerations (s'')."),
        ("m*s'*s'' = 1", "The inertia in equation 1 of 'line' depends on 's'': it may depend on coordinates"),
        ("m*s'' = 1 = 2", "Equation 1, 'm*s'' = 1 = 2', has more than one = sign."),
        ("m*s'' = k", "'k' in equation 1 is neither coordinate, parameter nor input; valid: coordinates s"),
        ("s'' = m - m", "Parameter 'm' of 'line' appears nowhere"),
        ("s'' = (m + 1)^2 - m^2 - 2*m", "Parameter 'm' of 'line' cancels out"),
        ([7], "Parameter 'm' of 'line' appears nowhere"),
        ([None], "Equation 1 must be a text or a SymPy expression, not None."),
    ],
)  # fmt: skip
def test_mistakes_in_equations_are_told(equations, told):
    with pytest.raises(MechidError) as caught:
        SymbolicMechanism.from_equations("line", equations, **LINE)
    assert str(caught.value).startswith(told)


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (
            ["x'' = -c/m*x'", "m*y'' = -m*g"],
            "Equation 1 of 'bob' has x'' without a mass, others have one: const",
        ),
        (["m*y'' = -m*g", "m*x'' = -c*x'"], "The mass matrix of 'bob' is not positive"),
        (["m*x'' = -c*x'", "-m*y'' = m*g"], "The mass matrix of 'bob' is not positive"),
        (["2*m*x'' + c*y'' = -c*x'", "m*y'' = -m*g"], "The mass matrix of 'bob' is not symmetric"),
    ],
)
def test_constraints_need_balances_of_forces(rows, told):
    given = {
        "coordinates": {"x": "m", "y": "m"},
        "parameters": {"m": 2.0, "c": 0.3, "l": 0.5},
        "constants": {"g": 9.81},
    }
    for more in ({"constraints": "x^2 + y^2 - l^2"}, {"rolling": "x' = l*y*y'"}):
        with pytest.raises(MechidError, match=told) as caught:
            SymbolicMechanism.from_equations("bob", rows, **given, **more)
        assert "write each as the force on its coordinate" in str(caught.value)


def test_balances_are_looked_at_where_they_have_a_value():
    """A parameter at zero that is divided by: told where it matters, at the start."""
    m = SymbolicMechanism.from_equations(
        "bob",
        ["x''/m = -x", "1.0*y'' = -y"],
        coordinates=["x", "y"],
        parameters={"m": 0.0},
        constraints="x - y",
    )
    with pytest.raises(MechidError, match="is not finite at the start"):
        simulate(m, OneStep(0.01), 3)


def test_balances_of_forces_are_taken():
    """An inertia of one that is meant, and a coordinate without any."""
    m = SymbolicMechanism.from_equations(
        "bob", ["1.0*x'' = -c*x'", "m*y'' = -m*g", "0*z'' = c*z"], coordinates=["x", "y", "z"],
        parameters={"m": 2.0, "c": 0.3, "l": 0.5}, constants={"g": 9.81}, constraints=["x^2 + y^2 - l^2", "z - x"],
    )  # fmt: skip
    assert len(m.constraints) == 2


def test_a_parameter_is_not_missed_where_samples_have_no_value():
    """acos(9 s) exists at few places."""
    m = SymbolicMechanism.from_lagrangian(
        "a", "m*s'^2/2 + k*acos(9*s)", coordinates={"s": "m"}, parameters={"m": 1.0, "k": 2.0}
    )
    assert accelerations(m, [0.05], [0.0]) == pytest.approx([-9 * 2.0 / np.sqrt(1 - 0.45**2)])


@pytest.mark.parametrize(
    ("right", "wanted"),
    [
        ("-k*(abs(s - 2) + (s - 2))/2", -2.0 * 0.5),
        ("-s + 8.85e-12*k*u^2/(2*(3 - s)^2)", -2.5 + 8.85e-12 * 2.0 * 0.7**2 / (2 * 0.5**2)),
        ("-6.674e-11*m*k/s^2", -6.674e-11 * 3.0 * 2.0 / 2.5**2),
        ("-k*(sign(s - 2) + 1)/2", -2.0),
        (sm.Piecewise((-sm.Symbol("k") * (sm.Symbol("s") - 2), sm.Symbol("s") > 2), (0, True)), -2.0 * 0.5),
    ],
)
def test_parameters_that_act_little_or_far_away_are_taken(right, wanted):
    """A stop at 2 m, an electrostatic force, gravity of small bodies."""
    given = {"coordinates": {"s": "m"}, "parameters": {"m": 3.0, "k": 2.0}}
    if "u^2" in str(right):
        given["inputs"] = "u"
    row = f"m*s'' = {right}" if isinstance(right, str) else sm.Symbol("m") * sm.Symbol("s''") - right
    m = SymbolicMechanism.from_equations("x", row, **given)
    found = accelerations(m, [2.5], [0.0], [0.7] if "u^2" in str(right) else ())
    assert found == pytest.approx([wanted / 3.0], rel=1e-12)


@pytest.mark.parametrize(
    "nothing",
    [
        "k*s*(sin(s)^2 + cos(s)^2 - 1)",
        "1e12*k*(tan(s) - sin(s)/cos(s))",
        "k*(exp(m)*exp(s) - exp(m + s))",
        "k*(abs(s - 1)*(abs(s - 1) + 1) - abs(s - 1) - (s - 1)^2)",
    ],
)
def test_parameters_that_cancel_out_are_refused(nothing):
    with pytest.raises(MechidError, match="Parameter 'k' of 'x' cancels out: no motion depends on it"):
        SymbolicMechanism.from_equations(
            "x", f"m*s'' = -s + {nothing}", coordinates={"s": "m"}, parameters={"m": 3.0, "k": 2.0}
        )


def test_mistakes_with_methods_are_told():
    th, w, T = me.dynamicsymbols("th w T")
    J, k = sm.symbols("J k")
    N, B = me.ReferenceFrame("N"), me.ReferenceFrame("B")
    B.orient_axis(N, N.z, th)
    B.set_ang_vel(N, w * N.z)
    O = me.Point("O")
    O.set_vel(N, 0)
    body = me.RigidBody("b", O, B, sm.Integer(1), (me.inertia(B, 0, 0, J), O))
    method = me.KanesMethod(N, [th], [w], kd_eqs=[th.diff() - w])
    build = SymbolicMechanism.from_method
    with pytest.raises(MechidError, match=r"no bodies yet: call its kanes_equations\(bodies, loads\) first"):
        build(method, parameters={J: 1.0})
    method.kanes_equations([body], [(B, (T - k * th) * N.z)])
    with pytest.raises(MechidError, match=r"^T, k: neither coordinates nor among the parameters or inputs"):
        build(method, parameters={J: 1.0})
    with pytest.raises(MechidError, match="Parameter 'k' has no value"):
        build(method, parameters={J: 1.0, k: None}, inputs=T)
    with pytest.raises(MechidError, match="units name 'x', which is no coordinate; valid: th"):
        build(method, parameters={J: 1.0, k: 1.0}, inputs=T, units={"x": "m"})
    with pytest.raises(
        MechidError, match=r"A LagrangesMethod or KanesMethod of sympy.physics.mechanics is needed"
    ):
        build("m", parameters={})
    hardening = me.LagrangesMethod(J * th.diff() ** 2 / 2 - sm.Function("k")(th) * th**2 / 2, [th])
    with pytest.raises(
        MechidError, match=r"^The method holds k\(th\(t\)\): a function that is not known here"
    ):
        build(hardening, parameters={J: 1.0, k: 1.0})
    x, u, y = me.dynamicsymbols("x u y")
    P = me.Point("P")
    P.set_vel(N, (u + y.diff()) * N.x)
    shaken = me.KanesMethod(N, [x], [u], kd_eqs=[x.diff() - u])
    shaken.kanes_equations([me.Particle("p", P, J)], [(P, -k * x * N.x)])
    with pytest.raises(
        MechidError, match=r"holds Derivative\(y\(t\), .*, a rate of 'y', which is no coordinate: put"
    ):
        build(shaken, parameters={J: 1.0, k: 1.0}, inputs={y: "m"})
    with pytest.raises(MechidError, match=r"A System .* after its form_eoms\(\) give its eom_method\."):
        build(me.System.from_newtonian(me.RigidBody("b")), parameters={J: 1.0})
    lagrange = me.LagrangesMethod(J * th.diff() ** 2 / 2 - k * th**2 / 2, [th])
    with pytest.raises(MechidError, match=r"^k: neither coordinates nor among the parameters"):
        build(lagrange, parameters={J: 1.0})


def test_numbers_are_renewed():
    m = cart()
    values = m.values.copy()
    values[1], values[-1] = 0.8, 0.02
    new = m.renewed(m.layout, values, {})
    assert {p.name: p.value for p in new.parameters} == {"M": 1.1, "m": 0.8, "l": 0.5, "g": 9.81}
    assert new.delays == {"u": 0.02}
    assert m.delayed("u", 0.02).values[-1] == 0.02
    with pytest.raises(MechidError, match=r"no input named 'w'. Valid: u"):
        m.delayed("w", 0.1)
    with pytest.raises(MechidError, match="no output named 'w'"):
        m.output("w")
    assert "M = 1.1 kg" in repr(m)
    assert "constants: g = 9.81 m/s²" in repr(m)


@pytest.mark.parametrize("unit", ["g", "kgg", "N·mm/rad", "deg", "mm/s^2"])
def test_units_that_are_not_si_are_refused(unit):
    """Values are taken as SI: one in grams would count a thousand times."""
    with pytest.raises(
        MechidError, match=rf"The unit '{re.escape(unit)}' of 'm' has '.*' in it; values here are in SI"
    ):
        SymbolicMechanism.from_equations(
            "x", "m*s'' = u", coordinates={"s": "m"}, parameters={"m": (1.0, unit)}, inputs={"u": "N"}
        )


@pytest.mark.parametrize(
    "unit", ["", "1", "kg·m²", "kg*m^2", "N.m/rad", "m/s**2", "1/s", "N·m·s/rad", "V", "kg·m⁻¹"]
)
def test_si_units_are_taken(unit):
    m = SymbolicMechanism.from_equations(
        "x", "m*s'' = u", coordinates={"s": "m"}, parameters={"m": (1.0, unit)}, inputs={"u": "N"}
    )
    assert m.parameters[0].unit == unit
