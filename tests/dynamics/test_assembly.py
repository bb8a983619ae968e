"""Closed loops: coordinates and rates against closed forms and independently computed poses."""

from __future__ import annotations

import re

import numpy as np
import pytest
from numpy.polynomial.polynomial import polyval
from scipy.spatial.transform import Rotation

from mechid import Mechanism, MechidError
from mechid.dynamics.assembly import assemble, check_start, project_rates
from mechid.dynamics.model import TreeModel
from mechid.studies import mechanisms

# Four-bar: where two circles meet

CRANK, COUPLER, ROCKER, BASE = 0.2, 0.5, 0.4, 0.4


def direction(angle: float) -> np.ndarray:
    """Of a link's x axis in the x–z plane, after a turn about y."""
    return np.array([np.cos(angle), -np.sin(angle)])


def four_bar_angles(a: float, branch: float) -> np.ndarray:
    """a, b, c of the closed four-bar: where circles about crank end and rocker pivot meet."""
    crank_end, pivot = CRANK * direction(a), np.array([BASE, 0.0])
    between = pivot - crank_end
    d = np.linalg.norm(between)
    along = (d**2 + COUPLER**2 - ROCKER**2) / (2 * d)
    across = branch * np.sqrt(COUPLER**2 - along**2)
    x, z = between / d
    meeting = crank_end + along * np.array([x, z]) + across * np.array([-z, x])

    def angle(v: np.ndarray) -> float:
        return float(np.arctan2(-v[1], v[0]))

    return np.array([a, angle(meeting - crank_end) - a, angle(meeting - pivot)])


def wrapped(x: np.ndarray) -> np.ndarray:
    return np.arctan2(np.sin(x), np.cos(x))


@pytest.fixture(scope="module")
def four_bar() -> Mechanism:
    return mechanisms.four_bar()


@pytest.mark.parametrize("branch", [-1.0, 1.0])
@pytest.mark.parametrize("a", [-0.9, 0.4, 2.0, 3.5])
def test_four_bar_with_its_crank_held(four_bar: Mechanism, a: float, branch: float) -> None:
    want = four_bar_angles(a, branch)
    q = assemble(four_bar, want + np.array([0.0, 0.15, -0.1]), hold=["a"])
    assert q[0] == a
    np.testing.assert_allclose(wrapped(q - want), 0.0, atol=1e-9)
    # Freudenstein's equation between crank and rocker
    balance = (
        BASE / CRANK * np.cos(q[2])
        - BASE / ROCKER * np.cos(a)
        + (CRANK**2 - COUPLER**2 + ROCKER**2 + BASE**2) / (2 * CRANK * ROCKER)
        - np.cos(a - q[2])
    )
    assert abs(balance) < 1e-8


def test_the_named_guess_of_the_four_bar_closes(four_bar: Mechanism) -> None:
    q = assemble(four_bar, mechanisms.FOUR_BAR_GUESS, hold=["a"])
    branches = [four_bar_angles(mechanisms.FOUR_BAR_GUESS["a"], s) for s in (-1.0, 1.0)]
    assert min(np.abs(wrapped(q - b)).max() for b in branches) < 1e-9


def test_an_already_closed_guess_is_kept(four_bar: Mechanism) -> None:
    q = four_bar_angles(0.7, 1.0)
    np.testing.assert_allclose(assemble(four_bar, q), q, atol=1e-11)


# Every kind of loop on a free body

FREE = tuple(f"free.{x}" for x in ("x", "y", "z", "roll", "pitch", "yaw"))
GOAL = (np.array([0.3, -0.2, 0.5]), Rotation.from_rotvec([0.4, 0.2, -0.3]))
HAND = (np.array([0.1, 0.2, 0.3]), Rotation.from_rotvec([0.5, -0.2, 0.1]))
AXIS = np.array([0.36, 0.48, 0.8])


def free_body(kind: str, goal: np.ndarray = GOAL[0]) -> Mechanism:
    return (
        Mechanism("free body")
        .body("body", mass=1.0, inertia=(1, 1, 1))
        .floating("free", "world", "body")
        .frame("goal", "world", origin=goal, rotation=GOAL[1].as_matrix())
        .frame("hand", "body", origin=HAND[0], rotation=HAND[1].as_matrix())
        .loop("grip", "goal", "hand", kind=kind, axis=AXIS)
    )


