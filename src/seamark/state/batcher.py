"""Many small blobs of one epoch, flushed as one LZ4 object."""

from __future__ import annotations

import os
import re
import threading
from typing import TYPE_CHECKING, Final

import msgspec

from seamark._common.checks import U64_MAX, check_number, check_prefix
from seamark.blobs.addresses import open_blobs
from seamark.blobs.conditional_writes import Taken, create_once, ensure_conditional_writes
from seamark.blobs.contract import Blobs
from seamark.errors import DamageError, InvalidInputError
from seamark.state.lcb1 import BATCH_LIMIT, decode_batch, encode_batch, encoded_key

if TYPE_CHECKING:
    from obstore.store import ObjectStore

FLUSH_THRESHOLD: Final = 8 << 20
_OVERHEAD: Final = 8  # the two lengths of an entry
_OBJECT_LIMIT: Final = BATCH_LIMIT + (BATCH_LIMIT >> 4)


class BatchMetrics(msgspec.Struct, frozen=True):
    """What a batcher has written so far."""

    batches_flushed: int = 0
    entries_flushed: int = 0
    bytes_before_compression: int = 0
    bytes_after_compression: int = 0
    put_count: int = 0


class CheckpointBatcher:
    """Buffers blobs and writes them by :meth:`flush` to ``{prefix}checkpoints/batch-{epoch}.lz4``.

    A second flush of one epoch writes a second part next to the first. When a write fails, the
    buffer stays as it was and the flush can be repeated. Safe from several threads.

    >>> from obstore.store import MemoryStore
    >>> batcher = CheckpointBatcher(MemoryStore())
    >>> batcher.add("partition-0/agg", b"state")
    >>> batcher.flush(7)
    >>> batcher.load(7)
    [('partition-0/agg', b'state')]
    """

    def __init__(
        self,
        store: ObjectStore | Blobs | str | os.PathLike[str],
        prefix: str = "",
        flush_threshold: int = FLUSH_THRESHOLD,
        *,
        version: int = 2,
    ) -> None:
        check_number("flush_threshold", flush_threshold, 1, BATCH_LIMIT)
        if version not in (2, 3):
            raise InvalidInputError(f"batches are written in version 2 or 3, not {version}")
        self._blobs = open_blobs(store)
        self._folder = f"{check_prefix(prefix)}checkpoints/"
        self._threshold = flush_threshold
        self._version = version
        self._entries: dict[str, bytes] = {}
        self._size = 0
        self._metrics = BatchMetrics()
        self._parts: dict[int, int] = {}
        self._lock = threading.RLock()

    def add(self, key: str, data: bytes) -> None:
        """Buffer a blob. It is written by the next flush, never before."""
        name = encoded_key(key)
        if not isinstance(data, bytes | bytearray | memoryview):
            raise InvalidInputError(f"a blob must be bytes, not {type(data).__name__}")
        blob = bytes(data)
        size = len(name) + len(blob) + _OVERHEAD
        with self._lock:
            if key in self._entries:
                raise InvalidInputError(
                    f"the key {key!r} is in the batch already",
                    hint="Flush before adding it again.",
                )
            if self._size + size > BATCH_LIMIT:
                raise InvalidInputError(
                    f"a batch holds at most {BATCH_LIMIT} bytes", hint="Flush before adding more."
                )
            self._entries[key] = blob
            self._size += size

    def should_flush(self) -> bool:
        """Whether the buffer has reached the threshold."""
        return self._size >= self._threshold

    def buffer_size(self) -> int:
        """Bytes in the buffer, before compression."""
        return self._size

    def __len__(self) -> int:
        return len(self._entries)

    def is_empty(self) -> bool:
        """Whether there is nothing to flush."""
        return not self._entries

    def metrics(self) -> BatchMetrics:
        """A copy of the counters. Only what was written counts."""
        return self._metrics

    def flush(self, epoch: int) -> None:
        """Write the buffer as one object and empty it; nothing happens when it is empty."""
        check_number("epoch", epoch, 0, U64_MAX)
        with self._lock:
            if not self._entries:
                return
            ensure_conditional_writes(self._blobs)
            data = encode_batch(self._entries.items(), self._version)
            part = self._write(epoch, data)
            self._parts = {epoch: part}  # a new epoch starts at part 1 again
            m = self._metrics
            self._metrics = BatchMetrics(
                m.batches_flushed + 1,
                m.entries_flushed + len(self._entries),
                m.bytes_before_compression + self._size,
                m.bytes_after_compression + len(data),
                m.put_count + 1,
            )
            self._entries, self._size = {}, 0

    def _write(self, epoch: int, data: bytes) -> int:
        part = self._parts.get(epoch, 0)
        while True:
            part += 1
            try:
                create_once(self._blobs, self._key(epoch, part), data, _OBJECT_LIMIT)
                return part
            except Taken:
                continue  # an earlier flush's, maybe of another process: leave it alone

    def load(self, epoch: int) -> list[tuple[str, bytes]]:
        """All entries of an epoch, part by part; empty when nothing was flushed."""
        check_number("epoch", epoch, 0, U64_MAX)
        entries: list[tuple[str, bytes]] = []
        for part in self._parts_of(epoch):
            key = self._key(epoch, part)
            blob = self._blobs.read(key, _OBJECT_LIMIT)
            if blob is None:
                raise DamageError(f"{key} is missing", where=self._blobs.url)
            try:
                entries += decode_batch(blob.data)
            except DamageError as error:
                raise DamageError(f"{key}: {error.what}", where=self._blobs.url) from None
        return entries

    def _parts_of(self, epoch: int) -> range:
        pattern = re.compile(rf"batch-{epoch:06}(?:-part-([0-9]+))?\.lz4")
        names = (
            entry.key.removeprefix(self._folder) for entry in self._blobs.entries(self._folder)
        )
        numbers = [int(match[1] or 1) for name in names if (match := pattern.fullmatch(name))]
        # parts are written in order, so one that is missing below the last one was lost
        return range(1, max(numbers, default=0) + 1)

    def _key(self, epoch: int, part: int) -> str:
        suffix = f"-part-{part}" if part > 1 else ""
        return f"{self._folder}batch-{epoch:06}{suffix}.lz4"
