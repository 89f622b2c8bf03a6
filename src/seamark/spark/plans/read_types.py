"""Of which types the values are that an expression reads.

Its SQL does not say it. ``CAST(v AS STRING)`` is ``1`` or ``1.0``, and what a function such as
``collect_set`` or ``approx_count_distinct`` keeps of ``1`` is not the same for each type. Of a
struct only the fields count that are read, so another one may be added.

Tests: ``tests/spark/test_read_types.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from seamark.spark.plans.hidden_parameters import asked
from seamark.spark.plans.trees import class_name, each

_FIELDS: Final = frozenset({"GetStructField", "GetArrayStructFields"})
_ELEMENTS: Final = frozenset({"ElementAt", "GetArrayItem", "GetMapValue"})
_BY_LAMBDA: Final = frozenset(
    {"ArrayAggregate", "ArrayExists", "ArrayFilter", "ArrayForAll", "ArraySort", "ArrayTransform"}
    | {"MapFilter", "MapZipWith", "TransformKeys", "TransformValues", "ZipWith"}
)
_GENERATORS: Final = frozenset({"Explode", "Inline", "PosExplode"})
_OF_PARTS: Final = _FIELDS | _ELEMENTS | _BY_LAMBDA | _GENERATORS
"""What reads parts of a value. Which ones is told where these are used."""
_TYPED: Final = frozenset(
    {"AttributeReference", "NamedLambdaVariable", "PythonUDF", "ScalaUDF"}
    | {"AvroDataToCatalyst", "CsvToStructs", "JsonToStructs", "ProtobufDataToCatalyst"}
    | {"XmlToStructs"}
)
"""Where a type comes from that nothing in the SQL decides."""
_CHOSEN: Final = frozenset({"MakeTimestamp", "ParseToTimestamp", "PythonUDF", "ScalaUDF"})
"""Whose type is chosen where it is declared, or by ``spark.sql.timestampType``."""
_OF_ANY_TYPE: Final = frozenset({"IsNotNull", "IsNull", "Size"})
_LAMBDA: Final = "LambdaFunction"


def read_types(expression: Any) -> Iterator[str]:
    """What an expression reads, each with its type. What itself is, its reader tells."""
    yield from _read(expression, is_whole=False)


def returned_type(node: Any, kind: str) -> str | None:
    """The type of a function's result where its SQL leaves that open; None for any other.

    It decides the values: what a Python function returns is null where it is of another type.
    """
    if kind not in _CHOSEN:
        return None
    told = str(node.dataType().catalogString())
    if told.startswith("struct<"):  # its fields are told where they are read
        return None
    return f"{_name(node, kind)} {told}"


def told_type(value: Any) -> str:
    """The type of a column or expression; empty for a struct, where another field does no harm."""
    kind = str(value.dataType().catalogString())
    return "" if "struct<" in kind else kind


def keeps_columns(function: Any) -> bool:
    """Whether an aggregate function keeps plain columns, whose types are those of the state."""
    keeping = asked(function, "replacement") or function  # some stand for another function
    return asked(keeping, "updateExpressions") is not None


def _read(node: Any, *, is_whole: bool) -> Iterator[str]:
    kind = class_name(node)
    if is_whole and (kind in _TYPED or kind in _OF_PARTS):
        yield f"{_name(node, kind)} {node.dataType().catalogString()}"
    if kind == _LAMBDA:
        yield from _read(node.function(), is_whole=False)
    elif kind == "AggregateExpression":
        of_columns = keeps_columns(node.aggregateFunction())
        for child in each(node.aggregateFunction().children()):
            yield from _read(child, is_whole=not of_columns)
        if node.filter().isDefined():
            yield from _read(node.filter().get(), is_whole=True)
    else:
        for number, child in enumerate(each(node.children())):
            of_parts = kind in _OF_PARTS and (number == 0 or kind in _BY_LAMBDA)
            yield from _read(child, is_whole=not of_parts and kind not in _OF_ANY_TYPE)


def _name(node: Any, kind: str) -> str:
    if kind == "NamedLambdaVariable":
        return "variable"  # its name may be one of the process
    if kind in ("AttributeReference", "PythonUDF"):
        return str(node.name())
    if kind == "GetStructField":
        field = node.extractFieldName()
    elif kind == "GetArrayStructFields":
        field = node.field().name()
    else:
        return str(node.prettyName())
    child = node.children().head()
    return f"{_name(child, class_name(child))}.{field}"
