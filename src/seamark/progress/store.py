"""The store of source checkpoints, as a program uses it, over any backend.

Tests: ``tests/progress/test_conformance.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from seamark._common.checks import check_text
from seamark.errors import RefusedError
from seamark.progress.checkpoints import ProgressOverview, SourceCheckpoint, check_sequence
from seamark.progress.ledger import Changes, Ledger, Transaction
from seamark.progress.session import Session, as_bytes, check_space


class SourceCheckpointStore:
    """Sequence and position of each source, the configuration's hash, and data alongside them.

    Reads give what is committed. What is staged is seen through its session only. Sessions of one
    store take turns: a second thread that starts one waits.
    """

    def __init__(self, ledger: Ledger, *, read_only: bool = False) -> None:
        self._ledger = ledger
        self._read_only = read_only
        self._closed = False
        self._session: Session | None = None

    @property
    def url(self) -> str:
        """Where it is, without secrets."""
        return self._ledger.url

    def is_persistent(self) -> bool:
        """Whether checkpoints survive the process, so that sources may resume from them."""
        return self._ledger.is_persistent

    # sessions

    def begin(self) -> Session:
        """Begin a session of this thread, or go one level deeper into the one that it has."""
        self._require_writable()
        current = self._current()
        if current is not None:
            current.depth += 1
            return current
        with self._ledger.turn.taken():
            self._require_writable()  # it may have been closed in the meantime
            session = Session(self, self._ledger.transaction())
            self._ledger.turn.session = self._session = session
        return session

    def commit(self) -> None:
        """End a level; the outermost one makes everything durable and visible at once.

        :class:`RefusedError` without a session, or when an inner level was rolled back. A commit
        that fails has ended the session, and has changed nothing unless the error says otherwise.
        """
        self._commit(self._current())

    def _commit(self, session: Session | None) -> None:
        if session is None or session.depth == 0:
            raise RefusedError("there is no session to commit", hint="Begin one first.")
        if session.depth > 1:
            session.depth -= 1
            return
        try:
            session.require_open()
            session.transaction.commit(session.changes)
        finally:
            self._end(session)

    def rollback(self) -> None:
        """Drop everything that was staged, also by outer levels. Harmless without a session."""
        self._rollback(self._current())

    def _rollback(self, session: Session | None) -> None:
        if session is None or session.depth == 0:
            return
        if session.depth > 1:
            session.depth -= 1
            session.doom()
        else:
            self._end(session)

    @contextmanager
    def session(self) -> Iterator[Session]:
        """A session that commits at its end, and rolls back on any exception.

        It ends also when another thread leaves the block than has entered it. Tasks of one event
        loop share a thread, and so a session: do not await inside.
        """
        session = self.begin()
        try:
            yield session
        except BaseException:
            self._rollback(session)
            raise
        self._commit(session)

    @property
    def in_session(self) -> bool:
        """Whether this thread has a session of this handle."""
        return self._current() is not None

    def _current(self) -> Session | None:
        session = self._ledger.turn.session
        return session if session is not None and session.is_mine(self) else None

    def _end(self, session: Session) -> None:
        session.end()
        self._session = None
        self._ledger.turn.give_up(session)

    # checkpoints

    def stage_checkpoint(
        self,
        source_id: str,
        sequence: int,
        source_position: bytes | None = None,
        *,
        allow_rewind: bool = False,
    ) -> None:
        """Stage how far a source has been read, in this thread's session.

        A store that is not persistent applies it at once when there is none; a persistent one
        raises :class:`RefusedError`. See :meth:`Session.stage_checkpoint`.
        """
        with self._joined("stage_checkpoint") as session:
            session.stage_checkpoint(
                source_id, sequence, source_position, allow_rewind=allow_rewind
            )

    def clear_position(self, source_id: str) -> None:
        """Stage that a source has no position any more, in this thread's session."""
        with self._joined("clear_position") as session:
            session.clear_position(source_id)

    @contextmanager
    def _joined(self, what: str) -> Iterator[Session]:
        current = self._current()
        if current is not None:
            yield current
        elif self.is_persistent():
            self._require_writable()
            raise RefusedError(
                f"{what} needs a session: what it stages is committed with the rest",
                where=self.url,
                hint="with store.session() as s: s.put(…); s.stage_checkpoint(…)",
            )
        else:
            with self.session() as session:
                yield session

    def read_checkpoint(self, source_id: str) -> SourceCheckpoint | None:
        """The committed checkpoint of a source, or None."""
        self._require_open()
        return self._ledger.checkpoint(check_text(source_id, "a source id"))

    def read_all_checkpoints(self) -> dict[str, SourceCheckpoint]:
        """The committed checkpoints of all sources."""
        self._require_open()
        return self._ledger.checkpoints()

    def read_overview(self) -> ProgressOverview:
        """The committed checkpoints of all sources, and the configuration's hash beside them.

        Both are of one moment, which two reads one after the other need not be.
        """
        self._require_open()
        return self._ledger.overview()

    def clear_checkpoints(self) -> None:
        """Delete all checkpoints, result sequences and the hash, at once. Data stays.

        :class:`RefusedError` inside a session.
        """
        if self._current() is not None:
            raise RefusedError(
                "clear_checkpoints cannot be part of a session",
                hint="It stands for itself. Commit or roll back first.",
            )
        self._apply(Changes(forget_checkpoints=True, forget_hash=True))

    # results

    def write_result_sequence(
        self, query_id: str, sequence: int, *, allow_rewind: bool = False
    ) -> None:
        """Stage the sequence of a query's last result, in this thread's session.

        Without a session it does what :meth:`stage_checkpoint` does. See
        :meth:`Session.write_result_sequence`.
        """
        with self._joined("write_result_sequence") as session:
            session.write_result_sequence(query_id, sequence, allow_rewind=allow_rewind)

    def read_result_sequence(self, query_id: str) -> int | None:
        """The committed sequence of the last result that a query has emitted, or None."""
        self._require_open()
        return self._ledger.result_sequence(check_text(query_id, "a query id"))

    # the configuration's hash

    def write_config_hash(self, config_hash: int) -> None:
        """Write the hash of the configuration; a commit of its own, also inside a session."""
        self._apply(Changes(config_hash=check_sequence(config_hash)))

    def read_config_hash(self) -> int | None:
        """The hash that was written last, or None."""
        self._require_open()
        return self._ledger.config_hash()

    def forget_config_hash(self) -> None:
        """Delete the hash alone: of which configuration the data is, is not known then."""
        self._apply(Changes(forget_hash=True))

    def _apply(self, changes: Changes) -> None:
        """A commit of its own. Inside a session of this thread it does not wait for its turn."""
        self._require_writable()
        if self._current() is not None:
            self._commit_alone(changes)
            return
        with self._ledger.turn.taken():
            self._require_writable()
            self._commit_alone(changes)

    def _commit_alone(self, changes: Changes) -> None:
        transaction: Transaction = self._ledger.transaction()
        try:
            transaction.commit(changes)
        finally:
            transaction.abandon()

    # data

    def get(self, space: str, key: bytes) -> bytes | None:
        """A committed value, or None."""
        self._require_open()
        return self._ledger.get(check_space(space), as_bytes("a key", key))

    def items(self, space: str) -> Iterator[tuple[bytes, bytes]]:
        """All keys and values of a space as they are committed at one moment."""
        self._require_open()
        return self._ledger.items(check_space(space))

    # ending

    def close(self) -> None:
        """Roll back an open session and release the store; harmless the second time."""
        with self._ledger.turn.changed:  # nobody starts a session in between
            if self._closed:
                return
            self._closed = True
        if self._session is not None:
            self._end(self._session)
        self._ledger.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _require_open(self) -> None:
        if self._closed:
            raise RefusedError("the progress store is closed", where=self.url)

    def _require_writable(self) -> None:
        self._require_open()
        if self._read_only:
            raise RefusedError(
                "the progress store was opened to be read only",
                where=self.url,
                hint="Open it without read_only=True; nobody else may write to it then.",
            )
