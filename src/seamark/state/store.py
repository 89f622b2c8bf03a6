"""The state of many operators and partitions: written in parallel, chained, read back verified.

Tests: ``tests/state/test_conformance.py``.
"""

from __future__ import annotations

import builtins
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Self

from seamark._common.checks import U64_MAX, check_duration, check_number, check_prefix
from seamark._common.text import default_writer
from seamark.blobs.addresses import open_blobs
from seamark.blobs.conditional_writes import ensure_conditional_writes
from seamark.blobs.contract import Blobs, Buffer, Entry
from seamark.errors import (
    CheckpointNotFoundError,
    DamageError,
    InvalidInputError,
    StoreUnavailableError,
)
from seamark.state import cleanup as upkeep
from seamark.state.catalog import Catalog
from seamark.state.chains import LONGEST_CHAIN, Chain, Link, PartitionKey
from seamark.state.cleanup import Removal, StateVerification
from seamark.state.layout import CheckpointId, CheckpointManifestV2, CheckpointPaths
from seamark.state.lcb1 import BATCH_LIMIT
from seamark.state.read_states import ReadStates
from seamark.state.reader import PartitionState, read_chain, read_chains, stream_link
from seamark.state.removals import StatePlace
from seamark.state.resolution import Resolution
from seamark.state.task import PACK_BELOW, PACK_BYTES, StateTask
from seamark.state.writer import StateWriter

if TYPE_CHECKING:
    from obstore.store import ObjectStore

HOUR: Final = 3600.0
_OWN_TASK: Final = "main"
_PLAUSIBLE_MS: Final = 1 << 47
"""A pointer to an id of a later year than 6000 is damaged or hostile, and not followed."""


class StateStore:
    """State checkpoints below a prefix of a disk or object store. Safe from several threads.

    >>> store = StateStore("memory://")
    >>> with store.begin(epoch=1) as writer:
    ...     writer.put("window-agg", 0, b"all of it")
    ...     first = writer.commit().checkpoint_id
    >>> with store.begin(epoch=2, parent=first) as writer:
    ...     writer.put("window-agg", 0, b"changes", is_delta=True)
    ...     second = writer.commit().checkpoint_id
    >>> store.restore(second, "window-agg", 0)
    PartitionState(snapshot=b'all of it', deltas=[b'changes'])
    """

    def __init__(
        self,
        where: str | os.PathLike[str] | Blobs | ObjectStore,
        *,
        prefix: str = "checkpoints/",
        storage_options: Mapping[str, Any] | None = None,
        parallelism: int = 4,
        longest_chain: int = LONGEST_CHAIN,
        pack_below: int = PACK_BELOW,
        pack_bytes: int = PACK_BYTES,
        requires_hashes: bool = False,
    ) -> None:
        """With ``requires_hashes`` a checkpoint of another system is damaged if an object of it has
        no SHA-256; otherwise such an object is held against its size alone.
        """
        self._parallelism = check_number("parallelism", parallelism, 1, 1024)
        self._longest = check_number("longest_chain", longest_chain, 0, 10_000)
        self._packing = {
            "pack_below": check_number("pack_below", pack_below, 0, BATCH_LIMIT // 2),
            "pack_bytes": check_number("pack_bytes", pack_bytes, 1, BATCH_LIMIT // 2),
        }
        paths = CheckpointPaths(check_prefix(prefix))
        blobs = open_blobs(where, storage_options)
        catalog = Catalog(blobs, paths, requires_hashes=requires_hashes)
        self._place = StatePlace(blobs, paths, catalog)
        self._published: dict[CheckpointId, float] = {}

    @property
    def url(self) -> str:
        """Where it is, without secrets."""
        return self._place.blobs.url

    # writing

    def begin(
        self,
        epoch: int,
        *,
        parent: CheckpointId | None = None,
        rebase: bool = False,
        checkpoint_id: CheckpointId | None = None,
    ) -> StateWriter:
        """Start a checkpoint: a full one, or one that builds on ``parent``.

        With a parent, partitions that are not put stay as they are. After ``longest_chain``
        parents, or with ``rebase``, the new checkpoint names all objects itself instead of naming
        a parent; nothing that has not changed is written again. :class:`CheckpointNotFoundError`,
        also of the commit, when the parent is gone.
        """
        check_number("epoch", epoch, 0, U64_MAX)
        blobs, paths, catalog = self._place
        line: builtins.list[CheckpointManifestV2] = []
        if parent is not None:
            with catalog.building_on(parent):
                line = catalog.lineage(parent)
                # who wrote it may have died between showing it and making it durable
                blobs.make_durable(paths.manifest(parent))
        new = checkpoint_id or self._next_id(parent)
        if parent is not None and new <= parent:
            raise InvalidInputError(f"checkpoint {new} is not newer than its parent {parent}")

        def publish(manifest: CheckpointManifestV2) -> None:
            with catalog.keeping(new, () if parent is None else (parent,)):
                if parent is not None:
                    with catalog.building_on(parent):
                        catalog.lineage(parent)  # it may have been pruned in the meantime
                self._note_published(new)
                catalog.publish(manifest, default_writer())

        return StateWriter(
            new,
            epoch,
            line,
            self._task(new, _OWN_TASK),
            publish,
            rebase=rebase,
            longest_chain=self._longest,
        )

    def _note_published(self, checkpoint_id: CheckpointId) -> None:
        now = time.monotonic()
        for earlier, at in list(self._published.items()):  # in the order of time
            if at > now - HOUR:
                break
            self._published.pop(earlier, None)
        self._published[checkpoint_id] = now

    def published_lately(self) -> set[CheckpointId]:
        """The checkpoints that this handle has published within the last hour."""
        oldest = time.monotonic() - HOUR
        return {state for state, at in list(self._published.items()) if at > oldest}

    def modified(self, checkpoint_id: CheckpointId) -> float | None:
        """When a checkpoint was published here, by the store's clock; None when it is not there."""
        entry = self._place.blobs.stat(self._place.paths.manifest(checkpoint_id))
        return None if entry is None else entry.modified

    def _next_id(self, parent: CheckpointId | None) -> CheckpointId:
        """An id after all known ones, so that a slow clock puts nothing between them."""
        named = None
        with suppress(StoreUnavailableError, DamageError):  # it is only a hint
            named = self._place.catalog.pointed_at()
        known = [] if named is None or named.timestamp_ms >= _PLAUSIBLE_MS else [named]
        return CheckpointId.after(max([*known, *([parent] if parent else [])], default=None))

    def task(self, checkpoint_id: CheckpointId, name: str) -> StateTask:
        """One process's part of a checkpoint that another process has started.

        Its receipt goes to :meth:`StateWriter.add`. Give each task a name of its own.
        """
        if name == _OWN_TASK:
            raise InvalidInputError(f"the name {name!r} is the writer's own")
        return self._task(checkpoint_id, name)

    def _task(self, checkpoint_id: CheckpointId, name: str) -> StateTask:
        place = self._place
        ensure_conditional_writes(place.blobs)
        return StateTask(
            place.blobs,
            place.paths,
            checkpoint_id,
            name,
            parallelism=self._parallelism,
            **self._packing,
        )

    # reading

    def list(self) -> list[CheckpointId]:
        """Ids of all checkpoints, oldest first."""
        return self._place.catalog.ids()

    def load(self, checkpoint_id: CheckpointId) -> CheckpointManifestV2:
        """The manifest of a checkpoint."""
        manifest = self._place.catalog.load(checkpoint_id)
        if manifest is None:
            raise upkeep.no_state(checkpoint_id, self.url)
        return manifest

    def sizes(self, ids: Iterable[CheckpointId]) -> dict[CheckpointId, int]:
        """Bytes that each checkpoint names; what is gone or damaged is left out."""
        manifests = self._place.catalog.load_all(ids)
        return {
            i: m.total_size_bytes
            for i, m in manifests.items()
            if isinstance(m, CheckpointManifestV2)
        }

    def latest(self) -> CheckpointManifestV2 | None:
        """The newest checkpoint by epoch and parent, or None. Reads every manifest.

        :class:`DamageError` when one that may be newer is damaged.
        """
        return self._place.catalog.latest()

    def partitions(
        self, checkpoint_id: CheckpointId, known: ReadStates | None = None
    ) -> dict[PartitionKey, Chain]:
        """What each partition consists of: its snapshot and the deltas after it."""
        return self._resolved(checkpoint_id, known).chains()

    def new_links(
        self, checkpoint_id: CheckpointId, known: ReadStates
    ) -> Iterator[tuple[PartitionKey, Link]]:
        """The objects that a checkpoint consists of, without those given before in one pass."""
        return known.given.new_in(self._resolved(checkpoint_id, known))

    def restored_bytes(self, checkpoint_id: CheckpointId, known: ReadStates | None = None) -> int:
        """Bytes of all objects that a checkpoint consists of, those of its parents included."""
        return self._resolved(checkpoint_id, known).size_bytes

    def _resolved(self, checkpoint_id: CheckpointId, known: ReadStates | None) -> Resolution:
        """What a checkpoint consists of; :class:`DamageError` when it cannot be restored."""
        known = ReadStates() if known is None else known
        if checkpoint_id not in known.manifests:
            known.add(self.load(checkpoint_id))
        with self._being_read(checkpoint_id):
            resolution = self._place.catalog.resolved(checkpoint_id, known)
            if problem := resolution.problem:
                raise DamageError(problem, where=self.url)
            return resolution

    @contextmanager
    def _being_read(self, checkpoint_id: CheckpointId) -> Iterator[None]:
        """Distinguish damage from removal in the meantime: that removes the manifest first."""
        try:
            yield
        except (DamageError, StoreUnavailableError) as error:
            blobs, paths, _ = self._place
            if blobs.stat(paths.manifest(checkpoint_id)) is not None:
                raise
            raise CheckpointNotFoundError(
                f"state checkpoint {checkpoint_id} was removed while it was being read",
                where=error.where or self.url,
            ) from None

    def restore(self, checkpoint_id: CheckpointId, operator: str, partition: int) -> PartitionState:
        """The state of one partition, verified."""
        chain = self._chain(checkpoint_id, operator, partition)
        with self._being_read(checkpoint_id):
            return read_chain(self._place.blobs, self._place.paths, chain)

    def restore_all(
        self, checkpoint_id: CheckpointId, known: ReadStates | None = None
    ) -> Iterator[tuple[str, int, PartitionState]]:
        """Every partition of every operator, read side by side, in order, verified.

        Who restores several on top of each other, oldest first, gives each call the same ``known``:
        a partition with the same snapshot as before is left out.
        """
        known = ReadStates() if known is None else known
        chains = sorted(known.successive.new_in(self._resolved(checkpoint_id, known)))
        blobs, paths, _ = self._place
        with self._being_read(checkpoint_id):
            for (operator, partition), state in read_chains(
                blobs, paths, chains, self._parallelism
            ):
                yield operator, partition, state

    def stream(
        self, checkpoint_id: CheckpointId, operator: str, partition: int
    ) -> Iterator[tuple[bool, Iterator[Buffer]]]:
        """The objects of one partition as (is_delta, pieces), for state larger than memory.

        Use nothing of an object before its end: it is verified there.
        """
        for link in self._chain(checkpoint_id, operator, partition):
            yield link.entry.is_delta, self._streamed(checkpoint_id, link)

    def _streamed(self, checkpoint_id: CheckpointId, link: Link) -> Iterator[Buffer]:
        with self._being_read(checkpoint_id):
            yield from stream_link(self._place.blobs, self._place.paths, link)

    def _chain(self, checkpoint_id: CheckpointId, operator: str, partition: int) -> Chain:
        chain = self.partitions(checkpoint_id).get((operator, partition))
        if chain is None:
            raise CheckpointNotFoundError(
                f"state checkpoint {checkpoint_id} has no partition {partition} of operator"
                f" {operator!r}",
                where=self.url,
            )
        return chain

    # keeping house

    def verify(
        self,
        checkpoint_id: CheckpointId,
        *,
        read_data: bool = True,
        known: ReadStates | None = None,
    ) -> StateVerification:
        """Check a checkpoint, its parents and all objects; without ``read_data`` only presence.

        Who verifies several gives each call the same ``known``: what they share is read once.
        """
        return upkeep.verify(
            self._place,
            checkpoint_id,
            read_data=read_data,
            parallelism=self._parallelism,
            known=ReadStates() if known is None else known,
        )

    def delete(self, checkpoint_id: CheckpointId) -> None:
        """Remove a checkpoint. Objects that another one refers to stay; a parent is refused."""
        for _, error in self.delete_each([checkpoint_id]):
            if error is not None:
                raise error

    def delete_each(self, doomed: Iterable[CheckpointId]) -> Iterator[Removal]:
        """The same for many, in this order, with the error of each; None for one that is gone.

        Every manifest is read once, however many are to go.
        """
        return upkeep.delete_each(self._place, doomed)

    def prune(self, keep: int) -> int:
        """Keep the newest ``keep`` whole checkpoints and all that they refer to."""
        check_number("keep", keep, 1, U64_MAX)
        return upkeep.prune(self._place, keep)

    def cleanup_orphans(self, min_age: float | timedelta = HOUR) -> int:
        """Remove what unfinished checkpoints have left, when it is old enough."""
        return upkeep.cleanup_orphans(self._place, check_duration("the age of an orphan", min_age))

    def plan_cleanup(self, min_age: float | timedelta = HOUR) -> builtins.list[Entry]:
        """What :meth:`cleanup_orphans` would remove. Changes nothing."""
        return upkeep.plan_cleanup(self._place, check_duration("the age of an orphan", min_age))

    def copy(
        self,
        checkpoint_id: CheckpointId,
        target: StateStore,
        known: ReadStates | None = None,
    ) -> int:
        """Copy a checkpoint and all that it builds on; how many objects were written.

        Every byte is verified on the way. Repeat it after an interruption: what is there already
        is only verified. Who copies several gives each call the same ``known``: what was copied is
        noted there, and not verified again for those that build on it.
        """
        known = ReadStates() if known is None else known
        if checkpoint_id not in known.manifests:
            known.add(self.load(checkpoint_id))
        with self._being_read(checkpoint_id):
            return upkeep.copy(
                self._place, target._place, checkpoint_id, known, parallelism=self._parallelism
            )

    def close(self) -> None:
        """Give back what is held."""
        self._place.blobs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<StateStore {self.url} {self._place.paths.prefix}>"
