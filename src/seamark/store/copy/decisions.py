"""What a copy between two stores has to do, and when it must not: decided before any write.

Tests: ``tests/store/test_copying.py``.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from seamark._common.checks import U64_MAX
from seamark._common.json_documents import is_sealed, seal, unseal
from seamark.errors import RefusedError
from seamark.manifest import CheckpointManifest
from seamark.manifest.decisions import decision_of
from seamark.manifest.facts import SharedObject
from seamark.store.manifests import StoredManifest
from seamark.store.owner import Owner, Pin, Standing, covers_any, live_pins, standing
from seamark.store.validation import Evidence, state_evidence

NEW_STORE: Final = "Nothing was copied. Copy to a store of its own."


def identity(manifest: CheckpointManifest) -> bytes:
    """A digest of all that never changes once a checkpoint is decided, wherever it is kept."""
    return hashlib.sha256(decision_of(manifest).encode()).digest()


def translated(stored: StoredManifest, named: object) -> bytes:
    """The manifest's bytes, but for the name of its sidecar. All else stays as it is stored."""
    if stored.manifest.state_object == named or not is_sealed(stored.data):
        return stored.data
    members: dict[str, Any] = msgspec.json.decode(unseal(stored.data), type=dict[str, msgspec.Raw])
    members.pop("state_object", None)
    if named is not None:
        members["state_object"] = named
    return seal(msgspec.json.encode(members))


@dataclass(frozen=True, kw_only=True)
class CopyItem:
    """What a plan has to know of one checkpoint of the source."""

    checkpoint_id: int
    identity: bytes
    parent_id: int | None
    """What it builds on; None for a full one."""
    generation: int
    timeline: str
    size: int
    content: bytes
    """A digest of all that it says, also of its sinks."""
    committed: frozenset[str]
    """Sinks that are recorded as having committed."""
    supersedes: tuple[tuple[int, int], ...] = ()
    """Ranges that had been rolled back when it was saved."""
    has_checksum: bool = True
    """Whether there is something to verify its state by, if it has any."""
    shared: tuple[SharedObject, ...] = ()
    """Shared objects that it names."""

    @classmethod
    def of(cls, stored: StoredManifest) -> CopyItem:
        """From a stored manifest; :class:`DamageError` when it builds on one that is not older."""
        manifest = stored.manifest
        statuses = manifest.sink_commit_statuses.items()
        return cls(
            checkpoint_id=manifest.checkpoint_id,
            identity=identity(manifest),
            parent_id=manifest.builds_on,
            generation=manifest.generation,
            timeline=manifest.timeline or "",
            size=len(stored.data) + (manifest.state_bytes or 0),
            content=hashlib.sha256(translated(stored, None)).digest(),
            committed=frozenset(sink for sink, status in statuses if status.is_committed),
            supersedes=manifest.supersedes,
            has_checksum=state_evidence(manifest) is not Evidence.SIZE,
            shared=manifest.shared_objects,
        )


@dataclass(frozen=True)
class TargetCheckpoint:
    """What a target holds under one id."""

    item: CopyItem | None
    """None when it is damaged."""
    too_late: bool = False
    """Written by a fenced writer, so it does not count."""


def must_write(item: CopyItem, there: TargetCheckpoint | None) -> bool:
    """Whether the target lacks a checkpoint, or knows less of its sinks than the source."""
    if there is None or there.item is None or there.too_late:
        return True
    # a commit that the target's own pipeline has recorded is not taken back
    return there.item.content != item.content and there.item.committed <= item.committed


def with_chains(chosen: Iterable[int], items: Mapping[int, CopyItem]) -> list[int]:
    """The chosen ids and those that they build on, as far as these can be read; ascending."""
    chained: set[int] = set()
    for checkpoint_id in chosen:
        at: int | None = checkpoint_id
        while at is not None and at not in chained and at in items:
            chained.add(at)
            at = items[at].parent_id
    return sorted(chained)


def refuse_other_history(
    source: Owner,
    target: Owner,
    items: Mapping[int, CopyItem],
    there: Mapping[int, TargetCheckpoint],
    gone: Collection[int] = (),
) -> None:
    """:class:`RefusedError` when the target is not empty and not an earlier copy of the source.

    ``gone`` are ids that the source had when it was listed, and has pruned since.
    """
    if source.pipeline and target.pipeline and source.pipeline != target.pipeline:
        raise RefusedError(
            f"the target belongs to the pipeline {target.pipeline!r}, not {source.pipeline!r}",
            hint=NEW_STORE,
        )
    known_there = set(source.superseded)
    for first, last in target.superseded:
        if (first, last) not in known_there and last > source.prune_boundary:
            raise RefusedError(
                f"the target has a rollback of its own: {first} to {last} do not count there",
                hint=NEW_STORE,
            )
    # a copy leaves no fences, and every claim puts one above all ids that are there: from the first
    # one on, a writer of the target's own could have decided ids since the last copy
    own = target.fences[0][0] if target.fences else None
    for checkpoint_id, target_checkpoint in there.items():
        if target_checkpoint.too_late:
            continue
        item = items.get(checkpoint_id)
        if item is not None:
            if (
                target_checkpoint.item is not None
                and target_checkpoint.item.identity != item.identity
            ):
                raise RefusedError(
                    f"the target has another checkpoint {checkpoint_id} than the source",
                    hint=NEW_STORE,
                )
            continue
        is_pruned = checkpoint_id <= source.prune_boundary or checkpoint_id in gone
        if not is_pruned or (own is not None and checkpoint_id >= own):
            raise RefusedError(
                f"the target has checkpoint {checkpoint_id}, which is not of the source",
                hint=f"Has a pipeline been run on it? {NEW_STORE}",
            )


