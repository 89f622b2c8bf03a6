"""What a Delta or Iceberg table remembers of a query: the batches that it would drop.

Both note the query's id and the batch with every commit of a streaming write, and skip a batch that
is not larger than the last one they have noted. Read from the tables' own files, without Spark.

Tests: ``tests/native/test_sink_tables.py``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Final

from seamark.checkpoint_dir.places.directory import Directory, Tree
from seamark.errors import CheckpointNotFoundError, RefusedError, StoreUnavailableError
from seamark.native.delta_log import DELTA_LOG, delta_table_at
from seamark.native.iceberg_metadata import ICEBERG_METADATA, iceberg_table_at
from seamark.native.table_log import TableAt

OpenDirectory = Callable[[str], AbstractContextManager[Directory]]

_PAUSES: Final = (0.1, 0.3, 1.0)
"""Seconds before a table is listed again."""


def table_at(open_directory: OpenDirectory, table: str, query_id: str, batch: int) -> TableAt:
    """Look a query up in a table; :class:`RefusedError` when there is none, or it does not tell.

    :class:`StoreUnavailableError` when files disappear while they are read, time and again.
    """
    root = table.rstrip("/")
    for pause in _PAUSES:
        # a clean-up has removed what was listed, and something newer stands for it
        with suppress(FileNotFoundError):
            return _looked_up(open_directory, root, query_id, batch)
        time.sleep(pause)
    try:
        return _looked_up(open_directory, root, query_id, batch)
    except FileNotFoundError as gone:
        raise StoreUnavailableError(
            "the table is being cleaned up: files of its log disappear while they are read",
            where=f"{table}: {gone}",
            hint="Try again when that is done.",
        ) from None


def _looked_up(open_directory: OpenDirectory, root: str, query_id: str, batch: int) -> TableAt:
    looks: tuple[tuple[str, Callable[[Tree, str, int], TableAt]], ...] = (
        (DELTA_LOG, delta_table_at),
        (ICEBERG_METADATA, iceberg_table_at),
    )
    for folder, look in looks:
        with open_directory(f"{root}/{folder}") as directory:
            try:
                tree = Tree.of(directory)
            except CheckpointNotFoundError:
                continue
            if tree.entries:
                return look(tree, query_id, batch)
    raise RefusedError(
        "there is no Delta or Iceberg table",
        where=root,
        hint=f"Give the folder that has {DELTA_LOG} or {ICEBERG_METADATA} in it.",
    )


def way_back(at: TableAt, batch: int) -> str:
    """What to do with a table that has later batches than the one to continue from."""
    if at.version is None:
        undo = "its log no longer tells which version was the one before them"
    else:
        name, sql = "snapshot", f"CALL system.rollback_to_snapshot(…, {at.version})"
        if at.kind == "delta":
            name, sql = "version", f"RESTORE TABLE … TO VERSION AS OF {at.version}"
        undo = f"{name} {at.version} is the last one without them ({sql})"
    first, last = batch + 1, at.newest_batch
    which = f"batch {first}" if first == last else f"batches {first} to {last}"
    return f"{at.url} has {which} of this query; {undo}"
