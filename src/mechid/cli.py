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


@app.command()
def study(
    name: Annotated[str, typer.Argument(help="which study; `list` names them all")],
    json: Annotated[bool, typer.Option("--json", help="end with one line of JSON")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="a small version")] = False,
    change: Annotated[
        list[str] | None, typer.Option("--set", help="key=value, what the study assumes")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="folder for figures (default out/NAME)")] = None,
) -> None:
    """Run one of the papers' experiments and print its figures beside ours."""
    from mechid.studies.study import STUDIES, describe_settings, run_study

    if name == "list":
        for key, text in STUDIES.items():
            print(f"{key:10} {text}")
            print(f"{'':10} settings: {describe_settings(key)}")
        return
    run_study(name, quick=quick, changes=change or [], as_json=json, out=out)


def main() -> None:
    """Run the command: user errors are one sentence and exit code 2, never a traceback."""
    from mechid.compile import enable_compilation_cache, enable_float64

    enable_float64()
    enable_compilation_cache(cache_folder())
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
