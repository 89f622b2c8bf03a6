"""Who owns a store, and what follows from it: pure decisions over ``owner.json``.

``owner.json`` is the small mutable root of a store. Every change to it is one conditional write,
so a pin and a prune, or two claims, cannot pass each other unseen.

Tests: ``tests/store/test_ownership.py``.
"""

from __future__ import annotations

import re
import time
import uuid
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from enum import Enum
from functools import cached_property
from typing import Final, NamedTuple

import msgspec

from seamark._common.checks import I64_MAX, U64_MAX
from seamark._common.json_documents import decode_sealed, seal
from seamark.errors import CheckpointNotFoundError, DamageError, RefusedError
from seamark.limits import (
    LARGEST_GENERATION,
    MOST_OWNER_IDS,
    MOST_PINS,
    MOST_SUPERSEDED_RANGES,
    MOST_TOMBSTONES,
)
from seamark.manifest import CheckpointManifest

FORMAT_VERSION: Final = 1
TIMELINE: Final = re.compile(r"[0-9a-f]{32}")
"""What names a history: keys of plans and names of folders are made of it."""
REBUILD: Final = (
    "It says which checkpoints were rolled back or pruned, so none is chosen without it. "
    "Rebuild it from the manifests: 'seamark doctor STORE --rebuild-owner', or rebuild_owner()."
)


class Pin(msgspec.Struct, frozen=True):
    """A name that keeps a checkpoint, and everything it needs, from being pruned."""

    checkpoint_id: int
    created_at_ms: int
    expires_at_ms: int | None = None


