"""The model of a store: what two writers, time and bad disks may make of it, and what never.

It keeps no bytes in order and knows no protocol. It remembers what was decided, by which
generation, what was taken over, pruned, superseded, pinned and damaged, and says from that which
checkpoint recovery must choose and which ones a prune must leave alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from seamark import CheckpointManifest

HOURS_AGO = 1_000
AHEAD = 4_000_000_000_000
"""Timestamps far away from now on both sides, so that no rule depends on the clock."""


@dataclass
class Record:
    """One id that somebody decided, or that at least holds bytes which cannot be read."""

    checkpoint_id: int
    generation: int = 0
    manifest: CheckpointManifest | None = None
    """None for a tombstone that was damaged: nobody can tell any more that it was one."""
    data: bytes = b""
    disk: bytes | None = None
    """What is really there after damage; None when it was removed."""
    state_key: str | None = None
    state: bytes | None = None
    state_disk: bytes | None = None
    objects: dict[str, bytes] = field(default_factory=dict)
    """Shared objects that it names, and what must be in them."""
    lost: set[str] = field(default_factory=set)
    """Objects that were damaged or removed, of all checkpoints."""
    pruned: bool = False
    is_reborn: bool = False
    """All traces of an earlier one had been lost; a handle may still remember that one."""

    @property
    def is_readable(self) -> bool:
        return self.manifest is not None and self.disk == self.data

    @property
    def is_whole(self) -> bool:
        whole = self.state == self.state_disk and not self.lost.intersection(self.objects)
        return self.is_readable and whole

    @property
    def parent(self) -> int | None:
        if not self.is_readable or self.manifest is None or not self.manifest.is_incremental:
            return None
        return self.manifest.parent_id

    @property
    def timestamp_ms(self) -> int:
        return self.manifest.timestamp_ms if self.manifest and self.is_readable else 0


@dataclass
class Model:
    """Facts that no operation may contradict."""

    records: dict[int, Record] = field(default_factory=dict)
    generation: int = 0
    released: bool = True
    fences: list[tuple[int, int]] = field(default_factory=list)
    tombstone: int | None = None
    voided: set[int] = field(default_factory=set)
    superseded: list[tuple[int, int]] = field(default_factory=list)
    pins: dict[str, tuple[int, bool]] = field(default_factory=dict)
    """name → (id, whether it has not expired)"""
    lost: set[str] = field(default_factory=set)
    """Shared objects that were damaged or removed behind everybody's back."""
    boundary: int = 0
    has_decided: bool = False
    pointer: int = 0
    pointer_damaged: bool = False
    clock: int = 0
    """Grows with every operation that ended, so that an interrupted one can tell that it was."""

    # what an id is

    def listed(self) -> list[Record]:
        """Everything with bytes under its manifest's key that was not removed, newest first."""
        there = (r for r in self.records.values() if not r.pruned and r.disk is not None)
        return sorted(there, key=lambda r: r.checkpoint_id, reverse=True)

    def counts(self, record: Record) -> bool:
        """Whether its writer had not been replaced when it was decided (I4)."""
        required = max((by for at, by in self.fences if at <= record.checkpoint_id), default=0)
        return record.generation >= required and record.checkpoint_id not in self.voided

    def is_late(self, record: Record) -> bool:
        """Whether it can be seen to come from a writer that had been replaced."""
        return record.is_readable and not self.counts(record)

    def is_there(self, record: Record | None) -> bool:
        """Whether a reader finds a checkpoint: readable and in time, or damaged."""
        if record is None or record.pruned or record.disk is None:
            return False
        return self.counts(record) or not record.is_readable

    def is_superseded(self, checkpoint_id: int) -> bool:
        return any(first <= checkpoint_id <= last for first, last in self.superseded)

    def is_valid(self, record: Record) -> bool:
        """Undamaged, and so is every checkpoint that it builds on (I1)."""
        for link in self._chain(record):
            if link is None or link.pruned or not link.is_whole or not self.counts(link):
                return False
        return True

    def _chain(self, record: Record) -> Iterator[Record | None]:
        yield record
        while (parent := record.parent) is not None:
            found = self.records.get(parent)
            yield found
            if found is None:
                return
            record = found

    def is_usable(self, record: Record) -> bool:
        return self.is_valid(record) and not self.is_superseded(record.checkpoint_id)

    # what must follow

    def newest_usable(self) -> int | None:
        """What recovery must choose (I3)."""
        return next((r.checkpoint_id for r in self.listed() if self.is_usable(r)), None)

    def retained(self, last: int | None, since_ms: int | None) -> set[int]:
        """What a prune by this rule leaves, and all that these need (I6)."""
        listed = self.listed()
        usable = [r for r in listed if self.is_usable(r)][: last or 1]
        if not usable:
            return {r.checkpoint_id for r in listed}
        pinned = self.pinned()
        kept = {
            r.checkpoint_id
            for r in listed
            if r in usable
            or r.checkpoint_id in pinned
            or (since_ms is not None and r.timestamp_ms >= since_ms)
            or r.checkpoint_id > usable[-1].checkpoint_id
        }
        return self.with_parents(kept)

    def pinned(self) -> set[int]:
        return {at for at, lasts in self.pins.values() if lasts}

    def with_parents(self, ids: set[int]) -> set[int]:
        """These and whatever they build on, as far as it is there."""
        needed: set[int] = set()
        for record in self.listed():
            for link in self._chain(record) if record.checkpoint_id in ids else ():
                if link is None or link.pruned or link.disk is None:
                    break
                needed.add(link.checkpoint_id)
        return needed

    def prune_to(self, kept: set[int]) -> set[int]:
        """Note that everything listed but ``kept`` is gone; which ids that were."""
        gone = {r.checkpoint_id for r in self.listed()} - kept
        self.boundary = max([self.boundary, *gone])
        for r in self.records.values():
            if gone and r.checkpoint_id <= self.boundary and r.checkpoint_id not in kept:
                r.pruned = True
        return gone

    def was_never_used(self) -> bool:
        """Whether nobody has ever decided anything, in time or too late."""
        return not self.records and not self.has_decided

    def next_id_above(self) -> int:
        """Every id that was decided is at most this; one that vanished without a trace is not."""
        used = [r.checkpoint_id for r in self.records.values() if r.disk is not None or r.pruned]
        named = 0 if self.pointer_damaged else self.pointer
        return max([self.boundary, named, *used])
