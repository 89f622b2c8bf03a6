"""A table in SQLite that remembers transactions as Delta does, and functions that write to it."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from seamark.sinks.foreach import EpochNumber

Function = Callable[["DataFrame", "EpochNumber"], None]


class Table:
    """Rows, and for each application the number of its last transaction, in one database.

    ``append`` is Delta's append with ``txnAppId`` and ``txnVersion``: a number that is not larger
    than the last one of its application is dropped without an error.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with closing(self._connect()) as db:
            db.execute("CREATE TABLE IF NOT EXISTS rows (v INTEGER, timeline TEXT, epoch INTEGER)")
            db.execute("CREATE TABLE IF NOT EXISTS txn (app TEXT PRIMARY KEY, version INTEGER)")
            db.execute("CREATE TABLE IF NOT EXISTS written (key TEXT PRIMARY KEY)")

    def append(self, rows: list[int], app: str, version: int, timeline: str = "") -> bool:
        """Whether the rows were added."""
        with closing(self._connect()) as db:
            db.execute("BEGIN IMMEDIATE")
            last = db.execute("SELECT version FROM txn WHERE app = ?", (app,)).fetchone()
            if last is not None and last[0] >= version:
                db.execute("ROLLBACK")
                return False
            self._insert(db, rows, timeline, version)
            db.execute("REPLACE INTO txn VALUES (?, ?)", (app, version))
            db.execute("COMMIT")
            return True

    def append_once(self, rows: list[int], epoch: EpochNumber) -> bool:
        """The same by a unique key."""
        with closing(self._connect()) as db:
            db.execute("BEGIN IMMEDIATE")
            added = db.execute("INSERT OR IGNORE INTO written VALUES (?)", (epoch.key,)).rowcount
            if added:
                self._insert(db, rows, epoch.timeline, epoch)
            db.execute("COMMIT")
            return bool(added)

    def remove_after(self, epoch: int) -> None:
        """What a user does by hand before a rolled back pipeline starts again."""
        with closing(self._connect()) as db:
            db.execute("DELETE FROM rows WHERE epoch > ?", (epoch,))

    def values(self) -> Counter[int]:
        with closing(self._connect()) as db:
            return Counter(v for (v,) in db.execute("SELECT v FROM rows"))

    def _insert(self, db: sqlite3.Connection, rows: list[int], timeline: str, epoch: int) -> None:
        values = [(v, timeline, int(epoch)) for v in rows]
        db.executemany("INSERT INTO rows VALUES (?, ?, ?)", values)

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, isolation_level=None, timeout=60)


def values_of(df: Any) -> list[int]:
    """The column v."""
    return [row.v for row in df.collect()]


def as_delta(table: Table) -> Function:
    """The documented recipe for Delta: one application for each timeline."""

    def to_table(df: DataFrame, epoch: EpochNumber) -> None:
        table.append(values_of(df), f"orders/rows/{epoch.timeline}", epoch, epoch.timeline)

    return to_table


def by_number_alone(table: Table) -> Function:
    """A recipe that forgets the timeline."""

    def to_table(df: DataFrame, epoch: EpochNumber) -> None:
        table.append(values_of(df), "orders/rows", epoch, epoch.timeline)

    return to_table


def by_key(table: Table) -> Function:
    """The documented recipe for a database with unique keys."""

    def to_table(df: DataFrame, epoch: EpochNumber) -> None:
        table.append_once(values_of(df), epoch)

    return to_table