class Owner(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The content of ``owner.json``."""

    format_version: int = FORMAT_VERSION
    generation: int = 0
    """Grows by one with each claim; 0 as long as nobody has claimed."""
    writer: str = ""
    claimed_at_ms: int = 0
    released: bool = True
    timeline: str = ""
    pipeline: str | None = None
    next_id: int = 1
    """Every smaller id has been used or given up."""
    prune_boundary: int = 0
    """Checkpoints up to this id are gone, but for those in ``kept_below``."""
    kept_below: tuple[int, ...] = ()
    superseded: tuple[tuple[int, int], ...] = ()
    fences: tuple[tuple[int, int], ...] = ()
    """(id, generation), ascending: from this id on, only that generation or a later one decides."""
    tombstones: tuple[int, ...] = ()
    """Ids where a claim may have put its tombstone; a checkpoint may have taken its place."""
    voided: tuple[int, ...] = ()
    """Ids that hold a tombstone for good."""
    pins: dict[str, Pin] = {}

    @cached_property
    def lookup(self) -> Lookup:
        """The same ids in a form in which each is found at once: a store may have very many."""
        ranges: list[tuple[int, int]] = []
        for first, last in sorted(self.superseded):
            if ranges and first <= ranges[-1][1]:
                ranges[-1] = ranges[-1][0], max(last, ranges[-1][1])
            elif first <= last:
                ranges.append((first, last))
        return Lookup(
            frozenset(self.kept_below), frozenset(self.voided), frozenset(self.tombstones), ranges
        )


class Lookup(NamedTuple):
    """Ids of an owner, to be asked for one by one."""

    kept_below: frozenset[int]
    voided: frozenset[int]
    tombstones: frozenset[int]
    superseded: list[tuple[int, int]]
    """Ascending, and none touches another."""

    def is_superseded(self, checkpoint_id: int) -> bool:
        """Whether an id is in one of the ranges."""
        at = bisect_right(self.superseded, checkpoint_id, key=lambda limits: limits[0])
        return at > 0 and checkpoint_id <= self.superseded[at - 1][1]


class OddGeneration(DamageError):
    """A manifest names a generation that never was; ``owner.json`` is not in doubt."""


class OutdatedOwner(DamageError):
    """A manifest is newer than ``owner.json``, so nobody knows what was rolled back since."""


class Standing(Enum):
    """Whether an id counts, by what the owner says of it."""

    CURRENT = "current"
    PRUNED = "pruned"
    SUPERSEDED = "superseded"
    VOID = "void"


UNCOUNTED: Final = (Standing.PRUNED, Standing.VOID)
"""Under such an id nothing counts, now or later."""


def encode_owner(owner: Owner) -> bytes:
    """The document as stored."""
    return seal(msgspec.json.encode(owner))


def decode_owner(data: bytes) -> Owner:
    """Read ``owner.json``. Damage and a format that is too new are different errors."""
    try:
        owner = decode_sealed(
            data,
            Owner,
            version_field="format_version",
            newest=FORMAT_VERSION,
            name="owner.json",
            too_new="this store has format",
        )
    except DamageError as error:
        raise DamageError(error.what, hint=REBUILD) from None
    if problem := problem_in(owner):
        raise DamageError(f"owner.json is damaged: {problem}", hint=REBUILD)
    return owner


def problem_in(owner: Owner) -> str | None:
    """What no ``owner.json`` of Seamark's says: too many ids, or what nothing can have or be."""
    if owner.timeline and TIMELINE.fullmatch(owner.timeline) is None:
        return "its timeline is not 32 hexadecimal digits"
    for what, count, most in (
        ("tombstones", len(owner.tombstones), MOST_TOMBSTONES),
        ("superseded ranges", len(owner.superseded), MOST_SUPERSEDED_RANGES),
        ("pins", len(owner.pins), MOST_PINS),
        ("fences", len(owner.fences), MOST_OWNER_IDS),
        ("void ids", len(owner.voided), MOST_OWNER_IDS),
        ("ids that were kept", len(owner.kept_below), MOST_OWNER_IDS),
    ):
        if count > most:
            return f"it names {count} {what}, more than {most}"
    pins = owner.pins.values()
    for what, numbers, most in (
        ("generation", [owner.generation, *(by for _, by in owner.fences)], LARGEST_GENERATION),
        ("time", [owner.claimed_at_ms, *(pin.created_at_ms for pin in pins)], I64_MAX),
        ("time", [pin.expires_at_ms or 0 for pin in pins], I64_MAX),
        ("id", [owner.next_id, owner.prune_boundary, *owner.kept_below], U64_MAX),
        ("id", [*owner.tombstones, *owner.voided, *(at for at, _ in owner.fences)], U64_MAX),
        ("id", [i for limits in owner.superseded for i in limits], U64_MAX),
        ("id", [pin.checkpoint_id for pin in pins], U64_MAX),
    ):
        if min(numbers, default=0) < 0 or max(numbers, default=0) > most:
            return f"it has a number that cannot be {'an' if what == 'id' else 'a'} {what}"
    return None


def standing(owner: Owner, checkpoint_id: int) -> Standing:
    """Whether a checkpoint of that id still counts."""
    known = owner.lookup
    if checkpoint_id <= owner.prune_boundary and checkpoint_id not in known.kept_below:
        return Standing.PRUNED
    if checkpoint_id in known.voided:
        return Standing.VOID
    return Standing.SUPERSEDED if known.is_superseded(checkpoint_id) else Standing.CURRENT


def covers_any(limits: tuple[int, int], ids: Sequence[int]) -> bool:
    """Whether a range holds one of these ids, which are ascending."""
    at = bisect_left(ids, limits[0])
    return at < len(ids) and ids[at] <= limits[1]


def required_generation(owner: Owner, checkpoint_id: int) -> int:
    """The lowest generation that could still decide that id."""
    at = bisect_right(owner.fences, checkpoint_id, key=lambda fence: fence[0])
    return owner.fences[at - 1][1] if at else 0


def arrived_too_late(owner: Owner, manifest: CheckpointManifest) -> bool:
    """Whether a fenced writer wrote it after its successor had taken over.

    Only manifests of ours carry a generation; a foreign one cannot be a zombie of ours.
    """
    if not manifest.is_ours:
        return False
    return manifest.generation < required_generation(owner, manifest.checkpoint_id)


def uncovered(
    owner: Owner, generation: int, checkpoint_id: int, *, claimed_since: bool
) -> DamageError:
    """The error for a manifest of a later generation than ``owner.json`` knows.

    ``owner.json`` says what was rolled back, so an old one that was put back must not be believed:
    all reading stops. One manifest with a senseless generation looks the same at first, but with
    proof that nobody can have claimed the store since, only that manifest is damaged.
    """
    if not claimed_since:
        return OddGeneration(
            f"corrupt manifest: it says generation {generation}, and the store has never had more "
            f"than {owner.generation}"
        )
    return OutdatedOwner(
        f"owner.json is gone or too old: checkpoint {checkpoint_id} was written by generation "
        f"{generation}, owner.json knows {owner.generation}",
        hint=REBUILD,
    )


def with_fence(owner: Owner, checkpoint_id: int, generation: int) -> Owner:
    """The owner with one more fence; older ones that say nothing new are dropped."""
    # the one that rules just above the prune boundary stays
    ruling = max((at for at, _ in owner.fences if at <= owner.prune_boundary + 1), default=0)
    kept = [
        (at, by)
        for at, by in owner.fences
        if at < checkpoint_id and (at > owner.prune_boundary or at == ruling)
    ]
    return msgspec.structs.replace(owner, fences=(*kept, (checkpoint_id, generation)))


def live_pins(owner: Owner, now_ms: int | None = None) -> dict[str, Pin]:
    """Pins that have not expired."""
    now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    return {
        name: pin
        for name, pin in owner.pins.items()
        if pin.expires_at_ms is None or pin.expires_at_ms > now
    }


def known_pins(owner: Owner, now_ms: int | None = None) -> dict[int, list[str]]:
    """The names of the pins that have not expired, by checkpoint."""
    names: dict[int, list[str]] = {}
    for name, pin in sorted(live_pins(owner, now_ms).items()):
        names.setdefault(pin.checkpoint_id, []).append(name)
    return names


# Changes: each gives the owner as it should become, or refuses.


def claimed_by(before: Owner, token: str, pipeline: str | None, tombstone_id: int) -> Owner:
    """The next generation, in the name of ``token``, about to put a tombstone."""
    if pipeline and before.pipeline and before.pipeline != pipeline:
        raise RefusedError(
            f"this store belongs to the pipeline {before.pipeline!r}, not {pipeline!r}",
            hint="Give each pipeline a store of its own.",
        )
    return msgspec.structs.replace(
        before,
        generation=before.generation + 1,
        writer=token,
        claimed_at_ms=time.time_ns() // 1_000_000,
        released=False,
        timeline=before.timeline or uuid.uuid4().hex,
        pipeline=before.pipeline or pipeline,
        tombstones=tuple(sorted({*before.tombstones, tombstone_id})),
    )


def fenced_at(owner: Owner, tombstone_id: int, voided: set[int]) -> Owner:
    """The last step of a claim: its tombstone is there, older ones are void, the fence holds."""
    claimed = msgspec.structs.replace(
        owner,
        # one above may have been put by a claim that was overtaken by this one
        tombstones=(tombstone_id, *(i for i in owner.tombstones if i > tombstone_id)),
        voided=tuple(sorted({*owner.voided, *voided} - {tombstone_id})),
        next_id=max(owner.next_id, tombstone_id),
    )
    return with_fence(claimed, tombstone_id, owner.generation)


def with_superseded(owner: Owner, first_id: int, last_id: int) -> Owner:
    """A range of ids out of use for good."""
    ranges = (*owner.superseded, (first_id, last_id))
    return msgspec.structs.replace(
        owner,
        superseded=ranges,
        next_id=max(owner.next_id, last_id + 1),  # also when the last of them is lost
    )


def with_pins(owner: Owner, pins: Mapping[str, Pin]) -> Owner:
    """More pins, unless a checkpoint of theirs is being pruned or one of the names is taken.

    Those that the owner has are gone through once, however many come.
    """
    there, all_pins = live_pins(owner), {**owner.pins, **pins}
    for name, pin in pins.items():
        if standing(owner, pin.checkpoint_id) in UNCOUNTED:
            raise CheckpointNotFoundError(f"there is no checkpoint {pin.checkpoint_id}")
        taken = there.get(name)
        if taken is not None and taken.checkpoint_id != pin.checkpoint_id:
            raise RefusedError(
                f"the pin {name!r} is on checkpoint {taken.checkpoint_id}",
                hint="Unpin it first, or choose another name.",
            )
    if len(all_pins) > max(MOST_PINS, len(owner.pins)):
        new = len(all_pins) - len(owner.pins)
        more = "" if new == 1 else f", {new} more were to come"
        raise RefusedError(
            f"there are {len(owner.pins)} pins{more}, and {MOST_PINS} is the most",
            hint="Unpin some first.",
        )
    return msgspec.structs.replace(owner, pins=all_pins)


def without_pin(owner: Owner, name: str) -> Owner:
    """One pin less."""
    if name not in owner.pins:
        raise CheckpointNotFoundError(f"there is no pin {name!r}", hint="pins() lists them.")
    left = {key: pin for key, pin in owner.pins.items() if key != name}
    return msgspec.structs.replace(owner, pins=left)
