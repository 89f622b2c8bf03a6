"""An SQL table with a growing key, as a stream.

Tests: ``tests/sources/test_table_sqlite.py``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, MutableMapping
from contextlib import suppress
from decimal import Decimal
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

from pyspark.sql.types import StructField, StructType

from seamark.errors import InvalidInputError, PositionUnavailable, RefusedError
from seamark.sources.offsets import Position
from seamark.sources.sequence_reader import Placed
from seamark.sources.sequenced import SequencedSource, seconds
from seamark.sources.table.database import Database
from seamark.sources.table.dialects import MARK, POSTGRES, SQLITE, split_names
from seamark.sources.table.postgres import PostgresTable
from seamark.sources.table.settled_keys import Delay, Horizon, Settling
from seamark.sources.table.types import (
    Converter,
    converter_to,
    from_postgres,
    from_sqlite,
    is_whole,
)

SETTLE_SECONDS: Final = 5.0
"""Longer than most transactions take, and short enough for a dashboard."""
SETTLE_TIMEOUT: Final = 30.0
_OPTIONS: Final = (
    "driver",
    "dsn",
    "dsn_env",
    "connect",
    "table",
    "key",
    "columns",
    "max_rows_per_epoch",
    "poll_seconds",
    "settle_seconds",
    "settle_timeout",
)


class TableSource(SequencedSource):
    """Rows of an SQL table in the order of a key that only grows, each exactly once.

    ::

        spark.dataSource.register(TableSource)
        spark.readStream.format("seamark_table")
            .option("driver", "psycopg").option("dsn_env", "ORDERS_DSN")
            .option("table", "shop.orders").option("key", "id").load()

    The key is a unique integer that is taken when a row is inserted. Rows are never changed, and
    the newest is never deleted. Rows of transactions that are not over are waited for: see
    :mod:`seamark.sources.table.settled_keys`.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        known = {option.lower() for option in _OPTIONS}
        if unknown := sorted(name for name in options if name.lower() not in known):
            raise InvalidInputError(
                f"a table has no option {unknown[0]!r}", hint=f"Known are: {', '.join(_OPTIONS)}."
            )
        for name in ("table", "key"):
            if not options.get(name):
                raise InvalidInputError(f"a table needs the option {name!r}")
        self._has_delay = "settle_seconds" in options
        self._settle_seconds = seconds(options, "settle_seconds", SETTLE_SECONDS)
        self._settle_timeout = seconds(options, "settle_timeout", SETTLE_TIMEOUT)
        self._database = Database(options, self.name())
        self._key = options["key"]
        self._parts = split_names(options["table"], ".")
        self._path = self._database.dialect.path(self._parts)
        columns = options.get("columns")
        self._columns = split_names(columns, ",") if columns else None
        self._converters: list[Converter] = []
        self._target: int | None = None
        self._has_target = False

    @classmethod
    def name(cls) -> str:
        """The format to read it by."""
        return "seamark_table"

    def place_id(self) -> str | None:
        """Which table of which database it is (PostgreSQL), or which file (SQLite)."""
        dialect = self._database.dialect
        try:
            if dialect == POSTGRES:
                return self._postgres.identity()
            return self._file_id() if dialect == SQLITE else None
        finally:
            self._database.close()

    def _file_id(self) -> str | None:
        """The file of the schema that the table is in."""
        schema = self._parts[0] if len(self._parts) > 1 else "main"
        for _, name, path in self._database.query("PRAGMA database_list"):
            if name == schema and path:
                with suppress(OSError):
                    return f"inode-{os.stat(path).st_ino}"
        return None

    # columns

    def schema(self) -> StructType:
        """The columns as the database declares them (SQLite, PostgreSQL)."""
        try:
            declared = self._declared()
        finally:
            self._database.close()  # rows are read in another process
        if not declared:
            raise InvalidInputError(f"there is no table {self._path}")
        names = self._columns if self._columns is not None else list(declared)
        fields = []
        for name in names:
            if name not in declared:
                raise InvalidInputError(f"{self._path} has no column {name!r}")
            kind, text = declared[name]
            if kind is None:
                raise InvalidInputError(
                    f"column {name!r} is {text!r}, for which Spark has no obvious type",
                    hint="Give a schema by spark.readStream.schema(…), or leave it out by columns.",
                )
            fields.append(StructField(name, kind))
        return StructType(fields)

    def _declared(self) -> dict[str, tuple[Any, str]]:
        dialect = self._database.dialect
        if dialect == POSTGRES:
            return {
                name: (from_postgres(kind, category), kind)
                for name, kind, category in self._postgres.columns()
            }
        if dialect == SQLITE:
            sql = f"SELECT name, type FROM pragma_table_xinfo({MARK}) WHERE hidden != 1"
            values = [self._parts[-1]]
            if len(self._parts) > 1:
                sql = sql.replace(f"({MARK})", f"({MARK}, {MARK})")
                values.append(self._parts[0])
            rows = self._database.query(sql, values)
            return {str(name): (from_sqlite(kind), str(kind)) for name, kind in rows}
        raise InvalidInputError(
            "the columns can be asked for in SQLite and PostgreSQL only",
            hint='Give them: spark.readStream.schema("id long, …").format("seamark_table")',
        )

    def use_schema(self, schema: StructType) -> None:
        """Read these columns, by the names in ``columns`` or by their own."""
        if self._columns is None:
            self._columns = schema.fieldNames()
        if len(self._columns) != len(schema.fields):
            raise InvalidInputError(
                f"the option columns names {len(self._columns)} columns, and the schema has "
                f"{len(schema.fields)}"
            )
        self._converters = [converter_to(field.dataType, field.name) for field in schema.fields]

    # reading

    def read_from(self, position: Position | None, limit: int) -> Iterator[Placed]:
        """Rows with a key above the position that are settled."""
        after = _key_of(position)
        upto = self._target if self._has_target else self._settling.settled()
        newest = self._newest()
        if after is not None and (newest is None or newest < after):
            raise PositionUnavailable(
                f"{self._path} has been read up to key {after}, and its newest is {newest} now",
                where="It was emptied, or an older copy of it was put back; new rows would get "
                "keys that count as read.",
                hint="Put the rows back. A job that deletes old rows must leave the newest one. To "
                "read the table from the start again, use a new store and new sink targets.",
                source=self.name(),
                requested=str(after).encode(),
            )
        if upto is None or (after is not None and upto <= after):
            return iter(())
        self._refuse_null_keys()
        return self._rows(after, upto, limit)

    def read_between(self, start: Position | None, end: Position, limit: int) -> Iterator[Placed]:
        """Rows between two keys, settled long ago."""
        last = _key_of(end)
        if last is None:
            raise InvalidInputError("an epoch cannot end before the first key")
        return self._rows(_key_of(start), last, limit)

    def stop_at_present(self) -> None:
        """Read up to what is visible now, having waited for those who are writing."""
        self._target = self._settling.settled_now(self._settle_timeout)
        self._has_target = True

    def _rows(self, after: int | None, upto: int, limit: int) -> Iterator[Placed]:
        dialect, key = self._database.dialect, self._column(self._key)
        names = ", ".join([key, *map(self._column, self._columns or [])])
        above, values = ("", [upto]) if after is None else (f" AND {key} > {MARK}", [upto, after])
        # one more than needed: a duplicate key may sit across the limit
        rows = self._database.query(
            f"SELECT {names} FROM {self._path} WHERE {key} <= {MARK}{above} "
            f"ORDER BY {key} {dialect.limited(limit + 1)}",
            values,
        )
        keys = [self._checked_key(key) for key, *_ in rows]
        for one, next_one in pairwise(keys):
            if one == next_one:
                raise RefusedError(
                    f"{self._path} has two rows with the key {one}",
                    hint=f"{self._key!r} must be unique: it tells rows apart.",
                )
        return zip(map(self._converted, rows), keys, strict=True)

    def _converted(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        cells = zip(self._converters, row[1:], strict=True)
        return tuple(convert(cell) for convert, cell in cells)

    def _column(self, name: str) -> str:
        return self._database.dialect.column(self._parts[-1], name)

    def _newest(self) -> int | None:
        ((key,),) = self._database.query(f"SELECT max({self._column(self._key)}) FROM {self._path}")
        return None if key is None else self._checked_key(key)

    def _refuse_null_keys(self) -> None:
        """A row without a key is below none and above none: it would never be read."""
        key, one = self._column(self._key), self._database.dialect.limited(1)
        if self._database.query(f"SELECT {key} FROM {self._path} WHERE {key} IS NULL {one}"):
            raise RefusedError(
                f"{self._path} has a row whose key is NULL, which would never be read",
                hint=f"Give it a key or delete it, and declare {self._key!r} NOT NULL.",
            )

    def _checked_key(self, key: Any) -> int:
        if isinstance(key, Decimal):
            whole, shown = is_whole(key), str(key)
        else:
            whole = isinstance(key, int) and not isinstance(key, bool)
            shown = f"a {type(key).__name__}"
        if not whole:
            raise InvalidInputError(
                f"the key {self._key!r} of {self._path} is not a whole number but {shown}"
            )
        return int(key)

    # what is settled

    @cached_property
    def _settling(self) -> Settling:
        dialect = self._database.dialect
        self._refuse_null_keys()
        if dialect == SQLITE and not self._has_delay:
            return Delay(self._newest, 0.0)  # one writer at a time
        if dialect == POSTGRES and not self._has_delay:
            self._postgres.writers()  # refuses where locks do not show enough
            return Horizon(self._newest, self._postgres.writers)
        return Delay(self._newest, self._settle_seconds)

    @property
    def _postgres(self) -> PostgresTable:
        return PostgresTable(self._database, self._path, self._key)


def _key_of(position: Position | None) -> int | None:
    if position is None or isinstance(position, int):
        return position
    raise InvalidInputError(f"{position!r} is not a key of a table")
