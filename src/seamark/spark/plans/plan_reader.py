"""Reading the plan of a running batch, and what Spark will commit for it, in one call each.

A call into the JVM waits for a thread there and then for one here, and a plan takes several for
every node. So what is asked of every batch is asked by a small Java class (``PlanReader.java``),
which is compiled once in a process. Where it cannot be, the same is asked step by step.

Tests: ``tests/pipeline/test_plan_reader.py``.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from py4j.protocol import Py4JError, Py4JJavaError

from seamark.errors import SeamarkError
from seamark.spark.java_classes import class_if_any
from seamark.spark.plans.executed_plan import WATERMARK, PlanNode
from seamark.spark.plans.trees import each

_HIDDEN: Final[Mapping[str, Callable[[Any], Any]]] = {
    "ReusedExchangeExec": lambda node: node.child(),
    "AdaptiveSparkPlanExec": lambda node: node.executedPlan(),
    "ShuffleQueryStageExec": lambda node: node.plan(),
    "BroadcastQueryStageExec": lambda node: node.plan(),
    "TableCacheQueryStageExec": lambda node: node.plan(),
    "InMemoryTableScanExec": lambda node: node.relation().cachedPlan(),
}
"""Leaves that hold a plan of their own; the same are in the Java class."""

_HERE: Final = __package__ or ""
_PACKAGE: Final = "org.apache.spark.sql.execution.streaming"
_LINE: Final = re.compile(r"(\d+) (-|\d+) (\S+) (.*)")
_EVICTION: Final = re.compile(r"(\d+) (None|Some\((-?\d+)\)) (.*)")
_MARK: Final = re.compile(r"([0-9a-f-]{36}) -> (?:Some\()?(-?\d+)")


class PlanReader(ABC):
    """Asks the execution of a query about the batch that it runs."""

    @abstractmethod
    def plan(self) -> str:
        """A line for each node of the plan, an empty one, and a line for each that writes state."""

    @abstractmethod
    def move_watermark(self) -> str:
        """Have Spark's tracker see what the batch has read; the watermark, and those of nodes.

        The tracker is Spark's own, so that the value is the one that Spark commits. Doing it twice
        changes nothing.
        """

    @abstractmethod
    def state_ids(self) -> str:
        """Operator, partition and ids of the state that each partition has written, by lines."""


class Eviction(NamedTuple):
    """The watermark that an operator runs with."""

    operator: int
    node: str
    watermark: int | None


def plan_reader(gateway: Any, execution: Any) -> PlanReader:
    """The fastest way to read the plans of a query."""
    writer = state_writer(gateway.jvm)
    compiled = class_if_any(gateway, _HERE, "PlanReader", execution)
    if compiled is None:
        return WalkingReader(execution, writer)
    return InOneCall(compiled.new(writer), execution)


def state_writer(jvm: Any) -> Any:
    """The class of nodes that write state."""
    for_name = jvm.java.lang.Class.forName
    try:
        return for_name(f"{_PACKAGE}.operators.stateful.StateStoreWriter")
    except Py4JJavaError:  # before Spark 4.1
        return for_name(f"{_PACKAGE}.StateStoreWriter")


class InOneCall(PlanReader):
    """By the Java class."""

    def __init__(self, compiled: Any, execution: Any) -> None:
        self._compiled = compiled
        self._execution = execution

    def plan(self) -> str:
        """See :class:`PlanReader`."""
        return str(self._compiled.plan(self._execution))

    def move_watermark(self) -> str:
        """See :class:`PlanReader`."""
        return str(self._compiled.moveWatermark(self._execution))

    def state_ids(self) -> str:
        """See :class:`PlanReader`."""
        return str(self._compiled.stateIds(self._execution))


class WalkingReader(PlanReader):
    """By several calls for every node."""

    def __init__(self, execution: Any, writer: Any) -> None:
        self._execution = execution
        self._writer = writer

    def plan(self) -> str:
        """See :class:`PlanReader`."""
        shape: list[str] = []
        evictions: list[str] = []
        for depth, node in _with_hidden(self._plan(), 0):
            name = str(node.nodeName()).replace("\n", " ")
            operator = "-"
            if self._writer.isInstance(node):
                operator = str(node.getStateInfo().operatorId())
                evictions.append(f"{operator} {_watermark_of(node)} {name}\n")
            mark = str(node.nodeId().toString()) if name == WATERMARK else "-"
            shape.append(f"{depth} {operator} {mark} {name}\n")
        return "".join([*shape, "\n", *evictions])

    def move_watermark(self) -> str:
        """See :class:`PlanReader`."""
        tracker = self._execution.watermarkTracker()
        tracker.updateWatermark(self._plan())
        moved = str(tracker.currentWatermark())
        try:
            return f"{moved} {tracker.watermarkMap().toString()}"
        except Py4JError:
            return moved  # before Spark 4.3 the tracker keeps them to itself

    def state_ids(self) -> str:
        """See :class:`PlanReader`."""
        lines = []
        for node in state_writers(self._plan(), self._writer):
            operator = node.getStateInfo().operatorId()
            for info in node.getStateStoreCheckpointInfo():
                ids = info.stateStoreCkptId()
                each_id = list(ids.get()) if ids.isDefined() else []
                lines.append(" ".join(map(str, [operator, info.partitionId(), *each_id])) + "\n")
        return "".join(lines)

    def _plan(self) -> Any:
        return self._execution.lastExecution().executedPlan()


def _watermark_of(node: Any) -> str:
    try:
        return str(node.eventTimeWatermarkForEviction().toString())
    except Py4JError:  # an operator that has no use for one
        return "None"


def _with_hidden(node: Any, depth: int) -> Iterator[tuple[int, Any]]:
    """A plan with what is hidden in its leaves; how deep each node is."""
    yield depth, node
    children = list(each(node.children()))
    if not children:
        inner = _HIDDEN.get(str(node.getClass().getSimpleName()))
        children = [] if inner is None else [inner(node)]
    for child in children:
        yield from _with_hidden(child, depth + 1)


def state_writers(plan: Any, writer: Any) -> Iterator[Any]:
    """The nodes of a plan that write state."""
    if writer.isInstance(plan):
        yield plan
    for child in each(plan.children()):
        yield from state_writers(child, writer)


# what the texts say


def parse_shape(shape: str) -> PlanNode:
    """The plan that the first part of :meth:`PlanReader.plan` describes. Pure."""
    nodes: list[tuple[int, PlanNode]] = []
    for line in reversed(_lines(shape)):
        depth, operator, mark, name = _fields(_LINE, line)
        # the lines below a node come after it, and those deeper are its own
        own: list[PlanNode] = []
        while nodes and nodes[-1][0] > int(depth):
            own.append(nodes.pop()[1])
        number = None if operator == "-" else int(operator)
        node = PlanNode(name, tuple(own), number, None if mark == "-" else mark)
        nodes.append((int(depth), node))
    return nodes[0][1]


def parse_evictions(text: str) -> Iterator[Eviction]:
    """The watermark of each operator, by the second part of :meth:`PlanReader.plan`. Pure."""
    for line in _lines(text):
        operator, _, watermark, name = _fields(_EVICTION, line)
        yield Eviction(int(operator), name, None if watermark is None else int(watermark))


def parse_watermarks(text: str) -> tuple[int, dict[str, int]]:
    """The watermark of the query and those of its nodes, by :meth:`PlanReader.move_watermark`."""
    moved, _, by_node = text.partition(" ")
    return int(moved), {node: int(mark) for node, mark in _MARK.findall(by_node)}


def parse_state_ids(text: str) -> dict[int, list[list[str]]]:
    """By operator: the ids of each partition, in the order of their numbers. Pure."""
    rows: dict[int, dict[int, list[str]]] = {}
    for line in _lines(text):
        operator, partition, *ids = line.split(" ")
        rows.setdefault(int(operator), {})[int(partition)] = ids
    return {
        operator: [ids for _, ids in sorted(partitions.items())]
        for operator, partitions in sorted(rows.items())
    }


def _lines(text: str) -> list[str]:
    # only by line feeds: a name may hold whatever else ends a line
    return [line for line in text.split("\n") if line]


def _fields(form: re.Pattern[str], line: str) -> tuple[Any, ...]:
    matched = form.fullmatch(line)
    if matched is None:
        raise SeamarkError(f"a line of Spark's plan cannot be read: {line!r}")
    return matched.groups()
