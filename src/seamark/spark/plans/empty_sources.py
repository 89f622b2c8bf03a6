"""A query as it was declared, on sources that have no rows.

Run for one batch, such a query leaves the state of every operator behind, empty, exactly as the
installed Spark writes and describes it. Nothing is read of the real sources.

Tests: ``tests/pipeline/test_upgrades.py``.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from seamark.errors import RefusedError
from seamark.spark.plans.plan import analyzed
from seamark.spark.plans.trees import each

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def with_empty_sources(df: DataFrame, folder: str) -> DataFrame:
    """The query with every stream replaced by one of the files in ``folder``, which have no rows.

    The columns keep their names, types and ids, so that everything above stays as it is.
    """
    from pyspark.java_gateway import ensure_callback_server_started
    from pyspark.sql import DataFrame

    spark = df.sparkSession
    gateway: Any = spark.sparkContext._gateway
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    streams = _EmptyStreams(spark, folder)
    replaced = analyzed(df).transformUp(streams)
    if streams.refused is not None:
        raise streams.refused
    jvm: Any = spark.sparkContext._jvm
    session: Any = spark._jsparkSession
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(session, replaced), spark)


class _EmptyStreams:
    """Scala's partial function that replaces the leaves of a plan which are streams."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self._spark = spark
        self._folder = folder
        self.refused: RefusedError | None = None
        """Kept for the caller: what is raised here arrives there as an error of Java's."""

    def isDefinedAt(self, node: Any) -> bool:
        return str(node.getClass().getSimpleName()).startswith("StreamingRelation")

    def apply(self, node: Any) -> Any:
        return self._empty(node)

    def applyOrElse(self, node: Any, _: Any) -> Any:
        return self._empty(node) if self.isDefinedAt(node) else node

    def _empty(self, leaf: Any) -> Any:
        from pyspark.errors import AnalysisException
        from pyspark.sql.types import StructType

        schema = StructType.fromJson(json.loads(str(leaf.schema().json())))
        try:
            plan = analyzed(self._spark.readStream.schema(schema).json(self._folder))
        except AnalysisException as error:
            self.refused = RefusedError(
                "a source has a type of column for which no empty state can be made",
                where=str(error).splitlines()[0],
                hint="Nothing was changed. Leave the column out of the source's schema, or give "
                "the changed pipeline a store of its own.",
            )
            return leaf
        jvm: Any = self._spark.sparkContext._jvm
        catalyst = jvm.org.apache.spark.sql.catalyst
        columns = jvm.java.util.ArrayList()
        nothing = jvm.PythonUtils.toSeq(jvm.java.util.ArrayList())
        for column, now in zip(each(leaf.output()), each(plan.output()), strict=True):
            # files may lack any column; what the source never leaves out has to stay like that
            value = now
            if not column.nullable():
                value = catalyst.expressions.objects.AssertNotNull(now, nothing)
            columns.add(
                catalyst.expressions.Alias(
                    value,
                    column.name(),
                    column.exprId(),
                    column.qualifier(),
                    jvm.scala.Option.apply(column.metadata()),
                    nothing,
                )
            )
        return catalyst.plans.logical.Project(jvm.PythonUtils.toSeq(columns), plan)

    class Java:
        """What py4j reads."""

        implements = ("scala.PartialFunction",)
