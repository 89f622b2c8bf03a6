"""What objects of state hold, read once however many manifests name them.

Tests: ``tests/state/test_resolution.py``.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from seamark._common.parallel import map_in_threads
from seamark.blobs.contract import Blobs
from seamark.blobs.streams import PIECE, hashed_while_read
from seamark.errors import DamageError
from seamark.state import reader
from seamark.state.chains import Link
from seamark.state.layout import CheckpointPaths
from seamark.state.pack import PackedEntry, unpack_all
from seamark.state.reader import key_of, packed_entry

_MOST_BLOCKS: Final = 250_000
"""Of all objects that are remembered: about 70 MB."""

LARGEST_PACK: Final = 1 << 30
_THREADS: Final = "seamark-verify"


class ObjectRead(NamedTuple):
    """An object to be looked at."""

    key: str
    is_pack: bool


class SeenObject(NamedTuple):
    """What an object holds, or what is wrong with all of it."""

    problem: str | None
    size: int = 0
    digest: str = ""
    blocks: frozenset[PackedEntry] = frozenset()
    """Of a pack: its entries, without their names."""

    def problem_of(self, key: str, link: Link) -> str | None:
        """What is wrong with that part of it that a link names."""
        if self.problem is not None:
            return self.problem
        entry = link.entry
        try:
            if entry.pack is msgspec.UNSET:
                reader.compare(self.digest, self.size, entry, key)
            elif packed_entry("", entry, entry.pack) not in self.blocks:
                offset, length, _ = entry.pack
                return f"{key} does not have the block of {length} bytes at {offset} that is named"
        except DamageError as error:
            return error.what
        return None


def seen_pack(data: bytes) -> SeenObject:
    """What a whole pack holds; :class:`DamageError` unless every byte of it is right."""
    blocks = frozenset(entry._replace(key="") for entry, _ in unpack_all(data))
    return SeenObject(None, blocks=blocks)


def read_pack(blobs: Blobs, key: str) -> bytes:
    """All bytes of a pack; :class:`DamageError` when it is not there."""
    blob = blobs.read(key, LARGEST_PACK)
    if blob is None:
        raise DamageError(f"{key} is missing", where=blobs.url)
    return blob.data


def _looked_at(blobs: Blobs, about: ObjectRead) -> SeenObject:
    """What is found when every byte of an object is read."""
    key, is_pack = about
    if is_pack:
        try:
            return seen_pack(read_pack(blobs, key))
        except DamageError as error:
            return SeenObject(error.what)
    stream = blobs.stream(key, PIECE)
    if stream is None:
        return SeenObject(f"{key} is missing")
    hasher = hashlib.sha256()
    size = sum(len(piece) for piece in hashed_while_read(stream, hasher))
    return SeenObject(None, size, hasher.hexdigest())


class ObjectLooks:
    """What was found in the objects of one place, which never change: none is read twice.

    Safe from several threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[ObjectRead, SeenObject] = {}
        self._blocks = 0

    def add(self, about: ObjectRead, seen: SeenObject) -> None:
        """Remember what an object holds; of very many, the first ones are forgotten."""
        with self._lock:
            before = self._seen.pop(about, None)
            self._blocks += 1 + len(seen.blocks) - (before is not None and 1 + len(before.blocks))
            self._seen[about] = seen
            while self._blocks > _MOST_BLOCKS and len(self._seen) > 1:
                first = next(iter(self._seen))
                self._blocks -= 1 + len(self._seen.pop(first).blocks)

    def problems(
        self, blobs: Blobs, paths: CheckpointPaths, links: Iterable[Link], threads: int
    ) -> list[str | None]:
        """What is wrong with the bytes that each of these links names."""
        asked = [_asked(link, paths) for link in links]
        reads = dict.fromkeys(each[0] for each in asked if not isinstance(each, str))
        with self._lock:
            found = {about: seen for about in reads if (seen := self._seen.get(about)) is not None}
        new = [about for about in reads if about not in found]
        looked = map_in_threads(lambda about: _looked_at(blobs, about), new, threads, _THREADS)
        for about, seen in zip(new, looked, strict=True):
            found[about] = seen
            self.add(about, seen)
        return [
            each if isinstance(each, str) else found[each[0]].problem_of(each[0].key, each[1])
            for each in asked
        ]


class Presence:
    """Which objects of one place are there, whatever they hold."""

    def __init__(self) -> None:
        self._is_there: dict[str, bool] = {}

    def problems(
        self, blobs: Blobs, paths: CheckpointPaths, links: Iterable[Link], threads: int
    ) -> list[str | None]:
        """Which of these links name an object that is missing."""
        asked = [_asked(link, paths) for link in links]
        keys = dict.fromkeys(each[0].key for each in asked if not isinstance(each, str))
        new = [key for key in keys if key not in self._is_there]

        def is_there(key: str) -> bool:
            return blobs.stat(key) is not None

        found = map_in_threads(is_there, new, threads, _THREADS)
        self._is_there.update(zip(new, found, strict=True))
        return [
            each
            if isinstance(each, str)
            else None
            if self._is_there[each[0].key]
            else f"{each[0].key} is missing"
            for each in asked
        ]


def _asked(link: Link, paths: CheckpointPaths) -> tuple[ObjectRead, Link] | str:
    """What is to be looked at, or why it cannot be."""
    try:
        return ObjectRead(key_of(link, paths), link.entry.pack is not msgspec.UNSET), link
    except DamageError as error:
        return error.what
