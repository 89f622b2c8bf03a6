"""A FileSink on a real HDFS keeps the contract, dies at every call, and outlives the servers."""

from __future__ import annotations

import itertools
import json
import os
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import seamark
from seamark._common.retry import retry_unavailable
from seamark.checkpoint_dir.places.hadoop import HadoopDirectory
from seamark.errors import (
    DamageError,
    InvalidInputError,
    LineageError,
    RefusedError,
    StoreUnavailableError,
)
from seamark.sinks import Committable, FileSink
from seamark.sinks.hdfs_files import HdfsFileSink
from seamark.testing import OpenSink, ReadRows, SinkSuite
from seamark.testing.conformance.sink_examples import PIPELINE, SINK, epoch
from seamark.testing.crashes import FailPoint, SimulatedCrash, crash_at
from tests.audit.support.pipelines import audited, pipeline, write_input
from tests.integration.support.hdfs import Hdfs
from tests.sinks.support.starting import started
from tests.support.spark import local_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def spark(hdfs: Hdfs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with local_spark(tmp_path_factory.mktemp("warehouse"), log_level="OFF") as session:
        yield session


@pytest.fixture
def url(hdfs: Hdfs) -> str:
    return f"{hdfs.url}/sinks/{uuid.uuid4().hex}"


def rows_at(spark: SparkSession, url: str) -> list[int]:
    """What any reader of Hadoop sees."""
    there = HadoopDirectory(url, spark)
    if not [name for name in there.names("") if name.startswith("epoch=")]:
        return []
    rows = spark.read.schema("n long").parquet(url).collect()
    return sorted(row.n for row in rows)


class TestFileSinkOnHdfs(SinkSuite):
    overlaps = 6

    @pytest.fixture
    def open_sink(self, url: str) -> OpenSink:
        return lambda: FileSink(url)

    @pytest.fixture
    def visible(self, spark: SparkSession, url: str) -> ReadRows:
        return lambda: rows_at(spark, url)


class Crash(BaseException):
    """The process died here."""


class Dying:
    """A directory whose process dies after one of its calls, before it is answered."""

    def __init__(self, directory: HadoopDirectory, crash_at: int) -> None:
        self._directory = directory
        self._left = crash_at
        self.dead = False

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._directory, name)
        return self._counted(value) if callable(value) else value

    def _counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any) -> Any:
            if self.dead:
                raise Crash
            self._left -= 1
            answer = call(*map(_whole, args))
            if self._left == 0:
                self.dead = True
                raise Crash
            return answer

        return counted


def _whole(value: Any) -> Any:
    return value if isinstance(value, str | tuple) else list(value)


def frame_of(spark: SparkSession, rows: list[int]) -> DataFrame:
    return spark.createDataFrame([(row, str(row)) for row in rows], "n long, word string")


def opened(spark: SparkSession, url: str) -> HdfsFileSink:
    sink = FileSink(url)
    assert isinstance(sink, HdfsFileSink)
    return started(sink, frame_of(spark, []).schema)


def test_I2_an_epoch_is_shown_whole_or_not_at_all_after_a_death_at_any_call(
    spark: SparkSession, hdfs: Hdfs
) -> None:
    first, second = [1, 2, 3], [4, 5]
    for crash_at_call in itertools.count(1):
        url = f"{hdfs.url}/deaths/{uuid.uuid4().hex}"
        sink = opened(spark, url)
        sink.stage(frame_of(spark, first), epoch(1), "z1")
        sink.commit(sink.prepare())
        dying = Dying(HadoopDirectory(url, spark), crash_at_call)
        sink._folder._opened = dying  # type: ignore[assignment]
        decided: Committable | None = None
        committed = False
        try:
            sink.stage(frame_of(spark, second), epoch(2), "a2")
            decided = sink.prepare()
            sink.commit(decided)
            committed = True
        except Crash:
            pass
        shown = rows_at(spark, url)
        assert shown in (first, first + second), crash_at_call
        if committed:
            assert shown == first + second
        if decided is None:
            assert shown == first
        next_one = opened(spark, url)
        if decided is not None:
            next_one.commit(decided)
        for attempt in next_one.leftovers():
            next_one.abort(attempt)
        assert next_one.leftovers() == []
        if decided is None:
            assert next_one.committed("", 2) is None
            next_one.stage(frame_of(spark, second), epoch(2), "a3")
            next_one.commit(next_one.prepare())
        assert rows_at(spark, url) == first + second, crash_at_call
        if not dying.dead:
            assert crash_at_call > 5, "it makes some calls"
            return


def test_two_that_take_epochs_back_at_once_lose_nothing(spark: SparkSession, url: str) -> None:
    sink = opened(spark, url)
    for number in (1, 2, 3):
        sink.stage(frame_of(spark, [number]), epoch(number), f"a{number}")
        sink.commit(sink.prepare())
    assert sink.unpublish_after(1) == [2, 3]
    assert rows_at(spark, url) == [1]
    aside = HadoopDirectory(f"{url}/_seamark/unpublished", spark)
    kept = [name for name in aside.files_below("") if name.endswith(".parquet")]
    assert {name.split("/")[1] for name in kept} == {"epoch=000002", "epoch=000003"}


