"""A trajectory as a table in a file: .csv for every program, .npz for NumPy. Files appear whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mechid.dynamics.trajectory import Trajectory
from mechid.errors import MechidError
from mechid.files import replacing

TABLES = (".csv", ".npz")
FIGURES = (".png", ".pdf", ".svg")
MARKS = ("q/", "v/", "u/", "frame/")
"""what columns of coordinates, rates, inputs and frames begin with"""


@dataclass(frozen=True)
class Rows:
    """What is written: every n-th state, with the input of the step that follows it (the last one's: before it)."""

    t: np.ndarray
    q: np.ndarray
    v: np.ndarray
    u: np.ndarray
    positions: np.ndarray
    """(rows, frames, 3) m, world axes"""
    coordinates: tuple[str, ...]
    inputs: tuple[str, ...]
    frames: tuple[str, ...]

    @property
    def columns(self) -> list[str]:
        return [
            "t",
            *(f"q/{c}" for c in self.coordinates),
            *(f"v/{c}" for c in self.coordinates),
            *(f"u/{u}" for u in self.inputs),
            *(f"frame/{f}.{axis}" for f in self.frames for axis in "xyz"),
        ]


def rows_of(run: Trajectory, frames: Sequence[str], every: int) -> Rows:
    """Every n-th state of a trajectory, its inputs and the places of frames."""
    nu = len(run.mechanism.input_names)
    inputs = run.inputs if run.steps else np.zeros((0, nu))
    acting = np.concatenate([inputs, inputs[-1:] if run.steps else np.zeros((1, nu))])
    kept = np.arange(0, len(run.t), every)
    places = [run.frame(f)[kept, :3, 3] for f in frames]
    positions = np.stack(places, 1) if places else np.zeros((len(kept), 0, 3))
    return Rows(
        run.t[kept],
        run.q[kept],
        run.v[kept],
        acting[kept],
        positions,
        run.mechanism.coordinate_names,
        run.mechanism.input_names,
        tuple(frames),
    )


def write_rows(rows: Rows, path: Path) -> None:
    with replacing(path) as temporary:
        if path.suffix == ".npz":
            np.savez_compressed(
                temporary,
                t=rows.t,
                q=rows.q,
                v=rows.v,
                u=rows.u,
                positions=rows.positions,
                coordinates=np.array(rows.coordinates, str),
                inputs=np.array(rows.inputs, str),
                frames=np.array(rows.frames, str),
            )
            return
        numbers = [rows.t[:, None], rows.q, rows.v, rows.u, rows.positions.reshape(len(rows.t), -1)]
        with open(temporary, "w", encoding="utf-8", newline="\n") as file:
            file.write(",".join(rows.columns) + "\n")
            for row in np.concatenate(numbers, 1).tolist():
                file.write(",".join(map(repr, row)) + "\n")


def check_target(option: str, path: Path, suffixes: Sequence[str]) -> None:
    """Refuse a file that could not be written, before anything is computed."""
    if path.suffix not in suffixes:
        raise MechidError(f"{option} '{path}' ends in '{path.suffix}'; valid: {', '.join(suffixes)}.")
    if not path.parent.is_dir():
        raise MechidError(f"{option} '{path}': there is no folder '{path.parent}'.")
    if path.is_dir():
        raise MechidError(f"{option} '{path}' is a folder, not a file.")
    if not os.access(path.parent, os.W_OK):
        raise MechidError(f"{option} '{path}': the folder '{path.parent}' cannot be written to.")
