"""A running query, seen from inside its batch: what Spark itself will write when the batch ends."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError, Py4JJavaError

from seamark.errors import SeamarkError
from seamark.spark.logs import StateIds, commit_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

INTERRUPTED_BY_STOP: Final = (
    "py4j.protocol.Py4JJavaError: An error occurred while calling the batch: "
    "java.lang.InterruptedException: the query is being stopped"
)
"""What a batch raises when it is not to begin: by these words Spark knows that it is no failure."""

_MARK: Final = re.compile(r"([0-9a-f-]{36}) -> (?:Some\()?(-?\d+)")


class RunningQuery:
    """The micro-batch execution behind a query. To be used on the thread of its batch."""

    def __init__(self, spark: SparkSession, query: StreamingQuery, *, format_2: bool) -> None:
        self._jvm: Any = spark.sparkContext._jvm
        wrapper: Any = query._jsq
        self._execution = wrapper.streamingQuery()
        self._run_id = str(query.runId)
        self._context = spark.sparkContext
        self._format_2 = format_2
        self._writer: Any = None
        self._ways: list[Way] = []

    def next_commit(self) -> tuple[str, int, StateIds | None]:
        """(text of ``commits/N``, next watermark, state ids), after the batch's last action.

        The watermark is moved by Spark's own tracker, so that the value is the one that Spark
        commits; doing it twice changes nothing.
        """
        plan = self._execution.lastExecution().executedPlan()
        tracker = self._execution.watermarkTracker()
        tracker.updateWatermark(plan)
        watermark = int(tracker.currentWatermark())
        ids = self._state_ids(plan) if self._format_2 else None
        return commit_text(watermark, ids or None), watermark, ids or None

    def cancel_jobs(self) -> None:
        """Make the action that the batch is running fail."""
        self._context.cancelJobGroup(self._run_id)

    def wait_until_stopped(self, patience: float) -> None:
        """Wait until Spark knows that the query is to stop."""
        deadline = time.monotonic() + patience
        while bool(self._execution.isActive()) and time.monotonic() < deadline:
            time.sleep(0.01)

    def state_partitions(self) -> dict[int, int]:
        """How many partitions each stateful operator really has, by its number.

        One over all rows, without a key, has a single one, whatever Spark notes about it.
        """
        plan = self._execution.lastExecution().executedPlan()
        return {
            int(node.getStateInfo().operatorId()): int(node.outputPartitioning().numPartitions())
            for node in self._state_writers(plan)
        }

    def watermarks(self) -> dict[str, int]:
        """How far each ``withWatermark`` of the plan has come, by the id of its node."""
        try:
            text = str(self._execution.watermarkTracker().watermarkMap().toString())
        except Py4JError:
            return {}  # before Spark 4.3 the tracker keeps them to itself
        return {node: int(mark) for node, mark in _MARK.findall(text)}

    def _state_ids(self, plan: Any) -> StateIds:
        found: dict[int, list[list[str]]] = {}
        formats = self._formats()
        for node in self._state_writers(plan):
            # one call instead of several for each partition
            infos = node.getStateStoreCheckpointInfo()
            text = self._jvm.org.json4s.jackson.Serialization.write(infos, formats)
            rows = sorted(json.loads(str(text)), key=lambda row: int(row["partitionId"]))
            if any("stateStoreCkptId" not in row for row in rows):
                raise SeamarkError("Spark does not tell the ids of the state that it has written")
            operator = int(node.getStateInfo().operatorId())
            found[operator] = [list(row["stateStoreCkptId"]) for row in rows]
        return dict(sorted(found.items()))

    def _state_writers(self, plan: Any) -> list[Any]:
        """The nodes that write state. Walking a plan is slow, so the way is remembered."""
        if self._writer is None:
            self._writer = self._writer_class()
        known = [_at(plan, way) for way in self._ways]
        if not known or not all(
            node is not None and self._writer.isInstance(node) for node in known
        ):
            found = [(way, n) for way, n in _nodes(plan) if self._writer.isInstance(n)]
            self._ways = [way for way, _ in found]
            known = [node for _, node in found]
        return known

    def _writer_class(self) -> Any:
        return _first_class(
            self._jvm,
            "org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreWriter",
            "org.apache.spark.sql.execution.streaming.StateStoreWriter",
        )

    def _formats(self) -> Any:
        return getattr(getattr(self._jvm.org.json4s, "DefaultFormats$"), "MODULE$")


Way = tuple[int, ...]
"""From the root of a plan to a node: which child to take each time."""


def _nodes(plan: Any, way: Way = ()) -> Iterator[tuple[Way, Any]]:
    yield way, plan
    children = plan.children()
    for number in range(children.size()):
        yield from _nodes(children.apply(number), (*way, number))


def _at(plan: Any, way: Way) -> Any:
    """The node at the end of a way, or None when the plan has another shape."""
    node = plan
    for number in way:
        children = node.children()
        if children.size() <= number:
            return None
        node = children.apply(number)
    return node


def _first_class(jvm: Any, *names: str) -> Any:
    for name in names[:-1]:
        try:
            return jvm.java.lang.Class.forName(name)
        except Py4JJavaError:
            continue
    return jvm.java.lang.Class.forName(names[-1])
