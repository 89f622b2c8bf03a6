"""Which rows each ``withWatermark`` of a query counts.

Spark's optimizer pushes a filter below the ``withWatermark`` that it stands on, also through an
aggregation. So two calls on one DataFrame may count different rows, and one of them may never see
any. Spark keeps the highest time for each call: what one call counts in several branches adds up.

Tests: ``tests/pipeline/test_watermarks.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from seamark.spark.plans.executed_plan import WATERMARK, optimized
from seamark.spark.plans.plan import analyzed, nodes
from seamark.spark.plans.trees import class_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def watermark_rows(branches: Sequence[DataFrame]) -> dict[str, frozenset[int]]:
    """By the id of each ``withWatermark``: numbers that stand for the rows that it counts.

    Equal numbers mean the same times of the same rows.
    """
    as_written = {id_: node for df in branches for id_, node in _watermarks(analyzed(df))}
    if len(as_written) < 2:
        return dict.fromkeys(as_written, frozenset({0}))
    numbers = _RowNumbers(branches[0].sparkSession)
    all_rows = {node_id: numbers.of(node) for node_id, node in as_written.items()}
    counted: dict[str, set[int]] = {}
    for df in branches:
        for node_id, node in _watermarks(optimized(df)):
            counted.setdefault(node_id, set()).add(numbers.of(node))
    return {
        # where one branch counts all rows, what others count is among them
        node_id: frozenset({number})
        if number in (found := counted.get(node_id, {number}))
        else frozenset(found)
        for node_id, number in all_rows.items()
    }


def _watermarks(plan: Any) -> list[tuple[str, Any]]:
    return [
        (str(node.nodeId().toString()), node)
        for node in nodes(plan)
        if class_name(node) == WATERMARK
    ]


class _RowNumbers:
    """A number for each result of different rows or times."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark.sparkContext._jvm
        session: Any = spark._jsparkSession
        self._optimizer = session.sessionState().optimizer()
        self._known: list[tuple[Any, Any]] = []

    def of(self, node: Any) -> int:
        """The number of what one ``withWatermark`` counts."""
        column = self._jvm.PythonUtils.toSeq([node.eventTime()])
        times = self._jvm.org.apache.spark.sql.catalyst.plans.logical.Project(column, node.child())
        # optimized, what was written in different ways is equal: columns nobody reads, for one
        shortest = self._optimizer.execute(times)
        for number, (known, known_shortest) in enumerate(self._known):
            if known.sameResult(times) or known_shortest.sameResult(shortest):
                return number
        self._known.append((times, shortest))
        return len(self._known) - 1
