"""Opening a sink changes nothing at its target, and whatever is asked then has an answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql.types import LongType, StructField, StructType

from seamark.errors import RefusedError
from seamark.progress import rocksdb_url
from seamark.sinks import DeltaSink, FileSink, IcebergSink, KeyValueSink, PostgresSink, Sink
from seamark.testing.conformance.sink_examples import OLD, PIPELINE, SINK, epoch, through_json
from tests.sinks.support import iceberg, postgres
from tests.sinks.support.deltas import HandWrittenDelta, numbers
from tests.sinks.support.frames import frame
from tests.sinks.support.postgres_attacks import HandWrittenTable
from tests.sinks.support.starting import started

SCHEMA = iceberg.SCHEMA
WIDER = StructType([*SCHEMA.fields, StructField("more", LongType())])


def below(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def merging(folder: Path) -> Sink:
    iceberg.make_table(folder)
    return IcebergSink(iceberg.properties(folder), iceberg.TABLE, schema="merge")


def widening(folder: Path) -> Sink:
    started(DeltaSink(folder / "rows"), SCHEMA)
    return DeltaSink(folder / "rows", schema="merge")


MADE: dict[str, Callable[[Path], Sink]] = {
    "files": lambda folder: FileSink(folder / "rows"),
    "files in ranges": lambda folder: FileSink(folder / "rows", epochs_per_folder=4),
    "view": lambda folder: KeyValueSink(rocksdb_url(folder / "rows"), key="n"),
    "view with staging": lambda folder: KeyValueSink(
        rocksdb_url(folder / "rows"), key="n", staging=folder / "staging"
    ),
    "new delta": lambda folder: DeltaSink(folder / "rows"),
    "wider delta": widening,
    "wider iceberg": merging,
}


@pytest.mark.parametrize("kind", MADE)
def test_opening_a_sink_changes_nothing(tmp_path: Path, kind: str) -> None:
    sink = MADE[kind](tmp_path)
    before = below(tmp_path)
    sink.open(PIPELINE, SINK, WIDER)
    assert (sink.committed(OLD, 1), sink.newest(), sink.leftovers()) == (None, None, [])
    sink.abort("a1")
    sink.close()
    assert below(tmp_path) == before
    sink.open(PIPELINE, SINK, WIDER)
    sink.prepare_target()
    assert below(tmp_path) != before
    sink.close()


@pytest.mark.parametrize("kind", MADE)
def test_a_reset_takes_nothing_back_from_a_target_that_is_not_there(
    tmp_path: Path, kind: str
) -> None:
    sink = MADE[kind](tmp_path)
    sink.open(PIPELINE, SINK, WIDER)
    assert sink.unpublish_after(0) == []
    sink.close()


def test_columns_are_added_when_the_target_is_prepared(tmp_path: Path) -> None:
    (tmp_path / "delta").mkdir()
    (tmp_path / "iceberg").mkdir()
    sinks = [widening(tmp_path / "delta"), merging(tmp_path / "iceberg")]

    def columns() -> list[list[str]]:
        delta = DeltaTable(str(tmp_path / "delta" / "rows")).schema().fields
        fields = iceberg.table_at(tmp_path / "iceberg").schema().fields
        return [[field.name for field in delta], [field.name for field in fields]]

    for sink in sinks:
        sink.open(PIPELINE, SINK, WIDER)
    assert columns() == [["n", "word"]] * 2
    for sink in sinks:
        sink.prepare_target()
    assert columns() == [["n", "word", "more"]] * 2


def test_a_merge_that_is_refused_is_refused_by_the_look(tmp_path: Path) -> None:
    iceberg.make_table(tmp_path, pa.schema([("n", pa.string())]))
    sink = IcebergSink(iceberg.properties(tmp_path), iceberg.TABLE, schema="merge")
    with pytest.raises(RefusedError):
        sink.open(PIPELINE, SINK, SCHEMA)


def test_rows_that_were_staged_for_a_table_that_is_gone_are_cleared_away(tmp_path: Path) -> None:
    import shutil

    sink = started(HandWrittenDelta(tmp_path / "rows"), numbers([]).schema)
    sink.stage(numbers([1]), epoch(1), "a1")
    sink.prepare()
    shutil.rmtree(tmp_path / "rows" / "_delta_log")
    again = HandWrittenDelta(tmp_path / "rows")
    again.open(PIPELINE, SINK, numbers([]).schema)
    assert again.leftovers() == ["a1"]
    again.abort("a1")
    assert again.leftovers() == []
    assert below(tmp_path / "rows") == {}


def tables(dsn: str) -> list[tuple[Any, ...]]:
    query = (
        "SELECT c.relname, a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid "
        "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'public' ORDER BY 1, 2"
    )
    return postgres.rows_of(dsn, query)


def test_opening_a_sink_to_postgresql_makes_no_ledger(empty_database: str) -> None:
    postgres.empty(empty_database)
    postgres.run(empty_database, postgres.ROWS)
    before = tables(empty_database)
    sink = PostgresSink(empty_database, "rows", epoch_column="at_epoch")
    sink.open(PIPELINE, SINK, postgres.NUMBERS)
    assert (sink.committed(OLD, 1), sink.newest(), sink.leftovers()) == (None, None, [])
    sink.require_unpublish_after(0)
    assert tables(empty_database) == before
    sink.prepare_target()
    assert ("seamark_ledger", "epoch") in tables(empty_database)


def test_a_ledger_of_an_earlier_seamark_is_as_it_was_until_something_is_shown(
    empty_database: str,
) -> None:
    postgres.empty(empty_database)
    postgres.run(empty_database, postgres.ROWS)
    sink = HandWrittenTable(empty_database, "rows", epoch_column="at_epoch")
    started(sink, postgres.NUMBERS)
    sink.stage(frame([1]), epoch(1), "a1")
    committable = through_json(sink.prepare())
    drop = "ALTER TABLE seamark_ledger DROP COLUMN table_oid, DROP COLUMN epoch_column"
    postgres.run(empty_database, drop)
    before = tables(empty_database)
    again = HandWrittenTable(empty_database, "rows", epoch_column="at_epoch")
    again.open(PIPELINE, SINK, postgres.NUMBERS)
    assert again.newest() is None
    assert tables(empty_database) == before
    again.commit(committable)
    assert postgres.numbers(empty_database) == [1]
    assert again.newest() is not None


def test_who_may_not_make_the_ledger_is_told_by_the_look(empty_database: str) -> None:
    postgres.empty(empty_database)
    postgres.run(
        empty_database,
        postgres.ROWS,
        "DROP ROLE IF EXISTS looker",
        "CREATE ROLE looker LOGIN",
        "GRANT ALL ON rows TO looker",
    )
    with pytest.raises(RefusedError, match="does not allow it"):
        PostgresSink(postgres.with_options(empty_database, user="looker"), "rows").open(
            PIPELINE, SINK, postgres.NUMBERS
        )
