"""Tables in which rows wait until their epoch is decided.

::

    {schema}._seamark_{output}_{attempt}        rows of one attempt
    {schema}._seamark_{output}_back_{columns}   rows that a rollback took away from readers

A staging table has all columns of the table, with the same types, defaults and checks. So what the
table would refuse is refused before the epoch is decided.

Tests: ``tests/sinks/test_postgres.py``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from seamark.sinks.postgres.connections import APPLICATION, with_values

if TYPE_CHECKING:
    from psycopg.sql import Composed

    from seamark.sinks.postgres.catalog import Table
    from seamark.sinks.postgres.columns import TableColumn
    from seamark.sinks.postgres.connections import Rows, TableAddress

TOKEN: Final = "_seamark_try"
REMOVED: Final = "_seamark_removed"

_TABLES: Final = """
SELECT c.relname, obj_description(c.oid, 'pg_class') FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relkind = 'r' AND starts_with(c.relname, %s)
"""
_NOTED: Final = """
SELECT col_description(attrelid, attnum) FROM pg_attribute
WHERE attrelid = to_regclass(%s) AND attname = %s
"""
_END_COPIES: Final = """
SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity a
WHERE a.application_name = %s AND a.query LIKE 'COPY %%' AND a.pid <> pg_backend_pid()
AND EXISTS (SELECT 1 FROM pg_locks l WHERE l.pid = a.pid AND l.relation = to_regclass(%s))
"""


@dataclass(frozen=True)
class Staging:
    """The staging tables of one output of one pipeline."""

    address: TableAddress
    pipeline: str
    sink: str

    def name(self, attempt: str) -> str:
        """The name of the table of an attempt."""
        return f"{self._prefix}{_digest(attempt)}"

    def name_aside(self, columns: Iterable[TableColumn]) -> str:
        """The name of the table for rows of these columns that were taken back."""
        shape = "\n".join(f"{column.name} {column.described}" for column in columns)
        return f"{self._prefix}back_{_digest(shape)}"

    @property
    def _prefix(self) -> str:
        return f"_seamark_{_digest(self.pipeline, self.sink, self.address.name)}_"

    def attempts(self, connection: Rows) -> dict[str, str]:
        """The names of all staging tables, by the token of the attempt."""
        rows = connection.execute(_TABLES, (self.address.schema, self._prefix))
        return {token: name for name, token in rows if token and self.name(token) == name}

    def create(
        self,
        connection: Rows,
        table: Table,
        attempt: str,
        written: Sequence[str],
        *,
        keys: Sequence[str] = (),
        has_removals: bool = False,
        epoch: tuple[str, int] | None = None,
    ) -> None:
        """Make an empty staging table; one that an earlier try has left is dropped.

        ``epoch`` is the column that the number of the epoch goes to, and the number.
        """
        from psycopg.sql import SQL, Identifier, Literal

        self.drop(connection, attempt)
        changes: list[Composed] = []
        for column in table.columns:
            name = Identifier(column.name)
            if column.name not in written and column.is_numbered:
                # the next number is drawn when the row is shown
                changes.append(SQL("ALTER {} DROP DEFAULT").format(name))
                changes.append(SQL("ALTER {} DROP NOT NULL").format(name))
            elif has_removals and column.name not in keys and not column.is_nullable:
                # a row that only says which key is deleted has nothing else
                changes.append(SQL("ALTER {} DROP NOT NULL").format(name))
                changes.append(
                    SQL("ADD CHECK ({} OR {} IS NOT NULL)").format(Identifier(REMOVED), name)
                )
        if epoch is not None:
            column_name, number = epoch
            changes.append(
                SQL("ALTER {} SET DEFAULT {}").format(Identifier(column_name), Literal(number))
            )
        changes.append(SQL("ADD {} uuid NOT NULL").format(Identifier(TOKEN)))
        if has_removals:
            changes.append(SQL("ADD {} boolean NOT NULL").format(Identifier(REMOVED)))
        staging = self.address.identifier(self.name(attempt))
        connection.execute(
            SQL(
                "CREATE TABLE {} (LIKE {} INCLUDING CONSTRAINTS INCLUDING DEFAULTS INCLUDING"
                " GENERATED) WITH (autovacuum_enabled = off)"
            ).format(staging, self.address.identifier())
        )
        connection.execute(SQL("ALTER TABLE {} {}").format(staging, SQL(", ").join(changes)))
        connection.execute(SQL("COMMENT ON TABLE {} IS {}").format(staging, Literal(attempt)))

    def copy_statement(self, attempt: str, columns: Sequence[str]) -> str:
        """What tasks run to fill the table."""
        from psycopg.sql import SQL, Identifier

        names = SQL(", ").join(Identifier(name) for name in (*columns, TOKEN))
        table = self.address.identifier(self.name(attempt))
        return SQL("COPY {} ({}) FROM STDIN (FORMAT csv)").format(table, names).as_string()

    def note_prepared(self, connection: Rows, attempt: str, digest: str) -> None:
        """Note the digest of what the checkpoint will say about the rows of an attempt."""
        from psycopg.sql import SQL, Identifier, Literal

        table = self.address.identifier(self.name(attempt))
        note = SQL("COMMENT ON COLUMN {}.{} IS {}")
        connection.execute(note.format(table, Identifier(TOKEN), Literal(digest)))

    def noted(self, connection: Rows, attempt: str) -> str | None:
        """The digest that was noted when an attempt was prepared; None where there is none."""
        table = self.address.identifier(self.name(attempt)).as_string()
        row = connection.execute(_NOTED, (table, TOKEN)).fetchone()
        return None if row is None else row[0]

    def rows(self, connection: Rows, attempt: str, tokens: Sequence[str]) -> int:
        """How many rows the table of an attempt has under these tokens."""
        from psycopg.sql import Identifier

        count = with_values(
            "SELECT count(*) FROM {staging} WHERE {token} = ANY(%s::uuid[])",
            staging=self.address.identifier(self.name(attempt)),
            token=Identifier(TOKEN),
        )
        ((found,),) = connection.execute(count, (list(tokens),)).fetchall()
        return int(found)

    def drop(self, connection: Rows, attempt: str) -> None:
        """Remove the table of an attempt, and end whoever still copies into it."""
        from psycopg.sql import SQL

        table = self.address.identifier(self.name(attempt))
        connection.execute(_END_COPIES, (APPLICATION, table.as_string()))
        connection.execute(SQL("DROP TABLE IF EXISTS {}").format(table))

    def set_aside(
        self, connection: Rows, table: Table, epoch_column: str, epochs: Sequence[int]
    ) -> None:
        """Move the rows of these epochs away from readers."""
        from psycopg.sql import SQL, Identifier

        target = self.address.identifier()
        aside = self.address.identifier(self.name_aside(table.columns))
        connection.execute(SQL("CREATE TABLE IF NOT EXISTS {} (LIKE {})").format(aside, target))
        move = with_values(
            "WITH gone AS (DELETE FROM {target} WHERE {epoch} = ANY(%s) RETURNING *)"
            " INSERT INTO {aside} SELECT * FROM gone",
            target=target,
            aside=aside,
            epoch=Identifier(epoch_column),
        )
        connection.execute(move, (list(epochs),))


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
