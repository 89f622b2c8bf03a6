"""A plain reader that looks again and again never sees a part of an epoch."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pyarrow.dataset as ds
import pytest

from seamark.testing.conformance.sink_examples import epoch
from tests.sinks.support.frames import frame
from tests.sinks.support.hand_written import HandWrittenParquet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Reader = Callable[[str], dict[int, int]]
ROWS = 6


def with_pyarrow(path: str) -> dict[int, int]:
    table = ds.dataset(path, format="parquet", partitioning="hive").to_table(columns=["epoch", "n"])
    return Counter(table["epoch"].to_pylist())


def with_pandas(path: str) -> dict[int, int]:
    return Counter(int(number) for number in pd.read_parquet(path)["epoch"])


class Polling(threading.Thread):
    """Reads until it is told to stop; what it saw, or why it could not."""

    def __init__(self, path: str, reader: Reader) -> None:
        super().__init__(daemon=True)
        self.seen: list[dict[int, int]] = []
        self.error: Exception | None = None
        self._path = path
        self._reader = reader
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.is_set():
            try:
                self.seen.append(self._reader(self._path))
            except FileNotFoundError as error:
                # Arrow lists hidden folders too, and one of them may leave while it looks
                if "/_seamark/" not in str(error):
                    self.error = error
                    return
            except Exception as error:  # noqa: BLE001 - told by the test
                self.error = error
                return

    def stop(self) -> list[dict[int, int]]:
        self._over.set()
        self.join(280)
        assert self.error is None, self.error
        return self.seen


def publish(path: Path, number: int) -> None:
    sink = HandWrittenParquet(path)
    sink.stage(frame(range(number * ROWS, (number + 1) * ROWS)), epoch(number), f"a{number}")
    sink.commit(sink.prepare())


def check(seen: list[dict[int, int]], newest: int) -> None:
    for counts in seen:
        assert set(counts.values()) == {ROWS}, counts
        assert sorted(counts) == [*range(1, max(counts) + 1)], "and none before the one before"
    assert len({max(counts) for counts in seen}) > 3, "the reader was there while it happened"
    assert max(seen[-1]) <= newest


def test_I2_pyarrow_and_pandas_see_whole_epochs_while_100_are_published(tmp_path: Path) -> None:
    publish(tmp_path, 1)
    readers = [Polling(str(tmp_path), reader) for reader in (with_pyarrow, with_pandas)]
    for reader in readers:
        reader.start()
    for number in range(2, 101):
        publish(tmp_path, number)
    for reader in readers:
        check(reader.stop(), 100)
    assert (
        with_pyarrow(str(tmp_path))
        == with_pandas(str(tmp_path))
        == dict.fromkeys(range(1, 101), ROWS)
    )


@pytest.mark.slow
@pytest.mark.warm
def test_I2_spark_sees_whole_epochs_while_they_are_published(
    spark: SparkSession, tmp_path: Path
) -> None:
    def with_spark(path: str) -> dict[int, int]:
        counted = spark.read.parquet(path).groupBy("epoch").count().collect()
        return {row["epoch"]: row["count"] for row in counted}

    publish(tmp_path, 1)
    reader = Polling(str(tmp_path), with_spark)
    reader.start()
    number = 1
    while reader.is_alive() and len(reader.seen) < 6:
        number += 1
        publish(tmp_path, number)
        time.sleep(0.1)  # each of Spark's looks takes long, and longer with every epoch
    check(reader.stop(), number)
