"""`move`: what `mechid simulate` does: a start that closes all loops, a motion, a summary and files of it."""

from __future__ import annotations

import dataclasses
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from mechid.dynamics.assembly import assemble, project_rates
from mechid.dynamics.bdf import BDF
from mechid.dynamics.driver import compile_chunks
from mechid.dynamics.onestep import RULES, OneStep
from mechid.dynamics.simulate import Plan, planned, simulated
from mechid.dynamics.spook import Spook
from mechid.dynamics.stepper import Stepper
from mechid.dynamics.trajectory import Trajectory
from mechid.dynamics.usual import usual
from mechid.dynamics.variational import Variational
from mechid.errors import MechidError, choices, unknown
from mechid.model.system import System
from mechid.report.export import FIGURES, TABLES, check_target, rows_of, write_rows
from mechid.report.inputs import InputTable, assignments, read_inputs
from mechid.report.plot import plot
from mechid.report.screen import counted, say, table

STEPPERS: dict[str, Callable[[float], Stepper]] = {
    "variational": lambda dt: Variational(dt, forces="balanced"),
    **{f"bdf{m}": lambda dt, m=m: BDF(dt, order=m) for m in range(1, 7)},
    **{rule: lambda dt, rule=rule: OneStep(dt, rule) for rule in RULES},
    "spook": Spook,
}
MOST = 2.5e8
"""numbers of a trajectory: 2 GB"""


@dataclass(frozen=True)
class Request:
    """What was asked for, as it was written."""

    time: float
    dt: float = 1e-3
    stepper: str = ""
    """empty: the usual one for the mechanism"""
    start: Sequence[str] = ()
    rate: Sequence[str] = ()
    hold: Sequence[str] = ()
    input: Sequence[str] = ()
    inputs: Path | None = None
    linear: bool = False
    """inputs between the rows of the table in a straight line, taken at the middle of each step"""
    frames: Sequence[str] = ()
    every: int = 1
    degrees: bool = False
    out: Path | None = None
    figure: Path | None = None


@dataclass(frozen=True)
class Checked:
    """A request without mistakes."""

    chosen: str
    """name of the stepper"""
    stepper: Stepper
    steps: int
    start: dict[str, float]
    """rad or m"""
    rate: dict[str, float]
    inputs: np.ndarray
    """(steps, nu)"""
    told: str
    """a sentence on the inputs; empty where there is nothing to say"""


class Stopped(Exception):
    """An interrupted run: what was done of it."""

    def __init__(self, steps: int) -> None:
        super().__init__(steps)
        self.steps = steps


def move(mechanism: System, request: Request, console: Console) -> tuple[dict[str, Any], int]:
    """Simulate, print a summary and write the files; the summary for a program, and an exit code."""
    asked = check(mechanism, request)
    q = assemble(mechanism, asked.start, hold=[*dict.fromkeys([*asked.start, *request.hold])])
    v = project_rates(mechanism, q, asked.rate, hold=list(asked.rate))
    clock = time.perf_counter()
    plan = planned(mechanism, asked.stepper, asked.steps, q=q, v=v, inputs=asked.inputs)
    compile_chunks(plan)
    compiling = time.perf_counter() - clock
    clock = time.perf_counter()
    try:
        with _progress(console, asked.steps) as advance:
            run = simulated(plan, throw=False, progress=advance)
        taken = time.perf_counter() - clock
        code = 0 if run.outcome.startswith("All") else 2
    except Stopped as stop:
        taken = time.perf_counter() - clock
        run, code = _interrupted(plan, stop.steps, request, console), 130
    summary = _summary(run, asked, compiling, taken, code)
    _tell(run, asked, request, summary, console)
    if request.out:
        write_rows(rows_of(run, request.frames, request.every), request.out)
        say(console, f"The table is in {request.out}.")
    if request.figure:
        plot(run, request.figure)
        say(console, f"The figure is in {request.figure}.")
    return summary, code


