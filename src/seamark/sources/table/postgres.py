"""Finds out from PostgreSQL who is writing to a table.

An INSERT locks its table (RowExclusiveLock) before it evaluates the key's default, and keeps the
lock until its rows are visible or gone. So a key that was handed out before the largest visible
one belongs to a transaction that has ended or is listed in pg_locks. Comparing ``xmin`` with the
oldest running transaction is not enough: an old transaction may take a new key.
"""

from __future__ import annotations

from typing import Final

from seamark.errors import InvalidInputError, RefusedError
from seamark.sources.table.database import Database
from seamark.sources.table.dialects import MARK

# an INSERT into a partitioned table locks the table itself, and the partition only after the key
# was taken; one into a partition locks the partition alone: so the whole family is looked at
_FAMILY: Final = f"""
WITH RECURSIVE up(oid) AS (
    SELECT {MARK}::text::regclass::oid
    UNION SELECT i.inhparent FROM pg_catalog.pg_inherits i JOIN up ON i.inhrelid = up.oid
), family(oid) AS (
    SELECT oid FROM up
    UNION SELECT i.inhrelid FROM pg_catalog.pg_inherits i JOIN family f ON i.inhparent = f.oid
)
"""
# a row for each writer, or one with NULL for it; and in each, all on which it depends whether locks
# tell: that may change at any time, so it is asked along
_WRITERS: Final = (
    _FAMILY
    + f"""
, writer(name) AS (
    SELECT DISTINCT l.virtualtransaction
    FROM pg_catalog.pg_locks l JOIN family ON l.relation = family.oid
    WHERE l.locktype = 'relation' AND l.granted AND l.mode = 'RowExclusiveLock'
      AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
      AND l.pid IS DISTINCT FROM pg_catalog.pg_backend_pid()
)
SELECT writer.name, pg_catalog.pg_is_in_recovery(), c.relkind::text,
       s.seqcache, s.seqincrement, s.seqcycle,
       EXISTS (SELECT 1 FROM pg_catalog.pg_subscription_rel r WHERE r.srrelid = c.oid)
FROM pg_catalog.pg_class c
LEFT JOIN pg_catalog.pg_sequence s
    ON s.seqrelid = pg_catalog.pg_get_serial_sequence({MARK}, {MARK})::regclass::oid
LEFT JOIN writer ON true
WHERE c.oid = {MARK}::text::regclass::oid
"""
)
_IDENTITY: Final = f"""
SELECT c.system_identifier, d.oid, pg_catalog.to_regclass({MARK}::text)::oid
FROM pg_catalog.pg_control_system() c, pg_catalog.pg_database d
WHERE d.datname = pg_catalog.current_database()
"""
_COLUMNS: Final = f"""
SELECT a.attname::text, pg_catalog.format_type(a.atttypid, a.atttypmod), t.typtype::text
FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = {MARK}::text::regclass::oid AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
"""


class PostgresTable:
    """One table of a PostgreSQL database; ``path`` is its quoted name."""

    def __init__(self, database: Database, path: str, key: str) -> None:
        self._database = database
        self._path = path
        self._key = key

    def writers(self) -> frozenset[str]:
        """The transactions of others that hold a lock by which rows are added.

        :class:`RefusedError` where locks do not show which keys can still appear.
        """
        path = self._path
        rows = self._database.query(_WRITERS, [path, path, self._key, path])
        if not rows:
            raise InvalidInputError(f"there is no table {path}")
        self._refuse_unless_locks_tell(*rows[0][1:])
        return frozenset(str(name) for name, *_ in rows if name is not None)

    def identity(self) -> str | None:
        """The numbers of the cluster, the database and the table; standbys have the same.

        A table that was made again has another one, also one that was restored from a dump.
        """
        ((cluster, database, table),) = self._database.query(_IDENTITY, [self._path])
        return None if table is None else f"table-{cluster}-{database}-{table}"

    def columns(self) -> list[tuple[str, str, str]]:
        """Name, type and kind of type of each column, in order."""
        rows = self._database.query(_COLUMNS, [self._path])
        return [(str(name), str(kind), str(category)) for name, kind, category in rows]

    def _refuse_unless_locks_tell(
        self,
        standby: bool,
        kind: str,
        cache: int | None,
        increment: int,
        cycles: bool,
        subscribed: bool,
    ) -> None:
        why = None
        if standby:
            why = "a standby server does not know who is writing on its primary"
        elif kind not in ("r", "p"):
            why = "it is not a table, and rows are added to what it is made of"
        elif subscribed:
            why = "it is filled by a subscription, in the order of commits elsewhere"
        elif cache is None:
            why = f"{self._key!r} has no sequence of its own (serial or GENERATED … AS IDENTITY)"
        elif cache > 1:
            why = f"its sequence is cached: each session keeps {cache} keys for later"
        elif increment < 1 or cycles:
            why = "its sequence does not grow"
        if why is not None:
            raise RefusedError(
                f"which keys of {self._path} can still appear cannot be known: {why}",
                hint="Give settle_seconds: longer than any transaction takes from its first key "
                "to its commit, and longer than a session keeps cached keys.",
            )
