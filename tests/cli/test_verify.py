"""Verification finds what is damaged, and calls nothing damaged that is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seamark import limits, open_store
from seamark.blobs.contract import Blob, Entry
from seamark.blobs.filesystem import FilesystemBlobs
from seamark.errors import StoreUnavailableError
from seamark.reports.verification import check_checkpoints
from seamark.store import CheckpointStore
from seamark.store.inspection import examine
from seamark.store.validation import CheckpointKind, ExaminedCheckpoint, ValidationResult
from tests.cli.support.stores import (
    Commands,
    fill,
    flip,
    save,
    save_partitioned,
    sidecar,
    stored_manifest,
)


def found_statuses(document: Any) -> dict[int, str]:
    return {row["id"]: row["status"] for row in document["checkpoints"]}


def test_a_whole_store_is_whole_at_every_depth(seamark: Commands, store: Path) -> None:
    assert "4 checkpoints: 4 ok" in seamark("verify", store)
    shown = seamark("verify", store, "--read-data")
    assert "all bytes read" in shown
    found = seamark.json("verify", store, "--read-data")
    assert found["bytes_read"] == sum(sidecar(store, i).stat().st_size for i in range(1, 5))


def test_of_very_many_warnings_the_rest_is_told_as_a_number(
    seamark: Commands, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MOST_WARNINGS", 3)
    with open_store(store) as opened:
        save(opened, 5, sink_epochs={f"sink-{number}": 5 for number in range(10)})
    shown = seamark("verify", store)
    assert shown.count("has epoch but no commit status") == 3
    assert "and 7 more warnings" in shown
    assert len(seamark.json("verify", store)["checkpoints"][0]["warnings"]) == 10


def test_a_flipped_bit_of_state_is_found_when_data_is_read(seamark: Commands, store: Path) -> None:
    flip(sidecar(store, 3))
    assert "4 ok" in seamark("verify", store)
    shown = seamark("verify", store, "--read-data", code=3)
    assert "checksum mismatch" in shown
    assert "it builds on 3, which is damaged" in shown
    assert "seamark recover store --explain" in shown
    found = seamark.json("verify", store, "--read-data", code=3)
    assert found_statuses(found) == {4: "damaged", 3: "damaged", 2: "ok", 1: "ok"}


@pytest.mark.parametrize("attack", ["missing", "short", "long"])
def test_state_that_is_gone_or_of_another_size_needs_no_reading(
    seamark: Commands, store: Path, attack: str
) -> None:
    file = sidecar(store, 2)
    data = file.read_bytes()
    if attack == "missing":
        file.unlink()
    else:
        file.write_bytes(data[:-1] if attack == "short" else data + b"x")
    assert found_statuses(seamark.json("verify", store, code=3))[2] == "damaged"


def test_one_checkpoint_is_verified_with_what_it_builds_on(seamark: Commands, store: Path) -> None:
    flip(stored_manifest(store, 4))
    found = seamark.json("verify", store, 3, "--read-data")
    assert list(found_statuses(found)) == [3, 2, 1]
    seamark("verify", store, 4, code=3)
    seamark("verify", store, 9, code=4)


def test_partitioned_state_is_looked_at(seamark: Commands, store: Path) -> None:
    path = save_partitioned(store, 5)
    seamark("verify", store, 5)
    pack = next((store / path).glob("packs/*"))
    flip(pack)
    seamark("verify", store, 5)
    assert "damaged" in seamark("verify", store, 5, "--read-data", code=3)
    pack.unlink()
    assert "is missing" in seamark("verify", store, 5, code=3)


def test_a_share_is_the_same_for_the_same_seed_and_names_itself(
    seamark: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    fill(tmp_path / "store", 10)

    def read(seed: int) -> set[int]:
        words = ("--read-data-subset", "30%", "--seed", seed)
        rows = seamark.json("verify", "store", *words)["checkpoints"]
        return {row["id"] for row in rows if row["data_read"]}

    assert 3 <= len(read(1)) <= 4  # enough for three tenths of the bytes
    assert read(1) == read(1)
    assert set.union(*(read(seed) for seed in range(30))) == set(range(1, 11))
    shown = seamark("verify", "store", "--read-data-subset", "30%")
    assert "asked for 30%, seed " in shown


@pytest.mark.parametrize("share", ["0%", "101%", "ten", "10"])
def test_a_share_that_is_none_is_a_usage_error(seamark: Commands, store: Path, share: str) -> None:
    seamark("verify", store, "--read-data-subset", share, code=2)


def test_what_is_pruned_meanwhile_is_gone_and_not_damaged(
    seamark: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pruned between the listing and the reading, by somebody else."""
    monkeypatch.chdir(tmp_path)
    with open_store("store") as found:
        for number in range(1, 5):
            save(found, number, is_incremental=False, parent_id=None)

    def pruned_first(*args: Any, **kwargs: Any) -> Any:
        with open_store("store") as other:
            assert other.prune(2) == 2
        return check_checkpoints(*args, **kwargs)

    monkeypatch.setattr("seamark.reports.verification.check_checkpoints", pruned_first)
    found = seamark.json("verify", "store", "--read-data")
    assert found_statuses(found) == {4: "ok", 3: "ok", 2: "gone", 1: "gone"}


