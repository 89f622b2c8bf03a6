"""Pipelines of every kind on the same small input, and what their sinks show in the end.

The input is cut into epochs of one file each, with late rows and repeated ones, so that a wrong
watermark, a lost state or an epoch that ran twice changes what the sinks show.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from seamark import Pipeline
from seamark.capture.checkpoint_contents import Sizes
from seamark.sinks import FileSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from seamark.pipeline.run import Run

EPOCHS: Final = 5
"""Files with rows; one more moves the watermark far ahead, and Spark adds a batch without rows."""
ROWS: Final = 60

Shown = dict[str, Counter[str]]
"""By sink: every visible row, and how often it is there."""

_STATE: Final = "spark.sql.streaming.stateStore"
_ROCKSDB: Final = {
    f"{_STATE}.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    )
}
_CHANGELOG: Final = {f"{_STATE}.rocksdb.changelogCheckpointing.enabled": "true"}
_FORMAT_2: Final = {f"{_STATE}.checkpointFormatVersion": "2"}

PROVIDERS: Final[Mapping[str, Mapping[str, str]]] = {
    "hdfs": {},
    "rocksdb": _ROCKSDB,
    "rocksdb-changelog": _ROCKSDB | _CHANGELOG,
    "format2": _ROCKSDB | _FORMAT_2,
    "format2-changelog": _ROCKSDB | _CHANGELOG | _FORMAT_2,
}

# state in both places where it can be: in the manifest and in shared objects
_SIZES: Final[Mapping[str, Sizes]] = {
    "hdfs": Sizes(),
    "rocksdb": Sizes(inline_operator=0),
    "rocksdb-changelog": Sizes(inline_operator=0),
    "format2": Sizes(inline_operator=0),
    "format2-changelog": Sizes(),
}


@contextmanager
def settings_of(spark: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    """Other settings for a while; an empty one is Spark's own."""
    before = {name: spark.conf.get(name, None) for name in wanted}
    for name, value in wanted.items():
        if value:
            spark.conf.set(name, value)
        else:
            spark.conf.unset(name)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


@contextmanager
def provider_of(spark: SparkSession, provider: str) -> Iterator[None]:
    """Have queries that start meanwhile keep their state by this provider."""
    with settings_of(spark, PROVIDERS[provider]):
        yield


# input


def write_input(folder: Path, epochs: int = EPOCHS) -> Path:
    """Files ``orders`` and ``payments``, one an epoch, each newer than the one before."""
    for epoch in range(epochs):
        put_file(folder / "orders", epoch, _orders(epoch))
        put_file(folder / "payments", epoch, _payments(epoch))
    far = epochs * 60 + 6000
    put_file(folder / "orders", epochs, [_order(epochs * ROWS, at=far)])
    put_file(folder / "payments", epochs, [{"order": -1, "paid": 0, "pt": clock(far + 600)}])
    return folder


