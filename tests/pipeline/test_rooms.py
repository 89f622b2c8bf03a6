"""The parts of the pipeline package, and which of them may import which."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import seamark.pipeline

ROOT = Path(seamark.pipeline.__path__[0])
MAY_IMPORT: dict[str, set[str]] = {
    "declaration": set(),
    "telemetry": set(),
    "epoch": {"declaration", "telemetry"},
    "recovery": {"declaration", "telemetry", "epoch"},
    "replay": {"declaration", "epoch", "recovery", "run_builder"},
}


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_a_room_of_the_pipeline_imports_only_the_rooms_below_it(room: str) -> None:
    """Imports inside functions and those for type checkers count as well."""
    imported = {
        (file.name, node.module.split(".")[2])
        for file in (ROOT / room).glob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ImportFrom)
        and node.module is not None
        and node.module.startswith("seamark.pipeline.")
    }
    allowed = {room, *MAY_IMPORT[room]}
    assert not {(module, other) for module, other in imported if other not in allowed}
