"""A source is asked before a start whether it has what comes next; a start that may not go on
changes nothing."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from seamark.errors import InvalidInputError, PositionUnavailable
from seamark.manifest import CheckpointManifest, ConnectorCheckpoint
from seamark.pipeline.declaration.compatibility import (
    Compatibility,
    check_checkpoint,
)
from seamark.pipeline.declaration.structure import PipelineIdentity
from seamark.sources import DeltaSource
from seamark.sources.position_looks import look_at_line
from tests.sources.test_delta import append, source

deltalake = pytest.importorskip("deltalake")


def line_after(table: Path, rows: int) -> str:
    [*_, (_, position)] = source(table).read_from(None, rows)
    return json.dumps({"sequence": rows, "position": position, "digest": "a" * 64})


def identity(table: Path) -> PipelineIdentity:
    structure: dict[str, Any] = {"sources": {"orders": {}}, "sinks": {}}
    look = partial(look_at_line, "orders", DeltaSource, {"PATH": str(table)})
    return PipelineIdentity(
        name="p", structure=structure, leaves=("orders",), looks={"orders": look}
    )


def checkpoint(line: str) -> CheckpointManifest:
    at = {"orders": ConnectorCheckpoint({}, 1, {"line": line})}
    structure: dict[str, Any] = {"sources": {"orders": {}}, "sinks": {}}
    return CheckpointManifest.new(1, epoch=1, source_offsets=at).with_extra(structure=structure)


def test_expired_history_is_found_before_the_store_is_claimed(tmp_path: Path) -> None:
    for number in range(3):
        append(tmp_path / "t", number)
    made = checkpoint(line_after(tmp_path / "t", 1))
    assert check_checkpoint(made, identity(tmp_path / "t"), "strict").fit is Compatibility.SAME
    deltalake.DeltaTable(tmp_path / "t").create_checkpoint()
    for version in (0, 1):
        (tmp_path / "t/_delta_log" / f"{version:020}.json").unlink()
    refused = check_checkpoint(made, identity(tmp_path / "t"), "strict")
    assert refused.fit is Compatibility.REFUSED
    assert refused.gone is not None
    assert "source 'orders': the Delta table no longer has its entry" in str(refused.gone)
    assert "version 1 is wanted, the oldest that the log has is 2" in str(refused.gone)
    assert (refused.gone.source, refused.gone.earliest) == ("orders", b"2")
    reset = check_checkpoint(made, identity(tmp_path / "t"), "auto_reset")
    assert reset.fit is Compatibility.RESET


def test_a_line_that_is_no_position_is_an_error_with_words(tmp_path: Path) -> None:
    append(tmp_path / "t", 1)
    look = identity(tmp_path / "t").looks["orders"]
    for line in ("{", "[]", "[" * 100_000):
        with pytest.raises(InvalidInputError):
            look(line)
    with pytest.raises(PositionUnavailable):
        look(json.dumps({"sequence": 1, "position": ["other", 0, "x"], "digest": "a" * 64}))
