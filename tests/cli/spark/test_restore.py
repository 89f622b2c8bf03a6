"""``seamark spark restore`` asks what becomes of the sink, and looks where it can."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from seamark.checkpoint_dir.places.local import LocalDirectory
from seamark.native.restore import RestoredDirectory, restore_directory
from seamark.native.snapshot import take_snapshot
from seamark.store import open_store
from tests.cli.support.running import Cli
from tests.cli.support.stores import flip
from tests.native.support.rewinds import make_directory, make_sink, name_provider
from tests.native.support.tables import QUERY, delta_table, iceberg_table

BATCH = 3


@pytest.fixture
def restore(cli: Cli, tmp_path: Path) -> tuple[object, ...]:
    """The command, without what it has to be told; batch 3 is in the store."""
    make_directory(tmp_path / "checkpoint")
    (tmp_path / "checkpoint" / "metadata").write_text(json.dumps({"id": QUERY}))
    store = tmp_path / "store"
    assert cli("spark", "snapshot", tmp_path / "checkpoint", store, "--batch", BATCH) == 0, cli.err
    return ("spark", "restore", store, 1, tmp_path / "new")


def test_the_newest_that_is_pruned_before_it_is_restored_is_another_one(
    cli: Cli, tmp_path: Path, restore: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def go_on() -> None:
        with open_store(tmp_path / "store") as running:
            here = LocalDirectory(str(tmp_path / "checkpoint"))
            take_snapshot(here, running, batch=BATCH + 1, full=True)
            running.prune(1)

    pending = [go_on]

    def overtaken(*given: Any) -> RestoredDirectory:
        if pending:
            pending.pop()()
        return restore_directory(*given)

    monkeypatch.setattr("seamark.cli.spark.restore.restore_directory", overtaken)
    latest = ("spark", "restore", tmp_path / "store", "latest", tmp_path / "new")
    make_sink(tmp_path / "out")
    told = cli.document(*latest, "--file-sink", tmp_path / "out")
    assert told["batch"] == BATCH + 1
    names = {path.name for path in (tmp_path / "out" / "_spark_metadata").iterdir()}
    assert "4" in names
    assert names.isdisjoint({"5", "6"})


def id_in(folder: Path) -> str:
    return str(json.loads((folder / "metadata").read_text())["id"])


def test_nothing_is_restored_before_it_is_said_what_becomes_of_the_sink(
    cli: Cli, tmp_path: Path, restore: tuple[object, ...]
) -> None:
    told = cli.document(*restore, code=6)
    ways = ("--query-id new", "--query-id keep", "--file-sink OUT", "--new-file-sink OUT")
    for way in (*ways, "--table PATH"):
        assert way in told["error"]["hint"]
    assert not (tmp_path / "new").exists()


def test_a_function_that_goes_by_the_number_of_a_batch_is_not_said_to_get_the_batches_again(
    cli: Cli, restore: tuple[object, ...]
) -> None:
    hint = cli.document(*restore, code=6)["error"]["hint"]
    assert "functions (foreachBatch) that drop no number get the batches again" in hint
    assert "A function that goes by the number" in hint
    assert "drops new rows, whatever the id: undo there" in hint


@pytest.mark.parametrize("wish", ["keep", "new"])
def test_the_id_of_the_query_becomes_what_was_said(
    cli: Cli, tmp_path: Path, restore: tuple[object, ...], wish: str
) -> None:
    assert cli.document(*restore, "--query-id", wish)["query_id"] == wish
    assert (id_in(tmp_path / "new") == QUERY) == (wish == "keep")


def test_the_log_of_a_file_sink_goes_back_with_the_directory(
    cli: Cli, tmp_path: Path, restore: tuple[object, ...]
) -> None:
    make_sink(tmp_path / "out")
    told = cli.document(*restore, "--file-sink", tmp_path / "out")
    names = {path.name for path in (tmp_path / "out" / "_spark_metadata").iterdir()}
    assert {"0", "1", "2", "3"} <= names
    assert names.isdisjoint({"4", "5", "6"})
    moved = {path.name for path in (Path(told["aside"]) / "_spark_metadata").iterdir()}
    assert moved == {"4", "5", "6"}
    assert id_in(tmp_path / "new") == QUERY


def test_a_new_folder_of_a_file_sink_gets_a_log_that_ends_with_the_batch(
    cli: Cli, tmp_path: Path, restore: tuple[object, ...]
) -> None:
    told = cli.document(*restore, "--new-file-sink", tmp_path / "later")
    assert (told["query_id"], told["aside"]) == ("keep", None)
    log = {each.name: each.read_text() for each in (tmp_path / "later/_spark_metadata").iterdir()}
    assert log == {"2.compact": "v1", "3": "v1"}
    assert id_in(tmp_path / "new") == QUERY


def test_a_sink_is_left_alone_when_nothing_can_be_restored(
    cli: Cli, tmp_path: Path, restore: tuple[object, ...]
) -> None:
    make_sink(tmp_path / "out")
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "something").touch()
    assert cli(*restore, "--file-sink", tmp_path / "out") == 6
    assert len(list((tmp_path / "out" / "_spark_metadata").iterdir())) == 7


def test_a_sink_is_left_alone_when_the_checkpoint_is_damaged(cli: Cli, tmp_path: Path) -> None:
    directory, store = tmp_path / "checkpoint", tmp_path / "store"
    make_directory(directory)
    (directory / "state" / "0" / "0" / "4.delta").write_bytes(os.urandom(2 << 20))
    assert cli("spark", "snapshot", directory, store, "--batch", BATCH) == 0, cli.err
    flip(max(store.glob("shared/*"), key=lambda path: path.stat().st_size))
    make_sink(tmp_path / "out")
    restore = ("spark", "restore", store, 1, tmp_path / "new")
    assert cli(*restore, "--file-sink", tmp_path / "out") == 3
    assert len(list((tmp_path / "out" / "_spark_metadata").iterdir())) == 7
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("make", [delta_table, iceberg_table])
def test_a_table_that_would_drop_batches_stops_the_restore_and_says_where_to_go_back_to(
    cli: Cli, tmp_path: Path, restore: tuple[object, ...], make: Any
) -> None:
    ids = make(tmp_path / "table", [None, *((QUERY, batch) for batch in range(7))])
    before = ids[BATCH + 1]
    for wish in ((), ("--query-id", "keep")):
        told = cli.document(*restore, "--table", tmp_path / "table", *wish, code=6)
        assert "has batches 4 to 6 of this query" in told["error"]["where"]
        assert str(before) in told["error"]["where"]
        assert not (tmp_path / "new").exists()
    assert cli(*restore, "--table", tmp_path / "table", "--query-id", "new") == 0, cli.err
    assert str(before) in cli.out
    assert "twice" in cli.out


@pytest.mark.parametrize("make", [delta_table, iceberg_table])
def test_a_table_that_is_not_ahead_is_an_answer_by_itself(
    cli: Cli, tmp_path: Path, restore: tuple[object, ...], make: Any
) -> None:
    make(tmp_path / "table", [None, (QUERY, BATCH)])
    told = cli.document(*restore, "--table", tmp_path / "table")
    assert told["query_id"] == "keep"
    assert told["table"]["newest_batch"] == BATCH
    assert told["table"]["version_before"] is None
    assert id_in(tmp_path / "new") == QUERY


def test_a_class_in_the_offset_log_that_is_not_sparks_has_to_be_named(
    cli: Cli, tmp_path: Path
) -> None:
    source, store, new = (tmp_path / name for name in ("checkpoint", "store", "new"))
    make_directory(source)
    entry = source / "offsets" / str(BATCH)
    name_provider(entry, "org.own.Store")
    assert cli("spark", "snapshot", source, store, "--batch", BATCH) == 0, cli.err
    make_sink(tmp_path / "out")
    restore = ("spark", "restore", store, 1, new, "--file-sink", tmp_path / "out")
    log = sorted(path.name for path in (tmp_path / "out" / "_spark_metadata").iterdir())
    for more in ((), ("--own-class", "org.own.Other")):
        told = cli.document(*restore, *more, code=6)
        assert "org.own.Store" in told["error"]["what"]
        assert "--own-class" in told["error"]["hint"]
        assert not new.exists()
        assert sorted(p.name for p in (tmp_path / "out" / "_spark_metadata").iterdir()) == log
    assert cli.document(*restore, "--own-class", "org.own.Store")["batch"] == BATCH
    assert (new / "offsets" / str(BATCH)).read_text() == entry.read_text()
