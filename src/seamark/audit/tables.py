"""Comparing a table that keeps its versions with what epochs have written.

Tests: ``tests/audit/test_delta.py``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator

from seamark.audit.expectations import EpochRows, SinkHistory
from seamark.audit.verdicts import Shown
from seamark.errors import DamageError
from seamark.spark.row_digests import RowDigest


class TableVersions(ABC):
    """The versions of a table. What cannot be read because it is damaged: :class:`DamageError`."""

    @abstractmethod
    def version_of(self, known: EpochRows) -> int | None:
        """The version that shows an epoch first."""

    @abstractmethod
    def newest(self) -> int | None:
        """The version that readers see now; None when only those of epochs are known."""

    @abstractmethod
    def added(self, version: int) -> RowDigest | None:
        """What a version has added to the one before; None when that cannot be told any more."""

    @abstractmethod
    def whole(self, version: int) -> RowDigest | None:
        """All rows of a version; None when it cannot be read any more."""

    @abstractmethod
    def count(self, version: int) -> int | None:
        """How many rows a version has had, read or not; None when nothing tells."""


class ReadOnce(TableVersions):
    """The versions of a table, none of which is read twice: many epochs may name the same one."""

    def __init__(self, table: TableVersions) -> None:
        self._table = table
        self._known: dict[tuple[str, int], RowDigest | DamageError | None] = {}

    def version_of(self, known: EpochRows) -> int | None:
        return self._table.version_of(known)

    def newest(self) -> int | None:
        return self._table.newest()

    def added(self, version: int) -> RowDigest | None:
        return self._once("added", version, self._table.added)

    def whole(self, version: int) -> RowDigest | None:
        return self._once("whole", version, self._table.whole)

    def count(self, version: int) -> int | None:
        return self._table.count(version)

    def _once(
        self, what: str, version: int, read: Callable[[int], RowDigest | None]
    ) -> RowDigest | None:
        key = what, version
        if key not in self._known:
            try:
                self._known[key] = read(version)
            except DamageError as error:
                self._known[key] = error
        if isinstance(found := self._known[key], DamageError):
            raise found
        return found


def compare_table(history: SinkHistory, versions: TableVersions) -> Iterator[Shown]:
    """What a table shows of each epoch, and of all together, by its mode."""
    table = versions if isinstance(versions, ReadOnce) else ReadOnce(versions)
    mode = history.options.get("mode") or "append"
    first, last = history.since, history.newest.epoch
    if mode in ("append", "overwrite"):
        # before anything is read: a running pipeline goes on meanwhile
        newest = table.newest()
        if mode == "overwrite":
            yield from _replaced(history, table, newest)
            return
        for known in history.epochs:
            yield _appended(known, table)
        yield _all_rows(history, table, newest)
    else:
        note = (
            "a table with a row for each key holds what is left of all epochs, and no digest of "
            "epochs tells that"
        )
        yield Shown(first=first, last=last, note=note)


def _appended(known: EpochRows, table: TableVersions) -> Shown:
    epoch = known.epoch
    version = table.version_of(known)
    if version is None:
        note = "its checkpoint does not say in which version of the table it is"
        return Shown(first=epoch, last=epoch, note=note)
    try:
        found = table.added(version)
    except DamageError as error:
        return Shown(first=epoch, last=epoch, expected=known.own, damage=error.what)
    note = "" if found is not None else "the table does not keep what this epoch has added"
    return Shown(first=epoch, last=epoch, expected=known.own, found=found, note=note)


def _all_rows(history: SinkHistory, table: TableVersions, version: int | None) -> Shown:
    """All rows that there are now, without those that were there before the pipeline."""
    first, last = history.since, history.newest.epoch
    expected, ahead = history.newest.total, history.total_ahead
    given_up = {each.total: each.epoch for each in history.given_up}
    if version is None:
        version = table.version_of(history.newest)
    try:
        found = table.whole(version) if version is not None else None
        if found is None:
            return Shown(first=first, last=last, note="the table cannot be read as a whole")
        oldest = history.epochs[0]
        is_known = found in (expected, ahead, *given_up)
        if not is_known and (then := table.version_of(oldest)) is not None:
            # rows of others: as many as there were when the oldest epoch was shown
            others, is_counted = _others(table, then, oldest)
            if others.rows > 0:
                note = f"{others.rows} rows of the table are not the pipeline's"
                if is_counted:
                    note += f"; only counted: the table as epoch {oldest.epoch} has left it is gone"
                rest = found - others
                return Shown(
                    first=first,
                    last=last,
                    expected=expected,
                    found=rest,
                    note=note,
                    is_counted=is_counted,
                    is_of_now=True,
                    ahead=ahead,
                    given_up=given_up,
                )
    except DamageError as error:
        return Shown(first=first, last=last, expected=expected, damage=error.what)
    return Shown(
        first=first,
        last=last,
        expected=expected,
        found=found,
        is_of_now=True,
        ahead=ahead,
        given_up=given_up,
    )


def _others(table: TableVersions, version: int, oldest: EpochRows) -> tuple[RowDigest, bool]:
    """The rows of others at the version of the oldest epoch, and whether they are only counted."""
    whole = table.whole(version)
    if whole is not None:
        return whole - oldest.total, False
    # its files may have been vacuumed since, and the log still tells how many rows they had
    count = table.count(version)
    more = 0 if count is None else max(count - oldest.total.rows, 0)
    return RowDigest(more, RowDigest.empty().digest), True


def _replaced(history: SinkHistory, table: TableVersions, newest: int | None) -> Iterator[Shown]:
    """A table that holds its newest epoch and nothing else."""
    for known in history.epochs:
        version, ahead = table.version_of(known), None
        if is_newest := known is history.newest:
            version = newest or version
            ahead = history.pending.own if history.pending is not None else None
        try:
            found = table.whole(version) if version is not None else None
        except DamageError as error:
            yield Shown(first=known.epoch, last=known.epoch, expected=known.own, damage=error.what)
            continue
        note = "" if found is not None else "the table does not keep this version any more"
        yield Shown(
            first=known.epoch,
            last=known.epoch,
            expected=known.own,
            found=found,
            note=note,
            is_of_now=is_newest,
            ahead=ahead,
            given_up={each.own: each.epoch for each in history.given_up} if is_newest else {},
        )
