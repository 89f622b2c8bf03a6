"""Taking state files by the executors of a cluster, straight into the store.

Each task reads its share of the files, stores large ones by themselves and small ones as one pack,
and returns where they are. A task that is lost, retried or run twice leaves objects that no
checkpoint names. The driver sees names, sizes and hashes, and the bytes of what is so small that it
belongs into the manifest.

Executors open the store by its URL and options; credentials of the environment are those of the
executor. They need this package. Where they cannot reach the store or the working copy, the driver
takes the files itself, and lets them try again after a while.

Tests: ``tests/checkpoint_dir/test_working_copies.py``.
"""

from __future__ import annotations

import os
import pickle
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from seamark._common.logs import logger_named
from seamark._common.parallel import map_in_threads
from seamark.blobs.contract import Blobs, Buffer
from seamark.capture.file_index import objects_of
from seamark.capture.movers import DriverMover, Mover, TakenFile, pack_held, take_streams
from seamark.capture.uploads import Uploads
from seamark.checkpoint_dir.places.hadoop_copy import HadoopCopy
from seamark.checkpoint_dir.places.hadoop_tasks import files_in
from seamark.checkpoint_dir.places.local import LocalCopy
from seamark.checkpoint_dir.state_files import MissingVersion
from seamark.checkpoint_dir.working_copy import WorkingCopy
from seamark.manifest.facts import SharedObject
from seamark.store.shared_objects import (
    SharedObjects,
    read_object,
    refuse_large_pack,
    write_object,
)

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import SparkSession

log = logger_named("seamark.pipeline")

_SENT_BACK: Final = 32 << 10
"""Bytes of small files that one task sends to the driver instead of storing them."""

_REST: Final = 60.0
"""Seconds for which the driver takes the files after executors have failed; doubles each time."""
_LONGEST_REST: Final = 3600.0

_THREADS: Final = 8

Reader = tuple[str, int]
"""Host and process of a task."""

Result = tuple[Reader, list[TakenFile]]


def executor_mover(
    spark: SparkSession,
    copy: WorkingCopy,
    shared: SharedObjects | Uploads,
    tasks: int | None = None,
) -> ExecutorMover:
    """What takes files of a working copy by executors, in so many tasks or as many as there are."""
    if isinstance(copy, HadoopCopy):
        return _HadoopMover(spark, copy, shared, tasks)
    return _SharedFolderMover(spark, copy, shared, tasks)


class ExecutorMover(Mover, ABC):
    """Takes files in Spark jobs."""

    def __init__(
        self,
        spark: SparkSession,
        copy: WorkingCopy,
        shared: SharedObjects | Uploads,
        tasks: int | None,
    ) -> None:
        self._spark = spark
        self._copy = copy
        self._shared = shared
        self._tasks = tasks or max(spark.sparkContext.defaultParallelism, 1)
        self._driver = DriverMover(copy, shared)
        self._is_possible = can_travel(shared.blobs)
        self._rest = _REST
        self._rests_until = 0.0
        self.read_by: set[Reader] = set()
        """Host and process of every task that has read."""

    def take(self, candidates: Sequence[Sequence[str]]) -> list[TakenFile]:
        """See :class:`Mover`."""
        rests = time.monotonic() < self._rests_until
        if not self._is_possible or rests or not candidates:
            return self._driver.take(candidates)
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        try:
            results = self._run(candidates)
        except (Py4JError, PySparkException) as error:
            if not all(any(self._copy.size(name) is not None for name in g) for g in candidates):
                return self._driver.take(candidates)  # Spark has removed one meanwhile
            log.warning(
                "executors cannot take state from %s to %s, the driver does for %.0f s: %s",
                self._copy.root,
                self._shared.blobs.url,
                self._rest,
                error,
            )
            self._rests_until = time.monotonic() + self._rest
            self._rest = min(self._rest * 2, _LONGEST_REST)
            return self._driver.take(candidates)
        self._rest = _REST
        self.read_by |= {reader for reader, _ in results}
        taken = [TakenFile(*file) for _, files in results for file in files]
        self._shared.expect(objects_of(file.stored for file in taken if file.stored is not None))
        return taken

    @abstractmethod
    def _run(self, candidates: Sequence[Sequence[str]]) -> list[Result]:
        """Take them in a job."""


class _SharedFolderMover(ExecutorMover):
    """The executors see the working copy as a folder of their own machine."""

    def _run(self, candidates: Sequence[Sequence[str]]) -> list[Result]:
        slices = min(len(candidates), self._tasks)
        groups: RDD[Any] = self._spark.sparkContext.parallelize(
            [list(group) for group in candidates], slices
        )
        root, store = self._copy.root, TaskObjects(self._shared.blobs, self._shared.generation)

        def take(groups: Iterable[list[str]]) -> Iterator[Result]:
            yield _received(DriverMover(LocalCopy(root), store).take(list(groups)), store)

        return groups.mapPartitions(take).collect()


class _HadoopMover(ExecutorMover):
    """The JVM of an executor reads the files for Python, which knows no Hadoop."""

    _copy: HadoopCopy

    def _run(self, candidates: Sequence[Sequence[str]]) -> list[Result]:
        found = map_in_threads(self._first, candidates, _THREADS, "seamark-capture")
        sizes = dict(file for file in found if file is not None)
        if not sizes:
            return []
        store = TaskObjects(self._shared.blobs, self._shared.generation)

        def take(frames: Iterable[bytes]) -> Iterator[Result]:
            yield _received(take_streams(files_in(frames), store), store)

        paths = sorted(sizes, key=sizes.__getitem__, reverse=True)
        results = self._copy.frames(paths, self._tasks).mapPartitions(take).collect()
        for file in (TakenFile(*each) for _, files in results for each in files):
            if sizes[file.path] != (len(file.data) if file.stored is None else file.stored.size):
                raise MissingVersion(f"{file.path} changed while it was read", where=self._copy.uri)
        return results

    def _first(self, names: Sequence[str]) -> tuple[str, int] | None:
        sizes = ((name, self._copy.size(name)) for name in names)
        return next(((name, size) for name, size in sizes if size is not None), None)


def _received(taken: list[TakenFile], store: TaskObjects) -> Result:
    """What a task sends to the driver: small bytes, or where they are."""
    if sum(len(file.data) for file in taken) > _SENT_BACK:
        taken = pack_held(taken, store)
    return (socket.gethostname(), os.getpid()), taken


def can_travel(blobs: Blobs) -> bool:
    """Whether another process can open the same store."""
    try:
        pickle.dumps(blobs)
    except (TypeError, AttributeError, pickle.PicklingError):
        log.warning("executors cannot open %s: the driver takes state files", blobs.url)
        return False
    return True


class TaskObjects:
    """The shared objects of a store, as a task writes and reads them."""

    def __init__(self, blobs: Blobs, generation: int) -> None:
        self._blobs = blobs
        self._generation = generation

    def write(self, pieces: Iterable[Buffer]) -> SharedObject:
        return write_object(self._blobs, self._generation, pieces)

    def read(self, shared: SharedObject) -> Iterator[Buffer]:
        return read_object(self._blobs, shared)

    def read_pack(self, shared: SharedObject) -> bytes:
        refuse_large_pack(shared, self._blobs.url)
        return b"".join(map(bytes, self.read(shared)))
