"""What all studies share: settings from the command line, tables on the screen, one JSON line at the end."""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from mechid.errors import MechidError, unknown
from mechid.report.screen import screen, table

Settings = dict[str, Any]

STUDIES = {
    "loop6": "the stiffnesses of a loop of six links, as in the draft; 20 s damped; 20 s by multiple shooting",
    "baxter-loop": "a robot arm feels the stiffness of a flexible loop: 219 minutes in the paper",
    "matrix": "one log through every estimator and every stepper: one program, one table",
    "states": "all states as unknowns: soft and hard dynamics, every stepper, chaos, stiff joints, coverage",
    "furuta": "a Furuta pendulum by joint estimation with SPOOK: made data, three scenarios, a real one",
    "touch": "what one contact point cannot tell of a loop, and what a second arm or an external sensor adds",
    "repetitions": "masses, inertias, lengths, damping: how often the truth lies within three standard deviations",
    "trajectories": "the six-link loop beside another engine's trajectories",
    "steppers": "every stepper on every small mechanism: one motion, observed orders of convergence",
    "pendulum": "friction of a hinge, viscous, dry, Stribeck: five releases as in the paper; a driven pendulum",
    "arm-regression": "a real Stäubli TX40: base parameters and friction by regression, beside the published",
    "joint-friction": "a robot joint that watches its own friction: what jumps is told; a real KUKA KR300",
    "mass-spring": "a mass on a spring in symbols: its weight alone tells c/m and k/m, a known force all three",
    "cart-pendulum": "a pendulum on a cart in symbols: every order of BDF, through the upright, missing samples",
    "drift": "energy and loop drift beside explicit Euler and RK4: why a variational integrator",
}


@dataclass
class Study:
    """A running study: it prints for a person, and gathers a result for a program."""

    name: str
    out: Path
    """folder for figures"""
    console: Console
    result: dict[str, Any] = field(default_factory=dict)

    def say(self, sentence: str) -> None:
        self.console.print(sentence, soft_wrap=True)

    def table(
        self, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1
    ) -> None:
        table(self.console, title, columns, rows, left=left)

    def figure_path(self, name: str) -> Path:
        self.out.mkdir(parents=True, exist_ok=True)
        return self.out / name


def module_of(name: str) -> Any:
    return importlib.import_module(f"mechid.studies.{name.replace('-', '_')}")


def run_study(
    name: str, *, quick: bool, changes: Sequence[str], as_json: bool, out: Path | None = None
) -> dict[str, Any]:
    """Run a study by name; with `as_json` the last line printed is its result."""
    if name not in STUDIES:
        raise unknown("study", name, STUDIES)
    module = module_of(name)
    settings = {**module.SETTINGS, **(module.QUICK if quick else {})}
    for change in changes:
        _set(name, settings, change)
    # words go to the error stream when a program reads the other one
    console = screen(quiet=as_json)
    study = Study(name, out or Path("out") / name, console, {"study": name})
    module.run(settings, study)
    study.result["settings"] = settings
    if as_json:
        print(json.dumps(study.result))
    return study.result


def _set(name: str, settings: Settings, change: str) -> None:
    """Apply "key=value"; the value must be of the kind of the default."""
    key, equals, text = change.partition("=")
    if not equals:
        raise MechidError(f"--set takes key=value, not '{change}'.")
    if key not in settings:
        raise unknown(f"setting of study {name}", key, settings)
    default = settings[key]
    try:
        if isinstance(default, bool):
            settings[key] = {"true": True, "false": False}[text.lower()]
        else:
            settings[key] = type(default)(text)
    except (ValueError, KeyError):
        kind = {int: "a whole number", float: "a number", bool: "true or false"}[type(default)]
        raise MechidError(f"Setting {key} takes {kind}, not '{text}'.") from None


def describe_study(name: str) -> str:
    """What a study does and assumes: its first words, and every setting with its default."""
    if name not in STUDIES:
        raise unknown("study", name, STUDIES)
    module = module_of(name)
    about = getattr(module, "ABOUT", {})
    given = [f"{key}={value}" for key, value in module.SETTINGS.items()]
    width = max(map(len, given), default=0)
    lines = [
        f"  {text:{width}}  {about.get(key, '')}".rstrip()
        for text, key in zip(given, module.SETTINGS, strict=True)
    ]
    return "\n".join([module.__doc__.strip(), "", "Settings (--set key=value) with their defaults:", *lines])


def describe_settings(name: str) -> str:
    """The settings of a study with their defaults, as --set takes them."""
    module = module_of(name)
    return "  ".join(f"{key}={value}" for key, value in module.SETTINGS.items()) or "none"
