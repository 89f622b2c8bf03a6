"""Backends that break a rule about several threads, handles or processes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from seamark.blobs.contract import Blob, Buffer, KeyExists, Tag, TagMismatch
from seamark.blobs.memory import MemoryBlobs
from tests.store.support.broken_backends.registry import A_MOMENT, breaks


@breaks("one_of_eight_creates_wins")
class CreateLooksAndThenWrites(MemoryBlobs):
    def create(self, key: str, data: bytes) -> Tag:
        if key in self._values:
            raise KeyExists(key)
        time.sleep(A_MOMENT)
        return self._set(key, data)


@breaks("one_of_eight_replaces_wins")
class ReplaceLooksAndThenWrites(MemoryBlobs):
    def replace(self, key: str, data: bytes, tag: Tag, *, durable: bool = True) -> Tag:
        blob = self.read(key, 1 << 40)
        if blob is None or blob.tag != tag:
            raise TagMismatch(key)
        time.sleep(A_MOMENT)
        return self._set(key, data)


@breaks("a_reader_never_sees_part_of_a_new_value")
class CreateInTwoSteps(MemoryBlobs):
    def create(self, key: str, data: bytes) -> Tag:
        super().create(key, data[: len(data) // 2])
        time.sleep(A_MOMENT)
        return self._set(key, data)


@breaks("a_reader_never_sees_part_of_a_stream")
class CreateStreamInSteps(MemoryBlobs):
    def create_stream(self, key: str, pieces: Iterable[Buffer]) -> Tag:
        tag = self.create(key, b"")
        for part in pieces:
            tag = self._set(key, self._values[key][0] + bytes(part))
            time.sleep(A_MOMENT)
        return tag


@breaks("a_reader_sees_the_old_value_or_the_new_one")
class ReplaceInTwoSteps(MemoryBlobs):
    def replace(self, key: str, data: bytes, tag: Tag, *, durable: bool = True) -> Tag:
        tag = super().replace(key, data[: len(data) // 2], tag)
        time.sleep(A_MOMENT)
        return super().replace(key, data, tag)


@breaks("a_reader_sees_the_old_value_or_the_new_one")
class ReplaceRemovesFirst(MemoryBlobs):
    def replace(self, key: str, data: bytes, tag: Tag, *, durable: bool = True) -> Tag:
        super().replace(key, data, tag)
        self.delete([key])
        time.sleep(A_MOMENT)
        return self.create(key, data)


@breaks("two_handles_see_each_others_writes")
class ReadIsStale(MemoryBlobs):
    """What was read once is read again for ever."""

    def read(self, key: str, limit: int) -> Blob | None:
        known: dict[str, Blob | None] = self.__dict__.setdefault("_known", {})
        if key not in known:
            known[key] = super().read(key, limit)
        return known[key]


@breaks("being_exclusive_may_be_nested")
class ExclusiveOnlyOnce(MemoryBlobs):
    def exclusive(self) -> AbstractContextManager[object]:
        turn: threading.Lock = self.__dict__.setdefault("_turn", threading.Lock())
        return self._taking(turn)

    @contextmanager
    def _taking(self, turn: threading.Lock) -> Iterator[None]:
        if not turn.acquire(timeout=A_MOMENT):
            raise TimeoutError("waits for itself")
        try:
            yield
        finally:
            turn.release()


@breaks("a_mark_is_seen_as_long_as_it_is_held")
class HoldIsNotSeen(MemoryBlobs):
    def hold(self, name: str) -> AbstractContextManager[object]:
        return nullcontext()

    def is_held(self, name: str) -> bool | None:
        return False


@breaks("a_mark_is_seen_as_long_as_it_is_held")
class HoldIsSeenForEver(MemoryBlobs):
    def is_held(self, name: str) -> bool | None:
        return True
