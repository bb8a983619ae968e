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
import numpy as np

from mechid.dynamics.complementarity import lcp
from mechid.dynamics.tree import Array

CREEP = 1e-6
"""ρ: of what friction could do to a rate in a step, what a coordinate that sticks creeps by"""
LEAST = 1e-2
"""of 1/m: by what an impulse is taken to move its row at least"""
OPEN = 1e-9
"""N·m·s or N·s of friction's rows that may be left"""
QUICK, NEAR = 3, 0.01
"""passes of a step before impulses are held near the last ones, and by which part of their stiffness"""
PASSES = 50
"""at most, over sticking and sliding"""
FEW = 2
"""rows for which Lemke's algorithm is not needed"""
TRIES = 10
"""passes before other ways are tried"""


class DryRows(NamedTuple):
    index: Array
    """(d,) coordinate"""
    values: Array
    """(d, 6) Coulomb, Stribeck excess, Stribeck velocity, exponent; coefficient of the joint's load, its radius"""
    blur: Array
    """(d,) rad/s or m/s: what the law is rounded over, for estimators on their way to it"""
    inertia: Array
    """(d,) m: what each coordinate feels in the mechanism's zero position, kg·m² or kg"""
    loaded: Array
    """those of the rows that were made with a coefficient of the joint's load"""


def level(values: Array, v: Array) -> Array:
    """Force at which a coordinate that moved at v slides, N·m or N, but for the joint's load."""
    coulomb, excess, stribeck, exponent = jnp.moveaxis(values[..., :4], -1, 0)
    ratio = jnp.abs(v) / stribeck
    moving = ratio > 0.0
    power = jnp.where(moving, jnp.where(moving, ratio, 1.0) ** exponent, 0.0)
    return coulomb + excess * jnp.exp(-power)


def row(impulse: Array, rate: Array, bound: Array, inertia: Array, blur: Array) -> Array:
    """λ − clip(λ − m (s + σ λ), −b, b), which is zero where the law holds: m (s + σ λ) or λ ∓ b.

    With blur, a rate, corners are rounded: |x| becomes √(x² + (2 m blur)²).
    """
    return boxed(impulse, rate + CREEP / inertia * impulse, bound, inertia, blur)


def slopes(
    impulse: Array, rate: Array, bound: Array, inertia: Array, blur: Array
) -> tuple[Array, Array, Array]:
    """Of a row, by impulse, rate and bound: (σ m, m, 0) where it sticks, (1, 0, ∓1) where it slides."""
    own, by_rate, by_bound = boxed_slopes(impulse, rate + CREEP / inertia * impulse, bound, inertia, blur)
    return own + CREEP / inertia * by_rate, by_rate, by_bound


def boxed(
    impulse: Array, rate: Array, bound: Array, inertia: Array, blur: Any = 0.0, one_sided: Any = False
) -> Array:
    """λ less what a box lets through of λ − m s: −b … b, or 0 … ∞ where it is one-sided."""
    first, second = _rounded(impulse, rate, bound, inertia, blur, one_sided)
    return impulse - 0.5 * (first[0] - second[0])


def boxed_slopes(
    impulse: Array, rate: Array, bound: Array, inertia: Array, blur: Any = 0.0, one_sided: Any = False
) -> tuple[Array, Array, Array]:
    """By impulse, rate and bound."""
    first, second = _rounded(impulse, rate, bound, inertia, blur, one_sided)
    within = 0.5 * (first[1] - second[1])
    return 1.0 - within, within * inertia, jnp.where(one_sided, 0.0, -0.5 * (first[1] + second[1]))


