"""Study files whose estimator has all states as unknowns: what they refuse, find, write, and how they resume."""

import json
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import mechid.jobs.fit as job
from mechid import Variational, read_mechanism, simulate
from mechid.cli import main
from mechid.errors import MechidError
from mechid.estimate.solvers.problem import Iteration

pytestmark = pytest.mark.xdist_group("fit_with_states")

URDF = """<robot name="pendulum">
  <link name="base"/>
  <link name="rod">
    <inertial><origin xyz="0 0 -0.25"/><mass value="1"/>
      <inertia ixx="0.02" iyy="0.02" izz="0.001" ixy="0" ixz="0" iyz="0"/></inertial>
  </link>
  <joint name="hinge" type="continuous">
    <parent link="base"/><child link="rod"/><axis xyz="0 1 0"/><dynamics damping="0.1"/>
  </joint>
</robot>
"""
STUDY = """model = "pendulum.urdf"
estimator = "joint"
state_error_weight = 1e9

[stepper]
dt = 0.01

[[log]]
file = "run.csv"
inputs = {hinge = "u"}
measured = [{joint = "hinge", channels = "q", std = 2e-3}]
start = {q = {hinge = "q"}, q_std = "free", v_std = "free"}

[parameters]
"rod.mass" = {start = 1.2, bounds = [0.1, 5]}
"hinge.damping" = {start = 0.2, bounds = [0, 5]}
"""
EXACT = STUDY.replace('"joint"\nstate_error_weight = 1e9', '"full-discretization"')
BARRIER = EXACT.replace('"full-discretization"', '"full-discretization"\nmethod = "ipopt"')
TRUTH = {"rod.mass": 1.0, "hinge.damping": 0.1}
ARM = Path(__file__).parent.parent.parent / "examples" / "arm"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model, a log of its motion, and a study."""
    folder = tmp_path_factory.mktemp("study")
    (folder / "pendulum.urdf").write_text(URDF)
    steps, h = 100, 0.01
    torque = np.sin(7.0 * h * np.arange(steps + 1))
    run = simulate(
        read_mechanism(folder / "pendulum.urdf"),
        Variational(h, forces="balanced"),
        steps,
        q=[0.8],
        inputs=torque[:-1, None],
    )
    q = run.q[:, 0] + 2e-3 * np.random.default_rng(0).normal(size=steps + 1)
    lines = [f"{t:.2f},{x:.9f},{u:.9f}" for t, x, u in zip(run.t, q, torque, strict=True)]
    (folder / "run.csv").write_text("\n".join(["t [s],q [rad],u [N·m]", *lines, ""]))
    (folder / "study.toml").write_text(STUDY)
    return folder


@pytest.fixture
def fit(folder, monkeypatch, capsys):
    """Run the command in this process: exit code and both streams."""

    def run(*arguments, study=STUDY):
        (folder / "study.toml").write_text(study)
        monkeypatch.setattr(sys, "argv", ["mechid", "fit", str(folder / "study.toml"), *map(str, arguments)])
        monkeypatch.setenv("MECHID_CACHE", str(jax.config.jax_compilation_cache_dir))
        with pytest.raises(SystemExit) as stop:
            main()
        streams = capsys.readouterr()
        return SimpleNamespace(code=stop.value.code, out=streams.out, err=streams.err)

    return run


VALID = "Valid: simulation-error, joint, full-discretization, regression."
MISTAKES = {
    "estimator": (
        2,
        'estimator = "joined"',
        2,
        "There is no estimator named 'joined'. Did you mean joint? " + VALID,
    ),
    "estimator as a number": (2, "estimator = 3", 2, "'estimator' must be a text, not 3."),
    "weight of another estimator": (
        2,
        'estimator = "full-discretization"',
        3,
        "state_error_weight belongs to estimator 'joint', not to 'full-discretization'.",
    ),
    "weight of the usual estimator": (
        2,
        "",
        3,
        "state_error_weight belongs to estimator 'joint', not to 'simulation-error'.",
    ),
    "weight 0": (3, "state_error_weight = 0", 3, "'state_error_weight' must be a number > 0, not 0."),
    "weight −1": (3, "state_error_weight = -1.0", 3, "'state_error_weight' must be a number > 0, not -1.0."),
    "weight nan": (3, "state_error_weight = nan", 3, "'state_error_weight' must be a number > 0, not nan."),
    "weight in words": (
        3,
        'state_error_weight = "a"',
        3,
        "'state_error_weight' must be a number > 0, not 'a'.",
    ),
    "method of another estimator": (
        3,
        'method = "sqp"',
        3,
        "method belongs to estimator 'full-discretization', not to 'joint'.",
    ),
    "segments": (3, "segments = 2", 3, "segments belong to estimator 'simulation-error', not to 'joint'."),
    "solver": (
        4,
        'solver = {kind = "steepest-descent"}',
        4,
        "Estimator 'joint' needs the solver levenberg-marquardt.",
    ),
    "another solver": (
        4,
        'solver = {kind = "lbfgsb", max_iterations = 3}',
        4,
        "Estimator 'joint' needs the solver levenberg-marquardt.",
    ),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes_are_told_with_their_line(fit, folder, case):
    number, text, at, sentence = MISTAKES[case]
    lines = STUDY.split("\n")
    lines[number - 1] = text
    done = fit("--out", folder / "mistaken", study="\n".join(lines))
    assert done.code == 2
    assert done.out == ""
    assert done.err == f"mechid: {folder / 'study.toml'}, line {at}: {sentence}\n"
    assert not (folder / "mistaken").exists()


METHODS = {
    '"newton"': "There is no method named 'newton'. Valid: sqp, augmented-lagrangian, ipopt.",
    '"ipotp"': "There is no method named 'ipotp'. Did you mean ipopt? Valid: sqp, augmented-lagrangian, ipopt.",
    "2": "'method' must be a text, not 2.",
}


@pytest.mark.parametrize("value", METHODS)
def test_a_wrong_method_is_told(fit, folder, value):
    done = fit("--out", folder / "mistaken", study=BARRIER.replace('"ipopt"', value))
    assert (done.code, done.out) == (2, "")
    assert done.err == f"mechid: {folder / 'study.toml'}, line 3: {METHODS[value]}\n"


def test_a_study_without_the_extra_is_told(fit, folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "casadi", None)
    done = fit("--out", folder / "lacking", study=BARRIER)
    assert done.code == 2
    told = "Method 'ipopt' needs the extra: pip install 'mechid[ipopt]'."
    assert done.err == f"mechid: {folder / 'study.toml'}: {told}\n"
    assert not (folder / "lacking").exists()


@pytest.mark.parametrize("estimator", ["joint", "full-discretization"])
def test_what_the_estimator_is_given(fit, folder, monkeypatch, estimator):
    """The study's mechanism, solver, weight, method; every iteration is kept in a file before the next begins."""
    seen = []

    def noted(mechanism, stepper, experiments, free, solver, *, begin, progress, **options):
        seen.append(
            (mechanism.name, stepper.dt, len(experiments), free.names, solver.max_iterations, options)
        )
        progress(Iteration(1, 2.5, 0.0, (1.1, 0.2), 0.0, 0.0, 1, (1.1, 0.2, 0.8, 0.0)))
        raise MechidError("Enough.")

    monkeypatch.setattr(job, estimator.replace("-", "_"), noted)
    study = STUDY if estimator == "joint" else BARRIER
    study = study.replace("[stepper]", "[solver]\nmax_iterations = 7\n\n[stepper]")
    out = folder / f"given-{estimator}"
    done = fit("--out", out, "--no-plot", study=study)
    assert (done.code, done.err) == (2, f"mechid: {folder / 'study.toml'}: Enough.\n")
    assert f"2 free parameters, 1 log, {estimator}" in done.out
    options = {"state_error_weight": 1e9} if estimator == "joint" else {"method": "ipopt"}
    assert seen == [("pendulum", 0.01, 1, tuple(TRUTH), 7, options)]
    kept = json.loads((folder / f"given-{estimator}-unfinished" / "checkpoint.json").read_text())
    assert kept["names"] == [*TRUTH, "run: q(hinge)", "run: v(hinge)"]
    assert (kept["unknowns"], kept["iteration"], kept["cost"]) == ([1.1, 0.2, 0.8, 0.0], 1, 2.5)


