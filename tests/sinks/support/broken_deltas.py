"""Sinks to Delta tables that each leave one thing out, and the attack that each falls to."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable

from seamark.sinks import Committable, Receipt
from seamark.sinks.contract import Identity, identity_in
from seamark.sinks.delta.committable import FileList, Prepared
from seamark.sinks.delta.log import TakeBack
from seamark.sinks.delta.staging import Staging
from tests.sinks.support import delta_attacks as attacks
from tests.sinks.support.deltas import HandWrittenDelta

if TYPE_CHECKING:
    from deltalake import CommitProperties

Broken = type[HandWrittenDelta]
FALLS_TO: list[tuple[attacks.Attack, Broken]] = []


def falls_to(*every: attacks.Attack) -> Callable[[Broken], Broken]:
    def note(broken: Broken) -> Broken:
        FALLS_TO.extend((attack, broken) for attack in every)
        return broken

    return note


@falls_to(
    attacks.of_many_committers_one_wins,
    attacks.two_attempts_that_commit_at_once_are_not_both_shown,
    attacks.another_history_is_never_taken_for_this_one,
    attacks.a_lost_answer_is_looked_up,
)
class NeverLooks(HandWrittenDelta):
    """Relies on the app transaction, which deltalake accepts twice."""

    def open(self, *arguments: Any) -> None:
        super().open(*arguments)
        self._epochs.shown_version = self._blind  # type: ignore[method-assign]

    def _blind(self, table: DeltaTable, expected: Identity) -> tuple[bool, int | None]:
        return False, None

    def _apply(self, table: DeltaTable, prepared: Prepared) -> int:
        self._write_entry(table, self._staged_receipt(prepared), self._added(prepared))
        return 0


@falls_to(
    attacks.who_stopped_across_its_commit_shows_nothing_twice,
    attacks.who_stopped_across_a_rollback_brings_nothing_back,
)
class CarriesNoAppTransaction(HandWrittenDelta):
    """Looks, but leaves nothing that a late writer runs into."""

    def open(self, *arguments: Any) -> None:
        super().open(*arguments)
        self._epochs.transactions = lambda *_: []  # type: ignore[method-assign]


@falls_to(attacks.others_may_write_at_any_time)
class GivesUpAtAConflict(HandWrittenDelta):
    """Takes the version after the one that it has looked at, or none."""

    def _properties(self, receipt: Receipt) -> CommitProperties:
        properties = super()._properties(receipt)
        properties.max_commit_retries = 0
        return properties

    def _write_entry(self, table: DeltaTable, receipt: Receipt, added: FileList) -> None:
        DeltaTable(self._place.url).alter.set_table_description("by somebody else")
        super()._write_entry(table, receipt, added)

    def commit(self, committable: Committable) -> None:
        self._show(identity_in(committable, Prepared))


@falls_to(
    attacks.what_others_wrote_is_not_taken_back,
)
class GoesBackOverOthers(HandWrittenDelta):
    def require_unpublish_after(self, epoch: int) -> None:
        pass


@falls_to(attacks.what_others_write_during_a_rollback_is_not_taken_back)
class GoesBackOnAnOldLook(HandWrittenDelta):
    """Plans once, and restores whatever came in between."""

    def unpublish_after(self, epoch: int, of: str | None = None) -> list[int]:
        plan = self._epochs.plan_take_back(self._place.look(), epoch)
        assert isinstance(plan, TakeBack)
        self._epochs._restore(self._place.look(), plan, epoch)
        return [*plan.epochs]


@falls_to(attacks.the_epochs_of_two_sinks_in_one_table_are_not_mixed_up)
class OnePlaceForAllSinks(HandWrittenDelta):
    def open(self, pipeline: str, sink: str, *arguments: Any) -> None:
        super().open(pipeline, sink, *arguments)
        self._epochs.staging = Staging(self._place, pipeline, "", merges=False)


@falls_to(attacks.an_abort_never_takes_rows_that_are_shown)
class AbortsWhatIsShown(HandWrittenDelta):
    def abort(self, attempt: str) -> None:
        self._epochs.staging.remove_rows(attempt)
        self._epochs.staging.forget(attempt)


@falls_to(attacks.an_attempt_that_is_shown_is_not_staged_again)
class ClearsAwayWithoutALook(HandWrittenDelta):
    def open(self, *arguments: Any) -> None:
        super().open(*arguments)
        vars(self._epochs)["begin"] = self._epochs.staging.begin_again


@falls_to(
    attacks.who_stopped_across_an_abort_shows_nothing,
    attacks.only_what_may_be_decided_is_shut_out_by_an_entry,
)
class ShutsNobodyOut(HandWrittenDelta):
    """Removes the files of a commit that may be on its way."""

    def abort(self, attempt: str) -> None:
        self._epochs.abort(attempt, is_own=True)


@falls_to(attacks.an_abort_after_a_look_that_missed_the_commit_takes_nothing)
class LooksOnceBeforeItAborts(HandWrittenDelta):
    def open(self, *arguments: Any) -> None:
        super().open(*arguments)
        shut_out = self._epochs._shut_out
        vars(self._epochs)["_shut_out"] = lambda attempt: shut_out(attempt) or True


@falls_to(attacks.an_abort_removes_every_file)
class AbortsOnlyTheRecord(HandWrittenDelta):
    def abort(self, attempt: str) -> None:
        self._epochs.staging.forget(attempt)


@falls_to(attacks.a_file_that_is_cut_off_is_not_shown)
class NeverListsItsFiles(HandWrittenDelta):
    def _added(self, prepared: Prepared) -> FileList:
        self._known = prepared
        return super()._added(prepared)


@falls_to(attacks.another_history_is_never_taken_for_this_one)
class BelievesTheTimelineAlone(HandWrittenDelta):
    """Takes an epoch for its own when the app transaction has come that far."""

    def commit(self, committable: Committable) -> None:
        prepared = identity_in(committable, Prepared)
        if not self._epochs._has(self._place.look(), prepared.timeline, prepared.epoch):
            super().commit(committable)
