"""``seamark bisect``: a command decides, and halving finds where it begins to fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from seamark.checkpoint_dir.places.local import LocalDirectory
from seamark.native.snapshot import take_snapshot
from seamark.store import open_store
from tests.cli.support.overtaking import after_latest
from tests.cli.support.running import Cli
from tests.native.support.growing import GrowingDirectory
from tests.native.support.rewinds import make_directory, name_provider
from tests.native.test_bisection import filled

EPOCHS = 9


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    filled(tmp_path, EPOCHS)
    monkeypatch.chdir(tmp_path)
    return Path("store")


def test_the_first_epoch_for_which_a_command_fails_is_named(cli: Cli, store: Path) -> None:
    code = cli("bisect", store, "--test", "test -d {dir}/offsets && test {epoch} -lt 6")
    assert code == 0
    assert "The first bad epoch is 6 (checkpoint " in cli.out
    assert "The last good one is 5 (checkpoint " in cli.out
    assert "seamark diff store " in cli.out


def test_the_environment_and_json_carry_the_same(cli: Cli, store: Path) -> None:
    test = 'echo looking at $SEAMARK_DIR; test -f "$SEAMARK_DIR/commits/1" -a $SEAMARK_EPOCH -le 3'
    document = cli.document("bisect", store, "--test", test)
    assert document["first_bad"]["epoch"] in (1, 4)
    assert len(document["tests"]) <= EPOCHS.bit_length()
    assert {each["verdict"] for each in document["tests"]} <= {"good", "bad"}


def test_a_test_that_always_passes_finds_nothing(cli: Cli, store: Path) -> None:
    assert cli("bisect", store, "--test", "true") == 0
    assert "No epoch fails the test." in cli.out


def test_a_test_that_cannot_tell_is_skipped_and_said(cli: Cli, store: Path) -> None:
    test = "test {epoch} -eq 5 && exit 125; test {epoch} -lt 6"
    assert cli("bisect", store, "--test", test) == 0
    assert "or one that was skipped: 5" in " ".join(cli.out.split())


def test_a_command_that_cannot_be_run_decides_nothing(cli: Cli, store: Path) -> None:
    assert cli("bisect", store, "--test", "no-such-program-here {dir}") == 6
    assert "could not be run for epoch" in cli.err
    assert "says nothing about the epoch" in " ".join(cli.err.split())


def test_no_test_is_run_on_a_directory_that_names_a_class_of_others(
    cli: Cli, tmp_path: Path
) -> None:
    root, store = tmp_path / "checkpoint", tmp_path / "store"
    directory = make_directory(root)
    name_provider(root / "offsets/3", "org.own.Store")
    with open_store(store) as opened:
        take_snapshot(directory, opened, batch=3)
    bisect = ("bisect", store, "--test", f"touch {tmp_path}/ran")
    told = cli.document(*bisect, code=6)
    assert "org.own.Store" in told["error"]["what"]
    assert "--own-class" in told["error"]["hint"]
    assert not (tmp_path / "ran").exists()
    assert cli("bisect", store, "--test", "true", "--own-class", "org.own.Store") == 0


def test_known_ends_shorten_the_search(cli: Cli, store: Path) -> None:
    ids = [row["id"] for row in cli.document("list", store)["checkpoints"]][::-1]
    test = "test {epoch} -lt 6"
    found = cli.document("bisect", store, "--test", test, "--good", ids[3], "--bad", ids[6])
    assert found["first_bad"]["epoch"] == 6
    assert len(found["tests"]) <= 2


def words(cli: Cli) -> str:
    """What was printed, whatever the width of a line."""
    return " ".join((cli.out + cli.err).split())


def test_epochs_that_build_on_a_lost_checkpoint_are_counted_and_not_tried(
    cli: Cli, store: Path
) -> None:
    ids = [row["id"] for row in cli.document("list", store)["checkpoints"]][::-1]
    (manifest,) = store.glob(f"**/*{ids[4]:06}*/manifest.json")
    manifest.unlink()
    assert cli("bisect", store, "--test", "test {epoch} -lt 3") == 0
    assert "4 epochs were left out: a checkpoint that they build on is gone" in words(cli)
    found = cli.document("bisect", store, "--test", "true")
    assert found["left_out"] == 4
    assert {each["verdict"] for each in found["tests"]} == {"good"}
    manifest_of_first = next(store.glob(f"**/*{ids[0]:06}*/manifest.json"))
    manifest_of_first.unlink()
    assert cli("bisect", store, "--test", "true") == 0
    assert "No epoch could be tested." in words(cli)


def test_the_newest_that_is_pruned_before_the_search_is_another_one(
    cli: Cli, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def go_on() -> None:
        directory.run_batch()
        with open_store(store) as running:
            take_snapshot(LocalDirectory(str(directory.root)), running, full=True)
            running.prune(1)

    directory = GrowingDirectory(Path("query"))
    directory.next_batch = EPOCHS
    after_latest(monkeypatch, go_on)
    found = cli.document("bisect", store, "--test", "true", "--bad", "latest")
    assert found["first_bad"]["epoch"] == EPOCHS + 1


def test_a_checkpoint_that_was_never_there_is_not_looked_for_again(cli: Cli, store: Path) -> None:
    known = ("--good", 999, "--bad", "latest")
    told = cli.document("bisect", store, "--test", "true", *known, code=4)
    assert "no checkpoint 999" in told["error"]["what"]
