import gc
import os
from pathlib import Path

import jax
import pytest
from threadpoolctl import ThreadpoolController

import mechid
from mechid.compile import CPU_OPTIONS, ONCE, enable_compilation_cache
from mechid.reference import reference_folder

# as in fits: workers of the tests share the cores
ThreadpoolController().limit(limits=1, user_api="blas")
# Compiling is nearly all of the time of these tests: programs are compiled quickly rather than well.
# MECHID_OPTIMISED=1 compiles them as users get them; the command line's tests always do.
if not os.environ.get("MECHID_OPTIMISED"):
    CPU_OPTIONS.update(ONCE)
mechid.setup()
# Workers share what they compile; a second run of the tests compiles nothing.
enable_compilation_cache(Path(__file__).parent.parent / ".pytest_cache" / "jax")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get("MECHID_SLOW"):
        return
    skip = pytest.mark.skip(reason="slow: set MECHID_SLOW=1 to run it")
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(skip)


@pytest.fixture(scope="session")
def reference():
    """The folder of reference data; the test is skipped where it is absent."""
    folder = reference_folder()
    if not folder.is_dir():
        pytest.skip(f"reference data absent: {folder} (set MECHID_REFERENCE)")
    return folder


@pytest.fixture(scope="module", autouse=True)
def programs_of_one_file():
    """Compiled programs are given back after each file: together they would take gigabytes."""
    yield
    jax.clear_caches()
    gc.collect()
