"""Which epochs of a sink a Delta table shows, and taking them back.

The log tells while it has the entries. When they have been cleaned up, the app transactions tell
how far each timeline has come, and the record beside the table tells which epoch the newest is.

Tests: ``tests/sinks/test_delta.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from seamark.blobs.contract import KeyExists
from seamark.errors import (
    DamageError,
    InvalidInputError,
    LineageError,
    OutcomeUnknownError,
    RefusedError,
    StoreUnavailableError,
)
from seamark.sinks.contract import Identity, Receipt, another_lineage
from seamark.sinks.delta.entries import add_files
from seamark.sinks.delta.features import facts_of
from seamark.sinks.delta.log import (
    KEY,
    Answer,
    LogEntry,
    Shown,
    TakeBack,
    TakenBack,
    entries_from,
    epochs_in,
    find_epoch,
    plan_take_back,
    read_entry,
    taken_away,
)
from seamark.sinks.delta.place import TablePlace
from seamark.sinks.delta.staging import Staging

if TYPE_CHECKING:
    from deltalake import DeltaTable, Transaction

_TRIES: Final = 10
_MOST_READ: Final = 50
"""Entries of the log that are read one by one to follow the app transactions."""


class DeltaEpochs:
    """The epochs of one sink in one table."""

    def __init__(self, place: TablePlace, staging: Staging, pipeline: str, sink: str) -> None:
        self._place = place
        self.staging = staging
        self._pipeline = pipeline
        self._sink = sink
        self._looked = ("", -1)
        self._reached: dict[str, int] = {}

    # app transactions

    @property
    def _app(self) -> str:
        """Says how far the sink has come, in whichever timeline."""
        return f"seamark/{self._pipeline}/{self._sink}"

    def _app_of(self, timeline: str) -> str:
        return f"{self._app}/{timeline}"

    def transactions(self, timeline: str, epoch: int) -> list[Transaction]:
        """What an entry that shows an epoch carries."""
        from deltalake import Transaction

        return [Transaction(self._app_of(timeline), epoch), Transaction(self._app, epoch)]

    def _has(self, table: DeltaTable, timeline: str, epoch: int) -> bool:
        """Whether a timeline has come as far as this epoch."""
        return self._version(table, self._app_of(timeline)) >= epoch

    def _version(self, table: DeltaTable, app: str) -> int:
        """How far an app has come; 0 for not at all.

        ``deltalake`` reads all entries since the last checkpoint of the table for each question, so
        it is asked once, and later entries are read here.
        """
        looked = str(table.metadata().id), table.version()
        if looked != self._looked:
            self._reached = self._followed(*looked)
            self._looked = looked
        if app not in self._reached:
            with self._place.translated("reading"):  # its entries may have been cleaned up since
                self._reached[app] = table.transaction_version(app) or 0
        return self._reached[app]

    def _followed(self, table_id: str, version: int) -> dict[str, int]:
        """What is known about apps at a version, from what was known before."""
        before_id, before = self._looked
        if table_id != before_id or not before < version <= before + _MOST_READ:
            return {}
        reached = dict(self._reached)
        for number in range(before + 1, version + 1):
            entry = read_entry(self._place.log, number)
            if entry is None:
                return {}
            reached |= {app: at for app, at in entry.transactions.items() if app in reached}
        return reached

    # looking

    def _entries(self, table: DeltaTable) -> Iterator[LogEntry]:
        return entries_from(self._place.log, table.version())

    def find(self, table: DeltaTable, epoch: int, attempt: str = "") -> tuple[Answer, Shown | None]:
        """What the log says about an epoch."""
        if self._version(table, self._app) < epoch:
            return Answer.ABSENT, None
        return find_epoch(self._entries(table), self._pipeline, self._sink, epoch, attempt)

    def shown_version(self, table: DeltaTable, expected: Identity) -> tuple[bool, int | None]:
        """Whether the table shows this very epoch, and in which version, where that is known.

        :class:`LineageError` when it shows another one in its place.
        """
        answer, shown = self.find(table, expected.epoch, expected.attempt)
        if answer is Answer.UNKNOWN:
            if self._has(table, expected.timeline, expected.epoch):
                return True, None
            raise LineageError(
                f"the table shows epoch {expected.epoch} or a later one of another timeline",
                where=self._place.url,
                hint="Write to a new table, or give the sink another name.",
            )
        if shown is None:
            return False, None
        if answer is Answer.TAKEN:
            raise taken_away(shown, expected, self._place.url)
        if not expected.is_shown_by(shown.receipt):
            raise another_lineage(shown.receipt, expected, self._place.url)
        return True, shown.entry.version

    def is_entry_of(self, version: int, expected: Identity) -> bool:
        """Whether a version is the one that shows an epoch."""
        entry = read_entry(self._place.log, version)
        shows = entry.shows if entry is not None else None
        return shows is not None and expected.is_shown_by(shows)

    def files_added_by(self, version: int) -> tuple[str, ...]:
        """The files that a version adds."""
        entry = read_entry(self._place.log, version)
        return entry.added if entry is not None else ()

    def committed(self, epoch: int) -> Receipt | None:
        """The record of an epoch that readers see, or None."""

        def look(table: DeltaTable) -> Receipt | None:
            answer, shown = self.find(table, epoch)
            if answer is Answer.UNKNOWN:
                return self._recorded(table, epoch)
            return None if shown is None else shown.receipt

        return self._settled(look)

    def newest(self) -> Receipt | None:
        """The record of the newest epoch that readers see, or None."""
        return self._settled(self._newest)

    def _settled(self, look: Callable[[DeltaTable], Receipt | None]) -> Receipt | None:
        """What a look finds; a new one when the record it missed went with a new epoch."""
        for _ in range(_TRIES):
            table = self._place.find()
            if table is None:
                return None
            seen = str(table.metadata().id), table.version()  # a later look may update the table
            try:
                return look(table)
            except (DamageError, StoreUnavailableError):
                now = self._place.find()
                if now is not None and (str(now.metadata().id), now.version()) == seen:
                    raise
        raise StoreUnavailableError(
            "the table was written to, and its log cleaned up, during each of many looks",
            where=self._place.url,
            hint="That says nothing about what it holds. Try again later.",
        )

    def _newest(self, table: DeltaTable) -> Receipt | None:
        number = self._version(table, self._app)
        if not number:
            return None
        last: LogEntry | None = None

        def watched() -> Iterator[LogEntry]:
            nonlocal last
            for entry in self._entries(table):
                last = entry
                yield entry

        for shown in epochs_in(watched(), self._pipeline, self._sink):
            if shown.taken_by is None:
                return shown.receipt
        if last is not None and last.version == 0:
            return None
        return self._recorded(table, number)

    def _recorded(self, table: DeltaTable, epoch: int) -> Receipt:
        """The record beside the table, of an epoch whose entry was cleaned up."""
        for attempt in self.staging.attempts():
            receipt = self.staging.record(attempt)
            if (
                receipt is not None
                and receipt.epoch == epoch
                and self._has(table, receipt.timeline, epoch)
            ):
                return receipt
        raise DamageError(
            f"the table shows epoch {epoch}, but no longer says which one that is",
            where=self._place.url,
            hint="Its entry of the log was cleaned up, and so was _seamark beside the log. Give "
            "the sink another name: it then goes on with the next epoch.",
        )

    # what is staged

    def begin(self, receipt: Receipt) -> None:
        """Note an attempt before its first row; an earlier try of it is cleared away."""
        try:
            self.staging.begin(receipt)
        except KeyExists:
            if self._was_shown(self._place.look(), receipt.attempt):
                raise InvalidInputError(
                    f"attempt {receipt.attempt} has been shown, and cannot be staged again",
                    where=self._place.url,
                ) from None
            self.staging.begin_again(receipt)

    def leftovers(self) -> list[str]:
        """Attempts that were staged and not committed; forgets those that are old."""
        attempts = self.staging.attempts()
        if not attempts:
            return []
        table = self._place.find()
        if table is None:
            return attempts
        newest = self.newest()
        left = []
        for attempt in attempts:
            if newest is not None and attempt == newest.attempt:
                continue
            if self._was_shown(table, attempt):
                self.staging.forget(attempt)
            else:
                left.append(attempt)
        return left

    def _was_shown(self, table: DeltaTable, attempt: str) -> bool:
        """Whether files of the attempt are, or may be, known to the log."""
        receipt = self.staging.record(attempt)
        if receipt is None:
            shown = epochs_in(self._entries(table), self._pipeline, self._sink)
            return any(one.receipt.attempt == attempt for one in shown)
        answer, _ = find_epoch(
            self._entries(table), self._pipeline, self._sink, receipt.epoch, attempt
        )
        if answer is Answer.UNKNOWN:
            return self._has(table, receipt.timeline, receipt.epoch)
        return answer in (Answer.OURS, Answer.TAKEN)

    def abort(self, attempt: str, *, is_own: bool) -> None:
        """Remove what was staged under a token; harmless when it was shown or never was.

        ``is_own`` says that nobody else can be about to commit it.
        """
        if not self.staging.is_staged(attempt) and attempt not in self.staging.attempts():
            return
        table = self._place.find()
        if table is not None and self._was_shown(table, attempt):
            return
        is_own = is_own or table is None  # who commits needs the table that it was staged for
        if not is_own and self.staging.is_prepared(attempt) and not self._shut_out(attempt):
            return
        self.staging.remove_rows(attempt)
        self.staging.forget(attempt)

    def _shut_out(self, attempt: str) -> bool:
        """Have every commit of an attempt fail, also one on its way; False when it is shown.

        Whoever commits looks at the log first and at the record then. So a commit that has seen
        the record has looked at the log before the entry that is written here, and the app
        transactions of the two are in conflict.
        """
        self.staging.withdraw(attempt)
        last: Exception | None = None
        for _ in range(_TRIES):
            table = self._place.look()
            if self._was_shown(table, attempt):
                self.staging.reinstate(attempt)
                return False
            try:
                self._write_barrier(table, attempt)
            except StoreUnavailableError as error:
                last = error  # somebody was first, or it worked: look again
                self._place.forget()
            else:
                return True
        raise OutcomeUnknownError(
            f"attempt {attempt} could not be shut out of the table",
            where=f"{self._place.url}: {last}",
            hint="Nothing is lost. The next start does it again.",
        )

    def _write_barrier(self, table: DeltaTable, attempt: str) -> None:
        """An entry that changes nothing but that the app transaction has moved."""
        from deltalake import Transaction
        from deltalake.transaction import CommitProperties

        properties = CommitProperties(
            custom_metadata={KEY: {"shut_out": attempt}},
            app_transactions=[Transaction(self._app, self._version(table, self._app))],
        )
        with self._place.translated("shutting an attempt out of", write=True):
            add_files(table, (), "append", properties)
        self._place.make_durable(self._place.look().version())

    # taking back

    def plan_take_back(self, table: DeltaTable, epoch: int) -> TakeBack | None:
        """How later epochs can be taken back; None when there are none.

        :class:`RefusedError` says what stands in the way.
        """
        if self._version(table, self._app) <= epoch:
            return None
        plan = plan_take_back(
            self._entries(table), self._pipeline, self._sink, epoch, self._place.url
        )
        facts = facts_of(table)
        reason = "deletion vectors" if facts.has_deletion_vectors else ""
        reason = "delta.appendOnly" if facts.is_append_only else reason
        if plan is not None and reason:
            raise RefusedError(
                f"a table with {reason} cannot be taken back to an earlier version",
                where=self._place.url,
                hint="Continue next to what is there, or write to a new table.",
            )
        if plan is not None and (gone := self._place.files_gone_since(plan.version, table)):
            raise RefusedError(
                f"version {plan.version} cannot be restored: {len(gone)} of its files are gone, "
                f"such as {gone[0]}",
                where=self._place.url,
                hint="They were vacuumed. Remove the rows of the later epochs by hand, or write to "
                "a new table.",
            )
        return plan

    def take_back(self, epoch: int, of: str | None) -> list[int]:
        """Restore the version that has no epoch after this one. Which epochs went."""
        first: TakeBack | None = None
        for _ in range(_TRIES):
            table = self._place.find()
            plan = None if table is None else self.plan_take_back(table, epoch)
            if table is None or plan is None:
                return [*first.epochs] if first else []
            first = plan.after(first, of, self._place.url)
            for attempt in plan.attempts:
                self.staging.forget(attempt)  # so that nobody commits it again
            try:
                self._restore(table, plan, epoch)
            except StoreUnavailableError as error:
                last = error  # somebody was first, or it worked: look again
                self._place.forget()
            else:
                return [*first.epochs]
        raise OutcomeUnknownError(
            "whether the later epochs were taken back is not known",
            where=f"{self._place.url}: {last}",
            hint="Do it again.",
        )

    def _restore(self, table: DeltaTable, plan: TakeBack, epoch: int) -> None:
        """Go back, from the very version that was looked at."""
        from deltalake import Transaction
        from deltalake.transaction import CommitProperties

        record = TakenBack(self._pipeline, self._sink, epoch, plan.now)
        newest = plan.now.epoch if plan.now is not None else 0
        properties = CommitProperties(
            custom_metadata={KEY: {"took_back": msgspec.to_builtins(record)}},
            max_commit_retries=0,  # what others have written meanwhile must not be taken away
            app_transactions=[
                Transaction(self._app, newest),
                *(Transaction(self._app_of(name), to) for name, to in plan.transactions.items()),
            ],
        )
        with self._place.translated("restoring", write=True):
            table.restore(plan.version, commit_properties=properties)
        self._place.make_durable(self._place.look().version())
