"""Taking one checkpoint of a directory after another, while a query writes it.

This happens on a separate thread, which never raises into the caller: failures are counted, logged
once and retried. The store is claimed for each checkpoint and released after it, so that others can
prune, pin or copy in between. It stays open: what was read or written once is not read again. A
checkpoint that loses the store to another process is started again at once, and only counts as
failed if that keeps happening.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import random
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, NamedTuple
from weakref import WeakSet

from seamark._common.logs import logger_named
from seamark._redaction import Redactor
from seamark.checkpoint_dir.places.directory import Directory, open_directory
from seamark.checkpoint_dir.places.local import LocalDirectory
from seamark.errors import CheckpointNotFoundError, FencedError, InvalidInputError, SeamarkError
from seamark.native.overlap_check import local_store_path, require_apart
from seamark.native.snapshot import LONGEST_CHAIN, Snapshot, take_snapshot
from seamark.native.watch_status import Schedule, WatchNotes, WatchStatus
from seamark.store import CheckpointStore, open_store

log = logger_named("seamark.spark")

KEEP: Final = 20
STOP_SECONDS: Final = 60.0
_POLL: Final = 1.0
_GLANCE: Final = 0.2
_POLL_REMOTE: Final = 5.0
_LONGEST_PAUSE: Final = 60.0
_WARN_AGAIN: Final = 600.0
_LAST_TRIES: Final = 3
_FENCED_TRIES: Final = 8
_FENCED_PAUSE: Final = 0.02
_PATIENCE_AT_EXIT: Final = 10.0

_running: Final[WeakSet[Watcher]] = WeakSet()


@dataclass(frozen=True, kw_only=True)
class WatchPace:
    """How often a watcher looks, how often it takes a checkpoint, and how many it keeps."""

    every: float | timedelta = 1
    """An int counts batches; a float or a timedelta is a time."""
    keep: int | None = KEEP
    longest_chain: int = LONGEST_CHAIN
    poll: float | None = None
    """Seconds between two looks; None for what suits the place."""
    backoff: float = 1.0
    """Seconds after the first failure; doubles with each further one."""


@dataclass(frozen=True, kw_only=True)
class WatchHooks:
    """What a watcher asks and reports, all on its own thread."""

    is_alive: Callable[[], bool] | None = None
    """Whether the query runs. Once it does not, the newest batch is taken and the watcher ends."""
    glance: Callable[[], object] | None = None
    """Something cheap that changes with every batch."""
    on_taken: Callable[[Snapshot], None] | None = None
    """Called for every checkpoint."""
    on_end: Callable[[], None] | None = None
    """Called when there will be no more checkpoints."""


class Watcher:
    """Keeps a store up with a directory, from ``start()`` to ``stop()``. Safe from all threads.

    ``directory`` may be a path or URI, and need not exist yet.
    """

    def __init__(
        self,
        directory: Directory | str | os.PathLike[str],
        store: str | os.PathLike[str],
        pace: WatchPace | None = None,
        hooks: WatchHooks | None = None,
        *,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        """:class:`InvalidInputError` for what can never work; other errors are retried later."""
        self._pace = pace or WatchPace()
        if self._pace.keep is not None and self._pace.keep < 1:
            raise InvalidInputError(f"keep={self._pace.keep}: at least one checkpoint must be kept")
        self._hooks = hooks or WatchHooks()
        self._every = Schedule.of(self._pace.every)
        self._has_verified = False
        options = dict(storage_options or {})
        self._redact = Redactor(options)
        self._store = os.fspath(store)
        self._opened: CheckpointStore | None = None
        self._store_options = options if local_store_path(self._store) is None else {}
        self._owns_directory = not isinstance(directory, Directory)
        if not isinstance(directory, Directory):
            here = os.fspath(directory)
            directory = open_directory(here, options if local_store_path(here) is None else {})
        self._directory = directory
        with open_store(self._store, storage_options=self._store_options or None) as opened:
            require_apart(directory.url, opened.url)
        self._last_glance: object = None
        usual = _POLL if isinstance(directory, LocalDirectory) else _POLL_REMOTE
        self._poll = usual if self._pace.poll is None else self._pace.poll
        if self._every.seconds is not None:
            self._poll = min(self._poll, self._every.seconds)
        self._notes = WatchNotes()
        self._mark: _Mark | None = None
        self._warned: dict[str, float] = {}
        self._changed = threading.Condition()
        self._hinted = self._ending = self._abandoned = False
        self._thread = threading.Thread(target=self._run, name="seamark-watch", daemon=True)

    # asking and telling, from any thread

    def start(self) -> None:
        """Begin; once."""
        self._notes.started()
        _running.add(self)
        self._thread.start()

    def hint(self) -> None:
        """A batch may have been committed: look soon."""
        with self._changed:
            self._hinted = True
            self._changed.notify_all()

    def finish(self, *, last: bool = True) -> None:
        """End, after a checkpoint of the newest batch unless ``last`` is False; wait for nothing.

        Without it, also a checkpoint that is under way is given up.
        """
        with self._changed:
            self._ending = True
            self._abandoned = self._abandoned or not last
            self._changed.notify_all()

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the end; whether it has come."""
        if threading.current_thread() is not self._thread and self._thread.ident is not None:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def stop(self, timeout: float | None = STOP_SECONDS, *, last: bool = True) -> WatchStatus:
        """``finish()`` and wait for it; after ``timeout`` what is under way is given up."""
        self.finish(last=last)
        if not self.join(timeout):
            self.finish(last=False)
            if threading.current_thread() is not self._thread:
                log.warning("no last checkpoint of %s within %s s", self._directory.url, timeout)
        return self._notes.status()

    def status(self) -> WatchStatus:
        """How it stands; asks neither the directory nor the store."""
        return self._notes.status()

    @property
    def ending(self) -> bool:
        """Whether it was asked to end."""
        with self._changed:
            return self._ending

    # the thread

    def _run(self) -> None:
        try:
            while not self.ending:
                went_well = self._attempt(self._round)
                self._wait(went_well)
            for number in range(_LAST_TRIES):
                if number:
                    time.sleep(min(self._pace.backoff, 1.0) * number)
                if self._abandoned or self._attempt(self._last_round):
                    break
        finally:
            with suppress(Exception):
                if self._opened is not None:
                    self._opened.close()
            with suppress(Exception):
                if self._owns_directory:
                    self._directory.close()
            self._notes.ended()
            _running.discard(self)
            if self._hooks.on_end is not None:
                with suppress(Exception):
                    self._hooks.on_end()

    def _wait(self, went_well: bool) -> None:
        status = self._notes.status()
        pause = self._poll
        if not went_well:
            growth: float = 2.0 ** min(status.failures_in_a_row - 1, 10)
            # not in step with the process that has taken the store
            pause = min(self._pace.backoff * growth, _LONGEST_PAUSE) * random.uniform(0.5, 1.0)
        until = time.monotonic() + pause
        woken = False
        while not woken and (left := until - time.monotonic()) > 0:
            with self._changed:
                woken = self._changed.wait_for(
                    lambda: self._ending or (went_well and self._hinted),
                    timeout=left if self._hooks.glance is None else min(left, _GLANCE),
                )
            woken = woken or (went_well and self._is_news())
        with self._changed:
            self._hinted = False

    def _is_news(self) -> bool:
        """Whether a glance shows something else than the one before; an error is nothing new."""
        if self._hooks.glance is None:
            return False
        before = self._last_glance
        with suppress(Exception):
            self._last_glance = self._hooks.glance()
        return self._last_glance != before

    def _attempt(self, action: Callable[[], None]) -> bool:
        """Do something that may fail; whether it went well."""
        try:
            action()
        except _Abandoned:
            return False
        except Exception as error:  # noqa: BLE001 - reported, and tried again
            if "after interpreter shutdown" in str(error):
                self.finish(last=False)
                return False
            self._report(error)
            return False
        ended = self._notes.worked()
        if ended:
            log.info("%s is being stored again after %d failures", self._directory.url, ended)
        return True

    def _round(self) -> None:
        if self._hooks.is_alive is not None and not self._hooks.is_alive():
            self.finish()
            return
        newest = self._look()
        notes = self._notes
        if newest is not None and self._every.is_due(newest, notes.last_batch, notes.waited):
            self._take(newest)

    def _last_round(self) -> None:
        newest = self._look()
        if newest is not None and newest != self._notes.last_batch:
            self._take(newest)

    def _look(self) -> int | None:
        try:
            newest = self._directory.newest_commit()
        except CheckpointNotFoundError:
            newest = None  # not there yet, or a temporary one that is gone
        self._notes.saw(newest, run_again=newest is not None and self._was_run_again(newest))
        return newest

    def _was_run_again(self, newest: int) -> bool:
        """Whether another batch with the same number has replaced the last stored one."""
        stored = self._mark
        if stored is None or stored.batch > newest:
            return False
        return self._mark_of(stored.batch) not in (None, stored)

    def _mark_of(self, batch: int) -> _Mark | None:
        """What tells a batch from one that is run in its place; None when it is not there."""
        try:
            logs = [self._directory.read(f"{log}/{batch}") for log in ("offsets", "commits")]
        except FileNotFoundError:
            return None
        # offsets carry the time at which a batch was planned, commits the ids of its state
        return _Mark(batch, *(hashlib.sha256(each).digest() for each in logs))

    def _take(self, newest: int) -> None:
        began = time.monotonic()
        mark = self._mark_of(newest)  # first: what comes in the meantime is seen the next time
        taken = self._taken()
        self._mark = mark if taken.batch == newest else self._mark_of(taken.batch)
        self._notes.took(taken, began)
        log.info("checkpoint %d holds batch %d", taken.checkpoint_id, taken.batch)
        if self._hooks.on_taken is not None:
            self._hooks.on_taken(taken)

    def _taken(self) -> Snapshot:
        """A checkpoint, started again a few times if another process takes the store."""
        for number in range(_FENCED_TRIES - 1):
            try:
                return self._taken_at_once()
            except FencedError as error:
                log.debug("another process took the store, trying again: %s", error)
            longest = min(_FENCED_PAUSE * 2.0**number, 1.0) * self._pace.backoff
            with self._changed:
                self._changed.wait_for(
                    lambda: self._abandoned, timeout=random.uniform(0.0, longest)
                )
            self._advance(0)
        return self._taken_at_once()

    def _taken_at_once(self) -> Snapshot:
        if self._opened is None:
            self._opened = open_store(self._store, storage_options=self._store_options or None)
        store = self._opened
        try:
            taken = take_snapshot(
                self._directory,
                store,
                keep=self._pace.keep,
                longest_chain=self._pace.longest_chain,
                # what earlier processes have left is read once; what this one wrote is known
                verify_parent=not self._has_verified,
                advance=self._advance,
            )
        finally:
            store.release()
        self._has_verified = True
        return taken

    def _advance(self, _: int) -> None:
        if self._abandoned:
            raise _Abandoned

    def _report(self, error: Exception) -> None:
        """Count a failure, and warn of the first one of its kind."""
        what = self._redact(_error_text(error))
        kind = type(error).__name__
        in_a_row = self._notes.failed(what)
        now = time.monotonic()
        warned = self._warned.get(kind)
        if warned is None or (in_a_row == 1 and now - warned > _WARN_AGAIN):
            self._warned[kind] = now
            log.warning(
                "no checkpoint of %s could be taken: %s. The query is not touched; trying again.",
                self._directory.url,
                what.rstrip("."),
            )
        else:
            log.debug("no checkpoint of %s: %s", self._directory.url, what)


class _Mark(NamedTuple):
    """One run of one batch, by digests of its entries in Spark's logs."""

    batch: int
    offsets: bytes
    commit: bytes


class _Abandoned(Exception):
    """Nobody waits for the checkpoint that is being taken."""


def _error_text(error: Exception) -> str:
    if isinstance(error, SeamarkError):
        return "; ".join(part for part in (error.what, error.where, error.hint) if part)
    return f"{type(error).__name__}: {error}"


def _end_all() -> None:
    """Before the interpreter goes: a last checkpoint of each, if that does not take long."""
    deadline = time.monotonic() + _PATIENCE_AT_EXIT
    left = list(_running)
    for watcher in left:
        watcher.finish()
    for watcher in left:
        watcher.stop(max(deadline - time.monotonic(), 0.0))


# after atexit's own moment no pool of threads takes work any more, and large reads need one
getattr(threading, "_register_atexit", atexit.register)(_end_all)
