"""Derivatives of `residual_function` of first and second order, forward, reverse and mixed, against differences."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from derivative_cases import CASES
from estimation_cases import problem_of

from mechid import residual_function
from mechid.compile import jit

EXACT = 1e-9
"""of the largest number: what two ways of computing one thing may differ by"""
NOISE = 1e-12
"""of the largest number: steps are solved to 1e-14 of their terms, and there are some dozen"""


class Everything(NamedTuple):
    """A residual function at y; v: a direction, w: weights of the residuals."""

    cost: Any
    r: Any
    gradient: Any
    wJ: Any
    slope: Any
    """gradient · v, by jvp"""
    Jv: Any
    Hv: Any
    """jvp of the gradient"""
    wJ_v: Any
    """jvp of wᵀJ"""
    vH: Any
    """gradient of the jvp"""


def everything_of(r: Any, y: Any, v: Any, w: Any) -> Everything:
    """In one program, since compiling is all of the time."""

    def both(y: Any) -> Any:
        at = r.evaluate(y)
        return at.cost, at.residuals

    def backward(y: Any) -> Any:
        (cost, rows), back = jax.vjp(both, y)
        return cost, rows, back((1.0, 0.0 * rows))[0], back((0.0, w))[0]

    def forward(y: Any) -> Any:
        return jax.jvp(both, (y,), (v,))[1]

    here, (_, _, Hv, wJ_v) = jax.jvp(backward, (y,), (v,))
    vH, (slope, Jv) = jax.grad(lambda y: (forward(y)[0], forward(y)), has_aux=True)(y)
    return Everything(*here, slope, Jv, Hv, wJ_v, vH)


everything = jit(everything_of, once=True)


class Difference(NamedTuple):
    slope: np.ndarray
    error: float
    """what it may be wrong by: rounding, and the last change by extrapolation"""


def difference(values: dict[float, np.ndarray], h: float, noise: float = NOISE) -> Difference:
    """Central differences of f(s h), s = ±1, ±½, ±¼, extrapolated twice: (64 D₄ − 20 D₂ + D₁)/45, error h⁶.

    The error of what was extrapolated once (h⁴) is far above that. Rounding ε f of each value becomes at most
    ε f (4·64 + 2·20 + 1)/45 h.
    """
    a, b, c = ((values[s] - values[-s]) / (2 * s * h) for s in (1.0, 0.5, 0.25))
    once = (4 * c - b) / 3
    twice = (16 * once - (4 * b - a) / 3) / 15
    largest = max(np.abs(f).max() for f in values.values())
    return Difference(twice, float(np.abs(twice - once).max() + 6.6 * noise * largest / h))


def assert_is(exact: Any, found: Difference, what: str) -> None:
    """Within the error of the differences, which must be small enough to tell something."""
    size = np.abs(found.slope).max()
    assert found.error < 1e-5 * size, f"{what}: {found.error / size}"
    assert np.abs(exact - found.slope).max() < found.error, what


def moved(r: Any, rng: np.random.Generator) -> np.ndarray:
    """A random point, up to a tenth from the start."""
    return r.start + 0.1 * rng.uniform(-1, 1, r.size) * np.maximum(np.abs(r.start), 0.1)


def check_derivatives(r: Any, y: np.ndarray, rng: np.random.Generator, h: float = 4e-3) -> Everything:
    scale = np.maximum(np.abs(y), 0.1)
    u, v = rng.uniform(-1, 1, (2, r.size)) * scale
    w = rng.normal(size=jax.eval_shape(r, y).shape)

    def at(y: Any, v: Any = v) -> Everything:
        return Everything(*map(np.asarray, everything(r, y, v, w)))

    one, other = at(y), at(y, u)
    near = {s: at(y + s * h * v) for s in (1.0, 0.5, 0.25, -1.0, -0.5, -0.25)}
    assert all(np.isfinite(x).all() for x in one)
    # forward against reverse
    assert w @ one.Jv == pytest.approx(one.wJ @ v, abs=EXACT * np.abs(one.wJ * v).max())
    assert one.slope == pytest.approx(one.gradient @ v, abs=EXACT * np.abs(one.gradient * v).max())
    assert one.Hv * scale == pytest.approx(one.vH * scale, abs=EXACT * np.abs(one.Hv * scale).max())
    # symmetry
    assert u @ one.Hv == pytest.approx(v @ other.Hv, abs=EXACT * np.abs(u * one.Hv).max())
    # against differences
    for exact, of in (("slope", "cost"), ("Jv", "r"), ("Hv", "gradient"), ("wJ_v", "wJ")):
        by = scale if of in ("gradient", "wJ") else 1.0
        found = difference({s: by * getattr(x, of) for s, x in near.items()}, h)
        assert_is(by * getattr(one, exact), found, exact)
    return one


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in CASES if name != "all at once"]


@pytest.mark.parametrize("name", ["all at once", *SLOW])
def test_derivatives(name):
    case = CASES[name]()
    r = residual_function(*case)
    rng = np.random.default_rng(len(name))
    y = moved(r, rng)
    found = check_derivatives(r, y, rng)
    problem = problem_of(case.stepper, case.experiments, case.free, gradients="adjoint")
    point = problem.evaluate(y)
    assert found.cost == pytest.approx(point.cost, rel=EXACT)
    gradient = problem.gradient(point)
    assert found.gradient == pytest.approx(gradient, abs=EXACT * np.abs(gradient).max())
    rows = problem.rows(point)[0] if problem.least_squares else problem.prior_residuals(y)
    assert np.sort(found.r) == pytest.approx(np.sort(rows), abs=EXACT * np.abs(rows).max())
    if not isinstance(case.experiments, list):
        assert found.r == pytest.approx(rows, abs=EXACT * np.abs(rows).max())
