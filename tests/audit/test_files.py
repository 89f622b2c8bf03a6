"""Whatever happens to the folder of a FileSink, an audit finds it, and names the epoch."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from seamark import Pipeline, open_store
from seamark.errors import StoreUnavailableError
from seamark.sinks import FileSink, files
from tests.audit.support.pipelines import (
    EPOCHS,
    ROWS,
    audited,
    damage,
    damage_found,
    pipeline,
    rewrite,
    ten_epochs,
    write_input,
)
from tests.pipeline.support.workloads import settings_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

Copy = Callable[[], Path]


@pytest.fixture(scope="module")
def original(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("ten")
    ten_epochs(spark, root)
    return root


@pytest.fixture
def copied(original: Path, tmp_path: Path) -> Path:
    """The output of the ten epochs, to be damaged."""
    shutil.copytree(original / "out", tmp_path / "out")
    return tmp_path / "out"


def test_what_was_written_is_what_is_shown(spark: SparkSession, original: Path) -> None:
    found = audited(spark, original / "store")
    assert not found.is_damaged
    assert found.chain == {}
    assert found.epoch == EPOCHS
    (sink,) = found.sinks
    assert [verdict.epochs for verdict in sink.verdicts] == [str(n + 1) for n in range(EPOCHS)]
    assert {verdict.found_rows for verdict in sink.verdicts} == {ROWS}
    with settings_of(spark, {"spark.sql.session.timeZone": "Asia/Tokyo"}):
        assert not audited(spark, original / "store").is_damaged


SEED = int(os.environ.get("SEAMARK_SEED", "1"))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("number", range(200))
def test_every_damage_is_found_and_named(
    spark: SparkSession, original: Path, copied: Path, number: int
) -> None:
    chosen = random.Random(SEED * 1000 + number)
    kind, epochs = damage(copied, chosen)
    found = damage_found(audited(spark, original / "store", trades=str(copied)))
    assert {(int(epoch), result) for _, epoch, result in found} == {(e, kind) for e in epochs}


def test_a_folder_that_is_gone_and_a_file_that_is_broken_are_told_apart(
    spark: SparkSession, original: Path, copied: Path
) -> None:
    shutil.rmtree(copied / "epoch=000003")
    (file,) = list((copied / "epoch=000007").glob("part-*"))[:1]
    file.write_bytes(file.read_bytes()[:-20])
    found = damage_found(audited(spark, original / "store", trades=str(copied)))
    assert found == [("trades", "3", "lost"), ("trades", "7", "unreadable")]


def test_files_that_were_rewritten_with_the_same_rows_are_fine(
    spark: SparkSession, original: Path, copied: Path
) -> None:
    for path in copied.glob("epoch=*/part-*"):
        rewrite(path, lambda rows: rows.reverse())
    assert not audited(spark, original / "store", trades=str(copied)).is_damaged


def test_epochs_without_a_checkpoint_are_compared_as_a_sum(
    spark: SparkSession, tmp_path: Path
) -> None:
    store = ten_epochs(spark, tmp_path, keep=2, full_every=1)
    with open_store(store) as opened:
        assert len(opened.list_ids()) < 5
    (sink,) = audited(spark, store).sinks
    first = sink.verdicts[0]
    assert first.first == 1
    assert first.last > 1
    assert not sink.is_damaged
    assert first.expected_rows == ROWS * first.last
    path = next((tmp_path / "out" / "epoch=000002").glob("part-*"))
    rewrite(path, lambda rows: rows.__delitem__(0))
    assert damage_found(audited(spark, store)) == [("trades", first.epochs, "lost")]


def test_merged_epochs_are_compared_as_a_sum(spark: SparkSession, tmp_path: Path) -> None:
    sink = FileSink(tmp_path / "out", epochs_per_folder=3)
    store = ten_epochs(spark, tmp_path, sink, keep=1, full_every=1)
    assert sink.compact(store, spark=spark) == [3, 6, 9]
    assert not audited(spark, store).is_damaged
    path = next(p for p in (tmp_path / "out" / "upto=000006").glob("epoch=*/part-*"))
    rewrite(path, lambda rows: rows.append(dict(rows[0])))
    ((_, epochs, result),) = damage_found(audited(spark, store))
    assert result == "doubled"
    assert epochs.startswith("1 to")


@pytest.mark.parametrize("file_format", ["json", "csv"])
def test_text_that_does_not_keep_every_value_is_proven_by_its_bytes(
    spark: SparkSession, tmp_path: Path, file_format: str
) -> None:
    sink = FileSink(tmp_path / "out", file_format)  # type: ignore[arg-type]
    store = ten_epochs(spark, tmp_path, sink)
    assert not audited(spark, store).is_damaged
    path = next(p for p in (tmp_path / "out" / "epoch=000004").glob("part-*"))
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[1:]))
    assert damage_found(audited(spark, store)) == [("trades", "4", "lost")]


def one_epoch(spark: SparkSession, root: Path, sink: FileSink, rows: list[dict[str, Any]]) -> Path:
    (root / "input").mkdir()
    (root / "input" / "0.json").write_text("\n".join(map(json.dumps, rows)))
    pipeline(spark, root, sink).run(available_now=True)
    return root / "store"


def test_csv_with_lines_and_blanks_in_its_values_is_read_as_it_was_written(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = [{"n": 1, "name": "one\ntwo"}, {"n": 2, "name": " padded "}, {"n": 3, "name": "x"}]
    store = one_epoch(spark, tmp_path, FileSink(tmp_path / "out", "csv"), rows)
    ((verdict,),) = [sink.verdicts for sink in audited(spark, store).sinks]
    assert (verdict.result, verdict.found_rows, verdict.text) == ("ok", 3, "")


def test_json_that_spark_cannot_read_back_is_proven_by_its_bytes_or_counted(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "input").mkdir()
    stream = spark.readStream.schema("n int").option("maxFilesPerTrigger", 1)
    rows = stream.json(str(tmp_path / "input")).selectExpr("n", "map(n, named_struct('x', 1)) AS m")
    sink = FileSink(tmp_path / "out", "json", epochs_per_folder=2)
    p = Pipeline("audited", tmp_path / "store", progress=None, keep=1, full_every=1)
    p.sink("trades", p.source("rows", rows), sink)
    for number in range(3):
        (tmp_path / "input" / f"{number}.json").write_text(f'{{"n":{number}}}')
    p.run(available_now=True)
    store = tmp_path / "store"
    assert not audited(spark, store).is_damaged
    assert sink.compact(store, spark=spark) == [2]
    assert not audited(spark, store).is_damaged
    path = next((tmp_path / "out").rglob("epoch=000003/part-*"))
    path.write_text('{"n":2,"m":{"2":{"x":2}}}\n')
    assert damage_found(audited(spark, store)) == [("trades", "3", "edited")]
    path.unlink()
    assert damage_found(audited(spark, store)) == [("trades", "3", "lost")]


def test_another_number_of_rows_than_were_written_is_never_ok(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark writes nothing for a row of csv whose only column is null."""
    (tmp_path / "input").mkdir()
    (tmp_path / "input" / "0.json").write_text('{"name":"a"}\n{"name":null}')
    p = Pipeline("audited", tmp_path / "store", progress=None)
    stream = spark.readStream.schema("name string").json(str(tmp_path / "input"))
    p.sink("trades", p.source("rows", stream), FileSink(tmp_path / "out", "csv"))
    p.run(available_now=True)
    assert damage_found(audited(spark, tmp_path / "store")) == [("trades", "1", "lost")]


