"""Reading the files of a folder of epochs only to see what their rows take.

Spark reads them for an audit, and gives up neither for time nor for memory. Here pyarrow reads
those of columns; of text only the bytes are unpacked. What Spark reads is tried, whatever it is
called: it goes by the format for columns, and by the end of the name for text.

Tests: ``tests/audit/test_limited_targets.py``.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from seamark import limits
from seamark._common.holes import is_hollow
from seamark.audit.expectations import SinkHistory
from seamark.audit.limited_targets import Reader, TriedTarget
from seamark.audit.tried_rows import TriedRows, left_to_the_audit
from seamark.checkpoint_dir.formats.snappy_chunks import LARGEST_RATIO, plain_size
from seamark.sinks.epoch_ranges import all_epochs
from seamark.sinks.folders import is_hdfs, local_folder

if TYPE_CHECKING:
    import pyarrow as pa

_PIECE: Final = limits.MIB
_PACKED: Final = 4 << 10
"""What follows the end of a stream is copied for each, so little of a file is taken at a time."""


Sizes = Callable[[str], Iterator[int]]
"""What the parts of a file unpack to."""


def tried_target(history: SinkHistory) -> TriedTarget | None:
    """What is tried of the folder of a sink; None for one on HDFS, which is the user's own."""
    if not history.epochs or is_hdfs(history.target):
        return None
    options = {"format": history.file_format}
    return TriedTarget("files", local_folder(history.target), options)


def trier() -> Reader:
    """What reads all files of epochs in a folder."""
    import bz2  # noqa: F401 - only what follows the imports is limited
    import gzip  # noqa: F401
    import zlib  # noqa: F401

    import lz4.block  # noqa: F401
    import pyarrow.dataset
    import pyarrow.orc  # noqa: F401

    def read_all(target: TriedTarget, rows: TriedRows) -> None:
        for folder in all_epochs(target.place).values():
            for path in _files(folder):
                if (pieces := _pieces_of(path, target.options["format"])) is not None:
                    with left_to_the_audit():  # epochs may be merged meanwhile
                        rows.read(path, os.lstat(path).st_size, pieces)

    return read_all


def _files(folder: str) -> Iterator[str]:
    """The files that Spark reads, below folders for the values of columns as well.

    Neither links nor pipes nor files that are mostly holes are opened: the audit names them.
    """
    for root, folders, names in os.walk(folder):
        folders[:] = filter(_is_read, folders)
        for name in filter(_is_read, names):
            if _is_file(path := f"{root}/{name}"):
                yield path


def _is_read(name: str) -> bool:
    """Whether Spark takes a file or folder of this name for one with rows."""
    return not name.startswith(".") and not (name.startswith("_") and "=" not in name)


