"""Stock streaming queries of every kind, which know nothing of Seamark, and what they put out."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from seamark.spark.session import FILE_MANAGER, fast_file_manager
from tests.pipeline.support.workloads import (
    deduplicated,
    doubled,
    orders,
    pandas_state,
    payments,
    provider_of,
    sessions,
    settings_of,
    transformed_state,
    windowed,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

Outputs = dict[int, Counter[str]]
"""Batch → every row that it put out."""

PATIENCE: Final = 280


class Kind(NamedTuple):
    """A query, how it keeps its state, and what else it is run with."""

    declare: Callable[[SparkSession, Path], DataFrame]
    provider: str = "hdfs"
    mode: str = "append"
    settings: Mapping[str, str] = {}
    since: tuple[int, int] = (4, 0)
    """The first Spark that has what it needs."""


def _counted(spark: SparkSession, folder: Path) -> DataFrame:
    return orders(spark, folder).groupBy("k").count()


def _total(spark: SparkSession, folder: Path) -> DataFrame:
    """One group, so one partition, although Spark notes as many as there are shuffle partitions."""
    return orders(spark, folder).groupBy().sum("v")


def _joined(spark: SparkSession, folder: Path) -> DataFrame:
    from pyspark.sql import functions as f

    paid = payments(spark, folder).withWatermark("pt", "20 seconds")
    near = f.expr("id = order AND pt >= t - INTERVAL 2 MINUTES AND pt <= t + INTERVAL 2 MINUTES")
    return orders(spark, folder).withWatermark("t", "10 seconds").join(paid, near, "leftOuter")


def _numbers(spark: SparkSession, folder: Path) -> DataFrame:
    """A source in Python, which keeps its whole position in the offset log."""
    from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader

    class Reader(SimpleDataSourceStreamReader):
        def initialOffset(self) -> dict[str, int]:
            return {"at": 0}

        def read(self, start: dict[str, int]) -> Any:
            at = start["at"]
            rows = [(n, n % 3) for n in range(at, min(at + 10, 80))]
            return iter(rows), {"at": at + len(rows)}

        def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Any:
            return iter([(n, n % 3) for n in range(start["at"], end["at"])])

    class Numbers(DataSource):
        @classmethod
        def name(cls) -> str:
            return "native_numbers"

        def schema(self) -> str:
            return "n int, k int"

        def simpleStreamReader(self, schema: Any) -> Reader:
            return Reader()

    spark.dataSource.register(Numbers)
    return spark.readStream.format("native_numbers").load().groupBy("k").sum("n")


def _named(spark: SparkSession, folder: Path) -> DataFrame:
    """Two sources that go by names, so that the offset log is of the second version."""
    named: Any = spark.readStream  # the name is new in Spark 4.2

    def read(name: str) -> DataFrame:
        reader = named.name(name).schema("id int, k int, v int, t timestamp")
        read: DataFrame = reader.option("maxFilesPerTrigger", 1).json(str(folder / "orders"))
        return read

    return read("alpha").where("v > 50").union(read("beta").where("v < 20")).select("id", "v")


_NAMED: Final = {"spark.sql.streaming.queryEvolution.enableSourceEvolution": "true"}
_STOCK: Final = {FILE_MANAGER: ""}
"""Files written by way of FileContext, which leaves hidden checksums and costs most of the time."""

_JOIN_4: Final = {"spark.sql.streaming.join.stateFormatVersion": "4"}

KINDS: Final[Mapping[str, Kind]] = {
    "stateless": Kind(lambda spark, folder: doubled(orders(spark, folder))),
    "windowed-hdfs": Kind(lambda spark, folder: windowed(orders(spark, folder))),
    "counted-hdfs": Kind(_counted, mode="update", settings=_STOCK),
    "counted-rocksdb": Kind(_counted, "rocksdb", "update"),
    "windowed-changelog": Kind(
        lambda spark, folder: windowed(orders(spark, folder)),
        "rocksdb-changelog",
        settings=_STOCK,
    ),
    "counted-format2": Kind(_counted, "format2", "update"),
    "windowed-format2-changelog": Kind(
        lambda spark, folder: windowed(orders(spark, folder)), "format2-changelog"
    ),
    "total": Kind(_total, mode="update"),
    "deduplicated": Kind(lambda spark, folder: deduplicated(orders(spark, folder))),
    "joined-hdfs": Kind(_joined),
    "joined-4": Kind(_joined, "rocksdb-changelog", settings=_JOIN_4, since=(4, 2)),
    "named-sources": Kind(_named, settings=_NAMED, since=(4, 2)),
    "transformed": Kind(
        lambda spark, folder: transformed_state(orders(spark, folder)), "rocksdb-changelog"
    ),
    "python-source": Kind(_numbers, mode="update"),
}


_STATE_FORMAT_1: Final = {
    "spark.sql.streaming.aggregation.stateFormatVersion": "1",
    "spark.sql.streaming.flatMapGroupsWithState.stateFormatVersion": "1",
}

AGED_KINDS: Final[Mapping[str, Kind]] = {
    "counted in format 1": Kind(_counted, mode="update", settings=_STATE_FORMAT_1),
    "counted in format 2": Kind(_counted, mode="update"),
    "counted by RocksDB": Kind(_counted, "rocksdb", "update"),
    "windowed by changelogs": Kind(
        lambda spark, folder: windowed(orders(spark, folder)), "rocksdb-changelog"
    ),
    "without a key": Kind(_total, mode="update"),
    "deduplicated": Kind(lambda spark, folder: deduplicated(orders(spark, folder))),
    "joined in format 2": Kind(_joined),
    "sessions": Kind(lambda spark, folder: sessions(orders(spark, folder))),
    "groups in format 1": Kind(
        lambda spark, folder: pandas_state(orders(spark, folder)), settings=_STATE_FORMAT_1
    ),
    "groups in format 2": Kind(lambda spark, folder: pandas_state(orders(spark, folder))),
    "limited": Kind(lambda spark, folder: orders(spark, folder).limit(340)),
}
"""Queries whose directories are made to look like those of an older Spark."""


@contextmanager
def started(
    spark: SparkSession,
    kind: str,
    folder: Path,
    checkpoint: Path | str,
    out: Path,
    *,
    pause: float = 0.0,
    actions: int = 1,
    available_now: bool = True,
    before_commit: Callable[[int], None] = lambda _: None,
) -> Iterator[StreamingQuery]:
    """The query while it runs; what each batch puts out is kept in ``out``.

    With more than one action a batch, Spark writes its state more than once.
    """
    chosen = KINDS[kind] if kind in KINDS else AGED_KINDS[kind]
    out.mkdir(parents=True, exist_ok=True)

    def keep(rows: DataFrame, batch: int) -> None:
        for _ in range(actions):
            found = [row.asDict(recursive=True) for row in rows.collect()]
        text = json.dumps(found, default=str, sort_keys=True)
        hidden = out / f".{batch}.tmp"
        hidden.write_text(text, encoding="utf-8")
        os.replace(hidden, out / f"{batch}.json")  # somebody may be reading them
        time.sleep(pause)
        before_commit(batch)

    quick = {FILE_MANAGER: fast_file_manager(spark)}
    with provider_of(spark, chosen.provider), settings_of(spark, {**quick, **chosen.settings}):
        writer = chosen.declare(spark, folder).writeStream.foreachBatch(keep)
        writer = writer.outputMode(chosen.mode).option("checkpointLocation", str(checkpoint))
        # Python sources know availableNow from Spark 4.2 on; this one stops giving rows instead
        if available_now and kind != "python-source":
            writer = writer.trigger(availableNow=True)
        query = writer.start()
    try:
        yield query
    finally:
        query.stop()


def run(spark: SparkSession, kind: str, folder: Path, checkpoint: Path | str, out: Path) -> Outputs:
    """Run a query until everything is read; what it has put out."""
    with started(spark, kind, folder, checkpoint, out) as query:
        finish(query, kind)
    return outputs(out)


def finish(query: StreamingQuery, kind: str) -> None:
    """Wait until everything is read."""
    if kind == "python-source":
        query.processAllAvailable()
    else:
        assert query.awaitTermination(PATIENCE)
    assert query.exception() is None


def outputs(out: Path) -> Outputs:
    """What every batch has put out."""
    return {
        int(path.stem): Counter(
            json.dumps(row, sort_keys=True) for row in json.loads(path.read_text())
        )
        for path in out.glob("*.json")
    }


def after(found: Outputs, batch: int) -> Outputs:
    """What later batches have put out; those without a row may or may not have been run."""
    return {number: rows for number, rows in found.items() if number > batch and rows}


@contextmanager
def busy_maintenance(spark: SparkSession, retain: int = 2) -> Iterator[None]:
    """Have Spark make snapshots and remove old state every second, and keep hardly any."""
    jvm: Any = spark.sparkContext._jvm
    store = jvm.org.apache.spark.sql.execution.streaming.state.StateStore
    wanted = {
        "spark.sql.streaming.stateStore.maintenanceInterval": "1s",
        "spark.sql.streaming.stateStore.minDeltasForSnapshot": "2",
        "spark.sql.streaming.minBatchesToRetain": str(retain),
        "spark.sql.streaming.fileSource.log.compactInterval": "3",
        "spark.sql.streaming.fileSource.log.cleanupDelay": "0",
    }
    store.stop()  # the thread reads its interval when it starts
    try:
        with settings_of(spark, wanted):
            yield
    finally:
        store.stop()
