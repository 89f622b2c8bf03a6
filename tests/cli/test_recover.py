"""The walk of a start is explained, with reasons, and nothing is changed by that."""

from __future__ import annotations

from pathlib import Path

import pytest

from seamark import open_store
from seamark.blobs.contract import Blob
from seamark.blobs.filesystem import FilesystemBlobs
from seamark.errors import StoreUnavailableError
from seamark.manifest import SinkCommitStatus
from seamark.store.references import STATE_PREFIX
from tests.cli.support.stores import (
    COMMITTED,
    Commands,
    flip,
    manifest,
    save,
    sidecar,
    stored_manifest,
)


def contents(root: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in root.rglob("*") if file.is_file()}


def test_the_newest_whole_one_is_chosen_and_nothing_changes(seamark: Commands, store: Path) -> None:
    before = contents(store)
    shown = seamark("recover", store, "--explain")
    assert "4  chosen  epoch 4 · at trades 400…402 · manifest valid · state 8 files" in shown
    assert "builds on 3, 2, 1" in shown
    assert "continues with epoch 5" in shown
    assert "Nothing was changed." in shown
    assert contents(store) == before


def test_a_damaged_one_is_skipped_with_its_reason(seamark: Commands, store: Path) -> None:
    flip(sidecar(store, 4))
    shown = seamark("recover", store, "--explain")
    assert "4  skipped  state.bin checksum mismatch" in shown
    assert "3  chosen" in shown
    found = seamark.json("recover", store, "--explain")
    assert found["chosen"]["id"] == 3
    assert [row["id"] for row in found["skipped"]] == [4]


def test_sinks_that_are_not_finished_are_named(seamark: Commands, store: Path) -> None:
    with open_store(store) as found:
        pending = SinkCommitStatus.pending()
        save(found, 5, sink_commit_statuses={"bars": COMMITTED, "large": pending})
    chosen = seamark.json("recover", store, "--explain")["chosen"]
    assert chosen["commits_again"] == ["large"]
    assert "will be committed again" in " ".join(seamark("recover", store, "--explain").split())


def test_nothing_usable_is_damage_and_no_fresh_start(seamark: Commands, store: Path) -> None:
    for number in range(1, 5):
        flip(stored_manifest(store, number))
    shown = seamark("recover", store, "--explain", code=3)
    assert shown.count("skipped") == 4
    assert "a start would refuse" in shown


def test_an_empty_store_and_one_that_was_reset_begin_anew(
    seamark: Commands, store: Path, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    assert "start at epoch 1" in seamark("recover", "empty", "--explain")
    with open_store(store) as found:
        found.claim()
        found.supersede(1, 4)
    assert "start at epoch 1" in " ".join(seamark("recover", store, "--explain").split())


def test_a_store_that_does_not_answer_decides_nothing(
    seamark: Commands, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = FilesystemBlobs.read

    def failing(self: FilesystemBlobs, key: str, limit: int) -> Blob | None:
        if "000004" in key:
            raise StoreUnavailableError(f"reading {key} failed (503 Slow Down)")
        return read(self, key, limit)

    monkeypatch.setattr(FilesystemBlobs, "read", failing)
    seamark("recover", store, "--explain", code=7)
    told = " ".join(seamark.err.split())
    assert "cannot decide: reading" in told
    assert "so no older one was taken. Try again, or see 'seamark doctor store'" in told
    assert "exit code 7" in told


def test_without_explain_it_says_when_recovery_happens(seamark: Commands, store: Path) -> None:
    seamark("recover", store, code=2)
    assert "recovers by itself when it starts" in seamark.err


def test_damage_is_no_fresh_start_whatever_words_it_is_told_in(
    seamark: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with open_store("store") as found, found.partitioned_state.begin(1) as writer:
        writer.put("superseded-agg", 0, bytes(5000))
        path = f"{STATE_PREFIX}{writer.commit().checkpoint_id}"
        found.save(manifest(1, table_store_checkpoint_path=path))
    for file in Path("store", path).rglob("*"):
        if file.is_file() and file.name != "manifest.json":
            flip(file)
    document = seamark.json("recover", "store", "--explain", code=3)
    assert "superseded" in document["skipped"][0]["reason"]
    assert document["outcome"] == "nothing usable"
    checks = seamark.json("doctor", "store", "--read-only", code=3)["checks"]
    assert {"newest checkpoint"} == {c["name"] for c in checks if c["verdict"] == "failed"}


def test_a_path_to_state_that_makes_no_sense_is_damage_of_that_checkpoint_alone(
    seamark: Commands, store: Path
) -> None:
    with open_store(store) as found:
        found.save(manifest(5, table_store_checkpoint_path="tables/ckpt_2"))
    document = seamark.json("recover", store, "--explain")
    assert [row["id"] for row in document["skipped"]] == [5]
    assert "tables/ckpt_2" in document["skipped"][0]["reason"]
    assert document["chosen"]["id"] == 4
    assert seamark.json("verify", store, "--read-data", code=3)["ok"] == 4
    seamark("prune", store, "--keep", 1)
