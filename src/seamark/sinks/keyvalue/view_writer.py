"""Brings a live view to an epoch, one atomic session per epoch, from whatever it shows now.

Tests: ``tests/sinks/test_view_writer.py``, ``tests/sinks/test_view_forgeries.py``.
"""

from __future__ import annotations

from functools import partial

from seamark._common.logs import logger_named
from seamark.errors import DamageError, LineageError, RefusedError
from seamark.progress.session import Session
from seamark.sinks.contract import (
    Epoch,
    Identity,
    Receipt,
    another_lineage,
    require_given_up,
)
from seamark.sinks.keyvalue.view import (
    Effect,
    Expiry,
    StagedEpoch,
    Step,
    ViewVersion,
    apply_epoch,
    effect_of,
    forget_all,
    forget_times,
    receipt_of_epoch,
    shown_version,
    was_given_up,
    was_taken_back,
)
from seamark.sinks.keyvalue.view_rows import Rows, load_rows
from seamark.sinks.keyvalue.view_staging import Staging, Way, overtaken_without
from seamark.sinks.keyvalue.view_store import ViewStore
from seamark.sinks.keyvalue.view_undo import can_be_taken_back, keep_what_was, take_back

log = logger_named("seamark.sinks")


class PreparedView(Identity, frozen=True):
    """What a view's committable says."""

    sink: str
    digest: str
    """SHA-256 of the staged epoch's record, and so of all its rows."""
    after: ViewVersion | None

    @property
    def version(self) -> ViewVersion:
        """Which epoch it is."""
        return ViewVersion(self.timeline, self.epoch, self.attempt)

    @property
    def step(self) -> Step:
        """The epoch, and what its record has to be."""
        return Step(self.version, self.digest)


