"""Claiming a store, being fenced, and every other change to ``owner.json``.

A claim takes three steps, each of which leaves the store consistent if it is the last:

1. the generation is raised in ``owner.json``: the writer before learns of it at its next check;
2. a tombstone is put at the next manifest's key: a write of the old writer that is still under
   way fails there;
3. the fence (that id, this generation) is recorded: a late write under any higher id does not
   count either.

If the tombstone of an earlier claim is still there, it is renewed, so that its writer can no longer
replace it by a manifest.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Final

import msgspec

from seamark._common.checks import U64_MAX, check_text
from seamark._common.logs import logger_named
from seamark._common.text import age_text, default_writer
from seamark.blobs.conditional_writes import Taken, ensure_conditional_writes, put_once
from seamark.blobs.contract import Blobs, Tag, TagMismatch
from seamark.errors import (
    DamageError,
    FencedError,
    RefusedError,
    SeamarkError,
    StoreUnavailableError,
)
from seamark.store.layout import OWNER_KEY
from seamark.store.manifests import Manifests, Tombstone, tombstone_bytes
from seamark.store.no_later_claim import NoLaterClaim
from seamark.store.owner import (
    Owner,
    claimed_by,
    decode_owner,
    encode_owner,
    fenced_at,
    problem_in,
    uncovered,
    with_superseded,
)
from seamark.store.owner_file import OWNER_LIMIT, OwnerFile

log = logger_named(__name__)

_CONTENTION: Final = 64


class Claim(msgspec.Struct, frozen=True):
    """The right to write: valid until somebody else claims."""

    generation: int
    timeline: str
    writer: str
    tombstone_id: int


class Ownership:
    """``owner.json`` of one store, and the claim that this handle may hold."""

    def __init__(self, blobs: Blobs, manifests: Manifests) -> None:
        self._blobs = blobs
        self._file = OwnerFile(blobs)
        self._manifests = manifests
        self._held = ExitStack()
        self._tombstone_tag: Tag | None = None
        self._pid = os.getpid()
        self._proof = NoLaterClaim(manifests)
        self.claim_held: Claim | None = None

    # reading

    def read(self) -> Owner:
        """What ``owner.json`` says; a store that nobody has claimed has no owner yet."""
        return self._read()[0]

    def _read(self) -> tuple[Owner, Tag | None]:
        found = self._file.read()
        if found is not None:
            return found
        if self.claim_held is not None:
            raise DamageError(
                "owner.json is gone although this writer has claimed the store",
                where=self._blobs.url,
                hint="Was the store deleted? Stop the writer, look at the store, claim again.",
            )
        return Owner(), None

    def covering(self, owner: Owner, generation: int, checkpoint_id: int) -> Owner:
        """An owner that is not older than a manifest that was read after it.

        :class:`OutdatedOwner` when ``owner.json`` itself is older: it was lost or put back; an
        :class:`OddGeneration` when it is the manifest that is wrong.
        """
        if generation <= owner.generation:
            return owner
        now = self.read()  # somebody may have claimed and saved in between
        if generation > now.generation:
            # later generations only decide ids from the last fence on
            fenced = bool(now.fences) and checkpoint_id < now.fences[-1][0]
            certain = fenced or self._proof.holds_below(now, checkpoint_id)
            raise uncovered(now, generation, checkpoint_id, claimed_since=not certain)
        return now

    def require_writable(self) -> Owner:
        """The owner, when this handle may write; :class:`FencedError` when another one owns it."""
        owner = self.read()
        mine = self.claim_held
        if mine is not None:
            if not _is_of(mine, owner):
                raise self._fenced(owner, mine)
            self._refuse_in_a_fork()
            if self._manifests.is_behind:
                self.check_covered(owner)
            return owner
        self._refuse_in_use(owner)
        return owner

    def _refuse_in_use(self, owner: Owner) -> None:
        if owner.generation and not owner.released and self._is_alive(owner):
            raise FencedError(
                "this store belongs to another writer",
                where=f"{self._blobs.url} was claimed by generation {owner.generation} "
                f"({owner.writer}) {claim_age(owner)}; this handle has no claim.",
                hint="Nothing was written. Stop that writer, or take the store over with claim().",
            )

    def _refuse_in_a_fork(self) -> None:
        if os.getpid() != self._pid:
            raise FencedError(
                "the claim belongs to the process that this one was forked from",
                where=self._blobs.url,
                hint="Open the store again in this process.",
            )

    def _is_alive(self, owner: Owner) -> bool:
        # if the backend does not know, a claim that was not released counts
        return self._blobs.is_held(claim_mark(owner.generation)) is not False

    def _fenced(self, owner: Owner, mine: Claim) -> FencedError:
        return FencedError(
            "this store belongs to another writer",
            where=f"{self._blobs.url} was claimed by generation {owner.generation} "
            f"({owner.writer}) {claim_age(owner)}; "
            f"this process holds generation {mine.generation}.",
            hint="Nothing more is committed here. Stop one of the two writers; the other goes on.",
        )

    # changing

    def probe(self) -> None:
        """Before the first write: see once that the store honours conditions."""
        ensure_conditional_writes(self._blobs)

    def amend(self, change: Callable[[Owner], Owner]) -> Owner:
        """Change ``owner.json`` by one conditional write, again and again until nobody interferes.

        ``change`` is called with what is there now and must not have effects of its own.
        """
        for _ in range(_CONTENTION):
            before, tag = self._read()
            after = change(before)
            if after == before and tag is not None:
                return before
            try:
                write_owner(self._blobs, after, tag)
                return after
            except (Taken, TagMismatch):
                continue
        raise StoreUnavailableError(
            f"owner.json changed {_CONTENTION} times while it was being changed",
            where=self._blobs.url,
            hint="Many writers at once? Try again.",
        )

    def claim(self, writer: str | None, pipeline: str | None, *, take_over: bool = True) -> Claim:
        """Become the owner; another writer is fenced, or keeps it without ``take_over``."""
        for what, text in (("writer", writer), ("pipeline", pipeline)):
            if text is not None:
                check_text(text, what)
        self.probe()
        name = writer or default_writer()
        held = ExitStack()
        with self._blobs.exclusive():
            # the token keeps two claims of equal names from taking each other's write for theirs
            token = f"{name} {uuid.uuid4().hex[:8]}"
            try:
                owner = self._raise_generation(token, pipeline, held, take_over)
                self._pid = os.getpid()
                mine = owner.generation
                tombstone_id, voided = self._fence(owner, token)
                owner = self.amend(lambda now: self._fenced_in(now, token, tombstone_id, voided))
            except BaseException:
                held.close()
                raise
            self._blobs.forget_holds(claim_mark(mine))
        self._held.close()
        self._held = held
        self.claim_held = Claim(mine, owner.timeline, token, tombstone_id)
        log.info("claimed %s as generation %d (%s)", self._blobs.url, mine, token)
        return self.claim_held

    def _raise_generation(
        self, token: str, pipeline: str | None, held: ExitStack, take_over: bool = True
    ) -> Owner:
        """The first step of a claim. When it fails, the claim that was held before stays.

        The mark comes first: who reads of a claim whose mark nobody holds takes its process for
        dead. Where there are marks, nobody else raises the generation meanwhile.
        """
        previous, self.claim_held = self.claim_held, None
        try:
            before = self.read()
            self.check_covered(before)
            intended = self._newest_id(before) + 1
            marked = claimed_by(before, token, pipeline, intended).generation
            held.enter_context(self._blobs.hold(claim_mark(marked)))

            def raised(now: Owner) -> Owner:
                if not take_over and not (previous and _is_of(previous, now)):
                    self._refuse_in_use(now)
                return claimed_by(now, token, pipeline, intended)

            return self.amend(raised)
        except BaseException:
            self.claim_held = previous
            raise

    def check_covered(self, owner: Owner) -> None:
        """See that ``owner.json`` is not older than the newest manifest, and that is durable."""
        newest, stored = self._manifests.newest_stored()
        if stored is not None:
            self._manifests.make_durable(newest)
            decided = stored if isinstance(stored, Tombstone) else stored.manifest
            self.covering(owner, decided.generation, newest)

    def _fenced_in(self, now: Owner, token: str, tombstone_id: int, voided: set[int]) -> Owner:
        if now.writer != token:
            raise self._overtaken(now)
        return fenced_at(now, tombstone_id, voided)

    def _overtaken(self, now: Owner) -> FencedError:
        return FencedError(
            "this store was claimed by another writer while it was being claimed",
            where=f"{self._blobs.url} belongs to generation {now.generation} ({now.writer}).",
            hint="Nothing was written. Stop one of the two writers.",
        )

    def _newest_id(self, owner: Owner) -> int:
        newest = max(owner.next_id - 1, owner.prune_boundary, self._manifests.newest_id())
        if newest >= U64_MAX:
            raise RefusedError("all ids of this store are used up", where=self._blobs.url)
        return newest

    def _fence(self, owner: Owner, writer: str) -> tuple[int, set[int]]:
        """Put the tombstone; its id, and the ids of older ones, which are void from now on."""
        data = tombstone_bytes(owner.generation, writer)
        newest = self._newest_id(owner)
        voided: set[int] = set()
        for old in sorted({*owner.tombstones, newest}):
            if old and (tag := self._renew_tombstone(old, data, owner)) is not None:
                if old >= newest:
                    self._tombstone_tag = tag
                    return old, voided
                voided.add(old)
        candidate = newest + 1
        while True:
            if candidate not in owner.tombstones:
                # before it is there: a reader that lists it must not take it for a checkpoint
                owner = self.amend(partial(self._announced, token=writer, tombstone_id=candidate))
            try:
                self._tombstone_tag = self._manifests.put(candidate, data, None)
                return candidate, voided
            except Taken:
                tag = self._renew_tombstone(candidate, data, owner)
                if tag is not None:  # that of a claim which this one has overtaken
                    self._tombstone_tag = tag
                    return candidate, voided
                # the writer before decided it in the meantime: that epoch counts
                candidate += 1

    def _announced(self, now: Owner, *, token: str, tombstone_id: int) -> Owner:
        if now.writer != token:
            raise self._overtaken(now)
        return msgspec.structs.replace(now, tombstones=(*now.tombstones, tombstone_id))

    def _renew_tombstone(self, checkpoint_id: int, data: bytes, owner: Owner) -> Tag | None:
        """Replace a tombstone by ours, or None when a manifest has taken its place."""
        while True:
            try:
                stored = self._manifests.read(checkpoint_id)
            except DamageError:
                return None
            if not isinstance(stored, Tombstone):
                return None
            if stored.generation > owner.generation:
                raise self._overtaken(self.read())  # not ours to stamp: we lost the store already
            try:
                return self._manifests.put(checkpoint_id, data, stored.tag)
            except TagMismatch:
                continue

    def is_tombstone(self, checkpoint_id: int) -> bool:
        """Whether that id still holds a tombstone and not a checkpoint."""
        try:
            return isinstance(self._manifests.read(checkpoint_id), Tombstone)
        except DamageError:
            return False

    def begin_timeline(self, superseded: tuple[int, int] | None = None) -> Claim:
        """Start a new timeline and take a range of ids out of use, if given, in one write."""
        mine = self.claim_held
        if mine is None:
            raise RefusedError(
                "starting a timeline needs a claim", where=self._blobs.url, hint="Call claim()."
            )
        timeline = uuid.uuid4().hex

        def changed(now: Owner) -> Owner:
            if not _is_of(mine, now):
                raise self._fenced(now, mine)
            now = msgspec.structs.replace(now, timeline=timeline)
            return now if superseded is None else with_superseded(now, *superseded)

        self.amend(changed)
        self.claim_held = msgspec.structs.replace(mine, timeline=timeline)
        return self.claim_held

    def tombstone_tag(self, checkpoint_id: int) -> Tag | None:
        """The tag of this claim's own tombstone when it is under that id and still unused."""
        mine = self.claim_held
        return self._tombstone_tag if mine and mine.tombstone_id == checkpoint_id else None

    def tombstone_used(self) -> None:
        """The tombstone has been replaced by a manifest."""
        self._tombstone_tag = None

    def release(self) -> None:
        """Give the claim back, so that others may write without one."""
        mine, self.claim_held = self.claim_held, None
        try:
            if mine is not None and os.getpid() == self._pid:
                self.amend(
                    lambda now: (
                        msgspec.structs.replace(now, released=True) if _is_of(mine, now) else now
                    )
                )
        except SeamarkError as error:
            log.warning("the claim on %s could not be given back: %s", self._blobs.url, error)
        finally:
            self._held.close()


def write_owner(blobs: Blobs, owner: Owner, before: Tag | None) -> None:
    """Write ``owner.json`` in place of the version ``before``, or of none."""
    if problem := problem_in(owner):
        hint = "Nothing was written. What was copied or claimed was not made by Seamark."
        what = f"nobody could read owner.json then: {problem}"
        raise RefusedError(what, where=blobs.url, hint=hint)
    data = encode_owner(owner)
    decode_owner(data)  # what cannot be read back would brick the store
    put_once(blobs, OWNER_KEY, data, before, OWNER_LIMIT)


def _is_of(claim: Claim, owner: Owner) -> bool:
    # the number alone could repeat when owner.json is put back from a copy
    return (
        owner.writer == claim.writer
        and owner.generation == claim.generation
        and (not owner.released)
    )


def claim_mark(generation: int) -> str:
    """The mark that a claim keeps for as long as its process lives."""
    return f"generation-{generation}"


def claim_age(owner: Owner) -> str:
    """How long ago the store was claimed, also when the clocks of two machines differ."""
    return age_text(min(owner.claimed_at_ms, time.time_ns() // 1_000_000))
