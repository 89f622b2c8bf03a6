"""A topic as an old checkpoint of Spark's Kafka source left it, in a broker of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from tools.kafka import is_there

_NEW_ROWS: Final = 2
_TIME: Final = 1_600_000_000_000


@contextmanager
def topic_behind(directory: Path) -> Iterator[Mapping[str, str]]:
    """Run a broker with what the newest batch of a directory had read, and rows after that.

    Gives what the session of the query is told, and nothing where Kafka was not fetched.
    """
    topic, read = positions(directory)
    with ExitStack() as stack:
        if not is_there():
            yield {}
            return
        from tests.integration.support.kafka import kafka_server
        from tests.sinks.support.kafka_records import Broker

        broker = Broker(stack.enter_context(kafka_server()).port)
        # the rows are of the past, so that all runs send the same, and would be deleted for it
        broker.new_topic(len(read), {"retention.ms": "-1"}, topic)
        _fill(broker.servers, topic, read)
        yield {"seamark.kafka": broker.servers, "seamark.kafka.topic": topic}


def positions(directory: Path) -> tuple[str, Mapping[int, int]]:
    """The one topic of a directory and how far its newest batch read each partition."""
    newest = max((directory / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    ((topic, partitions),) = json.loads(newest.read_text().splitlines()[2]).items()
    return topic, {int(partition): offset for partition, offset in partitions.items()}


def _fill(servers: str, topic: str, read: Mapping[int, int]) -> None:
    from confluent_kafka import Producer

    producer: Any = Producer({"bootstrap.servers": servers})
    for partition, offset in read.items():
        for number in range(offset + _NEW_ROWS):
            producer.produce(
                topic,
                value=f"{partition}-{number}",
                partition=partition,
                timestamp=_TIME + number,
                headers=[("number", str(number).encode())],
            )
    if left := producer.flush(60):
        raise RuntimeError(f"{left} rows did not reach {servers}")
