"""Which files have other rows when other columns of them are read."""

from __future__ import annotations

import pytest

from seamark.spark.plans.columns_read import rows_depend_on_columns

SETTINGS = {
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.columnNameOfCorruptRecord": "_corrupt_record",
    "spark.sql.json.enablePartialResults": "true",
}


@pytest.mark.parametrize(
    ("file_format", "options", "columns", "changed", "expected"),
    [
        ("csv", {}, "kv", {}, False),
        ("csv", {"mode": "PERMISSIVE"}, "kv", {}, False),
        ("csv", {"MODE": "DropMalformed"}, "kv", {}, True),
        ("csv", {"mode": "FAILFAST"}, "kv", {}, True),
        ("org.apache.spark.sql.execution.datasources.csv.CSVFileFormat", {"mode": "dropmalformed"},
         "kv", {}, True),
        ("CSVFileFormat", {"mode": "dropmalformed"}, "kv", {}, True),
        ("csv", {}, ["k", "_corrupt_record"], {}, True),
        ("csv", {"columnNameOfCorruptRecord": "bad"}, ["k", "Bad"], {}, True),
        ("csv", {"columnNameOfCorruptRecord": "bad"}, ["k", "_corrupt_record"], {}, False),
        ("json", {}, ["k", "x"], {"spark.sql.columnNameOfCorruptRecord": "x"}, True),
        ("json", {}, "kv", {}, False),
        ("json", {}, "kv", {"spark.sql.json.enablePartialResults": "false"}, True),
        ("csv", {}, "kv", {"spark.sql.json.enablePartialResults": "false"}, False),
        ("xml", {}, "kv", {}, True),
        ("parquet", {"mode": "dropmalformed"}, "kv", {}, False),
    ],
)  # fmt: skip
def test_rows_depend_on_the_columns_that_are_read_only_where_malformed_ones_count(
    file_format: str,
    options: dict[str, str],
    columns: str | list[str],
    changed: dict[str, str],
    expected: bool,
) -> None:
    found = rows_depend_on_columns(file_format, options, columns, {**SETTINGS, **changed})
    assert found is expected
