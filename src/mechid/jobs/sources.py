"""Where a stream comes from: a file, the standard input, a TCP port or a Unix socket of this machine; as lines.

with opened("tcp:9000") as source:        # who serves there is read; else one sender is waited for
    for line in source.lines(): ...       # bytes without their end; None where nothing is there at present
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import stat
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from mechid.errors import MechidError
from mechid.jobs.lines import LONGEST

CHUNK = 1 << 16
IDLE = 0.25
"""s without anything new after which None is told"""


@dataclass
class Source:
    """An open stream."""

    name: str
    handle: int
    """file descriptor"""
    seekable: bool
    """whether it can be gone on with where one left off"""
    used: int = 0
    """bytes of the lines that were given out"""

    def skip(self, count: int) -> None:
        """Goes to a byte of a file."""
        if os.fstat(self.handle).st_size < count:
            raise MechidError(f"'{self.name}' has become shorter than what was read of it: start anew.")
        os.lseek(self.handle, count, os.SEEK_SET)
        self.used = count

    def lines(self) -> Iterator[bytes | None]:
        """Lines without their ends; None when nothing more is there at present. The last may lack its end."""
        rest, dropping = b"", False
        while True:
            if not self.seekable and not select.select([self.handle], [], [], IDLE)[0]:
                yield None
                continue
            try:
                data = os.read(self.handle, CHUNK)
            except ConnectionError:
                data = b""
            if not data:
                break
            parts = (rest + data).split(b"\n")
            rest = parts.pop()
            for part in parts:
                self.used += len(part) + 1
                yield b"\xff" if dropping else part.rstrip(b"\r")
                dropping = False
            if len(rest) > LONGEST:
                # a line without end is not kept
                self.used += len(rest)
                rest, dropping = b"", True
            if not self.seekable and not select.select([self.handle], [], [], 0)[0]:
                yield None
        if rest or dropping:
            self.used += len(rest)
            yield b"\xff" if dropping else rest.rstrip(b"\r")


@contextlib.contextmanager
def opened(where: str, tell: Callable[[str], None]) -> Iterator[Source]:
    """The stream that a text names; what is waited for is told."""
    with contextlib.ExitStack() as stack:
        if where == "-":
            handle = sys.stdin.fileno()
            if os.isatty(handle):
                tell("Reading samples from the keyboard; Ctrl-D ends them.")
            yield Source("standard input", handle, stat.S_ISREG(os.fstat(handle).st_mode))
        elif where.startswith(("tcp:", "unix:")):
            held = stack.enter_context(_connected(where, tell))
            yield Source(where, held.fileno(), False)
        else:
            yield _file(Path(where), stack)


def refuse_overwriting(study: Path, source: str, out: Path | None, kept: Path | None) -> None:
    """Refuse to write where the study stands, where samples come from, or output and state into one file."""
    read = {"the study file": study}
    if source == "-":
        with contextlib.suppress(OSError):
            read["the samples"] = Path(f"/dev/fd/{sys.stdin.fileno()}")
    elif not source.startswith("tcp:"):
        read["the samples"] = Path(source.removeprefix("unix:"))
    written = {option: path for option, path in (("--out", out), ("--state", kept)) if path is not None}
    for option, path in written.items():
        aside = path.with_name(f"{path.stem}-before{path.suffix}")
        for what, other in read.items():
            if _same(path, other):
                raise MechidError(f"{option} '{path}' is the file of {what}: choose another one to write to.")
            if _same(aside, other):
                raise MechidError(
                    f"{option} '{path}' would keep an earlier run as '{aside}', which is the file of {what}: "
                    "choose another one to write to."
                )
    if len(written) == 2 and _same(*written.values()):
        raise MechidError(f"--out and --state are both '{out}': choose two files.")


def _same(one: Path, other: Path) -> bool:
    """Whether two paths are one regular file, or will be."""
    try:
        found = one.stat(), other.stat()
    except OSError:
        return one.resolve() == other.resolve()
    return os.path.samestat(*found) and not stat.S_ISCHR(found[0].st_mode)


def _file(path: Path, stack: contextlib.ExitStack) -> Source:
    try:
        if path.is_dir():
            raise MechidError(f"'{path}' is a folder; samples are a file, -, tcp:PORT or unix:PATH.")
        handle = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        raise MechidError(f"There is no file '{path}'.") from None
    except OSError as error:
        raise MechidError(f"'{path}' cannot be read: {error.strerror or error}.") from None
    stack.callback(os.close, handle)
    return Source(str(path), handle, stat.S_ISREG(os.fstat(handle).st_mode))


@contextlib.contextmanager
def _connected(where: str, tell: Callable[[str], None]) -> Iterator[socket.socket]:
    """A socket to who serves there, or to the first who sends."""
    family, address = _address(where)
    client = socket.socket(family, socket.SOCK_STREAM)
    try:
        client.connect(address)
    except OSError:
        client.close()
    else:
        with client:
            tell(f"Reading samples from who serves at {where}.")
            yield client
        return
    with socket.socket(family, socket.SOCK_STREAM) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            if isinstance(address, str) and stat.S_ISSOCK(os.stat(address).st_mode):
                # left behind by a process that has ended: nobody answers
                os.unlink(address)
        except FileNotFoundError:
            pass
        try:
            server.bind(address)
            server.listen(1)
        except OSError as error:
            raise MechidError(f"Nothing can be received at {where}: {error.strerror or error}.") from None
        tell(f"Waiting for samples at {where}.")
        try:
            sender, _ = server.accept()
            with sender:
                yield sender
        finally:
            if isinstance(address, str):
                with contextlib.suppress(OSError):
                    os.unlink(address)


def _address(where: str) -> tuple[socket.AddressFamily, tuple[str, int] | str]:
    kind, _, place = where.partition(":")
    if kind == "unix":
        if not place or len(place.encode()) > 100:
            raise MechidError(f"unix:PATH takes the path of a socket, of at most 100 bytes, not '{place}'.")
        return socket.AF_UNIX, place
    host, _, port = place.rpartition(":")
    if host not in ("", "localhost", "127.0.0.1"):
        raise MechidError(f"Samples are taken from this machine only: tcp:PORT, not tcp:{place}.")
    if not port.isdigit() or not 0 < int(port) < 65536:
        raise MechidError(f"tcp:PORT takes a number from 1 to 65535, not '{place}'.")
    return socket.AF_INET, ("127.0.0.1", int(port))
