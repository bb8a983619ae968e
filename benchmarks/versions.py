"""Compare the numbers of two versions of the package: residuals, Jacobians and gradients of shooting problems.

    uv run python benchmarks/versions.py OTHER_SRC [CASE …]

OTHER_SRC is the `src` folder of the other version, of a git worktree for instance. Logs are simulated once, by this
tree's version, and given to both; each version runs in a process of its own. All cases of `version_cases.py` run
unless some are named. The exit code is 1 if a number differs by more than 1e-9, or if one version refuses what the
other computes.
"""

from __future__ import annotations

import argparse
import gc
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from version_cases import Case, Data

ROOT = Path(__file__).resolve().parents[1]
LARGEST = 1e-9
"""relative difference that counts as rounding"""
AWAY = 0.03
"""distance of the point from the parameters of the simulated logs, relative to each of them, or to 0.1 if larger"""
QUANTITIES = {"r": "residuals", "J": "Jacobian", "column": "column", "g": "gradient"}
SEPARATOR = "|"
"""between case, stepper and quantity in the names of saved arrays"""

Arrays = dict[str, np.ndarray]


# In the process of one version


def record(names: list[str], file: Path) -> None:
    """Simulate and save the logs of the named cases, of all where none is named."""
    import mechid
    from version_cases import CASES

    mechid.enable_float64()
    recorded: Arrays = {}
    for name in names or CASES:
        print(f"recording {name}", file=sys.stderr, flush=True)
        recorded |= {SEPARATOR.join((name, key)): x for key, x in CASES[name]().record().items()}
    np.savez(file, **recorded)  # pyright: ignore[reportArgumentType]


def compute(names: list[str], logs: Path, file: Path) -> None:
    """Compute the named cases with all their steppers from saved logs, and save the results."""
    import jax

    import mechid
    from version_cases import CASES

    mechid.enable_float64()
    recorded = load(logs)
    found: Arrays = {"source": np.array(str(Path(mechid.__file__).parents[1]))}
    for name in names or CASES:
        case, data = CASES[name](), under(recorded, name)
        for stepper, of_size in case.steppers.items():
            began = time.perf_counter()
            arrays = attempt(case, of_size(case.dt), data)
            found |= {SEPARATOR.join((name, stepper, key)): x for key, x in arrays.items()}
            seconds, refusal = time.perf_counter() - began, arrays.get("refusal", "")
            print(f"{seconds:7.1f} s  {name}, {stepper}  {refusal}", file=sys.stderr, flush=True)
            # compiled programs are of no use to the next problem and would fill the memory
            jax.clear_caches()
            gc.collect()
    np.savez(file, **found)  # pyright: ignore[reportArgumentType]


def attempt(case: Case, stepper: Any, data: Data) -> Arrays:
    """The numbers of a case with a stepper, or only `refusal`: the reason why there are none."""
    from mechid import MechidError

    try:
        return numbers(case, stepper, data)
    except MechidError as error:
        return {"refusal": np.array(str(error))}
    except Exception as error:
        first_line = str(error).partition("\n")[0]
        return {"refusal": np.array(f"{type(error).__name__}: {first_line}")}


def numbers(case: Case, stepper: Any, data: Data) -> Arrays:
    """Weighted residuals r, their Jacobian J (conditions below both) and the adjoint gradient g at a point.

    A cost of the user's own has no residuals: r is the cost then, and there is no J.
    """
    from mechid import MechidError
    from mechid.estimate.prepare import prepared
    from mechid.estimate.problem import ShootingProblem
    from mechid.estimate.tracking import with_gains

    options = {} if case.keep is None else {"keep": case.keep}
    shooting = prepared(stepper, case.experiment(data), case.free, **options)
    if case.gains:
        shooting = with_gains(shooting)
    noise = tuple(group.std for group in shooting.groups)
    problem = ShootingProblem(case.free, (shooting,), (noise,), (None,), "forward")
    y = problem.start
    y = y + AWAY * np.where(np.arange(len(y)) % 2, -1.0, 1.0) * np.maximum(np.abs(y), 0.1)
    point = problem.evaluate(y)
    if not np.isfinite(point.cost):
        raise MechidError(point.runs[0].failure)
    found = {"steps": np.array(shooting.grid.steps), "unknowns": np.array(len(y))}
    if problem.least_squares:
        r, J, C = problem.rows(point)
        found |= {"r": np.concatenate([r, point.gaps]), "J": np.concatenate([J, C])}
    else:
        found["r"] = np.array([point.cost])
    adjoint = replace(problem, gradients="adjoint", memory={})
    return found | {"g": np.asarray(adjoint.gradient(adjoint.evaluate(y)))}


# Saved arrays


