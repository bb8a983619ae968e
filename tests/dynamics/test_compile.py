"""The wrapper around jax.jit: float64, options that XLA may not know, one program for every horizon."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap

import jax
import numpy as np
import pytest

import mechid
from mechid import MechidError, Variational, simulate
from mechid import compile as compiling
from mechid.dynamics import driver
from mechid.dynamics.forms import Forward, TwoImpulses
from mechid.dynamics.sensors import joint_force, joint_velocity
from mechid.studies import mechanisms

FLAG = "xla_cpu_small_while_loop_byte_threshold"


@pytest.fixture
def options(monkeypatch):
    """The wrapper with options of the test's own, which are looked up anew."""
    if jax.default_backend() != "cpu":
        pytest.skip("options are set on a CPU only")

    def choose(**given):
        monkeypatch.setattr(compiling, "CPU_OPTIONS", given)
        compiling._options.cache_clear()

    yield choose
    compiling._options.cache_clear()


def test_options_that_xla_does_not_know_are_dropped(options):
    options(xla_no_such_option=True, xla_cpu_multi_thread_eigen=False)
    assert compiling._options(False) == {"xla_cpu_multi_thread_eigen": False}
    assert compiling.jit(lambda x: x / 3)(1.0) == 1.0 / 3.0


def test_an_option_of_the_wrong_kind_is_no_unknown_one(options):
    options(xla_cpu_multi_thread_eigen="nonsense")
    with pytest.raises(Exception, match="nonsense"):
        compiling._options(False)


def test_programs_that_run_once_are_compiled_quickly(options):
    options()
    assert compiling._options(False) == {}
    assert compiling._options(True).items() <= compiling.ONCE.items()
    assert compiling._options(True)


def test_this_xla_knows_every_option():
    """Not a must, but half the speed if it is not so: it should be noticed."""
    assert compiling._options(True) == compiling.CPU_OPTIONS | compiling.ONCE


def test_float32_is_refused_at_every_call():
    double = compiling.jit(lambda x: 2 * x)
    assert double(1.5) == 3.0
    with jax.enable_x64(False), pytest.raises(MechidError, match=r"float32.*setup\(\)"):
        double(1.5)
    assert double(1.5) == 3.0


def test_a_program_is_made_at_the_first_call_and_counted():
    seen = []

    def function(x, power):
        """A cube."""
        seen.append(x.shape)
        return x**power

    cube = compiling.jit(function, static_argnums=(1,))
    assert (cube.__name__, cube.__doc__) == ("function", "A cube.")
    assert cube.compilations() == 0
    for x in (np.arange(2.0), np.ones(2), np.arange(3.0)):
        assert np.array_equal(cube(x, 3), x**3)
    assert cube.compilations() == 2
    assert seen == [(2,), (3,)]


@pytest.fixture
def fresh(monkeypatch):
    """As if JAX had not computed yet, with the options that users get."""
    monkeypatch.setattr(compiling, "_backend_started", lambda: False)
    monkeypatch.setattr(compiling, "CPU_OPTIONS", {"xla_cpu_multi_thread_eigen": False, "xla_cpu_x": ""})
    monkeypatch.setattr(compiling, "ENDLESS", ())
    compiling._warn_once.cache_clear()
    yield
    compiling._warn_once.cache_clear()


OWN = ["--xla_cpu_multi_thread_eigen=false", "--xla_cpu_x="]
LOOPS = f"--xla_backend_extra_options={FLAG}={compiling.LOOP_BYTES}"


@pytest.mark.parametrize("before", ["", "--xla_cpu_enable_fast_math=false --xla_dump_to=/tmp"])
def test_setup_sets_the_options_of_the_process_once(monkeypatch, fresh, before):
    monkeypatch.setenv("XLA_FLAGS", before)
    mechid.setup()
    mechid.enable_float64()
    assert os.environ["XLA_FLAGS"].split() == [*before.split(), *OWN, LOOPS]


def test_options_of_a_person_are_left_alone(monkeypatch, fresh):
    own = [f"--xla_backend_extra_options={FLAG}=1024", "--xla_cpu_multi_thread_eigen=true"]
    monkeypatch.setenv("XLA_FLAGS", " ".join(own))
    mechid.setup()
    assert os.environ["XLA_FLAGS"].split() == [*own, "--xla_cpu_x="]


def test_a_version_that_compiles_without_end_gets_an_option_more(monkeypatch, fresh):
    """Of LLVM, beside extra options of a person."""
    monkeypatch.setenv("XLA_FLAGS", f"--xla_backend_extra_options={FLAG}=1024")
    monkeypatch.setattr(compiling, "ENDLESS", (compiling.jaxlib.version.__version__,))
    mechid.setup()
    assert os.environ["XLA_FLAGS"].split()[-1] == f"--xla_backend_extra_options=-dag-maps-huge-region={2**30}"


