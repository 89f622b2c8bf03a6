"""Moving the bytes of one checkpoint into another store: its sidecar, then its manifest.

Tests: ``tests/store/test_copying.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import msgspec

from seamark._common.json_documents import is_sealed, seal, unseal
from seamark.blobs.conditional_writes import Taken, create_once, replace_once
from seamark.blobs.contract import Buffer, TagMismatch
from seamark.blobs.streams import PIECE, small_or_stream
from seamark.errors import DamageError, FencedError
from seamark.manifest import CheckpointManifest
from seamark.store.copy.decisions import identity
from seamark.store.manifests import MANIFEST_LIMIT, StoredManifest, Tombstone
from seamark.store.parts import StoreParts

_NAMED = "state_object"


class CopyCallback(Protocol):
    """Called with the bytes that are done, and with ``total`` when more turn out to be needed."""

    def __call__(self, by: float, *, total: float | None = None) -> None: ...


class CopyProgress:
    """Counts the bytes of one checkpoint as they pass, and reports them."""

    def __init__(self, advance: CopyCallback) -> None:
        self._advance = advance
        self.bytes = 0

    def more(self, count: int) -> None:
        """That many more bytes have passed."""
        self.bytes += count
        self._advance(count)


def write_sidecar(
    source: StoreParts, target: StoreParts, manifest: CheckpointManifest, progress: CopyProgress
) -> tuple[str | None, int]:
    """Copy a sidecar, verified before it appears; the name that its manifest must give, and bytes.

    The name is None when the sidecar is where every reader looks first. What an earlier try has
    left is written again.
    """
    if not source.sidecars.holds_sidecar(manifest):
        return None, 0
    counted = CountedPieces(_verified(source, manifest), progress)
    usual = target.layout.state(manifest.checkpoint_id)
    limit = target.blobs.max_put
    if limit is None:
        with target.blobs.exclusive():
            target.blobs.delete([usual])  # no manifest that counts is under this id
        target.blobs.create_stream(usual, counted)
        return None, counted.length
    data = small_or_stream(iter(counted), limit)
    if isinstance(data, bytes):
        try:
            create_once(target.blobs, usual, data, max(len(data), limit))
            return None, counted.length
        except Taken:
            pass  # an unfinished save of somebody else's: left alone
    if not manifest.is_ours:
        # a name of its own would make another system's manifest look like one of ours
        target.blobs.delete([usual])
        target.blobs.create_stream(usual, [data] if isinstance(data, bytes) else data)
        return None, counted.length
    # the same in every try, and nobody else's
    token = identity(manifest).hex()[:16]
    key = target.layout.state_in_parts(manifest.checkpoint_id, manifest.generation, token)
    target.blobs.create_stream(key, [data] if isinstance(data, bytes) else data)
    return key, counted.length


class CountedPieces:
    """Pieces on their way, and how many bytes have passed."""

    def __init__(self, pieces: Iterator[Buffer], progress: CopyProgress) -> None:
        self._pieces = pieces
        self._progress = progress
        self.length = 0

    def __iter__(self) -> Iterator[Buffer]:
        for piece in self._pieces:
            self.length += len(piece)
            yield piece
            self._progress.more(len(piece))


def _verified(source: StoreParts, manifest: CheckpointManifest) -> Iterator[Buffer]:
    """The bytes of a sidecar; :class:`DamageError` at the latest after the last one."""
    if manifest.is_ours:
        yield from source.sidecars.verified_stream(manifest)
        return
    # another system may have hashed in more than one way: only reading it whole shows which
    if problem := source.sidecars.problem(manifest):
        raise DamageError(problem)
    stream = source.blobs.stream(source.sidecars.key_of(manifest), PIECE)
    if stream is None:
        raise DamageError("its state is gone")
    yield from stream


def translated(stored: StoredManifest, named: object) -> bytes:
    """The manifest's bytes, but for the name of its sidecar. All else stays as it is stored."""
    if stored.manifest.state_object == named or not is_sealed(stored.data):
        return stored.data
    members: dict[str, Any] = msgspec.json.decode(unseal(stored.data), type=dict[str, msgspec.Raw])
    members.pop(_NAMED, None)
    if named is not None:
        members[_NAMED] = named
    return seal(msgspec.json.encode(members))


def decide(
    target: StoreParts, checkpoint_id: int, data: bytes, there: StoredManifest | Tombstone | None
) -> None:
    """Show the manifest, in place of exactly what was there before."""
    key = target.layout.manifest(checkpoint_id)
    try:
        if there is None:
            create_once(target.blobs, key, data, MANIFEST_LIMIT)
        else:
            replace_once(target.blobs, key, data, there.tag, MANIFEST_LIMIT)
    except (Taken, TagMismatch):
        raise written_meanwhile(target, checkpoint_id) from None
    target.manifests.forget(checkpoint_id)


def written_meanwhile(target: StoreParts, checkpoint_id: int) -> FencedError:
    """Somebody else has decided that id since it was looked at."""
    return FencedError(
        f"checkpoint {checkpoint_id} was written by another writer while it was being copied",
        where=f"{target.blobs.url}/{target.layout.manifest(checkpoint_id)}",
        hint="What was copied so far is whole. Copy again when that writer has stopped.",
    )
