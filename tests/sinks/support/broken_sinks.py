"""Sinks that each break one promise, and the promise that each one breaks."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from seamark.errors import LineageError
from seamark.sinks import Committable, Epoch, ReadPoint, Receipt
from seamark.sinks.contract import require_given_up
from tests.sinks.support.local_sink import LocalSink, read_receipt, rows_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Broken = type[LocalSink]
BREAKS: dict[str, list[Broken]] = {}


def breaks(promise: str) -> Callable[[Broken], Broken]:
    """Note that the decorated sink breaks the promise of that name."""

    def note(sink: Broken) -> Broken:
        BREAKS.setdefault(f"test_{promise}", []).append(sink)
        return sink

    return note


# what to read


@breaks("what_to_read_is_the_same_whoever_asks_and_however_often")
class OnlyTheCommitterTells(LocalSink):
    def read_point(self, committable: Committable) -> ReadPoint | None:
        return super().read_point(committable) if self.last else None


@breaks("what_to_read_is_the_same_whoever_asks_and_however_often")
class WhatToReadIsNotJson(LocalSink):
    def read_point(self, committable: Committable) -> ReadPoint | None:
        return ReadPoint("local", str(self.root), {"epochs": {1, 2}})


@breaks("what_to_read_is_the_same_whoever_asks_and_however_often")
class WhatToReadHoldsAPassword(LocalSink):
    def read_point(self, committable: Committable) -> ReadPoint | None:
        return ReadPoint("local", "postgresql://me:hunter2hunter2@db/rows", {"epoch": 1})


@breaks("what_to_read_is_the_same_whoever_asks_and_however_often")
class OnlyAWholeCommittableWillDo(LocalSink):
    def prepare(self) -> Committable:
        return {**super().prepare(), "rows": 2}

    def read_point(self, committable: Committable) -> ReadPoint | None:
        return ReadPoint("local", str(self.root), {"rows": committable.get("rows")})


@breaks("what_to_read_of_an_epoch_stays_when_later_ones_come")
class WhatToReadIsTheNewest(LocalSink):
    def read_point(self, committable: Committable) -> ReadPoint | None:
        return ReadPoint("local", str(self.root), {"epoch": self.epochs()[-1]})


# before the first epoch


@breaks("a_target_that_is_not_prepared_yet_shows_nothing")
class AnswersOnlyWhenItIsPrepared(LocalSink):
    is_prepared = False

    def prepare_target(self) -> None:
        self.is_prepared = True

    def newest(self) -> Receipt | None:
        assert self.is_prepared, "there is no table"
        return super().newest()


@breaks("a_target_that_is_not_prepared_yet_shows_nothing")
class PreparesOnce(LocalSink):
    def prepare_target(self) -> None:
        (self.root / "table").mkdir()


# what readers see


@breaks("staged_rows_are_invisible")
class StagesInTheOpen(LocalSink):
    def place(self, attempt: str) -> Path:
        return self.shown / f"{attempt}.json"


@breaks("prepared_rows_are_invisible")
class PreparingShowsTheRows(LocalSink):
    def prepare(self) -> Committable:
        committable = super().prepare()
        self.commit(committable)
        return committable


@breaks("a_commit_shows_every_row_once")
class EqualRowsBecomeOne(LocalSink):
    def commit(self, committable: Committable) -> None:
        super().commit(committable)
        target = self.target(committable["epoch"])
        lines = target.read_text().splitlines(keepends=True)
        target.write_text("".join(dict.fromkeys(lines)))


@breaks("a_commit_shows_every_row_once")
class CommitShowsNothing(LocalSink):
    def commit(self, committable: Committable) -> None:
        pass


@breaks("an_epoch_is_added_to_those_before")
class AnEpochReplacesTheOnesBefore(LocalSink):
    def commit(self, committable: Committable) -> None:
        super().commit(committable)
        for number in self.epochs():
            if number < committable["epoch"]:
                self.target(number).unlink()


@breaks("an_epoch_without_rows_can_be_committed")
class NoRowsNoEpoch(LocalSink):
    def prepare(self) -> Committable:
        committable = super().prepare()
        if not rows_in(self.place(committable["attempt"])):
            self.abort(committable["attempt"])
        return committable


@breaks("a_committable_is_small_and_made_of_json")
class TheCommittableHoldsTheRows(LocalSink):
    def prepare(self) -> Committable:
        committable = super().prepare()
        text = self.place(committable["attempt"]).read_text()
        return {**committable, "rows": text.split() * 8}


@breaks("a_committable_is_small_and_made_of_json")
class TheCommittableHoldsATuple(LocalSink):
    def prepare(self) -> Committable:
        return {**super().prepare(), "names": ("one", "two")}


@breaks("what_a_committable_says_of_its_epoch_is_so")
class TheCommittableCallsItsFolderTheSink(LocalSink):
    def prepare(self) -> Committable:
        return {**super().prepare(), "sink": str(self.root)}


# doing it again


@breaks("a_second_commit_changes_nothing")
class EveryCommitAppends(LocalSink):
    def commit(self, committable: Committable) -> None:
        target = self.target(committable["epoch"])
        more = self.place(committable["attempt"]).read_text()
        if target.exists():
            more = target.read_text() + more.partition("\n")[2]
        target.write_text(more)


@breaks("another_process_commits_from_the_committable_alone")
class CommitNeedsTheStagingProcess(LocalSink):
    def commit(self, committable: Committable) -> None:
        if self.last is not None:
            super().commit(committable)


@breaks("an_older_epoch_can_be_committed_again")
class OnlyTheNewestEpochIsKnown(LocalSink):
    def commit(self, committable: Committable) -> None:
        newest = self.newest()
        if newest is None or newest.attempt != committable["attempt"]:
            self.place(committable["attempt"]).rename(self.target(committable["epoch"]))


@breaks("several_processes_may_commit_at_once")
class LosingTheRaceIsAnError(LocalSink):
    def commit(self, committable: Committable) -> None:
        target = self.target(committable["epoch"])
        if not target.exists():
            time.sleep(0.02)
            self.place(committable["attempt"]).rename(target)


@breaks("staging_an_attempt_again_replaces_it")
class StagingAgainAppends(LocalSink):
    def stage(self, df: DataFrame, epoch: Epoch, attempt: str) -> None:
        place = self.place(attempt)
        before = rows_in(place) if place.exists() else []
        super().stage(df, epoch, attempt)
        with place.open("a") as out:
            out.writelines(f"{row}\n" for row in before)


@breaks("an_attempt_that_was_prepared_can_be_staged_again")
class WhatWasPreparedIsKept(LocalSink):
    def stage(self, df: DataFrame, epoch: Epoch, attempt: str) -> None:
        place = self.place(attempt)
        kept = place.read_text() if (self.root / attempt).exists() else None
        super().stage(df, epoch, attempt)
        if kept is not None:
            place.write_text(kept)

    def prepare(self) -> Committable:
        committable = super().prepare()
        (self.root / committable["attempt"]).touch()
        return committable


@breaks("two_attempts_of_one_epoch_are_not_mixed_up")
@breaks("a_death_after_the_decision_is_finished_by_the_next")
class CommitTakesAllThatIsStaged(LocalSink):
    def commit(self, committable: Committable) -> None:
        super().commit(committable)
        with self.target(committable["epoch"]).open("a") as out:
            for attempt in self.leftovers():
                out.writelines(f"{row}\n" for row in rows_in(self.place(attempt)))


# clearing up


@breaks("leftovers_are_what_was_staged_and_not_committed")
@breaks("a_death_after_staging_is_cleared_and_run_again")
@breaks("a_death_after_preparing_is_cleared_and_run_again")
class LeftoversAreForgotten(LocalSink):
    def leftovers(self) -> list[str]:
        return []


@breaks("leftovers_are_what_was_staged_and_not_committed")
class WhatWasCommittedIsALeftover(LocalSink):
    def leftovers(self) -> list[str]:
        shown = [read_receipt(self.target(number)).attempt for number in self.epochs()]
        return super().leftovers() + shown


@breaks("abort_removes_only_its_own_token")
class AbortRemovesEverything(LocalSink):
    def abort(self, attempt: str) -> None:
        for one in self.leftovers():
            super().abort(one)


@breaks("abort_removes_only_its_own_token")
class AbortTakesATokenForAPrefix(LocalSink):
    def abort(self, attempt: str) -> None:
        for path in self.staged.glob(f"{attempt}*"):
            path.unlink()


@breaks("aborting_nothing_is_harmless")
class AbortingNothingIsAnError(LocalSink):
    def abort(self, attempt: str) -> None:
        self.place(attempt).unlink()


@breaks("abort_after_the_commit_takes_nothing_away")
class AbortTakesBackWhatIsShown(LocalSink):
    def abort(self, attempt: str) -> None:
        super().abort(attempt)
        for number in self.epochs():
            if read_receipt(self.target(number)).attempt == attempt:
                self.target(number).unlink()


@breaks("a_commit_after_the_abort_by_another_is_refused_and_shows_nothing")
class CommitsWhatItRemembers(LocalSink):
    """Has the rows in memory still, and does not ask whether they were aborted."""

    rows = ""

    def prepare(self) -> Committable:
        committable = super().prepare()
        self.rows = self.place(committable["attempt"]).read_text()
        return committable

    def commit(self, committable: Committable) -> None:
        if self.rows:
            self.place(committable["attempt"]).write_text(self.rows)
        super().commit(committable)


@breaks("deaths_in_a_row_leave_nothing_behind")
class AbortDoesNothing(LocalSink):
    def abort(self, attempt: str) -> None:
        pass


@breaks("a_death_while_staging_is_cleared_and_run_again")
class AttemptsOfAnEpochShareAFile(LocalSink):
    def stage(self, df: DataFrame, epoch: Epoch, attempt: str) -> None:
        shared = self.root / f"epoch-{epoch.number}"
        with shared.open("a") as out:
            for row in df.toLocalIterator():
                out.write(f"{row.n}\n")
        super().stage(df, epoch, attempt)
        with self.place(attempt).open("w") as out:
            out.write(msgspec.json.encode(self.last).decode() + "\n" + shared.read_text())


@breaks("a_death_while_staging_is_cleared_and_run_again")
class RowsAreShownAsTheyCome(LocalSink):
    def stage(self, df: DataFrame, epoch: Epoch, attempt: str) -> None:
        try:
            super().stage(df, epoch, attempt)
        except ArithmeticError:
            self.place(attempt).rename(self.target(epoch.number))
            raise


@breaks("a_death_after_the_commit_is_seen_and_left_alone")
class TheLedgerIsInMemory(LocalSink):
    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.done: set[str] = set()

    def commit(self, committable: Committable) -> None:
        if committable["attempt"] in self.done:
            return
        self.done.add(committable["attempt"])
        text = self.place(committable["attempt"]).read_text()
        (self.shown / f"{time.monotonic_ns()}.json").write_text(text)


# another process in between


@breaks("a_commit_between_two_steps_of_a_commit_shows_the_epoch_once")
@breaks("a_commit_between_two_steps_of_one_from_the_committable_alone_shows_it_once")
class LooksOnlyOnce(LocalSink):
    def commit(self, committable: Committable) -> None:
        if self.target(committable["epoch"]).exists():
            return super().commit(committable)
        self.place(committable["attempt"]).rename(self.target(committable["epoch"]))
        return None


@breaks("a_commit_between_two_steps_of_a_commit_shows_the_epoch_once")
@breaks("a_commit_between_two_steps_of_one_from_the_committable_alone_shows_it_once")
class EveryProcessShowsItsOwnCopy(LocalSink):
    def commit(self, committable: Committable) -> None:
        if self.committed("", committable["epoch"]) is None:
            text = self.place(committable["attempt"]).read_text()
            super().commit(committable)
            (self.shown / f"{time.monotonic_ns()}.json").write_text(text)
            self.target(committable["epoch"]).write_text(text.splitlines()[0] + "\n")


@breaks("an_abort_between_two_steps_of_a_commit_stops_it_or_leaves_it_alone")
class FailsWhenItHasShownTheRows(LocalSink):
    def commit(self, committable: Committable) -> None:
        staged, target = self.place(committable["attempt"]), self.target(committable["epoch"])
        if target.exists():
            return super().commit(committable)
        target.write_text(staged.read_text())
        staged.unlink()
        return None


@breaks("an_abort_between_two_steps_of_a_commit_stops_it_or_leaves_it_alone")
class ErrorsOfTheDiskComeThrough(LocalSink):
    def commit(self, committable: Committable) -> None:
        if self.target(committable["epoch"]).exists():
            return super().commit(committable)
        self.place(committable["attempt"]).rename(self.target(committable["epoch"]))
        return None


@breaks("a_commit_between_two_steps_of_an_abort_fails_or_is_left_alone")
class AbortsWhatIsGone(LocalSink):
    def abort(self, attempt: str) -> None:
        if self.place(attempt).exists():
            self.place(attempt).unlink()


@breaks("a_new_history_between_two_steps_of_a_commit_is_not_mixed_with_the_old_one")
class WritesOverWhateverIsThere(LocalSink):
    def commit(self, committable: Committable) -> None:
        staged, target = self.place(committable["attempt"]), self.target(committable["epoch"])
        if not target.exists() and staged.exists():
            text = staged.read_text()
            staged.unlink()
            target.write_text(text)
        super().commit(committable)


@breaks("looks_between_two_steps_of_a_commit_find_all_of_the_epoch_or_nothing")
class ShowsAnEpochBitByBit(LocalSink):
    def commit(self, committable: Committable) -> None:
        staged, target = self.place(committable["attempt"]), self.target(committable["epoch"])
        if staged.exists() and not target.exists():
            target.write_text(staged.read_text())
            staged.unlink()
        super().commit(committable)


@breaks("a_commit_between_two_steps_of_a_look_is_seen_or_not")
class LooksIntoWhatIsLeft(LocalSink):
    def leftovers(self) -> list[str]:
        return sorted(read_receipt(path).attempt for path in self.staged.iterdir())


# telling histories apart


@breaks("the_same_epoch_of_another_timeline_is_refused")
class TheNumberIsEnough(LocalSink):
    def commit(self, committable: Committable) -> None:
        if not self.target(committable["epoch"]).exists():
            super().commit(committable)


@breaks("the_same_epoch_of_another_timeline_is_refused")
class AnotherTimelineOverwrites(LocalSink):
    def commit(self, committable: Committable) -> None:
        try:
            super().commit(committable)
        except LineageError:
            self.place(committable["attempt"]).rename(self.target(committable["epoch"]))
            raise


@breaks("the_same_epoch_of_other_input_is_refused")
class FingerprintsAreIgnored(LocalSink):
    def commit(self, committable: Committable) -> None:
        shown = self.committed("", committable["epoch"])
        if shown is None or shown.timeline != committable["timeline"]:
            super().commit(committable)


@breaks("nothing_is_committed_before_the_commit")
class StagedCountsAsCommitted(LocalSink):
    def committed(self, timeline: str, epoch: int) -> Receipt | None:
        staged = [read_receipt(self.place(attempt)) for attempt in self.leftovers()]
        return next((one for one in staged if one.epoch == epoch), None)


@breaks("a_new_handle_knows_all_about_what_was_committed")
class ThePlanIsForgotten(LocalSink):
    def committed(self, timeline: str, epoch: int) -> Receipt | None:
        found = super().committed(timeline, epoch)
        return found and msgspec.structs.replace(found, plan=None)


@breaks("a_new_handle_knows_all_about_what_was_committed")
class OnlyItsOwnCommitsAreKnown(LocalSink):
    def committed(self, timeline: str, epoch: int) -> Receipt | None:
        return super().committed(timeline, epoch) if self.last else None


@breaks("an_epoch_of_another_timeline_is_told_too")
class OtherTimelinesAreHidden(LocalSink):
    def committed(self, timeline: str, epoch: int) -> Receipt | None:
        found = super().committed(timeline, epoch)
        return found if found and found.timeline == timeline else None


@breaks("newest_is_the_highest_number")
class NewestIsSortedAsText(LocalSink):
    def epochs(self) -> list[int]:
        return sorted(super().epochs(), key=str)


@breaks("later_epochs_are_taken_back")
class OnlyTheNewestIsTakenBack(LocalSink):
    def unpublish_after(self, epoch: int, of: str | None = None) -> list[int]:
        return super().unpublish_after(max(epoch, *self.epochs()) - 1, of)


@breaks("later_epochs_are_taken_back")
class TheEpochItselfIsTakenBack(LocalSink):
    def unpublish_after(self, epoch: int, of: str | None = None) -> list[int]:
        return super().unpublish_after(epoch - 1, of)


@breaks("taking_back_again_changes_nothing")
class TakingBackNothingIsAnError(LocalSink):
    def unpublish_after(self, epoch: int, of: str | None = None) -> list[int]:
        taken = super().unpublish_after(epoch, of)
        if not taken:
            raise LookupError("there is nothing to take back")
        return taken


@breaks("taking_back_again_changes_nothing")
class TakenBackIsToldAgain(LocalSink):
    def unpublish_after(self, epoch: int, of: str | None = None) -> list[int]:
        super().unpublish_after(epoch, of)
        aside = {int(path.name.partition("-")[0]) for path in self.aside.iterdir()}
        return sorted(number for number in aside if number > epoch)


@breaks("a_new_history_between_two_steps_of_a_rollback_stays")
class TakesBackWhateverIsThere(LocalSink):
    def unpublish_after(self, epoch: int, of: str | None = None) -> list[int]:
        return super().unpublish_after(epoch)


@breaks("a_new_history_between_two_steps_of_a_rollback_stays")
class NeverLooksAgain(LocalSink):
    """Looks whose the newest one is, and then goes by the numbers."""

    def unpublish_after(self, epoch: int, of: str | None = None) -> list[int]:
        taken = [number for number in self.epochs() if number > epoch]
        if (newest := self.newest()) is not None and taken:
            require_given_up(newest, of, str(self.root))
        for number in reversed(taken):
            with suppress(FileNotFoundError):
                self.target(number).rename(self.aside / f"{number}-{uuid.uuid4().hex}")
        return taken


@breaks("a_new_timeline_commits_the_epochs_anew")
class TakenBackIsStillInTheLedger(LocalSink):
    def commit(self, committable: Committable) -> None:
        if any(path.name.startswith(f"{committable['epoch']}-") for path in self.aside.iterdir()):
            raise LineageError("this epoch was committed before")
        super().commit(committable)


@breaks("a_new_timeline_commits_the_epochs_anew")
class TakenBackComesBack(LocalSink):
    def commit(self, committable: Committable) -> None:
        super().commit(committable)
        with suppress(StopIteration):
            kept = next(self.aside.iterdir())
            kept.rename(self.shown / f"{committable['epoch']}000.json")
