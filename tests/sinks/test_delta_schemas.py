"""Which columns go to a Delta table, decided before the first row."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, Schema, write_deltalake
from deltalake.schema import PrimitiveType
from pyspark.sql import DataFrame
from pyspark.sql import types as t

from seamark.errors import InvalidInputError, RefusedError
from seamark.sinks import DeltaSink
from seamark.sinks.delta.schemas import columns_of, fit
from seamark.testing.conformance.sink_examples import PIPELINE, SINK, epoch
from seamark.testing.conformance.sink_visibility import together
from tests.sinks.support.deltas import NUMBERS, HandWrittenDelta, arrow_frame, numbers, rows_in
from tests.sinks.support.starting import started

LONG, TEXT = t.LongType(), t.StringType()


def schema(**columns: t.DataType) -> t.StructType:
    return t.StructType([t.StructField(name, kind) for name, kind in columns.items()])


def refused(columns: t.StructType, match: str, **given: Any) -> None:
    options: dict[str, Any] = {"partition_by": (), "keys": (), "delete_where": None} | given
    with pytest.raises(RefusedError, match=match):
        columns_of(columns.jsonValue(), where="here", **options)


def test_columns_that_delta_cannot_hold_are_refused_by_name() -> None:
    refused(schema(n=LONG, gap=t.DayTimeIntervalType()), "'gap'")
    refused(schema(n=t.NullType()), "'n' .void")
    refused(schema(n=t.ArrayType(schema(x=t.VariantType()))), "'n' .variant")
    refused(schema(**{"a b": LONG}), "' ' in its name: 'a b'")
    refused(schema(n=LONG, N=LONG), "capitals aside: n")


def test_keys_partitions_and_the_column_of_deletions_must_be_there_and_fit() -> None:
    refused(schema(n=LONG), "no column 'x' to partition by", partition_by=["x"])
    refused(schema(n=LONG, p=t.BinaryType()), "'p' .binary. cannot partition", partition_by=["p"])
    refused(schema(n=LONG, p=t.ArrayType(LONG)), "array<long>. cannot be a key", keys=["p"])
    refused(schema(n=LONG), "no column is left", partition_by=["n"])
    refused(schema(n=LONG, gone=TEXT), "not a boolean", keys=["n"], delete_where="gone")
    refused(schema(n=LONG), "not a boolean", keys=["n"], delete_where="gone")


def test_arguments_that_contradict_each_other_are_refused() -> None:
    wrong: list[dict[str, Any]] = [
        {"mode": "merge"},
        {"mode": "upsert"},
        {"keys": "n"},
        {"delete_where": "gone"},
        {"schema": "evolve"},
    ]
    for arguments in wrong:
        with pytest.raises(InvalidInputError):
            DeltaSink("/data/t", **arguments)


def test_of_many_who_make_the_table_one_does(tmp_path: Path) -> None:
    for number in range(5):
        handles = [DeltaSink(tmp_path / str(number)) for _ in range(6)]
        together([partial(started, handle, NUMBERS) for handle in handles])
        assert DeltaTable(str(tmp_path / str(number))).version() == 0


@pytest.fixture
def table(tmp_path: Path) -> Path:
    started(DeltaSink(tmp_path / "rows", partition_by="word"), NUMBERS)
    return tmp_path / "rows"


def test_what_does_not_fit_a_table_is_refused_before_anything_is_written(table: Path) -> None:
    cases: list[tuple[t.StructType, dict[str, Any], str]] = [
        (schema(n=t.IntegerType(), word=TEXT), {}, "'n' is integer, and long in the table"),
        (schema(n=LONG, Word=TEXT), {}, "column 'Word', and the table has 'word'"),
        (schema(n=LONG, word=TEXT, more=LONG), {}, "the table has no column 'more'"),
        (schema(n=LONG), {}, "partitioned by 'word', which the output lacks"),
        (NUMBERS, {"partition_by": "n"}, "partitioned by word, not by n"),
    ]
    for columns, options, match in cases:
        with pytest.raises(RefusedError, match=match):
            DeltaSink(table, **options).open(PIPELINE, SINK, columns)
    assert DeltaTable(str(table)).version() == 0
    assert not (table / "_seamark").exists()


def test_columns_are_added_to_the_table_when_that_is_wished(table: Path) -> None:
    wider = schema(n=LONG, word=TEXT, at=t.TimestampType(), deep=schema(x=t.ArrayType(LONG)))
    sink = HandWrittenDelta(table, schema="merge")
    sink.open(PIPELINE, SINK, wider)
    sink.open(PIPELINE, SINK, wider)
    row = {"n": 1, "word": "x", "at": None, "deep": {"x": [1]}}
    sink.stage(arrow_frame(wider, [row]), epoch(1), "a1")
    sink.commit(sink.prepare())
    assert rows_in(table) == [row]
    narrow = HandWrittenDelta(table)
    narrow.open(PIPELINE, SINK, NUMBERS)
    narrow.stage(arrow_frame(NUMBERS, [{"n": 2, "word": "y"}]), epoch(2), "a2")
    narrow.commit(narrow.prepare())
    assert {"n": 2, "word": "y", "at": None, "deep": None} in rows_in(table)
    with pytest.raises(RefusedError, match="'n' is string"):
        DeltaSink(table, schema="merge").open(PIPELINE, SINK, schema(n=TEXT, word=TEXT))


def test_several_may_add_the_same_columns_at_once(table: Path) -> None:
    wider = schema(n=LONG, word=TEXT, at=t.TimestampType(), local=t.TimestampNTZType())
    handles = [DeltaSink(table, schema="merge") for _ in range(5)]
    together([partial(started, handle, wider) for handle in handles])
    names = [field.name for field in DeltaTable(str(table)).schema().fields]
    assert names == ["n", "word", "at", "local"]


def test_a_value_that_the_table_demands_is_demanded(tmp_path: Path) -> None:
    strict = t.StructType([t.StructField("n", LONG, nullable=False), t.StructField("word", TEXT)])
    fields = strict.jsonValue()["fields"]
    with pytest.raises(RefusedError, match="demands a value for 'n'"):
        fit({"word": "string"}, fields, "here")
    assert fit({"n": "long"}, fields, "here").never_null == {"n"}
    table = tmp_path / "rows"
    DeltaTable.create(str(table), Schema.from_json(strict.json()))
    sink = HandWrittenDelta(table)
    sink.open(PIPELINE, SINK, NUMBERS)
    with pytest.raises(RefusedError, match="without a value for 'n'"):
        sink.stage(arrow_frame(NUMBERS, [{"n": None, "word": "x"}]), epoch(1), "a1")
    assert sink.leftovers() == ["a1"]
    sink.abort("a1")
    assert not [*table.rglob("seamark/**/*.parquet")]


def test_a_table_that_another_one_took_the_place_of_is_not_written_to(table: Path) -> None:
    sink = HandWrittenDelta(table)
    sink.open(PIPELINE, SINK, NUMBERS)
    sink.stage(arrow_frame(NUMBERS, [{"n": 1, "word": "x"}]), epoch(1), "a1")
    committable = sink.prepare()
    shutil.rmtree(table / "_delta_log")
    started(DeltaSink(table), NUMBERS)
    for handle in (sink, HandWrittenDelta(table)):
        handle.open(PIPELINE, SINK, NUMBERS)
        with pytest.raises(RefusedError, match="not the one that epoch 1 was written for"):
            handle.commit(committable)
    assert rows_in(table) == []


@pytest.mark.parametrize("versions", [1, 2, 5])
def test_a_running_sink_notices_that_its_table_was_made_anew_with_as_many_versions(
    table: Path, versions: int
) -> None:
    sink = HandWrittenDelta(table)
    sink.open(PIPELINE, SINK, NUMBERS)
    sink.stage(numbers([1]), epoch(1), "a1")
    sink.commit(sink.prepare())
    sink.stage(numbers([2]), epoch(2), "a2")
    committable = sink.prepare()
    shutil.rmtree(table / "_delta_log")
    DeltaTable.create(str(table), Schema.from_json(NUMBERS.json()))
    others = [*range(100, 100 + versions)]
    for n in others:
        write_deltalake(table, pa.table({"n": [n], "word": ["x"]}), mode="append")
    with pytest.raises(RefusedError, match="not the one that epoch 2 was written for"):
        sink.commit(committable)
    assert sorted(row["n"] for row in rows_in(table)) == others


def change_table(table: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """As another engine would: it empties the table and describes it anew, under the same id."""
    opened = DeltaTable(str(table))
    log = table / "_delta_log"
    first = [json.loads(line) for line in (log / f"{0:020}.json").read_text().splitlines()]
    about = next(line["metaData"] for line in first if "metaData" in line)
    change(about)
    names = opened.get_add_actions().column("path").to_pylist()
    removed = [{"path": name, "deletionTimestamp": 1, "dataChange": True} for name in names]
    lines = [{"metaData": about}, *({"remove": one} for one in removed)]
    entry = log / f"{opened.version() + 1:020}.json"
    entry.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.parametrize("mode", ["append", "overwrite"])
@pytest.mark.parametrize(("before", "after"), [(["word"], []), ([], ["word"]), (["word"], ["n"])])
def test_rows_staged_for_other_partitions_than_the_table_has_now_are_refused(
    tmp_path: Path, mode: Any, before: list[str], after: list[str]
) -> None:
    """A file leaves out the columns that it is partitioned by: they would be lost."""
    table = tmp_path / "rows"
    sink = HandWrittenDelta(table, mode=mode, partition_by=before)
    sink.open(PIPELINE, SINK, NUMBERS)
    sink.stage(arrow_frame(NUMBERS, [{"n": 1, "word": "x"}]), epoch(1), "a1")
    committable = sink.prepare()
    change_table(table, lambda about: about.update(partitionColumns=after))
    for handle in (sink, HandWrittenDelta(table, mode=mode)):
        if handle is not sink:
            handle.open(PIPELINE, SINK, NUMBERS)
        with pytest.raises(RefusedError, match="the table is partitioned by"):
            handle.commit(committable)
    assert rows_in(table) == []


def stage_and_prepare(sink: HandWrittenDelta, rows: DataFrame) -> None:
    sink.stage(rows, epoch(1), "a1")
    sink.prepare()


def test_an_empty_text_in_a_partition_that_needs_a_value_is_refused_before_the_decision(
    tmp_path: Path,
) -> None:
    """Delta writes it as null, so the commit could not be made."""
    fields = [t.StructField("n", t.LongType()), t.StructField("word", t.StringType(), False)]
    table = tmp_path / "rows"
    made = Schema.from_json(t.StructType(fields).json())
    DeltaTable.create(str(table), made, partition_by=["word"])
    rows = arrow_frame(t.StructType(fields), [{"n": 1, "word": "a"}, {"n": 2, "word": ""}])
    options: list[dict[str, Any]] = [{}, *({"mode": "upsert", "keys": k} for k in ("n", "word"))]
    for one in options:
        sink = HandWrittenDelta(table, **one)
        sink.open(PIPELINE, SINK, t.StructType(fields))
        with pytest.raises(RefusedError, match="an empty text in 'word'"):
            stage_and_prepare(sink, rows)
        sink.abort("a1")


@pytest.mark.parametrize("given", [{}, {"partition_by": "word"}, {"mode": "upsert", "keys": "n"}])
def test_a_value_that_the_table_has_come_to_demand_is_demanded_of_staged_rows(
    tmp_path: Path, given: dict[str, Any]
) -> None:
    table = tmp_path / "rows"
    sink = HandWrittenDelta(table, **given)
    sink.open(PIPELINE, SINK, NUMBERS)
    sink.stage(arrow_frame(NUMBERS, [{"n": 1, "word": None}]), epoch(1), "a1")
    committable = sink.prepare()

    def demand(about: dict[str, Any]) -> None:
        fields = json.loads(about["schemaString"])
        fields["fields"][1]["nullable"] = False
        about["schemaString"] = json.dumps(fields)

    change_table(table, demand)
    with pytest.raises(RefusedError, match=r"demand.* 'word'|'word', which the table demands"):
        sink.commit(committable)
    assert rows_in(table) == []


def test_columns_that_the_sink_has_added_are_not_in_the_way_of_a_rollback(table: Path) -> None:
    sink = HandWrittenDelta(table)
    sink.open(PIPELINE, SINK, NUMBERS)
    for number in (1, 2):
        sink.stage(numbers([number]), epoch(number), f"a{number}")
        sink.commit(sink.prepare())
    wider = t.StructType([*NUMBERS.fields, t.StructField("more", LONG)])
    sink = HandWrittenDelta(table, schema="merge")
    sink.open(PIPELINE, SINK, wider)

    def show(number: int, attempt: str) -> None:
        rows = [{"n": number, "word": "x", "more": 7}]
        sink.stage(arrow_frame(wider, rows), epoch(number), attempt)
        sink.commit(sink.prepare())

    show(3, "a3")
    assert sink.unpublish_after(1) == [2, 3]
    show(2, "b2")
    rows = sorted(rows_in(table), key=lambda row: row["n"])
    assert [(row["n"], row["more"]) for row in rows] == [(1, None), (2, 7)]
    DeltaTable(str(table)).alter.add_columns([Field("theirs", PrimitiveType("long"))])
    with pytest.raises(RefusedError, match="others have written"):
        sink.unpublish_after(1)
