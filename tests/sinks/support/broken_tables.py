"""Sinks to PostgreSQL that each leave one thing out, and what each one falls to.

That is a rule of the suite of all sinks, by its name, or an attack on tables.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from seamark.errors import StoreUnavailableError
from seamark.sinks import Committable
from seamark.sinks.contract import identity_in
from seamark.sinks.postgres.ledger import Ledger
from seamark.sinks.postgres.publishing import Prepared, moving
from seamark.sinks.postgres.sink import _receipt
from seamark.sinks.postgres.staging import TOKEN, Staging
from tests.sinks.support import postgres_attacks as attacks
from tests.sinks.support.postgres_attacks import Attack, HandWrittenTable

Broken = type[HandWrittenTable]
FALLS_TO: list[tuple[Attack | str, Broken]] = []


def falls_to(*every: Attack | str) -> Callable[[Broken], Broken]:
    def note(broken: Broken) -> Broken:
        FALLS_TO.extend((one, broken) for one in every)
        return broken

    return note


class InSteps(HandWrittenTable):
    """For sinks that show an epoch in more than one transaction."""

    def _is_noted(self, prepared: Prepared) -> bool:
        return self.committed(prepared.timeline, prepared.epoch) is not None

    def _note(self, prepared: Prepared) -> bool:
        with self._address.transaction() as connection:
            column = prepared.epoch_column
            return self._ledger.enter(connection, _receipt(prepared), prepared.rows, column)

    def _run(self, prepared: Prepared, *only: int) -> None:
        """Some of the statements that move the rows: 0 inserts them, 1 drops the staging table."""
        with self._address.transaction() as connection:
            statements = moving(self._staging, prepared, self._table)
            for number in only:
                connection.execute(statements[number], {"tokens": prepared.tokens})


@falls_to(attacks.a_driver_that_dies_at_any_statement_of_its_commit_leaves_all_or_nothing)
class NotesFirst(InSteps):
    """The ledger has the epoch in a transaction of its own, before its rows."""

    def _show(self, prepared: Prepared) -> None:
        if self._note(prepared):
            self._run(prepared, 0, 1)


@falls_to(attacks.a_driver_that_dies_at_any_statement_of_its_commit_leaves_all_or_nothing)
class NotesLast(InSteps):
    """The ledger has the epoch in a transaction of its own, after its rows."""

    def _show(self, prepared: Prepared) -> None:
        if not self._is_noted(prepared):
            self._run(prepared, 0)
            self._note(prepared)
            self._run(prepared, 1)


@falls_to(attacks.a_driver_that_dies_at_any_statement_of_its_commit_leaves_all_or_nothing)
class DropsWhatIsStagedFirst(InSteps):
    """Takes the rows into memory, and gives their table up before they are shown."""

    def _show(self, prepared: Prepared) -> None:
        if self._is_noted(prepared):
            return
        staged = self._address.identifier(self._staging.name(prepared.attempt))
        with self._address.transaction() as connection:
            query = f"SELECT n, word, at_epoch FROM {staged.as_string()}"
            rows = connection.execute(query.encode()).fetchall()
        self._run(prepared, 1)
        with self._address.transaction() as connection:
            column = prepared.epoch_column
            self._ledger.enter(connection, _receipt(prepared), prepared.rows, column)
            for row in rows:
                connection.execute("INSERT INTO rows VALUES (%s, %s, %s)", row)


@falls_to(
    attacks.a_commit_whose_answer_is_lost_shows_each_row_once,
    "a_second_commit_changes_nothing",
    "an_older_epoch_can_be_committed_again",
    "a_death_after_the_commit_is_seen_and_left_alone",
    "several_processes_may_commit_at_once",
)
class NeverLooks(InSteps):
    """Adds the rows again, whatever the ledger says."""

    def _show(self, prepared: Prepared) -> None:
        with self._address.transaction() as connection:
            column = prepared.epoch_column
            self._ledger.enter(connection, _receipt(prepared), prepared.rows, column)
            insertion = moving(self._staging, prepared, self._table)[0]
            connection.execute(insertion, {"tokens": prepared.tokens})


@falls_to(attacks.a_commit_that_never_arrived_is_repeated)
class TakesALostAnswerForSuccess(HandWrittenTable):
    def commit(self, committable: Committable) -> None:
        try:
            self._show(identity_in(committable, Prepared))
        except StoreUnavailableError:
            return


@falls_to(
    attacks.a_commit_whose_answer_is_lost_shows_each_row_once,
    attacks.a_commit_that_never_arrived_is_repeated,
)
class GivesUpAtOnce(HandWrittenTable):
    def commit(self, committable: Committable) -> None:
        self._show(identity_in(committable, Prepared))


@falls_to(
    "the_same_epoch_of_other_input_is_refused",
    "the_same_epoch_of_another_timeline_is_refused",
)
class BelievesTheNumber(InSteps):
    """Takes an epoch for its own when the ledger has one of that number."""

    def _show(self, prepared: Prepared) -> None:
        if not self._is_noted(prepared):
            super()._show(prepared)


@falls_to("the_same_epoch_of_other_input_is_refused")
class NeverComparesTheInput(InSteps):
    def _show(self, prepared: Prepared) -> None:
        shown = self.committed(prepared.timeline, prepared.epoch)
        if shown is None or shown.timeline != prepared.timeline:
            super()._show(prepared)


@falls_to(attacks.a_task_that_ran_twice_counts_once)
class CountsEveryTry(InSteps):
    """Moves all that was staged, also by tries that nobody was told of."""

    def _show(self, prepared: Prepared) -> None:
        name = self._address.identifier(self._staging.name(prepared.attempt)).as_string()
        with self._address.transaction() as connection:
            tokens = connection.execute(f'SELECT DISTINCT "{TOKEN}"::text FROM {name}'.encode())
            every = [token for (token,) in tokens]
        super()._show(msgspec.structs.replace(prepared, tokens=every))


@falls_to("later_epochs_are_taken_back", "a_new_timeline_commits_the_epochs_anew")
class ForgetsAndKeepsTheRows(HandWrittenTable):
    def unpublish_after(self, epoch: int, of: str | None = None) -> list[int]:
        with self._address.transaction() as connection:
            return self._ledger.forget_after(connection, epoch)


@falls_to("later_epochs_are_taken_back")
class TakesRowsBackAndRemembers(HandWrittenTable):
    def unpublish_after(self, epoch: int, of: str | None = None) -> list[int]:
        with self._address.transaction() as connection:
            delete = "DELETE FROM rows WHERE at_epoch > %s RETURNING at_epoch"
            return sorted({number for (number,) in connection.execute(delete, (epoch,))})


class OneTableForAll(Staging):
    def name(self, attempt: str) -> str:
        return super().name("any")


@falls_to(
    "two_attempts_of_one_epoch_are_not_mixed_up",
    "abort_removes_only_its_own_token",
    "leftovers_are_what_was_staged_and_not_committed",
)
class StagesAllInOneTable(HandWrittenTable):
    def _open_as(self, pipeline: str, sink: str) -> None:
        super()._open_as(pipeline, sink)
        self._staging = OneTableForAll(self._address, pipeline, sink)


@falls_to(
    "leftovers_are_what_was_staged_and_not_committed",
    "a_death_after_staging_is_cleared_and_run_again",
)
class ForgetsWhatIsLeft(HandWrittenTable):
    def leftovers(self) -> list[str]:
        return []


@falls_to("prepared_rows_are_invisible", "nothing_is_committed_before_the_commit")
class PreparingShowsTheRows(HandWrittenTable):
    def prepare(self) -> Committable:
        committable = super().prepare()
        self.commit(committable)
        return committable


class NewestOnly(Ledger):
    def entry(self, connection: Any, epoch: int | None = None) -> Any:
        return super().entry(connection, None)


@falls_to("a_new_handle_knows_all_about_what_was_committed")
class TellsOnlyTheNewest(HandWrittenTable):
    def _open_as(self, pipeline: str, sink: str) -> None:
        super()._open_as(pipeline, sink)
        self._ledger = NewestOnly(self._address, pipeline, sink)
