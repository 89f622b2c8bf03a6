"""Plans of epochs: which rows an epoch started with, stored before anything outside is changed.

Some sinks change their target before the checkpoint exists. Such an epoch must run on the same rows
every time, whoever tries it, so its plan is stored first: one small object for each epoch, created
once and never replaced. Plans go by timeline and epoch, so a rollback leaves the old ones behind.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

import msgspec

from seamark._common.checks import check_id
from seamark._common.json_documents import decode_sealed, seal
from seamark.blobs.conditional_writes import Taken, create_once
from seamark.blobs.contract import Blobs, Entry
from seamark.errors import DamageError, InvalidInputError, RefusedError
from seamark.manifest import ConnectorCheckpoint
from seamark.store.owner import TIMELINE
from seamark.store.ownership import Ownership

PLANS_PREFIX: Final = "plans/"
PLAN_LIMIT: Final = 64 << 20
PLAN_VERSION: Final = 1
_KEY: Final = re.compile(rf"{PLANS_PREFIX}({TIMELINE.pattern})-([0-9]{{6,20}})\.json")


class StoredPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What one epoch reads: enough to run it again on exactly the same rows."""

    timeline: str
    epoch: int
    fingerprint: str
    """Digest of the timeline and of what the epoch reads."""
    follows: str
    """The fingerprint of the epoch before; empty for the first one of a pipeline."""
    leaves: tuple[str, ...]
    """The names of the sources, in the order of the offset log's lines."""
    offsets: str
    """The entry of Spark's offset log, verbatim."""
    sources: dict[str, str] = {}
    """Entries of the sources' own logs that are new in this epoch, by path."""
    functions: tuple[str, ...] | None = None
    """The outputs whose functions get the epoch, by the names that are in their keys; None when an
    earlier version has stored the plan."""
    structure: dict[str, Any] | None = None
    """What the pipeline was that started the epoch; None when an earlier version has stored it."""
    tables: dict[str, ConnectorCheckpoint] = {}
    """The tables that its streams are joined with, as in a checkpoint."""
    spark_version: str = ""
    source_ids: dict[str, Any] = {}
    """By source of Kafka's: the id of each topic; empty when an earlier version has stored it."""
    version: int = PLAN_VERSION


class PlanEntry(NamedTuple):
    """One plan of a listing."""

    timeline: str
    epoch: int
    entry: Entry


class Plans:
    """The plans of one store."""

    def __init__(self, blobs: Blobs, ownership: Ownership) -> None:
        self._blobs = blobs
        self._ownership = ownership

    def keep(self, plan: StoredPlan) -> StoredPlan:
        """Store a plan, durably, and return the one that every try of the epoch has to run on.

        That is another one when somebody else was first. :class:`FencedError` when the store
        belongs to another writer.
        """
        key = plan_key(plan.timeline, plan.epoch)
        data = seal(msgspec.json.encode(plan))
        if len(data) > PLAN_LIMIT:
            raise RefusedError(
                f"the plan of epoch {plan.epoch} has {len(data)} bytes, more than {PLAN_LIMIT}",
                hint="Read less in one epoch: maxFilesPerTrigger limits a source of files.",
            )
        self._ownership.require_writable()
        self._ownership.probe()
        try:
            create_once(self._blobs, key, data, PLAN_LIMIT)
        except Taken as taken:
            there = self._decoded(taken.blob.data, plan.timeline, plan.epoch)
            # whoever wrote it may have died before it was durable
            self._blobs.make_durable(key)
            return there
        return plan

    def read(self, timeline: str, epoch: int) -> StoredPlan | None:
        """The plan of an epoch, or None when none was stored; :class:`DamageError`."""
        blob = self._blobs.read(plan_key(timeline, epoch), PLAN_LIMIT)
        return None if blob is None else self._decoded(blob.data, timeline, epoch)

    def entries(self) -> list[PlanEntry]:
        """Every plan, of all timelines. None of them is read."""
        matches = ((_KEY.fullmatch(e.key), e) for e in self._blobs.entries(PLANS_PREFIX))
        plans = [PlanEntry(m[1], int(m[2]), entry) for m, entry in matches if m is not None]
        # a second spelling of a number is not one of our names
        return [p for p in plans if p.entry.key == _key(p.timeline, p.epoch)]

    def epochs_after(self, timeline: str, epoch: int) -> set[int]:
        """Which later epochs of a timeline have a plan."""
        return {p.epoch for p in self.entries() if p.timeline == timeline and p.epoch > epoch}

    def copy_to(self, target: Plans, timeline: str) -> int:
        """Bring the plans of a timeline to another store, byte for byte; how many that were.

        One that is there already stays.
        """
        copied = 0
        there = {p.entry.key for p in target.entries()}
        for plan in self.entries():
            key = plan.entry.key
            if plan.timeline != timeline or key in there:
                continue
            blob = self._blobs.read(key, PLAN_LIMIT)
            if blob is None:
                continue  # pruned in the meantime
            try:
                create_once(target._blobs, key, blob.data, PLAN_LIMIT)
                copied += 1
            except Taken:
                continue
        return copied

    def _decoded(self, data: bytes, timeline: str, epoch: int) -> StoredPlan:
        try:
            return decode_plan(data, timeline, epoch)
        except DamageError as error:
            raise DamageError(
                error.what,
                where=f"{self._blobs.url}/{plan_key(timeline, epoch)}",
                hint="It says which rows the epoch started with, and a sink may have written "
                "them. Restore the file from a copy of the store, or roll the pipeline back, if "
                "only to its newest checkpoint: that starts a new timeline, with plans of its own.",
            ) from None


def decode_plan(data: bytes, timeline: str, epoch: int) -> StoredPlan:
    """Read a stored plan; :class:`DamageError` when it is not whole or of another epoch."""
    what = f"the plan of epoch {epoch}"
    plan = decode_sealed(
        data,
        StoredPlan,
        version_field="version",
        newest=PLAN_VERSION,
        name=what,
        too_new=f"{what} has version",
    )
    if (plan.timeline, plan.epoch) != (timeline, epoch):
        raise DamageError(f"{what} is damaged: it says epoch {plan.epoch} of {plan.timeline!r}")
    return plan


def plan_key(timeline: str, epoch: int) -> str:
    """The key of a plan; :class:`InvalidInputError` for what cannot be in one."""
    if TIMELINE.fullmatch(timeline) is None:
        raise InvalidInputError(f"a timeline is 32 hexadecimal digits, not {timeline!r}")
    return _key(timeline, check_id(epoch, "an epoch"))


def _key(timeline: str, epoch: int) -> str:
    return f"{PLANS_PREFIX}{timeline}-{epoch:06}.json"


def is_stale(plan: PlanEntry, timeline: str, oldest_epoch: int) -> bool:
    """Whether no start can need a plan any more. Pure.

    That is one of a timeline that was left, or of an epoch that is behind every checkpoint from
    which the pipeline could go on.
    """
    return plan.timeline != timeline or plan.epoch <= oldest_epoch
