"""The stateful operators that Spark must run for what was declared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from seamark.spark.definitions import each
from seamark.spark.executed_plan import WATERMARK, PlanOperator
from seamark.spark.plan import analyzed, stateful_kind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def optimized(df: DataFrame) -> Any:
    """What Spark's optimizer makes of a DataFrame by itself."""
    session: Any = df.sparkSession._jsparkSession
    return session.sessionState().optimizer().execute(analyzed(df))


def operators_to_run(plan: Any, output_mode: str) -> list[PlanOperator]:
    """The stateful operators that Spark must run for an optimized plan."""
    return _operators_below(plan, output_mode)[0]


def _operators_below(plan: Any, output_mode: str) -> tuple[list[PlanOperator], bool]:
    """(the operators of a plan, whether a watermark is set in it)."""
    below = [_operators_below(child, output_mode) for child in each(plan.children())]
    found = [operator for operators, _ in below for operator in operators]
    marked = any(mark for _, mark in below)
    kind = stateful_kind(plan)
    if (
        kind == "limit"
        and output_mode != "append"
        and any(op.kind == "aggregation" for op in found)
    ):
        kind = None  # a limit of the whole result counts anew in every epoch
    if kind is not None:
        found.append(PlanOperator(kind, marked))
    return found, marked or plan.getClass().getSimpleName() == WATERMARK
