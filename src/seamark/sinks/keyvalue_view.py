"""The live view in its store: rows, the ledger of epochs, and source checkpoints, in one session.

Spaces of the progress store::

    view      {key} → the row as JSON: what readers read
    times     {key} → when it expires, milliseconds, 8 bytes, big-endian; only with ``expire``
    epochs    {number, 20 digits} → the receipt; 'newest' → which one is shown; 'owner' → whose
"""

from __future__ import annotations

import heapq
import struct
from dataclasses import dataclass, field
from typing import Final

import msgspec

from seamark.errors import RefusedError
from seamark.progress.records import stage_sources
from seamark.progress.session import Session
from seamark.progress.store import SourceCheckpointStore
from seamark.sinks.contract import Receipt
from seamark.sinks.keyvalue_rows import Rows

VIEW: Final = "view"
TIMES: Final = "times"
EPOCHS: Final = "epochs"
_NEWEST: Final = b"newest"
_OWNER: Final = b"owner"
_REMEMBERED: Final = 64
"""Epochs whose receipts are kept: enough to tell 'already' from 'another' after any restart."""
_MS: Final = struct.Struct(">q")


class Place(msgspec.Struct, frozen=True):
    """Which epoch of which history a view shows."""

    timeline: str
    epoch: int
    attempt: str


class Owner(msgspec.Struct, frozen=True):
    """Whose view it is, and by which columns its rows are known."""

    pipeline: str
    sink: str
    key: tuple[str, ...]
    version: int = 1


class StagedEpoch(msgspec.Struct, frozen=True):
    """What is staged beside the rows of an epoch, and applied with them."""

    receipt: Receipt
    after: Place | None
    """What the view shows before this epoch; it fits nowhere else."""
    watermark: int | None
    positions: dict[str, bytes]
    config_hash: int | None
    replace: bool = False
    """Whether the epoch is the whole view, not a change of it."""

    @property
    def place(self) -> Place:
        """Which epoch it is."""
        return Place(self.receipt.timeline, self.receipt.epoch, self.receipt.attempt)


def epoch_key(epoch: int) -> bytes:
    """The key of an epoch's receipt."""
    return b"%020d" % epoch


def newest_place(data: bytes | None) -> Place | None:
    """What a view shows, from what is stored under 'newest'."""
    return None if data is None else msgspec.json.decode(data, type=Place)


def shown_place(reader: SourceCheckpointStore | Session) -> Place | None:
    """The newest epoch that the view shows."""
    return newest_place(reader.get(EPOCHS, _NEWEST))


def receipt_of_epoch(reader: SourceCheckpointStore | Session, epoch: int) -> Receipt | None:
    """The receipt of an epoch, while it is remembered."""
    data = reader.get(EPOCHS, epoch_key(epoch))
    return None if data is None else msgspec.json.decode(data, type=Receipt)


def require_owner(session: Session, wanted: Owner) -> None:
    """Note whose view it is; :class:`RefusedError` when it is somebody else's."""
    data = session.get(EPOCHS, _OWNER)
    if data is None:
        session.put(EPOCHS, _OWNER, msgspec.json.encode(wanted))
        return
    found = msgspec.json.decode(data, type=Owner)
    if (found.pipeline, found.sink) != (wanted.pipeline, wanted.sink):
        raise RefusedError(
            f"the view belongs to the output {found.sink!r} of the pipeline {found.pipeline!r}",
            where=session.store.url,
            hint=f"Give {wanted.sink!r} of {wanted.pipeline!r} a view of its own.",
        )
    if found.key != wanted.key:
        raise RefusedError(
            f"the view's rows are known by {', '.join(found.key)}, not by {', '.join(wanted.key)}",
            where=session.store.url,
            hint="Keep the key, or write to a new view.",
        )


@dataclass
class Expiry:
    """Which rows expire when; in memory, as of one epoch of the view."""

    place: Place | None = None
    times: dict[bytes, int] = field(default_factory=dict)
    _heap: list[tuple[int, bytes]] = field(default_factory=list)

    @classmethod
    def read(cls, store: SourceCheckpointStore, place: Place | None) -> Expiry:
        """What the view says."""
        times = {key: _MS.unpack(value)[0] for key, value in store.items(TIMES)}
        heap = [(at, key) for key, at in times.items()]
        heapq.heapify(heap)
        return cls(place, times, heap)

    def due(self, watermark: int) -> set[bytes]:
        """Keys whose time has come. They stay until :meth:`follow` is told."""
        found, back = set(), []
        while self._heap and self._heap[0][0] <= watermark:
            at, key = heapq.heappop(self._heap)
            if self.times.get(key) == at:
                found.add(key)
                back.append((at, key))
        for entry in back:
            heapq.heappush(self._heap, entry)
        return found

    def follow(self, effect: Effect, place: Place) -> None:
        """Follow the view to its next epoch."""
        for key in effect.gone | effect.untimed:
            self.times.pop(key, None)
        for key, at in effect.times.items():
            self.times[key] = at
            heapq.heappush(self._heap, (at, key))
        self.place = place


@dataclass(frozen=True)
class Effect:
    """What an epoch does to a view, once late and expired rows are known."""

    upserts: dict[bytes, bytes]
    times: dict[bytes, int]
    gone: set[bytes]
    untimed: set[bytes]
    """Keys that stay and no longer expire."""


def effect_of(rows: Rows, watermark: int | None, expiry: Expiry | None) -> Effect:
    """Leave out rows that come too late, and add what the watermark lets expire. Pure."""
    gone = set(rows.deletes)
    if expiry is None:
        return Effect(rows.upserts, {}, gone, set())
    upserts, times = rows.upserts, rows.times
    if watermark is not None:
        late = {key for key, at in times.items() if at <= watermark}
        if late:
            upserts = {key: value for key, value in upserts.items() if key not in late}
            times = {key: at for key, at in times.items() if key not in late}
        gone |= expiry.due(watermark) - upserts.keys()
    untimed = (expiry.times.keys() & upserts.keys()) - times.keys()
    return Effect(upserts, times, gone, untimed)


def apply_epoch(session: Session, staged: StagedEpoch, effect: Effect) -> None:
    """Stage everything that an epoch changes."""
    if staged.replace:
        session.clear(VIEW)
        session.clear(TIMES)
    session.delete_many(VIEW, effect.gone)
    session.put_many(VIEW, effect.upserts.items())
    if effect.times or effect.gone or effect.untimed:
        session.delete_many(TIMES, effect.gone | effect.untimed)
        session.put_many(TIMES, ((key, _MS.pack(at)) for key, at in effect.times.items()))
    number = staged.receipt.epoch
    session.put(EPOCHS, epoch_key(number), msgspec.json.encode(staged.receipt))
    session.put(EPOCHS, _NEWEST, msgspec.json.encode(staged.place))
    if number > _REMEMBERED:
        session.delete(EPOCHS, epoch_key(number - _REMEMBERED))
    stage_sources(session, number, staged.positions)
    if staged.config_hash is not None:
        session.stage_config_hash(staged.config_hash)
