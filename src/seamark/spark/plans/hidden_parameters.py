"""What decides the result of an expression, and is not in its SQL.

``first(v)`` and ``first(v, ignoreNulls=True)`` have the same SQL, and so have ``from_json(v)`` with
any options. ``to_date(t)`` is another day in another time zone. All variables of a lambda have one
name in SQL. Everything here is text that is the same in every process.

Tests: ``tests/spark/test_hidden_parameters.py``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from py4j.protocol import Py4JError

from seamark._redaction import redacted
from seamark.spark.plans.recorded_sql import recorded_sql
from seamark.spark.plans.trees import class_name, each

_PARSED: Final = frozenset({"JsonToStructs", "CsvToStructs", "XmlToStructs"})
_FLAGS: Final = ("ignoreNulls", "reverse")
_HAS_FLAGS: Final = frozenset(
    {"First", "Last", "AnyValue", "CollectList", "CollectSet"}
    | {"Percentile", "PercentileCont", "PercentileDisc"}
)
_HAS_OPTIONS: Final = _PARSED | frozenset(
    {"StructsToJson", "StructsToCsv", "StructsToXml", "AvroDataToCatalyst", "CatalystDataToAvro"}
)
_BY_LENGTH: Final = frozenset({"TimestampAddInterval", "TimeAdd", "TimestampAddYMInterval"})
"""Additions to a time, for which the zone counts only where clocks are changed."""
_OF_PATTERNS: Final = frozenset({"LikeAll", "LikeAny", "NotLikeAll", "NotLikeAny"})
_TIMES: Final = re.compile(r"\btimestamp\b(?!:)")
"""The type in that of an array, map or struct."""
_UTC: Final = "Z"
_LAMBDA: Final = "LambdaFunction"

_has_zone: dict[str, bool] = {}
"""By the class of an expression: whether its result may depend on a time zone."""


def parameters_of(node: Any, kind: str) -> Iterator[str]:
    """Parameters of one expression of a class, without those of its children.

    They are told whatever they are: one that is missing is of a Seamark that did not know of it.
    """
    if kind in _HAS_FLAGS:
        for name in _FLAGS:
            if (flag := asked(node, name)) is not None:
                yield f"{node.prettyName()} {name}={str(flag).lower()}"
    if kind in _HAS_OPTIONS:
        yield f"{node.prettyName()} {redacted(json.dumps(_options(node), sort_keys=True))}"
    if kind == "PivotFirst":
        values = [str(value) for value in each(node.pivotColumnValues())]
        yield f"{node.prettyName()} {json.dumps(values)}"
    if kind == "VariantGet":
        yield f"{node.prettyName()} of the type {node.dataType().catalogString()}"


def patterns_of(node: Any, kind: str) -> str | None:
    """The patterns of ``LIKE ANY`` and ``LIKE ALL``; None for any other expression."""
    if kind not in _OF_PATTERNS:
        return None
    return f"{kind.lower()} {json.dumps([str(pattern) for pattern in each(node.patterns())])}"


def fields_of(node: Any, kind: str) -> str | None:
    """The fields that ``withField`` and ``dropFields`` change; None for any other expression."""
    if kind != "UpdateFields":
        return None
    names = [_changed_field(change) for change in each(node.fieldOps())]
    return f"{node.prettyName()} {', '.join(names)}"


def _changed_field(change: Any) -> str:
    verb = "without" if class_name(change) == "DropField" else "with"
    return f"{verb} {json.dumps(str(change.name()))}"


def body_of(node: Any, kind: str) -> str | None:
    """What a function computes that was written in SQL; None for any other expression."""
    if kind != "SQLScalarFunction":
        return None
    body = " ".join(recorded_sql(str(node.child().sql()))).rstrip()
    return f"{str(node.sql()).split('(')[0]}: {body}"


def variables_of(node: Any, kind: str) -> str | None:
    """Which of its variables a lambda uses, in order; None for any other expression.

    ``(k, v) -> k > 1`` and ``(k, v) -> v > 1`` have the same SQL.
    """
    if kind != _LAMBDA:
        return None
    return f"lambda of {', '.join(_used(node, ()))}"


def _used(node: Any, known: tuple[int, ...]) -> Iterator[str]:
    """The number of each variable that is used; 0 for that of a lambda around this one."""
    kind = class_name(node)
    children = list(each(node.children()))
    if kind == _LAMBDA:
        known += tuple(_id(argument) for argument in each(node.arguments()))
        children = [node.function()]
    elif kind == "NamedLambdaVariable":
        yield str(known.index(_id(node)) + 1 if _id(node) in known else 0)
    for child in children:
        yield from _used(child, known)


def _id(variable: Any) -> int:
    return int(variable.exprId().id())


def zone_of(node: Any, kind: str, plan: Any) -> str | None:
    """The time zone that an expression of a class computes with; None when it needs none.

    ``plan`` is that of the expression, or of the query around it.
    """
    if kind == "CurrentTimeZone":  # Spark puts the name in when it optimizes, as it is written
        return str(plan.conf().sessionLocalTimeZone())
    if kind in _BY_LENGTH or _has_zone.get(kind) is False:
        return None
    if kind == "Cast" and not node.needsTimeZone() and not _shows_times(node):
        return None
    if kind in _PARSED and "timestamp" not in str(node.dataType().catalogString()):
        return None
    zone = asked(node, "zoneId")
    _has_zone[kind] = zone is not None
    if zone is None:
        return None
    name = str(zone.normalized().getId())  # UTC has many names
    return "UTC" if name == _UTC else name


def _shows_times(cast: Any) -> bool:
    """Whether text is made of a value with times in it, of which Spark does not say the need."""
    whole = str(cast.dataType().catalogString()).startswith("string")
    return whole and _TIMES.search(str(cast.child().dataType().catalogString())) is not None


def groupings_of(expand: Any, place: int) -> str:
    """The grouping sets of a rollup, cube or GROUPING SETS, by the column that numbers them."""
    numbers = []
    for projection in each(expand.projections()):
        expression = projection.apply(place)
        if class_name(expression) != "Literal":
            return ""
        numbers.append(str(expression.sql()))
    return ", ".join(numbers)


def _options(node: Any) -> dict[str, str]:
    options = asked(node, "options")
    if options is None:
        return {}
    return {str(pair._1()).lower(): str(pair._2()) for pair in each(options.toSeq())}


def asked(node: Any, member: str) -> Any:
    """What a member of a JVM object says; None when it has no such member."""
    try:
        return getattr(node, member)()
    except Py4JError:
        return None
