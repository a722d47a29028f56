"""The shape of the source holds: imports point down, sizes only shrink, the tools are content.

Every import counts, also those under TYPE_CHECKING and inside functions: a reader follows them
as well.
"""

import ast
import graphlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("deadq", "workers", "benchmarks")

LAYERS = (
    {"cli", "demo", "dashboard", "__main__"},
    {"contrib"},
    {"edge"},
    {"testing"},
    {""},  # deadq/__init__.py, the public face
    {"runtime"},
    {
        "arguments",
        "budgets",
        "checks",
        "declare",
        "handle",
        "lifespan",
        "options",
        "prepared",
        "producer",
        "queue",
        "refusals",
        "soon",
        "steering",
        "task",
        "tied",
        "tied_ends",
        "tied_handle",
    },
    {"store"},
    {"resilience"},
    {"job", "reports", "codec", "events", "twins", "tracing"},
    {"ambient", "deadline", "clock", "config", "errors"},
)
"""From the top down. A module may import from its own layer and from those below it."""

NEEDS_NO_EXTRAS = set().union(*LAYERS[4:])
CORE_DEPENDENCIES = {"redis", "hiredis", "msgpack", "prometheus_client"}

PUBLIC_MODULES = {"deadq", "deadq.testing", "deadq.resilience"}
PUBLIC_PACKAGES = ("deadq.edge", "deadq.contrib")
"""What workers/ and benchmarks/ may import: these, and any module of these packages."""

MODULE_LINES, FUNCTION_LINES, LUA_LINES = 300, 60, 100
LARGER: dict[str, int] = {
    "deadq/store/lua/admit.lua": 115,  # header, and the order of the decision
    "deadq/store/lua/lib/learn.lua": 108,  # one histogram, its samples and its digest
}
"""What is larger all the same, as "path" or "path::function", at today's size. Entries only
shrink; each says in a comment beside it why it is one room."""


class Import(NamedTuple):
    """One imported module, or name in a module, by its full dotted name."""

    name: str
    line: int
    top_level: bool


# Reading the source.