@pytest.mark.slow
def test_solver_settings_without_a_kind(fit, folder):
    """They are those of the one solver there is."""
    study = STUDY.replace("[stepper]", "[solver]\nmax_iterations = 1\n\n[stepper]")
    done = fit("--out", folder / "few", "--no-plot", study=study)
    assert done.code == 3
    assert done.err == "mechid: Not converged after 1 iteration: allow more of them.\n"
    assert "2 free parameters, 1 log, joint" in done.out


def interrupt_after(number, monkeypatch):
    """Press Ctrl-C when the line of an iteration is printed."""
    line = job.progress_line

    def pressed(iteration, names, units):
        if iteration.number == number:
            signal.raise_signal(signal.SIGINT)
        return line(iteration, names, units)

    monkeypatch.setattr(job, "progress_line", pressed)


@pytest.mark.slow
@pytest.mark.parametrize("estimator", ["joint", "full-discretization", "ipopt"])
def test_what_is_found_and_written_and_how_it_resumes(fit, tmp_path, monkeypatch, estimator):
    study = {"joint": STUDY, "ipopt": BARRIER}.get(estimator, EXACT)
    done = fit("--out", tmp_path / "whole", "--json", "--no-plot", study=study)
    assert done.code == 0, done.err
    whole = json.loads(done.out)
    assert whole["outcome"].startswith("Converged after ")
    assert whole["estimator"] == {"joint": "joint estimation"}.get(estimator, "full discretisation")
    for name, p in whole["parameters"].items():
        assert abs(p["value"] - TRUTH[name]) < 4.0 * p["std"] < 0.2
    assert {p.name for p in tmp_path.iterdir()} == {"whole"}
    files = {p.name for p in (tmp_path / "whole").iterdir()}
    assert files == {"fit.json", "parameters.csv", "study.toml", "pendulum-identified.urdf"}
    assert json.loads((tmp_path / "whole" / "fit.json").read_text())["parameters"] == whole["parameters"]

    with monkeypatch.context() as patch:
        interrupt_after(2, patch)
        stopped = fit("--out", tmp_path / "part", "--json", "--no-plot", study=study)
    assert stopped.code == 130
    assert json.loads(stopped.out)["outcome"] == "Interrupted after 2 iterations."
    kept = json.loads((tmp_path / "part-unfinished" / "checkpoint.json").read_text())
    assert kept["iteration"] == 2
    assert kept["names"] == [*TRUTH, "run: q(hinge)", "run: v(hinge)"]
    resumed = fit("--out", tmp_path / "part", "--json", "--no-plot", "--resume", study=study)
    assert resumed.code == 0, resumed.err
    assert "Resuming after 2 iterations" in resumed.err
    result = json.loads(resumed.out)
    assert result["trace"][0]["values"] == pytest.approx(kept["unknowns"][:2], rel=1e-12)
    for name, p in whole["parameters"].items():
        assert result["parameters"][name]["value"] == pytest.approx(p["value"], abs=1e-2 * p["std"])
    assert {p.name for p in tmp_path.iterdir()} == {"whole", "part", "part-2"}


