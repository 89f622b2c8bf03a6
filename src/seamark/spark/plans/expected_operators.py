"""The stateful operators that Spark must run for what was declared, and the settings that make it.

Spark plans every batch on its own, and its optimizer looks at the rows of that batch. Two of its
rules remove a limit over a source that is empty in a batch. Then the limit's state gets no version,
and the operators above it get other numbers. A watermark below the limit prevents it.

Tests: ``tests/spark/test_computation.py``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from seamark.spark.plans.definitions import each
from seamark.spark.plans.executed_plan import WATERMARK, PlanOperator
from seamark.spark.plans.plan import analyzed, stateful_kind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

EXCHANGE_REUSE: Final = "spark.sql.exchange.reuse"
EXCLUDED_RULES: Final = "spark.sql.optimizer.excludedRules"
_OPTIMIZER: Final = "org.apache.spark.sql.catalyst.optimizer"
_RULES_THAT_REMOVE_LIMITS: Final = (
    f"{_OPTIMIZER}.EliminateLimits",
    f"{_OPTIMIZER}.ConvertToLocalRelation",
)


def settings_for(operators: Iterable[PlanOperator], excluded_rules: str) -> dict[str, str]:
    """What a query must run with, so that every batch runs these operators.

    Exchanges are never reused below state: Spark loses the watermark of the second reader.
    """
    operators = list(operators)
    settings = {EXCHANGE_REUSE: "false"} if operators else {}
    if any(operator.kind == "limit" and not operator.has_watermark for operator in operators):
        rules = [rule for rule in excluded_rules.split(",") if rule.strip()]
        settings[EXCLUDED_RULES] = ",".join(dict.fromkeys([*rules, *_RULES_THAT_REMOVE_LIMITS]))
    return settings


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
    operators_below = [operator for operators, _ in below for operator in operators]
    marked = any(mark for _, mark in below)
    kind = stateful_kind(plan)
    if (
        kind == "limit"
        and output_mode != "append"
        and any(op.kind == "aggregation" for op in operators_below)
    ):
        kind = None  # a limit of the whole result starts over in every epoch
    if kind is not None:
        operators_below.append(PlanOperator(kind, marked))
    return operators_below, marked or plan.getClass().getSimpleName() == WATERMARK
