"""Backends that break a rule about one value."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from seamark.blobs.contract import Blob, Buffer, Entry, Stream, Tag
from seamark.blobs.memory import MemoryBlobs
from tests.store.support.broken_backends.registry import breaks


@breaks("what_was_created_is_read_back")
class ReadTruncates(MemoryBlobs):
    def read(self, key: str, limit: int) -> Blob | None:
        blob = super().read(key, limit)
        return blob and Blob(blob.data[:1024], blob.tag)


@breaks("an_empty_value_is_a_value")
class EmptyIsNothing(MemoryBlobs):
    def read(self, key: str, limit: int) -> Blob | None:
        blob = super().read(key, limit)
        return blob if blob and blob.data else None


@breaks("a_missing_value_is_none_and_not_an_error")
class MissingReadsAsEmpty(MemoryBlobs):
    def read(self, key: str, limit: int) -> Blob | None:
        return super().read(key, limit) or Blob(b"", 0)


@breaks("a_missing_value_is_none_and_not_an_error")
class MissingHasStat(MemoryBlobs):
    def stat(self, key: str) -> Entry | None:
        return super().stat(key) or Entry(key, 0, time.time(), 0)


@breaks("a_value_beyond_the_limit_is_damage")
class LimitIgnored(MemoryBlobs):
    def read(self, key: str, limit: int) -> Blob | None:
        return super().read(key, 1 << 40)


@breaks("a_value_beyond_the_limit_is_damage")
class LimitIsOneTooLow(MemoryBlobs):
    def read(self, key: str, limit: int) -> Blob | None:
        return super().read(key, limit - 1)


@breaks("stat_tells_size_and_time")
class StatWithoutSize(MemoryBlobs):
    def stat(self, key: str) -> Entry | None:
        entry = super().stat(key)
        return entry and entry._replace(size=0)


@breaks("stat_tells_size_and_time")
class StatInMilliseconds(MemoryBlobs):
    def stat(self, key: str) -> Entry | None:
        entry = super().stat(key)
        return entry and entry._replace(modified=entry.modified * 1000)


@breaks("a_missing_value_has_no_stream")
class MissingStreamsAsEmpty(MemoryBlobs):
    def stream(self, key: str, piece: int) -> Stream | None:
        return super().stream(key, piece) or Stream(iter(()), 0)


@breaks("a_stream_gives_the_same_bytes_for_every_size")
class StreamLosesTheLastPiece(MemoryBlobs):
    def stream(self, key: str, piece: int) -> Stream | None:
        whole = super().stream(key, piece)
        return whole and Stream((part for part in whole if len(part) == piece), whole.version)


@breaks("a_piece_stays_as_it_is_until_the_one_after_the_next")
class StreamReusesOneBuffer(MemoryBlobs):
    def stream(self, key: str, piece: int) -> Stream | None:
        whole = super().stream(key, piece)
        return whole and Stream(self._in_one_buffer(whole, bytearray(piece)), whole.version)

    def _in_one_buffer(self, pieces: Iterable[Buffer], buffer: bytearray) -> Iterator[Buffer]:
        for part in pieces:
            buffer[: len(part)] = part
            yield memoryview(buffer)[: len(part)]


@breaks("a_stream_tells_its_version")
class StreamOfNoVersion(MemoryBlobs):
    def stream(self, key: str, piece: int) -> Stream | None:
        whole = super().stream(key, piece)
        return whole and Stream(iter(whole), None)


@breaks("a_range_is_exactly_that_range")
class RangeIsOneTooLong(MemoryBlobs):
    def read_range(self, key: str, offset: int, length: int) -> bytes | None:
        return super().read_range(key, offset, length + 1)


@breaks("a_missing_value_has_no_range")
class MissingHasARange(MemoryBlobs):
    def read_range(self, key: str, offset: int, length: int) -> bytes | None:
        return super().read_range(key, offset, length) or b""


@breaks("a_created_stream_is_read_back")
class CreateStreamKeepsTheFirstPiece(MemoryBlobs):
    def create_stream(self, key: str, pieces: Iterable[Buffer]) -> Tag:
        return self.create(key, next((bytes(part) for part in pieces), b""))


@breaks("a_created_stream_may_be_empty")
class CreateStreamNeedsAPiece(MemoryBlobs):
    def create_stream(self, key: str, pieces: Iterable[Buffer]) -> Tag:
        parts = [bytes(part) for part in pieces]
        return self.create(key, b"".join(parts)) if parts else None


@breaks("a_producer_may_use_its_buffer_again")
class CreateStreamCollectsBuffers(MemoryBlobs):
    def create_stream(self, key: str, pieces: Iterable[Buffer]) -> Tag:
        return self.create(key, b"".join(list(pieces)))


@breaks("a_stream_whose_producer_fails_leaves_nothing")
class CreateStreamKeepsWhatCame(MemoryBlobs):
    def create_stream(self, key: str, pieces: Iterable[Buffer]) -> Tag:
        parts: list[bytes] = []
        try:
            parts.extend(bytes(part) for part in pieces)
        finally:
            tag = self.create(key, b"".join(parts))
        return tag


@breaks("a_stream_whose_producer_fails_leaves_nothing")
class CreateStreamSwallowsTheFailure(MemoryBlobs):
    def create_stream(self, key: str, pieces: Iterable[Buffer]) -> Tag:
        try:
            return super().create_stream(key, [bytes(part) for part in pieces])
        except Exception:  # noqa: BLE001 - this is what is wrong with it
            return None


@breaks("a_stream_to_a_taken_key_is_refused_where_streams_are_create_only")
class CreateStreamOverwrites(MemoryBlobs):
    def create_stream(self, key: str, pieces: Iterable[Buffer]) -> Tag:
        self.delete([key])
        return self.create(key, b"".join([bytes(part) for part in pieces]))
