"""Upserts and overwrites: what each epoch does to the rows that are there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema, write_deltalake
from pyspark.sql import types as t

from seamark.errors import DamageError, RefusedError
from seamark.sinks.delta import merging
from seamark.sinks.delta import sink as sink_module
from seamark.sinks.delta.entries import add_files
from seamark.testing.conformance.sink_examples import PIPELINE, SINK, epoch
from tests.sinks.support.deltas import (
    ArrowFrame,
    HandWrittenDelta,
    arrow_frame,
    numbers,
    numbers_in,
    rows_in,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CHANGES = t.StructType(
    [
        t.StructField("k", t.StringType()),
        t.StructField("Other-Key", t.IntegerType()),
        t.StructField("value", t.ArrayType(t.LongType())),
        t.StructField("select", t.DoubleType()),
        t.StructField("gone", t.BooleanType()),
    ]
)


def change(
    k: str | None, other: int, value: list[int] | None, gone: bool | None = None
) -> dict[str, Any]:
    return {"k": k, "Other-Key": other, "value": value, "select": 0.5, "gone": gone}


def kept(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "gone"}


def upserting(table: Path, **options: Any) -> HandWrittenDelta:
    sink = HandWrittenDelta(
        table, mode="upsert", keys=["k", "Other-Key"], delete_where="gone", **options
    )
    sink.open(PIPELINE, SINK, CHANGES)
    return sink


def run(
    sink: HandWrittenDelta,
    number: int,
    rows: list[dict[str, Any]],
    columns: t.StructType = CHANGES,
) -> None:
    sink.stage(arrow_frame(columns, rows), epoch(number), f"a{number}")
    sink.commit(sink.prepare())


def by_key(table: Path) -> list[dict[str, Any]]:
    return sorted(rows_in(table), key=lambda row: (row["k"], row["Other-Key"]))


def numbers_table(values: list[int]) -> pa.Table:
    return pa.table({"n": pa.array(values, pa.int64()), "word": [str(n) for n in values]})


@pytest.mark.parametrize("partition_by", [(), "k"])
def test_a_later_row_takes_the_place_of_an_earlier_one_or_takes_it_away(
    tmp_path: Path, partition_by: Any
) -> None:
    sink = upserting(tmp_path / "rows", partition_by=partition_by)
    first = [change("a", 1, [1]), change("a", 2, [2]), change("b'c", 1, None, False)]
    run(sink, 1, [*first, first[0], change("never", 1, [0], True)])
    assert by_key(tmp_path / "rows") == [kept(row) for row in first], "equal rows are one"
    run(sink, 2, [])
    run(sink, 3, [change("a", 1, [10]), change("a", 2, None, True), change("z", 9, [9])])
    expected = [change("a", 1, [10]), first[2], change("z", 9, [9])]
    assert by_key(tmp_path / "rows") == [kept(row) for row in expected]
    assert not [*(tmp_path / "rows" / "_seamark").rglob("*.parquet")], "changes do not stay"
    assert sink.unpublish_after(2) == [3]
    assert by_key(tmp_path / "rows") == [kept(row) for row in first]


@pytest.mark.parametrize("partition_by", [(), "k"])
def test_an_epoch_that_deletes_only_keys_that_are_not_there_is_shown(
    tmp_path: Path, partition_by: Any
) -> None:
    table = tmp_path / "rows"
    sink = upserting(table, partition_by=partition_by)
    run(sink, 1, [change("never", 1, [0], True)])
    run(sink, 2, [change("a", 1, [1]), change("b", 1, [2])])
    run(sink, 3, [change("a", 2, None, True)])
    run(sink, 4, [change("a", 1, None, True)])
    run(sink, 5, [change("a", 1, None, True)])
    assert by_key(table) == [kept(change("b", 1, [2]))]
    for number in range(1, 6):
        assert sink.committed("t1", number) is not None


def test_an_epoch_that_would_delete_nothing_deletes_what_others_add_just_before_its_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "rows"
    sink = upserting(table)
    run(sink, 1, [change("a", 1, [1])])

    def late(*arguments: Any) -> None:
        monkeypatch.setattr(merging, "add_files", add_files)
        write_deltalake(table, arrow_rows(table, [kept(change("b", 1, [2]))]), mode="append")
        add_files(*arguments)

    monkeypatch.setattr(merging, "add_files", late)
    run(sink, 2, [change("b", 1, None, True)])
    assert by_key(table) == [kept(change("a", 1, [1]))]


def arrow_rows(table: Path, rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=DeltaTable(table).to_pyarrow_table().schema)


def test_rows_that_contradict_each_other_are_refused_before_the_decision(tmp_path: Path) -> None:
    sink = upserting(tmp_path / "rows")
    for rows, match in [
        (
            [change("a", 1, [1]), change("a", 1, [2])],
            "different rows for the key k='a', Other-Key=1",
        ),
        ([change("a", 1, [1]), change("a", 1, [1], True)], "different rows"),
        ([change(None, 1, [1])], "key 'k' is null"),
    ]:
        sink.stage(arrow_frame(CHANGES, rows), epoch(1), "a1")
        with pytest.raises(RefusedError, match=match):
            sink.prepare()
    assert rows_in(tmp_path / "rows") == []


def test_both_zeros_are_one_key(tmp_path: Path) -> None:
    columns = [t.StructField("k", t.DoubleType()), t.StructField("f", t.FloatType())]
    kind = t.StructType([*columns, t.StructField("v", t.LongType())])
    sink = HandWrittenDelta(tmp_path / "rows", mode="upsert", keys=["k", "f"])
    sink.open(PIPELINE, SINK, kind)

    def stage(number: int, *rows: dict[str, Any]) -> None:
        sink.stage(arrow_frame(kind, list(rows)), epoch(number), f"a{number}")

    for other in ((-0.0, 0.0), (0.0, -0.0)):
        stage(1, {"k": 0.0, "f": 0.0, "v": 1}, dict(zip("kf", other, strict=True), v=2))
        with pytest.raises(RefusedError, match="different rows for the key k="):
            sink.prepare()
    for number, zero in enumerate((0.0, -0.0, 0.0), start=1):
        stage(number, {"k": zero, "f": -zero, "v": number}, {"k": 1.0, "f": zero, "v": 9})
        sink.commit(sink.prepare())
    assert sorted(row["v"] for row in rows_in(tmp_path / "rows")) == [3, 9]


@pytest.mark.parametrize(
    ("kind", "fits", "too_long"),
    [
        (t.StringType(), "k" * 253, "k" * 254),
        (t.StringType(), "ก" * 28, "ก" * 29),
        (t.DoubleType(), 1e252, 1e254),
        (t.DoubleType(), -1e-200, 1e-300),
    ],
)
def test_a_partition_that_no_folder_can_have_the_name_of_is_refused_before_the_decision(
    tmp_path: Path, kind: t.DataType, fits: Any, too_long: Any
) -> None:
    columns = t.StructType([t.StructField("n", t.LongType()), t.StructField("p", kind)])
    sink = HandWrittenDelta(tmp_path / "rows", mode="upsert", keys="n", partition_by="p")
    sink.open(PIPELINE, SINK, columns)
    run(sink, 1, [{"n": 1, "p": fits}, {"n": 2, "p": None}], columns)
    run(sink, 2, [{"n": 1, "p": fits}], columns)
    sink.stage(arrow_frame(columns, [{"n": 3, "p": too_long}]), epoch(3), "a3")
    with pytest.raises(RefusedError, match="'p' that is too long for the name of a folder"):
        sink.prepare()
    assert numbers_in(tmp_path / "rows") == [1, 2]


@pytest.mark.parametrize("is_nested", [False, True])
def test_a_text_that_no_merge_can_read_is_refused_before_the_decision(
    tmp_path: Path, is_nested: bool
) -> None:
    kind = t.ArrayType(t.StringType()) if is_nested else t.StringType()
    columns = t.StructType([t.StructField("n", t.LongType()), t.StructField("text", kind)])
    sink = HandWrittenDelta(tmp_path / "rows", mode="upsert", keys="n")
    sink.open(PIPELINE, SINK, columns)
    run(sink, 1, [{"n": 1, "text": ["é"] if is_nested else "é"}], columns)
    text: pa.Array = pa.array([b"a\xff"]).view(pa.string())
    rows = pa.table(
        {"n": [1], "text": pa.ListArray.from_arrays([0, 1], text) if is_nested else text}
    )
    sink.stage(cast("DataFrame", ArrowFrame(columns, rows)), epoch(2), "a2")
    with pytest.raises(RefusedError, match="a text in 'text' that is not UTF-8"):
        sink.prepare()
    assert numbers_in(tmp_path / "rows") == [1]


def test_a_value_that_the_table_demands_is_demanded_of_rows_that_stay(tmp_path: Path) -> None:
    fields = [t.StructField(f.name, f.dataType, f.name != "value") for f in CHANGES.fields[:4]]
    table = tmp_path / "rows"
    DeltaTable.create(str(table), Schema.from_json(t.StructType(fields).json()))
    sink = upserting(table)
    run(sink, 1, [change("a", 1, [1])])
    sink.stage(arrow_frame(CHANGES, [change("a", 1, None)]), epoch(2), "a2")
    with pytest.raises(RefusedError, match="without a value for 'value'"):
        sink.prepare()
    run(sink, 2, [change("a", 1, None, True), change("b", 1, [2])])
    assert by_key(table) == [kept(change("b", 1, [2]))]


def test_changes_that_are_gone_are_not_taken_for_none(tmp_path: Path) -> None:
    sink = upserting(tmp_path / "rows")
    sink.stage(arrow_frame(CHANGES, [change("a", 1, [1])]), epoch(1), "a1")
    committable = sink.prepare()
    for path in (tmp_path / "rows" / "_seamark").rglob("*.parquet"):
        path.unlink()
    for handle in (sink, upserting(tmp_path / "rows")):
        with pytest.raises(DamageError):
            handle.commit(committable)
    assert rows_in(tmp_path / "rows") == []


def test_an_epoch_takes_the_place_of_all_rows_also_when_it_has_none(tmp_path: Path) -> None:
    table = tmp_path / "rows"
    sink = HandWrittenDelta(table, mode="overwrite")
    sink.open(PIPELINE, SINK, numbers([]).schema)
    for number, rows in enumerate([[1, 2], [3], [], [4]], start=1):
        sink.stage(numbers(rows), epoch(number), f"a{number}")
        sink.commit(sink.prepare())
        assert numbers_in(table) == rows
        if number == 1:
            write_deltalake(table, numbers_table([99]), mode="append")
    assert sink.unpublish_after(2) == [3, 4]
    assert numbers_in(table) == [3]


def compact(table: Path) -> None:
    DeltaTable(str(table)).optimize.compact()


def delete_one(table: Path) -> None:
    DeltaTable(str(table)).delete("n = 1")


def append_one(table: Path) -> None:
    write_deltalake(table, numbers_table([9]), mode="append")


@pytest.mark.parametrize("meanwhile", [compact, delete_one, append_one])
def test_an_epoch_takes_the_place_of_what_others_do_just_before_its_commit(
    tmp_path: Path, meanwhile: Callable[[Path], None]
) -> None:
    table = tmp_path / "rows"
    sink = HandWrittenDelta(table, mode="overwrite")
    sink.open(PIPELINE, SINK, numbers([]).schema)
    for n in range(4):
        write_deltalake(table, numbers_table([n]), mode="append")
    write_entry = sink._write_entry

    def late(*arguments: Any) -> None:
        vars(sink)["_write_entry"] = write_entry
        meanwhile(table)
        write_entry(*arguments)

    vars(sink)["_write_entry"] = late
    sink.stage(numbers([100, 101]), epoch(1), "a1")
    sink.commit(sink.prepare())
    assert numbers_in(table) == [100, 101]


@pytest.mark.parametrize("options", [{"mode": "upsert", "keys": "n"}, {"mode": "overwrite"}])
def test_an_epoch_that_another_process_aborts_during_its_commit_is_not_shown(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    def handle() -> HandWrittenDelta:
        made = HandWrittenDelta(tmp_path / "rows", **options)
        made.open(PIPELINE, SINK, numbers([]).schema)
        return made

    asleep = handle()
    asleep.stage(numbers([1, 2]), epoch(1), "a1")
    asleep.commit(asleep.prepare())
    asleep.stage(numbers([2, 3]), epoch(2), "a2")
    committable = asleep.prepare()
    name = "add_files" if options["mode"] == "overwrite" else "merge"
    write = getattr(sink_module, name)

    def late(*arguments: Any) -> None:
        handle().abort("a2")
        write(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sink_module, name, late)
        with pytest.raises(DamageError, match="neither shown nor staged"):
            asleep.commit(committable)
    assert numbers_in(tmp_path / "rows") == [1, 2]


def test_a_commit_that_a_run_has_given_up_waiting_for_is_shut_out_by_the_next_run(
    tmp_path: Path,
) -> None:
    """Its thread may go on in the same process, with the same sink."""
    sink = HandWrittenDelta(tmp_path / "rows")
    sink.open(PIPELINE, SINK, numbers([]).schema)
    sink.stage(numbers([1]), epoch(1), "a1")
    committable = sink.prepare()

    def late(*arguments: Any) -> None:
        sink.open(PIPELINE, SINK, numbers([]).schema)
        sink.abort("a1")
        add_files(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sink_module, "add_files", late)
        with pytest.raises(DamageError, match="neither shown nor staged"):
            sink.commit(committable)
    assert numbers_in(tmp_path / "rows") == []


def test_an_epoch_is_shown_in_the_mode_that_it_was_staged_in(tmp_path: Path) -> None:
    table = tmp_path / "rows"
    sink = HandWrittenDelta(table)
    sink.open(PIPELINE, SINK, numbers([]).schema)
    sink.stage(numbers([1]), epoch(1), "a1")
    committable = sink.prepare()
    other = HandWrittenDelta(table, mode="upsert", keys="n")
    other.open(PIPELINE, SINK, numbers([]).schema)
    with pytest.raises(RefusedError, match="staged in mode 'append', not 'upsert'"):
        other.commit(committable)
    sink.commit(committable)
    other.commit(committable)
    assert numbers_in(table) == [1]


def test_an_epoch_is_merged_by_the_keys_that_it_was_staged_with(tmp_path: Path) -> None:
    sink = upserting(tmp_path / "rows")
    run(sink, 1, [])
    rows = [change("a", 1, [1]), change("a", 2, [2])]
    sink.stage(arrow_frame(CHANGES, rows), epoch(2), "a2")
    committable = sink.prepare()
    for keys, flag in (("k", "gone"), (["k", "Other-Key"], None)):
        other = HandWrittenDelta(tmp_path / "rows", mode="upsert", keys=keys, delete_where=flag)
        other.open(PIPELINE, SINK, CHANGES if flag else t.StructType(CHANGES.fields[:4]))
        with pytest.raises(RefusedError, match="epoch 2 was staged with keys k, Other-Key"):
            other.commit(committable)
    sink.commit(committable)
    assert by_key(tmp_path / "rows") == [kept(row) for row in rows]


FLOATS = t.StructType([t.StructField("k", t.DoubleType()), t.StructField("v", t.DoubleType())])


def test_a_key_that_is_no_number_is_refused_because_two_of_them_may_count_as_one(
    tmp_path: Path,
) -> None:
    sink = HandWrittenDelta(tmp_path / "rows", mode="upsert", keys="k")
    sink.open(PIPELINE, SINK, FLOATS)
    nan = float("nan")
    rows = [{"k": nan, "v": 1.0}, {"k": nan, "v": 2.0}]
    sink.stage(arrow_frame(FLOATS, rows), epoch(1), "a1")
    with pytest.raises(RefusedError, match="key 'k' is NaN"):
        sink.prepare()


def test_equal_rows_are_one_also_when_a_value_is_no_number(tmp_path: Path) -> None:
    sink = HandWrittenDelta(tmp_path / "rows", mode="upsert", keys="k")
    sink.open(PIPELINE, SINK, FLOATS)
    row = {"k": 1.0, "v": float("nan")}
    sink.stage(arrow_frame(FLOATS, [row, dict(row)]), epoch(1), "a1")
    sink.commit(sink.prepare())
    assert len(rows_in(tmp_path / "rows")) == 1
