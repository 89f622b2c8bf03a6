"""Sources in a real pipeline: crashes, restarts, ends, and errors out of another process."""

from __future__ import annotations

import re
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from seamark import Pipeline
from seamark.errors import PositionUnavailable, RefusedError, SourceSilentError
from seamark.sinks import FileSink
from seamark.sources import SequencedSource, TableSource, recognition
from seamark.sources.offsets import BEGINNING
from seamark.sources.sequence_reader import SequenceReader
from seamark.spark.session import spark_version
from seamark.testing.crashes import SimulatedCrash, crash_at
from tests.sources.support.examples import drained

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PAGE = Path(__file__).parents[2] / "docs" / "sources.md"


def from_the_page() -> type[SequencedSource]:
    """The class that the documentation shows, as a user would have written it."""
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    code = next(example for example in examples if "class LogFile" in example)
    names: dict[str, Any] = {"__name__": "written_by_a_user"}
    exec(compile(code, str(PAGE), "exec"), names)
    found: type[SequencedSource] = names["LogFile"]
    return found


def write(path: Path, first: int, last: int) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.writelines(f"line {n}\n" for n in range(first, last))


def test_the_source_of_the_documentation_is_right_without_spark(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    write(log, 0, 25)
    with log.open("a", encoding="utf-8") as file:
        file.write("half a li")
    source = from_the_page()({"path": str(log)})
    offsets, rows = drained(SequenceReader(source, "log", ["line"], 10))
    assert [row[0] for row in rows] == [f"line {n}" for n in range(25)]
    log.write_text("line 0\n", encoding="utf-8")
    with pytest.raises(PositionUnavailable, match="shorter than what was read"):
        SequenceReader(source, "log", ["line"], 10).end_after(offsets[-1], 10)
    assert offsets[0] == BEGINNING


# in Spark


def read_all(
    p: Pipeline, folder: Path, rows: int, is_done: Callable[[], bool] = lambda: True
) -> int:
    """Run until so many rows are shown, and what else is waited for has come; the newest epoch."""
    run = p.start({"availableNow": True} if _can_end(p) else None)
    deadline = time.monotonic() + 280
    while not run.await_termination(0.2) and time.monotonic() < deadline:
        if not _can_end(p) and len(shown(folder)) >= rows and is_done():
            run.stop()
    return run.epoch


def _can_end(p: Pipeline) -> bool:
    return spark_version(p._session()) >= recognition.ADMISSION_CONTROL


def shown(folder: Path) -> list[tuple[Any, ...]]:
    """All rows that a sink shows, without the epoch."""
    import pyarrow.dataset as ds

    if not folder.exists():
        return []
    try:
        table = ds.dataset(folder, format="parquet").to_table()
    except FileNotFoundError:  # pyarrow walks through hidden folders, which come and go
        return []
    return sorted(tuple(row.values()) for row in table.to_pylist())


def lines_of(spark: SparkSession, log: Path) -> DataFrame:
    return (
        spark.readStream.format("LogFile")
        .option("path", str(log))
        .option("max_rows_per_epoch", 10)
        .load()
    )


def pipeline(df: DataFrame, root: Path, **options: Any) -> Pipeline:
    p = Pipeline("stream", root / "store", **options)
    source = p.source("stream", df)
    p.sink("all", source, FileSink(root / "all"))
    return p


@pytest.mark.slow
@pytest.mark.warm
def test_a_start_tells_that_a_table_is_read_in_another_database(
    spark: SparkSession, tmp_path: Path
) -> None:
    spark.dataSource.register(TableSource)
    told = []
    for name, rows in (("a", 3), ("a", 0), ("b", 5), ("b", 0)):
        with closing(sqlite3.connect(tmp_path / name)) as db:
            db.execute("CREATE TABLE IF NOT EXISTS t (id INTEGER PRIMARY KEY, v TEXT)")
            db.executemany("INSERT INTO t (v) VALUES (?)", [(name,)] * rows)
            db.commit()
        reader = spark.readStream.format("seamark_table").option("driver", "sqlite3")
        stream = reader.option("dsn", str(tmp_path / name)).option("table", "t").option("key", "id")
        p = pipeline(stream.load(), tmp_path)
        told.append([change for change in p.check().changes if "another table" in change])
        read_all(p, tmp_path / "all", {"a": 3, "b": 5}[name])
    # once: from then on it is the table of the checkpoint
    assert [len(changes) for changes in told] == [0, 0, 1, 0]
    assert shown(tmp_path / "all") == [(1, "a"), (2, "a"), (3, "a"), (4, "b"), (5, "b")]


@pytest.mark.slow
@pytest.mark.warm
def test_each_row_is_shown_once_across_crashes_and_a_lost_working_copy(
    spark: SparkSession, tmp_path: Path
) -> None:
    spark.dataSource.register(from_the_page())
    log = tmp_path / "app.log"
    write(log, 0, 35)
    for point in (crash_at("save", "before", 2), crash_at("commit", "before", 3)):
        p = pipeline(lines_of(spark, log), tmp_path, on_step=point)
        with pytest.raises(SimulatedCrash):
            p.run(available_now=_can_end(p), timeout=280)
        write(log, 35 if point.point.epoch == 2 else 45, 45 if point.point.epoch == 2 else 48)
    shutil.rmtree(tmp_path / "store" / "working")
    epochs = read_all(pipeline(lines_of(spark, log), tmp_path), tmp_path / "all", 48)
    assert shown(tmp_path / "all") == sorted((f"line {n}",) for n in range(48))
    assert epochs == 5
    log.write_text("", encoding="utf-8")
    with pytest.raises(PositionUnavailable, match="shorter than what was read") as gone:
        read_all(pipeline(lines_of(spark, log), tmp_path), tmp_path / "all", 49)
    assert gone.value.requested == b"%d" % sum(len(f"line {n}\n") for n in range(48))


def often_away(folder: Path) -> type[SequencedSource]:
    """The numbers below 20. What is asked of it gets no answer as often as a file there says."""

    def answer(question: str) -> None:
        left = folder / question
        if count := int(left.read_text(encoding="utf-8")) if left.exists() else 0:
            left.write_text(str(count - 1), encoding="utf-8")
            raise SourceSilentError(f"no answer to {question}")

    class OftenAway(SequencedSource):
        def schema(self) -> str:
            answer("schema")
            return "number long"

        def check(self, position: Any) -> None:
            answer("check")

        def read_from(self, position: Any, limit: int) -> Any:
            first = position or 0
            if first:
                answer("read")
            return [((n,), n + 1) for n in range(first, min(first + limit, 20))]

    return OftenAway


@pytest.mark.slow
@pytest.mark.warm
def test_a_source_that_gives_no_answer_is_waited_for_wherever_it_is_asked(
    spark: SparkSession, tmp_path: Path
) -> None:
    spark.dataSource.register(often_away(tmp_path))

    def declared(**options: Any) -> Pipeline:
        p = Pipeline("stream", tmp_path / "store", **options)
        numbers = p.source("stream", spark.readStream.format("OftenAway"))
        p.sink("all", numbers, FileSink(tmp_path / "all"))
        return p

    def are_answered() -> bool:
        return all(left.read_text(encoding="utf-8") == "0" for left in questions if left.exists())

    questions = [tmp_path / question for question in ("schema", "read", "check")]
    for question in questions[:2]:
        question.write_text("2", encoding="utf-8")
    read_all(declared(source_timeout=250), tmp_path / "all", 20, are_answered)
    assert [row[0] for row in shown(tmp_path / "all")] == list(range(20))
    (tmp_path / "check").write_text("2", encoding="utf-8")
    read_all(declared(source_timeout=250), tmp_path / "all", 20, are_answered)
    for question in questions:
        left = question.read_text(encoding="utf-8")
        assert left == "0", f"{question.name} was asked until it had an answer"
    (tmp_path / "check").write_text("1000000", encoding="utf-8")
    with pytest.raises(SourceSilentError):
        declared(source_timeout=0.5).run(available_now=False)


def table_of(spark: SparkSession, path: Path) -> DataFrame:
    return (
        spark.readStream.format("seamark_table")
        .option("driver", "sqlite3")
        .option("dsn", str(path))
        .option("table", "t")
        .option("key", "id")
        .option("max_rows_per_epoch", 4)
        .load()
    )


@pytest.mark.slow
@pytest.mark.warm
def test_rows_that_changed_while_the_pipeline_was_down_are_told_with_their_type(
    spark: SparkSession, tmp_path: Path
) -> None:
    spark.dataSource.register(TableSource)
    path = tmp_path / "t.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY AUTOINCREMENT, v TEXT)")
        db.executemany("INSERT INTO t (v) VALUES (?)", [(f"v{n}",) for n in range(10)])
        p = pipeline(table_of(spark, path), tmp_path, on_step=crash_at("write", "after", 2))
        with pytest.raises(SimulatedCrash):
            p.run(available_now=_can_end(p), timeout=280)
        db.execute("UPDATE t SET v = 'other' WHERE id = 6")
        with pytest.raises(RefusedError, match="returns other rows than the epoch was made of"):
            read_all(pipeline(table_of(spark, path), tmp_path), tmp_path / "all", 10)
        db.execute("UPDATE t SET v = 'v5' WHERE id = 6")
        read_all(pipeline(table_of(spark, path), tmp_path), tmp_path / "all", 10)
    assert shown(tmp_path / "all") == [(n + 1, f"v{n}") for n in range(10)]


@pytest.mark.warm
def test_an_end_that_an_old_spark_would_put_too_early_is_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark.dataSource.register(from_the_page())
    log = tmp_path / "app.log"
    write(log, 0, 5)
    df = lines_of(spark, log)
    assert recognition.sequenced_formats(spark, df.union(df)) == ["LogFile", "LogFile"]
    rate = spark.readStream.format("rate").load()
    assert recognition.sequenced_formats(spark, rate) == []
    monkeypatch.setattr(recognition, "spark_version", lambda _: (4, 1))
    with pytest.raises(RefusedError, match=r"needs Spark 4\.2 or newer for the source 'LogFile'"):
        pipeline(df, tmp_path).run(available_now=True)
    assert not (tmp_path / "store" / "working").exists()
    recognition.refuse_endings(spark, rate, {"availableNow": True})
    recognition.refuse_endings(spark, df, {"processingTime": "1 second"})
