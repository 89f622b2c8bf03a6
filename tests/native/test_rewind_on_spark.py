"""What stock Spark makes of a directory that was taken back, or half back."""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from seamark.capture.batches import newest_committed
from seamark.checkpoint_dir.places.directory import Tree
from seamark.checkpoint_dir.places.local import LocalDirectory
from seamark.cli.app import run as seamark
from seamark.native.rewind.barrier import new_barrier
from seamark.native.rewind.rewind import plan_rewind, possible_batches, rewind
from seamark.spark.session import spark_version
from tests.native.support.queries import (
    KINDS,
    PATIENCE,
    Outputs,
    after,
    busy_maintenance,
    outputs,
    run,
    started,
)
from tests.native.support.rewinds import Stopped, Stopping
from tests.pipeline.support.workloads import doubled, orders, settings_of, write_input

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILES = 8
WARM = ("counted-hdfs", "windowed-changelog")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_input(tmp_path_factory.mktemp("input"), FILES)


def forget_compacted(checkpoint: Path) -> None:
    """Remove what Spark removes of the sources' logs once it is compacted and old."""
    for log in (checkpoint / "sources").iterdir():
        newest = max(int(path.stem) for path in log.glob("*.compact"))
        for path in log.iterdir():
            number = int(path.name.strip(".").partition(".")[0])
            if number < newest:
                path.unlink()
        assert (log / f"{newest}.compact").exists()


def rolled_back(checkpoint: Path, back: int) -> int:
    """Take a directory back by some batches; the batch that it ends with."""
    directory = LocalDirectory(checkpoint)
    tree = Tree.of(directory)
    target = newest_committed(tree) - back
    rewind(directory, plan_rewind(tree, target), directory.sibling(".aside"))
    return target


def goes_on_as_before(spark: SparkSession, kind: str, folder: Path, root: Path) -> None:
    if spark_version(spark) < KINDS[kind].since:
        pytest.skip(f"needs Spark {KINDS[kind].since}")
    checkpoint = root / "checkpoint"
    with busy_maintenance(spark, retain=6):  # which goes on for a while after a query's end
        whole = run(spark, kind, folder, checkpoint, root / "out")
    if kind != "python-source":
        forget_compacted(checkpoint)
    target = rolled_back(checkpoint, 4)
    again = run(spark, kind, folder, checkpoint, root / "again")
    assert min(again) == target + 1
    assert after(again, target) == after(whole, target)


@pytest.mark.slow
@pytest.mark.warm
@pytest.mark.parametrize("kind", WARM)
def test_a_query_goes_on_from_an_earlier_batch_with_the_results_that_it_had(
    spark: SparkSession, folder: Path, tmp_path: Path, kind: str
) -> None:
    goes_on_as_before(spark, kind, folder, tmp_path)


@pytest.mark.sampled(1)
@pytest.mark.spark
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in WARM])
def test_a_query_of_any_other_kind_goes_on_from_an_earlier_batch_just_so(
    spark: SparkSession, folder: Path, tmp_path: Path, kind: str
) -> None:
    goes_on_as_before(spark, kind, folder, tmp_path)


# half done


def last_counts(found: Outputs) -> dict[int, int]:
    """The count of each key in the newest batch that has it."""
    rows = (json.loads(row) for batch in sorted(found) for row in found[batch])
    return {row["k"]: row["count"] for row in rows}


class HalfDone:
    """A query that has run, and its directory after some operations of a rollback by four."""

    def __init__(self, spark: SparkSession, folder: Path, root: Path) -> None:
        self._spark, self._folder, self._root = spark, folder, root
        with busy_maintenance(spark, retain=6):
            self.whole = run(spark, "counted-hdfs", folder, root / "checkpoint", root / "out")
        forget_compacted(root / "checkpoint")
        self.target = newest_committed(Tree.of(LocalDirectory(root / "checkpoint"))) - 4
        left = [10_000]
        self.roll_back(self.copy("counted"), left)
        self.operations = 10_000 - left[0]

    def copy(self, name: str) -> Path:
        return shutil.copytree(self._root / "checkpoint", self._root / name / "checkpoint")

    def roll_back(self, checkpoint: Path, left: list[int]) -> None:
        directory = Stopping(LocalDirectory(checkpoint), left)
        plan = plan_rewind(Tree.of(directory), self.target)
        rewind(directory, plan, directory.sibling(f".aside-{left[0]}"))

    def stopped_after(self, operations: int) -> Path:
        checkpoint = self.copy(str(operations))
        with pytest.raises(Stopped):
            self.roll_back(checkpoint, [operations])
        return checkpoint

    def start(self, checkpoint: Path) -> str | None:
        """Start the query; why it failed, or None after it came to the right end."""
        out = checkpoint.parent / "again"
        shutil.rmtree(out, ignore_errors=True)
        try:
            run(self._spark, "counted-hdfs", self._folder, checkpoint, out)
        except Exception as error:  # noqa: BLE001 - whatever Spark fails with
            return str(error)
        # Spark may take several planned files in one batch; files still come whole and in order, so
        # every count is one that the query had after some file, and the last ones are the same
        again = outputs(out)
        known = set().union(*self.whole.values())
        for batch, rows in again.items():
            assert rows.keys() <= known, f"batch {batch} is wrong"
        assert last_counts(again).items() <= last_counts(self.whole).items()
        return None


