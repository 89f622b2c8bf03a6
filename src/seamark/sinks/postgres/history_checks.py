"""Whether the table still is what the ledger speaks of.

The ledger remembers which table it was, by the number that PostgreSQL gave it (its OID), and in
which column the rows of an epoch have the epoch's number. A table that was dropped and made anew
has another OID, and rows that came before ``epoch_column`` was given have no number.

Tests: ``tests/sinks/test_postgres_history.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from seamark.errors import LineageError, RefusedError
from seamark.sinks.contract import Identity, no_longer_shown

if TYPE_CHECKING:
    from seamark.sinks.postgres.connections import Rows, TableAddress
    from seamark.sinks.postgres.ledger import Ledger, Unnumbered


def require_same_table(connection: Rows, ledger: Ledger, oid: int) -> None:
    """:class:`LineageError` when the ledger speaks of another table of the same name.

    A ledger that does not know which table it was, because it was written by an earlier Seamark or
    somebody has cleared it, learns it here.
    """
    known = ledger.known_table(connection)
    if known is None:
        ledger.note_table(connection, oid)
    elif known.oid != oid:
        raise another_table(ledger.address, known.epoch)


def require_shown(connection: Rows, ledger: Ledger, last: Identity) -> None:
    """:class:`LineageError` when the ledger lacks an epoch that this run has shown."""
    shown = ledger.entry(connection, last.epoch)
    if shown is None or not last.is_shown_by(shown):
        raise no_longer_shown(last, "table", ledger.address.shown)


def another_table(address: TableAddress, epoch: int) -> LineageError:
    """The error that says what can be done."""
    from psycopg.sql import SQL, Literal

    forget = SQL("UPDATE {} SET table_oid = NULL WHERE target = {}").format(
        address.identifier("seamark_ledger"), Literal(address.name)
    )
    return LineageError(
        f"this is not the table of epoch {epoch}: it was dropped and created again, or another one "
        "was given its name",
        where=address.shown,
        hint="Rows of earlier epochs may be missing. If they are all there, as after a restore "
        f"from a dump, say so to the ledger: {forget.as_string()} -- Otherwise write to a table of "
        "another name, where the output starts with its next epoch.",
    )


def require_numbers(address: TableAddress, column: str, lacking: Sequence[Unnumbered]) -> None:
    """:class:`RefusedError` when rows of these epochs cannot be told from those of others."""
    if not lacking:
        return
    named = "; ".join(f"epoch {e.epoch}: {e.numbered} of {e.rows}" for e in lacking[:5])
    more = f" and {len(lacking) - 5} more" if len(lacking) > 5 else ""
    raise RefusedError(
        f"not all rows have the number of their epoch in the column {column!r} ({named}{more})",
        where=address.shown,
        hint="They were written before epoch_column was given, so nothing tells which they are. "
        f"Write the numbers into them if you know, or roll back to epoch {lacking[-1].epoch} or "
        "later, or write to a new table.",
    )
