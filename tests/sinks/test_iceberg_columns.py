"""Which outputs fit which tables is found out before the first epoch, by name."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg import types as t
from pyiceberg.schema import Schema
from pyspark.sql.types import StructType

from seamark.errors import RefusedError
from seamark.sinks.iceberg.columns import check_columns, check_keys
from tests.sinks.support import iceberg
from tests.sinks.support.iceberg import HandWritten
from tests.sinks.support.starting import started


def spark(ddl: str) -> StructType:
    """A schema from words such as ``n long``, without a session."""
    from pyspark.sql.types import _parse_datatype_json_value

    simple = {"bigint": "long"}
    fields = []
    for column in ddl.split(","):
        name, kind = column.split()
        nullable = not kind.endswith("!")
        kind = kind.rstrip("!")
        fields.append(
            {
                "name": name,
                "type": simple.get(kind, kind.replace(";", ",")),
                "nullable": nullable,
                "metadata": {},
            }
        )
    made = _parse_datatype_json_value({"type": "struct", "fields": fields})
    assert isinstance(made, StructType)
    return made


def table(*columns: t.NestedField) -> Schema:
    return Schema(*columns)


@pytest.mark.parametrize(
    ("given", "column"),
    [
        ("boolean", t.BooleanType()),
        ("byte", t.IntegerType()),
        ("short", t.LongType()),
        ("integer", t.LongType()),
        ("long", t.LongType()),
        ("float", t.DoubleType()),
        ("double", t.DoubleType()),
        ("decimal(9;2)", t.DecimalType(12, 2)),
        ("string", t.StringType()),
        ("binary", t.BinaryType()),
        ("date", t.DateType()),
        ("timestamp", t.TimestamptzType()),
        ("timestamp_ntz", t.TimestampType()),
    ],
)
def test_types_that_hold_every_value_fit(given: str, column: t.IcebergType) -> None:
    found = check_columns(spark(f"v {given}"), table(t.NestedField(1, "v", column)), None, "")
    assert found == ["v"]


@pytest.mark.parametrize(
    ("given", "column"),
    [
        ("long", t.IntegerType()),
        ("double", t.FloatType()),
        ("decimal(12;2)", t.DecimalType(9, 2)),
        ("decimal(9;3)", t.DecimalType(9, 2)),
        ("timestamp", t.TimestampType()),
        ("timestamp_ntz", t.TimestamptzType()),
        ("string", t.UUIDType()),
        ("long", t.StringType()),
        ("string", t.ListType(2, t.StringType())),
    ],
)
def test_types_that_would_lose_something_are_refused_by_name(
    given: str, column: t.IcebergType
) -> None:
    with pytest.raises(RefusedError, match="column 'v' is"):
        check_columns(spark(f"v {given}"), table(t.NestedField(1, "v", column)), None, "")


def test_columns_are_compared_by_their_names() -> None:
    one = table(t.NestedField(1, "n", t.LongType(), required=True))
    with pytest.raises(RefusedError, match="no column 'm'"):
        check_columns(spark("n long,m long"), one, None, "")
    with pytest.raises(RefusedError, match="no column 'N'") as told:
        check_columns(spark("N long"), one, None, "")
    assert "It has 'n'" in str(told.value)
    with pytest.raises(RefusedError, match="requires column 'n'"):
        check_columns(spark("gone boolean"), one, "gone", "")
    assert check_columns(spark("n long,gone boolean"), one, "gone", "") == ["n"]


def test_keys_must_be_comparable() -> None:
    for ddl, keys, flag, words in (
        ("n long", ["m"], None, "no column 'm'"),
        ("n double", ["n"], None, "not fit for a key"),
        ("n long,gone string", ["n"], "gone", "not a boolean column"),
    ):
        with pytest.raises(RefusedError, match=words):
            check_keys(spark(ddl), keys, flag, "")


def test_a_merge_adds_columns_and_widens_types_before_the_first_epoch(tmp_path: Path) -> None:
    iceberg.make_table(tmp_path, pa.schema([("n", pa.int32())]))
    given = iceberg.properties(tmp_path)
    with pytest.raises(RefusedError, match="column 'n' is bigint"):
        HandWritten(given, iceberg.TABLE).open("trades", "bars", iceberg.SCHEMA)
    for _ in range(2):
        started(HandWritten(given, iceberg.TABLE, schema="merge"), iceberg.SCHEMA)
        schema = iceberg.table_at(tmp_path).schema()
        assert [(f.name, str(f.field_type)) for f in schema.fields] == [
            ("n", "long"),
            ("word", "string"),
        ]


def test_a_merge_that_would_lose_something_is_refused(tmp_path: Path) -> None:
    iceberg.make_table(tmp_path, pa.schema([("n", pa.string())]))
    sink = HandWritten(iceberg.properties(tmp_path), iceberg.TABLE, schema="merge")
    with pytest.raises(RefusedError):
        sink.open("trades", "bars", iceberg.SCHEMA)