def hand_pose(q: np.ndarray) -> tuple[np.ndarray, Rotation]:
    """Position and orientation of the hand: slides along x, y, z, then turns about x, y', z''."""
    turn = Rotation.from_euler("XYZ", q[3:])
    return q[:3] + turn.apply(HAND[0]), turn * HAND[1]


def guess(turned: np.ndarray, away: float = 0.4) -> np.ndarray:
    """Coordinates whose hand is turned from the goal by a rotation vector, in the goal's axes."""
    body = GOAL[1] * Rotation.from_rotvec(turned) * HAND[1].inv()
    return np.concatenate([GOAL[0] - body.apply(HAND[0]) + away, body.as_euler("XYZ")])


TURNS = [
    np.array(t)
    for t in [(2.0, 0, 0), (0, -2.0, 0), (0, 0, 2.0), (1.2, 1.2, -1.0), (-1.0, 0.3, 1.7), (0, 0, 0)]
]


@pytest.mark.parametrize("turned", TURNS, ids=str)
@pytest.mark.parametrize("kind", ["frame", "point-on-axis"])
def test_frames_coincide_and_are_not_turned_over(kind: str, turned: np.ndarray) -> None:
    x, R = hand_pose(assemble(free_body(kind), guess(turned)))
    np.testing.assert_allclose(x, GOAL[0], atol=1e-9)
    assert (GOAL[1].inv() * R).magnitude() < 1e-9


def test_a_frame_that_begins_turned_over_by_almost_half_a_turn_is_turned_back() -> None:
    x, R = hand_pose(assemble(free_body("frame"), guess(np.array([0, 3.1, 0]), away=0.0)))
    np.testing.assert_allclose(x, GOAL[0], atol=1e-9)
    assert (GOAL[1].inv() * R).magnitude() < 1e-9


SMALLER_TURNS = [0.5 * t for t in TURNS]


@pytest.mark.parametrize("turned", SMALLER_TURNS, ids=str)
def test_points_coincide(turned: np.ndarray) -> None:
    start = guess(turned)
    q = assemble(free_body("point"), start)
    np.testing.assert_allclose(hand_pose(q)[0], GOAL[0], atol=1e-9)
    assert np.abs(q - start).max() < 2.0, "it wandered off"


@pytest.mark.parametrize("turned", SMALLER_TURNS, ids=str)
def test_axes_are_parallel(turned: np.ndarray) -> None:
    start = guess(turned)
    q = assemble(free_body("axis"), start)
    np.testing.assert_allclose(hand_pose(q)[1].apply(AXIS), GOAL[1].apply(AXIS), atol=1e-9)
    np.testing.assert_array_equal(q[:3], start[:3])


@pytest.mark.parametrize("turned", SMALLER_TURNS, ids=str)
def test_planes_coincide(turned: np.ndarray) -> None:
    x, R = hand_pose(assemble(free_body("planar"), guess(turned)))
    normal = GOAL[1].apply(AXIS)
    np.testing.assert_allclose(R.apply(AXIS), normal, atol=1e-9)
    assert abs((x - GOAL[0]) @ normal) < 1e-9
    assert np.linalg.norm(x - GOAL[0]) > 0.01, "only the distance from the plane is closed"


@pytest.mark.parametrize("turned", SMALLER_TURNS, ids=str)
def test_pins_stand_on_one_line(turned: np.ndarray) -> None:
    x, _ = hand_pose(assemble(free_body("pin"), guess(turned)))
    normal = GOAL[1].apply(AXIS)
    np.testing.assert_allclose(np.cross(x - GOAL[0], normal), 0.0, atol=1e-9)
    assert abs((x - GOAL[0]) @ normal) > 0.01, "nothing is closed along the axis"


# Out of reach

PLACE = FREE[:3]
REACH = float(np.linalg.norm(HAND[0]))


