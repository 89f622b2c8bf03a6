"""What a Kafka source is declared to read: topics, partitions, or a pattern of topics.

Tests: ``tests/spark/kafka/test_subscriptions.py``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from seamark.spark.failures import is_of_spark
from seamark.spark.kafka.broker import named_topics

_LONGEST_SHOWN: Final = 1000
_INTERNAL: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Topics of Kafka itself, which no pattern stands for."""


@dataclass(frozen=True)
class Subscription:
    """The topics of one source."""

    text: str
    """The option, to be named in errors."""
    topics: frozenset[str] = frozenset()
    partitions: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """By topic of ``assign``: which of its partitions."""
    is_matched: Callable[[str], bool] | None = None
    """Whether ``subscribePattern`` stands for a topic."""

    def reads(self, topic: str, partition: int) -> bool:
        """Whether rows of a partition are meant to be read."""
        if self.is_matched is not None:
            return topic not in _INTERNAL and self.is_matched(topic)
        return topic in self.topics or partition in self.partitions.get(topic, ())


def subscription_of(spark: Any, options: Mapping[str, str]) -> Subscription | None:
    """By the options of a Kafka source, in lower case; None when Spark will refuse them."""
    for name, shown in (
        ("assign", "assign"),
        ("subscribe", "subscribe"),
        ("subscribepattern", "subscribePattern"),
    ):
        if (value := options.get(name)) is None:
            continue
        text = f"{shown}={value}"[:_LONGEST_SHOWN]
        if name == "subscribe":
            return Subscription(text, topics=frozenset(named_topics(options)))
        if name == "subscribepattern":
            return Subscription(text, is_matched=_matching(spark, value))
        try:
            numbers = {topic: frozenset(parts) for topic, parts in json.loads(value).items()}
        except (ValueError, TypeError, AttributeError):
            return None
        return Subscription(text, partitions=numbers)
    return None


def _matching(spark: Any, pattern: str) -> Callable[[str], bool]:
    """By Java, as Kafka does it: the pattern stands for the whole name."""

    def is_matched(topic: str) -> bool:
        try:
            compiled = spark.sparkContext._jvm.java.util.regex.Pattern.compile(pattern)
            return bool(compiled.matcher(topic).matches())
        except Exception as error:
            if not is_of_spark(error):
                raise
            return False  # no pattern at all: Spark will say so

    return is_matched
