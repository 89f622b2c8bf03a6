"""What a table of PostgreSQL shows: by epoch if it has a column for that, else all rows.

PostgreSQL gives every value as text and Spark makes the declared type of it: so no time zone or
setting of a client has a say.

Tests: ``tests/audit/test_postgres.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from seamark.audit.declared_rows import declared_schema
from seamark.audit.expectations import SinkHistory
from seamark.audit.limited_targets import option_naming
from seamark.audit.verdicts import Shown
from seamark.errors import DamageError, InvalidInputError
from seamark.sinks.json_texts import JSON_OPTIONS, can_be_read_back
from seamark.sinks.postgres.connections import TableAddress, translated
from seamark.spark.row_digests import RowDigest, digests_by
from seamark.spark.type_names import FIXED_SIZE

if TYPE_CHECKING:
    from psycopg.sql import Composed
    from pyspark.sql import Column, SparkSession
    from pyspark.sql.types import DataType

_NAMES: Final = re.compile(r'"((?:[^"]|"")++)"\."((?:[^"]|"")++)"')
_EPOCH: Final = "_seamark_epoch"
_ROWS: Final = 50_000
_AS_TEXT: Final = """
SELECT set_config(name, value, true) FROM (VALUES
    ('TimeZone', 'UTC'), ('DateStyle', 'ISO, YMD'), ('extra_float_digits', '3'),
    ('bytea_output', 'hex')) AS ours (name, value)
