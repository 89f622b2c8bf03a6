"""Filters above a join that decide what the join is.

Spark's optimizer makes a filter that compares the two sides a part of the join's condition, so its
keys may come from there. A filter on the side of an outer join that may be missing turns it into an
inner join. Either way the state of the join is that of another one when the filter changes.

Tests: ``tests/spark/test_computation.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from seamark.spark.plans.definitions import Definitions
from seamark.spark.plans.trees import class_name, each

_PASSED: Final = frozenset({"SubqueryAlias", "EventTimeWatermark"})
"""Nodes that a filter is moved through as it is."""


class Filters(NamedTuple):
    """The filters that decide a join, in words; empty when there are none."""

    texts: str = ""
    whole: str = ""
    """The same with what their SQL leaves out; empty when that is nothing."""


class _Condition(NamedTuple):
    """One condition that rows have to meet further up."""

    text: str
    whole: str
    """The same with what its SQL leaves out, such as the time zone."""
    columns: frozenset[int]
    """The ids of the columns that it is about."""


def nodes_with_filters(
    plan: Any, definitions: Definitions, above: tuple[_Condition, ...] = ()
) -> Iterator[tuple[Any, Filters]]:
    """A plan and everything below it, parents first, each join with the filters that decide it."""
    kind = class_name(plan)
    yield plan, _deciding(plan, above) if kind == "Join" else Filters()
    if kind == "Filter":
        above += tuple(_split(plan.condition(), plan, definitions))
    elif kind == "Project":
        above = tuple(_below_project(condition, plan) for condition in above)
    elif kind not in _PASSED and kind != "Join":
        above = ()
    for child in each(plan.children()):
        there = _ids(child.output())
        reach = tuple(condition for condition in above if condition.columns <= there)
        yield from nodes_with_filters(child, definitions, reach)


def _deciding(join: Any, above: tuple[_Condition, ...]) -> Filters:
    left, right = (_ids(side.output()) for side in each(join.children()))
    kind = str(join.joinType().sql())
    deciding = [c for c in above if _decides(kind, c.columns, left, right)]
    texts = " AND ".join(sorted({c.text for c in deciding}))
    whole = " AND ".join(sorted({c.whole for c in deciding}))
    return Filters(texts, whole if whole != texts else "")


def _decides(
    kind: str, columns: frozenset[int], left: frozenset[int], right: frozenset[int]
) -> bool:
    if kind in ("INNER", "CROSS"):
        return bool(columns & left and columns & right)
    if kind == "LEFT OUTER":
        return bool(columns & right)
    if kind == "RIGHT OUTER":
        return bool(columns & left)
    return kind == "FULL OUTER" and bool(columns)


def _split(condition: Any, node: Any, definitions: Definitions) -> Iterator[_Condition]:
    if class_name(condition) == "And":
        for side in each(condition.children()):
            yield from _split(side, node, definitions)
    else:
        text, whole = definitions.text(condition, node), definitions.whole(condition, node)
        yield _Condition(text, whole, _ids(condition.references()))


def _below_project(condition: _Condition, project: Any) -> _Condition:
    """The same condition, on the columns that those of a projection are made of."""
    columns = set(condition.columns)
    for expression in each(project.projectList()):
        if class_name(expression) == "Alias" and _id(expression) in columns:
            columns.discard(_id(expression))
            columns |= _ids(expression.references())
    return condition._replace(columns=frozenset(columns))


def _ids(columns: Any) -> frozenset[int]:
    return frozenset(_id(column) for column in each(columns))


def _id(column: Any) -> int:
    return int(column.exprId().id())
