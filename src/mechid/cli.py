"""The command `mechid`."""

from __future__ import annotations

import os
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from mechid.errors import MechidError

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Identify the physical parameters of mechanisms from logs of their motion.",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"mechid {version('mechid')}")
        raise typer.Exit


@app.callback()
def _about(
    shown: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="print the version")
    ] = False,
) -> None:
    """Identify the physical parameters of mechanisms from logs of their motion."""


@app.command(add_help_option=False)
def study(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="which study; `list` names them all")] = "",
    json: Annotated[bool, typer.Option("--json", help="end with one line of JSON")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="a small version")] = False,
    change: Annotated[
        list[str] | None, typer.Option("--set", help="key=value, what the study assumes")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="folder for figures (default out/NAME)")] = None,
    help: Annotated[bool, typer.Option("--help", help="this page; with a NAME also its settings")] = False,
) -> None:
    """Run one of the papers' experiments and print its figures beside ours."""
    from mechid.studies.study import STUDIES, describe_settings, describe_study, run_study

    if help or not name:
        print(context.get_help())
        if name and name != "list":
            print(describe_study(name))
        return
    if name == "list":
        for key, text in STUDIES.items():
            print(f"{key:10} {text}")
            print(f"{'':10} settings: {describe_settings(key)}")
        return
    run_study(name, quick=quick, changes=change or [], as_json=json, out=out)


@app.command()
def show(
    file: Annotated[Path, typer.Argument(help="a URDF or MJCF file, or a symbolic mechanism (.toml)")],
    actuators: Annotated[str, typer.Option(help="torque: an input on every actuated joint; none")] = "torque",
    order: Annotated[
        int, typer.Option(help="of a symbolic mechanism: the constraints that BDF of this order makes of it")
    ] = 0,
    latex: Annotated[
        bool, typer.Option("--latex", help="of a symbolic mechanism: formulas as LaTeX")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="print one line of JSON instead")] = False,
) -> None:
    """Show what a file describes, and which of its parameters can be identified in principle."""
    import json as text

    from mechid.model.reading import read_mechanism
    from mechid.report.screen import screen
    from mechid.report.show import show as shown

    console = screen(quiet=json)
    console.quiet = json
    mechanism = read_mechanism(file, actuators=actuators).checked()
    if file.suffix == ".toml":
        from mechid.report.show_symbols import show_symbols

        data = show_symbols(mechanism, console, order=order, latex=latex)
    else:
        if order or latex:
            raise MechidError(f"--order and --latex are for symbolic mechanisms (.toml); '{file}' is none.")
        data = shown(mechanism, console)
    if json:
        print(text.dumps(data))


@app.command()
def simulate(
    file: Annotated[Path, typer.Argument(help="a URDF or MJCF file, or a symbolic mechanism (.toml)")],
    time: Annotated[float, typer.Option(help="how long, s")],
    dt: Annotated[float, typer.Option(help="step size, s")] = 1e-3,
    stepper: Annotated[
        str,
        typer.Option(
            help="variational, bdf1 … bdf6, midpoint, trapezoidal, spook; the first that suits where none is named",
            show_default=False,
        ),
    ] = "",
    start: Annotated[list[str] | None, typer.Option(help="NAME=VALUE, rad or m; kept as loops close")] = None,
    rate: Annotated[list[str] | None, typer.Option(help="NAME=VALUE, rad/s or m/s; kept likewise")] = None,
    hold: Annotated[list[str] | None, typer.Option(help="a coordinate that stays 0 as loops close")] = None,
    input: Annotated[list[str] | None, typer.Option(help="NAME=VALUE, held throughout")] = None,
    inputs: Annotated[Path | None, typer.Option(help="CSV table: t and inputs, held from row to row")] = None,
    linear: Annotated[bool, typer.Option("--linear", help="interpolate the table instead")] = False,
    frame: Annotated[list[str] | None, typer.Option(help="a frame whose place is written too")] = None,
    every: Annotated[int, typer.Option(help="write every n-th state")] = 1,
    degrees: Annotated[
        bool, typer.Option("--degrees", help="--start and --rate of angles in degrees")
    ] = False,
    actuators: Annotated[str, typer.Option(help="torque: an input on every actuated joint; none")] = "torque",
    out: Annotated[Path | None, typer.Option(help="table of the motion: .csv or .npz")] = None,
    plot: Annotated[Path | None, typer.Option(help="figure of the motion: .png, .pdf or .svg")] = None,
    json: Annotated[bool, typer.Option("--json", help="print one line of JSON instead")] = False,
) -> None:
    """Move the mechanism of a file from a start, under inputs; print a summary, write a table and a figure."""
    import json as text

    from mechid.model.reading import read_mechanism
    from mechid.report.motion import Request, move
    from mechid.report.screen import screen

    request = Request(
        time=time,
        dt=dt,
        stepper=stepper,
        start=start or (),
        rate=rate or (),
        hold=hold or (),
        input=input or (),
        inputs=inputs,
        linear=linear,
        frames=frame or (),
        every=every,
        degrees=degrees,
        out=out,
        figure=plot,
    )
    console = screen(quiet=json)
    console.quiet = json
    summary, code = move(read_mechanism(file, actuators=actuators).checked(), request, console)
    if json:
        print(text.dumps(summary))
    if code:
        told = f" What came before it is in {out}." if out else ""
        print(f"mechid: {summary['outcome']}{told}", file=sys.stderr)
        raise typer.Exit(code)