def _rounded(
    impulse: Array, rate: Array, bound: Array, inertia: Array, blur: Any, one_sided: Any
) -> list[tuple[Array, Array]]:
    """|w + b| and |w − b|, rounded, with their slopes; |w| and −w where one-sided. w: what would hold it."""
    wanted = impulse - inertia * rate
    found = []
    for x in (wanted + jnp.where(one_sided, 0.0, bound), wanted - jnp.where(one_sided, 0.0, bound)):
        squared = x**2 + (2.0 * inertia * blur) ** 2
        size = jnp.sqrt(jnp.where(squared > 0.0, squared, 1.0))
        found.append((jnp.where(squared > 0.0, size, 0.0), x / size))
    first, (size, slope) = found
    return [first, (jnp.where(one_sided, -wanted, size), jnp.where(one_sided, -1.0, slope))]


class Slide(NamedTuple):
    """Rows whose impulses λ are boxed, and how they move with these: s = rate + (H + diag σ) λ, other impulses
    n = load + N λ, b = bound + U |n|; one-sided ones have λ ≥ 0 and s ≥ 0."""

    rate: Array
    H: Array
    sigma: Array
    bound: Array
    load: Array
    N: Array
    U: Array
    one_sided: Any


def solved(slide: Slide, guess: Array) -> tuple[Array, Array]:
    """The impulses of friction, stops and contacts, and the largest residual.

    A sweep takes the rows one after another, each with the impulse that holds it or its bound: slow but sure.
    Newton's method for the cases that come out is exact once they are right; where it leaves more, the sweep
    counts. Where many rows hold the same body neither may end: then Lemke's algorithm decides.
    """
    d, one, sigma = guess.shape[0], jnp.eye(guess.shape[0]), slide.sigma
    stiff = jnp.where(slide.one_sided, jnp.diagonal(slide.H) + sigma, stiffness(slide.H, sigma))

    def parts(impulse: Array) -> tuple[Array, Array, Array, Array]:
        n = slide.load + slide.N @ impulse
        bound = jnp.maximum(slide.bound + slide.U @ jnp.abs(n), 0.0)
        gap = slide.rate + slide.H @ impulse + sigma * impulse
        wanted = impulse - gap / stiff
        return gap, bound, n, wanted

    def box(wanted: Array, bound: Array) -> Array:
        return jnp.where(slide.one_sided, jnp.maximum(wanted, 0.0), jnp.clip(wanted, -bound, bound))

    def left(impulse: Array) -> Array:
        _, bound, _, wanted = parts(impulse)
        return jnp.max(jnp.abs(impulse - box(wanted, bound)))

    def swept(impulse: Array) -> Array:
        for i in range(d):
            _, bound, _, wanted = parts(impulse)
            impulse = jnp.where(one[i] > 0.0, box(wanted, bound), impulse)
        return impulse

    def exact(impulse: Array) -> Array:
        _, bound, _, wanted = parts(impulse)
        bound = jnp.where(slide.one_sided, 0.0, bound)
        cases = jnp.where(wanted >= bound, 1.0, jnp.where(wanted <= -bound, -1.0, 0.0))
        return cased(impulse, cases)

    def cased(impulse: Array, cases: Array) -> Array:
        """Newton's step where rows slide one way or the other, or stick (0)."""
        gap, bound, n, wanted = parts(impulse)
        bound = jnp.where(slide.one_sided, 0.0, bound)
        U = jnp.where(jnp.asarray(slide.one_sided)[:, None], 0.0, slide.U)
        sticks = jnp.where(slide.one_sided, wanted > 0.0, cases == 0.0)
        slides = one - cases[:, None] * (U * jnp.sign(n)) @ slide.N
        J = jnp.where(sticks[:, None], slide.H + jnp.diag(sigma), slides)
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

    def otherwise(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        """Where loads grow with the friction that they carry all may stick that seemed to slide."""
        impulse, error, passes = state
        tried = [cased(cased(impulse, 0.0 * impulse), 0.0 * impulse)]
        if d > FEW:
            tried += [_pivoted(slide, impulse)]
        for new in tried:
            finer = left(new) < error
            impulse, error = jnp.where(finer, new, impulse), jnp.where(finer, left(new), error)
        return impulse, error, passes + 1

    def next_one(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        return jax.lax.cond(state[2] == TRIES, otherwise, better, state)

    start = (guess, jnp.array(jnp.inf), jnp.array(0))
    impulse, error, _ = jax.lax.while_loop(unfinished, next_one, start)
    return impulse, error


def stiffness(H: Array, creep: Array) -> Array:
    """By what each row is moved by its own impulse: any positive number tells the cases apart.

    In closed loops an impulse may hardly move its own row, and within a step even the other way.
    """
    return jnp.maximum(jnp.diagonal(H) + creep, LEAST / CREEP * creep)


def _pivoted(slide: Slide, near: Array) -> Array:
    """The impulses by a complementarity problem, for the signs that loads have near a guess.

    A two-sided impulse is y − b with 0 ≤ y ≤ 2 b, its rate s⁺ − s⁻: pairs (y, s⁺) and (s⁻, 2 b − y); a one-sided
    one is y itself. b = c + B λ, so that (1 + B) λ = y − c on two-sided rows.
    """
    two = np.flatnonzero(~np.asarray(slide.one_sided))
    chosen = np.eye(near.shape[0])[two]
    signed = slide.U * jnp.where(slide.load + slide.N @ near < 0.0, -1.0, 1.0)
    B, c = signed @ slide.N, slide.bound + signed @ slide.load
    both = np.where(slide.one_sided, 0.0, 1.0)
    found = jnp.linalg.solve(
        np.eye(near.shape[0]) + both[:, None] * B, jnp.column_stack([np.eye(near.shape[0]), -both * c])
    )
    by_y, at = found[:, :-1], found[:, -1]
    H = slide.H + jnp.diag(slide.sigma)
    matrix = jnp.block(
        [[H @ by_y, chosen.T], [2.0 * chosen @ B @ by_y - chosen, jnp.zeros((len(two), len(two)))]]
    )
    right = jnp.concatenate([slide.rate + H @ at, 2.0 * chosen @ (c + B @ at)])
    return by_y @ lcp(matrix, right).z[: near.shape[0]] + at


class Around(NamedTuple):
    """A step with given impulses of friction."""

    result: Any
    rate: Array
    """of the coordinates with friction"""
    H: Array
    """∂rate/∂impulses, about"""
    bound: Array
    """largest impulses of friction"""


def settled(step: Callable[[Array], Around], inertia: Array, guess: Array) -> tuple[Any, Array, Array]:
    """A step whose impulses of friction fit its rates: the step, the impulses, and what is left of their rows.

    Steps are nearly linear in the impulses, so that few are needed. Where more rows stick than there are ways to
    move, H says hardly more than rounding of how they share the load: then impulses stay near the last ones.
    """

    def again(state: tuple[Any, Array, Array, Array]) -> tuple[Any, Array, Array, Array]:
        around, impulse, _, passes = state
        near = jnp.where(passes < QUICK, 0.0, NEAR) * stiffness(around.H, CREEP / inertia)
        none, two_sided = jnp.zeros((0, impulse.shape[0])), np.zeros(impulse.shape[0], bool)
        rate = around.rate - around.H @ impulse - near * impulse
        slide = Slide(
            rate, around.H, CREEP / inertia + near, around.bound, jnp.zeros(0), none, none.T, two_sided
        )
        new, _ = solved(slide, impulse)
        now = step(new)
        # how far the impulses are from fitting, in impulses
        stiff, most = stiffness(now.H, CREEP / inertia), now.bound
        wanted = new - (now.rate + CREEP / inertia * new) / stiff
        left = jnp.max(jnp.abs(new - jnp.clip(wanted, -most, most)))
        return now, new, left, passes + 1

    def unfinished(state: tuple[Any, Array, Array, Array]) -> Array:
        _, impulse, left, passes = state
        return (left > 1e-12 * (1e-2 + jnp.max(jnp.abs(impulse)))) & (passes < PASSES)

    start = (step(guess), guess, jnp.array(jnp.inf), jnp.array(0))
    around, impulse, left, _ = jax.lax.while_loop(unfinished, again, start)
    return around.result, impulse, left
