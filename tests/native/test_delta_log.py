"""A Delta log that was cleaned up tells of the query by a whole checkpoint, or is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from seamark import limits
from seamark._common.limited_process import Answer, ask_process
from seamark.cli.spark.arguments import opened_directory
from seamark.errors import DamageError, RefusedError
from seamark.native.sink_tables import table_at
from seamark.native.table_log import TableAt
from tests.native.support.tables import QUERY, delta_table

OTHER = "11111111-2222-3333-4444-555555555555"
UUID = "80a083e8-7026-4e79-81be-64bd76c43a11"


def look(table: Path, batch: int) -> TableAt:
    return table_at(opened_directory, str(table), QUERY, batch)


def clean_up(table: Path, before: int) -> Path:
    """Remove the commits before a version; the log."""
    for number in range(before):
        (table / "_delta_log" / f"{number:020}.json").unlink()
    return table / "_delta_log"


def checkpoint(path: Path, seen: Sequence[tuple[str, int]]) -> None:
    rows = [{"txn": {"appId": app, "version": version}} for app, version in seen]
    kind = pa.struct([("appId", pa.string()), ("version", pa.int64())])
    table = pa.table({"txn": pa.array([None, *(row["txn"] for row in rows)], kind)})
    parquet.write_table(table, path)


@pytest.mark.slow
def test_a_checkpoint_of_the_delta_log_tells_of_commits_that_are_gone(tmp_path: Path) -> None:
    delta_table(tmp_path, [None, (QUERY, 4), (OTHER, 9)])
    log = clean_up(tmp_path, 2)
    checkpoint(log / f"{1:020}.checkpoint.parquet", [(QUERY, 4)])
    assert look(tmp_path, 2) == TableAt("delta", str(tmp_path), 4, None)
    checkpoint(log / f"{2:020}.checkpoint.0000000001.0000000002.parquet", [(OTHER, 9)])
    checkpoint(log / f"{2:020}.checkpoint.0000000002.0000000002.parquet", [(QUERY, 6)])
    assert look(tmp_path, 2).newest_batch == 6


def test_a_checkpoint_with_a_top_level_file_is_read_in_json_and_in_parquet(tmp_path: Path) -> None:
    delta_table(tmp_path, [None, (QUERY, 4), (OTHER, 9)])
    log = clean_up(tmp_path, 2)
    actions = [
        {"checkpointMetadata": {"version": 1}},
        {"txn": {"appId": OTHER, "version": 9}},
        {"txn": {"appId": QUERY, "version": 4, "lastUpdated": 1}},
        {"sidecar": {"path": "a.parquet", "sizeInBytes": 1, "modificationTime": 1}},
    ]
    top = log / f"{1:020}.checkpoint.{UUID}.json"
    top.write_text("".join(f"{json.dumps(action)}\n" for action in actions))
    assert look(tmp_path, 2) == TableAt("delta", str(tmp_path), 4, None)
    top.unlink()
    checkpoint(top.with_suffix(".parquet"), [(QUERY, 5)])
    assert look(tmp_path, 2).newest_batch == 5


def test_a_transaction_is_found_however_its_line_is_spelled(tmp_path: Path) -> None:
    delta_table(tmp_path, [None])
    commit = tmp_path / "_delta_log" / f"{1:020}.json"
    add = {"add": {"path": "a", "partitionValues": {"txn": "7"}}}
    txn = {"txn": {"version": 3, "appId": QUERY}}
    commit.write_text(f" {json.dumps(add)}\r\n {json.dumps(txn, indent=None)} ")
    assert look(tmp_path, 1).newest_batch == 3


def test_a_checkpoint_that_lacks_a_part_is_passed_over(tmp_path: Path) -> None:
    delta_table(tmp_path, [None, (QUERY, 4), None, (OTHER, 9), None])
    log = clean_up(tmp_path, 2)
    checkpoint(log / f"{1:020}.checkpoint.parquet", [(QUERY, 4)])
    checkpoint(log / f"{3:020}.checkpoint.0000000001.0000000002.parquet", [(OTHER, 9)])
    checkpoint(log / f"{3:020}.checkpoint.0000000002.0000000003.parquet", [(OTHER, 9)])
    assert look(tmp_path, 2).newest_batch == 4


@pytest.mark.parametrize(
    "name",
    [
        None,
        f"{1:020}.checkpoint.parquet",
        f"{3:020}.checkpoint.0000000001.0000000002.parquet",
        f"{3:020}.checkpoint.a.b.c.parquet",
        f"{3:020}.checkpoint.{UUID}.avro",
    ],
)
def test_a_log_that_reaches_neither_its_first_commit_nor_a_whole_checkpoint_is_refused(
    tmp_path: Path, name: str | None
) -> None:
    delta_table(tmp_path, [None, (QUERY, 1), (QUERY, 2), (OTHER, 9), None])
    log = clean_up(tmp_path, 3)
    if name is not None:
        checkpoint(log / name, [(OTHER, 9)])
    with pytest.raises(RefusedError, match="does not tell whether") as refused:
        look(tmp_path, 1)
    assert "say --query-id yourself" in str(refused.value)


def test_a_log_with_a_gap_does_not_tell_what_the_commits_below_it_would(tmp_path: Path) -> None:
    delta_table(tmp_path, [None, (QUERY, 1), (QUERY, 2), None])
    (tmp_path / "_delta_log" / f"{2:020}.json").unlink()
    with pytest.raises(RefusedError, match="commits up to version 2 were not searched"):
        look(tmp_path, 1)
    checkpoint(tmp_path / "_delta_log" / f"{9:020}.checkpoint.parquet", [(QUERY, 7)])
    assert look(tmp_path, 1) == TableAt("delta", str(tmp_path), 7, None)


def test_a_log_without_a_commit_is_refused(tmp_path: Path) -> None:
    (tmp_path / "_delta_log").mkdir()
    (tmp_path / "_delta_log" / "_last_checkpoint").write_text("{}")
    with pytest.raises(RefusedError, match="no commit"):
        look(tmp_path, 1)


@pytest.mark.parametrize("folder", ["_commits", "_staged_commits"])
def test_commits_that_somebody_else_decides_about_are_refused(tmp_path: Path, folder: str) -> None:
    delta_table(tmp_path, [None, (QUERY, 1)])
    (tmp_path / "_delta_log" / folder).mkdir()
    assert look(tmp_path, 1).newest_batch == 1
    (tmp_path / "_delta_log" / folder / f"{2:020}.{UUID}.json").write_text("{}")
    with pytest.raises(RefusedError, match="catalog or coordinator decides") as refused:
        look(tmp_path, 1)
    assert "say --query-id yourself" in str(refused.value)


def test_commits_that_are_not_searched_do_not_count_as_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    delta_table(tmp_path, [(QUERY, 0), *[(OTHER, number) for number in range(5)]])
    monkeypatch.setattr(limits, "MOST_TABLE_COMMITS", 6)
    assert look(tmp_path, 0).newest_batch == 0
    monkeypatch.setattr(limits, "MOST_TABLE_COMMITS", 3)
    with pytest.raises(RefusedError, match="commits up to version 2 were not searched"):
        look(tmp_path, 0)
    checkpoint(tmp_path / "_delta_log" / f"{2:020}.checkpoint.parquet", [(QUERY, 0)])
    assert look(tmp_path, 0).newest_batch == 0


def test_a_version_is_not_made_up_from_commits_that_were_not_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    delta_table(tmp_path, [(QUERY, number) for number in range(6)])
    assert look(tmp_path, 0).version == 0
    monkeypatch.setattr(limits, "MOST_TABLE_COMMITS", 3)
    assert look(tmp_path, 0) == TableAt("delta", str(tmp_path), 5, None)


def long_value_in_every_row(path: Path) -> None:
    """A kilobyte that is 12 GiB as a column."""
    ids = pa.DictionaryArray.from_arrays(
        pa.array([0] * 65536, pa.int32()), pa.array(["x" * 200_000])
    )
    txn = pa.StructArray.from_arrays([ids, pa.array([1] * 65536)], ["appId", "version"])
    parquet.write_table(pa.table({"txn": txn}), path, compression="zstd")


def no_version(path: Path) -> None:
    values = [pa.array([QUERY]), pa.array([None], pa.int64())]
    txn = pa.StructArray.from_arrays(values, ["appId", "version"])
    parquet.write_table(pa.table({"txn": txn}), path)


def no_struct(path: Path) -> None:
    parquet.write_table(pa.table({"txn": [1, 2]}), path)


def torn(path: Path) -> None:
    path.write_bytes(b"PAR1 and no more")


@pytest.mark.parametrize("write", [long_value_in_every_row, no_version, no_struct, torn])
def test_a_checkpoint_of_the_delta_log_that_cannot_be_read_or_only_at_great_cost_is_damage(
    write: Callable[[Path], None], tmp_path: Path
) -> None:
    log = tmp_path / "_delta_log"
    log.mkdir()
    write(log / f"{5:020}.checkpoint.parquet")
    with pytest.raises(DamageError, match="cannot be read"):
        look(tmp_path, 1)


def empty_rows(path: Path, rows: int) -> None:
    kind = pa.struct([("appId", pa.string()), ("version", pa.int64())])
    parquet.write_table(pa.table({"txn": pa.nulls(rows, kind)}), path, compression="gzip")


@pytest.mark.slow
def test_all_parts_of_a_checkpoint_are_read_by_one_process_and_have_one_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def counted(module: str, question: bytes, *, patience: float, files: Sequence[int]) -> Answer:
        asked.append(len(files))
        return ask_process(module, question, patience=patience, files=files)

    monkeypatch.setattr("seamark.native.delta_checkpoints.ask_process", counted)
    log = tmp_path / "_delta_log"
    log.mkdir()
    names = [f"{5:020}.checkpoint.{number:010}.{4:010}.parquet" for number in range(1, 5)]
    for name in names:
        empty_rows(log / name, 100_000)
    checkpoint(log / names[2], [(QUERY, 7)])
    assert look(tmp_path, 1).newest_batch == 7
    assert asked == [4]
    # each of them alone would be within the limit
    for name in names[:2]:
        empty_rows(log / name, limits.RECORDS_FLOOR * 3 // 5)
    with pytest.raises(DamageError, match=f"{names[1]} cannot be read.*more rows"):
        look(tmp_path, 1)
    assert asked == [4, 4]


def test_a_checkpoint_of_very_many_parts_or_bytes_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "_delta_log"
    log.mkdir()
    for number in (1, 2):
        checkpoint(log / f"{5:020}.checkpoint.{number:010}.{2:010}.parquet", [(QUERY, number)])
    assert look(tmp_path, 1).newest_batch == 2
    with monkeypatch.context() as lowered:
        lowered.setattr(limits, "MOST_CHECKPOINT_PARTS", 1)
        with pytest.raises(RefusedError, match="in 2 parts"):
            look(tmp_path, 1)
    monkeypatch.setattr(limits, "LARGEST_TABLE_CHECKPOINT", 1000)
    with pytest.raises(RefusedError, match="1000 in 100 are read"):
        look(tmp_path, 1)


def test_nothing_is_imported_from_the_folder_that_a_command_is_run_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "_delta_log"
    log.mkdir()
    checkpoint(log / f"{5:020}.checkpoint.parquet", [(QUERY, 7)])
    (tmp_path / "pyarrow.py").write_text("raise SystemExit('a file of unknown origin was run')")
    monkeypatch.chdir(tmp_path)
    assert look(tmp_path, 1).newest_batch == 7


def test_batches_under_the_name_of_a_function_are_not_taken_for_a_table_that_has_seen_nothing(
    tmp_path: Path,
) -> None:
    delta_table(tmp_path, [None, ("trades/bars", 3), ("trades/bars", 5), (OTHER, 9)])
    with pytest.raises(RefusedError, match="later ones under other names") as refused:
        look(tmp_path, 3)
    assert "'trades/bars' up to 5" in str(refused.value)
    assert look(tmp_path, 9).newest_batch is None
    delta_table(tmp_path / "own", [(QUERY, 4), ("trades/bars", 9)])
    assert look(tmp_path / "own", 3).newest_batch == 4


def test_the_name_of_a_function_may_look_like_the_id_of_a_query(tmp_path: Path) -> None:
    delta_table(tmp_path, [None, (OTHER, 9)])
    with pytest.raises(RefusedError, match=f"later ones under other names[^$]*{OTHER}"):
        look(tmp_path, 3)


@pytest.mark.parametrize("is_json", [True, False])
def test_the_name_of_a_function_is_found_in_a_checkpoint_of_the_log(
    tmp_path: Path, is_json: bool
) -> None:
    delta_table(tmp_path, [None, ("trades/bars", 5), None])
    log = clean_up(tmp_path, 2)
    if is_json:
        (log / f"{1:020}.checkpoint.{UUID}.json").write_text(
            json.dumps({"txn": {"appId": "trades/bars", "version": 5}})
        )
    else:
        checkpoint(log / f"{1:020}.checkpoint.parquet", [("trades/bars", 5)])
    with pytest.raises(RefusedError, match="later ones under other names") as refused:
        look(tmp_path, 3)
    assert "'trades/bars' up to 5" in str(refused.value)
    assert look(tmp_path, 5).newest_batch is None


def test_a_query_that_has_become_a_function_is_not_taken_for_one_that_is_behind(
    tmp_path: Path,
) -> None:
    delta_table(tmp_path, [(QUERY, 2), ("trades/bars", 9)])
    with pytest.raises(RefusedError, match="later ones under other names"):
        look(tmp_path, 3)
