"""The newest checkpoint in the metrics: what ``seamark show`` tells about it, no more, no less."""

from __future__ import annotations

import math
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from seamark.capture.file_index import FileIndex, StoredFile
from seamark.manifest import CheckpointManifest, ConnectorCheckpoint, SinkCommitStatus
from seamark.manifest.facts import SharedObject
from seamark.pipeline.telemetry.checkpoint_metrics import (
    MOST_POSITIONS,
    NewestCheckpoint,
    read_positions,
)
from seamark.pipeline.telemetry.metrics import PipelineMetrics
from seamark.reports.checkpoint_files import IndexedFiles
from tests.pipeline.test_metrics import Scrape

OLD, NEW = (
    SharedObject(f"7-{letter * 32}", size, "0" * 64) for letter, size in (("a", 900), ("b", 50))
)
FILES = {
    "offsets/6": StoredFile(5, b""),
    "state/0/0/1.delta": StoredFile(100, b"", OLD, True),
    "state/0/1/1.delta": StoredFile(300, b"", OLD, True),
    "state/0/1/2.delta": StoredFile(40, b"", NEW),
    "state/1/0/2.delta": StoredFile(7, b""),
}
OPERATORS = ["0-stateStoreSave", "1-dedupe"]


def manifest(number: int = 7, **changes: Any) -> CheckpointManifest:
    return CheckpointManifest.new(number, epoch=number, **changes)


def kafka(line: str) -> ConnectorCheckpoint:
    return ConnectorCheckpoint(offsets={"shown": "only"}, epoch=7, metadata={"line": line})


def told(*newest: NewestCheckpoint) -> Scrape:
    registry = CollectorRegistry()
    metrics = PipelineMetrics("trades", registry)
    for each in newest:
        metrics.checkpoint_is(each)
    return Scrape(registry)


def test_files_add_up_by_operator_when_they_are_asked_for() -> None:
    new = {"offsets/6", "state/0/1/2.delta", "state/1/0/2.delta"}
    files = IndexedFiles(FileIndex(dict(FILES), OPERATORS), new, frozenset([NEW]))
    seen = told(NewestCheckpoint(manifest=manifest(), files=files))
    assert seen.get("checkpoint_object_bytes") == 950
    assert seen.get("checkpoint_referenced_bytes") == 900
    expected = {
        "0-stateStoreSave": (440, 40, 3, 340),
        "1-dedupe": (7, 7, 1, 7),
        "log": (None, None, None, None),
    }
    names = ("state_bytes", "state_new_bytes", "state_files", "state_largest_partition_bytes")
    found = {each: tuple(seen.get(n, operator=each) for n in names) for each in expected}
    assert found == expected


def test_after_a_start_nothing_is_called_new() -> None:
    files = IndexedFiles(FileIndex(dict(FILES), OPERATORS), (), frozenset())
    seen = told(NewestCheckpoint(manifest=manifest(), files=files, is_new_known=False))
    assert seen.get("state_bytes", operator="0-stateStoreSave") == 440
    assert seen.get("state_new_bytes", operator="0-stateStoreSave") is None
    assert seen.get("checkpoint_referenced_bytes") is None


def test_an_index_that_cannot_be_added_up_does_not_fail_a_scrape(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broken = FileIndex({"state/0/x": StoredFile(1, b"")}, OPERATORS)
    files = IndexedFiles(broken, (), frozenset())
    seen = told(NewestCheckpoint(manifest=manifest(), files=files))
    assert math.isnan(seen.get("state_bytes", operator="1-dedupe") or 0)
    assert caplog.text.count("the size of the state is not in the metrics") == 1


def test_sinks_that_are_gone_and_watermarks_that_are_unknown_disappear() -> None:
    statuses = {"bars": SinkCommitStatus.committed(), "large": SinkCommitStatus.failed("full")}
    first = manifest(
        7,
        watermark=1_700_000_000_500,
        next_watermark=1_700_000_001_500,
        source_watermarks={"trades": 1_700_000_002_000},
        sink_commit_statuses=statuses,
        sink_epochs={"bars": 7, "large": 6},
        sink_guarantees={"bars": "exactly once"},
        output_digests={
            "bars": {
                "rows": 3,
                "digest": "0" * 32,
                "since": 1,
                "total_rows": 21,
                "total_digest": "0" * 32,
            }
        },
    )
    seen = told(NewestCheckpoint(manifest=first))
    assert seen.get("watermark_timestamp_seconds") == 1_700_000_000.5
    assert seen.get("next_watermark_timestamp_seconds") == 1_700_000_001.5
    assert seen.get("source_watermark_timestamp_seconds", source="trades") == 1_700_000_002
    assert seen.get("sink_status", sink="bars", status="committed") == 1
    assert seen.get("sink_status", sink="bars", status="pending") == 0
    assert seen.get("sink_status", sink="large", status="failed") == 1
    assert seen.get("sink_committed_epoch", sink="large") == 6
    assert seen.get("sink_info", sink="bars", guarantee="exactly once") == 1
    assert seen.get("sink_epoch_rows", sink="bars") == 3
    assert seen.get("sink_history_rows", sink="bars") == 21
    later = manifest(8, sink_commit_statuses={"bars": SinkCommitStatus.committed()})
    seen = told(NewestCheckpoint(manifest=first), NewestCheckpoint(manifest=later))
    left = {name for name, labels in seen.samples if ("sink", "large") in labels}
    assert left == set()
    assert seen.get("watermark_timestamp_seconds") is None
    assert seen.get("sink_epoch_rows", sink="bars") is None


def test_positions_are_told_by_topic_and_partition_or_by_their_name() -> None:
    many = {str(number): str(number) for number in range(MOST_POSITIONS + 1)}
    found = read_positions(
        manifest(
            source_offsets={
                "trades": kafka('{"t-1":{"0":17,"10":20}}'),
                "files": ConnectorCheckpoint(
                    offsets={"logOffset": "3"}, metadata={"line": '{"logOffset":3}'}
                ),
                "table": ConnectorCheckpoint(offsets={"at": "2026-01-01", "id": "-5", "n": "²"}),
                "huge": ConnectorCheckpoint(offsets=many),
            }
        )
    )
    assert found == {
        ("trades", "t-1", "0"): 17,
        ("trades", "t-1", "10"): 20,
        ("files", "", "logOffset"): 3,
        ("table", "", "id"): -5,
    }


def test_lag_and_age_are_those_of_the_checkpoint() -> None:
    checkpoint = manifest(
        timestamp_ms=1_700_000_010_000,
        source_offsets={"trades": kafka('{"t":{"0":17,"1":20}}')},
        source_latest={"trades": '{"t":{"0":19,"1":20}}'},
        source_times={"trades": {"t-0": 1_700_000_000_000}},
    )
    seen = told(NewestCheckpoint(manifest=checkpoint))
    at = {"source": "trades", "topic": "t"}
    assert [seen.get("checkpoint_lag_rows", **at, partition=n) for n in "01"] == [2, 0]
    assert [seen.get("checkpoint_position_age_seconds", **at, partition=n) for n in "01"] == [10, 0]
    assert seen.get("checkpoint_timestamp_seconds") == 1_700_000_010
