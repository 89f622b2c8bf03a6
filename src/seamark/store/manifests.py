"""Manifests and the pointer as objects of a store: read, decided, replaced, listed.

Tests: ``tests/store/test_conformance.py``.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

import msgspec

from seamark._common.json_documents import UNREADABLE, is_sealed, seal, unseal
from seamark._common.logs import logger_named
from seamark.blobs.conditional_writes import put_once
from seamark.blobs.contract import Blob, Blobs, KeyExists, Tag, TagMismatch
from seamark.errors import DamageError, FormatTooNewError, StoreUnavailableError
from seamark.manifest import CheckpointManifest
from seamark.manifest.findings import wrong_generation
from seamark.store.layout import Layout

log = logger_named(__name__)

MANIFEST_LIMIT: Final = 64 << 20
POINTER_LIMIT: Final = 1 << 16
MANIFEST_VERSION: Final = 1
_REMEMBERED: Final = 16
_AT_ONCE: Final = 64
_PLAUSIBLE_GAP: Final = 1_000_000


class StoredManifest(NamedTuple):
    """A manifest as it is stored."""

    manifest: CheckpointManifest
    data: bytes
    tag: Tag


class Tombstone(NamedTuple):
    """A key that a claim made unusable for the writers before it."""

    generation: int
    tag: Tag


class _TombstoneDocument(msgspec.Struct):
    tombstone: bool
    generation: int
    writer: str = ""


def tombstone_bytes(generation: int, writer: str) -> bytes:
    """What a claim puts at the next manifest's key."""
    return seal(msgspec.json.encode(_TombstoneDocument(True, generation, writer)))


def parse_manifest(blob: Blob, checkpoint_id: int) -> StoredManifest | Tombstone:
    """Read what a manifest's key holds; :class:`DamageError` when it cannot be trusted."""
    data, tag = blob
    sealed = is_sealed(data)
    document = unseal(data) if sealed else data
    if sealed and document.startswith(b'{"tombstone":'):
        try:
            claim = msgspec.json.decode(document, type=_TombstoneDocument)
        except UNREADABLE as error:
            raise DamageError(f"corrupt tombstone: {error}") from None
        return Tombstone(claim.generation, tag)
    # with its checksum, which later identifies what a changed copy was made from
    manifest = CheckpointManifest.from_json(data)
    if manifest.is_ours and not sealed:
        raise DamageError("corrupt manifest: its own checksum is missing")
    if problem := wrong_generation(manifest):
        raise DamageError(f"corrupt manifest: {problem}")
    if manifest.checkpoint_id != checkpoint_id:
        raise DamageError(
            f"corrupt manifest: it says checkpoint {manifest.checkpoint_id}, "
            f"its name says {checkpoint_id}"
        )
    if manifest.version > MANIFEST_VERSION:
        raise FormatTooNewError(
            f"checkpoint {checkpoint_id} has manifest version {manifest.version}; "
            f"this Seamark knows up to {MANIFEST_VERSION}",
            hint="Use the Seamark that wrote it, or a newer one.",
        )
    return StoredManifest(manifest, data, tag)


