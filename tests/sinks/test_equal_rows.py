"""Of rows that are there twice one is left, and it is what it was."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from seamark.sinks.tables.equal_rows import distinct_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.warm


def test_zero_keeps_its_sign_at_any_depth(spark: SparkSession) -> None:
    values = "0D, double('-0.0'), double('-0.0'), double('NaN'), double('NaN'), null"
    df = spark.sql(f"SELECT explode(array({values})) AS d").selectExpr(
        "1 AS `a.k`", "d", "float(d) AS f", "named_struct('x', array(d), 'y', 'y') AS s"
    )
    found = distinct_rows(df)
    assert found.schema == df.schema
    rows = [(str(row.d), str(row.f), str(row.s.x[0])) for row in found.collect()]
    assert sorted(rows) == [
        ("-0.0", "-0.0", "-0.0"),
        ("0.0", "0.0", "0.0"),
        ("None", "None", "None"),
        ("nan", "nan", "nan"),
    ]


def test_texts_are_equal_by_their_bytes_whatever_their_collation(spark: SparkSession) -> None:
    texts = spark.sql("SELECT explode(array('a', 'A', 'A', null)) AS s")
    df = texts.selectExpr("s COLLATE UTF8_LCASE AS s")
    assert Counter(row.s for row in distinct_rows(df).collect()) == Counter(["a", "A", None])


def test_rows_of_other_types_are_there_once(spark: SparkSession) -> None:
    df = spark.sql("SELECT explode(array(1, 1, 2)) AS n, 'x' AS s")
    assert sorted(row.n for row in distinct_rows(df).collect()) == [1, 2]
