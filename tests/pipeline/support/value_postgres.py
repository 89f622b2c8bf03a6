"""Values in tables of PostgreSQL, as psycopg sees them."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from tests.pipeline.support.plain_values import (
    Row,
    bytes_of,
    from_json,
    from_plain_text,
    micros,
    number,
    parsed,
)
from tests.pipeline.support.value_target import Target

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

    from seamark.sinks import Sink


_COLUMNS: Final = {
    "boolean": ("boolean",),
    "tinyint": ("smallint", "integer", "bigint", "numeric"),
    "smallint": ("smallint", "integer", "bigint", "numeric"),
    "int": ("integer", "bigint", "numeric", "numeric(12,2)"),
    "bigint": ("bigint", "numeric", "numeric(30,5)"),
    "float": ("real", "double precision"),
    "double": ("double precision",),
    "string": ("text", "text", "varchar", "varchar(300)"),
    "binary": ("bytea",),
    "date": ("date",),
    "timestamp": ("timestamptz",),
    "timestamp_ntz": ("timestamp",),
}


class Postgres(Target):
    """A table whose columns are of any types that fit."""

    def sink(self) -> Sink:
        import psycopg
        from psycopg.sql import SQL, Identifier

        from seamark.sinks import PostgresSink

        assert self.services.postgres is not None
        self.dsn = self.services.postgres()
        self.columns = {name: self._column(kind) for name, kind in self.kinds.items()}
        definitions = [
            SQL("{} {}").format(Identifier(name), SQL(kind)) for name, kind in self.columns.items()
        ]
        if self.case.keys:
            keys = SQL(", ").join(map(Identifier, self.case.keys))
            definitions.append(SQL("UNIQUE ({})").format(keys))
        with psycopg.connect(self.dsn) as db:
            db.execute(SQL("CREATE TABLE rows ({})").format(SQL(", ").join(definitions)))
        mode: Any = self.case.mode
        return PostgresSink(self.dsn, "rows", mode=mode, keys=self.case.keys)

    def _column(self, kind: DataType) -> str:
        from pyspark.sql.types import ArrayType, DecimalType, MapType, StructType

        if isinstance(kind, ArrayType):
            return f"{self._column(kind.elementType).removesuffix('[]')}[]"
        if isinstance(kind, StructType | MapType):
            return self.dice.choice(("json", "jsonb"))
        if isinstance(kind, DecimalType):
            exact = f"numeric({kind.precision},{kind.scale})"
            return self.dice.choice(("numeric", exact))
        return self.dice.choice(_COLUMNS[kind.simpleString().partition(" ")[0]])

    columns: dict[str, str] = {}  # noqa: RUF012 - as long as there is no table

    def rows(self) -> list[Row]:
        import psycopg
        from psycopg.sql import SQL, Identifier

        if not self.columns:
            return []
        picked = SQL(", ").join(
            SQL("{}::text{}").format(Identifier(name), SQL("[]" if "[]" in kind else ""))
            if "json" in kind
            else Identifier(name)
            for name, kind in self.columns.items()
        )
        with psycopg.connect(self.dsn, options="-c timezone=UTC -c extra_float_digits=1") as db:
            found = db.execute(SQL("SELECT {} FROM rows").format(picked)).fetchall()
        return [
            {
                name: from_postgres(value, self.kinds[name], self.columns[name])
                for name, value in zip(self.columns, row, strict=True)
            }
            for row in found
        ]

    def kept(self, name: str, value: Any) -> Any:
        return with_one_zero(value) if self.columns.get(name) == "jsonb" else value

    def same_key(self, value: Any) -> Any:
        return ("float", "0x0.0p+0") if value == ("float", "-0x0.0p+0") else value


def with_one_zero(value: Any) -> Any:
    """A value with 0.0 for each -0.0 inside."""
    if value == ("float", "-0x0.0p+0"):
        return ("float", "0x0.0p+0")
    return tuple(map(with_one_zero, value)) if isinstance(value, tuple) else value


def from_postgres(value: Any, kind: DataType, column: str) -> Any:
    """A value as psycopg gives it, as what it was in Spark."""
    import datetime as dt

    from pyspark.sql import types as spark

    if value is None:
        return None
    if isinstance(kind, spark.ArrayType):
        return tuple(from_postgres(each, kind.elementType, column) for each in value)
    if "json" in column:
        return from_json(_sorted_as(parsed(value), kind), kind)
    if isinstance(kind, spark.BinaryType):
        return bytes_of(bytes(value))
    if isinstance(kind, spark.FloatType | spark.DoubleType):
        return from_plain_text(repr(value), kind)
    if isinstance(kind, spark.DecimalType):
        return number(Decimal(value))
    if isinstance(kind, spark.IntegralType):
        assert value == int(value)
        return int(value)
    if isinstance(kind, spark.DateType):
        return "date", (value - dt.date(1970, 1, 1)).days
    if isinstance(kind, spark.TimestampType):
        return "time", micros(
            value.astimezone(dt.UTC).replace(tzinfo=None).isoformat(timespec="microseconds")
        )
    if isinstance(kind, spark.TimestampNTZType):
        return "local", micros(value.isoformat(timespec="microseconds"))
    return ("text", value.encode()) if isinstance(value, str) else value


def _sorted_as(value: Any, kind: DataType) -> Any:
    """The same with the members of structs in their order, which jsonb does not keep."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if value is None:
        return None
    if isinstance(kind, StructType):
        members = dict(value.members)
        assert sorted(members) == sorted(kind.names)
        value.members = [
            (each.name, _sorted_as(members[each.name], each.dataType)) for each in kind
        ]
    elif isinstance(kind, MapType):
        value.members = [(name, _sorted_as(item, kind.valueType)) for name, item in value.members]
    elif isinstance(kind, ArrayType):
        return [_sorted_as(each, kind.elementType) for each in value]
    return value
