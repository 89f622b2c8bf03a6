"""``seamark copy``: from any store to any other, finished by repeating it, honest about damage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seamark.cli import copy
from seamark.errors import FencedError, RefusedError, StoreUnavailableError
from seamark.pipeline.recovery.rollback import roll_back
from seamark.store import open_store
from seamark.store.copy.plan import CopyPlan, plan_copy
from seamark.store.copy.run import SourceRolledBack
from tests.cli.support.overtaking import after_latest
from tests.cli.support.running import Cli, closed_folder, epoch, flip, options_of, without_rights
from tests.store.support.copies import COUNTING, fill, problems
from tests.support.servers import ObjectServer


@pytest.fixture
def source(tmp_path: Path) -> Path:
    with open_store(tmp_path / "source") as store:
        fill(store)
    return tmp_path / "source"


def test_a_directory_is_copied_and_said_to_be_verified(
    cli: Cli, source: Path, tmp_path: Path
) -> None:
    assert cli("copy", source, tmp_path / "target") == 0
    assert "4 copied" in cli.out
    assert "verified" in cli.out
    with open_store(tmp_path / "target") as target:
        assert problems(target, COUNTING) == []
    assert cli("copy", source, tmp_path / "target") == 0
    assert "0 copied" in cli.out
    assert "4 there already" in cli.out


def test_json_tells_what_became_of_each(cli: Cli, source: Path, tmp_path: Path) -> None:
    found = cli.document("copy", source, tmp_path / "target", 5, "--pins")
    assert [(each["id"], each["outcome"]) for each in found["checkpoints"]] == [
        (1, "copied"),
        (2, "copied"),
        (5, "copied"),
    ]
    assert found["copied"] == 3
    assert found["copied_bytes"] == sum(each["bytes"] for each in found["checkpoints"]) > 30_000
    assert found["pins"] == ["before-upgrade"]
    with open_store(tmp_path / "target") as target:
        assert set(target.pins()) == {"before-upgrade"}


def test_to_a_bucket_and_back_everything_stays_the_same(
    cli: Cli, source: Path, tmp_path: Path, s3: ObjectServer
) -> None:
    url = s3.new_url("copy")
    assert cli("copy", source, url, *options_of(s3, "--to-storage-option")) == 0, cli.err
    with open_store(url, storage_options=s3.storage_options) as there:
        assert problems(there, COUNTING) == []
    assert cli("copy", url, tmp_path / "back", *options_of(s3)) == 0, cli.err
    with open_store(tmp_path / "back") as back, open_store(source) as first:
        assert problems(back, COUNTING) == []
        for checkpoint_id in COUNTING:
            assert back.load_by_id(checkpoint_id) == first.load_by_id(checkpoint_id)
    other = s3.new_url("other")
    assert cli("copy", url, other, *options_of(s3)) == 0, "without its own the options are shared"
    with open_store(other, storage_options=s3.storage_options) as there:
        assert problems(there, COUNTING) == []


def test_a_damaged_one_is_told_with_exit_3_and_the_others_arrive(
    cli: Cli, source: Path, tmp_path: Path
) -> None:
    flip(source / "checkpoints/checkpoint_000005/state.bin")
    assert cli("copy", source, tmp_path / "target") == 3
    assert "2 copied" in cli.out
    assert "2 damaged" in cli.out
    with open_store(tmp_path / "target") as target:
        assert problems(target, [1, 2]) == []
    found = cli.document("copy", source, tmp_path / "target", code=3)
    reasons = {each["id"]: each["reason"] for each in found["checkpoints"]}
    assert "checksum" in reasons[5]
    assert "builds on 5" in reasons[6]
    assert cli("copy", source, tmp_path / "target", "6") == 3
    assert "so 6 was not copied" in cli.err
    flip(source / "checkpoints/checkpoint_000005/manifest.json")
    assert cli("copy", source, tmp_path / "target", "6") == 3
    with open_store(tmp_path / "target") as target:
        assert target.list_ids() == [1, 2]


def test_what_is_missing_empty_or_in_use_has_its_own_exit_code(
    cli: Cli, source: Path, tmp_path: Path
) -> None:
    assert cli("copy", tmp_path / "nothing", tmp_path / "target") == 4
    assert not (tmp_path / "target").exists()
    (tmp_path / "empty").mkdir()
    assert cli("copy", tmp_path / "empty", tmp_path / "target") == 0
    assert not (tmp_path / "target").exists()
    assert "nothing to copy" in cli.out
    assert cli("copy", source, tmp_path / "target", "17") == 4
    assert cli("copy", source, tmp_path / "target", "4") == 6
    with open_store(tmp_path / "target") as used:
        used.claim()
        assert cli("copy", source, tmp_path / "target") == 5
    error = cli.document("copy", source, source, code=1)["error"]
    assert "same store" in error["what"]


def test_a_source_without_permission_proves_nothing_about_it(cli: Cli) -> None:
    with closed_folder() as folder:
        cli("copy", folder, folder.parent / "target")
        with without_rights():
            assert cli("copy", folder, folder.parent / "target") == 7
    assert "Permission denied" in cli.err


def test_a_secret_of_the_target_is_in_no_error(cli: Cli, source: Path, s3: ObjectServer) -> None:
    given = options_of(s3, "--to-storage-option")
    given = [each.replace("=testing", "=hunter2hunter2") for each in given]
    url = s3.new_url() + "-that-is-not-there"
    assert cli("copy", source, url, *given, "-vv") != 0
    assert "hunter2" not in cli.out + cli.err
    assert cli("copy", source, url, "--to-storage-option", "hunter2hunter2") == 2
    assert "hunter2" not in cli.out + cli.err


def test_a_target_that_a_dead_writer_has_claimed_can_be_taken_over(
    cli: Cli, source: Path, tmp_path: Path
) -> None:
    assert cli("copy", source, tmp_path / "target") == 0
    with open_store(tmp_path / "target") as dead:
        dead.claim()
        assert cli("copy", source, tmp_path / "target") == 5
        assert "--take-over" in cli.err
        assert cli("copy", source, tmp_path / "target", "--take-over") == 0
        assert dead.owner().released
        with pytest.raises(FencedError):
            dead.check_claim()
    with open_store(tmp_path / "other") as other:
        other.claim(pipeline="bills")
        assert cli("copy", source, tmp_path / "other", "--take-over") == 6
        other.check_claim()  # what is refused fences nobody


def test_what_has_no_checksum_is_copied_and_not_said_to_be_verified(
    cli: Cli, tmp_path: Path
) -> None:
    there = Path(__file__).parents[1] / "fixtures/laminar/laminardb-0.17.0"
    assert cli("copy", there, tmp_path / "copy") == 0
    assert "verified" not in cli.out
    # one of the three has no state at all
    assert "2 of them without a checksum" in cli.out


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST.", "127.0.0.2", "[::1]", "0.0.0.0"])
def test_a_bucket_is_not_copied_onto_itself_under_another_name_of_this_machine(
    cli: Cli, s3: ObjectServer, host: str
) -> None:
    url = s3.new_url("orders")
    with open_store(url, storage_options=s3.storage_options) as store:
        epoch(store, 1, 1)
    other = [word.replace("127.0.0.1", host) for word in options_of(s3, "--to-storage-option")]
    assert other != options_of(s3, "--to-storage-option")
    assert cli("copy", url, f"{url}/", *options_of(s3), *other) == 1
    assert "same store" in cli.err


def test_the_newest_that_is_given_up_and_pruned_before_it_is_copied_is_another_one(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = open_store(tmp_path / "source")
    running.claim(pipeline="orders")
    for number in (1, 2, 3):
        epoch(running, number, number)
    look_at = plan_copy

    def overtaken() -> None:
        roll_back(running, 1, "orders")

    def planned(*args: Any, **options: Any) -> CopyPlan:
        try:
            return look_at(*args, **options)
        except RefusedError:
            running.prune(1)
            raise

    after_latest(monkeypatch, overtaken)
    monkeypatch.setattr(copy, "plan_copy", planned)
    found = cli.document("copy", tmp_path / "source", tmp_path / "target", "latest")
    newest = running.list()[-1]
    assert (found["checkpoints"][-1]["id"], newest[1]) == (newest[0], 1)
    running.close()


@pytest.mark.parametrize("which", [[], ["latest"], ["3"]])
def test_a_source_that_is_rolled_back_meanwhile_is_copied_again_unless_an_id_is_named(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: list[str]
) -> None:
    running = open_store(tmp_path / "source")
    running.claim(pipeline="orders")
    for number in (1, 2, 3):
        epoch(running, number, number)
    look_at, plans = plan_copy, list[CopyPlan]()

    def planned(*args: Any, **options: Any) -> CopyPlan:
        plans.append(look_at(*args, **options))
        if len(plans) == 1:
            roll_back(running, 1, "orders")
        return plans[-1]

    monkeypatch.setattr(copy, "plan_copy", planned)
    code = cli("copy", tmp_path / "source", tmp_path / "target", *which)
    if which == ["3"]:
        assert code == 7
        assert "do not start a pipeline on it" in " ".join(cli.err.split())
        return
    assert code == 0
    target = open_store(tmp_path / "target")
    newest, there = running.load_latest(), target.load_latest()
    assert newest is not None
    assert there is not None
    assert (there.checkpoint_id, there.timeline) == (newest.checkpoint_id, newest.timeline)
    assert target.owner().superseded == running.owner().superseded
    running.close()


def test_what_a_copy_of_two_histories_may_have_left_is_told_when_it_cannot_be_repeated(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = open_store(tmp_path / "source")
    epoch(source, 1, 1)
    outcomes = iter([SourceRolledBack("it was rolled back"), StoreUnavailableError("no answer")])

    def failing(*_: Any, **__: Any) -> None:
        raise next(outcomes)

    monkeypatch.setattr(copy, "copy_checkpoints", failing)
    assert cli("copy", tmp_path / "source", tmp_path / "target") == 7
    assert "it was rolled back" in cli.err
