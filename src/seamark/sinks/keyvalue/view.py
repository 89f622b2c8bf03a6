"""The live view in its store: rows, the ledger of epochs, and source checkpoints, in one session.

Spaces of the progress store::

    view      {key} → the row as JSON: what readers read
    times     {key} → when it expires, milliseconds, 8 bytes, big-endian; only with ``expire``
    epochs    {number, 20 digits} → the receipt, and the digest of what was shown before;
              'newest' → which one is shown; 'owner' → whose;
              'taken back: {attempt}' → shown once, and never again
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

import msgspec

from seamark._common.json_documents import UNREADABLE
from seamark.errors import DamageError, RefusedError
from seamark.progress.session import Session, stage_sources
from seamark.progress.store import SourceCheckpointStore
from seamark.sinks.contract import Receipt
from seamark.sinks.keyvalue.view_rows import Rows

VIEW: Final = "view"
TIMES: Final = "times"
EPOCHS: Final = "epochs"
_NEWEST: Final = b"newest"
_OWNER: Final = b"owner"
_TAKEN_BACK: Final = b"taken back: "
_GIVEN_UP: Final = b"given up: "
_REMEMBERED: Final = 64
"""Epochs whose receipts stay at least: they tell 'already' from 'another' after any restart."""
_DIGITS: Final = 20
_MS: Final = struct.Struct(">q")

Reader = SourceCheckpointStore | Session
T = TypeVar("T")


class ViewVersion(msgspec.Struct, frozen=True):
    """Which epoch of which history a view shows."""

    timeline: str
    epoch: int
    attempt: str

    @classmethod
    def of(cls, receipt: Receipt) -> ViewVersion:
        """The version that a receipt is of."""
        return cls(receipt.timeline, receipt.epoch, receipt.attempt)


class Step(NamedTuple):
    """An epoch of a view, and the SHA-256 of its record where that is known."""

    version: ViewVersion
    digest: str | None


class AppliedEpoch(Receipt, frozen=True):
    """The receipt of an epoch, as it is in the view."""

    before: str | None = None
    """SHA-256 of the record of what the view showed before; empty when that was not kept.

    None where an earlier version has applied the epoch, which has noted nothing."""


class ViewOwner(msgspec.Struct, frozen=True):
    """Whose view it is, and by which columns its rows are known."""

    pipeline: str
    sink: str
    key: tuple[str, ...]
    version: int = 1


class StagedEpoch(msgspec.Struct, frozen=True, kw_only=True):
    """What is staged with the rows of an epoch, and applied with them."""

    receipt: Receipt
    after: ViewVersion | None
    """What the view shows before this epoch; it fits nowhere else."""
    watermark: int | None
    positions: dict[str, bytes]
    config_hash: int | None
    replace: bool = False
    """Whether the epoch is the whole view, not a change of it."""
    after_digest: str | None = None
    """SHA-256 of the record of the epoch that it follows.

    So the digest in the newest checkpoint tells of all kept epochs. None where it is not known:
    for the first epoch of a view, or one that an earlier version has staged.
    """

    @property
    def version(self) -> ViewVersion:
        """Which epoch it is."""
        return ViewVersion.of(self.receipt)

    @property
    def before(self) -> Step | None:
        """The epoch that it follows."""
        return Step(self.after, self.after_digest) if self.after else None


def epoch_key(epoch: int) -> bytes:
    """The key of an epoch's receipt."""
    return b"%0*d" % (_DIGITS, epoch)


def shown_version(reader: Reader) -> ViewVersion | None:
    """The newest epoch that the view shows."""
    return _found(reader, _NEWEST, ViewVersion)


def receipt_of_epoch(reader: Reader, epoch: int) -> Receipt | None:
    """The receipt of an epoch, while it is remembered."""
    return _found(reader, epoch_key(epoch), Receipt)


def before_epoch(reader: Reader, epoch: int) -> str | None:
    """What is noted of what the view showed before an epoch: see :class:`AppliedEpoch`."""
    applied = _found(reader, epoch_key(epoch), AppliedEpoch)
    return None if applied is None else applied.before


