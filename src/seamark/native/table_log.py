"""A table's log as it is read without Spark, and what it says about a query.

Tests: ``tests/native/test_sink_tables.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from seamark import limits
from seamark.checkpoint_dir.places.directory import Tree
from seamark.errors import DamageError, RefusedError
from seamark.native.delta_checkpoints import LONGEST_NAME, MOST_NAMED

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


class OtherWriters:
    """Those that a table met first after a batch of a query, as it is walked back.

    A directory that was restored under a new id goes on with the numbers of the old one. So an id
    that was never there before the batch, and begins with a later one, has most likely written what
    follows it: a query of its own begins at 0.
    """

    def __init__(self, batch: int) -> None:
        self._batch = batch
        self._begun: dict[str, tuple[int, int | None]] = {}
        """By name: its first batch, if that is a later one, and the version before it."""

    def saw_after(self, batches: Mapping[str, int], before: int | None) -> None:
        """They were written after the batch, in the version that follows ``before``."""
        for name, number in batches.items():
            self._begun.pop(name, None)  # so that the oldest one comes last
            if number > self._batch:
                self._begun[name] = number, before

    def saw_earlier(self, names: Mapping[str, int]) -> None:
        """They were there before the batch."""
        for name in names:
            self._begun.pop(name, None)

    def are_unknown(self) -> bool:
        """Whether an earlier part of the log may say of one of them that it was there before."""
        return bool(self._begun)

    def require_none(self, where: str, *, is_whole: bool) -> None:
        """:class:`RefusedError` when one has gone on from the batch.

        Where the log does ``not is_whole`` only the very next batch counts.
        """
        found = {
            name: begun
            for name, begun in self._begun.items()
            if is_whole or begun[0] == self._batch + 1
        }
        if not found:
            return
        some = sorted(found.items())[:MOST_NAMED]
        named = ", ".join(f"{name[:LONGEST_NAME]!r} from batch {at} on" for name, (at, _) in some)
        _, before = [*found.values()][-1]
        undo = "" if before is None else f" Version {before} is the last one without them."
        raise RefusedError(
            f"the table has what follows batch {self._batch} under another id: the directory was "
            "restored before, and has gone on",
            where=f"{where}: {named}",
            hint=f"Those batches would be written once more: bring the table back first.{undo} "
            f"{SAY_IT_YOURSELF}",
        )


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