class Manifests:
    """The manifests of one store and the pointer to the newest one."""

    def __init__(self, blobs: Blobs, layout: Layout) -> None:
        self._blobs = blobs
        self.layout = self._layout = layout
        self._recent: OrderedDict[int, StoredManifest] = OrderedDict()
        self._pointer: tuple[int, Tag] | None = None
        self.is_behind = False
        """Whether the pointer named a later id than the one that was decided last."""
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        """Where the store is, for messages."""
        return self._blobs.url

    def ids(self) -> list[int]:
        """Ids that have anything under their manifest's key, ascending; nothing is read."""
        return self._layout.manifest_ids(self._blobs)

    def missing(self, ids: Collection[int]) -> set[int]:
        """Those of the ids that have nothing under their manifest's key by now."""
        if len(ids) == 1:
            return {i for i in ids if self._blobs.stat(self._layout.manifest(i)) is None}
        return set(ids).difference(self.ids()) if ids else set()

    def read(self, checkpoint_id: int) -> StoredManifest | Tombstone | None:
        """What is stored under that id; None when nothing is."""
        blob = self._blobs.read(self._layout.manifest(checkpoint_id), MANIFEST_LIMIT)
        if blob is None:
            return None
        stored = parse_manifest(blob, checkpoint_id)
        if isinstance(stored, StoredManifest):
            self._remember(stored)
        return stored

    def read_many(
        self, ids: Sequence[int]
    ) -> Iterator[tuple[int, StoredManifest | Tombstone | DamageError | None]]:
        """Several at once, in the order given; damage is a value here, not an exception."""
        for checkpoint_id, stored in self.read_each(ids):
            if isinstance(stored, StoreUnavailableError):
                raise stored
            yield checkpoint_id, stored

    def read_each(
        self, ids: Sequence[int]
    ) -> Iterator[
        tuple[int, StoredManifest | Tombstone | DamageError | StoreUnavailableError | None]
    ]:
        """The same, but an I/O error of one is a value too, so that the others are read."""

        def one(
            checkpoint_id: int,
        ) -> StoredManifest | Tombstone | DamageError | StoreUnavailableError | None:
            try:
                return self.read(checkpoint_id)
            except (DamageError, StoreUnavailableError) as error:
                return error.as_value()

        if self._blobs.parallel_reads == 1 or len(ids) < 2:
            yield from ((checkpoint_id, one(checkpoint_id)) for checkpoint_id in ids)
            return
        with ThreadPoolExecutor(self._blobs.parallel_reads, "seamark-read") as pool:
            for start in range(0, len(ids), _AT_ONCE):  # those that were read wait in memory
                some = ids[start : start + _AT_ONCE]
                yield from zip(some, pool.map(one, some), strict=True)

    def remembered(self, checkpoint_id: int) -> StoredManifest | None:
        """What this handle last read or wrote under that id, without asking the store."""
        with self._lock:
            return self._recent.get(checkpoint_id)

    def put(self, checkpoint_id: int, data: bytes, before: Tag | None) -> Tag:
        """Put a manifest or tombstone at a free id, or in place of exactly the version ``before``.

        :class:`Taken` or :class:`TagMismatch` when something else is there. Nothing that is gone
        is brought back.
        """
        return put_once(
            self._blobs, self._layout.manifest(checkpoint_id), data, before, MANIFEST_LIMIT
        )

    def decide(self, manifest: CheckpointManifest, data: bytes, before: Tag | None) -> None:
        """As :meth:`put` for a checkpoint, which is remembered."""
        tag = self.put(manifest.checkpoint_id, data, before)
        self._remember(StoredManifest(manifest, data, tag))

    def make_durable(self, checkpoint_id: int) -> None:
        """Be sure that a manifest which another process has left survives a power cut.

        It may have died between showing it and making it durable; before anything builds on it,
        that has to be done.
        """
        self._blobs.make_durable(self._layout.manifest(checkpoint_id))

    def forget(self, checkpoint_id: int) -> None:
        """Drop what is remembered of that id."""
        with self._lock:
            self._recent.pop(checkpoint_id, None)

    # the pointer: a hint that only moves forward

    def read_pointer(self) -> int | None:
        """The id that the pointer names; None when it is missing, 0 when it makes no sense."""
        try:
            blob = self._blobs.read(self._layout.pointer, POINTER_LIMIT)
        except DamageError:
            return 0  # it is only a hint
        if blob is None:
            return None
        named = self._layout.decode_pointer(blob.data) or 0
        self._pointer = (named, blob.tag)
        return named

    def newest_id(self) -> int:
        """The largest id in use by any manifest, or named by a pointer that makes sense."""
        newest = max(self.ids(), default=0)
        named = self.read_pointer() or 0
        # a flipped bit can make a pointer name an id that is very far away
        return max(newest, named) if named - newest <= _PLAUSIBLE_GAP else newest

    def newest_stored(self) -> tuple[int, StoredManifest | Tombstone | None]:
        """The largest id in use, and what it holds; None when that is damaged."""
        newest = max(self.ids(), default=0)
        try:
            return newest, self.read(newest) if newest else None
        except DamageError:
            return newest, None

    def advance_pointer(self, checkpoint_id: int) -> None:
        """Point at that id unless a newer one is named. Failing to is not failing to save."""
        try:
            self._advance_pointer(checkpoint_id)
        except (StoreUnavailableError, DamageError) as error:
            self._pointer = None
            log.warning("checkpoint %d is saved, but the pointer is not: %s", checkpoint_id, error)

    def _advance_pointer(self, checkpoint_id: int) -> None:
        key, data = self._layout.pointer, self._layout.encode_pointer(checkpoint_id)
        for _ in range(8):
            known = self._pointer
            try:
                if known is None:
                    self._pointer = (checkpoint_id, self._blobs.create(key, data))
                elif known[0] < checkpoint_id:
                    tag = self._blobs.replace(key, data, known[1], durable=False)
                    self._pointer = (checkpoint_id, tag)
                self.is_behind = known is not None and known[0] > checkpoint_id
                return
            except (KeyExists, TagMismatch):
                self._pointer = None
                self.read_pointer()

    def _remember(self, stored: StoredManifest) -> None:
        with self._lock:
            self._recent[stored.manifest.checkpoint_id] = stored
            self._recent.move_to_end(stored.manifest.checkpoint_id)
            while len(self._recent) > _REMEMBERED:
                self._recent.popitem(last=False)
