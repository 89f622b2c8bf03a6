"""Which epochs the tables of a schema show: one row for each, in a table beside them.

The row is entered by the transaction that shows the epoch, so it tells for certain whether that
has happened.

Tests: ``tests/sinks/test_postgres.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from seamark._common.json_documents import UNREADABLE
from seamark.errors import DamageError, RefusedError
from seamark.sinks.contract import Receipt
from seamark.sinks.postgres.connections import with_values

if TYPE_CHECKING:
    from psycopg import Cursor
    from psycopg.sql import Composable

    from seamark.sinks.postgres.connections import Rows, TableAddress

NAME: Final = "seamark_ledger"
REMEMBERED_PLANS: Final = 64
"""Epochs that the ledger can tell how to run again, as a view does."""
_LOCK: Final = 7_318_427_001
"""Of PostgreSQL's advisory locks: two outputs may make the ledger at the same moment."""
_LATER_COLUMNS: Final[Mapping[str, str]] = {"table_oid": "oid", "epoch_column": "text"}
"""Columns that a ledger of an earlier Seamark lacks, with their types."""
_MISSING: Final = """
SELECT name FROM unnest(%s::text[]) AS later (name) WHERE NOT EXISTS (
    SELECT 1 FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attname = later.name)
"""
_LACKING: Final = """
WITH numbered AS (
    SELECT {column} AS epoch, count(*) AS rows FROM {table} WHERE {column} IS NOT NULL GROUP BY 1)
SELECT l.epoch, l.rows, coalesce(n.rows, 0) FROM {ledger} l LEFT JOIN numbered n USING (epoch)
"""
_OUTPUT: Final = "pipeline = %(pipeline)s AND sink = %(sink)s AND target = %(target)s"


@dataclass(frozen=True)
class KnownTable:
    """The table that an epoch went to."""

    epoch: int
    oid: int


@dataclass(frozen=True)
class Unnumbered:
    """An epoch with rows that do not have its number."""

    epoch: int
    rows: int
    numbered: int


def receipt_in(pipeline: str, sink: str, row: tuple[Any, ...], where: str) -> Receipt:
    """The record that a row of the ledger is; :class:`DamageError` when it is none."""
    names = ("timeline", "epoch", "fingerprint", "attempt", "plan")
    values = dict(zip(names, row, strict=True)) | {"pipeline": pipeline, "sink": sink}
    try:
        if values["plan"] is not None:
            values["plan"] = msgspec.json.decode(values["plan"])
        return msgspec.convert(values, Receipt)
    except (*UNREADABLE, OverflowError) as error:
        raise DamageError(
            f"the record of epoch {values['epoch']} in the ledger cannot be read: {error}",
            where=where,
            hint=f"Who has changed {NAME}? Without its plan the record can be read: set that to "
            "null.",
        ) from None


