"""``seamark spark rollback`` shows first, asks what it must know, and says how to go back."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import pytest

from seamark import open_store
from seamark.checkpoint_dir.places.directory import Tree
from seamark.checkpoint_dir.places.local import LocalDirectory
from seamark.checkpoint_dir.places.object_store import ObjectDirectory
from seamark.native.rewind.rewind import plan_rewind, rewind
from seamark.native.snapshot import take_snapshot
from tests.cli.support.running import Cli, options_of
from tests.native.support.rewinds import (
    Stopped,
    Stopping,
    contents,
    make_directory,
    make_sink,
    name_provider,
)
from tests.support.servers import ObjectServer

TARGET = 3


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    make_directory(tmp_path / "checkpoint")
    return _old(tmp_path / "checkpoint")


def _old(root: Path) -> Path:
    """Files that were written a while ago, as those of a query that was stopped."""
    for path in root.rglob("*"):
        os.utime(path, (1_700_000_000, 1_700_000_000))
    return root


def copy_on(s3: ObjectServer, checkpoint: Path) -> str:
    """The URL of a copy of a directory on an object store."""
    url = s3.new_url("jobs/checkpoint")
    with closing(ObjectDirectory(url, s3.storage_options)) as remote:
        for path, data in contents(LocalDirectory(checkpoint)).items():
            remote.write(path, data)
    return url


def test_without_yes_it_shows_everything_and_changes_nothing(cli: Cli, checkpoint: Path) -> None:
    before = contents(LocalDirectory(checkpoint))
    assert cli("spark", "rollback", checkpoint, "--to-batch", TARGET) == 0
    for told in ("from batch 6 to 3", "state", "commits", "offsets", "source logs", "sources/0/3"):
        assert told in cli.out
    assert "--file-sink OUT" in cli.out
    assert "Nothing was changed." in cli.out
    assert contents(LocalDirectory(checkpoint)) == before
    assert os.listdir(checkpoint.parent) == ["checkpoint"]


def test_a_store_does_not_bring_a_class_of_others_into_the_directory(
    cli: Cli, checkpoint: Path, tmp_path: Path
) -> None:
    name_provider(checkpoint / f"offsets/{TARGET}", "org.own.Store")
    with open_store(tmp_path / "store") as store:
        take_snapshot(LocalDirectory(checkpoint), store, batch=TARGET)
        take_snapshot(LocalDirectory(checkpoint), store)  # which proves the other's history
    # Spark has removed the batch since
    for path in (f"offsets/{TARGET}", f"commits/{TARGET}", f"state/0/0/{TARGET}.delta"):
        (checkpoint / path).unlink()
    _old(checkpoint)
    before = contents(LocalDirectory(checkpoint))
    args = ("spark", "rollback", checkpoint, "--to-batch", TARGET, "--store", tmp_path / "store")
    told = cli.document(*args, "--query-id", "keep", "--yes", code=6)
    assert "org.own.Store" in told["error"]["what"]
    assert contents(LocalDirectory(checkpoint)) == before
    told = cli.document(*args, "--own-class", "org.own.Store")
    assert told["checkpoint"] == 1


def test_yes_alone_is_refused_because_a_sink_may_drop_what_is_run_again(
    cli: Cli, checkpoint: Path
) -> None:
    before = contents(LocalDirectory(checkpoint))
    told = cli.document("spark", "rollback", checkpoint, "--to-batch", TARGET, "--yes", code=6)
    assert "--query-id new" in told["error"]["hint"]
    assert contents(LocalDirectory(checkpoint)) == before


def test_it_says_where_everything_went_and_how_to_undo_it(cli: Cli, checkpoint: Path) -> None:
    args = ("spark", "rollback", checkpoint, "--to-batch", TARGET, "--query-id", "keep", "--yes")
    told = cli.document(*args)
    assert told["done"]
    assert (told["from_batch"], told["to_batch"]) == (6, TARGET)
    assert told["snapshot"]["batch"] == 6
    assert Tree.of(LocalDirectory(checkpoint)).batches("commits") == [0, 1, 2, 3]
    moved = {each["kind"]: each["files"] for each in told["moves"]}
    assert moved == {"state": 9, "commits": 4, "offsets": 5, "sources": 4}
    assert len(LocalDirectory(told["aside"]).listing()) == sum(moved.values())
    with open_store(told["store"]) as store:
        assert store.validate_checkpoint(told["snapshot"]["id"]).valid
    again = checkpoint.parent / "again"
    undo = ("spark", "restore", told["store"], told["snapshot"]["id"], again)
    assert cli(*undo, "--query-id", "keep") == 0
    assert Tree.of(LocalDirectory(again)).batches("commits")[-1] == 6


def test_a_person_is_told_what_a_restart_will_do(cli: Cli, checkpoint: Path) -> None:
    args = ("spark", "rollback", checkpoint, "--to-batch", TARGET, "--query-id", "new", "--yes")
    metadata = (checkpoint / "metadata").read_bytes()
    assert cli(*args) == 0, cli.err
    assert "A restart plans batch 4 again" in cli.out
    assert "checkpoint 1 · batch 6" in cli.out
    assert f"seamark spark restore {checkpoint}.seamark 1 NEW_PATH" in cli.out
    assert (checkpoint / "metadata").read_bytes() != metadata


def test_a_second_rollback_under_a_new_query_id_finds_a_store_of_its_own(
    cli: Cli, checkpoint: Path
) -> None:
    for target in (TARGET, TARGET - 1):
        args = ("spark", "rollback", checkpoint, "--to-batch", target, "--query-id", "new")
        assert cli.document(*args, "--yes")["snapshot"]["id"] == 1
        _old(checkpoint)
    stores = [name for name in os.listdir(checkpoint.parent) if ".seamark" in name]
    assert len(stores) == 2
    args = ("spark", "rollback", checkpoint, "--to-batch", 1, "--query-id", "keep")
    told = cli.document(*args, "--store", f"{checkpoint}.seamark", code=6)
    assert "another query" in told["error"]["what"]


def test_a_bricked_directory_is_rewound_although_it_cannot_be_taken_into_a_store(
    cli: Cli, checkpoint: Path
) -> None:
    (checkpoint / "state/0/1/7.delta").unlink()  # batch 6 was not consumed
    args = ("spark", "rollback", checkpoint, "--to-batch", 5, "--query-id", "keep", "--yes")
    assert cli(*args) == 0, cli.err
    assert "No snapshot was taken" in cli.out
    assert Tree.of(LocalDirectory(checkpoint)).batches("commits")[-1] == 5


def test_a_batch_that_is_gone_comes_from_the_store(cli: Cli, checkpoint: Path) -> None:
    store = f"{checkpoint}.seamark"
    assert cli("spark", "snapshot", checkpoint, store, "--batch", 2) == 0
    (checkpoint / "state/0/0/2.delta").unlink()
    args = ("spark", "rollback", checkpoint, "--to-batch", 2, "--query-id", "keep", "--yes")
    told = cli.document(*args)
    assert told["checkpoint"] == 1
    assert (checkpoint / "state/0/0/2.delta").exists()
    assert Tree.of(LocalDirectory(checkpoint)).batches("offsets") == [1, 2]


def test_a_batch_that_nobody_has_is_refused_with_those_that_can_be_had(
    cli: Cli, checkpoint: Path
) -> None:
    assert cli("spark", "snapshot", checkpoint, f"{checkpoint}.seamark", "--batch", 3) == 0
    for name in ("2.delta", "3.delta", "4.delta"):
        (checkpoint / "state/0/0" / name).unlink()
    told = cli.document("spark", "rollback", checkpoint, "--to-batch", 2, code=6)
    assert "batch 0, 5 to 6 of the directory" in told["error"]["hint"]
    assert f"batch 3 of {checkpoint}.seamark" in told["error"]["hint"]


def test_the_log_of_a_file_sink_goes_back_too(cli: Cli, checkpoint: Path) -> None:
    out = checkpoint.parent / "out"
    log = make_sink(out)
    args = ("spark", "rollback", checkpoint, "--to-batch", TARGET, "--file-sink", out)
    told = cli.document(*args, "--yes")
    assert told["unlisted"] == [f"file:///out/{number}" for number in range(4, 7)]
    assert contents(log).keys() == {"0", "1", "2", "3"}
    assert "_spark_metadata/6" in LocalDirectory(told["aside"]).listing()


def test_a_new_folder_of_a_file_sink_gets_a_log_and_the_old_one_stays(
    cli: Cli, checkpoint: Path
) -> None:
    out, new = checkpoint.parent / "out", checkpoint.parent / "new"
    before = contents(make_sink(out))
    args = ("spark", "rollback", checkpoint, "--to-batch", TARGET, "--new-file-sink")
    assert cli(*args, new, "--file-sink", out) == 2
    assert "is not new" in cli.document(*args, out, code=6)["error"]["what"]
    assert not cli.document(*args, new)["done"]
    assert not new.exists()
    told = cli.document(*args, new, "--yes")
    assert (told["query_id"], told["unlisted"]) == ("keep", [])
    assert contents(LocalDirectory(new)) == {
        "_spark_metadata/2.compact": b"v1",
        "_spark_metadata/3": b"v1",
    }
    assert contents(LocalDirectory(out / "_spark_metadata")) == before
    assert not cli.document(*args, new, "--yes")["needed"]


def test_a_new_folder_of_a_file_sink_can_be_on_s3(
    cli: Cli, checkpoint: Path, s3: ObjectServer
) -> None:
    url = copy_on(s3, checkpoint)
    new = s3.new_url("jobs/new")
    args = ("spark", "rollback", url, "--to-batch", TARGET, "--new-file-sink", new, "--yes")
    assert cli(*args, *options_of(s3)) == 0
    log = ObjectDirectory(f"{new}/_spark_metadata", s3.storage_options)
    assert contents(log) == {"2.compact": b"v1", "3": b"v1"}
    log.close()


def test_a_folder_without_the_log_of_a_sink_is_refused(cli: Cli, checkpoint: Path) -> None:
    args = ("spark", "rollback", checkpoint, "--to-batch", TARGET, "--file-sink")
    told = cli.document(*args, checkpoint.parent, code=6)
    assert "no log of a file sink" in told["error"]["what"]


def test_a_directory_that_changes_meanwhile_is_left_alone(
    cli: Cli, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listing = LocalDirectory.listing
    seen: list[int] = []

    def listing_while_running(self: LocalDirectory) -> object:
        seen.append(1)
        (checkpoint / "state/0/0/99.delta").write_bytes(b"%d" % len(seen))
        return listing(self)

    monkeypatch.setattr(LocalDirectory, "listing", listing_while_running)
    args = ("spark", "rollback", checkpoint, "--to-batch", TARGET, "--query-id", "keep", "--yes")
    told = cli.document(*args, code=6)
    assert "a query seems to be running" in told["error"]["what"]
    assert (checkpoint / "commits/6").exists()


def test_an_interrupted_rollback_is_named_and_finished_by_the_same_command(
    cli: Cli, checkpoint: Path
) -> None:
    directory = Stopping(LocalDirectory(checkpoint), [12])
    with pytest.raises(Stopped):
        rewind(directory, plan_rewind(Tree.of(directory), TARGET), directory.sibling(".first"))
    _old(checkpoint)
    args = ("spark", "rollback", checkpoint, "--to-batch", TARGET, "--query-id", "keep")
    assert cli(*args) == 0
    assert "begun before and not finished" in cli.out
    told = cli.document(*args, "--yes")
    assert told["done"]
    assert told["snapshot"] is None, "a half-done directory was taken into the store"
    assert Tree.of(LocalDirectory(checkpoint)).batches("offsets") == [0, 1, 2, 3]


@pytest.mark.parametrize("is_held", [True, False])
@pytest.mark.parametrize("repeated_with", ["new", "keep"])
def test_a_rollback_to_a_new_query_id_is_finished_although_the_id_was_written_already(
    cli: Cli,
    checkpoint: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_held: bool,
    repeated_with: str,
) -> None:
    store = checkpoint.parent / "store"
    assert cli("spark", "snapshot", checkpoint, store, "--batch", 2) == 0
    if is_held:
        (checkpoint / "state/0/0/2.delta").unlink()
    before = (checkpoint / "metadata").read_bytes()
    args = ("spark", "rollback", checkpoint, "--to-batch", 2, "--store", store, "--yes")
    remove = LocalDirectory.remove

    def killed(self: LocalDirectory, paths: Iterable[str]) -> None:
        if self.url == str(checkpoint):
            raise KeyboardInterrupt
        remove(self, paths)

    with monkeypatch.context() as patched:
        patched.setattr(LocalDirectory, "remove", killed)
        assert cli(*args, "--query-id", "new") == 130
    written = (checkpoint / "metadata").read_bytes()
    assert written != before
    _old(checkpoint)
    told = cli.document(*args, "--query-id", repeated_with)
    assert told["done"]
    assert told["checkpoint"] == (1 if is_held else None)
    assert (checkpoint / "metadata").read_bytes() == (written if repeated_with == "new" else before)
    assert Tree.of(LocalDirectory(checkpoint)).batches("offsets")[-1] == 2


def test_nothing_to_do_is_said_and_no_error(cli: Cli, checkpoint: Path) -> None:
    args = ("spark", "rollback", checkpoint, "--to-batch", TARGET, "--query-id", "keep", "--yes")
    assert cli(*args) == 0
    assert cli("spark", "rollback", checkpoint, "--to-batch", TARGET, "--yes") == 0
    assert "there is nothing to do" in cli.out


def test_a_missing_path_is_an_error(cli: Cli, tmp_path: Path) -> None:
    assert cli("spark", "rollback", tmp_path / "none", "--to-batch", 1) == 4


def test_a_directory_on_s3_is_rewound_in_place(
    cli: Cli, checkpoint: Path, s3: ObjectServer
) -> None:
    url = copy_on(s3, checkpoint)
    args = ("spark", "rollback", url, "--to-batch", TARGET, "--query-id", "keep", "--yes")
    told = cli.document(*args, *options_of(s3))
    assert told["store"].endswith("jobs/checkpoint.seamark")
    remote = ObjectDirectory(url, s3.storage_options)
    assert Tree.of(remote).batches("commits") == [0, 1, 2, 3]
    aside = ObjectDirectory(f"{url}{told['aside'].rpartition('checkpoint')[2]}", s3.storage_options)
    assert len(aside.listing()) == sum(each["files"] for each in told["moves"])
    with open_store(f"{url}.seamark", storage_options=dict(s3.storage_options)) as store:
        assert store.validate_checkpoint(1).valid
    remote.close()
    aside.close()


def test_a_log_of_the_sink_that_is_no_text_is_damage(
    cli: Cli, checkpoint: Path, tmp_path: Path
) -> None:
    make_sink(tmp_path / "out")
    entry = tmp_path / f"out/_spark_metadata/{TARGET}"
    entry.write_bytes(entry.read_bytes() + b"\xff")
    told = cli.document(
        "spark", "rollback", checkpoint, "--to-batch", TARGET, "--file-sink", tmp_path / "out",
        code=3,
    )  # fmt: skip
    assert f"{TARGET} is not a text" in told["error"]["what"]