@pytest.mark.slow
@pytest.mark.parametrize("weight", ["state_error_weight = 1e9", ""])
def test_nothing_is_written_where_nothing_was_found(fit, tmp_path, monkeypatch, weight):
    interrupt_after(0, monkeypatch)
    done = fit("--out", tmp_path / "none", study=STUDY.replace("state_error_weight = 1e9", weight))
    assert done.code == 130
    assert "Interrupted before the first iteration was done: nothing is written.\n" in done.out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_weight_that_was_chosen_is_told(fit, tmp_path):
    done = fit("--out", tmp_path / "chosen", "--no-plot", study=STUDY.replace("state_error_weight = 1e9", ""))
    assert done.code == 0, done.err
    assert "State errors explain nothing that noise does not" in done.out.replace("\n", " ")


@pytest.mark.slow
def test_the_arm_of_the_examples(tmp_path, monkeypatch, capsys):
    """All estimators find the numbers behind its log."""
    truth = json.loads((ARM / "truth.json").read_text())
    monkeypatch.setenv("MECHID_CACHE", str(jax.config.jax_compilation_cache_dir))
    short = ["--set", "log.span=[0.0005, 2.0]", "--set", "log.measured.0.std=0.001", "--json", "--no-plot"]
    for estimator in ("full-discretization", "joint"):
        command = ["mechid", "fit", str(ARM / "study.toml"), "--set", f"estimator={estimator}", *short]
        monkeypatch.setattr(sys, "argv", [*command, "--out", str(tmp_path / estimator)])
        with pytest.raises(SystemExit) as stop:
            main()
        assert stop.value.code == 0
        for name, p in json.loads(capsys.readouterr().out)["parameters"].items():
            assert abs(p["value"] - truth[name]) < 4.0 * p["std"], name


