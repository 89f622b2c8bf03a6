"""Outputs of one stateful or random DataFrame: computed once, separated in the batch.

An output is cut in two: the plan below, and what only looks at one row at a time above it. Outputs
with the same plan below share it. What is above is put on the rows of the batch. Of a random plan
that two outputs computed, each would draw for itself: a row could be in both of two halves, or in
none.

Tests: ``tests/pipeline/test_shared_state.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from seamark.spark.plans.columns_read import Settings, columns_that_count, settings_of
from seamark.spark.plans.executed_plan import optimized
from seamark.spark.plans.plan import analyzed, stateful_kind, stateful_operators
from seamark.spark.plans.trees import each

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ROW_BY_ROW: Final = frozenset({"Project", "Filter", "SubqueryAlias"})

_DELAY: Final = "spark.watermarkDelayMs"
"""What Spark notes with a column that has a watermark."""

_BOUND_TO_THE_QUERY: Final = ("CURRENT_LIKE", "PYTHON_UDF", "PLAN_EXPRESSION")
"""Expressions that stay in the query: Spark replaces the time by the epoch's, a Python function
must be called once for each row, and a subquery has a plan of its own."""


@dataclass(frozen=True)
class Cut:
    """A plan, cut in two."""

    below: Any
    above: tuple[Any, ...]
    """Nodes that look at one row at a time, from the top down."""


class SharedPlan:
    """A plan and the outputs that are made of its rows."""

    def __init__(self, spark: SparkSession, cuts: Mapping[int, Cut]) -> None:
        self._below = next(iter(cuts.values())).below
        self._above = {number: cut.above for number, cut in cuts.items()}
        columns = list(each(self._below.output()))
        needed = [n for n, column in enumerate(columns) if self._is_read(column)]
        kept = needed or [0]  # rows count even when nothing of them is read
        self._columns = [columns[n] for n in kept]
        whole = dataframe_of(spark, self._below)
        # columns of a join may have one name: they are distinguished by their position
        named = whole.toDF(*(f"c{n}" for n in range(len(columns))))
        self.df = named.select(*(f"c{n}" for n in kept))

    @property
    def keeps_state(self) -> bool:
        """Whether anything in it is stateful; otherwise it is random."""
        return bool(stateful_operators(self._below))

    def _is_read(self, column: Any) -> bool:
        return any(
            not above
            or above[0].outputSet().contains(column)
            or any(node.references().contains(column) for node in above)
            for above in self._above.values()
        )

    def reads_every_row(self, number: int) -> bool:
        """Whether an output reads all rows; of a filter that lets none pass, Spark reads none."""
        return all(node.getClass().getSimpleName() != "Filter" for node in self._above[number])

    def rows_of(self, rows: DataFrame, number: int) -> DataFrame:
        """The rows of one output; ``rows`` are those of :attr:`df` in a batch."""
        spark = rows.sparkSession
        jvm: Any = spark.sparkContext._jvm
        catalyst = jvm.org.apache.spark.sql.catalyst
        plan = analyzed(rows)
        known = [
            # under the id by which the nodes above know the column
            catalyst.expressions.Alias(
                batch_column,
                column.name(),
                column.exprId(),
                column.qualifier(),
                jvm.scala.Option.apply(column.metadata()),
                jvm.PythonUtils.toSeq([]),
            )
            for batch_column, column in zip(each(plan.output()), self._columns, strict=True)
        ]
        plan = catalyst.plans.logical.Project(jvm.PythonUtils.toSeq(known), plan)
        for node in reversed(self._above[number]):
            plan = node.withNewChildren(jvm.PythonUtils.toSeq([plan]))
        return dataframe_of(spark, plan)


def shared_plans(outputs: Sequence[DataFrame], *, share_state: bool) -> Iterator[dict[int, Cut]]:
    """Which outputs have a stateful or random plan in common, and how each is cut.

    Without ``share_state`` every output has its own of a stateful one.
    """
    patterns = _patterns(outputs[0].sparkSession)
    groups: list[dict[int, Cut]] = []
    for number, output in enumerate(outputs):
        cut = _cut(analyzed(output), patterns)
        for group in groups:
            if bool(next(iter(group.values())).below.equals(cut.below)):
                group[number] = cut
                break
        else:
            groups.append({number: cut})
    for group in groups:
        below = next(iter(group.values())).below
        if len(group) > 1 and (
            share_state if stateful_operators(below) else not below.deterministic()
        ):
            yield group


def of_equal_rows(outputs: Sequence[DataFrame], group: Mapping[int, Cut]) -> list[dict[int, Cut]]:
    """The outputs of a group that can share: those that have the same rows alone and together.

    Spark leaves out columns that an output does not use. An operator drops late rows if the time is
    among those that it reads, so an output alone may have its late rows. And of some files the
    columns that are read decide which rows there are.
    """
    spark = outputs[0].sparkSession
    settings = settings_of(spark.conf)
    alike: dict[_Reads, dict[int, Cut]] = {}
    for number, cut in group.items():
        alike.setdefault(_Reads.of(outputs[number], settings), {})[number] = cut
    return [
        part
        for reads, part in alike.items()
        if len(part) > 1 and _Reads.of(SharedPlan(spark, part).df, settings) == reads
    ]


class _Reads(NamedTuple):
    """What decides the rows of an output, and depends on the columns that it reads."""

    time: tuple[tuple[bool, ...], ...]
    """For each stateful operator and each of its inputs: has it a column with a watermark?"""
    columns: tuple[tuple[str, ...], ...]
    """Of the files whose rows depend on it."""

    @classmethod
    def of(cls, output: DataFrame, settings: Settings) -> _Reads:
        plan = optimized(output)
        return cls(_reads_time(plan), columns_that_count(plan, settings))


def _reads_time(plan: Any) -> tuple[tuple[bool, ...], ...]:
    found: list[tuple[bool, ...]] = []
    waiting = [plan]
    while waiting:
        node = waiting.pop()
        children = list(each(node.children()))
        waiting += children
        if stateful_kind(node) is not None:
            found.append(
                tuple(
                    any(column.metadata().contains(_DELAY) for column in each(child.output()))
                    for child in children
                )
            )
    return tuple(found)


def _cut(plan: Any, patterns: Sequence[Any]) -> Cut:
    above = []
    while plan.getClass().getSimpleName() in _ROW_BY_ROW and all(
        expression.deterministic() and not any(expression.containsPattern(p) for p in patterns)
        for expression in each(plan.expressions())
    ):
        above.append(plan)
        plan = plan.children().apply(0)
    return Cut(plan, tuple(above))


def _patterns(spark: SparkSession) -> list[Any]:
    jvm: Any = spark.sparkContext._jvm
    known = jvm.org.apache.spark.sql.catalyst.trees.TreePattern
    return [getattr(known, name)() for name in _BOUND_TO_THE_QUERY]


def dataframe_of(spark: SparkSession, plan: Any) -> DataFrame:
    """A DataFrame of a session with this logical plan."""
    from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

    jvm: Any = spark.sparkContext._jvm
    session: Any = spark._jsparkSession
    made = jvm.org.apache.spark.sql.classic.Dataset.ofRows(session, plan)
    return ClassicDataFrame(made, spark)
