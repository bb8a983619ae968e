"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from mechid.errors import MechidError


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[str]:
    """A temporary file beside `path` that takes its place when all went well and vanishes otherwise."""
    try:
        handle, temporary = tempfile.mkstemp(suffix=path.suffix, prefix=f".{path.stem}-", dir=path.parent)
        os.close(handle)
        try:
            yield temporary
            os.chmod(temporary, 0o666 & ~_umask())
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
            raise
    except OSError as error:
        raise MechidError(f"'{path}' cannot be written: {error.strerror or error}.") from None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