def refuse_other_objects(items: Iterable[CopyItem], there: Mapping[int, TargetCheckpoint]) -> None:
    """:class:`RefusedError` when both name an object that cannot be the same.

    Names are never given twice, so one of the stores has been tampered with.
    """
    of_target = {
        shared.name: (checkpoint_id, shared)
        for checkpoint_id, target_checkpoint in there.items()
        if target_checkpoint.item is not None and not target_checkpoint.too_late
        for shared in target_checkpoint.item.shared
    }
    for item in items:
        for shared in item.shared:
            checkpoint_id, known = of_target.get(shared.name, (0, shared))
            if known != shared:
                raise RefusedError(
                    f"checkpoint {item.checkpoint_id} of the source and checkpoint "
                    f"{checkpoint_id} of the target name the object {shared.name[:100]!r} with "
                    "different bytes",
                    hint=f"One of the two stores was changed by hand. {NEW_STORE}",
                )


def left_behind(
    source: Owner,
    target: Owner,
    items: Mapping[int, CopyItem],
    there: Mapping[int, TargetCheckpoint],
) -> tuple[tuple[int, int], ...]:
    """What the target holds of timelines that the source has left and pruned, as ranges.

    The source has forgotten which of them it rolled back: a prune drops ranges with what they
    cover. So none of them may be chosen in the target; they still serve as parents.
    """
    ranges: list[tuple[int, int]] = []
    for checkpoint_id, target_checkpoint in sorted(there.items()):
        if checkpoint_id in items or checkpoint_id > source.prune_boundary:
            continue
        timeline = (
            target_checkpoint.item.timeline if target_checkpoint.item else ""
        ) or target.timeline
        if not timeline or timeline == source.timeline:
            continue
        if standing(target, checkpoint_id) is not Standing.CURRENT:
            continue
        if ranges and ranges[-1][1] == checkpoint_id - 1:
            ranges[-1] = (ranges[-1][0], checkpoint_id)
        else:
            ranges.append((checkpoint_id, checkpoint_id))
    return tuple(ranges)


@dataclass(frozen=True, kw_only=True)
class CopyScope:
    """What the target's ``owner.json`` has to know before the first manifest arrives."""

    source: Owner
    items: Sequence[CopyItem]
    """Everything that the target is to hold, ascending."""
    arriving: Collection[int]
    """Ids whose manifests are to be written."""
    late: Collection[int]
    """Ids of the target that hold what a fenced writer has left, and are not written over."""
    has_newest: bool
    """Whether the source's newest checkpoint is among those wanted."""
    left_behind: tuple[tuple[int, int], ...] = ()
    """Ranges of the target that the source may have rolled back and has forgotten since."""
    begins: bool = False
    """Whether the source has plans but no checkpoint yet; its timeline is that of the plans."""


def owner_for(now: Owner, copying: CopyScope, writer: str) -> Owner:
    """The target's owner, made to cover what arrives; unchanged when it does already.

    The generation is raised, so that a writer from before cannot decide anything during the copy.
    The claim is given back at once: who claims the target later fences the copy.
    """
    source, items = copying.source, copying.items
    newest = max(items, key=lambda item: item.checkpoint_id, default=None)
    timeline = now.timeline
    if newest is not None and newest.checkpoint_id >= now.next_id - 1:
        timeline = newest.timeline or source.timeline or timeline
        if copying.has_newest:
            timeline = source.timeline or timeline
    if copying.begins:
        timeline = source.timeline
    ids = {item.checkpoint_id for item in items}
    below = {i for i in copying.arriving if standing(now, i) is Standing.PRUNED}
    free = {i for i in copying.arriving if i in now.lookup.voided or i in now.lookup.tombstones}
    ranges = (limits for item in items for limits in item.supersedes)
    superseded = dict.fromkeys(now.superseded)
    there = sorted({*now.kept_below, *ids})
    for limits in (*source.superseded, *ranges, *copying.left_behind):
        if limits[1] > now.prune_boundary or covers_any(limits, there):
            superseded[limits] = None
    # an id inside such a range is given up, also when nothing of it was copied
    used = max([*ids, *(last for _, last in superseded)], default=0)
    changed = msgspec.structs.replace(
        now,
        timeline=timeline,
        pipeline=now.pipeline or source.pipeline,
        next_id=max(now.next_id, min(used + 1, U64_MAX)),
        superseded=tuple(superseded),
        kept_below=tuple(sorted({*now.kept_below, *below})),
        tombstones=tuple(i for i in now.tombstones if i not in free),
        voided=tuple(sorted({*now.voided, *copying.late} - free)),
        fences=() if copying.arriving else now.fences,
    )
    needed = max((item.generation for item in items), default=0)
    if changed == now and needed <= now.generation and not copying.arriving:
        return now
    return msgspec.structs.replace(
        changed,
        generation=max(now.generation, source.generation, needed) + 1,
        writer=writer,
        claimed_at_ms=time.time_ns() // 1_000_000,
        released=True,
    )


def pins_to_copy(source: Owner, target: Owner, ids: Collection[int]) -> dict[str, Pin]:
    """The source's pins on these ids; :class:`RefusedError` when a name is taken there."""
    pins = {name: pin for name, pin in live_pins(source).items() if pin.checkpoint_id in ids}
    of_target = live_pins(target)
    for name, pin in pins.items():
        taken = of_target.get(name)
        if taken is not None and taken.checkpoint_id != pin.checkpoint_id:
            raise RefusedError(
                f"the pin {name!r} is on checkpoint {taken.checkpoint_id} in the target, and on "
                f"{pin.checkpoint_id} in the source",
                hint="Unpin it in one of them, or copy without pins.",
            )
    return pins
