"""What a backend of a progress store does: read what is committed, and commit changes at once.

Tests: ``tests/progress/test_conformance.py``.
"""

from __future__ import annotations

import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final, Self

from seamark._common.logs import logger_named
from seamark.errors import RefusedError
from seamark.progress.checkpoints import ProgressOverview, SourceCheckpoint

if TYPE_CHECKING:
    from seamark.progress.session import Session

log = logger_named("seamark.progress")

_LOOK: Final = 0.5
_PATIENCE: Final = 20
"""Looks before it is said what is waited for."""

Writes = dict[bytes, bytes | None]
"""New values by key; None deletes the key."""


class SessionOvertaken(Exception):
    """Another session came in between, and nothing of this one was written: do it again."""


@dataclass
class Changes:
    """All that one commit changes. What is cleared is cleared before anything is written."""

    sequences: dict[str, int] = field(default_factory=dict)
    positions: dict[str, bytes | None] = field(default_factory=dict)
    """None deletes the position; a source that is not named keeps its own."""
    results: dict[str, int] = field(default_factory=dict)
    """The sequence of the last result, by query."""
    config_hash: int | None = None
    forget_hash: bool = False
    forget_checkpoints: bool = False
    """Deletes the checkpoint of every source and the result sequence of every query."""
    cleared: set[str] = field(default_factory=set)
    """Spaces that are emptied."""
    data: dict[str, Writes] = field(default_factory=dict)

    def is_empty(self) -> bool:
        """Whether nothing would change."""
        return self == Changes()


class Transaction(ABC):
    """One look at what is committed, and one chance to change it."""

    @abstractmethod
    def sequences(self) -> Mapping[str, int]:
        """The sequence of every source."""

    @abstractmethod
    def result_sequence(self, query_id: str) -> int | None:
        """The committed result sequence of a query."""

    @abstractmethod
    def get(self, space: str, key: bytes) -> bytes | None:
        """A committed value."""

    def get_many(self, space: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """Committed values, in the order of the keys."""
        return [self.get(space, key) for key in keys]

    def is_current(self) -> bool:
        """Whether everything that was read is still current; otherwise it may mix two moments."""
        return True

    @abstractmethod
    def commit(self, changes: Changes) -> None:
        """Make all changes durable and visible, or none.

        :class:`seamark.errors.FencedError` when another writer has come in between,
        :class:`seamark.errors.OutcomeUnknownError` when it cannot be learned what happened.
        """

    def abandon(self) -> None:  # noqa: B027
        """Release what the transaction holds. Harmless after a commit."""


class Turn:
    """Sessions of one ledger take turns, whatever thread or handle they come from."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self._session: weakref.ref[Session] | None = None

    @property
    def session(self) -> Session | None:
        """The session whose turn it is. Its handle keeps it: one that is dropped has no session."""
        return None if self._session is None else self._session()

    @session.setter
    def session(self, session: Session | None) -> None:
        self._session = None if session is None else weakref.ref(session)

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Wait until no session is open; nobody else starts one inside this block.

        A session whose thread has died without ending it is rolled back. :class:`RefusedError` when
        this thread would wait for itself.
        """
        looks = 0
        with self.changed:
            while (session := self.session) is not None:
                if session.thread is threading.current_thread():
                    raise RefusedError(
                        "this thread has a session through another handle of the same store",
                        where=session.store.url,
                        hint="Commit or roll it back first, or use one handle.",
                    )
                if not session.thread.is_alive():
                    log.warning("a thread has died in a session of %s", session.store.url)
                    session.end()
                    self.session = None
                    break
                looks += 1
                if looks == _PATIENCE:
                    holder, url = session.thread.name, session.store.url
                    log.warning(
                        "still waiting for the session that thread %s has in %s", holder, url
                    )
                del session  # it ends with its handle, which may be dropped in the meantime
                self.changed.wait(_LOOK)
            yield

    def give_up(self, session: Session) -> None:
        """Let the next one in."""
        with self.changed:
            if self.session is session:
                self.session = None
                self.changed.notify_all()


class Ledger(ABC):
    """A backend. One instance may serve several handles and threads of a process."""

    is_persistent: ClassVar[bool] = True
    """Whether what is committed survives the process."""
    url: str
    """Where it is, without secrets."""

    def __init__(self) -> None:
        self.turn = Turn()

    @abstractmethod
    def checkpoint(self, source_id: str) -> SourceCheckpoint | None:
        """The committed checkpoint of a source."""

    @abstractmethod
    def checkpoints(self) -> dict[str, SourceCheckpoint]:
        """The committed checkpoints of all sources, as they were at one moment."""

    @abstractmethod
    def overview(self) -> ProgressOverview:
        """All checkpoints and the hash of the configuration, as they were at one moment."""

    @abstractmethod
    def result_sequence(self, query_id: str) -> int | None:
        """The committed result sequence of a query."""

    @abstractmethod
    def config_hash(self) -> int | None:
        """The committed hash of the configuration."""

    @abstractmethod
    def get(self, space: str, key: bytes) -> bytes | None:
        """A committed value."""

    @abstractmethod
    def items(self, space: str) -> Iterator[tuple[bytes, bytes]]:
        """All committed keys and values of a space, as they were at one moment."""

    @abstractmethod
    def transaction(self) -> Transaction:
        """Start a transaction. Nothing is locked or written."""

    @abstractmethod
    def close(self) -> None:
        """Release files and connections; harmless the second time."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SingleWriterLedger(Ledger):
    """A backend that only this process writes: sessions take turns, so none is overtaken."""

    def sequences(self) -> dict[str, int]:
        """The sequence of every source."""
        return {source: stored.sequence for source, stored in self.checkpoints().items()}

    def get_many(self, space: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """Committed values, in the order of the keys."""
        return [self.get(space, key) for key in keys]

    @abstractmethod
    def apply(self, changes: Changes) -> None:
        """Make all changes durable and visible, or none."""

    def transaction(self) -> Transaction:
        return _SingleWriterTransaction(self)


class _SingleWriterTransaction(Transaction):
    def __init__(self, ledger: SingleWriterLedger) -> None:
        self._ledger = ledger

    def sequences(self) -> Mapping[str, int]:
        return self._ledger.sequences()

    def result_sequence(self, query_id: str) -> int | None:
        return self._ledger.result_sequence(query_id)

    def get(self, space: str, key: bytes) -> bytes | None:
        return self._ledger.get(space, key)

    def get_many(self, space: str, keys: Sequence[bytes]) -> list[bytes | None]:
        return self._ledger.get_many(space, keys)

    def commit(self, changes: Changes) -> None:
        self._ledger.apply(changes)
