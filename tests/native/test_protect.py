"""A query is protected as it is: never disturbed, never stored with a hole, restored as it was."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import seamark
from seamark import Protection
from seamark.checkpoint_dir.places.directory import Directory
from seamark.checkpoint_dir.places.hadoop import HadoopDirectory
from seamark.checkpoint_dir.places.local import LocalDirectory
from seamark.errors import InvalidInputError
from seamark.native import watcher as watching
from seamark.native.restore import restore_directory
from seamark.native.watch_status import WatchStatus
from tests.native.support.growing import GrowingDirectory, batches_restored_from
from tests.native.support.queries import after, busy_maintenance, finish, outputs, run, started
from tests.pipeline.support.workloads import put_file, write_input

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE = 280.0


def until(protection: Protection, holds: Callable[[WatchStatus], bool]) -> WatchStatus:
    deadline = time.monotonic() + PATIENCE
    while not holds(status := protection.status()):
        assert time.monotonic() < deadline, str(status)
        time.sleep(0.01)
    return status


def test_a_location_is_protected_until_the_end_of_the_block(tmp_path: Path) -> None:
    growing = GrowingDirectory(tmp_path / "directory").run_batches(2)
    with seamark.protect(growing.root, tmp_path / "store", every=1000) as protection:
        status = until(protection, lambda status: status.last is not None)
        assert status.running
        assert protection.checkpoint_location == str(growing.root)
        assert "batch 1 committed · nothing to do · checkpoint 1 holds batch 1" in repr(protection)
        growing.run_batch()
    status = protection.status()
    assert not status.running
    assert (status.newest_batch, status.checkpoints, status.failures) == (2, 2, 0)
    assert batches_restored_from(tmp_path / "store", tmp_path) == [1, 2]


def test_a_location_can_be_let_go_without_a_last_checkpoint(tmp_path: Path) -> None:
    growing = GrowingDirectory(tmp_path / "directory").run_batches(1)
    protection = seamark.protect(str(growing.root), str(tmp_path / "store"), every=1000)
    until(protection, lambda status: status.last is not None)
    growing.run_batch()
    assert not protection.wait(0)
    assert not protection.stop(last=False).running
    assert protection.wait(0)
    assert batches_restored_from(tmp_path / "store", tmp_path) == [0]


class OfConnect:
    """All that is known about a query of Spark Connect."""

    id = runId = "2b8c1d5e"


@pytest.mark.parametrize(
    ("given", "words"), [(OfConnect(), "Spark Connect"), (5, "a int cannot"), (None, "NoneType")]
)
def test_what_has_no_location_is_refused_with_what_to_give_instead(
    given: Any, words: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidInputError, match=words) as caught:
        seamark.protect(given, tmp_path / "store")
    assert "checkpointLocation" in str(caught.value)


@pytest.mark.parametrize(
    "wrong", [{"every": 0}, {"keep": 0}, {"store": "nosuch://bucket"}, {"store": "file://host/x"}]
)
def test_arguments_that_can_never_work_are_refused_at_once(
    wrong: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(InvalidInputError):
        seamark.protect(tmp_path / "directory", **{"store": tmp_path / "store", **wrong})


@pytest.mark.slow
@pytest.mark.warm
def test_a_protected_query_restored_gives_the_results_that_it_would_have_had(
    spark: SparkSession, tmp_path: Path
) -> None:
    kind = "windowed-hdfs"
    folder = write_input(tmp_path / "input", 4)
    with busy_maintenance(spark):
        checkpoint, out = tmp_path / "checkpoint", tmp_path / "out"
        with started(spark, kind, folder, checkpoint, out, pause=0.2) as query:
            protection = seamark.protect(query, tmp_path / "store", every=1, keep=None)
            finish(query, kind)
        assert protection.wait(PATIENCE), "it does not end with its query"
        status = protection.status()
        assert protection.checkpoint_location.endswith(str(checkpoint))
        whole = outputs(out)
        assert (status.running, status.newest_batch) == (False, max(whole))
        assert status.last is not None
        assert status.last.batch == max(whole)
        assert status.checkpoints >= 2, str(status)
        checkpoint.rename(tmp_path / "gone")
        with seamark.open_store(tmp_path / "store") as store:
            stored = {i: restore_directory(store, i, LocalDirectory(tmp_path / f"restored-{i}"))
                      for i in store.list_ids()}  # fmt: skip
        assert len(stored) == status.checkpoints
        early = min(stored)
        assert after(whole, stored[early].batch)
        again = run(spark, kind, folder, tmp_path / f"restored-{early}", tmp_path / "again")
        assert after(again, -1) == after(whole, stored[early].batch)


@pytest.mark.warm
@pytest.mark.slow
def test_a_query_does_not_notice_that_its_protection_fails(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = write_input(tmp_path / "input", 3)
    taken = tmp_path / "file"
    taken.write_text("no directory")
    with started(
        spark, "stateless", folder, tmp_path / "checkpoint", tmp_path / "out", available_now=False
    ) as query:
        protection = seamark.protect(query, taken / "store")
        status = until(protection, lambda status: status.failures >= 2)
        query.processAllAvailable()
        assert query.isActive
        assert query.exception() is None
        assert status.last is None
        assert status.last_failure is not None
        assert str(taken) in status.last_failure.what
        assert len(outputs(tmp_path / "out")) == 4
    assert protection.wait(PATIENCE)
    status = protection.status()
    assert (status.checkpoints, status.newest_batch, status.lag_batches) == (0, 3, 4)
    assert len([each for each in caplog.records if each.levelname == "WARNING"]) == 1


@pytest.mark.slow
@pytest.mark.warm
def test_the_progress_of_a_query_wakes_its_protection_and_ends_it(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(watching, "_POLL", 3600.0)  # nothing is seen by looking
    (tmp_path / "orders").mkdir()
    rows = spark.readStream.schema("id long").json(str(tmp_path / "orders"))
    query = rows.writeStream.format("noop").start()
    java: Any = query._jsq
    listeners = java.sparkSession().streams().listListeners
    before = len(listeners())
    try:
        protection = seamark.protect(query, tmp_path / "store")
        # Spark calls listeners also while a program ends, and logs that it could not
        assert len(listeners()) == before
        time.sleep(0.2)
        assert protection.status().newest_batch is None
        put_file(tmp_path / "orders", 1, [{"id": 1}])
        until(protection, lambda status: status.last is not None)
        with closing(HadoopDirectory(protection.checkpoint_location, spark)) as directory:
            assert directory.newest_commit() == Directory.newest_commit(directory) == 0
    finally:
        query.stop()
    assert protection.wait(PATIENCE)
    assert len(listeners()) == before
    assert (protection.status().failures, protection.status().checkpoints) == (0, 1)
    assert "has no checkpointLocation" in caplog.text


STOPPED = """
import sys, time
import seamark
from seamark.spark.java import use_java
from pyspark.sql import SparkSession
use_java()
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
rows = spark.readStream.schema("id long").json(sys.argv[1]).writeStream.format("noop")
query = rows.trigger(processingTime="1 hour").option("checkpointLocation", sys.argv[2]).start()
protection = seamark.protect(query, sys.argv[3])
while protection.status().last is None:
    time.sleep(0.05)
