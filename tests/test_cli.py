"""The command line as a user meets it."""

import json
import os
import subprocess
import sys
from importlib.metadata import version

import jax
import pytest


def mechid(*arguments, cwd=None):
    code = "from mechid.cli import main; main()"
    environment = os.environ | {"MECHID_CACHE": jax.config.jax_compilation_cache_dir}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=300, env=environment)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["study", "lop6"], "There is no study named 'lop6'. Did you mean loop6?"),
        (["study", "loop6", "--set", "dtt=1"], "no setting of study loop6 named 'dtt'"),
        (["study", "loop6", "--set", "dt=fast"], "Setting dt takes a number, not 'fast'"),
        (["study", "loop6", "--set", "dt"], "--set takes key=value, not 'dt'"),
        (["study", "loop6", "--set", "dt=-1"], "dt must be positive"),
        (["study", "loop6", "--set", "steps=-5"], "steps must be ≥ 0"),
        (["stuudy"], "No such command"),
    ],
)
def test_mistakes_are_one_sentence_and_exit_code_2(arguments, words, tmp_path):
    done = mechid(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_loop6_agrees_with_the_reference_and_ends_with_json(reference, tmp_path):
    done = mechid("study", "loop6", "--quick", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    result = json.loads(lines[-1])
    assert len(lines) == 1
    assert result["study"] == "loop6"
    assert all(run["difference"]["q"] < 1e-8 for run in result["runs"])


def test_without_the_reference_folder_the_study_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("MECHID_REFERENCE", str(tmp_path / "nowhere"))
    done = mechid("study", "loop6", "--quick", "--set", "steps=20", cwd=tmp_path)
    assert done.returncode == 0
    assert "Nothing to compare with" in done.stdout


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