@pytest.mark.parametrize("estimator", ["simulation-error", "joint"])
def test_what_is_broken_about_a_log_is_told(folder, tmp_path, monkeypatch, capsys, estimator):
    """A swapped sign and a gap, on the screen and in fit.json; mended by keys of the study, the sign is silent."""
    rows = [line.split(",") for line in (folder / "run.csv").read_text().split()[1:] if line.count(",") == 2]
    lines = [f"{t},{'' if 40 <= i < 55 else -float(q)},{u}" for i, (t, q, u) in enumerate(rows[-101:])]
    (tmp_path / "run.csv").write_text("\n".join(["t [s],q [rad],u [N·m]", *lines, ""]))
    (tmp_path / "pendulum.urdf").write_text(URDF)
    text = STUDY.replace('estimator = "joint"', f'estimator = "{estimator}"').replace("= 1e9", "= 100")
    text = text if estimator == "joint" else text.replace("state_error_weight = 100\n", "")
    (tmp_path / "study.toml").write_text(text + "[solver]\nmax_iterations = 10\n")
    found, screen = _told(tmp_path, monkeypatch, capsys)
    assert "has no samples from 0.39 to 0.55 s" in screen
    (note,) = [n for n in found if "explained far better with the sign of channel 'q'" in n]
    assert " ".join(note.split()) in screen
    found, screen = _told(tmp_path, monkeypatch, capsys, "--set", "log.scale.q=-1")
    assert "explained far better" not in screen
    assert any("has no samples from 0.39 to 0.55 s" in n for n in found)


def _told(folder, monkeypatch, capsys, *arguments):
    """The notes in fit.json, and what was printed, in one line."""
    out = folder / "out"
    given = ["mechid", "fit", str(folder / "study.toml"), "--out", str(out), "--no-plot", *arguments]
    monkeypatch.setattr(sys, "argv", given)
    monkeypatch.setenv("MECHID_CACHE", str(jax.config.jax_compilation_cache_dir))
    with pytest.raises(SystemExit):
        main()
    latest = max(folder.glob("out*/fit.json"), key=lambda p: p.stat().st_mtime_ns)
    return json.loads(latest.read_text("utf-8"))["notes"], " ".join(capsys.readouterr().out.split())