def _found(reader: Reader, key: bytes, kind: type[T]) -> T | None:
    data = reader.get(EPOCHS, key)
    try:
        return None if data is None else msgspec.json.decode(data, type=kind)
    except UNREADABLE as error:
        raise _damaged(reader, EPOCHS, key, str(error)) from None


def _damaged(reader: Reader, space: str, key: bytes, why: str) -> DamageError:
    return DamageError(
        f"the key {key.decode(errors='replace')!r} of the space {space!r} is damaged: {why}",
        where=reader.url if isinstance(reader, SourceCheckpointStore) else reader.store.url,
        hint="Something else has written here. Restore the server from a save.",
    )


def packed_time(milliseconds: int) -> bytes:
    """A time as it is stored."""
    return _MS.pack(milliseconds)


def unpacked_time(data: bytes) -> int:
    """A time from what is stored."""
    time: int = _MS.unpack(data)[0]
    return time


def note_owner(session: Session, ours: ViewOwner) -> None:
    """Note whose view it is; :class:`RefusedError` when it is somebody else's."""
    if not check_owner(session, ours):
        session.put(EPOCHS, _OWNER, msgspec.json.encode(ours))


def check_owner(reader: Reader, ours: ViewOwner) -> bool:
    """Whether it is noted whose view it is; :class:`RefusedError` when it is somebody else's."""
    stored = _found(reader, _OWNER, ViewOwner)
    if stored is None:
        return False
    where = reader.url if isinstance(reader, SourceCheckpointStore) else reader.store.url
    if (stored.pipeline, stored.sink) != (ours.pipeline, ours.sink):
        raise RefusedError(
            f"the view belongs to the output {stored.sink!r} of the pipeline {stored.pipeline!r}",
            where=where,
            hint=f"Give {ours.sink!r} of {ours.pipeline!r} a view of its own.",
        )
    if stored.key != ours.key:
        raise RefusedError(
            f"the view's rows are known by {', '.join(stored.key)}, not by {', '.join(ours.key)}",
            where=where,
            hint="Keep the key, or write to a new view.",
        )
    return True


@dataclass
class Expiry:
    """Which rows expire when; in memory, as of one epoch of the view."""

    version: ViewVersion | None = None
    times: dict[bytes, int] = field(default_factory=dict)
    _heap: list[tuple[int, bytes]] = field(default_factory=list)

    @classmethod
    def read(cls, store: SourceCheckpointStore, version: ViewVersion | None) -> Expiry:
        """What the view says."""
        times: dict[bytes, int] = {}
        for key, value in store.items(TIMES):
            if len(value) != _MS.size:
                raise _damaged(store, TIMES, key, f"{len(value)} bytes instead of {_MS.size}")
            times[key] = unpacked_time(value)
        heap = [(at, key) for key, at in times.items()]
        heapq.heapify(heap)
        return cls(version, times, heap)

    def due(self, watermark: int) -> set[bytes]:
        """Keys whose time has come. They stay until :meth:`follow` is called."""
        keys, back = set(), []
        while self._heap and self._heap[0][0] <= watermark:
            at, key = heapq.heappop(self._heap)
            if self.times.get(key) == at:
                keys.add(key)
                back.append((at, key))
        for entry in back:
            heapq.heappush(self._heap, entry)
        return keys

    def follow(self, effect: Effect, version: ViewVersion) -> None:
        """Follow the view to its next epoch."""
        for key in effect.gone | effect.untimed:
            self.times.pop(key, None)
        for key, at in effect.times.items():
            if self.times.get(key) != at:  # otherwise it is in the heap already
                self.times[key] = at
                heapq.heappush(self._heap, (at, key))
        self.version = version


@dataclass(frozen=True)
class Effect:
    """What an epoch does to a view, once it is known which rows expire."""

    upserts: dict[bytes, bytes]
    times: dict[bytes, int]
    gone: set[bytes]
    untimed: set[bytes]
    """Keys that stay and no longer expire."""
    has_times: bool = False
    """Whether rows of the view may expire at all."""


