"""Rules of the source itself: who imports whom, what is documented, what is not written at all."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LAYERS = ("ir", "passes", "backends", "rlx_py")  # each imports only itself and those before it
LINES = 465
# Only these files import the package, by the name it is imported under.
SOLE = {
    "networkx": ("ir/graph/query.py",),
    "safetensors": ("ir/files/serialize.py",),
    "llvmlite": ("backends/llvm/",),
}


def _sources() -> dict[str, Path]:
    """Every module of the engine by its path from the root; rlx_py's links to the others aside."""
    found = {}
    for layer in LAYERS:
        for path in sorted((ROOT / layer).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if not re.match(r"rlx_py/(ir|passes|backends)/", name):
                found[name] = path
    return found


SOURCES = _sources()
files = pytest.mark.parametrize("name", SOURCES)


@cache
def tree(name: str) -> ast.Module:
    return ast.parse(SOURCES[name].read_text(encoding="utf-8"))


def imports(name: str) -> Iterator[str]:
    """The modules a file imports."""
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}:{node.lineno} imports relatively"
            yield node.module or ""


def layer_of(module: str) -> str:
    """The layer of a module of ours: rlx_py.ir.nodes.node is in ir."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in LAYERS else "rlx_py"


def functions(name: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef, bool]]:
    """Functions and methods of a file: qualified name, definition, and whether it is public."""
    stack: list[tuple[str, ast.AST, bool]] = [("", tree(name), True)]
    while stack:
        prefix, parent, public = stack.pop()
        for node in ast.iter_child_nodes(parent):
            if isinstance(node, ast.ClassDef):
                stack.append((f"{prefix}{node.name}.", node, public and node.name[0] != "_"))
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                seen = public and node.name[0] != "_"
                yield prefix + node.name, node, seen
                stack.append((f"{prefix}{node.name}.", node, False))


@files
def test_imports_point_one_way(name: str) -> None:
    allowed = LAYERS[:LAYERS.index(name.split("/")[0]) + 1]
    back = [m for m in imports(name) if m.split(".")[0] == "rlx_py" and layer_of(m) not in allowed]
    assert not back, f"{name} imports {back}"


# Each room imports only itself and those before it.
ROOMS = (
    "ir/base", "ir/loops", "ir/nodes", "ir/files", "ir/graph", "ir/ops/making", "ir/ops/primitive",
    "ir/ops/operands", "ir/ops/numpy", "ir/ops/matrices", "ir/ops/control", "ir/ops/nn", "ir/ops",
    "passes/analysis", "passes/rewrite", "passes/batch", "passes/derive", "passes/train",
    "passes/lower", "passes/loops", "passes/pipeline", "backends", "rlx_py",
)
# Against the order until one table says what scalar operations mean.
AWAITED = {("ir/loops/interpret.py", "ir/nodes")}


def room_of(path: str) -> str:
    """The room of a file or module's path; the innermost where rooms lie in each other."""
    found = [r for r in ROOMS if path == r or path.startswith((f"{r}/", f"{r}.py"))]
    return max(found, key=len)


def paths_of(name: str) -> Iterator[str]:
    """The paths of our own modules that a file imports."""
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rlx_py"):
            base = (node.module or "").replace(".", "/")
            for path in {base, *(f"{base}/{alias.name}" for alias in node.names)}:
                for file in (f"{path}.py", f"{path}/__init__.py"):
                    if (inner := file.removeprefix("rlx_py/")) in SOURCES or file in SOURCES:
                        yield inner if inner in SOURCES and inner.startswith(LAYERS[:3]) else file


@files
def test_rooms_import_what_stands_before_them(name: str) -> None:
    if name in ("ir/__init__.py", "passes/__init__.py"):
        return
    own = ROOMS.index(room_of(name))
    above = {room_of(p) for p in paths_of(name) if ROOMS.index(room_of(p)) > own}
    assert not {a for a in above if (name, a) not in AWAITED}, f"{name} imports {above}"


