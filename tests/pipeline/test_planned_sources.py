"""What file sources have planned: files that are gone, and logs that Spark compacts."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from seamark import Pipeline
from seamark.capture import plans
from seamark.errors import SeamarkError
from seamark.sinks import FileSink
from seamark.testing.crashes import SimulatedCrash, crash_at
from tests.pipeline.support.crashing import wipe
from tests.pipeline.support.workloads import put_file, settings_of, values_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FILES = 4
ROWS = 5


def put(base: Path, *numbers: int) -> None:
    for number in numbers:
        put_file(base / "in", number, [{"v": number * ROWS + row} for row in range(ROWS)])


def shown(base: Path) -> list[int]:
    return sorted(row["v"] for row in values_in(base / "out"))


def rows_of(files: int) -> list[int]:
    return list(range(files * ROWS))


@pytest.fixture(params=["local", "elsewhere"])
def folder(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Iterator[str]:
    """The folder of input, on the local disk or on a file system that only Hadoop knows."""
    put(tmp_path, *range(FILES))
    if request.param == "local":
        yield str(tmp_path / "in")
        return
    name = uuid.uuid4().hex
    settings: Any = spark.sparkContext._jsc.hadoopConfiguration()
    link = f"fs.viewfs.mounttable.{name}.link./data"
    settings.set(link, f"file://{tmp_path}")
    yield f"viewfs://{name}/data/in"
    settings.unset(link)


@pytest.fixture
def build(spark: SparkSession, tmp_path: Path, folder: str) -> Callable[..., Pipeline]:
    def made(**options: Any) -> Pipeline:
        p = Pipeline("rows", tmp_path / "store", **options)
        source = p.source("in", spark.readStream.schema("v long").json(folder))
        p.sink("out", source, FileSink(tmp_path / "out"))
        p.sink("even", source.where("v % 2 = 0"), FileSink(tmp_path / "even"))
        return p

    return made


def test_a_planned_file_that_is_gone_is_an_error_and_no_file_without_rows(
    tmp_path: Path, build: Callable[..., Pipeline]
) -> None:
    with pytest.raises(SimulatedCrash):
        build(on_step=crash_at("write", "after", 1)).run()
    gone = tmp_path / "in" / "002.json"
    gone.rename(tmp_path / "away.json")
    with pytest.raises(SeamarkError, match=r"planned to read is gone(.|\n)*002\.json"):
        build().run()
    assert shown(tmp_path) == []
    shutil.move(tmp_path / "away.json", gone)
    build().run()
    assert shown(tmp_path) == rows_of(FILES)


def test_no_file_is_asked_for_when_spark_has_found_them_all(
    tmp_path: Path, build: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(plans, "modified_by", lambda _: asked.append)
    build().run()
    put(tmp_path, FILES)
    build().run()
    assert shown(tmp_path) == rows_of(FILES + 1)
    assert asked == []


def test_a_source_log_can_be_read_however_often_the_working_copy_is_lost(
    spark: SparkSession, tmp_path: Path
) -> None:
    def run() -> None:
        p = Pipeline("rows", tmp_path / "store")
        stream = spark.readStream.schema("v long").option("maxFilesPerTrigger", 1)
        source = p.source("in", stream.json(str(tmp_path / "in")))
        p.sink("out", source, FileSink(tmp_path / "out"))
        p.run()

    # from one compaction, at 3, Spark works out an interval of 4, and from one at 7 again 2
    with settings_of(spark, {"spark.sql.streaming.fileSource.log.compactInterval": "2"}):
        before = 0
        for files in (5, 10, 11):
            put(tmp_path, *range(before, files))
            run()
            wipe(tmp_path)
            before = files
    assert shown(tmp_path) == rows_of(11)
