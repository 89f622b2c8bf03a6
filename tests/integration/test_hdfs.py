"""Checkpoint directories on a real HDFS: read, taken, restored, and there again after a crash."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from seamark import open_store
from seamark.checkpoint_dir.places.directory import Tree, open_directory
from seamark.errors import CheckpointNotFoundError
from seamark.native.restore import restore_directory
from seamark.native.snapshot import take_snapshot
from tests.integration.support.hdfs import Hdfs
from tests.support.spark import local_spark
from tests.ui.support.serving import serving

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def spark(hdfs: Hdfs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with local_spark(tmp_path_factory.mktemp("warehouse"), log_level="OFF") as session:
        yield session


def count_by_key(spark: SparkSession, root: Path, checkpoint: str, name: str) -> dict[int, int]:
    """Count all rows of ``root/in`` by key, with state in ``checkpoint``."""
    numbers = spark.readStream.schema("k int").option("maxFilesPerTrigger", 1).json(f"{root}/in")
    writer = numbers.groupBy("k").count().writeStream.format("memory").queryName(name)
    writer = writer.outputMode("complete").option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return {row["k"]: row["count"] for row in spark.table(name).collect()}


def add_input(root: Path, number: int) -> None:
    (root / "in").mkdir(exist_ok=True)
    rows = (f'{{"k": {row % 3}}}' for row in range(30))
    (root / "in" / f"{number}.json").write_text("\n".join(rows))


def test_a_query_on_hdfs_goes_on_from_a_snapshot_restored_beside_it(
    spark: SparkSession, hdfs: Hdfs, tmp_path: Path
) -> None:
    before, after = f"{hdfs.url}/before", f"{hdfs.url}/after"
    for number in range(2):
        add_input(tmp_path, number)
    assert count_by_key(spark, tmp_path, before, "first") == {0: 20, 1: 20, 2: 20}
    with open_store(tmp_path / "store") as store:
        taken = take_snapshot(open_directory(before), store)
        restore_directory(store, taken.checkpoint_id, open_directory(after))
    add_input(tmp_path, 2)
    assert count_by_key(spark, tmp_path, after, "second") == {0: 30, 1: 30, 2: 30}


def test_a_directory_on_hdfs_is_a_row_of_the_page_with_its_rows_of_state(
    spark: SparkSession, hdfs: Hdfs, tmp_path: Path
) -> None:
    url = f"{hdfs.url}/shown"
    add_input(tmp_path, 0)
    count_by_key(spark, tmp_path, url, "shown")
    with serving(url, f"{hdfs.url}/nowhere") as page:
        found = page.until(
            "/api/places", lambda d: all(p["health"]["word"] != "looking" for p in d["places"])
        )
        rows = {row["slug"]: row for row in found["places"]}
        assert rows["shown"]["committed"] == 0
        assert rows["nowhere"]["health"]["word"] == "not there"
        page.post("/api/p/shown/rows")
        read = page.until("/api/p/shown/rows", lambda d: d["state"] != "running")
        assert read["state"] == "done", read
        counts = {row["key"]["k"]: row["value"]["count"] for row in read["document"]["rows"]}
        assert counts == {0: 10, 1: 10, 2: 10}


def test_a_directory_is_there_again_after_the_servers_were_killed(
    spark: SparkSession, hdfs: Hdfs
) -> None:
    directory = open_directory(f"{hdfs.url}/killed")
    directory.write("offsets/0", b"v1\n{}")
    hdfs.kill()
    hdfs.start()
    assert directory.read("offsets/0") == b"v1\n{}"
    directory.write("offsets/1", b"v1\n{}")
    assert sorted(directory.listing()) == ["offsets/0", "offsets/1"]


def test_a_directory_that_is_not_there_is_told(spark: SparkSession, hdfs: Hdfs) -> None:
    with pytest.raises(CheckpointNotFoundError, match="there is no directory"):
        Tree.of(open_directory(f"{hdfs.url}/nowhere"))
