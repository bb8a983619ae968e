"""Evaluations that multilevel coordinate search needs on the nine standard functions, beside the authors' program.

    uv run python benchmarks/mcs.py [seed …]

Counted until (f − f*)/|f*| < 1e-4, on the usual boxes and on 25 whose bounds are each moved by up to a tenth of
the width, for each seed (by default 0 to 3).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from mechid.estimate.solvers.mcs import mcs

LIMIT = 5000
"""evaluations after which a box counts as not solved"""

WELLS = np.array(
    [
        [4, 4, 4, 4],
        [1, 1, 1, 1],
        [8, 8, 8, 8],
        [6, 6, 6, 6],
        [3, 7, 3, 7],
        [2, 9, 2, 9],
        [5, 5, 3, 3],
        [8, 1, 8, 1],
        [6, 2, 6, 2],
        [7, 3.6, 7, 3.6],
    ]
)
DEPTHS = np.array([0.1, 0.2, 0.2, 0.4, 0.4, 0.6, 0.3, 0.7, 0.5, 0.5])
HEIGHTS = np.array([1, 1.2, 3, 3.2])
A3 = np.array([[3, 10, 30], [0.1, 10, 35], [3, 10, 30], [0.1, 10, 35]])
P3 = np.array(
    [[0.3689, 0.117, 0.2673], [0.4699, 0.4387, 0.747], [0.1091, 0.8732, 0.5547], [0.03815, 0.5743, 0.8828]]
)
A6 = np.array(
    [
        [10, 3, 17, 3.5, 1.7, 8],
        [0.05, 10, 17, 0.1, 8, 14],
        [3, 3.5, 1.7, 10, 17, 8],
        [17, 8, 0.05, 10, 0.1, 14],
    ]
)
P6 = np.array(
    [
        [0.1312, 0.1696, 0.5569, 0.0124, 0.8283, 0.5886],
        [0.2329, 0.4135, 0.8307, 0.3736, 0.1004, 0.9991],
        [0.2348, 0.1451, 0.3522, 0.2883, 0.3047, 0.6650],
        [0.4047, 0.8828, 0.8732, 0.5743, 0.1091, 0.0381],
    ]
)


def shekel(m: int) -> Callable[[np.ndarray], float]:
    return lambda x: -float(np.sum(1.0 / (((x - WELLS[:m]) ** 2).sum(axis=1) + DEPTHS[:m])))


def hartman(A: np.ndarray, P: np.ndarray) -> Callable[[np.ndarray], float]:
    return lambda x: -float(HEIGHTS @ np.exp(-(A * (x - P) ** 2).sum(axis=1)))


def goldstein_price(v: np.ndarray) -> float:
    x, y = v
    first = 1 + (x + y + 1) ** 2 * (19 - 14 * x + 3 * x**2 - 14 * y + 6 * x * y + 3 * y**2)
    return first * (30 + (2 * x - 3 * y) ** 2 * (18 - 32 * x + 12 * x**2 + 48 * y - 36 * x * y + 27 * y**2))


def branin(v: np.ndarray) -> float:
    x, y = v
    bent = y - 5.1 / (4 * np.pi**2) * x**2 + 5 / np.pi * x - 6
    return bent**2 + 10 * (1 - 1 / (8 * np.pi)) * np.cos(x) + 10


def camel(v: np.ndarray) -> float:
    x, y = v
    return (4 - 2.1 * x**2 + x**4 / 3) * x**2 + x * y + (4 * y**2 - 4) * y**2


def shubert(v: np.ndarray) -> float:
    k = np.arange(1, 6)
    return float(np.prod([np.sum(k * np.cos((k + 1) * x + k)) for x in v]))


class Case(NamedTuple):
    function: Callable[[np.ndarray], float]
    lower: tuple[float, ...]
    upper: tuple[float, ...]
    lowest: float
    authors: int
    """evaluations of the authors' program on this box"""
    median: int
    """and on perturbed ones"""


CASES = {
    "S5": Case(shekel(5), (0,) * 4, (10,) * 4, -10.1531996790582, 83, 132),
    "S7": Case(shekel(7), (0,) * 4, (10,) * 4, -10.4029405668187, 106, 137),
    "S10": Case(shekel(10), (0,) * 4, (10,) * 4, -10.536409816692, 103, 366),
    "H3": Case(hartman(A3, P3), (0,) * 3, (1,) * 3, -3.86278214782076, 90, 117),
    "H6": Case(hartman(A6, P6), (0,) * 6, (1,) * 6, -3.32236801141551, 111, 109),
    "GP": Case(goldstein_price, (-2, -2), (2, 2), 3.0, 40, 61),
    "BR": Case(branin, (-5, 0), (10, 15), 0.397887357729739, 41, 82),
    "C6": Case(camel, (-3, -2), (3, 2), -1.0316284535, 42, 34),
    "SHU": Case(shubert, (-10, -10), (10, 10), -186.730908831024, 69, 180),
}


def evaluations(case: Case, lower: np.ndarray, upper: np.ndarray) -> float:
    """How many evaluations it takes, ∞ if more than the limit."""
    # a hair above the bar is not below it
    target = np.nextafter(case.lowest + 1e-4 * abs(case.lowest), -np.inf)
    found = mcs(case.function, lower, upper, target=target, evaluations=LIMIT, patience=LIMIT)
    return found.evaluations if found.value <= target else np.inf


def perturbed(name: str, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """25 boxes, each bound moved on its own by up to a tenth of the width."""
    case = CASES[name]
    lower, upper = np.array(case.lower, float), np.array(case.upper, float)
    random = np.random.default_rng([seed, list(CASES).index(name)])
    n, width = len(lower), upper - lower
    return [
        (lower + width * random.uniform(-0.1, 0.1, n), upper + width * random.uniform(-0.1, 0.1, n))
        for _ in range(25)
    ]


def main(seeds: list[int]) -> None:
    console = Console()
    table = Table("", *CASES, "sum", title="evaluations on the usual boxes")
    counts = [evaluations(c, np.array(c.lower), np.array(c.upper)) for c in CASES.values()]
    authors = [c.authors for c in CASES.values()]
    table.add_row("mechid", *(f"{k:g}" for k in counts), f"{sum(counts):g}")
    table.add_row("the authors' program", *map(str, authors), str(sum(authors)))
    console.print(table)

    table = Table("", *CASES, title="25 perturbed boxes: median, mean of those solved (solved)")
    pooled: list[list[float]] = [[] for _ in CASES]
    for seed in seeds:
        cells = []
        for name, all_of in zip(CASES, pooled, strict=True):
            some = [evaluations(CASES[name], *box) for box in perturbed(name, seed)]
            all_of += some
            cells.append(_cell(some))
        table.add_row(f"seed {seed}", *cells)
    if len(seeds) > 1:
        table.add_row("all seeds", *map(_cell, pooled))
    table.add_row("the authors' median", *(str(c.median) for c in CASES.values()))
    console.print(table)


def _cell(counts: list[float]) -> str:
    solved = [k for k in counts if np.isfinite(k)]
    return f"{np.median(counts):g}, {np.mean(solved):.0f} ({len(solved)})"


if __name__ == "__main__":
    main([int(word) for word in sys.argv[1:]] or [0, 1, 2, 3])
