"""The types of an output's columns, from a checkpoint that may be anybody's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import types as t

from seamark import limits
from seamark.audit.declared_rows import declared_schema
from seamark.audit.files import read_files
from seamark.audit.type_texts import TypeReader, has_too_many_types
from tests.audit.test_costs import little_work
from tests.audit.test_expectations import checkpoint, history

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FIELDS = [
    t.StructField("start", t.TimestampType()),
    t.StructField("größe_2", t.MapType(t.StringType(), t.ArrayType(t.DecimalType(38, 0)))),
    t.StructField("in", t.StructType([])),
]
KINDS: list[t.DataType] = [
    t.NullType(), t.StringType(), t.BinaryType(), t.BooleanType(), t.DateType(), t.TimestampType(),
    t.TimestampNTZType(), t.DoubleType(), t.FloatType(), t.ByteType(), t.ShortType(),
    t.IntegerType(), t.LongType(), t.CalendarIntervalType(), t.VariantType(), t.DecimalType(10, 2),
    t.CharType(3), t.VarcharType(7), t.DayTimeIntervalType(), t.DayTimeIntervalType(1, 1),
    t.YearMonthIntervalType(), t.StructType(_FIELDS), t.ArrayType(t.StructType(_FIELDS[:1])),
]  # fmt: skip


def nested(depth: int, open_: str, close: str = ">") -> str:
    return open_ * depth + "int" + close * depth


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.simpleString()[:30])
def test_what_a_type_says_of_itself_is_read_as_that_type(kind: t.DataType) -> None:
    assert TypeReader().read(kind.simpleString()) == kind


@pytest.mark.warm
def test_spark_reads_the_same(spark: SparkSession) -> None:
    # it wants quotes around letters that are not of English
    texts = [text for kind in KINDS if (text := kind.simpleString()).isascii()]
    assert [TypeReader().read(text) for text in texts] == [*map(t.DataType.fromDDL, texts)]
    collated = TypeReader().read("array<string collate UNICODE_CI>")
    assert collated == t.ArrayType(t.StringType("UNICODE_CI"))
    with pytest.raises(ValueError, match="NO_SUCH_ONE"):
        TypeReader().read("string collate NO_SUCH_ONE")


@pytest.mark.parametrize(
    "text",
    [
        "", "int,`1`:string", "int,string", "struct<a:int", "b:int>", "int>", "no type", "udt",
        "struct<a b:int>", "struct<a:int,>", "struct<,>", "map<int>", "array<>", "decimal(39,0)",
        "decimal(2,3)", "char(0)", "time(7)", "interval second to day", "INT", " int", "int ",
        "decimal(" + "9" * 5_000 + ",0)", "struct<" + "a" * 5_000 + ":int>",
    ],
    ids=lambda text: text[:20],
)  # fmt: skip
def test_a_text_that_is_no_type_or_more_than_one_is_refused(text: str) -> None:
    assert declared_schema([("a", text), ("b", "int")]) is None


@pytest.mark.parametrize("open_", ["array<", "struct<a:", "map<string,"])
def test_types_far_inside_each_other_are_not_read(open_: str) -> None:
    deepest = nested(limits.DEEPEST_TYPE, open_)
    schema = declared_schema([("a", deepest)])
    assert schema is not None
    assert schema.fields[0].dataType.simpleString() == deepest
    assert not has_too_many_types(schema)
    for more in (1, 100, 100_000):  # Spark would take seconds, then minutes
        with little_work():
            assert declared_schema([("a", nested(limits.DEEPEST_TYPE + more, open_))]) is None
            assert declared_schema([("a", open_ * more * 20)]) is None
    kind = schema.fields[0].dataType
    assert has_too_many_types(t.StructType([t.StructField("a", t.ArrayType(kind))]))


def test_no_more_types_are_read_than_one_can_wait_for() -> None:
    columns = [(f"c{number}", "int") for number in range(limits.MOST_TYPES)]
    schema = declared_schema(columns)
    assert schema is not None
    assert schema.names == [name for name, _ in columns]
    assert not has_too_many_types(schema)
    assert has_too_many_types(t.StructType([*schema.fields, t.StructField("z", t.StringType())]))
    assert declared_schema([*columns, ("z", "string")]) is None
    deep = nested(8, "struct<a:")
    assert declared_schema([(f"c{number}", deep) for number in range(limits.MOST_TYPES // 9)]) is (
        None
    )


@pytest.mark.warm
def test_a_folder_whose_types_cannot_be_read_is_not_compared_and_not_damaged(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "epoch=000002"
    folder.mkdir()
    (folder / "part-0.json").write_text('{"a":{"b c":1}}\n')
    known = replace(
        history(checkpoint(2), checkpoint(1)),
        target=str(tmp_path),
        options={"format": "json"},
        columns=(("a", "struct<b c:int>"),),
    )
    (shown,) = read_files(spark, known, is_named=True)
    assert not shown.damage
    assert "types of its columns" in shown.note
