"""Whoever opens a module finds its tests: by its name, or by a line of its docstring."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TESTS = {path.stem.removeprefix("test_") for path in ROOT.joinpath("tests").rglob("test_*.py")}
MODULES = [
    path.relative_to(ROOT)
    for path in sorted(ROOT.joinpath("src", "seamark").rglob("*.py"))
    if path.name not in ("__init__.py", "_version.py") and "testing" not in path.parts
]


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_a_module_has_a_test_of_its_name_or_names_one(module: Path) -> None:
    if module.stem in TESTS:
        return
    text = ast.get_docstring(ast.parse(ROOT.joinpath(module).read_text())) or ""
    named = re.search(r"Tests: (``tests/\S+\.py``(?:, ``tests/\S+\.py``)*)\.$", text, re.MULTILINE)
    assert named, f"no tests/…/test_{module.stem}.py, and the docstring names none"
    for path in named[1].replace("``", "").split(", "):
        assert ROOT.joinpath(path).is_file(), f"{path} is not there"
