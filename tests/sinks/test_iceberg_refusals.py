"""What a table asks for and cannot get is refused by name, before anything is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

from seamark.errors import RefusedError
from seamark.sinks.iceberg.table_checks import check_table
from seamark.testing.conformance.sink_examples import epoch
from tests.sinks.support import iceberg
from tests.sinks.support.iceberg import HandWritten


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"write.format.default": "orc"}, r"orc files \(write.format.default\)"),
        ({"encryption.key-id": "k"}, r"encrypted \(encryption.key-id\)"),
        ({"write.location-provider.impl": "com.example.Mine"}, "by a Java class"),
        ({"write.parquet.compression-level": "high"}, "cannot be heeded"),
    ],
)
def test_a_table_that_cannot_be_written_as_it_asks_is_refused(
    tmp_path: Path, properties: dict[str, str], words: str
) -> None:
    with iceberg.make_table(tmp_path).transaction() as change:
        change.set_properties(properties)
    sink = HandWritten(iceberg.properties(tmp_path), iceberg.TABLE)
    with pytest.raises(RefusedError, match=words):
        sink.open("trades", "bars", iceberg.SCHEMA)


def test_a_table_of_a_newer_format_is_refused() -> None:
    newer = new_table_metadata(
        Schema(),
        UNPARTITIONED_PARTITION_SPEC,
        UNSORTED_SORT_ORDER,
        "file:///nowhere",
        {"format-version": "3"},
    )
    with pytest.raises(RefusedError, match="format version 3"):
        check_table(newer, "")


def test_an_upsert_into_a_table_with_equality_deletes_is_refused_before_the_decision(
    tmp_path: Path,
) -> None:
    """pyiceberg cannot write any, so a snapshot only says that there are some, as Flink's do."""
    table = iceberg.make_table(tmp_path)

    def sink(*options: Any, **more: Any) -> HandWritten:
        made = HandWritten(iceberg.properties(tmp_path), iceberg.TABLE, *options, **more)
        made.open("trades", "bars", iceberg.SCHEMA)
        return made

    running = sink("upsert", keys="n")
    table.append(iceberg.lines([1]), snapshot_properties={"added-equality-deletes": "2"})
    with pytest.raises(RefusedError, match="equality deletes"):
        running.stage(iceberg.frame([1]), epoch(1), "a1")
    with pytest.raises(RefusedError, match="equality deletes"):
        sink("upsert", keys="n")
    appending = sink()
    appending.stage(iceberg.frame([2]), epoch(1), "a2")
    appending.commit(appending.prepare())
