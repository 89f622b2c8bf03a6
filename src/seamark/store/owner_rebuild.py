"""A new ``owner.json`` from what the manifests say, for a store whose own is damaged or lost."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import msgspec

from seamark.errors import RefusedError
from seamark.limits import LARGEST_GENERATION
from seamark.manifest import CheckpointManifest
from seamark.store.manifests import Found, Tombstone
from seamark.store.owner import Owner, superseded_by


def rebuilt_owner(
    contents: Sequence[tuple[int, Found | Tombstone | Exception | None]], remains: bytes
) -> Owner:
    """The best owner that can be told from the manifests and from the remains of the old one.

    What only ``owner.json`` knew is gone: pins, and which late writes of a fenced writer do not
    count. Rolled-back ranges are told by the manifests that superseded them.
    """
    manifests = [found.manifest for _, found in contents if isinstance(found, Found)]
    generations = [m.generation for m in manifests]
    generations += [found.generation for _, found in contents if isinstance(found, Tombstone)]
    old = _readable_part(remains)
    generation = 1 + max([0, old.generation, *generations])
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
        timeline=_newest_timeline(manifests) or uuid.uuid4().hex,
        pipeline=old.pipeline,
        next_id=next_id,
        prune_boundary=max(min(ids, default=1) - 1, 0),
        superseded=tuple(
            sorted({*old.superseded, *(limits for m in manifests for limits in superseded_by(m))})
        ),
        fences=((next_id, generation),),
        voided=tuple(i for i, found in contents if isinstance(found, Tombstone)),
    )


class _Remains(msgspec.Struct):
    generation: int = 0
    next_id: int = 1
    pipeline: str | None = None
    superseded: tuple[tuple[int, int], ...] = ()


def _readable_part(data: bytes) -> _Remains:
    """A flipped bit often leaves most of a document readable; numbers only ever help upwards."""
    try:
        return msgspec.json.decode(data, type=_Remains)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return _Remains()


def _newest_timeline(manifests: Sequence[CheckpointManifest]) -> str | None:
    named = [m for m in manifests if isinstance(m.extra.get("timeline"), str)]
    newest = max(named, key=lambda m: m.checkpoint_id, default=None)
    return str(newest.extra["timeline"]) if newest else None