@dataclass(frozen=True)
class Ledger:
    """What the ledger says about one output of one pipeline."""

    address: TableAddress
    pipeline: str
    sink: str

    def create(self, connection: Rows) -> None:
        """Make the ledger of the schema where there is none, or add columns that it lacks."""
        name = self.address.identifier(NAME).as_string()
        there = connection.execute("SELECT to_regclass(%s)", (name,)).fetchone()
        missing = connection.execute(_MISSING, ([*_LATER_COLUMNS], name)).fetchall()
        if there == (None,):
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
            self._run(
                connection,
                "CREATE TABLE IF NOT EXISTS {ledger} (pipeline text, sink text, target text,"
                " epoch bigint, timeline text NOT NULL, fingerprint text NOT NULL,"
                " attempt text NOT NULL, plan text, rows bigint NOT NULL,"
                " committed_at timestamptz NOT NULL DEFAULT now(), table_oid oid,"
                " epoch_column text, PRIMARY KEY (pipeline, sink, target, epoch))",
            )
        elif missing:
            self._add_columns(connection)

    def _add_columns(self, connection: Rows) -> None:
        from psycopg.errors import InsufficientPrivilege

        added = ", ".join(f"ADD COLUMN IF NOT EXISTS {c} {t}" for c, t in _LATER_COLUMNS.items())
        try:
            self._run(connection, f"ALTER TABLE {{ledger}} {added}")
        except InsufficientPrivilege:
            ledger = self.address.identifier(NAME).as_string()
            raise RefusedError(
                "the ledger was made by an earlier Seamark, and only its owner can add columns",
                where=self.address.shown,
                hint=f"Have its owner run: ALTER TABLE {ledger} {added}",
            ) from None

    def enter(
        self, connection: Rows, receipt: Receipt, rows: int, epoch_column: str | None
    ) -> bool:
        """Enter an epoch; False when one of that number is there already.

        ``epoch_column`` is where its rows have its number. Waits for whoever is entering the same
        epoch.
        """
        plan = None if receipt.plan is None else msgspec.json.encode(receipt.plan).decode()
        values = msgspec.structs.asdict(receipt) | {"plan": plan, "rows": rows}
        values |= {"epoch_column": epoch_column, "table": self.address.identifier().as_string()}
        entered = self._run(
            connection,
            "INSERT INTO {ledger} (pipeline, sink, target, epoch, timeline, fingerprint, attempt,"
            " plan, rows, epoch_column, table_oid) VALUES (%(pipeline)s, %(sink)s, %(target)s,"
            " %(epoch)s, %(timeline)s, %(fingerprint)s, %(attempt)s, %(plan)s, %(rows)s,"
            " %(epoch_column)s, to_regclass(%(table)s)) ON CONFLICT DO NOTHING",
            values,
        )
        if entered.rowcount == 0:
            return False
        old = {"epoch": receipt.epoch - REMEMBERED_PLANS}
        self._run(
            connection,
            f"UPDATE {{ledger}} SET plan = NULL WHERE {_OUTPUT} AND epoch = %(epoch)s",
            old,
        )
        return True

    def entry(self, connection: Rows, epoch: int | None = None) -> Receipt | None:
        """The record of an epoch, by default of the newest; None when there is none."""
        row = self._run(
            connection,
            f"SELECT timeline, epoch, fingerprint, attempt, plan FROM {{ledger}} WHERE {_OUTPUT}"
            " AND epoch = coalesce(%(epoch)s, epoch) ORDER BY epoch DESC LIMIT 1",
            {"epoch": epoch},
        ).fetchone()
        if row is None:
            return None
        return receipt_in(self.pipeline, self.sink, row, self.address.shown)

    def hold_after(self, connection: Rows, epoch: int) -> Receipt | None:
        """Keep others from taking back later epochs too; the record of the newest, or None."""
        held = self._run(
            connection,
            f"SELECT epoch FROM {{ledger}} WHERE {_OUTPUT} AND epoch > %(epoch)s FOR UPDATE",
            {"epoch": epoch},
        ).fetchall()
        return self.entry(connection, max(number for (number,) in held)) if held else None

    def forget_after(self, connection: Rows, epoch: int) -> list[int]:
        """Remove later epochs; which they were."""
        removed = self._run(
            connection,
            f"DELETE FROM {{ledger}} WHERE {_OUTPUT} AND epoch > %(epoch)s RETURNING epoch",
            {"epoch": epoch},
        )
        return sorted(number for (number,) in removed)

    def known_table(self, connection: Rows) -> KnownTable | None:
        """The table that the newest epoch went to; None when the ledger does not know it."""
        row = self._run(
            connection,
            f"SELECT epoch, table_oid FROM {{ledger}} WHERE {_OUTPUT} AND table_oid IS NOT NULL"
            " ORDER BY epoch DESC LIMIT 1",
        ).fetchone()
        return None if row is None else KnownTable(*row)

    def note_table(self, connection: Rows, oid: int) -> None:
        """Note which table the newest epoch went to."""
        self._run(
            connection,
            f"UPDATE {{ledger}} SET table_oid = %(oid)s WHERE {_OUTPUT}"
            f" AND epoch = (SELECT max(epoch) FROM {{ledger}} WHERE {_OUTPUT})",
            {"oid": oid},
        )

    def unnumbered(self, connection: Rows, column: str, after: int = 0) -> list[Unnumbered]:
        """Epochs of which fewer rows have the number in ``column`` than were written.

        Only those are counted that the ledger does not know to have been written with it: whoever
        deletes rows later may do so. What was counted and is complete is known from then on.
        """
        unknown = f"{_OUTPUT} AND rows > 0 AND epoch_column IS DISTINCT FROM %(column)s"
        values = {"column": column, "after": after}
        exists = f"SELECT 1 FROM {{ledger}} WHERE {unknown} AND epoch > %(after)s LIMIT 1"
        if self._run(connection, exists, values).fetchone() is None:
            return []
        from psycopg.sql import Identifier

        counted = self._run(
            connection,
            f"{_LACKING} WHERE {_OUTPUT} AND l.rows > 0"
            " AND l.epoch_column IS DISTINCT FROM %(column)s ORDER BY epoch",
            values,
            column=Identifier(column),
            table=self.address.identifier(),
        ).fetchall()
        epochs = [Unnumbered(*row) for row in counted]
        complete = [epoch.epoch for epoch in epochs if epoch.numbered >= epoch.rows]
        self._run(
            connection,
            f"UPDATE {{ledger}} SET epoch_column = %(column)s WHERE {_OUTPUT}"
            " AND epoch = ANY(%(complete)s)",
            values | {"complete": complete},
        )
        return [e for e in epochs if e.numbered < e.rows and e.epoch > after]

    def another_output(self, connection: Rows) -> str | None:
        """Another output that writes to the same table, in words; None when there is none."""
        row = self._run(
            connection,
            "SELECT pipeline, sink FROM {ledger} WHERE target = %(target)s"
            " AND NOT (pipeline = %(pipeline)s AND sink = %(sink)s) LIMIT 1",
        ).fetchone()
        return None if row is None else f"output {row[1]!r} of pipeline {row[0]!r}"

    def _run(
        self,
        connection: Rows,
        statement: str,
        values: Mapping[str, Any] | None = None,
        **names: Composable,
    ) -> Cursor[tuple[Any, ...]]:
        output = {"pipeline": self.pipeline, "sink": self.sink, "target": self.address.name}
        query = with_values(statement, ledger=self.address.identifier(NAME), **names)
        return connection.execute(query, output | dict(values or {}))
