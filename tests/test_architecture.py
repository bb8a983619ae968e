"""The rooms of the package and the direction of its imports, read off the source; float64 only when asked for."""

import ast
import functools
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import mechid

ROOT = Path(mechid.__file__).parent

ROOTS = {"errors", "compile", "reference", "files", "threads"}
MAY_IMPORT = {
    "errors": set(),
    "compile": {"errors"},
    "reference": {"errors"},
    "files": {"errors"},
    "threads": set(),
    "model": ROOTS,
    "dynamics": ROOTS | {"model"},
    "data": ROOTS | {"model"},
    "estimate": ROOTS | {"model", "dynamics", "data"},
    "core": ROOTS | {"model", "dynamics", "data", "estimate"},
    "judge": ROOTS | {"model", "dynamics", "data", "estimate"},
    "report": ROOTS | {"model", "dynamics", "data", "estimate", "judge"},
    "jobs": ROOTS | {"model", "dynamics", "data", "estimate", "judge", "report"},
    "studies": ROOTS | {"model", "dynamics", "data", "estimate", "judge", "report", "jobs"},
    "cli": ROOTS | {"model", "dynamics", "data", "estimate", "judge", "report", "jobs", "studies"},
}
"""For each room the others that it may import; its own modules are always allowed. data to report are to come."""
FACE = MAY_IMPORT["cli"] - {"studies", "jobs"}
"""What mechid/__init__.py may gather. No module of a room imports from this face, which would be a circle."""

AGAINST = {
    ("model.mechanism", "dynamics.lowering"): "lower() is a thin method on what a person holds",
    ("model.mechanism", "dynamics.model"): "the type of what lower() gives",
    ("model.symbolic.mechanism", "dynamics.symbolic"): "lower() is a thin method on what a person holds",
    ("model.system", "dynamics.model"): "the type of what lower() gives",
    ("model.parameters", "dynamics.model"): "the type of what bind() gives",
    ("dynamics.driver", "dynamics.simulate"): "the type of a plan",
    ("estimate.fit", "judge.identifiability"): "thin methods on what a person holds: flags",
    ("estimate.fit", "report.fit"): "thin methods on what a person holds: summary",
    ("estimate.fit", "report.fit_plot"): "thin methods on what a person holds: plot",
    ("estimate.fit", "report.fit_files"): "thin methods on what a person holds: save",
}
"""Imports against the direction, each with its reason. They stand in a function or under TYPE_CHECKING."""

DYNAMIC = {"studies.study": "studies are found by their names"}
"""Modules that import by a computed name, which the source does not tell."""

OWN_JIT = {
    ("compile", "jit.call"): "the wrapper itself",
    ("compile", "_options.known"): "asks the compiler which options it knows",
    ("model.parameters", "Parameters._programs"): "runs inside other programs, where options are refused",
}
"""Functions that use jax.jit and not mechid.compile.jit, each with its reason."""


class Import(NamedTuple):
    module: str
    """without the leading mechid; the face is empty"""
    target: str
    deferred: bool
    """in a function or under TYPE_CHECKING"""
    line: int

    def __str__(self) -> str:
        when = "later" if self.deferred else "when it is imported"
        return f"{self.module or '__init__'}, line {self.line}, imports {self.target or 'mechid'} {when}"


def source_files(root: Path) -> dict[str, str]:
    """The source of every module by its name without the leading mechid; a package is named by its folder."""
    texts = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        texts[".".join(parts).removesuffix("__init__").removesuffix(".")] = path.read_text(encoding="utf-8")
    return texts


parsed = functools.cache(ast.parse)


def room(module: str) -> str:
    return module.partition(".")[0]


def imports(module: str, source: str, modules: set[str]) -> Iterator[Import]:
    """What a module imports of the package. A name that is no module counts as the module that holds it."""
    package = module.rpartition(".")[0] if module not in _packages(modules) else module
    for node, inside in _walk(parsed(source)):
        if isinstance(node, ast.Import):
            targets = [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = ["mechid", *package.split(".")] if package else ["mechid"]
                base = ".".join([*above[: len(above) - node.level + 1], *([base] if base else [])])
            targets = [f"{base}.{a.name}" for a in node.names]
        else:
            continue
        deferred = any(isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) for n in inside)
        deferred |= any(isinstance(n, ast.If) and _is_type_checking(n.test) for n in inside)
        for target in targets:
            if room(target) == "mechid":
                inner = target.partition(".")[2]
                held = inner if inner in modules else inner.rpartition(".")[0]
                yield Import(module, held, deferred, node.lineno)


