"""The code that the README and the guides show runs."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = ["README.md", "docs/mechanisms.md"]


@pytest.mark.parametrize("page", PAGES)
def test_the_code_on_the_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.S)
    assert blocks
    names: dict = {}
    for block in blocks:
        exec(compile(block, page, "exec"), names)


def test_the_readme_shows_its_two_commands():
    first_screen = "\n".join((ROOT / "README.md").read_text().splitlines()[:30])
    assert "uv run mechid " in first_screen
    assert "uv run pytest" in first_screen
