"""A working copy on anything that Hadoop knows: HDFS, S3A, abfss and the like.

Spark's own file systems reach it, so whatever lets Spark write its checkpoint there lets us.

Tests: ``tests/checkpoint_dir/test_working_copies.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from seamark._common.files import Buffer
from seamark._common.logs import logger_named
from seamark.checkpoint_dir.places.directory import local_path_of, refuse_secrets
from seamark.checkpoint_dir.places.hadoop import HadoopDirectory
from seamark.checkpoint_dir.places.local import LocalCopy
from seamark.checkpoint_dir.working_copy import WorkingCopy
from seamark.spark.session import is_local

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logger_named("seamark.pipeline")

MOST_IN_A_ROW: Final = 128 << 20
"""Bytes of the largest file that is read as a row: Spark and Python each hold all of it."""

_THREADS: Final = 8


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

        On a cluster the executors read the files. The driver reads those that are too large for a
        row, a piece at a time, and all of them when the executors cannot.
        """
        known = {} if is_local(self._directory.spark) else self._digests_by_executors(paths)
        yield from known.items()

        def digest(path: str) -> tuple[str, bytes | None]:
            return path, self._directory.sha256(self._full(path))

        with ThreadPoolExecutor(_THREADS, "seamark-compare") as pool:
            yield from pool.map(digest, [path for path in paths if path not in known])

    def _digests_by_executors(self, paths: Collection[str]) -> dict[str, bytes | None]:
        """The digests of what fits into rows, and of what is not there."""
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException
        from pyspark.sql.functions import sha2

        try:
            sizes = self._directory.sizes_below(self._folder)
        except FileNotFoundError:
            sizes = {}
        known: dict[str, bytes | None] = {path: None for path in paths if path not in sizes}
        small = [path for path in paths if path in sizes and sizes[path] <= MOST_IN_A_ROW]
        try:
            rows = self.as_rows(small).select("path", sha2("content", 256)).collect()
        except (Py4JError, PySparkException) as error:
            log.warning("executors cannot hash %s, the driver does: %s", self.root, error)
            return known
        relative = self.relative_name()
        return known | {relative(path): bytes.fromhex(digest) for path, digest in rows}

    def as_rows(self, paths: Collection[str]) -> DataFrame:
        """Files as rows of ``path`` and ``content``, read by the executors. They must exist.

        None may be larger than :data:`MOST_IN_A_ROW`.
        """
        spark = self._directory.spark
        if not paths:
            return spark.createDataFrame([], "path string, content binary")
        files = spark.read.format("binaryFile").load([_unglobbed(self.path(p)) for p in paths])
        return files.select("path", "content")

    def relative_name(self) -> Callable[[str], str]:
        """Gives the relative path of a file that ``as_rows`` has read; for a task of Spark too."""
        base = f"{self._directory.base}/{self._folder}".rstrip("/")
        return lambda uri: uri.removeprefix(f"{base}/")

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


def _unglobbed(path: str) -> str:
    """A path for a reader of Spark, which takes patterns."""
    return re.sub(r"([\\*?\[\]{}])", r"\\\1", path)