def _is_file(path: str) -> bool:
    """Whether it is one; not when it is gone, because epochs may be merged or taken back."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode) and not is_hollow(path)
    except FileNotFoundError:
        return False


def _pieces_of(path: str, file_format: str) -> Callable[[], Iterator[int]] | None:
    """What gives the sizes that a file unpacks to; None for one that is not packed."""
    of_columns: dict[str, Sizes] = {"parquet": _parquet, "orc": _orc}
    of_text: dict[str, Sizes] = {
        ".gz": _gzip,
        ".bz2": _bzip2,
        ".deflate": _zlib,
        ".zst": _zstd,
        ".lz4": partial(_blocks, _lz4_size),
        ".snappy": partial(_blocks, _snappy_size),
    }
    reader = of_columns.get(file_format) or of_text.get(os.path.splitext(path)[1])
    return partial(reader, path) if reader is not None else None


def _parquet(path: str) -> Iterator[int]:
    from pyarrow.dataset import ParquetFileFormat
    from pyarrow.fs import LocalFileSystem

    fragment = ParquetFileFormat().make_fragment(path, LocalFileSystem())
    yield from (group.num_rows * limits.TRIED_ROW for group in fragment.row_groups)
    yield from _by_columns(
        fragment.physical_schema.names,
        lambda columns: fragment.to_batches(columns=columns, batch_readahead=1),
    )


def _orc(path: str) -> Iterator[int]:
    from pyarrow.orc import ORCFile

    file = ORCFile(path)
    known: set[int] = set()
    rows = 0

    def stripes(columns: list[str]) -> Iterator[pa.RecordBatch]:
        nonlocal rows
        for number in range(file.nstripes):
            stripe = file.read_stripe(number, columns)
            if number not in known:
                known.add(number)
                rows += stripe.num_rows
            yield stripe

    for size in _by_columns(file.schema.names, stripes):
        # those of the stripes: what the file says of all its rows, no reader goes by
        yield size + rows * limits.TRIED_ROW
        rows = 0


def _by_columns(
    names: list[str], read: Callable[[list[str]], Iterator[pa.RecordBatch]]
) -> Iterator[int]:
    """Sizes of rows, of one column after the other; at the end the error that one of them has met.

    Spark reads only those that were declared, and no damage of another one ends that.
    """
    failed: Exception | None = None
    for name in dict.fromkeys(names):
        with left_to_the_audit():
            try:
                for batch in read([name]):
                    yield batch.nbytes
            except Exception as error:
                failed = error
                raise
    if failed is not None:
        raise failed


def _gzip(path: str) -> Iterator[int]:
    import gzip

    with gzip.open(path) as file:
        while piece := file.read(_PIECE):
            yield len(piece)


def _bzip2(path: str) -> Iterator[int]:
    import bz2

    unpacker = bz2.BZ2Decompressor()
    with open(path, "rb") as file:
        while True:
            packed = b""
            if unpacker.eof:
                packed, unpacker = unpacker.unused_data, bz2.BZ2Decompressor()
            if unpacker.needs_input and not (packed := packed or file.read(_PACKED)):
                return
            try:
                yield len(unpacker.decompress(packed, _PIECE))
            except OSError as error:
                # Spark looks for the next block, and does not mind a wrong checksum
                raise MemoryError(f"what follows is not known: {error}") from None


def _zlib(path: str) -> Iterator[int]:
    import zlib

    unpacker = zlib.decompressobj()
    with open(path, "rb") as file:
        while packed := unpacker.unconsumed_tail or unpacker.unused_data or file.read(_PACKED):
            if unpacker.eof:
                unpacker = zlib.decompressobj()
            yield len(unpacker.decompress(packed, _PIECE))


def _zstd(path: str) -> Iterator[int]:
    import pyarrow as pa

    with pa.CompressedInputStream(pa.OSFile(path), "zstd") as file:
        while piece := file.read(_PIECE):
            yield len(piece)


def _blocks(plain_size: Callable[[bytes, int], int], path: str) -> Iterator[int]:
    """Blocks as Hadoop writes them: what one unpacks to, then its parts, each after its length.

    Spark takes memory for the length that stands there, whatever the file has.
    """
    left = os.lstat(path).st_size
    with open(path, "rb") as file:
        while size := _number(file.read(4)):
            left -= 4
            while size > 0:
                length, left = _number(file.read(4)), left - 4
                if length > left:
                    raise MemoryError(f"a block of {left} bytes claims to have {length}")
                part, left = file.read(length), left - length
                plain = plain_size(part, size)
                if not 0 < plain <= size:
                    raise MemoryError(f"a block of {size} bytes has a part of {plain}")
                yield plain
                size -= plain


def _number(data: bytes) -> int:
    """What four bytes stand for; nothing at the end of a file."""
    return int.from_bytes(data) if len(data) == 4 else 0


def _lz4_size(part: bytes, most: int) -> int:
    import lz4.block

    return len(lz4.block.decompress(part, uncompressed_size=min(most, 255 * len(part))))


def _snappy_size(part: bytes, _: int) -> int:
    size = plain_size(part)
    return size if size <= LARGEST_RATIO * len(part) else -1
