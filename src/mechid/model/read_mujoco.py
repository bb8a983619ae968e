"""MuJoCo as a library: its names, its warnings, its words and its quaternions."""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Iterator
from typing import Any

import mujoco
import numpy as np

from mechid.model.geometry import Array

mj: Any = mujoco
"""the module; its names come from compiled parts, which a type checker does not see into"""


@contextlib.contextmanager
def quiet() -> Iterator[list[str]]:
    """MuJoCo's warnings about a file as a list, instead of on the terminal and in a log file."""
    told: list[str] = []
    before = mj.get_mju_user_warning()
    mj.set_mju_user_warning(told.append)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield told
    finally:
        mj.set_mju_user_warning(before)


def one_line(error: Exception) -> str:
    """What MuJoCo says, with the place that it names in brackets."""
    said = re.sub(r"^(XML )?(Error: )?(Error: )?", "", " ".join(str(error).split())).rstrip(".")
    said = said.replace("mjMINVAL", f"{mj.mjMINVAL:g}")
    said = re.sub(r" Element name '(.*?)', id \d+(, line \d+)?$", r" ('\1'\2)", said)
    return re.sub(r" Element '(.*?)'(, line \d+)?$", r" (<\1>\2)", said)


def rotation_of(quaternion: Array) -> Array:
    """Rotation matrix of a quaternion (w, x, y, z)."""
    w, x, y, z = np.asarray(quaternion, dtype=float) / np.linalg.norm(quaternion)
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )
