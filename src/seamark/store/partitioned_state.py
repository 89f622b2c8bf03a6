"""Partitioned state: what a checkpoint points at, if that is whole, and what none points at."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from seamark.blobs.contract import Blobs, Entry
from seamark.errors import CheckpointNotFoundError, DamageError, RefusedError
from seamark.manifest import CheckpointManifest
from seamark.state import CheckpointId, ReadStates, StateStore
from seamark.store.ownership import Ownership
from seamark.store.references import STATE_PREFIX, References, named_state

_SETTLED: Final = 3600.0
"""Seconds after which nobody can still be about to point at a state checkpoint."""


def own_state(manifest: CheckpointManifest) -> CheckpointId | None:
    """As :func:`named_state`; None for a manifest of another system, whose path is its own."""
    return named_state(manifest) if manifest.is_ours else None


class PartitionedOrphans(NamedTuple):
    """Partitioned state that can be removed."""

    unnamed: list[Entry]
    """Whole state checkpoints that no checkpoint points at; the key of each is its folder."""
    objects: list[Entry]
    """What unfinished state checkpoints have left."""
    left_alone: tuple[str, ...]
    """Why the rest was not looked at."""


class PartitionedStates:
    """The partitioned state of all checkpoints of one store."""

    def __init__(self, blobs: Blobs, ownership: Ownership, references: References) -> None:
        # what a checkpoint of ours points at counts as verified by its hashes
        self.states = StateStore(blobs, prefix=STATE_PREFIX, requires_hashes=True)
        self._ownership = ownership
        self._references = references
        self._blobs = blobs
        self._verified: set[str] = set()
        self._may_be_left = True
        self._has_looked = False

    # checking and copying what one checkpoint names

    def problem(
        self,
        manifest: CheckpointManifest,
        *,
        believe: bool = False,
        read_data: bool = True,
        seen: ReadStates | None = None,
    ) -> str | None:
        """What is wrong with the partitioned state of a checkpoint, or None.

        ``believe`` accepts what was verified before. Without ``read_data`` it only has to be there.
        What was ``seen`` in the same pass is not read again; what is read now is added.
        """
        path = manifest.state_checkpoint
        if path is None or not manifest.is_ours or (believe and path in self._verified):
            return None
        state = named_state(manifest)
        if state is None:
            return None
        if issues := self.states.verify(state, read_data=read_data, known=seen).issues:
            return f"{path}: {'; '.join(issues)}"
        if read_data:
            self._verified.add(path)
        return None

    def sizes(self, manifests: Iterable[CheckpointManifest]) -> dict[int, tuple[int, str | None]]:
        """Bytes of the partitioned state of each, by checkpoint id, and why none if it is damaged.

        Checkpoints that have none are left out.
        """
        named: dict[int, CheckpointId] = {}
        sizes: dict[int, tuple[int, str | None]] = {}
        for manifest in manifests:
            try:
                state = own_state(manifest)
            except DamageError as error:
                sizes[manifest.checkpoint_id] = 0, error.what
                continue
            if state is not None:
                named[manifest.checkpoint_id] = state
        whole = self.states.sizes(sorted(set(named.values()))) if named else {}
        for checkpoint_id, state in named.items():
            lost = f"{STATE_PREFIX}{state} is missing or damaged" if state not in whole else None
            sizes[checkpoint_id] = whole.get(state, 0), lost
        return sizes

    def copy(
        self, manifest: CheckpointManifest, target: PartitionedStates, known: ReadStates
    ) -> int:
        """Copy the partitioned state of a checkpoint; its size in bytes.

        ``known`` is what this copy of a store has read and copied so far.
        """
        state = own_state(manifest)
        if state is None:
            return 0
        self.states.copy(state, target.states, known)
        return self.states.restored_bytes(state, known)

    # removing what none names

    def drop_pruned(
        self, named: Collection[CheckpointId], *, pruned: bool
    ) -> tuple[int, tuple[str, ...]]:
        """Remove what only pruned checkpoints pointed at; how many, and why others were left.

        ``named`` is what those that were pruned just now pointed at. When none were, only the first
        call looks for what an earlier prune has left.
        """
        if not self._may_be_left or (self._has_looked and not pruned):
            return 0, ()
        listed = self.states.list()
        self._has_looked = True
        try:
            doomed = self._unnamed(listed, None, named)
        except DamageError as error:
            return 0, (_unknown(error),)
        removed, left_alone = self._delete(doomed)
        self._may_be_left = len(listed) > removed
        return removed, left_alone

    def _delete(self, doomed: list[CheckpointId]) -> tuple[int, tuple[str, ...]]:
        """Remove those that can be; how many, and why others were left alone."""
        removed, left_alone = 0, []
        try:
            # a parent can only go after those that build on it
            for state, why in self.states.delete_each(reversed(doomed)):
                if why is None:
                    removed += 1
                elif not isinstance(why, CheckpointNotFoundError):  # another process was faster
                    left_alone.append(f"{STATE_PREFIX}{state} was left alone: {why.what}")
        except DamageError as error:
            left_alone.append(_unknown(error))
        except RefusedError as error:  # another process removes some just now
            left_alone.append(f"partitioned state was left alone: {error.what}")
        return removed, tuple(left_alone)

    def expected_of(self, manifest: CheckpointManifest) -> CheckpointId | None:
        """What a manifest points at, if that makes sense; a prune then looks for more of it."""
        try:
            state = named_state(manifest)
        except DamageError:
            return None
        self._may_be_left |= state is not None
        return state

    def orphans(self, min_age: float) -> PartitionedOrphans:
        """What can be removed of that age in seconds. Changes nothing."""
        left_alone = []
        unnamed: list[CheckpointId] = []
        objects: list[Entry] = []
        try:
            objects = self.states.plan_cleanup(min_age)
        except RefusedError as error:
            left_alone.append(f"partitioned state was left alone: {error.what}")
        try:
            unnamed = self._unnamed(self.states.list(), min_age)
        except DamageError as error:
            left_alone.append(_unknown(error))
        sizes = self.states.sizes(unnamed) if unnamed else {}
        entries = [self._entry(state, sizes.get(state)) for state in unnamed]
        return PartitionedOrphans(entries, objects, tuple(left_alone))

    def _entry(self, state: CheckpointId, size: int | None) -> Entry:
        folder = f"{STATE_PREFIX}{state}/"
        if size is None:  # its manifest is damaged
            size = sum(entry.size for entry in self._blobs.entries(folder))
        return Entry(folder, size, state.timestamp_ms / 1000, None)

    def remove_orphans(self, min_age: float) -> tuple[int, tuple[str, ...]]:
        """Remove it; how many, and why the rest was left."""
        try:
            removed, why = self._delete(self._unnamed(self.states.list(), min_age))
        except DamageError as error:
            removed, why = 0, (_unknown(error),)
        left_alone = [*why]
        try:
            removed += self.states.cleanup_orphans(min_age)
        except RefusedError as error:
            left_alone.append(f"partitioned state was left alone: {error.what}")
        return removed, tuple(left_alone)

    def _unnamed(
        self,
        listed: list[CheckpointId],
        min_age: float | None,
        pruned: Collection[CheckpointId] = (),
    ) -> list[CheckpointId]:
        """Those listed that no checkpoint points at, oldest first.

        With ``min_age`` nothing that is younger, in seconds; without, all that nobody can be about
        to point at. They are listed before the manifests: what is saved in between is then seen to
        be in use. :class:`DamageError` when a manifest cannot be read.
        """
        if not listed:
            return []
        in_use = self._references.in_use().states
        newest = None
        if min_age is None and self._ownership.claim_held is not None:
            # ids are in the order of time: a newer one may be another writer's, about to be used
            newest = max(in_use, default=None)
        unused = [state for state in listed if state not in in_use]
        # what this handle has published, a save of another thread may be about to point at
        open_to_all = {*unused} - self.states.published_lately()
        old = self._older_than(_SETTLED if min_age is None else min_age, open_to_all)
        return [
            state
            for state in unused
            if state in pruned
            or state in old
            or (newest is not None and state < newest and state in open_to_all)
        ]

    def _older_than(self, age: float, states: Collection[CheckpointId]) -> set[CheckpointId]:
        """Those that were both begun and published so many seconds ago; a copy keeps its id."""
        begun = CheckpointId.before(time.time() - age)
        states = [state for state in states if state < begun]
        if not states:
            return set()
        latest = self._blobs.clock() - age
        times = {state: self.states.modified(state) for state in states}
        return {state for state, at in times.items() if at is None or at <= latest}

    def is_missing(self, manifest: CheckpointManifest) -> bool:
        """Whether a manifest that is about to be saved points at a state that was removed."""
        state = self.expected_of(manifest)
        return state is not None and self.states.modified(state) is None


def _unknown(error: DamageError) -> str:
    return f"partitioned state was left alone, as nobody knows who needs it: {error.what}"
