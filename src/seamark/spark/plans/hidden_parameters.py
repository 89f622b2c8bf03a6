"""What decides the result of an expression, and is not in its SQL.

``first(v)`` and ``first(v, ignoreNulls=True)`` have the same SQL, and so have ``from_json(v)`` with
any options. ``to_date(t)`` is another day in another time zone. Everything here is text that is the
same in every process.

Tests: ``tests/spark/test_hidden_parameters.py``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from py4j.protocol import Py4JError

from seamark._redaction import redacted

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
_UTC: Final = "Z"

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


def zone_of(node: Any, kind: str) -> str | None:
    """The time zone that an expression of a class computes with; None when it needs none."""
    if kind in _BY_LENGTH or _has_zone.get(kind) is False:
        return None
    if kind == "Cast" and not node.needsTimeZone():
        return None
    if kind in _PARSED and "timestamp" not in str(node.dataType().catalogString()):
        return None
    zone = asked(node, "zoneId")
    _has_zone[kind] = zone is not None
    if zone is None:
        return None
    name = str(zone.normalized().getId())  # UTC has many names
    return "UTC" if name == _UTC else name


def groupings_of(expand: Any, place: int) -> str:
    """The grouping sets of a rollup, cube or GROUPING SETS, by the column that numbers them."""
    numbers = []
    projections = expand.projections().iterator()
    while projections.hasNext():
        expression = projections.next().apply(place)
        if str(expression.getClass().getSimpleName()) != "Literal":
            return ""
        numbers.append(str(expression.sql()))
    return ", ".join(numbers)


def _options(node: Any) -> dict[str, str]:
    options = asked(node, "options")
    if options is None:
        return {}
    pairs = options.toSeq().iterator()
    found: dict[str, str] = {}
    while pairs.hasNext():
        pair = pairs.next()
        found[str(pair._1()).lower()] = str(pair._2())
    return found


def asked(node: Any, member: str) -> Any:
    """What a member of a JVM object says; None when it has no such member."""
    try:
        return getattr(node, member)()
    except Py4JError:
        return None
