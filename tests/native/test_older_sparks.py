"""A directory as an older Spark leaves it is stored, restored and gone on from by this one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from seamark import open_store
from seamark.checkpoint_dir.places.directory import Tree
from seamark.checkpoint_dir.places.local import LocalCopy, LocalDirectory
from seamark.errors import RefusedError
from seamark.native.inspect.inspection import inspect
from seamark.native.restore import restore_directory
from seamark.native.snapshot import take_snapshot
from seamark.native.state_choice import StateRequest, choose
from seamark.native.state_rows import state_frame
from tests.native.support.queries import AGED_KINDS, after, run
from tests.pipeline.support.workloads import write_input

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCH = 3
"""The batch that is stored; later ones are what a restored query has to repeat."""

_PINNED = {
    "2.1": (),
    "2.3": ("spark.sql.shuffle.partitions", "spark.sql.streaming.stateStore.providerClass"),
    "3.3 to 3.5": (
        "spark.sql.shuffle.partitions",
        "spark.sql.streaming.aggregation.stateFormatVersion",
        "spark.sql.streaming.flatMapGroupsWithState.stateFormatVersion",
        "spark.sql.streaming.join.stateFormatVersion",
        "spark.sql.streaming.multipleWatermarkPolicy",
        "spark.sql.streaming.stateStore.compression.codec",
        "spark.sql.streaming.stateStore.providerClass",
        "spark.sql.streaming.stateStore.rocksdb.formatVersion",
        "spark.sql.streaming.statefulOperator.useStrictDistribution",
    ),
}
"""Version of Spark → the settings that it pins."""

AGES = {
    "counted in format 1": "2.3",
    "groups in format 1": "2.3",
    "without a key": "2.3",
}
"""The oldest Spark that keeps state as the query does; 3.5 for all others."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_input(tmp_path_factory.mktemp("input"), 6)


def make_older(root: Path, version: str) -> None:
    """Take away from a directory what Spark did not write yet."""
    copy = LocalCopy(root)
    for path in list(copy.files_below(".")):
        is_description = path.startswith("state/") and "/_metadata/" in path
        is_schema = path.endswith("/_metadata/schema")
        if is_description and (not is_schema or version < "3.1"):
            copy.remove(path)
        elif path.startswith("offsets/"):
            head, meta, *lines = (copy.read_text(path) or "").split("\n")
            fields = json.loads(meta)
            pinned = {name: fields["conf"][name] for name in _PINNED[version]}
            fields = {name: value for name, value in fields.items() if name != "conf"}
            if pinned:
                fields["conf"] = pinned
            copy.write(path, "\n".join([head, json.dumps(fields), *lines]).encode())
    for folder in root.glob("state/*/_metadata"):
        shutil.rmtree(folder)


def goes_on_the_same(
    spark: SparkSession, kind: str, version: str, folder: Path, root: Path
) -> None:
    whole = run(spark, kind, folder, root / "checkpoint", root / "out")
    make_older(root / "checkpoint", version)
    found = inspect(LocalDirectory(root / "checkpoint"), read_data=True)
    assert (found.findings, found.spark) == ([], None if version == "2.1" else version)
    with open_store(root / "store") as store:
        take_snapshot(LocalDirectory(root / "checkpoint"), store, batch=BATCH)
        shutil.rmtree(root / "checkpoint")
        new = LocalDirectory(root / "elsewhere")
        restore_directory(store, 1, new)
    assert inspect(new, read_data=True).findings == []
    again = run(spark, kind, folder, new.url, root / "again")
    assert min(again) == BATCH + 1
    assert after(again, BATCH) == after(whole, BATCH)
    assert after(again, BATCH), "nothing was left to compare"


@pytest.mark.slow
@pytest.mark.warm
def test_state_of_spark_2_3_goes_on_with_the_same_results(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    goes_on_the_same(spark, "counted in format 1", "2.3", folder, tmp_path)


@pytest.mark.slow
@pytest.mark.warm
def test_a_join_of_spark_3_5_goes_on_with_the_same_results(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    goes_on_the_same(spark, "joined in format 2", "3.3 to 3.5", folder, tmp_path)


@pytest.mark.sampled(2)
@pytest.mark.spark
@pytest.mark.parametrize("kind", AGED_KINDS)
def test_every_kind_of_old_state_goes_on_with_the_same_results(
    spark: SparkSession, folder: Path, tmp_path: Path, kind: str
) -> None:
    goes_on_the_same(spark, kind, AGES.get(kind, "3.3 to 3.5"), folder, tmp_path)


@pytest.mark.spark
def test_rows_are_read_where_spark_has_kept_their_schema_and_refused_where_not(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    run(spark, "counted in format 2", folder, tmp_path / "checkpoint", tmp_path / "out")
    make_older(tmp_path / "checkpoint", "3.3 to 3.5")
    files = Tree.of(LocalDirectory(tmp_path / "checkpoint"))
    with state_frame(spark, files, choose(files, StateRequest())) as frame:
        assert {row.key.k for row in frame.collect()} == set(range(5))
    make_older(tmp_path / "checkpoint", "2.3")
    older = Tree.of(LocalDirectory(tmp_path / "checkpoint"))
    with (
        pytest.raises(RefusedError, match="needs the schema of the state"),
        state_frame(spark, older, choose(older, StateRequest())) as frame,
    ):
        frame.collect()


@pytest.mark.spark
def test_a_directory_without_any_settings_goes_on_with_the_same_results(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    goes_on_the_same(spark, "counted in format 1", "2.1", folder, tmp_path)
