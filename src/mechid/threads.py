"""Threads: one core for each of several pieces of work, none for the small matrices of linear algebra."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any

import jax
from threadpoolctl import ThreadpoolController

CORES = os.cpu_count() or 1


def on_all_cores(function: Callable[[Any], Any], pieces: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    """Map a function over pieces on all cores, yielding (piece, result) in order.

    Every core works ahead by one piece, so memory is bounded.
    """
    waiting: deque[tuple[Any, Future[Any]]] = deque()
    for piece in pieces:
        waiting.append((piece, _pool().submit(lambda p: jax.block_until_ready(function(p)), piece)))
        if len(waiting) > CORES:
            done, result = waiting.popleft()
            yield done, result.result()
    for done, result in waiting:
        yield done, result.result()


@cache
def _pool() -> ThreadPoolExecutor:
    """Threads for pieces; what runs on them asks for no more of them."""
    return ThreadPoolExecutor(CORES)


@contextmanager
def small_matrices() -> Iterator[None]:
    """Factors and products on one thread: more would cost more than they save, and take cores from other work.

    Some libraries keep this number for each thread, others for the process: it is set where work begins, and set
    back to what it was at first, so that fits side by side leave things as they were.
    """
    if getattr(_HERE, "small", False):
        yield
        return
    controller, before = _controller()
    _HERE.small = True
    controller.limit(limits=1, user_api="blas")
    try:
        yield
    finally:
        _HERE.small = False
        controller.limit(limits=before)


_HERE = threading.local()


@cache
def _controller() -> tuple[ThreadpoolController, dict[str, int]]:
    """The libraries that are loaded, and how many threads they had."""
    controller = ThreadpoolController()
    return controller, {lib["prefix"]: lib["num_threads"] for lib in controller.info()}
