"""A later row takes the place of an earlier one, and only its own."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.expressions import EqualTo
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform
from pyiceberg.typedef import Record
from pyspark.sql.types import DoubleType, LongType, StructField, StructType

from seamark.errors import RefusedError
from seamark.sinks.iceberg.data_files import FileWriter
from seamark.sinks.iceberg.staging import Staging
from seamark.sinks.iceberg.upserts import joined_keys
from seamark.testing.conformance.sink_examples import PIPELINE, SINK, epoch
from tests.sinks.support import iceberg
from tests.sinks.support.iceberg import HandWritten


def rows(**words: str) -> pa.Table:
    numbers = [int(name.removeprefix("n")) for name in words]
    return pa.table({"n": pa.array(numbers, pa.int64()), "word": list(words.values())})


def show(sink: HandWritten, number: int, table: pa.Table) -> None:
    sink.stage(iceberg.as_frame(table), epoch(number), f"a{number}")
    sink.commit(sink.prepare())


def seen(folder: Path) -> dict[int, str]:
    found = iceberg.table_at(folder).scan().to_arrow().to_pylist()
    assert len({row["n"] for row in found}) == len(found), "one row for each key"
    return {row["n"]: row["word"] for row in found}


def opened(folder: Path, **options: Any) -> HandWritten:
    sink = HandWritten(
        iceberg.properties(folder), iceberg.TABLE, mode="upsert", keys="n", **options
    )
    sink.open(PIPELINE, SINK, iceberg.SCHEMA)
    return sink


@pytest.mark.parametrize("partitioned", [False, True])
def test_rows_are_replaced_by_their_keys(tmp_path: Path, *, partitioned: bool) -> None:
    table = iceberg.make_table(tmp_path)
    if partitioned:
        with table.update_spec() as update:
            update.add_field("n", BucketTransform(3), "part")
    sink = opened(tmp_path)
    show(sink, 1, rows(n1="a", n2="b", n3="c"))
    iceberg.table_at(tmp_path).append(rows(n4="foreign"))
    show(sink, 2, rows(n2="B", n4="D", n5="E"))
    assert seen(tmp_path) == {1: "a", 2: "B", 3: "c", 4: "D", 5: "E"}
    assert sink.leftovers() == []
    assert iceberg.data_files(tmp_path) == iceberg.referenced_files(tmp_path)


def test_an_upsert_of_nothing_known_rewrites_no_file(tmp_path: Path) -> None:
    iceberg.make_table(tmp_path)
    sink = opened(tmp_path)
    show(sink, 1, rows(n1="a"))
    before = iceberg.data_files(tmp_path)
    show(sink, 2, rows(n9="z"))
    assert before < iceberg.data_files(tmp_path)
    snapshot = iceberg.table_at(tmp_path).current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary.operation.value == "append"


def test_a_later_epoch_can_be_taken_back_from_replaced_rows(tmp_path: Path) -> None:
    iceberg.make_table(tmp_path)
    sink = opened(tmp_path)
    show(sink, 1, rows(n1="a", n2="b"))
    show(sink, 2, rows(n1="A"))
    assert sink.unpublish_after(1) == [2]
    assert seen(tmp_path) == {1: "a", 2: "b"}


def test_two_different_rows_for_a_key_are_refused_before_the_epoch_is_decided(
    tmp_path: Path,
) -> None:
    iceberg.make_table(tmp_path)
    sink = opened(tmp_path)
    twice = pa.concat_tables([rows(n1="a"), rows(n1="b")])
    sink.stage(iceberg.as_frame(twice), epoch(1), "a1")
    with pytest.raises(RefusedError, match="different rows for the key n=1"):
        sink.prepare()


def test_a_key_that_is_null_is_refused_before_the_epoch_is_decided(tmp_path: Path) -> None:
    iceberg.make_table(tmp_path)
    sink = opened(tmp_path)
    empty = pa.table({"n": pa.array([None], pa.int64()), "word": ["a"]})
    sink.stage(iceberg.as_frame(empty), epoch(1), "a1")
    with pytest.raises(RefusedError, match="key 'n' is null"):
        sink.prepare()


@pytest.mark.parametrize("mode", ["upsert", "overwrite"])
def test_files_of_a_spec_whose_column_was_dropped_can_be_replaced(
    tmp_path: Path, mode: Any
) -> None:
    kinds = pa.schema([("n", pa.int64()), ("word", pa.string()), ("old", pa.string())])
    table = iceberg.make_table(tmp_path, kinds)
    with table.update_spec() as update:
        update.add_field("old", IdentityTransform(), "part")
    old = pa.table([[1, 2, 3], ["a", "b", "c"], ["x", "x", "y"]], schema=kinds)
    iceberg.table_at(tmp_path).append(old)
    with iceberg.table_at(tmp_path).update_spec() as without:
        without.remove_field("part")
    with iceberg.table_at(tmp_path).update_schema(allow_incompatible_changes=True) as dropped:
        dropped.delete_column("old")
    keys = "n" if mode == "upsert" else ()
    sink = HandWritten(iceberg.properties(tmp_path), iceberg.TABLE, mode=mode, keys=keys)
    sink.open(PIPELINE, SINK, iceberg.SCHEMA)
    show(sink, 1, rows(n1="A"))
    kept = {2: "b", 3: "c"} if mode == "upsert" else {}
    assert seen(tmp_path) == {1: "A"} | kept
    show(sink, 2, rows(n1="B", n2="C"))
    kept = {3: "c"} if mode == "upsert" else {}
    assert seen(tmp_path) == {1: "B", 2: "C"} | kept


def test_no_keys_are_no_file() -> None:
    assert joined_keys([], ["n"], 1, "") is None


_equal: Any = EqualTo  # its own types do not know how it is called


@pytest.mark.parametrize("has_other_spec", [False, True])
def test_rows_that_stay_are_found_where_another_engine_has_put_them(
    tmp_path: Path, *, has_other_spec: bool
) -> None:
    """pyiceberg works out the next day for such a time, and puts NaN nowhere."""
    before = datetime(1969, 12, 31, 23, 59, 59, 999999)  # noqa: DTZ001 - a time without a zone
    kinds = pa.schema([("n", pa.int64()), ("t", pa.timestamp("us")), ("x", pa.float64())])
    table = iceberg.make_table(tmp_path, kinds)
    with table.update_spec() as update:
        update.add_field("t", DayTransform(), "day")
        update.add_field("x", IdentityTransform(), "own")
    table = iceberg.table_at(tmp_path)
    own = pa.table([[1, 2], [before, before], [float("nan")] * 2], schema=kinds)
    nothing = own.set_column(2, "x", pa.nulls(2, pa.float64()))
    (file,) = FileWriter(table.metadata, Staging.of(table, iceberg.OUTPUT), "other").write(nothing)
    file._data[3] = Record(-1, None)  # the partition that Spark would give it
    with table.transaction() as change, change.update_snapshot().fast_append() as append:
        append.append_data_file(file)
    if has_other_spec:
        with iceberg.table_at(tmp_path).update_spec() as update:
            update.remove_field("own")
    schema = StructType([StructField("n", LongType()), StructField("x", DoubleType())])
    sink = HandWritten(iceberg.properties(tmp_path), iceberg.TABLE, mode="upsert", keys="n")
    sink.open(PIPELINE, SINK, schema)
    changed = pa.table({"n": pa.array([1], pa.int64()), "x": [1.5]})
    sink.stage(iceberg.as_frame(changed, schema), epoch(1), "a1")
    sink.commit(sink.prepare())
    table = iceberg.table_at(tmp_path)
    assert sorted(table.scan().to_arrow().column("n").to_pylist()) == [1, 2]
    found = table.scan(row_filter=_equal("t", before)).to_arrow()
    assert found.column("n").to_pylist() == [2]
    (kept,) = [t.file for t in table.scan(row_filter=_equal("t", before)).plan_files()]
    assert kept.partition[0] == -1
