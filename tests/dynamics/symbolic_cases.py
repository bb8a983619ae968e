"""Mechanisms in symbols for the tests of this folder."""

from __future__ import annotations

import sympy as sm

from mechid.model.symbolic.mechanism import SymbolicMechanism

G = 9.81


def cart_pendulum():
    """`mechanisms.cart_pendulum`: a rod that hangs, its middle at R_y(φ) (0, 0, −l)."""
    return SymbolicMechanism.from_lagrangian(
        "cart-pendulum",
        "(M + m)/2*s'^2 - m*l*cos(p)*s'*p' + (J + m*l^2)/2*p'^2 + m*g*l*cos(p)",
        coordinates={"s": "m", "p": "rad"},
        parameters={"M": 1.0, "m": 0.3, "l": 0.5, "J": 0.3 / 12, "c": 0.02},
        constants={"g": G},
        inputs={"u": "N"},
        forces={"s": "u"},
        dissipation="c/2*p'^2",
    )


def four_bar():
    """`mechanisms.four_bar`: rods in x–z turned by a, a + b and c about y."""
    a, b, c = sm.symbols("a b c")
    rates = dict(zip((a, b, c), sm.symbols("a' b' c'"), strict=True))

    def along(angle):
        return sm.Matrix([sm.cos(angle), -sm.sin(angle)])

    def rate(point):
        return sum((point.diff(x) * v for x, v in rates.items()), sm.zeros(2, 1))

    knee, fixed = sm.Rational(1, 5) * along(a), sm.Matrix([sm.Rational(2, 5), 0])
    rods = (
        (1.0, 0.2, knee / 2, rates[a]),
        (1.5, 0.5, knee + along(a + b) / 4, rates[a] + rates[b]),
        (1.0, 0.4, fixed + along(c) / 5, rates[c]),
    )
    energy = 0
    for mass, length, middle, spin in rods:
        moved = rate(middle)
        energy += mass * moved.dot(moved) / 2 + mass * length**2 / 12 * spin**2 / 2 - mass * G * middle[1]
    gap = knee + along(a + b) / 2 - fixed - sm.Rational(2, 5) * along(c)
    return SymbolicMechanism.from_lagrangian(
        "four-bar",
        energy,
        coordinates={"a": "rad", "b": "rad", "c": "rad"},
        parameters={"d": 0.05},
        inputs="u",
        forces={"a": "u", "c": "-d*c'"},
        constraints={"closure[x]": gap[0], "closure[z]": gap[1]},
    )


def hanging():
    """A mass on a rod, by its place in the plane."""
    return SymbolicMechanism.from_lagrangian(
        "bob",
        "m/2*(x'^2 + y'^2) - m*g*y",
        coordinates={"x": "m", "y": "m"},
        parameters={"m": 2.0, "l": 0.5},
        constants={"g": G},
        constraints={"rod": "x^2 + y^2 = l^2"},
    )


MASS, INERTIA, OFFSET = 2.0, 0.3, 0.2


def sleigh():
    """Chaplygin's: a blade under a body whose centre lies ahead of it."""
    return SymbolicMechanism.from_lagrangian(
        "sleigh",
        "m/2*((x' - a*th'*sin(th))^2 + (y' + a*th'*cos(th))^2) + J/2*th'^2",
        coordinates={"x": "m", "y": "m", "th": "rad"},
        parameters={"m": MASS, "J": INERTIA, "a": OFFSET},
        rolling={"blade": "y'*cos(th) = x'*sin(th)"},
    )
