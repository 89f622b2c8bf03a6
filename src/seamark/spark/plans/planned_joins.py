"""What decides the state of a join of streams, and is not written in the join.

Spark's optimizer makes a filter that compares the two sides a part of the join, through almost any
node above it, also one that follows from a join with a table. The columns that it makes equal are
the keys of the state, in the order in which they come out. So the keys are those of the plan that
Spark has optimized.

Both sides of a join may be made of one stream, as calls and answers are. Their states then hold the
same columns, and only the rows below each side tell which one is which.

Tests: ``tests/spark/test_planned_joins.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from seamark.spark.plans.definitions import Definitions, shortened
from seamark.spark.plans.plan import nodes, stateful_kind
from seamark.spark.plans.subtrees import NameOf, Subtrees
from seamark.spark.plans.trees import class_name, each

PLANNED: Final = "planned"
"""Part of a join's description: its type, and its keys in their order."""
CONDITIONS: Final = "planned conditions"
"""Its other conditions. Each start has another current time, so none are told beside that."""
SIDES: Final = "sides"
"""The part that tells the rows of the two sides, where both are made of the same streams."""


def planned_joins(analyzed: Any, optimized: Any, name_of: NameOf) -> list[dict[str, Any]]:
    """What each join of streams is to Spark, parents first, in the order of the analysed plan.

    Empty when that is not known, because the optimizer has removed a join.
    """
    from pyspark import SparkContext

    context: Any = SparkContext._active_spark_context
    catalyst = context._jvm.org.apache.spark.sql.catalyst
    joins = list(_joins(optimized))
    if not joins or len(joins) != len(list(_joins(analyzed))):
        return []
    definitions = Definitions(optimized, name_of)
    parts_of = catalyst.planning.ExtractEquiJoinKeys
    found = [(join, parts_of.unapply(join)) for join in joins]
    planned = [{PLANNED: _planned(join, parts, definitions)} for join, parts in found]
    if analyzed.containsPattern(catalyst.trees.TreePattern.CURRENT_LIKE()):
        return planned
    conditions = [{CONDITIONS: _conditions(join, parts, definitions)} for join, parts in found]
    return [keys | others for keys, others in zip(planned, conditions, strict=True)]


def sides_of(join: Any, name_of: NameOf, table_of: NameOf) -> dict[str, list[str]]:
    """The rows of the two sides, where nothing else tells one from the other."""
    sides = list(each(join.children()))
    streams = [
        {name_of(leaf) for leaf in each(side.collectLeaves()) if leaf.isStreaming()}
        for side in sides
    ]
    texts = [shortened(Subtrees(side, name_of, table_of).rows()) for side in sides]
    return {SIDES: texts} if streams[0] == streams[1] and texts[0] != texts[1] else {}


def are_exchanged(old: Any, new: Any) -> bool:
    """Whether a side would go on from the state of the other one. Pure.

    A side may have other rows than before: filters change freely.
    """
    if not (isinstance(old, list) and isinstance(new, list) and len(old) == len(new) == 2):
        return False
    return any(new[n] == old[1 - n] and new[n] != old[n] for n in (0, 1))


def _joins(plan: Any) -> Iterator[Any]:
    return (n for n in nodes(plan) if class_name(n) == "Join" and stateful_kind(n) is not None)


def _planned(join: Any, parts: Any, definitions: Definitions) -> str:
    definitions.begin()
    kind = str(join.joinType().sql()).lower()
    if not parts.isDefined():
        return kind
    pairs = zip(each(parts.get()._2()), each(parts.get()._3()), strict=True)
    keys = ", ".join(
        f"{definitions.text(left, join)} = {definitions.text(right, join)}" for left, right in pairs
    )
    return _with_hidden(f"{kind} by {keys}", definitions)


def _conditions(join: Any, parts: Any, definitions: Definitions) -> str:
    definitions.begin()
    condition = parts.get()._4() if parts.isDefined() else join.condition()
    single = _single(condition.get()) if condition.isDefined() else ()
    texts = sorted(definitions.text(one, join) for one in single)
    return _with_hidden(" and ".join(texts) or "none", definitions)


def _with_hidden(words: str, definitions: Definitions) -> str:
    hidden = [f"{part} {what}" for part, what in definitions.hidden().items()]
    return shortened("; ".join([words, *hidden]))


def _single(condition: Any) -> Iterator[Any]:
    if class_name(condition) == "And":
        for side in each(condition.children()):
            yield from _single(side)
    else:
        yield condition
