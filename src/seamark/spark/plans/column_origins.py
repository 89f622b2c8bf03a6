"""Where columns come from that have the same number at two places of a plan, or another one.

The columns of a union have the numbers of those of its first plan, and a query with a name has
numbers of its own wherever it is used.

Tests: ``tests/spark/test_hidden_parameters.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from seamark.spark.plans.trees import class_name, each


def united_columns(plan: Any) -> Iterator[int]:
    """The numbers of columns that a union has of its first plan."""
    if class_name(plan) == "Union":
        first = plan.children().head().outputSet()
        yield from (int(c.exprId().id()) for c in each(plan.output()) if first.contains(c))
    for child in each(plan.children()):
        yield from united_columns(child)


def unions_with(attribute: Any, plan: Any) -> Iterator[Any]:
    """The unions on the way down to where a column is made, as far as they keep its number."""
    children = list(each(plan.children()))
    if class_name(plan) == "Union":
        yield plan
        children = children[:1]
    for child in children:
        if child.outputSet().contains(attribute):
            yield from unions_with(attribute, child)
            return


def named_queries(plan: Any) -> Iterator[Any]:
    """The queries of a plan that were given a name (``WITH``)."""
    if class_name(plan) == "WithCTE":
        yield from each(plan.cteDefs())
    for child in each(plan.children()):
        yield from named_queries(child)


def place_of_column(attribute: Any, output: Any) -> int:
    """Where a column stands among others."""
    wanted = attribute.exprId()
    return next(n for n, column in enumerate(each(output)) if column.exprId().equals(wanted))
