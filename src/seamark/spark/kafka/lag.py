"""What a checkpoint says about the rows that were there and not read yet: how many, how old.

Tests: ``tests/spark/kafka/test_lag.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from seamark.manifest import CheckpointManifest
from seamark.spark.kafka.positions import Offsets, each_position, line_of, parsed
from seamark.spark.kafka.recorded_positions import (
    highest_position,
    lowest_position,
    recorded_lines,
)


def latest_by_source(leaves: Sequence[str], lines: Sequence[str | None]) -> dict[str, str]:
    """The newest offsets of each source of Kafka's, from those that Spark saw for each leaf.

    >>> latest_by_source(["trades", "files"], ['{"t":{"0":7}}', '{"logOffset":3}'])
    {'trades': '{"t":{"0":7}}'}
    """
    if len(leaves) != len(lines):
        return {}
    by_source: dict[str, list[str]] = {}
    for name, line in zip(leaves, lines, strict=True):
        if line is not None:
            by_source.setdefault(name, []).append(line)
    found = {name: highest_position(own) for name, own in by_source.items()}
    return {name: line_of(at) for name, at in found.items() if at is not None}


def recorded_lag(manifest: CheckpointManifest) -> dict[str, dict[str, int]]:
    """By source and partition: the rows that were not read yet when the epoch was planned."""
    found: dict[str, dict[str, int]] = {}
    lines = recorded_lines(manifest)
    for name, line in (manifest.source_latest or {}).items():
        reached, latest = lowest_position(lines.get(name, [])), parsed(line)
        if reached is None or latest is None:
            continue
        found[name] = {
            f"{topic}-{number}": max(latest.get(topic, {}).get(number, wanted) - wanted, 0)
            for topic, number, wanted in each_position(reached)
        }
    return found


def recorded_ages(manifest: CheckpointManifest) -> dict[str, dict[str, float]]:
    """By source and partition: how old the next row was, in seconds, when the checkpoint was taken.

    Where nothing was left to read it is 0. A partition of which it is not known is absent.
    """
    found: dict[str, dict[str, float]] = {}
    for name, lags in recorded_lag(manifest).items():
        times = (manifest.source_times or {}).get(name, {})
        found[name] = {
            part: 0.0 if not rows else max(manifest.timestamp_ms - times[part], 0) / 1000
            for part, rows in lags.items()
            if not rows or part in times
        }
    return found


def unread_positions(
    positions: Mapping[str, bytes], latest: Mapping[str, str]
) -> dict[str, Offsets]:
    """Where a row was there to be read next, by source.

    ``positions`` are the lines of each source, ``latest`` the newest offsets that it had.

    >>> unread_positions({"trades": b'{"t":{"0":5,"1":7}}'}, {"trades": '{"t":{"0":9,"1":7}}'})
    {'trades': {'t': {0: 5}}}
    """
    found: dict[str, Offsets] = {}
    for name, line in latest.items():
        reached = lowest_position(positions.get(name, b"").decode().split("\n")) or {}
        ends = parsed(line) or {}
        for topic, number, wanted in each_position(reached):
            if wanted < ends.get(topic, {}).get(number, wanted):
                found.setdefault(name, {}).setdefault(topic, {})[number] = wanted
    return found
