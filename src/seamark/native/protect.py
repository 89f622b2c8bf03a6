"""Checkpoints of a query that has never heard of Seamark, taken while it runs."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Self

from seamark._common.logs import logger_named
from seamark.checkpoint_dir.places.directory import open_directory
from seamark.errors import InvalidInputError
from seamark.native.watch_status import WatchStatus
from seamark.native.watcher import KEEP, STOP_SECONDS, Watcher, WatchHooks, WatchPace

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

log = logger_named("seamark.spark")

_LOCAL: Final = re.compile(r"file:|(?![A-Za-z][A-Za-z0-9+.-]*:/)")
_TEMPORARY: Final = re.compile(r"/temporary-[0-9a-f-]{36}/?")
"""How Spark names the directory of a query that was given no checkpointLocation."""


def protect(
    query: StreamingQuery | str | os.PathLike[str],
    store: str | os.PathLike[str],
    every: float | timedelta = 1,
    *,
    keep: int | None = KEEP,
    storage_options: Mapping[str, Any] | None = None,
) -> Protection:
    """Take checkpoints of a running query, or of a ``checkpointLocation``, in the background.

    ``every`` is a number of batches as an int, or a time in seconds as a float or timedelta. The
    newest ``keep`` checkpoints stay in the store (all with None). Nothing that goes wrong from here
    on reaches the query or the caller: ask :meth:`Protection.status`. The protection of a query
    ends with it, after a checkpoint of its last batch; that of a location is ended by
    :meth:`Protection.stop`.

    :class:`InvalidInputError` for arguments that can never work::

        query = counts.writeStream.option("checkpointLocation", "/data/ck").start()
        with seamark.protect(query, "s3://bucket/counts", every=5) as protection:
            query.awaitTermination()
        print(protection.status())
    """
    pace = WatchPace(every=every, keep=keep)
    if isinstance(query, str | os.PathLike):
        location = os.fspath(query)
        watcher = Watcher(location, store, pace, storage_options=storage_options)
    else:
        location = str(_java_query(query).streamingQuery().resolvedCheckpointRoot())
        watcher = _watcher_of(query, location, store, pace, storage_options)
    watcher.start()
    return Protection(watcher, location)


class Protection:
    """Checkpoints that are taken in the background, until ``stop()`` or the end of the query.

    A context manager that stops at its end. Safe from several threads.
    """

    def __init__(self, watcher: Watcher, location: str) -> None:
        self._watcher = watcher
        self.checkpoint_location = location

    def status(self) -> WatchStatus:
        """The newest batch, the last checkpoint, how far it is behind, and what went wrong.

        Answers at once, also when all has ended.
        """
        return self._watcher.status()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it has ended by itself, after the last batch of its query; whether it has."""
        return self._watcher.join(timeout)

    def stop(self, timeout: float | None = STOP_SECONDS, *, last: bool = True) -> WatchStatus:
        """End it, after a checkpoint of the newest batch unless ``last`` is False.

        What takes longer than ``timeout`` is given up. Stopping twice is fine.
        """
        return self._watcher.stop(timeout, last=last)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<Protection of {self.checkpoint_location}: {self.status()}>"


def _watcher_of(
    query: StreamingQuery,
    location: str,
    store: str | os.PathLike[str],
    pace: WatchPace,
    storage_options: Mapping[str, Any] | None,
) -> Watcher:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if _TEMPORARY.search(location):
        log.warning(
            "the query has no checkpointLocation; Spark removes %s when it ends well", location
        )
    options = None if _LOCAL.match(location) else storage_options
    session = SparkSession(SparkContext.getOrCreate(), _java_query(query).sparkSession())
    directory = open_directory(location, options, spark=session)

    def end() -> None:
        try:
            directory.close()
        except Exception as error:  # noqa: BLE001 - the session may be gone; nothing is lost
            log.debug("ending the protection of %s: %s", location, error)

    hooks = WatchHooks(
        is_alive=lambda: _is_active(query), glance=lambda: _progress(query), on_end=end
    )
    try:
        return Watcher(directory, store, pace, hooks, storage_options=storage_options)
    except BaseException:
        directory.close()
        raise


def _java_query(query: object) -> Any:
    wrapper = getattr(query, "_jsq", None)
    if wrapper is not None:
        return wrapper
    if hasattr(query, "runId"):
        raise InvalidInputError(
            "a query of Spark Connect does not tell where its checkpoint is",
            hint="Give protect() the query's checkpointLocation instead.",
        )
    raise InvalidInputError(
        f"a {type(query).__name__} cannot be protected",
        hint="Give a running StreamingQuery, or the checkpointLocation of one.",
    )


def _is_active(query: StreamingQuery) -> bool:
    """Whether the query runs; a JVM that does not answer, or whose Spark is stopped, runs none."""
    from py4j.protocol import Py4JError

    try:
        # a query that waits for its next batch does not notice that its Spark is gone
        stopped = _java_query(query).sparkSession().sparkContext().isStopped()
        return bool(query.isActive) and not stopped
    except (Py4JError, OSError):
        return False


def _progress(query: StreamingQuery) -> tuple[int | None, bool]:
    """The batch that a query has last reported, and whether it runs.

    Polled from here instead of reported by a listener: Spark calls a Python listener at any moment,
    even while the program ends, and then logs a stack trace.
    """
    wrapper = _java_query(query)
    progress = wrapper.lastProgress()
    return None if progress is None else int(progress.batchId()), bool(wrapper.isActive())
