"""`mechid fit` on the arm of examples/: what it finds, what it writes, and how it is stopped and resumed."""

import contextlib
import csv
import io
import json
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import mechid.jobs.fit as job
from mechid import read_mechanism
from mechid.cli import main
from mechid.errors import MechidError
from mechid.estimate.problem import ShootingProblem
from mechid.report.fit_files import as_json, new_folder

pytestmark = pytest.mark.xdist_group("fit_command")

ARM = Path(__file__).parent.parent.parent / "examples" / "arm"
TRUTH = json.loads((ARM / "truth.json").read_text())
SHORT = ["--set", "log.span=[0.0005, 2.0]", "--set", "log.measured.0.std=0.001"]
"""a part of the log, with known noise: one round of the solver"""
FILES = {"fit.json", "parameters.csv", "study.toml", "arm-identified.urdf"}


def fit(*arguments):
    """Run the command in this process: exit code and both streams."""
    out, err = io.StringIO(), io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        patch.setattr(sys, "argv", ["mechid", "fit", str(ARM / "study.toml"), *map(str, arguments)])
        patch.setenv("MECHID_CACHE", str(jax.config.jax_compilation_cache_dir))
        with pytest.raises(SystemExit) as stop:
            main()
    return SimpleNamespace(code=stop.value.code, out=out.getvalue(), err=err.getvalue())


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The example as it is, once."""
    folder = tmp_path_factory.mktemp("whole") / "arm"
    return fit("--out", folder, "--json"), folder


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    """A part of it, without interruption."""
    folder = tmp_path_factory.mktemp("short") / "arm"
    done = fit(*SHORT, "--out", folder, "--json", "--quiet", "--no-plot")
    assert done.code == 0, done.err
    return json.loads(done.out)


def test_the_example_finds_the_numbers_behind_its_log(whole):
    done, _ = whole
    assert done.code == 0, done.err
    found = json.loads(done.out)["parameters"]
    assert set(found) == set(TRUTH)
    for name, p in found.items():
        assert p["value"] == pytest.approx(TRUTH[name], rel=0.04), name
        assert abs(p["value"] - TRUTH[name]) < 4.0 * p["std"], name
        assert p["std"] < 0.05 * TRUTH[name], name


def test_json_is_one_line_and_words_go_to_the_other_stream(whole):
    done, folder = whole
    assert done.out.count("\n") == 1
    result = json.loads(done.out)
    assert (result["converged"], result["exit_code"], result["folder"]) == (True, 0, str(folder))
    assert result["outcome"].startswith("Converged")
    lines = [line.split() for line in done.err.splitlines()]
    iterations = [line for line in lines if line[1:2] == ["cost"]]
    assert [line[0] for line in iterations[:3]] == ["0", "1", "2"]
    assert float(iterations[0][2]) > float(iterations[1][2]) > float(iterations[2][2])
    assert f"Results are in {folder}." in done.err


def test_the_folder_holds_the_result(whole):
    done, folder = whole
    assert {p.name for p in folder.iterdir()} == FILES | {"fit.png", "convergence.png"}
    assert [p.name for p in folder.parent.iterdir()] == ["arm"]
    found = json.loads(done.out)["parameters"]
    assert json.loads((folder / "fit.json").read_text())["parameters"] == found
    with open(folder / "parameters.csv", newline="", encoding="utf-8") as file:
        rows = {row["name"]: row for row in csv.DictReader(file)}
    assert {name: float(row["value"]) for name, row in rows.items()} == {
        n: p["value"] for n, p in found.items()
    }
    assert rows["upper.mass"]["unit"] == "kg"
    assert float(rows["upper.mass"]["upper"]) == np.inf
    assert (folder / "study.toml").read_bytes() == (ARM / "study.toml").read_bytes()
    assert (folder / "fit.png").read_bytes().startswith(b"\x89PNG")
    identified = read_mechanism(folder / "arm-identified.urdf")
    masses = {f"{b.name}.mass": b.mass for b in identified.bodies if b.name != "wall"}
    assert masses == pytest.approx({name: found[name]["value"] for name in masses}, rel=1e-9)


def test_a_folder_is_never_written_over(short, tmp_path):
    (tmp_path / "arm").mkdir()
    (tmp_path / "arm" / "mine.txt").write_text("kept")
    results = [
        json.loads(fit(*SHORT, "--out", tmp_path / "arm", "--json", "--no-plot", "--quiet").out) for _ in "ab"
    ]
    assert [r["folder"] for r in results] == [str(tmp_path / f"arm-{i}") for i in (2, 3)]
    assert {p.name for p in tmp_path.iterdir()} == {"arm", "arm-2", "arm-3"}
    assert [p.name for p in (tmp_path / "arm").iterdir()] == ["mine.txt"]
    assert {p.name for p in (tmp_path / "arm-3").iterdir()} == FILES
    assert results[0]["parameters"] == short["parameters"]


def interrupt_after(number, monkeypatch):
    """Press Ctrl-C when the line of an iteration is printed."""
    line = job.progress_line

    def pressed(iteration, names, units):
        if iteration.number == number:
            signal.raise_signal(signal.SIGINT)
        return line(iteration, names, units)

    monkeypatch.setattr(job, "progress_line", pressed)


def test_ctrl_c_keeps_what_was_found_and_resume_goes_on(short, tmp_path, monkeypatch):
    out = tmp_path / "arm"
    with monkeypatch.context() as patch:
        interrupt_after(2, patch)
        stopped = fit(*SHORT, "--out", out, "--json", "--no-plot")
    assert stopped.code == 130
    first = json.loads(stopped.out)
    assert (first["outcome"], first["converged"]) == ("Interrupted after 2 iterations.", False)
    assert first["exit_code"] == 130
    assert {p.name for p in out.iterdir()} == FILES
    kept = json.loads((tmp_path / "arm-unfinished" / "checkpoint.json").read_text())
    assert kept["iteration"] == 2
    assert kept["cost"] == first["cost"]["end"]
    assert kept["names"][:3] == ["upper.mass", "forearm.mass", "hand.mass"]
    assert kept["names"][-1] == "log: q(wrist)"
    assert kept["unknowns"][0] == first["parameters"]["upper.mass"]["value"]

    resumed = fit(*SHORT, "--out", out, "--json", "--no-plot", "--resume")
    assert resumed.code == 0, resumed.err
    assert "Resuming after 2 iterations" in resumed.err
    second = json.loads(resumed.out)
    assert second["folder"] == f"{out}-2"
    assert second["iterations"] <= short["iterations"]
    assert second["trace"][0]["cost"] == pytest.approx(kept["cost"], rel=1e-12)
    for name, p in short["parameters"].items():
        assert second["parameters"][name]["value"] == pytest.approx(p["value"], abs=1e-2 * p["std"]), name
    assert {p.name for p in tmp_path.iterdir()} == {"arm", "arm-2"}


def test_nothing_is_written_where_nothing_was_found(short, tmp_path, monkeypatch):
    interrupt_after(0, monkeypatch)
    done = fit(*SHORT, "--out", tmp_path / "arm", "--json")
    assert done.code == 130
    assert json.loads(done.out)["folder"] is None
    assert "Interrupted before the first iteration was done: nothing is written.\n" in done.err
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_simulation_ends_the_fit_too(short, tmp_path, monkeypatch):
    """KeyboardInterrupt from within, as where no handler is in place."""
    evaluate, calls = ShootingProblem.evaluate, []

    def third(self, y):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return evaluate(self, y)

    monkeypatch.setattr(ShootingProblem, "evaluate", third)
    done = fit(*SHORT, "--out", tmp_path / "arm", "--no-plot", "--quiet")
    assert done.code == 130
    assert done.out == f"Interrupted after 1 iteration. Results are in {tmp_path / 'arm'}.\n"
    assert done.err == "mechid: Interrupted after 1 iteration.\n"
    assert (tmp_path / "arm-unfinished" / "checkpoint.json").exists()


def test_not_converged_is_said_and_exits_with_3(short, tmp_path):
    few = [*SHORT, "--set", "solver.max_iterations=1"]
    done = fit(*few, "--out", tmp_path / "arm", "--no-plot")
    assert done.code == 3
    assert done.err == "mechid: Not converged after 1 iteration: allow more of them.\n"
    assert "\nNot converged after 1 iteration: allow more of them.\n" in done.out
    copy = (tmp_path / "arm" / "study.toml").read_text()
    assert copy.endswith("# changed by --set solver.max_iterations=1\n")
    assert copy.startswith((ARM / "study.toml").read_text().rstrip("\n"))
    before = (tmp_path / "arm-unfinished" / "checkpoint.json").read_bytes()
    again = fit(*few, "--out", tmp_path / "arm", "--no-plot")
    assert "An earlier run of this study was not finished; its checkpoint is kept as " in again.out
    assert (tmp_path / "arm-unfinished" / "checkpoint-before.json").read_bytes() == before


def test_a_checkpoint_of_other_unknowns_is_refused(short, tmp_path):
    path = tmp_path / "arm-unfinished" / "checkpoint.json"
    path.parent.mkdir()
    written = {"format": 1, "iteration": 3, "cost": 1.0, "names": ["lower.mass"], "unknowns": [1.0]}
    path.write_text(json.dumps(written))
    done = fit(*SHORT, "--out", tmp_path / "arm", "--resume", "--quiet")
    assert done.code == 2
    assert "is of other unknowns than this study's (lower.mass, upper.mass, " in done.err
    path.write_text("{")
    done = fit(*SHORT, "--out", tmp_path / "arm", "--resume", "--quiet")
    assert done.err == f"mechid: '{path}' is no checkpoint of this version: start without --resume.\n"
    assert {p.name for p in tmp_path.iterdir()} == {"arm-unfinished"}


def test_a_model_that_cannot_be_written_is_told(short, tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise MechidError("A URDF file has no place for that.")

    monkeypatch.setattr(job, "write_mechanism", refuse)
    done = fit(*SHORT, "--out", tmp_path / "arm", "--no-plot", "--quiet")
    assert done.code == 0
    assert done.out.startswith("The identified model is not written: A URDF file has no place for that.\n")
    assert {p.name for p in (tmp_path / "arm").iterdir()} == FILES - {"arm-identified.urdf"}


def test_a_late_input_is_told_with_its_std_and_left_out_of_the_file(tmp_path):
    """The arm's torques act when they are logged; the file holds all else that was found."""
    late = ["--set", 'parameters."shoulder.torque.delay".bounds=[0, 0.1]', "--set", "delays.elbow=1e-4"]
    done = fit(*SHORT, *late, "--out", tmp_path / "arm", "--no-plot")
    assert done.code == 0
    found = json.loads((tmp_path / "arm" / "fit.json").read_text())["parameters"]["shoulder.torque.delay"]
    assert found["unit"] == "s"
    assert 0.0 <= found["value"] < 5e-4
    assert 0.0 < found["std"] < 5e-4
    assert "shoulder.torque.delay" in done.out
    assert "arm-identified.urdf has no place for how late inputs act: " in " ".join(done.out.split())
    assert {p.name for p in (tmp_path / "arm").iterdir()} == FILES


@pytest.mark.parametrize("stop", [KeyboardInterrupt, RuntimeError])
def test_what_is_stopped_while_writing_leaves_nothing(stop, tmp_path):
    def write(place):
        (place / "half").write_text("…")
        raise stop

    with pytest.raises(stop):
        new_folder(tmp_path / "a" / "b", write)
    assert list((tmp_path / "a").iterdir()) == []


def test_an_empty_folder_and_a_file_of_that_name(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("kept")
    assert new_folder(tmp_path / "empty", lambda place: None).name == "empty"
    assert new_folder(tmp_path / "file", lambda place: None).name == "file-2"
    assert (tmp_path / "file").read_text() == "kept"


def test_json_has_null_for_what_is_no_number():
    data = {"a": np.array([1.0, np.inf]), "b": (np.nan, np.int64(2)), "c": Path("x"), "µ": True}
    assert json.loads(as_json(data)) == {"a": [1.0, None], "b": [None, 2], "c": "x", "µ": True}
