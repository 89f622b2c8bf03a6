"""The objects of many checkpoints that share most of them, each given once.

Tests: ``tests/state/test_read_states.py``.
"""

from __future__ import annotations

from collections.abc import Iterator

from seamark.state.chains import Link, PartitionKey
from seamark.state.resolution import Resolution, Step
from seamark.state.shared_rows import WIDTH, Chunk


class GivenLinks:
    """What one pass has given. What two checkpoints share is looked at once."""

    def __init__(self) -> None:
        self._chunks: set[Chunk[Step]] = set()
        self._steps: set[Step] = set()
        self._places: set[tuple[object, ...]] = set()

    def new_in(self, resolution: Resolution) -> Iterator[tuple[PartitionKey, Link]]:
        """The objects of a checkpoint that were not given before, by their partitions."""
        for place, chunk in enumerate(resolution.steps.chunks):
            if chunk in self._chunks:
                continue
            self._chunks.add(chunk)
            for offset, newest in enumerate(chunk.values):
                if newest is not None:
                    key = resolution.numbers.places[place * WIDTH + offset]
                    yield from ((key, link) for link in self._new_below(newest))

    def _new_below(self, newest: Step) -> Iterator[Link]:
        for step in newest.newest_first():
            if step in self._steps:
                return  # so is all below it
            self._steps.add(step)
            for link in step.links:
                # one that was named by reference is the same as where it was written
                place = link.origin, link.entry.path, link.entry.pack
                if place not in self._places:
                    self._places.add(place)
                    yield link