spark.stop()
print("active", query.isActive)
print("ended", protection.wait(280))
print(protection.status())
"""


@pytest.mark.spark
@pytest.mark.slow
def test_a_protection_ends_when_spark_is_stopped_under_its_query(tmp_path: Path) -> None:
    put_file(tmp_path / "orders", 1, [{"id": 1}])
    paths = [str(tmp_path / name) for name in ("orders", "checkpoint", "store")]
    done = subprocess.run(
        [sys.executable, "-c", STOPPED, *paths],
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    told = done.stdout.splitlines()
    assert told[:2] == ["active True", "ended True"], done.stdout + done.stderr
    assert "nothing to do · checkpoint 1 holds batch 0" in told[2]
    assert done.returncode == 0


@pytest.mark.warm
def test_the_program_in_the_documentation_runs(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parent.parent.parent / "docs/native.md").read_text()
    (code,) = re.findall(r"^```python\n(# protect.py\n.*?)^```$", page, re.S | re.M)
    put_file(tmp_path / "orders", 1, [{"id": 1, "k": 1}])
    code = code.replace("/data/", f"{tmp_path}/").replace("s3://bucket", str(tmp_path / "store"))
    exec(code, {"spark": spark})
    assert "nothing to do · checkpoint 1 holds batch 0" in capsys.readouterr().out