def test_what_was_changed_between_prepare_and_commit_is_not_shown(
    spark: SparkSession, url: str
) -> None:
    sink = opened(spark, url)
    sink.stage(frame_of(spark, [1, 2]), epoch(1), "a1")
    committable = sink.prepare()
    there = HadoopDirectory(url, spark)
    parts = [name for name in there.files_below("_seamark/staging") if "part-" in name]
    data = there.read(parts[0])
    there.write(parts[0], bytes([data[0] ^ 1]) + data[1:])
    with pytest.raises(DamageError, match="not those that were written"):
        opened(spark, url).commit(committable)
    assert rows_at(spark, url) == []


def test_a_folder_in_the_way_is_never_written_into(spark: SparkSession, url: str) -> None:
    sink = opened(spark, url)
    sink.stage(frame_of(spark, [1]), epoch(1), "a1")
    committable = sink.prepare()
    HadoopDirectory(url, spark).make_folder("epoch=000001")
    with pytest.raises(LineageError, match="no FileSink has published it"):
        sink.commit(committable)
    assert rows_at(spark, url) == []


def test_the_folder_of_another_output_is_refused(spark: SparkSession, url: str) -> None:
    opened(spark, url)
    schema = frame_of(spark, []).schema
    with pytest.raises(RefusedError, match="belongs to the output"):
        FileSink(url).open(PIPELINE, "another", schema)
    with pytest.raises(RefusedError, match="holds parquet"):
        FileSink(url, format="json").open(PIPELINE, SINK, schema)


def test_opening_a_sink_makes_no_folder(spark: SparkSession, url: str) -> None:
    sink = FileSink(url)
    sink.open(PIPELINE, SINK, frame_of(spark, []).schema)
    assert (sink.committed("", 1), sink.newest(), sink.leftovers()) == (None, None, [])
    assert [*HadoopDirectory(url, spark).names("")] == []
    sink.prepare_target()
    assert [*HadoopDirectory(url, spark).names("")] == ["_seamark"]


def test_a_commit_waits_for_servers_that_were_killed_and_shows_the_rows_once(
    spark: SparkSession, hdfs: Hdfs, url: str
) -> None:
    sink = opened(spark, url)
    sink.stage(frame_of(spark, [1, 2]), epoch(1), "a1")
    committable = sink.prepare()
    hdfs.kill()
    starting = threading.Thread(target=hdfs.start)
    starting.start()
    try:
        # as a pipeline does that finds a server away
        retry_unavailable(partial(sink.commit, committable), 120, "committing")
    finally:
        starting.join()
    sink.commit(committable)
    assert rows_at(spark, url) == [1, 2]


def test_I14_a_pipeline_that_is_cut_off_shows_every_row_once_on_hdfs_too(
    spark: SparkSession, url: str, tmp_path: Path
) -> None:
    expected: Counter[int] = Counter()
    (tmp_path / "in").mkdir()
    for number in range(1, 5):
        rows = [{"n": number * 10 + at} for at in range(3)]
        path = tmp_path / f"in/{number}.json"
        path.write_text("\n".join(map(json.dumps, rows)))
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
        expected.update(row["n"] for row in rows)

    def run(point: str | None = None) -> None:
        at = FailPoint.parse(point) if point else None
        on_step = crash_at(at.step, at.when, at.epoch) if at else None
        p = seamark.Pipeline("hdfs", tmp_path / "store", on_step=on_step)
        stream = spark.readStream.schema("n long").option("maxFilesPerTrigger", 1)
        rows = p.source("rows", stream.json(str(tmp_path / "in")))
        p.sink("rows", rows, FileSink(url))
        p.sink("local", rows, FileSink(tmp_path / "out"))
        p.run()

    for point in ("prepare:after:1", "save:after:2", "commit:after:3"):
        with pytest.raises(SimulatedCrash):
            run(point)
    run()
    assert Counter(rows_at(spark, url)) == expected
    for number in (2, 4):
        calls = seamark.read_epoch(tmp_path / "store", number)["rows"].calls
        read = eval(calls["spark"], {"spark": spark})
        assert {row.n // 10 for row in read.collect()} == set(range(1, number + 1))


def test_an_audit_reads_the_folder_that_the_user_names(
    spark: SparkSession, url: str, tmp_path: Path
) -> None:
    write_input(tmp_path / "input", 2)
    pipeline(spark, tmp_path, FileSink(url)).run(available_now=True)

    def results(**targets: str) -> list[tuple[str, str]]:
        (sink,) = audited(spark, tmp_path / "store", **targets).sinks
        return [(verdict.epochs, verdict.result.value) for verdict in sink.verdicts]

    assert results(trades=url) == [("1", "ok"), ("2", "ok")]
    assert results() == [("1 to 2", "not compared")]


def test_an_audit_beside_servers_that_are_away_calls_no_epoch_unreadable(
    spark: SparkSession, hdfs: Hdfs, url: str, tmp_path: Path
) -> None:
    write_input(tmp_path / "input", 2)
    pipeline(spark, tmp_path, FileSink(url)).run(available_now=True)
    for away in (hdfs.datanode, hdfs):
        away.kill()
        try:
            with pytest.raises(StoreUnavailableError):
                audited(spark, tmp_path / "store", trades=url)
        finally:
            away.start()
    (sink,) = audited(spark, tmp_path / "store", trades=url).sinks
    assert {verdict.result.value for verdict in sink.verdicts} == {"ok"}


@pytest.mark.parametrize("path", ["hdfs://name", "hdfs://name/", "hdfs://u:secret99@name/x"])
def test_an_address_that_names_no_folder_is_refused(path: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        FileSink(path)
    assert "secret99" not in str(caught.value)
