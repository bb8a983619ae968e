"""A symbolic mechanism in a small text file (TOML), read, and written back with other numbers.

    name = "cart-pendulum"
    lagrangian = "(M + m)/2*s'^2 + m*l*cos(phi)*s'*phi' + m*l^2/2*phi'^2 - m*g*l*cos(phi)"
    dissipation = "b/2*s'^2"

    [coordinates]
    s = "m"
    phi = "rad"

    [parameters]
    M = {value = 1.0, unit = "kg"}

    [constants]
    g = 9.81

    [inputs]
    u = "N"

    [forces]
    s = "u"

`equations`, a list of texts with an = sign, may stand in the place of `lagrangian`.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any

import numpy as np

from mechid.errors import MechidError, choices, unknown
from mechid.model.symbolic.mechanism import SymbolicMechanism

TABLES = ("coordinates", "parameters", "constants", "inputs", "forces", "constraints", "rolling", "outputs")
KEYS = ("name", "lagrangian", "dissipation", "equations", "delays", *TABLES)
_NUMBER = r"[-+]?(?:\d[\d_]*\.?[\d_]*|\.\d+)(?:[eE][-+]?\d+)?"


def read_symbolic(text: str, name: str) -> SymbolicMechanism:
    """The mechanism that a text describes; `name` where it does not name itself."""
    try:
        given = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise MechidError(f"it is not TOML: {error}{_hint(text, str(error))}.") from None
    for key in given:
        if key not in KEYS:
            raise unknown("key of a symbolic mechanism", key, KEYS)
    for key in ("coordinates", "parameters"):
        if key not in given:
            raise MechidError(f"it has no [{key}]; a symbolic mechanism needs them.")
    for key in (*TABLES, "delays"):
        if not isinstance(given.get(key, {}), dict):
            raise MechidError(f"'{key}' must be a table, [{key}], of names and what belongs to them.")
    forms = [key for key in ("lagrangian", "equations") if key in given]
    if len(forms) != 1:
        found = "both" if forms else "neither"
        raise MechidError(f"a symbolic mechanism has a lagrangian or equations; here is {found}.")
    label = given.get("name", name)
    common: dict[str, Any] = {
        "coordinates": given["coordinates"],
        "parameters": {k: _pair(k, v, "value") for k, v in given["parameters"].items()},
        "constants": {k: _pair(k, v, "value") for k, v in given.get("constants", {}).items()},
        "inputs": given.get("inputs", {}),
        "constraints": given.get("constraints"),
        "rolling": given.get("rolling"),
        "outputs": {k: _pair(k, v, "expression") for k, v in given.get("outputs", {}).items()},
    }
    if forms == ["lagrangian"]:
        made = SymbolicMechanism.from_lagrangian(
            label,
            given["lagrangian"],
            forces=given.get("forces"),
            dissipation=given.get("dissipation", 0),
            **common,
        )
    else:
        for key in ("forces", "dissipation"):
            if key in given:
                raise MechidError(f"'{key}' belongs to a lagrangian; equations hold what acts themselves.")
        made = SymbolicMechanism.from_equations(label, given["equations"], **common)
    for name, delay in given.get("delays", {}).items():
        made = made.delayed(name, delay)
    return made


def _hint(text: str, error: str) -> str:
    """What a line that is not TOML may lack."""
    place = re.search(r"at line (\d+)", error)
    line = text.splitlines()[int(place[1]) - 1] if place and int(place[1]) <= text.count("\n") + 1 else ""
    bare = re.search(r"(?:^|[{,])\s*([^\s\"'=#\[\]{},]*[^\x00-\x7f][^\s\"'=#\[\]{},]*)\s*=", line)
    if bare:
        return f'; a name with letters beyond a to z stands in quotes: "{bare[1]}" = …'
    if re.search(r"[=\[{,]\s*'", line):
        return "; a text with primes stands in double quotes: \"m*s'' = u\""
    return ""


def _pair(name: str, given: Any, key: str) -> Any:
    """A number or text, [it, unit], or {value = it, unit = unit}."""
    if not isinstance(given, dict):
        return given
    for k in given:
        if k not in (key, "unit"):
            raise unknown(f"key of '{name}'", k, (key, "unit"))
    if key not in given:
        raise MechidError(f"'{name}' has no {key}.")
    return given[key], given.get("unit", "")


def written_symbolic(new: SymbolicMechanism, text: str) -> str:
    """The text with the numbers of a mechanism in their places; all else as it was."""
    old = read_symbolic(text, new.name)
    names = [p.name for p in old.parameters]
    if names != [p.name for p in new.parameters]:
        raise MechidError(
            f"the parameters of '{new.name}' are not those of the file ({choices(names)}): it is another one."
        )
    lines = text.splitlines(keepends=True)
    for before, after in zip(old.parameters, new.parameters, strict=True):
        if before.value != after.value:
            table = "constants" if before.constant else "parameters"
            _replace(lines, table, after.name, after.value)
    out = "".join(lines)
    again = read_symbolic(out, new.name)
    if not np.array_equal(again.values[: len(names)], new.values[: len(names)]):
        raise MechidError("its numbers are written in a way that cannot be edited in place.")
    return out


def _replace(lines: list[str], table: str, name: str, value: float) -> None:
    entry = re.compile(rf"(\s*[\"']?{re.escape(name)}[\"']?\s*=\s*(?:\{{.*?value\s*=\s*|\[\s*)?){_NUMBER}")
    inside = False
    for i, line in enumerate(lines):
        header = re.match(r"\s*\[+\s*([^\]]+?)\s*\]+", line)
        if header:
            inside = header[1] == table
        elif inside and (found := entry.match(line)):
            lines[i] = f"{found[1]}{value!r}{line[found.end() :]}"
            return
    raise MechidError(f"the number of '{name}' is written in a way that cannot be edited in place.")
