"""What the functions of a streaming aggregation keep for a group, by the plan that Spark runs.

Tests: ``tests/pipeline/test_upgrade_values.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from py4j.protocol import Py4JError

from seamark.spark.plans.plan_reader import state_writer, state_writers
from seamark.spark.plans.trees import class_name, each

_AGGREGATES: Final = ("HashAggregateExec", "SortAggregateExec", "ObjectHashAggregateExec")
_WRAPPERS: Final = ("WholeStageCodegenExec", "InputAdapter")


@dataclass(frozen=True)
class FunctionBuffer:
    """What one function keeps for a group."""

    function: str
    """Its name, as Spark calls it."""
    columns: tuple[tuple[str, str], ...]
    """Name and type of each column of the state."""
    initial: tuple[Any, ...] | None
    """Spark's expressions for a group without rows; None for a function that has none."""


Buffers = dict[int, list[FunctionBuffer]]
"""By operator: its functions."""


def aggregate_buffers(jvm: Any, plan: Any) -> Buffers:
    """By operator: the functions of each aggregation of an executed plan, in the state's order."""
    buffers: Buffers = {}
    for node in state_writers(plan, state_writer(jvm)):
        if class_name(node) == "StateStoreSaveExec" and (below := _aggregate(node)) is not None:
            functions = (
                expression.aggregateFunction() for expression in each(below.aggregateExpressions())
            )
            buffers[int(node.getStateInfo().operatorId())] = [*map(_buffer, functions)]
    return buffers


def _aggregate(node: Any) -> Any:
    """The aggregate whose rows are saved; None when there is something else below."""
    below = node.child()
    while class_name(below) in _WRAPPERS:
        below = below.child()
    return below if class_name(below) in _AGGREGATES else None


def _buffer(function: Any) -> FunctionBuffer:
    columns = tuple(
        (str(column.name()), str(column.dataType().json()))
        for column in each(function.inputAggBufferAttributes())
    )
    return FunctionBuffer(str(function.prettyName()), columns, _initial(function))


def _initial(function: Any) -> tuple[Any, ...] | None:
    try:
        return tuple(each(function.initialValues()))
    except Py4JError:  # it keeps an object of its own
        return None