@app.command()
def fit(
    file: Annotated[Path, typer.Argument(metavar="STUDY", help="a study file, TOML")],
    out: Annotated[
        Path | None, typer.Option(help="folder for the results, in the place of the study's")
    ] = None,
    change: Annotated[
        list[str] | None, typer.Option("--set", help="key=value, in the place of an entry")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="go on where an unfinished run ended")] = False,
    plot: Annotated[bool, typer.Option("--plot/--no-plot", help="draw figures")] = True,
    quiet: Annotated[bool, typer.Option("--quiet", help="tell only how it ended")] = False,
    json: Annotated[
        bool, typer.Option("--json", help="end with one line of JSON, words on the error stream")
    ] = False,
) -> None:
    """Find the parameters of a mechanism that explain logs of its motion, as a study file asks."""
    from mechid.jobs.fit import run_fit
    from mechid.jobs.study_file import read_study
    from mechid.report.fit_files import as_json
    from mechid.report.screen import screen

    study = read_study(file, change or [])
    done = run_fit(study, screen(quiet=json), out=out, resume=resume, quiet=quiet, plots=plot)
    if json:
        print(as_json(done.result))
    if done.code:
        print(f"mechid: {done.fit.outcome}", file=sys.stderr)
        raise typer.Exit(done.code)


@app.command()
def track(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="what to track and how, TOML")],
    source: Annotated[
        str | None,
        typer.Option(
            "--from", help="a file, - (standard input), tcp:PORT, unix:PATH; default: the file's own, or -"
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="JSON lines; default: standard output")] = None,
    state: Annotated[
        Path | None, typer.Option(help="where the state is saved; default: beside --out")
    ] = None,
    change: Annotated[
        list[str] | None, typer.Option("--set", help="key=value, in the place of an entry")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="go on where the saved state stands")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="no live table, no words")] = False,
) -> None:
    """Follow the parameters of a joint or mechanism through a stream of samples; tell what changes, and when."""
    from mechid.jobs.track import run_track
    from mechid.jobs.track_file import read_track
    from mechid.report.screen import screen

    asked = read_track(file, change or [])
    run_track(asked, screen(quiet=True), source=source, out=out, kept=state, resume=resume, quiet=quiet)


def main() -> None:
    """Run the command: user errors are one sentence and exit code 2, never a traceback."""
    from mechid.compile import enable_compilation_cache, setup

    setup()
    try:
        enable_compilation_cache(cache_folder())
    except OSError as error:
        print(
            f"mechid: compiled programs are not kept in '{cache_folder()}': {error.strerror}.",
            file=sys.stderr,
        )
    try:
        app()
    except MechidError as error:
        print(f"mechid: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("mechid: interrupted.", file=sys.stderr)
        sys.exit(130)


def cache_folder() -> Path:
    """Where compiled programs are kept: MECHID_CACHE, or the user's cache folder."""
    named = os.environ.get("MECHID_CACHE")
    if named:
        return Path(named)
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "mechid" / "compiled"
