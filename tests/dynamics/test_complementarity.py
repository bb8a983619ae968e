"""Complementarity problems against enumeration, closed forms and differences: thousands of small ones.

The conditions themselves are checked everywhere; where the solution is unique it is also compared.
"""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mechid.compile import jit
from mechid.dynamics.complementarity import Ended, Solved, boxed, lcp, mlcp

MANY = 1000
lcps = jit(jax.vmap(lcp))
boxes = jit(jax.vmap(boxed))


def enumerated(
    H: np.ndarray, q: np.ndarray, lower: np.ndarray, upper: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """How many bases of each problem of a batch solve it, and the solution of the last of them."""
    count, solution = np.zeros(len(q), dtype=int), np.full(q.shape, np.nan)
    n = q.shape[1]
    states = [
        [kind for kind in range(3) if kind == 0 or np.isfinite((lower, upper)[kind - 1][:, i]).any()]
        for i in range(n)
    ]
    for state in itertools.product(*states):
        between, high = np.array(state) == 0, np.array(state) == 2
        at_bound = np.where(between, 0.0, np.where(high, upper, lower))
        possible = np.isfinite(at_bound).all(1)
        at_bound = np.where(possible[:, None], at_bound, 0.0)
        columns = np.where(between, -H, np.eye(n))
        possible &= np.abs(np.linalg.det(columns)) > 1e-9
        columns[~possible] = np.eye(n)
        rhs = q + np.einsum("bij,bj->bi", H, at_bound)
        y = np.linalg.solve(columns, rhs[..., None])[..., 0]
        low = np.where(between, lower, np.where(high, -np.inf, 0.0))
        top = np.where(between, upper, np.where(high, 0.0, np.inf))
        found = possible & ((y >= low - 1e-9) & (y <= top + 1e-9)).all(1)
        count += found
        solution[found] = np.where(between, y, at_bound)[found]
    return count, solution


def half_line(q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.zeros_like(q), np.full_like(q, np.inf)


def check(
    end: Solved, H: np.ndarray, q: np.ndarray, lower: np.ndarray, upper: np.ndarray, relative: float = 1e-10
) -> None:
    """All solved, with all conditions of the problem."""
    z, w = np.asarray(end.z), np.asarray(end.w)
    assert (np.asarray(end.outcome) == Ended.SOLVED).all(), np.bincount(end.outcome)
    size = np.abs(q) + np.einsum("bij,bj->bi", np.abs(H), np.abs(z))
    assert (np.abs(np.einsum("bij,bj->bi", H, z) + q - w) <= relative * (size + size.max(1)[:, None])).all()
    assert ((z >= lower) & (z <= upper)).all()
    assert ((w >= 0) | (z == upper)).all()
    assert ((w <= 0) | (z == lower)).all()


def definite(rng: np.random.Generator, n: int, many: int = MANY) -> np.ndarray:
    half, skew = rng.normal(size=(2, many, n, n))
    return half @ half.transpose(0, 2, 1) + 0.1 * np.eye(n) + skew - skew.transpose(0, 2, 1)


def triangle(rng: np.random.Generator, n: int, many: int = MANY) -> np.ndarray:
    """P-matrices that are far from definite: triangles, with their pairs in random order."""
    order = rng.permuted(np.tile(np.arange(n), (many, 1)), axis=1)
    T = np.triu(3 * rng.normal(size=(many, n, n)), 1) + np.eye(n) * rng.uniform(0.2, 2, (many, 1, n))
    return np.take_along_axis(np.take_along_axis(T, order[:, :, None], 1), order[:, None, :], 2)


def semidefinite(rng: np.random.Generator, n: int, many: int = MANY) -> np.ndarray:
    """Of half the rank, with constraints' skew blocks in every second one."""
    half, skew = rng.normal(size=(many, n, n // 2)), np.triu(rng.normal(size=(many, n, n)))
    skew *= np.arange(many)[:, None, None] % 2
    return half @ half.transpose(0, 2, 1) + skew - skew.transpose(0, 2, 1)


def friction(
    rng: np.random.Generator, contacts: int, directions: int, many: int = MANY, compliance: float = 1e-3
) -> tuple[np.ndarray, np.ndarray]:
    """Contacts with friction of a body, as in (2.24) after its velocities are eliminated."""
    rows = contacts * directions
    C, D = rng.normal(size=(many, contacts, 6)), rng.normal(size=(many, contacts, directions // 2, 6))
    D = np.concatenate([D, -D], 2).reshape(many, rows, 6)
    v = rng.normal(size=(many, 6, 1))
    J = np.concatenate([C, D], 1)
    E = np.kron(np.eye(contacts), np.ones((directions, 1)))
    mu = np.eye(contacts) * rng.uniform(0.05, 1.5, (many, 1, contacts))
    H = np.zeros((many, rows + 2 * contacts, rows + 2 * contacts))
    H[:, : -len(E[0]), : -len(E[0])] = J @ J.transpose(0, 2, 1) + compliance * np.eye(contacts + rows)
    H[:, contacts:-contacts, -contacts:] = E
    H[:, -contacts:, contacts:-contacts] = -E.T
    H[:, -contacts:, :contacts] = mu
    return H, np.concatenate([(J @ v)[..., 0], np.zeros((many, contacts))], 1)


@pytest.mark.parametrize("n", [1, 3, 6])
@pytest.mark.parametrize("make", [definite, triangle])
def test_unique_solutions_are_found(make: Any, n: int) -> None:
    """Of P-matrices, in few pivots; no pivot where q ≥ 0."""
    rng = np.random.default_rng(n)
    H, q = make(rng, n), rng.normal(size=(MANY, n))
    end = lcps(H, q)
    check(end, H, q, *half_line(q))
    count, solution = enumerated(H, q, *half_line(q))
    assert (count == 1).all()
    assert np.abs(end.z - solution).max() < 1e-8 * np.abs(solution).max()
    at_once = (q >= 0).all(1)
    assert 0 < at_once.sum() < MANY
    assert ((np.asarray(end.pivots) == 0) == at_once).all()


@pytest.mark.slow
@pytest.mark.parametrize("n", [4, 6])
def test_semidefinite_problems_end_on_a_ray_only_without_solution(n: int) -> None:
    rng = np.random.default_rng(n)
    H, q = semidefinite(rng, n), rng.normal(size=(MANY, n)) + 0.3
    end = lcps(H, q)
    solvable = enumerated(H, q, *half_line(q))[0] > 0
    assert min(solvable.sum(), (~solvable).sum()) > MANY // 20
    assert (np.asarray(end.outcome) == np.where(solvable, Ended.SOLVED, Ended.RAY)).all()
    assert np.isnan(end.z[~solvable]).all()
    check(Solved(*(x[solvable] for x in end)), *(x[solvable] for x in (H, q, *half_line(q))))


@pytest.mark.parametrize(("contacts", "directions"), [(1, 2), (1, 4), (3, 4)])
def test_friction_is_always_solved(contacts: int, directions: int) -> None:
    """The matrix is copositive and q is zero in the rows of σ: degenerate, and never without solution."""
    H, q = friction(np.random.default_rng(contacts), contacts, directions, MANY // contacts**2)
    end = lcps(H, q)
    check(end, H, q, *half_line(q))
    touching = np.asarray(end.z)[:, :contacts] > 0
    slides = np.asarray(end.z)[:, -contacts:] > 1e-9
    assert (touching & slides).any()
    assert (touching & ~slides).any()


@pytest.mark.slow
def test_redundant_contacts() -> None:
    """Far more contacts than freedoms, barely compliant: n = 40 and condition numbers of 1e9."""
    rng = np.random.default_rng(1)
    J = rng.normal(size=(100, 40, 6))
    H, q = J @ J.transpose(0, 2, 1) + 1e-8 * np.eye(40), (J @ rng.normal(size=(100, 6, 1)))[..., 0]
    check(lcps(H, q), H, q, *half_line(q), relative=1e-8)


@pytest.mark.slow
def test_units_do_not_matter() -> None:
    """Rows and columns in units as different as 1e-6 and 1e6."""
    rng = np.random.default_rng(2)
    n = 6
    H, q = definite(rng, n, 200), rng.normal(size=(200, n))
    row, column = 10 ** rng.uniform(-6, 6, (2, 200, n))
    plain, scaled = lcps(H, q), lcps(row[:, :, None] * H * column[:, None], row * q)
    assert (np.asarray(scaled.outcome) == Ended.SOLVED).all()
    assert np.abs(scaled.z * column - plain.z).max() < 1e-9 * np.abs(plain.z).max()


def in_exact_numbers(H: list[list[int]], q: list[int], rule: str) -> tuple[str, int]:
    """Lemke's algorithm with fractions and a rule for ties: how it ends and after how many pivots."""
    n = len(q)
    one = np.eye(n, dtype=int).tolist()
    T = [[Fraction(x) for x in (*one[i], *(-h for h in H[i]), -1, q[i])] for i in range(n)]
    basis, seen, entering, pivots = list(range(n)), set(), 2 * n, 0

    def chosen(tied: list[int], divisor: int) -> int:
        if rule == "lexicographic":
            return min(tied, key=lambda i: [x / (T[i][entering] * divisor) for x in T[i][:n]])
        return (min if rule == "first" else max)(tied, key=lambda i: basis[i] % n)

    row = chosen([i for i in range(n) if q[i] == min(q)], -1)
    while True:
        leaving, pivot = basis[row], T[row][entering]
        basis[row], T[row], pivots = entering, [x / pivot for x in T[row]], pivots + 1
        for i in set(range(n)) - {row}:
            T[i] = [x - T[i][entering] * y for x, y in zip(T[i], T[row], strict=True)]
        if leaving == 2 * n:
            return "SOLVED", pivots
        entering = (leaving + n) % (2 * n)
        if (*basis, entering) in seen:
            return "cycle", pivots
        seen.add((*basis, entering))
        rows = [i for i in range(n) if T[i][entering] > 0]
        if not rows:
            return "RAY", pivots + 1
        least = min(T[i][-1] / T[i][entering] for i in rows)
        tied = [i for i in rows if T[i][-1] == least * T[i][entering]]
        row = basis.index(2 * n) if basis.index(2 * n) in tied else chosen(tied, 1)


CYCLES = [
    (
        "first",
        [[0, 1, 1, 3, 1], [-3, 3, 0, 0, -3], [2, -2, 1, -2, -1], [1, -1, 2, 0, 2], [1, -3, 0, 1, 3]],
        [-1, -1, 0, -1, -1],
    ),
    (
        "last",
        [[0, 1, 1, 3, 1], [-3, 3, 0, 0, -3], [2, -2, 1, -2, -1], [1, -1, 2, 0, 2], [1, -3, 0, 1, 3]],
        [-1, -1, 0, -1, -1],
    ),
    (
        "first",
        [
            [1, -2, -2, -3, -3, -1],
            [-1, 2, -2, -3, 2, 1],
            [2, 3, 3, -2, 1, -2],
            [2, 1, 3, 1, -2, -1],
            [1, 1, -1, 0, 1, 2],
            [3, -2, -3, -2, 2, 2],
        ],
        [0, 0, -1, -1, -1, -1],
    ),
    (
        "last",
        [[3, 3, -2, 0, -3], [3, 2, 2, -2, 3], [-1, -2, 3, -1, -1], [-1, -1, -2, 0, 1], [3, -1, 2, 1, 3]],
        [-1, -1, -1, 0, 0],
    ),
]


@pytest.mark.parametrize(("rule", "H", "q"), CYCLES)
def test_no_cycles(rule: str, H: list[list[int]], q: list[int]) -> None:
    """Problems full of ties, in which the first or the last of tied rows leads back to a basis."""
    assert in_exact_numbers(H, q, rule)[0] == "cycle"
    end = jit(lcp)(np.array(H, dtype=float), np.array(q, dtype=float))
    assert (Ended(int(end.outcome)).name, end.pivots) == in_exact_numbers(H, q, "lexicographic")


@pytest.mark.parametrize("n", [3, 6])
def test_ties(n: int) -> None:
    """P-matrices of small whole numbers, with q of zeros and equal numbers."""
    rng = np.random.default_rng(n)
    H, q = np.round(triangle(rng, n)), rng.integers(-1, 1, (MANY, n)).astype(float)
    H = np.where(np.eye(n) * H > 0, H, np.where(np.eye(n), 1.0, H))
    end = lcps(H, q)
    check(end, H, q, *half_line(q))
    count, solution = enumerated(H, q, *half_line(q))
    assert (count > 1).any(), "nothing is degenerate: a test of nothing"
    assert np.abs(end.z - solution).max() < 1e-9 * np.abs(solution).max()


UNSOLVABLE = {
    "no stiffness": (np.zeros((2, 2)), [-1.0, 0.0]),
    "wrong sign": (-np.eye(3), [-1.0, -1.0, -1.0]),
    "two walls that exclude each other": (np.array([[1.0, -1.0], [-1.0, 1.0]]), [-1.0, -1.0]),
}


@pytest.mark.parametrize("name", UNSOLVABLE)
def test_no_solution_ends_on_a_ray(name: str) -> None:
    H, q = UNSOLVABLE[name]
    end = jit(lcp)(H, np.array(q))
    assert end.outcome == Ended.RAY
    assert np.isnan(end.z).all()


def test_other_ends() -> None:
    H, q = np.eye(3), -np.ones(3)
    assert jit(lcp)(H, q).pivots == 4
    few = jit(lambda H, q: lcp(H, q, max_pivots=3))(H, q)
    assert few.outcome == Ended.TOO_MANY
    assert np.isnan([few.z, few.w]).all()
    for bad in ((H * np.nan, q), (H, q * [1, np.nan, 1]), (H, q * [1, np.inf, 1])):
        end = jit(lcp)(*bad)
        assert end.outcome == Ended.INEXACT, bad
        assert np.isnan([end.z, end.w]).all()
    assert jit(boxed)(H, q, np.ones(3), np.zeros(3)).outcome == Ended.INEXACT


def test_nothing_to_solve() -> None:
    H, q = np.zeros((0, 0)), np.zeros(0)
    for end in (jit(lcp)(H, q), jit(boxed)(H, q, q, q), jit(lambda S, b: mlcp(S, b, 0))(H, q)):
        assert end.z.shape == end.w.shape == (0,)
        assert end.outcome == Ended.SOLVED
        assert end.pivots == 0


@pytest.mark.parametrize(("free", "n"), [(0, 3), (1, 2), (3, 7), (4, 5), (5, 5)])
def test_mixed_problems(free: int, n: int) -> None:
    """Equations before complementary rows, the latter not symmetric."""
    rng = np.random.default_rng(n)
    half, skew = rng.normal(size=(2, MANY, n, n))
    skew[:, :free] = skew[:, :, :free] = 0.0
    S = half @ half.transpose(0, 2, 1) + 0.2 * np.eye(n) + skew - skew.transpose(0, 2, 1)
    b = rng.normal(size=(MANY, n))
    lower, upper = half_line(b)
    lower[:, :free] = -np.inf
    end = jit(jax.vmap(lambda S, b: mlcp(S, b, free)))(S, b)
    check(end, S, b, lower, upper)
    assert np.abs(end.z - enumerated(S, b, lower, upper)[1]).max() < 1e-8 * np.abs(end.z).max()


def bounds(
    rng: np.random.Generator, n: int, many: int = MANY, narrow: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Finite, half infinite and infinite ones; some of no width, unless told."""
    lower = rng.normal(size=(many, n))
    upper = lower + rng.choice([narrow, 0.3, 1.0, np.inf], size=(many, n))
    return np.where(rng.uniform(size=(many, n)) < 0.3, -np.inf, lower), upper


@pytest.mark.parametrize("n", [1, 4])
@pytest.mark.parametrize("make", [definite, triangle])
def test_boxes(make: Any, n: int) -> None:
    rng = np.random.default_rng(n)
    H, q, (lower, upper) = make(rng, n), 2 * rng.normal(size=(MANY, n)), bounds(rng, n)
    end = boxes(H, q, lower, upper)
    check(end, H, q, lower, upper)
    count, solution = enumerated(H, q, lower, upper)
    assert (count > 0).all()
    assert np.abs(end.z - solution).max() < 1e-8 * np.abs(solution).max()


@pytest.mark.slow
def test_a_finite_box_always_has_a_solution() -> None:
    """For any matrix, which Lemke's path finds."""
    rng = np.random.default_rng(3)
    H, q = rng.normal(size=(MANY, 6, 6)), rng.normal(size=(MANY, 6))
    lower = -rng.uniform(0.1, 1, q.shape)
    end = boxes(H, q, lower, -2 * lower)
    check(end, H, q, lower, -2 * lower)


@pytest.mark.slow
def test_boxes_are_those_of_projected_relaxation() -> None:
    rng = np.random.default_rng(4)
    n, many = 13, 20
    half = rng.normal(size=(many, n, n))
    H, q = half @ half.transpose(0, 2, 1) / n + np.eye(n), 2 * rng.normal(size=(many, n))
    lower, upper = bounds(rng, n, many)
    z = np.clip(np.zeros_like(q), lower, upper)
    for _ in range(2000):
        for i in range(n):
            w = q[:, i] + np.einsum("bj,bj->b", H[:, i], z)
            z[:, i] = np.clip(z[:, i] - w / H[:, i, i], lower[:, i], upper[:, i])
    assert np.abs(boxes(H, q, lower, upper).z - z).max() < 1e-10


@pytest.mark.slow
def test_many_at_once_are_the_same_as_one_by_one() -> None:
    rng = np.random.default_rng(5)
    H, q = semidefinite(rng, 6, 40), rng.normal(size=(40, 6)) + 0.3
    together, one = lcps(H, q), jit(lcp)
    assert len(np.unique(together.outcome)) == 2
    for i in range(40):
        alone = one(H[i], q[i])
        assert (alone.outcome, alone.pivots) == (together.outcome[i], together.pivots[i])
        assert np.allclose(alone.z, together.z[i], rtol=1e-12, atol=1e-12, equal_nan=True)


@pytest.mark.slow
def test_slopes() -> None:
    """jvp along H, q and both bounds against central differences, and vjp and second derivatives against jvp."""
    rng = np.random.default_rng(6)
    n, many, h = 5, 30, 1e-6
    point = (definite(rng, n, many), rng.normal(size=(many, n)), *bounds(rng, n, many, narrow=0.1))
    change = tuple(rng.normal(size=x.shape) for x in point)

    def z(*x: Any) -> Any:
        return boxed(*x).z

    def slope(*x: Any) -> Any:
        return jax.jvp(z, x[:4], x[4:])[1]

    @jit
    @jax.vmap
    def slopes(point: Any, change: Any, weights: Any) -> Any:
        pull = jax.vjp(z, *point)[1]
        zero = jax.tree.map(jnp.zeros_like, change)
        return slope(*point, *change), pull(weights), jax.jvp(slope, (*point, *change), (*change, *zero))[1]

    several = jit(jax.vmap(z))
    first = jit(jax.vmap(slope))
    ends = [tuple(x + s * h * d for x, d in zip(point, change, strict=True)) for s in (1, -1)]
    weights = rng.normal(size=(many, n))
    forward, backward, second = slopes(point, change, weights)
    difference = (several(*ends[0]) - several(*ends[1])) / (2 * h)
    size = 1 + np.abs(difference).max(1)
    assert np.median(np.abs(difference).max(1)) > 0.1
    assert (np.abs(forward - difference).max(1) < 1e-5 * size**2).all()
    pulled = sum((b * d).reshape(many, -1).sum(1) for b, d in zip(backward, change, strict=True))
    assert np.allclose(pulled, (weights * forward).sum(1), rtol=1e-9, atol=1e-9)
    difference = (first(*ends[0], *change) - first(*ends[1], *change)) / (2 * h)
    assert (np.abs(second - difference).max(1) < 1e-4 * size**3).all()


def one_mass(mu: Any, force: Any) -> Any:
    """Speed after a step of a mass on a table, at rest before: friction as a box, and as in (2.24)."""
    m, g, step = 2.0, 9.81, 0.01
    pushed = step * force / m
    limit = mu * m * g * step
    box = boxed(jnp.array([[1 / m]]), pushed[None], -limit[None], limit[None])
    zero, one = jnp.zeros(()), jnp.ones(())
    H = jnp.stack(
        [
            jnp.stack([one / m, zero, zero, zero]),
            jnp.stack([zero, one / m, -one / m, one]),
            jnp.stack([zero, -one / m, one / m, one]),
            jnp.stack([mu, -one, -one, zero]),
        ]
    )
    cone = lcp(H, jnp.stack([-step * g * one, pushed, -pushed, zero])).z
    return jnp.stack([pushed + box.z[0] / m, pushed + (cone[1] - cone[2]) / m])


@pytest.mark.parametrize(("force", "sign"), [(3.0, 0), (-3.0, 0), (5.0, 1), (-5.0, -1)])
def test_stick_and_slip(force: float, sign: int) -> None:
    """A mass that sticks does not move, whatever the parameters; one that slides does at h (F/m − μ g)."""
    mu, h = 0.2, 1e-6
    speed = jit(one_mass)
    by_mu, by_force = jit(jax.jacfwd(one_mass, argnums=(0, 1)))(mu, force)
    assert np.allclose(speed(mu, force), 0.01 * sign * (abs(force) / 2 - mu * 9.81), atol=1e-15)
    assert np.allclose(by_mu, -0.01 * 9.81 * sign, atol=1e-15)
    assert np.allclose(by_force, 0.005 * abs(sign), atol=1e-15)
    assert np.allclose(by_mu, (speed(mu + h, force) - speed(mu - h, force)) / (2 * h), atol=1e-9)
    assert np.allclose(by_force, (speed(mu, force + h) - speed(mu, force - h)) / (2 * h), atol=1e-9)


@pytest.mark.slow
def test_slopes_of_mixed_problems() -> None:
    rng = np.random.default_rng(7)
    n, free, many, h = 6, 3, 20, 1e-6
    half, dS = rng.normal(size=(2, many, n, n))
    S, b, db = half @ half.transpose(0, 2, 1) + 0.2 * np.eye(n), *rng.normal(size=(2, many, n))
    solution = jit(jax.vmap(lambda S, b: mlcp(S, b, free).z))
    slope = jit(jax.vmap(lambda S, b, dS, db: jax.jvp(lambda *x: mlcp(*x, free).z, (S, b), (dS, db))[1]))
    difference = (solution(S + h * dS, b + h * db) - solution(S - h * dS, b - h * db)) / (2 * h)
    size = 1 + np.abs(difference).max(1)
    assert (np.abs(slope(S, b, dS, db) - difference).max(1) < 1e-5 * size**2).all()


@pytest.mark.slow
@pytest.mark.parametrize("problem", [lcp, lambda H, q: boxed(H, q, q - 1, q + 1)])
def test_a_problem_fuses_into_a_loop(problem: Any) -> None:
    """Nothing that would break a compiled loop into many kernels."""
    text = str(jax.make_jaxpr(problem)(jnp.eye(7), jnp.ones(7)))
    assert "while" in text
    for breaks in (" scatter", " sort[", "triangular_solve", " lu[", "ffi_call"):
        assert breaks not in text, breaks
