"""`mechid simulate` from within: inputs, starts, files, failures."""

import csv
import json

import numpy as np
import pytest
from rich.console import Console

from mechid import Mechanism, Variational, simulate
from mechid.errors import MechidError
from mechid.report.export import replacing, rows_of, write_rows
from mechid.report.inputs import read_inputs
from mechid.report.motion import Request, check, move

QUIET = Console(quiet=True)


@pytest.fixture(scope="module")
def pendulum():
    return (
        Mechanism("pendulum")
        .body("rod", mass=1.0, com=(0, 0, -0.25), inertia=(0.02, 0.02, 1e-4))
        .revolute("hinge", "world", "rod", axis="y", limits=(-0.5, 0.5))
        .frame("tip", "rod", origin=(0, 0, -0.5))
        .torque("hinge")
    )


def test_the_motion_is_that_of_simulate_and_the_table_holds_it(pendulum, tmp_path):
    out = tmp_path / "run.csv"
    request = Request(
        time=0.4,
        dt=0.01,
        start=["hinge=45"],
        degrees=True,
        input=["hinge.torque=0.3"],
        frames=["tip"],
        out=out,
    )
    summary, code = move(pendulum, request, QUIET)
    run = simulate(pendulum, Variational(0.01, forces="balanced"), 40, q={"hinge": np.pi / 4}, inputs=[0.3])
    with open(out, newline="") as file:
        heads, *rows = csv.reader(file)
    table = np.array(rows, float)
    assert code == 0
    assert heads == ["t", "q/hinge", "v/hinge", "u/hinge.torque", *(f"frame/tip.{a}" for a in "xyz")]
    np.testing.assert_array_equal(table[:, 0], run.t)
    np.testing.assert_array_equal(table[:, 1], run.q[:, 0])
    np.testing.assert_allclose(table[:, 4], -0.5 * np.sin(run.q[:, 0]), atol=1e-12)
    assert summary["end"]["hinge"] == run.q[-1, 0]
    assert json.loads(json.dumps(summary))["steps"] == 40
    assert list(tmp_path.iterdir()) == [out]


def test_limits_that_are_left_are_told(pendulum):
    summary, _ = move(pendulum, Request(time=0.1, dt=0.01, start=["hinge=0.6"]), QUIET)
    (beyond,) = summary["beyond_limits"]
    assert (beyond["coordinate"], beyond["t"]) == ("hinge", 0.0)
    assert beyond["by"] == pytest.approx(0.1, abs=1e-9)


def test_npz_holds_names_and_every_third_state(pendulum, tmp_path):
    run = simulate(pendulum, Variational(0.01), 10, q={"hinge": 0.3})
    write_rows(rows_of(run, ["tip", "rod"], 3), tmp_path / "run.npz")
    with np.load(tmp_path / "run.npz") as held:
        np.testing.assert_array_equal(held["q"], run.q[::3])
        assert held["positions"].shape == (4, 2, 3)
        assert held["frames"].tolist() == ["tip", "rod"]


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path):
    path = tmp_path / "kept.csv"
    path.write_text("before")

    def fail():
        with replacing(path):
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def table(folder, text):
    path = folder / "inputs.csv"
    path.write_text(text)
    return path


def test_a_table_is_held_or_interpolated(pendulum, tmp_path):
    path = table(tmp_path, "t,hinge.torque\n0,0\n0.2,2\n0.4,0\n")
    held = check(pendulum, Request(time=0.5, dt=0.1, inputs=path))
    between = check(pendulum, Request(time=0.5, dt=0.1, inputs=path, linear=True))
    np.testing.assert_allclose(held.inputs[:, 0], [0, 0, 2, 2, 0])
    np.testing.assert_allclose(between.inputs[:, 0], [0.5, 1.5, 1.5, 0.5, 0])
    assert "held from row to row" in held.told
    assert "middle of each step" in between.told


def test_what_is_written_can_be_read_back_as_inputs(pendulum, tmp_path):
    first = Request(time=0.2, dt=0.01, input=["hinge.torque=0.7"], out=tmp_path / "a.csv")
    summary, _ = move(pendulum, first, QUIET)
    again, _ = move(pendulum, Request(time=0.2, dt=0.01, inputs=tmp_path / "a.csv"), QUIET)
    assert again["end"] == summary["end"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("t,elbow\n0,1\n", "named 'elbow'"),
        ("time,hinge.torque\n0,1\n", "no column t"),
        ("t\n0\n", "no column of an input"),
        ("t,hinge.torque,hinge.torque\n0,1,1\n", "two columns"),
        ("t,hinge.torque\n0,1\n0,2\n", "line 3: t does not increase"),
        ("t,hinge.torque\n0,1\n1,nan\n", "line 3, column 'hinge.torque'"),
        ("t,hinge.torque\n0,1\n1,\n", "line 3, column 'hinge.torque'"),
        ("t,hinge.torque\n0,1,5\n", "3 cells for 2 columns"),
        ("t,hinge.torque\n0.5,1\n", "begins at t = 0.5 s"),
        ("t,hinge.torque\n", "at least one row"),
        ("", "at least one row"),
    ],
)
def test_a_wrong_table_is_refused(text, words, tmp_path):
    with pytest.raises(MechidError, match=words):
        read_inputs(table(tmp_path, text), ["hinge.torque"])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"time": -1.0}, "--time must be a positive"),
        ({"time": float("nan")}, "--time must be a positive"),
        ({"dt": 0.0}, "--dt must be a positive"),
        ({"dt": 2.0}, "longer than --time"),
        ({"dt": 1e-12}, "fit in memory"),
        ({"stepper": "bdf7"}, "There is no stepper named 'bdf7'"),
        ({"start": ["hinges=1"]}, "Did you mean hinge?"),
        ({"start": ["hinge"]}, "--start takes NAME=VALUE"),
        ({"start": ["hinge=x"]}, "--start hinge takes a number, not 'x'"),
        ({"start": ["hinge=inf"]}, "finite"),
        ({"start": ["hinge=1", "hinge=2"]}, "twice"),
        ({"rate": ["=1"]}, "--rate takes NAME=VALUE"),
        ({"hold": ["elbow"]}, "There is no coordinate named 'elbow'"),
        ({"input": ["hinge=1"]}, "There is no input named 'hinge'"),
        ({"frames": ["top"]}, "There is no frame named 'top'"),
        ({"every": 0}, "--every must be 1 or more"),
        ({"linear": True}, "give one with --inputs"),
    ],
)
def test_a_wrong_request_is_refused(change, words, pendulum):
    with pytest.raises(MechidError) as told:
        check(pendulum, Request(**{"time": 1.0, **change}))
    assert words in str(told.value)


def test_a_step_that_fails_leaves_what_came_before(tmp_path):
    """Fast, free double pendulum with a step far too long."""
    rod = {"mass": 1.0, "com": (0, 0, -0.25), "inertia": (0.02, 0.02, 1e-4)}
    double = Mechanism().body("a", **rod).revolute("one", "world", "a", axis="y").body("b", **rod)
    double = double.revolute("two", "a", "b", axis="y", origin=(0, 0, -0.5))
    out = tmp_path / "run.csv"
    asked = Request(time=100.0, dt=1.0, start=["one=2"], rate=["one=5", "two=11"], out=out)
    summary, code = move(double, asked, QUIET)
    assert code == 2
    assert "could not be solved" in summary["outcome"]
    assert summary["steps"] < summary["asked_steps"] == 100
    assert len(out.read_text().splitlines()) == summary["steps"] + 2