class ViewWriter(ViewStore):
    """A view that can be brought to an epoch, and back."""

    def __init__(self, url: str, staging: Staging, *, expires: bool, undo: bool) -> None:
        super().__init__(url)
        self._staging = staging
        self._expires = expires
        self._undo = undo
        self._expiry: Expiry | None = None
        self._last: ViewVersion | None = None
        self._checked: Step | None = None
        """What was committed last, as its checkpoint knows it."""
        self._may_have_times = not expires
        """Whether an earlier run may have left times at which rows expire, which do not count."""

    def close(self) -> None:
        """Let go of the store; it is opened again when it is needed."""
        super().close()
        self._expiry = self._last = None
        self._may_have_times = not self._expires

    def show(self, prepared: PreparedView, loaded: tuple[StagedEpoch, Rows] | None) -> bool:
        """Bring the view to the wanted epoch; whether that is the newest one it shows.

        ``loaded`` is what is known of the epoch already.

        :class:`LineageError` when it shows something that the epoch cannot follow.
        """
        way: Way = {}
        while True:
            done, effect = self.in_session(
                lambda session: self._step(session, prepared, loaded, way)
            )
            if effect is not None and self._expiry is not None:
                self._expiry.follow(effect, done)
            self._may_have_times = self._may_have_times and effect is None
            if done == prepared.version:
                self._last, self._checked = done, prepared.step
                return effect is not None or shown_version(self.store) == done

    def newest(self) -> Receipt | None:
        """The receipt of the epoch that the view shows; None only when it shows none."""
        return None if self.found is None else self.in_session(self._newest)

    def _newest(self, session: Session) -> Receipt | None:
        now = shown_version(session)
        if now is None:
            return None
        receipt = receipt_of_epoch(session, now.epoch)
        if receipt is not None and ViewVersion.of(receipt) == now:
            return receipt
        # one that was forgotten before the view was taken back to it
        folder = self._staging.find(now)
        if folder is None:
            raise DamageError(
                f"the view shows epoch {now.epoch}, and has no record of it",
                where=self.shown,
                hint="Restore the server from a save, or start over with a new target.",
            )
        with overtaken_without(folder):
            return self._staging.read(folder, self.step_to(now)).receipt

    def step_to(self, version: ViewVersion) -> Step:
        """An epoch with what its record has to be, if its checkpoint was seen by this run."""
        checked = self._checked
        return checked if checked and checked.version == version else Step(version, None)

    def followed_by(self, epoch: Epoch) -> ViewVersion | None:
        """What the view shows when the epoch is applied.

        :class:`LineageError` when it shows something that the epoch cannot follow.
        """
        return self.in_session(partial(self._followed_by, epoch=epoch))

    def _followed_by(self, session: Session, epoch: Epoch) -> ViewVersion | None:
        shown, last = shown_version(session), self._last
        if last is not None and (shown is None or shown.epoch < last.epoch):
            return last  # the server has lost something: the commit brings it up again first
        # a server that goes back to before a rollback shows the same number of another history
        is_last = last is None or shown is None or shown.epoch > last.epoch or shown == last
        if (
            shown is None
            or (shown.epoch + 1 == epoch.number and is_last)
            or receipt_of_epoch(session, epoch.number) is not None  # the commit reports it
        ):
            return shown
        raise LineageError(
            f"the view shows epoch {shown.epoch} of timeline {shown.timeline}, and epoch "
            f"{epoch.number} cannot follow it",
            where=self.shown,
            hint="The view was away from its pipeline, or one of the two was brought back from a "
            "copy. Restore both together, or start with a new view and a new store.",
        )

    def _step(
        self,
        session: Session,
        prepared: PreparedView,
        loaded: tuple[StagedEpoch, Rows] | None,
        way: Way,
    ) -> tuple[ViewVersion, Effect | None]:
        """Bring the view one epoch closer; to which, and what it changes."""
        shown = receipt_of_epoch(session, prepared.epoch)
        if shown is not None:
            if not prepared.is_shown_by(shown):
                raise another_lineage(shown, prepared, self.shown)
            return prepared.version, None
        if was_taken_back(session, prepared.attempt):
            raise LineageError(
                f"epoch {prepared.epoch} was shown once and has been taken back",
                where=self.shown,
                hint="A rollback or reset began a new history; this program is of the old one.",
            )
        if was_given_up(session, prepared.attempt):
            raise self._gone(prepared.version)
        now = shown_version(session)
        if now == prepared.after:
            self._folder_of(prepared.version)  # whoever aborts it cannot clear our memory
            staged, rows = loaded or self._read(prepared.step)
            self._require_prepared(staged, prepared)
        else:
            staged, rows = self._read(self._first_missing(now, prepared, loaded, way))
        effect = effect_of(rows, staged.watermark, self._expiry_at(now))
        step = staged.version
        folder = self._staging.find(step) if self._undo else None
        before = ""
        if folder is not None:
            with overtaken_without(folder):
                before = keep_what_was(session, folder, staged, effect)
        if self._may_have_times:
            # with the first epoch and not before: a start may yet be refused, and change nothing
            forget_times(session)
        apply_epoch(session, staged, effect, self._staging.keep, before)
        return step, effect

    def _read(self, step: Step) -> tuple[StagedEpoch, Rows]:
        folder = self._folder_of(step.version)
        with overtaken_without(folder):
            staged = self._staging.read(folder, step)
            return staged, load_rows(folder, staged.watermark)

    def _require_prepared(self, staged: StagedEpoch, prepared: PreparedView) -> None:
        """:class:`DamageError` when the checkpoint says something else about a staged epoch.

        By another epoch before it, those in between would be left out.
        """
        if staged.after != prepared.after or not prepared.is_shown_by(staged.receipt):
            raise DamageError(
                f"the checkpoint does not say of epoch {prepared.epoch} what was staged with it",
                where=f"{self.shown}, {self._staging.path}",
                hint="Nothing was shown. Restore the store from a copy, or roll the pipeline back "
                "to the epoch before.",
            )

    def _folder_of(self, version: ViewVersion) -> str:
        folder = self._staging.find(version)
        if folder is None:
            raise self._gone(version)
        return folder

    def _gone(self, version: ViewVersion) -> DamageError:
        return DamageError(
            f"epoch {version.epoch} is neither shown nor staged any more",
            where=f"{self.shown}, {self._staging.path}",
            hint="Was the staging folder emptied, moved or not mounted? Bring it back.",
        )

    def _first_missing(
        self,
        now: ViewVersion | None,
        prepared: PreparedView,
        loaded: tuple[StagedEpoch, Rows] | None,
        way: Way,
    ) -> Step:
        """The first of the kept epochs that bring a view that fell behind up to the wanted one."""
        is_behind = now is None or now.epoch < prepared.epoch  # else no kept epoch leads on
        folder = self._staging.find(prepared.version) if is_behind else None
        if folder is not None and now not in way:
            with overtaken_without(folder):
                staged = loaded[0] if loaded else self._staging.read(folder, prepared.step)
            self._require_prepared(staged, prepared)
            way.update(self._staging.way(now, staged.before))
        missing = way.get(now)
        if missing is not None:
            number = missing.version.epoch
            log.warning("%s fell behind: applying epoch %d again", self.shown, number)
            return missing
        shows = f"epoch {now.epoch} of timeline {now.timeline}" if now else "nothing"
        was = f"epoch {prepared.after.epoch}" if prepared.after else "nothing"
        raise LineageError(
            f"the view shows {shows}, and epoch {prepared.epoch} was made to follow {was}",
            where=self.shown,
            hint="The server has lost what it had acknowledged, or belongs to another history, and "
            f"the epochs in between are not kept in {self._staging.path}. Restore the server "
            "from a newer save, or start over: a new target, with policy='auto_reset'.",
        )

    def go_back(self, epoch: int, of: str | None = None) -> list[int]:
        """Take back all later epochs, newest first; which they were.

        Before the first one the view is empty, which is always known. :class:`LineageError` when
        the newest one is not of the timeline ``of``.
        """
        way = self.way_back(epoch, of)
        if way is None:
            taken = self.in_session(partial(self._emptied, of=of))
        else:
            taken = [staged.receipt.epoch for staged in way]
            for staged in way:
                self.in_session(partial(self._take_back, staged=staged))
        self._expiry = self._last = None
        return sorted(taken)

    def _emptied(self, session: Session, of: str | None) -> list[int]:
        if (shown := shown_version(session)) is not None:
            require_given_up(shown, of, self.shown)
        return forget_all(session)

    def _take_back(self, session: Session, staged: StagedEpoch) -> None:
        if shown_version(session) == staged.version:  # otherwise another process has done it
            folder = self._folder_of(staged.version)  # who has committed it may keep it only now
            with overtaken_without(folder):
                take_back(session, folder, staged)

    def way_back(self, epoch: int, of: str | None = None) -> list[StagedEpoch] | None:
        """The kept epochs to take back one after another; None when the view is to be emptied.

        :class:`RefusedError` when it is not known what the view showed at that epoch.
        """
        if epoch == 0:
            return None
        return self.in_session(partial(self._way_back, epoch=epoch, of=of))

    def _way_back(self, session: Session, epoch: int, of: str | None) -> list[StagedEpoch]:
        way: list[StagedEpoch] = []
        shown = shown_version(session)
        if shown is not None and shown.epoch > epoch:
            require_given_up(shown, of, self.shown)
        step = None if shown is None else self.step_to(shown)
        while step is not None and step.version.epoch > epoch:
            folder = self._staging.find(step.version)
            if folder is None:
                raise self._not_known(epoch, shown)
            with overtaken_without(folder):
                if not can_be_taken_back(session, folder, step.version.epoch):
                    raise self._not_known(epoch, shown)
                staged = self._staging.read(folder, step)
            way.append(staged)
            step = staged.before
        return way

    def _not_known(self, epoch: int, shown: ViewVersion | None) -> RefusedError:
        return RefusedError(
            f"it is not known what the view showed at epoch {epoch}; it shows epoch "
            f"{shown.epoch if shown else 0}",
            where=self.shown,
            hint="KeyValueSink(…, undo=True) keeps that for the last keep_epochs epochs. Restore "
            "the server from a save of that epoch, or start over: a new target, with "
            "policy='auto_reset', which reads every row again.",
        )

    def _expiry_at(self, now: ViewVersion | None) -> Expiry | None:
        if not self._expires:
            return None
        if self._expiry is None or self._expiry.version != now:
            self._expiry = Expiry.read(self.store, now)
        return self._expiry