def test_options_that_come_too_late_are_told_once(monkeypatch, fresh):
    """With what they cost and what to export; nothing is set."""
    monkeypatch.setenv("XLA_FLAGS", "")
    monkeypatch.setattr(compiling, "_backend_started", lambda: True)
    with pytest.warns(
        RuntimeWarning, match=r"3 to 18 times.*mechid\.setup\(\).*export XLA_FLAGS=.*multi_thread"
    ):
        mechid.setup()
    mechid.setup()
    assert not os.environ["XLA_FLAGS"]


def test_options_that_an_untried_xla_does_not_name_are_left_out(monkeypatch):
    """XLA would end the process."""
    monkeypatch.setattr(compiling, "TRIED", ("none",))
    names = ("xla_cpu_multi_thread_eigen", "xla_no_such_option")
    assert compiling._known(names) == {"xla_cpu_multi_thread_eigen"}
    compiling._known.cache_clear()


def test_one_program_for_every_horizon_step_size_and_number():
    """Ten steps or 256, 5000 or 9000; other starts, inputs, numbers and sizes of step."""
    m = mechanisms.cart_pendulum(damping=0.1)
    simulate(m, Variational(0.01), 10)
    simulate(m, Variational(0.01), 5000)
    before = driver.advance.compilations()
    for steps in (10, 256, 3000, 9000):
        simulate(m, Variational(0.01), steps, q=[0.1, 1.0], v=[0.5, 0.2], inputs=[0.1])
    simulate(m, Variational(0.002), 200, q=[0.3, 0.0], inputs=np.ones((200, 1)), t0=3.0)
    simulate(mechanisms.cart_pendulum(0.7, 2.0, 0.5, 0.3), Variational(0.01, absolute_tolerance=1e-9), 10)
    assert driver.advance.compilations() == before > 0


PROGRAM = """
    import json, os
    import mechid
    from mechid.studies import mechanisms
    mechid.enable_float64()
    swing = mechanisms.pendulum(damping=0.05)
    run = mechid.simulate(swing, mechid.Variational(0.01), 300, q=[1.0], inputs=[0.5])
    print(json.dumps([os.environ["XLA_FLAGS"], run.states.q.tolist(), run.states.p.tolist()]))
    """


def _apart(flags: str) -> list:
    """What the program prints in a process of its own, without a cache of compiled programs."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "PYTEST_", "XLA_"))}
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM)],
        env=inherited | ({"XLA_FLAGS": flags} if flags else {}),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.strip().splitlines()[-1])


@pytest.mark.slow
def test_one_kernel_gives_the_same_motion():
    """A loop compiled as one kernel and one that runs kernel by kernel."""
    flags, q, p = _apart("")
    assert LOOPS in flags.split()
    other_flags, other_q, other_p = _apart(f"--xla_backend_extra_options={FLAG}=0")
    assert other_flags.split()[0] == f"--xla_backend_extra_options={FLAG}=0"
    assert np.ptp(np.array(q), axis=0).max() > 0.5
    assert np.abs(np.array(q) - other_q).max() < 1e-10
    assert np.abs(np.array(p) - other_p).max() < 1e-10


def test_trees_of_different_classes_are_told_apart():
    """Programs are kept by the trees that they were compiled for."""
    pendulum = mechanisms.pendulum()
    made = [make(pendulum, "hinge") for make in (joint_velocity, joint_force)]
    structures = [jax.tree.structure(s) for s in made]
    assert structures[0] != structures[1]
    for structure, sensor in zip(structures, made, strict=True):
        again = jax.tree.unflatten(structure, jax.tree.leaves(sensor))
        assert type(again) is type(sensor)
        assert list(again.index) == list(sensor.index)
    inner = Variational(0.01)
    assert jax.tree.structure(Forward(inner)) != jax.tree.structure(TwoImpulses(inner))


def test_programs_cut_off_while_written_are_compiled_again(tmp_path):
    """A process killed while it writes leaves a program without its stamp; whole ones stay."""
    code = (
        "import jax, mechid, pathlib, sys\n"
        "from mechid.compile import enable_compilation_cache, jit\n"
        "mechid.enable_float64()\n"
        "enable_compilation_cache(pathlib.Path(sys.argv[1]))\n"
        "jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.0)\n"
        "print(float(jit(lambda x: 2 * x)(jax.numpy.ones(()))))\n"
    )

    def run():
        return subprocess.run(
            [sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True
        )

    run()
    programs = sorted(tmp_path.glob("*-cache"))
    whole = {p: p.read_bytes() for p in programs}
    assert programs
    cut = next(p for p in programs if "lambda" in p.name)
    cut.write_bytes(b"")
    cut.with_name(cut.name.removesuffix("-cache") + "-atime").unlink()
    again = run()
    assert again.stdout == "2.0\n"
    assert again.stderr == ""
    assert {p: len(p.read_bytes()) for p in programs} == {p: len(b) for p, b in whole.items()}
