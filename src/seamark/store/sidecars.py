"""Sidecars: the state of a checkpoint that does not fit into its manifest, and its checksum.

A manifest's ``state_checksum`` is the SHA-256 of the sidecar, or of the names and base64 texts of
inline operators. With both it is that of the hexadecimal inline hash and then the sidecar's bytes.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Hashable, Iterable, Iterator
from typing import NamedTuple

from seamark.blobs.conditional_writes import Taken, create_once
from seamark.blobs.contract import Blobs, Buffer, Entry, KeyExists, Tag
from seamark.blobs.streams import (
    PIECE,
    Hashing,
    digest_of,
    hashed_while_read,
    pieces_of,
    small_or_stream,
)
from seamark.errors import DamageError, FencedError
from seamark.manifest import CheckpointManifest, OperatorCheckpoint
from seamark.manifest.findings import unrestorable
from seamark.state.pack import PackInPlace
from seamark.store.layout import Layout


def inline_checksum(manifest: CheckpointManifest) -> str:
    """SHA-256 over ``name NUL base64 NUL`` of each inline operator, names in byte order."""
    hasher = hashlib.sha256()
    states = manifest.operator_states
    for name in sorted((n for n, op in states.items() if not op.external), key=str.encode):
        hasher.update(b"%b\x00%b\x00" % (name.encode(), (states[name].state_b64 or "").encode()))
    return hasher.hexdigest()


def checksum_prefix(manifest: CheckpointManifest) -> bytes:
    """What is hashed before a sidecar's bytes under this manifest."""
    return inline_checksum(manifest).encode() if manifest.has_inline_state else b""


class WrittenSidecar(NamedTuple):
    """A sidecar that is durable: what the manifest has to say of it."""

    key: str
    length: int
    sha256: str
    checksum: str
    """By the rule of the manifest that it was written for."""
    version: Hashable
    """Which version of the file it is, so that another one is not taken for it."""


