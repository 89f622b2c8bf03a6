"""Seats: one writer's view of shared bytes, at which another writer can be let in between.

Before the k-th call of an armed seat the other writer runs a whole operation. That is every
interleaving in which one of the two is paused once, and it needs no threads.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Literal

from seamark.store.blobs import Blob, Blobs, Buffer, Entry, Tag
from seamark.store.checkpoint_store import CheckpointStore
from seamark.store.filesystem import FilesystemBlobs
from seamark.store.layout import FilesystemLayout, Layout, ObjectLayout
from seamark.store.memory import MemoryBlobs

Kind = Literal["object", "locked", "filesystem"]
"""object: conditional writes only. locked: memory that behaves like a local disk."""


class Seat(Blobs):
    """Passes every call on and counts it. While a lock is held nobody else is let in."""

    def __init__(self, base: Blobs) -> None:
        self.base = base
        self.url = base.url
        self.calls = 0
        self.log: list[str] = []
        self._at = 0
        self._visitor: Callable[[], None] | None = None
        self._depth = 0

    def arm(self, at: int, visitor: Callable[[], None]) -> None:
        """Let ``visitor`` in before the ``at``-th call from here on, or as soon after as it can."""
        self.calls = 0
        self.log = []
        self._at, self._visitor = at, visitor

    def disarm(self) -> bool:
        """Whether the visitor has not been let in; it will not be any more."""
        waiting, self._visitor = self._visitor is not None, None
        return waiting

    def _passing(self, what: str, key: str) -> Blobs:
        self.calls += 1
        self.log.append(f"{what} {key}")
        self._let_in()
        return self.base

    def _let_in(self) -> None:
        if self._visitor is not None and self._depth == 0 and self.calls >= self._at:
            visitor, self._visitor = self._visitor, None
            visitor()

    def read(self, key: str, limit: int) -> Blob | None:
        return self._passing("read", key).read(key, limit)

    def stat(self, key: str) -> Entry | None:
        return self._passing("stat", key).stat(key)

    def stream(self, key: str, piece: int) -> Iterator[Buffer] | None:
        return self._passing("stream", key).stream(key, piece)

    def create(self, key: str, data: bytes) -> Tag:
        return self._passing("create", key).create(key, data)

    def create_stream(self, key: str, pieces: Iterable[Buffer]) -> Tag:
        return self._passing("create_stream", key).create_stream(key, pieces)

    def replace(self, key: str, data: bytes, tag: Tag, *, durable: bool = True) -> Tag:
        return self._passing("replace", key).replace(key, data, tag, durable=durable)

    def delete(self, keys: Sequence[str]) -> None:
        self._passing("delete", " ".join(keys)).delete(keys)

    def entries(self, prefix: str) -> list[Entry]:
        return self._passing("entries", prefix).entries(prefix)

    def folders_holding(self, prefix: str, name: str) -> list[str]:
        return self._passing("folders_holding", prefix).folders_holding(prefix, name)

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
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1

    def hold(self, name: str) -> AbstractContextManager[object]:
        return self.base.hold(name)

    def forget_holds(self, but: str) -> None:
        self.base.forget_holds(but)

    def is_held(self, name: str) -> bool | None:
        return self.base.is_held(name)

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

    def seat(self) -> Seat:
        """A new view for one writer; on a disk it has locks of its own."""
        return ObjectSeat(self._base()) if self.kind == "object" else LockedSeat(self._base())

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