@pytest.mark.parametrize(
    "goal",
    [(1.5, 0, 0), (0, 0, -1.0), (0.9, 0.9, 0.9), (0, -0.8, 0.6), (0.1, 0.05, -0.02)],
    ids=str,
)
def test_a_loop_out_of_reach_is_named_with_its_gap(goal: tuple[float, ...]) -> None:
    """The body may only turn about its origin: its hand moves on a sphere."""
    with pytest.raises(MechidError) as caught:
        assemble(free_body("point", np.array(goal)), hold=PLACE)
    sentence = str(caught.value)
    assert sentence.startswith("Loop 'grip' cannot be closed with free.x, free.y, free.z held")
    gap = re.search(r"open by ([\d.e+-]+) m", sentence)
    assert gap is not None, sentence
    assert float(gap[1]) == pytest.approx(abs(np.linalg.norm(goal) - REACH), rel=1e-2)


def test_what_is_held_stays() -> None:
    mechanism = free_body("point", np.array([0.6, 0.3, -0.2]))
    start = mechanism.coordinate_vector({"free.y": 0.25, "free.pitch": 0.4, "free.yaw": -0.7}, "q")
    held = ["free.y", "free.pitch", "free.yaw"]
    q = assemble(mechanism, start, hold=held)
    np.testing.assert_array_equal(q[[1, 4, 5]], start[[1, 4, 5]])
    np.testing.assert_allclose(hand_pose(q)[0], (0.6, 0.3, -0.2), atol=1e-9)


def test_a_guess_is_not_written_to() -> None:
    start = guess(TURNS[0])
    before = start.copy()
    assemble(free_body("frame"), start)
    np.testing.assert_array_equal(start, before)


def test_held_coordinates_are_checked_by_name(four_bar: Mechanism) -> None:
    for call in (
        lambda: assemble(four_bar, hold=["crank"]),
        lambda: project_rates(four_bar, four_bar_angles(0.4, 1.0), {"a": 1.0}, hold=["crank"]),
    ):
        with pytest.raises(MechidError, match=r"no coordinate named 'crank'.*Valid: a, b, c\."):
            call()


# Couplings and drives

QUARTIC = (0.1, -2.0, 0.5, 0.3, -0.2)


def gearing(driven: str) -> Mechanism:
    """Three wheels, two couplings in a row, a slide, and a coordinate that follows its input."""
    m = Mechanism("geared")
    for name in "abc":
        m = m.body(name, mass=1.0, inertia=(1, 1, 1)).revolute(f"q{name}", "world", name)
    return (
        m.body("d", mass=1.0)
        .prismatic("s", "world", "d")
        .coupling("cam", "qb", "qa", offset=QUARTIC[0], ratio=QUARTIC[1], higher=QUARTIC[2:])
        .coupling("gear", "qc", "qb", ratio=-3.0, offset=0.2)
        .drive(driven)
    )


@pytest.fixture(scope="module")
def geared() -> Mechanism:
    return gearing("s")


@pytest.mark.parametrize("held", ["qa", "qb", "qc"])
def test_couplings_close(geared: Mechanism, held: str) -> None:
    start = {"qa": 0.35, "qb": -0.5, "qc": 1.6, "s": 0.8}
    q = dict(zip(geared.coordinate_names, assemble(geared, start, hold=[held]), strict=True))
    assert q[held] == start[held]
    assert q["s"] == start["s"], "nothing moves the slide"
    assert q["qb"] == pytest.approx(polyval(q["qa"], QUARTIC), abs=1e-10)
    assert q["qc"] == pytest.approx(0.2 - 3.0 * q["qb"], abs=1e-10)


@pytest.mark.parametrize("driven", ["qa", "qb", "qc"])
def test_driven_coordinates_keep_their_guess(driven: str) -> None:
    mechanism = gearing(driven)
    start = {"qa": 0.35, "qb": -0.5, "qc": 1.6}
    q = dict(zip(mechanism.coordinate_names, assemble(mechanism, start), strict=True))
    assert q[driven] == start[driven]
    assert q["qb"] == pytest.approx(polyval(q["qa"], QUARTIC), abs=1e-10)
    assert q["qc"] == pytest.approx(0.2 - 3.0 * q["qb"], abs=1e-10)


def test_a_coupling_that_cannot_close_is_named(geared: Mechanism) -> None:
    with pytest.raises(MechidError, match=r"'gear' cannot be closed with qb, qc held.*by 0\.5 "):
        assemble(geared, {"qb": 0.0, "qc": 0.7}, hold=["qb", "qc"])


