"""The one place where the compiler is spoken to: float64 is checked and XLA's options are set here.

What costs time in small mechanisms is not arithmetic but everything around it. XLA's CPU thread pool and its
matrix library cost more than matrices of this size do, so both are switched off for these functions. And XLA runs
a loop kernel by kernel, unless the loop is small enough to be compiled as one: LOOP_BYTES raises that limit, so
that a whole simulation is one kernel as long as nothing in it calls a library, sorts or scatters.

Compiler options are refused on nested `jit`, `jit(vmap)` and under `grad`: use this wrapper on outermost functions
only.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
from filelock import FileLock

from mechid.errors import MechidError

CPU_OPTIONS = {
    "xla_cpu_multi_thread_eigen": False,
    "xla_cpu_experimental_ynn_fusion_type": "",
    # the newer emitters set up a compiler of their own for every fused kernel: a third more time to compile
    "xla_cpu_use_fusion_emitters": False,
}
ONCE = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
"""for programs that run once or twice: compiled quickly rather than well"""
CACHE_BYTES = 2**31
LOOP_BYTES = 2**24
"""loops that touch fewer bytes in a pass are compiled as one kernel"""


def enable_float64() -> None:
    """Switch JAX to float64, which every computation here needs. Call it once, before anything else.

    It also raises XLA's limit for loops that are compiled as one kernel, through XLA_FLAGS: that acts as long as
    JAX has not computed yet in this process, and where XLA_FLAGS does not say otherwise. Without it everything
    works, at half the speed.
    """
    jax.config.update("jax_enable_x64", True)
    flags = os.environ.get("XLA_FLAGS", "")
    if "xla_backend_extra_options" not in flags:
        limit = f"--xla_backend_extra_options=xla_cpu_small_while_loop_byte_threshold={LOOP_BYTES}"
        os.environ["XLA_FLAGS"] = f"{flags} {limit}".strip()


def enable_compilation_cache(folder: Path) -> None:
    """Keep compiled programs in a folder: a later process loads them instead of compiling again.

    The folder is limited in size, the programs longest unused go first; with a limit JAX also locks the folder, so
    that several processes can share it. It stamps a program after writing it: one without its stamp was cut off by
    the end of its process, and would be found broken for ever.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / ".lockfile"):
        for program in folder.glob("*-cache"):
            if not program.with_name(program.name.removesuffix("-cache") + "-atime").exists():
                program.unlink()
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_compilation_cache_max_size", CACHE_BYTES)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


def require_float64() -> None:
    if not jax.config.jax_enable_x64:  # pyright: ignore[reportAttributeAccessIssue]
        raise MechidError(
            "JAX is in float32, mechid needs float64: call mechid.enable_float64() "
            "(or set JAX_ENABLE_X64=1) before the first computation."
        )


def jit(function: Callable[..., Any], *, once: bool = False, **options: Any) -> Callable[..., Any]:
    """`jax.jit` for an outermost function, in float64, with the options above on a CPU.

    once: the program runs once or twice, so it is compiled quickly rather than well.
    """
    compiled: list[Any] = []

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        require_float64()
        if not compiled:
            compiled.append(jax.jit(function, compiler_options=_options(once), **options))
        return compiled[0](*args, **kwargs)

    call.compilations = lambda: compiled[0]._cache_size() if compiled else 0  # type: ignore[attr-defined]
    return call


@functools.cache
def _options(once: bool) -> dict[str, Any] | None:
    """The options that this version of XLA knows, on a CPU."""
    if jax.default_backend() != "cpu":
        return None

    def known(options: dict[str, Any]) -> bool:
        try:
            jax.jit(lambda: 0, compiler_options=options).lower().compile()
        except Exception as error:
            if "No such compile option" in str(error):
                return False
            raise
        return True

    wanted = CPU_OPTIONS | (ONCE if once else {})
    return wanted if known(wanted) else {k: v for k, v in wanted.items() if known({k: v})}


def register(kind: type, data: Sequence[str], meta: Sequence[str] = ()) -> None:
    """A dataclass as a tree whose leaves are some of its fields; others are known while compiling.

    `jax.tree_util.register_dataclass` holds trees of different classes for equal where their fields are, so that a
    program compiled for one sensor could be called for another; here the class itself is part of what is compared.
    """

    def flatten(x: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return tuple(getattr(x, name) for name in data), (kind, *(getattr(x, name) for name in meta))

    def unflatten(known: tuple[Any, ...], leaves: Any) -> Any:
        new = object.__new__(kind)
        for name, value in zip((*data, *meta), (*leaves, *known[1:]), strict=True):
            object.__setattr__(new, name, value)
        return new

    jax.tree_util.register_pytree_node(kind, flatten, unflatten)
