"""The command line as a user meets it."""

import json
import os
import subprocess
import sys
from importlib.metadata import version

import jax
import pytest

from mechid.cli import main
from mechid.studies.study import run_study


def mechid(*arguments, cwd=None):
    code = "from mechid.cli import main; main()"
    environment = os.environ | {"MECHID_CACHE": jax.config.jax_compilation_cache_dir}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=300, env=environment)


@pytest.fixture
def refused(monkeypatch, capsys):
    """What the command says of a mistake, in this process: exit code 2, no traceback."""

    def told(*arguments, cwd):
        monkeypatch.chdir(cwd)
        monkeypatch.setenv("MECHID_CACHE", str(jax.config.jax_compilation_cache_dir))
        monkeypatch.setattr(sys, "argv", ["mechid", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            main()
        words = capsys.readouterr().err
        assert left.value.code == 2
        assert "Traceback" not in words
        return words

    return told


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["study", "lop6"], "There is no study named 'lop6'. Did you mean loop6?"),
        (["study", "loop6", "--set", "dtt=1"], "no setting of study loop6 named 'dtt'"),
        (["study", "loop6", "--set", "dt=fast"], "Setting dt takes a number, not 'fast'"),
        (["study", "loop6", "--set", "dt"], "--set takes key=value, not 'dt'"),
        (["study", "loop6", "--set", "dt=-1"], "dt must be positive"),
        (["study", "loop6", "--set", "steps=-5"], "steps must be ≥ 2"),
        (
            ["study", "loop6", "--set", "variant=long"],
            "no variant named 'long'. Valid: short, damped, undamped.",
        ),
        (["study", "loop6", "--set", "solver=newton"], "There is no solver named 'newton'."),
        (["study", "baxter-loop", "--set", "links=7"], "Setting links must be an even number ≥ 4, not 7."),
        (["study", "baxter-loop", "--set", "cost=energy"], "There is no cost named 'energy'."),
        (["stuudy"], "No such command"),
        (["show", "arm.urdf"], "There is no file 'arm.urdf'."),
        (["simulate", "arm.urdf", "--time", "1"], "There is no file 'arm.urdf'."),
    ],
)
def test_mistakes_are_one_sentence_and_exit_code_2(arguments, words, tmp_path, refused):
    assert words in refused(*arguments, cwd=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_trajectories_agree_with_the_reference_and_end_with_json(reference, tmp_path):
    done = mechid("study", "trajectories", "--quick", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    result = json.loads(lines[-1])
    assert len(lines) == 1
    assert result["study"] == "trajectories"
    assert all(run["difference"]["q"] < 1e-8 for run in result["runs"])


def test_without_the_reference_folder_the_study_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MECHID_REFERENCE", str(tmp_path / "nowhere"))
    run_study("trajectories", quick=True, changes=["steps=20"], as_json=False, out=tmp_path)
    assert "Nothing to compare with" in capsys.readouterr().out


@pytest.mark.slow
def test_drift_draws_its_figure(tmp_path):
    done = mechid("study", "drift", "--quick", "--set", "steps=600", "--out", "figures", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "figures" / "drift.png").stat().st_size > 10_000


def test_the_version_is_the_packages():
    assert mechid("--version").stdout.strip() == f"mechid {version('mechid')}"


def test_help_lists_the_studies():
    done = mechid("study", "list")
    assert done.returncode == 0
    assert all(name in done.stdout for name in ("loop6", "steppers", "drift"))


def test_help_of_a_study_lists_its_settings():
    done = mechid("study", "loop6", "--help")
    assert done.returncode == 0
    assert "truth.kappa_theta=20.0" in done.stdout
    assert "where the search begins" in done.stdout
    assert "--quick" in done.stdout


PENDULUM = """
<robot name="pendulum">
  <link name="base"/>
  <link name="rod">
    <inertial>
      <origin xyz="0 0 -0.25"/><mass value="1"/>
      <inertia ixx="0.02" iyy="0.02" izz="0.0001" ixy="0" ixz="0" iyz="0"/>
    </inertial>
  </link>
  <joint name="hinge" type="revolute">
    <parent link="base"/><child link="rod"/><axis xyz="0 1 0"/>
    <limit lower="-1" upper="1" effort="5" velocity="3"/><dynamics damping="0.02"/>
  </joint>
</robot>
"""


@pytest.fixture
def pendulum(tmp_path):
    (tmp_path / "pendulum.urdf").write_text(PENDULUM)
    return tmp_path


def test_show_tells_what_can_be_identified(pendulum):
    done = mechid("show", "pendulum.urdf", cwd=pendulum)
    assert done.returncode == 0, done.stderr
    assert "3 of 10 inertial parameters act, in 3 independent combinations." in done.stdout
    assert "1 independent degree of freedom" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100


def test_show_json_is_one_line(pendulum):
    data = json.loads(mechid("show", "pendulum.urdf", "--json", cwd=pendulum).stdout)
    assert data["degrees_of_freedom"] == 1
    assert data["coordinates"][0]["upper"] == 1.0
    assert data["identifiable"]["action"]["rod.origin_inertia.yy"] == "alone"


def test_simulate_writes_a_table_and_a_figure(pendulum):
    said = ["--start", "hinge=0.5", "--out", "run.csv", "--plot", "run.png", "--json"]
    done = mechid("simulate", "pendulum.urdf", "--time", "0.3", "--dt", "0.01", *said, cwd=pendulum)
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    assert json.loads(line)["steps"] == 30
    assert len((pendulum / "run.csv").read_text().splitlines()) == 32
    assert (pendulum / "run.png").stat().st_size > 10_000
    assert sorted(p.name for p in pendulum.iterdir()) == ["pendulum.urdf", "run.csv", "run.png"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--time", "1", "--start", "hing=1"], "Did you mean hinge?"),
        (["--time", "1", "--out", "run.txt"], "valid: .csv, .npz"),
        (["--time", "1", "--out", "nowhere/run.csv"], "there is no folder 'nowhere'"),
        (["--time", "1", "--plot", "run.gif"], "valid: .png, .pdf, .svg"),
        (["--time", "1", "--inputs", "no.csv"], "there is no file 'no.csv'"),
        (["--time", "-1"], "--time must be a positive number"),
        (["--time", "1", "--actuators", "some"], "valid: torque, none"),
    ],
)
def test_mistakes_in_a_simulation_are_told_before_it(arguments, words, pendulum, refused):
    assert words in refused("simulate", "pendulum.urdf", *arguments, cwd=pendulum)
    assert [p.name for p in pendulum.iterdir()] == ["pendulum.urdf"]
