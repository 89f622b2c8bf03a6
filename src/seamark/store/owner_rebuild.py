"""A new ``owner.json`` from what the manifests say, for a store whose own is damaged or lost."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import msgspec

from seamark._common.logs import logger_named
from seamark.blobs.conditional_writes import Taken, ensure_conditional_writes
from seamark.blobs.contract import Blob, TagMismatch
from seamark.errors import DamageError, FencedError, RefusedError
from seamark.limits import LARGEST_GENERATION
from seamark.manifest import CheckpointManifest
from seamark.store.layout import OWNER_KEY
from seamark.store.manifests import StoredManifest, Tombstone
from seamark.store.owner import TIMELINE, Owner, decode_owner, problem_in
from seamark.store.owner_file import OWNER_LIMIT
from seamark.store.ownership import claim_mark, write_owner
from seamark.store.parts import StoreParts

log = logger_named(__name__)


@dataclass(frozen=True)
class OwnerRebuild:
    """Why there must be a new owner, and what it says."""

    why: str
    owner: Owner
    before: Blob | None
    """What is in its place."""
    checkpoints: int
    is_alive: bool | None
    """Whether the last writer is alive; None where that is unknown."""


def plan_rebuild(parts: StoreParts) -> OwnerRebuild:
    """What would be written, taken from the manifests. Changes nothing.

    :class:`RefusedError` when the owner that is there is whole, or none is needed.
    """
    blobs = parts.blobs
    contents = list(parts.manifests.read_many(parts.manifests.ids()))
    # after the manifests: somebody may claim and save meanwhile, and an owner from before is older
    blob = blobs.read(OWNER_KEY, OWNER_LIMIT)
    newest = _newest_generation(contents)
    planned = {plan.timeline for plan in parts.plans.entries()}
    before: Owner | None = None
    if blob is None:
        why = "owner.json is gone"
        if newest == 0 and not planned:
            raise RefusedError(
                "this store has no owner.json, and needs none: nobody has claimed it",
                where=blobs.url,
                hint="Is the path right?",
            )
    else:
        try:
            before = decode_owner(blob.data)
            why = f"owner.json is too old: it knows generation {before.generation} of {newest}"
        except DamageError as error:
            why = error.what
    if before is not None and before.generation >= newest:
        raise RefusedError("owner.json is whole: there is nothing to rebuild", where=blobs.url)
    owner = rebuilt_owner(contents, blob.data if blob else b"", planned, blobs.url)
    if before is not None:
        # an old copy is right in what it knows
        owner = msgspec.structs.replace(
            owner,
            pins=before.pins,
            pipeline=before.pipeline,
            prune_boundary=max(before.prune_boundary, owner.prune_boundary),
            kept_below=before.kept_below,
        )
    return OwnerRebuild(
        why,
        owner,
        blob,
        sum(isinstance(stored, StoredManifest) for _, stored in contents),
        blobs.is_held(claim_mark(owner.generation - 1)),
    )


def rebuild_owner(parts: StoreParts) -> OwnerRebuild:
    """Write a new ``owner.json`` in place of one that is damaged, lost or too old."""
    blobs = parts.blobs
    ensure_conditional_writes(blobs)
    with blobs.exclusive():
        rebuild = plan_rebuild(parts)
        try:
            write_owner(blobs, rebuild.owner, rebuild.before.tag if rebuild.before else None)
        except (Taken, TagMismatch):
            raise FencedError(
                "owner.json was changed by somebody else in this moment",
                where=blobs.url,
                hint="Nothing was written here. Look again.",
            ) from None
    log.info("rebuilt owner.json of %s; pins that it does not name are gone", blobs.url)
    return rebuild


def _newest_generation(contents: Sequence[tuple[int, object]]) -> int:
    generations = [0]
    for _, stored in contents:
        if isinstance(stored, StoredManifest):
            generations.append(stored.manifest.generation)
        elif isinstance(stored, Tombstone):
            generations.append(stored.generation)
    return max(generations)


def rebuilt_owner(
    contents: Sequence[tuple[int, StoredManifest | Tombstone | Exception | None]],
    remains: bytes,
    planned: Collection[str] = (),
    where: str | None = None,
) -> Owner:
    """The best owner that can be derived from the manifests and the remains of the old one.

    What only ``owner.json`` knew is gone: pins, and which late writes of a fenced writer do not
    count. Rolled-back ranges are in the manifests that superseded them. Before the first checkpoint
    of a timeline it is that of the ``planned`` epochs; :class:`RefusedError` when nothing tells
    which of several.
    """
    manifests = [stored.manifest for _, stored in contents if isinstance(stored, StoredManifest)]
    old = _readable_part(remains)
    generation = 1 + max(old.generation, _newest_generation(contents))
    if generation > LARGEST_GENERATION:
        raise RefusedError(
            f"a manifest says generation {generation - 1}, and what is saved after it could not "
            "be read",
            hint="No store was claimed that often. Remove that manifest, then rebuild the owner.",
        )
    ids = [checkpoint_id for checkpoint_id, _ in contents]
    next_id = 1 + max([0, old.next_id - 1, *ids])
    return Owner(
        generation=generation,
        writer="rebuilt",
        released=True,
        timeline=_timeline_to_go_on(manifests, old, {*planned}, where),
        pipeline=old.pipeline,
        next_id=next_id,
        prune_boundary=max(min(ids, default=1) - 1, 0),
        superseded=tuple(
            sorted({*old.superseded, *(limits for m in manifests for limits in m.supersedes)})
        ),
        fences=((next_id, generation),),
        voided=tuple(i for i, stored in contents if isinstance(stored, Tombstone)),
    )


class _Remains(msgspec.Struct):
    generation: int = 0
    next_id: int = 1
    pipeline: str | None = None
    timeline: str = ""
    superseded: tuple[tuple[int, int], ...] = ()


def _readable_part(data: bytes) -> _Remains:
    """A flipped bit often leaves most of a document readable; numbers only ever help upwards."""
    try:
        found = msgspec.json.decode(data, type=_Remains)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return _Remains()
    as_owner = Owner(
        generation=found.generation, next_id=found.next_id, superseded=found.superseded
    )
    return found if problem_in(as_owner) is None else _Remains()


def _timeline_to_go_on(
    manifests: Sequence[CheckpointManifest], old: _Remains, planned: set[str], where: str | None
) -> str:
    """The timeline of the epochs that come: in another one, rows of begun epochs come again."""
    of_histories = (m for m in manifests if m.timeline and TIMELINE.fullmatch(m.timeline))
    newest = max(of_histories, key=lambda m: m.checkpoint_id, default=None)
    known = {m.timeline or "" for m in manifests}.union(*(m.abandoned or () for m in manifests))
    begun = planned - known
    if old.timeline in begun:
        return old.timeline
    if len(begun) > 1 or (begun and newest is not None):
        which = "a timeline" if len(begun) == 1 else f"{len(begun)} timelines"
        raise RefusedError(
            f"epochs of {which} were begun of which no checkpoint knows, and nothing says which "
            "history goes on",
            where=where,
            hint="Put owner.json back from a copy. Or remove the plans of all timelines but the "
            "last: their names in plans/ begin with the timeline, and the newest file is of the "
            "last.",
        )
    if newest is None:
        return next(iter(begun), None) or uuid.uuid4().hex
    if any(first <= newest.checkpoint_id <= last for first, last in old.superseded):
        return uuid.uuid4().hex  # its timeline was left, and no epoch was begun since
    return newest.timeline or ""
