"""The Kafka sources of one pipeline: asked together, each with its own options.

Tests: ``tests/integration/test_kafka.py``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from seamark._redaction import redacted
from seamark.spark.failures import is_silence
from seamark.spark.kafka.broker import (
    SERVERS,
    KnownTopics,
    address_of,
    commit_to_group,
    times_at,
    topics_of,
    with_times,
)
from seamark.spark.kafka.positions import (
    Offsets,
    PositionStatus,
    Topics,
    each_position,
    statuses,
)
from seamark.spark.kafka.recorded_positions import lowest_position
from seamark.spark.kafka.subscriptions import Subscription, subscription_of

_SECONDS: Final = 10.0
"""How long a question may take that nothing waits for."""


class KafkaSources:
    """Those sources of a pipeline that read from Kafka, by name."""

    def __init__(self, spark: Any, options: Mapping[str, Mapping[str, str]]) -> None:
        self._spark = spark
        self._options = {name: each for name, each in options.items() if SERVERS in each}

    @property
    def addresses(self) -> dict[str, str]:
        """Where each is read from, to be named in errors."""
        return {name: address_of(options) for name, options in self._options.items()}

    @property
    def servers(self) -> dict[str, str]:
        """The servers of each."""
        return {name: redacted(options[SERVERS]) for name, options in self._options.items()}

    @property
    def subscriptions(self) -> dict[str, Subscription]:
        """What each is declared to read."""
        found = {name: subscription_of(self._spark, each) for name, each in self._options.items()}
        return {name: each for name, each in found.items() if each is not None}

    def look(
        self,
        patience: float,
        is_stopping: Callable[[], bool] = lambda: False,
        is_passing: Callable[[BaseException], bool] = is_silence,
    ) -> dict[str, KnownTopics]:
        """The topics of each source that could be looked at. Raises as :func:`topics_of` does."""
        found = {
            name: topics_of(self._spark, name, options, patience, is_stopping, is_passing)
            for name, options in self._options.items()
        }
        return {name: known for name, known in found.items() if known is not None}

    def topics(self, patience: float) -> dict[str, Topics]:
        """What Kafka says about the topics of each source that could be looked at."""
        return {name: known.topics for name, known in self.look(patience).items()}

    def commit(self, group: str, positions: Mapping[str, bytes]) -> None:
        """Store positions in a consumer group; raises what the JVM raises."""
        for name, offsets in self._offsets(positions).items():
            commit_to_group(self._spark, self._options[name], group, offsets, _SECONDS)

    def measure(self, positions: Mapping[str, bytes]) -> dict[str, list[PositionStatus]]:
        """How far behind each source is, and how old what it reads next."""
        found = {}
        for name, offsets in self._offsets(positions).items():
            options = self._options[name]
            known = topics_of(self._spark, name, options, _SECONDS)
            if known is None:
                continue
            timed = with_times(self._spark, options, known.topics, offsets, _SECONDS)
            found[name] = statuses(offsets, timed, time.time_ns() // 1_000_000)
        return found

    def times(self, rows: Mapping[str, Offsets]) -> dict[str, dict[str, int]]:
        """By source and partition: when these rows were written, in ms; what is not known aside."""
        found = {}
        for name, offsets in rows.items():
            wanted = list(each_position(offsets))
            times = times_at(self._spark, self._options[name], wanted, _SECONDS)
            found[name] = {f"{t}-{number}": at for t, number, at in each_position(times)}
        return {name: times for name, times in found.items() if times}

    def _offsets(self, positions: Mapping[str, bytes]) -> dict[str, Offsets]:
        """Of a source that several leaves read, what the last of them has not read yet."""
        lines = {n: positions[n].decode().split("\n") for n in self._options if n in positions}
        return {n: at for n, own in lines.items() if (at := lowest_position(own)) is not None}