def _packages(modules: set[str]) -> set[str]:
    return {""} | {m.rpartition(".")[0] for m in modules}


def _walk(node: ast.AST, inside: tuple[ast.AST, ...] = ()) -> Iterator[tuple[ast.AST, tuple[ast.AST, ...]]]:
    """Every node with what it stands in; the `else` of an `if TYPE_CHECKING` does not stand in it."""
    for name, value in ast.iter_fields(node):
        around = inside if isinstance(node, ast.If) and name != "body" else (*inside, node)
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield child, around
                yield from _walk(child, around)


def _is_type_checking(test: ast.expr) -> bool:
    return ast.unparse(test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def allowed(found: Import) -> bool:
    here, there = room(found.module), room(found.target)
    if here == there:
        return True
    return there in (MAY_IMPORT[here] if here else FACE)


def wrong_imports(texts: dict[str, str]) -> list[Import]:
    """Imports that point the wrong way and have no leave to."""
    found = [i for module, text in texts.items() for i in imports(module, text, set(texts))]
    wrong = [i for i in found if not allowed(i)]
    return [i for i in wrong if not (i.deferred and (i.module, i.target) in AGAINST)]


def direct_jits(texts: dict[str, str]) -> set[tuple[str, str]]:
    """Uses of jax.jit and its kin: module and function."""
    kin = {"jit", "pjit", "pmap"}
    uses: set[tuple[str, str]] = set()
    for module, text in texts.items():
        jax = _names_of_jax(parsed(text))
        for node, inside in _walk(parsed(text)):
            where = ".".join(n.name for n in inside if isinstance(n, ast.ClassDef | ast.FunctionDef))
            direct = False
            if isinstance(node, ast.ImportFrom):
                direct = room(node.module or "") == "jax" and bool(kin & {a.name for a in node.names})
            elif isinstance(node, ast.Attribute):
                direct = node.attr in kin and ast.unparse(node.value) in jax
            if direct:
                uses.add((module, where))
    return uses


def _names_of_jax(tree: ast.AST) -> set[str]:
    """The names under which a module has imported jax itself."""
    found = [a for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names if a.name == "jax"]
    return {"jax", *(a.asname for a in found if a.asname)}


@pytest.fixture(scope="module")
def texts():
    return source_files(ROOT)


def test_every_module_stands_in_a_room(texts):
    assert {room(m) for m in texts if m} <= set(MAY_IMPORT)


def test_imports_point_one_way(texts):
    wrong = wrong_imports(texts)
    assert not wrong, "\n".join(map(str, wrong))


def test_leave_to_import_against_the_direction_is_used(texts):
    found = {(i.module, i.target) for m, t in texts.items() for i in imports(m, t, set(texts)) if i.deferred}
    assert set(AGAINST) <= found, f"strike out {set(AGAINST) - found}"


def test_imports_by_a_computed_name_are_listed(texts):
    def computes(text: str) -> bool:
        called = [ast.unparse(n.func) for n in ast.walk(parsed(text)) if isinstance(n, ast.Call)]
        return any(name.rpartition(".")[2] in ("import_module", "__import__") for name in called)

    assert {m for m, t in texts.items() if computes(t)} == set(DYNAMIC)


def test_the_compiler_is_spoken_to_in_one_place(texts):
    assert direct_jits(texts) == set(OWN_JIT)


_NAMES = "model.parts model.mechanism dynamics.tree dynamics.lowering data.log estimate.fit judge.trust"
HOUSE = dict.fromkeys(["", *ROOTS, *_NAMES.split(), "studies.drift", "cli"], "")
"""Empty modules for the tests of the check itself."""


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("errors", "import mechid.compile"),
        ("compile", "from mechid.model.parts import Body"),
        ("model.parts", "from mechid.dynamics import tree"),
        ("model.parts", "from ..dynamics.tree import cross"),
        ("model.parts", "from .. import dynamics"),
        ("model.parts", "import mechid.dynamics.tree as tree"),
        ("model.parts", "def f():\n    from mechid.dynamics.lowering import lower"),
        ("model.parts", "if TYPE_CHECKING:\n    from mechid.dynamics.tree import Array"),
        ("model.mechanism", "from mechid.dynamics.lowering import lower"),
        ("model.mechanism", "def f():\n    from mechid.dynamics.tree import cross"),
        ("model.mechanism", "if TYPE_CHECKING:\n    pass\nelse:\n    import mechid.dynamics.lowering"),
        ("dynamics.tree", "try:\n    from mechid.studies import drift\nexcept ImportError:\n    pass"),
        ("dynamics.tree", "import mechid.data.log"),
        ("dynamics.tree", "from mechid import Mechanism"),
        ("data.log", "from mechid.dynamics.tree import cross"),
        ("estimate.fit", "from mechid.judge import trust"),
        ("studies.drift", "from mechid.cli import app"),
        ("", "from mechid.studies.drift import run"),
    ],
)
def test_an_import_of_the_wrong_kind_is_found(module, line):
    assert [i.module for i in wrong_imports({**HOUSE, module: line})] == [module]


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("dynamics.tree", "from ..model.parts import Body"),
        ("dynamics.tree", "import mechid.errors"),
        ("estimate.fit", "from mechid.data.log import Log"),
        ("data.log", "from mechid.model import parts"),
        ("model.mechanism", "def f():\n    from mechid.dynamics.lowering import lower"),
        ("cli", "from mechid.studies import drift"),
        ("", "from mechid.judge import trust"),
    ],
)
def test_an_import_of_the_right_kind_passes(module, line):
    assert not wrong_imports({**HOUSE, module: line})


