"""What the operators of a plan compute: their keys, windows, functions, delays and conditions.

State is only as good as the agreement on what it is the state of. The description is made for that
comparison: of JSON values, small, without secrets, and the same in every process.

Only columns that something above reads count. Spark's optimizer drops all others, from the state
too, and compares what is left by type alone. So two pipelines that compute the same and read
different columns of it have different states.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from seamark.spark.plans.definitions import MOST, Definitions, Text, shortened
from seamark.spark.plans.equal_operators import Place, tell_equal_apart
from seamark.spark.plans.expression_digests import ExpressionDigests
from seamark.spark.plans.forgetting import FORGETS_BY, forgets_by
from seamark.spark.plans.function_order import (
    FUNCTIONS,
    ORDER,
    STATE_COLUMNS,
    Places,
    aggregate_functions,
    result_id,
    state_order,
)
from seamark.spark.plans.hidden_parameters import asked
from seamark.spark.plans.join_filters import Filters, nodes_with_filters
from seamark.spark.plans.plan import delay_ms, stateful_kind
from seamark.spark.plans.planned_joins import sides_of
from seamark.spark.plans.read_types import keeps_columns
from seamark.spark.plans.time_windows import span
from seamark.spark.plans.trees import class_name, each

FORM: Final = 1
"""The version of these texts. Texts of another form are not compared."""

WATERMARKS: Final = "watermarks"
"""The part of an operator with state that says which watermarks are below it."""
COMPUTATION: Final = "computation"
"""The part with digests of all that the operator's expressions hold."""

Operator = dict[str, Any]
_PASSES_ON: Final = frozenset({"Filter", "SubqueryAlias", "EventTimeWatermark", "Join"})
"""Nodes whose columns are those of their children. Of other nodes every column counts as read."""


_QUALIFIER: Final = re.compile(r"\b\w+(?:#\d+)?\.")
"""What the name of a column begins with where an earlier source or table has one of its name."""


def operators_of(
    plan: Any,
    name_of: Callable[[Any], str],
    table_of: Callable[[Any], str] = lambda _: "",
    function_places: Places | None = None,
    join_columns: frozenset[int] | None = None,
    planned_joins: Sequence[Mapping[str, Any]] = (),
) -> list[Operator]:
    """Every stateful operator and watermark below a plan, parents first.

    ``name_of`` names a leaf, ``table_of`` the table that it was declared as, if it was.
    ``function_places``, ``join_columns`` and ``planned_joins`` are those in what Spark's optimizer
    makes of it.
    """
    definitions = Definitions(plan, name_of)
    operators = []
    places: list[Place] = []
    columns: dict[int, frozenset[int]] = {}
    decided_by = (filters for _, filters in nodes_with_filters(plan, definitions))
    nodes = zip(nodes_with_read_columns(plan), decided_by, strict=True)
    depths: list[int] = []
    watermarks: dict[int, str] = {}
    planned = iter(planned_joins)
    for number, ((node, read, depth), filters) in enumerate(nodes):
        definitions.begin()
        depths.append(depth)
        if class_name(node) == "EventTimeWatermark":
            operators.append({**_watermark(node, definitions), **definitions.hidden()})
            watermarks[number] = watermark_text(operators[-1])
        elif (kind := stateful_kind(node)) is not None:
            parts = _parts(node, read, definitions, function_places)
            operators.append({"operator": kind, **parts, **definitions.hidden()})
            if class_name(node) == "Join":
                kept = read & join_columns if join_columns is not None else None
                operators[-1] |= {
                    **_decided_above(node, kept, filters, definitions),
                    **sides_of(node, name_of, table_of),
                    **next(planned, {}),
                }
            places.append(Place(number, node, operators[-1]))
            columns[number] = read
    several = _tell_apart(places, definitions)

    def alone(place: Place) -> list[Any]:
        """The same description without the rest of the plan, which some names depend on."""
        own = Definitions(place.node, name_of)
        own.begin()
        described = _parts(place.node, columns[place.number], own, function_places)
        told = place.operator["operator"], _QUALIFIER.sub("", place.operator.get("filter", ""))
        sources = _sources(place, own)
        # inputs are compared by their names, so that one more is no other operator
        hidden = {part: text for part, text in own.hidden().items() if part != "inputs"}
        key: list[Any] = [*told, described, hidden, sources]
        if place.operator["reads"] != shortened(sources):  # only what is recorded distinguishes
            key += _conditions(place.node, own)
        return key

    tell_equal_apart(plan, several, alone, name_of, table_of)
    digests = ExpressionDigests(plan, name_of)
    for number, node, operator in places:  # after the others, which look at what is equal in them
        below = {WATERMARKS: _below(number, depths, watermarks)}
        forgetting = _forgetting(node, columns[number], definitions)
        operator.update(below | forgetting | _digested(node, columns[number], digests))
    return operators


