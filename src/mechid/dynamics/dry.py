"""Set-valued dry friction on coordinates: sticking and sliding without a smoothing width.

The impulse λ of friction in a step, on a coordinate that moves at s, obeys

    |λ| ≤ b,    s + σ λ = 0 where |λ| < b (it sticks),    λ = −b sign(s) where it slides

with the bound b = h (C + S exp(−|v/v_S|^δ)) + μ (r Σ |forces| + Σ |moments|), the last of the joint's own impulses
(Marklund, Eqs. 2.24, 4.1, F.4). Which case holds is told by λ − m s, m the inertia that the coordinate feels, also
far from a solution. σ = ρ/m is a creep far below anything measured.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from mechid.dynamics.tree import Array

CREEP = 1e-6
"""ρ: of what friction could do to a rate in a step, what a coordinate that sticks creeps by"""
OPEN = 1e-9
"""N·m·s or N·s of friction's rows that may be left"""
PASSES = 50
"""at most, over sticking and sliding"""


class DryRows(NamedTuple):
    index: Array
    """(d,) coordinate"""
    values: Array
    """(d, 6) Coulomb, Stribeck excess, Stribeck velocity, exponent; coefficient of the joint's load, its radius"""
    blur: Array
    """(d,) rad/s or m/s: what the law is rounded over, for estimators on their way to it"""


def level(values: Array, v: Array) -> Array:
    """Force at which a coordinate that moved at v slides, N·m or N, but for the joint's load."""
    coulomb, excess, stribeck, exponent = jnp.moveaxis(values[..., :4], -1, 0)
    ratio = jnp.abs(v) / stribeck
    moving = ratio > 0.0
    power = jnp.where(moving, jnp.where(moving, ratio, 1.0) ** exponent, 0.0)
    return coulomb + excess * jnp.exp(-power)


def felt(model: Any) -> Array:
    """(d,) m: the inertia that each coordinate with friction feels in the model's zero position, kg·m² or kg."""
    return jnp.maximum(jnp.diagonal(model.mass_matrix(jnp.zeros(model.nq)))[model.dry.index], 1e-12)


def row(impulse: Array, rate: Array, bound: Array, inertia: Array, blur: Array) -> Array:
    """λ − clip(λ − m (s + σ λ), −b, b), which is zero where the law holds: m (s + σ λ) or λ ∓ b.

    With blur, a rate, corners are rounded: |x| becomes √(x² + (2 m blur)²).
    """
    first, second = _rounded(impulse, rate, bound, inertia, blur)
    return impulse - 0.5 * (first[0] - second[0])


def slopes(
    impulse: Array, rate: Array, bound: Array, inertia: Array, blur: Array
) -> tuple[Array, Array, Array]:
    """Of a row, by impulse, rate and bound: (σ m, m, 0) where it sticks, (1, 0, ∓1) where it slides."""
    first, second = _rounded(impulse, rate, bound, inertia, blur)
    sticks = 0.5 * (first[1] - second[1])
    return 1.0 - (1.0 - CREEP) * sticks, sticks * inertia, -0.5 * (first[1] + second[1])


def _rounded(
    impulse: Array, rate: Array, bound: Array, inertia: Array, blur: Array
) -> list[tuple[Array, Array]]:
    """|w + b| and |w − b|, rounded, with their slopes; w: the impulse that would hold it."""
    wanted = (1.0 - CREEP) * impulse - inertia * rate
    found = []
    for x in (wanted + bound, wanted - bound):
        squared = x**2 + (2.0 * inertia * blur) ** 2
        size = jnp.sqrt(jnp.where(squared > 0.0, squared, 1.0))
        found.append((jnp.where(squared > 0.0, size, 0.0), x / size))
    return found


class Slide(NamedTuple):
    """How coordinates with friction move with its impulses: s = rate + H λ, joint impulses n = load + N λ,
    b = bound + U |n|."""

    rate: Array
    H: Array
    bound: Array
    load: Array
    N: Array
    U: Array
    inertia: Array
    """m"""


