"""Rewritten rows are those of before, each in the partition where its query looks for it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from seamark.checkpoint_dir.places.directory import Tree
from seamark.checkpoint_dir.places.local import LocalDirectory
from seamark.errors import DamageError
from seamark.native.repartition import plan_repartition, repartition
from seamark.native.repartition_rules import OLDEST
from seamark.native.state_rewrite import RowsDigest, StoreRows
from seamark.spark.session import spark_version
from tests.native.support.queries import run
from tests.native.test_repartition import deliver
from tests.pipeline.support.workloads import write_input
from tests.support.slow_cases import slow_except

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.warm

# the columns of a key that Spark's exchange hashes, by store
JOIN = {
    f"{side}-{store}": "key.field0"
    for side in ("left", "right")
    for store in ("keyToNumValues", "keyWithIndexToValue")
}
KEYS = {
    "counted-hdfs": {"default": "key.k"},
    "windowed-hdfs": {"default": "key.*"},
    "joined-hdfs": JOIN,
    "deduplicated": {"default": "key.*"},
    "sessions": {"default": "key.k"},
    "groups in format 1": {"default": "key.*"},
    "groups in format 2": {"default": "key.*"},
    "counted in format 1": {"default": "key.k"},
}


@pytest.fixture(autouse=True)
def _with_a_runner(spark: SparkSession) -> None:
    if spark_version(spark) < OLDEST:
        pytest.skip("this Spark has no offline runner")


def rows_of(spark: SparkSession, path: Path, batch: int, store: str) -> DataFrame:
    reader = spark.read.format("statestore").option("batchId", batch)
    return reader.option("storeName", store).load(str(path))


def texts(rows: DataFrame) -> Counter[str]:
    return Counter(str(row) for row in rows.drop("partition_id").collect())


@pytest.mark.slow
@pytest.mark.parametrize("kind", slow_except(KEYS, "counted-hdfs", "joined-hdfs"))
def test_each_row_is_where_the_hash_of_spark_puts_it(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    checkpoint = tmp_path / "checkpoint"
    # without the last file, which closes all windows
    deliver(write_input(tmp_path / "all", 3), tmp_path / "input", 3)
    run(spark, kind, tmp_path / "input", checkpoint, tmp_path / "out")
    plan = plan_repartition(Tree.of(LocalDirectory(checkpoint)), 5)
    before = {store: texts(rows_of(spark, checkpoint, plan.batch, store)) for store in KEYS[kind]}
    repartition(spark, LocalDirectory(checkpoint), plan, "")
    for store, columns in KEYS[kind].items():
        after = rows_of(spark, checkpoint, plan.new_batch, store)
        assert texts(after) == before[store]
        assert before[store]
        expected = f"pmod(hash({columns}), 5)"
        hashed = after.select("partition_id", "key.*", "key")
        if columns == "key.*":
            expected = "pmod(hash(key), 5)"
        assert hashed.where(f"partition_id != {expected}").isEmpty()
    assert any(
        rows_of(spark, checkpoint, plan.new_batch, store).select("partition_id").distinct().count()
        > 1
        for store in KEYS[kind]
    )


def test_rows_that_are_lost_on_the_way_are_noticed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = tmp_path / "checkpoint"
    folder = write_input(tmp_path / "input", 1)
    run(spark, "counted-hdfs", folder, checkpoint, tmp_path / "out")
    plan = plan_repartition(Tree.of(LocalDirectory(checkpoint)), 3)
    real = StoreRows.write

    def losing(self: StoreRows, *args: object) -> RowsDigest:
        found = real(self, *args)  # type: ignore[arg-type]
        whole = max(
            (checkpoint / "state").rglob(f"{plan.new_batch + 1}.snapshot"),
            key=lambda path: path.stat().st_size,
        )
        empty = min(
            (checkpoint / "state").rglob(f"{plan.new_batch + 1}.snapshot"),
            key=lambda path: path.stat().st_size,
        )
        whole.write_bytes(empty.read_bytes())
        whole.with_name(f".{whole.name}.crc").unlink(missing_ok=True)
        return found

    monkeypatch.setattr(StoreRows, "write", losing)
    with pytest.raises(DamageError, match="rows were rewritten"):
        repartition(spark, LocalDirectory(checkpoint), plan, "GO BACK")