class Sidecars:
    """The sidecars of one store."""

    def __init__(self, blobs: Blobs, layout: Layout) -> None:
        self._blobs = blobs
        self._layout = layout
        self._verified: dict[str, tuple[Hashable, str]] = {}

    def write(
        self, checkpoint_id: int, chunks: Iterable[Buffer], *, prefix: bytes, generation: int
    ) -> WrittenSidecar:
        """Write a sidecar, create-only and durable.

        ``prefix`` is hashed before the bytes, for the checksum of mixed state.
        :class:`FencedError` when another writer's state is under this id.
        """
        key = self._layout.state(checkpoint_id)
        pieces = pieces_of(chunks)
        limit = self._blobs.max_put
        if limit is None:
            return self._write_stream(key, pieces, prefix)
        data = small_or_stream(pieces, limit)
        if not isinstance(data, bytes):
            token = os.urandom(8).hex()
            key = self._layout.state_in_parts(checkpoint_id, generation, token)
            return self._write_stream(key, data, prefix)
        try:
            tag = create_once(self._blobs, key, data, max(len(data), limit))
        except Taken:
            # somebody's unfinished save of this id: leave it alone and use a name of our own
            key = self._layout.state_in_parts(checkpoint_id, generation, os.urandom(8).hex())
            tag = create_once(self._blobs, key, data, max(len(data), limit))
        plain = hashlib.sha256(data).hexdigest()
        checksum = hashlib.sha256(prefix + data).hexdigest() if prefix else plain
        version = self._trust(key, tag, checksum)
        return WrittenSidecar(key, len(data), plain, checksum, version)

    def _write_stream(self, key: str, pieces: Iterable[Buffer], prefix: bytes) -> WrittenSidecar:
        plain = Hashing(pieces)
        mixed = Hashing(plain, hashlib.sha256(prefix)) if prefix else plain
        try:
            tag = self._blobs.create_stream(key, mixed)
        except KeyExists:
            for _ in mixed:  # what was not written still has to be hashed
                pass
            there = self.describe(key, prefix=b"")
            if there is None or there.sha256 != plain.hexdigest():
                raise FencedError(
                    f"{key} exists with other bytes: another writer is saving this id",
                    where=self._blobs.url,
                    hint="Save under next_id(), or claim() the store first.",
                ) from None
            tag = None
        version = self._trust(key, tag, mixed.hexdigest())
        return WrittenSidecar(key, plain.length, plain.hexdigest(), mixed.hexdigest(), version)

    def _trust(self, key: str, tag: Tag | None, checksum: str) -> Hashable:
        """What was just written and hashed need not be read again to be believed."""
        version = self._blobs.version_of(tag)
        if version is None and (entry := self._blobs.stat(key)) is not None:
            version = entry.version
        self._verified[key] = (version, checksum)
        return version

    def is_still(self, written: WrittenSidecar) -> bool:
        """Whether what was written is there and nobody has put anything else in its place."""
        entry = self._blobs.stat(written.key)
        return entry is not None and entry.version == written.version

    def describe(self, key: str, *, prefix: bytes) -> WrittenSidecar | None:
        """What a manifest would have to say of a sidecar that is there already."""
        stream = self._blobs.stream(key, PIECE)
        if stream is None:
            return None
        plain = Hashing(iter(stream))
        mixed = Hashing(plain, hashlib.sha256(prefix)) if prefix else plain
        for _ in mixed:
            pass
        return WrittenSidecar(
            key, plain.length, plain.hexdigest(), mixed.hexdigest(), stream.version
        )

    def key_of(self, manifest: CheckpointManifest) -> str:
        """Where the sidecar of that manifest is, if it has one.

        :class:`DamageError` when the manifest names anything but a sidecar of its own.
        """
        if problem := self._layout.foreign_state(manifest):
            raise DamageError(problem, where=self._blobs.url)
        return manifest.state_object or self._layout.state(manifest.checkpoint_id)

    def _not_vouched(self, manifest: CheckpointManifest) -> str | None:
        """Whether a manifest says too little of its sidecar, or names somebody else's: how."""
        return self._layout.foreign_state(manifest) or unvouched(manifest)

    def _require_vouched(self, manifest: CheckpointManifest) -> None:
        if problem := self._not_vouched(manifest):
            raise DamageError(problem, where=self._blobs.url)

    def load(self, checkpoint_id: int, manifest: CheckpointManifest | None) -> bytes | None:
        """All bytes of a sidecar, verified when a manifest vouches for them."""
        if manifest is not None:
            self._require_vouched(manifest)
        key = self.key_of(manifest) if manifest else self._layout.state(checkpoint_id)
        collected = io.BytesIO()
        if manifest is None or (manifest.state_checksum is None and has_sidecar(manifest)):
            stream = self._blobs.stream(key, PIECE)
            if stream is None:
                return None
            for piece in stream:
                collected.write(piece)
        elif not has_sidecar(manifest) and self._needs_no_sidecar(manifest):
            return None
        elif problem := self.problem(manifest, collected):
            raise DamageError(problem, where=self._blobs.url)
        return collected.getvalue()

    def _needs_no_sidecar(self, manifest: CheckpointManifest) -> bool:
        """Whether inline state accounts for the checksum; another system may have mixed them."""
        if manifest.is_ours or manifest.state_checksum is None:
            return True
        return inline_checksum(manifest) == manifest.state_checksum

    def holds_sidecar(self, manifest: CheckpointManifest) -> bool:
        """Whether there are bytes of this checkpoint outside of its manifest."""
        self._require_vouched(manifest)
        return has_sidecar(manifest) or not self._needs_no_sidecar(manifest)

    def verified_stream(self, manifest: CheckpointManifest) -> Iterator[Buffer]:
        """The bytes in pieces; :class:`DamageError` after the last one if they were not right."""
        self._require_vouched(manifest)
        key = self.key_of(manifest)
        stream = self._blobs.stream(key, PIECE)
        if stream is None:
            raise DamageError(f"{_file(key)} referenced by checksum but not found")
        hasher = hashlib.sha256(checksum_prefix(manifest))
        yield from hashed_while_read(_at_most(stream, manifest.state_bytes), hasher)
        if manifest.state_checksum and (checksum := hasher.hexdigest()) != manifest.state_checksum:
            raise DamageError(_mismatch(manifest, key, checksum))

    def problem(
        self,
        manifest: CheckpointManifest,
        copy_to: io.BytesIO | None = None,
        *,
        believe: bool = False,
    ) -> str | None:
        """Why the state is not what the manifest says, or None when it is.

        ``believe`` spares reading what this handle has verified or written before.
        """
        expected = manifest.state_checksum
        if problem := self._not_vouched(manifest):
            return problem
        if expected is None:
            return self.size_problem(manifest)
        if not has_sidecar(manifest):
            checksum = inline_checksum(manifest)
            if checksum == expected:
                return None
            if manifest.is_ours:
                return _mismatch(manifest, None, checksum)
        if believe and self._is_verified(self.key_of(manifest), expected):
            return None
        return self._sidecar_problem(manifest, expected, copy_to)

    def pack_of(
        self, manifest: CheckpointManifest, operator: OperatorCheckpoint
    ) -> PackInPlace | None:
        """The pack that is an operator's state, of which only the index is read.

        None when the state is not a pack: it may be anybody's.
        """
        if not operator.external:
            inline = operator.decode_inline() or b""
            return PackInPlace.find(lambda at, length: inline[at : at + length], len(inline))
        key, start = self.key_of(manifest), operator.external_offset
        return PackInPlace.find(
            lambda at, length: self._blobs.read_range(key, start + at, length) or b"",
            operator.external_length,
        )

    def size_problem(self, manifest: CheckpointManifest) -> str | None:
        """What can be checked of a sidecar without reading it: that it has its length."""
        if problem := self._not_vouched(manifest):
            return problem
        if not has_sidecar(manifest):
            return None
        key = self.key_of(manifest)
        entry = self._blobs.stat(key)
        if entry is None:
            return f"{_file(key)} not found"
        if short := next(unrestorable(manifest, entry.size), None):
            return f"{short}: {_file(key)} has {entry.size} bytes"
        if manifest.state_bytes not in (None, entry.size):
            return f"{_file(key)} has {entry.size} bytes, the manifest says {manifest.state_bytes}"
        return None

    def _sidecar_problem(
        self, manifest: CheckpointManifest, expected: str, copy_to: io.BytesIO | None
    ) -> str | None:
        key = self.key_of(manifest)
        stream = self._blobs.stream(key, PIECE)
        if stream is None:
            return f"{_file(key)} referenced by checksum but not found"
        version, pieces = stream.version, _at_most(stream, manifest.state_bytes)
        if copy_to is not None:
            pieces = _copying(pieces, copy_to)
        hasher = hashlib.sha256(checksum_prefix(manifest))
        # another version of the reference hashed the sidecar alone, even with inline state
        other = hashlib.sha256() if manifest.has_inline_state and not manifest.is_ours else None
        plain = Hashing(pieces, other) if other else pieces
        length = digest_of(plain, hasher)
        if short := next(unrestorable(manifest, length), None):
            return f"{short}: {_file(key)} has {length} bytes"
        if manifest.state_bytes is not None and length > manifest.state_bytes:
            return f"{_file(key)} has more than the {manifest.state_bytes} bytes of its manifest"
        checksum = hasher.hexdigest()
        if checksum != expected and (other is None or other.hexdigest() != expected):
            return _mismatch(manifest, key, checksum)
        if manifest.state_bytes is not None and manifest.state_bytes != length:
            return f"{_file(key)} has {length} bytes, the manifest says {manifest.state_bytes}"
        self._verified[key] = (version, expected)
        return None

    def forget(self, keys: Iterable[str]) -> None:
        """Drop what is known of sidecars that are gone."""
        for key in keys:
            self._verified.pop(key, None)

    def _is_verified(self, key: str, expected: str) -> bool:
        """Whether this handle has verified or written exactly the version that is there."""
        known = self._verified.get(key)
        if known is None or known[1] != expected:
            return False
        entry = self._blobs.stat(key)
        return entry is not None and entry.version == known[0]

    def entries(self) -> dict[str, tuple[int, Entry]]:
        """Every sidecar in the store: key → (id, listing row)."""
        return {
            entry.key: (checkpoint_id, entry)
            for entry in self._blobs.entries(self._layout.states_prefix)
            if (checkpoint_id := self._layout.state_id(entry.key)) is not None
        }


