"""Reading the files of a folder of epochs only to see what their rows take.

Spark reads them for an audit, and gives up neither for time nor for memory. Here pyarrow reads
those of columns; of text only the bytes are unpacked.

Tests: ``tests/audit/test_limited_targets.py``.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from seamark import limits
from seamark.audit.expectations import SinkHistory
from seamark.audit.limited_targets import Reader, TriedTarget
from seamark.audit.tried_rows import TriedRows, left_to_the_audit
from seamark.sinks.epoch_ranges import all_epochs
from seamark.sinks.folders import is_hdfs, local_folder

_PIECE: Final = limits.MIB


def tried_target(history: SinkHistory) -> TriedTarget | None:
    """What is tried of the folder of a sink; None for one on HDFS, which is the user's own."""
    if not history.epochs or is_hdfs(history.target):
        return None
    return TriedTarget("files", local_folder(history.target), {})


def trier() -> Reader:
    """What reads all files of epochs in a folder."""
    import bz2  # noqa: F401 - only what follows the imports is limited
    import gzip  # noqa: F401
    import zlib  # noqa: F401

    import pyarrow.dataset
    import pyarrow.orc  # noqa: F401

    def read_all(target: TriedTarget, rows: TriedRows) -> None:
        for folder in all_epochs(target.place).values():
            for path in _files(folder):
                if (pieces := _pieces_of(path)) is not None:
                    with left_to_the_audit():  # epochs may be merged meanwhile
                        rows.read(path, os.lstat(path).st_size, pieces)

    return read_all


def _files(folder: str) -> Iterator[str]:
    """The files that Spark reads, below folders for the values of columns as well.

    Neither links nor pipes are opened: the audit names them.
    """
    for root, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(("_", "."))]
        for name in names:
            path = f"{root}/{name}"
            if not name.startswith(("_", ".")) and _is_file(path):
                yield path


def _is_file(path: str) -> bool:
    """Whether it is one; not when it is gone, because epochs may be merged or taken back."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except FileNotFoundError:
        return False


def _pieces_of(path: str) -> Callable[[], Iterator[int]] | None:
    """What gives the sizes that a file unpacks to; None for one that does so only a little."""
    readers = {".parquet": _parquet, ".orc": _orc, ".gz": _gzip, ".bz2": _bzip2, ".deflate": _zlib}
    reader = readers.get(os.path.splitext(path)[1])
    return partial(reader, path) if reader is not None else None


def _parquet(path: str) -> Iterator[int]:
    from pyarrow.dataset import ParquetFileFormat
    from pyarrow.fs import LocalFileSystem

    fragment = ParquetFileFormat().make_fragment(path, LocalFileSystem())
    for batch in fragment.to_batches(batch_readahead=1):
        yield batch.nbytes


def _orc(path: str) -> Iterator[int]:
    from pyarrow.orc import ORCFile

    file = ORCFile(path)
    for number in range(file.nstripes):
        yield file.read_stripe(number).nbytes


def _gzip(path: str) -> Iterator[int]:
    import gzip

    with gzip.open(path) as file:
        while piece := file.read(_PIECE):
            yield len(piece)


def _bzip2(path: str) -> Iterator[int]:
    import bz2

    with bz2.open(path) as file:
        while piece := file.read(_PIECE):
            yield len(piece)


def _zlib(path: str) -> Iterator[int]:
    import zlib

    unpacker = zlib.decompressobj()
    with open(path, "rb") as file:
        while not unpacker.eof and (packed := unpacker.unconsumed_tail or file.read(_PIECE)):
            yield len(unpacker.decompress(packed, _PIECE))
