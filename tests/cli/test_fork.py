"""``seamark fork`` and ``seamark compare``: a store beside the old one, and how they differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seamark.pipeline.recovery.fork import first_of
from seamark.spark.row_digests import FORMULA
from seamark.store import open_store
from tests.cli.support.running import Cli, options_of
from tests.pipeline.support.forks import everything, filled
from tests.support.servers import ObjectServer


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    with open_store(tmp_path / "origin") as store:
        filled(store)
    return tmp_path / "origin"


def test_a_fork_is_made_told_and_made_only_once(cli: Cli, origin: Path, tmp_path: Path) -> None:
    with open_store(origin) as store:
        before = everything(store)
    found = cli.document("fork", f"{origin}@2", tmp_path / "fork")
    assert (found["outcome"], found["checkpoint"], found["epoch"]) == ("forked", 2, 2)
    assert found["copied_bytes"] == 0
    assert found["targets"] == [{"kind": "files", "target": "/data/bars"}]
    assert cli("fork", f"{origin}@2", tmp_path / "fork") == 0
    assert "There already" in cli.out
    assert cli("fork", f"{origin}@3", tmp_path / "fork") == 6
    assert "another checkpoint" in cli.err
    with open_store(origin) as store:
        assert everything(store) == before
    listed = cli.document("list", tmp_path / "fork")
    assert listed["checkpoints"][0]["note"] == f"forked from {origin}@2"
    shown = cli.document("show", tmp_path / "fork", "latest")
    assert shown["fork"]["checkpoint"] == 2
    assert cli("recover", tmp_path / "fork", "--explain") == 0
    assert f"{origin}@2" in " ".join(cli.out.split())


def test_the_newest_whole_checkpoint_is_forked_and_damaged_ones_are_told(
    cli: Cli, origin: Path, tmp_path: Path
) -> None:
    with open_store(origin) as store:
        newest = store.load_by_id(3)
        assert newest is not None
        name = newest.shared_objects[0].name
    path = origin / "shared" / name
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    assert cli("fork", origin, tmp_path / "fork") == 0, cli.err
    assert "checkpoint 3 is newer and damaged" in " ".join(cli.out.split())
    with open_store(tmp_path / "fork") as store:
        first = first_of(store)
        assert first is not None
        assert first.epoch == 2
    assert cli("fork", f"{origin}@3", tmp_path / "other") == 3
    assert "SHA-256 differs" in cli.err


def test_what_is_not_there_has_the_usual_exit_codes(cli: Cli, origin: Path, tmp_path: Path) -> None:
    assert cli("fork", f"{origin}@17", tmp_path / "fork") == 4
    assert cli("fork", tmp_path / "nothing", tmp_path / "fork") == 4
    assert cli("fork", origin, origin) == 1
    assert not (tmp_path / "fork").exists()


def test_from_a_disk_to_a_bucket_and_between_buckets(
    cli: Cli, origin: Path, s3: ObjectServer
) -> None:
    first, second = s3.new_url("a"), s3.new_url("b")
    given = options_of(s3)
    found = cli.document("fork", f"{origin}@latest", first, *given)
    assert found["copied_bytes"] == found["bytes"] > 0
    found = cli.document("fork", first, second, *given)
    assert found["copied_bytes"] == found["bytes"] > 0
    within = f"{first.rpartition('/')[0]}/c"
    found = cli.document("fork", first, within, *given)
    assert found["copied_bytes"] == 0
    for url in (first, second, within):
        assert cli("verify", url, "--read-data", *given) == 0, cli.err


def test_two_stores_are_compared_by_what_their_checkpoints_say(
    cli: Cli, origin: Path, tmp_path: Path
) -> None:
    def digests(rows: int) -> dict[str, Any]:
        digest = f"{rows * 77:032x}"
        of_bars = {"rows": rows, "digest": digest, "since": 3, "formula": FORMULA}
        return {
            "inputs": {"trades": {"read": "the same"}},
            "output_digests": {"bars": {**of_bars, "total_rows": rows, "total_digest": digest}},
        }

    for name, rows in (("a", 5), ("b", 5), ("c", 4)):
        with open_store(tmp_path / name) as store:
            filled(store, 2).add(**digests(rows))
    assert cli("compare", tmp_path / "a", tmp_path / "b") == 0, cli.err
    assert "0 differ" in cli.out
    assert cli("compare", tmp_path / "a", tmp_path / "c", "--epochs", "3..") == 1
    assert "1 fewer" in cli.out
    assert cli("compare", tmp_path / "a", tmp_path / "c", "--epochs", "..2") == 0
    found = cli.document("compare", tmp_path / "a", tmp_path / "c", "--epochs", "3", code=1)
    assert found["different"] is True
    assert [each["epoch"] for each in found["epochs"]] == [3]
    assert cli("compare", tmp_path / "a", tmp_path / "c", "--epochs", "x") == 2
    assert cli("compare", tmp_path / "a", tmp_path / "nothing") == 4


def test_epochs_and_outputs_without_digests_are_counted_when_two_stores_are_compared(
    cli: Cli, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        with open_store(tmp_path / name) as store:
            filled(store, 2).add(inputs={"trades": {"read": "the same"}})
    assert cli("compare", tmp_path / "a", tmp_path / "b", "--epochs", "3") == 0, cli.err
    assert "1 epoch on the same rows: 0 differ · 1 without digests" in cli.out
    found = cli.document("compare", tmp_path / "a", tmp_path / "b", "--epochs", "3")
    assert found["without_digests"] == found["sinks"] == ["bars"]
    assert found["epochs"][0]["outputs"] == {}
    assert found["epochs"][0]["without_digests"] == 1
