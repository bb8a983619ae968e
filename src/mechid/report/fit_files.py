"""A fit as files in a folder of its own, which appears whole or not at all and never in the place of another.

save_fit(fit, Path("out/arm"))      # out/arm, or out/arm-2 where that is taken: fit.json, parameters.csv
"""

from __future__ import annotations

import contextlib
import csv
import errno
import io
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mechid.errors import MechidError
from mechid.estimate.fit import Fit

COLUMNS = ("name", "value", "std", "unit", "start", "lower", "upper", "flags")
TAKEN = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.EACCES, errno.EISDIR)
"""what renaming a folder says where the target is another's; Windows says that access is denied"""
MOST = 10_000
"""folders of one name"""


def save_fit(fit: Fit, folder: Path) -> Path:
    """Write fit.json and parameters.csv into a new folder, which is returned."""
    return new_folder(folder, lambda place: write_fit(fit, place))


def write_fit(fit: Fit, folder: Path, about: Mapping[str, Any] | None = None) -> None:
    """fit.json, with what is told `about` the run, and parameters.csv."""
    from mechid.report.fit import result_dict

    (folder / "fit.json").write_text(as_json({**(about or {}), **result_dict(fit)}, indent=1) + "\n", "utf-8")
    (folder / "parameters.csv").write_text(_table(fit), "utf-8", newline="")


def as_json(data: Any, indent: int | None = None) -> str:
    """JSON that every program reads: null for what is infinite or not a number."""
    return json.dumps(_plain(data), indent=indent, ensure_ascii=False, allow_nan=False)


def _plain(data: Any) -> Any:
    if isinstance(data, Mapping):
        return {str(key): _plain(value) for key, value in data.items()}
    if isinstance(data, list | tuple | np.ndarray):
        return [_plain(value) for value in data]
    if isinstance(data, float | np.floating):
        return float(data) if np.isfinite(data) else None
    if isinstance(data, np.generic):
        return data.item()
    return str(data) if isinstance(data, Path) else data


def _table(fit: Fit) -> str:
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(COLUMNS)
    for name, p in fit.parameters.items():
        numbers = [repr(float(x)) for x in (p.start, p.lower, p.upper)]
        flags = "; ".join(fit.flags[name])
        rows.writerow([name, repr(float(p.value)), repr(float(p.std)), p.unit, *numbers, flags])
    return text.getvalue()


# Folders


def new_folder(folder: Path, write: Callable[[Path], None]) -> Path:
    """Let `write` fill a temporary folder and give it the wanted name, or the next that is free: out-2, out-3, …

    What stops `write` leaves nothing behind. An empty folder of that name counts as free.
    """
    check_folder(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        # beside the target, so that renaming is one step of the file system
        place = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise _unwritable(folder, error) from None
    try:
        write(place)
        place.chmod(0o777 & ~_umask())
        return _named(place, folder)
    except OSError as error:
        raise _unwritable(folder, error) from None
    finally:
        with contextlib.suppress(OSError):
            shutil.rmtree(place)


def check_folder(folder: Path) -> None:
    """Refuse a folder that could not be made, before anything is computed."""
    if folder.name in ("", ".."):
        raise MechidError(f"Results need a folder of their own, not '{folder}'.")
    above = folder.absolute().parent
    while not above.exists() and above != above.parent:
        above = above.parent
    if not above.is_dir():
        raise MechidError(f"The folder '{folder}' cannot be made: '{above}' is a file.")
    if not os.access(above, os.W_OK):
        raise MechidError(f"The folder '{folder}' cannot be made: '{above}' may not be written into.")


def _named(place: Path, folder: Path) -> Path:
    """Rename to the first name that nobody has; a folder that holds anything is never replaced."""
    for number in range(1, MOST):
        target = folder if number == 1 else folder.with_name(f"{folder.name}-{number}")
        try:
            os.rename(place, target)
            return target
        except OSError as error:
            if error.errno not in TAKEN or not target.exists():
                raise
    raise MechidError(f"There are {MOST} folders '{folder}-…' already: take another name.")


def _unwritable(folder: Path, error: OSError) -> MechidError:
    return MechidError(f"'{folder}' cannot be written: {error.strerror or error}.")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
