"""Queries with a file sink: after a change of partitions, and in a new folder after a rollback."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from seamark.checkpoint_dir.file_logs.sink_log import with_empty_batch
from seamark.checkpoint_dir.places.directory import Tree
from seamark.checkpoint_dir.places.local import LocalDirectory
from seamark.cli.app import run as seamark
from seamark.native.repartition import _begin, plan_repartition, repartition
from seamark.native.repartition_rules import OLDEST
from seamark.native.rewind.rewind import sink_plan
from seamark.spark.session import spark_version
from tests.native.support.queries import PATIENCE
from tests.native.support.rewinds import Stopped, Stopping
from tests.pipeline.support.workloads import (
    orders,
    provider_of,
    put_file,
    settings_of,
)
from tests.support.slow_cases import slow_except

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

INTERVAL = "spark.sql.streaming.fileSink.log.compactInterval"
EVERY = 3
MORE = 2 * EVERY
"""Batches after which at least one more compaction has been written, and read by the next."""

Rows = Counter[str]


class Job:
    """A query that reads a file a batch, drops rows that it has seen, and writes to a folder."""

    def __init__(self, spark: SparkSession, root: Path, provider: str = "hdfs") -> None:
        self.spark = spark
        self.root = root
        self.provider = provider
        self.checkpoint = root / "checkpoint"
        self.out = root / "out"
        self.files = 0

    @property
    def log(self) -> Path:
        return self.out / "_spark_metadata"

    def deliver(self, count: int) -> None:
        """More files; each repeats a row of the one before."""
        for number in range(self.files, self.files + count):
            ids = [max(2 * number - 1, 0), 2 * number, 2 * number + 1]
            rows = [{"id": n, "k": n % 3, "v": n} for n in ids]
            put_file(self.root / "input" / "orders", number, rows)
        self.files += count

    def start(self) -> StreamingQuery:
        rows = orders(self.spark, self.root / "input").dropDuplicates(["id"])
        with provider_of(self.spark, self.provider):
            writer = rows.writeStream.format("parquet").trigger(availableNow=True)
            return writer.option("checkpointLocation", str(self.checkpoint)).start(str(self.out))

    def run(self, count: int = 0) -> Rows:
        """Read some more files, and all that is there, a batch each; what the folder shows."""
        self.deliver(count)
        query = self.start()
        assert query.awaitTermination(PATIENCE)
        return self.shown()

    def shown(self) -> Rows:
        found = self.spark.read.parquet(str(self.out)).select("id").collect()
        return Counter(str(row.id) for row in found)

    def entries(self) -> dict[str, bytes]:
        return {each.name: each.read_bytes() for each in self.log.glob("[0-9]*")}

    def rows_until(self, batch: int) -> Rows:
        return Counter(str(n) for n in range(2 * (batch + 1)))

    @property
    def expected(self) -> Rows:
        return self.rows_until(self.files - 1)

    def repartition(self, *more: str) -> list[str]:
        return [
            *("spark", "repartition", str(self.checkpoint), "3", "--file-sink", str(self.out)),
            *("--compact-interval", str(EVERY), "--yes", *more),
        ]


@pytest.fixture(autouse=True)
def compacted_often(spark: SparkSession) -> object:
    with settings_of(spark, {INTERVAL: str(EVERY), "spark.sql.shuffle.partitions": "2"}):
        yield


CASES = ["hdfs 4", "rocksdb 5", "hdfs 2", "hdfs 5", "rocksdb 4", "format2 2"]
"""Where the state is, and the number of the new batch: at 2 and at 5 the log is compacted."""


def begun(spark: SparkSession, root: Path, case: str) -> tuple[Job, int]:
    """A query that has run all batches before the new one."""
    if spark_version(spark) < OLDEST:
        pytest.skip("this Spark has no offline runner")
    provider, number = case.split()
    job = Job(spark, root, provider)
    assert job.run(int(number)) == job.expected
    return job, int(number)


@pytest.mark.warm
@pytest.mark.parametrize("case", slow_except(CASES, "hdfs 4", "rocksdb 5"))
def test_a_query_with_a_file_sink_goes_on_after_other_partitions_through_compactions(
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    case: str,
) -> None:
    job, batch = begun(spark, tmp_path, case)
    old = job.entries()
    assert seamark(job.repartition("--json")) == 0
    told = json.loads(capsys.readouterr().out)
    entry = f"{batch}.compact" if (batch + 1) % EVERY == 0 else str(batch)
    assert told["sink_entry"] == entry
    assert job.entries().keys() - old.keys() == {entry}
    assert job.shown() == job.expected
    assert job.run(MORE) == job.expected
    assert seamark(job.repartition()) == 6  # there are as many already


@pytest.mark.warm
@pytest.mark.parametrize("case", slow_except(CASES, "hdfs 5", "rocksdb 4"))
def test_the_printed_way_back_takes_the_entry_of_the_new_batch_out_again(
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    case: str,
) -> None:
    job, _ = begun(spark, tmp_path, case)
    old = job.entries()
    assert seamark(job.repartition("--json")) == 0
    undo = json.loads(capsys.readouterr().out)["undo"]
    assert f"--file-sink {job.out}" in undo
    assert seamark(shlex.split(undo.replace("NEW_PATH", str(tmp_path / "back")))[1:]) == 0
    assert "moved away" in capsys.readouterr().out
    assert job.entries() == old
    job.checkpoint = tmp_path / "back"
    assert job.run(MORE) == job.expected


@pytest.mark.warm
@pytest.mark.parametrize("case", slow_except(CASES, "hdfs 5", "rocksdb 4"))
@pytest.mark.parametrize("has_entry", [False, True])
def test_a_change_that_was_killed_before_or_after_the_entry_is_finished_by_the_same_command(
    spark: SparkSession, tmp_path: Path, case: str, has_entry: bool
) -> None:
    job, batch = begun(spark, tmp_path, case)
    left = [2 if has_entry else 1]
    directory = Stopping(LocalDirectory(job.checkpoint), left)
    log = Tree.of(Stopping(LocalDirectory(job.log), left))
    sink = sink_plan(
        log, with_empty_batch(log.names(""), lambda name: log.read(name).decode(), batch, EVERY)
    )
    plan = plan_repartition(Tree.of(directory), 3)
    if has_entry and plan.is_rocksdb:
        _begin(directory, plan, sink)  # the rest is written by the runner of Spark
    else:
        with pytest.raises(Stopped):
            repartition(spark, directory, plan, "", sink)
    names = {f"{batch}", f"{batch}.compact"}
    assert names.isdisjoint(job.entries()) is not has_entry
    assert not (job.checkpoint / "commits" / str(batch)).exists()
    assert job.shown() == job.expected
    query = job.start()
    with pytest.raises(Exception, match="STREAMING_UNFINISHED_REPARTITION_DETECTED"):
        query.awaitTermination(PATIENCE)
    assert seamark(job.repartition()) == 0
    assert job.run(MORE) == job.expected


@pytest.mark.warm
@pytest.mark.parametrize("to_batch", slow_except([0, 3, 4, 5, 9], "4"))
@pytest.mark.parametrize("interval", slow_except(["2", "3", ""], "3"))
def test_after_a_rollback_a_query_goes_on_in_a_new_folder_through_compactions(
    spark: SparkSession, tmp_path: Path, to_batch: int, interval: str
) -> None:
    job = Job(spark, tmp_path)
    job.run(to_batch + 3)
    before, new = job.rows_until(to_batch), tmp_path / "new"
    args = ("spark", "rollback", str(job.checkpoint), "--to-batch", str(to_batch), "--yes")
    assert seamark((*args, "--new-file-sink", str(new))) == 0
    job.out = new
    with settings_of(spark, {INTERVAL: interval}):
        assert job.run(12) == job.expected - before
    compactions = [int(each.stem) for each in job.log.glob("*.compact")]
    assert max(compactions) > to_batch
