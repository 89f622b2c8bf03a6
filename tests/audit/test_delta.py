"""Whatever happens to a Delta table, an audit finds it, and names the epoch where it can."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from seamark import Pipeline, open_store
from seamark.audit.declared_rows import as_declared, declared_schema
from seamark.errors import DamageError
from seamark.sinks import DeltaSink
from tests.audit.support.pipelines import (
    EPOCHS,
    ROW_DAMAGE,
    ROWS,
    SCHEMA,
    audited,
    damage_found,
    pipeline,
    rewrite,
    ten_epochs,
    write_input,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> Path:
    write_input(tmp_path / "input", 3)
    pipeline(spark, tmp_path, DeltaSink(tmp_path / "table")).run(available_now=True)
    return tmp_path


def file_of(table: Path, version: int) -> Path:
    """A file with rows that a version has added."""
    now = set(DeltaTable(str(table), version=version).file_uris())
    before = set(DeltaTable(str(table), version=version - 1).file_uris())
    return Path(min(now - before).removeprefix("file://"))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", ROW_DAMAGE)
def test_a_file_that_was_rewritten_in_place_is_found(
    spark: SparkSession, world: Path, kind: str
) -> None:
    assert not audited(spark, world / "store").is_damaged
    path = file_of(world / "table", version_of_epoch(world, 2))
    rewrite(path, lambda rows: ROW_DAMAGE[kind](rows, random.Random(1)))
    # the log knows how long the file was, so nobody can read the other one
    assert damage_found(audited(spark, world / "store")) == [
        ("trades", "2", "unreadable"),
        ("trades", "1 to 3", "unreadable"),
    ]


def test_rows_that_others_edited_are_found(spark: SparkSession, world: Path) -> None:
    DeltaTable(str(world / "table")).update(updates={"price": "price + 1"}, predicate="n = 25")
    assert damage_found(audited(spark, world / "store")) == [("trades", "1 to 3", "edited")]


def test_a_file_that_is_gone_and_rows_that_others_deleted_or_added_are_found(
    spark: SparkSession, world: Path
) -> None:
    table = DeltaTable(str(world / "table"))
    table.delete("n = 5")
    assert damage_found(audited(spark, world / "store")) == [("trades", "1 to 3", "lost")]
    row = table.to_pyarrow_table().slice(0, 2)
    write_deltalake(table, pa.table(row), mode="append")
    assert damage_found(audited(spark, world / "store")) == [("trades", "1 to 3", "doubled")]
    file_of(world / "table", version_of_epoch(world, 2)).unlink()
    found = damage_found(audited(spark, world / "store"))
    assert ("trades", "2", "unreadable") in found


def version_of_epoch(world: Path, epoch: int) -> int:
    with open_store(world / "store") as store:
        for number in store.list_ids():
            manifest = store.load_by_id(number)
            if manifest is not None and manifest.epoch == epoch:
                points: dict[str, Any] = manifest.read_points or {}
                return int(points["trades"]["at"]["version"])
    raise AssertionError(epoch)


def test_rows_that_were_there_before_the_pipeline_are_not_its_own(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_input(tmp_path / "input", 3)
    before = spark.read.schema("n bigint, name string, price double, at timestamp")
    rows = before.json(str(tmp_path / "input")).toArrow()
    write_deltalake(str(tmp_path / "table"), rows)
    pipeline(spark, tmp_path, DeltaSink(tmp_path / "table")).run(available_now=True)
    found = audited(spark, tmp_path / "store")
    assert not found.is_damaged
    note = "60 rows of the table are not the pipeline's"
    assert found.sinks[0].verdicts[-1].text == note
    sink = DeltaSink(tmp_path / "table")
    sink.compact()
    assert sink.vacuum(0)
    found = audited(spark, tmp_path / "store")
    assert not found.is_damaged
    gone = "only counted: the table as epoch 1 has left it is gone"
    assert found.sinks[0].verdicts[-1].text == f"{note}; {gone}"
    DeltaTable(str(tmp_path / "table")).delete("n = 5")
    assert damage_found(audited(spark, tmp_path / "store")) == [("trades", "1 to 3", "lost")]


def test_the_rows_of_an_epoch_in_a_partitioned_table_are_found_by_its_own_entry(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_input(tmp_path / "input", 3)
    p = Pipeline("audited", tmp_path / "store", progress=None)
    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    df = p.source("rows", rows.json(str(tmp_path / "input"))).selectExpr(
        *(
            "n",
            "concat(name, '/% =') AS name",
            "date_trunc('MINUTE', at) + INTERVAL 1 MICROSECOND AS at",
        ),
        *(
            "to_date(at) AS day",
            "CAST(n % 3 AS INT) AS part",
            "CAST(n % 2 AS DECIMAL(9, 2)) AS half",
        ),
    )
    by = ("name", "day", "part", "half", "at")
    p.sink("trades", df, DeltaSink(tmp_path / "table", partition_by=by))
    p.run(available_now=True)
    found = audited(spark, tmp_path / "store")
    results = [(each.result.value, each.found_rows) for each in found.sinks[0].verdicts]
    assert results == [("ok", ROWS), ("ok", ROWS), ("ok", ROWS), ("ok", 3 * ROWS)]
    entry = tmp_path / f"table/_delta_log/{version_of_epoch(tmp_path, 2):020}.json"
    lines = entry.read_text().splitlines()
    lost = next(line for line in lines if line.startswith('{"add"'))
    entry.write_text("\n".join(line for line in lines if line != lost))
    assert ("trades", "2", "lost") in damage_found(audited(spark, tmp_path / "store"))


def test_a_table_that_is_compacted_and_vacuumed_shows_the_same_rows(
    spark: SparkSession, world: Path
) -> None:
    table = DeltaTable(str(world / "table"))
    table.optimize.compact()
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    found = audited(spark, world / "store")
    whole = found.sinks[0].verdicts[-1]
    assert (whole.epochs, whole.result.value, whole.found_rows) == ("1 to 3", "ok", 3 * ROWS)
    assert damage_found(found) == []
    assert {each.text for each in found.sinks[0].verdicts[:-1]} == {
        "the table does not keep what this epoch has added"
    }


def test_an_overwritten_table_is_its_newest_epoch_and_a_keyed_one_is_not_compared(
    spark: SparkSession, tmp_path: Path
) -> None:
    sink = DeltaSink(tmp_path / "table", mode="overwrite", partition_by="name")
    store = ten_epochs(spark, tmp_path, sink)
    found = audited(spark, store)
    assert not found.is_damaged
    assert found.sinks[0].verdicts[-1].found_rows == ROWS
    assert DeltaSink(tmp_path / "table").vacuum(0)
    found = audited(spark, store)
    assert not found.is_damaged
    assert found.sinks[0].verdicts[-1].found_rows == ROWS
    assert found.sinks[0].verdicts[0].text == "the table does not keep this version any more"
    DeltaTable(str(tmp_path / "table")).delete("price > 3")
    assert damage_found(audited(spark, store)) == [("trades", str(EPOCHS), "lost")]
    Path(DeltaTable(str(tmp_path / "table")).file_uris()[0].removeprefix("file://")).unlink()
    assert damage_found(audited(spark, store)) == [("trades", str(EPOCHS), "unreadable")]
    keyed = tmp_path / "keyed"
    keyed.mkdir()
    store = ten_epochs(spark, keyed, DeltaSink(keyed / "t", mode="upsert", keys="n"))
    (verdict,) = audited(spark, store).sinks[0].verdicts
    assert verdict.result.value == "not compared"
    assert "a row for each key" in verdict.text


def test_a_column_that_is_not_there_any_more_is_named(spark: SparkSession) -> None:
    schema = declared_schema([("id", "bigint"), ("gone", "struct<a:int,b:array<string>>")])
    assert schema is not None
    with pytest.raises(DamageError, match="no column 'gone' any more"):
        as_declared(spark.range(1), schema)
    assert declared_schema([("id", "struct<a b:int>")]) is None
    narrow = as_declared(spark.range(1), schema_of("id int"))
    assert narrow.schema.simpleString() == "struct<id:int>"


def schema_of(text: str) -> Any:
    name, _, kind = text.partition(" ")
    return declared_schema([(name, kind)])
