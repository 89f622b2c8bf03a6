"""A batch that an adopted query has begun and not finished never reaches a target twice unasked."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from seamark import Pipeline, open_store
from seamark.blobs.memory import MemoryBlobs
from seamark.capture.declared_inputs import DeclaredInput
from seamark.checkpoint_dir.places.local import LocalCopy
from seamark.errors import InvalidInputError, RefusedError
from seamark.pipeline.recovery.adoption import begun_batches, fitting_batch
from seamark.pipeline.recovery.begun_batch import require_answered
from seamark.pipeline.recovery.pipeline_changes import PipelineChanges
from seamark.sinks import FileSink, ForeachBatchSink
from seamark.sinks.contract import Description
from seamark.spark.kafka.subscriptions import Subscription
from seamark.store import CheckpointStore
from seamark.store.layout import ObjectLayout
from tests.pipeline.support.tables import Table, by_key, values_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUERY = "5f0b1d5e-2f5c-4c52-9a35-3a6a2c0a1d11"


@pytest.fixture
def old(tmp_path: Path) -> LocalCopy:
    """A directory whose query has committed batches 0 and 1 and begun batch 2."""
    made = LocalCopy(str(tmp_path / "old"))
    made.write("metadata", json.dumps({"id": QUERY}).encode())
    for path in ("offsets/0", "commits/0", "offsets/1", "commits/1", "offsets/2"):
        made.write(path, b"v1")
    return made


class _DeltaTable:
    """What a sink says of the Delta table that it writes to."""

    def __init__(self, path: Path, newest_batch: int | None) -> None:
        self._path = path
        log = path / "_delta_log"
        log.mkdir(parents=True)
        for version in range(-1, -1 if newest_batch is None else newest_batch + 1):
            action: Any = {"commitInfo": {}}
            if version >= 0:
                action = {"txn": {"appId": QUERY, "version": version}}
            (log / f"{version + 1:020}.json").write_text(json.dumps(action))
        if newest_batch is None:
            (log / f"{0:020}.json").write_text(json.dumps({"commitInfo": {}}))

    def describe(self) -> Description:
        return Description("delta", str(self._path))


def test_only_batches_after_the_last_commit_were_begun(old: LocalCopy) -> None:
    assert begun_batches(old) == [2]
    old.write("commits/2", b"v1")
    assert begun_batches(old) == []


def test_a_begun_batch_runs_only_when_somebody_says_so(old: LocalCopy) -> None:
    with pytest.raises(RefusedError, match="has begun batch 2 and not finished") as refused:
        require_answered(old, [], None)
    assert "adopt_begun='run'" in str(refused.value.hint)
    [note] = require_answered(old, [], "run")
    assert note.startswith("batch 2 of the adopted query")


@pytest.mark.parametrize("answer", [None, "run"])
def test_a_begun_batch_that_a_table_of_the_pipeline_has_never_runs(
    old: LocalCopy, tmp_path: Path, answer: str | None
) -> None:
    has_it: Any = _DeltaTable(tmp_path / "table", 2)
    with pytest.raises(RefusedError, match="the table of a sink has later ones"):
        require_answered(old, [has_it], answer)


def test_a_directory_that_is_older_than_a_table_of_the_pipeline_is_not_adopted(
    old: LocalCopy, tmp_path: Path
) -> None:
    old.remove("offsets/2")  # as 'spark restore --without-plan' leaves it
    ahead: Any = _DeltaTable(tmp_path / "table", 5)
    with pytest.raises(RefusedError, match="the table of a sink has later ones") as refused:
        require_answered(old, [ahead], None)
    assert "RESTORE TABLE … TO VERSION AS OF 2" in str(refused.value)
    old.write("metadata", json.dumps({"id": "11111111-1111-1111-1111-111111111111"}).encode())
    assert require_answered(old, [ahead], None) == []
    old.write("metadata", json.dumps({"id": QUERY}).encode())
    equal: Any = _DeltaTable(tmp_path / "equal", 1)
    assert require_answered(old, [equal], None) == []


def test_a_begun_batch_that_the_table_of_the_query_lacks_runs_without_a_question(
    old: LocalCopy, tmp_path: Path
) -> None:
    lacks_it: Any = _DeltaTable(tmp_path / "lacks", 1)
    assert require_answered(old, [lacks_it], None)
    of_others: Any = _DeltaTable(tmp_path / "others", None)
    with pytest.raises(RefusedError, match="its sink may have the rows"):
        require_answered(old, [of_others], None)


def test_a_query_without_a_finished_batch_is_told_to_finish_it(tmp_path: Path) -> None:
    old = LocalCopy(str(tmp_path))
    old.write("metadata", json.dumps({"id": QUERY}).encode())
    old.write("offsets/0", b"v1")
    with pytest.raises(RefusedError, match="has begun a batch and committed none"):
        begun_batches(old)


TRADES = DeclaredInput("trades", "file:/data/trades", (0,))
QUOTES = DeclaredInput("quotes", "file:/data/quotes", (1,))


def _finished(old: LocalCopy, *lines: str, **logs: str) -> LocalCopy:
    """A directory whose query has finished batch 0, with one line for each source."""
    old.destroy()
    old.write("metadata", json.dumps({"id": QUERY}).encode())
    entry = '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}'
    old.write("offsets/0", "\n".join(["v1", entry, *lines]).encode())
    old.write("commits/0", b'v1\n{"nextBatchWatermarkMs":0}')
    for name, text in logs.items():
        old.write(f"sources/{name[1:].replace('_', '/')}", text.encode())
    return old


def _log_of(*uris: str) -> str:
    return "\n".join(
        ["v1", *(f'{{"path":"{uri}","timestamp":1,"batchId":{n}}}' for n, uri in enumerate(uris))]
    )


def _reading(*inputs: DeclaredInput, **may_lose: dict[str, str]) -> Any:
    sources = {name: {"may_lose": lossy} for name, lossy in may_lose.items()}
    return SimpleNamespace(
        leaves=[declared.source for declared in inputs],
        inputs=[declared._replace(lines=(n,)) for n, declared in enumerate(inputs)],
        structure={"sources": sources, "state_partitions": 0, "operators": []},
    )


def test_a_source_does_not_go_on_where_the_adopted_query_has_read_another_one(
    old: LocalCopy,
) -> None:
    one, two = _log_of("file:///data/trades/1.json"), _log_of("file:///data/quotes/7.json")
    _finished(old, '{"logOffset":0}', '{"logOffset":0}', s0_0=one, s1_0=two)
    assert fitting_batch(old, _reading(TRADES, QUOTES)).batch == 0
    with pytest.raises(RefusedError, match="source 'quotes' would go on where the query has read"):
        fitting_batch(old, _reading(QUOTES, TRADES))
    # files that are known by their names alone may have moved
    known = {"fileNameOnly": "true"}
    assert fitting_batch(old, _reading(QUOTES, TRADES, quotes=known, trades=known)).batch == 0
    _finished(old, '{"logOffset":0}', "-", s0_0=one)
    assert fitting_batch(old, _reading(TRADES, QUOTES)).batch == 0
    # before its path was changed the query has read another folder
    moved = _log_of("file:///old/1.json", "file:///data/trades/1.json")
    _finished(old, '{"logOffset":1}', "-", **{"s0_1.compact": moved})
    assert fitting_batch(old, _reading(TRADES, QUOTES)).batch == 0


def test_a_topic_is_not_read_from_where_the_adopted_query_has_read_another_one(
    old: LocalCopy,
) -> None:
    of_trades, of_quotes = (
        DeclaredInput(name, topics=Subscription(name, frozenset({name, "both"})))
        for name in ("trades", "quotes")
    )
    _finished(old, '{"trades":{"0":5}}', '{"quotes":{"0":9},"gone":{"0":1}}')
    assert fitting_batch(old, _reading(of_trades, of_quotes)).batch == 0
    with pytest.raises(RefusedError, match="in the order of the query"):
        fitting_batch(old, _reading(of_quotes, of_trades))


@pytest.mark.warm
def test_no_row_is_read_twice_by_a_pipeline_that_reads_in_another_order_than_the_adopted_query(
    spark: SparkSession, tmp_path: Path
) -> None:
    def read(name: str) -> DataFrame:
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "1.json").write_text(json.dumps({"v": 1}))
        return spark.readStream.schema("v long").json(str(tmp_path / name / "*.json"))

    query = read("trades").union(read("quotes")).writeStream.format("noop")
    finished = query.option("checkpointLocation", str(tmp_path / "old"))
    finished.trigger(availableNow=True).start().awaitTermination()

    def run(*names: str) -> None:
        p = Pipeline("shop", tmp_path / "store", adopt=tmp_path / "old", progress=None)
        for name in names:
            p.sink(name, p.source(name, read(name)), FileSink(tmp_path / f"out-{name}"))
        p.run()

    with pytest.raises(RefusedError, match="source 'quotes' would go on where the query has read"):
        run("quotes", "trades")
    run("trades", "quotes")
    assert not [*tmp_path.glob("out-*/epoch=*/part-*")]


def test_another_answer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="adopt_begun must be 'run'"):
        Pipeline("shop", tmp_path / "store", adopt=tmp_path / "old", adopt_begun="skip")


def test_damaged_checkpoints_are_no_reason_to_adopt_a_query_once_more(tmp_path: Path) -> None:
    blobs = MemoryBlobs()
    store = CheckpointStore(blobs, ObjectLayout())
    settings = SimpleNamespace(adopt_begun=None)
    declared: Any = SimpleNamespace(
        adopted=None, settings=settings, compiled=SimpleNamespace(outputs=[])
    )
    gone: Any = LocalCopy(str(tmp_path / "gone"))
    changes = PipelineChanges(declared, store, gone, gone, lambda *_: nullcontext(lambda _: None))
    with pytest.raises(RefusedError, match="no query that has committed a batch"):
        changes.refuse_impossible(None)
    blobs.create("manifests/manifest-000001.json", b"damaged")
    changes.refuse_impossible(None)  # the start says that they are damaged


@pytest.mark.warm
def test_rows_of_a_begun_batch_are_in_the_target_once(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = Table(tmp_path / "table.db")
    read = spark.readStream.schema("v long").option("maxFilesPerTrigger", 1)
    (tmp_path / "in").mkdir()
    for number in range(3):
        lines = [json.dumps({"v": number * 10 + row}) for row in range(10)]
        (tmp_path / "in" / f"{number}.json").write_text("\n".join(lines))

    def by_hand(*, dies_in: int = -1) -> None:
        def write(df: DataFrame, batch: int) -> None:
            table.append(values_of(df), "the query", batch)
            if batch == dies_in:
                raise RuntimeError("killed after its sink has the batch")

        query = (
            read.json(str(tmp_path / "in"))
            .writeStream.option("checkpointLocation", str(tmp_path / "old"))
            .trigger(availableNow=True)
            .foreachBatch(write)
            .start()
        )
        query.awaitTermination()

    def adopting(**options: Any) -> Pipeline:
        p = Pipeline("shop", tmp_path / "store", adopt=tmp_path / "old", progress=None, **options)
        rows = p.source("in", read.json(str(tmp_path / "in")))
        p.sink("rows", rows, ForeachBatchSink(by_key(table), idempotent=True))
        return p

    with pytest.raises(Exception, match="killed after its sink"):
        by_hand(dies_in=1)
    with pytest.raises(RefusedError, match="has begun batch 1 and not finished"):
        adopting().run()
    with open_store(tmp_path / "store") as store:
        assert store.owner().generation == 0  # nobody was fenced
    by_hand()
    adopting().run()
    assert "leave adopt= in the program" in caplog.text  # there was nothing left to read
    assert table.values() == Counter(range(30))


@pytest.mark.warm
def test_a_reset_is_decided_only_when_the_query_can_be_adopted_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    read = spark.readStream.schema("v long").option("maxFilesPerTrigger", 1)

    def add(number: int) -> None:
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / f"{number}.json").write_text(json.dumps({"v": number}))

    def adopting(*columns: str) -> Pipeline:
        options: Any = {"policy": "auto_reset", "progress": None}
        p = Pipeline("shop", tmp_path / "store", adopt=tmp_path / "old", **options)
        rows = p.source("in", read.json(str(tmp_path / "in")))
        p.sink("rows", rows.selectExpr(*columns), FileSink(tmp_path / "out"))
        return p

    add(0)
    query = read.json(str(tmp_path / "in")).writeStream.format("noop")
    old = query.option("checkpointLocation", str(tmp_path / "old"))
    old.trigger(availableNow=True).start().awaitTermination()
    add(1)
    adopting("v").run()
    with open_store(tmp_path / "store") as store:
        before = store.load_latest()
    (tmp_path / "old").rename(tmp_path / "away")
    with pytest.raises(RefusedError, match="cannot be adopted"):
        adopting("v", "v + 1 AS w").run()
    with open_store(tmp_path / "store") as store:
        assert store.load_latest() == before is not None
