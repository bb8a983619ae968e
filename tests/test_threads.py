"""Threads of the linear algebra library while estimators run."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import threading
import numpy
from threadpoolctl import ThreadpoolController
from mechid.threads import small_matrices

def threads():
    return {lib.num_threads for lib in ThreadpoolController().lib_controllers if lib.user_api == "blas"}

ThreadpoolController().limit(limits=2, user_api="blas")
before = threads()
seen, inside, out = [], threading.Barrier(2), threading.Event()

@small_matrices()
def other():
    inside.wait()
    out.wait()
    seen.append(threads())

thread = threading.Thread(target=other)
with small_matrices():
    thread.start()
    inside.wait()
    with small_matrices():
        seen.append(threads())
    seen.append(threads())
    out.set()
    thread.join()
assert seen == [{1}, {1}, {1}], seen
assert threads() == before, (threads(), before)
print(before)
"""


def test_one_thread_inside_and_as_before_outside():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() in ("{1}", "{2}")