def _digested(node: Any, read: frozenset[int], digests: ExpressionDigests) -> dict[str, str]:
    whole = [digests.of(*part) for part in _computed(node, read)]
    return {COMPUTATION: " ".join(whole)} if whole and all(whole) else {}


def _below(number: int, depths: list[int], texts: Mapping[int, str]) -> list[str]:
    """The texts of the nodes below one, by the depths of all nodes, parents first."""
    after = range(number + 1, len(depths))
    end = next((n for n in after if depths[n] <= depths[number]), len(depths))
    return sorted(text for n, text in texts.items() if number < n < end)


def _computed(node: Any, read: frozenset[int]) -> Iterator[tuple[list[Any], Any]]:
    """The expressions that an operator with state is made of, with the plans that they are over."""
    kind = class_name(node)
    if kind == "Join":
        condition = node.condition()
        yield [condition.get()] if condition.isDefined() else [], node
        for side in each(node.children()):
            yield [column for column in each(side.output()) if _id(column) in read], side
    elif kind != "GlobalLimit":
        keys, below = _keys(node)
        yield keys, below
    if kind == "Aggregate":
        results = [e for e in each(node.aggregateExpressions()) if _id(e) in read]
        yield [function for e in results for function in aggregate_functions(e)], below


def _forgetting(node: Any, read: frozenset[int], definitions: Definitions) -> dict[str, str]:
    kind = class_name(node)
    if kind == "GlobalLimit":
        return {}
    keys = [] if kind == "Join" else _keys(node)[0]
    return {FORGETS_BY: forgets_by(node, keys, read | _references(node), definitions)}


def _keys(node: Any) -> tuple[list[Any], Any]:
    """The keys of an operator with state, and the plan whose columns they are made of."""
    kind = class_name(node)
    below = node.children().head()
    if kind == "Aggregate":
        return list(each(node.groupingExpressions())), below
    if kind.startswith("Deduplicate"):
        return list(each(node.keys())), below
    if kind in ("Distinct", "Except"):
        return list(each(below.output())), below
    if (keys := asked(node, "groupingAttributes")) is None:
        # transformWithState has its keys as the first columns of what it reads
        keys = below.output().take(int(node.groupingAttributesLen()))
    return list(each(keys)), below


def watermark_text(watermark: Mapping[str, Any]) -> str:
    """A watermark among the operators, in words."""
    return f"of {watermark.get('of')}, {watermark.get('delay')}"


def _tell_apart(places: list[Place], definitions: Definitions) -> list[Place]:
    """Add to each of several operators of a kind the sources that it reads, and return these.

    Where they are still equal, what they read of these, too: by its place alone, one of them would
    be taken for another that has changed places with it.
    """
    kinds = Counter(place.operator["operator"] for place in places)
    several = [place for place in places if kinds[place.operator["operator"]] > 1]
    for place in several:
        place.operator["reads"] = shortened(_sources(place, definitions))
    told = [place.operator.copy() for place in several]
    for _, node, operator in several:
        if told.count(operator) > 1 and (conditions := list(_conditions(node, definitions))):
            operator["reads"] = shortened(f"{operator['reads']} where {' and '.join(conditions)}")
    return several