def _interrupted(plan: Plan, steps: int, request: Request, console: Console) -> Trajectory:
    """The steps that were done before an interruption; a rollout does not hand them out, so they are repeated."""
    if steps and (request.out or request.figure):
        say(console, f"Interrupted: the {steps} steps that were done are repeated to be written.")
    run = simulated(plan._replace(table=plan.table[:steps]), throw=False)
    told = f"Interrupted after {steps} of {len(plan.table)} steps, at t = {run.t[-1]:.6g} s."
    return dataclasses.replace(run, outcome=told)


# What was asked for


def check(mechanism: System, request: Request) -> Checked:
    """Refuse mistakes before anything is computed."""
    for what, path, suffixes in (("--out", request.out, TABLES), ("--plot", request.figure, FIGURES)):
        if path is not None:
            check_target(what, path, suffixes)
    for option, value in (("--time", request.time), ("--dt", request.dt)):
        if not (np.isfinite(value) and value > 0.0):
            raise MechidError(f"{option} must be a positive number of seconds, not {value:g}.")
    if request.dt > request.time * (1 + 1e-9):
        raise MechidError(f"--dt {request.dt:g} s is longer than --time {request.time:g} s.")
    if request.every < 1:
        raise MechidError(f"--every must be 1 or more, not {request.every}.")
    chosen = request.stepper or usual(mechanism)
    if chosen not in STEPPERS:
        raise unknown("stepper", chosen, STEPPERS)
    steps = int(np.round(request.time / request.dt))
    width = 2 * len(mechanism.coordinates) + len(mechanism.constraint_names) + len(mechanism.input_names) + 4
    if steps * width > MOST:
        raise MechidError(
            f"--time {request.time:g} s in steps of {request.dt:g} s makes {steps:.3g} steps; at most "
            f"{MOST / width:.2g} of this mechanism fit in memory: take a larger --dt or a shorter --time."
        )
    names = mechanism.coordinate_names
    for name in request.hold:
        mechanism.coordinate(name)
    for name in request.frames:
        if name not in mechanism.frame_names:
            raise unknown("frame", name, mechanism.frame_names)
    start = assignments("--start", "coordinate", request.start, names)
    rate = assignments("--rate", "coordinate", request.rate, names)
    if request.degrees:
        start, rate = (_in_radians(mechanism, numbers) for numbers in (start, rate))
    inputs, told = _inputs(mechanism, request, steps)
    return Checked(chosen, STEPPERS[chosen](request.dt), steps, start, rate, inputs, told)


def _in_radians(mechanism: System, numbers: dict[str, float]) -> dict[str, float]:
    return {n: np.deg2rad(x) if mechanism.coordinate(n).revolute else x for n, x in numbers.items()}


def _inputs(mechanism: System, request: Request, steps: int) -> tuple[np.ndarray, str]:
    names = mechanism.input_names
    constant = assignments("--input", "input", request.input, names)
    columns = {name: np.full(steps, value) for name, value in constant.items()}
    told = ""
    if request.linear and request.inputs is None:
        raise MechidError("--linear is about a table: give one with --inputs.")
    if request.inputs is not None:
        given = read_inputs(request.inputs, names)
        both = [name for name in given.values if name in constant]
        if both:
            raise MechidError(f"--input and '{request.inputs}' both give {choices(both)}.")
        begin = request.dt * np.arange(steps)
        columns |= given.at(begin + 0.5 * request.dt if request.linear else begin, linear=request.linear)
        told = _how(given, request, steps)
    table = np.zeros((steps, len(names)))
    for name, column in columns.items():
        table[:, names.index(name)] = column
    return table, told


def _how(given: InputTable, request: Request, steps: int) -> str:
    how = "interpolated to the middle of each step" if request.linear else "held from row to row"
    end = float(given.t[-1])
    short = f"; the last row ({end:g} s) is held to the end" if end < request.dt * (steps - 1) else ""
    return f"Inputs of {given.path}: {', '.join(given.values)}, {how}{short}."


# What came out


