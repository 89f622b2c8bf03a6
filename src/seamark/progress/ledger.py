"""What a backend of a progress store does: read what is committed, and commit changes at once.

Tests: ``tests/progress/test_conformance.py``.
"""

from __future__ import annotations

import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Self

from seamark.progress.checkpoints import SourceCheckpoint

if TYPE_CHECKING:
    from seamark.progress.session import Session

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
