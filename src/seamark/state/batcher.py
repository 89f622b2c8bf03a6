"""Many small blobs of one epoch, flushed as one LZ4 object."""

from __future__ import annotations

import os
import re
import threading
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from seamark import limits_by_size
from seamark._common.checks import U64_MAX, check_number, check_prefix
from seamark.blobs.addresses import open_blobs
from seamark.blobs.conditional_writes import Taken, create_once, ensure_conditional_writes
from seamark.blobs.contract import Blobs
from seamark.errors import DamageError, InvalidInputError
from seamark.state.lcb1 import BATCH_LIMIT, claims_of, decode_batch, encode_batch, encoded_key

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


class _Parts(NamedTuple):
    """The first parts of an epoch, and what they hold together."""

    number: int = 0
    plain: int = 0
    stored: int = 0
    repeated: int = 0
    """Entries whose key comes again in the same part."""

    def and_one(self, data: bytes) -> _Parts:
        """With the next one; :class:`DamageError` when it is no batch."""
        plain, _ = claims_of(data)
        return _Parts(self.number + 1, self.plain + plain, self.stored + len(data), self.repeated)

    def beside(self, data: bytes) -> _Parts:
        """The same, whatever the next one is: of one that is damaged only the number counts."""
        try:
            return self.and_one(data)
        except DamageError:
            return self._replace(number=self.number + 1)

    def decoded(self, data: bytes) -> tuple[_Parts, list[tuple[str, bytes]]]:
        """The same, and what it holds; :class:`DamageError` when all of them hold too much."""
        parts = self.and_one(data)
        if limits_by_size.parts_shrink_too_much(parts.plain, parts.stored):
            raise DamageError(
                f"the parts up to this one claim {parts.plain} bytes in {parts.stored} stored ones"
            )
        most = limits_by_size.most_records(parts.stored) - self.repeated
        entries = decode_batch(data, most_repeated=most)
        return parts._replace(repeated=self.repeated + claims_of(data)[1] - len(entries)), entries


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
        self._parts: dict[int, _Parts] = {}
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
            parts, size = self._write(epoch)
            self._parts = {epoch: parts}  # a new epoch starts at part 1 again
            m = self._metrics
            self._metrics = BatchMetrics(
                m.batches_flushed + 1,
                m.entries_flushed + len(self._entries),
                m.bytes_before_compression + self._size,
                m.bytes_after_compression + size,
                m.put_count + 1,
            )
            self._entries, self._size = {}, 0

    def _write(self, epoch: int) -> tuple[_Parts, int]:
        """Write the next part of an epoch: all parts with it, and its size."""
        parts = self._parts.get(epoch, _Parts())
        encoded = partial(encode_batch, self._entries.items(), self._version)
        packed, plain = encoded(), b""
        while True:
            data, now = packed, parts.and_one(packed)
            if limits_by_size.parts_shrink_too_much(now.plain, now.stored):
                # together with the others it could not be loaded
                plain = plain or encoded(compress=False)
                data, now = plain, parts.and_one(plain)
            try:
                create_once(self._blobs, self._key(epoch, now.number), data, _OBJECT_LIMIT)
                return now, len(data)
            except Taken as taken:
                # an earlier flush's, maybe of another process: leave it alone
                parts = parts.beside(taken.blob.data)

    def load(self, epoch: int) -> list[tuple[str, bytes]]:
        """All entries of an epoch, part by part; empty when nothing was flushed."""
        check_number("epoch", epoch, 0, U64_MAX)
        entries: list[tuple[str, bytes]] = []
        parts = _Parts()
        for part in self._parts_of(epoch):
            key = self._key(epoch, part)
            blob = self._blobs.read(key, _OBJECT_LIMIT)
            if blob is None:
                raise DamageError(f"{key} is missing", where=self._blobs.url)
            try:
                parts, more = parts.decoded(blob.data)
            except DamageError as error:
                raise DamageError(f"{key}: {error.what}", where=self._blobs.url) from None
            entries += more
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
