"""Count code lines of files: no blank lines, comments or docstrings.

    uv run python benchmarks/code_lines.py [SRC [FILE …]]

SRC is a folder `src`, by default this tree's; files are named relative to its package `mechid`. By default files
that simulate motions, differentiate them and compare them with logs are counted. Absent files count 0.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from pathlib import Path

SRC = Path(__file__).resolve().parents[1] / "src"
DYNAMICS = "march course rollout driver linearization simulate batch trajectory feedback intervals"
ESTIMATE = "residuals shooting problem start warming tracking"
FILES = [
    *(f"dynamics/{name}.py" for name in DYNAMICS.split()),
    *(f"estimate/{name}.py" for name in ESTIMATE.split()),
]
NO_CODE = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
)


def code_lines(source: str) -> int:
    """The number of lines with code; a statement of several lines counts each, without its blank lines."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    lines = {line for t in tokens if t.type not in NO_CODE for line in range(t.start[0], t.end[0] + 1)}
    texts = [
        node.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ]
    for text in texts:
        # docstrings of modules, classes, functions and fields
        lines -= set(range(text.lineno, (text.end_lineno or text.lineno) + 1))
    return len(lines)


def main() -> None:
    source = Path(sys.argv[1]) if sys.argv[1:] else SRC
    total = 0
    for name in sys.argv[2:] or FILES:
        file = source / "mechid" / name
        count = code_lines(file.read_text()) if file.exists() else 0
        total += count
        print(f"{count:6}  {name}" + ("" if file.exists() else "  (absent)"))
    print(f"{total:6}  total")


if __name__ == "__main__":
    main()
