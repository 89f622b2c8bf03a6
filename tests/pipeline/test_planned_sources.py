"""What file sources have planned: files that are gone, and logs that Spark compacts."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from seamark import Pipeline
from seamark.capture import plans
from seamark.errors import SeamarkError, SourceSilentError
from seamark.pipeline import run_builder
from seamark.sinks import FileSink, ForeachBatchSink
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


def test_a_source_that_ignores_missing_files_goes_on_without_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    def run(**options: Any) -> None:
        p = Pipeline("rows", tmp_path / "store", **options)
        stream = spark.readStream.schema("v long").option("ignoreMissingFiles", True)
        p.sink("out", p.source("in", stream.json(str(tmp_path / "in"))), FileSink(tmp_path / "out"))
        p.run()

    put(tmp_path, 0, 1)
    with pytest.raises(SimulatedCrash):
        run(on_step=crash_at("write", "before", 1))
    (tmp_path / "in" / "001.json").unlink()
    run()
    assert shown(tmp_path) == rows_of(1)


def test_a_planned_file_that_was_replaced_is_an_error_until_it_is_as_it_was(
    tmp_path: Path, build: Callable[..., Pipeline]
) -> None:
    with pytest.raises(SimulatedCrash):
        build(on_step=crash_at("write", "after", 1)).run()
    kept = tmp_path / "in" / "002.json"
    shutil.copy2(kept, tmp_path / "kept.json")
    kept.write_text('{"v": 1000}')
    with pytest.raises(
        SeamarkError,
        match=r"epoch 1 was planned to read was modified since(.|\n)*002\.json.*in the plan",
    ):
        build().run()
    assert shown(tmp_path) == []
    os.replace(tmp_path / "kept.json", kept)
    build().run()
    assert shown(tmp_path) == rows_of(FILES)


def test_an_epoch_that_was_not_begun_reads_a_replaced_file_as_it_is(
    tmp_path: Path, build: Callable[..., Pipeline]
) -> None:
    build().run()
    (tmp_path / "in" / "002.json").write_text('{"v": 1000}')
    put(tmp_path, FILES)
    build().run()
    assert shown(tmp_path) == rows_of(FILES + 1)


def test_a_function_never_gets_other_rows_under_the_same_key(
    spark: SparkSession, tmp_path: Path
) -> None:
    calls: list[tuple[str, int]] = []

    def build(**options: Any) -> Pipeline:
        p = Pipeline("rows", tmp_path / "store", **options)
        source = p.source("in", spark.readStream.schema("v long").json(str(tmp_path / "in")))
        function = ForeachBatchSink(
            lambda df, epoch: calls.append((epoch.key, df.count())), idempotent=True
        )
        p.sink("function", source, function)
        return p

    put(tmp_path, 0)
    build().run()
    put(tmp_path, 1)
    with pytest.raises(SimulatedCrash):
        build(on_step=crash_at("write", "after", 2)).run()
    wipe(tmp_path)  # so that only the store has the plan
    (tmp_path / "in" / "001.json").write_text('{"v": 1000}')
    with pytest.raises(SeamarkError, match="was modified since"):
        build().run()
    assert len(calls) == 2
    # what the error advises
    build().rollback(1)
    build().run()
    assert [rows for _, rows in calls] == [ROWS, ROWS, 1]
    assert len({key for key, _ in calls}) == 3


def test_an_epoch_that_a_sink_shows_never_runs_again_on_a_replaced_file(
    spark: SparkSession, tmp_path: Path
) -> None:
    def build() -> Pipeline:
        p = Pipeline("rows", tmp_path / "store")
        stream = spark.readStream.schema("v long").option("maxFilesPerTrigger", 1)
        p.sink("out", p.source("in", stream.json(str(tmp_path / "in"))), FileSink(tmp_path / "out"))
        return p

    put(tmp_path, 0, 1, 2)
    build().run()
    manifests = sorted((tmp_path / "store" / "checkpoints").glob("checkpoint_*/manifest.json"))
    for damaged in manifests[-2:]:
        damaged.write_bytes(b"{")
    wipe(tmp_path)
    (tmp_path / "in" / "002.json").write_text('{"v": 1000}')
    with pytest.raises(SeamarkError, match="epoch 3 was planned to read was modified since"):
        build().run()


def test_a_file_that_spark_has_noted_for_an_earlier_epoch_than_its_plan_is_read_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    def run() -> None:
        p = Pipeline("rows", tmp_path / "store")
        stream = spark.readStream.schema("v string").option("maxFilesPerTrigger", 1)
        a, b = (p.source(name, stream.json(str(tmp_path / name))) for name in "ab")
        p.sink("out", a.union(b), FileSink(tmp_path / "out"))
        p.run()

    def add(name: str, age: int) -> None:
        file = put_file(tmp_path / name[0], int(name[1:]), [{"v": name}])
        os.utime(file, (1_700_000_000 - age,) * 2)

    for age, name in enumerate(("a2", "a1", "a0", "b0"), 10):
        add(name, age)
    run()
    add("a3", 5)
    add("b1", 5)
    run()
    add("b2", 9)  # as a file that was moved there: epoch 3 would take it in
    damaged = tmp_path / "store" / "checkpoints" / "checkpoint_000002" / "manifest.json"
    damaged.write_bytes(b"{")
    run()
    shown = sorted((row["v"], row["epoch"]) for row in values_in(tmp_path / "out"))
    assert shown == [("a0", 1), ("a1", 2), ("a2", 3), ("a3", 4), ("b0", 1), ("b1", 4), ("b2", 5)]


@pytest.mark.parametrize("change", ["gone", "modified since"])
def test_a_decided_epoch_that_spark_repeats_looks_for_its_files_and_a_start_finishes_it(
    tmp_path: Path,
    build: Callable[..., Pipeline],
    monkeypatch: pytest.MonkeyPatch,
    change: str,
) -> None:
    monkeypatch.setattr(run_builder, "waiting_for", lambda *_: lambda *_: None)
    file = tmp_path / "in" / "002.json"

    def on_step(step: str, moment: str, epoch: int) -> None:
        if (step, moment) == ("retain", "after") and file.exists():
            file.unlink() if change == "gone" else file.write_text('{"v": 1000}')
            raise SourceSilentError("a source is away")

    with pytest.raises(SeamarkError, match=rf"epoch 1 .*{change}(.|\n)*Start again"):
        build(on_step=on_step).run()
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
