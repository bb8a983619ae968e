"""`run_fit`: what `mechid fit` does: a study is fitted, watched, saved as it goes, written into a new folder."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from mechid.errors import MechidError, choices
from mechid.estimate.fit import Fit
from mechid.estimate.prepare import prepared
from mechid.estimate.regression import regression
from mechid.estimate.simulation_error import simulation_error
from mechid.estimate.solvers.problem import Iteration
from mechid.estimate.trajectory import full_discretization, joint
from mechid.jobs.checkpoint import (
    Checkpoint,
    Stop,
    Watched,
    checkpoint_path,
    read_checkpoint,
    remove_checkpoint,
    same_unknowns,
    set_aside,
    stoppable,
    unknown_names,
)
from mechid.jobs.study_file import Study
from mechid.model.writing import write_mechanism
from mechid.report.fit import progress_line, result_dict, show_fit
from mechid.report.fit_files import check_folder, new_folder, write_fit
from mechid.report.screen import counted

CONVERGED, NOT_CONVERGED, INTERRUPTED = 0, 3, 130
"""exit codes; 2 is for mistakes"""


@dataclass(frozen=True)
class Finished:
    """A fit that is over, and where it is."""

    fit: Fit
    folder: Path | None
    """None where nothing was found that would be worth a folder"""
    code: int
    about: dict[str, Any]

    @property
    def result(self) -> dict[str, Any]:
        """Everything, for a program."""
        folder = None if self.folder is None else str(self.folder)
        return {**self.about, "folder": folder, "exit_code": self.code, **result_dict(self.fit)}


def run_fit(
    study: Study,
    console: Console,
    *,
    out: Path | None = None,
    resume: bool = False,
    quiet: bool = False,
    plots: bool = True,
) -> Finished:
    """Fit, tell how it goes and what came out, and write all of it into a new folder."""
    place = study.file.root.get("out") if out is None else None
    out = study.out if out is None else out
    with place.blamed() if place else nullcontext():
        check_folder(out)
    path = checkpoint_path(out)
    begin = read_checkpoint(path) if resume else None
    kept = None if resume else set_aside(path)
    if kept is not None:
        _say(console, f"An earlier run of this study was not finished; its checkpoint is kept as {kept}.")
    if not quiet:
        _announce(study, begin, console)
    fit = _fitted(study, path, begin, console, quiet)
    code = CONVERGED if fit.converged else NOT_CONVERGED
    if fit.outcome.startswith("Interrupted"):
        code = INTERRUPTED
    about = _about(study)
    if code == INTERRUPTED and not fit.iterations:
        if begin is None:
            remove_checkpoint(path)
        _say(console, "Interrupted before the first iteration was done: nothing is written.")
        return Finished(fit, None, code, about)
    told: list[str] = []
    folder = new_folder(out, lambda place: _write(study, fit, place, about, plots, told))
    if fit.converged:
        remove_checkpoint(path)
    if not quiet:
        console.print()
        show_fit(fit, console)
        console.print()
    for sentence in told:
        _say(console, sentence)
    _say(console, f"{fit.outcome} Results are in {folder}." if quiet else f"Results are in {folder}.")
    return Finished(fit, folder, code, about)


def _say(console: Console, sentence: str) -> None:
    """A sentence on one line, however long."""
    console.print(Text(sentence), soft_wrap=True)


def _announce(study: Study, begin: Checkpoint | None, console: Console) -> None:
    logs = counted(len(study.experiments), "log")
    free = counted(study.free.size, "free parameter")
    console.print(f"{study.mechanism.name}: {free}, {logs}, {study.estimator}", style="bold")
    for e in study.experiments:
        for note in e.log.notes:
            _say(console, f" · {e.name}: {note}")
    if begin is not None:
        done = counted(begin.iteration, "iteration")
        _say(console, f"Resuming after {done}, at cost {begin.cost:.4e}.")
    if study.estimator != "regression":
        _say(console, "Compiling; the first iteration takes longer than the others.")


def _fitted(study: Study, path: Path, begin: Checkpoint | None, console: Console, quiet: bool) -> Fit:
    names = study.free.physical(study.free.theta0)
    units = [quantity.unit for quantity in names.values()]

    def tell(iteration: Iteration) -> None:
        if not quiet:
            _say(console, progress_line(iteration, list(names), units))

    def again(number: int) -> None:
        if not quiet:
            _say(console, f"Noise estimated again from the residuals, round {number}:")

    def interrupted() -> None:
        _say(console, "Interrupted: what was found so far is written. Ctrl-C again stops at once.")

    with study.file.root.blamed(), stoppable(interrupted) as stop:
        if study.estimator == "regression":
            return regression(study.mechanism, study.experiments, study.free, **study.regression)
        if study.estimator != "simulation-error":
            return _with_states(study, path, begin, tell, stop)
        watched = Watched(study.solver, path, stop, begin, again)
        found = simulation_error(
            study.mechanism,
            study.stepper,
            study.experiments,
            study.free,
            watched,
            segments=study.segments,
            progress=tell,
        )
    return replace(found, solver=type(study.solver).__name__)


def _with_states(
    study: Study, path: Path, begin: Checkpoint | None, tell: Callable[[Iteration], None], stop: Stop
) -> Fit:
    """By an estimator that has all states as unknowns."""
    made = [prepared(study.stepper, e, study.free) for e in study.experiments]
    names = unknown_names(study.free, made)
    if begin is not None:
        same_unknowns(begin, names, path)
    done = 0 if begin is None else begin.iteration

    def note(iteration: Iteration) -> None:
        Checkpoint(names, iteration.unknowns, done + iteration.number, iteration.cost).write(path)
        tell(iteration)
        if stop.asked:
            raise KeyboardInterrupt

    given = (study.mechanism, study.stepper, study.experiments, study.free, study.solver)
    start = None if begin is None else begin.unknowns
    if study.estimator == "joint":
        return joint(*given, state_error_weight=study.state_error_weight, begin=start, progress=note)
    return full_discretization(*given, method=study.method, begin=start, progress=note)


# What is written


def _about(study: Study) -> dict[str, Any]:
    return {
        "study": str(study.file.path),
        "changes": list(study.file.changes),
        "model": str(study.model),
        "logs": [str(p) for p in study.logs],
    }


def _write(study: Study, fit: Fit, place: Path, about: dict[str, Any], plots: bool, told: list[str]) -> None:
    """All files of a run; what could not be made is told and left out."""
    write_fit(fit, place, about)
    copy = study.file.text
    if study.file.changes:
        lines = [f"# changed by --set {change}" for change in study.file.changes]
        copy = "\n".join([copy.rstrip("\n"), "", *lines, ""])
    (place / study.file.path.name).write_text(copy, "utf-8", newline="")
    model = place / f"{study.model.stem}-identified{study.model.suffix}"
    _tried(
        "The identified model is not written: ",
        lambda: write_mechanism(fit.mechanism, study.model, model, ignore=("delay",)),
        told,
    )
    if fit.mechanism.delays and model.exists():
        late = choices(f"{name} ({delay:.4g} s)" for name, delay in fit.mechanism.delays.items())
        told.append(f"{model.name} has no place for how late inputs act: {late}.")
    if plots:
        from mechid.report.fit_plot import plot_convergence, plot_fit

        _tried("The figure of channels is not drawn: ", lambda: plot_fit(fit, place / "fit.png"), told)
        _tried(
            "The figure of convergence is not drawn: ",
            lambda: plot_convergence(fit, place / "convergence.png"),
            told,
        )


def _tried(what: str, make: Callable[[], object], told: list[str]) -> None:
    try:
        make()
    except MechidError as error:
        told.append(f"{what}{error}")