def effect_of(rows: Rows, watermark: int | None, expiry: Expiry | None) -> Effect:
    """Add what the watermark lets expire to what the rows say. Pure."""
    gone = set(rows.deletes)
    if expiry is None:
        return Effect(rows.upserts, {}, gone, set())
    if watermark is not None:
        gone |= expiry.due(watermark) - rows.upserts.keys()
    untimed = (expiry.times.keys() & rows.upserts.keys()) - rows.times.keys()
    return Effect(rows.upserts, rows.times, gone, untimed, has_times=True)


def apply_epoch(
    session: Session, staged: StagedEpoch, effect: Effect, kept: int, before: str
) -> None:
    """Stage everything that an epoch changes; by ``kept`` epochs the view may yet be taken back.

    ``before`` is the digest of what it showed before, empty when that was not kept.
    """
    if staged.replace:
        session.clear(VIEW)
        session.clear(TIMES)
    session.delete_many(VIEW, effect.gone)
    session.put_many(VIEW, effect.upserts.items())
    if effect.times or effect.gone or effect.untimed:
        session.delete_many(TIMES, effect.gone | effect.untimed)
        session.put_many(TIMES, ((key, packed_time(at)) for key, at in effect.times.items()))
    number = staged.receipt.epoch
    applied = AppliedEpoch(**msgspec.structs.asdict(staged.receipt), before=before)
    session.put(EPOCHS, epoch_key(number), msgspec.json.encode(applied))
    session.put(EPOCHS, _NEWEST, msgspec.json.encode(staged.version))
    remembered = max(_REMEMBERED, kept + 1)  # also of the one that is shown then
    if number > remembered:
        session.delete(EPOCHS, epoch_key(number - remembered))
    stage_sources(session, number, staged.positions)
    if staged.config_hash is not None:
        session.stage_config_hash(staged.config_hash)


def was_taken_back(session: Session, attempt: str) -> bool:
    """Whether an attempt was shown once and must not be shown again by anyone who still has it."""
    return session.get(EPOCHS, _TAKEN_BACK + attempt.encode()) is not None


def give_up(session: Session, attempt: str, epochs: Iterable[int]) -> bool:
    """Stage that nobody shows an attempt any more; False when one of its epochs is shown.

    Whoever is about to show it is overtaken by this, and finds it when it tries again.
    """
    shown = (receipt_of_epoch(session, epoch) for epoch in epochs)
    if any(one is not None and one.attempt == attempt for one in shown):
        return False
    session.put(EPOCHS, _GIVEN_UP + attempt.encode(), b"")
    return True


def was_given_up(session: Session, attempt: str) -> bool:
    """Whether another process is about to remove what was staged."""
    return session.get(EPOCHS, _GIVEN_UP + attempt.encode()) is not None


def forget_given_up(session: Session, attempt: str) -> None:
    """Stage that an attempt needs no mark any more: nothing of it is staged."""
    session.delete(EPOCHS, _GIVEN_UP + attempt.encode())


def forget_times(session: Session) -> None:
    """Stage that no row expires: an earlier run may have had rows that do."""
    if next(session.store.items(TIMES), None) is not None:
        session.clear(TIMES)


def forget_epoch(session: Session, staged: StagedEpoch) -> None:
    """Stage that the view shows what it showed before an epoch; its rows are the caller's."""
    session.delete(EPOCHS, epoch_key(staged.receipt.epoch))
    session.put(EPOCHS, _TAKEN_BACK + staged.receipt.attempt.encode(), b"")
    if staged.after is None:
        session.delete(EPOCHS, _NEWEST)
    else:
        session.put(EPOCHS, _NEWEST, msgspec.json.encode(staged.after))


def forget_all(session: Session) -> list[int]:
    """Stage that the view is empty, as if it had never shown anything; what it remembers."""
    remembered = dict(session.store.items(EPOCHS))
    numbers = [int(key) for key in remembered if key.isdigit() and len(key) == _DIGITS]
    shown = [receipt_of_epoch(session, number) for number in numbers]
    for space in (VIEW, TIMES, EPOCHS):
        session.clear(space)
    for key, value in remembered.items():
        if key == _OWNER or key.startswith(_TAKEN_BACK):
            session.put(EPOCHS, key, value)
    for receipt in shown:
        if receipt is not None:
            session.put(EPOCHS, _TAKEN_BACK + receipt.attempt.encode(), b"")
    session.forget_checkpoints()
    return sorted(numbers)