def test_no_modules_import_each_other_in_a_circle() -> None:
    imported = {name: {p for p in paths_of(name) if p != name} for name in SOURCES}
    list(TopologicalSorter(imported).static_order())  # raises CycleError, which names the circle


@files
def test_our_modules_are_imported_under_their_full_name(name: str) -> None:
    bare = [m for m in imports(name) if m.split(".")[0] in ("ir", "passes", "backends", "tests")]
    assert not bare


@files
def test_each_package_has_its_one_importer(name: str) -> None:
    used = {m.split(".")[0] for m in imports(name)}
    for package, owners in SOLE.items():
        assert package not in used or name.startswith(owners), f"{name} imports {package}"


def test_the_engine_depends_on_what_it_declares() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    found = re.search(r"^dependencies = \[(.*?)\]", text, re.MULTILINE | re.DOTALL)
    assert found
    declared = set(re.findall(r'"([\w-]+)', found.group(1)))
    used = {m.split(".")[0] for name in SOURCES for m in imports(name)}
    assert used - declared - sys.stdlib_module_names == {"rlx_py"}


@files
def test_imports_stand_at_the_top(name: str) -> None:
    module = tree(name)
    top = set(module.body)
    for node in module.body:  # what only the type checker sees is at the top as well
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            top.update(node.body)
    late = [node.lineno for node in ast.walk(module)
            if isinstance(node, ast.Import | ast.ImportFrom) and node not in top]
    assert not late, f"{name} imports inside at lines {late}"


@files
def test_what_is_public_is_documented(name: str) -> None:
    if name.startswith("passes/rewrite/rules/"):
        pytest.skip("the comment beside a rule is its equation")
    module = tree(name)
    assert ast.get_docstring(module), f"{name} has no docstring"
    bare = [q for q, node, public in functions(name) if public and not ast.get_docstring(node)]
    bare += [node.name for node in ast.walk(module) if isinstance(node, ast.ClassDef)
             and node.name[0] != "_" and not ast.get_docstring(node)]
    assert not bare


@files
def test_every_signature_is_annotated(name: str) -> None:
    for qualified, node, _ in functions(name):
        a = node.args
        given = [*a.posonlyargs, *a.args, *a.kwonlyargs, *filter(None, (a.vararg, a.kwarg))]
        bare = [g.arg for g in given if g.annotation is None and g.arg not in ("self", "cls")]
        assert not bare, f"{name}: {qualified}({', '.join(bare)})"
        assert node.returns is not None, f"{name}: {qualified} -> ?"


@files
def test_files_stay_short(name: str) -> None:
    if name.endswith("__init__.py"):
        pytest.skip("a list of names")
    assert len(SOURCES[name].read_text(encoding="utf-8").splitlines()) <= LINES


@files
def test_what_is_never_written(name: str) -> None:
    text = SOURCES[name].read_text(encoding="utf-8")
    assert not re.search(r"\b(TODO|FIXME|XXX|HACK)\b", text)
    own = {node.arg for node in ast.walk(tree(name)) if isinstance(node, ast.arg)}
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.ExceptHandler):
            caught = ast.unparse(node.type) if node.type else ""
            assert caught and not re.search(r"\b(Base)?Exception\b", caught), (
                f"{name}:{node.lineno} catches everything")
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)  # eval is also what an Op calls its NumPy meaning
            assert called in own or called not in ("eval", "exec", "__import__"), (
                f"{name}:{node.lineno} calls {called}")
        if isinstance(node, ast.Import):
            assert all(alias.name not in ("pickle", "marshal", "shelve") for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            assert all(alias.name != "*" for alias in node.names)


@pytest.mark.parametrize("name", [n for n in SOURCES if n.endswith("__init__.py")])
def test_a_package_file_only_names_what_is_elsewhere(name: str) -> None:
    allowed = (ast.Import, ast.ImportFrom, ast.Expr, ast.Assign, ast.AnnAssign)
    assert all(isinstance(node, allowed) for node in tree(name).body)


def test_the_links_lead_to_the_folders_at_the_root() -> None:
    for layer in LAYERS[:3]:
        assert (ROOT / "rlx_py" / layer).resolve() == (ROOT / layer).resolve()
