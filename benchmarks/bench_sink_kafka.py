"""What exactly once costs on the way to Kafka: one epoch against a plain transactional producer.

The baseline is what a foreachBatch by hand does: take key and value of every row to the driver,
send them by one transactional producer, commit. Ours stages the rows in durable files, and sends
them from there together with the ledger's record.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer
from pyspark.sql import DataFrame

from harness import Row, in_milliseconds, interleaved, options, ratio, scratch, show
from seamark.sinks import KafkaSink
from seamark.sinks.kafka.columns import KEY, VALUE, RecordColumns
from seamark.testing.conformance.sink_examples import epoch
from sink_rows import trades
from tests.integration.support.kafka import kafka_server
from tests.pipeline.support.driver import session
from tests.sinks.support.kafka_records import Broker

ROWS: Final = 1_000_000
COLUMNS: Final = RecordColumns.of("symbol", None, None, None, None)
SHARDS: Final = 2
LIMIT: Final = 1.15


def by_hand(broker: Broker, topic: str, rows: DataFrame) -> Callable[[], None]:
    """Take the rows to the driver and send them in one transaction."""
    settings = {
        "bootstrap.servers": broker.servers,
        "transactional.id": f"bench-{uuid.uuid4().hex}",
        "transaction.timeout.ms": 300_000,
        "partitioner": "murmur2_random",
    }
    producer: Any = Producer(settings)
    producer.init_transactions()

    def run() -> None:
        table = COLUMNS.staged(rows).toArrow()
        producer.begin_transaction()
        for key, value in zip(table[KEY].to_pylist(), table[VALUE].to_pylist(), strict=True):
            while True:
                try:
                    producer.produce(topic, value, key)
                    break
                except BufferError:
                    producer.poll(0.05)
        producer.commit_transaction()

    return run


def with_sink(
    broker: Broker, topic: str, rows: DataFrame, folder: Path, shards: int
) -> Callable[[], None]:
    """Take the rows through the sink, an epoch each time."""
    sink = KafkaSink(broker.servers, topic, key="symbol", staging=folder, shards=shards)
    sink.open("bench", f"trades-{shards}", rows.schema)
    numbers = itertools.count(1)

    def run() -> None:
        number = next(numbers)
        sink.stage(rows, epoch(number), f"a{number}")
        sink.commit(sink.prepare())

    return run


def main() -> None:
    given = options(__doc__)
    count = ROWS // 20 if given.quick else ROWS
    spark = session("local[2]", {})
    with scratch(given.directory) as folder, kafka_server() as server:
        broker, rows = Broker(server.port), trades(spark, count)
        cases = {
            "a transactional producer": by_hand(broker, broker.new_topic(4), rows),
            "one transaction": with_sink(broker, broker.new_topic(4), rows, folder, 1),
            f"{SHARDS} shards": with_sink(broker, broker.new_topic(4), rows, folder, SHARDS),
        }
        times = interleaved(cases, 2 if given.quick else 5)
    baseline, *ours = cases
    against = in_milliseconds(times[baseline])
    lines = [
        Row(name, against, ratio(times[name], times[baseline]), LIMIT if at == 0 else None)
        for at, name in enumerate(ours)
    ]
    show(f"{count:,} rows to Kafka in one epoch", lines, against=baseline)
    spark.stop()


if __name__ == "__main__":
    main()
