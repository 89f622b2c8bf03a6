"""Directories that a real Spark wrote, damaged as they are in the field: each has its name."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from seamark.checkpoint_dir.places.local import LocalCopy, LocalDirectory
from seamark.native.inspect.inspection import inspect
from seamark.spark.session import spark_version
from tests.native.support.queries import KINDS, run
from tests.pipeline.support.workloads import settings_of, write_input

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.warm

LAST = 6
"""The newest batch of the directories."""


@pytest.fixture(scope="module")
def healthy(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The directory of a query that was run to its end; made once for each kind."""
    base = tmp_path_factory.mktemp("healthy")
    folder = write_input(base / "input", LAST)

    def made(kind: str) -> Path:
        if not (base / kind).exists():
            run(spark, kind, folder, base / kind, base / f"{kind}-out")
            assert inspect(LocalDirectory(base / kind), read_data=True).findings == []
        return base / kind

    return made


def found(root: Path, *, read_data: bool = False) -> set[str]:
    return {str(one.code) for one in inspect(LocalDirectory(root), read_data=read_data).findings}


def drop(path: str) -> Callable[[LocalCopy], None]:
    return lambda copy: copy.remove(path)


def empty(path: str) -> Callable[[LocalCopy], None]:
    return lambda copy: copy.write(path, b"")


def cut(path: str) -> Callable[[LocalCopy], None]:
    return lambda copy: copy.write(path, copy.read(path)[:40])


def swap(path: str, other: str) -> Callable[[LocalCopy], None]:
    return lambda copy: copy.write(path, copy.read(other))


def abandoned(copy: LocalCopy) -> None:
    """A snapshot of a later batch than any that was planned, as a naive rollback leaves it."""
    copy.write(f"state/0/0/{LAST + 9}.snapshot", copy.read(f"state/0/0/{LAST + 1}.delta"))


HURT: dict[str, tuple[str, Callable[[LocalCopy], None], set[str]]] = {
    "truncated offsets": ("counted-hdfs", cut(f"offsets/{LAST}"), {"offsets-unreadable"}),
    "empty offsets": ("counted-hdfs", empty("offsets/3"), {"offsets-unreadable"}),
    "gap in the offset log": ("counted-hdfs", drop("offsets/3"), {"offsets-gap"}),
    "empty commit": ("counted-hdfs", empty(f"commits/{LAST}"), {"commit-unreadable"}),
    "missing metadata": ("counted-hdfs", drop("metadata"), {"metadata-missing"}),
    "missing delta": ("counted-hdfs", drop("state/0/1/4.delta"), {"state-missing"}),
    "empty delta": ("counted-hdfs", empty("state/0/1/4.delta"), {"state-empty"}),
    "swapped delta": (
        "counted-hdfs",
        swap("state/0/0/5.delta", "state/0/0/4.delta"),
        {"state-repeated"},
    ),
    "delta of another partition": (
        "counted-hdfs",
        swap("state/0/0/5.delta", "state/0/1/5.delta"),
        {"state-duplicated"},
    ),
    "stale snapshot": ("counted-hdfs", abandoned, {"state-newer-than-log"}),
    "gap in the source's log": ("counted-hdfs", drop("sources/0/3"), {"source-log-gap"}),
    "missing changelog": ("windowed-changelog", drop("state/0/1/4.changelog"), {"state-missing"}),
    "missing zip": ("counted-rocksdb", drop(f"state/0/1/{LAST + 1}.zip"), {"batch-not-consumed"}),
}


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("hurt", HURT)
def test_a_damage_is_named_and_its_healthy_twin_has_none(
    healthy: Callable[[str], Path], tmp_path: Path, hurt: str
) -> None:
    kind, damage, codes = HURT[hurt]
    shutil.copytree(healthy(kind), tmp_path / "copy")
    damage(LocalCopy(tmp_path / "copy"))
    assert codes <= found(tmp_path / "copy"), hurt


@pytest.mark.slow
def test_a_missing_sst_file_is_named(healthy: Callable[[str], Path], tmp_path: Path) -> None:
    shutil.copytree(healthy("counted-rocksdb"), tmp_path / "copy")
    folder = tmp_path / "copy" / "state" / "0" / "0" / "SSTs"
    for sst in folder.glob("*.sst"):
        sst.unlink()
    assert "sst-missing" in found(tmp_path / "copy")


def test_a_batch_that_was_not_consumed_is_named_with_the_way_out(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = write_input(tmp_path / "input", 3)

    def careless(rows: DataFrame, batch: int) -> None:
        if batch < 2:
            rows.collect()
        else:
            rows.sparkSession.sparkContext.runJob(rows.rdd, list, [0])  # as first() may do

    with settings_of(spark, {"spark.sql.shuffle.partitions": "4"}):
        query = (
            KINDS["counted-hdfs"]
            .declare(spark, folder)
            .writeStream.foreachBatch(careless)
            .outputMode("update")
            .option("checkpointLocation", str(tmp_path / "ck"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination(60)
        except Exception as error:  # noqa: BLE001 - newer Sparks see it, after the harm is done
            assert "STATE_STORE" in str(error) or "awaitResult" in str(error)
    told = inspect(LocalDirectory(tmp_path / "ck"))
    # Spark 4.0 goes on as long as the state is in its memory, so that more than one batch lacks it
    code = "batch-not-consumed" if spark_version(spark) > (4, 0) else "state-missing"
    named = [one for one in told.findings if one.code == code]
    assert named
    assert "rollback" in named[0].advice
    assert 2 not in told.restorable
    assert 1 in told.restorable
