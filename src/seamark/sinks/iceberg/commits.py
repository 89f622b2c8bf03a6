"""The commit of a decided epoch: looked for, made, looked for again until its outcome is known.

Tests: ``tests/sinks/test_iceberg_commits.py``.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, Literal

from seamark._common.logs import logger_named
from seamark.errors import DamageError, LineageError, OutcomeUnknownError, StoreUnavailableError
from seamark.sinks.contract import Identity, another_lineage, no_longer_shown
from seamark.sinks.iceberg.data_files import read_list
from seamark.sinks.iceberg.marks import Mark, Next, Output, judged
from seamark.sinks.iceberg.staging import KEYS, LIST, Staging
from seamark.sinks.iceberg.upserts import upserted
from seamark.table_formats.iceberg_lineage import lineage

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

    from seamark.sinks.iceberg.catalog import Place
    from seamark.sinks.iceberg.snapshots import Change, Commit

log = logger_named("seamark.sinks")

Mode = Literal["append", "upsert", "overwrite"]
_TRIES: Final = 40
_LONGEST_PAUSE: Final = 2.0


class Prepared(Identity, frozen=True):
    """What another process needs to show an epoch."""

    pipeline: str
    sink: str
    table: str
    """The id of the table; one that was dropped and made again has another."""
    mode: Mode
    spec: int
    """The partition spec of the data files."""
    files: int
    rows: int
    list_digest: str | None = None
    keys: list[str] = []  # noqa: RUF012
    keys_digest: str | None = None

    @property
    def output(self) -> Output:
        return Output(self.pipeline, self.sink)


class Committer:
    """Makes commits to one table, and looks at what is there."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._settled: str | None = None
        self._newest: tuple[Mark, str] | None = None
        self._last: Prepared | None = None

    def forget(self) -> None:
        """Forget what was shown: another run begins, or epochs are taken back."""
        self._last = None

    def require_last(self, table: Table) -> None:
        """:class:`LineageError` when the table has lost what this run has shown last.

        A catalog that fails over may go back to earlier metadata, in which the mark is earlier too,
        or, from before a rollback, of the same epoch in another history.
        """
        last = self._last
        if last is None:
            return
        mark = last.output.shown_mark(table.metadata)
        if (
            mark is None
            or mark.epoch < last.epoch
            or mark.timeline != last.timeline
            or (mark.epoch == last.epoch and not mark.is_of(last))
        ):
            raise no_longer_shown(last, "table", self._place.described)

    def remembered(self, identity: Identity) -> tuple[int, str] | None:
        """The snapshot of the epoch that was committed here last, and the metadata with it."""
        if self._newest is None:
            return None
        mark, metadata = self._newest
        return (mark.snapshot, metadata) if mark.is_of(identity) else None

    def commit(self, prepared: Prepared, files: Sequence[DataFile] | None = None) -> None:
        """Show an epoch, once. ``files`` are its data files, if this process has them still."""
        self._show(prepared, files)
        if self._last is None or self._last.epoch <= prepared.epoch:
            self._last = prepared

    def _show(self, prepared: Prepared, files: Sequence[DataFile] | None) -> None:
        output = prepared.output
        for table in self._loaded():
            _require_same_table(table, prepared, self._place.described)
            staging = Staging.of(table, output)
            if not self._is_missing(prepared, table):
                return
            self.require_last(table)
            self.settle(output, table)
            try:
                change = self._change(table, staging, prepared, files)
                self._require_staged(staging, prepared)
            except (DamageError, StoreUnavailableError):
                # another process may have committed it meanwhile, and cleared away
                if self._is_shown(prepared):
                    return
                raise
            new = Mark(prepared.timeline, prepared.epoch, prepared.fingerprint, prepared.attempt, 0)
            shown = self._sent(table, output, change, new)
            if shown is not None:
                # a table that had to be looked up may have moved on since
                mark = output.mark(table.metadata) if shown is table else None
                self._newest = (mark, table.metadata_location) if mark is not None else None
                self._settle_shown(output, shown, change)
                return

    def _is_shown(self, prepared: Prepared) -> bool:
        return not self._is_missing(prepared, self._place.load())

    def _is_missing(self, prepared: Prepared, table: Table) -> bool:
        """Whether the epoch is still to be committed. :class:`LineageError` if it cannot be."""
        mark = self._shown_mark(prepared, table)
        with self._place.translated("looking up what the table shows"):
            older = mark is not None and prepared.epoch < mark.epoch
            shown = self.shown(prepared.output, table, prepared.epoch) if older else None
        match judged(mark, prepared, shown):
            case Next.COMMIT:
                return True
            case Next.ALREADY_SHOWN:
                self.settle(prepared.output, table)
                return False
            case Next.ANOTHER_SHOWN:
                seen = shown or mark
                assert seen is not None
                receipt = seen.receipt(prepared.pipeline, prepared.sink)
                if seen.epoch == prepared.epoch:
                    raise another_lineage(receipt, prepared, self._place.described)
                raise LineageError(
                    f"the table shows epoch {seen.epoch} of another timeline ({seen.timeline}), "
                    f"and nothing tells whether epoch {prepared.epoch} of timeline "
                    f"{prepared.timeline} is in it",
                    where=self._place.described,
                    hint="Take back what the other timeline has shown, or write to a new table.",
                )

    def _shown_mark(self, prepared: Prepared, table: Table) -> Mark | None:
        """What the table shows. :class:`LineageError` when the epoch's own history was cut off."""
        mark = prepared.output.mark(table.metadata)
        shown = prepared.output.shown_mark(table.metadata)
        shown_epoch = shown.epoch if shown is not None else 0
        if (
            mark is not None
            and mark != shown
            and prepared.timeline == mark.timeline
            and prepared.epoch > shown_epoch
        ):
            raise LineageError(
                f"epoch {mark.epoch} was shown by snapshot {mark.snapshot}, which the table does "
                f"not build on any more, so epoch {prepared.epoch} cannot be shown",
                where=self._place.described,
                hint="Somebody has rolled the table back. Set it to a snapshot that has the epoch, "
                f"or roll the pipeline back to epoch {shown_epoch}, the newest that it shows.",
            )
        return shown

    def _require_staged(self, staging: Staging, prepared: Prepared) -> None:
        """:class:`DamageError` when an attempt was aborted: its files may be gone.

        Asked after the table was loaded; :meth:`shut_out` relies on it.
        """
        with self._place.translated("reading what was staged"):
            receipt = staging.staged(prepared.attempt)
        if receipt is None or not prepared.is_shown_by(receipt):
            raise DamageError(
                f"epoch {prepared.epoch} is neither shown nor staged any more",
                where=self._place.described,
                hint="Roll the pipeline back to the newest epoch that the table shows.",
            )

    def _require_all_named(self, staging: Staging, prepared: Prepared) -> None:
        """:class:`DamageError` when rows or keys were staged of which the checkpoint says nothing.

        The epoch would be shown without them.
        """
        named = {LIST: prepared.list_digest, KEYS: prepared.keys_digest}
        with self._place.translated("looking at what was staged"):
            left_out = [
                n for n, d in named.items() if d is None and staging.has(prepared.attempt, n)
            ]
        if left_out:
            raise DamageError(
                f"epoch {prepared.epoch} was staged with {left_out[0]}, and the checkpoint does "
                "not name it",
                where=self._place.described,
                hint="Nothing was shown. Restore the store from a copy, or roll the pipeline back "
                "to the newest epoch that the table shows.",
            )

    def _listed(self, staging: Staging, prepared: Prepared, table: Table) -> list[DataFile]:
        if prepared.list_digest is None:
            return []
        if prepared.spec not in table.metadata.specs():
            raise DamageError(
                f"epoch {prepared.epoch} was written with partition spec {prepared.spec}, which "
                "the table no longer has",
                where=self._place.described,
            )
        with self._place.translated("reading what was staged"):
            return read_list(staging, prepared.attempt, prepared.list_digest, prepared.spec)

    def _change(
        self, table: Table, staging: Staging, prepared: Prepared, files: Sequence[DataFile] | None
    ) -> Change:
        from seamark.sinks.iceberg.snapshots import Change

        if files is None:
            self._require_all_named(staging, prepared)
            files = self._listed(staging, prepared, table)
        added = {prepared.spec: files}
        if prepared.mode == "overwrite":
            return Change(added, replaces_all=True)
        if prepared.mode == "append" or prepared.keys_digest is None:
            return Change(added)
        with self._place.translated(f"replacing rows for epoch {prepared.epoch}"):
            return upserted(
                table, staging, prepared.attempt, prepared.keys, prepared.keys_digest, added
            )

    # the loop that all commits go through

    def _loaded(self) -> Iterator[Table]:
        """The table, anew for each try."""
        for turn in range(_TRIES):
            if turn:
                pause = min(_LONGEST_PAUSE, 0.02 * 2**turn)
                time.sleep(pause * random.uniform(0.5, 1))
            yield self._place.load()
        raise StoreUnavailableError(
            f"others changed the table {_TRIES} times while an epoch was to be committed",
            where=self._place.described,
            hint="Nothing is lost: it is tried again.",
        )

    def _sent(
        self, table: Table, output: Output, change: Change, mark: Mark | None
    ) -> Table | None:
        """Send a commit; the table that shows it, or None when it has to be made again.

        :class:`OutcomeUnknownError` when nobody answers.
        """
        from pyiceberg.exceptions import CommitFailedException

        from seamark.sinks.iceberg.snapshots import new_commit

        with self._place.translated("writing the metadata of a commit"):
            commit = new_commit(table, output, change, mark)
        try:
            commit.send()
            return table
        except Exception as error:  # noqa: BLE001 - whatever it is, the table tells
            refused = isinstance(error, CommitFailedException)
            if not refused:
                log.warning("the outcome of a commit is looked up: %s", self._place.said(error))
            return self._looked_up(commit, error, refused=refused)

    def _looked_up(self, commit: Commit, error: Exception, *, refused: bool) -> Table | None:
        """An answer that got lost may have been yes."""
        try:
            table = self._place.load()
        except StoreUnavailableError as again:
            raise OutcomeUnknownError(
                "whether the table shows an epoch is not known",
                where=f"{self._place.described}: {self._place.said(error)}; {again.what}",
                hint="Nothing is lost. The next start finds out and finishes it.",
            ) from None
        if any(s.snapshot_id == commit.snapshot_id for s in table.metadata.snapshots):
            return table
        if refused:
            commit.discard()
            return None
        with self._place.translated("a commit"):
            from seamark.sinks.iceberg.catalog import is_passing

            if not is_passing(error):
                raise error
        return None

    # what is shown

    def settle(self, output: Output, table: Table) -> None:
        """Clear away what the attempt of the newest epoch has left."""
        mark = output.mark(table.metadata)
        if mark is None or mark.attempt == self._settled:
            return
        with self._place.translated("clearing away what was staged"):
            Staging.of(table, output).settle(mark, table)
        self._settled = mark.attempt

    def _settle_shown(self, output: Output, table: Table, change: Change) -> None:
        mark = output.mark(table.metadata)
        if mark is None:
            return
        shown = {file.file_path for files in change.added.values() for file in files}
        try:
            Staging.of(table, output).settle(mark, table, shown)
        except Exception as error:  # noqa: BLE001 - the epoch is shown; the next one clears away
            log.warning("what was staged is still there: %s", self._place.said(error))
            return
        self._settled = mark.attempt

    def shown(self, output: Output, table: Table, epoch: int) -> Mark | None:
        """What is known of an epoch that the table shows; None when there is none, or no record."""
        mark = output.shown_mark(table.metadata)
        if mark is None or epoch > mark.epoch:
            return None
        if epoch == mark.epoch:
            return mark
        for snapshot in lineage(table.metadata):
            seen = output.shown_by(snapshot)
            if seen is not None and seen.mark is not None and seen.epoch == epoch:
                return seen.mark
        record = Staging.of(table, output).record(epoch)
        if record is None:
            return None
        return Mark(record.timeline, record.epoch, record.fingerprint, record.attempt, 0)

    def change_mark(
        self, output: Output, plan: Callable[[Table], tuple[Change, Mark | None] | None]
    ) -> None:
        """Make commits that ``plan`` asks for, until it asks for none."""
        for table in self._loaded():
            self.settle(output, table)
            wanted = plan(table)
            if wanted is None:
                return
            if self._sent(table, output, *wanted) is not None:
                return

    def shut_out(self, output: Output, attempt: str) -> bool:
        """Have every commit of an attempt fail, also one on its way; False when it is shown.

        Whoever commits loads the table first and looks at the record then. So a commit that has
        seen the record was made for a snapshot before the empty one that is added here.
        """
        from seamark.sinks.iceberg.snapshots import Change

        staging = Staging.of(self._place.load(), output)
        with self._place.translated("withdrawing an attempt"):
            staging.withdraw(attempt)
        for table in self._loaded():
            if output.has_shown(table.metadata, attempt):
                with self._place.translated("putting back the record of an attempt"):
                    staging.reinstate(attempt)
                self.settle(output, table)
                return False
            if self._sent(table, output, Change(), output.shown_mark(table.metadata)) is not None:
                return True
        raise AssertionError("not reached")


def _require_same_table(table: Table, prepared: Prepared, where: str) -> None:
    if str(table.metadata.table_uuid) != prepared.table:
        raise LineageError(
            f"epoch {prepared.epoch} was written for another table of this name",
            where=f"{where}: its id is {table.metadata.table_uuid}, not {prepared.table}",
            hint="Was the table dropped and made again? Put the old one back, or roll the pipeline "
            "back to the epoch before.",
        )