"""
_TYPES: Final = """
SELECT a.attname, t.typname FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped
"""
_SAME_TEXT: Final = ("text", "varchar", "json")
"""What a text is given back from as it was written."""


def read_postgres(spark: SparkSession, history: SinkHistory, dsn: str | None) -> Iterator[Shown]:
    """What the table shows; by epoch where rows tell it."""
    first, last = history.since, history.newest.epoch
    if history.options.get("mode") == "upsert":
        note = (
            "a table with a row for each key holds what is left of all epochs, and no digest of "
            "epochs tells that"
        )
        yield Shown(first=first, last=last, note=note)
        return
    if dsn is None:
        # the address in a checkpoint may be anybody's, and a password would go there
        note = f"say where its database is: {option_naming(history.sink)}postgresql://…"
        yield Shown(first=first, last=last, note=note)
        return
    table = _Table(spark, _address(history, dsn), history)
    if table.tells_epochs:
        found = table.by_epoch()
        yield from _by_epoch(history, found, counted=table.only_counted)
        return
    found = table.by_epoch()
    total = sum(found.values(), RowDigest.empty())
    yield Shown(
        first=first,
        last=last,
        expected=history.newest.total,
        found=total,
        note=table.only_counted,
        is_counted=bool(table.only_counted),
        is_of_now=True,
        ahead=history.total_ahead,
    )


def _by_epoch(
    history: SinkHistory, found: Mapping[int | None, RowDigest], *, counted: str
) -> Iterator[Shown]:
    spans = [*history.stretches(), *((known.epoch, known.epoch) for known in history.epochs)]
    own = {known.epoch: known.own for known in history.epochs}
    for first, last in sorted(spans):
        rows = [digest for epoch, digest in found.items() if epoch and first <= epoch <= last]
        yield Shown(
            first=first,
            last=last,
            expected=own.get(last) or history.expected(first, last),
            found=sum(rows, RowDigest.empty()),
            note=counted,
            is_counted=bool(counted),
        )


def _address(history: SinkHistory, dsn: str) -> TableAddress:
    at: Mapping[str, Any] = history.newest.point.at if history.newest.point is not None else {}
    names = _NAMES.fullmatch(str(at.get("table") or ""))
    if names is None:
        raise InvalidInputError(
            f"the checkpoint does not say which table sink {history.sink!r} writes to"
        )
    schema, name = (part.replace('""', '"') for part in names.groups())
    return TableAddress.of(dsn, (schema, name))


class _Table:
    """The rows of a table, as the output declares them."""

    def __init__(self, spark: SparkSession, address: TableAddress, history: SinkHistory) -> None:
        self._spark = spark
        self._address = address
        self._names = [name for name, _ in history.columns]
        point = history.newest.point
        column = history.options.get("epoch_column")
        is_told = isinstance(column, str) and point is not None and not point.only_newest
        self._epoch_column = column if is_told else None
        self._types = self._look()
        self._schema = declared_schema(history.columns)
        self.only_counted = self._why_only_counted()
        """Why rows can be counted and not compared; empty when they can be compared."""

    @property
    def tells_epochs(self) -> bool:
        """Whether each row says of which epoch it is."""
        return self._epoch_column is not None

    def _look(self) -> dict[str, str]:
        with self._address.transaction() as connection:
            name = self._address.identifier().as_string()
            types: dict[str, str] = dict(connection.execute(_TYPES, (name,)).fetchall())
        if missing := next((name for name in self._names if name not in types), None):
            raise DamageError(f"the table is gone, or has no column {missing!r} any more")
        return types

    def _why_only_counted(self) -> str:
        if self._schema is None:
            return "only counted: the types of its columns cannot be read from the checkpoint"
        for field in self._schema.fields:
            if not _is_exact(field.dataType, self._types[field.name]):
                return (
                    f"only counted: column {field.name!r} is {self._types[field.name]}, which does "
                    "not give back what was written"
                )
        return ""

    def by_epoch(self) -> dict[int | None, RowDigest]:
        """The digests by the number of the epoch; under None all, where rows do not tell it."""
        found: dict[int | None, RowDigest] = {}
        for rows in self._chunks():
            for epoch, digest in self._digests(rows).items():
                found[epoch] = found.get(epoch, RowDigest.empty()) + digest
        return found

    def _digests(self, rows: Sequence[tuple[Any, ...]]) -> dict[int | None, RowDigest]:
        import pyarrow as pa
        from pyspark.sql import functions as f

        names = [_EPOCH, *(f"c{number}" for number in range(len(self._names)))]
        columns = zip(*rows, strict=True)
        table = pa.table({n: pa.array(c, pa.string()) for n, c in zip(names, columns, strict=True)})
        texts: Any = self._spark.createDataFrame(table)
        epoch = f.col(_EPOCH).cast("long").alias(_EPOCH)
        if self.only_counted:
            counts = texts.groupBy(epoch).count().collect()
            return {row[0]: RowDigest(row[1], RowDigest.empty().digest) for row in counts}
        assert self._schema is not None, "they are only counted then"
        values = [
            _from_text(f.col(f"c{number}"), field.dataType).alias(field.name)
            for number, field in enumerate(self._schema.fields)
        ]
        return digests_by(texts.select(epoch, *values), _EPOCH)

    def _chunks(self) -> Iterator[list[tuple[Any, ...]]]:
        with self._address.transaction() as connection, translated(self._address.shown):
            connection.execute("SET TRANSACTION READ ONLY")
            connection.execute(_AS_TEXT)
            with connection.cursor("seamark_audit") as cursor:
                cursor.execute(self._query())
                while rows := cursor.fetchmany(_ROWS):
                    yield rows

    def _query(self) -> Composed:
        from psycopg.sql import SQL, Identifier

        arrays = {name for name in self._names if self._types[name].startswith("_")}
        texts = [
            SQL("to_json({})::text" if name in arrays else "{}::text").format(Identifier(name))
            for name in self._names
        ]
        epoch = (
            SQL("{}::text").format(Identifier(self._epoch_column))
            if self._epoch_column
            else (SQL("NULL::text"))
        )
        return SQL("SELECT {} FROM {}").format(
            SQL(", ").join([epoch, *texts]), self._address.identifier()
        )


def _is_exact(kind: DataType, type_: str) -> bool:
    """Whether a value of the type comes back from the column as it was written."""
    from pyspark.sql.types import ArrayType, BinaryType, MapType, StringType, StructType

    if isinstance(kind, StringType):
        return type_ in _SAME_TEXT
    if isinstance(kind, StructType | MapType):
        return can_be_read_back(kind)
    if isinstance(kind, ArrayType):
        element = kind.elementType
        is_text = isinstance(element, StringType)
        numbers = ("boolean", "byte", "short", "integer", "long", "double", "decimal", "date")
        return element.typeName() in numbers or (is_text and type_.lstrip("_") in _SAME_TEXT)
    return isinstance(kind, BinaryType) or kind.typeName() in FIXED_SIZE


def _from_text(text: Column, kind: DataType) -> Column:
    from pyspark.sql import functions as f
    from pyspark.sql.types import ArrayType, BinaryType, MapType, StringType, StructType

    if isinstance(kind, StringType):
        return text
    if isinstance(kind, BinaryType):
        return f.unhex(f.substring(text, 3, 1 << 30))
    if isinstance(kind, StructType | MapType | ArrayType):
        return f.from_json(text, kind, JSON_OPTIONS)
    return text.cast(kind)