@pytest.mark.parametrize(
    "line",
    [
        "import jax\nf = jax.jit(abs)",
        "import jax as j\nf = j.jit(abs)",
        "from jax import jit",
        "import functools, jax\n@functools.partial(jax.jit, static_argnums=0)\ndef f(x): ...",
        "import jax\ndef g():\n    return jax.pmap(abs)",
    ],
)
def test_a_direct_jit_is_found(line):
    assert direct_jits({"dynamics.tree": line})


def test_the_wrapper_is_no_direct_jit():
    assert not direct_jits({"dynamics.tree": "from mechid.compile import jit\nf = jit(abs)"})


def _python(program: str, **environment: str) -> str:
    """The last line that a program prints in a process of its own, with JAX as it comes."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "PYTEST_"))}
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(program)],
        env={**inherited, "PYTHONPATH": str(ROOT.parent), **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.strip().splitlines()[-1]


def test_importing_switches_nothing(texts):
    """Every module imported, the command line too: JAX stays in float32, none of its settings changes."""
    names = ["mechid", *(f"mechid.{m}" for m in texts if m)]
    told = _python(
        f"""
        import importlib, json
        import jax
        before = dict(jax.config.values)
        for name in {names!r}:
            importlib.import_module(name)
        after = dict(jax.config.values)
        changed = [k for k in after if before.get(k) != after[k]]
        print(json.dumps([bool(jax.config.jax_enable_x64), changed]))
        """
    )
    assert json.loads(told) == [False, []]


USES = {
    "lower": "hinge.lower()",
    "parameters": "mechid.Parameters(hinge)",
    "simulate": "mechid.simulate(hinge, mechid.Variational(0.01), 1)",
    "assemble": "mechid.assemble(hinge)",
    "compiled": "mechid.compile.jit(abs)(1.0)",
}


def test_float32_is_refused_in_a_sentence():
    """Where JAX has computed in it already; each way in raises a MechidError that says how to switch."""
    program = f"""
        import json
        import jax, mechid, mechid.compile
        jax.numpy.zeros(1)
        hinge = mechid.Mechanism().body("rod", mass=1.0).revolute("hinge", "world", "rod")
        told = {{}}
        for name, use in {USES!r}.items():
            try:
                eval(use)
            except mechid.MechidError as error:
                told[name] = str(error)
        print(json.dumps(told))
        """
    told = json.loads(_python(program))
    assert set(told) == set(USES)
    for sentence in told.values():
        assert "float32" in sentence
        assert "mechid.setup()" in sentence
        assert "\n" not in sentence
        assert sentence.endswith(".")


@pytest.mark.parametrize("how", ["mechid.setup()", "mechid.enable_float64()", "environment", ""])
def test_the_first_computation_is_in_float64(how):
    """Asked for, or since nothing has been computed before; with the options of the whole process."""
    call = "" if how == "environment" else how
    environment = {"JAX_ENABLE_X64": "1"} if how == "environment" else {}
    program = f"""
        import os, mechid, mechid.compile
        {call}
        x = float(mechid.compile.jit(lambda x: x / 3)(1.0))
        print(x == 1.0 / 3.0 and "multi_thread_eigen=false" in os.environ["XLA_FLAGS"])
        """
    assert _python(program, **environment).strip() == "True"
