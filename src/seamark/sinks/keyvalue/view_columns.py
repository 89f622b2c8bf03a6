"""From the columns of an output to the keys and values of a live view.

A key of one column is its plain text; of several, a JSON list of them. A value is the whole row as
a JSON object, with every column, null or not. Times are ISO 8601 in UTC, to the microsecond.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from seamark._common.text import backquoted
from seamark.errors import InvalidInputError, RefusedError
from seamark.sinks.json_texts import JsonTexts, json_texts

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

KEY: Final = "key"
VALUE: Final = "value"
DELETED: Final = "deleted"
RANK: Final = "rank"
TIME: Final = "time"


@dataclass(frozen=True)
class Shape:
    """Which columns are what."""

    key: tuple[str, ...]
    delete_where: str | None = None
    order_by: str | None = None
    expire: str | None = None

    @classmethod
    def of(
        cls,
        key: str | Sequence[str],
        delete_where: str | None,
        order_by: str | None,
        expire: str | None,
    ) -> Shape:
        """What a user has given; :class:`InvalidInputError` without a key."""
        names = (key,) if isinstance(key, str) else (*key,)
        if not names or not all(isinstance(name, str) and name for name in names):
            raise InvalidInputError(f"key is one column or several, by name, not {key!r}")
        if len(set(names)) < len(names):
            raise InvalidInputError(f"a column is named twice in the key: {', '.join(names)}")
        return cls(names, delete_where, order_by, expire)

    def check(self, schema: StructType) -> None:
        """:class:`RefusedError` when these columns cannot become a view."""
        from pyspark.sql.types import BooleanType, LongType, TimestampNTZType, TimestampType

        twice = [n for n, count in Counter(map(str.lower, schema.names)).items() if count > 1]
        if twice:
            raise RefusedError(
                f"several columns have one name, capitals aside: {', '.join(sorted(twice))}",
                hint="Give each its own name with alias() or toDF().",
            )
        for name in self.key:
            _refuse_nested("key", name, _type_of(schema, name, "key"))
        if self.order_by is not None:
            _refuse_nested("order_by", self.order_by, _type_of(schema, self.order_by, "order_by"))
        if self.delete_where is not None:
            kind = _type_of(schema, self.delete_where, "delete_where")
            if not isinstance(kind, BooleanType):
                raise _wrong_type("delete_where", self.delete_where, kind, "a boolean column")
        if self.expire is not None:
            kind = _type_of(schema, self.expire, "expire")
            times = (TimestampType, TimestampNTZType, LongType)
            if not isinstance(_end_of_window(kind), times):
                raise _wrong_type(
                    "expire", self.expire, kind, "a timestamp, a window or milliseconds"
                )

    def staged(self, df: DataFrame) -> DataFrame:
        """The rows as they are staged: bytes of key and value, and what decides about them."""
        from pyspark.sql import functions as f

        schema, texts = df.schema, json_texts(df)
        control = {self.delete_where}
        row = {
            field.name: (_column(backquoted(field.name)), field.dataType)
            for field in schema.fields
            if field.name not in control
        }
        columns = [
            self._key(schema, texts).alias(KEY),
            texts.object(row).cast("binary").alias(VALUE),
        ]
        if self.delete_where is not None:
            flag = f.coalesce(_column(_path(schema, self.delete_where)), f.lit(False))
            columns.append(flag.alias(DELETED))
        if self.order_by is not None:
            columns.append(_rank(schema, self.order_by).alias(RANK))
        if self.expire is not None:
            columns.append(_milliseconds(schema, self.expire).alias(TIME))
        return df.select(*columns)

    def _key(self, schema: StructType, texts: JsonTexts) -> Column:
        from pyspark.sql import functions as f
        from pyspark.sql.types import BinaryType, StringType

        if len(self.key) == 1:
            column, kind = _column(_path(schema, self.key[0])), _type_of(schema, self.key[0], "key")
            if isinstance(kind, BinaryType | StringType):
                return column.cast("binary")
            return texts.plain(column, kind).cast("binary")
        parts: list[Column] = [f.lit("[")]
        for number, name in enumerate(self.key):
            parts += [f.lit(",")] if number else []
            # of anything null the whole is null, which is refused
            kind = _type_of(schema, name, "key")
            parts.append(texts.element(_column(_path(schema, name)), kind))
        return f.concat(*parts, f.lit("]")).cast("binary")


def _rank(schema: StructType, name: str) -> Column:
    """What to order by. As Spark writes times, others misread those of the far future."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import TimestampType

    column = _column(_path(schema, name))
    is_time = isinstance(_type_of(schema, name, "order_by"), TimestampType)
    return f.unix_micros(column) if is_time else column


def _milliseconds(schema: StructType, name: str) -> Column:
    from pyspark.sql import functions as f
    from pyspark.sql.types import LongType, StructType, TimestampType

    column, kind = _column(_path(schema, name)), _type_of(schema, name, "expire")
    if isinstance(kind, StructType):
        column, kind = column["end"], _end_of_window(kind)
    # what 'timestamp' means depends on spark.sql.timestampType
    return column if isinstance(kind, LongType) else f.unix_millis(column.cast(TimestampType()))


def _end_of_window(kind: DataType) -> DataType:
    from pyspark.sql.types import StructType

    if isinstance(kind, StructType) and kind.names == ["start", "end"]:
        return kind["end"].dataType
    return kind


def _type_of(schema: StructType, name: str, option: str) -> DataType:
    """The type of a column, or of a field inside one by its dotted name."""
    from pyspark.sql.types import StructType

    if name in schema.names:
        return schema[name].dataType
    kind: DataType = schema
    for part in name.split("."):
        if not isinstance(kind, StructType) or part not in kind.names:
            raise RefusedError(
                f"{option}: there is no column {name!r}",
                hint=f"The columns are {', '.join(schema.names)}.",
            )
        kind = kind[part].dataType
    return kind


def _refuse_nested(option: str, name: str, kind: DataType) -> None:
    from pyspark.sql.types import ArrayType, MapType, StructType, VariantType

    if isinstance(kind, ArrayType | MapType | StructType | VariantType):
        raise RefusedError(
            f"{option}: the column {name!r} ({kind.simpleString()}) is more than one value",
            hint=f"Take a field of it, as in {option}='window.start', or a column of one value.",
        )


def _wrong_type(option: str, name: str, kind: DataType, expected: str) -> RefusedError:
    return RefusedError(f"{option}: {name!r} is {kind.simpleString()}, and must be {expected}")


def _path(schema: StructType, name: str) -> str:
    """A column, also one with a dot in its name, or a field inside one."""
    return backquoted(name) if name in schema.names else ".".join(map(backquoted, name.split(".")))


def _column(path: str) -> Column:
    from pyspark.sql import functions as f

    return f.col(path)
