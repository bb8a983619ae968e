"""The one place where the compiler is spoken to: float64 is checked and XLA's options are set here.

XLA's CPU thread pool costs more than the small matrices of a mechanism do, so it is switched off for
these functions. Compiler options are refused on nested `jit`, `jit(vmap)` and under `grad`: use this
wrapper on outermost functions only.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from mechid.errors import MechidError

CPU_OPTIONS = {"xla_cpu_multi_thread_eigen": False}


def enable_float64() -> None:
    """Switch JAX to float64, which every computation here needs. Call it once, before anything else."""
    jax.config.update("jax_enable_x64", True)


def enable_compilation_cache(folder: Path) -> None:
    """Keep compiled programs in a folder: a later process loads them instead of compiling again."""
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


def require_float64() -> None:
    if not jax.config.jax_enable_x64:  # pyright: ignore[reportAttributeAccessIssue]
        raise MechidError(
            "JAX is in float32, mechid needs float64: call mechid.enable_float64() "
            "(or set JAX_ENABLE_X64=1) before the first computation."
        )


def jit(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """`jax.jit` for an outermost function, in float64, with the thread pool off on a CPU."""
    compiled: list[Any] = []

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        require_float64()
        if not compiled:
            cpu = jax.default_backend() == "cpu"
            compiled.append(jax.jit(function, compiler_options=CPU_OPTIONS if cpu else None, **options))
        return compiled[0](*args, **kwargs)

    call.compilations = lambda: compiled[0]._cache_size() if compiled else 0  # type: ignore[attr-defined]
    return call