def _summary(run: Trajectory, asked: Checked, compiling: float, taken: float, code: int) -> dict[str, Any]:
    m = run.mechanism
    kinetic, potential = run.energy
    total = kinetic + potential
    named = m.coordinate_names
    return {
        "mechanism": m.name,
        "outcome": run.outcome,
        "exit_code": code,
        "steps": run.steps,
        "asked_steps": asked.steps,
        "end_time": float(run.t[-1]),
        "dt": float(asked.stepper.dt),
        "stepper": type(asked.stepper).__name__,
        "preparing_s": compiling,
        "running_s": taken,
        "microseconds_a_step": 1e6 * taken / max(1, run.steps),
        "energy_start": _plain(total[0]),
        "energy_end": _plain(total[-1]),
        "kinetic_most": _plain(kinetic.max()),
        "violation": _plain(run.violation.max(initial=0.0)),
        "inputs": asked.told,
        "start": dict(zip(named, map(_plain, run.q[0]), strict=True)),
        "start_rates": dict(zip(named, map(_plain, run.v[0]), strict=True)),
        "end": dict(zip(named, map(_plain, run.q[-1]), strict=True)),
        "end_rates": dict(zip(named, map(_plain, run.v[-1]), strict=True)),
        "beyond_limits": list(_beyond(run)),
    }


def _plain(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None


def _beyond(run: Trajectory) -> Iterator[dict[str, Any]]:
    """Coordinates that leave their limits: when first, and by how much at most."""
    for i, c in enumerate(run.mechanism.coordinates):
        out = np.maximum(c.lower - run.q[:, i], run.q[:, i] - c.upper)
        if out.max() > 1e-9:
            first = int(np.argmax(out > 1e-9))
            yield {"coordinate": c.name, "t": float(run.t[first]), "by": float(out.max()), "unit": c.unit}


def _tell(
    run: Trajectory, asked: Checked, request: Request, summary: dict[str, Any], console: Console
) -> None:
    m = run.mechanism
    console.print(f"{m.name}: {counted(run.steps, 'step')} of {request.dt:g} s, {asked.chosen}", style="bold")
    if abs(asked.steps * request.dt - request.time) > 1e-9 * request.time:
        say(console, f"Whole steps end at {asked.steps * request.dt:.9g} s, not at {request.time:g} s.")
    if asked.told:
        say(console, asked.told)
    say(
        console,
        f"{summary['running_s']:.3g} s for the motion, {summary['microseconds_a_step']:.3g} µs a step; "
        f"{summary['preparing_s']:.3g} s before it for compiling",
    )
    before, after = summary["energy_start"], summary["energy_end"]
    if before is not None and after is not None:
        say(console, f"Energy {before:.6g} J → {after:.6g} J: {after - before:+.3g} J")
    if m.constraint_names:
        say(console, f"Loops open by at most {run.violation.max():.2g} m or rad")
    if summary["beyond_limits"]:
        told = [
            f"{b['coordinate']} from {b['t']:.4g} s on, by {b['by']:.3g} {b['unit']} at most"
            for b in summary["beyond_limits"]
        ]
        say(console, "Beyond their limits, which do not act:")
        for sentence in told:
            say(console, f" · {sentence}")
    console.print()
    rows = [
        [c.name, c.unit, *map(_digits, (run.q[0, i], run.v[0, i], run.q[-1, i], run.v[-1, i]))]
        for i, c in enumerate(m.coordinates)
    ]
    end = f"at {run.t[-1]:.6g} s"
    table(console, "State", ["coordinate", "unit", "at 0 s", "rate", end, "rate"], rows, left=2)
    if request.frames:
        places = [[f, *map(_digits, run.frame(f)[-1, :3, 3])] for f in request.frames]
        table(console, f"Frames {end} (m)", ["frame", "x", "y", "z"], places)


def _digits(value: float) -> str:
    return "0" if abs(value) < 1e-12 else f"{value:.6g}"


@contextmanager
def _progress(console: Console, steps: int) -> Iterator[Callable[[int, int], None]]:
    """Tells how far a run is: a bar on a terminal. An interruption is taken between pieces of the run."""
    asked: list[int] = []

    def note(*_: Any) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(1)

    columns = (TextColumn("{task.completed} of {task.total} steps"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=steps)

        def advance(done: int, _: int) -> None:
            bar.update(task, completed=done)
            if asked:
                raise Stopped(done)

        before = signal.signal(signal.SIGINT, note)
        try:
            yield advance
        finally:
            signal.signal(signal.SIGINT, before)
