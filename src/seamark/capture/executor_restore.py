"""Restoring a working copy by the executors of a cluster, straight from the store.

Each task reads its share of the objects and writes the files that they hold, each one verified. The
driver sees names, sizes and hashes. Where the executors cannot, it writes the files itself.

Tests: ``tests/checkpoint_dir/test_working_copies.py``.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from seamark._common.logs import logger_named
from seamark.blobs.contract import Blobs
from seamark.capture.executors import TaskObjects, can_travel
from seamark.capture.restore import Advance, FetchAll, Holder, fetch_object, files_of
from seamark.checkpoint_dir.places.hadoop_copy import HadoopCopy
from seamark.checkpoint_dir.places.hadoop_tasks import dealt, head_of
from seamark.checkpoint_dir.places.local import LocalCopy
from seamark.checkpoint_dir.working_copy import WorkingCopy

if TYPE_CHECKING:
    from pyspark import RDD, Accumulator, SparkContext
    from pyspark.sql import SparkSession

log = logger_named("seamark.pipeline")

_SHARES: Final = 4
"""Tasks for each core, so that nobody waits long for the slowest."""
_GLANCE: Final = 0.5


def executor_fetch(spark: SparkSession, blobs: Blobs) -> FetchAll:
    """Has the executors restore a working copy that all of them reach."""

    def fetch_all(copy: WorkingCopy, holders: list[Holder], advance: Advance) -> bool:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        if not holders or not can_travel(blobs):
            return False
        context, store = spark.sparkContext, TaskObjects(blobs, 0)
        tasks = min(len(holders), _SHARES * max(context.defaultParallelism, 1))
        shares = context.parallelize(dealt(holders, tasks), tasks)
        copy.make()
        try:
            with _followed(context, advance) as done:
                if isinstance(copy, HadoopCopy):
                    _write_by_hadoop(copy, shares, store, done)
                else:
                    _write_to_folder(copy.root, shares, store, done)
        except (Py4JError, PySparkException) as error:
            log.warning("executors cannot restore %s, the driver does: %s", copy.root, error)
            return False
        return True

    return fetch_all


def _write_by_hadoop(
    copy: HadoopCopy, shares: RDD[Holder], store: TaskObjects, done: Accumulator[int]
) -> None:
    def frames(share: Iterable[Holder]) -> Iterator[bytes]:
        for holder in share:
            for path, known, pieces in files_of(holder, store):
                yield head_of(path, known.size, known.sha256)
                yield from (bytes(piece) for piece in pieces if len(piece))
                done.add(known.size)

    copy.write_frames(shares, frames)


def _write_to_folder(
    root: str, shares: RDD[Holder], store: TaskObjects, done: Accumulator[int]
) -> None:
    def fetch(share: Iterable[Holder]) -> None:
        for holder in share:
            fetch_object(LocalCopy(root), holder, store, done.add)

    shares.foreachPartition(fetch)


@contextmanager
def _followed(context: SparkContext, advance: Advance) -> Iterator[Accumulator[int]]:
    """What tasks count their bytes with; ``advance`` is called while they come in.

    What was counted is taken back when the job fails.
    """
    counted = context.accumulator(0)
    shown = 0
    over = threading.Event()

    def show() -> None:
        nonlocal shown
        now = counted.value
        advance(now - shown)
        shown = now

    def follow() -> None:
        while not over.wait(_GLANCE):
            show()

    follower = threading.Thread(target=follow, name="seamark-restore-bar", daemon=True)
    follower.start()
    failed = True
    try:
        yield counted
        failed = False
    finally:
        over.set()
        follower.join()
        if failed:
            advance(-shown)
        else:
            show()
