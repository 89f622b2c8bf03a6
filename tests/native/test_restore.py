"""A snapshot of a running query, restored elsewhere, goes on as if nothing had happened."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from seamark import open_store
from seamark.checkpoint_dir.places.local import LocalDirectory
from seamark.native.inspect.inspection import inspect
from seamark.native.restore import restore_directory
from seamark.native.snapshot import Snapshot, take_snapshot
from seamark.spark.session import spark_version
from tests.native.support.queries import (
    KINDS,
    PATIENCE,
    after,
    busy_maintenance,
    finish,
    outputs,
    run,
    started,
)
from tests.pipeline.support.workloads import clock, put_file, settings_of, write_input

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES = 8
OFTEN = {
    "stateless",
    "counted-rocksdb",
    "windowed-format2-changelog",
    "joined-hdfs",
    "python-source",
}
"""Kinds that differ most; the others take their turn in 'make test-spark'."""
DELTAS = "spark.sql.streaming.stateStore.minDeltasForSnapshot"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_input(tmp_path_factory.mktemp("input"), FILES)


def snapshots_while_running(
    spark: SparkSession, kind: str, folder: Path, root: Path
) -> list[Snapshot]:
    """Run a query to its end and take what can be taken of it meanwhile."""
    taken: dict[int, Snapshot] = {}
    directory = LocalDirectory(root / "checkpoint")
    news = threading.Condition()
    over = False

    def wait_to_be_seen(batch: int) -> None:
        """Two batches may be ahead of the last snapshot, however slow the machine is."""
        with news:
            news.wait_for(
                lambda: over or max((one.batch for one in taken.values()), default=-1) >= batch - 3,
                PATIENCE,
            )

    with started(
        spark,
        kind,
        folder,
        directory.url,
        root / "out",
        pause=0.05,
        before_commit=wait_to_be_seen,
    ) as query:
        try:
            while query.isActive and (
                kind != "python-source" or len(outputs(root / "out")) < FILES
            ):
                time.sleep(0.02)
                if not any((root / "checkpoint" / "commits").glob("[0-9]*")):
                    continue  # the first one is removed soon
                with open_store(root / "store") as store:
                    snapshot = take_snapshot(directory, store)
                with news:
                    is_new = taken.setdefault(snapshot.checkpoint_id, snapshot) is snapshot
                    news.notify_all()
                if is_new:
                    assert inspect(directory).findings == [], "a running query is healthy"
        finally:
            with news:
                over = True
                news.notify_all()
        finish(query, kind)
    return list(taken.values())


@pytest.mark.slow
@pytest.mark.warm
def test_of_state_that_was_written_twice_the_files_that_count_are_taken(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    kind = "windowed-format2-changelog"
    directory = LocalDirectory(tmp_path / "checkpoint")
    with busy_maintenance(spark), settings_of(spark, {DELTAS: "100"}):
        with started(spark, kind, folder, directory.url, tmp_path / "out", actions=2) as query:
            finish(query, kind)
        # commits of most batches are purged; only the changelogs know which files count
        assert len(directory.copy.batches("commits")) < 5
        assert inspect(directory, read_data=True).findings == []
        with open_store(tmp_path / "store") as store:
            taken = take_snapshot(directory, store)
            new = LocalDirectory(tmp_path / "new")
            restore_directory(store, taken.checkpoint_id, new)
        put_file(folder / "orders", FILES + 1, [{"id": 1, "k": 1, "v": 1, "t": clock(30000)}])
        try:
            again = run(spark, kind, folder, new.url, tmp_path / "again")
            same = run(spark, kind, folder, directory.url, tmp_path / "same")
        finally:
            (folder / "orders" / f"{FILES + 1:03}.json").unlink()
    assert again == same
    assert any(again.values())


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(
            kind,
            marks=[pytest.mark.warm, *([] if kind == "counted-rocksdb" else [pytest.mark.slow])]
            if kind in OFTEN
            else [pytest.mark.spark],
        )
        for kind in KINDS
    ],
)
def test_a_restored_snapshot_of_a_running_query_goes_on_with_the_same_results(
    spark: SparkSession, folder: Path, tmp_path: Path, kind: str
) -> None:
    if spark_version(spark) < KINDS[kind].since:
        pytest.skip(f"needs Spark {KINDS[kind].since}")
    with busy_maintenance(spark):
        taken = snapshots_while_running(spark, kind, folder, tmp_path)
        whole = outputs(tmp_path / "out")
        last = max(whole)
        assert len(taken) >= 3, "a running query was hardly seen"
        assert any(not snapshot.is_full for snapshot in taken)
        chosen = [one for one in taken if one.batch <= last - 3][-1]
        assert inspect(LocalDirectory(tmp_path / "checkpoint"), read_data=True).findings == []
        # nothing can be read from the original by mistake; Spark may still write to it
        (tmp_path / "checkpoint").rename(tmp_path / "gone")
        new = LocalDirectory(tmp_path / "elsewhere" / "checkpoint")
        with open_store(tmp_path / "store") as store:
            assert all(store.validate_checkpoint(one.checkpoint_id).valid for one in taken)
            restore_directory(store, chosen.checkpoint_id, new)
        assert inspect(new, read_data=True).findings == []
        again = run(spark, kind, folder, new.url, tmp_path / "again")
    assert min(again) == chosen.batch + 1
    assert after(again, chosen.batch) == after(whole, chosen.batch)
    assert inspect(new, read_data=True).findings == []
