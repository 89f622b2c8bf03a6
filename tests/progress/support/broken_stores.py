"""Stores that each break a promise, whatever backend they stand on."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from seamark.errors import RefusedError
from seamark.progress import Session, SourceCheckpoint, SourceCheckpointStore
from seamark.progress.ledger import Changes, Ledger
from tests.progress.support.broken_ledgers import breaks

Store = SourceCheckpointStore


# sessions: begin, commit, rollback


@breaks("a_commit_without_a_session_is_refused")
class ACommitOfNothingIsFine(Store):
    def commit(self) -> None:
        if self.in_session:
            super().commit()


@breaks("a_rollback_without_a_session_is_harmless")
class ARollbackOfNothingIsAnError(Store):
    def rollback(self) -> None:
        if not self.in_session:
            raise RefusedError("there is no session to roll back")
        super().rollback()


@breaks("a_rollback_leaves_nothing")
class ARollbackCommits(Store):
    def rollback(self) -> None:
        if self.in_session:
            self.commit()


@breaks("any_exception_rolls_back")
class OnlyExceptionsRollBack(Store):
    @contextmanager
    def session(self) -> Iterator[Session]:
        session = self.begin()
        try:
            yield session
        except Exception:
            self.rollback()
            raise
        finally:
            if self.in_session:
                self.commit()


@breaks("the_end_of_the_block_commits")
class TheEndOfTheBlockRollsBack(Store):
    @contextmanager
    def session(self) -> Iterator[Session]:
        try:
            yield self.begin()
        finally:
            self.rollback()


@breaks(
    "only_the_outermost_commit_counts",
    "levels_share_one_session",
    "an_outer_rollback_takes_what_inner_levels_have_committed",
)
class EveryCommitIsReal(Store):
    def _commit(self, session: Session | None) -> None:
        if session is not None and session.depth > 1:
            session.transaction.commit(session.changes)
        super()._commit(session)


@breaks("an_inner_rollback_dooms_the_outer_commit")
class AnInnerRollbackIsForgotten(Store):
    def rollback(self) -> None:
        session = self._current()
        if session is not None and session.depth > 1:
            session.depth -= 1
        else:
            super().rollback()


@breaks("an_inner_rollback_dooms_every_level")
class TheNextLevelForgives(Store):
    def begin(self) -> Session:
        session = super().begin()
        session.is_doomed = False
        return session


@breaks("staging_without_a_session_is_refused_where_it_could_be_lost")
class StagingWithoutASessionIsCommitted(Store):
    @contextmanager
    def _joined(self, what: str) -> Iterator[Session]:
        with self.session() as session:
            yield session


@breaks(
    "a_result_sequence_is_committed_with_the_rest_of_the_session",
    "a_result_sequence_without_a_session_is_refused_where_it_could_be_lost",
)
class AResultSequenceIsACommitOfItsOwn(Store):
    def write_result_sequence(
        self, query_id: str, sequence: int, *, allow_rewind: bool = False
    ) -> None:
        self._apply(Changes(results={query_id: sequence}))


@breaks("reads_show_only_what_is_committed")
class ReadsGoThroughTheSession(Store):
    def read_checkpoint(self, source_id: str) -> SourceCheckpoint | None:
        session = self._current()
        staged = session.changes.sequences.get(source_id) if session else None
        return super().read_checkpoint(source_id) if staged is None else SourceCheckpoint(staged)


@breaks("a_thread_that_dies_in_a_session_holds_nobody_up")
class NobodyWaitsForTheDead(Store):
    def begin(self) -> Session:
        session = self._ledger.turn.session
        if session is not None and not session.thread.is_alive():
            raise RefusedError("somebody else has a session")
        return super().begin()


@breaks("others_read_while_a_session_is_open")
class ReadersAreTurnedAway(Store):
    def get(self, space: str, key: bytes) -> bytes | None:
        if self._ledger.turn.session is not None and not self.in_session:
            raise RefusedError("somebody else has a session")
        return super().get(space, key)


# handles


@breaks("a_closed_store_says_so")
class ClosingMeansNothing(Store):
    def _require_open(self) -> None:
        pass


@breaks("closing_rolls_back")
class ClosingCommits(Store):
    def close(self) -> None:
        while self.in_session:
            self.commit()
        super().close()


@breaks("a_reader_cannot_write")
class ReadersWrite(Store):
    def _require_writable(self) -> None:
        self._require_open()


@breaks("a_reader_does_not_disturb_the_writer")
class OpeningEndsSessions(Store):
    def __init__(self, ledger: Ledger, *, read_only: bool = False) -> None:
        super().__init__(ledger, read_only=read_only)
        if session := ledger.turn.session:
            session.end()
            ledger.turn.session = None


@breaks("a_reader_sees_every_commit")
class ReadersSeeWhatWasThereWhenTheyCame(Store):
    def __init__(self, ledger: Any, *, read_only: bool = False) -> None:
        if read_only:
            before, ledger = ledger, type(ledger)()
            ledger._state = copy.deepcopy(before._state)
        super().__init__(ledger, read_only=read_only)


# clearing, and the hash


@breaks("clearing_inside_a_session_is_refused_and_takes_nothing")
class ClearingInsideASession(Store):
    def clear_checkpoints(self) -> None:
        self._apply(Changes(forget_checkpoints=True, forget_hash=True))


@breaks("a_hash_written_inside_a_session_does_not_wait_for_it")
class TheHashJoinsTheSession(Store):
    def write_config_hash(self, config_hash: int) -> None:
        session = self._current()
        if session is None:
            super().write_config_hash(config_hash)
        else:
            session.stage_config_hash(config_hash)


@breaks("what_is_no_hash_is_refused")
class AnythingIsAHash(Store):
    def write_config_hash(self, config_hash: int) -> None:
        super().write_config_hash(int(config_hash or 0) % 2**64)


@breaks("a_name_that_is_no_space_is_refused")
class AnythingIsASpace(Store):
    def items(self, space: str) -> Iterator[tuple[bytes, bytes]]:
        return self._ledger.items(space)
