"""Settings in an offset log have Spark make objects of no class but its own."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from seamark import Pipeline
from seamark.checkpoint_dir.places.directory import Tree
from seamark.checkpoint_dir.places.local import LocalDirectory
from seamark.errors import DamageError
from seamark.native.inspect.inspection import inspect
from seamark.native.repartition import plan_repartition, repartition
from seamark.native.repartition_rules import OLDEST
from seamark.native.state_choice import StateRequest, choose
from seamark.native.state_rows import state_frame
from seamark.sinks import FileSink
from seamark.spark.pinned_settings import STATE_CODEC, for_session, foreign_setting
from seamark.spark.session import FILE_MANAGER, STATE_PROVIDER, spark_version
from tests.pipeline.support.workloads import put_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOREIGN = "java.util.logging.FileHandler"
_STATE = "org.apache.spark.sql.execution.streaming.state"


def offsets(**conf: object) -> str:
    return "\n".join(["v1", json.dumps({"batchWatermarkMs": 0, "conf": conf}), "-"])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (STATE_PROVIDER, f"{_STATE}.HDFSBackedStateStoreProvider"),
        (STATE_PROVIDER, f"{_STATE}.RocksDBStateStoreProvider"),
        (STATE_CODEC, "lz4"),
        (STATE_CODEC, "ZSTD"),
        (STATE_CODEC, "org.apache.spark.io.SnappyCompressionCodec"),
        ("spark.sql.shuffle.partitions", "200"),
        ("spark.sql.shuffle.partitions", 200),
        ("spark.sql.streaming.multipleWatermarkPolicy", "min"),
        ("spark.sql.streaming.stateStore.encodingFormat", "unsaferow"),
        ("spark.sql.streaming.statefulOperator.useStrictDistribution", True),
    ],
)
def test_what_spark_writes_itself_is_taken(name: str, value: object) -> None:
    assert foreign_setting(offsets(**{name: value})) is None


def test_the_first_versions_of_spark_pin_nothing() -> None:
    for text in ("v1\n\n-", 'v1\n{"batchWatermarkMs":0}\n-', "v1\n{}\n-"):
        assert foreign_setting(text) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (STATE_PROVIDER, FOREIGN),
        (STATE_PROVIDER, "org.example.RocksDBStateStoreProvider"),
        (STATE_PROVIDER, ""),
        (STATE_CODEC, FOREIGN),
        (STATE_CODEC, "org.example.LZ4CompressionCodec"),
        (FILE_MANAGER, FOREIGN),
        ("spark.sql.warehouse.dir", "/tmp"),
        ("spark.sql.shuffle.partitions", "200\n"),
        ("spark.sql.shuffle.partitions", {"a": 1}),
    ],
)
def test_what_names_another_class_or_a_place_is_not_taken(name: str, value: object) -> None:
    assert foreign_setting(offsets(**{name: value})) is not None


def test_a_setting_that_two_programs_read_in_two_ways_is_not_taken() -> None:
    twice = f'{{"conf":{{"{STATE_PROVIDER}":"{FOREIGN}"}},"conf":{{}}}}'
    assert foreign_setting(f"v1\n{twice}\n-") == "its settings cannot be read"


def test_what_the_session_is_set_to_is_taken() -> None:
    text = offsets(**{STATE_PROVIDER: "org.example.Own"})
    assert foreign_setting(text, {STATE_PROVIDER: "org.example.Own"}.get) is None
    assert foreign_setting(text, {STATE_PROVIDER: "org.example.Other"}.get) is not None


def forge(entry: Path, name: str, value: str) -> None:
    head, metadata, *lines = entry.read_text().split("\n")
    fields = json.loads(metadata)
    fields["conf"][name] = value
    entry.write_text("\n".join([head, json.dumps(fields, separators=(",", ":")), *lines]))
    entry.with_name(f".{entry.name}.crc").unlink(missing_ok=True)


def counted(spark: SparkSession, root: Path) -> Pipeline:
    p = Pipeline("rows", root / "store", progress=None, output_mode="update", keep=10)
    rows = p.source("rows", spark.readStream.schema("n int").json(str(root / "in")))
    p.sink("out", rows.groupBy("n").count(), FileSink(root / "out"))
    return p


@pytest.fixture
def root(spark: SparkSession, tmp_path: Path) -> Path:
    put_file(tmp_path / "in", 0, [{"n": 1}])
    counted(spark, tmp_path).run(available_now=True)
    return tmp_path


def copy_of(root: Path) -> Path:
    return next((root / "store" / "working").glob("g*/"))


@pytest.mark.warm
@pytest.mark.parametrize("name", [STATE_PROVIDER, STATE_CODEC])
def test_a_directory_that_names_a_foreign_class_is_not_read(
    spark: SparkSession, root: Path, name: str
) -> None:
    shutil.copytree(copy_of(root), root / "ck")
    forge(root / "ck" / "offsets" / "0", name, FOREIGN)
    tree = Tree.of(LocalDirectory(str(root / "ck")))
    reading = choose(tree, StateRequest())
    with (
        pytest.raises(DamageError, match=f"sets {name} to '{FOREIGN}'"),
        state_frame(spark, tree, reading) as frame,
    ):
        frame.collect()
    found = inspect(LocalDirectory(str(root / "ck"))).findings
    assert [(each.code, each.path) for each in found] == [("settings-foreign", "offsets/0")]
    # another provider cannot be repartitioned anyway, and nothing can by an older Spark
    if name == STATE_CODEC and spark_version(spark) >= OLDEST:
        plan = plan_repartition(tree, 7)
        with pytest.raises(DamageError, match="Spark does not write"):
            repartition(spark, LocalDirectory(str(root / "ck")), plan, "")


@pytest.mark.warm
def test_a_start_takes_no_foreign_class_from_a_plan(spark: SparkSession, root: Path) -> None:
    working = copy_of(root)
    put_file(root / "in", 1, [{"n": 2}])
    planned = (working / "offsets" / "0").read_text().replace('"logOffset":0', '"logOffset":1')
    (working / "offsets" / "1").write_text(planned)
    entry = (working / "sources" / "0" / "0").read_text()
    second = entry.replace("000.json", "001.json").replace('"batchId":0', '"batchId":1')
    (working / "sources" / "0" / "1").write_text(second)
    forge(working / "offsets" / "1", STATE_CODEC, FOREIGN)
    with pytest.raises(DamageError, match=f"sets {STATE_CODEC} to '{FOREIGN}'"):
        counted(spark, root).run(available_now=True)


@pytest.mark.warm
def test_an_upgrade_takes_no_foreign_setting_for_its_session(
    spark: SparkSession, root: Path
) -> None:
    with pytest.raises(DamageError, match=f"sets {FILE_MANAGER} to '{FOREIGN}'"):
        for_session({FILE_MANAGER: FOREIGN}, spark)
    assert for_session({"spark.sql.a": "1", "spark.b": "2"}, spark) == {"spark.sql.a": "1"}
