"""Brings a live view to an epoch, one atomic session per epoch, from whatever it shows now."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final, TypeVar
from urllib.parse import parse_qs, urlsplit

from seamark._common.logs import logger_named
from seamark._common.os_errors import translate_os_errors
from seamark.errors import (
    DamageError,
    InvalidInputError,
    LineageError,
    OutcomeUnknownError,
    RefusedError,
    StoreUnavailableError,
)
from seamark.progress.ledger import SessionOvertaken
from seamark.progress.redis.client import check_url, shown_url
from seamark.progress.rocksdb.database import refuse_foreign_files
from seamark.progress.session import Session
from seamark.progress.store import SourceCheckpointStore
from seamark.progress.urls import open_ledger, rocksdb_path
from seamark.sinks.contract import Epoch, Identity, Receipt, another_lineage
from seamark.sinks.folders import is_there
from seamark.sinks.keyvalue.view import (
    Effect,
    Expiry,
    StagedEpoch,
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
from seamark.sinks.keyvalue.view_undo import can_be_taken_back, keep_what_was, take_back

log = logger_named("seamark.sinks")

T = TypeVar("T")
_TRIES: Final = 20


def is_redis(url: str) -> bool:
    """Whether the view is in Redis, and not in RocksDB.

    :class:`InvalidInputError` for any other URL. Otherwise an unquoted password
    would show up as part of the path.
    """
    scheme = url.partition(":")[0].lower()
    if scheme in ("redis", "rediss"):
        check_url(url)
        return True
    if scheme != "rocksdb":
        raise InvalidInputError(
            "a KeyValueSink writes to rocksdb:///abs/path or redis://host:port/db",
            hint="For a try-out in memory there is MemorySink.",
        )
    if not url.lower().startswith("rocksdb:///") or "#" in url or "?" in url:
        raise InvalidInputError(
            "a RocksDB URL looks like rocksdb:///abs/path, with nothing behind it",
            hint="seamark.progress.rocksdb_url(path) makes one of any path.",
        )
    return False


@contextmanager
def _of_one_moment(session: Session) -> Iterator[None]:
    """Retry, rather than refuse, when another commit came between two reads."""
    try:
        yield
    except (RefusedError, DamageError):
        if session.transaction.is_current():
            raise
        raise SessionOvertaken(f"another session of {session.store.url} came in between") from None


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


class ViewWriter:
    """The store that holds a view, opened when it is first needed."""

    def __init__(self, url: str, staging: Staging, *, expires: bool, undo: bool) -> None:
        self._url = url
        self._staging = staging
        self._expires = expires
        self._undo = undo
        self._opened: SourceCheckpointStore | None = None
        self._expiry: Expiry | None = None
        self._last: ViewVersion | None = None
        self._may_have_times = not expires
        """Whether an earlier run may have left times at which rows expire, which do not count."""
        self.namespace = ""
        """Of a view in Redis whose URL names none."""

    @property
    def is_redis(self) -> bool:
        """Whether it is in Redis, and not in RocksDB."""
        return is_redis(self._url)

    @property
    def shown(self) -> str:
        """Where the view is, without secrets."""
        if not self.is_redis:
            return self._url
        namespace = self._given_namespace()
        return shown_url(self._url) + (f"?namespace={namespace}" if namespace else "")

    def _given_namespace(self) -> str | None:
        namespaces = parse_qs(urlsplit(self._url).query).get("namespace")
        return namespaces[0] if namespaces else None

    @property
    def used_namespace(self) -> str:
        """The namespace of a view in Redis."""
        return self._given_namespace() or self.namespace

    @property
    def store(self) -> SourceCheckpointStore:
        """The store, opened. Writers of one view do not fence each other: its ledger decides."""
        if self._opened is None:
            ledger = open_ledger(self._url, namespace=self.used_namespace or None, claim=False)
            self._opened = SourceCheckpointStore(ledger)
            if self.is_redis:
                from seamark.progress.redis.ledger import warn_of_losses

                warn_of_losses(ledger)
        return self._opened

    @property
    def found(self) -> SourceCheckpointStore | None:
        """The store, opened; None when it is in RocksDB and was never made."""
        if self._opened is not None or self.is_redis:
            return self.store
        folder = rocksdb_path(self._url)
        if is_there(folder):
            with translate_os_errors("listing", folder):
                refuse_foreign_files(folder)
        return self.store if is_there(f"{folder}/CURRENT") else None

    def close(self) -> None:
        """Let go of the store; it is opened again when it is needed."""
        if self._opened is not None:
            self._opened.close()
        self._opened = self._expiry = self._last = None
        self._may_have_times = not self._expires

    def in_session(self, work: Callable[[Session], T]) -> T:
        """Do something in one session, and again when another process came in between."""
        for _ in range(_TRIES):
            try:
                with self.store.session() as session, _of_one_moment(session):
                    return work(session)
            except SessionOvertaken:
                continue
            except OutcomeUnknownError:
                self.close()  # the record of epochs decides after it is opened again
                raise
        raise StoreUnavailableError(
            "several programs write to this view at once, and this one never gets a turn",
            where=self.shown,
            hint="Stop all but one.",
        )

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
                self._last = done
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
            return self._staging.read(folder).receipt

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
            step, (staged, rows) = (
                prepared.version,
                loaded or self._read(prepared.version, prepared.digest),
            )
        else:
            step = self._first_missing(now, prepared, way)
            staged, rows = self._read(step)
        effect = effect_of(rows, staged.watermark, self._expiry_at(now))
        folder = self._staging.find(step) if self._undo else None
        if folder is not None:
            with overtaken_without(folder):
                keep_what_was(session, folder, staged, effect)
        if self._may_have_times:
            # with the first epoch and not before: a start may yet be refused, and change nothing
            forget_times(session)
        apply_epoch(session, staged, effect, self._staging.keep)
        return step, effect

    def _read(self, version: ViewVersion, digest: str | None = None) -> tuple[StagedEpoch, Rows]:
        folder = self._folder_of(version)
        with overtaken_without(folder):
            staged = self._staging.read(folder, digest)
            return staged, load_rows(folder, staged.watermark)

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
        self, now: ViewVersion | None, prepared: PreparedView, way: Way
    ) -> ViewVersion:
        """The first of the kept epochs that bring a view that fell behind up to the wanted one."""
        if now not in way:
            way.update(self._staging.way(now, prepared.after))
        missing = way.get(now)
        if missing is not None:
            log.warning("%s fell behind: applying epoch %d again", self.shown, missing.epoch)
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

    def go_back(self, epoch: int) -> list[int]:
        """Take back all later epochs, newest first; which they were.

        Before the first one the view is empty, which is always known.
        """
        way = self.way_back(epoch)
        if way is None:
            taken = self.in_session(forget_all)
        else:
            taken = [staged.receipt.epoch for staged in way]
            for staged in way:
                self.in_session(partial(self._take_back, staged=staged))
        self._expiry = self._last = None
        return sorted(taken)

    def _take_back(self, session: Session, staged: StagedEpoch) -> None:
        if shown_version(session) == staged.version:  # otherwise another process has done it
            folder = self._folder_of(staged.version)  # who has committed it may keep it only now
            with overtaken_without(folder):
                take_back(session, folder, staged)

    def way_back(self, epoch: int) -> list[StagedEpoch] | None:
        """The kept epochs to take back one after another; None when the view is to be emptied.

        :class:`RefusedError` when it is not known what the view showed at that epoch.
        """
        return None if epoch == 0 else self.in_session(partial(self._way_back, epoch=epoch))

    def _way_back(self, session: Session, epoch: int) -> list[StagedEpoch]:
        way: list[StagedEpoch] = []
        shown = version = shown_version(session)
        while version is not None and version.epoch > epoch:
            folder = self._staging.find(version)
            if folder is None:
                raise self._not_known(epoch, shown)
            with overtaken_without(folder):
                if not can_be_taken_back(folder):
                    raise self._not_known(epoch, shown)
                staged = self._staging.read(folder)
            way.append(staged)
            version = staged.after
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
