"""In which order an aggregation keeps its functions in the state.

Spark merges what is selected of an aggregation into it, so the order of the selection decides, and
not that of the declaration. The state has no names but those of the kinds of functions: two sums
that change places would go on from the state of each other.

Tests: ``tests/spark/test_function_order.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from seamark.spark.plans.trees import class_name, each

FUNCTIONS: Final = "functions"
ORDER: Final = "order"
"""Parts of an aggregation's description: its functions, and their places in that list in the order
of the state."""

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


def function_places(optimized: Any) -> Places:
    """Where each function is in a plan that Spark's optimizer has made; equal ones are one."""
    places: dict[int, int] = {}
    for functions in _functions_of_aggregations(optimized):
        known: dict[int, list[Any]] = {}
        for function in functions:
            alike = known.setdefault(int(function.semanticHash()), [])
            equal = next((one for one in alike if function.semanticEquals(one)), function)
            alike.append(function)
            place = places.get(result_id(equal), len(places))
            places.setdefault(result_id(function), place)
    return places


def _functions_of_aggregations(plan: Any) -> Iterator[list[Any]]:
    if class_name(plan) == "Aggregate":
        columns = each(plan.aggregateExpressions())
        yield [function for column in columns for function in aggregate_functions(column)]
    for child in each(plan.children()):
        yield from _functions_of_aggregations(child)


def state_order(results: Iterable[tuple[str, int]], places: Places) -> list[int] | None:
    """The numbers of functions in the order of the state; given are the text and id of each.

    None when the plan does not have one of them, and where there is nothing to put in order.
    """
    known = [(text, places.get(one)) for text, one in results]
    found = [place for _, place in dict.fromkeys(known) if place is not None]
    if len(found) < 2 or any(place is None for _, place in known):
        return None
    return sorted(range(len(found)), key=found.__getitem__)


def kept_functions(operator: Mapping[str, Any]) -> list[str]:
    """The functions of a described aggregation in the order of the state, as far as it is known."""
    functions, order = list(operator.get(FUNCTIONS) or []), operator.get(ORDER)
    if order is None:
        return functions
    if sorted(order) != list(
        range(len(functions))
    ):  # of very many, or equal, only some are recorded
        return [*functions, f"in the order {order}"]
    return [functions[number] for number in order]