@pytest.mark.slow
@pytest.mark.warm
def test_a_half_done_rollback_is_refused_by_spark_and_finished_by_a_repetition(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    half = HalfDone(spark, folder, tmp_path)
    last = half.operations - 1
    for operations in (1, last // 2, last):
        checkpoint = half.stopped_after(operations)
        failed = half.start(checkpoint)
        assert failed is not None, f"Spark went on after {operations} operations"
        assert "repeat 'seamark spark rollback'" in failed
    half.roll_back(checkpoint, [10_000])
    assert half.start(checkpoint) is None
    again = outputs(checkpoint.parent / "again")
    assert after(again, half.target) == after(half.whole, half.target)


@pytest.mark.warm
def test_a_query_that_runs_unseen_stops_at_the_barrier_before_its_next_batch(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    directory = LocalDirectory(tmp_path / "checkpoint")
    out = tmp_path / "out"
    with started(spark, "counted-hdfs", folder, directory.url, out, pause=1.5) as query:
        while 0 not in outputs(out):
            time.sleep(0.02)
        barrier = new_barrier(Tree.of(directory), 0, None)  # while the first batch goes on
        directory.write(barrier.path, barrier.text)
        with pytest.raises(Exception, match=r"(?i)concurrent"):
            query.awaitTermination(PATIENCE)
    assert outputs(out).keys() == {0}
    assert directory.read(barrier.path) == barrier.text


@pytest.mark.spark
@pytest.mark.timeout(1200)
def test_also_without_the_barrier_a_half_done_rollback_never_gives_wrong_results(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    half = HalfDone(spark, folder, tmp_path)
    ends = []
    for operations in range(2, half.operations, 6):
        checkpoint = half.stopped_after(operations)
        newest = Tree.of(LocalDirectory(checkpoint)).batches("offsets")[-1]
        LocalDirectory(checkpoint).remove([f"offsets/{newest}"])
        ends.append(half.start(checkpoint))
    assert any(end is not None for end in ends)


# what people need it for


@pytest.mark.slow
@pytest.mark.warm
def test_a_directory_bricked_by_a_batch_that_was_not_consumed_is_cured(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    counts: dict[int, Counter[str]] = {}

    def tried(forget: int | None) -> str | None:
        def take(rows: DataFrame, batch: int) -> None:
            if batch != forget:
                counts[batch] = Counter(
                    json.dumps(r.asDict(), sort_keys=True) for r in rows.collect()
                )

        counted = orders(spark, folder).groupBy("k").count().writeStream.foreachBatch(take)
        writer: Any = counted.outputMode("update").option("checkpointLocation", str(checkpoint))
        query = writer.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(PATIENCE)
        except Exception as error:  # noqa: BLE001 - whatever Spark fails with
            return str(error)
        return None

    assert tried(forget=None) is None
    whole = dict(counts)
    shutil.rmtree(checkpoint)
    assert tried(forget=4) is not None
    assert tried(forget=None) is not None, "Spark has cured it by itself"
    counts.clear()
    assert possible_batches(Tree.of(LocalDirectory(checkpoint))).batches[-1] == 3
    args = ("spark", "rollback", str(checkpoint), "--to-batch", "3", "--query-id", "keep", "--yes")
    assert seamark(args) == 0
    assert tried(forget=None) is None
    assert counts == {batch: rows for batch, rows in whole.items() if batch > 3}


@pytest.mark.slow
@pytest.mark.warm
def test_a_file_sink_whose_log_went_back_too_has_every_row_once(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    out, checkpoint = str(tmp_path / "out"), str(tmp_path / "checkpoint")

    def written() -> Counter[str]:
        writer = doubled(orders(spark, folder)).writeStream.format("parquet")
        query = (
            writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start(out)
        )
        assert query.awaitTermination(PATIENCE)
        return shown()

    def shown() -> Counter[str]:
        rows = spark.read.parquet(out).collect()
        return Counter(json.dumps(row.asDict(), sort_keys=True) for row in rows)

    with settings_of(spark, {"spark.sql.streaming.fileSink.log.compactInterval": "3"}):
        whole = written()
        args = ("spark", "rollback", checkpoint, "--to-batch", "5", "--file-sink", out, "--yes")
        assert seamark(args) == 0
        assert 0 < len(shown()) < len(whole)
        assert written() == whole
