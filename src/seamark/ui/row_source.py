"""Rows of state for the page: which ones are asked for, and how Spark reads them.

Tests: ``tests/ui/test_state_rows.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import TYPE_CHECKING, Protocol

import msgspec

from seamark._common.progress_bars import Bar
from seamark._common.text import size_text
from seamark.checkpoint_dir.places.directory import Directory, Tree
from seamark.checkpoint_dir.places.object_store import ObjectDirectory
from seamark.errors import CheckpointNotFoundError, RefusedError
from seamark.native.state_choice import StateRequest, choose
from seamark.reports.document import Document
from seamark.reports.state_rows import (
    first_choice,
    read_state,
    restored_for_reading,
    rows_document,
    settled,
    state_listing,
)
from seamark.store import CheckpointStore
from seamark.ui.bounds import MOST_RESTORED_BYTES, STATE_ROWS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class RowsAsked(msgspec.Struct, frozen=True, kw_only=True):
    """Which rows: of a checkpoint of a store, or of a batch of a directory."""

    checkpoint: int | None = None
    batch: int | None = None
    operator: int | None = None
    part: str | None = None
    """A store, a side of a join or a state variable of the operator."""
    partition: int | None = None
    first: int = 0
    """How many rows are left out before these."""


class RowReader(Protocol):
    """Reads one page of rows; whoever calls it does so one at a time."""

    def read(self, asked: RowsAsked, bar: Bar) -> Document:
        """A page of rows, and what else could be asked for."""

    def close(self) -> None:
        """End what is running and remove what was written."""


class RowSource:
    """Reads with a Spark of this process. The checkpoint that was read last stays restored."""

    def __init__(
        self,
        session: Callable[[], SparkSession],
        *,
        store: Callable[[], AbstractContextManager[CheckpointStore]] | None = None,
        directory: Callable[[], Directory] | None = None,
    ) -> None:
        self._session = session
        self._open_store, self._open_directory = store, directory
        self._restored: tuple[tuple[int, str], Directory] | None = None
        """A checkpoint by its id and the history of its store, and where it is."""
        self._held = ExitStack()

    def read(self, asked: RowsAsked, bar: Bar) -> Document:
        """See :class:`RowReader`. :class:`RefusedError` for more state than a page may restore."""
        with ExitStack() as stack:
            directory = self._directory(asked, bar, stack)
            tree, listing, request = settled(directory, partial(_chosen, asked=asked))
            if isinstance(directory, ObjectDirectory):
                size = sum(entry.size for entry in tree.entries.values())
                _require_small(size, directory.url)
            with bar("starting Spark", None):
                spark = self._session()
            with bar("reading rows", None):
                document = read_state(
                    directory,
                    request,
                    spark,
                    lambda frame, reading: rows_document(frame, reading, STATE_ROWS, asked.first),
                )
        return document | {
            "first": asked.first,
            "part": request.variable or request.side or request.store,
            "partition": asked.partition,
            "operators": listing["operators"],
        }

    def _directory(self, asked: RowsAsked, bar: Bar, stack: ExitStack) -> Directory:
        if self._open_directory is not None:
            directory = self._open_directory()
            stack.callback(directory.close)
            return directory
        assert self._open_store is not None
        number = asked.checkpoint or 0
        with self._open_store() as store:
            # where a store was begun anew, its ids are those of other checkpoints
            wanted = number, store.owner().timeline
            if self._restored is None or self._restored[0] != wanted:
                self.close()
                self._restored = wanted, self._restore(store, number, bar)
        return self._restored[1]

    def _restore(self, store: CheckpointStore, number: int, bar: Bar) -> Directory:
        manifest = store.load_by_id(number)
        if manifest is None:
            raise CheckpointNotFoundError(f"there is no checkpoint {number}", where=store.url)
        size = manifest.restore_bytes
        _require_small(size or 0, store.url)
        with bar("restoring the checkpoint", size, of_bytes=True) as advance:
            return self._held.enter_context(restored_for_reading(store, number, advance))

    def close(self) -> None:
        """Remove what was restored."""
        self._restored = None
        self._held.close()


def _require_small(size: int, url: str) -> None:
    if size > MOST_RESTORED_BYTES:
        raise RefusedError(
            f"to read its rows {size_text(size)} of state would be copied here, and the page "
            f"copies at most {size_text(MOST_RESTORED_BYTES)}",
            where=url,
            hint="'seamark spark state' has no such limit.",
        )


def _chosen(tree: Tree, asked: RowsAsked) -> tuple[Tree, Document, StateRequest]:
    """What there is, and what of it is meant; what cannot be is told before Spark starts."""
    listing = state_listing(tree)
    wanted = StateRequest(batch=asked.batch, operator=asked.operator, partition=asked.partition)
    request = first_choice(listing, wanted, asked.part)
    choose(tree, request)
    return tree, listing, request
