"""``seamark spark state``: rows as Spark has them, at a batch and as changes between batches."""

from __future__ import annotations

import csv
import io
import json
import shutil
import uuid
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from seamark import limits, open_store
from seamark.checkpoint_dir.places.directory import Directory, Tree
from seamark.checkpoint_dir.places.local import LocalDirectory
from seamark.checkpoint_dir.places.object_store import ObjectDirectory
from seamark.errors import StoreUnavailableError
from seamark.native.snapshot import take_snapshot
from seamark.native.state_choice import StateRequest
from seamark.native.state_rows import state_frame
from seamark.reports.state_rows import read_state, within_reach
from tests.checkpoint_dir.support.directories import make_copy
from tests.cli.support.running import Cli
from tests.native.support.queries import Outputs, run
from tests.pipeline.support.workloads import write_input
from tests.support.slow_jobs import rest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_input(tmp_path_factory.mktemp("input"), 2)


@pytest.fixture(scope="module")
def counted(
    spark: SparkSession, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Outputs]:
    """The directory of an aggregation in update mode, and what each batch has put out."""
    root = tmp_path_factory.mktemp("counted")
    return root / "ck", run(spark, "counted-hdfs", folder, root / "ck", root / "out")


def put_out(found: Outputs, batch: int) -> Counter[tuple[int, int]]:
    rows = (json.loads(row) for row in found[batch])
    return Counter((row["k"], row["count"]) for row in rows)


def pairs(rows: list[dict[str, Any]]) -> Counter[tuple[int, int]]:
    return Counter((row["key"]["k"], row["value"]["count"]) for row in rows)


@pytest.mark.warm
def test_the_rows_at_a_batch_and_its_changes_are_what_the_query_has_put_out(
    cli: Cli, counted: tuple[Path, Outputs]
) -> None:
    path, found = counted
    first = cli.document("spark", "state", path, "--batch", "0", "--limit", "0")
    assert (first["operator"], first["batch"], first["truncated"]) == (0, 0, False)
    assert pairs(first["rows"]) == put_out(found, 0)
    changes = cli.document("spark", "state", path, "--changes", "1..2", "--limit", "0")
    for batch in (1, 2):
        rows = [row for row in changes["rows"] if row["batch_id"] == batch]
        assert pairs(rows) == put_out(found, batch)
    # a query in update mode puts out every group that changed, so the newest wins
    latest = {key: count for batch in (0, 1, 2) for key, count in put_out(found, batch)}
    now = cli.document("spark", "state", path, "--limit", "0")
    assert now["batch"] == 2
    assert pairs(now["rows"]) == Counter(latest.items())


@pytest.mark.warm
def test_a_table_fits_and_says_when_there_is_more(cli: Cli, counted: tuple[Path, Outputs]) -> None:
    path, _ = counted
    assert cli("spark", "state", path, "--limit", "1", "--partition", "1") == 0
    head, names, row, more = cli.out.splitlines()
    assert "state after batch 2" in head
    assert names.split() == ["key.k", "value.count", "partition_id"]
    assert row.split()[-1] == "1"
    assert "--limit" in more


@pytest.mark.warm
def test_files_hold_all_rows_and_are_never_overwritten(
    cli: Cli, counted: tuple[Path, Outputs], tmp_path: Path
) -> None:
    import pyarrow.parquet as pq

    path, _ = counted
    everything = pairs(cli.document("spark", "state", path, "--limit", "0")["rows"])
    target = tmp_path / "rows.parquet"
    asked = ("spark", "state", path, "--format", "parquet", "--output", target)
    assert cli(*asked) == 0
    assert pairs(pq.ParquetFile(target).read().to_pylist()) == everything
    written = target.read_bytes()
    assert cli(*asked) == 6
    assert target.read_bytes() == written
    assert [path.name for path in tmp_path.iterdir()] == ["rows.parquet"]
    assert cli("spark", "state", path, "--format", "csv", "--limit", "0") == 0
    read = csv.DictReader(io.StringIO(cli.out))
    rows = [{name: json.loads(row[name]) for name in ("key", "value")} for row in read]
    assert pairs(rows) == everything


@pytest.mark.warm
def test_damaged_state_is_one_paragraph_with_spark_s_name_for_it(
    cli: Cli, counted: tuple[Path, Outputs], tmp_path: Path
) -> None:
    shutil.copytree(counted[0], tmp_path / "ck")
    for name in ("3.delta", ".3.delta.crc"):
        (tmp_path / "ck" / "state" / "0" / "1" / name).unlink(missing_ok=True)
    assert cli("spark", "state", tmp_path / "ck") == 3
    assert "CANNOT_LOAD_STATE_STORE" in cli.err
    assert "org.apache.spark" not in cli.err
    assert cli("spark", "state", tmp_path / "ck", "--batch", "1") == 0


@pytest.mark.warm
def test_state_that_takes_far_too_long_for_its_size_is_given_up(
    spark: SparkSession, counted: tuple[Path, Outputs], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "STATE_PATIENCE", 1)
    directory = LocalDirectory(counted[0])
    with pytest.raises(StoreUnavailableError, match="not read the state within 1 s") as told:
        read_state(directory, StateRequest(), spark, lambda frame, _: rest(frame.sparkSession, 60))
    assert "--read-data" in str(told.value)


