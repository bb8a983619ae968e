"""`Beside`: separable estimations in a process of their own, so that a stream need not wait for them.

The worker runs `serve`: it reads pickled requests from its input until that is closed, and
writes pickled answers. Only this package talks to it, through a pipe that nobody else can open.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import struct
import subprocess
import sys
import threading
import time
from typing import IO, Any, NamedTuple

import numpy as np

from mechid.errors import MechidError
from mechid.estimate.separable import separable

Array = np.ndarray


class Request(NamedTuple):
    """A search that is wanted."""

    form: Any
    samples: Array
    bounds: dict[str, tuple[float, float]]
    noise: Array | None
    solver: str
    start: Array | None
    criterion: str
    beyond: float
    """robust standard deviations beyond which single samples are left out"""


class Answer(NamedTuple):
    """What a search found; `fault` is a sentence where it could not be done."""

    theta: Array
    omega: Array
    covariance: Array
    """of θ and ω"""
    noise: Array
    misfit: float
    evaluations: int
    seconds: float
    outliers: int = 0
    """rows that were left out"""
    fault: str = ""

    @property
    def std(self) -> Array:
        """Of θ and ω."""
        return np.sqrt(np.diag(self.covariance))


def searched(request: Request) -> Answer:
    """The answer to a request, found here and now."""
    clock = time.perf_counter()
    nothing = np.zeros(0)
    try:
        fit = separable(
            request.form,
            request.samples,
            request.bounds,
            noise=request.noise,
            solver=request.solver,
            start=request.start,
            criterion=request.criterion,
            beyond=request.beyond,
        )
    except MechidError as error:
        spent = time.perf_counter() - clock
        return Answer(nothing, nothing, nothing, nothing, np.inf, 0, spent, fault=str(error))
    spent = time.perf_counter() - clock
    return Answer(
        fit.theta, fit.omega, fit.covariance, fit.noise, fit.misfit, fit.evaluations, spent, fit.outliers
    )


class Beside:
    """A worker that takes one request at a time; it ends with this process at the latest."""

    def __init__(self) -> None:
        quiet = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from mechid.estimate.beside import serve; serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **quiet},
            # Ctrl-C is for the one who asked
            start_new_session=True,
        )
        self._answer: Answer | None = None
        self._waiting: threading.Thread | None = None

    def ask(self, request: Request) -> None:
        """Hands over a request."""
        assert self._waiting is None
        self._answer = None
        self._waiting = threading.Thread(target=self._exchange, args=(request,), daemon=True)
        self._waiting.start()

    def answer(self, *, wait: bool = False) -> Answer | None:
        """What was found, None while the search goes on."""
        if self._waiting is None:
            return None
        self._waiting.join(None if wait else 0.0)
        if self._waiting.is_alive():
            return None
        self._waiting = None
        return self._answer

    def close(self) -> None:
        """Ends the worker."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        try:
            self._process.wait(2.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _exchange(self, request: Request) -> None:
        sent, received = self._process.stdin, self._process.stdout
        assert sent is not None
        assert received is not None
        try:
            _write(sent, request)
            self._answer = _read(received)
        except (OSError, ValueError, EOFError, struct.error, pickle.PickleError) as error:
            nothing = np.zeros(0)
            told = f"The process that searches has ended ({type(error).__name__})."
            self._answer = Answer(nothing, nothing, nothing, nothing, np.inf, 0, 0.0, fault=told)


def _write(stream: IO[bytes], value: Any) -> None:
    data = pickle.dumps(value)
    stream.write(struct.pack("<Q", len(data)) + data)
    stream.flush()


def _read(stream: IO[bytes]) -> Any:
    head = stream.read(8)
    if len(head) < 8:
        raise EOFError
    return pickle.loads(stream.read(struct.unpack("<Q", head)[0]))


def serve() -> None:
    """What the worker does until its input ends."""
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    # what a library prints must not get between the answers
    sys.stdout = sys.stderr
    while True:
        try:
            request = _read(source)
        except EOFError:
            return
        _write(sink, searched(request))
