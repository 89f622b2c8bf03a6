"""Reading states back: one partition or all of them, verified before anything is handed out.

Tests: ``tests/state/test_conformance.py``.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import msgspec

from seamark._common.checks import unsafe_path
from seamark.blobs.contract import Blobs, Buffer
from seamark.blobs.streams import PIECE, hashed_while_read
from seamark.errors import DamageError
from seamark.limits import READ_AHEAD
from seamark.state.chains import Chain, Link, PartitionKey
from seamark.state.layout import CheckpointPaths, PartitionSnapshotEntry
from seamark.state.pack import PackedEntry, unpack_entry


class PartitionState(NamedTuple):
    """The state of one partition: a snapshot, and the deltas to apply after it, in order."""

    snapshot: bytes
    deltas: list[bytes]


def key_of(link: Link, paths: CheckpointPaths) -> str:
    """The key of a link's object; :class:`DamageError` for a path that leads elsewhere."""
    if problem := unsafe_path(link.entry.path):
        raise DamageError(f"state checkpoint {link.origin}: path {link.entry.path!r} {problem}")
    return paths.checkpoint_dir(link.origin) + link.entry.path


def read_chain(blobs: Blobs, paths: CheckpointPaths, chain: Chain) -> PartitionState:
    """Every object of a chain, verified."""
    snapshot, *deltas = (read_link(blobs, paths, link) for link in chain)
    return PartitionState(snapshot, deltas)


def read_link(blobs: Blobs, paths: CheckpointPaths, link: Link) -> bytes:
    """The bytes of one object, verified by size and SHA-256."""
    entry, key = link.entry, key_of(link, paths)
    if entry.pack is not msgspec.UNSET:
        return _read_packed(blobs, key, entry, entry.pack)
    blob = blobs.read(key, entry.size_bytes)
    if blob is None:
        raise DamageError(f"{key} is missing", where=blobs.url)
    compare(hashlib.sha256(blob.data).hexdigest(), len(blob.data), entry, key, blobs.url)
    return blob.data


def _read_packed(
    blobs: Blobs, key: str, entry: PartitionSnapshotEntry, place: tuple[int, int, int]
) -> bytes:
    """One block out of a pack, by one read of exactly its range."""
    block = blobs.read_range(key, place[0], place[1])
    if block is None:
        raise DamageError(f"{key} is missing", where=blobs.url)
    return unpack_entry(block, packed_entry(key, entry, place))


def packed_entry(
    key: str, entry: PartitionSnapshotEntry, place: tuple[int, int, int]
) -> PackedEntry:
    """A block as its pack's index has it; :class:`DamageError` when it has no SHA-256."""
    try:
        digest = bytes.fromhex(entry.sha256 or "")
    except ValueError:
        raise DamageError(f"{key}: the manifest's SHA-256 is not one") from None
    offset, length, codec = place
    return PackedEntry(key, offset, length, entry.size_bytes, codec, digest)


def stream_link(blobs: Blobs, paths: CheckpointPaths, link: Link) -> Iterator[Buffer]:
    """The bytes of one object in pieces; :class:`DamageError` after the last if they are wrong."""
    entry, key = link.entry, key_of(link, paths)
    if entry.pack is not msgspec.UNSET:
        yield read_link(blobs, paths, link)
        return
    stream = blobs.stream(key, PIECE)
    if stream is None:
        raise DamageError(f"{key} is missing", where=blobs.url)
    hasher = hashlib.sha256()
    size = 0
    for piece in hashed_while_read(stream, hasher):
        size += len(piece)
        yield piece
    compare(hasher.hexdigest(), size, entry, key, blobs.url)


def compare(
    digest: str, size: int, entry: PartitionSnapshotEntry, key: str, url: str | None = None
) -> None:
    """:class:`DamageError` when an object is not what an entry says."""
    if size != entry.size_bytes:
        raise DamageError(
            f"{key} has {size} bytes, the manifest says {entry.size_bytes}", where=url
        )
    if entry.sha256 is not None and digest != entry.sha256:
        raise DamageError(
            f"{key}: SHA-256 differs (expected {entry.sha256[:12]}…, found {digest[:12]}…)",
            where=url,
        )


def read_chains(
    blobs: Blobs,
    paths: CheckpointPaths,
    chains: Iterable[tuple[PartitionKey, Chain]],
    parallelism: int,
) -> Iterator[tuple[PartitionKey, PartitionState]]:
    """The states of many partitions in their order, verified, some of them read ahead."""
    if parallelism == 1:
        for place, chain in chains:
            yield place, read_chain(blobs, paths, chain)
        return
    waiting: deque[tuple[PartitionKey, int, Future[PartitionState]]] = deque()
    held = 0
    with ThreadPoolExecutor(parallelism, "seamark-restore") as pool:
        for place, chain in chains:
            size = sum(link.entry.size_bytes for link in chain)
            while waiting and (len(waiting) >= 2 * parallelism or held + size > READ_AHEAD):
                first, gone, read = waiting.popleft()
                yield first, read.result()
                held -= gone
            waiting.append((place, size, pool.submit(read_chain, blobs, paths, chain)))
            held += size
        for place, _, read in waiting:
            yield place, read.result()
