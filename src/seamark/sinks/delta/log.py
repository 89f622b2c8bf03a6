"""What the log of a Delta table says about the epochs of one sink.

An entry that shows an epoch has the rows, two app transactions, and in the commit info the epoch's
record. Entries are cleaned up after a time (30 days by default). The app transactions stay.

Tests: ``tests/sinks/test_delta_log.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from seamark._common.json_documents import UNREADABLE
from seamark.blobs.contract import Blobs
from seamark.errors import DamageError, LineageError, RefusedError
from seamark.limits import LARGEST_TABLE_FILE
from seamark.sinks.contract import Identity, Receipt, gone_on, require_given_up
from seamark.sinks.delta.file_changes import NO_FILES, FileChange, UnnamedVersion
from seamark.sinks.delta.place import entry_name

KEY: Final = "seamark"
_RESTORE: Final = "RESTORE"


class TakenBack(msgspec.Struct, frozen=True):
    """The record of a rollback: the epochs after this one are no longer shown."""

    pipeline: str
    sink: str
    after: int
    now: Receipt | None = None
    """The newest epoch that is shown since."""


class ColumnsAdded(msgspec.Struct, frozen=True):
    """The record of columns that a sink has added to the table."""

    pipeline: str
    sink: str
    names: list[str]


class _DeletionVector(msgspec.Struct, frozen=True):
    storageType: str = ""
    pathOrInlineDv: str = ""
    offset: int | None = None


class _File(msgspec.Struct, frozen=True):
    path: str = ""
    dataChange: bool = True
    deletionVector: _DeletionVector | None = None

    @property
    def name(self) -> str:
        """What tells it from others: rows that are deleted in it make it another one."""
        gone = self.deletionVector
        which = "" if gone is None else f"{gone.storageType}{gone.pathOrInlineDv}@{gone.offset}"
        return f"{unquote(self.path)}\n{which}"


class _Transaction(msgspec.Struct, frozen=True):
    appId: str = ""
    version: int = 0


class _Line(msgspec.Struct, frozen=True):
    txn: _Transaction | None = None
    commitInfo: dict[str, Any] | None = None
    add: _File | None = None
    remove: _File | None = None
    metaData: dict[str, Any] | None = None
    protocol: dict[str, Any] | None = None


@dataclass(frozen=True)
class LogEntry:
    """One version of the table: who made it, and what it changed."""

    version: int
    operation: str = ""
    engine: str = ""
    shows: Receipt | None = None
    took_back: TakenBack | None = None
    added_columns: ColumnsAdded | None = None
    restored: int | None = None
    """The version that the table went back to, by us or by somebody else; None also for one that
    was named by a date."""
    files: FileChange = NO_FILES
    changes_rows: bool = False
    changes_table: bool = False
    added: tuple[str, ...] = ()
    """Files that it adds, by their paths below the table."""
    transactions: Mapping[str, int] = field(default_factory=dict)
    """The app transactions that it carries."""

    def belongs_to(self, pipeline: str, sink: str) -> bool:
        """Whether this sink has written it."""
        record = self.shows or self.took_back or self.added_columns
        return record is not None and (record.pipeline, record.sink) == (pipeline, sink)

    @property
    def is_restore(self) -> bool:
        """Whether the table went back to an earlier version."""
        return self.restored is not None or self.operation == _RESTORE

    @property
    def described(self) -> str:
        """For people."""
        return f"version {self.version} ({self.operation or 'unknown'}, {self.engine or 'unknown'})"


def read_entry(log: Blobs, version: int) -> LogEntry | None:
    """One entry of the log, or None when it is not there."""
    blob = log.read(entry_name(version), LARGEST_TABLE_FILE)
    if blob is None:
        return None
    try:
        lines = [msgspec.json.decode(line, type=_Line) for line in blob.data.splitlines() if line]
    except UNREADABLE as error:
        raise DamageError(
            f"entry {version} of the Delta log cannot be read: {error}", where=log.url
        ) from None
    info: dict[str, Any] = next((line.commitInfo for line in lines if line.commitInfo), {})
    files = [file for line in lines for file in (line.add, line.remove) if file is not None]
    ours = info.get(KEY)
    return LogEntry(
        version=version,
        operation=str(info.get("operation", "")),
        engine=str(info.get("engineInfo", "")),
        shows=_part(ours, "shows", Receipt),
        took_back=_part(ours, "took_back", TakenBack),
        added_columns=_part(ours, "added_columns", ColumnsAdded),
        restored=_restored(info),
        files=FileChange(
            frozenset(line.add.name for line in lines if line.add is not None),
            frozenset(line.remove.name for line in lines if line.remove is not None),
        ),
        changes_rows=any(file.dataChange for file in files),
        changes_table=any(line.metaData is not None or line.protocol is not None for line in lines),
        added=tuple(unquote(line.add.path) for line in lines if line.add is not None),
        transactions={line.txn.appId: line.txn.version for line in lines if line.txn is not None},
    )


def _part(ours: object, name: str, kind: type[Any]) -> Any:
    if not isinstance(ours, dict) or name not in ours:
        return None
    try:
        return msgspec.convert(ours[name], kind)
    except (*UNREADABLE, OverflowError):
        return None  # of somebody who uses the same key


def _restored(info: dict[str, Any]) -> int | None:
    parameters = info.get("operationParameters")
    if info.get("operation") != _RESTORE or not isinstance(parameters, dict):
        return None
    try:
        return int(parameters.get("version"))  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None  # by a date: its files tell


def entries_from(log: Blobs, version: int) -> Iterator[LogEntry]:
    """The entries of the log from this version down, until one has been cleaned up."""
    for number in range(version, -1, -1):
        entry = read_entry(log, number)
        if entry is None:
            return
        yield entry


@dataclass(frozen=True)
class Shown:
    """An epoch of the sink in the log."""

    entry: LogEntry
    receipt: Receipt
    taken_by: LogEntry | None = None
    """What took it back, if anything did."""


def epochs_in(entries: Iterable[LogEntry], pipeline: str, sink: str) -> Iterator[Shown]:
    """The epochs of a sink, newest first, those that were taken back among them. Pure."""
    back: LogEntry | None = None
    valid_from: int | None = None
    unnamed: UnnamedVersion | None = None
    for entry in entries:
        if unnamed is not None and unnamed.is_reached:
            valid_from, unnamed = entry.version, None
        # a restore takes away everything between itself and the version that it goes back to
        is_gone = unnamed is not None or (valid_from is not None and entry.version > valid_from)
        if entry.shows is not None and entry.belongs_to(pipeline, sink):
            yield Shown(entry, entry.shows, back if is_gone else None)
        if unnamed is not None:
            unnamed.go_before(entry.files)
        elif entry.is_restore and not is_gone:
            back, valid_from = entry, entry.restored
            unnamed = UnnamedVersion(entry.files.undone) if entry.restored is None else None


class Answer(Enum):
    """Whether the log shows an epoch."""

    OURS = "this very attempt"
    OTHER = "another one in its place"
    ABSENT = "nothing"
    TAKEN = "this very attempt was shown, and was taken away"
    UNKNOWN = "the entries that would tell were cleaned up"


def find_epoch(
    entries: Iterable[LogEntry], pipeline: str, sink: str, epoch: int, attempt: str = ""
) -> tuple[Answer, Shown | None]:
    """What the log says about an epoch. Pure."""
    last: LogEntry | None = None

    def watched() -> Iterator[LogEntry]:
        nonlocal last
        for entry in entries:
            last = entry
            yield entry

    for shown in epochs_in(watched(), pipeline, sink):
        number = shown.receipt.epoch
        if shown.taken_by is not None:
            if number == epoch and attempt and shown.receipt.attempt == attempt:
                return Answer.TAKEN, shown
            continue
        if number == epoch:
            is_ours = attempt in ("", shown.receipt.attempt)
            return (Answer.OURS if is_ours else Answer.OTHER), shown
        if number < epoch:
            return Answer.ABSENT, None
    if last is not None and last.version == 0:
        return Answer.ABSENT, None
    return Answer.UNKNOWN, None


def taken_away(shown: Shown, expected: Identity, where: str) -> LineageError:
    """The error for an epoch that was shown once and that somebody has taken away since."""
    by = shown.taken_by.described if shown.taken_by is not None else "somebody"
    return LineageError(
        f"epoch {expected.epoch} was shown in version {shown.entry.version} and taken away by {by}",
        where=where,
        hint="Restore the table to a version that has it, or roll the pipeline back to the newest "
        "epoch that the table shows.",
    )


@dataclass(frozen=True)
class TakeBack:
    """How later epochs are taken away from readers."""

    epochs: tuple[int, ...]
    attempts: tuple[str, ...]
    version: int
    """The version that the table goes back to."""
    transactions: dict[str, int]
    """The epoch that each timeline is at afterwards."""
    now: Receipt | None
    newest: Receipt
    """What the table shows until then."""

    def after(self, first: TakeBack | None, of: str | None, where: str) -> TakeBack:
        """What was seen ``first``; :class:`LineageError` when others are there by now."""
        require_given_up(self.newest, of, where)
        if first is not None and self.newest.attempt not in first.attempts:
            raise gone_on(self.newest, where)
        return first or self


def plan_take_back(
    entries: Iterable[LogEntry], pipeline: str, sink: str, after: int, where: str
) -> TakeBack | None:
    """How to take back the epochs after this one; None when there are none. Pure.

    :class:`RefusedError` when somebody else has written since, or the log does not reach back.
    """
    seen: list[LogEntry] = []

    def watched() -> Iterator[LogEntry]:
        for entry in entries:
            seen.append(entry)
            yield entry

    taken: list[Shown] = []
    base: Receipt | None = None
    for shown in epochs_in(watched(), pipeline, sink):
        if shown.taken_by is not None:
            continue
        if shown.receipt.epoch <= after:
            base = shown.receipt
            break
        taken.append(shown)
    if base is None and (not seen or seen[-1].version != 0):
        raise RefusedError(
            f"the log no longer says which version has epoch {after} and nothing later",
            where=where,
            hint="Entries that old were cleaned up. Roll back to a later epoch, or write to a new "
            "table.",
        )
    if not taken:
        return None
    first = taken[-1].entry.version
    for entry in seen:
        is_ours = entry.belongs_to(pipeline, sink)
        if entry.version > first and not is_ours and (entry.changes_rows or entry.changes_table):
            raise RefusedError(
                f"others have written to the table since epoch {taken[-1].receipt.epoch}: "
                f"{entry.described}",
                where=where,
                hint=f"Going back to version {first - 1} would take that away too. Remove the rows "
                "of the later epochs by hand, or write to a new table.",
            )
    timelines = {shown.receipt.timeline: 0 for shown in taken}
    if base is not None:
        timelines[base.timeline] = base.epoch
    return TakeBack(
        epochs=tuple(sorted(shown.receipt.epoch for shown in taken)),
        attempts=tuple(shown.receipt.attempt for shown in taken),
        version=first - 1,
        transactions=timelines,
        now=base,
        newest=taken[0].receipt,
    )
