"""What in a plan may give other rows when the same rows are read again.

Spark calls an expression deterministic when it depends on nothing but its arguments, and an
aggregate too if it depends on the order of the rows (4.3). ``current_timestamp()`` comes out the
same in a stream: Spark takes the time of the batch, which is part of the offset log. It does not do
that for ``now()`` and ``current_time()``.

Tests: ``tests/spark/test_determinism.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from seamark.spark.plans.computation import python_functions
from seamark.spark.plans.plan import nodes, stateful_kind
from seamark.spark.plans.trees import class_name, each

_FLOATING: Final = frozenset({"double", "float"})
_BY_ORDER: Final = frozenset(
    {"AnyValue", "CollectList", "CollectSet", "First", "Last", "ListAgg", "MaxBy", "MinBy"}
)
_BY_CLOCK: Final = frozenset({"Now", "CurrentTime"})
_SEEDED: Final = frozenset({"Rand", "RandStr", "Randn", "Shuffle", "Uniform", "Uuid"})
"""Expressions whose results follow from a seed."""


def unrepeatable_parts(plan: Any, jvm: Any) -> list[str]:
    """Each part of a plan whose result may differ from one run to the next, in words."""
    parts: dict[str, None] = {}
    for node in nodes(plan):
        if class_name(node).startswith("Deduplicate") and _keeps_one_of_several(node):
            parts["dropDuplicates keeps whichever of several rows comes first"] = None
        for expression in each(node.expressions()):
            parts |= dict.fromkeys(_in_expression(expression))
    for name in python_functions(plan, jvm):
        parts[f"what the Python function {name} does is not known"] = None
    return list(parts)


def drawn_apart(plans: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Which plans of one query have random values in common: each of them draws for itself."""
    drawing: list[tuple[Any, dict[str, None]]] = []
    for name, plan in plans.items():
        for step in _random_steps(plan):
            for known, names in drawing:
                if known == step:
                    names[name] = None
                    break
            else:
                drawing.append((step, {name: None}))
    return list(dict.fromkeys(tuple(names) for _, names in drawing if len(names) > 1))


def _random_steps(plan: Any) -> Iterator[Any]:
    """What in nodes without state does not depend on their rows alone.

    Random numbers are known by their seed: one plan may write the node that draws them in another
    way, as it does for a hidden column of a source. Anything else is known by its node.
    """
    if plan.deterministic():  # a plan knows it of everything below
        return
    for node in nodes(plan):
        steps = each(node.expressions()) if stateful_kind(node) is None else ()
        random = [one for step in steps for one in _random_expressions(step)]
        yield from (_seed(one) for one in random if class_name(one) in _SEEDED)
        if any(class_name(one) not in _SEEDED for one in random):
            yield node


def _random_expressions(expression: Any) -> Iterator[Any]:
    """The innermost parts that do not depend on their arguments alone."""
    if expression.deterministic():
        return
    children = list(each(expression.children()))
    if all(child.deterministic() for child in children):
        yield expression
    for child in children:
        yield from _random_expressions(child)


def _seed(expression: Any) -> tuple[str, str]:
    return class_name(expression), str(expression.seedExpression().toString())


def _in_expression(expression: Any) -> Iterator[str]:
    kind = class_name(expression)
    if kind == "AggregateExpression" and _adds_floating_numbers(expression):
        name = expression.aggregateFunction().prettyName()
        yield f"{name}() of floating-point numbers depends on the order of the rows"
    if kind in _BY_ORDER:
        yield f"{_name(expression)}() depends on the order of the rows"
    if kind in _BY_CLOCK:
        yield f"{_name(expression)}() is the time at which it runs, not that of the batch"
    children = list(each(expression.children()))
    if not expression.deterministic() and all(child.deterministic() for child in children):
        yield f"{_name(expression)}() is not deterministic"
        return
    for child in children:
        yield from _in_expression(child)


def _name(expression: Any) -> str:
    return str(expression.prettyName())


def _adds_floating_numbers(expression: Any) -> bool:
    function = expression.aggregateFunction()
    if class_name(function) in _BY_ORDER or str(function.prettyName()) in ("min", "max", "count"):
        return False
    return any(
        str(child.dataType().simpleString()) in _FLOATING for child in each(function.children())
    )


def _keeps_one_of_several(node: Any) -> bool:
    """Whether rows that count as equal may differ in a column."""
    return int(node.keys().size()) < int(node.child().output().size())
