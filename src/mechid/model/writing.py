"""`write_mechanism`: a mechanism's numbers put back into the URDF or MJCF text that it was read from.

    arm = mechid.read_mechanism("arm.urdf")
    ...
    for change in mechid.write_mechanism(parameters.apply(theta), "arm.urdf", "arm_identified.urdf"):
        print(change)  # body 'forearm': mass 1.2 → 1.234 kg

The source is read again and compared with the mechanism; only numbers that differ are edited, every other byte
stays. The result is read once more and must give the mechanism before it takes the target's place.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mechid.errors import MechidError, choices, unknown
from mechid.files import replacing
from mechid.model.addresses import TABLES
from mechid.model.mechanism import Mechanism
from mechid.model.parts import Coupling, Motor
from mechid.model.reading import read_mechanism, read_mechanism_text
from mechid.model.write_mjcf import Mjcf
from mechid.model.write_numbers import (
    ABILITIES,
    BACK,
    SAME,
    Change,
    Difference,
    Job,
    Table,
    changes_of,
    differences,
    table,
)
from mechid.model.write_urdf import Urdf
from mechid.model.xmltext import Pen, edited, parse


def write_mechanism(
    mechanism: Mechanism,
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    ignore: Sequence[str] = (),
) -> list[Change]:
    """Write the numbers of a mechanism into the text of `source` and save it as `target`; what was changed.

    The target may be the source. Relative names of meshes and includes are kept as they are, so it should lie in
    the same folder. A number that has no place in such a file (an armature in a URDF) is refused; `ignore` names
    the quantities that may be left out then.
    """
    if Path(source).suffix == ".toml":
        return _written_symbols(mechanism, Path(source), target)
    inputs = _actuators(mechanism)
    old = read_mechanism(source, actuators=inputs)
    origin, goal = Path(source), _goal(target)
    data = origin.read_bytes()
    draft = _Draft(data, str(source), origin, old, mechanism, ignore)
    if draft.result == data and goal == origin.resolve():
        return draft.changes
    beside = goal.with_name(f".{goal.stem}-{uuid.uuid4().hex[:8]}{goal.suffix}")
    try:
        with beside.open("xb") as file:
            file.write(draft.result)
            file.flush()
            os.fsync(file.fileno())
        draft.verify(_again(target, lambda: read_mechanism(beside, actuators=inputs)))
        if goal.exists():
            shutil.copymode(goal, beside)
        os.replace(beside, goal)
    except OSError as error:
        raise MechidError(f"'{target}' cannot be written: {error.strerror or error}.") from None
    finally:
        beside.unlink(missing_ok=True)
    return draft.changes


def _written_symbols(mechanism: Any, source: Path, target: str | os.PathLike[str]) -> list[Change]:
    """The same for a symbolic mechanism and its text."""
    # SymPy takes long to import
    from mechid.model.symbolic.files import written_symbolic
    from mechid.model.symbolic.mechanism import SymbolicMechanism

    old: Any = read_mechanism(source)
    if not isinstance(mechanism, SymbolicMechanism):
        raise MechidError(f"'{source}' describes a symbolic mechanism, and '{mechanism.name}' is none.")
    try:
        text = written_symbolic(mechanism, source.read_text("utf-8-sig"))
    except MechidError as error:
        raise MechidError(f"Nothing was written into the text of '{source}': {error}") from None
    with replacing(_goal(target)) as beside:
        Path(beside).write_text(text, "utf-8", newline="")
    pairs = zip(old.parameters, mechanism.parameters, strict=True)
    return [Change("parameter", a.name, a.value, b.value, a.unit) for a, b in pairs if a.value != b.value]


def rewritten(
    text: str, mechanism: Mechanism, *, where: str = "text", ignore: Sequence[str] = ()
) -> tuple[str, list[Change]]:
    """A URDF or MJCF text with the numbers of a mechanism, and what was changed; nothing is read or saved."""
    inputs = _actuators(mechanism)
    old = read_mechanism_text(text, where=where, actuators=inputs)
    draft = _Draft(text.encode(), where, None, old, mechanism, ignore)
    result = draft.result.decode()
    draft.verify(_again(where, lambda: read_mechanism_text(result, where=where, actuators=inputs)))
    return result, draft.changes


def _actuators(mechanism: Mechanism) -> str:
    if not isinstance(mechanism, Mechanism):
        raise MechidError(
            f"A mechanism is written, not {type(mechanism).__name__}: give parameters.apply(theta)."
        )
    return "torque" if any(isinstance(e, Motor) for e in mechanism.elements) else "none"


def _again(where: str | os.PathLike[str], read: Callable[[], Mechanism]) -> Mechanism:
    try:
        return read()
    except MechidError as error:
        told = str(error).partition("': ")[2] or error
        raise MechidError(f"Nothing was written, since '{where}' could not be read again: {told}") from None


def _goal(target: str | os.PathLike[str]) -> Path:
    """The file to write, behind links, if it can be written."""
    try:
        goal = Path(os.path.realpath(target))
    except TypeError:
        raise MechidError(f"A file's name is needed to write to, not {target!r}.") from None
    if not goal.parent.is_dir():
        raise MechidError(f"There is no folder '{goal.parent}' to write '{goal.name}' into.")
    if goal.is_dir():
        raise MechidError(f"'{goal}' is a folder, not a file to write.")
    if goal.exists() and not goal.stat().st_mode & 0o222:
        raise MechidError(f"'{goal}' is read-only.")
    if not os.access(goal.parent, os.W_OK):
        raise MechidError(f"The folder '{goal.parent}' may not be written into.")
    return goal


# From differences to an edited text


class _Draft:
    """The edited text of a file, with what was changed in it."""

    def __init__(
        self,
        data: bytes,
        where: str,
        path: Path | None,
        old: Mechanism,
        new: Mechanism,
        ignore: Sequence[str],
    ) -> None:
        # what reading names otherwise than its coordinate belongs to an actuator
        self.actuators = {e.name for e in old.elements if getattr(e, "coordinate", e.name) != e.name}
        self.where, self.new, self.wanted = where, new, table(new, self.actuators)
        _check_belongs(old, new, where)
        _check_finite(self.wanted)
        self.root, pen = parse(data, where), Pen(data)
        kind = Urdf if self.root.name == "robot" else Mjcf
        job = Job(self.root, pen, old, new, self.wanted, where, path)
        self.places, self.allowed = kind(job), _known(ignore)
        found = self._differences(table(old, self.actuators), SAME)
        homeless = [d for d in found if not self.places.place(d)]
        refused = [d for d in homeless if d.quantity not in self.allowed]
        if refused:
            raise MechidError(_refusal(self.places.what, refused))
        self.left_out = {d.key for d in homeless}
        self.changes = [c for d in found if d.key not in self.left_out for c in changes_of(new, d)]
        self.result = edited(data, pen.edits(self.places.behind))

    def _differences(self, there: Table, tolerance: float) -> list[Difference]:
        found = differences(there, self.wanted, tolerance)
        return [d for d in found if d.quantity not in self.places.skipped]

    def verify(self, again: Mechanism) -> None:
        """Refuse a result that does not give the mechanism's numbers back."""
        wrong = [
            d for d in self._differences(table(again, self.actuators), BACK) if d.key not in self.left_out
        ]
        moved = [d for d in wrong if d.kind == "frame" and d.name in self.places.worked_out]
        wrong = [d for d in wrong if d not in moved]
        if wrong:
            told = [str(c) for d in wrong if d.before is not None for c in changes_of(self.new, d)]
            raise MechidError(
                f"The edited text of '{self.where}' would not give the mechanism back ({choices(told, 3)}); "
                f"nothing was written. {self._suspect()}"
            )
        if moved and "anchor" not in self.allowed:
            raise MechidError(
                f"MuJoCo works out the second end of a <connect> from the pose in '{self.where}', and "
                f"{choices([d.name for d in moved], 3)} would not stand where the mechanism has it: give both ends "
                'as sites (site1, site2), or let MuJoCo place it with ignore=("anchor",).'
            )

    def _suspect(self) -> str:
        """What may have kept the numbers from coming back."""
        changing = ("balanceinertia", "boundmass", "boundinertia", "settotalmass")
        for element in self.root.walk():
            for name in changing if element.name == "compiler" else ():
                if element.get(name) not in (None, "false", "0"):
                    return f'<compiler {name}="{element.get(name)}"> changes inertias while they are read.'
        return "Something in the file overrides them, or mechid is wrong: please report it with the file."


