"""Which columns of an output become key, value, headers, partition and topic of a record.

Tests: ``tests/sinks/test_kafka_columns.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from seamark._common.checks import check_text
from seamark.errors import InvalidInputError, RefusedError
from seamark.sinks.json_texts import JsonTexts, json_texts
from seamark.sinks.unfit_values import with_whole_texts

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

KEY: Final = "key"
VALUE: Final = "value"
HEADERS: Final = "headers"
PARTITION: Final = "partition"
TOPIC: Final = "topic"
_HEADERS_TYPE: Final = "array<struct<key:string,value:binary>>"


@dataclass(frozen=True)
class RecordColumns:
    """Where each part of a record comes from."""

    key: str | None
    value: str | tuple[str, ...] | None
    """One column, or the columns of a JSON object; None for all that have no other use."""
    headers: str | None
    partition: str | None
    topic: str | None

    @classmethod
    def of(
        cls,
        key: str | None,
        value: str | Sequence[str] | None,
        headers: str | None,
        partition: str | None,
        topic: str | None,
    ) -> RecordColumns:
        """:class:`InvalidInputError` for what cannot be the name of a column."""
        for name in (key, headers, partition, topic):
            if name is not None:
                check_text(name, "the name of a column")
        if value is None or isinstance(value, str):
            return cls(key, value, headers, partition, topic)
        columns = tuple(check_text(name, "the name of a column") for name in value)
        if not columns:
            raise InvalidInputError("the value of a record needs at least one column")
        return cls(key, columns, headers, partition, topic)

    @property
    def staged_names(self) -> frozenset[str]:
        """The columns that staged rows may have; one that is declared may be missing in an epoch.

        All but the value say where a record goes, or what else it replaces: a key chooses the
        partition, and which record a compaction removes.
        """
        given = {
            KEY: self.key,
            HEADERS: self.headers,
            PARTITION: self.partition,
            TOPIC: self.topic,
        }
        return frozenset({VALUE} | {name for name, column in given.items() if column})

    def check(self, schema: StructType) -> None:
        """:class:`RefusedError` names the first column that is missing or of a wrong type."""
        kinds = {field.name: field.dataType for field in schema.fields}
        self._require(kinds, self.key, "key")
        self._require(kinds, self.headers, "headers")
        self._require(kinds, self.partition, "partition")
        self._require(kinds, self.topic, "topic")
        for name in self._value_columns(list(kinds)):
            self._require(kinds, name, "value")
        if self.key is not None:
            _check_payload(self.key, kinds[self.key], "key")
        if isinstance(self.value, str):
            _check_payload(self.value, kinds[self.value], "value")
        if self.headers is not None:
            _check_headers(self.headers, kinds[self.headers])
        if (
            self.partition is not None
            and kinds[self.partition].simpleString() not in _SMALL_NUMBERS
        ):
            raise _wrong_type(
                self.partition, kinds[self.partition], "partition", "an int", 'cast it to "int"'
            )
        if self.topic is not None and kinds[self.topic].simpleString() != "string":
            raise _wrong_type(
                self.topic, kinds[self.topic], "topic", "a string", 'cast it to "string"'
            )

    def _require(self, kinds: dict[str, DataType], name: str | None, part: str) -> None:
        if name is not None and name not in kinds:
            raise RefusedError(
                f"there is no column {name!r} for the {part} of a record",
                hint=f"The columns are {', '.join(kinds)}.",
            )

    def _value_columns(self, names: Sequence[str]) -> list[str]:
        if isinstance(self.value, str):
            return [self.value]
        if self.value is not None:
            return [*self.value]
        others = (self.headers, self.partition, self.topic)
        left = [name for name in names if name not in others]
        if not left:
            raise RefusedError("no column is left for the value of a record")
        return left

    def _columns_of_json(self, kinds: dict[str, DataType]) -> list[str]:
        """The columns that become JSON; a text or bytes alone are sent as they are."""
        plain = {name for name in (self.key, self.value) if isinstance(name, str)}
        members = [] if isinstance(self.value, str) else self._value_columns(list(kinds))
        return [*members, *(name for name in plain if _is_nested(kinds[name]))]

    def staged(self, df: DataFrame) -> DataFrame:
        """The rows as records: the columns ``key``, ``value`` and what else there is."""
        kinds = {field.name: field.dataType for field in df.schema.fields}
        df = with_whole_texts(df, self._columns_of_json(kinds))
        texts = json_texts(df)
        parts = []
        if self.key is not None:
            parts.append(_payload(self.key, kinds[self.key], texts).alias(KEY))
        if isinstance(self.value, str):
            parts.append(_payload(self.value, kinds[self.value], texts).alias(VALUE))
        else:
            names = self._value_columns(df.columns)
            members = {name: (_column(name), kinds[name]) for name in names}
            parts.append(texts.object(members).cast("binary").alias(VALUE))
        if self.headers is not None:
            parts.append(_column(self.headers).cast(_HEADERS_TYPE).alias(HEADERS))
        if self.partition is not None:
            parts.append(_column(self.partition).cast("int").alias(PARTITION))
        if self.topic is not None:
            parts.append(_column(self.topic).alias(TOPIC))
        return df.select(*parts)


_SMALL_NUMBERS: Final = ("int", "smallint", "tinyint")


def _check_kind(name: str, kind: DataType, part: str, wanted: Sequence[str]) -> None:
    if kind.simpleString() not in wanted:
        raise _wrong_type(name, kind, part, wanted[0], f'cast it to "{wanted[0]}"')


def _column(name: str) -> Column:
    from pyspark.sql import functions as F

    return F.col("`" + name.replace("`", "``") + "`")


def _payload(name: str, kind: DataType, texts: JsonTexts) -> Column:
    """The bytes of a key or value."""
    column = _column(name)
    return (texts.text(column, kind) if _is_nested(kind) else column).cast("binary")


def _is_nested(kind: DataType) -> bool:
    from pyspark.sql.types import ArrayType, MapType, StructType

    return isinstance(kind, ArrayType | MapType | StructType)


def _check_payload(name: str, kind: DataType, part: str) -> None:
    if kind.simpleString() in ("string", "binary") or _is_nested(kind):
        return
    raise _wrong_type(
        name,
        kind,
        part,
        "a string, binary, or a struct, map or array, which becomes JSON",
        'cast it to "string", or give value=[columns] for a JSON object',
    )


def _check_headers(name: str, kind: DataType) -> None:
    from pyspark.sql.types import ArrayType, StructType

    if isinstance(kind, ArrayType) and isinstance(kind.elementType, StructType):
        fields = [field.dataType.simpleString() for field in kind.elementType.fields]
        if len(fields) == 2 and fields[0] == "string" and fields[1] in ("string", "binary"):
            return
    raise _wrong_type(
        name, kind, "headers", _HEADERS_TYPE, "build it with array(struct(key, value))"
    )


def _wrong_type(name: str, kind: DataType, part: str, wanted: str, advice: str) -> RefusedError:
    return RefusedError(
        f"the column {name!r} is {kind.simpleString()}, and the {part} of a record is {wanted}",
        hint=f"{advice[0].upper()}{advice[1:]}.",
    )
