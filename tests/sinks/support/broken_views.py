"""Views that each break one promise, and the attack that each one falls to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from seamark.progress.session import Session
from seamark.sinks import Epoch
from seamark.sinks.keyvalue.view import (
    VIEW,
    Effect,
    Expiry,
    StagedEpoch,
    Step,
    ViewVersion,
    shown_version,
)
from seamark.sinks.keyvalue.view_rows import Rows, load_rows
from seamark.sinks.keyvalue.view_staging import Staging, Way
from seamark.sinks.keyvalue.view_writer import PreparedView, ViewWriter
from seamark.sinks.staged_epochs import remove_staged
from tests.sinks.support import view_attacks as attacks
from tests.sinks.support.view_attacks import Attack
from tests.sinks.support.views import HandWrittenView

Broken = type[HandWrittenView]
FALLS_TO: list[tuple[Attack, Broken]] = []


def falls_to(*by: Attack) -> Callable[[Broken], Broken]:
    """Note that the decorated view does not withstand these attacks."""

    def note(view: Broken) -> Broken:
        FALLS_TO.extend((attack, view) for attack in by)
        return view

    return note


class WithWriter(HandWrittenView):
    """A view with a writer of its own making."""

    writer: type[ViewWriter] = ViewWriter
    staging: type[Staging] = Staging

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(url, **options)
        self._staging = self.staging(self._staging._given, self._staging.keep)
        expires = self._shape.expire is not None
        self._view = self.writer(url, self._staging, expires=expires, undo=False)


class _RowsFirst(ViewWriter):
    def show(self, wanted: PreparedView, loaded: tuple[StagedEpoch, Rows] | None) -> bool:
        _, rows = loaded or self._read(wanted.step)
        self.in_session(lambda session: session.put_many(VIEW, rows.upserts.items()))
        return super().show(wanted, loaded)


@falls_to(attacks.it_dies_around_any_commit, attacks.an_older_epoch_is_committed_again)
class RowsAndLedgerInTwoSessions(WithWriter):
    writer = _RowsFirst


class _OverAnything(ViewWriter):
    def _step(
        self,
        session: Session,
        wanted: PreparedView,
        loaded: tuple[StagedEpoch, Rows] | None,
        way: Way,
    ) -> tuple[ViewVersion, Effect | None]:
        now = shown_version(session)
        return super()._step(session, msgspec.structs.replace(wanted, after=now), loaded, way)


@falls_to(attacks.the_server_falls_behind)
class AppliesToWhateverIsThere(WithWriter):
    writer = _OverAnything


class _AsShown(ViewWriter):
    def followed_by(self, epoch: Epoch) -> ViewVersion | None:
        return shown_version(self.store)


@falls_to(attacks.the_server_falls_behind_in_a_run)
class TakesWhatTheServerShowsForTheEpochBefore(WithWriter):
    writer = _AsShown


class _EveryTime(ViewWriter):
    def show(self, wanted: PreparedView, loaded: tuple[StagedEpoch, Rows] | None) -> bool:
        is_newest = super().show(wanted, loaded)
        _, rows = loaded or self._read(wanted.step)
        self.in_session(lambda session: session.put_many(VIEW, rows.upserts.items()))
        return is_newest


@falls_to(attacks.an_older_epoch_is_committed_again)
class AppliesAnEpochEveryTime(WithWriter):
    writer = _EveryTime


class _AnyHistory(ViewWriter):
    def show(self, wanted: PreparedView, loaded: tuple[StagedEpoch, Rows] | None) -> bool:
        if loaded is not None:
            self.in_session(lambda session: session.put_many(VIEW, loaded[1].upserts.items()))
        return True


@falls_to(attacks.another_history_has_the_epoch)
class AsksNobodyWhoseEpochItIs(WithWriter):
    writer = _AnyHistory


class _Trusting(Staging):
    def read(self, folder: str, step: Step) -> StagedEpoch:
        with open(f"{folder}/epoch.json", "rb") as file:
            return msgspec.json.decode(file.read(), type=StagedEpoch)


@falls_to(attacks.the_staged_rows_are_damaged)
class TrustsItsFiles(WithWriter):
    staging = _Trusting


class _Forgetful(Staging):
    def put_aside(self, attempt: str) -> None:
        remove_staged(self.path, attempt)


@falls_to(attacks.the_server_falls_behind)
class KeepsNothing(WithWriter):
    staging = _Forgetful


class _Lenient(ViewWriter):
    def show(self, wanted: PreparedView, loaded: tuple[StagedEpoch, Rows] | None) -> bool:
        if loaded is not None:
            folder = self._staging.find(wanted.version)
            loaded = (loaded[0], load_rows(folder or ""))
        return super().show(wanted, loaded)


@falls_to(attacks.rows_come_late)
class ShowsLateRows(WithWriter):
    writer = _Lenient


class _OnlyWhatItSaw(ViewWriter):
    def _expiry_at(self, now: ViewVersion | None) -> Expiry | None:
        if self._expiry is None:
            self._expiry = Expiry(now)
        return self._expiry


@falls_to(attacks.keys_expire_after_a_restart)
class KnowsNoTimesOfEarlierProcesses(WithWriter):
    writer = _OnlyWhatItSaw


@falls_to(attacks.two_views_stage_in_one_folder)
class StagesBesideOthers(HandWrittenView):
    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(url, **options)
        self._shares_staging = False
