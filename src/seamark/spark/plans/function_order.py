"""Which functions an aggregation keeps in the state, in which order, and which columns a join.

Spark merges what is selected of an aggregation into it, so the order of the selection decides, and
not that of the declaration. It drops those that nobody reads, also through sorts, limits and
unions. The state has no names but those of the kinds of functions: one sum in the place of another
would go on from its state.

Tests: ``tests/spark/test_function_order.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from seamark.spark.plans.trees import class_name, each

FUNCTIONS: Final = "functions"
ORDER: Final = "order"
"""Parts of an aggregation's description: its functions, and the numbers in that list of those that
the state has, in its order."""
STATE_COLUMNS: Final = "state columns"
"""Part of a join's description: the columns that its state has."""

Places = Mapping[int, int]
"""By the id of a function's result: where it comes among all functions of a plan."""


def aggregate_functions(expression: Any) -> Iterator[Any]:
    """The aggregate functions inside one column of a result."""
    if class_name(expression) == "AggregateExpression":
        yield expression
        return
    for child in each(expression.children()):
        yield from aggregate_functions(child)


def result_id(function: Any) -> int:
    """The id of what a function computes; it stays the same when Spark optimizes a plan."""
    return int(function.resultId().id())


def function_places(analyzed: Any, optimized: Any) -> Places | None:
    """Where each function is in what Spark's optimizer has made of a plan; equal ones are one.

    None when the optimizer has put other functions there, and so it is not known which is which.
    """
    declared = {
        result_id(one) for each_of in _functions_of_aggregations(analyzed) for one in each_of
    }
    places: dict[int, int] = {}
    for functions in _functions_of_aggregations(optimized):
        known: dict[int, list[Any]] = {}
        for function in functions:
            alike = known.setdefault(int(function.semanticHash()), [])
            equal = next((one for one in alike if function.semanticEquals(one)), function)
            alike.append(function)
            place = places.get(result_id(equal), len(places))
            places.setdefault(result_id(function), place)
    return places if places.keys() <= declared else None


def _functions_of_aggregations(plan: Any) -> Iterator[list[Any]]:
    if class_name(plan) == "Aggregate":
        columns = each(plan.aggregateExpressions())
        yield [function for column in columns for function in aggregate_functions(column)]
    for child in each(plan.children()):
        yield from _functions_of_aggregations(child)


def join_columns(optimized: Any) -> frozenset[int]:
    """The ids of the columns that joins read in a plan that Spark's optimizer has made."""
    found: set[int] = set()
    waiting = [optimized]
    while waiting:
        node = waiting.pop()
        children = list(each(node.children()))
        waiting += children
        if class_name(node) == "Join":
            found |= {int(c.exprId().id()) for child in children for c in each(child.output())}
    return frozenset(found)


def state_order(results: Iterable[tuple[str, int]], places: Places | None) -> list[int] | None:
    """The numbers of the functions that the state has; given are the text and id of each function.

    None when that is not known, and for a single one.
    """
    numbered = list(dict.fromkeys((text, (places or {}).get(one)) for text, one in results))
    if places is None or len(numbered) < 2:
        return None
    kept = [(place, number) for number, (_, place) in enumerate(numbered) if place is not None]
    return [number for _, number in sorted(kept)]


def kept_functions(operator: Mapping[str, Any]) -> list[str]:
    """The functions of a described aggregation that the state has, as far as that is known."""
    functions, order = list(operator.get(FUNCTIONS) or []), operator.get(ORDER)
    if order is None:
        return functions
    if not set(order) <= set(range(len(functions))):  # of very many, or equal, some are recorded
        return [*functions, f"in the order {order}"]
    return [functions[number] for number in order]
