"""A table's log as it is read without Spark, and what it says about a query.

Tests: ``tests/native/test_sink_tables.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from seamark import limits
from seamark.checkpoint_dir.places.directory import Tree
from seamark.errors import DamageError, RefusedError

Kind = Literal["delta", "iceberg"]

SAY_IT_YOURSELF: Final = "Leave --table out and say --query-id yourself."


@dataclass(frozen=True)
class TableAt:
    """What a table knows of a query, seen from one of its batches."""

    kind: Kind
    url: str
    newest_batch: int | None
    """The last batch of the query that the table has; None when it has none."""
    version: int | None
    """Delta's version or Iceberg's snapshot right before the first later batch; None when nothing
    has to be undone, or when the table's log does not reach back that far."""

    def is_ahead_of(self, batch: int) -> bool:
        """Whether it has later batches, and would drop those numbers."""
        return self.newest_batch is not None and self.newest_batch > batch


def read_file(tree: Tree, name: str) -> bytes:
    size = tree.entries[name].size
    if size > limits.LARGEST_TABLE_FILE:
        raise RefusedError(
            f"{name} has {size} bytes, and files up to {limits.LARGEST_TABLE_FILE} are read",
            where=tree.directory.url,
            hint=SAY_IT_YOURSELF,
        )
    return tree.read(name)


def damaged(tree: Tree, name: str, error: object) -> DamageError:
    return DamageError(
        f"{name} cannot be read: {error}", where=tree.directory.url, hint=SAY_IT_YOURSELF
    )
