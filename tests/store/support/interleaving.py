"""Seats: one writer's view of shared bytes, at which another writer can be let in between.

Before the k-th call of an armed seat the other writer runs a whole operation. That is every
interleaving in which one of the two is paused once, and it needs no threads.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Literal

from seamark.blobs.contract import Blob, Blobs, Buffer, Entry, Stream, Tag
from seamark.blobs.filesystem import FilesystemBlobs
from seamark.blobs.memory import MemoryBlobs
from seamark.store.checkpoint_store import CheckpointStore
from seamark.store.layout import FilesystemLayout, Layout, ObjectLayout

Kind = Literal["object", "locked", "filesystem"]
"""object: conditional writes only. locked: memory that behaves like a local disk."""


class Seat(Blobs):
    """Passes every call on and counts it.

    A visitor in the same thread cannot wait for a lock, so it is let in when none is held; one
    that runs in a thread of its own (``waits``) is let in at any time.
    """

    def __init__(self, base: Blobs, *, waits: bool = False) -> None:
        self.base = base
        self.url = base.url
        self.locks_held = 0
        self._calls = 0
        self._at = 0
        self._visitor: Callable[[], object] | None = None
        self._waits = waits

    def arm(self, at: int, visitor: Callable[[], object]) -> None:
        """Let ``visitor`` in before the ``at``-th call from here on, or as soon after as it can."""
        self._calls = 0
        self._at, self._visitor = at, visitor

    def disarm(self) -> bool:
        """Whether the visitor has not been let in; it will not be any more."""
        waiting, self._visitor = self._visitor is not None, None
        return waiting

    def _next(self) -> Blobs:
        self._calls += 1
        free = self._waits or not self.locks_held
        if self._visitor is not None and free and self._calls >= self._at:
            visitor, self._visitor = self._visitor, None
            visitor()
        return self.base

    def read(self, key: str, limit: int) -> Blob | None:
        return self._next().read(key, limit)

    def stat(self, key: str) -> Entry | None:
        return self._next().stat(key)

    def stream(self, key: str, piece: int) -> Stream | None:
        return self._next().stream(key, piece)

    def read_range(self, key: str, offset: int, length: int) -> bytes | None:
        return self._next().read_range(key, offset, length)

    def create(self, key: str, data: bytes) -> Tag:
        return self._next().create(key, data)

    def create_stream(self, key: str, pieces: Iterable[Buffer]) -> Tag | None:
        return self._next().create_stream(key, pieces)

    def replace(self, key: str, data: bytes, tag: Tag, *, durable: bool = True) -> Tag:
        return self._next().replace(key, data, tag, durable=durable)

    def delete(self, keys: Sequence[str]) -> None:
        self._next().delete(keys)

    def entries(self, prefix: str) -> list[Entry]:
        return self._next().entries(prefix)

    def folders_holding(self, prefix: str, name: str) -> list[str]:
        return self._next().folders_holding(prefix, name)

    def clock(self) -> float:
        return self._next().clock()

    def version_of(self, tag: Tag) -> Hashable:
        return self.base.version_of(tag)


class ObjectSeat(Seat):
    """An object store: nothing but conditional writes keeps two writers apart."""

    max_put = 64  # so that a few bytes are enough to be streamed in parts

    def exclusive(self) -> AbstractContextManager[object]:
        return nullcontext()


class LockedSeat(Seat):
    """A local disk: whoever wants the lock waits until it is free."""

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        with self.base.exclusive():
            self.locks_held += 1
            try:
                yield
            finally:
                self.locks_held -= 1

    def hold(self, name: str) -> AbstractContextManager[object]:
        return self._next().hold(name)

    def forget_holds(self, but: str) -> None:
        self.base.forget_holds(but)

    def is_held(self, name: str) -> bool | None:
        return self._next().is_held(name)

    def close(self) -> None:
        self.base.close()


class Place:
    """Somewhere two writers share: a seat for each, and the bytes as they are."""

    def __init__(self, kind: Kind, root: str = "") -> None:
        self.kind = kind
        self._root = root
        self._memory = MemoryBlobs()
        self.layout: Layout = ObjectLayout() if kind == "object" else FilesystemLayout()
        self.blobs = self._base()
        self._seen: dict[str, tuple[Hashable, bytes]] = {}

    def _base(self) -> Blobs:
        return FilesystemBlobs(self._root) if self.kind == "filesystem" else self._memory

    def seat(self, *, waits: bool = False) -> Seat:
        """A new view for one writer; on a disk it has locks of its own."""
        seat = ObjectSeat if self.kind == "object" else LockedSeat
        return seat(self._base(), waits=waits)

    def store(self, seat: Blobs | None = None) -> CheckpointStore:
        """A handle, on a seat or on the bytes themselves."""
        return CheckpointStore(seat or self._base(), self.layout)

    def contents(self) -> dict[str, bytes]:
        """Every value by its key; one that is unchanged is the same object as before."""
        found: dict[str, tuple[Hashable, bytes]] = {}
        for entry in self.blobs.entries(""):
            known = self._seen.get(entry.key)
            if known is None or known[0] != entry.version:
                blob = self.blobs.read(entry.key, 1 << 30)
                assert blob is not None
                known = entry.version, blob.data
            found[entry.key] = known
        self._seen = found
        return {key: data for key, (_, data) in found.items()}

    def value(self, key: str) -> bytes | None:
        """One value as it is now."""
        blob = self.blobs.read(key, 1 << 30)
        return blob.data if blob else None

    def overwrite(self, key: str, data: bytes | None) -> None:
        """What no writer does: change bytes, or remove them, behind everybody's back."""
        blob = self.blobs.read(key, 1 << 30)
        if data is None or blob is None:
            self.blobs.delete([key])
        else:
            self.blobs.replace(key, data, blob.tag, durable=False)