def _check_belongs(old: Mechanism, new: Mechanism, where: str) -> None:
    """Refuse a mechanism that does not have the file's bodies and joints."""
    own, given = ([b.name for b in m.bodies] for m in (old, new))
    extra, missing = [n for n in given if n not in own], [n for n in own if n not in given]
    if extra or missing:
        told = [f"it has the bodies {choices(extra)}, which the file has not"] if extra else []
        told += [f"it lacks the file's bodies {choices(missing)}"] if missing else []
        raise MechidError(f"The mechanism is not the one of '{where}': {' and '.join(told)}.")

    def build(m: Mechanism) -> dict[str, Any]:
        return {
            j.name: (j.kind, j.parent, j.child, [(c.name, c.axis) for c in j.coordinates]) for j in m.joints
        }

    mine, theirs = build(new), build(old)
    wrong = [name for name in {**theirs, **mine} if mine.get(name) != theirs.get(name)]
    if wrong:
        raise MechidError(
            f"The mechanism is not the one of '{where}': the kind, the ends or the axes of these joints differ "
            f"from the file's: {choices(wrong)}."
        )


def _check_finite(wanted: Table) -> None:
    for (kind, name), values in wanted.items():
        for quantity, value in values.items():
            if kind != "coordinate" and not np.all(np.isfinite(value)):
                raise MechidError(
                    f"The {quantity} of {kind} '{name}' is {value}: it must be finite to be written."
                )


def _known(ignore: Sequence[str]) -> set[str]:
    """The words of `ignore`, which must be names of quantities or of parts."""
    if isinstance(ignore, str):
        raise MechidError(f"ignore is a tuple of names, ({ignore!r},), not the text {ignore!r}.")
    valid = [q for part in TABLES.values() for q in part.quantities]
    valid += ["gravity", "mass", "com", "inertia", "origin", "rotation", *Coupling.quantities, *ABILITIES]
    valid += ["frame", "coupling", "combination", "loop", "element", "anchor", "delay"]
    valid += ["line_spring", "piecewise_spring", "gear_friction", "load_friction", "periodic_friction"]
    for word in ignore:
        if word not in valid:
            raise unknown("quantity (for ignore)", word, dict.fromkeys(valid))
    return set(ignore)


def _refusal(what: str, homeless: list[Difference]) -> str:
    told = []
    for word in dict.fromkeys(d.quantity for d in homeless):
        own = [d for d in homeless if d.quantity == word]
        of = "" if own[0].before is None else "of "
        names = choices(dict.fromkeys(d.name for d in own), 4)
        told.append(word if names == word else f"{word} {of}{names}")
    words = repr(tuple(dict.fromkeys(d.quantity for d in homeless))).replace("'", '"')
    return f"{what} has no place for {'; '.join(told)}: ignore={words} leaves such numbers out."
