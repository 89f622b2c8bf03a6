"""Which version of a static table is recorded. Iceberg's jars are not there for every Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JError

from seamark.spark.plans.plan import analyzed
from seamark.spark.plans.static_tables import table_versions

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


class Answers:
    """An object of the JVM, as far as it is asked: names with what they return."""

    def __init__(self, **answers: Any) -> None:
        self._answers = answers

    def __getattr__(self, name: str) -> Any:
        def ask() -> Any:
            answer = self._answers.get(name)
            if isinstance(answer, Exception):
                raise answer
            return answer

        return ask


class Leaves:
    def __init__(self, *leaves: Any) -> None:
        self._left = list(leaves)

    def collectLeaves(self) -> Any:
        return self

    def iterator(self) -> Any:
        return self

    def hasNext(self) -> bool:
        return bool(self._left)

    def next(self) -> Any:
        return self._left.pop(0)


def relation(table: Answers) -> Answers:
    kind = Answers(getSimpleName="DataSourceV2Relation")
    return Answers(isStreaming=False, getClass=kind, table=table)


def test_the_version_that_a_connector_tells_is_recorded_with_the_id_of_the_table() -> None:
    table = Answers(version="8744736658442914487", name="lake.shop.symbols", id="a-uuid")
    found = table_versions(Leaves(relation(table)), {("lake.shop.symbols",): "symbols"})
    assert found["symbols"].offsets == {"version": "8744736658442914487"}
    assert found["symbols"].metadata == {"path": "lake.shop.symbols", "table_id": "a-uuid"}


@pytest.mark.parametrize("version", [None, Py4JError("there is no such method before Spark 4.1")])
def test_a_connector_without_versions_has_none(version: Any) -> None:
    assert table_versions(Leaves(relation(Answers(version=version, name="t")))) == {}


@pytest.mark.warm
def test_spark_answers_as_it_is_asked(spark: SparkSession, tmp_path: Path) -> None:
    """A table of another connector, which has no version, does no harm to one of files."""
    from pyspark.sql.datasource import DataSource, DataSourceReader

    class Rows(DataSource):
        def schema(self) -> str:
            return "n int"

        def reader(self, schema: Any) -> Any:
            class Reader(DataSourceReader):
                def read(self, partition: Any) -> Any:
                    yield (1,)

            return Reader()

    spark.dataSource.register(Rows)
    spark.range(3).write.parquet(str(tmp_path / "codes"))
    both = spark.read.format("Rows").load().crossJoin(spark.read.parquet(str(tmp_path / "codes")))
    assert list(table_versions(analyzed(both))) == ["codes"]
