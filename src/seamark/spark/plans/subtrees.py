"""Which rows reach an operator, and what is made of its own, as text that is the same everywhere.

This is what distinguishes operators that compute the same of different rows: joins with tables,
generators, samples, limits, functions over whole rows. Of tables it has the place and not what is
in them, and of Python functions the name.

Tests: ``tests/spark/test_equal_operators.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from seamark.spark.plans.definitions import Definitions
from seamark.spark.plans.hidden_parameters import asked
from seamark.spark.plans.plan import delay_ms
from seamark.spark.plans.static_tables import place_of
from seamark.spark.plans.time_windows import span
from seamark.spark.plans.trees import class_name, each

SAME_ROWS: Final = frozenset(
    {"Project", "SubqueryAlias", "View", "ResolvedHint", "CollectMetrics"}
    | {"Repartition", "RepartitionByExpression", "RebalancePartitions"}
)
"""Nodes that drop and multiply no rows. Their columns are told where something reads them."""
_WHOLE_ROWS: Final = ("Distinct", "Except", "FlatMapGroups", "Intersect", "TransformWith", "Union")
"""How nodes are called that read every column without naming it."""
_FLAGS: Final = ("isAll", "outer", "withReplacement")
_BOUNDS: Final = ("lowerBound", "upperBound")
"""What else decides the rows of a node and is no expression of it."""
_SEEDS: Final = 2**31
"""Seeds below this are written by people; Spark draws those that nobody gives from 64 bits."""

NameOf = Callable[[Any], str]


class Subtrees:
    """The words for the nodes of one plan. Nothing outside of the plan has a part in them."""

    def __init__(self, plan: Any, name_of: NameOf, table_of: NameOf) -> None:
        """``name_of`` names a stream, ``table_of`` a declared table, or not with an empty text."""
        self._plan = plan
        self._name_of = name_of
        self._table_of = table_of
        self._definitions = Definitions(plan, name_of)
        self._numbers: dict[int, int] = {}

    def rows(self) -> str:
        """The rows of the whole plan."""
        self._definitions.begin()
        return self._with_hidden(self._rows(self._plan))

    def rows_below(self) -> str:
        """The rows that the uppermost node of the plan reads."""
        self._definitions.begin()
        return self._with_hidden(self._below(self._plan, class_name(self._plan)))

    def query(self) -> str:
        """The rows and columns of the whole plan."""
        self._definitions.begin()
        columns = [self._definitions.text(c, self._plan) for c in each(self._plan.output())]
        return self._with_hidden(f"{self._rows(self._plan)} ({', '.join(columns)})")

    def way_up(self, nodes: Sequence[Any]) -> str:
        """What nodes of the plan, each the parent of the next, make of the rows of the last."""
        self._definitions.begin()
        made = [text for node in nodes for text in self._made(node)]
        return self._with_hidden(" of ".join(made))

    def _with_hidden(self, text: str) -> str:
        hidden = [f"{part} {what}" for part, what in self._definitions.hidden().items()]
        return "; ".join([text, *hidden])

    def _rows(self, node: Any) -> str:
        kind = class_name(node)
        if node.children().isEmpty():
            return self._leaf(node, kind)
        below = self._below(node, kind)
        return below if kind in SAME_ROWS else f"{self._words(node, kind)} of {below}"

    def _below(self, node: Any, kind: str) -> str:
        texts = []
        for child in each(node.children()):
            text = self._rows(child)
            if kind.startswith(_WHOLE_ROWS):
                columns = [self._definitions.text(c, child) for c in each(child.output())]
                text = f"{text} ({', '.join(columns)})"
            texts.append(text)
        if kind == "Union":
            texts.sort()
        return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"

    def _words(self, node: Any, kind: str) -> str:
        parts = [kind.lower()]
        if (join := asked(node, "joinType")) is not None:
            parts.insert(0, str(join.sql()).lower())
        parts += [name for name in _FLAGS if asked(node, name)]
        bounds = [str(bound) for name in _BOUNDS if (bound := asked(node, name)) is not None]
        parts += [" to ".join(bounds)] if bounds else []
        if (seed := _seed(node)) is not None:
            parts.append(f"seed {seed}")
        if kind == "EventTimeWatermark":
            parts.append(span(delay_ms(node) * 1000))
        if kind == "CTERelationDef":
            parts.append(self._number(node.id()))
        parts += [self._definitions.text(e, node) for e in each(node.expressions())]
        for plan in each(node.subqueries()):
            parts.append(f"with a query of {Subtrees(plan, self._name_of, self._table_of).query()}")
        return " ".join(parts)

    def _leaf(self, leaf: Any, kind: str) -> str:
        if leaf.isStreaming():
            return self._name_of(leaf)
        if kind == "CTERelationRef":
            return f"query {self._number(leaf.cteId())}"
        if kind == "Range":
            return f"range({leaf.start()}, {leaf.end()}, {leaf.step()})"
        if name := self._table_of(leaf):
            return f"table {name}"
        if place := place_of(leaf):
            return f"table at {place}"
        columns = (f"{c.name()} {c.dataType().catalogString()}" for c in each(leaf.output()))
        return f"table of {', '.join(columns)}"

    def _number(self, number: Any) -> str:
        """Of a query with a name; Spark's own number is one of the process."""
        return str(self._numbers.setdefault(int(number), len(self._numbers) + 1))

    def _made(self, node: Any) -> Iterator[str]:
        kind = class_name(node)
        if kind == "Project":
            yield from (
                f"{e.name()}: {self._definitions.text(e, node.child())}"
                for e in each(node.projectList())
                if not _is_passed_on(e)
            )
        elif kind == "SubqueryAlias":
            yield f"alias {node.alias()}"
        elif kind not in SAME_ROWS and kind != "Union":
            yield self._words(node, kind)


def _is_passed_on(expression: Any) -> bool:
    """Whether a column is one of the child; of a union, Spark gives some columns new numbers."""
    if class_name(expression) != "Alias":
        return True
    child = expression.child()
    return class_name(child) == "AttributeReference" and child.name() == expression.name()


def _seed(node: Any) -> int | None:
    """The seed of a sample, when somebody has given one."""
    seed = asked(node, "seed")
    if seed is not None and not isinstance(seed, int):  # since Spark 4.3 there may be none
        seed = seed.get() if seed.isDefined() else None
    return seed if seed is not None and abs(seed) < _SEEDS else None
