"""Reading many files of a working copy: by threads of the driver, or by the executors.

The driver is faster whenever it sees the files: a Spark job costs more than reading them.

Tests: ``tests/capture/test_capture_and_restore.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, Protocol

from seamark._common.logs import logger_named
from seamark.checkpoint_dir.places.local import WorkingCopy
from seamark.errors import DamageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logger_named("seamark.pipeline")

Contents = dict[str, bytes]
"""Path relative to the working copy → bytes."""

_WORTH_A_POOL: Final = 64
_THREADS: Final = 4


class Reader(Protocol):
    """Reads files of a working copy."""

    def read_first(self, candidates: Sequence[Sequence[str]]) -> Contents:
        """Of each group of names the first that is there; nothing for a group without any."""


class DriverReader:
    """Reads in this process."""

    def __init__(self, copy: WorkingCopy) -> None:
        self._copy = copy

    def read_first(self, candidates: Sequence[Sequence[str]]) -> Contents:
        # what a batch has changed is small: threads would only get in each other's way
        if len(candidates) < _WORTH_A_POOL or any(len(group) > 1 for group in candidates):
            files = [self._first(names) for names in candidates]
        else:
            with ThreadPoolExecutor(_THREADS, "seamark-capture") as pool:
                files = list(pool.map(self._first, candidates, chunksize=16))
        return dict(pair for pair in files if pair is not None)

    def _first(self, names: Sequence[str]) -> tuple[str, bytes] | None:
        for name in names:
            try:
                return name, self._copy.read(name)
            except (FileNotFoundError, NotADirectoryError):
                continue
        return None


class ExecutorReader:
    """Reads in a Spark job, where the working copy is shared; else falls back to the driver."""

    def __init__(self, spark: SparkSession, copy: WorkingCopy) -> None:
        self._spark = spark
        self._copy = copy
        self._fallback: DriverReader | None = None
        self.read_by: set[tuple[str, int]] = set()
        """Host and process of every task that has read."""

    def read_first(self, candidates: Sequence[Sequence[str]]) -> Contents:
        if self._fallback is not None or not candidates:
            return (self._fallback or DriverReader(self._copy)).read_first(candidates)
        from py4j.protocol import Py4JError

        context = self._spark.sparkContext
        slices = min(len(candidates), max(context.defaultParallelism, 1))
        try:
            tasks = context.parallelize([list(group) for group in candidates], slices)
            rows = tasks.mapPartitions(_reading_below(self._copy.root)).collect()
        except Py4JError as error:
            log.warning("executors cannot read %s, the driver does: %s", self._copy.root, error)
            self._fallback = DriverReader(self._copy)
            return self._fallback.read_first(candidates)
        self.read_by |= {(host, pid) for _, _, host, pid in rows}
        return {name: bytes(data) for name, data, _, _ in rows}


def _reading_below(root: str) -> Any:
    """What a task runs. Made here so that it travels by value: executors may lack this package."""

    def read(groups: Any) -> Any:
        import os
        import socket
        import stat

        host, pid = socket.gethostname(), os.getpid()
        for names in groups:
            for name in names:
                try:
                    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
                    with open(os.open(f"{root}/{name}", flags), "rb") as file:
                        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                            raise OSError(f"{root}/{name} is not a regular file")
                        data = file.read()
                except (FileNotFoundError, NotADirectoryError):
                    continue
                yield name, data, host, pid
                break

    return read


def read_all(reader: Reader, paths: Sequence[str]) -> Contents:
    """Read files that must all be there; :class:`DamageError` when one is not."""
    contents = reader.read_first([(path,) for path in paths])
    if missing := [path for path in paths if path not in contents]:
        raise DamageError(
            "a state file vanished from the working copy while it was read", where=missing[0]
        )
    return contents
