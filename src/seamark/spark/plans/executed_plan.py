"""The plan that Spark really runs, compared with the one that was declared.

Spark may replace a part of a plan by an equal part that it computes anyway. For a stateful operator
that is not harmless: one whose input is such a replacement never gets a watermark, keeps its rows
forever and emits none, without an error. So the plan of every epoch is compared before any row is
written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from seamark.errors import RefusedError

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


def _executed(plan: PlanNode) -> Iterator[PlanNode]:
    """The nodes that run: not those behind a reused exchange."""
    yield plan
    if plan.name != REUSED:
        for child in plan.children:
            yield from _executed(child)


def _all(plan: PlanNode) -> Iterator[PlanNode]:
    yield plan
    for child in plan.children:
        yield from _all(child)


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
