"""Progress in memory: for tests, and for programs that start over each time.

Tests: ``tests/progress/test_conformance.py``.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar
from weakref import WeakValueDictionary

from seamark.progress.checkpoints import ProgressOverview, SourceCheckpoint
from seamark.progress.ledger import Changes, SingleWriterLedger

K = TypeVar("K")


@dataclass
class _State:
    sequences: dict[str, int] = field(default_factory=dict)
    positions: dict[str, bytes] = field(default_factory=dict)
    results: dict[str, int] = field(default_factory=dict)
    config_hash: int | None = None
    data: dict[str, dict[bytes, bytes]] = field(default_factory=dict)


class MemoryLedger(SingleWriterLedger):
    """Lost when the process ends. Handles that open the same name share it while one is open."""

    is_persistent: ClassVar[bool] = False
    _named: ClassVar[WeakValueDictionary[str, MemoryLedger]] = WeakValueDictionary()
    _naming: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, name: str = "") -> None:
        super().__init__()
        self.url = f"memory://{name}"
        self._state = _State()
        self._lock = threading.Lock()

    @classmethod
    def named(cls, name: str) -> MemoryLedger:
        """The ledger of this name; without a name always a new one."""
        if not name:
            return cls()
        with cls._naming:
            ledger = cls._named.get(name)
            if ledger is None:
                ledger = cls._named[name] = cls(name)
            return ledger

    def checkpoint(self, source_id: str) -> SourceCheckpoint | None:
        return self.checkpoints().get(source_id)

    def checkpoints(self) -> dict[str, SourceCheckpoint]:
        return dict(self.overview().checkpoints)

    def overview(self) -> ProgressOverview:
        with self._lock:
            state = self._state
            checkpoints = {
                source: SourceCheckpoint(sequence, state.positions.get(source))
                for source, sequence in state.sequences.items()
            }
            return ProgressOverview(checkpoints, state.config_hash)

    def result_sequence(self, query_id: str) -> int | None:
        return self._state.results.get(query_id)

    def config_hash(self) -> int | None:
        return self._state.config_hash

    def get(self, space: str, key: bytes) -> bytes | None:
        with self._lock:
            return self._state.data.get(space, {}).get(key)

    def items(self, space: str) -> Iterator[tuple[bytes, bytes]]:
        with self._lock:
            pairs = sorted(self._state.data.get(space, {}).items())
        return iter(pairs)

    def apply(self, changes: Changes) -> None:
        """Apply all of it. Nothing in here can fail half-way."""
        with self._lock:
            state = self._state
            if changes.forget_checkpoints:
                state.sequences, state.positions, state.results = {}, {}, {}
            if changes.forget_hash:
                state.config_hash = None
            for space in changes.cleared:
                state.data.pop(space, None)
            state.sequences.update(changes.sequences)
            state.results.update(changes.results)
            for source, position in changes.positions.items():
                _write(state.positions, source, position)
            for space, writes in changes.data.items():
                target = state.data.setdefault(space, {})
                for key, value in writes.items():
                    _write(target, key, value)
            if changes.config_hash is not None:
                state.config_hash = changes.config_hash

    def close(self) -> None:
        pass


def _write(target: dict[K, bytes], key: K, value: bytes | None) -> None:
    if value is None:
        target.pop(key, None)
    else:
        target[key] = value
