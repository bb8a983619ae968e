"""Where reference data lies: the folder named by MECHID_REFERENCE, by default ../shared beside the project."""

from __future__ import annotations

import os
from pathlib import Path

from mechid.errors import MechidError


def reference_folder() -> Path:
    """The folder of reference data, which may be absent."""
    named = os.environ.get("MECHID_REFERENCE")
    return Path(named) if named else Path(__file__).resolve().parents[3] / "shared"


def reference_file(*parts: str) -> Path:
    """A reference file that must be there."""
    path = reference_folder().joinpath(*parts)
    if not path.exists():
        raise MechidError(
            f"The reference file '{'/'.join(parts)}' is not in '{reference_folder()}': "
            "set MECHID_REFERENCE to the folder that holds it."
        )
    return path
