"""By which of its columns an operator with state forgets.

Spark marks the column of a ``withWatermark`` and passes the mark on, by some ways and not by
others: of a union it is that of the first part, and ``withMetadata`` takes it away (not in 4.0). An
operator drops late rows and removes state by marked columns only, whatever watermarks are below it.

Tests: ``tests/spark/test_forgetting.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from seamark.spark.plans.definitions import Definitions, shortened
from seamark.spark.plans.hidden_parameters import asked
from seamark.spark.plans.trees import class_name, each

FORGETS_BY: Final = "forgets by"
"""The part of an operator with state that says it."""
_MARK: Final = "spark.watermarkDelayMs"
_NOTHING: Final = "nothing"


def forgets_by(node: Any, keys: list[Any], read: frozenset[int], definitions: Definitions) -> str:
    """The marked ones among the keys of an operator, or among the columns that it needs.

    ``read`` has the ids of a join's columns that somebody reads, or its condition.
    """
    kind = class_name(node)
    if kind == "Join":
        sides = []
        for side in each(node.children()):
            columns = [c for c in _marked(each(side.output())) if int(c.exprId().id()) in read]
            sides.append(", ".join(definitions.text(c, side) for c in columns) or _NOTHING)
        return shortened(" | ".join(sides))
    if kind == "DeduplicateWithinWatermark" or _is_timed(node):
        below = node.children().head()
        found = [definitions.text(column, below) for column in _marked(each(below.output()))]
    else:  # by their places, since words for them are compared with the keys
        found = [f"key {at + 1}" for at, key in enumerate(keys) if _is_marked(key)]
    return shortened(", ".join(found) or _NOTHING)


def _is_timed(node: Any) -> bool:
    """Whether a function with state has timers by the times of rows."""
    time = asked(node, "timeout") or asked(node, "timeMode")
    return time is not None and str(time.toString()).startswith("EventTime")


def _marked(columns: Iterator[Any]) -> Iterator[Any]:
    return (column for column in columns if _is_marked(column))


def _is_marked(expression: Any) -> bool:
    metadata = asked(expression, "metadata")
    return metadata is not None and bool(metadata.contains(_MARK))
