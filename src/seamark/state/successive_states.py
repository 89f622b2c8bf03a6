"""What the checkpoints of one chain consist of, one after the other: each gives what is new in it.

Tests: ``tests/state/test_successive_states.py``.
"""

from __future__ import annotations

from collections.abc import Iterator

from seamark.errors import DamageError
from seamark.state.chains import Chain, PartitionKey
from seamark.state.resolution import Resolution, Step, place_text
from seamark.state.shared_rows import WIDTH


class SuccessiveStates:
    """One pass over a chain, oldest first. What stays as it was is not gone through again.

    Each object is given once. :class:`DamageError` when a partition goes back to what it was
    before: no writer does that, and to follow it could cost any number of reads.
    """

    def __init__(self) -> None:
        self._last = Resolution()
        self._steps: set[Step] = set()
        self._objects: set[tuple[object, ...]] = set()
        self._now: dict[PartitionKey, tuple[object, ...]] = {}

    def new_in(self, resolution: Resolution) -> Iterator[tuple[PartitionKey, Chain]]:
        """The partitions whose snapshot is another one than at the checkpoint before."""
        for key, step in _changed(self._last, resolution):
            first = step.root.first
            snapshot = first.origin, first.entry.path, first.entry.pack
            is_same = self._now.get(key) == snapshot
            if step in self._steps or (snapshot in self._objects and not is_same):
                raise DamageError(f"{place_text(key)} goes back to what was replaced")
            self._steps.add(step)
            self._now[key] = snapshot
            if first.entry.size_bytes:  # several that are empty may be in one place
                self._objects.add(snapshot)
            if not is_same:
                yield key, step.chain()
        self._last = resolution


def _changed(before: Resolution, now: Resolution) -> Iterator[tuple[PartitionKey, Step]]:
    """The partitions that two checkpoints do not share."""
    numbers = now.numbers
    old = before.steps.chunks if before.numbers is numbers else ()
    for place, chunk in enumerate(now.steps.chunks):
        other = old[place] if place < len(old) else None
        if chunk is other:
            continue
        for offset, step in enumerate(chunk.values):
            if step is not None and (other is None or other.values[offset] is not step):
                yield numbers.places[place * WIDTH + offset], step
