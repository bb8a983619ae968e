"""What loops leave free, on mechanisms whose freedom is known."""

import pytest

from mechid import Mechanism
from mechid.judge.closure import closure

BAR = {"mass": 1.0, "com": (0.1, 0, 0), "inertia": (0.001, 0.003, 0.003)}


def four_bar(coupler=0.5):
    return (
        Mechanism()
        .body("crank", **BAR)
        .revolute("a", "world", "crank", axis="y")
        .body("coupler", **BAR)
        .revolute("b", "crank", "coupler", axis="y", origin=(0.2, 0, 0))
        .body("rocker", **BAR)
        .revolute("c", "world", "rocker", axis="y", origin=(0.4, 0, 0))
        .frame("coupler-end", "coupler", origin=(coupler, 0, 0))
        .frame("rocker-end", "rocker", origin=(0.4, 0, 0))
        .loop("closure", "coupler-end", "rocker-end", kind="pin", axis="y")
    )


def test_a_four_bar_moves_in_one_way_though_zero_is_a_dead_point():
    found = closure(four_bar())
    (gap,) = found.gaps
    assert gap.at_zero_size == pytest.approx(0.1)
    assert gap.at_zero == "0.1 m"
    assert (found.freedom, found.redundant, len(found.independent)) == (1, 0, 1)


def test_a_loop_closed_twice_has_redundant_rows():
    found = closure(four_bar().loop("again", "coupler-end", "rocker-end", kind="pin", axis="y"))
    assert (found.freedom, found.redundant) == (1, 2)


def test_a_loop_out_of_reach_is_told():
    found = closure(four_bar(coupler=5.0))
    assert found.q is None
    assert "cannot be closed" in found.refusal


def test_a_tree_is_free():
    tree = Mechanism().body("rod", **BAR).revolute("hinge", "world", "rod", axis="y")
    assert closure(tree).freedom == 1
    assert closure(tree).independent == ("hinge",)
