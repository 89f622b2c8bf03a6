"""Which columns can become a record of Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from seamark.errors import RefusedError
from seamark.sinks.kafka.columns import RecordColumns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HEADERS = "array<struct<key:string,value:binary>>"
KINDS: dict[str, DataType] = {
    kind.simpleString(): kind
    for kind in (
        StringType(),
        BinaryType(),
        IntegerType(),
        LongType(),
        DoubleType(),
        TimestampType(),
        DecimalType(10, 2),
        MapType(StringType(), IntegerType()),
        MapType(StringType(), StringType()),
        StructType().add("a", IntegerType()),
        ArrayType(StructType().add("key", StringType()).add("value", BinaryType())),
        ArrayType(StructType().add("name", StringType()).add("text", StringType())),
    )
}


def schema(**columns: str) -> StructType:
    made = StructType()
    for name, kind in columns.items():
        made = made.add(name, KINDS[kind])
    return made


def columns(**given: Any) -> RecordColumns:
    empty = dict.fromkeys(("key", "value", "headers", "partition", "topic"))
    return RecordColumns.of(**{**empty, **given})


@pytest.mark.parametrize(
    ("given", "there"),
    [
        ({"key": "k", "value": "v"}, {"k": "string", "v": "binary"}),
        ({"key": "k", "value": "v"}, {"k": "struct<a:int>", "v": "map<string,int>"}),
        ({"value": ["a", "b"]}, {"a": "int", "b": "timestamp", "c": "int"}),
        ({"headers": "h"}, {"h": HEADERS, "v": "int"}),
        ({"headers": "h"}, {"h": "array<struct<name:string,text:string>>", "v": "int"}),
        ({"partition": "p", "topic": "t"}, {"p": "int", "t": "string", "v": "int"}),
        ({}, {"v": "decimal(10,2)"}),
    ],
)
def test_what_can_be_a_record_is_accepted(given: dict[str, Any], there: dict[str, str]) -> None:
    columns(**given).check(schema(**there))


@pytest.mark.parametrize(
    ("given", "there", "said"),
    [
        ({"key": "k"}, {"v": "string"}, "no column 'k' for the key"),
        ({"value": ["a", "z"]}, {"a": "int"}, "no column 'z' for the value"),
        ({"key": "k"}, {"k": "bigint"}, "'k' is bigint"),
        ({"value": "v"}, {"v": "double"}, "'v' is double"),
        ({"headers": "h"}, {"h": "map<string,string>", "v": "int"}, "'h' is map"),
        ({"partition": "p"}, {"p": "bigint", "v": "int"}, "'p' is bigint"),
        ({"topic": "t"}, {"t": "int", "v": "int"}, "'t' is int"),
        ({"topic": "t"}, {"t": "string"}, "no column is left"),
    ],
)
def test_what_cannot_is_refused_by_name(
    given: dict[str, Any], there: dict[str, str], said: str
) -> None:
    with pytest.raises(RefusedError, match=said):
        columns(**given).check(schema(**there))


@pytest.mark.spark
def test_rows_become_bytes_json_and_headers(spark: SparkSession) -> None:
    rows = spark.sql(
        "SELECT 'k' AS `a.key`, 1 AS n, CAST(NULL AS string) AS gone, 3 AS p, 'elsewhere' AS t, "
        "array(struct('trace', binary('x'))) AS h"
    )
    made = columns(key="a.key", headers="h", partition="p", topic="t").staged(rows)
    row = made.collect()[0]
    assert bytes(row.key) == b"k"
    assert bytes(row.value) == b'{"a.key":"k","n":1,"gone":null}'
    assert [(one.key, bytes(one.value)) for one in row.headers] == [("trace", b"x")]
    assert (row.partition, row.topic) == (3, "elsewhere")
    tombstone = columns(key="a.key", value="gone").staged(rows).collect()[0]
    assert tombstone.value is None


@pytest.mark.spark
def test_times_keep_their_microseconds_and_are_in_utc(spark: SparkSession) -> None:
    rows = spark.sql(
        "SELECT struct(timestamp_micros(1700000000123456) AS at) AS k, "
        "timestamp_micros(1700000000123456) AS at, "
        "CAST('2026-03-29 01:30:00.000001' AS timestamp_ntz) AS local"
    )
    row = columns(key="k", value=["at", "local"]).staged(rows).collect()[0]
    assert bytes(row.key) == b'{"at":"2023-11-14T22:13:20.123456Z"}'
    assert bytes(row.value) == (
        b'{"at":"2023-11-14T22:13:20.123456Z","local":"2026-03-29T01:30:00.000001"}'
    )
