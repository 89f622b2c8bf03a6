"""A source is asked before a start whether it has what comes next; a start that may not go on
changes nothing."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seamark.errors import (
    InvalidInputError,
    PositionUnavailable,
    RefusedError,
    SourceSilentError,
)
from seamark.manifest import CheckpointManifest, ConnectorCheckpoint
from seamark.pipeline.declaration.compatibility import (
    Compatibility,
    check_checkpoint,
)
from seamark.pipeline.declaration.structure import PipelineIdentity
from seamark.sources import DeltaSource, SequencedSource
from seamark.sources.position_looks import PositionLook
from seamark.spark.source_gaps import gap_texts
from tests.sources.test_delta import append, source

deltalake = pytest.importorskip("deltalake")


def line_after(table: Path, rows: int) -> str:
    [*_, (_, position)] = source(table).read_from(None, rows)
    return json.dumps({"sequence": rows, "position": position, "digest": "a" * 64})


def identity(table: Path) -> PipelineIdentity:
    structure: dict[str, Any] = {"sources": {"orders": {}}, "sinks": {}}
    look = PositionLook("orders", DeltaSource, {"PATH": str(table)}, patience=300)
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
            look.check(line)
    with pytest.raises(PositionUnavailable):
        look.check(json.dumps({"sequence": 1, "position": ["other", 0, "x"], "digest": "a" * 64}))


def expired(table: Path) -> str:
    """A line whose next version is gone; version 2 is left."""
    for number in range(3):
        append(table, number)
    line = line_after(table, 1)
    deltalake.DeltaTable(table).create_checkpoint()
    for version in (0, 1):
        (table / "_delta_log" / f"{version:020}.json").unlink()
    return line


def test_an_anchor_makes_a_gap_of_it_and_keeps_what_was_counted(tmp_path: Path) -> None:
    line = expired(tmp_path / "t")
    anchors: dict[str, Any] = {"orders": "earliest"}
    check = check_checkpoint(checkpoint(line), identity(tmp_path / "t"), "strict", anchors)
    assert check.fit is Compatibility.GOES_ON
    assert "the table at version 2 instead of version 1" in check.changes[0]
    [gap] = check.gaps
    moved = json.loads(gap.lines[line])
    before = json.loads(line)
    assert (moved["sequence"], moved["digest"]) == (before["sequence"], before["digest"])
    assert moved["position"][:2] == [before["position"][0], 2]
    [told] = gap_texts([gap.document(1, 1_700_000_000_000)])
    assert "gap after epoch 1: the table went on at version 2 instead of version 1" in told


def test_without_an_anchor_the_error_names_the_ways_on(tmp_path: Path) -> None:
    line = expired(tmp_path / "t")
    refused = check_checkpoint(checkpoint(line), identity(tmp_path / "t"), "strict")
    assert refused.gone is not None
    assert "reanchor={'orders': 'earliest'}" in str(refused.gone)


def test_a_source_that_has_read_nothing_has_nothing_to_move(tmp_path: Path) -> None:
    expired(tmp_path / "t")
    line = json.dumps({"sequence": 0, "position": None, "digest": "0" * 64})
    anchors: dict[str, Any] = {"orders": "earliest"}
    with pytest.raises(RefusedError, match="no row of source 'orders' was read yet"):
        check_checkpoint(checkpoint(line), identity(tmp_path / "t"), "strict", anchors)


def test_a_source_of_another_kind_says_that_it_cannot_go_on_elsewhere(tmp_path: Path) -> None:
    class Plain(DeltaSource):
        anchored = SequencedSource.anchored

    look = PositionLook("orders", Plain, {"path": str(tmp_path / "t")}, patience=300)
    line = expired(tmp_path / "t")
    with pytest.raises(PositionUnavailable) as gone:
        look.check(line)
    assert "reanchor" not in str(gone.value)
    with pytest.raises(RefusedError, match="cannot go on elsewhere"):
        look.moved(line, "earliest")


@pytest.fixture
def port() -> Iterator[int]:
    """A server that accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize("answers", [True, False])
def test_a_table_whose_place_does_not_answer_is_waited_for_only_so_long(
    port: int, answers: bool
) -> None:
    """One place accepts connections and is silent; nobody listens at the other."""
    endpoint = f"http://127.0.0.1:{port if answers else 1}"
    options = {"aws_endpoint_url": endpoint, "aws_allow_http": "true", "max_retries": "0"}
    options |= {"aws_access_key_id": "a", "aws_secret_access_key": "b", "aws_region": "us-east-1"}
    storage = {f"storage.{name}": value for name, value in options.items()}
    look = PositionLook("orders", DeltaSource, {"path": "s3://b/t", **storage}, patience=2)
    line = json.dumps({"sequence": 1, "position": ["id", 0, "x"], "digest": "a" * 64})
    with pytest.raises(SourceSilentError):
        look.check(line)
