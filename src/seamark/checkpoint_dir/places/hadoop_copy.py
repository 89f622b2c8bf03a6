"""A working copy on anything that Hadoop knows: HDFS, S3A, abfss and the like.

Spark's own file systems reach it, so whatever lets Spark write its checkpoint there lets us.

Tests: ``tests/checkpoint_dir/test_working_copies.py``.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeVar

from seamark._common.files import Buffer
from seamark._common.logs import logger_named
from seamark.checkpoint_dir.places.directory import local_path_of, refuse_secrets
from seamark.checkpoint_dir.places.hadoop import HadoopDirectory
from seamark.checkpoint_dir.places.hadoop_tasks import files_in, frames_of, write_frames
from seamark.checkpoint_dir.places.local import LocalCopy
from seamark.checkpoint_dir.working_copy import WorkingCopy
from seamark.spark.session import is_local

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import SparkSession

log = logger_named("seamark.pipeline")

T = TypeVar("T")

_THREADS: Final = 8
_SHARES: Final = 4
"""Tasks for each core, so that nobody waits long for the slowest."""


def open_working_copy(root: str, spark: SparkSession) -> WorkingCopy:
    """The folder at a path or at a URI that Spark knows. Creates nothing.

    :class:`InvalidInputError` for a URI with credentials: it would appear in messages.
    """
    local = local_path_of(root)
    if local is not None:
        return LocalCopy(local)
    refuse_secrets(root)
    return HadoopCopy(HadoopDirectory(root, spark))


class HadoopCopy(WorkingCopy):
    """Files below a folder of a directory that Hadoop reaches."""

    def __init__(self, directory: HadoopDirectory, folder: str = "") -> None:
        self._directory = directory
        self._folder = folder
        self.root = f"{directory.url}/{folder}" if folder else directory.url

    @property
    def uri(self) -> str:
        return self.root

    def below(self, name: str) -> HadoopCopy:
        return HadoopCopy(self._directory, self._full(name))

    def exists(self) -> bool:
        return self._directory.is_folder(self._folder)

    def make(self) -> None:
        self._directory.make_folder(self._folder)

    def destroy(self) -> None:
        self._directory.remove_folder(self._folder)

    def close(self) -> None:
        self._directory.close()

    # files

    def read(self, relative: str) -> bytes:
        return self._directory.read(self._full(relative))

    def stream(self, relative: str) -> Iterator[Buffer]:
        return self._directory.stream(self._full(relative))

    def size(self, relative: str) -> int | None:
        return self._directory.size(self._full(relative))

    def write(self, relative: str, data: bytes) -> None:
        self._directory.write(self._full(relative), data)

    def write_stream(self, relative: str, pieces: Iterable[Buffer]) -> None:
        self._directory.write_stream(self._full(relative), pieces)

    def remove(self, relative: str) -> None:
        self._directory.remove((self._full(relative),))

    def rename(self, old: str, new: str) -> None:
        self._directory.rename(self._full(old), self._full(new))

    def names(self, folder: str) -> Collection[str]:
        return self._directory.names(self._full(folder))

    def has_folder(self, relative: str) -> bool:
        return self._directory.is_folder(self._full(relative))

    def files_below(self, relative: str) -> Iterator[str]:
        for path in self._all_below(relative):
            if not path.rpartition("/")[2].startswith("."):
                yield path

    def digests(self, paths: Collection[str]) -> Iterator[tuple[str, bytes | None]]:
        """See :class:`WorkingCopy`.

        On a cluster the executors read the files, and the driver does when they cannot.
        """
        known = {} if is_local(self._directory.spark) else self._digests_by_executors(paths)
        yield from known.items()

        def digest(path: str) -> tuple[str, bytes | None]:
            return path, self._directory.sha256(self._full(path))

        with ThreadPoolExecutor(_THREADS, "seamark-compare") as pool:
            yield from pool.map(digest, [path for path in paths if path not in known])

    def _digests_by_executors(self, paths: Collection[str]) -> dict[str, bytes | None]:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        try:
            sizes = self._directory.sizes_below(self._folder)
        except FileNotFoundError:
            sizes = {}
        known: dict[str, bytes | None] = {path: None for path in paths if path not in sizes}
        there = [path for path in paths if path in sizes]
        try:
            there.sort(key=sizes.__getitem__, reverse=True)
            known |= self.frames(there).mapPartitions(_digests).collect() if there else []
        except (Py4JError, PySparkException) as error:
            log.warning("executors cannot hash %s, the driver does: %s", self.root, error)
        return known

    def frames(self, paths: Sequence[str], tasks: int | None = None) -> RDD[bytes]:
        """Files as executors read them, in so many tasks; see :func:`frames_of`. They must exist.

        With the largest first the tasks have about as much to do.
        """
        spark = self._directory.spark
        tasks = tasks or _SHARES * max(spark.sparkContext.defaultParallelism, 1)
        return frames_of(spark, self.root, paths, tasks)

    def write_frames(
        self, shares: RDD[T], frames: Callable[[Iterable[T]], Iterator[bytes]]
    ) -> None:
        """Have executors write files, each one whole and verified; see :func:`write_frames`."""
        drafts = f".restoring-{os.urandom(8).hex()}"
        try:
            write_frames(self._directory.spark, self.root, drafts, shares, frames)
        finally:
            self.below(drafts).destroy()

    def foreign(self) -> str | None:
        # HDFS and object stores have no such thing; on a local disk Hadoop follows links
        local = self._directory.local_path()
        return None if local is None else LocalCopy(local).below(self._folder).foreign()

    def remove_where(self, relative: str, is_meant: Callable[[str], bool]) -> None:
        for path in self._all_below(relative):
            if is_meant(path.rpartition("/")[2]):
                self.remove(path)

    def _all_below(self, relative: str) -> Iterator[str]:
        inside = f"{self._folder}/" if self._folder else ""
        for path in self._directory.files_below(self._full(relative)):
            yield path.removeprefix(inside)

    def _full(self, relative: str) -> str:
        if relative in ("", "."):
            return self._folder
        return f"{self._folder}/{relative}" if self._folder else relative


def _digests(frames: Iterable[bytes]) -> Iterator[tuple[str, bytes]]:
    for name, pieces in files_in(frames):
        hasher = hashlib.sha256()
        for piece in pieces:
            hasher.update(piece)
        yield name, hasher.digest()
