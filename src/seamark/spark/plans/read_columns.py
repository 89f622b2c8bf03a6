"""Which columns of each node of a plan are read by what is above it.

Spark's optimizer drops all others, from the state too, and compares what is left by type alone. So
two pipelines that compute the same and read different columns of it have different states.

Tests: ``tests/spark/test_computation.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from seamark.spark.plans.definitions import each

_PASSES_ON: Final = frozenset({"Filter", "SubqueryAlias", "EventTimeWatermark", "Join"})
"""Nodes whose columns are those of their children. Of other nodes every column counts as read."""


def nodes_with_read_columns(plan: Any) -> Iterator[tuple[Any, frozenset[int]]]:
    """A plan and everything below it, parents first, each with the ids of the columns read of it.

    The columns that a node reads itself, in its condition, are among those of its children.
    """
    yield from _below(plan, _ids(plan.output()))


def _below(node: Any, read: frozenset[int]) -> Iterator[tuple[Any, frozenset[int]]]:
    yield node, read
    for child in each(node.children()):
        yield from _below(child, _read_of_child(node, child, read))


def _read_of_child(node: Any, child: Any, read: frozenset[int]) -> frozenset[int]:
    kind = str(node.getClass().getSimpleName())
    if kind in _PASSES_ON:
        return read | _references(node)
    if kind == "Project":
        return _references(*(e for e in each(node.projectList()) if _id(e) in read))
    if kind == "Aggregate":
        columns = [e for e in each(node.aggregateExpressions()) if _id(e) in read]
        return _references(*each(node.groupingExpressions()), *columns)
    return _ids(child.output())


def _references(*trees: Any) -> frozenset[int]:
    return frozenset(_id(column) for tree in trees for column in each(tree.references()))


def _ids(columns: Any) -> frozenset[int]:
    return frozenset(_id(column) for column in each(columns))


def _id(column: Any) -> int:
    return int(column.exprId().id())