def _sources(place: Place, definitions: Definitions) -> str:
    names = (definitions.leaf_name(leaf) for leaf in each(place.node.collectLeaves()))
    return ", ".join(dict.fromkeys(names))


def _conditions(node: Any, definitions: Definitions) -> Iterator[str]:
    """The filters below a node."""
    for child in each(node.children()):
        if class_name(child) == "Filter":
            yield definitions.text(child.condition(), child)
        yield from _conditions(child, definitions)


def python_functions(plan: Any, jvm: Any) -> list[str]:
    """Names of the Python functions in a plan. What they do cannot be seen from here."""
    pattern = jvm.org.apache.spark.sql.catalyst.trees.TreePattern.PYTHON_UDF()
    functions: dict[str, None] = {}
    for node in _with(plan, pattern):
        for expression in each(node.expressions()):
            for inner in _with(expression, pattern):
                if class_name(inner).startswith("Python"):
                    functions[str(inner.name())] = None
    return list(functions)


def _with(tree: Any, pattern: Any) -> Iterator[Any]:
    """The nodes of a tree on the way to those of a pattern."""
    if tree.containsPattern(pattern):
        yield tree
        for child in each(tree.children()):
            yield from _with(child, pattern)


def _watermark(node: Any, definitions: Definitions) -> Operator:
    column = definitions.text(node.eventTime(), node.child())
    return {"operator": "watermark", "of": column, "delay": span(delay_ms(node) * 1000)}


def _parts(
    node: Any, read: frozenset[int], definitions: Definitions, places: Places | None
) -> dict[str, Any]:
    kind = class_name(node)
    if kind == "Aggregate":
        return _aggregate(node, read, definitions, places)
    if kind == "Distinct" or kind.startswith("Deduplicate"):
        return _keyed(node, definitions)
    if kind == "Except":
        return {"all": "yes" if node.isAll() else "no", **_keyed(node, definitions)}
    if kind == "Join":
        return _join(node, read, definitions)
    if kind == "GlobalLimit":
        return {"rows": str(node.limitExpr().sql())}
    return _stateful_function(node, definitions)


def _keyed(node: Any, definitions: Definitions) -> dict[str, Any]:
    keys, below = _keys(node)
    return {
        "keys": _bounded([definitions.told(key, below) for key in keys]),
        "state": {"keys": _types(keys)},
    }


def _aggregate(
    node: Any, read: frozenset[int], definitions: Definitions, places: Places | None
) -> dict[str, Any]:
    """The keys and functions of an aggregation; Spark keeps no function that nobody reads."""
    parts = _keyed(node, definitions)
    functions: dict[str, str] = {}
    results: list[tuple[str, int]] = []
    objects: dict[str, None] = {}
    for expression in each(node.aggregateExpressions()):
        if int(expression.exprId().id()) not in read:
            continue
        for function in aggregate_functions(expression):
            text = str(definitions.told(function, node.child()))
            aggregate = function.aggregateFunction()
            kept = _buffer(aggregate)
            functions.setdefault(text, kept)
            results.append((text, result_id(function)))
            if kept == "binary" and not keeps_columns(aggregate):
                objects[f"{text} of {_types([*each(aggregate.children())])}"] = None
    parts[FUNCTIONS] = _bounded(list(functions))
    if (order := state_order(results, places)) is not None:
        parts[ORDER] = order
    parts["state"]["values"] = shortened(", ".join(functions.values()))
    if objects:  # bytes that only a function of the same types can read
        parts["state"]["objects"] = shortened("; ".join(objects))
    return parts