def files(*folders: str, suffix: str = ".py") -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob(f"*{suffix}"))


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(source: str, module: str, *, is_package: bool) -> Iterator[Import]:
    """Everything that ``module`` imports, by whatever means and wherever in the file."""
    tree = ast.parse(source)
    package = module if is_package else module.rpartition(".")[0]
    at_top = set(map(id, tree.body))
    for node in ast.walk(tree):
        top_level = id(node) in at_top
        match node:
            case ast.Import(names=names):
                for alias in names:
                    yield Import(alias.name, node.lineno, top_level)
            case ast.ImportFrom(module=origin, names=names, level=level):
                base = resolved("." * level + (origin or ""), package)
                for alias in names:
                    name = base if alias.name == "*" else f"{base}.{alias.name}"
                    yield Import(name, node.lineno, top_level)
            case ast.Call(
                func=ast.Attribute(attr="import_module")
                | ast.Name(id="import_module" | "__import__"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield Import(resolved(name, package), node.lineno, top_level)


def resolved(name: str, package: str) -> str:
    """``name`` as seen from ``package``, its leading dots replaced."""
    stripped = name.lstrip(".")
    up = len(name) - len(stripped)
    if not up:
        return stripped
    parts = package.split(".")
    return ".".join([*parts[: len(parts) - up + 1], *([stripped] if stripped else [])])


def imports_of(path: Path) -> list[Import]:
    return list(imports(path.read_text(), module_name(path), is_package=path.name == "__init__.py"))


def module_of(name: str, modules: set[str]) -> str | None:
    """The module that an imported name is, or is found in; None for another project's."""
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return name or None


def place(module: str) -> str:
    """What LAYERS calls the module: the part after ``deadq.``"""
    return [*module.split("."), ""][1]


def layer(module: str) -> int:
    for depth, names in enumerate(LAYERS):
        if place(module) in names:
            return depth
    pytest.fail(f"{module} stands in no layer: give it a place in LAYERS, or move it")


def import_graph() -> dict[str, dict[str, int]]:
    """Each module of deadq, the modules of deadq that it imports, and the line where."""
    paths = {module_name(path): path for path in files("deadq")}
    modules = set(paths)
    graph: dict[str, dict[str, int]] = {}
    for module, path in paths.items():
        graph[module] = {}
        for imported in imports_of(path):
            target = module_of(imported.name, modules)
            if target and target != module:
                graph[module].setdefault(target, imported.line)
    return graph


def reachable(module: str, graph: dict[str, dict[str, int]]) -> set[str]:
    seen: set[str] = set()
    waiting = [module]
    while waiting:
        for target in graph.get(waiting.pop(), {}):
            if target not in seen:
                seen.add(target)
                waiting.append(target)
    return seen


def exported(path: Path) -> set[str]:
    """``__all__`` of a module, which has to be written out."""
    names: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        match node:
            case (
                ast.Assign(targets=[ast.Name(id="__all__")], value=value)
                | ast.AnnAssign(target=ast.Name(id="__all__"), value=value)
                | ast.AugAssign(target=ast.Name(id="__all__"), value=value)
            ) if value is not None:
                names |= set(ast.literal_eval(value))
    assert names, f"{path.relative_to(ROOT)} has no __all__, though others may import from it"
    return names


def is_public(module: str) -> bool:
    if any(part.startswith("_") for part in module.split(".")):
        return False
    packages = tuple(f"{package}." for package in PUBLIC_PACKAGES)
    return module in {*PUBLIC_MODULES, *PUBLIC_PACKAGES} or module.startswith(packages)


def is_offered(name: str) -> bool:
    """Whether a full dotted name is a public module, or exported by one."""
    paths = {module_name(path): path for path in files("deadq")}
    if name in paths and is_public(name):
        return True
    parent, _, last = name.rpartition(".")
    return parent in paths and is_public(parent) and last in exported(paths[parent])


def private_names_used(path: Path) -> Iterator[str]:
    """What a program outside deadq takes from it that was not offered."""
    uses = [(found.name, found.line) for found in imports_of(path)]
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Attribute(value=ast.Name(id="deadq"), attr=name):
                uses.append((f"deadq.{name}", node.lineno))
    for name, line in uses:
        if name.split(".")[0] == "deadq" and not is_offered(name):
            yield f"{path.relative_to(ROOT)}:{line} uses {name}"


def sizes() -> dict[str, int]:
    """Lines of all that is larger than it should be."""
    found: dict[str, int] = {}
    for path in files(*SOURCES):
        name = str(path.relative_to(ROOT))
        source = path.read_text()
        if (lines := len(source.splitlines())) > MODULE_LINES:
            found[name] = lines
        for function, lines in functions(ast.parse(source)):
            if lines > FUNCTION_LINES:
                found[f"{name}::{function}"] = lines
    for path in files(*SOURCES, suffix=".lua"):
        if (lines := len(path.read_text().splitlines())) > LUA_LINES:
            found[str(path.relative_to(ROOT))] = lines
    return found


def functions(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, int]]:
    for child in ast.iter_child_nodes(node):
        name = prefix
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{prefix}.{child.name}".lstrip(".")
            if not isinstance(child, ast.ClassDef):
                assert child.end_lineno
                yield name, child.end_lineno - child.lineno + 1
        yield from functions(child, name)


# Where imports lead.


def test_imports_point_down():
    wrong = [
        f"{module}:{line} imports {target}, which stands above it"
        for module, targets in import_graph().items()
        for target, line in targets.items()
        if layer(target) < layer(module)
    ]
    assert not wrong, "\n".join(wrong)


def test_no_modules_import_each_other_in_a_circle():
    graph = {module: set(targets) for module, targets in import_graph().items()}
    try:
        tuple(graphlib.TopologicalSorter(graph).static_order())
    except graphlib.CycleError as error:
        pytest.fail("an import circle: " + " <- ".join(error.args[1]))


def test_only_the_store_imports_redis():
    wrong = [
        f"{path.relative_to(ROOT)}:{imported.line} imports {imported.name}"
        for path in files("deadq", "workers")
        for imported in imports_of(path)
        if imported.name.split(".")[0] in {"redis", "hiredis"}
        and place(module_name(path)) != "store"
    ]
    assert not wrong, "\n".join(wrong)


def test_jobs_know_no_store():
    graph = import_graph()
    stores = {module for module in graph if place(module) == "store"}
    assert not reachable("deadq.job", graph) & stores


@pytest.mark.parametrize(("runner", "other"), [("loop", "process"), ("process", "loop")])
def test_neither_runner_knows_the_other(runner, other):
    runners = "deadq.runtime."
    graph = import_graph()
    modules = [module for module in graph if f"{module}.".startswith(f"{runners}{runner}.")]
    assert modules
    for module in modules:
        assert not [name for name in graph[module] if name.startswith(f"{runners}{other}")], module


def test_the_core_imports_no_extra():
    """``pip install deadq`` alone has to be enough for producers and workers."""
    wrong = [
        f"{path.relative_to(ROOT)}:{imported.line} imports {imported.name}"
        for path in files("deadq")
        if place(module_name(path)) in NEEDS_NO_EXTRAS
        for imported in imports_of(path)
        if imported.top_level
        and imported.name.split(".")[0]
        not in {"deadq", *CORE_DEPENDENCIES, *sys.stdlib_module_names}
    ]
    assert not wrong, "\n".join(wrong)


def test_inside_deadq_imports_are_relative():
    wrong = []
    for path in files("deadq"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Import(names=names):
                    origins = [alias.name for alias in names]
                case ast.ImportFrom(module=str(origin), level=0):
                    origins = [origin]
                case _:
                    continue
            if any(origin.split(".")[0] == "deadq" for origin in origins):
                wrong.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not wrong, "\n".join(wrong)


def test_workers_and_benchmarks_use_only_public_names():
    wrong = [use for path in files("workers", "benchmarks") for use in private_names_used(path)]
    assert not wrong, "\n".join(wrong)


# Sizes and leftovers.


def test_what_is_large_is_listed_and_only_shrinks():
    found = sizes()
    grown = [
        f"{name} has {lines} lines; " + (f"it had {LARGER[name]}" if name in LARGER else "split it")
        for name, lines in found.items()
        if lines > LARGER.get(name, 0)
    ]
    shrunk = [
        f"{name} is down to {found.get(name, 'a good size')}: say so in LARGER"
        for name, lines in LARGER.items()
        if found.get(name, 0) < lines
    ]
    assert not grown + shrunk, "\n".join(grown + shrunk)


def test_nothing_is_left_for_later():
    marks = re.compile(r"\b(TO" + r"DO|FIX" + r"ME)\b")
    left = [
        f"{path.relative_to(ROOT)}:{number} {line.strip()}"
        for suffix in (".py", ".pyi", ".lua", ".toml", ".html", ".js", ".css")
        for path in files(*SOURCES, "tests", suffix=suffix)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if marks.search(line)
    ]
    assert not left, "\n".join(left)


# The tools.


def run_tool(*command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_ruff_finds_nothing():
    run_tool("ruff", "check", "--no-fix", "--output-format=concise", ".")


def test_ruff_would_format_nothing_otherwise():
    run_tool("ruff", "format", "--check", ".")


@pytest.mark.timeout(300)
def test_strict_mypy_finds_nothing():
    run_tool("mypy", *(folder for folder in SOURCES if files(folder)))


# The checks above can fail.


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import deadq.store.keys as k", {"deadq.store.keys"}),
        ("from . import keys, wire", {"deadq.store.keys", "deadq.store.wire"}),
        ("from ..queue import Queue", {"deadq.queue.Queue"}),
        ("from .. import *", {"deadq"}),
        ("def f():\n    from ..runtime import worker", {"deadq.runtime.worker"}),
        ("from typing import TYPE_CHECKING as T\nif T:\n    import redis", {"redis"}),
        ("import importlib\nimportlib.import_module('..cli', __package__)", {"deadq.cli"}),
        ("__import__('redis.asyncio')", {"redis.asyncio"}),
    ],
)
def test_every_kind_of_import_is_seen(source, expected):
    found = {name for name, *_ in imports(source, "deadq.store.sync", is_package=False)}
    assert expected <= found


def test_a_package_resolves_its_own_dot_to_itself():
    (found,) = imports("from .keys import ready", "deadq.store", is_package=True)
    assert found == Import("deadq.store.keys.ready", 1, top_level=True)
    assert module_of(found.name, {"deadq", "deadq.store", "deadq.store.keys"}) == "deadq.store.keys"


def test_functions_are_measured_wherever_they_are():
    source = (
        "class A:\n    def m(self):\n        def inner():\n            pass\n        return 1\n"
    )
    assert dict(functions(ast.parse(source))) == {"A.m": 4, "A.m.inner": 2}


def test_layers_and_public_modules_are_told_apart():
    assert layer("deadq.cli.work") < layer("deadq") < layer("deadq.store.keys") < layer("deadq.job")
    assert is_public("deadq.edge.asgi")
    assert not is_public("deadq.store")
    assert not is_public("deadq.edge._headers")
    with pytest.raises(pytest.fail.Exception, match=r"deadq\.utils stands in no layer"):
        layer("deadq.utils")


def test_uses_of_private_names_are_found(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    for name, source in {
        "deadq/__init__.py": "__all__ = ['Queue']\nfrom .queue import Queue",
        "deadq/queue.py": "class Queue: ...",
        "deadq/store/__init__.py": "",
        "deadq/edge/asgi.py": "__all__ = ['Deadlines']",
        "workers/good.py": "import deadq\nfrom deadq import Queue\ndeadq.Queue\n"
        "from deadq.edge import asgi\nfrom deadq.edge.asgi import Deadlines",
        "workers/bad.py": "import deadq\nfrom deadq import queue\nimport deadq.store\ndeadq.store\n"
        "from deadq.edge.asgi import helper",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(source)
    assert not list(private_names_used(tmp_path / "workers/good.py"))
    assert list(private_names_used(tmp_path / "workers/bad.py")) == [
        "workers/bad.py:2 uses deadq.queue",
        "workers/bad.py:3 uses deadq.store",
        "workers/bad.py:5 uses deadq.edge.asgi.helper",
        "workers/bad.py:4 uses deadq.store",
    ]
