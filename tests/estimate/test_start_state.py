"""First states: what is held, what is free, what follows from loops, and how it moves."""

from __future__ import annotations

import numpy as np
import pytest
from estimation_cases import freed

from mechid import Variational, assemble, project_rates
from mechid.dynamics.assembly import constraint_rows
from mechid.dynamics.linearization import tangent_of
from mechid.errors import MechidError
from mechid.estimate.experiment import Start
from mechid.estimate.start import first_state
from mechid.studies import mechanisms

BAR = mechanisms.four_bar(damping=0.05).spring("b", stiffness=3.0, rest=0.2)
NUMBERS = (
    "b.stiffness",
    "c.damping",
    "coupler.mass",
    "coupler.com.x",
    "rocker-end.origin.x",
    "b.origin.x",
)
FREE = freed(BAR, *NUMBERS)
MODEL = FREE.bind(FREE.theta0)
GUESS = mechanisms.FOUR_BAR_GUESS


def first(**given):
    return first_state(BAR, MODEL, Start(**given), "run")


def names(state, index):
    return [state.mechanism.coordinate_names[i] for i in index]


def test_dependent_coordinates_close_the_loop():
    """With a held: the same as `assemble` and `project_rates` find."""
    found = first(q=GUESS, v={"a": 1.0}, q_std={"b": "free", "c": "free"}, v_std={"b": "free", "c": "free"})
    assert names(found, found.dependent) == ["b", "c"]
    assert found.size == 0
    q = assemble(BAR, GUESS, hold=["a"])
    assert found.q == pytest.approx(q, abs=1e-9)
    assert found.v == pytest.approx(project_rates(BAR, q, {"a": 1.0}, hold=["a"]), abs=1e-9)


@pytest.mark.parametrize(
    ("q_std", "dependent"),
    [
        ({"a": "free", "b": "free"}, ["a", "b"]),
        ({"a": "free", "c": "free"}, ["a", "c"]),
        # what has a prior gives way before what is known, and after what is free
        ({"a": "free", "c": 0.1}, ["a", "c"]),
        ({"a": 0.1, "b": "free", "c": "free"}, ["b", "c"]),
    ],
)
def test_the_least_known_coordinates_follow(q_std, dependent):
    found = first(q=assemble(BAR, GUESS, hold=["a"]), q_std=q_std)
    assert names(found, found.dependent) == dependent


def test_what_is_unknown():
    found = first(q=GUESS, v={"a": 0.7}, q_std={"a": 0.1, "b": "free", "c": "free"}, v_std="free")
    assert found.names == ("q(a)", "v(a)")
    assert found.units == ("rad", "rad/s")
    assert found.unknowns == pytest.approx(np.array([GUESS["a"], 0.7]))
    for shift in (0.0, 0.1):
        q, v = found.at(MODEL, found.unknowns + shift)
        assert q[0] == found.unknowns[0] + shift
        assert v[0] == found.unknowns[1] + shift
        h, slope = constraint_rows(BAR, MODEL, q)
        assert np.abs(h).max() < 1e-10
        assert np.abs(slope @ v).max() < 1e-12


def test_a_known_start_is_held():
    q = assemble(BAR, GUESS, hold=["a"])
    found = first(q=q, v=project_rates(BAR, q, {"a": 1.0}, hold=["a"]))
    assert found.size == 0
    again = found.at(MODEL, np.zeros(0))
    assert again[0] == pytest.approx(q, abs=1e-9)
    assert np.isinf(found.std).all()


def test_without_loops_nothing_follows():
    m = mechanisms.cart_pendulum()
    found = first_state(m, m.lower(), Start(q={"hinge": 1.0}, q_std={"slide": 0.2}, v_std="free"), "run")
    assert not len(found.dependent)
    assert found.names == ("q(slide)", "v(slide)", "v(hinge)")
    assert found.units == ("m", "m/s", "rad/s")
    q, v = found.at(m.lower(), np.array([0.5, 2.0, 3.0]))
    assert (q.tolist(), v.tolist()) == ([0.5, 1.0], [2.0, 3.0])


def test_what_is_driven_does_not_follow():
    m = mechanisms.four_bar().drive("a")
    found = first_state(m, m.lower(), Start(q=GUESS, q_std="free"), "run")
    assert names(found, found.dependent) == ["b", "c"]
    assert found.q[0] == GUESS["a"]


def test_priors():
    """Means are what was given, not what closes the loop; 0 and ∞ are no priors."""
    found = first(q=GUESS, v={"a": 1.0}, q_std={"a": 0.1, "b": "free", "c": 0.2}, v_std={"c": 0.3})
    assert found.mean.tolist() == [*GUESS.values(), 1.0, 0.0, 0.0]
    assert found.std.tolist() == [0.1, np.inf, 0.2, np.inf, np.inf, 0.3]


def test_slopes_of_the_first_state():
    """By the unknowns and by every parameter, lengths in the loop too: differences of states made anew."""
    found = first(
        q=GUESS, v={"a": 1.0}, q_std={"a": 0.1, "b": "free", "c": "free"}, v_std={"a": 0.1, "b": "free"}
    )
    assert found.size == 2
    stepper, y0 = Variational(0.005), np.concatenate([FREE.theta0, found.unknowns])

    def made(y):
        model = FREE.bind(y[:6])
        q, v = found.at(model, y[6:])
        x = stepper.initial(model, q, v, np.zeros(1), 0.0)
        return np.concatenate([q, v, x.q, x.p])

    q, v = found.at(MODEL, found.unknowns)
    x = stepper.initial(MODEL, q, v, np.zeros(1), 0.0)
    slopes = found.slopes(stepper, MODEL, tangent_of(FREE, FREE.theta0), x, q, v, 0.0)
    got = np.concatenate([slopes.q, slopes.v, slopes.x])
    assert got.shape == (12, 8)
    assert np.abs(got[:3, 4:]).max() > 1.0
    for i in range(8):
        h = 1e-4 * np.eye(8)[i]
        ends = [made(y0 + s * h) for s in (1.0, -1.0, 0.5, -0.5)]
        coarse, fine = (ends[0] - ends[1]) / 2e-4, (ends[2] - ends[3]) / 1e-4
        want = (4 * fine - coarse) / 3
        assert np.abs(got[:, i] - want).max() < 1e-7 * max(1.0, np.abs(want).max()), i


def test_lengths_that_cannot_close():
    """None, not an error: a solver may try them."""
    found = first(q=GUESS, q_std={"b": "free", "c": "free"})
    theta = FREE.theta0.copy()
    theta[5] = 3.0
    assert found.at(FREE.bind(theta), np.zeros(0)) is None


def test_a_start_that_cannot_close():
    with pytest.raises(MechidError) as error:
        first(q={"a": -0.9, "b": 0.5, "c": 1.0}, q_std={"a": "free"})
    assert str(error.value) == (
        "The loops of 'four-bar' cannot be closed at the start of experiment 'run' by moving a, b: give a start "
        "near a closed configuration (assemble(…) finds one)."
    )
