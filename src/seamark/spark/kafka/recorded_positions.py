"""The positions of a source as a checkpoint has them: one line for each place it has come to.

A source that several leaves of a plan read, as in a join with itself, has a line for each leaf that
has come to another place than the others.

Tests: ``tests/spark/kafka/test_recorded_positions.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count, takewhile

from seamark.manifest import CheckpointManifest, ConnectorCheckpoint
from seamark.spark.kafka.positions import Offsets, each_position, parsed


def lines_of(at: ConnectorCheckpoint) -> list[str]:
    """The lines of the offset log of one source, without repetition."""
    names = ("line" if number == 1 else f"line#{number}" for number in count(1))
    lines = takewhile(lambda line: isinstance(line, str), (at.metadata.get(n) for n in names))
    return [str(line) for line in lines]


def recorded_lines(checkpoint: CheckpointManifest) -> dict[str, list[str]]:
    """The lines of each source, by its name."""
    found = {name: lines_of(at) for name, at in checkpoint.source_offsets.items()}
    return {name: lines for name, lines in found.items() if lines}


def lowest_position(lines: Iterable[str]) -> Offsets | None:
    """Where the leaf that is furthest behind goes on in each partition; None if not Kafka's.

    >>> lowest_position(['{"t":{"0":7,"1":3}}', '{"t":{"0":5,"1":4}}'])
    {'t': {0: 5, 1: 3}}
    >>> lowest_position(['{"logOffset":3}'])
    """
    return _chosen(lines, min)


def highest_position(lines: Iterable[str]) -> Offsets | None:
    """The furthest place of any leaf in each partition; None if not Kafka's."""
    return _chosen(lines, max)


def _chosen(lines: Iterable[str], choose: Callable[[int, int], int]) -> Offsets | None:
    found: Offsets = {}
    for line in lines:
        offsets = parsed(line)
        if offsets is None:
            return None
        for topic, number, at in each_position(offsets):
            parts = found.setdefault(topic, {})
            parts[number] = choose(at, parts.get(number, at))
    return found or None