def test_an_empty_text_that_was_written_as_a_partition_is_proven_by_the_bytes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As earlier versions wrote it; now it is refused."""
    monkeypatch.setattr(files, "without_odd_texts", lambda df, _: df)
    rows = [{"n": 1, "name": "x"}, {"n": 2, "name": ""}]
    store = one_epoch(spark, tmp_path, FileSink(tmp_path / "out", partition_by="name"), rows)
    assert not audited(spark, store).is_damaged
    epoch = tmp_path / "out" / "epoch=000001"
    (epoch / "name=x").rename(epoch / "name=y")
    assert damage_found(audited(spark, store)) == [("trades", "1", "edited")]


def test_partition_columns_and_their_nulls_are_compared_too(
    spark: SparkSession, tmp_path: Path
) -> None:
    store = ten_epochs(spark, tmp_path, FileSink(tmp_path / "out", partition_by="name"))
    assert not audited(spark, store).is_damaged
    epoch = tmp_path / "out" / "epoch=000002"
    (epoch / "name=name-1").rename(epoch / "name=name-9")
    assert damage_found(audited(spark, store)) == [("trades", "2", "edited")]


def test_after_a_rollback_only_the_new_history_counts(spark: SparkSession, tmp_path: Path) -> None:
    store = ten_epochs(spark, tmp_path)
    pipeline(spark, tmp_path, FileSink(tmp_path / "out")).rollback(6)
    write_input(tmp_path / "input", 2, EPOCHS)
    pipeline(spark, tmp_path, FileSink(tmp_path / "out")).run(available_now=True)
    found = audited(spark, store)
    assert not found.is_damaged
    assert found.epoch == EPOCHS + 2


def test_epochs_from_before_the_digests_are_told(spark: SparkSession, tmp_path: Path) -> None:
    write_input(tmp_path / "input", 3)
    sink = FileSink(tmp_path / "out")
    pipeline(spark, tmp_path, sink, digests=False).run(available_now=True)
    (none,) = audited(spark, tmp_path / "store").sinks
    assert [v.text for v in none.verdicts] == ["no checkpoint has a digest of its rows"]
    write_input(tmp_path / "input", 2, 3)
    pipeline(spark, tmp_path, FileSink(tmp_path / "out")).run(available_now=True)
    (some,) = audited(spark, tmp_path / "store").sinks
    assert [(v.epochs, v.result.value) for v in some.verdicts] == [
        ("4", "ok"),
        ("5", "ok"),
        ("1 to 3", "not compared"),
    ]


@pytest.mark.parametrize("below", ["epoch=000003", "epoch=000003/part-*"])
@pytest.mark.parametrize("is_named", [True, False])
def test_no_link_in_the_folder_of_a_sink_is_followed(
    spark: SparkSession, original: Path, copied: Path, tmp_path: Path, below: str, is_named: bool
) -> None:
    taken = next((copied if is_named else original / "out").glob(below))
    taken.rename(tmp_path / "elsewhere")
    taken.symlink_to(tmp_path / "elsewhere")
    try:
        with pytest.raises(StoreUnavailableError, match="is a link"):
            audited(spark, original / "store", **({"trades": str(copied)} if is_named else {}))
    finally:
        taken.unlink()
        (tmp_path / "elsewhere").rename(taken)


def test_a_pipe_in_an_epoch_is_not_waited_for(
    spark: SparkSession, original: Path, copied: Path
) -> None:
    os.mkfifo(copied / "epoch=000003" / "part-99999.parquet")
    found = damage_found(audited(spark, original / "store", trades=str(copied)))
    assert [(epoch, result) for _, epoch, result in found] == [("3", "unreadable")]
