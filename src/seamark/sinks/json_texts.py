"""How values become JSON in every sink that writes some: nothing is left out, nothing is cut off.

Tests: ``tests/sinks/test_json_texts.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from seamark.sinks.file_values import knows_new_patterns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

JSON_OPTIONS: Final = {
    "ignoreNullFields": "false",
    "timeZone": "UTC",
    # Spark's own default cuts off microseconds, which makes one key of two
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""Options of Spark's ``to_json``."""
_SECOND: Final = 1_000_000
_DAY: Final = 86_400 * _SECOND
"""In microseconds."""


def time_text(value: Column) -> Column:
    """A timestamp as in JSON, whatever the session's settings are; null for null."""
    from pyspark.sql import functions as f

    micros = f.unix_micros(value)
    days = f.call_function("div", micros, f.lit(_DAY)).cast("int")  # towards 1970
    seconds = (micros % _DAY).cast("decimal(17,0)") / f.lit(_SECOND).cast("decimal(7,0)")
    since = f.make_dt_interval(days, secs=seconds.cast("decimal(18,6)"))
    local = (f.expr("TIMESTAMP_NTZ '1970-01-01 00:00:00'") + since).cast("string")
    whole = f.translate(f.substring_index(local, ".", 1), " ", "T")
    digits = f.lpad(f.pmod(micros, f.lit(_SECOND)).cast("string"), 6, "0")
    return f.concat(whole, f.lit("."), digits, f.lit("Z"))


def date_text(value: Column) -> Column:
    """A date as in JSON, whatever the session's settings are; null for null."""
    from pyspark.sql import functions as f

    return f.substring_index(value.cast("timestamp_ntz").cast("string"), " ", 1)


@dataclass(frozen=True)
class JsonTexts:
    """How values become JSON in a session."""

    new_patterns: bool = True
    """Whether Spark writes times by the patterns of Spark 3 and later. By those before it moves
    old ones to another calendar, in which two days may have one name: then they are written here.
    """

    def text(self, value: Column, kind: DataType) -> Column:
        """A value as JSON.

        Of the keys of a map Spark writes what Java calls them: of bytes where they are in memory,
        of a time a number. Here they are the same texts as values.
        """
        from pyspark.sql import functions as f

        return f.to_json(self._writable(value, kind), JSON_OPTIONS)

    def object(self, columns: Mapping[str, tuple[Column, DataType]]) -> Column:
        """Columns as a JSON object, by their names."""
        from pyspark.sql import functions as f

        members = [self._writable(*column).alias(name) for name, column in columns.items()]
        return f.to_json(f.struct(*members), JSON_OPTIONS)

    def element(self, value: Column, kind: DataType) -> Column:
        """A value of any type as it stands in a list of JSON; null for null."""
        from pyspark.sql import functions as f

        text = f.to_json(f.array(self._writable(value, kind)), JSON_OPTIONS)
        return f.when(value.isNotNull(), f.substring(text, f.lit(2), f.length(text) - 2))

    def plain(self, value: Column, kind: DataType) -> Column:
        """A value that is no text itself, as in JSON and without the quotes; null for null."""
        from pyspark.sql import functions as f

        return f.regexp_replace(self.element(value, kind), '^"|"$', "")

    def _writable(self, value: Column, kind: DataType) -> Column:
        """The same value, with texts in place of what Spark would write in another way."""
        from pyspark.sql import functions as f
        from pyspark.sql.types import ArrayType, MapType, StructType, TimestampType

        if not self._is_rewritten(kind):
            return value
        if isinstance(kind, StructType):
            fields = [
                self._writable(value.getField(field.name), field.dataType).alias(field.name)
                for field in kind.fields
            ]
            return f.when(value.isNotNull(), f.struct(*fields))
        if isinstance(kind, ArrayType):
            element = kind.elementType
            return f.transform(value, lambda item: self._writable(item, element))
        if not isinstance(kind, MapType):
            return time_text(value) if isinstance(kind, TimestampType) else date_text(value)
        names, items = kind.keyType, kind.valueType
        made = f.transform_values(value, lambda _, item: self._writable(item, items))
        if _is_plain(names):
            return made
        return f.transform_keys(made, lambda name, _: self.plain(name, names))

    def _is_rewritten(self, kind: DataType) -> bool:
        from pyspark.sql.types import ArrayType, DateType, MapType, StructType, TimestampType

        if isinstance(kind, StructType):
            return any(self._is_rewritten(field.dataType) for field in kind.fields)
        if isinstance(kind, ArrayType):
            return self._is_rewritten(kind.elementType)
        if isinstance(kind, MapType):
            return not _is_plain(kind.keyType) or self._is_rewritten(kind.valueType)
        return not self.new_patterns and isinstance(kind, DateType | TimestampType)


def json_texts(df: DataFrame) -> JsonTexts:
    """How values of a DataFrame become JSON."""
    return JsonTexts(knows_new_patterns(df))


def _is_plain(kind: DataType) -> bool:
    """Whether what Java calls a key is what it is."""
    from pyspark.sql.types import BooleanType, CharType, NumericType, StringType, VarcharType

    return isinstance(kind, BooleanType | CharType | NumericType | StringType | VarcharType)


def can_be_read_back(kind: DataType) -> bool:
    """Whether Spark can read values of a type from JSON: it knows only texts as keys of a map."""
    from pyspark.sql.types import ArrayType, MapType, StringType, StructType

    if isinstance(kind, StructType):
        return all(can_be_read_back(field.dataType) for field in kind.fields)
    if isinstance(kind, ArrayType):
        return can_be_read_back(kind.elementType)
    if isinstance(kind, MapType):
        return isinstance(kind.keyType, StringType) and can_be_read_back(kind.valueType)
    return True


def has_unnamed_keys(kind: DataType) -> bool:
    """Whether Spark, when it writes JSON itself, loses the keys of a map in values of a type."""
    from pyspark.sql.types import ArrayType, BinaryType, MapType, StructType

    if isinstance(kind, StructType):
        return any(has_unnamed_keys(field.dataType) for field in kind.fields)
    if isinstance(kind, ArrayType):
        return has_unnamed_keys(kind.elementType)
    if isinstance(kind, MapType):
        is_lost = isinstance(kind.keyType, ArrayType | BinaryType | StructType)
        return is_lost or has_unnamed_keys(kind.valueType)
    return False
