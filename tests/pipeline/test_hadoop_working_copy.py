"""A pipeline whose working copy is on a file system that only Hadoop knows."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from seamark import Pipeline
from seamark.sinks import FileSink
from seamark.spark.batch_log import SHUFFLE_PARTITIONS
from tests.checkpoint_dir.support.mounts import mounted_folder
from tests.pipeline.support.crashing import crash
from tests.pipeline.support.workloads import Uninterrupted, run, settings_of, shown, values_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@contextmanager
def hadoop_elsewhere(spark: SparkSession, folder: Path) -> Iterator[None]:
    """Have paths without a scheme lead to another file system, as with HDFS as the default."""
    java: Any = spark.sparkContext._jsc
    conf = java.hadoopConfiguration()
    before = conf.get("fs.defaultFS")
    with mounted_folder(spark, folder):
        conf.set("fs.defaultFS", "viewfs://seamark/")
        try:
            yield
        finally:
            conf.set("fs.defaultFS", before)


@pytest.mark.timeout(600)
def test_a_local_working_copy_stays_local_where_hadoop_has_another_default(
    spark: SparkSession, input_folder: Path, tmp_path: Path
) -> None:
    schema = "id int, k int, v int, t timestamp"

    def declare(*functions: str, **options: Any) -> Pipeline:
        reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 2)
        p = Pipeline("shop", tmp_path / "store", output_mode="update", **options)
        source = p.source("orders", reader.json((input_folder / "orders").as_uri()))
        frame = source.groupBy("k").agg(*map(f.expr, functions))
        p.sink("sums", frame, FileSink(tmp_path / "sums"))
        return p

    from pyspark.sql import functions as f

    with hadoop_elsewhere(spark, tmp_path / "hadoop"):
        declare("count(1) AS n").run()
        more = {"policy": "evolve", "begin_empty": ["sums/sum(v)"]}
        declare("count(1) AS n", "sum(v) AS total", **more).run()
        with settings_of(spark, {SHUFFLE_PARTITIONS: "3"}):
            declare("count(1) AS n", "sum(v) AS total", policy="evolve").run()
        assert declare("count(1) AS n").replay(1).is_equal
    assert list((tmp_path / "hadoop").iterdir()) == []
    rows = sorted(values_in(tmp_path / "sums"), key=lambda row: row["epoch"])
    lines = [
        json.loads(line)
        for path in (input_folder / "orders").iterdir()
        for line in path.read_text().splitlines()
    ]
    assert {row["k"]: row["n"] for row in rows} == Counter(line["k"] for line in lines)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("wiped", [False, True], ids=["kept", "wiped"])
@pytest.mark.parametrize("capture", ["driver", "executors"])
@pytest.mark.parametrize(
    ("kind", "provider"),
    [
        ("windowed", "hdfs"),
        ("outer-join", "rocksdb-changelog"),
        ("deduplicated", "format2"),
    ],
)
def test_a_killed_epoch_goes_on_from_a_copy_that_hadoop_holds(
    spark: SparkSession,
    uninterrupted: Uninterrupted,
    tmp_path: Path,
    kind: str,
    provider: str,
    capture: str,
    wiped: bool,
) -> None:
    folder = uninterrupted.folder
    copies = tmp_path / "copies"
    with mounted_folder(spark, copies) as uri:
        there = {"working_copy": f"{uri}/p", "capture": capture}
        crash(spark, kind, provider, folder, tmp_path, "write:after:3", **there)
        assert any(copies.rglob("offsets/2"))
        if wiped:
            shutil.rmtree(copies / "p")
        first = run(spark, kind, provider, folder, tmp_path, **there)
        kept = first.report.working_copy.startswith("kept")
        assert kept is not wiped, first.report.working_copy
    assert not (tmp_path / "store" / "working").exists()
    assert shown(tmp_path) == uninterrupted(kind)
