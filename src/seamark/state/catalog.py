"""The manifests of a state store: read, listed, published, and the pointer to the newest.

Tests: ``tests/state/test_conformance.py``.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import msgspec

from seamark._common.json_documents import UNREADABLE, is_sealed, seal, unseal
from seamark._common.logs import logger_named
from seamark._common.parallel import map_in_threads
from seamark._common.retry import TRIES, pruned_too_fast
from seamark.blobs.conditional_writes import Taken, create_once, put_once
from seamark.blobs.contract import Blobs, KeyExists, TagMismatch
from seamark.errors import (
    CheckpointNotFoundError,
    DamageError,
    FencedError,
    InvalidInputError,
    OutcomeUnknownError,
    RefusedError,
    SeamarkError,
    StoreUnavailableError,
)
from seamark.state.chains import lineage, newest_first
from seamark.state.layout import CheckpointId, CheckpointManifestV2, CheckpointPaths
from seamark.state.read_states import BrokenLine, ReadStates
from seamark.state.removal_mark import RemovalMark
from seamark.state.resolution import Resolution

log = logger_named(__name__)

MANIFEST_LIMIT: Final = 64 << 20
_POINTER_LIMIT: Final = 1 << 20
_NEEDS: Final = "needs.json"
"""In the folder of a checkpoint that is about to be published: what it needs of others."""
_NEEDS_LIMIT: Final = 1 << 20
_ABANDONED: Final = 3600.0
"""Seconds after which whoever was about to publish has died."""


class Catalog:
    """Which state checkpoints there are."""

    def __init__(
        self, blobs: Blobs, paths: CheckpointPaths, *, requires_hashes: bool = False
    ) -> None:
        self._blobs = blobs
        self._paths = paths
        self._requires_hashes = requires_hashes

    def ids(self) -> list[CheckpointId]:
        """Ids of every checkpoint with a manifest, oldest first.

        A listing in several requests may miss the only one that is left: none are listed twice.
        """
        prefix, name = self._paths.prefix, "manifest.json"
        folders = self._blobs.folders_holding(prefix, name)
        folders = folders or self._blobs.folders_holding(prefix, name)
        return sorted(
            checkpoint_id for name in folders if (checkpoint_id := parsed_id(name)) is not None
        )

    def load(self, checkpoint_id: CheckpointId) -> CheckpointManifestV2 | None:
        """The manifest of that id; :class:`DamageError` when it cannot be trusted."""
        blob = self._blobs.read(self._paths.manifest(checkpoint_id), MANIFEST_LIMIT)
        if blob is None:
            return None
        return self._parsed(checkpoint_id, blob.data)

    def _parsed(self, checkpoint_id: CheckpointId, data: bytes) -> CheckpointManifestV2:
        try:
            ours = is_sealed(data)
            manifest = CheckpointManifestV2.from_json(unseal(data) if ours else data)
            if not ours and "writer" in manifest.extra:
                raise DamageError("its own checksum is missing")
            if manifest.checkpoint_id != checkpoint_id:
                raise DamageError(f"it says checkpoint {manifest.checkpoint_id}")
            if (ours or self._requires_hashes) and (place := _without_hash(manifest)):
                raise DamageError(f"{place} has no SHA-256")
            if manifest.version != 2:
                raise DamageError(f"it has version {manifest.version}, not 2")
        except DamageError as error:
            key = self._paths.manifest(checkpoint_id)
            raise DamageError(f"{key}: {error.what}", where=self._blobs.url) from None
        return manifest

    def lineage(
        self,
        checkpoint_id: CheckpointId,
        known: ReadStates | None = None,
        until: Container[CheckpointId] = (),
    ) -> list[CheckpointManifestV2]:
        """A checkpoint and its parents, newest first, up to one that the caller has already.

        An error names the link that is missing. A manifest that is ``known`` is not read again;
        those that are read are added, and so is what is wrong with a line.
        """
        known = ReadStates() if known is None else known
        passed: list[CheckpointId] = []
        missing: CheckpointId | None = None

        def find(wanted: CheckpointId) -> CheckpointManifestV2 | None:
            nonlocal missing
            passed.append(wanted)
            if (broken := known.broken.pop(wanted, None)) is not None:
                lost = broken.missing
                if lost is None or self._held_or_loaded(lost, known) is None:
                    missing = lost
                    raise DamageError(broken.why)
            manifest = self._held_or_loaded(wanted, known)
            if manifest is None:
                manifest = self._looked_for_again(wanted, known)
            missing = wanted if manifest is None else None
            return manifest

        try:
            return lineage(find, checkpoint_id, until)
        except DamageError as error:
            broken = BrokenLine(error.what, missing)
            known.broken |= dict.fromkeys((i for i in passed if i != missing), broken)
            raise DamageError(error.what, where=self._blobs.url) from None

    @contextmanager
    def building_on(self, parent: CheckpointId) -> Iterator[None]:
        """:class:`CheckpointNotFoundError` for any error that comes of a parent that is gone.

        A removal takes the parent's own manifest before those that it builds on.
        """
        try:
            yield
        except (DamageError, StoreUnavailableError):
            if self._blobs.stat(self._paths.manifest(parent)) is not None:
                raise
            raise CheckpointNotFoundError(
                f"state checkpoint {parent}, the parent, is missing",
                where=self._blobs.url,
                hint="It may have been pruned meanwhile. Build on latest(), or give no parent.",
            ) from None

    @contextmanager
    def keeping(
        self, checkpoint_id: CheckpointId, needed: Collection[CheckpointId]
    ) -> Iterator[None]:
        """Have removals leave what a checkpoint needs that is about to be published.

        What it needs is to be looked for inside: what is there by then stays.
        """
        if not needed:
            yield
            return
        key = self._paths.checkpoint_dir(checkpoint_id) + _NEEDS
        data = msgspec.json.encode(sorted(str(each) for each in needed))
        try:
            self._blobs.create(key, data)
        except (KeyExists, OutcomeUnknownError):
            # a copy that died has left it, maybe long ago: it counts from now on
            left = self._blobs.read(key, _NEEDS_LIMIT)
            with suppress(Taken, TagMismatch):  # by another copy of this one, just now
                tag = None if left is None else left.tag
                put_once(self._blobs, key, data, tag, _NEEDS_LIMIT)
        try:
            yield
        finally:
            try:
                self._blobs.delete([key])
            except SeamarkError as error:
                log.warning("%s was left, and counts for an hour: %s", key, error)

    def wanted(self) -> set[CheckpointId]:
        """What those need that other processes are about to publish."""
        wanted: set[CheckpointId] = set()
        oldest: float | None = None
        for folder in self._blobs.folders_holding(self._paths.prefix, _NEEDS):
            if (checkpoint_id := parsed_id(folder)) is None:
                continue
            key = self._paths.checkpoint_dir(checkpoint_id) + _NEEDS
            try:
                entry, blob = self._blobs.stat(key), self._blobs.read(key, _NEEDS_LIMIT)
            except DamageError:
                continue  # nothing that a writer has left
            if entry is None or blob is None:
                continue  # published by now, so that its manifest is found
            if oldest is None:
                oldest = self._blobs.clock() - _ABANDONED
            if entry.modified > oldest:
                wanted.update(_ids_in(blob.data))
        return wanted

    def _held_or_loaded(
        self, checkpoint_id: CheckpointId, known: ReadStates
    ) -> CheckpointManifestV2 | None:
        manifest = known.manifests.get(checkpoint_id) or self.load(checkpoint_id)
        if manifest is not None:
            known.add(manifest)
        return manifest

    def _looked_for_again(
        self, checkpoint_id: CheckpointId, known: ReadStates
    ) -> CheckpointManifestV2 | None:
        """What is missing, if a removal has put it back; one that still runs may do so yet."""
        runs = RemovalMark(self._blobs, self._paths).is_set()
        manifest = self._held_or_loaded(checkpoint_id, known)
        if manifest is None and runs:
            raise StoreUnavailableError(
                f"state checkpoint {checkpoint_id} is being removed, or will be put back",
                where=self._blobs.url,
                hint="Try again in a moment.",
            )
        return manifest

    def resolved(self, checkpoint_id: CheckpointId, known: ReadStates) -> Resolution:
        """What a checkpoint consists of, worked out from the nearest parent that is known."""
        line = self.lineage(checkpoint_id, known, known.resolutions)
        return known.resolve(line[-1].parent_id if line else checkpoint_id, line)

    def latest(self) -> CheckpointManifestV2 | None:
        """The newest checkpoint; :class:`DamageError` when one that may be newer is damaged."""
        manifests = self.load_listed()
        readable = {i: m for i, m in manifests.items() if isinstance(m, CheckpointManifestV2)}
        newest = next(iter(newest_first(readable)), None)
        named = self.pointed_at() if len(readable) < len(manifests) else None
        for checkpoint_id, damaged in sorted(manifests.items(), reverse=True):
            if isinstance(damaged, DamageError) and (
                newest is None or checkpoint_id > newest or checkpoint_id == named
            ):
                raise damaged
        return None if newest is None else readable[newest]

    def load_listed(self) -> dict[CheckpointId, CheckpointManifestV2 | DamageError]:
        """Every manifest that there is; damage is a value here.

        What is removed between the listing and the reading makes it list again: newer ones may
        have been published in between.
        """
        for _ in range(TRIES):
            ids = self.ids()
            manifests = self.load_all(ids)
            if len(manifests) == len(ids):
                return manifests
        raise pruned_too_fast(self._blobs.url)

    def load_all(
        self, ids: Iterable[CheckpointId]
    ) -> dict[CheckpointId, CheckpointManifestV2 | DamageError]:
        """Several manifests at once; damage is a value here. What is gone is left out."""

        def one(checkpoint_id: CheckpointId) -> CheckpointManifestV2 | DamageError | None:
            try:
                return self.load(checkpoint_id)
            except DamageError as error:
                return error.as_value()

        listed = list(ids)
        threads = max(1, self._blobs.parallel_reads)
        manifests = zip(listed, map_in_threads(one, listed, threads, "seamark-read"), strict=True)
        return {checkpoint_id: m for checkpoint_id, m in manifests if m is not None}

    def publish(self, manifest: CheckpointManifestV2, writer: str) -> None:
        """Make a checkpoint exist: its manifest once, then the pointer."""
        stamped = manifest.replace(extra={**manifest.extra, "writer": writer})
        try:
            # what a caller has given is read back once; entries are made here and checked already
            CheckpointManifestV2.from_json(stamped.replace(operators={}).to_json())
            document = stamped.to_json()
        except (TypeError, ValueError, RecursionError, DamageError) as error:
            raise InvalidInputError(f"the manifest cannot be written: {error}") from None
        self.publish_bytes(manifest.checkpoint_id, seal(document))

    def publish_bytes(self, checkpoint_id: CheckpointId, data: bytes) -> None:
        """The same with the manifest's bytes as they are, for a copy."""
        key = self._paths.manifest(checkpoint_id)
        if len(data) > MANIFEST_LIMIT:
            raise RefusedError(
                f"the manifest of state checkpoint {checkpoint_id} has {len(data)} bytes, and "
                f"{MANIFEST_LIMIT} is the most",
                where=self._blobs.url,
                hint="Use fewer partitions.",
            )
        try:
            create_once(self._blobs, key, data, MANIFEST_LIMIT)
        except Taken:
            raise FencedError(
                f"state checkpoint {checkpoint_id} was written by another writer",
                where=self._blobs.url,
                hint="Begin a new one: every checkpoint has an id of its own.",
            ) from None
        try:
            self._advance_latest(checkpoint_id)
        except SeamarkError as error:
            log.warning(
                "state checkpoint %s is there, its pointer is not: %s", checkpoint_id, error
            )

    def put_back(self, manifest: CheckpointManifestV2) -> None:
        """Write a manifest again that was removed, unless another process has."""
        document = manifest.to_json()
        data = seal(document) if "writer" in manifest.extra else document
        with suppress(Taken):
            create_once(
                self._blobs, self._paths.manifest(manifest.checkpoint_id), data, MANIFEST_LIMIT
            )

    def raw(self, checkpoint_id: CheckpointId) -> bytes | None:
        """The manifest's bytes as they are stored, verified."""
        blob = self._blobs.read(self._paths.manifest(checkpoint_id), MANIFEST_LIMIT)
        if blob is None:
            return None
        self._parsed(checkpoint_id, blob.data)
        return blob.data

    def pointed_at(self) -> CheckpointId | None:
        """What ``_latest`` names: a hint, and None when it is missing or makes no sense."""
        blob = self._blobs.read(self._paths.latest_pointer(), _POINTER_LIMIT)
        return parsed_id(blob.data.decode("ascii", "replace").strip()) if blob else None

    def _advance_latest(self, checkpoint_id: CheckpointId) -> None:
        """Move the pointer forward, never back."""
        key, data = self._paths.latest_pointer(), str(checkpoint_id).encode()
        for _ in range(8):
            blob = self._blobs.read(key, _POINTER_LIMIT)
            try:
                if blob is None:
                    self._blobs.create(key, data)
                    return
                named = parsed_id(blob.data.decode("ascii", "replace").strip())
                if named is None or self._follows(checkpoint_id, named):
                    self._blobs.replace(key, data, blob.tag, durable=False)
                return
            except (KeyExists, TagMismatch):
                continue

    def _follows(self, checkpoint_id: CheckpointId, named: CheckpointId) -> bool:
        """Whether the pointer should move on; a clock that is behind does not hold it back."""
        if named <= checkpoint_id:
            return named < checkpoint_id
        try:
            there = {i: m for i in (named, checkpoint_id) if (m := self.load(i)) is not None}
        except DamageError:
            return False
        return newest_first(there)[:1] == [checkpoint_id]


def _without_hash(manifest: CheckpointManifestV2) -> str | None:
    """An object that nothing could verify; Seamark writes none, so its entry was changed."""
    for operator, state in manifest.operators.items():
        for entry in state.partitions:
            if entry.sha256 is None:
                return f"operator '{operator}' partition {entry.partition_id}"
    return None


def _ids_in(data: bytes) -> set[CheckpointId]:
    """The ids in a list of them; what else there may be is nobody's need."""
    try:
        texts = msgspec.json.decode(data, type=list[str])
    except UNREADABLE:
        return set()
    return {found for text in texts if (found := parsed_id(text)) is not None}


def parsed_id(text: str) -> CheckpointId | None:
    """The id that a text is, or None when it is none."""
    try:
        return CheckpointId.parse(text)
    except InvalidInputError:
        return None