def has_sidecar(manifest: CheckpointManifest) -> bool:
    """Whether a manifest refers to bytes outside of itself.

    Ours say so; a foreign one does when an operator is external, or when there is a checksum but
    nothing inline that it could be of.
    """
    if manifest.is_ours:
        return manifest.state_bytes is not None
    if manifest.has_external_state:
        return True
    return manifest.state_checksum is not None and not manifest.has_inline_state


def unvouched(manifest: CheckpointManifest) -> str | None:
    """What a manifest of ours lacks to vouch for its sidecar; None when nothing is missing.

    Ours always have length and checksum. Some versions of other systems leave them out; then
    nothing shows whether the bytes are right.
    """
    if not manifest.is_ours:
        return None
    if manifest.state_bytes is None:
        if manifest.has_external_state:
            return "an operator's state is outside of the manifest, which gives no length for it"
    elif manifest.state_checksum is None:
        return "the manifest has no checksum of its state"
    return None


def _at_most(pieces: Iterable[Buffer], expected: int | None) -> Iterator[Buffer]:
    """The pieces of a sidecar up to the one that makes it too large, if its length is known."""
    length = 0
    for piece in pieces:
        yield piece
        length += len(piece)
        if expected is not None and length > expected:
            return


def _copying(pieces: Iterable[Buffer], target: io.BytesIO) -> Iterator[Buffer]:
    for piece in pieces:
        target.write(piece)
        yield piece


def _file(key: str) -> str:
    return key.rsplit("/", 1)[-1]


def _mismatch(manifest: CheckpointManifest, key: str | None, actual: str) -> str:
    what = "inline state" if key is None else _file(key)
    if key is not None and manifest.has_inline_state:
        what = "mixed state"
    return f"{what} checksum mismatch: expected {manifest.state_checksum}, got {actual}"
