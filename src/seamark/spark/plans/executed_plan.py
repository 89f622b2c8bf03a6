"""The operators that Spark must run for what was declared, and the plan that it really runs.

Spark may replace a part of a plan by an equal part that it computes anyway. For a stateful operator
that is not harmless: one whose input is such a replacement never gets a watermark, keeps its rows
forever and emits none, without an error. So the plan of every epoch is compared before any row is
written.

Spark plans every batch on its own, and its optimizer looks at the rows of that batch. Where a
source is empty in a batch, some of its rules take every result made of it for empty as well,
although there may be state. They remove a limit with its state, and the operators above it get
other numbers. They also remove the sort and the limit of a complete result, so that the batch shows
all of its rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from seamark.errors import RefusedError
from seamark.spark.plans.plan import analyzed, stateful_kind
from seamark.spark.plans.trees import each

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

REUSED: Final = "ReusedExchange"
WATERMARK: Final = "EventTimeWatermark"

_LIMIT: Final = "StreamingGlobalLimit"

_KINDS: Final[Mapping[str, str]] = {
    "StateStoreSave": "aggregation",
    "SessionWindowStateStoreSave": "aggregation",
    "StreamingDeduplicate": "deduplication",
    "StreamingDeduplicateWithinWatermark": "deduplication within the watermark",
    "StreamingSymmetricHashJoin": "stream-stream join",
    _LIMIT: "limit",
    "FlatMapGroupsWithState": "flatMapGroupsWithState",
    "FlatMapGroupsInPandasWithState": "applyInPandasWithState",
    "TransformWithState": "transformWithState",
    "TransformWithStateInPandas": "transformWithState",
    "TransformWithStateInPySpark": "transformWithState",
}
EXCHANGE_REUSE: Final = "spark.sql.exchange.reuse"
CACHE_PRUNING: Final = "spark.sql.inMemoryColumnarStorage.partitionPruning"
REGEX_NAMES: Final = "spark.sql.parser.quotedRegexColumnNames"
EXCLUDED_RULES: Final = "spark.sql.optimizer.excludedRules"
TOTAL: Final = "total"
"""An aggregation without a key; see :func:`has_totals`."""
_OPTIMIZER: Final = "org.apache.spark.sql.catalyst.optimizer"
_RULES_THAT_REMOVE: Final[Mapping[str, tuple[str, ...]]] = {
    "GlobalLimit": (f"{_OPTIMIZER}.EliminateLimits", f"{_OPTIMIZER}.ConvertToLocalRelation"),
    "Sort": (f"{_OPTIMIZER}.EliminateSorts", f"{_OPTIMIZER}.OptimizeOneRowPlan"),
    "Aggregate": (f"{_OPTIMIZER}.OptimizeOneRowPlan",),
    # it makes a subquery of several totals, which has no state (seen in 4.3)
    TOTAL: (
        f"{_OPTIMIZER}.MergeSubplans",
        "org.apache.spark.sql.execution.planmerging.MergeSubplans",
    ),
}
"""Rules that remove a node of a plan: because of the rows that there are in one batch, or because
there is one like it."""


@dataclass(frozen=True)
class PlanNode:
    """One node of a physical plan."""

    name: str
    children: tuple[PlanNode, ...] = ()
    operator: int | None = None
    """The number of the operator, for a node that writes state."""
    mark: str | None = None
    """The id of a ``withWatermark``."""


@dataclass(frozen=True)
class PlanOperator:
    """A stateful operator: what it does, and whether it has a watermark."""

    kind: str
    has_watermark: bool

    def __str__(self) -> str:
        return f"{self.kind} {'with' if self.has_watermark else 'without'} a watermark"


def require_declared(plan: PlanNode, declared: Iterable[PlanOperator], epoch: int) -> None:
    """:class:`RefusedError` unless a plan runs all declared operators with their watermarks."""
    faults = differences(plan, declared)
    if faults:
        raise RefusedError(
            f"epoch {epoch}: Spark's plan is not the one that was declared, and would lose rows",
            where="; ".join(faults),
            hint="Nothing was written. Leave spark.sql.exchange.reuse to the pipeline: a function "
            "that is called with a batch must not turn it on in the batch's session. If nobody "
            "does, please report this with the output of explain().",
        )


def require_watermarks(plan: PlanNode, declared: Mapping[str, str], epoch: int) -> None:
    """:class:`RefusedError` when a plan lacks a ``withWatermark`` of the query.

    Spark waits for rows of each that was declared, also when its optimizer has removed one together
    with a join whose other side nobody reads. Then the watermark of the whole query never moves.
    """
    marks = {node.mark for node in _all(plan)}
    gone = [text for mark, text in declared.items() if mark not in marks]
    if gone and marks != {None}:
        raise RefusedError(
            f"epoch {epoch}: the watermark would never move, and rows would be kept forever",
            where=f"Spark's optimizer has removed the watermark on {', '.join(gone)}: nothing that "
            "is computed there is used, and Spark still waits for it",
            hint="Nothing was written. Leave out the join or union that brings it in, or use what "
            "it computes.",
        )


def require_settings(
    declared: Mapping[str, str], setting: Callable[[str], str | None], epoch: int
) -> None:
    """:class:`RefusedError` when the session of a batch has other settings than its query needs.

    What Spark's optimizer does then need not be seen in the operators: without its sort, a complete
    result shows all rows.
    """
    for name, value in declared.items():
        if (now := setting(name)) != value:
            raise RefusedError(
                f"epoch {epoch}: a setting that the plan of the pipeline needs was changed",
                where=f"{name}: {value} → {'none' if now is None else now}",
                hint="Nothing of the epoch was written. A function that is called with a batch "
                "changes it for all outputs when it sets it in the batch's session. Set it before "
                "the pipeline is started instead: then the pipeline adds what it needs.",
            )


def differences(plan: PlanNode, declared: Iterable[PlanOperator]) -> list[str]:
    """What is wrong with a plan, in words. Pure."""
    reusing = [
        f"the {_KINDS.get(node.name, node.name)} (operator {node.operator}) reads an exchange that "
        "belongs to another one"
        for node in _executed(plan)
        if node.operator is not None and _reads_reused_stream(node)
    ]
    if reusing:
        return reusing
    expected = Counter(declared)
    executed = Counter(
        PlanOperator(_KINDS.get(node.name, node.name), _sees_watermark(node))
        for node in _executed(plan)
        if node.operator is not None
    )
    missing = [f"declared and not run: {_times(n, op)}" for op, n in (expected - executed).items()]
    added = [f"run and not declared: {_times(n, op)}" for op, n in (executed - expected).items()]
    return missing + added


def lowest_marked(plan: PlanNode) -> frozenset[int]:
    """The operators that read a ``withWatermark`` and no other operator.

    These run with the watermark of the epoch; those above with what the lower ones make of it.
    """
    return frozenset(
        node.operator
        for node in _executed(plan)
        if node.operator is not None
        and node.name != _LIMIT  # it counts rows, and has no use for a watermark
        and _sees_watermark(node)
        and not any(each.operator is not None for below in node.children for each in _all(below))
    )


def mixes_state(plan: PlanNode) -> bool:
    """Whether the last stage writes state of an aggregation, and of something else."""
    kinds = {_KINDS.get(node.name) for node in _last_stage(plan) if node.operator is not None}
    return "aggregation" in kinds and len(kinds) > 1


def _last_stage(plan: PlanNode) -> Iterator[PlanNode]:
    yield plan
    for child in plan.children:
        if not child.name.endswith("Exchange"):
            yield from _last_stage(child)


def _all(plan: PlanNode, down_to: str = "") -> Iterator[PlanNode]:
    """A plan and everything below it, except what is below a node of some name."""
    yield plan
    if plan.name != down_to:
        for child in plan.children:
            yield from _all(child, down_to)


def _executed(plan: PlanNode) -> Iterator[PlanNode]:
    """The nodes that run: not those behind a reused exchange."""
    return _all(plan, REUSED)


def _reads_reused_stream(plan: PlanNode) -> bool:
    """Whether a reused exchange below hides a watermark or state; one of a table hides nothing."""
    return any(
        below.name == WATERMARK or below.operator is not None
        for node in _executed(plan)
        if node.name == REUSED
        for below in _all(node)
    )


def _sees_watermark(plan: PlanNode) -> bool:
    return any(node.name == WATERMARK for node in _executed(plan))


def _times(number: int, operator: PlanOperator) -> str:
    return str(operator) if number == 1 else f"{number} × {operator}"


def settings_for(
    operators: Iterable[PlanOperator], removable: Iterable[str], excluded_rules: str
) -> dict[str, str]:
    """What a query must run with, so that every batch runs these operators.

    Exchanges are never reused below state: Spark loses the watermark of the second reader. No part
    of a persisted batch is left out by its statistics: they know nothing of NaN, which is larger
    than every number, so a filter would lose it (4.0 to 4.3). A quoted name is
    that of one column, also where the session takes it for a pattern. ``removable`` is what
    :func:`removable_nodes` says of the query's plans.
    """
    settings = {CACHE_PRUNING: "false", REGEX_NAMES: "false"}
    if list(operators):
        settings[EXCHANGE_REUSE] = "false"
    ours = [rule for name in removable for rule in _RULES_THAT_REMOVE[name]]
    if ours:
        rules = [rule.strip() for rule in excluded_rules.split(",") if rule.strip()]
        settings[EXCLUDED_RULES] = ",".join(dict.fromkeys([*rules, *ours]))
    return settings


def removable_nodes(plan: Any) -> set[str]:
    """Kinds of nodes in an optimized plan that Spark might remove from the plan of one batch."""
    below = {name for child in each(plan.children()) for name in removable_nodes(child)}
    name = str(plan.getClass().getSimpleName())
    if name not in _RULES_THAT_REMOVE or not plan.isStreaming():
        return below
    if name == "Aggregate" and not plan.groupOnly():
        return below  # only one without functions could be a projection
    return below | {name}


def has_totals(plan: Any) -> bool:
    """Whether an analyzed plan aggregates a stream without a key.

    Asked before the optimizer runs: it takes several of them out of the plan that we would look at
    as well, so that no comparison tells.
    """
    is_total = plan.getClass().getSimpleName() == "Aggregate" and plan.isStreaming()
    if is_total and plan.groupingExpressions().isEmpty():
        return True
    return any(has_totals(child) for child in each(plan.children()))


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
