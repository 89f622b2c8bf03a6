"""Holding every sink of a pipeline against the digests in its store.

Tests: ``tests/cli/test_audit.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from seamark._common.progress_bars import Advance
from seamark.audit.epoch_listing import SharedFolders
from seamark.audit.expectations import SinkHistory, histories_of
from seamark.audit.shared_tables import SharedTables, table_place
from seamark.audit.verdicts import Result, Shown, Verdict, verdict_of
from seamark.errors import CheckpointNotFoundError, DamageError, InvalidInputError
from seamark.manifest.decisions import chain_findings, link_of
from seamark.store import CheckpointStore, Owner
from seamark.store.consistent_read import Overtaken, until_settled
from seamark.store.inspection import mark_of, scan
from seamark.store.manifest_scan import ScannedCheckpoint
from seamark.table_formats.services import is_same_service

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from seamark.audit.limited_targets import LimitedTargets

_TRIES: Final = 3
_NOTHING_TO_READ: Final = {
    "key-value": "a view keeps the newest row of each key, and no digest of epochs tells that",
    "function": "only the function knows what it has done with its rows",
    "memory": "its rows are gone with the process",
    "console": "its rows are gone with the process",
}


@dataclass(frozen=True, kw_only=True)
class Access:
    """How targets are reached."""

    targets: Mapping[str, str] = field(default_factory=dict)
    """By sink: where it is, if not where the checkpoint says; the address of a database."""
    storage_options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class SinkAudit:
    """What was found out about one sink."""

    sink: str
    kind: str
    target: str
    verdicts: tuple[Verdict, ...]

    @property
    def is_damaged(self) -> bool:
        """Whether it does not show what was written to it."""
        return any(verdict.result.is_damage for verdict in self.verdicts)


@dataclass(frozen=True, kw_only=True)
class Audit:
    """What was found out about a store and its sinks."""

    store: str
    epoch: int
    """The newest epoch."""
    sinks: tuple[SinkAudit, ...]
    chain: Mapping[int, str]
    """Checkpoints that were changed after they were decided, and how that shows."""
    gaps: tuple[Mapping[str, Any], ...] = ()
    """Where sources have left out rows: what is not in any epoch."""

    @property
    def is_damaged(self) -> bool:
        """Whether anything is not as it was written."""
        return bool(self.chain) or any(sink.is_damaged for sink in self.sinks)


def audit(
    store: CheckpointStore,
    spark: Callable[[], SparkSession],
    *,
    sinks: Sequence[str] = (),
    epochs: tuple[int, int] | None = None,
    access: Access | None = None,
    progress: Advance | None = None,
) -> Audit:
    """Hold what the sinks show against the digests of their epochs. Changes nothing.

    ``sinks`` and ``epochs`` (first and last) choose some of them. ``spark`` is called when rows
    have to be read. :class:`CheckpointNotFoundError` for a store without a checkpoint,
    :class:`InvalidInputError` for a sink that it does not know.

    A pipeline may be running, merging epochs or being rolled back: what looks damaged meanwhile is
    looked at again, and all of it when the store was rolled back.
    """
    told: set[str] = set()

    def tell(sink: str) -> None:
        if progress is not None and sink not in told:  # when it starts over, some are done again
            told.add(sink)
            progress(1)

    return until_settled(
        lambda: _audited(store, spark, sinks, epochs, access or Access(), tell), store.url
    )


def _audited(
    store: CheckpointStore,
    spark: Callable[[], SparkSession],
    sinks: Sequence[str],
    epochs: tuple[int, int] | None,
    access: Access,
    tell: Callable[[str], None],
) -> Audit:
    """:class:`Overtaken` when a sink looks damaged and the store was rolled back meanwhile."""
    owner = store.owner()
    scanned = list(scan(store))
    newest = next((one.manifest for one in scanned if _counts(one)), None)
    if newest is None:
        raise CheckpointNotFoundError(
            "there is no checkpoint that sinks could be held against", where=store.url
        )
    links = {one.checkpoint_id: link_of(one.manifest) for one in scanned if one.manifest}
    histories = histories_of(scanned)
    names = [history.sink for history in histories]
    if unknown := sorted(set(sinks) - set(names)):
        raise InvalidInputError(
            f"there is no sink {unknown[0]!r}", hint=f"The sinks are {', '.join(names)}."
        )
    chosen = [history for history in histories if not sinks or history.sink in sinks]
    reading = _Reading(store, spark, access, epochs, chosen)
    found = {}
    for history in sorted(chosen, key=reading.place):  # those of one table after each other
        found[history.sink] = reading.audited(history, owner)
        tell(history.sink)
    return Audit(
        store=store.url,
        epoch=newest.epoch,
        sinks=tuple(found[history.sink] for history in chosen),
        chain=chain_findings(links),
        gaps=newest.gaps,
    )


def _counts(one: ScannedCheckpoint) -> bool:
    return one.manifest is not None and one.damage is None and not one.superseded


def _require_same_lineage(store: CheckpointStore, owner: Owner) -> None:
    """:class:`Overtaken` when checkpoints were given up since the owner was read."""
    now = store.owner()
    if (now.timeline, now.superseded) != (owner.timeline, owner.superseded):
        raise Overtaken


class _SecondLook:
    """What all sinks have to show by now: the store is read again only when it has changed."""

    def __init__(self, store: CheckpointStore) -> None:
        self._store = store
        self.scans = 0
        """How often the store was read."""
        self._newest = 0
        self._mark: Hashable = None
        self._histories: dict[str, SinkHistory] = {}

    def histories(self) -> Mapping[str, SinkHistory]:
        """By sink."""
        mark = mark_of(self._store, self._newest)
        if mark != self._mark:
            scanned = list(scan(self._store))
            self.scans += 1
            self._histories = {each.sink: each for each in histories_of(scanned)}
            newest = max((one.checkpoint_id for one in scanned), default=0)
            # a mark of another checkpoint does not tell when the newest one changes
            self._mark = mark if newest == self._newest else None
            self._newest = newest
        return self._histories


class _Reading:
    """Reads the targets of sinks, one after the other."""

    def __init__(
        self,
        store: CheckpointStore,
        spark: Callable[[], SparkSession],
        access: Access,
        epochs: tuple[int, int] | None,
        histories: Sequence[SinkHistory] = (),
    ) -> None:
        self._store = store
        self._spark = spark
        self._access = access
        self._epochs = epochs
        self._histories = histories
        self._look = _SecondLook(store)
        self._folders = SharedFolders()
        self._tables = SharedTables()

    def place(self, history: SinkHistory) -> tuple[str, str]:
        """The same for sinks of one table, to read them one after the other."""
        given = self._access.targets.get(history.sink)
        match history.kind:
            case "delta":
                return history.kind, repr(table_place(given or history.target))
            case "iceberg":
                from seamark.audit.iceberg import iceberg_place

                return history.kind, repr(iceberg_place(history, given))
        return "", ""

    def audited(self, history: SinkHistory, owner: Owner) -> SinkAudit:
        """What one sink shows; whatever looks damaged is looked at again before it is called so.

        ``owner`` was read before the history: :class:`Overtaken` when the store was rolled back
        since, and the sink looks damaged.
        """
        before: set[tuple[int, int, Result]] = set()
        for look in range(_TRIES):
            # nor may a look be older than the history that it is held against
            self._tables.look = look, self._look.scans
            shown = self._shown(history)
            verdicts = tuple(verdict_of(each, history) for each in shown)
            damaged = [
                (each, verdict)
                for each, verdict in zip(shown, verdicts, strict=True)
                if verdict.result.is_damage
            ]
            if not damaged:
                break
            _require_same_lineage(self._store, owner)
            if history.kind == "files":
                break  # a folder was listed again already; of others only a second look tells
            now = self._again(history)
            is_ahead = now is not None and any(each.is_of_now for each, _ in damaged)
            found = {(verdict.first, verdict.last, verdict.result) for _, verdict in damaged}
            if not is_ahead and found <= before:
                break
            before, history = found, now or history
        return SinkAudit(
            sink=history.sink,
            kind=history.kind,
            target=self._access.targets.get(history.sink, history.target),
            verdicts=verdicts,
        )

    def _again(self, history: SinkHistory) -> SinkHistory | None:
        """The sink's history as it is now; None if no epoch was decided or committed meanwhile."""
        now = self._look.histories().get(history.sink)
        if now is None or not now.epochs:
            return None
        was = history.newest.epoch, history.pending
        return now if (now.newest.epoch, now.pending) != was else None

    def _shown(self, history: SinkHistory) -> list[Shown]:
        if not history.epochs:
            return [Shown(first=0, last=0, note=history.note)]
        first, last = history.since, history.newest.epoch
        if note := _NOTHING_TO_READ.get(history.kind):
            return [Shown(first=first, last=last, note=note)]
        try:
            return [each for each in self._read(history) if self._is_asked(each)]
        except DamageError as error:
            expected = history.newest.total
            return [Shown(first=first, last=last, expected=expected, damage=error.what)]

    def _is_asked(self, shown: Shown) -> bool:
        if self._epochs is None:
            return True
        first, last = self._epochs
        return first <= shown.last and shown.first <= last

    def _read(self, history: SinkHistory) -> Iterator[Shown]:
        options = self._options(history)
        given = self._access.targets.get(history.sink)
        moved = history if given is None else replace(history, target=given)
        match history.kind:
            case "files":
                from seamark.audit.files import read_files

                self._limited.require(history.sink)
                return read_files(
                    self._spark(),
                    moved,
                    is_named=given is not None,
                    folders=self._folders,
                    is_limited=not self._limited.is_sure(history.sink),
                )
            case "delta":
                from seamark.audit.delta import read_delta

                self._limited.require(history.sink)
                return read_delta(self._spark(), moved, options, self._tables)
            case "iceberg":
                from seamark.audit.iceberg import read_iceberg

                self._limited.require(history.sink)
                url, tables = self._store.url, self._tables
                return read_iceberg(self._spark(), history, options, given, url, tables)
            case "postgres":
                from seamark.audit.postgres import read_postgres

                return read_postgres(self._spark(), history, given)
            case "kafka":
                from seamark.audit.kafka import read_kafka

                return read_kafka(self._spark(), history, given, options)
        note = f"nothing is known about reading a sink of the kind {history.kind!r}"
        return iter([Shown(first=history.since, last=history.newest.epoch, note=note)])

    def _options(self, history: SinkHistory) -> Mapping[str, str]:
        if history.kind != "delta" or history.sink in self._access.targets:
            return self._access.storage_options
        # a login goes where the user has said, or where the store is
        is_own = is_same_service(history.target, self._store.url)
        return self._access.storage_options if is_own else {}

    @cached_property
    def _limited(self) -> LimitedTargets:
        """The targets that only the store names."""
        from seamark.audit import delta, iceberg, tried_folders
        from seamark.audit.limited_targets import LimitedTargets

        tried = {}
        for history in self._histories:
            if history.sink in self._access.targets:
                continue
            options = self._options(history)
            match history.kind:
                case "delta":
                    tried[history.sink] = delta.tried_target(history, options)
                case "iceberg":
                    tried[history.sink] = iceberg.tried_target(history, options, self._store.url)
                case "files":
                    tried[history.sink] = tried_folders.tried_target(history)
        return LimitedTargets({sink: each for sink, each in tried.items() if each is not None})


def worst(verdicts: Sequence[Verdict]) -> Result:
    """The result that a sink is known by: damage first, then what was compared."""
    results = [verdict.result for verdict in verdicts]
    damage = [result for result in results if result.is_damage]
    if damage:
        return damage[0]
    return Result.OK if Result.OK in results else Result.UNCOMPARED