@pytest.mark.warm
def test_a_checkpoint_of_a_store_is_looked_into_like_a_directory(
    cli: Cli, counted: tuple[Path, Outputs], tmp_path: Path
) -> None:
    path, found = counted
    with open_store(tmp_path / "store") as store:
        take_snapshot(LocalDirectory(path), store, batch=0)
    rows = cli.document("spark", "state", "--from", tmp_path / "store", "--limit", "0")["rows"]
    assert pairs(rows) == put_out(found, 0)


def _on_an_object_store(path: Path) -> ObjectDirectory:
    bucket = ObjectDirectory(f"memory://{uuid.uuid4().hex}", {})
    for name in LocalDirectory(path).listing():
        bucket.write(name, (path / name).read_bytes())
    return bucket


def _read_from(spark: SparkSession, directory: Directory, asked: StateRequest) -> list[str]:
    with (
        within_reach(directory, Tree.of(directory), asked) as (files, reading),
        state_frame(spark, files, reading) as frame,
    ):
        return sorted(map(str, frame.collect()))


ASKED = [StateRequest(), StateRequest(batch=1), StateRequest(changes=(1, 2))]


@pytest.mark.warm
def test_a_directory_on_an_object_store_shows_the_same_rows(
    spark: SparkSession, counted: tuple[Path, Outputs]
) -> None:
    bucket = _on_an_object_store(counted[0])
    for asked in ASKED:
        rows = _read_from(spark, LocalDirectory(counted[0]), asked)
        assert rows
        assert _read_from(spark, bucket, asked) == rows


@pytest.mark.slow
@pytest.mark.warm
@pytest.mark.parametrize(
    "kind", ["counted-rocksdb", "windowed-changelog", "windowed-format2-changelog"]
)
def test_rocksdb_on_an_object_store_shows_the_same_rows(
    spark: SparkSession, folder: Path, tmp_path: Path, kind: str
) -> None:
    run(spark, kind, folder, tmp_path / "ck", tmp_path / "out")
    bucket = _on_an_object_store(tmp_path / "ck")
    for asked in ASKED[:2]:
        rows = _read_from(spark, LocalDirectory(tmp_path / "ck"), asked)
        assert rows
        assert _read_from(spark, bucket, asked) == rows


@pytest.mark.slow
@pytest.mark.warm
def test_each_side_of_a_join_has_its_rows(
    spark: SparkSession, cli: Cli, folder: Path, tmp_path: Path
) -> None:
    run(spark, "joined-hdfs", folder, tmp_path / "ck", tmp_path / "out")
    assert cli("spark", "state", tmp_path / "ck") == 1
    assert "--join-side" in cli.err
    for side, column in (("left", "id"), ("right", "order")):
        rows = cli.document("spark", "state", tmp_path / "ck", "--join-side", side, "--batch", "0")
        assert rows["rows"]
        assert all(row["value"][column] is not None for row in rows["rows"])
    times = [row["value"]["pt"] for row in rows["rows"]]
    assert all(time.endswith("+00:00") for time in times)


@pytest.mark.slow
@pytest.mark.warm
def test_a_variable_of_transform_with_state_is_read_by_its_name(
    spark: SparkSession, cli: Cli, folder: Path, tmp_path: Path
) -> None:
    pytest.importorskip("google.protobuf", reason="transformWithState in Python needs protobuf")
    found = run(spark, "transformed", folder, tmp_path / "ck", tmp_path / "out")
    assert cli("spark", "state", tmp_path / "ck") == 1
    assert "total (ValueState)" in cli.err
    asked = ("spark", "state", tmp_path / "ck", "--state-var", "total", "--limit", "0")
    rows = cli.document(*asked)["rows"]
    latest: dict[int, int] = {}
    for batch in sorted(found):
        latest |= {row["k"]: row["total"] for row in map(json.loads, found[batch])}
    assert {row["key"]["k"]: row["value"]["total"] for row in rows} == latest


def test_what_there_is_to_look_into_is_listed_without_a_spark(cli: Cli, tmp_path: Path) -> None:
    make_copy(tmp_path, 3)
    assert cli("spark", "state", tmp_path, "--list") == 0
    assert "stateStoreSave" in cli.out
    assert "0 to 2" in cli.out
    document = cli.document("spark", "state", tmp_path, "--list")
    assert document["batches"] == [0, 2]
    assert document["operators"][0]["stores"] == ["default"]


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["--batch", "9"], 4),
        (["--operator", "9"], 4),
        (["--changes", "2..1"], 1),
        (["--changes", "soon"], 2),
        (["--format", "parquet"], 2),
        (["--output", "rows"], 2),
        (["--from", "store"], 2),
    ],
)
def test_a_question_without_an_answer_has_the_exit_code_that_says_why(
    cli: Cli, tmp_path: Path, args: list[str], code: int
) -> None:
    make_copy(tmp_path, 3)
    assert cli("spark", "state", tmp_path, *args) == code


def test_a_missing_directory_is_not_found(cli: Cli, tmp_path: Path) -> None:
    assert cli("spark", "state", tmp_path / "nowhere") == 4
