"""Tables in files of arrays: NumPy's .npz and MATLAB's .mat. Structs are flattened, with dots in the names."""

from __future__ import annotations

import io
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mechid.data.table import Table, content
from mechid.data.units import split_unit
from mechid.errors import MechidError


def read_npz(path: Path) -> Table:
    """The arrays of a file of NumPy's; a name may end in a unit, as in `q [deg]`."""
    arrays: dict[str, Any] = {}
    left_out: dict[str, str] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(content(path))) as archive:
            for member in archive.namelist():
                name = member.removesuffix(".npy")
                with archive.open(member) as file:
                    try:
                        arrays[name] = np.lib.format.read_array(file, allow_pickle=False)
                    except (ValueError, EOFError):
                        left_out[name] = "is no array of numbers"
    except (zipfile.BadZipFile, zipfile.LargeZipFile, OSError, EOFError, NotImplementedError, RuntimeError):
        raise MechidError(f"'{path}' is not a whole .npz file as np.savez writes it.") from None
    except Exception as error:
        raise _broken(path, ".npz", error) from None
    return _table(path, arrays, left_out)


def read_mat(path: Path) -> Table:
    """The variables of a MATLAB file up to v7; fields of structs are named `struct.field`."""
    from scipy.io import loadmat

    data = content(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            variables = loadmat(io.BytesIO(data), simplify_cells=True)
    except NotImplementedError:
        raise MechidError(
            f"'{path}' is a MATLAB v7.3 (HDF5) file; save it with save('{path.name}', …, '-v7') to read it here."
        ) from None
    except Exception as error:
        raise _broken(path, ".mat", error) from None
    return _table(path, dict(_flat({k: v for k, v in variables.items() if not k.startswith("__")})), {})


def _broken(path: Path, kind: str, error: Exception) -> MechidError:
    """A damaged file makes its reader fail in ways that nothing lists."""
    return MechidError(f"'{path}' is not a whole {kind} file: {type(error).__name__}, {error}.")


def _flat(fields: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in fields.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _table(path: Path, arrays: Mapping[str, Any], left_out: dict[str, str]) -> Table:
    columns: dict[str, np.ndarray] = {}
    units: dict[str, str] = {}
    notes: list[str] = []
    for header, value in arrays.items():
        name, unit = split_unit(header)
        if name in columns:
            raise MechidError(f"'{path}' has two arrays '{name}'.")
        array = np.asarray(value) if not isinstance(value, list) else np.asarray(None)
        if array.dtype.kind not in "bifu":
            left_out[name] = "is no array of numbers"
        elif array.ndim not in (1, 2) or not array.size:
            left_out[name] = f"has shape {array.shape}"
        else:
            columns[name] = array.astype(float)
            infinite = np.isinf(columns[name])
            if infinite.any():
                columns[name][infinite] = np.nan
                notes.append(f"Array '{name}': {infinite.sum()} infinite values taken as missing.")
            if unit is not None:
                units[name] = unit
    return Table(path, columns, units, left_out, tuple(notes), grouped=True)
