"""The one place where the compiler is spoken to: float64 and XLA's options are set here.

What costs time in small mechanisms is not arithmetic but everything around it. XLA's CPU thread pool and its
matrix library cost more than matrices of this size do, so both are switched off. And XLA runs a loop kernel by
kernel, unless the loop is small enough to be compiled as one: LOOP_BYTES raises that limit, so that a whole
simulation is one kernel as long as nothing in it calls a library, sorts or scatters.

The options of an outermost `jit` do not reach functions that a user differentiates or compiles with plain JAX:
there the same programs take 3 to 18 times as long. So `setup` sets them for the whole process, through XLA_FLAGS,
which XLA reads when its backend starts.
"""

from __future__ import annotations

import functools
import mmap
import os
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jaxlib.version
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
ENDLESS = ("0.10.2",)
"""versions of jaxlib whose LLVM schedules some kernels without end, taking all memory, unless NO_LIMIT is set"""
NO_LIMIT = 2**30
"""instructions of a block whose order LLVM tracks whole; blocks above its limit are what it can fail at"""
TRIED = ("0.10.",)
"""versions of jaxlib that know these options; XLA ends a process whose flags it does not know"""


def setup() -> None:
    """Switch JAX to float64 and set the compiler options that make mechid fast, for the whole process.

    Call it once, before JAX computes anything; without it the first function of mechid that computes does so.
    Options that XLA_FLAGS holds already are left alone. Large matrix products get slower where there are many
    cores: they run on one (`docs/core.md`).

    Where JAX has computed already, its options can no longer be set: a warning says what to export.

    Example:
        >>> import mechid
        >>> mechid.setup()
    """
    jax.config.update("jax_enable_x64", True)
    _READY.append(True)
    _set_flags()


def enable_float64() -> None:
    """Do the same as `setup`."""
    setup()


def flags() -> list[str]:
    """Words that XLA_FLAGS lacks: the options of `setup` that this XLA knows and that are not there yet."""
    present = os.environ.get("XLA_FLAGS", "")
    known = _known(tuple(CPU_OPTIONS))
    options: dict[str, Any] = {f"--{name}": x for name, x in CPU_OPTIONS.items() if name in known}
    extra = {"xla_cpu_small_while_loop_byte_threshold": LOOP_BYTES}
    if jaxlib.version.__version__ in ENDLESS:
        # of LLVM itself, which ends a process whose options it does not know
        extra["-dag-maps-huge-region"] = NO_LIMIT
    options |= {f"--xla_backend_extra_options={name}": x for name, x in extra.items()}
    written = {k: str(x).lower() if isinstance(x, bool) else x for k, x in options.items()}
    return [f"{name}={x}" for name, x in written.items() if f"{name.rpartition('=')[2]}=" not in present]


def _set_flags() -> None:
    present, missing = os.environ.get("XLA_FLAGS", ""), flags()
    if not missing:
        return
    if _backend_started():
        _warn_once(" ".join(missing))
    else:
        os.environ["XLA_FLAGS"] = " ".join([*present.split(), *missing])


@functools.cache
def _warn_once(missing: str) -> None:
    warnings.warn(
        "JAX computed before mechid could set its compiler options: functions under plain jax.jit or jax.grad take "
        f'3 to 18 times as long. Call mechid.setup() first, or export XLA_FLAGS="{missing}".',
        RuntimeWarning,
        stacklevel=4,
    )


def _backend_started() -> bool:
    from jax._src import xla_bridge  # no public function says so

    return xla_bridge.backends_are_initialized()


@functools.cache
def _known(names: tuple[str, ...]) -> frozenset[str]:
    """Those of some options that this XLA knows: in a version that was not tried, those its library names."""
    if jaxlib.version.__version__.startswith(TRIED):
        return frozenset(names)
    found = set()
    for library in Path(jaxlib.__file__).parent.glob("libjax_common*"):
        with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
            found |= {name for name in names if text.find(name.encode()) >= 0}
    return frozenset(found)


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


def accelerated() -> bool:
    """Whether programs run on an accelerator, where many simulations advance together, lane by lane.

    There a condition computes both of its sides, and small matrix products cost much more than their arithmetic:
    steps are solved in a fixed form (`newton`), and products of 4×4 matrices are written as sums.
    """
    return jax.default_backend() != "cpu"


def require_float64() -> None:
    """Make JAX ready: `setup` where nothing has been computed yet, else refuse float32."""
    if not jax.config.jax_enable_x64:  # pyright: ignore[reportAttributeAccessIssue]
        if _backend_started() or "JAX_ENABLE_X64" in os.environ:
            raise MechidError(
                "JAX is in float32, mechid needs float64: call mechid.setup() (or set JAX_ENABLE_X64=1) before the "
                "first computation."
            )
        setup()
    elif not _READY:
        _READY.append(True)
        _set_flags()


_READY: list[bool] = []
"""not empty once the options have been looked after"""


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
