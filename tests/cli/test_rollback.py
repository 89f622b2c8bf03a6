"""``seamark rollback``: shown before it is done; then the pipeline goes on with the right rows."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import seamark
from seamark.pipeline.recovery.rollback import RollbackPlan, plan_rollback, roll_back
from seamark.reports.named_checkpoints import resolve_id
from seamark.sinks import FileSink
from seamark.store import CheckpointStore, open_store
from tests.cli.support.running import Cli, closed_folder, epoch, flip, without_rights

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from seamark.pipeline.run import Run


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with open_store(tmp_path / "store") as made:
        made.claim(pipeline="orders")
        for number in range(1, 6):
            epoch(made, number, number)
        epoch(made, 6, 6, pending=("view",))
    return tmp_path / "store"


def test_without_yes_it_says_per_sink_what_would_happen_and_changes_nothing(
    cli: Cli, store: Path
) -> None:
    before = {p: p.read_bytes() for p in store.rglob("*") if p.is_file()}
    assert cli("rollback", store, "3") == 0
    words = " ".join(cli.out.split())
    assert "3 checkpoints, 4 to 6, would be given up (up to epoch 6)" in words
    assert "runs again from epoch 4" in words
    for line in ("sums files epoch 6 unpublish:", "view key-value epoch 6 unpublish if undo:"):
        assert line in words
    assert "alerts function epoch 6 beside:" in words
    assert "Nothing was changed." in words
    assert "--yes" in words
    assert {p: p.read_bytes() for p in store.rglob("*") if p.is_file()} == before


def test_with_yes_the_earlier_one_is_the_newest_and_a_new_timeline_begins(
    cli: Cli, store: Path
) -> None:
    with open_store(store) as found:
        old = found.owner().timeline
    document = cli.document("rollback", store, "3", "--yes")
    assert document["done"] is True
    assert document["given_up"] == [4, 5, 6]
    new_id = document["new_id"]
    with open_store(store) as found:
        assert found.recover_latest_validated().chosen_id == new_id > 6
        again = found.load_by_id(new_id)
        assert again is not None
        assert again.epoch == 3
        assert again.extra["timeline"] != old
        assert old in again.extra["abandoned"]
    assert cli("rollback", store, "5", "--yes") == 6, "an earlier rollback has given it up"
    assert cli("rollback", store, "2", "--yes") == 0
    assert "Rolled back" in cli.out


def test_the_newest_one_gives_nothing_up_and_begins_a_new_timeline_with_yes_only(
    cli: Cli, store: Path
) -> None:
    with open_store(store) as found:
        old = found.owner()
    assert cli("rollback", store, "latest") == 0
    words = " ".join(cli.out.split())
    assert "nothing is given up, and a new timeline would begin" in words
    assert "bring their targets back to epoch 6" in words
    assert "Nothing was changed. To do it, add --yes" in words
    with open_store(store) as found:
        assert found.owner() == old
    document = cli.document("rollback", store, "latest", "--yes")
    assert (document["done"], document["given_up"]) == (True, [])
    with open_store(store) as found:
        again = found.load_latest()
        assert again is not None
        assert (again.checkpoint_id, again.epoch) == (document["new_id"], 6)
        assert again.timeline == found.owner().timeline != old.timeline
        assert old.timeline in (again.abandoned or ())
        assert found.owner().superseded == ()


def test_what_a_pipeline_saves_meanwhile_is_not_given_up_with_the_newest_one(
    cli: Cli, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def overtaken(opened: CheckpointStore, checkpoint_id: int) -> RollbackPlan:
        plan = plan_rollback(opened, checkpoint_id)
        with open_store(store) as running:
            running.claim(pipeline="orders")
            epoch(running, running.next_id(), 7)
        return plan

    with monkeypatch.context() as patched:
        patched.setattr("seamark.cli.rollback.plan_rollback", overtaken)
        assert cli("rollback", store, "latest", "--yes") == 6
    assert "checkpoint 7 was saved meanwhile" in cli.err
    with open_store(store) as found:
        newest = found.load_latest()
        assert newest is not None
        assert (newest.checkpoint_id, found.owner().superseded) == (7, ())
    document = cli.document("rollback", store, "latest", "--yes")
    assert (document["id"], document["given_up"]) == (7, [])


def test_what_is_saved_while_the_newest_one_is_looked_up_is_not_given_up_either(
    cli: Cli, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with saving_after_the_look(store, monkeypatch, times=1):
        document = cli.document("rollback", store, "latest", "--yes")
    assert (document["id"], document["given_up"]) == (7, [])
    with saving_after_the_look(store, monkeypatch, times=100):
        assert cli("rollback", store, "latest", "--yes") == 6
    assert "was saved meanwhile" in cli.err
    with open_store(store) as found:
        assert found.owner().superseded == ()


def test_the_newest_one_may_follow_damaged_ones_which_are_given_up(cli: Cli, store: Path) -> None:
    (store / "checkpoints/checkpoint_000006/manifest.json").write_bytes(b"{")
    document = cli.document("rollback", store, "latest", "--yes")
    assert (document["id"], document["given_up"]) == (5, [6])


def test_the_newest_one_is_another_one_when_it_is_pruned_or_given_up_meanwhile(
    cli: Cli, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with saving_after_the_look(store, monkeypatch, times=1, keep=1):
        assert cli.document("rollback", store, "latest")["id"] == 7
    with saving_after_the_look(store, monkeypatch, times=1, back_to=7):
        document = cli.document("rollback", store, "latest")
    assert (document["epoch"], document["given_up"]) == (7, [])


@contextmanager
def saving_after_the_look(
    store: Path, monkeypatch: pytest.MonkeyPatch, *, times: int, keep: int = 100, back_to: int = 0
) -> Iterator[None]:
    """Have a pipeline save, prune and roll back, so many times, each when 'latest' is looked up."""
    left = [times]

    def overtaken(opened: CheckpointStore, text: str) -> int:
        found = resolve_id(opened, text)
        if left[0]:
            left[0] -= 1
            with open_store(store) as running:
                running.claim(pipeline="orders")
                number = running.next_id()
                epoch(running, number, number)
                running.prune(keep)
                if back_to:
                    roll_back(running, back_to, "orders")
        return found

    with monkeypatch.context() as patched:
        patched.setattr("seamark.cli.rollback.resolve_id", overtaken)
        yield


def test_a_writer_that_is_alive_is_named_before_it_is_fenced(cli: Cli, store: Path) -> None:
    with open_store(store) as running:
        running.claim(writer="driver-2", pipeline="orders")
        document = cli.document("rollback", store, "3")
        assert document["owner"]["alive"] is True
        assert "driver-2" in document["owner"]["writer"]
        assert cli("rollback", store, "3") == 0
        assert "would be fenced" in " ".join(cli.out.split())
        # it may hang inside its function, which no fence reaches
        assert "see that the process has ended before you bring" in " ".join(cli.out.split())
        running.check_claim()
        assert cli("rollback", store, "3", "--yes") == 0
        with pytest.raises(seamark.SeamarkError, match="another writer"):
            running.check_claim()


def test_what_is_damaged_missing_or_not_there_is_refused_and_fences_nobody(
    cli: Cli, store: Path, tmp_path: Path
) -> None:
    with open_store(store) as running:
        running.claim(pipeline="orders")
        flip(store / "checkpoints/checkpoint_000003/manifest.json")
        assert cli("rollback", store, "3", "--yes") == 3
        assert cli("rollback", store, "17", "--yes") == 4
        assert cli("rollback", store, "0", "--yes") == 4
        running.check_claim()
    flip(store / "checkpoints/checkpoint_000006/manifest.json")
    document = cli.document("rollback", store, "4")
    assert document["given_up"] == [5, 6], "a damaged newest one is given up as well"
    assert cli("rollback", tmp_path / "nothing", "1") == 4
    (tmp_path / "empty").mkdir()
    assert cli("rollback", tmp_path / "empty", "1") == 4
    error = cli.document("rollback", tmp_path / "empty", "latest", code=4)["error"]
    assert error["exit_code"] == 4


def test_snapshots_of_a_native_directory_say_what_is_left_to_do(cli: Cli, tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as made:
        for number in (1, 2):
            epoch(made, number, number, sinks={}, extra={"native": {"query": "6f1c"}})
    assert cli("rollback", tmp_path / "store", "1", "--yes") == 0
    assert "seamark spark rollback" in " ".join(cli.out.split())


def test_a_store_without_permission_proves_nothing(cli: Cli) -> None:
    with closed_folder() as folder:
        cli("rollback", folder, "1")
        with without_rights():
            assert cli("rollback", folder, "1") == 7
    assert "Permission denied" in cli.err


@pytest.mark.slow
@pytest.mark.warm
def test_a_pipeline_goes_on_exactly_after_a_rollback_and_on_a_copy_too(
    spark: SparkSession, tmp_path: Path, cli: Cli
) -> None:
    (tmp_path / "in").mkdir()
    for number in range(4):
        rows = [{"k": n % 3, "v": n * (number + 1)} for n in range(30)]
        path = tmp_path / f"in/{number}.json"
        path.write_text("\n".join(map(json.dumps, rows)))
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))

    def run(store: Path) -> Run:
        made = seamark.Pipeline("sums", store, output_mode="update", full_every=3)
        read = spark.readStream.schema("k int, v int").option("maxFilesPerTrigger", 1)
        rows = made.source("rows", read.json(str(tmp_path / "in")))
        totals = rows.groupBy("k").sum("v").toDF("k", "s")
        made.sink("sums", totals, FileSink(tmp_path / "sums"))
        return made.run()

    def visible() -> list[tuple[int, int, int]]:
        import pyarrow.dataset as ds

        found = ds.dataset(tmp_path / "sums", format="parquet", partitioning="hive").to_table()
        return sorted((row["epoch"], row["k"], row["s"]) for row in found.to_pylist())

    store = tmp_path / "store"
    assert run(store).epoch == 4
    before = visible()
    assert len(before) == 12
    assert cli.document("rollback", store, "2")["sinks"][0]["action"] == "unpublish"
    assert cli("rollback", store, "2", "--yes") == 0, cli.err
    assert cli("copy", store, tmp_path / "moved") == 0, cli.err
    shutil.rmtree(store)  # what goes on is the copy alone
    done = run(tmp_path / "moved")
    assert done.epoch == 4
    assert any("2 epochs taken back" in note for note in done.report.notes)
    assert visible() == before