def solved(slide: Slide, guess: Array) -> tuple[Array, Array]:
    """The impulses of friction, and the largest residual.

    A sweep takes the coordinates one after another, each with the impulse that holds it or its bound: slow but
    sure. Newton's method for the cases that come out is exact once they are right; where it leaves more, the sweep
    counts.
    """
    d, one, sigma = guess.shape[0], jnp.eye(guess.shape[0]), CREEP / slide.inertia
    stiff = jnp.diagonal(slide.H) + sigma

    def parts(impulse: Array) -> tuple[Array, Array, Array, Array]:
        n = slide.load + slide.N @ impulse
        bound = jnp.maximum(slide.bound + slide.U @ jnp.abs(n), 0.0)
        gap = slide.rate + slide.H @ impulse + sigma * impulse
        wanted = impulse - gap / stiff
        return gap, bound, n, wanted

    def left(impulse: Array) -> Array:
        _, bound, _, wanted = parts(impulse)
        return jnp.max(jnp.abs(impulse - jnp.clip(wanted, -bound, bound)))

    def swept(impulse: Array) -> Array:
        for i in range(d):
            _, bound, _, wanted = parts(impulse)
            impulse = jnp.where(one[i] > 0.0, jnp.clip(wanted, -bound, bound), impulse)
        return impulse

    def exact(impulse: Array) -> Array:
        gap, bound, n, wanted = parts(impulse)
        cases = jnp.where(wanted >= bound, 1.0, jnp.where(wanted <= -bound, -1.0, 0.0))
        sticks = cases == 0.0
        slides = one - cases[:, None] * (slide.U * jnp.sign(n)) @ slide.N
        J = jnp.where(sticks[:, None], slide.H + sigma * one, slides)
        r = jnp.where(sticks, gap, impulse - cases * bound)
        return impulse - (jnp.linalg.solve(J, r) if d > 1 else r / J[0])

    def better(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        impulse, _, passes = state
        sure = swept(impulse)
        quick = exact(sure)
        errors = left(sure), left(quick)
        quicker = errors[1] < errors[0]
        return jnp.where(quicker, quick, sure), jnp.where(quicker, errors[1], errors[0]), passes + 1

    def unfinished(state: tuple[Array, Array, Array]) -> Array:
        impulse, error, passes = state
        return (error > 1e-12 * (1e-3 + jnp.max(jnp.abs(impulse)))) & (passes < PASSES)

    impulse, error, _ = jax.lax.while_loop(unfinished, better, (guess, jnp.array(jnp.inf), jnp.array(0)))
    return impulse, error


class Around(NamedTuple):
    """A step with given impulses of friction."""

    result: Any
    rate: Array
    """of the coordinates with friction"""
    H: Array
    """∂rate/∂impulses, about"""


def settled(
    step: Callable[[Array], Around], bound: Callable[[Array], Array], inertia: Array, guess: Array
) -> tuple[Any, Array, Array]:
    """A step whose impulses of friction fit its rates: the step, the impulses, and what is left of their rows.

    Steps are nearly linear in the impulses, so that few are needed.
    """

    def again(state: tuple[Any, Array, Array, Array]) -> tuple[Any, Array, Array, Array]:
        around, impulse, _, passes = state
        none = jnp.zeros((0, impulse.shape[0]))
        rate = around.rate - around.H @ impulse
        slide = Slide(rate, around.H, bound(around.rate), jnp.zeros(0), none, none.T, inertia)
        new, _ = solved(slide, impulse)
        now = step(new)
        # how far the impulses are from fitting, in impulses
        stiff, most = jnp.diagonal(now.H) + CREEP / inertia, bound(now.rate)
        wanted = new - (now.rate + CREEP / inertia * new) / stiff
        left = jnp.max(jnp.abs(new - jnp.clip(wanted, -most, most)))
        return now, new, left, passes + 1

    def unfinished(state: tuple[Any, Array, Array, Array]) -> Array:
        _, impulse, left, passes = state
        return (left > 1e-12 * (1e-2 + jnp.max(jnp.abs(impulse)))) & (passes < PASSES)

    start = (step(guess), guess, jnp.array(jnp.inf), jnp.array(0))
    around, impulse, left, _ = jax.lax.while_loop(unfinished, again, start)
    return around.result, impulse, left
