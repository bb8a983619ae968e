"""`read_study`: what a study file asks for: a mechanism, its free parameters, logs, a stepper and a solver.

    study = read_study(Path("study.toml"))
    simulation_error(study.mechanism, study.stepper, study.experiments, study.free, study.solver)

What can be wrong without simulating is found here, and told with the line of the entry. Keys: docs/fitting.md.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mechid.dynamics.bdf import BDF
from mechid.dynamics.onestep import RULES as ONE_STEP
from mechid.dynamics.onestep import OneStep
from mechid.dynamics.spook import Spook
from mechid.dynamics.spook_rows import NUMBERS, Softness
from mechid.dynamics.stepper import Stepper
from mechid.dynamics.usual import usual
from mechid.dynamics.variational import FORCES, RULES, Variational
from mechid.errors import choices
from mechid.estimate.experiment import Experiment
from mechid.estimate.linear import LOSSES
from mechid.estimate.linear_form import MechanismForm
from mechid.estimate.measured_motion import Signals, measured_motion
from mechid.estimate.regression import WEIGHTS
from mechid.estimate.solvers.lbfgsb import LBFGSB
from mechid.estimate.solvers.levenberg_marquardt import LevenbergMarquardt
from mechid.estimate.solvers.steepest_descent import SteepestDescent
from mechid.estimate.stepper_rows import check_stepper
from mechid.estimate.trajectory import METHODS
from mechid.jobs.entries import Entry, EntryFile, read_entries
from mechid.jobs.study_logs import check_experiment, input_name, read_experiment
from mechid.model.parameter import TRANSFORMS
from mechid.model.parameters import Parameters
from mechid.model.reading import ACTUATORS, read_mechanism
from mechid.model.system import System

KEYS = (
    "model",
    "actuators",
    "delays",
    "estimator",
    "state_error_weight",
    "method",
    "segments",
    "out",
    "stepper",
    "solver",
    "log",
    "parameters",
    "limit",
    "loss",
    "weights",
    "signals",
    "rows",
)
ESTIMATORS = ("simulation-error", "joint", "full-discretization", "regression")
STEPPERS = ("variational", *(f"bdf{m}" for m in range(1, 7)), "spook", *ONE_STEP)
SOLVERS: dict[str, Any] = {
    "levenberg-marquardt": LevenbergMarquardt,
    "steepest-descent": SteepestDescent,
    "lbfgsb": LBFGSB,
}
PARAMETER = ("start", "bounds", "prior", "transform", "unit", "ties")


@dataclass(frozen=True, eq=False)
class Study:
    """A study file without mistakes."""

    file: EntryFile
    model: Path
    """the URDF or MJCF file"""
    mechanism: System
    free: Parameters
    stepper: Stepper
    solver: Any
    experiments: tuple[Experiment, ...]
    logs: tuple[Path, ...]
    """their files"""
    estimator: str
    segments: int
    """parts of multiple shooting"""
    state_error_weight: float | None
    """κ of joint estimation; None where it is to be chosen"""
    method: str
    """of full discretisation"""
    regression: dict[str, Any]
    """loss, weights and signals of a regression"""
    out: Path
    """where results go"""

    @property
    def name(self) -> str:
        return self.file.path.stem


def read_study(path: Path, changes: Sequence[str] = ()) -> Study:
    """The study that a file describes; `changes` are key=value in the place of its own entries."""
    file = read_entries(path, changes)
    root = file.root
    given = root.table(KEYS, needs=("model", "log", "parameters"))
    estimator = given["estimator"].text(ESTIMATORS) if "estimator" in given else ESTIMATORS[0]
    regression = _regression(root, estimator)
    if estimator != "regression":
        root.table(KEYS, needs=("stepper",))
    segments = _segments(given.get("segments"), root.get("solver"))
    weight = _state_error_weight(given.get("state_error_weight"), estimator)
    method = _method(given.get("method"), estimator)
    if estimator not in (ESTIMATORS[0], "regression"):
        _only_states(estimator, given.get("segments"), root.get("solver"))
    out = Path(given["out"].text()) if "out" in given else Path("out") / path.stem
    model, mechanism = read_mechanism_entry(root)
    stepper = _stepper(given["stepper"], mechanism) if "stepper" in given else Variational(1.0)
    if regression.pop("rows", "") == "stepper":
        root.table(KEYS, needs=("stepper",))
        regression["stepper"] = stepper
    solver = _solver(root.get("solver"))
    free = _limited(root.get("limit"), read_parameters(given["parameters"], mechanism))
    logs = given["log"].tables()
    read = [read_experiment(entry, mechanism, path.parent) for entry in logs]
    if not logs:
        raise given["log"].error("A study needs at least one [[log]].")
    names = [experiment.name for experiment, _ in read]
    for i, (name, entry) in enumerate(zip(names, logs, strict=True)):
        if name in names[:i]:
            raise entry.error(
                f"Two logs are called '{name}': give each a name of its own with the key 'name'."
            )
    if estimator == "regression":
        with given["parameters"].blamed():
            form = MechanismForm(free)
        for entry, (experiment, _) in zip(logs, read, strict=True):
            with entry.blamed():
                measured_motion(form, experiment, regression["signals"])
        if "stepper" in regression:
            with given["stepper"].blamed():
                check_stepper(form, stepper)
    else:
        with given["stepper"].blamed():
            stepper.on(mechanism).check(free.bind(free.theta0), 1)
        for entry, (experiment, _) in zip(logs, read, strict=True):
            check_experiment(entry, experiment, free, stepper)
    experiments, files = zip(*read, strict=True)
    chosen = (estimator, segments, weight, method, regression)
    return Study(file, model, mechanism, free, stepper, solver, experiments, files, *chosen, out)


def _state_error_weight(entry: Entry | None, estimator: str) -> float | None:
    if entry is None:
        return None
    if estimator != "joint":
        raise entry.error(f"state_error_weight belongs to estimator 'joint', not to '{estimator}'.")
    return entry.number(above=0.0)


def _method(entry: Entry | None, estimator: str) -> str:
    if entry is None:
        return METHODS[0]
    if estimator != "full-discretization":
        raise entry.error(f"method belongs to estimator 'full-discretization', not to '{estimator}'.")
    return entry.text(METHODS)


def _regression(root: Entry, estimator: str) -> dict[str, Any]:
    """What belongs to a regression alone."""
    keys = ("loss", "weights", "signals", "rows")
    found = {key: entry for key in keys if (entry := root.get(key)) is not None}
    if estimator != "regression":
        for key, entry in found.items():
            raise entry.error(f"{key} belongs to estimator 'regression', not to '{estimator}'.")
        return {}
    for key in ("segments", "solver"):
        if (entry := root.get(key)) is not None:
            raise entry.error(f"A regression is solved at once: it takes no {key}.")
    options: dict[str, Any] = {}
    if "loss" in found:
        options["loss"] = found["loss"].text(LOSSES)
    if "weights" in found:
        entry = found["weights"]
        options["weights"] = entry.text(WEIGHTS) if isinstance(entry.value, str) else entry.numbers()
    if "rows" in found:
        options["rows"] = found["rows"].text(("accelerations", "stepper"))
    table = found["signals"].table(("cutoff", "order", "window", "trim")) if "signals" in found else {}
    given: dict[str, Any] = {k: e.number(finite=k != "cutoff") for k, e in table.items() if k != "order"}
    if "order" in table:
        given["order"] = table["order"].whole()
    with (found.get("signals") or root).blamed():
        options["signals"] = Signals(**given)
    return options


def _only_states(estimator: str, segments: Entry | None, solver: Entry | None) -> None:
    """Refuse what estimators with states as unknowns do not have."""
    if segments is not None:
        raise segments.error(f"segments belong to estimator 'simulation-error', not to '{estimator}'.")
    kind = solver["kind"] if solver is not None and "kind" in solver else None
    if kind is not None and kind.text(tuple(SOLVERS), "solver") != "levenberg-marquardt":
        raise kind.error(f"Estimator '{estimator}' needs the solver levenberg-marquardt.")


def _segments(entry: Entry | None, solver: Entry | None) -> int:
    if entry is None:
        return 1
    count = entry.number(least=1.0)
    if count != int(count):
        raise entry.error(f"The number of segments must be whole, not {count:g}.")
    kind = solver["kind"].text() if solver is not None and "kind" in solver else "levenberg-marquardt"
    if count > 1 and kind != "levenberg-marquardt":
        raise entry.error(f"Segments need the solver levenberg-marquardt, not {kind}.")
    return int(count)


def read_mechanism_entry(root: Entry) -> tuple[Path, System]:
    entry = root["model"]
    actuators = root.get("actuators")
    inputs = "torque" if actuators is None else actuators.text(ACTUATORS, "kind of actuators")
    path = root.file.path.parent / entry.text()
    with entry.blamed():
        mechanism = read_mechanism(path, actuators=inputs).checked()
    delays = root.get("delays")
    for name, e in delays.table().items() if delays is not None else ():
        mechanism = mechanism.delayed(input_name(e, name, mechanism), e.number())
    return path, mechanism


# How it is stepped and solved


def _stepper(entry: Entry, mechanism: System) -> Stepper:
    common = ("kind", "dt")
    tolerances = ("absolute_tolerance", "relative_tolerance")
    extra = {
        "variational": ("rule", "forces", *tolerances),
        "spook": (*NUMBERS, "constraints"),
        **{f"bdf{m}": tolerances for m in range(1, 7)},
        **dict.fromkeys(ONE_STEP, tolerances),
    }
    every = dict.fromkeys(k for keys in extra.values() for k in keys)
    entry.table((*common, *every), needs=("dt",))
    kind = entry["kind"].text(STEPPERS, "stepper") if "kind" in entry else usual(mechanism)
    given = entry.table(None)
    for key in given:
        if key not in (*common, *extra[kind]):
            valid = choices((*common, *extra[kind]))
            raise given[key].error(f"A {kind} stepper has no key '{key}'; valid: {valid}.")
    options: dict[str, Any] = {"dt": given["dt"].number(above=0.0)}
    if "constraints" in given:
        options["constraints"] = {
            name: Softness(**{key: x.number(least=0.0) for key, x in e.table(NUMBERS).items()})
            for name, e in given.pop("constraints").table().items()
        }
    for key in (k for k in given if k in extra[kind]):
        words = {"rule": tuple(RULES), "forces": FORCES}.get(key)
        options[key] = given[key].number(least=0.0) if words is None else given[key].text(words)
    if kind == "variational":
        return Variational(**{"forces": "balanced", **options})
    if kind in ONE_STEP:
        return OneStep(rule=kind, **options)
    return Spook(**options) if kind == "spook" else BDF(order=int(kind[3:]), **options)


def _solver(entry: Entry | None) -> Any:
    if entry is None:
        return LevenbergMarquardt()
    kinds = {kind: {f.name: f for f in dataclasses.fields(made)} for kind, made in SOLVERS.items()}
    entry.table(("kind", *dict.fromkeys(k for keys in kinds.values() for k in keys)))
    kind = entry["kind"].text(tuple(SOLVERS), "solver") if "kind" in entry else "levenberg-marquardt"
    options = {}
    for key, e in entry.table(None).items():
        if key == "kind":
            continue
        if key not in kinds[kind]:
            valid = choices(("kind", *kinds[kind]))
            raise e.error(f"The solver {kind} has no key '{key}'; valid: {valid}.")
        options[key] = e.whole() if kinds[kind][key].type == "int" else e.number(least=0.0)
    return SOLVERS[kind](**options)


# What is free


def read_parameters(entry: Entry, mechanism: System) -> Parameters:
    free = Parameters(mechanism)
    for key, e in entry.table().items():
        if key == "inertia":
            for body, place in zip(e.texts(), _each(e), strict=True):
                with place.blamed():
                    free = free.free_inertia(body)
        else:
            free = _freed(free, key, e)
    if not free.size:
        raise entry.error('No parameter is free: name at least one, "elbow.damping" = {start = 0.1}.')
    return free


def _each(entry: Entry) -> list[Entry]:
    return [entry] if isinstance(entry.value, str) else entry.list()


def _freed(free: Parameters, key: str, entry: Entry) -> Parameters:
    """One line of [parameters]: an address or a pattern, or a name that ties several."""
    if not isinstance(entry.value, dict):
        start = entry.number()
        with entry.blamed():
            return free.free(key, start=start)
    given = entry.table(PARAMETER)
    options: dict[str, Any] = {}
    if "start" in given:
        options["start"] = given["start"].number()
    if "bounds" in given:
        options["bounds"] = tuple(given["bounds"].numbers(2, finite=False))
    if "prior" in given:
        options["prior"] = tuple(given["prior"].numbers(2))
    if "transform" in given:
        options["transform"] = given["transform"].text(TRANSFORMS)
    if "unit" in given:
        options["unit"] = given["unit"].text()
    if "ties" not in given:
        with entry.blamed():
            return free.free(key, **options)
    ties, factors = given["ties"], {}
    if isinstance(ties.value, dict):
        factors = {address: e.number() for address, e in ties.table().items()}
    else:
        for address, place in zip(ties.texts(), _each(ties), strict=True):
            if address in factors:
                raise place.error(f"'{address}' is tied twice.")
            factors[address] = 1.0
    units: list[str] = []
    for address in factors:
        with (ties[address] if isinstance(ties.value, dict) else ties).blamed():
            units += [a.unit for a in free.lowering.layout.find(address)]
    if "unit" not in options:
        if len(set(units)) > 1:
            told = choices(dict.fromkeys(u or "none" for u in units))
            raise ties.error(
                f"Parameter '{key}' would tie numbers of different units ({told}): give it a 'unit'."
            )
        options["unit"] = units[0] if units else ""
    with entry.blamed():
        return free.tie(key, factors, **options)


def _limited(entry: Entry | None, free: Parameters) -> Parameters:
    for e in entry.tables() if entry is not None else ():
        given = e.table(("factors", "upper"), needs=("factors", "upper"))
        factors = {name: f.number() for name, f in given["factors"].table().items()}
        for name, f in given["factors"].table().items():
            if name not in free.names:
                with f.blamed():
                    free.limit({name: 1.0}, upper=0.0)
        upper = given["upper"].number()
        with e.blamed():
            free = free.limit(factors, upper=upper)
    return free
