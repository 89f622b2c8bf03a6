"""DuckDB reads what each sink says is to be read, by the call that is made for it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.transforms import BucketTransform
from pyspark.sql.types import BooleanType, StructType

from seamark.sinks import Sink
from seamark.sinks.reader_calls import calls_for
from seamark.testing.conformance.sink_examples import PIPELINE, SINK, epoch, through_json
from tests.sinks.support import deltas, iceberg, postgres
from tests.support.duck import duckdb_with

WITH_DELETES = StructType([*deltas.NUMBERS.fields]).add("gone", BooleanType())


def rows(database: duckdb.DuckDBPyConnection, call: str) -> list[tuple[int, str]]:
    return sorted(database.execute(f"SELECT n, word FROM ({call})").fetchall())


def shown(values: Sequence[int]) -> list[tuple[int, str]]:
    return [(value, str(value)) for value in values]


def call_of(sink: Sink, committable: object) -> str:
    """The call that a checkpoint gives, whose committable went through JSON."""
    assert isinstance(committable, dict)
    point = sink.read_point(through_json(committable))
    assert point is not None
    return calls_for(point)["duckdb"]


def test_a_delta_table_has_all_epochs_up_to_each(tmp_path: Path) -> None:
    table = tmp_path / "it's [a] table"
    sink = deltas.HandWrittenDelta(table, partition_by="word")
    sink.open(PIPELINE, SINK, deltas.NUMBERS)
    calls = []
    for number in (1, 2, 3):
        sink.stage(deltas.numbers([number * 10, number]), epoch(number), f"a{number}")
        committable = sink.prepare()
        sink.commit(committable)
        calls.append(call_of(sink, committable))
    database = duckdb_with("delta")
    assert [rows(database, call) for call in calls] == [
        shown([1, 10]),
        shown([1, 2, 10, 20]),
        shown([1, 2, 3, 10, 20, 30]),
    ]


def test_a_delta_table_with_deleted_and_replaced_rows_is_read_as_of_each_epoch(
    tmp_path: Path,
) -> None:
    sink = deltas.HandWrittenDelta(tmp_path / "t", mode="upsert", keys="n", delete_where="gone")
    sink.open(PIPELINE, SINK, WITH_DELETES)
    calls = []
    for number, changes in enumerate(
        ([(1, "a", False), (2, "b", False)], [(1, "c", False), (2, "", True)]), 1
    ):
        frame = deltas.arrow_frame(
            WITH_DELETES, [dict(zip(("n", "word", "gone"), one, strict=True)) for one in changes]
        )
        sink.stage(frame, epoch(number), f"a{number}")
        committable = sink.prepare()
        sink.commit(committable)
        calls.append(call_of(sink, committable))
    database = duckdb_with("delta")
    assert [rows(database, call) for call in calls] == [[(1, "a"), (2, "b")], [(1, "c")]]


@pytest.mark.parametrize("is_new_process", [False, True])
def test_an_iceberg_table_has_all_epochs_up_to_each(tmp_path: Path, is_new_process: bool) -> None:
    with iceberg.make_table(tmp_path).update_spec() as spec:
        spec.add_field("n", BucketTransform(2), "part")
    sink = iceberg.HandWritten(iceberg.properties(tmp_path), iceberg.TABLE)
    sink.open(PIPELINE, SINK, iceberg.SCHEMA)
    calls = []
    for number in (1, 2, 3):
        sink.stage(iceberg.frame([number * 10, number]), epoch(number), f"a{number}")
        committable = sink.prepare()
        sink.commit(committable)
        if is_new_process:
            sink = iceberg.HandWritten(iceberg.properties(tmp_path), iceberg.TABLE)
            sink.open(PIPELINE, SINK, iceberg.SCHEMA)
        calls.append(call_of(sink, committable))
    database = duckdb_with("avro", "iceberg")
    assert [rows(database, call) for call in calls] == [
        shown([1, 10]),
        shown([1, 2, 10, 20]),
        shown([1, 2, 3, 10, 20, 30]),
    ]


def test_an_iceberg_table_with_replaced_rows_is_read_as_of_each_epoch(tmp_path: Path) -> None:
    iceberg.make_table(tmp_path)
    given = iceberg.properties(tmp_path)
    sink = iceberg.HandWritten(given, iceberg.TABLE, mode="upsert", keys="n")
    sink.open(PIPELINE, SINK, iceberg.SCHEMA)
    calls = []
    for number, words in enumerate((["a", "b", "c"], ["d", "e"]), 1):
        table = pa.table({"n": pa.array(range(len(words)), pa.int64()), "word": words})
        sink.stage(iceberg.as_frame(table), epoch(number), f"a{number}")
        committable = sink.prepare()
        sink.commit(committable)
        calls.append(call_of(sink, committable))
    database = duckdb_with("avro", "iceberg")
    assert [rows(database, call) for call in calls] == [
        [(0, "a"), (1, "b"), (2, "c")],
        [(0, "d"), (1, "e"), (2, "c")],
    ]


def test_a_table_of_postgresql_has_all_epochs_up_to_each(empty_database: str) -> None:
    postgres.run(empty_database, postgres.ROWS)
    sink = postgres.opened(empty_database, epoch_column="at_epoch")
    calls = [call_of(sink, postgres.show(sink, [number], number)) for number in (1, 2, 3)]
    database = duckdb_with("postgres_scanner")
    address = empty_database.replace("'", "''")
    database.execute(f"ATTACH '{address}' AS db (TYPE postgres, READ_ONLY)")
    assert [rows(database, call) for call in calls] == [shown([1]), shown([1, 2]), shown([1, 2, 3])]
