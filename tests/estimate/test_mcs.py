"""Multilevel coordinate search: its pieces against closed forms and enumeration, the whole on known functions."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest

from mechid.errors import MechidError
from mechid.estimate.solvers.mcs import MCSState, mcs
from mechid.estimate.solvers.mcs import quadratic as bounded
from mechid.estimate.solvers.mcs.boxes import extent
from mechid.estimate.solvers.mcs.initial import Region, begin, default_lists
from mechid.estimate.solvers.mcs.lines import search_line
from mechid.estimate.solvers.mcs.local import (
    Model,
    Place,
    coordinate_model,
    local_search,
    slope_model,
    triple_model,
)
from mechid.estimate.solvers.mcs.sweeps import Samples, Search


def answer(asking, function):
    """What a search returns when a function answers it, and the points that it asked for."""
    points = []
    try:
        x = next(asking)
        while True:
            points.append(np.array(x))
            x = asking.send(function(x))
    except StopIteration as end:
        return end.value, points


def branin(v):
    x, y = v
    bent = y - 5.1 / (4 * np.pi**2) * x**2 + 5 / np.pi * x - 6
    return bent**2 + 10 * (1 - 1 / (8 * np.pi)) * np.cos(x) + 10


def camel(v):
    x, y = v
    return (4 - 2.1 * x**2 + x**4 / 3) * x**2 + x * y + (4 * y**2 - 4) * y**2


def rastrigin(x):
    return float(np.sum((x - 0.3) ** 2 - np.cos(6.0 * (x - 0.3)) + 1.0))


def region(*bounds):
    low, high = zip(*bounds, strict=True)
    return Region(np.array(low, float), np.array(high, float))


def place(where, steps, best=np.inf):
    steps = np.array(steps, float)
    return Place(where, steps, range(len(steps)), lambda x, i: [], lambda: best)


# -- quadratics inside bounds --------------------------------------------------------------------------------


def by_enumeration(g, G, low, high):
    """The lowest value of a quadratic in a box: of all choices of bounds, the stationary points inside."""
    best = np.inf
    for sides in itertools.product((0, -1, 1), repeat=len(g)):
        p = np.where(np.array(sides) < 0, low, high).astype(float)
        free = np.flatnonzero(np.array(sides) == 0)
        fixed = np.flatnonzero(sides)
        if len(free):
            right = -g[free] - G[np.ix_(free, fixed)] @ p[fixed]
            p[free] = np.linalg.solve(G[np.ix_(free, free)], right)
        if np.all(p >= low - 1e-12) and np.all(p <= high + 1e-12):
            best = min(best, g @ p + 0.5 * p @ G @ p)
    return best


@pytest.mark.parametrize("n", [1, 2, 4, 6])
def test_a_convex_quadratic_is_minimised_over_its_bounds(n):
    random = np.random.default_rng(n)
    for _ in range(20):
        A, g = random.normal(size=(n, n)), 3.0 * random.normal(size=n)
        G = A @ A.T + 0.05 * np.eye(n)
        low, high = -random.uniform(0.0, 1.0, n), random.uniform(0.0, 1.0, n)
        p = bounded.minimise(g, G, low, high)
        assert np.all((p >= low) & (p <= high))
        assert bounded.value(g, G, p) == pytest.approx(by_enumeration(g, G, low, high), rel=1e-9, abs=1e-12)


def test_an_indefinite_quadratic_ends_where_no_small_step_is_lower():
    random = np.random.default_rng(5)
    for _ in range(30):
        A, g = random.normal(size=(4, 4)), random.normal(size=4)
        G, low, high = A + A.T, -np.ones(4), np.ones(4)
        p = bounded.minimise(g, G, low, high)
        near = np.clip(p + 1e-3 * random.normal(size=(500, 4)), low, high)
        values = near @ g + 0.5 * np.einsum("ki,ij,kj->k", near, G, near)
        assert values.min() >= bounded.value(g, G, p) - 1e-9


def test_a_singular_quadratic_goes_down_its_flat_direction():
    p = bounded.minimise(np.array([1.0, 1.0]), np.zeros((2, 2)), -np.ones(2), np.ones(2))
    np.testing.assert_array_equal(p, [-1.0, -1.0])


# -- lines ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [0.3, 1.0, -2.0])
def test_a_parabola_is_minimised_by_four_samples(first):
    where = region((-10, 10), (-10, 10))
    x, p = np.array([1.0, 2.0]), np.array([1.0, -0.5])

    def f(point):
        return 3.0 * ((point - x)[0] - 1.7) ** 2 - 4.0

    line, points = answer(search_line(x, f(x), p, where, first, 6), f)
    gap = np.ptp(line.steps[line.triple()])
    assert abs(line.step - 1.7) <= 0.1 * gap
    assert len(points) <= 5
    assert np.all(np.diff(line.steps) > 0)
    np.testing.assert_allclose(line.values, 3.0 * (line.steps - 1.7) ** 2 - 4.0, atol=1e-12)


def test_an_expected_slope_replaces_a_sample():
    where, x, p = region((-10, 10)), np.zeros(1), np.ones(1)
    line, points = answer(
        search_line(x, 0.16, p, where, 1.0, 8, slope=-0.8), lambda point: (point[0] - 0.4) ** 2
    )
    assert line.step == pytest.approx(0.4)
    assert len(points) == 2
    # where the first sample is as good as told, it is the only one
    line, points = answer(
        search_line(x, 1.0, p, where, 1.0, 8, slope=-2.0), lambda point: (point[0] - 1.0) ** 2
    )
    assert (line.step, len(points)) == (1.0, 1)


def test_a_line_ends_at_the_bound_to_which_it_falls():
    where = region((-1, 2))
    line, points = answer(
        search_line(np.zeros(1), 0.0, np.ones(1), where, 0.5, 8), lambda x: float(-np.expm1(x[0]))
    )
    assert line.step == 2.0
    assert len(points) <= 4
    assert all(-1 <= x[0] <= 2 for x in points)


def test_known_samples_on_a_line_are_used_and_the_wide_side_is_halved():
    where = region((-10, 10))
    known = [(0.1, 1.02), (-8.0, 40.0)]
    _, points = answer(search_line(np.zeros(1), 1.0, np.ones(1), where, 0.1, 1, known=known), lambda x: 0.0)
    assert points[0][0] == -4.0


# -- models --------------------------------------------------------------------------------------------------

RANDOM = np.random.default_rng(2)
HESSIAN = (lambda A: A @ A.T + np.eye(4))(RANDOM.normal(size=(4, 4)))
CENTRE = np.array([0.3, -0.2, 0.5, 0.1])


def bowl(x):
    return float(0.5 * (x - CENTRE) @ HESSIAN @ (x - CENTRE) - 7.0)


@pytest.mark.parametrize("bounds", [(-5, 5), (-0.1, 5), (-5, 0.2)])
def test_models_of_a_quadratic_are_exact(bounds):
    here = place(region(*[bounds] * 4), [0.3, 0.2, -0.4, 0.1])
    x = np.zeros(4)
    model, _ = answer(coordinate_model(x, bowl(x), here), bowl)
    assert model.f == pytest.approx(bowl(model.x), abs=1e-12)
    np.testing.assert_allclose(model.G, HESSIAN, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(model.g, HESSIAN @ (model.x - CENTRE), rtol=1e-7, atol=1e-7)


def test_small_triples_and_slopes_tell_derivatives():
    here = place(region(*[(-5, 5)] * 4), [0.3, 0.2, -0.4, 0.1])
    x = np.array([0.6, 0.1, 0.2, 0.4])
    blank = Model(x, bowl(x), np.zeros(4), np.zeros((4, 4)))
    model, points = answer(triple_model(blank, here), bowl)
    assert len(points) == 4 * 2 + 6
    np.testing.assert_allclose(model.G, HESSIAN, atol=2e-3)
    np.testing.assert_allclose(model.g, HESSIAN @ (model.x - CENTRE), atol=1e-6)
    moved = np.array([0.1, -0.05, 0.2, 0.1])
    stale = Model(x, bowl(x), np.zeros(4), HESSIAN)
    model, points = answer(slope_model(stale, moved, bowl(x - moved), here), bowl)
    assert len(points) == 4
    np.testing.assert_allclose(model.g, HESSIAN @ (model.x - CENTRE), atol=1e-7)
    np.testing.assert_allclose(model.G, HESSIAN, atol=1e-6)


def test_a_local_search_finds_the_minimum_of_a_curved_valley():
    def rosenbrock(x):
        return 1.0 + 100.0 * (x[1] - x[0] ** 2) ** 2 + (1.0 - x[0]) ** 2

    x = np.array([-1.2, 1.0])
    model, points = answer(
        local_search(x, rosenbrock(x), place(region((-2, 2), (-2, 2)), [0.2, 0.2])), rosenbrock
    )
    np.testing.assert_allclose(model.x, [1.0, 1.0], atol=1e-3)
    assert len(points) < 400


def test_a_hopeless_local_search_is_left():
    x = np.array([0.9, 0.6, -0.4, -0.5])
    here = place(region(*[(-5, 5)] * 4), [0.3, 0.2, -0.4, 0.1])
    _, points = answer(local_search(x, bowl(x), here), lambda v: bowl(v) + 0.1 * np.sum(v**4))
    _, fewer = answer(
        local_search(x, bowl(x), here._replace(best=lambda: -1e3)), lambda v: bowl(v) + 0.1 * np.sum(v**4)
    )
    assert len(fewer) < len(points)


def test_a_local_search_ends_at_a_bound():
    def tilted(x):
        return float((x[0] - 3.0) ** 2 + (x[1] - 0.5 * x[0]) ** 2)

    x = np.array([0.2, 0.9])
    model, _ = answer(local_search(x, tilted(x), place(region((0, 1), (0, 1)), [0.1, 0.1])), tilted)
    np.testing.assert_allclose(model.x, [1.0, 0.5], atol=1e-6)


# -- boxes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("patience", [1, 4, 12])
@pytest.mark.parametrize(
    "where",
    [region((-3, 1), (0, 2)), region((-3, 1), (0, 2), (5, 6)), region((0, np.inf), (-np.inf, np.inf))],
    ids=["two", "three", "open"],
)
def test_boxes_tile_the_region(where, patience):
    lists = default_lists(where)
    search = Search(where, lists, np.ones(len(lists), int), 2000, patience, local=False)
    answer(search.run(), lambda x: float(np.sum(np.cos(3 * x) + 0.01 * x**2)))
    boxes = [box for level in search.active for _, _, box in level]
    assert len(boxes) > 5 * len(lists)
    corners = [extent(box, where) for box in boxes]
    for box, (low, high) in zip(boxes, corners, strict=True):
        assert np.all((low <= box.x) & (box.x <= high) & (low < high))
        assert np.all((where.lower <= low) & (high <= where.upper))
    inside = np.random.default_rng(0).uniform(
        np.maximum(where.lower, -30.0), np.minimum(where.upper, 30.0), (2000, len(lists))
    )
    low, high = (np.array(c) for c in zip(*corners, strict=True))
    holding = ((inside[:, None] > low) & (inside[:, None] < high)).all(axis=2).sum(axis=1)
    np.testing.assert_array_equal(holding, 1)
    if np.isfinite(where.upper).all():
        assert np.prod(high - low, axis=1).sum() == pytest.approx(np.prod(where.upper - where.lower))


def test_the_starting_list_costs_two_evaluations_a_coordinate_and_ranks_them():
    where = region((-1, 1), (-1, 1), (-1, 1))
    start, points = answer(
        begin(where, default_lists(where), np.ones(3, int)), lambda x: x[0] ** 2 + 9 * x[1] ** 2 + 3 * x[2]
    )
    assert len(points) == 7
    np.testing.assert_array_equal(start.rank, [2, 0, 1])
    np.testing.assert_allclose(start.gains, [0.0, 0.0, -3.0])


def test_open_sides_have_lists_of_their_own():
    made = default_lists(region((0, 1), (3, np.inf), (-np.inf, 0.5), (-np.inf, np.inf)))
    np.testing.assert_allclose(made, [[0, 0.5, 1], [3, 6, 33], [-9.5, -0.5, 0.5], [-10, 0, 10]])


def test_no_point_is_asked_for_twice():
    samples = Samples(1)

    def twice():
        a = yield np.array([0.0])
        b = yield np.array([-0.0])
        c = yield np.array([2.0])
        return a, b, c

    found, points = answer(samples.answered(twice()), lambda x: x[0] + 1.0)
    assert found == (1.0, 1.0, 3.0)
    assert len(points) == 2
    assert samples.on_line(np.array([2.0]), 0) == [(-2.0, 1.0)]


# -- the whole -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "bounds", "lowest", "most"),
    [
        (branin, ((-5, 10), (0, 15)), 0.397887357729739, 53),
        (camel, ((-3, 3), (-2, 2)), -1.0316284535, 54),
        (rastrigin, ((-4, 5), (-6, 4), (-5, 5)), 0.0, 450),
    ],
)
def test_the_global_minimum_is_found(function, bounds, lowest, most):
    low, high = zip(*bounds, strict=True)
    found = mcs(function, low, high, target=lowest + 1e-4 * (abs(lowest) or 1.0), evaluations=most)
    assert found.outcome == f"Reached the target after {found.evaluations} evaluations."
    assert function(found.x) == found.value
    assert found.evaluations == len(found.state.values) <= most
    exact = mcs(function, low, high)
    assert exact.value == pytest.approx(lowest, abs=1e-6 * (1 + abs(lowest)))
    assert exact.minima[0].value == exact.value


@pytest.mark.parametrize("stop", [1, 4, 23, 60, 111])
def test_a_search_continues_exactly_where_it_stopped(stop):
    whole = mcs(rastrigin, [-4, -6, -5], [5, 4, 5], evaluations=150)
    part = mcs(rastrigin, [-4, -6, -5], [5, 4, 5], evaluations=stop)
    assert part.evaluations == stop
    assert part.outcome.startswith(f"Stopped after {stop} evaluation")
    calls = []
    state = pickle.loads(pickle.dumps(part.state))
    rest = mcs(
        lambda x: calls.append(x) or rastrigin(x), [-4, -6, -5], [5, 4, 5], evaluations=150, state=state
    )
    assert len(calls) == whole.evaluations - stop
    np.testing.assert_array_equal(rest.state.points, whole.state.points)
    np.testing.assert_array_equal(rest.state.values, whole.state.values)
    np.testing.assert_array_equal(rest.x, whole.x)
    assert (rest.sweeps, rest.outcome, len(rest.minima)) == (whole.sweeps, whole.outcome, len(whole.minima))


def test_an_interrupted_search_keeps_what_it_has():
    calls = []

    def impatient(x):
        calls.append(x)
        if len(calls) == 20:
            raise KeyboardInterrupt
        return branin(x)

    found = mcs(impatient, [-5, 0], [10, 15])
    assert found.outcome == "Interrupted after 19 evaluations."
    rest = mcs(branin, [-5, 0], [10, 15], state=found.state)
    np.testing.assert_array_equal(rest.state.points, mcs(branin, [-5, 0], [10, 15]).state.points)


@pytest.mark.parametrize(
    "bounds",
    [((-np.inf, np.inf), (-np.inf, np.inf)), ((0, np.inf), (-np.inf, 100)), ((-np.inf, 50), (-200, 300))],
)
def test_bounds_may_be_infinite(bounds):
    low, high = zip(*bounds, strict=True)
    found = mcs(lambda x: (x[0] - 27.0) ** 2 + 3.0 * (x[1] + x[0] - 31.0) ** 4 + 2.0, low, high)
    assert found.value == pytest.approx(2.0, abs=1e-3)
    assert found.x[0] == pytest.approx(27.0, abs=0.1)


def test_scales_of_coordinates_do_not_matter():
    scale = np.array([1e-4, 1e5])
    plain = mcs(branin, [-5, 0], [10, 15], evaluations=40)
    scaled = mcs(
        lambda x: branin(x / scale), np.array([-5, 0]) * scale, np.array([10, 15]) * scale, evaluations=40
    )
    assert scaled.value == pytest.approx(plain.value, abs=1e-3)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e200])
def test_failed_evaluations_are_very_bad_and_no_more(bad):
    def half(x):
        return bad if x[0] > 4.0 or x[1] > 12.0 + x[0] else branin(x)

    found = mcs(half, [-5, 0], [10, 15], evaluations=300)
    assert found.value == pytest.approx(0.397887, abs=1e-4)
    assert np.isfinite([m.value for m in found.minima]).all()


def test_a_start_that_fails_is_no_obstacle():
    found = mcs(
        lambda x: np.nan if x[0] > 0 else (x[0] + 2) ** 2 + x[1] ** 2, [-5, -5], [7, 6], evaluations=200
    )
    assert found.value < 1e-3


@pytest.mark.parametrize("corner", [(0.93, 0.9), (0.05, 0.93), (0.55, 0.03)])
def test_patience_begins_where_the_function_does(corner):
    """Finite in a square of 0.5 % of the region: no sweep before it can improve anything."""

    def small(x):
        apart = np.array(x) - corner
        return np.nan if np.max(np.abs(apart)) > 0.035 else float(apart @ apart)

    found = mcs(small, [0, 0], [1, 1], evaluations=1000)
    assert found.value < 1e-6


def test_where_everything_fails_the_outcome_says_so():
    found = mcs(lambda x: np.nan, [0], [1])
    assert found.value == np.inf
    assert found.outcome.endswith("No evaluation has succeeded.")
    assert found.minima == ()


@pytest.mark.parametrize(
    "function", [lambda x: 1.0, lambda x: float(np.sign(x[0] - 0.3)), lambda x: 1e59 * x[0]]
)
def test_flat_and_steep_functions_end(function):
    found = mcs(function, [-5, 0], [1, 2], evaluations=1500, patience=300)
    assert found.value == min(found.state.values)
    assert found.outcome


def test_one_coordinate_and_a_list_of_ones_own():
    found = mcs(
        lambda x: np.cos(3 * x[0]) + 0.1 * x[0], [-4], [4], lists=[[-3.9, -2, 0, 1, 3.5]], patience=30
    )
    np.testing.assert_array_equal(found.state.points[:5, 0], [0, -3.9, -2, 1, 3.5])
    assert found.x[0] == pytest.approx(-np.pi - np.arcsin(0.1 / 3) / 3, abs=1e-3)


def test_a_search_begins_at_the_start():
    np.testing.assert_array_equal(mcs(branin, [-5, 0], [10, 15], start=[3, 2]).state.points[0], [3, 2])
    lists = [[-4, 0, 9], [1, 2, 14]]
    found = mcs(branin, [-5, 0], [10, 15], start=[3, 2], lists=lists, evaluations=4)
    np.testing.assert_array_equal(found.state.points, [[3, 2], [-4, 2], [0, 2], [9, 2]])


def test_without_local_searches_boxes_alone_come_near():
    found = mcs(branin, [-5, 0], [10, 15], local=False, patience=50)
    assert found.value < 0.45


BAD = [
    ({"lower": []}, "There are no bounds"),
    ({"lower": [0]}, "There are 1 lower bounds but 2 upper ones"),
    ({"lower": [0, "a"]}, "The lower bounds must be numbers, not [0, 'a']."),
    ({"lower": [0, np.nan]}, "The lower bounds must be a row of numbers"),
    ({"lower": [0, 1]}, "The bounds of coordinate 1 are 1 and 1; the lower must be below the upper."),
    ({"upper": [1, -np.inf]}, "The bounds of coordinate 1 are 0 and -inf"),
    ({"start": [0.5]}, "The start has 1 coordinates, the bounds have 2."),
    ({"start": [0.5, 3]}, "The start's coordinate 1 is 3; it must be finite and between 0 and 1."),
    ({"lists": [[0, 0.5, 1]]}, "There are 1 starting lists for 2 coordinates; give one for each."),
    (
        {"lists": [[0, 1], [0, 0.5, 1]]},
        "The starting list of coordinate 0 is [0.0, 1.0]; it must hold at least 3",
    ),
    ({"lists": [[0, 0.5, 2], [0, 0.5, 1]]}, "it must stay between 0 and 1."),
    ({"evaluations": 0}, "The number of evaluations must be a whole number of at least 1, not 0."),
    ({"evaluations": 2.5}, "The number of evaluations must be a whole number of at least 1, not 2.5."),
    ({"levels": 1}, "The number of levels must be a whole number of at least 2, not 1."),
    ({"patience": "long"}, "The patience must be a whole number of at least 1, not 'long'."),
    ({"target": "low"}, "The target must be a number, not 'low'."),
    ({"state": 3}, "The state must be the state of an earlier MCSResult, not 3."),
    ({"state": MCSState(np.zeros((1, 3)), np.zeros(1))}, "The state is of 3 coordinates, the bounds have 2."),
    (
        {"state": MCSState(np.zeros((1, 2)), np.zeros(1))},
        "The state belongs to another search: its evaluation 1 was at [0.0, 0.0], this search asks for [0.5, 0.5]",
    ),
    ({"function": lambda x: x}, "The function to minimise must return one number, not array"),
    ({"function": lambda x: "low"}, "The function to minimise must return one number, not 'low'."),
]


@pytest.mark.parametrize(("given", "sentence"), BAD)
def test_mistakes_are_told_in_a_sentence(given, sentence):
    arguments = {"function": lambda x: float(x @ x), "lower": [0, 0], "upper": [1, 1], **given}
    with pytest.raises(MechidError) as told:
        mcs(**arguments)
    assert sentence in str(told.value)
