"""Imports point down the layers that ARCHITECTURE.md lists, and nothing imports in a circle.

Every import counts: at the top of a module, inside a function, and under ``TYPE_CHECKING``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
PUBLIC = {"seamark", "seamark.__main__"}
"""The package itself, which loads the public names of all layers, and its main module."""


@cache
def layers() -> list[list[str]]:
    """The list in ARCHITECTURE.md, lowest layer first."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    block = re.search(r"^## Layers$.*?^```\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert block is not None, "ARCHITECTURE.md has no list of layers"
    return [line.split() for line in block[1].splitlines()][::-1]


@cache
def modules() -> dict[str, Path]:
    """The path of every module of the package."""
    paths = {}
    for path in SOURCE.joinpath("seamark").rglob("*.py"):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        paths[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return paths


@cache
def imports(*, at_import_time: bool = False) -> dict[str, dict[str, int]]:
    """The modules of ours that each module imports, with the line of the first import."""
    graph: dict[str, dict[str, int]] = {}
    for name, path in modules().items():
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        targets: dict[str, int] = {}
        for node in _import_nodes(ast.parse(path.read_text()), at_import_time=at_import_time):
            for target in _targets(node, package):
                if target != name:
                    targets.setdefault(target, node.lineno)
        graph[name] = targets
    return graph


def _import_nodes(tree: ast.AST, *, at_import_time: bool) -> Iterator[ast.Import | ast.ImportFrom]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif at_import_time and _runs_later(node):
            continue
        else:
            yield from _import_nodes(node, at_import_time=at_import_time)


def _runs_later(node: ast.AST) -> bool:
    """Whether what is inside is not run by an import: a function, or what only a checker reads."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        return True
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def _targets(node: ast.Import | ast.ImportFrom, package: str) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name in modules())
        return
    base = node.module or ""
    if node.level:
        parents = package.split(".")[: len(package.split(".")) - node.level + 1]
        base = ".".join([*parents, *([base] if base else [])])
    for alias in node.names:
        submodule = f"{base}.{alias.name}"
        if submodule in modules():
            yield submodule
        elif base in modules():
            yield base


@cache
def layer_of(module: str) -> tuple[int, str] | None:
    """The number and name of a module's layer, by the longest name that the module begins with."""
    matches = [
        (number, name)
        for number, names in enumerate(layers())
        for name in names
        if f"{module}.".startswith(f"seamark.{name}.")
    ]
    return max(matches, key=lambda match: len(match[1]), default=None)


def package_of(module: str) -> str:
    """The first name below ``seamark``."""
    return module.split(".")[1]


def edges() -> Iterator[tuple[str, str, str]]:
    """Every import between modules of ours: from, to, and where it is written."""
    for module, targets in imports().items():
        if module not in PUBLIC:
            for target, line in targets.items():
                yield module, target, f"{modules()[module].relative_to(ROOT)}:{line} → {target}"


def cycle_in(graph: Mapping[str, Iterable[str]]) -> list[str]:
    """One cycle of a graph, or nothing when it has none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_every_package_has_a_layer_and_a_row_in_the_table_of_packages() -> None:
    packages = {package_of(module) for module in modules() if module not in PUBLIC}
    listed = {name.partition(".")[0] for names in layers() for name in names}
    assert packages - {"testing"} == listed
    text = (ROOT / "ARCHITECTURE.md").read_text()
    table = text.partition("| package |")[2].partition("\n\n")[0]
    rows = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `")]
    assert sorted(re.findall(r"`(\w+)`", "".join(rows))) == sorted(packages)


def test_a_package_imports_only_from_the_layers_below_it() -> None:
    wrong = []
    for module, target, where in edges():
        if package_of(module) == "testing":
            continue
        lower, upper = layer_of(target), layer_of(module)
        assert upper is not None, module
        if target == "seamark":  # the public names, as a user imports them
            allowed = package_of(module) == "cli"
        else:
            allowed = lower is not None and (lower[1] == upper[1] or lower[0] < upper[0])
        if not allowed:
            wrong.append(where)
    assert wrong == []


def test_nothing_imports_the_testing_kit_and_the_kit_does_not_import_the_command_line() -> None:
    wrong = [
        where
        for module, target, where in edges()
        if (package_of(module) == "testing" and target.startswith("seamark.cli"))
        or (package_of(module) != "testing" and target.startswith("seamark.testing"))
    ]
    assert wrong == []


def sub_packages() -> list[str]:
    """The packages inside of packages, such as ``pipeline.epoch``."""
    inits = [name for name, path in modules().items() if path.name == "__init__.py"]
    return [name.removeprefix("seamark.") for name in sorted(inits) if name.count(".") == 2]


@pytest.mark.parametrize("sub_package", sub_packages())
def test_no_way_leads_from_a_sub_package_through_its_neighbours_back_to_it(
    sub_package: str,
) -> None:
    parent, _, name = sub_package.partition(".")
    graph: dict[str, set[str]] = {}
    for module, target, _ in edges():
        if module.startswith(f"seamark.{parent}.") and target.startswith(f"seamark.{parent}."):
            neighbour, imported = module.split(".")[2], target.split(".")[2]
            if neighbour != imported:
                graph.setdefault(neighbour, set()).add(imported)
    reached: set[str] = set()
    waiting = list(graph.get(name, ()))
    while waiting:
        neighbour = waiting.pop()
        if neighbour not in reached:
            reached.add(neighbour)
            waiting += graph.get(neighbour, ())
    assert name not in reached


def test_no_module_imports_itself_by_way_of_others_when_it_is_loaded() -> None:
    assert cycle_in(imports(at_import_time=True)) == []


def test_this_test_sees_imports_inside_functions_and_those_of_type_checkers() -> None:
    code = """
import seamark.errors
def later() -> None:
    from seamark import limits
if TYPE_CHECKING:
    from seamark.store import CheckpointStore
"""
    tree = ast.parse(code)
    everything = [node.lineno for node in _import_nodes(tree, at_import_time=False)]
    at_once = [node.lineno for node in _import_nodes(tree, at_import_time=True)]
    assert (everything, at_once) == ([2, 4, 6], [2])
    assert cycle_in({"a": ["b"], "b": ["c"], "c": ["a"]}) != []
    assert cycle_in({"a": ["b", "c"], "b": ["c"]}) == []
