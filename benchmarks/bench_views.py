"""What a live view costs, against loading the same rows from Spark without any guarantee.

The baseline is what a foreachBatch by hand does: take key and value of every row to the driver and
write them, in one synced batch (RocksDB) or in pipelined commands of 1000 fields each (Redis).
Ours stages the rows in durable files, and commits them with ledger and source checkpoints at once.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from harness import Row, in_milliseconds, interleaved, options, ratio, scratch, show
from seamark.sinks import KeyValueSink
from seamark.sinks.keyvalue.view_columns import KEY, VALUE, Shape
from seamark.testing.conformance.sink_examples import epoch
from tests.pipeline.support.driver import session
from tests.support.databases import redis_server

ROWS: Final = 100_000
SHAPE: Final = Shape(("symbol",))

Load = Callable[[list[bytes], list[bytes]], None]


def prices(spark: SparkSession) -> DataFrame:
    """Rows that lie ready in memory."""
    rows = spark.range(0, ROWS, 1, 4).selectExpr(
        "concat('symbol-', id) AS symbol",
        "id * 7 AS volume",
        "id / 3.0 AS price",
        "timestamp_millis(1790000000000 + id) AS at",
    )
    made = rows.persist()
    made.count()
    return made


def by_hand(load: Load) -> Callable[[DataFrame], None]:
    """Take the rows to the driver and load them."""

    def run(rows: DataFrame) -> None:
        table = SHAPE.staged(rows).toArrow()
        load(table[KEY].to_pylist(), table[VALUE].to_pylist())

    return run


def with_sink(sink: KeyValueSink, rows: DataFrame) -> Callable[[DataFrame], None]:
    """Take the rows through a sink, an epoch each time."""
    sink.open("bench", "prices", rows.schema)
    numbers = itertools.count(1)

    def run(rows: DataFrame) -> None:
        number = next(numbers)
        sink.stage(rows, epoch(number), f"a{number}")
        sink.commit(sink.prepare())

    return run


@contextmanager
def rocksdb(folder: Path) -> Iterator[tuple[Load, KeyValueSink]]:
    """RocksDB, bare and under the sink."""
    from rocksdict import Options, Rdict, WriteBatch, WriteOptions

    database: Any = Rdict(str(folder / "bare"), Options(raw_mode=True))
    synced = WriteOptions()
    synced.sync = True

    def load(keys: list[bytes], values: list[bytes]) -> None:
        batch = WriteBatch(raw_mode=True)
        for key, value in zip(keys, values, strict=True):
            batch.put(key, value)
        database.write(batch, synced)

    sink = KeyValueSink(f"rocksdb://{folder}/view", key="symbol")
    yield load, sink
    sink.close()
    database.close()


@contextmanager
def redis(folder: Path) -> Iterator[tuple[Load, KeyValueSink]]:
    """Redis, bare and under the sink; the server syncs every write."""
    from redis import Redis

    with redis_server() as server:
        client = Redis.from_url(server.url)

        def load(keys: list[bytes], values: list[bytes]) -> None:
            pipe = client.pipeline(transaction=False)
            pairs = zip(keys, values, strict=True)
            while some := list(itertools.islice(pairs, 1000)):
                pipe.hset("bare", mapping=dict(some))
            pipe.execute()

        url = f"{server.url}?namespace={uuid.uuid4().hex}"
        sink = KeyValueSink(url, key="symbol", staging=folder / "staging")
        yield load, sink
        sink.close()
        client.close()


def compare(
    spark: SparkSession, what: str, load: Load, sink: KeyValueSink, rounds: int
) -> list[Row]:
    """Both in turns on the same rows."""
    rows = prices(spark)
    bare, ours = by_hand(load), with_sink(sink, rows)
    times = interleaved({"bare": lambda: bare(rows), "ours": lambda: ours(rows)}, rounds)
    rows.unpersist()
    label = f"bare load ({in_milliseconds(times['bare'])})"
    return [
        Row(f"{what}: {ROWS} upserts in an epoch", label, ratio(times["ours"], times["bare"]), 1.5)
    ]


def main() -> None:
    """Measure both servers."""
    given = options(__doc__)
    spark = session()
    with scratch(given.directory) as folder:
        rows = []
        for what, opened in (("RocksDB", rocksdb), ("Redis", redis)):
            with opened(folder / what) as (load, sink):
                rows += compare(spark, what, load, sink, 3 if given.quick else 15)
        show("A live view", rows)
    spark.stop()


if __name__ == "__main__":
    main()