def load(file: Path) -> Arrays:
    with np.load(file) as arrays:
        return dict(arrays)


def under(arrays: Arrays, *path: str) -> Arrays:
    """The arrays whose names begin with a path, by the rest of their names."""
    prefix = SEPARATOR.join((*path, ""))
    return {name.removeprefix(prefix): x for name, x in arrays.items() if name.startswith(prefix)}


# Comparing


def run(task: str, source: Path, *arguments: Path | str) -> None:
    """Run a task of this file in a process that imports the package from a source folder."""
    reference = os.environ.get("MECHID_REFERENCE", str(ROOT.parent / "shared"))
    environment = os.environ | {"PYTHONPATH": str(source), "MECHID_REFERENCE": reference}
    subprocess.run([sys.executable, __file__, task, *map(str, arguments)], env=environment, check=True)


def relative(a: np.ndarray, b: np.ndarray) -> float:
    """Largest absolute difference relative to the largest absolute value of b."""
    if a.shape != b.shape or not np.all(np.isfinite(a) & np.isfinite(b)):
        return np.inf
    largest, gap = np.max(np.abs(b), initial=0.0), np.max(np.abs(a - b), initial=0.0)
    return 0.0 if gap == 0.0 else float(gap / largest) if largest else np.inf


def differences(this: Arrays, other: Arrays) -> dict[str, float]:
    """Relative differences of the quantities; that of a column of J is relative to the column's largest value."""
    found = {key: relative(this[key], other[key]) for key in ("r", "J", "g") if key in this or key in other}
    if "J" in found:
        same = this["J"].shape == other["J"].shape
        columns = zip(this["J"].T, other["J"].T, strict=True) if same else []
        found["column"] = max((relative(a, b) for a, b in columns), default=np.inf)
    return found


def compare(this: Arrays, other: Arrays) -> tuple[str, list[str]]:
    """A Markdown table of the differences, and a sentence for each that is too large."""
    problems = dict.fromkeys(tuple(name.split(SEPARATOR)[:2]) for name in this if SEPARATOR in name)
    lines = [
        f"| mechanism | stepper | steps | unknowns | {' | '.join(QUANTITIES.values())} |",
        f"|---|---|---|---|{'---|' * len(QUANTITIES)}",
    ]
    reasons: dict[str, int] = {}
    large: list[str] = []
    for case, stepper in problems:
        a, b = under(this, case, stepper), under(other, case, stepper)
        refusals = [str(x["refusal"]) if "refusal" in x else "" for x in (a, b)]
        if any(refusals):
            if not all(refusals):
                told = "this version" if refusals[0] else "the other version"
                large.append(f"{case}, {stepper}: only {told} refuses it: {refusals[0] or refusals[1]}")
            note = reasons.setdefault(refusals[0] or refusals[1], len(reasons) + 1)
            lines.append(f"| {case} | {stepper} | – [{note}] |" + " |" * (len(QUANTITIES) + 1))
            continue
        found = differences(a, b)
        cells = [f"{found[key]:.1e}" if key in found else "–" for key in QUANTITIES]
        lines.append(f"| {case} | {stepper} | {a['steps']} | {a['unknowns']} | {' | '.join(cells)} |")
        large += [
            f"{case}, {stepper}: {QUANTITIES[key]} differ by {x:.1e}"
            for key, x in found.items()
            if not x <= LARGEST
        ]
    notes = [f"[{number}] {reason}" for reason, number in reasons.items()]
    return "\n".join([*lines, "", *(f"{note}  " for note in notes)]), large


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("other", type=Path, metavar="OTHER_SRC", help="the src folder of the other version")
    parser.add_argument("cases", nargs="*", metavar="CASE", help="names of cases; all by default")
    parser.add_argument("--keep", type=Path, help="a folder in which logs and results stay")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = chosen.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        logs, results = folder / "logs.npz", [folder / "this.npz", folder / "other.npz"]
        run("--record", ROOT / "src", logs, *chosen.cases)
        for source, file in zip((ROOT / "src", chosen.other.resolve()), results, strict=True):
            run("--compute", source, logs, file, *chosen.cases)
        this, other = map(load, results)
    print(f"This version: {this['source']}; the other: {other['source']}\n", file=sys.stderr)
    table, large = compare(this, other)
    print(table)
    print("\n".join([f"\nDifferences above {LARGEST:g}:", *(f"- {x}" for x in large)]) if large else "")
    return 1 if large else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--record"]:
        record(sys.argv[3:], Path(sys.argv[2]))
    elif sys.argv[1:2] == ["--compute"]:
        compute(sys.argv[4:], Path(sys.argv[2]), Path(sys.argv[3]))
    else:
        sys.exit(main())
