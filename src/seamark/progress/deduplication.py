"""Recognizes events that come a second time by their sequence."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from seamark._common.checks import U64_MAX
from seamark.errors import RefusedError
from seamark.progress.checkpoints import SourceCheckpoint, check_sequence


class SequenceDedup:
    """Which events of a source are new, and how its sequence continues after a restart.

    ::

        seen = SequenceDedup(store.read_all_checkpoints())
        if seen.is_new("orders", event.sequence):
            with store.session() as s:
                ...
                s.stage_checkpoint("orders", event.sequence, event.position)
            seen.advance("orders", event.sequence)      # after the commit, never before
    """

    def __init__(self, checkpoints: Mapping[str, SourceCheckpoint] | None = None) -> None:
        self._last = {
            source: checkpoint.sequence for source, checkpoint in (checkpoints or {}).items()
        }
        self._lock = threading.Lock()

    def is_new(self, source: str, sequence: int | None) -> bool:
        """Whether an event comes after what was committed.

        So does every event without a sequence, and every event of a source that is not known:
        nothing shows that it was seen.
        """
        last = self._last.get(source)
        return sequence is None or last is None or check_sequence(sequence) > last

    def advance(self, source: str, sequence: int | None) -> None:
        """Count everything up to here as seen; a lower number, or none, changes nothing.

        To be called after the commit: an event of a session that failed has to pass again.
        """
        if sequence is None:
            return
        check_sequence(sequence)
        with self._lock:
            self._last[source] = max(sequence, self._last.get(source, sequence))

    def next_sequence(self, source: str) -> int:
        """The number of the next event of a source that does not number its own, from 1 on.

        It grows by :meth:`advance` alone, so an event that is read again after a rollback or a
        restart gets the number that it had. Of several events in one session the second has one
        more, and so on. :class:`RefusedError` after the last number that there is.
        """
        last = self._last.get(source, 0)
        if last >= U64_MAX:
            raise RefusedError(f"source {source!r} has used up all numbers, {U64_MAX} was the last")
        return last + 1

    def all_checkpoints(self) -> dict[str, int]:
        """The last number that was committed, of every source that is known."""
        with self._lock:
            return dict(self._last)

    def last_sequence(self, source: str) -> int | None:
        """The last number that was committed, or None."""
        return self._last.get(source)
