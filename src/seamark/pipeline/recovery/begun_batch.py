"""What an adopted query has begun and not finished, and whether a pipeline may run that.

The query's sink may have the rows. It knows them by the query's id and the number of the batch, so
it drops them when the query itself runs the batch again. A pipeline has other keys, and its sinks
would take the same rows once more.

Tests: ``tests/pipeline/test_adoption.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Final

from seamark.capture.batches import read_query_id
from seamark.checkpoint_dir.places.directory import Directory
from seamark.checkpoint_dir.places.local import LocalDirectory
from seamark.checkpoint_dir.working_copy import WorkingCopy
from seamark.errors import DamageError, RefusedError, StoreUnavailableError
from seamark.native.sink_tables import table_at, way_back
from seamark.native.table_log import TableAt
from seamark.pipeline.recovery.adoption import begun_batches, last_committed
from seamark.reports.places import local_path
from seamark.sinks.contract import Sink

_FINISH: Final = (
    "Start the query once with trigger(availableNow=True) on its own directory: it finishes the "
    "batch, and its sink drops what it has of it already. Then adopt it."
)
_BRING_BACK: Final = (
    "The directory is older than the table. Adopt the one that the query has gone on with. Or "
    "bring the table back and adopt a directory that 'seamark spark restore --query-id new' has "
    "made: Delta remembers these batches under the old id."
)
_OR_RUN: Final = (
    " If its sink has nothing of the batch, or the pipeline writes elsewhere, "
    "Pipeline(…, adopt_begun='run') runs it."
)


def require_answered(old: WorkingCopy, sinks: Iterable[Sink], answer: str | None) -> list[str]:
    """What to tell about a batch that was begun; :class:`RefusedError` when it may not run.

    No batch may run that a table of the pipeline has, whatever the answer. Without an answer one
    that was begun may when a table of the pipeline has earlier batches of the query, and not it.
    """
    last, begun = last_committed(old), begun_batches(old)
    tables = list(_tables_of(read_query_id(old), last, sinks))
    for table in tables:
        if table.is_ahead_of(last):
            raise RefusedError(
                f"the adopted query has finished batch {last} in its directory, and the table of "
                "a sink has later ones: their rows would be there twice",
                where=f"{old.root}: {way_back(table, last)}",
                hint=_FINISH if table.newest_batch in begun else _BRING_BACK,
            )
    if not begun:
        return []
    batches = f"batch {begun[0]}" if len(begun) == 1 else f"batches {begun[0]} to {begun[-1]}"
    if answer is None and not tables:
        raise RefusedError(
            f"the adopted query has begun {batches} and not finished: its sink may have the rows, "
            "and would get them again",
            where=old.root,
            hint=_FINISH + _OR_RUN,
        )
    return [f"{batches} of the adopted query was begun and not finished there: it runs here"]


def _tables_of(query_id: str, batch: int, sinks: Iterable[Sink]) -> Iterator[TableAt]:
    """Local Delta tables that have batches of the query, seen from one of its batches."""
    for sink in sinks:
        described = sink.describe()
        path = local_path(described.target) if described.kind == "delta" else None
        if path is None:
            continue
        try:
            found = table_at(_opened, path, query_id, batch)
        except (RefusedError, DamageError, StoreUnavailableError):
            continue  # it does not tell
        if found.newest_batch is not None:
            yield found


def _opened(path: str) -> closing[Directory]:
    return closing(LocalDirectory(path))