def test_rates_through_couplings(geared: Mechanism) -> None:
    q = assemble(geared, {"qa": 0.35, "s": 0.8}, hold=["qa"])
    v = project_rates(geared, q, {"qa": 1.5, "s": -0.4}, hold=["qa"])
    slope = polyval(0.35, np.polynomial.polynomial.polyder(QUARTIC))
    np.testing.assert_allclose(v, [1.5, 1.5 * slope, -4.5 * slope, -0.4], atol=1e-12)


# Rates of the four-bar


def four_bar_slope(a: float, branch: float) -> np.ndarray:
    """d(a, b, c)/da along the closed form."""
    step = 1e-6
    ends = [four_bar_angles(a + s * step, branch) for s in (-1, 1)]
    return wrapped(ends[1] - ends[0]) / (2 * step)


@pytest.mark.parametrize(("a", "branch"), [(-0.9, 1.0), (0.4, -1.0), (2.0, 1.0)])
def test_rates_with_the_crank_held(four_bar: Mechanism, a: float, branch: float) -> None:
    q = four_bar_angles(a, branch)
    v = project_rates(four_bar, q, {"a": 1.7, "b": 5.0}, hold=["a"])
    assert v[0] == 1.7
    np.testing.assert_allclose(v, 1.7 * four_bar_slope(a, branch), rtol=1e-7)


@pytest.mark.parametrize(("a", "branch"), [(-0.9, 1.0), (0.4, -1.0)])
def test_free_rates_move_as_little_as_they_can(four_bar: Mechanism, a: float, branch: float) -> None:
    wanted = np.array([1.0, -2.0, 0.5])
    v = project_rates(four_bar, four_bar_angles(a, branch), wanted)
    along = four_bar_slope(a, branch)
    # one freedom: the nearest rates are the orthogonal projection onto the closed motion
    np.testing.assert_allclose(v, along * (along @ wanted) / (along @ along), rtol=1e-6)


@pytest.mark.parametrize("kind", ["point", "frame", "axis", "planar", "pin"])
def test_rates_keep_a_free_body_closed(kind: str) -> None:
    """Along the projected rates the hand moves only as its loop allows, by finite differences."""
    mechanism = free_body(kind)
    q = assemble(mechanism, guess(0.3 * TURNS[4]))
    wanted = np.array([0.3, -0.5, 0.2, 0.9, -0.6, 0.4])
    v = project_rates(mechanism, q, wanted, hold=["free.pitch"] if kind != "frame" else [])
    if kind != "frame":
        assert v[4] == wanted[4]
    step = 1e-5
    (x0, R0), (x1, R1) = (hand_pose(q + s * step * v) for s in (-1, 1))
    velocity, spin = (x1 - x0) / (2 * step), (R1 * R0.inv()).as_rotvec() / (2 * step)
    normal = GOAL[1].apply(AXIS)
    zero = {
        "point": velocity,
        "frame": np.concatenate([velocity, spin]),
        "axis": np.cross(spin, normal),
        "planar": np.append(np.cross(spin, normal), velocity @ normal),
        "pin": np.cross(velocity, normal),
    }[kind]
    np.testing.assert_allclose(zero, 0.0, atol=1e-8)


def test_impossible_rates_are_refused(four_bar: Mechanism) -> None:
    with pytest.raises(MechidError, match=r"No rates with a, b held keep 'closure' closed"):
        project_rates(four_bar, four_bar_angles(0.4, 1.0), {"a": 1.0}, hold=["a", "b"])


# A start is checked

SHIFT = np.array([0.0, 1e-3, 0.0])


def constraint(model: TreeModel, q: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    h, slope = model.constraint(q, u)  # type: ignore[arg-type]
    return np.asarray(h), np.asarray(slope)


def test_an_open_start_is_refused_with_its_gap(four_bar: Mechanism) -> None:
    model, q = four_bar.lower(), four_bar_angles(0.4, 1.0)

    def start(q: np.ndarray, v: np.ndarray) -> None:
        check_start(four_bar, model, *constraint(model, q, np.zeros(0)), q, v, 0.0)

    start(q, np.zeros(3))
    with pytest.raises(MechidError, match=r"coordinates leave 'closure' open by .* assemble\(…\)"):
        start(q + SHIFT, np.zeros(3))
    rates = four_bar_slope(0.4, 1.0)
    start(q, rates)
    with pytest.raises(MechidError, match=r"rates open 'closure' at .* project_rates\(…\)"):
        start(q, rates + SHIFT)
