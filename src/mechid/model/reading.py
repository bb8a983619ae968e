"""`read_mechanism`: the mechanism that a URDF or an MJCF file describes, or a text in symbols.

    panda = mechid.read_mechanism("panda.xml")
    print(panda)

URDF is read here, MJCF through MuJoCo's own compiler, a symbolic mechanism (.toml) by `symbolic.files`. What a file
holds and the mechanism leaves out or changes stands in its `notes`; what would change the motion and cannot be
represented is refused.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from mechid.errors import MechidError, choices
from mechid.model.mechanism import Mechanism
from mechid.model.read_urdf import read_urdf
from mechid.model.xmltext import parse

ACTUATORS = ("torque", "none")
LARGEST = 64 * 2**20
"""bytes of a file that is still read"""


def read_mechanism(path: str | os.PathLike[str], *, actuators: str = "torque") -> Any:
    """The mechanism that a URDF or MJCF file describes; its root element, <robot> or <mujoco>, decides which.
    A file whose name ends in .toml holds a symbolic one.

    Names, inertias, joints, springs, dampers, friction, loops and couplings are the file's; hinge and slide
    coordinates are the file's too. actuators: "torque" gives every actuator on a joint (MJCF) or every joint that
    moves by itself (URDF) an input, "none" leaves them out.
    """
    try:
        where = Path(os.fspath(path))
    except TypeError:
        raise MechidError(f"A file's name is needed, not {path!r}.") from None
    return _read(_content(where), str(where), where, actuators)


def read_mechanism_text(text: str, *, where: str = "text", actuators: str = "torque") -> Mechanism:
    """The mechanism that a URDF or MJCF text describes. Files that it names are not looked for."""
    if not isinstance(text, str):
        raise MechidError(f"The text of a URDF or MJCF file is needed, not {text!r}.")
    return _read(text.encode("utf-8", "surrogatepass"), where, None, actuators)


def _content(path: Path) -> bytes:
    try:
        if path.is_dir():
            raise MechidError(f"'{path}' is a folder, not a URDF or MJCF file.")
        size = path.stat().st_size
        if size > LARGEST:
            raise MechidError(
                f"'{path}' has {size / 2**20:.0f} MB; a URDF or MJCF file has {LARGEST / 2**20:.0f} at most."
            )
        return path.read_bytes()
    except FileNotFoundError:
        raise MechidError(f"There is no file '{path}'.{_neighbours(path)}") from None
    except (OSError, ValueError) as error:
        raise MechidError(f"'{path}' cannot be opened: {getattr(error, 'strerror', error)}.") from None


def _neighbours(path: Path) -> str:
    """What else the folder holds, where it is there."""
    if not path.parent.is_dir():
        return f" There is no folder '{path.parent}' either."
    models = sorted(p.name for p in path.parent.iterdir() if p.suffix in (".urdf", ".xml", ".mjcf"))
    return f" Models in its folder: {choices(models)}." if models else ""


def _read(data: bytes, where: str, path: Path | None, actuators: str) -> Any:
    if actuators not in ACTUATORS:
        raise MechidError(f"The actuators are '{actuators}'; valid: {choices(ACTUATORS)}.")
    if not data.strip():
        raise MechidError(f"'{where}' is empty.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise MechidError(
            f"'{where}' is not UTF-8 text: byte {data[error.start]:#04x} at place {error.start}. "
            "Save it as UTF-8 first."
        ) from None
    if where.endswith(".toml"):
        # SymPy takes long to import
        from mechid.model.symbolic.files import read_symbolic

        try:
            return read_symbolic(text, Path(where).stem)
        except MechidError as error:
            raise MechidError(f"Cannot read '{where}': {_small(str(error))}") from None
    try:
        root = parse(text.encode(), where)
    except MechidError:
        raise
    except Exception as error:
        raise _unforeseen(where, error) from error
    try:
        # what overflows is infinite then, and refused where it goes
        with np.errstate(all="ignore"):
            if root.name == "robot":
                return read_urdf(root, actuators == "torque")
            if root.name == "mujoco":
                # MuJoCo takes long to import
                from mechid.model.read_mjcf import read_mjcf

                return read_mjcf(root, text, path, actuators == "torque")
    except MechidError as error:
        raise MechidError(f"Cannot read '{where}': {_small(str(error))}") from None
    except RecursionError:
        raise MechidError(f"Cannot read '{where}': its elements are nested too deeply.") from None
    except Exception as error:
        raise _unforeseen(where, error) from error
    raise MechidError(
        f"'{where}' is neither URDF nor MJCF: its root element is <{root.name}>; valid: <robot>, <mujoco>."
    )


def _small(sentence: str) -> str:
    """A sentence that goes on after a colon."""
    begins = sentence.startswith(("The ", "There ", "Each ", "These "))
    return sentence[0].lower() + sentence[1:] if begins else sentence


def _unforeseen(where: str, error: Exception) -> MechidError:
    told = " ".join(str(error).split()).rstrip(".")
    return MechidError(f"Cannot read '{where}': {type(error).__name__}, {told}.")