def put_file(folder: Path, number: int, rows: list[dict[str, Any]]) -> Path:
    """One file of a source; its number decides when it is read."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{number:03}.json"
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
    return path


def _orders(epoch: int) -> list[dict[str, Any]]:
    new = [_order(epoch * ROWS + n, at=epoch * 60 + n) for n in range(ROWS)]
    again = [_order((epoch - 1) * ROWS + n, at=(epoch - 1) * 60 + n) for n in range(0, ROWS, 4)]
    return new + (again if epoch else [])


def _order(number: int, at: int) -> dict[str, Any]:
    late = 5 if number % 7 == 0 else 0
    return {"id": number, "k": number % 5, "v": number * 7 % 101, "t": clock(at - late + 600)}


def _payments(epoch: int) -> list[dict[str, Any]]:
    """Half of the orders are paid at once, a quarter an epoch later, a quarter never."""
    paid = [epoch * ROWS + n for n in range(0, ROWS, 2)]
    paid += [(epoch - 1) * ROWS + n for n in range(1, ROWS, 4) if epoch]
    return [
        {"order": number, "paid": number % 13, "pt": clock(epoch * 60 + n + 600)}
        for n, number in enumerate(paid)
    ]


def clock(second: int) -> str:
    """A point of one day, in seconds."""
    return f"2026-01-01T{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}Z"


def orders(spark: SparkSession, folder: Path) -> DataFrame:
    """The stream of orders, a file an epoch."""
    return read_json(spark, folder / "orders", "id int, k int, v int, t timestamp")


def payments(spark: SparkSession, folder: Path) -> DataFrame:
    """The stream of payments, a file an epoch."""
    return read_json(spark, folder / "payments", "order int, paid int, pt timestamp")


def read_json(spark: SparkSession, folder: Path, schema: str) -> DataFrame:
    """A folder of files as a stream, a file an epoch."""
    reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    return reader.json(str(folder))


# kinds

Declare = Callable[[Pipeline, "SparkSession", Path, Path], None]


def _two_sinks(stateful: Callable[[DataFrame], DataFrame]) -> Declare:
    def declare(p: Pipeline, spark: SparkSession, folder: Path, root: Path) -> None:
        source = p.source("orders", orders(spark, folder))
        p.sink("main", stateful(source), FileSink(root / "main"))
        p.sink("large", source.where("v > 50"), FileSink(root / "large"))

    return declare


def _one_sink(stateful: Callable[[DataFrame], DataFrame]) -> Declare:
    def declare(p: Pipeline, spark: SparkSession, folder: Path, root: Path) -> None:
        source = p.source("orders", orders(spark, folder))
        p.sink("main", stateful(source), FileSink(root / "main"))

    return declare


def doubled(source: DataFrame) -> DataFrame:
    return source.selectExpr("id", "k", "v * 2 AS twice")


def windowed(source: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    grouped = source.withWatermark("t", "10 seconds").groupBy(f.window("t", "20 seconds"), "k")
    return grouped.agg(f.count("*").alias("n"), f.sum("v").alias("sum"))


def deduplicated(source: DataFrame) -> DataFrame:
    return source.withWatermark("t", "3 minutes").dropDuplicatesWithinWatermark(["id"])


def sessions(source: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    gaps = source.where("id % 60 < 40").withWatermark("t", "10 seconds")
    grouped = gaps.groupBy(f.session_window("t", "6 seconds"), "k")
    return grouped.agg(f.count("*").alias("n"), f.sum("v").alias("sum"))


def _joined(how: str) -> Declare:
    def declare(p: Pipeline, spark: SparkSession, folder: Path, root: Path) -> None:
        from pyspark.sql import functions as f

        ordered = p.source("orders", orders(spark, folder))
        paid = p.source("payments", payments(spark, folder)).withWatermark("pt", "20 seconds")
        near = f.expr(
            "id = order AND pt >= t - INTERVAL 2 MINUTES AND pt <= t + INTERVAL 2 MINUTES"
        )
        both = ordered.withWatermark("t", "10 seconds").join(paid, near, how)
        p.sink("main", both, FileSink(root / "main"))
        p.sink("large", ordered.where("v > 50"), FileSink(root / "large"))

    return declare


def pandas_state(source: DataFrame) -> DataFrame:
    from pyspark.sql.streaming.state import GroupStateTimeout

    def count(key: Any, frames: Any, state: Any) -> Any:
        import pandas as pd

        rows, total = state.get if state.exists else (0, 0)
        for frame in frames:
            rows, total = rows + len(frame), total + int(frame["v"].sum())
        state.update((rows, total))
        yield pd.DataFrame({"k": [key[0]], "rows": [rows], "total": [total]})

    columns = "k int, rows long, total long"
    timeout = GroupStateTimeout.NoTimeout
    return source.groupBy("k").applyInPandasWithState(
        count, columns, "rows long, total long", "append", timeout
    )


def transformed_state(source: DataFrame) -> DataFrame:
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    class Totals(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self._total = handle.getValueState("total", "rows long, total long")
            self._seen = handle.getMapState("seen", "id int", "times int")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
            import pandas as pd

            count, total = self._total.get() if self._total.exists() else (0, 0)
            again = 0
            for frame in rows:
                count, total = count + len(frame), total + int(frame["v"].sum())
                for number in frame["id"]:
                    seen = (int(number),)
                    times = self._seen.getValue(seen)[0] if self._seen.containsKey(seen) else 0
                    self._seen.updateValue(seen, (times + 1,))
                    again += times
            self._total.update((count, total))
            yield pd.DataFrame({"k": [key[0]], "rows": [count], "total": [total], "again": [again]})

        def close(self) -> None:
            pass

    columns = "k int, rows long, total long, again long"
    few = source.where("id % 3 = 0").groupBy("k")
    return few.transformWithStateInPandas(Totals(), columns, "append", "None")


KINDS: Final[Mapping[str, Declare]] = {
    "stateless": _two_sinks(doubled),
    "stateless-one-sink": _one_sink(doubled),
    "windowed": _two_sinks(windowed),
    "windowed-one-sink": _one_sink(windowed),
    "inner-join": _joined("inner"),
    "outer-join": _joined("leftOuter"),
    "deduplicated": _two_sinks(deduplicated),
    "sessions": _two_sinks(sessions),
    "pandas-state": _two_sinks(pandas_state),
    "transformed-state": _two_sinks(transformed_state),
}


def providers_for(kind: str) -> tuple[str, ...]:
    """Where a kind can keep its state; one is as good as another for a kind that keeps none."""
    if kind.startswith("stateless"):
        return ("hdfs",)
    if kind == "transformed-state":
        return tuple(name for name in PROVIDERS if name != "hdfs")
    return tuple(PROVIDERS)


# running


def pipeline(
    spark: SparkSession, kind: str, provider: str, folder: Path, root: Path, **options: Any
) -> Pipeline:
    """A pipeline whose store and sinks are below ``root``."""
    defaults = {"full_every": 3, "keep": 2, "sizes": _SIZES[provider]}
    p = Pipeline(kind, root / "store", **{**defaults, **options})
    KINDS[kind](p, spark, folder, root)
    return p


def run(
    spark: SparkSession, kind: str, provider: str, folder: Path, root: Path, **options: Any
) -> Run:
    """Run such a pipeline until everything is read."""
    with provider_of(spark, provider):
        return pipeline(spark, kind, provider, folder, root, **options).run()


def shown(root: Path) -> Shown:
    """What a reader sees in every sink below ``root``, without Spark and without the epochs."""
    return {sink: rows_in(root / sink) for sink in ("main", "large") if (root / sink).exists()}


def rows_in(folder: Path) -> Counter[str]:
    """Every visible row of a file sink."""
    rows = values_in(folder)
    for row in rows:
        del row["epoch"]
    return Counter(json.dumps(row, default=str, sort_keys=True) for row in rows)


def values_in(folder: Path) -> list[dict[str, Any]]:
    """Every visible row of a file sink, with the epoch that it came in."""
    from pyarrow import dataset

    if not any(folder.glob("epoch=*/part-*")):
        return []
    table = dataset.dataset(folder, format="parquet", partitioning="hive").to_table()
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


class Uninterrupted:
    """What each kind shows when nothing happens to it; run once, then remembered.

    Where the state is kept must make no difference, so one provider stands for all.
    """

    def __init__(self, spark: SparkSession, folder: Path, base: Path) -> None:
        self.folder = folder
        self._spark = spark
        self._base = base
        self._found: dict[str, Shown] = {}

    def __call__(self, kind: str) -> Shown:
        if kind not in self._found:
            root = self._base / kind
            run(self._spark, kind, providers_for(kind)[0], self.folder, root)
            self._found[kind] = shown(root)
            assert all(self._found[kind].values()), "a sink without rows proves nothing"
        return self._found[kind]
