"""Threads of the linear algebra library, off while estimators run: matrices here are small."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from threadpoolctl import ThreadpoolController


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