def _buffer(function: Any) -> str:
    """The types of what a function keeps for a group."""
    keeping = asked(function, "replacement") or function  # some stand for another function
    schema = asked(keeping, "aggBufferSchema")
    if schema is None:
        return str(function.prettyName())
    return ", ".join(str(field.dataType().catalogString()) for field in schema.fields())


def _join(node: Any, read: frozenset[int], definitions: Definitions) -> dict[str, Any]:
    """A join and the columns of each side that somebody reads: only these are in its state."""
    condition = node.condition()
    text = definitions.told(condition.get(), node) if condition.isDefined() else "none"
    return {
        "type": str(node.joinType().sql()).lower(),
        "condition": text,
        "columns": _columns_read(node, read, definitions),
    }


def _decided_above(
    join: Any, kept: frozenset[int] | None, filters: Filters, definitions: Definitions
) -> dict[str, str]:
    """What the rest of the plan makes of a join, and which of its columns it ``kept``, if known."""
    parts = {} if kept is None else {STATE_COLUMNS: _columns_read(join, kept, definitions)}
    parts["filter"] = shortened(filters.texts or "none")
    return parts | ({"whole filter": shortened(filters.whole)} if filters.whole else {})


def _columns_read(node: Any, read: frozenset[int], definitions: Definitions) -> str:
    """The columns of each side of a join that are among those that somebody reads."""
    sides = [
        ", ".join(
            definitions.text(column, side)
            for column in each(side.output())
            if int(column.exprId().id()) in read
        )
        for side in each(node.children())
    ]
    return shortened(" | ".join(sides))


def _stateful_function(node: Any, definitions: Definitions) -> dict[str, Any]:
    """applyInPandasWithState and transformWithState: what surrounds the function."""
    parts = _keyed(node, definitions)
    definitions.note_inputs([node.children().head()])
    if class_name(node) == "FlatMapGroupsInPandasWithState":
        parts["function"] = str(node.functionExpr().name())  # elsewhere it is a name of Spark's
    for name, member in (("timeout", "timeout"), ("time", "timeMode"), ("mode", "outputMode")):
        if (value := asked(node, member)) is not None:
            parts[name] = str(value.toString())
    if (state := asked(node, "stateType")) is not None:
        parts["state"]["values"] = shortened(str(state.catalogString()))
    return parts


def _types(expressions: list[Any]) -> str:
    return shortened(", ".join(str(e.dataType().catalogString()) for e in expressions))


def _bounded(texts: list[Text] | list[str]) -> list[Any]:
    if len(texts) <= MOST:
        return list(texts)
    rest = "; ".join(map(str, texts[MOST:]))
    return [*texts[:MOST], shortened(f"and {len(texts) - MOST} more: {rest}")]


def nodes_with_read_columns(
    plan: Any, read: frozenset[int] | None = None, depth: int = 0
) -> Iterator[tuple[Any, frozenset[int], int]]:
    """A plan and everything below it, parents first, each with the ids of the columns read of it,
    and how deep it is.

    The columns that a node reads itself, in its condition, are among those of its children.
    """
    read = _ids(plan.output()) if read is None else read
    yield plan, read, depth
    for child in each(plan.children()):
        yield from nodes_with_read_columns(child, _read_of_child(plan, child, read), depth + 1)


def _read_of_child(node: Any, child: Any, read: frozenset[int]) -> frozenset[int]:
    kind = class_name(node)
    if kind in _PASSES_ON:
        return read | _references(node)
    if kind == "Project":
        return _references(*(e for e in each(node.projectList()) if _id(e) in read))
    if kind == "Aggregate":
        columns = [e for e in each(node.aggregateExpressions()) if _id(e) in read]
        return _references(*each(node.groupingExpressions()), *columns)
    return _ids(child.output())


def _references(*trees: Any) -> frozenset[int]:
    return frozenset(_id(column) for tree in trees for column in each(tree.references()))


def _ids(columns: Any) -> frozenset[int]:
    return frozenset(_id(column) for column in each(columns))


def _id(column: Any) -> int:
    return int(column.exprId().id())