def test_what_is_pruned_while_it_is_looked_at_is_gone_too(
    seamark: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pruned after its manifest was read and before its state was."""
    monkeypatch.chdir(tmp_path)
    with open_store("store") as found:
        for number in (1, 2):
            save(found, number, is_incremental=False, parent_id=None)
    stat = FilesystemBlobs.stat

    def pruned_first(self: FilesystemBlobs, key: str) -> Entry | None:
        if key.endswith("000001/state.bin"):
            monkeypatch.setattr(FilesystemBlobs, "stat", stat)
            with open_store("store") as other:
                assert other.prune(1) == 1
        return stat(self, key)

    monkeypatch.setattr(FilesystemBlobs, "stat", pruned_first)
    found = seamark.json("verify", "store")
    assert found_statuses(found) == {2: "ok", 1: "gone"}


def test_an_error_that_proves_nothing_is_7_and_the_rest_is_told(
    seamark: Commands, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stat = FilesystemBlobs.stat

    def failing(self: FilesystemBlobs, key: str) -> Entry | None:
        if key.endswith("000004/state.bin"):
            raise StoreUnavailableError("503 Slow Down")
        return stat(self, key)

    monkeypatch.setattr(FilesystemBlobs, "stat", failing)
    shown = seamark("verify", store, code=7)
    assert "503 Slow Down" in shown
    assert "3 ok, 1 unreadable" in shown
    assert "That proves nothing about them" in shown
    flip(stored_manifest(store, 1))
    seamark("verify", store, code=3)  # what is proven counts more


def test_warnings_alone_are_no_failure(seamark: Commands, store: Path) -> None:
    with open_store(store) as found:
        save(found, 5, source_names=["others"])
    assert "warning: " in seamark("verify", store)


def test_a_manifest_that_cannot_be_read_hides_no_other(
    seamark: Commands, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = FilesystemBlobs.read

    def failing(self: FilesystemBlobs, key: str, limit: int) -> Blob | None:
        if key.endswith("000004/manifest.json"):
            raise StoreUnavailableError("Permission denied")
        return read(self, key, limit)

    monkeypatch.setattr(FilesystemBlobs, "read", failing)
    shown = seamark("verify", store, "--read-data", code=7)
    assert "Permission denied" in shown
    assert "3 ok, 1 unreadable" in shown
    assert "all bytes read" not in shown
    assert "state of 3 read" in shown


def test_what_a_fenced_writer_wrote_too_late_is_not_called_pruned(
    seamark: Commands, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def claimed_first(
        store: CheckpointStore, number: int, *, read_data: bool = True, **options: Any
    ) -> ExaminedCheckpoint:
        seen = examine(store, number, read_data=read_data, **options)
        late = ValidationResult.of(number, ["written by generation 1 after another"], [])
        return (
            ExaminedCheckpoint(CheckpointKind.TOO_LATE, seen.manifest, late)
            if number == 4
            else seen
        )

    monkeypatch.setattr("seamark.reports.verification.examine", claimed_first)
    shown = seamark("verify", store)
    assert "written by generation 1" in shown
    assert "pruned meanwhile" not in shown
